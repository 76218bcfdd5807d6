//! What the container runtime said of itself last, and what that means for the node's readiness.
//!
//! Layer L1, pure. A runtime that does not answer for half a minute is down; a single failed question
//! says nothing, as upstream has it.

use std::time::Duration;

use crate::api::moment::Moment;
use crate::api::runtime_info::{RuntimeCondition, RuntimeStatus, RuntimeVersion};
use crate::api::v1::{NodeFeatures, NodeRuntimeHandler, NodeRuntimeHandlerFeatures};
use crate::util::order;

/// How long a runtime may be silent before it counts as down.
pub const SILENCE: Duration = Duration::from_secs(30);

/// Reason of a sandbox that is not tried because of [`network_trouble`], and of the event that says so.
pub const NETWORK_NOT_READY: &str = "NetworkNotReady";

/// What was seen of the runtime until now.
#[derive(Clone, Debug, Default)]
pub struct RuntimeSeen {
    /// Its newest answer.
    pub status: Option<RuntimeStatus>,
    /// When it last said that it can run containers.
    pub ready_at: Option<Moment>,
    /// Its name and version, once it has told.
    pub version: Option<RuntimeVersion>,
}

impl RuntimeSeen {
    /// Takes an answer in.
    pub fn take(&mut self, mut status: RuntimeStatus, now: Moment) {
        if status.runtime_ready() {
            self.ready_at = Some(now);
        }
        order::sort_by(&mut status.handlers, |a, b| a.name.cmp(&b.name));
        status.info.clear();
        self.status = Some(status);
    }

    /// Why pods can't run here as far as the runtime goes; empty when they can.
    pub fn trouble(&self, now: Moment) -> Vec<String> {
        let mut trouble = Vec::new();
        match self.ready_at {
            None => trouble.push("container runtime status check may not have completed yet".to_owned()),
            Some(at) if now.since(at) >= SILENCE => trouble.push("container runtime is down".to_owned()),
            Some(_) => {}
        }
        let Some(status) = &self.status else {
            trouble.push("network state unknown".to_owned());
            return trouble;
        };
        trouble.extend(unmet(status, "RuntimeReady", "container runtime not ready"));
        trouble.extend(network_trouble(status));
        trouble
    }

    /// `containerd://2.4.2`.
    pub fn container_runtime_version(&self) -> Option<String> {
        self.version.as_ref().map(|version| format!("{}://{}", version.name, version.version))
    }

    /// `status.runtimeHandlers`.
    pub fn handlers(&self) -> Option<Vec<NodeRuntimeHandler>> {
        let handlers = &self.status.as_ref()?.handlers;
        let told = |handler: &crate::api::runtime_info::RuntimeHandler| NodeRuntimeHandler {
            name: Some(handler.name.clone()),
            features: Some(NodeRuntimeHandlerFeatures {
                recursive_read_only_mounts: Some(handler.recursive_read_only_mounts),
                user_namespaces: Some(handler.user_namespaces),
            }),
        };
        Some(handlers.iter().map(told).collect::<Vec<_>>()).filter(|handlers| !handlers.is_empty())
    }

    /// `status.features`.
    pub fn features(&self) -> Option<NodeFeatures> {
        let status = self.status.as_ref()?;
        // A runtime of the age of containerd 1.6 tells neither.
        (!status.handlers.is_empty() || status.supplemental_groups_policy)
            .then_some(NodeFeatures { supplemental_groups_policy: Some(status.supplemental_groups_policy) })
    }
}

/// Why no pod can have a network of its own; `None` when it can.
pub fn network_trouble(status: &RuntimeStatus) -> Option<String> {
    unmet(status, "NetworkReady", "container runtime network not ready")
}

fn unmet(status: &RuntimeStatus, type_: &str, text: &str) -> Option<String> {
    match status.condition(type_) {
        Some(condition) if condition.status => None,
        Some(condition) => Some(format!("{text}: {}", describe(condition))),
        None => Some(format!("{text}: the runtime does not tell {type_}")),
    }
}

fn describe(condition: &RuntimeCondition) -> String {
    format!("{}={} reason:{} message:{}", condition.type_, condition.status, condition.reason, condition.message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::runtime_info::RuntimeHandler;

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    fn condition(type_: &str, status: bool, reason: &str, message: &str) -> RuntimeCondition {
        RuntimeCondition { type_: type_.to_owned(), status, reason: reason.to_owned(), message: message.to_owned() }
    }

    fn answer(runtime: bool, network: bool) -> RuntimeStatus {
        RuntimeStatus {
            conditions: vec![
                condition("RuntimeReady", runtime, "R", "no shim"),
                condition("NetworkReady", network, "NetworkPluginNotReady", "cni plugin not initialized"),
            ],
            ..RuntimeStatus::default()
        }
    }

    #[test]
    fn silence_counts_after_half_a_minute() {
        let mut seen = RuntimeSeen::default();
        assert_eq!(
            seen.trouble(at(1)),
            ["container runtime status check may not have completed yet", "network state unknown"]
        );
        seen.take(answer(true, true), at(10));
        assert_eq!(seen.trouble(at(39)), [""; 0]);
        assert_eq!(seen.trouble(at(40)), ["container runtime is down"]);
    }

    #[test]
    fn the_runtimes_own_words_are_passed_on() {
        let mut seen = RuntimeSeen::default();
        seen.take(answer(true, false), at(10));
        assert_eq!(
            seen.trouble(at(10)),
            ["container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady \
              message:cni plugin not initialized"]
        );
        seen.take(answer(false, true), at(20));
        assert_eq!(seen.trouble(at(20)), ["container runtime not ready: RuntimeReady=false reason:R message:no shim"]);
        seen.take(RuntimeStatus::default(), at(21));
        assert_eq!(seen.trouble(at(21)).len(), 2, "a condition that is missing does not hold");
    }

    #[test]
    fn handlers_come_in_the_order_of_their_names() {
        let mut seen = RuntimeSeen::default();
        assert_eq!((seen.handlers(), seen.features(), seen.container_runtime_version()), (None, None, None));
        seen.take(answer(true, true), at(1));
        assert_eq!((seen.handlers(), seen.features()), (None, None), "an old runtime tells of none");
        let handler = |name: &str| RuntimeHandler { name: name.to_owned(), ..RuntimeHandler::default() };
        let status = RuntimeStatus { handlers: vec![handler("runc"), handler("")], ..answer(true, true) };
        seen.take(status, at(1));
        let names: Vec<_> = seen.handlers().unwrap().into_iter().filter_map(|handler| handler.name).collect();
        assert_eq!(names, ["", "runc"]);
        assert_eq!(seen.features().unwrap().supplemental_groups_policy, Some(false));
        seen.version =
            Some(RuntimeVersion { name: "containerd".into(), version: "2.4.2".into(), api_version: "v1".into() });
        assert_eq!(seen.container_runtime_version().as_deref(), Some("containerd://2.4.2"));
    }
}

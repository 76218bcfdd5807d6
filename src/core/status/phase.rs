//! The phase of a pod: a count over its containers.
//!
//! Layer L1, pure. It only counts; that a terminal phase never changes and is not told too early is
//! the parent module's part.

use super::containers::{self, Lists};
use super::view::View;
use super::{Stage, StatusInput};
use crate::api::pod::{self, ContainerKind};
use crate::api::v1::{Container, ContainerStatus, Pod, PodStatus};

/// Phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Accepted; a container has yet to start for the first time.
    Pending,
    /// All containers have started and one runs or restarts.
    Running,
    /// All containers ended well and none restarts.
    Succeeded,
    /// All containers ended, one of them badly, and none restarts.
    Failed,
}

impl Phase {
    /// The word of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// The phase that a status tells; `None` if it tells none.
    pub fn of(status: &PodStatus) -> Option<Self> {
        match status.phase.as_deref()? {
            "Pending" => Some(Self::Pending),
            "Running" => Some(Self::Running),
            "Succeeded" => Some(Self::Succeeded),
            "Failed" => Some(Self::Failed),
            _ => None,
        }
    }

    /// Whether no other phase ever follows.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// Whether the action `RestartAllContainers` of restart rules is known here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartAll {
    /// It is: the feature gate `RestartAllContainersOnContainerExits` is on, as by default.
    #[default]
    InForce,
    /// It is not: a rule that says so counts for nothing, and the policy decides.
    Unknown,
}

/// Whether a container starts again after this exit code: by the first of its rules that matches,
/// else by its own policy, else by the pod's. An init container of a pod with policy `Always` runs
/// again until it succeeds; the caller knows whether it already has.
pub fn restarts_after(
    pod: &Pod,
    kind: ContainerKind,
    container: &Container,
    exit_code: i32,
    restart_all: RestartAll,
) -> bool {
    if kind != ContainerKind::Ephemeral {
        match rule_after(container, exit_code) {
            Some("Restart") => return true,
            Some("RestartAllContainers") if restart_all == RestartAll::InForce => return true,
            Some(_) | None => {}
        }
    }
    match pod::container_restart_policy(pod, kind, container) {
        pod::RestartPolicy::Always => true,
        pod::RestartPolicy::OnFailure => exit_code != 0,
        pod::RestartPolicy::Never => false,
    }
}

/// Whether all containers of the pod restart when this one of its spec ends with this code.
pub fn restarts_all(container: &Container, exit_code: i32, restart_all: RestartAll) -> bool {
    restart_all == RestartAll::InForce && rule_after(container, exit_code) == Some("RestartAllContainers")
}

/// Whether any container of the pod has a rule that restarts all.
pub(super) fn may_restart_all(pod: &Pod) -> bool {
    let containers = pod::init_containers(pod).iter().chain(pod::app_containers(pod));
    let mut rules = containers.flat_map(|c| c.restart_policy_rules.iter().flatten());
    rules.any(|rule| rule.action == "RestartAllContainers")
}

/// The action of the first rule that matches an exit code. Without a policy of its own a container
/// can't have rules; the API refuses them.
fn rule_after(container: &Container, exit_code: i32) -> Option<&str> {
    let rules = container.restart_policy_rules.as_deref().filter(|_| container.restart_policy.is_some());
    let matching = rules.unwrap_or_default().iter().find(|rule| {
        rule.exit_codes.as_ref().is_some_and(|on| {
            let listed = on.values.as_ref().is_some_and(|values| values.contains(&exit_code));
            match on.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                _ => false,
            }
        })
    });
    matching.map(|rule| rule.action.as_str())
}

/// The status of a container in a list.
pub(super) fn find<'s>(statuses: &'s [ContainerStatus], name: &str) -> Option<&'s ContainerStatus> {
    statuses.iter().find(|s| s.name == name)
}

/// Whether an app container runs or has run, by its present state.
pub(super) fn any_app_container_began(pod: &Pod, statuses: &[ContainerStatus]) -> bool {
    pod::app_containers(pod)
        .iter()
        .filter_map(|c| find(statuses, &c.name))
        .any(|status| status.state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some()))
}

#[derive(Default)]
struct Count {
    pending_init: u32,
    pending_sidecars: u32,
    failed_init: u32,
    unknown: u32,
    running: u32,
    waiting: u32,
    stopped: u32,
    stopped_for_good: u32,
    succeeded: u32,
}

/// The phase that the containers add up to.
pub(super) fn compute(input: &StatusInput<'_>, view: &View<'_>, lists: &Lists) -> Phase {
    let count = count(input, lists);
    if count.failed_init > 0 {
        return Phase::Failed;
    }
    // A sidecar that restarts does not take a pod back to Pending whose app containers have run.
    let sidecars_hold = count.pending_sidecars > 0 && !has_app_container_in_sandbox(input.pod, view);
    if count.pending_init > 0 || sidecars_hold || count.waiting > 0 || count.unknown > 0 {
        return Phase::Pending;
    }
    if count.running > 0 {
        return Phase::Running;
    }
    if count.stopped == 0 {
        return Phase::Pending;
    }
    // The containers of a pod that ended don't restart, whatever their policy. A static pod keeps a
    // phase that lets it come back.
    let over = input.stage == Stage::Terminated && !pod::is_static(input.pod);
    if !over && count.stopped != count.stopped_for_good {
        Phase::Running
    } else if count.stopped == count.succeeded {
        Phase::Succeeded
    } else {
        Phase::Failed
    }
}

fn count(input: &StatusInput<'_>, lists: &Lists) -> Count {
    let pod = input.pod;
    // One that was removed so that all restart does so whatever its policy.
    let restarts = |kind, container: &Container, status: Option<&ContainerStatus>, code| {
        restarts_after(pod, kind, container, code, input.restart_all)
            || status.is_some_and(containers::ended_to_restart_all)
    };
    let mut n = Count::default();
    for container in pod::init_containers(pod) {
        let sidecar = pod::is_sidecar(container);
        let status = find(&lists.init, &container.name);
        let state = status.and_then(|s| s.state.as_ref());
        let running = status.is_some_and(containers::is_running);
        let exit_code = status.and_then(containers::exit_code_so_far);
        match (sidecar, exit_code) {
            // An ended sidecar counts neither way.
            (true, Some(_)) => {}
            (true, None) if running => {
                n.running += 1;
                n.pending_sidecars += u32::from(status.is_none_or(|s| s.started != Some(true)));
            }
            (true, None) => {
                n.pending_sidecars += 1;
                n.waiting += u32::from(state.is_some());
                n.unknown += u32::from(state.is_none());
            }
            (false, Some(0)) => {}
            (false, Some(code)) => {
                n.failed_init += u32::from(!restarts(ContainerKind::Init, container, status, code));
            }
            (false, None) => n.pending_init += 1,
        }
    }
    for container in pod::app_containers(pod) {
        let Some(status) = find(&lists.app, &container.name) else {
            n.unknown += 1;
            continue;
        };
        if containers::is_running(status) {
            n.running += 1;
            continue;
        }
        match containers::exit_code_so_far(status) {
            None => n.waiting += 1,
            Some(code) => {
                n.stopped += 1;
                n.stopped_for_good += u32::from(!restarts(ContainerKind::App, container, Some(status), code));
                // One that waits for its next start has not succeeded.
                n.succeeded += u32::from(containers::terminated(status).is_some_and(|t| t.exit_code == 0));
            }
        }
    }
    n
}

fn has_app_container_in_sandbox(pod: &Pod, view: &View<'_>) -> bool {
    let Some(sandbox) = view.ready_sandbox() else { return false };
    let in_sandbox = |name: &str| view.instances(name).is_some_and(|i| i.newest.sandbox_id == sandbox.id);
    pod::app_containers(pod).iter().any(|c| in_sandbox(&c.name))
}

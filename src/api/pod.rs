//! Questions about a pod that many layers ask: who brought it, is it critical, which containers it
//! has and of which kind, how it restarts and how long it may take to stop.
//!
//! Layer L0, used on every thread, pure. It only reads the pod: it fills in no defaults in place and
//! never fails; what is missing answers as the API's default would.

use std::borrow::Cow;

use super::v1::{Container, EphemeralContainer, Pod, PodSpec, SecurityContext};
use super::{PodName, PodUid, labels};

/// Pods of this priority and above are critical to the system (`system-cluster-critical`).
pub const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// Grace period of a pod that states none, in seconds.
pub const DEFAULT_GRACE_SECONDS: i64 = 30;

/// Where a pod came from (annotation [`labels::CONFIG_SOURCE`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConfigSource {
    /// A manifest file of this node.
    File,
    /// The manifest URL.
    Http,
    /// The API server.
    Api,
}

impl ConfigSource {
    /// The value of the annotation.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Http => "http",
            Self::Api => "api",
        }
    }
}

/// `spec.restartPolicy` of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RestartPolicy {
    /// Whatever the exit code.
    #[default]
    Always,
    /// After a failure only.
    OnFailure,
    /// Not at all.
    Never,
}

impl RestartPolicy {
    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::OnFailure => "OnFailure",
            Self::Never => "Never",
        }
    }

    /// Reads the word of the API; `None` for anything else.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "Always" => Some(Self::Always),
            "OnFailure" => Some(Self::OnFailure),
            "Never" => Some(Self::Never),
            _ => None,
        }
    }
}

/// What part a container plays in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ContainerKind {
    /// Runs to its end before the next one starts.
    Init,
    /// An init container with `restartPolicy: Always`: starts in order, then runs along.
    Sidecar,
    /// An ordinary container.
    App,
    /// Added to a running pod for debugging; never restarted.
    Ephemeral,
}

impl ContainerKind {
    /// Whether it is listed under `spec.initContainers`.
    /// As metrics call it.
    pub fn metric_label(self) -> &'static str {
        match self {
            Self::Init | Self::Sidecar => "init_container",
            Self::App => "container",
            Self::Ephemeral => "ephemeral_container",
        }
    }

    /// Whether it stands in the list of init containers.
    pub fn is_init(self) -> bool {
        matches!(self, Self::Init | Self::Sidecar)
    }
}

/// `metadata.uid`; empty if there is none.
pub fn pod_uid(pod: &Pod) -> PodUid {
    PodUid::from(pod.metadata.uid.as_deref().unwrap_or_default())
}

/// Namespace and name; the namespace is `default` when absent.
pub fn pod_name(pod: &Pod) -> PodName {
    PodName { namespace: namespace(pod).to_owned(), name: name(pod).to_owned() }
}

/// `metadata.name`; empty if there is none.
pub fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// `metadata.namespace`, `default` when absent or empty.
pub fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().filter(|n| !n.is_empty()).unwrap_or("default")
}

/// An annotation of the pod.
pub fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Who brought the pod; `None` when it carries no mark or one that no source writes.
pub fn config_source(pod: &Pod) -> Option<ConfigSource> {
    match annotation(pod, labels::CONFIG_SOURCE)? {
        "file" => Some(ConfigSource::File),
        "http" => Some(ConfigSource::Http),
        "api" => Some(ConfigSource::Api),
        _ => None,
    }
}

/// Whether it comes from a manifest of this node rather than from the API server.
pub fn is_static(pod: &Pod) -> bool {
    matches!(config_source(pod), Some(ConfigSource::File | ConfigSource::Http))
}

/// Whether it is the API server's picture of a static pod.
pub fn is_mirror(pod: &Pod) -> bool {
    annotation(pod, labels::CONFIG_MIRROR).is_some()
}

/// Whether the node must keep it: a static or mirror pod, or one of system priority.
pub fn is_critical(pod: &Pod) -> bool {
    is_static(pod) || is_mirror(pod) || is_node_critical_priority(pod)
}

fn is_node_critical_priority(pod: &Pod) -> bool {
    spec(pod).and_then(|s| s.priority).is_some_and(|p| p >= SYSTEM_CRITICAL_PRIORITY)
}

/// `spec`; `None` for a pod without one, which validation refuses.
pub fn spec(pod: &Pod) -> Option<&PodSpec> {
    pod.spec.as_ref()
}

/// Whether it uses the node's network.
pub fn is_host_network(pod: &Pod) -> bool {
    spec(pod).and_then(|s| s.host_network).unwrap_or(false)
}

/// Whether the agent fills any of its volumes with files that may change while it runs: configMap, secret,
/// projected, downwardAPI.
pub fn has_filled_volumes(pod: &Pod) -> bool {
    spec(pod).and_then(|s| s.volumes.as_deref()).unwrap_or_default().iter().any(|volume| {
        volume.config_map.is_some()
            || volume.secret.is_some()
            || volume.projected.is_some()
            || volume.downward_api.is_some()
    })
}

/// Whether it asks for a user namespace of its own (`hostUsers: false`).
pub fn has_user_namespace(pod: &Pod) -> bool {
    spec(pod).and_then(|s| s.host_users) == Some(false)
}

/// `spec.restartPolicy`, `Always` when absent.
pub fn restart_policy(pod: &Pod) -> RestartPolicy {
    spec(pod).and_then(|s| s.restart_policy.as_deref()).and_then(RestartPolicy::parse).unwrap_or_default()
}

/// How a container restarts: its own `restartPolicy`, else the pod's. An init container that fails
/// in a pod with policy `Always` is retried like one with `OnFailure`, and an ephemeral container
/// never restarts.
pub fn container_restart_policy(pod: &Pod, kind: ContainerKind, container: &Container) -> RestartPolicy {
    let own = container.restart_policy.as_deref().and_then(RestartPolicy::parse);
    match kind {
        ContainerKind::Ephemeral => RestartPolicy::Never,
        ContainerKind::Sidecar => RestartPolicy::Always,
        ContainerKind::App => own.unwrap_or_else(|| restart_policy(pod)),
        ContainerKind::Init => match own.unwrap_or_else(|| restart_policy(pod)) {
            RestartPolicy::Always => RestartPolicy::OnFailure,
            other => other,
        },
    }
}

/// `spec.terminationGracePeriodSeconds`, 30 when absent; a negative one counts as 1, as in the API.
pub fn grace_seconds(pod: &Pod) -> i64 {
    match spec(pod).and_then(|s| s.termination_grace_period_seconds) {
        None => DEFAULT_GRACE_SECONDS,
        Some(seconds) if seconds < 0 => 1,
        Some(seconds) => seconds,
    }
}

/// `spec.initContainers`, sidecars included, in their order.
pub fn init_containers(pod: &Pod) -> &[Container] {
    spec(pod).and_then(|s| s.init_containers.as_deref()).unwrap_or_default()
}

/// `spec.containers`.
pub fn app_containers(pod: &Pod) -> &[Container] {
    spec(pod).map(|s| s.containers.as_slice()).unwrap_or_default()
}

/// `spec.ephemeralContainers`.
pub fn ephemeral_containers(pod: &Pod) -> &[EphemeralContainer] {
    spec(pod).and_then(|s| s.ephemeral_containers.as_deref()).unwrap_or_default()
}

/// Whether an init container is a sidecar.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Every container of the pod with its kind: init containers and sidecars in their order, then app
/// containers, then ephemeral ones (which are converted, hence the `Cow`).
pub fn all_containers(pod: &Pod) -> impl Iterator<Item = (ContainerKind, Cow<'_, Container>)> {
    let init = init_containers(pod).iter().map(|c| {
        let kind = if is_sidecar(c) { ContainerKind::Sidecar } else { ContainerKind::Init };
        (kind, Cow::Borrowed(c))
    });
    let app = app_containers(pod).iter().map(|c| (ContainerKind::App, Cow::Borrowed(c)));
    let ephemeral =
        ephemeral_containers(pod).iter().map(|c| (ContainerKind::Ephemeral, Cow::Owned(ephemeral_as_container(c))));
    init.chain(app).chain(ephemeral)
}

/// The container of that name with its kind.
pub fn find_container<'a>(pod: &'a Pod, name: &str) -> Option<(ContainerKind, Cow<'a, Container>)> {
    all_containers(pod).find(|(_, c)| c.name == name)
}

/// The security contexts of all containers, without converting any.
pub fn security_contexts(pod: &Pod) -> impl Iterator<Item = &SecurityContext> {
    let plain = init_containers(pod).iter().chain(app_containers(pod)).filter_map(|c| c.security_context.as_ref());
    plain.chain(ephemeral_containers(pod).iter().filter_map(|c| c.security_context.as_ref()))
}

/// Whether any container of the pod is privileged.
pub fn has_privileged_container(pod: &Pod) -> bool {
    security_contexts(pod).any(|s| s.privileged == Some(true))
}

/// An ephemeral container as a plain one, without its target.
pub fn ephemeral_as_container(container: &EphemeralContainer) -> Container {
    let c = container.clone();
    Container {
        args: c.args,
        command: c.command,
        env: c.env,
        env_from: c.env_from,
        image: c.image,
        image_pull_policy: c.image_pull_policy,
        lifecycle: c.lifecycle,
        liveness_probe: c.liveness_probe,
        name: c.name,
        ports: c.ports,
        readiness_probe: c.readiness_probe,
        resize_policy: c.resize_policy,
        resources: c.resources,
        restart_policy: c.restart_policy,
        restart_policy_rules: c.restart_policy_rules,
        security_context: c.security_context,
        startup_probe: c.startup_probe,
        stdin: c.stdin,
        stdin_once: c.stdin_once,
        termination_message_path: c.termination_message_path,
        termination_message_policy: c.termination_message_policy,
        tty: c.tty,
        volume_devices: c.volume_devices,
        volume_mounts: c.volume_mounts,
        working_dir: c.working_dir,
    }
}

/// The container whose namespaces an ephemeral container joins, by name; `None` or empty for none.
pub fn ephemeral_target<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let container = ephemeral_containers(pod).iter().find(|c| c.name == name)?;
    container.target_container_name.as_deref().filter(|n| !n.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(json: serde_json::Value) -> Pod {
        serde_json::from_value(json).expect("a pod")
    }

    #[test]
    fn sources_and_criticality() {
        for (annotations, priority, source, is_critical_pod) in [
            (serde_json::json!({}), 0, None, false),
            (serde_json::json!({labels::CONFIG_SOURCE: "file"}), 0, Some(ConfigSource::File), true),
            (serde_json::json!({labels::CONFIG_SOURCE: "http"}), 0, Some(ConfigSource::Http), true),
            (serde_json::json!({labels::CONFIG_SOURCE: "api"}), 0, Some(ConfigSource::Api), false),
            (serde_json::json!({labels::CONFIG_SOURCE: "api"}), 2_000_000_000, Some(ConfigSource::Api), true),
            (serde_json::json!({labels::CONFIG_SOURCE: "api"}), 1_999_999_999, Some(ConfigSource::Api), false),
            (serde_json::json!({labels::CONFIG_MIRROR: "x"}), 0, None, true),
            (serde_json::json!({labels::CONFIG_SOURCE: "carrier pigeon"}), 0, None, false),
        ] {
            let p = pod(
                serde_json::json!({"metadata": {"annotations": annotations}, "spec": {"containers": [], "priority": priority}}),
            );
            assert_eq!((config_source(&p), is_critical(&p)), (source, is_critical_pod), "{:?}", p.metadata);
        }
    }

    #[test]
    fn containers_come_in_order_with_their_kinds() {
        let p = pod(serde_json::json!({"spec": {
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
            "containers": [{"name": "a"}],
            "ephemeralContainers": [{"name": "e", "targetContainerName": "a"}],
        }}));
        let seen: Vec<_> = all_containers(&p).map(|(k, c)| (k, c.name.clone())).collect();
        let expect = [
            (ContainerKind::Init, "i".to_owned()),
            (ContainerKind::Sidecar, "s".to_owned()),
            (ContainerKind::App, "a".to_owned()),
            (ContainerKind::Ephemeral, "e".to_owned()),
        ];
        assert_eq!(seen, expect);
        assert_eq!(ephemeral_target(&p, "e"), Some("a"));
        assert_eq!(ephemeral_target(&p, "a"), None);
    }

    #[test]
    fn a_container_restarts_by_its_own_policy_first() {
        use ContainerKind::{App, Ephemeral, Init, Sidecar};
        use RestartPolicy::{Always, Never, OnFailure};
        for (of_pod, kind, own, expect) in [
            ("Always", App, None, Always),
            ("Never", App, None, Never),
            ("Never", App, Some("OnFailure"), OnFailure),
            ("Always", Init, None, OnFailure),
            ("Never", Init, None, Never),
            ("Never", Sidecar, Some("Always"), Always),
            ("Always", Ephemeral, None, Never),
        ] {
            let p = pod(serde_json::json!({"spec": {"restartPolicy": of_pod, "containers": []}}));
            let container = Container { restart_policy: own.map(str::to_owned), ..Container::default() };
            assert_eq!(container_restart_policy(&p, kind, &container), expect, "{of_pod} {kind:?} {own:?}");
        }
    }

    #[test]
    fn an_empty_pod_answers_with_defaults() {
        let p = Pod::default();
        assert_eq!(pod_name(&p), PodName { namespace: "default".into(), name: String::new() });
        assert_eq!((grace_seconds(&p), restart_policy(&p), is_host_network(&p)), (30, RestartPolicy::Always, false));
        assert_eq!(all_containers(&p).count(), 0);
    }
}

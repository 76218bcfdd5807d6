//! Why a pod cannot be put into words for the runtime.
//!
//! Layer L1, plain data. The texts end up in `status.containerStatuses[].state.waiting.message`, so
//! they name the field and what would be right, and never what only the node's owner may know.

/// Waiting reason of a container whose [`container_spec`](super::container_spec) failed.
pub const CONTAINER_CONFIG_ERROR: &str = "CreateContainerConfigError";
/// Reason when [`sandbox_spec`](super::sandbox_spec) failed.
pub const SANDBOX_CONFIG_ERROR: &str = "CreatePodSandboxError";

/// Why a sandbox or container cannot be configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The user in force is 0.
    #[error(
        "container's runAsUser breaks non-root policy (pod: {pod:?}, container: {container}): set runAsUser above 0"
    )]
    RunAsUserIsRoot {
        /// Pod.
        pod: String,
        /// Container.
        container: String,
    },
    /// The image's user is 0.
    #[error(
        "container has runAsNonRoot and image will run as root (pod: {pod:?}, container: {container}): set runAsUser above 0"
    )]
    ImageRunsAsRoot {
        /// Pod.
        pod: String,
        /// Container.
        container: String,
    },
    /// The image's user is a name, which may stand for root.
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root (pod: {pod:?}, container: {container}): set runAsUser"
    )]
    ImageUserIsName {
        /// User.
        user: String,
        /// Pod.
        pod: String,
        /// Container.
        container: String,
    },
    /// The image's user is no id at all.
    #[error(
        "container has runAsNonRoot and image has an invalid user id ({uid}), it must be 1 to 2147483647 (pod: {pod:?}, container: {container}): set runAsUser"
    )]
    ImageUserInvalid {
        /// User id.
        uid: i64,
        /// Pod.
        pod: String,
        /// Container.
        container: String,
    },
    /// A mount or device names no volume of the pod, or one that is not mounted.
    #[error("cannot find volume {volume:?} to mount into container {container:?}")]
    VolumeMissing {
        /// Volume.
        volume: String,
        /// Container.
        container: String,
    },
    /// A sub path leaves its volume.
    #[error("volume mount {volume:?}: subPath {path:?} must be relative to the volume and must not contain \"..\"")]
    SubPathEscapes {
        /// Volume.
        volume: String,
        /// Sub path, expanded.
        path: String,
    },
    /// A variable of `subPathExpr` is not set.
    #[error("volume mount {volume:?}: subPathExpr needs a value for {names}")]
    SubPathVariables {
        /// Volume.
        volume: String,
        /// Names, comma separated.
        names: String,
    },
    /// The worker did not prepare a sub path.
    #[error("failed to prepare subPath for volumeMount {volume:?} of container {container:?}")]
    SubPathNotPrepared {
        /// Volume.
        volume: String,
        /// Container.
        container: String,
    },
    /// Recursive read-only was asked for where it cannot be had.
    #[error("volume mount {volume:?}: recursiveReadOnly cannot be {mode}: {why}")]
    RecursiveReadOnly {
        /// Volume.
        volume: String,
        /// The mode.
        mode: String,
        /// Why.
        why: String,
    },
    /// A word of the API that this agent does not know.
    #[error("{field}: {value:?} is unknown; use {expected}")]
    UnknownValue {
        /// Field.
        field: &'static str,
        /// Value.
        value: String,
        /// What would be right.
        expected: &'static str,
    },
    /// A profile of type Localhost without its name.
    #[error("{field}.localhostProfile must be set when the type is Localhost")]
    LocalhostProfile {
        /// Field.
        field: &'static str,
    },
    /// A name that must be a DNS label or subdomain.
    #[error("{field}: {value:?} is not a valid DNS {kind}: {why}")]
    DnsName {
        /// Field.
        field: &'static str,
        /// Value.
        value: String,
        /// `label` or `subdomain`.
        kind: &'static str,
        /// Why.
        why: String,
    },
    /// The full name does not fit the kernel.
    #[error(
        "setHostnameAsFQDN: the name {fqdn} is too long: the kernel takes 64 characters and it has {length}; shorten hostname, subdomain or namespace"
    )]
    FqdnTooLong {
        /// Full name.
        fqdn: String,
        /// Its length.
        length: usize,
    },
    /// The node's resolv.conf cannot be used.
    #[error("the node's resolv.conf, line {line}: nameserver without an address")]
    ResolvConf {
        /// Line, from 1.
        line: usize,
    },
    /// A user namespace is wanted from a runtime that has none.
    #[error("can't set `spec.hostUsers: false`: {}", match handler.as_str() {
        "" => "the runtime does not support user namespaces".to_owned(),
        name => format!("RuntimeClass handler {name:?} does not support user namespaces"),
    })]
    UserNamespaceUnsupported {
        /// Handler.
        handler: String,
    },
    /// A user namespace is wanted and no ids were set aside.
    #[error("no user and group ids were allocated for the user namespace of pod {pod:?}")]
    UserNamespaceMissing {
        /// Pod.
        pod: String,
    },
    /// A field reference that cannot be answered.
    #[error("fieldRef: {path:?} {why}")]
    FieldPath {
        /// Path.
        path: String,
        /// Why.
        why: String,
    },
    /// A resource reference that cannot be answered.
    #[error("resourceFieldRef: {0}")]
    ResourceField(String),
    /// A ConfigMap or Secret that does not exist.
    #[error("{kind} {name:?} not found")]
    EnvMissing {
        /// `configmap` or `secret`.
        kind: String,
        /// Name.
        name: String,
    },
    /// A ConfigMap or Secret that nobody can tell of, for this reason.
    #[error("{0}")]
    EnvUnavailable(String),
    /// A ConfigMap or Secret on a node without an API server.
    #[error("couldn't get {kind} {namespace}/{name}, no kubeClient defined: this node has no API server")]
    EnvNoServer {
        /// `configMap` or `secret`.
        kind: &'static str,
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
    },
    /// A key that is not there.
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    EnvKey {
        /// Key.
        key: String,
        /// `ConfigMap` or `Secret`.
        kind: &'static str,
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
    },
    /// A value that no process can be given.
    #[error("environment variable {name}: its value {why}")]
    EnvValue {
        /// Variable.
        name: String,
        /// Why.
        why: &'static str,
    },
    /// An environment file that cannot be used.
    #[error("environment variable {name}: file {path:?} of volume {volume:?}: {why}")]
    EnvFile {
        /// Variable.
        name: String,
        /// Volume.
        volume: String,
        /// Path in the volume.
        path: String,
        /// Why.
        why: String,
    },
    /// Something of the API that this agent cannot do.
    #[error("container {container:?}: {what} is not supported by this agent")]
    Unsupported {
        /// Container.
        container: String,
        /// Field.
        what: &'static str,
    },
}

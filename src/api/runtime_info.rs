//! Our own words for what a container runtime tells about itself and answers to requests.
//!
//! Layer L0, used on every thread. Plain data; the `cri` port makes it from CRI v1 messages.

use std::collections::BTreeMap;

use super::runtime::{RuntimeContainer, RuntimePod, RuntimeSandbox, SandboxState, UnixNanos};
use super::{ContainerId, PodName, PodUid, SandboxId};

/// Who answers at the runtime's socket (CRI `VersionResponse`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeVersion {
    /// Name, e.g. `containerd`.
    pub name: String,
    /// Its version, e.g. `1.6.20~ds1`.
    pub version: String,
    /// CRI version it speaks, `v1`.
    pub api_version: String,
}

/// One condition of the runtime (CRI `RuntimeCondition`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeCondition {
    /// `RuntimeReady`, `NetworkReady` or the runtime's own.
    pub type_: String,
    /// Whether it holds.
    pub status: bool,
    /// CamelCase reason.
    pub reason: String,
    /// Explanation.
    pub message: String,
}

/// A RuntimeClass handler that the runtime knows (CRI `RuntimeHandler`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeHandler {
    /// Handler name; empty for the default one.
    pub name: String,
    /// Whether mounts can be read-only all the way down.
    pub recursive_read_only_mounts: bool,
    /// Whether pods can have a user namespace.
    pub user_namespaces: bool,
}

/// Whether the runtime can work, and what it can do (CRI `StatusResponse`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeStatus {
    /// All conditions.
    pub conditions: Vec<RuntimeCondition>,
    /// Handlers, where the runtime tells (containerd 2, CRI-O).
    pub handlers: Vec<RuntimeHandler>,
    /// Whether `supplementalGroupsPolicy` works; false where the runtime does not tell.
    pub supplemental_groups_policy: bool,
    /// Whether user namespaces work together with the node's network.
    pub user_namespaces_host_network: bool,
    /// Whether mounts take options.
    pub mount_options: bool,
    /// Verbose facts in the runtime's own form, when asked for.
    pub info: BTreeMap<String, String>,
}

impl RuntimeStatus {
    /// The condition of this type.
    pub fn condition(&self, type_: &str) -> Option<&RuntimeCondition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }

    /// Whether the runtime runs containers. A missing condition counts as "no".
    pub fn runtime_ready(&self) -> bool {
        self.condition("RuntimeReady").is_some_and(|condition| condition.status)
    }

    /// Whether the pod network is set up. A missing condition counts as "no".
    pub fn network_ready(&self) -> bool {
        self.condition("NetworkReady").is_some_and(|condition| condition.status)
    }
}

/// How the runtime manages cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// Slices and scopes through systemd.
    Systemd,
    /// Files of the cgroup file system.
    Cgroupfs,
}

/// A sandbox looked at closely (CRI `PodSandboxStatusResponse`).
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxStatus {
    /// The sandbox.
    pub sandbox: RuntimeSandbox,
    /// Its containers, from runtimes that send them along (those with container events); else empty.
    pub containers: Vec<RuntimeContainer>,
    /// When the runtime looked; 0 where it does not tell.
    pub timestamp: UnixNanos,
}

/// What a command in a container wrote and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOutput {
    /// Standard output, cut at the port's limit.
    pub stdout: Vec<u8>,
    /// Standard error, likewise.
    pub stderr: Vec<u8>,
    /// Exit code.
    pub exit_code: i32,
    /// Whether one of the two was cut.
    pub truncated: bool,
}

/// Which streams an exec or attach session joins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// With a terminal; stderr is then part of stdout.
    pub tty: bool,
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
}

/// A container's state without its facts, for a quick look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Made, not started.
    Created,
    /// Runs.
    Running,
    /// Ended.
    Exited,
    /// The runtime lost track of it.
    Unknown,
}

/// The least that tells whether a pod changed since the last look: two that are equal need no closer one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodGlimpse {
    /// Pod uid, from the label.
    pub uid: PodUid,
    /// Namespace and name, if it has a sandbox: those of the metadata.
    pub name: Option<PodName>,
    /// Its sandboxes in the order of ids.
    pub sandboxes: Vec<(SandboxId, SandboxState)>,
    /// Its containers in the order of ids.
    pub containers: Vec<(ContainerId, Life)>,
}

/// Which containers to list. Empty: all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerFilter {
    /// Those of the pod with this uid.
    pub pod_uid: Option<String>,
    /// Those of this sandbox.
    pub sandbox: Option<SandboxId>,
    /// That with this id.
    pub id: Option<ContainerId>,
}

/// What happened to a container (CRI `ContainerEventType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerEventKind {
    /// Made.
    Created,
    /// Its process started.
    Started,
    /// Its process ended.
    Stopped,
    /// Removed.
    Deleted,
}

/// A container event, pushed by the runtime. Events of sandboxes carry the sandbox's id.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerEvent {
    /// The container, or the sandbox.
    pub container_id: ContainerId,
    /// What happened.
    pub kind: ContainerEventKind,
    /// When.
    pub created_at: UnixNanos,
    /// The pod as the runtime saw it then, with the facts of an inspection; `None` where the runtime
    /// sent nothing that tells the pod.
    pub pod: Option<RuntimePod>,
}

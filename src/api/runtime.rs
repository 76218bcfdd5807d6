//! Our own words for what a container runtime runs and is asked to run.
//!
//! Layer L0, used on every thread. Plain data: the `cri` port converts these to and from CRI v1
//! messages, everybody else never sees a protobuf type. Times from the runtime are wall-clock
//! nanoseconds since 1970 and serve display and API status only; decisions use monotonic time.

use std::collections::BTreeMap;

use super::labels::{CONFIG_SEEN, CONFIG_SOURCE, Marks};
use super::{ContainerId, PodUid, SandboxId};

/// Nanoseconds since 1970-01-01 UTC as the runtime tells them; 0 means "not yet" or "unknown".
pub type UnixNanos = i64;

/// One pod as the runtime sees it: all its sandboxes and containers, dead ones included.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimePod {
    /// Pod uid, from the label `io.kubernetes.pod.uid`.
    pub uid: Option<PodUid>,
    /// Pod name, from the sandbox's metadata or a container's labels.
    pub name: String,
    /// Pod namespace, likewise.
    pub namespace: String,
    /// Newest attempt first.
    pub sandboxes: Vec<RuntimeSandbox>,
    /// Newest first (by creation time, then attempt).
    pub containers: Vec<RuntimeContainer>,
}

/// A static pod of a manifest file, as its sandbox or its record tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePod {
    /// Pod namespace.
    pub namespace: String,
    /// Pod name, with the node's behind it.
    pub name: String,
    /// Pod uid, given by whoever began it.
    pub uid: String,
    /// When its agent first saw it, RFC 3339 text.
    pub seen: String,
}

impl FilePod {
    /// From a pod's metadata; `None` for a pod of another source.
    pub fn from_annotations(
        namespace: &str,
        name: &str,
        uid: &str,
        annotations: &BTreeMap<String, String>,
    ) -> Option<Self> {
        annotations.get(CONFIG_SOURCE).filter(|source| *source == "file")?;
        let [namespace, name, uid] = [namespace, name, uid].map(str::to_owned);
        Some(Self { namespace, name, uid, seen: annotations.get(CONFIG_SEEN)?.clone() })
    }
}

/// State of a pod sandbox (CRI `PodSandboxState`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxState {
    /// Its network and namespaces exist.
    Ready,
    /// It was stopped or died.
    NotReady,
}

/// A pod sandbox as reported by the runtime.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeSandbox {
    /// The runtime's id.
    pub id: SandboxId,
    /// 0 for the first sandbox of a pod, one more for each that follows.
    pub attempt: u32,
    /// Ready or not.
    pub state: SandboxState,
    /// When it was made.
    pub created_at: UnixNanos,
    /// Pod addresses, primary first; empty with host networking or before an inspection.
    pub ips: Vec<String>,
    /// Whether it lives in the node's network namespace; known after an inspection.
    pub host_network: bool,
    /// RuntimeClass handler; empty for the default.
    pub runtime_handler: String,
}

/// How and when a container ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// Exit code; 128 + n for signal n.
    pub code: i32,
    /// The runtime's word for it: `Completed`, `Error`, `OOMKilled`, …
    pub reason: String,
    /// The runtime's explanation, if any.
    pub message: String,
    /// When it had started; 0 if it never did.
    pub started_at: UnixNanos,
    /// When it ended.
    pub finished_at: UnixNanos,
}

/// State of a container (CRI `ContainerState` with the facts that belong to it).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// Made, not started.
    Created,
    /// Runs since `started_at`.
    Running {
        /// When it started; 0 before an inspection.
        started_at: UnixNanos,
    },
    /// Ended. A list tells only that; code, reason and times are known after an inspection.
    Exited(Exit),
    /// The runtime lost track of it.
    Unknown,
}

impl ContainerState {
    /// Whether a process of this container may still be alive.
    pub fn may_run(&self) -> bool {
        matches!(self, Self::Running { .. } | Self::Unknown)
    }
}

/// A container as reported by the runtime.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeContainer {
    /// The runtime's id.
    pub id: ContainerId,
    /// The sandbox it lives in.
    pub sandbox_id: SandboxId,
    /// Container name within the pod.
    pub name: String,
    /// CRI metadata attempt, which is also the restart count.
    pub attempt: u32,
    /// What it does now.
    pub state: ContainerState,
    /// When it was made.
    pub created_at: UnixNanos,
    /// The image as asked for (`user_specified_image` where the runtime has it).
    pub image: String,
    /// The image's id in the runtime (`image_id`, or `image_ref` where there is none).
    pub image_id: String,
    /// Repository digest or id that the API reports as `imageID`.
    pub image_ref: String,
    /// Absolute path of the log file; known after an inspection.
    pub log_path: String,
    /// What its annotations tell a node agent.
    pub marks: Marks,
    /// Its mounts; known after an inspection, and not kept once the termination message was looked for.
    pub mounts: Vec<Mount>,
    /// Uid, gid and groups of the first process, where the runtime tells.
    pub user: Option<UserIds>,
    /// Resources in force, where the runtime tells; known after an inspection.
    pub resources: Option<Resources>,
    /// Signal that asks it to end (`SIGTERM`), where the runtime tells; else empty.
    pub stop_signal: String,
}

#[cfg(test)]
impl RuntimeContainer {
    /// One of which nothing else is known: what tests begin with.
    pub(crate) fn bare(id: &str, sandbox_id: &str, name: &str, attempt: u32, state: ContainerState) -> Self {
        Self {
            id: id.into(),
            sandbox_id: sandbox_id.into(),
            name: name.to_owned(),
            attempt,
            state,
            created_at: 0,
            image: String::new(),
            image_id: String::new(),
            image_ref: String::new(),
            log_path: String::new(),
            marks: Marks::default(),
            mounts: Vec::new(),
            user: None,
            resources: None,
            stop_signal: String::new(),
        }
    }
}

/// User and group ids of a container's first process (CRI `LinuxContainerUser`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserIds {
    /// User id.
    pub uid: i64,
    /// Primary group id.
    pub gid: i64,
    /// Supplementary groups.
    pub supplemental_groups: Vec<i64>,
}

/// Whose namespace a container or sandbox uses (CRI `NamespaceMode`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NamespaceMode {
    /// Shared within the pod.
    #[default]
    Pod,
    /// The container's own.
    Container,
    /// The node's.
    Node,
    /// That of the container with this id (ephemeral containers).
    Target(ContainerId),
}

/// A range of ids mapped into a user namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdMapping {
    /// First id on the host.
    pub host_id: u32,
    /// First id in the container.
    pub container_id: u32,
    /// How many.
    pub length: u32,
}

/// Namespaces of a sandbox or container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// Network.
    pub network: NamespaceMode,
    /// Process ids.
    pub pid: NamespaceMode,
    /// System V IPC.
    pub ipc: NamespaceMode,
    /// `None`: the node's user namespace (CRI mode NODE); else the pod's own with these uid and gid ranges.
    pub user: Option<(Vec<IdMapping>, Vec<IdMapping>)>,
}

/// Seccomp or AppArmor profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecurityProfile {
    /// The runtime's default.
    RuntimeDefault,
    /// None at all.
    Unconfined,
    /// A profile of the node, by path (seccomp, absolute) or name (AppArmor).
    Localhost(String),
}

/// SELinux label parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeLinux {
    /// User part.
    pub user: String,
    /// Role part.
    pub role: String,
    /// Type part.
    pub type_: String,
    /// Level part.
    pub level: String,
}

/// Limits in the runtime's units (CRI `LinuxContainerResources`). 0 means "not set" as on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// CFS period in microseconds.
    pub cpu_period: i64,
    /// CFS quota in microseconds per period; -1 for none.
    pub cpu_quota: i64,
    /// CPU shares (cgroup v1 scale, 2 to 262144).
    pub cpu_shares: i64,
    /// Memory limit in bytes.
    pub memory_limit: i64,
    /// Memory plus swap limit in bytes.
    pub memory_swap_limit: i64,
    /// OOM score adjustment, -1000 to 1000.
    pub oom_score_adj: i64,
    /// CPU list, e.g. `0-3,7`.
    pub cpuset_cpus: String,
    /// NUMA node list.
    pub cpuset_mems: String,
    /// Page size (`2MB`) and limit in bytes.
    pub hugepages: Vec<(String, u64)>,
    /// Raw cgroup v2 keys.
    pub unified: BTreeMap<String, String>,
}

/// Mount propagation (CRI `MountPropagation`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    /// No mounts travel.
    #[default]
    Private,
    /// Mounts of the host appear in the container.
    HostToContainer,
    /// Mounts travel both ways.
    Bidirectional,
}

/// One mount of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    /// Path in the container.
    pub container_path: String,
    /// Path on the node; empty for an image mount.
    pub host_path: String,
    /// Read-only.
    pub readonly: bool,
    /// Read-only for mounts below it too (KEP-3857).
    pub recursive_read_only: bool,
    /// Whether SELinux relabels it.
    pub selinux_relabel: bool,
    /// Propagation.
    pub propagation: Propagation,
    /// The image to mount instead of a host path (KEP-4639).
    pub image: Option<ImageSpec>,
    /// Folder within that image.
    pub image_sub_path: String,
    /// Uid ranges for an id-mapped mount.
    pub uid_mappings: Vec<IdMapping>,
    /// Gid ranges for an id-mapped mount.
    pub gid_mappings: Vec<IdMapping>,
    /// Options for runtimes that take them (`noexec`, …).
    pub options: Vec<String>,
}

/// A device node given to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Path on the node.
    pub host_path: String,
    /// Path in the container.
    pub container_path: String,
    /// Any of `r`, `w`, `m`.
    pub permissions: String,
}

/// Which image to use (CRI `ImageSpec`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageSpec {
    /// Name or id to run or pull.
    pub image: String,
    /// What the pod's author wrote.
    pub user_specified: String,
    /// RuntimeClass handler.
    pub runtime_handler: String,
    /// Annotations for the runtime.
    pub annotations: BTreeMap<String, String>,
}

/// An image that the runtime holds (CRI `Image`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Image id.
    pub id: String,
    /// Tags.
    pub repo_tags: Vec<String>,
    /// Digests.
    pub repo_digests: Vec<String>,
    /// Bytes.
    pub size: u64,
    /// Numeric user of the image's config, if it is numeric.
    pub uid: Option<i64>,
    /// User name of the image's config, if it is not numeric.
    pub username: String,
    /// Never collected.
    pub pinned: bool,
}

/// Registry credentials for one pull (CRI `AuthConfig`). Its Debug form shows no secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RegistryAuth {
    /// User name.
    pub username: String,
    /// Password.
    pub password: String,
    /// base64 `user:password`.
    pub auth: String,
    /// Registry host.
    pub server_address: String,
    /// Identity token.
    pub identity_token: String,
    /// Registry token.
    pub registry_token: String,
}

impl std::fmt::Debug for RegistryAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegistryAuth").field("server_address", &self.server_address).finish_non_exhaustive()
    }
}

/// IP protocol of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// A host port that leads to the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortMapping {
    /// Protocol.
    pub protocol: Protocol,
    /// Port in the pod.
    pub container_port: i32,
    /// Port on the node.
    pub host_port: i32,
    /// Address on the node; empty for all.
    pub host_ip: String,
}

/// resolv.conf of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dns {
    /// `nameserver` lines.
    pub servers: Vec<String>,
    /// `search` list.
    pub searches: Vec<String>,
    /// `options` list, `name:value` or `name`.
    pub options: Vec<String>,
}

/// Security settings of a sandbox (CRI `LinuxSandboxSecurityContext`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxSecurity {
    /// Namespaces.
    pub namespaces: Namespaces,
    /// SELinux label.
    pub selinux: Option<SeLinux>,
    /// User id of the sandbox process.
    pub run_as_user: Option<i64>,
    /// Group id of the sandbox process.
    pub run_as_group: Option<i64>,
    /// Supplementary groups, fsGroup included.
    pub supplemental_groups: Vec<i64>,
    /// Whether groups of the image are ignored (`Strict`).
    pub strict_groups: bool,
    /// Whether any container is privileged.
    pub privileged: bool,
    /// Seccomp profile.
    pub seccomp: Option<SecurityProfile>,
    /// AppArmor profile.
    pub apparmor: Option<SecurityProfile>,
}

/// What the runtime is asked for to make a sandbox (CRI `PodSandboxConfig`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxSpec {
    /// Pod uid.
    pub uid: String,
    /// Pod name.
    pub name: String,
    /// Pod namespace.
    pub namespace: String,
    /// Attempt, 0 for the first.
    pub attempt: u32,
    /// Host name in the pod; empty with host networking.
    pub hostname: String,
    /// Folder of the container logs.
    pub log_directory: String,
    /// Name resolution; `None` leaves it to the runtime.
    pub dns: Option<Dns>,
    /// Host ports.
    pub port_mappings: Vec<PortMapping>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// The pod's cgroup.
    pub cgroup_parent: String,
    /// Sysctls, with dots.
    pub sysctls: BTreeMap<String, String>,
    /// Security.
    pub security: SandboxSecurity,
    /// RuntimeClass overhead.
    pub overhead: Resources,
    /// Sum over the containers.
    pub resources: Resources,
    /// RuntimeClass handler; empty for the default.
    pub runtime_handler: String,
}

/// Security settings of a container (CRI `LinuxContainerSecurityContext`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerSecurity {
    /// Namespaces.
    pub namespaces: Namespaces,
    /// Capabilities added, without `CAP_`.
    pub add_capabilities: Vec<String>,
    /// Capabilities dropped, without `CAP_`.
    pub drop_capabilities: Vec<String>,
    /// Privileged.
    pub privileged: bool,
    /// SELinux label.
    pub selinux: Option<SeLinux>,
    /// Numeric user.
    pub run_as_user: Option<i64>,
    /// Numeric group.
    pub run_as_group: Option<i64>,
    /// User by name, from the image.
    pub run_as_username: String,
    /// Read-only root file system.
    pub readonly_rootfs: bool,
    /// Supplementary groups.
    pub supplemental_groups: Vec<i64>,
    /// Whether groups of the image are ignored (`Strict`).
    pub strict_groups: bool,
    /// No privilege escalation.
    pub no_new_privs: bool,
    /// Paths hidden.
    pub masked_paths: Vec<String>,
    /// Paths made read-only.
    pub readonly_paths: Vec<String>,
    /// Seccomp profile.
    pub seccomp: Option<SecurityProfile>,
    /// AppArmor profile.
    pub apparmor: Option<SecurityProfile>,
}

/// What the runtime is asked for to make a container (CRI `ContainerConfig`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerSpec {
    /// Container name within the pod.
    pub name: String,
    /// Attempt = restart count.
    pub attempt: u32,
    /// Image to run.
    pub image: ImageSpec,
    /// Entry point; empty takes the image's.
    pub command: Vec<String>,
    /// Arguments.
    pub args: Vec<String>,
    /// Working directory; empty takes the image's.
    pub working_dir: String,
    /// Environment in order; values need not be UTF-8 on the wire, here they always are.
    pub env: Vec<(String, String)>,
    /// Mounts in order.
    pub mounts: Vec<Mount>,
    /// Devices.
    pub devices: Vec<Device>,
    /// Devices by their fully qualified CDI name (`vendor.com/class=name`).
    pub cdi_devices: Vec<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Log file relative to the sandbox's log directory.
    pub log_path: String,
    /// Keeps stdin open.
    pub stdin: bool,
    /// Closes stdin after the first attach session.
    pub stdin_once: bool,
    /// Allocates a terminal.
    pub tty: bool,
    /// Signal that asks it to end, as the API names it (`SIGUSR1`); empty leaves it to the image.
    pub stop_signal: String,
    /// Limits.
    pub resources: Resources,
    /// Security.
    pub security: ContainerSecurity,
}

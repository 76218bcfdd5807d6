//! From a pod to what the runtime is asked for: the sandbox and each of its containers.
//!
//! Layer L1, pure, called on workers. Everything it needs to know of the node comes in as data:
//! [`NodeFacts`] for what stays, [`SandboxInputs`] and [`ContainerInputs`] for what the worker has
//! just learned or prepared. It never touches a file, asks the runtime or decides whether a pod runs.

use std::collections::BTreeMap;

use crate::api::runtime::{IdMapping, Image, ImageSpec};
use crate::api::{ContainerId, Quantity};

use super::qos::CgroupFacts;

pub mod admission;
pub mod dns;
pub mod downward;
pub mod env;
pub mod expand;
pub mod hostname;
pub mod services;

mod container;
mod error;
mod marks;
mod mounts;
mod names;
mod resources;
mod sandbox;
mod security;
#[cfg(test)]
mod tests;
mod unkept;

pub use container::{container_spec, subpaths};
pub use error::{CONTAINER_CONFIG_ERROR, SANDBOX_CONFIG_ERROR, SpecError};
pub use mounts::{SubPath, wants_etc_hosts};
pub use resources::container_resources;
pub use sandbox::sandbox_spec;
pub use unkept::unkept;

/// User and group id ranges of a pod's own user namespace.
pub type UserNamespace = (Vec<IdMapping>, Vec<IdMapping>);

/// Whether containers may swap (`memorySwap.swapBehavior`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SwapBehavior {
    /// They may not.
    #[default]
    NoSwap,
    /// Containers of Burstable pods may, in proportion to their memory request (cgroup v2 only).
    LimitedSwap,
}

/// What a runtime handler can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandlerFeatures {
    /// Recursive read-only mounts.
    pub recursive_read_only_mounts: bool,
    /// User namespaces.
    pub user_namespaces: bool,
}

/// What is known of the node: configuration and facts that seldom change.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    /// Name of the Node object.
    pub node_name: String,
    /// Addresses of the node, primary first, one per family.
    pub node_ips: Vec<String>,
    /// `--root-dir`, without a slash at its end.
    pub root_dir: String,
    /// `podLogsDir`, without a slash at its end.
    pub pod_logs_dir: String,
    /// `clusterDomain`; empty for none.
    pub cluster_domain: String,
    /// `clusterDNS`.
    pub cluster_dns: Vec<String>,
    /// `seccompDefault`.
    pub seccomp_default: bool,
    /// Memory of the node in bytes.
    pub memory_capacity: u64,
    /// Swap of the node in bytes.
    pub swap_capacity: u64,
    /// `memorySwap.swapBehavior`.
    pub swap: SwapBehavior,
    /// `status.allocatable` of the node.
    pub allocatable: BTreeMap<String, Quantity>,
    /// Sizes of huge pages that the kernel offers, in bytes.
    pub hugepage_sizes: Vec<u64>,
    /// cgroups.
    pub cgroup: CgroupFacts,
    /// Whether SELinux is on.
    pub selinux: bool,
    /// Numbers of the CPUs that have `/sys/devices/system/cpu/cpu<n>/thermal_throttle`, which containers must not read.
    pub thermal_throttle_cpus: Vec<u32>,
    /// Runtime handlers by name; the default one has the name "". Old runtimes tell of none.
    pub handlers: BTreeMap<String, HandlerFeatures>,
}

impl NodeFacts {
    /// What a runtime handler can do; nothing if the runtime does not tell.
    pub fn handler(&self, name: &str) -> HandlerFeatures {
        self.handlers.get(name).copied().unwrap_or_default()
    }

    /// Folder of everything that belongs to a pod: `<root>/pods/<uid>`.
    pub fn pod_dir(&self, uid: &str) -> String {
        format!("{}/pods/{uid}", self.root_dir)
    }

    /// Folder of a container's termination messages: `<root>/pods/<uid>/containers/<name>`.
    pub fn container_dir(&self, uid: &str, container: &str) -> String {
        format!("{}/containers/{container}", self.pod_dir(uid))
    }

    /// The pod's /etc/hosts on the node: `<root>/pods/<uid>/etc-hosts`.
    pub fn etc_hosts_path(&self, uid: &str) -> String {
        format!("{}/etc-hosts", self.pod_dir(uid))
    }

    /// Where the sub path of a container's mount is bound, by the mount's place in `volumeMounts`:
    /// `<root>/pods/<uid>/volume-subpaths/<volume>/<container>/<index>`.
    pub fn subpath_bind_path(&self, uid: &str, volume: &str, container: &str, mount_index: usize) -> String {
        format!("{}/volume-subpaths/{volume}/{container}/{mount_index}", self.pod_dir(uid))
    }

    /// Folder of the pod's logs: `<podLogsDir>/<namespace>_<name>_<uid>`.
    pub fn pod_log_dir(&self, namespace: &str, name: &str, uid: &str) -> String {
        format!("{}/{namespace}_{name}_{uid}", self.pod_logs_dir)
    }
}

/// What the worker knows when it makes a sandbox.
#[derive(Clone, Copy, Debug, Default)]
pub struct SandboxInputs<'a> {
    /// 0 for the first sandbox of the pod.
    pub attempt: u32,
    /// Handler of the pod's RuntimeClass; empty for the default.
    pub runtime_handler: &'a str,
    /// Content of the node's resolv.conf; `None` when `resolvConf` is empty.
    pub resolv_conf: Option<&'a str>,
    /// Id ranges for a pod with `hostUsers: false`.
    pub user_namespace: Option<&'a UserNamespace>,
}

/// Something that the pod's owner should hear about as a Warning event, though the pod runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecWarning {
    /// CamelCase reason of the event.
    pub reason: &'static str,
    /// Sentence.
    pub message: String,
}

/// Where a volume of the pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeSource {
    /// A folder, file, socket or device of the node.
    Path {
        /// Absolute path.
        host_path: String,
        /// Whether the volume itself forbids writing (configMap, secret, downwardAPI, projected, image).
        read_only: bool,
        /// Whether the volume is the agent's own, so that SELinux shall relabel it.
        selinux_relabel: bool,
    },
    /// An image that the runtime mounts itself.
    Image(ImageSpec),
}

/// What the worker knows when it makes a container.
#[derive(Clone, Copy, Debug)]
pub struct ContainerInputs<'a> {
    /// Restart count.
    pub attempt: u32,
    /// The image, for its user.
    pub image: &'a Image,
    /// What the runtime is to run: the image's id.
    pub image_ref: &'a str,
    /// Handler of the pod's RuntimeClass; empty for the default.
    pub runtime_handler: &'a str,
    /// Addresses of the pod, primary first; with host networking those of the node.
    pub pod_ips: &'a [String],
    /// Volumes of the pod by name.
    pub volumes: &'a BTreeMap<String, VolumeSource>,
    /// Where sub paths were bound, by place in `volumeMounts`; see [`subpaths`].
    pub subpaths: &'a BTreeMap<usize, String>,
    /// The pod's /etc/hosts on the node, if it was written.
    pub etc_hosts: Option<&'a str>,
    /// File on the node for the termination message, if it was made.
    pub termination_log: Option<&'a str>,
    /// The container whose processes an ephemeral container joins.
    pub target: Option<&'a ContainerId>,
    /// Id ranges for a pod with `hostUsers: false`.
    pub user_namespace: Option<&'a UserNamespace>,
    /// ConfigMaps, Secrets, services and files that the environment draws on.
    pub env: &'a env::EnvSources,
}

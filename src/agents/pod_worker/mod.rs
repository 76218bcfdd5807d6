//! Pod workers: carry out plans, one work of one pod at a time, and report.
//!
//! Thread `pods` hands each work to an idle `pod-N` thread or makes one; idle ones end after a while, so
//! the pool is as big as the work, up to a bound. A worker decides nothing: the steps, their order and
//! what a failure means are in the plan. It may hang in a mount, a pull, a hook or a runtime call
//! without anybody else waiting, and a panic in a work is that pod's failure alone.

mod admission_hook;
mod credentials;
mod environment;
mod hooks;
mod network;
mod patience;
mod pool;
mod prepare;
mod resize;
mod run;
mod start;
mod stop;
mod user_namespace;

use std::path::PathBuf;
use std::sync::Arc;

use super::ImageSource;
use crate::core::spec::NodeFacts;
use crate::cri::Client;
use crate::host::cgroup::CgroupTree;
use crate::host::pod_dirs::PodDirs;
use crate::msg::NodeView;
use crate::probe::NetProber;
use crate::util::snapshot::Snapshot;
use crate::volumes::ObjectSource;

pub use admission_hook::{AdmissionHook, HookFailure};
pub use network::NetworkWord;
pub use patience::Patience;
pub use user_namespace::IdRanges;

pub use pool::{WorkerPool, WorkerPoolSettings};

/// What all workers share; nothing in it changes.
pub struct Tools {
    /// The runtime.
    pub client: Client,
    /// Facts about the node that specs are made from.
    pub facts: NodeFacts,
    /// Layout of pods' files.
    pub dirs: PodDirs,
    /// The mount table.
    pub mount_table: PathBuf,
    /// Folder of log links, `/var/log/containers`; `None` makes none.
    pub log_links: Option<PathBuf>,
    /// The pod cgroup tree; `None` with cgroupsPerQOS off.
    pub cgroups: Option<CgroupTree>,
    /// Most processes of a pod; -1 for no limit.
    pub pod_pids_limit: i64,
    /// Ids for pods with a user namespace of their own.
    pub id_ranges: IdRanges,
    /// The node as it is, for what depends on all pods together.
    pub view: Arc<Snapshot<NodeView>>,
    /// The file that `resolvConf` names; empty for none.
    pub resolv_conf: String,
    /// The program that has the last word about pods that may start; `None` for none.
    pub admission_hook: Option<AdmissionHook>,
    /// Gets images ready.
    pub images: Box<dyn ImageSource>,
    /// Whether the runtime's network is there.
    pub network: NetworkWord,
    /// What hangs of which pod.
    pub patience: Patience,
    /// Where ConfigMaps, Secrets, tokens and services come from.
    pub objects: Arc<dyn ObjectSource>,
    /// Runs httpGet hooks.
    pub http: NetProber,
}

impl std::fmt::Debug for Tools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tools").finish_non_exhaustive()
    }
}

//! The host port: what the agent asks of the kernel and the file system of this machine.
//!
//! Layer L1, plain blocking calls on whatever thread calls them (pod workers, housekeeping, start-up);
//! anything in here may hang on a dead disk or NFS server, so the sync loop never calls it. It owns no
//! state beyond what a caller holds ([`cgroup::CgroupTree`], [`pod_dirs::PodDirs`]). Every path is an
//! argument, so that tests run on a temporary folder. It never decides and never logs: it returns
//! what happened. The only place, with `util` and the stream code, that calls nix.

pub mod bus;
pub mod cgroup;
pub mod cgroup_remove;
pub mod cgroup_values;
pub mod error;
pub mod facts;
pub mod files;
pub mod log_files;
pub mod log_watch;
pub mod logs;
pub mod mounts;
pub mod network;
pub mod pod_dirs;
pub mod program;
pub mod remove;
pub mod usage;

pub use error::{HostError, explain};

#[cfg(test)]
pub(crate) mod test_support;

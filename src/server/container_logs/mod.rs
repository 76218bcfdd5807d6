//! `/containerLogs`: what a container printed, for `kubectl logs`.
//!
//! Layer L2, on the threads of the connections: each follower has one, and wakes up when the runtime writes, when the
//! client goes, and every now and then while the container's file is closed. It reads snapshots and log files; it never asks
//! the runtime anything.

pub mod instance;
pub mod query;

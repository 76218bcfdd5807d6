//! What the agent remembers of a pod beyond its own life: one record a pod, kept on disk by `store`.
//!
//! Layer L0: plain data with a serde shape. The runtime's labels tell most of a pod; a record adds what
//! they can't: crash back-off, attempts used, a termination in flight, the phase it ended in, and the
//! spec of a pod whose manifest is gone. Times are milliseconds of CLOCK_BOOTTIME in the boot that
//! `boot_id` names, so a wall clock set wrong does no harm; in a later boot they count as long ago.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::runtime::UnixNanos;
use super::v1::Pod;
use super::{ContainerId, PodUid};

/// The record's version that this agent writes.
pub const RECORD_VERSION: u32 = 1;

/// Everything remembered of one pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRecord {
    /// [`RECORD_VERSION`] of the writer.
    pub version: u32,
    /// Pod uid.
    pub uid: PodUid,
    /// Boot that the times below count from (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: String,
    /// The pod as it was last wanted.
    pub pod: Arc<Pod>,
    /// `status.startTime`.
    pub start_time: UnixNanos,
    /// When the pod began, or this boot if the pod is older; `None` in records of older agents.
    #[serde(default)]
    pub started_ms: Option<u64>,
    /// How long it had been there when this boot began.
    #[serde(default, skip_serializing_if = "is_zero_long")]
    pub before_boot_ms: u64,
    /// Lowest sandbox attempt never used.
    #[serde(default)]
    pub next_sandbox_attempt: u32,
    /// By container name.
    #[serde(default)]
    pub containers: BTreeMap<String, ContainerRecord>,
    /// Set once the pod ends.
    #[serde(default)]
    pub ending: Option<EndingRecord>,
}

/// What is remembered of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerRecord {
    /// Lowest attempt of the present round, once all containers of the pod have restarted together.
    #[serde(skip_serializing_if = "is_zero")]
    pub first_attempt: u32,
    /// Lowest attempt never used.
    pub next_attempt: u32,
    /// How the newest instance was last seen; kept only for a container that may end for good.
    #[serde(skip_serializing_if = "LastRun::is_never")]
    pub last_run: LastRun,
    /// Crash back-off, if it ever restarted.
    pub crash: Option<CrashRecord>,
    /// The instance whose startup probe passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<ContainerId>,
    /// The instance that its readiness probe holds ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<ContainerId>,
    /// What the running instance has, while it shall have something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actuated: Option<Sizes>,
}

/// CPU and memory of a container, as a resize compares them: in thousandths and bytes, 0 for what is not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sizes {
    /// CPU requested.
    pub cpu_request: i64,
    /// CPU limit.
    pub cpu_limit: i64,
    /// Memory requested.
    pub memory_request: i64,
    /// Memory limit.
    pub memory_limit: i64,
}

fn is_zero_long(millis: &u64) -> bool {
    *millis == 0
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Exit code of a container that ended out of sight.
pub const LOST_EXIT_CODE: i32 = 137;

/// How a container was last seen, for the day when the runtime no longer has any instance of it: one
/// that shall not start again must not do so because its remains were removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LastRun {
    /// It never ran.
    #[default]
    Never,
    /// It was started; how it ended nobody saw.
    Began,
    /// It ended with this exit code.
    Ended(i32),
}

impl LastRun {
    /// How it ended, given that it no longer runs; `None` if it never ran.
    pub fn exit_code(self) -> Option<i32> {
        match self {
            Self::Never => None,
            Self::Began => Some(LOST_EXIT_CODE),
            Self::Ended(code) => Some(code),
        }
    }

    fn is_never(&self) -> bool {
        *self == Self::Never
    }
}

/// Crash back-off of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CrashRecord {
    /// Delay that the next restart waits after an exit.
    pub delay_ms: u64,
    /// When it was last restarted.
    pub restarted_ms: u64,
    /// Container hash that the delay belongs to.
    pub hash: String,
}

/// How a pod ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndingRecord {
    /// Why: `Removed`, `Deleted`, `Completed`, `DeadlineExceeded`, `Evicted`, `Orphan`.
    pub cause: String,
    /// When the grace period is over.
    pub deadline_ms: u64,
    /// `status.phase` that it ends in; empty while exit codes still decide.
    #[serde(default)]
    pub phase: String,
    /// `status.reason`.
    #[serde(default)]
    pub reason: String,
    /// `status.message`.
    #[serde(default)]
    pub message: String,
    /// Reason of the condition `DisruptionTarget`; empty if the pod's end is its own doing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub disruption_reason: String,
    /// Message of that condition.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub disruption_message: String,
}

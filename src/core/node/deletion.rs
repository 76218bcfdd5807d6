//! How a pod comes to its end by the word of its source: deleted at the API server, taken out of its
//! source's set, or already over there. Pure; see the parent module.
//!
//! A grace period only ever shrinks, and a pod that began to end never goes back.

use std::sync::Arc;
use std::time::Duration;

use super::entry::{Cause, Entry, Stage, Work};
use crate::api::moment::{Moment, Now};
use crate::api::pod::{ContainerKind, find_container, is_static};
use crate::api::record::LastRun;
use crate::api::runtime::UnixNanos;
use crate::api::v1::{ContainerStatus, Pod, PodStatus};
use crate::core::plan;
use crate::core::status::{Phase, is_restart_of_all};
use crate::msg::Life;

/// Whether the API server asks for the pod's end.
pub(super) fn is_deleted(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// How the API says that a pod has ended. What a manifest says of its own status does not count.
fn ended_at_source(pod: &Pod) -> Option<plan::Ending> {
    match pod.status.as_ref().filter(|_| !is_static(pod)).and_then(Phase::of)? {
        Phase::Succeeded => Some(plan::Ending::Succeeded),
        Phase::Failed => Some(plan::Ending::Failed),
        Phase::Pending | Phase::Running => None,
    }
}

impl Entry {
    /// Why the pod has to end, by what its source says of it now, by this node's need and by its own deadline.
    pub(super) fn end_by_source(&self, now: Now) -> Option<Cause> {
        let Some(wanted) = &self.wanted else { return Some(Cause::Removed) };
        if is_deleted(wanted) {
            return Some(Cause::Deleted);
        }
        if let Some(ending) = ended_at_source(wanted) {
            return Some(Cause::Completed(ending));
        }
        if let Some(doom) = &self.doom {
            return Some(Cause::Evicted(doom.clone()));
        }
        self.active_deadline().is_some_and(|at| at <= now.mono).then_some(Cause::DeadlineExceeded)
    }

    /// Takes a shorter grace period into the ending that is under way.
    pub(super) fn shorten(&mut self, now: Now) {
        let is_asked = self.wanted.as_ref().is_some_and(|pod| pod.metadata.deletion_grace_period_seconds.is_some());
        let latest = now.mono + self.grace();
        if let Stage::Ending { deadline, .. } = &mut self.stage
            && is_asked
        {
            *deadline = (*deadline).min(latest);
        }
    }

    /// Whether the work in flight gives the containers more time than the pod has left now.
    pub(super) fn is_too_slow(&self) -> bool {
        match (&self.work, &self.stage) {
            (Work::Running { ends_by: Some(ends_by), .. }, Stage::Ending { deadline, .. }) => deadline < ends_by,
            (Work::Running { .. } | Work::Idle, _) => false,
        }
    }

    /// When the containers of an ending pod are killed at the latest.
    pub(super) fn ends_by(&self) -> Option<Moment> {
        match self.stage {
            Stage::Ending { deadline, .. } => Some(deadline),
            Stage::Queued
            | Stage::Asking
            | Stage::MakingRoom { .. }
            | Stage::Rejected(_)
            | Stage::Active
            | Stage::Releasing { .. }
            | Stage::Ended { .. }
            | Stage::Forgetting => None,
        }
    }

    /// Where it is in its life, for reporters. `is_at_rest`: the runtime runs nothing of it.
    pub(super) fn life(&self, is_at_rest: bool) -> Life {
        match self.stage {
            Stage::Queued | Stage::Asking | Stage::MakingRoom { .. } => Life::Waiting,
            Stage::Active => Life::Active,
            Stage::Ended { .. } => Life::Over,
            Stage::Rejected(_) | Stage::Forgetting if is_at_rest => Life::Over,
            Stage::Rejected(_) | Stage::Forgetting | Stage::Ending { .. } | Stage::Releasing { .. } => Life::Ending,
        }
    }

    /// It began at this wall time, in an earlier life of the agent. Nothing better is known: a wall clock
    /// that was set since then is believed.
    pub(super) fn began(&mut self, wall: UnixNanos, now: Now) {
        let age = Duration::from_nanos(u64::try_from(now.wall.saturating_sub(wall)).unwrap_or(0));
        self.start_time = wall;
        self.started_at = now.mono - age;
        self.before_boot = age.saturating_sub(now.mono.since_boot());
    }

    /// Learns from the status that the API has of a pod which this agent does not remember: attempts
    /// used, what probes had found, and how containers ended. The runtime may have forgotten what was told long ago.
    pub(super) fn learn_told(&mut self, now: Now) {
        let Some(status) = self.pod.status.clone() else { return };
        if is_static(&self.pod) {
            return;
        }
        // A record knows it by a clock that nobody sets.
        let is_new = self.saved.is_none();
        self.learn_status(now, &status, is_new);
    }

    /// Learns the same of a static pod from its mirror, once the API server has shown it: another agent's word, or that of an earlier
    /// life whose record is lost.
    pub(super) fn learn_mirrored(&mut self, now: Now, status: &PodStatus) {
        self.learn_status(now, status, true);
        // Times of conditions, and what was told last, go on from there.
        self.status = Arc::new(status.clone());
    }

    fn learn_status(&mut self, now: Now, status: &PodStatus, is_new: bool) {
        if let Some(began) =
            status.start_time.as_ref().filter(|_| is_new).and_then(|t| i64::try_from(t.0.as_nanosecond()).ok())
        {
            self.began(began, now);
        }
        for told in container_statuses(status) {
            let was_made = told.container_id.as_deref().is_some_and(|id| !id.is_empty());
            if !was_made && told.restart_count == 0 {
                continue;
            }
            let kind = find_container(&self.pod, &told.name).map(|(kind, _)| kind);
            let memory = self.memory.entry(told.name.clone()).or_default();
            let count = u32::try_from(told.restart_count).unwrap_or(0);
            // What was removed to be restarted is counted already, before its next instance is there.
            memory.next_attempt = memory.next_attempt.max(count.saturating_add(u32::from(was_made)));
            if is_new {
                // Who took this node over from another agent finds what its probes had found.
                let id = told.container_id.as_deref().and_then(|id| id.split_once("://")).map(|(_, id)| id.into());
                memory.started = id.clone().filter(|_| told.started == Some(true));
                memory.ready = id.filter(|_| told.ready);
            }
            // Init containers run again in a new sandbox, whatever they did in the old one.
            // Those that were added to the pod never run again.
            let is_of_the_pod = matches!(kind, Some(ContainerKind::App | ContainerKind::Ephemeral));
            if memory.last_run == LastRun::Never && is_of_the_pod {
                memory.last_run = last_run(told);
            }
        }
    }
}

fn container_statuses(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let lists = [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    lists.into_iter().flatten().flatten()
}

fn last_run(told: &ContainerStatus) -> LastRun {
    let ended = |state: &Option<crate::api::v1::ContainerState>| {
        // One that was removed so that all containers restart has not ended.
        let end = state.as_ref().and_then(|s| s.terminated.as_ref()).filter(|t| !is_restart_of_all(t));
        end.map(|t| t.exit_code)
    };
    match ended(&told.state).or_else(|| ended(&told.last_state)) {
        _ if told.state.as_ref().is_some_and(|s| s.running.is_some()) => LastRun::Began,
        Some(code) => LastRun::Ended(code),
        None => LastRun::Never,
    }
}

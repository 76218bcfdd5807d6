//! Snapshots of the node for everybody else. Pure; see the parent module.

use std::sync::Arc;

use super::entry::{Cause, Entry, Stage};
use super::{Effect, Node};
use crate::api::PodUid;
use crate::api::moment::Now;
use crate::api::pod::{ContainerKind, find_container};
use crate::core::plan;
use crate::core::qos;
use crate::core::status::{self, StatusInput};
use crate::msg::{NodeView, PodView, RuntimeHealth};

impl Node {
    /// Brings the snapshot up to date; only pods that something happened to are looked at.
    ///
    /// The snapshot before the present one is worked over where nobody reads it any more, so that a turn
    /// costs what it changed and not what the node holds.
    pub(super) fn refresh_view(&mut self, now: Now) {
        if self.stale.is_empty() && !self.stale_node {
            return;
        }
        let stale = std::mem::take(&mut self.stale);
        let snapshots: Vec<_> = stale.iter().map(|uid| self.pod_snapshot(now, uid).map(Arc::new)).collect();
        let mut spare = std::mem::take(&mut self.spare);
        let next = match Arc::get_mut(&mut spare) {
            Some(next) => {
                for uid in &self.behind {
                    put(next, uid, self.view.pods.get(uid).cloned());
                }
                next
            }
            None => {
                spare = Arc::new(NodeView::clone(&self.view));
                // It is new, so this has it alone and copies nothing.
                Arc::make_mut(&mut spare)
            }
        };
        for (uid, snapshot) in stale.iter().zip(snapshots) {
            put(next, uid, snapshot);
        }
        next.mirrors = Arc::clone(self.mux.mirrors());
        next.is_listed = self.listed_at.is_some();
        next.problems = self.mux.problems();
        next.silent_sources = self.mux.silent();
        next.runtime_down = match &self.health {
            RuntimeHealth::Up => String::new(),
            RuntimeHealth::Down(why) => why.clone(),
        };
        next.is_shutting_down = self.is_shutting_down();
        self.stale_node = false;
        self.behind = stale;
        self.spare = std::mem::replace(&mut self.view, spare);
    }

    fn pod_snapshot(&mut self, now: Now, uid: &PodUid) -> Option<PodView> {
        let runtime = self.observed(uid);
        // A pod that the runtime lists and that was not looked at yet has containers of which nothing is known:
        // that is not the same as none.
        let is_known = self.seen_at(uid).is_some();
        let settings = &self.settings;
        let entry = self.pods.get_mut(uid)?;
        let empty = crate::api::runtime::RuntimePod::default();
        let observed = runtime.as_deref().or(is_known.then_some(&empty));
        let ending = match entry.stage.cause() {
            Some(Cause::DeadlineExceeded) => Some(status::Ending::deadline_exceeded()),
            Some(Cause::Evicted(ending)) => Some(ending.as_ref().clone()),
            Some(Cause::Removed | Cause::Deleted | Cause::Orphan | Cause::Completed(_)) | None => None,
        };
        let no_resize = status::ResizeFacts::default();
        let outcome = status::pod_status(&StatusInput {
            pod: &entry.pod,
            observed,
            previous: entry.status.phase.is_some().then_some(&entry.status),
            stage: status_stage(&entry.stage),
            ending: ending.as_ref(),
            facts: &entry.container_facts(observed, settings.probes),
            resize: if entry.stage == Stage::Active { &entry.resize } else { &no_resize },
            host_ips: &settings.host_ips,
            runtime_name: &settings.runtime_name,
            recursive_read_only: settings.recursive_read_only,
            qos_class: qos::qos_class(&entry.pod).as_str(),
            start_time: entry.start_time,
            restart_all: settings.restart_all,
            now: now.wall,
        });
        if status::differs(&entry.status, &outcome.status) {
            entry.status = Arc::new(outcome.status);
            // It goes out with what the next event brings.
            self.effects.extend(entry.finish_start(now).map(Effect::Count));
        }
        Some(PodView {
            uid: uid.clone(),
            name: entry.name.clone(),
            pod: Some(Arc::clone(&entry.pod)),
            wanted: entry.wanted.clone(),
            life: entry.life(runtime.as_deref().is_none_or(plan::at_rest)),
            status: Arc::clone(&entry.status),
            stage: entry.stage.word().to_owned(),
            plan: entry.plan.clone(),
            waits_for: entry.waits_for(),
            events: entry.events.iter().cloned().collect(),
            runtime,
        })
    }
}

fn put(view: &mut NodeView, uid: &PodUid, pod: Option<Arc<PodView>>) {
    match pod {
        Some(pod) => view.pods.insert(uid.clone(), pod),
        None => view.pods.remove(uid),
    };
}

fn status_stage(stage: &Stage) -> status::Stage<'_> {
    match stage {
        Stage::Queued | Stage::Asking | Stage::MakingRoom { .. } => status::Stage::Waiting,
        Stage::Rejected(reason) => status::Stage::Rejected(reason),
        Stage::Active => status::Stage::Active,
        Stage::Ending { .. } => status::Stage::Terminating,
        Stage::Releasing { .. } | Stage::Ended { .. } | Stage::Forgetting => status::Stage::Terminated,
    }
}

impl Entry {
    /// Which containers run and are not ready, and by which probe.
    fn unready(&self) -> Vec<String> {
        let lists = [&self.status.init_container_statuses, &self.status.container_statuses];
        let unready = lists.into_iter().flatten().flatten().filter(|told| {
            let runs = told.state.as_ref().is_some_and(|state| state.running.is_some());
            let (kind, _) = find_container(&self.pod, &told.name).unzip();
            runs && !told.ready && matches!(kind, Some(ContainerKind::App | ContainerKind::Sidecar))
        });
        let probe = |started: Option<bool>| if started == Some(true) { "readiness" } else { "startup" };
        unready.map(|told| format!("container {} to pass its {} probe", told.name, probe(told.started))).collect()
    }

    /// One plain sentence: what it waits for, or that it is as it should be.
    fn waits_for(&self) -> String {
        if self.is_busy() {
            return format!("a worker is at it: {}", self.plan.join(", then "));
        }
        let look = self.unseen_why.iter().map(|why| format!("a look at what the runtime has of it: {why}"));
        let pending = self.resize.pending.iter().filter(|_| self.stage == Stage::Active);
        let room = pending.map(|(why, _)| format!("the CPU and memory that it was resized to: {}", why.message));
        let mut waits: Vec<String> = look.chain(self.waits.iter().cloned()).chain(room).collect();
        if waits.is_empty() && self.stage == Stage::Active {
            waits = self.unready();
        }
        if !waits.is_empty() {
            return format!("waits for {}", waits.join("; "));
        }
        match &self.stage {
            Stage::Queued | Stage::Asking | Stage::MakingRoom { .. } => "waits for its turn".to_owned(),
            Stage::Rejected(reason) => format!("was not admitted: {}: {}", reason.reason, reason.message),
            Stage::Active => "runs as it should; nothing to do".to_owned(),
            Stage::Ending { cause, .. } => format!("ends: {}", cause.sentence()),
            Stage::Releasing { cause } => format!("gives back volumes and cgroup: {}", cause.sentence()),
            Stage::Ended { cause } => format!("has ended: {}", cause.sentence()),
            Stage::Forgetting => "what is left of it is removed".to_owned(),
        }
    }
}

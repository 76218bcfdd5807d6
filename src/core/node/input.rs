//! What each input means for the node. Pure; see the parent module.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::entry::{Entry, Mirror, Stage};
use super::{Effect, Input, Node, Seen, Tally};
use crate::api::PodUid;
use crate::api::moment::Now;
use crate::api::pod::is_static;
use crate::api::runtime::RuntimePod;
use crate::api::v1::{Pod, PodStatus};
use crate::core::mirror::mirrors_it;
use crate::core::mux::Change;
use crate::core::spec::CONTAINER_CONFIG_ERROR;
use crate::core::status::Phase;
use crate::core::{plan, resize};
use crate::msg::{
    EventType, NodeMarks, Observation, ProbeKind, ProbeVerdict, Refresh, RuntimeHealth, Scope, SourceUpdate, Step,
    StepResult, StopReason, UnknownPod, WorkReport,
};
use crate::util::order::{self, Gather};

impl Node {
    pub(super) fn take(&mut self, now: Now, input: Input) {
        match input {
            Input::Source(update) => self.take_source(now, update),
            Input::Observed(observation) => self.take_observation(now, observation),
            Input::Runtime(health) => self.take_health(now, health),
            Input::Report(report) => self.take_report(now, &report),
            Input::Event(event) => {
                if self.pods.contains_key(&event.uid) {
                    self.stale.insert(event.uid.clone());
                    self.tell(event);
                }
            }
            Input::Verdict(verdict) => self.take_verdict(now, verdict),
            Input::Refresh(refresh) => self.take_refresh(now, &refresh),
            Input::Leftovers(uids) => {
                self.leftovers.extend(uids);
                self.adopt_unwanted(now);
            }
            // Pods that are let in stay, whatever the node's marks become.
            Input::Marks(NodeMarks { labels, taints }) => {
                self.settings.admission.labels = labels;
                self.settings.admission.taints = taints;
                self.settings.admission.node_is_known = true;
            }
            Input::Pressures(pressures) => self.settings.admission.pressures = pressures,
            Input::Shutdown(begins) => self.take_shutdown(now, begins),
            Input::Timer => self.take_timer(now),
        }
    }

    fn take_source(&mut self, now: Now, update: SourceUpdate) {
        let knew_all = self.knows_all();
        let changes = self.mux.update(update);
        self.stale_node = true;
        let mut touched = Vec::new();
        for change in changes {
            match change {
                Change::Added(uid, pod) => {
                    self.want(now, &uid, pod);
                    touched.push(uid);
                }
                Change::Updated(uid, pod) => {
                    self.change(now, &uid, pod);
                    touched.push(uid);
                }
                Change::Removed(uid) => {
                    if let Some(entry) = self.pods.get_mut(&uid) {
                        entry.wanted = None;
                        self.drive(now, &uid);
                    }
                }
            }
        }
        self.recall_mirrored(now);
        // All of them are known before one is admitted: those that run already hold their room, whatever the order.
        self.in_admission_order(&mut touched);
        for uid in touched {
            self.drive(now, &uid);
        }
        if !knew_all {
            self.adopt_unwanted(now);
        }
    }

    /// Has static pods without a record go on from what their mirrors show.
    fn recall_mirrored(&mut self, now: Now) {
        let mirrors = self.mux.mirrors();
        for (uid, entry) in self.pods.iter_mut().filter(|(_, entry)| entry.mirror == Mirror::Awaited) {
            let Some(mirror) = mirrors.get(&entry.name).filter(|mirror| mirrors_it(mirror, &entry.pod)) else {
                continue;
            };
            entry.mirror = Mirror::Known;
            let has_begun = |status: &&PodStatus| status.start_time.is_some();
            let goes_on = |status: &&PodStatus| !Phase::of(status).is_some_and(Phase::is_terminal);
            if let Some(status) = mirror.status.as_ref().filter(has_begun).filter(goes_on) {
                entry.learn_mirrored(now, status);
                self.stale.insert(uid.clone());
            }
        }
    }

    /// A pod is wanted that was not.
    fn want(&mut self, now: Now, uid: &PodUid, pod: Arc<Pod>) {
        if self.pods.contains_key(uid) {
            // It came back before its work had ended, or while it still ends: then it starts again when that is over.
            if self.pods.get(uid).is_some_and(|entry| entry.wanted.is_none()) {
                self.effect(Effect::Count(Tally::Restarted { is_static: is_static(&pod) }));
            }
            return self.change(now, uid, pod);
        }
        let mut entry = Entry::new(pod, true, now);
        if let Some(record) = self.records.remove(uid) {
            let allocated = Arc::clone(&record.pod);
            entry.restore(record, &self.settings.boot_id, now);
            entry.mirror = Mirror::Known;
            entry.birth = None;
            entry.resume_resize(&allocated);
        }
        entry.learn_told(now);
        if let Some(seen) = self.runtime.get(uid) {
            entry.learn(&seen.pod, now.mono, self.settings.probes);
        }
        self.leftovers.remove(uid);
        self.pods.insert(uid.clone(), entry);
    }

    /// A wanted pod has a new spec.
    fn change(&mut self, now: Now, uid: &PodUid, pod: Arc<Pod>) {
        let Some(entry) = self.pods.get_mut(uid) else { return self.want(now, uid, pod) };
        let asked = match &entry.wanted {
            Some(before) if !is_static(&pod) => resize::asked(&pod, before),
            _ => Vec::new(),
        };
        // One that was at work in an earlier life of the agent has what was allocated then.
        let is_at_work = match entry.stage {
            Stage::Active => true,
            Stage::Queued => entry.saved.is_some(),
            _ => false,
        };
        let worked_with = if is_at_work { entry.without_resize(&pod) } else { Arc::clone(&pod) };
        let spec_changed = match &entry.wanted {
            Some(_) if is_at_work => entry.pod.spec != worked_with.spec,
            old => old.as_ref().is_none_or(|old| old.spec != pod.spec),
        };
        let labels_changed = entry.wanted.as_ref().is_some_and(|old| {
            old.metadata.labels != pod.metadata.labels || old.metadata.annotations != pod.metadata.annotations
        });
        entry.wanted = Some(Arc::clone(&pod));
        entry.shorten(now);
        if spec_changed || labels_changed {
            entry.want_refresh("the pod changed");
        }
        if matches!(
            entry.stage,
            Stage::Queued | Stage::Asking | Stage::MakingRoom { .. } | Stage::Rejected(_) | Stage::Active
        ) {
            entry.set_pod(worked_with);
            if spec_changed {
                // What failed may work now, and what is under way may be for nothing.
                entry.memory.values_mut().for_each(|m| m.failed = None);
                entry.retry_at = None;
                entry.cancel();
                // The API server refuses edits that would matter to admission: a rejected pod of its stays so.
                if matches!(entry.stage, Stage::Rejected(_)) && is_static(&entry.pod) {
                    entry.stage = Stage::Queued;
                }
            }
        } else if !is_static(&pod) {
            // Its spec decides nothing any more; its status and its deletion do.
            entry.set_pod(pod);
        }
        for asked in asked {
            self.effect(Effect::Count(Tally::ResizeAsked(asked)));
        }
    }

    fn take_observation(&mut self, now: Now, observation: Observation) {
        let Observation { started_at, scope, changed, gone, unknown } = observation;
        // One that is being looked at has no trouble yet.
        for UnknownPod { uid, why, .. } in unknown.iter().filter(|pod| !pod.why.is_empty()) {
            let text = format!("error determining status: {why}");
            self.event(now, uid, "", EventType::Warning, "FailedSync", text);
        }
        let met = self.meet_strangers(&scope, &changed, &gone, &unknown);
        let unknown: BTreeMap<PodUid, String> = unknown.into_iter().map(|pod| (pod.uid, pod.why)).gather();
        let first = self.listed_at.is_none();
        let mut touched: Vec<PodUid> = Vec::new();
        if scope == Scope::All {
            self.listed_at = self.listed_at.max(Some(started_at));
            for (uid, seen) in &mut self.runtime {
                if !unknown.contains_key(uid) {
                    seen.at = seen.at.max(started_at);
                }
            }
            self.uncertain = unknown.keys().cloned().collect();
            if first {
                self.unseen.clone_from(&self.uncertain);
            }
        }
        let had_unseen = !self.unseen.is_empty();
        if let Scope::Pod(uid) = &scope {
            self.unseen.remove(uid);
        }
        for pod in changed {
            let Some(uid) = pod.uid.clone() else { continue };
            if self.runtime.get(&uid).is_some_and(|seen| seen.at > started_at) {
                continue;
            }
            self.tally_ends(&uid, &pod);
            if let Some(entry) = self.pods.get_mut(&uid) {
                entry.learn(&pod, now.mono, self.settings.probes);
            }
            self.runtime.insert(uid.clone(), Seen { pod, at: started_at });
            touched.push(uid);
        }
        for uid in gone {
            self.unseen.remove(&uid);
            if self.runtime.get(&uid).is_some_and(|seen| seen.at > started_at) {
                continue;
            }
            self.runtime.remove(&uid);
            if let Some(entry) = self.pods.get_mut(&uid) {
                entry.absent_at = entry.absent_at.max(Some(started_at));
            }
            touched.push(uid);
        }
        match scope {
            // One that could not be looked at is asked for again a little later.
            Scope::Pod(uid) if unknown.contains_key(&uid) => {
                if let Some(entry) = self.pods.get_mut(&uid) {
                    entry.unseen_why = unknown.get(&uid).cloned();
                    self.stale.insert(uid);
                    entry.asked_at = None;
                    entry.retry_at = Some(now.mono + Self::retry_delay(1));
                }
            }
            // One that looks unchanged to PLEG is as seen now.
            Scope::Pod(uid) => {
                if let Some(entry) = self.pods.get_mut(&uid) {
                    entry.unseen_why = None;
                }
                if let Some(seen) = self.runtime.get_mut(&uid) {
                    seen.at = seen.at.max(started_at);
                } else if let Some(entry) = self.pods.get_mut(&uid) {
                    entry.absent_at = entry.absent_at.max(Some(started_at));
                }
                if !touched.contains(&uid) {
                    touched.push(uid);
                }
            }
            Scope::All => {
                // Those that PLEG looks at now are told of when it has; a question that got lost is asked again.
                let asked = |e: &&Entry| e.asked_at.is_some() && !unknown.contains_key(&e.uid);
                let waiting = self.pods.values().filter(|e| first || asked(e)).map(|e| e.uid.clone());
                let more: Vec<PodUid> = waiting.filter(|uid| !touched.contains(uid)).collect();
                touched.extend(more);
            }
        }
        if self.unseen.is_empty() && (had_unseen || met) {
            let queued = self.pods.values().filter(|e| e.stage == Stage::Queued && !touched.contains(&e.uid));
            let queued: Vec<PodUid> = queued.map(|e| e.uid.clone()).collect();
            touched.extend(queued);
        }
        self.in_admission_order(&mut touched);
        for uid in touched {
            if let Some(entry) = self.pods.get_mut(&uid) {
                entry.asked_at = None;
                self.drive(now, &uid);
            }
        }
        self.adopt_unwanted(now);
    }

    /// Keeps account of the pods that the runtime has and no look has reached. Whether there are fewer now.
    fn meet_strangers(
        &mut self,
        scope: &Scope,
        changed: &[Arc<RuntimePod>],
        gone: &[PodUid],
        unknown: &[UnknownPod],
    ) -> bool {
        let before = self.strangers.clone();
        match scope {
            // A full list names all that are left.
            Scope::All => self.strangers.clear(),
            Scope::Pod(uid) => {
                self.strangers.remove(uid);
            }
        }
        let new = unknown.iter().filter(|pod| !self.runtime.contains_key(&pod.uid));
        let new = new.filter_map(|pod| Some((pod.uid.clone(), pod.name.clone()?)));
        self.strangers.extend(new);
        for uid in changed.iter().filter_map(|pod| pod.uid.as_ref()).chain(gone) {
            self.strangers.remove(uid);
        }
        before.keys().any(|uid| !self.strangers.contains_key(uid))
    }

    fn take_health(&mut self, now: Now, health: RuntimeHealth) {
        if self.health == health {
            return;
        }
        self.stale_node = true;
        let is_up = health == RuntimeHealth::Up;
        self.health = health;
        if is_up {
            // What failed while the runtime was away is tried again at once.
            let uids: Vec<PodUid> = self.pods.keys().cloned().collect();
            for uid in uids {
                if let Some(entry) = self.pods.get_mut(&uid) {
                    entry.retry_at = None;
                    entry.asked_at = None;
                    entry.memory.values_mut().for_each(|m| m.failed = None);
                    self.drive(now, &uid);
                }
            }
        }
    }

    fn take_report(&mut self, now: Now, report: &WorkReport) {
        let Some(entry) = self.pods.get_mut(&report.uid) else { return };
        match entry.work {
            super::entry::Work::Running { id, .. } if id == report.id => {}
            // A report of a work that is not the entry's: nothing to learn from it.
            super::entry::Work::Running { .. } | super::entry::Work::Idle => return,
        }
        if entry.stage == Stage::Asking {
            return self.take_hook_answer(now, report);
        }
        entry.learn_report(report, Self::retry_delay);
        entry.advance(report);
        self.tell_failed_stops(now, report);
        self.tell_failed_resizes(now, report);
        let Some(entry) = self.pods.get_mut(&report.uid) else { return };
        if entry.stage == Stage::Forgetting && is_forgotten(report) {
            self.runtime.remove(&report.uid);
            return self.bury(now, &report.uid);
        }
        self.drive(now, &report.uid);
    }

    /// Tells what could not be stopped.
    fn tell_failed_stops(&mut self, now: Now, report: &WorkReport) {
        let failed = report.results.iter().filter_map(|(step, result)| match (step, result) {
            (Step::StopContainers { .. } | Step::StopSandbox(_), StepResult::Failed(reason)) => Some(&reason.message),
            _ => None,
        });
        let texts: Vec<String> = failed.map(|message| format!("error killing pod: {message}")).collect();
        for text in texts.into_iter().filter(|_| !report.cancelled) {
            self.event(now, &report.uid, "", EventType::Warning, "FailedKillPod", text);
        }
    }

    fn take_verdict(&mut self, now: Now, verdict: ProbeVerdict) {
        let Some(entry) = self.pods.get_mut(&verdict.uid) else { return };
        let Some(seen) = self.runtime.get(&verdict.uid) else { return };
        let Some(container) = seen.pod.containers.iter().find(|c| c.id == verdict.container) else { return };
        // One that has a successor matters to nobody any more.
        if plan::newest(&seen.pod.containers, &container.name).is_none_or(|newest| newest.id != container.id) {
            return;
        }
        let memory = entry.memory.entry(container.name.clone()).or_default();
        match (verdict.probe, verdict.success) {
            (ProbeKind::Startup, true) => memory.started = Some(verdict.container),
            (ProbeKind::Startup, false) => memory.condemned = Some((verdict.container, StopReason::Startup)),
            (ProbeKind::Liveness, false) => memory.condemned = Some((verdict.container, StopReason::Liveness)),
            (ProbeKind::Liveness, true) => memory.condemned = None,
            (ProbeKind::Readiness, true) => memory.ready = Some(verdict.container),
            (ProbeKind::Readiness, false) => memory.ready = None,
        }
        self.drive(now, &verdict.uid);
    }

    /// What volumes or environments draw on has changed: what waited for it is tried at once.
    fn take_refresh(&mut self, now: Now, refresh: &Refresh) {
        for uid in &refresh.pods {
            let Some(entry) = self.pods.get_mut(uid) else { continue };
            entry.want_refresh(&refresh.cause);
            entry.retry_at = None;
            for memory in entry.memory.values_mut() {
                let waits = memory.failed.as_ref().is_some_and(|(_, why)| why.reason == CONTAINER_CONFIG_ERROR);
                if waits {
                    memory.failed = None;
                }
            }
            self.drive(now, uid);
        }
    }

    fn take_timer(&mut self, now: Now) {
        let due = self.pods.values().filter(|e| e.deadline().is_some_and(|at| at <= now.mono));
        let due: Vec<PodUid> = due.map(|e| e.uid.clone()).collect();
        for uid in due {
            if let Some(entry) = self.pods.get_mut(&uid) {
                entry.wake_at = entry.wake_at.filter(|at| *at > now.mono);
                entry.retry_at = entry.retry_at.filter(|at| *at > now.mono);
                self.drive(now, &uid);
            }
        }
    }

    /// Once it is known what is wanted and what runs, takes care of everything that nobody wants.
    fn adopt_unwanted(&mut self, now: Now) {
        if self.listed_at.is_none() {
            return;
        }
        let in_runtime = self.runtime.keys().filter(|uid| !self.pods.contains_key(*uid));
        let mut unwanted: Vec<PodUid> = in_runtime.cloned().collect();
        unwanted.extend(self.records.keys().cloned());
        unwanted.extend(self.leftovers.iter().cloned());
        // Of one that no look has reached it is not known whether it runs.
        let is_unseen = |uid: &PodUid| self.unseen.contains(uid) || self.strangers.contains_key(uid);
        unwanted.retain(|uid| !is_unseen(uid));
        if !self.mux.all_ready() {
            // A silent API server has no say in a pod that came from this node: its record tells.
            let is_known =
                |uid: &PodUid| self.mux.knows_static() && self.records.get(uid).is_some_and(|it| is_static(&it.pod));
            unwanted.retain(is_known);
            return self.adopt_all(now, unwanted);
        }
        self.leftovers.retain(is_unseen);
        self.adopt_all(now, unwanted);
    }

    fn adopt_all(&mut self, now: Now, mut unwanted: Vec<PodUid>) {
        order::sort(&mut unwanted);
        unwanted.dedup();
        for uid in unwanted {
            if self.pods.contains_key(&uid) {
                continue;
            }
            self.adopt(now, &uid);
        }
    }

    /// Takes care of a pod that nobody wants.
    pub(super) fn adopt(&mut self, now: Now, uid: &PodUid) {
        let record = self.records.remove(uid);
        let seen = self.runtime.get(uid).map(|seen| &seen.pod);
        let mut entry = Entry::unwanted(uid, record, seen.map(AsRef::as_ref), &self.settings.boot_id, now);
        if let Some(seen) = seen {
            entry.learn(seen, now.mono, self.settings.probes);
            self.effects.push(Effect::Count(Tally::Orphaned));
        }
        self.pods.insert(uid.clone(), entry);
        self.drive(now, uid);
    }

    pub(super) fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }
}

/// Whether a work removed the last of a pod.
fn is_forgotten(report: &WorkReport) -> bool {
    report.results.iter().any(|(step, _)| *step == Step::ForgetPod)
        && report.results.iter().all(|(_, result)| *result == StepResult::Done)
}

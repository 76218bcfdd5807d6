//! Moves a pod along: from its stage and the newest view to the next stage or the next work. Pure; see
//! the parent module.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::entry::{Cause, Entry, Stage, Work};
use super::{Effect, Node};
use crate::api::PodUid;
use crate::api::moment::Now;
use crate::api::runtime::RuntimePod;
use crate::core::plan::{self, Plan, PlanInput};
use crate::msg::{
    EventObject, EventType, OnFailure, PlannedStep, PodEvent, PodWork, SandboxRef, SourceKind, Step, StepResult,
    ToldEvent, WorkReport,
};
use crate::util::cancel::Cancel;
use crate::util::text::about;

/// What one look at a pod's stage came to.
pub(super) enum Turn {
    /// It stays; nothing more to do now.
    Stay,
    /// It is in another stage now: look again.
    Moved,
    /// It is gone.
    Gone,
}

impl Node {
    /// Drives one pod as far as it goes without anything else happening.
    pub(super) fn drive(&mut self, now: Now, uid: &PodUid) {
        self.stale.insert(uid.clone());
        loop {
            match self.turn(now, uid) {
                Turn::Stay => break,
                Turn::Moved => {}
                Turn::Gone => return self.bury(now, uid),
            }
        }
        self.remember(uid);
        self.tell_of_room(now, uid);
    }

    fn turn(&mut self, now: Now, uid: &PodUid) -> Turn {
        let Some(entry) = self.pods.get(uid) else { return Turn::Stay };
        if entry.is_busy() {
            if entry.is_overtaken(now) {
                entry.cancel();
            }
            return Turn::Stay;
        }
        match entry.stage {
            Stage::Queued => self.turn_queued(now, uid),
            Stage::Asking => self.turn_asking(now, uid),
            Stage::MakingRoom { .. } => self.turn_making_room(now, uid),
            Stage::Rejected(_) => self.turn_rejected(uid),
            Stage::Active => self.turn_active(now, uid),
            Stage::Ending { .. } => self.turn_ending(now, uid),
            Stage::Releasing { .. } => self.turn_releasing(now, uid),
            Stage::Ended { .. } => self.turn_ended(now, uid),
            Stage::Forgetting => self.turn_forgetting(now, uid),
        }
    }

    fn turn_queued(&mut self, now: Now, uid: &PodUid) -> Turn {
        let Some(entry) = self.pods.get(uid) else { return Turn::Stay };
        let Some(wanted) = entry.wanted.clone() else {
            return self.set_stage(uid, Stage::Forgetting);
        };
        let ends_already = entry.end_by_source(now).filter(|cause| *cause != Cause::DeadlineExceeded);
        let deadline = now.mono + entry.grace();
        // Until the runtime was listed it is not known whether an elder of that name still runs.
        if self.listed_at.is_none() {
            return self.wait(uid, "the container runtime to be listed for the first time");
        }
        if !self.unseen.is_empty() {
            return self.wait(uid, "a first look at the pods that the container runtime has");
        }
        if self.strangers.contains_key(uid) {
            return self.wait(uid, "a look at what the container runtime has of it");
        }
        // It was deleted before it began, or ended in an earlier life of this agent: it needs no turn.
        if let Some(cause) = ends_already {
            return self.set_stage(uid, Stage::Ending { cause, deadline });
        }
        let name = entry.name.clone();
        if let Some((other, _)) = self.strangers.iter().find(|(_, stranger)| **stranger == name) {
            let text = format!("a look at the pod of this name that the container runtime has (uid {other})");
            return self.wait(uid, &text);
        }
        let elder = self.pods.values().find(|e| e.name == name && e.uid != *uid && e.stage != Stage::Queued);
        let unadopted = self.runtime.iter().find(|(other, seen)| {
            *other != uid
                && !self.pods.contains_key(*other)
                && seen.pod.name == name.name
                && seen.pod.namespace == name.namespace
                && !plan::at_rest(&seen.pod)
        });
        if let (None, Some((other, _))) = (elder, unadopted)
            && self.mux.keeps_its_name(uid)
        {
            // Whatever a source that is silent has to say, it can't be that this one shall go on.
            let other = other.clone();
            self.adopt(now, &other);
            return Turn::Moved;
        }
        if let Some(elder) = elder.map(|e| &e.uid).or(unadopted.map(|(other, _)| other)) {
            let text = format!("the earlier pod of this name (uid {elder}) to be gone");
            return self.wait(uid, &text);
        }
        self.turn_admission(now, uid, &wanted)
    }

    fn turn_rejected(&mut self, uid: &PodUid) -> Turn {
        match self.pods.get(uid) {
            Some(entry) if entry.wanted.is_none() => self.set_stage(uid, Stage::Forgetting),
            Some(_) | None => Turn::Stay,
        }
    }

    fn turn_active(&mut self, now: Now, uid: &PodUid) -> Turn {
        let Some(entry) = self.pods.get(uid) else { return Turn::Stay };
        if let Some(cause) = entry.end_by_source(now) {
            let is_late = cause == Cause::DeadlineExceeded;
            let deadline = now.mono + entry.grace();
            if is_late {
                let text = "Pod was active on the node longer than the specified deadline".to_owned();
                self.event(now, uid, "", EventType::Normal, "DeadlineExceeded", text);
            }
            return self.set_stage(uid, Stage::Ending { cause, deadline });
        }
        let Some(observed) = self.fresh(now, uid) else { return Turn::Stay };
        self.turn_resize(now, uid, &observed);
        let Some(entry) = self.pods.get(uid) else { return Turn::Stay };
        let plan = plan::plan_active(&PlanInput {
            pod: &entry.pod,
            observed: &observed,
            memory: &entry.memory,
            next_sandbox_attempt: entry.next_sandbox_attempt,
            now: now.mono,
            backoff: self.settings.backoff,
            keep_dead: self.settings.keep_dead,
            restart_all: self.settings.restart_all,
        });
        if !plan.new_round.is_empty() && plan.steps.is_empty() {
            // Nothing is left of the round before.
            self.begin_round(uid, plan.new_round);
            return Turn::Moved;
        }
        if let Some(ending) = plan.ended {
            let deadline = now.mono + entry.grace();
            return self.set_stage(uid, Stage::Ending { cause: Cause::Completed(ending), deadline });
        }
        let plan = entry.with_refresh(plan);
        self.tell_backoff(now, uid, &plan);
        let is_replaced = !observed.sandboxes.is_empty()
            && plan.steps.iter().any(|planned| matches!(planned.step, Step::RunSandbox { .. }));
        let turn = self.carry_out(now, uid, plan, &observed);
        if is_replaced && self.pods.get(uid).is_some_and(Entry::is_busy) {
            let text = "Pod sandbox changed, it will be killed and re-created.".to_owned();
            self.event(now, uid, "", EventType::Normal, "SandboxChanged", text);
        }
        turn
    }

    fn turn_ending(&mut self, now: Now, uid: &PodUid) -> Turn {
        let Some(observed) = self.fresh(now, uid) else { return Turn::Stay };
        let Some(entry) = self.pods.get(uid) else { return Turn::Stay };
        let Stage::Ending { cause, deadline } = &entry.stage else { return Turn::Stay };
        if plan::at_rest(&observed) {
            let cause = cause.clone();
            return self.set_stage(uid, Stage::Releasing { cause });
        }
        let grace = deadline.since(now.mono);
        let plan = plan::plan_ending(Some(&entry.pod), &observed, grace, cause.sentence());
        self.carry_out(now, uid, plan, &observed)
    }

    fn turn_releasing(&mut self, now: Now, uid: &PodUid) -> Turn {
        let Some(entry) = self.pods.get(uid) else { return Turn::Stay };
        let cause = entry.stage.cause().map_or("", Cause::sentence).to_owned();
        let step = PlannedStep { step: Step::ReleasePod, cause, on_failure: OnFailure::Abort };
        let plan = Plan { steps: vec![step], ..Plan::default() };
        self.carry_out(now, uid, plan, &RuntimePod::default())
    }

    fn turn_ended(&mut self, now: Now, uid: &PodUid) -> Turn {
        let Some(entry) = self.pods.get(uid) else { return Turn::Stay };
        // A pod that its source dropped and brought back starts anew once nothing is left of it.
        let starts_anew =
            matches!(entry.stage.cause(), Some(Cause::Removed | Cause::Orphan)) && entry.end_by_source(now).is_none();
        if entry.wanted.is_none() || starts_anew { self.set_stage(uid, Stage::Forgetting) } else { Turn::Stay }
    }

    fn turn_forgetting(&mut self, now: Now, uid: &PodUid) -> Turn {
        let Some(observed) = self.fresh(now, uid) else { return Turn::Stay };
        if !plan::at_rest(&observed) {
            let Some(entry) = self.pods.get(uid) else { return Turn::Stay };
            let deadline = now.mono + entry.grace();
            return self.set_stage(uid, Stage::Ending { cause: Cause::Orphan, deadline });
        }
        let plan = plan::plan_forget(Some(&observed), "nothing of it shall remain");
        self.carry_out(now, uid, plan, &observed)
    }

    /// The newest view, if it began after the pod's last work; else asks PLEG for one.
    fn fresh(&mut self, now: Now, uid: &PodUid) -> Option<Arc<RuntimePod>> {
        let settled_at = self.pods.get(uid)?.settled_at;
        if self.seen_at(uid).is_some_and(|at| at > settled_at) {
            return Some(self.observed(uid).unwrap_or_default());
        }
        let entry = self.pods.get_mut(uid)?;
        if let Some(text) = entry.next_try(now) {
            entry.waits = vec![text];
        } else if entry.asked_at.is_none() {
            entry.asked_at = Some(now.mono);
            let look = std::mem::take(&mut entry.look);
            self.effect(Effect::Inspect(uid.clone(), look));
        }
        None
    }

    /// Hands the plan to a worker, or says what the pod waits for.
    pub(super) fn carry_out(&mut self, now: Now, uid: &PodUid, plan: Plan, observed: &RuntimePod) -> Turn {
        let next_work = self.next_work;
        let Some(entry) = self.pods.get_mut(uid) else { return Turn::Stay };
        entry.plan = plan.steps.iter().map(describe).collect();
        entry.waits = plan.waits;
        entry.waiting = plan.waiting;
        entry.wake_at = plan.wake_at;
        if plan.steps.is_empty() {
            return Turn::Stay;
        }
        if let Some(text) = entry.next_try(now) {
            entry.waits.insert(0, text);
            return Turn::Stay;
        }
        for (name, crash) in plan.restarts {
            entry.memory.entry(name).or_default().crash = Some(crash);
        }
        self.begin_round(uid, plan.new_round);
        let Some(entry) = self.pods.get_mut(uid) else { return Turn::Stay };
        let begun = entry.begin(now.mono);
        let cancel = Cancel::new();
        entry.work = Work::Running { id: next_work, cancel: cancel.clone(), ends_by: entry.ends_by() };
        let sandbox = plan::newest_sandbox(observed).filter(|s| plan::is_ready(s));
        let work = PodWork {
            id: next_work,
            uid: uid.clone(),
            name: entry.name.clone(),
            pod: Arc::clone(&entry.pod),
            steps: plan.steps,
            sandbox: sandbox.map(|s| SandboxRef { id: s.id.clone(), attempt: s.attempt, ips: s.ips.clone() }),
            cancel,
        };
        if work.steps.iter().any(|planned| planned.step == Step::PreparePod) {
            entry.refresh = None;
        }
        self.next_work += 1;
        // What has to be known after a crash is on its way to the disk before the work starts.
        self.remember(uid);
        self.effects.extend(begun.map(Effect::Count));
        self.effect(Effect::Work(work));
        Turn::Stay
    }

    /// All containers restart: what is remembered of the round before counts no more.
    fn begin_round(&mut self, uid: &PodUid, round: BTreeMap<String, u32>) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        for (name, first_attempt) in round {
            entry.memory.entry(name).or_default().begin_round(first_attempt);
        }
    }

    pub(super) fn wait(&mut self, uid: &PodUid, what: &str) -> Turn {
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.waits = vec![what.to_owned()];
        }
        Turn::Stay
    }

    pub(super) fn set_stage(&mut self, uid: &PodUid, stage: Stage) -> Turn {
        if let Some(entry) = self.pods.get_mut(uid) {
            match stage {
                Stage::MakingRoom { .. } => self.making_room.insert(uid.clone()),
                _ => self.making_room.remove(uid),
            };
            entry.stage = stage;
            entry.plan.clear();
            entry.waits.clear();
            entry.waiting.clear();
            entry.wake_at = None;
            // A new stage is a new reason to try.
            entry.retry_at = None;
            entry.failures = 0;
            if entry.stage == Stage::Forgetting && entry.wanted.is_none() && entry.never_began() {
                let in_runtime = self.runtime.contains_key(uid);
                if !in_runtime {
                    return Turn::Gone;
                }
            }
        }
        Turn::Moved
    }

    /// Removes the entry; a pod of the same uid that is wanted again, or a younger one of the same
    /// name, begins.
    pub(super) fn bury(&mut self, now: Now, uid: &PodUid) {
        let Some(entry) = self.pods.remove(uid) else { return };
        self.making_room.remove(uid);
        if entry.saved.is_some() {
            self.effect(Effect::Unrecord(uid.clone()));
        }
        self.records.remove(uid);
        self.stale.insert(uid.clone());
        if let Some(pod) = entry.wanted {
            let mut again = Entry::new(pod, true, now);
            // Attempts go on, so that no name in the runtime is ever used twice.
            again.settled_at = entry.settled_at;
            self.pods.insert(uid.clone(), again);
            self.drive(now, uid);
        }
        let next = self.pods.values().filter(|e| e.name == entry.name && e.stage == Stage::Queued && e.uid != *uid);
        let next: Vec<PodUid> = next.map(|e| e.uid.clone()).collect();
        for uid in next {
            self.drive(now, &uid);
        }
        self.tell_of_room(now, uid);
    }

    /// Tells once when a container's restart is held back.
    fn tell_backoff(&mut self, now: Now, uid: &PodUid, plan: &Plan) {
        let Some(entry) = self.pods.get(uid) else { return };
        let news = plan
            .waiting
            .iter()
            .filter(|(name, reason)| reason.reason == "CrashLoopBackOff" && entry.waiting.get(*name) != Some(*reason));
        let news: Vec<(String, String)> = news
            .map(|(name, _)| {
                let pod = &entry.name;
                let text =
                    format!("Back-off restarting failed container {name} in pod {}_{}({uid})", pod.name, pod.namespace);
                (entry.field_path(name), text)
            })
            .collect();
        for (path, text) in news {
            self.event(now, uid, &path, EventType::Warning, "BackOff", text);
        }
    }

    /// Keeps an event for the tools and sends it to the API server.
    pub(super) fn tell(&mut self, event: PodEvent) {
        let Some(entry) = self.pods.get_mut(&event.uid) else { return };
        let pod = entry.wanted.as_ref().unwrap_or(&entry.pod);
        let object = EventObject {
            kind: "Pod",
            name: entry.name.name.clone(),
            namespace: entry.name.namespace.clone(),
            uid: event.uid.to_string(),
            resource_version: pod.metadata.resource_version.clone().unwrap_or_default(),
            field_path: event.field_path.clone(),
        };
        let told = ToldEvent {
            object,
            event_type: event.event_type,
            reason: event.reason.clone(),
            message: event.message.clone(),
            at: event.at,
        };
        self.stale.insert(event.uid.clone());
        entry.record_event(event);
        if self.settings.sources.contains(&SourceKind::Api) {
            self.effect(Effect::Tell(told));
        }
    }

    pub(super) fn event(
        &mut self,
        now: Now,
        uid: &PodUid,
        field_path: &str,
        event_type: EventType,
        reason: &str,
        message: String,
    ) {
        let (uid, field_path, reason) = (uid.clone(), field_path.to_owned(), reason.to_owned());
        self.tell(PodEvent { uid, field_path, event_type, reason, message, at: now.wall });
    }
}

impl Entry {
    /// Whether the work in flight is for something that is no longer so.
    fn is_overtaken(&self, now: Now) -> bool {
        match self.stage {
            Stage::Asking | Stage::Active => self.end_by_source(now).is_some(),
            Stage::Ending { .. } => self.is_too_slow(),
            Stage::Queued
            | Stage::MakingRoom { .. }
            | Stage::Rejected(_)
            | Stage::Releasing { .. }
            | Stage::Ended { .. }
            | Stage::Forgetting => false,
        }
    }

    /// The plan, with a look at the volumes where they need one and get none.
    fn with_refresh(&self, mut plan: Plan) -> Plan {
        if let Some(cause) = &self.refresh
            && !plan.steps.iter().any(|planned| planned.step == Step::PreparePod)
        {
            let (step, cause) = (Step::PreparePod, cause.clone());
            plan.steps.push(PlannedStep { step, cause, on_failure: OnFailure::Continue });
        }
        plan
    }

    /// When something that failed is tried again, for people, if that is not yet.
    fn next_try(&self, now: Now) -> Option<String> {
        let at = self.retry_at.filter(|at| *at > now.mono)?;
        let failure = self.failure.as_ref().map_or("the last try failed", |r| r.message.as_str());
        Some(format!("the next try in {}: {failure}", about(at.since(now.mono))))
    }

    /// Whether nothing was ever done for it.
    fn never_began(&self) -> bool {
        self.saved.is_none() && self.settled_at == crate::api::moment::Moment::default()
    }

    /// Moves to the next stage where a finished work completes one.
    pub(super) fn advance(&mut self, report: &WorkReport) {
        let done =
            |wanted: &Step| report.results.iter().any(|(step, result)| step == wanted && *result == StepResult::Done);
        let stage = std::mem::replace(&mut self.stage, Stage::Queued);
        self.stage = match stage {
            Stage::Releasing { cause } if done(&Step::ReleasePod) => Stage::Ended { cause },
            other @ (Stage::Queued
            | Stage::Asking
            | Stage::MakingRoom { .. }
            | Stage::Rejected(_)
            | Stage::Active
            | Stage::Ending { .. }
            | Stage::Releasing { .. }
            | Stage::Ended { .. }
            | Stage::Forgetting) => other,
        };
        if self.stage != Stage::Active {
            self.waits.clear();
        }
    }
}

/// A step in words, for `ferrolet why` and logs.
pub(super) fn describe(planned: &PlannedStep) -> String {
    let what = match &planned.step {
        Step::AskAdmissionHook => "ask the admission hook".to_owned(),
        Step::PreparePod => "prepare folders, cgroup and volumes".to_owned(),
        Step::StopContainers { containers, grace } => {
            let names: Vec<&str> = containers.iter().map(|c| c.name.as_str()).collect();
            format!("stop {} within {}", names.join(", "), about(*grace))
        }
        Step::StopSandbox(id) => format!("stop sandbox {}", short(id.as_str())),
        Step::RunSandbox { attempt } => format!("make sandbox, attempt {attempt}"),
        Step::StartContainer { name, attempt, .. } => format!("start {name}, attempt {attempt}"),
        Step::ResizeContainers(all) => {
            let names: Vec<&str> = all.iter().map(|c| c.name.as_str()).collect();
            format!("resize {}", names.join(", "))
        }
        Step::RemoveContainer { id, name, .. } => format!("remove {name} ({})", short(id.as_str())),
        Step::RemoveSandbox(id) => format!("remove sandbox {}", short(id.as_str())),
        Step::ReleasePod => "take volumes and cgroup away".to_owned(),
        Step::ForgetPod => "remove folder and logs".to_owned(),
    };
    format!("{what}: {}", planned.cause)
}

fn short(id: &str) -> &str {
    id.get(..13).unwrap_or(id)
}

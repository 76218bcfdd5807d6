//! When and beside whom a pod is asked about, and what follows: it starts, is refused, or waits until pods that
//! matter less have made room for it. Pure; see the parent module.
//!
//! A decision once made is kept: a pod that was admitted in an earlier life of the agent is not asked about again,
//! and it counts before all that are new.

use std::time::Duration;

use super::drive::Turn;
use super::entry::{Entry, Stage};
use super::{Effect, Node, Seen, Tally};
use crate::api::PodUid;
use crate::api::moment::{Moment, Now};
use crate::api::runtime::RuntimePod;
use crate::api::v1::Pod;
use crate::core::admit::{self, AdmissionView, Other, Verdict};
use crate::core::plan::Plan;
use crate::core::status;
use crate::msg::{EventType, OnFailure, PlannedStep, Reason, Step, StepResult, WorkReport};
use crate::util::order;

/// Reason of the pods that make room, in their status and as an event.
const PREEMPTING: &str = "Preempting";

/// The shortest time that pods get to make room.
const SHORTEST_PATIENCE: Duration = Duration::from_secs(10);

impl Node {
    /// Asks admission about a queued pod that nothing else holds up.
    pub(super) fn turn_admission(&mut self, now: Now, uid: &PodUid, wanted: &Pod) -> Turn {
        if self.pods.get(uid).is_some_and(|e| self.was_admitted(e)) {
            return self.set_stage(uid, Stage::Active);
        }
        if self.is_shutting_down() {
            return self.reject(now, uid, crate::core::shutdown::refusal());
        }
        let others = self.pods.values().filter(|e| e.uid != *uid && self.holds_room(e));
        let others: Vec<Other<'_>> = others.map(|e| Other { pod: &e.pod, claim: &e.claim }).collect();
        let view = AdmissionView { limits: &self.settings.admission, others: &others };
        let verdict = admit::admit(admit::CHECKS, wanted, &view);
        let is_asked = self.settings.admission_hook && self.pods.get(uid).is_some_and(|e| !e.hook_admits);
        match verdict {
            Verdict::Refuse(reason) => self.reject(now, uid, reason),
            // The hook may take its time: the room is the pod's meanwhile, and nobody ends for it yet.
            Verdict::Admit | Verdict::Preempt { .. } if is_asked => self.set_stage(uid, Stage::Asking),
            Verdict::Admit => self.set_stage(uid, Stage::Active),
            Verdict::Preempt { short, victims } => self.make_room(now, uid, &short, victims),
        }
    }

    fn reject(&mut self, now: Now, uid: &PodUid, reason: Reason) -> Turn {
        let message = reason.message.clone();
        self.event(now, uid, "", EventType::Warning, &reason.reason, message);
        self.effect(Effect::Count(Tally::Rejected(reason.reason.clone())));
        self.set_stage(uid, Stage::Rejected(reason))
    }

    /// Has a worker ask the admission hook.
    pub(super) fn turn_asking(&mut self, now: Now, uid: &PodUid) -> Turn {
        let Some(entry) = self.pods.get(uid) else { return Turn::Stay };
        if entry.wanted.is_none() {
            return self.set_stage(uid, Stage::Forgetting);
        }
        if let Some(cause) = entry.end_by_source(now) {
            let deadline = now.mono + entry.grace();
            return self.set_stage(uid, Stage::Ending { cause, deadline });
        }
        let cause = "this node has nothing against the pod".to_owned();
        let step = PlannedStep { step: Step::AskAdmissionHook, cause, on_failure: OnFailure::Abort };
        let plan = Plan { steps: vec![step], ..Plan::default() };
        self.carry_out(now, uid, plan, &RuntimePod::default())
    }

    /// Takes the hook's answer. A question that did not reach the hook is asked again.
    pub(super) fn take_hook_answer(&mut self, now: Now, report: &WorkReport) {
        let uid = &report.uid;
        let Some(entry) = self.pods.get_mut(uid) else { return };
        // Asking changed nothing in the runtime: what was seen of it still counts.
        let settled_at = entry.settled_at;
        entry.learn_report(report, Self::retry_delay);
        entry.settled_at = settled_at;
        let _moved = match report.results.first().map(|(_, result)| result) {
            Some(StepResult::Done) if !report.cancelled => {
                entry.hook_admits = true;
                self.set_stage(uid, Stage::Queued)
            }
            Some(StepResult::Refused(reason)) if !report.cancelled => self.reject(now, uid, reason.clone()),
            Some(_) | None => Turn::Stay,
        };
        self.drive(now, uid);
    }

    /// Ends the pods that have to make room; the critical one starts when they are gone.
    fn make_room(&mut self, now: Now, uid: &PodUid, short: &str, victims: Vec<PodUid>) -> Turn {
        let graces = victims.iter().filter_map(|victim| self.pods.get(victim)).map(Entry::grace);
        let until = now.mono + (graces.max().unwrap_or_default() * 3 / 2).max(SHORTEST_PATIENCE);
        let _moved = self.set_stage(uid, Stage::MakingRoom { victims: victims.iter().cloned().collect(), until });
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.wake_at = Some(until);
        }
        for victim in victims {
            let Some(entry) = self.pods.get_mut(&victim) else { continue };
            // One that ends already is only waited for.
            if entry.doom.is_some() || entry.stage.cause().is_some() {
                continue;
            }
            let ending = preempted();
            let message = ending.reason.message.clone();
            entry.doom = Some(Box::new(ending));
            self.event(now, &victim, "", EventType::Warning, PREEMPTING, message);
            self.effect(Effect::Count(Tally::Preempted { short: short.to_owned() }));
            self.drive(now, &victim);
        }
        Turn::Moved
    }

    /// Looks whether there is room now, or no more hope that there will be.
    pub(super) fn turn_making_room(&mut self, now: Now, uid: &PodUid) -> Turn {
        let Some(entry) = self.pods.get(uid) else { return Turn::Stay };
        let Stage::MakingRoom { victims, until } = &entry.stage else { return Turn::Stay };
        if entry.wanted.is_none() {
            return self.set_stage(uid, Stage::Forgetting);
        }
        if let Some(cause) = entry.end_by_source(now) {
            let deadline = now.mono + entry.grace();
            return self.set_stage(uid, Stage::Ending { cause, deadline });
        }
        // Whether or not its source still has it: what counts is that nothing of it runs.
        let still_there = |victim: &&PodUid| self.pods.get(*victim).is_some_and(|e| !e.has_made_room());
        let left: Vec<PodUid> = victims.iter().filter(still_there).cloned().collect();
        if !left.is_empty() && now.mono < *until {
            let names: Vec<&str> = left.iter().filter_map(|v| self.pods.get(v)).map(|e| e.name.name.as_str()).collect();
            let text = format!("room: {} ends to make it", names.join(", "));
            return self.wait_until(uid, &text, *until);
        }
        for victim in left {
            let text = "Container runtime did not kill the pod within specified grace period.".to_owned();
            self.event(now, &victim, "", EventType::Warning, "ExceededGracePeriod", text);
        }
        self.set_stage(uid, Stage::Active)
    }

    fn wait_until(&mut self, uid: &PodUid, what: &str, at: Moment) -> Turn {
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.wake_at = Some(at);
        }
        self.wait(uid, what)
    }

    /// Drives those that wait for this pod to make room, if it has.
    pub(super) fn tell_of_room(&mut self, now: Now, uid: &PodUid) {
        if self.pods.get(uid).is_some_and(|e| !e.has_made_room()) {
            return;
        }
        let waits = |waiting: &&PodUid| match self.pods.get(*waiting).map(|e| &e.stage) {
            Some(Stage::MakingRoom { victims, .. }) => victims.contains(uid),
            Some(_) | None => false,
        };
        let waiting: Vec<PodUid> = self.making_room.iter().filter(waits).cloned().collect();
        for uid in waiting {
            self.drive(now, &uid);
        }
        self.retry_resizes(now);
    }

    /// Whether a pod was admitted before it was queued: this agent remembers that it was at work on it, or
    /// something of it is in the runtime.
    fn was_admitted(&self, entry: &Entry) -> bool {
        let is_there = |seen: &Seen| !seen.pod.sandboxes.is_empty() || !seen.pod.containers.is_empty();
        entry.saved.is_some() || self.runtime.get(&entry.uid).is_some_and(is_there)
    }

    /// Whether what the pod requests is its own. A pod that ends has it until nothing of it runs; one that its
    /// source dropped is not counted any more, or its successor would be refused for good.
    pub(super) fn holds_room(&self, entry: &Entry) -> bool {
        entry.wanted.is_some()
            && match entry.stage {
                Stage::Active | Stage::Asking | Stage::MakingRoom { .. } | Stage::Ending { .. } => true,
                Stage::Queued => self.was_admitted(entry),
                Stage::Rejected(_) | Stage::Releasing { .. } | Stage::Ended { .. } | Stage::Forgetting => false,
            }
    }

    /// Brings pods into the order in which they are asked about: the oldest first.
    pub(super) fn in_admission_order(&self, uids: &mut [PodUid]) {
        let created = |uid: &PodUid| self.pods.get(uid).and_then(|e| e.pod.metadata.creation_timestamp.as_ref());
        order::sort_by(uids, |a, b| (created(a), a).cmp(&(created(b), b)));
    }
}

impl Entry {
    /// Whether nothing of it runs any more.
    fn has_made_room(&self) -> bool {
        match self.stage {
            Stage::Active | Stage::Asking | Stage::MakingRoom { .. } | Stage::Ending { .. } => false,
            Stage::Queued | Stage::Rejected(_) | Stage::Releasing { .. } | Stage::Ended { .. } | Stage::Forgetting => {
                true
            }
        }
    }
}

fn preempted() -> status::Ending {
    status::Ending {
        reason: Reason {
            reason: PREEMPTING.to_owned(),
            message: "Preempted in order to admit critical pod".to_owned(),
        },
        disruption: Some(Reason {
            reason: "TerminationByKubelet".to_owned(),
            message: "Pod was preempted by Kubelet to accommodate a critical pod.".to_owned(),
        }),
    }
}

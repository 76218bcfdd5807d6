//! When and beside whom a pod is asked about, and what follows: it starts, is refused, or waits until pods that
//! matter less have made room for it. Pure; see the parent module.
//!
//! A decision once made is kept: a pod that was admitted in an earlier life of the agent is not asked about again,
//! and it counts before all that are new.

use std::time::Duration;

use super::Node;
use super::drive::Turn;
use super::entry::{Entry, Stage};
use crate::api::PodUid;
use crate::api::moment::{Moment, Now};
use crate::api::v1::Pod;
use crate::core::admit::{self, AdmissionView, Verdict};
use crate::core::status;
use crate::msg::{EventType, Reason};

/// Reason of the pods that make room, in their status and as an event.
const PREEMPTING: &str = "Preempting";

/// The shortest time that pods get to make room.
const SHORTEST_PATIENCE: Duration = Duration::from_secs(10);

impl Node {
    /// Asks admission about a queued pod that nothing else holds up.
    pub(super) fn turn_admission(&mut self, now: Now, uid: &PodUid, wanted: &Pod) -> Turn {
        if self.was_admitted(uid) {
            return self.set_stage(uid, Stage::Active);
        }
        let others = self.pods.values().filter(|e| e.uid != *uid && self.holds_room(e));
        let others: Vec<&Pod> = others.map(|e| e.pod.as_ref()).collect();
        let view = AdmissionView { limits: &self.settings.admission, others: &others };
        match admit::admit(admit::CHECKS, wanted, &view) {
            Verdict::Admit => self.set_stage(uid, Stage::Active),
            Verdict::Refuse(reason) => {
                let message = reason.message.clone();
                self.event(now, uid, "", EventType::Warning, &reason.reason, message);
                self.set_stage(uid, Stage::Rejected(reason))
            }
            Verdict::Preempt(victims) => self.make_room(now, uid, victims),
        }
    }

    /// Ends the pods that have to make room; the critical one starts when they are gone.
    fn make_room(&mut self, now: Now, uid: &PodUid, victims: Vec<PodUid>) -> Turn {
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
        let still_there = |victim: &&PodUid| self.pods.get(*victim).is_some_and(|e| self.holds_room(e));
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
        if self.pods.get(uid).is_some_and(|e| self.holds_room(e)) {
            return;
        }
        let waiting = self
            .pods
            .values()
            .filter(|e| matches!(&e.stage, Stage::MakingRoom { victims, .. } if victims.contains(uid)));
        let waiting: Vec<PodUid> = waiting.map(|e| e.uid.clone()).collect();
        for uid in waiting {
            self.drive(now, &uid);
        }
    }

    /// Whether a pod was admitted before it was queued: this agent remembers that it was at work on it, or
    /// something of it is in the runtime.
    fn was_admitted(&self, uid: &PodUid) -> bool {
        let remembered = self.pods.get(uid).is_some_and(|e| e.saved.is_some());
        remembered
            || self
                .runtime
                .get(uid)
                .is_some_and(|seen| !seen.pod.sandboxes.is_empty() || !seen.pod.containers.is_empty())
    }

    /// Whether what the pod requests is its own. A pod that ends has it until nothing of it runs; one that its
    /// source dropped is not counted any more, or its successor would be refused for good.
    fn holds_room(&self, entry: &Entry) -> bool {
        entry.wanted.is_some()
            && match entry.stage {
                Stage::Active | Stage::MakingRoom { .. } | Stage::Ending { .. } => true,
                Stage::Queued => self.was_admitted(&entry.uid),
                Stage::Rejected(_) | Stage::Releasing { .. } | Stage::Ended { .. } | Stage::Forgetting => false,
            }
    }

    /// Brings pods into the order in which they are asked about: the oldest first.
    pub(super) fn in_admission_order(&self, uids: &mut [PodUid]) {
        uids.sort_by_cached_key(|uid| {
            let created = self.pods.get(uid).and_then(|e| e.pod.metadata.creation_timestamp.clone());
            (created, uid.clone())
        });
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

//! Resizes of running pods: what their source wants is allocated as soon as the node has room for it, and then brought
//! to the containers by the plan. Pure; see the parent module.
//!
//! `wanted` has what the source wants, `pod` what is allocated, and a container's memory what it has while that is
//! something else. All three are known after a restart: the first from the source, the others from the record.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use super::Node;
use super::entry::{Entry, Stage};
use crate::api::moment::Now;
use crate::api::pod::{find_container, is_static, spec};
use crate::api::runtime::{ContainerState, RuntimePod};
use crate::api::v1::Pod;
use crate::api::{PodUid, pod};
use crate::core::admit::{AdmissionView, Other};
use crate::core::{plan, qos, resize};
use crate::msg::{EventType, Look, Reason, Step, StepResult, WorkReport};
use crate::util::order;

/// A resize that the node has no room for is looked at again after this, if nobody gives room back before.
const LOOK_AGAIN: Duration = Duration::from_secs(180);

/// Reason of the condition of a resize that waits for room.
const DEFERRED: &str = "Deferred";

/// Reason of the condition of a resize that this node never does.
const INFEASIBLE: &str = "Infeasible";

fn generation(pod: &Pod) -> i64 {
    pod.metadata.generation.unwrap_or_default()
}

impl Entry {
    /// What a new wish of the source means for what is worked with: all of it, but for CPU and memory, which have to be
    /// allocated first.
    pub(super) fn without_resize(&mut self, wanted: &Arc<Pod>) -> Arc<Pod> {
        match resize::with_resources_of(wanted, &self.pod) {
            Some(pod) if !is_static(wanted) => Arc::new(pod),
            Some(_) | None => {
                self.resize.pending = None;
                self.resize_again = None;
                Arc::clone(wanted)
            }
        }
    }

    /// Takes up a resize where an earlier life of the agent left it: `recorded` is the pod as it was allocated then.
    pub(super) fn resume_resize(&mut self, recorded: &Pod) {
        let Some(wanted) = self.wanted.clone().filter(|pod| !is_static(pod)) else { return };
        if let Some(pod) = resize::with_resources_of(&wanted, recorded) {
            self.set_pod(Arc::new(pod));
        }
        let told = wanted.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let find = |type_: &str| told.iter().find(|c| c.type_ == type_ && c.status == "True");
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        self.resize.pending = find("PodResizePending").map(|c| {
            let reason = Reason { reason: text(&c.reason), message: text(&c.message) };
            (reason, c.observed_generation.unwrap_or_default())
        });
        self.resize.in_progress = find("PodResizeInProgress").map(|c| {
            (c.message.clone().filter(|message| !message.is_empty()), c.observed_generation.unwrap_or_default())
        });
        if self.resize.in_progress.is_none() && self.memory.values().any(|memory| memory.actuated.is_some()) {
            self.resize.in_progress = Some((None, generation(&self.pod)));
        }
    }

    /// Forgets what containers had that do not run any more, or that have what they shall have: a start gives them that.
    fn settle_actuated(&mut self, observed: &RuntimePod) {
        for (name, memory) in &mut self.memory {
            let Some(actuated) = memory.actuated else { continue };
            let runs = plan::newest(&observed.containers, name)
                .is_some_and(|newest| matches!(newest.state, ContainerState::Running { .. }));
            let wanted = find_container(&self.pod, name).map(|(_, spec)| resize::sizes(&self.pod, &spec));
            if !runs || wanted.is_none_or(|wanted| wanted == actuated) {
                memory.actuated = None;
            }
        }
    }

    /// Learns which containers a work resized or started anew.
    pub(super) fn learn_resizes(&mut self, report: &WorkReport) {
        if report.results.iter().any(|(step, _)| matches!(step, Step::ResizeContainers(_))) {
            self.look = Look::AtAll;
        }
        for (step, result) in &report.results {
            let names: Vec<&String> = match (step, result) {
                (Step::ResizeContainers(all), StepResult::Done) => all.iter().map(|one| &one.name).collect(),
                (Step::StartContainer { name, .. }, StepResult::Done) => vec![name],
                _ => continue,
            };
            for name in names {
                if let Some(memory) = self.memory.get_mut(name) {
                    memory.actuated = None;
                }
            }
        }
    }
}

impl Node {
    /// Allocates what an active pod wants if there is room for it, and tells when all its containers have it.
    pub(super) fn turn_resize(&mut self, now: Now, uid: &PodUid, observed: &RuntimePod) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        entry.settle_actuated(observed);
        let is_settled = entry.memory.values().all(|memory| memory.actuated.is_none());
        if is_settled && let Some((_, generation)) = entry.resize.in_progress.take() {
            let text = resize::message("completed", &entry.pod, generation, "");
            self.event(now, uid, "", EventType::Normal, "ResizeCompleted", text);
        }
        self.allocate(now, uid, observed);
    }

    fn allocate(&mut self, now: Now, uid: &PodUid, observed: &RuntimePod) {
        let knows_all = self.knows_all();
        let Some(entry) = self.pods.get(uid) else { return };
        let Some(wanted) = entry.wanted.clone() else { return };
        if !knows_all || Arc::ptr_eq(&wanted, &entry.pod) || is_static(&wanted) {
            return;
        }
        let Some(_) = resize::with_resources_of(&wanted, &entry.pod) else { return };
        let of = generation(&wanted);
        let is_told = entry.resize.pending.as_ref().is_some_and(|(_, told)| *told == of);
        if is_told && entry.resize_again.is_some_and(|at| now.mono < at) {
            return;
        }
        let level_changes = spec(&wanted).map(|s| &s.resources) != spec(&entry.pod).map(|s| &s.resources);
        if level_changes && !self.settings.resize_pod_level {
            let text = "InPlacePodLevelResourcesVerticalScaling is disabled".to_owned();
            return self.refuse_resize(now, uid, INFEASIBLE, text);
        }
        let others = self.pods.values().filter(|e| e.uid != *uid && self.holds_room(e));
        let others: Vec<Other<'_>> = others.map(|e| Other { pod: &e.pod, claim: &e.claim }).collect();
        let view = AdmissionView { limits: &self.settings.admission, others: &others };
        if let Some(text) = resize::refusal(&wanted, &view) {
            return self.refuse_resize(now, uid, DEFERRED, text);
        }
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let before = Arc::clone(&entry.pod);
        entry.set_pod(Arc::clone(&wanted));
        for (name, had) in resize::changed(&wanted, &before) {
            let newest = plan::newest(&observed.containers, &name);
            if newest.is_some_and(|c| matches!(c.state, ContainerState::Running { .. })) {
                entry.memory.entry(name).or_default().actuated.get_or_insert(had);
            }
        }
        entry.resize = crate::core::status::ResizeFacts { pending: None, in_progress: Some((None, of)) };
        entry.resize_again = None;
        entry.want_refresh("the pod has other CPU or memory");
        // What failed for want of room or of a limit may work now.
        entry.retry_at = None;
        let text = resize::message("started", &wanted, of, "");
        self.event(now, uid, "", EventType::Normal, "ResizeStarted", text);
        if !resize::grows(&wanted, &before) {
            self.retry_resizes(now);
        }
    }

    fn refuse_resize(&mut self, now: Now, uid: &PodUid, word: &str, why: String) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let Some(wanted) = entry.wanted.clone() else { return };
        let told = (Reason { reason: word.to_owned(), message: why.clone() }, generation(&wanted));
        entry.resize_again = Some(now.mono + LOOK_AGAIN);
        if entry.resize.pending.as_ref() == Some(&told) {
            return;
        }
        let event = format!("Resize{word}");
        let text = resize::message(word, &wanted, told.1, &why);
        entry.resize.pending = Some(told);
        self.event(now, uid, "", EventType::Warning, &event, text);
    }

    /// Tells of resizes that failed.
    pub(super) fn tell_failed_resizes(&mut self, now: Now, report: &WorkReport) {
        let failed = report.results.iter().find_map(|(step, result)| match (step, result) {
            (Step::ResizeContainers(_), StepResult::Failed(reason)) => Some(reason.message.clone()),
            _ => None,
        });
        let Some(why) = failed.filter(|_| !report.cancelled) else { return };
        let Some(entry) = self.pods.get_mut(&report.uid) else { return };
        let Some((told, generation)) = &mut entry.resize.in_progress else { return };
        if told.as_ref() == Some(&why) {
            return;
        }
        *told = Some(why.clone());
        let text = resize::message("error", &entry.pod, *generation, &why);
        self.event(now, &report.uid, "", EventType::Warning, "ResizeError", text);
    }

    /// Looks again at the resizes that wait for room: those first that ask for no more, then by priority and class, then
    /// by how long they wait.
    pub(super) fn retry_resizes(&mut self, now: Now) {
        let waits = |e: &&Entry| e.stage == Stage::Active && e.resize_again.is_some() && !e.is_busy();
        let mut waiting: Vec<_> = self
            .pods
            .values()
            .filter(waits)
            .map(|e| {
                let wanted = e.wanted.as_deref().unwrap_or(&e.pod);
                let priority = pod::spec(wanted).and_then(|s| s.priority).unwrap_or_default();
                let key = (resize::grows(wanted, &e.pod), Reverse(priority), qos::qos_class(wanted), e.resize_again);
                (key, e.uid.clone())
            })
            .collect();
        order::sort(&mut waiting);
        for (_, uid) in waiting {
            if let Some(entry) = self.pods.get_mut(&uid) {
                entry.resize_again = Some(now.mono);
                self.drive(now, &uid);
            }
        }
    }
}

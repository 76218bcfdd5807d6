//! All probes of the node with the one heap of their due times. Pure; see the parent module.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use super::target::{self, Timing};
use super::tracker::Tracker;
use crate::api::moment::{Moment, Now};
use crate::api::probe::{ErroredState, ProbeCall, ProbeOutcome};
use crate::api::{ContainerId, PodName, PodUid};
use crate::msg::{EventType, FromProber, NodeView, PodEvent, PodView, ProbeKind, ProbeVerdict};

/// Longest explanation that an event carries.
const MAX_TOLD: usize = 1024;

/// One attempt to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The probe, for [`Book::finish`].
    pub probe: u64,
    /// The instance of the container that is asked.
    pub container: ContainerId,
    /// What to do; or why nothing can be done.
    pub call: Result<ProbeCall, String>,
}

/// One probe, and whose it is.
#[derive(Debug)]
struct Place {
    uid: PodUid,
    container: String,
    kind: ProbeKind,
    tracker: Tracker,
}

/// A pod that has probes.
#[derive(Debug)]
struct ProbedPod {
    /// What was seen of it last.
    view: Arc<PodView>,
    probes: Vec<u64>,
}

/// Every probe of the node.
#[derive(Debug)]
pub struct Book {
    /// When the agent began.
    began: Now,
    pods: BTreeMap<PodUid, ProbedPod>,
    probes: BTreeMap<u64, Place>,
    next_probe: u64,
    /// Due times; one that a probe does not have any more is passed over.
    heap: BinaryHeap<Reverse<(Moment, u64)>>,
    forgotten: u64,
}

impl Book {
    /// The book of an agent that began at this time.
    pub fn new(began: Now) -> Self {
        Self {
            began,
            pods: BTreeMap::new(),
            probes: BTreeMap::new(),
            next_probe: 0,
            heap: BinaryHeap::new(),
            forgotten: 0,
        }
    }

    /// How many pods were forgotten so far.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Whether a pod has probes.
    pub fn has_pod(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    /// The names of the pods that have probes.
    pub fn pods(&self) -> impl Iterator<Item = &PodName> {
        self.pods.values().map(|pod| &pod.view.name)
    }

    /// Pod, its uid, container and kind of the probe that an attempt was of.
    pub fn whose(&self, job: &Job) -> Option<(&PodName, &PodUid, &str, ProbeKind)> {
        let place = self.probes.get(&job.probe)?;
        let pod = self.pods.get(&place.uid)?;
        Some((&pod.view.name, &place.uid, &place.container, place.kind))
    }

    /// How many probes there are.
    pub fn len(&self) -> usize {
        self.probes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.probes.is_empty()
    }

    /// Takes a view of the node; only pods that differ from the last one are looked at. `chance` gives numbers from 0
    /// to 1, by which the probes of containers that ran before this agent are spread over their period.
    pub fn see(&mut self, node: &NodeView, now: Now, chance: &mut dyn FnMut() -> f64) {
        let gone: Vec<PodUid> = self.pods.keys().filter(|uid| !node.pods.contains_key(*uid)).cloned().collect();
        for uid in gone {
            self.forget(&uid);
        }
        for (uid, view) in &node.pods {
            if self.pods.get(uid).is_none_or(|known| !Arc::ptr_eq(&known.view, view)) {
                self.see_pod(uid, view, now, chance);
            }
        }
    }

    fn see_pod(&mut self, uid: &PodUid, view: &Arc<PodView>, now: Now, chance: &mut dyn FnMut() -> f64) {
        let mut wanted = target::probes_of(view).peekable();
        if wanted.peek().is_none() {
            return self.forget(uid);
        }
        let known = self.pods.remove(uid).map(|pod| pod.probes).unwrap_or_default();
        let mut probes = Vec::with_capacity(known.len());
        for (container, kind, probe) in wanted {
            let timing = Timing::of(probe);
            let running = target::running(view, &container.name);
            let is_found = running.as_ref().is_some_and(|running| running.started_at < self.began.wall);
            let same =
                |id: &&u64| self.probes.get(*id).is_some_and(|p| p.kind == kind && p.container == container.name);
            let id = known.iter().find(same).copied().unwrap_or_else(|| {
                let is_early = now.mono.since(self.began.mono) < timing.period;
                let late = if is_early && is_found {
                    timing.period.mul_f64(chance().clamp(0.0, 1.0))
                } else {
                    Default::default()
                };
                let id = self.next_probe;
                self.next_probe += 1;
                let tracker = Tracker::new(kind, timing, now.mono + late);
                self.probes.insert(id, Place { uid: uid.clone(), container: container.name.clone(), kind, tracker });
                id
            });
            if let Some(place) = self.probes.get_mut(&id) {
                let before = place.tracker.due();
                place.tracker.see(timing, running.as_ref(), is_found, now);
                let due = place.tracker.due();
                if due != before {
                    self.heap.extend(due.map(|due| Reverse((due, id))));
                }
            }
            probes.push(id);
        }
        for id in known.iter().filter(|id| !probes.contains(id)) {
            self.probes.remove(id);
        }
        self.pods.insert(uid.clone(), ProbedPod { view: Arc::clone(view), probes });
    }

    fn forget(&mut self, uid: &PodUid) {
        let pod = self.pods.remove(uid);
        self.forgotten += u64::from(pod.is_some());
        for id in pod.into_iter().flat_map(|pod| pod.probes) {
            self.probes.remove(&id);
        }
        if self.probes.is_empty() {
            self.heap = BinaryHeap::new();
        }
    }

    /// When the next attempt is due.
    pub fn next_due(&mut self) -> Option<Moment> {
        loop {
            let Reverse((due, id)) = *self.heap.peek()?;
            if self.probes.get(&id).is_some_and(|place| place.tracker.due() == Some(due)) {
                return Some(due);
            }
            self.heap.pop();
        }
    }

    /// The next attempt, if one is due. It is under way from now on, until [`Book::finish`].
    pub fn take_due(&mut self, now: Moment) -> Option<Job> {
        loop {
            // The one on top is in force afterwards.
            self.next_due().filter(|due| *due <= now)?;
            let Reverse((_, id)) = self.heap.pop()?;
            let Some(place) = self.probes.get_mut(&id) else { continue };
            let Some(container) = place.tracker.begin(now) else { continue };
            let view = self.pods.get(&place.uid).map(|pod| &pod.view);
            let call = view.ok_or_else(gone).and_then(|view| call(view, place));
            return Some(Job { probe: id, container, call });
        }
    }

    /// An attempt ended. What the sync loop has to know of it.
    pub fn finish(&mut self, job: &Job, outcome: &ProbeOutcome, now: Now) -> Vec<FromProber> {
        let Some(place) = self.probes.get_mut(&job.probe) else { return Vec::new() };
        let verdict = place.tracker.finish(&job.container, outcome, now.mono);
        self.heap.extend(place.tracker.due().map(|due| Reverse((due, job.probe))));
        let (kind, uid) = (place.kind, &place.uid);
        let mut told = Vec::new();
        if let Some((reason, message)) = words(kind, outcome) {
            let pod = self.pods.get(uid).and_then(|pod| pod.view.pod.as_deref());
            let field_path = pod.map(|pod| target::field_path(pod, &place.container)).unwrap_or_default();
            let (uid, event_type, reason) = (uid.clone(), EventType::Warning, reason.to_owned());
            told.push(FromProber::Event(PodEvent { uid, field_path, event_type, reason, message, at: now.wall }));
        }
        told.extend(verdict.map(|success| {
            let (uid, container) = (uid.clone(), job.container.clone());
            FromProber::Verdict(ProbeVerdict { uid, container, probe: kind, success })
        }));
        told
    }
}

fn call(view: &PodView, place: &Place) -> Result<ProbeCall, String> {
    let container = view.pod.as_deref().and_then(|pod| target::container_of(pod, &place.container));
    let probe = container.and_then(|container| Some((container, target::probe_of(container, place.kind)?)));
    let (container, probe) = probe.ok_or_else(gone)?;
    target::call(probe, container, &view.status)
}

fn gone() -> String {
    "the pod has no such probe any more".to_owned()
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TOLD)]
}

/// Reason and message of the event about an outcome, as clusters know them.
fn words(kind: ProbeKind, outcome: &ProbeOutcome) -> Option<(&'static str, String)> {
    let kind = kind.as_str();
    match outcome {
        ProbeOutcome::Success | ProbeOutcome::Gone => None,
        ProbeOutcome::Warning(text) => Some(("ProbeWarning", format!("{kind} probe warning: {}", cut(text)))),
        ProbeOutcome::Failure(text) => Some(("Unhealthy", format!("{kind} probe failed: {}", cut(text)))),
        ProbeOutcome::Errored { state, why } => {
            let (state, why) = (ErroredState::as_str(*state), cut(why));
            Some(("Unhealthy", format!("{kind} probe errored and resulted in {state} state: {why}")))
        }
    }
}

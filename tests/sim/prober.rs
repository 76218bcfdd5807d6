//! The prober of the simulated world: the real book of probes, with attempts that end when the dice say and as they say.
//!
//! Everything that it tells goes through a queue, as in the real house, and is lost with the agent's life.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ferrolet::api::moment::Now;
use ferrolet::api::pod::find_container;
use ferrolet::api::probe::{ErroredState, ProbeOutcome};
use ferrolet::api::{ContainerId, PodUid};
use ferrolet::core::node::{Input, Probes};
use ferrolet::core::plan;
use ferrolet::core::probe::{Book, Job};
use ferrolet::msg::{FromProber, ProbeKind};

use super::world::World;

/// The book with what is under way, and what the node was told.
pub(super) struct Prober {
    book: Book,
    under_way: Vec<Job>,
    /// What the sync loop has not heard yet.
    pub(super) told: VecDeque<FromProber>,
    /// The newest verdict of a readiness probe that the node heard, by instance.
    believed: BTreeMap<ContainerId, bool>,
    /// Pods of which the disk may not know all verdicts.
    unsure: BTreeSet<PodUid>,
}

impl Prober {
    pub(super) fn new(now: Now) -> Self {
        Self {
            book: Book::new(now),
            under_way: Vec::new(),
            told: VecDeque::new(),
            believed: BTreeMap::new(),
            unsure: BTreeSet::new(),
        }
    }

    /// Another life of the agent. The disk has lost the newest word about these pods.
    pub(super) fn begin_again(&mut self, now: Now, lost: impl IntoIterator<Item = PodUid>) {
        let (believed, mut unsure) = (std::mem::take(&mut self.believed), std::mem::take(&mut self.unsure));
        unsure.extend(lost);
        *self = Self { believed, unsure, ..Self::new(now) };
    }
}

impl World {
    /// Takes a look, begins what is due and ends an attempt. Whether anything came of it.
    pub(super) fn probe(&mut self) -> bool {
        if self.probes == Probes::NotRun {
            return false;
        }
        let now = self.clock();
        let view = self.node.view(now);
        let rng = &mut self.rng;
        self.prober.book.see(&view, now, &mut || rng.below(1000) as f64 / 1000.0);
        while let Some(job) = self.prober.book.take_due(now.mono) {
            self.prober.under_way.push(job);
        }
        let mut ended = Vec::new();
        if self.calm {
            ended = std::mem::take(&mut self.prober.under_way)
                .into_iter()
                .map(|job| (job, ProbeOutcome::Success))
                .collect();
        } else if !self.prober.under_way.is_empty() {
            let at = self.rng.below(self.prober.under_way.len() as u64) as usize;
            let outcome = match self.rng.below(100) {
                0..70 => ProbeOutcome::Success,
                70..75 => ProbeOutcome::Warning("odd".to_owned()),
                75..95 => ProbeOutcome::Failure("bad".to_owned()),
                _ => ProbeOutcome::Errored { state: ErroredState::Unknown, why: "away".to_owned() },
            };
            ended.push((self.prober.under_way.swap_remove(at), outcome));
        }
        let before = self.prober.told.len();
        let happened = !ended.is_empty() && !self.calm;
        for (job, outcome) in ended {
            let told = self.prober.book.finish(&job, &outcome, now);
            self.prober.told.extend(told);
        }
        happened || self.prober.told.len() > before
    }

    /// The node hears what the prober told.
    pub(super) fn deliver_from_prober(&mut self) -> bool {
        let Some(message) = self.prober.told.pop_front() else { return self.probe() };
        match message {
            FromProber::Verdict(verdict) => {
                self.say(|| format!("verdict {verdict:?}"));
                let now = self.clock();
                let seen = self.node.pod_view(now, &verdict.uid).and_then(|view| view.runtime.clone());
                let of = seen.as_ref().and_then(|pod| pod.containers.iter().find(|c| c.id == verdict.container));
                let newest = of.and_then(|of| plan::newest(&seen.as_ref()?.containers, &of.name));
                if verdict.probe == ProbeKind::Readiness && newest.is_some_and(|c| c.id == verdict.container) {
                    self.prober.believed.insert(verdict.container.clone(), verdict.success);
                }
                self.tell(Input::Verdict(verdict));
            }
            FromProber::Event(event) => self.tell(Input::Event(event)),
        }
        true
    }

    /// What runs is ready exactly if its probe said so last, whatever happened to the agent since.
    pub(super) fn check_readiness(&mut self) {
        if self.probes == Probes::NotRun {
            return;
        }
        let now = self.clock();
        let view = self.node.view(now);
        let mut broken = Vec::new();
        self.prober.unsure.retain(|uid| view.pods.contains_key(uid));
        for (uid, pod) in &view.pods {
            // While something is done to it, instances come and go.
            if pod.stage != "Active" || !pod.plan.is_empty() || self.prober.unsure.contains(uid) {
                continue;
            }
            let lists = [&pod.status.container_statuses, &pod.status.init_container_statuses];
            for told in lists.into_iter().flatten().flatten() {
                let spec = pod.pod.as_ref().and_then(|spec| find_container(spec, &told.name));
                let is_probed = spec.is_some_and(|(_, container)| container.readiness_probe.is_some());
                let id = told.container_id.as_deref().and_then(|id| id.split_once("://")).map(|(_, id)| id);
                let runs = told.state.as_ref().is_some_and(|state| state.running.is_some());
                let Some(id) = id.filter(|_| is_probed && runs) else { continue };
                let expected = self.prober.believed.get(id) == Some(&true) && told.started == Some(true);
                if told.ready != expected {
                    broken.push(format!(
                        "{uid}: {} ({id}) is ready: {}, its probe says {expected}",
                        told.name, told.ready
                    ));
                }
            }
        }
        self.runtime.broken.extend(broken);
    }
}

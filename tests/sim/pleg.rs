//! A model of PLEG: relists tell which pods are gone or have to be looked at, looks tell what changed.
//!
//! It sends what the real one sends, in one order, and is as slow, and as wrong about nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrolet::api::moment::Moment;
use ferrolet::api::runtime::RuntimePod;
use ferrolet::api::{PodName, PodUid};
use ferrolet::msg::{Observation, Scope, UnknownPod};

use super::rng::Rng;
use super::runtime::Runtime;

/// Looks that run side by side.
const LOOKS_AT_ONCE: usize = 3;

struct Look {
    started_at: Moment,
    /// What was there when it began; a look may show this or anything later.
    then: Option<RuntimePod>,
    again: bool,
}

/// What PLEG knows.
#[derive(Default)]
pub(super) struct Pleg {
    /// The last view, and whether it has to be looked at again.
    views: BTreeMap<PodUid, (Arc<RuntimePod>, bool)>,
    looks: BTreeMap<PodUid, Look>,
    queue: Vec<PodUid>,
    /// Relists since the loop last heard of one, if that one had nothing new.
    quiet: Option<u32>,
}

impl Pleg {
    /// What a relist tells; of those that find nothing new only the first and then every tenth does.
    pub(super) fn relist(&mut self, runtime: &Runtime, now: Moment) -> Option<Observation> {
        let gone: Vec<PodUid> = self
            .views
            .keys()
            .filter(|uid| !runtime.pods.contains_key(*uid) && !self.looks.contains_key(*uid))
            .cloned()
            .collect();
        for uid in &gone {
            self.views.remove(uid);
        }
        let changed = runtime.pods.iter().filter(|(uid, pod)| match self.views.get(*uid) {
            Some((view, again)) => *again || **view != **pod,
            None => true,
        });
        let changed: Vec<PodUid> = changed.map(|(uid, _)| uid.clone()).collect();
        for uid in changed {
            self.look(runtime, uid, now);
        }
        let looked_at = self.looks.keys().chain(&self.queue);
        let unknown: Vec<_> = looked_at.map(|uid| self.unknown(runtime, uid)).collect();
        let has_news = !gone.is_empty() || !unknown.is_empty();
        let relists = self.quiet.map_or(0, |relists| (relists + 1) % 10);
        let tell = has_news || relists == 0;
        self.quiet = (!has_news).then_some(relists);
        tell.then_some(Observation { started_at: now, scope: Scope::All, changed: Vec::new(), gone, unknown })
    }

    /// What the list tells of a pod whose look is under way or failed.
    fn unknown(&self, runtime: &Runtime, uid: &PodUid) -> UnknownPod {
        let listed = runtime.pods.get(uid).filter(|_| !self.views.contains_key(uid));
        let name = listed.map(|pod| PodName { namespace: pod.namespace.clone(), name: pod.name.clone() });
        UnknownPod { uid: uid.clone(), name, why: String::new() }
    }

    pub(super) fn look(&mut self, runtime: &Runtime, uid: PodUid, now: Moment) {
        if let Some(look) = self.looks.get_mut(&uid) {
            look.again = true;
        } else if !self.queue.contains(&uid) {
            self.queue.push(uid);
        }
        self.start_looks(runtime, now);
    }

    fn start_looks(&mut self, runtime: &Runtime, now: Moment) {
        while self.looks.len() < LOOKS_AT_ONCE && !self.queue.is_empty() {
            let uid = self.queue.remove(0);
            let then = runtime.pods.get(&uid).cloned();
            self.looks.insert(uid, Look { started_at: now, then, again: false });
        }
    }

    pub(super) fn is_looking(&self) -> bool {
        !self.looks.is_empty()
    }

    /// Ends a look, with what was there when it began, what is there now, or a failure.
    pub(super) fn finish(&mut self, runtime: &Runtime, rng: &mut Rng, fails: bool, now: Moment) -> Option<Observation> {
        let uid = rng.pick(self.looks.keys().cloned())?;
        let Look { started_at, then, again } = self.looks.remove(&uid)?;
        let found = if rng.chance(300) { then } else { runtime.pods.get(&uid).cloned() };
        let scope = Scope::Pod(uid.clone());
        let mut seen = Observation { started_at, scope, changed: Vec::new(), gone: Vec::new(), unknown: Vec::new() };
        match found {
            _ if fails => {
                if let Some((_, again)) = self.views.get_mut(&uid) {
                    *again = true;
                }
                let pod = self.unknown(runtime, &uid);
                seen.unknown.push(UnknownPod { why: "the look took too long".to_owned(), ..pod });
            }
            Some(pod) => {
                if self.views.get(&uid).is_none_or(|(view, _)| **view != pod) {
                    let pod = Arc::new(pod);
                    seen.changed.push(Arc::clone(&pod));
                    self.views.insert(uid.clone(), (pod, false));
                }
            }
            None => {
                if self.views.remove(&uid).is_some() {
                    seen.gone.push(uid.clone());
                }
            }
        }
        if again {
            self.look(runtime, uid, now);
        }
        self.start_looks(runtime, now);
        Some(seen)
    }
}

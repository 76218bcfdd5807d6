//! What is known of each object, who needs it, and whether that is still good. Pure: time comes in. The thread `objects`
//! and pod workers share it behind the lock of its parent, and hold that for no request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::Strategy;
use crate::api::PodUid;
use crate::api::moment::Moment;
use crate::volumes::objects::{ObjectData, ObjectKey, Purpose};

/// How long something counts under the strategy Cache, and how often it is asked for where no watch tells.
pub(super) const TTL: Duration = Duration::from_secs(60);
/// How long something counts for the containers of one pod that start one after another.
const SAME_MOMENT: Duration = Duration::from_secs(1);

/// An object, or that there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Found(Arc<ObjectData>),
    Missing,
}

/// What to do for somebody who asks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Say {
    /// It is this.
    Known(Known),
    /// Ask the server, and tell with [`Cache::fetched`] or [`Cache::failed`].
    Fetch,
    /// Somebody else is asking: wait.
    Wait,
}

/// Whether changes are told without asking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Watch {
    #[default]
    Off,
    /// What is known is as new as it gets.
    Live,
}

#[derive(Debug, Default)]
struct Item {
    known: Option<Known>,
    /// When `known` was true for certain.
    at: Moment,
    is_fetched: bool,
    watch: Watch,
    /// Pods that mount it, and pods that only read it.
    mounted: BTreeSet<PodUid>,
    read: BTreeSet<PodUid>,
    /// When the server is asked again where no watch tells.
    look_at: Option<Moment>,
}

impl Item {
    fn is_immutable(&self) -> bool {
        matches!(&self.known, Some(Known::Found(data)) if data.immutable)
    }
}

/// All objects.
#[derive(Debug)]
pub(super) struct Cache {
    strategy: Strategy,
    items: BTreeMap<ObjectKey, Item>,
    /// What workers found to be something else than before, and the other pods were not told of yet.
    untold: BTreeSet<ObjectKey>,
}

impl Cache {
    pub(super) fn new(strategy: Strategy) -> Self {
        Self { strategy, items: BTreeMap::new(), untold: BTreeSet::new() }
    }

    /// Notes that a pod needs an object. Whether the thread has something new to keep up with.
    pub(super) fn register(&mut self, pod: &PodUid, key: &ObjectKey, purpose: Purpose) -> bool {
        if !self.items.contains_key(key) {
            self.items.insert(key.clone(), Item::default());
        }
        let Some(item) = self.items.get_mut(key) else { return false };
        let first = item.mounted.is_empty();
        let is_new = match purpose {
            Purpose::Mount => item.mounted.insert(pod.clone()),
            Purpose::Read => item.read.insert(pod.clone()),
        };
        if is_new && item.watch == Watch::Off {
            // A new pod does not start with what was good for an older one.
            item.at = Moment::default();
        }
        purpose == Purpose::Mount && first
    }

    /// A pod needs nothing any more. Whether the thread has less to keep up with.
    pub(super) fn forget(&mut self, pod: &PodUid) -> bool {
        let mut less = false;
        self.items.retain(|_, item| {
            less |= item.mounted.remove(pod) && item.mounted.is_empty();
            item.read.remove(pod);
            item.is_fetched || !item.mounted.is_empty() || !item.read.is_empty()
        });
        less
    }

    pub(super) fn ask(&mut self, key: &ObjectKey, now: Moment) -> Say {
        let strategy = self.strategy;
        let item = self.items.entry(key.clone()).or_default();
        let age = now.since(item.at);
        let is_good = match (&item.known, strategy) {
            (None, _) => false,
            (Some(_), _) if item.watch == Watch::Live => true,
            // What is missing is asked for each time: somebody waits for it.
            (Some(Known::Missing), _) => false,
            (Some(Known::Found(data)), Strategy::Watch) => data.immutable || age < SAME_MOMENT,
            (Some(Known::Found(data)), Strategy::Cache) => data.immutable || age < TTL,
            (Some(Known::Found(_)), Strategy::Get) => age < SAME_MOMENT,
        };
        match &item.known {
            Some(known) if is_good => Say::Known(known.clone()),
            _ if item.is_fetched => Say::Wait,
            _ => {
                item.is_fetched = true;
                Say::Fetch
            }
        }
    }

    /// The server's answer to a worker.
    pub(super) fn fetched(&mut self, key: &ObjectKey, known: Known, now: Moment) {
        let Some(item) = self.items.get_mut(key) else { return };
        item.is_fetched = false;
        // A watch may have told of something newer meanwhile.
        if item.watch == Watch::Off || item.known.is_none() {
            if item.known.as_ref().is_some_and(|old| !is_same(old, &known)) {
                self.untold.insert(key.clone());
            }
            (item.known, item.at, item.look_at) = (Some(known), now, Some(now + TTL));
        }
    }

    /// Objects that workers found to have changed, with the pods that mount them.
    pub(super) fn take_untold(&mut self) -> Vec<(ObjectKey, Vec<PodUid>)> {
        let untold = std::mem::take(&mut self.untold).into_iter();
        let with_pods = untold.filter_map(|key| {
            let pods = self.items.get(&key)?.mounted.iter().cloned().collect();
            Some((key, pods))
        });
        with_pods.collect()
    }

    /// The server did not answer a worker; what was known before.
    pub(super) fn failed(&mut self, key: &ObjectKey) -> Option<Arc<ObjectData>> {
        let item = self.items.get_mut(key)?;
        item.is_fetched = false;
        match &item.known {
            Some(Known::Found(data)) => Some(Arc::clone(data)),
            Some(Known::Missing) | None => {
                // The thread asks for the pods that wait for it.
                item.look_at.get_or_insert_default();
                None
            }
        }
    }

    /// What the thread was told. The pods whose volumes show something else now.
    pub(super) fn told(&mut self, key: &ObjectKey, known: Known, now: Moment) -> Vec<PodUid> {
        let Some(item) = self.items.get_mut(key) else { return Vec::new() };
        (item.at, item.look_at) = (now, Some(now + TTL));
        if item.known.as_ref().is_some_and(|old| is_same(old, &known)) {
            return Vec::new();
        }
        item.known = Some(known);
        item.mounted.iter().cloned().collect()
    }

    /// A watch tells of an object from now on.
    pub(super) fn live(&mut self, key: &ObjectKey) {
        if let Some(item) = self.items.get_mut(key) {
            item.watch = Watch::Live;
        }
    }

    /// The watch of an object ended.
    pub(super) fn blind(&mut self, key: &ObjectKey) {
        if let Some(item) = self.items.get_mut(key) {
            item.watch = Watch::Off;
        }
    }

    /// No watch tells of anything any more.
    pub(super) fn all_blind(&mut self) {
        for item in self.items.values_mut() {
            item.watch = Watch::Off;
        }
    }

    /// A live watch did not tell of an object that was known: it may be gone. The pods that mount it.
    pub(super) fn doubt(&mut self, key: &ObjectKey) -> Vec<PodUid> {
        let Some(item) = self.items.get_mut(key) else { return Vec::new() };
        item.known = None;
        item.mounted.iter().cloned().collect()
    }

    /// Whether an object is known to be there.
    pub(super) fn is_found(&self, key: &ObjectKey) -> bool {
        matches!(self.items.get(key).and_then(|item| item.known.as_ref()), Some(Known::Found(_)))
    }

    /// Objects that are mounted and may change.
    pub(super) fn to_watch(&self) -> impl Iterator<Item = &ObjectKey> {
        self.items.iter().filter(|(_, item)| !item.mounted.is_empty() && !item.is_immutable()).map(|(key, _)| key)
    }

    /// Where no watch tells: the object whose turn it is next, and when.
    pub(super) fn next_look(&self) -> Option<(Moment, &ObjectKey)> {
        let mut due = self.items.iter().filter_map(|(key, item)| {
            let is_silent = item.watch == Watch::Off && !item.mounted.is_empty() && !item.is_immutable();
            item.look_at.filter(|_| is_silent && !item.is_fetched).map(|at| (at, key))
        });
        let first = due.next()?;
        Some(due.fold(first, |a, b| if b.0 < a.0 { b } else { a }))
    }

    /// The thread could not ask: not again before `at`.
    pub(super) fn put_off(&mut self, at: Moment) {
        for item in self.items.values_mut() {
            item.look_at = item.look_at.map(|old| old.max(at));
        }
    }
}

/// Whether what is known now is what was known before.
fn is_same(old: &Known, new: &Known) -> bool {
    match (old, new) {
        (Known::Found(old), Known::Found(new)) => old.version == new.version && !new.version.is_empty(),
        (old, new) => old == new,
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;

//! The mux: merges the full sets of all sources into one set of wanted pods.
//!
//! Layer L1, pure; owned by the sync loop. A source that has not spoken yet is silent, not empty: while
//! any configured source is silent nothing unknown may be deleted ([`Mux::all_ready`]). Mirror pods, the
//! API server's pictures of static pods, are kept apart: they are nothing to run.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::pod::{is_mirror, pod_name, pod_uid};
use crate::api::v1::Pod;
use crate::api::{PodName, PodUid};
use crate::msg::{SourceKind, SourceProblem, SourceUpdate};
use crate::util::order::Gather;

/// What a source update changed in the merged set.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A pod is wanted that was not.
    Added(PodUid, Arc<Pod>),
    /// A wanted pod has a new spec or new metadata.
    Updated(PodUid, Arc<Pod>),
    /// A pod is no longer wanted.
    Removed(PodUid),
}

/// The newest set of every source and the merged one.
#[derive(Debug, Default)]
pub struct Mux {
    sets: BTreeMap<SourceKind, Option<SourceUpdate>>,
    merged: BTreeMap<PodUid, Arc<Pod>>,
    mirrors: Arc<BTreeMap<PodName, Arc<Pod>>>,
    conflicts: Vec<SourceProblem>,
}

impl Mux {
    /// A mux that waits for these sources.
    pub fn new(sources: &[SourceKind]) -> Self {
        Self { sets: sources.iter().map(|kind| (*kind, None)).gather(), ..Self::default() }
    }

    /// Whether every configured source has spoken. Without any source nobody ever says what is wanted,
    /// which is silence too: an agent that was started without its configuration ends no pod.
    pub fn all_ready(&self) -> bool {
        !self.sets.is_empty() && self.sets.values().all(Option::is_some)
    }

    /// Whether every configured source of static pods has spoken, and there is one.
    pub fn knows_static(&self) -> bool {
        let mut of_node = self.sets.iter().filter(|(kind, _)| **kind != SourceKind::Api).peekable();
        of_node.peek().is_some() && of_node.all(|(_, set)| set.is_some())
    }

    /// The sources that have not spoken yet.
    pub fn silent(&self) -> Vec<&'static str> {
        self.sets.iter().filter(|(_, set)| set.is_none()).map(|(kind, _)| kind.as_str()).collect()
    }

    /// Everything the sources could not use, conflicts between them included.
    pub fn problems(&self) -> Vec<SourceProblem> {
        let told = self.sets.values().flatten().flat_map(|set| set.problems.iter());
        told.chain(&self.conflicts).cloned().collect()
    }

    /// The mirror pods of the API source, by name.
    pub fn mirrors(&self) -> &Arc<BTreeMap<PodName, Arc<Pod>>> {
        &self.mirrors
    }

    /// Whether no source that is silent still could bring a pod that takes this wanted one's name: then
    /// no other pod of that name is wanted, whatever that source will say.
    pub fn keeps_its_name(&self, uid: &PodUid) -> bool {
        let has = |set: &SourceUpdate| set.pods.iter().any(|pod| pod_uid(pod) == *uid);
        let owner = self.sets.iter().find(|(_, set)| set.as_ref().is_some_and(has)).map(|(kind, _)| *kind);
        let mut silent = self.sets.iter().filter(|(_, set)| set.is_none()).map(|(kind, _)| *kind);
        // The order of kinds is that in which they win.
        owner.is_some_and(|owner| silent.all(|kind| kind > owner))
    }

    /// The wanted pod of that uid.
    pub fn get(&self, uid: &PodUid) -> Option<&Arc<Pod>> {
        self.merged.get(uid)
    }

    /// Takes a source's new full set and tells what changed in the merged one, removals first.
    ///
    /// Two sources with the same uid, or with the same namespace and name: the file source wins over
    /// the URL, the URL over the API, and the loser is told as a problem.
    pub fn update(&mut self, mut update: SourceUpdate) -> Vec<Change> {
        if update.source == SourceKind::Api {
            let (mirrors, pods) = update.pods.into_iter().partition(|pod| is_mirror(pod));
            update.pods = pods;
            let mirrors: Vec<Arc<Pod>> = mirrors;
            self.mirrors = Arc::new(mirrors.into_iter().map(|pod| (pod_name(&pod), pod)).gather());
        }
        self.sets.insert(update.source, Some(update));
        let mut merged: BTreeMap<PodUid, Arc<Pod>> = BTreeMap::new();
        let mut owners: BTreeMap<PodName, SourceKind> = BTreeMap::new();
        self.conflicts.clear();
        for (kind, set) in &self.sets {
            for pod in set.iter().flat_map(|set| &set.pods) {
                let (uid, name) = (pod_uid(pod), pod_name(pod));
                let taken = owners.get(&name).copied().filter(|owner| owner != kind);
                if merged.contains_key(&uid) || taken.is_some() {
                    let owner = taken.unwrap_or(*kind).as_str();
                    self.conflicts.push(SourceProblem {
                        origin: kind.as_str().to_owned(),
                        message: format!("pod {name} (uid {uid}) is already there from the {owner} source; give it another name and uid"),
                    });
                    continue;
                }
                owners.insert(name, *kind);
                merged.insert(uid, Arc::clone(pod));
            }
        }
        let mut changes: Vec<Change> = self
            .merged
            .keys()
            .filter(|uid| !merged.contains_key(*uid))
            .map(|uid| Change::Removed(uid.clone()))
            .collect();
        for (uid, pod) in &merged {
            match self.merged.get(uid) {
                None => changes.push(Change::Added(uid.clone(), Arc::clone(pod))),
                Some(old) if Arc::ptr_eq(old, pod) || old == pod => {}
                Some(_) => changes.push(Change::Updated(uid.clone(), Arc::clone(pod))),
            }
        }
        self.merged = merged;
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str, name: &str, label: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(uid.to_owned());
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.labels = Some(BTreeMap::from([("v".to_owned(), label.to_owned())]));
        Arc::new(pod)
    }

    /// Feeds "source: uid/name/label …" and prints the changes.
    fn feed(mux: &mut Mux, line: &str) -> String {
        let (source, pods) = line.split_once(':').expect("source");
        let source = match source {
            "file" => SourceKind::File,
            "http" => SourceKind::Http,
            _ => SourceKind::Api,
        };
        let pods = pods
            .split_whitespace()
            .map(|text| {
                let parts: Vec<&str> = text.split('/').collect();
                pod(parts[0], parts[1], parts[2])
            })
            .collect();
        let changes = mux.update(SourceUpdate { source, pods, problems: Vec::new() });
        let words = changes.iter().map(|change| match change {
            Change::Added(uid, _) => format!("+{uid}"),
            Change::Updated(uid, _) => format!("~{uid}"),
            Change::Removed(uid) => format!("-{uid}"),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn full_sets_become_changes() {
        let mut mux = Mux::new(&[SourceKind::File, SourceKind::Http]);
        assert_eq!(mux.silent(), ["file", "http"]);
        for (line, expect) in [
            ("file: 1/a/x 2/b/x", "+1 +2"),
            ("file: 1/a/x 2/b/x", ""),
            ("file: 2/b/y 3/c/x", "-1 ~2 +3"),
            ("http: 9/z/x", "+9"),
            ("file:", "-2 -3"),
        ] {
            assert_eq!(feed(&mut mux, line), expect, "{line}");
        }
        assert!(mux.all_ready());
    }

    #[test]
    fn mirror_pods_are_kept_apart_and_never_meet_the_pod_that_they_mirror() {
        let mut mux = Mux::new(&[SourceKind::File, SourceKind::Api]);
        feed(&mut mux, "file: 1/a/x");
        let mut mirror = pod("9", "a", "x").as_ref().clone();
        mirror.metadata.annotations =
            Some(BTreeMap::from([(crate::api::labels::CONFIG_MIRROR.to_owned(), "1".to_owned())]));
        let pods = vec![Arc::new(mirror), pod("2", "b", "x")];
        let changes = mux.update(SourceUpdate { source: SourceKind::Api, pods, problems: Vec::new() });
        assert!(matches!(&changes[..], [Change::Added(uid, _)] if uid.as_str() == "2"), "{changes:?}");
        assert_eq!(mux.problems(), []);
        let mirrors: Vec<String> = mux.mirrors().keys().map(ToString::to_string).collect();
        assert_eq!(mirrors, ["default/a"]);
        assert_eq!(feed(&mut mux, "api:"), "-2");
        assert!(mux.mirrors().is_empty());
    }

    #[test]
    fn silence_deletes_nothing_and_is_not_ready() {
        let mut mux = Mux::new(&[SourceKind::File, SourceKind::Http]);
        feed(&mut mux, "file: 1/a/x");
        assert!(!mux.all_ready());
        assert_eq!(mux.silent(), ["http"]);
        assert!(mux.get(&PodUid::from("1")).is_some());
    }

    #[test]
    fn a_node_without_sources_is_never_ready() {
        assert!(!Mux::new(&[]).all_ready());
    }

    #[test]
    fn the_same_pod_from_two_sources_comes_from_the_first_and_is_told() {
        let mut mux = Mux::new(&[SourceKind::File, SourceKind::Http]);
        feed(&mut mux, "http: 1/a/http 2/b/http");
        assert_eq!(feed(&mut mux, "file: 1/a/file 7/b/file"), "-2 ~1 +7");
        assert_eq!(mux.problems().len(), 2);
        assert_eq!(feed(&mut mux, "file:"), "-7 ~1 +2");
    }

    proptest::proptest! {
        #[test]
        fn any_order_of_updates_ends_in_the_same_set(order in proptest::collection::vec(0usize..4, 1..20)) {
            let lines = ["file: 1/a/x", "file: 1/a/y 2/b/x", "http: 3/c/x 4/d/x", "http:"];
            let mut mux = Mux::new(&[SourceKind::File, SourceKind::Http]);
            for i in &order {
                feed(&mut mux, lines[*i]);
            }
            let mut fresh = Mux::new(&[SourceKind::File, SourceKind::Http]);
            for source in ["file", "http"] {
                if let Some(i) = order.iter().rev().find(|i| lines[**i].starts_with(source)) {
                    feed(&mut fresh, lines[*i]);
                }
            }
            proptest::prop_assert_eq!(&mux.merged, &fresh.merged);
        }
    }
}

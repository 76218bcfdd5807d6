//! Static pods that the node has from before this agent began, under the uid that whoever began them gave them.
//!
//! Owned by the thread `src-file`; pure. A manifest names no uid, and every agent has a way of its own to make one: the upstream
//! kubelet hashes the pod as its version of Go prints it. An agent that takes a node over goes on with the uid that it finds, or every
//! static pod would end and begin anew. It does so only for a manifest that nobody has touched since that pod was first seen.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::identity;
use crate::api::runtime::FilePod;

/// A uid to go on with, and the time of first sight that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The uid under which the pod runs.
    pub uid: String,
    /// When it was first seen, RFC 3339 text.
    pub seen: String,
}

/// The pods that were found at the start, and those that a manifest was found for.
#[derive(Debug, Default)]
pub struct Elders {
    /// By namespace and name.
    found: BTreeMap<(String, String), (Timestamp, Known)>,
    /// By the uid that this agent would have given.
    taken: BTreeMap<String, Known>,
}

impl Elders {
    /// Of several pods of one name the one that was seen last counts.
    pub fn new(pods: impl IntoIterator<Item = FilePod>) -> Self {
        let mut found: BTreeMap<(String, String), (Timestamp, Known)> = BTreeMap::new();
        for FilePod { namespace, name, uid, seen } in pods {
            let Ok(at) = seen.parse::<Timestamp>() else { continue };
            // Folders and cgroups are named after it.
            if !identity::is_safe(&uid) {
                continue;
            }
            let known = (at, Known { uid, seen });
            let elder = found.entry((namespace, name)).or_insert_with(|| known.clone());
            if known.0 > elder.0 {
                *elder = known;
            }
        }
        Self { found, taken: BTreeMap::new() }
    }

    /// The uid that a pod has already, where it is another than `own`, which this agent would give it. `changed` is when its
    /// manifest was last written, renamed or otherwise touched.
    pub fn known(&mut self, namespace: &str, name: &str, own: &str, changed: Option<Timestamp>) -> Option<Known> {
        if let Some(known) = self.taken.get(own) {
            return Some(known.clone());
        }
        let key = (namespace.to_owned(), name.to_owned());
        let (seen, known) = self.found.remove(&key)?;
        if known.uid == own {
            return None;
        }
        if changed.is_none_or(|changed| changed > seen) {
            log::info!(
                "static pod {namespace}/{name}: its manifest was written after the pod that runs (uid {}) was seen: it begins anew",
                known.uid
            );
            return None;
        }
        log::info!("static pod {namespace}/{name} goes on as it was found, under uid {}", known.uid);
        self.taken.insert(own.to_owned(), known.clone());
        Some(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, uid: &str, seen: &str) -> FilePod {
        FilePod { namespace: "n".to_owned(), name: name.to_owned(), uid: uid.to_owned(), seen: seen.to_owned() }
    }

    fn at(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    #[test]
    fn a_pod_keeps_its_uid_unless_its_manifest_was_touched() {
        let found = || {
            [
                pod("web", "old", "1970-01-01T00:01:00Z"),
                pod("web", "new", "1970-01-01T01:02:00+01:00"),
                pod("web", "older", "1970-01-01T00:00:30Z"),
                pod("own", "mine", "1970-01-01T00:02:00Z"),
                pod("path", "../../etc", "1970-01-01T00:02:00Z"),
                pod("when", "u", "yesterday"),
            ]
        };
        for (name, own, changed, expect) in [
            ("web", "mine", at(119), Some("new")),
            ("web", "mine", at(120), Some("new")),
            ("web", "mine", at(121), None),
            ("web", "mine", None, None),
            ("other", "mine", at(1), None),
            ("own", "mine", at(1), None),
            ("path", "mine", at(1), None),
            ("when", "mine", at(1), None),
        ] {
            let known = Elders::new(found()).known("n", name, own, changed);
            assert_eq!(known.map(|known| known.uid).as_deref(), expect, "{name} at {changed:?}");
        }
        assert_eq!(Elders::new(found()).known("other", "web", "mine", at(1)), None);
    }

    #[test]
    fn what_was_taken_once_stays() {
        let mut elders = Elders::new([pod("web", "new", "1970-01-01T00:02:00Z")]);
        let known = Known { uid: "new".to_owned(), seen: "1970-01-01T00:02:00Z".to_owned() };
        assert_eq!(elders.known("n", "web", "mine", at(1)), Some(known.clone()));
        assert_eq!(elders.known("n", "web", "edited", at(200)), None, "an edit is another pod");
        assert_eq!(elders.known("n", "web", "mine", at(300)), Some(known), "and taking it back is not");
    }
}

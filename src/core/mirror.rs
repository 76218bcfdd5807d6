//! Mirror pods: what has to be done at the API server so that it shows each static pod of this node.
//!
//! Layer L1, pure; called by the thread `status`. A mirror is known by the hash of its static pod, and is
//! replaced when that differs. It outlives its static pod until nothing of that runs any more, and a
//! pod that takes the place of an elder gets its mirror when the elder is gone. Without a Node object
//! none is made: the API server takes a mirror only from its owner.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::api::labels::{CONFIG_HASH, CONFIG_MIRROR};
use crate::api::meta::OwnerReference;
use crate::api::pod::{annotation, is_static};
use crate::api::v1::Pod;
use crate::api::{PodName, PodUid};
use crate::msg::{Life, PodView};

/// The Node object that owns the mirrors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// One thing to do at the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum MirrorStep {
    /// Create this pod.
    Create(Box<Pod>),
    /// Delete the mirror of this uid at once, then create the next one, if there is one.
    Delete {
        /// Which.
        name: PodName,
        /// The only one that is meant.
        uid: String,
        /// What takes its place.
        then: Option<Box<Pod>>,
    },
}

/// What to do, given the pods of the node and the mirrors that the API has.
pub fn plan(
    pods: &BTreeMap<PodUid, Arc<PodView>>,
    mirrors: &BTreeMap<PodName, Arc<Pod>>,
    owner: Option<&Owner>,
) -> Vec<MirrorStep> {
    let mut steps = Vec::new();
    let mut wanted: BTreeSet<&PodName> = BTreeSet::new();
    // A name is taken while anything that ran under it may still run, wanted or not.
    let is_taken = |name: &PodName| {
        let static_ones = pods.values().filter(|view| view.name == *name && view.pod.as_deref().is_some_and(is_static));
        static_ones.into_iter().any(|view| matches!(view.life, Life::Active | Life::Ending))
    };
    for view in pods.values() {
        let Some(pod) = view.wanted.as_ref().filter(|pod| is_static(pod)) else { continue };
        wanted.insert(&view.name);
        let waits = view.life == Life::Waiting && is_taken(&view.name);
        match (mirrors.get(&view.name), owner) {
            _ if waits => {}
            (None, Some(owner)) => steps.push(MirrorStep::Create(Box::new(mirror_of(pod, owner)))),
            (None, None) => {}
            (Some(mirror), owner) => {
                if mirror.metadata.deletion_timestamp.is_some() || !mirrors_it(mirror, pod) {
                    let then = owner.map(|owner| Box::new(mirror_of(pod, owner)));
                    steps.extend(delete(mirror, &view.name, then));
                }
            }
        }
    }
    for (name, mirror) in mirrors {
        if !wanted.contains(name) && !is_taken(name) {
            steps.extend(delete(mirror, name, None));
        }
    }
    steps
}

fn delete(mirror: &Pod, name: &PodName, then: Option<Box<Pod>>) -> Option<MirrorStep> {
    let uid = mirror.metadata.uid.clone().filter(|uid| !uid.is_empty())?;
    Some(MirrorStep::Delete { name: name.clone(), uid, then })
}

/// Whether a mirror shows this very static pod.
pub fn mirrors_it(mirror: &Pod, pod: &Pod) -> bool {
    let hash = annotation(pod, CONFIG_HASH);
    hash.is_some() && annotation(mirror, CONFIG_MIRROR) == hash
}

/// The mirror as it is sent to the API server.
fn mirror_of(pod: &Pod, owner: &Owner) -> Pod {
    let mut mirror = pod.clone();
    let hash = annotation(pod, CONFIG_HASH).unwrap_or_default().to_owned();
    mirror.metadata.annotations.get_or_insert_default().insert(CONFIG_MIRROR.to_owned(), hash);
    mirror.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    mirror
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn static_pod(name: &str, hash: &str) -> Arc<Pod> {
        let pod = json!({
            "metadata": {
                "name": name, "namespace": "ns", "uid": hash,
                "annotations": {"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": hash},
            },
            "spec": {"containers": [], "nodeName": "n"},
            "status": {"phase": "Pending"},
        });
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    /// Pods as "name/hash/life", with a `-` behind the hash when no source has them any more; mirrors as
    /// "name/hash", with a `!` behind for one that is being deleted.
    fn check(pods: &str, mirrors: &str, has_node: bool, expect: &str) {
        let pods = pods.split_whitespace().map(|text| {
            let parts: Vec<&str> = text.split('/').collect();
            let hash = parts[1].trim_end_matches('-');
            let pod = static_pod(parts[0], hash);
            let life = match parts[2] {
                "waiting" => Life::Waiting,
                "active" => Life::Active,
                "ending" => Life::Ending,
                "over" => Life::Over,
                other => panic!("{other}"),
            };
            let name = PodName { namespace: "ns".to_owned(), name: parts[0].to_owned() };
            let wanted = (!parts[1].ends_with('-')).then(|| Arc::clone(&pod));
            let view = PodView { pod: Some(pod), wanted, life, ..PodView::named(hash.into(), name) };
            (view.uid.clone(), Arc::new(view))
        });
        let mirrors = mirrors.split_whitespace().map(|text| {
            let (name, hash) = text.trim_end_matches('!').split_once('/').expect("name/hash");
            let mut mirror = static_pod(name, hash).as_ref().clone();
            mirror.metadata.uid = Some(format!("uid-{hash}"));
            let annotations = mirror.metadata.annotations.get_or_insert_default();
            annotations.insert(CONFIG_MIRROR.to_owned(), hash.to_owned());
            if text.ends_with('!') {
                let at = serde_json::from_value(json!("2026-11-30T00:00:00Z")).expect("a time");
                mirror.metadata.deletion_timestamp = Some(at);
            }
            (PodName { namespace: "ns".to_owned(), name: name.to_owned() }, Arc::new(mirror))
        });
        let owner = Owner { name: "n".to_owned(), uid: "node-uid".to_owned() };
        let steps = plan(&pods.collect(), &mirrors.collect(), has_node.then_some(&owner));
        let hash = |pod: &Pod| annotation(pod, CONFIG_MIRROR).unwrap_or_default().to_owned();
        let words: Vec<String> = steps
            .iter()
            .map(|step| match step {
                MirrorStep::Create(pod) => format!("+{}", hash(pod)),
                MirrorStep::Delete { uid, then, .. } => {
                    format!("-{uid}{}", then.as_ref().map_or(String::new(), |pod| format!("+{}", hash(pod))))
                }
            })
            .collect();
        assert_eq!(words.join(" "), expect);
    }

    #[test]
    fn each_static_pod_has_one_mirror_of_its_own_hash() {
        check("a/1/active", "", true, "+1");
        check("a/1/active", "a/1", true, "");
        check("a/1/waiting", "", true, "+1");
        check("a/1/active", "", false, "");
        check("a/1/active b/2/active", "b/2", true, "+1");
        check("a/1/over", "", true, "+1");
    }

    #[test]
    fn a_mirror_that_was_deleted_or_is_outdated_is_replaced() {
        check("a/1/active", "a/1!", true, "-uid-1+1");
        check("a/2/active", "a/1", true, "-uid-1+2");
        check("a/2/active", "a/1", false, "-uid-1");
    }

    #[test]
    fn a_mirror_outlives_its_pod_until_nothing_of_that_runs() {
        check("a/1-/ending", "a/1", true, "");
        check("a/1-/over", "a/1", true, "-uid-1");
        check("", "a/1", true, "-uid-1");
        check("", "a/1", false, "-uid-1");
    }

    #[test]
    fn the_successor_gets_its_mirror_when_the_elder_is_gone() {
        check("a/1-/ending a/2/waiting", "a/1", true, "");
        check("a/1-/over a/2/waiting", "a/1", true, "-uid-1+2");
        check("a/2/active", "a/1", true, "-uid-1+2");
    }

    #[test]
    fn a_mirror_is_sent_as_the_reference_run_recorded_it() {
        let pod = static_pod("still-labnode", "af7c");
        let owner = Owner { name: "labnode".to_owned(), uid: "8b3c".to_owned() };
        let sent = serde_json::to_value(mirror_of(&pod, &owner)).expect("json");
        let references: Value =
            json!([{"apiVersion": "v1", "kind": "Node", "name": "labnode", "uid": "8b3c", "controller": true}]);
        assert_eq!(sent["metadata"]["ownerReferences"], references);
        assert_eq!(sent["metadata"]["annotations"]["kubernetes.io/config.mirror"], "af7c");
        assert_eq!(sent["metadata"]["annotations"]["kubernetes.io/config.hash"], "af7c");
        assert_eq!(sent["status"], json!({"phase": "Pending"}));
    }
}

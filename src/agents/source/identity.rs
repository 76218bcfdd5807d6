//! What a static pod gets besides its manifest: uid, name on this node, marks of its source.
//!
//! Called by the threads `src-file` and `src-http`; pure: the time is an argument. The uid of a pod
//! follows from where it stands and what it says, so that a restarted agent finds its containers
//! again; never from the time, the order of keys or a comment.

use sha2::{Digest, Sha256};

use crate::api::labels;
use crate::api::v1::{Pod, PodStatus, Toleration};
use crate::msg::SourceKind;

/// Longest uid that a manifest may give itself.
const MAX_UID: usize = 128;

/// Where a static pod comes from.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// File or URL.
    pub kind: SourceKind,
    /// The file's path or the URL.
    pub place: &'a str,
    /// Name of this node.
    pub node_name: &'a str,
}

/// The uid of a pod as its author wrote it, before defaults: its own if it has one, else 32 lower-case
/// hex digits over source, node and content. (A pod that the node has already may keep the uid it was given: see `elders`.)
///
/// # Errors
/// The manifest names a uid that cannot be part of a path.
pub fn uid(pod: &Pod, origin: &Origin<'_>) -> Result<String, String> {
    match pod.metadata.uid.as_deref() {
        None | Some("") => {}
        // Folders and cgroups are named after it.
        Some(uid) if is_safe(uid) => return Ok(uid.to_owned()),
        Some(_) => {
            return Err(format!(
                "metadata.uid: use up to {MAX_UID} letters, digits, '-', '_' and '.', starting with a letter or digit, or leave it out"
            ));
        }
    }
    let mut hash = Sha256::new();
    // Each part ends with a byte that none of them contains.
    for part in [origin.kind.as_str(), origin.node_name, origin.place] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    // The types write their fields in a fixed order and their maps sorted. A pod that came out of JSON goes into it.
    hash.update(serde_json::to_vec(pod).unwrap_or_default());
    Ok(hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whether a uid can be part of a path.
pub(super) fn is_safe(uid: &str) -> bool {
    uid.len() <= MAX_UID
        && uid.starts_with(|c: char| c.is_ascii_alphanumeric())
        && uid.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// The name of a static pod on this node.
pub fn full_name(name: &str, node_name: &str) -> String {
    format!("{name}-{}", node_name.to_lowercase())
}

/// Makes the pod one of this node: name suffix, namespace, node, uid, annotations, toleration of
/// `NoExecute` taints (files only: the pods of a URL are not this node's alone), phase Pending.
/// `seen` is the time of first sight as RFC 3339 text.
pub fn apply(pod: &mut Pod, origin: &Origin<'_>, uid: &str, seen: &str) {
    let metadata = &mut pod.metadata;
    metadata.name = Some(full_name(metadata.name.as_deref().unwrap_or_default(), origin.node_name));
    if metadata.namespace.as_deref().unwrap_or_default().is_empty() {
        metadata.namespace = Some("default".to_owned());
    }
    metadata.uid = Some(uid.to_owned());
    // What only an API server writes: with a time of deletion the pod would end before it began.
    metadata.deletion_timestamp = None;
    metadata.deletion_grace_period_seconds = None;
    metadata.managed_fields = None;
    metadata.resource_version = None;
    let annotations = metadata.annotations.get_or_insert_default();
    for (key, value) in
        [(labels::CONFIG_HASH, uid), (labels::CONFIG_SOURCE, origin.kind.as_str()), (labels::CONFIG_SEEN, seen)]
    {
        annotations.insert(key.to_owned(), value.to_owned());
    }
    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(origin.node_name.to_owned());
    if origin.kind == SourceKind::File {
        let everything = Toleration {
            operator: Some("Exists".to_owned()),
            effect: Some("NoExecute".to_owned()),
            ..Toleration::default()
        };
        let tolerations = spec.tolerations.get_or_insert_default();
        if !tolerations.contains(&everything) {
            tolerations.push(everything);
        }
    }
    pod.status = Some(PodStatus { phase: Some("Pending".to_owned()), ..PodStatus::default() });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const ORIGIN: Origin<'static> = Origin { kind: SourceKind::File, place: "/m/a.yaml", node_name: "Node1" };

    fn pod(value: Value) -> Pod {
        serde_json::from_value(value).expect("a pod")
    }

    #[test]
    fn a_static_pod_looks_as_the_reference_run_recorded_it() {
        let mut pod =
            pod(json!({"metadata": {"name": "still", "labels": {"kind": "static"}}, "spec": {"containers": []}}));
        apply(&mut pod, &ORIGIN, "af7c728bd5eed6ca39938892e24d65a5", "2026-11-30T06:44:21.243314021Z");
        let expect = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "still-node1", "namespace": "default", "uid": "af7c728bd5eed6ca39938892e24d65a5",
                "labels": {"kind": "static"},
                "annotations": {
                    "kubernetes.io/config.hash": "af7c728bd5eed6ca39938892e24d65a5",
                    "kubernetes.io/config.seen": "2026-11-30T06:44:21.243314021Z",
                    "kubernetes.io/config.source": "file",
                },
            },
            "spec": {"containers": [], "nodeName": "Node1", "tolerations": [{"operator": "Exists", "effect": "NoExecute"}]},
            "status": {"phase": "Pending"},
        });
        assert_eq!(serde_json::to_value(&pod).expect("json"), expect);
    }

    #[test]
    fn a_manifest_cannot_delete_its_pod() {
        let metadata =
            json!({"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
        let mut pod = pod(json!({"metadata": metadata, "spec": {"containers": []}}));
        apply(&mut pod, &ORIGIN, "u", "t");
        assert_eq!((pod.metadata.deletion_timestamp, pod.metadata.deletion_grace_period_seconds), (None, None));
    }

    #[test]
    fn pods_of_a_url_tolerate_nothing_by_themselves() {
        let mut pod = pod(json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": []}}));
        apply(&mut pod, &Origin { kind: SourceKind::Http, place: "http://x", node_name: "n" }, "u", "t");
        assert_eq!(pod.spec.expect("spec").tolerations, None);
        assert_eq!(pod.metadata.annotations.expect("annotations")[labels::CONFIG_SOURCE], "http");
    }

    #[test]
    fn the_uid_follows_from_place_node_and_content_only() {
        let base = json!({"metadata": {"name": "p", "labels": {"a": "1", "b": "2"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let uid_of = |value: &Value, origin: &Origin<'_>| uid(&pod(value.clone()), origin).expect("a uid");
        let first = uid_of(&base, &ORIGIN);
        assert_eq!(
            first, "20fe9a15e794f8898fb15fdb7d5fcfbd",
            "the same for ever: a change restarts every static pod on every node"
        );
        assert!(first.len() == 32 && first.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)));
        let reordered: Value = serde_json::from_str(
            r#"{"spec": {"containers": [{"image": "i", "name": "c"}]}, "metadata": {"labels": {"b": "2", "a": "1"}, "name": "p"}}"#,
        )
        .expect("json");
        assert_eq!(uid_of(&reordered, &ORIGIN), first);
        let mut edited = base.clone();
        edited["spec"]["containers"][0]["image"] = json!("j");
        assert_ne!(uid_of(&edited, &ORIGIN), first);
        for origin in [
            Origin { place: "/m/b.yaml", ..ORIGIN },
            Origin { node_name: "other", ..ORIGIN },
            Origin { kind: SourceKind::Http, ..ORIGIN },
        ] {
            assert_ne!(uid_of(&base, &origin), first, "{origin:?}");
        }
    }

    #[test]
    fn a_uid_of_ones_own_must_be_fit_for_a_path() {
        for (own, fits) in [
            ("3b5e0f0e-6f4e-4a56-9d8e-0d4f2a1b7c11", true),
            ("my_pod.1", true),
            ("../../etc", false),
            (".", false),
            ("a/b", false),
            ("a b", false),
            ("\u{e4}", false),
            (&"x".repeat(129), false),
        ] {
            let result = uid(&pod(json!({"metadata": {"name": "p", "uid": own}})), &ORIGIN);
            assert_eq!(result.as_deref().ok(), fits.then_some(own), "{own}: {result:?}");
        }
        assert_eq!(uid(&pod(json!({"metadata": {"uid": ""}})), &ORIGIN).expect("a uid").len(), 32);
    }
}

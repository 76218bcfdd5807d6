//! Labels and annotations by which a node agent recognises what it made, and the container hash.
//!
//! Layer L0. The names and the hash are those of the upstream kubelet 1.36, so that `crictl`, log
//! shippers and CSI drivers work unchanged and either agent can take over the other's containers.

use std::collections::BTreeMap;

/// Label: pod name.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// Label: pod namespace.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// Label: pod uid.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// Label: container name.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// Annotation: [`container_hash`] of the container's spec.
pub const HASH: &str = "io.kubernetes.container.hash";
/// Annotation: restart count.
pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// Annotation: path of the termination message file in the container.
pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// Annotation: `File` or `FallbackToLogsOnError`.
pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
/// Annotation: JSON of the preStop handler.
pub const PRE_STOP: &str = "io.kubernetes.container.preStopHandler";
/// Annotation: JSON of the container's ports.
pub const PORTS: &str = "io.kubernetes.container.ports";
/// Annotation: `terminationGracePeriodSeconds` of the pod.
pub const GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
/// Annotation: `deletionGracePeriodSeconds` of the pod.
pub const DELETION_GRACE: &str = "io.kubernetes.pod.deletionGracePeriod";

/// Pod annotation: which source brought it (`file`, `http` or `api`).
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// Pod annotation: hash of a static pod.
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// Pod annotation: when the source first saw it (RFC 3339).
pub const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
/// Pod annotation of a mirror pod: hash of the static pod it mirrors.
pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";

/// The value of [`HASH`]: 32-bit FNV-1a over a text that renders the bytes of the JSON object of
/// image and name, as lower-case hex without padding (shared by all kubelets since 1.28).
pub fn container_hash(name: &str, image: &str) -> String {
    let json = go_json(&serde_json::json!({ "image": image, "name": name }));
    let mut text = String::with_capacity(json.len() * 4 + 16);
    text.push_str("([]uint8)[");
    for (i, byte) in json.bytes().enumerate() {
        if i > 0 {
            text.push(' ');
        }
        text.push_str(&byte.to_string());
    }
    text.push(']');
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:x}")
}

/// JSON as Go's encoder writes it: compact, keys sorted, with `&`, `<`, `>` and the two Unicode line
/// separators escaped.
pub fn go_json(value: &serde_json::Value) -> String {
    let plain = value.to_string();
    let mut out = String::with_capacity(plain.len());
    for c in plain.chars() {
        match c {
            '&' | '<' | '>' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// What the annotations of a container tell a restarted agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// [`container_hash`] it was made with; empty if the mark is missing.
    pub hash: String,
    /// Restart count; `None` if the mark is missing or unreadable.
    pub restart_count: Option<u32>,
    /// Path of the termination message file in the container; empty if none.
    pub termination_message_path: String,
    /// Whether the end of the log stands in for a missing message after an error.
    pub fallback_to_logs: bool,
    /// Grace period of the pod in seconds.
    pub grace_seconds: Option<i64>,
    /// Grace period of its deletion in seconds.
    pub deletion_grace_seconds: Option<i64>,
    /// JSON of the preStop handler; empty if none.
    pub pre_stop: String,
    /// JSON of the ports; empty if none.
    pub ports: String,
}

impl Marks {
    /// Reads the marks; a missing or unreadable one takes its default, so that a container made by
    /// another tool is still a container.
    pub fn read(annotations: &BTreeMap<String, String>) -> Self {
        let text = |key: &str| annotations.get(key).cloned().unwrap_or_default();
        let number = |key: &str| annotations.get(key).and_then(|v| v.parse().ok());
        Self {
            hash: text(HASH),
            restart_count: number(RESTART_COUNT).and_then(|n: i64| u32::try_from(n).ok()),
            termination_message_path: text(TERMINATION_MESSAGE_PATH),
            fallback_to_logs: text(TERMINATION_MESSAGE_POLICY) == "FallbackToLogsOnError",
            grace_seconds: number(GRACE),
            deletion_grace_seconds: number(DELETION_GRACE),
            pre_stop: text(PRE_STOP),
            ports: text(PORTS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_hash_matches_the_recorded_vectors() {
        let digest = "ghcr.io/org/app@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        for (name, image, expect) in [
            ("app", "busybox", "3ada567e"),
            ("app", "busybox:1.36", "395745"),
            ("web", "nginx:1.27-alpine", "f52a3b96"),
            ("pause", "registry.k8s.io/pause:3.10", "28ed4cd7"),
            ("a", "b", "646fef1b"),
            ("etcd", "registry.k8s.io/etcd:3.5.16-0", "e68be80f"),
            ("kube-apiserver", "registry.k8s.io/kube-apiserver:v1.36.2", "fcc274bb"),
            ("sidecar", digest, "3e7b07a4"),
            ("x", "quay.io/a/b:v1&v<2>", "b1b635a0"),
            (
                "long-container-name-with-many-characters-0123456789",
                "example.com:5000/team/very/deep/path/image:2026.11.30",
                "d59bec1f",
            ),
        ] {
            assert_eq!(container_hash(name, image), expect, "{name} {image}");
        }
    }

    #[test]
    fn marks_survive_garbage() {
        let marks = Marks::read(&BTreeMap::from([
            (RESTART_COUNT.to_owned(), "-3".to_owned()),
            (GRACE.to_owned(), "soon".to_owned()),
        ]));
        assert_eq!(marks, Marks::default());
    }
}

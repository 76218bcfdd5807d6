//! Labels and annotations that mark a sandbox or container as ours (see [`crate::api::labels`]).
//!
//! Layer L1, pure. Either agent must find the other's containers by them, so the JSON in them is
//! written byte for byte as upstream writes it: fields in its order, empty ones left out.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::api::labels::{self, go_json};
use crate::api::pod;
use crate::api::v1::{Container, ContainerPort, HTTPGetAction, LifecycleHandler, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Labels of the sandbox: the pod's own and its identity.
pub(super) fn sandbox_labels(pod: &Pod) -> BTreeMap<String, String> {
    let mut all = pod.metadata.labels.clone().unwrap_or_default();
    all.extend(identity(pod));
    all
}

fn identity(pod: &Pod) -> [(String, String); 3] {
    [
        (labels::POD_NAME.to_owned(), pod::name(pod).to_owned()),
        (labels::POD_NAMESPACE.to_owned(), pod::namespace(pod).to_owned()),
        (labels::POD_UID.to_owned(), pod.metadata.uid.clone().unwrap_or_default()),
    ]
}

/// Labels of a container.
pub(super) fn container_labels(pod: &Pod, container: &Container) -> BTreeMap<String, String> {
    let mut all = BTreeMap::from(identity(pod));
    all.insert(labels::CONTAINER_NAME.to_owned(), container.name.clone());
    all
}

/// Annotations of a container.
pub(super) fn container_annotations(pod: &Pod, container: &Container, attempt: u32) -> BTreeMap<String, String> {
    let image = container.image.as_deref().unwrap_or_default();
    let mut marks = BTreeMap::new();
    let mut mark = |key: &str, value: String| marks.insert(key.to_owned(), value);
    mark(labels::HASH, labels::container_hash(&container.name, image));
    mark(labels::RESTART_COUNT, attempt.to_string());
    mark(labels::TERMINATION_MESSAGE_PATH, container.termination_message_path.clone().unwrap_or_default());
    mark(labels::TERMINATION_MESSAGE_POLICY, container.termination_message_policy.clone().unwrap_or_default());
    if let Some(seconds) = pod.metadata.deletion_grace_period_seconds {
        mark(labels::DELETION_GRACE, seconds.to_string());
    }
    if let Some(seconds) = pod::spec(pod).and_then(|s| s.termination_grace_period_seconds) {
        mark(labels::GRACE, seconds.to_string());
    }
    if let Some(handler) = container.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref()) {
        mark(labels::PRE_STOP, handler_json(handler));
    }
    if let Some(ports) = container.ports.as_deref().filter(|p| !p.is_empty()) {
        mark(labels::PORTS, list(ports.iter().map(port_json)));
    }
    marks
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

/// A JSON object with its fields in the given order; `None` leaves a field out.
fn object<const N: usize>(fields: [(&str, Option<String>); N]) -> String {
    let fields = fields.into_iter().filter_map(|(name, value)| Some(format!("\"{name}\":{}", value?)));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

fn text(value: &str) -> String {
    go_json(&Value::from(value))
}

fn non_empty(value: Option<&String>) -> Option<String> {
    value.filter(|v| !v.is_empty()).map(|v| text(v))
}

fn port_json(port: &ContainerPort) -> String {
    object([
        ("name", non_empty(port.name.as_ref())),
        ("hostPort", port.host_port.filter(|p| *p != 0).map(|p| p.to_string())),
        ("containerPort", Some(port.container_port.to_string())),
        ("protocol", non_empty(port.protocol.as_ref())),
        ("hostIP", non_empty(port.host_ip.as_ref())),
    ])
}

fn handler_json(handler: &LifecycleHandler) -> String {
    let exec = handler.exec.as_ref().map(|exec| {
        let command = exec.command.as_deref().filter(|c| !c.is_empty());
        object([("command", command.map(|c| list(c.iter().map(|word| text(word)))))])
    });
    let tcp = handler
        .tcp_socket
        .as_ref()
        .map(|tcp| object([("port", Some(port_number(&tcp.port))), ("host", non_empty(tcp.host.as_ref()))]));
    let sleep = handler.sleep.as_ref().map(|sleep| object([("seconds", Some(sleep.seconds.to_string()))]));
    object([
        ("exec", exec),
        ("httpGet", handler.http_get.as_ref().map(http_json)),
        ("tcpSocket", tcp),
        ("sleep", sleep),
    ])
}

fn http_json(http: &HTTPGetAction) -> String {
    let headers = http.http_headers.as_deref().filter(|h| !h.is_empty()).map(|headers| {
        list(headers.iter().map(|h| object([("name", Some(text(&h.name))), ("value", Some(text(&h.value)))])))
    });
    object([
        ("path", non_empty(http.path.as_ref())),
        ("port", Some(port_number(&http.port))),
        ("host", non_empty(http.host.as_ref())),
        ("scheme", non_empty(http.scheme.as_ref())),
        ("httpHeaders", headers),
    ])
}

fn port_number(port: &IntOrString) -> String {
    match port {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(name) => text(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hooks_and_ports_are_written_in_upstreams_order() {
        for (handler, expect) in [
            (json!({"sleep": {"seconds": 1}}), r#"{"sleep":{"seconds":1}}"#),
            (
                json!({"exec": {"command": ["sh", "-c", "echo \"a\" <&1"]}}),
                r#"{"exec":{"command":["sh","-c","echo \"a\" \u003c\u00261"]}}"#,
            ),
            (
                json!({"httpGet": {"scheme": "HTTP", "port": 80, "path": "/x", "httpHeaders": [{"name": "A", "value": ""}]}}),
                r#"{"httpGet":{"path":"/x","port":80,"scheme":"HTTP","httpHeaders":[{"name":"A","value":""}]}}"#,
            ),
            (json!({"tcpSocket": {"host": "h", "port": "web"}}), r#"{"tcpSocket":{"port":"web","host":"h"}}"#),
            (json!({"exec": {}}), r#"{"exec":{}}"#),
        ] {
            let handler: LifecycleHandler = serde_json::from_value(handler).expect("a handler");
            assert_eq!(handler_json(&handler), expect);
        }
        let port = json!({"containerPort": 53, "hostIP": "::1", "hostPort": 53, "name": "dns", "protocol": "UDP"});
        let port: ContainerPort = serde_json::from_value(port).expect("a port");
        assert_eq!(
            port_json(&port),
            r#"{"name":"dns","hostPort":53,"containerPort":53,"protocol":"UDP","hostIP":"::1"}"#
        );
    }

    #[test]
    fn a_pod_cannot_forge_its_identity() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {
            "name": "p", "namespace": "n", "uid": "u", "labels": {"app": "x", labels::POD_UID: "other"},
            "deletionGracePeriodSeconds": 3,
        }}))
        .expect("a pod");
        let marks = sandbox_labels(&pod);
        assert_eq!((marks[labels::POD_UID].as_str(), marks["app"].as_str(), marks.len()), ("u", "x", 4));
        let annotations = container_annotations(&pod, &Container::default(), 7);
        assert_eq!(annotations[labels::DELETION_GRACE], "3");
        assert_eq!(annotations[labels::RESTART_COUNT], "7");
        assert_eq!(annotations.get(labels::GRACE), None);
    }
}

//! What rows are made of: pods, containers, probes, and the steps that most of them take. Pure; owns nothing.

use serde_json::{Value, json};

use super::scene::{Look, Row, Step};

pub(super) const BUSYBOX: &str = "docker.io/library/busybox:latest";
pub(super) const AGNHOST: &str = "registry.k8s.io/e2e-test-images/agnhost:2.56";

/// Runs until SIGTERM.
pub(super) const RUNS: &str = "trap 'exit 0' TERM; while :; do sleep 0.5 & wait $!; done";

/// Lays the fields of one object over those of another.
pub(super) fn with(mut under: Value, over: Value) -> Value {
    if let (Value::Object(under), Value::Object(over)) = (&mut under, over) {
        under.extend(over);
    }
    under
}

/// A container that does what a script says.
pub(super) fn shell(name: &str, script: &str) -> Value {
    json!({ "name": name, "image": BUSYBOX, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script] })
}

/// A container of the image that Kubernetes' own tests use.
pub(super) fn agnhost(name: &str, arguments: &[&str]) -> Value {
    json!({ "name": name, "image": AGNHOST, "imagePullPolicy": "IfNotPresent", "args": arguments })
}

/// A pod on the scene's node with more in its spec.
pub(super) fn pod(name: &str, containers: &[Value], more: Value) -> Value {
    let spec = json!({
        "nodeName": "${node}",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "dnsPolicy": "Default",
        "terminationGracePeriodSeconds": 2,
        "containers": containers,
    });
    let metadata = json!({ "name": name, "labels": { "name": name } });
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": with(spec, more) })
}

/// A pod that is not restarted.
pub(super) fn once(name: &str, container: Value) -> Value {
    pod(name, &[container], json!({ "restartPolicy": "Never" }))
}

/// An object with data.
pub(super) fn data(kind: &str, name: &str, data: Value) -> Value {
    let key = if kind == "Secret" { "stringData" } else { "data" };
    json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name }, key: data })
}

pub(super) fn row(name: &str, steps: Vec<Step>) -> Row {
    Row { name: name.to_owned(), steps }
}

pub(super) fn until(pod: &str, looks: Vec<Look>) -> Step {
    Step::Until(pod.to_owned(), looks)
}

pub(super) fn kubectl(arguments: &[&str]) -> Step {
    Step::Kubectl(arguments.iter().map(|argument| (*argument).to_owned()).collect())
}

/// Deletes a pod without waiting for its end.
pub(super) fn delete(pod: &str) -> Step {
    kubectl(&["delete", "pod", pod, "--wait=false"])
}

/// A pod that succeeds and prints all of these.
pub(super) fn prints(name: &str, pod: &str, object: Value, container: &'static str, lines: &[&str]) -> Row {
    let mut looks = vec![Look::Phase("Succeeded")];
    looks.extend(lines.iter().map(|line| Look::Says(container, (*line).to_owned())));
    row(name, vec![Step::Make(object), until(pod, looks)])
}

/// A handler of probes and hooks.
pub(super) fn exec(command: &[&str]) -> Value {
    json!({ "exec": { "command": command } })
}

pub(super) fn get(port: u16, path: &str) -> Value {
    json!({ "httpGet": { "port": port, "path": path } })
}

/// A probe each second, with a timeout that a busy machine keeps.
pub(super) fn probe(handler: Value, more: Value) -> Value {
    with(with(json!({ "periodSeconds": 1, "timeoutSeconds": 20 }), handler), more)
}

/// Seconds of a time of the API.
pub(super) fn seconds(time: &Value) -> Option<i64> {
    time.as_str()?.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}

//! Lifecycle hooks of app containers and of sidecars, and the `sleep` hook.

use std::ops::Range;

use serde_json::{Value, json};

use super::make::{RUNS, agnhost, delete, exec, kubectl, pod, row, seconds, shell, until, with};
use super::scene::{Look, Row, Step, status};

/// The pod that hooks speak to; it prints what it is asked for.
pub(super) fn listener() -> Value {
    let tls = [
        "netexec",
        "--http-port=8443",
        "--udp-port=-1",
        "--tls-cert-file=/localhost.crt",
        "--tls-private-key-file=/localhost.key",
    ];
    let plain = agnhost("plain", &["netexec", "--http-port=8080", "--udp-port=-1"]);
    let ready = |port: u16| json!({ "readinessProbe": { "tcpSocket": { "port": port }, "periodSeconds": 1, "timeoutSeconds": 20 } });
    pod("listener", &[with(plain, ready(8080)), with(agnhost("tls", &tls), ready(8443))], json!({}))
}

/// What a hook does: a request with the command wget, or by itself.
fn handler(kind: &str, word: &str) -> Value {
    let path = format!("/echo?msg={word}");
    let get = |port: u16, scheme: &str| json!({ "httpGet": { "host": "${listener/status/podIP}", "port": port, "path": path, "scheme": scheme } });
    match kind {
        "exec" => exec(&["wget", "-q", "-O", "/tmp/said", &format!("http://${{listener/status/podIP}}:8080{path}")]),
        "http" => get(8080, "HTTP"),
        _ => get(8443, "HTTPS"),
    }
}

fn hooked(sidecar: bool, hook: &str, kind: &str) -> Row {
    let (subject, place) = if sidecar { ("Restartable Init Container", "side") } else { ("Container", "app") };
    let key = if hook == "poststart" { "postStart" } else { "preStop" };
    let name = format!("{place}-{hook}-{kind}");
    let lifecycle = json!({ "lifecycle": { key: handler(kind, &name) } });
    let container = with(shell("hooked", RUNS), lifecycle);
    let grace = json!({ "terminationGracePeriodSeconds": 15 });
    let object = if sidecar {
        let side = with(container, json!({ "restartPolicy": "Always" }));
        pod(&name, &[shell("app", RUNS)], with(grace, json!({ "initContainers": [side] })))
    } else {
        pod(&name, &[container], grace)
    };
    let server = if kind == "https" { "tls" } else { "plain" };
    let heard = until("listener", vec![Look::Says(server, format!("/echo?msg={name}"))]);
    let mut steps =
        vec![until("listener", vec![Look::Ready(true)]), Step::Make(object), until(&name, vec![Look::Ready(true)])];
    if hook == "prestop" {
        // A name of its own: nobody else has said it before the end.
        steps.extend([until("listener", vec![Look::Silent(server, format!("/echo?msg={name}"))]), delete(&name)]);
    }
    steps.push(heard);
    row(
        &format!(
            "{subject} Lifecycle Hook when create a pod with lifecycle hook should execute {hook} {kind} hook properly"
        ),
        steps,
    )
}

const FINALIZER: &str = "example.com/look";

/// A pod with a preStop `sleep`, whose object stays after its end.
fn sleeper(name: &str, sleep: u64, grace: u64, script: &str, more: Value) -> Value {
    let hook = json!({ "lifecycle": { "preStop": { "sleep": { "seconds": sleep } } } });
    let more = with(json!({ "terminationGracePeriodSeconds": grace }), more);
    let mut object = pod(name, &[with(shell("c", script), hook)], more);
    object["metadata"]["finalizers"] = json!([FINALIZER]);
    object
}

fn release(name: &str) -> Step {
    kubectl(&["patch", "pod", name, "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#])
}

fn sleeps(name: &str, pod: &str, object: Value, delete: &[&str], lasts: Look) -> Row {
    let ask = kubectl(&[&["delete", "pod", pod, "--wait=false"], delete].concat());
    let ended = Look::Holds("it ended", |pod| status(pod, "c")["state"]["terminated"].is_object());
    row(
        name,
        vec![
            Step::Make(object),
            until(pod, vec![Look::Ready(true)]),
            ask,
            until(pod, vec![ended]),
            Step::For(1, pod.to_owned(), vec![lasts]),
            release(pod),
            until(pod, vec![Look::Gone]),
        ],
    )
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for sidecar in [false, true] {
        for hook in ["poststart", "prestop"] {
            rows.extend(["exec", "http", "https"].map(|kind| hooked(sidecar, hook, kind)));
        }
    }
    let of =
        |what: &str| format!("Lifecycle Sleep Hook when create a pod with lifecycle hook using sleep action {what}");
    let sleeping = |name: &str, pod: &str, sleep: u64, grace: u64, how: &[&str], lasts: Range<i64>| {
        sleeps(name, pod, sleeper(pod, sleep, grace, RUNS, json!({})), how, Look::Lasted("c", lasts))
    };
    rows.push(sleeping(&of("valid prestop hook using sleep action"), "sleep-valid", 6, 120, &[], 5..60));
    rows.push(sleeping(
        &of("reduce GracePeriodSeconds during runtime"),
        "sleep-cut",
        90,
        120,
        &["--grace-period=5"],
        4..60,
    ));
    let zero = "Lifecycle sleep action zero value when create a pod with lifecycle hook using sleep action with a duration of \
        zero seconds prestop hook using sleep action with zero duration";
    rows.push(sleeping(zero, "sleep-zero", 0, 120, &[], 0..60));
    let gone = sleeper("sleep-gone", 100, 120, "sleep 2", json!({ "restartPolicy": "Never" }));
    rows.push(row(
        &of("ignore terminated container"),
        vec![
            Step::Make(gone),
            until(
                "sleep-gone",
                vec![
                    Look::Phase("Succeeded"),
                    Look::Holds("it ended by itself", |pod| {
                        let end = &status(pod, "c")["state"]["terminated"];
                        seconds(&end["finishedAt"])
                            .zip(seconds(&end["startedAt"]))
                            .is_some_and(|(end, start)| end - start < 20)
                    }),
                ],
            ),
            delete("sleep-gone"),
            release("sleep-gone"),
            until("sleep-gone", vec![Look::Gone]),
        ],
    ));
    rows
}

//! Probes of every kind on real containers: the behaviours that Kubernetes' own node tests list for them, all pods at once.
//!
//! A pod that shall not be restarted has the same handler as liveness and readiness probe, so that being ready shows that
//! it was probed. What is probed is agnhost, which serves Kubernetes' tests, or a shell.

use std::time::Duration;

use ferrolet::util::cancel::Cancel;
use serde_json::{Value, json};

use super::lab::{Lab, SOON, has_event, pod, restarts, shell, status};
use crate::harness::{Agent, Containerd, Node, wait};

/// A lab in which a restart costs a second, not ten.
fn quick_to_restart(config: &mut Value) {
    config["crashLoopBackOff"] = json!({ "maxContainerRestartPeriod": "1s" });
}

fn agnhost(arguments: &[&str], more: Value) -> Value {
    let mut container = json!({
        "name": "app",
        "image": "registry.k8s.io/e2e-test-images/agnhost:2.56",
        "imagePullPolicy": "IfNotPresent",
        "args": arguments,
    });
    lay(&mut container, more);
    container
}

fn lay(under: &mut Value, over: Value) {
    let over = over.as_object().expect("an object").clone();
    under.as_object_mut().expect("an object").extend(over);
}

/// A probe that asks each second, with a timeout that a busy machine keeps.
fn each_second(handler: Value, more: Value) -> Value {
    let mut probe = json!({ "periodSeconds": 1, "timeoutSeconds": 20 });
    lay(&mut probe, handler);
    lay(&mut probe, more);
    probe
}

fn exec(command: &[&str]) -> Value {
    json!({ "exec": { "command": command } })
}

fn cat_health() -> Value {
    exec(&["cat", "/tmp/health"])
}

fn get(port: Value, path: &str) -> Value {
    json!({ "httpGet": { "port": port, "path": path } })
}

/// Liveness and readiness by one handler: for what shall stay. A busy machine may take half a minute to start a server.
fn both(handler: &Value) -> Value {
    let live = each_second(handler.clone(), json!({ "initialDelaySeconds": 2, "failureThreshold": 60 }));
    json!({ "livenessProbe": live, "readinessProbe": each_second(handler.clone(), json!({})) })
}

fn live(handler: Value, more: Value) -> Value {
    let mut probe = each_second(handler, json!({ "failureThreshold": 1 }));
    lay(&mut probe, more);
    json!({ "livenessProbe": probe })
}

const IDLE: &str = "sleep 100000";
const HEALTHY: &str = "touch /tmp/health; sleep 100000";
const SICKENS: &str = "touch /tmp/health; sleep 3; rm /tmp/health; sleep 100000";
/// Seconds that no container here sleeps but in a probe that takes too long.
const TOO_LONG: &str = "sleep 6543";

/// A redirect of agnhost's `liveness`.
fn redirect(to: &str) -> String {
    format!("/redirect?loc={}", to.replace('/', "%2F").replace(':', "%3A"))
}

/// Pods whose container is restarted.
fn restarted() -> Vec<(&'static str, Value)> {
    let after = || json!({ "initialDelaySeconds": 2 });
    let alive = |path: &str| agnhost(&["liveness"], live(get(json!(8080), path), json!({ "failureThreshold": 2 })));
    let started = |startup: Value| {
        let mut probes = live(exec(&["false"]), json!({}));
        probes["startupProbe"] = each_second(startup, json!({ "failureThreshold": 1000 }));
        probes
    };
    vec![
        ("exec", shell("app", SICKENS, live(cat_health(), after()))),
        ("exec-slow", shell("app", IDLE, live(exec(&["sh", "-c", TOO_LONG]), json!({ "timeoutSeconds": 1 })))),
        ("exec-slow-fails", {
            // What it leaves behind holds its output open for longer than it may take.
            let handler = exec(&["sh", "-c", "sleep 3 & exit 1"]);
            shell("app", IDLE, live(handler, json!({ "timeoutSeconds": 1 })))
        }),
        ("http", alive("/healthz")),
        ("redirect", alive(&redirect("/healthz"))),
        ("grpc", {
            let serve = ["grpc-health-checking", "--delay-unhealthy-sec", "4"];
            agnhost(&serve, live(json!({ "grpc": { "port": 5000 } }), after()))
        }),
        ("grpc-elsewhere", {
            let handler = json!({ "grpc": { "port": 2333 } });
            agnhost(&["grpc-health-checking"], live(handler, json!({ "initialDelaySeconds": 4 })))
        }),
        ("startup-enables", shell("app", "sleep 2; touch /tmp/health; sleep 100000", started(cat_health()))),
    ]
}

/// Pods whose container stays and gets ready.
fn stays() -> Vec<(&'static str, Value)> {
    let named = json!([{ "name": "web", "containerPort": 8080 }]);
    let far = both(&get(json!(8080), &redirect("http://0.0.0.0/")));
    let mut secure = get(json!(8443), "/healthz");
    secure["httpGet"]["scheme"] = json!("HTTPS");
    let tls =
        ["netexec", "--http-port=8443", "--tls-cert-file=/localhost.crt", "--tls-private-key-file=/localhost.key"];
    let mut http = both(&get(json!("web"), "/"));
    http["ports"] = named.clone();
    let mut tcp = both(&json!({ "tcpSocket": { "port": "web" } }));
    tcp["ports"] = named;
    let grpc = json!({ "grpc": { "port": 5000, "service": "health" } });
    vec![
        ("exec-stays", shell("app", HEALTHY, both(&cat_health()))),
        ("http-stays", agnhost(&["test-webserver", "--port", "8080"], http)),
        ("https-stays", agnhost(&tls, both(&secure))),
        ("tcp-stays", agnhost(&["test-webserver", "--port", "8080"], tcp)),
        ("far-stays", agnhost(&["liveness"], far)),
        ("grpc-stays", agnhost(&["grpc-health-checking", "--service", "health"], both(&grpc))),
    ]
}

fn put(lab: &Lab<'_>, name: &str, container: Value, more: Value) {
    lab.put(&pod(name, &[container], more));
}

/// Those that are neither plainly restarted nor plainly there to stay.
fn put_others(lab: &Lab<'_>) {
    let mut delayed = live(exec(&["false"]), json!({}));
    delayed["startupProbe"] = each_second(exec(&["false"]), json!({ "failureThreshold": 100_000 }));
    put(lab, "startup-delays", shell("app", IDLE, delayed), json!({}));

    let startup = each_second(exec(&["false"]), json!({ "failureThreshold": 2, "terminationGracePeriodSeconds": 3 }));
    let deaf = "trap '' TERM; while true; do sleep 1; done";
    let long = json!({ "terminationGracePeriodSeconds": 500 });
    put(lab, "startup-fails", shell("app", deaf, json!({ "startupProbe": startup })), long.clone());
    let probes = live(exec(&["false"]), json!({ "initialDelaySeconds": 2, "terminationGracePeriodSeconds": 3 }));
    put(lab, "deaf", shell("app", deaf, probes), long);

    let late = json!({
        "startupProbe": each_second(cat_health(), json!({ "failureThreshold": 1000 })),
        "readinessProbe": { "exec": { "command": ["true"] }, "periodSeconds": 3600, "timeoutSeconds": 20 },
    });
    put(lab, "ready-at-once", shell("app", "sleep 2; touch /tmp/health; sleep 100000", late), json!({}));

    let delay = json!({ "readinessProbe": each_second(exec(&["true"]), json!({ "initialDelaySeconds": 5 })) });
    put(lab, "delayed", shell("app", IDLE, delay), json!({}));
    let never = json!({ "readinessProbe": each_second(exec(&["false"]), json!({})) });
    put(lab, "never", shell("app", IDLE, never), json!({}));
    let slow = each_second(exec(&["sh", "-c", TOO_LONG]), json!({ "timeoutSeconds": 1 }));
    put(lab, "never-in-time", shell("app", IDLE, json!({ "readinessProbe": slow })), json!({}));

    // It stays well until its startup probe has seen it, however long a busy machine takes for that.
    let sickens =
        "touch /tmp/health; until [ -e /tmp/seen ]; do sleep 0.2; done; sleep 3; rm /tmp/health; sleep 100000";
    let mut side = shell("side", sickens, live(cat_health(), json!({ "initialDelaySeconds": 2 })));
    side["restartPolicy"] = json!("Always");
    let seen = exec(&["sh", "-c", "cat /tmp/health && touch /tmp/seen"]);
    side["startupProbe"] = each_second(seen, json!({ "failureThreshold": 1000 }));
    put(lab, "sidecar", shell("app", IDLE, json!({})), json!({ "initContainers": [side] }));

    let script =
        "trap 'rm -f /tmp/health; sleep 6; exit 0' TERM; touch /tmp/health; while true; do sleep 1 & wait $!; done";
    put(lab, "ends", shell("app", script, both(&cat_health())), json!({ "terminationGracePeriodSeconds": 60 }));
}

fn condition<'pod>(pod: &'pod Value, kind: &str) -> &'pod Value {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready")["status"] == "True"
}

#[track_caller]
fn wait_ready(lab: &Lab<'_>, name: &str) -> Value {
    lab.wait_pod(name, "it is ready", |pod| is_ready(pod).then(|| pod.clone()))
}

/// How often an event with this message came.
fn count(pod: &Value, message: &str) -> u64 {
    let events = pod["events"].as_array().into_iter().flatten();
    let told = events.filter(|event| event["message"].as_str().is_some_and(|text| text.contains(message)));
    told.map(|event| event["count"].as_u64().unwrap_or(0)).sum()
}

/// Containers that a probe gives up on are restarted, within the probe's own grace period, and nobody else is.
fn check_restarts(lab: &Lab<'_>) {
    let killed = |words: &str| format!("Container {words} probe, will be restarted");
    let liveness = killed("app failed liveness");
    for (name, container, text) in restarted().iter().map(|(name, _)| (*name, "app", liveness.clone())).chain([
        ("startup-fails", "app", killed("app failed startup")),
        ("deaf", "app", liveness.clone()),
        // The kubelet has other words for a sidecar.
        ("sidecar", "side", "Init container side failed liveness probe".to_owned()),
    ]) {
        let pod = lab.wait_pod(name, "a restart", |pod| (restarts(pod, container) >= 1).then(|| pod.clone()));
        assert!(count(&pod, &text) >= 1, "{name}: {pod}");
        assert!(has_event(&pod, "Unhealthy"), "{name}: {pod}");
        if name == "sidecar" {
            assert_eq!(restarts(&pod, "app"), 0, "{pod}");
        }
    }
    // One that is restarted again and again counts on.
    lab.wait_pod("exec", "more restarts", |pod| (restarts(pod, "app") >= 3).then_some(()));
}

fn check_readiness(lab: &Lab<'_>) {
    for (name, _) in stays() {
        wait_ready(lab, name);
    }
    let far = lab.wait_pod("far-stays", "a warning", |pod| has_event(pod, "ProbeWarning").then(|| pod.clone()));
    assert!(count(&far, "Readiness probe warning: Probe terminated redirects, Response body: ") >= 1, "{far}");
    wait_ready(lab, "ready-at-once");
    let pod = wait_ready(lab, "delayed");
    let second = |text: &Value| -> i64 {
        let time: Result<jiff::Timestamp, _> = text.as_str().unwrap_or_default().parse();
        time.unwrap_or_else(|err| panic!("{text}: {err}")).as_second()
    };
    let started = second(&status(&pod, "app")["state"]["running"]["startedAt"]);
    let ready = second(&condition(&pod, "Ready")["lastTransitionTime"]);
    assert!(ready - started >= 5, "ready {} s after its start: {pod}", ready - started);
    lab.wait_pod("never", "some failures", |pod| (count(pod, "Readiness probe failed") >= 3).then_some(()));
    let late = lab.wait_pod("never-in-time", "some timeouts", |pod| {
        let told =
            count(pod, &format!("Readiness probe failed: command timed out: \"sh -c {TOO_LONG}\" timed out after 1s"));
        (told >= 3).then(|| pod.clone())
    });
    // Commands that took too long are gone, but for one that may just be under way.
    let id = status(&late, "app")["containerID"].as_str().and_then(|id| id.split_once("://")).expect("an id").1;
    let ps = ["ps", "-o", "args"].map(str::to_owned);
    let ran = lab.runtime.exec_sync(&id.into(), &ps, Duration::from_secs(30), &Cancel::never()).expect("ps runs");
    let listed = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(listed.lines().filter(|line| line.trim() == TOO_LONG).count() <= 1, "{listed}");
    assert!(listed.contains(IDLE), "{listed}");
}

/// Those that shall not be restarted were not, and those that shall not be ready are not.
fn check_untouched(lab: &Lab<'_>) {
    let quiet = ["startup-delays", "ready-at-once", "delayed", "never", "never-in-time", "ends"];
    for name in stays().iter().map(|(name, _)| *name).chain(quiet) {
        let pod = lab.pod(name).expect("the pod is known");
        assert_eq!(restarts(&pod, "app"), 0, "{name}: {pod}");
        assert_eq!(pod["status"]["phase"], "Running", "{name}");
        let unready = ["startup-delays", "never", "never-in-time"].contains(&name);
        assert_eq!(is_ready(&pod), !unready, "{name}: {pod}");
    }
    assert_eq!(status(&lab.pod("startup-delays").expect("known"), "app")["started"], false);
}

/// No socket of a probe waits for its minute on this side.
fn check_sockets(lab: &Lab<'_>) {
    for name in ["tcp-stays", "http-stays", "grpc-stays"] {
        let pod = lab.pod(name).expect("the pod is known");
        let ip: std::net::Ipv4Addr =
            pod["status"]["podIP"].as_str().and_then(|ip| ip.parse().ok()).expect("an address");
        let hex = format!("{:08X}:", u32::from_ne_bytes(ip.octets()));
        let sockets = std::fs::read_to_string("/proc/net/tcp").expect("procfs");
        let waits = sockets.lines().filter(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields.get(2).is_some_and(|peer| peer.starts_with(&hex)) && fields.get(3) == Some(&"06")
        });
        assert_eq!(waits.count(), 0, "{name}:\n{sockets}");
    }
}

/// A pod that ends gets unready, and its liveness probe is over.
fn check_ending(lab: &Lab<'_>) {
    lab.remove("ends");
    let pod = lab.wait_pod("ends", "it gets unready while it ends", |pod| {
        (pod["stage"] == "Terminating" && !is_ready(pod)).then(|| pod.clone())
    });
    assert_eq!(status(&pod, "app")["ready"], false);
    assert_eq!(count(&pod, "Liveness probe failed"), 0, "{pod}");
    lab.wait_gone("ends");
}

/// What is ready stays so, without a blink, while the agent is killed and started again.
fn check_agents_restart<'node>(lab: Lab<'node>, node: &'node Node) -> Lab<'node> {
    let names: Vec<&str> = stays().iter().map(|(name, _)| *name).chain(["ready-at-once", "delayed"]).collect();
    let look = |lab: &Lab<'_>| -> Result<Vec<(Value, Value)>, String> {
        let of = |name: &&str| lab.pod(name).map(|pod| (condition(&pod, "Ready").clone(), status(&pod, "app").clone()));
        names.iter().map(of).collect()
    };
    let before = look(&lab).expect("the pods are known");
    lab.agent.kill();
    let lab = Lab { node, agent: Agent::start_with(node, quick_to_restart), runtime: lab.runtime };
    wait::until("all pods to be known as before", SOON, || {
        let after = look(&lab)?;
        let is_known = |(_, status): &(Value, Value)| status["state"].get("running").is_some();
        if after.iter().all(is_known) { Ok(()) } else { Err(format!("{after:?}")) }
    });
    let same = |(before, after): (&(Value, Value), &(Value, Value))| {
        before.0["status"] == after.0["status"]
            && ["ready", "started", "containerID", "restartCount"].iter().all(|field| before.1[field] == after.1[field])
    };
    wait::holds("ready pods stay ready", Duration::from_secs(3), || {
        let after = look(&lab)?;
        if before.iter().zip(&after).all(same) { Ok(()) } else { Err(format!("{before:?} became {after:?}")) }
    });
    // The probes go on.
    lab.wait_pod("never", "another failure", |pod| (count(pod, "Readiness probe failed") >= 1).then_some(()));
    lab
}

fn probes(kind: Containerd) {
    let node = Node::start(kind);
    node.import("agnhost");
    let lab = Lab::start_with(&node, quick_to_restart);
    for (name, container) in restarted().into_iter().chain(stays()) {
        put(&lab, name, container, json!({}));
    }
    put_others(&lab);
    check_readiness(&lab);
    check_restarts(&lab);
    check_untouched(&lab);
    check_sockets(&lab);
    check_ending(&lab);
    check_agents_restart(lab, &node);
}

#[test]
fn probes_decide_on_the_distributions_containerd() {
    probes(Containerd::System);
}

#[test]
fn probes_decide_on_containerd_2() {
    probes(Containerd::Two);
}

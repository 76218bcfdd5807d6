//! Probes of app containers and of sidecars: the same rows for both.

use serde_json::{Value, json};

use super::make::{RUNS, agnhost, delete, exec, get, pod, probe, seconds, shell, with};
use super::scene::{Look, Row, Step, status};

/// A period in seconds that nobody waits for.
const SELDOM: u64 = 60;

const IDLE: &str = "sleep 100000";

/// A probe that a row is about: what upstream calls it, a short name, the container, and the steps once the pod is made.
struct Case {
    name: &'static str,
    short: &'static str,
    container: Value,
    grace: u64,
    then: fn(String) -> Vec<Step>,
}

fn case(name: &'static str, short: &'static str, container: Value, then: fn(String) -> Vec<Step>) -> Case {
    Case { name, short, container: with(container, json!({ "name": "probed" })), grace: 2, then }
}

fn live(handler: Value, more: Value) -> Value {
    json!({ "livenessProbe": probe(handler, with(json!({ "failureThreshold": 1, "initialDelaySeconds": 2 }), more)) })
}

/// The same handler for both, so that being ready shows that the liveness probe has passed as well. Seldom enough that
/// many of them at once leave the machine time for what they probe.
fn both(handler: &Value) -> Value {
    let calm = |threshold: u64| {
        probe(handler.clone(), json!({ "periodSeconds": 3, "initialDelaySeconds": 2, "failureThreshold": threshold }))
    };
    json!({ "livenessProbe": calm(10), "readinessProbe": calm(3) })
}

fn cat() -> Value {
    exec(&["cat", "/tmp/health"])
}

fn restarted(pod: String) -> Vec<Step> {
    let looks = vec![
        Look::Restarts("probed", 1..=1000),
        Look::Event("Unhealthy", "Liveness probe "),
        // "Container probed …, will be restarted", "Init container probed …".
        Look::Event("Killing", "ontainer probed failed liveness probe"),
    ];
    vec![Step::Until(pod, looks)]
}

fn restarted_thrice(pod: String) -> Vec<Step> {
    vec![Step::Until(pod, vec![Look::Restarts("probed", 3..=1000)])]
}

fn stays(pod: String) -> Vec<Step> {
    let looks =
        || vec![Look::Ready(true), Look::Restarts("probed", 0..=0), Look::Status("probed", "/ready", json!(true))];
    vec![Step::Until(pod.clone(), looks()), Step::For(15, pod, looks())]
}

fn never_ready(pod: String) -> Vec<Step> {
    let unready =
        || vec![Look::Ready(false), Look::Restarts("probed", 0..=0), Look::Status("probed", "/ready", json!(false))];
    let failed = with_event(unready(), "Unhealthy", "Readiness probe ");
    vec![Step::Until(pod.clone(), failed), Step::For(8, pod, unready())]
}

fn with_event(mut looks: Vec<Look>, reason: &'static str, words: &'static str) -> Vec<Look> {
    looks.push(Look::Event(reason, words));
    looks
}

/// Seconds between the container's start and the pod being ready.
fn ready_after(pod: &Value) -> Option<i64> {
    let started = seconds(&status(pod, "probed")["state"]["running"]["startedAt"])?;
    let ready = crate::harness::cluster::condition(pod, "Ready");
    Some(seconds(&ready["lastTransitionTime"])? - started)
}

fn ready_late(pod: String) -> Vec<Step> {
    let late = Look::Holds("ready 8 s after the start at the earliest", |pod| ready_after(pod) >= Some(8));
    vec![
        Step::Until(pod.clone(), vec![Look::Ready(true)]),
        Step::For(4, pod, vec![Look::Restarts("probed", 0..=0), late]),
    ]
}

fn warned(pod: String) -> Vec<Step> {
    let looks = with_event(vec![Look::Restarts("probed", 0..=0)], "ProbeWarning", "Probe terminated redirects");
    vec![Step::Until(pod.clone(), looks), Step::For(8, pod, vec![Look::Restarts("probed", 0..=0)])]
}

fn never_started(pod: String) -> Vec<Step> {
    let looks = || vec![Look::Status("probed", "/started", json!(false)), Look::Restarts("probed", 0..=0)];
    let told = with_event(looks(), "Unhealthy", "Startup probe failed");
    vec![Step::Until(pod.clone(), told), Step::For(10, pod, looks())]
}

fn given_up(pod: String) -> Vec<Step> {
    let looks = with_event(vec![Look::Restarts("probed", 1..=1000)], "Killing", "ontainer probed failed startup probe");
    vec![Step::Until(pod, looks)]
}

fn ready_soon(pod: String) -> Vec<Step> {
    let soon = Look::Holds("ready long before the next period", |pod| ready_after(pod) < Some(50));
    vec![Step::Until(pod, vec![Look::Ready(true), soon])]
}

/// It gets unready while it ends, and nobody asks whether it lives.
fn unready_at_the_end(pod: String) -> Vec<Step> {
    let unready = vec![
        Look::Ready(false),
        Look::Holds("it is on its way out", |pod| pod["metadata"]["deletionTimestamp"].is_string()),
    ];
    let quiet = Look::Holds("its liveness probe is over", |pod| status(pod, "probed")["restartCount"] == 0);
    vec![
        Step::Until(pod.clone(), vec![Look::Ready(true)]),
        delete(&pod),
        Step::Until(pod.clone(), unready),
        Step::For(4, pod, vec![quiet]),
    ]
}

#[rustfmt::skip]
fn cases() -> Vec<Case> {
    let too_long = ["sh", "-c", "sleep 6543"];
    // Asked over HTTP: commands of probes end with the sync that the deletion ends in the kubelet of 1.36 ("context canceled").
    let ends = "mkdir /tmp/www; touch /tmp/www/health; httpd -p 8080 -h /tmp/www; \
        trap 'rm /tmp/www/health; sleep 40; exit 0' TERM; while :; do sleep 1 & wait $!; done";
    let health = || get(8080, "/health");
    let server = || agnhost("probed", &["test-webserver", "--port", "8080"]);
    let alive = |path: &str| with(agnhost("probed", &["liveness"]), live(get(8080, path), json!({ "failureThreshold": 2 })));
    let tcp = json!({ "tcpSocket": { "port": 8080 } });
    let grpc = |port: u16| json!({ "grpc": { "port": port } });
    let startup = |handler: Value, threshold: u64| json!({ "startupProbe": probe(handler, json!({ "failureThreshold": threshold })) });
    let fails = || live(exec(&["false"]), json!({ "initialDelaySeconds": 0 }));
    let short = json!({ "terminationGracePeriodSeconds": 3 });
    let deaf = "trap '' TERM; while :; do sleep 1; done";
    let healthy = |script: &str| shell("probed", &format!("touch /tmp/health; {script}"));
    let sickens = healthy("sleep 4; rm /tmp/health; sleep 100000");
    let all = [
        case("with readiness probe should not be ready before initial delay and never restart", "delay",
            with(server(), json!({ "readinessProbe": probe(get(8080, "/"), json!({ "initialDelaySeconds": 8 })) })), ready_late),
        case("with readiness probe that fails should never be ready and never restart", "never",
            with(server(), json!({ "readinessProbe": probe(exec(&["false"]), json!({ "initialDelaySeconds": 2, "periodSeconds": 2 })) })), never_ready),
        case("should be restarted with a exec \"cat /tmp/health\" liveness probe", "exec-dies", with(sickens.clone(), live(cat(), json!({}))), restarted),
        case("should *not* be restarted with a exec \"cat /tmp/health\" liveness probe", "exec-lives", with(healthy(IDLE), both(&cat())), stays),
        case("should be restarted with a /healthz http liveness probe", "http-dies", alive("/healthz"), restarted),
        case("should *not* be restarted with a tcp:8080 liveness probe", "tcp-lives", with(server(), both(&tcp)), stays),
        case("should have monotonically increasing restart count", "again", with(agnhost("probed", &["liveness"]), live(get(8080, "/healthz"), json!({}))), restarted_thrice),
        case("should *not* be restarted with a /healthz http liveness probe", "http-lives", with(server(), both(&get(8080, "/"))), stays),
        case("should be restarted with an exec liveness probe with timeout", "exec-slow",
            with(shell("probed", IDLE), live(exec(&too_long), json!({ "timeoutSeconds": 1 }))), restarted),
        case("should not be ready with an exec readiness probe timeout", "slow-never",
            with(shell("probed", IDLE), json!({ "readinessProbe": probe(exec(&too_long), json!({ "timeoutSeconds": 1, "periodSeconds": 3 })) })), never_ready),
        case("should be restarted with a failing exec liveness probe that took longer than the timeout", "slow-fails",
            with(shell("probed", IDLE), live(exec(&["sh", "-c", "sleep 4 & exit 1"]), json!({ "timeoutSeconds": 1 }))), restarted),
        case("should be restarted with a local redirect http liveness probe", "redirect", alive("/redirect?loc=%2Fhealthz"), restarted),
        case("should *not* be restarted with a non-local redirect http liveness probe", "far",
            with(agnhost("probed", &["liveness"]), live(get(8080, "/redirect?loc=http%3A%2F%2F0.0.0.0%2F"), json!({ "failureThreshold": 60 }))), warned),
        case("should be restarted startup probe fails", "unborn", with(shell("probed", RUNS), startup(exec(&["false"]), 2)), given_up),
        case("should *not* be restarted by liveness probe because startup probe delays it", "delayed",
            with(with(shell("probed", IDLE), fails()), json!({ "startupProbe": probe(exec(&["false"]), json!({ "failureThreshold": 10000, "periodSeconds": 3 })) })), never_started),
        case("should be restarted by liveness probe after startup probe enables it", "enabled",
            with(with(shell("probed", "sleep 3; touch /tmp/health; sleep 100000"), fails()), startup(cat(), 1000)), restarted),
        case("should be ready immediately after startupProbe succeeds", "at-once",
            with(with(shell("probed", "sleep 3; touch /tmp/health; sleep 100000"), startup(cat(), 1000)),
                json!({ "readinessProbe": probe(exec(&["true"]), json!({ "periodSeconds": SELDOM })) })), ready_soon),
        case("should override timeoutGracePeriodSeconds when LivenessProbe field is set", "grace-live",
            with(shell("probed", deaf), live(exec(&["false"]), short.clone())), restarted),
        case("should override timeoutGracePeriodSeconds when StartupProbe field is set", "grace-start",
            with(shell("probed", deaf), json!({ "startupProbe": probe(exec(&["false"]), with(short, json!({ "failureThreshold": 2 }))) })), given_up),
        case("should *not* be restarted with a GRPC liveness probe", "grpc-lives", with(agnhost("probed", &["grpc-health-checking"]), both(&grpc(5000))), stays),
        case("should be restarted with a GRPC liveness probe", "grpc-dies", with(agnhost("probed", &["grpc-health-checking"]), live(grpc(2333), json!({}))), restarted),
        case("should mark readiness on pods to false while pod is in progress of terminating when a pod has a readiness probe", "leaves",
            with(shell("probed", ends), json!({ "readinessProbe": probe(health(), json!({})) })), unready_at_the_end),
        case("should mark readiness on pods to false and disable liveness probes while pod is in progress of terminating", "leaves-quietly",
            with(shell("probed", ends), with(live(health(), json!({ "failureThreshold": 3 })), json!({ "readinessProbe": probe(health(), json!({})) }))), unready_at_the_end),
    ];
    all.map(|case| Case { grace: match case.short { "grace-live" | "grace-start" => 500, "leaves" | "leaves-quietly" => 60, _ => case.grace }, ..case }).into()
}

fn row(case: Case, sidecar: bool) -> Row {
    let (subject, kind) = if sidecar { ("restartable init container", "side") } else { ("container", "app") };
    let name = format!("{kind}-{}", case.short);
    let grace = json!({ "terminationGracePeriodSeconds": case.grace });
    let object = if sidecar {
        let probed = with(case.container, json!({ "restartPolicy": "Always" }));
        pod(&name, &[shell("app", RUNS)], with(grace, json!({ "initContainers": [probed] })))
    } else {
        pod(&name, &[case.container], grace)
    };
    // An agent that started a moment ago spreads the first probes over their period.
    let mut steps = if case.short == "at-once" { vec![Step::Late(SELDOM + 5)] } else { Vec::new() };
    steps.push(Step::Make(object));
    steps.extend((case.then)(name));
    Row { name: format!("Probing {subject} {}", case.name), steps }
}

pub(super) fn rows() -> Vec<Row> {
    cases().into_iter().map(|case| row(case, false)).chain(cases().into_iter().map(|case| row(case, true))).collect()
}

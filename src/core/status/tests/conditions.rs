//! Conditions: status, reason, message, transition time.

use expect_test::{Expect, expect};

use super::*;

fn check(scene: &Scene, expect: Expect) {
    expect.assert_eq(&conditions_text(&scene.outcome().status));
}

fn full() -> Scene {
    scene(json!({
        "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
        "containers": [{"name": "b"}, {"name": "a", "readinessProbe": {}}],
    }))
}

#[test]
fn a_pod_becomes_ready_step_by_step() {
    let s = full();
    check(
        &s,
        expect![[r#"
        PodReadyToStartContainers=False @1000
        Initialized=False @1000 ContainersNotInitialized containers with incomplete status: [i s]
        Ready=False @1000 ContainersNotReady containers with unready status: [s b a]
        ContainersReady=False @1000 ContainersNotReady containers with unready status: [s b a]
        PodScheduled=True @1000
    "#]],
    );
    let s = s.told().see("sandbox 0 ready 10.0.0.1\ni 0 exit 0\ns 0 running");
    check(
        &s,
        expect![[r#"
        PodReadyToStartContainers=True @1100
        Initialized=True @1100
        Ready=False @1000 ContainersNotReady containers with unready status: [b a]
        ContainersReady=False @1000 ContainersNotReady containers with unready status: [b a]
        PodScheduled=True @1000
    "#]],
    );
    let s = s.told().see("sandbox 0 ready 10.0.0.1\ni 0 exit 0\ns 0 running\na 0 running\nb 0 running");
    check(
        &s,
        expect![[r#"
        PodReadyToStartContainers=True @1100
        Initialized=True @1100
        Ready=False @1000 ContainersNotReady containers with unready status: [a]
        ContainersReady=False @1000 ContainersNotReady containers with unready status: [a]
        PodScheduled=True @1000
    "#]],
    );
    let s = s.told().probed("a-0", None, Some(true));
    check(
        &s,
        expect![[r#"
        PodReadyToStartContainers=True @1100
        Initialized=True @1100
        Ready=True @1300
        ContainersReady=True @1300
        PodScheduled=True @1000
    "#]],
    );
    let s = s.told();
    check(
        &s,
        expect![[r#"
        PodReadyToStartContainers=True @1100
        Initialized=True @1100
        Ready=True @1300
        ContainersReady=True @1300
        PodScheduled=True @1000
    "#]],
    );
}

#[test]
fn an_initialised_pod_stays_initialised() {
    let seen = "sandbox 0 ready 10.0.0.1\ni 0 exit 0\ns 0 running\na 0 running\nb 0 running";
    let s = full().see(seen).told().see("sandbox 0 dead\ns 0 exit 137\na 0 exit 137\nb 0 exit 137").told();
    check(
        &s.see("sandbox 1 ready 10.0.0.2\ni 1 running"),
        expect![[r#"
        PodReadyToStartContainers=True @1200
        Initialized=True @1000
        Ready=False @1000 ContainersNotReady containers with unready status: [s b a]
        ContainersReady=False @1000 ContainersNotReady containers with unready status: [s b a]
        PodScheduled=True @1000
    "#]],
    );
}

#[test]
fn a_pod_that_ended_well_and_one_that_did_not() {
    let never = scene(json!({"restartPolicy": "Never", "containers": [{"name": "c"}]}));
    let s = never.see("sandbox 0 ready 10.0.0.1\nc 0 running").told();
    check(
        &s.clone().see("sandbox 0 ready 10.0.0.1\nc 0 exit 0"),
        expect![[r#"
        PodReadyToStartContainers=True @1000
        Initialized=True @1000 PodCompleted
        Ready=False @1100 PodCompleted
        ContainersReady=False @1100 PodCompleted
        PodScheduled=True @1000
    "#]],
    );
    let s = s.see("sandbox 0 dead\nc 0 exit 9").stage(Stage::Terminated);
    check(
        &s,
        expect![[r#"
        PodReadyToStartContainers=False @1100
        Initialized=True @1000
        Ready=False @1100 PodFailed
        ContainersReady=False @1100 PodFailed
        PodScheduled=True @1000
    "#]],
    );
    check(
        &s.told(),
        expect![[r#"
        PodReadyToStartContainers=False @1100
        Initialized=True @1000
        Ready=False @1100 PodFailed
        ContainersReady=False @1100 PodFailed
        PodScheduled=True @1000
    "#]],
    );
}

#[test]
fn a_pod_that_never_started_and_is_deleted() {
    let s = scene(json!({"containers": [{"name": "c"}]})).told().stage(Stage::Terminated);
    check(
        &s,
        expect![[r#"
        PodReadyToStartContainers=False @1000
        Initialized=True @1000
        Ready=False @1000 ContainersNotReady containers with unready status: [c]
        ContainersReady=False @1000 ContainersNotReady containers with unready status: [c]
        PodScheduled=True @1000
    "#]],
    );
    check(
        &s.told(),
        expect![[r#"
        PodReadyToStartContainers=False @1000
        Initialized=True @1000
        Ready=False @1000 ContainersNotReady containers with unready status: [c]
        ContainersReady=False @1000 ContainersNotReady containers with unready status: [c]
        PodScheduled=True @1000
    "#]],
    );
}

#[test]
fn readiness_gates_are_asked_last() {
    let gates = json!([{"conditionType": "x.io/a"}, {"conditionType": "x.io/b"}, {"conditionType": "x.io/c"}]);
    let mut s = scene(json!({"readinessGates": gates, "containers": [{"name": "c"}]}));
    let theirs = json!({"conditions": [
        {"type": "x.io/a", "status": "True", "lastTransitionTime": "1970-01-01T00:00:07Z"},
        {"type": "x.io/b", "status": "Unknown"},
        {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:08Z"},
        {"type": "ContainersReady", "status": "True", "lastTransitionTime": "1970-01-01T00:00:09Z"},
    ]});
    s.pod.status = Some(serde_json::from_value(theirs).expect("a status"));
    check(
        &s.see("sandbox 0 ready 10.0.0.1\nc 0 running"),
        expect![[r#"
        x.io/a=True @7
        x.io/b=Unknown @0
        PodReadyToStartContainers=True @1000
        Initialized=True @1000
        Ready=False @1000 ReadinessGatesNotReady the status of pod readiness gate "x.io/b" is not "True", but Unknown, corresponding condition of pod readiness gate "x.io/c" does not exist.
        ContainersReady=True @9
        PodScheduled=True @1000
    "#]],
    );
}

#[test]
fn a_sandbox_serves_when_it_is_the_only_one_and_has_an_address() {
    let s = scene(json!({"containers": [{"name": "c"}]}));
    for (seen, expect) in [
        ("", "False"),
        ("sandbox 0 ready", "False"),
        ("sandbox 0 ready 10.0.0.1", "True"),
        ("sandbox 0 dead 10.0.0.1", "False"),
        ("sandbox 0 ready 10.0.0.1\nsandbox 1 ready 10.0.0.2", "False"),
        ("sandbox 0 dead\nsandbox 1 ready 10.0.0.2", "True"),
        ("sandbox 0 ready 10.0.0.1\nsandbox 1 dead", "False"),
        ("sandbox 0 ready host", "False"),
    ] {
        let status = s.clone().see(seen).outcome().status;
        let condition = super::super::conditions::find(&status, "PodReadyToStartContainers");
        assert_eq!(condition.map(|c| c.status.as_str()), Some(expect), "{seen}");
    }
    let host = scene(json!({"hostNetwork": true, "containers": [{"name": "c"}]})).see("sandbox 0 ready host");
    let status = host.outcome().status;
    let condition = super::super::conditions::find(&status, "PodReadyToStartContainers");
    assert_eq!(condition.map(|c| c.status.as_str()), Some("True"));
}

#[test]
fn a_disruption_is_told_with_the_final_phase() {
    let mut s = scene(json!({"containers": [{"name": "c"}]})).see("sandbox 0 ready 10.0.0.1\nc 0 running").told();
    let reason = |reason: &str, message: &str| Reason { reason: reason.into(), message: message.into() };
    s.ending = Some(Ending {
        reason: reason("Evicted", "The node was low on resource: memory."),
        disruption: Some(reason("TerminationByKubelet", "The node was low on resource: memory.")),
    });
    check(
        &s,
        expect![[r#"
        PodReadyToStartContainers=True @1000
        Initialized=True @1000
        Ready=False @1100 PodFailed
        ContainersReady=False @1100 PodFailed
        PodScheduled=True @1000
    "#]],
    );
    let s = s.told().see("c 0 exit 137").stage(Stage::Terminated);
    check(
        &s,
        expect![[r#"
        DisruptionTarget=True @1200 TerminationByKubelet The node was low on resource: memory.
        PodReadyToStartContainers=False @1200
        Initialized=True @1000
        Ready=False @1100 PodFailed
        ContainersReady=False @1100 PodFailed
        PodScheduled=True @1000
    "#]],
    );
    check(
        &s.told(),
        expect![[r#"
        DisruptionTarget=True @1200 TerminationByKubelet The node was low on resource: memory.
        PodReadyToStartContainers=False @1200
        Initialized=True @1000
        Ready=False @1100 PodFailed
        ContainersReady=False @1100 PodFailed
        PodScheduled=True @1000
    "#]],
    );
}

#[test]
fn a_rejected_pod_has_a_reason_and_little_else() {
    let mut s = scene(json!({"containers": [{"name": "c"}]}));
    s.rejection = Some(Reason { reason: "OutOfcpu".into(), message: "no cpu".into() });
    let outcome = s.outcome();
    let expect = json!({"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: no cpu",
        "qosClass": "BestEffort", "observedGeneration": 3, "startTime": "1970-01-01T00:15:00Z"});
    assert_eq!((serde_json::to_value(outcome.status).expect("JSON"), outcome.finished), (expect, true));
}

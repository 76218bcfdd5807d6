//! What is told while all containers of a pod restart by the rule of one.

use expect_test::expect;

use super::*;

/// Exit code 42 of `app` restarts all; nothing else ever restarts.
fn a_scene() -> Scene {
    scene(json!({"restartPolicy": "Never", "initContainers": [{"name": "i"}], "containers": [
        {"name": "app", "restartPolicy": "Never", "restartPolicyRules":
            [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]},
        {"name": "b"}]}))
}

fn restarting(status: &PodStatus) -> String {
    conditions_text(status).lines().filter(|l| l.starts_with("AllContainersRestarting")).map(str::to_owned).collect()
}

/// The phase, the condition and the containers, look by look, each following the one before.
fn check(looks: &[&str], expect: expect_test::Expect) {
    let mut scene = a_scene();
    let mut text = String::new();
    for look in looks {
        scene = scene.see(&format!("sandbox 0 ready 10.0.0.1\n{look}"));
        let Outcome { status, finished } = scene.outcome();
        let phase = status.phase.clone().unwrap_or_default();
        let over = if finished { "!" } else { "" };
        text += &format!("{phase}{over} {}\n{}\n", restarting(&status), containers_text(&status));
        scene = scene.told();
    }
    expect.assert_eq(&text);
}

#[test]
fn a_round_ends_and_another_begins() {
    check(
        &[
            "i 0 exit 0\napp 0 running\nb 0 exit 0",
            "i 0 exit 0\napp 0 exit 42\nb 0 exit 0",
            "app 0 exit 42",
            "",
            "i 1 running",
            "i 1 exit 0\napp 1 running\nb 1 running",
        ],
        expect![[r#"
            Running AllContainersRestarting=False @1000
            i: exit 0 Completed, ready
            app: running, ready, started
            b: exit 0 Completed

            Running AllContainersRestarting=True @1100 RestartAllContainersStarted container exited with restart policy rule
            i: exit 0 Completed, ready
            app: exit 42 Error
            b: exit 0 Completed

            Running AllContainersRestarting=True @1100 RestartAllContainersStarted container exited with restart policy rule
            i: waiting RestartingAllContainers, last exit 137 RestartingAllContainers, 1 restarts
            app: exit 42 Error
            b: waiting RestartingAllContainers, last exit 137 RestartingAllContainers, 1 restarts

            Running AllContainersRestarting=False @1300
            i: waiting PodInitializing, last exit 137 RestartingAllContainers, 1 restarts
            app: waiting RestartingAllContainers, last exit 137 RestartingAllContainers, 1 restarts
            b: waiting PodInitializing, last exit 137 RestartingAllContainers, 1 restarts

            Pending AllContainersRestarting=False @1300
            i: running, last exit 137 RestartingAllContainers, started, 1 restarts
            app: waiting PodInitializing, last exit 137 RestartingAllContainers, 1 restarts
            b: waiting PodInitializing, last exit 137 RestartingAllContainers, 1 restarts

            Running AllContainersRestarting=False @1300
            i: exit 0 Completed, last exit 137 RestartingAllContainers, ready, 1 restarts
            app: running, last exit 137 RestartingAllContainers, ready, started, 1 restarts
            b: running, last exit 137 RestartingAllContainers, ready, started, 1 restarts

        "#]],
    );
}

#[test]
fn more_looks_while_a_round_ends_count_no_more_restarts() {
    let mut scene = a_scene().see("sandbox 0 ready 10.0.0.1\ni 0 exit 0\napp 0 exit 42\nb 0 exit 0");
    for _ in 0..4 {
        scene = scene.told().see("sandbox 0 ready 10.0.0.1\napp 0 exit 42");
        let text = containers_text(&scene.outcome().status);
        assert_eq!(text.matches("1 restarts").count(), 2, "{text}");
    }
    let text = containers_text(&scene.told().see("sandbox 0 ready 10.0.0.1\ni 1 exit 0").outcome().status);
    assert_eq!(text.matches("1 restarts").count(), 3, "{text}");
}

#[test]
fn a_pod_that_has_ended_restarts_nothing() {
    let scene = a_scene().see("sandbox 0 dead\ni 0 exit 0\napp 0 exit 42\nb 0 exit 0").stage(Stage::Terminated);
    assert_eq!(restarting(&scene.outcome().status), "AllContainersRestarting=False @1000 PodFailed");
}

#[test]
fn the_condition_needs_the_rule_and_its_feature_gate() {
    let plain = scene(json!({"containers": [{"name": "c"}]})).see("sandbox 0 ready 10.0.0.1\nc 0 exit 42");
    assert_eq!(restarting(&plain.outcome().status), "");
    let mut scene = a_scene().see("sandbox 0 ready 10.0.0.1\ni 0 exit 0\napp 0 exit 42\nb 0 exit 0");
    scene.restart_all = RestartAll::Unknown;
    let Outcome { status, finished } = scene.outcome();
    assert_eq!((restarting(&status).as_str(), finished), ("", true));
}

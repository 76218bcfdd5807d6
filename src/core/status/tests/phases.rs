//! The phase by restart policy, kind of container and stage.

use super::*;

fn one(policy: &str) -> Scene {
    scene(json!({"restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]}))
}

fn two(policy: &str) -> Scene {
    scene(json!({"restartPolicy": policy, "containers": [{"name": "a"}, {"name": "b"}]}))
}

fn with_init(policy: &str) -> Scene {
    scene(json!({"restartPolicy": policy, "initContainers": [{"name": "i"}], "containers": [{"name": "c"}]}))
}

fn with_sidecar(policy: &str) -> Scene {
    scene(json!({"restartPolicy": policy, "initContainers": [{"name": "s", "restartPolicy": "Always"}],
        "containers": [{"name": "c"}]}))
}

const READY: &str = "sandbox 0 ready 10.0.0.1\n";

/// The phase told, with a `!` when the pod has come to its end.
fn phase(scene: &Scene) -> String {
    let outcome = scene.outcome();
    outcome.status.phase.unwrap_or_default() + if outcome.finished { "!" } else { "" }
}

#[test]
fn app_containers_and_restart_policy() {
    for (policy, seen, expect) in [
        ("Always", "", "Pending"),
        ("Always", "c 0 created", "Pending"),
        ("Always", "c 0 running", "Running"),
        ("Always", "c 0 exit 0", "Running"),
        ("Always", "c 0 exit 1", "Running"),
        ("OnFailure", "c 0 exit 1", "Running"),
        ("OnFailure", "c 0 exit 0", "Running!"),
        ("Never", "c 0 exit 1", "Running!"),
        ("Never", "c 0 exit 0", "Running!"),
        ("Never", "c 0 unknown", "Pending"),
    ] {
        assert_eq!(phase(&one(policy).see(&(READY.to_owned() + seen))), expect, "{policy} {seen}");
    }
}

#[test]
fn the_final_phase_follows_exit_codes() {
    for (policy, seen, expect) in [
        ("Never", "a 0 exit 0\nb 0 exit 0", "Succeeded!"),
        ("Never", "a 0 exit 0\nb 0 exit 2", "Failed!"),
        ("Always", "a 0 exit 0\nb 0 exit 0", "Succeeded!"),
        ("Always", "a 0 exit 143\nb 0 exit 0", "Failed!"),
        ("Always", "a 0 exit 0", "Failed!"),
        ("Always", "", "Failed!"),
    ] {
        let scene = two(policy).see(&("sandbox 0 dead\n".to_owned() + seen)).stage(Stage::Terminated);
        assert_eq!(phase(&scene), expect, "{policy} {seen}");
    }
}

#[test]
fn a_deleted_pod_keeps_its_phase_until_all_is_over() {
    let running = two("Always").see("sandbox 0 ready 10.0.0.1\na 0 running\nb 0 running").told();
    let ending = running.stage(Stage::Terminating).see("sandbox 0 ready 10.0.0.1\na 0 exit 0\nb 0 running");
    assert_eq!(phase(&ending), "Running");
    let ended = ending.told().see("sandbox 0 ready 10.0.0.1\na 0 exit 0\nb 0 exit 0");
    assert_eq!(phase(&ended), "Running");
    assert_eq!(phase(&ended.told().see("").stage(Stage::Terminated)), "Succeeded!");
}

#[test]
fn init_containers_hold_the_pod_in_pending() {
    for (policy, seen, expect) in [
        ("Always", "", "Pending"),
        ("Always", "i 0 running", "Pending"),
        ("Always", "i 0 exit 0", "Pending"),
        ("Always", "i 0 exit 0\nc 0 running", "Running"),
        ("Always", "i 0 exit 1", "Pending"),
        ("Never", "i 0 exit 1", "Pending!"),
        ("OnFailure", "i 0 exit 1", "Pending"),
        // The runtime forgot the init container, yet the app container is there.
        ("Always", "c 0 running", "Running"),
    ] {
        assert_eq!(phase(&with_init(policy).see(&(READY.to_owned() + seen))), expect, "{policy} {seen}");
    }
}

#[test]
fn sidecars_neither_keep_a_pod_alive_nor_fail_it() {
    for (policy, seen, expect) in [
        ("Never", "s 0 running", "Pending"),
        ("Never", "s 0 running\nc 0 running", "Running"),
        ("Never", "s 0 exit 1\nc 0 running", "Running"),
        ("Never", "s 0 exit 1\nc 0 exit 0", "Running!"),
        ("Never", "s 0 running\nc 0 exit 0", "Running"),
    ] {
        assert_eq!(phase(&with_sidecar(policy).see(&(READY.to_owned() + seen))), expect, "{policy} {seen}");
    }
    let over = with_sidecar("Never").see("s 0 exit 137\nc 0 exit 0").stage(Stage::Terminated);
    assert_eq!(phase(&over), "Succeeded!");
}

#[test]
fn container_rules_come_before_policies() {
    let scene = |code: i32| {
        let rules = json!([
            {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}},
        ]);
        scene(json!({"restartPolicy": "Never",
            "containers": [{"name": "c", "restartPolicy": "Never", "restartPolicyRules": rules}]}))
        .see(&format!("{READY}c 0 exit {code}"))
    };
    assert_eq!(phase(&scene(42)), "Running");
    assert_eq!(phase(&scene(1)), "Running!");
}

#[test]
fn a_terminal_phase_never_changes() {
    for old in ["Succeeded", "Failed"] {
        for stage in [Stage::Waiting, Stage::Active, Stage::Terminating, Stage::Terminated] {
            let mut scene = one("Always").see("sandbox 0 ready 10.0.0.1\nc 0 running").stage(stage);
            scene.previous =
                Some(PodStatus { phase: Some(old.into()), reason: Some("Because".into()), ..PodStatus::default() });
            scene.ending = Some(Ending::deadline_exceeded());
            let status = scene.outcome().status;
            assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some(old), Some("Because")), "{stage:?}");
        }
    }
}

#[test]
fn a_pod_past_its_deadline_fails_once_nothing_runs() {
    let mut scene = one("Always").see("sandbox 0 ready 10.0.0.1\nc 0 running").told();
    scene.ending = Some(Ending::deadline_exceeded());
    assert_eq!(phase(&scene), "Running!");
    let status = scene.told().see("c 0 exit 0").stage(Stage::Terminated).outcome().status;
    let expect = "Pod was active on the node longer than the specified deadline";
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!((status.reason.as_deref(), status.message.as_deref()), (Some("DeadlineExceeded"), Some(expect)));
}

#[test]
fn a_static_pod_that_ends_keeps_a_phase_that_lets_it_come_back() {
    let mut scene = one("Always").see("c 0 exit 0").stage(Stage::Terminated);
    let source = (crate::api::labels::CONFIG_SOURCE.to_owned(), "file".to_owned());
    scene.pod.metadata.annotations = Some(BTreeMap::from([source]));
    assert_eq!(phase(&scene), "Running!");
}

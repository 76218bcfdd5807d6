//! Container statuses.

use expect_test::{Expect, expect};

use super::*;

fn check(scene: &Scene, expect: Expect) {
    expect.assert_eq(&containers_text(&scene.outcome().status));
}

fn one() -> Scene {
    scene(json!({"containers": [{"name": "c", "image": "i"}]}))
}

#[test]
fn a_container_from_nothing_to_its_second_life() {
    let s = one();
    check(
        &s,
        expect![[r"
        c: waiting ContainerCreating
    "]],
    );
    let s = s.told().see("sandbox 0 ready 10.0.0.1\nc 0 running");
    check(
        &s,
        expect![[r"
        c: running, ready, started
    "]],
    );
    let s = s.told().see("sandbox 0 ready 10.0.0.1\nc 0 exit 1");
    check(
        &s,
        expect![[r"
        c: exit 1 Error
    "]],
    );
    let s = s.waits("c", "CrashLoopBackOff");
    check(
        &s,
        expect![[r"
        c: waiting CrashLoopBackOff, last exit 1 Error
    "]],
    );
    let s = s.told().see("sandbox 0 ready 10.0.0.1\nc 0 exit 1\nc 1 running");
    check(
        &s,
        expect![[r"
        c: running, last exit 1 Error, ready, started, 1 restarts
    "]],
    );
}

#[test]
fn app_statuses_come_by_name_and_init_statuses_by_turn() {
    let s = scene(json!({
        "initContainers": [{"name": "z"}, {"name": "b", "restartPolicy": "Always"}, {"name": "a"}],
        "containers": [{"name": "y"}, {"name": "x"}],
        "ephemeralContainers": [{"name": "f"}, {"name": "e"}],
    }));
    let seen = "sandbox 0 ready 10.0.0.1\nz 0 exit 0\nb 0 running\na 0 running\ne 0 running";
    check(
        &s.see(seen),
        expect![[r#"
        z: exit 0 Completed, ready
        b: running, ready, started
        a: running, started
        x: waiting PodInitializing
        y: waiting PodInitializing
        e: running
        f: waiting PodInitializing
    "#]],
    );
}

#[test]
fn probes_decide_about_the_instance_they_saw() {
    let probed = json!({"containers": [{"name": "c", "startupProbe": {}, "readinessProbe": {}}]});
    let running = scene(probed).see("c 0 running");
    for (instance, started, ready, expect) in [
        ("c-0", None, None, (false, false)),
        ("c-0", Some(false), None, (false, false)),
        ("c-0", Some(true), None, (true, false)),
        ("c-0", Some(true), Some(false), (true, false)),
        ("c-0", Some(true), Some(true), (true, true)),
        ("c-0", Some(false), Some(true), (false, false)),
        ("c-9", Some(true), Some(true), (false, false)),
    ] {
        let status = running.clone().probed(instance, started, ready).outcome().status;
        let c = &status.container_statuses.expect("statuses")[0];
        assert_eq!((c.started == Some(true), c.ready), expect, "{instance} {started:?} {ready:?}");
    }
}

#[test]
fn readiness_survives_the_agent_but_not_the_container() {
    let probed = json!({"containers": [{"name": "c", "startupProbe": {}, "readinessProbe": {}}]});
    let mut s = scene(probed).see("c 0 running").probed("c-0", Some(true), Some(true)).told();
    s.facts.clear();
    check(
        &s,
        expect![[r#"
        c: running, ready, started
    "#]],
    );
    check(
        &s.told().see("c 1 running"),
        expect![[r#"
        c: running, 1 restarts
    "#]],
    );
}

#[test]
fn a_container_that_ran_and_is_gone() {
    for policy in ["Always", "Never"] {
        let s = scene(json!({"restartPolicy": policy, "containers": [{"name": "c"}]}));
        let s = s.see("sandbox 0 ready 10.0.0.1\nc 0 running").told().see("");
        let text = containers_text(&s.outcome().status);
        assert_eq!(text, "c: waiting ContainerCreating, last exit 137 ContainerStatusUnknown, 1 restarts\n");
        // The same look again counts nothing twice.
        assert_eq!(containers_text(&s.clone().told().outcome().status), text);
        assert_eq!(s.outcome().finished, policy == "Never");
    }
    // Nothing is concluded before the runtime has been looked at.
    let mut s = one().see("sandbox 0 ready 10.0.0.1\nc 0 running").told();
    s.observed = None;
    check(
        &s,
        expect![[r#"
        c: running, ready, started
    "#]],
    );
}

#[test]
fn an_end_that_was_seen_is_told_though_nothing_is_left() {
    let ended = |s: Scene, code| {
        let mut s = s.see("");
        s.facts.entry("c".into()).or_default().ended = Some(code);
        s
    };
    let never = scene(json!({"restartPolicy": "Never", "containers": [{"name": "c"}]}));
    for (code, expect, phase) in [(0, "c: exit 0 Completed\n", "Succeeded"), (3, "c: exit 3 Error\n", "Failed")] {
        // Nobody was told anything, or only that it runs.
        for s in [never.clone(), never.clone().see("c 0 running").told()] {
            let s = ended(s, code);
            assert_eq!(containers_text(&s.outcome().status), expect);
            assert_eq!(containers_text(&s.clone().told().outcome().status), expect);
            let last = s.stage(Stage::Terminated).outcome().status;
            assert_eq!((containers_text(&last).as_str(), last.phase.as_deref()), (expect, Some(phase)));
        }
    }
    // What was told stays, and one that starts again waits for it with that end behind it.
    check(
        &ended(one().see("c 0 exit 1").told(), 2),
        expect![[r#"
        c: exit 1 Error
    "#]],
    );
    check(
        &ended(one(), 2).waits("c", "CrashLoopBackOff"),
        expect![[r#"
        c: waiting CrashLoopBackOff, last exit 2 Error
    "#]],
    );
}

#[test]
fn a_container_that_the_runtime_lost_track_of() {
    let s = one().see("c 0 running").told().see("c 0 unknown");
    check(
        &s,
        expect![[r#"
        c: exit 137 ContainerStatusUnknown, 1 restarts
    "#]],
    );
    check(
        &s.clone().told(),
        expect![[r#"
        c: exit 137 ContainerStatusUnknown, 1 restarts
    "#]],
    );
    check(
        &s.told().see("c 0 running"),
        expect![[r#"
        c: running, ready, started, 1 restarts
    "#]],
    );
}

#[test]
fn restart_counts_never_fall() {
    let s = one().see("c 7 running").told();
    check(
        &s.clone().see(""),
        expect![[r#"
        c: waiting ContainerCreating, last exit 137 ContainerStatusUnknown, 8 restarts
    "#]],
    );
    // The runtime forgot all instances and the next one started to count from 0.
    let s = s.see("c 7 exit 1").told().see("c 0 created").later(800);
    check(
        &s,
        expect![[r#"
        c: waiting, last exit 1 Error, 8 restarts
    "#]],
    );
    let s = s.told().see("c 0 running").later(800);
    check(
        &s,
        expect![[r#"
        c: running, last exit 1 Error, ready, started, 8 restarts
    "#]],
    );
    let s = s.told().see("c 0 exit 1\nc 1 running").later(800);
    check(
        &s,
        expect![[r#"
        c: running, last exit 1 Error, ready, started, 9 restarts
    "#]],
    );
    // The newest instance goes and the one before it is the newest again: that is no restart.
    check(
        &s.told().see("c 0 exit 1").later(800),
        expect![[r#"
        c: exit 1 Error, last exit 1 Error, 9 restarts
    "#]],
    );
}

#[test]
fn forgotten_init_containers_count_as_done() {
    let s = scene(json!({"initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
        "containers": [{"name": "c"}]}));
    check(
        &s.see("sandbox 0 ready 10.0.0.1\nc 0 running"),
        expect![[r#"
        i: exit 0 Completed, ready
        s: waiting PodInitializing
        c: running, ready, started
    "#]],
    );
}

#[test]
fn reasons_for_waiting_count_for_what_shall_start() {
    let s = scene(json!({"restartPolicy": "OnFailure", "initContainers": [{"name": "i"}],
        "containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"}]}));
    let s = s.see("sandbox 0 ready 10.0.0.1\ni 0 exit 0\na 0 exit 0\nb 0 exit 1\nc 0 running");
    let s = ["i", "a", "b", "c", "d"].into_iter().fold(s, |s, name| s.waits(name, "ErrImagePull"));
    check(
        &s,
        expect![[r#"
        i: exit 0 Completed, ready
        a: exit 0 Completed
        b: waiting ErrImagePull, last exit 1 Error
        c: running, ready, started
        d: waiting ErrImagePull
    "#]],
    );
    check(
        &s.stage(Stage::Terminating),
        expect![[r#"
        i: exit 0 Completed, ready
        a: exit 0 Completed
        b: exit 1 Error
        c: running, ready, started
        d: waiting PodInitializing
    "#]],
    );
}

#[test]
fn an_ended_pod_leaves_nothing_waiting_that_had_its_turn() {
    let s = scene(json!({"initContainers": [{"name": "i"}, {"name": "j"}], "containers": [{"name": "c"}]}));
    let s = s.stage(Stage::Terminated);
    check(
        &s.clone().see(""),
        expect![[r#"
        i: exit 137 ContainerStatusUnknown
        j: waiting PodInitializing
        c: waiting PodInitializing
    "#]],
    );
    check(
        &s.clone().see("i 0 exit 0\nj 0 exit 1"),
        expect![[r#"
        i: exit 0 Completed, ready
        j: exit 1 Error
        c: waiting PodInitializing
    "#]],
    );
    check(
        &s.see("i 0 exit 0\nj 0 exit 0"),
        expect![[r#"
        i: exit 0 Completed, ready
        j: exit 0 Completed, ready
        c: exit 137 ContainerStatusUnknown
    "#]],
    );
}

#[test]
fn messages_have_their_share_of_the_pods_12_kibibytes() {
    let share = |containers: usize, message: &str| {
        let names: Vec<Value> = (0..containers).map(|i| json!({"name": format!("c{i}")})).collect();
        let mut s = scene(json!({"containers": names})).see("c0 0 exit 3");
        let observed = s.observed.as_mut().expect("observed");
        if let ContainerState::Exited(exit) = &mut observed.containers[0].state {
            exit.message = message.into();
        }
        let status = s.outcome().status.container_statuses.expect("statuses").remove(0);
        status.state.and_then(|s| s.terminated).and_then(|t| t.message)
    };
    assert_eq!(share(1, ""), None);
    assert_eq!(share(1, "bye\n").as_deref(), Some("bye\n"));
    let long = "€".repeat(5000);
    assert_eq!(share(1, &long), Some("€".repeat(4096)));
    assert_eq!(share(5, &long), Some("€".repeat(819)));
    assert_eq!(share(20_000, &long), None);
}

#[test]
fn times_before_1970_are_left_out() {
    let mut s = one().see("c 0 exit 128");
    let observed = s.observed.as_mut().expect("observed");
    if let ContainerState::Exited(exit) = &mut observed.containers[0].state {
        (exit.started_at, exit.finished_at) = (0, i64::MIN);
    }
    let status = s.outcome().status.container_statuses.expect("statuses").remove(0);
    let end = status.state.and_then(|s| s.terminated).expect("an end");
    assert_eq!((end.started_at, end.finished_at), (None, None));
}

#[test]
fn volume_mounts_tell_how_read_only_they_are() {
    let mut s = scene(json!({"containers": [{"name": "c", "volumeMounts": [
        {"name": "v", "mountPath": "/a"},
        {"name": "v", "mountPath": "/b", "readOnly": true},
        {"name": "v", "mountPath": "/c", "readOnly": true, "recursiveReadOnly": "IfPossible"},
        {"name": "v", "mountPath": "/d", "readOnly": true, "recursiveReadOnly": "Enabled"},
        {"name": "v", "mountPath": "/e", "readOnly": true, "recursiveReadOnly": "Enabled", "mountPropagation": "None"},
        {"name": "v", "mountPath": "/f", "readOnly": true, "recursiveReadOnly": "Enabled",
            "mountPropagation": "HostToContainer"},
        {"name": "v", "mountPath": "/g", "recursiveReadOnly": "Enabled"},
        {"name": "v", "mountPath": "/h", "readOnly": true, "recursiveReadOnly": "Disabled"},
    ]}]}));
    for (supported, expect) in [
        (false, "a- b-Disabled c-Disabled d-Disabled e-Disabled f-Disabled g- h-Disabled"),
        (true, "a- b-Disabled c-Enabled d-Enabled e-Enabled f-Disabled g- h-Disabled"),
    ] {
        s.recursive_read_only = supported;
        let status = s.outcome().status.container_statuses.expect("statuses").remove(0);
        let text: Vec<String> = status
            .volume_mounts
            .iter()
            .flatten()
            .map(|m| {
                let mode = m.recursive_read_only.clone().unwrap_or_default();
                assert_eq!(m.read_only == Some(true), !mode.is_empty());
                format!("{}-{mode}", &m.mount_path[1..])
            })
            .collect();
        assert_eq!(text.join(" "), expect);
    }
}

#[test]
fn crash_loop_messages_read_as_ever() {
    let pod = one().pod;
    for (seconds, millis, expect) in [
        (10, 0, "back-off 10s restarting failed container=c pod=p_ns(u)"),
        (80, 0, "back-off 1m20s restarting failed container=c pod=p_ns(u)"),
        (300, 0, "back-off 5m0s restarting failed container=c pod=p_ns(u)"),
        (0, 250, "back-off 250ms restarting failed container=c pod=p_ns(u)"),
        (1, 500, "back-off 1.5s restarting failed container=c pod=p_ns(u)"),
        (3600, 0, "back-off 1h0m0s restarting failed container=c pod=p_ns(u)"),
    ] {
        let delay = Duration::from_secs(seconds) + Duration::from_millis(millis);
        assert_eq!(crash_loop_message(delay, "c", &pod), expect);
    }
}

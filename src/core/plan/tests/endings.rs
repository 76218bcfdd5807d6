//! Bringing a pod to rest and removing it.

use std::time::Duration;

use expect_test::{Expect, expect};

use super::*;

const SPEC: &str = "{initContainers: [{name: i}, {name: first, restartPolicy: Always}, {name: second, restartPolicy: \
    Always}], containers: [{name: a, lifecycle: {preStop: {sleep: {seconds: 1}}}}, {name: b}]}";

fn check_ending(text: &str, expect: Expect) {
    let scene = scene(SPEC, text);
    let plan = plan_ending(Some(&scene.pod), &scene.observed, Duration::from_secs(12), "it was removed");
    expect.assert_eq(&transcript(&plan));
    // What is planned brings it to rest, and only what is not at rest is planned.
    assert_eq!(plan.steps.is_empty(), at_rest(&scene.observed));
}

#[test]
fn apps_stop_before_sidecars_and_those_in_reverse() {
    check_ending(
        "sandbox 0 ready\nfirst/0 running\nsecond/0 running\na/0 running\nb/0 running\ni/0 exited 0",
        expect![[r#"
            stop a/0 after its hook (pod ends), b/0 (pod ends), second/0 in wave 1 (pod ends), first/0 in wave 2 (pod ends) grace=12s
            stop sandbox-0: it was removed
        "#]],
    );
}

#[test]
fn hooks_come_from_the_spec_else_from_the_marks() {
    check_ending(
        "sandbox 0 ready\na/0 running\nb/0 running prestop\nold/0 running prestop",
        expect![[r#"
        stop a/0 after its hook (pod ends), b/0 (pod ends), old/0 after its hook (pod ends) grace=12s
        stop sandbox-0: it was removed
    "#]],
    );
    let scene = scene(SPEC, "sandbox 0 ready\na/0 running\nb/0 running prestop");
    let plan = plan_ending(None, &scene.observed, Duration::ZERO, "an orphan");
    expect![[r#"
        stop a/0 (pod ends), b/0 after its hook (pod ends) grace=0s
        stop sandbox-0: an orphan
    "#]]
    .assert_eq(&transcript(&plan));
}

#[test]
fn what_may_run_is_stopped_and_what_is_dead_is_left() {
    check_ending(
        "sandbox 0 dead\na/0 unknown",
        expect![[r#"
        stop a/0 after its hook (pod ends) grace=12s
    "#]],
    );
    check_ending(
        "sandbox 0 dead\na/0 exited 0\nb/0 created",
        expect![[r#"
        nothing
    "#]],
    );
    check_ending(
        "sandbox 1 ready\nsandbox 0 ready",
        expect![[r#"
        stop sandbox-1: it was removed
        stop sandbox-0: it was removed
    "#]],
    );
    check_ending(
        "",
        expect![[r#"
        nothing
    "#]],
    );
}

#[test]
fn forgetting_removes_containers_then_sandboxes_then_the_folder() {
    let scene = scene(SPEC, "sandbox 0 dead\nsandbox 1 dead\na/0 exited 0 in 0\na/1 exited 0\nb/0 exited 1");
    expect![[r#"
        remove a/1: nothing shall remain
        remove a/0: nothing shall remain
        remove b/0: nothing shall remain
        stop sandbox-1: nothing shall remain
        remove sandbox-1: nothing shall remain!
        stop sandbox-0: nothing shall remain
        remove sandbox-0: nothing shall remain!
        release: nothing shall remain!
        forget: nothing shall remain!
    "#]]
    .assert_eq(&transcript(&plan_forget(Some(&scene.observed), "nothing shall remain")));
    expect![[r#"
        release: nothing shall remain!
        forget: nothing shall remain!
    "#]]
    .assert_eq(&transcript(&plan_forget(None, "nothing shall remain")));
}

//! When a container's rule restarts all containers of its pod.

use expect_test::expect;

use super::*;

/// Exit code 42 of `app` or of `i` restarts all; everything else never restarts.
const SPEC: &str = "{restartPolicy: Never, initContainers: [{name: i, restartPolicy: Never, restartPolicyRules: \
    [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]}, {name: side, restartPolicy: Always}], \
    containers: [{name: app, restartPolicy: Never, restartPolicyRules: \
    [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]}, \
    {name: b, lifecycle: {preStop: {exec: {command: [bye]}}}}]}";

#[test]
fn all_are_stopped_at_once_and_removed_with_the_one_that_asked_last() {
    check(
        SPEC,
        "sandbox 0 ready\ni/0 exited 0\nside/0 running\napp/0 exited 42\nb/1 running\nb/0 exited 1\nstranger/0 running",
        expect![[r#"
            stop b/1 (restarts with all containers of its pod), side/0 in wave 1 (restarts with all containers of its pod) grace=0s!
            remove b/1: app ended with 42, upon which all containers restart!
            remove b/0: app ended with 42, upon which all containers restart!
            remove i/0: app ended with 42, upon which all containers restart!
            remove side/0: app ended with 42, upon which all containers restart!
            remove app/0: app ended with 42, upon which all containers restart!
            app begins anew with attempt=1
            b begins anew with attempt=2
            i begins anew with attempt=1
            side begins anew with attempt=1
        "#]],
    );
}

#[test]
fn an_init_container_may_ask_and_another_code_does_not() {
    check(
        SPEC,
        "sandbox 0 ready\ni/3 exited 42",
        expect![[r#"
            remove i/3: i ended with 42, upon which all containers restart!
            app begins anew with attempt=0
            b begins anew with attempt=0
            i begins anew with attempt=4
            side begins anew with attempt=0
        "#]],
    );
    check(
        SPEC,
        "sandbox 0 ready\ni/0 exited 41",
        expect![[r#"
            ended Failed
        "#]],
    );
}

#[test]
fn the_new_round_begins_with_the_init_containers_in_the_same_sandbox() {
    let memory =
        "memory i first=1 next=1\nmemory side first=1 next=1\nmemory app first=1 next=1\nmemory b first=2 next=2";
    check(
        SPEC,
        &format!("sandbox 0 ready\n{memory}"),
        expect![[r#"
            start init i attempt=1: its turn in the init chain!
        "#]],
    );
}

#[test]
fn a_removal_that_was_cut_short_goes_on() {
    // The one that asked is gone, and something of its round is left.
    check(
        SPEC,
        "sandbox 0 ready\nb/1 running\nmemory b first=2 next=2\nmemory app first=1 next=1",
        expect![[r#"
            stop b/1 (restarts with all containers of its pod) grace=0s!
            remove b/1: all containers restart!
            app begins anew with attempt=1
            b begins anew with attempt=2
            i begins anew with attempt=0
            side begins anew with attempt=0
        "#]],
    );
    // It was removed by somebody else before anything was done.
    check(
        SPEC,
        "sandbox 0 ready\nb/1 exited 0\nmemory app next=1 ended=42",
        expect![[r#"
            remove b/1: app ended with 42, upon which all containers restart!
            app begins anew with attempt=1
            b begins anew with attempt=2
            i begins anew with attempt=0
            side begins anew with attempt=0
        "#]],
    );
    check(
        SPEC,
        "sandbox 0 ready\nmemory app next=1 ended=42\nmemory b next=1 ended=0",
        expect![[r#"
            app begins anew with attempt=1
            b begins anew with attempt=1
            i begins anew with attempt=0
            side begins anew with attempt=0
        "#]],
    );
}

#[test]
fn without_its_feature_gate_the_rule_counts_for_nothing() {
    let scene = scene(SPEC, "sandbox 0 ready\ni/0 exited 0\nside/0 running\napp/0 exited 42\nb/0 running");
    let input = PlanInput { restart_all: RestartAll::Unknown, ..scene.input() };
    assert_eq!(transcript(&plan_active(&input)), "nothing\n");
    // The first rule that matches is the only one that counts, known or not.
    let two = "{restartPolicy: Always, containers: [{name: app, restartPolicy: Never, restartPolicyRules: [\
        {action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}, \
        {action: Restart, exitCodes: {operator: In, values: [42]}}]}]}";
    let scene = super::scene(two, "sandbox 0 ready\napp/0 exited 42");
    let input = PlanInput { restart_all: RestartAll::Unknown, ..scene.input() };
    assert_eq!(transcript(&plan_active(&input)), "ended Failed\n");
}

#[test]
fn what_is_remembered_of_a_round_ends_with_it_but_for_the_back_off() {
    let scene = scene(
        "containers: [{name: app}]",
        "sandbox 0 ready\napp/4 exited 1\nmemory app next=7 ended=1 crash=20s exit=1s failed=3s started=4 condemned=4",
    );
    let mut memory = scene.memory["app"].clone();
    let crash = memory.crash.clone();
    assert!(crash.is_some());
    memory.begin_round(5);
    let left = ContainerMemory { first_attempt: 5, next_attempt: 7, crash, ..ContainerMemory::default() };
    assert_eq!(*memory, left);
}

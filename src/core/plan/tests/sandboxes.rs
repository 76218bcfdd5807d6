//! When a pod gets a sandbox, another one, or none.

use expect_test::expect;

use super::check;

const APP: &str = "containers: [{name: app}]";
const NEVER: &str = "{restartPolicy: Never, containers: [{name: app}]}";

#[test]
fn a_new_pod_is_prepared_and_started() {
    check(
        APP,
        "",
        expect![[r#"
        prepare: the pod has no sandbox!
        run sandbox attempt=0: the pod has no sandbox!
        start app app attempt=0: it is not there
    "#]],
    );
    check(
        APP,
        "next sandbox 4\nmemory app next=2",
        expect![[r#"
        prepare: the pod has no sandbox!
        run sandbox attempt=4: the pod has no sandbox!
        start app app attempt=2: it is not there
    "#]],
    );
}

#[test]
fn a_dead_sandbox_is_stopped_for_its_address_and_replaced() {
    check(
        APP,
        "sandbox 0 dead\napp/0 exited 137",
        expect![[r#"
        stop sandbox-0: its sandbox is not ready!
        prepare: its sandbox is not ready!
        run sandbox attempt=1: its sandbox is not ready!
        start app app attempt=1: it is not there
    "#]],
    );
    check(
        APP,
        "sandbox 3 dead\napp/0 running",
        expect![[r#"
        stop app/0 (pod sandbox changed) grace=30s!
        stop sandbox-3: its sandbox is not ready!
        prepare: its sandbox is not ready!
        run sandbox attempt=4: its sandbox is not ready!
        start app app attempt=1: it is not there
    "#]],
    );
    check(
        APP,
        "next sandbox 9\nsandbox 3 dead",
        expect![[r#"
        stop sandbox-3: its sandbox is not ready!
        prepare: its sandbox is not ready!
        run sandbox attempt=9: its sandbox is not ready!
        start app app attempt=0: it is not there
    "#]],
    );
    check(
        APP,
        "sandbox 0 dead\nsandbox 1 dead",
        expect![[r#"
        stop sandbox-1: its sandbox is not ready!
        prepare: its sandbox is not ready!
        run sandbox attempt=2: its sandbox is not ready!
        start app app attempt=0: it is not there
        remove sandbox-0: older dead instances are not kept
    "#]],
    );
}

#[test]
fn of_two_ready_sandboxes_none_is_kept() {
    check(
        APP,
        "sandbox 0 ready\nsandbox 1 ready\napp/0 running in 0\napp/1 running in 1",
        expect![[r#"
        stop app/0 (pod sandbox changed), app/1 (pod sandbox changed) grace=30s!
        stop sandbox-1: more than one sandbox is ready!
        stop sandbox-0: more than one sandbox is ready!
        prepare: more than one sandbox is ready!
        run sandbox attempt=2: more than one sandbox is ready!
        start app app attempt=2: it is not there
    "#]],
    );
}

#[test]
fn a_sandbox_needs_an_address_unless_it_is_the_nodes() {
    check(
        APP,
        "sandbox 0 noip\napp/0 running",
        expect![[r#"
        stop app/0 (pod sandbox changed) grace=30s!
        stop sandbox-0: its sandbox has no address!
        prepare: its sandbox has no address!
        run sandbox attempt=1: its sandbox has no address!
        start app app attempt=1: it is not there
    "#]],
    );
    check(
        "{hostNetwork: true, containers: [{name: app}]}",
        "sandbox 0 host\napp/0 running",
        expect![[r#"
        nothing
    "#]],
    );
}

#[test]
fn a_change_of_host_network_replaces_the_sandbox() {
    check(
        APP,
        "sandbox 0 host\napp/0 running",
        expect![[r#"
        stop app/0 (pod sandbox changed) grace=30s!
        stop sandbox-0: hostNetwork changed!
        prepare: hostNetwork changed!
        run sandbox attempt=1: hostNetwork changed!
        start app app attempt=1: it is not there
    "#]],
    );
    check(
        "{hostNetwork: true, containers: [{name: app}]}",
        "sandbox 0 ready\napp/0 running",
        expect![[r#"
        stop app/0 (pod sandbox changed) grace=30s!
        stop sandbox-0: hostNetwork changed!
        prepare: hostNetwork changed!
        run sandbox attempt=1: hostNetwork changed!
        start app app attempt=1: it is not there
    "#]],
    );
}

#[test]
fn a_pod_that_never_restarts_gets_no_second_sandbox() {
    check(
        NEVER,
        "sandbox 0 dead\napp/0 exited 0",
        expect![[r#"
        ended Succeeded
    "#]],
    );
    check(
        NEVER,
        "sandbox 0 dead\napp/0 exited 1",
        expect![[r#"
        ended Failed
    "#]],
    );
    check(
        NEVER,
        "sandbox 0 dead\napp/0 running",
        expect![[r#"
        stop app/0 (pod sandbox changed) grace=30s!
    "#]],
    );
    // Nothing ever ran: the first one may still be made.
    check(
        NEVER,
        "sandbox 0 dead",
        expect![[r#"
        stop sandbox-0: its sandbox is not ready!
        prepare: its sandbox is not ready!
        run sandbox attempt=1: its sandbox is not ready!
        start app app attempt=0: it is not there
    "#]],
    );
    check(
        "{restartPolicy: Never, initContainers: [{name: i}], containers: [{name: app}]}",
        "sandbox 0 dead\ni/0 exited 0",
        expect![[r#"
            ended Failed
        "#]],
    );
}

#[test]
fn a_pod_whose_remains_were_removed_is_not_run_again() {
    check(
        NEVER,
        "memory app next=1 ran",
        expect![[r#"
        ended Failed
    "#]],
    );
    check(
        NEVER,
        "memory app next=1 ended=0",
        expect![[r#"
        ended Succeeded
    "#]],
    );
    check(
        "{restartPolicy: OnFailure, containers: [{name: app}]}",
        "memory app next=1 ended=0",
        expect![[r#"
        ended Succeeded
    "#]],
    );
    check(
        "{restartPolicy: OnFailure, containers: [{name: app}]}",
        "memory app next=1 ran",
        expect![[r#"
        prepare: the pod has no sandbox!
        run sandbox attempt=0: the pod has no sandbox!
        start app app attempt=1: it is not there
    "#]],
    );
    // A name that the runtime held took an attempt, and nothing ran.
    check(
        NEVER,
        "memory app next=1",
        expect![[r#"
        prepare: the pod has no sandbox!
        run sandbox attempt=0: the pod has no sandbox!
        start app app attempt=1: it is not there
    "#]],
    );
}

#[test]
fn a_new_sandbox_starts_only_what_still_has_something_to_do() {
    let spec = "{restartPolicy: OnFailure, containers: [{name: done}, {name: broken}, {name: alive}]}";
    check(
        spec,
        "sandbox 0 dead\ndone/0 exited 0\nbroken/0 exited 1\nalive/0 running",
        expect![[r#"
        stop alive/0 (pod sandbox changed) grace=30s!
        stop sandbox-0: its sandbox is not ready!
        prepare: its sandbox is not ready!
        run sandbox attempt=1: its sandbox is not ready!
        start app broken attempt=1: it is not there
        start app alive attempt=1: it is not there
    "#]],
    );
    check(
        "{restartPolicy: OnFailure, containers: [{name: done}]}",
        "sandbox 0 dead\ndone/0 exited 0",
        expect![[r#"
        ended Succeeded
    "#]],
    );
    let mixed = "{restartPolicy: Always, containers: [{name: once, restartPolicy: Never}, {name: app}]}";
    check(
        mixed,
        "sandbox 0 dead\nonce/0 running\napp/0 running",
        expect![[r#"
        stop app/0 (pod sandbox changed), once/0 (pod sandbox changed) grace=30s!
        stop sandbox-0: its sandbox is not ready!
        prepare: its sandbox is not ready!
        run sandbox attempt=1: its sandbox is not ready!
        start app app attempt=1: it is not there
    "#]],
    );
}

#[test]
fn init_containers_run_again_in_a_new_sandbox() {
    let spec = "{initContainers: [{name: i}, {name: side, restartPolicy: Always}], containers: [{name: app}]}";
    check(
        spec,
        "sandbox 0 dead\ni/0 exited 0\nside/0 running\napp/0 running",
        expect![[r#"
        stop app/0 (pod sandbox changed), side/0 in wave 1 (pod sandbox changed) grace=30s!
        stop sandbox-0: its sandbox is not ready!
        prepare: its sandbox is not ready!
        run sandbox attempt=1: its sandbox is not ready!
        start init i attempt=1: its turn in the init chain!
    "#]],
    );
}

#[test]
fn a_pod_at_rest_with_dead_sandboxes_is_tidied() {
    check(
        APP,
        "sandbox 0 dead\nsandbox 1 ready\napp/0 exited 1 in 0\napp/1 running",
        expect![[r#"
        nothing
    "#]],
    );
    check(
        APP,
        "sandbox 0 dead\nsandbox 1 ready\napp/2 running",
        expect![[r#"
        remove sandbox-0: older dead instances are not kept
    "#]],
    );
    check(
        APP,
        "sandbox 0 dead\nsandbox 1 ready\napp/0 exited 1 in 0\napp/1 exited 1\napp/2 exited 1\napp/3 running",
        expect![[r#"
            remove app/1: older dead instances are not kept
            remove app/0: older dead instances are not kept
            remove sandbox-0: older dead instances are not kept
        "#]],
    );
}

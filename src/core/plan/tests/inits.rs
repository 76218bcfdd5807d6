//! The init chain and its sidecars.

use expect_test::expect;

use super::{check, plan_active, scene, transcript};

const CHAIN: &str = "{initContainers: [{name: i}, {name: j}], containers: [{name: app}]}";
const SIDE: &str = "{initContainers: [{name: side, restartPolicy: Always}, {name: i}], containers: [{name: app}]}";
const PROBED: &str = "{initContainers: [{name: side, restartPolicy: Always, startupProbe: {}}, {name: i}], \
    containers: [{name: app}]}";

#[test]
fn init_containers_run_one_after_the_other() {
    check(
        CHAIN,
        "sandbox 0 ready",
        expect![[r#"
        start init i attempt=0: its turn in the init chain!
    "#]],
    );
    check(
        CHAIN,
        "sandbox 0 ready\ni/0 running",
        expect![[r#"
        wait for init container i to end
    "#]],
    );
    check(
        CHAIN,
        "sandbox 0 ready\ni/0 exited 0",
        expect![[r#"
        start init j attempt=0: its turn in the init chain!
    "#]],
    );
    check(
        CHAIN,
        "sandbox 0 ready\ni/0 exited 0\nj/0 exited 0",
        expect![[r#"
        start app app attempt=0: it is not there
    "#]],
    );
    // What is missing but was passed by has done its part.
    check(
        CHAIN,
        "sandbox 0 ready\nj/0 exited 0",
        expect![[r#"
        start app app attempt=0: it is not there
    "#]],
    );
    check(
        CHAIN,
        "sandbox 0 ready\napp/0 running",
        expect![[r#"
        nothing
    "#]],
    );
}

#[test]
fn a_failing_init_container_is_retried_unless_the_pod_never_restarts() {
    for policy in ["Always", "OnFailure", "Never"] {
        let spec = format!("{{restartPolicy: {policy}, initContainers: [{{name: i}}], containers: [{{name: app}}]}}");
        let seen = "sandbox 0 ready\ni/0 exited 1";
        match policy {
            "Always" => check(
                &spec,
                seen,
                expect![[r#"
                start init i attempt=1: it ended and restarts!
                next time i waits 10s
            "#]],
            ),
            "OnFailure" => check(
                &spec,
                seen,
                expect![[r#"
                start init i attempt=1: it ended and restarts!
                next time i waits 10s
            "#]],
            ),
            _ => check(
                &spec,
                seen,
                expect![[r#"
                ended Failed
            "#]],
            ),
        }
    }
}

#[test]
fn made_and_lost_init_containers_start_anew() {
    check(
        CHAIN,
        "sandbox 0 ready\ni/0 created",
        expect![[r#"
        start init i attempt=1: it was made and never started!
    "#]],
    );
    check(
        CHAIN,
        "sandbox 0 ready\ni/0 unknown",
        expect![[r#"
        stop i/0 (is in unknown state, try killing it before restart) grace=30s!
        start init i attempt=1: is in unknown state, try killing it before restart!
    "#]],
    );
}

#[test]
fn a_sidecar_holds_back_what_follows_until_it_has_started() {
    check(
        SIDE,
        "sandbox 0 ready",
        expect![[r#"
            start sidecar side attempt=0: its turn in the init chain
        "#]],
    );
    check(
        SIDE,
        "sandbox 0 ready\nside/0 running",
        expect![[r#"
        start init i attempt=0: its turn in the init chain!
    "#]],
    );
    check(
        PROBED,
        "sandbox 0 ready\nside/0 running",
        expect![[r#"
        wait for sidecar side to pass its startup probe
    "#]],
    );
    check(
        PROBED,
        "sandbox 0 ready\nside/0 running\nmemory side started=0",
        expect![[r#"
        start init i attempt=0: its turn in the init chain!
    "#]],
    );
    // A verdict about an earlier instance opens nothing.
    check(
        PROBED,
        "sandbox 0 ready\nside/1 running\nmemory side started=0",
        expect![[r#"
        wait for sidecar side to pass its startup probe
    "#]],
    );
    let last = "{initContainers: [{name: side, restartPolicy: Always, startupProbe: {}}], containers: [{name: app}]}";
    check(
        last,
        "sandbox 0 ready\nside/0 running",
        expect![[r#"
        wait for sidecar side to pass its startup probe
    "#]],
    );
}

#[test]
fn a_sidecar_that_ends_restarts_and_holds_back_nothing_that_is_past() {
    check(
        SIDE,
        "sandbox 0 ready\nside/0 exited 0",
        expect![[r#"
            start sidecar side attempt=1: it ended and restarts
            next time side waits 10s
        "#]],
    );
    check(
        SIDE,
        "sandbox 0 ready\nside/0 exited 1\ni/0 running",
        expect![[r#"
            start sidecar side attempt=1: it ended and restarts
            wait for init container i to end
            next time side waits 10s
        "#]],
    );
    check(
        SIDE,
        "sandbox 0 ready\nside/0 exited 1\ni/0 exited 0",
        expect![[r#"
            start sidecar side attempt=1: it ended and restarts
            start app app attempt=0: it is not there
            next time side waits 10s
        "#]],
    );
    check(
        SIDE,
        "sandbox 0 ready\nside/0 exited 1\ni/0 exited 0\napp/0 running",
        expect![[r#"
            start sidecar side attempt=1: it ended and restarts
            next time side waits 10s
        "#]],
    );
    check(
        SIDE,
        "sandbox 0 ready\nside/0 exited 1\ni/0 exited 0\napp/0 exited 1",
        expect![[r#"
            start sidecar side attempt=1: it ended and restarts
            start app app attempt=1: it ended and restarts
            next time app waits 10s
            next time side waits 10s
        "#]],
    );
    check(
        SIDE,
        "sandbox 0 ready\nside/0 unknown\napp/0 running",
        expect![[r#"
            stop side/0 (is in unknown state, try killing it before restart) grace=30s!
            start sidecar side attempt=1: is in unknown state, try killing it before restart
        "#]],
    );
    check(
        SIDE,
        "sandbox 0 ready\nside/0 created\napp/0 running",
        expect![[r#"
            start sidecar side attempt=1: it was made and never started
        "#]],
    );
    check(
        SIDE,
        "sandbox 0 ready\nside/0 running image=side:0\ni/0 exited 0\napp/0 running",
        expect![[r#"
            stop side/0 (definition changed, will be restarted) grace=30s!
            start sidecar side attempt=1: definition changed, will be restarted
        "#]],
    );
    check(
        SIDE,
        "sandbox 0 ready\nside/0 running\ni/0 exited 0\napp/0 running\nmemory side condemned=0",
        expect![[r#"
        stop side/0 (failed liveness probe, will be restarted) grace=30s!
    "#]],
    );
}

#[test]
fn sidecars_do_not_keep_a_pod_alive() {
    let spec =
        "{restartPolicy: Never, initContainers: [{name: side, restartPolicy: Always}], containers: [{name: app}]}";
    check(
        spec,
        "sandbox 0 ready\nside/0 running\napp/0 exited 0",
        expect![[r#"
        ended Succeeded
    "#]],
    );
    check(
        spec,
        "sandbox 0 ready\nside/0 exited 1\napp/0 exited 0",
        expect![[r#"
            ended Succeeded
        "#]],
    );
    check(
        spec,
        "sandbox 0 ready\nside/0 exited 1\napp/0 running",
        expect![[r#"
            start sidecar side attempt=1: it ended and restarts
            next time side waits 10s
        "#]],
    );
}

#[test]
fn an_init_container_that_was_passed_by_never_runs_beside_a_later_one() {
    let spec = "{initContainers: [{name: i}, {name: j}], containers: [{name: app}]}";
    for (seen, expect) in [
        ("i/0 exited 0\nj/0 running", "wait for init container j to end\n"),
        ("i/0 exited 1\nj/0 running", "wait for init container j to end\n"),
        ("i/0 created\nj/0 running", "wait for init container j to end\n"),
        ("i/0 exited 1\nj/0 exited 0", "start app app attempt=0: it is not there\n"),
        ("i/0 running\nj/0 exited 1", "wait for init container i to end\n"),
        ("i/0 unknown\nj/0 exited 1", "stop i/0 (is in unknown state, try killing it before restart) grace=30s!\n"),
        ("i/0 exited 1\nj/0 exited 1", "start init j attempt=1: it ended and restarts!\nnext time j waits 10s\n"),
    ] {
        let scene = scene(spec, &format!("sandbox 0 ready\n{seen}"));
        assert_eq!(transcript(&plan_active(&scene.input())), expect, "{seen}");
    }
    // Whatever it left, one that failed after it was passed by ends no pod.
    check(
        "{restartPolicy: Never, initContainers: [{name: i}, {name: j}], containers: [{name: app}]}",
        "sandbox 0 ready\ni/0 exited 1\nj/0 running",
        expect![[r#"
            wait for init container j to end
        "#]],
    );
}

//! Restarts that wait: crash back-off and starts that failed.

use expect_test::expect;

use super::check;

const APP: &str = "containers: [{name: app}]";

#[test]
fn the_first_restart_is_immediate_and_the_next_ones_wait() {
    check(
        APP,
        "sandbox 0 ready\napp/0 exited 1",
        expect![[r#"
        start app app attempt=1: it ended and restarts
        next time app waits 10s
    "#]],
    );
    check(
        APP,
        "sandbox 0 ready\napp/1 exited 1\nmemory app crash=10s exit=0s",
        expect![[r#"
        wait for container app: CrashLoopBackOff, next try in 10s
        look again in 10s
    "#]],
    );
    check(
        APP,
        "sandbox 0 ready\napp/1 exited 1\nmemory app crash=20s exit=5s",
        expect![[r#"
        wait for container app: CrashLoopBackOff, next try in 15s
        look again in 15s
    "#]],
    );
    check(
        APP,
        "sandbox 0 ready\napp/1 exited 1\nmemory app crash=300s exit=0s",
        expect![[r#"
        wait for container app: CrashLoopBackOff, next try in 5m0s
        look again in 5m0s
    "#]],
    );
}

#[test]
fn a_wait_that_is_over_restarts_and_doubles() {
    check(
        APP,
        "sandbox 0 ready\napp/1 exited 1\nmemory app crash=10s exit=10s",
        expect![[r#"
        start app app attempt=2: it ended and restarts
        next time app waits 20s
    "#]],
    );
    check(
        APP,
        "sandbox 0 ready\napp/1 exited 1\nmemory app crash=300s exit=300s",
        expect![[r#"
        start app app attempt=2: it ended and restarts
        next time app waits 5m0s
    "#]],
    );
}

#[test]
fn another_image_starts_the_back_off_anew() {
    check(
        APP,
        "sandbox 0 ready\napp/1 exited 1\nmemory app crash-of-old=300s exit=0s",
        expect![[r#"
        start app app attempt=2: it ended and restarts
        next time app waits 10s
    "#]],
    );
}

#[test]
fn init_containers_and_sidecars_wait_too() {
    let spec = "{initContainers: [{name: i}], containers: [{name: app}]}";
    check(
        spec,
        "sandbox 0 ready\ni/1 exited 1\nmemory i crash=10s exit=4s",
        expect![[r#"
        wait for container i: CrashLoopBackOff, next try in 6s
        look again in 6s
    "#]],
    );
    let side = "{initContainers: [{name: side, restartPolicy: Always}], containers: [{name: app}]}";
    check(
        side,
        "sandbox 0 ready\nside/1 exited 1\napp/0 exited 1\nmemory side crash=10s exit=4s",
        expect![[r#"
        start app app attempt=1: it ended and restarts
        wait for container side: CrashLoopBackOff, next try in 6s
        look again in 6s
        next time app waits 10s
    "#]],
    );
}

#[test]
fn a_start_that_failed_is_repeated_later() {
    check(
        APP,
        "sandbox 0 ready\nmemory app failed=7s",
        expect![[r#"
            wait for container app: ErrImagePull, next try in 7s: no such image
            look again in 7s
        "#]],
    );
    check(
        APP,
        "sandbox 0 ready\nmemory app failed=0s",
        expect![[r#"
        start app app attempt=0: it is not there
    "#]],
    );
    check(
        "containers: [{name: a}, {name: b}]",
        "sandbox 0 ready\nmemory a failed=7s\nmemory b failed=3s",
        expect![[r#"
            wait for container a: ErrImagePull, next try in 7s: no such image
            wait for container b: ErrImagePull, next try in 3s: no such image
            look again in 3s
        "#]],
    );
    // A failed start does not move the back-off on.
    check(
        APP,
        "sandbox 0 ready\napp/1 exited 1\nmemory app crash=10s exit=10s failed=7s",
        expect![[r#"
            wait for container app: ErrImagePull, next try in 7s: no such image
            look again in 7s
        "#]],
    );
}

#[test]
fn attempts_are_never_used_twice() {
    check(
        APP,
        "sandbox 0 ready\napp/3 exited 1\nmemory app next=7",
        expect![[r#"
        start app app attempt=7: it ended and restarts
        next time app waits 10s
    "#]],
    );
    check(
        APP,
        "sandbox 0 ready\napp/3 exited 1 marks=8\nmemory app next=7",
        expect![[r#"
        start app app attempt=9: it ended and restarts
        next time app waits 10s
    "#]],
    );
    check(
        APP,
        "sandbox 0 ready\nsandbox 1 dead\napp/3 exited 1 in 0",
        expect![[r#"
        stop sandbox-1: its sandbox is not ready!
        stop sandbox-0: its sandbox is not ready!
        prepare: its sandbox is not ready!
        run sandbox attempt=2: its sandbox is not ready!
        start app app attempt=4: it is not there
    "#]],
    );
}

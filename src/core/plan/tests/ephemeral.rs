//! Ephemeral containers: added to a pod that runs, started once.

use expect_test::expect;

use super::*;

const SPEC: &str = "{initContainers: [{name: i}], containers: [{name: a}], ephemeralContainers: [{name: free}, {name: \
    guest, targetContainerName: a}]}";

#[test]
fn those_that_were_added_start_beside_their_targets() {
    check(
        SPEC,
        "sandbox 0 ready\ni/0 exited 0\na/3 running",
        expect![[r#"
            start ephemeral free attempt=0: it was added to the running pod
            start ephemeral guest attempt=0 target=a/3: it was added to the running pod
        "#]],
    );
    // The newest instance counts, whatever it does: the runtime says what is wrong with it.
    check(
        SPEC,
        "sandbox 0 ready\ni/0 exited 0\na/0 exited 1\na/1 created\nfree/0 running",
        expect![[r#"
            start ephemeral guest attempt=0 target=a/1: it was added to the running pod
            start app a attempt=2: it was made and never started
            remove a/0: older dead instances are not kept
        "#]],
    );
}

#[test]
fn they_do_not_wait_for_the_init_chain_and_nobody_waits_for_them() {
    check(
        SPEC,
        "sandbox 0 ready\ni/0 running",
        expect![[r#"
            start ephemeral free attempt=0: it was added to the running pod
            wait for target container a of guest to be there
            wait for init container i to end
        "#]],
    );
}

#[test]
fn none_starts_twice() {
    check(
        SPEC,
        "sandbox 0 ready\ni/0 exited 0\na/0 running\nfree/0 exited 1\nguest/0 created",
        expect![[r#"
            nothing
        "#]],
    );
    // Not in another sandbox, and not when somebody removed what was left of them.
    check(
        SPEC,
        "sandbox 0 dead\nsandbox 1 ready\ni/1 exited 0\na/1 running\nfree/0 exited 0 in 0\nmemory guest next=1 ran",
        expect![[r#"
            nothing
        "#]],
    );
    check(
        SPEC,
        "sandbox 0 ready\ni/0 exited 0\na/0 running\nmemory free next=1 ended=0\nmemory guest failed=5s",
        expect![[r#"
            wait for container guest: ErrImagePull, next try in 5s: no such image
            look again in 5s
        "#]],
    );
}

#[test]
fn a_new_sandbox_comes_before_them_and_the_end_of_the_pod_is_theirs() {
    check(
        SPEC,
        "sandbox 0 dead\ni/0 exited 0\na/0 exited 1\nfree/0 running",
        expect![[r#"
            stop free/0 (pod sandbox changed) grace=30s!
            stop sandbox-0: its sandbox is not ready!
            prepare: its sandbox is not ready!
            run sandbox attempt=1: its sandbox is not ready!
            start init i attempt=1: its turn in the init chain!
        "#]],
    );
    check(
        &SPEC.replace("{initContainers", "{restartPolicy: Never, initContainers"),
        "sandbox 0 ready\ni/0 exited 0\na/0 exited 0\nfree/0 running",
        expect![[r#"
            ended Succeeded
        "#]],
    );
}

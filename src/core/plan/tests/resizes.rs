//! Other CPU or memory for running containers.

use expect_test::expect;

use super::*;

const SPEC: &str = "{initContainers: [{name: i, resources: {requests: {cpu: 200m}}}, {name: s, restartPolicy: Always, \
    resources: {requests: {cpu: 200m}}}], containers: [{name: a, resources: {requests: {cpu: 300m, memory: 1Mi}, limits: \
    {memory: 2Mi}}}, {name: b, resources: {limits: {cpu: 1}}, resizePolicy: [{resourceName: cpu, restartPolicy: \
    RestartContainer}, {resourceName: memory, restartPolicy: NotRequired}]}]}";

#[test]
fn what_runs_with_other_sizes_is_resized_in_one_step() {
    check(
        SPEC,
        "sandbox 0 ready\ni/0 exited 0\ns/0 running\na/0 running\nb/0 running\nmemory s had=100 started=0\nmemory a had=100",
        expect![[r#"
            resize s/0 from 100/0 0/0 to 200/0 0/0, a/0 from 100/0 0/0 to 300/0 1048576/2097152
        "#]],
    );
}

#[test]
fn a_policy_may_ask_for_a_restart() {
    check(
        SPEC,
        "sandbox 0 ready\ni/0 exited 0\ns/0 running\na/0 running\nb/0 running\nmemory s started=0\nmemory a had=1\nmemory b had=1",
        expect![[r#"
            stop b/0 (resize requires restart) grace=30s!
            resize a/0 from 1/0 0/0 to 300/0 1048576/2097152
            start app b attempt=1: resize requires restart
        "#]],
    );
    // Whatever the pod's policy.
    check(
        &SPEC.replace("{initContainers", "{restartPolicy: Never, initContainers"),
        "sandbox 0 ready\ni/0 exited 0\ns/0 running\na/0 running\nb/0 running\nmemory s started=0\nmemory b had=1",
        expect![[r#"
            stop b/0 (resize requires restart) grace=30s!
            start app b attempt=1: resize requires restart
        "#]],
    );
}

#[test]
fn what_does_not_run_gets_its_sizes_at_its_start() {
    check(
        SPEC,
        "sandbox 0 ready\ni/0 running\nmemory i had=1",
        expect![[r#"
            resize i/0 from 1/0 0/0 to 200/0 0/0
            wait for init container i to end
        "#]],
    );
    check(
        SPEC,
        "sandbox 0 ready\ni/0 exited 0\ns/0 running\na/0 exited 1\nb/0 running\nmemory s started=0\nmemory a had=1",
        expect![[r#"
            start app a attempt=1: it ended and restarts
            next time a waits 10s
        "#]],
    );
}

#[test]
fn all_that_stops_has_stopped_before_anything_is_resized() {
    check(
        "{containers: [{name: a}, {name: b, resources: {limits: {cpu: 1}}, resizePolicy: [{resourceName: cpu, restartPolicy: \
         RestartContainer}]}, {name: c, resources: {requests: {cpu: 300m}}}]}",
        "sandbox 0 ready\na/0 exited 1\nb/0 running\nc/0 running\nmemory b had=1\nmemory c had=100",
        expect![[r#"
            stop b/0 (resize requires restart) grace=30s!
            resize c/0 from 100/0 0/0 to 300/0 0/0
            start app a attempt=1: it ended and restarts
            start app b attempt=1: resize requires restart
            next time a waits 10s
        "#]],
    );
}

//! What becomes of app containers in the sandbox that is kept.

use expect_test::expect;

use super::check;

const APP: &str = "containers: [{name: app}]";

#[test]
fn a_running_pod_needs_nothing() {
    check(
        APP,
        "sandbox 0 ready\napp/0 running",
        expect![[r#"
        nothing
    "#]],
    );
    check(
        "containers: [{name: b}, {name: a}]",
        "sandbox 0 ready\na/0 running\nb/5 running",
        expect![[r#"
        nothing
    "#]],
    );
}

#[test]
fn restart_policies() {
    for policy in ["Always", "OnFailure", "Never"] {
        let spec = format!("{{restartPolicy: {policy}, containers: [{{name: app}}]}}");
        for code in [0, 1] {
            let seen = format!("sandbox 0 ready\napp/0 exited {code}");
            match (policy, code) {
                ("Always", 0) => check(
                    &spec,
                    &seen,
                    expect![[r#"
                    start app app attempt=1: it ended and restarts
                    next time app waits 10s
                "#]],
                ),
                ("Always", _) => check(
                    &spec,
                    &seen,
                    expect![[r#"
                    start app app attempt=1: it ended and restarts
                    next time app waits 10s
                "#]],
                ),
                ("OnFailure", 0) => check(
                    &spec,
                    &seen,
                    expect![[r#"
                    ended Succeeded
                "#]],
                ),
                ("OnFailure", _) => check(
                    &spec,
                    &seen,
                    expect![[r#"
                    start app app attempt=1: it ended and restarts
                    next time app waits 10s
                "#]],
                ),
                (_, 0) => check(
                    &spec,
                    &seen,
                    expect![[r#"
                    ended Succeeded
                "#]],
                ),
                (_, _) => check(
                    &spec,
                    &seen,
                    expect![[r#"
                    ended Failed
                "#]],
                ),
            }
        }
    }
}

#[test]
fn a_pod_goes_on_while_one_container_does() {
    let spec = "{restartPolicy: Never, containers: [{name: a}, {name: b}]}";
    check(
        spec,
        "sandbox 0 ready\na/0 exited 1\nb/0 running",
        expect![[r#"
        nothing
    "#]],
    );
    check(
        spec,
        "sandbox 0 ready\na/0 exited 1\nb/0 exited 0",
        expect![[r#"
        ended Failed
    "#]],
    );
    check(
        spec,
        "sandbox 0 ready\na/0 exited 0\nb/0 exited 0",
        expect![[r#"
        ended Succeeded
    "#]],
    );
}

#[test]
fn a_container_has_its_own_policy_and_rules() {
    let own = "{restartPolicy: Never, containers: [{name: app, restartPolicy: OnFailure}]}";
    check(
        own,
        "sandbox 0 ready\napp/0 exited 1",
        expect![[r#"
        start app app attempt=1: it ended and restarts
        next time app waits 10s
    "#]],
    );
    check(
        own,
        "sandbox 0 ready\napp/0 exited 0",
        expect![[r#"
        ended Succeeded
    "#]],
    );
    let rules = "{restartPolicy: Never, containers: [{name: app, restartPolicy: Never, restartPolicyRules: \
        [{action: Restart, exitCodes: {operator: In, values: [42]}}]}]}";
    check(
        rules,
        "sandbox 0 ready\napp/0 exited 42",
        expect![[r#"
        start app app attempt=1: it ended and restarts
        next time app waits 10s
    "#]],
    );
    check(
        rules,
        "sandbox 0 ready\napp/0 exited 1",
        expect![[r#"
        ended Failed
    "#]],
    );
}

#[test]
fn a_container_whose_remains_were_removed_counts_as_ended() {
    let spec = "{restartPolicy: Never, containers: [{name: a}, {name: b}]}";
    check(
        spec,
        "sandbox 0 ready\nmemory a next=1 ran\nb/0 running",
        expect![[r#"
        nothing
    "#]],
    );
    check(
        spec,
        "sandbox 0 ready\nmemory a next=1 ran\nb/0 exited 0",
        expect![[r#"
        ended Failed
    "#]],
    );
    check(
        spec,
        "sandbox 0 ready\nmemory a next=1 ended=0\nb/0 exited 0",
        expect![[r#"
        ended Succeeded
    "#]],
    );
    check(
        APP,
        "sandbox 0 ready\nmemory app next=3 ran",
        expect![[r#"
        start app app attempt=3: it is not there
    "#]],
    );
}

#[test]
fn made_and_lost_containers_start_anew() {
    check(
        APP,
        "sandbox 0 ready\napp/0 created",
        expect![[r#"
        start app app attempt=1: it was made and never started
    "#]],
    );
    check(
        APP,
        "sandbox 0 ready\napp/0 unknown",
        expect![[r#"
        stop app/0 (is in unknown state, try killing it before restart) grace=30s!
        start app app attempt=1: is in unknown state, try killing it before restart
    "#]],
    );
    check(
        "{restartPolicy: Never, containers: [{name: app}]}",
        "sandbox 0 ready\napp/0 unknown",
        expect![[r#"
        stop app/0 (is in unknown state, try killing it before restart) grace=30s!
        start app app attempt=1: is in unknown state, try killing it before restart
    "#]],
    );
}

#[test]
fn a_new_image_restarts_at_once() {
    check(
        APP,
        "sandbox 0 ready\napp/0 running image=app:0",
        expect![[r#"
        stop app/0 (definition changed, will be restarted) grace=30s!
        start app app attempt=1: definition changed, will be restarted
    "#]],
    );
    check(
        "{restartPolicy: Never, containers: [{name: app}]}",
        "sandbox 0 ready\napp/0 running image=app:0",
        expect![[r#"
            stop app/0 (definition changed, will be restarted) grace=30s!
            start app app attempt=1: definition changed, will be restarted
        "#]],
    );
    check(
        APP,
        "sandbox 0 ready\napp/0 running unmarked",
        expect![[r#"
        nothing
    "#]],
    );
}

#[test]
fn probes_condemn_an_instance() {
    let spec = "containers: [{name: app, livenessProbe: {terminationGracePeriodSeconds: 5}, startupProbe: {}}]";
    check(
        spec,
        "sandbox 0 ready\napp/0 running\nmemory app condemned=0",
        expect![[r#"
        stop app/0 (failed liveness probe, will be restarted) grace=5s!
    "#]],
    );
    check(
        spec,
        "sandbox 0 ready\napp/0 running\nmemory app startup=0",
        expect![[r#"
        stop app/0 (failed startup probe, will be restarted) grace=30s!
    "#]],
    );
    check(
        spec,
        "sandbox 0 ready\napp/1 running\nmemory app condemned=0",
        expect![[r#"
        nothing
    "#]],
    );
    let never = "{restartPolicy: Never, containers: [{name: app}]}";
    check(
        never,
        "sandbox 0 ready\napp/0 running\nmemory app condemned=0",
        expect![[r#"
        stop app/0 (pod ends) grace=30s
    "#]],
    );
    let one_of_two = "{restartPolicy: Never, containers: [{name: app}, {name: more}]}";
    check(
        one_of_two,
        "sandbox 0 ready\napp/0 running\nmore/0 running\nmemory app condemned=0",
        expect![[r#"
        stop app/0 (failed liveness probe, will be restarted) grace=30s
    "#]],
    );
}

#[test]
fn what_is_not_in_the_spec_is_stopped() {
    check(
        APP,
        "sandbox 0 ready\napp/0 running\nold/0 running prestop",
        expect![[r#"
        stop old/0 after its hook (is not part of the pod) grace=30s!
    "#]],
    );
    check(
        APP,
        "sandbox 0 ready\napp/0 running\nold/0 exited 0",
        expect![[r#"
        nothing
    "#]],
    );
    check(
        APP,
        "sandbox 0 ready\napp/0 running\napp/1 running",
        expect![[r#"
        stop app/0 (is not part of the pod) grace=30s!
    "#]],
    );
}

#[test]
fn what_lives_on_in_a_sandbox_that_is_not_kept_is_stopped_first() {
    check(
        APP,
        "sandbox 0 dead\nsandbox 1 ready\napp/0 running in 0",
        expect![[r#"
        stop app/0 (is not part of the pod) grace=30s!
        start app app attempt=1: it is not there
    "#]],
    );
    check(
        APP,
        "sandbox 0 dead\nsandbox 1 ready\napp/0 running in 0\napp/1 running in 1",
        expect![[r#"
        stop app/0 (is not part of the pod) grace=30s!
    "#]],
    );
}

#[test]
fn only_the_newest_dead_instance_is_kept() {
    check(
        APP,
        "sandbox 0 ready\napp/0 exited 1\napp/1 exited 1\napp/2 running",
        expect![[r#"
        remove app/0: older dead instances are not kept
    "#]],
    );
    check(
        APP,
        "sandbox 0 ready\napp/0 exited 1\napp/1 exited 1\napp/2 exited 0",
        expect![[r#"
        start app app attempt=3: it ended and restarts
        remove app/1: older dead instances are not kept
        remove app/0: older dead instances are not kept
        next time app waits 10s
    "#]],
    );
}

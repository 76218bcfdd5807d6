//! How containers begin, end and begin again: init containers, restart policies and rules, termination messages.

use serde_json::{Value, json};

use super::make::{RUNS, once, pod, row, shell, until, with};
use super::scene::{Look, Row, Step};

const NEVER: &str = "restartPolicy";

fn never() -> Value {
    json!({ NEVER: "Never" })
}

/// Two init containers before an app.
fn chain(name: &str, first: &str, app: &str, policy: &str) -> Value {
    let inits = json!([shell("init1", first), shell("init2", "exit 0")]);
    pod(name, &[shell("run1", app)], json!({ "initContainers": inits, NEVER: policy }))
}

fn init_rows() -> Vec<Row> {
    let of = |what: &str| format!("InitContainer {what}");
    let done = |name: &'static str| Look::Status(name, "/state/terminated/reason", json!("Completed"));
    let ready = |name: &'static str| Look::Status(name, "/ready", json!(true));
    let waits = |name: &'static str| Look::Status(name, "/state/waiting/reason", json!("PodInitializing"));
    let all_ready =
        || vec![done("init1"), done("init2"), ready("init1"), ready("init2"), Look::Condition("Initialized", "True")];
    vec![
        row(
            &of("should invoke init containers on a RestartNever pod"),
            vec![
                Step::Make(chain("init-never", "exit 0", "exit 0", "Never")),
                until(
                    "init-never",
                    [vec![Look::Phase("Succeeded"), Look::Restarts("init1", 0..=0)], all_ready()]
                        .into_iter()
                        .flatten()
                        .collect(),
                ),
            ],
        ),
        row(
            &of("should invoke init containers on a RestartAlways pod"),
            vec![
                Step::Make(chain("init-always", "exit 0", RUNS, "Always")),
                until(
                    "init-always",
                    [vec![Look::Phase("Running"), Look::Ready(true)], all_ready()].into_iter().flatten().collect(),
                ),
            ],
        ),
        row(
            &of("should not start app containers if init containers fail on a RestartAlways pod"),
            vec![
                Step::Make(chain("init-fails", "exit 1", RUNS, "Always")),
                until(
                    "init-fails",
                    vec![
                        Look::Restarts("init1", 3..=1000),
                        waits("init2"),
                        waits("run1"),
                        Look::Phase("Pending"),
                        Look::Condition("Initialized", "False"),
                        Look::Holds("the condition names both", |pod| {
                            let condition = crate::harness::cluster::condition(pod, "Initialized");
                            condition["reason"] == "ContainersNotInitialized"
                                && condition["message"] == "containers with incomplete status: [init1 init2]"
                        }),
                    ],
                ),
            ],
        ),
        row(
            &of("should not start app containers and fail the pod if init containers fail on a RestartNever pod"),
            vec![
                Step::Make(chain("init-ends", "exit 1", RUNS, "Never")),
                until(
                    "init-ends",
                    vec![
                        Look::Phase("Failed"),
                        waits("run1"),
                        Look::Status("init1", "/state/terminated/exitCode", json!(1)),
                        Look::Restarts("init1", 0..=0),
                        Look::Condition("Initialized", "False"),
                    ],
                ),
            ],
        ),
    ]
}

/// Fails in its first life, succeeds in its second, runs in its third.
const THREE_LIVES: &str =
    "echo x >>/count/lives; case $(wc -l </count/lives) in 1) exit 1;; 2) exit 0;; esac; while :; do sleep 1; done";

fn three_lives(name: &str, policy: &str) -> Value {
    let mount = json!({ "volumeMounts": [{ "name": "count", "mountPath": "/count" }] });
    let more = json!({ NEVER: policy, "volumes": [{ "name": "count", "emptyDir": { "medium": "Memory" } }] });
    pod(name, &[with(shell("c", THREE_LIVES), mount)], more)
}

fn ends(name: &str, slug: &str, phase: &'static str, container: Value, message: Value) -> Row {
    let looks = vec![Look::Phase(phase), Look::Status("c", "/state/terminated/message", message)];
    let name =
        format!("Container Runtime blackbox test on terminated container should report termination message {name}");
    row(&name, vec![Step::Make(once(slug, container)), until(slug, looks)])
}

fn runtime_rows() -> Vec<Row> {
    let lives = row(
        "Container Runtime blackbox test when starting a container that exits should run with the expected status",
        vec![
            Step::Make(three_lives("rpa", "Always")),
            Step::Make(three_lives("rpof", "OnFailure")),
            Step::Make(three_lives("rpn", "Never")),
            until(
                "rpa",
                vec![
                    Look::Phase("Running"),
                    Look::Restarts("c", 2..=2),
                    Look::Ready(true),
                    Look::Status("c", "/started", json!(true)),
                ],
            ),
            until(
                "rpof",
                vec![
                    Look::Phase("Succeeded"),
                    Look::Restarts("c", 1..=1),
                    Look::Ready(false),
                    Look::Status("c", "/state/terminated/exitCode", json!(0)),
                ],
            ),
            until(
                "rpn",
                vec![
                    Look::Phase("Failed"),
                    Look::Restarts("c", 0..=0),
                    Look::Ready(false),
                    Look::Status("c", "/state/terminated/exitCode", json!(1)),
                ],
            ),
        ],
    );
    let logs = |script: &str| with(shell("c", script), json!({ "terminationMessagePolicy": "FallbackToLogsOnError" }));
    let elsewhere =
        |script: &str| with(shell("c", script), json!({ "terminationMessagePath": "/dev/termination-custom-log" }));
    let user = json!({ "securityContext": { "runAsUser": 10000 } });
    vec![
        lives,
        ends(
            "if TerminationMessagePath is set",
            "message-path",
            "Succeeded",
            elsewhere("printf DONE >/dev/termination-custom-log"),
            json!("DONE"),
        ),
        ends(
            "if TerminationMessagePath is set as non-root user and at a non-default path",
            "message-user",
            "Succeeded",
            with(elsewhere("printf DONE >/dev/termination-custom-log"), user),
            json!("DONE"),
        ),
        ends(
            "from log output if TerminationMessagePolicy FallbackToLogsOnError is set",
            "message-log",
            "Failed",
            logs("printf DONE; exit 1"),
            json!("DONE"),
        ),
        ends(
            "as empty when pod succeeds and TerminationMessagePolicy FallbackToLogsOnError is set",
            "message-none",
            "Succeeded",
            logs("printf DONE; exit 0"),
            Value::Null,
        ),
        ends(
            "from file when pod succeeds and TerminationMessagePolicy FallbackToLogsOnError is set",
            "message-file",
            "Succeeded",
            logs("printf OK >/dev/termination-log; printf DONE"),
            json!("OK"),
        ),
    ]
}

fn rule(action: &str) -> Value {
    json!({ "restartPolicyRules": [{ "action": action, "exitCodes": { "operator": "In", "values": [42] } }] })
}

fn policy_rows() -> Vec<Row> {
    let of = |what: &str| format!("Pod Extended (container restart policy) Container Restart Rules {what}");
    let fails = |code: u8, more: Value| with(shell("main", &format!("exit {code}")), more);
    let restarts = || vec![Look::Restarts("main", 2..=1000), Look::Phase("Running")];
    let not = || {
        vec![
            Look::Restarts("main", 0..=0),
            Look::Status("main", "/state/terminated/exitCode", json!(1)),
            Look::Phase("Failed"),
        ]
    };
    let case = |what: &str, name: &str, object: Value, looks: Vec<Look>| {
        row(&of(what), vec![Step::Make(object), until(name, looks)])
    };
    vec![
        case(
            "should restart container on rule match",
            "rule-match",
            pod("rule-match", &[fails(42, with(never(), rule("Restart")))], never()),
            restarts(),
        ),
        case(
            "should not restart container on rule mismatch, container restart policy Never",
            "rule-miss",
            pod("rule-miss", &[fails(1, with(never(), rule("Restart")))], never()),
            not(),
        ),
        case(
            "should restart container on container-level restart policy Never",
            "level-never",
            pod("level-never", &[fails(1, never())], json!({ NEVER: "Always" })),
            not(),
        ),
        case(
            "should restart container on container-level restart policy Always",
            "level-always",
            pod("level-always", &[fails(1, json!({ NEVER: "Always" }))], never()),
            restarts(),
        ),
        case(
            "should restart container on pod-level restart policy Always when no container-level restart policy",
            "level-pod",
            pod("level-pod", &[fails(1, json!({}))], json!({ NEVER: "Always" })),
            restarts(),
        ),
    ]
}

/// A pod in which one container has everybody begin anew, once.
fn all_again(name: &str, inits: Vec<Value>, apps: &[Value], policy: &str) -> Value {
    let more = json!({ "initContainers": inits, NEVER: policy, "volumes": [{ "name": "work", "emptyDir": {} }] });
    pod(name, apps, more)
}

/// The container that does so, by its exit code.
fn source(name: &str, script: &str, more: Value) -> Value {
    let mount = json!({ "volumeMounts": [{ "name": "work", "mountPath": "/mnt" }] });
    with(with(with(shell(name, script), mount), rule("RestartAllContainers")), more)
}

fn restart_all_rows() -> Vec<Row> {
    let of = |what: &str| format!("Pod Extended (RestartAllContainers) RestartAllContainers {what}");
    let always = || json!({ NEVER: "Always" });
    let side = || with(shell("sidecar", RUNS), always());
    let init = || shell("init", "exit 0");
    let once = "if [ -e /mnt/done ]; then sleep 10000; fi; touch /mnt/done; sleep 2; exit 42";
    let regular = || shell("regular", RUNS);
    let again = |names: &[&'static str], runs: &[&'static str]| -> Vec<Look> {
        let counts = names.iter().map(|name| Look::Restarts(name, 1..=1));
        counts
            .chain(runs.iter().map(|name| Look::Status(name, "/started", json!(true))))
            .chain([Look::Ready(true)])
            .collect()
    };
    let case = |what: &str, name: &str, object: Value, names: &[&'static str], runs: &[&'static str]| {
        row(
            &of(what),
            vec![
                Step::Make(object),
                until(name, again(names, runs)),
                Step::For(5, name.to_owned(), again(names, runs)),
            ],
        )
    };
    vec![
        case(
            "should restart all containers on regular container exit",
            "all-regular",
            all_again("all-regular", vec![init(), side()], &[source("source", once, never()), regular()], "Never"),
            &["init", "sidecar", "source", "regular"],
            &["source", "regular"],
        ),
        case(
            "should restart all containers on sidecar container exit",
            "all-sidecar",
            all_again("all-sidecar", vec![init(), side(), source("source", once, always())], &[regular()], "Never"),
            &["init", "sidecar", "source", "regular"],
            &["source", "regular"],
        ),
        case(
            "should restart init and sidecar containers on init container exit",
            "all-init",
            all_again(
                "all-init",
                vec![side(), init(), source("source", "[ -e /mnt/done ] && exit 0; touch /mnt/done; exit 42", never())],
                &[regular()],
                "Never",
            ),
            &["sidecar", "init", "source"],
            &["regular"],
        ),
        case(
            "should allow multiple RestartAllContainers actions and not introduce a loop",
            "all-many",
            all_again(
                "all-many",
                vec![],
                &[source("source", once, never()), with(regular(), with(never(), rule("RestartAllContainers")))],
                "Never",
            ),
            &["source", "regular"],
            &["source", "regular"],
        ),
        row(
            &of("should restart all containers on a previously restarted regular container exit"),
            vec![
                Step::Make(all_again(
                    "all-later",
                    vec![],
                    &[
                        source(
                            "source",
                            "[ -e /mnt/done ] && sleep 10000; [ -e /mnt/one ] && touch /mnt/done && exit 42; touch /mnt/one; exit 1",
                            always(),
                        ),
                        regular(),
                    ],
                    "Always",
                )),
                until(
                    "all-later",
                    vec![Look::Restarts("source", 2..=2), Look::Restarts("regular", 1..=1), Look::Ready(true)],
                ),
            ],
        ),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    [init_rows(), runtime_rows(), policy_rows(), restart_all_rows()].into_iter().flatten().collect()
}

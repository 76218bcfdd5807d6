//! How pods begin, fail, restart and end: order of init containers and sidecars, restart policies, hooks, deadlines.
//!
//! One node a test, with all pods at once; what happened when is written by the containers into the shared folder, or
//! told by the runtime's own times.

use std::time::{Duration, Instant};

use ferrolet::api::runtime::{ContainerState, RuntimeContainer};
use serde_json::{Value, json};

use super::lab::{Lab, SOON, has_event, pod, restarts, shell, status, until_term, with_shared};
use crate::harness::{Containerd, Node, wait};

/// A lab in which a crash costs a second, not ten.
fn quick_to_restart(config: &mut Value) {
    config["crashLoopBackOff"] = json!({ "maxContainerRestartPeriod": "1s" });
}

fn put(lab: &Lab<'_>, pod: Value) {
    lab.put(&with_shared(lab, pod));
}

fn started(container: &RuntimeContainer) -> i64 {
    match &container.state {
        ContainerState::Running { started_at } => *started_at,
        ContainerState::Exited(exit) => exit.started_at,
        other => panic!("{} has not started: {other:?}", container.name),
    }
}

fn finished(container: &RuntimeContainer) -> i64 {
    match &container.state {
        ContainerState::Exited(exit) => exit.finished_at,
        other => panic!("{} has not finished: {other:?}", container.name),
    }
}

/// Two init containers and two sidecars, in turns, then the app.
fn ordered(lab: &Lab<'_>) {
    let sidecar = |name: &str| {
        let more = json!({ "restartPolicy": "Always" });
        shell(name, &until_term("", &format!("sleep 0.3; echo {name} >>/shared/ends;")), more)
    };
    let init = |name: &str| shell(name, "sleep 0.2", json!({}));
    let app = shell("app", &until_term("", "sleep 0.5; echo app >>/shared/ends;"), json!({}));
    let chain = [init("one"), sidecar("early"), init("two"), sidecar("late")];
    put(lab, pod("ordered", &[app], json!({ "terminationGracePeriodSeconds": 20, "initContainers": chain })));
}

fn check_starts_in_order(lab: &Lab<'_>) {
    let pod = lab.wait_running("ordered");
    for name in ["early", "late"] {
        assert!(status(&pod, name)["state"].get("running").is_some(), "{name} runs: {pod}");
        assert_eq!(status(&pod, name)["started"], true);
    }
    let containers = lab.wait_containers("ordered", 5);
    let names: Vec<&str> = containers.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["one", "early", "two", "late", "app"]);
    for pair in containers.windows(2) {
        let (before, after) = (&pair[0], &pair[1]);
        let ready = if matches!(before.state, ContainerState::Exited(_)) { finished(before) } else { started(before) };
        assert!(ready <= after.created_at, "{} was made before {} was ready", after.name, before.name);
    }
}

fn check_ends_in_order(lab: &Lab<'_>) {
    lab.remove("ordered");
    lab.wait_gone("ordered");
    assert_eq!(lab.lines("ends"), ["app", "late", "early"]);
}

fn policies(lab: &Lab<'_>) {
    put(lab, pod("crash", &[shell("app", "echo run >>/shared/crash; exit 4", json!({}))], json!({})));
    let never = json!({ "restartPolicy": "Never" });
    put(lab, pod("good", &[shell("app", "exit 0", json!({}))], never.clone()));
    put(lab, pod("bad", &[shell("app", "exit 1", json!({})), shell("fine", "exit 0", json!({}))], never.clone()));
    let third_time = "echo run >>/shared/third; [ $(wc -l </shared/third) -ge 3 ]";
    put(lab, pod("third", &[shell("app", third_time, json!({}))], json!({ "restartPolicy": "OnFailure" })));
    let mut init_fails = never.clone();
    init_fails["initContainers"] = json!([shell("init", "exit 1", json!({}))]);
    put(lab, pod("init-fails", &[shell("app", "echo ran >>/shared/never", json!({}))], init_fails));
    let mut job = never;
    job["initContainers"] = json!([shell("helper", &until_term("", ""), json!({ "restartPolicy": "Always" }))]);
    put(lab, pod("job", &[shell("app", "sleep 0.5", json!({}))], job));
    let limit = json!({ "resources": { "limits": { "memory": "16Mi" } } });
    put(lab, pod("greedy", &[shell("app", "exec tail /dev/zero", limit)], json!({ "restartPolicy": "Never" })));
    put(lab, pod("killed", &[shell("app", "exit 137", json!({}))], json!({ "restartPolicy": "Never" })));
    let late = shell("app", &until_term("", ""), json!({}));
    put(lab, pod("late", &[late], json!({ "activeDeadlineSeconds": 3 })));
}

fn check_policies(lab: &Lab<'_>) {
    let crash = lab.wait_pod("crash", "three restarts and a wait", |pod| {
        let waits = status(pod, "app")["state"]["waiting"]["reason"] == "CrashLoopBackOff";
        (restarts(pod, "app") >= 3 && waits).then(|| pod.clone())
    });
    assert_eq!(crash["status"]["phase"], "Running");
    assert_eq!(status(&crash, "app")["lastState"]["terminated"]["exitCode"], 4);
    assert!(has_event(&crash, "BackOff"), "{crash}");
    wait::until("few dead instances", SOON, || match lab.containers("crash").len() {
        1 | 2 => Ok(()),
        count => Err(format!("{count} containers are kept")),
    });

    let ended = |name: &str, phase: &str, count: usize| {
        let pod = lab.wait_phase(name, phase);
        let containers = lab.wait_containers(name, count);
        assert!(containers.iter().all(|c| matches!(c.state, ContainerState::Exited(_))), "{name}: {containers:?}");
        pod
    };
    ended("good", "Succeeded", 1);
    let bad = ended("bad", "Failed", 2);
    assert_eq!((restarts(&bad, "app"), restarts(&bad, "fine")), (0, 0));
    ended("init-fails", "Failed", 1);
    assert!(lab.lines("never").is_empty());
    ended("job", "Succeeded", 2);

    // An OOM kill is told from another exit with its code, and both have their times.
    for (name, reason) in [("greedy", "OOMKilled"), ("killed", "Error")] {
        let pod = ended(name, "Failed", 1);
        let end = &status(&pod, "app")["state"]["terminated"];
        assert_eq!((&end["exitCode"], &end["reason"]), (&json!(137), &json!(reason)), "{pod}");
        assert!(
            ["startedAt", "finishedAt"].iter().all(|time| end[time].as_str().is_some_and(|at| at > "2020")),
            "{end}"
        );
    }

    let third = lab.wait_phase("third", "Succeeded");
    assert_eq!(restarts(&third, "app"), 2);
    assert_eq!(lab.lines("third").len(), 3);

    let late = lab.wait_phase("late", "Failed");
    assert_eq!(late["status"]["reason"], "DeadlineExceeded");
    wait::until("its container's end", SOON, || {
        let containers = lab.containers("late");
        let runs = containers.iter().any(|c| c.state.may_run());
        if runs { Err(format!("{containers:?}")) } else { Ok(()) }
    });
}

fn hooks(lab: &Lab<'_>) {
    let exec = |script: &str| json!({ "exec": { "command": ["sh", "-c", script] } });
    let says_all = json!({ "lifecycle": {
        "postStart": exec("echo postStart >>/shared/hooks"),
        "preStop": exec("echo preStop >>/shared/hooks; sleep 1; echo preStop ends >>/shared/hooks"),
    } });
    let app = shell("app", &until_term("", "echo SIGTERM >>/shared/hooks;"), says_all);
    put(lab, pod("hooks", &[app], json!({ "terminationGracePeriodSeconds": 20 })));
    let sleeps = json!({ "lifecycle": { "preStop": { "sleep": { "seconds": 2 } } } });
    let app = shell("app", &until_term("", "echo SIGTERM >>/shared/sleeps;"), sleeps);
    put(lab, pod("sleeps", &[app], json!({ "terminationGracePeriodSeconds": 20 })));
    let fails = json!({ "lifecycle": { "postStart": exec("echo no; exit 7") } });
    put(lab, pod("hook-fails", &[shell("app", &until_term("", ""), fails)], json!({})));
    let deaf = shell("app", "trap '' TERM; echo run >>/shared/deaf; while true; do sleep 1; done", json!({}));
    put(lab, pod("deaf", &[deaf], json!({ "terminationGracePeriodSeconds": 3 })));
}

fn check_hooks(lab: &Lab<'_>) {
    for name in ["hooks", "sleeps", "deaf"] {
        lab.wait_running(name);
    }
    wait::until("the script of deaf", SOON, || {
        lab.lines("deaf").first().map(|_| ()).ok_or_else(|| "no line".to_owned())
    });
    let asked = Instant::now();
    for name in ["hooks", "sleeps", "deaf"] {
        lab.remove(name);
    }
    wait::until("SIGTERM after a sleep", SOON, || {
        lab.lines("sleeps").first().map(|_| ()).ok_or_else(|| "no SIGTERM".to_owned())
    });
    assert!(asked.elapsed() >= Duration::from_secs(2), "SIGTERM came {:?} after the removal", asked.elapsed());
    lab.wait_gone("deaf");
    assert!(asked.elapsed() >= Duration::from_secs(3), "SIGKILL came {:?} after the removal", asked.elapsed());
    lab.wait_gone("hooks");
    assert_eq!(lab.lines("hooks"), ["postStart", "preStop", "preStop ends", "SIGTERM"]);
    lab.wait_gone("sleeps");

    let failed = lab.wait_pod("hook-fails", "a restart", |pod| (restarts(pod, "app") >= 1).then(|| pod.clone()));
    assert!(has_event(&failed, "FailedPostStartHook"), "{failed}");
}

fn pods_live_as_they_are_told(kind: Containerd) {
    let node = Node::start(kind);
    let lab = Lab::start_with(&node, quick_to_restart);
    ordered(&lab);
    policies(&lab);
    hooks(&lab);
    check_starts_in_order(&lab);
    check_policies(&lab);
    check_hooks(&lab);
    check_ends_in_order(&lab);
}

#[test]
fn pods_live_as_they_are_told_on_the_distributions_containerd() {
    pods_live_as_they_are_told(Containerd::System);
}

#[test]
fn pods_live_as_they_are_told_on_containerd_2() {
    pods_live_as_they_are_told(Containerd::Two);
}

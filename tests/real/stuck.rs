//! One stuck thing delays nothing else: a pull, a hook at the start, a hook at the end, and the whole runtime hang, each for as
//! long as it likes, while other pods start and the agent stays healthy.

use std::{fs, time::Duration, time::Instant};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use super::lab::{Lab, SOON, pod, restarts, shell, status, until_term, with_shared};
use super::pulls::{image, pulling, registry};
use crate::fakes::registry::Fault;
use crate::harness::{Containerd, Node, wait};

/// How long a pod may take while others hang, on a machine that is busy with other tests.
const MEANWHILE: Duration = Duration::from_secs(20);

/// How long the hooks hang: longer than all that happens beside them takes on a busy machine.
const GRACE: Duration = Duration::from_secs(60);

fn hanging_hook(which: &str) -> Value {
    json!({ "lifecycle": { which: { "exec": { "command": ["sh", "-c", "sleep 10000"] } } } })
}

fn simple(name: &str) -> Value {
    pod(name, &[shell("app", &until_term("", ""), json!({}))], json!({}))
}

/// A container that writes down when it started, in seconds since boot, and fails.
fn crasher(lab: &Lab<'_>) -> Value {
    let script = "cut -d' ' -f1 /proc/uptime >>/shared/crashes; exit 1";
    with_shared(lab, pod("crasher", &[shell("app", script, json!({}))], json!({})))
}

/// A containerd that is stopped and goes on again, also when the test fails meanwhile.
struct Halted(Pid);

impl Halted {
    fn containerd(node: &Node) -> Halted {
        let text = fs::read_to_string(node.path("containerd.pid")).expect("containerd's process id");
        let pid = Pid::from_raw(text.trim().parse().expect("a number"));
        kill(pid, Signal::SIGSTOP).expect("stop containerd");
        Halted(pid)
    }
}

impl Drop for Halted {
    fn drop(&mut self) {
        // Fails only when the process is gone, and then there is nothing to wake.
        let _gone = kill(self.0, Signal::SIGCONT);
    }
}

#[track_caller]
fn healthy(lab: &Lab<'_>) {
    let (code, body) = lab.agent.healthz().expect("/healthz answers");
    assert_eq!(code, 200, "{body}");
}

fn one_stuck_thing_delays_no_other(kind: Containerd) {
    let node = Node::start(kind);
    let registry = registry(&node);
    registry.add("big", "1", &image("big"));
    registry.set_fault(Fault::HangBlobs(1000));
    let lab = Lab::start(&node);
    lab.put(&crasher(&lab));

    let app = |more: Value| shell("app", &until_term("", ""), more);
    let grace = json!({ "terminationGracePeriodSeconds": GRACE.as_secs() });
    lab.put(&pod("hook-at-end", &[app(hanging_hook("preStop"))], grace.clone()));
    lab.put(&pod("hook-at-start", &[app(hanging_hook("postStart"))], grace));
    lab.put(&pulling("pulls", &registry.reference("big:1"), "IfNotPresent", &["/busybox", "sleep", "1000"]));
    lab.wait_running("hook-at-end");
    lab.remove("hook-at-end");
    let ends_at = Instant::now() + GRACE;
    let blob = image("big").blobs[1].0.clone();
    assert!(registry.saw(&blob, SOON), "{:?}", registry.requests());
    wait::until("the container with the hook", SOON, || {
        let runs = lab.containers("hook-at-start").iter().any(|container| container.state.may_run());
        if runs { Ok(()) } else { Err("it does not run".to_owned()) }
    });
    lab.wait_pod("hook-at-end", "its end to begin", |pod| (pod["stage"] != "Active").then_some(()));

    for number in 0..3 {
        let name = format!("meanwhile-{number}");
        lab.put(&simple(&name));
        lab.wait_pod_within(&name, "runs while others hang", MEANWHILE, |pod| {
            super::lab::is_running(pod).then_some(())
        });
        healthy(&lab);
    }
    lab.remove("meanwhile-0");
    lab.wait_gone("meanwhile-0");
    healthy(&lab);
    assert!(Instant::now() < ends_at, "the machine is too slow for this test to tell anything");
    let hooked = lab.pod("hook-at-end").expect("it still ends");
    assert_ne!(hooked["stage"], "Active");
    let starting = lab.pod("hook-at-start").expect("it still starts");
    assert!(status(&starting, "app")["state"].get("running").is_none() || starting["stage"] == "Active");

    the_runtime_hangs(&lab);

    // A pod whose hook hangs can be removed; a pull that goes on gets its pod to run; grace ends the hook that hangs.
    lab.remove("hook-at-start");
    registry.set_fault(Fault::None);
    lab.wait_running("pulls");
    lab.wait_gone("hook-at-start");
    lab.wait_gone("hook-at-end");
    back_off_grows(&lab);
}

/// Nothing starts while containerd does not answer; but the agent answers, and goes on as soon as it does.
fn the_runtime_hangs(lab: &Lab<'_>) {
    let before = lab.identities("meanwhile-1").expect("the runtime lists");
    let halted = Halted::containerd(lab.node);
    lab.put(&simple("patient"));
    wait::until("the agent to know the pod", MEANWHILE, || lab.pod("patient").map(|_| ()));
    wait::holds("the agent's health", Duration::from_secs(3), || {
        let (code, body) = lab.agent.healthz()?;
        lab.pods()?;
        if code == 200 { Ok(()) } else { Err(body) }
    });
    drop(halted);
    lab.wait_running("patient");
    assert_eq!(lab.identities("meanwhile-1").expect("the runtime lists"), before);
}

/// The first restart comes at once, the second ten seconds after the end of the first.
fn back_off_grows(lab: &Lab<'_>) {
    let crasher = lab.wait_pod("crasher", "two restarts", |pod| (restarts(pod, "app") >= 2).then(|| pod.clone()));
    let times: Vec<f64> = lab.lines("crashes").iter().map(|line| line.parse().expect("seconds")).collect();
    assert!(times.len() >= 3, "{times:?}");
    assert!(times[2] - times[1] >= 9.9, "the second restart came too early: {times:?}: {crasher}");
}

#[test]
fn one_stuck_thing_delays_no_other_on_the_distributions_containerd() {
    one_stuck_thing_delays_no_other(Containerd::System);
}

#[test]
fn one_stuck_thing_delays_no_other_on_containerd_2() {
    one_stuck_thing_delays_no_other(Containerd::Two);
}

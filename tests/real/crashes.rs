//! kill -9 at any moment, of the agent and of containerd, while pods come, change and go.
//!
//! Moments and changes come from a seed, which is printed: `SEED=… tests/run real::crashes` repeats a run as far as the machine
//! does. Pods that nobody touches keep their sandboxes, containers and restart counts; everything else ends as the
//! manifests say, and when all manifests are gone nothing is left of any pod.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use ferrolet::api::runtime::{ContainerState, RuntimePod, SandboxState};
use serde_json::{Value, json};

use super::lab::{Lab, SOON, pod, put_manifest, remove_manifest, restarts, shell, status, until_term};
use crate::harness::{Agent, Containerd, Node, wait};

/// Rounds on each containerd, so that both together make fifty.
const ROUNDS: u32 = 25;

/// Pods that no test touches after they have started.
const UNTOUCHED: [&str; 3] = ["web", "helped", "job"];

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    /// From SEED, else from the clock; told either way.
    #[allow(clippy::print_stderr, reason = "the test runner shows it with a failure")]
    fn new() -> Dice {
        let given = std::env::var("SEED").ok().map(|seed| seed.parse().expect("SEED is a number"));
        let clock =
            || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |now| u64::from(now.subsec_nanos()));
        let seed = given.unwrap_or_else(clock);
        eprintln!("SEED={seed}");
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit
    }

    /// A moment, sooner more likely than later.
    fn moment(&mut self, longest: u64) -> Duration {
        let longest = 1 + self.below(longest);
        Duration::from_millis(self.below(longest))
    }
}

fn quick_to_restart(config: &mut Value) {
    config["crashLoopBackOff"] = json!({ "maxContainerRestartPeriod": "1s" });
}

fn put_untouched(lab: &Lab<'_>) {
    let web = json!({ "name": "web", "image": "localhost/ferrolet/web:1", "imagePullPolicy": "IfNotPresent" });
    lab.put(&pod("web", &[web], json!({})));
    let helper = shell("helper", &until_term("", ""), json!({ "restartPolicy": "Always" }));
    let init = shell("init", "exit 0", json!({}));
    let app = shell("app", &until_term("", ""), json!({}));
    lab.put(&pod("helped", &[app], json!({ "initContainers": [init, helper] })));
    lab.put(&pod("job", &[shell("app", "exit 0", json!({}))], json!({ "restartPolicy": "Never" })));
    lab.put(&pod("crasher", &[shell("app", "exit 1", json!({}))], json!({})));
}

/// Pods that come, change and go: versions by name.
#[derive(Default)]
struct Churn {
    wanted: BTreeMap<String, u64>,
    versions: u64,
}

impl Churn {
    /// Adds, edits or removes one of four pods.
    fn change(&mut self, node: &Node, dice: &mut Dice) {
        let name = format!("churn-{}", dice.below(4));
        if self.wanted.contains_key(&name) && dice.below(2) == 0 {
            remove_manifest(node, &name);
            self.wanted.remove(&name);
            return;
        }
        self.versions += 1;
        let init = shell("init", "exit 0", json!({}));
        let more = json!({
            "terminationGracePeriodSeconds": 2,
            "initContainers": [init],
            "volumes": [{ "name": "scratch", "emptyDir": { "medium": "Memory" } }],
        });
        let app = json!({
            "volumeMounts": [{ "name": "scratch", "mountPath": "/scratch" }],
            // The runtime keeps this with the container, and so tells which version it is of.
            "terminationMessagePath": version_path(self.versions),
        });
        let pod = pod(&name, &[shell("app", &until_term("", ""), app)], more);
        put_manifest(node, &name, &pod);
        self.wanted.insert(name, self.versions);
    }

    /// What differs between the manifests and the runtime.
    fn differences(&self, pods: &[RuntimePod]) -> Vec<String> {
        let mut found = Vec::new();
        for (name, version) in &self.wanted {
            let full = format!("{name}-node");
            let versions: Vec<_> = pods.iter().filter(|pod| pod.name == full).collect();
            let [pod] = versions.as_slice() else {
                found.push(format!("{name}: {} pods", versions.len()));
                continue;
            };
            let ready = pod.sandboxes.iter().filter(|sandbox| sandbox.state == SandboxState::Ready).count();
            let running = pod.containers.iter().filter(|c| matches!(c.state, ContainerState::Running { .. }));
            let running: Vec<&str> = running.map(|c| c.marks.termination_message_path.as_str()).collect();
            if ready != 1 || running != [version_path(*version)] {
                found.push(format!("{name}: {ready} sandboxes are ready and {running:?} run for version {version}"));
            }
        }
        let unwanted = pods.iter().filter(|pod| {
            let name = pod.name.strip_suffix("-node").unwrap_or(&pod.name);
            name.starts_with("churn-") && !self.wanted.contains_key(name)
        });
        found.extend(unwanted.map(|pod| format!("{} is still there", pod.name)));
        found
    }
}

/// Where the container of a version leaves its last words.
fn version_path(version: u64) -> String {
    format!("/dev/version-{version}")
}

/// Ids and attempts of all pods that nobody touches.
fn untouched(lab: &Lab<'_>) -> Result<Vec<BTreeMap<String, u32>>, String> {
    UNTOUCHED.iter().map(|name| lab.identities(name)).collect()
}

/// The crash looper has each attempt once, at most one container that runs, and counts on.
fn check_crasher(lab: &Lab<'_>, highest: &mut u32) {
    let containers = lab.containers("crasher");
    let mut attempts: Vec<u32> = containers.iter().map(|container| container.attempt).collect();
    attempts.sort_unstable();
    assert!(attempts.windows(2).all(|pair| pair[0] != pair[1]), "one attempt twice: {containers:?}");
    assert!(containers.iter().filter(|c| c.state.may_run()).count() <= 1, "two lives at once: {containers:?}");
    if let Some(last) = attempts.last() {
        assert!(last >= highest, "the restart count fell from {highest} to {last}: {containers:?}");
        *highest = *last;
    }
}

fn nothing_is_lost_to_kill_9(kind: Containerd) {
    let mut dice = Dice::new();
    let node = Node::start(kind);
    let mut lab = Lab::start_with(&node, quick_to_restart);
    put_untouched(&lab);
    lab.wait_running("web");
    lab.wait_running("helped");
    lab.wait_phase("job", "Succeeded");
    lab.wait_pod("crasher", "a restart", |pod| (restarts(pod, "app") >= 1).then_some(()));
    let before = untouched(&lab).expect("the runtime lists");
    let (mut churn, mut crashes) = (Churn::default(), 0);

    for round in 0..ROUNDS {
        for _ in 0..=dice.below(2) {
            churn.change(&node, &mut dice);
        }
        wait::pass(dice.moment(1500));
        let (agent_dies, runtime_dies) = match dice.below(5) {
            0 => (false, true),
            1 => (true, round % 2 == 0),
            _ => (true, false),
        };
        if agent_dies {
            let Lab { agent, runtime, .. } = lab;
            agent.kill();
            if runtime_dies {
                node.kill_containerd();
            }
            if dice.below(2) == 0 {
                churn.change(&node, &mut dice);
            }
            lab = Lab { node: &node, agent: Agent::spawn(&node, quick_to_restart), runtime };
        } else {
            node.kill_containerd();
        }
        if runtime_dies {
            wait::pass(dice.moment(1500));
            node.start_containerd();
        }
        wait::until("the runtime's list", SOON, || untouched(&lab).map(|_| ()));
        assert_eq!(untouched(&lab).expect("the runtime lists"), before, "round {round}");
        check_crasher(&lab, &mut crashes);
    }

    lab.agent.wait_healthy();
    wait::until("what the manifests say", SOON + SOON, || {
        let different = churn.differences(&lab.runtime_pods()?);
        if different.is_empty() { Ok(()) } else { Err(format!("{different:?}")) }
    });
    assert_eq!(untouched(&lab).expect("the runtime lists"), before);
    check_crasher(&lab, &mut crashes);
    lab.wait_pod("crasher", "another restart", |pod| (restarts(pod, "app") > u64::from(crashes)).then_some(()));
    for name in ["web", "helped"] {
        let pod = lab.wait_running(name);
        let counts = pod["status"]["containerStatuses"].as_array().expect("statuses");
        assert!(counts.iter().all(|status| status["restartCount"] == 0), "{pod}");
    }
    let job = lab.wait_phase("job", "Succeeded");
    assert_eq!(status(&job, "app")["restartCount"], 0);

    for name in UNTOUCHED.iter().copied().chain(["crasher"]).chain(churn.wanted.keys().map(String::as_str)) {
        lab.remove(name);
    }
    lab.wait_empty_within(SOON + SOON);
}

#[test]
fn nothing_is_lost_to_kill_9_on_the_distributions_containerd() {
    nothing_is_lost_to_kill_9(Containerd::System);
}

#[test]
fn nothing_is_lost_to_kill_9_on_containerd_2() {
    nothing_is_lost_to_kill_9(Containerd::Two);
}

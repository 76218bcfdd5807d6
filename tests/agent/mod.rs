//! Ring 3, whole: the built agent on a fake runtime that hangs, lies, talks nonsense, goes away and drowns it.
//!
//! Whatever the runtime does, the agent stays up, says what is wrong in plain words, loses nothing, and goes on when the
//! runtime does. Each test has a folder, a fake runtime and an agent of its own; nothing here needs containers, cgroups
//! or mounts. Used from the thread of one test.

mod absence;
mod changes;
mod crowds;
mod endings;
mod faults;
mod lies;
mod log_rotation;
mod manifests;
mod network;
pub(crate) mod node_server;
mod probes;
mod reports;
mod unsupported;

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    fakes::cri::FakeCri,
    harness::{
        Agent,
        config::Ground,
        view::{is_running, story},
        wait,
    },
};

/// How long a test waits for what a busy machine does in a few seconds.
const SOON: Duration = Duration::from_secs(60);

/// A folder for an agent beside a fake runtime.
struct Place {
    folder: tempfile::TempDir,
    endpoint: String,
}

impl Place {
    fn beside(fake: &FakeCri) -> Self {
        let folder = tempfile::Builder::new().prefix("ferrolet-").tempdir_in("/tmp").expect("make a folder");
        Self { folder, endpoint: fake.endpoint() }
    }
}

impl Ground for Place {
    fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().join(relative)
    }

    fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    fn cgroup_root(&self) -> String {
        String::new()
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.stdin(Stdio::null());
        command
    }
}

/// A fake runtime that has the image which the tests' pods run, and a place for an agent beside it.
fn ground() -> (FakeCri, Place) {
    let fake = FakeCri::start();
    fake.add_image("busybox");
    let place = Place::beside(&fake);
    (fake, place)
}

/// The configuration of these tests: no cgroups, and calls that are given up after two seconds.
fn settle(config: &mut Value) {
    config["cgroupsPerQOS"] = json!(false);
    config["enforceNodeAllocatable"] = json!(["none"]);
    config["runtimeRequestTimeout"] = json!("2s");
}

/// Starts an agent and waits until it is healthy.
fn start(place: &Place) -> Agent<'_> {
    start_with(place, "2s")
}

/// The same with another deadline of calls.
fn start_with<'a>(place: &'a Place, timeout: &str) -> Agent<'a> {
    let agent = Agent::spawn(place, |config| {
        settle(config);
        config["runtimeRequestTimeout"] = json!(timeout);
    });
    wait_healthy(&agent);
    agent
}

/// Starts an agent that has no reason to be healthy yet, and waits until it answers at all.
fn start_unwell(place: &Place) -> Agent<'_> {
    let agent = Agent::spawn(place, settle);
    wait::until("an answer of /healthz", SOON, || agent.healthz().map(|_| ()));
    agent
}

/// The manifest of a pod with one container.
fn manifest(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "app", "image": "busybox", "imagePullPolicy": "IfNotPresent" }],
        },
    })
}

/// Puts the manifest of a pod with its spec changed.
fn put_pod(agent: &Agent<'_>, name: &str, change: impl FnOnce(&mut Value)) {
    let mut pod = manifest(name);
    change(&mut pod["spec"]);
    agent.put_manifest(&format!("{name}.yaml"), &pod.to_string());
}

/// A container with more in it.
fn container(name: &str, more: Value) -> Value {
    let mut container = json!({ "name": name, "image": "busybox", "imagePullPolicy": "IfNotPresent" });
    container.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    container
}

fn put(agent: &Agent<'_>, name: &str) {
    agent.put_manifest(&format!("{name}.yaml"), &manifest(name).to_string());
}

/// Has a pod run: puts its manifest there and waits for its container.
#[track_caller]
fn run(agent: &Agent<'_>, name: &str) {
    put(agent, name);
    wait_running(agent, name);
}

fn remove(agent: &Agent<'_>, name: &str) {
    agent.remove_manifest(&format!("{name}.yaml"));
}

#[track_caller]
fn wait_running(agent: &Agent<'_>, name: &str) {
    agent.wait_pod(name, "all containers running", SOON, |pod| is_running(pod).then_some(()));
}

/// Waits until neither agent nor runtime has anything of a pod.
#[track_caller]
fn wait_gone(agent: &Agent<'_>, fake: &FakeCri, name: &str) {
    let full = format!("{name}-node");
    wait::until(&format!("the end of pod {name}"), SOON, || {
        if let Some(pod) = agent.pods()?.iter().find(|pod| pod["name"] == full.as_str()) {
            return Err(story(pod));
        }
        let left = lives(fake, name);
        if left.is_empty() { Ok(()) } else { Err(format!("the runtime has {left:?}")) }
    });
}

/// What the runtime has of a pod, one line a container: id and state. What must not change under a fault.
fn lives(fake: &FakeCri, name: &str) -> Vec<String> {
    let label = format!("default/{name}-node");
    fake.with(|state| {
        let mine = state.containers.values().filter(|it| state.pod_label(&it.sandbox_id) == label);
        mine.map(|it| format!("{} {:?}", it.id, it.life)).collect()
    })
}

/// Waits until /healthz tells of trouble in these words, with ferrolet's own status for it.
#[track_caller]
fn wait_unwell(agent: &Agent<'_>, words: &str) {
    wait::until(&format!("/healthz with {words:?}"), SOON, || match agent.healthz()? {
        (500, body) if body.contains(words) => Ok(()),
        (status, body) => Err(format!("{status}: {body}")),
    });
}

/// Waits until a tool says these words.
#[track_caller]
fn wait_says(agent: &Agent<'_>, tool: &[&str], words: &str) {
    wait_says_all(agent, tool, &[words]);
}

/// Waits until a tool says all these words in one answer.
#[track_caller]
fn wait_says_all(agent: &Agent<'_>, tool: &[&str], words: &[&str]) {
    wait::until(&format!("{words:?} from {tool:?}"), SOON, || {
        let said = agent.tool_says(tool);
        if words.iter().all(|words| said.contains(words)) { Ok(()) } else { Err(said) }
    });
}

/// Waits until the node is well again in /healthz's eyes: a busy machine may have it miss a deadline at any time.
#[track_caller]
fn wait_healthy(agent: &Agent<'_>) {
    wait::until("a healthy agent", SOON, || match agent.healthz()? {
        (200, _) => Ok(()),
        (status, body) => Err(format!("{status}: {body}")),
    });
}

/// Waits until the node is well again in everybody's eyes.
#[track_caller]
fn wait_well(agent: &Agent<'_>) {
    wait_healthy(agent);
    wait_says(agent, &["why"], "all pods run as they should");
}

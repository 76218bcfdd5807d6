//! The harness on trial, with no agent: both containerds run a pod, survive a kill of containerd, and leave nothing behind.

use std::{fs, path::Path, process::Command, time::Duration};

use serde_json::json;

use super::{Agent, Containerd, Node, agent::get, config::free_port, wait};

/// How long is waited for what takes seconds on a quiet machine.
const SOON: Duration = Duration::from_secs(90);

/// Runs the web image in a pod with crictl and gives the port on loopback that it answers on.
fn run_web_pod(node: &Node) -> u16 {
    let port = free_port();
    let pod = json!({
        "metadata": { "name": "web", "namespace": "default", "uid": "web-uid", "attempt": 0 },
        "log_directory": node.path("pod-logs/web"),
        "port_mappings": [{ "host_port": port, "container_port": 8080, "protocol": 0 }],
        "linux": { "cgroup_parent": format!("/{}/podweb", node.name()) },
    });
    let container = json!({
        "metadata": { "name": "web", "attempt": 0 },
        "image": { "image": "localhost/ferrolet/web:1" },
        "envs": [{ "key": "GREETING", "value": "good morning" }],
        "log_path": "web.log",
        "linux": {},
    });
    let write = |name: &str, value: &serde_json::Value| {
        fs::write(node.path(name), value.to_string()).expect("write what crictl reads");
        node.path(name).display().to_string()
    };
    let (container, pod) = (write("container.json", &container), write("pod.json", &pod));
    node.crictl(&["run", "--no-pull", &container, &pod]);
    port
}

fn wait_for_greeting(port: u16) {
    wait::until("the web pod's answer", SOON, || match get(port, "/")? {
        (200, body) if body.starts_with("good morning") => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

/// What is to be seen of a node from outside of it: bridge, cgroups, mounts, rules, processes.
///
/// The folder goes to the script by environment: as an argument it would stand in the command line of each child that
/// the shell has forked and that has not yet become its program, and the search would now and then find itself.
pub(crate) fn traces(name: &str, folder: &Path) -> String {
    let script = r#"
        ip -o link show "$0" 2>/dev/null
        iptables-save -t nat | grep -F "name: \\\"$0\\\""
        find /sys/fs/cgroup -type d \( -path "*/$0" -o -path "*/$0/*" \)
        grep -F -f - /proc/mounts <<<"$FOLDER"
        grep -alF -f - /proc/[0-9]*/cmdline <<<"$FOLDER"
        ls /var/lib/cni/results | grep -F -e "$0-"
        ls -d "$FOLDER" 2>/dev/null
    "#;
    let output = Command::new("bash").args(["-c", script, name]).env("FOLDER", folder).output().expect("start bash");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn a_pod_runs_and_leaves_nothing(kind: Containerd) {
    let node = Node::start(kind);
    let port = run_web_pod(&node);
    wait_for_greeting(port);

    node.kill_containerd();
    wait_for_greeting(port);
    node.start_containerd();
    assert_eq!(node.containers(&["--state", "running"]).len(), 1);

    let (name, folder) = (node.name().to_owned(), node.path(""));
    let while_it_runs = traces(&name, &folder);
    for trace in ["state UP", "HOSTPORT", "podweb", "cmdline", "-eth0"] {
        assert!(while_it_runs.contains(trace), "the search for traces does not see {trace}:\n{while_it_runs}");
    }
    drop(node);
    assert_eq!(traces(&name, &folder), "");
}

#[test]
fn a_pod_on_the_distributions_containerd_leaves_nothing() {
    a_pod_runs_and_leaves_nothing(Containerd::System);
}

#[test]
fn a_pod_on_containerd_2_leaves_nothing() {
    a_pod_runs_and_leaves_nothing(Containerd::Two);
}

/// The manifest of a pod that greets on `port` of loopback.
pub(crate) fn web_manifest(greeting: &str, port: u16) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "web" },
        "spec": { "terminationGracePeriodSeconds": 2, "containers": [{
            "name": "web",
            "image": "localhost/ferrolet/web:1",
            "env": [{ "name": "GREETING", "value": greeting }],
            "ports": [{ "containerPort": 8080, "hostIP": "127.0.0.1", "hostPort": port }],
        }] },
    })
    .to_string()
}

fn the_agent_keeps_a_pod(kind: Containerd) {
    let node = Node::start(kind);
    let port = free_port();
    let agent = Agent::start(&node);
    agent.put_manifest("web.yaml", &web_manifest("good morning", port));
    wait_for_greeting(port);
    let ids = || node.containers(&[]).into_iter().map(|container| container["id"].clone()).collect::<Vec<_>>();
    let before = ids();
    let shown = agent.tool(&["ps"]).expect("ps");
    assert!(shown.contains("web-node"), "{shown}");
    wait::until("the pod's log", SOON, || match agent.tool(&["logs", "web-node"])? {
        log if log.contains("answered /") => Ok(()),
        log => Err(log),
    });

    agent.kill();
    wait_for_greeting(port);
    let agent = Agent::start(&node);
    wait::holds("the same container", Duration::from_secs(2), || {
        let now = ids();
        if now == before { Ok(()) } else { Err(format!("was {before:?} and is {now:?}")) }
    });

    agent.remove_manifest("web.yaml");
    wait::until("an empty node", SOON, || match ids().len() {
        0 => Ok(()),
        count => Err(format!("{count} containers")),
    });
    assert!(agent.terminate().success(), "SIGTERM ends the agent well");
}

#[test]
fn the_agent_keeps_a_pod_on_the_distributions_containerd() {
    the_agent_keeps_a_pod(Containerd::System);
}

#[test]
fn the_agent_keeps_a_pod_on_containerd_2() {
    the_agent_keeps_a_pod(Containerd::Two);
}

//! A node that changes hands: the upstream kubelet is stopped and ferrolet started with the same command line, and back again. No
//! container restarts, and nothing of what the API has of the pods changes.
//!
//! Used from the thread of one test.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Child, Command},
    time::Duration,
};

use serde_json::{Value, json};

use super::endings::{RUNS, is_ready, pod, shell};
use super::lab::{Ground, SOON};
use super::upstream::differences;
use crate::harness::{Cluster, config, node::show_end_of, wait};

/// What may differ once the upstream kubelet is started again: it may see a static pod before the API server has shown it the pod's
/// mirror, and then tells of the pod as of a new one. Ferrolet may not.
fn is_upstreams_race(difference: &str) -> bool {
    let path = difference.split(':').next().unwrap_or_default();
    path.starts_with("pods.\"still-") && (path.ends_with(".startTime") || path.ends_with(".lastTransitionTime"))
}

/// Upstream reads a pod's limits back from cgroup v1, whose word for "no limit" of memory it then tells as a limit of 8 EiB;
/// ferrolet tells what is asked for.
const NO_LIMIT: &str = "9007199254740988Ki";

/// How long nothing may change once the new agent has shown that it is in charge: some rounds of either one's housekeeping.
const A_WHILE: Duration = Duration::from_secs(8);

/// Either agent, started by the same command line but for the program.
struct Agent<'ground> {
    ground: &'ground Ground<'ground>,
    process: Child,
    log: &'static str,
}

impl<'ground> Agent<'ground> {
    fn start(ground: &'ground Ground<'ground>, command: &Command, program: &Path, log: &'static str) -> Self {
        let mut own = Command::new(command.get_program());
        for argument in command.get_args() {
            let is_program = Path::new(argument).ends_with("bin/kubelet");
            own.arg(if is_program { program.as_os_str() } else { argument });
        }
        own.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let path = ground.node.path(log);
        let file = fs::File::options().create(true).append(true).open(path).expect("open the log");
        let process =
            own.stdin(std::process::Stdio::null()).stdout(file.try_clone().expect("share the log")).stderr(file);
        Self { ground, process: process.spawn().expect("start an agent"), log }
    }

    /// Asks it to end, as a service manager does, and waits for that.
    fn stop(mut self) {
        let pid = nix::unistd::Pid::from_raw(self.process.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("send SIGTERM");
        wait::until("the end of an agent", SOON, || {
            self.process.try_wait().map_err(|err| err.to_string())?.ok_or_else(|| "it still runs".to_owned())
        });
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show_end_of(&self.ground.node.path(self.log));
        }
        // Both fail only when the process has ended already.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Everything that must not change: containers of the node with how they are, and pods of the API.
fn everything(ground: &Ground<'_>, namespace: &str) -> Result<Value, String> {
    let containers = ground.node.containers(&["-a"]);
    let containers: BTreeMap<String, String> = containers
        .iter()
        .map(|it| (it["id"].to_string(), format!("{} {}", it["metadata"]["name"], it["state"])))
        .collect();
    let list = ground.cluster.get(&["-n", namespace, "pods"])?;
    let pods: BTreeMap<String, Value> = list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|pod| {
            let mut pod = pod.clone();
            if pod["status"]["resources"]["limits"]["memory"] == NO_LIMIT {
                pod["status"]["resources"]["limits"].as_object_mut().expect("an object").remove("memory");
            }
            let metadata = json!({ "uid": pod["metadata"]["uid"], "annotations": pod["metadata"]["annotations"] });
            (pod["metadata"]["name"].to_string(), json!({ "metadata": metadata, "status": pod["status"] }))
        })
        .collect();
    Ok(json!({ "containers": containers, "pods": pods }))
}

/// Has an agent show that it is in charge, by a pod that it runs and ends.
fn run_and_end(ground: &Ground<'_>, namespace: &str, name: &str) {
    ground.cluster.apply(&pod(namespace, name, &ground.name, &[shell("a", RUNS)]));
    wait::until("a new pod", 2 * SOON, || {
        let pod = ground.cluster.get(&["-n", namespace, "pod", name])?;
        if is_ready(&pod) { Ok(()) } else { Err(format!("{:#}", pod["status"])) }
    });
    ground.cluster.kubectl(&["-n", namespace, "delete", "pod", name, "--wait=true", "--timeout=120s"]).expect("delete");
    wait::until("the end of its container", SOON, || {
        let left = ground.node.crictl(&["pods", "-q", "--namespace", namespace, "--name", name]);
        if left.trim().is_empty() { Ok(()) } else { Err(left) }
    });
}

/// Nothing but time has passed.
#[track_caller]
fn assert_unchanged(ground: &Ground<'_>, namespace: &str, before: &Value, accepts: fn(&str) -> bool) {
    wait::holds("everything as it was", A_WHILE, || {
        let mut found = differences(&everything(ground, namespace)?, before, &[]);
        found.retain(|difference| !accepts(difference));
        if found.is_empty() { Ok(()) } else { Err(format!("(first is now)\n  {}", found.join("\n  "))) }
    });
}

/// Pods of every kind that lives on: several containers, one that has crashed, init containers and a sidecar, volumes, one that is
/// done, one on the node's network.
fn pods(namespace: &str, node: &str) -> Vec<Value> {
    let mut chain = pod(namespace, "chain", node, &[shell("app", RUNS)]);
    let mut side = shell("side", RUNS);
    side["restartPolicy"] = "Always".into();
    chain["spec"]["initContainers"] = json!([shell("first", "true"), side]);
    chain["spec"]["volumes"] =
        json!([{ "name": "work", "emptyDir": {} }, { "name": "memory", "emptyDir": { "medium": "Memory" } }]);
    chain["spec"]["containers"][0]["volumeMounts"] =
        json!([{ "name": "work", "mountPath": "/data" }, { "name": "memory", "mountPath": "/memory" }]);
    let mut crashed = pod(
        namespace,
        "crashed",
        node,
        &[shell("a", &format!("[ -e /data/been ] || {{ touch /data/been; exit 3; }}; {RUNS}"))],
    );
    crashed["spec"]["volumes"] = json!([{ "name": "work", "emptyDir": {} }]);
    crashed["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "work", "mountPath": "/data" }]);
    let mut done = pod(namespace, "done", node, &[shell("good", "exit 0"), shell("bad", "exit 7")]);
    done["spec"]["restartPolicy"] = "Never".into();
    let mut host = pod(namespace, "host", node, &[shell("a", RUNS)]);
    host["spec"]["hostNetwork"] = true.into();
    let mut limited = pod(namespace, "limited", node, &[shell("a", RUNS), shell("b", RUNS)]);
    for container in limited["spec"]["containers"].as_array_mut().expect("a list") {
        container["resources"] =
            json!({ "requests": { "cpu": "10m", "memory": "16Mi" }, "limits": { "cpu": "100m", "memory": "32Mi" } });
        container["readinessProbe"] =
            json!({ "exec": { "command": ["true"] }, "periodSeconds": 1, "timeoutSeconds": 30 });
    }
    vec![chain, crashed, done, host, limited]
}

fn has_settled(pod: &Value) -> bool {
    if pod["metadata"]["name"] == "done" {
        return pod["status"]["phase"] == "Failed"
            && pod["status"]["containerStatuses"]
                .as_array()
                .is_some_and(|all| all.iter().all(|c| c["state"]["terminated"].is_object()));
    }
    is_ready(pod)
}

#[test]
fn a_node_changes_hands_and_no_container_restarts() {
    let ground = Ground::new(Cluster::shared());
    let namespace = format!("takeover-{}", ground.name);
    ground.cluster.namespace(&namespace);
    let manifests = ground.node.path("manifests");
    fs::create_dir_all(&manifests).expect("make a folder");
    let port = config::free_port();
    let mut command = config::upstream_kubelet(
        &ground.node,
        &ground.cluster.path("pki"),
        &ground.name,
        &ground.kubeconfig,
        |config| {
            config["port"] = port.into();
            config["staticPodPath"] = json!(manifests);
            config["evictionHard"] =
                json!({ "memory.available": "1Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi" });
        },
    )
    .expect("write the configuration");
    command.env("HOME", ground.node.path(""));
    let upstream = crate::harness::node::peers().join("bin/kubelet");
    let ferrolet = Path::new(env!("CARGO_BIN_EXE_ferrolet"));
    let mut still = pod(&namespace, "still", "", &[shell("a", RUNS), shell("b", RUNS)]);
    still["spec"].as_object_mut().expect("a spec").remove("nodeName");
    fs::write(manifests.join("still.json"), still.to_string()).expect("write a manifest");

    let agent = Agent::start(&ground, &command, &upstream, "upstream.log");
    ground.wait_ready();
    pods(&namespace, &ground.name).iter().for_each(|pod| ground.cluster.apply(pod));
    wait::until("all pods as they shall be", 3 * SOON, || {
        let list = ground.cluster.get(&["-n", &namespace, "pods"])?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let open: Vec<String> = items
            .iter()
            .filter(|pod| !has_settled(pod))
            .map(|pod| format!("{}: {:#}", pod["metadata"]["name"], pod["status"]))
            .collect();
        if items.len() == 6 && open.is_empty() { Ok(()) } else { Err(open.join("\n")) }
    });
    agent.stop();
    // It forgets some things over a restart of its own, such as the address of a pod that is done.
    let agent = Agent::start(&ground, &command, &upstream, "upstream.log");
    run_and_end(&ground, &namespace, "by-upstream");
    let before = everything(&ground, &namespace).expect("a look");
    agent.stop();

    let agent = Agent::start(&ground, &command, ferrolet, "ferrolet.log");
    run_and_end(&ground, &namespace, "by-ferrolet");
    assert_unchanged(&ground, &namespace, &before, |_| false);
    agent.stop();
    // One that is started again has only its records and the runtime to go by.
    let agent = Agent::start(&ground, &command, ferrolet, "ferrolet.log");
    run_and_end(&ground, &namespace, "by-ferrolet-again");
    assert_unchanged(&ground, &namespace, &before, |_| false);
    agent.stop();

    let agent = Agent::start(&ground, &command, &upstream, "upstream.log");
    run_and_end(&ground, &namespace, "by-upstream-again");
    assert_unchanged(&ground, &namespace, &before, is_upstreams_race);

    // It all ends as it would have.
    fs::remove_file(manifests.join("still.json")).expect("remove the manifest");
    ground.cluster.kubectl(&["-n", &namespace, "delete", "pods", "--all", "--wait=false"]).expect("delete all pods");
    wait::until("the end of all pods", 2 * SOON, || {
        let left = ground.node.containers(&["-a"]);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    agent.stop();
}

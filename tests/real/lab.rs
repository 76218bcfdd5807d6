//! A node with an agent on it, and the eyes of a test: the agent's local socket and the runtime's own lists.
//!
//! Also how manifests are written here. Used from the thread of one test.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    time::Duration,
};

use ferrolet::api::runtime::{RuntimeContainer, RuntimePod};
use ferrolet::cri::Client;
use ferrolet::util::cancel::Cancel;
use serde_json::{Value, json};

use crate::harness::{Agent, Node, wait};

pub(super) use crate::harness::view::{is_running, story};

/// How long a test waits for what a busy machine does in a few seconds.
pub(super) const SOON: Duration = Duration::from_secs(90);

/// A node with an agent, which can be killed and started again.
pub(super) struct Lab<'node> {
    pub(super) node: &'node Node,
    pub(super) agent: Agent<'node>,
    pub(super) runtime: Client,
}

impl<'node> Lab<'node> {
    /// Starts an agent on the node, with the KubeletConfiguration changed by `change`.
    pub(super) fn start_with(node: &'node Node, change: impl FnOnce(&mut Value)) -> Lab<'node> {
        let runtime = Client::new(&node.endpoint(), None, Duration::from_secs(60)).expect("an endpoint");
        Lab { node, agent: Agent::start_with(node, change), runtime }
    }

    /// The same with the harness' configuration.
    pub(super) fn start(node: &'node Node) -> Lab<'node> {
        Lab::start_with(node, |_| ())
    }

    /// Puts a pod's manifest into the folder, as `NAME.yaml`.
    pub(super) fn put(&self, pod: &Value) {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        put_manifest(self.node, name, pod);
    }

    /// Takes a pod's manifest away.
    pub(super) fn remove(&self, name: &str) {
        remove_manifest(self.node, name);
    }

    /// A folder of the node that containers get as `/shared`, see [`shared`].
    pub(super) fn shared(&self) -> PathBuf {
        self.node.path("shared")
    }

    /// The lines of a file in `/shared`; none if it is not there.
    pub(super) fn lines(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.shared().join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// All pods that the agent knows.
    pub(super) fn pods(&self) -> Result<Vec<Value>, String> {
        self.agent.pods()
    }

    /// What the agent could not use of a manifest file; empty if nothing is wrong with it.
    pub(super) fn problem_of(&self, file: &str) -> Result<String, String> {
        self.agent.problem_of(file)
    }

    /// One pod, by its name in the manifest. When two lives of a name overlap, the one that is not on its way out.
    pub(super) fn pod(&self, name: &str) -> Result<Value, String> {
        self.agent.pod(name)
    }

    /// Waits until `look` has what it wants of a pod.
    #[track_caller]
    pub(super) fn wait_pod<T>(&self, name: &str, what: &str, look: impl Fn(&Value) -> Option<T>) -> T {
        self.wait_pod_within(name, what, SOON, look)
    }

    /// The same with a deadline of its own.
    #[track_caller]
    pub(super) fn wait_pod_within<T>(
        &self,
        name: &str,
        what: &str,
        within: Duration,
        look: impl Fn(&Value) -> Option<T>,
    ) -> T {
        self.agent.wait_pod(name, what, within, look)
    }

    /// Waits for a phase.
    #[track_caller]
    pub(super) fn wait_phase(&self, name: &str, phase: &str) -> Value {
        self.wait_pod(name, phase, |pod| (pod["status"]["phase"] == phase).then(|| pod.clone()))
    }

    /// Waits until every container of a pod runs (or is done, in a pod with init containers).
    #[track_caller]
    pub(super) fn wait_running(&self, name: &str) -> Value {
        self.wait_pod(name, "all containers running", |pod| is_running(pod).then(|| pod.clone()))
    }

    /// Waits until neither agent nor runtime has anything of a pod.
    #[track_caller]
    pub(super) fn wait_gone(&self, name: &str) {
        let full = format!("{name}-node");
        wait::until(&format!("the end of pod {name}"), SOON, || {
            let known = self.pods()?;
            if let Some(pod) = known.iter().find(|pod| pod["name"] == full.as_str()) {
                return Err(story(pod));
            }
            match self.runtime_pods()?.iter().find(|pod| pod.name == full) {
                Some(pod) => Err(format!("the runtime has {pod:?}")),
                None => Ok(()),
            }
        });
    }

    /// What the runtime has.
    pub(super) fn runtime_pods(&self) -> Result<Vec<RuntimePod>, String> {
        self.runtime.list_pods(&Cancel::never()).map_err(|err| err.to_string())
    }

    /// The runtime's containers of a pod, oldest first, dead ones included.
    pub(super) fn containers(&self, name: &str) -> Vec<RuntimeContainer> {
        let full = format!("{name}-node");
        let pods = self.runtime_pods().expect("the runtime lists");
        let mut found: Vec<_> =
            pods.into_iter().filter(|pod| pod.name == full).flat_map(|pod| pod.containers).collect();
        found.sort_by_key(|container| container.created_at);
        found
    }

    /// Waits until the runtime has so many containers of a pod, and gives them, oldest first.
    #[track_caller]
    pub(super) fn wait_containers(&self, name: &str, count: usize) -> Vec<RuntimeContainer> {
        wait::until(&format!("{count} containers of pod {name}"), SOON, || {
            let found = self.containers(name);
            if found.len() == count { Ok(found) } else { Err(format!("{found:?}")) }
        })
    }

    /// Ids and attempts of a pod's sandboxes and containers: what must not change under a restart of the agent.
    pub(super) fn identities(&self, name: &str) -> Result<BTreeMap<String, u32>, String> {
        let full = format!("{name}-node");
        let mut found = BTreeMap::new();
        for pod in self.runtime_pods()?.into_iter().filter(|pod| pod.name == full) {
            found.extend(pod.sandboxes.iter().map(|s| (format!("sandbox {}", s.id), s.attempt)));
            found.extend(pod.containers.iter().map(|c| (format!("{} {}", c.name, c.id), c.attempt)));
        }
        Ok(found)
    }

    /// Everything of a node that a pod leaves behind if nobody cleans up: one line each.
    pub(super) fn leftovers(&self, uid: &str) -> Vec<String> {
        let script = r#"
            find /sys/fs/cgroup -type d -path "*/$NAME/*" -name "*$POD*"
            find "$DIR/kubelet" "$DIR/pod-logs" "$DIR/manifests" -name "*$POD*"
            grep -rlF -- "$POD" "$DIR/kubelet/ferrolet" --include '*.json'
            grep -F -- "$POD" /proc/self/mounts
            true
        "#;
        let mut command = self.node.command("bash");
        command.args(["-c", script]).env("NAME", self.node.name()).env("POD", uid).env("DIR", self.node.path(""));
        let output = command.output().expect("start bash");
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }

    /// Waits until nothing of any pod is left: in the agent, the runtime, the folders, the cgroups, the mounts.
    #[track_caller]
    pub(super) fn wait_empty_within(&self, within: Duration) {
        let script = r#"
            find /sys/fs/cgroup -type d -path "*/$NAME/kubepods/*pod*"
            find "$DIR/kubelet/pods" "$DIR/pod-logs" "$DIR/kubelet/ferrolet/pods" -mindepth 1
            grep -F -- "$DIR/kubelet/" /proc/self/mounts
            true
        "#;
        wait::until("an empty node", within, || {
            if let Some(pod) = self.pods()?.first() {
                return Err(story(pod));
            }
            if let Some(pod) = self.runtime_pods()?.first() {
                return Err(format!("the runtime has {pod:?}"));
            }
            let mut command = self.node.command("bash");
            command.args(["-c", script]).env("NAME", self.node.name()).env("DIR", self.node.path(""));
            let output = command.output().map_err(|err| err.to_string())?;
            let left = [output.stdout, output.stderr].concat();
            if left.is_empty() { Ok(()) } else { Err(String::from_utf8_lossy(&left).into_owned()) }
        });
    }

    /// Waits until nothing of a pod that was removed is left on the machine.
    #[track_caller]
    pub(super) fn wait_no_leftovers(&self, uid: &str) {
        wait::until("a clean machine", SOON, || {
            let left = self.leftovers(uid);
            if left.is_empty() { Ok(()) } else { Err(left.join("\n")) }
        });
    }
}

/// Puts a manifest as `NAME.yaml` into the folder of a node, in one step, whether an agent runs or not.
pub(super) fn put_manifest(node: &Node, name: &str, pod: &Value) {
    let half = node.path(&format!("manifests/.{name}.half"));
    std::fs::write(&half, pod.to_string()).expect("write a manifest");
    std::fs::rename(half, node.path(&format!("manifests/{name}.yaml"))).expect("rename a manifest");
}

/// Takes a manifest away again.
pub(super) fn remove_manifest(node: &Node, name: &str) {
    std::fs::remove_file(node.path(&format!("manifests/{name}.yaml"))).expect("remove a manifest");
}

/// The status of one container of a pod, of whatever kind.
pub(super) fn status<'pod>(pod: &'pod Value, container: &str) -> &'pod Value {
    let lists = ["initContainerStatuses", "containerStatuses"].map(|list| pod["status"][list].as_array());
    lists.into_iter().flatten().flatten().find(|status| status["name"] == container).unwrap_or(&Value::Null)
}

/// The restart count of one container.
pub(super) fn restarts(pod: &Value, container: &str) -> u64 {
    status(pod, container)["restartCount"].as_u64().unwrap_or(0)
}

/// Whether an event of this reason has come.
pub(super) fn has_event(pod: &Value, reason: &str) -> bool {
    pod["events"].as_array().into_iter().flatten().any(|event| event["reason"] == reason)
}

/// A pod of these containers, with `more` laid over its spec. It gets `/shared` if the node's folder is given.
pub(super) fn pod(name: &str, containers: &[Value], more: Value) -> Value {
    let mut spec = json!({ "terminationGracePeriodSeconds": 5, "containers": containers });
    merge(&mut spec, more);
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": spec })
}

/// A busybox container that runs a script, with `more` laid over it.
pub(super) fn shell(name: &str, script: &str, more: Value) -> Value {
    let mut container = json!({
        "name": name,
        "image": "docker.io/library/busybox:latest",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
    });
    merge(&mut container, more);
    container
}

/// A script that goes on until SIGTERM, and ends at once then, after `last`.
pub(super) fn until_term(first: &str, last: &str) -> String {
    format!("trap '{last} exit 0' TERM; {first} while true; do sleep 1 & wait $!; done")
}

/// The volume and the mount of the node's shared folder.
pub(super) fn shared(lab: &Lab<'_>) -> (Value, Value) {
    std::fs::create_dir_all(lab.shared()).expect("make the shared folder");
    let volume = json!({ "name": "shared", "hostPath": { "path": lab.shared() } });
    (volume, json!({ "name": "shared", "mountPath": "/shared" }))
}

/// Gives a pod's containers, init containers too, the node's shared folder.
pub(super) fn with_shared(lab: &Lab<'_>, mut pod: Value) -> Value {
    let (volume, mount) = shared(lab);
    push(&mut pod["spec"]["volumes"], volume);
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            push(&mut container["volumeMounts"], mount.clone());
        }
    }
    pod
}

fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = json!([item]),
    }
}

/// Lays one JSON object over another.
fn merge(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                merge(under.entry(key).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over,
    }
}

/// What a pod answers on its own address.
pub(super) fn get_from(address: &str, port: u16) -> Result<String, String> {
    let address = SocketAddr::new(address.parse().map_err(|err| format!("{address:?}: {err}"))?, port);
    let exchange = || -> std::io::Result<String> {
        let limit = Duration::from_secs(2);
        let mut stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_read_timeout(Some(limit))?;
        write!(stream, "GET / HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.take(1 << 20).read_to_string(&mut answer)?;
        Ok(answer)
    };
    exchange().map_err(|err| format!("{address}: {err}"))
}

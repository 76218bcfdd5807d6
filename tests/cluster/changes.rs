//! What changes in a pod of a real control plane while it runs: containers that `kubectl debug` adds, CPU and memory.

use serde_json::{Value, json};

use super::endings::{RUNS, pod, shell};
use super::lab::{Ground, SOON};
use crate::harness::{Cluster, Containerd, wait};

/// A pod on a node of its own.
struct Subject<'ground> {
    ground: &'ground Ground<'ground>,
    name: &'static str,
}

impl Subject<'_> {
    fn get(&self) -> Result<Value, String> {
        self.ground.cluster.get(&["-n", &self.ground.name, "pod", self.name])
    }

    #[track_caller]
    fn wait(&self, what: &str, look: impl Fn(&Value) -> bool) -> Value {
        wait::until(&format!("pod {}: {what}", self.name), SOON, || {
            let pod = self.get()?;
            if look(&pod) { Ok(pod) } else { Err(format!("{:#}", pod["status"])) }
        })
    }

    #[track_caller]
    fn kubectl(&self, arguments: &[&str]) -> String {
        self.ground.cluster.kubectl(&[&["-n", self.ground.name.as_str()], arguments].concat()).expect("kubectl works")
    }

    /// Adds a debug container that runs a script, and waits for its end.
    #[track_caller]
    fn debug(&self, container: &str, more: &[&str], script: &str) -> Value {
        let image = "--image=docker.io/library/busybox:latest";
        let common = ["debug", self.name, image, "--image-pull-policy=IfNotPresent", "-c", container];
        self.kubectl(&[&common[..], more, &["--", "sh", "-c", script]].concat());
        let ended = |pod: &Value| ephemeral(pod, container)["state"]["terminated"].is_object();
        ephemeral(&self.wait(&format!("end of {container}"), ended), container).clone()
    }
}

fn ephemeral<'pod>(pod: &'pod Value, container: &str) -> &'pod Value {
    let all = pod["status"]["ephemeralContainerStatuses"].as_array();
    all.into_iter().flatten().find(|status| status["name"] == container).unwrap_or(&Value::Null)
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["containerStatuses"].as_array().is_some_and(|all| all.iter().all(|status| status["ready"] == true))
}

#[test]
fn debug_containers_join_a_running_pod_once() {
    let ground = Ground::with_namespace(Cluster::shared());
    let agent = ground.joined();
    let subject = Subject { ground: &ground, name: "subject" };
    let mut object = pod(&ground.name, subject.name, &ground.name, &[shell("app", RUNS), shell("other", RUNS)]);
    object["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "v", "mountPath": "/v" }]);
    object["spec"]["volumes"] = json!([{ "name": "v", "emptyDir": {} }]);
    ground.cluster.apply(&object);
    let before = subject.wait("ready", is_ready);

    // In the target's pid namespace the first process is the target's; alone, one sees only oneself.
    let look = "tr '\\0' ' ' </proc/1/cmdline >/dev/termination-log; echo \"$WORD\"; exit 3";
    let guest = subject.debug("guest", &["--target=app", "--env=WORD=hello"], look);
    let end = &guest["state"]["terminated"];
    assert_eq!((&end["exitCode"], &end["reason"]), (&json!(3), &json!("Error")));
    assert!(end["message"].as_str().is_some_and(|words| words.contains("while :; do sleep")), "{end}");
    assert!(end["startedAt"].as_str().is_some_and(|time| time > "2020"), "{end}");
    assert_eq!((&guest["restartCount"], &guest["ready"]), (&json!(0), &json!(false)));
    let alone = subject.debug("alone", &[], look);
    let words = alone["state"]["terminated"]["message"].as_str().unwrap_or_default();
    assert!(words.contains("/proc/1/cmdline"), "{alone}");

    wait::until("the events of the guest", SOON, || {
        let events = ground.cluster.get(&["-n", &ground.name, "events"])?;
        let about = |event: &&Value| event["involvedObject"]["fieldPath"] == "spec.ephemeralContainers{guest}";
        let told: Vec<&str> = events["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(about)
            .filter_map(|e| e["reason"].as_str())
            .collect();
        if ["Pulled", "Created", "Started"].iter().all(|word| told.contains(word)) {
            Ok(())
        } else {
            Err(format!("{told:?}"))
        }
    });

    // They ended, and neither a new life of the agent nor another one beside them brings them back.
    agent.kill();
    let agent = ground.join(&[], |_| ());
    let third = subject.debug("third", &["--target=other"], "exit 0");
    assert_eq!(third["state"]["terminated"]["reason"], "Completed");
    let after = subject.wait("all three", |pod| !ephemeral(pod, "third").is_null());
    assert_eq!(ephemeral(&after, "guest"), &guest);
    assert_eq!(ephemeral(&after, "alone"), &alone);
    assert_eq!(after["status"]["containerStatuses"], before["status"]["containerStatuses"], "nothing else was touched");
    assert_eq!(after["status"]["phase"], "Running");
    let words = agent.tool_says(&["describe", &format!("{}/{}", ground.name, subject.name)]);
    assert!(words.contains("guest"), "{words}");
    subject.kubectl(&["delete", "pod", subject.name, "--wait=false"]);
    wait::until("an empty runtime", SOON, || {
        let left = ground.node.containers(&["-a"]);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}

impl Subject<'_> {
    /// Asks for other resources of a container.
    #[track_caller]
    fn resize(&self, container: &str, resources: Value) {
        let patch = json!({ "spec": { "containers": [{ "name": container, "resources": resources }] } });
        self.kubectl(&["patch", "pod", self.name, "--subresource", "resize", "-p", &patch.to_string()]);
    }

    /// Waits until a container has these limits and nothing is left to do, and gives its status.
    #[track_caller]
    fn wait_limits(&self, container: &str, cpu: &str, memory: &str) -> Value {
        let status = |pod: &Value| {
            let all = pod["status"]["containerStatuses"].as_array();
            all.into_iter().flatten().find(|status| status["name"] == container).cloned().unwrap_or_default()
        };
        let done = |pod: &Value| {
            let status = status(pod);
            let limits = &status["resources"]["limits"];
            let is_rest =
                resize_condition(pod, "PodResizeInProgress").is_null() && status["state"]["running"].is_object();
            limits["cpu"] == cpu && limits["memory"] == memory && is_rest
        };
        status(&self.wait(&format!("{container} with {cpu} and {memory}"), done))
    }
}

fn resize_condition<'pod>(pod: &'pod Value, type_: &str) -> &'pod Value {
    crate::harness::cluster::condition(pod, type_)
}

#[test]
fn cpu_and_memory_change_in_place_on_containerd_2() {
    cpu_and_memory_change_in_place(Containerd::Two);
}

#[test]
fn cpu_and_memory_change_in_place_on_the_distributions_containerd() {
    cpu_and_memory_change_in_place(Containerd::System);
}

fn cpu_and_memory_change_in_place(containerd: Containerd) {
    let ground = Ground::with_namespace_on(Cluster::shared(), containerd);
    let agent = ground.joined();
    let subject = Subject { ground: &ground, name: "subject" };
    let mut object = pod(&ground.name, subject.name, &ground.name, &[shell("app", RUNS), shell("other", RUNS)]);
    let sizes = |cpu: &str, limit: &str, memory: &str| json!({ "requests": { "cpu": cpu, "memory": "16Mi" }, "limits": { "cpu": limit, "memory": memory } });
    for index in [0, 1] {
        object["spec"]["containers"][index]["resources"] = sizes("100m", "200m", "64Mi");
    }
    object["spec"]["containers"][1]["resizePolicy"] =
        json!([{ "resourceName": "memory", "restartPolicy": "RestartContainer" }]);
    ground.cluster.apply(&object);
    subject.wait("ready", is_ready);
    let first = subject.wait_limits("app", "200m", "64Mi");

    // What the container itself sees, in either hierarchy.
    let inside = |container: &str| {
        let script = "cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes";
        let name = format!("{}/{}", ground.name, subject.name);
        let said = agent.tool(&["exec", &name, "-c", container, "--", "sh", "-c", script]).expect("a limit");
        said.trim().to_owned()
    };
    subject.resize("app", sizes("150m", "300m", "96Mi"));
    let grown = subject.wait_limits("app", "300m", "96Mi");
    assert_eq!(inside("app"), (96 << 20).to_string());
    assert_eq!((&grown["containerID"], &grown["restartCount"]), (&first["containerID"], &json!(0)));
    assert_eq!(grown["allocatedResources"], json!({ "cpu": "150m", "memory": "16Mi" }));
    assert_eq!(grown["resources"]["requests"], json!({ "cpu": "150m", "memory": "16Mi" }));
    subject.resize("app", sizes("50m", "100m", "32Mi"));
    let shrunk = subject.wait_limits("app", "100m", "32Mi");
    assert_eq!((inside("app"), &shrunk["containerID"]), ((32 << 20).to_string(), &first["containerID"]));

    // One whose policy says so starts anew for it.
    subject.resize("other", sizes("100m", "200m", "128Mi"));
    let other = subject.wait_limits("other", "200m", "128Mi");
    assert_eq!((inside("other"), &other["restartCount"]), ((128 << 20).to_string(), &json!(1)));

    // What the node has no room for beside another pod waits, over a restart of the agent too.
    let object = ground.object().expect("the node");
    let cpus: u32 = object["status"]["allocatable"]["cpu"].as_str().and_then(|cpus| cpus.parse().ok()).expect("cpus");
    let neighbour = Subject { ground: &ground, name: "neighbour" };
    let mut object = pod(&ground.name, neighbour.name, &ground.name, &[shell("app", RUNS)]);
    object["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "200m" } });
    ground.cluster.apply(&object);
    neighbour.wait("ready", is_ready);
    // All that the node has, but for what the pod's other container asks for.
    let most = format!("{}m", cpus * 1000 - 100);
    subject.resize("app", sizes(&most, &most, "32Mi"));
    let waits = |pod: &Value| resize_condition(pod, "PodResizePending")["reason"] == "Deferred";
    let pending = subject.wait("a resize that waits", waits);
    let words = resize_condition(&pending, "PodResizePending")["message"].as_str().unwrap_or_default();
    assert!(words.starts_with("Node didn't have enough resource: cpu, requested: "), "{pending}");
    agent.kill();
    let agent = ground.join(&[], |_| ());
    let after = subject.wait_limits("app", "100m", "32Mi");
    assert_eq!((&after["containerID"], &after["allocatedResources"]["cpu"]), (&first["containerID"], &json!("50m")));
    subject.wait("a resize that waits still", waits);
    neighbour.kubectl(&["delete", "pod", neighbour.name, "--wait=false"]);
    let granted = subject.wait_limits("app", &most, "32Mi");
    assert_eq!(granted["containerID"], first["containerID"]);
    subject.wait("no resize that waits", |pod| resize_condition(pod, "PodResizePending").is_null());
    wait::until("the events of resizes", SOON, || {
        let events = ground.cluster.get(&["-n", &ground.name, "events"])?;
        let told: Vec<&str> =
            events["items"].as_array().into_iter().flatten().filter_map(|e| e["reason"].as_str()).collect();
        let missing = ["ResizeStarted", "ResizeCompleted", "ResizeDeferred"].iter().find(|word| !told.contains(word));
        if missing.is_none() { Ok(()) } else { Err(format!("{told:?}")) }
    });
    drop(agent);
    subject.kubectl(&["delete", "pod", subject.name, "--wait=false"]);
    let _agent = ground.join(&[], |_| ());
    wait::until("an empty runtime", SOON, || {
        let left = ground.node.containers(&["-a"]);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}

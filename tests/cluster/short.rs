//! A node that is short of something, or has no network for its pods: what it says, which pods it lets in, and that the
//! upstream kubelet says the same.

use std::fs;

use serde_json::{Value, json};

use super::endings::{RUNS, is_ready, pod, shell};
use super::lab::{Ground, SOON, seconds};
use super::upstream::Kubelet;
use crate::harness::{Cluster, cluster::condition, config, wait};

/// More than any machine has. A soft threshold keeps nothing back from what pods may request, and its grace period
/// keeps the upstream kubelet from evicting.
fn short_of_memory(config: &mut Value) {
    config["evictionSoft"] = json!({ "memory.available": "1000Ti" });
    config["evictionSoftGracePeriod"] = json!({ "memory.available": "1h" });
}

impl Ground<'_> {
    /// Puts a pod onto the node, past the scheduler.
    fn bind(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut object = pod(&self.name, name, &self.name, &[shell("c", RUNS)]);
        change(&mut object["spec"]);
        self.cluster.apply(&object);
    }

    #[track_caller]
    fn wait_bound(&self, name: &str, what: &str, look: impl Fn(&Value) -> bool) -> Value {
        wait::until(&format!("pod {name}: {what}"), SOON, || {
            let pod = self.cluster.get(&["-n", &self.name, "pod", name])?;
            if look(&pod) { Ok(pod) } else { Err(format!("{:#}", pod["status"])) }
        })
    }

    /// The message of an event about a pod.
    #[track_caller]
    fn wait_event(&self, name: &str, reason: &str) -> String {
        let about = format!("involvedObject.name={name},reason={reason}");
        wait::until(&format!("event {reason} of {name}"), SOON, || {
            let list = self.cluster.get(&["-n", &self.name, "events", "--field-selector", &about])?;
            let found = list["items"][0].clone();
            if found.is_null() {
                Err("none yet".to_owned())
            } else {
                Ok(format!("{} {}", found["type"], found["message"]))
            }
        })
    }

    /// A pod that asked for nothing is refused: what the API has of it, without times.
    fn refused(&self, name: &str) -> Value {
        self.bind(name, |_| ());
        let mut status = self.wait_bound(name, "refused", |pod| pod["status"]["phase"] == "Failed")["status"].take();
        status["startTime"] = Value::Null;
        json!({ "status": status, "event": self.wait_event(name, "Evicted") })
    }
}

#[test]
fn a_node_that_is_short_of_memory_says_so_and_refuses_who_asked_for_none() {
    let ground = Ground::with_namespace(Cluster::shared());
    let agent = ground.join(&[], short_of_memory);
    let object = ground.wait_ready();
    let memory = condition(&object, "MemoryPressure").clone();
    assert_eq!(memory["status"], "True");
    let (created, since) = (seconds(&object["metadata"]["creationTimestamp"]), seconds(&memory["lastTransitionTime"]));
    assert!(since - created <= 1, "the first status said it: {memory} of a node made at {created}");
    assert_eq!(condition(&object, "DiskPressure")["status"], "False");
    assert_eq!(condition(&object, "PIDPressure")["status"], "False");
    ground.wait_object("the taint of a node that is short of memory", |object| {
        let taints = object["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.iter().any(|t| t["key"] == "node.kubernetes.io/memory-pressure" && t["effect"] == "NoSchedule")
    });

    let refused = ground.refused("light");
    assert_eq!(refused["status"]["reason"], "Evicted");
    let message = "Pod was rejected: The node had condition: [MemoryPressure]. ";
    assert_eq!(refused["status"]["message"], message);
    ground.bind("asks", |spec| spec["containers"][0]["resources"] = json!({ "requests": { "memory": "1Mi" } }));
    let tolerates = json!([{ "key": "node.kubernetes.io/memory-pressure", "operator": "Exists" }]);
    ground.bind("tolerates", |spec| spec["tolerations"] = tolerates);
    let mut fixed = pod(&ground.name, "fixed", &ground.name, &[shell("c", RUNS)]);
    fixed["spec"].as_object_mut().expect("a spec").remove("nodeName");
    agent.put_manifest("fixed.json", &fixed.to_string());
    for name in ["asks", "tolerates", &format!("fixed-{}", ground.name)] {
        ground.wait_bound(name, "ready", is_ready);
    }
    let events = wait::until("the node's event", SOON, || {
        let about = format!("involvedObject.kind=Node,involvedObject.name={}", ground.name);
        let text = ground.cluster.kubectl(&["get", "events", "-A", "--field-selector", &about])?;
        if text.contains("NodeHasInsufficientMemory") { Ok(text) } else { Err(text) }
    });
    assert!(!events.contains("NodeHasSufficientMemory"), "{events}");
    agent.remove_manifest("fixed.json");
    agent.kill();

    // A threshold that this machine is above: the condition goes, and so does the reason to refuse anybody.
    let agent = ground.join(&[], |_| ());
    let object = ground.cluster.wait_condition(&ground.name, "MemoryPressure", "False", SOON);
    let memory = condition(&object, "MemoryPressure");
    assert_eq!(memory["reason"], "KubeletHasSufficientMemory");
    ground.bind("later", |_| ());
    ground.wait_bound("later", "ready", is_ready);
    agent.kill();

    ground.cluster.kubectl(&["delete", "node", &ground.name]).expect("delete the node");
    let _kubelet = Kubelet::start(&ground, config::free_port(), short_of_memory);
    let object = ground.cluster.wait_condition(&ground.name, "MemoryPressure", "True", SOON);
    let words = |object: &Value| {
        let memory = condition(object, "MemoryPressure");
        (memory["reason"].clone(), memory["message"].clone())
    };
    let ours = (json!("KubeletHasInsufficientMemory"), json!("kubelet has insufficient memory available"));
    assert_eq!(words(&object), ours);
    assert_eq!(ground.refused("light-upstream"), refused, "upstream on the left");
}

/// Takes the configuration of the network plugins away, and gives back how to return it. containerd looks again when a
/// file is written, and not when one is moved there.
fn take_network_away(ground: &Ground<'_>) -> impl Fn() + use<> {
    let folder = ground.node.path("cni");
    let files: Vec<_> = fs::read_dir(&folder)
        .expect("list the configuration of plugins")
        .map(|entry| entry.expect("an entry").path())
        .map(|path| (fs::read(&path).expect("read the configuration of a plugin"), path))
        .collect();
    for (_, path) in &files {
        fs::remove_file(path).expect("remove the configuration of a plugin");
    }
    assert!(!files.is_empty(), "there is nothing in {}", folder.display());
    move || files.iter().for_each(|(text, path)| fs::write(path, text).expect("write the configuration of a plugin"))
}

#[test]
fn pods_wait_for_the_network_of_the_node_and_those_of_the_host_do_not() {
    let ground = Ground::with_namespace(Cluster::shared());
    let without_network = |name: &str| {
        let give_back = take_network_away(&ground);
        let object = ground.cluster.wait_condition(&ground.name, "Ready", "False", SOON);
        ground.bind(&format!("{name}-host"), |spec| spec["hostNetwork"] = true.into());
        ground.bind(name, |_| ());
        let event = ground.wait_event(name, "NetworkNotReady");
        ground.wait_bound(&format!("{name}-host"), "ready", is_ready);
        let pod = ground.wait_bound(name, "waiting", |pod| !pod["status"]["containerStatuses"].is_null());
        let waiting = pod["status"]["containerStatuses"][0]["state"].clone();
        assert_eq!(pod["status"]["phase"], "Pending", "{:#}", pod["status"]);
        give_back();
        ground.wait_bound(name, "ready", is_ready);
        json!({ "ready": condition(&object, "Ready")["message"], "event": event, "waiting": waiting })
    };
    let ferrolet = {
        let _agent = ground.join(&[], |config| config["nodeStatusUpdateFrequency"] = "1s".into());
        ground.wait_ready();
        without_network("ours")
    };
    let event = ferrolet["event"].as_str().expect("a message");
    assert!(event.contains("network is not ready: container runtime network not ready: NetworkReady=false"), "{event}");
    ground.cluster.kubectl(&["delete", "node", &ground.name]).expect("delete the node");
    let upstream = {
        let _kubelet = Kubelet::start(&ground, config::free_port(), |_| ());
        ground.wait_ready();
        without_network("theirs")
    };
    assert_eq!(ferrolet, upstream);
}

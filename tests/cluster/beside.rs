//! The same pods through ferrolet and through the upstream kubelet, on the same machine, runtime and control plane: what
//! the API has of them in the end, status and events, field by field.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::endings::{RUNS, is_ready, pod, shell};
use super::lab::{Ground, SOON};
use super::upstream::{Kubelet, differences};
use crate::harness::{Cluster, config, wait};

/// Upstream reads a pod's limits back from cgroup v1, whose word for "no limit" of memory it then tells as a limit of 8 EiB;
/// ferrolet tells what is asked for.
const NO_LIMIT: &str = "9007199254740988Ki";

/// Where the two may differ, and why. Paths are `pod.status.…` and `pod.events.…`.
const ACCEPTED: &[(&str, &str)] = &[
    ("loop.status.containerStatuses.0.restartCount", "how far the crash loop got when it was looked at"),
    ("loop.status.containerStatuses.0.state", "whether it waits or just ended when it was looked at"),
    ("loop.status.containerStatuses.0.lastState", "which of its ends was the last when it was looked at"),
];

/// The same for a static pod.
const STATIC_ACCEPTED: &[(&str, &str)] = &[("uid", "a hash of the manifest, each program's own")];

/// The pods: name, what they are, and when they are as they shall be.
fn pods(namespace: &str, node: &str) -> Vec<Value> {
    let with = |mut pod: Value, change: &dyn Fn(&mut Value)| {
        change(&mut pod);
        pod
    };
    let make = |name: &str, containers: &[Value]| pod(namespace, name, node, containers);
    vec![
        with(make("plain", &[shell("a", RUNS), shell("b", RUNS)]), &|pod| {
            pod["spec"]["dnsPolicy"] = "ClusterFirst".into();
            pod["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "50m", "memory": "16Mi" }, "limits": { "cpu": "100m", "memory": "32Mi" } });
        }),
        with(make("chain", &[shell("app", RUNS)]), &|pod| {
            let mut side = shell("side", RUNS);
            side["restartPolicy"] = "Always".into();
            pod["spec"]["initContainers"] = json!([shell("first", "true"), side]);
            pod["spec"]["volumes"] = json!([{ "name": "work", "emptyDir": {} }]);
            pod["spec"]["containers"][0]["volumeMounts"] =
                json!([{ "name": "work", "mountPath": "/work", "readOnly": true }]);
        }),
        with(
            make("done", &[shell("good", "echo bye >/dev/termination-log"), shell("bad", "echo oops; exit 3")]),
            &|pod| {
                pod["spec"]["restartPolicy"] = "Never".into();
                pod["spec"]["containers"][1]["terminationMessagePolicy"] = "FallbackToLogsOnError".into();
            },
        ),
        with(make("host", &[shell("a", RUNS)]), &|pod| pod["spec"]["hostNetwork"] = true.into()),
        with(make("gated", &[shell("a", RUNS)]), &|pod| {
            pod["spec"]["readinessGates"] = json!([{ "conditionType": "example.com/gate" }]);
        }),
        with(make("nopull", &[shell("never", RUNS), shell("badname", RUNS)]), &|pod| {
            pod["spec"]["containers"][0]["image"] = "example.com/none:1".into();
            pod["spec"]["containers"][0]["imagePullPolicy"] = "Never".into();
            pod["spec"]["containers"][1]["image"] = "Bad Name:1".into();
        }),
        make("loop", &[shell("a", "exit 1")]),
        make("well", &[well()]),
        make(
            "sick",
            &[
                probed(
                    "said",
                    json!({ "exec": { "command": ["sh", "-c", "echo not well; echo at all >&2; exit 1"] }, "timeoutSeconds": 20 }),
                ),
                probed("slow", json!({ "exec": { "command": ["sleep", "100"] } })),
            ],
        ),
        make(
            "deaf",
            &[
                probed("http", json!({ "httpGet": { "port": 8081, "path": "/healthz?x=y" } })),
                probed("tcp", json!({ "tcpSocket": { "port": 8082 } })),
            ],
        ),
        given_up(make("unlive", &[shell("a", RUNS)]), "livenessProbe"),
        given_up(make("unborn", &[shell("a", RUNS)]), "startupProbe"),
        with(make("toobig", &[shell("a", RUNS)]), &|pod| {
            pod["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "640" } });
        }),
    ]
}

/// A container with a readiness probe.
fn probed(name: &str, handler: Value) -> Value {
    let mut container = shell(name, RUNS);
    // Seldom, since a pod has a small purse of events.
    let mut probe = json!({ "periodSeconds": 20, "timeoutSeconds": 1 });
    probe.as_object_mut().expect("an object").extend(handler.as_object().expect("an object").clone());
    container["readinessProbe"] = probe;
    container
}

/// A container with every probe, all of them content.
fn well() -> Value {
    let mut container =
        probed("well", json!({ "exec": { "command": ["true"] }, "timeoutSeconds": 20, "periodSeconds": 1 }));
    container["startupProbe"] = container["readinessProbe"].clone();
    container["livenessProbe"] = container["readinessProbe"].clone();
    container
}

/// A pod that never restarts, on which a probe gives up.
fn given_up(mut pod: Value, probe: &str) -> Value {
    pod["spec"]["restartPolicy"] = "Never".into();
    pod["spec"]["containers"][0][probe] = json!({
        "exec": { "command": ["false"] }, "periodSeconds": 1, "failureThreshold": 2, "timeoutSeconds": 20,
    });
    pod
}

/// Whether a pod has come to what it is compared at.
fn has_settled(pod: &Value) -> bool {
    let status = &pod["status"];
    let waiting = |container: &Value, reason: &str| container["state"]["waiting"]["reason"] == reason;
    let containers = status["containerStatuses"].as_array().cloned().unwrap_or_default();
    match pod["metadata"]["name"].as_str().unwrap_or_default() {
        "sick" | "deaf" => {
            containers.len() == 2 && containers.iter().all(|c| c["started"] == true && c["ready"] == false)
        }
        "done" | "toobig" | "unlive" | "unborn" => {
            matches!(status["phase"].as_str(), Some("Failed" | "Succeeded"))
                && pod_condition(pod, "PodReadyToStartContainers") != "True"
        }
        "gated" => containers.iter().any(|c| c["ready"] == true),
        "nopull" => {
            containers.len() == 2
                && containers.iter().any(|c| waiting(c, "ErrImageNeverPull"))
                && containers.iter().any(|c| waiting(c, "InvalidImageName"))
        }
        "loop" => containers.iter().any(|c| c["restartCount"].as_i64() >= Some(2) && waiting(c, "CrashLoopBackOff")),
        _ => is_ready(pod),
    }
}

fn pod_condition(pod: &Value, type_: &str) -> String {
    crate::harness::cluster::condition(pod, type_)["status"].as_str().unwrap_or_default().to_owned()
}

/// What the API has of the pods, once they are settled: `status` and `events` of each, without what is of one run alone.
fn observe(ground: &Ground<'_>, namespace: &str) -> Value {
    let cluster = ground.cluster;
    let wanted = pods(namespace, &ground.name);
    for pod in &wanted {
        cluster.apply(pod);
    }
    let items = wait::until("settled pods", 3 * SOON, || {
        let list = cluster.get(&["-n", namespace, "pods"])?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let open: Vec<String> =
            items.iter().filter(|p| !has_settled(p)).map(|p| format!("{:#}", p["status"])).collect();
        if items.len() == wanted.len() && open.is_empty() { Ok(items) } else { Err(open.join("\n")) }
    });
    for pod in &wanted {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        cluster
            .kubectl(&["-n", namespace, "delete", "pod", name, "--grace-period=2", "--wait=false"])
            .expect("delete a pod");
    }
    wait::until("the end of all pods", 3 * SOON, || {
        let list = cluster.get(&["-n", namespace, "pods"])?;
        let names: Vec<String> =
            list["items"].as_array().into_iter().flatten().map(|p| p["metadata"]["name"].to_string()).collect();
        if names.is_empty() { Ok(()) } else { Err(names.join(" ")) }
    });
    let events = wait::until("the events of the end", SOON, || {
        let list = cluster.get(&["-n", namespace, "events"])?;
        let events = list["items"].as_array().cloned().unwrap_or_default();
        let killing =
            |name: &str| events.iter().any(|e| e["reason"] == "Killing" && e["involvedObject"]["name"] == name);
        if ["plain", "chain", "host", "gated", "well", "sick", "deaf"].iter().all(|name| killing(name)) {
            Ok(events)
        } else {
            Err(format!("{} events", events.len()))
        }
    });
    let mut told = BTreeMap::new();
    for pod in items {
        let name = pod["metadata"]["name"].as_str().expect("a name").to_owned();
        let uid = pod["metadata"]["uid"].as_str().expect("a uid").to_owned();
        // A probe may be under way when its container or its agent ends.
        let is_cut_off = |event: &Value| event["message"].as_str().is_some_and(|text| text.contains(" probe errored "));
        let of_pod = events.iter().filter(|e| e["involvedObject"]["uid"] == uid.as_str() && !is_cut_off(e));
        let ip = pod["status"]["podIP"].as_str().filter(|ip| ip.starts_with("10.")).unwrap_or("no address").to_owned();
        let events: BTreeMap<String, Value> = of_pod.map(|event| of_event(event, &uid, &ip, namespace)).collect();
        let mut status = general(&pod["status"], &uid, namespace);
        if status["resources"]["limits"]["memory"] == NO_LIMIT {
            status["resources"]["limits"].as_object_mut().expect("an object").remove("memory");
        }
        told.insert(name, json!({ "status": status, "events": events }));
    }
    json!(told)
}

/// An event without its own names and times, and a key that says what it is. How often something came is of one run.
fn of_event(event: &Value, uid: &str, ip: &str, namespace: &str) -> (String, Value) {
    let mut event = general(event, uid, namespace);
    event["message"] = event["message"].as_str().unwrap_or_default().replace(ip, "ADDRESS").into();
    for field in ["metadata", "firstTimestamp", "lastTimestamp", "count"] {
        event.as_object_mut().expect("an object").remove(field);
    }
    event["involvedObject"].as_object_mut().expect("an object").remove("resourceVersion");
    let text = |value: &Value| value.as_str().unwrap_or_default().replace('.', "_");
    let key = [&event["involvedObject"]["fieldPath"], &event["reason"], &event["message"]].map(text).join("/");
    (key, event)
}

/// A value with what differs from run to run replaced: times, ids, addresses of pods, and the namespace.
fn general(value: &Value, uid: &str, namespace: &str) -> Value {
    match value {
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (key.clone(), of_field(key, value, uid, namespace))).collect()
        }
        Value::Array(items) => items.iter().map(|item| general(item, uid, namespace)).collect(),
        Value::String(text) => json!(text.replace(uid, "UID").replace(namespace, "NAMESPACE")),
        other => other.clone(),
    }
}

fn of_field(key: &str, value: &Value, uid: &str, namespace: &str) -> Value {
    let is_time = key.ends_with("Time") || key.ends_with("At");
    match value {
        Value::String(_) if is_time => json!("TIME"),
        Value::String(_) if key == "containerID" => json!("CONTAINER"),
        // The addresses of pods come from one range; that of the node has no part in it.
        Value::String(text) if matches!(key, "podIP" | "ip") && text.starts_with("10.") => json!("ADDRESS"),
        other => general(other, uid, namespace),
    }
}

#[test]
fn pods_and_their_events_are_told_as_upstream_tells_them() {
    let ground = Ground::new(Cluster::shared());
    let port = config::free_port();
    let namespaces = ["ferrolet", "upstream"].map(|who| format!("beside-{who}-{}", ground.name));
    namespaces.iter().for_each(|namespace| ground.cluster.namespace(namespace));
    let ferrolet = {
        let _agent = ground.join(&[], |config| config["port"] = port.into());
        ground.wait_ready();
        observe(&ground, &namespaces[0])
    };
    ground.cluster.kubectl(&["delete", "node", &ground.name]).expect("delete the node");
    let upstream = {
        let _kubelet = Kubelet::start(&ground, port, |_| ());
        ground.wait_ready();
        observe(&ground, &namespaces[1])
    };
    let found = differences(&ferrolet, &upstream, ACCEPTED);
    assert!(found.is_empty(), "not accepted:\n  {}", found.join("\n  "));
}

/// What the API has of the mirror of a static pod: status, events, and what the node wrote into its metadata.
fn observe_mirror(ground: &Ground<'_>, namespace: &str, name: &str) -> Value {
    let cluster = ground.cluster;
    let mirror = wait::until("the mirror", SOON, || {
        let pod = cluster.get(&["-n", namespace, "pod", name])?;
        if is_ready(&pod) { Ok(pod) } else { Err(format!("{:#}", pod["status"])) }
    });
    let metadata = &mirror["metadata"];
    // The events of a static pod name the uid that the node gave it.
    let uid = metadata["annotations"]["kubernetes.io/config.hash"].as_str().expect("a hash").to_owned();
    let events = wait::until("the events of the static pod", SOON, || {
        let list = cluster.get(&["-n", namespace, "events"])?;
        let events = list["items"].as_array().cloned().unwrap_or_default();
        let has = |reason: &str| events.iter().any(|event| event["reason"] == reason);
        if has("Started") { Ok(events) } else { Err(format!("{} events", events.len())) }
    });
    let events: BTreeMap<String, Value> =
        events.iter().map(|event| of_event(event, &uid, "no address", namespace)).collect();
    let mut annotations = general(&metadata["annotations"], &uid, namespace);
    annotations["kubernetes.io/config.seen"] = "TIME".into();
    let mut owners = metadata["ownerReferences"].clone();
    owners[0]["uid"] = "UID".into();
    json!({
        "uid": uid, "annotations": annotations, "owners": owners, "labels": metadata["labels"],
        "spec": mirror["spec"], "status": general(&mirror["status"], &uid, namespace), "events": events,
    })
}

#[test]
fn a_static_pod_is_told_as_upstream_tells_it() {
    let ground = Ground::new(Cluster::shared());
    let port = config::free_port();
    let namespaces = ["ferrolet", "upstream"].map(|who| format!("still-{who}-{}", ground.name));
    namespaces.iter().for_each(|namespace| ground.cluster.namespace(namespace));
    let manifest = |namespace: &str| {
        let mut pod = pod(namespace, "still", &ground.name, &[shell("a", RUNS)]);
        pod["spec"].as_object_mut().expect("a spec").remove("nodeName");
        pod.to_string()
    };
    let name = format!("still-{}", ground.name);
    let ferrolet = {
        let agent = ground.join(&[], |config| config["port"] = port.into());
        ground.wait_ready();
        agent.put_manifest("still.json", &manifest(&namespaces[0]));
        let told = observe_mirror(&ground, &namespaces[0], &name);
        agent.remove_manifest("still.json");
        wait::until("the end of the static pod", SOON, || {
            let left = ground.node.containers(&["-a"]);
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        });
        told
    };
    ground.cluster.kubectl(&["delete", "node", &ground.name]).expect("delete the node");
    let folder = ground.node.path("manifests-upstream");
    std::fs::create_dir_all(&folder).expect("make a folder");
    let upstream = {
        let _kubelet = Kubelet::start(&ground, port, |config| {
            config["staticPodPath"] = folder.display().to_string().into();
        });
        ground.wait_ready();
        std::fs::write(folder.join("still.json"), manifest(&namespaces[1])).expect("write a manifest");
        observe_mirror(&ground, &namespaces[1], &name)
    };
    let found = differences(&ferrolet, &upstream, STATIC_ACCEPTED);
    assert!(found.is_empty(), "not accepted:\n  {}", found.join("\n  "));
}

#[test]
fn what_is_of_one_run_alone_is_not_compared() {
    let value = json!({
        "startTime": "2026-11-30T06:44:21Z", "containerID": "containerd://abc", "podIP": "10.64.0.9", "hostIP": "192.0.2.2",
        "message": "pod web_ns-1(u-1)",
    });
    let expect = json!({
        "startTime": "TIME", "containerID": "CONTAINER", "podIP": "ADDRESS", "hostIP": "192.0.2.2",
        "message": "pod web_NAMESPACE(UID)",
    });
    assert_eq!(general(&value, "u-1", "ns-1"), expect);
}

//! One pod from its manifest to its last trace: it answers, carries the marks by which a kubelet knows its own, has its
//! cgroups, its files and its last words, and leaves nothing behind.

use std::{fs, net::Ipv4Addr, path::PathBuf};

use serde_json::{Value, json};

use super::lab::{Lab, SOON, get_from, pod, shell, status, with_shared};
use crate::harness::{Containerd, Node, wait};

/// A server and a container that says its last words; both with requests and limits.
fn manifest(lab: &Lab<'_>) -> Value {
    let resources = json!({
        "requests": { "cpu": "100m", "memory": "32Mi" },
        "limits": { "cpu": "200m", "memory": "64Mi" },
    });
    let web = json!({
        "name": "web",
        "image": "localhost/ferrolet/web:1",
        "imagePullPolicy": "IfNotPresent",
        "env": [{ "name": "GREETING", "value": "good morning" }],
        "ports": [{ "name": "http", "containerPort": 8080 }],
        "lifecycle": { "preStop": { "sleep": { "seconds": 1 } } },
        "resources": resources,
    });
    let script = "cat /etc/hosts >/shared/hosts; hostname >/shared/hostname; echo said; echo my last words >/dev/termination-log; exit 3";
    let words = shell(
        "words",
        script,
        json!({
            "resources": resources,
            "volumeMounts": [{ "name": "scratch", "mountPath": "/scratch" }],
        }),
    );
    let mut pod = pod(
        "web",
        &[web, words],
        json!({
            "restartPolicy": "Never",
            "hostAliases": [{ "ip": "10.1.2.3", "hostnames": ["far.example", "far"] }],
            "volumes": [{ "name": "scratch", "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } }],
        }),
    );
    pod["metadata"]["labels"] = json!({ "app": "web" });
    pod["metadata"]["annotations"] = json!({ "example.com/note": "hello" });
    with_shared(lab, pod)
}

/// What crictl tells of an object, past its envelope.
fn inspect(lab: &Lab<'_>, verb: &str, id: &str) -> Value {
    serde_json::from_str(&lab.node.crictl(&[verb, "-o", "json", id])).expect("crictl prints JSON")
}

fn ids(lab: &Lab<'_>, list: &str, verb: &[&str]) -> Vec<Value> {
    let listed: Value = serde_json::from_str(&lab.node.crictl(verb)).expect("crictl prints JSON");
    listed[list].as_array().cloned().unwrap_or_default()
}

/// The marks of shared use: log shippers, crictl and a kubelet that takes over read them.
fn check_marks(lab: &Lab<'_>, uid: &str) {
    let sandboxes = ids(lab, "items", &["pods", "-o", "json"]);
    assert_eq!(sandboxes.len(), 1);
    let sandbox = &sandboxes[0];
    assert_eq!(sandbox["metadata"], json!({ "name": "web-node", "namespace": "default", "uid": uid, "attempt": 0 }));
    assert_eq!(
        sandbox["labels"],
        json!({
            "app": "web",
            "io.kubernetes.pod.name": "web-node",
            "io.kubernetes.pod.namespace": "default",
            "io.kubernetes.pod.uid": uid,
        })
    );
    let annotations = &sandbox["annotations"];
    assert_eq!(annotations["example.com/note"], "hello");
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    assert_eq!(annotations["kubernetes.io/config.hash"], uid);
    assert!(annotations["kubernetes.io/config.seen"].as_str().is_some_and(|seen| seen.starts_with("20")));

    let containers = lab.node.containers(&["-a"]);
    let web = containers.iter().find(|c| c["metadata"]["name"] == "web").expect("the container web");
    assert_eq!(web["metadata"]["attempt"].as_u64().unwrap_or(0), 0);
    let told = inspect(lab, "inspect", web["id"].as_str().expect("an id"));
    let labels = json!({
        "io.kubernetes.container.name": "web",
        "io.kubernetes.pod.name": "web-node",
        "io.kubernetes.pod.namespace": "default",
        "io.kubernetes.pod.uid": uid,
    });
    assert_eq!(told["status"]["labels"], labels);
    let marks = &told["status"]["annotations"];
    let part = |name: &str| marks[name].as_str().unwrap_or_default().to_owned();
    // The hash of shared use over this name and image.
    assert_eq!(part("io.kubernetes.container.hash"), "cdb5716f");
    assert_eq!(part("io.kubernetes.container.restartCount"), "0");
    assert_eq!(part("io.kubernetes.container.terminationMessagePath"), "/dev/termination-log");
    assert_eq!(part("io.kubernetes.container.terminationMessagePolicy"), "File");
    assert_eq!(part("io.kubernetes.pod.terminationGracePeriod"), "5");
    assert_eq!(
        serde_json::from_str::<Value>(&part("io.kubernetes.container.preStopHandler")).expect("JSON"),
        json!({ "sleep": { "seconds": 1 } })
    );
    assert_eq!(
        serde_json::from_str::<Value>(&part("io.kubernetes.container.ports")).expect("JSON"),
        json!([{ "name": "http", "containerPort": 8080, "protocol": "TCP" }])
    );
    let log = lab.node.path(&format!("pod-logs/default_web-node_{uid}/web/0.log"));
    assert_eq!(told["status"]["logPath"], log.display().to_string());
    let said = lab.node.path(&format!("pod-logs/default_web-node_{uid}/words/0.log"));
    let said = fs::read_to_string(&said).expect("the log of words");
    assert!(said.trim_end().ends_with(" stdout F said"), "{said:?}");

    let pid = told["info"]["pid"].as_u64().expect("a process id");
    let score = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("a score");
    let score: i32 = score.trim().parse().expect("a number");
    assert!((2..=999).contains(&score), "a burstable container's score is {score}");
}

/// Reads one cgroup file below the pod's cgroup.
fn cgroup(lab: &Lab<'_>, uid: &str, below: &str, v1: (&str, &str), v2: &str) -> String {
    let pod = format!("{}/kubepods/burstable/pod{uid}/{below}", lab.node.name());
    let mount = PathBuf::from("/sys/fs/cgroup");
    let unified = mount.join("cgroup.controllers").exists();
    let file = if unified { mount.join(pod).join(v2) } else { mount.join(v1.0).join(pod).join(v1.1) };
    let text = fs::read_to_string(&file).unwrap_or_else(|err| panic!("{}: {err}", file.display()));
    text.trim().to_owned()
}

/// The values of the pod's cgroup and of a container's in it.
fn check_cgroups(lab: &Lab<'_>, uid: &str) {
    let unified = PathBuf::from("/sys/fs/cgroup/cgroup.controllers").exists();
    let web = lab.containers("web").into_iter().find(|c| c.name == "web").expect("the container web");
    let memory = ("memory", "memory.limit_in_bytes");
    assert_eq!(cgroup(lab, uid, "", memory, "memory.max"), (128u64 << 20).to_string());
    assert_eq!(cgroup(lab, uid, web.id.as_str(), memory, "memory.max"), (64u64 << 20).to_string());
    let (shares, weight) = (("cpu", "cpu.shares"), "cpu.weight");
    let (quota, max) = (("cpu", "cpu.cfs_quota_us"), "cpu.max");
    if unified {
        assert_eq!(cgroup(lab, uid, "", quota, max), "40000 100000");
        assert_eq!(cgroup(lab, uid, web.id.as_str(), quota, max), "20000 100000");
    } else {
        assert_eq!(cgroup(lab, uid, "", shares, weight), "204");
        assert_eq!(cgroup(lab, uid, web.id.as_str(), shares, weight), "102");
        assert_eq!(cgroup(lab, uid, "", quota, max), "40000");
        assert_eq!(cgroup(lab, uid, web.id.as_str(), quota, max), "20000");
    }
}

fn a_web_pod_from_start_to_end(kind: Containerd) {
    let node = Node::start(kind);
    let lab = Lab::start(&node);
    lab.put(&manifest(&lab));
    let pod = lab.wait_pod("web", "web runs and words has ended", |pod| {
        let done = status(pod, "words")["state"].get("terminated").is_some();
        (done && status(pod, "web")["state"].get("running").is_some()).then(|| pod.clone())
    });
    assert_eq!(pod["status"]["phase"], "Running");
    let uid = pod["uid"].as_str().expect("a uid").to_owned();
    let ip = pod["status"]["podIP"].as_str().expect("an address").to_owned();
    let answer = wait::until("the pod's answer", SOON, || get_from(&ip, 8080));
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("good morning"), "{answer}");

    let last = &status(&pod, "words")["state"]["terminated"];
    assert_eq!(last["exitCode"], 3);
    assert_eq!(last["message"], "my last words\n");
    assert_eq!(last["reason"], "Error");
    assert_eq!(lab.lines("hostname"), ["web-node"]);
    let hosts = lab.lines("hosts");
    assert_eq!(hosts.first().map(String::as_str), Some("# Kubernetes-managed hosts file."));
    assert!(hosts.contains(&format!("{ip}\tweb-node")), "{hosts:?}");
    assert!(hosts.contains(&"10.1.2.3\tfar.example\tfar".to_owned()), "{hosts:?}");
    assert!(ip.parse::<Ipv4Addr>().is_ok_and(|ip| !ip.is_loopback()));

    check_marks(&lab, &uid);
    check_cgroups(&lab, &uid);
    // The search for traces sees them while the pod is there.
    let traces = lab.leftovers(&uid).join("\n");
    for trace in ["/sys/fs/cgroup/", "/kubelet/pods/", "/pod-logs/", "/kubelet/ferrolet/", "tmpfs"] {
        assert!(traces.contains(trace), "no {trace} in:\n{traces}");
    }

    lab.remove("web");
    lab.wait_gone("web");
    lab.wait_no_leftovers(&uid);
    assert!(ids(&lab, "items", &["pods", "-o", "json"]).is_empty());
    assert!(lab.node.containers(&["-a"]).is_empty());
}

#[test]
fn a_web_pod_from_start_to_end_on_the_distributions_containerd() {
    a_web_pod_from_start_to_end(Containerd::System);
}

#[test]
fn a_web_pod_from_start_to_end_on_containerd_2() {
    a_web_pod_from_start_to_end(Containerd::Two);
}

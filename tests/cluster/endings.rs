//! How pods of a real control plane end, and what is told of them on the way: finalizers, graces that are cut short, mirrors,
//! events, and ends that nobody could be told of at the time.

use std::time::Duration;

use serde_json::{Value, json};

use super::lab::{Ground, SOON};
use crate::harness::{Cluster, cluster::condition, wait};

/// The image that every node of the tests has.
const IMAGE: &str = "docker.io/library/busybox:latest";

/// A container that does what the script says.
pub(super) fn shell(name: &str, script: &str) -> Value {
    json!({ "name": name, "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script] })
}

/// A script that runs until it is asked to end.
pub(super) const RUNS: &str = "trap 'exit 0' TERM; while :; do sleep 0.2; done";

/// A pod bound to a node, that needs nothing from the API server.
pub(super) fn pod(namespace: &str, name: &str, node: &str, containers: &[Value]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": namespace, "labels": { "app": name } },
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            // The node has no cluster DNS, which would be worth an event.
            "dnsPolicy": "Default",
            "terminationGracePeriodSeconds": 5,
            "containers": containers,
        },
    })
}

/// A namespace of its own on a node that is ready.
struct Place<'ground> {
    ground: &'ground Ground<'ground>,
    namespace: String,
}

impl<'ground> Place<'ground> {
    fn new(ground: &'ground Ground<'ground>) -> Place<'ground> {
        let namespace = format!("endings-{}", ground.name);
        ground.cluster.namespace(&namespace);
        Place { ground, namespace }
    }

    fn create(&self, name: &str, containers: &[Value]) -> Value {
        let object = pod(&self.namespace, name, &self.ground.name, containers);
        self.ground.cluster.apply(&object);
        self.get(name).expect("the pod")
    }

    fn get(&self, name: &str) -> Result<Value, String> {
        self.ground.cluster.get(&["-n", &self.namespace, "pod", name])
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        let all = [&["-n", self.namespace.as_str()], arguments].concat();
        self.ground.cluster.kubectl(&all).expect("kubectl works")
    }

    /// Waits until `look` is content with the pod.
    #[track_caller]
    fn wait(&self, name: &str, what: &str, look: impl Fn(&Value) -> bool) -> Value {
        wait::until(&format!("pod {name}: {what}"), SOON, || {
            let pod = self.get(name)?;
            if look(&pod) { Ok(pod) } else { Err(format!("{:#}", pod["status"])) }
        })
    }

    #[track_caller]
    fn wait_ready(&self, name: &str) -> Value {
        self.wait(name, "ready", is_ready)
    }

    #[track_caller]
    fn wait_gone(&self, name: &str) {
        wait::until(&format!("the end of pod {name}"), SOON, || match self.get(name) {
            Err(said) if said.contains("NotFound") => Ok(()),
            Err(said) => Err(said),
            Ok(pod) => Err(format!("{:#}", pod["metadata"])),
        });
    }

    /// Containers of a pod that the runtime has running.
    fn running(&self, uid: &str) -> usize {
        let of_pod = |container: &&Value| container["labels"]["io.kubernetes.pod.uid"] == uid;
        self.ground.node.containers(&[]).iter().filter(of_pod).count()
    }

    /// Reasons of the events about an object, oldest first.
    fn reasons(&self, uid: &str) -> Result<Vec<String>, String> {
        let field = format!("--field-selector=involvedObject.uid={uid}");
        let list = self.ground.cluster.get(&["-n", &self.namespace, "events", &field])?;
        let mut events: Vec<&Value> = list["items"].as_array().into_iter().flatten().collect();
        events.sort_by_key(|event| event["metadata"]["name"].as_str().map(str::to_owned));
        Ok(events.iter().filter_map(|event| event["reason"].as_str()).map(str::to_owned).collect())
    }

    #[track_caller]
    fn wait_reasons(&self, uid: &str, expect: &[&str]) {
        wait::until(&format!("events {expect:?}"), SOON, || {
            let found = self.reasons(uid)?;
            if found == expect { Ok(()) } else { Err(format!("{found:?}")) }
        });
    }
}

pub(super) fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready")["status"] == "True"
}

fn uid(pod: &Value) -> String {
    pod["metadata"]["uid"].as_str().expect("a uid").to_owned()
}

#[test]
fn a_pod_is_told_with_its_events_and_leaves_when_it_is_deleted() {
    let ground = Ground::new(Cluster::shared());
    let agent = ground.joined();
    let place = Place::new(&ground);
    place.create("web", &[shell("a", RUNS)]);
    let told = place.wait_ready("web");
    let status = &told["status"];
    assert_eq!((&status["phase"], &status["observedGeneration"]), (&json!("Running"), &json!(1)));
    assert_eq!(status["qosClass"], "BestEffort");
    for field in ["podIP", "hostIP", "startTime"] {
        assert!(status[field].is_string(), "{field}: {status:#}");
    }
    for type_ in ["PodReadyToStartContainers", "Initialized", "ContainersReady", "PodScheduled"] {
        assert_eq!(condition(&told, type_)["status"], "True", "{type_}: {status:#}");
    }
    let container = &status["containerStatuses"][0];
    assert!(container["state"]["running"]["startedAt"].is_string() && container["ready"] == true, "{container:#}");
    place.wait_reasons(&uid(&told), &["Pulled", "Created", "Started"]);

    // Metadata change nothing that runs.
    place.kubectl(&["label", "pod", "web", "more=1"]);
    place.kubectl(&["delete", "pod", "web", "--grace-period=1", "--wait=false"]);
    place.wait_gone("web");
    assert_eq!(place.running(&uid(&told)), 0);
    place.wait_reasons(&uid(&told), &["Pulled", "Created", "Started", "Killing"]);
    drop(agent);
}

#[test]
fn who_holds_a_finalizer_holds_the_object_and_not_the_containers() {
    let ground = Ground::new(Cluster::shared());
    let agent = ground.joined();
    let place = Place::new(&ground);
    place.create("held", &[shell("a", RUNS)]);
    let told = place.wait_ready("held");
    let finalizers = |list: &str| format!(r#"{{"metadata":{{"finalizers":{list}}}}}"#);
    place.kubectl(&["patch", "pod", "held", "--type=merge", "-p", &finalizers(r#"["example.com/hold"]"#)]);
    place.kubectl(&["delete", "pod", "held", "--wait=false"]);
    let ended = place.wait("held", "its last phase", |pod| pod["status"]["phase"] == "Succeeded");
    assert_eq!(ended["status"]["observedGeneration"], ended["metadata"]["generation"]);
    wait::until("no container", SOON, || match place.running(&uid(&told)) {
        0 => Ok(()),
        some => Err(format!("{some} run")),
    });
    wait::holds("its object", Duration::from_secs(3), || place.get("held").map(drop));
    place.kubectl(&["patch", "pod", "held", "--type=merge", "-p", &finalizers("null")]);
    place.wait_gone("held");
    drop(agent);
}

#[test]
fn a_pod_deleted_by_force_or_with_a_shorter_grace_ends_soon() {
    let ground = Ground::new(Cluster::shared());
    let agent = ground.joined();
    let place = Place::new(&ground);
    // They take no hint: only SIGKILL ends them.
    let stubborn = "trap '' TERM; while :; do sleep 0.2; done";
    place.create("forced", &[shell("a", stubborn)]);
    let mut patient = pod(&place.namespace, "patient", &ground.name, &[shell("a", stubborn)]);
    patient["spec"]["terminationGracePeriodSeconds"] = 600.into();
    ground.cluster.apply(&patient);
    let forced = place.wait_ready("forced");
    let patient = place.wait_ready("patient");
    place.kubectl(&["delete", "pod", "forced", "--grace-period=0", "--force"]);
    place.wait_gone("forced");
    place.kubectl(&["delete", "pod", "patient", "--wait=false"]);
    place.wait("patient", "the deletion", |pod| pod["metadata"]["deletionTimestamp"].is_string());
    wait::holds("the patient one", Duration::from_secs(3), || match place.running(&uid(&patient)) {
        1 => Ok(()),
        other => Err(format!("{other} run")),
    });
    place.kubectl(&["delete", "pod", "patient", "--grace-period=1", "--wait=false"]);
    place.wait_gone("patient");
    for uid in [uid(&forced), uid(&patient)] {
        wait::until("no container", SOON, || match place.running(&uid) {
            0 => Ok(()),
            some => Err(format!("{some} run")),
        });
    }
    drop(agent);
}

#[test]
fn a_static_pod_is_shown_by_its_mirror() {
    let ground = Ground::new(Cluster::shared());
    let agent = ground.joined();
    let place = Place::new(&ground);
    let name = format!("still-{}", ground.name);
    let manifest = |script: &str| {
        let mut pod = pod(&place.namespace, "still", &ground.name, &[shell("a", script)]);
        pod["spec"]["terminationGracePeriodSeconds"] = 1.into();
        pod.to_string()
    };
    agent.put_manifest("still.yaml", &manifest(RUNS));
    let first = place.wait_ready(&name);
    let annotations = &first["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/config.mirror"], annotations["kubernetes.io/config.hash"]);
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    let node = ground.object().expect("the node");
    let owner = &first["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["uid"]), (&json!("Node"), &node["metadata"]["uid"]));
    // Events of a static pod speak of its own uid, which is the mirror's hash, as kubectl looks for them.
    let hash = annotations["kubernetes.io/config.mirror"].as_str().expect("a hash").to_owned();
    place.wait_reasons(&hash, &["Pulled", "Created", "Started"]);
    assert_eq!(place.running(&hash), 1);

    // Whoever deletes the mirror gets another one; the pod does not notice.
    let container = first["status"]["containerStatuses"][0]["containerID"].clone();
    place.kubectl(&["delete", "pod", &name, "--wait=false"]);
    let second = place.wait(&name, "another mirror", |pod| uid(pod) != uid(&first) && is_ready(pod));
    assert_eq!(second["status"]["containerStatuses"][0]["containerID"], container);

    agent.put_manifest("still.yaml", &manifest(&format!("true; {RUNS}")));
    let third = place.wait(&name, "the new manifest's mirror", |pod| {
        pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] != hash.as_str() && is_ready(pod)
    });
    assert_ne!(uid(&third), uid(&second));
    agent.remove_manifest("still.yaml");
    place.wait_gone(&name);
    drop(agent);
}

#[test]
fn a_restarted_agent_tells_what_was_told_and_catches_up() {
    let ground = Ground::new(Cluster::shared());
    let agent = ground.joined();
    let place = Place::new(&ground);
    for name in ["stays", "leaves"] {
        place.create(name, &[shell("a", RUNS)]);
    }
    let before = place.wait_ready("stays");
    let leaves = place.wait_ready("leaves");
    agent.kill();
    // No record is left of an earlier life.
    let records = ground.node.path("kubelet/ferrolet/pods");
    std::fs::remove_dir_all(&records).unwrap_or_else(|err| panic!("{}: {err}", records.display()));
    place.kubectl(&["delete", "pod", "leaves", "--wait=false", "--grace-period=2"]);
    let agent = ground.joined();
    place.wait_gone("leaves");
    assert_eq!(place.running(&uid(&leaves)), 0);
    let after = place.get("stays").expect("the pod");
    assert_eq!(after["status"], before["status"], "nothing was told anew");
    drop(agent);
}

#[test]
fn what_happened_while_the_api_server_was_away_is_told_once_it_is_back() {
    let cluster = Cluster::start(&[]);
    let ground = Ground::new(&cluster);
    let agent = ground.joined();
    let place = Place::new(&ground);
    let ends = "trap 'exit 0' TERM; until [ -e /end/now ]; do sleep 0.2; done; exit 7";
    let mut object = pod(&place.namespace, "ends", &ground.name, &[shell("a", ends)]);
    let folder = ground.node.path("end");
    std::fs::create_dir_all(&folder).expect("make a folder");
    object["spec"]["restartPolicy"] = "Never".into();
    object["spec"]["volumes"] = json!([{ "name": "end", "hostPath": { "path": folder } }]);
    object["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "end", "mountPath": "/end" }]);
    cluster.apply(&object);
    place.wait_ready("ends");
    cluster.kill("kube-apiserver");
    std::fs::write(folder.join("now"), "").expect("write a file");
    wait::until("the container's end", SOON, || match ground.node.containers(&[]).len() {
        0 => Ok(()),
        some => Err(format!("{some} run")),
    });
    cluster.start_again();
    let told = place.wait("ends", "its last phase", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(told["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 7);
    drop(agent);
}

//! Lives of pods that come from a real control plane, as `kubectl` shows them.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use super::lab::{Ground, SOON};
use crate::harness::{Cluster, cluster::condition, wait};

/// A pod of one busybox container that runs until it is told to end.
fn pod(ground: &Ground<'_>, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": ground.name, "labels": { "app": name } },
        "spec": spec(ground),
    })
}

fn spec(ground: &Ground<'_>) -> Value {
    json!({
        "nodeSelector": { "kubernetes.io/hostname": ground.name },
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 2,
        "containers": [{
            "name": "c",
            "image": "docker.io/library/busybox:latest",
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 1 & wait $!; done"],
        }],
    })
}

impl Ground<'_> {
    fn pods(&self) -> Result<Vec<Value>, String> {
        let list = self.cluster.get(&["-n", &self.name, "pods"])?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    fn pod(&self, name: &str) -> Result<Value, String> {
        self.cluster.get(&["-n", &self.name, "pod", name])
    }

    #[track_caller]
    fn wait_pod(&self, name: &str, what: &str, look: impl Fn(&Value) -> bool) -> Value {
        wait::until(&format!("pod {name}: {what}"), SOON, || {
            let pod = self.pod(name)?;
            if look(&pod) { Ok(pod) } else { Err(format!("{:#}", pod["status"])) }
        })
    }

    #[track_caller]
    fn wait_running(&self, name: &str) -> Value {
        self.wait_pod(name, "ready", is_ready)
    }

    /// `kubectl` in the test's namespace.
    #[track_caller]
    fn kubectl(&self, arguments: &[&str]) -> String {
        self.cluster.kubectl(&[&["-n", &self.name], arguments].concat()).expect("kubectl works")
    }

    /// Waits until neither the API nor the runtime has a pod.
    #[track_caller]
    fn wait_empty(&self) {
        wait::until("no pods", SOON, || {
            let pods = self.pods()?;
            if let Some(pod) = pods.first() {
                return Err(format!("{:#}", pod["status"]));
            }
            let left = self.node.containers(&["-a"]);
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        });
    }

    /// Ids and attempts of the runtime's containers: what no restart of anything else may change.
    fn identities(&self) -> BTreeMap<String, String> {
        let containers = self.node.containers(&[]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        containers.iter().map(|c| (text(&c["id"]), c["metadata"]["attempt"].to_string())).collect()
    }
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running" && condition(pod, "Ready")["status"] == "True"
}

#[test]
fn a_pod_is_run_shown_described_and_deleted() {
    let ground = Ground::with_namespace(Cluster::shared());
    let agent = ground.joined();
    ground.cluster.apply(&pod(&ground, "a"));
    let running = ground.wait_running("a");
    let status = &running["status"];
    assert_eq!(status["qosClass"], "BestEffort");
    assert_eq!(status["observedGeneration"], running["metadata"]["generation"]);
    assert_eq!(status["podIP"], status["podIPs"][0]["ip"]);
    assert_eq!(condition(&running, "PodReadyToStartContainers")["status"], "True");

    let wide = ground.kubectl(&["get", "pod", "a", "-o", "wide"]);
    for word in ["1/1", "Running", status["podIP"].as_str().expect("an address"), &ground.name] {
        assert!(wide.contains(word), "{word:?} is not in {wide}");
    }
    wait::until("the events of the pod", SOON, || {
        let described = ground.kubectl(&["describe", "pod", "a"]);
        let missing =
            ["Scheduled", "Pulled", "Created", "Started", "containerd://"].map(|word| (word, described.contains(word)));
        match missing.iter().find(|(_, there)| !there) {
            Some((word, _)) => Err(format!("{word} is not in {described}")),
            None => Ok(()),
        }
    });
    // What the administrator says of the node counts for the pods that come after.
    ground.kubectl(&["label", "node", &ground.name, "spot=roof"]);
    let mut picky = pod(&ground, "picky");
    picky["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": ground.name, "spot": "roof" });
    ground.cluster.apply(&picky);
    ground.wait_running("picky");
    ground.kubectl(&["delete", "pod", "a", "picky"]);
    ground.wait_empty();
    drop(agent);
}

#[test]
fn a_deployment_grows_and_shrinks() {
    let ground = Ground::with_namespace(Cluster::shared());
    let agent = ground.joined();
    ground.cluster.apply(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "d", "namespace": ground.name },
        "spec": {
            "replicas": 0,
            "selector": { "matchLabels": { "app": "d" } },
            "template": { "metadata": { "labels": { "app": "d" } }, "spec": spec(&ground) },
        },
    }));
    ground.kubectl(&["scale", "deployment", "d", "--replicas", "30"]);
    let ready = |count: usize| {
        wait::until(&format!("{count} pods"), Duration::from_secs(180), || {
            let pods = ground.pods()?;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            if pods.len() == count && ready == count { Ok(()) } else { Err(format!("{ready} of {} ready", pods.len())) }
        });
    };
    ready(30);
    ground.kubectl(&["scale", "deployment", "d", "--replicas", "3"]);
    ready(3);
    ground.kubectl(&["scale", "deployment", "d", "--replicas", "0"]);
    ground.wait_empty();
    drop(agent);
}

#[test]
fn a_pod_is_replaced_under_its_name_and_forced_out() {
    let ground = Ground::with_namespace(Cluster::shared());
    let agent = ground.joined();
    ground.cluster.apply(&pod(&ground, "a"));
    let first = ground.wait_running("a");
    ground.kubectl(&["delete", "pod", "a", "--wait=false"]);
    wait::until("the end of the first pod", SOON, || match ground.pod("a") {
        Err(said) if said.contains("NotFound") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    ground.cluster.apply(&pod(&ground, "a"));
    let second = ground.wait_running("a");
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);

    // At once, and a new one of that name before the node has heard of the end of the old one.
    ground.kubectl(&["delete", "pod", "a", "--force", "--grace-period=0"]);
    ground.cluster.apply(&pod(&ground, "a"));
    let third = ground.wait_running("a");
    assert_ne!(third["metadata"]["uid"], second["metadata"]["uid"]);
    wait::until("one container", SOON, || {
        let containers = ground.node.containers(&[]);
        if containers.len() == 1 { Ok(()) } else { Err(format!("{containers:?}")) }
    });
    ground.kubectl(&["delete", "pod", "a"]);
    ground.wait_empty();
    drop(agent);
}

#[test]
fn pods_end_that_were_deleted_while_the_agent_was_away() {
    let ground = Ground::with_namespace(Cluster::shared());
    let agent = ground.joined();
    for name in ["graceful", "forced", "stays"] {
        ground.cluster.apply(&pod(&ground, name));
    }
    for name in ["graceful", "forced", "stays"] {
        ground.wait_running(name);
    }
    let stays = ground.pod("stays").expect("a pod")["status"].clone();
    agent.kill();
    ground.kubectl(&["delete", "pod", "graceful", "--wait=false"]);
    ground.kubectl(&["delete", "pod", "forced", "--force", "--grace-period=0"]);
    let agent = ground.join(&[], |_| ());
    wait::until("the end of two pods", SOON, || {
        let (pods, containers) = (ground.pods()?, ground.node.containers(&["-a"]));
        if pods.len() == 1 && containers.len() == 1 { Ok(()) } else { Err(format!("{pods:#?} {containers:?}")) }
    });
    let now = ground.wait_running("stays")["status"].clone();
    assert_eq!(now, stays, "nothing about it has changed");
    ground.kubectl(&["delete", "pod", "stays"]);
    ground.wait_empty();
    drop(agent);
}

#[test]
fn pods_live_on_without_the_api_server() {
    let cluster = Cluster::start(&[]);
    let ground = Ground::with_namespace(&cluster);
    let agent = ground.joined();
    for name in ["a", "b"] {
        ground.cluster.apply(&pod(&ground, name));
    }
    let before = ["a", "b"].map(|name| ground.wait_running(name)["status"]["containerStatuses"].clone());
    let identities = ground.identities();
    cluster.kill("kube-apiserver");
    wait::holds("the same containers without an API server", Duration::from_secs(10), || {
        let now = ground.identities();
        if now == identities { Ok(()) } else { Err(format!("{now:?} in the place of {identities:?}")) }
    });
    // A start without an API server ends nothing, and knows nothing.
    agent.kill();
    let agent = ground.join(&[], |_| ());
    wait::holds("the same containers after a restart", Duration::from_secs(10), || {
        let now = ground.identities();
        if now == identities { Ok(()) } else { Err(format!("{now:?} in the place of {identities:?}")) }
    });
    cluster.start_again();
    ground.wait_ready();
    let after = ["a", "b"].map(|name| ground.wait_running(name)["status"]["containerStatuses"].clone());
    assert_eq!(after, before);
    assert_eq!(ground.identities(), identities);
    // Work goes on.
    ground.kubectl(&["delete", "pod", "a"]);
    ground.cluster.apply(&pod(&ground, "c"));
    ground.wait_running("c");
    ground.kubectl(&["delete", "pod", "b", "c"]);
    ground.wait_empty();
    drop(agent);
}

#[test]
fn a_static_pod_has_its_mirror() {
    let ground = Ground::with_namespace(Cluster::shared());
    let agent = ground.joined();
    let mut own = pod(&ground, "still");
    own["spec"]["nodeSelector"] = Value::Null;
    agent.put_manifest("still.yaml", &own.to_string());
    let name = format!("still-{}", ground.name);
    let mirror = ground.wait_running(&name);
    assert!(mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string());
    assert_eq!(mirror["metadata"]["ownerReferences"][0]["kind"], "Node");
    let identities = ground.identities();
    // Deleting a mirror deletes nothing but the mirror.
    ground.kubectl(&["delete", "pod", &name, "--wait=false"]);
    let uid = &mirror["metadata"]["uid"];
    ground.wait_pod(&name, "a new mirror", |pod| pod["metadata"]["uid"] != *uid && is_ready(pod));
    assert_eq!(ground.identities(), identities);
    agent.remove_manifest("still.yaml");
    ground.wait_empty();
    drop(agent);
}

//! The node's object and its lease in a real control plane.

use std::time::Duration;

use serde_json::{Value, json};

use super::lab::{Ground, holds, seconds};
use crate::harness::{Cluster, cluster::condition, wait};

#[test]
fn a_node_registers_is_ready_and_renews_its_lease() {
    let ground = Ground::new(Cluster::shared());
    let agent = ground.join(&["--node-labels=site=roof,node.kubernetes.io/rack=7"], |config| {
        config["registerWithTaints"] = json!([{ "key": "edge", "value": "yes", "effect": "NoSchedule" }]);
        config["providerID"] = "lab://1".into();
        config["nodeLeaseDurationSeconds"] = 4.into();
    });
    let object = ground.wait_ready();
    let ready = condition(&object, "Ready");
    let (created, since) = (seconds(&object["metadata"]["creationTimestamp"]), seconds(&ready["lastTransitionTime"]));
    assert!(since - created <= 1, "what the first status said was true: {ready} of a node made at {created}");
    assert_eq!(ready["reason"], "KubeletReady");
    for pressure in ["MemoryPressure", "DiskPressure", "PIDPressure"] {
        assert_eq!(condition(&object, pressure)["status"], "False", "{pressure}");
    }
    let labels = &object["metadata"]["labels"];
    for (key, value) in [
        ("kubernetes.io/hostname", ground.name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("site", "roof"),
        ("node.kubernetes.io/rack", "7"),
    ] {
        assert_eq!(labels[key], value, "{labels}");
    }
    assert!(taints(&object).contains(&"edge=yes:NoSchedule".to_owned()), "{:?}", taints(&object));
    assert_eq!(object["spec"]["providerID"], "lab://1");
    let info = &object["status"]["nodeInfo"];
    let version = info["kubeletVersion"].as_str().unwrap_or_default();
    assert!(version.starts_with("v1.36.") && version.ends_with(env!("CARGO_PKG_VERSION")), "{version}");

    ground.wait_renewals(3);
    let lease = ground.lease().expect("a lease");
    assert_eq!(lease["spec"]["holderIdentity"], ground.name.as_str());
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 4);
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], object["metadata"]["uid"]);

    let wide = ground.cluster.kubectl(&["get", "node", &ground.name, "-o", "wide"]).expect("a line");
    let address = object["status"]["addresses"][0]["address"].as_str().expect("an address");
    for word in [" Ready ", version, address, "containerd://2."] {
        assert!(wide.contains(word), "{word:?} is not in {wide}");
    }
    let described = ground.cluster.kubectl(&["describe", "node", &ground.name]).expect("a description");
    for word in ["Lease:", "RenewTime:", "KubeletReady", "edge=yes:NoSchedule", "Allocatable:"] {
        assert!(described.contains(word), "{word:?} is not in {described}");
    }
    drop(agent);
}

#[test]
fn an_object_that_is_there_is_taken_over_and_what_others_set_stays() {
    let ground = Ground::new(Cluster::shared());
    let flags = ["--node-labels=site=roof"];
    let agent = ground.join(&flags, |_| ());
    let before = ground.wait_ready();
    let kubectl = |arguments: &[&str]| ground.cluster.kubectl(arguments).expect("kubectl works");
    kubectl(&["label", "--overwrite", "node", &ground.name, "mine=1", "site=cellar"]);
    kubectl(&["taint", "node", &ground.name, "busy=1:PreferNoSchedule"]);
    kubectl(&["annotate", "node", &ground.name, "note=x"]);
    agent.kill();
    kubectl(&["label", "--overwrite", "node", &ground.name, "kubernetes.io/arch=mips", "kubernetes.io/hostname=other"]);
    let agent = ground.join(&flags, |_| ());
    let after = ground.wait_object("labels of the machine put right", |object| {
        let labels = &object["metadata"]["labels"];
        labels["kubernetes.io/arch"] != "mips" && labels["kubernetes.io/hostname"] == ground.name.as_str()
    });
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    let labels = &after["metadata"]["labels"];
    assert_eq!((&labels["mine"], &labels["site"]), (&json!("1"), &json!("cellar")), "the administrator's word counts");
    assert_eq!(after["metadata"]["annotations"]["note"], "x");
    assert!(taints(&after).contains(&"busy=1:PreferNoSchedule".to_owned()), "{:?}", taints(&after));
    assert!(holds(&after, "Ready"));
    drop(agent);
}

#[test]
fn a_cloud_initializes_the_node_and_an_administrator_may_create_it() {
    let ground = Ground::new(Cluster::shared());
    let probe = ground.join(&[], |_| ());
    let address = ground.wait_ready()["status"]["addresses"][0]["address"].clone();
    let address = address.as_str().expect("an address").to_owned();
    probe.kill();
    ground.cluster.kubectl(&["delete", "node", &ground.name]).expect("delete the node");

    let node_ip = format!("--node-ip={address}");
    let agent = ground.join(&["--cloud-provider=external", &node_ip], |_| ());
    let object = ground.wait_ready();
    let uninitialized = "node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule".to_owned();
    assert!(taints(&object).contains(&uninitialized), "{:?}", taints(&object));
    assert_eq!(object["metadata"]["annotations"]["alpha.kubernetes.io/provided-node-ip"], address.as_str());
    agent.kill();
    ground.cluster.kubectl(&["delete", "node", &ground.name]).expect("delete the node");

    let agent = ground.join(&[], |config| config["registerNode"] = false.into());
    wait::holds("no registration", Duration::from_secs(3), || match ground.object() {
        Err(said) if said.contains("NotFound") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    ground.cluster.apply(&json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": ground.name, "labels": { "made": "by-hand" } },
    }));
    let object = ground.wait_ready();
    assert_eq!(object["metadata"]["labels"]["made"], "by-hand");
    assert_eq!(object["metadata"]["labels"]["kubernetes.io/os"], "linux");
    ground.wait_renewals(1);
    drop(agent);
}

#[test]
fn the_api_server_may_go_and_come_back() {
    let cluster = Cluster::start(&[]);
    let ground = Ground::new(&cluster);
    let agent = ground.join(&[], |config| {
        config["nodeLeaseDurationSeconds"] = 8.into();
        config["nodeStatusUpdateFrequency"] = "2s".into();
    });
    let before = ground.wait_ready();
    cluster.kill("kube-apiserver");
    wait::holds("a healthy agent without an API server", Duration::from_secs(15), || match agent.healthz()? {
        (200, _) => Ok(()),
        (status, body) => Err(format!("{status}: {body}")),
    });
    cluster.start_again();
    ground.wait_renewals(2);
    let after = ground.wait_ready();
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);

    // The other way round: an agent that starts first.
    agent.kill();
    cluster.kill("kube-apiserver");
    let agent = ground.join(&[], |config| config["nodeLeaseDurationSeconds"] = 8.into());
    cluster.start_again();
    ground.wait_renewals(2);
    ground.wait_ready();
    drop(agent);
}

#[test]
fn a_runtime_that_is_gone_makes_the_node_not_ready() {
    let ground = Ground::new(Cluster::shared());
    let agent = ground.join(&[], |config| config["nodeStatusUpdateFrequency"] = "1s".into());
    ground.wait_ready();
    ground.node.stop_containerd();
    let object = ground.cluster.wait_condition(&ground.name, "Ready", "False", Duration::from_secs(90));
    assert_eq!(condition(&object, "Ready")["reason"], "KubeletNotReady");
    assert!(condition(&object, "Ready")["message"].as_str().is_some_and(|said| said.contains("runtime is down")));
    ground.node.start_containerd();
    ground.wait_ready();
    drop(agent);
}

/// `key=value:effect` of each taint.
fn taints(object: &Value) -> Vec<String> {
    let taints = object["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    taints.iter().map(|t| format!("{}={}:{}", text(&t["key"]), text(&t["value"]), text(&t["effect"]))).collect()
}

//! The upstream kubelet beside ferrolet: the same machine, runtime and control plane, and what the two say of the node.

use std::{collections::BTreeMap, fs, process::Child};

use serde_json::{Value, json};

use super::lab::Ground;
use crate::harness::{Cluster, config, node::show_end_of};

/// Where the two may differ, and why.
const ACCEPTED: &[(&str, &str)] = &[
    ("metadata.creationTimestamp", "each has an object of its own"),
    ("metadata.resourceVersion", "each has an object of its own"),
    ("metadata.uid", "each has an object of its own"),
    ("metadata.annotations.node.alpha.kubernetes.io/ttl", "the controller manager's, in its own time"),
    ("spec.taints", "the controller manager's, in its own time"),
    ("status.conditions.*.lastHeartbeatTime", "the time"),
    ("status.conditions.*.lastTransitionTime", "the time"),
    ("status.nodeInfo.kubeletVersion", "ferrolet's own version is behind a plus"),
    ("status.declaredFeatures", "ferrolet serves no sessions in this test"),
];

/// The upstream kubelet on a node; dropping it kills it.
pub(super) struct Kubelet<'ground> {
    ground: &'ground Ground<'ground>,
    process: Child,
}

impl<'ground> Kubelet<'ground> {
    pub(super) fn start(
        ground: &'ground Ground<'ground>,
        port: u16,
        change: impl FnOnce(&mut Value),
    ) -> Kubelet<'ground> {
        let (node, cluster) = (&ground.node, ground.cluster);
        let command =
            config::upstream_kubelet(node, &cluster.path("pki"), &ground.name, &ground.kubeconfig, |config| {
                config["port"] = port.into();
                config["podLogsDir"] = json!(node.path("pod-logs-upstream"));
                change(config);
            });
        let log = fs::File::create(node.path("upstream.log")).expect("make the log");
        let process = command
            .expect("write the configuration")
            .stdout(log.try_clone().expect("share the log"))
            .stderr(log)
            .spawn()
            .expect("start the upstream kubelet");
        Kubelet { ground, process }
    }
}

impl Drop for Kubelet<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show_end_of(&self.ground.node.path("upstream.log"));
        }
        // Both fail only when the process has ended already.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Every value of a tree by its path; the items of lists of conditions and addresses by their type.
fn leaves(value: &Value, path: &str, found: &mut BTreeMap<String, Value>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| leaves(value, &below(key), found)),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let key = item["type"].as_str().map_or_else(|| index.to_string(), str::to_owned);
                leaves(item, &below(&key), found);
            }
        }
        // Absent and null are the same to the API.
        Value::Null => {}
        plain => drop(found.insert(path.to_owned(), plain.clone())),
    }
}

fn is_accepted(path: &str, accepted: &[(&str, &str)]) -> bool {
    accepted.iter().any(|(pattern, _)| match pattern.split_once(".*.") {
        Some((front, back)) => path.starts_with(&format!("{front}.")) && path.ends_with(&format!(".{back}")),
        None => path == *pattern || path.starts_with(&format!("{pattern}.")),
    })
}

/// The differences of two objects that nobody has accepted.
pub(super) fn differences(ferrolet: &Value, upstream: &Value, accepted: &[(&str, &str)]) -> Vec<String> {
    let (mut ours, mut theirs) = (BTreeMap::new(), BTreeMap::new());
    leaves(ferrolet, "", &mut ours);
    leaves(upstream, "", &mut theirs);
    let paths: std::collections::BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let differ = paths.into_iter().filter(|path| !is_accepted(path, accepted) && ours.get(*path) != theirs.get(*path));
    differ.map(|path| format!("{path}: ferrolet {:?}, upstream {:?}", ours.get(path), theirs.get(path))).collect()
}

#[test]
fn the_node_is_told_as_upstream_tells_it() {
    let ground = Ground::new(Cluster::shared());
    let port = config::free_port();
    let ferrolet = {
        let _agent = ground.join(&[], |config| config["port"] = port.into());
        ground.wait_ready()
    };
    ground.cluster.kubectl(&["delete", "node", &ground.name]).expect("delete the node");
    let upstream = {
        let _kubelet = Kubelet::start(&ground, port, |_| ());
        ground.wait_ready()
    };
    let found = differences(&ferrolet, &upstream, ACCEPTED);
    assert!(found.is_empty(), "not accepted:\n  {}", found.join("\n  "));
}

#[test]
fn differences_are_found_and_accepted_ones_passed_over() {
    let object = |uid: &str, cpu: &str, time: &str| {
        json!({
            "metadata": { "uid": uid },
            "status": { "cpu": cpu, "conditions": [{ "type": "Ready", "lastHeartbeatTime": time, "message": null }] },
        })
    };
    assert_eq!(differences(&object("a", "2", "x"), &object("b", "2", "y"), ACCEPTED), [""; 0]);
    let found = differences(&object("a", "2", "x"), &object("a", "3", "x"), ACCEPTED);
    assert_eq!(found, [r#"status.cpu: ferrolet Some(String("2")), upstream Some(String("3"))"#]);
}

//! The configuration of an agent on a node of the harness, for tests and for the benchmark alike.
//!
//! Used from the thread of one test; owns nothing.

use std::net::{Ipv4Addr, TcpListener};

use serde_json::{Value, json};

use super::Node;

/// A KubeletConfiguration: all that the agent reads and writes is below the node's folder and the node's cgroup.
pub(crate) fn kubelet_configuration(node: &Node, healthz: u16) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "staticPodPath": node.path("manifests"),
        "podLogsDir": node.path("pod-logs"),
        "containerRuntimeEndpoint": node.endpoint(),
        "healthzPort": healthz,
        "enableServer": false,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", node.name()),
        "failCgroupV1": false,
        "failSwapOn": false,
        // A test machine may not let anyone lower it.
        "oomScoreAdj": 0,
    })
}

/// A port on loopback that nobody listens on.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind a port");
    listener.local_addr().expect("the port").port()
}

//! Numbers through a real API server: its proxy to the node, and `kubectl top` by a real metrics-server.

use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use super::lab::Ground;
use crate::harness::{Cluster, Containerd, cluster::own_address, config::free_port, node::peers, wait};

/// metrics-server looks every ten seconds, and twice before it says anything.
const TWO_LOOKS: Duration = Duration::from_secs(180);

/// A running metrics-server; it ends with the test.
struct MetricsServer(Child);

impl Drop for MetricsServer {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts metrics-server beside the control plane, and tells the API server where it is.
fn metrics_server(cluster: &Cluster) -> MetricsServer {
    let port = free_port();
    let admin = cluster.path("admin.kubeconfig");
    let log = std::fs::File::create(cluster.path("metrics-server.log")).expect("make a log");
    let mut command = Command::new(peers().join("bin/metrics-server"));
    for flag in ["--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig"] {
        command.arg(flag).arg(&admin);
    }
    command.arg("--secure-port").arg(port.to_string()).arg("--cert-dir").arg(cluster.path("metrics-server"));
    command.args([
        "--kubelet-insecure-tls",
        "--kubelet-use-node-status-port",
        "--kubelet-preferred-address-types=InternalIP",
        "--metric-resolution=10s",
        "--kubelet-request-timeout=5s",
    ]);
    let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
    let server = MetricsServer(started.expect("start metrics-server (tests/peers/build metrics)"));
    let place = json!({ "name": "metrics-server", "namespace": "kube-system" });
    cluster.apply(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": place,
        "spec": { "ports": [{ "port": 443, "targetPort": port }] },
    }));
    cluster.apply(&json!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": place,
        "subsets": [{ "addresses": [{ "ip": own_address() }], "ports": [{ "port": port }] }],
    }));
    cluster.apply(&json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": { "name": "v1beta1.metrics.k8s.io" },
        "spec": {
            "group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true, "service": { "name": "metrics-server", "namespace": "kube-system" },
        },
    }));
    server
}

#[test]
fn kubectl_top_shows_a_node_and_its_pods() {
    let cluster = Cluster::start(&[("EXTRA_API", "--enable-aggregator-routing=true")]);
    let server = metrics_server(&cluster);
    let ground = Ground::serving(&cluster, Containerd::Two);
    let agent = ground.serve(|_| ());
    cluster.apply(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "busy", "namespace": ground.name },
        "spec": {
            "nodeSelector": { "kubernetes.io/hostname": ground.name }, "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "c", "image": "docker.io/library/busybox:latest", "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", "while :; do :; done"], "resources": { "limits": { "cpu": "300m" } },
            }],
        },
    }));
    let number = |line: &str, column: usize, unit: &str| -> Option<u64> {
        line.split_whitespace().nth(column)?.strip_suffix(unit)?.parse().ok()
    };
    let pods = wait::until("kubectl top pods", TWO_LOOKS, || {
        let table = cluster.kubectl(&["top", "pods", "-n", &ground.name, "--no-headers"])?;
        let line = table.lines().find(|line| line.starts_with("busy")).ok_or(table.as_str())?;
        match number(line, 1, "m") {
            Some(20..) => Ok(line.to_owned()),
            _ => Err(table),
        }
    });
    assert!(number(&pods, 1, "m").is_some_and(|cpu| cpu < 600), "its limit is 300m: {pods}");
    let nodes = cluster.kubectl(&["top", "nodes", "--no-headers"]).expect("kubectl top nodes");
    let line = nodes.lines().find(|line| line.starts_with(&ground.name)).expect("the node");
    assert!(
        number(line, 1, "m").is_some_and(|cpu| cpu > 20) && number(line, 3, "Mi").is_some_and(|memory| memory > 50)
    );

    let raw = |path: &str| cluster.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{}/proxy{path}", ground.name)]);
    let summary: Value = serde_json::from_str(&raw("/stats/summary").expect("a summary")).expect("JSON");
    assert_eq!(summary["pods"][0]["podRef"]["name"], "busy", "{summary}");
    assert!(raw("/metrics/cadvisor").expect("a page").contains("container_cpu_usage_seconds_total{"));
    assert!(raw("/metrics").expect("a page").contains("kubelet_node_startup_duration_seconds "));
    cluster.kubectl(&["delete", "-n", &ground.name, "pod", "busy", "--wait"]).expect("deleted");
    drop(agent);
    drop(server);
}

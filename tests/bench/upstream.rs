//! The upstream kubelet that is measured beside ferrolet.
//!
//! Used from the main thread of the benchmark; owns the process. Dropping it ends the process.

use std::{
    fs,
    path::Path,
    process::{Child, Stdio},
};

use serde_json::json;

use crate::cluster::Cluster;
use crate::config::free_port;
use crate::node::{Node, peers};
use crate::proc::Process;

/// A running kubelet.
pub(crate) struct Upstream(Child);

impl Upstream {
    /// Starts it on a node under a name that `Cluster::kubeconfig` has made a certificate for.
    pub(crate) fn start(node: &Node, cluster: &Cluster, name: &str, kubeconfig: &Path) -> Result<Upstream, String> {
        let config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": node.endpoint(),
            "podLogsDir": node.path("pod-logs"),
            "address": "127.0.0.1",
            "port": free_port(),
            "healthzPort": 0,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": format!("/{}", node.name()),
            "failCgroupV1": false,
            "failSwapOn": false,
            "oomScoreAdj": 0,
            "maxPods": 120,
            "makeIPTablesUtilChains": false,
            "evictionHard": { "memory.available": "1Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi" },
            "authentication": { "x509": { "clientCAFile": cluster.path("pki/ca.crt") } },
            "tlsCertFile": cluster.path(&format!("pki/{name}.crt")),
            "tlsPrivateKeyFile": cluster.path(&format!("pki/{name}.key")),
        });
        fs::write(node.path("upstream.json"), config.to_string()).map_err(|error| error.to_string())?;
        let log = fs::File::options().create(true).append(true).open(node.path("upstream.log"));
        let log = log.map_err(|error| error.to_string())?;
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = node.command(peers().join("bin/kubelet"));
        command.env("PATH", format!("{path}:/usr/sbin:/sbin:/usr/lib/cni"));
        command.arg("--config").arg(node.path("upstream.json")).arg("--kubeconfig").arg(kubeconfig);
        command.args(["--hostname-override", name, "--root-dir"]).arg(node.path("upstream"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.spawn().map(Upstream).map_err(|error| format!("start the upstream kubelet: {error}"))
    }

    /// The process.
    pub(crate) fn process(&self) -> Process {
        Process(self.0.id())
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        // Both fail only when the process has ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

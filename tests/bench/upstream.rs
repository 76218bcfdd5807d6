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
use crate::config::{free_port, upstream_kubelet};
use crate::node::Node;
use crate::proc::Process;

/// A running kubelet.
pub(crate) struct Upstream(Child);

impl Upstream {
    /// Starts it on a node under a name that `Cluster::kubeconfig` has made a certificate for.
    pub(crate) fn start(node: &Node, cluster: &Cluster, name: &str, kubeconfig: &Path) -> Result<Upstream, String> {
        let command = upstream_kubelet(node, &cluster.path("pki"), name, kubeconfig, |config| {
            config["port"] = free_port().into();
            config["maxPods"] = 120.into();
            config["evictionHard"] =
                json!({ "memory.available": "1Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi" });
        });
        let mut command = command.map_err(|error| error.to_string())?;
        let log = fs::File::options().create(true).append(true).open(node.path("upstream.log"));
        command.stdout(Stdio::null()).stderr(log.map_err(|error| error.to_string())?);
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

//! A node of a cluster with an agent on it, and what tests ask of the two.
//!
//! Used from the thread of one test.

use std::{path::PathBuf, time::Duration};

use serde_json::{Value, json};

use crate::harness::cluster::{condition, own_address};
use crate::harness::{Agent, Cluster, Containerd, Node, config::free_port, wait};

/// How long a test waits for what a busy machine does in a few seconds.
pub(super) const SOON: Duration = Duration::from_secs(60);

/// A node of a cluster.
pub(super) struct Ground<'cluster> {
    pub(super) cluster: &'cluster Cluster,
    pub(super) node: Node,
    pub(super) name: String,
    pub(super) kubeconfig: PathBuf,
}

impl<'cluster> Ground<'cluster> {
    /// A node with containerd 2 under a name that nobody else has.
    pub(super) fn new(cluster: &'cluster Cluster) -> Ground<'cluster> {
        Ground::on(cluster, Containerd::Two)
    }

    fn on(cluster: &'cluster Cluster, containerd: Containerd) -> Ground<'cluster> {
        let name = cluster.node_name();
        let kubeconfig = cluster.kubeconfig(&name);
        Ground { cluster, node: Node::start(containerd), name, kubeconfig }
    }

    /// The same with a namespace that has the node's name.
    pub(super) fn with_namespace(cluster: &'cluster Cluster) -> Ground<'cluster> {
        Ground::with_namespace_on(cluster, Containerd::Two)
    }

    /// The same on a containerd of one's choice.
    pub(super) fn with_namespace_on(cluster: &'cluster Cluster, containerd: Containerd) -> Ground<'cluster> {
        let ground = Ground::on(cluster, containerd);
        cluster.namespace(&ground.name);
        ground
    }

    /// A node that serves, with a namespace: the API server finds it at its address and trusts its certificate.
    pub(super) fn serving(cluster: &'cluster Cluster, containerd: Containerd) -> Ground<'cluster> {
        let name = cluster.node_name();
        let kubeconfig = cluster.kubeconfig_at(&name, own_address());
        cluster.namespace(&name);
        Ground { cluster, node: Node::start(containerd), name, kubeconfig }
    }

    /// Starts the agent of such a node and waits until it is ready.
    #[track_caller]
    pub(super) fn serve(&self, change: impl FnOnce(&mut Value)) -> Agent<'_> {
        let pki = self.cluster.path("pki");
        let agent = self.join(&[], |config| {
            config["enableServer"] = true.into();
            config["port"] = free_port().into();
            config["tlsCertFile"] = json!(pki.join(format!("{}.crt", self.name)));
            config["tlsPrivateKeyFile"] = json!(pki.join(format!("{}.key", self.name)));
            config["authentication"] = json!({ "x509": { "clientCAFile": pki.join("ca.crt") } });
            change(config);
        });
        self.wait_ready();
        agent
    }

    /// Starts the agent as it is and waits until its node is ready.
    #[track_caller]
    pub(super) fn joined(&self) -> Agent<'_> {
        let agent = self.join(&[], |_| ());
        self.wait_ready();
        agent
    }

    /// Starts the agent, with more flags and its configuration changed.
    pub(super) fn join(&self, flags: &[&str], change: impl FnOnce(&mut Value)) -> Agent<'_> {
        Agent::join(&self.node, &self.name, &self.kubeconfig, flags, change)
    }

    /// The node's object.
    pub(super) fn object(&self) -> Result<Value, String> {
        self.cluster.get(&["node", &self.name])
    }

    /// The node's lease.
    pub(super) fn lease(&self) -> Result<Value, String> {
        self.cluster.get(&["-n", "kube-node-lease", "lease", &self.name])
    }

    /// Waits until the node is ready, and gives its object.
    #[track_caller]
    pub(super) fn wait_ready(&self) -> Value {
        self.cluster.wait_condition(&self.name, "Ready", "True", SOON)
    }

    /// Waits until the node's object is as `look` wants it.
    #[track_caller]
    pub(super) fn wait_object(&self, what: &str, look: impl Fn(&Value) -> bool) -> Value {
        wait::until(&format!("node {}: {what}", self.name), SOON, || {
            let object = self.object()?;
            if look(&object) { Ok(object) } else { Err(format!("{object:#}")) }
        })
    }

    /// Waits until the lease was renewed again and again.
    #[track_caller]
    pub(super) fn wait_renewals(&self, count: usize) {
        let mut seen = Vec::new();
        wait::until(&format!("{count} renewals of the lease of {}", self.name), SOON, || {
            let time = self.lease()?["spec"]["renewTime"].clone();
            if seen.last() != Some(&time) {
                seen.push(time);
            }
            // The first look is no renewal.
            if seen.len() > count { Ok(()) } else { Err(format!("{seen:?}")) }
        });
    }
}

/// A time of an object in seconds, for comparisons.
pub(super) fn seconds(time: &Value) -> i64 {
    let text = time.as_str().unwrap_or_else(|| panic!("not a time: {time}"));
    text.parse::<jiff::Timestamp>().unwrap_or_else(|err| panic!("not a time: {text}: {err}")).as_second()
}

/// Whether a node's condition holds.
pub(super) fn holds(object: &Value, type_: &str) -> bool {
    condition(object, type_)["status"] == "True"
}

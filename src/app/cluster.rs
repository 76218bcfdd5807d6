//! The part of the node that lives in a cluster: its client, and every thread that speaks to the API server.
//!
//! On the main thread, at start and end. Without --kubeconfig none of this exists. It decides nothing: it
//! reads the kubeconfig, joins the threads with the rest of the house, and ends them in order.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use crossbeam_channel::bounded;

use crate::agents::lease::{LeaseConfig, LeaseHandle};
use crate::agents::node_status::{NodeObject, NodeStatusConfig, NodeStatusHandle, NodeStatusParts};
use crate::config::yaml::{Limits, yaml_to_json};
use crate::config::{KubeletConfiguration, NodeFlags};
use crate::core::capacity::{self, NodeResources};
use crate::core::node_object::{Machine, NodeSettings, go_architecture, registration};
use crate::host::facts::MachineFacts;
use crate::kube::{Access, ApiClient, RateLimit, kubeconfig};
use crate::util::fs::read_bounded;
use crate::util::heartbeat::Heartbeat;

/// Largest kubeconfig.
const MAX_KUBECONFIG: u64 = 4 << 20;

/// What the node is made of.
pub(super) struct NodeParts<'a> {
    /// The configuration.
    pub(super) config: &'a KubeletConfiguration,
    /// The node's flags.
    pub(super) flags: &'a NodeFlags,
    /// The machine.
    pub(super) machine: &'a MachineFacts,
    /// Capacity and allocatable.
    pub(super) resources: &'a NodeResources,
    /// Its name.
    pub(super) node_name: &'a str,
    /// The container runtime.
    pub(super) runtime: crate::cri::Client,
    /// Moves when all containers were listed.
    pub(super) relisted: Arc<Heartbeat>,
}

/// The threads of a node in a cluster. Dropping it ends them.
pub(super) struct Cluster {
    // Its end breaks every connection, so that no thread waits for an answer: before the threads.
    _client: Client,
    _lease: LeaseHandle,
    _node: NodeStatusHandle,
}

/// Breaks the connections when it goes.
struct Client(ApiClient);

impl Drop for Client {
    fn drop(&mut self) {
        self.0.shut_down();
    }
}

impl Cluster {
    /// Starts the threads.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub(super) fn start(client: ApiClient, parts: NodeParts<'_>) -> anyhow::Result<Self> {
        let NodeParts { config, flags, machine, resources, node_name, runtime, relisted } = parts;
        let settings = node_settings(config, flags, machine, resources, node_name);
        let object = Arc::new(NodeObject::new(registration::initial(&settings)));
        let (registered, wait_for_node) = bounded(1);
        let node_uid = {
            let object = Arc::clone(&object);
            Box::new(move || object.uid())
        };
        let lease = LeaseConfig {
            node: node_name.to_owned(),
            lasts_seconds: config.node_lease_duration_seconds,
            api: client.separate(),
            node_uid,
            registered: wait_for_node,
            renewed: Arc::default(),
        };
        let lease = LeaseHandle::start(lease).context("start the renewal of the node's lease")?;
        let node = NodeStatusConfig {
            settings,
            register: config.register_node,
            update_every: config.node_status_update_frequency.to_std(),
            report_every: config.node_status_report_frequency.to_std(),
            max_images: config.node_status_max_images,
        };
        let news =
            Box::new(|news: crate::agents::node_status::NodeNews| log::info!("{}: {}", news.reason, news.message));
        let parts = NodeStatusParts { api: client.clone(), runtime, relisted, object, registered, news };
        let node = NodeStatusHandle::start(node, parts).context("start the node's status")?;
        Ok(Self { _client: Client(client), _lease: lease, _node: node })
    }
}

/// The client that --kubeconfig asks for, if it does. Nothing is sent yet.
///
/// # Errors
/// The kubeconfig cannot be read or used.
pub(super) fn client(config: &KubeletConfiguration, flags: &NodeFlags) -> anyhow::Result<Option<ApiClient>> {
    let Some(file) = &flags.kubeconfig else { return Ok(None) };
    let access = access(file).context("--kubeconfig")?;
    for warning in &access.warnings {
        log::warn!("{}: {warning}", file.display());
    }
    log::info!("the API server is {}", access.server());
    let limit = RateLimit {
        per_second: f64::from(config.kube_api_qps),
        burst: u32::try_from(config.kube_api_burst).unwrap_or(0),
    };
    Ok(Some(ApiClient::new(access, &user_agent(), limit)))
}

/// Reads a kubeconfig.
fn access(file: &Path) -> anyhow::Result<Access> {
    let text = read_bounded(file, MAX_KUBECONFIG)?;
    let document = yaml_to_json(&text, &Limits::default()).map_err(|error| anyhow!("{}: {error}", file.display()))?;
    Ok(kubeconfig::read(document.value, file, None)?)
}

/// Who asks, in the form of the clients of Kubernetes.
fn user_agent() -> String {
    format!("ferrolet/{} (linux/{})", env!("CARGO_PKG_VERSION"), go_architecture(std::env::consts::ARCH))
}

fn node_settings(
    config: &KubeletConfiguration,
    flags: &NodeFlags,
    machine: &MachineFacts,
    resources: &NodeResources,
    node_name: &str,
) -> NodeSettings {
    NodeSettings {
        name: node_name.to_owned(),
        hostname: node_name.to_owned(),
        labels: flags.node_labels.clone(),
        taints: super::facts::taints(config),
        provider_id: config.provider_id.clone(),
        external_cloud: flags.cloud_provider == "external",
        node_ips: flags.node_ip.clone(),
        controller_attaches: config.enable_controller_attach_detach,
        port: config.port,
        machine: Machine {
            machine_id: machine.machine_id.clone(),
            system_uuid: machine.system_uuid.clone(),
            boot_id: machine.boot_id.clone(),
            architecture: go_architecture(std::env::consts::ARCH).to_owned(),
            kernel: machine.kernel.clone(),
            os_image: machine.os_image.clone(),
            swap: machine.swap,
        },
        capacity: capacity::quantities(&resources.capacity),
        allocatable: capacity::quantities(&resources.allocatable),
    }
}

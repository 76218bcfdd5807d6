//! The part of the node that lives in a cluster: its client, and every thread that speaks to the API server.
//!
//! On the main thread, at start and end. Without --kubeconfig none of this exists. It decides nothing: it
//! joins the threads with the rest of the house, and ends them in order.

use std::sync::Arc;

use anyhow::Context;
use crossbeam_channel::{Sender, bounded};

use super::join::Joined;
use crate::agents::certs::CertsHandle;
use crate::agents::lease::{LeaseConfig, LeaseHandle};
use crate::agents::node_status::{NodeObject, NodeStatusConfig, NodeStatusHandle, NodeStatusParts};
use crate::agents::objects::{ObjectsHandle, Strategy};
use crate::agents::source::api::ApiSourceHandle;
use crate::config::{KubeletConfiguration, NodeFlags};
use crate::core::capacity::{self, NodeResources};
use crate::core::node_object::{Machine, NodeSettings, go_architecture, registration};
use crate::host::facts::MachineFacts;
use crate::kube::ApiClient;
use crate::msg::{Refresh, SourceUpdate};
use crate::util::heartbeat::Heartbeat;

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
    /// Takes the pods that the API server binds to the node.
    pub(super) sources: Sender<SourceUpdate>,
}

/// The threads of a node in a cluster. Dropping it ends them.
pub(super) struct Cluster {
    // Its end breaks every connection, so that no thread waits for an answer: before the threads.
    _client: Client,
    _source: ApiSourceHandle,
    _certs: Option<CertsHandle>,
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
    pub(super) fn start(joined: Joined, parts: NodeParts<'_>) -> anyhow::Result<Self> {
        let Joined { client, certs } = joined;
        let NodeParts { config, flags, machine, resources, node_name, runtime, relisted, sources } = parts;
        let certs = certs.map(CertsHandle::start).transpose().context("start the care for certificates")?;
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
        // Disconnected: the agent ends.
        let send = move |update| drop(sources.send(update));
        let source = ApiSourceHandle::spawn(client.clone(), node_name, send).context("start the API source")?;
        Ok(Self { _client: Client(client), _source: source, _certs: certs, _lease: lease, _node: node })
    }
}

/// Starts what gets ConfigMaps, Secrets, tokens and services for pods.
///
/// # Errors
/// The kernel has no thread left, or the configuration names no strategy.
pub(super) fn objects(
    client: &ApiClient,
    config: &KubeletConfiguration,
    to_loop: Sender<Refresh>,
) -> anyhow::Result<ObjectsHandle> {
    let word = &config.config_map_and_secret_change_detection_strategy;
    let strategy = Strategy::parse(word).with_context(|| {
        format!("configMapAndSecretChangeDetectionStrategy: {word:?} is none of Watch, Cache and Get")
    })?;
    ObjectsHandle::start(client, strategy, to_loop).context("start what gets API objects for pods")
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

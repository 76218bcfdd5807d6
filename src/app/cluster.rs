//! The part of the node that lives in a cluster: its client, and every thread that speaks to the API server.
//!
//! On the main thread, at start and end. Without --kubeconfig none of this exists. It decides nothing: it
//! joins the threads with the rest of the house, and ends them in order.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use crossbeam_channel::{Receiver, Sender, bounded};

use super::join::Joined;
use crate::agents::certs::{CertsHandle, ServingConfig};
use crate::agents::events::{EventSender, EventsHandle};
use crate::agents::lease::{LeaseConfig, LeaseHandle};
use crate::agents::node_status::{
    NodeNews, NodeObject, NodeStatusConfig, NodeStatusHandle, NodeStatusParts, PressureWatch,
};
use crate::agents::objects::{ObjectsHandle, Strategy};
use crate::agents::source::api::ApiSourceHandle;
use crate::agents::status::StatusHandle;
use crate::config::features::is_enabled;
use crate::config::{KubeletConfiguration, NodeFlags};
use crate::core::capacity::{self, NodeResources};
use crate::core::certs::serving_names;
use crate::core::eviction::PressureJudge;
use crate::core::mirror::Owner;
use crate::core::node_object::{Machine, NodeSettings, declared, go_architecture, registration};
use crate::host::cgroup::CgroupTree;
use crate::host::facts::MachineFacts;
use crate::host::mounts::MOUNT_TABLE;
use crate::host::usage::signals::SignalReader;
use crate::kube::{ApiClient, RateLimit};
use crate::msg::{EventObject, EventType, FromNode, NodeView, Refresh, SourceUpdate, ToldEvent};
use crate::sync_loop::Outbox;
use crate::util::clock;
use crate::util::heartbeat::Heartbeat;
use crate::util::snapshot::Snapshot;

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
    /// The pods' cgroups; `None` where pods have none of their own.
    pub(super) cgroups: Option<CgroupTree>,
    /// `--root-dir`.
    pub(super) root_dir: &'a Path,
    /// Takes what is found out about the node and decides about pods.
    pub(super) about_node: Sender<FromNode>,
    /// What the sync loop publishes.
    pub(super) view: Arc<Snapshot<NodeView>>,
    /// Whether the machine shuts down.
    pub(super) shutting_down: Arc<AtomicBool>,
}

/// What has to be there before the sync loop: it leaves its events here, and rings when its view has changed.
pub(super) struct Link {
    joined: Joined,
    events: EventsHandle,
    bell: Sender<()>,
    rung: Receiver<()>,
}

impl Link {
    /// The link of a node that has joined a cluster.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub(super) fn open(joined: Joined, config: &KubeletConfiguration, node_name: &str) -> anyhow::Result<Self> {
        // No events a second means no limit, unlike no requests a second.
        let per_second = if config.event_record_qps == 0 { -1.0 } else { f64::from(config.event_record_qps) };
        let limit = RateLimit { per_second, burst: u32::try_from(config.event_burst).unwrap_or(0) };
        let events = EventsHandle::start(Box::new(joined.client.separate_at(limit)), node_name)
            .context("start the writer of events")?;
        let (bell, rung) = bounded(1);
        Ok(Self { joined, events, bell, rung })
    }

    /// The client of the cluster that was joined.
    pub(super) fn client(&self) -> &ApiClient {
        &self.joined.client
    }

    /// Joins the sync loop's outbox.
    pub(super) fn join(&self, outbox: Outbox) -> Outbox {
        let events = self.events.sender();
        outbox.with_events(move |event| events.tell(event)).with_bell(self.bell.clone())
    }
}

/// The threads of a node in a cluster. Dropping it ends them.
pub(super) struct Cluster {
    // Its end breaks every connection, so that no thread waits for an answer: before the threads.
    _client: Client,
    _source: ApiSourceHandle,
    _certs: Option<CertsHandle>,
    _serving: Option<CertsHandle>,
    _status: StatusHandle,
    _lease: LeaseHandle,
    node: NodeStatusHandle,
    events: EventsHandle,
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
    pub(super) fn start(link: Link, parts: NodeParts<'_>) -> anyhow::Result<Self> {
        let Link { joined: Joined { client, certs, cert_dir }, events, bell, rung } = link;
        let NodeParts {
            config,
            flags,
            machine,
            resources,
            node_name,
            runtime,
            relisted,
            cgroups,
            root_dir,
            sources,
            about_node,
            view,
            shutting_down,
        } = parts;
        let certs = certs.map(CertsHandle::start).transpose().context("start the care for certificates")?;
        let settings = node_settings(config, flags, machine, resources, node_name);
        // Disconnected, here and below: the agent ends.
        let tell_pressures = {
            let about_node = about_node.clone();
            move |new| drop(about_node.send(FromNode::Pressures(new)))
        };
        let tell_marks = move |new| drop(about_node.send(FromNode::Marks(new)));
        let object = Arc::new(NodeObject::new(registration::initial(&settings), tell_marks));

        let owner = {
            let (object, name) = (Arc::clone(&object), node_name.to_owned());
            move || object.uid().map(|uid| Owner { name: name.clone(), uid })
        };
        let status = StatusHandle::start(Box::new(client.clone()), view, Box::new(owner), rung)
            .context("start the reporter of the pods' status")?;

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
            wall: clock::wall,
        };
        let lease = LeaseHandle::start(lease).context("start the renewal of the node's lease")?;

        let node = NodeStatusConfig {
            settings,
            register: config.register_node,
            update_every: config.node_status_update_frequency.to_std(),
            report_every: config.node_status_report_frequency.to_std(),
            max_images: config.node_status_max_images,
        };
        let starts =
            NodeNews { event_type: EventType::Normal, reason: "Starting", message: "Starting kubelet.".to_owned() };
        tell(&events.sender(), node_name, starts);
        let news = {
            let (events, name) = (events.sender(), node_name.to_owned());
            Box::new(move |news| tell(&events, &name, news))
        };
        let serving = if config.server_tls_bootstrap {
            let (object, folder, name) = (Arc::clone(&object), cert_dir, node_name.to_owned());
            let names = move || {
                let node = object.get();
                serving_names(node.status.as_ref()?.addresses.as_deref()?)
            };
            let serving = ServingConfig { folder, node_name: name, client: client.clone(), names: Box::new(names) };
            Some(CertsHandle::start_serving(serving).context("start the care for the serving certificate")?)
        } else {
            None
        };
        let bells = [registered, bell].into_iter().chain(serving.iter().map(CertsHandle::bell)).collect();
        let signals = SignalReader::new(cgroups, machine.memory, root_dir, Path::new("/proc"), Path::new(MOUNT_TABLE));
        let judge = PressureJudge::new(&super::facts::eviction(config));
        let pressure = PressureWatch::new(judge, signals, Box::new(tell_pressures));
        let api = client.clone();
        let parts = NodeStatusParts { api, runtime, relisted, object, bells, shutting_down, pressure, news };
        let node = NodeStatusHandle::start(node, parts).context("start the node's status")?;

        let send = move |update| drop(sources.send(update));
        let source = ApiSourceHandle::spawn(client.clone(), node_name, send).context("start the API source")?;
        Ok(Self {
            _client: Client(client),
            _source: source,
            _certs: certs,
            _serving: serving,
            _status: status,
            _lease: lease,
            node,
            events,
        })
    }
}

impl Cluster {
    /// Tells of the machine's shutdown: as an event, and by the node's condition at once.
    pub(super) fn on_shutdown(&self, node_name: &str) -> impl Fn(bool) + Send + use<> {
        let (events, hurry, name) = (self.events.sender(), self.node.hurry(), node_name.to_owned());
        move |begins| {
            let what = if begins { "event" } else { "cancellation" };
            let message = format!("Shutdown manager detected shutdown {what}");
            tell(&events, &name, NodeNews { event_type: EventType::Normal, reason: "NodeShutdown", message });
            // Full: it is rung already.
            let _rung = hurry.try_send(());
        }
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

/// Leaves news of the node as an event. Clients look for a node's events by its name in the place of a uid.
fn tell(events: &EventSender, node_name: &str, news: NodeNews) {
    let object =
        EventObject { kind: "Node", name: node_name.to_owned(), uid: node_name.to_owned(), ..EventObject::default() };
    let NodeNews { event_type, reason, message } = news;
    events.tell(ToldEvent { object, event_type, reason: reason.to_owned(), message, at: clock::wall() });
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
        declared: declared::features(
            &|gate| is_enabled(&config.feature_gates, gate),
            config.enable_server && config.enable_debugging_handlers,
        ),
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

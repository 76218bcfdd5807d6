//! The composition root: reads the node's facts, builds every channel, starts and joins every thread.
//!
//! Layer L4, on the main thread, which then waits for signals. It decides nothing about pods. Containers
//! are never stopped by the agent's end: the next start finds them again.

mod cluster;
pub(crate) mod driver;
pub(crate) mod facts;
mod join;
mod node_server;
mod numbers;
mod service;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use crossbeam_channel::bounded;

use crate::agents::images::{PullLimits, Puller};
use crate::agents::leftovers::{LeftoversHandle, Places};
use crate::agents::log_rotation::LogRotationHandle;
use crate::agents::pleg::{PlegHandle, PlegSettings};
use crate::agents::pod_worker::{NetworkWord, Patience, Tools, WorkerPool, WorkerPoolSettings};
use crate::agents::prober::{Ports, ProberHandle};
use crate::agents::shutdown::{DoneBell, ShutdownHandle};
use crate::agents::source::file::{FileSourceConfig, FileSourceHandle};
use crate::agents::source::http::{HttpSourceConfig, HttpSourceHandle};
use crate::agents::store::StoreHandle;
use crate::config::{Loaded, features};
use crate::core::backoff::BackoffLimits;
use crate::core::node::{Node, Probes, Settings};
use crate::core::status::RestartAll;
use crate::cri::Client;
use crate::host::cgroup::{CGROUP_MOUNT, CgroupDriver, CgroupTree, CgroupVersion};
use crate::host::cgroup_values::CgroupValues;
use crate::host::mounts::MOUNT_TABLE;
use crate::host::pod_dirs::PodDirs;
use crate::msg::{NodeView, SourceKind, ToStore};
use crate::probe::NetProber;
use crate::server::health::{Check, Checks, HealthServer};
use crate::server::local::{self, LocalServer, LocalTools};
use crate::store::Store;
use crate::sync_loop::{Inbox, Outbox, Ping, SyncLoop};
use crate::util::heartbeat::Heartbeat;
use crate::util::notify::Notifier;
use crate::util::signals::Signals;
use crate::util::snapshot::Snapshot;
use crate::util::thread::{OwnerThread, StackSize};
pub(crate) use service::ReadAgain;
use service::Service;

/// Folder of log links for log shippers, as upstream has it.
const LOG_LINKS: &str = "/var/log/containers";

/// Beyond the pods of a full node: pods that end while their successors start.
const SPARE_WORKERS: usize = 16;

/// How often it is looked for what pods have left behind.
const LEFTOVERS_EVERY: Duration = Duration::from_secs(30);

/// Runs the agent until it is told to stop.
///
/// # Errors
/// The node cannot be a node: the facts that pods need are missing, a setting forbids it, or the kernel
/// has no threads left.
pub(crate) fn run(loaded: Loaded, read_again: &ReadAgain) -> anyhow::Result<()> {
    let Loaded { mut config, flags, own, cgroup_driver_from, warnings, notes } = loaded;
    crate::util::heap::keep_small();
    // Before any other thread starts, so that all of them leave these signals to the main thread.
    let signals = Signals::block().context("block signals")?;
    crate::util::thread::log_panics();
    let notifier = Notifier::from_environment().context("find the service manager")?;
    log::info!("ferrolet {} starts", env!("CARGO_PKG_VERSION"));
    for note in &notes {
        log::info!("{note}");
    }
    for warning in &warnings {
        log::warn!("{warning}");
    }
    let machine = crate::host::facts::read(Path::new("/")).context("read the facts of this machine")?;
    facts::set_own_limits(&config);
    if config.fail_swap_on && !machine.swap_devices.is_empty() {
        bail!(
            "swap is on ({}) and failSwapOn is true: turn swap off (swapoff -a and /etc/fstab) or set failSwapOn: false",
            machine.swap_devices.join(", ")
        );
    }
    let root_dir = std::path::absolute(&flags.root_dir).context("find the absolute form of --root-dir")?;
    let dirs = PodDirs::new(&root_dir, &config.pod_logs_dir);
    dirs.ensure_roots().context("make the folders of the agent")?;
    let log_links = log_links(&config.pod_logs_dir);

    let node_name = facts::node_name(&flags, &machine);
    let node_ips = facts::node_ips(&flags, &node_name);
    let image_endpoint = Some(config.image_service_endpoint.as_str()).filter(|e| !e.is_empty());
    let client =
        Client::new(&config.container_runtime_endpoint, image_endpoint, config.runtime_request_timeout.to_std())
            .context("containerRuntimeEndpoint")?;
    let runtime = facts::RuntimeFacts::ask(&client);
    let driver = driver::choose(&config, cgroup_driver_from.as_deref(), runtime.cgroup_driver)?;
    let cgroups = cgroup_tree(&config, driver)?;

    let (store, remembered) = Store::open(&root_dir.join("ferrolet"));
    for aside in &remembered.set_aside {
        log::warn!("{}: {}", aside.path.display(), aside.why);
    }
    if let Some(problem) = &remembered.problem {
        log::error!("pods are not remembered across a restart until this is mended: {problem}");
    }
    let store = Arc::new(StoreHandle::start(store).context("start the store")?);

    let file_pods = facts::file_pods(&remembered.records);

    let mut sources = Vec::new();
    if !config.static_pod_path.is_empty() {
        sources.push(SourceKind::File);
    }
    if !config.static_pod_url.is_empty() {
        sources.push(SourceKind::Http);
    }
    let joined = join::join(&config, &flags, &node_name)?;
    let link = joined.map(|joined| cluster::Link::open(joined, &config, &node_name)).transpose()?;
    if link.is_some() {
        sources.push(SourceKind::Api);
    }
    if sources.is_empty() {
        log::warn!(
            "there is no source of pods, so none is started and none is ended: set --kubeconfig, staticPodPath or staticPodURL"
        );
    }

    let resources = facts::resources(&config, &flags, &machine, &root_dir);
    let allocatable = resources.allocatable.clone();
    let node_facts =
        facts::node_facts(&config, &machine, &allocatable, &node_name, &node_ips, &root_dir, &cgroups, &runtime);
    let periods = facts::shutdown_periods(&config);
    let node = Node::new(
        Settings {
            node: node_name.clone(),
            sources,
            backoff: BackoffLimits::with_max(longest_backoff(&config)),
            keep_dead: usize::try_from(flags.maximum_dead_containers_per_container).unwrap_or(usize::MAX),
            restart_all: if features::is_enabled(&config.feature_gates, "RestartAllContainersOnContainerExits") {
                RestartAll::InForce
            } else {
                RestartAll::Unknown
            },
            boot_id: machine.boot_id.clone(),
            runtime_name: runtime.name.clone(),
            host_ips: node_ips,
            recursive_read_only: node_facts.handler("").recursive_read_only_mounts,
            probes: Probes::Run,
            admission: facts::admission(&config, &flags, &machine, &runtime, &node_name, &allocatable)?,
            resize_pod_level: features::is_enabled(&config.feature_gates, "InPlacePodLevelResourcesVerticalScaling"),
            admission_hook: own.admission_hook.is_some(),
            shutdown: periods.clone(),
        },
        remembered.records,
    );

    // Room for a burst, not for every pod: a channel's memory is taken when it is made. Whom the loop sends to, it holds
    // back what finds no room; who sends to the loop waits.
    let (source_sender, source_inbox) = bounded(4);
    let (pleg_sender, pleg_inbox) = bounded(32);
    let (pleg_commands, pleg_asked) = bounded(64);
    let (works_sender, works) = bounded(64);
    let (worker_sender, worker_inbox) = bounded(64);
    let (prober_sender, prober_inbox) = bounded(16);
    let (probe_bell, probe_rung) = bounded(1);
    let (refresh_sender, refresh_inbox) = bounded(16);
    let (leftover_sender, leftover_inbox) = bounded(1);
    let (node_sender, node_inbox) = bounded(1);
    let (shutdown_sender, shutdown_inbox) = bounded(4);
    let (ping_sender, ping_inbox) = bounded::<Ping>(16);
    let (stop_sender, stop) = bounded(1);

    let view = Arc::new(Snapshot::new(NodeView::default()));
    let relisted = Arc::new(Heartbeat::default());

    let inbox = Inbox {
        sources: source_inbox,
        pleg: pleg_inbox,
        workers: worker_inbox,
        prober: prober_inbox,
        refreshes: refresh_inbox,
        leftovers: leftover_inbox,
        node: node_inbox,
        shutdowns: shutdown_inbox,
        pings: ping_inbox,
        stop,
    };
    let to_store = {
        let store = Arc::clone(&store);
        move |command| match command {
            ToStore::Put(record) => store.put(record),
            ToStore::Remove(uid) => store.remove(uid),
        }
    };
    let outbox = Outbox::new(works_sender, pleg_commands, to_store).with_bell(probe_bell);
    let shutdown_done = DoneBell::new().context("make the bell of the machine's shutdown")?;
    let outbox = outbox.with_shutdown_done({
        let bell = shutdown_done.clone();
        move || bell.ring()
    });
    let outbox = match &link {
        Some(link) => link.join(outbox),
        None => outbox,
    };
    let sync_loop = SyncLoop::new(node, inbox, outbox, Arc::clone(&view));
    let loop_thread =
        OwnerThread::spawn("sync", StackSize::Normal, move || sync_loop.run()).context("start the sync loop")?;

    let places = Places { dirs: dirs.clone(), cgroups: cgroups.clone() };
    let (stats_dirs, stats_cgroups) = (dirs.clone(), cgroups.clone());
    let leftovers = LeftoversHandle::start(places, LEFTOVERS_EVERY, Arc::clone(&view), leftover_sender)
        .context("start the search for leftovers")?;

    let log_rotation = match facts::log_rotation(&config) {
        Some(settings) => {
            Some(LogRotationHandle::start(client.clone(), settings, Arc::clone(&view)).context("start log rotation")?)
        }
        None => None,
    };

    let pull_limits = PullLimits::from_config(
        config.registry_pull_qps,
        config.registry_burst,
        config.serialize_image_pulls,
        config.max_parallel_image_pulls,
    );
    let objects = match &link {
        Some(link) => Some(cluster::objects(link.client(), &config, refresh_sender)?),
        None => None,
    };
    let tools = Arc::new(Tools {
        client: client.clone(),
        facts: node_facts,
        dirs,
        mount_table: PathBuf::from(MOUNT_TABLE),
        log_links,
        cgroups,
        pod_pids_limit: config.pod_pids_limit,
        resolv_conf: config.resolv_conf.clone(),
        id_ranges: facts::id_ranges(&config),
        view: Arc::clone(&view),
        admission_hook: facts::admission_hook(&own),
        images: Box::new(Puller::new(Box::new(client.clone()), pull_limits)),
        network: NetworkWord::default(),
        patience: Patience::default(),
        objects: match &objects {
            Some(handle) => Arc::new(handle.objects.clone()),
            None => Arc::new(crate::volumes::objects::NoObjects),
        },
        http: NetProber::default(),
    });
    let max_pods = usize::try_from(config.max_pods).unwrap_or(0);
    let pool_settings = WorkerPoolSettings { max: 2 * max_pods + SPARE_WORKERS, idle: Duration::from_secs(10) };
    let pool = WorkerPool::start(tools, pool_settings, works, worker_sender).context("start the pod workers")?;

    let pleg_settings = PlegSettings {
        relist_with_events: config.sync_frequency.to_std().max(Duration::from_secs(1)),
        ..PlegSettings::default()
    };
    let pleg = PlegHandle::start(client.clone(), pleg_settings, pleg_asked, pleg_sender, Arc::clone(&relisted))
        .context("start PLEG")?;

    let attempts = Arc::new(Ports { runtime: client.clone(), net: NetProber::default() });
    let prober =
        ProberHandle::start(attempts, Arc::clone(&view), probe_rung, prober_sender).context("start the prober")?;

    let file_source = if config.static_pod_path.is_empty() {
        None
    } else {
        let settings = FileSourceConfig {
            path: PathBuf::from(&config.static_pod_path),
            node_name: node_name.clone(),
            frequency: config.file_check_frequency.to_std(),
        };
        let sender = source_sender.clone();
        // Disconnected: the agent ends.
        let send = move |update| drop(sender.send(update));
        let elders = facts::elders(client.clone(), file_pods);
        Some(FileSourceHandle::spawn(settings, elders, send).context("start the file source")?)
    };

    let http_source = if config.static_pod_url.is_empty() {
        None
    } else {
        let settings = HttpSourceConfig {
            url: config.static_pod_url.clone(),
            headers: config.static_pod_url_header.clone(),
            node_name: node_name.clone(),
            frequency: config.http_check_frequency.to_std(),
        };
        let sender = source_sender.clone();
        let send = move |update| drop(sender.send(update));
        Some(HttpSourceHandle::spawn(settings, send).context("start the URL source")?)
    };

    let reviewer = node_server::reviewer(link.as_ref().map(cluster::Link::client));
    let shutting_down = Arc::new(AtomicBool::new(false));
    let in_cluster = match link {
        Some(link) => {
            let parts = cluster::NodeParts {
                config: &config,
                flags: &flags,
                machine: &machine,
                resources: &resources,
                node_name: &node_name,
                runtime: client.clone(),
                relisted: Arc::clone(&relisted),
                sources: source_sender.clone(),
                cgroups: stats_cgroups.clone(),
                root_dir: &root_dir,
                about_node: node_sender,
                view: Arc::clone(&view),
                shutting_down: Arc::clone(&shutting_down),
            };
            Some(cluster::Cluster::start(link, parts)?)
        }
        None => None,
    };

    let second_thoughts = driver::watch(&config, cgroup_driver_from, &runtime, driver, client.clone())
        .context("start the watch for the cgroup driver")?;
    let shutdown = match facts::shutdown(&config, &root_dir, &periods) {
        None => None,
        Some(settings) => {
            let in_cluster = in_cluster.as_ref().map(|cluster| cluster.on_shutdown(&node_name));
            let told = Box::new(move |begins| {
                shutting_down.store(begins, Ordering::Release);
                if let Some(tell) = &in_cluster {
                    tell(begins);
                }
            });
            let handle = ShutdownHandle::start(settings, &shutdown_done, shutdown_sender, told);
            Some(handle.context("start the watch for the machine's shutdown")?)
        }
    };

    // A full channel means that the loop turns no more: the answer will not come.
    let ask_loop = move |answer| ping_sender.try_send(Ping(answer)).is_ok();
    let mut service = Service::new(notifier, Arc::clone(&view), ask_loop.clone());
    let checks: Checks =
        Arc::new([Check::ping(), Check::log(), Check::sync_loop(ask_loop), Check::pleg(relisted, Arc::clone(&view))]);
    let stats = numbers::Parts {
        config: &config,
        flags: &flags,
        node: &node_name,
        machine,
        client: &client,
        view: &view,
        cgroups: stats_cgroups,
        dirs: stats_dirs,
        checks: &checks,
    };
    let stats = stats.join();
    let health = match health_address(&config)? {
        None => None,
        Some(address) => Some(HealthServer::start(address, Arc::clone(&checks)).context("start the health server")?),
    };
    let shown = Arc::new(Snapshot::default());
    node_server::show(&shown, &config);
    let server = node_server::start(node_server::Offers {
        config: &config,
        flags: &flags,
        node_name: &node_name,
        root_dir: &root_dir,
        reviewer,
        view: Arc::clone(&view),
        runtime: client.clone(),
        checks: Arc::clone(&checks),
        stats: Arc::clone(&stats),
        configuration: Arc::clone(&shown),
    })?;
    let socket = if root_dir == Path::new("/var/lib/kubelet") {
        PathBuf::from(local::DEFAULT_PATH)
    } else {
        root_dir.join("ferrolet").join(local::FILE_NAME)
    };
    let tools_server = LocalServer::start(&socket, LocalTools { view, client, checks, stats })
        .inspect_err(|error| log::error!("ferrolet ps and the other tools will not work: {error}"))
        .ok();
    // What only the start needed.
    crate::util::heap::give_back();

    service.run(&signals, &mut config, read_again, &|config| node_server::show(&shown, config))?;
    log::info!("the agent was told to end; containers go on");

    // Sources first, the loop next, then what serves it; the store last, so that it holds the newest.
    drop(server);
    drop(shutdown);
    drop(second_thoughts);
    drop(tools_server);
    drop(health);
    drop(file_source);
    drop(http_source);
    drop(in_cluster);
    drop(objects);
    drop(source_sender);
    let _told = stop_sender.send(());
    loop_thread.join();
    drop(prober);
    drop(leftovers);
    drop(log_rotation);
    drop(pool);
    drop(pleg);
    drop(store);
    Ok(())
}

/// Where /healthz is served; `None` when the port is 0.
fn health_address(config: &crate::config::KubeletConfiguration) -> anyhow::Result<Option<SocketAddr>> {
    let port = u16::try_from(config.healthz_port).context("healthzPort")?;
    if port == 0 {
        return Ok(None);
    }
    let ip: IpAddr = config.healthz_bind_address.parse().context("healthzBindAddress")?;
    Ok(Some(SocketAddr::new(ip, port)))
}

fn longest_backoff(config: &crate::config::KubeletConfiguration) -> Duration {
    let period = config.crash_loop_back_off.max_container_restart_period;
    period.map_or(Duration::from_secs(300), crate::config::GoDuration::to_std)
}

fn cgroup_tree(
    config: &crate::config::KubeletConfiguration,
    driver: CgroupDriver,
) -> anyhow::Result<Option<CgroupTree>> {
    driver::check_machine(driver, Path::new(driver::SYSTEMD_RUNS))?;
    let tree = CgroupTree::open(Path::new(MOUNT_TABLE), Path::new(CGROUP_MOUNT), &config.cgroup_root, driver)
        .context("find the cgroup hierarchy")?;
    if tree.version() == CgroupVersion::V1 {
        if config.fail_cgroup_v1 {
            bail!(
                "this machine has cgroup v1 and failCgroupV1 is true: boot with systemd.unified_cgroup_hierarchy=1 or set failCgroupV1: false"
            );
        }
        log::warn!("this machine has cgroup v1, which Kubernetes no longer develops: move to cgroup v2");
    }
    if tree.version() == CgroupVersion::V1 && config.single_process_oom_kill == Some(false) {
        bail!("singleProcessOOMKill: false needs cgroup v2, this machine has cgroup v1: leave it unset");
    }
    for controller in tree.missing_controllers() {
        log::warn!("the kernel has no cgroup controller {controller}: its limits are not enforced");
    }
    if !config.cgroups_per_qos {
        return Ok(None);
    }
    tree.ensure_levels(&CgroupValues::default(), 0).context("make the cgroups of the QoS levels")?;
    Ok(Some(tree))
}

/// The folder of log links belongs to the logs' usual place; a node with its logs elsewhere makes none,
/// so that two agents on one machine do not mix theirs.
fn log_links(pod_logs_dir: &str) -> Option<PathBuf> {
    if Path::new(pod_logs_dir) != Path::new("/var/log/pods") {
        return None;
    }
    let folder = PathBuf::from(LOG_LINKS);
    match crate::host::files::ensure_folder(&folder, 0o755) {
        Ok(()) => Some(folder),
        Err(error) => {
            log::warn!("no log links: {}", crate::host::error::explain(&error));
            None
        }
    }
}

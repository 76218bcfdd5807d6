//! What the agent knows of its node at the start: names, addresses, the runtime's word, limits.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::agents::log_rotation::LogRotationSettings;
use crate::agents::pod_worker::{AdmissionHook, HookFailure, IdRanges};
use crate::agents::shutdown::ShutdownConfig;
use crate::api::pressure::Pressures;
use crate::api::record::PodRecord;
use crate::api::runtime::FilePod;
use crate::api::v1::Taint;
use crate::api::{Quantity, quantity};
use crate::config::features::is_enabled;
use crate::config::own::FailurePolicy;
use crate::config::{GoDuration, KubeletConfiguration, NodeFlags, OwnConfig};
use crate::core::admit::Limits;
use crate::core::capacity::{self, MachineResources, NodeResources, Reservations};
use crate::core::eviction::EvictionSettings;
use crate::core::log_rotation::RotationPolicy;
use crate::core::node_object::addresses::{self, HostNetwork};
use crate::core::node_object::go_architecture;
use crate::core::qos::{self, CgroupFacts, ResourceList};
use crate::core::shutdown;
use crate::core::spec::admission::SysctlAllowlist;
use crate::core::spec::{HandlerFeatures, NodeFacts, SwapBehavior};
use crate::cri::Client;
use crate::host::bus::{self, logind};
use crate::host::cgroup::{CgroupDriver, CgroupTree, CgroupVersion};
use crate::host::error::explain;
use crate::host::facts::MachineFacts;
use crate::host::network;
use crate::util::cancel::Cancel;
use crate::util::order::Gather;
use crate::util::thread::{StackSize, spawn};

/// Time for the resolver to tell what the node's name means.
const RESOLVER_TIME: Duration = Duration::from_secs(2);

/// How long the start waits for a runtime that is not there yet. Pods wait for it anyway.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long static pods wait to know which of them run already.
const ELDERS_LIMIT: Duration = Duration::from_secs(10);

/// The node's name: `--hostname-override`, else the host's.
pub(super) fn node_name(flags: &NodeFlags, machine: &MachineFacts) -> String {
    let name = flags.hostname_override.as_deref().unwrap_or(&machine.hostname);
    name.trim().to_lowercase()
}

/// The node's addresses as its pods see them, chosen as the Node object's are. What the node's name means
/// is asked in a cluster only.
pub(super) fn node_ips(flags: &NodeFlags, node_name: &str) -> Vec<String> {
    let named = match flags.kubeconfig {
        Some(_) => network::resolve(node_name, RESOLVER_TIME),
        None => Vec::new(),
    };
    let network = HostNetwork { own: network::own_addresses(), outgoing: network::outgoing_addresses(), named };
    let chosen = addresses::choose(&flags.node_ip, node_name, &network).unwrap_or_else(|error| {
        log::warn!("{error}");
        flags.node_ip.iter().copied().filter(|ip| !ip.is_unspecified()).collect()
    });
    if chosen.is_empty() {
        // A machine without any network still runs pods.
        return vec!["127.0.0.1".to_owned()];
    }
    chosen.iter().map(ToString::to_string).collect()
}

/// What the agent does to its own process. A machine that forbids it still runs pods.
pub(super) fn set_own_limits(config: &KubeletConfiguration) {
    let file = Path::new("/proc/self/oom_score_adj");
    if let Err(error) = crate::host::facts::set_oom_score_adj(file, config.oom_score_adj) {
        log::warn!("oomScoreAdj {} is not in force: {}", config.oom_score_adj, explain(&error));
    }
    let wanted = u64::try_from(config.max_open_files).unwrap_or(0);
    match crate::host::facts::raise_open_files(wanted) {
        Ok(now) if now < wanted => log::warn!("maxOpenFiles {wanted} is not in force, the system allows {now}"),
        Ok(_) => {}
        Err(error) => log::warn!("{}", explain(&error)),
    }
}

/// What the runtime tells of itself.
#[derive(Clone, Debug)]
pub(super) struct RuntimeFacts {
    /// `containerd`, `cri-o`.
    pub(super) name: String,
    /// Handlers by name; "" is the default one.
    pub(super) handlers: BTreeMap<String, HandlerFeatures>,
    /// Whether it keeps to `supplementalGroupsPolicy`.
    pub(super) supplemental_groups_policy: bool,
    /// Who makes cgroups there; `None` where it did not tell.
    pub(super) cgroup_driver: Option<CgroupDriver>,
    /// Whether it answered at all.
    pub(super) answered: bool,
}

impl RuntimeFacts {
    /// Asks the runtime, for a moment only: a node starts with its runtime or before it.
    pub(super) fn ask(client: &Client) -> Self {
        let cancel = Cancel::new();
        let (timer, asker) = (cancel.clone(), client.clone());
        let (done, waiting) = crossbeam_channel::bounded::<()>(0);
        let watch = spawn("ask-limit", StackSize::Small, move || {
            let _done_or_late = waiting.recv_timeout(PATIENCE);
            timer.cancel();
        });
        let asked = || -> Result<Self, crate::cri::CriError> {
            let version = asker.version(&cancel)?;
            let status = asker.status(false, &cancel)?;
            let handlers = status.handlers.into_iter().map(|handler| {
                let features = HandlerFeatures {
                    recursive_read_only_mounts: handler.recursive_read_only_mounts,
                    user_namespaces: handler.user_namespaces,
                };
                (handler.name, features)
            });
            log::info!("the container runtime is {} {}", version.name, version.version);
            let supplemental_groups_policy = status.supplemental_groups_policy;
            let cgroup_driver = asker.runtime_config(&cancel)?.map(driver_of);
            let handlers = handlers.gather();
            Ok(Self { name: version.name, handlers, supplemental_groups_policy, cgroup_driver, answered: true })
        };
        let found = asked();
        drop(done);
        drop(watch);
        found.unwrap_or_else(|error| {
            log::warn!("the container runtime does not tell of itself yet: {error}");
            Self {
                name: "containerd".to_owned(),
                handlers: BTreeMap::new(),
                supplemental_groups_policy: false,
                cgroup_driver: None,
                answered: false,
            }
        })
    }
}

/// In which groups pods end when the machine shuts down.
pub(crate) fn shutdown_periods(config: &KubeletConfiguration) -> Vec<shutdown::Period> {
    if !is_enabled(&config.feature_gates, "GracefulNodeShutdown") {
        return Vec::new();
    }
    let steps = config.shutdown_grace_period_by_pod_priority.iter();
    let steps: Vec<(i32, i64)> = match is_enabled(&config.feature_gates, "GracefulNodeShutdownBasedOnPodPriority") {
        true => steps.map(|step| (step.priority, step.shutdown_grace_period_seconds)).collect(),
        false => Vec::new(),
    };
    let (whole, critical) = (config.shutdown_grace_period, config.shutdown_grace_period_critical_pods);
    shutdown::periods(whole.to_std(), critical.to_std(), &steps)
}

/// How the machine's shutdown is heard of; `None` where nothing is set, or the machine has no systemd.
pub(super) fn shutdown(
    config: &KubeletConfiguration,
    root_dir: &Path,
    periods: &[shutdown::Period],
) -> Option<ShutdownConfig> {
    if periods.is_empty() {
        return None;
    }
    let bus = bus::system_bus();
    // The bus may come later than the agent; what systemd makes of this folder is there before anything else.
    if !bus.exists() && !Path::new("/run/systemd/system").is_dir() {
        log::warn!(
            "shutdownGracePeriod is not in force: this machine has no systemd, which would tell of its shutdown"
        );
        return None;
    }
    let drop_ins = logind::DROP_INS.into();
    // As the kubelet, which keeps the times of shutdowns by priority alone.
    let keeps = is_enabled(&config.feature_gates, "GracefulNodeShutdownBasedOnPodPriority");
    let state = keeps.then(|| root_dir.to_owned());
    Some(ShutdownConfig { bus, drop_ins, whole: shutdown::whole(periods), state })
}

/// The verbosities of single files, as the log takes them.
pub(crate) fn vmodule(logging: &crate::config::nested::Logging) -> Vec<(String, u32)> {
    logging.vmodule.iter().map(|item| (item.file_pattern.clone(), item.verbosity)).collect()
}

/// The static pods of files that this agent remembers.
pub(super) fn file_pods(records: &[PodRecord]) -> Vec<FilePod> {
    let of = |record: &PodRecord| {
        let metadata = &record.pod.metadata;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let (namespace, name) = (text(&metadata.namespace), text(&metadata.name));
        FilePod::from_annotations(&namespace, &name, record.uid.as_str(), metadata.annotations.as_ref()?)
    };
    records.iter().filter_map(of).collect()
}

/// How the file source finds the static pods of an earlier agent: those remembered, and those that the runtime has. It waits for a
/// runtime that starts, since pods wait for it too, but not for ever.
pub(super) fn elders(client: Client, remembered: Vec<FilePod>) -> impl FnOnce(&Cancel) -> Vec<FilePod> {
    move |stop| {
        let client = client.with_timeout(ELDERS_LIMIT);
        let until = Instant::now() + ELDERS_LIMIT;
        let mut pods = remembered;
        loop {
            match client.file_pods(stop) {
                Ok(found) => pods.extend(found),
                Err(error) if Instant::now() >= until => {
                    log::warn!(
                        "static pods that run under the uid of another agent are not known, and will begin anew: {error}"
                    );
                }
                Err(_) if !stop.wait(PATIENCE) => continue,
                Err(_) => {}
            }
            return pods;
        }
    }
}

/// A driver in the words of the host.
pub(crate) fn driver_of(told: crate::api::runtime_info::CgroupDriver) -> CgroupDriver {
    match told {
        crate::api::runtime_info::CgroupDriver::Systemd => CgroupDriver::Systemd,
        crate::api::runtime_info::CgroupDriver::Cgroupfs => CgroupDriver::Cgroupfs,
    }
}

/// Everything that specs are made from.
#[allow(clippy::too_many_arguments)]
pub(super) fn node_facts(
    config: &KubeletConfiguration,
    machine: &MachineFacts,
    allocatable: &ResourceList,
    node_name: &str,
    node_ips: &[String],
    root_dir: &Path,
    cgroups: &Option<CgroupTree>,
    runtime: &RuntimeFacts,
) -> NodeFacts {
    let version = match cgroups.as_ref().map(CgroupTree::version) {
        Some(CgroupVersion::V1) => qos::CgroupVersion::V1,
        Some(CgroupVersion::V2) | None => qos::CgroupVersion::V2,
    };
    NodeFacts {
        node_name: node_name.to_owned(),
        node_ips: node_ips.to_vec(),
        root_dir: root_dir.to_string_lossy().trim_end_matches('/').to_owned(),
        pod_logs_dir: config.pod_logs_dir.trim_end_matches('/').to_owned(),
        cluster_domain: config.cluster_domain.clone(),
        cluster_dns: config.cluster_dns.clone(),
        seccomp_default: config.seccomp_default,
        memory_capacity: machine.memory,
        swap_capacity: machine.swap,
        swap: SwapBehavior::NoSwap,
        allocatable: capacity::quantities(allocatable),
        hugepage_sizes: machine.hugepage_sizes.clone(),
        cgroup: CgroupFacts {
            version,
            driver: match cgroups.as_ref().map(CgroupTree::driver) {
                Some(CgroupDriver::Systemd) => qos::CgroupDriver::Systemd,
                Some(CgroupDriver::Cgroupfs) | None => qos::CgroupDriver::Cgroupfs,
            },
            root: config.cgroup_root.clone(),
            per_qos: config.cgroups_per_qos,
            cpu_cfs_quota: config.cpu_cfs_quota,
            cpu_cfs_period_micros: i64::try_from(config.cpu_cfs_quota_period.to_std().as_micros()).unwrap_or(100_000),
            pod_pids_limit: Some(config.pod_pids_limit).filter(|limit| *limit > 0),
            swap_controller: swap_controller(version),
            single_process_oom_kill: config.single_process_oom_kill.unwrap_or(version == qos::CgroupVersion::V1),
        },
        selinux: Path::new("/sys/fs/selinux/enforce").exists(),
        thermal_throttle_cpus: machine.thermal_throttle_cpus.clone(),
        handlers: runtime.handlers.clone(),
    }
}

/// What the node has, and what of it pods may use.
pub(super) fn resources(
    config: &KubeletConfiguration,
    flags: &NodeFlags,
    machine: &MachineFacts,
    root_dir: &Path,
) -> NodeResources {
    let ephemeral_storage = match config.local_storage_capacity_isolation {
        false => None,
        true => crate::host::facts::storage_capacity(root_dir)
            .inspect_err(|error| log::warn!("pods that request ephemeral storage are refused: {}", explain(error)))
            .ok(),
    };
    let machine = MachineResources {
        cpus: machine.cpus,
        memory: machine.memory,
        ephemeral_storage,
        hugepages: machine.hugepages.clone(),
    };
    let quantities = |list: &BTreeMap<String, String>| {
        list.iter().map(|(name, amount)| (name.clone(), Quantity(amount.clone()))).gather()
    };
    let ignore_eviction = flags.experimental_allocatable_ignore_eviction;
    let reserved_cpus = Some(crate::host::facts::cpu_list(&config.reserved_system_cpus)).filter(|count| *count > 0);
    capacity::node_resources(
        &machine,
        &Reservations {
            max_pods: u32::try_from(config.max_pods).unwrap_or(0),
            pods_per_core: u32::try_from(config.pods_per_core).unwrap_or(0),
            system: quantities(&config.system_reserved),
            kube: quantities(&config.kube_reserved),
            system_cpus: reserved_cpus,
            eviction_hard: if ignore_eviction { BTreeMap::new() } else { config.eviction_hard.clone() },
        },
    )
}

/// By which thresholds the node is short of something.
pub(super) fn eviction(config: &KubeletConfiguration) -> EvictionSettings {
    let soft = config.eviction_soft.iter().filter_map(|(signal, threshold)| {
        let grace = GoDuration::parse(config.eviction_soft_grace_period.get(signal)?)?;
        Some((signal.clone(), (threshold.clone(), grace.to_std())))
    });
    EvictionSettings {
        hard: config.eviction_hard.clone(),
        soft: soft.collect(),
        reclaim: config.eviction_minimum_reclaim.clone(),
        transition: config.eviction_pressure_transition_period.to_std(),
    }
}

/// The node's labels: those that every node has, and `--node-labels`.
fn node_labels(flags: &NodeFlags, node_name: &str) -> BTreeMap<String, String> {
    let arch = go_architecture(std::env::consts::ARCH);
    let known = [
        ("kubernetes.io/hostname", node_name),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", arch),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", arch),
    ];
    let known = known.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let given = flags.node_labels.iter().map(|(key, value)| (key.clone(), value.clone()));
    given.chain(known).gather()
}

/// The taints that the node registers with.
pub(super) fn taints(config: &KubeletConfiguration) -> Vec<Taint> {
    let taint = |taint: &crate::config::nested::Taint| Taint {
        key: taint.key.clone(),
        value: Some(taint.value.clone()).filter(|value| !value.is_empty()),
        effect: taint.effect.clone(),
        time_added: None,
    };
    config.register_with_taints.iter().map(taint).collect()
}

/// What pods are checked against before they may start.
pub(super) fn admission(
    config: &KubeletConfiguration,
    flags: &NodeFlags,
    machine: &MachineFacts,
    runtime: &RuntimeFacts,
    node_name: &str,
    allocatable: &ResourceList,
) -> anyhow::Result<Limits> {
    let sysctls = SysctlAllowlist::new(&config.allowed_unsafe_sysctls, &machine.kernel).map_err(anyhow::Error::msg)?;
    Ok(Limits {
        node_name: node_name.to_owned(),
        labels: node_labels(flags, node_name),
        taints: taints(config),
        node_is_known: false,
        pressures: Pressures::default(),
        allocatable: allocatable.clone(),
        sysctls,
        apparmor: machine.apparmor,
        supplemental_groups_policy: runtime.supplemental_groups_policy,
        no_pod_level_resources: !is_enabled(&config.feature_gates, "PodLevelResources"),
    })
}

/// The program that has the last word about pods.
pub(super) fn admission_hook(own: &OwnConfig) -> Option<AdmissionHook> {
    let hook = own.admission_hook.clone()?;
    Some(AdmissionHook {
        path: hook.path,
        arguments: hook.arguments,
        timeout: hook.timeout,
        on_failure: match hook.failure_policy {
            FailurePolicy::Admit => HookFailure::Admit,
            FailurePolicy::Reject => HookFailure::Reject,
        },
    })
}

/// User namespaces: how many ids a pod gets, and for how many pods there are ranges.
pub(super) fn id_ranges(config: &KubeletConfiguration) -> IdRanges {
    let per_pod = config.user_namespaces.as_ref().and_then(|u| u.ids_per_pod).unwrap_or(65536);
    IdRanges { per_pod: u32::try_from(per_pod).unwrap_or(65536), pods: u32::try_from(config.max_pods).unwrap_or(0) }
}

/// How container logs are rotated; `None` for not at all.
pub(super) fn log_rotation(config: &KubeletConfiguration) -> Option<LogRotationSettings> {
    let size = quantity::bytes(&Quantity(config.container_log_max_size.clone())).ok()?;
    let max_size = u64::try_from(size).ok()?;
    let max_files = usize::try_from(config.container_log_max_files).ok()?;
    Some(LogRotationSettings {
        policy: RotationPolicy { max_size, max_files },
        workers: usize::try_from(config.container_log_max_workers).ok()?,
        interval: config.container_log_monitor_interval.to_std(),
    })
}

fn swap_controller(version: qos::CgroupVersion) -> bool {
    match version {
        qos::CgroupVersion::V1 => Path::new("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes").exists(),
        qos::CgroupVersion::V2 => {
            Path::new("/sys/fs/cgroup/kubepods/memory.swap.max").exists() || Path::new("/proc/swaps").exists()
        }
    }
}

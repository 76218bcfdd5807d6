//! Quality of service of a pod and the numbers that follow from it: OOM scores, CPU shares and
//! quotas, the values of the pod's cgroup and that cgroup's name.
//!
//! Layer L1, pure, called on the sync thread (admission) and on workers. It owns nothing and reads
//! no cgroup: [`CgroupFacts`] tells what the node is like. Quantities that are none count as absent,
//! because validation refuses such pods before they get here.

use std::collections::BTreeMap;

use crate::api::pod;
use crate::api::v1::{Container, Pod};

mod resources;
#[cfg(test)]
mod tests;

pub use resources::{
    Overhead, ResourceList, amount, amounts, container_requests, has_pod_level_limits, has_pod_level_requests,
    has_pod_level_resources, is_pod_level_resource, pod_limits, pod_requests,
};

/// Resource name of CPU.
pub const CPU: &str = "cpu";
/// Resource name of memory.
pub const MEMORY: &str = "memory";
/// Resource name of local ephemeral storage.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// Start of the resource names of huge pages.
pub const HUGEPAGES_PREFIX: &str = "hugepages-";

/// Fewest CPU shares that the kernel takes.
pub const MIN_SHARES: u64 = 2;
/// Most CPU shares that the kernel takes.
pub const MAX_SHARES: u64 = 262_144;
/// Shortest CFS quota, in microseconds.
pub const MIN_QUOTA_MICROS: i64 = 1_000;
/// Usual CFS period, in microseconds.
pub const DEFAULT_PERIOD_MICROS: i64 = 100_000;

const GUARANTEED_OOM_SCORE: i64 = -997;
const BEST_EFFORT_OOM_SCORE: i64 = 1000;
/// Priority class of pods whose processes the kernel shall spare longest.
const SYSTEM_NODE_CRITICAL: &str = "system-node-critical";

/// Quality of service class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QosClass {
    /// Every container has limits for CPU and memory, and requests equal to them.
    Guaranteed,
    /// Some request or limit, but not so.
    Burstable,
    /// None at all.
    BestEffort,
}

impl QosClass {
    /// The word in `status.qosClass`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Guaranteed, Self::Burstable, Self::BestEffort].into_iter().find(|c| c.as_str() == word)
    }
}

/// Which cgroup hierarchy the node has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupVersion {
    /// One hierarchy per controller.
    V1,
    /// The unified hierarchy.
    #[default]
    V2,
}

/// Who makes cgroups, and so what they are called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupDriver {
    /// The agent and the runtime, as folders.
    #[default]
    Cgroupfs,
    /// systemd, as slices.
    Systemd,
}

/// What the node and its configuration say about cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupFacts {
    /// Hierarchy.
    pub version: CgroupVersion,
    /// Driver.
    pub driver: CgroupDriver,
    /// `cgroupRoot`: the cgroup under which `kubepods` lies, `/` or empty for the top.
    pub root: String,
    /// `cgroupsPerQOS`: whether there is a cgroup for each pod.
    pub per_qos: bool,
    /// `cpuCFSQuota`: whether CPU limits are enforced.
    pub cpu_cfs_quota: bool,
    /// `cpuCFSQuotaPeriod` in microseconds.
    pub cpu_cfs_period_micros: i64,
    /// `podPidsLimit`; `None` when it is not above 0.
    pub pod_pids_limit: Option<i64>,
    /// Whether the kernel accounts swap per cgroup.
    pub swap_controller: bool,
    /// `singleProcessOOMKill`: whether an OOM kills one process instead of the container (v2).
    pub single_process_oom_kill: bool,
}

impl Default for CgroupFacts {
    fn default() -> Self {
        Self {
            version: CgroupVersion::default(),
            driver: CgroupDriver::default(),
            root: "/".to_owned(),
            per_qos: true,
            cpu_cfs_quota: true,
            cpu_cfs_period_micros: DEFAULT_PERIOD_MICROS,
            pod_pids_limit: None,
            swap_controller: true,
            single_process_oom_kill: false,
        }
    }
}

/// The pod's class: the one the API server noted, else the one its requests and limits make.
pub fn qos_class(pod: &Pod) -> QosClass {
    let noted = pod.status.as_ref().and_then(|s| s.qos_class.as_deref());
    noted.and_then(QosClass::parse).unwrap_or_else(|| computed_qos_class(pod))
}

/// The class that requests and limits of the pod make. Pod-level resources, where there are any,
/// decide alone; ephemeral containers never count.
pub fn computed_qos_class(pod: &Pod) -> QosClass {
    let mut requests = ResourceList::new();
    let mut limits = ResourceList::new();
    let mut all_limited = true;
    let pod_level = pod::spec(pod).and_then(|s| s.resources.as_ref());
    let of_containers = pod::app_containers(pod).iter().chain(pod::init_containers(pod));
    // A pod-level list of limits that is absent altogether leaves the question open to the requests.
    let levels: Vec<_> = match pod_level {
        Some(resources) => {
            vec![(amounts(resources.requests.as_ref()), resources.limits.as_ref().map(|l| amounts(Some(l))))]
        }
        None => of_containers
            .map(|c| {
                let resources = c.resources.as_ref();
                let of_limits = amounts(resources.and_then(|r| r.limits.as_ref()));
                (amounts(resources.and_then(|r| r.requests.as_ref())), Some(of_limits))
            })
            .collect(),
    };
    for (requested, limited) in levels {
        add_positive(&mut requests, &requested);
        if let Some(limited) = limited.filter(|l| pod_level.is_none() || !l.is_empty()) {
            add_positive(&mut limits, &limited);
            all_limited &= [CPU, MEMORY].iter().all(|name| is_positive(&limited, name));
        }
    }
    if requests.is_empty() && limits.is_empty() {
        return QosClass::BestEffort;
    }
    let equal = requests.len() == limits.len() && requests.iter().all(|(name, a)| limits.get(name) == Some(a));
    if all_limited && equal { QosClass::Guaranteed } else { QosClass::Burstable }
}

fn is_positive(list: &ResourceList, name: &str) -> bool {
    list.get(name).is_some_and(|a| !a.is_zero() && !a.is_negative())
}

fn add_positive(sum: &mut ResourceList, list: &ResourceList) {
    for name in [CPU, MEMORY] {
        if let Some(amount) = list.get(name).filter(|_| is_positive(list, name)) {
            let total = sum.get(name).map_or(*amount, |t| t.plus(*amount));
            sum.insert(name.to_owned(), total);
        }
    }
}

/// OOM score adjustment of a container's processes: the higher, the sooner the kernel kills them.
/// `memory_capacity` is the node's memory in bytes.
pub fn oom_score_adj(pod: &Pod, container: &Container, memory_capacity: u64) -> i64 {
    let class_name = pod::spec(pod).and_then(|s| s.priority_class_name.as_deref());
    if pod::is_critical(pod) && class_name == Some(SYSTEM_NODE_CRITICAL) {
        return GUARANTEED_OOM_SCORE;
    }
    match qos_class(pod) {
        QosClass::Guaranteed => return GUARANTEED_OOM_SCORE,
        QosClass::BestEffort => return BEST_EFFORT_OOM_SCORE,
        QosClass::Burstable => {}
    }
    // What the pod reserves beyond its containers is shared out evenly among them.
    let share = if has_pod_level_requests(pod) { unassigned_memory_per_container(pod) } else { 0 };
    let score = |memory: i64| 1000 - share_of_thousand(memory.saturating_add(share), memory_capacity);
    let requested = |c: &Container| amount(c.resources.as_ref().and_then(|r| r.requests.as_ref()), MEMORY).value();
    let mut adj = score(requested(container));
    let is_sidecar = pod::is_sidecar(container) && pod::init_containers(pod).iter().any(|c| c.name == container.name);
    // A sidecar must not die before the containers that need it.
    if is_sidecar && let Some(least) = pod::app_containers(pod).iter().map(requested).min() {
        adj = adj.min(score(least));
    }
    // Below every BestEffort and above every Guaranteed process.
    adj.clamp(1000 + GUARANTEED_OOM_SCORE, BEST_EFFORT_OOM_SCORE - 1)
}

fn share_of_thousand(memory: i64, capacity: u64) -> i64 {
    let thousandths = i128::from(memory) * 1000 / i128::from(capacity.max(1));
    i64::try_from(thousandths).unwrap_or(i64::MAX / 2)
}

fn unassigned_memory_per_container(pod: &Pod) -> i64 {
    let of_pod = pod::spec(pod).and_then(|s| s.resources.as_ref()).and_then(|r| r.requests.as_ref());
    let total = amount(of_pod, MEMORY);
    let count = pod::app_containers(pod).len() + pod::init_containers(pod).len();
    if total.is_zero() || count == 0 {
        return 0;
    }
    let assigned = container_requests(pod).get(MEMORY).copied().unwrap_or_default();
    total.value().saturating_sub(assigned.value()) / i64::try_from(count).unwrap_or(i64::MAX)
}

/// CPU shares (cgroup v1 scale) for a CPU request in thousandths.
pub fn milli_cpu_to_shares(milli: i64) -> u64 {
    let shares = i128::from(milli) * 1024 / 1000;
    u64::try_from(shares).unwrap_or(0).clamp(MIN_SHARES, MAX_SHARES)
}

/// CFS quota in microseconds for a CPU limit in thousandths; 0 for no limit.
pub fn milli_cpu_to_quota(milli: i64, period_micros: i64) -> i64 {
    if milli == 0 {
        return 0;
    }
    let quota = i128::from(milli) * i128::from(period_micros) / 1000;
    i64::try_from(quota).unwrap_or(i64::MAX).max(MIN_QUOTA_MICROS)
}

/// Values of the pod's own cgroup. `None` leaves a value as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodCgroup {
    /// CPU shares on the v1 scale; on v2 the host port turns them into a weight.
    pub cpu_shares: u64,
    /// CFS quota in microseconds, -1 for no cap.
    pub cpu_quota: Option<i64>,
    /// CFS period in microseconds.
    pub cpu_period: Option<u64>,
    /// Memory limit in bytes.
    pub memory_limit: Option<i64>,
    /// Limit in bytes for each huge page size (`2MB`) that the pod requests.
    pub hugepages: BTreeMap<String, u64>,
    /// Most processes and threads.
    pub pids_limit: Option<i64>,
}

/// What the pod's cgroup must hold.
pub fn pod_cgroup(pod: &Pod, facts: &CgroupFacts) -> PodCgroup {
    let requests = pod_requests(pod, Overhead::Included);
    let limits = pod_limits(pod, Overhead::Included);
    let of = |list: &ResourceList, name: &str| list.get(name).copied().unwrap_or_default();
    let mut result = PodCgroup {
        cpu_shares: MIN_SHARES,
        hugepages: hugepage_amounts(&requests),
        pids_limit: facts.pod_pids_limit.filter(|n| *n > 0),
        ..PodCgroup::default()
    };
    let (cpu_capped, memory_capped) = match qos_class(pod) {
        QosClass::Guaranteed => (true, true),
        QosClass::Burstable => resources::limits_declared(pod),
        QosClass::BestEffort => return result,
    };
    result.cpu_shares = milli_cpu_to_shares(of(&requests, CPU).milli_value());
    if cpu_capped {
        let quota = milli_cpu_to_quota(of(&limits, CPU).milli_value(), facts.cpu_cfs_period_micros);
        result.cpu_quota = Some(if facts.cpu_cfs_quota { quota } else { -1 });
        result.cpu_period = u64::try_from(facts.cpu_cfs_period_micros).ok();
    }
    if memory_capped {
        result.memory_limit = Some(of(&limits, MEMORY).value());
    }
    result
}

/// Huge pages of a list: size as text and bytes.
pub fn hugepage_amounts(list: &ResourceList) -> BTreeMap<String, u64> {
    let sizes = list.iter().filter_map(|(name, amount)| {
        Some((hugepage_size_text(hugepage_bytes(name)?), u64::try_from(amount.value()).unwrap_or(0)))
    });
    sizes.fold(BTreeMap::new(), |mut sum, (size, bytes)| {
        let total: &mut u64 = sum.entry(size).or_default();
        *total = total.saturating_add(bytes);
        sum
    })
}

/// Page size in bytes of a resource like `hugepages-2Mi`; `None` for other resources.
pub fn hugepage_bytes(resource: &str) -> Option<u64> {
    let size = crate::api::quantity::Amount::parse(resource.strip_prefix(HUGEPAGES_PREFIX)?).ok()?;
    u64::try_from(size.value()).ok().filter(|bytes| *bytes > 0)
}

/// Page size as runtimes write it: `2MB`, `1GB`, `64KB`.
pub fn hugepage_size_text(bytes: u64) -> String {
    let (mut number, mut step) = (bytes, 0);
    while number > 0 && number % 1024 == 0 && step < 5 {
        number /= 1024;
        step += 1;
    }
    format!("{number}{}", ["B", "KB", "MB", "GB", "TB", "PB"][step])
}

/// Parts of the name of the cgroup that holds all pods of a class, from the top.
pub fn qos_cgroup(class: QosClass, facts: &CgroupFacts) -> Vec<String> {
    let root = facts.root.split('/').filter(|part| !part.is_empty());
    let mut parts: Vec<String> = root.map(str::to_owned).collect();
    parts.push("kubepods".to_owned());
    match class {
        QosClass::Guaranteed => {}
        QosClass::Burstable => parts.push("burstable".to_owned()),
        QosClass::BestEffort => parts.push("besteffort".to_owned()),
    }
    parts
}

/// The pod's cgroup as the runtime is told it, below the hierarchy's mount point:
/// `/kubepods/burstable/pod<uid>`, or with systemd
/// `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid, - as _>.slice`. Empty when
/// pods have no cgroup of their own.
pub fn pod_cgroup_parent(pod: &Pod, facts: &CgroupFacts) -> String {
    if !facts.per_qos {
        return String::new();
    }
    let mut parts = qos_cgroup(qos_class(pod), facts);
    parts.push(format!("pod{}", pod.metadata.uid.as_deref().unwrap_or_default()));
    cgroup_path(&parts, facts.driver)
}

/// A cgroup's path below the hierarchy's mount point, from the parts of its name.
pub fn cgroup_path(parts: &[String], driver: CgroupDriver) -> String {
    match driver {
        CgroupDriver::Cgroupfs => format!("/{}", parts.join("/")),
        CgroupDriver::Systemd => {
            let mut path = String::new();
            let mut slice = String::new();
            for part in parts {
                if !slice.is_empty() {
                    slice.push('-');
                }
                slice.push_str(&part.replace('-', "_"));
                path.push_str(&format!("/{slice}.slice"));
            }
            if path.is_empty() { "/".to_owned() } else { path }
        }
    }
}

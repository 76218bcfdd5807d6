//! What the node has and what of it pods may use: `status.capacity` and `status.allocatable`.
//!
//! Layer L1, pure, computed at start and when the machine changes. It owns nothing and reads no file: what the
//! machine has and what the configuration keeps back come in as values. Admission and the Node object use the
//! same lists, so that a pod that the scheduler sees room for is not refused here.

use std::collections::BTreeMap;

use crate::api::Quantity;
use crate::api::quantity::{Amount, Format};
use crate::util::order::Gather;

use super::qos::{CPU, EPHEMERAL_STORAGE, HUGEPAGES_PREFIX, MEMORY, ResourceList, amounts};

/// Resource name of the number of pods.
pub const PODS: &str = "pods";

/// What the machine has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineResources {
    /// CPUs that are online.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Size of the file system of `--root-dir` in bytes; `None` if it is unknown or shall not count.
    pub ephemeral_storage: Option<u64>,
    /// Size in bytes and number of the huge pages of each size that the kernel offers.
    pub hugepages: Vec<(u64, u64)>,
}

/// What the configuration keeps back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reservations {
    /// `maxPods`.
    pub max_pods: u32,
    /// `podsPerCore`; 0 for no limit of that kind.
    pub pods_per_core: u32,
    /// `systemReserved`.
    pub system: BTreeMap<String, Quantity>,
    /// `kubeReserved`.
    pub kube: BTreeMap<String, Quantity>,
    /// How many CPUs `reservedSystemCPUs` names; it stands in for the CPU of the two lists above.
    pub system_cpus: Option<u32>,
    /// `evictionHard`, signal to threshold; empty with `--experimental-allocatable-ignore-eviction`.
    pub eviction_hard: BTreeMap<String, String>,
}

/// The two lists of the Node's status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeResources {
    /// What the node has.
    pub capacity: ResourceList,
    /// What of it pods may request.
    pub allocatable: ResourceList,
}

/// Computes capacity and allocatable as the upstream kubelet does. Memory that is set aside as huge pages is not
/// allocatable as memory; nothing falls below 0.
pub fn node_resources(machine: &MachineResources, reservations: &Reservations) -> NodeResources {
    let by_core = match reservations.pods_per_core {
        0 => u32::MAX,
        per_core => per_core.saturating_mul(machine.cpus),
    };
    let mut capacity = ResourceList::from([
        (CPU.to_owned(), Amount::from_value(i64::from(machine.cpus), Format::DecimalSi)),
        (MEMORY.to_owned(), bytes(machine.memory)),
        (PODS.to_owned(), Amount::from_value(i64::from(reservations.max_pods.min(by_core)), Format::DecimalSi)),
    ]);
    capacity.extend(machine.ephemeral_storage.map(|size| (EPHEMERAL_STORAGE.to_owned(), bytes(size))));
    for (size, pages) in &machine.hugepages {
        capacity.insert(format!("{HUGEPAGES_PREFIX}{}", bytes(*size)), bytes(size.saturating_mul(*pages)));
    }

    let (mut system, mut kube) = (amounts(Some(&reservations.system)), amounts(Some(&reservations.kube)));
    if let Some(cpus) = reservations.system_cpus {
        kube.remove(CPU);
        system.insert(CPU.to_owned(), Amount::from_value(i64::from(cpus), Format::DecimalSi));
    }
    let for_eviction = |name: &str, whole: Amount| {
        let signal = match name {
            MEMORY => "memory.available",
            EPHEMERAL_STORAGE => "nodefs.available",
            _ => return None,
        };
        threshold(reservations.eviction_hard.get(signal)?, whole)
    };
    let mut allocatable = ResourceList::new();
    for (name, whole) in &capacity {
        let kept = [system.get(name).copied(), kube.get(name).copied(), for_eviction(name, *whole)];
        let left = kept.into_iter().flatten().fold(*whole, Amount::minus);
        allocatable.insert(name.clone(), not_negative(left));
    }
    let pages = capacity.iter().filter(|(name, _)| name.starts_with(HUGEPAGES_PREFIX));
    let in_pages = pages.fold(Amount::ZERO, |sum, (_, size)| sum.plus(*size));
    if let Some(memory) = allocatable.get_mut(MEMORY) {
        *memory = not_negative(memory.minus(in_pages));
    }
    NodeResources { capacity, allocatable }
}

/// A list as the API writes it.
pub fn quantities(list: &ResourceList) -> BTreeMap<String, Quantity> {
    list.iter().map(|(name, amount)| (name.clone(), amount.to_quantity())).gather()
}

/// An eviction threshold as an amount: itself, or a share of the whole. 0% and 100% turn a threshold off.
pub fn threshold(text: &str, whole: Amount) -> Option<Amount> {
    let Some(percent) = text.strip_suffix('%') else { return Amount::parse(text).ok() };
    let percent: f32 = percent.parse().ok()?;
    if percent <= 0.0 || percent >= 100.0 {
        return None;
    }
    // In single precision first, so that the bytes are those that upstream computes.
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
    let value = (whole.value() as f64 * f64::from(percent / 100.0)) as i64;
    Some(Amount::from_value(value, Format::BinarySi))
}

fn bytes(size: u64) -> Amount {
    Amount::from_value(i64::try_from(size).unwrap_or(i64::MAX), Format::BinarySi)
}

fn not_negative(amount: Amount) -> Amount {
    if amount.is_negative() { Amount::ZERO } else { amount }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> BTreeMap<String, Quantity> {
        let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
        pairs.map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned()))).collect()
    }

    fn strings(text: &str) -> BTreeMap<String, String> {
        list(text).into_iter().map(|(name, amount)| (name, amount.0)).collect()
    }

    fn check(machine: &MachineResources, reservations: &Reservations, capacity: &str, allocatable: &str) {
        let found = node_resources(machine, reservations);
        assert_eq!(quantities(&found.capacity), list(capacity), "capacity with {reservations:?}");
        assert_eq!(quantities(&found.allocatable), list(allocatable), "allocatable with {reservations:?}");
    }

    fn machine() -> MachineResources {
        MachineResources { cpus: 2, memory: 1 << 30, ephemeral_storage: Some(10 << 30), hugepages: Vec::new() }
    }

    #[test]
    fn the_recorded_node_of_upstream() {
        let machine = MachineResources {
            memory: 24_683_652 << 10,
            ephemeral_storage: Some(264_212_084 << 10),
            hugepages: vec![(2 << 20, 0), (1 << 30, 0)],
            ..machine()
        };
        let reservations = Reservations {
            max_pods: 110,
            eviction_hard: strings("memory.available=100Mi nodefs.available=1Gi pid.available=5%"),
            ..Reservations::default()
        };
        let common = "cpu=2 pods=110 hugepages-1Gi=0 hugepages-2Mi=0";
        check(
            &machine,
            &reservations,
            &format!("{common} memory=24683652Ki ephemeral-storage=264212084Ki"),
            &format!("{common} memory=24581252Ki ephemeral-storage=263163508Ki"),
        );
    }

    #[test]
    fn what_is_kept_back_is_not_allocatable() {
        let capacity = "cpu=2 pods=110 memory=1Gi ephemeral-storage=10Gi";
        let with = |change: &dyn Fn(&mut Reservations)| {
            let mut reservations = Reservations { max_pods: 110, ..Reservations::default() };
            change(&mut reservations);
            reservations
        };
        for (reservations, allocatable) in [
            (with(&|_| ()), capacity),
            (
                with(&|r| {
                    r.system = list("cpu=100m memory=24Mi pid=100");
                    r.kube = list("cpu=400m memory=500Mi ephemeral-storage=1Gi");
                }),
                "cpu=1500m pods=110 memory=500Mi ephemeral-storage=9Gi",
            ),
            (
                with(&|r| {
                    r.system = list("cpu=100m");
                    r.kube = list("cpu=400m");
                    r.system_cpus = Some(1);
                }),
                "cpu=1 pods=110 memory=1Gi ephemeral-storage=10Gi",
            ),
            (with(&|r| r.kube = list("memory=2Gi")), "cpu=2 pods=110 memory=0 ephemeral-storage=10Gi"),
            (
                with(&|r| r.eviction_hard = strings("memory.available=25% nodefs.available=50% imagefs.available=15%")),
                "cpu=2 pods=110 memory=768Mi ephemeral-storage=5Gi",
            ),
            (with(&|r| r.eviction_hard = strings("memory.available=100% nodefs.available=0%")), capacity),
        ] {
            check(&machine(), &reservations, capacity, allocatable);
        }
    }

    #[test]
    fn pods_are_limited_by_the_node_and_by_the_core() {
        for (max_pods, pods_per_core, expect) in [(110, 0, "110"), (110, 10, "20"), (15, 10, "15"), (0, 0, "0")] {
            let reservations = Reservations { max_pods, pods_per_core, ..Reservations::default() };
            let found = node_resources(&machine(), &reservations);
            assert_eq!(found.capacity[PODS].to_string(), expect, "{max_pods} {pods_per_core}");
        }
    }

    #[test]
    fn huge_pages_are_no_memory() {
        let machine = MachineResources { hugepages: vec![(2 << 20, 128), (64 << 10, 16)], ..machine() };
        let rest = "cpu=2 pods=0 ephemeral-storage=10Gi hugepages-2Mi=256Mi hugepages-64Ki=1Mi";
        let reservations = Reservations::default();
        check(&machine, &reservations, &format!("{rest} memory=1Gi"), &format!("{rest} memory=767Mi"));
    }

    #[test]
    fn storage_that_is_unknown_is_not_told() {
        let machine = MachineResources { ephemeral_storage: None, ..machine() };
        check(&machine, &Reservations::default(), "cpu=2 pods=0 memory=1Gi", "cpu=2 pods=0 memory=1Gi");
    }
}

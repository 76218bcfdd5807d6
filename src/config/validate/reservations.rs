//! Checks of reservations, cgroups and the CPU, memory and topology managers' fields. Pure; runs on the main thread.

use super::{Checker, names};
use std::collections::{BTreeMap, BTreeSet};

const RESERVABLE: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];
const ENFORCEMENTS: [&str; 6] =
    ["none", "pods", "system-reserved", "system-reserved-compressible", "kube-reserved", "kube-reserved-compressible"];
const CPU_OPTIONS: [&str; 6] = [
    "full-pcpus-only",
    "distribute-cpus-across-numa",
    "align-by-socket",
    "distribute-cpus-across-cores",
    "strict-cpu-reservation",
    "prefer-align-cpus-by-uncorecache",
];

pub(super) fn check(checker: &mut Checker<'_>) {
    let config = checker.config;
    amounts(checker, "systemReserved", &config.system_reserved);
    amounts(checker, "kubeReserved", &config.kube_reserved);
    enforcement(checker);
    cpus(checker);
    memory(checker);
    managers(checker);
    if !config.system_cgroups.is_empty() && config.cgroup_root.is_empty() {
        checker.wrong("systemCgroups", format!("`{}`", config.system_cgroups), "needs cgroupRoot, which is empty");
    }
    for (resource, share) in &config.qos_reserved {
        let at = format!("qosReserved.{resource}");
        checker.require(
            resource == "memory",
            &at,
            format!("`{share}`"),
            "only memory can be kept from lower QoS classes",
        );
        let right =
            share.strip_suffix('%').and_then(|number| number.parse::<u8>().ok()).is_some_and(|number| number <= 100);
        checker.require(right, &at, format!("`{share}`"), "must be a share from 0% to 100%");
    }
    if !config.qos_reserved.is_empty() && !checker.enabled("QOSReserved") {
        checker.wrong("qosReserved", "set", "needs the feature gate QOSReserved");
    }
}

fn amounts(checker: &mut Checker<'_>, field: &str, reserved: &BTreeMap<String, String>) {
    for (resource, amount) in reserved {
        let at = format!("{field}.{resource}");
        if !RESERVABLE.contains(&resource.as_str()) {
            checker.wrong(at, format!("`{amount}`"), format!("only {} can be reserved", RESERVABLE.join(", ")));
        } else if names::amount(amount).is_none_or(|amount| amount.is_negative()) {
            checker.wrong(at, format!("`{amount}`"), "must be an amount such as 100m or 500Mi, not negative");
        }
    }
}

fn enforcement(checker: &mut Checker<'_>) {
    let config = checker.config;
    let list = &config.enforce_node_allocatable;
    let has = |word: &str| list.iter().any(|item| item == word);
    for (name, cgroup) in [("system", &config.system_reserved_cgroup), ("kube", &config.kube_reserved_cgroup)] {
        let (full, compressible) = (format!("{name}-reserved"), format!("{name}-reserved-compressible"));
        if has(&full) && has(&compressible) {
            checker.wrong("enforceNodeAllocatable", "set", format!("must hold {full} or {compressible}, not both"));
        }
        if (has(&full) || has(&compressible)) && cgroup.is_empty() {
            let want = format!("must be set where enforceNodeAllocatable holds {full} or {compressible}");
            checker.wrong(format!("{name}ReservedCgroup"), "empty", want);
        }
    }
    if has("none") && list.len() > 1 {
        checker.wrong("enforceNodeAllocatable", "set", "must not hold anything beside none");
    }
    let mut seen = BTreeSet::new();
    for (index, word) in list.iter().enumerate() {
        let at = format!("enforceNodeAllocatable[{index}]");
        checker.one_of(&at, word, &ENFORCEMENTS);
        checker.require(seen.insert(word), &at, word, "is there twice");
        if !config.cgroups_per_qos && word != "none" && ENFORCEMENTS.contains(&word.as_str()) {
            checker.wrong(at, word, "needs cgroupsPerQOS: true; without it write enforceNodeAllocatable: [none]");
        }
    }
}

fn cpus(checker: &mut Checker<'_>) {
    let config = checker.config;
    let cpus = config.reserved_system_cpus.as_str();
    if cpus.is_empty() {
        return;
    }
    let at = "reservedSystemCPUs";
    checker.require(names::is_cpu_set(cpus), at, format!("`{cpus}`"), "must be a list of CPUs such as 0-1,4");
    if !config.system_reserved_cgroup.is_empty() || !config.kube_reserved_cgroup.is_empty() {
        checker.wrong(
            at,
            format!("`{cpus}`"),
            "cannot be used together with systemReservedCgroup or kubeReservedCgroup",
        );
    }
}

fn memory(checker: &mut Checker<'_>) {
    let config = checker.config;
    let mut seen = BTreeSet::new();
    for (index, reservation) in config.reserved_memory.iter().enumerate() {
        let at = format!("reservedMemory[{index}]");
        checker.at_least(&format!("{at}.numaNode"), reservation.numa_node, 0);
        checker.require(
            !reservation.limits.is_empty(),
            &format!("{at}.limits"),
            "empty",
            "must hold memory or hugepages-<size>",
        );
        for (resource, amount) in &reservation.limits {
            let at = format!("{at}.limits.{resource}");
            let known =
                resource == "memory" || resource.strip_prefix("hugepages-").is_some_and(|size| !size.is_empty());
            let amount = amount.0.as_str();
            checker.require(known, &at, amount, "only memory and hugepages-<size> can be reserved here");
            let right = names::amount(amount).is_some_and(|amount| !amount.is_zero() && !amount.is_negative());
            checker.require(right, &at, format!("`{amount}`"), "must be an amount above zero, such as 1Gi");
            let first = seen.insert((reservation.numa_node, resource));
            checker.require(first, &at, amount, "is reserved twice on this NUMA node");
        }
    }
}

fn managers(checker: &mut Checker<'_>) {
    let config = checker.config;
    checker.one_of("cpuManagerPolicy", &config.cpu_manager_policy, &["none", "static"]);
    checker.not_negative("cpuManagerReconcilePeriod", config.cpu_manager_reconcile_period);
    checker.one_of("memoryManagerPolicy", &config.memory_manager_policy, &["None", "Static"]);
    let policies = ["none", "best-effort", "restricted", "single-numa-node"];
    checker.one_of("topologyManagerPolicy", &config.topology_manager_policy, &policies);
    checker.one_of("topologyManagerScope", &config.topology_manager_scope, &["container", "pod"]);
    for (option, value) in &config.cpu_manager_policy_options {
        let at = format!("cpuManagerPolicyOptions.{option}");
        checker.one_of(&at, option, &CPU_OPTIONS);
        checker.require(
            ["true", "false"].contains(&value.as_str()),
            &at,
            format!("`{value}`"),
            "must be \"true\" or \"false\"",
        );
    }
    for (option, value) in &config.topology_manager_policy_options {
        let at = format!("topologyManagerPolicyOptions.{option}");
        match option.as_str() {
            "prefer-closest-numa-nodes" => {
                checker.require(
                    ["true", "false"].contains(&value.as_str()),
                    &at,
                    format!("`{value}`"),
                    "must be \"true\" or \"false\"",
                );
            }
            "max-allowable-numa-nodes" => {
                let right = value.parse::<u32>().is_ok_and(|nodes| nodes >= 8);
                checker.require(right, &at, format!("`{value}`"), "must be a whole number of 8 or more, in quotes");
            }
            other => checker.one_of(&at, other, &["prefer-closest-numa-nodes", "max-allowable-numa-nodes"]),
        }
    }
}

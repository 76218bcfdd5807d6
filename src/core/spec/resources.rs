//! Requests and limits in the units of the runtime.
//!
//! Layer L1, pure. It never rounds a limit down to nothing and sets no value that was not asked for.

use crate::api::pod;
use crate::api::quantity::Amount;
use crate::api::runtime::Resources;
use crate::api::v1::{Container, Pod};
use crate::core::qos::{
    self, CPU, CgroupFacts, CgroupVersion, MEMORY, Overhead, QosClass, amount, hugepage_size_text, milli_cpu_to_quota,
    milli_cpu_to_shares,
};

use super::{NodeFacts, SwapBehavior};

/// CPU and memory; no request means as much as the limit.
fn linux(cpu_request: Option<Amount>, cpu_limit: Amount, memory_limit: Amount, cgroup: &CgroupFacts) -> Resources {
    let shares = milli_cpu_to_shares(cpu_request.unwrap_or(cpu_limit).milli_value());
    let mut resources = Resources {
        cpu_shares: i64::try_from(shares).unwrap_or(i64::MAX),
        memory_limit: memory_limit.value(),
        ..Resources::default()
    };
    if cgroup.cpu_cfs_quota {
        resources.cpu_period = cgroup.cpu_cfs_period_micros;
        resources.cpu_quota = milli_cpu_to_quota(cpu_limit.milli_value(), cgroup.cpu_cfs_period_micros);
    }
    if cgroup.version == CgroupVersion::V2 && !cgroup.single_process_oom_kill {
        resources.unified.insert("memory.oom.group".to_owned(), "1".to_owned());
    }
    resources
}

/// Limits of a container.
pub fn container_resources(pod: &Pod, container: &Container, facts: &NodeFacts) -> Resources {
    let own = container.resources.as_ref();
    let requests = own.and_then(|r| r.requests.as_ref());
    let limits = own.and_then(|r| r.limits.as_ref());
    let pod_limits = pod::spec(pod).and_then(|s| s.resources.as_ref()).and_then(|r| r.limits.as_ref());
    // A container without a limit may use what the pod as a whole may.
    let limit = |name: &str| match amount(limits, name) {
        own if own.is_zero() => amount(pod_limits, name),
        own => own,
    };
    let cpu_request = requests.filter(|r| r.contains_key(CPU)).map(|_| amount(requests, CPU));
    let mut resources = linux(cpu_request, limit(CPU), limit(MEMORY), &facts.cgroup);
    resources.oom_score_adj = qos::oom_score_adj(pod, container, facts.memory_capacity);
    let mut pages = qos::hugepage_amounts(&qos::amounts(pod_limits));
    pages.extend(qos::hugepage_amounts(&qos::amounts(limits)));
    // Every size that the kernel has is limited, to nothing where nothing was asked for.
    let sizes = facts.hugepage_sizes.iter().map(|size| hugepage_size_text(*size));
    resources.hugepages = sizes.map(|size| (size.clone(), pages.get(&size).copied().unwrap_or(0))).collect();
    set_swap(&mut resources, pod, container, facts);
    resources
}

fn set_swap(resources: &mut Resources, pod: &Pod, container: &Container, facts: &NodeFacts) {
    if !facts.cgroup.swap_controller {
        return;
    }
    match facts.cgroup.version {
        // Memory and swap together: as much as memory alone leaves no swap. Without a limit it means nothing.
        CgroupVersion::V1 => resources.memory_swap_limit = resources.memory_limit,
        CgroupVersion::V2 => {
            let bytes = if may_swap(pod, container, facts) { swap_share(container, facts) } else { 0 };
            resources.unified.insert("memory.swap.max".to_owned(), bytes.to_string());
        }
    }
}

fn may_swap(pod: &Pod, container: &Container, facts: &NodeFacts) -> bool {
    let resources = container.resources.as_ref();
    let request = amount(resources.and_then(|r| r.requests.as_ref()), MEMORY);
    let limit = amount(resources.and_then(|r| r.limits.as_ref()), MEMORY);
    facts.swap == SwapBehavior::LimitedSwap
        && !pod::is_critical(pod)
        && qos::qos_class(pod) == QosClass::Burstable
        && request != limit
}

/// The container's part of the node's swap, as large as its part of the node's memory.
fn swap_share(container: &Container, facts: &NodeFacts) -> u64 {
    let request = amount(container.resources.as_ref().and_then(|r| r.requests.as_ref()), MEMORY).value();
    let request = u64::try_from(request).unwrap_or(0);
    if facts.memory_capacity == 0 || request > facts.memory_capacity {
        return 0;
    }
    let share = u128::from(request) * u128::from(facts.swap_capacity) / u128::from(facts.memory_capacity);
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Sum over the pod's containers, as the runtime of the sandbox is told it.
pub(super) fn sandbox_resources(pod: &Pod, facts: &NodeFacts) -> Resources {
    let requests = qos::pod_requests(pod, Overhead::Excluded);
    let limits = qos::pod_limits(pod, Overhead::Excluded);
    let limit = |name: &str| limits.get(name).copied().unwrap_or_default();
    linux(requests.get(CPU).copied(), limit(CPU), limit(MEMORY), &facts.cgroup)
}

/// What the RuntimeClass adds; nothing when it adds nothing.
pub(super) fn overhead_resources(pod: &Pod, facts: &NodeFacts) -> Resources {
    match pod::spec(pod).and_then(|s| s.overhead.as_ref()) {
        None => Resources::default(),
        overhead => {
            let cpu = amount(overhead, CPU);
            linux(Some(cpu), cpu, amount(overhead, MEMORY), &facts.cgroup)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(resources: Value, more: Value) -> Pod {
        let mut spec = more;
        spec["containers"] = json!([{"name": "c", "resources": resources}]);
        serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u"}, "spec": spec})).expect("a pod")
    }

    fn v1() -> NodeFacts {
        NodeFacts {
            memory_capacity: 4 << 30,
            swap_capacity: 1 << 30,
            hugepage_sizes: vec![2 << 20, 1 << 30],
            cgroup: CgroupFacts { version: CgroupVersion::V1, single_process_oom_kill: true, ..CgroupFacts::default() },
            ..NodeFacts::default()
        }
    }

    fn v2() -> NodeFacts {
        NodeFacts { cgroup: CgroupFacts::default(), ..v1() }
    }

    fn run(pod: &Pod, facts: &NodeFacts) -> Resources {
        container_resources(pod, &pod::app_containers(pod)[0], facts)
    }

    fn pages(small: u64, large: u64) -> Vec<(String, u64)> {
        vec![("2MB".to_owned(), small), ("1GB".to_owned(), large)]
    }

    #[test]
    fn requests_and_limits_in_the_units_of_the_runtime() {
        let base = || Resources { cpu_period: 100_000, hugepages: pages(0, 0), ..Resources::default() };
        for (resources, more, expect) in [
            (json!({}), json!({}), Resources { cpu_shares: 2, oom_score_adj: 1000, ..base() }),
            (
                json!({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "500m", "memory": "128Mi"}}),
                json!({}),
                Resources {
                    cpu_shares: 102,
                    cpu_quota: 50_000,
                    memory_limit: 128 << 20,
                    memory_swap_limit: 128 << 20,
                    oom_score_adj: 985,
                    ..base()
                },
            ),
            // Without a request, the limit stands in.
            (
                json!({"limits": {"cpu": "500m"}}),
                json!({}),
                Resources { cpu_shares: 512, cpu_quota: 50_000, oom_score_adj: 999, ..base() },
            ),
            (
                json!({"requests": {"cpu": "0"}, "limits": {"cpu": "500m"}}),
                json!({}),
                Resources { cpu_shares: 2, cpu_quota: 50_000, oom_score_adj: 999, ..base() },
            ),
            (
                json!({"limits": {"hugepages-2Mi": "4Mi", "hugepages-16Gi": "16Gi"}}),
                json!({}),
                Resources { cpu_shares: 2, hugepages: pages(4 << 20, 0), oom_score_adj: 1000, ..base() },
            ),
            // Limits of the pod stand in where the container has none.
            (
                json!({"limits": {"cpu": "250m"}}),
                json!({"resources": {"limits": {"cpu": "1", "memory": "1Gi", "hugepages-1Gi": "1Gi"}}}),
                Resources {
                    cpu_shares: 256,
                    cpu_quota: 25_000,
                    memory_limit: 1 << 30,
                    memory_swap_limit: 1 << 30,
                    hugepages: pages(0, 1 << 30),
                    oom_score_adj: 999,
                    ..base()
                },
            ),
        ] {
            assert_eq!(run(&pod(resources.clone(), more.clone()), &v1()), expect, "{resources} {more}");
        }
    }

    #[test]
    fn quotas_can_be_off_or_of_another_period() {
        let p = pod(json!({"limits": {"cpu": "1"}}), json!({}));
        let mut facts = v1();
        facts.cgroup.cpu_cfs_period_micros = 10_000;
        let got = run(&p, &facts);
        assert_eq!((got.cpu_quota, got.cpu_period), (10_000, 10_000));
        facts.cgroup.cpu_cfs_quota = false;
        let got = run(&p, &facts);
        assert_eq!((got.cpu_quota, got.cpu_period, got.cpu_shares), (0, 0, 1024));
    }

    #[test]
    fn swap_and_oom_groups() {
        let burstable = json!({"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}});
        let limited = NodeFacts { swap: SwapBehavior::LimitedSwap, ..v2() };
        let no_controller = NodeFacts { cgroup: CgroupFacts { swap_controller: false, ..v2().cgroup }, ..v2() };
        let single = NodeFacts { cgroup: CgroupFacts { single_process_oom_kill: true, ..v2().cgroup }, ..v2() };
        for (resources, more, facts, expect) in [
            (burstable.clone(), json!({}), &v2(), "memory.oom.group=1 memory.swap.max=0"),
            (burstable.clone(), json!({}), &single, "memory.swap.max=0"),
            (burstable.clone(), json!({}), &no_controller, "memory.oom.group=1"),
            (burstable.clone(), json!({}), &v1(), ""),
            (burstable.clone(), json!({}), &limited, "memory.oom.group=1 memory.swap.max=268435456"),
            (json!({}), json!({}), &limited, "memory.oom.group=1 memory.swap.max=0"),
            (
                json!({"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi"}}),
                json!({}),
                &limited,
                "memory.oom.group=1 memory.swap.max=0",
            ),
            (burstable.clone(), json!({"priority": 2_000_000_000}), &limited, "memory.oom.group=1 memory.swap.max=0"),
            (json!({"requests": {"memory": "5Gi"}}), json!({}), &limited, "memory.oom.group=1 memory.swap.max=0"),
        ] {
            let got = run(&pod(resources.clone(), more.clone()), facts).unified;
            let got: Vec<String> = got.iter().map(|(k, v)| format!("{k}={v}")).collect();
            assert_eq!(got.join(" "), expect, "{resources} {more}");
        }
    }

    #[test]
    fn overhead_is_told_apart() {
        let p = pod(json!({"requests": {"cpu": "1"}}), json!({"overhead": {"cpu": "250m", "memory": "1Mi"}}));
        let got = overhead_resources(&p, &v1());
        assert_eq!((got.cpu_shares, got.cpu_quota, got.memory_limit), (256, 25_000, 1 << 20));
        assert_eq!(sandbox_resources(&p, &v1()).cpu_shares, 1024);
        assert_eq!(overhead_resources(&pod(json!({}), json!({})), &v1()), Resources::default());
    }
}

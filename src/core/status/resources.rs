//! Resources in a status: what a container has in force, and what the pod asks for altogether.
//!
//! Layer L1, pure. A quantity that can't be read counts as absent; validation has refused it long before.

use std::collections::BTreeMap;

use crate::api::Quantity;
use crate::api::pod;
use crate::api::quantity::{Amount, Format};
use crate::api::runtime::{ContainerState, Resources, RuntimeContainer};
use crate::api::v1::{ContainerStatus, Pod, ResourceRequirements};
use crate::core::qos::{self, Overhead, ResourceList};
use crate::util::order::Gather;

type List = BTreeMap<String, Quantity>;

/// The kernel's least CPU shares; a request at or below them is told as the spec has it.
const MIN_SHARES: i64 = 2;
/// The least CPU limit that the kernel enforces, in thousandths.
const MIN_MILLI_CPU_LIMIT: i64 = 10;

/// `status.containerStatuses[].resources`: what the spec asks for, with the values that the runtime
/// has in force while the container runs. `old` is the status told before about the same instance:
/// it fills in for a runtime that doesn't tell.
pub(super) fn in_force(
    spec: Option<&ResourceRequirements>,
    container: &RuntimeContainer,
    old: Option<&ContainerStatus>,
) -> ResourceRequirements {
    let mut told = spec.cloned().unwrap_or_default();
    if !matches!(container.state, ContainerState::Running { .. }) {
        return told;
    }
    let actual = container.resources.as_ref();
    let old = old.and_then(|o| o.resources.as_ref());
    if let Some(limits) = told.limits.as_mut() {
        let old = old.and_then(|r| r.limits.as_ref());
        overwrite(limits, "cpu", actual.and_then(cpu_limit), MIN_MILLI_CPU_LIMIT, old);
        overwrite(limits, "memory", actual.and_then(memory_limit), 0, old);
    }
    if let Some(requests) = told.requests.as_mut() {
        let old = old.and_then(|r| r.requests.as_ref());
        overwrite(requests, "cpu", actual.and_then(cpu_request), MIN_SHARES, old);
        // No runtime knows memory requests.
        overwrite(requests, "memory", None, 0, old);
    }
    told
}

/// Puts the value in force into a list. At or below `least` thousandths both the spec and the kernel
/// mean "next to nothing", and the spec's word stays.
fn overwrite(list: &mut List, name: &str, actual: Option<Amount>, least: i64, old: Option<&List>) {
    match actual {
        Some(actual) => {
            let spec = qos::amount(Some(list), name);
            if spec != actual && (actual.milli_value() > least || spec.milli_value() > least) {
                list.insert(name.to_owned(), actual.to_quantity());
            }
        }
        None => {
            if let Some(old) = old.and_then(|o| o.get(name)) {
                list.insert(name.to_owned(), old.clone());
            }
        }
    }
}

fn cpu_limit(resources: &Resources) -> Option<Amount> {
    let (quota, period) = (resources.cpu_quota, resources.cpu_period);
    let milli = if quota > 0 && period > 0 { quota.saturating_mul(1000) / period } else { 0 };
    (milli > 0).then(|| Amount::from_milli(milli, Format::DecimalSi))
}

fn cpu_request(resources: &Resources) -> Option<Amount> {
    let shares = resources.cpu_shares;
    let milli = if shares >= MIN_SHARES { shares.saturating_mul(1000).saturating_add(1023) / 1024 } else { 0 };
    (milli > 0).then(|| Amount::from_milli(milli, Format::DecimalSi))
}

fn memory_limit(resources: &Resources) -> Option<Amount> {
    (resources.memory_limit > 0).then(|| Amount::from_value(resources.memory_limit, Format::BinarySi))
}

/// `status.resources`: what the pod asks for altogether.
pub(super) fn effective(pod: &Pod) -> ResourceRequirements {
    let claims = pod::spec(pod).and_then(|s| s.resources.as_ref()).and_then(|r| r.claims.clone());
    ResourceRequirements { claims, limits: print(qos::pod_limits(pod, Overhead::Included)), requests: requested(pod) }
}

/// `status.allocatedResources`: what the pod requests altogether.
pub(super) fn requested(pod: &Pod) -> Option<List> {
    print(qos::pod_requests(pod, Overhead::Included))
}

fn print(total: ResourceList) -> Option<List> {
    let list: List = total.into_iter().map(|(name, amount)| (name, amount.to_quantity())).gather();
    Some(list).filter(|l| !l.is_empty())
}

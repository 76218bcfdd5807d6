//! Sums of what the containers of a pod request and are limited to.
//!
//! Layer L1, pure, any thread. It adds up and compares; it never decides what fits.

use std::collections::BTreeMap;

use crate::api::Quantity;
use crate::api::pod;
use crate::api::quantity::Amount;
use crate::api::v1::{Container, Pod};
use crate::util::order::Gather;

use super::{CPU, HUGEPAGES_PREFIX, MEMORY};

/// Amounts by resource name.
pub type ResourceList = BTreeMap<String, Amount>;

/// Whether `spec.overhead` of the RuntimeClass counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overhead {
    /// It does.
    Included,
    /// It does not.
    Excluded,
}

/// A list of the API with its numbers read; entries that are no quantities are left out.
pub fn amounts(list: Option<&BTreeMap<String, Quantity>>) -> ResourceList {
    let read = |(name, q): (&String, &Quantity)| Some((name.clone(), Amount::try_from(q).ok()?));
    list.into_iter().flatten().filter_map(read).gather()
}

/// One entry of a list, zero when absent.
pub fn amount(list: Option<&BTreeMap<String, Quantity>>, name: &str) -> Amount {
    list.and_then(|l| l.get(name)).and_then(|q| Amount::try_from(q).ok()).unwrap_or_default()
}

/// Whether pods as a whole can request this resource.
pub fn is_pod_level_resource(name: &str) -> bool {
    name == CPU || name == MEMORY || name.starts_with(HUGEPAGES_PREFIX)
}

/// Whether the pod states requests or limits of its own.
pub fn has_pod_level_resources(pod: &Pod) -> bool {
    has_pod_level_requests(pod) || has_pod_level_limits(pod)
}

/// Whether the pod states requests of its own.
pub fn has_pod_level_requests(pod: &Pod) -> bool {
    let requests = pod::spec(pod).and_then(|s| s.resources.as_ref()).and_then(|r| r.requests.as_ref());
    requests.is_some_and(|list| list.keys().any(|name| is_pod_level_resource(name)))
}

/// Whether the pod states limits of its own.
pub fn has_pod_level_limits(pod: &Pod) -> bool {
    let limits = pod::spec(pod).and_then(|s| s.resources.as_ref()).and_then(|r| r.limits.as_ref());
    limits.is_some_and(|list| list.keys().any(|name| is_pod_level_resource(name)))
}

/// What the pod needs at most at once: the app containers and sidecars together, or an init container
/// with the sidecars before it, whichever is more; pod-level requests stand in for it.
pub fn pod_requests(pod: &Pod, overhead: Overhead) -> ResourceList {
    let mut sum = container_requests(pod);
    let own = pod::spec(pod).and_then(|s| s.resources.as_ref()).and_then(|r| r.requests.as_ref());
    sum.extend(amounts(own).into_iter().filter(|(name, _)| is_pod_level_resource(name)));
    if overhead == Overhead::Included {
        add(&mut sum, &amounts(pod::spec(pod).and_then(|s| s.overhead.as_ref())));
    }
    sum
}

/// The same without pod-level requests and overhead.
pub fn container_requests(pod: &Pod) -> ResourceList {
    aggregate(pod, |c| amounts(c.resources.as_ref().and_then(|r| r.requests.as_ref())), |_| {})
}

/// What the pod may use at most. Overhead only raises a limit that is there.
pub fn pod_limits(pod: &Pod, overhead: Overhead) -> ResourceList {
    let mut sum = aggregate(pod, container_limits, |_| {});
    let own = pod::spec(pod).and_then(|s| s.resources.as_ref()).and_then(|r| r.limits.as_ref());
    sum.extend(amounts(own).into_iter().filter(|(name, _)| is_pod_level_resource(name)));
    if overhead == Overhead::Included {
        for (name, extra) in amounts(pod::spec(pod).and_then(|s| s.overhead.as_ref())) {
            if let Some(limit) = sum.get_mut(&name).filter(|l| !l.is_zero()) {
                *limit = limit.plus(extra);
            }
        }
    }
    sum
}

/// Whether CPU and memory of the whole pod are limited: by the pod itself, or because no container
/// goes without.
pub(super) fn limits_declared(pod: &Pod) -> (bool, bool) {
    let (mut cpu, mut memory) = (true, true);
    aggregate(pod, container_limits, |list| {
        cpu &= list.get(CPU).is_some_and(|a| !a.is_zero());
        memory &= list.get(MEMORY).is_some_and(|a| !a.is_zero());
    });
    let own = pod::spec(pod).and_then(|s| s.resources.as_ref()).and_then(|r| r.limits.as_ref());
    (cpu || !amount(own, CPU).is_zero(), memory || !amount(own, MEMORY).is_zero())
}

fn container_limits(container: &Container) -> ResourceList {
    amounts(container.resources.as_ref().and_then(|r| r.limits.as_ref()))
}

/// The most that is in use at once, over the whole life of the pod. `visit` sees what each app
/// container uses, and for each init container what is in use while it starts.
fn aggregate(
    pod: &Pod,
    of_container: impl Fn(&Container) -> ResourceList,
    mut visit: impl FnMut(&ResourceList),
) -> ResourceList {
    let mut sum = ResourceList::new();
    for container in pod::app_containers(pod) {
        let list = of_container(container);
        visit(&list);
        add(&mut sum, &list);
    }
    let mut sidecars = ResourceList::new();
    let mut peak = ResourceList::new();
    for container in pod::init_containers(pod) {
        let mut list = of_container(container);
        if pod::is_sidecar(container) {
            add(&mut sum, &list);
            add(&mut sidecars, &list);
            list.clone_from(&sidecars);
        } else {
            add(&mut list, &sidecars);
        }
        visit(&list);
        raise(&mut peak, &list);
    }
    raise(&mut sum, &peak);
    sum
}

fn add(sum: &mut ResourceList, list: &ResourceList) {
    for (name, amount) in list {
        let total = sum.get(name).map_or(*amount, |t| t.plus(*amount));
        sum.insert(name.clone(), total);
    }
}

fn raise(most: &mut ResourceList, list: &ResourceList) {
    for (name, amount) in list {
        if most.get(name).is_none_or(|m| amount > m) {
            most.insert(name.clone(), *amount);
        }
    }
}

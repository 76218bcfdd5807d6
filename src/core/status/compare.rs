//! Whether two statuses say different things.
//!
//! Layer L1, pure. It compares what a node agent owns and means: absent and empty are the same,
//! quantities compare by number, times to the second, and conditions of others don't count.

use std::collections::BTreeMap;

use super::conditions::{is_own, is_shared};
use crate::api::Quantity;
use crate::api::meta::Time;
use crate::api::quantity::Amount;
use crate::api::v1::{
    ContainerState, ContainerStateTerminated, ContainerStatus, PodCondition, PodStatus, ResourceRequirements,
    VolumeMountStatus,
};
use crate::util::order::Gather;

/// Whether the API has to be told: `a` and `b` differ in something that the node agent owns. Not
/// owned: conditions of others, resource claim statuses, the nominated node. A condition's times and
/// generation say nothing new by themselves.
pub fn differs(a: &PodStatus, b: &PodStatus) -> bool {
    let texts = |s: &PodStatus| {
        [&s.phase, &s.reason, &s.message, &s.host_ip, &s.pod_ip, &s.qos_class].map(|t| t.clone().unwrap_or_default())
    };
    texts(a) != texts(b)
        || a.observed_generation.unwrap_or(0) != b.observed_generation.unwrap_or(0)
        || seconds(a.start_time.as_ref()) != seconds(b.start_time.as_ref())
        || a.host_ips.as_deref().unwrap_or_default() != b.host_ips.as_deref().unwrap_or_default()
        || a.pod_ips.as_deref().unwrap_or_default() != b.pod_ips.as_deref().unwrap_or_default()
        || !same_quantities(a.allocated_resources.as_ref(), b.allocated_resources.as_ref())
        || !same_resources(a.resources.as_ref(), b.resources.as_ref())
        || !same_conditions(a.conditions.as_deref(), b.conditions.as_deref())
        || !same_list(&a.init_container_statuses, &b.init_container_statuses, same_container)
        || !same_list(&a.container_statuses, &b.container_statuses, same_container)
        || !same_list(&a.ephemeral_container_statuses, &b.ephemeral_container_statuses, same_container)
}

fn same_list<T>(a: &Option<Vec<T>>, b: &Option<Vec<T>>, same: fn(&T, &T) -> bool) -> bool {
    let (a, b) = (a.as_deref().unwrap_or_default(), b.as_deref().unwrap_or_default());
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
}

fn same_text(a: &Option<String>, b: &Option<String>) -> bool {
    a.as_deref().unwrap_or_default() == b.as_deref().unwrap_or_default()
}

fn seconds(time: Option<&Time>) -> i64 {
    time.map_or(0, |t| t.0.as_second())
}

fn same_conditions(a: Option<&[PodCondition]>, b: Option<&[PodCondition]>) -> bool {
    let own = |list: Option<&[PodCondition]>| -> BTreeMap<String, [String; 3]> {
        let list = list.unwrap_or_default().iter().filter(|c| is_own(&c.type_) || is_shared(&c.type_));
        let text = |t: &Option<String>| t.clone().unwrap_or_default();
        list.map(|c| (c.type_.clone(), [c.status.clone(), text(&c.reason), text(&c.message)])).gather()
    };
    own(a) == own(b)
}

fn same_quantities(a: Option<&BTreeMap<String, Quantity>>, b: Option<&BTreeMap<String, Quantity>>) -> bool {
    let empty = BTreeMap::new();
    let (a, b) = (a.unwrap_or(&empty), b.unwrap_or(&empty));
    let same = |a: &Quantity, b: &Quantity| {
        a == b || matches!((Amount::try_from(a), Amount::try_from(b)), (Ok(a), Ok(b)) if a == b)
    };
    a.len() == b.len() && a.iter().all(|(name, quantity)| b.get(name).is_some_and(|b| same(quantity, b)))
}

fn same_resources(a: Option<&ResourceRequirements>, b: Option<&ResourceRequirements>) -> bool {
    let none = ResourceRequirements::default();
    let (a, b) = (a.unwrap_or(&none), b.unwrap_or(&none));
    same_quantities(a.limits.as_ref(), b.limits.as_ref())
        && same_quantities(a.requests.as_ref(), b.requests.as_ref())
        && a.claims.as_deref().unwrap_or_default() == b.claims.as_deref().unwrap_or_default()
}

fn same_container(a: &ContainerStatus, b: &ContainerStatus) -> bool {
    a.name == b.name
        && a.image == b.image
        && a.image_id == b.image_id
        && same_text(&a.container_id, &b.container_id)
        && a.ready == b.ready
        && a.started.unwrap_or(false) == b.started.unwrap_or(false)
        && a.restart_count == b.restart_count
        && same_state(a.state.as_ref(), b.state.as_ref())
        && same_state(a.last_state.as_ref(), b.last_state.as_ref())
        && same_quantities(a.allocated_resources.as_ref(), b.allocated_resources.as_ref())
        && same_resources(a.resources.as_ref(), b.resources.as_ref())
        && a.user == b.user
        && same_text(&a.stop_signal, &b.stop_signal)
        && a.allocated_resources_status.as_deref().unwrap_or_default()
            == b.allocated_resources_status.as_deref().unwrap_or_default()
        && same_list(&a.volume_mounts, &b.volume_mounts, same_mount)
}

fn same_mount(a: &VolumeMountStatus, b: &VolumeMountStatus) -> bool {
    a.name == b.name
        && a.mount_path == b.mount_path
        && a.read_only.unwrap_or(false) == b.read_only.unwrap_or(false)
        && same_text(&a.recursive_read_only, &b.recursive_read_only)
        && a.volume_status == b.volume_status
}

fn same_state(a: Option<&ContainerState>, b: Option<&ContainerState>) -> bool {
    let none = ContainerState::default();
    let (a, b) = (a.unwrap_or(&none), b.unwrap_or(&none));
    let running = match (&a.running, &b.running) {
        (Some(a), Some(b)) => seconds(a.started_at.as_ref()) == seconds(b.started_at.as_ref()),
        (a, b) => a.is_none() && b.is_none(),
    };
    let waiting = match (&a.waiting, &b.waiting) {
        (Some(a), Some(b)) => same_text(&a.reason, &b.reason) && same_text(&a.message, &b.message),
        (a, b) => a.is_none() && b.is_none(),
    };
    let terminated = match (&a.terminated, &b.terminated) {
        (Some(a), Some(b)) => same_end(a, b),
        (a, b) => a.is_none() && b.is_none(),
    };
    running && waiting && terminated
}

fn same_end(a: &ContainerStateTerminated, b: &ContainerStateTerminated) -> bool {
    a.exit_code == b.exit_code
        && a.signal.unwrap_or(0) == b.signal.unwrap_or(0)
        && same_text(&a.reason, &b.reason)
        && same_text(&a.message, &b.message)
        && same_text(&a.container_id, &b.container_id)
        && seconds(a.started_at.as_ref()) == seconds(b.started_at.as_ref())
        && seconds(a.finished_at.as_ref()) == seconds(b.finished_at.as_ref())
}

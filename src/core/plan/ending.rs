//! The plans that bring a pod to rest and then remove it. Pure; see the parent module.

use std::time::Duration;

use super::{Plan, containers_in_order, is_ready, pre_stop, remove_step, sandboxes_in_order};
use crate::api::pod::{find_container, init_containers, is_sidecar};
use crate::api::runtime::{RuntimeContainer, RuntimePod};
use crate::api::v1::Pod;
use crate::msg::{OnFailure, Step, StopContainer, StopReason};
use crate::util::order;

/// The containers to stop, in waves: apps first and side by side, then the sidecars, the last started
/// first, so that an app never loses its sidecar.
pub(super) fn stops(pod: Option<&Pod>, alive: &[&RuntimeContainer], reason: StopReason) -> Vec<StopContainer> {
    let sidecars: Vec<&str> = pod
        .map(|pod| init_containers(pod).iter().rev().filter(|c| is_sidecar(c)).map(|c| c.name.as_str()).collect())
        .unwrap_or_default();
    let mut stops: Vec<StopContainer> = alive
        .iter()
        .map(|container| {
            let spec = pod.and_then(|pod| find_container(pod, &container.name)).map(|(_, c)| c.into_owned());
            let wave = sidecars.iter().position(|name| *name == container.name).map_or(0, |i| i + 1);
            StopContainer {
                id: container.id.clone(),
                name: container.name.clone(),
                reason,
                pre_stop: pre_stop(spec.as_ref(), container),
                wave: u32::try_from(wave).unwrap_or(u32::MAX),
            }
        })
        .collect();
    order::sort_by(&mut stops, |a, b| (a.wave, &a.name, &a.id).cmp(&(b.wave, &b.name, &b.id)));
    stops
}

/// Stops everything of a pod that ends, within `grace`.
pub fn plan_ending(pod: Option<&Pod>, observed: &RuntimePod, grace: Duration, why: &str) -> Plan {
    let mut plan = Plan::default();
    let alive: Vec<_> = containers_in_order(observed).into_iter().filter(|c| c.state.may_run()).collect();
    if !alive.is_empty() {
        let containers = stops(pod, &alive, StopReason::PodEnds);
        plan.push(Step::StopContainers { containers, grace }, why, OnFailure::Continue);
    }
    for sandbox in sandboxes_in_order(observed).into_iter().filter(|s| is_ready(s)) {
        plan.push(Step::StopSandbox(sandbox.id.clone()), why, OnFailure::Continue);
    }
    plan
}

/// Whether nothing of the pod runs any more.
pub fn at_rest(observed: &RuntimePod) -> bool {
    observed.containers.iter().all(|c| !c.state.may_run()) && !observed.sandboxes.iter().any(is_ready)
}

/// Removes what a pod at rest has left behind: containers, sandboxes, then its folder and logs.
pub fn plan_forget(observed: Option<&RuntimePod>, why: &str) -> Plan {
    let mut plan = Plan::default();
    let goes_with_sandbox =
        |c: &RuntimeContainer| observed.is_some_and(|o| o.sandboxes.iter().any(|s| s.id == c.sandbox_id));
    // Folder and logs stay until the runtime has let go of everything.
    for container in observed.into_iter().flat_map(containers_in_order) {
        let step = remove_step(container);
        let on_failure = if goes_with_sandbox(container) { OnFailure::Continue } else { OnFailure::Abort };
        plan.push(step, why, on_failure);
    }
    for sandbox in observed.into_iter().flat_map(sandboxes_in_order) {
        // One that died by itself gives its address back only when it is stopped.
        plan.push(Step::StopSandbox(sandbox.id.clone()), why, OnFailure::Continue);
        plan.push(Step::RemoveSandbox(sandbox.id.clone()), why, OnFailure::Abort);
    }
    plan.push(Step::ReleasePod, why, OnFailure::Abort);
    plan.push(Step::ForgetPod, why, OnFailure::Abort);
    plan
}

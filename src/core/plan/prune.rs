//! Which dead instances and sandboxes of a living pod are removed. Pure; see the parent module.

use std::collections::BTreeSet;

use super::{Plan, PlanInput, containers_in_order, is_ready, newest_sandbox, remove_step, sandboxes_in_order};
use crate::api::{ContainerId, SandboxId};
use crate::msg::{OnFailure, Step};

/// Adds steps that remove dead instances beyond the newest `keep_dead` of each container, and dead
/// sandboxes that hold none any more. What is kept serves `lastState` and `logs --previous`.
pub(super) fn dead_instances(input: &PlanInput<'_>, plan: &mut Plan) {
    const WHY: &str = "older dead instances are not kept";
    let by_name = containers_in_order(input.observed);
    let mut removed: BTreeSet<&ContainerId> = BTreeSet::new();
    for group in by_name.chunk_by(|a, b| a.name == b.name) {
        // The newest instance of all is the container's present state: it stays whatever it is.
        let dead = group.iter().skip(1).filter(|c| !c.state.may_run());
        let keep = input.keep_dead.saturating_sub(usize::from(!group[0].state.may_run()));
        for container in dead.skip(keep) {
            removed.insert(&container.id);
            let step = remove_step(container);
            plan.push(step, WHY, OnFailure::Continue);
        }
    }
    let newest = newest_sandbox(input.observed).map(|s| &s.id);
    let holds_one =
        |id: &SandboxId| input.observed.containers.iter().any(|c| c.sandbox_id == *id && !removed.contains(&c.id));
    for sandbox in sandboxes_in_order(input.observed) {
        if Some(&sandbox.id) != newest && !is_ready(sandbox) && !holds_one(&sandbox.id) {
            plan.push(Step::RemoveSandbox(sandbox.id.clone()), WHY, OnFailure::Continue);
        }
    }
}

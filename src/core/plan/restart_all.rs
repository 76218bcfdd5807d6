//! The action `RestartAllContainers` of a container's restart rules: the pod begins a new round in the
//! sandbox that it has. Pure; see the parent module.
//!
//! All that is left of the round before is stopped without grace and removed, the container that asked
//! for it last, so that its exit code still tells what is going on when the agent or a step dies on the
//! way. Which attempts belong to the new round is remembered before the first step, so that nothing of
//! an earlier one is ever taken for the pod's present state.

use super::{ContainerMemory, Plan, PlanInput, containers_in_order, ending, newest, next_attempt, remove_step};
use crate::api::pod::{ContainerKind, all_containers};
use crate::api::record::LastRun;
use crate::api::runtime::{ContainerState, RuntimeContainer};
use crate::api::v1::Container;
use crate::core::status::restarts_all;
use crate::msg::{OnFailure, Step, StopReason};
use crate::util::order::{self, Gather};

/// The plan that ends a round, if one has to end now. Without steps nothing is left of it, and only the
/// new round has to be remembered.
pub(super) fn plan(input: &PlanInput<'_>) -> Option<Plan> {
    let cause = cause(input)?;
    let named = || all_containers(input.pod).filter(|(kind, _)| *kind != ContainerKind::Ephemeral);
    let mut plan = Plan::default();
    let present = containers_in_order(input.observed);
    let present: Vec<_> = present.into_iter().filter(|c| named().any(|(_, spec)| spec.name == c.name)).collect();
    let alive: Vec<&RuntimeContainer> = present.iter().copied().filter(|c| c.state.may_run()).collect();
    if !alive.is_empty() {
        let mut containers = ending::stops(Some(input.pod), &alive, StopReason::RestartAll);
        containers.iter_mut().for_each(|stop| stop.pre_stop = None);
        plan.push(Step::StopContainers { containers, grace: Default::default() }, cause.as_str(), OnFailure::Abort);
    }
    // Apps before init containers, and those that asked for it after all others.
    let mut removals: Vec<((bool, bool), &RuntimeContainer)> = Vec::new();
    for (kind, spec) in named() {
        for container in present.iter().filter(|c| c.name == spec.name) {
            removals.push(((asks(input, &spec, container), kind.is_init()), *container));
        }
    }
    order::sort_by_key(&mut removals, |(order, ..)| *order);
    for (_, container) in removals {
        plan.push(remove_step(container), cause.as_str(), OnFailure::Abort);
    }
    plan.new_round = named().map(|(_, spec)| (spec.name.clone(), next_attempt(input, &spec.name))).gather();
    Some(plan)
}

/// Whether an instance has ended in a way that restarts all.
fn asks(input: &PlanInput<'_>, spec: &Container, container: &RuntimeContainer) -> bool {
    matches!(&container.state, ContainerState::Exited(exit) if restarts_all(spec, exit.code, input.restart_all))
}

/// Why a round ends now: a container asks for it, asked for it and was removed since, or an earlier
/// plan of this kind was cut short.
fn cause(input: &PlanInput<'_>) -> Option<String> {
    let asked = |name: &str, code: i32| format!("{name} ended with {code}, upon which all containers restart");
    all_containers(input.pod).filter(|(kind, _)| *kind != ContainerKind::Ephemeral).find_map(|(_, spec)| {
        let name = &spec.name;
        let memory = input.memory.get(name).map(AsRef::as_ref);
        let first = memory.map_or(0, |m| m.first_attempt);
        if input.observed.containers.iter().any(|c| c.name == *name && c.attempt < first) {
            return Some("all containers restart".to_owned());
        }
        let code = match newest(&input.observed.containers, name).map(|c| &c.state) {
            Some(ContainerState::Exited(exit)) => exit.code,
            Some(_) => return None,
            None => match memory?.last_run {
                LastRun::Ended(code) => code,
                LastRun::Never | LastRun::Began => return None,
            },
        };
        restarts_all(&spec, code, input.restart_all).then(|| asked(name, code))
    })
}

impl ContainerMemory {
    /// A new round begins with this attempt: what came before says nothing any more. The crash back-off
    /// goes on, since the container is the same.
    pub fn begin_round(&mut self, first_attempt: u32) {
        *self = Self {
            first_attempt,
            next_attempt: self.next_attempt.max(first_attempt),
            crash: self.crash.take(),
            ..Self::default()
        };
    }
}

//! The planner: what has to be done for one pod, as data.
//!
//! Layer L1, pure. `plan_active` keeps a wanted pod running, `plan_ending` brings it to rest,
//! `plan_forget` removes what is left. A worker carries the steps out, reports, and the pod is looked
//! at again; a plan without steps is the fixpoint. Nothing after the plan decides anything.
//!
//! Never plans a second live instance of a container, a start while the pod ends, or an id that the
//! observation does not hold.

mod active;
mod ending;
mod prune;
mod restart_all;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::ContainerId;
use crate::api::moment::Moment;
use crate::api::record::{LastRun, Sizes};
use crate::api::runtime::{RuntimeContainer, RuntimePod, RuntimeSandbox, SandboxState};
use crate::api::v1::{Container, LifecycleHandler, Pod};
use crate::core::backoff::{BackoffLimits, CrashBackoff};
use crate::core::status::RestartAll;
use crate::msg::{OnFailure, PlannedStep, Reason, Step, StopContainer, StopReason};
use crate::util::json;
use crate::util::order;

pub use active::plan_active;
pub use ending::{at_rest, plan_ending, plan_forget};

/// What the sync loop remembers of a container, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerMemory {
    /// Lowest attempt of the pod's present round; those below it ended when all containers restarted.
    pub first_attempt: u32,
    /// Lowest attempt never used.
    pub next_attempt: u32,
    /// How the newest instance was last seen, for the day when the runtime no longer has it.
    pub last_run: LastRun,
    /// Crash back-off with the container hash that it belongs to.
    pub crash: Option<(CrashBackoff, String)>,
    /// The instance whose exit was last seen, and when it was first seen.
    pub exit: Option<(ContainerId, Moment)>,
    /// After a start that failed: not again before this, and why it failed.
    pub failed: Option<(Moment, Reason)>,
    /// The instance whose startup probe passed.
    pub started: Option<ContainerId>,
    /// The instance that its readiness probe holds ready.
    pub ready: Option<ContainerId>,
    /// What its running instance has, while it shall have other CPU or memory.
    pub actuated: Option<Sizes>,
    /// The instance that a liveness or startup probe gave up on, and which of the two.
    pub condemned: Option<(ContainerId, StopReason)>,
}

/// Everything a plan is made from.
#[derive(Clone, Copy, Debug)]
pub struct PlanInput<'a> {
    /// What should run.
    pub pod: &'a Pod,
    /// What runs, seen after our own last action.
    pub observed: &'a RuntimePod,
    /// What is remembered, by container name.
    pub memory: &'a BTreeMap<String, Box<ContainerMemory>>,
    /// Lowest sandbox attempt never used.
    pub next_sandbox_attempt: u32,
    /// Now.
    pub now: Moment,
    /// Crash back-off limits.
    pub backoff: BackoffLimits,
    /// Dead instances kept per container (`--maximum-dead-containers-per-container`).
    pub keep_dead: usize,
    /// Whether a rule may restart all containers.
    pub restart_all: RestartAll,
}

/// How a pod whose containers are all done has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Every container succeeded.
    Succeeded,
    /// One failed for good.
    Failed,
}

/// What to do for a pod, and what it waits for if that is nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Steps in order.
    pub steps: Vec<PlannedStep>,
    /// When to plan again though nothing happened.
    pub wake_at: Option<Moment>,
    /// What it waits for, one plain clause each.
    pub waits: Vec<String>,
    /// Waiting reasons of containers that are held back.
    pub waiting: BTreeMap<String, Reason>,
    /// Crash back-off of the containers that the steps restart.
    pub restarts: BTreeMap<String, (CrashBackoff, String)>,
    /// Set when all containers restart: the first attempt of each in the round that begins. It has to be
    /// remembered before the first step.
    pub new_round: BTreeMap<String, u32>,
    /// Set when nothing runs and nothing will.
    pub ended: Option<Ending>,
}

impl Plan {
    fn push(&mut self, step: Step, cause: impl Into<String>, on_failure: OnFailure) {
        self.steps.push(PlannedStep { step, cause: cause.into(), on_failure });
    }

    fn wake(&mut self, at: Moment) {
        self.wake_at = Some(self.wake_at.map_or(at, |old| old.min(at)));
    }
}

/// The newest sandbox: the highest attempt, then the youngest, whatever the order of the list.
pub fn newest_sandbox(observed: &RuntimePod) -> Option<&RuntimeSandbox> {
    observed.sandboxes.iter().max_by_key(|s| (s.attempt, s.created_at, &s.id))
}

/// All sandboxes, newest first, whatever the order of the list.
fn sandboxes_in_order(observed: &RuntimePod) -> Vec<&RuntimeSandbox> {
    let mut sandboxes: Vec<&RuntimeSandbox> = observed.sandboxes.iter().collect();
    order::sort_by(&mut sandboxes, |a, b| (b.attempt, b.created_at, &b.id).cmp(&(a.attempt, a.created_at, &a.id)));
    sandboxes
}

/// All containers, by name and newest first, whatever the order of the list.
fn containers_in_order(observed: &RuntimePod) -> Vec<&RuntimeContainer> {
    let mut containers: Vec<&RuntimeContainer> = observed.containers.iter().collect();
    order::sort_by(&mut containers, |a, b| {
        a.name.cmp(&b.name).then_with(|| (b.attempt, b.created_at, &b.id).cmp(&(a.attempt, a.created_at, &a.id)))
    });
    containers
}

/// The attempt that a new instance of a container takes: never one that was used.
fn next_attempt(input: &PlanInput<'_>, name: &str) -> u32 {
    let remembered = input.memory.get(name).map_or(0, |m| m.next_attempt);
    let instances = input.observed.containers.iter().filter(|c| c.name == name);
    let seen = instances.map(|c| c.attempt.max(c.marks.restart_count.unwrap_or(0)).saturating_add(1)).max();
    remembered.max(seen.unwrap_or(0))
}

/// Whether a sandbox is ready.
pub fn is_ready(sandbox: &RuntimeSandbox) -> bool {
    match sandbox.state {
        SandboxState::Ready => true,
        SandboxState::NotReady => false,
    }
}

/// The newest instance of a container: the highest attempt, then the youngest.
pub fn newest<'a>(
    containers: impl IntoIterator<Item = &'a RuntimeContainer>,
    name: &str,
) -> Option<&'a RuntimeContainer> {
    containers.into_iter().filter(|c| c.name == name).max_by_key(|c| (c.attempt, c.created_at, &c.id))
}

/// The preStop hook of a container: the spec's, or for a container that is no longer in the spec what
/// its marks tell.
fn pre_stop(spec: Option<&Container>, container: &RuntimeContainer) -> Option<LifecycleHandler> {
    match spec {
        Some(spec) => spec.lifecycle.as_ref().and_then(|l| l.pre_stop.clone()),
        None => json::from_slice(container.marks.pre_stop.as_bytes()).ok(),
    }
}

/// One container stopped on its own, to be started again or not.
fn stop_one(spec: Option<&Container>, container: &RuntimeContainer, reason: StopReason, grace: Duration) -> Step {
    let stop = StopContainer {
        id: container.id.clone(),
        name: container.name.clone(),
        reason,
        pre_stop: pre_stop(spec, container),
        wave: 0,
    };
    Step::StopContainers { containers: vec![stop], grace }
}

/// Removes a dead container.
fn remove_step(container: &RuntimeContainer) -> Step {
    Step::RemoveContainer { id: container.id.clone(), name: container.name.clone(), attempt: container.attempt }
}

/// Seconds of the API as a span; negative counts as none.
pub fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

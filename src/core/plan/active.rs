//! The plan for a pod that is wanted and has not ended: sandbox, init containers in order, sidecars,
//! app containers, restarts. Pure; see the parent module.

use super::{
    ContainerMemory, Ending, Plan, PlanInput, containers_in_order, ending, is_ready, newest, newest_sandbox,
    next_attempt, prune, restart_all, sandboxes_in_order, seconds, stop_one,
};
use crate::api::ContainerId;
use crate::api::labels::container_hash;
use crate::api::moment::Moment;
use crate::api::pod::{
    ContainerKind, RestartPolicy, all_containers, app_containers, container_restart_policy, ephemeral_as_container,
    ephemeral_containers, grace_seconds, init_containers, is_host_network, is_sidecar, restart_policy,
};
use crate::api::record::{LOST_EXIT_CODE, LastRun};
use crate::api::runtime::{ContainerState, RuntimeContainer, RuntimeSandbox};
use crate::api::v1::Container;
use crate::core::backoff::{Decision, decide};
use crate::core::resize;
use crate::core::spec::CONTAINER_CONFIG_ERROR;
use crate::core::status::{crash_loop_message, restarts_after};
use crate::msg::{OnFailure, PlannedStep, Reason, ResizeContainer, Step, StopReason};
use crate::util::text::about;

/// Plans a wanted pod.
pub fn plan_active(input: &PlanInput<'_>) -> Plan {
    if let Some(plan) = restart_all::plan(input) {
        return plan;
    }
    let mut planner = Planner { input, sandbox: None, plan: Plan::default(), resizes: Vec::new() };
    match sandbox_to_keep(input) {
        Ok(sandbox) => {
            planner.sandbox = Some(sandbox);
            planner.containers();
        }
        Err(why) if planner.is_worth_a_sandbox() => {
            planner.give_up(&why, GiveUp::ToReplace);
            planner.plan.push(Step::PreparePod, why.as_str(), OnFailure::Abort);
            let seen = input.observed.sandboxes.iter().map(|s| s.attempt.saturating_add(1)).max().unwrap_or(0);
            let attempt = seen.max(input.next_sandbox_attempt);
            planner.plan.push(Step::RunSandbox { attempt }, why, OnFailure::Abort);
            planner.containers();
        }
        Err(why) => {
            planner.give_up(&why, GiveUp::ForGood);
            if planner.plan.steps.is_empty() {
                planner.plan.ended = Some(planner.ending());
            }
        }
    }
    planner.resize();
    let mut plan = planner.plan;
    if plan.ended.is_none() {
        prune::dead_instances(input, &mut plan);
    }
    plan
}

/// The sandbox to go on with, or why a new one is needed.
fn sandbox_to_keep<'a>(input: &PlanInput<'a>) -> Result<&'a RuntimeSandbox, String> {
    let newest = newest_sandbox(input.observed).ok_or("the pod has no sandbox")?;
    if !is_ready(newest) {
        return Err("its sandbox is not ready".to_owned());
    }
    if input.observed.sandboxes.iter().filter(|s| is_ready(s)).count() > 1 {
        return Err("more than one sandbox is ready".to_owned());
    }
    if newest.host_network != is_host_network(input.pod) {
        return Err("hostNetwork changed".to_owned());
    }
    if !newest.host_network && newest.ips.is_empty() {
        return Err("its sandbox has no address".to_owned());
    }
    Ok(newest)
}

/// What happens after sandboxes were given up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GiveUp {
    /// A new one is made.
    ToReplace,
    /// None is made: the pod has nothing left to run.
    ForGood,
}

/// Whether the containers after this one may start.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    Closed,
}

/// Where an app container stands.
#[derive(Clone, Copy, PartialEq)]
enum AppState<'a> {
    /// It runs, starts or waits to start.
    Lives,
    /// It runs, is to be stopped for this reason, and will not start again.
    GivenUp(&'a Container, &'a RuntimeContainer, StopReason),
    /// It ended and stays so.
    Done,
}

struct Planner<'a> {
    input: &'a PlanInput<'a>,
    /// The sandbox that is kept; `None` while one is being made.
    sandbox: Option<&'a RuntimeSandbox>,
    plan: Plan,
    /// Containers that get other CPU or memory while they run.
    resizes: Vec<ResizeContainer>,
}

impl<'a> Planner<'a> {
    fn memory(&self, name: &str) -> Option<&'a ContainerMemory> {
        self.input.memory.get(name).map(AsRef::as_ref)
    }

    /// The newest instance in the sandbox that is kept.
    fn current(&self, name: &str) -> Option<&'a RuntimeContainer> {
        let sandbox = self.sandbox?;
        newest(self.input.observed.containers.iter().filter(|c| c.sandbox_id == sandbox.id), name)
    }

    /// How a container last ended, if a new sandbox or a forgetful runtime leaves nothing else to go by:
    /// the exit of its newest instance, that of a kill where one still runs and is stopped, or what is
    /// remembered. `None` if it never ran.
    fn last_exit(&self, name: &str) -> Option<i32> {
        match self.latest(name).map(|i| &i.state) {
            Some(ContainerState::Exited(exit)) => Some(exit.code),
            Some(ContainerState::Running { .. } | ContainerState::Unknown) => Some(LOST_EXIT_CODE),
            Some(ContainerState::Created) => None,
            None => self.memory(name)?.last_run.exit_code(),
        }
    }

    /// Whether a container starts again after this exit code.
    fn restarts(&self, kind: ContainerKind, container: &Container, code: i32) -> bool {
        restarts_after(self.input.pod, kind, container, code, self.input.restart_all)
    }

    /// The newest instance in any sandbox.
    fn latest(&self, name: &str) -> Option<&'a RuntimeContainer> {
        newest(&self.input.observed.containers, name)
    }

    /// Whether a pod without a usable sandbox still has something to run in a new one.
    fn is_worth_a_sandbox(&self) -> bool {
        let pod = self.input.pod;
        let mut apps = app_containers(pod).iter();
        let ran_before = !self.input.observed.containers.is_empty()
            || self.input.memory.values().any(|m| m.last_run != LastRun::Never);
        let never_again = restart_policy(pod) == RestartPolicy::Never
            && app_containers(pod).iter().all(|c| c.restart_policy.is_none())
            && ran_before;
        !never_again
            && apps.any(|c| self.last_exit(&c.name).is_none_or(|code| self.restarts(ContainerKind::App, c, code)))
    }

    /// Stops what still lives in sandboxes that are given up, then the sandboxes. One that died by
    /// itself is stopped too before it is replaced: it still holds its address.
    fn give_up(&mut self, why: &str, then: GiveUp) {
        let observed = self.input.observed;
        let alive: Vec<_> = containers_in_order(observed).into_iter().filter(|c| c.state.may_run()).collect();
        if !alive.is_empty() {
            let containers = ending::stops(Some(self.input.pod), &alive, StopReason::SandboxChanged);
            let grace = seconds(grace_seconds(self.input.pod));
            self.plan.push(Step::StopContainers { containers, grace }, why, OnFailure::Abort);
        }
        let newest = newest_sandbox(observed).map(|s| &s.id);
        for sandbox in sandboxes_in_order(observed) {
            let holds_address = then == GiveUp::ToReplace && Some(&sandbox.id) == newest;
            if is_ready(sandbox) || holds_address {
                self.plan.push(Step::StopSandbox(sandbox.id.clone()), why, OnFailure::Abort);
            }
        }
    }

    fn containers(&mut self) {
        self.stop_unwanted();
        self.ephemeral_containers();
        match self.init_containers() {
            InitState::Failed => self.end(),
            InitState::Underway => {}
            InitState::Passed => self.apps(),
        }
    }

    /// Stops whatever may run and is not the present instance of a container of the spec: names that
    /// the spec does not have, older instances, and what lives on in a sandbox that is not kept.
    fn stop_unwanted(&mut self) {
        if self.sandbox.is_none() {
            return;
        }
        let pod = self.input.pod;
        for container in containers_in_order(self.input.observed) {
            let known = all_containers(pod).any(|(_, c)| c.name == container.name);
            let present = self.current(&container.name).is_some_and(|n| n.id == container.id);
            if container.state.may_run() && !(known && present) {
                let grace = seconds(grace_seconds(pod));
                let step = stop_one(None, container, StopReason::NotWanted, grace);
                self.plan.push(step, StopReason::NotWanted.text(), OnFailure::Abort);
            }
        }
    }

    /// Ephemeral containers start once, whatever became of them then, and wherever the init chain stands: they are there
    /// to find out what is wrong. In a sandbox that is made in this very plan there is nothing to find out yet.
    fn ephemeral_containers(&mut self) {
        if self.sandbox.is_none() {
            return;
        }
        for spec in ephemeral_containers(self.input.pod) {
            let name = &spec.name;
            let ran = self.memory(name).is_some_and(|m| m.last_run != LastRun::Never);
            if ran || self.latest(name).is_some() {
                continue;
            }
            let wanted = spec.target_container_name.as_deref().filter(|target| !target.is_empty());
            let target = match wanted.map(|target| (target, self.current(target))) {
                None => None,
                Some((_, Some(instance))) => Some(instance.id.clone()),
                Some((target, None)) => {
                    self.plan.waits.push(format!("target container {target} of {name} to be there"));
                    let message = format!("unable to find target container {target}");
                    let reason = Reason { reason: CONTAINER_CONFIG_ERROR.to_owned(), message };
                    self.plan.waiting.insert(name.clone(), reason);
                    continue;
                }
            };
            let container = ephemeral_as_container(spec);
            self.start_with(ContainerKind::Ephemeral, &container, target, "it was added to the running pod");
        }
    }

    fn init_containers(&mut self) -> InitState {
        let pod = self.input.pod;
        let initialised = app_containers(pod).iter().any(|c| self.current(&c.name).is_some());
        let inits = init_containers(pod);
        // From which container on anything of this round exists already: what came before it has done its part.
        let reached = inits.iter().rposition(|c| self.current(&c.name).is_some());
        for (i, container) in inits.iter().enumerate() {
            let passed_by = initialised || reached.is_some_and(|r| r > i);
            let gate = if is_sidecar(container) {
                Ok(self.sidecar(container, passed_by))
            } else if initialised {
                Ok(Gate::Open)
            } else if passed_by {
                Ok(self.passed_init(container))
            } else {
                self.plain_init(container)
            };
            match gate {
                Ok(Gate::Open) => {}
                Ok(Gate::Closed) => return InitState::Underway,
                Err(Ended) => return InitState::Failed,
            }
        }
        InitState::Passed
    }

    /// One plain init container that those after it have come past: it did its part, whatever is left of
    /// it now. It never runs beside a later one.
    fn passed_init(&mut self, container: &'a Container) -> Gate {
        let name = &container.name;
        match self.current(name).map(|instance| (instance, &instance.state)) {
            None | Some((_, ContainerState::Exited(_) | ContainerState::Created)) => Gate::Open,
            Some((_, ContainerState::Running { .. })) => {
                self.plan.waits.push(format!("init container {name} to end"));
                Gate::Closed
            }
            Some((instance, ContainerState::Unknown)) => {
                self.stop(container, instance, StopReason::Unknown, OnFailure::Abort);
                Gate::Closed
            }
        }
    }

    /// The plain init container whose turn it is; `Err` when it failed for good.
    fn plain_init(&mut self, container: &'a Container) -> Result<Gate, Ended> {
        let name = &container.name;
        let Some(instance) = self.current(name) else {
            self.start(ContainerKind::Init, container, "its turn in the init chain");
            return Ok(Gate::Closed);
        };
        match &instance.state {
            ContainerState::Exited(exit) if exit.code == 0 => return Ok(Gate::Open),
            ContainerState::Exited(exit) => {
                if !self.restarts(ContainerKind::Init, container, exit.code) {
                    return Err(Ended);
                }
                self.restart(ContainerKind::Init, container, instance);
            }
            ContainerState::Running { .. } => {
                self.plan.waits.push(format!("init container {name} to end"));
                self.resize_running(container, instance);
            }
            ContainerState::Created => {
                self.start(ContainerKind::Init, container, "it was made and never started");
            }
            ContainerState::Unknown => {
                self.replace(ContainerKind::Init, container, instance, StopReason::Unknown);
            }
        }
        Ok(Gate::Closed)
    }

    /// One sidecar. While it starts for the first time, those after it wait until it has started;
    /// later it restarts on its own.
    fn sidecar(&mut self, container: &'a Container, passed_by: bool) -> Gate {
        let name = &container.name;
        let unready = if passed_by { Gate::Open } else { Gate::Closed };
        let Some(instance) = self.current(name) else {
            self.start(ContainerKind::Sidecar, container, "its turn in the init chain");
            return unready;
        };
        match &instance.state {
            ContainerState::Running { .. } => {
                if let Some(reason) = self.stop_reason(container, instance) {
                    self.replace(ContainerKind::Sidecar, container, instance, reason);
                    return unready;
                }
                self.resize_running(container, instance);
                if self.has_started(container, instance) {
                    return Gate::Open;
                }
                self.plan.waits.push(format!("sidecar {name} to pass its startup probe"));
            }
            ContainerState::Exited(_) => self.restart(ContainerKind::Sidecar, container, instance),
            ContainerState::Created => {
                self.start(ContainerKind::Sidecar, container, "it was made and never started");
            }
            ContainerState::Unknown => {
                self.replace(ContainerKind::Sidecar, container, instance, StopReason::Unknown);
            }
        }
        unready
    }

    fn apps(&mut self) {
        let states: Vec<AppState<'a>> = app_containers(self.input.pod).iter().map(|c| self.app(c)).collect();
        let pod_goes_on = states.contains(&AppState::Lives);
        for state in &states {
            if let AppState::GivenUp(container, instance, reason) = *state {
                // The last one takes the pod with it, and ends as a pod does.
                let reason = if pod_goes_on { reason } else { StopReason::PodEnds };
                self.stop(container, instance, reason, OnFailure::Continue);
            }
        }
        if states.iter().all(|s| *s == AppState::Done) {
            self.end();
        }
    }

    fn app(&mut self, container: &'a Container) -> AppState<'a> {
        let pod = self.input.pod;
        let is_over = |code: i32| !self.restarts(ContainerKind::App, container, code);
        let Some(instance) = self.current(&container.name) else {
            if self.last_exit(&container.name).is_some_and(is_over) {
                return AppState::Done;
            }
            self.start(ContainerKind::App, container, "it is not there");
            return AppState::Lives;
        };
        match &instance.state {
            ContainerState::Running { .. } => {
                if let Some(reason) = self.stop_reason(container, instance) {
                    let policy = container_restart_policy(pod, ContainerKind::App, container);
                    if starts_anew(reason) || policy != RestartPolicy::Never {
                        self.replace(ContainerKind::App, container, instance, reason);
                    } else {
                        return AppState::GivenUp(container, instance, reason);
                    }
                } else {
                    self.resize_running(container, instance);
                }
                AppState::Lives
            }
            ContainerState::Exited(exit) if is_over(exit.code) => AppState::Done,
            ContainerState::Exited(_) => {
                self.restart(ContainerKind::App, container, instance);
                AppState::Lives
            }
            ContainerState::Created => {
                self.start(ContainerKind::App, container, "it was made and never started");
                AppState::Lives
            }
            ContainerState::Unknown => {
                self.replace(ContainerKind::App, container, instance, StopReason::Unknown);
                AppState::Lives
            }
        }
    }

    /// Why a running container has to stop, if it has to.
    fn stop_reason(&self, container: &Container, instance: &RuntimeContainer) -> Option<StopReason> {
        let made_with = &instance.marks.hash;
        // A container without the mark was made by another tool: it is left alone.
        if !made_with.is_empty() && *made_with != hash_of(container) {
            return Some(StopReason::SpecChanged);
        }
        let memory = self.memory(&container.name)?;
        if let Some(condemned) = memory.condemned.as_ref().filter(|(id, _)| *id == instance.id) {
            return Some(condemned.1);
        }
        let to = resize::sizes(self.input.pod, container);
        memory.actuated.filter(|from| resize::needs_restart(container, *from, to)).map(|_| StopReason::Resized)
    }

    /// Has a running container resized, if it has other CPU or memory than it shall have.
    fn resize_running(&mut self, container: &Container, instance: &RuntimeContainer) {
        let Some(from) = self.memory(&container.name).and_then(|m| m.actuated) else { return };
        let to = resize::sizes(self.input.pod, container);
        let (id, name) = (instance.id.clone(), container.name.clone());
        self.resizes.push(ResizeContainer { id, name, from, to });
    }

    /// The resizes come when what has to stop has stopped, and before anything starts.
    fn resize(&mut self) {
        if self.resizes.is_empty() || self.plan.ended.is_some() {
            return;
        }
        let starts = |planned: &PlannedStep| matches!(planned.step, Step::StartContainer { .. });
        let stops = |planned: &PlannedStep| matches!(planned.step, Step::StopContainers { .. } | Step::StopSandbox(_));
        let at = self.plan.steps.iter().position(starts).unwrap_or(self.plan.steps.len());
        // Another container may be replaced after the first that starts.
        let (late, rest): (Vec<_>, Vec<_>) = self.plan.steps.split_off(at).into_iter().partition(stops);
        let step = Step::ResizeContainers(std::mem::take(&mut self.resizes));
        let cause = "the pod has other CPU or memory now".to_owned();
        self.plan.steps.extend(late);
        self.plan.steps.push(PlannedStep { step, cause, on_failure: OnFailure::Continue });
        self.plan.steps.extend(rest);
    }

    fn has_started(&self, container: &Container, instance: &RuntimeContainer) -> bool {
        container.startup_probe.is_none()
            || self.memory(&container.name).is_some_and(|m| m.started.as_ref() == Some(&instance.id))
    }

    fn stop(&mut self, container: &Container, instance: &RuntimeContainer, reason: StopReason, on_failure: OnFailure) {
        let probe = match reason {
            StopReason::Liveness => container.liveness_probe.as_ref(),
            StopReason::Startup => container.startup_probe.as_ref(),
            _ => None,
        };
        let own = probe.and_then(|p| p.termination_grace_period_seconds);
        let grace = seconds(own.unwrap_or_else(|| grace_seconds(self.input.pod)));
        self.plan.push(stop_one(Some(container), instance, reason, grace), reason.text(), on_failure);
    }

    /// Stops a running instance; its exit then leads to the restart, with back-off where one is due.
    /// A changed spec or a lost container starts anew at once.
    fn replace(&mut self, kind: ContainerKind, container: &Container, instance: &RuntimeContainer, reason: StopReason) {
        self.stop(container, instance, reason, OnFailure::Abort);
        if starts_anew(reason) || reason == StopReason::Unknown {
            self.push_start(kind, &container.name, None, reason.text());
        }
    }

    /// Starts a container again after an exit, once its back-off is over.
    fn restart(&mut self, kind: ContainerKind, container: &Container, instance: &RuntimeContainer) {
        let name = &container.name;
        let memory = self.memory(name);
        let hash = hash_of(container);
        let exited_at = memory
            .and_then(|m| m.exit.as_ref())
            .filter(|(id, _)| *id == instance.id)
            .map_or(self.input.now, |(_, at)| *at);
        let state = memory.and_then(|m| m.crash.as_ref()).filter(|(_, of)| *of == hash).map(|(state, _)| *state);
        match decide(state, exited_at, self.input.now, &self.input.backoff) {
            Decision::Start(next) => {
                if self.start(kind, container, "it ended and restarts") == Started::Planned {
                    self.plan.restarts.insert(name.clone(), (next, hash));
                }
            }
            Decision::Wait { until, delay } => {
                self.hold(
                    name,
                    until,
                    Reason {
                        reason: "CrashLoopBackOff".to_owned(),
                        message: crash_loop_message(delay, name, self.input.pod),
                    },
                );
            }
        }
    }

    fn start(&mut self, kind: ContainerKind, container: &Container, why: &str) -> Started {
        self.start_with(kind, container, None, why)
    }

    fn start_with(
        &mut self,
        kind: ContainerKind,
        container: &Container,
        target: Option<ContainerId>,
        why: &str,
    ) -> Started {
        let failed = self.memory(&container.name).and_then(|m| m.failed.as_ref());
        if let Some((until, reason)) = failed.filter(|(until, _)| self.input.now < *until) {
            self.hold(&container.name, *until, reason.clone());
            return Started::Held;
        }
        self.push_start(kind, &container.name, target, why);
        Started::Planned
    }

    fn push_start(&mut self, kind: ContainerKind, name: &str, target: Option<ContainerId>, why: &str) {
        let attempt = next_attempt(self.input, name);
        // Nothing after an init container goes without it. Whatever is planned after a sidecar passed it by
        // long ago, and apps do not wait for one another.
        let on_failure = if kind == ContainerKind::Init { OnFailure::Abort } else { OnFailure::Continue };
        self.plan.push(Step::StartContainer { kind, name: name.to_owned(), attempt, target }, why, on_failure);
    }

    fn hold(&mut self, name: &str, until: Moment, reason: Reason) {
        let left = until.since(self.input.now);
        let mut wait = format!("container {name}: {}, next try in {}", reason.reason, about(left));
        // The message of a back-off says the same again.
        if reason.reason != "CrashLoopBackOff" && !reason.message.is_empty() {
            wait += &format!(": {}", reason.message);
        }
        self.plan.waits.push(wait);
        self.plan.waiting.insert(name.to_owned(), reason);
        self.plan.wake(until);
    }

    /// Every container is done: the pod has ended, unless something is still to be stopped first. Its
    /// sidecars serve nobody any more, so none of them starts again.
    fn end(&mut self) {
        self.plan.steps.retain(|planned| !matches!(planned.step, Step::StartContainer { .. }));
        let steps = std::mem::take(&mut self.plan.steps);
        self.plan = Plan { steps, ..Plan::default() };
        if self.plan.steps.is_empty() {
            self.plan.ended = Some(self.ending());
        }
    }

    fn ending(&self) -> Ending {
        let pod = self.input.pod;
        // Init containers count while no app container came to be: then one of them is why.
        let succeeded = |c: &Container| self.last_exit(&c.name) == Some(0);
        let apps = app_containers(pod);
        if !apps.is_empty() && apps.iter().all(succeeded) { Ending::Succeeded } else { Ending::Failed }
    }
}

/// A container failed for good, and the pod with it.
struct Ended;

/// Whether a container that is stopped for this starts again whatever its policy.
fn starts_anew(reason: StopReason) -> bool {
    matches!(reason, StopReason::SpecChanged | StopReason::Resized)
}

/// Where the init chain stands.
enum InitState {
    Underway,
    Passed,
    Failed,
}

/// Whether a start went into the plan.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Started {
    Planned,
    Held,
}

fn hash_of(container: &Container) -> String {
    container_hash(&container.name, container.image.as_deref().unwrap_or_default())
}

//! Pod conditions: those that a node agent owns, computed anew; those of others, kept.
//!
//! Layer L1, pure. A condition's transition time moves only when its status changes.

use std::fmt::Write as _;

use super::containers::{self, Lists};
use super::phase::{self, Phase, RestartAll};
use super::view::View;
use super::{StatusInput, time};
use crate::api::pod;
use crate::api::runtime::{ContainerState, UnixNanos};
use crate::api::v1::{ContainerStatus, PodCondition, PodStatus};

const SCHEDULED: &str = "PodScheduled";
const READY: &str = "Ready";
const INITIALIZED: &str = "Initialized";
const CONTAINERS_READY: &str = "ContainersReady";
const READY_TO_START: &str = "PodReadyToStartContainers";
const DISRUPTION_TARGET: &str = "DisruptionTarget";
const ALL_RESTARTING: &str = "AllContainersRestarting";

/// Conditions that nobody but the node agent writes.
const OWN: [&str; 8] = [
    SCHEDULED,
    READY,
    INITIALIZED,
    CONTAINERS_READY,
    READY_TO_START,
    "PodResizeInProgress",
    "PodResizePending",
    ALL_RESTARTING,
];

/// Whether the node agent owns conditions of this type.
pub(super) fn is_own(type_: &str) -> bool {
    OWN.contains(&type_)
}

/// Whether it shares them with others.
pub(super) fn is_shared(type_: &str) -> bool {
    type_ == DISRUPTION_TARGET
}

/// The condition of a type in a status.
pub(super) fn find<'s>(status: &'s PodStatus, type_: &str) -> Option<&'s PodCondition> {
    status.conditions.as_deref().unwrap_or_default().iter().find(|c| c.type_ == type_)
}

#[derive(Default)]
struct Answer {
    holds: bool,
    reason: &'static str,
    message: String,
}

impl Answer {
    fn yes() -> Self {
        Self { holds: true, ..Self::default() }
    }

    fn no(reason: &'static str, message: String) -> Self {
        Self { holds: false, reason, message }
    }
}

/// What a resize waits for, and that one is under way.
fn resize_conditions(input: &StatusInput<'_>) -> Vec<PodCondition> {
    let holds = |type_: &str, reason: Option<&str>, message: Option<&str>, generation: i64| PodCondition {
        message: message.map(str::to_owned),
        observed_generation: Some(generation).filter(|g| *g != 0),
        reason: reason.map(str::to_owned),
        status: "True".to_owned(),
        type_: type_.to_owned(),
        ..PodCondition::default()
    };
    let pending = input.resize.pending.as_ref();
    let pending =
        pending.map(|(why, generation)| holds("PodResizePending", Some(&why.reason), Some(&why.message), *generation));
    let in_progress = input.resize.in_progress.as_ref().map(|(failure, generation)| {
        holds("PodResizeInProgress", failure.as_ref().map(|_| "Error"), failure.as_deref(), *generation)
    });
    pending.into_iter().chain(in_progress).collect()
}

fn terminal_reason(phase: Phase) -> &'static str {
    if phase == Phase::Succeeded { "PodCompleted" } else { "PodFailed" }
}

fn condition(input: &StatusInput<'_>, type_: &str, answer: Answer) -> PodCondition {
    PodCondition {
        message: Some(answer.message).filter(|m| !m.is_empty()),
        observed_generation: input.pod.metadata.generation.filter(|g| *g != 0),
        reason: Some(answer.reason.to_owned()).filter(|r| !r.is_empty()),
        status: if answer.holds { "True" } else { "False" }.to_owned(),
        type_: type_.to_owned(),
        ..PodCondition::default()
    }
}

/// The agent's own conditions, without transition times. In a pod whose phase was terminal before,
/// readiness and initialisation have had their last word and are not told with other reasons again.
pub(super) fn kubelet_conditions(
    input: &StatusInput<'_>,
    view: &View<'_>,
    lists: &Lists,
    phase: Phase,
    settled: bool,
) -> Vec<PodCondition> {
    let containers_ready = containers_ready(input, lists, phase);
    let ready = if containers_ready.holds {
        readiness_gates(input)
    } else {
        Answer { message: containers_ready.message.clone(), ..containers_ready }
    };
    let initialized = initialized(input, lists, phase);
    let to_start = Answer { holds: ready_to_start(input, view), ..Answer::default() };
    let kept = |type_: &str, answer: Answer| {
        let now = condition(input, type_, answer);
        let before = input
            .before()
            .and_then(|s| find(s, type_))
            .filter(|c| settled && (type_ == INITIALIZED || c.status == "False"));
        match before {
            Some(c) => {
                PodCondition { message: c.message.clone(), reason: c.reason.clone(), status: c.status.clone(), ..now }
            }
            None => now,
        }
    };
    let mut conditions = vec![
        condition(input, READY_TO_START, to_start),
        kept(INITIALIZED, initialized),
        kept(READY, ready),
        kept(CONTAINERS_READY, containers_ready),
        condition(input, SCHEDULED, Answer::yes()),
    ];
    conditions.extend(resize_conditions(input));
    if input.restart_all == RestartAll::InForce && phase::may_restart_all(input.pod) {
        conditions.push(condition(input, ALL_RESTARTING, all_restarting(input, view, phase)));
    }
    conditions
}

/// Whether the pod ends a round: a container ended upon which all restart, and something of the round is left.
fn all_restarting(input: &StatusInput<'_>, view: &View<'_>, phase: Phase) -> Answer {
    if phase.is_terminal() {
        return Answer::no(terminal_reason(phase), String::new());
    }
    let named = pod::init_containers(input.pod).iter().chain(pod::app_containers(input.pod));
    let is_left = || named.map(|c| view.instances(&c.name)).any(|instances| instances.is_some());
    if !restarts_all(input, view) || (input.observed.is_some() && !is_left()) {
        return Answer::default();
    }
    Answer {
        holds: true,
        reason: "RestartAllContainersStarted",
        message: "container exited with restart policy rule".to_owned(),
    }
}

/// Whether all containers are to restart, by what was told before and what the containers show.
pub(super) fn restarts_all(input: &StatusInput<'_>, view: &View<'_>) -> bool {
    if input.restart_all == RestartAll::Unknown || !phase::may_restart_all(input.pod) {
        return false;
    }
    let before = input.before();
    if before.and_then(|s| find(s, ALL_RESTARTING)).is_some_and(|c| c.status == "True") {
        return true;
    }
    let lists = before.map(|s| (s.init_container_statuses.as_deref(), s.container_statuses.as_deref()));
    let (init, app) = lists.unwrap_or_default();
    let inits = pod::init_containers(input.pod).iter().map(|c| (c, init));
    inits.chain(pod::app_containers(input.pod).iter().map(|c| (c, app))).any(|(container, told)| {
        let seen = match view.instances(&container.name).map(|i| &i.newest.state) {
            Some(ContainerState::Exited(exit)) => Some(exit.code),
            Some(_) => return false,
            None => phase::find(told.unwrap_or_default(), &container.name)
                .and_then(containers::terminated)
                .map(|t| t.exit_code),
        };
        seen.is_some_and(|code| phase::restarts_all(container, code, input.restart_all))
    })
}

/// A pod whose phase is terminal is never told as ready.
pub(super) fn deny_readiness(conditions: &mut [PodCondition], phase: Phase) {
    for condition in conditions.iter_mut().filter(|c| [READY, CONTAINERS_READY].contains(&c.type_.as_str())) {
        if condition.status == "True" {
            condition.status = "False".to_owned();
            condition.reason = Some(terminal_reason(phase).to_owned());
            condition.message = None;
        }
    }
}

/// The conditions of others, as the API has them.
pub(super) fn foreign(input: &StatusInput<'_>) -> Vec<PodCondition> {
    let theirs = input.pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    theirs.iter().filter(|c| !is_own(&c.type_)).cloned().collect()
}

/// The condition that tells that the node ended the pod, once it has ended.
pub(super) fn disruption(input: &StatusInput<'_>, told: Phase) -> Option<PodCondition> {
    let theirs = input.pod.status.as_ref().and_then(|s| find(s, DISRUPTION_TARGET));
    if theirs.is_some() || !told.is_terminal() {
        return None;
    }
    let told_before = || input.previous.and_then(|s| find(s, DISRUPTION_TARGET)).cloned();
    let Some(reason) = input.ending.and_then(|e| e.disruption.as_ref()) else { return told_before() };
    let answer = Answer { holds: true, reason: "", message: reason.message.clone() };
    Some(PodCondition { reason: Some(reason.reason.clone()), ..condition(input, DISRUPTION_TARGET, answer) })
}

/// Gives each condition its transition time: that of the condition before while the status is the
/// same, else now. Conditions of others come with theirs.
pub(super) fn keep_transition_times(conditions: &mut [PodCondition], before: Option<&PodStatus>, now: UnixNanos) {
    for condition in conditions.iter_mut().filter(|c| is_own(&c.type_) || is_shared(&c.type_)) {
        let old = before.and_then(|s| find(s, &condition.type_)).filter(|old| old.status == condition.status);
        let kept = old.and_then(|old| old.last_transition_time.clone());
        condition.last_transition_time = kept.or(condition.last_transition_time.take()).or_else(|| time(now));
    }
}

/// Whether the newest sandbox serves: the only one ready, with the right network, and an address.
fn ready_to_start(input: &StatusInput<'_>, view: &View<'_>) -> bool {
    let host_network = pod::is_host_network(input.pod);
    if input.observed.is_none() {
        return input.before().and_then(|s| find(s, READY_TO_START)).is_some_and(|c| c.status == "True");
    }
    view.ready_sandboxes == 1
        && view.ready_sandbox().is_some_and(|s| s.host_network == host_network && (host_network || !s.ips.is_empty()))
}

fn containers_ready(input: &StatusInput<'_>, lists: &Lists, phase: Phase) -> Answer {
    if phase.is_terminal() {
        return Answer::no(terminal_reason(phase), String::new());
    }
    let sidecars = pod::init_containers(input.pod).iter().filter(|c| pod::is_sidecar(c));
    let all = sidecars.map(|c| (c, &lists.init)).chain(pod::app_containers(input.pod).iter().map(|c| (c, &lists.app)));
    let mut unknown = Vec::new();
    let mut unready = Vec::new();
    for (container, list) in all {
        match phase::find(list, &container.name) {
            None => unknown.push(container.name.as_str()),
            Some(status) if !status.ready => unready.push(container.name.as_str()),
            Some(_) => {}
        }
    }
    match listed(&unknown, "unready", &unready) {
        None => Answer::yes(),
        Some(message) => Answer::no("ContainersNotReady", message),
    }
}

fn initialized(input: &StatusInput<'_>, lists: &Lists, phase: Phase) -> Answer {
    let mut unknown = Vec::new();
    let mut incomplete = Vec::new();
    for container in pod::init_containers(input.pod) {
        let done = |s: &ContainerStatus| if pod::is_sidecar(container) { s.started == Some(true) } else { s.ready };
        match phase::find(&lists.init, &container.name) {
            None => unknown.push(container.name.as_str()),
            Some(status) if !done(status) => incomplete.push(container.name.as_str()),
            Some(_) => {}
        }
    }
    if phase == Phase::Succeeded {
        return Answer { reason: "PodCompleted", ..Answer::yes() };
    }
    // Once initialised, always: sidecars may restart, and init containers may be forgotten.
    let before = || input.before().and_then(|s| find(s, INITIALIZED)).is_some_and(|c| c.status == "True");
    if phase::any_app_container_began(input.pod, &lists.app) {
        return Answer::yes();
    }
    match listed(&unknown, "incomplete", &incomplete) {
        Some(message) if !before() => Answer::no("ContainersNotInitialized", message),
        _ => Answer::yes(),
    }
}

fn readiness_gates(input: &StatusInput<'_>) -> Answer {
    let gates = pod::spec(input.pod).and_then(|s| s.readiness_gates.as_deref()).unwrap_or_default();
    let mut messages = Vec::new();
    for gate in gates {
        let type_ = &gate.condition_type;
        match input.pod.status.as_ref().and_then(|s| find(s, type_)) {
            None => messages.push(format!("corresponding condition of pod readiness gate {type_:?} does not exist.")),
            Some(c) if c.status != "True" => {
                messages.push(format!("the status of pod readiness gate {type_:?} is not \"True\", but {}", c.status))
            }
            Some(_) => {}
        }
    }
    if messages.is_empty() { Answer::yes() } else { Answer::no("ReadinessGatesNotReady", messages.join(", ")) }
}

/// `containers with unknown status: [a b], containers with unready status: [c]`.
fn listed(unknown: &[&str], word: &str, others: &[&str]) -> Option<String> {
    let mut text = String::new();
    for (word, names) in [("unknown", unknown), (word, others)] {
        if names.is_empty() {
            continue;
        }
        if !text.is_empty() {
            text.push_str(", ");
        }
        let _ = write!(text, "containers with {word} status: [{}]", names.join(" "));
    }
    Some(text).filter(|t| !t.is_empty())
}

//! The status of a pod as the API tells it: phase, conditions and one entry for each container,
//! computed from the pod, what the runtime shows, and the status told before.
//!
//! Layer L1, pure: no I/O, clock, channel or log; `now` is an argument. The sync loop calls it each
//! time something about a pod changes and keeps the result as the next call's `previous`. Whatever
//! the order of the runtime's lists, the answer is the same, and telling the same facts again gives
//! the same status, so that nothing is reported while nothing changes.
//!
//! What never happens: a terminal phase changes; a restart count falls; a phase becomes terminal
//! while the pod may still run something ([`Outcome::finished`] says that it shall end).

mod compare;
mod conditions;
mod containers;
mod last_words;
mod patch;
mod phase;
mod resources;
mod summary;
mod view;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::api::meta::Time;
use crate::api::pod;
use crate::api::runtime::{RuntimePod, UnixNanos};
use crate::api::v1::{HostIP, Pod, PodCondition, PodIP, PodStatus};
use crate::api::{ContainerId, PodName};
use crate::msg::Reason;
use crate::util::text::duration;

pub use compare::differs;
pub use containers::is_restart_of_all;
pub use patch::patch;
pub use phase::{Phase, RestartAll, restarts_after, restarts_all};
pub use summary::{PodSummary, summary};

use view::View;

/// Where in its life the pod is; only the sync loop knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage<'a> {
    /// Not begun: a pod of the same name still ends, or sources or runtime have not spoken yet.
    Waiting,
    /// Shall run.
    Active,
    /// Shall end; something of it may still run.
    Terminating,
    /// Nothing of it runs, and nothing ever will.
    Terminated,
    /// Not admitted, for this reason.
    Rejected(&'a Reason),
}

/// Why a pod ends before its own containers decide so: past its deadline, evicted, node shutdown.
/// Its phase becomes `Failed` with this reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Reason and message of the pod's status.
    pub reason: Reason,
    /// Reason and message of the condition `DisruptionTarget`, told together with the final phase;
    /// `None` if the pod's end is its own doing.
    pub disruption: Option<Reason>,
}

impl Ending {
    /// `spec.activeDeadlineSeconds` is over.
    pub fn deadline_exceeded() -> Self {
        let reason = Reason {
            reason: "DeadlineExceeded".into(),
            message: "Pod was active on the node longer than the specified deadline".into(),
        };
        Self { reason, disruption: None }
    }
}

/// What the sync loop knows of one container beside the runtime's facts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerFacts {
    /// Why it does not start, from the last work or plan: `ErrImagePull`, `CrashLoopBackOff`, …
    pub waiting: Option<Reason>,
    /// Exit code of its newest instance, where it was seen to end: counts for what neither the runtime nor a status
    /// tells any more.
    pub ended: Option<i32>,
    /// Whether a resize of it is under way: then what was told before stands for what the runtime doesn't tell.
    pub resizing: bool,
    /// The instance that the two verdicts speak of; verdicts about another instance don't count.
    pub probed: Option<ContainerId>,
    /// Verdict of the startup probe; `None` if there is no such probe or no verdict yet. `false` also
    /// while a postStart hook runs.
    pub started: Option<bool>,
    /// Verdict of the readiness probe; `None` if there is no such probe or no verdict yet.
    pub ready: Option<bool>,
}

/// What is told of a resize.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResizeFacts {
    /// Why the pod does not get the CPU and memory that it wants, and the pod's generation that this speaks of.
    pub pending: Option<(Reason, i64)>,
    /// Set while not all containers have what the pod got: the last failure, and the pod's generation.
    pub in_progress: Option<(Option<String>, i64)>,
}

/// Everything that a pod's status depends on.
#[derive(Clone, Copy, Debug)]
pub struct StatusInput<'a> {
    /// The pod as its source has it. Its own `status` counts where `previous` is missing, and carries
    /// the conditions that others set.
    pub pod: &'a Pod,
    /// What the runtime has of it; `None` until the runtime has been looked at, when nothing may be
    /// concluded from a container's absence.
    pub observed: Option<&'a RuntimePod>,
    /// The status told before.
    pub previous: Option<&'a PodStatus>,
    /// Where in its life it is.
    pub stage: Stage<'a>,
    /// Why it ends, if not by itself. It stays set through [`Stage::Terminated`].
    pub ending: Option<&'a Ending>,
    /// Facts by container name.
    pub facts: &'a BTreeMap<String, ContainerFacts>,
    /// What is to be told of a resize.
    pub resize: &'a ResizeFacts,
    /// Node addresses, primary first; the pod's addresses take their order of families from it.
    pub host_ips: &'a [String],
    /// Name of the runtime, the scheme of `containerID`: `containerd`.
    pub runtime_name: &'a str,
    /// Whether the pod's runtime handler can mount read-only recursively.
    pub recursive_read_only: bool,
    /// `Guaranteed`, `Burstable` or `BestEffort`.
    pub qos_class: &'a str,
    /// When this node began with the pod; 0 for now. Counts until a status has been told.
    pub start_time: UnixNanos,
    /// Whether a rule may restart all containers.
    pub restart_all: RestartAll,
    /// Wall clock.
    pub now: UnixNanos,
}

impl<'a> StatusInput<'a> {
    /// The status before this one: the last told, else the source's.
    fn before(&self) -> Option<&'a PodStatus> {
        self.previous.or(self.pod.status.as_ref())
    }

    /// Whether containers of the pod may still be started.
    fn may_start(&self) -> bool {
        matches!(self.stage, Stage::Waiting | Stage::Active)
            && self.ending.is_none()
            && self.pod.metadata.deletion_timestamp.is_none()
    }
}

/// What [`pod_status`] found.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The status to tell.
    pub status: PodStatus,
    /// Whether the pod has come to its end: it shall be stopped and never start anything again. Its
    /// phase becomes terminal with [`Stage::Terminated`], so that nobody counts on resources that are
    /// still in use.
    pub finished: bool,
}

/// Computes the status of a pod.
pub fn pod_status(input: &StatusInput<'_>) -> Outcome {
    let before = input.before();
    let phase_before = before.and_then(Phase::of);
    if let Stage::Rejected(reason) = input.stage {
        let status = match before {
            Some(status) if phase_before.is_some_and(Phase::is_terminal) => status.clone(),
            _ => rejected(input, reason),
        };
        return Outcome { status, finished: true };
    }

    let view = View::new(input.observed);
    let mut lists = containers::container_statuses(input, &view);
    let computed = match input.observed {
        Some(_) => phase::compute(input, &view, &lists),
        None => phase_before.unwrap_or(Phase::Pending),
    };
    // The API's word about an end comes first, then ours.
    let settled = [input.pod.status.as_ref(), input.previous]
        .into_iter()
        .find_map(|status| status.and_then(Phase::of).filter(|p| p.is_terminal()));
    let phase = match (settled, input.ending) {
        (Some(settled), _) => settled,
        (None, Some(_)) => Phase::Failed,
        (None, None) => computed,
    };
    let mut conditions = conditions::kubelet_conditions(input, &view, &lists, phase, settled.is_some());

    let mut told = phase;
    if input.stage == Stage::Terminated {
        last_words::end_all_containers(input, &mut lists);
        if !told.is_terminal() {
            told = match phase::compute(input, &view, &lists) {
                phase if phase.is_terminal() => phase,
                phase if pod::is_static(input.pod) => phase_before.unwrap_or(phase),
                _ => Phase::Failed,
            };
        }
        if !told.is_terminal() {
            // Nothing froze: the conditions follow what the containers say now.
            conditions = conditions::kubelet_conditions(input, &view, &lists, told, false);
        }
    } else if told.is_terminal() && settled.is_none() {
        told = match phase_before {
            Some(before) => before,
            None if phase::any_app_container_began(input.pod, &lists.app) => Phase::Running,
            None => Phase::Pending,
        };
    }
    if told.is_terminal() {
        conditions::deny_readiness(&mut conditions, told);
    }
    let (reason, message) = match input.ending {
        Some(ending) if told.is_terminal() && settled.is_none() => {
            (Some(ending.reason.reason.clone()), Some(ending.reason.message.clone()))
        }
        _ => reason_kept(input, told),
    };

    let mut all_conditions = conditions::foreign(input);
    all_conditions.extend(conditions::disruption(input, told));
    all_conditions.append(&mut conditions);
    conditions::keep_transition_times(&mut all_conditions, before, input.now);

    let (pod_ip, pod_ips) = pod_ips(input, &view);
    let status = PodStatus {
        allocated_resources: resources::requested(input.pod),
        conditions: Some(all_conditions),
        container_statuses: not_empty(lists.app),
        ephemeral_container_statuses: not_empty(lists.ephemeral),
        host_ip: input.host_ips.first().cloned(),
        host_ips: not_empty(input.host_ips.iter().take(2).map(|ip| HostIP { ip: ip.clone() }).collect()),
        init_container_statuses: not_empty(lists.init),
        message,
        phase: Some(told.as_str().to_owned()),
        pod_ip,
        pod_ips,
        reason,
        resources: Some(resources::effective(input.pod)),
        ..common(input)
    };
    Outcome { status, finished: phase.is_terminal() || input.stage == Stage::Terminated }
}

/// Fields that every status has, and those that others own.
fn common(input: &StatusInput<'_>) -> PodStatus {
    let before = input.before();
    let start = before.and_then(|s| s.start_time.clone());
    let first = if input.start_time == 0 { input.now } else { input.start_time };
    let generation = input.pod.metadata.generation.max(before.and_then(|s| s.observed_generation));
    let theirs = input.pod.status.as_ref();
    PodStatus {
        start_time: start.or_else(|| time(first)),
        observed_generation: generation.filter(|g| *g != 0),
        qos_class: Some(input.qos_class.to_owned()).filter(|q| !q.is_empty()),
        resource_claim_statuses: theirs.and_then(|s| s.resource_claim_statuses.clone()),
        extended_resource_claim_status: theirs.and_then(|s| s.extended_resource_claim_status.clone()),
        node_allocatable_resource_claim_statuses: theirs
            .and_then(|s| s.node_allocatable_resource_claim_statuses.clone()),
        nominated_node_name: theirs.and_then(|s| s.nominated_node_name.clone()),
        ..PodStatus::default()
    }
}

fn rejected(input: &StatusInput<'_>, reason: &Reason) -> PodStatus {
    let mut conditions: Vec<PodCondition> = conditions::foreign(input);
    conditions::keep_transition_times(&mut conditions, input.before(), input.now);
    PodStatus {
        phase: Some(Phase::Failed.as_str().to_owned()),
        reason: Some(reason.reason.clone()),
        message: Some(format!("Pod was rejected: {}", reason.message)),
        conditions: not_empty(conditions),
        ..common(input)
    }
}

/// Reason and message belong to the phase: they stay while it stays.
fn reason_kept(input: &StatusInput<'_>, told: Phase) -> (Option<String>, Option<String>) {
    let same = |status: &&PodStatus| Phase::of(status) == Some(told);
    let statuses = [input.previous.filter(same), input.pod.status.as_ref().filter(same)];
    let first = |field: fn(&PodStatus) -> &Option<String>| {
        statuses.iter().flatten().find_map(|s| field(s).clone().filter(|text| !text.is_empty()))
    };
    (first(|s| &s.reason), first(|s| &s.message))
}

/// The pod's addresses: the node's with host networking, else those of its sandbox, one of each
/// family with the node's family first. A pod whose sandbox is gone keeps the ones it had.
fn pod_ips(input: &StatusInput<'_>, view: &View<'_>) -> (Option<String>, Option<Vec<PodIP>>) {
    let family_of_node = input.host_ips.first().and_then(|ip| ip.parse::<IpAddr>().ok());
    let six_first = family_of_node.is_some_and(|ip| ip.is_ipv6());
    let source: &[String] = match view.ready_sandbox() {
        _ if pod::is_host_network(input.pod) => input.host_ips,
        Some(sandbox) => &sandbox.ips,
        None => {
            let before = input.before();
            let ips = before.and_then(|s| s.pod_ips.clone()).filter(|ips| !ips.is_empty());
            return (ips.as_ref().map(|ips| ips[0].ip.clone()), ips);
        }
    };
    let parsed: Vec<IpAddr> = source.iter().filter_map(|ip| ip.parse().ok()).collect();
    let first = parsed.iter().find(|ip| ip.is_ipv6() == six_first);
    let second = parsed.iter().find(|ip| ip.is_ipv6() != six_first);
    let ips: Vec<PodIP> = first.into_iter().chain(second).map(|ip| PodIP { ip: ip.to_string() }).collect();
    (ips.first().map(|ip| ip.ip.clone()), not_empty(ips))
}

/// The message of a container in `CrashLoopBackOff`.
pub fn crash_loop_message(delay: Duration, container: &str, pod: &Pod) -> String {
    let PodName { namespace, name } = pod::pod_name(pod);
    let delay = duration(delay);
    format!("back-off {delay} restarting failed container={container} pod={name}_{namespace}({})", pod::pod_uid(pod))
}

/// API time to the second; `None` when unknown (0 or before 1970), so that nobody reads "1970".
fn time(nanos: UnixNanos) -> Option<Time> {
    let seconds = Some(nanos / 1_000_000_000).filter(|s| *s > 0)?;
    Timestamp::from_second(seconds).ok().map(Time)
}

fn not_empty<T>(list: Vec<T>) -> Option<Vec<T>> {
    Some(list).filter(|l| !l.is_empty())
}

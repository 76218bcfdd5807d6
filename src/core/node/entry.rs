//! One pod of the node: its stage, its work in flight, what is remembered. Pure; see the parent module.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::Probes;
use crate::api::moment::Moment;
use crate::api::pod::{ContainerKind, find_container, grace_seconds, has_filled_volumes, is_static, pod_name, pod_uid};
use crate::api::record::{LastRun, PodRecord};
use crate::api::runtime::{ContainerState, RuntimePod, UnixNanos};
use crate::api::v1::{Pod, PodStatus};
use crate::api::{ContainerId, PodName, PodUid};
use crate::core::admit::Claim;
use crate::core::images::ImageReason;
use crate::core::node_object::runtime::NETWORK_NOT_READY;
use crate::core::plan::{self, ContainerMemory};
use crate::core::status;
use crate::msg::{CountedEvent, Look, PodEvent, Reason, Step, StepResult, WorkReport};
use crate::util::cancel::Cancel;

/// Events kept per pod.
pub(super) const EVENTS_KEPT: usize = 30;

/// A start that failed is repeated after this.
const START_AGAIN: Duration = Duration::from_secs(10);

/// Why a pod ends.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cause {
    /// Its source no longer has it.
    Removed,
    /// The API server asks for its end: it has a deletionTimestamp.
    Deleted,
    /// Nobody asks for it: found in the runtime or in a record.
    Orphan,
    /// All its containers are done.
    Completed(plan::Ending),
    /// `activeDeadlineSeconds` is over.
    DeadlineExceeded,
    /// This node cannot keep it.
    Evicted(Box<status::Ending>),
}

impl Cause {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Removed => "Removed",
            Self::Deleted => "Deleted",
            Self::Orphan => "Orphan",
            Self::Completed(_) => "Completed",
            Self::DeadlineExceeded => "DeadlineExceeded",
            Self::Evicted(_) => "Evicted",
        }
    }

    pub(super) fn sentence(&self) -> &str {
        match self {
            Self::Removed => "its source no longer has it",
            Self::Deleted => "it was deleted at the API server",
            Self::Orphan => "no source asks for it",
            Self::Completed(_) => "all its containers are done",
            Self::DeadlineExceeded => "its activeDeadlineSeconds are over",
            Self::Evicted(ending) => &ending.reason.message,
        }
    }
}

/// Where a pod is in its life. It only ever moves down this list.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stage {
    /// Another pod of the same name is not gone yet, or it is not known yet what runs.
    Queued,
    /// This node has nothing against it; the owner's hook is asked.
    Asking,
    /// Admitted; starts when these pods have made room for it, or at this time all the same.
    MakingRoom { victims: BTreeSet<PodUid>, until: Moment },
    /// Not admitted.
    Rejected(Reason),
    /// Kept running.
    Active,
    /// Brought to rest by `deadline`.
    Ending { cause: Cause, deadline: Moment },
    /// At rest; its volumes and cgroup are taken away.
    Releasing { cause: Cause },
    /// At rest for good; stays to be seen while it is wanted.
    Ended { cause: Cause },
    /// All that is left of it is removed.
    Forgetting,
}

impl Stage {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Queued => "Queued",
            Self::Asking => "Asking",
            Self::MakingRoom { .. } => "MakingRoom",
            Self::Rejected(_) => "Rejected",
            Self::Active => "Active",
            Self::Ending { .. } => "Terminating",
            Self::Releasing { .. } => "Releasing",
            Self::Ended { .. } => "Ended",
            Self::Forgetting => "Forgetting",
        }
    }

    pub(super) fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Ending { cause, .. } | Self::Releasing { cause } | Self::Ended { cause } => Some(cause),
            Self::Queued
            | Self::Asking
            | Self::MakingRoom { .. }
            | Self::Rejected(_)
            | Self::Active
            | Self::Forgetting => None,
        }
    }
}

/// The one work that a pod may have in flight.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Idle,
    Running {
        id: u64,
        cancel: Cancel,
        /// When what it stops is killed at the latest, if the pod ends.
        ends_by: Option<Moment>,
    },
}

/// What a static pod's mirror at the API server has to tell of its past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mirror {
    /// It was not seen yet, and nothing else tells of the pod's past.
    Awaited,
    /// Nothing that is not known.
    Known,
}

/// One pod.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) uid: PodUid,
    pub(super) name: PodName,
    /// The pod in its source's newest set; `None` when nobody asks for it.
    pub(super) wanted: Option<Arc<Pod>>,
    /// What is known of its spec.
    pub(super) pod: Arc<Pod>,
    /// What it requests of the node.
    pub(super) claim: Claim,
    pub(super) stage: Stage,
    /// Whether the admission hook has let it pass.
    pub(super) hook_admits: bool,
    /// Why this node ends it though it is wanted.
    pub(super) doom: Option<Box<status::Ending>>,
    /// The longest grace period that this node's need leaves it.
    pub(super) grace_limit: Option<Duration>,
    pub(super) work: Work,
    /// Only observations that began after this count.
    pub(super) settled_at: Moment,
    /// When a look at this pod alone last found that the runtime does not have it.
    pub(super) absent_at: Option<Moment>,
    /// No new work before this.
    pub(super) retry_at: Option<Moment>,
    /// Works that failed one after the other.
    pub(super) failures: u32,
    /// Why the last work failed, as a pod.
    pub(super) failure: Option<Reason>,
    /// By container name; boxed, because a map of one has room for eleven.
    pub(super) memory: BTreeMap<String, Box<ContainerMemory>>,
    pub(super) next_sandbox_attempt: u32,
    pub(super) start_time: UnixNanos,
    /// `start_time` as a decision needs it; this boot's beginning for a pod that is older.
    pub(super) started_at: Moment,
    /// How long it had been there when this boot began.
    pub(super) before_boot: Duration,
    /// What is to be told of a resize.
    pub(super) resize: status::ResizeFacts,
    /// When a resize that waits for room is looked at again.
    pub(super) resize_again: Option<Moment>,
    /// Why its volumes have to be looked at again, if they have.
    pub(super) refresh: Option<String>,
    /// When the newest plan wants to be looked at again.
    pub(super) wake_at: Option<Moment>,
    /// Waiting reasons of the newest plan.
    pub(super) waiting: BTreeMap<String, Reason>,
    /// Newest plan, one line a step.
    pub(super) plan: Vec<String>,
    pub(super) waits: Vec<String>,
    /// Why the last look at what the runtime has of it failed; `None` when it did not.
    pub(super) unseen_why: Option<String>,
    /// How closely the next look shall be.
    pub(super) look: Look,
    /// Asked PLEG to look; at most one request is under way.
    pub(super) asked_at: Option<Moment>,
    pub(super) status: Arc<PodStatus>,
    pub(super) events: VecDeque<Arc<CountedEvent>>,
    /// What is on disk.
    pub(super) saved: Option<Arc<PodRecord>>,
    /// Whether its mirror may tell more than this agent knows.
    pub(super) mirror: Mirror,
    /// The start of one that this agent saw first, until it has started.
    pub(super) birth: Option<Birth>,
}

/// How the start of a pod goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Birth {
    /// When the agent saw it first.
    pub(super) seen_at: Moment,
    /// Whether a worker was given work on it.
    pub(super) has_begun: bool,
    /// Time that went into pulling its images.
    pub(super) pulled: Duration,
}

/// When a start that failed is repeated. A pull that failed is followed by a try that says so
/// (`ImagePullBackOff`, which costs nothing), and that by one just when the image may be pulled again.
fn start_again(failed_at: Moment, image_at: Option<Moment>, reason: &Reason) -> Moment {
    let usual = failed_at + START_AGAIN;
    match image_at {
        Some(at) if reason.reason == ImageReason::ImagePullBackOff.as_str() => at.max(failed_at),
        Some(at) => usual.min(at.max(failed_at)),
        None => usual,
    }
}

impl Entry {
    /// What is known of its spec is this now.
    pub(super) fn set_pod(&mut self, pod: Arc<Pod>) {
        self.claim = Claim::of(&pod);
        self.pod = pod;
    }

    pub(super) fn new(pod: Arc<Pod>, wanted: bool, now: crate::api::moment::Now) -> Self {
        // Whether an earlier run of the agent left them as they should be is not known.
        let refresh = has_filled_volumes(&pod).then(|| "what they show may have changed".to_owned());
        let is_static = is_static(&pod);
        Self {
            uid: pod_uid(&pod),
            name: pod_name(&pod),
            wanted: wanted.then(|| Arc::clone(&pod)),
            claim: Claim::of(&pod),
            pod,
            stage: Stage::Queued,
            hook_admits: false,
            doom: None,
            grace_limit: None,
            work: Work::Idle,
            settled_at: Moment::default(),
            absent_at: None,
            retry_at: None,
            failures: 0,
            failure: None,
            memory: BTreeMap::new(),
            next_sandbox_attempt: 0,
            start_time: now.wall,
            started_at: now.mono,
            before_boot: Duration::ZERO,
            resize: status::ResizeFacts::default(),
            resize_again: None,
            refresh,
            wake_at: None,
            waiting: BTreeMap::new(),
            plan: Vec::new(),
            waits: Vec::new(),
            unseen_why: None,
            look: Look::default(),
            asked_at: None,
            status: Arc::new(PodStatus::default()),
            events: VecDeque::new(),
            saved: None,
            mirror: if is_static { Mirror::Awaited } else { Mirror::Known },
            birth: wanted.then_some(Birth { seen_at: now.mono, has_begun: false, pulled: Duration::ZERO }),
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        matches!(self.work, Work::Running { .. })
    }

    /// When something has to be decided about it though nothing happens.
    pub(super) fn deadline(&self) -> Option<Moment> {
        let active_deadline = match self.stage {
            Stage::Active => self.active_deadline(),
            _ => None,
        };
        if let Work::Running { cancel, .. } = &self.work {
            // Once the work was told to stop there is nothing to do but wait for its report.
            return active_deadline.filter(|_| !cancel.is_cancelled());
        }
        let resize_again = self.resize_again.filter(|_| self.stage == Stage::Active);
        [self.retry_at, self.wake_at, active_deadline, resize_again].into_iter().flatten().min()
    }

    /// When `activeDeadlineSeconds` are over.
    pub(super) fn active_deadline(&self) -> Option<Moment> {
        let seconds = self.pod.spec.as_ref()?.active_deadline_seconds?;
        Some(self.started_at + plan::seconds(seconds).saturating_sub(self.before_boot))
    }

    /// The grace period: that of the deletion, else the pod's own; never less than a second, as upstream.
    pub(super) fn grace(&self) -> Duration {
        let of_deletion = |pod: &Pod| pod.metadata.deletion_grace_period_seconds;
        let newest = self.wanted.as_deref().and_then(of_deletion);
        let seconds = newest.or_else(|| of_deletion(&self.pod)).unwrap_or_else(|| grace_seconds(&self.pod));
        let grace = plan::seconds(seconds);
        self.grace_limit.map_or(grace, |limit| limit.min(grace)).max(Duration::from_secs(1))
    }

    /// Tells the running work to stop: it was overtaken.
    pub(super) fn cancel(&self) {
        if let Work::Running { cancel, .. } = &self.work {
            cancel.cancel();
        }
    }

    /// Learns from a look at the runtime: attempts used, exits seen for the first time.
    pub(super) fn learn(&mut self, observed: &RuntimePod, at: Moment, probes: Probes) {
        for sandbox in &observed.sandboxes {
            self.next_sandbox_attempt = self.next_sandbox_attempt.max(sandbox.attempt.saturating_add(1));
        }
        for container in &observed.containers {
            let memory = self.memory.entry(container.name.clone()).or_default();
            memory.next_attempt = memory.next_attempt.max(container.attempt.saturating_add(1));
        }
        for (name, memory) in &mut self.memory {
            let Some(newest) = plan::newest(&observed.containers, name) else { continue };
            // One of an earlier round says nothing any more.
            if newest.attempt < memory.first_attempt {
                continue;
            }
            // A late look may not know the newest instance yet.
            if newest.attempt.saturating_add(1) >= memory.next_attempt {
                match &newest.state {
                    ContainerState::Running { .. } | ContainerState::Unknown => memory.last_run = LastRun::Began,
                    ContainerState::Exited(exit) => memory.last_run = LastRun::Ended(exit.code),
                    ContainerState::Created => {}
                }
            }
            match &newest.state {
                ContainerState::Exited(_) if memory.exit.as_ref().is_none_or(|(id, _)| *id != newest.id) => {
                    memory.exit = Some((newest.id.clone(), at));
                }
                ContainerState::Running { .. } => {
                    memory.failed = None;
                    if probes == Probes::NotRun {
                        memory.started = Some(newest.id.clone());
                    }
                }
                ContainerState::Exited(_) | ContainerState::Created | ContainerState::Unknown => {}
            }
        }
    }

    /// Learns from what a worker did.
    pub(super) fn learn_report(&mut self, report: &WorkReport, retry: impl Fn(u32) -> Duration) {
        self.work = Work::Idle;
        self.settled_at = report.finished_at;
        if let Some(birth) = &mut self.birth {
            birth.pulled += report.pulled;
        }
        self.learn_resizes(report);
        let mut failure = None;
        for (step, result) in &report.results {
            match (step, result) {
                (Step::StartContainer { name, attempt, .. }, StepResult::Done) => {
                    let memory = self.memory.entry(name.clone()).or_default();
                    // One that was looked at meanwhile is known better.
                    if *attempt >= memory.next_attempt {
                        memory.next_attempt = attempt.saturating_add(1);
                        memory.last_run = LastRun::Began;
                    }
                    memory.failed = None;
                }
                (Step::StartContainer { name, attempt, .. }, StepResult::Failed(reason)) if !report.cancelled => {
                    let memory = self.memory.entry(name.clone()).or_default();
                    if reason.message.contains("is reserved for") {
                        memory.next_attempt = memory.next_attempt.max(attempt.saturating_add(1));
                    }
                    let again = start_again(report.finished_at, report.image_waits.get(name).copied(), reason);
                    memory.failed = Some((again, reason.clone()));
                }
                (Step::RunSandbox { attempt }, StepResult::Done) => {
                    self.next_sandbox_attempt = self.next_sandbox_attempt.max(attempt.saturating_add(1));
                }
                (Step::RunSandbox { attempt }, StepResult::Failed(reason)) => {
                    if reason.reason == NETWORK_NOT_READY {
                        // Nothing was tried: the pod shall begin soon after the network is there.
                        self.failures = 0;
                    }
                    // A name that the runtime still holds is given up: the next try takes another one.
                    if reason.message.contains("is reserved for") {
                        self.next_sandbox_attempt = self.next_sandbox_attempt.max(attempt.saturating_add(1));
                    }
                    failure.get_or_insert_with(|| reason.clone());
                }
                (Step::PreparePod, StepResult::Skipped) => self.want_refresh("it was not done yet"),
                (Step::PreparePod, StepResult::Failed(reason)) => {
                    self.want_refresh("the last try failed");
                    failure.get_or_insert_with(|| reason.clone());
                }
                (_, StepResult::Failed(reason)) => {
                    failure.get_or_insert_with(|| reason.clone());
                }
                (_, StepResult::Done | StepResult::Refused(_) | StepResult::Skipped) => {}
            }
        }
        if report.cancelled {
            self.retry_at = None;
        } else if failure.is_some() {
            self.failures = self.failures.saturating_add(1);
            self.retry_at = Some(report.finished_at + retry(self.failures));
        } else {
            self.failures = 0;
            self.retry_at = None;
        }
        self.failure = failure.filter(|_| !report.cancelled);
    }

    /// Has the pod's volumes looked at again, if the agent fills any.
    pub(super) fn want_refresh(&mut self, cause: &str) {
        if has_filled_volumes(&self.pod) {
            self.refresh.get_or_insert_with(|| cause.to_owned());
        }
    }

    /// Adds an event, counting repetitions.
    pub(super) fn record_event(&mut self, event: PodEvent) {
        let same = |old: &Arc<CountedEvent>| {
            let old = &old.event;
            old.reason == event.reason && old.message == event.message && old.field_path == event.field_path
        };
        let counted = match self.events.iter().position(same) {
            Some(i) => {
                let old = self.events.remove(i);
                let (count, first_at) = old.map_or((1, event.at), |o| (o.count.saturating_add(1), o.first_at));
                CountedEvent { event, count, first_at }
            }
            None => CountedEvent { first_at: event.at, event, count: 1 },
        };
        if self.events.len() >= EVENTS_KEPT {
            self.events.pop_front();
        }
        self.events.push_back(Arc::new(counted));
    }

    /// What the status needs to know of each container.
    pub(super) fn container_facts(
        &self,
        observed: Option<&RuntimePod>,
        probes: Probes,
    ) -> BTreeMap<String, status::ContainerFacts> {
        let mut facts: BTreeMap<String, status::ContainerFacts> = BTreeMap::new();
        for (name, memory) in &self.memory {
            let fact = facts.entry(name.clone()).or_default();
            fact.waiting = memory.failed.as_ref().map(|(_, reason)| reason.clone());
            fact.resizing = memory.actuated.is_some();
            fact.ended = match memory.last_run {
                LastRun::Ended(code) => Some(code),
                LastRun::Never | LastRun::Began => None,
            };
            let newest = observed.and_then(|observed| plan::newest(&observed.containers, name)).map(|c| &c.id);
            let is_newest = |id: &Option<ContainerId>| id.as_ref() == newest;
            fact.probed = newest.cloned();
            match probes {
                Probes::NotRun if is_newest(&memory.started) => (fact.started, fact.ready) = (Some(true), Some(true)),
                Probes::NotRun => {}
                Probes::Run => {
                    let Some((_, spec)) = find_container(&self.pod, name) else { continue };
                    fact.started = spec.startup_probe.is_some().then(|| is_newest(&memory.started));
                    fact.ready = spec.readiness_probe.is_some().then(|| is_newest(&memory.ready));
                }
            }
        }
        for (name, reason) in &self.waiting {
            facts.entry(name.clone()).or_default().waiting = Some(reason.clone());
        }
        facts
    }

    /// The field path of a container for events.
    pub(super) fn field_path(&self, name: &str) -> String {
        match find_container(&self.pod, name).map(|(kind, _)| kind) {
            Some(ContainerKind::Init | ContainerKind::Sidecar) => format!("spec.initContainers{{{name}}}"),
            Some(ContainerKind::Ephemeral) => format!("spec.ephemeralContainers{{{name}}}"),
            Some(ContainerKind::App) | None => format!("spec.containers{{{name}}}"),
        }
    }
}

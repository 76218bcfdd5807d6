//! Every message that crosses a thread, and the snapshots that leave the sync loop.
//!
//! Layer L0: plain data without senders. Who sends what to whom is drawn in README.md, "Architecture";
//! the channels themselves are made in `app`. Matches on the enums here carry no `_` arm, so that a
//! new message is a compile error wherever it has to be thought about.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::api::moment::Moment;
pub use crate::api::pod::ConfigSource as SourceKind;
use crate::api::pod::ContainerKind;
use crate::api::pressure::Pressures;
use crate::api::record::{PodRecord, Sizes};
use crate::api::runtime::{RuntimePod, UnixNanos};
use crate::api::v1::{LifecycleHandler, Pod, PodStatus, Taint};
use crate::api::{ContainerId, PodName, PodUid, SandboxId};
use crate::util::cancel::Cancel;

/// Something a source could not use, told to people, never a reason to drop other pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceProblem {
    /// File or URL.
    pub origin: String,
    /// What is wrong and what would be right.
    pub message: String,
}

/// The full set of pods of one source. Silence means "as before"; an empty set means "none".
#[derive(Clone, Debug)]
pub struct SourceUpdate {
    /// Which source.
    pub source: SourceKind,
    /// All its pods, defaulted and valid.
    pub pods: Vec<Arc<Pod>>,
    /// What it could not use.
    pub problems: Vec<SourceProblem>,
}

/// Which pods an [`Observation`] speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every pod of the runtime: those not listed as changed are as they were.
    All,
    /// This pod alone.
    Pod(PodUid),
}

/// A pod of which PLEG can't tell what it is like now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPod {
    /// Its uid.
    pub uid: PodUid,
    /// What the runtime's list calls it, if no look has reached it yet.
    pub name: Option<PodName>,
    /// Why; empty while a look is under way.
    pub why: String,
}

/// What PLEG saw: one message per relist or inspection.
#[derive(Clone, Debug)]
pub struct Observation {
    /// When the look began: whatever happened before it is contained in it.
    pub started_at: Moment,
    /// What was looked at.
    pub scope: Scope,
    /// Pods that differ from the last look, in full.
    pub changed: Vec<Arc<RuntimePod>>,
    /// Pods that the runtime no longer knows.
    pub gone: Vec<PodUid>,
    /// Pods whose inspection is under way, failed or timed out: their last view stays, and is not fresh.
    pub unknown: Vec<UnknownPod>,
}

/// Whether the runtime answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuntimeHealth {
    /// It does.
    Up,
    /// It does not, for this reason.
    Down(String),
}

/// How closely PLEG looks at a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Look {
    /// At what is new since the last look: what runs tells the same as long as nobody changes it.
    #[default]
    AtNews,
    /// At all that runs: it was changed.
    AtAll,
}

/// What PLEG is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlegCommand {
    /// Look at one pod now.
    Inspect(PodUid, Look),
    /// List everything now.
    Relist,
}

/// Why a container is stopped: the word for events, logs and `ferrolet why`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The pod ends.
    PodEnds,
    /// The container's spec changed.
    SpecChanged,
    /// The sandbox is gone or changed.
    SandboxChanged,
    /// The liveness probe failed.
    Liveness,
    /// The startup probe failed.
    Startup,
    /// The runtime lost track of it.
    Unknown,
    /// It is not part of the pod's spec.
    NotWanted,
    /// An init container of an earlier round still runs.
    InitAgain,
    /// A container ended upon which all containers of the pod restart.
    RestartAll,
    /// It gets other CPU or memory, and its policy asks for a restart then.
    Resized,
}

impl StopReason {
    /// The sentence of the Killing event, after the container's name.
    pub const fn text(self) -> &'static str {
        match self {
            Self::PodEnds => "pod ends",
            Self::SpecChanged => "definition changed, will be restarted",
            Self::SandboxChanged => "pod sandbox changed",
            Self::Liveness => "failed liveness probe, will be restarted",
            Self::Startup => "failed startup probe, will be restarted",
            Self::Unknown => "is in unknown state, try killing it before restart",
            Self::NotWanted => "is not part of the pod",
            Self::InitAgain => "init container runs again",
            Self::RestartAll => "restarts with all containers of its pod",
            Self::Resized => "resize requires restart",
        }
    }
}

/// One container to stop.
#[derive(Clone, Debug, PartialEq)]
pub struct StopContainer {
    /// Which.
    pub id: ContainerId,
    /// Its name in the pod.
    pub name: String,
    /// Why.
    pub reason: StopReason,
    /// preStop hook, from the pod's spec or from the container's marks.
    pub pre_stop: Option<LifecycleHandler>,
    /// Waves stop one after another: 0 first (apps), then sidecars in reverse order.
    pub wave: u32,
}

/// One container to resize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResizeContainer {
    /// Which.
    pub id: ContainerId,
    /// Its name in the pod.
    pub name: String,
    /// What it has.
    pub from: Sizes,
    /// What it shall have.
    pub to: Sizes,
}

/// One thing a worker does. The worker carries it out and decides nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Asks the owner's admission hook whether the pod may start.
    AskAdmissionHook,
    /// Folders, cgroup and volumes of the pod.
    PreparePod,
    /// Stops containers side by side, in waves, all within `grace`, hooks included.
    StopContainers {
        /// Which.
        containers: Vec<StopContainer>,
        /// Time for hooks and SIGTERM together; the runtime kills after that.
        grace: Duration,
    },
    /// Stops a sandbox (and whatever still runs in it).
    StopSandbox(SandboxId),
    /// Makes a sandbox.
    RunSandbox {
        /// 0 for the first.
        attempt: u32,
    },
    /// Ensures the image, makes the container, starts it, runs its postStart hook.
    StartContainer {
        /// Init, sidecar, app, ephemeral.
        kind: ContainerKind,
        /// Its name.
        name: String,
        /// Restart count.
        attempt: u32,
        /// Whose processes an ephemeral container sees, if it names another container.
        target: Option<ContainerId>,
    },
    /// Gives running containers, and the pod's cgroup, the CPU and memory that the pod has now.
    ResizeContainers(Vec<ResizeContainer>),
    /// Removes a dead container with its log.
    RemoveContainer {
        /// Which.
        id: ContainerId,
        /// Its name in the pod.
        name: String,
        /// Its attempt, after which its log is named.
        attempt: u32,
    },
    /// Removes a stopped sandbox.
    RemoveSandbox(SandboxId),
    /// Takes the pod's volumes and cgroup away, once nothing of it runs.
    ReleasePod,
    /// Removes the pod's folder and logs: nothing of it shall remain.
    ForgetPod,
}

/// What a failed step means for the rest of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// The steps after it make no sense any more.
    Abort,
    /// The others go on.
    Continue,
}

/// A step with its reason.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedStep {
    /// What to do.
    pub step: Step,
    /// Why, for people.
    pub cause: String,
    /// What a failure means.
    pub on_failure: OnFailure,
}

/// What a pod's worker shall do.
#[derive(Clone, Debug)]
pub struct PodWork {
    /// Serial number of the work, unique in this run of the agent.
    pub id: u64,
    /// The pod.
    pub uid: PodUid,
    /// Its name.
    pub name: PodName,
    /// Its spec; for a pod known only from the runtime or a record, what is known of it.
    pub pod: Arc<Pod>,
    /// Steps in order.
    pub steps: Vec<PlannedStep>,
    /// The newest sandbox that the plan keeps, if any.
    pub sandbox: Option<SandboxRef>,
    /// Set by the loop when the work is overtaken.
    pub cancel: Cancel,
}

/// What a worker needs to know of a sandbox that is there already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxRef {
    /// Its id.
    pub id: SandboxId,
    /// Its attempt.
    pub attempt: u32,
    /// Pod addresses.
    pub ips: Vec<String>,
}

/// A waiting or failure reason as users know it from `kubectl get pods`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// CamelCase word: `ErrImagePull`, `CreateContainerConfigError`, …
    pub reason: String,
    /// The explanation.
    pub message: String,
}

/// How one step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepResult {
    /// Done.
    Done,
    /// Failed for this reason.
    Failed(Reason),
    /// The admission hook says that the pod shall not start, for this reason.
    Refused(Reason),
    /// Not tried: an earlier step failed or the work was cancelled.
    Skipped,
}

/// What a worker did with a plan.
#[derive(Clone, Debug)]
pub struct WorkReport {
    /// The work's serial number.
    pub id: u64,
    /// The pod.
    pub uid: PodUid,
    /// When the last step ended: only later observations count.
    pub finished_at: Moment,
    /// The steps and how each ended.
    pub results: Vec<(Step, StepResult)>,
    /// Containers whose image could not be had, with the moment when another try may pull it.
    pub image_waits: BTreeMap<String, Moment>,
    /// Time that went into getting images.
    pub pulled: Duration,
    /// Whether it was cut short by its cancel token.
    pub cancelled: bool,
}

/// Normal or Warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum EventType {
    /// News.
    Normal,
    /// Trouble.
    Warning,
}

/// Something that happened to a pod, in the words of an API event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEvent {
    /// The pod.
    pub uid: PodUid,
    /// `spec.containers{web}` and the like; empty for the pod.
    pub field_path: String,
    /// Normal or Warning.
    pub event_type: EventType,
    /// CamelCase reason.
    pub reason: String,
    /// Sentence.
    pub message: String,
    /// When.
    pub at: UnixNanos,
}

/// What an API event speaks of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventObject {
    /// `Pod` or `Node`; both are of `v1`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Its namespace; empty for a node.
    pub namespace: String,
    /// Its uid; for a static pod its own and not its mirror's, for a node its name, as clients look for them.
    pub uid: String,
    /// `metadata.resourceVersion`; empty if there is none.
    pub resource_version: String,
    /// `spec.containers{web}` and the like; empty for the whole.
    pub field_path: String,
}

/// An event for the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldEvent {
    /// What it speaks of.
    pub object: EventObject,
    /// Normal or Warning.
    pub event_type: EventType,
    /// CamelCase reason.
    pub reason: String,
    /// Sentence.
    pub message: String,
    /// When.
    pub at: UnixNanos,
}

/// What a probe found, sent on change only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeVerdict {
    /// The pod.
    pub uid: PodUid,
    /// The container instance.
    pub container: ContainerId,
    /// Which probe.
    pub probe: ProbeKind,
    /// Success or failure.
    pub success: bool,
}

/// What the prober sends.
#[derive(Debug)]
pub enum FromProber {
    /// A probe changed its mind.
    Verdict(ProbeVerdict),
    /// News for people.
    Event(PodEvent),
}

/// Which probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeKind {
    /// Gates the others.
    Startup,
    /// Restarts the container.
    Liveness,
    /// Takes it out of service.
    Readiness,
}

impl ProbeKind {
    /// As events say it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

/// Where a pod is in its life, as far as others have to know: decisions are made on this, not on words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It has not begun: it waits for an elder of its name, or for the first look at the runtime.
    Waiting,
    /// It is kept running.
    Active,
    /// It is brought to rest; something of it may still run.
    Ending,
    /// Nothing of it runs and nothing ever will; its volumes and its cgroup are given back. The API may
    /// delete it for good.
    Over,
}

/// One pod as the node sees it, for the local socket, servers and reporters.
#[derive(Clone, Debug)]
pub struct PodView {
    /// Its uid.
    pub uid: PodUid,
    /// Its name.
    pub name: PodName,
    /// What should run; `None` for a pod that nobody asks for any more and of which no spec is known.
    pub pod: Option<Arc<Pod>>,
    /// The pod in its source's newest set, the API's word about its status included; `None` when no
    /// source has it any more.
    pub wanted: Option<Arc<Pod>>,
    /// Its status as the API would tell it.
    pub status: Arc<PodStatus>,
    /// Where in its life it is.
    pub life: Life,
    /// The word for its place in life: `Active`, `Terminating`, …
    pub stage: String,
    /// What the runtime has of it.
    pub runtime: Option<Arc<RuntimePod>>,
    /// The last plan, one line a step; empty when nothing is to be done.
    pub plan: Vec<String>,
    /// What it waits for, in one plain sentence.
    pub waits_for: String,
    /// Its newest events, oldest first.
    pub events: Vec<Arc<CountedEvent>>,
}

impl PodView {
    /// A pod of which nothing is known but its names: what tests fill in.
    pub fn named(uid: PodUid, name: PodName) -> Self {
        Self {
            uid,
            name,
            pod: None,
            wanted: None,
            status: Arc::default(),
            life: Life::Active,
            stage: "Active".to_owned(),
            runtime: None,
            plan: Vec::new(),
            waits_for: String::new(),
            events: Vec::new(),
        }
    }
}

/// An event with how often it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedEvent {
    /// The newest occurrence.
    pub event: PodEvent,
    /// Occurrences.
    pub count: u32,
    /// The first occurrence.
    pub first_at: UnixNanos,
}

/// The whole node at one turn of the sync loop.
#[derive(Clone, Debug, Default)]
pub struct NodeView {
    /// Node name.
    pub node: String,
    /// Pods by uid.
    pub pods: BTreeMap<PodUid, Arc<PodView>>,
    /// The API server's pictures of static pods.
    pub mirrors: Arc<BTreeMap<PodName, Arc<Pod>>>,
    /// Whether the runtime has been listed: only then statuses are more than what was told before.
    pub is_listed: bool,
    /// What the sources could not use.
    pub problems: Vec<SourceProblem>,
    /// Sources that have not spoken yet.
    pub silent_sources: Vec<&'static str>,
    /// Why the runtime does not answer; empty when it does.
    pub runtime_down: String,
    /// Whether the machine shuts down.
    pub is_shutting_down: bool,
}

/// What PLEG sends.
#[derive(Debug)]
pub enum FromPleg {
    /// It looked.
    Observed(Observation),
    /// The runtime came or went.
    Runtime(RuntimeHealth),
}

/// What pod workers send.
#[derive(Debug)]
pub enum FromWorker {
    /// A work ended.
    Report(WorkReport),
    /// News for people.
    Event(PodEvent),
}

/// Something that volumes of these pods show has changed: they are filled again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// The pods.
    pub pods: Vec<PodUid>,
    /// What changed, for people.
    pub cause: String,
}

/// What the Node object says by which pods are let onto the node; sent when it changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeMarks {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
}

/// What is found out about the node as a whole and decides about pods.
#[derive(Clone, Debug, PartialEq)]
pub enum FromNode {
    /// The Node object's marks changed.
    Marks(NodeMarks),
    /// What the node is short of changed.
    Pressures(Pressures),
}

/// What the store is told.
#[derive(Debug)]
pub enum ToStore {
    /// Keep this.
    Put(Arc<PodRecord>),
    /// Forget this.
    Remove(PodUid),
}

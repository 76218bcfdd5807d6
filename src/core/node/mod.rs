//! The node: every wanted and every running pod, what is remembered of it, and what happens next.
//!
//! Layer L1, pure; owned by the sync loop, which feeds [`Node::step`] with what happened and carries
//! out the [`Effect`]s. One pod has one entry with one stage and at most one work in flight; the newest
//! wish wins and cancels what it overtakes. A pod is planned only on an observation that began after its
//! last work ended, so nothing is ever decided on a view older than our own last action.
//!
//! While a source is silent or the runtime has not been listed, nothing unknown is touched.

mod admission;
mod deletion;
mod drive;
mod entry;
mod input;
mod remember;
mod resize;
mod shutdown;
mod tally;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::api::moment::{Moment, Now};
use crate::api::pod::ContainerKind;
use crate::api::pressure::Pressures;
use crate::api::record::PodRecord;
use crate::api::runtime::RuntimePod;
use crate::api::{PodName, PodUid};
use crate::core::backoff::BackoffLimits;
use crate::core::mux::Mux;
use crate::core::resize::ResizeAsked;
use crate::core::status::RestartAll;
use crate::msg::{
    Look, NodeMarks, NodeView, Observation, PodEvent, PodView, PodWork, ProbeVerdict, Refresh, RuntimeHealth,
    SourceKind, SourceUpdate, ToldEvent, WorkReport,
};
use crate::util::order::Gather;

use entry::Entry;

/// Whether anybody probes containers. This is the one place that decides what a probe in a pod's spec
/// means for sidecar gates and readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probes {
    /// Nobody does (in tests of other things): a container counts as started and ready once it runs, and is never
    /// condemned.
    NotRun,
    /// A prober does, and sends [`Input::Verdict`].
    Run,
}

/// What does not change while the agent runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the node.
    pub node: String,
    /// Sources that have to speak before anything unknown is deleted.
    pub sources: Vec<SourceKind>,
    /// Crash back-off limits.
    pub backoff: BackoffLimits,
    /// Dead instances kept per container.
    pub keep_dead: usize,
    /// Whether a container's rule may restart all containers of its pod.
    pub restart_all: RestartAll,
    /// This boot, by which recorded times are known.
    pub boot_id: String,
    /// The scheme of `containerID`.
    pub runtime_name: String,
    /// Node addresses.
    pub host_ips: Vec<String>,
    /// Whether the runtime's default handler mounts read-only recursively.
    pub recursive_read_only: bool,
    /// Whether containers are probed.
    pub probes: Probes,
    /// What admission checks against.
    pub admission: super::admit::Limits,
    /// Whether resources of a pod as a whole may change while it runs.
    pub resize_pod_level: bool,
    /// Whether a program has the last word about pods that may start.
    pub admission_hook: bool,
    /// In which order and how fast pods end when the machine shuts down; empty for not at all.
    pub shutdown: Vec<super::shutdown::Period>,
}

/// Something that happened.
#[derive(Debug)]
pub enum Input {
    /// A source's full set.
    Source(SourceUpdate),
    /// PLEG looked.
    Observed(Observation),
    /// The runtime answers, or stopped answering.
    Runtime(RuntimeHealth),
    /// A worker ended.
    Report(WorkReport),
    /// A worker or the prober has news for people.
    Event(PodEvent),
    /// A probe changed its mind.
    Verdict(ProbeVerdict),
    /// What volumes of these pods show has changed.
    Refresh(Refresh),
    /// Folders, logs or cgroups of these pods are on this machine.
    Leftovers(Vec<PodUid>),
    /// The node's labels and taints are these now.
    Marks(NodeMarks),
    /// What the node is short of is this now.
    Pressures(Pressures),
    /// The machine begins to shut down (true), or goes on after all.
    Shutdown(bool),
    /// [`Node::next_deadline`] has come.
    Timer,
}

/// What the sync loop has to do about it.
#[derive(Debug)]
pub enum Effect {
    /// Hand to a worker.
    Work(PodWork),
    /// Ask PLEG to look at a pod.
    Inspect(PodUid, Look),
    /// Keep on disk.
    Record(Arc<PodRecord>),
    /// Remove from disk.
    Unrecord(PodUid),
    /// Tell the API server.
    Tell(ToldEvent),
    /// The pods have ended for the machine's shutdown, which may go on.
    ShutdownDone,
    /// Count it: for metrics.
    Count(Tally),
}

/// Something that is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tally {
    /// A pod was not admitted, for this reason.
    Rejected(String),
    /// A pod has to make room for a critical one.
    Preempted {
        /// The first resource that was short.
        short: String,
    },
    /// The source of a pod wants other CPU or memory for one of its containers.
    ResizeAsked(ResizeAsked),
    /// The runtime has a pod that nobody asked for.
    Orphaned,
    /// A pod that was not wanted any more is wanted again, under the same uid.
    Restarted {
        /// Whether it comes from a file or a URL.
        is_static: bool,
    },
    /// The first work on a pod that is new.
    Begun {
        /// How long after the agent saw it first.
        after: Duration,
        /// Its containers.
        containers: usize,
    },
    /// All containers of a pod that is new run, or have run.
    Started {
        /// How long after the agent saw it first.
        seen: Duration,
        /// How long after it was created in the API; `None` for a pod that is not from there.
        created: Option<Duration>,
        /// Time that went into pulling its images.
        pulled: Duration,
    },
    /// A container has ended.
    Ended {
        /// Init, sidecar, app, ephemeral.
        kind: ContainerKind,
        /// Exit code.
        code: i32,
        /// The runtime's word.
        reason: String,
    },
}

/// A pod as the runtime has it, and how old the view is.
#[derive(Clone, Debug)]
struct Seen {
    pod: Arc<RuntimePod>,
    /// When the newest look at it began.
    at: Moment,
}

/// The node's state.
#[derive(Debug)]
pub struct Node {
    settings: Settings,
    mux: Mux,
    pods: BTreeMap<PodUid, Entry>,
    runtime: BTreeMap<PodUid, Seen>,
    /// When the newest full list began; `None` until the first.
    listed_at: Option<Moment>,
    /// Pods that the newest full list could not inspect: it says nothing about them.
    uncertain: BTreeSet<PodUid>,
    /// Pods that the first full list named and no look has reached yet: not even their names are known.
    /// A look ends within PLEG's limit, well or badly, so this holds nobody up for long.
    unseen: BTreeSet<PodUid>,
    /// Pods that the runtime has and that could not be looked at since this agent began, by what the list
    /// calls them: none of the same name begins beside them.
    strangers: BTreeMap<PodUid, PodName>,
    /// Records of pods that have no entry yet.
    records: BTreeMap<PodUid, PodRecord>,
    /// Pods with folders or cgroups that have no entry yet.
    leftovers: BTreeSet<PodUid>,
    /// Pods that may be in [`entry::Stage::MakingRoom`]; those that are in it are all among them.
    making_room: BTreeSet<PodUid>,
    health: RuntimeHealth,
    shutdown: shutdown::Shutdown,
    next_work: u64,
    effects: Vec<Effect>,
    view: Arc<NodeView>,
    /// The snapshot before: the next one is made of it, if nobody reads it then.
    spare: Arc<NodeView>,
    /// Pods of which it has not the newest part.
    behind: BTreeSet<PodUid>,
    /// Pods whose part of the view is old.
    stale: BTreeSet<PodUid>,
    /// Whether the rest of the view is old.
    stale_node: bool,
}

impl Node {
    /// A node that remembers `records`.
    pub fn new(settings: Settings, records: Vec<PodRecord>) -> Self {
        let mux = Mux::new(&settings.sources);
        Self {
            mux,
            pods: BTreeMap::new(),
            runtime: BTreeMap::new(),
            listed_at: None,
            uncertain: BTreeSet::new(),
            unseen: BTreeSet::new(),
            strangers: BTreeMap::new(),
            records: records.into_iter().map(|r| (r.uid.clone(), r)).gather(),
            leftovers: BTreeSet::new(),
            making_room: BTreeSet::new(),
            health: RuntimeHealth::Up,
            shutdown: shutdown::Shutdown::None,
            next_work: 1,
            effects: Vec::new(),
            view: Arc::new(NodeView { node: settings.node.clone(), ..NodeView::default() }),
            spare: Arc::new(NodeView { node: settings.node.clone(), ..NodeView::default() }),
            behind: BTreeSet::new(),
            stale: BTreeSet::new(),
            stale_node: true,
            settings,
        }
    }

    /// Takes one input and tells what to do.
    pub fn step(&mut self, now: Now, input: Input) -> Vec<Effect> {
        self.take(now, input);
        self.advance_shutdown(now);
        std::mem::take(&mut self.effects)
    }

    /// When [`Input::Timer`] is due.
    pub fn next_deadline(&self) -> Option<Moment> {
        self.pods.values().filter_map(Entry::deadline).chain(self.shutdown_deadline()).min()
    }

    /// The newest snapshot; the same `Arc` as before while nothing changed.
    pub fn view(&mut self, now: Now) -> Arc<NodeView> {
        self.refresh_view(now);
        Arc::clone(&self.view)
    }

    /// How many works are in flight.
    pub fn works_in_flight(&self) -> usize {
        self.pods.values().filter(|e| e.is_busy()).count()
    }

    /// Whether it is known what every source wants and what the runtime has.
    fn knows_all(&self) -> bool {
        self.mux.all_ready() && self.listed_at.is_some()
    }

    /// When the view of a pod began that is the newest there is; for a pod that the runtime does not
    /// list, the newest full list.
    fn seen_at(&self, uid: &PodUid) -> Option<Moment> {
        if let Some(seen) = self.runtime.get(uid) {
            return Some(seen.at);
        }
        let listed_at = self.listed_at.filter(|_| !self.uncertain.contains(uid));
        self.pods.get(uid).and_then(|e| e.absent_at).max(listed_at)
    }

    fn observed(&self, uid: &PodUid) -> Option<Arc<RuntimePod>> {
        self.runtime.get(uid).map(|seen| Arc::clone(&seen.pod))
    }

    /// How long a pod waits after a work that failed: 1 s, doubling to 10 s, for ever.
    fn retry_delay(failures: u32) -> Duration {
        Duration::from_secs(1 << failures.saturating_sub(1).min(4)).min(Duration::from_secs(10))
    }

    /// The view of one pod, for tests and for the answer to a query.
    pub fn pod_view(&mut self, now: Now, uid: &PodUid) -> Option<Arc<PodView>> {
        self.view(now).pods.get(uid).cloned()
    }
}

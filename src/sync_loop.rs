//! The sync loop: one thread, one `select!`, one owner of every decision's state.
//!
//! Layer L3, thread `sync`. Owns the [`Node`]; turns what the channels bring into one closed [`Event`],
//! feeds it to the node and sends out the effects. It never blocks: no I/O, no lock that I/O holds, and
//! it only ever tries to send; what a full channel does not take stays in its [`Lane`] until the next
//! turn. A turn that takes long is told in the log.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError, at, never, select};

use crate::api::PodUid;
use crate::core::node::{Effect, Input, Node, Tally};
use crate::core::resize::ResizeAsked;
use crate::msg::{
    FromNode, FromPleg, FromProber, FromWorker, NodeView, PlegCommand, PodWork, Refresh, SourceUpdate, ToStore,
    ToldEvent,
};
use crate::util::clock;
use crate::util::metrics::{kubelet, own};
use crate::util::snapshot::Snapshot;

/// Turns above this are told in the log.
const LONG_TURN: Duration = Duration::from_millis(100);

/// How soon a full channel is tried again.
const RETRY_FULL: Duration = Duration::from_millis(20);

/// Everything that can wake the loop.
#[derive(Debug)]
enum Event {
    Source(SourceUpdate),
    Pleg(FromPleg),
    Worker(FromWorker),
    Prober(FromProber),
    Refresh(Refresh),
    Leftovers(Vec<PodUid>),
    Node(FromNode),
    Shutdown(bool),
    Ping(Ping),
    Deadline,
    Stop,
}

/// Asks the loop to answer, which proves that it turns.
#[derive(Debug)]
pub struct Ping(pub Sender<()>);

/// The receiving ends that the loop owns.
#[derive(Debug)]
pub struct Inbox {
    /// Full sets of the sources.
    pub sources: Receiver<SourceUpdate>,
    /// PLEG.
    pub pleg: Receiver<FromPleg>,
    /// Pod workers.
    pub workers: Receiver<FromWorker>,
    /// Probes.
    pub prober: Receiver<FromProber>,
    /// Pods whose volumes show something that changed.
    pub refreshes: Receiver<Refresh>,
    /// Pods with folders, logs or cgroups on this machine.
    pub leftovers: Receiver<Vec<PodUid>>,
    /// The Node object's labels and taints, and what the node is short of.
    pub node: Receiver<FromNode>,
    /// The machine begins to shut down (true), or goes on after all.
    pub shutdowns: Receiver<bool>,
    /// Health checks.
    pub pings: Receiver<Ping>,
    /// A message or a disconnect ends the loop.
    pub stop: Receiver<()>,
}

/// The sending ends that the loop owns.
pub struct Outbox {
    work: Lane<PodWork>,
    pleg: Lane<PlegCommand>,
    /// Takes a record without ever waiting for the disk.
    store: Box<dyn FnMut(ToStore) + Send>,
    /// Takes an event without ever waiting for the API server.
    events: Box<dyn FnMut(ToldEvent) + Send>,
    /// Lets the machine's shutdown go on.
    shutdown_done: Box<dyn FnMut() + Send>,
    /// Rung when the view has changed, for threads that follow it. A bell that rings already is not rung again.
    bells: Vec<Sender<()>>,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").field("held", &self.held()).finish_non_exhaustive()
    }
}

impl Outbox {
    /// Joins the channels of workers, PLEG and store.
    pub fn new(work: Sender<PodWork>, pleg: Sender<PlegCommand>, store: impl FnMut(ToStore) + Send + 'static) -> Self {
        Self {
            work: Lane::new(work),
            pleg: Lane::new(pleg),
            store: Box::new(store),
            events: Box::new(drop),
            shutdown_done: Box::new(|| {}),
            bells: Vec::new(),
        }
    }

    /// Joins the reporter of events, which shall never make the loop wait.
    #[must_use]
    pub fn with_events(self, events: impl FnMut(ToldEvent) + Send + 'static) -> Self {
        Self { events: Box::new(events), ..self }
    }

    /// Joins whoever holds the machine's shutdown up until the pods have ended. Must not wait.
    #[must_use]
    pub fn with_shutdown_done(self, done: impl FnMut() + Send + 'static) -> Self {
        Self { shutdown_done: Box::new(done), ..self }
    }

    /// Joins a bell, a channel with room for one, that rings whenever the view has changed.
    #[must_use]
    pub fn with_bell(mut self, bell: Sender<()>) -> Self {
        self.bells.push(bell);
        self
    }

    fn flush(&mut self) {
        self.work.flush();
        self.pleg.flush();
    }

    fn held(&self) -> usize {
        self.work.held.len() + self.pleg.held.len()
    }
}

/// A channel that is never waited for. What it can't take now is held here, in order; the node sends at
/// most one work, one question and one record per pod at a time, which bounds what is held.
#[derive(Debug)]
struct Lane<T> {
    sender: Sender<T>,
    held: VecDeque<T>,
}

impl<T> Lane<T> {
    fn new(sender: Sender<T>) -> Self {
        Self { sender, held: VecDeque::new() }
    }

    fn send(&mut self, message: T) {
        self.held.push_back(message);
        self.flush();
    }

    fn flush(&mut self) {
        while let Some(message) = self.held.pop_front() {
            match self.sender.try_send(message) {
                Ok(()) => {}
                Err(TrySendError::Full(message)) => {
                    self.held.push_front(message);
                    return;
                }
                // The receiver has ended: so does the process, and nothing is owed to it any more.
                Err(TrySendError::Disconnected(_)) => self.held.clear(),
            }
        }
    }
}

/// The loop with all it owns.
#[derive(Debug)]
pub struct SyncLoop {
    node: Node,
    inbox: Inbox,
    outbox: Outbox,
    view: Arc<Snapshot<NodeView>>,
}

impl SyncLoop {
    /// Puts the loop together.
    pub fn new(node: Node, inbox: Inbox, outbox: Outbox, view: Arc<Snapshot<NodeView>>) -> Self {
        Self { node, inbox, outbox, view }
    }

    /// Turns until told to stop.
    pub fn run(mut self) {
        self.publish();
        loop {
            match self.next_event() {
                Event::Stop => break,
                event => self.turn(event),
            }
        }
    }

    /// The one `select!`: waits for the next event. Only this function knows the channels.
    fn next_event(&mut self) -> Event {
        let retry = (self.outbox.held() > 0).then(|| Instant::now() + RETRY_FULL);
        let deadline = self.node.next_deadline().map(clock::instant_of);
        let timer = match [retry, deadline].into_iter().flatten().min() {
            Some(instant) => at(instant),
            None => never(),
        };
        let inbox = &mut self.inbox;
        loop {
            select! {
                recv(inbox.stop) -> _ => return Event::Stop,
                recv(inbox.sources) -> got => match got {
                    Ok(update) => return Event::Source(update),
                    Err(_) => inbox.sources = never(),
                },
                recv(inbox.pleg) -> got => match got {
                    Ok(message) => return Event::Pleg(message),
                    Err(_) => inbox.pleg = never(),
                },
                recv(inbox.workers) -> got => match got {
                    Ok(message) => return Event::Worker(message),
                    Err(_) => inbox.workers = never(),
                },
                recv(inbox.prober) -> got => match got {
                    Ok(message) => return Event::Prober(message),
                    Err(_) => inbox.prober = never(),
                },
                recv(inbox.refreshes) -> got => match got {
                    Ok(refresh) => return Event::Refresh(refresh),
                    Err(_) => inbox.refreshes = never(),
                },
                recv(inbox.leftovers) -> got => match got {
                    Ok(uids) => return Event::Leftovers(uids),
                    Err(_) => inbox.leftovers = never(),
                },
                recv(inbox.node) -> got => match got {
                    Ok(news) => return Event::Node(news),
                    Err(_) => inbox.node = never(),
                },
                recv(inbox.shutdowns) -> got => match got {
                    Ok(begins) => return Event::Shutdown(begins),
                    Err(_) => inbox.shutdowns = never(),
                },
                recv(inbox.pings) -> got => match got {
                    Ok(ping) => return Event::Ping(ping),
                    Err(_) => inbox.pings = never(),
                },
                recv(timer) -> _ => return Event::Deadline,
            }
        }
    }

    fn turn(&mut self, event: Event) {
        let started = Instant::now();
        let what = event.name();
        self.outbox.flush();
        self.handle(event);
        self.publish();
        let took = started.elapsed();
        own::SYNC_TURNS.inc();
        let held = self.outbox.held();
        own::SYNC_HELD.set(count(held));
        own::SYNC_FULL.add(u64::from(held > 0));
        own::SYNC_WORKS.set(count(self.node.works_in_flight()));
        if took > LONG_TURN {
            own::SYNC_LONG_TURNS.inc();
            log::warn!("the sync loop took {} ms over one {what}", took.as_millis());
        }
    }

    fn handle(&mut self, event: Event) {
        let now = clock::now();
        let input = match event {
            Event::Source(update) => Input::Source(update),
            Event::Pleg(FromPleg::Observed(observation)) => Input::Observed(observation),
            Event::Pleg(FromPleg::Runtime(health)) => Input::Runtime(health),
            Event::Worker(FromWorker::Report(report)) => Input::Report(report),
            Event::Worker(FromWorker::Event(event)) => Input::Event(event),
            Event::Prober(FromProber::Verdict(verdict)) => Input::Verdict(verdict),
            Event::Prober(FromProber::Event(event)) => Input::Event(event),
            Event::Refresh(refresh) => Input::Refresh(refresh),
            Event::Leftovers(uids) => Input::Leftovers(uids),
            Event::Node(FromNode::Marks(marks)) => Input::Marks(marks),
            Event::Node(FromNode::Pressures(pressures)) => Input::Pressures(pressures),
            Event::Shutdown(begins) => Input::Shutdown(begins),
            Event::Deadline => Input::Timer,
            Event::Ping(Ping(reply)) => {
                // Whoever asked may have given up waiting.
                let _gone = reply.try_send(());
                return;
            }
            Event::Stop => return,
        };
        for effect in self.node.step(now, input) {
            match effect {
                Effect::Work(work) => self.outbox.work.send(work),
                Effect::Inspect(uid, look) => self.outbox.pleg.send(PlegCommand::Inspect(uid, look)),
                Effect::Record(record) => (self.outbox.store)(ToStore::Put(record)),
                Effect::Unrecord(uid) => (self.outbox.store)(ToStore::Remove(uid)),
                Effect::Tell(told) => (self.outbox.events)(told),
                Effect::Count(tally) => tally_up(&tally),
                Effect::ShutdownDone => (self.outbox.shutdown_done)(),
            }
        }
    }

    fn publish(&mut self) {
        let view = self.node.view(clock::now());
        if Arc::ptr_eq(&view, &self.view.get()) {
            return;
        }
        self.view.set(view);
        for bell in &self.outbox.bells {
            // It rings already, or nobody listens any more.
            let _rings = bell.try_send(());
        }
    }
}

/// A number of things as a gauge has it.
#[expect(clippy::cast_precision_loss)]
fn count(things: usize) -> f64 {
    things as f64
}

/// Counts what the node has decided or found out.
fn tally_up(tally: &Tally) {
    match tally {
        Tally::Rejected(reason) => kubelet::ADMISSION_REJECTIONS.inc(&[reason]),
        Tally::Preempted { short } => kubelet::PREEMPTIONS.inc(&[short]),
        Tally::ResizeAsked(ResizeAsked { resource, requirement, operation }) => {
            kubelet::CONTAINER_REQUESTED_RESIZES.inc(&[resource, requirement, operation]);
        }
        Tally::Orphaned => kubelet::ORPHANED_RUNTIME_PODS.inc(),
        Tally::Restarted { is_static } => kubelet::RESTARTED_PODS.inc(&[if *is_static { "true" } else { "" }]),
        Tally::Begun { after, containers } => {
            kubelet::POD_WORKER_START.observe(*after);
            kubelet::CONTAINERS_PER_POD.observe_value(count(*containers));
        }
        Tally::Started { seen, created, pulled } => {
            kubelet::POD_START.observe(*seen);
            if let Some(created) = created {
                kubelet::POD_START_TOTAL.observe(*created);
                kubelet::POD_START_SLI.observe(created.saturating_sub(*pulled));
            }
        }
        Tally::Ended { kind, code, reason } => {
            kubelet::TERMINATED_CONTAINERS.inc(&[kind.metric_label(), &code.to_string(), reason]);
        }
    }
}

impl Event {
    fn name(&self) -> &'static str {
        match self {
            Self::Source(_) => "source update",
            Self::Pleg(_) => "observation",
            Self::Worker(_) => "work report",
            Self::Prober(_) => "message of the prober",
            Self::Refresh(_) => "change of what volumes show",
            Self::Leftovers(_) => "list of leftovers",
            Self::Node(_) => "change of the node",
            Self::Shutdown(_) => "word of the machine's shutdown",
            Self::Ping(_) => "ping",
            Self::Deadline => "deadline",
            Self::Stop => "stop",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_keeps_order_and_never_blocks() {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        let mut lane = Lane::new(sender);
        for n in 0..4 {
            lane.send(n);
        }
        assert_eq!(lane.held, [1, 2, 3]);
        let mut got = Vec::new();
        while let Ok(n) = receiver.try_recv() {
            got.push(n);
            lane.flush();
        }
        assert_eq!(got, [0, 1, 2, 3]);
    }

    #[test]
    fn a_lane_without_receiver_holds_nothing() {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        drop(receiver);
        let mut lane = Lane::new(sender);
        lane.send(1);
        assert!(lane.held.is_empty());
    }
}

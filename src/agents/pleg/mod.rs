//! PLEG, the pod lifecycle event generator: looks at the runtime and tells the sync loop what is there.
//!
//! Thread `pleg` owns the last view of every pod. It relists each second where the runtime has no
//! container events, and rarely, as a repair, where it has; it looks at single pods when the sync loop
//! asks or an event hints. Looking closely at a pod runs on a short-lived `inspect` thread, a bounded
//! number at once, so that one pod that hangs the runtime delays no other. A thread `cri-events` reads
//! the runtime's stream. PLEG decides nothing about pods, and its health stamp moves on success only.

mod events;
mod inspect;
mod last_words;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, at, bounded, never, select};

use crate::api::moment::Moment;
use crate::api::runtime::{ContainerState, RuntimePod, SandboxState};
use crate::api::runtime_info::{Life, PodGlimpse};
use crate::api::{PodName, PodUid};
use crate::cri::Client;
use crate::msg::{FromPleg, Look as Closeness, Observation, PlegCommand, RuntimeHealth, Scope, UnknownPod};
use crate::util::cancel::Cancel;
use crate::util::clock;
use crate::util::heartbeat::Heartbeat;
use crate::util::metrics::kubelet;
use crate::util::order::{self, Gather};
use crate::util::thread::{JoinHandle, OwnerThread, StackSize, spawn};

use events::{EventReader, FromReader};
use inspect::Inspected;

/// Looks at single pods that run side by side.
const INSPECTIONS_AT_ONCE: usize = 8;

/// A look at one pod that takes longer is given up and tried again.
const INSPECTION_LIMIT: Duration = Duration::from_secs(10);

/// How long an event may be on its way after a look found a container gone: only what somebody else removed is waited for.
const EVENT_DELAY: Duration = Duration::from_millis(250);

/// Ends of one pod's containers that are kept for the next look; of more than these, the oldest are forgotten.
const ENDS_OF_A_POD: usize = 16;

/// Relists that found nothing new are told to the loop this often: a question that got lost is asked again then.
const QUIET_RELISTS: u32 = 10;

/// How PLEG works.
#[derive(Clone, Debug)]
pub struct PlegSettings {
    /// Relist period without container events.
    pub relist: Duration,
    /// Relist period with them: the repair of lost events.
    pub relist_with_events: Duration,
}

impl Default for PlegSettings {
    fn default() -> Self {
        Self { relist: Duration::from_secs(1), relist_with_events: Duration::from_secs(60) }
    }
}

/// The running PLEG. Dropping it ends its threads.
#[derive(Debug)]
pub struct PlegHandle {
    stop: Cancel,
    /// Ends the owner's `select!`; dropped before the thread is joined.
    _stop: Sender<()>,
    _thread: OwnerThread,
}

impl PlegHandle {
    /// Starts PLEG.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn start(
        client: Client,
        settings: PlegSettings,
        commands: Receiver<PlegCommand>,
        to_loop: Sender<FromPleg>,
        relisted: Arc<Heartbeat>,
    ) -> io::Result<Self> {
        let stop = Cancel::new();
        let (stop_sender, stopped) = bounded(0);
        let token = stop.clone();
        let thread = OwnerThread::spawn("pleg", StackSize::Normal, move || {
            let (results_sender, results) = bounded(INSPECTIONS_AT_ONCE);
            let reader = EventReader::start(client.clone(), token.clone());
            let (hints, reader) = match reader {
                Ok((hints, reader)) => (hints, Some(reader)),
                Err(error) => {
                    log::warn!("no thread for container events, relisting instead: {error}");
                    (never(), None)
                }
            };
            let actor = PlegActor {
                client,
                settings,
                to_loop,
                relisted,
                stop: token,
                views: BTreeMap::new(),
                names: BTreeMap::new(),
                looks: BTreeMap::new(),
                queue: VecDeque::new(),
                changed: BTreeSet::new(),
                missing: BTreeMap::new(),
                ends: BTreeMap::new(),
                results_sender,
                results,
                hints,
                events: Events::Unknown,
                health: None,
                told: Told::Nothing,
                relist_at: clock::moment(),
                listed_at: None,
                _reader: reader,
            };
            actor.run(&commands, &stopped);
        })?;
        Ok(Self { stop, _stop: stop_sender, _thread: thread })
    }
}

impl Drop for PlegHandle {
    fn drop(&mut self) {
        self.stop.cancel();
        // The owner's `select!` sees the disconnect; the fields are dropped in order after this.
        let (gone, _) = bounded(0);
        self._stop = gone;
    }
}

/// What is known of the runtime's event stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Events {
    /// Not yet.
    Unknown,
    /// It flows.
    Flowing,
    /// It broke and is opened again.
    Broken,
    /// The runtime has none.
    Unsupported,
}

/// The last view of a pod.
#[derive(Debug)]
struct View {
    fingerprint: u64,
    pod: Arc<RuntimePod>,
}

/// What the loop was last told of a relist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// Nothing yet.
    Nothing,
    /// Something new.
    News,
    /// That there is nothing new; this many relists since found the same.
    Quiet(u32),
}

impl Told {
    /// Whether the loop has to hear of a relist that found news or none, and what it has been told then.
    fn next(self, has_news: bool) -> (bool, Told) {
        match self {
            _ if has_news => (true, Told::News),
            // The end of the news is news.
            Told::Nothing | Told::News => (true, Told::Quiet(0)),
            Told::Quiet(relists) if relists + 1 < QUIET_RELISTS => (false, Told::Quiet(relists + 1)),
            Told::Quiet(_) => (true, Told::Quiet(0)),
        }
    }
}

/// How far the wait for the event of a container's end has come that a look found gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// The event may come until then; whatever is looked at meanwhile is not told.
    Until(Moment),
    /// It did not come: the next look is told as it is.
    Over,
}

impl Missing {
    /// What a look that misses a container makes of the wait; `None`: it has lasted long enough.
    fn after_look(before: Option<Missing>, now: Moment) -> Option<Missing> {
        match before {
            None => Some(Missing::Until(now + EVENT_DELAY)),
            Some(Missing::Until(until)) => (now < until).then_some(Missing::Until(until)),
            Some(Missing::Over) => None,
        }
    }
}

/// A look at a pod that is under way.
#[derive(Debug)]
struct Look {
    since: Moment,
    cancel: Cancel,
    /// Somebody asked after it began: it is followed by another.
    again: bool,
    _thread: JoinHandle<()>,
}

struct PlegActor {
    client: Client,
    settings: PlegSettings,
    to_loop: Sender<FromPleg>,
    relisted: Arc<Heartbeat>,
    stop: Cancel,
    views: BTreeMap<PodUid, View>,
    /// What the newest list calls the pods that no look has reached yet.
    names: BTreeMap<PodUid, PodName>,
    looks: BTreeMap<PodUid, Look>,
    /// Pods of which the next look reads anew what runs.
    changed: BTreeSet<PodUid>,
    /// Pods of which a look missed a container that nobody has told the end of.
    missing: BTreeMap<PodUid, Missing>,
    /// Ends that events have told and no look has taken up yet.
    ends: BTreeMap<PodUid, Vec<RuntimePod>>,
    /// Pods that wait for a free look; each at most once.
    queue: VecDeque<PodUid>,
    results_sender: Sender<Inspected>,
    results: Receiver<Inspected>,
    hints: Receiver<FromReader>,
    events: Events,
    /// What was told last.
    health: Option<RuntimeHealth>,
    told: Told,
    relist_at: Moment,
    /// When the last list began.
    listed_at: Option<Moment>,
    _reader: Option<JoinHandle<()>>,
}

impl PlegActor {
    fn run(mut self, commands: &Receiver<PlegCommand>, stopped: &Receiver<()>) {
        while !self.stop.is_cancelled() {
            let now = clock::moment();
            if now >= self.relist_at {
                self.relist();
                continue;
            }
            let timer = at(clock::instant_of(self.next_deadline()));
            select! {
                recv(stopped) -> _ => break,
                recv(commands) -> got => match got {
                    Ok(PlegCommand::Inspect(uid, look)) => {
                        if look == Closeness::AtAll {
                            self.changed.insert(uid.clone());
                        }
                        self.look(uid);
                    }
                    Ok(PlegCommand::Relist) => self.relist_at = now,
                    // The sync loop has ended, and the agent with it.
                    Err(_) => break,
                },
                recv(self.results) -> got => if let Ok(inspected) = got { self.take(inspected) },
                recv(self.hints) -> got => match got {
                    Ok(hint) => self.hint(hint),
                    Err(_) => self.hints = never(),
                },
                recv(timer) -> _ => {
                    self.give_up_slow_looks();
                    self.give_up_late_events();
                }
            }
        }
        for look in self.looks.values() {
            look.cancel.cancel();
        }
        // Looks that end now find room for their results, so that their threads can be joined.
        let looks = self.looks.len();
        for _ in 0..looks {
            if self.results.recv_timeout(INSPECTION_LIMIT).is_err() {
                break;
            }
        }
    }

    fn next_deadline(&self) -> Moment {
        let looks = self.looks.values().map(|look| look.since + INSPECTION_LIMIT);
        let events = self.missing.values().filter_map(|missing| match missing {
            Missing::Until(until) => Some(*until),
            Missing::Over => None,
        });
        looks.chain(events).fold(self.relist_at, Moment::min)
    }

    fn hint(&mut self, hint: FromReader) {
        match hint {
            FromReader::Changed(uid, ended) => {
                self.keep_ends(&uid, ended.map(|pod| *pod).into_iter().collect());
                self.look(uid);
            }
            FromReader::Something => self.relist_at = clock::moment(),
            FromReader::Flowing => {
                kubelet::EVENT_STREAM_SUCCESSES.inc();
                self.events = Events::Flowing;
                log::info!(
                    "container events flow; relisting every {} s as their repair",
                    self.settings.relist_with_events.as_secs()
                );
                self.relist_at = clock::moment();
            }
            FromReader::Broken(why) => {
                kubelet::EVENT_STREAM_ERRORS.inc();
                if self.events == Events::Flowing {
                    log::warn!("container events broke off, relisting until they are back: {why}");
                }
                self.events = Events::Broken;
                self.relist_at = clock::moment();
            }
            FromReader::Unsupported => {
                log::info!(
                    "the runtime has no container events; relisting every {} ms",
                    self.settings.relist.as_millis()
                );
                self.events = Events::Unsupported;
            }
        }
    }

    fn keep_ends(&mut self, uid: &PodUid, ends: Vec<RuntimePod>) {
        if !ends.is_empty() {
            let kept = self.ends.entry(uid.clone()).or_default();
            kept.extend(ends);
            kept.drain(..kept.len().saturating_sub(ENDS_OF_A_POD));
        }
    }

    fn period(&self) -> Duration {
        match self.events {
            Events::Flowing => self.settings.relist_with_events,
            Events::Unknown | Events::Broken | Events::Unsupported => self.settings.relist,
        }
    }

    fn relist(&mut self) {
        let started_at = clock::moment();
        if let Some(before) = self.listed_at.replace(started_at) {
            kubelet::PLEG_INTERVAL.observe(started_at.since(before));
        }
        let listed = self.client.glimpse(&self.stop);
        let ended_at = clock::moment();
        kubelet::PLEG_RELIST.observe(ended_at.since(started_at));
        self.relist_at = ended_at + self.period();
        let pods = match listed {
            Ok(pods) => pods,
            Err(error) if error.is_cancelled() => return,
            Err(error) => {
                self.relist_at = ended_at + self.settings.relist;
                return self.tell_health(RuntimeHealth::Down(error.to_string()));
            }
        };
        self.relisted.beat(ended_at);
        kubelet::PLEG_LAST_SEEN.set(Duration::from_nanos(u64::try_from(clock::wall()).unwrap_or(0)).as_secs_f64());
        self.tell_health(RuntimeHealth::Up);
        self.names.clear();
        let listed = pods.into_iter().map(|pod| {
            let fingerprint = fingerprint_of_glimpse(&pod);
            if let Some(name) = pod.name.filter(|_| !self.views.contains_key(&pod.uid)) {
                self.names.insert(pod.uid.clone(), name);
            }
            (pod.uid, fingerprint)
        });
        let listed: BTreeMap<PodUid, u64> = listed.gather();
        let gone: Vec<PodUid> = self.views.keys().filter(|uid| !listed.contains_key(*uid)).cloned().collect();
        let is_open = |uid: &PodUid| self.looks.contains_key(uid) || self.missing.contains_key(uid);
        let gone: Vec<PodUid> = gone.into_iter().filter(|uid| !is_open(uid)).collect();
        for uid in &gone {
            self.views.remove(uid);
        }
        let changed: Vec<PodUid> = listed
            .into_iter()
            .filter(|(uid, fingerprint)| self.views.get(uid).is_none_or(|v| v.fingerprint != *fingerprint))
            .map(|(uid, _)| uid)
            .collect();
        for uid in &changed {
            self.look(uid.clone());
        }
        // Those that found no thread before.
        self.start_looks();
        let looked_at = self.looks.keys().chain(&self.queue).chain(self.missing.keys());
        let looked_at: BTreeSet<PodUid> = looked_at.cloned().collect();
        let unknown: Vec<_> = looked_at.into_iter().map(|uid| self.unknown(uid, String::new())).collect();
        let (tell, told) = self.told.next(!gone.is_empty() || !unknown.is_empty());
        self.told = told;
        if tell {
            self.send(Observation { started_at, scope: Scope::All, changed: Vec::new(), gone, unknown });
        }
    }

    /// Looks at one pod, now or when a look is free.
    fn look(&mut self, uid: PodUid) {
        if let Some(look) = self.looks.get_mut(&uid) {
            look.again = true;
            return;
        }
        if self.queue.contains(&uid) {
            return;
        }
        self.queue.push_back(uid);
        self.start_looks();
    }

    fn start_looks(&mut self) {
        while self.looks.len() < INSPECTIONS_AT_ONCE {
            let Some(uid) = self.queue.pop_front() else { return };
            let anew = self.changed.remove(&uid);
            let job = inspect::Job {
                client: self.client.clone(),
                uid: uid.clone(),
                anew,
                ends: self.ends.remove(&uid).unwrap_or_default(),
                last: self.views.get(&uid).map(|view| Arc::clone(&view.pod)),
                cancel: Cancel::new(),
                results: self.results_sender.clone(),
            };
            let (cancel, ends) = (job.cancel.clone(), job.ends.clone());
            match spawn("inspect", StackSize::Small, move || job.run()) {
                Ok(thread) => {
                    let look = Look { since: clock::moment(), cancel, again: false, _thread: thread };
                    self.looks.insert(uid, look);
                }
                Err(error) => {
                    log::warn!("no thread to look at pod {uid}, will try at the next relist: {error}");
                    self.changed.extend(anew.then(|| uid.clone()));
                    self.keep_ends(&uid, ends);
                    self.queue.push_front(uid);
                    return;
                }
            }
        }
    }

    fn give_up_slow_looks(&mut self) {
        let now = clock::moment();
        for look in self.looks.values_mut().filter(|look| now.since(look.since) >= INSPECTION_LIMIT) {
            look.cancel.cancel();
            look.since = now;
        }
    }

    /// Looks a last time at pods of which an event did not come in time.
    fn give_up_late_events(&mut self) {
        let now = clock::moment();
        let mut late = Vec::new();
        for (uid, missing) in &mut self.missing {
            if matches!(missing, Missing::Until(until) if *until <= now) {
                *missing = Missing::Over;
                late.push(uid.clone());
            }
        }
        for uid in late {
            self.look(uid);
        }
    }

    /// Takes the result of a look.
    fn take(&mut self, inspected: Inspected) {
        let Inspected { uid, started_at, found, ends, recalls, misses } = inspected;
        kubelet::PLEG_POD_RELIST.observe(clock::moment().since(started_at));
        let again = self.looks.remove(&uid).is_some_and(|look| look.again) || recalls;
        self.keep_ends(&uid, ends);
        // It went while somebody looked, and the event that tells how may be on its way: the event has it looked at again,
        // and so does the end of the wait.
        let before = self.missing.remove(&uid);
        if misses
            && self.events == Events::Flowing
            && let Some(wait) = Missing::after_look(before, clock::moment())
        {
            self.missing.insert(uid.clone(), wait);
            return if again { self.look(uid) } else { self.start_looks() };
        }
        let mut observation = Observation {
            started_at,
            scope: Scope::Pod(uid.clone()),
            changed: Vec::new(),
            gone: Vec::new(),
            unknown: Vec::new(),
        };
        match found {
            Ok(Some(pod)) => {
                let fingerprint = fingerprint_of_pod(&pod);
                let same = self.views.get(&uid).is_some_and(|view| *view.pod == pod);
                if !same {
                    let pod = Arc::new(pod);
                    observation.changed.push(Arc::clone(&pod));
                    self.views.insert(uid.clone(), View { fingerprint, pod });
                }
            }
            Ok(None) => {
                if self.views.remove(&uid).is_some() {
                    observation.gone.push(uid.clone());
                }
            }
            Err(why) => {
                // The next relist sees it as changed and looks again.
                if let Some(view) = self.views.get_mut(&uid) {
                    view.fingerprint = 0;
                }
                observation.unknown.push(self.unknown(uid.clone(), why));
                // Of one that nobody has seen yet nobody asks: another look comes soon, events or not.
                self.relist_at = self.relist_at.min(clock::moment() + self.settings.relist);
            }
        }
        self.send(observation);
        if again {
            self.look(uid);
        } else {
            self.start_looks();
        }
    }

    fn unknown(&self, uid: PodUid, why: String) -> UnknownPod {
        UnknownPod { name: self.names.get(&uid).filter(|_| !self.views.contains_key(&uid)).cloned(), uid, why }
    }

    fn send(&self, observation: Observation) {
        // Waiting here is the back-pressure; the loop never waits for us. Disconnected: the agent ends.
        let _ended = self.to_loop.send(FromPleg::Observed(observation));
    }

    fn tell_health(&mut self, health: RuntimeHealth) {
        if self.health.as_ref() == Some(&health) {
            return;
        }
        match (&health, &self.health) {
            (RuntimeHealth::Down(why), _) => log::error!("the container runtime does not answer: {why}"),
            (RuntimeHealth::Up, Some(RuntimeHealth::Down(_))) => log::info!("the container runtime answers again"),
            (RuntimeHealth::Up, _) => {}
        }
        self.health = Some(health.clone());
        let _ended = self.to_loop.send(FromPleg::Runtime(health));
    }
}

/// What a look at all pods tells of one, as one number: ids and states, independent of their order.
fn fingerprint_of_glimpse(pod: &PodGlimpse) -> u64 {
    let sandboxes = pod.sandboxes.iter().map(|(id, state)| (id.as_str(), sandbox_number(*state)));
    let containers = pod.containers.iter().map(|(id, life)| (id.as_str(), life_number(*life)));
    fingerprint(sandboxes.chain(containers).collect())
}

/// The same number of a pod that was looked at closely.
fn fingerprint_of_pod(pod: &RuntimePod) -> u64 {
    let sandboxes = pod.sandboxes.iter().map(|s| (s.id.as_str(), sandbox_number(s.state)));
    let containers = pod.containers.iter().map(|c| (c.id.as_str(), state_number(&c.state)));
    fingerprint(sandboxes.chain(containers).collect())
}

fn fingerprint(mut parts: Vec<(&str, u8)>) -> u64 {
    order::sort(&mut parts);
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    // 0 stands for "look again".
    hasher.finish().max(1)
}

fn sandbox_number(state: SandboxState) -> u8 {
    u8::from(state == SandboxState::Ready)
}

fn life_number(life: Life) -> u8 {
    match life {
        Life::Created => 2,
        Life::Running => 3,
        Life::Exited => 4,
        Life::Unknown => 5,
    }
}

/// The state without the facts that only a close look tells.
fn state_number(state: &ContainerState) -> u8 {
    life_number(match state {
        ContainerState::Created => Life::Created,
        ContainerState::Running { .. } => Life::Running,
        ContainerState::Exited(_) => Life::Exited,
        ContainerState::Unknown => Life::Unknown,
    })
}

#[cfg(test)]
mod tests;

//! The world around the node: its queues, the agent's life, the disk, the clocks, and everything that
//! goes wrong.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ferrolet::api::PodUid;
use ferrolet::api::moment::{Moment, Now};
use ferrolet::api::pod::{find_container, pod_uid};
use ferrolet::api::quantity::{Amount, Format};
use ferrolet::api::record::PodRecord;
use ferrolet::api::v1::Pod;
use ferrolet::core::admit::Limits;
use ferrolet::core::backoff::BackoffLimits;
use ferrolet::core::node::{Effect, Input, Node, Probes, Settings};
use ferrolet::core::status::RestartAll;
use ferrolet::msg::{FromPleg, PodWork, RuntimeHealth, SourceKind, SourceUpdate, Step, WorkReport};

use super::manifests::Manifests;
use super::pleg::Pleg;
use super::prober::Prober;
use super::rng::Rng;
use super::runtime::Runtime;
use super::worker::Job;

const SOURCES: [SourceKind; 2] = [SourceKind::File, SourceKind::Http];

/// Lines of the transcript that are kept for a failure.
const TAIL: usize = 160;

pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) node: Node,
    pub(super) runtime: Runtime,
    pub(super) manifests: Manifests,
    pub(super) jobs: BTreeMap<u64, Job>,
    /// Nothing goes wrong any more.
    pub(super) calm: bool,
    /// Records on disk.
    pub(super) disk: BTreeMap<PodUid, PodRecord>,
    pub(super) mono: Moment,
    pub(super) wall: i64,
    pub(super) boot: u64,
    pub(super) probes: Probes,
    pub(super) up: bool,
    pub(super) told_health: RuntimeHealth,
    pub(super) pleg: Pleg,
    pub(super) relist_at: Moment,
    /// What the last turn wrote, undone if the agent dies before the disk has it.
    pub(super) unsaved: Vec<(PodUid, Option<PodRecord>)>,
    pub(super) from_sources: VecDeque<SourceUpdate>,
    pub(super) leftovers: Option<Vec<PodUid>>,
    pub(super) from_pleg: VecDeque<FromPleg>,
    pub(super) from_workers: VecDeque<WorkReport>,
    pub(super) prober: Prober,
    pub(super) inspect: VecDeque<PodUid>,
    /// Sets that the node has been told, by source; what is wanted follows.
    pub(super) told: BTreeMap<SourceKind, Vec<PodUid>>,
    /// Specs by uid, newest first known: for exits by themselves.
    pub(super) specs: BTreeMap<PodUid, Pod>,
    pub(super) restarts: BTreeMap<(PodUid, String), i32>,
    effects_seen: u64,
    log: VecDeque<String>,
    pub(super) steps: u64,
}

pub(super) fn settings(boot: u64, probes: Probes) -> Settings {
    Settings {
        node: "sim".to_owned(),
        sources: SOURCES.to_vec(),
        backoff: BackoffLimits::with_max(Duration::from_secs(300)),
        keep_dead: 1,
        restart_all: RestartAll::InForce,
        boot_id: format!("boot-{boot}"),
        runtime_name: "model".to_owned(),
        host_ips: vec!["192.0.2.1".to_owned()],
        recursive_read_only: false,
        probes,
        admission: Limits {
            node_name: "node".to_owned(),
            allocatable: ["pods", "cpu", "memory"]
                .map(|name| (name.to_owned(), Amount::from_value(110, Format::DecimalSi)))
                .into(),
            ..Limits::default()
        },
        resize_pod_level: true,
        admission_hook: false,
        shutdown: Vec::new(),
    }
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let probes = if seed.is_multiple_of(2) { Probes::Run } else { Probes::NotRun };
        let mut world = Self {
            rng: Rng::new(seed),
            node: Node::new(settings(0, probes), Vec::new()),
            runtime: Runtime::default(),
            manifests: Manifests::default(),
            jobs: BTreeMap::new(),
            calm: false,
            disk: BTreeMap::new(),
            mono: Moment::from_boot(Duration::from_secs(100)),
            wall: 1_800_000_000_000_000_000,
            boot: 0,
            probes,
            up: true,
            told_health: RuntimeHealth::Up,
            pleg: Pleg::default(),
            relist_at: Moment::default(),
            unsaved: Vec::new(),
            from_sources: VecDeque::new(),
            leftovers: None,
            from_pleg: VecDeque::new(),
            from_workers: VecDeque::new(),
            prober: Prober::new(Now::default()),
            inspect: VecDeque::new(),
            told: BTreeMap::new(),
            specs: BTreeMap::new(),
            restarts: BTreeMap::new(),
            effects_seen: 0,
            log: VecDeque::new(),
            steps: 0,
        };
        world.prober = Prober::new(world.clock());
        world.speak();
        world
    }

    pub(super) fn clock(&self) -> Now {
        Now { mono: self.mono, wall: self.wall }
    }

    pub(super) fn say(&mut self, text: impl FnOnce() -> String) {
        if self.log.len() >= TAIL {
            self.log.pop_front();
        }
        let at = self.mono.since_boot();
        self.log.push_back(format!("{:>6}.{:03} {}", at.as_secs(), at.subsec_millis(), text()));
    }

    /// What happened lately and what is there now.
    pub(super) fn transcript(&mut self) -> String {
        let mut out: String = self.log.iter().map(|line| format!("{line}\n")).collect();
        out.push_str(&format!("the runtime now:\n{}", self.runtime.dump()));
        for (uid, view) in &self.node.view(Now { mono: self.mono, wall: self.wall }).pods {
            out.push_str(&format!("{uid} is {}, {}\n", view.stage, view.waits_for));
        }
        out
    }

    fn break_rule(&mut self, what: String) {
        self.runtime.broken.push(what);
    }

    /// Every source tells its set anew.
    pub(super) fn speak(&mut self) {
        for source in SOURCES {
            self.send_set(source);
        }
    }

    pub(super) fn send_set(&mut self, source: SourceKind) {
        let update = self.manifests.of(source);
        for pod in &update.pods {
            self.specs.insert(pod_uid(pod), pod.as_ref().clone());
        }
        self.from_sources.push_back(update);
    }

    /// Gives the node one input and does what it says.
    pub(super) fn tell(&mut self, input: Input) {
        let now = self.clock();
        let is_timer = matches!(input, Input::Timer);
        let effects = self.node.step(now, input);
        self.unsaved.clear();
        self.effects_seen += effects.len() as u64;
        for effect in effects {
            match effect {
                Effect::Work(work) => self.take_work(work),
                Effect::Inspect(uid, _) => {
                    self.say(|| format!("inspect {uid}"));
                    self.inspect.push_back(uid);
                }
                Effect::Record(record) => {
                    let uid = record.uid.clone();
                    let old = self.disk.insert(uid.clone(), PodRecord::clone(&record));
                    self.check_record(&uid, old.as_ref());
                    self.unsaved.push((uid, old));
                }
                Effect::Tell(_) | Effect::Count(_) | Effect::ShutdownDone => {}
                Effect::Unrecord(uid) => {
                    self.say(|| format!("unrecord {uid}"));
                    // What follows is another life of that pod.
                    self.restarts.retain(|(of, _), _| *of != uid);
                    let old = self.disk.remove(&uid);
                    self.unsaved.push((uid, old));
                }
            }
        }
        if is_timer && self.node.next_deadline().is_some_and(|at| at <= self.mono) {
            self.break_rule("a deadline that has come stays: the loop would spin".to_owned());
        }
    }

    /// A record that says nothing new costs flash for nothing; a deadline may only come nearer.
    fn check_record(&mut self, uid: &PodUid, old: Option<&PodRecord>) {
        let new = &self.disk[uid];
        self.log.push_back(format!("record {uid} ending={:?}", new.ending.as_ref().map(|e| (&e.cause, e.deadline_ms))));
        let Some(old) = old else { return };
        let mut broken = Vec::new();
        if old == new {
            broken.push(format!("{uid}: the same record again"));
        }
        if let (Some(before), Some(after)) = (&old.ending, &new.ending)
            && before.cause == after.cause
            && old.boot_id == new.boot_id
            && before.deadline_ms != 0
            && after.deadline_ms > before.deadline_ms
        {
            broken.push(format!("{uid}: its deadline moved from {} to {}", before.deadline_ms, after.deadline_ms));
        }
        for (name, before) in &old.containers {
            if new.containers.get(name).is_some_and(|after| after.next_attempt < before.next_attempt) {
                broken.push(format!("{uid}: the attempts of {name} went back"));
            }
        }
        self.runtime.broken.extend(broken);
    }

    fn take_work(&mut self, work: PodWork) {
        let steps: Vec<String> = work.steps.iter().map(|s| format!("{} ({})", word(&s.step), s.cause)).collect();
        self.say(|| format!("work {} for {}: {}", work.id, work.uid, steps.join(", ")));
        if self.jobs.values().any(|job| job.work.uid == work.uid) {
            self.break_rule(format!("{}: a second work beside the first", work.uid));
        }
        let starts = work
            .steps
            .iter()
            .any(|s| matches!(s.step, Step::PreparePod | Step::RunSandbox { .. } | Step::StartContainer { .. }));
        let is_wanted = self.told.values().flatten().any(|uid| *uid == work.uid);
        let now = self.clock();
        let stage = self.node.pod_view(now, &work.uid).map(|view| view.stage.clone()).unwrap_or_default();
        if starts && (!is_wanted || stage != "Active") {
            self.break_rule(format!(
                "{}: something new is made in a pod that is {stage}, wanted: {is_wanted}",
                work.uid
            ));
        }
        let job = Job::new(work, &mut self.rng, self.calm, self.mono);
        self.jobs.insert(job.work.id, job);
    }

    /// One thing happens. False when there was nothing left that could.
    pub(super) fn step(&mut self) -> bool {
        self.steps += 1;
        self.mono = self.mono + Duration::from_micros(1);
        let happened =
            if self.node.next_deadline().is_some_and(|at| at <= self.mono) && (self.calm || self.rng.chance(800)) {
                self.tell(Input::Timer);
                true
            } else {
                match self.rng.below(10) {
                    _ if self.calm => self.go_on(),
                    0..8 => self.go_on(),
                    _ => {
                        self.trouble();
                        true
                    }
                }
            };
        if self.steps.is_multiple_of(16) {
            self.check_restart_counts();
            self.check_ends();
            self.check_readiness();
        }
        happened
    }

    /// Delivers or finishes something, in any order between the queues, each of which keeps its own.
    fn go_on(&mut self) -> bool {
        let first = self.rng.below(7);
        let happened = (first..first + 7).any(|choice| match choice % 7 {
            0 => self.deliver_source(),
            1 => self.deliver_pleg(),
            2 => self.deliver_report(),
            3 => self.deliver_from_prober(),
            4 => self.work(),
            5 => self.look(),
            _ => self.relist(),
        });
        if !happened && !self.calm {
            let wait = self.rng.below(1500);
            self.mono = self.mono + Duration::from_millis(wait);
        }
        happened
    }

    fn deliver_source(&mut self) -> bool {
        if self.rng.chance(200)
            && let Some(uids) = self.leftovers.take()
        {
            self.say(|| format!("leftovers {uids:?}"));
            self.tell(Input::Leftovers(uids));
            return true;
        }
        let Some(update) = self.from_sources.pop_front() else { return false };
        let uids: Vec<PodUid> = update.pods.iter().map(|p| pod_uid(p)).collect();
        self.say(|| format!("source {} has {uids:?}", update.source.as_str()));
        self.told.insert(update.source, uids);
        // A container that leaves the spec takes its restart count with it.
        for pod in &update.pods {
            self.restarts.retain(|(uid, name), _| *uid != pod_uid(pod) || find_container(pod, name).is_some());
        }
        if self.rng.chance(50) {
            self.tell(Input::Source(update.clone()));
        }
        self.tell(Input::Source(update));
        true
    }

    fn deliver_pleg(&mut self) -> bool {
        let Some(message) = self.from_pleg.pop_front() else { return false };
        match message {
            FromPleg::Observed(seen) => {
                if seen.changed.len() + seen.gone.len() > 0 {
                    let uids: Vec<&PodUid> = seen.changed.iter().filter_map(|p| p.uid.as_ref()).collect();
                    let text = format!("seen {:?}, changed {uids:?}, gone {:?}", seen.scope, seen.gone);
                    self.say(|| text);
                }
                if self.rng.chance(30) {
                    self.tell(Input::Observed(seen.clone()));
                }
                self.tell(Input::Observed(seen));
            }
            FromPleg::Runtime(health) => {
                self.say(|| format!("runtime {health:?}"));
                self.tell(Input::Runtime(health));
            }
        }
        true
    }

    fn deliver_report(&mut self) -> bool {
        let Some(report) = self.from_workers.pop_front() else { return false };
        let results: Vec<String> =
            report.results.iter().map(|(step, result)| format!("{} {result:?}", word(step))).collect();
        self.say(|| format!("report {} of {}: {}", report.id, report.uid, results.join(", ")));
        if self.rng.chance(30) {
            self.tell(Input::Report(report.clone()));
        }
        self.tell(Input::Report(report));
        true
    }

    /// A worker ends a step of its work.
    fn work(&mut self) -> bool {
        let due = self.jobs.iter().filter(|(_, job)| job.due() <= self.mono).map(|(id, _)| *id);
        let Some(id) = self.rng.pick(due) else { return false };
        let (mono, wall) = (self.mono, self.wall);
        let Some(job) = self.jobs.get_mut(&id) else { return false };
        if let Some(report) = job.turn(&mut self.runtime, &mut self.rng, self.calm, self.up, mono, wall) {
            self.jobs.remove(&id);
            self.from_workers.push_back(report);
        }
        true
    }

    fn look(&mut self) -> bool {
        if let Some(uid) = self.inspect.pop_front() {
            // A question that gets lost: the next relist makes up for it.
            if self.calm || !self.rng.chance(30) {
                self.pleg.look(&self.runtime, uid, self.mono);
            }
            return true;
        }
        if !self.pleg.is_looking() || (!self.calm && self.rng.chance(300)) {
            return false;
        }
        let fails = !self.up || (!self.calm && self.rng.chance(80));
        match self.pleg.finish(&self.runtime, &mut self.rng, fails, self.mono) {
            Some(seen) => self.from_pleg.push_back(FromPleg::Observed(seen)),
            None => return false,
        }
        true
    }

    fn relist(&mut self) -> bool {
        if self.mono < self.relist_at {
            return false;
        }
        self.relist_at = self.mono + Duration::from_secs(1);
        let health = if self.up { RuntimeHealth::Up } else { RuntimeHealth::Down("no answer".to_owned()) };
        if health != self.told_health {
            self.told_health = health.clone();
            self.from_pleg.push_back(FromPleg::Runtime(health));
        }
        if self.up {
            let seen = self.pleg.relist(&self.runtime, self.mono);
            self.from_pleg.extend(seen.map(FromPleg::Observed));
        }
        true
    }

    /// Restart counts that people see never fall while a pod is there.
    fn check_restart_counts(&mut self) {
        let now = self.clock();
        let view = self.node.view(now);
        self.restarts.retain(|(uid, _), _| view.pods.contains_key(uid));
        for (uid, pod) in &view.pods {
            if pod.stage == "Queued" {
                self.restarts.retain(|(of, _), _| of != uid);
            }
            for status in pod.status.container_statuses.iter().flatten() {
                let key = (uid.clone(), status.name.clone());
                let before = self.restarts.insert(key, status.restart_count).unwrap_or(0);
                if before > status.restart_count {
                    let text =
                        format!("{uid}: {} went from {before} restarts to {}", status.name, status.restart_count);
                    self.runtime.broken.push(text);
                }
            }
        }
    }

    /// What people see of an end is how that container ended.
    fn check_ends(&mut self) {
        let now = self.clock();
        let view = self.node.view(now);
        let mut broken = Vec::new();
        for (uid, pod) in &view.pods {
            let lists = [&pod.status.container_statuses, &pod.status.init_container_statuses];
            for status in lists.into_iter().flatten().flatten() {
                let states = [&status.state, &status.last_state].into_iter().flatten();
                for end in states.filter_map(|state| state.terminated.as_ref()) {
                    let id = end.container_id.as_deref().and_then(|id| id.split_once("://")).map(|(_, id)| id);
                    let code = id.and_then(|id| self.runtime.codes.get(id));
                    let is_known = end.reason.as_deref() != Some("ContainerStatusUnknown");
                    if let Some(code) = code.filter(|code| is_known && **code != end.exit_code) {
                        broken.push(format!(
                            "{uid}: {} is told to have ended with {}, not {code}",
                            status.name, end.exit_code
                        ));
                    }
                }
            }
        }
        self.runtime.broken.extend(broken);
    }

    /// Nothing goes wrong from now on.
    pub(super) fn calm_down(&mut self) {
        self.calm = true;
        self.up = true;
        self.say(|| "from here on all is calm".to_owned());
    }

    /// Whether messages or works are under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.jobs.is_empty()
            && self.from_sources.is_empty()
            && self.leftovers.is_none()
            && self.from_pleg.is_empty()
            && self.from_workers.is_empty()
            && self.prober.told.is_empty()
            && self.inspect.is_empty()
            && !self.pleg.is_looking()
    }

    /// Moves the clocks to the next thing that is due.
    pub(super) fn wait_for_next(&mut self) {
        let jobs = self.jobs.values().map(Job::due);
        let next = jobs.chain(self.node.next_deadline()).chain([self.relist_at]).min();
        let next = next.unwrap_or(self.mono).max(self.mono + Duration::from_millis(1));
        self.wall += i64::try_from(next.since(self.mono).as_nanos()).unwrap_or(0);
        self.mono = next;
    }

    /// How many effects there were so far.
    pub(super) fn effects(&self) -> u64 {
        self.effects_seen
    }
}

fn word(step: &Step) -> String {
    match step {
        Step::AskAdmissionHook => "ask".to_owned(),
        Step::PreparePod => "prepare".to_owned(),
        Step::StopContainers { containers, .. } => {
            let ids: Vec<&str> = containers.iter().map(|c| c.id.as_str()).collect();
            format!("stop {}", ids.join("+"))
        }
        Step::StopSandbox(id) => format!("stop {id}"),
        Step::RunSandbox { attempt } => format!("sandbox #{attempt}"),
        Step::StartContainer { name, attempt, .. } => format!("start {name} #{attempt}"),
        Step::ResizeContainers(all) => {
            let ids: Vec<&str> = all.iter().map(|c| c.id.as_str()).collect();
            format!("resize {}", ids.join("+"))
        }
        Step::RemoveContainer { id, .. } => format!("remove {id}"),
        Step::RemoveSandbox(id) => format!("remove {id}"),
        Step::ReleasePod => "release".to_owned(),
        Step::ForgetPod => "forget".to_owned(),
    }
}

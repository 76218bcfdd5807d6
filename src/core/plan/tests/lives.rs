//! Whole lives of a pod: a small runtime that carries plans out, steps that fail, containers that end.
//!
//! The rules here are those that show only over several plans: a life comes to rest, at rest nothing is
//! planned any more, and on the way no container ever has two live instances and no attempt serves twice.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::strategies::{a_pod, container_named, observed};
use super::*;
use crate::api::SandboxId;
use crate::api::pod::{ContainerKind, app_containers, find_container, init_containers, is_host_network, is_sidecar};

/// Rounds of plan and work within which a life comes to rest.
const ROUNDS: u32 = 150;

/// A pod, its runtime, and what lies before it.
struct Life {
    scene: Scene,
    now: Moment,
    /// How the containers still end by themselves, by name; when none is left an app runs on and an init
    /// container ends well.
    exits: BTreeMap<String, Vec<i32>>,
    /// How the next steps go; when none is left all go well.
    luck: Vec<Luck>,
    used: BTreeSet<(String, u32)>,
    used_sandboxes: BTreeSet<u32>,
    made: u32,
    broken: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Luck {
    Good,
    /// Nothing happens, and that is told.
    Fails,
    /// It happens, and is told as a failure.
    FailsLate,
}

/// How a life went.
#[derive(Debug, PartialEq, Eq)]
enum Rest {
    /// It runs as it should.
    Runs,
    Ended(Ending),
}

impl Life {
    fn new(scene: Scene, exits: BTreeMap<String, Vec<i32>>, luck: Vec<Luck>) -> Self {
        let used = scene.observed.containers.iter().map(|c| (c.name.clone(), c.attempt)).collect();
        let used_sandboxes = scene.observed.sandboxes.iter().map(|s| s.attempt).collect();
        let mut life = Self { scene, now: NOW, exits, luck, used, used_sandboxes, made: 0, broken: Vec::new() };
        life.learn();
        life
    }

    fn plan(&self) -> Plan {
        plan_active(&PlanInput { now: self.now, ..self.scene.input() })
    }

    /// What the node learns from each look.
    fn learn(&mut self) {
        let Scene { observed, memory, next_sandbox_attempt, .. } = &mut self.scene;
        for sandbox in &observed.sandboxes {
            *next_sandbox_attempt = (*next_sandbox_attempt).max(sandbox.attempt + 1);
        }
        for container in &observed.containers {
            let of = memory.entry(container.name.clone()).or_default();
            of.next_attempt = of.next_attempt.max(container.attempt + 1);
        }
        for (name, of) in memory {
            let Some(newest) = newest(&observed.containers, name) else { continue };
            if newest.attempt < of.first_attempt {
                continue;
            }
            match &newest.state {
                ContainerState::Exited(exit) => {
                    of.last_run = LastRun::Ended(exit.code);
                    if of.exit.as_ref().is_none_or(|(id, _)| *id != newest.id) {
                        of.exit = Some((newest.id.clone(), self.now));
                    }
                }
                ContainerState::Running { .. } => {
                    of.last_run = LastRun::Began;
                    of.started = Some(newest.id.clone());
                }
                ContainerState::Created | ContainerState::Unknown => {}
            }
        }
    }

    fn work(&mut self, plan: Plan) {
        for (name, first_attempt) in plan.new_round {
            self.scene.memory.entry(name).or_default().begin_round(first_attempt);
        }
        for (name, crash) in plan.restarts {
            self.scene.memory.entry(name).or_default().crash = Some(crash);
        }
        let mut sandbox = newest_sandbox(&self.scene.observed).filter(|s| is_ready(s)).map(|s| s.id.clone());
        for PlannedStep { step, on_failure, .. } in plan.steps {
            let luck = self.luck.pop().unwrap_or(Luck::Good);
            if luck != Luck::Fails {
                self.carry_out(step, &mut sandbox);
            }
            if luck != Luck::Good && on_failure == OnFailure::Abort {
                return;
            }
        }
    }

    fn carry_out(&mut self, step: Step, sandbox: &mut Option<SandboxId>) {
        let observed = &mut self.scene.observed;
        let dead = || ContainerState::Exited(Exit { code: 137, ..Exit::default() });
        match step {
            Step::AskAdmissionHook => self.broken.push("asked about after it was admitted".to_owned()),
            Step::PreparePod | Step::ReleasePod => {}
            Step::ResizeContainers(all) => {
                for one in &all {
                    if let Some(memory) = self.scene.memory.get_mut(&one.name) {
                        memory.actuated = None;
                    }
                }
            }
            Step::StopContainers { containers, .. } => {
                let stopped = |c: &&mut RuntimeContainer| containers.iter().any(|stop| stop.id == c.id);
                observed.containers.iter_mut().filter(stopped).for_each(|c| c.state = dead());
            }
            Step::StopSandbox(id) => {
                observed.sandboxes.iter_mut().filter(|s| s.id == id).for_each(|s| s.state = SandboxState::NotReady);
                let inside = observed.containers.iter_mut().filter(|c| c.sandbox_id == id && c.state.may_run());
                inside.for_each(|c| c.state = dead());
            }
            Step::RunSandbox { attempt } => {
                if observed.sandboxes.iter().any(is_ready) {
                    self.broken.push("a second ready sandbox".to_owned());
                }
                if !self.used_sandboxes.insert(attempt) {
                    self.broken.push(format!("sandbox attempt {attempt} for the second time"));
                }
                self.made += 1;
                let words: &[&str] = if is_host_network(&self.scene.pod) { &["", "0", "host"] } else { &["", "0"] };
                let id = SandboxId::from(format!("made-{}", self.made).as_str());
                *sandbox = Some(id.clone());
                observed.sandboxes.push(RuntimeSandbox { id, attempt, ..a_sandbox(words) });
            }
            Step::StartContainer { name, attempt, .. } => {
                let Some(sandbox) = sandbox.clone() else { return self.broken.push("no sandbox".to_owned()) };
                if observed.containers.iter().any(|c| c.name == name && c.state.may_run()) {
                    self.broken.push(format!("a second live {name}"));
                }
                if !self.used.insert((name.clone(), attempt)) {
                    self.broken.push(format!("attempt {attempt} of {name} for the second time"));
                }
                self.made += 1;
                let id = format!("made-{}", self.made).into();
                let marks = Marks { hash: container_hash(&name, &format!("{name}:1")), ..Marks::default() };
                let container = container_named(&name);
                observed.containers.push(RuntimeContainer { id, sandbox_id: sandbox, attempt, marks, ..container });
            }
            Step::RemoveContainer { id, .. } => {
                if observed.containers.iter().any(|c| c.id == id && c.state.may_run()) {
                    self.broken.push(format!("{id} is removed and may run"));
                }
                observed.containers.retain(|c| c.id != id);
            }
            Step::RemoveSandbox(id) => {
                let inside = |c: &RuntimeContainer| c.sandbox_id == id;
                if observed.containers.iter().any(|c| inside(c) && c.state.may_run()) {
                    self.broken.push(format!("{id} is removed with a live container"));
                }
                observed.sandboxes.retain(|s| s.id != id);
                observed.containers.retain(|c| c.sandbox_id != id);
            }
            Step::ForgetPod => {
                if !observed.containers.is_empty() || !observed.sandboxes.is_empty() {
                    self.broken.push("forgotten with something left".to_owned());
                }
            }
        }
    }

    /// One running container ends by itself; false if none has a reason to.
    fn end_one(&mut self) -> bool {
        for container in &mut self.scene.observed.containers {
            if !matches!(container.state, ContainerState::Running { .. }) {
                continue;
            }
            let scripted = self.exits.get_mut(&container.name).and_then(Vec::pop);
            let is_init =
                find_container(&self.scene.pod, &container.name).map(|(kind, _)| kind) == Some(ContainerKind::Init);
            if let Some(code) = scripted.or(is_init.then_some(0)) {
                container.state = ContainerState::Exited(Exit { code, ..Exit::default() });
                return true;
            }
        }
        false
    }

    /// Plans and works until nothing is left to be done.
    fn come_to_rest(&mut self) -> Result<Rest, String> {
        for _ in 0..ROUNDS {
            let plan = self.plan();
            if let Some(ending) = plan.ended {
                return Ok(Rest::Ended(ending));
            }
            self.now = self.now + Duration::from_secs(1);
            match (plan.steps.is_empty() && plan.new_round.is_empty(), plan.wake_at) {
                (false, _) => self.work(plan),
                (true, _) if self.end_one() => {}
                (true, Some(at)) => self.now = self.now.max(at),
                (true, None) => return Ok(Rest::Runs),
            }
            self.learn();
        }
        Err(format!("no rest:\n{}", transcript(&self.plan())))
    }

    /// What is wrong with a pod that runs and at which nothing is to be done.
    fn faults(&self) -> Vec<String> {
        let Scene { pod, observed, .. } = &self.scene;
        let mut faults = Vec::new();
        let ready: Vec<&RuntimeSandbox> = observed.sandboxes.iter().filter(|s| is_ready(s)).collect();
        if ready.len() != 1 {
            faults.push(format!("{} sandboxes are ready", ready.len()));
        }
        for container in observed.containers.iter().filter(|c| c.state.may_run()) {
            let same = observed.containers.iter().filter(|c| c.name == container.name && c.state.may_run());
            let is_wanted = find_container(pod, &container.name).is_some();
            if same.count() != 1 || !is_wanted || ready.iter().all(|s| s.id != container.sandbox_id) {
                faults.push(format!("{} lives", container.id));
            }
        }
        let runs = |name: &str| observed.containers.iter().any(|c| c.name == name && c.state.may_run());
        let sidecars = init_containers(pod).iter().filter(|c| is_sidecar(c));
        let idle = sidecars.filter(|c| !runs(&c.name)).map(|c| format!("sidecar {} does not run", c.name));
        faults.extend(idle);
        let always = |c: &crate::api::v1::Container| {
            let of_pod = pod.spec.as_ref().and_then(|s| s.restart_policy.as_deref());
            c.restart_policy.as_deref().or(of_pod) == Some("Always")
        };
        let idle = app_containers(pod).iter().filter(|c| always(c) && !runs(&c.name));
        faults.extend(idle.map(|c| format!("{} does not run", c.name)));
        if !app_containers(pod).iter().any(|c| runs(&c.name)) {
            faults.push("no app runs, and it has not ended".to_owned());
        }
        faults
    }
}

fn exits() -> impl Strategy<Value = BTreeMap<String, Vec<i32>>> {
    let name = prop::sample::select(vec!["i0", "i1", "i2", "a0", "a1", "a2"]).prop_map(str::to_owned);
    let codes = prop::collection::vec(prop::sample::select(vec![0, 1, 42]), 0..4);
    prop::collection::btree_map(name, codes, 0..4)
}

fn luck() -> impl Strategy<Value = Vec<Luck>> {
    let luck = prop_oneof![3 => Just(Luck::Good), 1 => Just(Luck::Fails), 1 => Just(Luck::FailsLate)];
    prop::collection::vec(luck, 0..12)
}

fn a_life() -> impl Strategy<Value = (Scene, BTreeMap<String, Vec<i32>>, Vec<Luck>)> {
    let nothing = Just(RuntimePod { uid: Some(PodUid::from("u")), ..RuntimePod::default() });
    let seen = prop_oneof![1 => nothing.boxed(), 2 => observed().boxed()];
    (a_pod(), seen, exits(), luck()).prop_map(|(pod, observed, exits, luck)| {
        (Scene { pod, observed, memory: BTreeMap::new(), next_sandbox_attempt: 0 }, exits, luck)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_life_comes_to_rest_and_breaks_no_rule_on_the_way((scene, exits, luck) in a_life()) {
        let mut life = Life::new(scene, exits, luck);
        let rest = life.come_to_rest();
        prop_assert!(life.broken.is_empty(), "{:?}", life.broken);
        prop_assert!(rest.is_ok(), "{rest:?}");
        if rest == Ok(Rest::Runs) {
            prop_assert_eq!(life.faults(), Vec::<String>::new());
        }
    }

    #[test]
    fn at_rest_nothing_is_planned_now_or_later((scene, exits, luck) in a_life(), later in 0..100_000_u64) {
        let mut life = Life::new(scene, exits, luck);
        let rest = life.come_to_rest();
        life.now = life.now + Duration::from_secs(later);
        let plan = life.plan();
        let is_idle = plan.steps.is_empty() && plan.new_round.is_empty() && plan.wake_at.is_none();
        prop_assert!(is_idle, "{}", transcript(&plan));
        match rest {
            Ok(Rest::Ended(ending)) => prop_assert_eq!(plan.ended, Some(ending)),
            other => prop_assert_eq!((plan.ended, other), (None, Ok(Rest::Runs))),
        }
    }

    #[test]
    fn a_pod_that_ends_leaves_nothing((scene, exits, luck) in a_life(), rounds in 0..10_u32) {
        let mut life = Life::new(scene, exits, luck);
        for _ in 0..rounds {
            let plan = life.plan();
            life.work(plan);
            life.end_one();
            life.learn();
        }
        let grace = Duration::from_secs(10);
        while !at_rest(&life.scene.observed) {
            let plan = plan_ending(Some(&life.scene.pod), &life.scene.observed, grace, "why");
            prop_assert!(!plan.steps.is_empty());
            life.work(plan);
        }
        prop_assert!(plan_ending(Some(&life.scene.pod), &life.scene.observed, grace, "why").steps.is_empty());
        while !(life.scene.observed.containers.is_empty() && life.scene.observed.sandboxes.is_empty()) {
            life.work(plan_forget(Some(&life.scene.observed), "why"));
        }
        prop_assert!(life.broken.is_empty(), "{:?}", life.broken);
    }
}

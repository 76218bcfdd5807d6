//! Tests of the planner: a pod and what the runtime shows, both as short text, and the plan as a
//! transcript.

mod apps;
mod endings;
mod ephemeral;
mod inits;
mod lives;
mod properties;
mod resizes;
mod restart_all;
mod restarts;
mod sandboxes;
mod strategies;

use std::collections::BTreeMap;
use std::time::Duration;

use expect_test::Expect;
use serde_json::Value;

use super::*;
use crate::api::PodUid;
use crate::api::labels::{HASH, Marks, PRE_STOP, RESTART_COUNT, container_hash};
use crate::api::pod::all_containers;
use crate::api::runtime::{ContainerState, Exit};
use crate::util::text::about;

/// The moment at which every table here plans.
const NOW: Moment = Moment::from_boot(Duration::from_secs(10_000));

/// A pod `p` of uid `u` with this spec in YAML; a container without image has `NAME:1`.
fn pod(spec: &str) -> Pod {
    let mut spec: Value = serde_yaml::from_str(spec).expect("a spec");
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let image = format!("{}:1", container["name"].as_str().expect("a name"));
            container.as_object_mut().expect("a container").entry("image").or_insert(Value::String(image));
        }
    }
    let pod = serde_json::json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec});
    serde_json::from_value(pod).expect("a pod")
}

/// Everything that a plan is made from.
#[derive(Clone, Debug)]
struct Scene {
    pod: Pod,
    observed: RuntimePod,
    memory: BTreeMap<String, Box<ContainerMemory>>,
    next_sandbox_attempt: u32,
}

impl Scene {
    fn input(&self) -> PlanInput<'_> {
        PlanInput {
            pod: &self.pod,
            observed: &self.observed,
            memory: &self.memory,
            next_sandbox_attempt: self.next_sandbox_attempt,
            now: NOW,
            backoff: BackoffLimits::with_max(Duration::from_secs(300)),
            keep_dead: 1,
            restart_all: RestartAll::InForce,
        }
    }
}

/// Reads what the runtime shows and what is remembered, one thing a line:
///
/// - `sandbox 0 ready` with the words `dead`, `host` (its network) or `noip`;
/// - `app/0 running`, `created`, `unknown` or `exited 3`; the number is the attempt, the instance lives in
///   the newest sandbox unless `in 0` says which; `image=app:2` is what it was made from, `unmarked` takes
///   its marks away, `marks=7` is the restart count in them, `prestop` gives it a hook in them;
/// - `memory app first=2 next=3 ran ended=1 crash=20s exit=3s failed=5s started=0 had=100 condemned=0 startup=0`: the crash
///   delay of a restart one second ago, the CPU requested that the running instance has, seconds since the exit was seen, seconds until a failed start may be
///   repeated, attempts of instances with verdicts;
/// - `next sandbox 4`.
fn scene(spec: &str, text: &str) -> Scene {
    let mut scene = Scene {
        pod: pod(spec),
        observed: RuntimePod { uid: Some(PodUid::from("u")), ..RuntimePod::default() },
        memory: BTreeMap::new(),
        next_sandbox_attempt: 0,
    };
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "sandbox" => scene.observed.sandboxes.push(a_sandbox(&words)),
            "next" => scene.next_sandbox_attempt = words[2].parse().expect("an attempt"),
            "memory" => {
                let memory = a_memory(&scene, &words);
                scene.memory.insert(words[1].to_owned(), Box::new(memory));
            }
            _ => {
                let container = a_container(&scene, &words);
                scene.observed.containers.push(container);
            }
        }
    }
    scene
}

fn a_sandbox(words: &[&str]) -> RuntimeSandbox {
    let attempt: u32 = words[1].parse().expect("an attempt");
    let has = |word: &str| words.contains(&word);
    RuntimeSandbox {
        id: format!("sandbox-{attempt}").into(),
        attempt,
        state: if has("dead") { SandboxState::NotReady } else { SandboxState::Ready },
        created_at: i64::from(attempt),
        ips: if has("host") || has("noip") { Vec::new() } else { vec!["10.0.0.1".into()] },
        host_network: has("host"),
        runtime_handler: String::new(),
    }
}

fn a_container(scene: &Scene, words: &[&str]) -> RuntimeContainer {
    let (name, attempt) = words[0].split_once('/').expect("name/attempt");
    let attempt: u32 = attempt.parse().expect("an attempt");
    let after = |word: &str| words.iter().position(|w| *w == word).and_then(|i| words.get(i + 1));
    let value = |key: &str| words.iter().find_map(|w| w.strip_prefix(key)?.strip_prefix('='));
    let code = |w: &&str| w.parse().expect("an exit code");
    let state = match words[1] {
        "running" => ContainerState::Running { started_at: 1 },
        "created" => ContainerState::Created,
        "unknown" => ContainerState::Unknown,
        "exited" => ContainerState::Exited(Exit { code: after("exited").map_or(0, code), ..Exit::default() }),
        other => panic!("no state {other}"),
    };
    let newest = newest_sandbox(&scene.observed).map(|s| s.id.to_string());
    let image = value("image").map_or_else(|| format!("{name}:1"), str::to_owned);
    let mut annotations = BTreeMap::from([(HASH.to_owned(), container_hash(name, &image))]);
    if words.contains(&"unmarked") {
        annotations.clear();
    }
    annotations.extend(value("marks").map(|n| (RESTART_COUNT.to_owned(), n.to_owned())));
    if words.contains(&"prestop") {
        annotations.insert(PRE_STOP.to_owned(), r#"{"exec": {"command": ["bye"]}}"#.to_owned());
    }
    let sandbox_id = after("in").map_or_else(|| newest.unwrap_or_default(), |n| format!("sandbox-{n}"));
    RuntimeContainer {
        created_at: i64::from(attempt),
        image,
        marks: Marks::read(&annotations),
        ..RuntimeContainer::bare(words[0], &sandbox_id, name, attempt, state)
    }
}

fn a_memory(scene: &Scene, words: &[&str]) -> ContainerMemory {
    let name = words[1];
    let hash = all_containers(&scene.pod)
        .find(|(_, c)| c.name == name)
        .map(|(_, c)| container_hash(name, c.image.as_deref().unwrap_or_default()));
    let mut memory = ContainerMemory::default();
    for word in &words[2..] {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let seconds = || Duration::from_secs(value.trim_end_matches('s').parse().expect("seconds"));
        let instance = || ContainerId::from(format!("{name}/{value}").as_str());
        match key {
            "first" => memory.first_attempt = value.parse().expect("an attempt"),
            "next" => memory.next_attempt = value.parse().expect("an attempt"),
            "ran" => memory.last_run = LastRun::Began,
            "ended" => memory.last_run = LastRun::Ended(value.parse().expect("an exit code")),
            "crash" => {
                let state = CrashBackoff { delay: seconds(), restarted_at: NOW - Duration::from_secs(1) };
                memory.crash = Some((state, hash.clone().expect("a container of the pod")));
            }
            "crash-of-old" => {
                let state = CrashBackoff { delay: seconds(), restarted_at: NOW - Duration::from_secs(1) };
                memory.crash = Some((state, "an earlier image".to_owned()));
            }
            "exit" => {
                let newest = newest(&scene.observed.containers, name).expect("an instance");
                memory.exit = Some((newest.id.clone(), NOW - seconds()));
            }
            "failed" => {
                let reason = Reason { reason: "ErrImagePull".to_owned(), message: "no such image".to_owned() };
                memory.failed = Some((NOW + seconds(), reason));
            }
            "had" => memory.actuated = Some(Sizes { cpu_request: value.parse().expect("a size"), ..Sizes::default() }),
            "started" => memory.started = Some(instance()),
            "condemned" => memory.condemned = Some((instance(), StopReason::Liveness)),
            "startup" => memory.condemned = Some((instance(), StopReason::Startup)),
            other => panic!("no memory of {other}"),
        }
    }
    memory
}

/// Sizes as requests/limits of CPU and of memory.
fn text(sizes: Sizes) -> String {
    format!("{}/{} {}/{}", sizes.cpu_request, sizes.cpu_limit, sizes.memory_request, sizes.memory_limit)
}

/// The plan, one step a line; a step whose failure ends the plan is marked with `!`.
fn transcript(plan: &Plan) -> String {
    let mut out = String::new();
    for PlannedStep { step, cause, on_failure } in &plan.steps {
        let mark = match on_failure {
            OnFailure::Abort => "!",
            OnFailure::Continue => "",
        };
        let line = match step {
            Step::AskAdmissionHook => format!("ask the hook: {cause}"),
            Step::PreparePod => format!("prepare: {cause}"),
            Step::StopContainers { containers, grace } => {
                let stops = containers.iter().map(|stop| {
                    let wave = if stop.wave == 0 { String::new() } else { format!(" in wave {}", stop.wave) };
                    let hook = if stop.pre_stop.is_some() { " after its hook" } else { "" };
                    format!("{}{wave}{hook} ({})", stop.id, stop.reason.text())
                });
                format!("stop {} grace={}", stops.collect::<Vec<_>>().join(", "), about(*grace))
            }
            Step::StopSandbox(id) => format!("stop {id}: {cause}"),
            Step::RunSandbox { attempt } => format!("run sandbox attempt={attempt}: {cause}"),
            Step::StartContainer { kind, name, attempt, target } => {
                let kind = format!("{kind:?}").to_lowercase();
                let target = target.as_ref().map(|id| format!(" target={id}")).unwrap_or_default();
                format!("start {kind} {name} attempt={attempt}{target}: {cause}")
            }
            Step::ResizeContainers(all) => {
                let one =
                    |c: &crate::msg::ResizeContainer| format!("{} from {:?} to {:?}", c.id, text(c.from), text(c.to));
                format!("resize {}", all.iter().map(one).collect::<Vec<_>>().join(", ")).replace('"', "")
            }
            Step::RemoveContainer { id, .. } => format!("remove {id}: {cause}"),
            Step::RemoveSandbox(id) => format!("remove {id}: {cause}"),
            Step::ReleasePod => format!("release: {cause}"),
            Step::ForgetPod => format!("forget: {cause}"),
        };
        out.push_str(&format!("{line}{mark}\n"));
    }
    for wait in &plan.waits {
        out.push_str(&format!("wait for {wait}\n"));
    }
    if let Some(at) = plan.wake_at {
        out.push_str(&format!("look again in {}\n", about(at.since(NOW))));
    }
    for (name, (crash, _)) in &plan.restarts {
        out.push_str(&format!("next time {name} waits {}\n", about(crash.delay)));
    }
    for (name, attempt) in &plan.new_round {
        out.push_str(&format!("{name} begins anew with attempt={attempt}\n"));
    }
    if let Some(ending) = plan.ended {
        out.push_str(&format!("ended {ending:?}\n"));
    }
    if out.is_empty() { "nothing\n".to_owned() } else { out }
}

/// Plans an active pod.
fn check(spec: &str, text: &str, expect: Expect) {
    let scene = scene(spec, text);
    expect.assert_eq(&transcript(&plan_active(&scene.input())));
}

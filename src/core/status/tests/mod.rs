//! Tests of the status computation: a scene (pod, what the runtime shows, facts) and the status it
//! leads to, both as short text.

mod conditions;
mod containers;
mod others;
mod patches;
mod phases;
mod properties;
mod recorded;
mod recorded_patches;
mod restart_all;
mod summaries;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::api::pod::all_containers;
use crate::api::runtime::{ContainerState, Exit, RuntimeContainer, RuntimeSandbox, SandboxState};
use crate::api::v1::ContainerStatus;
use crate::msg::Reason;

const SECOND: i64 = 1_000_000_000;

/// Everything that a status depends on, owned, in small steps.
#[derive(Clone)]
struct Scene {
    pod: Pod,
    observed: Option<RuntimePod>,
    previous: Option<PodStatus>,
    rejection: Option<Reason>,
    stage: Stage<'static>,
    ending: Option<Ending>,
    facts: BTreeMap<String, ContainerFacts>,
    resize: ResizeFacts,
    host_ips: Vec<String>,
    recursive_read_only: bool,
    restart_all: RestartAll,
    now: i64,
}

/// A pod `p` in namespace `ns` with uid `u` and this spec.
fn scene(spec: Value) -> Scene {
    let pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u", "generation": 3}, "spec": spec});
    Scene {
        pod: serde_json::from_value(pod).expect("a pod"),
        observed: Some(RuntimePod::default()),
        previous: None,
        rejection: None,
        stage: Stage::Active,
        ending: None,
        facts: BTreeMap::new(),
        resize: ResizeFacts::default(),
        host_ips: vec!["192.0.2.2".into()],
        recursive_read_only: false,
        restart_all: RestartAll::InForce,
        now: 1000,
    }
}

impl Scene {
    /// What the runtime shows, one thing a line: `sandbox 0 ready 10.0.0.1`, `sandbox 0 dead`,
    /// `c 0 created`, `c 0 running`, `c 0 unknown`, `c 1 exit 3`. The number is the attempt, times
    /// follow from it.
    fn see(mut self, text: &str) -> Self {
        self.observed = Some(observed(text));
        self
    }

    /// Moves all times of what the runtime shows.
    fn later(mut self, seconds: i64) -> Self {
        for container in self.observed.iter_mut().flat_map(|o| &mut o.containers) {
            container.created_at += seconds * SECOND;
            match &mut container.state {
                ContainerState::Running { started_at } => *started_at += seconds * SECOND,
                ContainerState::Exited(exit) => {
                    exit.started_at += seconds * SECOND;
                    exit.finished_at += seconds * SECOND;
                }
                ContainerState::Created | ContainerState::Unknown => {}
            }
        }
        self
    }

    /// A container can't start for this reason.
    fn waits(mut self, name: &str, reason: &str) -> Self {
        let reason = Reason { reason: reason.into(), message: format!("why {name}") };
        self.facts.entry(name.into()).or_default().waiting = Some(reason);
        self
    }

    /// Verdicts about an instance, `c-0`.
    fn probed(mut self, instance: &str, started: Option<bool>, ready: Option<bool>) -> Self {
        let name = instance.rsplit_once('-').expect("name-attempt").0;
        let facts = self.facts.entry(name.into()).or_default();
        (facts.probed, facts.started, facts.ready) = (Some(instance.into()), started, ready);
        self
    }

    fn stage(mut self, stage: Stage<'static>) -> Self {
        self.stage = stage;
        self
    }

    /// The present status becomes the previous one.
    fn told(mut self) -> Self {
        self.previous = Some(self.outcome().status);
        self.facts.values_mut().for_each(|f| f.waiting = None);
        self.now += 100;
        self
    }

    fn outcome(&self) -> Outcome {
        pod_status(&StatusInput {
            resize: &self.resize,
            pod: &self.pod,
            observed: self.observed.as_ref(),
            previous: self.previous.as_ref(),
            stage: self.rejection.as_ref().map_or(self.stage, Stage::Rejected),
            ending: self.ending.as_ref(),
            facts: &self.facts,
            host_ips: &self.host_ips,
            runtime_name: "containerd",
            recursive_read_only: self.recursive_read_only,
            qos_class: "BestEffort",
            start_time: 900 * SECOND,
            restart_all: self.restart_all,
            now: self.now * SECOND,
        })
    }
}

fn observed(text: &str) -> RuntimePod {
    let mut pod = RuntimePod { uid: Some("u".into()), ..RuntimePod::default() };
    let mut newest_sandbox = 0;
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let attempt: u32 = words[1].parse().expect("an attempt");
        let at = 100 * i64::from(attempt + 1);
        if words[0] == "sandbox" {
            newest_sandbox = newest_sandbox.max(attempt);
            pod.sandboxes.push(RuntimeSandbox {
                id: format!("sandbox-{attempt}").into(),
                attempt,
                state: if words[2] == "ready" { SandboxState::Ready } else { SandboxState::NotReady },
                created_at: at * SECOND,
                ips: words[3..].iter().filter(|w| **w != "host").map(|w| (*w).to_owned()).collect(),
                host_network: words[3..].contains(&"host"),
                runtime_handler: String::new(),
            });
            continue;
        }
        let state = match words[2] {
            "created" => ContainerState::Created,
            "running" => ContainerState::Running { started_at: (at + 1) * SECOND },
            "unknown" => ContainerState::Unknown,
            "exit" => ContainerState::Exited(Exit {
                code: words[3].parse().expect("an exit code"),
                started_at: (at + 1) * SECOND,
                finished_at: (at + 2) * SECOND,
                ..Exit::default()
            }),
            other => panic!("no such state: {other}"),
        };
        pod.containers.push(container(words[0], attempt, newest_sandbox, state));
    }
    pod
}

fn container(name: &str, attempt: u32, sandbox: u32, state: ContainerState) -> RuntimeContainer {
    RuntimeContainer {
        created_at: 100 * i64::from(attempt + 1) * SECOND,
        image: "image:1".into(),
        image_id: "sha256:1".into(),
        image_ref: "sha256:1".into(),
        ..RuntimeContainer::bare(&format!("{name}-{attempt}"), &format!("sandbox-{sandbox}"), name, attempt, state)
    }
}

/// One line for each container: name, state, restarts, and `ready`, `started` where they hold.
fn containers_text(status: &PodStatus) -> String {
    let lists = [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    let all: Vec<&ContainerStatus> = lists.into_iter().flatten().flatten().collect();
    let line = |s: &ContainerStatus| {
        let mut line = format!("{}: {}", s.name, state_text(s.state.as_ref()));
        let last = state_text(s.last_state.as_ref());
        if last != "nothing" {
            line += &format!(", last {last}");
        }
        for (word, holds) in [("ready", s.ready), ("started", s.started == Some(true))] {
            if holds {
                line += &format!(", {word}");
            }
        }
        if s.restart_count > 0 {
            line += &format!(", {} restarts", s.restart_count);
        }
        line + "\n"
    };
    all.into_iter().map(line).collect()
}

fn state_text(state: Option<&crate::api::v1::ContainerState>) -> String {
    let Some(state) = state else { return "no state".into() };
    let text = |t: &Option<String>| t.clone().unwrap_or_default();
    if let Some(waiting) = &state.waiting {
        return format!("waiting {}", text(&waiting.reason)).trim_end().to_owned();
    }
    if state.running.is_some() {
        return "running".into();
    }
    match &state.terminated {
        Some(end) => format!("exit {} {}", end.exit_code, text(&end.reason)),
        None => "nothing".into(),
    }
}

/// One line for each condition.
fn conditions_text(status: &PodStatus) -> String {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let line = |c: &PodCondition| {
        let at = c.last_transition_time.as_ref().map_or(0, |t| t.0.as_second());
        let text = |t: &Option<String>| t.as_ref().map(|t| format!(" {t}")).unwrap_or_default();
        format!("{}={} @{at}{}{}\n", c.type_, c.status, text(&c.reason), text(&c.message))
    };
    conditions.iter().map(line).collect()
}

#[test]
fn the_test_language_reads_what_it_writes() {
    let seen = observed("sandbox 0 ready 10.0.0.1\nc 0 exit 3\nc 1 running");
    assert_eq!((seen.sandboxes.len(), seen.containers.len()), (1, 2));
    assert_eq!(seen.containers[0].id.as_str(), "c-0");
    let pod = scene(json!({"containers": [{"name": "c"}]})).pod;
    assert_eq!(all_containers(&pod).count(), 1);
}

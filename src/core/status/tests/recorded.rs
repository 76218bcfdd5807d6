//! Statuses that the upstream kubelet 1.36.3 told of nine pods, from their start to their end, replayed:
//! what the runtime showed is read back from each of them, and the whole status has to come out again.
//!
//! `recorded.json` is one real run, reduced: each step holds the fields that changed. Left out are the
//! pod's own `resources` after the first step, where upstream repeats what it reads from the cgroup, and
//! start times in 1970, which we never tell; and a step in which upstream told a verdict before it had
//! redone the conditions.

use serde_json::{Map, Value};

use super::*;
use crate::api::runtime::UserIds;

fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn nanos(time: &str) -> i64 {
    let parsed: Option<Timestamp> = time.parse().ok();
    parsed.map_or(0, |t| t.as_second() * SECOND)
}

fn containers(status: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let lists = ["initContainerStatuses", "containerStatuses"];
    lists.into_iter().filter_map(|list| status.get(list)?.as_array()).flatten()
}

fn exited(end: &Value) -> ContainerState {
    ContainerState::Exited(Exit {
        code: i32::try_from(end["exitCode"].as_i64().expect("an exit code")).expect("i32"),
        reason: text(end, "/reason").into(),
        message: text(end, "/message").into(),
        started_at: nanos(text(end, "/startedAt")),
        finished_at: nanos(text(end, "/finishedAt")),
    })
}

fn instance(status: &Value, id: &str, attempt: i64, state: ContainerState) -> RuntimeContainer {
    let user = status.pointer("/user/linux").map(|ids| UserIds {
        uid: ids["uid"].as_i64().expect("a uid"),
        gid: ids["gid"].as_i64().expect("a gid"),
        supplemental_groups: ids["supplementalGroups"]
            .as_array()
            .expect("groups")
            .iter()
            .filter_map(Value::as_i64)
            .collect(),
    });
    RuntimeContainer {
        id: id.trim_start_matches("containerd://").into(),
        image: text(status, "/image").into(),
        image_ref: text(status, "/imageID").into(),
        user,
        ..container(text(status, "/name"), u32::try_from(attempt).expect("u32"), 0, state)
    }
}

/// What the runtime must have shown when this status was told.
fn runtime_of(status: &Map<String, Value>, host_network: bool) -> RuntimePod {
    let mut pod = RuntimePod::default();
    let conditions = status["conditions"].as_array().expect("conditions");
    let serves = conditions.iter().any(|c| c["type"] == "PodReadyToStartContainers" && c["status"] == "True");
    let ip = status.get("podIP").and_then(Value::as_str).unwrap_or("10.9.9.9");
    let words =
        format!("sandbox 0 {} {}", if serves { "ready" } else { "dead" }, if host_network { "host" } else { ip });
    pod.sandboxes = observed(&words).sandboxes;
    for status in containers(status) {
        let id = text(status, "/containerID");
        let attempt = status["restartCount"].as_i64().expect("a count");
        let (state, last) = (&status["state"], status.pointer("/lastState/terminated"));
        let last_id = last.map_or("", |l| text(l, "/containerID"));
        let newest = if let Some(running) = state.get("running") {
            ContainerState::Running { started_at: nanos(text(running, "/startedAt")) }
        } else if let Some(end) = state.get("terminated") {
            exited(end)
        } else if let Some(last) = last {
            exited(last)
        } else {
            continue;
        };
        if id.is_empty() {
            continue;
        }
        pod.containers.push(instance(status, id, attempt, newest));
        if !last_id.is_empty() && last_id != id {
            pod.containers.push(instance(status, last_id, attempt - 1, exited(last.expect("an end"))));
        }
    }
    pod
}

fn facts_of(status: &Map<String, Value>) -> BTreeMap<String, ContainerFacts> {
    let fact = |status: &Value| {
        let reason = text(status, "/state/waiting/reason");
        let waiting = !["", "ContainerCreating", "PodInitializing"].contains(&reason);
        ContainerFacts {
            ended: None,
            resizing: false,
            waiting: waiting
                .then(|| Reason { reason: reason.into(), message: text(status, "/state/waiting/message").into() }),
            probed: Some(text(status, "/containerID").trim_start_matches("containerd://").into()),
            started: status["started"].as_bool(),
            ready: status["ready"].as_bool(),
        }
    };
    containers(status).map(|s| (text(s, "/name").to_owned(), fact(s))).collect()
}

#[test]
fn a_recorded_run_comes_out_again() {
    let pods: Vec<Value> = serde_json::from_str(include_str!("recorded.json")).expect("JSON");
    for mut recorded in pods {
        let name = text(&recorded, "/metadata/name").to_owned();
        let mut pod: Pod =
            serde_json::from_value(json!({"metadata": recorded["metadata"], "spec": recorded["spec"]})).expect("a pod");
        let mut told: Option<PodStatus> = None;
        let mut expect = Map::new();
        for (step, change) in recorded["steps"].as_array_mut().expect("steps").iter_mut().enumerate() {
            for (key, value) in std::mem::take(change.as_object_mut().expect("an object")) {
                if value.is_null() {
                    expect.remove(&key)
                } else {
                    expect.insert(key, value)
                };
            }
            let generation = expect.get("observedGeneration").and_then(Value::as_i64);
            pod.metadata.generation = generation;
            pod.metadata.deletion_timestamp = (generation > Some(1)).then_some(Time(Timestamp::UNIX_EPOCH));
            let rejection = Reason {
                reason: expect.get("reason").and_then(Value::as_str).unwrap_or_default().to_owned(),
                message: text(&expect.get("message").cloned().unwrap_or_default(), "")
                    .trim_start_matches("Pod was rejected: ")
                    .to_owned(),
            };
            let stage = match expect["phase"].as_str() {
                _ if !rejection.reason.is_empty() => Stage::Rejected(&rejection),
                Some("Succeeded" | "Failed") => Stage::Terminated,
                _ if pod.metadata.deletion_timestamp.is_some() => Stage::Terminating,
                _ => Stage::Active,
            };
            let is_rejected = matches!(stage, Stage::Rejected(_));
            let seen =
                if is_rejected { RuntimePod::default() } else { runtime_of(&expect, pod::is_host_network(&pod)) };
            let conditions = expect.get("conditions").and_then(Value::as_array);
            let times = conditions.into_iter().flatten().map(|c| nanos(text(c, "/lastTransitionTime")));
            let start = nanos(text(&expect["startTime"], ""));
            // The runtime's address was not yet known, or is forgotten, where the status has none.
            let has_ip = expect.contains_key("podIP");
            let outcome = pod_status(&StatusInput {
                resize: &ResizeFacts::default(),
                pod: &pod,
                observed: Some(&seen),
                previous: told.as_ref(),
                stage,
                ending: None,
                facts: &facts_of(&expect),
                host_ips: if is_rejected { &[] } else { const { &[String::new()] } },
                runtime_name: "containerd",
                recursive_read_only: false,
                qos_class: expect["qosClass"].as_str().unwrap_or_default(),
                start_time: start,
                restart_all: RestartAll::InForce,
                now: times.max().unwrap_or(start),
            });
            told = Some(outcome.status.clone());
            let mut status = serde_json::to_value(outcome.status).expect("JSON");
            let mut wanted = Value::Object(expect.clone());
            for value in [&mut status, &mut wanted] {
                let fields = value.as_object_mut().expect("an object");
                if step > 0 {
                    fields.remove("resources");
                }
                if !has_ip || pod::is_host_network(&pod) {
                    fields.remove("podIP");
                    fields.remove("podIPs");
                }
                fields.remove("hostIP");
                fields.remove("hostIPs");
            }
            let (status, wanted) = (status.as_object().expect("fields"), wanted.as_object().expect("fields"));
            for key in status.keys().chain(wanted.keys()) {
                let pretty = |v: Option<&Value>| v.map(|v| format!("{v:#}")).unwrap_or_default();
                assert_eq!(pretty(status.get(key)), pretty(wanted.get(key)), "{name}, step {step}, {key}");
            }
        }
    }
}

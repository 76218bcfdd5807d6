//! What people have reported of node agents, one test each: the things that a node gets wrong in ways that hurt, and
//! that nobody notices on a good day.

use std::time::Instant;

use serde_json::{Value, json};

use crate::{
    agent::{Place, SOON, container, ground, put_pod, settle, start, wait_gone, wait_healthy, wait_running},
    fakes::{
        cri::FakeCri,
        cri_state::{Behaviour, Events, Life},
    },
    harness::{Agent, view::story, wait},
};

/// The attempt of a container's newest instance and whether it runs.
fn newest(fake: &FakeCri, pod: &str, name: &str) -> Option<(u32, bool)> {
    let id = fake.container_id(&format!("{pod}-node"), name)?;
    fake.with(|state| state.containers.get(&id).map(|it| (it.attempt(), it.life == Life::Running)))
}

#[track_caller]
fn wait_instance(agent: &Agent<'_>, fake: &FakeCri, pod: &str, name: &str, attempt: u32) {
    wait::until(&format!("instance {attempt} of {name} to run"), SOON, || match newest(fake, pod, name) {
        Some((newest, true)) if newest == attempt => Ok(()),
        other => Err(format!("{other:?}, {}", agent.pod(pod).map_or_else(|error| error, |pod| story(&pod)))),
    });
}

fn exit(fake: &FakeCri, pod: &str, name: &str, code: i32) {
    let id = fake.container_id(&format!("{pod}-node"), name).expect("a container");
    fake.exit_container(&id, code);
}

/// How a container ended, as the status has it: code and reason, of its present state or the one before.
fn end(pod: &Value, name: &str) -> Option<(i64, String)> {
    let status = pod["status"]["containerStatuses"].as_array()?.iter().find(|status| status["name"] == name)?;
    let end =
        ["state", "lastState"].into_iter().map(|state| &status[state]["terminated"]).find(|end| end.is_object())?;
    Some((end["exitCode"].as_i64()?, end["reason"].as_str().unwrap_or_default().to_owned()))
}

/// An agent that lets a crash loop wait a second at most.
fn quick(place: &Place) -> Agent<'_> {
    let agent = Agent::spawn(place, |config| {
        settle(config);
        config["crashLoopBackOff"] = json!({ "maxContainerRestartPeriod": "1s" });
    });
    wait_healthy(&agent);
    agent
}

#[test]
fn a_crash_looping_sidecar_with_a_startup_probe_restarts_after_the_agents_restart() {
    let (fake, place) = ground();
    let agent = quick(&place);
    put_pod(&agent, "looped", |spec| {
        let probe =
            json!({ "exec": { "command": ["ok"] }, "periodSeconds": 1, "timeoutSeconds": 20, "failureThreshold": 100 });
        let side = container("side", json!({ "restartPolicy": "Always", "startupProbe": probe }));
        spec["initContainers"] = json!([side]);
    });
    wait_running(&agent, "looped");
    for attempt in 1..3 {
        exit(&fake, "looped", "side", 1);
        wait_instance(&agent, &fake, "looped", "side", attempt);
    }
    // Once while the agent is away, and once more when it is back.
    agent.kill();
    exit(&fake, "looped", "side", 1);
    let agent = quick(&place);
    wait_instance(&agent, &fake, "looped", "side", 3);
    exit(&fake, "looped", "side", 1);
    wait_instance(&agent, &fake, "looped", "side", 4);
    assert_eq!(newest(&fake, "looped", "app"), Some((0, true)), "the app was left alone");
}

/// The further waits, up to five minutes, are held by `core::backoff` without a clock.
#[test]
fn the_first_crash_restarts_at_once_the_second_after_10_s_and_the_third_after_20_s() {
    let (fake, place) = ground();
    let agent = start(&place);
    put_pod(&agent, "crashes", |_| ());
    wait_running(&agent, "crashes");
    for (attempt, least, most) in [(1, 0.0, 9.0), (2, 9.5, 19.0), (3, 19.5, 50.0)] {
        let crashed = Instant::now();
        exit(&fake, "crashes", "app", 1);
        wait_instance(&agent, &fake, "crashes", "app", attempt);
        let waited = crashed.elapsed().as_secs_f64();
        assert!((least..most).contains(&waited), "instance {attempt} came after {waited} s");
    }
}

#[test]
fn a_container_that_exits_while_its_pre_stop_runs_is_not_waited_for() {
    let (fake, place) = ground();
    let agent = start(&place);
    put_pod(&agent, "hooked", |spec| {
        spec["terminationGracePeriodSeconds"] = json!(3600);
        let hook = json!({ "lifecycle": { "preStop": { "sleep": { "seconds": 3000 } } } });
        spec["containers"] = json!([container("app", hook)]);
    });
    wait_running(&agent, "hooked");
    agent.remove_manifest("hooked.yaml");
    agent.wait_pod("hooked", "its end to begin", SOON, |pod| (pod["stage"] == "Terminating").then_some(()));
    exit(&fake, "hooked", "app", 3);
    wait_gone(&agent, &fake, "hooked");
}

/// Nobody has looked between the end and the removal: what the runtime said of the end while it could is kept.
#[test]
fn the_exit_code_of_a_container_that_was_removed_before_it_was_seen_is_kept() {
    let (fake, place) = ground();
    fake.set_events(Some(Events::Sent));
    let words = Behaviour { termination_message: "the last words".to_owned(), ..Behaviour::default() };
    fake.behave("app", words);
    let agent = start(&place);
    for (name, policy, expect) in [("stays-down", "Never", Some("Failed")), ("comes-back", "Always", None)] {
        put_pod(&agent, name, |spec| {
            spec["restartPolicy"] = json!(policy);
            spec["containers"] = json!([container("app", json!({})), container("other", json!({}))]);
        });
        wait_running(&agent, name);
        let id = fake.container_id(&format!("{name}-node"), "app").expect("a container");
        fake.with(|state| {
            state.end(&id, 7, "Error");
            state.remove(&id);
        });
        let seen = agent.wait_pod(name, "its end", SOON, |pod| end(pod, "app"));
        assert_eq!(seen, (7, "Error".to_owned()), "{name}");
        let pod = agent.pod(name).expect("the pod");
        assert!(pod["status"].to_string().contains("the last words"), "{pod}");
        match expect {
            None => wait_instance(&agent, &fake, name, "app", 1),
            Some(phase) => {
                exit(&fake, name, "other", 0);
                agent.wait_pod(name, phase, SOON, |pod| (pod["status"]["phase"] == phase).then_some(()));
                assert_eq!(fake.container_id(&format!("{name}-node"), "app"), None, "it was not run again");
            }
        }
    }
    // A pod that goes as a whole, sandbox and all, behind everybody's back: the same.
    put_pod(&agent, "gone", |spec| spec["restartPolicy"] = json!("Never"));
    wait_running(&agent, "gone");
    let id = fake.container_id("gone-node", "app").expect("a container");
    fake.with(|state| {
        let sandbox = state.containers[&id].sandbox_id.clone();
        state.end(&id, 9, "Error");
        state.remove_sandbox(&sandbox);
    });
    assert_eq!(agent.wait_pod("gone", "its end", SOON, |pod| end(pod, "app")), (9, "Error".to_owned()));
}

/// Removals by the agent itself are no news: a round of restarts that it makes is one round, however late events come.
#[test]
fn what_the_agent_removes_itself_comes_back_by_no_event() {
    let (fake, place) = ground();
    fake.set_events(Some(Events::Sent));
    let agent = quick(&place);
    let rule = json!([{ "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [42] } }]);
    put_pod(&agent, "round", |spec| {
        spec["restartPolicy"] = json!("Never");
        let source = container("source", json!({ "restartPolicy": "Never", "restartPolicyRules": rule }));
        spec["containers"] = json!([source, container("one", json!({})), container("two", json!({}))]);
    });
    wait_running(&agent, "round");
    for round in 1..6 {
        exit(&fake, "round", "source", 42);
        for name in ["source", "one", "two"] {
            wait_instance(&agent, &fake, "round", name, round);
        }
    }
}

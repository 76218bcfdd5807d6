//! How containers end, by the whole program: the grace period that app, hooks and sidecars share, and ends that are told
//! though the runtime has nothing left of them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    agent::{SOON, container, ground, put_pod, remove, settle, start, wait_gone, wait_healthy, wait_running},
    fakes::{cri::FakeCri, cri_state::Behaviour},
    harness::Agent,
};

/// The calls that stopped containers, in their order, as `app 4 s`.
fn stops(fake: &FakeCri) -> Vec<String> {
    let called = fake.called();
    let stops = called.iter().filter(|line| line.starts_with("StopContainer "));
    stops.filter_map(|line| Some(line.rsplit_once('/')?.1.split_once(' ')?.1.to_owned())).collect()
}

#[test]
fn sidecars_wait_for_the_app_and_get_what_is_left_of_the_grace_period() {
    let (fake, place) = ground();
    let deaf = || Behaviour { ignores_term: true, ..Behaviour::default() };
    fake.behave("app", deaf());
    fake.behave("late", deaf());
    let agent = start(&place);
    put_pod(&agent, "row", |spec| {
        spec["terminationGracePeriodSeconds"] = json!(3);
        let always = || json!({ "restartPolicy": "Always" });
        spec["initContainers"] = json!([container("early", always()), container("late", always())]);
    });
    wait_running(&agent, "row");
    fake.forget_calls();
    remove(&agent, "row");
    wait_gone(&agent, &fake, "row");
    // The app takes all of it: the others then get the two seconds that everybody gets, side by side as with a kubelet.
    let mut stops = stops(&fake);
    stops[1..].sort();
    assert_eq!(stops[1..], ["early 2 s", "late 2 s"]);
    // A second or two of it may have gone before the call on a busy machine.
    assert!(["app 3 s", "app 2 s"].contains(&stops[0].as_str()), "{stops:?}");
}

#[test]
fn a_hook_that_overruns_costs_no_container_its_two_seconds() {
    let (fake, place) = ground();
    let agent = start(&place);
    put_pod(&agent, "hooked", |spec| {
        spec["terminationGracePeriodSeconds"] = json!(1);
        let hook = json!({ "lifecycle": { "preStop": { "exec": { "command": ["hangs"] } } } });
        spec["containers"] = json!([container("app", hook), container("other", json!({}))]);
    });
    wait_running(&agent, "hooked");
    fake.hang("ExecSync");
    fake.forget_calls();
    remove(&agent, "hooked");
    wait_gone(&agent, &fake, "hooked");
    fake.release("ExecSync");
    let mut stops = stops(&fake);
    stops.sort();
    assert_eq!(stops, ["app 2 s", "other 2 s"]);
}

#[test]
fn an_exit_code_that_was_seen_outlives_the_container() {
    let (fake, place) = ground();
    fake.behave("quick", Behaviour { exit: Some((Duration::ZERO, 5)), ..Behaviour::default() });
    let begin = || {
        let agent = Agent::spawn(&place, settle);
        wait_healthy(&agent);
        agent
    };
    let agent = begin();
    put_pod(&agent, "two", |spec| {
        spec["restartPolicy"] = json!("Never");
        spec["containers"] = json!([container("quick", json!({})), container("stays", json!({}))]);
    });
    let end = |pod: &Value| {
        let all = pod["status"]["containerStatuses"].as_array()?;
        let quick = all.iter().find(|status| status["name"] == "quick")?;
        let stays = all.iter().any(|status| status["state"]["running"].is_object());
        quick["state"]["terminated"]
            .as_object()
            .filter(|_| stays)
            .map(|end| (end["exitCode"].clone(), end["reason"].clone()))
    };
    let expect = (json!(5), json!("Error"));
    assert_eq!(agent.wait_pod("two", "an end", SOON, end), expect);
    agent.kill();
    let id = fake.container_id("two-node", "quick").expect("a container");
    fake.with(|state| state.remove(&id));
    let agent = begin();
    assert_eq!(agent.wait_pod("two", "the same end", SOON, end), expect);
    assert!(fake.container_id("two-node", "quick").is_none(), "it was not run again");
    let id = fake.container_id("two-node", "stays").expect("a container");
    fake.exit_container(&id, 0);
    let phase = |pod: &Value| pod["status"]["phase"].as_str().filter(|phase| *phase != "Running").map(str::to_owned);
    assert_eq!(agent.wait_pod("two", "its end", SOON, phase), "Failed");
}

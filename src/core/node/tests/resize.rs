//! Tests of resizes: what is allocated, when, and what is told of it.

use serde_json::json;

use super::admission::{asking, events, looked, one_cpu};
use super::deletion::{at_rest, running, with_app};
use super::*;
use crate::msg::{Reason, ResizeContainer};

/// A pod of another generation that requests so many thousandths of a CPU.
fn wants(uid: &str, millis: u32, generation: i64) -> Arc<Pod> {
    let mut pod = asking(uid, millis, &json!({})).as_ref().clone();
    pod.metadata.generation = Some(generation);
    Arc::new(pod)
}

/// A node with one CPU on which these pods run.
fn running_pods(pods: &[Arc<Pod>]) -> Story {
    let mut story = looked(one_cpu(Vec::new()));
    for count in 1..=pods.len() {
        story.source(&pods[..count]);
        story.report(&StepResult::Done);
        let uid = pods[count - 1].metadata.uid.clone().expect("a uid");
        story.see(Scope::Pod(uid.as_str().into()), vec![with_app(&uid, 0, running())], &[]);
    }
    story
}

/// The resize conditions of a pod with their reasons and messages, and what it is told to have.
fn told(story: &mut Story, uid: &str) -> Vec<String> {
    let now = Now { mono: story.mono(), wall: story.wall * 1_000_000_000 };
    let view = story.node.pod_view(now, &uid.into()).expect("the pod");
    let conditions = view.status.conditions.iter().flatten().filter(|c| c.type_.starts_with("PodResize"));
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let mut all: Vec<String> = conditions
        .map(|c| {
            format!("{} {} {} of {}", c.type_, text(&c.reason), text(&c.message), c.observed_generation.unwrap_or(0))
        })
        .collect();
    let status = &view.status.container_statuses.as_ref().expect("statuses")[0];
    all.push(format!("{:?}", status.allocated_resources.as_ref().and_then(|r| r.get("cpu")).map(|q| q.0.clone())));
    all
}

/// The resizes that the newest work carries out: from and to which CPU request.
fn resizes(story: &Story) -> Vec<(i64, i64)> {
    let steps = &story.works.last().expect("a work").steps;
    let all = steps.iter().filter_map(|planned| match &planned.step {
        Step::ResizeContainers(all) => Some(all),
        _ => None,
    });
    all.flatten().map(|one: &ResizeContainer| (one.from.cpu_request, one.to.cpu_request)).collect()
}

fn reasons(story: &Story, uid: &str) -> Vec<String> {
    events(story, uid).iter().filter_map(|e| e.split_once(':').map(|(reason, _)| reason.to_owned())).collect()
}

#[test]
fn a_resize_that_fits_is_carried_out_and_survives_the_agent() {
    let mut story = running_pods(&[wants("a", 300, 1)]);
    assert_eq!(story.source(&[wants("a", 500, 2)]), "record a, work a");
    assert_eq!(resizes(&story), [(300, 500)]);
    let asked = ResizeAsked { resource: "cpu", requirement: "requests", operation: "increase" };
    assert!(story.tallies.contains(&Tally::ResizeAsked(asked)), "{:?}", story.tallies);
    assert_eq!(told(&mut story, "a"), ["PodResizeInProgress   of 2", "Some(\"500m\")"]);
    assert_eq!(reasons(&story, "a"), ["ResizeStarted"]);

    // The work failed, the agent dies, and a new one has still to do it.
    let failed = Reason { reason: "ResizePodInPlaceError".to_owned(), message: "no such file".to_owned() };
    story.report(&StepResult::Failed(failed));
    assert_eq!(told(&mut story, "a")[0], "PodResizeInProgress Error no such file of 2");
    assert_eq!(reasons(&story, "a"), ["ResizeStarted", "ResizeError"]);
    story.restart("boot");
    story.source(&[wants("a", 500, 2)]);
    story.see(Scope::All, vec![with_app("a", 0, running())], &[]);
    assert_eq!(resizes(&story), [(300, 500)]);
    assert_eq!(told(&mut story, "a"), ["PodResizeInProgress   of 2", "Some(\"500m\")"]);
    assert_eq!(story.report(&StepResult::Done), "inspect all of a, record a");
    story.see(Scope::Pod("a".into()), vec![with_app("a", 0, running())], &[]);
    assert_eq!(told(&mut story, "a"), ["Some(\"500m\")"]);
    assert_eq!(reasons(&story, "a"), ["ResizeCompleted"]);
    assert_eq!(story.works.len(), 1);
}

#[test]
fn a_resize_without_room_waits_and_the_pod_goes_on_with_what_it_has() {
    let mut story = running_pods(&[wants("a", 300, 1), wants("b", 600, 1)]);
    let works = story.works.len();
    story.source(&[wants("a", 500, 2), wants("b", 600, 1)]);
    let why = "Node didn't have enough resource: cpu, requested: 500, used: 600, capacity: 1000";
    assert_eq!(told(&mut story, "a"), [format!("PodResizePending Deferred {why} of 2"), "Some(\"300m\")".to_owned()]);
    assert_eq!((reasons(&story, "a"), story.works.len()), (vec!["ResizeDeferred".to_owned()], works));
    // A new life of the agent knows what was allocated, and tells nothing twice.
    let mut deferred = wants("a", 500, 2).as_ref().clone();
    let conditions = json!([{"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": why,
        "observedGeneration": 2}]);
    deferred.status = serde_json::from_value(json!({ "conditions": conditions })).expect("a status");
    let deferred = Arc::new(deferred);
    let mut touched = deferred.as_ref().clone();
    touched.metadata.resource_version = Some("9".to_owned());
    story.restart("boot");
    story.source(&[Arc::new(touched), wants("b", 600, 1)]);
    story.source(&[Arc::clone(&deferred), wants("b", 600, 1)]);
    story.see(Scope::All, vec![with_app("a", 0, running()), with_app("b", 0, running())], &[]);
    assert_eq!(told(&mut story, "a"), [format!("PodResizePending Deferred {why} of 2"), "Some(\"300m\")".to_owned()]);
    assert_eq!((reasons(&story, "a"), story.works.len()), (vec![], 0));
    // It is looked at again some time, and at once when another gives its room back.
    let again = story.node.next_deadline().expect("another look");
    assert!(again.since(story.mono()) > Duration::from_secs(100), "{again:?}");
    story.source(&[Arc::clone(&deferred)]);
    story.report(&StepResult::Done);
    story.see(Scope::Pod("b".into()), vec![at_rest("b", 137)], &[]);
    assert_eq!(resizes(&story), [(300, 500)]);
    assert_eq!(told(&mut story, "a"), ["PodResizeInProgress   of 2", "Some(\"500m\")"]);
}

#[test]
fn a_wish_that_is_taken_back_is_no_resize() {
    let mut story = running_pods(&[wants("a", 300, 1)]);
    let works = story.works.len();
    story.source(&[wants("a", 5000, 2)]);
    assert_eq!(told(&mut story, "a").len(), 2);
    story.source(&[wants("a", 300, 3)]);
    assert_eq!((told(&mut story, "a"), story.works.len()), (vec!["Some(\"300m\")".to_owned()], works));
    assert_eq!(story.node.next_deadline(), None);
}

#[test]
fn a_container_that_does_not_run_gets_its_sizes_when_it_starts() {
    let mut story = running_pods(&[wants("a", 300, 1)]);
    let ended = ContainerState::Exited(Exit { code: 1, ..Exit::default() });
    story.see(Scope::Pod("a".into()), vec![with_app("a", 0, ended)], &[]);
    // It is being started with what it had when the wish comes: that is told apart.
    story.source(&[wants("a", 500, 2)]);
    assert_eq!(told(&mut story, "a"), ["Some(\"300m\")"]);
    story.report(&StepResult::Done);
    story.see(Scope::Pod("a".into()), vec![with_app("a", 1, running())], &[]);
    assert_eq!(resizes(&story), [(300, 500)]);
}

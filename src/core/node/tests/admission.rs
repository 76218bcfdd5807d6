//! Tests of admission on the node: who is asked about first, what is kept over a restart, how room is made.

use serde_json::{Value, json};

use super::deletion::{at_rest, running, with_app};
use super::*;
use crate::api::labels;
use crate::core::node::entry::Stage;
use crate::msg::Reason;

/// A pod that requests so many thousandths of a CPU; `more` is laid over its spec.
pub(super) fn asking(uid: &str, millis: u32, more: &Value) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": {"uid": uid, "name": uid, "namespace": "ns"},
        "spec": {
            "containers": [{"name": "app", "image": "i:1", "resources": {"requests": {"cpu": format!("{millis}m")}}}],
            "terminationGracePeriodSeconds": 20,
        },
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

fn created(pod: &Arc<Pod>, time: &str) -> Arc<Pod> {
    let mut pod = pod.as_ref().clone();
    pod.metadata.creation_timestamp = serde_json::from_value(json!(time)).expect("a time");
    Arc::new(pod)
}

fn critical(uid: &str, millis: u32) -> Arc<Pod> {
    asking(uid, millis, &json!({"priority": 2_000_000_000}))
}

/// A node with one CPU, that has looked at its runtime; it remembers `records`.
pub(super) fn one_cpu(records: Vec<PodRecord>) -> Story {
    let mut story = Story::new();
    let one = Amount::from_value(1, Format::DecimalSi);
    story.node.settings.admission.allocatable.insert("cpu".to_owned(), one);
    story.node = Node::new(story.node.settings.clone(), records);
    story
}

/// Looks at the runtime for the first time.
pub(super) fn looked(mut story: Story) -> Story {
    story.see(Scope::All, Vec::new(), &[]);
    story
}

/// Stage, phase, reason and message of a pod.
pub(super) fn told(story: &mut Story, uid: &str) -> String {
    let now = Now { mono: story.mono(), wall: 1_000_000_000 };
    let Some(view) = story.node.pod_view(now, &PodUid::from(uid)) else { return "gone".to_owned() };
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let status = &view.status;
    let words = [view.stage.clone(), text(&status.phase), text(&status.reason), text(&status.message)];
    words.join(" ").trim_end().to_owned()
}

pub(super) fn events(story: &Story, uid: &str) -> Vec<String> {
    let entry = &story.node.pods[&PodUid::from(uid)];
    entry.events.iter().map(|e| format!("{}: {}", e.event.reason, e.event.message)).collect()
}

/// The pod's last work ends, and a look finds nothing running.
pub(super) fn rests(story: &mut Story, uid: &str) -> String {
    story.report(&StepResult::Done);
    story.see(Scope::Pod(uid.into()), vec![at_rest(uid, 137)], &[])
}

/// A node on which `low` runs, which has 700 of the 1000 thousandths.
fn low_runs() -> Story {
    let mut story = looked(one_cpu(Vec::new()));
    story.source(&[asking("low", 700, &json!({}))]);
    story.report(&StepResult::Done);
    story.see(Scope::Pod("low".into()), vec![with_app("low", 0, running())], &[]);
    story
}

#[test]
fn a_pod_without_room_fails_and_nothing_is_done_for_it() {
    let mut story = looked(one_cpu(Vec::new()));
    assert_eq!(story.source(&[asking("a", 64_000, &json!({}))]), "");
    let why = "Node didn't have enough resource: cpu, requested: 64000, used: 0, capacity: 1000";
    assert_eq!(told(&mut story, "a"), format!("Rejected Failed OutOfcpu Pod was rejected: {why}"));
    assert_eq!(events(&story, "a"), [format!("OutOfcpu: {why}")]);
    // Room that comes later changes nothing: the pod has failed.
    let more = Amount::from_value(100, Format::DecimalSi);
    story.node.settings.admission.allocatable.insert("cpu".to_owned(), more);
    story.see(Scope::All, Vec::new(), &[]);
    assert!(told(&mut story, "a").starts_with("Rejected"));
    assert_eq!(story.source(&[]), "");
    assert_eq!(told(&mut story, "a"), "gone");
}

#[test]
fn the_oldest_is_asked_about_first() {
    let port = json!({"containers": [{"name": "app", "image": "i:1", "ports": [{"hostPort": 80}]}]});
    let young = created(&asking("a", 0, &port), "2026-11-30T10:00:02Z");
    let old = created(&asking("b", 0, &port), "2026-11-30T10:00:01Z");
    let both = [young, old];
    // Together, before and after the first look at the runtime.
    let mut early = one_cpu(Vec::new());
    early.source(&both);
    let mut early = looked(early);
    let mut late = looked(one_cpu(Vec::new()));
    late.source(&both);
    for story in [&mut early, &mut late] {
        assert_eq!(told(story, "b"), "Active Pending");
        let why = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        assert_eq!(told(story, "a"), format!("Rejected Failed NodePorts Pod was rejected: {why}"));
    }
}

#[test]
fn a_pod_that_its_source_drops_makes_way_at_once() {
    let mut story = low_runs();
    story.source(&[asking("next", 700, &json!({}))]);
    assert_eq!(told(&mut story, "next"), "Active Pending");
    assert!(told(&mut story, "low").starts_with("Terminating"));
}

#[test]
fn what_was_admitted_stays_so_over_a_restart() {
    let story = low_runs();
    let record = story.node.pods[&PodUid::from("low")].saved.clone().expect("a record");
    let wanted = [asking("a", 700, &json!({})), asking("low", 700, &json!({}))];
    // By its record, though nothing of it runs any more.
    let mut story = one_cpu(vec![record.as_ref().clone()]);
    story.source(&wanted);
    let mut story = looked(story);
    assert_eq!(told(&mut story, "low"), "Active Pending");
    assert!(told(&mut story, "a").starts_with("Rejected Failed OutOfcpu"), "{}", told(&mut story, "a"));
    // By the runtime, though the node is smaller now.
    let mut story = one_cpu(Vec::new());
    story.node.settings.admission.allocatable.remove("cpu");
    story.source(&wanted);
    story.see(Scope::All, vec![with_app("low", 0, running())], &[]);
    assert_eq!(told(&mut story, "low"), "Active Running");
    assert!(told(&mut story, "a").starts_with("Rejected Failed OutOfcpu"));
    // And whether source or runtime speaks first.
    for records in [vec![record.as_ref().clone()], Vec::new()] {
        let mut story = one_cpu(records);
        story.see(Scope::All, vec![with_app("low", 0, running())], &[]);
        story.source(&wanted);
        assert_eq!(told(&mut story, "low"), "Active Running");
        assert!(told(&mut story, "a").starts_with("Rejected Failed OutOfcpu"));
    }
}

#[test]
fn a_critical_pod_starts_when_others_have_made_room() {
    let mut story = low_runs();
    let (low, high) = (asking("low", 700, &json!({})), critical("high", 600));
    assert_eq!(story.source(&[low.clone(), high.clone()]), "record low, work low");
    let first = story.works.last().and_then(|work| work.steps.first()).expect("a step");
    assert!(
        matches!(&first.step, Step::StopContainers { grace, .. } if *grace == Duration::from_secs(20)),
        "{first:?}"
    );
    assert_eq!(told(&mut story, "high"), "MakingRoom Pending");
    assert!(story.tallies.contains(&Tally::Preempted { short: "cpu".to_owned() }), "{:?}", story.tallies);
    assert_eq!(events(&story, "low"), ["Preempting: Preempted in order to admit critical pod"]);
    // The room is promised: nobody else gets it.
    story.source(&[low, high, asking("thief", 500, &json!({}))]);
    assert!(told(&mut story, "thief").starts_with("Rejected Failed OutOfcpu"));
    assert_eq!(rests(&mut story, "low"), "record low, work low, record high, work high");
    assert_eq!(told(&mut story, "high"), "Active Pending");
    let end = "Failed Preempting Preempted in order to admit critical pod";
    assert_eq!(told(&mut story, "low"), format!("Releasing {end}"));
    let now = Now { mono: story.mono(), wall: 0 };
    let view = story.node.pod_view(now, &PodUid::from("low")).expect("a view");
    let conditions = view.status.conditions.clone().unwrap_or_default();
    let target = conditions.iter().find(|c| c.type_ == "DisruptionTarget").expect("the condition");
    assert_eq!(target.reason.as_deref(), Some("TerminationByKubelet"));
}

#[test]
fn a_pod_that_does_not_make_room_in_time_is_waited_for_no_longer() {
    let mut story = low_runs();
    story.source(&[asking("low", 700, &json!({})), critical("high", 600)]);
    assert_eq!(story.node.next_deadline(), Some(story.mono() + Duration::from_secs(30)));
    story.seconds += 29;
    assert_eq!(story.tell(Input::Timer), "record high, work high");
    let late = "ExceededGracePeriod: Container runtime did not kill the pod within specified grace period.";
    assert_eq!(events(&story, "low").last().map(String::as_str), Some(late));
}

#[test]
fn a_critical_pod_that_is_dropped_while_it_waits_leaves_nothing() {
    let mut story = low_runs();
    story.source(&[asking("low", 700, &json!({})), critical("high", 600)]);
    story.source(&[asking("low", 700, &json!({}))]);
    assert_eq!(told(&mut story, "high"), "gone");
    // What was ended for it stays ended.
    rests(&mut story, "low");
    assert!(told(&mut story, "low").starts_with("Releasing Failed Preempting"));
}

#[test]
fn a_pod_that_made_room_keeps_its_reason_over_a_restart() {
    let mut story = low_runs();
    story.source(&[asking("low", 700, &json!({})), critical("high", 600)]);
    let record = story.node.pods[&PodUid::from("low")].saved.clone().expect("a record");
    let mut story = one_cpu(vec![record.as_ref().clone()]);
    story.source(&[asking("low", 700, &json!({})), critical("high", 600)]);
    story.see(Scope::All, vec![with_app("low", 0, running())], &[]);
    assert_eq!(told(&mut story, "high"), "MakingRoom Pending");
    assert_eq!(events(&story, "low"), Vec::<String>::new());
    rests(&mut story, "low");
    assert_eq!(told(&mut story, "low"), "Releasing Failed Preempting Preempted in order to admit critical pod");
    assert_eq!(told(&mut story, "high"), "Active Pending");
}

#[test]
fn a_static_pod_that_nobody_can_make_room_for_is_refused() {
    let mut story = looked(one_cpu(Vec::new()));
    let mut pod = asking("a", 64_000, &json!({})).as_ref().clone();
    pod.metadata.annotations = Some([(labels::CONFIG_SOURCE.to_owned(), "file".to_owned())].into());
    story.source(&[Arc::new(pod)]);
    let why = "preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 63000), ]";
    let told = told(&mut story, "a");
    let start = "Rejected Failed UnexpectedAdmissionError Pod was rejected: Unexpected error while attempting to recover from admission failure: ";
    assert_eq!(told, format!("{start}{why}"));
    assert!(matches!(story.node.pods[&PodUid::from("a")].stage, Stage::Rejected(_)));
}

/// A node with a hook, on which `low` runs.
fn with_hook() -> Story {
    let mut story = low_runs();
    story.node.settings.admission_hook = true;
    story
}

fn with_low(more: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
    [&[asking("low", 700, &json!({}))], more].concat()
}

#[test]
fn the_hook_has_the_last_word() {
    let mut story = with_hook();
    assert_eq!(story.source(&with_low(&[asking("a", 200, &json!({}))])), "work a");
    let steps: Vec<&Step> = story.works.last().expect("a work").steps.iter().map(|s| &s.step).collect();
    assert_eq!(steps, [&Step::AskAdmissionHook]);
    assert_eq!(told(&mut story, "a"), "Asking Pending");
    // Nothing was done in the runtime: it starts at once, without another look.
    assert_eq!(story.report(&StepResult::Done), "record a, work a");
    assert_eq!(told(&mut story, "a"), "Active Pending");

    story.source(&with_low(&[asking("b", 100, &json!({}))]));
    let why = Reason { reason: "NoGpu".to_owned(), message: "no GPU here".to_owned() };
    assert_eq!(story.report(&StepResult::Refused(why)), "");
    assert_eq!(told(&mut story, "b"), "Rejected Failed NoGpu Pod was rejected: no GPU here");
    assert_eq!(events(&story, "b"), ["NoGpu: no GPU here"]);
}

#[test]
fn the_hook_is_not_asked_about_pods_that_the_node_refuses_or_has_admitted() {
    let mut story = with_hook();
    assert_eq!(story.source(&with_low(&[asking("a", 64_000, &json!({}))])), "");
    assert!(told(&mut story, "a").starts_with("Rejected Failed OutOfcpu"));
    let record = story.node.pods[&PodUid::from("low")].saved.clone().expect("a record");
    let mut story = one_cpu(vec![record.as_ref().clone()]);
    story.node.settings.admission_hook = true;
    story.source(&with_low(&[]));
    let mut story = looked(story);
    assert_eq!(told(&mut story, "low"), "Active Pending");
}

#[test]
fn room_is_kept_while_the_hook_thinks_and_made_when_it_has_agreed() {
    let mut story = with_hook();
    let high = critical("high", 600);
    assert_eq!(story.source(&with_low(std::slice::from_ref(&high))), "work high");
    assert!(told(&mut story, "low").starts_with("Active"));
    story.source(&with_low(&[high, asking("thief", 200, &json!({}))]));
    assert!(told(&mut story, "thief").starts_with("Rejected Failed OutOfcpu"));
    assert_eq!(story.report(&StepResult::Done), "record low, work low");
    assert_eq!(told(&mut story, "high"), "MakingRoom Pending");
}

#[test]
fn a_question_that_did_not_reach_the_hook_is_asked_again() {
    let mut story = with_hook();
    story.source(&with_low(&[asking("a", 200, &json!({}))]));
    let failed = StepResult::Failed(Reason { reason: "NoThread".to_owned(), message: String::new() });
    // The first time after a second, which is over when the report comes; then later and later.
    assert_eq!(story.report(&failed), "work a");
    assert_eq!(story.report(&failed), "");
    assert_eq!(told(&mut story, "a"), "Asking Pending");
    assert!(story.node.next_deadline().is_some_and(|at| at > story.mono()));
    story.seconds += 10;
    assert_eq!(story.tell(Input::Timer), "work a");
}

#[test]
fn a_pod_that_is_dropped_while_the_hook_thinks_is_gone_when_its_worker_is_free() {
    let mut story = with_hook();
    story.source(&with_low(&[asking("a", 200, &json!({}))]));
    story.source(&with_low(&[]));
    assert!(story.works.last().expect("a work").cancel.is_cancelled());
    assert_eq!(story.report(&StepResult::Skipped), "");
    assert_eq!(told(&mut story, "a"), "gone");
}

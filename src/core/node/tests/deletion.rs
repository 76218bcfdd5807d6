//! Tests of how pods of the API server end: deleted in time, at once, while starting, while the agent
//! was away.

use serde_json::{Value, json};

use super::*;
use crate::api::labels::{self, Marks};
use crate::api::runtime::{ContainerState, Exit, RuntimeContainer};
use crate::api::v1::PodStatus;
use crate::msg::{Life, PlannedStep, Reason};

/// A pod of the API server; `more` is merged into it.
fn api_pod(uid: &str, more: Value) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": {
            "uid": uid, "name": "a", "namespace": "ns", "resourceVersion": "1", "generation": 1,
            "annotations": {"kubernetes.io/config.source": "api"},
        },
        "spec": {"containers": [{"name": "app", "image": "i:1"}], "terminationGracePeriodSeconds": 30},
        "status": {"phase": "Pending"},
    });
    merge(&mut pod, more);
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

fn deleted(uid: &str, grace: i64) -> Arc<Pod> {
    api_pod(
        uid,
        json!({"metadata": {
            "deletionTimestamp": "2026-11-30T10:00:00Z", "deletionGracePeriodSeconds": grace, "generation": 2,
        }}),
    )
}

/// The pod's sandbox with its one container in it.
pub(super) fn with_app(uid: &str, attempt: u32, state: ContainerState) -> Arc<RuntimePod> {
    let mut pod = a_sandbox(uid, "a").as_ref().clone();
    pod.containers.push(RuntimeContainer {
        created_at: 1,
        image: "i:1".to_owned(),
        marks: Marks { hash: labels::container_hash("app", "i:1"), ..Marks::default() },
        ..RuntimeContainer::bare(&format!("app-{attempt}"), "sandbox", "app", attempt, state)
    });
    Arc::new(pod)
}

pub(super) fn running() -> ContainerState {
    ContainerState::Running { started_at: 1_000_000_000 }
}

fn exited(code: i32) -> ContainerState {
    ContainerState::Exited(Exit { code, ..Exit::default() })
}

/// The pod at rest: its sandbox stopped, its container ended.
pub(super) fn at_rest(uid: &str, code: i32) -> Arc<RuntimePod> {
    let mut pod = with_app(uid, 0, exited(code)).as_ref().clone();
    pod.sandboxes[0].state = SandboxState::NotReady;
    Arc::new(pod)
}

impl Story {
    /// A pod of the API that runs.
    fn with_running_pod(pod: &Arc<Pod>) -> Self {
        let mut story = Self::of(SourceKind::Api);
        story.source(std::slice::from_ref(pod));
        story.see(Scope::All, vec![with_app("u", 0, running())], &[]);
        assert_eq!((story.works.len(), story.life("u")), (0, Some(Life::Active)));
        story
    }

    fn view_of(&mut self, uid: &str) -> Option<Arc<PodView>> {
        let now = Now { mono: self.mono(), wall: 1_000_000_000 * i64::try_from(self.seconds).expect("small") };
        self.node.pod_view(now, &PodUid::from(uid))
    }

    fn life(&mut self, uid: &str) -> Option<Life> {
        self.view_of(uid).map(|view| view.life)
    }

    fn status(&mut self, uid: &str) -> Arc<PodStatus> {
        Arc::clone(&self.view_of(uid).expect("a pod").status)
    }

    /// Seconds that the newest work gives the containers.
    fn grace_given(&self) -> Option<u64> {
        self.works.last()?.steps.iter().find_map(|step| match &step.step {
            Step::StopContainers { grace, .. } => Some(grace.as_secs()),
            _ => None,
        })
    }

    /// A look finds it at rest, and the work that removes the last of it succeeds.
    fn is_forgotten(&mut self, uid: &str, code: i32) -> String {
        assert_eq!(self.see(Scope::Pod(uid.into()), vec![at_rest(uid, code)], &[]), format!("work {uid}"));
        self.report(&StepResult::Done)
    }

    /// The stop worked, and everything after it.
    fn comes_to_rest(&mut self, uid: &str, code: i32) {
        self.report(&StepResult::Done);
        self.see(Scope::Pod(uid.into()), vec![at_rest(uid, code)], &[]);
        self.report(&StepResult::Done);
    }
}

#[test]
fn a_deleted_pod_ends_within_the_grace_of_its_deletion_and_is_told_as_over() {
    let mut story = Story::with_running_pod(&api_pod("u", json!({})));
    assert_eq!(story.source(&[deleted("u", 7)]), "record u, work u");
    assert_eq!((story.grace_given(), story.life("u")), (Some(7), Some(Life::Ending)));
    assert_eq!(story.status("u").phase.as_deref(), Some("Running"));
    story.comes_to_rest("u", 0);
    assert_eq!(story.life("u"), Some(Life::Over));
    let status = story.status("u");
    assert_eq!((status.phase.as_deref(), status.observed_generation), (Some("Succeeded"), Some(2)));
    // Whoever holds a finalizer holds the object, and nothing else happens to it.
    story.source(&[deleted("u", 0)]);
    assert_eq!((story.works.len(), story.life("u")), (2, Some(Life::Over)));
    // Gone from the API, it is forgotten here.
    story.source(&[]);
    assert_eq!(story.is_forgotten("u", 0), "unrecord u");
    assert!(story.view_of("u").is_none());
}

#[test]
fn a_grace_period_that_is_shortened_on_the_way_overtakes_the_stop_under_way() {
    let mut story = Story::with_running_pod(&api_pod("u", json!({})));
    story.source(&[deleted("u", 60)]);
    assert_eq!(story.grace_given(), Some(60));
    story.source(&[deleted("u", 90)]);
    assert!(!story.works[0].cancel.is_cancelled(), "a grace period never grows");
    story.source(&[deleted("u", 0)]);
    assert!(story.works[0].cancel.is_cancelled());
    story.report(&StepResult::Failed(Reason { reason: "KillContainerError".into(), message: "given up".into() }));
    assert_eq!(story.see(Scope::Pod("u".into()), vec![with_app("u", 0, running())], &[]), "work u");
    assert_eq!(story.grace_given(), Some(0));
}

#[test]
fn a_pod_that_vanishes_from_the_api_ends_and_leaves_nothing() {
    let mut story = Story::with_running_pod(&api_pod("u", json!({})));
    assert_eq!(story.source(&[]), "record u, work u");
    assert_eq!(story.grace_given(), Some(30));
    story.comes_to_rest("u", 0);
    assert_eq!(story.is_forgotten("u", 0), "unrecord u");
}

#[test]
fn a_pod_deleted_while_it_starts_starts_nothing_more() {
    let mut story = Story::of(SourceKind::Api);
    story.source(&[api_pod("u", json!({}))]);
    assert_eq!(story.see(Scope::All, Vec::new(), &[]), "record u, work u");
    story.source(&[deleted("u", 30)]);
    assert!(story.works[0].cancel.is_cancelled());
    story.report(&StepResult::Skipped);
    story.see(Scope::Pod("u".into()), vec![a_sandbox("u", "a")], &[]);
    let steps: Vec<&Step> = story.works[1].steps.iter().map(|s| &s.step).collect();
    assert_eq!(steps, [&Step::StopSandbox(SandboxId::from("sandbox"))]);
    story.report(&StepResult::Done);
    let mut seen = a_sandbox("u", "a").as_ref().clone();
    seen.sandboxes[0].state = SandboxState::NotReady;
    story.see(Scope::Pod("u".into()), vec![Arc::new(seen)], &[]);
    story.report(&StepResult::Done);
    assert_eq!((story.life("u"), story.status("u").phase.as_deref()), (Some(Life::Over), Some("Failed")));
}

#[test]
fn a_pod_deleted_before_its_turn_needs_no_turn() {
    let mut story = Story::of(SourceKind::Api);
    story.source(&[deleted("u", 30)]);
    assert_eq!(story.see(Scope::All, Vec::new(), &[]), "record u, work u");
    let steps: Vec<&Step> = story.works[0].steps.iter().map(|s| &s.step).collect();
    assert_eq!(steps, [&Step::ReleasePod]);
    story.report(&StepResult::Done);
    assert_eq!((story.life("u"), story.status("u").phase.as_deref()), (Some(Life::Over), Some("Failed")));
}

#[test]
fn a_pod_deleted_while_the_agent_was_away_ends_from_where_it_is() {
    let mut story = Story::of(SourceKind::Api);
    story.source(&[deleted("u", 5)]);
    assert_eq!(story.see(Scope::All, vec![with_app("u", 0, running())], &[]), "record u, work u");
    assert_eq!(story.grace_given(), Some(5));
}

#[test]
fn a_pod_gone_from_the_api_while_the_agent_was_away_ends_too() {
    let mut story = Story::of(SourceKind::Api);
    story.see(Scope::All, vec![with_app("u", 0, running())], &[]);
    assert_eq!(story.source(&[]), "record u, work u");
}

#[test]
fn a_pod_of_the_same_name_waits_until_its_elder_has_ended() {
    let mut story = Story::with_running_pod(&api_pod("u", json!({})));
    story.source(&[api_pod("v", json!({}))]);
    assert_eq!((story.life("u"), story.life("v")), (Some(Life::Ending), Some(Life::Waiting)));
    story.comes_to_rest("u", 0);
    assert_eq!(story.is_forgotten("u", 0), "unrecord u, record v, work v");
}

#[test]
fn metadata_and_status_of_the_api_change_nothing_that_runs() {
    let mut story = Story::with_running_pod(&api_pod("u", json!({})));
    let relabelled = api_pod(
        "u",
        json!({
            "metadata": {"labels": {"a": "b"}, "resourceVersion": "9"},
            "status": {"phase": "Running"},
        }),
    );
    assert_eq!(story.source(&[relabelled]), "");
    assert_eq!(story.works.len(), 0);
}

#[test]
fn what_the_api_writes_anew_is_no_news_for_the_disk() {
    let mut story = Story::of(SourceKind::Api);
    story.source(&[api_pod("u", json!({}))]);
    assert_eq!(story.see(Scope::All, Vec::new(), &[]), "record u, work u");
    let newer = json!({"metadata": {"resourceVersion": "2"}, "status": {"phase": "Running"}});
    assert_eq!(story.source(&[api_pod("u", newer)]), "");
    assert_eq!(story.source(&[api_pod("u", json!({"metadata": {"labels": {"a": "b"}}}))]), "record u");
}

#[test]
fn a_new_image_restarts_its_container() {
    let mut story = Story::with_running_pod(&api_pod("u", json!({})));
    let image = json!({"spec": {"containers": [{"name": "app", "image": "i:2"}]}});
    assert_eq!(story.source(&[api_pod("u", image)]), "record u, work u");
    let starts = |step: &PlannedStep| matches!(&step.step, Step::StartContainer { attempt: 1, .. });
    assert!(story.works[0].steps.iter().any(starts), "{:?}", story.works[0].steps);
}

#[test]
fn a_deadline_that_comes_later_counts_from_the_start() {
    let mut story = Story::with_running_pod(&api_pod("u", json!({})));
    story.source(&[api_pod("u", json!({"spec": {"activeDeadlineSeconds": 1000}}))]);
    assert_eq!(story.life("u"), Some(Life::Active));
    assert_eq!(
        story.source(&[api_pod("u", json!({"spec": {"activeDeadlineSeconds": 1}}))]),
        "tell a DeadlineExceeded, record u, work u"
    );
    assert_eq!(story.life("u"), Some(Life::Ending));
}

/// What the API was told by an earlier life of the agent, which left no record.
fn told(state: Value, restarts: i32) -> Value {
    json!({"status": {
        "phase": "Running",
        "startTime": "1970-01-01T00:00:50Z",
        "containerStatuses": [{
            "name": "app", "image": "i:1", "imageID": "", "containerID": "r://app-0", "ready": true, "started": true,
            "restartCount": restarts, "state": state, "lastState": {},
        }],
    }})
}

#[test]
fn what_the_api_was_told_counts_after_a_restart_without_a_record() {
    let mut story = Story::of(SourceKind::Api);
    let state = json!({"running": {"startedAt": "1970-01-01T00:00:01Z"}});
    story.source(&[api_pod("u", told(state, 4))]);
    // Before the runtime was looked at, everything is as it was told.
    let status = story.status("u");
    let container = &status.container_statuses.as_deref().expect("containers")[0];
    assert_eq!((container.ready, container.restart_count, status.phase.as_deref()), (true, 4, Some("Running")));
    // The runtime has lost it: its restart is the fifth.
    story.see(Scope::All, Vec::new(), &[]);
    let attempts: Vec<u32> = story.works[0]
        .steps
        .iter()
        .filter_map(|step| match step.step {
            Step::StartContainer { attempt, .. } => Some(attempt),
            _ => None,
        })
        .collect();
    assert_eq!(attempts, [5]);
    let status = story.status("u");
    assert_eq!(status.start_time.as_ref().map(|t| t.0.as_second()), Some(50));
    assert_eq!(status.phase.as_deref(), Some("Running"));
}

#[test]
fn a_pod_that_the_api_knows_as_ended_never_starts_again() {
    for phase in ["Succeeded", "Failed"] {
        let mut story = Story::of(SourceKind::Api);
        story.source(&[api_pod("u", json!({"status": {"phase": phase}}))]);
        story.see(Scope::All, Vec::new(), &[]);
        let steps: Vec<&Step> = story.works.iter().flat_map(|w| &w.steps).map(|s| &s.step).collect();
        assert_eq!(steps, [&Step::ReleasePod], "{phase}");
        story.report(&StepResult::Done);
        assert_eq!((story.life("u"), story.status("u").phase.as_deref()), (Some(Life::Over), Some(phase)));
    }
}

#[test]
fn a_container_that_ended_for_good_stays_so_though_the_runtime_forgot_it() {
    let mut story = Story::of(SourceKind::Api);
    let state = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
    let mut more = told(state, 0);
    merge(&mut more, json!({"spec": {"restartPolicy": "Never"}}));
    story.source(&[api_pod("u", more)]);
    story.see(Scope::All, Vec::new(), &[]);
    let starts = story.works.iter().flat_map(|w| &w.steps).any(|s| matches!(s.step, Step::StartContainer { .. }));
    assert!(!starts, "{:?}", story.works);
    story.report(&StepResult::Done);
    assert_eq!(story.status("u").phase.as_deref(), Some("Succeeded"));
}

#[test]
fn events_are_told_with_the_object_they_speak_of() {
    let mut story = Story::with_running_pod(&api_pod("u", json!({"metadata": {"resourceVersion": "77"}})));
    let event = PodEvent {
        uid: PodUid::from("u"),
        field_path: "spec.containers{app}".to_owned(),
        event_type: crate::msg::EventType::Normal,
        reason: "Pulled".to_owned(),
        message: "m".to_owned(),
        at: 5,
    };
    let now = Now { mono: story.mono(), wall: 0 };
    let mut effects = story.node.step(now, Input::Event(event));
    effects.retain(|effect| !matches!(effect, Effect::Count(_)));
    let [Effect::Tell(told)] = &effects[..] else { panic!("{effects:?}") };
    let object = &told.object;
    let texts = (object.kind, &*object.namespace, &*object.name, &*object.uid, &*object.resource_version);
    assert_eq!(texts, ("Pod", "ns", "a", "u", "77"));
    assert_eq!((&*object.field_path, told.at), ("spec.containers{app}", 5));
}

#[test]
fn a_pod_that_was_not_looked_at_yet_is_as_it_was_told() {
    let told = json!({"status": {"phase": "Running", "containerStatuses": [{
        "name": "app", "ready": true, "started": true, "restartCount": 0, "image": "i:1", "imageID": "x",
        "containerID": "r://app-0", "state": {"running": {"startedAt": "2026-11-30T10:00:00Z"}},
    }]}});
    let mut story = Story::of(SourceKind::Api);
    story.source(&[api_pod("a", told)]);
    // The runtime lists the pod, and the close look at it is under way.
    story.see(Scope::All, Vec::new(), &["a"]);
    let now = Now { mono: story.mono(), wall: 0 };
    let view = story.node.pod_view(now, &"a".into()).expect("a view");
    let container = view.status.container_statuses.as_ref().map(|all| all[0].clone()).expect("a container");
    assert_eq!((container.restart_count, container.ready), (0, true), "{container:?}");
    assert!(container.last_state.is_none_or(|last| last.terminated.is_none()));
}

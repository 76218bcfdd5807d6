//! What verdicts of probes do to a pod: its conditions, its restarts, and what of them outlives the agent.

use super::*;
use crate::core::node::Probes;
use crate::msg::{ProbeKind, ProbeVerdict, StopReason};

const RUNNING: ContainerState = ContainerState::Running { started_at: 1_000_000_000 };

/// A pod `a` whose container has these probes.
fn probed(probes: serde_json::Value) -> Arc<Pod> {
    let mut container = serde_json::json!({"name": "app", "image": "i:1"});
    container.as_object_mut().expect("an object").extend(probes.as_object().expect("an object").clone());
    let pod = serde_json::json!({
        "metadata": {"uid": "a", "name": "a", "namespace": "ns"},
        "spec": {"containers": [container]},
    });
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

fn every_probe() -> Arc<Pod> {
    let handler =
        |grace: Option<i64>| serde_json::json!({"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": grace});
    probed(serde_json::json!({
        "startupProbe": handler(None), "livenessProbe": handler(Some(7)), "readinessProbe": handler(None),
    }))
}

/// The pod runs, and nobody has probed it.
fn a_story(pod: &Arc<Pod>) -> Story {
    let mut story = Story::new();
    story.settle(|settings| settings.probes = Probes::Run);
    begin(&mut story, pod);
    story
}

fn begin(story: &mut Story, pod: &Arc<Pod>) {
    story.source(&[Arc::clone(pod)]);
    story.see(Scope::All, vec![a_running_pod("a", "a", 0, RUNNING)], &[]);
}

fn verdict(story: &mut Story, attempt: u32, probe: ProbeKind, success: bool) -> String {
    let container = format!("app-{attempt}").into();
    story.tell(Input::Verdict(ProbeVerdict { uid: "a".into(), container, probe, success }))
}

/// `started`, `ready` and the pod's two conditions.
#[track_caller]
fn check(story: &mut Story, expect: &str) {
    let now = Now { mono: story.mono(), wall: story.wall * 1_000_000_000 };
    let view = story.node.pod_view(now, &"a".into()).expect("a pod");
    let told = &view.status.container_statuses.as_ref().expect("statuses")[0];
    let holds = |type_: &str| {
        let conditions = view.status.conditions.as_deref().unwrap_or_default();
        conditions.iter().any(|c| c.type_ == type_ && c.status == "True")
    };
    let words = [
        (told.started == Some(true), "started"),
        (told.ready, "ready"),
        (holds("ContainersReady"), "ContainersReady"),
        (holds("Ready"), "Ready"),
    ];
    let words: Vec<&str> = words.into_iter().filter(|(holds, _)| *holds).map(|(_, word)| word).collect();
    assert_eq!(words.join(" "), expect);
}

#[test]
fn a_container_is_ready_when_its_probes_say_so() {
    use ProbeKind::{Readiness, Startup};
    let mut story = a_story(&every_probe());
    check(&mut story, "");
    assert_eq!(story.waits("a"), "waits for container app to pass its startup probe");
    verdict(&mut story, 0, Startup, true);
    check(&mut story, "started");
    assert_eq!(story.waits("a"), "waits for container app to pass its readiness probe");
    assert_eq!(verdict(&mut story, 0, Readiness, true), "record a");
    check(&mut story, "started ready ContainersReady Ready");
    assert_eq!(verdict(&mut story, 0, Readiness, false), "record a");
    check(&mut story, "started");
    verdict(&mut story, 0, Readiness, true);
    // Another instance has it all to do again, and what is said of the old one is heard no more.
    let both = |state| {
        let mut pod = RuntimePod::clone(&a_running_pod("a", "a", 0, ContainerState::Exited(Exit::default())));
        pod.containers.push(RuntimeContainer::bare("app-1", "sandbox", "app", 1, state));
        vec![Arc::new(pod)]
    };
    story.see(Scope::All, both(RUNNING), &[]);
    check(&mut story, "");
    for probe in [Startup, Readiness] {
        assert_eq!(verdict(&mut story, 0, probe, true), "");
    }
    check(&mut story, "");
    verdict(&mut story, 1, Startup, true);
    verdict(&mut story, 1, Readiness, true);
    check(&mut story, "started ready ContainersReady Ready");
    // Nothing that has ended is ready.
    story.see(Scope::All, both(ContainerState::Exited(Exit::default())), &[]);
    check(&mut story, "");
}

#[test]
fn without_a_probe_a_container_is_as_good_as_its_state() {
    let mut story = a_story(&probed(serde_json::json!({})));
    check(&mut story, "started ready ContainersReady Ready");
    let mut story = a_story(&probed(serde_json::json!({"livenessProbe": {"tcpSocket": {"port": 1}}})));
    check(&mut story, "started ready ContainersReady Ready");
}

#[test]
fn a_container_stays_ready_while_the_agent_restarts() {
    let mut story = a_story(&every_probe());
    verdict(&mut story, 0, ProbeKind::Startup, true);
    verdict(&mut story, 0, ProbeKind::Readiness, true);
    story.restart("boot");
    begin(&mut story, &every_probe());
    check(&mut story, "started ready ContainersReady Ready");
    // And what was not ready before is not ready afterwards.
    verdict(&mut story, 0, ProbeKind::Readiness, false);
    story.restart("boot");
    begin(&mut story, &every_probe());
    check(&mut story, "started");
}

#[test]
fn what_another_agent_told_the_api_is_believed() {
    let mut pod = every_probe().as_ref().clone();
    pod.metadata.annotations = Some([(crate::api::labels::CONFIG_SOURCE.to_owned(), "api".to_owned())].into());
    let status = serde_json::json!({"containerStatuses": [{
        "name": "app", "containerID": "r://app-0", "started": true, "ready": true,
        "image": "", "imageID": "", "restartCount": 0, "state": {"running": {}},
    }]});
    pod.status = Some(serde_json::from_value(status).expect("a status"));
    let mut story = a_story(&Arc::new(pod));
    check(&mut story, "started ready ContainersReady Ready");
}

#[test]
fn a_container_that_a_probe_gives_up_on_is_stopped_within_the_probes_own_grace_period() {
    for (probe, reason, seconds) in
        [(ProbeKind::Liveness, StopReason::Liveness, 7), (ProbeKind::Startup, StopReason::Startup, 30)]
    {
        let mut story = a_story(&every_probe());
        story.works.clear();
        assert_eq!(verdict(&mut story, 0, probe, false), "record a, work a");
        let Step::StopContainers { containers, grace } = &story.works[0].steps[0].step else { panic!("another step") };
        assert_eq!((containers[0].reason, *grace), (reason, Duration::from_secs(seconds)));
    }
}

#[test]
fn a_sidecar_that_crashes_again_and_again_restarts_after_a_restart_of_the_agent_too() {
    let pod = serde_json::json!({
        "metadata": {"uid": "a", "name": "a", "namespace": "ns"},
        "spec": {
            "initContainers": [{
                "name": "side", "image": "i:1", "restartPolicy": "Always", "startupProbe": {"tcpSocket": {"port": 1}},
            }],
            "containers": [{"name": "app", "image": "i:1"}],
        },
    });
    let pod: Arc<Pod> = Arc::new(serde_json::from_value(pod).expect("a pod"));
    let crashed = |attempt: u32| {
        let mut seen = RuntimePod::clone(&a_running_pod("a", "a", 0, RUNNING));
        let state = ContainerState::Exited(Exit { code: 1, ..Exit::default() });
        seen.containers.push(RuntimeContainer::bare(&format!("side-{attempt}"), "sandbox", "side", attempt, state));
        vec![Arc::new(seen)]
    };
    let starts = |story: &Story| -> Vec<String> {
        let steps = story.works.last().map(|work| &work.steps).into_iter().flatten();
        let starts = steps.filter_map(|planned| match &planned.step {
            Step::StartContainer { name, attempt, .. } => Some(format!("{name} {attempt}")),
            _ => None,
        });
        starts.collect()
    };
    let mut story = Story::new();
    story.settle(|settings| settings.probes = Probes::Run);
    story.source(&[Arc::clone(&pod)]);
    story.see(Scope::All, crashed(0), &[]);
    assert_eq!(starts(&story), ["side 1"]);
    story.report(&StepResult::Done);
    story.see(Scope::Pod("a".into()), crashed(1), &[]);
    assert!(story.waits("a").contains("side: CrashLoopBackOff, next try in 10s"), "{}", story.waits("a"));
    story.restart("boot");
    story.source(&[Arc::clone(&pod)]);
    story.see(Scope::All, crashed(1), &[]);
    assert!(story.waits("a").contains("side: CrashLoopBackOff"), "{}", story.waits("a"));
    story.wait(11);
    story.tell(Input::Timer);
    assert_eq!(starts(&story), ["side 2"]);
}

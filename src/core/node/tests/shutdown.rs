//! The machine shuts down: in which order pods end, what is told of them, and what comes after.

use serde_json::json;

use super::admission::{asking, rests, told};
use super::deletion::{running, with_app};
use super::*;
use crate::core::shutdown::periods;

/// A static pod of this priority.
fn a_pod(uid: &str, priority: i32) -> Arc<Pod> {
    let mut pod = asking(uid, 0, &json!({"priority": priority, "terminationGracePeriodSeconds": 60})).as_ref().clone();
    pod.metadata.annotations = Some([("kubernetes.io/config.source".to_owned(), "file".to_owned())].into());
    Arc::new(pod)
}

fn pods() -> [Arc<Pod>; 2] {
    [a_pod("low", 5), a_pod("top", 2_000_000_000)]
}

/// A node on which both run; 20 s for pods of no special priority, then 10 s for critical ones.
fn story() -> Story {
    let mut story = Story::new();
    story.settle(|settings| settings.shutdown = periods(Duration::from_secs(30), Duration::from_secs(10), &[]));
    story.source(&pods());
    story.see(Scope::All, vec![with_app("low", 0, running()), with_app("top", 0, running())], &[]);
    assert_eq!((story.works.len(), told(&mut story, "low").as_str()), (0, "Active Running"));
    story
}

fn grace(story: &Story) -> Option<u64> {
    story.works.last()?.steps.iter().find_map(|planned| match &planned.step {
        Step::StopContainers { grace, .. } => Some(grace.as_secs()),
        _ => None,
    })
}

#[test]
fn pods_end_by_priority_and_then_the_machine_may_go() {
    let mut story = story();
    assert_eq!(story.tell(Input::Shutdown(true)), "record low, work low");
    // The group's time is less than the pod's own.
    assert_eq!(grace(&story), Some(20));
    assert!(rests(&mut story, "low").ends_with("work low"));
    assert_eq!(told(&mut story, "top"), "Active Running");
    // Its volumes are back: the next group's turn.
    assert!(story.report(&StepResult::Done).ends_with("work top"));
    assert_eq!(grace(&story), Some(10));
    let why = "Terminated Pod was terminated in response to imminent node shutdown.";
    assert_eq!(told(&mut story, "low"), format!("Ended Failed {why}"));
    // Whoever comes meanwhile is not let in.
    story.source(&[&pods()[..], &[a_pod("new", 5)]].concat());
    let refused = "Pod was rejected: Pod was rejected as the node is shutting down.";
    assert_eq!(told(&mut story, "new"), format!("Rejected Failed NodeShutdown {refused}"));
    rests(&mut story, "top");
    assert!(story.report(&StepResult::Done).ends_with("the machine may go"));
    assert_eq!(told(&mut story, "top"), format!("Ended Failed {why}"));
    assert!(story.tell(Input::Shutdown(true)).is_empty(), "it is told once");
}

#[test]
fn a_pod_that_hangs_holds_nobody_up_for_longer_than_its_group_has() {
    let mut story = story();
    story.tell(Input::Shutdown(true));
    assert_eq!(story.node.next_deadline(), Some(story.mono() + Duration::from_secs(20)));
    story.wait(18);
    assert_eq!(story.tell(Input::Timer), "");
    assert_eq!(story.tell(Input::Timer), "record top, work top");
    story.wait(9);
    assert_eq!(story.tell(Input::Timer), "the machine may go");
    assert_eq!(story.node.next_deadline(), None);
}

#[test]
fn a_group_without_pods_takes_no_time() {
    let mut story = story();
    story.source(&pods()[1..]);
    rests(&mut story, "low");
    story.report(&StepResult::Done);
    assert!(story.tell(Input::Shutdown(true)).ends_with("work top"));
}

#[test]
fn a_shutdown_that_is_called_off_lets_pods_in_again_and_brings_none_back() {
    let mut story = story();
    story.tell(Input::Shutdown(true));
    rests(&mut story, "low");
    story.tell(Input::Shutdown(false));
    story.report(&StepResult::Done);
    assert_eq!(told(&mut story, "top"), "Active Running");
    assert!(told(&mut story, "low").starts_with("Ended Failed Terminated"));
    story.source(&[&pods()[..], &[a_pod("new", 5)]].concat());
    assert_eq!(told(&mut story, "new"), "Active Pending");
}

#[test]
fn a_static_pod_that_ended_for_it_runs_again_after_the_boot_and_not_before() {
    for (boot, expect) in [("boot", "Failed Terminated"), ("another boot", "Active Pending")] {
        let mut story = story();
        story.tell(Input::Shutdown(true));
        rests(&mut story, "low");
        story.report(&StepResult::Done);
        story.restart(boot);
        story.source(&pods()[..1]);
        story.list(&[]);
        if boot == "boot" {
            story.report(&StepResult::Done);
        }
        assert!(told(&mut story, "low").contains(expect), "{boot}: {}", told(&mut story, "low"));
    }
}

#[test]
fn an_agent_that_came_back_in_the_middle_goes_on_where_it_was() {
    let mut story = story();
    story.tell(Input::Shutdown(true));
    story.restart("boot");
    story.source(&pods());
    // The word of the shutdown is here before the runtime was listed.
    assert_eq!(story.tell(Input::Shutdown(true)), "");
    let told = story.see(Scope::All, vec![with_app("low", 0, running()), with_app("top", 0, running())], &[]);
    assert_eq!(told, "work low");
    rests(&mut story, "low");
    assert!(story.report(&StepResult::Done).ends_with("work top"));
}

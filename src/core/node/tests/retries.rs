//! When what failed is tried again.

use super::*;
use crate::msg::Reason;

fn failed(reason: &str) -> StepResult {
    StepResult::Failed(Reason { reason: reason.to_owned(), message: "why".to_owned() })
}

/// A pod whose first work was handed out.
fn begun() -> Story {
    let mut story = Story::new();
    story.source(&[pod("a", "a", "i:1", None)]);
    assert_eq!(story.list(&[]), "record a, work a");
    story
}

#[test]
fn works_that_fail_are_repeated_after_one_to_ten_seconds() {
    let mut story = begun();
    let mut waits = Vec::new();
    for _ in 0..7 {
        let ended = story.mono();
        let mut again = story.report_first(&failed("FailedCreatePodSandBox"));
        let at = story.node.next_deadline().expect("a deadline");
        waits.push(at.since(ended).as_secs());
        // Another try needs a look that began after the one before.
        story.seconds = at.since_boot().as_secs() - 1;
        again += &story.tell(Input::Timer);
        assert_eq!(again.matches("inspect a").count(), 1, "{again}");
        assert!(story.see(Scope::Pod("a".into()), Vec::new(), &[]).ends_with("work a"));
    }
    assert_eq!(waits, [1, 2, 4, 8, 10, 10, 10]);
    // What was not even tried is looked at again and again: the network may be there any moment.
    for _ in 0..2 {
        let ended = story.mono();
        // The pod's folders are there, and its sandbox is not.
        story.report_with(|at| match at {
            0 => StepResult::Done,
            1 => failed("NetworkNotReady"),
            _ => StepResult::Skipped,
        });
        let at = story.node.next_deadline().expect("a deadline");
        assert_eq!(at.since(ended).as_secs(), 1);
        story.seconds = at.since_boot().as_secs() - 1;
        story.tell(Input::Timer);
        assert!(story.see(Scope::Pod("a".into()), Vec::new(), &[]).ends_with("work a"));
    }
    // One that goes well starts the table anew.
    story.report(&StepResult::Done);
    let mut dead = RuntimePod::clone(&a_sandbox("a", "a"));
    dead.sandboxes[0].state = SandboxState::NotReady;
    assert!(story.see(Scope::Pod("a".into()), vec![Arc::new(dead)], &[]).ends_with("work a"));
    let ended = story.mono();
    story.report_first(&failed("FailedKillPod"));
    assert_eq!(story.node.next_deadline(), Some(ended + Duration::from_secs(1)));
}

#[test]
fn what_failed_while_the_runtime_was_down_is_tried_at_once_when_it_is_up() {
    for step in ["sandbox", "container"] {
        let mut story = begun();
        if step == "container" {
            story.report(&StepResult::Done);
            assert!(story.see(Scope::Pod("a".into()), vec![a_sandbox("a", "a")], &[]).ends_with("work a"));
        }
        story.tell(Input::Runtime(RuntimeHealth::Down("no answer".to_owned())));
        for _ in 0..3 {
            let has_work = story.report(&failed("RunContainerError"));
            assert!(!has_work.contains("work"), "{has_work}");
        }
        story.fail_to_see("a", "a");
        assert!(story.node.next_deadline().is_some_and(|at| at > story.mono()), "{step}");
        assert_eq!(story.tell(Input::Runtime(RuntimeHealth::Up)), "inspect a", "{step}");
        assert_eq!(story.node.next_deadline(), None, "{step}");
        let seen = if step == "container" { vec![a_sandbox("a", "a")] } else { Vec::new() };
        assert!(story.see(Scope::Pod("a".into()), seen, &[]).ends_with("work a"), "{step}");
    }
}

/// After a start that failed for this reason: seconds until the next, when the image may be pulled after `image`.
fn waits_after(reason: &str, image: Option<u64>) -> u64 {
    let mut story = begun();
    story.report(&StepResult::Done);
    story.see(Scope::Pod("a".into()), vec![a_sandbox("a", "a")], &[]);
    let ended = story.mono();
    story.image_waits = image.map(|s| ("app".to_owned(), ended + Duration::from_secs(s))).into_iter().collect();
    story.report(&failed(reason));
    assert_eq!(story.see(Scope::Pod("a".into()), Vec::new(), &[]), "");
    story.node.next_deadline().map_or(0, |at| at.since(ended).as_secs())
}

#[test]
fn a_pod_is_tried_again_when_the_back_off_of_its_image_ends() {
    for (reason, image, expect) in [
        ("CreateContainerError", None, 10),
        ("ErrImagePull", Some(4), 4),
        ("ErrImagePull", Some(10), 10),
        // The next try tells of the back-off, the one after that waits it out.
        ("ErrImagePull", Some(160), 10),
        ("ImagePullBackOff", Some(150), 150),
        ("ImagePullBackOff", Some(3), 3),
        ("ErrImageNeverPull", None, 10),
    ] {
        assert_eq!(waits_after(reason, image), expect, "{reason} {image:?}");
    }
}

//! Tests of what is counted of pods' lives.

use super::*;
use crate::api::pod::ContainerKind;

fn told(story: &mut Story) -> String {
    // What a view brings up goes out with the next event.
    let now = Now { mono: story.mono(), wall: story.wall * 1_000_000_000 };
    drop(story.node.view(now));
    story.tell(Input::Timer);
    story.tallies.drain(..).map(|tally| format!("{tally:?}")).collect::<Vec<_>>().join(" ")
}

fn exited(code: i32) -> ContainerState {
    ContainerState::Exited(Exit { code, reason: "Error".to_owned(), ..Exit::default() })
}

#[test]
fn a_start_and_an_end_are_counted_once() {
    let mut story = Story::new();
    story.source(&[pod("a", "a", "i:1", None)]);
    let seen_at = story.seconds;
    story.wait(2);
    story.see(Scope::All, Vec::new(), &[]);
    let after = story.seconds - seen_at;
    assert_eq!(told(&mut story), format!("Begun {{ after: {after}s, containers: 1 }}"));
    story.wait(3);
    story.report(&StepResult::Done);
    let running = a_running_pod("a", "a", 0, ContainerState::Running { started_at: 1 });
    story.see(Scope::Pod("a".into()), vec![running], &[]);
    let after = story.seconds - seen_at;
    assert_eq!(told(&mut story), format!("Started {{ seen: {after}s, created: None, pulled: 0ns }}"));
    story.see(Scope::Pod("a".into()), vec![a_running_pod("a", "a", 0, exited(3))], &[]);
    let kind = ContainerKind::App;
    assert_eq!(told(&mut story), format!("{:?}", Tally::Ended { kind, code: 3, reason: "Error".to_owned() }));
    story.see(Scope::Pod("a".into()), vec![a_running_pod("a", "a", 0, exited(3))], &[]);
    assert_eq!(told(&mut story), "");
}

#[test]
fn what_was_there_before_the_agent_is_not_counted() {
    let mut story = Story::new();
    story.source(&[pod("a", "a", "i:1", None)]);
    story.see(Scope::All, Vec::new(), &[]);
    story.report(&StepResult::Done);
    told(&mut story);
    story.restart("boot");
    story.source(&[pod("a", "a", "i:1", None)]);
    story.see(Scope::All, vec![a_running_pod("a", "a", 0, exited(3))], &[]);
    assert_eq!(told(&mut story), "");
}

#[test]
fn orphans_are_counted() {
    let mut story = Story::new();
    story.source(&[]);
    story.see(Scope::All, vec![a_sandbox("x", "x")], &[]);
    assert_eq!(told(&mut story), "Orphaned");
}

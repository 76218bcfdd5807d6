//! What outlives the agent: back-off, deadlines, pods that nobody asks for any more, and what it may do
//! while a source is silent.

use super::*;

const RUNNING: ContainerState = ContainerState::Running { started_at: 1 };

fn exited(code: i32) -> ContainerState {
    ContainerState::Exited(Exit { code, ..Exit::default() })
}

/// A pod `a` that crashed once, was restarted, and crashed again: its next restart waits.
fn a_story_of_crashes() -> Story {
    let mut story = Story::new();
    story.source(&[pod("a", "a", "i:1", None)]);
    story.list(&[]);
    story.report(&StepResult::Done);
    let look = |story: &mut Story, attempt, state| {
        story.see(Scope::Pod("a".into()), vec![a_running_pod("a", "a", attempt, state)], &[])
    };
    assert_eq!(look(&mut story, 0, RUNNING), "");
    assert!(look(&mut story, 0, exited(1)).ends_with("work a"));
    story.report(&StepResult::Done);
    assert_eq!(look(&mut story, 1, RUNNING), "");
    look(&mut story, 1, exited(1));
    assert!(story.waits("a").contains("CrashLoopBackOff, next try in 10s"), "{}", story.waits("a"));
    story
}

/// Source, list and look of an agent that came back.
fn begin_again(story: &mut Story, attempt: u32, state: ContainerState) {
    story.source(&[pod("a", "a", "i:1", None)]);
    story.list(&["a=a"]);
    story.see(Scope::Pod("a".into()), vec![a_running_pod("a", "a", attempt, state)], &[]);
}

#[test]
fn a_crash_back_off_goes_on_after_a_restart_of_the_agent() {
    let mut story = a_story_of_crashes();
    story.wait(2);
    story.restart("boot");
    begin_again(&mut story, 1, exited(1));
    assert!(story.waits("a").contains("CrashLoopBackOff"), "{}", story.waits("a"));
    story.wait(10);
    assert!(story.tell(Input::Timer).ends_with("work a"));
    story.report(&StepResult::Done);
    let crashed = vec![a_running_pod("a", "a", 2, exited(1))];
    story.see(Scope::Pod("a".into()), crashed, &[]);
    // It doubled: the agent's own restart was none of the container's.
    assert!(story.waits("a").contains("next try in 20s"), "{}", story.waits("a"));
}

#[test]
fn another_boot_starts_the_back_off_anew_and_keeps_the_attempts() {
    let mut story = a_story_of_crashes();
    story.restart("another boot");
    begin_again(&mut story, 0, exited(1));
    let starts = story.works.last().map(|work| work.steps.iter().map(|s| s.step.clone()).collect::<Vec<_>>());
    let kind = crate::api::pod::ContainerKind::App;
    let start = Step::StartContainer { kind, name: "app".into(), attempt: 2, target: None };
    assert_eq!(starts, Some(vec![start]));
}

/// The report: "failed to reserve container name", for ever, after the clock of a node had been set back while a container
/// crashed again and again: the newest instance was no longer the one that was made last.
#[test]
fn a_clock_set_back_during_a_crash_loop_never_brings_a_used_attempt_again() {
    let mut story = a_story_of_crashes();
    // The runtime keeps the last two, and the clock says that the younger is the elder.
    let crashed = |attempt: u32| {
        let mut seen = RuntimePod::clone(&a_running_pod("a", "a", attempt, exited(1)));
        seen.containers.push(RuntimeContainer::bare("before", "sandbox", "app", attempt - 1, exited(1)));
        for container in &mut seen.containers {
            container.created_at = -1_000 * i64::from(container.attempt);
        }
        seen
    };
    // Both are seen, and the elder is cleared away if the node says so.
    let crashes = |story: &mut Story, attempt: u32| {
        let mut both = crashed(attempt);
        story.see(Scope::Pod("a".into()), vec![Arc::new(both.clone())], &[]);
        let removes = |work: &PodWork| work.steps.iter().any(|s| matches!(s.step, Step::RemoveContainer { .. }));
        if story.works.last().is_some_and(removes) {
            story.report(&StepResult::Done);
            both.containers.truncate(1);
            story.see(Scope::Pod("a".into()), vec![Arc::new(both)], &[]);
        }
    };
    let started = |story: &Story| {
        let steps = story.works.iter().flat_map(|work| &work.steps);
        let starts = steps.filter_map(|planned| match planned.step {
            Step::StartContainer { attempt, .. } => Some(attempt),
            _ => None,
        });
        starts.collect::<Vec<u32>>()
    };
    for attempt in 2..12 {
        story.wall -= 86_400;
        story.works.clear();
        // Now and then the agent dies too, and has what it wrote down alone.
        if attempt % 3 == 0 {
            story.restart("boot");
            story.source(&[pod("a", "a", "i:1", None)]);
            story.list(&["a=a"]);
            crashes(&mut story, attempt - 1);
        }
        story.wait(301);
        story.tell(Input::Timer);
        assert_eq!(started(&story), [attempt], "{}", story.waits("a"));
        story.report(&StepResult::Done);
        crashes(&mut story, attempt);
    }
}

#[test]
fn a_deadline_ends_a_pod_for_good() {
    let mut story = Story::new();
    let wanted = [pod("a", "a", "i:1", Some(60))];
    story.source(&wanted);
    story.list(&[]);
    story.report(&StepResult::Done);
    let look =
        |story: &mut Story, state| story.see(Scope::Pod("a".into()), vec![a_running_pod("a", "a", 0, state)], &[]);
    assert_eq!(look(&mut story, RUNNING), "");
    let began = Moment::from_boot(Duration::from_secs(101));
    assert_eq!(story.node.next_deadline(), Some(began + Duration::from_secs(60)));
    story.wait(60);
    assert!(story.tell(Input::Timer).ends_with("work a"));
    assert!(matches!(story.works[1].steps[0].step, Step::StopContainers { .. }));
    story.report(&StepResult::Done);
    let mut dead = RuntimePod::clone(&a_running_pod("a", "a", 0, exited(143)));
    dead.sandboxes[0].state = SandboxState::NotReady;
    let released = story.see(Scope::Pod("a".into()), vec![Arc::new(dead)], &[]);
    assert!(released.ends_with("work a"), "{released}");
    story.report(&StepResult::Done);
    let now = Now { mono: story.mono(), wall: 0 };
    let view = story.node.pod_view(now, &"a".into()).expect("a view");
    assert_eq!((view.stage.as_str(), view.status.phase.as_deref()), ("Ended", Some("Failed")));
    assert_eq!(view.status.reason.as_deref(), Some("DeadlineExceeded"));
    // It stays so, whatever its source says again.
    assert_eq!(story.source(&wanted), "");
    assert_eq!(story.node.next_deadline(), None);
}

/// Seconds that are left of a deadline of 600 s, 100 s after the pod began, when the agent was away
/// meanwhile and the wall clock was moved.
fn left_after(boot: &str, mono: u64, wall_moved: i64) -> u64 {
    let mut story = Story::new();
    let wanted = [pod("a", "a", "i:1", Some(600))];
    story.source(&wanted);
    story.list(&[]);
    story.report(&StepResult::Done);
    story.wait(97);
    story.restart(boot);
    if boot != "boot" {
        story.seconds = mono;
    }
    story.wall += wall_moved;
    story.source(&wanted);
    let now = story.mono();
    story.node.next_deadline();
    story.list(&["a=a"]);
    story.see(Scope::Pod("a".into()), vec![a_running_pod("a", "a", 0, RUNNING)], &[]);
    story.node.next_deadline().map_or(0, |at| at.since(now).as_secs())
}

#[test]
fn a_deadline_counts_on_whatever_is_done_to_the_wall_clock() {
    for (wall_moved, left) in [(0, 500), (86_400, 500), (-86_400, 500)] {
        assert_eq!(left_after("boot", 0, wall_moved), left, "moved by {wall_moved}");
    }
    // After another boot there is only the wall clock to go by, and time before the boot counts.
    assert_eq!(left_after("another boot", 5, 0), 500);
    assert_eq!(left_after("another boot", 5, 300), 200);
    assert_eq!(left_after("another boot", 5, 86_400), 0);
}

#[test]
fn the_record_of_a_pod_is_not_written_again_for_a_restart_of_the_agent() {
    let mut story = Story::new();
    let wanted = [pod("a", "a", "i:1", Some(600))];
    story.source(&wanted);
    story.list(&[]);
    story.report(&StepResult::Done);
    let running = vec![a_running_pod("a", "a", 0, RUNNING)];
    story.see(Scope::Pod("a".into()), running.clone(), &[]);
    story.restart("boot");
    assert_eq!(story.source(&wanted), "");
    assert_eq!(story.list(&["a=a"]), "");
    assert_eq!(story.see(Scope::Pod("a".into()), running, &[]), "");
}

#[test]
fn nothing_unknown_is_ended_while_a_source_is_silent() {
    let mut story = Story::with_sources(&[SourceKind::File, SourceKind::Api]);
    story.source(&[]);
    story.list(&["orphan=o"]);
    assert_eq!(story.see(Scope::Pod("orphan".into()), vec![a_running_pod("orphan", "o", 0, RUNNING)], &[]), "");
    assert_eq!(story.tell(Input::Leftovers(vec!["folder".into()])), "");
    // The source speaks: now it is known that nobody asks for it.
    let api = SourceUpdate { source: SourceKind::Api, pods: Vec::new(), problems: Vec::new() };
    let done = story.tell(Input::Source(api));
    assert!(done.contains("work orphan"), "{done}");
}

#[test]
fn a_static_pod_whose_manifest_is_gone_is_ended_though_the_api_server_never_answers() {
    let by = |source: &str| {
        let mut pod = Pod::clone(&pod("a", "a", "i:1", None));
        pod.metadata.annotations = Some([("kubernetes.io/config.source".to_owned(), source.to_owned())].into());
        Arc::new(pod)
    };
    let both = [SourceKind::File, SourceKind::Api];
    let three = [SourceKind::File, SourceKind::Http, SourceKind::Api];
    let check = |source: &str, sources: &[SourceKind], ends: bool| {
        let mut story = Story::with_sources(sources);
        story.source(&[by(source)]);
        story.list(&[]);
        story.report(&StepResult::Done);
        let running = vec![a_running_pod("a", "a", 0, RUNNING)];
        story.see(Scope::Pod("a".into()), running.clone(), &[]);
        // The manifest was taken away while the agent was down, and the API server is away.
        story.restart("boot");
        let done = [story.source(&[]), story.list(&["a=a"]), story.see(Scope::Pod("a".into()), running, &[])].join(" ");
        assert_eq!(done.contains("work a"), ends, "{source} of {sources:?}: {done}");
    };
    check("file", &both, true);
    check("api", &both, false);
    // The URL, which may have it now, was not read yet.
    check("file", &three, false);
}

#[test]
fn a_static_pod_runs_and_follows_its_edits_though_the_api_server_never_answers() {
    let mut story = Story::with_sources(&[SourceKind::File, SourceKind::Api]);
    // The manifest was edited while the agent was down: another uid, the same name.
    story.source(&[pod("new", "a", "i:2", None), pod("b", "b", "i:1", None)]);
    let listed = story.list(&["old=a"]);
    assert_eq!(listed, "");
    let seen = story.see(Scope::Pod("old".into()), vec![a_running_pod("old", "a", 0, RUNNING)], &[]);
    assert_eq!(seen, "record b, work b, record old, work old");
    assert!(matches!(story.works[1].steps[0].step, Step::StopContainers { .. }));
    assert_eq!(story.waits("new"), "waits for the earlier pod of this name (uid old) to be gone");
    story.report(&StepResult::Done);
    let mut dead = RuntimePod::clone(&a_running_pod("old", "a", 0, exited(143)));
    dead.sandboxes[0].state = SandboxState::NotReady;
    // Released, forgotten, and the new one begins.
    let dead = Arc::new(dead);
    story.see(Scope::Pod("old".into()), vec![Arc::clone(&dead)], &[]);
    assert_eq!(story.report(&StepResult::Done), "inspect old, record old");
    assert_eq!(story.see(Scope::Pod("old".into()), vec![dead], &[]), "work old");
    assert_eq!(story.report(&StepResult::Done), "unrecord old, record new, work new");
}

#[test]
fn a_silent_source_that_could_have_a_pod_of_this_name_is_waited_for() {
    // What the file source may still say wins over the URL.
    let mut story = Story::with_sources(&[SourceKind::Http, SourceKind::File]);
    story.source(&[pod("new", "a", "i:2", None)]);
    story.list(&["old=a"]);
    let seen = story.see(Scope::Pod("old".into()), vec![a_running_pod("old", "a", 0, RUNNING)], &[]);
    assert_eq!(seen, "");
    assert_eq!(story.waits("new"), "waits for the earlier pod of this name (uid old) to be gone");
}

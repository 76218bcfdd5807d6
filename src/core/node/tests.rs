//! Tests of the node: lives of pods, step by step. What the node asks for is written as short text.
//!
//! Each test here holds one rule by its smallest story; whole lives full of trouble are tests/sim's part.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::api::SandboxId;
use crate::api::quantity::{Amount, Format};
use crate::api::runtime::{ContainerState, Exit, RuntimeContainer, RuntimeSandbox, SandboxState};
use crate::api::v1::Pod;
use crate::msg::{Scope, Step, StepResult, UnknownPod};

mod admission;
mod agents_lives;
mod deletion;
mod probes;
mod resize;
mod retries;
mod shutdown;
mod tallies;

/// A node with one source, and a clock.
struct Story {
    node: Node,
    source: SourceKind,
    seconds: u64,
    /// The wall clock, in seconds since 1970.
    wall: i64,
    works: Vec<PodWork>,
    /// What is on disk.
    records: BTreeMap<PodUid, Arc<PodRecord>>,
    /// What the next report says of images.
    image_waits: BTreeMap<String, Moment>,
    /// What was counted.
    tallies: Vec<Tally>,
}

fn pod(uid: &str, name: &str, image: &str, deadline: Option<i64>) -> Arc<Pod> {
    let pod = serde_json::json!({
        "metadata": {"uid": uid, "name": name, "namespace": "ns"},
        "spec": {"containers": [{"name": "app", "image": image}], "activeDeadlineSeconds": deadline},
    });
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

fn a_sandbox(uid: &str, name: &str) -> Arc<RuntimePod> {
    let sandbox = RuntimeSandbox {
        id: SandboxId::from("sandbox"),
        attempt: 0,
        state: SandboxState::Ready,
        created_at: 0,
        ips: vec!["10.0.0.1".to_owned()],
        host_network: false,
        runtime_handler: String::new(),
    };
    Arc::new(RuntimePod {
        uid: Some(PodUid::from(uid)),
        name: name.to_owned(),
        namespace: "ns".to_owned(),
        sandboxes: vec![sandbox],
        containers: Vec::new(),
    })
}

fn settings(sources: &[SourceKind], boot: &str) -> Settings {
    Settings {
        node: "n".to_owned(),
        sources: sources.to_vec(),
        backoff: BackoffLimits::with_max(Duration::from_secs(300)),
        keep_dead: 1,
        restart_all: crate::core::status::RestartAll::InForce,
        boot_id: boot.to_owned(),
        runtime_name: "r".to_owned(),
        host_ips: Vec::new(),
        recursive_read_only: false,
        probes: Probes::NotRun,
        admission: crate::core::admit::Limits {
            node_name: "n".to_owned(),
            allocatable: [("pods".to_owned(), Amount::from_value(110, Format::DecimalSi))].into(),
            ..Default::default()
        },
        resize_pod_level: true,
        admission_hook: false,
        shutdown: Vec::new(),
    }
}

/// A running pod: a sandbox and `app`, in its first instance unless told otherwise.
fn a_running_pod(uid: &str, name: &str, attempt: u32, state: ContainerState) -> Arc<RuntimePod> {
    let mut running = RuntimePod::clone(&a_sandbox(uid, name));
    running.containers.push(RuntimeContainer::bare(&format!("app-{attempt}"), "sandbox", "app", attempt, state));
    Arc::new(running)
}

impl Story {
    fn new() -> Self {
        Self::of(SourceKind::File)
    }

    fn of(source: SourceKind) -> Self {
        Self::with_sources(&[source])
    }

    /// The pods of these tests come from the first one.
    fn with_sources(sources: &[SourceKind]) -> Self {
        Self {
            node: Node::new(settings(sources, "boot"), Vec::new()),
            source: sources[0],
            seconds: 100,
            wall: 1_000_000,
            works: Vec::new(),
            image_waits: BTreeMap::new(),
            tallies: Vec::new(),
            records: BTreeMap::new(),
        }
    }

    /// The agent dies and comes back, in this boot or in another one.
    fn restart(&mut self, boot: &str) {
        let records = self.records.values().map(|record| PodRecord::clone(record)).collect();
        let settings = Settings { boot_id: boot.to_owned(), ..self.node.settings.clone() };
        self.node = Node::new(settings, records);
        self.works.clear();
    }

    /// Another node than those of most stories; nothing has happened yet.
    fn settle(&mut self, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.node.settings.clone();
        change(&mut settings);
        self.node = Node::new(settings, Vec::new());
    }

    /// Time passes on both clocks.
    fn wait(&mut self, seconds: u64) {
        self.seconds += seconds;
        self.wall += i64::try_from(seconds).expect("a span");
    }

    fn mono(&self) -> Moment {
        Moment::from_boot(Duration::from_secs(self.seconds))
    }

    /// One input, a second later than the one before.
    fn tell(&mut self, input: Input) -> String {
        self.wait(1);
        let now = Now { mono: self.mono(), wall: self.wall * 1_000_000_000 };
        let mut out = Vec::new();
        for effect in self.node.step(now, input) {
            match effect {
                Effect::Work(work) => {
                    out.push(format!("work {}", work.uid));
                    self.works.push(work);
                }
                Effect::Inspect(uid, Look::AtNews) => out.push(format!("inspect {uid}")),
                Effect::Inspect(uid, Look::AtAll) => out.push(format!("inspect all of {uid}")),
                Effect::Record(record) => {
                    out.push(format!("record {}", record.uid));
                    self.records.insert(record.uid.clone(), record);
                }
                Effect::Unrecord(uid) => {
                    out.push(format!("unrecord {uid}"));
                    self.records.remove(&uid);
                }
                Effect::ShutdownDone => out.push("the machine may go".to_owned()),
                Effect::Count(tally) => self.tallies.push(tally),
                Effect::Tell(told) => out.push(format!("tell {} {}", told.object.name, told.reason)),
            }
        }
        out.join(", ")
    }

    fn source(&mut self, pods: &[Arc<Pod>]) -> String {
        self.tell(Input::Source(SourceUpdate { source: self.source, pods: pods.to_vec(), problems: Vec::new() }))
    }

    /// A look; unknown are `uid` or `uid=name`.
    fn see(&mut self, scope: Scope, changed: Vec<Arc<RuntimePod>>, unknown: &[&str]) -> String {
        let started_at = Moment::from_boot(Duration::from_secs(self.seconds + 1));
        let unknown = unknown.iter().map(|text| {
            let (uid, name) = text.split_once('=').map_or((*text, None), |(uid, name)| (uid, Some(name)));
            let name = name.map(|name| PodName { namespace: "ns".to_owned(), name: name.to_owned() });
            UnknownPod { uid: PodUid::from(uid), name, why: String::new() }
        });
        let unknown = unknown.collect();
        self.tell(Input::Observed(Observation { started_at, scope, changed, gone: Vec::new(), unknown }))
    }

    /// A full list that finds only this.
    fn list(&mut self, unknown: &[&str]) -> String {
        self.see(Scope::All, Vec::new(), unknown)
    }

    /// A look at one pod ends badly.
    fn fail_to_see(&mut self, uid: &str, unknown: &str) -> String {
        self.see(Scope::Pod(uid.into()), Vec::new(), &[unknown])
    }

    /// What a pod waits for.
    fn waits(&mut self, uid: &str) -> String {
        let now = Now { mono: self.mono(), wall: 0 };
        self.node.pod_view(now, &uid.into()).map(|view| view.waits_for.clone()).unwrap_or_default()
    }

    /// The newest work ends; every step went like this.
    fn report(&mut self, result: &StepResult) -> String {
        self.report_with(|_| result.clone())
    }

    /// The newest work ends: its first step like this, and the others were not tried.
    fn report_first(&mut self, result: &StepResult) -> String {
        self.report_with(|at| if at == 0 { result.clone() } else { StepResult::Skipped })
    }

    fn report_with(&mut self, result: impl Fn(usize) -> StepResult) -> String {
        let work = self.works.last().expect("a work");
        let steps = work.steps.iter().enumerate();
        let results: Vec<(Step, StepResult)> = steps.map(|(at, s)| (s.step.clone(), result(at))).collect();
        let (id, uid, cancelled) = (work.id, work.uid.clone(), work.cancel.is_cancelled());
        let finished_at = self.mono();
        let image_waits = std::mem::take(&mut self.image_waits);
        self.tell(Input::Report(WorkReport {
            id,
            uid,
            finished_at,
            results,
            image_waits,
            pulled: Duration::ZERO,
            cancelled,
        }))
    }
}

#[test]
fn a_pod_waits_for_the_first_list_and_then_for_a_look_after_its_work() {
    let mut story = Story::new();
    assert_eq!(story.source(&[pod("a", "a", "i:1", None)]), "");
    assert_eq!(story.see(Scope::All, Vec::new(), &[]), "record a, work a");
    assert_eq!(story.report(&StepResult::Done), "inspect a, record a");
    // A look that fails is asked for again later, and not in a loop.
    assert_eq!(story.see(Scope::Pod("a".into()), Vec::new(), &["a"]), "");
    assert!(story.node.next_deadline().is_some_and(|at| at > story.mono()));
}

#[test]
fn a_pod_that_comes_back_before_its_work_ended_has_its_new_spec() {
    let mut story = Story::new();
    story.source(&[pod("a", "a", "i:1", None)]);
    story.see(Scope::All, Vec::new(), &[]);
    story.source(&[]);
    assert!(story.works[0].cancel.is_cancelled());
    story.source(&[pod("a", "a", "i:2", None)]);
    story.report(&StepResult::Skipped);
    story.see(Scope::Pod("a".into()), Vec::new(), &[]);
    let image = |work: &PodWork| work.pod.spec.as_ref().and_then(|s| s.containers[0].image.clone());
    assert_eq!(story.works.iter().map(image).collect::<Vec<_>>(), [Some("i:1".to_owned()), Some("i:2".to_owned())]);
}

#[test]
fn a_deadline_that_cancelled_a_work_does_not_wake_the_loop_again() {
    let mut story = Story::new();
    story.source(&[pod("a", "a", "i:1", Some(10))]);
    story.see(Scope::All, Vec::new(), &[]);
    story.seconds += 20;
    assert_eq!(story.tell(Input::Timer), "");
    assert!(story.works[0].cancel.is_cancelled());
    assert_eq!(story.node.next_deadline(), None);
}

#[test]
fn a_pod_that_a_look_found_absent_counts_as_seen_though_the_list_was_unsure() {
    let mut story = Story::new();
    story.source(&[pod("a", "a", "i:1", None)]);
    story.see(Scope::All, Vec::new(), &[]);
    story.report(&StepResult::Done);
    story.see(Scope::All, Vec::new(), &["a"]);
    assert_eq!(story.see(Scope::Pod("a".into()), Vec::new(), &[]), "work a");
}

#[test]
fn a_pod_waits_until_all_that_the_first_list_named_was_looked_at() {
    let mut story = Story::new();
    story.source(&[pod("new", "a", "i:1", None)]);
    assert_eq!(story.see(Scope::All, Vec::new(), &["old"]), "");
    // The elder of its name runs: it ends first.
    let seen = story.see(Scope::Pod("old".into()), vec![a_sandbox("old", "a")], &[]);
    assert_eq!(seen, "record old, work old");
    let steps: Vec<&Step> = story.works[0].steps.iter().map(|s| &s.step).collect();
    assert_eq!(steps, [&Step::StopSandbox(SandboxId::from("sandbox"))]);
}

#[test]
fn volumes_are_looked_at_again_when_what_they_show_changes() {
    let labelled = |label: &str| {
        let mut pod = pod("a", "a", "i:1", None).as_ref().clone();
        pod.metadata.labels = Some([("l".to_owned(), label.to_owned())].into());
        let volumes = serde_json::json!([{"name": "v", "downwardAPI": {}}]);
        pod.spec.as_mut().expect("a spec").volumes = serde_json::from_value(volumes).expect("volumes");
        Arc::new(pod)
    };
    // It runs already, and no work is left but the look that every start of the agent takes.
    let running = a_running_pod("a", "a", 0, ContainerState::Running { started_at: 1 });
    let mut story = Story::new();
    story.source(&[labelled("1")]);
    assert_eq!(story.see(Scope::All, vec![Arc::clone(&running)], &[]), "record a, work a");
    let told = |story: &Story| story.works.last().map(|w| w.steps.iter().map(|s| s.step.clone()).collect::<Vec<_>>());
    assert_eq!(told(&story), Some(vec![Step::PreparePod]));
    let refresh =
        || Input::Refresh(Refresh { pods: vec!["a".into(), "unknown".into()], cause: "a secret changed".to_owned() });
    // While the work runs nothing is lost: another one follows it.
    assert_eq!(story.tell(refresh()), "");
    assert_eq!(story.report(&StepResult::Done), "inspect a");
    let look = |story: &mut Story| story.see(Scope::Pod("a".into()), vec![Arc::clone(&running)], &[]);
    assert_eq!(look(&mut story), "work a");
    assert_eq!(story.works[1].steps[0].cause, "a secret changed");
    story.report(&StepResult::Done);
    assert_eq!(look(&mut story), "");
    // New labels are seen without a change of the spec, and a try that failed is repeated.
    assert_eq!(story.source(&[labelled("2")]), "record a, work a");
    story.report(&StepResult::Failed(crate::msg::Reason { reason: "FailedMount".to_owned(), message: String::new() }));
    assert_eq!(look(&mut story), "work a");
    story.report(&StepResult::Done);
    assert_eq!(look(&mut story), "");
}

#[test]
fn a_pod_waits_for_a_look_at_one_of_its_name_and_for_no_other() {
    let mut story = Story::new();
    story.source(&[pod("new", "a", "i:1", None), pod("b", "b", "i:1", None)]);
    assert_eq!(story.list(&["old=a", "far=c"]), "");
    assert_eq!(story.fail_to_see("far", "far=c"), "");
    // The one whose first look failed still has a name, and only that name is held back.
    assert_eq!(story.fail_to_see("old", "old=a"), "record b, work b");
    assert_eq!(story.waits("new"), "waits for a look at the pod of this name that the container runtime has (uid old)");
    // Nothing is removed of it on the word of a record or of a folder while nobody knows whether it runs.
    assert_eq!(story.tell(Input::Leftovers(vec!["old".into()])), "");
    assert_eq!(story.list(&["old=a", "far=c"]), "");
    let seen = story.see(Scope::Pod("old".into()), vec![a_sandbox("old", "a")], &[]);
    assert_eq!(seen, "record old, work old");
    assert_eq!(story.waits("new"), "waits for the earlier pod of this name (uid old) to be gone");
}

#[test]
fn a_pod_that_went_unseen_holds_nobody_back() {
    let mut story = Story::new();
    story.source(&[pod("new", "a", "i:1", None)]);
    story.list(&["old=a"]);
    assert_eq!(story.fail_to_see("old", "old=a"), "");
    assert_eq!(story.list(&[]), "record new, work new");
}

#[test]
fn a_pod_whose_own_first_look_failed_waits_for_the_next_one() {
    let mut story = Story::new();
    story.source(&[pod("a", "a", "i:1", None)]);
    story.list(&["a=a"]);
    assert_eq!(story.fail_to_see("a", "a=a"), "");
    assert!(story.waits("a").ends_with("a look at what the container runtime has of it"), "{}", story.waits("a"));
    assert_eq!(story.see(Scope::Pod("a".into()), vec![a_sandbox("a", "a")], &[]), "record a, work a");
}

#[test]
fn a_restart_writes_no_record_anew_and_keeps_one_copy_of_the_pod() {
    let pod = |seen: &str, label: &str| {
        let mut pod = pod("a", "a", "i:1", None).as_ref().clone();
        pod.metadata.annotations = Some([(crate::api::labels::CONFIG_SEEN.to_owned(), seen.to_owned())].into());
        pod.metadata.labels = Some([("l".to_owned(), label.to_owned())].into());
        Arc::new(pod)
    };
    let begin = |story: &mut Story, pod: &Arc<Pod>| {
        let told = story.source(&[Arc::clone(pod)]);
        let seen = story.see(Scope::All, vec![a_sandbox("a", "a")], &[]);
        [told, seen].into_iter().filter(|t| !t.is_empty()).collect::<Vec<_>>().join(", ")
    };
    let mut first = Story::new();
    assert_eq!(begin(&mut first, &pod("at noon", "x")), "record a, work a");
    let saved = |story: &Story| story.node.pods[&PodUid::from("a")].saved.clone().expect("a record");
    for (now, expect) in [(pod("an hour later", "x"), "work a"), (pod("at noon", "y"), "record a, work a")] {
        let mut second = Story::new();
        let settings = second.node.settings.clone();
        second.node = Node::new(settings, vec![PodRecord::clone(&saved(&first))]);
        assert_eq!(begin(&mut second, &now), expect);
        assert!(Arc::ptr_eq(&saved(&second).pod, &now));
    }
}

#[test]
fn a_snapshot_is_made_of_the_one_before_the_last_unless_somebody_reads_that() {
    let mut story = Story::new();
    let now = |story: &Story| Now { mono: story.mono(), wall: 0 };
    let spec =
        |text: &str| -> Vec<Arc<Pod>> { text.split_whitespace().map(|uid| pod(uid, uid, "i:1", None)).collect() };
    let uids = |view: &NodeView| view.pods.keys().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let mut places = Vec::new();
    let mut held = None;
    for (wanted, expect) in [("a", "a"), ("a b", "a b"), ("b c", "b c"), ("", ""), ("d", "d"), ("d e", "d e")] {
        story.source(&spec(wanted));
        let at = now(&story);
        let view = story.node.view(at);
        assert_eq!(uids(&view), expect);
        // The same again while nothing changed.
        assert!(Arc::ptr_eq(&view, &story.node.view(at)));
        places.push(Arc::as_ptr(&view) as usize);
        if wanted == "b c" {
            held = Some(view);
        }
    }
    let reused: Vec<bool> = places.windows(3).map(|three| three[0] == three[2]).collect();
    assert_eq!(reused, [true, true, false, true]);
    assert_eq!(held.map(|view| uids(&view)), Some("b c".to_owned()));
}

#[test]
fn a_static_pod_without_a_record_goes_on_from_what_its_mirror_shows() {
    let at = |minute: u32| format!("1970-01-01T00:{minute:02}:00Z");
    let with = |annotations: serde_json::Value, status: serde_json::Value| {
        let mut value = serde_json::to_value(pod("a", "a", "i:1", None).as_ref()).expect("json");
        (value["metadata"]["annotations"], value["status"]) = (annotations, status);
        Arc::new(serde_json::from_value::<Pod>(value).expect("a pod"))
    };
    let hash = "kubernetes.io/config.hash";
    let own = with(serde_json::json!({ hash: "a", "kubernetes.io/config.source": "file" }), serde_json::Value::Null);
    let told = |phase: &str, began: u32| {
        let conditions: Vec<serde_json::Value> = ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
            .iter()
            .map(|type_| serde_json::json!({ "type": type_, "status": "True", "lastTransitionTime": at(began + 1) }))
            .collect();
        serde_json::json!({ "phase": phase, "startTime": at(began), "conditions": conditions })
    };
    let mirror = |of: &str, status| {
        let annotations =
            serde_json::json!({ hash: of, "kubernetes.io/config.source": "file", "kubernetes.io/config.mirror": of });
        let mut mirror = with(annotations, status).as_ref().clone();
        mirror.metadata.uid = Some("mirror".to_owned());
        Arc::new(mirror)
    };
    for (mirror, goes_on) in [
        (mirror("a", told("Running", 1)), true),
        (mirror("another", told("Running", 1)), false),
        (mirror("a", told("Failed", 1)), false),
        (mirror("a", serde_json::Value::Null), false),
    ] {
        let mut story = Story::with_sources(&[SourceKind::File, SourceKind::Api]);
        story.wall = 600;
        story.source(&[Arc::clone(&own)]);
        let runs = ContainerState::Running { started_at: 0 };
        story.see(Scope::All, vec![a_running_pod("a", "a", 0, runs)], &[]);
        // The API server is heard of later, when its status was shown already.
        story.node.view(Now { mono: story.mono(), wall: story.wall * 1_000_000_000 });
        story.source = SourceKind::Api;
        story.source(&[mirror]);
        let status = story.node.view(Now { mono: story.mono(), wall: story.wall * 1_000_000_000 }).pods
            [&PodUid::from("a")]
            .status
            .clone();
        let ready = status.conditions.iter().flatten().find(|one| one.type_ == "Ready").expect("a condition");
        let seconds = |time: &Option<crate::api::meta::Time>| time.as_ref().map_or(0, |time| time.0.as_second());
        let times = [seconds(&status.start_time), seconds(&ready.last_transition_time)];
        assert_eq!(times == [60, 120], goes_on, "{times:?}");
        assert!(goes_on || times.iter().all(|time| *time >= 600), "{times:?}");
    }
}

//! Tests of the prober's threads with attempts that do as they are told.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::api::probe::{ErroredState, NetAction, ProbeCall};
use crate::api::runtime::{ContainerState, RuntimeContainer, RuntimePod};
use crate::api::v1::{ContainerStatus, PodStatus};
use crate::api::{ContainerId, PodName};
use crate::msg::{PodView, ProbeKind, ProbeVerdict};
use crate::util::cancel::Cancel;

const LONG: Duration = Duration::from_secs(60);

/// Attempts that are answered from a channel.
struct Script {
    /// Says which port was asked.
    asked: Sender<u16>,
    answers: Receiver<ProbeOutcome>,
    at_once: AtomicUsize,
    most_at_once: Mutex<usize>,
}

impl Attempts for Script {
    fn attempt(&self, _container: &ContainerId, call: &ProbeCall, _cancel: &Cancel) -> ProbeOutcome {
        let ProbeAction::Net(NetAction::Tcp { port, .. }) = call.action else { panic!("another call: {call:?}") };
        let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        let mut most = self.most_at_once.lock().expect("nobody panicked");
        *most = now.max(*most);
        drop(most);
        self.asked.send(port).expect("somebody listens");
        let answer = self.answers.recv_timeout(LONG).expect("an answer");
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        assert_ne!(answer, ProbeOutcome::Failure("panic".to_owned()), "as the test wants it");
        answer
    }
}

fn script() -> (Arc<Script>, Receiver<u16>, Sender<ProbeOutcome>) {
    let (asked, hears) = bounded(1000);
    let (answer, answers) = bounded(1000);
    (Arc::new(Script { asked, answers, at_once: AtomicUsize::new(0), most_at_once: Mutex::default() }), hears, answer)
}

fn job(probe: u64) -> Job {
    let port = u16::try_from(probe).expect("a port");
    let action = ProbeAction::Net(NetAction::Tcp { host: "h".to_owned(), port });
    Job { probe, container: "c".into(), call: Ok(ProbeCall { action, timeout: LONG }) }
}

#[test]
fn a_pool_grows_to_its_bound_and_does_all_there_is() {
    let (script, asked, answers) = script();
    let (sender, done) = bounded(16);
    let pool = Pool::new(PoolSettings { name: "test", max: 3 }, Arc::clone(&script) as Arc<dyn Attempts>, sender);
    for probe in 1..=10 {
        assert_eq!(pool.submit(job(probe)), None);
    }
    for _ in 0..3 {
        asked.recv_timeout(LONG).expect("three threads take one each");
    }
    for _ in 0..10 {
        answers.send(ProbeOutcome::Success).expect("room");
    }
    let mut ended: Vec<u64> = (0..10).map(|_| done.recv_timeout(LONG).expect("an end").job.probe).collect();
    ended.sort_unstable();
    assert_eq!(ended, (1..=10).collect::<Vec<_>>());
    assert_eq!(*script.most_at_once.lock().expect("nobody panicked"), 3);
}

#[test]
fn an_attempt_that_fails_in_a_way_that_it_should_not_ends_alone() {
    let (script, _asked, answers) = script();
    let (sender, done) = bounded(16);
    let pool = Pool::new(PoolSettings { name: "test", max: 1 }, script, sender);
    answers.send(ProbeOutcome::Failure("panic".to_owned())).expect("room");
    answers.send(ProbeOutcome::Success).expect("room");
    pool.submit(job(1));
    pool.submit(job(2));
    let first = done.recv_timeout(LONG).expect("an end").outcome;
    assert!(matches!(first, ProbeOutcome::Errored { state: ErroredState::Unknown, .. }), "{first:?}");
    assert_eq!(done.recv_timeout(LONG).expect("an end").outcome, ProbeOutcome::Success);
}

#[test]
fn what_finds_nothing_out_is_tried_three_times() {
    let errored = || ProbeOutcome::Errored { state: ErroredState::Unknown, why: "away".to_owned() };
    for (given, expect, tries) in [
        (vec![ProbeOutcome::Success], ProbeOutcome::Success, 1),
        (vec![errored(), ProbeOutcome::Success], ProbeOutcome::Success, 2),
        (vec![errored(), errored(), errored()], errored(), 3),
    ] {
        let (script, asked, answers) = script();
        for answer in given {
            answers.send(answer).expect("room");
        }
        assert_eq!(attempt::with_retries(&*script, &job(1), &Cancel::new()), expect);
        assert_eq!(asked.len(), tries);
    }
    let (script, asked, _answers) = script();
    let mut cannot = job(1);
    cannot.call = Err("no such port".to_owned());
    assert_eq!(attempt::with_retries(&*script, &cannot, &Cancel::new()), attempt::impossible("no such port"));
    assert!(asked.is_empty());
}

/// A pod whose container runs with a readiness probe, ready or not.
fn view(ready: bool) -> NodeView {
    let pod = json!({"metadata": {"uid": "u"}, "spec": {"containers": [
        {"name": "app", "readinessProbe": {"tcpSocket": {"port": 7}, "periodSeconds": 1}},
    ]}});
    let mut view = PodView::named("u".into(), PodName { namespace: "ns".into(), name: "p".into() });
    view.pod = Some(Arc::new(serde_json::from_value(pod).expect("a pod")));
    let running = ContainerState::Running { started_at: clock::wall() };
    let containers = vec![RuntimeContainer::bare("c", "s", "app", 0, running)];
    view.runtime = Some(Arc::new(RuntimePod { containers, ..RuntimePod::default() }));
    let told = ContainerStatus {
        name: "app".to_owned(),
        container_id: Some("r://c".to_owned()),
        started: Some(true),
        ready,
        ..ContainerStatus::default()
    };
    view.status = Arc::new(PodStatus {
        pod_ip: Some("10.0.0.1".to_owned()),
        container_statuses: Some(vec![told]),
        ..PodStatus::default()
    });
    NodeView { pods: [("u".into(), Arc::new(view))].into(), ..NodeView::default() }
}

#[test]
fn the_thread_follows_the_view_and_tells_what_changed() {
    let (script, asked, answers) = script();
    let shown = Arc::new(Snapshot::new(NodeView::default()));
    let (bell, rung) = bounded(1);
    let (to_loop, heard) = bounded(16);
    let prober = ProberHandle::start(script, Arc::clone(&shown), rung, to_loop).expect("a thread");
    shown.set(Arc::new(view(false)));
    bell.send(()).expect("it listens");
    assert_eq!(asked.recv_timeout(LONG), Ok(7));
    answers.send(ProbeOutcome::Success).expect("room");
    let FromProber::Verdict(verdict) = heard.recv_timeout(LONG).expect("a verdict") else { panic!("an event") };
    let expect = ProbeVerdict { uid: "u".into(), container: "c".into(), probe: ProbeKind::Readiness, success: true };
    assert_eq!(verdict, expect);
    // The next attempt comes by itself, and a failure is told to people before it changes anything.
    assert_eq!(asked.recv_timeout(LONG), Ok(7));
    answers.send(ProbeOutcome::Failure("bad".to_owned())).expect("room");
    let FromProber::Event(event) = heard.recv_timeout(LONG).expect("an event") else { panic!("a verdict") };
    assert_eq!((event.reason.as_str(), event.message.as_str()), ("Unhealthy", "Readiness probe failed: bad"));
    drop(prober);
    assert!(heard.recv_timeout(LONG).is_err(), "it has ended");
}

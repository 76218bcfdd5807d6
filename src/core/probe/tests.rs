//! Tests of the probes' book: stories of one container told as text, and what holds in any story.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Book, Job};
use crate::api::moment::{Moment, Now};
use crate::api::probe::{ErroredState, NetAction, ProbeAction, ProbeOutcome};
use crate::api::runtime::{ContainerState, Exit, RuntimeContainer, RuntimePod};
use crate::api::v1::{ContainerStatus, Pod, PodStatus};
use crate::api::{ContainerId, PodName};
use crate::msg::{FromProber, Life, NodeView, PodView, ProbeKind};

/// Wall time at the story's second 0, in seconds.
const EPOCH: i64 = 1_000_000;

/// What happens around the prober.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Nothing of the pod runs yet.
    Seen,
    /// This instance runs, and started now.
    Run(u8),
    /// The instance ends.
    Exit,
    /// The pod begins to end.
    End,
    /// The pod is gone.
    Gone,
}

/// The node around one container.
struct Story {
    book: Book,
    pod: Arc<Pod>,
    /// In milliseconds.
    now: u64,
    life: Life,
    instance: Option<(u8, i64)>,
    runs: bool,
    started: bool,
    ready: bool,
    /// Answers to come, by kind; the last one is repeated.
    answers: BTreeMap<ProbeKind, Vec<char>>,
    under_way: Vec<(u64, Job, ProbeKind, char)>,
    told: Vec<String>,
}

impl Story {
    fn new(probes: Value, answers: &[(ProbeKind, &str)]) -> Self {
        let mut container = json!({"name": "app"});
        for (name, probe) in probes.as_object().expect("probes") {
            let mut probe = probe.clone();
            probe["tcpSocket"] = json!({"port": 80 + container.as_object().map_or(0, serde_json::Map::len)});
            container[name] = probe;
        }
        let pod = json!({"metadata": {"uid": "u", "name": "p"}, "spec": {"containers": [container]}});
        Self {
            book: Book::new(Now { mono: Moment::default(), wall: EPOCH * 1_000_000_000 }),
            pod: Arc::new(serde_json::from_value(pod).expect("a pod")),
            now: 0,
            life: Life::Active,
            instance: None,
            runs: false,
            started: false,
            ready: false,
            answers: answers.iter().map(|(kind, text)| (*kind, text.chars().rev().collect())).collect(),
            under_way: Vec::new(),
            told: Vec::new(),
        }
    }

    fn clock(&self) -> Now {
        let wall = EPOCH * 1_000_000_000 + i64::try_from(self.now).expect("a time") * 1_000_000;
        Now { mono: Moment::from_boot(Duration::from_millis(self.now)), wall }
    }

    fn has(&self, kind: ProbeKind) -> bool {
        let container = &self.pod.spec.as_ref().expect("a spec").containers[0];
        super::target::probe_of(container, kind).is_some()
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Seen => {}
            Act::Run(id) => {
                if self.instance.is_none_or(|(old, _)| old != id) || !self.runs {
                    self.instance = Some((id, self.clock().wall));
                    (self.started, self.ready) = (!self.has(ProbeKind::Startup), !self.has(ProbeKind::Readiness));
                }
                self.runs = true;
            }
            Act::Exit => self.runs = false,
            Act::End => self.life = Life::Ending,
            Act::Gone => {
                self.life = Life::Over;
                self.runs = false;
            }
        }
        self.see();
    }

    fn see(&mut self) {
        let mut view = PodView::named("u".into(), PodName { namespace: "ns".into(), name: "p".into() });
        view.pod = Some(Arc::clone(&self.pod));
        view.life = self.life;
        if let Some((id, started_at)) = self.instance {
            let state = if self.runs {
                ContainerState::Running { started_at }
            } else {
                ContainerState::Exited(Exit::default())
            };
            let name = format!("c{id}");
            let instance = RuntimeContainer::bare(&name, "s", "app", u32::from(id), state);
            view.runtime = Some(Arc::new(RuntimePod { containers: vec![instance], ..RuntimePod::default() }));
            let told = ContainerStatus {
                name: "app".into(),
                container_id: Some(format!("r://{name}")),
                started: Some(self.runs && self.started),
                ready: self.runs && self.started && self.ready,
                ..ContainerStatus::default()
            };
            let status = PodStatus {
                pod_ip: Some("10.0.0.1".into()),
                container_statuses: Some(vec![told]),
                ..PodStatus::default()
            };
            view.status = Arc::new(status);
        }
        let pods = BTreeMap::from([("u".into(), Arc::new(view))]);
        let node = NodeView { pods, ..NodeView::default() };
        self.book.see(&node, self.clock(), &mut || 0.5);
    }

    /// Time passes up to `until`, in milliseconds.
    fn pass(&mut self, until: u64) {
        loop {
            let due = self.book.next_due().map(|due| u64::try_from(due.since_boot().as_millis()).expect("a time"));
            let ends = self.under_way.iter().map(|(at, ..)| *at).min();
            let Some(next) = [due, ends].into_iter().flatten().min().filter(|next| *next <= until) else { break };
            self.now = self.now.max(next);
            self.finish();
            while let Some(job) = self.book.take_due(self.clock().mono) {
                self.begin(job);
            }
            self.finish();
        }
        self.now = self.now.max(until);
    }

    fn begin(&mut self, job: Job) {
        let kind = self.kind_of(&job);
        // Rules of every story.
        assert!(
            self.under_way.iter().all(|(_, other, ..)| other.probe != job.probe),
            "two attempts of {kind:?} at once"
        );
        let (id, _) = self.instance.filter(|_| self.runs).expect("an attempt at a container that does not run");
        assert_eq!(job.container, ContainerId::from(format!("c{id}")), "an attempt at another instance");
        assert_eq!(kind == ProbeKind::Startup, !self.started, "{kind:?} while started is {}", self.started);
        assert!(self.life == Life::Active || (self.life == Life::Ending && kind == ProbeKind::Readiness));
        let answers = self.answers.entry(kind).or_default();
        let answer = if answers.len() > 1 { answers.pop() } else { answers.last().copied() }.unwrap_or('s');
        // `l` fails late, after two and a half seconds.
        let ends = self.now + if answer == 'l' { 2_500 } else { 0 };
        self.under_way.push((ends, job, kind, answer));
    }

    /// Each kind has a port of its own here.
    fn kind_of(&self, job: &Job) -> ProbeKind {
        let Ok(call) = &job.call else { panic!("no call: {job:?}") };
        let ProbeAction::Net(NetAction::Tcp { port, host }) = &call.action else { panic!("another call: {call:?}") };
        assert_eq!(host, "10.0.0.1");
        let container = &self.pod.spec.as_ref().expect("a spec").containers[0];
        let kinds = [ProbeKind::Startup, ProbeKind::Liveness, ProbeKind::Readiness];
        let kind = kinds.into_iter().find(|kind| {
            let probe = super::target::probe_of(container, *kind);
            let asked = probe.and_then(|probe| {
                super::target::call(
                    probe,
                    container,
                    &PodStatus { pod_ip: Some("10.0.0.1".into()), ..PodStatus::default() },
                )
                .ok()
            });
            asked.is_some_and(|asked| asked.action == call.action)
        });
        kind.unwrap_or_else(|| panic!("port {port} is nobody's"))
    }

    fn finish(&mut self) {
        while let Some(at) = self.under_way.iter().position(|(ends, ..)| *ends <= self.now) {
            let (_, job, kind, answer) = self.under_way.remove(at);
            let outcome = match answer {
                's' => ProbeOutcome::Success,
                'w' => ProbeOutcome::Warning("odd".into()),
                'g' => ProbeOutcome::Gone,
                'e' => ProbeOutcome::Errored { state: ErroredState::Unknown, why: "away".into() },
                _ => ProbeOutcome::Failure("bad".into()),
            };
            let letter = kind.as_str().chars().next().unwrap_or_default().to_ascii_lowercase();
            let mut line = format!("{}{letter}{answer}", Duration::from_millis(self.now).as_secs_f64());
            let current = self.instance.filter(|_| self.runs).map(|(id, _)| ContainerId::from(format!("c{id}")));
            for message in self.book.finish(&job, &outcome, self.clock()) {
                match message {
                    FromProber::Event(event) => {
                        assert!(!matches!(answer, 's' | 'g'), "no news");
                        assert_eq!(event.field_path, "spec.containers{app}");
                        let reason = if answer == 'w' { "ProbeWarning" } else { "Unhealthy" };
                        assert_eq!(event.reason, reason);
                        let word = kind.as_str();
                        let expect = match answer {
                            'w' => format!("{word} probe warning: odd"),
                            'e' => format!("{word} probe errored and resulted in unknown state: away"),
                            _ => format!("{word} probe failed: bad"),
                        };
                        assert_eq!(event.message, expect);
                    }
                    FromProber::Verdict(verdict) => {
                        assert_eq!((&verdict.container, verdict.probe), (&job.container, kind));
                        assert_eq!(Some(&verdict.container), current.as_ref(), "a verdict on what does not run");
                        match (kind, verdict.success) {
                            (ProbeKind::Startup, true) => self.started = true,
                            (ProbeKind::Readiness, ready) => {
                                assert_ne!(self.ready, ready, "a verdict that is no news");
                                self.ready = ready;
                            }
                            (ProbeKind::Startup | ProbeKind::Liveness, false) => {}
                            (ProbeKind::Liveness, true) => panic!("nobody doubted it"),
                        }
                        line.push_str(if verdict.success { "=up" } else { "=down" });
                    }
                }
            }
            self.told.push(line);
            self.see();
        }
    }
}

/// Tells a story: the probes of a container, the answers that each gets, what happens at which second, and until
/// which. Expected are all attempts as `second kind answer`, with their verdicts.
#[track_caller]
fn check(probes: Value, answers: &[(ProbeKind, &str)], acts: &[(u64, Act)], until: u64, expect: &str) {
    let mut story = Story::new(probes, answers);
    for (at, act) in acts {
        story.pass(at * 1000);
        story.act(*act);
    }
    story.pass(until * 1000);
    assert_eq!(story.told.join(" "), expect);
}

use Act::{End, Exit as Ends, Gone, Run, Seen};
use ProbeKind::{Liveness, Readiness, Startup};

#[test]
fn a_liveness_probe_keeps_its_beat_and_gives_up_at_its_threshold() {
    let probe = || json!({"livenessProbe": {"periodSeconds": 10}});
    let acts = [(0, Seen), (4, Run(1)), (45, Run(2))];
    check(probe(), &[(Liveness, "sffff")], &acts, 65, "10ls 20lf 30lf 40lf=down 50lf 60lf");
    // Failures in a row count, and errors do not.
    check(probe(), &[(Liveness, "ffsfegws")], &acts[..2], 90, "10lf 20lf 30ls 40lf 50le 60lg 70lw 80ls 90ls");
    check(json!({"livenessProbe": {"failureThreshold": 1}}), &[(Liveness, "f")], &acts[..2], 35, "10lf=down");
    check(json!({"livenessProbe": {"initialDelaySeconds": 15, "periodSeconds": 3}}), &[], &acts[..2], 25, "21ls 24ls");
}

#[test]
fn a_readiness_probe_begins_at_once_and_goes_on() {
    let acts = [(0, Seen), (4, Run(1))];
    let probe = |more: Value| {
        let mut probe = json!({"periodSeconds": 5});
        probe.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({"readinessProbe": probe})
    };
    check(probe(json!({})), &[(Readiness, "fsffffs")], &acts, 36, "4rf 9rs=up 14rf 19rf 24rf=down 29rf 34rs=up");
    check(probe(json!({"successThreshold": 2})), &[(Readiness, "sfss")], &acts, 20, "4rs 9rf 14rs 19rs=up");
    check(probe(json!({"initialDelaySeconds": 3})), &[], &acts, 13, "7rs=up 12rs");
    // The next instance has it all to do again, and one that ends is left alone.
    let acts = [(0, Seen), (4, Run(1)), (6, Ends), (12, Run(2)), (14, End), (23, Gone)];
    check(probe(json!({})), &[], &acts, 40, "4rs=up 12rs=up 17rs 22rs");
}

#[test]
fn a_startup_probe_goes_first() {
    let probes = || {
        json!({
            "startupProbe": {"periodSeconds": 2},
            "livenessProbe": {"periodSeconds": 5},
            "readinessProbe": {"periodSeconds": 7},
        })
    };
    let acts = [(0, Seen), (1, Run(1))];
    check(probes(), &[(Startup, "ffs")], &acts, 14, "2sf 4sf 6ss=up 6rs=up 10ls 13rs");
    let acts = [(0, Seen), (1, Run(1)), (11, Ends), (11, Run(2)), (13, End)];
    check(probes(), &[(Startup, "ffffs")], &acts, 20, "2sf 4sf 6sf=down 12sf");
}

#[test]
fn one_attempt_at_a_time_and_a_late_one_is_followed_by_one() {
    let acts = [(0, Seen), (0, Run(1))];
    let probe = || json!({"livenessProbe": {"periodSeconds": 1, "failureThreshold": 3}});
    check(probe(), &[(Liveness, "lls")], &acts, 7, "2.5ll 5ll 5ls 6ls 7ls");
    // What an attempt finds out about an instance that is gone counts for nobody.
    let acts = [(0, Seen), (0, Run(1)), (1, Run(2))];
    let probe = json!({"livenessProbe": {"periodSeconds": 2, "failureThreshold": 1}});
    check(probe, &[(Liveness, "ls")], &acts, 6, "2.5ll 4ls 6ls");
}

#[test]
fn what_ran_before_the_agent_is_believed_and_spread_over_the_period() {
    for (ready, answers, expect) in [
        (true, "s", "5rs 15rs 25rs 35rs"),
        (true, "f", "5rf 15rf 25rf=down 35rf"),
        (false, "s", "5rs=up 15rs 25rs 35rs"),
    ] {
        let mut story = Story::new(json!({"readinessProbe": {"periodSeconds": 10}}), &[(Readiness, answers)]);
        (story.instance, story.runs) = (Some((1, 5)), true);
        (story.started, story.ready) = (true, ready);
        story.act(Seen);
        story.pass(35_000);
        assert_eq!(story.told.join(" "), expect);
    }
    // Once the agent has been there for a period, nothing comes all at once any more.
    let mut story = Story::new(json!({"livenessProbe": {"periodSeconds": 10}}), &[]);
    story.pass(12_000);
    (story.instance, story.runs, story.started) = (Some((1, 5)), true, true);
    story.act(Seen);
    story.pass(23_000);
    assert_eq!(story.told.join(" "), "12ls 22ls");
}

#[test]
fn handlers_are_filled_in() {
    let container = json!({
        "name": "app",
        "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {}}, {"name": "A", "value": "2"}],
        "ports": [{"name": "web", "containerPort": 8080}],
    });
    let container: crate::api::v1::Container = serde_json::from_value(container).expect("a container");
    let mut status = PodStatus { pod_ip: Some("10.0.0.1".into()), ..PodStatus::default() };
    let call = |handler: Value, status: &PodStatus| {
        let probe = serde_json::from_value(handler).expect("a probe");
        match super::target::call(&probe, &container, status) {
            Ok(call) => format!("{:?} within {:?}", call.action, call.timeout),
            Err(why) => why,
        }
    };
    let get = |get: Value| json!({"httpGet": get, "timeoutSeconds": 7});
    for (handler, expect) in [
        (json!({"exec": {"command": ["a", "$(A) $(B)$(C)"]}}), r#"Exec { command: ["a", "2 $(C)"] } within 1s"#),
        (
            get(json!({"port": "web", "path": "/x"})),
            r#"Net(Http { tls: false, host: "10.0.0.1", port: 8080, path: "/x", headers: [] }) within 7s"#,
        ),
        (
            get(json!({"port": 1, "scheme": "HTTPS", "host": "h", "httpHeaders": [{"name": "n", "value": "v"}]})),
            r#"Net(Http { tls: true, host: "h", port: 1, path: "", headers: [("n", "v")] }) within 7s"#,
        ),
        (json!({"tcpSocket": {"port": "99", "host": "h"}}), r#"Net(Tcp { host: "h", port: 99 }) within 1s"#),
        (
            json!({"grpc": {"port": 5, "service": "s"}}),
            r#"Net(Grpc { host: "10.0.0.1", port: 5, service: "s" }) within 1s"#,
        ),
        (json!({"tcpSocket": {"port": "nope"}}), "container app has no port named \"nope\""),
        (json!({"tcpSocket": {"port": 70000}}), "invalid port number: 70000"),
        (json!({"grpc": {"port": 0}}), "invalid port number: 0"),
        (json!({}), "the probe has none of exec, httpGet, tcpSocket and grpc"),
    ] {
        assert_eq!(call(handler, &status), expect);
    }
    status.pod_ip = None;
    assert_eq!(call(json!({"tcpSocket": {"port": 1}}), &status), "the pod has no address yet");
}

#[test]
fn only_apps_and_sidecars_are_probed() {
    let probe = json!({"tcpSocket": {"port": 1}});
    let pod = json!({"spec": {
        "initContainers": [
            {"name": "init", "livenessProbe": probe},
            {"name": "side", "restartPolicy": "Always", "startupProbe": probe},
        ],
        "containers": [{"name": "app", "readinessProbe": probe, "livenessProbe": probe}, {"name": "bare"}],
        "ephemeralContainers": [{"name": "eph", "livenessProbe": probe}],
    }});
    let mut view = PodView::named("u".into(), PodName { namespace: "ns".into(), name: "p".into() });
    view.pod = Some(Arc::new(serde_json::from_value(pod).expect("a pod")));
    let told = |view: &PodView| {
        let probes = super::target::probes_of(view).map(|(container, kind, _)| format!("{} {kind:?}", container.name));
        probes.collect::<Vec<_>>().join(", ")
    };
    assert_eq!(told(&view), "app Liveness, app Readiness, side Startup");
    for (life, expect) in [(Life::Ending, "app Readiness"), (Life::Waiting, ""), (Life::Over, "")] {
        view.life = life;
        assert_eq!(told(&view), expect);
    }
    let pod = view.pod.as_deref().expect("a pod");
    let paths = ["app", "side"].map(|name| super::target::field_path(pod, name));
    assert_eq!(paths, ["spec.containers{app}", "spec.initContainers{side}"]);
}

#[test]
fn a_pod_that_is_gone_leaves_nothing_behind() {
    let mut story = Story::new(json!({"livenessProbe": {}, "readinessProbe": {}}), &[]);
    story.act(Run(1));
    assert_eq!(story.book.len(), 2);
    story.book.see(&NodeView::default(), story.clock(), &mut || 0.5);
    assert!(story.book.is_empty());
    assert_eq!((story.book.next_due(), story.book.take_due(Moment::from_boot(Duration::from_secs(99)))), (None, None));
}

fn an_act() -> impl Strategy<Value = Act> {
    prop_oneof![4 => (0..4_u8).prop_map(Run), 3 => Just(Ends), 2 => Just(Seen), 1 => Just(End)]
}

proptest! {
    /// The rules are asserted while the story is told: one attempt of a probe at a time, only at what runs, startup
    /// before the others, verdicts only where they are news.
    #[test]
    fn any_story_keeps_the_rules(
        has in prop::collection::vec((0..5_u32, 1..6_u32, 1..4_u32), 3),
        which in 1..8_u8,
        answers in prop::collection::vec("[sfwegl]{1,12}", 3),
        acts in prop::collection::vec((0..9_u64, an_act()), 0..30),
    ) {
        let names = ["startupProbe", "livenessProbe", "readinessProbe"];
        let mut probes = json!({});
        for (at, (name, (delay, period, threshold))) in names.iter().zip(&has).enumerate() {
            if which >> at & 1 == 1 {
                probes[*name] = json!({
                    "initialDelaySeconds": delay, "periodSeconds": period, "failureThreshold": threshold,
                    "successThreshold": if at == 2 { *threshold } else { 1 },
                });
            }
        }
        let kinds = [Startup, Liveness, Readiness];
        let answers: Vec<(ProbeKind, &str)> = kinds.into_iter().zip(answers.iter().map(String::as_str)).collect();
        let mut story = Story::new(probes, &answers);
        let mut at = 0;
        for (wait, act) in acts {
            at += wait * 700;
            story.pass(at);
            // An instance never comes back after its end.
            let act = match act {
                Run(_) if !story.runs => Run(story.instance.map_or(0, |(id, _)| id.wrapping_add(1))),
                Run(id) => Run(story.instance.map_or(id, |(old, _)| old.max(id))),
                other => other,
            };
            story.act(act);
        }
        story.pass(at + 20_000);
        // Whoever runs and may be asked is asked again and again.
        let asks = story.runs && story.life == Life::Active && story.started && which & 4 == 4;
        prop_assert!(!asks || story.book.next_due().is_some() || !story.under_way.is_empty());
    }
}

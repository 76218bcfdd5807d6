//! What holds whatever the runtime shows, in whatever order, and whatever was told before.

use proptest::prelude::*;

use super::*;
use crate::api::v1::ContainerStatus;

/// One life of a pod: what the runtime showed and where the pod stood, look by look.
#[derive(Clone, Debug)]
struct Look {
    observed: Option<RuntimePod>,
    stage: Stage<'static>,
    waiting: Vec<String>,
    verdicts: (Option<bool>, Option<bool>),
    probed: String,
    is_ending: bool,
}

fn a_pod() -> impl Strategy<Value = Pod> {
    let policy = prop::sample::select(vec!["Always", "OnFailure", "Never"]);
    let source = prop::sample::select(vec!["file", "api"]);
    (policy, source, any::<bool>(), any::<bool>()).prop_map(|(policy, source, init, probes)| {
        let mut app = vec![json!({"name": "b"}), json!({"name": "a"})];
        if probes {
            app[1] = json!({"name": "a", "startupProbe": {}, "readinessProbe": {}});
        }
        let init = if init { json!([{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]) } else { json!([]) };
        serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u", "annotations": {crate::api::labels::CONFIG_SOURCE: source}},
            "spec": {"restartPolicy": policy, "initContainers": init, "containers": app,
                "ephemeralContainers": [{"name": "e"}]},
        }))
        .expect("a pod")
    })
}

fn a_state() -> impl Strategy<Value = ContainerState> {
    let time = || prop::sample::select(vec![0, 1, 500, 1500]).prop_map(|s: i64| s * SECOND);
    prop_oneof![
        Just(ContainerState::Created),
        Just(ContainerState::Unknown),
        time().prop_map(|started_at| ContainerState::Running { started_at }),
        (prop::sample::select(vec![0, 1, 137]), time(), time()).prop_map(|(code, started_at, finished_at)| {
            ContainerState::Exited(Exit { code, started_at, finished_at, ..Exit::default() })
        }),
    ]
}

fn a_container() -> impl Strategy<Value = RuntimeContainer> {
    let name = prop::sample::select(vec!["a", "b", "i", "s", "e", "stranger"]);
    let twin = prop::sample::select(vec!["", "", "", "-twin"]);
    (name, 0..4_u32, twin, 0..2_u32, a_state(), 0..2000_i64).prop_map(|(name, attempt, twin, sandbox, state, at)| {
        RuntimeContainer {
            id: format!("{name}-{attempt}{twin}").into(),
            created_at: at * SECOND,
            ..container(name, attempt, sandbox, state)
        }
    })
}

fn a_runtime_pod() -> impl Strategy<Value = RuntimePod> {
    let sandbox = (0..2_u32, any::<bool>(), any::<bool>()).prop_map(|(attempt, ready, ip)| {
        let text =
            format!("sandbox {attempt} {} {}", if ready { "ready" } else { "dead" }, if ip { "10.0.0.1" } else { "" });
        observed(&text).sandboxes.remove(0)
    });
    let containers = prop::collection::vec(a_container(), 0..8);
    (prop::collection::vec(sandbox, 0..3), containers).prop_map(|(sandboxes, containers)| RuntimePod {
        sandboxes,
        containers,
        ..RuntimePod::default()
    })
}

fn a_look() -> impl Strategy<Value = Look> {
    let stage = prop::sample::select(vec![
        Stage::Waiting,
        Stage::Active,
        Stage::Active,
        Stage::Active,
        Stage::Terminating,
        Stage::Terminated,
    ]);
    let names = prop::sample::subsequence(vec!["a", "b", "i", "s", "e"], 0..=5);
    let verdict = || prop::option::of(any::<bool>());
    let seen = prop_oneof![1 => Just(None), 9 => a_runtime_pod().prop_map(Some)];
    (seen, stage, names, (verdict(), verdict()), 0..3_u32, prop::bool::weighted(0.1)).prop_map(
        |(observed, stage, names, verdicts, probed, is_ending)| Look {
            observed,
            stage,
            waiting: names.into_iter().map(str::to_owned).collect(),
            verdicts,
            probed: format!("a-{probed}"),
            is_ending,
        },
    )
}

fn at(pod: &Pod, look: &Look, previous: Option<PodStatus>, now: i64) -> Scene {
    let mut scene = scene(json!({"containers": []}));
    scene.pod = pod.clone();
    scene.observed.clone_from(&look.observed);
    scene.previous = previous;
    scene.stage = look.stage;
    scene.ending = look.is_ending.then(Ending::deadline_exceeded);
    scene.now = now;
    let scene = look.waiting.iter().fold(scene, |s, name| s.waits(name, "ErrImagePull"));
    let mut scene = scene;
    let facts = scene.facts.entry("a".into()).or_default();
    facts.probed = Some(look.probed.as_str().into());
    (facts.started, facts.ready) = look.verdicts;
    scene
}

fn statuses(status: &PodStatus) -> Vec<&ContainerStatus> {
    let lists = [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    lists.into_iter().flatten().flatten().collect()
}

fn holds(status: &PodStatus, type_: &str) -> bool {
    super::super::conditions::find(status, type_).is_some_and(|c| c.status == "True")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_status_only_moves_forward(pod in a_pod(), looks in prop::collection::vec(a_look(), 1..6)) {
        let mut told: Option<PodStatus> = None;
        for (turn, look) in (0_i64..).zip(&looks) {
            let scene = at(&pod, look, told.clone(), 2000 + turn);
            let status = scene.outcome().status;
            let phase = Phase::of(&status).expect("a phase");
            let names: usize = statuses(&status).len();
            prop_assert_eq!(names, all_containers(&pod).count());
            prop_assert!(!(phase.is_terminal() && (holds(&status, "Ready") || holds(&status, "ContainersReady"))));
            prop_assert!(phase.is_terminal() <= scene.outcome().finished);
            if let Some(told) = &told {
                let before = Phase::of(told).expect("a phase");
                prop_assert!(!before.is_terminal() || before == phase, "{:?} became {:?}", before, phase);
                prop_assert_eq!(&told.start_time, &status.start_time);
                for (old, new) in statuses(told).into_iter().zip(statuses(&status)) {
                    prop_assert_eq!(&old.name, &new.name);
                    prop_assert!(old.restart_count <= new.restart_count, "{}", containers_text(&status));
                }
            }
            told = Some(status);
        }
    }

    #[test]
    fn telling_the_same_facts_again_tells_nothing_new(pod in a_pod(), looks in prop::collection::vec(a_look(), 1..4)) {
        let mut told: Option<PodStatus> = None;
        for look in &looks {
            let first = at(&pod, look, told.clone(), 3000).outcome();
            let again = at(&pod, look, Some(first.status.clone()), 4000).outcome();
            prop_assert_eq!(containers_text(&first.status), containers_text(&again.status));
            prop_assert_eq!(conditions_text(&first.status), conditions_text(&again.status));
            prop_assert!(!differs(&first.status, &again.status));
            prop_assert!(first == again);
            told = Some(first.status);
        }
    }

    #[test]
    fn the_order_of_the_runtimes_lists_is_nothing(
        pod in a_pod(),
        first in a_look(),
        look in a_look(),
        seed in any::<u64>(),
    ) {
        let told = Some(at(&pod, &first, None, 2000).outcome().status);
        let mut other = look.clone();
        if let Some(observed) = &mut other.observed {
            shuffle(&mut observed.containers, seed);
            shuffle(&mut observed.sandboxes, seed);
        }
        prop_assert_eq!(at(&pod, &look, told.clone(), 3000).outcome(), at(&pod, &other, told, 3000).outcome());
    }

    #[test]
    fn readiness_comes_from_a_verdict_about_the_present_instance(pod in a_pod(), look in a_look()) {
        let status = at(&pod, &look, None, 2000).outcome().status;
        let a = statuses(&status).into_iter().find(|s| s.name == "a").expect("a status");
        let probed = pod::find_container(&pod, "a").expect("a container").1.readiness_probe.is_some();
        if a.ready && probed {
            prop_assert_eq!(a.container_id.clone(), Some(format!("containerd://{}", look.probed)));
            prop_assert_eq!(look.verdicts, (Some(true), Some(true)));
        }
        prop_assert!(!a.ready || a.state.as_ref().is_some_and(|s| s.running.is_some()));
    }
}

fn shuffle<T>(list: &mut [T], mut seed: u64) {
    for last in (1..list.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        list.swap(last, usize::try_from(seed >> 33).expect("31 bits") % (last + 1));
    }
}

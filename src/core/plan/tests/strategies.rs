//! Generators for the property tests: pods that the API server would let through, and whatever a runtime
//! may show beside them: dead and live duplicates, foreign containers, lost ones, attempts out of order, marks
//! that are missing or garbage, sandboxes nobody knows.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Init containers that a pod may have, in their order.
pub(super) const INITS: [&str; 3] = ["i0", "i1", "i2"];

/// App containers that a pod may have.
pub(super) const APPS: [&str; 3] = ["a0", "a1", "a2"];

/// Names that containers of the runtime bear.
fn a_name() -> impl Strategy<Value = &'static str> + Clone {
    prop::sample::select(vec!["i0", "i1", "i2", "a0", "a0", "a1", "a1", "a2", "e0", "stranger", ""])
}

fn a_policy() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["Always", "OnFailure", "Never"])
}

/// What a container says of its own restarts: policy and rules.
fn own_rules() -> impl Strategy<Value = Value> {
    let action = prop::sample::select(vec!["Restart", "RestartAllContainers"]);
    let operator = prop::sample::select(vec!["In", "NotIn"]);
    let rule = (action, operator).prop_map(
        |(action, operator)| json!([{"action": action, "exitCodes": {"operator": operator, "values": [42]}}]),
    );
    prop_oneof![
        4 => Just(json!({})),
        1 => a_policy().prop_map(|own| json!({"restartPolicy": own})),
        1 => (prop::sample::select(vec!["OnFailure", "Never"]), rule)
            .prop_map(|(own, rules)| json!({"restartPolicy": own, "restartPolicyRules": rules})),
    ]
}

fn a_spec_of(name: &'static str, own: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    (own, prop::bool::weighted(0.3), prop::bool::weighted(0.2)).prop_map(move |(mut own, probe, hook)| {
        own["name"] = name.into();
        own["image"] = format!("{name}:1").into();
        if probe {
            own["startupProbe"] = json!({"terminationGracePeriodSeconds": 7});
            own["livenessProbe"] = json!({});
        }
        if hook {
            own["lifecycle"] = json!({"preStop": {"exec": {"command": ["bye"]}}});
        }
        own
    })
}

/// Some of the init containers, sidecars among them, then some apps.
pub(super) fn a_pod() -> impl Strategy<Value = Pod> {
    let init = |name| {
        let plain = prop_oneof![
            3 => Just(json!({})),
            1 => prop::sample::select(vec!["OnFailure", "Never"]).prop_map(|own| json!({"restartPolicy": own})),
            2 => Just(json!({"restartPolicy": "Always"})),
        ];
        a_spec_of(name, plain)
    };
    let inits = (init(INITS[0]), init(INITS[1]), init(INITS[2])).prop_map(|(a, b, c)| vec![a, b, c]);
    let app = |name| a_spec_of(name, own_rules());
    let apps = (app(APPS[0]), app(APPS[1]), app(APPS[2])).prop_map(|(a, b, c)| vec![a, b, c]);
    let grace = prop::option::of(-5..60_i64);
    let target = prop::sample::select(vec!["", "i0", "a0"]);
    let debug = prop::option::weighted(0.3, target)
        .prop_map(|target| target.map(|target| json!({"name": "e0", "image": "e0:1", "targetContainerName": target})));
    (a_policy(), inits, 0..=3_usize, apps, 1..=3_usize, prop::bool::weighted(0.2), grace, debug).prop_map(
        |(policy, mut inits, inits_kept, mut apps, apps_kept, host_network, grace, debug)| {
            inits.truncate(inits_kept);
            apps.truncate(apps_kept);
            serde_json::from_value(json!({
                "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
                "spec": {"restartPolicy": policy, "initContainers": inits, "containers": apps,
                    "ephemeralContainers": debug.into_iter().collect::<Vec<_>>(), "hostNetwork": host_network, "terminationGracePeriodSeconds": grace},
            }))
            .expect("a pod")
        },
    )
}

/// What no API server lets through: names twice or empty, no containers, no spec, words nobody knows.
pub(super) fn a_broken_pod() -> impl Strategy<Value = Pod> {
    let word = || prop::sample::select(vec!["", "Always", "Never", "OnFailure", "sometimes", "a0"]);
    let container = (a_name(), word(), word(), any::<i32>()).prop_map(|(name, policy, action, code)| {
        json!({"name": name, "restartPolicy": policy, "image": action, "restartPolicyRules":
            [{"action": action, "exitCodes": {"operator": policy, "values": [code]}}, {"action": policy}]})
    });
    let list = || prop::collection::vec(container.clone(), 0..4);
    let whole = (word(), list(), list(), any::<i64>()).prop_map(|(policy, inits, apps, grace)| {
        serde_json::from_value(json!({"spec": {"restartPolicy": policy, "initContainers": inits, "containers": apps,
            "terminationGracePeriodSeconds": grace, "activeDeadlineSeconds": grace}}))
        .expect("a pod")
    });
    prop_oneof![1 => Just(Pod::default()), 9 => whole]
}

fn a_state() -> impl Strategy<Value = ContainerState> {
    let exit = prop::sample::select(vec![0, 0, 1, 42, 137])
        .prop_map(|code| ContainerState::Exited(Exit { code, ..Exit::default() }));
    prop_oneof![
        1 => Just(ContainerState::Created),
        1 => Just(ContainerState::Unknown),
        3 => Just(ContainerState::Running { started_at: 1 }),
        4 => exit,
    ]
}

/// Marks as they should be, of an older image, missing, or garbage.
fn marks(name: &str, kind: u8) -> Marks {
    let hash = |version: u32| (HASH.to_owned(), container_hash(name, &format!("{name}:{version}")));
    let annotations = match kind {
        0..=4 => BTreeMap::from([hash(1)]),
        5 => BTreeMap::from([hash(0), (PRE_STOP.to_owned(), r#"{"exec": {"command": ["bye"]}}"#.to_owned())]),
        6 => BTreeMap::from([hash(1), (RESTART_COUNT.to_owned(), "6".to_owned())]),
        7 => BTreeMap::new(),
        _ => BTreeMap::from([(RESTART_COUNT.to_owned(), "-9".to_owned()), (PRE_STOP.to_owned(), "{".to_owned())]),
    };
    Marks::read(&annotations)
}

/// A container in one of five sandboxes, which need not be there. Its id is given by its place in the list.
fn a_container(attempts: impl Strategy<Value = u32>) -> impl Strategy<Value = RuntimeContainer> {
    (a_name(), attempts, 0..5_u32, a_state(), 0..9_u8, 0..4_i64).prop_map(
        |(name, attempt, sandbox, state, marked, created_at)| {
            let mut container = container_named(name);
            container.sandbox_id = format!("sandbox-{sandbox}").into();
            container.marks = marks(name, marked);
            RuntimeContainer { attempt, state, created_at, ..container }
        },
    )
}

/// A running container with nothing special about it.
pub(super) fn container_named(name: &str) -> RuntimeContainer {
    RuntimeContainer::bare("c", "sandbox", name, 0, ContainerState::Running { started_at: 1 })
}

fn sandbox_of(attempt: u32, kind: u8) -> RuntimeSandbox {
    let words: &[&str] = match kind {
        0..=3 => &["sandbox", "0", "ready"],
        4 => &["sandbox", "0", "host"],
        5 => &["sandbox", "0", "noip"],
        _ => &["sandbox", "0", "dead"],
    };
    RuntimeSandbox { attempt, ..a_sandbox(words) }
}

fn runtime_pod(sandboxes: Vec<RuntimeSandbox>, containers: Vec<RuntimeContainer>) -> RuntimePod {
    RuntimePod { uid: Some(PodUid::from("u")), name: "p".into(), namespace: "ns".into(), sandboxes, containers }
}

/// Whatever a runtime may show of a pod, each id once.
pub(super) fn anything_observed() -> impl Strategy<Value = RuntimePod> {
    let sandbox = (0..4_u32, 0..10_u8).prop_map(|(attempt, kind)| sandbox_of(attempt, kind));
    let sandboxes = prop::collection::vec(sandbox, 0..4);
    (sandboxes, prop::collection::vec(a_container(0..5_u32), 0..9)).prop_map(|(mut sandboxes, mut containers)| {
        for (i, sandbox) in sandboxes.iter_mut().enumerate() {
            sandbox.id = format!("sandbox-{i}").into();
        }
        for (i, container) in containers.iter_mut().enumerate() {
            container.id = format!("c{i}").into();
        }
        runtime_pod(sandboxes, containers)
    })
}

/// What a pod in good order shows: a dead sandbox and a ready one, and most containers in the latter.
fn orderly_observed() -> impl Strategy<Value = RuntimePod> {
    anything_observed().prop_map(|mut observed| {
        observed.sandboxes = vec![sandbox_of(1, 0), sandbox_of(0, 9)];
        for (i, sandbox) in observed.sandboxes.iter_mut().enumerate() {
            sandbox.id = format!("sandbox-{i}").into();
        }
        for container in &mut observed.containers {
            let is_old = container.sandbox_id.as_str() == "sandbox-1";
            container.sandbox_id = if is_old { "sandbox-1" } else { "sandbox-0" }.into();
        }
        observed
    })
}

/// What a pod shows that has just begun: one sandbox, and an instance of the first init containers.
fn early_observed() -> impl Strategy<Value = RuntimePod> {
    (prop::collection::vec(a_state(), 0..4), 0..3_u32).prop_map(|(states, attempt)| {
        let container = |(name, state): (&&str, ContainerState)| RuntimeContainer {
            id: format!("{name}-{attempt}").into(),
            sandbox_id: "sandbox-0".into(),
            marks: marks(name, 0),
            attempt,
            state,
            ..container_named(name)
        };
        let containers = INITS.iter().zip(states).map(container).collect();
        runtime_pod(vec![RuntimeSandbox { id: "sandbox-0".into(), ..sandbox_of(0, 0) }], containers)
    })
}

/// A third disorder, a third pods that mostly run as they should, a third pods that begin.
pub(super) fn observed() -> impl Strategy<Value = RuntimePod> {
    prop_oneof![anything_observed(), orderly_observed(), early_observed()]
}

/// What no runtime shows: ids twice, attempts without end, empty words.
pub(super) fn broken_observed() -> impl Strategy<Value = RuntimePod> {
    let attempt = || prop::sample::select(vec![0, 1, u32::MAX - 1, u32::MAX]);
    let sandbox = (attempt(), 0..10_u8).prop_map(|(attempt, kind)| sandbox_of(attempt, kind));
    let containers = prop::collection::vec(a_container(attempt()), 0..9);
    (prop::collection::vec(sandbox, 0..4), containers)
        .prop_map(|(sandboxes, containers)| runtime_pod(sandboxes, containers))
}

fn one_memory() -> impl Strategy<Value = Box<ContainerMemory>> {
    let moment = || (0..400_u64).prop_map(|s| NOW - Duration::from_secs(s));
    let id = || prop::option::weighted(0.3, (0..9_u32).prop_map(|i| ContainerId::from(format!("c{i}").as_str())));
    let last_run = prop_oneof![
        4 => Just(LastRun::Never),
        1 => Just(LastRun::Began),
        1 => prop::sample::select(vec![0, 1, 42]).prop_map(LastRun::Ended),
    ];
    let crash = prop::option::weighted(0.4, (1..300_u64, moment(), prop::bool::weighted(0.8)));
    let failed = prop::option::weighted(0.2, 0..20_u64);
    let reason = prop::sample::select(vec![StopReason::Liveness, StopReason::Startup]);
    let (exit, ready) = ((id(), moment()), id());
    let actuated = prop::option::weighted(0.2, Just(Sizes { cpu_request: 100, ..Sizes::default() }));
    (0..7_u32, last_run, crash, exit, failed, (ready, actuated), (id(), id(), reason)).prop_map(
        |(next_attempt, last_run, crash, (exit, at), failed, (ready, actuated), (started, condemned, reason))| {
            Box::new(ContainerMemory {
                first_attempt: next_attempt.saturating_sub(4),
                next_attempt,
                last_run,
                crash: crash.map(|(delay, restarted_at, same)| {
                    // The hash is put in by `memory`, which knows the name.
                    let hash = if same { String::new() } else { "of an earlier image".to_owned() };
                    (CrashBackoff { delay: Duration::from_secs(delay), restarted_at }, hash)
                }),
                exit: exit.map(|id| (id, at)),
                failed: failed.map(|s| {
                    (NOW + Duration::from_secs(s), Reason { reason: "ErrImagePull".into(), message: "no image".into() })
                }),
                started,
                ready,
                actuated,
                condemned: condemned.map(|id| (id, reason)),
            })
        },
    )
}

/// Whatever may be remembered of the containers.
pub(super) fn memory() -> impl Strategy<Value = BTreeMap<String, Box<ContainerMemory>>> {
    prop::collection::btree_map(a_name().prop_map(str::to_owned), one_memory(), 0..5).prop_map(|mut memory| {
        for (name, of) in &mut memory {
            if let Some((_, hash)) = of.crash.as_mut().filter(|(_, hash)| hash.is_empty()) {
                *hash = container_hash(name, &format!("{name}:1"));
            }
        }
        memory
    })
}

/// A pod, what is seen and what is remembered.
pub(super) fn a_scene() -> impl Strategy<Value = Scene> {
    (a_pod(), observed(), memory(), 0..6_u32).prop_map(|(pod, observed, memory, next_sandbox_attempt)| Scene {
        pod,
        observed,
        memory,
        next_sandbox_attempt,
    })
}

/// The same without sense.
pub(super) fn a_broken_scene() -> impl Strategy<Value = Scene> {
    let pods = prop_oneof![a_pod().boxed(), a_broken_pod().boxed()];
    let seen = prop_oneof![observed().boxed(), broken_observed().boxed()];
    let attempt = prop::sample::select(vec![0, u32::MAX]);
    (pods, seen, memory(), attempt).prop_map(|(pod, observed, memory, next_sandbox_attempt)| Scene {
        pod,
        observed,
        memory,
        next_sandbox_attempt,
    })
}

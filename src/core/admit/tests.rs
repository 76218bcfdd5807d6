//! Tests of admission: which check refuses which pod, and in which words.

use serde_json::{Value, json};

use super::*;

fn pod(value: &Value) -> Pod {
    serde_json::from_value(value.clone()).expect("a pod")
}

/// The first refusal as `reason: message`, or `admitted`.
fn verdict(checks: &[&dyn Check], value: &Value, others: &[Value], limits: &Limits) -> String {
    let others: Vec<(Pod, Claim)> = others.iter().map(pod).map(|pod| (pod.clone(), Claim::of(&pod))).collect();
    let others: Vec<Other<'_>> = others.iter().map(|(pod, claim)| Other { pod, claim }).collect();
    match admit(checks, &pod(value), &AdmissionView { limits, others: &others }) {
        Verdict::Admit => "admitted".to_owned(),
        Verdict::Refuse(Reason { reason, message }) => format!("{reason}: {message}"),
        Verdict::Preempt { victims, .. } => {
            let victims: Vec<&str> = victims.iter().map(PodUid::as_str).collect();
            format!("after {}", victims.join(", "))
        }
    }
}

fn check(value: &Value, others: &[Value], limits: &Limits, expect: &str) {
    assert_eq!(verdict(CHECKS, value, others, limits), expect, "{value}");
}

fn limits() -> Limits {
    let list = [("pods", "3"), ("cpu", "2"), ("memory", "1Gi"), ("hugepages-2Mi", "64Mi"), ("example.com/tpu", "2")];
    let amount = |text: &str| text.parse().expect("an amount");
    Limits {
        node_name: "edge".to_owned(),
        labels: [("kubernetes.io/os", "linux"), ("zone", "a"), ("cores", "4")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        taints: Vec::new(),
        node_is_known: true,
        pressures: Pressures::default(),
        allocatable: list.map(|(name, text)| (name.to_owned(), amount(text))).into(),
        sysctls: SysctlAllowlist::new(&["net.core.somaxconn".to_owned()], "6.1.0").expect("a list"),
        apparmor: false,
        supplemental_groups_policy: false,
        no_pod_level_resources: false,
    }
}

/// A pod of one container, with `more` in its spec.
fn with(more: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c"}]});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({"spec": spec})
}

fn plain() -> Value {
    with(json!({}))
}

/// A pod of one container that requests this.
fn requesting(requests: Value) -> Value {
    with(json!({"containers": [{"name": "c", "resources": {"requests": requests}}]}))
}

#[test]
fn security_settings_that_the_node_cannot_keep_to() {
    let context = |context: Value| with(json!({"securityContext": context}));
    let sysctl = |name: &str| context(json!({"sysctls": [{"name": name, "value": "1"}]}));
    let profile = context(json!({"appArmorProfile": {"type": "RuntimeDefault"}}));
    let strict = context(json!({"supplementalGroupsPolicy": "Strict"}));
    let limits = limits();
    check(&plain(), &[], &limits, "admitted");
    check(&sysctl("net.core.somaxconn"), &[], &limits, "admitted");
    let unsafe_one = "SysctlForbidden: forbidden sysctl: \"kernel.msgmax\" not allowlisted";
    check(&sysctl("kernel.msgmax"), &[], &limits, unsafe_one);
    check(&profile, &[], &limits, "AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host");
    let not_strict =
        "SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not supported in this node";
    check(&strict, &[], &limits, not_strict);
    let limits = Limits { apparmor: true, supplemental_groups_policy: true, ..limits };
    check(&profile, &[], &limits, "admitted");
    check(&strict, &[], &limits, "admitted");
}

#[test]
fn room_for_what_is_requested() {
    let out = |resource: &str, requested: i64, used: i64, capacity: i64| {
        format!(
            "OutOf{resource}: Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
        )
    };
    let other = requesting(json!({"cpu": "400m", "memory": "100Mi", "example.com/tpu": "1"}));
    let in_turn = with(json!({
        "initContainers": [
            {"name": "i", "resources": {"requests": {"cpu": "1800m"}}},
            {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
        ],
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
    }));
    let with_overhead = with(json!({"overhead": {"cpu": "2"}}));
    let of_the_pod = with(json!({"resources": {"requests": {"memory": "1Gi"}}}));
    for (value, expect) in [
        (plain(), "admitted".to_owned()),
        (requesting(json!({"cpu": "1600m", "memory": "924Mi", "example.com/tpu": "1"})), "admitted".to_owned()),
        (requesting(json!({"cpu": "64"})), out("cpu", 64000, 400, 2000)),
        (requesting(json!({"cpu": "1600001u"})), out("cpu", 1601, 400, 2000)),
        (requesting(json!({"cpu": "2", "memory": "2Gi"})), out("cpu", 2000, 400, 2000)),
        (requesting(json!({"memory": "1Gi"})), out("memory", 1 << 30, 100 << 20, 1 << 30)),
        (requesting(json!({"ephemeral-storage": "1"})), out("ephemeral-storage", 1, 0, 0)),
        (requesting(json!({"hugepages-2Mi": "66Mi"})), out("hugepages-2Mi", 66 << 20, 0, 64 << 20)),
        (requesting(json!({"hugepages-1Gi": "1Gi"})), out("hugepages-1Gi", 1 << 30, 0, 0)),
        (requesting(json!({"example.com/tpu": "2"})), out("example.com/tpu", 2, 1, 2)),
        (requesting(json!({"example.com/unknown": "2"})), "admitted".to_owned()),
        (in_turn, out("cpu", 1800, 400, 2000)),
        (with_overhead, out("cpu", 2000, 400, 2000)),
        (of_the_pod, out("memory", 1 << 30, 100 << 20, 1 << 30)),
    ] {
        check(&value, std::slice::from_ref(&other), &limits(), &expect);
    }
    check(&plain(), &[plain(), plain(), plain()], &limits(), &out("pods", 1, 3, 3));
}

#[test]
fn ports_of_the_node() {
    let port = |port: Value| with(json!({"containers": [{"name": "c", "ports": [port]}]}));
    let sidecar = |policy: Value| {
        with(json!({"initContainers": [{"name": "s", "restartPolicy": policy, "ports": [{"hostPort": 80}]}]}))
    };
    let taken = "NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    for (ours, theirs, expect) in [
        (json!({"hostPort": 80}), json!({"hostPort": 80}), taken),
        (json!({"hostPort": 80, "protocol": "TCP"}), json!({"hostPort": 80}), taken),
        (json!({"hostPort": 80, "protocol": "UDP"}), json!({"hostPort": 80}), "admitted"),
        (json!({"hostPort": 81}), json!({"hostPort": 80}), "admitted"),
        (json!({"containerPort": 80}), json!({"containerPort": 80}), "admitted"),
        (json!({"hostPort": 80, "hostIP": "10.0.0.1"}), json!({"hostPort": 80}), taken),
        (json!({"hostPort": 80}), json!({"hostPort": 80, "hostIP": "10.0.0.1"}), taken),
        (json!({"hostPort": 80, "hostIP": "10.0.0.1"}), json!({"hostPort": 80, "hostIP": "10.0.0.1"}), taken),
        (json!({"hostPort": 80, "hostIP": "10.0.0.1"}), json!({"hostPort": 80, "hostIP": "10.0.0.2"}), "admitted"),
    ] {
        check(&port(ours), &[port(theirs)], &limits(), expect);
    }
    check(&sidecar(json!("Always")), &[port(json!({"hostPort": 80}))], &limits(), taken);
    check(&sidecar(json!(null)), &[port(json!({"hostPort": 80}))], &limits(), "admitted");
    // Two containers of one pod are the API server's business.
    check(&port(json!({"hostPort": 80})), &[], &limits(), "admitted");
}

#[test]
fn the_node_that_a_pod_is_meant_for() {
    let affinity = |terms: Value| {
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        with(json!({"affinity": {"nodeAffinity": required}}))
    };
    let label = |key: &str, operator: &str, values: Value| {
        affinity(json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]))
    };
    let field = |operator: &str, value: &str| {
        affinity(json!([{"matchFields": [{"key": "metadata.name", "operator": operator, "values": [value]}]}]))
    };
    let wrong = "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    for (value, right) in [
        (with(json!({"nodeSelector": {"zone": "a"}})), true),
        (with(json!({"nodeSelector": {"zone": "b"}})), false),
        (with(json!({"nodeSelector": {"zone": "a", "rack": "1"}})), false),
        (label("zone", "In", json!(["b", "a"])), true),
        (label("zone", "In", json!(["b"])), false),
        (label("rack", "In", json!(["1"])), false),
        (label("zone", "NotIn", json!(["b"])), true),
        (label("zone", "NotIn", json!(["a"])), false),
        (label("rack", "NotIn", json!(["a"])), true),
        (label("zone", "Exists", json!([])), true),
        (label("rack", "Exists", json!([])), false),
        (label("rack", "DoesNotExist", json!([])), true),
        (label("zone", "DoesNotExist", json!([])), false),
        (label("cores", "Gt", json!(["3"])), true),
        (label("cores", "Gt", json!(["4"])), false),
        (label("cores", "Lt", json!(["5"])), true),
        (label("zone", "Gt", json!(["3"])), false),
        (label("zone", "Like", json!(["a"])), false),
        (field("In", "edge"), true),
        (field("In", "other"), false),
        (field("NotIn", "other"), true),
        (field("NotIn", "edge"), false),
        (affinity(json!([])), false),
        (affinity(json!([{}])), false),
        (affinity(json!([{}, {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}])), true),
    ] {
        check(&value, &[], &limits(), if right { "admitted" } else { wrong });
    }
    let wrong_name = "NodeName: Predicate NodeName failed: node(s) didn't match the requested node name";
    check(&with(json!({"nodeName": "edge"})), &[], &limits(), "admitted");
    check(&with(json!({"nodeName": "other"})), &[], &limits(), wrong_name);
}

#[test]
fn an_operating_system_that_is_not_this_one() {
    let labelled = |os: &str| {
        let mut value = plain();
        value["metadata"] = json!({"labels": {"kubernetes.io/os": os}});
        value
    };
    let label = "PodOSSelectorNodeLabelDoesNotMatch: Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
    let field = "PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS";
    check(&labelled("linux"), &[], &limits(), "admitted");
    check(&labelled("windows"), &[], &limits(), label);
    check(&with(json!({"os": {"name": "linux"}})), &[], &limits(), "admitted");
    check(&with(json!({"os": {"name": "windows"}})), &[], &limits(), field);
}

#[test]
fn taints_that_pods_have_to_tolerate() {
    let refused = "TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
    let taint = |effect: &str| Taint {
        key: "k".to_owned(),
        value: Some("v".to_owned()),
        effect: effect.to_owned(),
        time_added: None,
    };
    let tainted = Limits { taints: vec![taint("NoSchedule"), taint("NoExecute")], ..limits() };
    check(&plain(), &[], &Limits { taints: vec![taint("NoSchedule")], ..limits() }, "admitted");
    for (toleration, enough) in [
        (json!({"key": "k", "value": "v", "effect": "NoExecute"}), true),
        (json!({"key": "k", "operator": "Equal", "value": "v"}), true),
        (json!({"key": "k", "operator": "Exists", "effect": ""}), true),
        (json!({"operator": "Exists"}), true),
        (json!({"key": "k", "value": "w"}), false),
        (json!({"key": "k"}), false),
        (json!({"key": "l", "operator": "Exists"}), false),
        (json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}), false),
        (json!({"key": "k", "operator": "Gt", "value": "1"}), false),
    ] {
        let value = with(json!({"tolerations": [toleration]}));
        check(&value, &[], &tainted, if enough { "admitted" } else { refused });
    }
    check(&plain(), &[], &tainted, refused);
    let mut of_a_manifest = plain();
    of_a_manifest["metadata"] = json!({"annotations": {crate::api::labels::CONFIG_SOURCE: "file"}});
    check(&of_a_manifest, &[], &tainted, "admitted");
}

#[test]
fn pod_level_resources_need_their_gate() {
    let of_the_pod = with(json!({"resources": {"requests": {"memory": "1Mi"}}}));
    let off = Limits { no_pod_level_resources: true, ..limits() };
    check(&of_the_pod, &[], &limits(), "admitted");
    check(&of_the_pod, &[], &off, "PodLevelResourcesNotSupported: PodLevelResources feature gate is disabled");
    check(&plain(), &[], &off, "admitted");
}

#[test]
fn the_first_refusal_in_upstreams_order_wins() {
    let port = json!([{"name": "c", "ports": [{"hostPort": 80}], "resources": {"requests": {"cpu": "9"}}}]);
    let mut worst = with(json!({
        "containers": port,
        "os": {"name": "windows"},
        "nodeName": "other",
        "nodeSelector": {"zone": "b"},
        "securityContext": {
            "sysctls": [{"name": "vm.swappiness", "value": "1"}],
            "appArmorProfile": {"type": "RuntimeDefault"},
            "supplementalGroupsPolicy": "Strict",
        },
        "resources": {"requests": {"memory": "1Mi"}},
    }));
    let neighbour = with(json!({"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}));
    let taint = Taint { key: "k".to_owned(), value: None, effect: "NoExecute".to_owned(), time_added: None };
    let limits = Limits { taints: vec![taint], no_pod_level_resources: true, ..limits() };
    let mut order = Vec::new();
    for mend in [
        "/spec/securityContext/sysctls",
        "/spec/os",
        "/spec/securityContext/supplementalGroupsPolicy",
        "/spec/containers/0/resources",
        "/spec/nodeSelector",
        "/spec/nodeName",
        "/spec/containers/0/ports",
        "/spec/tolerations",
        "/spec/securityContext/appArmorProfile",
        "/spec/resources",
    ] {
        let said = verdict(CHECKS, &worst, std::slice::from_ref(&neighbour), &limits);
        order.push(said.split(':').next().unwrap_or_default().to_owned());
        match mend {
            "/spec/tolerations" => worst["spec"]["tolerations"] = json!([{"operator": "Exists"}]),
            mend => *worst.pointer_mut(mend).expect("something to mend") = Value::Null,
        }
    }
    let expect = [
        "SysctlForbidden",
        "PodOSNotSupported",
        "SupplementalGroupsPolicyNotSupported",
        "OutOfcpu",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "TaintToleration",
        "AppArmor",
        "PodLevelResourcesNotSupported",
    ];
    assert_eq!(order, expect);
    check(&worst, &[neighbour], &limits, "admitted");
}

/// The example of the kubelet's documentation: a node without GPUs wants no pod that was made for one.
struct NoGpu;

impl Check for NoGpu {
    fn name(&self) -> &'static str {
        "GPU"
    }

    fn admit(&self, pod: &Pod, view: &AdmissionView<'_>) -> Verdict {
        let has_gpu = view.limits.labels.contains_key("gpu");
        let wants_gpu = crate::api::pod::annotation(pod, "gpu") == Some("required");
        if wants_gpu && !has_gpu {
            return Verdict::refuse("NoGpu", "the pod requires a GPU and this node has none");
        }
        Verdict::Admit
    }
}

#[test]
fn a_check_of_ones_own_takes_its_place_in_the_list() {
    let mut value = plain();
    value["metadata"] = json!({"annotations": {"gpu": "required"}});
    let checks = [&NoGpu as &dyn Check, &fit::Fit];
    assert_eq!(verdict(&checks, &value, &[], &limits()), "NoGpu: the pod requires a GPU and this node has none");
    assert_eq!(verdict(&checks, &plain(), &[], &limits()), "admitted");
    let mut limits = limits();
    limits.labels.insert("gpu".to_owned(), String::new());
    assert_eq!(verdict(&checks, &value, &[], &limits), "admitted");
}

#[test]
fn every_check_has_a_name_of_its_own() {
    let names: std::collections::BTreeSet<&str> = CHECKS.iter().map(|check| check.name()).collect();
    assert_eq!(names.len(), CHECKS.len());
}

#[test]
fn room_for_a_critical_pod() {
    let another = |uid: &str, requests: Value, limits: Value, priority: i32| {
        json!({"metadata": {"uid": uid}, "spec": {
            "priority": priority,
            "containers": [{"name": "c", "resources": {"requests": requests, "limits": limits}}],
        }})
    };
    let burstable =
        |uid: &str, cpu: &str, memory: &str| another(uid, json!({"cpu": cpu, "memory": memory}), json!({}), 0);
    let guaranteed = |uid: &str, cpu: &str, memory: &str| {
        let list = json!({"cpu": cpu, "memory": memory});
        another(uid, list.clone(), list, 0)
    };
    let best_effort = |uid: &str| another(uid, json!({}), json!({}), 0);
    let critical = |requests: Value, priority: i32| another("critical", requests, json!({}), priority);
    const SYSTEM: i32 = 2_000_000_000;
    let unmet = |what: &str| {
        format!(
            "UnexpectedAdmissionError: Unexpected error while attempting to recover from admission failure: \
             preemption: error finding a set of pods to preempt: no set of running pods found to reclaim \
             resources: [{what}]"
        )
    };
    let limits = Limits {
        allocatable: [("pods", "5"), ("cpu", "2"), ("memory", "1Gi")]
            .map(|(name, text)| (name.to_owned(), text.parse().expect("an amount")))
            .into(),
        ..limits()
    };
    let full = [burstable("b", "1", "400Mi"), guaranteed("g", "1", "400Mi")];
    for (pod, others, expect) in [
        (critical(json!({"cpu": "1"}), SYSTEM), vec![burstable("b", "1", "1Mi")], "admitted".to_owned()),
        // The class that matters less goes first, whatever its size.
        (critical(json!({"cpu": "500m"}), SYSTEM), full.to_vec(), "after b".to_owned()),
        (critical(json!({"cpu": "1500m"}), SYSTEM), full.to_vec(), "after b, g".to_owned()),
        // Few rather than many, small rather than large.
        (
            critical(json!({"cpu": "1"}), SYSTEM),
            vec![burstable("x", "400m", "1Mi"), burstable("y", "1200m", "1Mi"), burstable("z", "400m", "1Mi")],
            "after y".to_owned(),
        ),
        (
            critical(json!({"cpu": "1"}), SYSTEM),
            vec![burstable("x", "1", "200Mi"), burstable("y", "1", "100Mi")],
            "after y".to_owned(),
        ),
        (
            critical(json!({"cpu": "1", "memory": "800Mi"}), SYSTEM),
            vec![burstable("x", "900m", "100Mi"), burstable("y", "1", "500Mi")],
            "after y".to_owned(),
        ),
        // The number of pods is a resource too, and any pod will do.
        (
            critical(json!({}), SYSTEM),
            vec![burstable("b", "1", "1Mi"), best_effort("1"), best_effort("2"), best_effort("3"), best_effort("4")],
            "after 1".to_owned(),
        ),
        // Critical pods give way to none but those of higher priority.
        (
            critical(json!({"cpu": "2"}), SYSTEM),
            vec![another("c", json!({"cpu": "1"}), json!({}), SYSTEM)],
            unmet("(res: cpu, q: 1000), "),
        ),
        (
            critical(json!({"cpu": "2"}), SYSTEM + 1),
            vec![another("c", json!({"cpu": "1"}), json!({}), SYSTEM)],
            "after c".to_owned(),
        ),
        (
            critical(json!({"cpu": "3", "memory": "2Gi"}), SYSTEM),
            full.to_vec(),
            unmet("(res: cpu, q: 1000), (res: memory, q: 1073741824), "),
        ),
    ] {
        check(&pod, &others, &limits, &expect);
    }
    // Nobody makes room for a pod that is refused all the same.
    let mut elsewhere = critical(json!({"cpu": "500m"}), SYSTEM);
    elsewhere["spec"]["nodeName"] = json!("other");
    assert!(verdict(CHECKS, &elsewhere, &full, &limits).starts_with("NodeName"));
    let mut armoured = critical(json!({"cpu": "500m"}), SYSTEM);
    armoured["spec"]["securityContext"] = json!({"appArmorProfile": {"type": "RuntimeDefault"}});
    assert!(verdict(CHECKS, &armoured, &full, &limits).starts_with("AppArmor"));
}

#[test]
fn the_scheduler_counts_while_the_node_object_is_not_known() {
    let taint = Taint { key: "k".to_owned(), value: None, effect: "NoExecute".to_owned(), time_added: None };
    let known = Limits { taints: vec![taint], ..limits() };
    let unknown = Limits { node_is_known: false, ..known.clone() };
    let from = |source: &str, more: Value| {
        let mut value = with(more);
        value["metadata"] = json!({"annotations": {crate::api::labels::CONFIG_SOURCE: source}});
        value
    };
    let selector = json!({"nodeSelector": {"disk": "ssd"}});
    let reason = |value: &Value, limits: &Limits| {
        let said = verdict(CHECKS, value, &[], limits);
        said.split(':').next().unwrap_or_default().to_owned()
    };
    for (source, more, with_node, without) in [
        ("api", selector.clone(), "NodeAffinity", "admitted"),
        ("api", json!({}), "TaintToleration", "admitted"),
        ("file", selector, "NodeAffinity", "NodeAffinity"),
        ("file", json!({}), "admitted", "admitted"),
    ] {
        let value = from(source, more);
        let told = (reason(&value, &known), reason(&value, &unknown));
        assert_eq!(told, (with_node.to_owned(), without.to_owned()), "{value}");
    }
}

#[test]
fn a_node_that_is_short_of_something_lets_few_pods_in() {
    let memory = Pressures { memory: true, ..Pressures::default() };
    let disk = Pressures { disk: true, ..Pressures::default() };
    let all = Pressures { memory: true, disk: true, pid: true };
    let burstable = requesting(json!({"cpu": "1m"}));
    let tolerating =
        |key: &str, effect: &str| with(json!({"tolerations": [{"key": key, "operator": "Exists", "effect": effect}]}));
    let tolerates_memory = tolerating("node.kubernetes.io/memory-pressure", "NoSchedule");
    let tolerates_disk = tolerating("node.kubernetes.io/disk-pressure", "NoSchedule");
    let tolerates_all = with(json!({"tolerations": [{"operator": "Exists"}]}));
    let critical = with(json!({"priority": 2_000_000_000}));
    let mut manifest = plain();
    manifest["metadata"]["annotations"]["kubernetes.io/config.source"] = "file".into();
    let (by_memory, by_disk) =
        ("Evicted: The node had condition: [MemoryPressure]. ", "Evicted: The node had condition: [DiskPressure]. ");
    let by_all = "Evicted: The node had condition: [MemoryPressure DiskPressure PIDPressure]. ";
    for (pressures, pod, expect) in [
        (Pressures::default(), &plain(), "admitted"),
        (memory, &plain(), by_memory),
        (memory, &burstable, "admitted"),
        (memory, &tolerates_memory, "admitted"),
        (memory, &tolerates_all, "admitted"),
        (memory, &tolerating("node.kubernetes.io/memory-pressure", "NoExecute"), by_memory),
        (memory, &tolerates_disk, by_memory),
        (memory, &critical, "admitted"),
        (memory, &manifest, "admitted"),
        (disk, &plain(), by_disk),
        (disk, &burstable, by_disk),
        (disk, &tolerates_disk, by_disk),
        (disk, &critical, "admitted"),
        (all, &burstable, by_all),
        (all, &tolerates_all, by_all),
        (all, &manifest, "admitted"),
    ] {
        check(pod, &[], &Limits { pressures, ..limits() }, expect);
    }
}

//! Tables for QoS classes, sums, OOM scores and cgroup values.

use super::*;
use serde_json::{Value, json};

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u-1"}, "spec": spec})).expect("a pod")
}

fn container(name: &str, requests: Value, limits: Value) -> Value {
    json!({"name": name, "resources": {"requests": requests, "limits": limits}})
}

fn one(requests: Value, limits: Value) -> Value {
    json!({"containers": [container("c", requests, limits)]})
}

#[test]
fn classes_follow_requests_and_limits() {
    use QosClass::{BestEffort, Burstable, Guaranteed};
    let full = json!({"cpu": "1", "memory": "1Gi"});
    for (spec, expect) in [
        (one(json!({}), json!({})), BestEffort),
        (one(full.clone(), full.clone()), Guaranteed),
        // The API's defaulting copies limits to requests; without it, the pod is not guaranteed.
        (one(json!({}), full.clone()), Burstable),
        (one(json!({"cpu": "1000m", "memory": "1024Mi"}), full.clone()), Guaranteed),
        (one(json!({"cpu": "500m", "memory": "1Gi"}), full.clone()), Burstable),
        (one(json!({"cpu": "1"}), json!({"cpu": "1"})), Burstable),
        (one(json!({"cpu": "0"}), json!({"memory": "0"})), BestEffort),
        (one(json!({"ephemeral-storage": "1Gi", "hugepages-2Mi": "2Mi"}), json!({})), BestEffort),
        (json!({"containers": [container("a", full.clone(), full.clone()), {"name": "b"}]}), Burstable),
        (
            json!({"containers": [container("a", full.clone(), full.clone())],
                   "initContainers": [container("i", full.clone(), full.clone())]}),
            Guaranteed,
        ),
        (
            json!({"containers": [container("a", full.clone(), full.clone())], "initContainers": [{"name": "i"}]}),
            Burstable,
        ),
        // Pod-level resources decide alone.
        (json!({"containers": [{"name": "a"}], "resources": {"requests": full, "limits": full}}), Guaranteed),
        (json!({"containers": [{"name": "a"}], "resources": {"requests": full}}), Burstable),
        (
            json!({"containers": [container("a", full.clone(), full.clone())], "resources": {"limits": {"cpu": "1"}}}),
            Burstable,
        ),
        (json!({"containers": [container("a", full.clone(), full.clone())], "resources": {}}), BestEffort),
    ] {
        assert_eq!(qos_class(&pod(spec.clone())), expect, "{spec}");
    }
}

#[test]
fn the_class_noted_by_the_api_server_stands() {
    let mut p = pod(one(json!({}), json!({})));
    p.status = Some(serde_json::from_value(json!({"qosClass": "Burstable"})).expect("a status"));
    assert_eq!((qos_class(&p), computed_qos_class(&p)), (QosClass::Burstable, QosClass::BestEffort));
}

#[test]
fn shares_and_quota() {
    for (milli, shares) in [(0, 2), (1, 2), (2, 2), (100, 102), (200, 204), (1000, 1024), (1_000_000, 262_144), (-5, 2)]
    {
        assert_eq!(milli_cpu_to_shares(milli), shares, "{milli}m");
    }
    for (milli, period, quota) in
        [(0, 100_000, 0), (1, 100_000, 1000), (200, 100_000, 20_000), (1500, 100_000, 150_000), (500, 5_000, 2_500)]
    {
        assert_eq!(milli_cpu_to_quota(milli, period), quota, "{milli}m of {period}");
    }
    assert_eq!(milli_cpu_to_quota(i64::MAX, 100_000), i64::MAX);
}

#[test]
fn requests_are_the_peak_over_the_life_of_the_pod() {
    let cpu = |c: &str| json!({"cpu": c});
    let sidecar = |name: &str, c: &str| {
        let mut v = container(name, cpu(c), json!({}));
        v["restartPolicy"] = json!("Always");
        v
    };
    for (spec, expect) in [
        (json!({"containers": [container("a", cpu("1"), json!({})), container("b", cpu("500m"), json!({}))]}), 1500),
        (
            json!({"containers": [container("a", cpu("1"), json!({}))],
                   "initContainers": [container("i", cpu("3"), json!({}))]}),
            3000,
        ),
        // A sidecar runs beside the init containers after it and beside the app.
        (
            json!({"containers": [container("a", cpu("1"), json!({}))],
                   "initContainers": [sidecar("s", "2"), container("i", cpu("1500m"), json!({}))]}),
            3500,
        ),
        (
            json!({"containers": [container("a", cpu("1"), json!({}))],
                   "initContainers": [container("i", cpu("1500m"), json!({})), sidecar("s", "2")]}),
            3000,
        ),
        (json!({"containers": [container("a", cpu("1"), json!({}))], "overhead": {"cpu": "250m"}}), 1250),
        (
            json!({"containers": [container("a", cpu("1"), json!({}))],
                   "resources": {"requests": {"cpu": "4"}}, "overhead": {"cpu": "250m"}}),
            4250,
        ),
    ] {
        let p = pod(spec.clone());
        assert_eq!(pod_requests(&p, Overhead::Included)[CPU].milli_value(), expect, "{spec}");
    }
    let p = pod(
        json!({"containers": [container("a", json!({}), json!({"cpu": "1"}))], "overhead": {"cpu": "1", "memory": "1"}}),
    );
    assert_eq!(pod_limits(&p, Overhead::Included)[CPU].milli_value(), 2000);
    assert_eq!(pod_limits(&p, Overhead::Excluded)[CPU].milli_value(), 1000);
    assert_eq!(pod_limits(&p, Overhead::Included).get(MEMORY), None);
}

#[test]
fn oom_scores() {
    let node: u64 = 4 << 30;
    let sidecar = |requests: Value| {
        let mut v = container("s", requests, json!({}));
        v["restartPolicy"] = json!("Always");
        v
    };
    let memory = |m: &str| json!({"memory": m});
    let full = json!({"cpu": "1", "memory": "1Gi"});
    for (spec, index_of_init, expect) in [
        (one(json!({}), json!({})), None, 1000),
        (one(full.clone(), full.clone()), None, -997),
        (one(memory("400Mi"), json!({})), None, 903),
        (one(memory("4Ki"), json!({})), None, 999),
        (one(memory("4Gi"), json!({})), None, 3),
        (one(memory("40Gi"), json!({})), None, 3),
        (one(json!({"cpu": "1"}), json!({})), None, 999),
        // A sidecar is never killed before the app that asked for least.
        (
            json!({"containers": [container("a", memory("1Gi"), json!({})), container("b", memory("2Gi"), json!({}))],
                   "initContainers": [sidecar(memory("1Mi"))]}),
            Some(0),
            750,
        ),
        (
            json!({"containers": [container("a", memory("1Gi"), json!({}))], "initContainers": [sidecar(memory("2Gi"))]}),
            Some(0),
            500,
        ),
        // What the pod reserves beyond its containers is shared out: 1Gi over two containers.
        (
            json!({"containers": [container("a", memory("1Gi"), json!({})), {"name": "b"}],
                   "resources": {"requests": {"memory": "2Gi"}}}),
            None,
            625,
        ),
    ] {
        let p = pod(spec.clone());
        let c = match index_of_init {
            Some(i) => &pod::init_containers(&p)[i],
            None => &pod::app_containers(&p)[0],
        };
        assert_eq!(oom_score_adj(&p, c, node), expect, "{spec}");
    }
    let critical = pod(
        json!({"containers": [{"name": "c"}], "priority": 2_000_001_000, "priorityClassName": "system-node-critical"}),
    );
    assert_eq!(oom_score_adj(&critical, &pod::app_containers(&critical)[0], node), -997);
    let p = pod(one(memory("1Gi"), json!({})));
    assert_eq!(oom_score_adj(&p, &pod::app_containers(&p)[0], 0), 3, "a node of unknown size");
}

#[test]
fn values_of_the_pod_cgroup() {
    let facts = CgroupFacts { pod_pids_limit: Some(512), ..CgroupFacts::default() };
    let check = |spec: Value, expect: PodCgroup| assert_eq!(pod_cgroup(&pod(spec.clone()), &facts), expect, "{spec}");
    let base = || PodCgroup { cpu_shares: 2, pids_limit: Some(512), ..PodCgroup::default() };
    check(one(json!({}), json!({})), base());
    let full = json!({"cpu": "2", "memory": "1Mi"});
    check(
        one(full.clone(), full.clone()),
        PodCgroup {
            cpu_shares: 2048,
            cpu_quota: Some(200_000),
            cpu_period: Some(100_000),
            memory_limit: Some(1 << 20),
            ..base()
        },
    );
    // One container without limits leaves the pod without them.
    check(
        json!({"containers": [container("a", full.clone(), full.clone()), {"name": "b"}]}),
        PodCgroup { cpu_shares: 2048, ..base() },
    );
    check(
        one(json!({"cpu": "100m", "memory": "1Mi"}), json!({"memory": "2Mi"})),
        PodCgroup { cpu_shares: 102, memory_limit: Some(2 << 20), ..base() },
    );
    check(
        json!({"containers": [{"name": "a"}], "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}}}),
        PodCgroup { cpu_shares: 512, cpu_quota: Some(100_000), cpu_period: Some(100_000), ..base() },
    );
    check(
        one(json!({"cpu": "1", "hugepages-2Mi": "4Mi"}), json!({"hugepages-2Mi": "4Mi"})),
        PodCgroup { cpu_shares: 1024, hugepages: BTreeMap::from([("2MB".to_owned(), 4 << 20)]), ..base() },
    );
    let unlimited = CgroupFacts { cpu_cfs_quota: false, ..CgroupFacts::default() };
    assert_eq!(pod_cgroup(&pod(one(full.clone(), full)), &unlimited).cpu_quota, Some(-1));
}

#[test]
fn cgroup_names() {
    let full = json!({"cpu": "1", "memory": "1Gi"});
    let guaranteed = pod(one(full.clone(), full));
    let burstable = pod(one(json!({"cpu": "1"}), json!({})));
    let best_effort = pod(one(json!({}), json!({})));
    let fs = CgroupFacts::default();
    let below = CgroupFacts { root: "/edge-box/".to_owned(), ..CgroupFacts::default() };
    let systemd = CgroupFacts { driver: CgroupDriver::Systemd, ..CgroupFacts::default() };
    let none = CgroupFacts { per_qos: false, ..CgroupFacts::default() };
    for (p, facts, expect) in [
        (&guaranteed, &fs, "/kubepods/podu-1"),
        (&burstable, &fs, "/kubepods/burstable/podu-1"),
        (&best_effort, &below, "/edge-box/kubepods/besteffort/podu-1"),
        (&guaranteed, &systemd, "/kubepods.slice/kubepods-podu_1.slice"),
        (&burstable, &systemd, "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice"),
        (&best_effort, &none, ""),
    ] {
        assert_eq!(pod_cgroup_parent(p, facts), expect);
    }
}

#[test]
fn huge_page_sizes() {
    for (resource, bytes, text) in
        [("hugepages-2Mi", 2 << 20, "2MB"), ("hugepages-1Gi", 1 << 30, "1GB"), ("hugepages-64Ki", 64 << 10, "64KB")]
    {
        assert_eq!(hugepage_bytes(resource), Some(bytes));
        assert_eq!(hugepage_size_text(bytes), text);
    }
    assert_eq!((hugepage_bytes("memory"), hugepage_bytes("hugepages-lots")), (None, None));
    assert_eq!(hugepage_size_text(0), "0B");
}

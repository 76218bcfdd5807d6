//! Addresses, resources, comparison.

use super::*;
use crate::api::runtime::Resources;
use crate::api::v1::ResourceRequirements;

#[test]
fn addresses_follow_the_nodes_family() {
    for (node, sandbox, host_network, expect) in [
        (vec!["192.0.2.2"], "10.0.0.1", false, vec!["10.0.0.1"]),
        (vec!["192.0.2.2"], "fd00::1 10.0.0.1 10.0.0.2", false, vec!["10.0.0.1", "fd00::1"]),
        (vec!["2001:db8::1"], "10.0.0.1 fd00:0::1", false, vec!["fd00::1", "10.0.0.1"]),
        (vec![], "fd00::1", false, vec!["fd00::1"]),
        (vec!["192.0.2.2"], "garbage", false, vec![]),
        (vec!["192.0.2.2"], "host", true, vec!["192.0.2.2"]),
        (vec!["192.0.2.2", "2001:db8::1"], "host", true, vec!["192.0.2.2", "2001:db8::1"]),
    ] {
        let mut s = scene(json!({"hostNetwork": host_network, "containers": [{"name": "c"}]}));
        s.host_ips = node.iter().map(|ip| (*ip).to_owned()).collect();
        let status = s.see(&format!("sandbox 0 ready {sandbox}")).outcome().status;
        let ips: Vec<String> = status.pod_ips.unwrap_or_default().into_iter().map(|ip| ip.ip).collect();
        assert_eq!(ips, expect, "{node:?} {sandbox}");
        assert_eq!(status.pod_ip.as_deref(), expect.first().copied());
        assert_eq!(status.host_ip.as_deref(), node.first().copied());
        assert_eq!(status.host_ips.unwrap_or_default().len(), node.len());
    }
}

#[test]
fn a_pod_keeps_its_address_after_its_sandbox() {
    let s = scene(json!({"containers": [{"name": "c"}]})).see("sandbox 0 ready 10.0.0.1").told();
    for (seen, expect) in [
        ("sandbox 0 dead", Some("10.0.0.1")),
        ("", Some("10.0.0.1")),
        ("sandbox 1 ready 10.0.0.9", Some("10.0.0.9")),
        ("sandbox 1 ready", None),
    ] {
        assert_eq!(s.clone().see(seen).outcome().status.pod_ip.as_deref(), expect, "{seen}");
    }
}

fn list(list: &BTreeMap<String, crate::api::Quantity>) -> String {
    list.iter().map(|(name, q)| format!("{name}={} ", q.0)).collect::<String>().trim_end().to_owned()
}

#[test]
fn what_a_pod_asks_for_altogether() {
    let ask = |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu}, "limits": {"memory": memory}});
    for (spec, requests, limits) in [
        (json!({"containers": [{"name": "a"}]}), "", ""),
        (
            json!({"containers": [{"name": "a", "resources": ask("0.5", "1Gi")}, {"name": "b", "resources": ask("700m", "512Mi")}]}),
            "cpu=1200m",
            "memory=1536Mi",
        ),
        // The second init container runs beside the sidecar; together they need more than what comes later.
        (
            json!({"containers": [{"name": "a", "resources": ask("1", "1Gi")}], "initContainers": [
                {"name": "i", "resources": ask("1500m", "1Mi")},
                {"name": "s", "restartPolicy": "Always", "resources": ask("100m", "1Gi")},
                {"name": "j", "resources": ask("2", "1Mi")}]}),
            "cpu=2100m",
            "memory=2Gi",
        ),
        (
            json!({"containers": [{"name": "a", "resources": ask("1", "1Gi")}], "overhead": {"cpu": "250m", "memory": "1Mi"}}),
            "cpu=1250m memory=1Mi",
            "memory=1025Mi",
        ),
        (
            json!({"containers": [{"name": "a", "resources": ask("1", "1Gi")}],
                "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "4", "x.io/y": "1"}}}),
            "cpu=3",
            "cpu=4 memory=1Gi",
        ),
        (json!({"containers": [{"name": "a", "resources": ask("soon", "1Gi")}]}), "", "memory=1Gi"),
    ] {
        let s = scene(spec.clone());
        let status = s.outcome().status;
        let told = status.resources.unwrap_or_default();
        let text = [status.allocated_resources, told.requests, told.limits].map(|l| list(&l.unwrap_or_default()));
        assert_eq!(text, [requests, requests, limits], "{spec}");
    }
}

#[test]
fn containers_tell_the_resources_in_force() {
    let spec =
        json!({"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "0.5", "memory": "2Gi", "x.io/y": "1"}});
    let resources = |s: &Scene| {
        let status = s.outcome().status.container_statuses.expect("statuses").remove(0);
        let ResourceRequirements { limits, requests, .. } = status.resources.unwrap_or_default();
        format!("{} / {}", list(&requests.unwrap_or_default()), list(&limits.unwrap_or_default()))
    };
    let s = scene(json!({"containers": [{"name": "c", "resources": spec}]}));
    assert_eq!(resources(&s), " / ");
    let of_spec = "cpu=100m memory=1Gi / cpu=0.5 memory=2Gi x.io/y=1";
    let actual = |shares: i64, quota: i64, memory: i64| {
        let mut s = s.clone().see("c 0 running");
        s.observed.as_mut().expect("observed").containers[0].resources = Some(Resources {
            cpu_shares: shares,
            cpu_quota: quota,
            cpu_period: 100_000,
            memory_limit: memory,
            ..Resources::default()
        });
        s
    };
    assert_eq!(resources(&s.clone().see("c 0 running")), of_spec);
    assert_eq!(resources(&actual(102, 50_000, 2 << 30)), of_spec);
    let resized = actual(204, 75_000, 3 << 30);
    assert_eq!(resources(&resized), "cpu=200m memory=1Gi / cpu=750m memory=3Gi x.io/y=1");
    // While a resize is under way a runtime that tells nothing leaves what was told of this instance; else it has what
    // it was given.
    let mut silent = resized.clone().told().see("c 0 running");
    assert_eq!(resources(&silent), of_spec);
    silent.facts.entry("c".into()).or_default().resizing = true;
    assert_eq!(resources(&silent), resources(&resized));
    assert_eq!(resources(&resized.clone().told().see("c 1 running")), of_spec);
    assert_eq!(resources(&resized.told().see("c 0 exit 1")), of_spec);

    let tiny = scene(json!({"containers": [{"name": "c",
        "resources": {"requests": {"cpu": "1m"}, "limits": {"cpu": "5m"}}}]}));
    let mut tiny = tiny.see("c 0 running");
    tiny.observed.as_mut().expect("observed").containers[0].resources =
        Some(Resources { cpu_shares: 2, cpu_quota: 1000, cpu_period: 100_000, ..Resources::default() });
    assert_eq!(resources(&tiny), "cpu=1m / cpu=5m");
}

#[test]
fn statuses_differ_by_what_they_mean() {
    let base = json!({
        "phase": "Running", "startTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "x.io/a", "status": "True"}],
        "allocatedResources": {"cpu": "500m"},
        "containerStatuses": [{"name": "c", "image": "i", "imageID": "d", "ready": true, "restartCount": 0,
            "started": true, "lastState": {}, "state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
    });
    let status = |json: &Value| -> PodStatus { serde_json::from_value(json.clone()).expect("a status") };
    let check = |path: &str, value: Value, expect: bool| {
        let mut changed = base.clone();
        let (parent, key) = path.rsplit_once('/').expect("a path");
        let parent = changed.pointer_mut(parent).expect("a parent");
        match parent {
            Value::Array(list) => list.push(value),
            Value::Object(fields) if value.is_null() => drop(fields.remove(key)),
            Value::Object(fields) => drop(fields.insert(key.into(), value)),
            _ => unreachable!("paths lead into lists and objects"),
        }
        let (a, b) = (status(&base), status(&changed));
        assert_eq!((differs(&a, &b), differs(&b, &a)), (expect, expect), "{path}");
    };
    check("/phase", json!("Running"), false);
    check("/phase", json!("Failed"), true);
    check("/reason", json!(""), false);
    check("/reason", json!("Evicted"), true);
    check("/hostIP", json!("1.2.3.4"), true);
    check("/podIPs", json!([]), false);
    check("/podIPs", json!([{"ip": "10.0.0.1"}]), true);
    check("/startTime", json!("2026-01-01T00:00:00.7Z"), false);
    check("/startTime", json!("2026-01-01T00:00:01Z"), true);
    check("/observedGeneration", json!(2), true);
    check("/nominatedNodeName", json!("n"), false);
    check("/allocatedResources/cpu", json!("0.5"), false);
    check("/allocatedResources/cpu", json!("501m"), true);
    check("/allocatedResources/memory", json!("1"), true);
    check("/resources", json!({}), false);
    check("/resources", json!({"limits": {"cpu": "1"}}), true);
    check("/conditions/0/status", json!("False"), true);
    check("/conditions/0/reason", json!("Why"), true);
    check("/conditions/0/lastTransitionTime", json!("2026-01-01T00:00:01Z"), false);
    check("/conditions/0/observedGeneration", json!(9), false);
    check("/conditions/1/status", json!("False"), false);
    check("/conditions/-", json!({"type": "x.io/b", "status": "True"}), false);
    check("/conditions/-", json!({"type": "DisruptionTarget", "status": "True"}), true);
    check("/containerStatuses/0/lastState", Value::Null, false);
    check("/containerStatuses/0/started", json!(false), true);
    check("/containerStatuses/0/ready", json!(false), true);
    check("/containerStatuses/0/restartCount", json!(1), true);
    check("/containerStatuses/0/state", json!({"waiting": {}}), true);
    check("/containerStatuses/0/state", json!({"running": {"startedAt": "2026-01-01T00:00:01.9Z"}}), false);
    check("/containerStatuses/0/lastState", json!({"terminated": {"exitCode": 1}}), true);
    check("/containerStatuses/0/volumeMounts/0/readOnly", json!(false), false);
    check("/containerStatuses/0/volumeMounts/0/readOnly", json!(true), true);
    check("/containerStatuses/0/containerID", json!("containerd://x"), true);
    check("/containerStatuses/0/user", json!({"linux": {"uid": 1, "gid": 1}}), true);
    check("/ephemeralContainerStatuses", json!([]), false);
}

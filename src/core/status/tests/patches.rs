//! Tests of the patches that the API is sent: from one recorded status of the upstream kubelet to the
//! next, the patch has to be the one that it sent itself.

use super::*;

fn status(json: Value) -> PodStatus {
    serde_json::from_value(json).expect("a status")
}

fn check(of_api: Value, ours: Value, expect: Value) {
    let patch = patch("u", &status(of_api), &status(ours));
    let expect = (!expect.is_null()).then(|| json!({"metadata": {"uid": "u"}, "status": expect}));
    assert_eq!(patch, expect);
}

fn condition(type_: &str, value: &str, reason: Option<&str>) -> Value {
    let at = "2026-11-30T06:44:21Z";
    match reason {
        Some(reason) => json!({"type": type_, "status": value, "lastTransitionTime": at, "reason": reason}),
        None => json!({"type": type_, "status": value, "lastTransitionTime": at}),
    }
}

#[test]
fn what_the_api_knows_is_not_told_again() {
    check(json!({}), json!({}), Value::Null);
    let same =
        json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}], "conditions": [condition("Ready", "True", None)]});
    check(same.clone(), same.clone(), Value::Null);
    // An amount is what it means, not how it is written, and times of conditions are no news.
    let mut later = same;
    later["conditions"][0]["lastTransitionTime"] = json!("2026-11-30T07:00:00Z");
    later["allocatedResources"] = json!({"cpu": "100m"});
    let mut of_api = later.clone();
    of_api["allocatedResources"] = json!({"cpu": "0.1"});
    of_api["conditions"][0]["lastTransitionTime"] = json!("2026-11-30T06:00:00Z");
    check(of_api, later, Value::Null);
}

#[test]
fn a_first_status_is_told_as_it_is() {
    let ours = json!({"conditions": [condition("Ready", "False", Some("X"))], "hostIP": "1.2.3.4", "hostIPs": [{"ip": "1.2.3.4"}]});
    check(
        json!({"phase": "Pending", "qosClass": "BestEffort"}),
        {
            let mut all = ours.clone();
            all["phase"] = json!("Pending");
            all["qosClass"] = json!("BestEffort");
            all
        },
        ours,
    );
}

#[test]
fn conditions_are_patched_by_type_and_others_keep_theirs() {
    check(
        json!({"conditions": [
            condition("Theirs", "True", None),
            condition("Ready", "False", Some("ContainersNotReady")),
            condition("PodScheduled", "True", None),
        ]}),
        json!({"conditions": [condition("Ready", "True", None), condition("PodScheduled", "True", None)]}),
        json!({
            "$setElementOrder/conditions": [{"type": "Theirs"}, {"type": "Ready"}, {"type": "PodScheduled"}],
            "conditions": [{"type": "Ready", "status": "True", "reason": null}],
        }),
    );
    // One of ours that is over is taken away.
    check(
        json!({"conditions": [condition("PodResizePending", "True", None), condition("Ready", "True", None)]}),
        json!({"conditions": [condition("Ready", "True", None)]}),
        json!({
            "$setElementOrder/conditions": [{"type": "Ready"}],
            "conditions": [{"$patch": "delete", "type": "PodResizePending"}],
        }),
    );
}

#[test]
fn a_disruption_is_told_with_the_end_and_not_before() {
    let disruption = || condition("DisruptionTarget", "True", Some("TerminationByKubelet"));
    check(json!({"phase": "Running"}), json!({"phase": "Running", "conditions": [disruption()]}), Value::Null);
    check(
        json!({"phase": "Running"}),
        json!({"phase": "Failed", "conditions": [disruption()]}),
        json!({"phase": "Failed", "conditions": [disruption()]}),
    );
}

#[test]
fn addresses_are_exchanged_as_the_reference_run_recorded_it() {
    check(
        json!({"podIP": "10.88.0.252", "podIPs": [{"ip": "10.88.0.252"}]}),
        json!({"podIP": "10.88.1.2", "podIPs": [{"ip": "10.88.1.2"}]}),
        json!({
            "$setElementOrder/podIPs": [{"ip": "10.88.1.2"}],
            "podIP": "10.88.1.2",
            "podIPs": [{"ip": "10.88.1.2"}, {"$patch": "delete", "ip": "10.88.0.252"}],
        }),
    );
}

#[test]
fn container_statuses_are_replaced_as_a_whole_and_maps_in_part() {
    let container = |ready: bool| json!({"name": "c", "image": "i", "imageID": "", "ready": ready, "restartCount": 0, "lastState": {}});
    check(
        json!({"containerStatuses": [container(false)], "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}),
        json!({"containerStatuses": [container(true)], "resources": {"limits": {"cpu": "1"}}}),
        json!({"containerStatuses": [container(true)], "resources": {"limits": {"memory": null}}}),
    );
    check(json!({"reason": "Evicted", "phase": "Failed"}), json!({"phase": "Failed"}), json!({"reason": null}));
}

//! The defaults of a configuration, filled in where the user set nothing. Pure: works on JSON values, because only there "not
//! set" and "set to zero" are still two things. Runs on the main thread; decides nothing else.

use super::decode::{Decode, Place};
use super::duration::GoDuration;
use super::features::is_enabled;
use super::types::KubeletConfiguration;
use crate::util::order::Gather;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// When a default is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// Where the field is not there (a pointer in the Go type: zero is a value).
    Pointer,
    /// Also where it is zero or empty (a plain value in the Go type).
    Zero,
}
use When::{Pointer, Zero};

/// A default value in a constant table.
#[derive(Clone, Copy)]
enum Plain {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'static str),
    /// A duration.
    Span(&'static str),
    Words(&'static [&'static str]),
}
use Plain::{Bool, Float, Int, Span, Text, Words};

impl Plain {
    fn to_value(self) -> Value {
        match self {
            Bool(value) => value.into(),
            Int(value) => value.into(),
            Float(value) => value.into(),
            Text(value) | Span(value) => value.into(),
            Words(value) => value.into(),
        }
    }
}

/// The defaults that depend on nothing else, by path.
#[rustfmt::skip]
const DEFAULTS: &[(&str, When, Plain)] = &[
    ("apiVersion", Zero, Text(API_VERSION)),
    ("kind", Zero, Text(KIND)),
    ("enableServer", Pointer, Bool(true)),
    ("podLogsDir", Zero, Text("/var/log/pods")),
    ("syncFrequency", Zero, Span("1m")),
    ("fileCheckFrequency", Zero, Span("20s")),
    ("httpCheckFrequency", Zero, Span("20s")),
    ("address", Zero, Text("0.0.0.0")),
    ("port", Zero, Int(10250)),
    ("authentication.webhook.enabled", Pointer, Bool(true)),
    ("authentication.webhook.cacheTTL", Zero, Span("2m")),
    ("authentication.anonymous.enabled", Pointer, Bool(false)),
    ("authorization.mode", Zero, Text("Webhook")),
    ("authorization.webhook.cacheAuthorizedTTL", Zero, Span("5m")),
    ("authorization.webhook.cacheUnauthorizedTTL", Zero, Span("30s")),
    ("registryPullQPS", Pointer, Int(5)),
    ("registryBurst", Zero, Int(10)),
    ("eventRecordQPS", Pointer, Int(50)),
    ("eventBurst", Zero, Int(100)),
    ("enableDebuggingHandlers", Pointer, Bool(true)),
    ("healthzPort", Pointer, Int(10248)),
    ("healthzBindAddress", Zero, Text("127.0.0.1")),
    ("oomScoreAdj", Pointer, Int(-999)),
    ("streamingConnectionIdleTimeout", Zero, Span("4h")),
    ("nodeStatusUpdateFrequency", Zero, Span("10s")),
    ("nodeLeaseDurationSeconds", Zero, Int(40)),
    ("imageMinimumGCAge", Zero, Span("2m")),
    ("imageGCHighThresholdPercent", Pointer, Int(85)),
    ("imageGCLowThresholdPercent", Pointer, Int(80)),
    ("volumeStatsAggPeriod", Zero, Span("1m")),
    ("cgroupsPerQOS", Pointer, Bool(true)),
    ("cgroupDriver", Zero, Text("cgroupfs")),
    ("cpuManagerPolicy", Zero, Text("none")),
    ("cpuManagerReconcilePeriod", Zero, Span("10s")),
    ("memoryManagerPolicy", Zero, Text("None")),
    ("topologyManagerPolicy", Zero, Text("none")),
    ("topologyManagerScope", Zero, Text("container")),
    ("runtimeRequestTimeout", Zero, Span("2m")),
    ("hairpinMode", Zero, Text("promiscuous-bridge")),
    ("maxPods", Zero, Int(110)),
    ("resolvConf", Pointer, Text("/etc/resolv.conf")),
    ("cpuCFSQuota", Pointer, Bool(true)),
    ("cpuCFSQuotaPeriod", Pointer, Span("100ms")),
    ("nodeStatusMaxImages", Pointer, Int(50)),
    ("maxOpenFiles", Zero, Int(1_000_000)),
    ("contentType", Zero, Text("application/vnd.kubernetes.protobuf")),
    ("kubeAPIQPS", Pointer, Int(50)),
    ("kubeAPIBurst", Zero, Int(100)),
    ("evictionPressureTransitionPeriod", Zero, Span("5m")),
    ("mergeDefaultEvictionSettings", Pointer, Bool(false)),
    ("enableControllerAttachDetach", Pointer, Bool(true)),
    ("makeIPTablesUtilChains", Pointer, Bool(true)),
    ("iptablesMasqueradeBit", Pointer, Int(14)),
    ("iptablesDropBit", Pointer, Int(15)),
    ("failSwapOn", Pointer, Bool(true)),
    ("containerLogMaxSize", Zero, Text("10Mi")),
    ("containerLogMaxFiles", Pointer, Int(5)),
    ("containerLogMaxWorkers", Pointer, Int(1)),
    ("containerLogMonitorInterval", Pointer, Span("10s")),
    ("configMapAndSecretChangeDetectionStrategy", Zero, Text("Watch")),
    ("enforceNodeAllocatable", Pointer, Words(&["pods"])),
    ("volumePluginDir", Zero, Text("/usr/libexec/kubernetes/kubelet-plugins/volume/exec/")),
    ("logging.format", Zero, Text("text")),
    ("logging.flushFrequency", Zero, Span("5s")),
    ("enableSystemLogHandler", Pointer, Bool(true)),
    ("enableSystemLogQuery", Pointer, Bool(false)),
    ("enableProfilingHandler", Pointer, Bool(true)),
    ("enableDebugFlagsHandler", Pointer, Bool(true)),
    ("seccompDefault", Pointer, Bool(false)),
    ("memoryThrottlingFactor", Pointer, Float(0.9)),
    ("memoryReservationPolicy", Zero, Text("None")),
    ("registerNode", Pointer, Bool(true)),
    ("localStorageCapacityIsolation", Pointer, Bool(true)),
    ("containerRuntimeEndpoint", Zero, Text("unix:///run/containerd/containerd.sock")),
    ("failCgroupV1", Pointer, Bool(true)),
];

/// The only version of the configuration file.
pub const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// The only kind of the configuration file.
pub const KIND: &str = "KubeletConfiguration";

/// The hard eviction thresholds of Linux.
pub const EVICTION_HARD: [(&str, &str); 5] = [
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
];

/// What a command line without a configuration file or folder has instead: the kubelet's settings from before it had one.
const LEGACY: [(&str, Plain); 4] = [
    ("authentication.anonymous.enabled", Bool(true)),
    ("authentication.webhook.enabled", Bool(false)),
    ("authorization.mode", Text("AlwaysAllow")),
    ("readOnlyPort", Int(10255)),
];

/// The fields that [`apply_legacy`] sets.
pub const LEGACY_PATHS: [&str; 4] = [LEGACY[0].0, LEGACY[1].0, LEGACY[2].0, LEGACY[3].0];

/// Whether a field has its old, open setting.
pub fn is_legacy(map: &Map<String, Value>, path: &str) -> bool {
    LEGACY.iter().any(|(legacy, value)| *legacy == path && get(map, path) == Some(&value.to_value()))
}

/// Fills in every default that `map` leaves open. Values of the wrong type are left for the decode to report.
pub fn apply(map: &mut Map<String, Value>) {
    let is_zero = |map: &Map<String, Value>, path: &str| get(map, path).is_none_or(|value| zero(value, true));
    if is_zero(map, "nodeStatusReportFrequency") {
        // Whoever sets only the update frequency means both.
        let update = get(map, "nodeStatusUpdateFrequency").filter(|value| !zero(value, true)).cloned();
        set(map, "nodeStatusReportFrequency", update.unwrap_or_else(|| "5m".into()));
    }
    if get(map, "serializeImagePulls").is_none() {
        let parallel = get(map, "maxParallelImagePulls").and_then(Value::as_i64).unwrap_or(1);
        set(map, "serializeImagePulls", (parallel < 2).into());
    }
    if get(map, "podPidsLimit").is_none_or(|value| value.as_i64().is_some_and(|limit| limit < 0)) {
        set(map, "podPidsLimit", (-1).into());
    }
    let gates = gates_of(map);
    let backoff = "crashLoopBackOff.maxContainerRestartPeriod";
    if get(map, backoff).is_none() && is_enabled(&gates, "KubeletCrashLoopBackOffMax") {
        set(map, backoff, "5m".into());
    }
    let policy = "imagePullCredentialsVerificationPolicy";
    if is_zero(map, policy) && is_enabled(&gates, "KubeletEnsureSecretPulledImages") {
        set(map, policy, "NeverVerifyPreloadedImages".into());
    }
    for (path, when, default) in DEFAULTS {
        let open = match get(map, path) {
            None => true,
            Some(value) => *when == Zero && zero(value, matches!(default, Span(_))),
        };
        if open {
            set(map, path, default.to_value());
        }
    }
}

/// Fills in the hard eviction thresholds: all of them where none is given, the missing ones where the file asks for that.
pub fn apply_eviction_hard(map: &mut Map<String, Value>) {
    let merge = map.get("mergeDefaultEvictionSettings").and_then(Value::as_bool).unwrap_or(false);
    match map.get_mut("evictionHard") {
        None | Some(Value::Null) => {
            let all = EVICTION_HARD.iter().map(|(signal, threshold)| ((*signal).to_owned(), json!(threshold)));
            map.insert("evictionHard".to_owned(), Value::Object(all.gather()));
        }
        Some(Value::Object(given)) if merge => {
            for (signal, threshold) in EVICTION_HARD {
                given.entry(signal).or_insert_with(|| json!(threshold));
            }
        }
        Some(_) => {}
    }
}

/// Where a command line names neither file nor folder: the old, open settings.
pub fn apply_legacy(map: &mut Map<String, Value>) {
    for (path, value) in LEGACY {
        set(map, path, value.to_value());
    }
}

impl Default for KubeletConfiguration {
    /// What a configuration file that sets nothing gives.
    fn default() -> Self {
        let mut map = Map::new();
        apply(&mut map);
        apply_eviction_hard(&mut map);
        KubeletConfiguration::decode(Value::Object(map), &mut Place::default())
    }
}

/// The gates that are set, as far as they are readable.
fn gates_of(map: &Map<String, Value>) -> BTreeMap<String, bool> {
    let gates = map.get("featureGates").and_then(Value::as_object);
    gates.into_iter().flatten().filter_map(|(name, on)| Some((name.clone(), on.as_bool()?))).gather()
}

/// Whether a value is Go's zero value of its type.
fn zero(value: &Value, duration: bool) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || duration && GoDuration::parse(text) == Some(GoDuration::ZERO),
        Value::Array(_) | Value::Object(_) => false,
    }
}

/// The value at a path of plain field names; null counts as not there.
pub fn get<'v>(map: &'v Map<String, Value>, path: &str) -> Option<&'v Value> {
    let mut keys = path.split('.');
    let first = map.get(keys.next()?)?;
    keys.try_fold(first, |value, key| value.get(key)).filter(|value| !value.is_null())
}

/// Sets the value at a path of plain field names. Maps on the way are made; where something else is in the way, nothing happens
/// (the decode reports it).
pub fn set(map: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            map.insert(path.to_owned(), value);
        }
        Some((key, rest)) => {
            let inner = map.entry(key).or_insert(Value::Null);
            if inner.is_null() {
                *inner = Value::Object(Map::new());
            }
            if let Value::Object(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each expectation is a path and its value after defaulting `given`.
    fn check(given: Value, expect: &[(&str, Value)]) {
        let Value::Object(mut map) = given.clone() else { panic!("not a map: {given}") };
        apply(&mut map);
        apply_eviction_hard(&mut map);
        for (path, value) in expect {
            assert_eq!(get(&map, path).unwrap_or(&Value::Null), value, "{path} of {given}");
        }
    }

    #[test]
    fn zero_counts_as_not_set_only_where_go_cannot_tell() {
        check(
            json!({"port": 0, "address": "", "syncFrequency": "0s", "maxPods": 0, "authorization": {"mode": ""}}),
            &[
                ("port", json!(10250)),
                ("address", json!("0.0.0.0")),
                ("syncFrequency", json!("1m")),
                ("maxPods", json!(110)),
                ("authorization.mode", json!("Webhook")),
            ],
        );
        check(
            json!({"healthzPort": 0, "registryPullQPS": 0, "resolvConf": "", "enableServer": false, "oomScoreAdj": 0}),
            &[
                ("healthzPort", json!(0)),
                ("registryPullQPS", json!(0)),
                ("resolvConf", json!("")),
                ("enableServer", json!(false)),
                ("oomScoreAdj", json!(0)),
            ],
        );
        check(
            json!({"healthzPort": null, "enforceNodeAllocatable": [], "authentication": null}),
            &[
                ("healthzPort", json!(10248)),
                ("enforceNodeAllocatable", json!([])),
                ("authentication.webhook.cacheTTL", json!("2m")),
            ],
        );
    }

    #[test]
    fn some_defaults_follow_other_fields() {
        let frequency = "nodeStatusReportFrequency";
        check(json!({}), &[(frequency, json!("5m")), ("nodeStatusUpdateFrequency", json!("10s"))]);
        check(json!({"nodeStatusUpdateFrequency": "7s"}), &[(frequency, json!("7s"))]);
        check(json!({"nodeStatusUpdateFrequency": "0s"}), &[(frequency, json!("5m"))]);
        check(json!({"nodeStatusUpdateFrequency": "7s", frequency: "9s"}), &[(frequency, json!("9s"))]);

        check(json!({}), &[("serializeImagePulls", json!(true)), ("maxParallelImagePulls", Value::Null)]);
        check(json!({"maxParallelImagePulls": 1}), &[("serializeImagePulls", json!(true))]);
        check(json!({"maxParallelImagePulls": 2}), &[("serializeImagePulls", json!(false))]);
        check(
            json!({"maxParallelImagePulls": 2, "serializeImagePulls": true}),
            &[("serializeImagePulls", json!(true))],
        );

        check(json!({"podPidsLimit": -7}), &[("podPidsLimit", json!(-1))]);
        check(json!({"podPidsLimit": 0}), &[("podPidsLimit", json!(0))]);

        let backoff = "crashLoopBackOff.maxContainerRestartPeriod";
        check(json!({}), &[(backoff, json!("5m"))]);
        check(json!({"featureGates": {"KubeletCrashLoopBackOffMax": false}}), &[(backoff, Value::Null)]);
        let policy = "imagePullCredentialsVerificationPolicy";
        check(json!({"featureGates": {"KubeletEnsureSecretPulledImages": false}}), &[(policy, Value::Null)]);
        check(json!({policy: "AlwaysVerify"}), &[(policy, json!("AlwaysVerify"))]);
    }

    #[test]
    fn hard_eviction_keeps_or_drops_the_defaults() {
        let all = json!({"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
            "imagefs.available": "15%", "imagefs.inodesFree": "5%"});
        check(json!({}), &[("evictionHard", all.clone())]);
        check(json!({"evictionHard": null}), &[("evictionHard", all.clone())]);
        check(json!({"evictionHard": {}}), &[("evictionHard", json!({}))]);
        let one = json!({"memory.available": "1Gi"});
        check(json!({"evictionHard": one}), &[("evictionHard", one.clone())]);
        let mut merged = all;
        merged["memory.available"] = json!("1Gi");
        check(json!({"evictionHard": one, "mergeDefaultEvictionSettings": true}), &[("evictionHard", merged)]);
    }

    #[test]
    fn wrong_types_are_left_alone() {
        check(
            json!({"authentication": "no", "port": [], "featureGates": 1, "evictionHard": 2, "syncFrequency": 5}),
            &[
                ("authentication", json!("no")),
                ("port", json!([])),
                ("evictionHard", json!(2)),
                ("syncFrequency", json!(5)),
            ],
        );
    }
}

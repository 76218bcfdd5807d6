//! Which fields and flags do something yet. A table without a thread: whoever builds the part that a field is for moves its line.

use super::defaults::get;
use super::features::find;
use serde_json::{Map, Value};

/// Fields (top-level, or one level below where a part is in force) that are read, checked and printed but do nothing yet.
#[rustfmt::skip]
pub const NOT_IN_FORCE: &[&str] = &[
    "imagePullCredentialsVerificationPolicy", "preloadedImagesVerificationAllowlist",
    "enableContentionProfiling",
    "imageMinimumGCAge", "imageMaximumGCAge",
    "imageGCHighThresholdPercent", "imageGCLowThresholdPercent", "kubeletCgroups",
    "systemCgroups", "cpuManagerPolicy", "cpuManagerPolicyOptions", "cpuManagerReconcilePeriod", "memoryManagerPolicy",
    "topologyManagerPolicy", "topologyManagerScope", "topologyManagerPolicyOptions", "qosReserved", "podCIDR",
    "contentType", "evictionMaxPodGracePeriod",
    "protectKernelDefaults", "makeIPTablesUtilChains", "memorySwap",
    "showHiddenMetricsForVersion", "systemReservedCgroup",
    "kubeReservedCgroup", "enforceNodeAllocatable", "volumePluginDir", "kernelMemcgNotification",
    "reservedMemory",
    "memoryThrottlingFactor", "memoryReservationPolicy", "tracing",
    "localStorageCapacityIsolation", "logging.options",
];

/// Fields that are in force: something outside of this module reads them and acts on them (held by tests/tidy/claims.rs).
#[rustfmt::skip]
pub const IN_FORCE: &[&str] = &[
    "staticPodPath", "podLogsDir", "syncFrequency", "fileCheckFrequency", "httpCheckFrequency", "staticPodURL",
    "staticPodURLHeader", "registryPullQPS", "registryBurst", "healthzPort", "healthzBindAddress", "oomScoreAdj",
    "clusterDomain", "clusterDNS", "cgroupRoot", "cgroupsPerQOS", "cgroupDriver", "singleProcessOOMKill",
    "runtimeRequestTimeout", "maxOpenFiles", "maxPods", "podPidsLimit", "resolvConf", "cpuCFSQuota",
    "cpuCFSQuotaPeriod", "serializeImagePulls", "maxParallelImagePulls", "failSwapOn", "allowedUnsafeSysctls",
    "logging.format", "logging.verbosity", "logging.vmodule", "crashLoopBackOff.maxContainerRestartPeriod",
    "seccompDefault", "containerRuntimeEndpoint", "imageServiceEndpoint", "failCgroupV1", "userNamespaces",
    "configMapAndSecretChangeDetectionStrategy",
    "podsPerCore", "systemReserved", "kubeReserved", "reservedSystemCPUs", "featureGates",
    "nodeStatusUpdateFrequency", "nodeStatusReportFrequency", "nodeLeaseDurationSeconds", "nodeStatusMaxImages",
    "kubeAPIQPS", "kubeAPIBurst", "rotateCertificates", "serverTLSBootstrap", "providerID", "registerWithTaints", "registerNode", "enableControllerAttachDetach",
    "eventRecordQPS", "eventBurst", "containerLogMaxSize", "containerLogMaxFiles", "containerLogMaxWorkers",
    "containerLogMonitorInterval", "volumeStatsAggPeriod",
    "enableServer", "address", "port", "readOnlyPort", "tlsCertFile", "tlsPrivateKeyFile", "tlsCipherSuites", "tlsCurvePreferences",
    "tlsMinVersion", "authentication", "authorization", "enableDebuggingHandlers", "enableSystemLogHandler", "enableProfilingHandler",
    "enableDebugFlagsHandler", "enableSystemLogQuery", "streamingConnectionIdleTimeout",
    "shutdownGracePeriod", "shutdownGracePeriodCriticalPods", "shutdownGracePeriodByPodPriority",
];

/// Fields that are in force in part: what nobody does yet of what they are for, and the fields.
pub const IN_PART: (&str, &[&str]) = (
    "they set the node's conditions and keep pods out, and no pod is evicted yet",
    &[
        "evictionHard",
        "evictionSoft",
        "evictionSoftGracePeriod",
        "evictionPressureTransitionPeriod",
        "evictionMinimumReclaim",
        "mergeDefaultEvictionSettings",
    ],
);

/// Fields with nothing to put in force: upstream, too, reads them for old files' sake alone, and every log line is written
/// at once.
#[rustfmt::skip]
pub const WITHOUT_EFFECT: &[&str] = &[
    "hairpinMode", "runOnce", "iptablesMasqueradeBit", "iptablesDropBit",
    "logging.flushFrequency",
];

/// Feature gates that change something. Others are checked and accepted, since clusters set one list on all their nodes.
pub const GATES_IN_FORCE: &[&str] = &[
    "ContainerCheckpoint",
    "CustomCPUCFSQuotaPeriod",
    "ExtendWebSocketsToKubelet",
    "GracefulNodeShutdown",
    "GracefulNodeShutdownBasedOnPodPriority",
    "KubeletCgroupDriverFromCRI",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "KubeletCrashLoopBackOffMax",
    "KubeletEnsureSecretPulledImages",
    "LoggingAlphaOptions",
    "NodeDeclaredFeatures",
    "PodLevelResources",
    "PodLogsQuerySplitStreams",
    "RestartAllContainersOnContainerExits",
];

/// Flags of this node that do nothing yet.
pub const FLAGS_NOT_IN_FORCE: &[&str] = &[
    "lock-file",
    "exit-on-lock-contention",
    "image-credential-provider-config",
    "image-credential-provider-bin-dir",
    "minimum-container-ttl-duration",
    "maximum-dead-containers",
    "experimental-mounter-path",
];

/// The one warning about everything that was set and does nothing yet; none where there is nothing to say.
///
/// `config` and `defaults` are whole configurations; a field counts as set where they differ.
pub fn warning(config: &Map<String, Value>, defaults: &Map<String, Value>, flags_used: &[&str]) -> Option<String> {
    let set = |path: &&&str| get(config, path) != get(defaults, path);
    let fields = NOT_IN_FORCE.iter().filter(set).map(|path| (*path).to_owned());
    let (what_is_missing, fields_in_part) = IN_PART;
    let in_part: Vec<&str> = fields_in_part.iter().filter(set).copied().collect();
    let flags = flags_used.iter().filter(|name| FLAGS_NOT_IN_FORCE.contains(name)).map(|name| format!("--{name}"));
    let gates = get(config, "featureGates").and_then(Value::as_object).into_iter().flatten();
    let idle = |(name, on): &(&String, &Value)| {
        let differs = find(name).is_some_and(|gate| on.as_bool() != Some(gate.default));
        differs && !GATES_IN_FORCE.contains(&name.as_str())
    };
    let gates = gates.filter(idle).map(|(name, _)| format!("featureGates.{name}"));
    let all: Vec<String> = fields.chain(gates).chain(flags).collect();
    let idle = (!all.is_empty()).then(|| format!("accepted but not yet in force in this version: {}", all.join(", ")));
    let partly = (!in_part.is_empty()).then(|| format!("in force in part: {}: {what_is_missing}", in_part.join(", ")));
    let told: Vec<String> = idle.into_iter().chain(partly).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KubeletConfiguration;
    use crate::config::decode::Field;
    use serde_json::json;
    use std::collections::BTreeSet;

    #[test]
    fn every_field_is_in_exactly_one_table() {
        let top = |path: &&&str| path.split('.').next().unwrap_or(path).to_owned();
        let known: BTreeSet<String> = KubeletConfiguration::FIELDS
            .iter()
            .map(|Field { name, .. }| (*name).to_owned())
            .filter(|name| name != "apiVersion" && name != "kind")
            .collect();
        let all = || IN_FORCE.iter().chain(NOT_IN_FORCE).chain(IN_PART.1).chain(WITHOUT_EFFECT);
        let listed: BTreeSet<String> = all().map(|path| top(&path)).collect();
        assert_eq!(known, listed);
        assert_eq!(all().count(), all().collect::<BTreeSet<_>>().len(), "a field is in two tables");
        assert!(FLAGS_NOT_IN_FORCE.iter().all(|name| crate::config::flags::find(name).is_some()));
    }

    fn check(config: Value, flags: &[&str], expect: Option<&str>) {
        let (Value::Object(config), defaults) = (config, Map::new()) else { panic!() };
        let got = warning(&config, &defaults, flags);
        assert_eq!(
            got.as_deref(),
            expect.map(|list| format!("accepted but not yet in force in this version: {list}")).as_deref()
        );
    }

    #[test]
    fn one_warning_names_what_is_set() {
        check(json!({}), &["config"], None);
        check(json!({"maxPods": 5}), &[], None);
        check(json!({"featureGates": {"EnvFiles": true, "LoggingAlphaOptions": true, "AllAlpha": true}}), &[], None);
        check(
            // What is ready stays so over a restart of the agent, whatever this gate says.
            json!({"featureGates": {"ChangeContainerStatusOnKubeletRestart": true}}),
            &[],
            Some("featureGates.ChangeContainerStatusOnKubeletRestart"),
        );
        check(
            json!({"featureGates": {"EnvFiles": false, "MemoryQoS": true}, "maxPods": 5}),
            &[],
            Some("featureGates.EnvFiles, featureGates.MemoryQoS"),
        );
        check(
            json!({"tracing": {}, "evictionMaxPodGracePeriod": 5}),
            &["lock-file", "config"],
            Some("evictionMaxPodGracePeriod, tracing, --lock-file"),
        );
        check(
            json!({"logging": {"format": "json", "flushFrequency": 1, "options": {"json": {"splitStream": true}}}}),
            &[],
            Some("logging.options"),
        );
        let said = |config: Value| warning(config.as_object().expect("an object"), &Map::new(), &[]).expect("words");
        let partly = said(json!({"evictionSoft": {"a": "b"}, "evictionHard": {}}));
        assert_eq!(partly, format!("in force in part: evictionHard, evictionSoft: {}", IN_PART.0));
        let both = said(json!({"evictionSoft": {"a": "b"}, "tracing": {}}));
        assert!(both.starts_with("accepted but not yet") && both.contains(": tracing; in force in part"), "{both}");
    }
}

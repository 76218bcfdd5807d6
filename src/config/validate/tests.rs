//! Tables for the checks: a few lines of a configuration file, and every problem that they must bring. No file is read.

use super::*;
use crate::config::decode::{Decode, Place};
use crate::config::defaults;
use crate::config::yaml::{Limits, yaml_to_json};
use serde_json::Value;

/// The lines, with defaults, bring exactly these problems; each contains its part, in order.
fn check(lines: &str, expect: &[&str]) {
    let document = yaml_to_json(lines.as_bytes(), &Limits::default()).unwrap();
    let Value::Object(mut map) = document.value else { panic!("{lines}") };
    defaults::apply(&mut map);
    defaults::apply_eviction_hard(&mut map);
    let mut place = Place::default();
    let config = KubeletConfiguration::decode(Value::Object(map), &mut place);
    assert!(place.found.problems.is_empty() && place.found.unknown.is_empty(), "{lines}: {:?}", place.found);
    let problems: Vec<_> = validate(&config).iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), expect.len(), "{lines}: {problems:#?}");
    for (problem, part) in problems.iter().zip(expect) {
        assert!(problem.contains(part), "{lines}: {problem} does not say {part:?}");
    }
}

fn check_all(rows: &[(&str, &[&str])]) {
    for (lines, expect) in rows {
        check(lines, expect);
    }
}

#[test]
fn the_defaults_are_right() {
    assert_eq!(validate(&KubeletConfiguration::default()), []);
    assert_eq!(validate_node_flags(&NodeFlags::default()), []);
}

#[test]
fn numbers_have_ranges() {
    check_all(&[
        ("{port: -1}", &["port is -1: must be from 1 to 65535"]),
        ("{port: 65536}", &["port is 65536"]),
        ("{port: 65535, readOnlyPort: 0, healthzPort: 0}", &[]),
        ("{readOnlyPort: -1, healthzPort: -1}", &["readOnlyPort is -1", "healthzPort is -1"]),
        ("{eventBurst: -1, eventRecordQPS: -1}", &["eventBurst", "eventRecordQPS"]),
        ("{kubeAPIBurst: -1, kubeAPIQPS: -1}", &["kubeAPIBurst", "kubeAPIQPS"]),
        ("{nodeLeaseDurationSeconds: -1}", &["nodeLeaseDurationSeconds is -1: must be 1 or more"]),
        ("{nodeStatusMaxImages: -2}", &["nodeStatusMaxImages is -2: must be -1 or more"]),
        ("{nodeStatusMaxImages: -1}", &[]),
        (
            "{iptablesMasqueradeBit: 32, iptablesDropBit: -1}",
            &["iptablesMasqueradeBit is 32: must be from 0 to 31", "iptablesDropBit"],
        ),
        ("{registryBurst: -1, registryPullQPS: -1}", &["registryBurst", "registryPullQPS"]),
        ("{maxPods: -1, podsPerCore: -1, maxOpenFiles: -1}", &["maxPods", "podsPerCore", "maxOpenFiles"]),
        ("{oomScoreAdj: -1001}", &["oomScoreAdj is -1001: must be from -1000 to 1000"]),
        ("{oomScoreAdj: 1001}", &["oomScoreAdj"]),
        ("{oomScoreAdj: 1000}", &[]),
        ("{memoryThrottlingFactor: 0}", &["memoryThrottlingFactor is 0: must be above 0 and at most 1"]),
        ("{memoryThrottlingFactor: 1.1}", &["memoryThrottlingFactor"]),
        ("{memoryThrottlingFactor: 1.0}", &[]),
        (
            "{containerLogMaxFiles: 1, containerLogMaxWorkers: 0}",
            &["containerLogMaxFiles is 1: must be 2 or more", "containerLogMaxWorkers is 0"],
        ),
        ("{imageGCHighThresholdPercent: 101}", &["imageGCHighThresholdPercent is 101"]),
        ("{imageGCLowThresholdPercent: -1}", &["imageGCLowThresholdPercent is -1"]),
        ("{imageGCLowThresholdPercent: 85}", &["must be less than imageGCHighThresholdPercent (85)"]),
        ("{imageGCLowThresholdPercent: 84}", &[]),
        ("{userNamespaces: {idsPerPod: 65536}}", &[]),
        ("{userNamespaces: {idsPerPod: 1}}", &["userNamespaces.idsPerPod is 1: must be a multiple of 65536"]),
        ("{userNamespaces: {idsPerPod: 65537}}", &["userNamespaces.idsPerPod"]),
        ("{userNamespaces: {idsPerPod: 4294967296}}", &["userNamespaces.idsPerPod"]),
        ("{tracing: {samplingRatePerMillion: 1000001}}", &["tracing.samplingRatePerMillion is 1000001"]),
    ]);
}

#[test]
fn durations_have_ranges() {
    check_all(&[
        ("{cpuCFSQuotaPeriod: 1ms}", &[]),
        ("{cpuCFSQuotaPeriod: 1s}", &[]),
        ("{cpuCFSQuotaPeriod: 0s}", &["cpuCFSQuotaPeriod is 0s: must be from 1ms to 1s"]),
        ("{cpuCFSQuotaPeriod: 1001ms}", &["cpuCFSQuotaPeriod is 1.001s"]),
        (
            "{cpuCFSQuotaPeriod: 50ms, featureGates: {CustomCPUCFSQuotaPeriod: false}}",
            &["needs the feature gate CustomCPUCFSQuotaPeriod"],
        ),
        ("{imageMinimumGCAge: -1s}", &["imageMinimumGCAge is -1s: must not be negative"]),
        ("{imageMaximumGCAge: -1s}", &["imageMaximumGCAge is -1s"]),
        (
            "{imageMaximumGCAge: 2m}",
            &["imageMaximumGCAge is 2m0s: must be longer than imageMinimumGCAge (2m0s), or 0s"],
        ),
        ("{imageMaximumGCAge: 3m}", &[]),
        (
            "{crashLoopBackOff: {maxContainerRestartPeriod: 999ms}}",
            &["crashLoopBackOff.maxContainerRestartPeriod is 999ms: must be from 1s to 5m"],
        ),
        ("{crashLoopBackOff: {maxContainerRestartPeriod: 301s}}", &["must be from 1s to 5m"]),
        ("{crashLoopBackOff: {maxContainerRestartPeriod: 1s}}", &[]),
        (
            "{crashLoopBackOff: {maxContainerRestartPeriod: 9s}, featureGates: {KubeletCrashLoopBackOffMax: false}}",
            &["needs the feature gate"],
        ),
        ("{containerLogMonitorInterval: 2s}", &["containerLogMonitorInterval is 2s: must be 3s or more"]),
        (
            "{syncFrequency: -1s, fileCheckFrequency: -1s, httpCheckFrequency: -1s}",
            &["syncFrequency", "fileCheckFrequency", "httpCheckFrequency"],
        ),
        ("{runtimeRequestTimeout: -1s}", &["runtimeRequestTimeout is -1s: must be longer than 0s"]),
        (
            "{nodeStatusUpdateFrequency: -1s, nodeStatusReportFrequency: -1s}",
            &["nodeStatusUpdateFrequency", "nodeStatusReportFrequency"],
        ),
        (
            "{cpuManagerReconcilePeriod: -1s, evictionPressureTransitionPeriod: -1s}",
            &["cpuManagerReconcilePeriod", "evictionPressureTransitionPeriod"],
        ),
        ("{authentication: {webhook: {cacheTTL: -1s}}}", &["authentication.webhook.cacheTTL"]),
        (
            "{authorization: {webhook: {cacheAuthorizedTTL: -1s, cacheUnauthorizedTTL: -1s}}}",
            &["cacheAuthorizedTTL", "cacheUnauthorizedTTL"],
        ),
        ("{logging: {flushFrequency: -1s}}", &["logging.flushFrequency"]),
    ]);
}

#[test]
fn node_shutdown() {
    check_all(&[
        ("{shutdownGracePeriod: 30s, shutdownGracePeriodCriticalPods: 10s}", &[]),
        ("{shutdownGracePeriodCriticalPods: 10s}", &["must not be longer than shutdownGracePeriod (0s)"]),
        ("{shutdownGracePeriod: 999ms}", &["shutdownGracePeriod is 999ms: must be 0s, or 1s or more"]),
        (
            "{shutdownGracePeriod: 3s, shutdownGracePeriodCriticalPods: 1ms}",
            &["shutdownGracePeriodCriticalPods is 1ms"],
        ),
        (
            "{shutdownGracePeriod: 3s, featureGates: {GracefulNodeShutdown: false}}",
            &["needs the feature gate GracefulNodeShutdown"],
        ),
        ("{shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 5}]}", &[]),
        (
            "{shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: -5}]}",
            &["[0].shutdownGracePeriodSeconds is -5"],
        ),
        (
            "{shutdownGracePeriod: 3s, shutdownGracePeriodByPodPriority: [{priority: 1}]}",
            &["cannot be used together with shutdownGracePeriod"],
        ),
        (
            "{shutdownGracePeriodByPodPriority: [{}], featureGates: {GracefulNodeShutdownBasedOnPodPriority: false}}",
            &["needs the feature gate GracefulNodeShutdownBasedOnPodPriority"],
        ),
    ]);
}

#[test]
fn words_are_from_their_lists() {
    check_all(&[
        (
            "{cgroupDriver: system}",
            &["cgroupDriver is `system`: must be one of cgroupfs, systemd, did you mean systemd?"],
        ),
        ("{hairpinMode: x}", &["hairpinMode is `x`: must be one of promiscuous-bridge, hairpin-veth, none"]),
        ("{cpuManagerPolicy: Static}", &["did you mean static?"]),
        ("{memoryManagerPolicy: none}", &["did you mean None?"]),
        ("{topologyManagerPolicy: x, topologyManagerScope: x}", &["topologyManagerPolicy", "topologyManagerScope"]),
        (
            "{memorySwap: {swapBehavior: UnlimitedSwap}}",
            &["must be one of \"\", NoSwap, LimitedSwap, did you mean LimitedSwap?"],
        ),
        ("{memorySwap: {swapBehavior: LimitedSwap}}", &[]),
        ("{authorization: {mode: RBAC}}", &["authorization.mode is `RBAC`"]),
        ("{contentType: text/plain}", &["contentType"]),
        ("{configMapAndSecretChangeDetectionStrategy: Poll}", &["must be one of Watch, Cache, Get"]),
        ("{memoryReservationPolicy: x}", &["memoryReservationPolicy is `x`"]),
        ("{memoryReservationPolicy: TieredReservation}", &["needs the feature gate MemoryQoS"]),
        ("{memoryReservationPolicy: TieredReservation, featureGates: {MemoryQoS: true}}", &[]),
        ("{tlsMinVersion: TLS13}", &["tlsMinVersion is `TLS13`"]),
        ("{tlsMinVersion: VersionTLS13, tlsCipherSuites: [TLS_AES_128_GCM_SHA256]}", &[]),
        ("{tlsCipherSuites: [a]}", &["tlsCipherSuites[0] is `a`"]),
        (
            "{tlsCurvePreferences: [29, 30, 29]}",
            &["tlsCurvePreferences[1] is 30", "tlsCurvePreferences[2] is 29: is there twice"],
        ),
        ("{showHiddenMetricsForVersion: '1.34'}", &["must be 1.35"]),
        ("{showHiddenMetricsForVersion: '1.35'}", &[]),
        ("{runOnce: true}", &["runOnce is true: is gone"]),
        ("{logging: {format: xml}}", &["logging.format is `xml`: must be one of text, json"]),
    ]);
}

#[test]
fn feature_gates_are_known_and_not_locked() {
    check_all(&[
        ("{featureGates: {MemoryQoS: true, AllAlpha: false, AllBeta: true, NodeSwap: true}}", &[]),
        ("{featureGates: {NodeSwap: false}}", &["featureGates.NodeSwap is false: is locked to true, delete the line"]),
        (
            "{featureGates: {MemoryQos: true}}",
            &["featureGates.MemoryQos is true: is no feature gate of Kubernetes 1.36, did you mean MemoryQoS?"],
        ),
        ("{featureGates: {RotateKubeletServerCertificate: false}, serverTLSBootstrap: true}", &["serverTLSBootstrap"]),
    ]);
}

#[test]
fn addresses_and_files() {
    check_all(&[
        ("{address: localhost, healthzBindAddress: '::1'}", &["address is `localhost`: must be an IP address"]),
        ("{clusterDNS: [10.0.0.1, x]}", &["clusterDNS[1] is `x`"]),
        ("{podCIDR: '10.0.0.0/24, fd00::/64'}", &[]),
        ("{podCIDR: 10.0.0.0}", &["podCIDR"]),
        ("{staticPodURL: 'ftp://a'}", &["staticPodURL"]),
        ("{staticPodURL: 'http:///a'}", &["staticPodURL"]),
        ("{staticPodURL: 'https://user:pw@a:1/b?c', staticPodURLHeader: {A: [b]}}", &[]),
        ("{staticPodURLHeader: {'a b': [x]}}", &["staticPodURLHeader.a b is set: must be named"]),
        ("{staticPodURLHeader: {a: [\"secret\\r\\nx\"]}}", &["is set: must not hold line breaks"]),
        ("{tlsCertFile: /a}", &["tlsPrivateKeyFile is empty: must be set too where tlsCertFile is"]),
        ("{tlsPrivateKeyFile: /a}", &["tlsCertFile is empty"]),
        ("{containerRuntimeEndpoint: /run/x.sock, imageServiceEndpoint: 'unix:///run/y.sock'}", &[]),
        (
            "{containerRuntimeEndpoint: 'tcp://1.2.3.4:5', imageServiceEndpoint: run}",
            &["containerRuntimeEndpoint", "imageServiceEndpoint"],
        ),
        ("{podLogsDir: /}", &[]),
        ("{podLogsDir: logs}", &["must be an absolute path"]),
        ("{podLogsDir: /a/../b}", &["must be written without"]),
        ("{podLogsDir: /a/}", &["must be written without"]),
        ("{podLogsDir: /ä}", &["ASCII"]),
        ("{enableSystemLogQuery: true}", &[]),
        ("{enableSystemLogQuery: true, enableSystemLogHandler: false}", &["needs enableSystemLogHandler: true"]),
        ("{tracing: {endpoint: 'localhost:4317'}}", &[]),
        ("{tracing: {endpoint: 'http://localhost:4317'}}", &["tracing.endpoint"]),
        ("{systemCgroups: /x}", &["systemCgroups is `/x`: needs cgroupRoot"]),
        ("{systemCgroups: /x, cgroupRoot: /}", &[]),
        ("{containerLogMaxSize: big}", &["containerLogMaxSize is `big`"]),
        ("{containerLogMaxSize: '0'}", &["containerLogMaxSize"]),
        ("{containerLogMaxSize: '-1'}", &[]),
        (
            "{allowedUnsafeSysctls: [net.core.somaxconn, kernel.pid_max, 'a b']}",
            &[
                "allowedUnsafeSysctls[1] is `kernel.pid_max`: is not known to belong to a pod",
                "allowedUnsafeSysctls[2]",
            ],
        ),
    ]);
}

#[test]
fn images() {
    check_all(&[
        ("{maxParallelImagePulls: 0}", &["maxParallelImagePulls is 0: must be 1 or more"]),
        ("{maxParallelImagePulls: 5}", &[]),
        ("{maxParallelImagePulls: 5, serializeImagePulls: true}", &["needs serializeImagePulls: false, or must be 1"]),
        ("{maxParallelImagePulls: 1, serializeImagePulls: true}", &[]),
        ("{imagePullCredentialsVerificationPolicy: Never}", &["imagePullCredentialsVerificationPolicy is `Never`"]),
        (
            "{preloadedImagesVerificationAllowlist: [a]}",
            &["needs imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages"],
        ),
        (
            "{imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages, preloadedImagesVerificationAllowlist: [a/*, 'b:1']}",
            &["preloadedImagesVerificationAllowlist[1] is `b:1`"],
        ),
        (
            "{imagePullCredentialsVerificationPolicy: AlwaysVerify, featureGates: {KubeletEnsureSecretPulledImages: false}}",
            &["needs the feature gate KubeletEnsureSecretPulledImages"],
        ),
    ]);
}

#[test]
fn reservations() {
    check_all(&[
        ("{systemReserved: {cpu: 100m, memory: 1Gi, pid: '100', ephemeral-storage: 1Gi}}", &[]),
        (
            "{kubeReserved: {cpus: 1m, memory: lots}}",
            &["kubeReserved.cpus is `1m`: only cpu, memory", "kubeReserved.memory is `lots`"],
        ),
        ("{kubeReserved: {cpu: -1m}}", &["not negative"]),
        ("{enforceNodeAllocatable: []}", &[]),
        ("{enforceNodeAllocatable: [none]}", &[]),
        ("{enforceNodeAllocatable: [none, pods]}", &["must not hold anything beside none"]),
        ("{enforceNodeAllocatable: [pods, pods]}", &["enforceNodeAllocatable[1] is pods: is there twice"]),
        ("{enforceNodeAllocatable: [pod]}", &["did you mean pods?"]),
        ("{enforceNodeAllocatable: [system-reserved]}", &["systemReservedCgroup is empty"]),
        (
            "{enforceNodeAllocatable: [kube-reserved, kube-reserved-compressible], kubeReservedCgroup: /k}",
            &["not both"],
        ),
        ("{cgroupsPerQOS: false}", &["needs cgroupsPerQOS: true; without it write enforceNodeAllocatable: [none]"]),
        ("{cgroupsPerQOS: false, enforceNodeAllocatable: [none]}", &[]),
        ("{reservedSystemCPUs: '0-1,4'}", &[]),
        ("{reservedSystemCPUs: all}", &["reservedSystemCPUs is `all`"]),
        ("{reservedSystemCPUs: '0', kubeReservedCgroup: /a}", &["cannot be used together"]),
        ("{reservedMemory: [{numaNode: 0, limits: {memory: 1Gi, hugepages-2Mi: 2Mi}}]}", &[]),
        ("{reservedMemory: [{numaNode: -1, limits: {}}]}", &["numaNode is -1", "limits is empty"]),
        ("{reservedMemory: [{limits: {cpu: 1}}]}", &["reservedMemory[0].limits.cpu is 1: only memory"]),
        (
            "{reservedMemory: [{limits: {memory: 0}}, {limits: {memory: 1}}]}",
            &["must be an amount above zero", "[1].limits.memory is 1: is reserved twice"],
        ),
        ("{qosReserved: {memory: 50%}}", &["needs the feature gate QOSReserved"]),
        ("{qosReserved: {memory: 50%}, featureGates: {QOSReserved: true}}", &[]),
        ("{qosReserved: {cpu: 101%}, featureGates: {QOSReserved: true}}", &["only memory", "must be a share"]),
        ("{cpuManagerPolicyOptions: {full-pcpus-only: 'true'}}", &[]),
        (
            "{cpuManagerPolicyOptions: {full-pcpu-only: 'maybe'}}",
            &["did you mean full-pcpus-only?", "must be \"true\" or \"false\""],
        ),
        ("{topologyManagerPolicyOptions: {prefer-closest-numa-nodes: 'true', max-allowable-numa-nodes: '16'}}", &[]),
        (
            "{topologyManagerPolicyOptions: {prefer-closest-numa-nodes: 'x', max-allowable-numa-nodes: '7', x: z}}",
            &["8 or more", "must be \"true\"", "topologyManagerPolicyOptions.x"],
        ),
    ]);
}

#[test]
fn eviction() {
    check_all(&[
        (
            "{evictionHard: {memory.available: 100Mi, nodefs.available: 10.5%, pid.available: 0%, imagefs.available: 100%}}",
            &[],
        ),
        (
            "{evictionHard: {memory.avail: 1Gi}}",
            &["evictionHard[\"memory.avail\"] is `memory.avail`: must be one of memory.available"],
        ),
        ("{evictionHard: {memory.available: 101%}}", &["evictionHard[\"memory.available\"] is `101%`"]),
        ("{evictionHard: {memory.available: -1%}}", &["is `-1%`"]),
        ("{evictionHard: {memory.available: '0'}}", &["must be an amount above zero"]),
        ("{evictionHard: {memory.available: -5Mi}}", &["is `-5Mi`"]),
        ("{evictionHard: {memory.available: NaN%}}", &["is `NaN%`"]),
        ("{evictionSoft: {memory.available: 1Gi}}", &["evictionSoftGracePeriod[\"memory.available\"]: is missing"]),
        ("{evictionSoft: {memory.available: 1Gi}, evictionSoftGracePeriod: {memory.available: 1m}}", &[]),
        (
            "{evictionSoftGracePeriod: {x: 1m, memory.available: soon, pid.available: -1s}}",
            &["is `soon`", "is `-1s`", "evictionSoftGracePeriod.x"],
        ),
        ("{evictionMinimumReclaim: {memory.available: 0Mi, nodefs.available: 5%}}", &[]),
        (
            "{evictionMinimumReclaim: {memory.available: -1Mi, nodefs.available: 0%, x: '1'}}",
            &["is `-1Mi`", "is `0%`", "evictionMinimumReclaim.x"],
        ),
    ]);
}

#[test]
fn taints_and_logs() {
    check_all(&[
        ("{registerWithTaints: [{key: a/b, value: c, effect: NoSchedule}]}", &[]),
        (
            "{registerWithTaints: [{key: '', value: ' ', effect: Now, timeAdded: x}]}",
            &["[0].key", "[0].value", "[0].effect", "[0].timeAdded"],
        ),
        ("{logging: {vmodule: [{filePattern: a, verbosity: 3}]}}", &[]),
        (
            "{logging: {vmodule: [{filePattern: 'a=b', verbosity: 4294967295}], verbosity: 4294967295}}",
            &["logging.verbosity", "logging.vmodule[0].filePattern", "logging.vmodule[0].verbosity"],
        ),
        (
            "{logging: {format: json, vmodule: [{filePattern: a, verbosity: 3}]}}",
            &["works with logging.format text only"],
        ),
        (
            "{logging: {options: {text: {splitStream: true}, json: {infoBufferSize: 1Ki}}}}",
            &["logging.options.text.splitStream", "logging.options.json.infoBufferSize"],
        ),
        (
            "{logging: {options: {text: {splitStream: true, infoBufferSize: 1Ki}}}, featureGates: {LoggingAlphaOptions: true}}",
            &[],
        ),
        ("{logging: {options: {text: {infoBufferSize: much}}}}", &["must be an amount"]),
    ]);
}

#[test]
fn node_flags() {
    let label = |key: &str, value: &str| NodeFlags {
        node_labels: [(key.to_owned(), value.to_owned())].into(),
        ..NodeFlags::default()
    };
    for (flags, expect) in [
        (label("a", "b"), None),
        (label("kubernetes.io/hostname", "b"), None),
        (label("kubernetes.io/x", "b"), Some("labels of kubernetes.io")),
        (label("-", "b"), Some("--node-labels -: must be a name")),
        (label("a", "b c"), Some("--node-labels a is `b c`: must be empty")),
        (
            NodeFlags { hostname_override: Some("Edge_1".to_owned()), ..NodeFlags::default() },
            Some("--hostname-override is `Edge_1`: must be a DNS name"),
        ),
        (NodeFlags { exit_on_lock_contention: true, ..NodeFlags::default() }, Some("needs --lock-file")),
    ] {
        let problems: Vec<_> = validate_node_flags(&flags).iter().map(ToString::to_string).collect();
        assert_eq!(problems.len(), usize::from(expect.is_some()), "{problems:?}");
        assert!(problems.iter().all(|problem| problem.contains(expect.unwrap_or_default())), "{problems:?}");
    }
}

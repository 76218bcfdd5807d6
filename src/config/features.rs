//! The feature gates of Kubernetes 1.36: their names, defaults and locks. A table without a thread; nothing here acts on a gate.

use std::collections::BTreeMap;

/// How ripe a feature is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Off unless asked for.
    Alpha,
    /// On, as a rule.
    Beta,
    /// Done.
    Stable,
    /// On its way out.
    Deprecated,
}
use Stage::{Alpha, Beta, Deprecated, Stable};

/// One feature gate.
#[derive(Debug, Clone, Copy)]
pub struct Gate {
    /// Its name.
    pub name: &'static str,
    /// How ripe the feature is.
    pub stage: Stage,
    /// Whether it is on by default.
    pub default: bool,
    /// Whether it can only have its default.
    pub locked: bool,
}

const fn gate(name: &'static str, stage: Stage, default: bool, locked: bool) -> Gate {
    Gate { name, stage, default, locked }
}

/// Gates that stand for all alpha or beta gates without a setting of their own.
pub const ALL_ALPHA: &str = "AllAlpha";
/// See [`ALL_ALPHA`].
pub const ALL_BETA: &str = "AllBeta";

/// The gate of that name.
pub fn find(name: &str) -> Option<&'static Gate> {
    GATES.binary_search_by(|gate| gate.name.cmp(name)).ok().map(|index| &GATES[index])
}

/// Whether a gate is on under these settings; an unknown gate is off.
pub fn is_enabled(settings: &BTreeMap<String, bool>, name: &str) -> bool {
    let Some(gate) = find(name) else { return false };
    let group = match gate.stage {
        Alpha => settings.get(ALL_ALPHA),
        Beta => settings.get(ALL_BETA),
        Stable | Deprecated => None,
    };
    let locked = gate.locked.then_some(gate.default);
    locked.or(settings.get(name).copied()).or(group.copied()).unwrap_or(gate.default)
}

/// Every gate, by name: those of the node and those that other parts of a cluster share with it in one setting.
#[rustfmt::skip]
pub const GATES: &[Gate] = &[
    gate("APIResponseCompression", Beta, true, false),
    gate("APIServerIdentity", Beta, true, false),
    gate("APIServerTracing", Stable, true, true),
    gate("APIServingWithRoutine", Alpha, false, false),
    gate("AggregatedDiscoveryRemoveBetaType", Deprecated, true, true),
    gate("AllowDNSOnlyNodeCSR", Deprecated, false, false),
    gate("AllowInsecureKubeletCertificateSigningRequests", Deprecated, false, false),
    gate("AllowOverwriteTerminationGracePeriodSeconds", Deprecated, false, true),
    gate("AllowParsingUserUIDFromCertAuth", Beta, true, false),
    gate("AllowServiceExternalIPs", Stable, true, false),
    gate("AllowUnsafeMalformedObjectDeletion", Alpha, false, false),
    gate("AnonymousAuthConfigurableEndpoints", Stable, true, true),
    gate("AnyVolumeDataSource", Stable, true, true),
    gate("AuthorizeNodeWithSelectors", Stable, true, true),
    gate("AuthorizePodWebsocketUpgradeCreatePermission", Beta, true, false),
    gate("AuthorizeWithSelectors", Stable, true, true),
    gate("BtreeWatchCache", Stable, true, true),
    gate("CBORServingAndStorage", Alpha, false, false),
    gate("CPUManagerPolicyAlphaOptions", Alpha, false, false),
    gate("CPUManagerPolicyBetaOptions", Beta, true, false),
    gate("CPUManagerPolicyOptions", Stable, true, true),
    gate("CRDObservedGenerationTracking", Beta, true, false),
    gate("CRDValidationRatcheting", Stable, true, true),
    gate("CRIListStreaming", Alpha, false, false),
    gate("CSIServiceAccountTokenSecrets", Stable, true, true),
    gate("CSIVolumeHealth", Alpha, false, false),
    gate("ChangeContainerStatusOnKubeletRestart", Deprecated, false, false),
    gate("ClearingNominatedNodeNameAfterBinding", Beta, true, false),
    gate("CloudControllerManagerWatchBasedRoutesReconciliation", Alpha, false, false),
    gate("CloudControllerManagerWebhook", Alpha, false, false),
    gate("ClusterTrustBundle", Beta, false, false),
    gate("ClusterTrustBundleProjection", Beta, false, false),
    gate("ComponentFlagz", Beta, true, false),
    gate("ComponentStatusz", Beta, true, false),
    gate("ConcurrentWatchObjectDecode", Beta, false, false),
    gate("ConsistentListFromCache", Stable, true, true),
    gate("ConstrainedImpersonation", Beta, true, false),
    gate("ContainerCheckpoint", Beta, true, false),
    gate("ContainerRestartRules", Beta, true, false),
    gate("ContainerStopSignals", Alpha, false, false),
    gate("ContextualLogging", Beta, true, false),
    gate("CoordinatedLeaderElection", Beta, false, false),
    gate("CrossNamespaceVolumeDataSource", Alpha, false, false),
    gate("CustomCPUCFSQuotaPeriod", Stable, true, false),
    gate("CustomResourceFieldSelectors", Beta, true, false),
    gate("DRAAdminAccess", Stable, true, true),
    gate("DRAConsumableCapacity", Beta, true, false),
    gate("DRADeviceBindingConditions", Beta, true, false),
    gate("DRADeviceTaintRules", Beta, false, false),
    gate("DRADeviceTaints", Beta, true, false),
    gate("DRAExtendedResource", Beta, true, false),
    gate("DRAListTypeAttributes", Alpha, false, false),
    gate("DRANodeAllocatableResources", Alpha, false, false),
    gate("DRAPartitionableDevices", Beta, true, false),
    gate("DRAPrioritizedList", Stable, true, false),
    gate("DRAResourceClaimDeviceStatus", Beta, true, false),
    gate("DRAResourceClaimGranularStatusAuthorization", Beta, true, false),
    gate("DRAResourcePoolStatus", Alpha, false, false),
    gate("DRASchedulerFilterTimeout", Beta, true, false),
    gate("DRAWorkloadResourceClaims", Alpha, false, false),
    gate("DeclarativeValidation", Stable, true, true),
    gate("DeclarativeValidationBeta", Beta, true, false),
    gate("DeclarativeValidationTakeover", Deprecated, false, false),
    gate("DeploymentReplicaSetTerminatingReplicas", Beta, true, false),
    gate("DetectCacheInconsistency", Beta, true, false),
    gate("DisableAllocatorDualWrite", Stable, true, true),
    gate("DisableCPUQuotaWithExclusiveCPUs", Deprecated, true, false),
    gate("DisableNodeKubeProxyVersion", Deprecated, true, true),
    gate("DynamicResourceAllocation", Stable, true, true),
    gate("EnvFiles", Beta, true, false),
    gate("EventedPLEG", Alpha, false, false),
    gate("ExecProbeTimeout", Stable, true, true),
    gate("ExtendWebSocketsToKubelet", Beta, true, false),
    gate("ExternalServiceAccountTokenSigner", Stable, true, true),
    gate("GangScheduling", Alpha, false, false),
    gate("GenericWorkload", Alpha, false, false),
    gate("GitRepoVolumeDriver", Deprecated, false, true),
    gate("GracefulNodeShutdown", Beta, true, false),
    gate("GracefulNodeShutdownBasedOnPodPriority", Beta, true, false),
    gate("HPAConfigurableTolerance", Beta, true, false),
    gate("HPAScaleToZero", Alpha, false, false),
    gate("HostnameOverride", Beta, true, false),
    gate("ImageMaximumGCAge", Stable, true, true),
    gate("ImageVolume", Stable, true, true),
    gate("ImageVolumeWithDigest", Alpha, false, false),
    gate("InPlacePodLevelResourcesVerticalScaling", Beta, true, false),
    gate("InPlacePodVerticalScaling", Stable, true, true),
    gate("InPlacePodVerticalScalingExclusiveCPUs", Alpha, false, false),
    gate("InPlacePodVerticalScalingExclusiveMemory", Alpha, false, false),
    gate("InPlacePodVerticalScalingInitContainers", Beta, true, false),
    gate("JobBackoffLimitPerIndex", Stable, true, true),
    gate("JobManagedBy", Stable, true, true),
    gate("JobPodReplacementPolicy", Stable, true, true),
    gate("JobSuccessPolicy", Stable, true, true),
    gate("KMSv1", Deprecated, false, false),
    gate("KubeletCgroupDriverFromCRI", Stable, true, true),
    gate("KubeletCrashLoopBackOffMax", Beta, true, false),
    gate("KubeletEnsureSecretPulledImages", Beta, true, false),
    gate("KubeletFineGrainedAuthz", Stable, true, true),
    gate("KubeletInUserNamespace", Alpha, false, false),
    gate("KubeletPSI", Stable, true, true),
    gate("KubeletPodResourcesDynamicResources", Stable, true, true),
    gate("KubeletPodResourcesGet", Stable, true, true),
    gate("KubeletPodResourcesListUseActivePods", Deprecated, true, false),
    gate("KubeletRegistrationGetOnExistsOnly", Deprecated, false, false),
    gate("KubeletSeparateDiskGC", Beta, true, false),
    gate("KubeletServiceAccountTokenForCredentialProviders", Beta, true, false),
    gate("KubeletTracing", Stable, true, true),
    gate("ListFromCacheSnapshot", Beta, true, false),
    gate("LocalStorageCapacityIsolationFSQuotaMonitoring", Beta, false, false),
    gate("LogarithmicScaleDown", Stable, true, true),
    gate("LoggingAlphaOptions", Alpha, false, false),
    gate("LoggingBetaOptions", Beta, true, false),
    gate("ManifestBasedAdmissionControlConfig", Alpha, false, false),
    gate("MatchLabelKeysInPodAffinity", Stable, true, true),
    gate("MatchLabelKeysInPodTopologySpread", Beta, true, false),
    gate("MatchLabelKeysInPodTopologySpreadSelectorMerge", Beta, true, false),
    gate("MaxUnavailableStatefulSet", Beta, false, false),
    gate("MemoryQoS", Alpha, false, false),
    gate("MultiCIDRServiceAllocator", Stable, true, true),
    gate("MutableCSINodeAllocatableCount", Stable, true, true),
    gate("MutablePVNodeAffinity", Alpha, false, false),
    gate("MutablePodResourcesForSuspendedJobs", Beta, true, false),
    gate("MutableSchedulingDirectivesForSuspendedJobs", Beta, true, false),
    gate("MutatingAdmissionPolicy", Stable, true, false),
    gate("NFTablesProxyMode", Stable, true, true),
    gate("NodeDeclaredFeatures", Beta, true, false),
    gate("NodeInclusionPolicyInPodTopologySpread", Stable, true, true),
    gate("NodeLogQuery", Stable, true, true),
    gate("NodeSwap", Stable, true, true),
    gate("NominatedNodeNameForExpectation", Beta, true, false),
    gate("OpenAPIEnums", Beta, true, false),
    gate("OpportunisticBatching", Beta, true, false),
    gate("OrderedNamespaceDeletion", Stable, true, true),
    gate("PLEGOnDemandRelist", Beta, true, false),
    gate("PersistentVolumeClaimUnusedSinceTime", Alpha, false, false),
    gate("PodAndContainerStatsFromCRI", Alpha, false, false),
    gate("PodCertificateRequest", Beta, false, false),
    gate("PodDeletionCost", Beta, true, false),
    gate("PodLevelResourceManagers", Alpha, false, false),
    gate("PodLevelResources", Beta, true, false),
    gate("PodLifecycleSleepAction", Stable, true, true),
    gate("PodLifecycleSleepActionAllowZero", Stable, true, true),
    gate("PodLogsQuerySplitStreams", Alpha, false, false),
    gate("PodObservedGenerationTracking", Stable, true, true),
    gate("PodReadyToStartContainersCondition", Beta, true, false),
    gate("PodSchedulingReadiness", Stable, true, true),
    gate("PodTopologyLabelsAdmission", Beta, true, false),
    gate("PodsAPI", Alpha, false, false),
    gate("PortForwardWebsockets", Beta, true, false),
    gate("PreferSameTrafficDistribution", Stable, true, true),
    gate("PreventStaticPodAPIReferences", Beta, true, false),
    gate("ProcMountType", Stable, true, true),
    gate("QOSReserved", Alpha, false, false),
    gate("RecoverVolumeExpansionFailure", Stable, true, true),
    gate("RecursiveReadOnlyMounts", Stable, true, true),
    gate("ReduceDefaultCrashLoopBackOffDecay", Alpha, false, false),
    gate("RelaxedDNSSearchValidation", Stable, true, true),
    gate("RelaxedEnvironmentVariableValidation", Stable, true, true),
    gate("RelaxedServiceNameValidation", Beta, true, false),
    gate("ReloadKubeletClientCAFile", Beta, true, false),
    gate("ReloadKubeletServerCertificateFile", Beta, true, false),
    gate("RemoteRequestHeaderUID", Beta, true, false),
    gate("ResilientWatchCacheInitialization", Stable, true, true),
    gate("ResourceHealthStatus", Beta, true, false),
    gate("ResourceHealthStatusMessage", Beta, true, false),
    gate("RestartAllContainersOnContainerExits", Beta, true, false),
    gate("RetryGenerateName", Beta, true, false),
    gate("RotateKubeletServerCertificate", Beta, true, false),
    gate("RuntimeClassInImageCriApi", Alpha, false, false),
    gate("SELinuxChangePolicy", Stable, true, true),
    gate("SELinuxMount", Beta, false, false),
    gate("SELinuxMountReadWriteOncePod", Stable, true, true),
    gate("SchedulerAsyncAPICalls", Beta, false, false),
    gate("SchedulerAsyncPreemption", Beta, true, false),
    gate("SchedulerPopFromBackoffQ", Beta, true, false),
    gate("SchedulerQueueingHints", Stable, true, true),
    gate("SeparateCacheWatchRPC", Deprecated, false, false),
    gate("SeparateTaintEvictionController", Stable, true, true),
    gate("ServiceAccountNodeAudienceRestriction", Beta, true, false),
    gate("ServiceAccountTokenJTI", Stable, true, true),
    gate("ServiceAccountTokenNodeBinding", Stable, true, true),
    gate("ServiceAccountTokenNodeBindingValidation", Stable, true, true),
    gate("ServiceAccountTokenPodNodeInfo", Stable, true, true),
    gate("ServiceCIDRStatusFieldWiping", Deprecated, true, false),
    gate("ShardedListAndWatch", Alpha, false, false),
    gate("SidecarContainers", Beta, true, false),
    gate("SizeBasedListCostEstimate", Beta, true, false),
    gate("StaleControllerConsistencyDaemonSet", Beta, true, false),
    gate("StaleControllerConsistencyJob", Beta, true, false),
    gate("StaleControllerConsistencyReplicaSet", Beta, true, false),
    gate("StaleControllerConsistencyStatefulSet", Beta, true, false),
    gate("StatefulSetSemanticRevisionComparison", Beta, true, false),
    gate("StorageCapacityScoring", Alpha, false, false),
    gate("StorageNamespaceIndex", Deprecated, true, false),
    gate("StorageVersionAPI", Alpha, false, false),
    gate("StorageVersionHash", Beta, true, false),
    gate("StorageVersionMigrator", Beta, false, false),
    gate("StreamingCollectionEncodingToJSON", Stable, true, true),
    gate("StreamingCollectionEncodingToProtobuf", Stable, true, true),
    gate("StrictIPCIDRValidation", Beta, true, false),
    gate("StructuredAuthenticationConfiguration", Stable, true, true),
    gate("StructuredAuthenticationConfigurationEgressSelector", Beta, true, false),
    gate("StructuredAuthenticationConfigurationJWKSMetrics", Beta, true, false),
    gate("SupplementalGroupsPolicy", Stable, true, true),
    gate("SystemdWatchdog", Stable, true, true),
    gate("TaintTolerationComparisonOperators", Alpha, false, false),
    gate("TokenRequestServiceAccountUIDValidation", Beta, true, false),
    gate("TopologyAwareWorkloadScheduling", Alpha, false, false),
    gate("TopologyManagerPolicyAlphaOptions", Alpha, false, false),
    gate("TopologyManagerPolicyBetaOptions", Beta, true, false),
    gate("TopologyManagerPolicyOptions", Stable, true, true),
    gate("TranslateStreamCloseWebsocketRequests", Beta, true, false),
    gate("UnauthenticatedHTTP2DOSMitigation", Beta, true, false),
    gate("UnknownVersionInteroperabilityProxy", Beta, true, false),
    gate("UserNamespacesHostNetworkSupport", Alpha, false, false),
    gate("UserNamespacesSupport", Stable, true, true),
    gate("VolumeAttributesClass", Stable, true, true),
    gate("VolumeLimitScaling", Alpha, false, false),
    gate("WatchCacheInitializationPostStartHook", Beta, true, false),
    gate("WatchList", Beta, true, false),
    gate("WinDSR", Stable, true, true),
    gate("WinOverlay", Stable, true, true),
    gate("WindowsCPUAndMemoryAffinity", Alpha, false, false),
    gate("WindowsGracefulNodeShutdown", Beta, true, false),
    gate("WindowsHostNetwork", Deprecated, false, false),
    gate("WorkloadAwarePreemption", Alpha, false, false),
    gate("WorkloadWithJob", Alpha, false, false),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_without_repeats() {
        assert!(GATES.windows(2).all(|pair| pair[0].name < pair[1].name));
    }

    fn check(settings: &[(&str, bool)], name: &str, expect: bool) {
        let settings = settings.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect();
        assert_eq!(is_enabled(&settings, name), expect, "{name} under {settings:?}");
    }

    #[test]
    fn settings_move_gates_that_are_not_locked() {
        check(&[], "GracefulNodeShutdown", true);
        check(&[], "MemoryQoS", false);
        check(&[], "NoSuchGate", false);
        check(&[("MemoryQoS", true)], "MemoryQoS", true);
        check(&[("NodeSwap", false)], "NodeSwap", true);
        check(&[(ALL_ALPHA, true)], "MemoryQoS", true);
        check(&[(ALL_ALPHA, true), ("MemoryQoS", false)], "MemoryQoS", false);
        check(&[(ALL_BETA, false)], "GracefulNodeShutdown", false);
        check(&[(ALL_BETA, false)], "NodeSwap", true);
    }
}

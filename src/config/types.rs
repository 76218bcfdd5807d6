//! The configuration file's top level: KubeletConfiguration with all its fields. Plain values without a thread; nothing here reads
//! a file, checks a range or knows a default (see `defaults` and `validate`).

use super::decode::config_struct;
use super::duration::GoDuration;
use super::nested::{
    Authentication, Authorization, CrashLoopBackOff, Logging, MemoryReservation, MemorySwap,
    ShutdownGracePeriodByPodPriority, Taint, Tracing, UserNamespaces,
};
use std::collections::BTreeMap;

config_struct! {
    /// The configuration of a node agent, kubelet.config.k8s.io/v1beta1, with every default filled in.
    ///
    /// `KubeletConfiguration::default()` holds the defaults of a configuration file that sets nothing.
    pub struct KubeletConfiguration {
        /// Always `kubelet.config.k8s.io/v1beta1`.
        api_version: String = "apiVersion" Always,
        /// Always `KubeletConfiguration`.
        kind: String = "kind" Always,
        /// Whether the HTTPS server (port) and the read-only server run at all.
        enable_server: bool = "enableServer" Pointer,
        /// Folder of pod manifests, or one manifest file, that this node runs by itself; empty for none.
        static_pod_path: String = "staticPodPath" Zero,
        /// Folder under which the runtime writes the containers' logs; absolute, ASCII, without .. or double slashes.
        pod_logs_dir: String = "podLogsDir" Zero,
        /// The longest time until a running pod is compared with its spec again.
        sync_frequency: GoDuration = "syncFrequency" Always,
        /// How often staticPodPath is read again, should a change notice have been lost.
        file_check_frequency: GoDuration = "fileCheckFrequency" Always,
        /// How often staticPodURL is fetched.
        http_check_frequency: GoDuration = "httpCheckFrequency" Always,
        /// URL of a Pod or PodList that this node runs by itself; empty for none.
        static_pod_url: String = "staticPodURL" Zero,
        /// HTTP headers to send to staticPodURL: a name and its list of values.
        static_pod_url_header: BTreeMap<String, Vec<String>> = "staticPodURLHeader" Zero,
        /// IP address that the server listens on; 0.0.0.0 or :: for all.
        address: String = "address" Zero,
        /// Port of the HTTPS server.
        port: i32 = "port" Zero,
        /// Port of the server without authentication; 0 turns it off.
        read_only_port: i32 = "readOnlyPort" Zero,
        /// PEM file with the server's certificate and its chain; empty for a self-signed one.
        tls_cert_file: String = "tlsCertFile" Zero,
        /// PEM file with the key of tlsCertFile.
        tls_private_key_file: String = "tlsPrivateKeyFile" Zero,
        /// Cipher suites of the server by their Go names; empty for a good choice.
        tls_cipher_suites: Vec<String> = "tlsCipherSuites" Zero,
        /// Key exchange curves by Go's CurveID numbers; empty for a good choice.
        tls_curve_preferences: Vec<i32> = "tlsCurvePreferences" Zero,
        /// Lowest TLS version: VersionTLS12 or VersionTLS13; empty for VersionTLS12.
        tls_min_version: String = "tlsMinVersion" Zero,
        /// Ask the API server for a new client certificate before the old one ends.
        rotate_certificates: bool = "rotateCertificates" Zero,
        /// Ask the API server for the server's certificate instead of signing it oneself.
        server_tls_bootstrap: bool = "serverTLSBootstrap" Zero,
        /// Who may be a caller of the server: client certificates, API server tokens, strangers.
        authentication: Authentication = "authentication" Always,
        /// What a caller may do: Webhook asks the API server, AlwaysAllow does not ask.
        authorization: Authorization = "authorization" Always,
        /// Image pulls per second on average; 0 for no limit.
        registry_pull_qps: i32 = "registryPullQPS" Pointer,
        /// Image pulls that may start at once after a quiet time, if registryPullQPS is above 0.
        registry_burst: i32 = "registryBurst" Zero,
        /// When a pod must show that it may use an image that is already here: NeverVerify, NeverVerifyPreloadedImages,
        /// NeverVerifyAllowlistedImages or AlwaysVerify.
        image_pull_credentials_verification_policy: String = "imagePullCredentialsVerificationPolicy" Zero,
        /// Images exempt from that under NeverVerifyAllowlistedImages; a trailing /* stands for all below.
        preloaded_images_verification_allowlist: Vec<String> = "preloadedImagesVerificationAllowlist" Zero,
        /// Events sent to the API server per second on average; 0 for no limit.
        event_record_qps: i32 = "eventRecordQPS" Pointer,
        /// Events that may be sent at once after a quiet time, if eventRecordQPS is above 0.
        event_burst: i32 = "eventBurst" Zero,
        /// Serve logs, exec, attach, port-forward and other looks into containers.
        enable_debugging_handlers: bool = "enableDebuggingHandlers" Pointer,
        /// Profile lock contention, where profiles are served.
        enable_contention_profiling: bool = "enableContentionProfiling" Zero,
        /// Port of the local health endpoint; 0 turns it off.
        healthz_port: i32 = "healthzPort" Pointer,
        /// IP address that the health endpoint listens on.
        healthz_bind_address: String = "healthzBindAddress" Zero,
        /// The agent's own oom_score_adj, from -1000 to 1000.
        oom_score_adj: i32 = "oomScoreAdj" Pointer,
        /// DNS domain of the cluster; empty for none.
        cluster_domain: String = "clusterDomain" Zero,
        /// IP addresses of the cluster's DNS servers, for pods with dnsPolicy ClusterFirst.
        cluster_dns: Vec<String> = "clusterDNS" Zero,
        /// Kept for old files; has no effect, as upstream.
        streaming_connection_idle_timeout: GoDuration = "streamingConnectionIdleTimeout" Always,
        /// How often the node's status is computed.
        node_status_update_frequency: GoDuration = "nodeStatusUpdateFrequency" Always,
        /// How often an unchanged node status is sent all the same; follows nodeStatusUpdateFrequency where that alone
        /// is set.
        node_status_report_frequency: GoDuration = "nodeStatusReportFrequency" Always,
        /// After how many seconds without a heartbeat the cluster takes the node for lost.
        node_lease_duration_seconds: i32 = "nodeLeaseDurationSeconds" Zero,
        /// An unused image is kept at least this long.
        image_minimum_gc_age: GoDuration = "imageMinimumGCAge" Always,
        /// An unused image is kept at most this long; 0s for no such end.
        image_maximum_gc_age: GoDuration = "imageMaximumGCAge" Always,
        /// Disk usage in percent at which unused images are removed; 100 turns it off.
        image_gc_high_threshold_percent: i32 = "imageGCHighThresholdPercent" Pointer,
        /// Disk usage in percent down to which they are removed.
        image_gc_low_threshold_percent: i32 = "imageGCLowThresholdPercent" Pointer,
        /// How often the disk usage of volumes is measured; negative for never.
        volume_stats_agg_period: GoDuration = "volumeStatsAggPeriod" Always,
        /// Cgroup that the agent moves itself into; empty to stay.
        kubelet_cgroups: String = "kubeletCgroups" Zero,
        /// Cgroup for processes that are in none; needs cgroupRoot; empty to leave them.
        system_cgroups: String = "systemCgroups" Zero,
        /// Cgroup under which the pods' tree is made; empty for the top.
        cgroup_root: String = "cgroupRoot" Zero,
        /// Make a cgroup for each QoS class and each pod.
        cgroups_per_qos: bool = "cgroupsPerQOS" Pointer,
        /// Who makes cgroups: cgroupfs (the agent itself) or systemd.
        cgroup_driver: String = "cgroupDriver" Zero,
        /// Whether containers get CPUs of their own: none or static.
        cpu_manager_policy: String = "cpuManagerPolicy" Zero,
        /// Out of memory kills one process (true) or the whole container (false); unset: whole container on cgroup v2.
        single_process_oom_kill: Option<bool> = "singleProcessOOMKill" Pointer,
        /// Options of the static CPU policy.
        cpu_manager_policy_options: BTreeMap<String, String> = "cpuManagerPolicyOptions" Zero,
        /// How often the containers' CPU sets are put right.
        cpu_manager_reconcile_period: GoDuration = "cpuManagerReconcilePeriod" Always,
        /// Whether containers get memory on NUMA nodes of their own: None or Static.
        memory_manager_policy: String = "memoryManagerPolicy" Zero,
        /// How strictly CPUs, memory and devices must be near each other: none, best-effort, restricted or single-numa-
        /// node.
        topology_manager_policy: String = "topologyManagerPolicy" Zero,
        /// Whether that is decided per container or per pod.
        topology_manager_scope: String = "topologyManagerScope" Zero,
        /// Options of the topology policy.
        topology_manager_policy_options: BTreeMap<String, String> = "topologyManagerPolicyOptions" Zero,
        /// Share of requested memory kept from lower QoS classes, such as memory: 50%; needs the gate QOSReserved.
        qos_reserved: BTreeMap<String, String> = "qosReserved" Zero,
        /// Deadline of calls to the container runtime, long ones such as pulls excepted.
        runtime_request_timeout: GoDuration = "runtimeRequestTimeout" Always,
        /// Kept for old files: promiscuous-bridge, hairpin-veth or none.
        hairpin_mode: String = "hairpinMode" Zero,
        /// How many pods may run on this node.
        max_pods: i32 = "maxPods" Zero,
        /// Pod addresses of a node without an API server; empty leaves them to the runtime.
        pod_cidr: String = "podCIDR" Zero,
        /// How many processes a pod may have; -1 for as many as the node.
        pod_pids_limit: i64 = "podPidsLimit" Pointer,
        /// Resolver file that pods' DNS settings start from; empty for none.
        resolv_conf: String = "resolvConf" Pointer,
        /// Gone upstream; must stay false.
        run_once: bool = "runOnce" Zero,
        /// Hold containers to their CPU limits.
        cpu_cfs_quota: bool = "cpuCFSQuota" Pointer,
        /// Period of those limits, from 1ms to 1s.
        cpu_cfs_quota_period: GoDuration = "cpuCFSQuotaPeriod" Pointer,
        /// How many images the node's status lists; -1 for all.
        node_status_max_images: i32 = "nodeStatusMaxImages" Pointer,
        /// How many files the agent may hold open.
        max_open_files: i64 = "maxOpenFiles" Zero,
        /// Encoding asked of the API server.
        content_type: String = "contentType" Zero,
        /// Requests to the API server per second on average.
        kube_api_qps: i32 = "kubeAPIQPS" Pointer,
        /// Requests to the API server at once after a quiet time.
        kube_api_burst: i32 = "kubeAPIBurst" Zero,
        /// Pull one image at a time; defaults to false where maxParallelImagePulls is 2 or more.
        serialize_image_pulls: bool = "serializeImagePulls" Pointer,
        /// How many images are pulled at once if serializeImagePulls is false; unset for no limit.
        max_parallel_image_pulls: Option<i32> = "maxParallelImagePulls" Pointer,
        /// Signals and thresholds at which pods are evicted at once; setting any drops the others, see
        /// mergeDefaultEvictionSettings.
        eviction_hard: BTreeMap<String, String> = "evictionHard" Zero,
        /// Signals and thresholds at which pods are evicted after evictionSoftGracePeriod.
        eviction_soft: BTreeMap<String, String> = "evictionSoft" Zero,
        /// How long each soft threshold must be crossed, such as memory.available: 1m30s.
        eviction_soft_grace_period: BTreeMap<String, String> = "evictionSoftGracePeriod" Zero,
        /// How long a pressure condition stays after its cause has gone.
        eviction_pressure_transition_period: GoDuration = "evictionPressureTransitionPeriod" Always,
        /// Longest termination grace, in seconds, of a pod evicted by a soft threshold.
        eviction_max_pod_grace_period: i32 = "evictionMaxPodGracePeriod" Zero,
        /// How much more than the threshold each eviction frees.
        eviction_minimum_reclaim: BTreeMap<String, String> = "evictionMinimumReclaim" Zero,
        /// Keep the defaults of those evictionHard signals that the file does not name.
        merge_default_eviction_settings: bool = "mergeDefaultEvictionSettings" Pointer,
        /// How many pods may run per CPU, within maxPods; 0 for no such limit.
        pods_per_core: i32 = "podsPerCore" Zero,
        /// Leave attaching volumes to the cluster's controller.
        enable_controller_attach_detach: bool = "enableControllerAttachDetach" Pointer,
        /// Stop at start, rather than set them, when kernel settings differ from what the agent needs.
        protect_kernel_defaults: bool = "protectKernelDefaults" Zero,
        /// Keep the firewall chain that marks the node as a kubelet's.
        make_iptables_util_chains: bool = "makeIPTablesUtilChains" Pointer,
        /// Kept for old files; has no effect, as upstream.
        iptables_masquerade_bit: i32 = "iptablesMasqueradeBit" Pointer,
        /// Kept for old files; has no effect, as upstream.
        iptables_drop_bit: i32 = "iptablesDropBit" Pointer,
        /// Feature gates to switch away from their defaults.
        feature_gates: BTreeMap<String, bool> = "featureGates" Zero,
        /// Refuse to start while swap is on.
        fail_swap_on: bool = "failSwapOn" Pointer,
        /// How pods use swap: NoSwap (also when empty) or LimitedSwap.
        memory_swap: MemorySwap = "memorySwap" Always,
        /// Size at which a container's log file is rotated; below zero for never.
        container_log_max_size: String = "containerLogMaxSize" Zero,
        /// How many log files a container keeps, at least 2.
        container_log_max_files: i32 = "containerLogMaxFiles" Pointer,
        /// How many logs are rotated at once.
        container_log_max_workers: i32 = "containerLogMaxWorkers" Pointer,
        /// How often log sizes are looked at, at least 3s.
        container_log_monitor_interval: GoDuration = "containerLogMonitorInterval" Pointer,
        /// How changes of config maps and secrets are noticed: Watch, Cache or Get.
        config_map_and_secret_change_detection_strategy: String = "configMapAndSecretChangeDetectionStrategy" Zero,
        /// cpu, memory, ephemeral-storage and pid kept for the operating system.
        system_reserved: BTreeMap<String, String> = "systemReserved" Zero,
        /// cpu, memory, ephemeral-storage and pid kept for the agent and the runtime.
        kube_reserved: BTreeMap<String, String> = "kubeReserved" Zero,
        /// CPUs kept for both, such as 0-1,4; takes the place of the cpu amounts above.
        reserved_system_cpus: String = "reservedSystemCPUs" Zero,
        /// Show metrics that were hidden in this minor version, such as 1.35.
        show_hidden_metrics_for_version: String = "showHiddenMetricsForVersion" Zero,
        /// Cgroup of the operating system's processes, for enforcing systemReserved.
        system_reserved_cgroup: String = "systemReservedCgroup" Zero,
        /// Cgroup of agent and runtime, for enforcing kubeReserved.
        kube_reserved_cgroup: String = "kubeReservedCgroup" Zero,
        /// What is held to its share: pods, system-reserved, kube-reserved, each of the last two also with
        /// -compressible; or none.
        enforce_node_allocatable: Vec<String> = "enforceNodeAllocatable" Zero,
        /// Namespaced sysctls that pods may set though they are not known to be safe; a trailing * stands for a group.
        allowed_unsafe_sysctls: Vec<String> = "allowedUnsafeSysctls" Zero,
        /// Folder of FlexVolume plugins.
        volume_plugin_dir: String = "volumePluginDir" Zero,
        /// The node's name at its cloud provider.
        provider_id: String = "providerID" Zero,
        /// Let the kernel tell of memory thresholds instead of looking every 10 s.
        kernel_memcg_notification: bool = "kernelMemcgNotification" Zero,
        /// Format (text or json) and verbosity of the agent's log; vmodule is a list of filePattern and verbosity.
        logging: Logging = "logging" Always,
        /// Serve files of /var/log at /logs/.
        enable_system_log_handler: bool = "enableSystemLogHandler" Pointer,
        /// Serve queries of system logs there; needs enableSystemLogHandler.
        enable_system_log_query: bool = "enableSystemLogQuery" Pointer,
        /// How long a node shutdown waits for pods; 0s for not at all.
        shutdown_grace_period: GoDuration = "shutdownGracePeriod" Always,
        /// The last part of that time, kept for critical pods.
        shutdown_grace_period_critical_pods: GoDuration = "shutdownGracePeriodCriticalPods" Always,
        /// The same in steps by pod priority: a list of priority and shutdownGracePeriodSeconds; excludes the two
        /// above.
        shutdown_grace_period_by_pod_priority: Vec<ShutdownGracePeriodByPodPriority> = "shutdownGracePeriodByPodPriority" Zero,
        /// Longest pause before a crashing container starts again, from 1s to 5m.
        crash_loop_back_off: CrashLoopBackOff = "crashLoopBackOff" Always,
        /// Memory kept per NUMA node for the Static memory policy: a list of numaNode and limits.
        reserved_memory: Vec<MemoryReservation> = "reservedMemory" Zero,
        /// Serve profiles at /debug/pprof/.
        enable_profiling_handler: bool = "enableProfilingHandler" Pointer,
        /// Let the log's verbosity be changed at /debug/flags/v.
        enable_debug_flags_handler: bool = "enableDebugFlagsHandler" Pointer,
        /// Containers that name no seccomp profile get RuntimeDefault instead of none.
        seccomp_default: bool = "seccompDefault" Pointer,
        /// Share of a container's memory limit at which it is slowed; needs the gate MemoryQoS.
        memory_throttling_factor: f64 = "memoryThrottlingFactor" Pointer,
        /// Whether requested memory is protected by cgroup v2: None or TieredReservation; needs the gate MemoryQoS.
        memory_reservation_policy: String = "memoryReservationPolicy" Zero,
        /// Taints the node registers with: a list of key, value and effect.
        register_with_taints: Vec<Taint> = "registerWithTaints" Zero,
        /// Register the node with the API server.
        register_node: bool = "registerNode" Pointer,
        /// OpenTelemetry traces: endpoint and samplingRatePerMillion; unset for none.
        tracing: Option<Tracing> = "tracing" Pointer,
        /// Count and limit pods' local ephemeral storage.
        local_storage_capacity_isolation: bool = "localStorageCapacityIsolation" Pointer,
        /// Socket of the container runtime's CRI service.
        container_runtime_endpoint: String = "containerRuntimeEndpoint" Always,
        /// Socket of the CRI image service; empty for the same as containerRuntimeEndpoint.
        image_service_endpoint: String = "imageServiceEndpoint" Zero,
        /// Refuse to start on a machine with cgroup v1.
        fail_cgroup_v1: bool = "failCgroupV1" Pointer,
        /// Ids for pods with hostUsers false: idsPerPod, a multiple of 65536; unset for 65536.
        user_namespaces: Option<UserNamespaces> = "userNamespaces" Pointer,
    }
}

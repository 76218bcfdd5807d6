//! The table of all command line flags: name, kind, target, help. Constant data without a thread; nothing here parses (see
//! `flags`), and no flag is known anywhere else.

use super::Kind::{
    self, Amount, Bool, CloudProvider, Duration, Gates, Headers, Int32, Int64, Ip, List, NodeIps, OnePair, Pairs,
    ReservedMemory, Taints, Text, Thresholds, VModule, Verbosity,
};
use super::node_flags::{NodeFlags, addresses, file, number, pairs, span, text, yes};

/// Where a flag's value goes.
#[derive(Clone, Copy)]
pub enum Target {
    /// To the configuration, at this path.
    Config(&'static str),
    /// To [`NodeFlags`]. The text was checked against the flag's kind before.
    Node(fn(&mut NodeFlags, &str)),
    /// Nowhere: accepted so that old command lines go on working.
    Ignored,
    /// Prints the help.
    Help,
    /// Prints the version.
    Version,
}

/// One flag.
#[derive(Clone, Copy)]
pub struct Flag {
    /// Its name without the dashes.
    pub name: &'static str,
    /// The kind of its value.
    pub kind: Kind,
    /// Where the value goes.
    pub target: Target,
    /// The default as text; of a flag for the configuration, the configuration tells it.
    pub default: &'static str,
    /// What it is for.
    pub help: &'static str,
    /// What to use instead, where the flag is on its way out; empty otherwise.
    pub deprecated: &'static str,
}

const fn config(name: &'static str, kind: Kind, path: &'static str, help: &'static str) -> Flag {
    Flag { name, kind, target: Target::Config(path), default: "", help, deprecated: "" }
}

const fn node(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    set: fn(&mut NodeFlags, &str),
    help: &'static str,
    deprecated: &'static str,
) -> Flag {
    Flag { name, kind, target: Target::Node(set), default, help, deprecated }
}

const fn ignored(name: &'static str, kind: Kind, default: &'static str) -> Flag {
    let help = "Accepted for old command lines; has no effect.";
    Flag { name, kind, target: Target::Ignored, default, help, deprecated: "delete it" }
}

const fn global(name: &'static str, target: Target, help: &'static str) -> Flag {
    Flag { name, kind: Bool, target, default: "false", help, deprecated: "" }
}

/// Flags for the configuration that stay; all others there are deprecated in favour of the file.
pub(super) const NOT_DEPRECATED: [&str; 5] = ["v", "vmodule", "log-flush-frequency", "provider-id", "fail-cgroupv1"];

/// Flags of this node only.
#[rustfmt::skip]
pub const NODE: &[Flag] = &[
    node("config", Text, "", |f, v| f.config = file(v), "The configuration file; flags win over what it says.", ""),
    node("config-dir", Text, "", |f, v| f.config_dir = file(v), "Folder of drop-ins (*.conf, also in folders below), merged over the configuration file in the order of their names.", ""),
    node("ferrolet-config", Text, "", |f, v| f.ferrolet_config = file(v), "The file of ferrolet's own settings, which the kubelet does not have; none for the defaults.", ""),
    node("kubeconfig", Text, "", |f, v| f.kubeconfig = file(v), "How to reach the API server; without it the node runs only its own static pods.", ""),
    node("bootstrap-kubeconfig", Text, "", |f, v| f.bootstrap_kubeconfig = file(v), "Kubeconfig to get the first client certificate with, where --kubeconfig is not there yet.", ""),
    node("hostname-override", Text, "", |f, v| f.hostname_override = text(v), "The node's name; empty for the machine's host name.", ""),
    node("node-ip", NodeIps, "", |f, v| f.node_ip = addresses(v), "The node's IP address, or an IPv4 and an IPv6 one with a comma; :: or 0.0.0.0 only prefers a family.", ""),
    node("cert-dir", Text, "/var/lib/kubelet/pki", |f, v| f.cert_dir = v.into(), "Folder of the node's certificates and keys.", ""),
    node("cloud-provider", CloudProvider, "", |f, v| f.cloud_provider = v.to_owned(), "Empty, or external where a cloud controller prepares the node.", ""),
    node("root-dir", Text, "/var/lib/kubelet", |f, v| f.root_dir = v.into(), "Folder for volumes, pod files and the agent's memory.", ""),
    node("seccomp-default", Bool, "false", |f, v| f.seccomp_default = yes(v), "Containers that name no seccomp profile get RuntimeDefault instead of none.", ""),
    node("node-labels", Pairs, "", |f, v| f.node_labels.extend(pairs(v)), "Labels the node registers with: key=value, with commas between.", ""),
    node("lock-file", Text, "", |f, v| f.lock_file = file(v), "File that only one agent at a time may hold.", ""),
    node("exit-on-lock-contention", Bool, "false", |f, v| f.exit_on_lock_contention = yes(v), "Stop when somebody else opens --lock-file.", ""),
    node("runtime-cgroups", Text, "", |f, v| f.runtime_cgroups = v.to_owned(), "Cgroup of the container runtime, for its statistics.", ""),
    node("image-credential-provider-config", Text, "", |f, v| f.image_credential_provider_config = file(v), "Configuration file (or folder of them) of programs that give registry passwords.", ""),
    node("image-credential-provider-bin-dir", Text, "", |f, v| f.image_credential_provider_bin_dir = file(v), "Folder of those programs.", ""),
    node("minimum-container-ttl-duration", Duration, "0s", |f, v| f.minimum_container_ttl_duration = span(v), "A finished container is kept at least this long.", "use evictionHard or evictionSoft instead"),
    node("maximum-dead-containers-per-container", Int32, "1", |f, v| f.maximum_dead_containers_per_container = number(v, 1), "How many finished instances of a container are kept.", "use evictionHard or evictionSoft instead"),
    node("maximum-dead-containers", Int32, "-1", |f, v| f.maximum_dead_containers = number(v, -1), "How many finished containers are kept in all; negative for no limit.", "use evictionHard or evictionSoft instead"),
    node("experimental-mounter-path", Text, "", |f, v| f.experimental_mounter_path = file(v), "Program to mount with.", "use CSI instead"),
    node("experimental-allocatable-ignore-eviction", Bool, "false", |f, v| f.experimental_allocatable_ignore_eviction = yes(v), "Do not count hard eviction thresholds when computing what is left for pods.", "it will go away"),
];

/// Flags for everything.
pub const GLOBAL: &[Flag] = &[
    global("help", Target::Help, "Print this help."),
    global("version", Target::Version, "Print the version; --version=raw prints it in full."),
];

/// Flags of the log.
#[rustfmt::skip]
pub const LOGGING: &[Flag] = &[
    config("logging-format", Text, "logging.format", "Format of the log: text or json."),
    config("log-flush-frequency", Duration, "logging.flushFrequency", "Kept for old command lines: every line is written at once."),
    config("v", Verbosity, "logging.verbosity", "Verbosity of the log: 0 what an owner wants to know, 4 for debugging, 6 for everything."),
    config("vmodule", VModule, "logging.vmodule", "Other verbosities for some source files: pattern=N, with commas between."),
    config("log-text-split-stream", Bool, "logging.options.text.splitStream", "Text log: errors to stderr, the rest to stdout (gate LoggingAlphaOptions)."),
    config("log-text-info-buffer-size", Amount, "logging.options.text.infoBufferSize", "Text log: bytes held back before they are written (gate LoggingAlphaOptions)."),
    config("log-json-split-stream", Bool, "logging.options.json.splitStream", "JSON log: errors to stderr, the rest to stdout (gate LoggingAlphaOptions)."),
    config("log-json-info-buffer-size", Amount, "logging.options.json.infoBufferSize", "JSON log: bytes held back before they are written (gate LoggingAlphaOptions)."),
];

/// Flags for fields of the configuration.
#[rustfmt::skip]
pub const CONFIG: &[Flag] = &[
    config("enable-server", Bool, "enableServer", "Whether the HTTPS server (port) and the read-only server run at all."),
    config("fail-swap-on", Bool, "failSwapOn", "Refuse to start while swap is on."),
    config("pod-manifest-path", Text, "staticPodPath", "Folder of pod manifests, or one manifest file, that this node runs by itself; empty for none."),
    config("sync-frequency", Duration, "syncFrequency", "The longest time until a running pod is compared with its spec again."),
    config("file-check-frequency", Duration, "fileCheckFrequency", "How often staticPodPath is read again, should a change notice have been lost."),
    config("http-check-frequency", Duration, "httpCheckFrequency", "How often staticPodURL is fetched."),
    config("manifest-url", Text, "staticPodURL", "URL of a Pod or PodList that this node runs by itself; empty for none."),
    config("manifest-url-header", Headers, "staticPodURLHeader", "HTTP headers to send to staticPodURL: a name and its list of values."),
    config("address", Ip, "address", "IP address that the server listens on; 0.0.0.0 or :: for all."),
    config("port", Int32, "port", "Port of the HTTPS server."),
    config("read-only-port", Int32, "readOnlyPort", "Port of the server without authentication; 0 turns it off."),
    config("fail-cgroupv1", Bool, "failCgroupV1", "Refuse to start on a machine with cgroup v1."),
    config("container-runtime-endpoint", Text, "containerRuntimeEndpoint", "Socket of the container runtime's CRI service."),
    config("image-service-endpoint", Text, "imageServiceEndpoint", "Socket of the CRI image service; empty for the same as containerRuntimeEndpoint."),
    config("anonymous-auth", Bool, "authentication.anonymous.enabled", "Let callers in that show neither certificate nor token."),
    config("authentication-token-webhook", Bool, "authentication.webhook.enabled", "Let callers in whose token the API server knows."),
    config("authentication-token-webhook-cache-ttl", Duration, "authentication.webhook.cacheTTL", "How long such an answer is remembered."),
    config("client-ca-file", Text, "authentication.x509.clientCAFile", "PEM file of the authorities that sign callers' certificates; empty for none."),
    config("authorization-mode", Text, "authorization.mode", "What a caller may do: Webhook asks the API server, AlwaysAllow does not ask."),
    config("authorization-webhook-cache-authorized-ttl", Duration, "authorization.webhook.cacheAuthorizedTTL", "How long a yes is remembered."),
    config("authorization-webhook-cache-unauthorized-ttl", Duration, "authorization.webhook.cacheUnauthorizedTTL", "How long a no is remembered."),
    config("tls-cert-file", Text, "tlsCertFile", "PEM file with the server's certificate and its chain; empty for a self-signed one."),
    config("tls-private-key-file", Text, "tlsPrivateKeyFile", "PEM file with the key of tlsCertFile."),
    config("rotate-server-certificates", Bool, "serverTLSBootstrap", "Ask the API server for the server's certificate instead of signing it oneself."),
    config("tls-cipher-suites", List, "tlsCipherSuites", "Cipher suites of the server by their Go names; empty for a good choice."),
    config("tls-min-version", Text, "tlsMinVersion", "Lowest TLS version: VersionTLS12 or VersionTLS13; empty for VersionTLS12."),
    config("rotate-certificates", Bool, "rotateCertificates", "Ask the API server for a new client certificate before the old one ends."),
    config("registry-qps", Int32, "registryPullQPS", "Image pulls per second on average; 0 for no limit."),
    config("registry-burst", Int32, "registryBurst", "Image pulls that may start at once after a quiet time, if registryPullQPS is above 0."),
    config("event-qps", Int32, "eventRecordQPS", "Events sent to the API server per second on average; 0 for no limit."),
    config("event-burst", Int32, "eventBurst", "Events that may be sent at once after a quiet time, if eventRecordQPS is above 0."),
    config("enable-debugging-handlers", Bool, "enableDebuggingHandlers", "Serve logs, exec, attach, port-forward and other looks into containers."),
    config("contention-profiling", Bool, "enableContentionProfiling", "Profile lock contention, where profiles are served."),
    config("healthz-port", Int32, "healthzPort", "Port of the local health endpoint; 0 turns it off."),
    config("healthz-bind-address", Ip, "healthzBindAddress", "IP address that the health endpoint listens on."),
    config("oom-score-adj", Int32, "oomScoreAdj", "The agent's own oom_score_adj, from -1000 to 1000."),
    config("cluster-domain", Text, "clusterDomain", "DNS domain of the cluster; empty for none."),
    config("volume-plugin-dir", Text, "volumePluginDir", "Folder of FlexVolume plugins."),
    config("cluster-dns", List, "clusterDNS", "IP addresses of the cluster's DNS servers, for pods with dnsPolicy ClusterFirst."),
    config("streaming-connection-idle-timeout", Duration, "streamingConnectionIdleTimeout", "Kept for old files; has no effect, as upstream."),
    config("node-status-update-frequency", Duration, "nodeStatusUpdateFrequency", "How often the node's status is computed."),
    config("minimum-image-ttl-duration", Duration, "imageMinimumGCAge", "An unused image is kept at least this long."),
    config("image-gc-high-threshold", Int32, "imageGCHighThresholdPercent", "Disk usage in percent at which unused images are removed; 100 turns it off."),
    config("image-gc-low-threshold", Int32, "imageGCLowThresholdPercent", "Disk usage in percent down to which they are removed."),
    config("volume-stats-agg-period", Duration, "volumeStatsAggPeriod", "How often the disk usage of volumes is measured; negative for never."),
    config("feature-gates", Gates, "featureGates", "Feature gates to switch away from their defaults."),
    config("kubelet-cgroups", Text, "kubeletCgroups", "Cgroup that the agent moves itself into; empty to stay."),
    config("system-cgroups", Text, "systemCgroups", "Cgroup for processes that are in none; needs cgroupRoot; empty to leave them."),
    config("provider-id", Text, "providerID", "The node's name at its cloud provider."),
    config("cgroups-per-qos", Bool, "cgroupsPerQOS", "Make a cgroup for each QoS class and each pod."),
    config("cgroup-driver", Text, "cgroupDriver", "Who makes cgroups: cgroupfs (the agent itself) or systemd."),
    config("cgroup-root", Text, "cgroupRoot", "Cgroup under which the pods' tree is made; empty for the top."),
    config("cpu-manager-policy", Text, "cpuManagerPolicy", "Whether containers get CPUs of their own: none or static."),
    config("cpu-manager-policy-options", OnePair, "cpuManagerPolicyOptions", "Options of the static CPU policy."),
    config("cpu-manager-reconcile-period", Duration, "cpuManagerReconcilePeriod", "How often the containers' CPU sets are put right."),
    config("qos-reserved", Pairs, "qosReserved", "Share of requested memory kept from lower QoS classes, such as memory: 50%; needs the gate QOSReserved."),
    config("topology-manager-policy", Text, "topologyManagerPolicy", "How strictly CPUs, memory and devices must be near each other: none, best-effort, restricted or single-numa-node."),
    config("runtime-request-timeout", Duration, "runtimeRequestTimeout", "Deadline of calls to the container runtime, long ones such as pulls excepted."),
    config("hairpin-mode", Text, "hairpinMode", "Kept for old files: promiscuous-bridge, hairpin-veth or none."),
    config("max-pods", Int32, "maxPods", "How many pods may run on this node."),
    config("pod-cidr", Text, "podCIDR", "Pod addresses of a node without an API server; empty leaves them to the runtime."),
    config("pod-max-pids", Int64, "podPidsLimit", "How many processes a pod may have; -1 for as many as the node."),
    config("resolv-conf", Text, "resolvConf", "Resolver file that pods' DNS settings start from; empty for none."),
    config("runonce", Bool, "runOnce", "Gone upstream; must stay false."),
    config("cpu-cfs-quota", Bool, "cpuCFSQuota", "Hold containers to their CPU limits."),
    config("cpu-cfs-quota-period", Duration, "cpuCFSQuotaPeriod", "Period of those limits, from 1ms to 1s."),
    config("enable-controller-attach-detach", Bool, "enableControllerAttachDetach", "Leave attaching volumes to the cluster's controller."),
    config("make-iptables-util-chains", Bool, "makeIPTablesUtilChains", "Keep the firewall chain that marks the node as a kubelet's."),
    config("container-log-max-size", Text, "containerLogMaxSize", "Size at which a container's log file is rotated; below zero for never."),
    config("container-log-max-files", Int32, "containerLogMaxFiles", "How many log files a container keeps, at least 2."),
    config("allowed-unsafe-sysctls", List, "allowedUnsafeSysctls", "Namespaced sysctls that pods may set though they are not known to be safe; a trailing * stands for a group."),
    config("node-status-max-images", Int32, "nodeStatusMaxImages", "How many images the node's status lists; -1 for all."),
    config("kernel-memcg-notification", Bool, "kernelMemcgNotification", "Let the kernel tell of memory thresholds instead of looking every 10 s."),
    config("local-storage-capacity-isolation", Bool, "localStorageCapacityIsolation", "Count and limit pods' local ephemeral storage."),
    config("max-open-files", Int64, "maxOpenFiles", "How many files the agent may hold open."),
    config("kube-api-content-type", Text, "contentType", "Encoding asked of the API server."),
    config("kube-api-qps", Int32, "kubeAPIQPS", "Requests to the API server per second on average."),
    config("kube-api-burst", Int32, "kubeAPIBurst", "Requests to the API server at once after a quiet time."),
    config("serialize-image-pulls", Bool, "serializeImagePulls", "Pull one image at a time; defaults to false where maxParallelImagePulls is 2 or more."),
    config("eviction-hard", Thresholds, "evictionHard", "Signals and thresholds at which pods are evicted at once; setting any drops the others, see mergeDefaultEvictionSettings."),
    config("eviction-soft", Thresholds, "evictionSoft", "Signals and thresholds at which pods are evicted after evictionSoftGracePeriod."),
    config("eviction-soft-grace-period", Pairs, "evictionSoftGracePeriod", "How long each soft threshold must be crossed, such as memory.available: 1m30s."),
    config("eviction-pressure-transition-period", Duration, "evictionPressureTransitionPeriod", "How long a pressure condition stays after its cause has gone."),
    config("eviction-max-pod-grace-period", Int32, "evictionMaxPodGracePeriod", "Longest termination grace, in seconds, of a pod evicted by a soft threshold."),
    config("eviction-minimum-reclaim", Pairs, "evictionMinimumReclaim", "How much more than the threshold each eviction frees."),
    config("pods-per-core", Int32, "podsPerCore", "How many pods may run per CPU, within maxPods; 0 for no such limit."),
    config("protect-kernel-defaults", Bool, "protectKernelDefaults", "Stop at start, rather than set them, when kernel settings differ from what the agent needs."),
    config("reserved-cpus", Text, "reservedSystemCPUs", "CPUs kept for both, such as 0-1,4; takes the place of the cpu amounts above."),
    config("topology-manager-scope", Text, "topologyManagerScope", "Whether that is decided per container or per pod."),
    config("topology-manager-policy-options", Pairs, "topologyManagerPolicyOptions", "Options of the topology policy."),
    config("system-reserved", Pairs, "systemReserved", "cpu, memory, ephemeral-storage and pid kept for the operating system."),
    config("kube-reserved", Pairs, "kubeReserved", "cpu, memory, ephemeral-storage and pid kept for the agent and the runtime."),
    config("enforce-node-allocatable", List, "enforceNodeAllocatable", "What is held to its share: pods, system-reserved, kube-reserved, each of the last two also with -compressible; or none."),
    config("system-reserved-cgroup", Text, "systemReservedCgroup", "Cgroup of the operating system's processes, for enforcing systemReserved."),
    config("kube-reserved-cgroup", Text, "kubeReservedCgroup", "Cgroup of agent and runtime, for enforcing kubeReserved."),
    config("memory-manager-policy", Text, "memoryManagerPolicy", "Whether containers get memory on NUMA nodes of their own: None or Static."),
    config("reserved-memory", ReservedMemory, "reservedMemory", "Memory kept per NUMA node for the Static memory policy: a list of numaNode and limits."),
    config("register-node", Bool, "registerNode", "Register the node with the API server."),
    config("register-with-taints", Taints, "registerWithTaints", "Taints the node registers with: a list of key, value and effect."),
];

/// Flags of the kubelet's built-in cAdvisor, which ferrolet has not.
#[rustfmt::skip]
pub const IGNORED: &[Flag] = &[
    ignored("housekeeping-interval", Duration, "10s"),
    ignored("max-housekeeping-interval", Duration, "15s"),
    ignored("application-metrics-count-limit", Int32, "100"),
    ignored("boot-id-file", Text, ""),
    ignored("container-hints", Text, ""),
    ignored("containerd", Text, "/run/containerd/containerd.sock"),
    ignored("containerd-namespace", Text, "k8s.io"),
    ignored("enable-load-reader", Bool, "false"),
    ignored("event-storage-age-limit", Text, ""),
    ignored("event-storage-event-limit", Text, ""),
    ignored("global-housekeeping-interval", Duration, "1m0s"),
    ignored("log-cadvisor-usage", Bool, "false"),
    ignored("machine-id-file", Text, ""),
    ignored("storage-driver-user", Text, ""),
    ignored("storage-driver-password", Text, ""),
    ignored("storage-driver-host", Text, ""),
    ignored("storage-driver-db", Text, ""),
    ignored("storage-driver-table", Text, ""),
    ignored("storage-driver-secure", Bool, "false"),
    ignored("storage-driver-buffer-duration", Duration, "1m0s"),
];

/// Flags that older kubelets had, and what to do instead.
#[rustfmt::skip]
pub(super) const REMOVED: &[(&str, &str)] = &[
    ("pod-infra-container-image", "delete it: the pause image is set in the container runtime (containerd: sandbox_image, or sandbox under pinned_images)"),
    ("container-runtime", "delete it: CRI runtimes are the only ones; name the socket with containerRuntimeEndpoint"),
    ("network-plugin", "delete it: networks are set up by the container runtime from /etc/cni/net.d"),
    ("cni-bin-dir", "delete it: set it in the container runtime (containerd: [plugins.*.cni] bin_dir)"),
    ("cni-conf-dir", "delete it: set it in the container runtime (containerd: [plugins.*.cni] conf_dir)"),
    ("cni-cache-dir", "delete it: networks are set up by the container runtime"),
    ("network-plugin-mtu", "delete it: set the MTU in /etc/cni/net.d"),
    ("non-masquerade-cidr", "delete it: masquerading is up to the network plugin"),
    ("dynamic-config-dir", "use --config and --config-dir"),
    ("register-schedulable", "use --register-with-taints or registerWithTaints"),
    ("keep-terminated-pod-volumes", "delete it: volumes of terminated pods are always removed"),
    ("master-service-namespace", "delete it"),
    ("iptables-masquerade-bit", "delete it: it has no effect"),
    ("iptables-drop-bit", "delete it: it has no effect"),
    ("azure-container-registry-config", "use --image-credential-provider-config"),
    ("cloud-config", "run a cloud controller and set --cloud-provider=external"),
    ("allow-privileged", "delete it: pods may be privileged unless admission refuses them"),
    ("cadvisor-port", "delete it"),
    ("docker-endpoint", "use containerRuntimeEndpoint"),
    ("image-pull-progress-deadline", "delete it: it was for Docker"),
    ("redirect-container-streaming", "delete it"),
    ("enable-cadvisor-json-endpoints", "delete it"),
    ("logtostderr", "delete it: the log goes to stderr"),
    ("alsologtostderr", "delete it: the log goes to stderr"),
    ("stderrthreshold", "delete it: the log goes to stderr"),
    ("log-dir", "delete it: the log goes to stderr; let systemd or a shell write it to a file"),
    ("log-file", "delete it: the log goes to stderr; let systemd or a shell write it to a file"),
    ("log-file-max-size", "delete it: the log goes to stderr"),
    ("log-backtrace-at", "delete it"),
    ("skip-headers", "delete it"),
    ("skip-log-headers", "delete it"),
    ("add-dir-header", "delete it"),
    ("one-output", "delete it"),
    ("runtime-cgroups-path", "use --runtime-cgroups"),
    ("node-status-report-frequency", "set nodeStatusReportFrequency in the configuration file"),
    ("experimental-kernel-memcg-notification", "use kernelMemcgNotification"),
    ("experimental-check-node-capabilities-before-mount", "use CSI"),
    ("really-crash-for-testing", "delete it"),
    ("chaos-chance", "delete it"),
    ("windows-service", "delete it: ferrolet runs on Linux"),
    ("windows-priorityclass", "delete it: ferrolet runs on Linux"),
];

/// Every flag, in the order of the help.
pub fn all() -> impl Iterator<Item = &'static Flag> {
    [GLOBAL, NODE, LOGGING, CONFIG, IGNORED].into_iter().flatten()
}

/// The flag of that name, without dashes in front, `-` between words.
pub fn find(name: &str) -> Option<&'static Flag> {
    all().find(|flag| flag.name == name)
}

impl Flag {
    /// What to tell whoever uses the flag though it is on its way out.
    pub fn advice(&self) -> Option<String> {
        match self.target {
            _ if !self.deprecated.is_empty() => Some(self.deprecated.to_owned()),
            Target::Config(path) if !NOT_DEPRECATED.contains(&self.name) => Some(format!("set {path} in the file")),
            _ => None,
        }
    }
}

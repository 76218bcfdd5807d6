//! The metrics that the upstream kubelet has and this agent fills: same names, types and labels, so that dashboards and alerts
//! go on working.
//!
//! Statics, added to on any thread. What can be counted from a snapshot of the node (pods, containers) is written by the
//! server and not kept here. What is left out, and why, is told in the test beside the server's metrics. Rows are in the
//! order of names.

use super::{Countdown, Counter, Counters, Gauge, Gauges, Histogram, Histograms, Registered, bounds, table};

table! {
    ADMISSION_REJECTIONS: Counters("kubelet_admission_rejections_total", "Pods that were refused on this node, by reason.", &["reason"]);
    CLIENT_CERTIFICATE_RENEW_ERRORS: Counter("kubelet_certificate_manager_client_expiration_renew_errors", "Renewals of the client certificate that failed.");
    CLIENT_CERTIFICATE_TTL: Countdown("kubelet_certificate_manager_client_ttl_seconds", "Seconds until the client certificate expires; negative when it has.");
    SERVER_CERTIFICATE_ROTATION: Histogram("kubelet_certificate_manager_server_rotation_seconds", "Seconds that a serving certificate was in use before its successor.", bounds::CERTIFICATE_LIFE);
    SERVER_CERTIFICATE_TTL: Countdown("kubelet_certificate_manager_server_ttl_seconds", "Seconds until the serving certificate expires; negative when it has.");
    CGROUP_DURATION: Histograms("kubelet_cgroup_manager_duration_seconds", "Seconds for one operation on the cgroup of a pod.", bounds::USUAL, &["operation_type"]);
    CONTAINER_REQUESTED_RESIZES: Counters("kubelet_container_requested_resizes_total", "Changes of CPU and memory asked of running containers.", &["resource", "requirement", "operation"]);
    CONTAINERS_PER_POD: Histogram("kubelet_containers_per_pod_count", "Containers of each pod that began.", bounds::CONTAINERS);
    EVENT_STREAM_ERRORS: Counter("kubelet_evented_pleg_connection_error_count", "Times that the runtime's event stream broke or could not be opened.");
    EVENT_STREAM_LATENCY: Histogram("kubelet_evented_pleg_connection_latency_seconds", "Seconds between an event in the runtime and its arrival.", bounds::USUAL);
    EVENT_STREAM_SUCCESSES: Counter("kubelet_evented_pleg_connection_success_count", "Times that the runtime's event stream was opened.");
    SHUTDOWN_END: Gauge("kubelet_graceful_shutdown_end_time_seconds", "When the pods had ended for the last shutdown of this machine, in seconds since 1970; 0 if they have not.");
    SHUTDOWN_START: Gauge("kubelet_graceful_shutdown_start_time_seconds", "When the last shutdown of this machine began that was waited for, in seconds since 1970; 0 if none was.");
    HTTP_INFLIGHT: Gauges("kubelet_http_inflight_requests", "Requests that the node's server is busy with.", &["long_running", "method", "path", "server_type"]);
    HTTP_DURATION: Histograms("kubelet_http_requests_duration_seconds", "Seconds to serve one request.", bounds::USUAL, &["long_running", "method", "path", "server_type"]);
    HTTP_REQUESTS: Counters("kubelet_http_requests_total", "Requests that the node's server was asked.", &["long_running", "method", "path", "server_type"]);
    ENSURE_IMAGE: Counters("kubelet_image_manager_ensure_image_requests_total", "Times that a container's image was made sure of.", &["present_locally", "pull_policy", "pull_required"]);
    IMAGE_PULL_DURATION: Histograms("kubelet_image_pull_duration_seconds", "Seconds to pull an image, by its size.", bounds::PULL, &["image_size_in_bytes"]);
    HTTP_FALLBACKS: Counter("kubelet_lifecycle_handler_http_fallbacks_total", "Hooks over HTTPS that were answered by plain HTTP.");
    NODE_STARTUP: Gauge("kubelet_node_startup_duration_seconds", "Seconds from the start of the agent to the first Ready of the node.");
    NODE_STARTUP_POST_REGISTRATION: Gauge("kubelet_node_startup_post_registration_duration_seconds", "Seconds from the node's registration to its first Ready.");
    NODE_STARTUP_PRE_KUBELET: Gauge("kubelet_node_startup_pre_kubelet_duration_seconds", "Seconds from the machine's boot to the start of the agent.");
    NODE_STARTUP_PRE_REGISTRATION: Gauge("kubelet_node_startup_pre_registration_duration_seconds", "Seconds from the start of the agent to the node's registration.");
    NODE_STARTUP_REGISTRATION: Gauge("kubelet_node_startup_registration_duration_seconds", "Seconds that the node's registration took.");
    ORPHANED_RUNTIME_PODS: Counter("kubelet_orphaned_runtime_pods_total", "Pods found in the runtime that nobody had asked for.");
    PLEG_DISCARDED: Counter("kubelet_pleg_discard_events", "News of the runtime that were dropped.");
    PLEG_LAST_SEEN: Gauge("kubelet_pleg_last_seen_seconds", "When the runtime was last listed with success, in seconds since 1970.");
    PLEG_POD_RELIST: Histogram("kubelet_pleg_pod_relist_duration_seconds", "Seconds for a close look at one pod.", bounds::USUAL);
    PLEG_RELIST: Histogram("kubelet_pleg_relist_duration_seconds", "Seconds to list what the runtime has.", bounds::USUAL);
    PLEG_INTERVAL: Histogram("kubelet_pleg_relist_interval_seconds", "Seconds between the begins of two lists.", bounds::USUAL);
    POD_START: Histogram("kubelet_pod_start_duration_seconds", "Seconds from the moment that the agent saw a pod to the moment when all its containers ran.", bounds::POD_START);
    POD_START_SLI: Histogram("kubelet_pod_start_sli_duration_seconds", "Seconds from a pod's creation to all its containers seen running, without the pulls of images.", bounds::POD_START);
    POD_START_TOTAL: Histogram("kubelet_pod_start_total_duration_seconds", "Seconds from a pod's creation to all its containers seen running.", bounds::POD_START);
    POD_STATUS_SYNC: Histogram("kubelet_pod_status_sync_duration_seconds", "Seconds from the change of a pod's status to the API server's having it.", bounds::STATUS);
    POD_WORKER: Histograms("kubelet_pod_worker_duration_seconds", "Seconds for one work on a pod, by what it is for.", bounds::USUAL, &["operation_type"]);
    POD_WORKER_START: Histogram("kubelet_pod_worker_start_duration_seconds", "Seconds from the moment that the agent saw a pod to the first work on it.", bounds::USUAL);
    PREEMPTIONS: Counters("kubelet_preemptions", "Pods that made room for critical ones, by what was short.", &["preemption_signal"]);
    RESTARTED_PODS: Counters("kubelet_restarted_pods_total", "Pods that were deleted and made again under the same uid.", &["static"]);
    RUN_SANDBOX: Histograms("kubelet_run_podsandbox_duration_seconds", "Seconds to make a sandbox.", bounds::USUAL, &["runtime_handler"]);
    RUN_SANDBOX_ERRORS: Counters("kubelet_run_podsandbox_errors_total", "Sandboxes that could not be made.", &["runtime_handler"]);
    RUNTIME_DURATION: Histograms("kubelet_runtime_operations_duration_seconds", "Seconds for one call to the container runtime.", bounds::RUNTIME, &["operation_type"]);
    RUNTIME_ERRORS: Counters("kubelet_runtime_operations_errors_total", "Calls to the container runtime that failed.", &["operation_type"]);
    RUNTIME_OPERATIONS: Counters("kubelet_runtime_operations_total", "Calls to the container runtime.", &["operation_type"]);
    SERVER_CERTIFICATE_RENEW_ERRORS: Counter("kubelet_server_expiration_renew_errors", "Renewals of the serving certificate that failed.");
    SLEEPS_CUT_SHORT: Counter("kubelet_sleep_action_terminated_early_total", "Sleep hooks that ended before their time because the pod had to.");
    STARTED_CONTAINERS_ERRORS: Counters("kubelet_started_containers_errors_total", "Containers that could not be started, by the word for why.", &["code", "container_type"]);
    STARTED_CONTAINERS: Counters("kubelet_started_containers_total", "Attempts to start a container.", &["container_type"]);
    STARTED_PODS_ERRORS: Counter("kubelet_started_pods_errors_total", "Sandboxes of pods that could not be started.");
    STARTED_PODS: Counter("kubelet_started_pods_total", "Attempts to start a pod's sandbox.");
    STARTED_USERNS_PODS_ERRORS: Counter("kubelet_started_user_namespaced_pods_errors_total", "Sandboxes with a user namespace that could not be started.");
    STARTED_USERNS_PODS: Counter("kubelet_started_user_namespaced_pods_total", "Attempts to start a sandbox with a user namespace.");
    TERMINATED_CONTAINERS: Counters("kubelet_terminated_containers_total", "Containers that ended.", &["container_type", "exit_code", "reason"]);
    VOLUME_METRIC_DURATION: Histograms("kubelet_volume_metric_collection_duration_seconds", "Seconds to find out how full one volume is.", bounds::USUAL, &["metric_source"]);
    WEBSOCKET_REQUESTS: Counters("kubelet_websocket_streaming_requests_total", "Streaming requests that came over a websocket.", &["subresource"]);
    CLIENT_LIMITER: Histograms("rest_client_rate_limiter_duration_seconds", "Seconds that a request to the API server waited for its turn.", bounds::API, &["host", "verb"]);
    CLIENT_DURATION: Histograms("rest_client_request_duration_seconds", "Seconds for one request to the API server.", bounds::API, &["host", "verb"]);
    CLIENT_REQUESTS: Counters("rest_client_requests_total", "Requests to the API server, by the answer's code.", &["code", "host", "method"]);
    STORAGE_OPERATION: Histograms("storage_operation_duration_seconds", "Seconds for one operation on a volume.", bounds::VOLUME, &["migrated", "operation_name", "status", "volume_plugin"]);
}

/// Health checks, served on /metrics/slis.
pub static HEALTHCHECKS: Counters = Counters::new(
    "kubernetes_healthchecks_total",
    "Runs of the health checks, by result.",
    &["name", "status", "type"],
);

/// Attempts of probes, served on /metrics/probes.
pub mod probes {
    use super::{Counters, Histograms, Registered, bounds, table};

    table! {
        PROBE_DURATION: Histograms("prober_probe_duration_seconds", "Seconds that an attempt of a probe took.", bounds::USUAL, &["container", "namespace", "pod", "probe_type"]);
        PROBES: Counters("prober_probe_total", "Attempts of probes, by result.", &["container", "namespace", "pod", "pod_uid", "probe_type", "result"]);
    }
}

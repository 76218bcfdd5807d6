//! Checks of the fields about pods, images, container logs and the runtime. Pure; runs on the main thread.

use super::{Checker, names};
use crate::config::GoDuration;
use std::net::IpAddr;

pub(super) fn check(checker: &mut Checker<'_>) {
    sources(checker);
    pulls(checker);
    credentials(checker);
    runtime(checker);
    limits(checker);
    logs(checker);
    network(checker);
}

fn sources(checker: &mut Checker<'_>) {
    let config = checker.config;
    checker.positive("syncFrequency", config.sync_frequency);
    checker.positive("fileCheckFrequency", config.file_check_frequency);
    checker.positive("httpCheckFrequency", config.http_check_frequency);
    let url = &config.static_pod_url;
    if !url.is_empty() {
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        let right = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
            && !url.contains(|c: char| c.is_whitespace() || c.is_control());
        checker.require(
            right,
            "staticPodURL",
            format!("`{url}`"),
            "must be a URL that starts with http:// or https://",
        );
    }
    for (name, values) in &config.static_pod_url_header {
        let at = format!("staticPodURLHeader.{name}");
        checker.require(names::is_header_name(name), &at, "set", "must be named by an HTTP header name");
        // The values are secrets as a rule; they are not shown.
        let right = values.iter().all(|value| !value.contains(|c: char| c.is_control() && c != '\t'));
        checker.require(right, &at, "set", "must not hold line breaks or other control characters");
    }
    if config.run_once {
        checker.wrong("runOnce", "true", "is gone from the kubelet, delete the line");
    }
}

fn pulls(checker: &mut Checker<'_>) {
    let config = checker.config;
    checker.at_least("registryBurst", config.registry_burst, 0);
    checker.at_least("registryPullQPS", config.registry_pull_qps, 0);
    if let Some(parallel) = config.max_parallel_image_pulls {
        checker.at_least("maxParallelImagePulls", parallel, 1);
        if parallel > 1 && config.serialize_image_pulls {
            checker.wrong("maxParallelImagePulls", parallel, "needs serializeImagePulls: false, or must be 1");
        }
    }
}

fn credentials(checker: &mut Checker<'_>) {
    let config = checker.config;
    let policy = config.image_pull_credentials_verification_policy.as_str();
    let list = &config.preloaded_images_verification_allowlist;
    let (policy_at, list_at) = ("imagePullCredentialsVerificationPolicy", "preloadedImagesVerificationAllowlist");
    if !checker.enabled("KubeletEnsureSecretPulledImages") {
        let want = "needs the feature gate KubeletEnsureSecretPulledImages";
        checker.require(policy.is_empty(), policy_at, format!("`{policy}`"), want);
        checker.require(list.is_empty(), list_at, "set", want);
        return;
    }
    let policies = ["NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"];
    checker.one_of(policy_at, policy, &policies);
    if !list.is_empty() && policy != "NeverVerifyAllowlistedImages" {
        checker.wrong(list_at, "set", format!("needs {policy_at}: NeverVerifyAllowlistedImages"));
        return;
    }
    for (index, pattern) in list.iter().enumerate() {
        if let Err(want) = names::image_pattern(pattern) {
            checker.wrong(format!("{list_at}[{index}]"), format!("`{pattern}`"), want);
        }
    }
}

fn runtime(checker: &mut Checker<'_>) {
    let config = checker.config;
    let want = "must be a unix socket, such as unix:///run/containerd/containerd.sock";
    let endpoint = |text: &str| text.strip_prefix("unix://").unwrap_or(text).starts_with('/');
    let runtime = &config.container_runtime_endpoint;
    checker.require(endpoint(runtime), "containerRuntimeEndpoint", format!("`{runtime}`"), want);
    let images = &config.image_service_endpoint;
    checker.require(images.is_empty() || endpoint(images), "imageServiceEndpoint", format!("`{images}`"), want);
    checker.positive("runtimeRequestTimeout", config.runtime_request_timeout);
    checker.one_of("cgroupDriver", &config.cgroup_driver, &["cgroupfs", "systemd"]);
    checker.one_of("hairpinMode", &config.hairpin_mode, &["promiscuous-bridge", "hairpin-veth", "none"]);
    checker.range("oomScoreAdj", config.oom_score_adj, -1000, 1000);
    checker.one_of("memorySwap.swapBehavior", &config.memory_swap.swap_behavior, &["", "NoSwap", "LimitedSwap"]);
    let (min, max) = (GoDuration::from_secs(1), GoDuration::from_secs(300));
    match config.crash_loop_back_off.max_container_restart_period {
        Some(period) => {
            let at = "crashLoopBackOff.maxContainerRestartPeriod";
            if !checker.enabled("KubeletCrashLoopBackOffMax") {
                checker.wrong(at, period, "needs the feature gate KubeletCrashLoopBackOffMax");
            } else {
                checker.require((min..=max).contains(&period), at, period, "must be from 1s to 5m");
            }
        }
        None if checker.enabled("KubeletCrashLoopBackOffMax") => {
            checker.wrong("crashLoopBackOff.maxContainerRestartPeriod", "not set", "must be from 1s to 5m");
        }
        None => {}
    }
    if let Some(ids) = config.user_namespaces.as_ref().and_then(|namespaces| namespaces.ids_per_pod) {
        let right = ids >= 65536 && ids % 65536 == 0 && ids <= i64::from(u32::MAX);
        checker.require(
            right,
            "userNamespaces.idsPerPod",
            ids,
            "must be a multiple of 65536 below 4294967296, at least 65536",
        );
    }
    for (index, pattern) in config.allowed_unsafe_sysctls.iter().enumerate() {
        if let Err(want) = names::sysctl_pattern(pattern) {
            checker.wrong(format!("allowedUnsafeSysctls[{index}]"), format!("`{pattern}`"), want);
        }
    }
}

fn limits(checker: &mut Checker<'_>) {
    let config = checker.config;
    checker.at_least("maxPods", config.max_pods, 0);
    checker.at_least("podsPerCore", config.pods_per_core, 0);
    checker.at_least("maxOpenFiles", config.max_open_files, 0);
    let period = config.cpu_cfs_quota_period;
    if checker.enabled("CustomCPUCFSQuotaPeriod") {
        let right = (GoDuration::from_millis(1)..=GoDuration::from_secs(1)).contains(&period);
        checker.require(right, "cpuCFSQuotaPeriod", period, "must be from 1ms to 1s");
    } else {
        let right = period == GoDuration::from_millis(100);
        checker.require(right, "cpuCFSQuotaPeriod", period, "needs the feature gate CustomCPUCFSQuotaPeriod");
    }
    let factor = config.memory_throttling_factor;
    checker.require(factor > 0.0 && factor <= 1.0, "memoryThrottlingFactor", factor, "must be above 0 and at most 1");
    let policy = config.memory_reservation_policy.as_str();
    checker.one_of("memoryReservationPolicy", policy, &["None", "TieredReservation"]);
    if policy == "TieredReservation" && !checker.enabled("MemoryQoS") {
        checker.wrong("memoryReservationPolicy", policy, "needs the feature gate MemoryQoS");
    }
}

fn logs(checker: &mut Checker<'_>) {
    let config = checker.config;
    let folder = &config.pod_logs_dir;
    let at = "podLogsDir";
    let clean = folder == "/"
        || (!folder.ends_with('/') && folder.split('/').skip(1).all(|part| !["", ".", ".."].contains(&part)));
    checker.require(folder.starts_with('/'), at, format!("`{folder}`"), "must be an absolute path");
    checker.require(clean, at, format!("`{folder}`"), "must be written without `.`, `..`, `//` and a slash at the end");
    checker.require(folder.is_ascii(), at, format!("`{folder}`"), "must hold ASCII letters only");
    let size = config.container_log_max_size.as_str();
    let right = names::amount(size).is_some_and(|amount| !amount.is_zero());
    let want = "must be an amount above zero, such as 10Mi, or below it for no rotation";
    checker.require(right, "containerLogMaxSize", format!("`{size}`"), want);
    checker.at_least("containerLogMaxFiles", config.container_log_max_files, 2);
    checker.at_least("containerLogMaxWorkers", config.container_log_max_workers, 1);
    let interval = config.container_log_monitor_interval;
    checker.require(
        interval >= GoDuration::from_secs(3),
        "containerLogMonitorInterval",
        interval,
        "must be 3s or more",
    );
}

fn network(checker: &mut Checker<'_>) {
    let config = checker.config;
    for (index, server) in config.cluster_dns.iter().enumerate() {
        let at = format!("clusterDNS[{index}]");
        checker.require(
            server.parse::<IpAddr>().is_ok(),
            &at,
            format!("`{server}`"),
            "must be an IP address such as 10.96.0.10",
        );
    }
    let cidr = config.pod_cidr.as_str();
    let right = cidr.is_empty() || cidr.split(',').all(|part| names::is_cidr(part.trim()));
    checker.require(
        right,
        "podCIDR",
        format!("`{cidr}`"),
        "must be a network such as 10.244.0.0/24, or two with a comma between",
    );
}

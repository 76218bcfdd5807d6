//! Checks of the server's, the API client's and the node object's fields. Pure; runs on the main thread.

use super::{Checker, names};
use crate::config::GoDuration;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Cipher suites by their Go names.
const CIPHERS: [&str; 26] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
];

/// Key exchange curves by Go's numbers: P-256, P-384, P-521, X25519, and those three with ML-KEM.
const CURVES: [i32; 7] = [23, 24, 25, 29, 4587, 4588, 4589];

const IP: &str = "must be an IP address such as 127.0.0.1 or ::1";

pub(super) fn check(checker: &mut Checker<'_>) {
    listeners(checker);
    tls(checker);
    auth(checker);
    api_client(checker);
    node(checker);
}

fn listeners(checker: &mut Checker<'_>) {
    let config = checker.config;
    for (at, address) in [("address", &config.address), ("healthzBindAddress", &config.healthz_bind_address)] {
        checker.require(address.parse::<IpAddr>().is_ok(), at, format!("`{address}`"), IP);
    }
    checker.range("port", config.port, 1, 65535);
    checker.range("readOnlyPort", config.read_only_port, 0, 65535);
    checker.range("healthzPort", config.healthz_port, 0, 65535);
    if config.enable_system_log_query && !config.enable_system_log_handler {
        checker.wrong("enableSystemLogQuery", "true", "needs enableSystemLogHandler: true");
    }
}

fn tls(checker: &mut Checker<'_>) {
    let config = checker.config;
    let (cert, key) = (&config.tls_cert_file, &config.tls_private_key_file);
    if cert.is_empty() != key.is_empty() {
        let (at, other) =
            if cert.is_empty() { ("tlsCertFile", "tlsPrivateKeyFile") } else { ("tlsPrivateKeyFile", "tlsCertFile") };
        checker.wrong(at, "empty", format!("must be set too where {other} is, or neither"));
    }
    for (index, cipher) in config.tls_cipher_suites.iter().enumerate() {
        if !CIPHERS.contains(&cipher.as_str()) {
            let want = "must be a cipher suite by its Go name, such as TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
            checker.wrong(format!("tlsCipherSuites[{index}]"), format!("`{cipher}`"), want);
        }
    }
    let mut seen = BTreeSet::new();
    for (index, curve) in config.tls_curve_preferences.iter().enumerate() {
        let at = format!("tlsCurvePreferences[{index}]");
        checker.require(
            CURVES.contains(curve),
            &at,
            curve,
            "must be one of Go's curve numbers 23, 24, 25, 29, 4587, 4588, 4589",
        );
        checker.require(seen.insert(*curve), &at, curve, "is there twice");
    }
    let versions = ["", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"];
    checker.one_of("tlsMinVersion", &config.tls_min_version, &versions);
    if config.server_tls_bootstrap && !checker.enabled("RotateKubeletServerCertificate") {
        checker.wrong("serverTLSBootstrap", "true", "needs the feature gate RotateKubeletServerCertificate");
    }
}

fn auth(checker: &mut Checker<'_>) {
    let config = checker.config;
    checker.one_of("authorization.mode", &config.authorization.mode, &["AlwaysAllow", "Webhook"]);
    checker.not_negative("authentication.webhook.cacheTTL", config.authentication.webhook.cache_ttl);
    let webhook = &config.authorization.webhook;
    checker.not_negative("authorization.webhook.cacheAuthorizedTTL", webhook.cache_authorized_ttl);
    checker.not_negative("authorization.webhook.cacheUnauthorizedTTL", webhook.cache_unauthorized_ttl);
}

fn api_client(checker: &mut Checker<'_>) {
    let config = checker.config;
    checker.at_least("eventBurst", config.event_burst, 0);
    checker.at_least("eventRecordQPS", config.event_record_qps, 0);
    checker.at_least("kubeAPIBurst", config.kube_api_burst, 0);
    checker.at_least("kubeAPIQPS", config.kube_api_qps, 0);
    let types = ["application/vnd.kubernetes.protobuf", "application/json", "application/cbor", "application/yaml"];
    checker.one_of("contentType", &config.content_type, &types);
    let strategies = ["Watch", "Cache", "Get"];
    let strategy = &config.config_map_and_secret_change_detection_strategy;
    checker.one_of("configMapAndSecretChangeDetectionStrategy", strategy, &strategies);
}

fn node(checker: &mut Checker<'_>) {
    let config = checker.config;
    checker.positive("nodeStatusUpdateFrequency", config.node_status_update_frequency);
    checker.not_negative("nodeStatusReportFrequency", config.node_status_report_frequency);
    checker.at_least("nodeLeaseDurationSeconds", config.node_lease_duration_seconds, 1);
    checker.at_least("nodeStatusMaxImages", config.node_status_max_images, -1);
    checker.range("iptablesMasqueradeBit", config.iptables_masquerade_bit, 0, 31);
    checker.range("iptablesDropBit", config.iptables_drop_bit, 0, 31);
    let hidden = config.show_hidden_metrics_for_version.as_str();
    let want = "must be 1.35, the minor version before this one, or empty";
    checker.require(["", "1.35"].contains(&hidden), "showHiddenMetricsForVersion", format!("`{hidden}`"), want);
    for (index, taint) in config.register_with_taints.iter().enumerate() {
        let at = |field: &str| format!("registerWithTaints[{index}].{field}");
        if let Err(want) = names::qualified_name(&taint.key) {
            checker.wrong(at("key"), format!("`{}`", taint.key), want);
        }
        if let Err(want) = names::label_value(&taint.value) {
            checker.wrong(at("value"), format!("`{}`", taint.value), want);
        }
        checker.one_of(&at("effect"), &taint.effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        if let Some(time) = &taint.time_added {
            checker.wrong(at("timeAdded"), format!("`{time}`"), "must not be set");
        }
    }
    images_gc(checker);
}

fn images_gc(checker: &mut Checker<'_>) {
    let config = checker.config;
    let (high, low) = (config.image_gc_high_threshold_percent, config.image_gc_low_threshold_percent);
    checker.range("imageGCHighThresholdPercent", high, 0, 100);
    checker.range("imageGCLowThresholdPercent", low, 0, 100);
    if low >= high {
        checker.wrong(
            "imageGCLowThresholdPercent",
            low,
            format!("must be less than imageGCHighThresholdPercent ({high})"),
        );
    }
    let (youngest, oldest) = (config.image_minimum_gc_age, config.image_maximum_gc_age);
    checker.not_negative("imageMinimumGCAge", youngest);
    checker.not_negative("imageMaximumGCAge", oldest);
    if oldest > GoDuration::ZERO && oldest <= youngest {
        checker.wrong(
            "imageMaximumGCAge",
            oldest,
            format!("must be longer than imageMinimumGCAge ({youngest}), or 0s"),
        );
    }
}

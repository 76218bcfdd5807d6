//! What the CIS benchmark for Kubernetes asks of a node's agent (its part 4): who may read the files, and who may ask the agent for what.
//! Each judgement is a function over what was found. They are warnings: the node works all the same.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Line, ok, warn};
use crate::config::Loaded;

pub(super) fn lines(loaded: &Loaded) -> Vec<Line> {
    let (set, flags) = (&loaded.config, &loaded.flags);
    let mut lines = Vec::new();
    let secret = [
        ("cis.4.1.5-6 kubeconfig", flags.kubeconfig.clone(), 0o600),
        ("cis.4.1.9-10 config", flags.config.clone(), 0o644),
        ("cis.4.1.7-8 client-ca", Some(PathBuf::from(&set.authentication.x509.client_ca_file)), 0o644),
        ("cis.4.1 private-key", Some(PathBuf::from(&set.tls_private_key_file)), 0o600),
    ];
    for (check, path, most) in secret {
        let found = path.as_deref().filter(|path| !path.as_os_str().is_empty()).and_then(|path| {
            let meta = std::fs::metadata(path).ok()?;
            Some(file(check, path, meta.mode() & 0o7777, meta.uid(), most))
        });
        lines.extend(found);
    }
    if set.enable_server {
        let is_in_cluster = flags.kubeconfig.is_some();
        lines.push(judge(
            "cis.4.2.1 anonymous",
            !set.authentication.anonymous.enabled,
            "authentication.anonymous.enabled is",
            "false",
        ));
        lines.push(judge(
            "cis.4.2.2 authorization",
            set.authorization.mode != "AlwaysAllow",
            "authorization.mode is",
            "Webhook",
        ));
        if is_in_cluster {
            let has_ca = !set.authentication.x509.client_ca_file.is_empty();
            lines.push(judge("cis.4.2.3 client-ca", has_ca, "authentication.x509.clientCAFile is", "the cluster's CA"));
        }
        lines.push(judge("cis.4.2.4 read-only-port", set.read_only_port == 0, "readOnlyPort is", "0"));
        let idle = set.streaming_connection_idle_timeout.to_std();
        lines.push(judge("cis.4.2.5 idle-sessions", !idle.is_zero(), "streamingConnectionIdleTimeout is", "above 0"));
        lines.push(judge(
            "cis.4.2.12 tls-ciphers",
            set.tls_min_version == "VersionTLS13" || has_strong_ciphers_alone(&set.tls_cipher_suites),
            "tlsMinVersion is VersionTLS13, or tlsCipherSuites are",
            "strong ones alone",
        ));
        let has_pair = !set.tls_cert_file.is_empty() || set.server_tls_bootstrap;
        lines.push(judge(
            "cis.4.2.9 serving-certificate",
            has_pair,
            "a serving certificate of the cluster's is",
            "set (tlsCertFile or serverTLSBootstrap)",
        ));
    }
    if flags.kubeconfig.is_some() {
        lines.push(judge("cis.4.2.10 rotation", set.rotate_certificates, "rotateCertificates is", "true"));
    }
    lines.push(judge("cis.4.2.6 iptables", set.make_iptables_util_chains, "makeIPTablesUtilChains is", "true"));
    lines.push(judge("cis.4.2.13 pids", set.pod_pids_limit > 0, "podPidsLimit is", "a number above 0"));
    lines.push(judge("cis.4.2.14 seccomp", set.seccomp_default, "seccompDefault is", "true"));
    lines
}

/// Whether all of these, and of what holds where none are named, keep what was said secret when the key is lost.
fn has_strong_ciphers_alone(names: &[String]) -> bool {
    let is_strong = |name: &String| {
        name.starts_with("TLS_AES_")
            || name.starts_with("TLS_CHACHA20_")
            || name.starts_with("TLS_ECDHE_") && !name.ends_with("_SHA")
    };
    // This program's TLS has no others.
    names.iter().all(is_strong)
}

/// `what` is `wanted`, or it is not.
fn judge(check: &str, is_so: bool, what: &str, wanted: &str) -> Line {
    match is_so {
        true => ok(check, format!("{what} {wanted}")),
        false => warn(check, format!("{what} not {wanted}"), "set it so, unless something here needs it otherwise"),
    }
}

/// Who may read a file: `most` are the rights that it may have.
fn file(check: &str, path: &Path, mode: u32, owner: u32, most: u32) -> Line {
    let found = format!("{}: mode {mode:03o}, owner {owner}", path.display());
    if mode & !most == 0 && owner == 0 {
        ok(check, found)
    } else {
        warn(check, found, format!("chown root:root {0}; chmod {most:o} {0}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn files_have_an_owner_and_no_more_rights_than_they_need() {
        for (mode, owner, most, expect) in [
            (0o600, 0, 0o600, Verdict::Ok),
            (0o400, 0, 0o600, Verdict::Ok),
            (0o640, 0, 0o600, Verdict::Warn),
            (0o600, 1000, 0o600, Verdict::Warn),
            (0o644, 0, 0o644, Verdict::Ok),
            (0o664, 0, 0o644, Verdict::Warn),
        ] {
            assert_eq!(file("f", Path::new("/f"), mode, owner, most).verdict, expect, "{mode:o} {owner}");
        }
    }

    #[test]
    fn ciphers_without_forward_secrecy_are_not_strong() {
        let named =
            |names: &[&str]| has_strong_ciphers_alone(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        assert!(named(&[]) && named(&["TLS_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]));
        assert!(!named(&["TLS_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_128_GCM_SHA256"]));
        assert!(!named(&["TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"]));
    }

    #[test]
    fn a_setting_is_as_asked_or_a_warning_says_how() {
        assert_eq!(judge("a", true, "x is", "1"), ok("a", "x is 1"));
        assert_eq!(judge("a", false, "x is", "1").found, "x is not 1");
    }
}

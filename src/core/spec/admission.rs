//! Reasons to refuse a pod that follow from its security settings alone: sysctls, AppArmor,
//! supplementalGroupsPolicy.
//!
//! Layer L1, pure, called on the sync thread at admission. Resources, taints and the like are not its business.

use std::collections::BTreeMap;

use crate::api::pod;
use crate::api::v1::Pod;

use super::security::apparmor_profile;
use crate::api::runtime::SecurityProfile;

/// Why a pod is not admitted: `status.reason` and `status.message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// CamelCase word.
    pub reason: &'static str,
    /// Sentence.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Net,
}

/// Sysctls that change nothing for other pods, with the kernel that gave each pod its own.
const SAFE: &[(&str, Option<(u32, u32)>)] = &[
    ("kernel.shm_rmid_forced", None),
    ("net.ipv4.ip_local_port_range", None),
    ("net.ipv4.tcp_syncookies", None),
    ("net.ipv4.ping_group_range", None),
    ("net.ipv4.ip_unprivileged_port_start", None),
    ("net.ipv4.ip_local_reserved_ports", Some((3, 16))),
    ("net.ipv4.tcp_keepalive_time", Some((4, 5))),
    ("net.ipv4.tcp_fin_timeout", Some((4, 6))),
    ("net.ipv4.tcp_keepalive_intvl", Some((4, 5))),
    ("net.ipv4.tcp_keepalive_probes", Some((4, 5))),
    ("net.ipv4.tcp_rmem", Some((4, 15))),
    ("net.ipv4.tcp_wmem", Some((4, 15))),
];

const SYSTEM_V: &[&str] = &[
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
    "kernel.shm",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.msg",
];

fn namespace_of(name: &str) -> Option<Namespace> {
    if SYSTEM_V.contains(&name) || name.starts_with("fs.mqueue.") {
        Some(Namespace::Ipc)
    } else if name.starts_with("net.") {
        Some(Namespace::Net)
    } else {
        None
    }
}

/// A sysctl's name with dots between its parts. Where a slash comes first, slashes separate and dots
/// belong to a part (`net/ipv4/conf/eno2.100/rp_filter`).
pub fn sysctl_name(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name.as_bytes()[at] == b'/' => name
            .chars()
            .map(|c| match c {
                '/' => '.',
                '.' => '/',
                c => c,
            })
            .collect(),
        _ => name.to_owned(),
    }
}

/// Sysctls that pods of this node may set.
#[derive(Clone, Debug, Default)]
pub struct SysctlAllowlist {
    exact: BTreeMap<String, Namespace>,
    prefixes: Vec<(String, Namespace)>,
}

impl SysctlAllowlist {
    /// The safe ones that this kernel has per pod, and `allowedUnsafeSysctls`: names, or patterns that
    /// end in `*`. The error says which pattern is wrong and why.
    pub fn new(allowed_unsafe: &[String], kernel_release: &str) -> Result<Self, String> {
        let kernel = kernel_version(kernel_release);
        let mut list = Self::default();
        for (name, since) in SAFE {
            if since.is_none_or(|since| kernel.is_some_and(|k| k >= since)) {
                list.exact.extend(namespace_of(name).map(|ns| ((*name).to_owned(), ns)));
            }
        }
        for pattern in allowed_unsafe {
            let name = sysctl_name(pattern);
            let (stem, is_prefix) = match name.split_once('*') {
                Some((stem, "")) => (stem, true),
                Some(_) => return Err(format!("allowedUnsafeSysctls: {pattern:?} may have '*' only at its end")),
                None => (name.as_str(), false),
            };
            let Some(namespace) = namespace_of(stem) else {
                return Err(format!(
                    "allowedUnsafeSysctls: {pattern:?} is not known to belong to a pod; use names or prefixes below \
                     net., fs.mqueue., kernel.msg, kernel.sem or kernel.shm"
                ));
            };
            if is_prefix {
                list.prefixes.push((stem.to_owned(), namespace));
            } else {
                list.exact.insert(stem.to_owned(), namespace);
            }
        }
        Ok(list)
    }

    /// Refuses a pod with a sysctl that is not on the list or would change the node.
    pub fn refusal(&self, pod: &Pod) -> Option<Refusal> {
        let spec = pod::spec(pod)?;
        let sysctls = spec.security_context.as_ref()?.sysctls.as_deref()?;
        let host_network = spec.host_network.unwrap_or(false);
        let host_ipc = spec.host_ipc.unwrap_or(false);
        let problem = sysctls.iter().find_map(|sysctl| {
            let name = sysctl_name(&sysctl.name);
            let by_prefix = || self.prefixes.iter().find(|(p, _)| name.starts_with(p.as_str())).map(|(_, ns)| *ns);
            match self.exact.get(&name).copied().or_else(by_prefix) {
                None => Some(format!("{name:?} not allowlisted")),
                Some(Namespace::Ipc) if host_ipc => Some(format!("{name:?} not allowed with host IPC enabled")),
                Some(Namespace::Net) if host_network => Some(format!("{name:?} not allowed with host Net enabled")),
                Some(_) => None,
            }
        })?;
        Some(Refusal { reason: "SysctlForbidden", message: format!("forbidden sysctl: {problem}") })
    }
}

/// Major and minor number of `6.1.0-18-amd64`.
fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Refuses a pod that wants an AppArmor profile on a node without AppArmor, or names none.
pub fn apparmor_refusal(pod: &Pod, enabled: bool) -> Option<Refusal> {
    let refuse = |why: String| Some(Refusal { reason: "AppArmor", message: format!("Cannot enforce AppArmor: {why}") });
    for (_, container) in pod::all_containers(pod) {
        match apparmor_profile(pod, &container) {
            Err(problem) => return refuse(problem.to_string()),
            Ok(None | Some(SecurityProfile::Unconfined)) => {}
            Ok(Some(_)) if !enabled => return refuse("AppArmor is not enabled on the host".to_owned()),
            Ok(Some(SecurityProfile::Localhost(name))) if name.trim().is_empty() => {
                return refuse("the profile has no name".to_owned());
            }
            Ok(Some(_)) => {}
        }
    }
    None
}

/// Refuses a pod with `supplementalGroupsPolicy: Strict` when the runtime cannot keep to it.
pub fn supplemental_groups_refusal(pod: &Pod, supported: bool) -> Option<Refusal> {
    let policy = pod::spec(pod)?.security_context.as_ref()?.supplemental_groups_policy.as_deref()?;
    (policy == "Strict" && !supported).then(|| Refusal {
        reason: "SupplementalGroupsPolicyNotSupported",
        message: "SupplementalGroupsPolicy=Strict is not supported in this node".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(metadata: Value, spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod")
    }

    fn with_sysctl(name: &str, spec: Value) -> Pod {
        let mut spec = spec;
        spec["containers"] = json!([]);
        spec["securityContext"] = json!({"sysctls": [{"name": name, "value": "1"}]});
        pod(json!({}), spec)
    }

    #[test]
    fn sysctls() {
        let allowed = ["net.core.somaxconn".to_owned(), "kernel.msg*".to_owned(), "net/ipv4/conf/eno2.1/*".to_owned()];
        let list = SysctlAllowlist::new(&allowed, "6.1.0-18-amd64").expect("a list");
        for (name, spec, expect) in [
            ("kernel.shm_rmid_forced", json!({}), None),
            ("kernel/shm_rmid_forced", json!({}), None),
            ("net.ipv4.tcp_rmem", json!({}), None),
            ("net.core.somaxconn", json!({}), None),
            ("kernel.msgmax", json!({}), None),
            ("net.ipv4.conf.eno2/1.rp_filter", json!({}), None),
            ("net.ipv4.ip_forward", json!({}), Some("forbidden sysctl: \"net.ipv4.ip_forward\" not allowlisted")),
            ("vm.swappiness", json!({}), Some("forbidden sysctl: \"vm.swappiness\" not allowlisted")),
            (
                "kernel.shm_rmid_forced",
                json!({"hostIPC": true}),
                Some("forbidden sysctl: \"kernel.shm_rmid_forced\" not allowed with host IPC enabled"),
            ),
            (
                "net.core.somaxconn",
                json!({"hostNetwork": true}),
                Some("forbidden sysctl: \"net.core.somaxconn\" not allowed with host Net enabled"),
            ),
            ("net.core.somaxconn", json!({"hostIPC": true}), None),
        ] {
            let refusal = list.refusal(&with_sysctl(name, spec.clone()));
            assert_eq!(refusal.as_ref().map(|r| r.message.as_str()), expect, "{name} {spec}");
            assert!(refusal.is_none_or(|r| r.reason == "SysctlForbidden"));
        }
        assert_eq!(list.refusal(&Pod::default()), None);
    }

    #[test]
    fn old_kernels_have_fewer_safe_sysctls() {
        for (release, safe) in [("4.14.1", false), ("4.15", true), ("5.4.0", true), ("garbage", false)] {
            let list = SysctlAllowlist::new(&[], release).expect("a list");
            assert_eq!(list.refusal(&with_sysctl("net.ipv4.tcp_rmem", json!({}))).is_none(), safe, "{release}");
            assert_eq!(list.refusal(&with_sysctl("net.ipv4.tcp_syncookies", json!({}))), None, "{release}");
        }
    }

    #[test]
    fn patterns_that_reach_beyond_a_pod_are_wrong() {
        for (pattern, good) in [
            ("net.*", true),
            ("kernel.shm*", true),
            ("fs.mqueue.*", true),
            ("kernel.*", false),
            ("vm.swappiness", false),
            ("net.*.x", false),
            ("*", false),
        ] {
            let list = SysctlAllowlist::new(&[pattern.to_owned()], "6.1");
            assert_eq!(list.is_ok(), good, "{pattern}");
        }
    }

    #[test]
    fn apparmor() {
        let by_field = |profile: Value| {
            pod(json!({}), json!({"containers": [{"name": "c", "securityContext": {"appArmorProfile": profile}}]}))
        };
        let by_annotation = |value: &str| {
            let key = "container.apparmor.security.beta.kubernetes.io/c";
            pod(json!({"annotations": {key: value}}), json!({"containers": [{"name": "c"}]}))
        };
        for (p, with, without) in [
            (pod(json!({}), json!({"containers": [{"name": "c"}]})), true, true),
            (by_field(json!({"type": "Unconfined"})), true, true),
            (by_field(json!({"type": "RuntimeDefault"})), true, false),
            (by_field(json!({"type": "Localhost", "localhostProfile": "x"})), true, false),
            (by_field(json!({"type": "Localhost"})), false, false),
            (by_annotation("unconfined"), true, true),
            (by_annotation("localhost/x"), true, false),
            (by_annotation("localhost/ "), false, false),
        ] {
            let admitted = (apparmor_refusal(&p, true).is_none(), apparmor_refusal(&p, false).is_none());
            assert_eq!(admitted, (with, without), "{p:?}");
        }
    }

    #[test]
    fn strict_groups_need_the_runtime() {
        for (policy, supported, admitted) in [("Strict", true, true), ("Strict", false, false), ("Merge", false, true)]
        {
            let p = pod(json!({}), json!({"containers": [], "securityContext": {"supplementalGroupsPolicy": policy}}));
            assert_eq!(supplemental_groups_refusal(&p, supported).is_none(), admitted, "{policy} {supported}");
        }
    }
}

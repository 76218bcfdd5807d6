//! Host name, domain and /etc/hosts of a pod.
//!
//! Layer L1, pure. It writes no file; the text of /etc/hosts comes out as bytes.

use crate::api::pod;
use crate::api::v1::{HostAlias, Pod};

use super::names::{LABEL_MAX, dns_label_problem, dns_subdomain_problem};
use super::{NodeFacts, SpecError};

/// Longest name that the kernel takes.
const KERNEL_NAME_MAX: usize = 64;
const HEADER: &str = "# Kubernetes-managed hosts file.\n";
const HEADER_HOST_NETWORK: &str = "# Kubernetes-managed hosts file (host network).\n";
const LOCAL_NAMES: &str = "127.0.0.1\tlocalhost\n\
                           ::1\tlocalhost ip6-localhost ip6-loopback\n\
                           fe00::0\tip6-localnet\n\
                           fe00::0\tip6-mcastprefix\n\
                           fe00::1\tip6-allnodes\n\
                           fe00::2\tip6-allrouters\n";

/// Short host name and domain of the pod; the domain is empty without `subdomain`.
pub fn pod_hostname(pod: &Pod, cluster_domain: &str) -> Result<(String, String), SpecError> {
    let spec = pod::spec(pod);
    if let Some(name) = spec.and_then(|s| s.hostname_override.as_deref()) {
        check("spec.hostnameOverride", name, "subdomain", dns_subdomain_problem(name))?;
        return Ok((cut(name), String::new()));
    }
    let name = match spec.and_then(|s| s.hostname.as_deref()).filter(|n| !n.is_empty()) {
        Some(name) => {
            check("spec.hostname", name, "label", dns_label_problem(name))?;
            name
        }
        None => pod::name(pod),
    };
    let domain = match spec.and_then(|s| s.subdomain.as_deref()).filter(|n| !n.is_empty()) {
        Some(subdomain) => {
            check("spec.subdomain", subdomain, "label", dns_label_problem(subdomain))?;
            format!("{subdomain}.{}.svc.{cluster_domain}", pod::namespace(pod))
        }
        None => String::new(),
    };
    Ok((cut(name), domain))
}

/// The name that the kernel of the pod tells: short, or full with `setHostnameAsFQDN`.
pub fn kernel_hostname(pod: &Pod, hostname: String, domain: &str) -> Result<String, SpecError> {
    let as_fqdn = pod::spec(pod).and_then(|s| s.set_hostname_as_fqdn).unwrap_or(false);
    if !as_fqdn || domain.is_empty() {
        return Ok(hostname);
    }
    let fqdn = format!("{hostname}.{domain}");
    match fqdn.len() {
        length if length > KERNEL_NAME_MAX => Err(SpecError::FqdnTooLong { fqdn, length }),
        _ => Ok(fqdn),
    }
}

fn check(field: &'static str, value: &str, kind: &'static str, problem: Option<String>) -> Result<(), SpecError> {
    match problem {
        Some(why) => Err(SpecError::DnsName { field, value: value.to_owned(), kind, why }),
        None => Ok(()),
    }
}

/// A pod's name may be longer than a host name; a cut one must not end in a separator.
fn cut(name: &str) -> String {
    if name.len() <= LABEL_MAX {
        return name.to_owned();
    }
    let end = (0..=LABEL_MAX).rev().find(|i| name.is_char_boundary(*i)).unwrap_or(0);
    name[..end].trim_end_matches(['-', '.']).to_owned()
}

/// Content of the pod's /etc/hosts. With host networking it is the node's own, given as `node_hosts`,
/// and the pod's aliases.
pub fn etc_hosts(pod: &Pod, facts: &NodeFacts, pod_ips: &[String], node_hosts: &[u8]) -> Result<Vec<u8>, SpecError> {
    let aliases = pod::spec(pod).and_then(|s| s.host_aliases.as_deref()).unwrap_or_default();
    if pod::is_host_network(pod) {
        return Ok([HEADER_HOST_NETWORK.as_bytes(), node_hosts, alias_lines(aliases).as_bytes()].concat());
    }
    let (hostname, domain) = pod_hostname(pod, &facts.cluster_domain)?;
    let mut text = format!("{HEADER}{LOCAL_NAMES}");
    for ip in pod_ips {
        if domain.is_empty() {
            text.push_str(&format!("{ip}\t{hostname}\n"));
        } else {
            text.push_str(&format!("{ip}\t{hostname}.{domain}\t{hostname}\n"));
        }
    }
    text.push_str(&alias_lines(aliases));
    Ok(text.into_bytes())
}

fn alias_lines(aliases: &[HostAlias]) -> String {
    if aliases.is_empty() {
        return String::new();
    }
    let mut text = "\n# Entries added by HostAliases.\n".to_owned();
    for alias in aliases {
        text.push_str(&format!("{}\t{}\n", alias.ip, alias.hostnames.as_deref().unwrap_or_default().join("\t")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use serde_json::{Value, json};

    fn pod(name: &str, spec: Value) -> Pod {
        let mut spec = spec;
        spec["containers"] = json!([]);
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec})).expect("a pod")
    }

    #[test]
    fn names() {
        let long = "a".repeat(62) + "-bcd";
        let cut = "a".repeat(62);
        let sixty_three = "h".repeat(63);
        for (name, spec, expect) in [
            ("p", json!({}), Some(("p", "", "p"))),
            ("p.q", json!({}), Some(("p.q", "", "p.q"))),
            (long.as_str(), json!({}), Some((cut.as_str(), "", cut.as_str()))),
            ("p", json!({"hostname": "web-0"}), Some(("web-0", "", "web-0"))),
            ("p", json!({"hostname": ""}), Some(("p", "", "p"))),
            ("p", json!({"hostname": sixty_three}), Some((sixty_three.as_str(), "", sixty_three.as_str()))),
            ("p", json!({"hostname": "Web"}), None),
            ("p", json!({"hostname": "a.b"}), None),
            ("p", json!({"hostname": "h".repeat(64)}), None),
            ("p", json!({"subdomain": "db"}), Some(("p", "db.ns.svc.cluster.local", "p"))),
            ("p", json!({"subdomain": "d_b"}), None),
            (
                "p",
                json!({"subdomain": "db", "setHostnameAsFQDN": true}),
                Some(("p", "db.ns.svc.cluster.local", "p.db.ns.svc.cluster.local")),
            ),
            ("p", json!({"setHostnameAsFQDN": true}), Some(("p", "", "p"))),
            // 40 + 1 + 23 = 64 characters fit, one more does not.
            (
                "p",
                json!({"hostname": "x".repeat(40), "subdomain": "db", "setHostnameAsFQDN": true}),
                Some((
                    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
                    "db.ns.svc.cluster.local",
                    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.db.ns.svc.cluster.local",
                )),
            ),
            ("p", json!({"hostname": "x".repeat(41), "subdomain": "db", "setHostnameAsFQDN": true}), None),
            (
                "p",
                json!({"hostnameOverride": "edge.example.com", "subdomain": "db"}),
                Some(("edge.example.com", "", "edge.example.com")),
            ),
            ("p", json!({"hostnameOverride": "edge_1"}), None),
        ] {
            let p = pod(name, spec.clone());
            let got = pod_hostname(&p, "cluster.local")
                .and_then(|(host, domain)| Ok((host.clone(), domain.clone(), kernel_hostname(&p, host, &domain)?)));
            let got = got.as_ref().ok().map(|(h, d, k)| (h.as_str(), d.as_str(), k.as_str()));
            assert_eq!(got, expect, "{name} {spec}");
        }
    }

    fn check(spec: Value, ips: &[&str], expect: Expect) {
        let facts = NodeFacts { cluster_domain: "cluster.local".into(), ..NodeFacts::default() };
        let ips: Vec<String> = ips.iter().map(|ip| (*ip).to_owned()).collect();
        let bytes = etc_hosts(&pod("web", spec), &facts, &ips, b"127.0.0.1 localhost \xff\n").expect("a hosts file");
        expect.assert_eq(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn hosts_file_of_a_pod() {
        check(
            json!({}),
            &["10.0.0.9", "fd00::9"],
            expect![[r#"
                # Kubernetes-managed hosts file.
                127.0.0.1	localhost
                ::1	localhost ip6-localhost ip6-loopback
                fe00::0	ip6-localnet
                fe00::0	ip6-mcastprefix
                fe00::1	ip6-allnodes
                fe00::2	ip6-allrouters
                10.0.0.9	web
                fd00::9	web
            "#]],
        );
    }

    #[test]
    fn hosts_file_with_domain_and_aliases() {
        check(
            json!({"subdomain": "db", "hostAliases": [{"ip": "10.1.2.3", "hostnames": ["db.local", "db"]}, {"ip": "::9"}]}),
            &["10.0.0.9"],
            expect![[r#"
                # Kubernetes-managed hosts file.
                127.0.0.1	localhost
                ::1	localhost ip6-localhost ip6-loopback
                fe00::0	ip6-localnet
                fe00::0	ip6-mcastprefix
                fe00::1	ip6-allnodes
                fe00::2	ip6-allrouters
                10.0.0.9	web.db.ns.svc.cluster.local	web

                # Entries added by HostAliases.
                10.1.2.3	db.local	db
                ::9	
            "#]],
        );
    }

    #[test]
    fn hosts_file_with_host_networking_is_that_of_the_node() {
        check(
            json!({"hostNetwork": true, "hostAliases": [{"ip": "10.1.2.3", "hostnames": ["db"]}]}),
            &["192.0.2.2"],
            expect![[r#"
                # Kubernetes-managed hosts file (host network).
                127.0.0.1 localhost �

                # Entries added by HostAliases.
                10.1.2.3	db
            "#]],
        );
    }
}

//! Name resolution of a pod: dnsPolicy, dnsConfig and the limits of resolv.conf.
//!
//! Layer L1, pure. It reads no resolv.conf itself and cuts what is too long instead of refusing the
//! pod, with a warning that says what is left.

use crate::api::pod;
use crate::api::runtime::Dns;
use crate::api::v1::{Pod, PodDNSConfigOption};

use super::names::SUBDOMAIN_MAX;
use super::{NodeFacts, SpecError, SpecWarning};

/// Most name servers in a pod.
pub const MAX_NAMESERVERS: usize = 3;
/// Most search domains in a pod.
pub const MAX_SEARCH_PATHS: usize = 32;
/// Longest search list in a pod, in characters with single spaces.
pub const MAX_SEARCH_CHARS: usize = 2048;

const CLUSTER_OPTIONS: &str = "ndots:5";

enum Kind {
    Cluster,
    Host,
    None,
}

/// Name resolution of the pod, and what had to be left out. `resolv_conf` is the content of the node's
/// file, `None` when the configuration names none.
pub fn pod_dns(pod: &Pod, facts: &NodeFacts, resolv_conf: Option<&str>) -> Result<(Dns, Vec<SpecWarning>), SpecError> {
    let mut warnings = Vec::new();
    let spec = pod::spec(pod);
    let kind = match spec.and_then(|s| s.dns_policy.as_deref()) {
        Some("None") => Kind::None,
        Some("Default") => Kind::Host,
        Some("ClusterFirst") if pod::is_host_network(pod) => Kind::Host,
        // An absent or unknown policy counts as ClusterFirst.
        _ if facts.cluster_dns.is_empty() => {
            warnings.push(SpecWarning {
                reason: "MissingClusterDNS",
                // The form that people and tools know from the kubelet.
                message: format!(
                    "pod: \"{}_{}({})\". kubelet does not have ClusterDNS IP configured and cannot create Pod using \
                     \"ClusterFirst\" policy. Falling back to \"Default\" policy.",
                    pod::name(pod),
                    pod::namespace(pod),
                    pod::pod_uid(pod),
                ),
            });
            Kind::Host
        }
        _ => Kind::Cluster,
    };
    let mut dns = match kind {
        Kind::None => Dns::default(),
        Kind::Host => match resolv_conf {
            Some(text) => parse_resolv_conf(text)?,
            None => own_resolver(&facts.node_ips),
        },
        Kind::Cluster => {
            let host = resolv_conf.map(parse_resolv_conf).transpose()?.unwrap_or_default();
            Dns {
                servers: facts.cluster_dns.clone(),
                searches: cluster_searches(pod::namespace(pod), &facts.cluster_domain, host.searches),
                options: vec![CLUSTER_OPTIONS.to_owned()],
            }
        }
    };
    if let Some(config) = spec.and_then(|s| s.dns_config.as_ref()) {
        extend_unique(&mut dns.servers, config.nameservers.iter().flatten());
        extend_unique(&mut dns.searches, config.searches.iter().flatten());
        for option in config.options.iter().flatten() {
            set_option(&mut dns.options, &option_text(option));
        }
    }
    cut_servers(&mut dns.servers, &mut warnings);
    cut_searches(&mut dns.searches, &mut warnings);
    Ok((dns, warnings))
}

/// With no resolv.conf at all a resolver asks the node it runs on; say so instead of leaving it to the
/// runtime, which would take the node's file.
fn own_resolver(node_ips: &[String]) -> Dns {
    let mut servers: Vec<String> =
        node_ips.iter().map(|ip| if ip.contains(':') { "::1" } else { "127.0.0.1" }.to_owned()).collect();
    if servers.is_empty() {
        servers.push("127.0.0.1".to_owned());
    }
    Dns { servers, searches: vec![".".to_owned()], options: Vec::new() }
}

fn cluster_searches(namespace: &str, domain: &str, host: Vec<String>) -> Vec<String> {
    if domain.is_empty() {
        return host;
    }
    let mut searches = vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.to_owned()];
    extend_unique(&mut searches, &host);
    searches
}

fn extend_unique<'a>(list: &mut Vec<String>, more: impl IntoIterator<Item = &'a String>) {
    let mut seen = std::collections::BTreeSet::new();
    list.retain(|entry| seen.insert(entry.clone()));
    list.extend(more.into_iter().filter(|entry| seen.insert((*entry).clone())).cloned());
}

fn option_text(option: &PodDNSConfigOption) -> String {
    let name = option.name.as_deref().unwrap_or_default();
    match option.value.as_deref() {
        None | Some("") => name.to_owned(),
        Some(value) => format!("{name}:{value}"),
    }
}

fn option_name(option: &str) -> &str {
    option.split(':').next().unwrap_or(option)
}

/// An option keeps its first place and takes its last value.
fn set_option(options: &mut Vec<String>, option: &str) {
    match options.iter_mut().find(|o| option_name(o) == option_name(option)) {
        Some(earlier) => *earlier = option.to_owned(),
        None => options.push(option.to_owned()),
    }
}

/// Reads a resolv.conf: name servers add up, the last search line counts, options add up by name.
pub fn parse_resolv_conf(text: &str) -> Result<Dns, SpecError> {
    let mut dns = Dns::default();
    for (index, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => match words.next() {
                Some(server) => dns.servers.push(server.to_owned()),
                None => return Err(SpecError::ResolvConf { line: index + 1 }),
            },
            // A domain with and without its final dot is the same one.
            Some("search") => {
                let domains = words.filter(|w| *w != ".");
                dns.searches = domains.map(|w| w.strip_suffix('.').unwrap_or(w).to_owned()).collect();
            }
            Some("options") => words.for_each(|w| set_option(&mut dns.options, w)),
            _ => {}
        }
    }
    Ok(dns)
}

/// In the form that people and tools know from the kubelet.
fn warning(message: String) -> SpecWarning {
    SpecWarning { reason: "DNSConfigForming", message }
}

fn cut_servers(servers: &mut Vec<String>, warnings: &mut Vec<SpecWarning>) {
    if servers.len() > MAX_NAMESERVERS {
        servers.truncate(MAX_NAMESERVERS);
        warnings.push(warning(format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
            servers.join(" ")
        )));
    }
}

fn cut_searches(searches: &mut Vec<String>, warnings: &mut Vec<SpecWarning>) {
    let before = searches.len();
    searches.truncate(MAX_SEARCH_PATHS);
    // Some resolvers abort on a domain that is longer than a name may be.
    searches.retain(|domain| domain.len() <= SUBDOMAIN_MAX);
    let mut length = 0;
    let fitting = searches.iter().take_while(|domain| {
        length += domain.len() + usize::from(length > 0);
        length <= MAX_SEARCH_CHARS
    });
    let fitting = fitting.count();
    searches.truncate(fitting);
    if searches.len() < before {
        warnings.push(warning(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
            searches.join(" ")
        )));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const HOST: &str = "# node\nnameserver 192.0.2.53\nnameserver 192.0.2.54\nsearch lost.example\n\
                        search corp.example. svc.cluster.local .\noptions timeout:1 rotate\n\toptions timeout:3\n;x\n";

    fn facts() -> NodeFacts {
        NodeFacts {
            cluster_dns: vec!["10.96.0.10".into()],
            cluster_domain: "cluster.local".into(),
            node_ips: vec!["192.0.2.2".into(), "fd00::2".into()],
            ..NodeFacts::default()
        }
    }

    fn run(spec: Value, facts: &NodeFacts, host: Option<&str>) -> (Dns, Vec<&'static str>) {
        let mut spec = spec;
        spec["containers"] = json!([]);
        let pod: Pod = serde_json::from_value(json!({"metadata": {"namespace": "ns"}, "spec": spec})).expect("a pod");
        let (dns, warnings) = pod_dns(&pod, facts, host).expect("name resolution");
        (dns, warnings.iter().map(|w| w.reason).collect())
    }

    /// `expect`: servers | searches | options, then warnings.
    fn check(spec: Value, facts: &NodeFacts, host: Option<&str>, expect: (&str, &[&str])) {
        let (dns, warnings) = run(spec.clone(), facts, host);
        let text = format!("{} | {} | {}", dns.servers.join(" "), dns.searches.join(" "), dns.options.join(" "));
        assert_eq!((text.as_str(), warnings.as_slice()), expect, "{spec}");
    }

    #[test]
    fn policies() {
        let cluster = "10.96.0.10 | ns.svc.cluster.local svc.cluster.local cluster.local corp.example | ndots:5";
        let host = "192.0.2.53 192.0.2.54 | corp.example svc.cluster.local | timeout:3 rotate";
        check(json!({"dnsPolicy": "ClusterFirst"}), &facts(), Some(HOST), (cluster, &[]));
        check(json!({}), &facts(), Some(HOST), (cluster, &[]));
        check(json!({"dnsPolicy": "ClusterFirst", "hostNetwork": true}), &facts(), Some(HOST), (host, &[]));
        check(
            json!({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true}),
            &facts(),
            Some(HOST),
            (cluster, &[]),
        );
        check(json!({"dnsPolicy": "Default"}), &facts(), Some(HOST), (host, &[]));
        check(json!({"dnsPolicy": "Default"}), &facts(), None, ("127.0.0.1 ::1 | . | ", &[]));
        check(json!({"dnsPolicy": "Default"}), &NodeFacts::default(), None, ("127.0.0.1 | . | ", &[]));
        check(json!({"dnsPolicy": "None"}), &facts(), Some(HOST), (" |  | ", &[]));
        check(json!({"dnsPolicy": "ClusterFirst"}), &NodeFacts::default(), Some(HOST), (host, &["MissingClusterDNS"]));
        let no_domain = NodeFacts { cluster_domain: String::new(), ..facts() };
        check(json!({}), &no_domain, Some(HOST), ("10.96.0.10 | corp.example svc.cluster.local | ndots:5", &[]));
    }

    #[test]
    fn dns_config_is_merged() {
        let config = json!({
            "nameservers": ["10.96.0.10", "1.1.1.1"], "searches": ["cluster.local", "more.example"],
            "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}, {"name": "use-vc", "value": ""}],
        });
        check(
            json!({"dnsPolicy": "ClusterFirst", "dnsConfig": config}),
            &facts(),
            None,
            (
                "10.96.0.10 1.1.1.1 | ns.svc.cluster.local svc.cluster.local cluster.local more.example | ndots:2 edns0 use-vc",
                &[],
            ),
        );
        check(
            json!({"dnsPolicy": "None", "dnsConfig": config}),
            &facts(),
            None,
            ("10.96.0.10 1.1.1.1 | cluster.local more.example | ndots:2 edns0 use-vc", &[]),
        );
    }

    #[test]
    fn what_is_too_long_is_cut_and_told() {
        let servers =
            json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"]}});
        check(servers, &facts(), None, ("1.1.1.1 2.2.2.2 3.3.3.3 |  | ", &["DNSConfigForming"]));
        let of = |searches: Vec<String>| json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1"], "searches": searches}});
        let (dns, warnings) = run(of((0..33).map(|i| format!("d{i}.example")).collect()), &facts(), None);
        assert_eq!((dns.searches.len(), warnings), (32, vec!["DNSConfigForming"]));
        let (dns, warnings) = run(of(vec!["a".repeat(254), "b.example".into()]), &facts(), None);
        assert_eq!((dns.searches, warnings), (vec!["b.example".to_owned()], vec!["DNSConfigForming"]));
        // 16 domains of 127 characters and 15 spaces make 2047: one more does not fit.
        let long: Vec<String> = (0..20).map(|i| format!("{i:02}{}", "x".repeat(125))).collect();
        let (dns, warnings) = run(of(long.clone()), &facts(), None);
        assert_eq!((dns.searches.join(" ").len(), warnings), (2047, vec!["DNSConfigForming"]));
        let (dns, warnings) = run(of(long[..16].to_vec()), &facts(), None);
        assert_eq!((dns.searches.len(), warnings.len()), (16, 0));
    }

    #[test]
    fn a_name_server_without_address_is_named_by_its_line() {
        assert_eq!(parse_resolv_conf("search a\nnameserver\n"), Err(SpecError::ResolvConf { line: 2 }));
        assert_eq!(parse_resolv_conf(""), Ok(Dns::default()));
    }
}

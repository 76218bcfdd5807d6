//! Which addresses the node tells the cluster.
//!
//! Layer L1, pure. The order is upstream's: `--node-ip`, a host name that is an address, what the node's
//! name resolves to, the address of the default route. A machine without a default route (a lone one at
//! the edge) takes its first usable address rather than none.

use std::net::IpAddr;

use super::NodeSettings;
use crate::api::v1::NodeAddress;

/// What is known of the host's network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNetwork {
    /// Addresses of all interfaces.
    pub own: Vec<IpAddr>,
    /// Source address of packets that leave by the default route: at most one of each family.
    pub outgoing: Vec<IpAddr>,
    /// What the node's name resolves to.
    pub named: Vec<IpAddr>,
}

/// Why an address is not the node's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// `--node-ip` names an address that no other machine can reach.
    #[error("--node-ip {ip} is {kind}: give an address that other machines reach")]
    NotReachable {
        /// The address.
        ip: IpAddr,
        /// Loopback, multicast, …
        kind: &'static str,
    },
    /// `--node-ip` names an address that this machine does not have.
    #[error("--node-ip {ip} is on none of this machine's interfaces")]
    NotHere {
        /// The address.
        ip: IpAddr,
    },
    /// There is none at all.
    #[error("this machine has no address that others could reach: set --node-ip")]
    None,
}

/// Whether `ip` can be this node's address.
///
/// # Errors
/// Why not.
pub fn usable(ip: IpAddr, network: &HostNetwork) -> Result<(), AddressError> {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let kind = if ip.is_loopback() {
        "a loopback address"
    } else if ip.is_multicast() {
        "a multicast address"
    } else if link_local {
        "a link-local address"
    } else if ip.is_unspecified() {
        "no address"
    } else if network.own.contains(&ip) {
        return Ok(());
    } else {
        return Err(AddressError::NotHere { ip });
    };
    Err(AddressError::NotReachable { ip, kind })
}

/// The node's one or two addresses, the preferred one first.
///
/// # Errors
/// `--node-ip` is unusable, or nothing is known.
pub fn choose(node_ips: &[IpAddr], hostname: &str, network: &HostNetwork) -> Result<Vec<IpAddr>, AddressError> {
    let given: Vec<IpAddr> = node_ips.iter().copied().filter(|ip| !ip.is_unspecified()).collect();
    for ip in &given {
        usable(*ip, network)?;
    }
    // Two only where both are said; with one that only tells the preferred family, the other is looked for.
    if given.len() == 2 || (given.len() == 1 && !node_ips[0].is_unspecified()) {
        return Ok(given);
    }
    if let Ok(ip) = hostname.parse() {
        return Ok(vec![ip]);
    }
    let six_first = node_ips.first().is_some_and(IpAddr::is_ipv6);
    let preferred = |found: &mut dyn Iterator<Item = IpAddr>| -> Option<IpAddr> {
        let found: Vec<IpAddr> = found.filter(|ip| usable(*ip, network).is_ok()).collect();
        found.iter().find(|ip| ip.is_ipv6() == six_first).or(found.first()).copied()
    };
    preferred(&mut network.named.iter().copied())
        .or_else(|| preferred(&mut network.outgoing.iter().copied()))
        .or_else(|| preferred(&mut network.own.iter().copied()))
        .map(|ip| vec![ip])
        .ok_or(AddressError::None)
}

/// What `status.addresses` shall say; `present` is what it says now.
///
/// # Errors
/// As [`choose`]; the object then keeps what it has.
pub fn node_addresses(
    settings: &NodeSettings,
    network: &HostNetwork,
    present: &[NodeAddress],
) -> Result<Vec<NodeAddress>, AddressError> {
    let host = NodeAddress { type_: "Hostname".to_owned(), address: settings.hostname.clone() };
    if settings.external_cloud {
        // The cloud's word counts. Until it has spoken there is what the administrator said, or the bare name.
        if !present.is_empty() {
            return Ok(present.to_vec());
        }
        if settings.node_ips.is_empty() {
            return Ok(vec![host]);
        }
    }
    let chosen = choose(&settings.node_ips, &settings.hostname, network)?;
    let internal = |ip: &IpAddr| NodeAddress { type_: "InternalIP".to_owned(), address: ip.to_string() };
    Ok(chosen.iter().map(internal).chain([host]).collect())
}

/// The annotation by which an external cloud provider learns of `--node-ip`; `None` if it shall not be there.
pub fn provided_ip(settings: &NodeSettings) -> Option<String> {
    let first = settings.node_ips.first().filter(|ip| settings.external_cloud && !ip.is_unspecified())?;
    let second = settings.node_ips.get(1).filter(|ip| !ip.is_unspecified());
    Some(second.map_or_else(|| first.to_string(), |second| format!("{first},{second}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(text: &str) -> Vec<IpAddr> {
        text.split_whitespace().map(|ip| ip.parse().unwrap()).collect()
    }

    fn network(own: &str, outgoing: &str, named: &str) -> HostNetwork {
        HostNetwork { own: ips(own), outgoing: ips(outgoing), named: ips(named) }
    }

    fn check(node_ips: &str, hostname: &str, network: &HostNetwork, expect: Result<&str, &str>) {
        let got = choose(&ips(node_ips), hostname, network);
        let got = got.map(|ips| ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
        let got = got.map_err(|error| error.to_string());
        assert_eq!(got.as_deref().map_err(String::as_str), expect, "--node-ip {node_ips} on {hostname}");
    }

    #[test]
    fn the_first_source_that_knows_a_usable_address_wins() {
        let both = network("127.0.0.1 ::1 10.0.0.5 10.9.9.9 fd00::5 fe80::1", "10.0.0.5 fd00::5", "");
        check("", "edge", &both, Ok("10.0.0.5"));
        check("0.0.0.0", "edge", &both, Ok("10.0.0.5"));
        check("::", "edge", &both, Ok("fd00::5"));
        check("10.9.9.9", "edge", &both, Ok("10.9.9.9"));
        check("10.9.9.9 fd00::5", "edge", &both, Ok("10.9.9.9 fd00::5"));
        check("fd00::5 10.0.0.5", "edge", &both, Ok("fd00::5 10.0.0.5"));
        check("", "10.9.9.9", &both, Ok("10.9.9.9"));
        let named = network("10.0.0.5 10.9.9.9 fd00::5", "10.0.0.5", "127.0.1.1 10.1.1.1 fd00::5 10.9.9.9");
        check("", "edge", &named, Ok("10.9.9.9"));
        check("::", "edge", &named, Ok("fd00::5"));
    }

    #[test]
    fn a_lone_machine_takes_what_it_has() {
        check("", "edge", &network("127.0.0.1 fe80::1 169.254.1.1 192.168.7.2", "", "127.0.1.1"), Ok("192.168.7.2"));
        let none = "this machine has no address that others could reach: set --node-ip";
        check("", "edge", &network("127.0.0.1 ::1", "", ""), Err(none));
    }

    #[test]
    fn a_given_address_must_be_this_machines() {
        let here = network("127.0.0.1 10.0.0.5", "10.0.0.5", "");
        check("10.0.0.6", "edge", &here, Err("--node-ip 10.0.0.6 is on none of this machine's interfaces"));
        for (ip, kind) in [("127.0.0.1", "loopback"), ("224.0.0.1", "multicast"), ("169.254.0.1", "link-local")] {
            let expect = format!("--node-ip {ip} is a {kind} address: give an address that other machines reach");
            check(ip, "edge", &here, Err(&expect));
        }
    }

    #[test]
    fn a_cloud_has_the_last_word() {
        let here = network("10.0.0.5", "10.0.0.5", "");
        let told = |settings: &NodeSettings, present: &[NodeAddress]| {
            let list = node_addresses(settings, &here, present).unwrap();
            list.iter().map(|a| format!("{} {}", a.type_, a.address)).collect::<Vec<_>>().join(", ")
        };
        let mut settings = NodeSettings { hostname: "edge".to_owned(), ..NodeSettings::default() };
        let cloud = [NodeAddress { type_: "ExternalIP".to_owned(), address: "192.0.2.9".to_owned() }];
        assert_eq!(told(&settings, &cloud), "InternalIP 10.0.0.5, Hostname edge");
        settings.external_cloud = true;
        assert_eq!(told(&settings, &cloud), "ExternalIP 192.0.2.9");
        assert_eq!(told(&settings, &[]), "Hostname edge");
        assert_eq!(provided_ip(&settings), None);
        settings.node_ips = ips("10.0.0.5");
        assert_eq!(told(&settings, &[]), "InternalIP 10.0.0.5, Hostname edge");
        assert_eq!(provided_ip(&settings).as_deref(), Some("10.0.0.5"));
        settings.node_ips = ips("10.0.0.5 fd00::5");
        assert_eq!(provided_ip(&settings).as_deref(), Some("10.0.0.5,fd00::5"));
        settings.node_ips = ips("0.0.0.0");
        assert_eq!(provided_ip(&settings), None);
        assert_eq!(told(&settings, &[]), "InternalIP 10.0.0.5, Hostname edge");
    }
}

//! The host's network addresses: what its interfaces have, what the default route leaves by, what a name means.
//!
//! Layer L1, on the caller's thread; owns nothing. A name is given up after a while. No packet is sent for anything else.

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use crate::util::order;
use crate::util::resolve::addresses;

/// Addresses of all interfaces; none where the kernel does not tell.
pub fn own_addresses() -> Vec<IpAddr> {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let address = |interface: nix::ifaddrs::InterfaceAddress| {
        let address = interface.address?;
        let four = address.as_sockaddr_in().map(|four| IpAddr::V4(four.ip()));
        four.or_else(|| address.as_sockaddr_in6().map(|six| IpAddr::V6(six.ip())))
    };
    let mut found: Vec<IpAddr> = interfaces.filter_map(address).collect();
    order::sort(&mut found);
    found.dedup();
    found
}

/// The source addresses of packets that leave by the default route, IPv4 first.
pub fn outgoing_addresses() -> Vec<IpAddr> {
    // Addresses for documentation: nobody has them, so only the default route leads there.
    let targets = [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")];
    targets.iter().filter_map(|(from, to)| outgoing_address(from, to)).collect()
}

/// The address that a packet to `to` would carry; connecting a datagram socket sends none.
fn outgoing_address(from: &str, to: &str) -> Option<IpAddr> {
    let socket = UdpSocket::bind(from).ok()?;
    socket.connect(to).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified() && !ip.is_loopback()).then_some(ip)
}

/// What `name` resolves to, if the resolver answers within `patience`.
pub fn resolve(name: &str, patience: Duration) -> Vec<IpAddr> {
    let found = addresses(name, 0, patience).unwrap_or_default();
    found.into_iter().map(|address| address.ip()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_its_loopback() {
        let own = own_addresses();
        assert!(own.contains(&IpAddr::from([127, 0, 0, 1])), "{own:?}");
        assert!(outgoing_addresses().iter().all(|ip| own.contains(ip)), "what leaves has an interface");
    }

    #[test]
    fn names_are_resolved_within_a_limit() {
        let localhost = resolve("localhost", Duration::from_secs(20));
        assert!(localhost.iter().all(IpAddr::is_loopback) && !localhost.is_empty(), "{localhost:?}");
        assert_eq!(resolve("", Duration::from_secs(20)).len(), 0);
    }
}

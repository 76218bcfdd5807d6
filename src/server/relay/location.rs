//! Where the runtime serves a session: the URL that it gave, read with no more trust than it needs.
//!
//! Pure. A session's bytes go to this machine alone: any other address is refused.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Longest URL that is taken.
const MAX_LENGTH: usize = 8 << 10;

/// Where a session is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Where to connect to.
    pub address: SocketAddr,
    /// Host and port as the URL has them.
    pub host: String,
    /// Path and query.
    pub target: String,
}

/// Reads the runtime's URL.
///
/// # Errors
/// It is none that a session can be joined at: a sentence that says why, and what would be right.
pub fn parse(url: &str) -> Result<Location, String> {
    let refuse = |why: &str| Err(format!("the container runtime serves the session at {:?}: {why}", short(url)));
    if url.len() > MAX_LENGTH || url.bytes().any(|byte| byte <= b' ' || byte == 0x7f || byte == b'#') {
        return refuse("that is no URL");
    }
    let Some(rest) = url.strip_prefix("http://").or_else(|| url.strip_prefix("//")) else {
        if url.starts_with("https://") {
            return refuse(
                "TLS is not spoken to the runtime, turn its streaming TLS off: sessions stay on this machine",
            );
        }
        return refuse("only http is spoken to the runtime");
    };
    let (host, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (name, port) = match host.rsplit_once(':') {
        // The last colon may be one of an address in brackets.
        Some((name, port)) if !port.contains(']') => (name, port.parse().ok()),
        _ => (host, Some(80)),
    };
    let Some(port) = port.filter(|port| *port > 0) else { return refuse("its port is no number") };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let ip = match bare {
        "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        bare => match bare.parse() {
            Ok(ip) => ip,
            Err(_) => return refuse("its host is no address"),
        },
    };
    // A server on all addresses is on this one too.
    let ip = match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    if !ip.to_canonical().is_loopback() {
        return refuse("that is not this machine's loopback, set its stream server's address to 127.0.0.1");
    }
    let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
    Ok(Location { address: SocketAddr::new(ip, port), host: host.to_owned(), target })
}

fn short(url: &str) -> String {
    url.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, expect: Result<(&str, &str, &str), &str>) {
        match (parse(url), expect) {
            (Ok(got), Ok((address, host, target))) => {
                assert_eq!(
                    (got.address.to_string().as_str(), got.host.as_str(), got.target.as_str()),
                    (address, host, target)
                );
            }
            (Err(got), Err(expect)) => assert!(got.contains(expect), "{url}: {got}"),
            (got, expect) => panic!("{url}: {got:?} is not {expect:?}"),
        }
    }

    #[test]
    fn sessions_are_joined_on_this_machine_alone() {
        check("http://127.0.0.1:4321/exec/a-b_c", Ok(("127.0.0.1:4321", "127.0.0.1:4321", "/exec/a-b_c")));
        check("http://127.1.2.3:1/attach/x?y=z", Ok(("127.1.2.3:1", "127.1.2.3:1", "/attach/x?y=z")));
        check("http://[::1]:10010/exec/x", Ok(("[::1]:10010", "[::1]:10010", "/exec/x")));
        check("http://localhost:5/", Ok(("127.0.0.1:5", "localhost:5", "/")));
        check("//127.0.0.1?q", Ok(("127.0.0.1:80", "127.0.0.1", "/?q")));
        check("http://0.0.0.0:9/x", Ok(("127.0.0.1:9", "0.0.0.0:9", "/x")));
        check("http://[::]:9", Ok(("[::1]:9", "[::]:9", "/")));
    }

    #[test]
    fn other_urls_are_refused_in_words() {
        check("https://127.0.0.1:4321/exec/x", Err("TLS is not spoken"));
        check("http://10.0.0.1:4321/exec/x", Err("loopback"));
        check("http://[::ffff:10.0.0.1]:4321/exec/x", Err("loopback"));
        check("http://runtime.example:1/x", Err("no address"));
        check("http://127.0.0.1:99999/x", Err("port"));
        check("http://127.0.0.1:0/x", Err("port"));
        check("unix:///run/x.sock", Err("only http"));
        check("", Err("only http"));
        check("http://127.0.0.1:1/a b", Err("no URL"));
        check("http://127.0.0.1:1/a\r\nHost: x", Err("no URL"));
        check(&format!("http://127.0.0.1:1/{}", "x".repeat(9000)), Err("no URL"));
        check("http://user@127.0.0.1:1/x", Err("no address"));
    }
}

//! Where an httpGet probe goes: the URL of the manifest, and those that servers redirect to. Pure.

use std::fmt;

use crate::probe::conn::authority;

/// An http or https URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::probe) struct Url {
    pub(super) tls: bool,
    /// Name or address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// As the `Host` header has it.
    pub(super) authority: String,
    /// Path and query, escaped.
    pub(super) target: String,
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.target)
    }
}

impl Url {
    /// The URL of a manifest's httpGet; `path` may have a query, and whatever else it has is sent as well as it can be.
    pub(in crate::probe) fn new(tls: bool, host: &str, port: u16, path: &str) -> Self {
        // Scheme and authority of a whole URL give way to those of the manifest's other fields.
        let path = match split_scheme(path) {
            Some((_, rest)) => &rest[rest.find(['/', '?', '#']).unwrap_or(rest.len())..],
            None => path,
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let authority = authority(&host, port);
        Self { tls, host, port, authority, target: target(path) }
    }

    /// Where a redirect leads; `Ok(None)` if it leads nowhere at all.
    ///
    /// # Errors
    /// A sentence about a place that cannot be gone to.
    pub(super) fn follow(&self, location: &str) -> Result<Option<Self>, String> {
        let location = location.trim();
        if location.is_empty() {
            return Ok(None);
        }
        let bad = || format!("failed to parse Location header {location:?}");
        if location.chars().any(char::is_control) {
            return Err(bad());
        }
        let (tls, rest) = match split_scheme(location) {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some((scheme, _)) => return Err(format!("unsupported protocol scheme {scheme:?}")),
            None => match location.strip_prefix("//") {
                Some(rest) => (self.tls, rest),
                None => return Ok(Some(Self { target: self.relative(location), ..self.clone() })),
            },
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let authority = authority.rsplit('@').next().unwrap_or_default();
        let usual = if tls { 443 } else { 80 };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                (host, if port.is_empty() { usual } else { port.parse().map_err(|_| bad())? })
            }
            Some(_) | None => (authority, usual),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(bad());
        }
        Ok(Some(Self { tls, host, port, authority: authority.to_owned(), target: target(path) }))
    }

    fn relative(&self, location: &str) -> String {
        let path = self.target.split('?').next().unwrap_or_default();
        if location.starts_with('#') {
            return self.target.clone();
        }
        if location.starts_with('?') {
            return target(&format!("{path}{location}"));
        }
        let (folder, _) = path.rsplit_once('/').unwrap_or_default();
        let joined = if location.starts_with('/') { location.to_owned() } else { format!("{folder}/{location}") };
        let (path, query) = joined.split_at(joined.find(['?', '#']).unwrap_or(joined.len()));
        target(&format!("{}{query}", without_dots(path)))
    }
}

/// `scheme` and what follows its `//`.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let mut chars = scheme.chars();
    let fits = chars.next().is_some_and(|c| c.is_ascii_alphabetic())
        && chars.all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    fits.then_some((scheme, rest))
}

/// A path with `.` and `..` walked.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let parts: Vec<&str> = path.split('/').collect();
    for (index, part) in parts.iter().enumerate() {
        let is_last = index + 1 == parts.len();
        match *part {
            "." | ".." => {
                if *part == ".." && kept.len() > 1 {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            part => kept.push(part),
        }
    }
    kept.join("/")
}

/// Path and query as a request has them.
fn target(path: &str) -> String {
    let is_hex = |at: usize| path.as_bytes().get(at).is_some_and(u8::is_ascii_hexdigit);
    let escapes_are_good = path.match_indices('%').all(|(at, _)| is_hex(at + 1) && is_hex(at + 2));
    let is_url = escapes_are_good && !path.chars().any(char::is_control);
    // What is no URL is a path, every character of it.
    let (path, query) = match path.split('#').next().and_then(|sent| sent.split_once('?')) {
        _ if !is_url => (path, None),
        Some((path, query)) => (path, Some(query)),
        None => (path.split('#').next().unwrap_or_default(), None),
    };
    let mut out = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        out.push('/');
    }
    escape(&mut out, path, if is_url { "-._~!$&'()*+,;=:@/%[]" } else { "-._~!$&'()*+,;=:@/" });
    if let Some(query) = query {
        out.push('?');
        escape(&mut out, query, "-._~!$&'()*+,;=:@/%[]?{}|^`<>\\");
    }
    out
}

fn escape(out: &mut String, text: &str, kept: &str) {
    for byte in text.bytes() {
        let c = char::from(byte);
        if c.is_ascii_alphanumeric() || kept.contains(c) {
            out.push(c);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifests_path_becomes_what_is_asked_for() {
        for (path, expect) in [
            ("", "http://h:80/"),
            ("/", "http://h:80/"),
            ("healthz", "http://h:80/healthz"),
            ("/a/b?x=1&y=2#part", "http://h:80/a/b?x=1&y=2"),
            ("/a b", "http://h:80/a%20b"),
            ("/ü", "http://h:80/%C3%BC"),
            ("/a%20b", "http://h:80/a%20b"),
            ("/100%?x", "http://h:80/100%25%3Fx"),
            ("?x=1 2", "http://h:80/?x=1%202"),
            ("http://elsewhere:9/p?q", "http://h:80/p?q"),
            ("/to?next=http://x/", "http://h:80/to?next=http://x/"),
            ("/a\r\nX: y", "http://h:80/a%0D%0AX:%20y"),
        ] {
            assert_eq!(Url::new(false, "h", 80, path).to_string(), expect, "{path:?}");
        }
        assert_eq!(Url::new(true, "fd00::1", 8443, "/x").to_string(), "https://[fd00::1]:8443/x");
    }

    #[test]
    fn a_redirect_leads_where_the_server_says() {
        let from = Url::new(false, "10.0.0.1", 8080, "/a/b?q");
        for (location, expect) in [
            ("", Ok(None)),
            ("/c", Ok(Some("http://10.0.0.1:8080/c"))),
            ("c", Ok(Some("http://10.0.0.1:8080/a/c"))),
            ("../c/./d?e", Ok(Some("http://10.0.0.1:8080/c/d?e"))),
            ("../../../..", Ok(Some("http://10.0.0.1:8080/"))),
            ("?x", Ok(Some("http://10.0.0.1:8080/a/b?x"))),
            ("https://10.0.0.1/s", Ok(Some("https://10.0.0.1/s"))),
            ("//other:1/s", Ok(Some("http://other:1/s"))),
            ("http://[fd00::1]", Ok(Some("http://[fd00::1]/"))),
            ("ftp://10.0.0.1/", Err("unsupported protocol scheme \"ftp\"")),
            ("http://10.0.0.1:x/", Err("failed to parse Location header \"http://10.0.0.1:x/\"")),
        ] {
            let got = from.follow(location).map(|url| url.map(|url| url.to_string()));
            let expect = expect.map(|url| url.map(str::to_owned)).map_err(str::to_owned);
            assert_eq!(got, expect, "{location:?}");
        }
        let secure = from.follow("https://10.0.0.1/s").ok().flatten().expect("a place");
        assert_eq!((secure.host.as_str(), secure.port, secure.tls), ("10.0.0.1", 443, true));
    }
}

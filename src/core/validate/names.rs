//! What names, keys, labels, paths and addresses may look like in the API. Pure rules over texts.

use std::net::IpAddr;

fn is_lower_or_digit(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// Whether a text of at most `max` bytes begins and ends as `edge` says and holds else what `inner` allows.
fn is_word(text: &str, max: usize, edge: fn(u8) -> bool, inner: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(&first), Some(&last)) if edge(first) && edge(last))
        && bytes.len() <= max
        && bytes.iter().all(|b| edge(*b) || inner(*b))
}

/// RFC 1123 label.
pub(super) fn dns_label(text: &str) -> Result<(), &'static str> {
    match is_word(text, 63, is_lower_or_digit, |b| b == b'-') {
        true => Ok(()),
        false => {
            Err("must be up to 63 lower-case letters, digits and '-', beginning and ending with a letter or digit")
        }
    }
}

fn is_subdomain(text: &str, inner: fn(u8) -> bool) -> bool {
    text.len() <= 253 && text.split('.').all(|part| is_word(part, 253, is_lower_or_digit, inner))
}

/// RFC 1123 subdomain: names of most objects.
pub(super) fn dns_subdomain(text: &str) -> Result<(), &'static str> {
    match is_subdomain(text, |b| b == b'-') {
        true => Ok(()),
        false => Err(
            "must be up to 253 lower-case letters, digits, '-' and '.', each part between dots beginning and ending with a letter or digit",
        ),
    }
}

/// A search domain: `.` or a subdomain with underscores, with or without the final dot.
pub(super) fn dns_search(text: &str) -> Result<(), &'static str> {
    let is_part = |part: &str| is_word(part, 253, |b| is_lower_or_digit(b) || b == b'_', |b| b == b'-');
    let name = text.strip_suffix('.').unwrap_or(text);
    match text == "." || name.len() <= 253 && name.split('.').all(is_part) {
        true => Ok(()),
        false => Err("must be a domain of lower-case letters, digits, '-', '_' and '.'"),
    }
}

fn is_label_word(text: &str) -> bool {
    is_word(text, 63, |b| b.is_ascii_alphanumeric(), |b| matches!(b, b'-' | b'_' | b'.'))
}

/// Key of a label, name of a resource, …: `[prefix/]name`.
pub(super) fn qualified_name(text: &str) -> Result<(), &'static str> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    match is_label_word(name) && prefix.is_none_or(|prefix| is_subdomain(prefix, |b| b == b'-')) {
        true => Ok(()),
        false => Err(
            "must be a name of up to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, with or without a domain and '/' before it",
        ),
    }
}

/// Key of an annotation: as of a label, in any case.
pub(super) fn annotation_key(text: &str) -> Result<(), &'static str> {
    qualified_name(&text.to_ascii_lowercase())
}

/// Value of a label.
pub(super) fn label_value(text: &str) -> Result<(), &'static str> {
    match text.is_empty() || is_label_word(text) {
        true => Ok(()),
        false => Err(
            "must be empty or up to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit",
        ),
    }
}

/// Name of a port.
pub(super) fn port_name(text: &str) -> Result<(), &'static str> {
    let fits = is_word(text, 15, is_lower_or_digit, |b| b == b'-')
        && text.bytes().any(|b| b.is_ascii_lowercase())
        && !text.contains("--");
    match fits {
        true => Ok(()),
        false => Err(
            "must be up to 15 lower-case letters, digits and single '-', with a letter among them and no '-' at either end",
        ),
    }
}

/// Name of an environment variable.
pub(super) fn env_name(text: &str) -> Result<(), &'static str> {
    match !text.is_empty() && text.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=') {
        true => Ok(()),
        false => Err("must be printable ASCII characters without '='"),
    }
}

/// Key in a ConfigMap or Secret.
pub(super) fn config_key(text: &str) -> Result<(), &'static str> {
    let fits = !text.is_empty()
        && text.len() <= 253
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && text != "."
        && !text.starts_with("..");
    match fits {
        true => Ok(()),
        false => Err("must be up to 253 letters, digits, '-', '_' and '.', and neither '.' nor begin with '..'"),
    }
}

/// Name of an HTTP header.
pub(super) fn header_name(text: &str) -> Result<(), &'static str> {
    match !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')) {
        true => Ok(()),
        false => Err("must be letters, digits, '-' and '_'"),
    }
}

/// Name of a sysctl, with dots or slashes.
pub(super) fn sysctl(text: &str) -> Result<(), &'static str> {
    let is_part = |part: &str| is_word(part, 253, is_lower_or_digit, |b| matches!(b, b'-' | b'_'));
    match text.len() <= 253 && text.split(['.', '/']).all(is_part) {
        true => Ok(()),
        false => Err("must be lower-case letters, digits, '-' and '_' in parts between '.' or '/', up to 253 in all"),
    }
}

/// Name of a capability.
pub(super) fn capability(text: &str) -> Result<(), &'static str> {
    match !text.is_empty() && text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        true => Ok(()),
        false => Err("must be ALL or the name of a capability, such as NET_ADMIN"),
    }
}

/// IPv4 or IPv6 address.
pub(super) fn ip(text: &str) -> Result<(), &'static str> {
    text.parse::<IpAddr>().map(|_| ()).map_err(|_| "must be an IPv4 or IPv6 address")
}

/// Any text at all.
pub(super) fn anything(_: &str) -> Result<(), &'static str> {
    Ok(())
}

/// A path without steps back.
pub(super) fn path_without_steps_back(text: &str) -> Result<(), &'static str> {
    match text.split('/').any(|part| part == "..") {
        true => Err("must not contain '..'"),
        false => Ok(()),
    }
}

/// A path that stays below where it starts.
pub(super) fn path_below(text: &str) -> Result<(), &'static str> {
    match text.starts_with('/') {
        true => Err("must be a relative path"),
        false => path_without_steps_back(text),
    }
}

/// A path below a volume that does not touch what the volume keeps for itself (`..data`).
pub(super) fn path_of_item(text: &str) -> Result<(), &'static str> {
    path_below(text)?;
    match text.starts_with("..") {
        true => Err("must not begin with '..'"),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::validate::report::Rule;

    fn check(rule: Rule, good: &[&str], bad: &[&str]) {
        for text in good {
            assert_eq!(rule(text), Ok(()), "{text:?}");
        }
        for text in bad {
            assert!(rule(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn rules_take_what_the_api_takes() {
        let long = "a".repeat(64);
        let very_long = ["a"; 127].join(".") + "bc";
        check(dns_label, &["a", "a-1", "0", &long[1..]], &["", "-a", "a-", "A", "a.b", "a_b", "\u{e4}", &long]);
        check(dns_subdomain, &["a", "a.b-c.d", &long], &["", ".a", "a..b", "a.", "a.-b", "a_b", "A", &very_long]);
        check(dns_search, &[".", "a.b", "a.b.", "_srv.a"], &["", "..", "a..b", "A.b", "-a"]);
        check(qualified_name, &["a", "A_b.C", "a.b/c", "9"], &["", "/a", "a/", "a/b/c", "-a", "A.b/c", "a b", &long]);
        check(annotation_key, &["A.b/c"], &["a b"]);
        check(label_value, &["", "a", "A_b.C"], &["-a", "a-", "a b", "a/b", &long]);
        check(port_name, &["http", "a-1", "80a"], &["", "80", "-a", "a-", "a--b", "HTTP", "abcdefghijklmnop"]);
        check(env_name, &["A", "a.b-c", "1", "A B"], &["", "A=B", "\u{e4}", "A\n"]);
        check(config_key, &["a", "A_b-c.d", ".x"], &["", ".", "..", "..a", "a/b", &"a".repeat(254)]);
        check(header_name, &["X-A", "x_1"], &["", "X A", "X:"]);
        check(sysctl, &["kernel.shm_rmid_forced", "net/ipv4/tcp_x", "a"], &["", "a.", ".a", "a b", "A", "a._b"]);
        check(capability, &["NET_ADMIN", "ALL", "CAP_BPF"], &["", "NET ADMIN", "NET-ADMIN"]);
        check(ip, &["1.2.3.4", "::1", "fe80::1"], &["", "1.2.3", "1.2.3.4.5", "01.2.3.4", "a", "::1%eth0"]);
        check(path_without_steps_back, &["", "/a", "a..b", "..a"], &["..", "/a/../b"]);
        check(path_below, &["a/b", "..a"], &["/a", "a/..", "../a"]);
        check(path_of_item, &["a/..b"], &["..a", "../a", "/a"]);
    }
}

//! The shapes of names that fields of this module must have: DNS labels and subdomains, qualified keys.
//!
//! Layer L1, pure. It only tells whether and why not.

/// Longest DNS label.
pub(super) const LABEL_MAX: usize = 63;
/// Longest DNS subdomain.
pub(super) const SUBDOMAIN_MAX: usize = 253;

/// Why `text` is no DNS label, if it is none.
pub(super) fn dns_label_problem(text: &str) -> Option<String> {
    if text.len() > LABEL_MAX {
        return Some(format!("it may have {LABEL_MAX} characters and has {}", text.len()));
    }
    (!is_label(text)).then(|| "use lower-case letters, digits and '-', with a letter or digit at both ends".to_owned())
}

/// Why `text` is no DNS subdomain, if it is none.
pub(super) fn dns_subdomain_problem(text: &str) -> Option<String> {
    if text.len() > SUBDOMAIN_MAX {
        return Some(format!("it may have {SUBDOMAIN_MAX} characters and has {}", text.len()));
    }
    (!text.split('.').all(is_label)).then(|| {
        "use lower-case letters, digits, '-' and '.', with a letter or digit at both ends of each part".to_owned()
    })
}

/// Why `text` is no key of a label or annotation, if it is none.
pub(super) fn qualified_name_problem(text: &str) -> Option<String> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    if let Some(problem) = prefix.and_then(dns_subdomain_problem) {
        return Some(format!("the part before '/' must be a DNS subdomain: {problem}"));
    }
    let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let good = name.len() <= LABEL_MAX && has_ends(name, |c| c.is_ascii_alphanumeric()) && name.bytes().all(inner);
    (!good).then(|| {
        format!("a key has at most {LABEL_MAX} letters, digits, '-', '_' and '.', with a letter or digit at both ends")
    })
}

fn is_label(text: &str) -> bool {
    let end = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    has_ends(text, end) && text.bytes().all(|c| end(c) || c == b'-')
}

fn has_ends(text: &str, good: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|c| good(*c)) && bytes.last().is_some_and(|c| good(*c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_their_shapes() {
        let long = "a".repeat(64);
        for (text, label, subdomain, key) in [
            ("web-0", true, true, true),
            ("a.b", false, true, true),
            ("example.com/Key_1", false, false, true),
            ("Web", false, false, true),
            ("-a", false, false, false),
            ("a-", false, false, false),
            ("a..b", false, false, true),
            ("", false, false, false),
            ("a/b/c", false, false, false),
            ("/a", false, false, false),
            (long.as_str(), false, false, false),
        ] {
            // A subdomain's parts have no length of their own, only the whole has.
            let subdomain = subdomain || text == long;
            let got = (dns_label_problem(text), dns_subdomain_problem(text), qualified_name_problem(text));
            assert_eq!((got.0.is_none(), got.1.is_none(), got.2.is_none()), (label, subdomain, key), "{text} {got:?}");
        }
    }
}

//! Path and query of a request, decoded once.
//!
//! Pure. What is authorized and what is served is the same decoded path: nobody behind this decodes it again, and a
//! path that two readers could see differently (`..`, empty segments) is no endpoint's.

/// A request's target.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Decoded path.
    pub(super) path: String,
    /// Path and query as sent, without scheme and host.
    pub(super) sent: String,
    /// Decoded query.
    pub(super) query: Vec<(String, String)>,
}

/// Reads a target; `None` if it is none.
pub(super) fn parse(sent: &str) -> Option<Target> {
    let local = match sent.strip_prefix("http://").or_else(|| sent.strip_prefix("https://")) {
        // As a proxy is asked.
        Some(rest) => rest.find(['/', '?']).map_or("/", |at| &rest[at..]),
        None => sent,
    };
    let (path, query) = local.split_once('?').unwrap_or((local, ""));
    let path = if path.is_empty() { "/" } else { path };
    if !path.starts_with('/') || local.contains('#') {
        return None;
    }
    let path = decode(path, false).filter(|path| !path.contains('\0'))?;
    Some(Target { path, sent: local.to_owned(), query: parse_query(query) })
}

/// Reads a query. What can't be decoded is left out, as Go's parser leaves it out.
pub fn parse_query(query: &str) -> Vec<(String, String)> {
    let parts = query.split('&').filter(|part| !part.is_empty() && !part.contains(';'));
    let pair = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        Some((decode(name, true)?, decode(value, true)?))
    };
    parts.filter_map(pair).collect()
}

fn decode(text: &str, plus_is_space: bool) -> Option<String> {
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        decoded.push(match byte {
            b'%' => {
                let value = digit(bytes.get(at))? * 16 + digit(bytes.get(at + 1))?;
                at += 2;
                u8::try_from(value).ok()?
            }
            b'+' if plus_is_space => b' ',
            other => *other,
        });
    }
    String::from_utf8(decoded).ok()
}

/// Whether every segment of a decoded path says where it leads: none is empty (but the last), `.` or `..`.
pub(in crate::server::node) fn is_clean(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else { return false };
    let mut segments = rest.split('/').peekable();
    while let Some(segment) = segments.next() {
        if segment == "." || segment == ".." || (segment.is_empty() && segments.peek().is_some()) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sent: &str, path: Option<&str>, query: &[(&str, &str)]) {
        let got = parse(sent);
        assert_eq!(got.as_ref().map(|target| target.path.as_str()), path, "{sent}");
        let got = got.map(|target| target.query).unwrap_or_default();
        let got: Vec<(&str, &str)> = got.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(got, query, "{sent}");
    }

    #[test]
    fn targets_are_decoded_once() {
        check("/", Some("/"), &[]);
        check("/pods?", Some("/pods"), &[]);
        check("/a%2Fb%25c+d", Some("/a/b%c+d"), &[]);
        check(
            "/x?a=1&b=x+y%20z&a=2&c&&=5",
            Some("/x"),
            &[("a", "1"), ("b", "x y z"), ("a", "2"), ("c", ""), ("", "5")],
        );
        check("/x?command=%ff&ok=1&semi;colon=2", Some("/x"), &[("ok", "1")]);
        check("http://node:10250/pods?x=/", Some("/pods"), &[("x", "/")]);
        check("https://node", Some("/"), &[]);
        check("https://node?a=b", Some("/"), &[("a", "b")]);
        for wrong in ["", "pods", "*", "/%", "/%2", "/%zz", "/%ff", "/a%00b", "/a#b", "node:443", "ftp://x/"] {
            check(wrong, if wrong.is_empty() { Some("/") } else { None }, &[]);
        }
    }

    #[test]
    fn a_clean_path_leads_to_one_place() {
        for (path, expect) in [
            ("/", true),
            ("/logs/", true),
            ("/logs/a/b.log", true),
            ("/logs/...", true),
            ("/logs//a", false),
            ("//logs", false),
            ("/logs/../pods", false),
            ("/logs/..", false),
            ("/./pods", false),
            ("pods", false),
        ] {
            assert_eq!(is_clean(path), expect, "{path}");
        }
    }
}

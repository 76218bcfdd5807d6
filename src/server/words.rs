//! Small words of the node's HTTP interface: refusals, times and numbers as the kubelet reads them from a query.
//!
//! Pure; on the threads of the connections. It never guesses: what it cannot read is refused by whoever asked.

use crate::api::runtime::UnixNanos;

/// The names and values of a query, decoded, in their order.
pub type Pairs = [(String, String)];

/// A request that is not done: its status and the text of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// HTTP status.
    pub status: u16,
    /// The body, plain text.
    pub text: String,
}

impl Refused {
    /// A refusal.
    pub fn new(status: u16, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }
}

/// The first value of that name, as the kubelet takes it for options that have one value.
pub fn first<'a>(pairs: &'a Pairs, name: &str) -> Option<&'a str> {
    pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

/// All values of that name.
pub fn all<'a>(pairs: &'a Pairs, name: &'a str) -> impl Iterator<Item = &'a str> {
    pairs.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
}

/// An option that is set by any value but `0` and `false`.
pub fn is_set(pairs: &Pairs, name: &str) -> bool {
    first(pairs, name).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
}

/// A time of RFC 3339; `None` if it is none. Times that no clock here can show become the nearest that one can.
pub fn rfc3339(text: &str) -> Option<UnixNanos> {
    let bytes = text.as_bytes();
    let zone = text.get(19..)?.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let has_zone = zone == "Z" || (zone.len() == 6 && zone.starts_with(['+', '-']) && zone.as_bytes()[3] == b':');
    let dotted = text[19..].starts_with('.') || text.len() == 19 + zone.len();
    if bytes[10] != b'T' || !has_zone || !dotted {
        return None;
    }
    let nanos = text.parse::<jiff::Timestamp>().ok()?.as_nanosecond();
    Some(UnixNanos::try_from(nanos).unwrap_or(if nanos < 0 { UnixNanos::MIN } else { UnixNanos::MAX }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_rfc_3339_and_no_others() {
        for (text, expect) in [
            ("2026-01-01T00:00:02Z", Some(1_767_225_602_000_000_000)),
            ("2026-01-01T00:00:02.25Z", Some(1_767_225_602_250_000_000)),
            ("2026-01-01T01:00:02+01:00", Some(1_767_225_602_000_000_000)),
            ("0001-01-01T00:00:00Z", Some(i64::MIN)),
            ("9999-01-01T00:00:00Z", Some(i64::MAX)),
            ("2026-01-01 00:00:02Z", None),
            ("2026-01-01T00:00:02", None),
            ("2026-01-01T00:00:0212Z", None),
            ("2026-01-01T00:00:02+0100", None),
            ("2026-01-01T00:00:02+01:00[Europe/Paris]", None),
            ("2026-13-01T00:00:02Z", None),
            ("20260101T000002Z", None),
            ("ééééééééééééé", None),
            ("", None),
        ] {
            assert_eq!(rfc3339(text), expect, "{text}");
        }
    }

    #[test]
    fn options_are_set_by_anything_but_a_no() {
        let pairs: Vec<(String, String)> = [("a", "1"), ("b", "0"), ("c", "False"), ("d", ""), ("e", "no"), ("a", "0")]
            .map(|(k, v)| (k.into(), v.into()))
            .to_vec();
        for (name, expect) in [("a", true), ("b", false), ("c", false), ("d", true), ("e", true), ("f", false)] {
            assert_eq!(is_set(&pairs, name), expect, "{name}");
        }
        assert_eq!(all(&pairs, "a").collect::<Vec<_>>(), ["1", "0"]);
    }
}

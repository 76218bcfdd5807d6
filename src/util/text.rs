//! Prints values as Go's fmt package does, because messages that users grep for look that way.
//!
//! Layer L0, pure. For texts that upstream writes with `%q` and `%v`; everything of our own uses
//! Rust's formats.

use std::fmt::Write;
use std::time::Duration;

/// Text in double quotes with Go's escapes (`%q`).
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0b' => out.push_str("\\v"),
            '\x0c' => out.push_str("\\f"),
            // Writing to a String cannot fail.
            c if c < ' ' || c == '\x7f' => drop(write!(out, "\\x{:02x}", u32::from(c))),
            c if c.is_control() => drop(write!(out, "\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A time span as Go prints it: `0s`, `250ms`, `1.5s`, `2m40s`, `1h0m0.5s`.
pub fn duration(span: Duration) -> String {
    let nanos = span.as_nanos();
    let (unit, name) = match nanos {
        0 => return "0s".to_owned(),
        1..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "µs"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => {
            let (hours, minutes) = (span.as_secs() / 3600, span.as_secs() / 60 % 60);
            let seconds = decimal(nanos % 60_000_000_000, 1_000_000_000);
            return match (hours, minutes) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            };
        }
    };
    format!("{}{name}", decimal(nanos, unit))
}

/// A time span for people: [`duration`] in whole seconds, or in whole milliseconds below one.
pub fn about(span: Duration) -> String {
    duration(match span.as_secs() {
        0 => Duration::from_millis(u64::from(span.subsec_millis())),
        seconds => Duration::from_secs(seconds),
    })
}

/// `value` / `unit` (a power of ten) without trailing zeros.
fn decimal(value: u128, unit: u128) -> String {
    let (whole, rest) = (value / unit, value % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let digits = unit.ilog10() as usize;
    format!("{whole}.{rest:0digits$}").trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_for_people_have_no_small_parts() {
        for (millis, expect) in [(0, "0s"), (500, "500ms"), (1_999, "1s"), (90_001, "1m30s"), (7_200_000, "2h0m0s")] {
            assert_eq!(about(Duration::from_millis(millis) + Duration::from_nanos(999)), expect);
        }
    }

    #[test]
    fn spans_print_as_in_go() {
        fn check(span: Duration, expect: &str) {
            assert_eq!(duration(span), expect);
        }
        check(Duration::ZERO, "0s");
        check(Duration::from_nanos(7), "7ns");
        check(Duration::from_nanos(1_500), "1.5µs");
        check(Duration::from_millis(45), "45ms");
        check(Duration::from_millis(1_234), "1.234s");
        check(Duration::from_millis(1_050), "1.05s");
        check(Duration::from_secs(10), "10s");
        check(Duration::from_secs(160), "2m40s");
        check(Duration::from_secs(300), "5m0s");
        check(Duration::from_millis(3_600_500), "1h0m0.5s");
        check(Duration::from_secs(360_000), "100h0m0s");
    }

    #[test]
    fn quotes_escape_as_in_go() {
        fn check(text: &str, expect: &str) {
            assert_eq!(quote(text), expect);
        }
        check("", r#""""#);
        check("Bad Name:1", r#""Bad Name:1""#);
        check("it's \"so\"\\", r#""it's \"so\"\\""#);
        check("a\tb\nc\0\u{7f}\u{85}é", "\"a\\tb\\nc\\x00\\x7f\\u0085é\"");
    }
}

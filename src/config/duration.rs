//! Durations as Go writes them ("1m30s"): parse and print. Pure; runs on any thread; owns nothing, reads no clock.

use serde::{Serialize, Serializer};
use std::fmt;
use std::time::Duration;

use crate::util::text::duration;

/// A signed duration in whole nanoseconds, read and printed like Go's `time.Duration`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GoDuration(i64);

/// Unit names with their length in nanoseconds, the longest names first where one begins another.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

impl GoDuration {
    /// No time at all.
    pub const ZERO: GoDuration = GoDuration(0);

    /// From nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        GoDuration(nanos)
    }

    /// From whole seconds.
    pub const fn from_secs(secs: i64) -> Self {
        GoDuration(secs.saturating_mul(1_000_000_000))
    }

    /// From milliseconds.
    pub const fn from_millis(millis: i64) -> Self {
        GoDuration(millis.saturating_mul(1_000_000))
    }

    /// In nanoseconds.
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// For timers: a negative duration is none at all.
    pub fn to_std(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }

    /// Reads Go's syntax: a sign, then numbers with units ("300ms", "-1.5h", "2h45m", "0"). None where it is not that,
    /// or longer than 292 years.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, mut rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Some(GoDuration::ZERO);
        }
        if rest.is_empty() {
            return None;
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let (nanos, after) = component(rest)?;
            total = total.checked_add(nanos)?;
            rest = after;
        }
        let value = if negative { 0i64.checked_sub_unsigned(total)? } else { i64::try_from(total).ok()? };
        Some(GoDuration(value))
    }
}

/// One number with its unit, in nanoseconds, and what follows it.
fn component(text: &str) -> Option<(u64, &str)> {
    let digits_end = |text: &str| text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (whole, mut rest) = text.split_at(digits_end(text));
    let mut fraction = "";
    if let Some(after) = rest.strip_prefix('.') {
        (fraction, rest) = after.split_at(digits_end(after));
    }
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let unit_end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(unit_end);
    let unit = UNITS.iter().find(|(unit, _)| *unit == name)?.1;
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanos = whole.checked_mul(unit)?;
    // Digits beyond nanoseconds of an hour change nothing.
    let fraction = &fraction[..fraction.len().min(18)];
    if !fraction.is_empty() {
        let scale = 10u128.pow(fraction.len() as u32);
        let part = fraction.parse::<u128>().ok()? * u128::from(unit) / scale;
        nanos = nanos.checked_add(u64::try_from(part).ok()?)?;
    }
    Some((nanos, rest))
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{}", duration(Duration::from_nanos(self.0.unsigned_abs())))
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Option<(i64, &str)>) {
        let parsed = GoDuration::parse(text);
        assert_eq!(parsed.map(|d| (d.nanos(), d.to_string())), expect.map(|(n, s)| (n, s.to_owned())), "{text:?}");
    }

    #[test]
    fn durations_are_read_and_printed_as_go_does() {
        for (text, nanos, printed) in [
            ("0", 0, "0s"),
            ("-0", 0, "0s"),
            ("0s", 0, "0s"),
            ("5s", 5_000_000_000, "5s"),
            ("1m", 60_000_000_000, "1m0s"),
            ("4h", 14_400_000_000_000, "4h0m0s"),
            ("1m30s", 90_000_000_000, "1m30s"),
            ("90s", 90_000_000_000, "1m30s"),
            ("1.5h", 5_400_000_000_000, "1h30m0s"),
            (".5s", 500_000_000, "500ms"),
            ("1.s", 1_000_000_000, "1s"),
            ("100ms", 100_000_000, "100ms"),
            ("1.5ms", 1_500_000, "1.5ms"),
            ("10us", 10_000, "10µs"),
            ("10µs", 10_000, "10µs"),
            ("10μs", 10_000, "10µs"),
            ("999ns", 999, "999ns"),
            ("-1m5.25s", -65_250_000_000, "-1m5.25s"),
            ("+3s", 3_000_000_000, "3s"),
            ("1h0.000000001s", 3_600_000_000_001, "1h0m0.000000001s"),
            ("0.1234567891234567891234s", 123_456_789, "123.456789ms"),
            ("9223372036854775807ns", i64::MAX, "2562047h47m16.854775807s"),
            ("-9223372036854775808ns", i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            check(text, Some((nanos, printed)));
        }
    }

    #[test]
    fn what_go_refuses_is_refused() {
        for text in [
            "",
            "-",
            "+",
            "5",
            "1",
            ".",
            ".s",
            "s",
            "5 s",
            "5S",
            "1d",
            "1m 30s",
            "5s ",
            "--5s",
            "5s5",
            "1e3s",
            "5min",
            "9223372036854775808ns",
            "3000000h",
            "ä",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn timers_see_no_negative_time() {
        assert_eq!(GoDuration::from_secs(-5).to_std(), Duration::ZERO);
        assert_eq!(GoDuration::from_millis(1500).to_std(), Duration::from_millis(1500));
    }

    proptest::proptest! {
        #[test]
        fn what_is_printed_is_read_back(nanos in proptest::num::i64::ANY) {
            let duration = GoDuration::from_nanos(nanos);
            assert_eq!(GoDuration::parse(&duration.to_string()), Some(duration));
        }

        #[test]
        fn any_text_gives_an_answer(text in r"[-+0-9.nuµmsh ]{0,20}") {
            let _ = GoDuration::parse(&text);
        }
    }
}

//! Which rotated files of a container's log go, which are compressed, and what the next one is called.
//!
//! Layer L1, pure: names in, names out. Names are upstream's, so that either agent goes on where the other left off and
//! log shippers know them. It only speaks of names that a rotation gave: another file in the folder is nobody's leftover.
//!
//! ```text
//! 0.log                          the runtime writes here
//! 0.log.20261130-080000          set aside last: a shipper may still be reading it
//! 0.log.20261130-070000.gz       older ones
//! 0.log.20261130-060000.tmp      a compression that was cut short
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use crate::api::runtime::UnixNanos;
use crate::util::order::{self, Gather};

/// Ends the name of a compressed file.
pub const COMPRESSED: &str = ".gz";
/// Ends the name of a file that is being written.
pub const UNFINISHED: &str = ".tmp";

/// How the time stands in a name.
const STAMP: &str = "%Y%m%d-%H%M%S";

/// When logs are rotated and what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotationPolicy {
    /// A log of so many bytes is rotated.
    pub max_size: u64,
    /// Most files of one log, the one being written included.
    pub max_files: usize,
}

/// What is to be done with the files of one log before it is rotated, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tidying {
    /// These go: too many, cut short, or there in compressed form as well.
    pub remove: Vec<String>,
    /// These are compressed.
    pub compress: Vec<String>,
}

/// What kind of file a name tells of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    Compressed,
    Unfinished,
}

/// A name taken apart: the time in it and the form; `None` for a name that no rotation gives.
fn parse<'a>(log: &str, name: &'a str) -> Option<(&'a str, Form)> {
    let rest = name.strip_prefix(log)?.strip_prefix('.')?;
    let (stamp, form) = match (rest.strip_suffix(COMPRESSED), rest.strip_suffix(UNFINISHED)) {
        (Some(stamp), _) => (stamp, Form::Compressed),
        (None, Some(stamp)) => (stamp, Form::Unfinished),
        (None, None) => (rest, Form::Plain),
    };
    let is_stamp = stamp.len() == "20261130-080000".len()
        && stamp.bytes().enumerate().all(|(i, byte)| if i == 8 { byte == b'-' } else { byte.is_ascii_digit() });
    is_stamp.then_some((stamp, form))
}

/// What to do with the files beside the log named `log` before it is rotated.
pub fn tidy(log: &str, names: &[String], policy: &RotationPolicy) -> Tidying {
    let parsed = || names.iter().filter_map(|name| Some((name, parse(log, name)?)));
    let compressed: BTreeSet<&str> =
        parsed().filter(|(_, (_, form))| *form == Form::Compressed).map(|(_, (stamp, _))| stamp).gather();
    let mut tidying = Tidying::default();
    let mut kept: Vec<(&str, Form, &String)> = Vec::new();
    for (name, (stamp, form)) in parsed() {
        match form {
            Form::Unfinished => tidying.remove.push(name.clone()),
            Form::Plain if compressed.contains(stamp) => tidying.remove.push(name.clone()),
            Form::Plain | Form::Compressed => kept.push((stamp, form, name)),
        }
    }
    order::sort(&mut tidying.remove);
    order::sort_by_key(&mut kept, |(stamp, ..)| *stamp);
    // The rotation adds one, and the runtime begins another.
    let room = policy.max_files.saturating_sub(2);
    let excess = kept.len().saturating_sub(room);
    tidying.remove.extend(kept.iter().take(excess).map(|(.., name)| (*name).clone()));
    let plain = kept.iter().skip(excess).filter(|(_, form, _)| *form == Form::Plain);
    tidying.compress.extend(plain.map(|(.., name)| (*name).clone()));
    tidying
}

/// The name that a log gets when it is set aside: the time, or if the clock was set back the second after the newest
/// name there is, so that names are never used twice and always stand in their order.
pub fn rotated_name(log: &str, names: &[String], now: UnixNanos) -> String {
    let newest = names.iter().filter_map(|name| parse(log, name)).map(|(stamp, _)| stamp).max();
    let now = jiff::Timestamp::from_nanosecond(i128::from(now)).unwrap_or_default();
    let mut stamp = now.strftime(STAMP).to_string();
    if let Some(newest) = newest.filter(|newest| *newest >= stamp.as_str()) {
        stamp = after(newest);
    }
    format!("{log}.{stamp}")
}

/// The stamp one second later. One that is no time, which nobody writes, is counted on as a number.
fn after(stamp: &str) -> String {
    let time = jiff::civil::DateTime::strptime(STAMP, stamp).ok();
    if let Some(next) = time.and_then(|time| time.checked_add(Duration::from_secs(1)).ok()) {
        return next.strftime(STAMP).to_string();
    }
    let number: u64 = stamp.replace('-', "").parse().unwrap_or(0);
    let digits = format!("{:014}", (number + 1).min(99_999_999_999_999));
    format!("{}-{}", &digits[..8], &digits[8..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| format!("0.log.{name}")).collect()
    }

    fn check(max_files: usize, there: &[&str], remove: &[&str], compress: &[&str]) {
        let policy = RotationPolicy { max_size: 1, max_files };
        let mut there = names(there);
        let expect = Tidying { remove: names(remove), compress: names(compress) };
        assert_eq!(tidy("0.log", &there, &policy), expect, "{there:?}");
        there.reverse();
        assert_eq!(tidy("0.log", &there, &policy), expect, "the order of a folder's names is nobody's");
    }

    #[test]
    fn old_files_go_and_the_others_are_compressed() {
        let (a, b, c) = ("20260101-000001", "20260101-000002", "20260101-000003");
        check(5, &[], &[], &[]);
        check(5, &[a], &[], &[a]);
        check(5, &["20260101-000001.gz", b], &[], &[b]);
        check(4, &["20260101-000001.gz", "20260101-000002.gz", c], &["20260101-000001.gz"], &[c]);
        check(3, &["20260101-000001.gz", b, c], &["20260101-000001.gz", b], &[c]);
        // With two files only the newest beside the log is kept, and only until the next rotation.
        check(2, &[a, b], &[a, b], &[]);
    }

    #[test]
    fn what_was_cut_short_goes() {
        let a = "20260101-000001";
        check(5, &[a, "20260101-000001.tmp"], &["20260101-000001.tmp"], &[a]);
        check(5, &[a, "20260101-000001.gz"], &[a], &[]);
        check(2, &[a, "20260101-000001.gz"], &[a, "20260101-000001.gz"], &[]);
    }

    #[test]
    fn other_files_are_left_alone() {
        let strange =
            ["pos", "2026", "20260101-00000x", "20260101_000001", "20260101-000001.zst", "20260101-000001.gz.tmp"];
        check(2, &strange, &[], &[]);
        let policy = RotationPolicy { max_size: 1, max_files: 2 };
        let others = ["0.log", "10.log.20260101-000001", "1.log.20260101-000001.gz"].map(str::to_owned);
        assert_eq!(tidy("0.log", &others, &policy), Tidying::default());
    }

    #[test]
    fn names_are_never_used_twice_and_keep_their_order() {
        let now = 1_767_225_659_900_000_000; // 2026-01-01T00:00:59.9Z
        for (there, expect) in [
            (&[][..], "20260101-000059"),
            (&["20251231-235959.gz", "pos"], "20260101-000059"),
            (&["20260101-000059"], "20260101-000100"),
            (&["20260101-000059.gz"], "20260101-000100"),
            (&["20260101-000059.tmp"], "20260101-000100"),
            // The clock was set back, or an agent with another time zone was here.
            (&["20260101-235959", "20260101-000059.gz"], "20260102-000000"),
            (&["20269999-999999"], "20270000-000000"),
            (&["99999999-999999"], "99999999-999999"),
        ] {
            assert_eq!(rotated_name("0.log", &names(there), now), format!("0.log.{expect}"), "{there:?}");
        }
    }
}

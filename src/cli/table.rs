//! Text for people: tables, sheets of fields, ages and times. Pure; `now` is an argument.

use crate::api::meta::Time;
use crate::api::runtime::UnixNanos;
use std::fmt::Write;

const SECOND: i64 = 1_000_000_000;

/// Lays rows out in columns, three spaces apart, the last one without padding.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            // Writing to a String cannot fail.
            let _written = write!(line, "{cell:<width$}   ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// A time span as kubectl shows ages: two units at most, coarser as it grows.
pub(super) fn age(from: UnixNanos, now: UnixNanos) -> String {
    let seconds = now.saturating_sub(from) / SECOND;
    // Clocks of the runtime and ours may be a little apart.
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let two = |big: i64, big_unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{big}{big_unit}"),
        small => format!("{big}{big_unit}{small}{small_unit}"),
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two(days, "d", hours % 24, "h"),
        () if days < 730 => format!("{days}d"),
        () if days < 2920 => two(days / 365, "y", days % 365, "d"),
        () => format!("{}y", days / 365),
    }
}

/// Nanoseconds since 1970.
pub(super) fn nanos(time: &Time) -> UnixNanos {
    UnixNanos::try_from(time.0.as_nanosecond()).unwrap_or(0)
}

/// How old a time is; `<unknown>` without one.
pub(super) fn age_of(time: Option<&Time>, now: UnixNanos) -> String {
    time.map_or_else(|| "<unknown>".to_owned(), |time| age(nanos(time), now))
}

/// A time with its age.
pub(super) fn moment(time: &Time, now: UnixNanos) -> String {
    format!("{} ({} ago)", time.0.strftime("%Y-%m-%d %H:%M:%S UTC"), age(nanos(time), now))
}

/// A sheet of named fields, with deeper levels set in.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    text: String,
    indent: usize,
}

/// Where values begin, from the left edge of their level.
const VALUE_AT: usize = 20;

impl Sheet {
    /// A field; a value of several lines goes on below its first.
    pub(super) fn field(&mut self, name: &str, value: impl AsRef<str>) {
        let (indent, label) = (self.indent, format!("{name}:"));
        let mut lines = value.as_ref().lines();
        let first = lines.next().unwrap_or("<none>");
        let width = VALUE_AT.saturating_sub(indent);
        // Writing to a String cannot fail.
        let _written = writeln!(self.text, "{:indent$}{label:<width$}{}{first}", "", gap(&label, width));
        for line in lines {
            let _written = writeln!(self.text, "{:VALUE_AT$}{line}", "");
        }
    }

    /// A field of several values, one a line; without any it says so.
    pub(super) fn list(&mut self, name: &str, values: impl IntoIterator<Item = String>) {
        self.field(name, values.into_iter().collect::<Vec<_>>().join("\n"));
    }

    /// A line without a value, whose fields follow one level deeper.
    pub(super) fn group(&mut self, name: &str, body: impl FnOnce(&mut Self)) {
        let indent = self.indent;
        let _written = writeln!(self.text, "{:indent$}{name}:", "");
        self.indent += 2;
        body(self);
        self.indent = indent;
    }

    /// A table one level deeper; without rows it says so.
    pub(super) fn table(&mut self, name: &str, heads: &[&str], rows: Vec<Vec<String>>) {
        if rows.is_empty() {
            return self.field(name, "");
        }
        let heads = heads.iter().map(ToString::to_string).collect();
        let rows: Vec<Vec<String>> = std::iter::once(heads).chain(rows).collect();
        self.group(name, |sheet| {
            for line in table(&rows).lines() {
                let _written = writeln!(sheet.text, "{:indent$}{line}", "", indent = sheet.indent);
            }
        });
    }

    /// The text.
    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// Keeps a long label and its value apart.
fn gap(label: &str, width: usize) -> &'static str {
    if label.chars().count() >= width { " " } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_in_kubectl() {
        fn check(seconds: i64, expect: &str) {
            assert_eq!(age(0, seconds * SECOND), expect);
        }
        let (minute, hour, day) = (60, 3600, 86400);
        check(-5, "<invalid>");
        check(-1, "0s");
        check(0, "0s");
        check(119, "119s");
        check(2 * minute, "2m");
        check(2 * minute + 5, "2m5s");
        check(10 * minute + 5, "10m");
        check(179 * minute, "179m");
        check(3 * hour, "3h");
        check(7 * hour + 59 * minute, "7h59m");
        check(8 * hour + 59 * minute, "8h");
        check(2 * day, "2d");
        check(2 * day + hour, "2d1h");
        check(8 * day + hour, "8d");
        check(729 * day, "729d");
        check(730 * day, "2y");
        check(800 * day, "2y70d");
        check(3000 * day, "8y");
        assert_eq!(age(i64::MAX, i64::MIN), "<invalid>");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: &[&str]| cells.iter().map(ToString::to_string).collect::<Vec<_>>();
        let text = table(&[row(&["A", "LONG NAME", "C"]), row(&["größer", "x", "last"]), row(&["y", "", ""])]);
        assert_eq!(text, "A        LONG NAME   C\ngrößer   x           last\ny\n");
        assert_eq!(table(&[]), "");
    }
}

//! The text format of Prometheus, version 0.0.4, written line by line into any writer.
//!
//! On the thread of whoever is asked. Lines are gathered in one small buffer, whatever their number. An error of the writer
//! is kept and told at the end; nothing more is written after it.

use std::io::{self, Write};

use super::Kind;

/// Gathered lines are handed on when they are this long.
const BLOCK: usize = 8 << 10;

/// A value of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A whole number.
    Whole(u64),
    /// Any other.
    Float(f64),
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

/// Lines on their way to a writer.
pub struct Text<'a> {
    out: &'a mut dyn Write,
    block: Vec<u8>,
    failed: Option<io::Error>,
}

impl std::fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Text").field("gathered", &self.block.len()).finish_non_exhaustive()
    }
}

impl<'a> Text<'a> {
    /// Begins.
    pub fn new(out: &'a mut dyn Write) -> Self {
        Self { out, block: Vec::with_capacity(BLOCK + 1024), failed: None }
    }

    /// The lines that come before the series of a metric.
    pub fn head(&mut self, name: &str, kind: Kind, help: &str) {
        self.push("# HELP ");
        self.push(name);
        self.push(" ");
        for part in help.split_inclusive(['\\', '\n']) {
            match part.as_bytes().last() {
                Some(b'\\') => {
                    self.push(part);
                    self.push("\\");
                }
                Some(b'\n') => {
                    self.push(&part[..part.len() - 1]);
                    self.push("\\n");
                }
                _ => self.push(part),
            }
        }
        self.push("\n# TYPE ");
        self.push(name);
        self.push(" ");
        self.push(kind.as_str());
        self.end_line();
    }

    /// One sample. `labels` are as [`push_label`] makes them.
    pub fn sample(&mut self, name: &str, labels: &str, value: Number) {
        self.sample_of(name, "", labels, value);
    }

    /// One sample of a metric whose samples have a suffix.
    pub fn sample_of(&mut self, name: &str, suffix: &str, labels: &str, value: Number) {
        self.name_and_labels(name, suffix, labels, "");
        self.number(value);
        self.end_line();
    }

    /// One sample that was taken at another time than the scrape; milliseconds since 1970.
    pub fn sample_at(&mut self, name: &str, labels: &str, more: &str, value: Number, at_millis: i64) {
        self.name_and_labels(name, "", labels, more);
        self.number(value);
        self.push(" ");
        self.print(format_args!("{at_millis}"));
        self.end_line();
    }

    /// One bucket of a histogram; the last has no bound.
    pub(super) fn bucket(&mut self, name: &str, labels: &str, bound: Option<f64>, count: u64) {
        self.push(name);
        self.push("_bucket{");
        if !labels.is_empty() {
            self.push(labels);
            self.push(",");
        }
        match bound {
            Some(bound) => self.print(format_args!("le=\"{bound}\"}} {count}")),
            None => self.print(format_args!("le=\"+Inf\"}} {count}")),
        }
        self.end_line();
    }

    fn name_and_labels(&mut self, name: &str, suffix: &str, labels: &str, more: &str) {
        self.push(name);
        self.push(suffix);
        if !labels.is_empty() || !more.is_empty() {
            self.push("{");
            self.push(labels);
            if !labels.is_empty() && !more.is_empty() {
                self.push(",");
            }
            self.push(more);
            self.push("}");
        }
        self.push(" ");
    }

    fn number(&mut self, value: Number) {
        match value {
            Number::Whole(value) => self.print(format_args!("{value}")),
            Number::Float(value) if value.is_nan() => self.push("NaN"),
            Number::Float(value) if value.is_infinite() => self.push(if value > 0.0 { "+Inf" } else { "-Inf" }),
            Number::Float(value) => self.print(format_args!("{value}")),
        }
    }

    fn push(&mut self, text: &str) {
        self.block.extend_from_slice(text.as_bytes());
    }

    fn print(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to memory cannot fail.
        let _written = self.block.write_fmt(arguments);
    }

    fn end_line(&mut self) {
        self.block.push(b'\n');
        if self.block.len() >= BLOCK {
            self.hand_on();
        }
    }

    fn hand_on(&mut self) {
        if self.failed.is_none() {
            self.failed = self.out.write_all(&self.block).err();
        }
        self.block.clear();
    }

    /// Hands on the rest.
    ///
    /// # Errors
    /// The writer's first error.
    pub fn finish(mut self) -> io::Result<()> {
        self.hand_on();
        match self.failed {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// Adds a label to a list of them, without braces: `pod="web"`, then `pod="web",node="n1"`.
pub fn push_label(labels: &mut String, name: &str, value: &str) {
    if !labels.is_empty() {
        labels.push(',');
    }
    labels.push_str(name);
    labels.push_str("=\"");
    if value.contains(['\\', '"', '\n']) {
        for c in value.chars() {
            match c {
                '\\' => labels.push_str("\\\\"),
                '"' => labels.push_str("\\\""),
                '\n' => labels.push_str("\\n"),
                other => labels.push(other),
            }
        }
    } else {
        labels.push_str(value);
    }
    labels.push('"');
}

//! JSON written as it is told, without a tree of it in memory. On the caller's thread; owns one small block.

use std::io::{self, Write};

use jiff::Timestamp;

use crate::api::runtime::UnixNanos;

/// Text is handed on when it is this long.
const BLOCK: usize = 8 << 10;

/// A JSON text on its way to a writer. An empty key stands for an item of a list.
pub(super) struct Json<'a> {
    out: &'a mut dyn Write,
    block: Vec<u8>,
    /// Whether something stands before the next value in its object or list.
    follows: bool,
    failed: Option<io::Error>,
    /// The last time that was written, in seconds, and its text: most are the same.
    time: (i64, String),
}

impl<'a> Json<'a> {
    /// Begins.
    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        Self { out, block: Vec::with_capacity(BLOCK + 512), follows: false, failed: None, time: (0, String::new()) }
    }

    fn key(&mut self, key: &str) {
        if self.follows {
            self.block.push(b',');
        }
        self.follows = true;
        if !key.is_empty() {
            self.quoted(key);
            self.block.push(b':');
        }
        if self.block.len() >= BLOCK {
            self.hand_on();
        }
    }

    /// An object begins.
    pub(super) fn open(&mut self, key: &str) {
        self.key(key);
        self.block.push(b'{');
        self.follows = false;
    }

    /// It ends.
    pub(super) fn close(&mut self) {
        self.block.push(b'}');
        self.follows = true;
    }

    /// A list begins.
    pub(super) fn open_list(&mut self, key: &str) {
        self.key(key);
        self.block.push(b'[');
        self.follows = false;
    }

    /// It ends.
    pub(super) fn close_list(&mut self) {
        self.block.push(b']');
        self.follows = true;
    }

    /// A text.
    pub(super) fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        self.quoted(value);
    }

    /// A whole number.
    pub(super) fn number(&mut self, key: &str, value: u64) {
        self.key(key);
        // Writing to memory cannot fail.
        let _written = write!(self.block, "{value}");
    }

    /// A whole number, if there is one.
    pub(super) fn maybe(&mut self, key: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.number(key, value);
        }
    }

    /// Any number; what JSON cannot say is 0.
    pub(super) fn float(&mut self, key: &str, value: f64) {
        self.key(key);
        let value = if value.is_finite() { value } else { 0.0 };
        let _written = write!(self.block, "{value}");
    }

    /// A moment, to the second, as the Kubernetes API writes it; 0 is null.
    pub(super) fn time(&mut self, key: &str, at: UnixNanos) {
        self.key(key);
        let seconds = at.div_euclid(1_000_000_000);
        if at == 0 {
            self.block.extend_from_slice(b"null");
            return;
        }
        if self.time.0 != seconds || self.time.1.is_empty() {
            let text = Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default();
            self.time = (seconds, text);
        }
        self.block.push(b'"');
        self.block.extend_from_slice(self.time.1.as_bytes());
        self.block.push(b'"');
    }

    fn quoted(&mut self, text: &str) {
        self.block.push(b'"');
        for byte in text.bytes() {
            match byte {
                b'"' | b'\\' => self.block.extend_from_slice(&[b'\\', byte]),
                0..0x20 => {
                    let _written = write!(self.block, "\\u{byte:04x}");
                }
                other => self.block.push(other),
            }
        }
        self.block.push(b'"');
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
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.hand_on();
        self.failed.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_written() {
        let mut out = Vec::new();
        let mut json = Json::new(&mut out);
        json.open("");
        json.text("a\"b", "x\\\n\u{1f}é");
        json.open_list("list");
        json.number("", 1);
        json.float("", 0.5);
        json.float("", f64::NAN);
        json.open("");
        json.close();
        json.close_list();
        json.maybe("none", None);
        json.maybe("some", Some(u64::MAX));
        json.time("never", 0);
        json.time("then", 1_790_000_000_999_999_999);
        json.close();
        json.finish().unwrap();
        let text = String::from_utf8(out).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let expect = serde_json::json!({
            "a\"b": "x\\\n\u{1f}é", "list": [1, 0.5, 0, {}], "some": u64::MAX, "never": null,
            "then": "2026-09-21T14:13:20Z",
        });
        assert_eq!(value, expect, "{text}");
    }
}

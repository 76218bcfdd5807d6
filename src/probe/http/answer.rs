//! Reads the answer to a GET over HTTP/1: its status, where it leads, and the first bytes of its body. Bounded in all
//! that it takes from the other side. On a pool thread.

use std::io::{self, Read};

/// Most bytes of an answer's head, and of all the lines between the chunks of its body.
const MAX_HEAD: usize = 64 * 1024;
/// Answers that come before the one that counts (100 to 199).
const MAX_INTERIM: usize = 5;

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// `Location`, if there is one.
    pub(super) location: String,
    /// How its body ends.
    body: BodyEnd,
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyEnd {
    /// After so many bytes.
    Length(u64),
    /// With an empty chunk.
    Chunks,
    /// With the connection.
    Close,
}

/// Reads from a stream with a little store of its own.
pub(super) struct Reader<R> {
    from: R,
    buffer: Vec<u8>,
    at: usize,
    /// Bytes of heads that may still come.
    left: usize,
}

fn bad(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

impl<R: Read> Reader<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, buffer: Vec::new(), at: 0, left: MAX_HEAD }
    }

    /// What it reads from.
    pub(super) fn into_inner(self) -> R {
        self.from
    }

    /// More bytes; false at the end.
    fn fill(&mut self) -> io::Result<bool> {
        self.buffer.resize(4096, 0);
        self.at = 0;
        let read = self.from.read(&mut self.buffer);
        self.buffer.truncate(*read.as_ref().unwrap_or(&0));
        Ok(read? > 0)
    }

    fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        loop {
            if self.at == self.buffer.len() && !self.fill()? {
                let text = if line.is_empty() { "EOF" } else { "unexpected EOF" };
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
            }
            let rest = &self.buffer[self.at..];
            let (taken, ends) = match rest.iter().position(|byte| *byte == b'\n') {
                Some(end) => (end + 1, true),
                None => (rest.len(), false),
            };
            self.left = self.left.checked_sub(taken).ok_or_else(|| bad("the answer's head is too long"))?;
            line.extend(&rest[..taken]);
            self.at += taken;
            if ends {
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(line);
            }
        }
    }

    /// Reads the head of the answer that counts.
    ///
    /// # Errors
    /// There is none, or it is no HTTP.
    pub(super) fn head(&mut self) -> io::Result<Answer> {
        for _ in 0..=MAX_INTERIM {
            let first = self.line()?;
            let status = status_of(&first).ok_or_else(|| {
                let shown: String = String::from_utf8_lossy(&first).chars().take(60).collect();
                bad(format!("malformed HTTP response {shown:?}"))
            })?;
            let (mut location, mut body) = (String::new(), BodyEnd::Close);
            loop {
                let line = self.line()?;
                if line.is_empty() {
                    break;
                }
                let text = String::from_utf8_lossy(&line);
                let Some((name, value)) = text.split_once(':') else {
                    return Err(bad(format!(
                        "malformed MIME header line: {}",
                        text.chars().take(60).collect::<String>()
                    )));
                };
                let (name, value) = (name.trim_end(), value.trim());
                if name.eq_ignore_ascii_case("location") && location.is_empty() {
                    value.clone_into(&mut location);
                } else if name.eq_ignore_ascii_case("transfer-encoding") && value.eq_ignore_ascii_case("chunked") {
                    body = BodyEnd::Chunks;
                } else if name.eq_ignore_ascii_case("content-length") && body == BodyEnd::Close {
                    body = BodyEnd::Length(value.parse().map_err(|_| bad(format!("bad Content-Length {value:?}")))?);
                }
            }
            match status {
                101 | 200.. => {
                    let body = if matches!(status, 101 | 204 | 304) { BodyEnd::Length(0) } else { body };
                    return Ok(Answer { status, location, body });
                }
                _ => {}
            }
        }
        Err(bad("too many 1xx informational responses"))
    }

    /// Reads the body's first bytes, at most `most`.
    ///
    /// # Errors
    /// It breaks off.
    pub(super) fn body(&mut self, answer: &Answer, most: usize) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        match answer.body {
            BodyEnd::Length(length) => {
                let length = usize::try_from(length).unwrap_or(usize::MAX).min(most);
                if !self.take(&mut body, length)? {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "unexpected EOF"));
                }
            }
            BodyEnd::Close => {
                self.take(&mut body, most)?;
            }
            BodyEnd::Chunks => loop {
                let line = self.line()?;
                let size = line.split(|byte| *byte == b';').next().unwrap_or_default();
                let size = std::str::from_utf8(size).ok().and_then(|hex| usize::from_str_radix(hex.trim(), 16).ok());
                let size = size.ok_or_else(|| bad("invalid byte in chunk length"))?;
                let wanted = size.min(most - body.len());
                if !self.take(&mut body, wanted)? {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "unexpected EOF"));
                }
                if size == 0 || wanted < size || body.len() == most {
                    break;
                }
                self.line()?;
            },
        }
        Ok(body)
    }

    /// Takes so many bytes more; false if the stream ends before.
    fn take(&mut self, body: &mut Vec<u8>, mut count: usize) -> io::Result<bool> {
        while count > 0 {
            if self.at == self.buffer.len() && !self.fill()? {
                return Ok(false);
            }
            let rest = &self.buffer[self.at..];
            let taken = rest.len().min(count);
            body.extend(&rest[..taken]);
            self.at += taken;
            count -= taken;
        }
        Ok(true)
    }
}

/// The status of a line `HTTP/1.1 200 OK`.
fn status_of(line: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(line).ok()?;
    let (version, rest) = text.split_once(' ')?;
    let code = rest.trim_start().split(' ').next()?;
    let is_http = version.strip_prefix("HTTP/1.").is_some_and(|minor| minor.len() == 1);
    let is_code = code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_digit());
    (is_http && is_code).then(|| code.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sent: &str, most: usize, expect: &str) {
        let mut reader = Reader::new(sent.as_bytes());
        let got = match reader.head() {
            Err(error) => format!("no answer: {error}"),
            Ok(answer) => {
                let Answer { status, location, .. } = &answer;
                match reader.body(&answer, most) {
                    Ok(body) => format!("{status} {location:?} {:?}", String::from_utf8_lossy(&body)),
                    Err(error) => format!("{status} {location:?} breaks off: {error}"),
                }
            }
        };
        assert_eq!(got, expect, "{sent:?}");
    }

    #[test]
    fn answers_are_read_to_their_end_or_to_the_limit() {
        for (sent, expect) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef", r#"200 "" "abc""#),
            ("HTTP/1.0 200 OK\n\nall of it", r#"200 "" "all of it""#),
            ("HTTP/1.1 200\r\n\r\n", r#"200 "" """#),
            ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", r#"200 "" breaks off: unexpected EOF"#),
            ("HTTP/1.1 302 Found\r\nLocation: /x \r\n\r\n", r#"302 "/x" """#),
            ("HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n", r#"204 "" """#),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", r#"500 "" """#),
            ("HTTP/1.1 101 Switching\r\n\r\nxyz", r#"101 "" """#),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
                r#"200 "" "abcde""#,
            ),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", r#"200 "" breaks off: unexpected EOF"#),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                r#"200 "" breaks off: invalid byte in chunk length"#,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabcdefghijklmn",
                r#"200 "" "abcdefghij""#,
            ),
            ("HTTP/1.1 200 OK\r\n\r\nabcdefghijklmn", r#"200 "" "abcdefghij""#),
            ("", "no answer: EOF"),
            ("HTTP/1.1 200 OK\r\nX: y", "no answer: unexpected EOF"),
            ("SSH-2.0-dropbear\r\n", r#"no answer: malformed HTTP response "SSH-2.0-dropbear""#),
            ("HTTP/2 200\r\n\r\n", r#"no answer: malformed HTTP response "HTTP/2 200""#),
            ("HTTP/1.1 20x OK\r\n\r\n", r#"no answer: malformed HTTP response "HTTP/1.1 20x OK""#),
            ("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "no answer: malformed MIME header line: no colon"),
            ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", r#"no answer: bad Content-Length "x""#),
        ] {
            check(sent, 10, expect);
        }
        check(&"HTTP/1.1 100 C\r\n\r\n".repeat(9), 10, "no answer: too many 1xx informational responses");
        check(
            &format!("HTTP/1.1 200 OK\r\n{}", "X: y\r\n".repeat(20_000)),
            10,
            "no answer: the answer's head is too long",
        );
    }
}

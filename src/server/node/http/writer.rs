//! Writes an answer onto a connection.
//!
//! On the thread that serves the request. A body of unknown length goes out in chunks, unless it is so small that all of it is there before anything was
//! sent; HTTP/1.0 gets it until the end of the connection.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::os::fd::{AsFd as _, BorrowedFd};

use super::body::Carrier as _;
use super::clock::date;
use super::connection::Connection;
use super::head::{Head, Method};
use super::reply::{Reply, ReplyBody, StreamOut, TakeOver};

/// Bytes of a streamed body that are sent at once.
const CHUNK: usize = 16 << 10;

/// What the connection is good for after an answer.
pub enum After {
    /// Another request.
    GoesOn,
    /// Nothing.
    Ends,
    /// Something else.
    TakenOver(TakeOver),
}

impl std::fmt::Debug for After {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::GoesOn => "GoesOn",
            Self::Ends => "Ends",
            Self::TakenOver(_) => "TakenOver",
        })
    }
}

/// What an answer has to know of its request.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// HEAD: the body is not sent.
    pub without_body: bool,
    /// HTTP/1.0.
    pub is_old: bool,
    /// No other request follows.
    pub closes: bool,
}

impl Asked {
    /// Of this request.
    pub fn of(head: &Head) -> Self {
        Self { without_body: head.method == Method::Head, is_old: head.is_old, closes: head.closes }
    }

    /// Of bytes that were no request.
    pub const fn nothing() -> Self {
        Self { without_body: false, is_old: false, closes: true }
    }
}

/// The word for a status.
pub fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Request Entity Too Large",
        414 => "Request URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Other",
    }
}

fn head_text(
    status: u16,
    headers: &[(&'static str, std::borrow::Cow<'static, str>)],
    framing: &str,
    closes: bool,
) -> String {
    let mut text = format!("HTTP/1.1 {status} {}\r\n", reason(status));
    for (name, value) in headers {
        // A value that would start another header is not sent.
        if !value.contains(['\r', '\n', '\0']) {
            let _infallible = write!(text, "{name}: {value}\r\n");
        }
    }
    let _infallible = write!(text, "Date: {}\r\n{framing}", date());
    text.push_str(if closes { "Connection: close\r\n\r\n" } else { "\r\n" });
    text
}

/// Sends an answer and says what the connection is good for after it.
///
/// # Errors
/// The connection is broken, or what writes the body failed when it was too late to say so.
pub fn write(connection: &mut Connection, asked: Asked, reply: Reply) -> io::Result<After> {
    let mut closes = asked.closes || reply.closes();
    let status = reply.status();
    let headers = reply.headers().to_vec();
    match reply.into_body() {
        ReplyBody::TakeOver(go_on) => return Ok(After::TakenOver(go_on)),
        ReplyBody::Whole(body) => {
            let framing = if status == 204 || status == 304 {
                String::new()
            } else {
                format!("Content-Length: {}\r\n", body.len())
            };
            let mut bytes = head_text(status, &headers, &framing, closes).into_bytes();
            let body: &[u8] = if asked.without_body { &[] } else { &body };
            // One write for what is small; a large body is not copied.
            if body.len() <= CHUNK {
                bytes.extend_from_slice(body);
                connection.send(&bytes)?;
            } else {
                connection.send(&bytes)?;
                connection.send(body)?;
            }
        }
        ReplyBody::Stream(write) => {
            let mut out =
                Chunks { connection, status, headers, asked, closes, held: Vec::new(), state: State::Nothing };
            let written = write(&mut out);
            match (written, out.state) {
                (Ok(()), _) => {
                    out.end()?;
                    closes = out.closes;
                }
                (Err(error), State::Nothing) => {
                    log::debug!("an answer could not be written: {error}");
                    let failed = Reply::error(500, &error.to_string());
                    return self::write(out.connection, asked, failed);
                }
                (Err(error), State::Begun) => return Err(error),
            }
        }
    }
    Ok(if closes { After::Ends } else { After::GoesOn })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No byte was sent, not even of the head.
    Nothing,
    /// The head was sent.
    Begun,
}

/// A body that is sent as it is written.
struct Chunks<'c> {
    connection: &'c mut Connection,
    status: u16,
    headers: Vec<(&'static str, std::borrow::Cow<'static, str>)>,
    asked: Asked,
    closes: bool,
    held: Vec<u8>,
    state: State,
}

impl Chunks<'_> {
    fn send_held(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        if self.state == State::Nothing {
            self.closes |= self.asked.is_old;
            let framing = if self.asked.is_old { "" } else { "Transfer-Encoding: chunked\r\n" };
            bytes = head_text(self.status, &self.headers, framing, self.closes).into_bytes();
            self.state = State::Begun;
        }
        if !self.held.is_empty() && !self.asked.without_body {
            if self.asked.is_old {
                bytes.extend_from_slice(&self.held);
            } else {
                bytes.reserve(self.held.len() + 12);
                write!(bytes, "{:x}\r\n", self.held.len())?;
                bytes.extend_from_slice(&self.held);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        self.held.clear();
        self.connection.send(&bytes)
    }

    fn end(&mut self) -> io::Result<()> {
        if self.state == State::Nothing {
            let framing = format!("Content-Length: {}\r\n", self.held.len());
            let mut bytes = head_text(self.status, &self.headers, &framing, self.closes).into_bytes();
            if !self.asked.without_body {
                bytes.append(&mut self.held);
            }
            return self.connection.send(&bytes);
        }
        if !self.held.is_empty() {
            self.send_held()?;
        }
        if self.asked.is_old || self.asked.without_body { Ok(()) } else { self.connection.send(b"0\r\n\r\n") }
    }
}

impl Write for Chunks<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(CHUNK - self.held.len());
        self.held.extend_from_slice(&bytes[..count]);
        if self.held.len() >= CHUNK {
            self.send_held()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.held.is_empty() && self.state == State::Begun { Ok(()) } else { self.send_held() }
    }
}

impl StreamOut for Chunks<'_> {
    fn is_gone(&mut self) -> bool {
        loop {
            match self.connection.read_some() {
                // The beginning of the next request.
                Ok(true) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Ok(false) | Err(_) => return true,
            }
        }
    }

    fn client(&self) -> Option<BorrowedFd<'_>> {
        Some(self.connection.as_fd())
    }
}

#[cfg(test)]
mod tests;

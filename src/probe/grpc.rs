//! The grpc probe: one call of `grpc.health.v1.Health/Check` over HTTP/2 without TLS. On a pool thread.
//!
//! The agent's gRPC library serves the container runtime; a channel of it for each attempt would cost threads, timers
//! and memory. One call needs a dozen frames, which are written and read here.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use super::USER_AGENT;
use super::conn::{Conn, authority, is_timeout, plain};
use crate::api::probe::ProbeOutcome;
use crate::util::http2::hpack::{self, Fields, NO_TABLE};
use crate::util::http2::{self, FRAME_HEAD, FrameHead, MAX_FRAME, PREFACE, flag, kind};
use crate::util::text;

/// The stream of the call.
const STREAM: u32 = 1;
/// Most bytes of an answer's head, and of its body.
const MAX_ANSWER: usize = 64 * 1024;

/// Places in the standard's fixed table.
mod place {
    pub(super) const AUTHORITY: u8 = 1;
    pub(super) const METHOD_POST: u8 = 3;
    pub(super) const PATH: u8 = 4;
    pub(super) const SCHEME_HTTP: u8 = 6;
    pub(super) const STATUS_FIRST: usize = 8;
    pub(super) const STATUS_LAST: usize = 14;
    pub(super) const CONTENT_TYPE: u8 = 31;
    pub(super) const USER_AGENT: u8 = 58;
}

/// Values of the places 8 to 14.
const STATUSES: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];

/// Status codes of gRPC by their number.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];
const UNKNOWN: u32 = 2;
const DEADLINE_EXCEEDED: u32 = 4;
const PERMISSION_DENIED: u32 = 7;
const UNIMPLEMENTED: u32 = 12;
const INTERNAL: u32 = 13;
const UNAVAILABLE: u32 = 14;
const UNAUTHENTICATED: u32 = 16;

/// Makes one attempt.
pub(super) fn check(host: &str, port: u16, service: &str, timeout: Duration, deadline: Instant) -> ProbeOutcome {
    let address = authority(host, port);
    let within = text::duration(timeout);
    let failed = |why: &dyn std::fmt::Display| {
        ProbeOutcome::Failure(format!("error: failed to connect service at {}: {why}", text::quote(&address)))
    };
    let late = || {
        let address = text::quote(&address);
        ProbeOutcome::Failure(format!(
            "timeout: failed to connect service {address} within {within}: context deadline exceeded"
        ))
    };
    let mut call = match Conn::open(host, port, deadline) {
        Ok(conn) => Call::new(conn),
        Err(error) if error.is_timeout => return late(),
        Err(error) => return failed(&error),
    };
    // Whoever speaks HTTP/2 begins with its settings.
    match call.begin(&address, service, deadline) {
        Ok(()) => {}
        Err(error) if is_timeout(&error) => return late(),
        Err(error) => return failed(&plain(&error)),
    }
    let status = match call.finish() {
        Ok(status) => status,
        Err(error) if is_timeout(&error) => Status { code: DEADLINE_EXCEEDED, message: String::new() },
        Err(error) => Status { code: UNAVAILABLE, message: plain(&error) },
    };
    match status.code {
        0 => {}
        UNIMPLEMENTED => {
            let message = status.message;
            return ProbeOutcome::Failure(format!(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}"
            ));
        }
        DEADLINE_EXCEEDED => {
            return ProbeOutcome::Failure(format!("timeout: health rpc did not complete within {within}"));
        }
        _ => return ProbeOutcome::Failure(format!("error: health rpc probe failed: {}", status.text())),
    }
    match serving(&call.body) {
        Ok("SERVING") => ProbeOutcome::Success,
        Ok(other) => ProbeOutcome::Failure(format!("service unhealthy (responded with {})", text::quote(other))),
        Err(why) => {
            let status = Status { code: INTERNAL, message: why.to_owned() };
            ProbeOutcome::Failure(format!("error: health rpc probe failed: {}", status.text()))
        }
    }
}

/// How a call ended.
#[derive(Debug, PartialEq, Eq)]
struct Status {
    code: u32,
    message: String,
}

impl Status {
    fn text(&self) -> String {
        let code = usize::try_from(self.code).ok().and_then(|code| CODES.get(code));
        let code = code.map_or_else(|| format!("Code({})", self.code), |code| (*code).to_owned());
        format!("rpc error: code = {code} desc = {}", self.message)
    }

    /// What an HTTP status means for a call.
    fn of_http(status: u16) -> Self {
        let code = match status {
            400 => INTERNAL,
            401 => UNAUTHENTICATED,
            403 => PERMISSION_DENIED,
            404 => UNIMPLEMENTED,
            429 | 502 | 503 | 504 => UNAVAILABLE,
            _ => UNKNOWN,
        };
        Self { code, message: format!("unexpected HTTP status code received from server: {status}") }
    }
}

/// One call on a connection of its own.
struct Call {
    conn: Conn,
    /// Frames that were read and not looked at.
    input: Vec<u8>,
    /// A head that comes in pieces, and whether the call ends with it.
    head: Option<(Vec<u8>, bool)>,
    http: Option<u16>,
    grpc: Option<u32>,
    message: String,
    body: Vec<u8>,
}

fn bad(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

impl Call {
    fn new(conn: Conn) -> Self {
        let (input, head, message, body) = (Vec::new(), None, String::new(), Vec::new());
        Self { conn, input, head, http: None, grpc: None, message, body }
    }

    /// Says everything that there is to say, and hears that the other side speaks HTTP/2.
    fn begin(&mut self, address: &str, service: &str, deadline: Instant) -> io::Result<()> {
        let mut out = PREFACE.to_vec();
        // No header table, no pushes.
        http2::settings(&mut out, &[(1, 0), (2, 0)]);
        let mut block = vec![NO_TABLE, 0x80 | place::METHOD_POST, 0x80 | place::SCHEME_HTTP];
        hpack::placed(&mut block, place::PATH, "/grpc.health.v1.Health/Check", false);
        hpack::placed(&mut block, place::AUTHORITY, address, false);
        hpack::placed(&mut block, place::CONTENT_TYPE, "application/grpc", false);
        hpack::placed(&mut block, place::USER_AGENT, USER_AGENT, false);
        hpack::named(&mut block, "te", "trailers");
        let left = deadline.saturating_duration_since(Instant::now()).as_millis();
        hpack::named(&mut block, "grpc-timeout", &format!("{left}m"));
        let message = request(service);
        if block.len() > MAX_FRAME || message.len() > MAX_FRAME {
            return Err(bad("the name of the service is too long"));
        }
        http2::frame(&mut out, kind::HEADERS, flag::END_HEADERS, STREAM, &block);
        http2::frame(&mut out, kind::DATA, flag::END_STREAM, STREAM, &message);
        self.conn.write_all(&out)?;
        let (head, payload) = self.frame()?;
        if head.kind != kind::SETTINGS || head.stream != 0 {
            return Err(bad("the server does not speak HTTP/2"));
        }
        self.take(head, &payload).map(drop)
    }

    /// Hears the answer to its end.
    fn finish(&mut self) -> io::Result<Status> {
        loop {
            let (head, payload) = self.frame()?;
            if let Some(status) = self.take(head, &payload)? {
                return Ok(status);
            }
        }
    }

    /// The next frame.
    fn frame(&mut self) -> io::Result<(FrameHead, Vec<u8>)> {
        let head = loop {
            if let Some(head) = self.input.first_chunk::<FRAME_HEAD>() {
                break FrameHead::read(*head);
            }
            self.fill()?;
        };
        if head.length > MAX_FRAME {
            return Err(bad("the server does not speak HTTP/2"));
        }
        while self.input.len() < FRAME_HEAD + head.length {
            self.fill()?;
        }
        let rest = self.input.split_off(FRAME_HEAD + head.length);
        let frame = std::mem::replace(&mut self.input, rest);
        Ok((head, frame[FRAME_HEAD..].to_vec()))
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        match self.conn.read(&mut buffer)? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "error reading from server: EOF")),
            read => {
                self.input.extend(&buffer[..read]);
                Ok(())
            }
        }
    }

    /// Takes a frame; gives the status once the call is over.
    fn take(&mut self, head: FrameHead, payload: &[u8]) -> io::Result<Option<Status>> {
        let FrameHead { kind, flags, stream, .. } = head;
        let ends = flags & flag::END_STREAM != 0;
        let mut answer = Vec::new();
        match kind {
            kind::HEADERS if stream == STREAM => {
                let block = http2::header_block(flags, payload).map_err(bad)?.to_vec();
                return self.take_block(block, ends, flags);
            }
            kind::CONTINUATION if stream == STREAM => {
                let (mut block, ends) = self.head.take().ok_or_else(|| bad("a head without a begin"))?;
                block.extend(payload);
                return self.take_block(block, ends, flags);
            }
            kind::DATA if stream == STREAM => {
                self.body.extend(http2::unpad(flags, payload).map_err(bad)?);
                if self.body.len() > MAX_ANSWER {
                    return Err(bad("the answer is too long"));
                }
                return Ok(ends.then(|| self.status()));
            }
            kind::RST_STREAM if stream == STREAM => {
                let code = payload.first_chunk::<4>().map_or(0, |code| u32::from_be_bytes(*code));
                let message = format!("stream terminated by RST_STREAM with error code: {code}");
                return Ok(Some(Status { code: INTERNAL, message }));
            }
            kind::GOAWAY if payload.first_chunk::<4>().is_none_or(|last| u32::from_be_bytes(*last) < STREAM) => {
                return Ok(Some(Status { code: UNAVAILABLE, message: "the server is going away".to_owned() }));
            }
            kind::SETTINGS if flags & flag::ACK == 0 => {
                http2::frame(&mut answer, kind::SETTINGS, flag::ACK, 0, &[]);
            }
            kind::PING if flags & flag::ACK == 0 => http2::frame(&mut answer, kind::PING, flag::ACK, 0, payload),
            _ => {}
        }
        self.conn.write_all(&answer)?;
        Ok(None)
    }

    fn take_block(&mut self, block: Vec<u8>, ends: bool, flags: u8) -> io::Result<Option<Status>> {
        if block.len() > MAX_ANSWER {
            return Err(bad("the answer's head is too long"));
        }
        if flags & flag::END_HEADERS == 0 {
            self.head = Some((block, ends));
            return Ok(None);
        }
        for field in Fields::of(&block) {
            let field = field.map_err(bad)?;
            let value = || field.value.and_then(|value| value.read());
            match field.place {
                place::STATUS_FIRST..=place::STATUS_LAST => {
                    let known = STATUSES.get(field.place - place::STATUS_FIRST).copied();
                    self.http = if field.value.is_none() { known } else { value().and_then(|code| code.parse().ok()) };
                }
                0 => match field.name.read().as_deref() {
                    Some("grpc-status") => self.grpc = value().and_then(|code| code.parse().ok()),
                    Some("grpc-message") => self.message = unescape(&value().unwrap_or_default()),
                    _ => {}
                },
                _ => {}
            }
        }
        Ok(ends.then(|| self.status()))
    }

    fn status(&mut self) -> Status {
        match (self.grpc, self.http) {
            (Some(code), _) => Status { code, message: std::mem::take(&mut self.message) },
            (None, Some(http)) if http != 200 => Status::of_http(http),
            (None, _) => {
                let message = "server closed the stream without sending trailers".to_owned();
                Status { code: INTERNAL, message }
            }
        }
    }
}

/// `HealthCheckRequest{service}` with the five bytes that go before each message.
fn request(service: &str) -> Vec<u8> {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            message.push(u8::try_from(length & 0x7f).unwrap_or(0) | 0x80);
            length >>= 7;
        }
        message.push(u8::try_from(length).unwrap_or(0));
        message.extend(service.as_bytes());
    }
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0], &length[..], &message].concat()
}

/// The status of a `HealthCheckResponse`, as its enumeration calls it.
fn serving(body: &[u8]) -> Result<&'static str, &'static str> {
    let (head, message) = body.split_first_chunk::<5>().ok_or("the answer is empty")?;
    let [packed, length @ ..] = *head;
    if packed != 0 {
        return Err("the answer is compressed, and nobody agreed on that");
    }
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    let mut rest = message.get(..length).ok_or("the answer breaks off")?;
    let mut status = 0;
    while !rest.is_empty() {
        let tag = varint(&mut rest)?;
        match tag & 7 {
            0 => {
                let value = varint(&mut rest)?;
                if tag >> 3 == 1 {
                    status = value;
                }
            }
            // Whatever other versions have to say.
            1 => rest = rest.get(8..).ok_or("the answer breaks off")?,
            2 => {
                let skipped = usize::try_from(varint(&mut rest)?).unwrap_or(usize::MAX);
                rest = rest.get(skipped..).ok_or("the answer breaks off")?;
            }
            5 => rest = rest.get(4..).ok_or("the answer breaks off")?,
            _ => return Err("the answer is no HealthCheckResponse"),
        }
    }
    Ok(match status {
        0 => "UNKNOWN",
        1 => "SERVING",
        2 => "NOT_SERVING",
        3 => "SERVICE_UNKNOWN",
        _ => "a status that is not known",
    })
}

fn varint(rest: &mut &[u8]) -> Result<u64, &'static str> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or("the answer breaks off")?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("the answer is no HealthCheckResponse")
}

/// The text of a `grpc-message`, in which `%20` stands for a byte.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = after.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
#[path = "grpc_tests.rs"]
mod tests;

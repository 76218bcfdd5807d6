//! A client for the sessions of a runtime's streaming server: as much of SPDY/3.1 as `exec` needs. Runs on
//! the main thread; one more thread, `exec-stdin`, reads standard input while there is some to read.
//!
//! SPDY and not WebSockets, because only there the end of standard input can be told, and every runtime
//! speaks it ([`crate::util::spdy`]). It trusts the server with no more than the streams' bytes, each frame
//! bounded by its 24-bit length.

use crate::util::resolve::addresses;
use crate::util::spdy::stream::{ERROR, RESIZE, STDERR, STDIN, STDOUT};
use crate::util::spdy::{Control, FrameHead, HEAD, data, open_session, ping};
use crate::util::thread::{JoinHandle, StackSize, spawn};
use serde::Deserialize;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const PROTOCOL: &str = "v4.channel.k8s.io";
/// Time for the connection and for the server's hello.
const HELLO_TIME: Duration = Duration::from_secs(10);
/// Lines of the server's hello.
const HELLO_LINES: usize = 64;
/// Bytes of the server's hello.
const HELLO_LIMIT: u64 = 16 << 10;
/// Most bytes of the closing status.
const STATUS_LIMIT: usize = 64 << 10;

/// One frame from the server.
#[derive(Debug, PartialEq, Eq)]
enum Frame {
    /// Bytes of a stream, perhaps its last.
    Data { id: u32, last: bool, bytes: Vec<u8> },
    /// Something about streams or the connection.
    Control(Control),
}

/// The next frame; `None` at the end of the connection.
fn read_frame(from: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut head = [0; HEAD];
    match from.read_exact(&mut head) {
        Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
            return Ok(None);
        }
        other => other?,
    }
    let head = FrameHead::read(head);
    let (FrameHead::Data { length, .. } | FrameHead::Control { length, .. }) = head;
    let mut payload = Vec::new();
    from.take(length as u64).read_to_end(&mut payload)?;
    if payload.len() < length {
        return Ok(None);
    }
    Ok(Some(match head {
        FrameHead::Data { id, last, .. } => Frame::Data { id, last, bytes: payload },
        FrameHead::Control { kind, .. } => Frame::Control(Control::read(kind, &payload)),
    }))
}

/// Tells columns and rows of the terminal, if there is one.
type Size = fn() -> Option<(u16, u16)>;

/// What joins a session on our side.
pub(super) struct Ends<'a> {
    /// Standard input, if the session has one.
    pub(super) stdin: Option<Box<dyn Read + Send>>,
    /// Whether there is a terminal; then there is no standard error.
    pub(super) tty: bool,
    /// The size of the terminal in columns and rows, looked at before each piece of input.
    pub(super) size: Size,
    /// Standard output.
    pub(super) stdout: &'a mut dyn Write,
    /// Standard error.
    pub(super) stderr: &'a mut dyn Write,
}

/// Why there was no session, or no end of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It did not begin: something else may be tried.
    NoSession(String),
    /// It broke off, or the command could not be run.
    Broken(String),
}

/// Runs a session to its end; answers the command's exit code.
pub(super) fn run(url: &str, mut ends: Ends<'_>) -> Result<i32, Trouble> {
    let no_session = |error: io::Error| Trouble::NoSession(format!("no session at {url}: {error}"));
    let broken = |error: io::Error| Trouble::Broken(format!("the session broke off: {error}"));
    let (stream, mut reader) = connect(url).map_err(no_session)?;
    let writer = Arc::new(Mutex::new(stream));
    let send = |bytes: &[u8]| lock(&writer).write_all(bytes);
    let opened = open_session(ends.stdin.is_some(), true, true, ends.tty);
    send(&opened).map_err(broken)?;
    let mut status = Vec::new();
    let mut input: Option<JoinHandle<()>> = None;
    while let Some(frame) = read_frame(&mut reader).map_err(broken)? {
        match frame {
            Frame::Data { id: ERROR, last, bytes } => {
                let room = STATUS_LIMIT.saturating_sub(status.len());
                status.extend_from_slice(&bytes[..bytes.len().min(room)]);
                if last {
                    break;
                }
            }
            // Whoever reads our output may have gone; the command's exit code still counts.
            Frame::Data { id: STDOUT, bytes, .. } => drop(put(ends.stdout, &bytes)),
            Frame::Data { id: STDERR, bytes, .. } => drop(put(ends.stderr, &bytes)),
            Frame::Data { .. } | Frame::Control(Control::Other) => {}
            // Input that comes before this would be lost.
            Frame::Control(Control::Reply(STDIN)) => {
                if let Some(stdin) = ends.stdin.take() {
                    let (writer, size) = (Arc::clone(&writer), ends.tty.then_some(ends.size));
                    let pump = move || pump(stdin, &writer, size);
                    input = Some(spawn("exec-stdin", StackSize::Small, pump).map_err(broken)?);
                }
            }
            Frame::Control(Control::Reply(RESIZE)) => send_size(&mut lock(&writer), (ends.size)()).map_err(broken)?,
            Frame::Control(Control::Reply(_)) => {}
            Frame::Control(Control::Reset(ERROR)) => break,
            Frame::Control(Control::Reset(_)) => {}
            Frame::Control(Control::Ping(number)) if number % 2 == 0 => send(&ping(number)).map_err(broken)?,
            Frame::Control(Control::Ping(_)) => {}
        }
    }
    if let Some(input) = input {
        // It may wait for a key that nobody presses any more; the process ends soon.
        input.abandon();
    }
    exit_code(&status)
}

fn lock(writer: &Mutex<TcpStream>) -> std::sync::MutexGuard<'_, TcpStream> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

fn put(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(bytes).and_then(|()| out.flush())
}

/// Copies standard input to its end. When the session is over nobody takes it any more.
fn pump(mut stdin: Box<dyn Read + Send>, writer: &Mutex<TcpStream>, size: Option<Size>) {
    let mut told = size.and_then(|size| size());
    let mut block = [0; 8192];
    loop {
        let count = match stdin.read(&mut block) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => 0,
            Ok(count) => count,
        };
        let now = size.and_then(|size| size());
        let mut writer = lock(writer);
        if now != told && send_size(&mut writer, now).is_ok() {
            told = now;
        }
        if writer.write_all(&data(STDIN, &block[..count], count == 0)).is_err() || count == 0 {
            return;
        }
    }
}

fn send_size(writer: &mut TcpStream, size: Option<(u16, u16)>) -> io::Result<()> {
    let Some((columns, rows)) = size else { return Ok(()) };
    let text = format!("{{\"Width\":{columns},\"Height\":{rows}}}\n");
    writer.write_all(&data(RESIZE, text.as_bytes(), false))
}

/// Connects and has the connection changed to SPDY.
fn connect(url: &str) -> io::Result<(TcpStream, BufReader<TcpStream>)> {
    let other = |message: String| io::Error::other(message);
    let rest = url.strip_prefix("http://").ok_or_else(|| other("it is not served in plain HTTP".to_owned()))?;
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if url.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(other("that is no URL".to_owned()));
    }
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => {
            (name, port.parse().map_err(|_| other(format!("{host} names no port")))?)
        }
        _ => (host, 80),
    };
    let address =
        addresses(name, port, HELLO_TIME)?.into_iter().next().ok_or_else(|| other(format!("{host} has no address")))?;
    let mut stream = TcpStream::connect_timeout(&address, HELLO_TIME)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(HELLO_TIME))?;
    let path = if path.is_empty() { "/" } else { path };
    let hello = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
         X-Stream-Protocol-Version: {PROTOCOL}\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(hello.as_bytes())?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut lines = Vec::new();
    let mut hello = (&mut reader).take(HELLO_LIMIT);
    for _ in 0..HELLO_LINES {
        let mut line = String::new();
        hello.read_line(&mut line)?;
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_ascii_lowercase()),
        }
    }
    let status = lines.first().cloned().unwrap_or_default();
    if status.split(' ').nth(1) != Some("101") {
        return Err(other(format!("the runtime answered {status:?}")));
    }
    if !lines.contains(&format!("x-stream-protocol-version: {PROTOCOL}")) {
        return Err(other(format!("the runtime does not speak {PROTOCOL}")));
    }
    stream.set_read_timeout(None)?;
    Ok((stream, reader))
}

/// The closing status, a Kubernetes `Status`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    status: String,
    message: String,
    reason: String,
    details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    causes: Vec<Cause>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
    message: String,
}

fn exit_code(status: &[u8]) -> Result<i32, Trouble> {
    let told: Status = serde_json::from_slice(status)
        .map_err(|_| Trouble::Broken("the session ended without telling how the command did".to_owned()))?;
    if told.status == "Success" {
        return Ok(0);
    }
    let code = told.details.causes.iter().find(|cause| cause.reason == "ExitCode");
    match code.and_then(|cause| cause.message.parse().ok()) {
        Some(code) if told.reason == "NonZeroExitCode" => Ok(code),
        _ => Err(Trouble::Broken(told.message)),
    }
}

#[cfg(test)]
mod tests;

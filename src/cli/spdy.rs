//! A client for the sessions of a runtime's streaming server: as much of SPDY/3.1 as `exec` needs. Runs on
//! the main thread; one more thread, `exec-stdin`, reads standard input while there is some to read.
//!
//! SPDY and not WebSockets, because only there the end of standard input can be told, and every runtime
//! speaks it. Nothing is compressed: header blocks go out as stored deflate blocks, those that come in
//! carry nothing of interest. It trusts the server with no more than the streams' bytes, each frame
//! bounded by its 24-bit length.

use crate::util::thread::{JoinHandle, StackSize, spawn};
use serde::Deserialize;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
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
/// Header of a zlib stream with a preset dictionary, and the checksum of SPDY/3's.
const ZLIB_START: [u8; 6] = [0x78, 0xbb, 0xe3, 0xc6, 0xa7, 0xc2];

/// The streams of a session, by their ids. A client's are odd.
const ERROR: u32 = 1;
const STDIN: u32 = 3;
const STDOUT: u32 = 5;
const STDERR: u32 = 7;
const RESIZE: u32 = 9;

/// One frame from the server.
#[derive(Debug, PartialEq, Eq)]
enum Frame {
    /// Bytes of a stream, perhaps its last.
    Data { id: u32, last: bool, bytes: Vec<u8> },
    /// The server takes a stream.
    Reply(u32),
    /// The server ends a stream.
    Reset(u32),
    /// To be sent back if its number is even.
    Ping(u32),
    /// Something that needs no answer.
    Other,
}

fn frame(first: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    // invariant: what is sent is cut into blocks far below the 24 bits of a length.
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX) & 0x00ff_ffff;
    let mut out = first.to_be_bytes().to_vec();
    out.extend(((u32::from(flags) << 24) | length).to_be_bytes());
    out.extend(payload);
    out
}

fn control(kind: u16, payload: &[u8]) -> Vec<u8> {
    frame(0x8003_0000 | u32::from(kind), 0, payload)
}

/// Opens a stream for `purpose`. The header blocks of a connection are one zlib stream, which starts with
/// the first of them.
fn open_stream(id: u32, purpose: &str, is_first: bool) -> Vec<u8> {
    let mut headers = 1u32.to_be_bytes().to_vec();
    for word in ["streamtype", purpose] {
        headers.extend(u32::try_from(word.len()).unwrap_or(0).to_be_bytes());
        headers.extend(word.as_bytes());
    }
    let mut payload = id.to_be_bytes().to_vec();
    // No associated stream, no priority.
    payload.extend([0; 6]);
    if is_first {
        payload.extend(ZLIB_START);
    }
    // invariant: a purpose is one of our few short words.
    let length = u16::try_from(headers.len()).unwrap_or(0);
    payload.push(0);
    payload.extend(length.to_le_bytes());
    payload.extend((!length).to_le_bytes());
    payload.extend(headers);
    // An empty block makes the reader hand out what it has.
    payload.extend([0, 0, 0, 0xff, 0xff]);
    control(1, &payload)
}

fn data(id: u32, bytes: &[u8], last: bool) -> Vec<u8> {
    frame(id, u8::from(last), bytes)
}

/// The next frame; `None` at the end of the connection.
fn read_frame(from: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut head = [0; 8];
    match from.read_exact(&mut head) {
        Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
            return Ok(None);
        }
        other => other?,
    }
    let [a, b, c, d, flags, e, f, g] = head;
    let (first, length) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([0, e, f, g]));
    let mut payload = Vec::new();
    from.take(length.into()).read_to_end(&mut payload)?;
    if payload.len() < usize::try_from(length).unwrap_or(usize::MAX) {
        return Ok(None);
    }
    if first >> 31 == 0 {
        return Ok(Some(Frame::Data { id: first, last: flags & 1 != 0, bytes: payload }));
    }
    let number = payload.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes));
    Ok(Some(match (first & 0xffff, number) {
        (2, Some(id)) => Frame::Reply(id & 0x7fff_ffff),
        (3, Some(id)) => Frame::Reset(id & 0x7fff_ffff),
        (6, Some(number)) => Frame::Ping(number),
        _ => Frame::Other,
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
    let mut opened = open_stream(ERROR, "error", true);
    if ends.stdin.is_some() {
        opened.extend(open_stream(STDIN, "stdin", false));
    }
    opened.extend(open_stream(STDOUT, "stdout", false));
    if ends.tty {
        opened.extend(open_stream(RESIZE, "resize", false));
    } else {
        opened.extend(open_stream(STDERR, "stderr", false));
    }
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
            Frame::Data { .. } | Frame::Other => {}
            // Input that comes before this would be lost.
            Frame::Reply(STDIN) => {
                if let Some(stdin) = ends.stdin.take() {
                    let (writer, size) = (Arc::clone(&writer), ends.tty.then_some(ends.size));
                    let pump = move || pump(stdin, &writer, size);
                    input = Some(spawn("exec-stdin", StackSize::Small, pump).map_err(broken)?);
                }
            }
            Frame::Reply(RESIZE) => send_size(&mut lock(&writer), (ends.size)()).map_err(broken)?,
            Frame::Reply(_) => {}
            Frame::Reset(ERROR) => break,
            Frame::Reset(_) => {}
            Frame::Ping(number) if number % 2 == 0 => send(&control(6, &number.to_be_bytes())).map_err(broken)?,
            Frame::Ping(_) => {}
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
    let address = host.to_socket_addrs()?.next().ok_or_else(|| other(format!("{host} has no address")))?;
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

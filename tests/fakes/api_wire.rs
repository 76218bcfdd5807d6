//! HTTP/1.1 as the fake API server speaks it: plain or TLS, one request after another on a connection.
//!
//! Used on the threads of its connections; owns one connection. Answers are written piece by piece, so that a fault can
//! strike at any byte.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Longest request.
const MAX_REQUEST: usize = 8 << 20;

/// A connection of either kind.
pub(crate) enum Wire {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path without query.
    pub(crate) path: String,
    /// Query, unescaped.
    pub(crate) query: BTreeMap<String, String>,
    /// Header fields, names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
    /// The DER of the client's certificate, if it showed one.
    pub(crate) certificate: Option<Vec<u8>>,
}

impl Request {
    /// `GET /api/v1/pods?watch` for lists of calls: queries that only say how are left out.
    pub(crate) fn short(&self) -> String {
        let watch = if self.query.contains_key("watch") { "?watch" } else { "" };
        format!("{} {}{watch}", self.method, self.path)
    }
}

impl Wire {
    pub(crate) fn new(socket: TcpStream, tls: Option<&Arc<ServerConfig>>) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        match tls {
            None => Ok(Self::Plain(socket)),
            Some(config) => {
                let connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
                Ok(Self::Tls(Box::new(StreamOwned::new(connection, socket))))
            }
        }
    }

    /// The next request; `None` when the client is done.
    pub(crate) fn request(&mut self) -> io::Result<Option<Request>> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            match self.read(&mut byte) {
                Ok(0) if head.is_empty() => return Ok(None),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => head.push(byte[0]),
                Err(_) if head.is_empty() => return Ok(None),
                Err(error) => return Err(error),
            }
            if head.len() > MAX_REQUEST {
                return Err(io::Error::other("a request without end"));
            }
        }
        let text = String::from_utf8_lossy(&head).into_owned();
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let mut words = first.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let fields = lines.filter_map(|line| line.split_once(": "));
        let headers: BTreeMap<_, _> = fields.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
        let length = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        if length > MAX_REQUEST {
            return Err(io::Error::other("a body without end"));
        }
        let mut body = vec![0; length];
        self.read_exact(&mut body)?;
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let query = pairs.map(|(name, value)| (unescape(name), unescape(value))).collect();
        let certificate = match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => {
                stream.conn.peer_certificates().and_then(|chain| chain.first()).map(|first| first.as_ref().to_vec())
            }
        };
        Ok(Some(Request { method: method.to_owned(), path: unescape(path), query, headers, body, certificate }))
    }

    /// One whole answer.
    pub(crate) fn answer(&mut self, code: u16, headers: &str, body: &[u8]) -> io::Result<()> {
        let head = format!(
            "HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{headers}\r\n",
            body.len()
        );
        self.write_all(head.as_bytes())?;
        self.write_all(body)?;
        self.flush()
    }

    /// The head of an answer in chunks.
    pub(crate) fn begin_chunks(&mut self) -> io::Result<()> {
        self.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        self.flush()
    }

    /// One chunk; an empty one ends the answer.
    pub(crate) fn chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        self.write_all(&chunk)?;
        self.flush()
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(buffer),
            Self::Tls(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

pub(super) fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let hex = (*first == b'%').then(|| std::str::from_utf8(tail.get(..2)?).ok()).flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

//! Many long answers at once over one connection to the API server: HTTP/2 with a stream for each.
//!
//! Used by one agent thread, which waits in [`Streams::wait`]. Owns the socket. The kernel notices a peer
//! that died, a question after a while of silence one that hangs. Whoever watches hundreds of objects needs no
//! hundreds of connections, and while nothing changes nothing is sent. Only GETs without a body; everything
//! else goes through [`ApiClient::call`].

mod hpack;
mod session;

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConnection;

use super::client::{ApiClient, CONNECT};
use super::dialer::{self, DEAD_AFTER};
use super::error::ApiError;
use super::{paths, tls};
use crate::util::poll::Bell;
use crate::util::tcp::notice_death;
use hpack::Head;
use session::Session;

/// After this silence the server is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(60);
/// Time for its answer.
const ANSWER: Duration = Duration::from_secs(15);
/// Time for a read that the kernel has announced, and for a write.
const IO_LIMIT: Duration = Duration::from_secs(10);

/// What happened to a stream, by the number that [`Streams::open`] gave.
#[derive(Clone, PartialEq, Eq)]
pub enum StreamEvent {
    /// The server said yes; lines follow.
    Began(u32),
    /// One line of the answer, without its end.
    Line(u32, Vec<u8>),
    /// Nothing more comes.
    Ended(u32, StreamEnd),
}

impl fmt::Debug for StreamEvent {
    /// Shows no content: it may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Began(id) => write!(f, "Began({id})"),
            Self::Line(id, line) => write!(f, "Line({id}, {} bytes)", line.len()),
            Self::Ended(id, end) => write!(f, "Ended({id}, {end:?})"),
        }
    }
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The server had no more to say.
    Done,
    /// It did not let the request through.
    Refused {
        /// HTTP status code.
        status: u16,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// It broke the stream off.
    Broken,
}

/// One connection with many streams.
pub struct Streams {
    client: ApiClient,
    socket: TcpStream,
    tls: Box<ClientConnection>,
    session: Session,
    /// When the server was last heard, or asked whether it is there.
    heard_at: Instant,
    authority: String,
    /// The credentials that the connection was made with.
    generation: u64,
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").field("server", &self.client.server()).finish_non_exhaustive()
    }
}

fn broken(message: impl Into<String>) -> ApiError {
    ApiError::Connection { method: "WATCH", path: "/".to_owned(), message: message.into() }
}

impl ApiClient {
    /// A connection for many streams; `None` if the server speaks no HTTP/2.
    ///
    /// # Errors
    /// There is no connection to be had, or there are no credentials.
    pub fn streams(&self) -> Result<Option<Streams>, ApiError> {
        let no = |message| ApiError::Credentials { method: "WATCH", path: "/".to_owned(), message };
        let current = self.shared.credentials.current(&self.shared.stop).map_err(no)?;
        // Without TLS nobody agrees on HTTP/2.
        let Some(config) = current.tls else { return Ok(None) };
        let access = self.shared.credentials.access();
        let name = tls::server_name(access.tls_server_name.as_deref().unwrap_or(&access.host)).map_err(no)?;
        let mut config = (*config).clone();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let generation = current.generation;
        let authority = access.origin.trim_start_matches("https://").to_owned();
        let socket = dialer::socket(&authority, access.proxy.as_ref(), CONNECT).map_err(broken)?;
        let prepared = || -> io::Result<()> {
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(IO_LIMIT))?;
            socket.set_write_timeout(Some(IO_LIMIT))
        };
        prepared().map_err(|error| broken(error.to_string()))?;
        // Best effort: the question after a silence is the other way.
        let _unsupported = notice_death(&socket, DEAD_AFTER);
        let failed = |message: String| ApiError::Tls { method: "WATCH", path: "/".to_owned(), message };
        let mut tls = ClientConnection::new(Arc::new(config), name).map_err(|e| failed(e.to_string()))?;
        while tls.is_handshaking() {
            tls.complete_io(&mut &socket).map_err(|error| failed(error.to_string()))?;
        }
        if tls.alpn_protocol() != Some(b"h2".as_slice()) {
            return Ok(None);
        }
        let client = self.clone();
        let session = Session::new();
        let heard_at = Instant::now();
        let mut streams = Streams { client, socket, tls: Box::new(tls), session, heard_at, authority, generation };
        streams.send()?;
        Ok(Some(streams))
    }
}

impl Streams {
    /// Whether the server takes another stream.
    pub fn has_room(&self) -> bool {
        self.session.has_room()
    }

    /// Asks for something; gives the number by which its events are known. `path` is escaped, `query` is not.
    ///
    /// # Errors
    /// The connection is of no more use, or there are no credentials.
    pub fn open(&mut self, path: &str, query: &[(&str, &str)]) -> Result<u32, ApiError> {
        let authorization = self.authorization(path)?;
        let shared = &self.client.shared;
        let access = shared.credentials.access();
        let path = format!("{}{path}{}", access.prefix, paths::query(query.iter().copied()));
        let head = Head {
            authority: &self.authority,
            path: &path,
            user_agent: &shared.user_agent,
            authorization: authorization.as_deref(),
        };
        let id = self.session.open(&head);
        self.send()?;
        Ok(id)
    }

    /// The Authorization header, if the connection is still one of the credentials in force.
    fn authorization(&self, path: &str) -> Result<Option<String>, ApiError> {
        let no = |message| ApiError::Credentials { method: "WATCH", path: path.to_owned(), message };
        let shared = &self.client.shared;
        let current = shared.credentials.current(&shared.stop).map_err(no)?;
        if current.generation == self.generation {
            return Ok(current.authorization);
        }
        Err(broken("the credentials changed"))
    }

    /// Gives a stream up; no more is told of it.
    ///
    /// # Errors
    /// The connection is of no more use.
    pub fn close(&mut self, id: u32) -> Result<(), ApiError> {
        self.session.close(id);
        self.send()
    }

    /// Waits for news of the streams; returns without any when the bell rings, at `until`, and sometimes for
    /// nothing.
    ///
    /// # Errors
    /// The connection is of no more use: all its streams have ended.
    pub fn wait(&mut self, bell: &Bell, until: Option<Instant>) -> Result<Vec<StreamEvent>, ApiError> {
        // What came along with the handshake is in the TLS buffers already.
        let events = self.drain()?;
        if !events.is_empty() {
            return Ok(events);
        }
        let patience = if self.session.pinged { ANSWER } else { SILENCE };
        let check_at = self.heard_at + patience;
        let wake_at = until.map_or(check_at, |until| until.min(check_at));
        let [is_readable] =
            bell.wait([self.socket.as_fd()], Some(wake_at)).map_err(|error| broken(error.to_string()))?;
        if is_readable {
            match self.tls.read_tls(&mut self.socket) {
                Ok(0) => return Err(broken("the API server closed the connection")),
                Ok(_) => self.heard_at = Instant::now(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(error.to_string())),
            }
            return self.drain();
        }
        if Instant::now() >= check_at {
            if self.session.pinged {
                return Err(broken(format!("the API server does not answer within {ANSWER:?}")));
            }
            let _still_in_force = self.authorization("/")?;
            self.session.ping();
            self.heard_at = Instant::now();
            self.send()?;
        }
        Ok(Vec::new())
    }

    /// Takes what TLS has unpacked.
    fn drain(&mut self) -> Result<Vec<StreamEvent>, ApiError> {
        self.tls.process_new_packets().map_err(|error| broken(error.to_string()))?;
        let mut events = Vec::new();
        let mut buffer = [0; 8 * 1024];
        loop {
            match self.tls.reader().read(&mut buffer) {
                Ok(0) => return Err(broken("the API server closed the connection")),
                Ok(read) => events.extend(self.session.take(&buffer[..read]).map_err(broken)?),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(broken(error.to_string())),
            }
        }
        self.send()?;
        Ok(events)
    }

    fn send(&mut self) -> Result<(), ApiError> {
        let output = self.session.output();
        let mut stream = rustls::Stream::new(&mut *self.tls, &mut self.socket);
        let sent = if output.is_empty() { Ok(()) } else { stream.write_all(&output) };
        sent.and_then(|()| stream.flush()).map_err(|error| broken(error.to_string()))
    }
}

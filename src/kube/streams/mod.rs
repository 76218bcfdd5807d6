//! Many long answers at once over one connection to the API server: HTTP/2 with a stream for each.
//!
//! Used by one agent thread, which waits in [`Streams::wait`], or in [`wait_any`] with several connections. Owns
//! the socket. The kernel notices a peer that died, a question after a while of silence one that hangs
//! ([`Patience`]). Whoever watches hundreds of objects needs no hundreds of connections, and while nothing changes
//! nothing else is sent. Only GETs without a body; everything else goes through [`ApiClient::call`].

mod hpack;
mod session;

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use rustls::ClientConnection;

use super::client::{ApiClient, CONNECT};
use super::dialer::{self, DEAD_AFTER};
use super::error::{ApiError, Status};
use super::{paths, tls};
use crate::util::cancel::Cancel;
use crate::util::poll::Bell;
use crate::util::tcp::notice_death;
use hpack::Head;
use session::Session;

/// How long a silent server is trusted. Both together are the longest time for which one that hangs is not noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// After this silence it is asked whether it is there.
    pub silence: Duration,
    /// Time for its answer.
    pub answer: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { silence: Duration::from_secs(20), answer: Duration::from_secs(10) }
    }
}

/// For how long a server that speaks no HTTP/2 is taken for such.
pub const NO_STREAMS_FOR: Duration = Duration::from_secs(3600);
/// Time for a read that the kernel has announced, and for a write.
const IO_LIMIT: Duration = Duration::from_secs(10);
const METHOD: &str = "WATCH";

/// What happened to a stream, by the number that [`Streams::open`] gave.
#[derive(Clone, PartialEq)]
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
#[derive(Clone, Debug, PartialEq)]
pub enum StreamEnd {
    /// The server had no more to say.
    Done,
    /// It did not let the request through.
    Refused(Box<Status>),
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
    /// What errors name.
    path: String,
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").field("server", &self.client.server()).finish_non_exhaustive()
    }
}

/// Breaks a handshake off.
struct Breaker(TcpStream);

impl Wake for Breaker {
    fn wake(self: Arc<Self>) {
        // An error means that it is closed already.
        let _closed = self.0.shutdown(Shutdown::Both);
    }
}

impl ApiClient {
    /// A connection for many streams; `None` if the server speaks no HTTP/2. Errors name `path`; a handshake ends when
    /// `cancel` is set.
    ///
    /// # Errors
    /// There is no connection to be had, or there are no credentials.
    pub fn streams(&self, path: &str, cancel: &Cancel) -> Result<Option<Streams>, ApiError> {
        let shared = &self.shared;
        let none_until = *shared.no_streams_until.lock().unwrap_or_else(PoisonError::into_inner);
        if none_until.is_some_and(|until| Instant::now() < until) {
            return Ok(None);
        }
        let broken = |message| ApiError::Connection { method: METHOD, path: path.to_owned(), message };
        let no = |message| ApiError::Credentials { method: METHOD, path: path.to_owned(), message };
        let failed = |message| ApiError::Tls { method: METHOD, path: path.to_owned(), message };
        let current = shared.credentials.current(&shared.stop).map_err(no)?;
        // Without TLS nobody agrees on HTTP/2.
        let Some(config) = current.tls else { return Ok(None) };
        let access = shared.credentials.access();
        let name = tls::server_name(access.tls_server_name.as_deref().unwrap_or(&access.host)).map_err(no)?;
        let mut config = (*config).clone();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let generation = current.generation;
        let authority = access.origin.trim_start_matches("https://").to_owned();
        let socket = dialer::socket(&authority, access.proxy.as_ref(), CONNECT).map_err(broken)?;
        let prepared = || -> io::Result<TcpStream> {
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(IO_LIMIT))?;
            socket.set_write_timeout(Some(IO_LIMIT))?;
            socket.try_clone()
        };
        let breaker = Waker::from(Arc::new(Breaker(prepared().map_err(|error| broken(error.to_string()))?)));
        // Best effort: the question after a silence is the other way.
        let _unsupported = notice_death(&socket, DEAD_AFTER);
        let mut tls = ClientConnection::new(Arc::new(config), name).map_err(|error| failed(error.to_string()))?;
        {
            let _cancelled = cancel.register(breaker.clone());
            let _stopped = shared.stop.register(breaker);
            while tls.is_handshaking() {
                tls.complete_io(&mut &socket).map_err(|error| failed(error.to_string()))?;
            }
        }
        if tls.alpn_protocol() != Some(b"h2".as_slice()) {
            let until = Instant::now().checked_add(NO_STREAMS_FOR);
            *shared.no_streams_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
            return Ok(None);
        }
        let mut streams = Streams {
            client: self.clone(),
            socket,
            tls: Box::new(tls),
            session: Session::new(),
            heard_at: Instant::now(),
            authority,
            generation,
            path: path.to_owned(),
        };
        streams.send()?;
        Ok(Some(streams))
    }
}

/// What a connection has to tell; an error is its end.
pub type Told = Result<Vec<StreamEvent>, ApiError>;

/// Waits for news of the streams of several connections, and tells whose they are. Returns without any when the bell
/// rings, at `until`, and sometimes for nothing. An error ends that connection with all its streams, and no other.
///
/// # Errors
/// The kernel cannot wait.
pub fn wait_any(
    connections: &mut [&mut Streams],
    bell: &Bell,
    until: Option<Instant>,
) -> io::Result<Vec<(usize, Told)>> {
    let is_news = |told: &Told| !matches!(told, Ok(events) if events.is_empty());
    // What came along with the handshake is in the TLS buffers already.
    let told = connections.iter_mut().map(|one| one.drain()).enumerate().filter(|(_, told)| is_news(told));
    let told: Vec<_> = told.collect();
    if !told.is_empty() {
        return Ok(told);
    }
    let wake_at = connections.iter().map(|one| one.check_at()).chain(until).min();
    let sockets: Vec<_> = connections.iter().map(|one| one.socket.as_fd()).collect();
    let readable = bell.wait_any(&sockets, wake_at)?;
    let now = Instant::now();
    let told = connections.iter_mut().zip(readable).map(|(one, is_readable)| match is_readable {
        true => one.read(),
        false if now >= one.check_at() => one.ask().map(|()| Vec::new()),
        false => Ok(Vec::new()),
    });
    Ok(told.enumerate().filter(|(_, told)| is_news(told)).collect())
}

impl Streams {
    /// Whether the server takes another stream.
    pub fn has_room(&self) -> bool {
        self.session.has_room()
    }

    /// Whether the server has said that it will go, and only ends what it has begun.
    pub fn is_leaving(&self) -> bool {
        self.session.is_leaving
    }

    /// Whether it was made with credentials that are not in force any more.
    pub fn is_outdated(&self) -> bool {
        self.client.shared.credentials.generation() != self.generation
    }

    /// Asks for something; gives the number by which its events are known. `path` is escaped, `query` is not.
    ///
    /// # Errors
    /// The connection is of no more use, or there are no credentials.
    pub fn open(&mut self, path: &str, query: &[(&str, &str)]) -> Result<u32, ApiError> {
        let no = |message| ApiError::Credentials { method: METHOD, path: path.to_owned(), message };
        let shared = &self.client.shared;
        let current = shared.credentials.current(&shared.stop).map_err(no)?;
        if current.generation != self.generation {
            return Err(self.outdated());
        }
        let access = shared.credentials.access();
        let path = format!("{}{path}{}", access.prefix, paths::query(query.iter().copied()));
        let head = Head {
            authority: &self.authority,
            path: &path,
            user_agent: &shared.user_agent,
            authorization: current.authorization.as_deref(),
        };
        let id = self.session.open(&head);
        self.send()?;
        Ok(id)
    }

    fn broken(&self, message: impl Into<String>) -> ApiError {
        ApiError::Connection { method: METHOD, path: self.path.clone(), message: message.into() }
    }

    fn outdated(&self) -> ApiError {
        self.broken("the credentials changed")
    }

    /// Gives a stream up; no more is told of it.
    ///
    /// # Errors
    /// The connection is of no more use.
    pub fn close(&mut self, id: u32) -> Result<(), ApiError> {
        self.session.close(id);
        self.send()
    }

    /// [`wait_any`] with this connection alone.
    ///
    /// # Errors
    /// The connection is of no more use: all its streams have ended.
    pub fn wait(&mut self, bell: &Bell, until: Option<Instant>) -> Result<Vec<StreamEvent>, ApiError> {
        let told = wait_any(&mut [&mut *self], bell, until);
        let told = told.map_err(|error| self.broken(error.to_string()))?;
        told.into_iter().next().map_or_else(|| Ok(Vec::new()), |(_, told)| told)
    }

    /// When the silence has lasted too long.
    fn check_at(&self) -> Instant {
        let patience = self.client.shared.patience;
        self.heard_at + if self.session.pinged { patience.answer } else { patience.silence }
    }

    /// Reads what the kernel has announced.
    fn read(&mut self) -> Result<Vec<StreamEvent>, ApiError> {
        match self.tls.read_tls(&mut self.socket) {
            Ok(0) => return Err(self.broken("the API server closed the connection")),
            Ok(_) => self.heard_at = Instant::now(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(self.broken(error.to_string())),
        }
        self.drain()
    }

    /// Asks whether the server is there, or finds that it has not answered.
    fn ask(&mut self) -> Result<(), ApiError> {
        if self.session.pinged {
            let limit = self.client.shared.patience.answer;
            return Err(self.broken(format!("the API server does not answer within {limit:?}")));
        }
        if self.is_outdated() {
            return Err(self.outdated());
        }
        self.session.ping();
        self.heard_at = Instant::now();
        self.send()
    }

    /// Takes what TLS has unpacked.
    fn drain(&mut self) -> Result<Vec<StreamEvent>, ApiError> {
        self.tls.process_new_packets().map_err(|error| self.broken(error.to_string()))?;
        let mut events = Vec::new();
        let mut buffer = [0; 8 * 1024];
        loop {
            match self.tls.reader().read(&mut buffer) {
                Ok(0) => return Err(self.broken("the API server closed the connection")),
                Ok(read) => match self.session.take(&buffer[..read]) {
                    Ok(told) => events.extend(told),
                    Err(why) => return Err(self.broken(why)),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(self.broken(error.to_string())),
            }
        }
        self.send()?;
        Ok(events)
    }

    fn send(&mut self) -> Result<(), ApiError> {
        let output = self.session.output();
        let mut stream = rustls::Stream::new(&mut *self.tls, &mut self.socket);
        let sent = if output.is_empty() { Ok(()) } else { stream.write_all(&output) };
        sent.and_then(|()| stream.flush()).map_err(|error| self.broken(error.to_string()))
    }
}

//! The thread that accepts connections and waits on all of them at once: for TLS, for heads, for the next request.
//!
//! Thread `node-server`. It owns the listening sockets and every connection that waits. A connection costs a thread only while a whole
//! request of it is served, so that clients that are silent or slow cost memory alone, and of that a bounded amount. It reads and writes without
//! waiting, and never speaks to anybody but its clients and the files of the certificate.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::connections::Connections;
use super::counts::Counts;
use super::dispatch::Dispatch;
use super::http::Reply;
use super::http::body::Carrier as _;
use super::http::connection::Connection;
use super::http::head::{MAX_HEAD, Refusal, parse};
use super::http::wire::Wire;
use super::http::writer::{Asked, write};
use super::limits::Limits;
use super::tls::Tls;
use super::workers::{Back, Client, Job, Workers};
use crate::util::cancel::Cancel;
use crate::util::poll::Bell;
use crate::util::tcp::keep_alive;

/// Connections accepted in a row before those that wait have a turn.
const ACCEPTED_AT_ONCE: usize = 64;
/// How long a listener rests after an error, most often "too many open files".
const AFTER_ERROR: Duration = Duration::from_millis(200);
/// How soon a taken address is tried again.
const BIND_AGAIN: Duration = Duration::from_secs(5);
/// How long a peer may be dead before the kernel says so.
const DEAD_AFTER: Duration = Duration::from_secs(60);
/// Said to those who speak plain HTTP where TLS is spoken.
const NO_TLS: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\nConnection: close\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Where it is listened.
pub(super) struct Port {
    pub(super) address: SocketAddr,
    /// `None` while somebody else listens there.
    pub(super) listener: Option<TcpListener>,
    pub(super) dispatch: Arc<Dispatch>,
    /// `None` where no TLS is spoken.
    pub(super) tls: Option<Arc<Tls>>,
}

/// What a waiting connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its first request, TLS included.
    New,
    /// Another request.
    Idle,
    /// The rest of a head.
    Reading,
    /// Its end; so many bytes are still listened to.
    Ending(usize),
}

struct Waiting {
    client: Client,
    state: State,
    due: Instant,
    writes: bool,
}

/// Connections that come back from the threads that served them.
#[derive(Clone)]
struct Returned {
    clients: Arc<Mutex<Vec<(Client, Back)>>>,
    bell: Bell,
}

/// The accepting thread's state.
pub(super) struct Listener {
    ports: Vec<Port>,
    limits: Limits,
    connections: Arc<Connections>,
    counts: Arc<Counts>,
    stop: Cancel,
    epoll: Epoll,
    bell: Bell,
    returned: Returned,
    workers: Workers,
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
    /// When addresses that were taken are tried again.
    bind_at: Option<Instant>,
    /// Whether the log was told that nothing can be accepted.
    complained: bool,
}

impl Listener {
    /// # Errors
    /// The kernel has no descriptor left.
    pub(super) fn new(
        ports: Vec<Port>,
        limits: Limits,
        connections: Arc<Connections>,
        counts: Arc<Counts>,
        stop: Cancel,
    ) -> io::Result<Self> {
        let (epoll, bell) = (Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?, Bell::new()?);
        let returned = Returned { clients: Arc::default(), bell: bell.clone() };
        let take_back = returned.clone();
        let workers = Workers::new(
            limits,
            Box::new(move |client, back| {
                take_back.clients.lock().unwrap_or_else(PoisonError::into_inner).push((client, back));
                take_back.bell.ring();
            }),
        );
        let (waiting, next) = (BTreeMap::new(), ports.len() as u64);
        Ok(Self {
            ports,
            limits,
            connections,
            counts,
            stop,
            epoll,
            bell,
            returned,
            workers,
            waiting,
            next,
            bind_at: None,
            complained: false,
        })
    }

    /// Serves until told to stop.
    ///
    /// # Errors
    /// The kernel can't wait any more.
    pub(super) fn run(mut self) -> io::Result<()> {
        let (stop, bell) = (self.stop.clone(), self.bell.clone());
        let _registered = stop.register(bell.waker());
        let mut events = [EpollEvent::empty(); 128];
        self.bind();
        while !stop.is_cancelled() {
            let until = self.waiting.values().map(|waiting| waiting.due).chain(self.bind_at).min();
            bell.wait([self.epoll.0.as_fd()], until)?;
            let count = match self.epoll.wait(&mut events, EpollTimeout::ZERO) {
                Err(nix::errno::Errno::EINTR) => 0,
                other => other?,
            };
            for event in &events[..count] {
                let key = event.data();
                match usize::try_from(key).ok().filter(|index| *index < self.ports.len()) {
                    Some(index) => self.accept(index),
                    None => self.advance(key),
                }
            }
            self.take_back();
            let now = Instant::now();
            self.expire(now);
            if self.bind_at.is_some_and(|at| at <= now) {
                self.bind();
            }
        }
        Ok(())
    }

    /// Listens where it is not listened yet. What is taken is told once, and tried again: the agent's pods matter more than its server.
    fn bind(&mut self) {
        let is_first = self.bind_at.take().is_none();
        for (key, port) in (0..).zip(&mut self.ports).filter(|(_, port)| port.listener.is_none()) {
            let listen = || -> io::Result<TcpListener> {
                let listener = TcpListener::bind(port.address)?;
                listener.set_nonblocking(true)?;
                self.epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, key))?;
                Ok(listener)
            };
            match listen() {
                Ok(listener) => {
                    log::info!("the node's server listens on {}", port.address);
                    port.listener = Some(listener);
                }
                Err(error) => {
                    let every = BIND_AGAIN.as_secs();
                    if is_first {
                        log::error!(
                            "the node's server cannot listen on {}, trying again every {every} s: {error}",
                            port.address
                        );
                    }
                    self.bind_at = Some(Instant::now() + BIND_AGAIN);
                }
            }
        }
    }

    fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPTED_AT_ONCE {
            let Some(listener) = &self.ports[index].listener else { return };
            let accepted = listener.accept();
            match accepted.and_then(|(socket, _)| self.begin(index, socket)) {
                Ok(()) => self.complained = false,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if is_momentary(&error) => {}
                Err(error) => {
                    if !self.complained {
                        log::warn!("the node's server cannot take a connection, trying again: {error}");
                        self.complained = true;
                    }
                    // Often there is no descriptor left: whoever waits longest gives one back.
                    self.crowd_out();
                    self.stop.wait(AFTER_ERROR);
                    return;
                }
            }
        }
    }

    /// A new connection.
    fn begin(&mut self, index: usize, socket: TcpStream) -> io::Result<()> {
        Counts::add(&self.counts.connections);
        keep_alive(&socket, DEAD_AFTER)?;
        let port = &self.ports[index];
        let wire = match &port.tls {
            None => Wire::plain(socket)?,
            Some(tls) => match tls.config() {
                Ok(config) => Wire::secured(socket, config)?,
                Err(why) => {
                    // Told in the log by whoever looks for the certificate.
                    log::debug!("a connection is refused: {why}");
                    Counts::add(&self.counts.refused);
                    return Ok(());
                }
            },
        };
        let place = self.connections.enter(wire.socket());
        let client = Client {
            connection: Connection::new(wire, self.limits.stall),
            dispatch: Arc::clone(&port.dispatch),
            place,
            is_known: false,
        };
        if self.waiting.len() >= self.limits.waiting || self.connections.count() > self.limits.connections {
            let found = self.crowd_out();
            if !found && self.connections.count() > self.limits.connections {
                return Ok(());
            }
        }
        self.park(client, State::New, self.limits.head)
    }

    /// Ends a connection to make room: of strangers the one that waits longest, else of all. Whether
    /// there was one.
    fn crowd_out(&mut self) -> bool {
        let of_all = self.waiting.first_key_value().map(|(key, _)| *key);
        let stranger = self.waiting.iter().find(|(_, waiting)| !waiting.client.is_known).map(|(key, _)| *key);
        let Some(key) = stranger.or(of_all) else { return false };
        Counts::add(&self.counts.crowded_out);
        self.waiting.remove(&key);
        true
    }

    fn park(&mut self, client: Client, state: State, time: Duration) -> io::Result<()> {
        let key = self.next;
        self.next += 1;
        self.epoll.add(client.connection.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, key))?;
        self.waiting.insert(key, Waiting { client, state, due: Instant::now() + time, writes: false });
        Ok(())
    }

    /// Takes a connection out of those that wait.
    fn unpark(&mut self, key: u64) -> Option<Client> {
        let waiting = self.waiting.remove(&key)?;
        // It is there as long as the connection is.
        let _registered = self.epoll.delete(waiting.client.connection.as_fd());
        Some(waiting.client)
    }

    fn take_back(&mut self) {
        let returned = std::mem::take(&mut *self.returned.clients.lock().unwrap_or_else(PoisonError::into_inner));
        for (mut client, back) in returned {
            match back {
                Back::Ends => self.linger(client),
                Back::Waits => {
                    client.connection.shrink();
                    if self.waiting.len() >= self.limits.waiting {
                        self.crowd_out();
                    }
                    let key = self.next;
                    let state = if client.connection.ahead().is_empty() { State::Idle } else { State::Reading };
                    let time = if state == State::Idle { self.limits.idle } else { self.limits.head };
                    if self.park(client, state, time).is_ok() {
                        // What TLS holds already makes no descriptor readable.
                        self.look(key);
                        self.advance(key);
                    }
                }
            }
        }
    }

    /// Says that nothing more comes and listens a little longer: a connection that is closed while something arrives takes
    /// what was sent last with it.
    fn linger(&mut self, client: Client) {
        let Client { connection, dispatch, place, is_known } = client;
        if let Some(connection) = connection.finish() {
            let (time, bytes) = self.limits.linger;
            // Where it can't be waited for it ends at once.
            let _parked = self.park(Client { connection, dispatch, place, is_known }, State::Ending(bytes), time);
        }
    }

    /// Something can be read or written.
    fn advance(&mut self, key: u64) {
        let limits = self.limits;
        loop {
            let Some(waiting) = self.waiting.get_mut(&key) else { return };
            let connection = &mut waiting.client.connection;
            if waiting.state == State::New && connection.is_untouched() && connection.wire().begins_with_a_word() {
                connection.answer_plain(NO_TLS);
                Counts::add(&self.counts.refused);
                if let Some(client) = self.unpark(key) {
                    self.linger(client);
                }
                return;
            }
            let before = connection.ahead().len();
            match connection.read_some() {
                Ok(true) => {}
                Ok(false) => return drop(self.unpark(key)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    if error.kind() == io::ErrorKind::InvalidData {
                        log::debug!("a connection is given up: {error}");
                        Counts::add(&self.counts.refused);
                    }
                    return drop(self.unpark(key));
                }
            }
            match waiting.state {
                State::Ending(left) => {
                    let count = connection.ahead().len();
                    connection.consume(count);
                    match left.checked_sub(count) {
                        Some(left) => waiting.state = State::Ending(left),
                        None => return drop(self.unpark(key)),
                    }
                }
                State::New | State::Idle => {
                    waiting.state = State::Reading;
                    waiting.due = Instant::now() + limits.head;
                }
                State::Reading => {}
            }
            let ahead = connection.ahead();
            // A head is whole with a line's end only: one that comes byte by byte is not read again for each of them.
            if ahead.get(before..).is_some_and(|new| new.contains(&b'\n')) || ahead.len() > MAX_HEAD {
                self.look(key);
            }
        }
        let Some(waiting) = self.waiting.get_mut(&key) else { return };
        let wire = waiting.client.connection.wire();
        if waiting.state == State::New && wire.is_secured() && !wire.is_handshaking() {
            // Clients make connections before they need them.
            waiting.state = State::Idle;
            waiting.due = Instant::now() + limits.idle;
        }
        let writes = wire.wants_write();
        if writes != waiting.writes {
            waiting.writes = writes;
            let mut flags = EpollFlags::EPOLLIN;
            flags.set(EpollFlags::EPOLLOUT, writes);
            // It is registered as long as it waits.
            let _modified = self.epoll.modify(waiting.client.connection.as_fd(), &mut EpollEvent::new(flags, key));
        }
        if let Some(waiting) = self.waiting.get_mut(&key)
            && waiting.writes
        {
            // An error shows when it is read.
            let _sent = waiting.client.connection.try_flush();
        }
    }

    /// Is there a whole head?
    fn look(&mut self, key: u64) {
        let Some(waiting) = self.waiting.get_mut(&key) else { return };
        if matches!(waiting.state, State::Ending(_)) {
            return;
        }
        match parse(waiting.client.connection.ahead()) {
            Ok(None) => {}
            Ok(Some((head, length))) => {
                let Some(mut client) = self.unpark(key) else { return };
                client.connection.consume(length);
                if let Err(job) = self.workers.submit(Job { client, head }) {
                    Counts::add(&self.counts.crowded_out);
                    let reply = Reply::error(503, "too many requests are waiting").with_header("Retry-After", "1");
                    self.answer_and_end(job.client, reply);
                }
            }
            Err(Refusal { status, why }) => {
                let Some(client) = self.unpark(key) else { return };
                Counts::add(&self.counts.refused);
                self.answer_and_end(client, Reply::error(status, why));
            }
        }
    }

    /// Sends a short answer as far as it goes without waiting, and ends the connection.
    fn answer_and_end(&mut self, mut client: Client, reply: Reply) {
        client.connection.set_stall(Duration::ZERO);
        // Who does not take it is gone or does not listen.
        let _sent = write(&mut client.connection, Asked::nothing(), reply.closing());
        self.linger(client);
    }

    fn expire(&mut self, now: Instant) {
        let late: Vec<u64> =
            self.waiting.iter().filter(|(_, waiting)| waiting.due <= now).map(|(key, _)| *key).collect();
        for key in late {
            let state = self.waiting.get(&key).map(|waiting| waiting.state);
            let Some(client) = self.unpark(key) else { continue };
            match state {
                Some(State::Reading) => {
                    Counts::add(&self.counts.too_slow);
                    self.answer_and_end(client, Reply::error(408, "the request did not come in time"));
                }
                Some(State::New) => Counts::add(&self.counts.too_slow),
                Some(State::Idle) => drop(client.connection.finish()),
                _ => {}
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        log::debug!(
            "the node's server ends; {} connections came, {} were crowded out",
            self.counts.connections.load(Ordering::Relaxed),
            self.counts.crowded_out.load(Ordering::Relaxed)
        );
    }
}

use std::os::fd::AsFd as _;

/// Errors that are about one client, or about nothing.
fn is_momentary(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, InvalidInput, NotConnected};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | InvalidInput | NotConnected)
}

//! One accepting thread with a bounded number of short-lived connection threads.
//!
//! Shared by the health server and the local socket. The accepting thread owns the listener and its
//! connections; it sleeps in the kernel while nobody asks. At the limit new clients wait in the
//! kernel's backlog. No error of the listener ends it, no panic of a connection leaves it, and a
//! connection has one deadline for all it reads and writes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::util::cancel::Cancel;
use crate::util::metrics::own;
use crate::util::poll::Bell;
use crate::util::thread::{JoinHandle, StackSize, spawn};

/// How long a listener rests after an error, most often "too many open files".
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// A connected socket.
pub(super) trait Stream: Send + Sync + Sized + 'static {
    /// Reads some bytes within `limit`.
    fn read_within(&self, bytes: &mut [u8], limit: Duration) -> io::Result<usize>;
    /// Writes some bytes within `limit`.
    fn write_within(&self, bytes: &[u8], limit: Duration) -> io::Result<usize>;
    /// Waits in reads and writes, unlike the listener that it came from.
    fn set_blocking(&self) -> io::Result<()>;
    /// Ends it in both directions.
    fn close(&self);
}

/// A listening socket.
pub(super) trait Listener: AsFd + Send + 'static {
    /// What it accepts.
    type Stream: Stream;
    /// Accepts one connection, without waiting for one.
    fn accept_one(&self) -> io::Result<Self::Stream>;
    /// Makes [`Listener::accept_one`] not wait.
    fn set_waiting(&self, waits: bool) -> io::Result<()>;
}

macro_rules! sockets {
    ($listener:ty, $stream:ty) => {
        impl Stream for $stream {
            fn read_within(&self, bytes: &mut [u8], limit: Duration) -> io::Result<usize> {
                self.set_read_timeout(Some(limit))?;
                (&mut &*self).read(bytes)
            }

            fn write_within(&self, bytes: &[u8], limit: Duration) -> io::Result<usize> {
                self.set_write_timeout(Some(limit))?;
                (&mut &*self).write(bytes)
            }

            fn set_blocking(&self) -> io::Result<()> {
                self.set_nonblocking(false)
            }

            fn close(&self) {
                // An error means that the other side was faster.
                let _gone = self.shutdown(Shutdown::Both);
            }
        }

        impl Listener for $listener {
            type Stream = $stream;

            fn accept_one(&self) -> io::Result<Self::Stream> {
                self.accept().map(|(stream, _)| stream)
            }

            fn set_waiting(&self, waits: bool) -> io::Result<()> {
                self.set_nonblocking(!waits)
            }
        }
    };
}
sockets!(TcpListener, TcpStream);
sockets!(UnixListener, UnixStream);

/// A stream with one deadline for everything that is still to be read and written.
#[derive(Debug)]
pub(super) struct Deadlined<'a, S> {
    stream: &'a S,
    until: Instant,
}

impl<'a, S: Stream> Deadlined<'a, S> {
    pub(super) fn new(stream: &'a S, limit: Duration) -> Self {
        Self { stream, until: Instant::now() + limit }
    }

    /// The time left.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        // The kernel takes a zero for "no limit".
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left.max(Duration::from_millis(1))) }
    }

    /// Reads up to and including `end`, at most `max` bytes. `None` if the stream ends or the limit is
    /// reached before.
    pub(super) fn read_until(&mut self, end: &[u8], max: usize) -> io::Result<Option<Vec<u8>>> {
        let mut got = Vec::with_capacity(512.min(max));
        let mut block = [0; 2048];
        while got.len() < max {
            let room = block.len().min(max - got.len());
            let count = match self.read(&mut block[..room]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if count == 0 {
                return Ok(None);
            }
            let looked_at = got.len().saturating_sub(end.len() - 1);
            got.extend_from_slice(&block[..count]);
            if let Some(at) = got[looked_at..].windows(end.len()).position(|window| window == end) {
                got.truncate(looked_at + at + end.len());
                return Ok(Some(got));
            }
        }
        Ok(None)
    }
}

impl<S: Stream> Read for Deadlined<'_, S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.read_within(bytes, self.left()?)
    }
}

impl<S: Stream> Write for Deadlined<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write_within(bytes, self.left()?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection that is being served.
struct Served<S> {
    stream: Arc<S>,
    /// Set before the bell is rung. The thread itself ends a little later, and a look at it then would
    /// miss the end that the bell was about.
    is_done: Arc<AtomicBool>,
    /// Joined on drop.
    _thread: JoinHandle<()>,
}

/// Serves one connection; the token tells that the server ends.
type Serve<S> = dyn Fn(&S, &Cancel) + Send + Sync;

/// What the accepting thread works with.
pub(super) struct Acceptor<L: Listener> {
    /// The listening socket.
    pub(super) listener: L,
    /// Name of the connection threads, at most 15 bytes.
    pub(super) thread_name: &'static str,
    /// Connections at a time.
    pub(super) limit: usize,
    /// Ends it, and is handed to each connection.
    pub(super) stop: Cancel,
    /// Serves one connection; the stream is closed afterwards.
    pub(super) serve: Arc<Serve<L::Stream>>,
}

impl<L: Listener> Acceptor<L> {
    /// Accepts until told to stop, then closes and joins the connections.
    ///
    /// # Errors
    /// The kernel has no descriptor left to wait with.
    pub(super) fn run(self) -> io::Result<()> {
        let bell = Bell::new()?;
        let _registered = self.stop.register(bell.waker());
        self.listener.set_waiting(false)?;
        let mut served: Vec<Served<L::Stream>> = Vec::new();
        let mut complained = false;
        while !self.stop.is_cancelled() {
            served.retain(|one| !one.is_done.load(Ordering::Acquire));
            if served.len() == self.limit {
                own::CONNECTION_LIMIT_MET.inc(&[self.thread_name]);
            }
            let waited = if served.len() < self.limit {
                bell.wait([self.listener.as_fd()], None).map(|[ready]| ready)
            } else {
                bell.wait([], None).map(|[]| false)
            };
            let accepted = match waited {
                Ok(false) => continue,
                Ok(true) => self.listener.accept_one().and_then(|stream| self.start(stream, &bell)),
                Err(error) => Err(error),
            };
            match accepted {
                Ok(one) => {
                    served.push(one);
                    complained = false;
                }
                Err(error) if is_momentary(&error) => {}
                Err(error) => {
                    if !complained {
                        log::warn!("{}: cannot take a connection, trying again: {error}", self.thread_name);
                        complained = true;
                    }
                    self.stop.wait(AFTER_ERROR);
                }
            }
        }
        for one in &served {
            one.stream.close();
        }
        Ok(())
    }

    fn start(&self, stream: L::Stream, bell: &Bell) -> io::Result<Served<L::Stream>> {
        stream.set_blocking()?;
        let stream = Arc::new(stream);
        let is_done = Arc::new(AtomicBool::new(false));
        let (theirs, serve, stop) = (Arc::clone(&stream), Arc::clone(&self.serve), self.stop.clone());
        let (done, bell) = (Arc::clone(&is_done), bell.clone());
        let thread = spawn(self.thread_name, StackSize::Small, move || {
            // Rung on panics too, so that the place is free again.
            let _at_the_end = RingAtEnd { stream: &*theirs, done, bell };
            serve(&theirs, &stop);
        })?;
        Ok(Served { stream, is_done, _thread: thread })
    }
}

struct RingAtEnd<'a, S: Stream> {
    stream: &'a S,
    done: Arc<AtomicBool>,
    bell: Bell,
}

impl<S: Stream> Drop for RingAtEnd<'_, S> {
    fn drop(&mut self) {
        self.stream.close();
        self.done.store(true, Ordering::Release);
        self.bell.ring();
    }
}

/// Errors that are about one client, or about nothing.
fn is_momentary(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | WouldBlock)
}

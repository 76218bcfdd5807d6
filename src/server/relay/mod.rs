//! Sessions that run between a client and the container runtime: exec, attach, port forwarding.
//!
//! One thread, `relay`, serves them all; it starts with the first session and ends after the last. It sleeps in the kernel while no byte moves.
//! What is read on one side is written to the other, so that a slow reader slows its writer down: no more than a block waits here for
//! each direction. It knows nothing of pods, and of what is said only where it has to be put in other frames ([`Middle`]).

pub mod hello;
pub mod location;
mod session;
pub mod translate;
pub mod websocket;

use std::fmt;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::PollFlags;

use super::node::http::Duplex;
use crate::util::poll::Bell;
use crate::util::thread::{JoinHandle, StackSize, spawn};
use session::{Next, Session};

/// Sessions at a time.
pub const MAX_SESSIONS: usize = 1000;
/// Bytes read at a time.
const BLOCK: usize = 64 << 10;

/// One side of a session: a connection that never waits.
pub trait Side: AsFd + Send {
    /// Reads what is there; 0 when the peer sends no more.
    ///
    /// # Errors
    /// Nothing is there yet (`WouldBlock`), or the connection is broken.
    fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize>;

    /// Takes some bytes to send.
    ///
    /// # Errors
    /// There is no room yet (`WouldBlock`), or the connection is broken.
    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Sends what was taken.
    ///
    /// # Errors
    /// Some of it is still here (`WouldBlock`), or the connection is broken.
    fn try_flush(&mut self) -> io::Result<()>;

    /// Says that nothing more comes, once all is sent; reading goes on.
    ///
    /// # Errors
    /// As [`Side::try_flush`].
    fn try_finish(&mut self) -> io::Result<()>;

    /// Whether bytes that were taken wait for the socket.
    fn wants_write(&self) -> bool;
}

/// A connection to the runtime; it must not be one that waits.
impl Side for TcpStream {
    fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        io::Read::read(self, into)
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::Write::write(self, bytes)
    }

    fn try_flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn try_finish(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn wants_write(&self) -> bool {
        false
    }
}

/// A connection that was taken over.
impl Side for Duplex {
    fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Duplex::try_read(self, into)
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Duplex::try_write(self, bytes)
    }

    fn try_flush(&mut self) -> io::Result<()> {
        Duplex::try_flush(self)
    }

    fn try_finish(&mut self) -> io::Result<()> {
        Duplex::try_finish(self)
    }

    fn wants_write(&self) -> bool {
        self.interest(false, false).write
    }
}

/// What a [`Middle`] has to say to either side.
#[derive(Debug, Default)]
pub struct Said {
    /// Bytes for the client.
    pub to_client: Vec<u8>,
    /// Bytes for the runtime.
    pub to_runtime: Vec<u8>,
    /// The client gets no more after these.
    pub client_is_done: bool,
    /// Nor does the runtime.
    pub runtime_is_done: bool,
}

/// Puts what one side says into the frames that the other expects. Pure: bytes in, bytes out.
pub trait Middle: Send {
    /// The client said this; nothing more if it is empty.
    ///
    /// # Errors
    /// It makes no sense, and the session ends.
    fn client_said(&mut self, bytes: &[u8], said: &mut Said) -> Result<(), String>;

    /// The runtime said this; nothing more if it is empty.
    ///
    /// # Errors
    /// It makes no sense, and the session ends.
    fn runtime_said(&mut self, bytes: &[u8], said: &mut Said) -> Result<(), String>;

    /// Whether the client is to be read by now.
    fn hears_client(&self) -> bool {
        true
    }
}

/// The sessions there are. Dropping it ends them.
pub struct Relay {
    shared: Arc<Shared>,
    /// A session in which no byte moves for so long ends.
    idle: Duration,
}

struct Shared {
    bell: Bell,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Sessions that the thread has not taken yet.
    inbox: Vec<Session>,
    /// All sessions, and the places that were promised to some.
    count: usize,
    /// The thread, from the first session on; it says by `is_serving` whether it still takes some.
    thread: Option<JoinHandle<()>>,
    is_serving: bool,
    is_over: bool,
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("sessions", &self.sessions()).field("idle", &self.idle).finish_non_exhaustive()
    }
}

/// A place for a session, given back when it is dropped.
pub struct Place(Arc<Shared>);

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Place")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.lock().count -= 1;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Relay {
    /// No session yet, and no thread. One in which nothing moves for `idle` ends; zero is for ever.
    ///
    /// # Errors
    /// The kernel has no descriptor left.
    pub fn new(idle: Duration) -> io::Result<Self> {
        Ok(Self { shared: Arc::new(Shared { bell: Bell::new()?, state: Mutex::default() }), idle })
    }

    /// Sessions at the moment.
    pub fn sessions(&self) -> usize {
        self.shared.lock().count
    }

    /// A place for one more session; `None` if there are too many.
    pub fn reserve(&self) -> Option<Place> {
        let mut state = self.shared.lock();
        if state.count >= MAX_SESSIONS || state.is_over {
            return None;
        }
        state.count += 1;
        Some(Place(Arc::clone(&self.shared)))
    }

    /// Serves a session from now on. `middle` is for sides that do not speak alike.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn serve(
        &self,
        place: Place,
        client: Box<dyn Side>,
        runtime: Box<dyn Side>,
        middle: Option<Box<dyn Middle>>,
    ) -> io::Result<()> {
        let session = Session::new(place, client, runtime, middle, self.idle, Instant::now());
        let mut state = self.shared.lock();
        if state.is_over {
            drop(state);
            return Err(io::Error::other("the agent ends"));
        }
        state.inbox.push(session);
        if state.is_serving {
            drop(state);
            self.shared.bell.ring();
            return Ok(());
        }
        let before = state.thread.take();
        let shared = Arc::clone(&self.shared);
        match spawn("relay", StackSize::Normal, move || run(&shared)) {
            Ok(thread) => {
                state.thread = Some(thread);
                state.is_serving = true;
            }
            Err(error) => {
                let refused = state.inbox.pop();
                drop(state);
                drop(refused);
                return Err(error);
            }
        }
        drop(state);
        // It has ended, or does so without another look at anything of ours.
        drop(before);
        Ok(())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_over = true;
        let (thread, inbox) = (state.thread.take(), std::mem::take(&mut state.inbox));
        drop(state);
        self.shared.bell.ring();
        drop(inbox);
        drop(thread);
    }
}

/// Says when the thread ends, a panic included, that it takes no more.
struct Serving<'a>(&'a Shared);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_serving = false;
        let left = std::mem::take(&mut state.inbox);
        drop(state);
        drop(left);
    }
}

fn run(shared: &Shared) {
    let serving = Serving(shared);
    let mut sessions: Vec<Session> = Vec::new();
    let mut block = vec![0; BLOCK];
    loop {
        {
            let mut state = shared.lock();
            sessions.append(&mut state.inbox);
            if state.is_over || sessions.is_empty() {
                // Under the lock, so that no session comes after this look.
                state.is_serving = false;
                drop(state);
                std::mem::forget(serving);
                return;
            }
        }
        if let Err(error) = turn(shared, &mut sessions, &mut block) {
            log::error!("the sessions of exec, attach and port forwarding end: cannot wait for them: {error}");
            return;
        }
    }
}

/// Waits until something may move, and moves it.
fn turn(shared: &Shared, sessions: &mut Vec<Session>, block: &mut [u8]) -> io::Result<()> {
    let mut fds: Vec<(BorrowedFd<'_>, PollFlags)> = Vec::with_capacity(2 * sessions.len());
    let mut owners = Vec::with_capacity(2 * sessions.len());
    let mut until = None;
    let now = Instant::now();
    for (index, session) in sessions.iter().enumerate() {
        for waits in session.waits_for() {
            owners.push(index);
            fds.push(waits);
        }
        until = match (until, session.due(now)) {
            (Some(until), Some(due)) => Some(due.min(until)),
            (until, due) => until.or(due),
        };
    }
    let ready = shared.bell.wait_for(&fds, until)?;
    drop(fds);
    let now = Instant::now();
    let mut moves = vec![false; sessions.len()];
    for (owner, _) in owners.into_iter().zip(ready).filter(|(_, ready)| *ready) {
        moves[owner] = true;
    }
    let mut moves = moves.into_iter();
    sessions.retain_mut(|session| {
        let is_ready = moves.next().unwrap_or(true);
        let is_due = session.due(now).is_some_and(|due| due <= now);
        (!is_ready && !is_due) || session.step(block, now) != Next::Over
    });
    Ok(())
}

#[cfg(test)]
mod tests;

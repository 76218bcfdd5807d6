//! A connection that an endpoint has taken over: bytes in both directions, no HTTP any more.
//!
//! Owned by whoever took it over, and given to another thread at will. It never waits: one thread serves many of
//! them with `poll`. Dropping it ends the connection and frees its place.
//!
//! How to serve it: read while [`Duplex::try_read`] gives something; on `WouldBlock` wait for [`Duplex::interest`] on its
//! descriptor. Bytes that were read ahead, or that TLS holds, make no descriptor readable: always read until `WouldBlock`
//! before waiting.

use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::wire::{Interest, Wire};

/// A connection to a client.
#[derive(Debug)]
pub struct Duplex {
    wire: Wire,
    ahead: Vec<u8>,
    used: usize,
    /// Its place among the connections, given back on drop.
    _place: Option<Box<dyn Any + Send>>,
}

impl Duplex {
    /// Goes on with a connection of which `ahead` was read already. `place` is dropped with it.
    pub fn new(wire: Wire, ahead: Vec<u8>, place: Option<Box<dyn Any + Send>>) -> Self {
        Self { wire, ahead, used: 0, _place: place }
    }

    /// Reads what is there; 0 when the client sends no more.
    ///
    /// # Errors
    /// Nothing is there yet (`WouldBlock`), or the connection is broken.
    pub fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let ahead = &self.ahead[self.used..];
        if ahead.is_empty() {
            return self.wire.try_read(into);
        }
        let count = ahead.len().min(into.len());
        into[..count].copy_from_slice(&ahead[..count]);
        self.used += count;
        if self.used == self.ahead.len() {
            (self.ahead, self.used) = (Vec::new(), 0);
        }
        Ok(count)
    }

    /// Takes some bytes to send. [`Duplex::interest`] says whether some of them still wait here: call [`Duplex::try_flush`]
    /// when the descriptor is writable.
    ///
    /// # Errors
    /// There is no room yet (`WouldBlock`), or the connection is broken.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wire.try_write(bytes)
    }

    /// Sends what was taken.
    ///
    /// # Errors
    /// Some of it is still here (`WouldBlock`), or the connection is broken.
    pub fn try_flush(&mut self) -> io::Result<()> {
        self.wire.try_flush()
    }

    /// Tells the client that nothing more comes, and goes on reading (half-close).
    ///
    /// # Errors
    /// What was written before is not sent yet (`WouldBlock`): call it again; or the connection is broken.
    pub fn try_finish(&mut self) -> io::Result<()> {
        self.wire.try_finish()
    }

    /// What to wait for, for someone who wants to read and has `more` to write or not.
    pub fn interest(&self, reads: bool, more: bool) -> Interest {
        Interest { read: reads, write: more || self.wire.wants_write() }
    }

    /// Sends all of it and waits for the client to take it: for the head of an answer.
    ///
    /// # Errors
    /// The connection is broken, or the client takes nothing for `stall`.
    pub fn send(&mut self, bytes: &[u8], stall: Duration) -> io::Result<()> {
        send_all(&mut self.wire, bytes, stall)
    }
}

impl AsFd for Duplex {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}

/// Sends all of it. Each step forward gives the peer another `stall`.
pub(super) fn send_all(wire: &mut Wire, mut bytes: &[u8], stall: Duration) -> io::Result<()> {
    let mut until = Instant::now() + stall;
    loop {
        let tried = if bytes.is_empty() { wire.try_flush().map(|()| 0) } else { wire.try_write(bytes) };
        match tried {
            Ok(_) if bytes.is_empty() => return Ok(()),
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                bytes = &bytes[count..];
                until = Instant::now() + stall;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if !wire.wait(Interest { read: false, write: true }, until)? {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            Err(error) => return Err(error),
        }
    }
}

//! One connection of a client: the wire, what was read ahead of its use, and the times that its client has.
//!
//! Owned by one thread at a time. It reads no more ahead than a head may have.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::body::Carrier;
use super::duplex::send_all;
use super::head::MAX_HEAD;
use super::wire::{Interest, Wire};

/// Bytes read at a time.
const BLOCK: usize = 8 << 10;

/// A connection.
#[derive(Debug)]
pub struct Connection {
    wire: Wire,
    ahead: Vec<u8>,
    used: usize,
    /// When what is waited for in [`Carrier::fill`] has to be there.
    until: Instant,
    stall: Duration,
    has_read: bool,
}

impl Connection {
    /// A connection on which nothing was read yet. A client that takes nothing for `stall` is given up.
    pub fn new(wire: Wire, stall: Duration) -> Self {
        Self { wire, ahead: Vec::new(), used: 0, until: Instant::now(), stall, has_read: false }
    }

    /// The wire.
    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// From now on a client may take nothing for so long.
    pub fn set_stall(&mut self, stall: Duration) {
        self.stall = stall;
    }

    /// Reads what is there without waiting, up to a head's size: whether something came. `Ok(false)` means that the peer
    /// sends no more.
    ///
    /// # Errors
    /// Nothing is there (`WouldBlock`), or the connection is broken.
    pub fn read_some(&mut self) -> io::Result<bool> {
        let held = self.ahead.len() - self.used;
        if held > MAX_HEAD {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "more was sent than is taken"));
        }
        if self.used > 0 {
            self.ahead.drain(..self.used);
            self.used = 0;
        }
        self.has_read = true;
        let mut block = [0; BLOCK];
        let count = self.wire.try_read(&mut block)?;
        self.ahead.extend_from_slice(&block[..count]);
        Ok(count > 0)
    }

    /// Lets go of the memory of an idle connection.
    pub fn shrink(&mut self) {
        self.ahead.drain(..self.used);
        self.used = 0;
        self.ahead.shrink_to_fit();
    }

    /// The wire, and what was read ahead.
    pub fn into_parts(mut self) -> (Wire, Vec<u8>) {
        self.shrink();
        (self.wire, self.ahead)
    }

    /// Whether no byte of the client was read yet.
    pub fn is_untouched(&self) -> bool {
        !self.has_read
    }

    /// See [`Wire::answer_plain`].
    pub fn answer_plain(&mut self, bytes: &[u8]) {
        self.wire.answer_plain(bytes);
    }

    /// See [`Wire::try_flush`].
    ///
    /// # Errors
    /// As there.
    pub fn try_flush(&mut self) -> io::Result<()> {
        self.wire.try_flush()
    }

    /// Says that nothing more comes; `None` if the client is gone already.
    pub fn finish(mut self) -> Option<Self> {
        match self.wire.try_finish() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => None,
            _ => Some(self),
        }
    }
}

impl Carrier for Connection {
    fn ahead(&self) -> &[u8] {
        &self.ahead[self.used..]
    }

    fn consume(&mut self, count: usize) {
        self.used = (self.used + count).min(self.ahead.len());
    }

    fn fill(&mut self) -> io::Result<usize> {
        let before = self.ahead().len();
        loop {
            match self.read_some() {
                Ok(_) => return Ok(self.ahead().len() - before),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.wire.wait(Interest { read: true, write: false }, self.until)? {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn expect_within(&mut self, limit: Duration) {
        self.until = Instant::now() + limit;
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        send_all(&mut self.wire, bytes, self.stall)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}

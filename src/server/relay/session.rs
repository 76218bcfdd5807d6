//! One session: two sides, and what waits to be sent to each.
//!
//! On the thread `relay`, which owns it. It never waits; [`Session::waits_for`] says for what to wait. When one side has said its last word the
//! other gets the rest and is told so; the session is over when both have ended, or some time after nothing moves any more.

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use nix::poll::PollFlags;

use super::{Middle, Place, Said, Side};

/// Blocks read from a side in one go, so that a busy session does not keep the others waiting.
const BLOCKS: usize = 16;
/// A side from which this much waits for the other is not read.
const WAITING_LIMIT: usize = 64 << 10;
/// How long a session goes on without a byte after one side has ended, or was told so.
const LINGER: Duration = Duration::from_secs(10);

/// What is still to come from a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// More.
    Open,
    /// Nothing.
    Ended,
}

/// What is still to be said to a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    /// More.
    Open,
    /// What waits, and then the end.
    Finishing,
    /// Nothing.
    Finished,
}

/// What to do with a session next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Wait for [`Session::waits_for`] and [`Session::due`].
    Wait,
    /// Drop it.
    Over,
}

/// One side with what waits for it.
struct Half {
    side: Box<dyn Side>,
    waiting: Vec<u8>,
    sent: usize,
    reading: Reading,
    writing: Writing,
}

impl Half {
    fn new(side: Box<dyn Side>) -> Self {
        Self { side, waiting: Vec::new(), sent: 0, reading: Reading::Open, writing: Writing::Open }
    }

    fn left(&self) -> usize {
        self.waiting.len() - self.sent
    }

    /// Sends `bytes` as far as they go, after what waits; keeps the rest. Whether some went.
    fn send(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        if self.writing != Writing::Open {
            return false;
        }
        while self.left() == 0 && !rest.is_empty() {
            match self.side.try_write(rest) {
                Ok(0) => break,
                Ok(count) => rest = &rest[count..],
                Err(error) if is_momentary(&error) => break,
                Err(_) => {
                    self.give_up();
                    return true;
                }
            }
        }
        self.waiting.extend_from_slice(rest);
        rest.len() < bytes.len()
    }

    /// Sends what waits, and the end if it is due. Whether something moved.
    fn push(&mut self) -> bool {
        if self.writing == Writing::Finished {
            return false;
        }
        let mut moved = false;
        while self.left() > 0 {
            match self.side.try_write(&self.waiting[self.sent..]) {
                Ok(0) => return moved,
                Ok(count) => {
                    self.sent += count;
                    moved = true;
                }
                Err(error) if is_momentary(&error) => return moved,
                Err(_) => {
                    self.give_up();
                    return true;
                }
            }
        }
        if self.sent > 0 {
            // An idle session holds no memory.
            (self.waiting, self.sent) = (Vec::new(), 0);
        }
        let done = if self.writing == Writing::Finishing { self.side.try_finish() } else { self.side.try_flush() };
        match done {
            Ok(()) if self.writing == Writing::Finishing => {
                self.writing = Writing::Finished;
                true
            }
            Err(error) if !is_momentary(&error) => {
                self.give_up();
                true
            }
            Ok(()) | Err(_) => moved,
        }
    }

    /// It takes nothing more.
    fn give_up(&mut self) {
        self.writing = Writing::Finished;
        (self.waiting, self.sent) = (Vec::new(), 0);
    }

    fn finish(&mut self) {
        if self.writing == Writing::Open {
            self.writing = Writing::Finishing;
        }
    }
}

/// A session.
pub(super) struct Session {
    client: Half,
    runtime: Half,
    middle: Option<Box<dyn Middle>>,
    idle: Duration,
    /// When a byte moved last.
    moved_at: Instant,
    /// More can be moved at once: its turn was over.
    has_more: bool,
    _place: Place,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("moved_at", &self.moved_at).finish_non_exhaustive()
    }
}

impl Session {
    pub(super) fn new(
        place: Place,
        client: Box<dyn Side>,
        runtime: Box<dyn Side>,
        middle: Option<Box<dyn Middle>>,
        idle: Duration,
        now: Instant,
    ) -> Self {
        let (client, runtime) = (Half::new(client), Half::new(runtime));
        // What was read ahead makes no descriptor readable: the first step comes at once.
        Self { client, runtime, middle, idle, moved_at: now, has_more: true, _place: place }
    }

    /// Whether both sides have room for what reading may bring.
    fn has_room(&self) -> bool {
        self.client.left() < WAITING_LIMIT && self.runtime.left() < WAITING_LIMIT
    }

    /// Whether a side is to be read now.
    fn reads(&self, from_client: bool) -> bool {
        let (from, to) = if from_client { (&self.client, &self.runtime) } else { (&self.runtime, &self.client) };
        let room = match &self.middle {
            Some(middle) => self.has_room() && (!from_client || middle.hears_client()),
            None => to.left() == 0,
        };
        from.reading == Reading::Open && room
    }

    /// The descriptors to wait for.
    pub(super) fn waits_for(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let interest = |half: &Half, reads: bool| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLIN, reads);
            flags.set(PollFlags::POLLOUT, half.left() > 0 || half.side.wants_write());
            flags
        };
        let client = (self.client.side.as_fd(), interest(&self.client, self.reads(true)));
        let runtime = (self.runtime.side.as_fd(), interest(&self.runtime, self.reads(false)));
        // One that nothing is wanted of would tell again and again that it has ended.
        [client, runtime].into_iter().filter(|(_, flags)| !flags.is_empty())
    }

    /// When to look at it, whatever its descriptors say.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        if self.has_more {
            return Some(now);
        }
        let has_ended = |half: &Half| half.reading == Reading::Ended || half.writing != Writing::Open;
        let ends = has_ended(&self.client) || has_ended(&self.runtime);
        match self.idle {
            _ if ends => Some(self.moved_at + LINGER),
            Duration::ZERO => None,
            idle => self.moved_at.checked_add(idle),
        }
    }

    /// Moves what can be moved.
    pub(super) fn step(&mut self, block: &mut [u8], now: Instant) -> Next {
        let mut moved = std::mem::take(&mut self.has_more);
        for _ in 0..BLOCKS {
            let pushed = self.client.push() | self.runtime.push();
            let read = match self.read_both(block) {
                Ok(read) => read,
                Err(why) => {
                    log::debug!("a session ends: {why}");
                    return Next::Over;
                }
            };
            moved |= pushed | read;
            self.has_more = read;
            if !read && !pushed {
                break;
            }
        }
        if moved {
            self.moved_at = now;
        }
        let over = |half: &Half| half.reading == Reading::Ended && half.writing == Writing::Finished;
        if (over(&self.client) && over(&self.runtime)) || self.due(now).is_some_and(|due| due < now) {
            return Next::Over;
        }
        Next::Wait
    }

    /// Reads each side once. Whether something came.
    fn read_both(&mut self, block: &mut [u8]) -> Result<bool, String> {
        let mut any = false;
        for from_client in [true, false] {
            if !self.reads(from_client) {
                continue;
            }
            let own = if from_client { &mut self.client } else { &mut self.runtime };
            let count = match own.side.try_read(block) {
                Err(error) if is_momentary(&error) => continue,
                Ok(count) => count,
                // Broken: it says nothing more, and takes nothing either.
                Err(_) => {
                    own.give_up();
                    0
                }
            };
            any = true;
            if count == 0 {
                own.reading = Reading::Ended;
            }
            self.pass_on(from_client, &block[..count])?;
        }
        Ok(any)
    }

    /// Gives the other side what one has said; nothing is its end.
    fn pass_on(&mut self, from_client: bool, bytes: &[u8]) -> Result<(), String> {
        if let Some(middle) = &mut self.middle {
            let mut said = Said::default();
            if from_client { middle.client_said(bytes, &mut said) } else { middle.runtime_said(bytes, &mut said) }?;
            self.client.send(&said.to_client);
            self.runtime.send(&said.to_runtime);
            for (half, is_done) in [(&mut self.client, said.client_is_done), (&mut self.runtime, said.runtime_is_done)]
            {
                if is_done {
                    half.finish();
                }
            }
        }
        let other = if from_client { &mut self.runtime } else { &mut self.client };
        if bytes.is_empty() {
            other.finish();
        } else if self.middle.is_none() {
            other.send(bytes);
        }
        if other.writing == Writing::Finished && !bytes.is_empty() {
            // Nobody takes it: there is no use in reading more.
            let own = if from_client { &mut self.client } else { &mut self.runtime };
            own.reading = Reading::Ended;
        }
        Ok(())
    }
}

fn is_momentary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

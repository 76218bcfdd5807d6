//! The body of a request, read piece by piece while somebody wants it.
//!
//! On the thread that serves the request. It owns the place in the body and borrows the connection; it reads no byte beyond
//! the body's end, holds no more than the connection's buffer, and takes chunks only in the one form that
//! every reader understands alike.

use std::io::{self, Read};
use std::time::Duration;

use super::head::{Framing, Head};

/// Longest line with a chunk's size, its extension included.
const MAX_SIZE_LINE: usize = 256;
/// Most bytes of trailers.
const MAX_TRAILERS: usize = 8 << 10;

/// Where the bytes of bodies come from, and what answers go to.
pub trait Carrier {
    /// What has arrived and was not used yet.
    fn ahead(&self) -> &[u8];
    /// Takes so many bytes off [`Carrier::ahead`].
    fn consume(&mut self, count: usize);
    /// Waits for more bytes; 0 when none will come.
    ///
    /// # Errors
    /// The connection is broken, or the time is over ([`io::ErrorKind::TimedOut`]).
    fn fill(&mut self) -> io::Result<usize>;
    /// From now on [`Carrier::fill`] waits no longer than this.
    fn expect_within(&mut self, limit: Duration);
    /// Sends all of it.
    ///
    /// # Errors
    /// The connection is broken, or the peer takes nothing ([`io::ErrorKind::TimedOut`]).
    fn send(&mut self, bytes: &[u8]) -> io::Result<()>;
}

/// Where in the body the reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// So many bytes are left, and the body ends after them.
    Counted(u64),
    /// A line with a chunk's size comes.
    Size,
    /// So many bytes of a chunk are left.
    Chunk(u64),
    /// The line end after a chunk comes.
    ChunkEnd,
    /// Trailers come; so many bytes of them were read.
    Trailers(usize),
    /// It is over.
    Over,
    /// It was no body; nothing on this connection can be believed any more.
    Broken,
}

/// The body of one request.
pub struct Body<'c> {
    carrier: &'c mut dyn Carrier,
    place: Place,
    owes_continue: bool,
}

impl std::fmt::Debug for Body<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Body").field("place", &self.place).finish_non_exhaustive()
    }
}

fn wrong(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl<'c> Body<'c> {
    /// The body that follows this head.
    pub fn new(head: &Head, carrier: &'c mut dyn Carrier) -> Self {
        let place = match head.framing {
            Framing::Length(0) => Place::Over,
            Framing::Length(length) => Place::Counted(length),
            Framing::Chunked => Place::Size,
        };
        Self { carrier, place, owes_continue: head.expects_continue && place != Place::Over }
    }

    /// Reads what is left and drops it, if it is no more than `limit` bytes and the client sends it by itself and soon. Whether
    /// the next request may be read after it.
    pub fn skip(&mut self, limit: usize, within: Duration) -> bool {
        self.carrier.expect_within(within);
        let mut left = limit;
        let mut block = [0; 2048];
        while self.place != Place::Over {
            if self.owes_continue || left == 0 {
                return false;
            }
            let room = block.len().min(left);
            match self.read(&mut block[..room]) {
                Ok(0) if self.place != Place::Over => return false,
                Ok(count) => left -= count,
                Err(_) => return false,
            }
        }
        true
    }

    fn need(&mut self) -> io::Result<()> {
        match self.carrier.fill() {
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the body ends before its end")),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A line without its end; the carrier holds all of it.
    fn line(&mut self, limit: usize) -> io::Result<Vec<u8>> {
        let mut looked_at = 0;
        loop {
            let ahead = self.carrier.ahead();
            if let Some(end) = ahead[looked_at..].iter().position(|byte| *byte == b'\n') {
                let end = looked_at + end;
                if end >= limit {
                    break;
                }
                let Some(line) = ahead[..end].strip_suffix(b"\r") else {
                    return Err(wrong("a line of the body ends without a carriage return"));
                };
                if line.contains(&b'\r') || line.contains(&0) {
                    return Err(wrong("a carriage return stands in a line of the body"));
                }
                let line = line.to_vec();
                self.carrier.consume(end + 1);
                return Ok(line);
            }
            looked_at = ahead.len();
            if looked_at >= limit {
                break;
            }
            self.need()?;
        }
        Err(wrong("a line of the body is too long"))
    }

    fn step(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        match self.place {
            Place::Over => return Ok(Some(0)),
            Place::Broken => return Err(wrong("the body is broken")),
            Place::Counted(left) | Place::Chunk(left) => {
                if self.carrier.ahead().is_empty() {
                    self.need()?;
                }
                let ahead = self.carrier.ahead();
                let count = ahead.len().min(into.len()).min(usize::try_from(left).unwrap_or(usize::MAX));
                into[..count].copy_from_slice(&ahead[..count]);
                self.carrier.consume(count);
                let left = left - count as u64;
                self.place = match self.place {
                    Place::Counted(_) if left == 0 => Place::Over,
                    Place::Counted(_) => Place::Counted(left),
                    _ if left == 0 => Place::ChunkEnd,
                    _ => Place::Chunk(left),
                };
                return Ok(Some(count));
            }
            Place::Size => {
                let line = self.line(MAX_SIZE_LINE)?;
                let size = chunk_size(&line).ok_or(wrong("a chunk has no size"))?;
                self.place = if size == 0 { Place::Trailers(0) } else { Place::Chunk(size) };
            }
            Place::ChunkEnd => {
                if !self.line(2)?.is_empty() {
                    return Err(wrong("a chunk is longer than it says"));
                }
                self.place = Place::Size;
            }
            Place::Trailers(read) => {
                let line = self.line(MAX_TRAILERS - read)?;
                let read = read + line.len() + 2;
                self.place = match line.is_empty() {
                    true => Place::Over,
                    false if read >= MAX_TRAILERS => return Err(wrong("there are too many trailers")),
                    false => Place::Trailers(read),
                };
            }
        }
        Ok(None)
    }
}

/// Size of a chunk: hexadecimal digits, and an extension that is not looked at.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| matches!(byte, b';' | b' ' | b'\t')).next()?;
    let rest = &line[digits.len()..];
    // Spaces may stand before an extension, and nothing but them without one.
    let rest = rest.trim_ascii_start();
    let is_plain = !digits.is_empty() && digits.len() <= 15 && digits.iter().all(u8::is_ascii_hexdigit);
    if !is_plain || !(rest.is_empty() || rest.starts_with(b";")) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

impl Read for Body<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        if std::mem::take(&mut self.owes_continue) {
            self.carrier.send(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        loop {
            match self.step(into) {
                Ok(None) => {}
                Ok(Some(count)) => return Ok(count),
                Err(error) => {
                    self.place = Place::Broken;
                    return Err(error);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

/// A connection whose bytes are known beforehand.
#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use std::collections::VecDeque;

    /// Pieces that arrive one after the other, then the end.
    pub(in super::super) struct Script {
        pieces: VecDeque<Vec<u8>>,
        ahead: Vec<u8>,
        /// What was sent.
        pub(in super::super) sent: Vec<u8>,
    }

    impl Script {
        pub(in super::super) fn of(pieces: &[&str]) -> Self {
            let pieces = pieces.iter().map(|piece| piece.as_bytes().to_vec()).collect();
            Self { pieces, ahead: Vec::new(), sent: Vec::new() }
        }
    }

    impl Carrier for Script {
        fn ahead(&self) -> &[u8] {
            &self.ahead
        }

        fn consume(&mut self, count: usize) {
            self.ahead.drain(..count);
        }

        fn fill(&mut self) -> io::Result<usize> {
            let piece = self.pieces.pop_front().unwrap_or_default();
            self.ahead.extend_from_slice(&piece);
            Ok(piece.len())
        }

        fn expect_within(&mut self, _: Duration) {}

        fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.sent.extend_from_slice(bytes);
            Ok(())
        }
    }
}

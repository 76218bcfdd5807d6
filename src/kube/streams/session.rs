//! One HTTP/2 connection's rules (RFC 9113), as much as a client of many long answers needs: bytes in,
//! events out, and bytes to send. Pure: no socket, no clock. Never keeps more of an answer than one line
//! of bounded length.

use std::collections::BTreeMap;
use std::time::Duration;

use super::hpack::{self, Head};
use super::{StreamEnd, StreamEvent};
use crate::kube::error::Status;
use crate::util::http2::{self, FRAME_HEAD, FrameHead, MAX_FRAME, PREFACE, flag, kind, unpad};

/// Longest head of an answer.
const MAX_HEAD: usize = 64 * 1024;
/// Longest line: an object has 1.5 MiB at most, and base64 and quotes make it longer.
const MAX_LINE: usize = 8 << 20;
/// Longest explanation of a refusal that is kept.
const MAX_STATUS: usize = 64 * 1024;
/// How much a stream may send before it is told to go on, and the connection with all its streams.
const STREAM_WINDOW: u32 = 1 << 20;
const WINDOW: u32 = 8 << 20;
/// The standard's window of a new connection.
const FIRST_WINDOW: u32 = 65_535;
/// Streams at once before the server has said how many it takes.
const FIRST_STREAMS: u32 = 100;
/// Highest number of streams at once, whatever the server says.
const MOST_STREAMS: u32 = 4096;

/// Error code of a stream that nobody wants any more.
const CANCEL: u32 = 8;

/// What a stream's answer is like.
#[derive(Debug, Default)]
enum Answer {
    /// Not known yet.
    #[default]
    Awaited,
    /// It says yes, and lines follow.
    Yes,
    /// It says no, and why follows.
    No { status: u16, retry_after: Option<Duration> },
}

#[derive(Debug, Default)]
struct Stream {
    answer: Answer,
    /// The line at hand, or what was said of a refusal so far.
    line: Vec<u8>,
    /// Bytes taken that the peer was not yet told of.
    owed: u32,
}

/// A head that comes in pieces.
#[derive(Debug)]
struct Pieces {
    id: u32,
    block: Vec<u8>,
    ends: bool,
}

/// The state of a connection.
#[derive(Debug)]
pub(super) struct Session {
    out: Vec<u8>,
    input: Vec<u8>,
    streams: BTreeMap<u32, Stream>,
    next_id: u32,
    most: u32,
    pieces: Option<Pieces>,
    owed: u32,
    /// The peer takes no more streams; those that there are go on.
    pub(super) is_leaving: bool,
    /// A question that was not answered yet.
    pub(super) pinged: bool,
}

impl Session {
    /// A new connection: its first words are ready to be sent.
    pub(super) fn new() -> Self {
        let mut session = Self {
            out: PREFACE.to_vec(),
            input: Vec::new(),
            streams: BTreeMap::new(),
            next_id: 1,
            most: FIRST_STREAMS,
            pieces: None,
            owed: 0,
            is_leaving: false,
            pinged: false,
        };
        // No header table, no pushes, the stream's window.
        http2::settings(&mut session.out, &[(1, 0), (2, 0), (4, STREAM_WINDOW)]);
        session.frame(kind::WINDOW_UPDATE, 0, 0, &(WINDOW - FIRST_WINDOW).to_be_bytes());
        session
    }

    /// What has to be sent.
    pub(super) fn output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Whether another stream may be opened.
    pub(super) fn has_room(&self) -> bool {
        !self.is_leaving && (self.streams.len() as u64) < u64::from(self.most) && self.next_id < (1 << 31)
    }

    /// Asks for something by GET; its answer comes as events of this number.
    pub(super) fn open(&mut self, head: &Head<'_>) -> u32 {
        let id = self.next_id;
        let block = hpack::write(head, id == 1);
        let mut kind = kind::HEADERS;
        let mut pieces = block.chunks(MAX_FRAME).peekable();
        while let Some(piece) = pieces.next() {
            let end = if pieces.peek().is_none() { flag::END_HEADERS } else { 0 };
            let flags = if kind == kind::HEADERS { end | flag::END_STREAM } else { end };
            self.frame(kind, flags, id, piece);
            kind = kind::CONTINUATION;
        }
        self.streams.insert(id, Stream::default());
        self.next_id += 2;
        id
    }

    /// Gives a stream up; nothing more is told of it.
    pub(super) fn close(&mut self, id: u32) {
        if self.streams.remove(&id).is_some() {
            self.frame(kind::RST_STREAM, 0, id, &CANCEL.to_be_bytes());
        }
    }

    /// Asks whether the peer is there.
    pub(super) fn ping(&mut self) {
        self.pinged = true;
        self.frame(kind::PING, 0, 0, b"ferrolet");
    }

    fn frame(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        http2::frame(&mut self.out, kind, flags, id, payload);
    }

    /// Takes what the peer sent.
    ///
    /// # Errors
    /// The connection is of no more use, for this reason.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<Vec<StreamEvent>, String> {
        self.input.extend(bytes);
        let mut events = Vec::new();
        let input = std::mem::take(&mut self.input);
        let mut rest = input.as_slice();
        while let Some((head, after)) = rest.split_first_chunk::<FRAME_HEAD>() {
            let FrameHead { length, kind, flags, stream } = FrameHead::read(*head);
            if length > MAX_FRAME {
                return Err("it sends frames that are too large".to_owned());
            }
            let Some((payload, after)) = after.split_at_checked(length) else { break };
            self.take_frame(kind, flags, stream, payload, &mut events)?;
            rest = after;
        }
        self.input = rest.to_vec();
        Ok(events)
    }

    fn take_frame(
        &mut self,
        kind: u8,
        flags: u8,
        id: u32,
        payload: &[u8],
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), String> {
        if self.pieces.is_some() && kind != kind::CONTINUATION {
            return Err("it breaks an answer's head off".to_owned());
        }
        match kind {
            kind::DATA => self.take_data(flags, id, payload, events),
            kind::HEADERS => {
                let block = http2::header_block(flags, payload)?.to_vec();
                self.take_head(Pieces { id, block, ends: flags & flag::END_STREAM != 0 }, flags, events)
            }
            kind::CONTINUATION => {
                let mut pieces = self.pieces.take().filter(|pieces| pieces.id == id).ok_or("a head without a begin")?;
                pieces.block.extend(payload);
                self.take_head(pieces, flags, events)
            }
            kind::RST_STREAM => {
                if let Some(stream) = self.streams.remove(&id) {
                    let end = if matches!(stream.answer, Answer::No { .. }) { stream.end() } else { StreamEnd::Broken };
                    events.push(StreamEvent::Ended(id, end));
                }
                Ok(())
            }
            kind::SETTINGS if flags & flag::ACK == 0 => {
                for setting in payload.chunks_exact(6) {
                    let name = u16::from_be_bytes([setting[0], setting[1]]);
                    let value = u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]);
                    if name == 3 {
                        self.most = value.min(MOST_STREAMS);
                    }
                }
                self.frame(kind::SETTINGS, flag::ACK, 0, &[]);
                Ok(())
            }
            kind::PING if flags & flag::ACK == 0 => {
                self.frame(kind::PING, flag::ACK, 0, payload);
                Ok(())
            }
            kind::PING => {
                self.pinged = false;
                Ok(())
            }
            kind::GOAWAY => self.take_goodbye(payload, events),
            kind::PUSH_PROMISE => Err("it pushes what nobody asked for".to_owned()),
            // Acknowledged settings, room to send more than requests, priorities, and what is not known yet.
            _ => Ok(()),
        }
    }

    fn take_head(&mut self, pieces: Pieces, flags: u8, events: &mut Vec<StreamEvent>) -> Result<(), String> {
        if pieces.block.len() > MAX_HEAD {
            return Err("it sends a head that is too large".to_owned());
        }
        if flags & flag::END_HEADERS == 0 {
            self.pieces = Some(pieces);
            return Ok(());
        }
        let answer = hpack::read(&pieces.block)?;
        let id = pieces.id;
        // One that was given up meanwhile.
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        match answer.status {
            // News that an answer is on its way.
            Some(100..=199) => {}
            Some(200) => {
                stream.answer = Answer::Yes;
                events.push(StreamEvent::Began(id));
            }
            // Trailers have no status.
            None if !matches!(stream.answer, Answer::Awaited) => {}
            status => {
                stream.answer = Answer::No { status: status.unwrap_or(0), retry_after: answer.retry_after };
            }
        }
        if pieces.ends {
            self.done(id, events);
        }
        Ok(())
    }

    /// The peer goes: streams that it did not begin end here, the others in their own time.
    fn take_goodbye(&mut self, payload: &[u8], events: &mut Vec<StreamEvent>) -> Result<(), String> {
        let word = |at: usize| Some(u32::from_be_bytes(payload.get(at..at + 4)?.try_into().ok()?));
        let (last, code) = word(0).zip(word(4)).ok_or("a frame is too short")?;
        if code != 0 {
            return Err(format!("it ends the connection with error {code}"));
        }
        self.is_leaving = true;
        for (id, _) in self.streams.split_off(&(last & 0x7fff_ffff).saturating_add(1)) {
            events.push(StreamEvent::Ended(id, StreamEnd::Broken));
        }
        Ok(())
    }

    fn done(&mut self, id: u32, events: &mut Vec<StreamEvent>) {
        if let Some(stream) = self.streams.remove(&id) {
            events.push(StreamEvent::Ended(id, stream.end()));
        }
    }

    fn take_data(&mut self, flags: u8, id: u32, payload: &[u8], events: &mut Vec<StreamEvent>) -> Result<(), String> {
        // Padding counts, and so does what comes for a stream that was given up.
        let length = u32::try_from(payload.len()).unwrap_or(0);
        self.owed += length;
        if self.owed >= WINDOW / 2 {
            let owed = std::mem::take(&mut self.owed);
            self.frame(kind::WINDOW_UPDATE, 0, 0, &owed.to_be_bytes());
        }
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let mut data = unpad(flags, payload)?;
        let ends = flags & flag::END_STREAM != 0;
        if matches!(stream.answer, Answer::No { .. }) {
            let room = MAX_STATUS.saturating_sub(stream.line.len());
            stream.line.extend(data.iter().take(room));
            if ends || data.len() >= room {
                if !ends {
                    self.frame(kind::RST_STREAM, 0, id, &CANCEL.to_be_bytes());
                }
                self.done(id, events);
            }
            return Ok(());
        }
        while let Some(end) = data.iter().position(|byte| *byte == b'\n') {
            let mut line = std::mem::take(&mut stream.line);
            line.extend(&data[..end]);
            data = &data[end + 1..];
            if !line.trim_ascii().is_empty() {
                events.push(StreamEvent::Line(id, line));
            }
        }
        stream.line.extend(data);
        if stream.line.len() > MAX_LINE {
            return Err("it sends an object that is too large".to_owned());
        }
        stream.owed += length;
        if stream.owed >= STREAM_WINDOW / 2 && !ends {
            let owed = std::mem::take(&mut stream.owed);
            self.frame(kind::WINDOW_UPDATE, 0, id, &owed.to_be_bytes());
        }
        if ends {
            self.done(id, events);
        }
        Ok(())
    }
}

impl Stream {
    /// How it ended, if it ended as it should.
    fn end(self) -> StreamEnd {
        match self.answer {
            Answer::No { status, retry_after } => {
                StreamEnd::Refused(Box::new(Status::read(status, retry_after, &self.line)))
            }
            Answer::Awaited | Answer::Yes => StreamEnd::Done,
        }
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;

//! Between a client that speaks WebSockets and a runtime that speaks SPDY, as the kubelet of 1.36 does it in the API server's place.
//!
//! Pure, on the relay's thread. [`Tunnel`] carries port forwarding's own SPDY bytes; [`Channels`] puts the channels of `v5.channel.k8s.io` and the streams
//! of `v4.channel.k8s.io` in each other's place. Pieces go on as they come: nothing is kept but how the command did.

use super::websocket::{self, Reader, Said as Word};
use super::{Middle, Said};
use crate::util::spdy::stream::{ERROR, RESIZE, STDERR, STDIN, STDOUT};
use crate::util::spdy::{self, Control, FrameHead, HEAD};

/// The protocol of the client.
pub const CLIENT_PROTOCOL: &str = "v5.channel.k8s.io";
/// The protocol of the runtime.
pub const RUNTIME_PROTOCOL: &str = "v4.channel.k8s.io";
/// Before the name of a protocol that is carried.
pub const TUNNEL: &str = "SPDY/3.1+";

/// Most bytes of the closing status.
const STATUS_LIMIT: usize = 64 << 10;
/// Most bytes of a SPDY frame to the runtime: its length has 24 bits.
const PIECE: usize = 1 << 20;

/// Channels of the client.
mod channel {
    pub(super) const STDIN: u8 = 0;
    pub(super) const STDOUT: u8 = 1;
    pub(super) const STDERR: u8 = 2;
    pub(super) const ERROR: u8 = 3;
    pub(super) const RESIZE: u8 = 4;
    /// Says that a channel ends.
    pub(super) const CLOSE: u8 = 255;
}

/// Messages of one side are the bytes of the other.
#[derive(Debug, Default)]
pub struct Tunnel {
    reader: Reader,
}

impl Middle for Tunnel {
    fn client_said(&mut self, bytes: &[u8], said: &mut Said) -> Result<(), String> {
        self.reader.take(bytes, &mut |word| match word {
            Word::Piece { bytes, .. } => said.to_runtime.extend(bytes),
            Word::Ping(payload) => websocket::pong(&mut said.to_client, &payload),
            Word::Close => end(said),
        })
    }

    fn runtime_said(&mut self, bytes: &[u8], said: &mut Said) -> Result<(), String> {
        if bytes.is_empty() {
            end(said);
        } else {
            websocket::message(&mut said.to_client, &[bytes]);
        }
        Ok(())
    }
}

/// Both sides get no more.
fn end(said: &mut Said) {
    if !said.client_is_done {
        websocket::close(&mut said.to_client);
    }
    (said.client_is_done, said.runtime_is_done) = (true, true);
}

/// Which streams a session has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
    /// A terminal.
    pub tty: bool,
}

/// The runtime's frame at hand.
#[derive(Clone, Copy, Debug)]
struct Frame {
    head: FrameHead,
    left: usize,
}

/// The channels of a session of exec or attach.
#[derive(Debug)]
pub struct Channels {
    streams: Streams,
    reader: Reader,
    /// The channel of the client's message at hand.
    channel: Option<u8>,
    /// What the message of the end of a channel says so far.
    closes: Vec<u8>,
    /// A head, or the start of a control frame, that is not whole yet.
    kept: Vec<u8>,
    frame: Option<Frame>,
    /// How the command did, as far as it was told.
    status: Vec<u8>,
    /// Streams of the runtime that have not ended.
    open: Vec<u32>,
    /// The runtime takes standard input: what comes before that would be lost.
    takes_input: bool,
    is_over: bool,
}

impl Channels {
    /// A session with these streams.
    pub fn new(streams: Streams) -> Self {
        let streams = Streams { stderr: streams.stderr && !streams.tty, ..streams };
        let mut open = vec![ERROR];
        open.extend(streams.stdout.then_some(STDOUT));
        open.extend(streams.stderr.then_some(STDERR));
        Self {
            streams,
            reader: Reader::default(),
            channel: None,
            closes: Vec::new(),
            kept: Vec::new(),
            frame: None,
            status: Vec::new(),
            open,
            takes_input: !streams.stdin,
            is_over: false,
        }
    }

    /// What the runtime hears first.
    pub fn opening(&self) -> Vec<u8> {
        let Streams { stdin, stdout, stderr, tty } = self.streams;
        spdy::open_session(stdin, stdout, stderr, tty)
    }

    /// What the client hears first: that there is a session.
    pub fn greeting(&self) -> Vec<u8> {
        let channel = match self.streams {
            Streams { stdout: true, .. } => channel::STDOUT,
            Streams { stderr: true, .. } => channel::STDERR,
            _ => channel::ERROR,
        };
        let mut out = Vec::new();
        websocket::message(&mut out, &[&[channel]]);
        out
    }

    /// A piece of a message.
    fn piece(&mut self, first: bool, mut bytes: &[u8], last: bool, said: &mut Said) -> Result<(), String> {
        if first {
            (self.channel, self.closes) = (None, Vec::new());
        }
        if self.channel.is_none()
            && let [channel, rest @ ..] = bytes
        {
            (self.channel, bytes) = (Some(*channel), rest);
        }
        match self.channel {
            Some(channel::STDIN) if self.streams.stdin => forward(STDIN, bytes, said),
            Some(channel::RESIZE) if self.streams.tty => forward(RESIZE, bytes, said),
            Some(channel::CLOSE) => {
                self.closes.extend(bytes.iter().take(2));
                match self.closes[..] {
                    [channel::STDIN] if last && self.streams.stdin => {
                        said.to_runtime.extend(spdy::data(STDIN, &[], true))
                    }
                    [_] => {}
                    [] if !last => {}
                    _ => return Err("the client closes what is no channel".to_owned()),
                }
            }
            // For channels that go the other way there is nothing to say.
            _ => {}
        }
        Ok(())
    }

    /// A piece of a frame of the runtime; `frame.left` is what comes after it.
    fn part(&mut self, frame: Frame, bytes: &[u8], said: &mut Said) {
        match frame.head {
            FrameHead::Data { id, last, .. } => {
                let to = match id {
                    STDOUT => Some(channel::STDOUT),
                    STDERR => Some(channel::STDERR),
                    _ => None,
                };
                match to {
                    Some(channel) if !bytes.is_empty() => websocket::message(&mut said.to_client, &[&[channel], bytes]),
                    None if id == ERROR => {
                        let room = STATUS_LIMIT.saturating_sub(self.status.len());
                        self.status.extend_from_slice(&bytes[..bytes.len().min(room)]);
                    }
                    _ => {}
                }
                if frame.left == 0 && last {
                    self.open.retain(|open| *open != id);
                }
            }
            FrameHead::Control { kind, .. } => {
                let room = 8usize.saturating_sub(self.kept.len());
                self.kept.extend(bytes.iter().take(room));
                if frame.left == 0 {
                    let payload = std::mem::take(&mut self.kept);
                    match Control::read(kind, &payload) {
                        Control::Reply(STDIN) => self.takes_input = true,
                        Control::Reset(id) => self.open.retain(|open| *open != id),
                        Control::Ping(number) if number % 2 == 0 => said.to_runtime.extend(spdy::ping(number)),
                        Control::Reply(_) | Control::Ping(_) | Control::Other => {}
                    }
                }
            }
        }
    }

    /// Tells the client how the command did, once all that it printed was told.
    fn tell_status(&mut self, said: &mut Said) {
        if self.is_over {
            return;
        }
        self.is_over = true;
        let unknown: &[u8] = br#"{"metadata":{},"status":"Failure","message":"Internal error occurred: the session ended without telling how the command did","reason":"InternalError","code":500}"#;
        let status = if self.status.is_empty() { unknown } else { &self.status };
        websocket::message(&mut said.to_client, &[&[channel::ERROR], status]);
        end(said);
    }
}

fn forward(stream: u32, bytes: &[u8], said: &mut Said) {
    for piece in bytes.chunks(PIECE) {
        said.to_runtime.extend(spdy::data(stream, piece, false));
    }
}

impl Middle for Channels {
    fn client_said(&mut self, bytes: &[u8], said: &mut Said) -> Result<(), String> {
        let mut words = Vec::new();
        self.reader.take(bytes, &mut |word| words.push(word))?;
        for word in words {
            match word {
                Word::Piece { first, bytes, last } => self.piece(first, &bytes, last, said)?,
                Word::Ping(payload) => websocket::pong(&mut said.to_client, &payload),
                Word::Close => end(said),
            }
        }
        Ok(())
    }

    fn runtime_said(&mut self, mut bytes: &[u8], said: &mut Said) -> Result<(), String> {
        if bytes.is_empty() {
            self.tell_status(said);
            return Ok(());
        }
        while !bytes.is_empty() && !self.is_over {
            let Some(mut frame) = self.frame else {
                let (now, later) = bytes.split_at(bytes.len().min(HEAD - self.kept.len()));
                self.kept.extend_from_slice(now);
                bytes = later;
                if let Some(head) = self.kept.first_chunk::<HEAD>() {
                    let head = FrameHead::read(*head);
                    let (FrameHead::Data { length, .. } | FrameHead::Control { length, .. }) = head;
                    self.kept.clear();
                    let frame = Frame { head, left: length };
                    if length == 0 {
                        self.part(frame, &[], said);
                    } else {
                        self.frame = Some(frame);
                    }
                }
                if self.open.is_empty() {
                    self.tell_status(said);
                }
                continue;
            };
            let (now, later) = bytes.split_at(bytes.len().min(frame.left));
            frame.left -= now.len();
            bytes = later;
            self.frame = (frame.left > 0).then_some(frame);
            self.part(frame, now, said);
            if self.open.is_empty() {
                self.tell_status(said);
            }
        }
        Ok(())
    }

    fn hears_client(&self) -> bool {
        self.takes_input
    }
}

#[cfg(test)]
mod tests {
    use super::super::websocket::masked;
    use super::*;
    use crate::util::spdy::{control, data};

    const ALL: Streams = Streams { stdin: true, stdout: true, stderr: true, tty: false };

    fn shell() -> Channels {
        Channels::new(ALL)
    }

    /// What is said after the client has said this, in pieces of three bytes.
    fn client(channels: &mut dyn Middle, bytes: &[u8]) -> Said {
        let mut said = Said::default();
        for piece in bytes.chunks(3) {
            channels.client_said(piece, &mut said).expect("it makes sense");
        }
        said
    }

    fn runtime(channels: &mut dyn Middle, bytes: &[u8], size: usize) -> Said {
        let mut said = Said::default();
        for piece in bytes.chunks(size) {
            channels.runtime_said(piece, &mut said).expect("it makes sense");
        }
        said
    }

    /// The messages of a server's frames, control frames as their kinds.
    fn messages(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while let [first, length, rest @ ..] = bytes {
            let (length, rest) = match length {
                126 => (usize::from(u16::from_be_bytes([rest[0], rest[1]])), &rest[2..]),
                small => (usize::from(*small), rest),
            };
            let (payload, later) = rest.split_at(length);
            all.push(if *first == 0x82 { payload.to_vec() } else { vec![*first] });
            bytes = later;
        }
        all
    }

    #[test]
    fn a_session_opens_its_streams_and_waits_for_input_to_be_taken() {
        let mut channels = shell();
        assert_eq!(messages(&channels.greeting()), [vec![1]]);
        assert_eq!(channels.opening(), spdy::open_session(true, true, true, false));
        assert!(!channels.hears_client());
        runtime(&mut channels, &control(2, &STDIN.to_be_bytes()), 5);
        assert!(channels.hears_client());
        let quiet = Channels::new(Streams { tty: true, stderr: true, ..Streams::default() });
        assert!(quiet.hears_client());
        assert_eq!(messages(&quiet.greeting()), [vec![3]]);
        assert_eq!(quiet.opening(), spdy::open_session(false, false, false, true));
    }

    #[test]
    fn input_its_end_and_sizes_go_to_their_streams() {
        let mut channels = Channels::new(Streams { tty: true, ..ALL });
        let said = client(&mut channels, &masked(0x82, b"\0ls\n"));
        let bytes: Vec<u8> = spdy_data(&said.to_runtime, STDIN);
        assert_eq!(bytes, b"ls\n");
        let said = client(&mut channels, &masked(0x82, b"\x04{\"Width\":80,\"Height\":24}"));
        assert_eq!(spdy_data(&said.to_runtime, RESIZE), b"{\"Width\":80,\"Height\":24}");
        let said = client(&mut channels, &masked(0x82, &[255, 0]));
        assert_eq!(said.to_runtime, data(STDIN, &[], true));
        let said = client(&mut channels, &[masked(0x82, b"\x01no"), masked(0x82, b""), masked(0x89, b"hi")].concat());
        assert_eq!((said.to_runtime, said.to_client), (vec![], [0x8a, 2, b'h', b'i'].to_vec()));
        let mut said = Said::default();
        channels.client_said(&masked(0x82, &[255, 0, 0]), &mut said).unwrap_err();
    }

    /// All bytes of one stream in these frames.
    fn spdy_data(mut bytes: &[u8], stream: u32) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() {
            let FrameHead::Data { id, length, .. } = FrameHead::read(*head) else { panic!("a control frame") };
            assert_eq!(id, stream);
            all.extend_from_slice(&rest[..length]);
            bytes = &rest[length..];
        }
        all
    }

    #[test]
    fn output_comes_before_the_status_and_then_the_end() {
        let status = br#"{"metadata":{},"status":"Success"}"#;
        let frames = [
            control(2, &ERROR.to_be_bytes()),
            control(6, &4u32.to_be_bytes()),
            data(STDOUT, b"out", false),
            data(ERROR, status, true),
            data(STDERR, b"err", true),
            data(STDOUT, b"", false),
            data(STDOUT, b"more", true),
            data(STDOUT, b"too late", true),
        ]
        .concat();
        for size in [1, 3, 11, frames.len()] {
            let said = runtime(&mut shell(), &frames, size);
            let (mut out, mut err, mut rest) = (Vec::new(), Vec::new(), Vec::new());
            for message in messages(&said.to_client) {
                match message.split_first() {
                    Some((1, bytes)) => out.extend_from_slice(bytes),
                    Some((2, bytes)) => err.extend_from_slice(bytes),
                    _ => rest.push(message),
                }
            }
            assert_eq!((out.as_slice(), err.as_slice()), (&b"outmore"[..], &b"err"[..]), "{size}");
            assert_eq!(rest, [[&[3], &status[..]].concat(), vec![0x88]], "{size}");
            assert!(said.client_is_done && said.runtime_is_done);
            assert_eq!(said.to_runtime, spdy::ping(4));
        }
    }

    #[test]
    fn a_session_that_breaks_off_is_told_so() {
        let mut channels = shell();
        let mut said = runtime(&mut channels, &data(STDOUT, b"out", false), 4);
        channels.runtime_said(&[], &mut said).expect("an end");
        let text = String::from_utf8_lossy(&said.to_client).into_owned();
        assert!(text.contains("ended without telling"), "{text}");
        assert!(said.client_is_done);
        let said = client(&mut shell(), &masked(0x88, &[3, 232]));
        assert!(said.client_is_done && said.runtime_is_done);
    }

    #[test]
    fn a_tunnel_carries_bytes_as_they_are() {
        let mut tunnel = Tunnel::default();
        let said = client(&mut tunnel, &[masked(0x02, b"ab"), masked(0x80, b"c"), masked(0x89, b"")].concat());
        assert_eq!((said.to_runtime.as_slice(), said.to_client.as_slice()), (&b"abc"[..], &[0x8a, 0][..]));
        let said = runtime(&mut tunnel, b"xyz", 3);
        assert_eq!(messages(&said.to_client), [b"xyz"]);
        let mut said = Said::default();
        tunnel.runtime_said(&[], &mut said).expect("an end");
        assert_eq!(said.to_client, [0x88, 2, 3, 232]);
        assert!(said.client_is_done && said.runtime_is_done);
    }
}

//! Frames of SPDY/3.1, as much as sessions of a container runtime need: streams that a client opens, data, pings.
//!
//! Layer L0, pure; bytes in, bytes out. Nothing is compressed: header blocks go out as stored deflate blocks, and those that come in carry
//! nothing of interest.

/// Bytes of a frame's head.
pub const HEAD: usize = 8;

/// Header of a zlib stream with a preset dictionary, and the checksum of SPDY/3's.
const ZLIB_START: [u8; 6] = [0x78, 0xbb, 0xe3, 0xc6, 0xa7, 0xc2];

/// The streams of a session of exec or attach, by their ids. A client's are odd.
pub mod stream {
    /// How the command did.
    pub const ERROR: u32 = 1;
    /// Standard input.
    pub const STDIN: u32 = 3;
    /// Standard output.
    pub const STDOUT: u32 = 5;
    /// Standard error.
    pub const STDERR: u32 = 7;
    /// Sizes of the terminal.
    pub const RESIZE: u32 = 9;
}

/// What a frame's head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameHead {
    /// Bytes of a stream follow, perhaps its last.
    Data {
        /// The stream.
        id: u32,
        /// Whether nothing of it comes after them.
        last: bool,
        /// How many.
        length: usize,
    },
    /// Something about streams or the connection.
    Control {
        /// What.
        kind: u16,
        /// Bytes that follow.
        length: usize,
    },
}

impl FrameHead {
    /// Reads a head.
    pub fn read(head: [u8; HEAD]) -> Self {
        let [a, b, c, d, flags, e, f, g] = head;
        let (first, length) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([0, e, f, g]));
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if first >> 31 == 0 {
            return Self::Data { id: first, last: flags & 1 != 0, length };
        }
        Self::Control { kind: (first & 0xffff) as u16, length }
    }
}

/// What a control frame says, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The server takes a stream.
    Reply(u32),
    /// The server ends a stream.
    Reset(u32),
    /// To be sent back if its number is even.
    Ping(u32),
    /// Something that needs no answer.
    Other,
}

impl Control {
    /// Reads what follows the head; the first four bytes are enough.
    pub fn read(kind: u16, payload: &[u8]) -> Self {
        let number = payload.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes));
        match (kind, number) {
            (2, Some(id)) => Self::Reply(id & 0x7fff_ffff),
            (3, Some(id)) => Self::Reset(id & 0x7fff_ffff),
            (6, Some(number)) => Self::Ping(number),
            _ => Self::Other,
        }
    }
}

fn frame(first: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    // invariant: what is sent is cut into blocks far below the 24 bits of a length.
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX) & 0x00ff_ffff;
    let mut out = first.to_be_bytes().to_vec();
    out.extend(((u32::from(flags) << 24) | length).to_be_bytes());
    out.extend(payload);
    out
}

/// A control frame of this kind.
pub fn control(kind: u16, payload: &[u8]) -> Vec<u8> {
    frame(0x8003_0000 | u32::from(kind), 0, payload)
}

/// The answer to a ping.
pub fn ping(number: u32) -> Vec<u8> {
    control(6, &number.to_be_bytes())
}

/// Opens a stream for `purpose`. The header blocks of a connection are one zlib stream, which starts with
/// the first of them.
pub fn open_stream(id: u32, purpose: &str, is_first: bool) -> Vec<u8> {
    let mut headers = 1u32.to_be_bytes().to_vec();
    for word in ["streamtype", purpose] {
        headers.extend(u32::try_from(word.len()).unwrap_or(0).to_be_bytes());
        headers.extend(word.as_bytes());
    }
    let mut payload = id.to_be_bytes().to_vec();
    // No associated stream, no priority.
    payload.extend([0; 6]);
    if is_first {
        payload.extend(ZLIB_START);
    }
    // invariant: a purpose is one of our few short words.
    let length = u16::try_from(headers.len()).unwrap_or(0);
    payload.push(0);
    payload.extend(length.to_le_bytes());
    payload.extend((!length).to_le_bytes());
    payload.extend(headers);
    // An empty block makes the reader hand out what it has.
    payload.extend([0, 0, 0, 0xff, 0xff]);
    control(1, &payload)
}

/// Opens the streams of a session with these: those of the error, and of what else it has.
pub fn open_session(stdin: bool, stdout: bool, stderr: bool, tty: bool) -> Vec<u8> {
    use stream::{ERROR, RESIZE, STDERR, STDIN, STDOUT};
    let mut out = open_stream(ERROR, "error", true);
    let others = [
        (stdin, STDIN, "stdin"),
        (stdout, STDOUT, "stdout"),
        (stderr && !tty, STDERR, "stderr"),
        (tty, RESIZE, "resize"),
    ];
    for (_, id, purpose) in others.into_iter().filter(|(wanted, _, _)| *wanted) {
        out.extend(open_stream(id, purpose, false));
    }
    out
}

/// Bytes of a stream, perhaps its last.
pub fn data(id: u32, bytes: &[u8], last: bool) -> Vec<u8> {
    frame(id, u8::from(last), bytes)
}

//! What every client of HTTP/2 (RFC 9113) needs: the first words of a connection, frames and their names. Pure.
//!
//! Used by the API client's streams and by gRPC probes. There is no connection in here: each of them has one of its own
//! kind, with as few rules as it can do with.

pub mod hpack;

/// What a client says first, before its settings.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Largest payload of a frame, which the standard gives and nobody here raises.
pub const MAX_FRAME: usize = 16 * 1024;
/// Bytes of a frame's head.
pub const FRAME_HEAD: usize = 9;

/// Kinds of frames.
#[allow(missing_docs)]
pub mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub mod flag {
    /// Of SETTINGS and PING.
    pub const ACK: u8 = 1;
    /// Of DATA and HEADERS.
    pub const END_STREAM: u8 = 1;
    /// Of HEADERS and CONTINUATION.
    pub const END_HEADERS: u8 = 4;
    /// Of DATA and HEADERS.
    pub const PADDED: u8 = 8;
    /// Of HEADERS.
    pub const PRIORITY: u8 = 0x20;
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Bytes of the payload.
    pub length: usize,
    /// See [`kind`].
    pub kind: u8,
    /// See [`flag`].
    pub flags: u8,
    /// The stream; 0 for the connection.
    pub stream: u32,
}

impl FrameHead {
    /// Reads a head.
    pub fn read(head: [u8; FRAME_HEAD]) -> Self {
        let [a, b, c, kind, flags, id @ ..] = head;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        Self { length, kind, flags, stream: u32::from_be_bytes(id) & 0x7fff_ffff }
    }
}

/// Writes a frame whose payload has at most [`MAX_FRAME`] bytes.
pub fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    out.extend(&length[1..]);
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
}

/// Writes SETTINGS.
pub fn settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    let mut payload = Vec::with_capacity(settings.len() * 6);
    for (name, value) in settings {
        payload.extend(name.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    frame(out, kind::SETTINGS, 0, 0, &payload);
}

/// A payload without its padding.
///
/// # Errors
/// It is shorter than it says.
pub fn unpad(flags: u8, payload: &[u8]) -> Result<&[u8], &'static str> {
    if flags & flag::PADDED == 0 {
        return Ok(payload);
    }
    let (padding, rest) = payload.split_first().ok_or("a frame is too short")?;
    let kept = rest.len().checked_sub(usize::from(*padding)).ok_or("a frame has more padding than content")?;
    Ok(&rest[..kept])
}

/// The header block of a HEADERS frame, or its first piece.
///
/// # Errors
/// It is shorter than it says.
pub fn header_block(flags: u8, payload: &[u8]) -> Result<&[u8], &'static str> {
    let block = unpad(flags, payload)?;
    let skipped = if flags & flag::PRIORITY == 0 { 0 } else { 5 };
    block.get(skipped..).ok_or("a frame is too short")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_written_and_read_as_the_standard_has_them() {
        let mut out = Vec::new();
        frame(&mut out, kind::HEADERS, flag::END_HEADERS, 3, b"abc");
        settings(&mut out, &[(4, 65_536)]);
        assert_eq!(
            out,
            [&[0, 0, 3, 1, 4, 0, 0, 0, 3][..], b"abc", &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0]].concat()
        );
        let head = FrameHead::read([1, 2, 3, 9, 5, 0xff, 0, 0, 1]);
        assert_eq!(head, FrameHead { length: 0x01_0203, kind: 9, flags: 5, stream: 0x7f00_0001 });
        for (flags, payload, expect) in [
            (0, &b"abc"[..], Ok(&b"abc"[..])),
            (flag::PADDED, &[1, b'a', 0], Ok(b"a")),
            (flag::PADDED | flag::PRIORITY, &[1, 0, 0, 0, 0, 0, b'a', 0], Ok(b"a")),
            (flag::PADDED, &[3, b'a'], Err("a frame has more padding than content")),
            (flag::PADDED, &[], Err("a frame is too short")),
            (flag::PRIORITY, &[0, 0], Err("a frame is too short")),
        ] {
            assert_eq!(header_block(flags, payload), expect, "{payload:?}");
        }
    }
}

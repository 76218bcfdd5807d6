//! WebSocket frames (RFC 6455) as a server reads and writes them, and the answer to a client's wish for them.
//!
//! Pure: bytes in, pieces out. A message is handed on piece by piece as it comes; no more than a frame's head, or a control
//! frame of 125 bytes, is ever kept.

use crate::api::base64;

/// Longest payload of a control frame.
const MAX_CONTROL: usize = 125;
/// What a client's key is answered with, by the RFC.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Kinds of frames.
mod opcode {
    pub(super) const CONTINUATION: u8 = 0;
    pub(super) const TEXT: u8 = 1;
    pub(super) const BINARY: u8 = 2;
    pub(super) const CLOSE: u8 = 8;
    pub(super) const PING: u8 = 9;
    pub(super) const PONG: u8 = 10;
}

/// What a client said.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// A piece of a message.
    Piece {
        /// The message begins with it.
        first: bool,
        /// Its bytes.
        bytes: Vec<u8>,
        /// The message ends with it.
        last: bool,
    },
    /// To be sent back by [`pong`].
    Ping(Vec<u8>),
    /// It goes.
    Close,
}

/// The frame at hand.
#[derive(Clone, Copy, Debug)]
struct Frame {
    opcode: u8,
    is_final: bool,
    left: u64,
    mask: [u8; 4],
    /// Bytes of it so far, for the mask.
    place: usize,
    /// Whether its message began with it and nothing of it was handed on.
    begins: bool,
}

/// Reads frames of a client.
#[derive(Debug, Default)]
pub struct Reader {
    /// A head, or a control frame, that is not whole yet.
    kept: Vec<u8>,
    frame: Option<Frame>,
    in_message: bool,
}

impl Reader {
    /// Takes what came; tells what it says to `tell`.
    ///
    /// # Errors
    /// It is not what a client may send.
    pub fn take(&mut self, mut bytes: &[u8], tell: &mut dyn FnMut(Said)) -> Result<(), String> {
        while !bytes.is_empty() {
            let Some(frame) = &mut self.frame else {
                self.kept.push(bytes[0]);
                bytes = &bytes[1..];
                if let Some(frame) = self.head()? {
                    self.kept.clear();
                    self.frame = Some(frame);
                    if frame.left == 0 {
                        self.piece(&[], tell);
                    }
                }
                continue;
            };
            let count = usize::try_from(frame.left).unwrap_or(usize::MAX).min(bytes.len());
            let (now, later) = bytes.split_at(count);
            frame.left -= count as u64;
            bytes = later;
            self.piece(now, tell);
        }
        Ok(())
    }

    /// Hands on a piece of the frame at hand, and lets go of the frame after its last one.
    fn piece(&mut self, masked: &[u8], tell: &mut dyn FnMut(Said)) {
        let Some(frame) = &mut self.frame else { return };
        let mut bytes = masked.to_vec();
        let mut mask = frame.mask;
        mask.rotate_left(frame.place);
        // Eight bytes at a time: a copied file is nothing but such pieces.
        let word = u32::from_ne_bytes(mask);
        let word = u64::from(word) << 32 | u64::from(word);
        let mut eights = bytes.chunks_exact_mut(8);
        for eight in &mut eights {
            if let Some(eight) = eight.first_chunk_mut::<8>() {
                *eight = (u64::from_ne_bytes(*eight) ^ word).to_ne_bytes();
            }
        }
        for (byte, mask) in eights.into_remainder().iter_mut().zip(mask.iter().cycle()) {
            *byte ^= mask;
        }
        frame.place = (frame.place + masked.len()) % 4;
        let is_whole = frame.left == 0;
        match frame.opcode {
            opcode::CLOSE | opcode::PING | opcode::PONG => {
                self.kept.extend(bytes);
                if is_whole {
                    let payload = std::mem::take(&mut self.kept);
                    match frame.opcode {
                        opcode::CLOSE => tell(Said::Close),
                        opcode::PING => tell(Said::Ping(payload)),
                        _ => {}
                    }
                }
            }
            _ => {
                let first = std::mem::take(&mut frame.begins);
                tell(Said::Piece { first, bytes, last: is_whole && frame.is_final });
            }
        }
        if is_whole {
            self.frame = None;
        }
    }

    /// The head in `kept`, if it is whole.
    fn head(&mut self) -> Result<Option<Frame>, String> {
        let refuse = |why: &str| Err(format!("the client's WebSocket frames are broken: {why}"));
        let [first, second, rest @ ..] = self.kept.as_slice() else { return Ok(None) };
        let (opcode, is_final) = (first & 0x0f, first & 0x80 != 0);
        if first & 0x70 != 0 {
            return refuse("an extension that was not agreed on");
        }
        if second & 0x80 == 0 {
            return refuse("one without a mask");
        }
        let (size, width) = match second & 0x7f {
            126 => (None, 2),
            127 => (None, 8),
            small => (Some(u64::from(small)), 0),
        };
        if rest.len() < width + 4 {
            return Ok(None);
        }
        let (length, mask) = rest.split_at(width);
        let left = size.unwrap_or_else(|| length.iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte)));
        let mask = mask.first_chunk::<4>().copied().unwrap_or_default();
        let mut begins = false;
        match opcode {
            opcode::CLOSE | opcode::PING | opcode::PONG if !is_final || left > MAX_CONTROL as u64 => {
                return refuse("a control frame that is too long");
            }
            opcode::CLOSE | opcode::PING | opcode::PONG => {}
            opcode::CONTINUATION if !self.in_message => return refuse("a message without a begin"),
            opcode::TEXT | opcode::BINARY if self.in_message => return refuse("a message within a message"),
            opcode::CONTINUATION => self.in_message = !is_final,
            opcode::TEXT | opcode::BINARY => {
                begins = true;
                self.in_message = !is_final;
            }
            _ => return refuse("a frame of an unknown kind"),
        }
        if left >> 63 != 0 {
            return refuse("a frame that is too long");
        }
        Ok(Some(Frame { opcode, is_final, left, mask, place: 0, begins }))
    }
}

fn frame(out: &mut Vec<u8>, opcode: u8, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.push(0x80 | opcode);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(length), _) if length < 126 => out.push(length),
        (_, Ok(length)) => {
            out.push(126);
            out.extend(length.to_be_bytes());
        }
        _ => {
            out.push(127);
            out.extend((length as u64).to_be_bytes());
        }
    }
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// A message of these parts.
pub fn message(out: &mut Vec<u8>, parts: &[&[u8]]) {
    frame(out, opcode::BINARY, parts);
}

/// The answer to a ping.
pub fn pong(out: &mut Vec<u8>, payload: &[u8]) {
    frame(out, opcode::PONG, &[payload]);
}

/// The end, a normal one.
pub fn close(out: &mut Vec<u8>) {
    frame(out, opcode::CLOSE, &[&1000u16.to_be_bytes()]);
}

/// The head of the answer that goes on with WebSockets.
pub fn accept(key: &str, protocol: &str) -> Vec<u8> {
    let word = base64(&sha1(format!("{key}{GUID}").as_bytes()));
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {word}\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
    )
    .into_bytes()
}

/// SHA-1, which the RFC asks for as a sign of understanding and not for its strength.
fn sha1(bytes: &[u8]) -> [u8; 20] {
    let mut state = [0x6745_2301u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    padded.resize(padded.len().next_multiple_of(64), 0);
    if padded.len() - bytes.len() < 9 {
        padded.resize(padded.len() + 64, 0);
    }
    let end = padded.len() - 8;
    padded[end..].copy_from_slice(&(8 * bytes.len() as u64).to_be_bytes());
    for block in padded.chunks_exact(64) {
        let mut words = [0u32; 80];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = bytes.iter().fold(0, |word, byte| (word << 8) | u32::from(*byte));
        }
        for at in 16..80 {
            words[at] = (words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16]).rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (round, word) in words.iter().enumerate() {
            let (mixed, constant) = match round {
                0..20 => ((b & c) | (!b & d), 0x5a82_7999),
                20..40 => (b ^ c ^ d, 0x6ed9_eba1),
                40..60 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6u32),
            };
            let next = a.rotate_left(5).wrapping_add(mixed).wrapping_add(e).wrapping_add(constant).wrapping_add(*word);
            (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
        }
        for (sum, new) in state.iter_mut().zip([a, b, c, d, e]) {
            *sum = sum.wrapping_add(new);
        }
    }
    let mut out = [0; 20];
    for (place, word) in out.chunks_exact_mut(4).zip(state) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    out
}

/// A client's frames, for tests.
#[cfg(test)]
pub(super) fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    match payload.len() {
        small @ 0..126 => out.push(0x80 | small as u8),
        medium @ 126..65536 => {
            out.push(0x80 | 126);
            out.extend((medium as u16).to_be_bytes());
        }
        large => {
            out.push(0x80 | 127);
            out.extend((large as u64).to_be_bytes());
        }
    }
    let mask = [1u8, 2, 3, 250];
    out.extend(mask);
    out.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Whole messages and control frames, of frames that come in pieces of this size.
    fn heard(bytes: &[u8], size: usize) -> Result<Vec<String>, String> {
        let (mut reader, mut message, mut all) = (Reader::default(), Vec::new(), Vec::new());
        for piece in bytes.chunks(size) {
            reader.take(piece, &mut |said| match said {
                Said::Piece { first, bytes, last } => {
                    assert!(!first || message.is_empty());
                    message.extend(bytes);
                    if last {
                        all.push(String::from_utf8_lossy(&std::mem::take(&mut message)).into_owned());
                    }
                }
                Said::Ping(payload) => all.push(format!("ping {}", String::from_utf8_lossy(&payload))),
                Said::Close => all.push("close".to_owned()),
            })?;
        }
        Ok(all)
    }

    #[test]
    fn frames_are_read_in_whatever_pieces_they_come() {
        let large = "x".repeat(70_000);
        let bytes = [
            masked(0x82, b"one"),
            masked(0x81, b""),
            masked(0x02, b"tw"),
            masked(0x89, b"there?"),
            masked(0x80, b"o"),
            masked(0x8a, b""),
            masked(0x82, &[b'y'; 300]),
            masked(0x82, large.as_bytes()),
            masked(0x88, &[3, 232]),
        ]
        .concat();
        let medium = "y".repeat(300);
        let expect = ["one", "", "ping there?", "two", medium.as_str(), large.as_str(), "close"];
        for size in [1, 2, 7, 1000, bytes.len()] {
            assert!(heard(&bytes, size).unwrap() == expect, "in pieces of {size}");
        }
    }

    #[test]
    fn what_no_client_sends_is_refused() {
        for (bytes, expect) in [
            (vec![0x82, 1, b'x'], "without a mask"),
            (masked(0xc2, b"x"), "extension"),
            (masked(0x80, b"x"), "without a begin"),
            ([masked(0x02, b"x"), masked(0x82, b"x")].concat(), "within a message"),
            (masked(0x09, b"x"), "control frame"),
            (masked(0x89, &[0; 126]), "control frame"),
            (masked(0x83, b""), "unknown kind"),
            ([&[0x82, 0xff][..], &[0xff; 12]].concat(), "too long"),
        ] {
            let error = heard(&bytes, 3).unwrap_err();
            assert!(error.contains(expect), "{error}");
        }
    }

    #[test]
    fn frames_are_written_in_their_shortest_form() {
        for (length, expect) in [
            (0, &[0x82, 0][..]),
            (125, &[0x82, 125]),
            (126, &[0x82, 126, 0, 126]),
            (65536, &[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            let mut out = Vec::new();
            message(&mut out, &[&vec![b'x'; length]]);
            assert_eq!(&out[..expect.len()], expect);
            assert_eq!(out.len(), expect.len() + length);
        }
        let mut out = Vec::new();
        close(&mut out);
        pong(&mut out, b"x");
        assert_eq!(out, [0x88, 2, 3, 232, 0x8a, 1, b'x']);
    }

    #[test]
    fn the_answer_is_that_of_the_rfc() {
        let answer = String::from_utf8(accept("dGhlIHNhbXBsZSBub25jZQ==", "v5.channel.k8s.io")).unwrap();
        assert!(answer.contains("\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{answer}");
        let hex = |bytes: &[u8]| sha1(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(b""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(hex(&[b'a'; 55]), "c1c8bbdc22796e28c0e15163d20899b65621d65a");
        assert_eq!(hex(&[b'a'; 64]), "0098ba824b5c16427bd7a1122a5a442a25ec644d");
        assert_eq!(base64(b"ab"), "YWI=");
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(6), failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_bytes_are_frames_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), size in 1usize..20) {
            let whole = heard(&bytes, bytes.len().max(1));
            let pieces = heard(&bytes, size);
            prop_assert_eq!(whole.is_ok(), pieces.is_ok());
        }
    }
}

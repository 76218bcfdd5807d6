//! Header blocks of HTTP/2 (RFC 7541), as much as a client of watches needs: it writes headers without a
//! table of its own, and reads status and Retry-After of an answer, whose sender was told to keep no table
//! either. Pure. Everything else of an answer's head is passed over unread.

use std::time::Duration;

/// Places in the standard's fixed table.
mod place {
    pub(super) const AUTHORITY: u8 = 1;
    pub(super) const METHOD_GET: u8 = 2;
    pub(super) const PATH: u8 = 4;
    pub(super) const SCHEME_HTTPS: u8 = 7;
    pub(super) const STATUS_FIRST: usize = 8;
    pub(super) const STATUS_LAST: usize = 14;
    pub(super) const ACCEPT: u8 = 19;
    pub(super) const AUTHORIZATION: u8 = 23;
    pub(super) const RETRY_AFTER: usize = 53;
    pub(super) const USER_AGENT: u8 = 58;
    pub(super) const LAST: usize = 61;
}

/// Values of the places 8 to 14.
const STATUSES: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];

/// What a GET says.
pub(super) struct Head<'a> {
    pub(super) authority: &'a str,
    pub(super) path: &'a str,
    pub(super) user_agent: &'a str,
    pub(super) authorization: Option<&'a str>,
}

/// Writes the header block of a GET. The first block of a connection also says that no table is kept.
pub(super) fn write(head: &Head<'_>, is_first: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    if is_first {
        out.push(0x20);
    }
    out.extend([0x80 | place::METHOD_GET, 0x80 | place::SCHEME_HTTPS]);
    literal(&mut out, 0, place::PATH, head.path);
    literal(&mut out, 0, place::AUTHORITY, head.authority);
    literal(&mut out, 0, place::ACCEPT, "application/json");
    literal(&mut out, 0, place::USER_AGENT, head.user_agent);
    if let Some(authorization) = head.authorization {
        // Never indexed, by nobody on the way.
        literal(&mut out, 0x10, place::AUTHORIZATION, authorization);
    }
    out
}

fn literal(out: &mut Vec<u8>, kind: u8, name: u8, value: &str) {
    integer(out, kind, 4, usize::from(name));
    integer(out, 0, 7, value.len());
    out.extend(value.as_bytes());
}

/// An integer whose first `bits` bits share a byte with `flags`.
fn integer(out: &mut Vec<u8>, flags: u8, bits: u32, value: usize) {
    let most = (1_usize << bits) - 1;
    let small = |value: usize| u8::try_from(value).unwrap_or(u8::MAX);
    if value < most {
        out.push(flags | small(value));
        return;
    }
    out.push(flags | small(most));
    let mut rest = value - most;
    while rest >= 128 {
        out.push(small(rest % 128) | 0x80);
        rest /= 128;
    }
    out.push(small(rest));
}

/// What of an answer's head is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: Option<u16>,
    pub(super) retry_after: Option<Duration>,
}

/// Reads a header block.
///
/// # Errors
/// It is none, or it draws on a table that nobody keeps.
pub(super) fn read(block: &[u8]) -> Result<Answer, &'static str> {
    let mut reader = Reader { rest: block };
    let mut answer = Answer::default();
    while let Some(first) = reader.rest.first().copied() {
        let bits = match first {
            0x80.. => {
                let index = reader.integer(7)?;
                match index {
                    place::STATUS_FIRST..=place::STATUS_LAST => {
                        answer.status = STATUSES.get(index - place::STATUS_FIRST).copied();
                    }
                    1..=place::LAST => {}
                    _ => return Err("a header of a table that is not kept"),
                }
                continue;
            }
            0x40.. => 6,
            0x20.. => {
                reader.integer(5)?;
                continue;
            }
            _ => 4,
        };
        let name = reader.integer(bits)?;
        if name > place::LAST {
            return Err("a header of a table that is not kept");
        }
        if name == 0 {
            reader.string()?;
        }
        let (is_packed, value) = reader.string()?;
        match name {
            place::STATUS_FIRST..=place::STATUS_LAST => {
                answer.status = digits(is_packed, value).and_then(|number| u16::try_from(number).ok());
            }
            place::RETRY_AFTER => answer.retry_after = digits(is_packed, value).map(Duration::from_secs),
            _ => {}
        }
    }
    Ok(answer)
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8, &'static str> {
        let (first, rest) = self.rest.split_first().ok_or("a header block that ends too early")?;
        self.rest = rest;
        Ok(*first)
    }

    fn integer(&mut self, bits: u32) -> Result<usize, &'static str> {
        let most = (1_usize << bits) - 1;
        let mut value = usize::from(self.byte()?) & most;
        if value < most {
            return Ok(value);
        }
        // Four more bytes are more than any header is long.
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a number that is too large in a header block")
    }

    /// A string, and whether it is packed by Huffman's code.
    fn string(&mut self) -> Result<(bool, &'a [u8]), &'static str> {
        let is_packed = self.rest.first().is_some_and(|first| first & 0x80 != 0);
        let length = self.integer(7)?;
        let (value, rest) = self.rest.split_at_checked(length).ok_or("a header block that ends too early")?;
        self.rest = rest;
        Ok((is_packed, value))
    }
}

/// A number; `None` for anything else, or for too many digits.
fn digits(is_packed: bool, value: &[u8]) -> Option<u64> {
    let text = if is_packed { unpack_digits(value)? } else { String::from_utf8(value.to_vec()).ok()? };
    text.parse().ok()
}

/// Digits have 5 or 6 bits each in Huffman's code: 0 to 2 are 00000 to 00010, 3 to 9 are 011001 to 011111.
fn unpack_digits(value: &[u8]) -> Option<String> {
    let bits: Vec<u8> = value.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let number = |bits: &[u8]| bits.iter().fold(0_u8, |all, bit| all * 2 + bit);
    let (mut text, mut at) = (String::new(), 0);
    // Less than a byte of ones fills up the end.
    while !(bits.len() - at < 8 && bits[at..].iter().all(|bit| *bit == 1)) {
        let five = number(bits.get(at..at + 5)?);
        let (digit, length) = match five {
            0..=2 => (five, 5),
            _ => (number(bits.get(at..at + 6)?).checked_sub(0b01_1001).filter(|n| *n <= 6)? + 3, 6),
        };
        text.push(char::from(b'0' + digit));
        at += length;
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Packs digits by Huffman's code, as servers do.
    fn pack(text: &str) -> Vec<u8> {
        let mut bits = Vec::new();
        for digit in text.bytes().map(|b| b - b'0') {
            let (value, length) = if digit < 3 { (digit, 5) } else { (0b01_1001 + digit - 3, 6) };
            bits.extend((0..length).rev().map(|bit| value >> bit & 1));
        }
        bits.resize(bits.len().div_ceil(8) * 8, 1);
        bits.chunks(8).map(|byte| byte.iter().fold(0, |all, bit| all * 2 + bit)).collect()
    }

    #[test]
    fn a_request_is_written_as_the_standard_has_it() {
        let head = Head { authority: "h", path: "/p", user_agent: "a", authorization: Some("Bearer x") };
        let mut expect = vec![0x20, 0x82, 0x87, 0x04, 2, b'/', b'p', 0x01, 1, b'h', 0x0f, 4, 16];
        expect.extend(b"application/json");
        expect.extend([0x0f, 43, 1, b'a', 0x1f, 8, 8]);
        expect.extend(b"Bearer x");
        assert_eq!(write(&head, true), expect);
        assert_eq!(write(&head, false), expect[1..]);
        let mut long = Vec::new();
        // The standard's own example: 1337 in five bits.
        integer(&mut long, 0, 5, 1337);
        assert_eq!(long, [31, 154, 10]);
    }

    #[test]
    fn status_and_retry_after_are_read_and_the_rest_is_skipped() {
        let packed = |text: &str| {
            let value = pack(text);
            [vec![0x80 | u8::try_from(value.len()).expect("short")], value].concat()
        };
        for (block, expect) in [
            (vec![0x88], Ok((Some(200), None))),
            (vec![0x20, 0x8d, 0x0f, 16, 1, b'x'], Ok((Some(404), None))),
            ([vec![0x48], packed("410")].concat(), Ok((Some(410), None))),
            ([vec![0x08, 3], b"429".to_vec(), vec![0x0f, 38], packed("17")].concat(), Ok((Some(429), Some(17)))),
            ([vec![0x88, 0x0f, 38, 3], b"Sun".to_vec()].concat(), Ok((Some(200), None))),
            ([vec![0x00, 3], b"x-y".to_vec(), vec![1, b'z', 0x88]].concat(), Ok((Some(200), None))),
            (vec![], Ok((None, None))),
            (vec![0xbe], Err("a header of a table that is not kept")),
            (vec![0x08, 3, b'4'], Err("a header block that ends too early")),
            (vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff], Err("a number that is too large in a header block")),
        ] {
            let got = read(&block).map(|a| (a.status, a.retry_after.map(|d| d.as_secs())));
            assert_eq!(got, expect, "{block:02x?}");
        }
    }

    proptest! {
        #[test]
        fn packed_digits_come_back(number in 0..10_000_000_000_u64) {
            prop_assert_eq!(digits(true, &pack(&number.to_string())), Some(number));
        }

        #[test]
        fn any_block_is_read_or_refused(block in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = read(&block);
        }
    }
}

//! Header blocks of HTTP/2 (RFC 7541), as much as a client of watches needs: it writes headers without a
//! table of its own, and reads status and Retry-After of an answer, whose sender was told to keep no table
//! either. Pure. Everything else of an answer's head is passed over unread.

use std::time::Duration;

use crate::util::http2::hpack::{self, Fields};

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
        out.push(hpack::NO_TABLE);
    }
    out.extend([0x80 | place::METHOD_GET, 0x80 | place::SCHEME_HTTPS]);
    hpack::placed(&mut out, place::PATH, head.path, false);
    hpack::placed(&mut out, place::AUTHORITY, head.authority, false);
    hpack::placed(&mut out, place::ACCEPT, "application/json", false);
    hpack::placed(&mut out, place::USER_AGENT, head.user_agent, false);
    if let Some(authorization) = head.authorization {
        // Never indexed, by nobody on the way.
        hpack::placed(&mut out, place::AUTHORIZATION, authorization, true);
    }
    out
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
    let mut answer = Answer::default();
    for field in Fields::of(block) {
        let field = field?;
        let number = || -> Option<u64> { field.value?.read()?.parse().ok() };
        match (field.place, field.value) {
            (place::STATUS_FIRST..=place::STATUS_LAST, None) => {
                answer.status = STATUSES.get(field.place - place::STATUS_FIRST).copied();
            }
            (place::STATUS_FIRST..=place::STATUS_LAST, Some(_)) => {
                answer.status = number().and_then(|number| u16::try_from(number).ok());
            }
            (place::RETRY_AFTER, Some(_)) => answer.retry_after = number().map(Duration::from_secs),
            _ => {}
        }
    }
    Ok(answer)
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
        fn any_block_is_read_or_refused(block in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = read(&block);
        }
    }
}

//! Header blocks of HTTP/2 (RFC 7541) between peers that keep no table of their own: literals go out, and what comes in
//! draws on the standard's fixed table at most. Pure.

use crate::util::order;

/// Last place of the standard's fixed table.
pub const LAST_PLACE: usize = 61;

/// The first byte of the first block of a connection: no table is kept.
pub const NO_TABLE: u8 = 0x20;

/// Most bytes of a string that is unpacked.
const MAX_UNPACKED: usize = 64 * 1024;

/// A header of an incoming block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its name's place in the fixed table; 0 for a name that is written out.
    pub place: usize,
    /// A name that is written out.
    pub name: Text<'a>,
    /// Its value; `None` for one that the place stands for.
    pub value: Option<Text<'a>>,
}

/// A string as it came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Text<'a> {
    bytes: &'a [u8],
    is_packed: bool,
}

impl Text<'_> {
    /// The string; `None` if it is none.
    pub fn read(&self) -> Option<String> {
        let bytes = if self.is_packed { unpack(self.bytes)? } else { self.bytes.to_vec() };
        String::from_utf8(bytes).ok()
    }
}

/// Writes a header whose name has a place in the fixed table. `never_indexed` keeps it out of every table on the way.
pub fn placed(out: &mut Vec<u8>, place: u8, value: &str, never_indexed: bool) {
    integer(out, if never_indexed { 0x10 } else { 0 }, 4, usize::from(place));
    string(out, value);
}

/// Writes a header whose name has no place.
pub fn named(out: &mut Vec<u8>, name: &str, value: &str) {
    out.push(0);
    string(out, name);
    string(out, value);
}

fn string(out: &mut Vec<u8>, text: &str) {
    integer(out, 0, 7, text.len());
    out.extend(text.as_bytes());
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

/// Reads a header block, field after field.
#[derive(Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The fields of a block.
    pub fn of(block: &'a [u8]) -> Self {
        Self { rest: block }
    }

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

    fn text(&mut self) -> Result<Text<'a>, &'static str> {
        let is_packed = self.rest.first().is_some_and(|first| first & 0x80 != 0);
        let length = self.integer(7)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or("a header block that ends too early")?;
        self.rest = rest;
        Ok(Text { bytes, is_packed })
    }

    fn field(&mut self, first: u8) -> Result<Option<Field<'a>>, &'static str> {
        let bits = match first {
            0x80.. => 7,
            0x40.. => 6,
            // The other side changes the size of its table.
            0x20.. => return self.integer(5).map(|_| None),
            _ => 4,
        };
        let place = self.integer(bits)?;
        if place > LAST_PLACE || (bits == 7 && place == 0) {
            return Err("a header of a table that is not kept");
        }
        if bits == 7 {
            return Ok(Some(Field { place, name: Text::default(), value: None }));
        }
        let name = if place == 0 { self.text()? } else { Text::default() };
        Ok(Some(Field { place, name, value: Some(self.text()?) }))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, &'static str>;

    /// The next field; an error is the last one.
    fn next(&mut self) -> Option<Self::Item> {
        while let Some(first) = self.rest.first().copied() {
            match self.field(first) {
                Ok(Some(field)) => return Some(Ok(field)),
                Ok(None) => {}
                Err(why) => {
                    self.rest = &[];
                    return Some(Err(why));
                }
            }
        }
        None
    }
}

/// Bits of each byte in Huffman's code (RFC 7541, appendix B). Codes of one length follow one another, in the order of
/// their bytes, and shorter ones come first: the lengths tell all.
#[rustfmt::skip]
const BITS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

/// The longest of them.
const MOST_BITS: usize = 30;

/// Unpacks Huffman's code; `None` if it is none.
fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let mut order: Vec<u8> = (0..=u8::MAX).collect();
    order::sort_by_key(&mut order, |byte| BITS[usize::from(*byte)]);
    let mut count = [0_u32; MOST_BITS + 1];
    for bits in BITS {
        count[usize::from(bits)] += 1;
    }
    let mut out = Vec::new();
    // The code so far, and of all codes of its length the first one with its place in the order.
    let (mut code, mut bits, mut first, mut place) = (0_u32, 0_usize, 0_u32, 0_usize);
    let mut is_all_ones = true;
    for at in 0..packed.len() * 8 {
        let bit = u32::from(packed[at / 8] >> (7 - at % 8) & 1);
        is_all_ones &= bit == 1;
        first = (first + count[bits]) << 1;
        place += usize::try_from(count[bits]).ok()?;
        bits += 1;
        code = code << 1 | bit;
        if bits > MOST_BITS || out.len() > MAX_UNPACKED {
            return None;
        }
        if code >= first && code - first < count[bits] {
            out.push(*order.get(place + usize::try_from(code - first).ok()?)?);
            (code, bits, first, place, is_all_ones) = (0, 0, 0, 0, true);
        }
    }
    // Less than a byte of ones fills up the end.
    (bits < 8 && is_all_ones).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<char> = text.chars().filter(char::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).expect("hex")).collect()
    }

    #[test]
    fn the_standards_own_examples_are_unpacked() {
        for (packed, expect) in [
            ("f1e3 c2e5 f23a 6ba0 ab90 f4ff", Some("www.example.com")),
            ("a8eb 1064 9cbf", Some("no-cache")),
            ("25a8 49e9 5ba9 7d7f", Some("custom-key")),
            ("25a8 49e9 5bb8 e8b4 bf", Some("custom-value")),
            ("6402", Some("302")),
            ("d07a be94 1054 d444 a820 0595 040b 8166 e082 a62d 1bff", Some("Mon, 21 Oct 2013 20:13:21 GMT")),
            ("9d29 ad17 1863 c78f 0b97 c8e9 ae82 ae43 d3", Some("https://www.example.com")),
            ("", Some("")),
            // A byte of padding, padding of zeroes, and the code that ends everything.
            ("6402 ff", None),
            ("00", None),
            ("ffff fffc", None),
        ] {
            let text = Text { bytes: &hex(packed), is_packed: true };
            assert_eq!(text.read().as_deref(), expect, "{packed}");
        }
    }

    /// The fields of a block, as `place name=value`.
    fn check(block: &[u8], expect: &str) {
        let tell = |field: Result<Field<'_>, &'static str>| match field {
            Ok(Field { place, name, value }) => {
                let value = value.map(|value| value.read().unwrap_or_else(|| "?".to_owned()));
                format!("{place} {}={}", name.read().unwrap_or_default(), value.unwrap_or_else(|| "-".to_owned()))
            }
            Err(why) => why.to_owned(),
        };
        assert_eq!(Fields::of(block).map(tell).collect::<Vec<_>>().join(", "), expect, "{block:02x?}");
    }

    #[test]
    fn blocks_are_read_field_by_field() {
        check(&[], "");
        check(&[NO_TABLE, 0x88, 0x48, 0x82, 0x64, 0x02], "8 =-, 8 =302");
        check(&[0x00, 1, b'x', 1, b'y', 0x10, 1, b'x', 0], "0 x=y, 0 x=");
        check(&[0x88, 0xbe], "8 =-, a header of a table that is not kept");
        check(&[0x80], "a header of a table that is not kept");
        check(&[0x08, 3, b'4'], "a header block that ends too early");
        check(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff], "a number that is too large in a header block");
        let mut block = Vec::new();
        placed(&mut block, 58, &"a".repeat(200), true);
        named(&mut block, "te", "trailers");
        check(&block, &format!("58 ={}, 0 te=trailers", "a".repeat(200)));
        let mut long = Vec::new();
        integer(&mut long, 0, 5, 1337);
        assert_eq!(long, [31, 154, 10]);
    }

    proptest! {
        #[test]
        fn any_block_is_read_or_refused(block in proptest::collection::vec(any::<u8>(), 0..40)) {
            for field in Fields::of(&block).flatten() {
                let _ = field.value.and_then(|value| value.read());
            }
        }
    }
}

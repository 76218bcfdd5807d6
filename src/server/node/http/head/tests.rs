//! Heads that are read, heads that are refused, and bytes of any kind.

use super::*;
use proptest::prelude::*;

/// What a head says, in short.
fn summary(head: &Head) -> String {
    let mut text = format!("{} {} {:?}", head.method.as_str(), head.path, head.framing);
    for (set, word) in [(head.is_old, " old"), (head.closes, " closes"), (head.expects_continue, " expects")] {
        text.push_str(if set { word } else { "" });
    }
    if let Some(protocol) = head.upgrade() {
        text.push_str(&format!(" upgrade={protocol}"));
    }
    text
}

/// `|` stands for carriage return and line feed.
fn check(text: &str, expect: Result<&str, u16>) {
    let text = text.replace('|', "\r\n");
    let got = parse(text.as_bytes());
    let got = match &got {
        Ok(Some((head, length))) => {
            assert_eq!(*length, text.find("\r\n\r\n").expect("an end") + 4, "{text:?}");
            Ok(summary(head))
        }
        Ok(None) => Ok("more".to_owned()),
        Err(refusal) => Err(refusal.status),
    };
    assert_eq!(got.as_deref().map_err(|status| *status), expect, "{text:?}");
}

#[test]
fn heads_are_read() {
    check("GET / HTTP/1.1|Host: n||", Ok("GET / Length(0)"));
    check("GET /pods?a=b HTTP/1.1|Host: n|X: y||more bytes", Ok("GET /pods Length(0)"));
    check("POST /run/a/b/c HTTP/1.1|host:n|content-length: 5||hello", Ok("POST /run/a/b/c Length(5)"));
    check("PUT /debug/flags/v HTTP/1.1|Host: n|Transfer-Encoding: Chunked||", Ok("PUT /debug/flags/v Chunked"));
    check("GET / HTTP/1.0||", Ok("GET / Length(0) old closes"));
    check("GET / HTTP/1.1|Host: n|Connection: keep-alive, Close||", Ok("GET / Length(0) closes"));
    check("POST / HTTP/1.1|Host: n|Expect: 100-Continue|Content-Length: 1||", Ok("POST / Length(1) expects"));
    check(
        "POST /exec/a/b/c HTTP/1.1|Host: n|Connection: Upgrade|Upgrade: SPDY/3.1|Content-Length: 0||",
        Ok("POST /exec/a/b/c Length(0) upgrade=SPDY/3.1"),
    );
    check("GET / HTTP/1.1|Host: n|Upgrade: websocket||", Ok("GET / Length(0)"));
    check("BREW /pot HTTP/1.1|Host: n||", Ok("OTHER /pot Length(0)"));
    check("GET https://n:10250/pods HTTP/1.1|Host: n||", Ok("GET /pods Length(0)"));
    for part in ["", "G", "GET / HTTP/1.1", "GET / HTTP/1.1|", "GET / HTTP/1.1|Host: n", "GET / HTTP/1.1|Host: n|"] {
        check(part, Ok("more"));
    }
}

#[test]
fn empty_lines_before_a_head_are_passed_over() {
    let bytes = b"\r\n\r\nGET / HTTP/1.1\r\nHost: n\r\n\r\nrest";
    let (head, length) = parse(bytes).expect("no refusal").expect("whole");
    assert_eq!((head.path.as_str(), length), ("/", bytes.len() - 4));
    assert!(parse(&b"\r\n".repeat(20)).is_err(), "not without end");
}

#[test]
fn what_can_be_read_in_two_ways_is_refused() {
    for (headers, status) in [
        ("Content-Length: 5|Content-Length: 5", 400),
        ("Content-Length: 5|Content-Length: 6", 400),
        ("Content-Length: 5, 5", 400),
        ("Content-Length: +5", 400),
        ("Content-Length: -1", 400),
        ("Content-Length: 0x5", 400),
        ("Content-Length: 5 5", 400),
        ("Content-Length:", 400),
        ("Content-Length: 99999999999999999999", 400),
        ("Content-Length: 5|Transfer-Encoding: chunked", 400),
        ("Transfer-Encoding: chunked|Content-Length: 5", 400),
        ("Transfer-Encoding: chunked|Transfer-Encoding: chunked", 400),
        ("Transfer-Encoding: gzip, chunked", 501),
        ("Transfer-Encoding: chunked, identity", 501),
        ("Transfer-Encoding: xchunked", 501),
        ("Transfer-Encoding: \u{b}chunked", 400),
        ("Transfer-Encoding : chunked", 400),
        (" Transfer-Encoding: chunked", 400),
        ("X: y| folded: z", 400),
        ("X: y|\tfolded", 400),
        ("Content-Length\u{0}: 5", 400),
        ("X: a\u{0}b", 400),
        ("X: a\rb", 400),
        ("X: a\nContent-Length: 5", 400),
        ("Host: other", 400),
        ("no colon", 400),
        (": nameless", 400),
        ("Expect: miracles", 417),
        ("Connection: upgrade|Upgrade: SPDY/3.1|Content-Length: 5", 400),
        ("Connection: upgrade|Upgrade: SPDY/3.1|Transfer-Encoding: chunked", 400),
    ] {
        check(&format!("POST / HTTP/1.1|Host: n|{headers}||"), Err(status));
    }
    check("GET / HTTP/1.1||", Err(400));
    check("POST / HTTP/1.0|Transfer-Encoding: chunked||", Err(400));
    check("GET / HTTP/1.1\nHost: n\n\n", Err(400));
    check("GET / HTTP/1.1|Host: n|\n", Err(400));
    check("GET / HTTP/1.1|Host: n\n|", Err(400));
    check("GET  / HTTP/1.1|Host: n||", Err(400));
    check("GET / HTTP/1.1 |Host: n||", Err(400));
    check("GET /a b HTTP/1.1|Host: n||", Err(400));
    check("GET pods HTTP/1.1|Host: n||", Err(400));
    check("OPTIONS * HTTP/1.1|Host: n||", Err(400));
    check("CONNECT n:443 HTTP/1.1|Host: n||", Err(400));
    check("GET /%zz HTTP/1.1|Host: n||", Err(400));
    check("GET / HTTP/2.0|Host: n||", Err(505));
    check("PRI * HTTP/2.0||SM||", Err(505));
    check("\u{16}\u{3}\u{1}", Err(400));
    check("AVERYLONGMETHODOFTHIRTYLETTERS / HTTP/1.1|Host: n||", Err(400));
}

#[test]
fn sizes_are_limited() {
    let long = "a".repeat(MAX_HEAD);
    check(&format!("GET /{long}"), Err(414));
    check(&format!("GET /{} HTTP/1.1|Host: n||", &long[..MAX_TARGET]), Err(414));
    check(&format!("GET / HTTP/1.1|Host: n|X: {long}"), Err(431));
    check(&format!("GET / HTTP/1.1|Host: n|{}|", "X: y|".repeat(MAX_HEADERS)), Err(431));
    check(&format!("GET / HTTP/1.1|Host: n|{}|", "X: y|".repeat(MAX_HEADERS - 1)), Ok("GET / Length(0)"));
    check(&format!("GET / HTTP/1.1|Host: n|X: {}||", &long[..MAX_HEAD / 2]), Ok("GET / Length(0)"));
}

#[test]
fn header_values_that_are_no_text_are_read_byte_by_byte() {
    let (head, _) = parse(b"GET / HTTP/1.1\r\nHost: n\r\nX: \xe4\r\nY: \xc3\xa4\r\n\r\n").unwrap().unwrap();
    assert_eq!((head.header("x"), head.header("y")), (Some("\u{e4}"), Some("\u{e4}")));
}

/// Pieces that heads are made of, and that they should not be made of.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::sample::select(vec![
        "GET ",
        "POST ",
        "/",
        "/pods",
        " HTTP/1.1",
        " HTTP/1.0",
        "\r\n",
        "\r\n",
        "\r\n\r\n",
        "\n",
        "\r",
        "\0",
        "Host: n",
        "Host:",
        "Content-Length: 5",
        "Content-Length: ",
        "Transfer-Encoding: chunked",
        "Connection: upgrade",
        "Upgrade: x",
        ":",
        " ",
        "\t",
        "%",
        "?",
        "a=b",
        "é",
        "Expect: 100-continue",
        "chunked",
        "5",
        "http://n",
    ]);
    let bytes = prop::collection::vec(any::<u8>(), 0..4);
    let piece = prop_oneof![9 => word.prop_map(|word| word.as_bytes().to_vec()), 1 => bytes];
    prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

fn fixed() -> ProptestConfig {
    let rng_seed = prop::test_runner::RngSeed::Fixed(0x10250);
    ProptestConfig { cases: 4000, failure_persistence: None, rng_seed, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(fixed())]

    /// No bytes end the process; a head is read alike however its bytes arrive; what is read holds no byte that could begin another one.
    #[test]
    fn any_bytes_are_read_or_refused(bytes in soup(), with_start in any::<bool>()) {
        let bytes = if with_start { [b"GET /x HTTP/1.1\r\nHost: n\r\n".as_slice(), &bytes].concat() } else { bytes };
        let whole = parse(&bytes);
        for end in 0..bytes.len() {
            match parse(&bytes[..end]) {
                Ok(None) => {}
                // Whatever is said early is said of the whole as well.
                early => {
                    prop_assert_eq!(early.map_err(|refusal| refusal.status >= 400), whole.clone().map_err(|refusal| refusal.status >= 400));
                    break;
                }
            }
        }
        if let Ok(Some((head, length))) = whole {
            prop_assert!(length <= bytes.len() && bytes[..length].ends_with(b"\r\n\r\n"));
            prop_assert!(!bytes[..length - 4].strip_prefix(b"\r\n").unwrap_or(&bytes[..length - 4]).windows(4).any(|four| four == b"\r\n\r\n") || bytes.starts_with(b"\r\n"));
            prop_assert!(head.path.starts_with('/') && !head.path.contains('\0'));
            for (name, value) in &head.headers {
                prop_assert!(!name.is_empty() && !name.contains([' ', ':', '\r', '\n', '\0']));
                prop_assert!(!value.contains(['\r', '\n', '\0']));
            }
        }
    }
}

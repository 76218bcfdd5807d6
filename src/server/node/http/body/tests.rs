//! Bodies as they arrive, whole and in pieces, right and wrong.

use super::super::head;
use super::testing::Script;
use super::*;
use proptest::prelude::*;

/// Reads the body that follows these headers; what is left after it.
fn read(headers: &str, pieces: &[&str]) -> Result<(String, String), String> {
    let text = format!("POST / HTTP/1.1\r\nHost: n\r\n{headers}\r\n\r\n");
    let (head, _) = head::parse(text.as_bytes()).expect("no refusal").expect("whole");
    let mut script = Script::of(pieces);
    let mut got = String::new();
    let read = Body::new(&head, &mut script).read_to_string(&mut got);
    read.map_err(|error| format!("{:?}: {error}", error.kind()))?;
    while script.fill().is_ok_and(|count| count > 0) {}
    Ok((got, String::from_utf8(script.ahead().to_vec()).expect("text")))
}

fn check(headers: &str, pieces: &[&str], expect: Result<(&str, &str), &str>) {
    let got = read(headers, pieces);
    let got = got.as_ref().map(|(body, rest)| (body.as_str(), rest.as_str())).map_err(|error| error.as_str());
    match (got, expect) {
        (Err(got), Err(expect)) => assert!(got.contains(expect), "{pieces:?}: {got}"),
        (got, expect) => assert_eq!(got, expect, "{pieces:?}"),
    }
}

const CHUNKED: &str = "Transfer-Encoding: chunked";

#[test]
fn counted_bodies() {
    check("X: y", &["GET /next"], Ok(("", "GET /next")));
    check("Content-Length: 5", &["hello", "GET"], Ok(("hello", "GET")));
    check("Content-Length: 5", &["he", "l", "loGET"], Ok(("hello", "GET")));
    check("Content-Length: 5", &["hel"], Err("UnexpectedEof"));
}

#[test]
fn chunked_bodies() {
    check(CHUNKED, &["0\r\n\r\nGET"], Ok(("", "GET")));
    check(CHUNKED, &["5\r\nhello\r\n3\r\n, w\r\n0\r\n\r\nGET"], Ok(("hello, w", "GET")));
    check(CHUNKED, &["00A\r\n0123456789\r\n0\r\n\r\n"], Ok(("0123456789", "")));
    check(CHUNKED, &["5;name=value; x\r\nhello\r\n0;last\r\nTrailer: x\r\nY: z\r\n\r\nGET"], Ok(("hello", "GET")));
    check(CHUNKED, &["5 \r\nhello\r\n0\r\n\r\n"], Ok(("hello", "")));
    for wrong in [
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello!\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\r\r\n0\r\n\r\n",
        "\r\n5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        "g\r\n",
        ";x\r\n",
        "5;a\rb\r\nhello\r\n0\r\n\r\n",
        "5;a\0b\r\nhello\r\n0\r\n\r\n",
        "1000000000000000\r\nx",
        "fffffffffffffffffffff\r\nx",
        "0\r\nTrailer: x\n\r\n",
    ] {
        check(CHUNKED, &[wrong], Err("InvalidData"));
    }
    for short in ["", "5", "5\r\nhel", "5\r\nhello", "5\r\nhello\r\n", "0\r\n", "0\r\nTrailer: x\r\n"] {
        check(CHUNKED, &[short], Err("UnexpectedEof"));
    }
    check(CHUNKED, &[&format!("5;{}\r\n", "x".repeat(MAX_SIZE_LINE))], Err("too long"));
    check(CHUNKED, &[&format!("5;{}", "x".repeat(MAX_SIZE_LINE))], Err("too long"));
    check(CHUNKED, &[&format!("0\r\n{}\r\n", "X: y\r\n".repeat(MAX_TRAILERS / 6 + 1))], Err("InvalidData"));
}

#[test]
fn a_client_that_waits_is_told_to_go_on_once_the_body_is_wanted() {
    let text = "POST / HTTP/1.1\r\nHost: n\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    let (head, _) = head::parse(text.as_bytes()).expect("no refusal").expect("whole");
    let mut script = Script::of(&["hello"]);
    assert!(!Body::new(&head, &mut script).skip(100, Duration::ZERO), "it was not asked to send it");
    assert_eq!(script.sent, b"");
    let mut got = String::new();
    Body::new(&head, &mut script).read_to_string(&mut got).expect("read");
    assert_eq!((got.as_str(), script.sent.as_slice()), ("hello", b"HTTP/1.1 100 Continue\r\n\r\n".as_slice()));
}

#[test]
fn what_nobody_wanted_is_skipped_up_to_a_limit() {
    for (headers, body, limit, expect) in [
        ("Content-Length: 5", "hello", 5, true),
        ("Content-Length: 5", "hello", 4, false),
        ("Content-Length: 5", "hel", 50, false),
        ("X: y", "", 0, true),
        (CHUNKED, "5\r\nhello\r\n0\r\n\r\n", 50, true),
        (CHUNKED, "5\r\nhello\r\n0", 50, false),
        (CHUNKED, "nonsense\r\n", 50, false),
    ] {
        let text = format!("POST / HTTP/1.1\r\nHost: n\r\n{headers}\r\n\r\n");
        let (head, _) = head::parse(text.as_bytes()).expect("no refusal").expect("whole");
        let mut script = Script::of(&[body]);
        assert_eq!(Body::new(&head, &mut script).skip(limit, Duration::ZERO), expect, "{headers} {body:?} {limit}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        rng_seed: prop::test_runner::RngSeed::Fixed(0x10250),
        ..ProptestConfig::default()
    })]

    /// A body that is cut into chunks, and these into pieces, is the same body, and what follows is left alone.
    #[test]
    fn chunks_arrive_as_they_were_meant(
        chunks in prop::collection::vec("[a-z\r\n;0]{1,20}", 0..6),
        cuts in prop::collection::vec(0..200_usize, 0..8),
    ) {
        let mut text: String = chunks.iter().map(|chunk| format!("{:X}\r\n{chunk}\r\n", chunk.len())).collect();
        text.push_str("0\r\n\r\nGET /next");
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&str> = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]).filter(|piece| !piece.is_empty()).collect();
        prop_assert_eq!(read(CHUNKED, &pieces), Ok((chunks.concat(), "GET /next".to_owned())));
    }

    /// No bytes end the process, and none are read without end.
    #[test]
    fn any_bytes_are_a_body_or_none(bytes in "[0-9a-f;\r\n x]{0,60}") {
        let _read = read(CHUNKED, &[&bytes]);
    }
}

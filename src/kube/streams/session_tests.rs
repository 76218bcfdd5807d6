//! Tests of the rules of a connection: the server's side is written out by hand.

use super::*;
use proptest::prelude::*;

fn frame(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &id.to_be_bytes(), payload].concat()
}

fn open(session: &mut Session) -> u32 {
    session.open(&Head { authority: "h", path: "/p", user_agent: "a", authorization: None })
}

/// The frames that a session wants to send, as `kind flags stream length`.
fn sent(session: &mut Session) -> Vec<String> {
    let out = session.output();
    let mut rest = out.strip_prefix(PREFACE).unwrap_or(&out);
    let mut told = Vec::new();
    while let Some((head, after)) = rest.split_at_checked(9) {
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        told.push(format!("{} {} {} {length}", head[3], head[4], head[8]));
        rest = &after[length..];
    }
    told
}

fn told(events: &[StreamEvent]) -> Vec<String> {
    let tell = |event: &StreamEvent| match event {
        StreamEvent::Began(id) => format!("{id} began"),
        StreamEvent::Line(id, line) => format!("{id} {}", String::from_utf8_lossy(line)),
        StreamEvent::Ended(id, StreamEnd::Refused(status)) => {
            format!("{id} {} {} {:?}", status.code, status.message, status.retry_after)
        }
        StreamEvent::Ended(id, end) => format!("{id} {end:?}"),
    };
    events.iter().map(tell).collect()
}

#[test]
fn a_connection_begins_and_keeps_its_manners() {
    let mut session = Session::new();
    assert!(session.out.starts_with(PREFACE));
    assert_eq!(sent(&mut session), ["4 0 0 18", "8 0 0 4"]);
    // Settings: at most two streams. A ping.
    let settings = [0, 3, 0, 0, 0, 2];
    let input =
        [frame(4, 0, 0, &settings), frame(6, 0, 0, &[7; 8]), frame(4, 1, 0, &[]), frame(99, 0, 0, b"x")].concat();
    assert_eq!(session.take(&input), Ok(vec![]));
    assert_eq!(sent(&mut session), ["4 1 0 0", "6 1 0 8"]);
    assert_eq!([open(&mut session), open(&mut session)], [1, 3]);
    assert!(!session.has_room());
    assert_eq!(sent(&mut session).len(), 2);
    session.close(1);
    session.close(1);
    assert!(session.has_room());
    assert_eq!(sent(&mut session), ["3 0 1 4"]);
    session.ping();
    assert!(session.pinged);
    session.take(&frame(6, 1, 0, b"ferrolet")).expect("an answer");
    assert!(!session.pinged);
}

#[test]
fn lines_come_out_whole_however_they_are_cut() {
    let mut session = Session::new();
    let (one, two) = (open(&mut session), open(&mut session));
    let input = [
        frame(1, 4, one, &[0x88]),
        frame(1, 0, two, &[0x88]),
        frame(9, 4, two, &[0x0f, 16, 1, b'x']),
        frame(0, 0, one, b"{\"a\":"),
        frame(0, 8, two, b"\x02xy\n\x00\x00"),
        frame(0, 0, one, b"1}\n{\"b\":2}\n\n{"),
        frame(0, 1, one, b"}\n"),
        frame(3, 0, two, &[0; 4]),
    ]
    .concat();
    let expect = ["1 began", "3 began", "3 xy", "1 {\"a\":1}", "1 {\"b\":2}", "1 {}", "1 Done", "3 Broken"];
    let mut got = Vec::new();
    for byte in &input {
        got.extend(session.take(&[*byte]).expect("a good peer"));
    }
    assert_eq!(told(&got), expect);
}

#[test]
fn an_answer_that_says_no_ends_its_stream_alone() {
    let mut session = Session::new();
    let [one, two, three, four] = std::array::from_fn(|_| open(&mut session));
    session.output();
    let no = [vec![0x08, 3], b"403".to_vec()].concat();
    let later = [vec![0x08, 3], b"429".to_vec(), vec![0x0f, 38, 1, b'5']].concat();
    let input = [
        frame(1, 4, one, &no),
        frame(0, 0, one, br#"{"kind": "Status", "#),
        frame(0, 1, one, b"\"message\":\n\"keep out\"}"),
        frame(1, 5, two, &later),
        frame(1, 4, three, &no),
        frame(3, 0, three, &[0; 4]),
        frame(1, 4, four, &no),
    ]
    .concat();
    let mut events = session.take(&input).expect("a good peer");
    for _ in 0..MAX_STATUS.div_ceil(MAX_FRAME) {
        events.extend(session.take(&frame(0, 0, four, &vec![b' '; MAX_FRAME])).expect("a good peer"));
    }
    let expect = [
        "1 403 keep out None",
        "3 429 no explanation Some(5s)",
        "5 403 no explanation None",
        "7 403 no explanation None",
    ];
    assert_eq!(told(&events), expect);
    assert_eq!(sent(&mut session), ["3 0 7 4"], "nobody listens to a refusal without end");
}

#[test]
fn a_peer_that_leaves_ends_what_it_has_begun() {
    let mut session = Session::new();
    let (one, two) = (open(&mut session), open(&mut session));
    let goodbye = [1_u32, 0].map(u32::to_be_bytes).concat();
    let input = [frame(1, 4, one, &[0x88]), frame(7, 0, 0, &goodbye), frame(0, 1, one, b"x\n")].concat();
    let events = session.take(&input).expect("a good peer");
    assert_eq!(told(&events), [format!("{one} began"), format!("{two} Broken"), "1 x".to_owned(), "1 Done".to_owned()]);
    assert!(session.is_leaving && !session.has_room());
}

#[test]
fn the_peer_is_told_to_go_on() {
    let mut session = Session::new();
    let id = open(&mut session);
    session.output();
    session.take(&frame(1, 4, id, &[0x88])).expect("a head");
    let data = [frame(0, 0, id, &vec![b'x'; MAX_FRAME - 1]), frame(0, 0, id, b"\n")].concat();
    let mut updates = Vec::new();
    let pieces = (WINDOW / 2).div_ceil(u32::try_from(MAX_FRAME).expect("small"));
    for _ in 0..pieces {
        session.take(&data).expect("data");
        updates.extend(sent(&mut session));
    }
    assert_eq!(updates.iter().filter(|update| *update == "8 0 0 4").count(), 1);
    assert_eq!(updates.iter().filter(|update| *update == "8 0 1 4").count(), 8);
}

#[test]
fn a_bad_peer_is_left() {
    let check = |input: Vec<u8>, expect: &str| {
        let mut session = Session::new();
        open(&mut session);
        assert_eq!(session.take(&input).map(|events| told(&events)), Err(expect.to_owned()));
    };
    check(frame(7, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 11]), "it ends the connection with error 11");
    check(frame(7, 0, 0, &[0; 7]), "a frame is too short");
    check(vec![0, 0x40, 1, 0, 0, 0, 0, 0, 1], "it sends frames that are too large");
    check(frame(5, 4, 1, &[0; 4]), "it pushes what nobody asked for");
    check(frame(9, 4, 1, &[0x88]), "a head without a begin");
    check([frame(1, 0, 1, &[0x88]), frame(6, 0, 0, &[0; 8])].concat(), "it breaks an answer's head off");
    check(frame(0, 8, 1, &[9, 1]), "a frame has more padding than content");
    check(frame(1, 4, 1, &[0xff]), "a header block that ends too early");
}

proptest! {
    #[test]
    fn any_bytes_are_taken_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0..200_usize) {
        let mut session = Session::new();
        open(&mut session);
        let (first, second) = bytes.split_at(cut.min(bytes.len()));
        let _ = session.take(first).and_then(|_| session.take(second));
    }
}

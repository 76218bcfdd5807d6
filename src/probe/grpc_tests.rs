//! Tests of the grpc probe against servers whose frames are written out by hand.

use std::net::TcpListener;

use super::*;

/// What a server does with one connection, after it has read what a client says at first.
fn serve(answer: Vec<u8>) -> (u16, std::thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let thread = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().expect("a client");
        let mut heard = vec![0; 4096];
        let read = peer.read(&mut heard).expect("its request");
        heard.truncate(read);
        peer.write_all(&answer).expect("answered");
        // Until it goes.
        let _gone = peer.read_to_end(&mut Vec::new());
        heard
    });
    (port, thread)
}

fn frames(frames: &[(u8, u8, u32, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    http2::settings(&mut out, &[]);
    for (kind, flags, stream, payload) in frames {
        http2::frame(&mut out, *kind, *flags, *stream, payload);
    }
    out
}

fn trailers(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        hpack::named(&mut block, name, value);
    }
    block
}

/// A whole answer with this body's message and these trailers.
fn answer(message: &[u8], fields: &[(&str, &str)]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("short").to_be_bytes();
    frames(&[
        (kind::WINDOW_UPDATE, 0, 0, vec![0, 0, 1, 0]),
        (kind::PING, 0, 0, b"whatever".to_vec()),
        (kind::HEADERS, flag::END_HEADERS, STREAM, vec![0x88]),
        (kind::DATA, 0, STREAM, [&[0], &length[..], message].concat()),
        (kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, STREAM, trailers(fields)),
    ])
}

#[track_caller]
fn check_answer(answer: Vec<u8>, expect: Result<(), &str>) {
    let (port, server) = serve(answer);
    let timeout = Duration::from_secs(20);
    let got = check("127.0.0.1", port, "", timeout, Instant::now() + timeout);
    server.join().expect("the server ends");
    let expect = expect.map_err(|text| text.replace("PORT", &port.to_string()));
    let expect = expect.map_or_else(ProbeOutcome::Failure, |()| ProbeOutcome::Success);
    assert_eq!(got, expect);
}

#[test]
fn answers_mean_what_the_protocol_says() {
    const NOT_THERE: &str = "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): ";
    let ok = [("grpc-status", "0")];
    check_answer(answer(&[8, 1], &ok), Ok(()));
    // A field that nobody knows yet.
    check_answer(answer(&[0x12, 1, b'x', 8, 1], &ok), Ok(()));
    for (message, word) in [(&[][..], "UNKNOWN"), (&[8, 2], "NOT_SERVING"), (&[8, 3], "SERVICE_UNKNOWN")] {
        check_answer(answer(message, &ok), Err(&format!("service unhealthy (responded with {word:?})")));
    }
    check_answer(
        answer(&[8], &ok),
        Err("error: health rpc probe failed: rpc error: code = Internal desc = the answer breaks off"),
    );
    let refused = |block: Vec<u8>| frames(&[(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, STREAM, block)]);
    let status =
        |code, message| refused([vec![0x88], trailers(&[("grpc-status", code), ("grpc-message", message)])].concat());
    check_answer(status("12", "unknown%20service"), Err(&format!("{NOT_THERE}unknown service")));
    check_answer(
        status("5", "unknown service"),
        Err("error: health rpc probe failed: rpc error: code = NotFound desc = unknown service"),
    );
    check_answer(status("4", ""), Err("timeout: health rpc did not complete within 20s"));
    check_answer(
        refused(vec![0x8d]),
        Err(&format!("{NOT_THERE}unexpected HTTP status code received from server: 404")),
    );
    check_answer(
        refused(vec![0x88]),
        Err(
            "error: health rpc probe failed: rpc error: code = Internal desc = server closed the stream without sending trailers",
        ),
    );
    check_answer(
        frames(&[(kind::RST_STREAM, 0, STREAM, vec![0, 0, 0, 8])]),
        Err(
            "error: health rpc probe failed: rpc error: code = Internal desc = stream terminated by RST_STREAM with error code: 8",
        ),
    );
    check_answer(
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n".to_vec(),
        Err("error: failed to connect service at \"127.0.0.1:PORT\": the server does not speak HTTP/2"),
    );
}

#[test]
fn a_head_may_come_in_pieces() {
    let block = trailers(&[("grpc-status", "0")]);
    let (first, second) = block.split_at(5);
    let answer = frames(&[
        (kind::HEADERS, flag::END_HEADERS, STREAM, vec![0x88]),
        (kind::DATA, 0, STREAM, vec![0, 0, 0, 0, 2, 8, 1]),
        (kind::HEADERS, flag::END_STREAM, STREAM, first.to_vec()),
        (kind::CONTINUATION, flag::END_HEADERS, STREAM, second.to_vec()),
    ]);
    check_answer(answer, Ok(()));
}

#[test]
fn the_request_names_the_service_and_the_deadline() {
    let (port, server) = serve(answer(&[8, 1], &[("grpc-status", "0")]));
    let timeout = Duration::from_secs(20);
    assert_eq!(check("127.0.0.1", port, "readiness", timeout, Instant::now() + timeout), ProbeOutcome::Success);
    let heard = server.join().expect("the server ends");
    let text = String::from_utf8_lossy(&heard);
    for part in
        ["/grpc.health.v1.Health/Check", "application/grpc", "kube-probe/1.36", "te", "trailers", "grpc-timeout"]
    {
        assert!(text.contains(part), "{part} in {text:?}");
    }
    assert!(heard.ends_with(&[[0, 0, 0, 0, 11, 0x0a, 9].to_vec(), b"readiness".to_vec()].concat()), "{text:?}");
    assert_eq!(request(&"x".repeat(300))[5..9], [0x0a, 0xac, 0x02, b'x']);
}

#[test]
fn silence_and_absence_are_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let short = Duration::from_millis(50);
    let mute = check("127.0.0.1", port, "", short, Instant::now() + short);
    let text =
        format!("timeout: failed to connect service \"127.0.0.1:{port}\" within 50ms: context deadline exceeded");
    assert_eq!(mute, ProbeOutcome::Failure(text));
    drop(listener);
    let long = Duration::from_secs(20);
    let gone = check("127.0.0.1", port, "", long, Instant::now() + long);
    let text = format!(
        "error: failed to connect service at \"127.0.0.1:{port}\": dial tcp 127.0.0.1:{port}: connect: connection refused"
    );
    assert_eq!(gone, ProbeOutcome::Failure(text));
    // It speaks HTTP/2, and does not answer the call.
    let (port, server) = serve(frames(&[]));
    let slow = check("127.0.0.1", port, "", short, Instant::now() + Duration::from_millis(300));
    assert_eq!(slow, ProbeOutcome::Failure("timeout: health rpc did not complete within 50ms".to_owned()));
    server.join().expect("the server ends");
}

//! Clients that mean no good, or do not know better: they cost little, and nobody else notices.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::Server;
use super::client::Client;
use crate::agent::{SOON, ground};
use crate::harness::wait;

/// What the agent may grow by for a crowd, in KiB.
const CROWD_KIB: u64 = 48 << 10;

fn raw(server: &Server<'_>) -> TcpStream {
    let socket = TcpStream::connect(("127.0.0.1", server.port)).expect("connected");
    socket.set_read_timeout(Some(SOON)).expect("allowed");
    socket.set_write_timeout(Some(SOON)).expect("allowed");
    socket
}

/// Whether the server has ended this connection.
fn is_ended(socket: &TcpStream) -> bool {
    socket.set_nonblocking(true).expect("allowed");
    let ended =
        !matches!((&mut &*socket).read(&mut [0; 64]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
    socket.set_nonblocking(false).expect("allowed");
    ended
}

#[test]
fn what_can_be_read_in_two_ways_ends_the_connection() {
    let (_fake, place) = ground();
    let server = Server::start(&place);
    let hidden = "GET /configz HTTP/1.1\r\nHost: n\r\n\r\n";
    for (head, status) in [
        ("POST / HTTP/1.1\r\nHost: n\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: n\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: n\r\nContent-Length: 0\r\nContent-Length: 36\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: n\r\nContent-Length: 0, 36\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: n\r\nTransfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\nHost: n\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: n\r\nX: a\r\n b\r\n\r\n", 400),
        ("GET / HTTP/1.1\nHost: n\n\n", 400),
        ("GET / HTTP/1.1\r\nHost: n\r\nX: a\nY: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: n\r\nHost: m\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (
            "POST /exec/a/b/c HTTP/1.1\r\nHost: n\r\nConnection: upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 3\r\n\r\nabc",
            400,
        ),
        ("GET / HTTP/1.1\r\nHost: n\r\nExpect: something\r\n\r\n", 417),
        // Bad bodies of a good head, where somebody reads them, and where nobody does.
        ("PUT /debug/flags/v HTTP/1.1\r\nHost: n\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 400),
        ("PUT /debug/flags/v HTTP/1.1\r\nHost: n\r\nTransfer-Encoding: chunked\r\n\r\n1\n4\r\n0\r\n\r\n", 400),
        ("PUT /debug/flags/v HTTP/1.1\r\nHost: n\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n44\r\n0\r\n\r\n", 400),
        ("GET /healthz/ping HTTP/1.1\r\nHost: n\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 200),
        ("GET /healthz/ping HTTP/1.1\r\nHost: n\r\nContent-Length: 99999999\r\n\r\n", 200),
    ] {
        let mut client = server.client();
        client.send(head.as_bytes()).expect("sent");
        // The server may have hung up already.
        let length = head.split("Content-Length: 9").count() - 1;
        let _sent = client.send(hidden.repeat(1 + length * 4000).as_bytes());
        let answer = client.answer(false);
        assert_eq!(answer.status, status, "{head:?}: {answer:?}");
        assert!(answer.head.contains("Connection: close\r\n"), "{head:?}: {}", answer.head);
        assert!(client.is_ended(), "{head:?}: the request that was hidden has an answer");
    }
    assert_eq!(server.client().ask("GET /healthz/ping", "").status, 200);
}

#[test]
fn no_head_is_too_large_to_be_refused_early() {
    let (_fake, place) = ground();
    let server = Server::start(&place);
    let before = server.agent.resident_kib();
    for (what, start, rest, statuses) in [
        ("a header", "GET / HTTP/1.1\r\nHost: n\r\nX: ", "a".repeat(65536), [431, 431]),
        ("headers", "GET / HTTP/1.1\r\nHost: n\r\n", "X: y\r\n".repeat(10000), [431, 431]),
        ("a path", "GET /", "a".repeat(65536), [414, 414]),
        ("a method", "", "A".repeat(65536), [400, 414]),
        (
            "a chunk's size",
            "PUT /debug/flags/v HTTP/1.1\r\nHost: n\r\nTransfer-Encoding: chunked\r\n\r\n",
            "0".repeat(65536),
            [400, 400],
        ),
        (
            "a body",
            "PUT /debug/flags/v HTTP/1.1\r\nHost: n\r\nContent-Length: 104857600\r\n\r\n",
            "1".repeat(65536),
            [413, 413],
        ),
    ] {
        let mut client = server.client();
        let mut sent = client.send(start.as_bytes()).map(|()| start.len());
        // A hundred megabytes, as far as the server lets it come.
        while let Ok(count) = sent
            && count < 100 << 20
        {
            sent = client.send(rest.as_bytes()).map(|()| count + rest.len());
        }
        assert!(sent.is_err(), "all of {what} was taken");
        // Where the end outran the answer there is none to be read.
        let answered = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client.answer(false).status));
        assert!(answered.as_ref().map_or(true, |status| statuses.contains(status)), "{what}: {answered:?}");
    }
    let grown = server.agent.resident_kib().saturating_sub(before);
    println!("six times up to 100 MB: {grown} KiB more");
    assert!(grown < 8 << 10, "{grown} KiB more");
    assert_eq!(server.client().ask("GET /healthz/ping", "").status, 200);
}

#[test]
fn what_is_no_tls_costs_nothing_and_harms_nobody() {
    let (_fake, place) = ground();
    let server = Server::start(&place);
    let hello: Vec<u8> = [&[0x16, 3, 1, 0xff, 0xff, 1, 0, 0xff, 0xfb][..], &[0; 400]].concat();
    let alert = [0x15, 3, 3, 0, 2, 2, 40];
    for garbage in
        [&[0_u8; 500][..], &[0xff; 5000], &hello, &alert, b"\x80\x2e\x01\x03\x01", b"SSH-2.0-x\r\n", b"\x16", b""]
    {
        let mut socket = raw(&server);
        // It may have hung up in between.
        let _sent = socket.write_all(garbage);
        let _ended = socket.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _reset = socket.read_to_end(&mut rest);
        assert!(rest.len() < 200, "{garbage:?}");
    }
    assert_eq!(server.client().ask("GET /healthz/ping", "").status, 200);
}

#[test]
fn slow_clients_hold_no_thread_and_are_given_up() {
    let (_fake, place) = ground();
    let server = Server::start(&place);
    let mut others = server.client();
    assert_eq!(others.ask("GET /healthz/ping", "").status, 200);
    let threads = server.threads();
    let begun = Instant::now();
    let mut slow: Vec<Client> = (0..60).map(|_| server.client()).collect();
    for client in &mut slow {
        client.send(b"GET /healthz/ping HTTP/1.1\r\nHost: n\r\nX: ").expect("sent");
    }
    let silent: Vec<TcpStream> = (0..100).map(|_| raw(&server)).collect();
    // A byte now and then keeps nobody.
    let mut answers = Vec::new();
    for client in &mut slow {
        let _sent = client.send(b"y");
        assert_eq!(others.ask("GET /healthz/ping", "").status, 200);
    }
    // One or two serve the others; those that look at pods come and go.
    assert!(server.threads() <= threads + 6, "{} threads, {threads} before", server.threads());
    for client in &mut slow {
        answers.push(client.answer(false).status);
    }
    println!("60 slow clients were answered {:?} after {:.1} s", answers[0], begun.elapsed().as_secs_f64());
    assert!(answers.iter().all(|status| *status == 408), "{answers:?}");
    wait::until("the end of silent connections", SOON, || {
        let left = silent.iter().filter(|socket| !is_ended(socket)).count();
        if left == 0 { Ok(()) } else { Err(format!("{left} are still there")) }
    });
    assert_eq!(others.ask("GET /healthz/ping", "").status, 200);
}

#[test]
fn ten_thousand_idle_connections_cost_a_bounded_amount_of_memory_and_no_thread() {
    const SILENT: usize = 9_300;
    const AGREED: usize = 700;
    let (_fake, place) = ground();
    let server = Server::start(&place);
    assert_eq!(server.client().ask("GET /healthz/ping", "").status, 200);
    let (before, threads) = (server.agent.resident_kib(), server.threads());
    let agreed: Vec<Client> = (0..AGREED).map(|_| server.client()).collect();
    let with_tls = server.agent.resident_kib();
    let silent: Vec<TcpStream> = (0..SILENT).map(|_| raw(&server)).collect();
    // Whoever comes now is served like anybody.
    let asked = Instant::now();
    assert_eq!(server.client().ask("GET /healthz/ping", "").status, 200);
    let took = asked.elapsed();
    let (after, now) = (server.agent.resident_kib(), server.threads());
    let open = silent.iter().filter(|socket| !is_ended(socket)).count();
    println!(
        "{AGREED} connections with TLS: {} KiB more; {SILENT} more without a byte: {} KiB more, {open} of them open; \
         {threads} threads before, {now} after; one request beside them took {took:?}",
        with_tls.saturating_sub(before),
        after.saturating_sub(before)
    );
    assert!(after.saturating_sub(before) < CROWD_KIB, "{before} KiB before, {after} after");
    assert!(now <= threads + 6, "{threads} threads before, {now} after");
    assert!((400..=512).contains(&open), "{open} connections wait");
    assert!(took < Duration::from_secs(10), "{took:?}");
    drop((agreed, silent));
    assert_eq!(server.client().ask("GET /healthz/ping", "").status, 200);
}

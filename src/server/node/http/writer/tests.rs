//! Answers as they arrive at a client, over a real socket without TLS.

use super::super::wire::Wire;
use super::*;
use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const STALL: Duration = Duration::from_secs(10);

/// Two ends of one connection.
fn pair() -> (Connection, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let (server, _) = listener.accept().expect("accepted");
    (Connection::new(Wire::plain(server).expect("a wire"), STALL), client)
}

const NEW: Asked = Asked { without_body: false, is_old: false, closes: false };

/// What a client gets, without the date, and what the connection is good for.
fn answer(asked: Asked, reply: Reply) -> String {
    let (mut connection, mut client) = pair();
    let reader = std::thread::spawn(move || {
        let mut got = String::new();
        client.read_to_string(&mut got).map(|_| got)
    });
    let after = write(&mut connection, asked, reply);
    drop(connection.finish());
    let got = reader.join().expect("no panic").expect("read");
    let got: String = got.split_inclusive("\r\n").filter(|line| !line.starts_with("Date: ")).collect();
    let after = after.map_or_else(|error| error.to_string(), |after| format!("{after:?}"));
    format!("{}-> {after}", got.replace("\r\n", "\n"))
}

fn check(asked: Asked, reply: Reply, expect: expect_test::Expect) {
    expect.assert_eq(&answer(asked, reply));
}

use expect_test::expect;

#[test]
fn whole_answers() {
    check(
        NEW,
        Reply::error(404, "not here"),
        expect![[r#"
        HTTP/1.1 404 Not Found
        Content-Type: text/plain; charset=utf-8
        X-Content-Type-Options: nosniff
        Content-Length: 9

        not here
        -> GoesOn"#]],
    );
    check(
        Asked { without_body: true, ..NEW },
        Reply::json(b"{}".to_vec()),
        expect![[r#"
        HTTP/1.1 200 OK
        Content-Type: application/json
        Content-Length: 2

        -> GoesOn"#]],
    );
    let split = Reply::text(200, "x").with_header("Location", "a\r\nSet-Cookie: b".to_owned()).closing();
    check(
        NEW,
        split,
        expect![[r#"
        HTTP/1.1 200 OK
        Content-Type: text/plain; charset=utf-8
        Content-Length: 1
        Connection: close

        x-> Ends"#]],
    );
}

#[test]
fn streamed_answers() {
    let hello = || {
        Reply::stream("text/plain", |out| {
            out.write_all(b"hello ")?;
            out.write_all(b"world")
        })
    };
    check(
        NEW,
        hello(),
        expect![[r#"
        HTTP/1.1 200 OK
        Content-Type: text/plain
        Content-Length: 11

        hello world-> GoesOn"#]],
    );
    let flushed = || {
        Reply::stream("text/plain", |out| {
            out.flush()?;
            out.write_all(b"hello ")?;
            out.flush()?;
            out.flush()?;
            out.write_all(b"world")
        })
    };
    check(
        NEW,
        flushed(),
        expect![[r#"
        HTTP/1.1 200 OK
        Content-Type: text/plain
        Transfer-Encoding: chunked

        6
        hello 
        5
        world
        0

        -> GoesOn"#]],
    );
    check(
        Asked { is_old: true, closes: true, without_body: false },
        flushed(),
        expect![[r#"
        HTTP/1.1 200 OK
        Content-Type: text/plain
        Connection: close

        hello world-> Ends"#]],
    );
    check(
        Asked { without_body: true, ..NEW },
        flushed(),
        expect![[r#"
        HTTP/1.1 200 OK
        Content-Type: text/plain
        Transfer-Encoding: chunked

        -> GoesOn"#]],
    );
}

#[test]
fn a_body_that_fails_is_told_or_broken_off() {
    let early = Reply::stream("text/plain", |_| Err(io::Error::other("no disk")));
    check(
        NEW,
        early,
        expect![[r#"
        HTTP/1.1 500 Internal Server Error
        Content-Type: text/plain; charset=utf-8
        X-Content-Type-Options: nosniff
        Content-Length: 8

        no disk
        -> GoesOn"#]],
    );
    let late = Reply::stream("text/plain", |out| {
        out.write_all(b"half")?;
        out.flush()?;
        Err(io::Error::other("no disk"))
    });
    check(
        NEW,
        late,
        expect![[r#"
        HTTP/1.1 200 OK
        Content-Type: text/plain
        Transfer-Encoding: chunked

        4
        half
        -> no disk"#]],
    );
}

#[test]
fn large_answers_arrive_whole() {
    let large: Vec<u8> = (0..3_000_000_u32).map(|number| b'a' + (number % 23) as u8).collect();
    let whole = answer(NEW, Reply::new(200, "text/plain", large.clone()));
    let (_, body) = whole.split_once("\n\n").expect("a body");
    assert_eq!(body.strip_suffix("-> GoesOn").map(str::as_bytes), Some(large.as_slice()));
    let streamed = answer(Asked { is_old: true, closes: true, ..NEW }, {
        let large = large.clone();
        Reply::stream("text/plain", move |out| out.write_all(&large))
    });
    let (_, body) = streamed.split_once("\n\n").expect("a body");
    assert_eq!(body.strip_suffix("-> Ends").map(str::as_bytes), Some(large.as_slice()));
}

#[test]
fn a_client_that_takes_nothing_is_given_up() {
    let (mut connection, client) = pair();
    connection.set_stall(Duration::from_millis(50));
    let endless = Reply::stream("text/plain", |out| {
        loop {
            out.write_all(&[0; 65536])?;
        }
    });
    let error = write(&mut connection, NEW, endless).expect_err("given up");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    drop(client);
}

#[test]
fn a_stream_sees_its_client_go() {
    let (mut connection, client) = pair();
    let (told, goes) = crossbeam_channel::bounded::<()>(1);
    let leaver = std::thread::spawn(move || {
        goes.recv().expect("told");
        drop(client);
    });
    let reply = Reply::stream("text/plain", move |out| {
        assert!(!out.is_gone());
        told.send(()).expect("heard");
        let bell = crate::util::poll::Bell::new()?;
        while !out.is_gone() {
            let client = out.client().expect("a socket");
            bell.wait([client], None)?;
        }
        out.write_all(b"end")
    });
    // What is written into the void may or may not be noticed.
    let _after = write(&mut connection, NEW, reply);
    leaver.join().expect("no panic");
}

#[test]
fn a_connection_is_taken_over_with_what_was_read_ahead() {
    use super::super::Duplex;
    use super::super::body::Carrier;
    let (mut connection, mut client) = pair();
    client.write_all(b"early").expect("written");
    connection.expect_within(STALL);
    while connection.ahead().len() < 5 {
        connection.fill().expect("arrives");
    }
    let reply = Reply::take_over(|mut duplex: Duplex| {
        let mut block = [0; 100];
        let count = duplex.try_read(&mut block).expect("ahead");
        duplex.send(b"HTTP/1.1 101 Switching Protocols\r\n\r\n", STALL).expect("sent");
        duplex.send(&block[..count], STALL).expect("sent");
        let nothing = duplex.try_read(&mut block).expect_err("nothing more");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        duplex.try_finish().expect("finished");
    });
    let After::TakenOver(go_on) = write(&mut connection, NEW, reply).expect("nothing written") else {
        panic!("not taken over");
    };
    let (wire, ahead) = connection.into_parts();
    go_on(Duplex::new(wire, ahead, None));
    let mut got = String::new();
    client.read_to_string(&mut got).expect("read");
    assert_eq!(got, "HTTP/1.1 101 Switching Protocols\r\n\r\nearly");
}

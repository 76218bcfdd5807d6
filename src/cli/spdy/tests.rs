//! Tests of exec sessions against a server on a real socket that speaks the other side.

use super::*;
use crate::util::spdy::control;
use std::net::TcpListener;

/// Plays a server: says hello, takes the streams, runs `serve`, hangs up. Answers its URL.
fn server(hello: &'static str, serve: impl FnOnce(&mut TcpStream) + Send + 'static) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let url = format!("http://{}/exec/token?x=1", listener.local_addr().expect("an address"));
    let thread = spawn("fake-spdy", StackSize::Small, move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a hello");
            asked.push(byte[0]);
        }
        let asked = String::from_utf8(asked).expect("text");
        assert!(asked.starts_with("POST /exec/token?x=1 HTTP/1.1\r\nHost: 127.0.0.1:"), "{asked}");
        assert!(asked.contains("\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n"), "{asked}");
        stream.write_all(hello.as_bytes()).expect("said hello");
        serve(&mut stream);
    });
    (url, thread.expect("a thread"))
}

const HELLO: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
                     X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";

/// Reads the opening of a stream as the server's zlib reader would; answers its id and purpose.
fn take_stream(stream: &mut TcpStream, is_first: bool) -> (u32, String) {
    let mut head = [0; 8];
    stream.read_exact(&mut head).expect("a frame");
    assert_eq!(head[..5], [0x80, 3, 0, 1, 0], "SYN_STREAM of SPDY/3");
    let mut payload = vec![0; usize::from(head[6]) << 8 | usize::from(head[7])];
    stream.read_exact(&mut payload).expect("its payload");
    let id = u32::from_be_bytes(payload[..4].try_into().expect("four bytes"));
    let mut block = &payload[10..];
    if is_first {
        assert_eq!(block[..2], [0x78, 0xbb]);
        assert_eq!(u16::from_be_bytes([block[0], block[1]]) % 31, 0, "the check of a zlib header");
        block = &block[6..];
    }
    let length = u16::from_le_bytes([block[1], block[2]]);
    assert_eq!((block[0], u16::from_le_bytes([block[3], block[4]])), (0, !length), "a stored block");
    let (headers, rest) = block[5..].split_at(length.into());
    assert_eq!(rest, [0, 0, 0, 0xff, 0xff], "a flush");
    let purpose = headers.strip_prefix(b"\0\0\0\x01\0\0\0\x0astreamtype\0\0\0").expect("one header");
    assert_eq!(usize::from(purpose[0]), purpose.len() - 1);
    (id, String::from_utf8(purpose[1..].to_vec()).expect("text"))
}

fn reply(stream: &mut TcpStream, id: u32) {
    stream.write_all(&control(2, &id.to_be_bytes())).expect("replied");
}

fn run_against(
    hello: &'static str,
    stdin: Option<&'static [u8]>,
    tty: bool,
    serve: impl FnOnce(&mut TcpStream) + Send + 'static,
) -> (Result<i32, Trouble>, String, String) {
    let (url, thread) = server(hello, serve);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let stdin = stdin.map(|bytes| Box::new(bytes) as Box<dyn Read + Send>);
    let ends = Ends { stdin, tty, size: || Some((80, 24)), stdout: &mut stdout, stderr: &mut stderr };
    let result = run(&url, ends);
    thread.join().expect("the server found nothing wrong");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (result, text(stdout), text(stderr))
}

#[test]
fn output_and_exit_code_come_back() {
    let (result, stdout, stderr) = run_against(HELLO, None, false, |stream| {
        let opened: Vec<_> = (0..3).map(|n| take_stream(stream, n == 0)).collect();
        let expect = [(ERROR, "error"), (STDOUT, "stdout"), (STDERR, "stderr")];
        assert_eq!(opened, expect.map(|(id, purpose)| (id, purpose.to_owned())));
        opened.iter().for_each(|(id, _)| reply(stream, *id));
        // A ping of the server comes back, one of ours would not; settings need no answer.
        stream.write_all(&control(6, &8u32.to_be_bytes())).expect("pinged");
        stream.write_all(&control(6, &7u32.to_be_bytes())).expect("pinged");
        stream.write_all(&control(4, &[0; 4])).expect("settings");
        assert_eq!(read_frame(stream).expect("read"), Some(Frame::Control(Control::Ping(8))));
        stream.write_all(&data(STDOUT, b"out\n", false)).expect("sent");
        stream.write_all(&data(STDERR, b"err\n", true)).expect("sent");
        stream.write_all(&data(STDOUT, b"more\n", true)).expect("sent");
        let status = r#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code",
            "reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}"#;
        stream.write_all(&data(ERROR, status.as_bytes(), false)).expect("sent");
        stream.write_all(&control(3, &[0, 0, 0, 1, 0, 0, 0, 5])).expect("reset");
    });
    assert_eq!((result, stdout.as_str(), stderr.as_str()), (Ok(7), "out\nmore\n", "err\n"));
}

#[test]
fn input_waits_for_the_reply_and_ends() {
    let (result, stdout, _) = run_against(HELLO, Some(b"hello"), false, |stream| {
        let opened: Vec<_> = (0..4).map(|n| take_stream(stream, n == 0)).collect();
        assert_eq!(opened[1], (STDIN, "stdin".to_owned()));
        opened.iter().for_each(|(id, _)| reply(stream, *id));
        let mut got = Vec::new();
        loop {
            match read_frame(stream).expect("read") {
                Some(Frame::Data { id: STDIN, last, bytes }) => {
                    got.extend(bytes);
                    if last {
                        break;
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        stream.write_all(&data(STDOUT, &got, true)).expect("sent");
        stream.write_all(&data(ERROR, br#"{"status":"Success"}"#, true)).expect("sent");
    });
    assert_eq!((result, stdout.as_str()), (Ok(0), "hello"));
}

#[test]
fn a_terminal_has_a_size_and_no_stderr() {
    let (result, ..) = run_against(HELLO, None, true, |stream| {
        let opened: Vec<_> = (0..3).map(|n| take_stream(stream, n == 0)).collect();
        assert_eq!(opened[2], (RESIZE, "resize".to_owned()));
        opened.iter().for_each(|(id, _)| reply(stream, *id));
        let size = Frame::Data { id: RESIZE, last: false, bytes: b"{\"Width\":80,\"Height\":24}\n".to_vec() };
        assert_eq!(read_frame(stream).expect("read"), Some(size));
        stream.write_all(&data(ERROR, br#"{"status":"Success"}"#, true)).expect("sent");
    });
    assert_eq!(result, Ok(0));
}

#[test]
fn what_goes_wrong_is_told() {
    let check = |hello, serve: fn(&mut TcpStream), expect: &str| {
        let (result, ..) = run_against(hello, None, false, serve);
        let text = format!("{:?}", result.expect_err("trouble"));
        assert!(text.contains(expect), "{text}");
    };
    check("HTTP/1.1 404 Not Found\r\n\r\n", |_| {}, "NoSession(\"no session at http://127.0.0.1:");
    check("", |_| {}, "the runtime answered \\\"\\\"");
    check("HTTP/1.1 101 Switching\r\n\r\n", |_| {}, "the runtime does not speak v4.channel.k8s.io");
    check(HELLO, |stream| (0..3).for_each(|n| drop(take_stream(stream, n == 0))), "ended without telling");
    check(
        HELLO,
        |stream| {
            (0..3).for_each(|n| drop(take_stream(stream, n == 0)));
            let status = br#"{"status":"Failure","message":"no such file","reason":"InternalError"}"#;
            stream.write_all(&data(ERROR, status, true)).expect("sent");
        },
        "Broken(\"no such file\")",
    );
    // A frame that is cut short.
    check(
        HELLO,
        |stream| {
            (0..3).for_each(|n| drop(take_stream(stream, n == 0)));
            stream.write_all(&data(STDOUT, &[b'x'; 100], false)[..50]).expect("sent");
        },
        "ended without telling",
    );
    for url in ["https://127.0.0.1:1/x", "http://127.0.0.1:1/a b", "http:///x", "ftp://x"] {
        let (mut out, mut err) = (io::sink(), io::sink());
        let ends = Ends { stdin: None, tty: false, size: || None, stdout: &mut out, stderr: &mut err };
        let result = run(url, ends);
        assert!(matches!(result, Err(Trouble::NoSession(_))), "{url}: {result:?}");
    }
}

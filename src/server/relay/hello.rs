//! The first words with the runtime's streaming server: the client's wish to go on with another protocol, and the answer.
//!
//! On the thread that serves the client's request; waits no longer than a deadline, reads no more than a head and a short explanation. What the
//! client proved itself with never reaches the runtime.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::location::Location;

/// Time to connect and for the answer's head. The runtime has the session ready when it gives its URL.
const LIMIT: Duration = Duration::from_secs(30);
/// Bytes of the answer's head.
const HEAD_LIMIT: usize = 64 << 10;
/// Bytes of a refusal's body.
const BODY_LIMIT: usize = 64 << 10;

/// Headers that are between the client and this server, or that a body would need, or that tell who the client is.
const KEPT_BACK: &[&str] = &[
    "host",
    "authorization",
    "cookie",
    "content-length",
    "transfer-encoding",
    "expect",
    "te",
    "trailer",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
];

/// What the runtime's server answered.
#[derive(Debug)]
pub enum Answer {
    /// It goes on with the other protocol.
    Switched {
        /// The connection, which does not wait any more.
        stream: TcpStream,
        /// The head of the answer as it came.
        head: Vec<u8>,
        /// What followed it already.
        rest: Vec<u8>,
    },
    /// It does not.
    Refused {
        /// Status, 400 or above.
        status: u16,
        /// Why, in its words.
        text: Vec<u8>,
    },
}

/// The request as it goes to the runtime. `protocols` stands in for those headers of the client that name protocols, where the client's
/// frames are put in others.
pub fn request(
    method: &str,
    location: &Location,
    headers: &[(String, String)],
    protocols: Option<&[(&str, &str)]>,
) -> Vec<u8> {
    let mut out = format!("{method} {} HTTP/1.1\r\nHost: {}\r\n", location.target, location.host);
    let mut put = |name: &str, value: &str| {
        out.push_str(name);
        out.push_str(": ");
        out.push_str(value);
        out.push_str("\r\n");
    };
    for (name, value) in headers {
        let lower = name.to_ascii_lowercase();
        let named_protocol = protocols.is_some()
            && (lower == "upgrade" || lower == "x-stream-protocol-version" || lower.starts_with("sec-websocket-"));
        if named_protocol || KEPT_BACK.contains(&lower.as_str()) || lower.starts_with("x-remote-") {
            continue;
        }
        put(name, value);
    }
    for (name, value) in protocols.unwrap_or_default() {
        put(name, value);
    }
    if method != "GET" {
        put("Content-Length", "0");
    }
    out.push_str("\r\n");
    out.into_bytes()
}

/// Connects, sends the request and reads the answer.
///
/// # Errors
/// Nobody is there, the answer does not come in time, or it is none: what to tell the client.
pub fn greet(location: &Location, request: &[u8]) -> Result<Answer, String> {
    let until = Instant::now() + LIMIT;
    let failed = |what: &str, error: &io::Error| format!("{what} the container runtime at {}: {error}", location.host);
    let mut stream =
        TcpStream::connect_timeout(&location.address, LIMIT).map_err(|e| failed("error dialing backend: ", &e))?;
    let sent = stream.set_nodelay(true).and_then(|()| stream.set_write_timeout(Some(LIMIT)));
    sent.and_then(|()| stream.write_all(request)).map_err(|e| failed("error sending request to", &e))?;
    let mut got = Vec::new();
    let end = loop {
        if let Some(at) = got.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if got.len() > HEAD_LIMIT {
            return Err(failed("no answer from", &io::Error::other("its head is too long")));
        }
        match read_some(&mut stream, &mut got, until) {
            Ok(0) => return Err(failed("no answer from", &io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => {}
            Err(error) => return Err(failed("no answer from", &error)),
        }
    };
    let mut rest = got.split_off(end);
    let Some((status, length)) = status_and_length(&got) else {
        return Err(failed("no answer from", &io::Error::other("what it says is no HTTP")));
    };
    if status == 101 {
        let ready = stream.set_nonblocking(true);
        ready.map_err(|e| failed("cannot go on with", &e))?;
        return Ok(Answer::Switched { stream, head: got, rest });
    }
    if status < 400 {
        return Err(format!("invalid upgrade response: status code {status}"));
    }
    let wanted = length.unwrap_or(BODY_LIMIT).min(BODY_LIMIT);
    while rest.len() < wanted {
        // What came until then is told.
        match read_some(&mut stream, &mut rest, until) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    rest.truncate(wanted);
    Ok(Answer::Refused { status, text: rest })
}

fn read_some(stream: &mut TcpStream, into: &mut Vec<u8>, until: Instant) -> io::Result<usize> {
    let mut block = [0; 4096];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(&mut block) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
            Ok(count) => {
                into.extend_from_slice(&block[..count]);
                return Ok(count);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Status of an answer's head, and the length of its body where it says one.
fn status_and_length(head: &[u8]) -> Option<(u16, Option<usize>)> {
    let head = std::str::from_utf8(head).ok()?;
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.splitn(3, ' ');
    let status = first.next().filter(|version| version.starts_with("HTTP/1.")).and(first.next())?;
    let status = status.parse().ok().filter(|status| (100..600).contains(status))?;
    let length = header(head, "content-length").and_then(|value| value.parse().ok());
    Some((status, length))
}

/// The first header of that name in a head.
pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
    lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn location() -> Location {
        super::super::location::parse("http://127.0.0.1:1/exec/token").unwrap()
    }

    fn headers(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_clients_wish_goes_on_and_its_credentials_do_not() {
        let sent = headers(&[
            ("Host", "node:10250"),
            ("Authorization", "Bearer secret"),
            ("X-Remote-User", "admin"),
            ("Connection", "Upgrade"),
            ("Upgrade", "SPDY/3.1"),
            ("X-Stream-Protocol-Version", "v4.channel.k8s.io"),
            ("X-Stream-Protocol-Version", "v3.channel.k8s.io"),
            ("Content-Length", "0"),
            ("User-Agent", "kubectl"),
        ]);
        let text = String::from_utf8(request("POST", &location(), &sent, None)).unwrap();
        expect_test::expect![[r"
            POST /exec/token HTTP/1.1
            Host: 127.0.0.1:1
            Connection: Upgrade
            Upgrade: SPDY/3.1
            X-Stream-Protocol-Version: v4.channel.k8s.io
            X-Stream-Protocol-Version: v3.channel.k8s.io
            User-Agent: kubectl
            Content-Length: 0

        "]]
        .assert_eq(&text.replace('\r', ""));
    }

    #[test]
    fn another_protocol_takes_the_place_of_the_clients() {
        let sent = headers(&[
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Key", "x"),
            ("Sec-WebSocket-Protocol", "v5.channel.k8s.io"),
        ]);
        let spdy = [("Upgrade", "SPDY/3.1"), ("X-Stream-Protocol-Version", "v4.channel.k8s.io")];
        let text = String::from_utf8(request("GET", &location(), &sent, Some(&spdy))).unwrap();
        let expect = "GET /exec/token HTTP/1.1\r\nHost: 127.0.0.1:1\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
                      X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";
        assert_eq!(text, expect);
    }

    /// What comes of this answer of a runtime.
    fn check(answer: &'static str, expect: &str) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let location = Location { address: listener.local_addr().unwrap(), ..location() };
        let got = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut asked = [0; 5];
                stream.read_exact(&mut asked).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            });
            greet(&location, b"hello")
        });
        let got = match got {
            Ok(Answer::Switched { head, rest, .. }) => {
                format!("{} | {}", head.len(), String::from_utf8(rest).unwrap())
            }
            Ok(Answer::Refused { status, text }) => format!("{status} {}", String::from_utf8(text).unwrap()),
            Err(why) => why,
        };
        assert!(got.contains(expect), "{got}");
    }

    #[test]
    fn the_answer_is_a_session_a_refusal_or_nonsense() {
        check("HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\n\r\n\x01rest", "55 | \x01rest");
        check("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone and more", "404 gone");
        check("HTTP/1.1 500 Internal\r\n\r\nwhy", "500 why");
        check("HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\n\r\n", "invalid upgrade response: status code 302");
        check("SSH-2.0\r\n\r\n", "no HTTP");
        check("HTTP/1.1 101 Switching", "no answer from");
    }
}

//! Tests of the bounded GET against servers on a local socket, most of them hostile.

use super::*;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

/// A server that hands each connection, with the request's header already read, to `serve`, until the
/// listener's last connection. Answers its address.
fn server(serve: impl Fn(&str, &mut TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    // Ends with the test process: nothing tells a blocked accept to stop.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut header = String::new();
            let mut reader = BufReader::new(stream.try_clone().expect("a copy"));
            while reader.read_line(&mut header).is_ok_and(|n| n > 0) && !header.ends_with("\r\n\r\n") {}
            serve(&header, &mut stream);
        }
    });
    address
}

fn request(url: &str) -> Request<'_> {
    Request { url, headers: &[], timeout: Duration::from_secs(30), max_body: 100, redirects: 3 }
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn text(result: Result<Answer, FetchError>, address: &str) -> String {
    match result {
        Ok(answer) => {
            let cut = if answer.is_cut { " cut" } else { "" };
            format!("{} {}{cut}", answer.status, String::from_utf8_lossy(&answer.body))
        }
        Err(error) => error.to_string().replace(address, "SERVER"),
    }
}

#[test]
fn answers_come_as_they_are() {
    for (answer, expect) in [
        (ok("hello"), "200 hello"),
        (ok(&"x".repeat(100)), &*format!("200 {}", "x".repeat(100))),
        (ok(&"x".repeat(101)), &*format!("200 {} cut", "x".repeat(100))),
        ("HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno".to_owned(), "500 no"),
        ("HTTP/1.1 204 Nothing\r\n\r\n".to_owned(), "204 "),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".to_owned(), "200 abc"),
        ("HTTP/1.0 200 OK\r\n\r\nto the end".to_owned(), "200 to the end"),
        ("HTTP/1.1 302 Off\r\nContent-Length: 0\r\n\r\n".to_owned(), "302 "),
        ("HTTP/1.1 302 Off\r\nLocation: ftp://x/\r\nContent-Length: 0\r\n\r\n".to_owned(), "302 "),
    ] {
        let shown = answer.clone();
        let address = server(move |_, stream| {
            let _client_may_be_gone = stream.write_all(answer.as_bytes());
        });
        let url = format!("http://{address}/");
        assert_eq!(text(Fetcher::new(None, "t").get(&request(&url)), &address), expect, "{shown:?}");
    }
}

#[test]
fn hostile_servers_cost_a_deadline_at_most() {
    type Serve = fn(&str, &mut TcpStream);
    let slow: Serve = |_, stream| {
        // One byte of header at a time, until the client gives up: the read waits for that.
        let _ = stream.set_read_timeout(Some(Duration::from_millis(5)));
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX-A: ");
        while stream.write_all(b"x").is_ok() {
            let _ = stream.read(&mut [0; 1]);
        }
    };
    let slow_body: Serve = |_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n");
        let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
        while stream.write_all(b"x").is_ok() {
            let _ = stream.read(&mut [0; 1]);
        }
    };
    let silent: Serve = |_, stream| {
        let _ = stream.read(&mut [0; 1]);
    };
    let endless_header: Serve = |_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        while stream.write_all(b"X-Y: 0123456789012345678901234567890123456789\r\n").is_ok() {}
    };
    let endless_body: Serve = |_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'x'; 1000]).is_ok() {}
    };
    let garbage: Serve = |_, stream| {
        let _ = stream.write_all(b"\x00\xff\xfenonsense\r\n\r\n");
    };
    let half: Serve = |_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc");
    };
    let closes: Serve = |_, _| {};
    let circle: Serve = |_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 302 Off\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n");
    };
    for (what, serve, expect) in [
        ("slow header", slow, "no complete answer within 300ms"),
        ("slow body", slow_body, "no complete answer within 300ms"),
        ("silent", silent, "no complete answer within 300ms"),
        ("endless header", endless_header, "header"),
        ("endless body", endless_body, "cut"),
        ("garbage", garbage, "GET http://SERVER/: "),
        ("half an answer", half, "GET http://SERVER/: "),
        ("closes", closes, "GET http://SERVER/: "),
        ("circle", circle, "GET http://SERVER/again: more than 3 redirects"),
    ] {
        let address = server(serve);
        let url = format!("http://{address}/");
        // Those that end by their deadline get a short one, the others one that they never reach.
        let timeout = if expect.contains("300ms") { Duration::from_millis(300) } else { Duration::from_secs(60) };
        let result = Fetcher::new(None, "t").get(&Request { timeout, ..request(&url) });
        let shown = text(result, &address);
        assert!(shown.contains(expect), "{what}: {shown}");
    }
}

#[test]
fn what_cannot_be_fetched_is_named() {
    let gone = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address").to_string()
    };
    let plain = server(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    });
    for (url, expect) in [
        ("", r#""" is not a URL that can be fetched: empty string"#.to_owned()),
        ("/path", r#""/path" is not a URL that can be fetched: it must start with http:// or https://"#.to_owned()),
        ("file:///etc/passwd", r#""file:///etc/passwd" is not a URL that can be fetched: "#.to_owned()),
        ("http://[::1", r#""http://[::1" is not a URL that can be fetched: "#.to_owned()),
        (
            &format!("http://user:secret@{gone}/x?token=1"),
            format!("GET http://{gone}/x: connection refused: nobody listens there"),
        ),
        (&format!("https://{plain}/"), format!("GET https://{plain}/: the server speaks HTTP, not HTTPS")),
    ] {
        let error = Fetcher::new(None, "t").get(&request(url)).expect_err(url).to_string();
        assert!(error.starts_with(&expect), "{url}: {error}");
    }
    let headers = [("Bad Name".to_owned(), "x".to_owned())];
    let error =
        Fetcher::new(None, "t").get(&Request { headers: &headers, ..request("http://x/") }).expect_err("a header");
    assert!(matches!(error, FetchError::Header { .. }), "{error}");
}

#[test]
fn headers_and_redirects_keep_secrets_at_home() {
    // Tells which of the interesting fields came.
    let echo = |header: &str, stream: &mut TcpStream| {
        let lower = header.to_lowercase();
        let came = |name: &str| lower.lines().find(|line| line.starts_with(name)).unwrap_or("-").to_owned();
        let body = ["get ", "authorization", "x-a", "user-agent", "accept:"].map(came).join(";");
        let _ = stream.write_all(ok(&body).as_bytes());
    };
    let home = server(echo);
    let headers = [("Authorization".to_owned(), "Bearer t".to_owned()), ("X-A".to_owned(), "1".to_owned())];
    let get = |url: &str, redirects: usize, headers: &[(String, String)]| {
        let request = Request { headers, max_body: 1000, redirects, ..request(url) };
        text(Fetcher::new(None, "agent/1").get(&request), &home)
    };
    let direct = get(&format!("http://{home}/a?b=c#d"), 3, &headers);
    assert_eq!(direct, "200 get /a?b=c http/1.1;authorization: bearer t;x-a: 1;user-agent: agent/1;accept: */*");
    let no_accept = get(&format!("http://{home}/"), 3, &[("Accept".to_owned(), String::new())]);
    assert_eq!(no_accept, "200 get / http/1.1;-;-;user-agent: agent/1;-");

    let target = format!("http://{}/next", home.replace("127.0.0.1", "localhost"));
    let away = server(move |_, stream| {
        let _ =
            stream.write_all(format!("HTTP/1.1 307 Off\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n").as_bytes());
    });
    let followed = get(&format!("http://{away}/"), 3, &headers);
    assert_eq!(followed, "200 get /next http/1.1;-;x-a: 1;user-agent: agent/1;accept: */*");
}

#[test]
fn redirects_lead_where_the_standard_says() {
    for (location, expect) in [
        ("http://b/x", Some("http://b/x")),
        ("//b/x", Some("https://b/x")),
        ("/x?y=1#z", Some("https://a:1/x?y=1")),
        ("x", Some("https://a:1/p/x")),
        ("?y", Some("https://a:1/p/q?y")),
        ("mailto:x", Some("https://a:1/p/mailto:x")),
        ("gopher://b/", None),
    ] {
        let value = HeaderValue::from_str(location).expect("a value");
        let from: Uri = "https://a:1/p/q?r".parse().expect("a uri");
        let target = redirect_target(302, Some(&value), &from).map(|uri| uri.to_string());
        assert_eq!(target.as_deref(), expect, "{location}");
        assert_eq!(redirect_target(200, Some(&value), &from), None);
    }
}

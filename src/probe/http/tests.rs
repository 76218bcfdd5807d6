//! Tests of the httpGet probe against servers of one answer each.

use std::net::TcpListener;
use std::thread::JoinHandle;
use std::time::Duration;

use super::*;

/// A server that gives each of its clients the next answer; gives what they asked.
fn serve(answers: &[&str]) -> (u16, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let answers: Vec<String> = answers.iter().map(|answer| answer.replace("PORT", &port.to_string())).collect();
    let thread = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for answer in answers {
            let (mut peer, _) = listener.accept().expect("a client");
            let mut heard = Vec::new();
            while !heard.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                peer.read_exact(&mut byte).expect("its request");
                heard.push(byte[0]);
            }
            peer.write_all(answer.as_bytes()).expect("answered");
            asked.push(String::from_utf8_lossy(&heard).into_owned());
        }
        asked
    });
    (port, thread)
}

fn probe(port: u16, path: &str, headers: &[(&str, &str)]) -> ProbeOutcome {
    let headers: Vec<_> = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let url = Url::new(false, "127.0.0.1", port, path);
    get(&Https::default(), &url, &headers, Instant::now() + Duration::from_secs(20))
}

/// Probes a server with these answers, all of which are taken.
#[track_caller]
fn check(answers: &[&str], expect: ProbeOutcome) {
    let (port, server) = serve(answers);
    let got = probe(port, "/", &[]);
    server.join().expect("all answers are taken");
    assert_eq!(got, expect);
}

fn failure(text: &str) -> ProbeOutcome {
    ProbeOutcome::Failure(text.to_owned())
}

#[test]
fn a_status_is_judged_as_in_the_kubelet() {
    check(&["HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"], ProbeOutcome::Success);
    check(&["HTTP/1.1 204 No Content\r\n\r\n"], ProbeOutcome::Success);
    check(&["HTTP/1.1 404 No\r\n\r\nsecrets"], failure("HTTP probe failed with statuscode: 404"));
    check(&["HTTP/1.1 500 No\r\n\r\n"], failure("HTTP probe failed with statuscode: 500"));
    let warning = "Probe terminated redirects, Response body: look";
    for answer in [
        "HTTP/1.1 304 Same\r\n\r\n",
        "HTTP/1.1 302 Found\r\nContent-Length: 4\r\n\r\nlook",
        "HTTP/1.1 302 Found\r\nLocation: http://elsewhere:PORT/\r\n\r\nlook",
    ] {
        let text = if answer.contains("304") { warning.trim_end_matches("look") } else { warning };
        check(&[answer], ProbeOutcome::Warning(text.to_owned()));
    }
    let why = "unexpected EOF".to_owned();
    let broken = ProbeOutcome::Errored { state: ErroredState::Failure, why };
    check(&["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"], broken);
}

#[test]
fn redirects_on_the_same_host_are_followed() {
    let done = "HTTP/1.1 200 OK\r\n\r\n";
    let (port, server) = serve(&[
        "HTTP/1.1 301 Moved\r\nLocation: /b?c\r\n\r\n",
        "HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:PORT/d\r\n\r\n",
        done,
    ]);
    assert_eq!(probe(port, "/a", &[("Host", "example.com")]), ProbeOutcome::Success);
    let asked = server.join().expect("all answers are taken");
    let first_two = |request: &String| request.lines().take(2).collect::<Vec<_>>().join(", ");
    assert_eq!(
        asked.iter().map(first_two).collect::<Vec<_>>(),
        [
            "GET /a HTTP/1.1, Host: example.com".to_owned(),
            "GET /b?c HTTP/1.1, Host: example.com".to_owned(),
            format!("GET /d HTTP/1.1, Host: 127.0.0.1:{port}"),
        ]
    );
    let (port, server) = serve(&["HTTP/1.1 302 Found\r\nLocation: /again\r\n\r\n"; 10]);
    let text = format!("Get \"http://127.0.0.1:{port}/again\": stopped after 10 redirects");
    assert_eq!(probe(port, "/", &[]), failure(&text));
    server.join().expect("ten requests and no more");
}

#[test]
fn the_request_is_the_kubelets() {
    let ask = |headers: &[(&str, &str)]| {
        let (port, server) = serve(&["HTTP/1.1 200 OK\r\n\r\n"]);
        assert_eq!(probe(port, "/x y?z", headers), ProbeOutcome::Success);
        let asked = server.join().expect("asked").remove(0);
        asked.replace(&port.to_string(), "PORT").trim_end().replace("\r\n", "|")
    };
    assert_eq!(
        ask(&[]),
        "GET /x%20y?z HTTP/1.1|Host: 127.0.0.1:PORT|User-Agent: kube-probe/1.36|Accept: */*|Connection: close"
    );
    let own = [
        ("host", "a.b"),
        ("user-agent", "me"),
        ("accept", "text/html"),
        ("x-it", " 1 "),
        ("X-It", "2"),
        ("Content-Length", "7"),
    ];
    assert_eq!(
        ask(&own),
        "GET /x%20y?z HTTP/1.1|Host: a.b|User-Agent: me|Accept: text/html|X-It: 1|X-It: 2|Connection: close"
    );
    assert_eq!(
        ask(&[("Accept", ""), ("User-Agent", "")]),
        "GET /x%20y?z HTTP/1.1|Host: 127.0.0.1:PORT|Connection: close"
    );
    // Nothing can be smuggled in.
    assert!(
        matches!(probe(1, "/", &[("A", "x\r\nB: y")]), ProbeOutcome::Failure(text) if text.contains("invalid header field value"))
    );
    assert!(
        matches!(probe(1, "/", &[("A b", "x")]), ProbeOutcome::Failure(text) if text.contains("invalid header field name"))
    );
}

#[test]
fn nobody_there_and_nobody_answering() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let url = Url::new(false, "127.0.0.1", port, "/");
    let slow = get(&Https::default(), &url, &[], Instant::now() + Duration::from_millis(50));
    let late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
    assert_eq!(slow, failure(&format!("Get \"{url}\": {late}")));
    drop(listener);
    let text = format!("Get \"{url}\": dial tcp 127.0.0.1:{port}: connect: connection refused");
    assert_eq!(probe(port, "/", &[]), failure(&text));
    let (port, server) = serve(&[""]);
    assert_eq!(probe(port, "/", &[]), failure(&format!("Get \"http://127.0.0.1:{port}/\": EOF")));
    server.join().expect("served");
}

#[test]
fn https_takes_any_certificate_and_knows_plain_http() {
    let (port, server) = serve_tls();
    let url = Url::new(true, "127.0.0.1", port, "/");
    let deadline = Instant::now() + Duration::from_secs(20);
    assert_eq!(get(&Https::default(), &url, &[], deadline), ProbeOutcome::Success);
    server.join().expect("served");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = Url::new(true, "127.0.0.1", listener.local_addr().expect("bound").port(), "/");
    let plain = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().expect("a client");
        let _hello = peer.read(&mut [0; 4096]).expect("its hello");
        peer.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("answered");
        let _gone = peer.read_to_end(&mut Vec::new());
    });
    let text = format!("Get \"{url}\": http: server gave HTTP response to HTTPS client");
    assert_eq!(get(&Https::default(), &url, &[], Instant::now() + Duration::from_secs(20)), failure(&text));
    plain.join().expect("served");
}

/// A server with a certificate that nobody vouches for.
fn serve_tls() -> (u16, JoinHandle<()>) {
    use rustls::pki_types::PrivatePkcs8KeyDer;
    let made = rcgen::generate_simple_self_signed(["nobody.example".to_owned()]).expect("a certificate");
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .expect("a certificate with its key");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let thread = std::thread::spawn(move || {
        let (peer, _) = listener.accept().expect("a client");
        let tls = rustls::ServerConnection::new(Arc::new(config)).expect("a connection");
        let mut stream = StreamOwned::new(tls, peer);
        let _request = stream.read(&mut [0; 4096]).expect("its request");
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").expect("answered");
        let _gone = stream.read_to_end(&mut Vec::new());
    });
    (port, thread)
}

#[test]
fn a_hook_takes_any_answer() {
    let any = [
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 500 No\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\n\r\n",
    ];
    for (answer, expect) in any.into_iter().zip([200, 500, 302]) {
        let (port, server) = serve(&[answer]);
        let to = (false, "127.0.0.1", port, "/bye");
        let got = crate::probe::NetProber::default().call_hook(to, &[], Duration::from_secs(20));
        assert_eq!(got, Ok(expect), "{answer:?}");
        let asked = server.join().expect("it is asked once").concat();
        assert!(asked.starts_with("GET /bye HTTP/1.1\r\n"), "{asked}");
        assert!(asked.contains("\r\nUser-Agent: kube-lifecycle/1.36\r\n"), "{asked}");
    }
}

#[test]
fn a_hook_over_tls_is_told_of_a_server_without() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let server = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().expect("a client");
        peer.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("answered");
        // Until the client has had enough.
        let _heard = peer.read_to_end(&mut Vec::new());
    });
    let to = (true, "127.0.0.1", port, "/");
    let got = crate::probe::NetProber::default().call_hook(to, &[], Duration::from_secs(20));
    assert_eq!(got, Err(GetError::NotTls { url: format!("https://127.0.0.1:{port}/") }));
    server.join().expect("the server ends");
}

//! Tests of the health server: its answers as text, its checks, and hostile clients on a real socket.

use super::*;
use crate::api::moment::Moment;
use expect_test::{Expect, expect};
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr};

fn some_checks(broken: bool) -> Checks {
    let pleg = move || if broken { Err("nothing listed".to_owned()) } else { Ok(()) };
    Arc::new([Check::ping(), Check::new("pleg", pleg)])
}

fn check(request: &str, broken: bool, expect: Expect) {
    let reply = reply(request.as_bytes(), &some_checks(broken));
    let text = String::from_utf8(reply).expect("text").replace("\r\n", "\n");
    let (head, body) = text.split_once("\n\n").expect("headers");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).expect("a length");
    if !request.starts_with("HEAD") {
        assert_eq!(length, body.len().to_string());
    }
    expect.assert_eq(&format!("{}\n{body}", head.lines().next().unwrap_or_default()));
}

#[test]
fn answers() {
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    check(&get("/healthz"), false, expect!["HTTP/1.1 200 OK\nok"]);
    check(&get("/healthz/"), false, expect!["HTTP/1.1 200 OK\nok"]);
    check(
        &get("/healthz?verbose"),
        false,
        expect![[r#"
            HTTP/1.1 200 OK
            [+]ping ok
            [+]pleg ok
            healthz check passed
        "#]],
    );
    check(
        &get("/healthz"),
        true,
        expect![[r#"
            HTTP/1.1 500 Internal Server Error
            [+]ping ok
            [-]pleg failed: nothing listed
            healthz check failed
        "#]],
    );
    check(&get("/healthz?exclude=pleg"), true, expect!["HTTP/1.1 200 OK\nok"]);
    check(&get("/healthz/ping"), true, expect!["HTTP/1.1 200 OK\nok"]);
    check(
        &get("/healthz/pleg"),
        true,
        expect![[r#"
            HTTP/1.1 500 Internal Server Error
            internal server error: nothing listed
        "#]],
    );
    check(
        &get("/healthz/nothing"),
        false,
        expect![[r#"
            HTTP/1.1 404 Not Found
            404 page not found
        "#]],
    );
    check("HEAD /healthz HTTP/1.0\r\n\r\n", false, expect!["HTTP/1.1 200 OK\n"]);
    check(
        "DELETE /healthz HTTP/1.1\r\n\r\n",
        false,
        expect![[r#"
            HTTP/1.1 405 Method Not Allowed
            only GET and HEAD are served here
        "#]],
    );
    for garbage in
        ["", "GET\r\n\r\n", "GET /healthz SPDY/3\r\n\r\n", "\u{0}\u{1}\r\n\r\n", "GET  /healthz HTTP/1.1\r\n\r\n"]
    {
        check(
            garbage,
            false,
            expect![[r#"
                HTTP/1.1 400 Bad Request
                this is no HTTP/1.1 request
            "#]],
        );
    }
}

#[test]
fn pleg_is_healthy_while_lists_succeed() {
    let heart = Arc::new(Heartbeat::default());
    let view = Arc::new(Snapshot::new(NodeView::default()));
    let pleg = Check::pleg(Arc::clone(&heart), Arc::clone(&view));
    assert_eq!(pleg.run(), Err("the runtime's containers were not listed yet".to_owned()));
    heart.beat(clock::moment());
    assert_eq!(pleg.run(), Ok(()));
    view.set(Arc::new(NodeView { runtime_down: "no such file".to_owned(), ..NodeView::default() }));
    assert_eq!(pleg.run(), Err("the container runtime does not answer: no such file".to_owned()));
    view.set(Arc::default());
    // A machine that just booted has no moment three minutes ago.
    let now = clock::moment().since_boot();
    if let Some(old) = now.checked_sub(PLEG_LIMIT + Duration::from_secs(1)) {
        heart.beat(Moment::from_boot(old));
        let why = pleg.run().expect_err("too old");
        assert!(why.starts_with("the runtime's containers were last listed 18"), "{why}");
    }
}

#[test]
fn the_loop_is_healthy_when_it_answers() {
    let answers = Check::sync_loop(|answer| answer.send(()).is_ok());
    assert_eq!(answers.run(), Ok(()));
    let refuses = Check::sync_loop(|_| false);
    assert_eq!(refuses.run(), Err("the sync loop does not take questions any more".to_owned()));
    let held = std::sync::Mutex::new(Vec::new());
    let hangs = Check::sync_loop_within(Duration::from_millis(20), move |answer| {
        held.lock().expect("not poisoned").push(answer);
        true
    });
    assert_eq!(hangs.run(), Err("the sync loop did not answer within 0.02 s".to_owned()));
}

fn loopback() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)
}

fn get(addr: SocketAddr) -> String {
    let mut client = TcpStream::connect(addr).expect("connected");
    client.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").expect("asked");
    let mut text = String::new();
    client.read_to_string(&mut text).expect("answered");
    text
}

#[test]
fn it_survives_clients_that_say_nothing_too_much_or_go_away() {
    let server = HealthServer::start(loopback(), some_checks(false)).expect("started");
    let addr = server.addr().expect("bound");
    let silent: Vec<_> = (0..CONNECTIONS - 1).map(|_| TcpStream::connect(addr).expect("connected")).collect();
    for _ in 0..30 {
        drop(TcpStream::connect(addr).expect("connected"));
    }
    let mut flood = TcpStream::connect(addr).expect("connected");
    // The server may hang up in the middle of it.
    let _cut = flood.write_all(&vec![b'x'; 1 << 20]);
    assert!(get(addr).ends_with("\r\n\r\nok"), "one place was left and it was free again each time");
    drop(silent);
    assert!(get(addr).starts_with("HTTP/1.1 200 OK\r\n"));
}

#[test]
fn a_panic_in_a_check_costs_one_answer() {
    let panics = Check::new("bad", || panic!("a broken check"));
    let server = HealthServer::start(loopback(), Arc::new([panics])).expect("started");
    let addr = server.addr().expect("bound");
    for _ in 0..CONNECTIONS + 1 {
        assert_eq!(get(addr), "", "no answer, and the place is free again");
    }
}

#[test]
fn a_stop_ends_it_with_connections_open() {
    let server = HealthServer::start(loopback(), some_checks(false)).expect("started");
    let addr = server.addr().expect("bound");
    let mut silent: Vec<_> = (0..CONNECTIONS + 2).map(|_| TcpStream::connect(addr).expect("connected")).collect();
    drop(server);
    for client in &mut silent {
        // Closed or reset, but never left hanging.
        let _ended = client.read(&mut [0]);
    }
    assert!(TcpStream::connect(addr).is_err(), "nobody listens any more");
}

#[test]
fn a_taken_address_is_no_reason_to_fail() {
    let first = HealthServer::start(loopback(), some_checks(false)).expect("started");
    let addr = first.addr().expect("bound");
    let second = HealthServer::start(addr, some_checks(false)).expect("started without the address");
    assert_eq!(second.addr(), None);
    assert!(get(addr).ends_with("ok"));
}

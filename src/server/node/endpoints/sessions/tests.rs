//! What requests for sessions get: refusals from a view made by hand, and a session with a runtime of a few lines.

use super::super::super::http::reply::ReplyBody;
use super::super::super::http::request::with_request;
use super::super::super::http::wire::Wire;
use super::*;
use crate::api::PodName;
use crate::api::runtime::{ContainerState, RuntimeContainer, RuntimePod};
use crate::api::v1::Pod;
use crate::msg::NodeView;
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

fn parts() -> NodeParts {
    let state = ContainerState::Running { started_at: 0 };
    let runtime = RuntimePod {
        uid: Some("u1".into()),
        name: "web".to_owned(),
        namespace: "ns".to_owned(),
        sandboxes: Vec::new(),
        containers: vec![RuntimeContainer::bare("id1", "s", "c", 0, state)],
    };
    let pod: Pod = serde_json::from_value(
        json!({"metadata": {"name": "web", "namespace": "ns"}, "spec": {"containers": [{"name": "c"}]}}),
    )
    .expect("a pod");
    let name = PodName { namespace: "ns".to_owned(), name: "web".to_owned() };
    let view =
        PodView { pod: Some(Arc::new(pod)), runtime: Some(Arc::new(runtime)), ..PodView::named("u1".into(), name) };
    let parts = NodeParts::for_tests();
    parts.view.set(Arc::new(NodeView { pods: [(view.uid.clone(), Arc::new(view))].into(), ..NodeView::default() }));
    parts
}

type Handle = fn(&NodeParts, &mut Request<'_>) -> Reply;

fn check(handle: Handle, target: &str, upgrade: &str, status: u16, expect: &str) {
    let reply = with_request(&format!("POST {target}"), "", |request| {
        let path = target.split('?').next().unwrap_or_default();
        let words: Vec<String> = path.split('/').skip(2).map(str::to_owned).collect();
        let names: &[&str] = match (path.starts_with("/portForward"), words.len()) {
            (true, _) => &["namespace", "pod", "uid"],
            (false, 4) => &["namespace", "pod", "uid", "container"],
            (false, _) => &["namespace", "pod", "container"],
        };
        request.params.extend(names.iter().copied().zip(words));
        if !upgrade.is_empty() {
            request.head.headers.push(("Connection".to_owned(), "Upgrade".to_owned()));
            request.head.headers.push(("Upgrade".to_owned(), upgrade.to_owned()));
        }
        handle(&parts(), request)
    });
    let got = (reply.status(), String::from_utf8(reply.into_bytes().expect("a body")).expect("text"));
    assert!(got.0 == status && got.1.starts_with(expect), "{target}: {got:?}");
}

#[test]
fn what_is_no_session_is_refused_in_the_kubelets_words() {
    const NONE: &str = "you must specify at least 1 of stdin, stdout, stderr";
    check(exec, "/exec/ns/web/c?command=x", "SPDY/3.1", 400, NONE);
    check(exec, "/exec/ns/web/c?command=x&error=1&tty=1", "SPDY/3.1", 400, NONE);
    check(exec, "/exec/ns/no/c?output=1", "SPDY/3.1", 404, "pod does not exist");
    check(exec, "/exec/ns/web/x?output=1", "SPDY/3.1", 500, "container not found (\"x\")");
    check(exec, "/exec/ns/web/c?output=1", "", 500, "Upgrade request required\n");
    check(exec, "/exec/ns/web/u1/c?output=1", "SPDY/3.1", 500, "Exec: the socket does not exist");
    check(attach, "/attach/ns/web/x?output=1", "SPDY/3.1", 500, "container x not found in pod web_ns");
    check(attach, "/attach/ns/web/u2/c?output=1", "SPDY/3.1", 500, "pod web_ns not found");
    check(attach, "/attach/ns/web/u1/c?output=1", "SPDY/3.1", 500, "Attach: the socket does not exist");
    check(port_forward, "/portForward/ns/no", "SPDY/3.1", 404, "pod does not exist");
    check(port_forward, "/portForward/ns/web/u2", "SPDY/3.1", 404, "pod not found");
    check(port_forward, "/portForward/ns/web", "SPDY/3.1", 500, "pod not found (\"web_ns\")");
    check(port_forward, "/portForward/ns/web", "websocket", 400, "query parameter \"port\" is required");
    check(port_forward, "/portForward/ns/web?port=1,x", "websocket", 400, "unable to parse \"1,x\" as a port");
    check(port_forward, "/portForward/ns/web?port=0", "websocket", 400, "port \"0\" must be > 0");
    check(port_forward, "/portForward/ns/web?port=1,2&port=3", "websocket", 500, "pod not found (\"web_ns\")");
    check(run, "/run/ns/web/x?cmd=ls", "", 500, "container not found (\"x\")");
    check(run, "/run/ns/no/c?cmd=ls", "", 404, "pod does not exist");
}

#[test]
fn the_runtimes_refusals_have_their_status() {
    use crate::cri::CriFailure;
    let of = |failure| CriError { method: "Exec", object: "id1".into(), endpoint: "e".into(), failure };
    let status = |code| CriFailure::Status { code, message: "no".to_owned() };
    for (failure, expect) in [
        (status(Code::NotFound), 404),
        (status(Code::ResourceExhausted), 429),
        (status(Code::Unknown), 500),
        (CriFailure::Refused, 500),
    ] {
        assert_eq!(refused(&of(failure)).status(), expect);
    }
    let reply = refused(&of(status(Code::ResourceExhausted)));
    assert_eq!(reply.header("Retry-After"), Some("60"));
    assert_eq!(reply.into_bytes().expect("a body"), b"rpc error: code = ResourceExhausted desc = no");
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let theirs = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    (listener.accept().expect("accepted").0, theirs)
}

#[test]
fn a_session_is_the_runtimes_answer_and_then_bytes_both_ways() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/exec/token", listener.local_addr().expect("bound"));
    let parts = parts();
    std::thread::scope(|scope| {
        let runtime = scope.spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).expect("a head");
                head.push(byte[0]);
            }
            assert!(head.starts_with(b"POST /exec/token HTTP/1.1\r\n"), "{}", String::from_utf8_lossy(&head));
            stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\nearly").expect("written");
            let mut said = [0; 10];
            stream.read_exact(&mut said).expect("what the client says");
            stream.write_all(b" late").expect("written");
            said
        });
        let reply =
            with_request("POST /exec/ns/web/c", "", |request| join(&parts, request, &url, Speech::Same, "exec"));
        let (server, mut client) = pair();
        let duplex = Duplex::new(Wire::plain(server).expect("a wire"), b"ahead".to_vec(), None);
        match reply.into_body() {
            ReplyBody::TakeOver(go_on) => go_on(duplex),
            _ => panic!("it is not taken over"),
        }
        client.write_all(b" then").expect("written");
        let mut got = String::new();
        client.read_to_string(&mut got).expect("the answer");
        assert_eq!(got, "HTTP/1.1 101 Switching Protocols\r\n\r\nearly late");
        assert_eq!(runtime.join().expect("no panic"), *b"ahead then");
    });
}

#[test]
fn a_runtime_that_serves_elsewhere_or_nowhere_is_told() {
    let ask = |url: &str| {
        let reply =
            with_request("POST /exec/ns/web/c", "", |request| join(&parts(), request, url, Speech::Same, "exec"));
        (reply.status(), String::from_utf8(reply.into_bytes().expect("a body")).expect("text"))
    };
    let (status, text) = ask("http://10.0.0.1:1/x");
    assert!(status == 500 && text.contains("loopback"), "{text}");
    let (status, text) = ask("http://127.0.0.1:1/x");
    assert!(status == 500 && text.starts_with("error dialing backend: "), "{text}");
}

#[test]
fn websockets_of_an_api_server_are_told_by_their_protocol() {
    let speech = |protocol: &str, key: &str, is_on: bool| {
        with_request("GET /exec/ns/web/c", "", |request| {
            for (name, value) in [
                ("Connection", "Upgrade"),
                ("Upgrade", "websocket"),
                ("Sec-WebSocket-Version", "13"),
                ("Sec-WebSocket-Key", key),
                ("Sec-WebSocket-Protocol", protocol),
            ] {
                request.head.headers.push((name.to_owned(), value.to_owned()));
            }
            let mut parts = parts();
            parts.streams.websockets = is_on;
            let streams = StreamOptions { tty: false, stdin: true, stdout: true, stderr: false };
            let both = (Speech::of_streams(&parts, request, streams), Speech::of_ports(&parts, request));
            let status = |reply: Reply| reply.status();
            (both.0.map_err(status), both.1.map_err(status))
        })
    };
    let streams = Streams { stdin: true, stdout: true, ..Streams::default() };
    let channels = Speech::Channels { key: "k".to_owned(), streams };
    let tunnel = Speech::Tunnel { key: "k".to_owned(), protocols: vec!["portforward.k8s.io".to_owned()] };
    assert_eq!(speech("v5.channel.k8s.io", "k", true), (Ok(channels.clone()), Ok(Speech::Same)));
    assert_eq!(speech("v4.channel.k8s.io, v5.channel.k8s.io", "k", true), (Ok(channels), Ok(Speech::Same)));
    assert_eq!(speech("v4.channel.k8s.io", "k", true), (Ok(Speech::Same), Ok(Speech::Same)));
    assert_eq!(speech("v5.channel.k8s.io", "k", false), (Ok(Speech::Same), Ok(Speech::Same)));
    assert_eq!(speech("SPDY/3.1+portforward.k8s.io", "k", true), (Ok(Speech::Same), Ok(tunnel)));
    assert_eq!(speech("v5.channel.k8s.io", "", true).0, Err(400));
}

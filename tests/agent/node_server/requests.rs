//! What a well-behaved client gets: endpoints, connections that go on, TLS as configured, certificates that change.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use rustls::version::{TLS12, TLS13};
use serde_json::{Value, json};

use super::Server;
use super::client::{Client, config};
use crate::agent::{SOON, ground, run};
use crate::fakes::api_tls::Authority;
use crate::harness::{agent::get, config::free_port, wait};

#[test]
fn endpoints_answer_what_the_agent_knows() {
    let (_fake, place) = ground();
    let server = Server::start(&place);
    run(&server.agent, "web");
    let mut client = server.client();
    let json = |client: &mut Client, path: &str| -> Value {
        let answer = client.ask(&format!("GET {path}"), "");
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert!(answer.head.contains("Content-Type: application/json\r\n"), "{path}: {}", answer.head);
        serde_json::from_str(&answer.body).expect("JSON")
    };
    let pods = json(&mut client, "/pods");
    let pod = &pods["items"][0];
    assert_eq!(
        (&pods["kind"], &pod["metadata"]["name"], &pod["status"]["phase"]),
        (&json!("PodList"), &json!("web-node"), &json!("Running"))
    );
    let running = json(&mut client, "/runningpods/");
    let pod = &running["items"][0];
    assert_eq!(
        (&pod["metadata"]["name"], &pod["spec"]["containers"][0]["name"], &pod["status"]),
        (&json!("web-node"), &pods["items"][0]["spec"]["containers"][0]["name"], &json!({}))
    );
    let configuration = json(&mut client, "/configz");
    assert_eq!(configuration["kubeletconfig"]["port"], json!(server.port));
    assert_eq!(configuration["kubeletconfig"]["kind"], json!("KubeletConfiguration"));
    for (path, part) in [
        ("/healthz", "ok"),
        ("/healthz?verbose", "[+]syncloop ok\n"),
        ("/healthz/ping", "ok"),
        ("/healthz/log", "ok"),
        ("/healthz/syncloop", "ok"),
        ("/flagz", "hostname-override=node\n"),
        ("/statusz", "Binary version"),
        ("/debug/pprof/goroutine", "node-server"),
        ("/debug/pprof/heap", "VmHWM"),
    ] {
        let answer = client.ask(&format!("GET {path}"), "");
        assert!(answer.status == 200 && answer.body.contains(part), "{path}: {answer:?}");
    }
    for (line, status) in [
        ("GET /nothing", 404),
        ("GET /", 404),
        ("DELETE /pods", 405),
        ("HEAD /pods", 405),
        ("HEAD /healthz", 200),
        ("GET //pods", 404),
        ("GET /healthz/../pods", 404),
        ("GET /%70ods", 200),
        ("GET /healthz/nothing", 404),
    ] {
        assert_eq!(client.ask(line, "").status, status, "{line}");
    }
}

#[test]
fn a_connection_serves_request_after_request() {
    let (_fake, place) = ground();
    let server = Server::start(&place);
    let mut client = server.client();
    // Two at once, and the beginning of a third.
    let get = "GET /healthz/ping HTTP/1.1\r\nHost: n\r\n\r\n";
    client.send(format!("{get}{get}GET /healthz/pi").as_bytes()).expect("sent");
    for _ in 0..2 {
        assert_eq!(client.answer(false).body, "ok");
    }
    client.send(b"ng HTTP/1.1\r\nHost: n\r\n\r\n").expect("sent");
    assert_eq!(client.answer(false).body, "ok");
    // A hundred more than are served in a row.
    client.send(get.repeat(132).as_bytes()).expect("sent");
    for number in 0..132 {
        assert_eq!(client.answer(false).body, "ok", "{number}");
    }
    // Bodies of both kinds, with and without a word in between.
    let put = "PUT /debug/flags/v HTTP/1.1\r\nHost: n\r\n";
    client.send(format!("{put}Content-Length: 1\r\n\r\n4").as_bytes()).expect("sent");
    assert_eq!(client.answer(false).body, "successfully set klog.logging.verbosity to 4\n");
    client.send(format!("{put}Transfer-Encoding: chunked\r\n\r\n1\r\n5\r\n0\r\n\r\n").as_bytes()).expect("sent");
    assert_eq!(client.answer(false).body, "successfully set klog.logging.verbosity to 5\n");
    client.send(format!("{put}Content-Length: 1\r\nExpect: 100-continue\r\n\r\n").as_bytes()).expect("sent");
    assert_eq!(client.answer(false).status, 100);
    client.send(b"4").expect("sent");
    assert_eq!(client.answer(false).body, "successfully set klog.logging.verbosity to 4\n");
    // A body that nobody wants is passed over.
    client.send(b"GET /healthz/ping HTTP/1.1\r\nHost: n\r\nContent-Length: 5\r\n\r\nhello").expect("sent");
    assert_eq!(client.answer(false).body, "ok");
    assert_eq!(client.ask("GET /healthz/ping", "Connection: Upgrade\r\nUpgrade: websocket\r\n").body, "ok");
    let last = client.ask("GET /healthz/ping", "Connection: close\r\n");
    assert!(last.head.contains("Connection: close\r\n") && client.is_ended(), "{}", last.head);
    let mut old = server.client();
    old.send(b"GET /healthz/ping HTTP/1.0\r\n\r\n").expect("sent");
    assert_eq!(old.answer(false).body, "ok");
    assert!(old.is_ended());
}

#[test]
fn switches_close_endpoints_in_upstreams_words() {
    let (_fake, place) = ground();
    let read_only = free_port();
    let server = Server::start_with(&place, |config| {
        config["enableProfilingHandler"] = json!(false);
        config["enableDebugFlagsHandler"] = json!(false);
        config["enableSystemLogHandler"] = json!(false);
        config["readOnlyPort"] = json!(read_only);
    });
    let mut client = server.client();
    for (path, text) in [
        ("/debug/pprof/", "profiling endpoint is disabled.\n"),
        ("/debug/flags/v", "flags endpoint is disabled.\n"),
        ("/logs/", "logs endpoint is disabled.\n"),
    ] {
        let answer = client.ask(&format!("GET {path}"), "");
        assert_eq!((answer.status, answer.body.as_str()), (405, text), "{path}");
    }
    for (path, status, part) in [
        ("/pods", 200, "PodList"),
        ("/healthz", 200, "ok"),
        ("/exec/a/b/c", 405, "Debug endpoints are disabled."),
        ("/runningpods/", 405, "Debug endpoints are disabled."),
        ("/configz", 404, ""),
    ] {
        let (got, body) = get(read_only, path).expect("an answer");
        assert!(got == status && body.contains(part), "{path}: {got} {body}");
    }
    drop(server);
    let server = Server::start_with(&place, |config| config["enableDebuggingHandlers"] = json!(false));
    let answer = server.client().ask("POST /run/a/b/c", "");
    assert_eq!((answer.status, answer.body.as_str()), (405, "Debug endpoints are disabled.\n"));
    assert_eq!(server.client().ask("GET /configz", "").status, 404);
}

#[test]
fn tls_is_spoken_as_configured_and_certificates_are_followed() {
    let (_fake, place) = ground();
    let authority = Authority::new("ca");
    let write = |name: &str| {
        let pair = authority.pair(name, &["localhost"]);
        fs::write(place.folder.path().join("tls.key"), &pair.key).expect("written");
        fs::write(place.folder.path().join("tls.crt"), &pair.certificate).expect("written");
        crate::fakes::api_tls::certificate(&pair.certificate).to_vec()
    };
    let first = write("first");
    let server = Server::start_with(&place, |config| {
        config["tlsCertFile"] = json!(place.folder.path().join("tls.crt"));
        config["tlsPrivateKeyFile"] = json!(place.folder.path().join("tls.key"));
        config["tlsCipherSuites"] = json!(["TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"]);
    });
    assert_eq!(server.client().agreed(), ("TLSv1_3".to_owned(), None, first.clone()));
    let old = Client::connect_as(server.port, config(None, &[&TLS12])).expect("1.2 is spoken");
    assert_eq!(old.agreed().0, "TLSv1_2");
    let mut modern = config(None, &[&TLS13]).as_ref().clone();
    modern.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let modern = Client::connect_as(server.port, modern.into()).expect("one of the two");
    assert_eq!(modern.agreed().1.as_deref(), Some("http/1.1"));
    // A connection that was there goes on; new ones get the new certificate.
    let mut before = server.client();
    let second = write("second");
    wait::until("the new certificate", SOON, || match server.client().agreed().2 {
        shown if shown == second => Ok(()),
        shown => Err(format!("the {} one", if shown == first { "old" } else { "wrong" })),
    });
    assert_eq!(before.ask("GET /healthz/ping", "").body, "ok");
    drop(server);
    let server = Server::start_with(&place, |config| config["tlsMinVersion"] = json!("VersionTLS13"));
    assert!(Client::connect_as(server.port, config(None, &[&TLS12])).is_err());
    let mut plain = TcpStream::connect(("127.0.0.1", server.port)).expect("connected");
    plain.write_all(b"GET /pods HTTP/1.1\r\nHost: n\r\n\r\n").expect("sent");
    let mut text = String::new();
    plain.read_to_string(&mut text).expect("an answer");
    assert!(text.starts_with("HTTP/1.0 400 ") && text.ends_with("HTTP request to an HTTPS server.\n"), "{text}");
}

#[test]
fn nobody_is_let_in_where_nobody_can_be_asked() {
    let (_fake, place) = ground();
    // The defaults: tokens and rights are the API server's business, and this node has none.
    let server = Server::start_with(&place, |config| {
        config["authentication"] = json!({});
        config["authorization"] = json!({});
    });
    let mut client = server.client();
    let answer = client.ask("GET /pods", "");
    assert_eq!((answer.status, answer.body.as_str()), (401, "Unauthorized"));
    let answer = client.ask("GET /pods", "Authorization: Bearer t\r\n");
    assert_eq!((answer.status, answer.body.as_str()), (401, "Unauthorized: this node has no API server to ask"));
    assert_eq!(client.ask("GET /nothing", "").status, 401, "not even what there is not");
}

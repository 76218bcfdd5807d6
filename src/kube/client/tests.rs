//! Requests over plain HTTP to a socket that answers what it is told. TLS and faults are in tests/it_kube.rs.

use super::*;
use crate::kube::kubeconfig;
use crate::kube::{ListEvent, WatchEvent};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::path::Path;

/// Serves one answer after another, each on the connection that asks next; gives the requests.
fn serve(answers: Vec<String>) -> (ApiClient, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = format!("http://{}", listener.local_addr().expect("bound"));
    let thread = std::thread::spawn(move || {
        let mut asked = Vec::new();
        let mut answers = answers.into_iter();
        let mut next = answers.next();
        while next.is_some() {
            let (socket, _) = listener.accept().expect("a client");
            let mut reader = BufReader::new(socket.try_clone().expect("a socket"));
            let mut socket = socket;
            while let Some(answer) = &next {
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    if reader.read_line(&mut head).expect("text") == 0 {
                        break;
                    }
                }
                if head.is_empty() {
                    break;
                }
                let lower = head.to_lowercase();
                let length = lower.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
                let mut body = vec![0; length.unwrap_or(0)];
                reader.read_exact(&mut body).expect("a body");
                let line = head.lines().next().unwrap_or_default().trim_end_matches(" HTTP/1.1");
                asked.push(format!("{line} {}", String::from_utf8_lossy(&body)).trim_end().to_owned());
                socket.write_all(answer.as_bytes()).expect("sent");
                let is_last = answer.contains("connection: close");
                next = answers.next();
                if is_last {
                    break;
                }
            }
        }
        asked
    });
    let value = json!({
        "current-context": "c", "clusters": [{"name": "k", "cluster": {"server": server}}], "users": [{"name": "u"}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    });
    let access = kubeconfig::read(value, Path::new("k"), None).expect("good");
    (ApiClient::new(access, "ferrolet/test", RateLimit { per_second: -1.0, burst: 1 }), thread)
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}

fn lines(lines: &[Value]) -> String {
    let body: String =
        lines.iter().map(|line| format!("{line}\n")).map(|line| format!("{:x}\r\n{line}\r\n", line.len())).collect();
    format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n{body}0\r\n\r\n")
}

#[test]
fn one_call_of_each_method_on_one_connection() {
    let object = json!({"a": 1}).to_string();
    let (client, served) = serve(vec![
        answer("200 OK", "", &object),
        answer("201 Created", "", &object),
        answer("200 OK", "", &object),
        answer("200 OK", "", &object),
        answer("200 OK", "", &object),
        answer("404 Not Found", "", r#"{"kind":"Status","reason":"NotFound","message":"no","code":404}"#),
    ]);
    let value: Value = client.get("/api/v1/nodes/n").expect("there");
    assert_eq!(value, json!({"a": 1}));
    let _made: Value = client.create("/p", &json!({"b": 2})).expect("made");
    let _made: Value = client.update("/p/x", &json!({"c": 3})).expect("made");
    let _made: Value = client.patch("/p/x/status", PatchType::Strategic, b"{}".to_vec()).expect("made");
    client.delete("/p/x", &DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() }).expect("gone");
    let error = client.get::<Value>("/p/y").expect_err("not there");
    assert!(error.is_not_found(), "{error}");
    assert_eq!(error.to_string(), "GET /p/y: the API server answers 404 NotFound: no");
    assert_eq!(
        served.join().expect("no panic"),
        [
            "GET /api/v1/nodes/n",
            r#"POST /p {"b":2}"#,
            r#"PUT /p/x {"c":3}"#,
            "PATCH /p/x/status {}",
            r#"DELETE /p/x {"gracePeriodSeconds":0}"#,
            "GET /p/y",
        ]
    );
}

#[test]
fn a_server_that_asks_for_patience_gets_it() {
    let (client, served) = serve(vec![
        answer("429 Too Many Requests", "retry-after: 0\r\n", "slow"),
        answer("200 OK", "", "1"),
        answer("503 Service Unavailable", "retry-after: 1000\r\n", "down"),
    ]);
    assert_eq!(client.get::<u32>("/a").expect("there"), 1);
    let error = client.get::<u32>("/b").expect_err("down");
    assert_eq!((error.status(), error.retry_after()), (Some(503), Some(Duration::from_secs(1000))));
    assert_eq!(served.join().expect("no panic"), ["GET /a", "GET /a", "GET /b"]);
}

#[test]
fn a_watch_tells_each_line_and_an_error_event_is_an_error() {
    let pod = |version: &str| json!({"metadata": {"name": "p", "resourceVersion": version}});
    let (client, served) = serve(vec![lines(&[
        json!({"type": "ADDED", "object": pod("1")}),
        json!({"type": "BOOKMARK", "object": pod("5")}),
        json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}),
    ])]);
    let mut told = Vec::new();
    let error = client.watch::<Value>("/w", &[("resourceVersion", "0")], &Cancel::new(), &mut |event| {
        told.push(event);
        ControlFlow::Continue(())
    });
    let error = error.expect_err("gone");
    assert!(error.is_gone(), "{error}");
    told.retain(|event| *event != WatchEvent::Settled);
    assert_eq!(told, [WatchEvent::Added(pod("1")), WatchEvent::Bookmark("5".to_owned())]);
    assert_eq!(served.join().expect("no panic"), ["GET /w?resourceVersion=0&watch=true"]);
}

#[test]
fn a_set_is_listed_page_by_page_and_then_watched() {
    let list = |meta: Value, items: Value| {
        answer("200 OK", "connection: close\r\n", &json!({"kind": "L", "metadata": meta, "items": items}).to_string())
    };
    let gone = json!({"kind": "Status", "code": 410, "reason": "Expired"});
    let (client, served) = serve(vec![
        list(json!({"continue": "more", "resourceVersion": "7"}), json!([1, 2])),
        list(json!({"resourceVersion": "7"}), json!([3])),
        lines(&[json!({"type": "ERROR", "object": gone})]),
        list(json!({"resourceVersion": "9"}), Value::Null),
    ]);
    let mut told = Vec::new();
    client.list_watch::<u32>("/l", &[("fieldSelector", "a=b")], &Cancel::new(), &mut |event| {
        if let ListEvent::Listed(items) = event {
            told.push(items);
        }
        if told.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(told, [vec![1, 2, 3], vec![]]);
    let asked = served.join().expect("no panic");
    assert_eq!(asked[0], "GET /l?fieldSelector=a%3Db&limit=500&resourceVersion=0");
    assert_eq!(asked[1], "GET /l?fieldSelector=a%3Db&limit=500&continue=more");
    let watch = "GET /l?fieldSelector=a%3Db&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=";
    assert!(asked[2].starts_with(watch) && asked[2].ends_with("&watch=true"), "{}", asked[2]);
    assert_eq!(asked[3], "GET /l?fieldSelector=a%3Db&limit=500");
}

#[test]
fn the_end_of_the_agent_ends_a_call_that_waits() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let value = json!({
        "current-context": "c", "users": [{"name": "u"}],
        "clusters": [{"name": "k", "cluster": {"server": format!("http://{}", listener.local_addr().expect("bound"))}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    });
    let access = kubeconfig::read(value, Path::new("k"), None).expect("good");
    let client = ApiClient::new(access, "t", RateLimit { per_second: 0.0, burst: 0 });
    let theirs = client.separate();
    let waiting = std::thread::spawn(move || theirs.get::<Value>("/never").expect_err("given up").to_string());
    let (mut socket, _) = listener.accept().expect("a client");
    socket.read_exact(&mut [0]).expect("it asks");
    client.shut_down();
    assert_eq!(waiting.join().expect("no panic"), "GET /never: given up, the agent needs the answer no more");
    assert!(matches!(client.get::<Value>("/later"), Err(ApiError::Cancelled { .. })));
}

//! Tests of the thread `src-http` against a small server on a local socket, often a hostile one.

use super::*;
use crossbeam_channel::{Receiver, Sender};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::time::Instant;

/// Far beyond what anything here takes; only a failing test waits so long.
const LONG: Duration = Duration::from_secs(60);

/// Gives the answers that the test hands over, one for each request; the last one again and again.
struct Server {
    url: String,
    answers: Sender<Vec<u8>>,
    /// The header of each request.
    requests: Receiver<String>,
}

fn server() -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://u:secret@{}/pods?token=secret", listener.local_addr().expect("an address"));
    let (answers, next) = crossbeam_channel::unbounded::<Vec<u8>>();
    let (tell, requests) = crossbeam_channel::unbounded();
    // Ends with the test process: nothing tells a blocked accept to stop.
    std::thread::spawn(move || {
        let mut answer = Vec::new();
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut header = String::new();
            let mut reader = BufReader::new(stream.try_clone().expect("a copy"));
            while reader.read_line(&mut header).is_ok_and(|n| n > 0) && !header.ends_with("\r\n\r\n") {}
            if let Ok(new) = next.try_recv() {
                answer = new;
            }
            let _client_may_be_gone = stream.write_all(&answer);
            drop(reader);
            drop(stream);
            let _test_may_be_over = tell.send(header);
        }
    });
    Server { url, answers, requests }
}

fn ok(body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

fn pod(name: &str, image: &str) -> String {
    format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}"}},"spec":{{"containers":[{{"name":"c","image":"{image}"}}]}}}}"#
    )
}

fn list(pods: &[String]) -> String {
    format!(r#"{{"kind":"PodList","apiVersion":"v1","items":[{}]}}"#, pods.join(","))
}

fn spawn(server: &Server) -> (HttpSourceHandle, Receiver<SourceUpdate>) {
    let (sender, updates) = crossbeam_channel::unbounded();
    let config = HttpSourceConfig {
        url: server.url.clone(),
        headers: BTreeMap::from([("X-Node".to_owned(), vec!["one".to_owned(), "two".to_owned()])]),
        node_name: "node".to_owned(),
        frequency: MIN_FREQUENCY,
    };
    let source = HttpSourceHandle::spawn(config, move |update| {
        let _the_test_may_be_over = sender.send(update);
    });
    (source.expect("a thread"), updates)
}

fn shown(update: &SourceUpdate) -> String {
    let images = update.pods.iter().map(|pod| {
        let image = pod.spec.as_ref().and_then(|spec| spec.containers[0].image.as_deref());
        format!("{}={}", pod.metadata.name.as_deref().unwrap_or_default(), image.unwrap_or_default())
    });
    images.chain(update.problems.iter().map(|_| "!".to_owned())).collect::<Vec<_>>().join(" ")
}

fn next(updates: &Receiver<SourceUpdate>) -> String {
    shown(&updates.recv_timeout(LONG).expect("an update"))
}

#[test]
fn pods_and_lists_are_followed_and_failures_change_nothing() {
    let server = server();
    let answer = |body: Vec<u8>| server.answers.send(body).expect("the server lives");
    answer(ok(pod("a", "1")));
    let (_source, updates) = spawn(&server);
    assert_eq!(next(&updates), "a-node=1");
    let header = server.requests.recv_timeout(LONG).expect("a request").to_lowercase();
    assert!(header.contains("x-node: one\r\n") && header.contains("x-node: two\r\n"), "{header}");
    answer(ok(list(&[pod("a", "2"), pod("b", "1")])));
    assert_eq!(next(&updates), "a-node=2 b-node=1");
    // Each of these is silence about the pods, and told as a problem.
    for (what, bad) in [
        ("status", b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n".to_vec()),
        ("empty", ok("")),
        ("garbage", ok(b"\xff\xfe\x00")),
        ("another kind", ok(r#"{"kind":"Service","apiVersion":"v1"}"#)),
        ("cut short", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".to_vec()),
        ("not HTTP", b"hello\r\n\r\n".to_vec()),
        ("circle", b"HTTP/1.1 302 Off\r\nLocation: /\r\nContent-Length: 0\r\n\r\n".to_vec()),
        ("too large", ok(vec![b'#'; URL_LIMITS.max_bytes + 1])),
    ] {
        answer(bad);
        let update = updates.recv_timeout(LONG).expect(what);
        assert_eq!(shown(&update), "a-node=2 b-node=1 !", "{what}");
        assert!(!format!("{:?}", update.problems).contains("secret"), "{what}: {:?}", update.problems);
        answer(ok(list(&[pod("a", "2"), pod("b", "1")])));
        assert_eq!(next(&updates), "a-node=2 b-node=1", "after {what}");
    }
    // A list without pods says that there are none.
    answer(ok(list(&[])));
    assert_eq!(next(&updates), "");
}

#[test]
fn nothing_is_said_before_the_first_good_answer_nor_about_an_unchanged_one() {
    let server = server();
    server.answers.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec()).expect("the server lives");
    let (_source, updates) = spawn(&server);
    server.requests.recv_timeout(LONG).expect("a request");
    server.requests.recv_timeout(LONG).expect("a second one");
    assert!(updates.is_empty(), "failures are silence");
    server.answers.send(ok(pod("a", "1"))).expect("the server lives");
    assert_eq!(next(&updates), "a-node=1");
    while server.requests.try_recv().is_ok() {}
    for _ in 0..3 {
        server.requests.recv_timeout(LONG).expect("a request");
    }
    assert!(updates.is_empty(), "the same answer is no news");
}

#[test]
fn a_broken_pod_of_a_list_stays_as_it_was_and_costs_no_other() {
    let server = server();
    let answer = |body: String| server.answers.send(ok(body)).expect("the server lives");
    answer(list(&[pod("a", "1"), pod("b", "1")]));
    let (_source, updates) = spawn(&server);
    let first = updates.recv_timeout(LONG).expect("an update");
    answer(list(&[pod("a", " "), pod("b", "2"), pod("c", " "), pod("b", "3")]));
    let second = updates.recv_timeout(LONG).expect("an update");
    assert_eq!(shown(&second), "a-node=1 b-node=2 ! ! !");
    assert!(Arc::ptr_eq(&first.pods[0], &second.pods[0]));
    let messages: Vec<_> = second.problems.iter().map(|problem| problem.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "pod default/a: spec.containers[0].image: \" \" must have no spaces around it (it stays as it was)",
            "pod default/c: spec.containers[0].image: \" \" must have no spaces around it",
            "pod default/b: not used, an earlier one has the same name or uid",
        ]
    );
}

#[test]
fn a_hanging_server_does_not_hold_up_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = Server {
        url: format!("http://{}/", listener.local_addr().expect("an address")),
        answers: crossbeam_channel::unbounded().0,
        requests: crossbeam_channel::never(),
    };
    let (source, _updates) = spawn(&server);
    let _hangs = listener.accept().expect("a connection");
    let started = Instant::now();
    drop(source);
    assert!(started.elapsed() < TIMEOUT, "{:?}", started.elapsed());
}

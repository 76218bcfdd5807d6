//! The client of the API server, and the source of pods on top of it, while the server lies, hangs, breaks and goes away.
//!
//! Whatever happens: errors in plain words, a bounded wait, a bounded number of bytes, and everything known again afterwards.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use ferrolet::agents::source::api::ApiSourceHandle;
use ferrolet::kube::client::{Call, Method};
use ferrolet::kube::streams::Patience;
use ferrolet::kube::{ApiClient, ApiError, ListEvent, kubeconfig};
use ferrolet::msg::SourceUpdate;
use ferrolet::util::cancel::Cancel;
use serde_json::{Value, json};

use crate::fakes::api::{ApiFault, FakeApi};
use crate::fakes::api_tls::{Authority, with_streams};
use crate::it_kube::{NO_LIMIT, client};

const LONG: Duration = Duration::from_secs(60);
const PODS: &str = "/api/v1/pods";
const WATCH: &str = "GET /api/v1/pods?watch";

fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{name}")
}

fn pod(name: &str, node: &str) -> Value {
    json!({"kind": "Pod", "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")}, "spec": {"nodeName": node}})
}

fn lab() -> (FakeApi, ApiClient) {
    let api = FakeApi::start();
    api.put(&pod_path("a"), pod("a", "here"));
    let client = client(api.kubeconfig("http", &json!({}), &json!({})), "/".as_ref());
    (api, client)
}

fn get(client: &ApiClient, within: Duration) -> Result<Value, ApiError> {
    let answer = client.call(&Call::new(Method::Get, pod_path("a")).within(within))?;
    serde_json::from_slice(&answer.body).map_err(|error| ApiError::Decode {
        method: "GET",
        path: String::new(),
        message: error.to_string(),
    })
}

#[test]
fn a_call_that_goes_wrong_says_how_and_the_next_one_works() {
    let (api, client) = lab();
    let short = Duration::from_millis(300);
    for (fault, times, within, expect) in [
        (ApiFault::Status(500, None), 1, LONG, "answers 500 InternalError: made to fail"),
        (ApiFault::Status(409, None), 1, LONG, "answers 409 Conflict"),
        (ApiFault::Status(429, None), 1, LONG, "answers 429 TooManyRequests"),
        (ApiFault::Status(429, Some(3600)), 1, LONG, "answers 429 TooManyRequests"),
        (ApiFault::Hang, 1, short, "no complete answer from the API server within 300ms"),
        (
            ApiFault::Slow(1000, Duration::from_millis(50)),
            1,
            short,
            "no complete answer from the API server within 300ms",
        ),
        // A GET is repeated once: the server may have closed an idle connection.
        (ApiFault::Close, 2, LONG, "/api/v1/namespaces/default/pods/a: "),
        (ApiFault::Cut(10), 1, LONG, "/api/v1/namespaces/default/pods/a: "),
        (ApiFault::NotJson, 1, LONG, "is not understood: "),
        (ApiFault::Huge(100 << 20), 1, LONG, "the answer has more than the 8388608 bytes that are read"),
    ] {
        api.fail("pods/a", fault.clone(), times);
        let started = Instant::now();
        let error = get(&client, within).expect_err("it goes wrong").to_string();
        assert!(error.contains(expect), "{fault:?}: {error}");
        assert!(started.elapsed() < Duration::from_secs(30), "{fault:?} took {:?}", started.elapsed());
        api.mend();
        assert_eq!(get(&client, LONG).expect("it works again")["metadata"]["name"], "a", "{fault:?}");
    }
}

#[test]
fn a_server_that_asks_for_patience_is_asked_again() {
    let (api, client) = lab();
    api.fail("pods/a", ApiFault::Status(429, Some(0)), 2);
    api.fail("pods/a", ApiFault::Status(503, Some(1)), 1);
    let started = Instant::now();
    get(&client, LONG).expect("in the end");
    assert!(started.elapsed() >= Duration::from_secs(1), "it waited as it was told");
    assert_eq!(api.asked().len(), 4);
}

#[test]
fn a_partition_ends_at_the_deadline_and_a_separate_client_is_not_held_up() {
    let (api, client) = lab();
    get(&client, LONG).expect("there");
    api.partition(true);
    let error = get(&client, Duration::from_millis(200)).expect_err("nothing gets through");
    assert!(matches!(error, ApiError::Timeout { .. }), "{error}");
    api.partition(false);
    get(&client, LONG).expect("there again");

    api.fail("pods/a", ApiFault::Hang, 1);
    let (hung, other) = (client.clone(), client.separate());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || get(&hung, LONG));
        api.wait_for("pods/a", 4);
        get(&other, Duration::from_secs(20)).expect("its own connection");
        client.shut_down();
        let error = waiting.join().expect("no panic").expect_err("given up");
        assert!(matches!(error, ApiError::Cancelled { .. }), "{error}");
    });
}

/// Follows the pods in a thread: what is told comes as text.
struct Follower {
    cancel: Cancel,
    told: Receiver<String>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Follower {
    fn start(client: ApiClient) -> Self {
        let (sender, told) = channel();
        let cancel = Cancel::new();
        let theirs = cancel.clone();
        let thread = std::thread::spawn(move || {
            let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            client.list_watch::<Value>(PODS, &[("fieldSelector", "spec.nodeName=here")], &theirs, &mut |event| {
                let text = match event {
                    ListEvent::Listed(items) => {
                        format!("list {}", items.iter().map(name).collect::<Vec<_>>().join(" "))
                    }
                    ListEvent::Set(object) => format!("set {}", name(&object)),
                    ListEvent::Gone(object) => format!("gone {}", name(&object)),
                    ListEvent::Failed(error) => format!("failed {error}"),
                    ListEvent::Settled => return ControlFlow::Continue(()),
                };
                let _test_is_over = sender.send(text);
                ControlFlow::Continue(())
            });
        });
        Self { cancel, told, thread: Some(thread) }
    }

    /// The next news contains this.
    #[track_caller]
    fn expect(&self, part: &str) {
        let text = self.told.recv_timeout(LONG).unwrap_or_else(|_| panic!("nothing was told, expected {part}"));
        assert!(text.contains(part), "told {text:?}, expected {part:?}");
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.cancel.cancel();
        let ended = self.thread.take().map(std::thread::JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))));
    }
}

/// A server that speaks HTTP/2 with a pod on it, and a client with short patience.
pub(crate) fn lab_with_streams() -> (FakeApi, ApiClient) {
    let authority = Authority::new("the cluster");
    let tls = authority.server(&authority.pair("api", &["127.0.0.1"]));
    let api = FakeApi::start_tls(with_streams(&tls));
    api.put(&pod_path("a"), pod("a", "here"));
    let ca = k8s_openapi::ByteString(authority.pem.into_bytes());
    let kubeconfig = api.kubeconfig("https", &json!({"certificate-authority-data": ca}), &json!({"token": "t"}));
    let access = kubeconfig::read(kubeconfig, "/kubeconfig".as_ref(), None).expect("a good kubeconfig");
    let patience = Patience { silence: Duration::from_millis(300), answer: Duration::from_millis(300) };
    (api, ApiClient::with_patience(access, "ferrolet/test (linux/amd64)", NO_LIMIT, patience))
}

#[test]
fn a_watch_by_streams_is_told_of_every_fault_and_goes_on() {
    let (api, client) = lab_with_streams();
    for (fault, expect) in [
        (ApiFault::Status(500, None), "500 InternalError: made to fail"),
        (ApiFault::Status(403, None), "403 Forbidden: made to fail"),
        (ApiFault::Close, "WATCH /api/v1/pods: the API server broke the watch off"),
    ] {
        let before = api.asked().iter().filter(|asked| asked.contains("?watch")).count();
        api.fail(WATCH, fault, 1);
        let follower = Follower::start(client.separate());
        follower.expect("list a");
        follower.expect(expect);
        api.wait_for(WATCH, before + 2);
        api.put(&pod_path("a"), pod("a", "here"));
        follower.expect("set a");
    }
    api.fail(WATCH, ApiFault::Status(410, None), 1);
    let follower = Follower::start(client.clone());
    follower.expect("list a");
    follower.expect("list a");
    let watched = api.asked().iter().filter(|asked| asked.contains("?watch")).count();
    api.put(&pod_path("b"), pod("b", "here"));
    follower.expect("set b");
    api.cut_watches();
    api.wait_for(WATCH, watched + 1);
    api.remove(&pod_path("a"));
    follower.expect("gone a");
    client.shut_down();
}

#[test]
fn a_server_that_freezes_is_noticed_by_its_watches() {
    // Silence and answer are 20 s and 10 s for agents: 30 s at most.
    let usual = Patience::default();
    assert!(usual.silence + usual.answer <= Duration::from_secs(30));
    let (api, client) = lab_with_streams();
    let follower = Follower::start(client);
    follower.expect("list a");
    api.wait_for(WATCH, 1);
    // While it answers the questions, nothing is told and nothing is asked anew.
    let quiet = follower.told.recv_timeout(Duration::from_millis(1500));
    assert_eq!(quiet, Err(RecvTimeoutError::Timeout));
    assert_eq!(api.asked().len(), 2);
    api.partition(true);
    let started = Instant::now();
    follower.expect("WATCH /api/v1/pods: the API server does not answer within 300ms");
    assert!(started.elapsed() < Duration::from_secs(20), "after {:?}", started.elapsed());
    api.put(&pod_path("b"), pod("b", "here"));
    api.partition(false);
    // What fails while it is frozen is told as well.
    let told = follower.told.iter().find(|text| !text.starts_with("failed"));
    assert_eq!(told.as_deref(), Some("set b"));
}

#[test]
fn where_the_server_speaks_no_http2_a_call_without_an_answer_ends_the_watches() {
    let (api, client) = lab();
    let follower = Follower::start(client.separate());
    follower.expect("list a");
    api.wait_for(WATCH, 1);
    api.put(&pod_path("a"), pod("a", "here"));
    follower.expect("set a");
    api.partition(true);
    get(&client, Duration::from_millis(200)).expect_err("nothing gets through");
    // It asks anew at once, and is heard when the server moves again.
    let connections = api.connections();
    api.partition(false);
    api.wait_for(WATCH, 2);
    assert!(connections > 0);
    api.put(&pod_path("b"), pod("b", "here"));
    let told = follower.told.iter().find(|text| text.starts_with("set b"));
    assert!(told.is_some());
}

#[test]
fn a_set_is_followed_through_cuts_and_forgotten_history() {
    let (api, client) = lab();
    let follower = Follower::start(client);
    follower.expect("list a");
    api.wait_for(WATCH, 1);
    api.put(&pod_path("b"), pod("b", "here"));
    follower.expect("set b");
    api.put(&pod_path("other"), pod("other", "elsewhere"));

    api.cut_watches();
    api.remove(&pod_path("a"));
    assert_eq!(api.object(&pod_path("a")), None);
    follower.expect("gone a");
    assert_eq!(api.asked().iter().filter(|asked| *asked == "GET /api/v1/pods").count(), 1, "no new list for a cut");

    api.partition(true);
    api.put(&pod_path("c"), pod("c", "here"));
    api.compact();
    api.partition(false);
    // The watch may have told c before the history was forgotten, or not.
    let text = follower.told.recv_timeout(LONG).expect("news");
    if text == "set c" {
        follower.expect("list b c");
    } else {
        assert_eq!(text, "list b c");
    }
}

#[test]
fn every_fault_of_a_list_or_a_watch_is_told_and_overcome() {
    let (api, client) = lab();
    let huge = ApiFault::Huge(100 << 20);
    for (fault, expect) in [
        (ApiFault::Status(500, None), "500 InternalError"),
        (ApiFault::Status(403, None), "403 Forbidden"),
        (ApiFault::NotJson, "not understood"),
        (ApiFault::OtherJson, "missing field `metadata`"),
        (ApiFault::Cut(30), "LIST /api/v1/pods: "),
        (huge.clone(), "more than the 8388608 bytes"),
    ] {
        let before = api.asked().iter().filter(|asked| asked.contains("?watch")).count();
        api.fail("GET /api/v1/pods", fault, 1);
        let follower = Follower::start(client.separate());
        follower.expect(expect);
        follower.expect("list a");
        // Else its watch could come late and take the next fault.
        api.wait_for(WATCH, before + 1);
    }
    for (fault, expect) in [
        (ApiFault::Status(500, None), "500 InternalError"),
        (ApiFault::NotJson, "ended the watch at once"),
        (huge, "more than the 8388608 bytes"),
        (ApiFault::Close, "in the middle of its answer"),
    ] {
        api.fail(WATCH, fault, 1);
        let follower = Follower::start(client.separate());
        follower.expect("list a");
        follower.expect(expect);
        let before = api.asked().iter().filter(|asked| asked.contains("?watch")).count();
        api.wait_for(WATCH, before + 1);
        api.put(&pod_path("a"), pod("a", "here"));
        follower.expect("set a");
    }
}

#[test]
fn a_version_that_is_gone_at_the_first_watch_is_listed_anew() {
    let (api, client) = lab();
    api.fail(WATCH, ApiFault::Status(410, None), 1);
    let follower = Follower::start(client);
    follower.expect("list a");
    follower.expect("list a");
    let requests = api.requests();
    let versions: Vec<_> =
        requests.iter().map(|request| request.query.get("resourceVersion").map(String::as_str)).collect();
    assert_eq!(versions[..3], [Some("0"), Some("1"), None]);
}

/// Follows the source: each update as names and problems.
fn source(client: ApiClient) -> (ApiSourceHandle, Receiver<String>) {
    let (sender, told) = channel();
    let source = ApiSourceHandle::spawn(client, "here", move |update: SourceUpdate| {
        let names = update.pods.iter().map(|pod| pod.metadata.name.clone().unwrap_or_default());
        let problems = update.problems.iter().map(|problem| format!("!{}", problem.message));
        let _test_is_over = sender.send(names.chain(problems).collect::<Vec<_>>().join(" "));
    });
    (source.expect("a thread"), told)
}

#[test]
fn the_source_tells_nothing_until_the_server_is_there_and_keeps_its_pods_when_it_goes() {
    let (api, client) = lab();
    api.fail("GET /api/v1/pods", ApiFault::Status(503, None), 2);
    let (source, told) = source(client);
    assert_eq!(told.recv_timeout(LONG).expect("a set"), "a");
    api.put(&pod_path("b"), pod("b", "here"));
    assert_eq!(told.recv_timeout(LONG).expect("a set"), "a b");

    api.fail(WATCH, ApiFault::Status(500, None), 1);
    api.cut_watches();
    let text = told.recv_timeout(LONG).expect("a problem");
    assert!(
        text.starts_with("a b !") && text.contains(" /api/v1/pods: ") && text.ends_with("(its pods stay as they were)"),
        "{text}"
    );
    api.remove(&pod_path("a"));
    assert_eq!(told.recv_timeout(LONG).expect("a set"), "b");
    let started = Instant::now();
    drop(source);
    assert!(started.elapsed() < Duration::from_secs(20), "its end breaks the watch");
}

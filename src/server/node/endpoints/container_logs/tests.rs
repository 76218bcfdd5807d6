//! What requests for logs get, from a view made by hand and files in a temporary folder.

use super::super::super::http::reply::{InMemory, ReplyBody};
use super::super::super::http::request::with_request;
use super::*;
use crate::api::PodName;
use crate::api::runtime::{Exit, RuntimePod};
use crate::api::v1::{Pod, PodStatus};
use crate::msg::PodView;
use serde_json::{Value, json};
use std::fs;

/// A node with the pod `ns/web`, whose container `c` is like this.
fn parts(log: &str, state: ContainerState, statuses: Value) -> NodeParts {
    let container = RuntimeContainer { log_path: log.to_owned(), ..RuntimeContainer::bare("id1", "s", "c", 0, state) };
    let runtime = RuntimePod {
        uid: Some("u1".into()),
        name: "web".to_owned(),
        namespace: "ns".to_owned(),
        sandboxes: Vec::new(),
        containers: vec![container],
    };
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "ns"},
        "spec": {"containers": [{"name": "c"}, {"name": "late"}]}}))
    .expect("a pod");
    let status: PodStatus = serde_json::from_value(json!({"containerStatuses": statuses})).expect("a status");
    let name = PodName { namespace: "ns".to_owned(), name: "web".to_owned() };
    let view = PodView {
        pod: Some(Arc::new(pod)),
        status: Arc::new(status),
        runtime: Some(Arc::new(runtime)),
        ..PodView::named("u1".into(), name)
    };
    let parts = NodeParts::for_tests();
    parts.view.set(Arc::new(NodeView { pods: [(view.uid.clone(), Arc::new(view))].into(), ..NodeView::default() }));
    parts
}

fn running() -> ContainerState {
    ContainerState::Running { started_at: 0 }
}

fn statuses() -> Value {
    let one = |name: &str, state: Value| {
        json!({"name": name, "state": state, "containerID": "containerd://id1", "image": "", "imageID": "",
            "ready": false, "restartCount": 0})
    };
    json!([one("c", json!({"running": {}})), one("late", json!({"waiting": {"reason": "ContainerCreating"}}))])
}

fn ask(parts: &NodeParts, target: &str) -> Reply {
    with_request(&format!("GET {target}"), "", |request| {
        let path = target.split('?').next().unwrap_or_default();
        let names = ["namespace", "pod", "container"];
        request.params.extend(names.into_iter().zip(path.split('/').skip(2).map(str::to_owned)));
        container(parts, request)
    })
}

#[test]
fn a_log_is_printed_or_refused_in_the_kubelets_words() {
    let dir = tempfile::tempdir().expect("a folder");
    let log = dir.path().join("0.log");
    fs::write(&log, "2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stderr F two\n").expect("a log");
    let there = parts(&log.display().to_string(), running(), statuses());
    let gone = parts(&dir.path().join("9.log").display().to_string(), running(), statuses());
    let mut split = parts(&log.display().to_string(), running(), statuses());
    split.streams.split_streams = true;
    for (parts, target, status, expect) in [
        (&there, "/containerLogs/ns/web/c", 200, "one\ntwo\n"),
        (&there, "/containerLogs/ns/web/c?tailLines=1&timestamps=true", 200, "2026-01-01T00:00:02.000000000Z two\n"),
        (&there, "/containerLogs/ns/web/c?limitBytes=2", 200, "on"),
        (&split, "/containerLogs/ns/web/c?stream=Stderr", 200, "two\n"),
        (
            &there,
            "/containerLogs/ns/web/c?stream=Stderr",
            400,
            "unable to return the given log stream: \"Stderr\". Please enable PodLogsQuerySplitStreams feature gate in kubelet",
        ),
        (&there, "/containerLogs/ns/web/c?tailLines=x", 400, "{\"message\": \"Unable to decode query.\"}"),
        (&there, "/containerLogs/ns/web/c?tailLines=-1", 422, "{\"message\": \"Invalid request.\"}"),
        (&there, "/containerLogs/ns/no/c", 404, "pod \"no\" does not exist"),
        (&there, "/containerLogs/ns/web/x", 404, "container \"x\" not found in pod \"web\""),
        (
            &there,
            "/containerLogs/ns/web/late",
            400,
            "container \"late\" in pod \"web\" is waiting to start: ContainerCreating",
        ),
        (
            &there,
            "/containerLogs/ns/web/c?previous=true",
            400,
            "previous terminated container \"c\" in pod \"web\" not found",
        ),
    ] {
        let reply = ask(parts, target);
        let got = (reply.status(), String::from_utf8(reply.into_bytes().expect("a body")).expect("text"));
        assert_eq!(got, (status, expect.to_owned()), "{target}");
    }
    let reply = ask(&gone, "/containerLogs/ns/web/c");
    let text = String::from_utf8(reply.into_bytes().expect("a body")).expect("text");
    assert!(text.starts_with("failed to try resolving symlinks in path"), "{text}");
}

/// Follows until the container ends or the reader goes.
fn follow(parts: &NodeParts, out: &mut dyn StreamOut) {
    match ask(parts, "/containerLogs/ns/web/c?follow=true").into_body() {
        ReplyBody::Stream(write) => write(out).expect("no error"),
        _ => panic!("no stream"),
    }
}

/// Tells when the first line was printed.
struct Telling {
    printed: InMemory,
    first: crossbeam_channel::Sender<()>,
}

impl Write for Telling {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _told_already = self.first.try_send(());
        self.printed.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl StreamOut for Telling {
    fn is_gone(&mut self) -> bool {
        false
    }

    fn client(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}

#[test]
fn a_follower_goes_along_until_the_container_has_ended() {
    let dir = tempfile::tempdir().expect("a folder");
    let log = dir.path().join("0.log");
    let line = |text: &str| format!("2026-01-01T00:00:01Z stdout F {text}\n");
    fs::write(&log, line("one")).expect("a log");
    let node = parts(&log.display().to_string(), running(), statuses());
    let (first, begun) = crossbeam_channel::bounded(1);
    let mut out = Telling { printed: InMemory::default(), first };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            begun.recv().expect("the first line");
            // In whatever order with the follower's looks, it sees all of it.
            let append = |text: &str| {
                let mut log = fs::OpenOptions::new().create(true).append(true).open(&log).expect("the log");
                log.write_all(line(text).as_bytes()).expect("more");
            };
            append("two");
            fs::rename(&log, dir.path().join("0.log.1")).expect("rotated");
            append("three");
            append("four");
            let exit = Exit { code: 0, reason: String::new(), message: String::new(), started_at: 0, finished_at: 0 };
            let ended = parts(&log.display().to_string(), ContainerState::Exited(exit), statuses());
            node.view.set(ended.view.get());
        });
        follow(&node, &mut out);
    });
    assert_eq!(String::from_utf8(out.printed.bytes).expect("text"), "one\ntwo\nthree\nfour\n");
}

#[test]
fn a_follower_ends_when_its_reader_has_gone() {
    let dir = tempfile::tempdir().expect("a folder");
    let log = dir.path().join("0.log");
    fs::write(&log, "2026-01-01T00:00:01Z stdout F one\n").expect("a log");
    let node = parts(&log.display().to_string(), running(), statuses());
    let mut out = InMemory { gone: true, ..InMemory::default() };
    follow(&node, &mut out);
    assert_eq!(out.bytes, b"one\n");
}

//! The CRI client against a fake runtime that misbehaves: it hangs, dies, restarts, answers garbage,
//! speaks another language. Nothing of it may hold or confuse the caller.
//!
//! Each test has its own fake on a real socket. Errors are compared as people read them, with the
//! socket's path replaced by SOCKET.

use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use expect_test::{Expect, expect};
use ferrolet::api::runtime::ImageSpec;
use ferrolet::cri::{Client, CriError, CriFailure};
use ferrolet::util::cancel::Cancel;

use crate::fakes::cri::FakeCri;
use crate::fakes::cri_state::Events;
use crate::it_cri::{LONG, NEVER, SHORT, client, pod, says};

/// Runs a call against a prepared fake and expects it to fail in these words.
fn check<T: std::fmt::Debug>(
    prepare: impl FnOnce(&mut FakeCri),
    timeout: Duration,
    call: impl FnOnce(&Client) -> Result<T, CriError>,
    expect: Expect,
) -> CriError {
    let mut fake = FakeCri::start();
    prepare(&mut fake);
    let error = call(&client(&fake, timeout)).expect_err("it fails");
    expect.assert_eq(&says(&error, &fake));
    error
}

#[test]
fn a_runtime_that_never_answers_meets_the_deadline() {
    let error = check(
        |fake| fake.hang("Status"),
        SHORT,
        |client| client.status(false, &NEVER),
        expect!["Status at unix://SOCKET: no answer within 0.2 s"],
    );
    assert!(error.is_deadline());
}

#[test]
fn a_pull_has_its_own_deadline() {
    let image = ImageSpec { image: "busybox".into(), ..Default::default() };
    let error = check(
        |fake| fake.hang("PullImage"),
        LONG,
        |client| client.pull_image(&image, None, None, SHORT, &NEVER),
        expect!["PullImage busybox at unix://SOCKET: no answer within 0.2 s"],
    );
    assert!(error.is_deadline());
}

#[test]
fn a_slow_answer_within_the_deadline_is_an_answer() {
    let fake = FakeCri::start();
    fake.slow("Version", SHORT);
    let started = Instant::now();
    client(&fake, LONG).version(&NEVER).expect("a version");
    assert!(started.elapsed() >= SHORT);
}

#[test]
fn stopping_and_commands_may_take_their_time_on_top() {
    let fake = FakeCri::start();
    fake.add_pods(1, 1);
    let id = fake.container_id("pod-0", "c0").expect("there").into();
    fake.slow("StopContainer", SHORT * 2);
    fake.slow("ExecSync", SHORT * 2);
    let client = client(&fake, SHORT);
    client.exec_sync(&id, &["true".into()], LONG, &NEVER).expect("done");
    client.stop_container(&id, LONG, &NEVER).expect("stopped");
}

#[test]
fn a_cancelled_call_returns_at_once() {
    let fake = FakeCri::start();
    fake.hang("RunPodSandbox");
    let (client, cancel) = (client(&fake, LONG), Cancel::new());
    let caller = std::thread::spawn({
        let cancel = cancel.clone();
        move || client.run_pod_sandbox(&pod("web"), &cancel)
    });
    fake.wait_called("RunPodSandbox");
    let started = Instant::now();
    cancel.cancel();
    let error = caller.join().expect("no panic").expect_err("cancelled");
    assert!(started.elapsed() < LONG / 4);
    assert!(error.is_cancelled());
    expect!["RunPodSandbox default/web at unix://SOCKET: given up on request"].assert_eq(&says(&error, &fake));
}

#[test]
fn a_cancelled_token_starts_no_call() {
    let fake = FakeCri::start();
    let cancel = Cancel::new();
    cancel.cancel();
    assert!(client(&fake, LONG).run_pod_sandbox(&pod("web"), &cancel).expect_err("cancelled").is_cancelled());
    assert_eq!(fake.called(), [""; 0]);
}

#[test]
fn one_hung_call_holds_no_other() {
    let fake = FakeCri::start();
    fake.add_pods(3, 1);
    fake.hang("PullImage");
    let (client, cancel) = (client(&fake, LONG), Cancel::new());
    let pulls: Vec<_> = (0..4)
        .map(|_| {
            let (client, cancel) = (client.clone(), cancel.clone());
            let image = ImageSpec { image: "busybox".into(), ..Default::default() };
            std::thread::spawn(move || client.pull_image(&image, None, None, LONG, &cancel))
        })
        .collect();
    fake.wait_for("four pulls", |state| state.called.iter().filter(|call| call.starts_with("Pull")).count() == 4);
    assert_eq!(client.list_pods(&NEVER).expect("a list").len(), 3);
    cancel.cancel();
    for pull in pulls {
        assert!(pull.join().expect("no panic").expect_err("cancelled").is_cancelled());
    }
}

#[test]
fn a_missing_socket_says_so() {
    let error = check(
        FakeCri::stop,
        LONG,
        |client| client.version(&NEVER),
        expect![
            "Version at unix://SOCKET: the socket does not exist: start the container runtime or correct containerRuntimeEndpoint"
        ],
    );
    assert!(error.is_unavailable());
}

#[test]
fn a_socket_without_a_listener_says_so() {
    let error = check(
        |fake| {
            fake.stop();
            drop(UnixListener::bind(fake.socket()).expect("a socket"));
        },
        LONG,
        |client| client.version(&NEVER),
        expect![
            "Version at unix://SOCKET: nobody listens on the socket: the container runtime has ended or is still starting"
        ],
    );
    assert!(error.is_unavailable());
}

#[test]
fn an_endpoint_that_is_no_unix_socket_is_refused() {
    let error = Client::new("tcp://127.0.0.1:3735", None, LONG).expect_err("refused");
    expect![[
        r#"connect at tcp://127.0.0.1:3735: "tcp://127.0.0.1:3735" is no unix socket: write unix:///absolute/path"#
    ]]
    .assert_eq(&error.to_string());
}

#[test]
fn an_old_runtime_is_told_by_its_version() {
    let fake = FakeCri::start_v1alpha2();
    let error = client(&fake, LONG).version(&NEVER).expect_err("too old");
    assert_eq!(error.failure, CriFailure::OnlyOldApi);
    expect!["Version at unix://SOCKET: the runtime speaks only CRI v1alpha2, ferrolet needs CRI v1: use containerd 1.6, CRI-O 1.20 or anything newer"]
        .assert_eq(&says(&error, &fake));
}

#[test]
fn a_server_without_cri_is_told_from_an_old_one() {
    let fake = FakeCri::start_without_cri();
    let error = client(&fake, LONG).version(&NEVER).expect_err("no CRI");
    assert!(matches!(error.failure, CriFailure::NoCri(_)), "{error}");
    assert!(error.to_string().contains("disabled_plugins"), "{error}");
}

#[test]
fn somebody_who_speaks_no_grpc_at_all_is_an_error_in_time() {
    let mut fake = FakeCri::start();
    fake.stop();
    let listener = UnixListener::bind(fake.socket()).expect("a socket");
    let server = std::thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _) = listener.accept().expect("a caller");
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let error = client(&fake, LONG / 4).version(&NEVER).expect_err("no gRPC");
    assert!(error.is_unavailable() || error.is_deadline(), "{error}");
    server.join().expect("no panic");
}

#[test]
fn answers_that_are_no_messages_are_named_garbage() {
    check(
        |fake| fake.garbage("ListContainers", 1),
        LONG,
        |client| client.list_pods(&NEVER),
        expect!["ListContainers at unix://SOCKET: the answer is not valid CRI v1: Incorrect varint"],
    );
}

#[test]
fn an_ok_without_a_message_is_named_garbage() {
    check(
        |fake| fake.empty("Status", 1),
        LONG,
        |client| client.status(false, &NEVER),
        expect!["Status at unix://SOCKET: the answer is not valid CRI v1: it holds no message"],
    );
}

#[test]
fn the_runtime_s_own_words_arrive() {
    let error = check(
        |fake| fake.inject("RunPodSandbox", 2, "no cni config", 1),
        LONG,
        |client| client.run_pod_sandbox(&pod("web"), &NEVER),
        expect!["RunPodSandbox default/web at unix://SOCKET: Unknown: no cni config"],
    );
    assert_eq!(error.rpc_text(), "rpc error: code = Unknown desc = no cni config");
}

#[test]
fn a_restarted_runtime_is_found_again_by_the_same_client() {
    let mut fake = FakeCri::start();
    fake.add_pods(1, 1);
    let client = client(&fake, LONG);
    let before = client.list_pods(&NEVER).expect("a list");
    fake.stop();
    assert!(client.list_pods(&NEVER).expect_err("it is down").is_unavailable());
    fake.restart();
    let started = Instant::now();
    let after = loop {
        match client.list_pods(&NEVER) {
            Ok(pods) => break pods,
            Err(error) => assert!(error.is_unavailable() && started.elapsed() < LONG, "{error}"),
        }
    };
    assert!(started.elapsed() < LONG / 4, "{:?}", started.elapsed());
    assert_eq!(after, before);
}

#[test]
fn a_call_in_flight_ends_when_the_runtime_dies() {
    let mut fake = FakeCri::start();
    fake.hang("Status");
    let client = client(&fake, LONG);
    let caller = std::thread::spawn(move || client.status(false, &NEVER));
    fake.wait_called("Status");
    let started = Instant::now();
    fake.stop();
    let error = caller.join().expect("no panic").expect_err("it died");
    assert!(started.elapsed() < LONG / 4, "{error}");
}

#[test]
fn missing_events_are_told_by_the_first_read() {
    let error = check(
        |_| {},
        LONG,
        |client| client.subscribe().expect("a stream").next(LONG, &NEVER),
        expect!["GetContainerEvents at unix://SOCKET: Unimplemented: method GetContainerEvents not implemented"],
    );
    assert!(error.is_unimplemented());
}

/// Opens a stream, does something to the runtime, and expects the stream to end in these words.
fn check_stream(then: impl FnOnce(&mut FakeCri), expect: Expect) {
    let mut fake = FakeCri::start();
    fake.set_events(Some(Events::Sent));
    let client = client(&fake, LONG);
    let mut events = client.subscribe().expect("a stream");
    fake.wait_called("GetContainerEvents");
    client.run_pod_sandbox(&pod("web"), &NEVER).expect("a sandbox");
    assert!(events.next(LONG, &NEVER).expect("a stream").is_some());
    then(&mut fake);
    let error = loop {
        match events.next(LONG, &NEVER) {
            Ok(event) => assert!(event.is_some(), "it ends in time"),
            Err(error) => break error,
        }
    };
    expect.assert_eq(&says(&error, &fake));
}

#[test]
fn a_stream_that_the_runtime_closes_ends_in_an_error() {
    check_stream(
        |fake| fake.end_events(None),
        expect!["GetContainerEvents at unix://SOCKET: the runtime closed the stream"],
    );
}

#[test]
fn a_stream_that_breaks_ends_in_an_error() {
    check_stream(
        |fake| fake.end_events(Some((13, "event queue is full"))),
        expect!["GetContainerEvents at unix://SOCKET: Internal: event queue is full"],
    );
}

#[test]
fn a_stream_whose_runtime_dies_ends_in_an_error() {
    check_stream(
        FakeCri::stop,
        expect![
            "GetContainerEvents at unix://SOCKET: the socket does not exist: start the container runtime or correct containerRuntimeEndpoint"
        ],
    );
}

#[test]
fn waiting_for_events_can_be_cancelled() {
    let fake = FakeCri::start();
    fake.set_events(Some(Events::Sent));
    let cancel = Cancel::new();
    let mut events = client(&fake, LONG).subscribe().expect("a stream");
    let reader = std::thread::spawn({
        let cancel = cancel.clone();
        move || events.next(LONG, &cancel)
    });
    fake.wait_called("GetContainerEvents");
    cancel.cancel();
    assert!(reader.join().expect("no panic").expect_err("cancelled").is_cancelled());
}

#[test]
fn a_dropped_stream_leaves_no_subscriber() {
    let fake = FakeCri::start();
    fake.set_events(Some(Events::Sent));
    let client = client(&fake, LONG);
    let events = client.subscribe().expect("a stream");
    fake.wait_called("GetContainerEvents");
    assert_eq!(fake.subscribers(), 1);
    drop(events);
    let started = Instant::now();
    for number in 0.. {
        client.run_pod_sandbox(&pod(&format!("p{number}")), &NEVER).expect("a sandbox");
        if fake.subscribers() == 0 {
            break;
        }
        assert!(started.elapsed() < LONG);
    }
}

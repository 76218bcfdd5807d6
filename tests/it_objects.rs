//! API objects that pods mount, against a fake API server: many of them on a few connections, and what a lost
//! connection costs.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};
use ferrolet::agents::objects::{ObjectsHandle, Strategy};
use ferrolet::api::PodUid;
use ferrolet::msg::Refresh;
use ferrolet::volumes::ObjectSource;
use ferrolet::volumes::objects::{ObjectKey, ObjectKind, Purpose, TokenWanted};
use serde_json::json;

use crate::fakes::api::FakeApi;
use crate::it_kube_faults::lab_with_streams;

const LONG: Duration = Duration::from_secs(60);
const STREAMS: usize = 4;
/// Two more than three connections take.
const OBJECTS: usize = 3 * STREAMS + 2;

fn name(n: usize) -> String {
    format!("c{n:02}")
}

fn put(api: &FakeApi, n: usize, value: &str) {
    let path = format!("/api/v1/namespaces/default/configmaps/{}", name(n));
    api.put(&path, json!({"metadata": {"name": name(n), "namespace": "default"}, "data": {"v": value}}));
}

/// Mounts the objects for a pod.
fn mount(objects: &ObjectsHandle, pod: &PodUid, which: std::ops::Range<usize>) {
    for n in which {
        let key = ObjectKey::new(ObjectKind::ConfigMap, "default", &name(n));
        let data = objects.objects.object(pod, &key, Purpose::Mount, LONG).expect("there");
        assert_eq!(data.get("v"), Some(b"old".as_slice()));
    }
}

/// Waits until changes of so many objects were told.
fn changes(told: &Receiver<Refresh>, count: usize) -> BTreeSet<String> {
    let until = Instant::now() + LONG;
    let mut seen = BTreeSet::new();
    while seen.len() < count {
        let refresh = told.recv_deadline(until).unwrap_or_else(|_| panic!("only {seen:?} of {count}"));
        seen.insert(refresh.cause);
    }
    seen
}

#[test]
fn many_objects_have_their_watches_on_three_connections_and_the_rest_is_asked_for() {
    let (api, client) = lab_with_streams();
    api.set_most_streams(STREAMS);
    (0..OBJECTS).for_each(|n| put(&api, n, "old"));
    let (to_loop, told) = unbounded();
    let objects = ObjectsHandle::start(&client, Strategy::Watch, to_loop).expect("a thread");
    let [first, second] = ["first", "second"].map(PodUid::from);
    mount(&objects, &first, 0..STREAMS);
    api.wait_for("configmaps?watch", STREAMS);
    mount(&objects, &second, STREAMS..OBJECTS);
    // Before the server has said how many it takes, a connection may have asked for more.
    let watched = |api: &FakeApi| api.streams();
    crate::harness::wait::until("all streams to be in use", LONG, || {
        let streams = watched(&api);
        if streams == [STREAMS; 3] { Ok(()) } else { Err(format!("{streams:?}")) }
    });
    // Three with watches, and one for calls.
    assert_eq!(api.connections(), 4);
    (0..OBJECTS).for_each(|n| put(&api, n, "new"));
    let seen = changes(&told, 3 * STREAMS);
    assert_eq!(seen.len(), 3 * STREAMS, "{seen:?}");

    // A connection that breaks costs its own watches and no others.
    api.drop_connection_with_streams();
    crate::harness::wait::until("the watches to be there again", LONG, || {
        let streams = watched(&api);
        if streams == [STREAMS; 3] { Ok(()) } else { Err(format!("{streams:?}")) }
    });
    // Whom nobody needs any more has no connection.
    objects.objects.forget(&second);
    crate::harness::wait::until("one connection with watches", LONG, || {
        let streams = watched(&api);
        if streams.iter().sum::<usize>() == STREAMS && streams.len() < 3 { Ok(()) } else { Err(format!("{streams:?}")) }
    });
    drop(objects);
}

#[test]
fn a_token_is_renewed_before_its_end_and_the_server_says_when_that_is() {
    let (api, client) = lab_with_streams();
    api.set_token_life(2);
    let (to_loop, told) = unbounded();
    let objects = ObjectsHandle::start(&client, Strategy::Watch, to_loop).expect("a thread");
    let wanted = TokenWanted {
        pod: PodUid::from("p"),
        namespace: "default".to_owned(),
        pod_name: "p".to_owned(),
        account: "default".to_owned(),
        audience: String::new(),
        seconds: Some(3600),
    };
    let token = || objects.objects.token(&wanted, LONG).expect("a token");
    let started = Instant::now();
    let first = token();
    if started.elapsed() < Duration::from_secs(1) {
        assert_eq!(token(), first, "it is good still");
    }
    let mut last = first;
    for _ in 0..3 {
        let refresh = told.recv_timeout(LONG).expect("told in time");
        assert_eq!((refresh.pods, refresh.cause.as_str()), (vec![PodUid::from("p")], "a token has to be renewed"));
        let renewed = token();
        assert_ne!(renewed, last);
        last = renewed;
    }
    assert!(started.elapsed() >= Duration::from_secs(4), "no sooner than it has to be");
    // An end of the server is no end of a token that is good.
    api.set_token_life(600);
    told.recv_timeout(LONG).expect("told in time");
    let long = token();
    api.partition(true);
    assert_eq!(token(), long);
    client.shut_down();
}

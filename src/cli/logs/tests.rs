//! Tests of which log is printed, and of following it through restarts with an agent that answers.

use super::super::samples;
use super::*;
use crate::server::wire::FailureKind;
use serde_json::json;

fn details(stage: &str, policy: &str, containers: &[(u32, &str, &str)]) -> PodDetails {
    let containers: Vec<_> = containers
        .iter()
        .map(|(attempt, activity, path)| {
            json!({"name": "web", "id": "x", "attempt": attempt, "activity": activity, "logPath": path})
        })
        .collect();
    serde_json::from_value(json!({
        "uid": "u", "namespace": "default", "name": "web-edge", "stage": stage, "waitsFor": "waits for back-off",
        "containers": containers,
        "pod": {"spec": {"restartPolicy": policy, "containers": [{"name": "web"}]}},
        "status": {"phase": "Running", "containerStatuses": [{"name": "web", "ready": false, "restartCount": 0, "image": "",
            "imageID": "", "state": {"terminated": {"exitCode": 3}}}]},
    }))
    .expect("details")
}

#[test]
fn the_newest_log_or_the_one_before() {
    let check = |containers: &[(u32, &str, &str)], previous, expect: Result<&str, &str>| {
        let details = details("Active", "Always", containers);
        let got = instance(&details, "web", previous).map(|one| one.log_path.as_str()).map_err(|r| r.message);
        assert_eq!(got, expect.map_err(ToOwned::to_owned));
    };
    let both = [(0, "exited", "/0"), (1, "running", "/1")];
    check(&both, false, Ok("/1"));
    check(&both, true, Ok("/0"));
    check(&[(0, "exited", "/0"), (1, "created", "")], false, Ok("/0"));
    check(&[(0, "exited", "/0"), (1, "exited", "/1")], true, Ok("/0"));
    check(&[], false, Err("container web of pod web-edge has no log yet; pod: waits for back-off"));
    check(
        &both[1..],
        true,
        Err("container web of pod web-edge has no earlier container that is still there; pod: waits for back-off"),
    );
}

#[test]
fn before_it_is_started_again_the_last_log_is_the_previous_one_too() {
    let mut details = details("Active", "Always", &[(0, "exited", "/0"), (1, "exited", "/1")]);
    let mut status = (*details.status).clone();
    let waiting = json!([{"name": "web", "ready": false, "restartCount": 1, "image": "", "imageID": "",
        "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]);
    status.container_statuses = serde_json::from_value(waiting).expect("statuses");
    details.status = std::sync::Arc::new(status);
    assert_eq!(instance(&details, "web", true).map(|one| one.log_path.as_str()), Ok("/1"));
}

#[test]
fn what_comes_after_the_end_of_a_log() {
    let check = |stage, policy, containers: &[(u32, &str, &str)], expect: Next| {
        assert_eq!(next_of(&details(stage, policy, containers), "web", 0), expect, "{stage} {policy} {containers:?}");
    };
    let go = |path: &str| Next::Go(1, PathBuf::from(path));
    check("Active", "Never", &[(0, "running", "/0")], Next::Stay);
    check("Active", "Never", &[(0, "exited", "/0")], Next::End);
    check("Active", "Always", &[(0, "exited", "/0")], Next::Stay);
    check("Active", "OnFailure", &[(0, "exited", "/0")], Next::Stay);
    check("Terminating", "Always", &[(0, "running", "/0")], Next::Stay);
    check("Terminating", "Always", &[(0, "exited", "/0")], Next::End);
    check("Active", "Always", &[(0, "exited", "/0"), (1, "running", "/1")], go("/1"));
    check("Active", "Always", &[(0, "exited", "/0"), (1, "created", "")], Next::Stay);
    check("Active", "Always", &[(2, "running", "/2"), (1, "exited", "/1")], go("/1"));
    check("Ended", "Always", &[], Next::End);
}

#[test]
fn command_lines() {
    fn wish(line: &str) -> Result<Wish, String> {
        let args = line.split(' ').map(OsString::from).collect();
        parse(args, samples::NOW).map(|wish| wish.expect("no help")).map_err(|refusal| refusal.message)
    }
    let got = wish("-f --tail 5 --since 1m --timestamps web -c app").expect("fine");
    assert_eq!((got.pod.as_deref(), got.container.as_str(), got.previous), (Some("web"), "app", false));
    let options = LogOptions {
        tail: Some(5),
        since: Some(samples::NOW - 60_000_000_000),
        timestamps: true,
        follow: true,
        ..LogOptions::default()
    };
    assert_eq!(got.options, options);
    assert_eq!(wish("web app").expect("fine").container, "app");
    assert_eq!(wish("web --tail -1").expect("fine").options.tail, None);
    assert_eq!(wish("web --since-time 1970-01-01T00:00:02Z").expect("fine").options.since, Some(2_000_000_000));
    let check = |line: &str, expect: &str| assert_eq!(wish(line).expect_err("refused"), expect);
    check("web --since soon", "--since takes a span such as 30s or 1h30m, not soon");
    check("web --since-time soon", "--since-time takes a time such as 2026-11-30T09:00:00Z, not soon");
    check("-f -p web", "-p and -f exclude each other: what has ended prints no more");
    check("web app more", "one pod at a time, web was named already");
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let broken = |kind| HostError::io("print log", "/x", std::io::Error::from(kind));
    assert!(is_closed_pipe(&broken(std::io::ErrorKind::BrokenPipe)));
    assert!(!is_closed_pipe(&broken(std::io::ErrorKind::NotFound)));
}

#[test]
fn following_goes_through_a_restart_to_the_end() {
    use crate::msg::{NodeView, PodView};
    use crate::server::{LocalServer, LocalTools};
    use crate::util::snapshot::Snapshot;
    use std::sync::Arc;

    let folder = tempfile::tempdir().expect("a folder");
    let line = |n: u32, text: &str| {
        let path = folder.path().join(format!("{n}.log"));
        std::fs::write(&path, format!("2026-11-30T09:00:0{n}Z stdout F {text}\n")).expect("written");
        path
    };
    let (first, second) = (line(0, "one"), line(1, "two"));
    let mut runtime = crate::api::runtime::RuntimePod::default();
    for (attempt, path) in [(0, &first), (1, &second)] {
        let exit = crate::api::runtime::Exit::default();
        let state = crate::api::runtime::ContainerState::Exited(exit);
        let mut container = crate::server::resolve::samples::container("web", attempt, state);
        container.log_path = path.display().to_string();
        runtime.containers.push(container);
    }
    let view = PodView {
        runtime: Some(Arc::new(runtime)),
        ..crate::server::resolve::samples::pod("u", "default", "web", "Ended")
    };
    let view = NodeView { pods: [(view.uid.clone(), Arc::new(view))].into_iter().collect(), ..NodeView::default() };
    let socket = folder.path().join("f.sock");
    let tools = LocalTools {
        view: Arc::new(Snapshot::new(view)),
        client: crate::cri::Client::new("unix:///nonexistent", None, Duration::from_secs(1)).expect("an endpoint"),
        checks: Arc::new([]),
        stats: Arc::new(crate::server::stats::Stats::new(crate::server::stats::StatsSources::for_tests())),
    };
    let _server = LocalServer::start(&socket, tools).expect("started");
    let agent = Agent { socket: Some(socket) };
    let (_, details) = agent.pod("web").expect("found");
    let start = details.containers.iter().find(|one| one.attempt == 0).expect("the first");
    let follower = Follower { agent: &agent, uid: "u".to_owned(), name: "web".to_owned() };
    let mut out = Vec::new();
    let options = LogOptions { follow: true, tail: Some(7), ..LogOptions::default() };
    follower.copy(start, options, &mut out).expect("copied");
    assert_eq!(String::from_utf8_lossy(&out), "one\ntwo\n");
    let refusal = agent.pod("nothing").expect_err("not there");
    assert_eq!((refusal.code, refusal.kind), (1, Some(FailureKind::NotFound)));
    let nobody = Agent { socket: Some(folder.path().join("none.sock")) };
    let refusal = nobody.pod("web").expect_err("nobody");
    assert_eq!((refusal.code, refusal.kind), (3, None));
    assert!(refusal.message.starts_with("the agent is not running: there is no /"), "{}", refusal.message);
}

//! The CRI client against a fake runtime on a real socket: what it sends and what it understands.
//!
//! Each test has its own fake. Here too are the words that the tests of faults share (it_cri_faults).

use std::time::Duration;

use expect_test::expect;
use ferrolet::api::runtime::{
    ContainerSpec, ContainerState, ImageSpec, Mount, NamespaceMode, Namespaces, RegistryAuth, Resources,
    SandboxSecurity, SandboxSpec, SandboxState,
};
use ferrolet::api::runtime_info::{CgroupDriver, ContainerEventKind, ContainerFilter, Life, StreamOptions};
use ferrolet::cri::{Client, CriError};
use ferrolet::util::cancel::Cancel;

use crate::fakes::cri::FakeCri;
use crate::fakes::cri_state::{Behaviour, Events};

/// Longer than any test may take: whoever returns by this deadline has failed.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// A deadline that is meant to strike.
pub(crate) const SHORT: Duration = Duration::from_millis(200);
pub(crate) const NEVER: Cancel = Cancel::never();

pub(crate) fn client(fake: &FakeCri, timeout: Duration) -> Client {
    Client::new(&fake.endpoint(), None, timeout).expect("a good endpoint")
}

pub(crate) fn says(error: &CriError, fake: &FakeCri) -> String {
    error.to_string().replace(&*fake.socket().to_string_lossy(), "SOCKET")
}

pub(crate) fn pod(name: &str) -> SandboxSpec {
    let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    SandboxSpec {
        uid: format!("uid-{name}"),
        name: name.to_owned(),
        namespace: "default".to_owned(),
        hostname: name.to_owned(),
        log_directory: format!("/logs/default_{name}"),
        labels: [
            label("io.kubernetes.pod.name", name),
            label("io.kubernetes.pod.namespace", "default"),
            label("io.kubernetes.pod.uid", &format!("uid-{name}")),
        ]
        .into(),
        ..Default::default()
    }
}

pub(crate) fn container(pod: &SandboxSpec, name: &str) -> ContainerSpec {
    ContainerSpec {
        name: name.to_owned(),
        image: ImageSpec { image: "busybox".into(), user_specified: "busybox".into(), ..Default::default() },
        labels: pod.labels.clone(),
        log_path: format!("{name}/0.log"),
        ..Default::default()
    }
}

#[test]
fn a_pod_lives_and_dies() {
    let fake = FakeCri::start();
    fake.add_image("busybox");
    let client = client(&fake, LONG);
    let spec = pod("web");
    let sandbox = client.run_pod_sandbox(&spec, &NEVER).expect("a sandbox");
    let status = client.sandbox_status(&sandbox, &NEVER).expect("its status");
    assert_eq!((status.sandbox.state, status.sandbox.ips.len()), (SandboxState::Ready, 1));

    let app = client.create_container(&sandbox, &container(&spec, "app"), &spec, &NEVER).expect("a container");
    assert_eq!(client.container_status(&app, &NEVER).expect("its status").state, ContainerState::Created);
    client.start_container(&app, &NEVER).expect("started");
    fake.on_exec(|name, command| (format!("{name}: {}", command.join(" ")).into_bytes(), b"err".to_vec(), 3));
    let output = client.exec_sync(&app, &["echo".into(), "hi".into()], LONG, &NEVER).expect("output");
    assert_eq!((output.stdout, output.stderr, output.exit_code), (b"app: echo hi".to_vec(), b"err".to_vec(), 3));

    let seen = client.list_pod("uid-web", &NEVER).expect("a list").expect("the pod");
    assert_eq!((seen.name.as_str(), seen.sandboxes.len()), ("web", 1));
    assert_eq!((&seen.containers[0].id, &seen.containers[0].sandbox_id), (&app, &sandbox));
    assert_eq!(client.list_pod("uid-other", &NEVER).expect("a list"), None);

    client.stop_container(&app, Duration::from_millis(1500), &NEVER).expect("stopped");
    let ended = client.container_status(&app, &NEVER).expect("its status");
    let ContainerState::Exited(exit) = ended.state else { panic!("it ended, not {:?}", ended.state) };
    assert_eq!((exit.code, exit.reason.as_str()), (143, "Error"));
    assert!(exit.started_at > 0 && exit.finished_at > exit.started_at);
    assert_eq!(ended.log_path, "/logs/default_web/app/0.log");

    client.remove_container(&app, &NEVER).expect("removed");
    client.remove_container(&app, &NEVER).expect("gone is fine");
    client.stop_container(&app, LONG, &NEVER).expect("gone is fine");
    assert!(client.container_status(&app, &NEVER).expect_err("it is gone").is_not_found());
    client.stop_pod_sandbox(&sandbox, &NEVER).expect("stopped");
    client.remove_pod_sandbox(&sandbox, &NEVER).expect("removed");
    client.stop_pod_sandbox(&sandbox, &NEVER).expect("gone is fine");
    assert_eq!(client.list_pods(&NEVER).expect("a list"), []);
    expect![[r#"
        RunPodSandbox default/web attempt 0
        CreateContainer default/web app attempt 0
        StartContainer default/web app
        ExecSync default/web app echo hi
        StopContainer default/web app 2 s
        RemoveContainer default/web app
    "#]]
    .assert_eq(&(fake.changes()[..6].join("\n") + "\n"));
}

#[test]
fn a_container_leaves_its_log_and_its_last_words() {
    let fake = FakeCri::start();
    fake.add_image("busybox");
    let behaviour = Behaviour {
        exit: Some((Duration::from_millis(1), 1)),
        termination_message: "out of fuel".into(),
        ..Default::default()
    };
    fake.behave("app", behaviour);
    let folder = tempfile::tempdir().expect("a folder");
    let spec = SandboxSpec { log_directory: folder.path().display().to_string(), ..pod("web") };
    let words = folder.path().join("words");
    let mut app = container(&spec, "app");
    app.annotations.insert("io.kubernetes.container.terminationMessagePath".into(), "/dev/words".into());
    app.mounts.push(Mount {
        container_path: "/dev/words".into(),
        host_path: words.display().to_string(),
        ..Default::default()
    });
    let client = client(&fake, LONG);
    let sandbox = client.run_pod_sandbox(&spec, &NEVER).expect("a sandbox");
    let id = client.create_container(&sandbox, &app, &spec, &NEVER).expect("a container");
    client.start_container(&id, &NEVER).expect("started");
    fake.wait_for("its end", |state| state.containers.values().all(|it| it.exit_code == 1));
    let status = client.container_status(&id, &NEVER).expect("its status");
    let log = std::fs::read_to_string(status.log_path).expect("a log");
    assert_eq!(log.lines().map(|line| &line[31..]).collect::<Vec<_>>(), ["stdout F app started", "stdout F app ended"]);
    assert_eq!(std::fs::read_to_string(words).expect("its words"), "out of fuel");
    assert_eq!(status.mounts, app.mounts);
}

#[test]
fn a_stopping_sandbox_takes_its_containers_along() {
    let fake = FakeCri::start();
    fake.add_image("busybox");
    fake.behave("deaf", Behaviour { ignores_term: true, ..Default::default() });
    let client = client(&fake, LONG);
    let spec = pod("web");
    let sandbox = client.run_pod_sandbox(&spec, &NEVER).expect("a sandbox");
    for name in ["app", "deaf"] {
        let id = client.create_container(&sandbox, &container(&spec, name), &spec, &NEVER).expect("a container");
        client.start_container(&id, &NEVER).expect("started");
    }
    let deaf = fake.container_id("web", "deaf").expect("there").into();
    client.stop_container(&deaf, Duration::from_secs(1), &NEVER).expect("killed");
    client.stop_pod_sandbox(&sandbox, &NEVER).expect("stopped");
    assert_eq!(fake.containers(), ["default/web app#0 Exited 137", "default/web deaf#0 Exited 137"]);
    let again = client.run_pod_sandbox(&spec, &NEVER).expect_err("the name is taken");
    assert!(again.to_string().contains("is reserved for"), "{again}");
    let next = SandboxSpec { attempt: 1, ..spec };
    let second = client.run_pod_sandbox(&next, &NEVER).expect("another attempt");
    let seen = client.list_pod("uid-web", &NEVER).expect("a list").expect("the pod");
    assert_eq!(seen.sandboxes.iter().map(|it| it.id.clone()).collect::<Vec<_>>(), [second, sandbox]);
}

#[test]
fn the_runtime_tells_about_itself() {
    let fake = FakeCri::start();
    let client = client(&fake, LONG);
    let version = client.version(&NEVER).expect("a version");
    assert_eq!((version.name.as_str(), version.api_version.as_str()), ("fake", "v1"));
    let status = client.status(true, &NEVER).expect("a status");
    assert!(status.runtime_ready() && status.network_ready() && status.supplemental_groups_policy);
    assert!(status.handlers[0].user_namespaces && status.info.contains_key("config"));
    fake.with(|state| state.network_ready = false);
    assert!(!client.status(false, &NEVER).expect("a status").network_ready());
    assert_eq!(client.runtime_config(&NEVER).expect("an answer"), Some(CgroupDriver::Cgroupfs));
    fake.inject("RuntimeConfig", 12, "unknown method RuntimeConfig", 1);
    assert_eq!(client.runtime_config(&NEVER).expect("an answer"), None);
    client.update_runtime_config("10.1.0.0/24", &NEVER).expect("told");
}

#[test]
fn images_come_and_go() {
    let fake = FakeCri::start();
    fake.add_pullable("busybox:1.36");
    let client = client(&fake, LONG);
    let image = ImageSpec { image: "busybox:1.36".into(), ..Default::default() };
    assert_eq!(client.image_status(&image, &NEVER).expect("an answer"), None);
    let auth = RegistryAuth { username: "joe".into(), password: "secret".into(), ..Default::default() };
    let reference = client.pull_image(&image, Some(&auth), Some(&pod("web")), LONG, &NEVER).expect("pulled");
    let found = client.image_status(&image, &NEVER).expect("an answer").expect("it is there");
    assert_eq!((&found.id, &*found.repo_tags), (&reference, &["docker.io/library/busybox:1.36".to_owned()][..]));
    assert_eq!(client.list_images(&NEVER).expect("a list").len(), 2);
    assert_eq!(client.image_fs_info(&NEVER).expect("figures").images[0].used_bytes, Some(2 << 20));
    client.remove_image(&image, &NEVER).expect("removed");
    assert_eq!(client.image_status(&image, &NEVER).expect("an answer"), None);
    assert_eq!(fake.changes(), ["PullImage busybox:1.36 as joe", "RemoveImage busybox:1.36"]);
    let missing = ImageSpec { image: "nope".into(), ..Default::default() };
    let error = client.pull_image(&missing, None, None, LONG, &NEVER).expect_err("not there");
    expect![[
        r#"rpc error: code = NotFound desc = failed to pull and unpack image "docker.io/library/nope:latest": not found"#
    ]]
    .assert_eq(&error.rpc_text());
}

#[test]
fn urls_stats_and_small_calls_answer() {
    let fake = FakeCri::start();
    fake.add_pods(2, 1);
    let client = client(&fake, LONG);
    let id = fake.container_id("pod-0", "c0").expect("there").into();
    let streams = StreamOptions { stdout: true, ..Default::default() };
    assert!(client.exec_url(&id, &["sh".into()], streams, &NEVER).expect("a url").ends_with("/exec"));
    assert!(client.attach_url(&id, streams, &NEVER).expect("a url").ends_with("/attach"));
    let pod = client.list_pod("00000000-0000-4000-8000-000000000000", &NEVER).expect("a list").expect("the pod");
    let sandbox = &pod.sandboxes[0].id;
    assert!(client.port_forward_url(sandbox, &[80], &NEVER).expect("a url").ends_with("/portforward"));
    assert_eq!(client.container_stats(&id, &NEVER).expect("stats").memory.expect("memory").working_set, Some(1 << 20));
    assert_eq!(client.list_container_stats(&ContainerFilter::default(), &NEVER).expect("stats").len(), 2);
    assert_eq!(client.pod_sandbox_stats(sandbox, &NEVER).expect("stats").containers.len(), 1);
    assert_eq!(client.list_pod_sandbox_stats(None, &NEVER).expect("stats").len(), 2);
    client.reopen_container_log(&id, &NEVER).expect("reopened");
    let limits = Resources { memory_limit: 7 << 20, ..Default::default() };
    client.update_container_resources(&id, &limits, &NEVER).expect("updated");
    let resources = client.container_status(&id, &NEVER).expect("its status").resources.expect("resources");
    assert_eq!(resources.memory_limit, 7 << 20);
    let missing = client.checkpoint_container(&id, "/x", LONG, &NEVER).expect_err("the fake has none");
    assert!(missing.is_unimplemented(), "{missing}");
}

#[test]
fn host_network_is_seen_by_an_inspection() {
    let fake = FakeCri::start();
    let client = client(&fake, LONG);
    let namespaces = Namespaces { network: NamespaceMode::Node, ..Default::default() };
    let security = SandboxSecurity { namespaces, ..Default::default() };
    let sandbox = client.run_pod_sandbox(&SandboxSpec { security, ..pod("host") }, &NEVER).expect("a sandbox");
    let status = client.sandbox_status(&sandbox, &NEVER).expect("its status").sandbox;
    assert!(status.host_network && status.ips.is_empty());
}

#[test]
fn ten_thousand_containers_are_listed() {
    let fake = FakeCri::start();
    fake.add_pods(5_000, 2);
    let pods = client(&fake, LONG).list_pods(&NEVER).expect("a list");
    assert_eq!(pods.len(), 5_000);
    assert!(pods.iter().all(|pod| pod.containers.len() == 2 && pod.sandboxes.len() == 1));
}

#[test]
fn a_glimpse_and_the_lists_agree() {
    let fake = FakeCri::start();
    fake.add_pods(20, 3);
    fake.exit_container(&fake.container_id("pod-7", "c1").expect("there"), 1);
    let client = client(&fake, LONG);
    let glimpses = client.glimpse(&NEVER).expect("a look");
    let pods = client.list_pods(&NEVER).expect("a list");
    assert_eq!((glimpses.len(), pods.len()), (20, 20));
    for (glimpse, pod) in glimpses.iter().zip(&pods) {
        assert_eq!(Some(&glimpse.uid), pod.uid.as_ref());
        assert_eq!(glimpse.sandboxes[0], (pod.sandboxes[0].id.clone(), SandboxState::Ready));
        let life = |state: &ContainerState| match state {
            ContainerState::Created => Life::Created,
            ContainerState::Running { .. } => Life::Running,
            ContainerState::Exited(_) => Life::Exited,
            ContainerState::Unknown => Life::Unknown,
        };
        let mut containers: Vec<_> = pod.containers.iter().map(|it| (it.id.clone(), life(&it.state))).collect();
        containers.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(glimpse.containers, containers);
    }
    fake.garbage("ListPodSandbox", 1);
    let error = client.glimpse(&NEVER).expect_err("garbage");
    expect!["ListPodSandbox at unix://SOCKET: the answer is not valid CRI v1: a number of more than ten bytes"]
        .assert_eq(&says(&error, &fake));
}

#[test]
fn what_has_no_pod_label_is_left_alone() {
    let fake = FakeCri::start();
    let client = client(&fake, LONG);
    client.run_pod_sandbox(&SandboxSpec { labels: [].into(), ..pod("foreign") }, &NEVER).expect("a sandbox");
    assert_eq!(client.list_pods(&NEVER).expect("a list"), []);
    assert_eq!(client.list_sandboxes(None, &NEVER).expect("a list").len(), 1);
}

#[test]
fn containers_end_in_the_ways_that_a_node_knows() {
    let fake = FakeCri::start();
    fake.add_pods(1, 4);
    let client = client(&fake, LONG);
    let id = |name: &str| fake.container_id("pod-0", name).expect("there");
    fake.exit_container(&id("c0"), 0);
    fake.exit_container(&id("c1"), 3);
    fake.oom(&id("c2"));
    let sandbox = client.list_pods(&NEVER).expect("a list")[0].sandboxes[0].id.clone();
    fake.crash_sandbox(sandbox.as_str());
    assert_eq!(client.sandbox_status(&sandbox, &NEVER).expect("its status").sandbox.state, SandboxState::NotReady);
    let ends = ["c0", "c1", "c2", "c3"].map(|name| {
        match client.container_status(&id(name).into(), &NEVER).expect("its status").state {
            ContainerState::Exited(exit) => (exit.code, exit.reason),
            other => panic!("{name} ended, not {other:?}"),
        }
    });
    assert_eq!(
        ends,
        [(0, "Completed"), (3, "Error"), (137, "OOMKilled"), (137, "Error")].map(|(code, why)| (code, why.to_owned()))
    );
}

#[test]
fn a_call_that_hung_is_carried_out_once_released() {
    let fake = FakeCri::start();
    fake.hang("RunPodSandbox");
    let client = client(&fake, LONG);
    let caller = std::thread::spawn({
        let client = client.clone();
        move || client.run_pod_sandbox(&pod("web"), &NEVER)
    });
    fake.wait_called("RunPodSandbox");
    assert_eq!(client.list_pods(&NEVER).expect("a list"), []);
    fake.forget_calls();
    fake.release("RunPodSandbox");
    caller.join().expect("no panic").expect("a sandbox");
    assert_eq!(fake.changes(), [""; 0]);
    assert_eq!(client.list_pods(&NEVER).expect("a list").len(), 1);
}

#[test]
fn lost_events_show_in_the_lists_only() {
    let fake = FakeCri::start();
    fake.set_events(Some(Events::Lost));
    let client = client(&fake, LONG);
    let mut events = client.subscribe().expect("a stream");
    fake.wait_called("GetContainerEvents");
    client.run_pod_sandbox(&pod("web"), &NEVER).expect("a sandbox");
    assert_eq!(events.next(SHORT, &NEVER).expect("a stream"), None);
    assert_eq!(client.list_pods(&NEVER).expect("a list").len(), 1);
}

#[test]
fn events_follow_a_container_through_its_life() {
    let fake = FakeCri::start();
    fake.add_image("busybox");
    fake.set_events(Some(Events::Sent));
    fake.behave("app", Behaviour { exit: Some((Duration::ZERO, 7)), ..Default::default() });
    let client = client(&fake, LONG);
    let mut events = client.subscribe().expect("a stream");
    fake.wait_called("GetContainerEvents");
    let spec = pod("web");
    let sandbox = client.run_pod_sandbox(&spec, &NEVER).expect("a sandbox");
    let app = client.create_container(&sandbox, &container(&spec, "app"), &spec, &NEVER).expect("a container");
    client.start_container(&app, &NEVER).expect("started");
    client.remove_container(&app, &NEVER).expect("removed");
    let mut seen = Vec::new();
    for _ in 0..6 {
        let event = events.next(LONG, &NEVER).expect("a stream").expect("an event");
        let pod = event.pod.expect("its pod");
        assert_eq!(pod.uid.as_ref().map(|uid| uid.as_str()), Some("uid-web"));
        assert!(pod.containers.iter().all(|container| container.sandbox_id == sandbox));
        let codes = pod.containers.iter().filter_map(|container| match &container.state {
            ContainerState::Exited(exit) => Some(exit.code),
            _ => None,
        });
        seen.push((event.kind, event.container_id == app, codes.collect::<Vec<_>>()));
    }
    use ContainerEventKind::{Created, Deleted, Started, Stopped};
    assert_eq!(
        seen,
        [
            (Created, false, vec![]),
            (Started, false, vec![]),
            (Created, true, vec![]),
            (Started, true, vec![]),
            (Stopped, true, vec![7]),
            (Deleted, true, vec![]),
        ]
    );
    assert_eq!(events.next(Duration::ZERO, &NEVER).expect("a stream"), None);
}

//! A runtime that returns ten thousand things, foreign ones and ones that look like ours: the pods that are wanted run,
//! and memory stays within bounds.

use std::time::{Duration, Instant};

use ferrolet::cri::proto;
use protobuf::MessageField;

use crate::{
    agent::{ground, lives, put, run, settle, start_with, wait_healthy, wait_running, wait_says, wait_well},
    fakes::cri_state::State,
    harness::{Agent, view::story, wait},
};

/// What an agent may hold in RAM, in KiB: an unoptimized build with the distribution's gRPC idles at 30 MiB.
const MOST_KIB: u64 = 160 << 10;

/// Waits for something, and tells the most memory that the agent had meanwhile, in KiB.
#[track_caller]
fn most_memory(agent: &Agent<'_>, what: &str, within: Duration, mut look: impl FnMut() -> Result<(), String>) -> u64 {
    let mut most = 0;
    wait::until(what, within, || {
        most = most.max(agent.resident_kib());
        look()
    });
    most
}

#[allow(clippy::print_stderr, reason = "a figure for whoever looks at it")]
fn tell(what: &str, before: u64, most: u64, started: Instant) {
    eprintln!("{what}: {before} KiB before, at most {most} KiB, {:?}", started.elapsed());
    assert!(most < MOST_KIB, "{what}: {most} KiB are more than {MOST_KIB}");
}

/// Containers that belong to nobody known: of Docker, of `ctr run`, of another agent's namespace.
fn add_foreign(state: &mut State, count: usize) {
    for number in 0..count {
        let name = format!("foreign-{number}");
        let metadata = proto::PodSandboxMetadata { name: name.clone(), uid: name.clone(), ..Default::default() };
        let config = proto::PodSandboxConfig {
            metadata: MessageField::some(metadata),
            labels: [("com.example.tool".to_owned(), "something else".to_owned())].into(),
            ..Default::default()
        };
        let sandbox = state.run_sandbox(config, "").expect("a sandbox");
        let config = proto::ContainerConfig {
            metadata: MessageField::some(proto::ContainerMetadata { name, ..Default::default() }),
            image: MessageField::some(proto::ImageSpec { image: "busybox".into(), ..Default::default() }),
            ..Default::default()
        };
        let id = state.create(&sandbox, config).expect("a container");
        state.start(&id, Instant::now()).expect("started");
    }
}

#[test]
fn ten_thousand_foreign_containers_are_left_alone() {
    let (fake, place) = ground();
    let agent = start_with(&place, "60s");
    run(&agent, "first");
    let (before, started) = (agent.resident_kib(), Instant::now());
    fake.with(|state| add_foreign(state, 10_000));
    put(&agent, "web");
    let most = most_memory(&agent, "the pod beside them", super::SOON, || match lives(&fake, "web").len() {
        1 => Ok(()),
        _ => agent.pod("web").map(|pod| story(&pod)).and_then(Err),
    });
    wait_running(&agent, "web");
    tell("10,000 foreign sandboxes and containers", before, most.max(agent.resident_kib()), started);
    assert_eq!(agent.pods().expect("an answer").len(), 2, "they are no pods of this node");
    assert_eq!(fake.containers().len(), 10_002);
    wait_well(&agent);
}

/// They carry our labels, and one source has not spoken yet: nobody knows whether they are wanted. The pod that is wanted
/// starts beside them.
#[test]
fn ten_thousand_containers_of_pods_that_nobody_knows_are_looked_at() {
    let (fake, place) = ground();
    fake.add_pods(100, 100);
    let before = fake.containers();
    let started = Instant::now();
    let agent = Agent::spawn(&place, |config| {
        settle(config);
        config["runtimeRequestTimeout"] = "60s".into();
        config["staticPodURL"] = "http://127.0.0.1:1/".into();
    });
    put(&agent, "web");
    let most = most_memory(&agent, "the pod that is wanted", Duration::from_secs(300), || {
        match lives(&fake, "web").as_slice() {
            [life] if life.ends_with("Running") => Ok(()),
            _ => Err(agent.pod("web").map_or_else(|error| error, |pod| story(&pod))),
        }
    });
    tell("a pod beside 10,000 containers of ours", 0, most.max(agent.resident_kib()), started);
    assert_eq!(fake.containers()[..before.len()], before, "silence removes nothing");
    wait_healthy(&agent);
    wait_says(&agent, &["why"], "no word yet from these sources of pods, so nothing is removed: http");
}

/// They carry our labels and nobody wants them: they are ended, all of them.
#[test]
fn a_thousand_containers_that_nobody_wants_are_cleared_away() {
    let (fake, place) = ground();
    fake.add_pods(20, 50);
    let started = Instant::now();
    let agent = start_with(&place, "60s");
    put(&agent, "web");
    let most = most_memory(&agent, "the end of the unwanted", Duration::from_secs(300), || {
        let left = fake.with(|state| (state.sandboxes.len(), state.containers.len()));
        if left == (1, 1) { Ok(()) } else { Err(format!("{left:?} sandboxes and containers")) }
    });
    tell("1,000 unwanted containers cleared away", 0, most, started);
    wait_running(&agent, "web");
    wait_well(&agent);
    assert_eq!(agent.pods().expect("an answer").len(), 1);
}

//! A runtime that is not there: no socket yet, somebody else on the socket, an old version, connections that break.
//!
//! The pods that run meanwhile must not notice, and those that are wanted meanwhile start when the runtime is there.

use crate::{
    agent::{
        Place, ground, lives, put, remove, run, start, start_unwell, wait_gone, wait_running, wait_says, wait_unwell,
        wait_well,
    },
    fakes::{
        cri::FakeCri,
        cri_state::Events,
        impostor::{Impostor, Manners},
    },
    harness::{view::is_running, wait},
};

/// An agent that starts before its runtime.
#[test]
fn a_socket_that_is_missing_at_first_is_waited_for() {
    let (mut fake, place) = ground();
    fake.stop();
    let agent = start_unwell(&place);
    put(&agent, "web");
    wait_unwell(&agent, "the socket does not exist: start the container runtime or correct containerRuntimeEndpoint");
    wait_says(&agent, &["ps"], "the container runtime does not answer");
    wait_says(&agent, &["why", "web-node"], "the container runtime to be listed for the first time");
    wait_says(&agent, &["why", "web-node"], "the socket does not exist");
    fake.serve();
    wait_running(&agent, "web");
    wait_well(&agent);
}

/// What is told of somebody who sits on the socket and is no runtime.
const NO_GRPC: &str = "whoever listens on the socket speaks no gRPC, or hangs up";

/// A pod runs, then somebody else answers on the runtime's socket, then the runtime is back.
fn somebody_else_answers(manners: Manners) {
    let (mut fake, place) = ground();
    let agent = start(&place);
    run(&agent, "web");
    let before = lives(&fake, "web");

    fake.stop();
    let impostor = Impostor::sit_on(fake.socket(), manners);
    wait_unwell(&agent, "the container runtime does not answer");
    wait_unwell(&agent, NO_GRPC);
    wait_says(&agent, &["ps"], NO_GRPC);
    put(&agent, "later");
    wait_says(&agent, &["why", "later-node"], "and the container runtime does not answer");
    let seen = impostor.callers();
    wait::until("more calls", super::SOON, || match impostor.callers() - seen {
        calls @ 0..3 => Err(format!("{calls} calls")),
        _ => Ok(()),
    });
    assert!(is_running(&agent.pod("web").expect("the pod is known")), "what was seen last stays");

    drop(impostor);
    fake.serve();
    wait_running(&agent, "later");
    wait_well(&agent);
    assert_eq!(lives(&fake, "web"), before, "the pod that ran did not notice");
}

#[test]
fn whoever_hangs_up_at_once_is_told_and_outlived() {
    somebody_else_answers(Manners::Close);
}

#[test]
fn whoever_speaks_no_grpc_is_told_and_outlived() {
    somebody_else_answers(Manners::Say(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()));
}

#[test]
fn whoever_talks_nonsense_is_told_and_outlived() {
    let nonsense: Vec<u8> = (0..64 << 10).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    somebody_else_answers(Manners::Say(nonsense));
}

#[test]
fn whoever_takes_the_call_and_says_nothing_is_told_and_outlived() {
    somebody_else_answers(Manners::Silent);
}

/// A runtime that is upgraded under the agent.
#[test]
fn a_runtime_that_speaks_only_v1alpha2_is_told_and_its_upgrade_noticed() {
    let mut fake = FakeCri::start_v1alpha2();
    fake.add_image("busybox");
    let place = Place::beside(&fake);
    let agent = start_unwell(&place);
    put(&agent, "web");
    let words = "the runtime speaks only CRI v1alpha2, ferrolet needs CRI v1: use containerd 1.6, CRI-O 1.20";
    wait_unwell(&agent, words);
    wait_says(&agent, &["ps"], words);
    wait_says(&agent, &["why"], words);
    fake.stop();
    fake.upgrade();
    fake.serve();
    wait_running(&agent, "web");
    wait_well(&agent);
}

/// gRPC without CRI, as containerd has it when its cri plugin is disabled.
#[test]
fn a_runtime_without_cri_is_told() {
    let fake = FakeCri::start_without_cri();
    let place = Place::beside(&fake);
    let agent = start_unwell(&place);
    wait_unwell(&agent, "disabled_plugins");
    wait_says(&agent, &["why"], "disabled_plugins");
}

/// Connections and event streams that break again and again, while pods come and go.
#[test]
fn connections_and_streams_that_break_lose_nothing() {
    let (mut fake, place) = ground();
    fake.set_events(Some(Events::Sent));
    let agent = start(&place);
    run(&agent, "steady");
    let before = lives(&fake, "steady");
    for round in 0..6 {
        let name = format!("pod-{round}");
        put(&agent, &name);
        match round % 3 {
            0 => fake.end_events(None),
            1 => fake.end_events(Some((13, "event queue is full"))),
            _ => fake.restart(),
        }
        if round > 0 {
            remove(&agent, &format!("pod-{}", round - 1));
            fake.end_events(None);
        }
        wait_running(&agent, &name);
    }
    remove(&agent, "pod-5");
    for round in 0..6 {
        wait_gone(&agent, &fake, &format!("pod-{round}"));
    }
    wait_well(&agent);
    assert_eq!(lives(&fake, "steady"), before);
    // Events are read again, too, and tell what no relist would see so soon.
    wait::until("an open stream", super::SOON, || match fake.subscribers() {
        1 => Ok(()),
        other => Err(format!("{other} streams")),
    });
}

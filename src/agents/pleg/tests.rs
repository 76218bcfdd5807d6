//! A close look and a quick one must give a pod the same number: else every relist would look closely at every pod.

use std::collections::BTreeSet;

use super::*;
use crate::api::runtime::{Exit, RuntimeContainer, RuntimeSandbox};

fn closely(sandbox_state: SandboxState, state: ContainerState) -> RuntimePod {
    let sandbox = RuntimeSandbox {
        id: "s".into(),
        attempt: 0,
        state: sandbox_state,
        created_at: Default::default(),
        ips: vec!["10.0.0.1".into()],
        host_network: false,
        runtime_handler: String::new(),
    };
    let container = RuntimeContainer::bare("c", "s", "app", 0, state);
    RuntimePod { sandboxes: vec![sandbox], containers: vec![container], ..Default::default() }
}

#[test]
fn of_quiet_relists_the_loop_hears_the_first_and_then_every_tenth() {
    let mut told = Told::Nothing;
    let mut heard = |relists: &str| -> String {
        let one = |relist| {
            let (tell, next) = told.next(relist == 'n');
            told = next;
            if tell { '!' } else { '.' }
        };
        relists.chars().map(one).collect()
    };
    assert_eq!(heard("----"), "!...", "the first list of all is heard");
    assert_eq!(heard("nn-n"), "!!!!", "news, and their end");
    assert_eq!(heard("--------------------------"), "!.........!.........!.....");
}

#[test]
fn an_event_is_waited_for_once_and_no_longer_than_its_delay() {
    let at = |ms: u64| Moment::default() + Duration::from_millis(ms);
    let until = Missing::Until(at(1000) + EVENT_DELAY);
    for (before, now, expect) in [
        (None, 1000, Some(until)),
        (Some(until), 1100, Some(until)),
        (Some(until), 1250, None),
        (Some(Missing::Over), 1100, None),
    ] {
        assert_eq!(Missing::after_look(before, at(now)), expect, "{before:?} at {now} ms");
    }
}

fn quickly(state: SandboxState, sandboxes: &[&str], life: Life, containers: &[&str]) -> u64 {
    fingerprint_of_glimpse(&PodGlimpse {
        uid: "u".into(),
        name: None,
        sandboxes: sandboxes.iter().map(|id| ((*id).into(), state)).collect(),
        containers: containers.iter().map(|id| ((*id).into(), life)).collect(),
    })
}

#[test]
fn both_looks_at_a_pod_give_one_number() {
    let lives = [
        (ContainerState::Created, Life::Created),
        (ContainerState::Running { started_at: Default::default() }, Life::Running),
        (ContainerState::Exited(Exit::default()), Life::Exited),
        (ContainerState::Unknown, Life::Unknown),
    ];
    let mut seen = BTreeSet::new();
    for sandbox in [SandboxState::Ready, SandboxState::NotReady] {
        for (state, life) in lives.clone() {
            let number = quickly(sandbox, &["s"], life, &["c"]);
            assert_eq!(fingerprint_of_pod(&closely(sandbox, state)), number, "{sandbox:?} {life:?}");
            assert_eq!(
                quickly(sandbox, &["s", "t"], life, &["c", "d"]),
                quickly(sandbox, &["t", "s"], life, &["d", "c"])
            );
            seen.extend([number, quickly(sandbox, &["s"], life, &[]), quickly(sandbox, &["s"], life, &["c", "d"])]);
        }
    }
    assert_eq!(seen.len(), 2 * (2 * 4 + 1), "different pods, different numbers");
}

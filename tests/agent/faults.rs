//! Every call of the runtime's, one after another, hangs, answers nonsense, answers nothing or fails: the agent stays up,
//! tells which call it is, hurts no other pod, and does what was wanted once the call works again.

use crate::{
    agent::{
        Place, SOON, ground, lives, put, remove, run, start, start_unwell, wait_gone, wait_healthy, wait_running,
        wait_says, wait_says_all, wait_unwell, wait_well,
    },
    fakes::cri::FakeCri,
    harness::wait,
};

/// What is wrong with a call.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Hang,
    Garbage,
    Empty,
    Refusal,
}

impl Fault {
    fn arm(self, fake: &FakeCri, method: &str) {
        match self {
            Fault::Hang => fake.hang(method),
            Fault::Garbage => fake.garbage(method, usize::MAX),
            Fault::Empty => fake.empty(method, usize::MAX),
            Fault::Refusal => fake.inject(method, 13, "the disk is on fire", 100_000),
        }
    }

    fn disarm(self, fake: &FakeCri, method: &str) {
        match self {
            Fault::Hang => fake.release(method),
            Fault::Garbage => fake.garbage(method, 0),
            Fault::Empty => fake.empty(method, 0),
            Fault::Refusal => drop(fake.with(|state| state.faults.remove(method))),
        }
    }

    /// What people read of a step that failed by it. A refusal is told in the runtime's own words, as kubectl shows them,
    /// with the planned step below.
    fn words_of(self, method: &str) -> Vec<&str> {
        match self {
            Fault::Hang | Fault::Garbage | Fault::Empty => vec![self.words(), method],
            Fault::Refusal => vec![self.words()],
        }
    }

    /// What people read of it.
    fn words(self) -> &'static str {
        match self {
            Fault::Hang => "no answer within",
            Fault::Garbage | Fault::Empty => "the answer is not valid CRI v1",
            Fault::Refusal => "the disk is on fire",
        }
    }
}

/// Calls without which nothing is known of the node.
const LOOKS: &[&str] = &["ListPodSandbox", "ListContainers"];
/// Calls that a pod's start needs, in their order.
const STARTS: &[&str] =
    &["RunPodSandbox", "PodSandboxStatus", "ImageStatus", "CreateContainer", "StartContainer", "ContainerStatus"];
/// Calls that a pod's end needs.
const ENDS: &[&str] = &["StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox"];

fn every_call(fault: Fault) {
    let (fake, place) = ground();
    let agent = start(&place);
    run(&agent, "steady");
    let steady = lives(&fake, "steady");

    for method in LOOKS {
        fault.arm(&fake, method);
        wait_unwell(&agent, fault.words());
        wait_unwell(&agent, method);
        wait_says(&agent, &["ps"], fault.words());
        wait_says(&agent, &["why"], method);
        fault.disarm(&fake, method);
        wait_well(&agent);
    }
    for (number, method) in STARTS.iter().enumerate() {
        let name = format!("start-{number}");
        fault.arm(&fake, method);
        put(&agent, &name);
        let full = format!("{name}-node");
        wait_says_all(&agent, &["why", &full], &fault.words_of(method));
        wait_healthy(&agent);
        fault.disarm(&fake, method);
        wait_running(&agent, &name);
        assert_eq!(lives(&fake, &name).iter().filter(|line| line.ends_with("Running")).count(), 1, "{method}");
        assert_eq!(lives(&fake, "steady"), steady, "{method}");
    }
    for (number, method) in ENDS.iter().enumerate() {
        let name = format!("start-{number}");
        fault.arm(&fake, method);
        remove(&agent, &name);
        let full = format!("{name}-node");
        wait_says_all(&agent, &["why", &full], &fault.words_of(method));
        wait_healthy(&agent);
        fault.disarm(&fake, method);
        wait_gone(&agent, &fake, &name);
    }
    wait_well(&agent);
    assert_eq!(lives(&fake, "steady"), steady);
}

#[test]
fn a_call_that_never_answers_is_named_and_outlived() {
    every_call(Fault::Hang);
}

#[test]
fn a_call_that_answers_nonsense_is_named_and_outlived() {
    every_call(Fault::Garbage);
}

#[test]
fn a_call_that_answers_without_a_message_is_named_and_outlived() {
    every_call(Fault::Empty);
}

#[test]
fn a_call_that_fails_is_named_and_outlived() {
    every_call(Fault::Refusal);
}

/// A pull may take its time: nothing is wrong, and it is told what the pod waits for.
#[test]
fn a_pull_that_never_ends_holds_its_own_pod_alone() {
    let fake = FakeCri::start();
    fake.add_pullable("busybox");
    fake.hang("PullImage");
    let place = Place::beside(&fake);
    let agent = start(&place);
    put(&agent, "hungry");
    fake.wait_called("PullImage");
    wait_says(&agent, &["why", "hungry-node"], "a worker is at it: ");
    wait_healthy(&agent);
    remove(&agent, "hungry");
    wait_gone(&agent, &fake, "hungry");
    fake.release("PullImage");
    wait_well(&agent);
}

/// What the agent asks first of all is for its own information: it starts without an answer.
#[test]
fn a_runtime_that_tells_nothing_of_itself_is_used_all_the_same() {
    for method in ["Version", "Status"] {
        for fault in [Fault::Hang, Fault::Garbage, Fault::Empty, Fault::Refusal] {
            let (fake, place) = ground();
            fault.arm(&fake, method);
            let agent = start(&place);
            run(&agent, "web");
            wait::until("word of it in the log", SOON, || match agent.log() {
                log if log.contains("does not tell of itself yet") => Ok(()),
                log => Err(log),
            });
        }
    }
}

/// Silence from the first moment on is no health.
#[test]
fn a_runtime_that_is_silent_from_the_start_is_not_taken_for_an_empty_one() {
    let (fake, place) = ground();
    fake.add_pods(3, 1);
    let before = fake.containers();
    for method in LOOKS {
        fake.hang(method);
    }
    let agent = start_unwell(&place);
    put(&agent, "web");
    wait_unwell(&agent, "ListPodSandbox");
    wait_says(&agent, &["why", "web-node"], "the container runtime to be listed for the first time");
    assert_eq!(fake.containers(), before, "nothing is ended or started on silence");
    for method in LOOKS {
        fake.release(method);
    }
    wait_running(&agent, "web");
    // What nobody wants is ended only now that it was seen.
    for number in 0..3 {
        wait::until("the end of what nobody wants", SOON, || {
            let left = fake.containers();
            if left.iter().any(|line| line.contains(&format!("pod-{number} "))) { Err(left.join("\n")) } else { Ok(()) }
        });
    }
    wait_well(&agent);
}

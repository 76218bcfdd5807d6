//! A runtime that can run containers and has no network for them yet, on the real program.

use crate::agent::{ground, lives, put, put_pod, start, wait_running, wait_says_all};

#[test]
fn pods_wait_for_the_runtimes_network_and_those_of_the_host_do_not() {
    let (fake, place) = ground();
    fake.with(|state| state.network_ready = false);
    let agent = start(&place);
    put(&agent, "waits");
    put_pod(&agent, "host", |spec| spec["hostNetwork"] = true.into());
    wait_running(&agent, "host");
    let why = "network is not ready: container runtime network not ready: NetworkReady=false reason:FakeSaysNo";
    wait_says_all(&agent, &["describe", "waits-node"], &["NetworkNotReady", why]);
    wait_says_all(&agent, &["why", "waits-node"], &[why]);
    assert_eq!(lives(&fake, "waits"), [""; 0]);
    assert_eq!(fake.with(|state| state.sandboxes.len()), 1, "no sandbox was tried");
    fake.with(|state| state.network_ready = true);
    wait_running(&agent, "waits");
}

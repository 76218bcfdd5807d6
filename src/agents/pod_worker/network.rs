//! Whether the runtime's network is there for a pod that needs one. On `pod-N` threads.
//!
//! While it is not (no CNI plugin has put its configuration there yet), no sandbox is tried: the pod waits and says so. The
//! runtime's word counts for a few seconds, so that a burst of pods asks once. A pod with the host's network needs none.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::run::{Run, reason};
use crate::api::moment::Moment;
use crate::api::pod;
use crate::core::node_object::runtime::{NETWORK_NOT_READY, network_trouble};
use crate::msg::{EventType, Reason};
use crate::util::clock;

/// How long a network that is there is believed in.
const READY_FOR: Duration = Duration::from_secs(5);

/// When the runtime last said that its network is there.
#[derive(Debug, Default)]
pub struct NetworkWord(Mutex<Option<Moment>>);

impl NetworkWord {
    fn is_fresh(&self, now: Moment) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|at| now.since(at) < READY_FOR)
    }

    fn set(&self, at: Option<Moment>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }
}

/// Asks before a sandbox is made.
///
/// # Errors
/// The network is not there, and an event has said so.
pub(super) fn check(run: &Run<'_>) -> Result<(), Reason> {
    let (tools, now) = (run.tools, clock::moment());
    let has_own_network = pod::spec(&run.work.pod).is_none_or(|spec| !spec.host_network.unwrap_or(false));
    if !has_own_network || tools.network.is_fresh(now) {
        return Ok(());
    }
    // A runtime that does not answer says so when the sandbox is made.
    let Ok(status) = tools.client.status(false, &run.work.cancel) else { return Ok(()) };
    let trouble = network_trouble(&status);
    tools.network.set(trouble.is_none().then_some(now));
    let Some(trouble) = trouble else { return Ok(()) };
    let message = format!("network is not ready: {trouble}");
    run.event("", EventType::Warning, NETWORK_NOT_READY, message.clone());
    Err(reason(NETWORK_NOT_READY, message))
}

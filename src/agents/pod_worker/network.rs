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
/// How long one is not asked for again that is not there, however many pods wait for it.
const MISSING_FOR: Duration = Duration::from_millis(500);

/// What the runtime said last of its network.
#[derive(Debug, Default)]
pub struct NetworkWord(Mutex<Option<Word>>);

#[derive(Clone, Debug)]
struct Word {
    at: Moment,
    /// Why it is not there.
    trouble: Option<String>,
}

impl NetworkWord {
    fn fresh(&self, now: Moment) -> Option<Word> {
        let word = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let counts_for = if word.trouble.is_none() { READY_FOR } else { MISSING_FOR };
        (now.since(word.at) < counts_for).then_some(word)
    }

    /// Takes a new word, and says once what changed by it.
    fn set(&self, new: Word) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.as_ref().and_then(|word| word.trouble.as_ref());
        match &new.trouble {
            Some(trouble) if before != Some(trouble) => log::warn!("pods wait for their network: {trouble}"),
            None if before.is_some() => log::info!("the network that pods waited for is there"),
            Some(_) | None => {}
        }
        *known = Some(new);
    }
}

/// Asks before a sandbox is made.
///
/// # Errors
/// The network is not there, and an event has said so.
pub(super) fn check(run: &Run<'_>) -> Result<(), Reason> {
    let (tools, now) = (run.tools, clock::moment());
    if pod::spec(&run.work.pod).is_some_and(|spec| spec.host_network.unwrap_or(false)) {
        return Ok(());
    }
    let word = match tools.network.fresh(now) {
        Some(word) => word,
        None => match tools.client.status(false, &run.work.cancel) {
            Ok(status) => {
                let word = Word { at: now, trouble: network_trouble(&status) };
                tools.network.set(word.clone());
                word
            }
            // A runtime that does not answer says so when the sandbox is made.
            Err(_) => return Ok(()),
        },
    };
    let Some(trouble) = word.trouble else { return Ok(()) };
    let message = format!("network is not ready: {trouble}");
    run.event("", EventType::Warning, NETWORK_NOT_READY, message.clone());
    Err(reason(NETWORK_NOT_READY, message))
}

//! The cgroup driver's second thoughts: a runtime that was not there at the start may turn out to use another one.
//!
//! Layer L4. Thread `driver`, only while the runtime has not said which driver it uses; it owns nothing. With the wrong driver no
//! pod can start, so the agent ends with a plain word and its service manager starts it anew, with the runtime's driver.

use std::io;
use std::time::Duration;

use super::facts::{RuntimeFacts, driver_of};
use crate::config::{KubeletConfiguration, features};
use crate::cri::Client;
use crate::host::cgroup::CgroupDriver;
use crate::util::cancel::Cancel;
use crate::util::thread::{OwnerThread, StackSize};

/// Between two questions.
const AGAIN: Duration = Duration::from_secs(2);

/// The running thread. Dropping it ends it.
pub(super) struct Watch {
    stop: Cancel,
    _thread: OwnerThread,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Starts the thread where it is needed.
///
/// # Errors
/// The kernel has no thread left.
pub(super) fn watch(
    config: &KubeletConfiguration,
    runtime: &RuntimeFacts,
    driver: CgroupDriver,
    client: Client,
) -> io::Result<Option<Watch>> {
    let is_asked = features::is_enabled(&config.feature_gates, "KubeletCgroupDriverFromCRI");
    if runtime.answered || !config.cgroups_per_qos || !is_asked {
        return Ok(None);
    }
    let stop = Cancel::new();
    let token = stop.clone();
    let thread = OwnerThread::spawn("driver", StackSize::Small, move || {
        let told = loop {
            match client.runtime_config(&token) {
                Ok(told) => break told.map(driver_of),
                Err(_) if token.wait(AGAIN) => return,
                Err(_) => {}
            }
        };
        if let Some(told) = told.filter(|told| *told != driver) {
            log::error!(
                "the container runtime uses the cgroup driver {told}, and this agent began with {driver}, as the runtime was not \
                 there to be asked: it ends, to begin again with {told}"
            );
            crate::util::signals::end_this_process();
        }
    })?;
    Ok(Some(Watch { stop, _thread: thread }))
}

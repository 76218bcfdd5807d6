//! One attempt: over the network, or as a command that the runtime runs. On a thread of the pool.

use crate::api::ContainerId;
use crate::api::probe::{ErroredState, ProbeAction, ProbeCall, ProbeOutcome};
use crate::core::probe::Job;
use crate::cri::Client;
use crate::probe::NetProber;
use crate::util::cancel::Cancel;
use crate::util::text;

/// How often an attempt by which nothing was found out is made.
const TRIES: usize = 3;

/// Output of a command that is told.
const MAX_OUTPUT: usize = 10 * 1024;

/// Makes attempts: the ports, or a script in tests.
pub trait Attempts: Send + Sync {
    /// Makes one. Blocks the calling thread up to the call's timeout, and a little longer for a command that the
    /// runtime has to end.
    fn attempt(&self, container: &ContainerId, call: &ProbeCall, cancel: &Cancel) -> ProbeOutcome;
}

/// The ports.
#[derive(Debug)]
pub struct Ports {
    /// Runs commands.
    pub runtime: Client,
    /// All else.
    pub net: NetProber,
}

impl Attempts for Ports {
    fn attempt(&self, container: &ContainerId, call: &ProbeCall, cancel: &Cancel) -> ProbeOutcome {
        match &call.action {
            ProbeAction::Exec { command } => self.exec(container, command, call, cancel),
            ProbeAction::Net(action) => self.net.attempt(action, call.timeout),
        }
    }
}

impl Ports {
    fn exec(&self, container: &ContainerId, command: &[String], call: &ProbeCall, cancel: &Cancel) -> ProbeOutcome {
        match self.runtime.exec_sync(container, command, call.timeout, cancel) {
            Ok(output) if output.exit_code == 0 => ProbeOutcome::Success,
            Ok(output) => {
                let mut told = output.stdout;
                told.extend(output.stderr);
                told.truncate(MAX_OUTPUT);
                ProbeOutcome::Failure(String::from_utf8_lossy(&told).into_owned())
            }
            // The runtime has killed it.
            Err(error) if error.is_deadline() => {
                let (command, span) = (text::quote(&command.join(" ")), text::duration(call.timeout));
                ProbeOutcome::Failure(format!("command timed out: {command} timed out after {span}"))
            }
            // It ended a moment ago, and the view of it is a moment old.
            Err(error) if error.is_not_found() => ProbeOutcome::Gone,
            Err(error) => ProbeOutcome::Errored { state: ErroredState::Unknown, why: error.rpc_text() },
        }
    }
}

/// Makes an attempt; one by which nothing is found out is made again at once, a few times.
pub(super) fn with_retries(attempts: &dyn Attempts, job: &Job, cancel: &Cancel) -> ProbeOutcome {
    let call = match &job.call {
        Ok(call) => call,
        Err(why) => return impossible(why),
    };
    let mut outcome = attempts.attempt(&job.container, call, cancel);
    for _ in 1..TRIES {
        if !matches!(outcome, ProbeOutcome::Errored { .. }) || cancel.is_cancelled() {
            break;
        }
        outcome = attempts.attempt(&job.container, call, cancel);
    }
    outcome
}

/// The outcome of an attempt that cannot be made.
pub(super) fn impossible(why: &str) -> ProbeOutcome {
    ProbeOutcome::Errored { state: ErroredState::Unknown, why: why.to_owned() }
}

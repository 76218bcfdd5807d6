//! The signals that the main thread waits for. They are blocked before any thread starts, so that no
//! other thread is ever interrupted by them.

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};

/// Blocked signals.
pub(super) struct Signals {
    set: SigSet,
}

impl Signals {
    /// Blocks SIGTERM, SIGINT and SIGHUP in this thread and all that it starts.
    pub(super) fn block() -> anyhow::Result<Self> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block().context("block signals")?;
        Ok(Self { set })
    }

    /// Waits for the one that ends the agent.
    pub(super) fn wait(&self) -> anyhow::Result<Signal> {
        loop {
            match self.set.wait().context("wait for signals")? {
                Signal::SIGHUP => log::info!("SIGHUP received: nothing is reloaded, restart to read the configuration"),
                signal => return Ok(signal),
            }
        }
    }
}

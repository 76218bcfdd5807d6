//! The signals that the main thread waits for. They are blocked before any thread starts, so that no
//! other thread is ever interrupted by them.

use std::io;

use nix::sys::signal::{SigSet, Signal};

/// What the agent was told by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// SIGTERM or SIGINT: end.
    End,
    /// SIGHUP: read the configuration again.
    Reload,
}

/// Blocked signals.
#[derive(Debug)]
pub struct Signals {
    set: SigSet,
}

impl Signals {
    /// Blocks SIGTERM, SIGINT and SIGHUP in this thread and all that it starts.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn block() -> io::Result<Self> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block()?;
        Ok(Self { set })
    }

    /// Waits for the next one.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait(&self) -> io::Result<Told> {
        Ok(match self.set.wait()? {
            Signal::SIGHUP => Told::Reload,
            _ => Told::End,
        })
    }
}

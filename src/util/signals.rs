//! The signals that the main thread waits for. They are blocked before any thread starts, so that no
//! other thread is ever interrupted by them, and come out of a descriptor, so that the wait may have an end.

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::poll::Bell;

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
    arrived: SignalFd,
    bell: Bell,
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
        let arrived = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { arrived, bell: Bell::new()? })
    }

    /// Waits for the next one; `None` when `until` came first.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait(&self, until: Option<Instant>) -> io::Result<Option<Told>> {
        loop {
            if let Some(signal) = self.arrived.read_signal()? {
                let is_hangup = u32::try_from(Signal::SIGHUP as i32).is_ok_and(|hangup| signal.ssi_signo == hangup);
                return Ok(Some(if is_hangup { Told::Reload } else { Told::End }));
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Ok(None);
            }
            self.bell.wait([self.arrived.as_fd()], until)?;
        }
    }
}

/// Has this process end as if it had been told to.
pub fn end_this_process() {
    // A process may always signal itself.
    let _sent = nix::sys::signal::kill(nix::unistd::getpid(), Signal::SIGTERM);
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::raise;

    #[test]
    fn a_signal_of_this_thread_arrives_and_none_is_no_signal() {
        let signals = Signals::block().expect("block");
        assert_eq!(signals.wait(Some(Instant::now())).expect("no signal"), None);
        for (signal, expect) in [(Signal::SIGHUP, Told::Reload), (Signal::SIGTERM, Told::End)] {
            raise(signal).expect("a signal");
            assert_eq!(signals.wait(None).expect("a signal"), Some(expect));
        }
    }
}

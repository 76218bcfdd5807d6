//! Waits for file descriptors and for a cancellation token at the same time, without waking up in between.
//!
//! Used by threads that read from the kernel (inotify, sockets, /dev/kmsg) and must stop at once when
//! told. Owns one eventfd per [`Bell`]. Never reads the descriptors it waits for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

/// Something to ring from any thread that ends a [`Bell::wait`], now or the next one to come.
#[derive(Clone, Debug)]
pub struct Bell(Arc<Rope>);

#[derive(Debug)]
struct Rope(EventFd);

impl Wake for Rope {
    fn wake(self: Arc<Self>) {
        // A full counter has rung already.
        let _already_rung = self.0.write(1);
    }
}

impl Bell {
    /// A silent bell.
    ///
    /// # Errors
    /// The kernel has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let fd = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self(Arc::new(Rope(fd))))
    }

    /// Rings it.
    pub fn ring(&self) {
        Arc::clone(&self.0).wake();
    }

    /// A waker that rings it, to be registered with a cancellation token.
    pub fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.0))
    }

    /// Sleeps until one of `fds` is readable, has failed or was hung up, the bell rings or `until`
    /// comes; signals do not end it. Tells for each of `fds` whether to read it. A ring is used up.
    ///
    /// # Errors
    /// The kernel cannot wait for these descriptors.
    pub fn wait<const N: usize>(&self, fds: [BorrowedFd<'_>; N], until: Option<Instant>) -> io::Result<[bool; N]> {
        let ready = self.wait_any(&fds, until)?;
        Ok(std::array::from_fn(|i| ready.get(i).copied().unwrap_or(true)))
    }

    /// [`Self::wait`] for a number of descriptors that is not known beforehand.
    ///
    /// # Errors
    /// The kernel cannot wait for these descriptors.
    pub fn wait_any(&self, fds: &[BorrowedFd<'_>], until: Option<Instant>) -> io::Result<Vec<bool>> {
        let fds: Vec<_> = fds.iter().map(|fd| (*fd, PollFlags::POLLIN)).collect();
        self.wait_for(&fds, until)
    }

    /// [`Self::wait`] for something of its own with each descriptor. Tells for each whether that came, or its end.
    ///
    /// # Errors
    /// The kernel cannot wait for these descriptors.
    pub fn wait_for(&self, fds: &[(BorrowedFd<'_>, PollFlags)], until: Option<Instant>) -> io::Result<Vec<bool>> {
        let mut polled: Vec<PollFd<'_>> = Vec::with_capacity(fds.len() + 1);
        polled.extend(fds.iter().map(|(fd, flags)| PollFd::new(*fd, *flags)));
        polled.push(PollFd::new(self.0.0.as_fd(), PollFlags::POLLIN));
        loop {
            let timeout = match until {
                None => PollTimeout::NONE,
                // Rounded up, so that it does not wake up just before its time and spins there.
                Some(until) => until
                    .saturating_duration_since(Instant::now())
                    .as_micros()
                    .div_ceil(1000)
                    .try_into()
                    .ok()
                    .and_then(|millis: i32| PollTimeout::try_from(millis).ok())
                    .unwrap_or(PollTimeout::MAX),
            };
            match nix::poll::poll(&mut polled, timeout) {
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok(0) if until.is_some_and(|until| Instant::now() < until) => {}
                Ok(_) => break,
            }
        }
        let bell = polled.pop().and_then(|bell| bell.any());
        if bell == Some(true) {
            let _used_up = self.0.0.read();
        }
        Ok(polled.iter().map(|one| one.any().unwrap_or(true)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::cancel::Cancel;
    use std::io::Write;
    use std::time::Duration;

    fn in_a_minute() -> Option<Instant> {
        Some(Instant::now() + Duration::from_secs(60))
    }

    #[test]
    fn a_ring_before_or_during_the_wait_ends_it_once() {
        let bell = Bell::new().unwrap();
        bell.ring();
        bell.ring();
        assert!(bell.wait([], in_a_minute()).is_ok());
        let soon = Instant::now() + Duration::from_millis(20);
        bell.wait([], Some(soon)).unwrap();
        assert!(Instant::now() >= soon, "both rings were used up by the first wait");
        std::thread::scope(|scope| {
            scope.spawn(|| bell.ring());
            bell.wait([], None).unwrap();
        });
    }

    #[test]
    fn a_cancelled_token_rings() {
        let (bell, cancel) = (Bell::new().unwrap(), Cancel::new());
        let _registration = cancel.register(bell.waker());
        cancel.cancel();
        assert!(bell.wait([], None).is_ok());
    }

    #[test]
    fn it_tells_which_descriptor_to_read() {
        let bell = Bell::new().unwrap();
        let (quiet, _keep) = std::io::pipe().unwrap();
        let (ready, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"x").unwrap();
        assert_eq!(bell.wait([quiet.as_fd(), ready.as_fd()], in_a_minute()).unwrap(), [false, true]);
        drop(writer);
        let (closed, writer) = std::io::pipe().unwrap();
        drop(writer);
        assert_eq!(bell.wait([quiet.as_fd(), closed.as_fd()], in_a_minute()).unwrap(), [false, true]);
    }
}

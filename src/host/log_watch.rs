//! Waits for more of a container's log, without waking up while nothing is printed.
//!
//! Layer L1; on the thread of whoever follows the log. Owns one inotify descriptor, and only while somebody follows.
//! It reads no log: it tells that there may be something to read.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use inotify::{EventMask, Inotify, WatchMask};
use nix::errno::Errno;
use nix::libc::POLLRDHUP;
use nix::poll::{PollFd, PollFlags, PollTimeout};

use super::HostError;

/// How soon to look again after a file was renamed, made or closed: a rotation has several steps, and its last lines
/// may be on their way.
const SETTLE: Duration = Duration::from_millis(250);
/// How many looks follow such a change.
const SETTLES: u8 = 8;

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Something was written, or a file came, went or was closed.
    Log,
    /// Whoever reads has gone.
    ReaderGone,
    /// The time is over.
    Time,
}

/// Watches one log file and the files that rotation makes of it.
#[derive(Debug)]
pub struct LogWatch {
    inotify: Inotify,
    name: OsString,
    /// Looks to come soon.
    settles: u8,
}

impl LogWatch {
    /// Watches a log; a link to it is followed first, as runtimes of old make them.
    ///
    /// # Errors
    /// There is no such log, or the kernel watches no more folders for this user.
    pub fn new(path: &Path) -> Result<Self, HostError> {
        let failed = |e| HostError::io("watch log", path, e);
        let real = path.canonicalize().map_err(failed)?;
        let (Some(folder), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(HostError::refused("watch log", path, "it names no file"));
        };
        let inotify = Inotify::init().map_err(failed)?;
        let mask = WatchMask::MODIFY | WatchMask::CLOSE_WRITE | WatchMask::CREATE | WatchMask::MOVE | WatchMask::DELETE;
        inotify.watches().add(folder, mask).map_err(failed)?;
        Ok(Self { inotify, name: name.to_owned(), settles: 0 })
    }

    /// Waits for news of the log, for the end of the connection of `reader`, at most for `limit`.
    ///
    /// # Errors
    /// The kernel cannot wait for these descriptors.
    pub fn wait(&mut self, reader: Option<BorrowedFd<'_>>, limit: Duration) -> io::Result<Woken> {
        let limit = if self.settles > 0 { limit.min(SETTLE) } else { limit };
        let until = Instant::now() + limit;
        loop {
            let (log, gone) = poll(self.inotify.as_fd(), reader, until)?;
            if gone {
                return Ok(Woken::ReaderGone);
            }
            if log && self.take_events()? {
                return Ok(Woken::Log);
            }
            if Instant::now() >= until {
                self.settles = self.settles.saturating_sub(1);
                return Ok(Woken::Time);
            }
        }
    }

    /// Whether the last news were such that more may follow soon: the file was closed or another came.
    pub fn is_settling(&self) -> bool {
        self.settles > 0
    }

    /// Takes what the kernel noted; tells whether it is about this log.
    fn take_events(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        let mut ours = false;
        loop {
            let events = match self.inotify.read_events(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(ours),
                events => events?,
            };
            let mut any = false;
            for event in events {
                any = true;
                // A rotated file has a longer name; the log of the next instance has another.
                let of_log =
                    event.name.is_none_or(|name| name.as_encoded_bytes().starts_with(self.name.as_encoded_bytes()));
                ours |= of_log;
                if of_log && event.mask != EventMask::MODIFY {
                    self.settles = SETTLES;
                }
            }
            if !any {
                return Ok(ours);
            }
        }
    }
}

/// Whether the log has news, and whether the reader has gone.
fn poll(log: BorrowedFd<'_>, reader: Option<BorrowedFd<'_>>, until: Instant) -> io::Result<(bool, bool)> {
    // What the reader sends is of no interest: its end is.
    let end = PollFlags::from_bits_retain(POLLRDHUP);
    let mut polled = vec![PollFd::new(log, PollFlags::POLLIN)];
    polled.extend(reader.map(|reader| PollFd::new(reader, end)));
    let left = until.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
    let timeout = i32::try_from(left).ok().and_then(|left| PollTimeout::try_from(left).ok());
    match nix::poll::poll(&mut polled, timeout.unwrap_or(PollTimeout::MAX)) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    // What nix has no word for has happened as well.
    let happened = |at: usize| polled.get(at).is_some_and(|one| one.revents().is_none_or(|found| !found.is_empty()));
    Ok((happened(0), happened(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(5);

    fn watched() -> (tempfile::TempDir, LogWatch) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("0.log"), "").unwrap();
        let watch = LogWatch::new(&dir.path().join("0.log")).unwrap();
        (dir, watch)
    }

    #[test]
    fn it_wakes_for_its_log_and_not_for_another() {
        let (dir, mut watch) = watched();
        assert_eq!(watch.wait(None, SHORT).unwrap(), Woken::Time);
        fs::write(dir.path().join("1.log"), "x").unwrap();
        assert_eq!(watch.wait(None, SHORT).unwrap(), Woken::Time);
        let mut log = fs::OpenOptions::new().append(true).open(dir.path().join("0.log")).unwrap();
        log.write_all(b"x").unwrap();
        assert_eq!(watch.wait(None, LONG).unwrap(), Woken::Log);
        assert!(!watch.is_settling(), "more of the same file");
        drop(log);
        assert_eq!(watch.wait(None, LONG).unwrap(), Woken::Log);
        assert!(watch.is_settling(), "it was closed");
    }

    #[test]
    fn after_a_rotation_it_looks_again_soon_some_times() {
        let (dir, mut watch) = watched();
        fs::rename(dir.path().join("0.log"), dir.path().join("0.log.1")).unwrap();
        assert_eq!(watch.wait(None, LONG).unwrap(), Woken::Log);
        for _ in 0..SETTLES {
            assert!(watch.is_settling());
            assert_eq!(watch.wait(None, LONG).unwrap(), Woken::Time);
        }
        assert!(!watch.is_settling());
    }

    #[test]
    fn the_end_of_the_reader_ends_the_wait_and_what_it_says_does_not() {
        let (_dir, mut watch) = watched();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"what?").unwrap();
        assert_eq!(watch.wait(Some(ours.as_fd()), SHORT).unwrap(), Woken::Time);
        drop(theirs);
        assert_eq!(watch.wait(Some(ours.as_fd()), LONG).unwrap(), Woken::ReaderGone);
    }

    #[test]
    fn a_link_is_followed_and_a_missing_log_is_told() {
        let (dir, _) = watched();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("0.log"), &link).unwrap();
        let mut watch = LogWatch::new(&link).unwrap();
        fs::write(dir.path().join("0.log"), "x").unwrap();
        assert_eq!(watch.wait(None, LONG).unwrap(), Woken::Log);
        assert!(LogWatch::new(&dir.path().join("9.log")).unwrap_err().is_not_found());
    }
}

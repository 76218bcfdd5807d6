//! One TCP connection with a deadline, which leaves nothing behind when it goes. On a pool thread.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::util::resolve::addresses;
use crate::util::tcp::break_on_close;

/// How long the other side may take to close its end, once all has been said.
const GOODBYE: Duration = Duration::from_millis(50);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[error("dial tcp {to}: {why}")]
pub(super) struct DialError {
    to: String,
    why: String,
    /// Whether nothing came in time.
    pub(super) is_timeout: bool,
}

/// One connection. It is broken off when it is dropped, unless both sides ended it.
pub(super) struct Conn {
    stream: TcpStream,
    deadline: Instant,
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn").field("peer", &self.stream.peer_addr().ok()).finish_non_exhaustive()
    }
}

impl Conn {
    /// Opens one to the first address of `host` that answers.
    ///
    /// # Errors
    /// None does, or none in time.
    pub(super) fn open(host: &str, port: u16, deadline: Instant) -> Result<Self, DialError> {
        let to = authority(host, port);
        let failed = |why: String, is_timeout| DialError { to: to.clone(), why, is_timeout };
        let left = deadline.saturating_duration_since(Instant::now());
        let addresses = addresses(host, port, left)
            .map_err(|error| failed(format!("lookup {host}: {}", plain(&error)), is_timeout(&error)))?;
        let mut last = failed(format!("lookup {host}: no such host"), false);
        for (index, address) in addresses.iter().enumerate() {
            let others = u32::try_from(addresses.len() - index).unwrap_or(1);
            let share = deadline.saturating_duration_since(Instant::now()) / others.max(1);
            if share.is_zero() {
                return Err(failed("i/o timeout".to_owned(), true));
            }
            match TcpStream::connect_timeout(address, share) {
                Ok(stream) => {
                    // Best effort: at worst a socket waits for its minute, or a small packet for the next.
                    let _waits = break_on_close(&stream, true);
                    let _delays = stream.set_nodelay(true);
                    return Ok(Self { stream, deadline });
                }
                Err(error) if is_timeout(&error) => last = failed("i/o timeout".to_owned(), true),
                Err(error) => last = failed(format!("connect: {}", plain(&error)), false),
            }
        }
        Err(last)
    }

    /// Ends the connection in peace, if the other side does so soon.
    pub(super) fn end(mut self) {
        self.deadline = self.deadline.min(Instant::now() + GOODBYE);
        let mut rest = [0; 1024];
        loop {
            match self.read(&mut rest) {
                Ok(0) => {
                    // It went first, so the waiting is on its side.
                    let _breaks = break_on_close(&self.stream, false);
                    return;
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Conn {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.stream.set_read_timeout(Some(self.left()?))?;
            match self.stream.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
                other => return other,
            }
        }
    }
}

impl Write for Conn {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        match self.stream.write(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
            other => other,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `host:port`, with an IPv6 address in brackets.
pub(super) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Whether nothing came in time.
pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

/// The kernel's words without their number.
pub(super) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_lowercase(),
        None => text,
    }
}

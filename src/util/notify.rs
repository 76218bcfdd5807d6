//! What the service manager is told: systemd's notification protocol, which is lines of text in a datagram.
//!
//! Used by the main thread alone. Without `NOTIFY_SOCKET` in the environment nothing is opened and nothing is sent. It never waits:
//! a manager that does not read loses a message, and hears of the next one.

use std::fmt;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Letters of a status that are sent; the rest is for the log.
const STATUS_LIMIT: usize = 400;

/// The way to the service manager; without one every message goes nowhere.
#[derive(Default)]
pub struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier")
            .field("heard", &self.socket.is_some())
            .field("watchdog", &self.watchdog)
            .finish_non_exhaustive()
    }
}

impl Notifier {
    /// As the environment says: `NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`.
    ///
    /// # Errors
    /// The socket's name or the watchdog's time is none, or the kernel gives no socket.
    pub fn from_environment() -> io::Result<Self> {
        let text = |name| std::env::var_os(name).and_then(|value| value.into_string().ok());
        let own = std::process::id();
        Self::new(text("NOTIFY_SOCKET").as_deref(), watchdog(text("WATCHDOG_USEC"), text("WATCHDOG_PID"), own)?)
    }

    /// Sends to `socket`: a path, or a name after `@`.
    ///
    /// # Errors
    /// It is neither, or the kernel gives no socket.
    pub fn new(socket: Option<&str>, watchdog: Option<Duration>) -> io::Result<Self> {
        let Some(name) = socket.filter(|name| !name.is_empty()) else { return Ok(Self::default()) };
        let address = match name.as_bytes().split_first() {
            Some((b'@', rest)) => SocketAddr::from_abstract_name(rest)?,
            Some((b'/', _)) => SocketAddr::from_pathname(name)?,
            _ => {
                let why = format!("NOTIFY_SOCKET is `{name}`, and must be a path or begin with @");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket: Some((socket, address)), watchdog })
    }

    /// Whether anybody hears.
    pub fn is_heard(&self) -> bool {
        self.socket.is_some()
    }

    /// How long the manager waits between two signs of life before it ends this process; `None` if it does not.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog.filter(|_| self.is_heard())
    }

    /// The start, or the reading of the configuration, is done.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\n{}", status_line(status)));
    }

    /// How it is, for people.
    pub fn status(&self, status: &str) {
        self.send(&status_line(status));
    }

    /// It lives, and gets on.
    pub fn alive(&self) {
        self.send("WATCHDOG=1\n");
    }

    /// It ends.
    pub fn stopping(&self, status: &str) {
        self.send(&format!("STOPPING=1\n{}", status_line(status)));
    }

    /// It reads its configuration again; [`Self::ready`] follows.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}\n", now.as_micros()));
    }

    fn send(&self, message: &str) {
        let Some((socket, address)) = &self.socket else { return };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            log::warn!("the service manager was not told {:?}: {error}", message.trim_end());
        }
    }
}

/// A status is one line of bounded length.
fn status_line(status: &str) -> String {
    let one_line = status.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    format!("STATUS={}\n", one_line.take(STATUS_LIMIT).collect::<String>())
}

/// The watchdog's time, if it is this process that is watched.
fn watchdog(micros: Option<String>, pid: Option<String>, own: u32) -> io::Result<Option<Duration>> {
    let Some(text) = micros.filter(|text| !text.is_empty()) else { return Ok(None) };
    if pid.is_some_and(|pid| pid != own.to_string()) {
        return Ok(None);
    }
    match text.parse::<u64>() {
        Ok(micros) if micros > 0 => Ok(Some(Duration::from_micros(micros))),
        _ => {
            let why = format!("WATCHDOG_USEC is `{text}`, and must be microseconds above 0");
            Err(io::Error::new(io::ErrorKind::InvalidInput, why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_at_paths_and_at_names_without_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let name = format!("@ferrolet-notify-test-{}", std::process::id());
        let by_path = (path.display().to_string(), UnixDatagram::bind(&path).expect("a socket"));
        let address = SocketAddr::from_abstract_name(&name[1..]).expect("an address");
        let by_name = (name, UnixDatagram::bind_addr(&address).expect("a socket"));
        for (name, socket) in [by_path, by_name] {
            let notifier = Notifier::new(Some(&name), None).expect("a notifier");
            let check = |expect: &str| {
                let mut buffer = [0; 1024];
                let length = socket.recv(&mut buffer).expect("a message");
                assert_eq!(String::from_utf8_lossy(&buffer[..length]), expect);
            };
            notifier.ready("2 pods\nrun");
            check("READY=1\nSTATUS=2 pods run\n");
            notifier.alive();
            check("WATCHDOG=1\n");
            notifier.status(&"x".repeat(STATUS_LIMIT + 1));
            check(&format!("STATUS={}\n", "x".repeat(STATUS_LIMIT)));
            notifier.stopping("bye");
            check("STOPPING=1\nSTATUS=bye\n");
            notifier.reloading();
            let mut buffer = [0; 1024];
            let length = socket.recv(&mut buffer).expect("a message");
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            let micros = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").and_then(|rest| rest.trim().parse().ok());
            assert!(micros.is_some_and(|micros: u64| micros > 0), "{text}");
        }
    }

    #[test]
    fn a_manager_that_does_not_read_holds_nobody_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let _unread = UnixDatagram::bind(&path).expect("a socket");
        let notifier = Notifier::new(path.to_str(), None).expect("a notifier");
        (0..10_000).for_each(|_| notifier.alive());
    }

    #[test]
    fn the_environment_may_say_nothing_or_nonsense() {
        for (socket, heard) in
            [(None, Some(false)), (Some(""), Some(false)), (Some("@a"), Some(true)), (Some("a"), None)]
        {
            assert_eq!(Notifier::new(socket, None).ok().map(|n| n.is_heard()), heard, "{socket:?}");
        }
        let check = |micros: Option<&str>, pid: Option<&str>, expect: Option<Option<u64>>| {
            let got = watchdog(micros.map(str::to_owned), pid.map(str::to_owned), 7).ok();
            assert_eq!(got, expect.map(|micros| micros.map(Duration::from_micros)), "{micros:?} {pid:?}");
        };
        check(None, None, Some(None));
        check(Some("5"), None, Some(Some(5)));
        check(Some("5"), Some("7"), Some(Some(5)));
        check(Some("5"), Some("8"), Some(None));
        check(Some("0"), None, None);
        check(Some("soon"), Some("7"), None);
    }
}

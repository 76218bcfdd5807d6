//! logind: the lock that holds a shutdown up, and the signal that one begins.
//!
//! Layer L1, for one thread that owns the connection. It decides nothing: how long to hold up is set in logind's configuration by
//! [`write_delay`], and when to let go is the caller's.

use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustbus::wire::UnixFd;
use rustbus::wire::unmarshal::traits::Variant;

use super::{Bus, BusError, Target};
use crate::host::HostError;
use crate::util::fs::write_atomic;
use crate::util::poll::Bell;

/// Where logind reads additions to its configuration.
pub const DROP_INS: &str = "/etc/systemd/logind.conf.d";
/// The kubelet's addition, so that one takes over from the other.
const DROP_IN: &str = "99-kubelet.conf";
/// How logind says that a shutdown has begun already.
const IN_PROGRESS: &str = "org.freedesktop.login1.OperationInProgress";

const LOGIND: Target = Target {
    service: "org.freedesktop.login1",
    object: "/org/freedesktop/login1",
    interface: "org.freedesktop.login1.Manager",
};
const PROPERTIES: Target = Target { interface: "org.freedesktop.DBus.Properties", ..LOGIND };
const SYSTEMD: Target = Target {
    service: "org.freedesktop.systemd1",
    object: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
};

/// A connection to logind.
#[derive(Debug)]
pub struct Logind {
    bus: Bus,
}

impl Logind {
    /// Connects by the bus at `path` and hears of shutdowns from now on.
    ///
    /// # Errors
    /// There is no bus.
    pub fn connect(path: &Path) -> Result<Self, BusError> {
        let mut bus = Bus::connect(path)?;
        bus.subscribe(
            "type='signal',interface='org.freedesktop.login1.Manager',member='PrepareForShutdown',\
             path='/org/freedesktop/login1'",
        )?;
        Ok(Self { bus })
    }

    /// How long logind lets a lock hold a shutdown up (`InhibitDelayMaxSec`).
    ///
    /// # Errors
    /// logind does not say.
    pub fn delay(&mut self) -> Result<Duration, BusError> {
        Ok(Duration::from_micros(self.property::<u64>("InhibitDelayMaxUSec", "microseconds")?))
    }

    /// Whether a shutdown is under way.
    ///
    /// # Errors
    /// logind does not say.
    pub fn is_shutting_down(&mut self) -> Result<bool, BusError> {
        self.property::<bool>("PreparingForShutdown", "yes or no")
    }

    /// Has logind read its configuration again, which takes it a moment.
    ///
    /// # Errors
    /// systemd does not send it the signal.
    pub fn reload(&mut self) -> Result<(), BusError> {
        let hangup: i32 = 1;
        let fill = |body: &mut _| push3(body, "systemd-logind.service", "all", hangup);
        self.bus.call(&SYSTEMD, "KillUnit", &fill).map(drop)
    }

    /// Takes a lock that holds a shutdown up until it is dropped; `None` if one is under way already.
    ///
    /// # Errors
    /// logind gives none.
    pub fn hold_up(&mut self) -> Result<Option<OwnedFd>, BusError> {
        let fill = |body: &mut rustbus::message_builder::MarshalledMessageBody| {
            body.push_param4(
                "shutdown",
                "kubelet",
                "ferrolet needs time to end the pods of this node in order",
                "delay",
            )
        };
        let answer = match self.bus.call(&LOGIND, "Inhibit", &fill) {
            Err(error) if error.is(IN_PROGRESS) => return Ok(None),
            answer => answer?,
        };
        let lock = answer.body.parser().get::<UnixFd>().ok().and_then(UnixFd::take_raw_fd);
        let Some(lock) = lock else {
            return Err(BusError::Nonsense { method: "Inhibit".to_owned(), expected: "a file descriptor" });
        };
        // SAFETY: it was received with this answer and taken out of it, so that nobody else closes it.
        let lock = unsafe { OwnedFd::from_raw_fd(lock) };
        crate::host::files::close_on_exec(std::os::fd::AsFd::as_fd(&lock));
        Ok(Some(lock))
    }

    /// Waits for logind's word: a shutdown begins (true) or was called off (false). `None` if the bell rang or `until` came.
    ///
    /// # Errors
    /// The connection broke.
    pub fn next(&mut self, bell: &Bell, until: Option<Instant>) -> Result<Option<bool>, BusError> {
        loop {
            while let Some(signal) = self.bus.arrived()? {
                let header = &signal.dynheader;
                let is_it = header.member.as_deref() == Some("PrepareForShutdown")
                    && header.interface.as_deref() == Some(LOGIND.interface);
                if is_it && let Ok(begins) = signal.body.parser().get::<bool>() {
                    return Ok(Some(begins));
                }
            }
            let broken = |error: std::io::Error| BusError::NoAnswer {
                method: "(signals)".to_owned(),
                source: rustbus::connection::Error::IoError(error),
            };
            let [readable] = bell.wait([self.bus.socket()], until).map_err(broken)?;
            if !readable {
                return Ok(None);
            }
        }
    }

    fn property<T>(&mut self, name: &str, expected: &'static str) -> Result<T, BusError>
    where
        T: for<'buf, 'fds> rustbus::Unmarshal<'buf, 'fds>,
    {
        let answer = self.bus.call(&PROPERTIES, "Get", &|body| body.push_param2(LOGIND.interface, name))?;
        let value = answer.body.parser().get::<Variant<'_, '_>>().ok().and_then(|value| value.get::<T>().ok());
        value.ok_or_else(|| BusError::Nonsense { method: format!("Get {name}"), expected })
    }
}

fn push3(
    body: &mut rustbus::message_builder::MarshalledMessageBody,
    unit: &str,
    whom: &str,
    signal: i32,
) -> Result<(), rustbus::wire::errors::MarshalError> {
    body.push_param3(unit, whom, signal)
}

/// Writes logind's configuration, in the folder of its additions, to let locks hold a shutdown up for `delay`.
///
/// # Errors
/// The file cannot be written.
pub fn write_delay(folder: &Path, delay: Duration) -> Result<(), HostError> {
    crate::host::files::ensure_folder(folder, 0o755)?;
    let seconds = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
    let text = format!(
        "# Written by ferrolet, for shutdownGracePeriod; the kubelet has it under the same name.\n[Login]\n\
         InhibitDelayMaxSec={seconds}\n"
    );
    let file = folder.join(DROP_IN);
    write_atomic(&file, text.as_bytes(), 0o644)
        .map_err(|error| HostError::io("write", &file, std::io::Error::other(error)))
}

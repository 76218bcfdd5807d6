//! D-Bus: calls to systemd and logind, and logind's signals, over one blocking connection.
//!
//! Layer L1; whoever calls, waits, at most [`ANSWER_TIME`] for an answer. A connection belongs to its caller. It runs nothing by
//! itself, and nothing is open until somebody asks. The library is named here and nowhere else.

pub mod logind;
#[cfg(test)]
pub(crate) mod test_bus;
pub mod units;

use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix_of_rustbus::sys::socket::UnixAddr;
use rustbus::connection::{Error as Trouble, Timeout, ll_conn::force_finish_on_error};
use rustbus::message_builder::{MarshalledMessage, MarshalledMessageBody, MessageBuilder};
use rustbus::wire::errors::MarshalError;
use rustbus::{MessageType, RpcConn};

/// The machine's bus.
pub const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";
/// How long an answer may take.
pub const ANSWER_TIME: Duration = Duration::from_secs(10);

/// What went wrong between this process and somebody on the bus.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// The bus is not there, or does not let this process in.
    #[error("cannot connect to D-Bus at {}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the library says.
        source: Trouble,
    },
    /// The connection broke, or no answer came in time.
    #[error("D-Bus call {method} got no answer")]
    NoAnswer {
        /// The method.
        method: String,
        /// What the library says.
        source: Trouble,
    },
    /// The other side refused.
    #[error("D-Bus call {method} was refused: {message} ({name})")]
    Refused {
        /// The method.
        method: String,
        /// Name of the error.
        name: String,
        /// What the other side says.
        message: String,
    },
    /// An answer or a signal was not what its interface says.
    #[error("D-Bus call {method} was answered with something else than {expected}")]
    Nonsense {
        /// The method.
        method: String,
        /// What should have come.
        expected: &'static str,
    },
    /// A call could not be put into bytes.
    #[error("D-Bus call {method} cannot be written: {why}")]
    Unwritable {
        /// The method.
        method: String,
        /// What the library says.
        why: String,
    },
}

impl BusError {
    /// Whether the other side refused with an error of this name.
    pub fn is(&self, error_name: &str) -> bool {
        matches!(self, Self::Refused { name, .. } if name == error_name)
    }
}

/// Where the machine's bus is: as `DBUS_SYSTEM_BUS_ADDRESS` says, else in its usual place.
pub fn system_bus() -> PathBuf {
    let told = std::env::var("DBUS_SYSTEM_BUS_ADDRESS").ok();
    let path = told.as_deref().and_then(|address| address.strip_prefix("unix:path="));
    path.map_or_else(|| PathBuf::from(SYSTEM_BUS), |path| PathBuf::from(path.split(',').next().unwrap_or(path)))
}

/// An object and one of its interfaces.
struct Target {
    service: &'static str,
    object: &'static str,
    interface: &'static str,
}

/// One connection to the bus.
struct Bus {
    conn: RpcConn,
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus").finish_non_exhaustive()
    }
}

/// Puts arguments into a call.
type Fill<'a> = &'a dyn Fn(&mut MarshalledMessageBody) -> Result<(), MarshalError>;

impl Bus {
    fn connect(path: &Path) -> Result<Self, BusError> {
        let failed = |source| BusError::Connect { path: path.to_path_buf(), source };
        let address = UnixAddr::new(path).map_err(|error| failed(Trouble::IoError(error.into())))?;
        let conn = RpcConn::connect_to_path(address, Timeout::Duration(ANSWER_TIME)).map_err(failed)?;
        let bus = Self { conn };
        // Programs that this process starts have no business with it.
        super::files::close_on_exec(bus.socket());
        Ok(bus)
    }

    fn socket(&self) -> BorrowedFd<'_> {
        // SAFETY: the connection owns the descriptor, and is borrowed as long as this is.
        unsafe { BorrowedFd::borrow_raw(self.conn.conn().recv.as_raw_fd()) }
    }

    fn call(&mut self, target: &Target, method: &str, fill: Fill<'_>) -> Result<MarshalledMessage, BusError> {
        let mut call = MessageBuilder::new()
            .call(method)
            .with_interface(target.interface)
            .on(target.object)
            .at(target.service)
            .build();
        let method = || method.to_owned();
        fill(&mut call.body).map_err(|error| BusError::Unwritable { method: method(), why: error.to_string() })?;
        let failed = |source| BusError::NoAnswer { method: method(), source };
        let limit = Timeout::Duration(ANSWER_TIME);
        let sent = self.conn.send_message(&mut call).map_err(failed)?;
        let serial = sent.write(limit).map_err(force_finish_on_error).map_err(failed)?;
        let answer = self.conn.wait_response(serial, limit).map_err(failed)?;
        if answer.typ == MessageType::Error {
            let name = answer.dynheader.error_name.clone().unwrap_or_default();
            let message = answer.body.parser().get::<String>().unwrap_or_default();
            return Err(BusError::Refused { method: method(), name, message });
        }
        Ok(answer)
    }

    /// Has the bus send the signals that match.
    fn subscribe(&mut self, rule: &str) -> Result<(), BusError> {
        let bus = Target {
            service: "org.freedesktop.DBus",
            object: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
        };
        self.call(&bus, "AddMatch", &|body| body.push_param(rule)).map(drop)
    }

    /// The next signal that has arrived, without waiting for one.
    fn arrived(&mut self) -> Result<Option<MarshalledMessage>, BusError> {
        if let Some(signal) = self.conn.try_get_signal() {
            return Ok(Some(signal));
        }
        self.conn.refill_all().map_err(|source| BusError::NoAnswer { method: "(signals)".to_owned(), source })?;
        Ok(self.conn.try_get_signal())
    }
}

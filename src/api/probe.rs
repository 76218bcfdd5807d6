//! One attempt of a probe: what is asked of a container, and what came of it.
//!
//! Layer L0, plain data: `core::probe` decides what is attempted and when, the ports carry it out. Names are
//! resolved here already: ports are numbers, hosts are addresses or names of the manifest.

use std::time::Duration;

/// What an attempt does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeAction {
    /// Runs a command in the container.
    Exec {
        /// The command, its references to variables filled in.
        command: Vec<String>,
    },
    /// Asks over the network.
    Net(NetAction),
}

/// What an attempt asks over the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetAction {
    /// Asks a web server.
    Http {
        /// Whether over TLS; no certificate is verified.
        tls: bool,
        /// Where it is.
        host: String,
        /// Its port.
        port: u16,
        /// Path and query as the manifest has them.
        path: String,
        /// Header fields in the manifest's order.
        headers: Vec<(String, String)>,
    },
    /// Opens a connection.
    Tcp {
        /// Where to.
        host: String,
        /// Its port.
        port: u16,
    },
    /// Calls `grpc.health.v1.Health/Check`.
    Grpc {
        /// Where it is.
        host: String,
        /// Its port.
        port: u16,
        /// The service that is asked about; empty for the server as a whole.
        service: String,
    },
}

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeCall {
    /// What to do.
    pub action: ProbeAction,
    /// When to give up.
    pub timeout: Duration,
}

/// What an attempt came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// All is well.
    Success,
    /// It counts as a success, and people should know this.
    Warning(String),
    /// It is not well, for this reason.
    Failure(String),
    /// The container is not there any more: it counts neither way, and is no news.
    Gone,
    /// Nothing was found out; it counts neither way.
    Errored {
        /// The state that events give it.
        state: ErroredState,
        /// Why, in plain words.
        why: String,
    },
}

/// The word for an attempt by which nothing was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErroredState {
    /// It broke off in the middle of an answer.
    Failure,
    /// It could not be made.
    Unknown,
}

impl ErroredState {
    /// As events say it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failure => "failure",
            Self::Unknown => "unknown",
        }
    }
}

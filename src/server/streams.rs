//! What logs and sessions of the node's server work with, from the configuration.
//!
//! Built once where the house is joined; shared by the threads of the connections. Owns the sessions.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::relay::Relay;

/// The folder of the node's own logs, as upstream has it.
const LOG_FOLDER: &str = "/var/log";

/// What logs and sessions work with.
#[derive(Clone, Debug)]
pub struct StreamParts {
    /// The sessions of exec, attach and port forwarding.
    pub relay: Arc<Relay>,
    /// `enableSystemLogQuery`.
    pub log_query: bool,
    /// The gate `PodLogsQuerySplitStreams`.
    pub split_streams: bool,
    /// The gate `ContainerCheckpoint`.
    pub checkpoints: bool,
    /// The gate `ExtendWebSocketsToKubelet`: WebSockets of an API server become what the runtime speaks.
    pub websockets: bool,
    /// The folder of the node's own logs.
    pub log_folder: PathBuf,
    /// The program that reads the journal.
    pub journalctl: PathBuf,
}

impl StreamParts {
    /// What the configuration says: a session in which nothing moves for `idle` ends; `log_query` is `enableSystemLogQuery`; `is_on` tells of
    /// a feature gate whether it is on.
    ///
    /// # Errors
    /// The kernel has no descriptor left.
    pub fn new(idle: Duration, log_query: bool, is_on: &dyn Fn(&str) -> bool) -> io::Result<Self> {
        Ok(Self {
            relay: Arc::new(Relay::new(idle)?),
            log_query: log_query && is_on("NodeLogQuery"),
            split_streams: is_on("PodLogsQuerySplitStreams"),
            checkpoints: is_on("ContainerCheckpoint"),
            websockets: is_on("ExtendWebSocketsToKubelet"),
            log_folder: PathBuf::from(LOG_FOLDER),
            journalctl: PathBuf::from("journalctl"),
        })
    }
}

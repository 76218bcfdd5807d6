//! How much of everything there may be at the node's server: connections, threads, time.
//!
//! Plain numbers; each bounds memory or threads whatever clients do.

use std::time::Duration;

/// The limits.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections in all. Where another comes, the one that waits longest goes; where none waits, the new one.
    pub connections: usize,
    /// Connections that wait: for TLS, for a head, for the next request.
    pub waiting: usize,
    /// Threads that serve requests.
    pub workers: usize,
    /// Those of them that serve answers that last long.
    pub long: usize,
    /// Requests that wait for a thread.
    pub queued: usize,
    /// Time for TLS to be agreed on, and for a head from its first byte to its last.
    pub head: Duration,
    /// Time for a body.
    pub body: Duration,
    /// How long a connection may wait for its next request.
    pub idle: Duration,
    /// How long a client may take nothing of an answer.
    pub stall: Duration,
    /// The same for answers that last long: a pager that nobody scrolls.
    pub long_stall: Duration,
    /// How long, and for how many bytes, it is listened to a client that got its last answer, so that it can read it.
    pub linger: (Duration, usize),
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 2048,
            waiting: 512,
            workers: 288,
            long: 256,
            queued: 256,
            head: Duration::from_secs(10),
            body: Duration::from_secs(60),
            // As upstream, whose clients count on it.
            idle: Duration::from_secs(90),
            stall: Duration::from_secs(30),
            long_stall: Duration::from_secs(3600),
            linger: (Duration::from_secs(1), 256 << 10),
        }
    }
}

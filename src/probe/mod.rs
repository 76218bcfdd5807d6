//! The port for probes over the network: one bounded attempt of httpGet, tcpSocket or grpc.
//!
//! Called on the prober's pool threads; owns no connection between two attempts. Each ends at its deadline whatever the
//! other side does (but for the resolver of a host name, which std cannot interrupt), verifies no certificate, uses no
//! proxy, and closes so that no socket is left waiting. The words of failures are those that clusters know. It decides
//! nothing about containers.

mod conn;
mod grpc;
mod http;

use std::time::{Duration, Instant};

use crate::api::probe::{NetAction, ProbeOutcome};

/// The agent's name towards what it probes, as servers know it from the kubelet.
const USER_AGENT: &str = "kube-probe/1.36";

/// Its name towards the httpGet hooks that it runs.
const HOOK_AGENT: &str = "kube-lifecycle/1.36";

/// A GET that had no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GetError {
    /// The server at an https URL speaks plain HTTP.
    #[error("Get {url:?}: http: server gave HTTP response to HTTPS client")]
    NotTls {
        /// The URL.
        url: String,
    },
    /// Anything else on the way there and back.
    #[error("Get {url:?}: {why}")]
    Failed {
        /// The URL, as the manifest or a redirect has it.
        url: String,
        /// What went wrong, in the words that clusters know.
        why: String,
    },
}

/// Makes attempts.
#[derive(Debug, Default)]
pub struct NetProber {
    https: http::Https,
}

impl NetProber {
    /// Runs an httpGet hook: asks as a probe does, and any answer will do. Its status code.
    ///
    /// # Errors
    /// There is no answer within `timeout`.
    pub fn call_hook(
        &self,
        (tls, host, port, path): (bool, &str, u16, &str),
        headers: &[(String, String)],
        timeout: Duration,
    ) -> Result<u16, GetError> {
        let url = http::Url::new(tls, host, port, path);
        http::status(&self.https, &url, headers, HOOK_AGENT, Instant::now() + timeout)
    }

    /// Makes one attempt, within `timeout`.
    pub fn attempt(&self, action: &NetAction, timeout: Duration) -> ProbeOutcome {
        let deadline = Instant::now() + timeout;
        match action {
            NetAction::Http { tls, host, port, path, headers } => {
                http::get(&self.https, &http::Url::new(*tls, host, *port, path), headers, deadline)
            }
            NetAction::Tcp { host, port } => match conn::Conn::open(host, *port, deadline) {
                // It is broken off when it is dropped.
                Ok(_) => ProbeOutcome::Success,
                Err(error) => ProbeOutcome::Failure(error.to_string()),
            },
            NetAction::Grpc { host, port, service } => grpc::check(host, *port, service, timeout, deadline),
        }
    }
}

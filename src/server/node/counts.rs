//! What the server counts, for the metrics: requests by method, path and kind of server, how long they took, and connections.
//!
//! Shared by the threads of the server; the lock is held for an addition. Labels are of a bounded number: what nobody registered is `other`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::http::Method;
use crate::util::metrics::kubelet;

/// First segments of paths that are told apart; of `metrics` and what is below it each is one.
const PATHS: &[&str] = &[
    "healthz",
    "pods",
    "stats",
    "metrics",
    "metrics/cadvisor",
    "metrics/probes",
    "metrics/resource",
    "run",
    "exec",
    "attach",
    "portForward",
    "containerLogs",
    "configz",
    "runningpods",
    "checkpoint",
    "flagz",
    "statusz",
    "logs",
    "debug",
    "pprof",
];

/// By what requests are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Labels {
    /// Method, or `other`.
    pub method: &'static str,
    /// First segment of the path, or `other`.
    pub path: &'static str,
    /// `readwrite` or `readonly`.
    pub server_type: &'static str,
}

impl Labels {
    /// Of a request.
    pub fn of(method: Method, path: &str, is_read_only: bool) -> Self {
        let path = path.trim_start_matches('/');
        let mut segments = path.split('/');
        let first = segments.next().unwrap_or_default();
        let known = |name: &str| PATHS.iter().find(|known| **known == name).copied();
        let path = match segments.next().filter(|_| first == "metrics") {
            Some(second) => known(&format!("metrics/{second}")),
            None => known(first),
        };
        let method = match method {
            // Upstream has no name for PATCH here.
            Method::Patch | Method::Other => "other",
            known => known.as_str(),
        };
        let server_type = if is_read_only { "readonly" } else { "readwrite" };
        Self { method, path: path.unwrap_or("other"), server_type }
    }

    /// As metrics have them.
    fn values(&self) -> [&'static str; 4] {
        let long = if self.is_long_running() { "true" } else { "false" };
        [long, self.method, self.path, self.server_type]
    }

    /// Whether such requests last as long as the client likes, as upstream has it.
    pub fn is_long_running(&self) -> bool {
        // Upstream looks for "portforward", which no path is.
        ["exec", "attach", "debug"].contains(&self.path)
    }
}

/// All that is counted.
#[derive(Debug, Default)]
pub struct Counts {
    /// Connections that were taken.
    pub connections: AtomicU64,
    /// Connections that were closed to make room, requests that found none included.
    pub crowded_out: AtomicU64,
    /// Connections that ended because what came was no request, or no TLS.
    pub refused: AtomicU64,
    /// Connections that ended because a request did not come in time.
    pub too_slow: AtomicU64,
}

/// A request under way; counted as ended on drop.
#[derive(Debug)]
pub struct Running {
    labels: Labels,
    since: Instant,
}

impl Drop for Running {
    fn drop(&mut self) {
        let values = self.labels.values();
        kubelet::HTTP_INFLIGHT.add(&values, -1.0);
        kubelet::HTTP_DURATION.observe(&values, self.since.elapsed());
    }
}

impl Counts {
    /// A request begins.
    pub fn begin(&self, labels: Labels) -> Running {
        let values = labels.values();
        kubelet::HTTP_REQUESTS.inc(&values);
        kubelet::HTTP_INFLIGHT.add(&values, 1.0);
        Running { labels, since: Instant::now() }
    }

    /// One more.
    pub(super) fn add(number: &AtomicU64) {
        number.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_of_a_bounded_number() {
        for (method, path, expect) in [
            (Method::Get, "/pods", "GET pods false"),
            (Method::Get, "/metrics", "GET metrics false"),
            (Method::Get, "/metrics/cadvisor", "GET metrics/cadvisor false"),
            (Method::Get, "/metrics/slis", "GET other false"),
            (Method::Post, "/exec/a/b/c", "POST exec true"),
            (Method::Get, "/portForward/a/b", "GET portForward false"),
            (Method::Put, "/debug/flags/v", "PUT debug true"),
            (Method::Other, "/../x", "other other false"),
            (Method::Get, "/", "GET other false"),
        ] {
            let labels = Labels::of(method, path, false);
            assert_eq!(format!("{} {} {}", labels.method, labels.path, labels.is_long_running()), expect);
        }
    }

    #[test]
    fn requests_are_counted_when_they_begin_and_when_they_end() {
        let counts = Counts::default();
        // No other test asks for this.
        let labels = Labels { method: "GET", path: "a test", server_type: "readonly" };
        let values = labels.values();
        let count = || {
            let under_way = kubelet::HTTP_INFLIGHT.get(&values);
            (kubelet::HTTP_REQUESTS.get(&values), under_way, kubelet::HTTP_DURATION.count(&values))
        };
        let running = counts.begin(labels);
        assert_eq!(count(), (1, Some(1.0), 0));
        drop(running);
        assert_eq!(count(), (1, Some(0.0), 1));
    }
}

//! What the server counts, for the metrics: requests by method, path and kind of server, how long they took, and connections.
//!
//! Shared by the threads of the server; the lock is held for an addition. Labels are of a bounded number: what nobody registered is `other`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::http::Method;

/// Upper bounds of the durations' buckets, in seconds: Prometheus' default ones.
pub const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

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

    /// Whether such requests last as long as the client likes, as upstream has it.
    pub fn is_long_running(&self) -> bool {
        // Upstream looks for "portforward", which no path is.
        ["exec", "attach", "debug"].contains(&self.path)
    }
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Requests {
    /// All that came.
    pub total: u64,
    /// Those under way.
    pub in_flight: u64,
    /// Those that ended.
    pub ended: u64,
    /// How long these took together, in seconds.
    pub seconds: f64,
    /// How many of them took no longer than each of [`BUCKETS`].
    pub within: [u64; BUCKETS.len()],
}

/// All that is counted.
#[derive(Debug, Default)]
pub struct Counts {
    requests: Mutex<BTreeMap<Labels, Requests>>,
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
pub struct Running<'a> {
    counts: &'a Counts,
    labels: Labels,
    since: Instant,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.counts.end(self.labels, self.since.elapsed());
    }
}

impl Counts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Labels, Requests>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request begins.
    pub fn begin(&self, labels: Labels) -> Running<'_> {
        let mut all = self.lock();
        let requests = all.entry(labels).or_default();
        requests.total += 1;
        requests.in_flight += 1;
        Running { counts: self, labels, since: Instant::now() }
    }

    fn end(&self, labels: Labels, took: Duration) {
        let mut all = self.lock();
        let requests = all.entry(labels).or_default();
        requests.in_flight = requests.in_flight.saturating_sub(1);
        requests.ended += 1;
        let seconds = took.as_secs_f64();
        requests.seconds += seconds;
        for (within, bound) in requests.within.iter_mut().zip(BUCKETS) {
            *within += u64::from(seconds <= bound);
        }
    }

    /// All kinds of requests that came.
    pub fn requests(&self) -> Vec<(Labels, Requests)> {
        self.lock().iter().map(|(labels, requests)| (*labels, *requests)).collect()
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
        let labels = Labels::of(Method::Get, "/pods", true);
        let running = counts.begin(labels);
        assert_eq!(counts.requests(), [(labels, Requests { total: 1, in_flight: 1, ..Requests::default() })]);
        drop(running);
        counts.end(labels, Duration::from_millis(300));
        let (_, requests) = counts.requests()[0];
        assert_eq!((requests.total, requests.in_flight, requests.ended), (1, 0, 2));
        assert_eq!((requests.within[4], requests.within[6], requests.within[10]), (1, 2, 2), "{requests:?}");
    }
}

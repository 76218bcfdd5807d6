//! When the machine's last shutdown was waited for, and how long: the kubelet's file and metrics.
//!
//! On the thread `shutdown` alone. Owns `graceful_node_shutdown_state`, which the kubelet reads and writes as well. A file that cannot be
//! written or read costs a warning: no shutdown waits for it.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::api::runtime::UnixNanos;
use crate::host::explain;
use crate::util::fs::{read_bounded, write_atomic};
use crate::util::{clock, metrics::kubelet};

/// Below the agent's folder, as the kubelet has it.
pub(super) const FILE: &str = "graceful_node_shutdown_state";
/// More is no such file.
const LONGEST: u64 = 4096;
/// How the kubelet writes a time that has not come.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// The record of one agent; without a path nothing is recorded.
#[derive(Debug)]
pub(super) struct Record {
    path: Option<PathBuf>,
    /// When the shutdown began that is waited for.
    began: Option<UnixNanos>,
}

impl Record {
    /// Has the metrics tell of the shutdown before this start.
    pub(super) fn open(path: Option<PathBuf>) -> Self {
        if let Some(path) = &path {
            match read_bounded(path, LONGEST) {
                Ok(bytes) => match serde_json::from_slice::<Value>(&bytes) {
                    Ok(state) => {
                        let seconds = |key: &str| {
                            let time = state[key].as_str()?.parse::<jiff::Timestamp>().ok()?;
                            Some(time.as_second()).filter(|second| *second > 0)
                        };
                        for (key, metric) in
                            [("startTime", &kubelet::SHUTDOWN_START), ("endTime", &kubelet::SHUTDOWN_END)]
                        {
                            metric.set(seconds(key).unwrap_or(0) as f64);
                        }
                    }
                    Err(error) => log::warn!("{} is left as it is, it cannot be read: {error}", path.display()),
                },
                Err(error) if error.is_not_found() => {
                    kubelet::SHUTDOWN_START.set(0.0);
                    kubelet::SHUTDOWN_END.set(0.0);
                }
                Err(error) => log::warn!("when this machine last shut down is not known: {}", explain(&error)),
            }
        }
        Self { path, began: None }
    }

    /// A shutdown begins.
    pub(super) fn begin(&mut self) {
        let now = clock::wall();
        self.began = Some(now);
        self.write(now, None);
    }

    /// The pods have ended, and the machine goes.
    pub(super) fn end(&mut self) {
        if let Some(began) = self.began.take() {
            self.write(began, Some(clock::wall()));
        }
    }

    fn write(&self, began: UnixNanos, ended: Option<UnixNanos>) {
        let Some(path) = &self.path else { return };
        let second = |time: UnixNanos| (time / 1_000_000_000) as f64;
        kubelet::SHUTDOWN_START.set(second(began));
        kubelet::SHUTDOWN_END.set(ended.map_or(0.0, second));
        let text = |time: UnixNanos| {
            jiff::Timestamp::from_nanosecond(i128::from(time))
                .map_or_else(|_| NEVER.to_owned(), |time| time.to_string())
        };
        let state = json!({ "startTime": text(began), "endTime": ended.map_or_else(|| NEVER.to_owned(), text) });
        if let Err(error) = write_atomic(path, state.to_string().as_bytes(), 0o644) {
            log::warn!("the times of this machine's shutdown are not kept: {}", explain(&error));
        }
    }
}

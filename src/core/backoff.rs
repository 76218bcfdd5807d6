//! Crash back-off of a container: how long a restart waits.
//!
//! Layer L1, pure. The first restart is immediate, the next waits 10 s after the exit, each one after
//! that twice as long up to `crashLoopBackOff.maxContainerRestartPeriod`; ten minutes between a restart
//! and the next exit start it anew, as with the upstream kubelet. Monotonic time only.

use std::time::Duration;

use crate::api::moment::Moment;

/// Limits of the back-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffLimits {
    /// Delay of the second restart.
    pub initial: Duration,
    /// Longest delay.
    pub max: Duration,
    /// A container that ran this long starts anew.
    pub reset_after: Duration,
}

impl BackoffLimits {
    /// Upstream's values with the node's own maximum (1 s to 300 s).
    pub fn with_max(max: Duration) -> Self {
        Self { initial: Duration::from_secs(10).min(max), max, reset_after: Duration::from_secs(600) }
    }
}

/// Back-off state of one container, from its first restart on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashBackoff {
    /// Delay that the next restart waits after an exit.
    pub delay: Duration,
    /// When it was last restarted.
    pub restarted_at: Moment,
}

/// Whether a container that exited may start again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Now; this is its state afterwards.
    Start(CrashBackoff),
    /// Not before `until`.
    Wait {
        /// When the delay is over.
        until: Moment,
        /// The whole delay, for the message.
        delay: Duration,
    },
}

/// Decides for a container that exited at `exited_at`.
pub fn decide(state: Option<CrashBackoff>, exited_at: Moment, now: Moment, limits: &BackoffLimits) -> Decision {
    let fresh = Decision::Start(CrashBackoff { delay: limits.initial, restarted_at: now });
    let Some(state) = state else { return fresh };
    if exited_at.since(state.restarted_at) > limits.reset_after {
        return fresh;
    }
    let delay = state.delay.min(limits.max);
    let until = exited_at + delay;
    if now < until {
        return Decision::Wait { until, delay };
    }
    Decision::Start(CrashBackoff { delay: (delay * 2).min(limits.max), restarted_at: now })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Crashes at once after every start and says how long each restart waited, in seconds.
    fn waits(max: u64, crashes: usize) -> Vec<u64> {
        let limits = BackoffLimits::with_max(Duration::from_secs(max));
        let mut state = None;
        let mut now = Moment::default();
        let mut waited = Vec::new();
        for _ in 0..crashes {
            let exited_at = now;
            loop {
                match decide(state, exited_at, now, &limits) {
                    Decision::Start(next) => {
                        state = Some(next);
                        break;
                    }
                    Decision::Wait { until, .. } => now = until,
                }
            }
            waited.push(now.since(exited_at).as_secs());
        }
        waited
    }

    #[test]
    fn restarts_wait_nothing_then_ten_seconds_doubling_to_the_maximum() {
        assert_eq!(waits(300, 8), [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(waits(15, 4), [0, 10, 15, 15]);
        assert_eq!(waits(1, 3), [0, 1, 1]);
    }

    #[test]
    fn ten_quiet_minutes_start_it_anew() {
        let limits = BackoffLimits::with_max(Duration::from_secs(300));
        let state = Some(CrashBackoff { delay: Duration::from_secs(160), restarted_at: Moment::default() });
        let at = |s| Moment::from_boot(Duration::from_secs(s));
        assert_eq!(
            decide(state, at(600), at(600), &limits),
            Decision::Wait { until: at(760), delay: Duration::from_secs(160) }
        );
        assert_eq!(
            decide(state, at(601), at(601), &limits),
            Decision::Start(CrashBackoff { delay: Duration::from_secs(10), restarted_at: at(601) })
        );
    }
}

//! Exponential back-off of one thing that fails: 10 s doubling to 300 s where upstream does so.
//!
//! Layer L0, pure: `now` is an argument. Used for image pulls, sources and the store. Not for crashing
//! containers, whose first restart is immediate and whose delay counts from the exit (`core::backoff`).

use std::time::Duration;

use crate::api::moment::Moment;

/// First delay and longest delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffPolicy {
    /// Delay after the first failure.
    pub initial: Duration,
    /// Longest delay.
    pub max: Duration,
}

impl BackoffPolicy {
    /// What upstream uses for image pulls: 10 s to 300 s.
    pub const PULL: Self = Self { initial: Duration::from_secs(10), max: Duration::from_secs(300) };
}

/// State after at least one failure; no failure, no state (`Option<Backoff>`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Current delay.
    pub delay: Duration,
    /// When it last failed.
    pub failed_at: Moment,
}

impl Backoff {
    /// The state after one more failure at `now`. Twice the longest delay without a failure starts it
    /// anew.
    pub fn after_failure(before: Option<Self>, policy: &BackoffPolicy, now: Moment) -> Self {
        let delay = match before {
            Some(before) if !before.is_over(policy, now) => before.delay.saturating_mul(2).min(policy.max),
            _ => policy.initial.min(policy.max),
        };
        Self { delay, failed_at: now }
    }

    /// When it may be tried again.
    pub fn until(&self) -> Moment {
        self.failed_at + self.delay
    }

    /// Whether it may not be tried yet.
    pub fn is_waiting(&self, now: Moment) -> bool {
        now < self.until()
    }

    /// Whether it failed so long ago that it counts no more and the state can be dropped.
    pub fn is_over(&self, policy: &BackoffPolicy, now: Moment) -> bool {
        now.since(self.failed_at) > policy.max.saturating_mul(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn delays_double_to_the_longest() {
        let mut state = None;
        let mut now = at(0);
        let mut delays = Vec::new();
        for _ in 0..7 {
            let next = Backoff::after_failure(state, &BackoffPolicy::PULL, now);
            delays.push(next.delay.as_secs());
            now = next.until();
            state = Some(next);
        }
        assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn it_waits_until_the_delay_is_over() {
        let state = Backoff::after_failure(None, &BackoffPolicy::PULL, at(100));
        assert!(state.is_waiting(at(109)));
        assert!(!state.is_waiting(at(110)));
    }

    #[test]
    fn twice_the_longest_delay_starts_it_anew() {
        let state = Backoff { delay: Duration::from_secs(160), failed_at: at(0) };
        let next = |now| Backoff::after_failure(Some(state), &BackoffPolicy::PULL, now).delay.as_secs();
        assert_eq!(next(at(600)), 300);
        assert_eq!(next(at(601)), 10);
    }

    #[test]
    fn the_first_delay_is_never_over_the_longest() {
        let policy = BackoffPolicy { initial: Duration::from_secs(10), max: Duration::from_secs(3) };
        assert_eq!(Backoff::after_failure(None, &policy, at(0)).delay, Duration::from_secs(3));
    }
}

//! A stamp that a thread moves when it has succeeded at what it is for; health checks read its age.
//!
//! Written by one owner, read by the health server. It never moves on an attempt, only on success, and
//! nothing wakes up to move it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::api::moment::Moment;

/// When something last succeeded.
#[derive(Debug, Default)]
pub struct Heartbeat {
    /// Milliseconds since boot, plus one; 0 for never.
    millis: AtomicU64,
}

impl Heartbeat {
    /// It succeeded at `now`.
    pub fn beat(&self, now: Moment) {
        let millis = u64::try_from(now.since_boot().as_millis()).unwrap_or(u64::MAX - 1);
        self.millis.store(millis + 1, Ordering::Relaxed);
    }

    /// How long ago it succeeded; `None` if it never did.
    pub fn age(&self, now: Moment) -> Option<Duration> {
        let millis = self.millis.load(Ordering::Relaxed).checked_sub(1)?;
        Some(now.since(Moment::from_boot(Duration::from_millis(millis))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_is_none_until_the_first_success() {
        let heart = Heartbeat::default();
        let at = |s| Moment::from_boot(Duration::from_secs(s));
        assert_eq!(heart.age(at(5)), None);
        heart.beat(at(5));
        assert_eq!(heart.age(at(7)), Some(Duration::from_secs(2)));
    }
}

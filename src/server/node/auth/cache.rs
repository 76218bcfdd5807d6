//! Answers that are remembered for a while, a bounded number of them.
//!
//! Used on the threads that serve requests; the lock is held for no longer than a look. Secrets are not kept: keys are digests.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::api::moment::Moment;

/// By what an answer is found.
pub(super) type Key = [u8; 32];

/// Remembered answers.
pub(super) struct Cache<V> {
    entries: Mutex<BTreeMap<Key, (Moment, V)>>,
    limit: usize,
}

impl<V> fmt::Debug for Cache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl<V: Clone> Cache<V> {
    /// Remembers at most `limit` answers.
    pub(super) fn new(limit: usize) -> Self {
        Self { entries: Mutex::default(), limit }
    }

    /// An answer that still counts.
    pub(super) fn get(&self, key: &Key, now: Moment) -> Option<V> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(key).filter(|(until, _)| now < *until).map(|(_, value)| value.clone())
    }

    /// Remembers an answer for `ttl`; not at all if that is zero. Where there is no room, those that count no more go,
    /// and then the one that would be the next.
    pub(super) fn put(&self, key: Key, value: V, ttl: Duration, now: Moment) {
        if ttl.is_zero() {
            return;
        }
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= self.limit && !entries.contains_key(&key) {
            entries.retain(|_, (until, _)| now < *until);
            if entries.len() >= self.limit
                && let Some(next) = entries.iter().min_by_key(|(_, (until, _))| *until).map(|(key, _)| *key)
            {
                entries.remove(&next);
            }
        }
        entries.insert(key, (now + ttl, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn answers_count_for_a_while() {
        let cache = Cache::new(3);
        cache.put([1; 32], "a", Duration::from_secs(10), at(0));
        cache.put([2; 32], "b", Duration::ZERO, at(0));
        assert_eq!(
            (cache.get(&[1; 32], at(9)), cache.get(&[1; 32], at(10)), cache.get(&[2; 32], at(0))),
            (Some("a"), None, None)
        );
        cache.put([1; 32], "c", Duration::from_secs(10), at(20));
        assert_eq!(cache.get(&[1; 32], at(29)), Some("c"));
    }

    #[test]
    fn there_are_never_more_than_the_limit() {
        let cache = Cache::new(2);
        cache.put([1; 32], 1, Duration::from_secs(100), at(0));
        cache.put([2; 32], 2, Duration::from_secs(10), at(0));
        cache.put([3; 32], 3, Duration::from_secs(50), at(1));
        assert_eq!([1, 2, 3].map(|key| cache.get(&[key; 32], at(1))), [Some(1), None, Some(3)], "the next to end went");
        cache.put([4; 32], 4, Duration::from_secs(10), at(60));
        assert_eq!(
            [1, 3, 4].map(|key| cache.get(&[key; 32], at(60))),
            [Some(1), None, Some(4)],
            "the one that had ended went"
        );
    }
}

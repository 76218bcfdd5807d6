//! A token bucket: so many a second on average, so many at once.
//!
//! Layer L0, pure: `now` is an argument. Used for image pulls (`registryPullQPS`, `registryBurst`).
//! It never waits: who gets no token decides what that means.

use crate::api::moment::Moment;

/// A bucket that starts full.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled_at: Option<Moment>,
}

impl TokenBucket {
    /// `per_second` 0 has no limit; otherwise a `burst` of 0 lets nothing through, as upstream.
    pub fn new(per_second: f64, burst: u32) -> Self {
        let burst = f64::from(burst);
        Self { per_second: per_second.max(0.0), burst, tokens: burst, filled_at: None }
    }

    /// Takes one token if there is one.
    pub fn try_take(&mut self, now: Moment) -> bool {
        if self.per_second == 0.0 {
            return true;
        }
        let since = self.filled_at.map_or(0.0, |filled_at| now.since(filled_at).as_secs_f64());
        self.tokens = (self.tokens + since * self.per_second).min(self.burst);
        // A moment before the last one must not fill the bucket twice.
        self.filled_at = self.filled_at.max(Some(now));
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Takes one token at each of the moments (milliseconds) and says which came through.
    fn check(per_second: f64, burst: u32, moments: &[u64], expect: &str) {
        let mut bucket = TokenBucket::new(per_second, burst);
        let got: String = moments
            .iter()
            .map(|ms| if bucket.try_take(Moment::from_boot(Duration::from_millis(*ms))) { '+' } else { '-' })
            .collect();
        assert_eq!(got, expect);
    }

    #[test]
    fn zero_has_no_limit() {
        check(0.0, 0, &[0, 0, 0], "+++");
    }

    #[test]
    fn a_burst_passes_at_once_and_then_the_rate_counts() {
        check(5.0, 3, &[0, 0, 0, 0, 199, 200, 201, 400], "+++--+-+");
    }

    #[test]
    fn a_long_rest_fills_it_to_the_burst_only() {
        check(1.0, 2, &[0, 0, 1_000_000, 1_000_000, 1_000_000], "++++-");
    }

    #[test]
    fn a_burst_of_zero_stops_everything() {
        check(5.0, 0, &[0, 60_000], "--");
    }

    #[test]
    fn time_that_goes_back_gives_nothing() {
        check(1.0, 1, &[5_000, 4_000, 5_000, 5_999, 6_000], "+---+");
    }
}

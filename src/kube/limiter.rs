//! How many requests a second the agent makes: kubeAPIQPS on average, kubeAPIBurst at once.
//!
//! Pure: `now` is an argument. Owned by the client, asked on the calling threads. Requests get their
//! turn in the order in which they asked; nobody waits in here.

use std::time::Duration;

use crate::api::moment::Moment;

/// A bucket of tokens that may go below empty: who takes a token of the future waits for it.
#[derive(Clone, Debug)]
pub(super) struct Limiter {
    /// `None` has no limit.
    per_second: Option<f64>,
    burst: f64,
    tokens: f64,
    at: Option<Moment>,
}

impl Limiter {
    /// A negative `per_second` has no limit, 0 is the usual 50; a burst of 0 is the usual 100.
    pub(super) fn new(per_second: f64, burst: u32) -> Self {
        let per_second = if per_second == 0.0 { 50.0 } else { per_second };
        let burst = f64::from(if burst == 0 { 100 } else { burst });
        Self { per_second: (per_second > 0.0).then_some(per_second), burst, tokens: burst, at: None }
    }

    /// Takes a token and says how long to wait for it; takes none if that is longer than `patience`.
    ///
    /// # Errors
    /// The wait would be too long; its length.
    pub(super) fn take(&mut self, now: Moment, patience: Duration) -> Result<Duration, Duration> {
        let Some(per_second) = self.per_second else { return Ok(Duration::ZERO) };
        let since = self.at.map_or(0.0, |at| now.since(at).as_secs_f64());
        self.tokens = (self.tokens + since * per_second).min(self.burst);
        self.at = self.at.max(Some(now));
        let after = self.tokens - 1.0;
        let wait = Duration::try_from_secs_f64((-after / per_second).max(0.0)).unwrap_or(Duration::MAX);
        if wait > patience {
            return Err(wait);
        }
        self.tokens = after;
        Ok(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks at each of the moments (milliseconds) and prints the waits in milliseconds; `!` is a refusal.
    fn check(per_second: f64, burst: u32, moments: &[u64], expect: &str) {
        let mut limiter = Limiter::new(per_second, burst);
        let one = |ms: &u64| match limiter.take(Moment::from_boot(Duration::from_millis(*ms)), Duration::from_secs(1)) {
            Ok(wait) => wait.as_millis().to_string(),
            Err(wait) => format!("!{}", wait.as_millis()),
        };
        assert_eq!(moments.iter().map(one).collect::<Vec<_>>().join(" "), expect);
    }

    #[test]
    fn a_burst_goes_through_and_the_rest_waits_its_turn() {
        check(-1.0, 1, &[0, 0, 0], "0 0 0");
        check(10.0, 2, &[0, 0, 0, 0, 1000, 1000], "0 0 100 200 0 0");
        check(1.0, 1, &[0, 0, 0, 500], "0 1000 !2000 !1500");
        check(10.0, 1, &[1000, 500, 1000], "0 100 200");
        check(0.0, 0, &[0; 3], "0 0 0");
    }
}

//! Chance, so that many nodes do not do the same thing in the same moment.
//!
//! Used by agents and ports on any thread; owns nothing. No secret may hang on it.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

/// A number from 0 up to 1.
pub fn chance() -> f64 {
    // Each state has keys of its own; 53 bits fill the digits of the result.
    let bits = RandomState::new().build_hasher().finish() >> 11;
    #[allow(clippy::cast_precision_loss)]
    let share = bits as f64 / (1_u64 << 53) as f64;
    share
}

/// A time from zero up to `most`.
pub fn up_to(most: Duration) -> Duration {
    most.mul_f64(chance())
}

/// `span`, made longer by chance, at most by `share` of it.
pub fn longer_by(span: Duration, share: f64) -> Duration {
    span + span.mul_f64(share.max(0.0) * chance())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_differs_and_keeps_its_bounds() {
        let span = Duration::from_secs(10);
        let draws: Vec<_> = (0..100).map(|_| longer_by(span, 0.5)).collect();
        assert!(draws.iter().all(|draw| (span..=span * 3 / 2).contains(draw)), "{draws:?}");
        assert!(draws.iter().any(|draw| *draw != draws[0]), "a hundred equal draws are no chance");
        assert!((0..100).all(|_| up_to(span) < span));
    }
}

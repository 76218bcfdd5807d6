//! Monotonic time as decisions use it, and the pair of clocks that a turn of the sync loop carries.
//!
//! Layer L0, pure. A [`Moment`] counts from the machine's boot (CLOCK_BOOTTIME), so that it goes on
//! through suspend, is not moved by anybody setting the wall clock, and can be compared after a
//! restart of the agent. Nothing here reads a clock: `util::clock` does, and hands values down.

use std::ops::{Add, Sub};
use std::time::Duration;

use super::runtime::UnixNanos;

/// A point in monotonic time: how long after the machine's boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The moment `since_boot` after the machine's boot.
    pub const fn from_boot(since_boot: Duration) -> Self {
        Self(since_boot)
    }

    /// How long after boot.
    pub const fn since_boot(self) -> Duration {
        self.0
    }

    /// How long after `earlier`; zero if it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;
    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span))
    }
}

/// Both clocks at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For decisions.
    pub mono: Moment,
    /// For display and API timestamps only.
    pub wall: UnixNanos,
}

//! Reads the machine's clocks: the one place where time comes from.
//!
//! Used on every thread that is allowed to know the time (the sync loop, agents, ports); `core` gets
//! values as arguments instead. Owns nothing. It never compares wall-clock times: those are for people.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

use crate::api::moment::{Moment, Now};
use crate::api::runtime::UnixNanos;

/// Time since boot, suspend included (CLOCK_BOOTTIME).
pub fn moment() -> Moment {
    let read = clock_gettime(ClockId::CLOCK_BOOTTIME).or_else(|_| clock_gettime(ClockId::CLOCK_MONOTONIC));
    // Both clocks exist on every kernel that runs containers; a machine without them stands still in time.
    Moment::from_boot(read.map(Duration::from).unwrap_or_default())
}

/// Wall-clock time in nanoseconds since 1970; 0 for a clock set before that.
pub fn wall() -> UnixNanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixNanos::try_from(since.as_nanos()).unwrap_or(UnixNanos::MAX)
}

/// Both clocks.
pub fn now() -> Now {
    Now { mono: moment(), wall: wall() }
}

/// When to wake for `deadline`, for timers that take an [`Instant`]. An [`Instant`] stands still while
/// the machine sleeps, so after a resume a timer may be late by the sleep: look at [`moment`] again then.
/// At most a day ahead, so that no deadline overflows an [`Instant`]; whoever wakes looks again anyway.
pub fn instant_of(deadline: Moment) -> Instant {
    Instant::now() + deadline.since(moment()).min(Duration::from_secs(24 * 3600))
}

/// The kernel's id of this boot, by which moments that were written down before a reboot are known.
///
/// # Errors
/// procfs is not mounted on /proc.
pub fn boot_id() -> Result<String, super::fs::FsError> {
    let bytes = super::fs::read_bounded("/proc/sys/kernel/random/boot_id".as_ref(), 128)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_since_boot_goes_on_and_matches_uptime() {
        let first = moment();
        let text = std::fs::read_to_string("/proc/uptime").expect("procfs");
        let uptime: f64 = text.split(' ').next().and_then(|field| field.parse().ok()).expect("seconds");
        let second = moment();
        assert!(second >= first);
        assert!((first.since_boot().as_secs_f64() - uptime).abs() < 60.0, "{first:?} against {uptime}");
    }

    #[test]
    fn wall_time_is_of_this_century() {
        assert!(wall() > 1_600_000_000_000_000_000);
    }

    #[test]
    fn a_deadline_keeps_its_distance() {
        let hour = Duration::from_secs(3600);
        let before = Instant::now();
        let instant = instant_of(moment() + hour);
        assert!(instant >= before && instant <= Instant::now() + hour);
        assert!(instant_of(Moment::default()) <= Instant::now(), "a past deadline is due now");
        let never = instant_of(Moment::from_boot(Duration::MAX));
        assert!(never <= Instant::now() + 24 * hour, "no deadline overflows");
    }

    #[test]
    fn a_boot_has_one_id() {
        let id = boot_id().expect("procfs");
        assert_eq!(id.len(), 36, "a uuid: {id}");
        assert_eq!(boot_id().expect("procfs"), id);
    }
}

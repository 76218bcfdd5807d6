//! Waiting for a condition: the one place in the tests that sleeps.
//!
//! A wait looks again and again until what it waits for is there, and ends at a deadline with what it saw last. It never
//! hopes that some time is long enough.

use std::time::{Duration, Instant};

/// The pause between two looks.
const STEP: Duration = Duration::from_millis(20);

/// Looks until `look` answers `Ok`, and hands that on. Panics after `within` with what `look` said last.
#[track_caller]
pub(crate) fn until<T>(what: &str, within: Duration, mut look: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match look() {
            Ok(value) => return value,
            Err(state) if start.elapsed() >= within => {
                panic!("waited {within:?} for {what}; the last look saw: {state}")
            }
            Err(_) => std::thread::sleep(STEP),
        }
    }
}

/// Looks again and again for as long as `during`, and panics as soon as `look` answers `Err`: for what must not happen.
#[track_caller]
pub(crate) fn holds(what: &str, during: Duration, mut look: impl FnMut() -> Result<(), String>) {
    let start = Instant::now();
    while start.elapsed() < during {
        if let Err(state) = look() {
            panic!("{what} did not hold for {during:?}: after {:?} {state}", start.elapsed());
        }
        std::thread::sleep(STEP);
    }
}

/// Lets time pass, for a fault at a moment that dice chose. Not for waiting: whoever wants something waits for it.
pub(crate) fn pass(time: Duration) {
    std::thread::sleep(time);
}

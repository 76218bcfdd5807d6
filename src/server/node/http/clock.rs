//! The date of an answer.
//!
//! Pure but for the clock; called on the threads that answer.

use crate::util::clock;

/// Now, as the Date header has it: `Mon, 30 Nov 2026 08:00:00 GMT`.
pub(super) fn date() -> String {
    let seconds = clock::wall() / 1_000_000_000;
    jiff::Timestamp::from_second(seconds).unwrap_or_default().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

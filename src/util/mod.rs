//! Small helpers without a domain: threads, files, clocks, back-off, rates, cancellation.

pub mod cancel;
pub mod clock;
pub mod fs;
pub mod thread;

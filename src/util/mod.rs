//! Small helpers without a domain: threads, files, clocks, back-off, rates, cancellation, Go's print formats.

pub mod any_certificate;
pub mod backoff;
pub mod cancel;
pub mod clock;
pub mod file_mark;
pub mod fs;
pub mod heap;
pub mod heartbeat;
pub mod http2;
pub mod jitter;
pub mod json;
pub mod logging;
pub mod metrics;
pub mod notify;
pub mod poll;
pub mod pool;
pub mod process;
pub mod rate;
pub mod resolve;
pub mod signals;
pub mod snapshot;
pub mod spdy;
pub mod tcp;
pub mod terminal;
pub mod text;
pub mod thread;

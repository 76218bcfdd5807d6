//! Small helpers without a domain: threads, files, cancellation.

pub mod cancel;

//! The threads. Layer L2; they do not import one another.

pub mod source;
pub mod store;

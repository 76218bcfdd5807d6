//! The threads. Layer L2; they do not import one another.

pub mod pleg;
pub mod pod_worker;
pub mod source;
pub mod store;

//! The CRI port: a blocking client of the container runtime.

#[doc(hidden)]
pub mod proto;

//! The CRI port: a blocking client of the container runtime.
//!
//! Called from pod workers, PLEG, housekeeping and the servers, on their threads; clones share one
//! channel. Every call has a deadline and a cancel token and returns promptly when either strikes.
//! It converts CRI v1 messages to the words of [`crate::api::runtime`] and back and decides nothing:
//! no retry, no cache, no policy. No gRPC or protobuf type leaves it (`proto` is for test servers).

mod client;
mod endpoint;
mod error;
mod events;
mod from_wire;
mod glimpse;
mod images;
#[doc(hidden)]
pub mod proto;
mod stats;
#[cfg(test)]
mod tests;
mod to_wire;
mod transport;

pub use client::{Client, EXEC_OUTPUT_LIMIT};
pub use error::{Code, CriError, CriFailure};
pub use events::EventStream;

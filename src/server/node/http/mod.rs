//! HTTP/1.1 as the node's server speaks it: heads, bodies, answers, connections, and connections that are taken over.
//!
//! Knows nothing of pods, callers or endpoints. Every part has a limit on bytes and a deadline on time; what could be read in two
//! ways is refused. There is no HTTP/2 and no compression of requests.

pub mod body;
mod clock;
pub mod connection;
pub mod duplex;
pub mod head;
pub mod reply;
pub mod request;
pub mod target;
pub mod wire;
pub mod writer;

pub use duplex::Duplex;
pub use head::Method;
pub use reply::{Reply, StreamOut};
pub use request::{Caller, Request};

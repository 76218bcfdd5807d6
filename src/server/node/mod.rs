//! The node's server: what the API server, scrapers and `kubectl` ask of a node (`port`, 10250, and `readOnlyPort`).
//!
//! [`http`] speaks the protocol, [`endpoint`] says what an endpoint is, [`routes`] lists them all, [`parts`] holds what they answer
//! from. Endpoints run on a bounded number of threads, read snapshots, and decide nothing about pods; no client, however slow, delays
//! a decision or another client.

pub mod endpoint;
mod endpoints;
pub mod http;
pub mod parts;
pub mod routes;

pub use parts::NodeParts;

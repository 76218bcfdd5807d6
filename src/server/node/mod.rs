//! The node's server: what the API server, scrapers and `kubectl` ask of a node (`port`, 10250, and `readOnlyPort`).
//!
//! [`http`] speaks the protocol, [`endpoint`] says what an endpoint is, [`routes`] lists them all, [`parts`] holds what they answer
//! from, [`auth`] knows callers and their rights. `listener` waits on all connections, `workers` serve whole requests, `dispatch` leads from
//! one to its answer. Endpoints run on a bounded number of threads, read snapshots, and decide nothing about pods; no client, however slow, delays
//! a decision or another client.

pub mod auth;
mod connections;
pub mod counts;
pub mod dispatch;
pub mod endpoint;
mod endpoints;
pub mod http;
pub mod limits;
mod listener;
pub mod parts;
pub mod routes;
mod start;
pub mod tls;
mod workers;

pub use parts::NodeParts;
pub use start::{NodeServer, NodeServerSettings};

//! The servers of the agent: whoever asks from outside is answered here.
//!
//! Layer L2. Each server has one accepting thread and a few short-lived ones, one per connection. They
//! read snapshots and never the state itself, so that no client, however slow, delays a decision.

mod accept;
pub mod container_logs;
pub mod health;
pub mod local;
pub mod node;
pub mod node_logs;
pub mod relay;
pub mod resolve;
pub mod stats;
pub mod streams;
pub mod wire;
pub mod words;

pub use health::{Check, Checks, HealthServer};
pub use local::{LocalServer, LocalTools};

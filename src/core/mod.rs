//! The pure core: decisions as functions over plain values. Layer L1.
//!
//! No I/O, threads, clocks, channels or logging in here; `now` is always an argument.

pub mod admit;
pub mod backoff;
pub mod capacity;
pub mod certs;
pub mod defaults;
pub mod event_fold;
pub mod eviction;
pub mod images;
pub mod log_rotation;
pub mod mirror;
pub mod mux;
pub mod node;
pub mod node_object;
pub mod plan;
pub mod probe;
pub mod qos;
pub mod resize;
pub mod shutdown;
pub mod spec;
pub mod status;
pub mod validate;

//! ferrolet: a Kubernetes node agent for small machines at the edge, a drop-in for the kubelet.
//!
//! The modules in reading order, from the words everybody shares to the house that joins them.
//! `tests/tidy` holds who may import whom; README.md, "Architecture", draws the picture.

pub mod util;

pub mod api;
pub mod msg;

pub mod core;

pub mod config;
pub mod cri;
pub mod host;
pub mod kube;
pub mod probe;
pub mod store;
pub mod volumes;

pub mod agents;
pub mod server;

pub mod sync_loop;

pub mod app;
pub mod cli;

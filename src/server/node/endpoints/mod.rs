//! The endpoints, one file for each kind of question.
//!
//! Functions on the threads that serve requests: from [`super::NodeParts`] and a request to a reply. They own nothing.

pub(super) mod checkpoint;
pub(super) mod container_logs;
pub(super) mod debug;
mod find;
pub(super) mod health;
pub(super) mod node_logs;
pub(super) mod pods;
pub(super) mod sessions;
pub(super) mod stats;
pub(super) mod zpages;

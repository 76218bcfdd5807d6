//! The endpoints, one file for each kind of question.
//!
//! Functions on the threads that serve requests: from [`super::NodeParts`] and a request to a reply. They own nothing.

pub(super) mod debug;
pub(super) mod health;
pub(super) mod pods;
pub(super) mod zpages;

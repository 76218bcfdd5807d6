//! Probes: what is asked of which container, when, and what the answers mean.
//!
//! Layer L1, pure; owned by the thread `probe`, which feeds [`Book`] with views of the node and with the outcomes
//! of attempts, and carries out what it says. A probe belongs to a container of a pod's spec. It keeps its own beat
//! from the moment at which the pod was first seen, and begins anew with each instance of its container. It has one
//! attempt under way at most, and speaks up only when a threshold is reached and it has not said so before.

mod book;
mod target;
#[cfg(test)]
mod tests;
mod tracker;

pub use book::{Book, Job};

//! What the tests of ring 4 stand on: real nodes, each with a containerd of its own, and the built agent.
//!
//! A `Node` is a folder, a mount namespace, a bridge, a cgroup and a containerd; dropping it ends and removes all of them
//! and fails the test if anything is left. An `Agent` is the built `ferrolet` on a node. A `Cluster` is a real control plane. The shell scripts in
//! tests/peers do the work, so that the demo and a curious person can do the same by hand. Nothing here may sleep
//! except `wait`, and nothing may pass when something that a test needs is missing.

#![allow(dead_code, reason = "a harness offers more than the tests of one day use")]

pub(crate) mod agent;
pub(crate) mod cluster;
pub(crate) mod config;
pub(crate) mod logs;
pub(crate) mod node;
pub(crate) mod view;
pub(crate) mod wait;

pub(crate) mod tests;

pub(crate) use agent::{Agent, read_inside};
pub(crate) use cluster::Cluster;
pub(crate) use node::{Containerd, Node};

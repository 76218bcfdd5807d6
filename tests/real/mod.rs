//! Ring 4: the built agent on a real containerd, with real containers.
//!
//! Each test has a node of its own, and puts as many pods on it as its story needs. What the agent thinks is read from
//! its local socket, what really runs from the runtime itself. Nothing here sleeps: everything waits for what it wants
//! to see. Tests that say so run on both containerds.

mod lab;

mod admission;
mod crashes;
mod crowd;
mod lifecycle;
mod logs;
mod manifests;
mod numbers;
mod probes;
mod pulls;
mod stuck;
mod tools;
mod web;

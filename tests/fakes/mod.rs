//! Other ends of the agent's sockets, made for tests: they record calls and inject faults.

pub(crate) mod cri;
pub(crate) mod cri_calls;
pub(crate) mod cri_service;
pub(crate) mod cri_state;
pub(crate) mod cri_wire;
pub(crate) mod registry;
pub(crate) mod registry_image;

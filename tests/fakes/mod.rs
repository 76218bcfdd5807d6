//! Other ends of the agent's sockets, made for tests: they record calls and inject faults.

pub(crate) mod api;
pub(crate) mod api_store;
mod api_streams;
pub(crate) mod api_tls;
pub(crate) mod api_wire;
pub(crate) mod cri;
pub(crate) mod cri_calls;
pub(crate) mod cri_service;
pub(crate) mod cri_state;
pub(crate) mod cri_wire;
pub(crate) mod impostor;
pub(crate) mod registry;
pub(crate) mod registry_image;
/// The bus on which unit tests play logind and systemd.
#[path = "../../src/host/bus/test_bus.rs"]
#[expect(dead_code, reason = "unit tests look closer at what was asked")]
pub(crate) mod test_bus;

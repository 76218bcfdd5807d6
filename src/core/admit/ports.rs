//! Host ports: two pods cannot listen on the same port of the node.
//!
//! Layer L1, pure, called on the sync thread.

use super::{AdmissionView, Check, Verdict};
use crate::api::pod;
use crate::api::v1::Pod;

/// Host ports that another pod has.
#[derive(Debug)]
pub(super) struct HostPorts;

impl Check for HostPorts {
    fn name(&self) -> &'static str {
        "host ports"
    }

    fn admit(&self, pod: &Pod, view: &AdmissionView<'_>) -> Verdict {
        let clashes =
            |wanted: HostPort<'_>| view.others.iter().flat_map(|o| host_ports(o.pod)).any(|p| p.clashes(&wanted));
        if host_ports(pod).any(clashes) {
            return Verdict::failed_predicate(
                "NodePorts",
                "node(s) didn't have free ports for the requested pod ports",
            );
        }
        Verdict::Admit
    }
}

/// A port of the node that a container wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HostPort<'a> {
    ip: &'a str,
    protocol: &'a str,
    port: i32,
}

/// The address that stands for all of them.
const ANY: &str = "0.0.0.0";

impl HostPort<'_> {
    fn clashes(&self, other: &HostPort<'_>) -> bool {
        let same_ip = self.ip == other.ip || self.ip == ANY || other.ip == ANY;
        same_ip && self.protocol == other.protocol && self.port == other.port
    }
}

/// Those of the containers that run as long as the pod: init containers that end give theirs back.
fn host_ports(pod: &Pod) -> impl Iterator<Item = HostPort<'_>> {
    let sidecars = pod::init_containers(pod).iter().filter(|c| pod::is_sidecar(c));
    let ports = sidecars.chain(pod::app_containers(pod)).filter_map(|c| c.ports.as_ref()).flatten();
    ports.filter_map(|port| {
        Some(HostPort {
            ip: port.host_ip.as_deref().filter(|ip| !ip.is_empty()).unwrap_or(ANY),
            protocol: port.protocol.as_deref().filter(|p| !p.is_empty()).unwrap_or("TCP"),
            port: port.host_port.filter(|p| *p > 0)?,
        })
    })
}

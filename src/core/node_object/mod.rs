//! The Node object: what this node registers with, and what it says of itself from then on.
//!
//! Layer L1, pure; used on the threads `node` and `lease`. It owns the words: labels, taints, addresses,
//! conditions, and which difference is worth a request. It never asks the machine, the runtime or the
//! API server for anything: what they said comes as an argument.

pub mod addresses;
pub mod change;
pub mod conditions;
pub mod declared;
pub mod images;
pub mod lease;
pub mod pace;
pub mod registration;
pub mod runtime;
pub mod status;

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::api::Quantity;
use crate::api::meta::Time;
use crate::api::runtime::UnixNanos;
use crate::api::v1::Taint;

/// The kubelet that this agent stands in for. The API server, the scheduler and `kubeadm` read skew from it.
pub const KUBERNETES_VERSION: &str = "v1.36.3";

/// The version that the Node object tells: the kubelet's, with ferrolet's own behind the `+`, where semantic
/// versions keep what does not count in comparisons.
pub fn kubelet_version() -> String {
    format!("{KUBERNETES_VERSION}+ferrolet.{}", env!("CARGO_PKG_VERSION"))
}

/// The operating system, as labels and images have it.
pub const OPERATING_SYSTEM: &str = "linux";

/// A processor architecture of Rust (`x86_64`) in Go's words (`amd64`), as labels and images have it.
pub fn go_architecture(rust: &str) -> &str {
    match rust {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

/// What is set for the node and known of its machine from the start on.
#[derive(Clone, Debug, Default)]
pub struct NodeSettings {
    /// Its name in the cluster.
    pub name: String,
    /// The host's name, or `--hostname-override`; of the label and the address of type Hostname.
    pub hostname: String,
    /// `--node-labels`.
    pub labels: BTreeMap<String, String>,
    /// `registerWithTaints`.
    pub taints: Vec<Taint>,
    /// `providerID`.
    pub provider_id: String,
    /// `--cloud-provider=external`.
    pub external_cloud: bool,
    /// `--node-ip`.
    pub node_ips: Vec<IpAddr>,
    /// `enableControllerAttachDetach`.
    pub controller_attaches: bool,
    /// Port of the kubelet API.
    pub port: i32,
    /// What it declares to be able to do: see [`declared::features`].
    pub declared: Vec<String>,
    /// The machine.
    pub machine: Machine,
    /// All that the node has, by resource name.
    pub capacity: BTreeMap<String, Quantity>,
    /// What of it pods may have.
    pub allocatable: BTreeMap<String, Quantity>,
}

/// The machine, in the words of `status.nodeInfo`.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Id of the installation.
    pub machine_id: String,
    /// Id of the board.
    pub system_uuid: String,
    /// Id of this boot.
    pub boot_id: String,
    /// Processor architecture in Go's words.
    pub architecture: String,
    /// Kernel release.
    pub kernel: String,
    /// Name of the operating system.
    pub os_image: String,
    /// Swap in bytes.
    pub swap: u64,
}

/// Wall-clock time as the API writes it.
fn time(wall: UnixNanos) -> Time {
    let timestamp = k8s_openapi::jiff::Timestamp::from_nanosecond(i128::from(wall));
    Time(timestamp.unwrap_or(k8s_openapi::jiff::Timestamp::UNIX_EPOCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_a_semantic_one_with_ferrolets_own_as_metadata() {
        let version = kubelet_version();
        let (kubelet, own) = version.split_once('+').expect("metadata");
        assert_eq!(kubelet, KUBERNETES_VERSION);
        let numbers: Vec<u32> = kubelet[1..].split('.').map(|n| n.parse().expect("a number")).collect();
        assert_eq!(numbers.len(), 3);
        // Metadata may have letters, digits, `-` and `.` only.
        assert!(own.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.'), "{own}");
        assert!(own.starts_with("ferrolet."));
    }
}

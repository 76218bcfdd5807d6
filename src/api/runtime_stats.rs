//! Our own words for the usage figures that a container runtime tells.
//!
//! Layer L0, used on every thread. Plain data; the `cri` port makes it from CRI v1 messages. A figure
//! that the runtime leaves out is `None`, which is not zero.

use std::collections::BTreeMap;

use super::runtime::UnixNanos;
use super::{ContainerId, SandboxId};

/// Pressure stall averages of one kind (CRI `PsiData`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PsiData {
    /// Nanoseconds stalled in all.
    pub total: u64,
    /// Percent over 10 s.
    pub avg10: f64,
    /// Percent over 60 s.
    pub avg60: f64,
    /// Percent over 300 s.
    pub avg300: f64,
}

/// Pressure stall information (CRI `PsiStats`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Psi {
    /// All tasks stalled.
    pub full: PsiData,
    /// Some task stalled.
    pub some: PsiData,
}

/// CPU used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuUsage {
    /// When it was read.
    pub timestamp: UnixNanos,
    /// Core nanoseconds since the start.
    pub usage_core_nanos: Option<u64>,
    /// Nanocores in use now, averaged over the runtime's window.
    pub usage_nano_cores: Option<u64>,
    /// CPU pressure.
    pub psi: Option<Psi>,
}

/// Memory used, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryUsage {
    /// When it was read.
    pub timestamp: UnixNanos,
    /// Working set.
    pub working_set: Option<u64>,
    /// Left below the limit.
    pub available: Option<u64>,
    /// All memory, caches included.
    pub usage: Option<u64>,
    /// Anonymous memory.
    pub rss: Option<u64>,
    /// Page faults.
    pub page_faults: Option<u64>,
    /// Page faults that needed the disk.
    pub major_page_faults: Option<u64>,
    /// Memory pressure.
    pub psi: Option<Psi>,
}

/// Swap used, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SwapUsage {
    /// When it was read.
    pub timestamp: UnixNanos,
    /// Left.
    pub available: Option<u64>,
    /// Used.
    pub usage: Option<u64>,
}

/// Disk pressure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct IoUsage {
    /// When it was read.
    pub timestamp: UnixNanos,
    /// IO pressure.
    pub psi: Option<Psi>,
}

/// Room taken on a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilesystemUsage {
    /// When it was read.
    pub timestamp: UnixNanos,
    /// A path on that file system.
    pub mountpoint: String,
    /// Bytes.
    pub used_bytes: Option<u64>,
    /// Inodes.
    pub inodes_used: Option<u64>,
}

/// Where images and containers lie, and how much they take (CRI `ImageFsInfoResponse`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageFs {
    /// Read-only layers.
    pub images: Vec<FilesystemUsage>,
    /// Writable layers, where the runtime keeps them apart.
    pub containers: Vec<FilesystemUsage>,
}

/// Traffic of one network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceUsage {
    /// Name, `eth0`.
    pub name: String,
    /// Bytes received.
    pub rx_bytes: Option<u64>,
    /// Errors while receiving.
    pub rx_errors: Option<u64>,
    /// Bytes sent.
    pub tx_bytes: Option<u64>,
    /// Errors while sending.
    pub tx_errors: Option<u64>,
}

/// Traffic of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkUsage {
    /// When it was read.
    pub timestamp: UnixNanos,
    /// The interface of the pod's address.
    pub default_interface: Option<InterfaceUsage>,
    /// The others.
    pub interfaces: Vec<InterfaceUsage>,
}

/// Usage of one container (CRI `ContainerStats`).
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerStats {
    /// Which.
    pub id: ContainerId,
    /// Its name in the pod.
    pub name: String,
    /// Its attempt.
    pub attempt: u32,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// CPU.
    pub cpu: Option<CpuUsage>,
    /// Memory.
    pub memory: Option<MemoryUsage>,
    /// Swap.
    pub swap: Option<SwapUsage>,
    /// IO.
    pub io: Option<IoUsage>,
    /// Its writable layer.
    pub writable_layer: Option<FilesystemUsage>,
}

/// Usage of one sandbox and its containers (CRI `PodSandboxStats`).
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxStats {
    /// Which.
    pub id: SandboxId,
    /// Pod name.
    pub name: String,
    /// Pod namespace.
    pub namespace: String,
    /// Pod uid.
    pub uid: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// CPU of the pod.
    pub cpu: Option<CpuUsage>,
    /// Memory of the pod.
    pub memory: Option<MemoryUsage>,
    /// IO of the pod.
    pub io: Option<IoUsage>,
    /// Traffic of the pod.
    pub network: Option<NetworkUsage>,
    /// Processes in the pod.
    pub process_count: Option<u64>,
    /// Its containers.
    pub containers: Vec<ContainerStats>,
}

//! The client: usage figures of containers and sandboxes.
//!
//! Runs on the caller's thread; one call a method, and the conversion of its answer. What the runtime
//! leaves out stays `None`.

use protobuf::MessageField;

use super::client::Client;
use super::error::CriError;
use super::from_wire::Problem;
use super::proto::{self, runtime_service as rpc};
use super::to_wire;
use crate::api::runtime_info::ContainerFilter;
use crate::api::runtime_stats::{
    ContainerStats, CpuUsage, FilesystemUsage, InterfaceUsage, IoUsage, MemoryUsage, NetworkUsage, Psi, PsiData,
    SandboxStats, SwapUsage,
};
use crate::api::{ContainerId, SandboxId};
use crate::util::cancel::Cancel;

impl Client {
    /// Usage of one container.
    pub fn container_stats(&self, id: &ContainerId, cancel: &Cancel) -> Result<ContainerStats, CriError> {
        let request = proto::ContainerStatsRequest { container_id: id.to_string(), ..Default::default() };
        let answer = self.call(&rpc::CONTAINER_STATS, &request, id.as_str(), cancel)?;
        let stats = answer.stats.into_option().ok_or_else(|| "no stats".to_owned()).and_then(container);
        self.checked(&rpc::CONTAINER_STATS, id.as_str(), stats)
    }

    /// Usage of all containers, or some.
    pub fn list_container_stats(
        &self,
        filter: &ContainerFilter,
        cancel: &Cancel,
    ) -> Result<Vec<ContainerStats>, CriError> {
        let text = |id: Option<String>| id.unwrap_or_default();
        let wanted = (*filter != ContainerFilter::default()).then(|| proto::ContainerStatsFilter {
            id: text(filter.id.as_ref().map(ToString::to_string)),
            pod_sandbox_id: text(filter.sandbox.as_ref().map(ToString::to_string)),
            label_selector: to_wire::uid_selector(filter.pod_uid.as_deref()),
            ..Default::default()
        });
        let request = proto::ListContainerStatsRequest { filter: wanted.into(), ..Default::default() };
        let answer = self.call(&rpc::LIST_CONTAINER_STATS, &request, "", cancel)?;
        self.checked(&rpc::LIST_CONTAINER_STATS, "", answer.stats.into_iter().map(container).collect())
    }

    /// Usage of one sandbox and what is in it.
    pub fn pod_sandbox_stats(&self, id: &SandboxId, cancel: &Cancel) -> Result<SandboxStats, CriError> {
        let request = proto::PodSandboxStatsRequest { pod_sandbox_id: id.to_string(), ..Default::default() };
        let answer = self.call(&rpc::POD_SANDBOX_STATS, &request, id.as_str(), cancel)?;
        let stats = answer.stats.into_option().ok_or_else(|| "no stats".to_owned()).and_then(sandbox);
        self.checked(&rpc::POD_SANDBOX_STATS, id.as_str(), stats)
    }

    /// Usage of all sandboxes, or of those of one pod.
    pub fn list_pod_sandbox_stats(
        &self,
        pod_uid: Option<&str>,
        cancel: &Cancel,
    ) -> Result<Vec<SandboxStats>, CriError> {
        let filter = pod_uid.map(|uid| proto::PodSandboxStatsFilter {
            label_selector: to_wire::uid_selector(Some(uid)),
            ..Default::default()
        });
        let request = proto::ListPodSandboxStatsRequest { filter: filter.into(), ..Default::default() };
        let answer = self.call(&rpc::LIST_POD_SANDBOX_STATS, &request, pod_uid.unwrap_or_default(), cancel)?;
        self.checked(&rpc::LIST_POD_SANDBOX_STATS, "", answer.stats.into_iter().map(sandbox).collect())
    }
}

fn number(value: MessageField<proto::UInt64Value>) -> Option<u64> {
    value.into_option().map(|value| value.value)
}

fn psi(stats: MessageField<proto::PsiStats>) -> Option<Psi> {
    let data = |data: MessageField<proto::PsiData>| {
        let data = data.unwrap_or_default();
        PsiData { total: data.Total, avg10: data.Avg10, avg60: data.Avg60, avg300: data.Avg300 }
    };
    stats.into_option().map(|stats| Psi { full: data(stats.Full), some: data(stats.Some) })
}

fn cpu(usage: proto::CpuUsage) -> CpuUsage {
    CpuUsage {
        timestamp: usage.timestamp,
        usage_core_nanos: number(usage.usage_core_nano_seconds),
        usage_nano_cores: number(usage.usage_nano_cores),
        psi: psi(usage.psi),
    }
}

fn memory(usage: proto::MemoryUsage) -> MemoryUsage {
    MemoryUsage {
        timestamp: usage.timestamp,
        working_set: number(usage.working_set_bytes),
        available: number(usage.available_bytes),
        usage: number(usage.usage_bytes),
        rss: number(usage.rss_bytes),
        page_faults: number(usage.page_faults),
        major_page_faults: number(usage.major_page_faults),
        psi: psi(usage.psi),
    }
}

fn io(usage: proto::IoUsage) -> IoUsage {
    IoUsage { timestamp: usage.timestamp, psi: psi(usage.psi) }
}

/// Room on a file system.
pub(super) fn filesystem(usage: proto::FilesystemUsage) -> FilesystemUsage {
    FilesystemUsage {
        timestamp: usage.timestamp,
        mountpoint: usage.fs_id.unwrap_or_default().mountpoint,
        used_bytes: number(usage.used_bytes),
        inodes_used: number(usage.inodes_used),
    }
}

fn interface(usage: proto::NetworkInterfaceUsage) -> InterfaceUsage {
    InterfaceUsage {
        name: usage.name,
        rx_bytes: number(usage.rx_bytes),
        rx_errors: number(usage.rx_errors),
        tx_bytes: number(usage.tx_bytes),
        tx_errors: number(usage.tx_errors),
    }
}

fn container(stats: proto::ContainerStats) -> Result<ContainerStats, Problem> {
    let attributes = stats.attributes.into_option().ok_or("stats without attributes")?;
    let metadata = attributes.metadata.unwrap_or_default();
    Ok(ContainerStats {
        id: ContainerId::from(attributes.id),
        name: metadata.name,
        attempt: metadata.attempt,
        labels: attributes.labels,
        cpu: stats.cpu.into_option().map(cpu),
        memory: stats.memory.into_option().map(memory),
        swap: stats.swap.into_option().map(|swap| SwapUsage {
            timestamp: swap.timestamp,
            available: number(swap.swap_available_bytes),
            usage: number(swap.swap_usage_bytes),
        }),
        io: stats.io.into_option().map(io),
        writable_layer: stats.writable_layer.into_option().map(filesystem),
    })
}

fn sandbox(stats: proto::PodSandboxStats) -> Result<SandboxStats, Problem> {
    let attributes = stats.attributes.into_option().ok_or("stats without attributes")?;
    let metadata = attributes.metadata.unwrap_or_default();
    let linux = stats.linux.unwrap_or_default();
    Ok(SandboxStats {
        id: SandboxId::from(attributes.id),
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        labels: attributes.labels,
        cpu: linux.cpu.into_option().map(cpu),
        memory: linux.memory.into_option().map(memory),
        io: linux.io.into_option().map(io),
        network: linux.network.into_option().map(|network| NetworkUsage {
            timestamp: network.timestamp,
            default_interface: network.default_interface.into_option().map(interface),
            interfaces: network.interfaces.into_iter().map(interface).collect(),
        }),
        process_count: linux.process.into_option().and_then(|process| number(process.process_count)),
        containers: linux.containers.into_iter().map(container).collect::<Result<_, _>>()?,
    })
}

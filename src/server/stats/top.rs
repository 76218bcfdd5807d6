//! What `ferrolet top` shows: CPU, memory and restarts of pods and containers, as plain data that crosses the local
//! socket. Pure; see the parent module.

use serde::{Deserialize, Serialize};

use super::Stats;
use super::gather::{NodeReading, Used};

/// The machine and its pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeUse {
    /// The node's name.
    pub name: String,
    /// Nanoseconds of CPU a second; not there if nobody can tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nano_cores: Option<u64>,
    /// CPUs.
    pub cpus: u32,
    /// Working set in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// The machine's memory in bytes.
    pub memory_capacity: u64,
    /// Pods of which something runs.
    pub pods: Vec<PodUse>,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodUse {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Nanoseconds of CPU a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nano_cores: Option<u64>,
    /// Working set in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Restarts of its containers.
    pub restarts: u64,
    /// Its containers that run.
    pub containers: Vec<ContainerUse>,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerUse {
    /// Its name.
    pub name: String,
    /// Nanoseconds of CPU a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nano_cores: Option<u64>,
    /// Working set in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Restarts.
    pub restarts: u64,
}

pub(super) fn of(stats: &Stats, node: &NodeReading) -> NodeUse {
    let machine = &stats.sources.machine;
    let pods = node.pods.iter().map(|pod| {
        let containers: Vec<ContainerUse> = pod
            .containers
            .iter()
            .filter_map(|container| {
                let facts = pod.container(container)?;
                Some(ContainerUse {
                    name: facts.name.clone(),
                    nano_cores: container.used.nano_cores,
                    memory: memory(&container.used),
                    restarts: facts.attempt.into(),
                })
            })
            .collect();
        let status = &pod.view.status;
        let told = [&status.init_container_statuses, &status.container_statuses].into_iter().flatten().flatten();
        PodUse {
            namespace: pod.view.name.namespace.clone(),
            name: pod.view.name.name.clone(),
            uid: pod.view.uid.to_string(),
            nano_cores: pod.used.nano_cores,
            memory: memory(&pod.used),
            restarts: told.map(|status| u64::try_from(status.restart_count).unwrap_or(0)).sum(),
            containers,
        }
    });
    NodeUse {
        name: stats.sources.node.clone(),
        nano_cores: node.root.nano_cores,
        cpus: machine.cpus,
        memory: memory(&node.root),
        memory_capacity: machine.memory,
        pods: pods.collect(),
    }
}

fn memory(used: &Used) -> Option<u64> {
    used.usage.memory.map(|memory| memory.working_set())
}

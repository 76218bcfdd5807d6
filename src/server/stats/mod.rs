//! Numbers about the node and its pods: /stats/summary, the /metrics family, and what `ferrolet top` shows.
//!
//! Runs on the thread of whoever is asked; nothing runs and nothing is sampled while nobody asks. [`Stats`] owns the last
//! look of whoever asked before, by which CPU rates are told, and what is known of disks. It reads cgroup and proc
//! files and the node's view; the runtime is asked for writable layers and its images' disk alone, and may be silent.
//! It decides nothing, and no disk that hangs holds it up.
//!
//! A rate of CPU needs two looks. The first is the one of the scrape before, if it is a second to five minutes old; a
//! container that is younger than that counts from its start. After a longer silence a second look is taken a moment
//! after the first.

mod cadvisor;
mod disks;
mod gather;
mod json;
mod machine;
mod node_metrics;
mod rates;
mod resource;
mod slis;
mod summary;
#[cfg(test)]
mod tests;
mod top;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::cri::Client;
use crate::host::cgroup::CgroupTree;
use crate::host::facts::MachineFacts;
use crate::host::pod_dirs::PodDirs;
use crate::host::usage::Detail;
use crate::host::usage::disk::DiskUsage;
use crate::msg::NodeView;
use crate::server::health::Checks;
use crate::util::metrics::Text;
use crate::util::snapshot::Snapshot;

use gather::{NodeReading, Reading};
use rates::Rates;
pub use top::{ContainerUse, NodeUse, PodUse};

/// How long the runtime may take over its part.
const RUNTIME_PATIENCE: Duration = Duration::from_secs(2);
/// Time between two looks where there is no earlier one.
const SECOND_LOOK: Duration = Duration::from_millis(300);

/// What numbers are read from.
#[derive(Clone, Debug)]
pub struct StatsSources {
    /// The node's name.
    pub node: String,
    /// The newest view of the node.
    pub view: Arc<Snapshot<NodeView>>,
    /// The container runtime.
    pub client: Client,
    /// The pods' cgroups; `None` where pods have none of their own.
    pub cgroups: Option<CgroupTree>,
    /// Where pods' files lie.
    pub dirs: PodDirs,
    /// The machine.
    pub machine: MachineFacts,
    /// Name and cgroup of what is shown beside the pods: `kubelet`, `runtime`, `misc`, as far as they are set.
    pub system_cgroups: Vec<(&'static str, PathBuf)>,
    /// The health checks.
    pub checks: Checks,
    /// `volumeStatsAggPeriod`: volumes are measured again after this long; `None` for never.
    pub volumes_fresh: Option<Duration>,
    /// `featureGates`.
    pub feature_gates: BTreeMap<String, bool>,
    /// The mount table.
    pub mount_table: PathBuf,
    /// procfs.
    pub proc: PathBuf,
    /// sysfs.
    pub sys: PathBuf,
}

#[cfg(test)]
impl StatsSources {
    /// A node without pods, cgroups and a runtime that answers.
    pub(crate) fn for_tests() -> Self {
        let client = Client::new("unix:///nonexistent.sock", None, Duration::from_secs(1));
        Self {
            node: "n1".to_owned(),
            view: Arc::new(Snapshot::new(NodeView { node: "n1".to_owned(), is_listed: true, ..NodeView::default() })),
            client: client.expect("an address"),
            cgroups: None,
            dirs: PodDirs::new("/nonexistent", "/nonexistent"),
            machine: MachineFacts::default(),
            system_cgroups: Vec::new(),
            checks: Arc::new([crate::server::health::Check::ping()]),
            volumes_fresh: Some(Duration::from_secs(60)),
            feature_gates: BTreeMap::new(),
            mount_table: PathBuf::from("/proc/self/mountinfo"),
            proc: PathBuf::from("/proc"),
            sys: PathBuf::from("/sys"),
        }
    }
}

/// Answers questions about numbers. Made once, shared by all servers.
#[derive(Debug)]
pub struct Stats {
    sources: StatsSources,
    rates: Rates,
    disks: DiskUsage,
}

impl Stats {
    /// Answers from these sources.
    pub fn new(sources: StatsSources) -> Self {
        Self { sources, rates: Rates::default(), disks: DiskUsage::default() }
    }

    /// /stats/summary as JSON; with `only_cpu_and_memory` nothing of disks, networks and pressure.
    ///
    /// # Errors
    /// The writer's.
    pub fn summary(&self, only_cpu_and_memory: bool, out: &mut dyn Write) -> io::Result<()> {
        let detail = if only_cpu_and_memory { Detail::CpuAndMemory } else { Detail::Summary };
        let node = self.read_with_rates(detail);
        let disks = (!only_cpu_and_memory).then(|| disks::find(self, &node));
        summary::write(self, &node, disks.as_ref(), out)
    }

    /// /metrics.
    ///
    /// # Errors
    /// The writer's.
    pub fn metrics(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut text = Text::new(out);
        node_metrics::write(self, &mut text);
        text.finish()
    }

    /// /metrics/resource.
    ///
    /// # Errors
    /// The writer's.
    pub fn resource_metrics(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut text = Text::new(out);
        resource::write(&self.read(Detail::CpuAndMemory), &mut text);
        text.finish()
    }

    /// /metrics/probes.
    ///
    /// # Errors
    /// The writer's.
    pub fn probe_metrics(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut text = Text::new(out);
        crate::util::metrics::write_all(crate::util::metrics::kubelet::probes::ALL, &mut text);
        machine::write_start_time(self, &mut text);
        text.finish()
    }

    /// /metrics/cadvisor: container_* and machine_*.
    ///
    /// # Errors
    /// The writer's.
    pub fn container_metrics(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut text = Text::new(out);
        cadvisor::write(self, &self.read(Detail::All), &mut text);
        machine::write(self, &mut text);
        text.finish()
    }

    /// /metrics/slis: the health checks.
    ///
    /// # Errors
    /// The writer's.
    pub fn sli_metrics(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut text = Text::new(out);
        slis::write(&self.sources.checks, &mut text);
        machine::write_start_time(self, &mut text);
        text.finish()
    }

    /// What `ferrolet top` shows.
    pub fn top(&self) -> NodeUse {
        top::of(self, &self.read_with_rates(Detail::CpuAndMemory))
    }

    fn read(&self, detail: Detail) -> NodeReading {
        Reading::of(&self.sources, detail)
    }

    /// A look with CPU rates. Two looks where there was none lately.
    fn read_with_rates(&self, detail: Detail) -> NodeReading {
        let mut node = self.read(detail);
        if self.rates.are_cold(node.at.mono) {
            self.rates.learn(&node);
            std::thread::sleep(SECOND_LOOK);
            node = self.read(detail);
        }
        self.rates.tell(&mut node);
        node
    }
}

//! What the servers' numbers are read from, put together at the start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::{KubeletConfiguration, NodeFlags};
use crate::cri::Client;
use crate::host::cgroup::CgroupTree;
use crate::host::facts::MachineFacts;
use crate::host::mounts::MOUNT_TABLE;
use crate::host::pod_dirs::PodDirs;
use crate::msg::NodeView;
use crate::server::health::Checks;
use crate::server::stats::{Stats, StatsSources};
use crate::util::snapshot::Snapshot;

/// The parts that others have as well.
pub(super) struct Parts<'a> {
    pub(super) config: &'a KubeletConfiguration,
    pub(super) flags: &'a NodeFlags,
    pub(super) node: &'a str,
    pub(super) machine: MachineFacts,
    pub(super) client: &'a Client,
    pub(super) view: &'a Arc<Snapshot<NodeView>>,
    pub(super) cgroups: Option<CgroupTree>,
    pub(super) dirs: PodDirs,
    pub(super) checks: &'a Checks,
}

impl Parts<'_> {
    /// Joins them.
    pub(super) fn join(self) -> Arc<Stats> {
        let Parts { config, flags, .. } = self;
        let named = [
            ("kubelet", &config.kubelet_cgroups),
            ("runtime", &flags.runtime_cgroups),
            ("misc", &config.system_cgroups),
        ];
        let system_cgroups = named.into_iter().filter(|(_, cgroup)| !cgroup.is_empty());
        Arc::new(Stats::new(StatsSources {
            node: self.node.to_owned(),
            view: Arc::clone(self.view),
            client: self.client.clone(),
            cgroups: self.cgroups,
            dirs: self.dirs,
            machine: self.machine,
            system_cgroups: system_cgroups.map(|(name, cgroup)| (name, Path::new("/").join(cgroup))).collect(),
            checks: Arc::clone(self.checks),
            volumes_fresh: Some(config.volume_stats_agg_period.to_std()).filter(|period| !period.is_zero()),
            feature_gates: config.feature_gates.clone(),
            mount_table: PathBuf::from(MOUNT_TABLE),
            proc: PathBuf::from("/proc"),
            sys: PathBuf::from("/sys"),
        }))
    }
}

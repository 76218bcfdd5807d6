//! How full disks are: the node's, the runtime's, and what containers, logs and volumes take of them.
//!
//! On the caller's thread, which waits for disks and for the runtime up to a limit and does without their figures then.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::gather::{NodeReading, PodReading};
use super::{RUNTIME_PATIENCE, Stats};
use crate::api::ContainerId;
use crate::api::pod as pods;
use crate::api::runtime_info::ContainerFilter;
use crate::api::runtime_stats::FilesystemUsage;
use crate::api::v1::Volume;
use crate::host::usage::disk::{Measure, Measured, Question};
use crate::util::cancel::Cancel;
use crate::util::metrics::kubelet;
use crate::util::order::Gather;
use crate::volumes;

/// Logs and small files are measured again after this long.
const LOGS_FRESH: Duration = Duration::from_secs(10);
/// How long all disks together may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// A volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VolumeUse {
    /// Its name in the pod.
    pub(super) name: String,
    /// Whether it counts as the pod's ephemeral storage.
    pub(super) is_ephemeral: bool,
    pub(super) measured: Measured,
}

/// What a pod takes.
#[derive(Clone, Debug, Default)]
pub(super) struct PodDisks {
    /// Logs, by the pod's list of running containers.
    pub(super) logs: Vec<Option<Measured>>,
    /// Writable layers, likewise.
    pub(super) layers: Vec<Option<FilesystemUsage>>,
    /// Its hosts file.
    pub(super) hosts: Option<Measured>,
    pub(super) volumes: Vec<VolumeUse>,
}

/// What all take.
#[derive(Clone, Debug, Default)]
pub(super) struct Disks {
    /// The file system of the agent's root folder.
    pub(super) node: Option<Measured>,
    /// Images: what they take, as the runtime tells, and their file system.
    pub(super) images: Option<(FilesystemUsage, Option<Measured>)>,
    /// Writable layers, where the runtime keeps them apart.
    pub(super) containers: Option<(FilesystemUsage, Option<Measured>)>,
    /// By the order of pods.
    pub(super) pods: Vec<PodDisks>,
}

/// Finds out about all disks.
pub(super) fn find(stats: &Stats, node: &NodeReading) -> Disks {
    let sources = &stats.sources;
    let client = sources.client.with_timeout(RUNTIME_PATIENCE);
    let cancel = Cancel::new();
    // A runtime that does not answer is told of elsewhere; here its figures are missing.
    let images = client.image_fs_info(&cancel).unwrap_or_default();
    let layers = client.list_container_stats(&ContainerFilter::default(), &cancel).unwrap_or_default();
    let layers: BTreeMap<ContainerId, FilesystemUsage> =
        layers.into_iter().filter_map(|stats| Some((stats.id, stats.writable_layer?))).gather();

    let file_system = |path: &str| Question { path: PathBuf::from(path), measure: Measure::FileSystem };
    let mut small = vec![Question { path: sources.dirs.root().to_path_buf(), measure: Measure::FileSystem }];
    let (image_fs, container_fs) = (images.images.into_iter().next(), images.containers.into_iter().next());
    small.extend(image_fs.iter().chain(&container_fs).map(|usage| file_system(&usage.mountpoint)));
    let mut large = Vec::new();
    let asked: Vec<Asked> = node.pods.iter().map(|pod| Asked::of(stats, pod, &mut small, &mut large)).collect();
    let small = stats.disks.ask(&small, LOGS_FRESH, PATIENCE);
    let large = stats.disks.ask(&large, sources.volumes_fresh.unwrap_or_default(), PATIENCE);

    let mut small = small.into_iter();
    let mut next = || small.next().flatten();
    let mut disks = Disks { node: next(), ..Disks::default() };
    disks.images = image_fs.map(|usage| (usage, next()));
    disks.containers = container_fs.map(|usage| (usage, next()));
    let mut large = large.into_iter();
    for (pod, asked) in node.pods.iter().zip(asked) {
        let mut found = PodDisks { hosts: asked.has_hosts.then(&mut next).flatten(), ..PodDisks::default() };
        for (container, has_logs) in pod.containers.iter().zip(asked.has_logs) {
            found.logs.push(has_logs.then(&mut next).flatten());
            let layer = pod.container(container).and_then(|facts| layers.get(&facts.id));
            found.layers.push(layer.cloned());
        }
        for (name, is_ephemeral) in asked.volumes {
            if let Some(measured) = large.next().flatten() {
                kubelet::VOLUME_METRIC_DURATION.observe(&["kubernetes.io/local"], measured.took);
                found.volumes.push(VolumeUse { name, is_ephemeral, measured });
            }
        }
        disks.pods.push(found);
    }
    disks
}

/// Which questions were asked about a pod.
struct Asked {
    has_hosts: bool,
    has_logs: Vec<bool>,
    volumes: Vec<(String, bool)>,
}

impl Asked {
    fn of(stats: &Stats, pod: &PodReading, small: &mut Vec<Question>, large: &mut Vec<Question>) -> Self {
        let (dirs, view) = (&stats.sources.dirs, &pod.view);
        let mut ask = |path: Option<PathBuf>, measure| {
            let is_known = path.is_some();
            small.extend(path.map(|path| Question { path, measure }));
            is_known
        };
        let has_hosts = ask(dirs.etc_hosts(&view.uid).ok(), Measure::Tree);
        let has_logs = pod.containers.iter().map(|container| {
            let name = pod.container(container).map(|facts| facts.name.as_str());
            ask(name.and_then(|name| dirs.container_logs(&view.name, &view.uid, name).ok()), Measure::Content)
        });
        let has_logs = has_logs.collect();
        let measured = view.pod.as_deref().filter(|_| stats.sources.volumes_fresh.is_some());
        let listed = measured.and_then(pods::spec).and_then(|spec| spec.volumes.as_deref());
        let mut volumes = Vec::new();
        for volume in listed.unwrap_or_default() {
            let Some((plugin, is_ephemeral)) = plugin(volume) else { continue };
            let Ok(path) = dirs.volume(&view.uid, plugin, &volume.name) else { continue };
            large.push(Question { path, measure: Measure::Tree });
            volumes.push((volume.name.clone(), is_ephemeral));
        }
        Self { has_hosts, has_logs, volumes }
    }
}

/// Where a volume of the agent's own lies, and whether it is the pod's ephemeral storage. Others' have no figures.
fn plugin(volume: &Volume) -> Option<(&'static str, bool)> {
    let empty_dir = |medium: Option<&str>| (volumes::EMPTY_DIR, medium.unwrap_or_default().is_empty());
    if let Some(source) = &volume.empty_dir {
        return Some(empty_dir(source.medium.as_deref()));
    }
    if volume.config_map.is_some() {
        return Some((volumes::CONFIG_MAP, true));
    }
    if volume.secret.is_some() {
        return Some((volumes::SECRET, false));
    }
    if volume.projected.is_some() {
        return Some((volumes::PROJECTED, false));
    }
    if volume.downward_api.is_some() {
        return Some((volumes::DOWNWARD_API, false));
    }
    // A volume that names no source is an emptyDir.
    let unnamed = Volume { name: volume.name.clone(), ..Volume::default() };
    (*volume == unnamed).then(|| empty_dir(None))
}

//! Volumes of a pod on this machine: emptyDir, hostPath, image volumes, subPath, and those that the agent
//! fills with files: configMap, secret, projected, downwardAPI.
//!
//! Layer L1, blocking; pod workers call it, since any file system may hang. It owns nothing: what is
//! mounted is read from the mount table, what is ready from a mark on disk, so that a restarted agent
//! finds its volumes and changes nothing. It never decides whether a pod runs, never computes what the
//! downward API says (the caller brings it), never talks to an API server itself ([`ObjectSource`] does),
//! and never touches a volume's data once it is the pod's.

pub mod atomic;
pub mod empty_dir;
pub mod error;
mod filled;
pub mod host_path;
pub mod objects;
mod payload;
pub mod subpath;
pub mod unmount;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use empty_dir::Medium;
pub use error::VolumeError;
pub use objects::ObjectSource;
use payload::Collector;
pub use subpath::prepare_subpath;
pub use unmount::unmount_pod;

use crate::api::pod as pods;
use crate::api::v1::{Pod, Volume};
use crate::host::pod_dirs::PodDirs;
use crate::util::metrics::kubelet::STORAGE_OPERATION;

/// emptyDir's name on disk.
pub const EMPTY_DIR: &str = "kubernetes.io~empty-dir";
/// configMap's name on disk.
pub const CONFIG_MAP: &str = "kubernetes.io~configmap";
/// secret's name on disk.
pub const SECRET: &str = "kubernetes.io~secret";
/// downwardAPI's name on disk.
pub const DOWNWARD_API: &str = "kubernetes.io~downward-api";
/// projected's name on disk.
pub const PROJECTED: &str = "kubernetes.io~projected";

/// How long the API server may take over the objects of one pod, all its volumes together.
const OBJECTS_WITHIN: Duration = Duration::from_secs(20);

/// What every call needs to know of this machine.
#[derive(Clone, Copy, Debug)]
pub struct VolumeContext<'a> {
    /// The layout of pods' files.
    pub dirs: &'a PodDirs,
    /// The mount table, [`crate::host::mounts::MOUNT_TABLE`].
    pub mount_table: &'a Path,
    /// Memory for pods in bytes (allocatable): the largest a memory volume gets.
    pub node_memory: u64,
    /// Where ConfigMaps, Secrets and tokens come from.
    pub objects: &'a dyn ObjectSource,
}

/// One file of a volume that the agent fills. Its Debug form shows no content.
#[derive(Clone, PartialEq, Eq)]
pub struct VolumeFile {
    /// Path in the volume: relative, no `..`.
    pub path: String,
    /// Mode bits.
    pub mode: u32,
    /// User who owns it; `None` leaves it root's.
    pub owner: Option<u32>,
    /// Content.
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for VolumeFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({:o}, owner {:?}, {} bytes)", self.path, self.mode, self.owner, self.bytes.len())
    }
}

/// What the caller computed from the pod.
#[derive(Clone, Debug, Default)]
pub struct PodInputs {
    /// The pod's memory limit in bytes, if it has one.
    pub memory_limit: Option<u64>,
    /// Downward API files, by volume name and place in the `sources` of a projected volume (0 for a
    /// downwardAPI volume); or why there are none.
    pub downward: BTreeMap<(String, usize), Result<Vec<VolumeFile>, String>>,
}

/// A volume that is ready for containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountedVolume {
    /// A folder, file, socket or device of this machine.
    Path {
        /// Where.
        host_path: PathBuf,
        /// Whether the volume itself forbids writing.
        read_only: bool,
        /// Whether the volume is the agent's own, so that SELinux shall relabel it.
        selinux_relabel: bool,
    },
    /// An image that the runtime mounts; there is nothing on the host.
    Image {
        /// The image's reference.
        reference: String,
        /// Its pull policy, if the pod states one.
        pull_policy: Option<String>,
    },
}

/// The volumes of a pod by name. Volumes that no container mounts are left out, as upstream does.
pub type MountedVolumes = BTreeMap<String, MountedVolume>;

/// What [`mount_pod`] came to.
#[derive(Debug, Default)]
pub struct Mounted {
    /// The volumes.
    pub volumes: MountedVolumes,
    /// Volumes that were there already and could not be brought up to date: they keep their old files.
    pub kept: Vec<VolumeError>,
}

/// Makes every volume that a container of the pod mounts. Running it again on a pod whose volumes are
/// there changes nothing, files whose content changed excepted. The pod's folder must exist.
///
/// # Errors
/// All volumes that failed; those that did not are left in place for the next try.
pub fn mount_pod(ctx: &VolumeContext<'_>, pod: &Pod, inputs: &PodInputs) -> Result<Mounted, Vec<VolumeError>> {
    let used = used_volumes(pod);
    let volumes = pods::spec(pod).and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let until = Instant::now() + OBJECTS_WITHIN;
    let mut mounted = Mounted::default();
    let mut errors = Vec::new();
    for volume in volumes.iter().filter(|volume| used.contains(volume.name.as_str())) {
        let collector = Collector { pod, volume, inputs, objects: ctx.objects, until };
        let began = Instant::now();
        let done = mount_volume(ctx, &collector, &mut mounted.kept);
        let status = if done.is_ok() { "success" } else { "fail-unknown" };
        STORAGE_OPERATION.observe(&["false", "volume_mount", status, plugin(volume)], began.elapsed());
        match done {
            Ok(done) => drop(mounted.volumes.insert(volume.name.clone(), done)),
            Err(e) => errors.push(e),
        }
    }
    if errors.is_empty() { Ok(mounted) } else { Err(errors) }
}

fn mount_volume(
    ctx: &VolumeContext<'_>,
    collector: &Collector<'_>,
    kept: &mut Vec<VolumeError>,
) -> Result<MountedVolume, VolumeError> {
    let Collector { pod, volume, inputs, .. } = *collector;
    let mut filled = |plugin| {
        let done = filled::fill(ctx, collector, plugin, inputs.memory_limit)?;
        kept.extend(done.kept);
        Ok(MountedVolume::Path { host_path: done.dir, read_only: true, selinux_relabel: true })
    };
    match kind(volume).as_str() {
        // A volume that names no source is an emptyDir.
        "emptyDir" | "" => {
            let host_path = empty_dir::mount(ctx, pod, volume, inputs.memory_limit)?;
            Ok(MountedVolume::Path { host_path, read_only: false, selinux_relabel: true })
        }
        "hostPath" => {
            let host_path = host_path::check(volume)?;
            Ok(MountedVolume::Path { host_path, read_only: false, selinux_relabel: false })
        }
        "image" => {
            let source = volume.image.as_ref();
            let reference = source.and_then(|image| image.reference.clone()).unwrap_or_default();
            if reference.is_empty() {
                return Err(VolumeError::invalid(volume, "image.reference is empty; name an image"));
            }
            Ok(MountedVolume::Image { reference, pull_policy: source.and_then(|image| image.pull_policy.clone()) })
        }
        "configMap" => filled(CONFIG_MAP),
        "secret" => filled(SECRET),
        "downwardAPI" => filled(DOWNWARD_API),
        "projected" => filled(PROJECTED),
        other => Err(VolumeError::Unsupported {
            volume: volume.name.clone(),
            kind: other.to_owned(),
            why: match other {
                "persistentVolumeClaim" | "ephemeral" | "csi" => {
                    "this version mounts no claims and no CSI volumes, and the pod waits; use emptyDir or hostPath"
                        .to_owned()
                }
                "gitRepo" => "it was removed from Kubernetes; clone in an init container into an emptyDir".to_owned(),
                _ => "this version has no driver for it; use emptyDir or hostPath".to_owned(),
            },
        }),
    }
}

/// The plugin that has to do with a volume, as metrics name it.
fn plugin(volume: &Volume) -> &'static str {
    match kind(volume).as_str() {
        "emptyDir" | "" => "kubernetes.io/empty-dir",
        "hostPath" => "kubernetes.io/host-path",
        "image" => "kubernetes.io/image",
        "configMap" => "kubernetes.io/configmap",
        "secret" => "kubernetes.io/secret",
        "downwardAPI" => "kubernetes.io/downward-api",
        "projected" => "kubernetes.io/projected",
        _ => "unknown",
    }
}

/// Which source a volume has, by its name in the API; empty if none.
fn kind(volume: &Volume) -> String {
    let json = serde_json::to_value(volume).unwrap_or_default();
    json.as_object().and_then(|map| map.keys().find(|key| *key != "name").cloned()).unwrap_or_default()
}

/// `fsGroup` of a pod.
fn group_of(pod: &Pod) -> Option<u32> {
    let context = pods::spec(pod)?.security_context.as_ref()?;
    context.fs_group.and_then(|gid| u32::try_from(gid).ok())
}

/// Names of the volumes that any container mounts.
fn used_volumes(pod: &Pod) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for (_, container) in pods::all_containers(pod) {
        used.extend(container.volume_mounts.iter().flatten().map(|mount| mount.name.clone()));
        used.extend(container.volume_devices.iter().flatten().map(|device| device.name.clone()));
    }
    used
}

#[cfg(test)]
#[path = "filled_tests.rs"]
mod filled_tests;
#[cfg(test)]
mod shelf;
#[cfg(test)]
#[path = "tests.rs"]
mod tests;

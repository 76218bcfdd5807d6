//! Volumes of a pod on this machine: emptyDir, hostPath, downward API files, image volumes, subPath.
//!
//! Layer L1, blocking; pod workers call it, since any file system may hang. It owns nothing: what is
//! mounted is read from the mount table, what is ready from a mark on disk, so that a restarted agent
//! finds its volumes and changes nothing. It never decides whether a pod runs, never computes what a
//! file says (the caller brings it), and never touches a volume's data once it is ready.

pub mod atomic;
pub mod empty_dir;
pub mod error;
pub mod host_path;
pub mod subpath;
pub mod unmount;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub use error::VolumeError;
pub use subpath::prepare_subpath;
pub use unmount::unmount_pod;

use crate::api::pod as pods;
use crate::api::v1::{Pod, Volume};
use crate::host::files::ChangePolicy;
use crate::host::pod_dirs::PodDirs;

/// emptyDir's name on disk.
pub const EMPTY_DIR: &str = "kubernetes.io~empty-dir";
/// downwardAPI's name on disk.
pub const DOWNWARD_API: &str = "kubernetes.io~downward-api";
/// projected's name on disk.
pub const PROJECTED: &str = "kubernetes.io~projected";

/// What every call needs to know of this machine.
#[derive(Clone, Copy, Debug)]
pub struct VolumeContext<'a> {
    /// The layout of pods' files.
    pub dirs: &'a PodDirs,
    /// The mount table, [`crate::host::mounts::MOUNT_TABLE`].
    pub mount_table: &'a Path,
    /// Memory for pods in bytes (allocatable): the largest a memory volume gets.
    pub node_memory: u64,
}

/// One file of a volume that the agent fills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeFile {
    /// Path in the volume: relative, no `..`.
    pub path: String,
    /// Mode bits.
    pub mode: u32,
    /// Content.
    pub bytes: Vec<u8>,
}

/// What the caller computed from the pod.
#[derive(Clone, Debug, Default)]
pub struct PodInputs {
    /// The pod's memory limit in bytes, if it has one.
    pub memory_limit: Option<u64>,
    /// Files of its downwardAPI and projected volumes, by volume name.
    pub files: BTreeMap<String, Vec<VolumeFile>>,
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

/// Makes every volume that a container of the pod mounts. Running it again on a pod whose volumes are
/// there changes nothing, files whose content changed excepted. The pod's folder must exist.
///
/// # Errors
/// All volumes that failed; those that did not are left in place for the next try.
pub fn mount_pod(ctx: &VolumeContext<'_>, pod: &Pod, inputs: &PodInputs) -> Result<MountedVolumes, Vec<VolumeError>> {
    let used = used_volumes(pod);
    let volumes = pods::spec(pod).and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let mut mounted = MountedVolumes::new();
    let mut errors = Vec::new();
    for volume in volumes.iter().filter(|volume| used.contains(volume.name.as_str())) {
        match mount_volume(ctx, pod, volume, inputs) {
            Ok(done) => drop(mounted.insert(volume.name.clone(), done)),
            Err(e) => errors.push(e),
        }
    }
    if errors.is_empty() { Ok(mounted) } else { Err(errors) }
}

fn mount_volume(
    ctx: &VolumeContext<'_>,
    pod: &Pod,
    volume: &Volume,
    inputs: &PodInputs,
) -> Result<MountedVolume, VolumeError> {
    let own = |host_path, read_only| MountedVolume::Path { host_path, read_only, selinux_relabel: true };
    match kind(volume).as_str() {
        // A volume that names no source is an emptyDir.
        "emptyDir" | "" => {
            let dir = empty_dir::mount(ctx, pod, volume, inputs.memory_limit)?;
            Ok(own(dir, false))
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
        "downwardAPI" => files_volume(ctx, pod, volume, DOWNWARD_API, inputs).map(|dir| own(dir, true)),
        "projected" => {
            refuse_other_sources(volume)?;
            files_volume(ctx, pod, volume, PROJECTED, inputs).map(|dir| own(dir, true))
        }
        other => Err(VolumeError::Unsupported {
            volume: volume.name.clone(),
            kind: other.to_owned(),
            why: match other {
                "secret" | "configMap" | "persistentVolumeClaim" | "ephemeral" => {
                    "it lives on an API server, which this agent does not talk to yet".to_owned()
                }
                "gitRepo" => "it was removed from Kubernetes; clone in an init container into an emptyDir".to_owned(),
                _ => "this version has no driver for it; use emptyDir or hostPath".to_owned(),
            },
        }),
    }
}

fn files_volume(
    ctx: &VolumeContext<'_>,
    pod: &Pod,
    volume: &Volume,
    plugin: &str,
    inputs: &PodInputs,
) -> Result<PathBuf, VolumeError> {
    let Some(files) = inputs.files.get(&volume.name) else {
        return Err(VolumeError::invalid(volume, "nobody computed its files"));
    };
    let dir = empty_dir::mount_memory(ctx, pod, volume, plugin, inputs.memory_limit)?;
    let gid = group_of(pod);
    let failed = VolumeError::host(&volume.name);
    let written = atomic::write(&dir, files, |new| match gid {
        Some(gid) => give(new, gid),
        None => Ok(()),
    })
    .map_err(failed)?;
    if let Some(gid) = gid
        && written
    {
        give(&dir, gid).map_err(VolumeError::host(&volume.name))?;
    }
    Ok(dir)
}

fn give(dir: &Path, gid: u32) -> Result<(), crate::host::HostError> {
    let done = crate::host::files::give_to_group(dir, gid, true, ChangePolicy::Always)?;
    done.first_failure.map_or(Ok(()), Err)
}

/// A projected volume may draw on the downward API alone.
fn refuse_other_sources(volume: &Volume) -> Result<(), VolumeError> {
    let sources = volume.projected.as_ref().and_then(|projected| projected.sources.as_deref()).unwrap_or_default();
    for source in sources {
        let json = serde_json::to_value(source).unwrap_or_default();
        let other = json.as_object().and_then(|map| map.keys().find(|key| *key != "downwardAPI").cloned());
        if let Some(other) = other {
            return Err(VolumeError::Unsupported {
                volume: volume.name.clone(),
                kind: format!("projected {other}"),
                why: "it needs an API server, which this agent does not talk to yet".to_owned(),
            });
        }
    }
    Ok(())
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
#[path = "tests.rs"]
mod tests;

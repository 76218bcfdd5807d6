//! Volumes that the agent fills with files: configMap, secret, projected, downwardAPI.
//!
//! Layer L1, blocking, on a pod worker, which alone writes its pod's volumes. A volume that was filled
//! once stays as it is when its sources cannot be had any more: what runs goes on with what it has.

use std::path::{Path, PathBuf};

use super::payload::Collector;
use super::{CONFIG_MAP, Medium, VolumeContext, VolumeError, atomic, empty_dir, group_of};
use crate::api::pod as pods;
use crate::api::v1::{Pod, Volume};
use crate::host::HostError;
use crate::host::files::{ChangePolicy, ensure_folder, give_to_group};
use crate::util::order;

/// Mode of folders made for other volumes to be mounted on.
const NESTED_MODE: u32 = 0o755;

/// A volume that is filled.
pub(super) struct Filled {
    pub(super) dir: PathBuf,
    /// Why it has its old files still; `None` if they are new.
    pub(super) kept: Option<VolumeError>,
}

/// Makes and fills a volume.
pub(super) fn fill(
    ctx: &VolumeContext<'_>,
    collector: &Collector<'_>,
    plugin: &str,
    memory_limit: Option<u64>,
) -> Result<Filled, VolumeError> {
    let Collector { pod, volume, .. } = collector;
    let files = match collector.files() {
        Ok(files) => files,
        Err(why) => {
            let error = VolumeError::invalid(volume, why);
            let uid = pods::pod_uid(pod);
            let dir = ctx.dirs.volume(&uid, plugin, &volume.name).map_err(VolumeError::host(&volume.name))?;
            let was_filled = dir.join(atomic::DATA).exists() && empty_dir::is_ready(ctx, pod, volume, plugin)?;
            return if was_filled { Ok(Filled { dir, kept: Some(error) }) } else { Err(error) };
        }
    };
    // Upstream keeps ConfigMaps on disk and what may be secret in memory.
    let dir = match plugin {
        CONFIG_MAP => empty_dir::ensure(ctx, pod, volume, plugin, Medium::Disk)?,
        _ => empty_dir::mount_memory(ctx, pod, volume, plugin, memory_limit)?,
    };
    let failed = VolumeError::host(&volume.name);
    for nested in nested_mount_points(pod, volume)? {
        ensure_folder(&dir.join(nested), NESTED_MODE).map_err(&failed)?;
    }
    let gid = group_of(pod);
    let written = atomic::write(&dir, &files, |new| gid.map_or(Ok(()), |gid| give(new, gid))).map_err(&failed)?;
    if let Some(gid) = gid
        && written
    {
        give(&dir, gid).map_err(&failed)?;
    }
    Ok(Filled { dir, kept: None })
}

fn give(dir: &Path, gid: u32) -> Result<(), HostError> {
    let done = give_to_group(dir, gid, true, ChangePolicy::Always)?;
    done.first_failure.map_or(Ok(()), Err)
}

/// Folders in the volume that other volumes of a container are mounted on: a read-only volume has to
/// have them before. Only the uppermost of nested ones.
fn nested_mount_points(pod: &Pod, volume: &Volume) -> Result<Vec<PathBuf>, VolumeError> {
    let mut nested: Vec<PathBuf> = Vec::new();
    for (_, container) in pods::all_containers(pod) {
        let mounts: Vec<_> = container.volume_mounts.iter().flatten().collect();
        for own in mounts.iter().filter(|mount| mount.name == volume.name) {
            let own = clean(&own.mount_path);
            let mut inside: Vec<PathBuf> = mounts
                .iter()
                .filter_map(|mount| clean(&mount.mount_path).strip_prefix(&own).ok().map(Path::to_path_buf))
                .filter(|path| !path.as_os_str().is_empty())
                .collect();
            order::sort(&mut inside);
            for path in inside {
                if path.components().any(|part| part == std::path::Component::ParentDir) {
                    let why = format!("invalid container mount point {}", path.display());
                    return Err(VolumeError::invalid(volume, why));
                }
                if !nested.iter().any(|above| path.starts_with(above)) {
                    nested.push(path);
                }
            }
        }
    }
    Ok(nested)
}

/// A path without `.` and double slashes.
fn clean(path: &str) -> PathBuf {
    Path::new(path).components().filter(|part| *part != std::path::Component::CurDir).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_uppermost_mount_points_are_made() {
        let check = |paths: &[&str], expect: Result<&[&str], ()>| {
            let others = paths.iter().map(|path| json!({ "name": "other", "mountPath": path }));
            let mounts: Vec<_> =
                std::iter::once(json!({ "name": "v", "mountPath": "/etc/v/" })).chain(others).collect();
            let pod: Pod =
                serde_json::from_value(json!({ "spec": { "containers": [{ "name": "a", "volumeMounts": mounts }] } }))
                    .unwrap();
            let volume = Volume { name: "v".to_owned(), ..Volume::default() };
            let got = nested_mount_points(&pod, &volume).map_err(drop);
            assert_eq!(got, expect.map(|paths| paths.iter().map(PathBuf::from).collect()), "{paths:?}");
        };
        check(&["/etc", "/etc/vv", "/etc/v"], Ok(&[]));
        check(&["/etc/v/a/b", "/etc/v/a-b", "/etc/v/a", "/etc//v/./a/c"], Ok(&["a", "a-b"]));
        check(&["/etc/v/../x"], Err(()));
    }
}

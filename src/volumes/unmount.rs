//! The end of a pod's volumes: what is mounted is taken off, what was the pod's alone is removed.
//!
//! Layer L1, blocking, on a pod worker or housekeeping. It works from the mount table and the disk, not
//! from the pod's spec, so it also cleans up after a pod that nobody remembers. It unmounts only what
//! this agent mounts, never enters a mount when it removes, goes on after an error, and tells all.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{CONFIG_MAP, DOWNWARD_API, EMPTY_DIR, PROJECTED, SECRET, VolumeContext};
use crate::api::PodUid;
use crate::host::HostError;
use crate::host::mounts::{self, MountTable};
use crate::host::remove::remove_tree;

/// Takes a pod's volumes away: mounts for `subPath` first, then memory volumes, then the content of
/// emptyDir. The rest of the pod's folder stays; [`crate::host::pod_dirs::PodDirs::remove`] takes it.
/// No container of the pod may run any more.
///
/// # Errors
/// Everything that would not go; running it again tries again.
pub fn unmount_pod(ctx: &VolumeContext<'_>, uid: &PodUid) -> Result<(), Vec<HostError>> {
    let mut errors = Vec::new();
    match (ctx.dirs.subpaths(uid), ctx.dirs.volumes(uid), ctx.dirs.pod(uid)) {
        (Ok(subpaths), Ok(volumes), Ok(pod)) => {
            // Of volumes that the agent fills or makes; another agent's CSI or NFS mounts are not ours to take.
            let own = [EMPTY_DIR, CONFIG_MAP, SECRET, DOWNWARD_API, PROJECTED];
            take(ctx, &subpaths, &mut errors);
            own.iter().for_each(|plugin| take(ctx, &volumes.join(plugin), &mut errors));
            // Marks go after what they vouch for.
            if errors.is_empty() {
                remove(&pod.join("plugins").join(EMPTY_DIR), &mut errors);
            }
        }
        (Err(e), ..) | (_, Err(e), _) | (.., Err(e)) => errors.push(e),
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Unmounts everything below a folder and removes the folder.
fn take(ctx: &VolumeContext<'_>, folder: &Path, errors: &mut Vec<HostError>) {
    match fs::symlink_metadata(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return,
        Err(e) => return errors.push(HostError::io("look at", folder, e)),
        Ok(_) => {}
    }
    let points: Vec<PathBuf> = match MountTable::read(ctx.mount_table) {
        Ok(table) => table.under(folder).iter().map(|entry| entry.mount_point.clone()).collect(),
        Err(e) => return errors.push(e),
    };
    let before = errors.len();
    errors.extend(points.iter().filter_map(|point| mounts::unmount(point).err()));
    if errors.len() == before {
        remove(folder, errors);
    }
}

fn remove(folder: &Path, errors: &mut Vec<HostError>) {
    if let Err(more) = remove_tree(folder) {
        errors.extend(more);
    }
}

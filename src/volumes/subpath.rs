//! `subPath`: one folder or file of a volume, mounted so that nothing the pod does leads elsewhere.
//!
//! Layer L1, blocking, on a pod worker. The part is opened step by step below the volume, then what was
//! opened (not its path, which a container could swap) is bind-mounted to a place that only the agent
//! can reach, and that place goes to the runtime. Whether the mount is read-only is the runtime's part.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use super::{VolumeContext, VolumeError};
use crate::api::PodUid;
use crate::host::HostError;
use crate::host::files::{Missing, Opened, ensure_folder, open_beneath};
use crate::host::mounts::{self, MountTable};

const FOLDER_MODE: u32 = 0o750;
const FILE_MODE: u32 = 0o640;

/// Which mount of which container wants a part of a volume.
#[derive(Clone, Copy, Debug)]
pub struct SubPathMount<'a> {
    /// Name of the volume.
    pub volume: &'a str,
    /// Where the volume lies on the host.
    pub volume_root: &'a Path,
    /// Name of the container.
    pub container: &'a str,
    /// Place of the mount in the container's volumeMounts, from 0.
    pub index: usize,
    /// The part, with variables expanded.
    pub sub_path: &'a str,
}

/// Makes a part of a volume ready and returns the path for the runtime. Missing folders are made with
/// the volume's mode. If the very same thing is mounted there already nothing changes.
pub fn prepare_subpath(
    ctx: &VolumeContext<'_>,
    uid: &PodUid,
    mount: &SubPathMount<'_>,
) -> Result<PathBuf, VolumeError> {
    prepare(ctx, uid, mount).map_err(VolumeError::host(mount.volume))
}

fn prepare(ctx: &VolumeContext<'_>, uid: &PodUid, mount: &SubPathMount<'_>) -> Result<PathBuf, HostError> {
    let part = Path::new(mount.sub_path);
    let inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if !part.components().all(inside) {
        return Err(HostError::refused("use as subPath", part, "it must be relative and without \"..\""));
    }
    let root = mount.volume_root;
    let mode = fs::metadata(root).map_err(|e| HostError::io("look at volume", root, e))?.mode() & 0o7777;
    let opened = open_beneath(root, part, Missing::MakeFolders(mode))?;
    let target = ctx.dirs.subpath(uid, mount.volume, mount.container, mount.index)?;

    if MountTable::read(ctx.mount_table)?.is_mount_point(&target) {
        if same(&opened, &target)? {
            return Ok(target);
        }
        mounts::unmount(&target)?;
    }
    make_target(&target, opened.is_folder)?;
    mounts::bind(&opened.path(), &target)?;
    // The last word: what is visible there is what was opened.
    if same(&opened, &target)? {
        return Ok(target);
    }
    mounts::unmount(&target)?;
    Err(HostError::refused("mount", &target, "something else appeared there"))
}

fn same(opened: &Opened, target: &Path) -> Result<bool, HostError> {
    let look = |path: &Path| fs::metadata(path).map_err(|e| HostError::io("look at", path, e));
    let (a, b) = (look(&opened.path())?, look(target)?);
    Ok((a.dev(), a.ino()) == (b.dev(), b.ino()))
}

/// Makes the place to mount on, a folder for a folder and a file for a file.
fn make_target(target: &Path, is_folder: bool) -> Result<(), HostError> {
    if let Some(parent) = target.parent() {
        ensure_folder(parent, FOLDER_MODE)?;
    }
    let failed = |e| HostError::io("make mount point", target, e);
    match fs::symlink_metadata(target) {
        Ok(found) if found.is_dir() == is_folder && !found.is_symlink() => return Ok(()),
        Ok(found) if found.is_dir() => fs::remove_dir(target).map_err(failed)?,
        Ok(_) => fs::remove_file(target).map_err(failed)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed(e)),
    }
    if is_folder {
        return ensure_folder(target, FOLDER_MODE);
    }
    fs::OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(target).map(drop).map_err(failed)
}

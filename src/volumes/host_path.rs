//! hostPath volumes: a path of this machine, checked against the type that the pod expects.
//!
//! Layer L1, blocking, on a pod worker. Makes a missing folder or file where the type says so, and
//! nothing else: it never mounts, removes or changes what is there.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use super::VolumeError;
use crate::api::v1::Volume;
use crate::host::HostError;
use crate::host::files::ensure_folder;

/// Checks, and makes if asked to, what a hostPath volume names. Returns the path.
pub fn check(volume: &Volume) -> Result<PathBuf, VolumeError> {
    let source = volume.host_path.as_ref();
    let path = PathBuf::from(source.map(|source| source.path.as_str()).unwrap_or_default());
    let wanted = source.and_then(|source| source.type_.as_deref()).unwrap_or_default();
    if path.as_os_str().is_empty() || path.components().any(|part| part == Component::ParentDir) {
        return Err(VolumeError::invalid(volume, format!("hostPath {path:?} must be a path without \"..\"")));
    }
    let failed = VolumeError::host(&volume.name);
    match wanted {
        // No type: whatever is there, or nothing, is the runtime's business.
        "" => {}
        "DirectoryOrCreate" if !exists(&path).map_err(&failed)? => ensure_folder(&path, 0o755).map_err(&failed)?,
        "FileOrCreate" if !exists(&path).map_err(&failed)? => make_file(&path).map_err(&failed)?,
        "Directory" | "DirectoryOrCreate" => expect(volume, &path, "directory", fs::FileType::is_dir)?,
        "File" | "FileOrCreate" => expect(volume, &path, "file", fs::FileType::is_file)?,
        "Socket" => expect(volume, &path, "socket file", |kind| kind.is_socket())?,
        "CharDevice" => expect(volume, &path, "character device", |kind| kind.is_char_device())?,
        "BlockDevice" => expect(volume, &path, "block device", |kind| kind.is_block_device())?,
        other => return Err(VolumeError::invalid(volume, format!("{other:?} is no type of a hostPath"))),
    }
    Ok(path)
}

fn exists(path: &Path) -> Result<bool, HostError> {
    match fs::metadata(path) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(HostError::io("look at", path, e)),
    }
}

fn expect(volume: &Volume, path: &Path, what: &str, is: impl Fn(&fs::FileType) -> bool) -> Result<(), VolumeError> {
    let found = match fs::metadata(path) {
        Ok(meta) => meta.file_type(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let why = format!("hostPath type check failed: {} does not exist, a {what} is expected", path.display());
            return Err(VolumeError::invalid(volume, why));
        }
        Err(e) => return Err(VolumeError::host(&volume.name)(HostError::io("look at", path, e))),
    };
    if is(&found) {
        return Ok(());
    }
    Err(VolumeError::invalid(volume, format!("hostPath type check failed: {} is not a {what}", path.display())))
}

fn make_file(path: &Path) -> Result<(), HostError> {
    match fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(HostError::io("make file", path, e)),
        _ => Ok(()),
    }
}

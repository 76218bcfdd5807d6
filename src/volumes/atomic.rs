//! Fills a volume with files so that readers see all of the old or all of the new.
//!
//! Layer L1, blocking, on a pod worker; owns nothing. The layout is upstream's, which programs watch:
//! the files lie in a folder named by the time, `..data` is a link to it that is replaced by rename,
//! and what the container sees are links into `..data`. The caller is the only writer of the volume.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use super::VolumeFile;
use crate::host::HostError;
use crate::host::files::{is_file_name, read_start};
use crate::host::remove::remove_tree;
use crate::util::clock;

/// The link to the files in force.
pub(super) const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";
/// Files in one volume.
const FILE_LIMIT: usize = 10_000;
/// Folders tried for one that is new.
const NAME_TRIES: u32 = 100;

/// Makes the volume hold exactly these files; `prepare` sees the folder of the new ones before any
/// reader does. Returns whether anything was written: nothing is if all is as it should be.
pub fn write(
    dir: &Path,
    files: &[VolumeFile],
    prepare: impl FnOnce(&Path) -> Result<(), HostError>,
) -> Result<bool, HostError> {
    let wanted = check(dir, files)?;
    let old = match fs::read_link(dir.join(DATA)) {
        Ok(old) => Some(old),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(HostError::io("read link", dir.join(DATA), e)),
    };
    let tops: Vec<_> = wanted.keys().filter_map(|path| path.components().next()).collect();
    let old_tops = old.as_ref().map(|old| names(&dir.join(old))).transpose()?.unwrap_or_default();
    if let Some(old) = &old
        && same(&dir.join(old), &wanted)?
        && tops.iter().all(|top| fs::symlink_metadata(dir.join(top)).is_ok())
    {
        return Ok(false);
    }

    let new = new_folder(dir)?;
    let filled = wanted.iter().try_for_each(|(path, file)| write_file(&new.join(path), file));
    if let Err(e) = filled.and_then(|()| prepare(&new)) {
        // It names itself by time and is of no use to anybody.
        let _ = remove_tree(&new);
        return Err(e);
    }
    for top in &tops {
        let link = dir.join(top);
        match symlink(Path::new(DATA).join(top), &link) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(HostError::io("make link", link, e)),
            _ => {}
        }
    }
    let link = dir.join(NEW_DATA);
    let failed = |e| HostError::io("replace", dir.join(DATA), e);
    // One that a crash left behind.
    let _ = fs::remove_file(&link);
    symlink(new.file_name().unwrap_or_default(), &link).map_err(failed)?;
    fs::rename(&link, dir.join(DATA)).map_err(failed)?;

    for gone in old_tops.iter().filter(|name| !tops.iter().any(|top| top.as_os_str() == name.as_str())) {
        let link = dir.join(gone);
        match fs::remove_file(&link) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(HostError::io("remove link", link, e)),
            _ => {}
        }
    }
    remove_old(dir, &new)?;
    Ok(true)
}

/// The files by path, each path inside the volume and none in the way of another.
fn check<'a>(dir: &Path, files: &'a [VolumeFile]) -> Result<BTreeMap<PathBuf, &'a VolumeFile>, HostError> {
    let refuse = |path: &str, why: &str| Err(HostError::refused("write", dir.join(path), why));
    let mut wanted: BTreeMap<PathBuf, _> = BTreeMap::new();
    for file in files {
        let path = Path::new(&file.path);
        let plain = path.components().all(|part| match part {
            Component::Normal(name) => name.to_str().is_some_and(is_file_name),
            Component::CurDir => true,
            _ => false,
        });
        let path: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
        if !plain || path.as_os_str().is_empty() || file.path.starts_with("..") || file.path.len() > 4096 {
            return refuse(&file.path, "a file's path must be relative, without \"..\", and not start with it");
        }
        wanted.insert(path, file);
    }
    let blocked = |path: &Path| path.ancestors().skip(1).any(|above| wanted.contains_key(above));
    if let Some(path) = wanted.keys().find(|path| blocked(path)) {
        return refuse(&path.to_string_lossy(), "one file stands where another needs a folder");
    }
    if wanted.len() > FILE_LIMIT {
        return refuse("", "more than 10000 files in one volume");
    }
    Ok(wanted)
}

/// Whether a folder holds exactly these files. Modes are left out: the pod's group changes them.
fn same(folder: &Path, wanted: &BTreeMap<PathBuf, &VolumeFile>) -> Result<bool, HostError> {
    let mut found = 0;
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for name in names(&folder)? {
            let path = folder.join(name);
            if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir()) {
                folders.push(path);
            } else {
                found += 1;
            }
        }
    }
    let equal = |(path, file): (&PathBuf, &&VolumeFile)| {
        let limit = file.bytes.len() as u64 + 1;
        matches!(read_start(&folder.join(path), limit), Ok(Some(bytes)) if bytes == file.bytes)
    };
    Ok(found == wanted.len() && wanted.iter().all(equal))
}

fn names(folder: &Path) -> Result<Vec<String>, HostError> {
    match fs::read_dir(folder) {
        Ok(entries) => Ok(entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(HostError::io("list", folder, e)),
    }
}

fn new_folder(dir: &Path) -> Result<PathBuf, HostError> {
    let time = jiff::Timestamp::from_nanosecond(i128::from(clock::wall())).unwrap_or_default();
    let stem = time.strftime("..%Y_%m_%d_%H_%M_%S.").to_string();
    for number in 0..NAME_TRIES {
        let path = dir.join(format!("{stem}{:010}", time.subsec_nanosecond() as u32 + number));
        match fs::create_dir(&path) {
            Ok(()) => {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
                    .map_err(|e| HostError::io("set the mode of", &path, e))?;
                return Ok(path);
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(HostError::io("make folder", path, e)),
        }
    }
    Err(HostError::refused("make a folder in", dir, "all names tried are taken"))
}

fn write_file(path: &Path, file: &VolumeFile) -> Result<(), HostError> {
    use std::io::Write as _;
    let failed = |e| HostError::io("write", path, e);
    if let Some(parent) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(parent).map_err(failed)?;
    }
    let mode = file.mode & 0o777;
    let mut open = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    open.write_all(&file.bytes).map_err(failed)?;
    open.set_permissions(fs::Permissions::from_mode(mode)).map_err(failed)?;
    match file.owner {
        Some(owner) => std::os::unix::fs::fchown(&open, Some(owner), None).map_err(failed),
        None => Ok(()),
    }
}

/// Removes folders of earlier writes, those that a crash left behind included.
fn remove_old(dir: &Path, keep: &Path) -> Result<(), HostError> {
    for name in names(dir)?.iter().filter(|name| name.starts_with("..2")) {
        let path = dir.join(name);
        if path != keep {
            remove_tree(&path).map_err(|mut errors| errors.swap_remove(0))?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "atomic_tests.rs"]
mod tests;

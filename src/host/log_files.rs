//! The files of one container's log: how long it is, setting it aside, compressing and removing old ones.
//!
//! Layer L1, blocking; log rotation and pod workers call it. It owns nothing and decides nothing. No file is ever put in
//! place of another, and none is removed before its compressed form is safe on the disk: a line that was printed is
//! lost neither to a power cut nor to two agents. Memory is bounded whatever the size of a log. Links are not followed
//! below the log folder: a pod may have been given that folder.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::HostError;

/// Bytes read at once.
const BLOCK: usize = 64 * 1024;
/// Names of one log's files that are read: far more than any rotation makes.
const NAME_LIMIT: usize = 10_000;

/// Whether something was done, or stood in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The file has the other name now.
    Done,
    /// There is a file of that name, which stays; the file keeps its name.
    NameTaken,
}

/// Bytes of a log; `None` if there is none.
pub fn size(log: &Path) -> Result<Option<u64>, HostError> {
    match fs::metadata(log) {
        Ok(found) => Ok(Some(found.len())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(HostError::io("look at log", log, e)),
    }
}

/// Names of the files beside a log that begin with its name and a dot. Those that are not text are left out.
pub fn beside(log: &Path) -> Result<Vec<String>, HostError> {
    let (folder, name) = split(log)?;
    let mut names = Vec::new();
    let entries = fs::read_dir(folder).map_err(|e| HostError::io("list log folder", folder, e))?;
    for entry in entries {
        let entry = entry.map_err(|e| HostError::io("list log folder", folder, e))?;
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if let Some(found) = entry.file_name().to_str()
            && is_file
            && found.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
        {
            if names.len() == NAME_LIMIT {
                return Err(HostError::refused("list log folder", folder, "there are too many files of one log"));
            }
            names.push(found.to_owned());
        }
    }
    Ok(names)
}

/// Gives a file another name, unless that name is taken. For a moment it has both.
pub fn rename_to_free(from: &Path, to: &Path) -> Result<Moved, HostError> {
    let failed = |e| HostError::io("rename log", from, e);
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from).map(|()| Moved::Done).map_err(failed),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(Moved::NameTaken),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(failed(e)),
        // A file system without second names.
        Err(_) if fs::symlink_metadata(to).is_ok() => Ok(Moved::NameTaken),
        Err(_) => fs::rename(from, to).map(|()| Moved::Done).map_err(failed),
    }
}

/// Removes a file; none there is a success.
pub fn remove(path: &Path) -> Result<(), HostError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(HostError::io("remove log", path, e)),
        _ => Ok(()),
    }
}

/// Removes a log and all that rotation made of it; none there is a success. Tells of the first failure, and goes on
/// after it.
pub fn remove_all(log: &Path) -> Result<(), HostError> {
    let names = match beside(log) {
        Err(e) if e.is_not_found() => return Ok(()),
        names => names?,
    };
    let others = names.iter().map(|name| remove(&log.with_file_name(name)));
    others.chain([remove(log)]).fold(Ok(()), Result::and)
}

/// Puts `<file>.gz` in the place of a file. It is written as `<file>.tmp`, which goes if anything fails or `give_up`
/// says so between two blocks.
pub fn compress(file: &Path, compressed: &str, unfinished: &str, give_up: &dyn Fn() -> bool) -> Result<(), HostError> {
    let with = |suffix: &str| {
        let mut name = file.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let (half, whole) = (with(unfinished), with(compressed));
    let done = write_compressed(file, &half, give_up).and_then(|()| rename_to_free(&half, &whole));
    match done {
        Ok(Moved::Done) => {
            // The names have to be safe too before the file that holds the lines goes.
            let (folder, _) = split(file)?;
            let synced = fs::File::open(folder).and_then(|folder| folder.sync_all());
            synced.map_err(|e| HostError::io("write the log folder", folder, e))?;
            remove(file)
        }
        Ok(Moved::NameTaken) => {
            remove(&half)?;
            Err(HostError::refused("compress log to", whole, "there is such a file"))
        }
        Err(error) => {
            let _tidied_at_the_next_rotation_else = remove(&half);
            Err(error)
        }
    }
}

fn write_compressed(file: &Path, half: &Path, give_up: &dyn Fn() -> bool) -> Result<(), HostError> {
    let failed = |e| HostError::io("compress log", file, e);
    let mut from = OpenOptions::new().read(true).custom_flags(nix::libc::O_NOFOLLOW).open(file).map_err(failed)?;
    let found = from.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(HostError::refused("compress log", file, "it is no file"));
    }
    let to = OpenOptions::new().write(true).create_new(true).mode(found.mode() & 0o7777).open(half);
    let to = to.map_err(|e| HostError::io("make", half, e))?;
    let mut encoder = GzEncoder::new(to, Compression::default());
    let mut block = vec![0; BLOCK];
    loop {
        if give_up() {
            return Err(HostError::refused("go on to compress log", file, "the agent ends"));
        }
        let length = from.read(&mut block).map_err(failed)?;
        if length == 0 {
            break;
        }
        encoder.write_all(&block[..length]).map_err(failed)?;
    }
    encoder.finish().and_then(|to| to.sync_all()).map_err(failed)
}

/// Folder and name of a log.
fn split(log: &Path) -> Result<(&Path, &str), HostError> {
    match (log.parent(), log.file_name().and_then(OsStr::to_str)) {
        (Some(folder), Some(name)) => Ok((folder, name)),
        _ => Err(HostError::refused("use as a log", log, "it names no file")),
    }
}

#[cfg(test)]
#[path = "log_files_tests.rs"]
mod tests;

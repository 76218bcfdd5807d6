//! Removes a folder with everything in it, and nothing else.
//!
//! Layer L1, blocking, any thread. Owns nothing. A container wrote what is in there, so: links are
//! removed, not followed; a mount point is never entered; a tree of any depth is taken apart with a
//! bounded number of descriptors. It goes on after an error and tells the first few.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::HostError;
use super::files::{Level, errno, open_child};

/// Folders open at once; what is deeper is moved up first.
const DEPTH_LIMIT: usize = 64;
/// Errors kept for people.
const ERROR_LIMIT: usize = 16;
/// Rounds of moving deep folders up: enough for a million levels.
const ROUND_LIMIT: usize = 16_384;

/// Removes `path` and all in it. Nothing there is a success.
///
/// # Errors
/// What could not be removed, at most 16 of them; a mount point inside is [`HostError::StillMounted`].
pub fn remove_tree(path: &Path) -> Result<(), Vec<HostError>> {
    let mut job = Removal { errors: Vec::new(), moved: 0 };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(vec![HostError::refused("remove", path, "it is the top of the file system")]);
    };
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let parent_fd = match nix::fcntl::open(parent, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::ENOENT) => return Ok(()),
        Err(e) => return Err(vec![HostError::io("open folder", parent, e)]),
    };
    for _ in 0..ROUND_LIMIT {
        let moved = job.moved;
        job.remove_entry(&parent_fd, name, path);
        if !job.errors.is_empty() {
            return Err(job.errors);
        }
        if job.moved == moved {
            return Ok(());
        }
    }
    Err(vec![HostError::refused("remove", path, "it is nested too deep; remove it by hand")])
}

struct Removal {
    errors: Vec<HostError>,
    /// Folders moved up to the top, where the next round takes them.
    moved: u64,
}

impl Removal {
    fn fail(&mut self, error: HostError) {
        if self.errors.len() < ERROR_LIMIT {
            self.errors.push(error);
        }
    }

    /// Removes one entry of a folder, with everything in it.
    fn remove_entry(&mut self, parent: &OwnedFd, name: &OsStr, path: &Path) {
        let Some(top) = self.unlink(parent, name, path) else { return };
        let mut walk = vec![(name.to_owned(), top)];
        while let Some((_, level)) = walk.last_mut() {
            match level.entries.next() {
                Some(Ok(entry)) => {
                    let name = entry.file_name();
                    let path = level.path.join(&name);
                    if walk.len() >= DEPTH_LIMIT {
                        self.move_up(&walk, &name, &path);
                        continue;
                    }
                    let Some((_, level)) = walk.last() else { break };
                    if let Some(next) = self.unlink(&level.fd, &name, &path) {
                        walk.push((name, next));
                    }
                }
                Some(Err(e)) => {
                    let error = HostError::io("list", &level.path, e);
                    self.fail(error);
                    self.close(&mut walk, parent);
                }
                None => self.close(&mut walk, parent),
            }
        }
    }

    /// Removes the folder at the end of the walk, which is empty now unless something failed in it.
    fn close(&mut self, walk: &mut Vec<(OsString, Level)>, parent: &OwnedFd) {
        let Some((name, level)) = walk.pop() else { return };
        let above = walk.last().map_or(parent, |(_, level)| &level.fd);
        match unlinkat(above, name.as_os_str(), UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            // Either an error in it was told already, or folders were moved up into it.
            Err(Errno::ENOTEMPTY) if !self.errors.is_empty() || self.moved > 0 => {}
            Err(e) => self.fail(HostError::io("remove folder", level.path, e)),
        }
    }

    /// Removes a file or an empty folder; opens a folder that is not empty.
    fn unlink(&mut self, parent: &OwnedFd, name: &OsStr, path: &Path) -> Option<Level> {
        let outcome = match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
            // EPERM is POSIX for a folder, and also an immutable file, which rmdir then tells apart.
            Err(Errno::EISDIR | Errno::EPERM) => match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
                Err(Errno::ENOTDIR) => Err(Errno::EPERM),
                other => other,
            },
            other => other,
        };
        let opened = match outcome {
            Ok(()) | Err(Errno::ENOENT) => return None,
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => {
                nix::sys::stat::fstat(parent).and_then(|stat| open_child(parent, name, stat.st_dev))
            }
            Err(Errno::EBUSY) => Ok(None),
            Err(e) => Err(e),
        };
        match opened {
            Ok(Some(fd)) => match Level::open(fd, path.to_path_buf()) {
                Ok(level) => return Some(level),
                Err(e) => self.fail(HostError::io("list", path, errno(e))),
            },
            Ok(None) => {
                self.fail(HostError::StillMounted { path: path.to_path_buf(), mounts: vec![path.to_path_buf()] });
            }
            Err(Errno::ENOENT) => {}
            Err(e) => self.fail(HostError::io("remove", path, e)),
        }
        None
    }

    fn move_up(&mut self, walk: &[(OsString, Level)], name: &OsStr, path: &Path) {
        let (Some((_, top)), Some((_, level))) = (walk.first(), walk.last()) else { return };
        match unlinkat(&level.fd, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => return,
            Err(_) => {}
        }
        let target = PathBuf::from(format!(".ferrolet-remove-{}", self.moved));
        match nix::fcntl::renameat(&level.fd, name, &top.fd, &target) {
            Ok(()) => self.moved += 1,
            Err(e) => self.fail(HostError::io("move up to remove", path, e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::host::explain;
    use crate::host::files::names_in;
    use crate::host::mounts;
    use crate::host::test_support::in_private_mounts;

    #[test]
    fn a_tree_goes_and_what_its_links_point_at_stays() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("keep"), "x").unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("a/b/c")).unwrap();
        fs::create_dir(tree.join("empty")).unwrap();
        fs::write(tree.join("a/file"), "x").unwrap();
        symlink(&outside, tree.join("a/b/link")).unwrap();
        symlink("loop", tree.join("loop")).unwrap();
        nix::unistd::mkfifo(&tree.join("fifo"), Mode::S_IRWXU).unwrap();
        let socket = std::os::unix::net::UnixListener::bind(tree.join("socket")).unwrap();
        remove_tree(&tree).unwrap();
        drop(socket);
        assert_eq!(names_in(dir.path()), ["outside"]);
        assert_eq!(names_in(&outside), ["keep"]);
        remove_tree(&tree).unwrap();
        // A link itself, a file, and something in a folder that is not there.
        symlink(&outside, &tree).unwrap();
        remove_tree(&tree).unwrap();
        remove_tree(&outside.join("keep")).unwrap();
        remove_tree(&dir.path().join("none/at/all")).unwrap();
        assert_eq!(names_in(dir.path()), ["outside"]);
    }

    #[test]
    fn depth_costs_no_descriptors() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let mut fd = nix::fcntl::open(&tree, OFlag::O_DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..DEPTH_LIMIT * 5 {
            nix::sys::stat::mkdirat(&fd, "d", Mode::S_IRWXU).unwrap();
            let flags = OFlag::O_CREAT | OFlag::O_WRONLY;
            drop(nix::fcntl::openat(&fd, "f", flags, Mode::S_IRUSR).unwrap());
            fd = nix::fcntl::openat(&fd, "d", OFlag::O_DIRECTORY, Mode::empty()).unwrap();
        }
        drop(fd);
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn a_mount_inside_is_neither_entered_nor_removed() {
        in_private_mounts(|dir| {
            let tree = dir.join("tree");
            for name in ["disk", "view", "plain"] {
                fs::create_dir_all(tree.join(name)).unwrap();
            }
            let outside = dir.join("outside");
            fs::create_dir(&outside).unwrap();
            fs::write(outside.join("keep"), "x").unwrap();
            mounts::mount_tmpfs(&tree.join("disk"), None, 0o755).unwrap();
            fs::write(tree.join("disk/keep"), "x").unwrap();
            // Same file system: only the mount id tells it apart.
            mounts::bind(&outside, &tree.join("view")).unwrap();
            let errors = remove_tree(&tree).unwrap_err();
            let mut told: Vec<_> = errors.iter().map(|e| explain(e)).collect();
            told.sort();
            assert_eq!(told.len(), 2, "{told:?}");
            assert!(told[0].contains("tree/disk still has mounts") && told[1].contains("tree/view"), "{told:?}");
            assert_eq!((names_in(&outside).len(), names_in(&tree.join("disk")).len()), (1, 1));
            assert_eq!(names_in(&tree), ["disk", "view"]);
        });
    }
}

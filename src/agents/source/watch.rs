//! Tells when something happens at the static pod path, also before there is one.
//!
//! Runs on the thread `src-file`, which owns it: one inotify instance with one watch, on the folder
//! of manifests, the folder around the one manifest, or the nearest folder above a path that is not
//! there yet. Never recursive, never reads a manifest. When the kernel's limits leave no watch, the
//! owner's rescan timer has to do.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use inotify::{EventMask, Inotify, WatchDescriptor, WatchMask};

use super::folder::Place;

/// Room for about a hundred events; what does not fit waits in the kernel.
const BUFFER_BYTES: usize = 8 * 1024;
/// How often the folder to watch may change under the attempt to watch it.
const MAX_ATTEMPTS: usize = 8;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Somebody has begun to write this file and not closed it.
    Writing {
        /// Its name.
        name: OsString,
        /// Whether bytes were written, not just the file made.
        has_content: bool,
    },
    /// This file is complete: closed after writing, or moved in whole.
    Complete(OsString),
    /// Something else: a file went, a link came, access changed, the folder itself moved.
    Other,
}

/// The watch.
#[derive(Debug)]
pub struct Watch {
    path: PathBuf,
    /// `None` while the kernel has no instance for us.
    inotify: Option<Inotify>,
    current: Option<Current>,
    buffer: Box<[u8]>,
}

#[derive(Debug)]
struct Current {
    descriptor: WatchDescriptor,
    folder: PathBuf,
    /// The one name in the folder that matters; `None`: all that are no dot files.
    only: Option<OsString>,
}

impl Watch {
    /// Watches nothing yet. `path` is absolute.
    pub fn new(path: PathBuf) -> Self {
        Self { path, inotify: None, current: None, buffer: vec![0; BUFFER_BYTES].into_boxed_slice() }
    }

    /// Puts the watch where it belongs for a path that is `place`. To be called before looking at the
    /// path, so that what happens after the look is told.
    ///
    /// # Errors
    /// The kernel's limits for inotify are used up, or the folder cannot be watched.
    pub fn arm(&mut self, place: Place) -> io::Result<()> {
        let result = self.try_arm(place);
        if result.is_err() {
            // Without the instance no stale watch can wake anybody.
            self.current = None;
            self.inotify = None;
        }
        result
    }

    fn try_arm(&mut self, place: Place) -> io::Result<()> {
        let inotify = match &mut self.inotify {
            Some(inotify) => inotify,
            none => none.insert(Inotify::init()?),
        };
        for _ in 0..MAX_ATTEMPTS {
            let (folder, only) = target(&self.path, place);
            let mut mask = WatchMask::CREATE
                | WatchMask::MOVE
                | WatchMask::DELETE
                | WatchMask::DELETE_SELF
                | WatchMask::MOVE_SELF
                | WatchMask::ONLYDIR;
            if place != Place::Missing {
                mask |= WatchMask::CLOSE_WRITE | WatchMask::MODIFY | WatchMask::ATTRIB;
            }
            let descriptor = match inotify.watches().add(&folder, mask) {
                Ok(descriptor) => descriptor,
                // The folder went between the look and the watch.
                Err(error) if error.kind() == io::ErrorKind::NotFound && place == Place::Missing => continue,
                Err(error) => return Err(error),
            };
            if let Some(old) = self.current.take()
                && old.descriptor != descriptor
            {
                // It may be gone by itself, with its folder.
                let _gone_already = inotify.watches().remove(old.descriptor);
            }
            self.current = Some(Current { descriptor, folder, only });
            // Another folder may be the nearest by now: what was made before the watch tells no event.
            if target(&self.path, place).0 == self.current.as_ref().map(|c| c.folder.as_path()).unwrap_or(Path::new(""))
            {
                return Ok(());
            }
        }
        Ok(())
    }

    /// What to wait for; `None` while there is no watch.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.current.as_ref().and(self.inotify.as_ref()).map(AsFd::as_fd)
    }

    /// Everything that happened since the last call, without waiting.
    pub fn changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        let Some(inotify) = &mut self.inotify else { return changes };
        loop {
            let events = match inotify.read_events(&mut self.buffer) {
                Ok(events) => events,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return changes,
                Err(_) => {
                    // A broken instance would wake the owner for ever; the next look makes a new one.
                    self.current = None;
                    self.inotify = None;
                    changes.push(Change::Other);
                    return changes;
                }
            };
            for event in events {
                let Some(current) = &self.current else { continue };
                if event.mask.contains(EventMask::Q_OVERFLOW) {
                    changes.push(Change::Other);
                    continue;
                }
                if event.wd != current.descriptor {
                    continue;
                }
                let change = match event.name {
                    None => Change::Other,
                    Some(name) if !concerns(current.only.as_deref(), name) => continue,
                    Some(name) if event.mask.intersects(EventMask::CLOSE_WRITE | EventMask::MOVED_TO) => {
                        Change::Complete(name.to_owned())
                    }
                    Some(name) if event.mask.contains(EventMask::MODIFY) => {
                        Change::Writing { name: name.to_owned(), has_content: true }
                    }
                    Some(name)
                        if event.mask.contains(EventMask::CREATE) && is_open_file(&current.folder.join(name)) =>
                    {
                        Change::Writing { name: name.to_owned(), has_content: false }
                    }
                    Some(_) => Change::Other,
                };
                if changes.last() != Some(&change) {
                    changes.push(change);
                }
            }
        }
    }
}

/// Whether a name that was just made is a file that its maker still writes. A link is complete.
fn is_open_file(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file() && meta.nlink() == 1)
}

fn concerns(only: Option<&OsStr>, name: &OsStr) -> bool {
    match only {
        Some(only) => name == only,
        None => !name.as_bytes().starts_with(b"."),
    }
}

/// The folder to watch, and the one name in it that matters.
fn target(path: &Path, place: Place) -> (PathBuf, Option<OsString>) {
    let parent = || path.parent().unwrap_or(Path::new("/"));
    let name = || path.file_name().map(OsStr::to_owned);
    match place {
        Place::Folder => (path.to_owned(), None),
        Place::File | Place::Unknown => (parent().to_owned(), name()),
        Place::Missing => {
            let mut below = path;
            for above in path.ancestors().skip(1) {
                if above.is_dir() {
                    return (above.to_owned(), below.file_name().map(OsStr::to_owned));
                }
                below = above;
            }
            (PathBuf::from("/"), None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_that_cannot_be_had_leaves_nothing_and_may_come_later() {
        let lab = tempfile::tempdir().expect("a folder");
        let path = lab.path().join("m");
        std::fs::write(&path, "").expect("written");
        let mut watch = Watch::new(path.clone());
        assert!(watch.arm(Place::Folder).is_err(), "a file is watched through its folder only");
        assert!(watch.descriptor().is_none(), "the owner has only its timer now");
        assert_eq!(watch.changes(), []);
        std::fs::remove_file(&path).expect("removed");
        std::fs::create_dir(&path).expect("a folder");
        watch.arm(Place::Folder).expect("a watch");
        assert!(watch.descriptor().is_some());
    }

    #[test]
    fn a_writer_is_told_from_what_is_complete() {
        let lab = tempfile::tempdir().expect("a folder");
        let at = |name: &str| lab.path().join(name);
        let mut watch = Watch::new(lab.path().to_owned());
        watch.arm(Place::Folder).expect("a watch");
        let writing = |has_content| Change::Writing { name: "a".into(), has_content };
        let file = std::fs::File::create(at("a")).expect("a file");
        assert_eq!(watch.changes(), [writing(false)]);
        std::io::Write::write_all(&mut &file, b"x").expect("written");
        assert_eq!(watch.changes(), [writing(true)]);
        drop(file);
        assert_eq!(watch.changes(), [Change::Complete("a".into())]);
        std::fs::rename(at("a"), at("b")).expect("renamed");
        assert_eq!(watch.changes(), [Change::Other, Change::Complete("b".into())]);
        std::fs::hard_link(at("b"), at("c")).expect("a link");
        std::fs::write(at(".hidden"), "x").expect("written");
        assert_eq!(watch.changes(), [Change::Other]);
    }

    #[test]
    fn the_nearest_folder_above_a_missing_path_is_watched() {
        let lab = tempfile::tempdir().expect("a folder");
        let at = |name: &str| lab.path().join(name);
        let mut watch = Watch::new(at("x/y/m"));
        watch.arm(Place::Missing).expect("a watch");
        std::fs::write(at("other"), "").expect("written");
        assert_eq!(watch.changes(), [], "only the next name on the way matters");
        std::fs::create_dir_all(at("x/y")).expect("folders");
        assert_eq!(watch.changes(), [Change::Other]);
        watch.arm(Place::Missing).expect("a watch");
        std::fs::create_dir(at("x/y/m")).expect("a folder");
        assert_eq!(watch.changes(), [Change::Other]);
    }
}

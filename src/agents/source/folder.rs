//! What lies at the static pod path: the manifests read so far and the pods they give.
//!
//! Runs on the thread `src-file`, which owns it. A rescan opens only files that look different, so
//! that an idle node reads a folder and no file. A pod goes when the name of its file goes; a file
//! that cannot be read or understood keeps the pod it gave before. Never opens a fifo or a device.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use crate::api::v1::Pod;
use crate::msg::{SourceKind, SourceProblem};
use crate::util::fs;

use super::decode::{self, FILE_LIMITS};
use super::elders::Elders;
use super::identity::Origin;
use super::manifest::{self, admit};

/// How many files of a folder are read; those after them by name are reported.
pub const MAX_FILES: usize = 4096;

/// A file that changed this recently may change again without looking different: the kernel's time
/// stamps are some milliseconds coarse.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// What the static pod path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Not there (yet).
    Missing,
    /// One manifest.
    File,
    /// A folder of manifests.
    Folder,
    /// It could not be looked at, or is neither.
    Unknown,
}

impl Place {
    /// What `path` is now.
    pub fn of(path: &Path) -> Self {
        match std::fs::metadata(path) {
            Ok(meta) if meta.is_dir() => Self::Folder,
            Ok(meta) if meta.is_file() => Self::File,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Missing,
            Ok(_) | Err(_) => Self::Unknown,
        }
    }
}

/// How a file looked when it was last read: another look, other content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Look {
    fn of(meta: &Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// One file.
#[derive(Debug, Default)]
struct Entry {
    /// `None`: read it at the next rescan in any case.
    look: Option<Look>,
    /// The pod of its last good content.
    pod: Option<Arc<Pod>>,
    /// What is wrong with its present content, or was read over.
    messages: Vec<String>,
}

/// The manifests of one path.
#[derive(Debug)]
pub struct Manifests {
    path: PathBuf,
    node_name: String,
    entries: BTreeMap<OsString, Entry>,
    /// What the path was when the entries were read: one file, a folder, or nothing.
    entries_of: Place,
    /// What is wrong with the path as a whole.
    trouble: Option<String>,
    /// Pods of an earlier agent's time.
    elders: Elders,
}

impl Manifests {
    /// Nothing is read yet.
    pub fn new(path: PathBuf, node_name: String) -> Self {
        let elders = Elders::default();
        Self { path, node_name, entries: BTreeMap::new(), entries_of: Place::Missing, trouble: None, elders }
    }

    /// Has manifests that nobody touched meanwhile go on as these pods.
    pub fn go_on_with(&mut self, elders: Elders) {
        self.elders = elders;
    }

    /// Reads a file again at the next rescan, however it looks.
    pub fn suspect(&mut self, name: &OsStr) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.look = None;
        }
    }

    /// Looks at the path and reads what is new there. Files that `is_being_written` names stay as
    /// they are (a new one: unread).
    pub fn rescan(&mut self, is_being_written: impl Fn(&OsStr) -> bool) -> Place {
        self.trouble = None;
        let place = match std::fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.entries.clear();
                self.trouble = Some("is not there: waiting for it to appear".to_owned());
                Place::Missing
            }
            Err(error) => {
                self.trouble = Some(format!("cannot be looked at: {error}"));
                Place::Unknown
            }
            Ok(meta) if meta.is_dir() => {
                self.rescan_folder(is_being_written);
                Place::Folder
            }
            Ok(meta) if meta.is_file() => {
                let name = self.path.file_name().unwrap_or_default().to_owned();
                self.entries.retain(|other, _| *other == name);
                if !is_being_written(&name) {
                    self.read_entry(name, self.path.clone());
                }
                Place::File
            }
            Ok(meta) => {
                self.trouble =
                    Some(format!("is {}, but must be a folder of manifests or one manifest", kind_of(&meta)));
                Place::Unknown
            }
        };
        if place != Place::Unknown {
            self.entries_of = place;
        }
        place
    }

    fn rescan_folder(&mut self, is_being_written: impl Fn(&OsStr) -> bool) {
        let mut names = BTreeSet::new();
        let mut left_out = 0_usize;
        let listing = std::fs::read_dir(&self.path).and_then(|folder| {
            for entry in folder {
                let name = entry?.file_name();
                if name.as_bytes().starts_with(b".") {
                    continue;
                }
                names.insert(name);
                if names.len() > MAX_FILES {
                    names.pop_last();
                    left_out += 1;
                }
            }
            Ok(())
        });
        if let Err(error) = listing {
            self.trouble = Some(format!("cannot be listed: {error}"));
            return;
        }
        if left_out > 0 {
            self.trouble = Some(format!(
                "has {} files, of which only the first {MAX_FILES} by name are read",
                MAX_FILES + left_out
            ));
        }
        self.entries.retain(|name, _| names.contains(name));
        for name in names {
            if !is_being_written(&name) {
                let path = self.path.join(&name);
                self.read_entry(name, path);
            }
        }
    }

    fn read_entry(&mut self, name: OsString, path: PathBuf) {
        let entry = self.entries.entry(name);
        let meta = match std::fs::metadata(&path) {
            Ok(meta) => meta,
            Err(error) => {
                if error.kind() == io::ErrorKind::NotFound && std::fs::symlink_metadata(&path).is_err() {
                    // It went away since the folder was listed.
                    if let std::collections::btree_map::Entry::Occupied(gone) = entry {
                        gone.remove();
                    }
                    return;
                }
                let why = match error.kind() {
                    io::ErrorKind::NotFound => "is a symbolic link that leads nowhere".to_owned(),
                    _ => format!("cannot be looked at: {error}"),
                };
                entry.or_default().fail(None, vec![why]);
                return;
            }
        };
        let entry = entry.or_default();
        let look = Look::of(&meta);
        if entry.look == Some(look) {
            return;
        }
        if !meta.is_file() {
            entry.fail(Some(look), vec![format!("is {}, not a file: it is left alone", kind_of(&meta))]);
            return;
        }
        let (look, bytes) = match fs::read_bounded(&path, FILE_LIMITS.max_bytes as u64) {
            Ok(bytes) => (is_settled(&meta).then_some(look), bytes),
            Err(fs::FsError::TooLarge { max, .. }) => {
                entry.fail(Some(look), vec![format!("has more than the {max} bytes that are read of a manifest")]);
                return;
            }
            Err(fs::FsError::NotAFile { found, .. }) => {
                entry.fail(None, vec![format!("is {found}, not a file: it is left alone")]);
                return;
            }
            Err(fs::FsError::Io { operation, source, .. }) => {
                entry.fail(None, vec![format!("cannot {operation} it: {source}")]);
                return;
            }
        };
        let place = path.to_string_lossy();
        let origin = Origin { kind: SourceKind::File, place: &place, node_name: &self.node_name };
        let previous = entry.pod.as_deref();
        let changed = last_touched(&[&self.path, &path]).max(changed(&meta));
        let elders = &mut self.elders;
        let elder = |namespace: &str, name: &str, own: &str| elders.known(namespace, name, own, changed);
        let result = manifest::guarded(|| {
            let (pod, warnings) = decode::decode_pod(&bytes, &FILE_LIMITS).map_err(|error| vec![error.to_string()])?;
            Ok((admit(pod, &origin, previous, &manifest::now_text(), elder)?, warnings))
        });
        match result {
            Ok((pod, warnings)) => entry.succeed(look, pod, warnings),
            Err(messages) => entry.fail(look, messages),
        }
    }

    /// The pods, in the order of their files' names, and everything that is wrong. Of two manifests of
    /// one pod the first by file name counts.
    pub fn result(&self) -> (Vec<Arc<Pod>>, Vec<SourceProblem>) {
        let place = |name: &OsStr| match self.entries_of {
            Place::File => self.path.display().to_string(),
            Place::Missing | Place::Folder | Place::Unknown => self.path.join(name).display().to_string(),
        };
        let mut pods: Vec<Arc<Pod>> = Vec::new();
        let mut problems: Vec<SourceProblem> = Vec::new();
        if let Some(message) = &self.trouble {
            problems.push(SourceProblem { origin: self.path.display().to_string(), message: message.clone() });
        }
        let mut names: BTreeMap<(Option<&str>, Option<&str>), &OsStr> = BTreeMap::new();
        let mut uids: BTreeMap<Option<&str>, &OsStr> = BTreeMap::new();
        for (file, entry) in &self.entries {
            let mut tell = |message: String| problems.push(SourceProblem { origin: place(file), message });
            entry.messages.iter().cloned().for_each(&mut tell);
            let Some(pod) = &entry.pod else { continue };
            let name = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
            let uid = pod.metadata.uid.as_deref();
            if let Some(first) = names.get(&name) {
                let (namespace, name) = (name.0.unwrap_or_default(), name.1.unwrap_or_default());
                tell(format!("not used: {} defines pod {namespace}/{name} already", first.display()));
            } else if let Some(first) = uids.get(&uid) {
                tell(format!(
                    "not used: {} defines a pod of the same uid {} already",
                    first.display(),
                    uid.unwrap_or_default()
                ));
            } else {
                names.insert(name, file);
                uids.insert(uid, file);
                pods.push(Arc::clone(pod));
            }
        }
        (pods, problems)
    }
}

impl Entry {
    fn succeed(&mut self, look: Option<Look>, pod: Pod, warnings: Vec<String>) {
        self.look = look;
        self.messages = warnings;
        // An equal pod stays the same object, by which the sender knows that nothing changed.
        if self.pod.as_deref() != Some(&pod) {
            self.pod = Some(Arc::new(pod));
        }
    }

    fn fail(&mut self, look: Option<Look>, mut messages: Vec<String>) {
        self.look = look;
        if let (Some(pod), Some(last)) = (&self.pod, messages.last_mut()) {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            last.push_str(&format!(" (pod {name} stays as it was; remove the file to remove the pod)"));
        }
        self.messages = messages;
    }
}

/// When the content, the name or the rights of a file changed last.
fn changed(meta: &Metadata) -> Option<Timestamp> {
    Timestamp::new(meta.ctime(), i32::try_from(meta.ctime_nsec()).unwrap_or(0)).ok()
}

/// The same for links among these paths: what they lead to may be old, and new here.
fn last_touched(paths: &[&Path]) -> Option<Timestamp> {
    let links = paths.iter().filter_map(|path| std::fs::symlink_metadata(path).ok().filter(Metadata::is_symlink));
    links.filter_map(|meta| changed(&meta)).max()
}

fn is_settled(meta: &Metadata) -> bool {
    let Ok(modified) = meta.modified() else { return false };
    let now = SystemTime::now();
    // A clock may be off by years in either direction on a machine without a battery for it.
    let distance = now.duration_since(modified).or_else(|_| modified.duration_since(now)).unwrap_or_default();
    distance > SETTLED_AFTER
}

fn kind_of(meta: &Metadata) -> &'static str {
    let kind = meta.file_type();
    match () {
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a fifo",
        () if kind.is_socket() => "a socket",
        () if kind.is_block_device() || kind.is_char_device() => "a device",
        () => "no regular file",
    }
}

#[cfg(test)]
mod tests;

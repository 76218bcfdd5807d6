//! The mount table and the few mounts the agent makes: tmpfs, bind, unmount.
//!
//! Layer L1, blocking, any thread (a dead NFS server can hang every call here). Owns nothing. It reads
//! the table from the calling thread's view and compares resolved paths, as the kernel prints them.
//! It never follows a link at the target of a mount and never unmounts what it was not pointed at.

use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags};

use super::HostError;
use crate::util::order;

/// The mount table of the calling thread.
pub const MOUNT_TABLE: &str = "/proc/thread-self/mountinfo";

/// Largest mount table that is read: some 100,000 mounts.
const TABLE_LIMIT: u64 = 32 << 20;

/// How many mounts stacked on one point are taken off in one call.
const STACK_LIMIT: usize = 16;

/// One line of mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Mount id.
    pub id: u64,
    /// Id of the mount below it.
    pub parent: u64,
    /// Which folder of the file system is mounted.
    pub root: PathBuf,
    /// Where.
    pub mount_point: PathBuf,
    /// Options of this mount, e.g. `rw,relatime`.
    pub options: String,
    /// Whether mounts below it travel to its peers (`shared:N`).
    pub is_shared: bool,
    /// File system type.
    pub fs_type: String,
    /// Device or other source.
    pub source: String,
    /// Options of the file system, e.g. `rw,memory` or `rw,size=4k`.
    pub super_options: String,
}

/// A mount table as it was at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountTable {
    entries: Vec<MountEntry>,
}

impl MountTable {
    /// Reads a mountinfo file, e.g. [`MOUNT_TABLE`].
    pub fn read(path: &Path) -> Result<Self, HostError> {
        let file = fs::File::open(path).map_err(|e| HostError::io("open mount table", path, e))?;
        let mut text = Vec::new();
        file.take(TABLE_LIMIT + 1).read_to_end(&mut text).map_err(|e| HostError::io("read mount table", path, e))?;
        if text.len() as u64 > TABLE_LIMIT {
            return Err(HostError::TooLarge { path: path.to_path_buf(), limit: TABLE_LIMIT });
        }
        Ok(Self::parse(&text))
    }

    /// Parses the text of a mountinfo file. A line that is not one is left out: the kernel writes this
    /// file, and one odd mount must not hide the others.
    pub fn parse(text: &[u8]) -> Self {
        Self { entries: text.split(|b| *b == b'\n').filter_map(parse_line).collect() }
    }

    /// All mounts, in the order of the table: a later one on the same point covers an earlier one.
    pub fn entries(&self) -> &[MountEntry] {
        &self.entries
    }

    /// The mount that is visible at exactly this point, if it is one.
    pub fn at(&self, path: &Path) -> Option<&MountEntry> {
        let path = resolve(path);
        self.entries.iter().rev().find(|entry| entry.mount_point == path)
    }

    /// The mount that a path lies in.
    pub fn containing(&self, path: &Path) -> Option<&MountEntry> {
        let path = fs::canonicalize(path).unwrap_or_else(|_| resolve(path));
        path.ancestors().find_map(|above| self.entries.iter().rev().find(|entry| entry.mount_point == above))
    }

    /// Whether something is mounted exactly here.
    pub fn is_mount_point(&self, path: &Path) -> bool {
        self.at(path).is_some()
    }

    /// Mounts at or below a folder, in the order in which they can be unmounted.
    pub fn under(&self, path: &Path) -> Vec<&MountEntry> {
        let path = resolve(path);
        let mut found: Vec<_> = self.entries.iter().filter(|entry| entry.mount_point.starts_with(&path)).collect();
        found.reverse();
        // Stable: of mounts stacked on one point the newest stays first.
        order::sort_by_key(&mut found, |entry| std::cmp::Reverse(entry.mount_point.components().count()));
        found
    }
}

/// The path as the kernel prints it: links in its folders are followed, the last part is not.
fn resolve(path: &Path) -> PathBuf {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !parent.as_os_str().is_empty() => {
            fs::canonicalize(parent).map_or_else(|_| path.to_path_buf(), |parent| parent.join(name))
        }
        _ => path.to_path_buf(),
    }
}

fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|b| *b == b' ').filter(|field| !field.is_empty());
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse().ok();
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let _device = fields.next()?;
    let root = unescape(fields.next()?);
    let mount_point = unescape(fields.next()?);
    let options = text(fields.next()?);
    // Optional fields (propagation) end with a single dash.
    let mut is_shared = false;
    loop {
        match fields.next()? {
            b"-" => break,
            field => is_shared |= field.starts_with(b"shared:"),
        }
    }
    let fs_type = text(fields.next()?);
    let source = text(fields.next()?);
    // An empty source or empty options leave a field out.
    let super_options = fields.next().map(text).unwrap_or_default();
    Some(MountEntry { id, parent, root, mount_point, options, is_shared, fs_type, source, super_options })
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(unescape(field).as_os_str().as_bytes()).into_owned()
}

/// Undoes the kernel's `\040` form of blanks, tabs, newlines and backslashes.
fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte == b'\\' && tail.len() >= 3 {
            let octal = |digit: u8| matches!(digit, b'0'..=b'7').then(|| u32::from(digit - b'0'));
            if let (Some(a), Some(b), Some(c)) = (octal(tail[0]), octal(tail[1]), octal(tail[2]))
                && let Ok(value) = u8::try_from(a * 64 + b * 8 + c)
            {
                out.push(value);
                rest = &tail[3..];
                continue;
            }
        }
        out.push(byte);
    }
    PathBuf::from(OsString::from_vec(out))
}

/// Mounts a tmpfs. `size` bounds it in bytes (`None`: the kernel's half of memory), `mode` is that of its
/// top folder. Where the kernel knows `noswap` (6.4 and later) the content never reaches a swap device.
pub fn mount_tmpfs(target: &Path, size: Option<u64>, mode: u32) -> Result<(), HostError> {
    let mut options = format!("mode={mode:o}");
    if let Some(size) = size {
        options.push_str(&format!(",size={size}"));
    }
    let mount =
        |options: &str| nix::mount::mount(Some("tmpfs"), target, Some("tmpfs"), MsFlags::empty(), Some(options));
    match mount(&format!("{options},noswap")) {
        Err(Errno::EINVAL) => mount(&options),
        other => other,
    }
    .map_err(|e| HostError::io("mount tmpfs on", target, e))
}

/// Mounts huge pages of one size (`pagesize`, in bytes).
pub fn mount_hugetlbfs(target: &Path, page_size: u64) -> Result<(), HostError> {
    let options = format!("pagesize={page_size}");
    nix::mount::mount(Some("nodev"), target, Some("hugetlbfs"), MsFlags::empty(), Some(options.as_str()))
        .map_err(|e| HostError::io("mount huge pages on", target, e))
}

/// Makes what is at `source` visible at `target` too. A file goes on a file, a folder on a folder.
/// `source` may be `/proc/self/fd/N`, which names the opened thing itself and no path that can change.
pub fn bind(source: &Path, target: &Path) -> Result<(), HostError> {
    nix::mount::mount(Some(source), target, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .map_err(|e| HostError::io("bind-mount on", target, e))
}

/// Makes sure that mounts below a folder can travel into containers and back (`mountPropagation`), as
/// upstream does for its root folder: if the mount it lies in is not shared, the folder is mounted on
/// itself and that mount is shared. Returns whether it had to.
pub fn ensure_shared(folder: &Path, mount_table: &Path) -> Result<bool, HostError> {
    if MountTable::read(mount_table)?.containing(folder).is_some_and(|entry| entry.is_shared) {
        return Ok(false);
    }
    let shared = |target: &Path| {
        let flags = MsFlags::MS_SHARED | MsFlags::MS_REC;
        nix::mount::mount(None::<&str>, target, None::<&str>, flags, None::<&str>)
            .map_err(|e| HostError::io("share the mount", target, e))
    };
    if !MountTable::read(mount_table)?.is_mount_point(folder) {
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        nix::mount::mount(Some(folder), folder, None::<&str>, flags, None::<&str>)
            .map_err(|e| HostError::io("mount on itself", folder, e))?;
    }
    shared(folder).map(|()| true)
}

/// How an unmount ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// Nothing was mounted there.
    NotMounted,
    /// It is gone.
    Done,
    /// It was in use: out of sight now, gone when its last user closes it.
    Lazily,
}

/// Takes off everything that is mounted at `target`. What is busy is detached instead: a process that
/// outlived its pod must not keep the pod's folder for ever.
pub fn unmount(target: &Path) -> Result<Unmounted, HostError> {
    let mut outcome = Unmounted::NotMounted;
    for _ in 0..STACK_LIMIT {
        match nix::mount::umount2(target, MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) => outcome = if outcome == Unmounted::Lazily { outcome } else { Unmounted::Done },
            Err(Errno::EINVAL | Errno::ENOENT) => return Ok(outcome),
            Err(Errno::EBUSY) => {
                nix::mount::umount2(target, MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_DETACH)
                    .map_err(|e| HostError::io("detach the busy mount", target, e))?;
                outcome = Unmounted::Lazily;
            }
            Err(e) => return Err(HostError::io("unmount", target, e)),
        }
    }
    Err(HostError::refused("unmount", target, format!("more than {STACK_LIMIT} mounts are stacked on it")))
}

#[cfg(test)]
#[path = "mounts_tests.rs"]
mod tests;

//! Files in folders that a container can write to: opened without being led out of them, and given to
//! the pod's group.
//!
//! Layer L1, blocking, any thread. Owns nothing. Containers may swap any part of such a path for a link
//! at any moment, so every step opens one name below a folder that is already open, and never follows
//! a link by the kernel's hand. It never leaves the folder it was given, never crosses into another
//! mount on a walk, and is bounded in depth.

use std::collections::hash_map::RandomState;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, SFlag};
use nix::unistd::Gid;

use super::HostError;

/// Links followed within one path, as in the kernel.
const LINK_LIMIT: usize = 40;
/// Names in one path, those of followed links included.
const NAME_LIMIT: usize = 1024;
/// Folders within folders on one walk; each holds two file descriptors.
const DEPTH_LIMIT: usize = 256;

/// What to do when a part of a path does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// It is an error.
    Refuse,
    /// Make folders with this mode.
    MakeFolders(u32),
}

/// Something opened by path alone (`O_PATH`): it can be mounted and looked at, not read.
#[derive(Debug)]
pub struct Opened {
    /// The descriptor.
    pub fd: OwnedFd,
    /// Whether it is a folder.
    pub is_folder: bool,
}

impl Opened {
    /// A path that names this very thing as long as it is open, for `mount`.
    pub fn path(&self) -> PathBuf {
        fd_path(&self.fd)
    }
}

fn fd_path(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Opens what `relative` names below `root`. Links are followed as long as they stay below; an absolute
/// one, or one too many `..`, leads out. Each part is opened below the one before, so nothing that
/// happens meanwhile can lead elsewhere.
///
/// # Errors
/// [`HostError::Escapes`], or the kernel's answer.
pub fn open_beneath(root: &Path, relative: &Path, missing: Missing) -> Result<Opened, HostError> {
    let shown = root.join(relative);
    let escapes = || HostError::Escapes { path: shown.clone(), root: root.to_path_buf() };
    let failed = |e: Errno| HostError::io("open", &shown, e);
    let top = nix::fcntl::open(root, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|e| HostError::io("open folder", root, e))?;
    let mut stack = vec![top];
    let mut names: Vec<OsString> = Vec::new();
    let mut budget = NAME_LIMIT;
    let mut links = 0;
    if !push_names(&mut names, relative) {
        return Err(escapes());
    }
    while let Some(name) = names.pop() {
        budget = budget.checked_sub(1).ok_or_else(|| failed(Errno::ENAMETOOLONG))?;
        if name == ".." {
            stack.pop();
            if stack.is_empty() {
                return Err(escapes());
            }
            continue;
        }
        let Some(parent) = stack.last() else { return Err(escapes()) };
        let fd = open_or_make(parent, &name, missing).map_err(failed)?;
        let stat = nix::sys::stat::fstat(&fd).map_err(failed)?;
        match kind(&stat) {
            SFlag::S_IFDIR => stack.push(fd),
            SFlag::S_IFLNK => {
                links += 1;
                if links > LINK_LIMIT {
                    return Err(failed(Errno::ELOOP));
                }
                let target = nix::fcntl::readlinkat(&fd, "").map_err(failed)?;
                if !push_names(&mut names, Path::new(&target)) {
                    return Err(escapes());
                }
            }
            _ if names.is_empty() => return Ok(Opened { fd, is_folder: false }),
            _ => return Err(failed(Errno::ENOTDIR)),
        }
    }
    stack.pop().map(|fd| Opened { fd, is_folder: true }).ok_or_else(escapes)
}

/// Puts the names of a path on the stack, the first on top; false if the path is absolute.
fn push_names(names: &mut Vec<OsString>, path: &Path) -> bool {
    let before = names.len();
    for part in path.components() {
        match part {
            Component::Normal(name) => names.push(name.to_owned()),
            Component::ParentDir => names.push(OsString::from("..")),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => {
                names.truncate(before);
                return false;
            }
        }
    }
    names[before..].reverse();
    true
}

fn open_or_make(parent: &OwnedFd, name: &OsStr, missing: Missing) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let opened = nix::fcntl::openat(parent, name, flags, Mode::empty());
    let (Err(Errno::ENOENT), Missing::MakeFolders(mode)) = (&opened, missing) else { return opened };
    match nix::sys::stat::mkdirat(parent, name, Mode::from_bits_truncate(mode)) {
        Ok(()) => {
            let fd = nix::fcntl::openat(parent, name, flags | OFlag::O_DIRECTORY, Mode::empty())?;
            // The process' umask took bits away.
            chmod_fd(&fd, mode)?;
            Ok(fd)
        }
        // Somebody was faster; whatever it is now is judged like anything that was there before.
        Err(Errno::EEXIST) => nix::fcntl::openat(parent, name, flags, Mode::empty()),
        Err(e) => Err(e),
    }
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits())
}

/// Changes the mode of something opened by path alone.
fn chmod_fd(fd: &OwnedFd, mode: u32) -> Result<(), Errno> {
    let mode = Mode::from_bits_truncate(mode);
    nix::sys::stat::fchmodat(AT_FDCWD, &fd_path(fd), mode, FchmodatFlags::FollowSymlink)
}

/// Whether a folder's whole tree is given to the pod's group each time (`fsGroupChangePolicy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangePolicy {
    /// Always walk.
    #[default]
    Always,
    /// Only if the top folder is not yet as it should be.
    OnRootMismatch,
}

/// What a walk for the pod's group did.
#[derive(Debug, Default)]
pub struct GroupChange {
    /// Files and folders changed.
    pub changed: u64,
    /// Those that would not change.
    pub failed: u64,
    /// The first of them, for people.
    pub first_failure: Option<HostError>,
}

const SETGID: u32 = 0o2000;

/// Gives a tree to a group, as `fsGroup` asks: group owner, `rw` for the group (`r` if `read_only`), and
/// for folders `x` and the setgid bit. A file that refuses is counted and passed over, as upstream does;
/// links are given to the group themselves, never what they point at; mounts below are left alone. The
/// top goes last, so that an interrupted walk is taken up again under either policy.
pub fn give_to_group(root: &Path, gid: u32, read_only: bool, policy: ChangePolicy) -> Result<GroupChange, HostError> {
    let failed = |e: Errno| HostError::io("open folder", root, e);
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let top = nix::fcntl::open(root, flags, Mode::empty()).map_err(failed)?;
    let stat = nix::sys::stat::fstat(&top).map_err(failed)?;
    let mut report = GroupChange::default();
    if policy == ChangePolicy::OnRootMismatch && stat.st_gid == gid && wanted_mode(&stat, read_only) == stat.st_mode {
        return Ok(report);
    }
    let mut walk = vec![Level::open(top, root.to_path_buf()).map_err(|e| HostError::io("list", root, e))?];
    while let Some(level) = walk.last_mut() {
        let Some(entry) = level.entries.next() else {
            let Some(done) = walk.pop() else { break };
            change(&done.fd, &done.path, gid, read_only, &mut report);
            continue;
        };
        let step = entry.map_err(errno).and_then(|entry| {
            let name = entry.file_name();
            let path = level.path.join(&name);
            let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            let fd = nix::fcntl::openat(&level.fd, name.as_os_str(), flags, Mode::empty())?;
            if kind(&nix::sys::stat::fstat(&fd)?) != SFlag::S_IFDIR {
                change(&fd, &path, gid, read_only, &mut report);
                return Ok(None);
            }
            open_child(&level.fd, &name, level.device).map(|fd| fd.map(|fd| (fd, path)))
        });
        let path = level.path.clone();
        match step {
            // A mount of its own, or a file that is done.
            Ok(None) => {}
            Ok(Some((fd, path))) if walk.len() < DEPTH_LIMIT => match Level::open(fd, path) {
                Ok(level) => walk.push(level),
                Err(e) => report.add(HostError::io("list", path_of(&walk), e)),
            },
            Ok(Some((_, path))) => {
                report.add(HostError::refused("walk into", path, format!("more than {DEPTH_LIMIT} folders deep")));
            }
            // Gone meanwhile.
            Err(Errno::ENOENT) => {}
            Err(e) => report.add(HostError::io("open a file in", path, e)),
        }
    }
    Ok(report)
}

fn path_of(walk: &[Level]) -> PathBuf {
    walk.last().map(|level| level.path.clone()).unwrap_or_default()
}

impl GroupChange {
    fn add(&mut self, error: HostError) {
        self.failed += 1;
        self.first_failure.get_or_insert(error);
    }
}

/// The number in an I/O error.
pub(super) fn errno(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// One folder of a walk.
pub(super) struct Level {
    pub(super) fd: OwnedFd,
    pub(super) path: PathBuf,
    pub(super) device: u64,
    pub(super) entries: fs::ReadDir,
}

impl Level {
    pub(super) fn open(fd: OwnedFd, path: PathBuf) -> io::Result<Self> {
        let device = nix::sys::stat::fstat(&fd)?.st_dev;
        let entries = fs::read_dir(fd_path(&fd))?;
        Ok(Self { fd, path, device, entries })
    }
}

/// Opens a folder in a folder for a walk; `None` if it is a mount point.
pub(super) fn open_child(parent: impl AsFd + Copy, name: &OsStr, device: u64) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    // Also sees a bind mount of the same file system, which has the same device number.
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_XDEV | ResolveFlag::RESOLVE_NO_SYMLINKS);
    match nix::fcntl::openat2(parent, name, how) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::EXDEV) => Ok(None),
        // Before Linux 5.6, or behind a seccomp filter that does not know it.
        Err(Errno::ENOSYS | Errno::EPERM) => {
            let fd = nix::fcntl::openat(parent, name, flags, Mode::empty())?;
            let same = nix::sys::stat::fstat(&fd)?.st_dev == device;
            Ok(same.then_some(fd))
        }
        Err(e) => Err(e),
    }
}

/// The mode a file should have for its group, type bits included.
fn wanted_mode(stat: &FileStat, read_only: bool) -> u32 {
    let mut mask = if read_only { 0o440 } else { 0o660 };
    if kind(stat) == SFlag::S_IFDIR {
        mask |= 0o110 | SETGID;
    }
    stat.st_mode | mask
}

fn change(fd: &OwnedFd, path: &Path, gid: u32, read_only: bool, report: &mut GroupChange) {
    let outcome = (|| {
        let stat = nix::sys::stat::fstat(fd)?;
        let mut changed = false;
        if stat.st_gid != gid {
            let flags = AtFlags::AT_EMPTY_PATH | AtFlags::AT_SYMLINK_NOFOLLOW;
            nix::unistd::fchownat(fd, "", None, Some(Gid::from_raw(gid)), flags)?;
            changed = true;
        }
        let wanted = wanted_mode(&stat, read_only);
        // A link has no mode. Chown may have dropped setuid bits, so the mode is set after it anyway.
        if kind(&stat) != SFlag::S_IFLNK && (changed || wanted != stat.st_mode) {
            chmod_fd(fd, wanted & 0o7777)?;
            changed = true;
        }
        Ok::<_, Errno>(changed)
    })();
    match outcome {
        Ok(changed) => report.changed += u64::from(changed),
        Err(e) => report.add(HostError::io("give to the pod's group", path, e)),
    }
}

/// Makes a folder, and those above it that are missing, with exactly this mode. One that is there
/// already keeps its mode. Something else at its place, a link included, is an error.
pub fn ensure_folder(path: &Path, mode: u32) -> Result<(), HostError> {
    let failed = |e| HostError::io("make folder", path, e);
    match fs::create_dir(path) {
        Ok(()) => return fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let parent = path.parent().ok_or_else(|| failed(e))?;
            ensure_folder(parent, mode)?;
            return ensure_folder(path, mode);
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(failed(e)),
    }
    let found = fs::symlink_metadata(path).map_err(failed)?;
    if found.is_dir() {
        return Ok(());
    }
    Err(HostError::refused("use as a folder", path, "something else is there; remove it"))
}

/// Opens a regular file that a container may have written: a link is not followed, a fifo or device is
/// not waited for. `None` if the file does not exist.
fn open_foreign(path: &Path) -> Result<Option<fs::File>, HostError> {
    let failed = |e| HostError::io("read", path, e);
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = match fs::OpenOptions::new().read(true).custom_flags(flags.bits()).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(HostError::refused("read", path, "it is not a regular file"));
    }
    Ok(Some(file))
}

/// At most `limit` bytes from the start of a regular file that a container may have written. `None` if it
/// does not exist.
pub fn read_start(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, HostError> {
    let Some(file) = open_foreign(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).map_err(|e| HostError::io("read", path, e))?;
    Ok(Some(bytes))
}

/// At most `limit` bytes from the end of a regular file that a container may have written. `None` if it
/// does not exist.
pub fn read_end(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, HostError> {
    let Some(mut file) = open_foreign(path)? else { return Ok(None) };
    let failed = |e| HostError::io("read", path, e);
    let length = file.metadata().map_err(failed)?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(limit))).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Some(bytes))
}

/// Eight hex digits for a file name that nobody else has; not a secret.
pub(super) fn random_hex() -> String {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    format!("{:08x}", hasher.finish() & 0xffff_ffff)
}

/// Keeps a descriptor from programs that this process starts, as far as none is being started at this very moment.
pub(super) fn close_on_exec(descriptor: std::os::fd::BorrowedFd<'_>) {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    // It is open, so this cannot fail; and if it did, a program would have a descriptor too many.
    let _set = fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
}

/// Whether this text can be one name in a folder: not empty, no `/`, not `.` or `..`, at most 255 bytes.
pub fn is_file_name(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && text.len() <= 255 && !text.as_bytes().iter().any(|b| matches!(b, b'/' | 0))
}

/// Names in a folder, sorted, for tests.
#[cfg(test)]
pub(crate) fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .map(|entries| entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
        .unwrap_or_default();
    names.sort();
    names
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;

//! Files as an agent that may lose power writes and reads them.
//!
//! Used on every thread that does I/O; owns nothing. A write either happens whole or leaves the old
//! file as it was; a read is bounded and cannot hang on a fifo. It never follows a half-written file
//! into use, and never says "it failed" without path and operation.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::libc;

/// Marks a file that [`write_atomic`] had not finished. A dot file, so that nobody takes it for data.
const TEMPORARY_PREFIX: &str = ".tmp-ferrolet-";

/// A file operation failed.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// The kernel refused.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// What was tried: `open`, `write`, `rename` …
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A folder, fifo, socket or device stands where a file belongs.
    #[error("{} is {found}, not a regular file", path.display())]
    NotAFile {
        /// Which.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// More bytes than allowed.
    #[error("{} has more than the {max} bytes allowed", path.display())]
    TooLarge {
        /// Which.
        path: PathBuf,
        /// The limit.
        max: u64,
    },
}

impl FsError {
    fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { operation, path: path.to_owned(), source }
    }

    /// The kernel's kind of error, if it came from there.
    pub fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } => Some(source.kind()),
            Self::NotAFile { .. } | Self::TooLarge { .. } => None,
        }
    }

    /// Whether the file or a folder on the way to it is not there.
    pub fn is_not_found(&self) -> bool {
        self.kind() == Some(io::ErrorKind::NotFound)
    }
}

/// Replaces `path` by `bytes` with access `mode`, so that after a crash or power cut at any moment it
/// holds the old bytes or the new ones: a temporary file in the same folder, fsync, rename, fsync of
/// the folder.
///
/// # Errors
/// Any step failed. If it was the last (fsync of the folder), the new bytes are in place but may not
/// outlive a power cut; otherwise the old file is untouched and the temporary one removed.
pub fn write_atomic(path: &Path, bytes: &[u8], mode: u32) -> Result<(), FsError> {
    replace(path, bytes, mode)?;
    sync_folder(folder_of(path))
}

/// [`write_atomic`] without its last step: whoever replaces many files calls [`sync_folder`] once at
/// their end. Until then a power cut may bring the old file back, whole.
///
/// # Errors
/// Any step failed; the old file is untouched and the temporary one removed.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), FsError> {
    let temporary = temporary_for(folder_of(path));
    let mut cleanup = RemoveOnDrop(Some(&temporary));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW)
        .open(&temporary)
        .map_err(FsError::io("create", &temporary))?;
    // The umask took bits from the mode of the open.
    file.set_permissions(Permissions::from_mode(mode)).map_err(FsError::io("set the mode of", &temporary))?;
    file.write_all(bytes).map_err(FsError::io("write", &temporary))?;
    file.sync_all().map_err(FsError::io("fsync", &temporary))?;
    drop(file);
    std::fs::rename(&temporary, path).map_err(FsError::io("rename to", path))?;
    cleanup.0 = None;
    Ok(())
}

/// Makes renames, creations and removals in `folder` outlive a power cut.
///
/// # Errors
/// The folder cannot be opened or synced.
pub fn sync_folder(folder: &Path) -> Result<(), FsError> {
    let opened = File::open(folder).map_err(FsError::io("open folder", folder))?;
    opened.sync_all().map_err(FsError::io("fsync folder", folder))
}

/// Removes what [`write_atomic`] left in `folder` when the process died within it; returns how many.
/// Call it at start, before anybody writes there.
///
/// # Errors
/// The folder cannot be read; leftovers that cannot be removed are skipped.
pub fn remove_temporaries(folder: &Path) -> Result<usize, FsError> {
    let names = list(folder)?;
    let ours = names.iter().filter(|name| name.as_bytes().starts_with(TEMPORARY_PREFIX.as_bytes()));
    Ok(ours.filter(|name| std::fs::remove_file(folder.join(name)).is_ok()).count())
}

/// The names in a folder, in no order.
///
/// # Errors
/// It is no folder, or cannot be read.
pub fn list(folder: &Path) -> Result<Vec<OsString>, FsError> {
    let entries = std::fs::read_dir(folder).map_err(FsError::io("list", folder))?;
    entries.map(|entry| Ok(entry.map_err(FsError::io("list", folder))?.file_name())).collect()
}

/// Reads a regular file of at most `max` bytes. Symlinks are followed. Never blocks on a fifo or a
/// device, never reads more than `max` + 1 bytes whatever the file's stated size.
///
/// # Errors
/// Not there, not readable, not a regular file, or larger than `max`.
pub fn read_bounded(path: &Path, max: u64) -> Result<Vec<u8>, FsError> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC)
        .open(path)
        .map_err(|source| match source.raw_os_error() {
            // A socket cannot be opened at all.
            Some(libc::ENXIO) => FsError::NotAFile { path: path.to_owned(), found: "a socket or a device" },
            _ => FsError::io("open", path)(source),
        })?;
    let meta = file.metadata().map_err(FsError::io("stat", path))?;
    if !meta.is_file() {
        return Err(FsError::NotAFile { path: path.to_owned(), found: kind_name(&meta) });
    }
    if meta.len() > max {
        return Err(FsError::TooLarge { path: path.to_owned(), max });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0));
    // The file may grow under us, and files of procfs state a size of 0.
    (&file).take(max.saturating_add(1)).read_to_end(&mut bytes).map_err(FsError::io("read", path))?;
    if bytes.len() as u64 > max {
        return Err(FsError::TooLarge { path: path.to_owned(), max });
    }
    Ok(bytes)
}

/// Makes a folder and those above it that are missing; the last one gets exactly `mode`, also if it
/// was there before.
///
/// # Errors
/// Something else is in the way, or the kernel refuses.
pub fn create_dir_all(path: &Path, mode: u32) -> Result<(), FsError> {
    DirBuilder::new().recursive(true).mode(mode).create(path).map_err(FsError::io("create folder", path))?;
    let meta = std::fs::metadata(path).map_err(FsError::io("stat", path))?;
    if meta.permissions().mode() & 0o7777 == mode {
        return Ok(());
    }
    std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(FsError::io("set the mode of", path))
}

/// Removes a file; whether it was there.
///
/// # Errors
/// It is there and cannot be removed.
pub fn remove_if_exists(path: &Path) -> Result<bool, FsError> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(err) => Err(FsError::io("remove", path)(err)),
    }
}

/// Renames a file within a folder and syncs the folder.
///
/// # Errors
/// The rename or the sync failed.
pub fn rename(from: &Path, to: &Path) -> Result<(), FsError> {
    std::fs::rename(from, to).map_err(FsError::io("rename", from))?;
    sync_folder(folder_of(to))
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// A name that no other writer of this machine uses: process id and a counter.
fn temporary_for(folder: &Path) -> PathBuf {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let serial = COUNTER.fetch_add(1, Ordering::Relaxed);
    folder.join(format!("{TEMPORARY_PREFIX}{}-{serial}", std::process::id()))
}

fn kind_name(meta: &std::fs::Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    let kind = meta.file_type();
    if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a fifo"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

struct RemoveOnDrop<'a>(Option<&'a Path>);

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            // A leftover costs bytes only; the next start clears it.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary folder")
    }

    fn names(folder: &Path) -> Vec<String> {
        let names = list(folder).expect("a folder");
        let mut names: Vec<_> = names.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_write_replaces_the_whole_file_and_its_mode() {
        let dir = folder();
        let path = dir.path().join("record");
        write_atomic(&path, b"a long first value", 0o644).expect("written");
        write_atomic(&path, b"short", 0o600).expect("replaced");
        assert_eq!(read_bounded(&path, 100).expect("readable"), b"short");
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o7777, 0o600);
        assert_eq!(names(dir.path()), ["record"]);
    }

    #[test]
    fn the_mode_is_exact_whatever_the_umask() {
        let dir = folder();
        let path = dir.path().join("open");
        write_atomic(&path, b"", 0o666).expect("written");
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o7777, 0o666);
        let sub = dir.path().join("a/b");
        create_dir_all(&sub, 0o777).expect("made");
        create_dir_all(&sub, 0o700).expect("there, and narrowed");
        assert_eq!(std::fs::metadata(&sub).expect("there").permissions().mode() & 0o7777, 0o700);
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_leftover() {
        let dir = folder();
        // The rename fails because a folder with content is in the way.
        let path = dir.path().join("record");
        std::fs::create_dir_all(path.join("inside")).expect("made");
        let err = write_atomic(&path, b"new", 0o600).expect_err("a folder is in the way");
        assert!(err.to_string().starts_with("cannot rename to "), "{err}");
        assert_eq!(names(dir.path()), ["record"]);

        let missing = dir.path().join("no/such/record");
        let err = write_atomic(&missing, b"new", 0o600).expect_err("no folder");
        assert!(err.is_not_found(), "{err:?}");
    }

    #[test]
    fn errors_name_operation_and_path() {
        let err = read_bounded("/no/such/file".as_ref(), 1).expect_err("not there");
        assert_eq!(err.to_string(), "cannot open /no/such/file");
        assert!(err.is_not_found());
        let source = std::error::Error::source(&err).expect("the kernel's word").to_string();
        assert!(source.contains("No such file"), "{source}");
    }

    #[test]
    fn only_bounded_regular_files_are_read() {
        fn check(path: &Path, max: u64, expect: &str) {
            let got = match read_bounded(path, max) {
                Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                Err(FsError::NotAFile { found, .. }) => found.to_owned(),
                Err(FsError::TooLarge { max, .. }) => format!("more than {max}"),
                Err(FsError::Io { source, .. }) => format!("{:?}", source.raw_os_error()),
            };
            assert_eq!(got, expect, "{}", path.display());
        }
        let dir = folder();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "12345").expect("written");
        symlink(at("file"), at("link")).expect("linked");
        symlink(at("loop"), at("loop")).expect("linked");
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("made");
        let _listener = std::os::unix::net::UnixListener::bind(at("socket")).expect("bound");

        check(&at("file"), 5, "12345");
        check(&at("link"), 5, "12345");
        check(&at("file"), 4, "more than 4");
        check(dir.path(), 5, "a folder");
        check(&at("fifo"), 5, "a fifo");
        check(&at("socket"), 5, "a socket or a device");
        check("/dev/zero".as_ref(), 5, "a device");
        check(&at("loop"), 5, &format!("{:?}", Some(libc::ELOOP)));
        // States a size of 0 and has more.
        check("/proc/self/status".as_ref(), 4, "more than 4");
    }

    #[test]
    fn leftovers_of_a_crash_are_cleared_and_nothing_else() {
        let dir = folder();
        for name in [".tmp-ferrolet-1-0", ".tmp-ferrolet-99-7", ".hidden", "record"] {
            std::fs::write(dir.path().join(name), "x").expect("written");
        }
        assert_eq!(remove_temporaries(dir.path()).expect("listed"), 2);
        assert_eq!(names(dir.path()), [".hidden", "record"]);
    }

    #[test]
    fn removing_twice_is_no_error() {
        let dir = folder();
        let path = dir.path().join("record");
        std::fs::write(&path, "x").expect("written");
        assert!(remove_if_exists(&path).expect("removed"));
        assert!(!remove_if_exists(&path).expect("gone already"));
        assert!(remove_if_exists(dir.path()).is_err(), "a folder is not a file");
    }
}

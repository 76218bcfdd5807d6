//! Errors of the host port.
//!
//! Layer L1, plain values on any thread. Each names the operation and the path, says what to do where
//! that is not plain, and keeps its cause; [`explain`] prints the whole chain for people.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

/// What went wrong on this machine.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A system call failed.
    #[error("cannot {op} {}", path.display())]
    Io {
        /// The operation, as a verb phrase.
        op: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A cgroup value was not taken.
    #[error("cannot set {what} of cgroup {}", path.display())]
    CgroupValue {
        /// The value's name and the value.
        what: String,
        /// Folder of the cgroup.
        path: PathBuf,
        /// The kernel's answer as cgroups-rs tells it.
        source: Box<cgroups_rs::error::Error>,
    },
    /// A file is larger than anyone expects it to be.
    #[error("{} is larger than {limit} bytes", path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
        /// The bound in bytes.
        limit: u64,
    },
    /// Something that cannot be, or is refused on purpose.
    #[error("refuse to {op} {}: {why}", path.display())]
    Refused {
        /// The operation, as a verb phrase.
        op: &'static str,
        /// On what.
        path: PathBuf,
        /// Why, and what would be right.
        why: String,
    },
    /// A path leads out of the folder that it must stay in.
    #[error("{} leads out of {}", path.display(), root.display())]
    Escapes {
        /// The path as asked for.
        path: PathBuf,
        /// The folder it must stay in.
        root: PathBuf,
    },
    /// A folder cannot be removed while file systems are mounted in it.
    #[error("{} still has mounts: {}; unmount them first", path.display(), list(mounts))]
    StillMounted {
        /// The folder.
        path: PathBuf,
        /// Mount points in it.
        mounts: Vec<PathBuf>,
    },
    /// systemd, which makes the cgroups, does not.
    #[error("cannot {op} slice {unit} (cgroupDriver: systemd)")]
    Systemd {
        /// The operation, as a verb.
        op: &'static str,
        /// The slice.
        unit: String,
        /// What systemd or the bus says.
        source: Box<super::bus::BusError>,
    },
    /// A cgroup did not empty in time.
    #[error("cgroup {} still has processes after SIGKILL: {pids:?}", path.display())]
    CgroupBusy {
        /// Folder of the cgroup.
        path: PathBuf,
        /// Process ids left in it, at most 16.
        pids: Vec<i32>,
    },
    /// The machine or this version lacks it.
    #[error("{what} is not supported: {why}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// Why not, and what to do instead.
        why: String,
    },
}

fn list(paths: &[PathBuf]) -> String {
    let mut text = String::new();
    for path in paths.iter().take(4) {
        let _ = write!(text, "{}{}", if text.is_empty() { "" } else { ", " }, path.display());
    }
    if paths.len() > 4 {
        let _ = write!(text, " and {} more", paths.len() - 4);
    }
    text
}

impl HostError {
    /// systemd did not do something to a slice.
    pub(super) fn systemd(op: &'static str, unit: &str, error: super::bus::BusError) -> Self {
        Self::Systemd { op, unit: unit.to_owned(), source: Box::new(error) }
    }

    /// An I/O error with its operation and path.
    pub fn io(op: &'static str, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        Self::Io { op, path: path.as_ref().to_path_buf(), source: source.into() }
    }

    /// A refusal with its reason.
    pub fn refused(op: &'static str, path: impl AsRef<Path>, why: impl Into<String>) -> Self {
        Self::Refused { op, path: path.as_ref().to_path_buf(), why: why.into() }
    }

    /// Whether the thing asked for does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// An error with all its causes in one line, for events, status messages and logs.
pub fn explain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_operation_path_and_cause() {
        let error = HostError::io("read", "/x/y", io::Error::from_raw_os_error(13));
        assert_eq!(explain(&error), "cannot read /x/y: Permission denied (os error 13)");
        assert!(!error.is_not_found());
        assert!(HostError::io("read", "/x", io::Error::from_raw_os_error(2)).is_not_found());
        let many = HostError::StillMounted { path: "/p".into(), mounts: vec!["/p/a".into(); 6] };
        assert_eq!(many.to_string(), "/p still has mounts: /p/a, /p/a, /p/a, /p/a and 2 more; unmount them first");
    }
}

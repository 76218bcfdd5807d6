//! By what a changed file is known, without reading it.
//!
//! Used on any thread; owns nothing.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Where a file lies, how long it is and when it was written last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMark {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl FileMark {
    /// The mark of this file now; `None` if it can't be looked at.
    pub fn of(path: &Path) -> Option<Self> {
        let from = |meta: Metadata| Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        };
        std::fs::metadata(path).ok().map(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_replaced_is_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        assert_eq!(FileMark::of(&path), None);
        std::fs::write(&path, "1").expect("written");
        let first = FileMark::of(&path);
        assert!(first.is_some());
        assert_eq!(FileMark::of(&path), first);
        std::fs::write(folder.path().join("b"), "1").expect("written");
        std::fs::rename(folder.path().join("b"), &path).expect("renamed");
        assert_ne!(FileMark::of(&path), first);
    }
}

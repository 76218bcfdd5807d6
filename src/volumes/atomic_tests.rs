//! Tests of the atomic writer on a temporary folder.

use super::*;
use crate::host::files::names_in;
use std::os::unix::fs::MetadataExt as _;

fn files(list: &[(&str, &str)]) -> Vec<VolumeFile> {
    list.iter()
        .map(|(path, text)| VolumeFile { path: (*path).to_owned(), mode: 0o644, owner: None, bytes: (*text).into() })
        .collect()
}

fn visible(dir: &Path) -> Vec<String> {
    names_in(dir).into_iter().filter(|name| !name.starts_with("..2")).collect()
}

fn put(dir: &Path, list: &[(&str, &str)]) -> Result<bool, HostError> {
    write(dir, &files(list), |_| Ok(()))
}

#[test]
fn files_come_change_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert!(put(dir, &[("a", "1"), ("sub/b", "2"), ("sub/deep/c", "3")]).unwrap());
    assert_eq!(visible(dir), ["..data", "a", "sub"]);
    assert_eq!(fs::read_to_string(dir.join("sub/deep/c")).unwrap(), "3");
    assert!(!put(dir, &[("sub/deep/c", "3"), ("a", "1"), ("./sub/b", "2")]).unwrap());

    assert!(put(dir, &[("a", "1"), ("sub/b", "2")]).unwrap(), "one file fewer");
    assert!(!dir.join("sub/deep").exists());
    assert!(put(dir, &[("new", "x")]).unwrap());
    assert_eq!(visible(dir), ["..data", "new"]);
    assert_eq!(names_in(dir).len(), 3, "one folder of data is left");
    assert!(put(dir, &[]).unwrap());
    assert!(!put(dir, &[]).unwrap());
    assert_eq!(visible(dir), ["..data"]);
}

#[test]
fn what_a_crash_left_is_taken_up() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    put(dir, &[("a", "1")]).unwrap();
    fs::create_dir(dir.join("..2020_01_01_00_00_00.1")).unwrap();
    symlink("..2020_01_01_00_00_00.1", dir.join("..data_tmp")).unwrap();
    fs::remove_file(dir.join("a")).unwrap();
    assert!(put(dir, &[("a", "1")]).unwrap(), "the visible link is missing");
    assert_eq!((visible(dir), names_in(dir).len()), (vec!["..data".to_owned(), "a".to_owned()], 3));
    // The data folder itself is gone.
    fs::remove_dir_all(dir.join(fs::read_link(dir.join("..data")).unwrap())).unwrap();
    assert!(put(dir, &[("a", "1")]).unwrap());
    assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "1");
}

#[test]
fn a_failed_write_leaves_the_old_files() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    put(dir, &[("a", "1")]).unwrap();
    let error = write(dir, &files(&[("a", "2")]), |new| Err(HostError::refused("prepare", new, "no"))).unwrap_err();
    assert!(error.to_string().contains("prepare"));
    assert_eq!((fs::read_to_string(dir.join("a")).unwrap(), names_in(dir).len()), ("1".to_owned(), 3));
}

#[test]
fn modes_are_exact_whatever_the_umask() {
    let dir = tempfile::tempdir().unwrap();
    let file = |path: &str, mode| VolumeFile { path: path.to_owned(), mode, owner: None, bytes: Vec::new() };
    write(dir.path(), &[file("w", 0o666), file("r", 0o400), file("x", 0o107_777)], |_| Ok(())).unwrap();
    let modes = ["w", "r", "x"].map(|name| fs::metadata(dir.path().join(name)).unwrap().mode() & 0o7777);
    assert_eq!(modes, [0o666, 0o400, 0o777]);
}

#[test]
fn paths_that_cannot_be_are_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    for path in ["", ".", "/a", "../a", "a/../b", "..a", "..data/x", "a\0b", &"x".repeat(256), &"x/".repeat(3000)] {
        let error = put(dir.path(), &[("ok", "1"), (path, "2")]).unwrap_err();
        assert!(matches!(error, HostError::Refused { .. }), "{path:?}: {error}");
    }
    let error = put(dir.path(), &[("a", "1"), ("a/b", "2")]).unwrap_err();
    assert!(error.to_string().contains("one file stands where another needs a folder"), "{error}");
    assert!(names_in(dir.path()).is_empty());
}

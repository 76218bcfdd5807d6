//! Tests of a log's files on a temporary folder.

use super::*;
use std::os::unix::fs::PermissionsExt as _;

fn folder_with(files: &[(&str, &[u8])]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        fs::write(folder.path().join(name), content).unwrap();
    }
    let log = folder.path().join("0.log");
    (folder, log)
}

fn there(folder: &tempfile::TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn unpacked(path: &Path) -> Vec<u8> {
    let mut content = Vec::new();
    flate2::read::GzDecoder::new(fs::File::open(path).unwrap()).read_to_end(&mut content).unwrap();
    content
}

#[test]
fn a_log_and_its_files_are_told_from_others() {
    let (folder, log) = folder_with(&[("0.log", b"abc"), ("0.log.1", b""), ("0.logs", b""), ("10.log.1", b"")]);
    fs::create_dir(folder.path().join("0.log.d")).unwrap();
    assert_eq!(size(&log).unwrap(), Some(3));
    assert_eq!(beside(&log).unwrap(), ["0.log.1"]);
    remove_all(&log).unwrap();
    assert_eq!(there(&folder), ["0.log.d", "0.logs", "10.log.1"]);
    assert_eq!(size(&log).unwrap(), None);
    remove_all(&log).unwrap();
    remove_all(&folder.path().join("gone/0.log")).unwrap();
    assert!(beside(&folder.path().join("gone/0.log")).unwrap_err().is_not_found());
}

#[test]
fn a_name_that_is_taken_stays_with_its_file() {
    let (folder, log) = folder_with(&[("0.log", b"old"), ("0.log.1", b"new")]);
    let aside = folder.path().join("0.log.1");
    assert_eq!(rename_to_free(&log, &aside).unwrap(), Moved::NameTaken);
    assert_eq!((fs::read(&log).unwrap(), fs::read(&aside).unwrap()), (b"old".to_vec(), b"new".to_vec()));
    fs::remove_file(&aside).unwrap();
    assert_eq!(rename_to_free(&log, &aside).unwrap(), Moved::Done);
    assert_eq!(there(&folder), ["0.log.1"]);
    assert!(rename_to_free(&log, &folder.path().join("2")).unwrap_err().is_not_found());
}

#[test]
fn a_compressed_file_holds_every_byte_and_its_mode() {
    let lines: Vec<u8> = (0..200_000u32).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
    let (folder, log) = folder_with(&[("0.log.1", &lines)]);
    let file = folder.path().join("0.log.1");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    compress(&file, ".gz", ".tmp", &|| false).unwrap();
    assert_eq!(there(&folder), ["0.log.1.gz"]);
    let whole = log.with_file_name("0.log.1.gz");
    assert!(unpacked(&whole) == lines, "the lines differ");
    assert_eq!(fs::metadata(&whole).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::metadata(&whole).unwrap().len() < lines.len() as u64 / 2);
}

#[test]
fn a_compression_that_fails_leaves_the_file_as_it_was() {
    // The name is taken.
    let (folder, log) = folder_with(&[("0.log.1", b"lines"), ("0.log.1.gz", b"other")]);
    let file = log.with_file_name("0.log.1");
    compress(&file, ".gz", ".tmp", &|| false).unwrap_err();
    assert_eq!(there(&folder), ["0.log.1", "0.log.1.gz"]);
    assert_eq!(fs::read(log.with_file_name("0.log.1.gz")).unwrap(), b"other");
    // The agent ends.
    fs::remove_file(log.with_file_name("0.log.1.gz")).unwrap();
    compress(&file, ".gz", ".tmp", &|| true).unwrap_err();
    assert_eq!(there(&folder), ["0.log.1"]);
    // A pod put a link there.
    std::os::unix::fs::symlink("/etc/passwd", log.with_file_name("0.log.2")).unwrap();
    compress(&log.with_file_name("0.log.2"), ".gz", ".tmp", &|| false).unwrap_err();
    assert_eq!(there(&folder), ["0.log.1", "0.log.2"]);
    assert_eq!(fs::read(&file).unwrap(), b"lines");
}

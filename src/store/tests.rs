//! Tests of the record files on a real folder.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use proptest::prelude::*;

use super::format::{decode, encode};
use super::*;
use crate::api::record::{ContainerRecord, CrashRecord, EndingRecord, RECORD_VERSION};
use crate::api::v1::Pod;

pub(super) fn record(uid: &str, attempts: u32) -> PodRecord {
    let mut pod = Pod::default();
    pod.metadata.name = Some(format!("pod-{attempts}"));
    let crash = CrashRecord { delay_ms: 10_000, restarted_ms: u64::from(attempts), hash: "5d4b".into() };
    PodRecord {
        version: RECORD_VERSION,
        uid: uid.into(),
        boot_id: "b1".into(),
        pod: Arc::new(pod),
        start_time: 1_700_000_000_000_000_000,
        started_ms: Some(0),
        before_boot_ms: 0,
        next_sandbox_attempt: 1,
        containers: BTreeMap::from([(
            "web".to_owned(),
            ContainerRecord { next_attempt: attempts, crash: Some(crash), ..ContainerRecord::default() },
        )]),
        ending: Some(EndingRecord {
            cause: "Removed".into(),
            deadline_ms: 30_000,
            phase: String::new(),
            reason: String::new(),
            message: String::new(),
            disruption_reason: String::new(),
            disruption_message: String::new(),
        }),
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn names(dir: &tempfile::TempDir) -> Vec<String> {
    let mut names: Vec<_> =
        fs::list(&dir.path().join("pods")).expect("listed").iter().map(|name| name.to_string_lossy().into()).collect();
    names.sort();
    names
}

fn inode(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    path.metadata().expect("there").ino()
}

#[test]
fn records_come_back_after_a_restart() {
    let dir = folder();
    let (mut store, loaded) = Store::open(dir.path());
    assert!(loaded.records.is_empty() && loaded.set_aside.is_empty() && loaded.problem.is_none(), "{loaded:?}");
    for (uid, attempts) in [("b", 1), ("a", 2), ("b", 3), ("c", 4)] {
        assert_eq!(store.put(&record(uid, attempts)).expect("kept"), Put::Written);
    }
    assert!(store.remove(&"c".into()).expect("removed"));
    assert!(!store.remove(&"c".into()).expect("gone already"));
    store.sync().expect("synced");

    let (_, loaded) = Store::open(dir.path());
    assert_eq!(loaded.records, [record("a", 2), record("b", 3)]);
    assert!(loaded.set_aside.is_empty(), "{loaded:?}");
}

#[test]
fn only_root_can_read_them() {
    let dir = folder();
    let (mut store, _) = Store::open(&dir.path().join("ferrolet"));
    store.put(&record("a", 1)).expect("kept");
    let mode = |path: &str| dir.path().join(path).metadata().expect("there").permissions().mode() & 0o777;
    assert_eq!(mode("ferrolet"), 0o700);
    assert_eq!(mode("ferrolet/pods"), 0o700);
    assert_eq!(mode("ferrolet/pods/a.json"), 0o600);
}

#[test]
fn an_unchanged_record_is_not_written_even_after_a_restart() {
    let dir = folder();
    let path = dir.path().join("pods/a.json");
    let (mut store, _) = Store::open(dir.path());
    store.put(&record("a", 1)).expect("kept");
    let first = inode(&path);
    assert_eq!(store.put(&record("a", 1)).expect("kept"), Put::Unchanged);
    let (mut store, _) = Store::open(dir.path());
    assert_eq!(store.put(&record("a", 1)).expect("kept"), Put::Unchanged);
    assert_eq!(inode(&path), first, "the very same file");
    assert_eq!(store.put(&record("a", 2)).expect("kept"), Put::Written);
    assert_ne!(inode(&path), first);
}

#[test]
fn what_is_no_record_is_set_aside_and_told() {
    fn check(name: &str, bytes: &[u8], why: &str) {
        let dir = folder();
        let (mut store, _) = Store::open(dir.path());
        store.put(&record("good", 1)).expect("kept");
        std::fs::write(dir.path().join("pods").join(name), bytes).expect("written");
        let (_, loaded) = Store::open(dir.path());
        assert_eq!(loaded.records, [record("good", 1)], "{name} costs no other record");
        let [aside] = &loaded.set_aside[..] else { panic!("{name}: {loaded:?}") };
        assert!(aside.why.contains(why), "{name}: {}", aside.why);
        let moved_to = aside.moved_to.as_ref().expect("it was moved");
        assert_eq!(std::fs::read(moved_to).expect("kept for people"), bytes);
        assert!(names(&dir).contains(&format!("{name}.0.corrupt")), "{:?}", names(&dir));
        let (_, again) = Store::open(dir.path());
        assert!(again.set_aside.is_empty(), "it is told once: {again:?}");
    }
    let (whole, _) = encode(&record("a", 1)).expect("encoded");
    check("a.json", b"", "does not begin as a record");
    check("a.json", b"{\"uid\": \"a\"}\n", "does not begin as a record");
    check("a.json", &[0; 300], "does not begin as a record");
    check("a.json", &whole[..whole.len() - 1], "it is cut");
    check("a.json", &[&whole[..], b" "].concat(), "checksum");
    check("b.json", &whole, "record of pod a");
    check("notes", b"hello", "does not begin as a record");
    let newer = String::from_utf8(whole.clone()).expect("text").replacen("record 1", "record 2", 1);
    check("a.json", newer.as_bytes(), "a newer ferrolet wrote it");
    let (newer, _) = encode(&PodRecord { version: RECORD_VERSION + 1, ..record("a", 1) }).expect("encoded");
    check("a.json", &newer, "a newer ferrolet wrote it");
}

#[test]
fn files_of_other_kinds_and_sizes_are_set_aside() {
    let dir = folder();
    let pods = dir.path().join("pods");
    std::fs::create_dir_all(pods.join("folder.json")).expect("made");
    nix::unistd::mkfifo(&pods.join("fifo.json"), nix::sys::stat::Mode::S_IRWXU).expect("made");
    let big = std::fs::File::create(pods.join("huge.json")).expect("made");
    big.set_len(MAX_RECORD_BYTES + 1).expect("a sparse file");
    let (_, loaded) = Store::open(dir.path());
    let whys: Vec<_> = loaded.set_aside.iter().map(|aside| aside.why.as_str()).collect();
    assert!(whys[0].contains("a fifo"), "{whys:?}");
    assert!(whys[1].contains("a folder"), "{whys:?}");
    assert!(whys[2].contains("more than the"), "{whys:?}");
    assert!(loaded.problem.is_none());
}

#[test]
fn only_a_few_files_set_aside_are_kept() {
    let dir = folder();
    std::fs::create_dir_all(dir.path().join("pods")).expect("made");
    for n in 0..MAX_SET_ASIDE + 5 {
        std::fs::write(dir.path().join(format!("pods/{n}.json")), "broken").expect("written");
    }
    let (_, loaded) = Store::open(dir.path());
    assert_eq!(loaded.set_aside.len(), MAX_SET_ASIDE + 5);
    assert_eq!(names(&dir).len(), MAX_SET_ASIDE);
}

#[test]
fn a_uid_from_outside_cannot_leave_the_folder() {
    let dir = folder();
    let (mut store, _) = Store::open(dir.path());
    let uids = ["../../up", "", ".", "a/b", "a\0b", "ä", &"x".repeat(300)];
    for uid in uids {
        store.put(&record(uid, 1)).expect("kept");
    }
    assert_eq!(names(&dir).len(), uids.len());
    assert_eq!(fs::list(dir.path()).expect("listed"), ["pods"]);
    let (mut store, loaded) = Store::open(dir.path());
    assert_eq!(loaded.records.len(), uids.len(), "{loaded:?}");
    for uid in uids {
        assert!(store.remove(&uid.into()).expect("removed"), "{uid:?}");
    }
    assert!(names(&dir).is_empty());
}

#[test]
fn a_folder_that_cannot_be_made_stops_nobody() {
    let dir = folder();
    let blocked = dir.path().join("ferrolet");
    std::fs::write(&blocked, "a file is in the way").expect("written");
    let (mut store, loaded) = Store::open(&blocked);
    assert!(loaded.records.is_empty());
    assert!(loaded.problem.is_some());
    let err = store.put(&record("a", 1)).expect_err("nowhere to write");
    assert!(err.may_pass() && err.to_string().contains("pod a"), "{err}");
    // Gone, the store works without a restart.
    std::fs::remove_file(&blocked).expect("removed");
    assert_eq!(store.put(&record("a", 1)).expect("kept"), Put::Written);
    store.sync().expect("synced");
    assert_eq!(Store::open(&blocked).1.records, [record("a", 1)]);
}

#[test]
fn an_oversized_record_is_refused_and_the_old_one_stays() {
    let dir = folder();
    let (mut store, _) = Store::open(dir.path());
    store.put(&record("a", 1)).expect("kept");
    let mut large = record("a", 2);
    let size = usize::try_from(MAX_RECORD_BYTES).expect("it fits");
    Arc::make_mut(&mut large.pod).metadata.annotations = Some(BTreeMap::from([("note".to_owned(), "x".repeat(size))]));
    let err = store.put(&large).expect_err("too large");
    assert!(!err.may_pass(), "{err}");
    assert_eq!(Store::open(dir.path()).1.records, [record("a", 1)]);
}

#[test]
fn fields_of_later_agents_are_tolerated() {
    let mut value = serde_json::to_value(record("a", 1)).expect("json");
    value["fieldOfTomorrow"] = serde_json::json!({"x": 1});
    let body = serde_json::to_vec(&value).expect("json");
    let header = format!("ferrolet-record 1 sha256={} bytes={}\n", format::hex(&Sha256::digest(&body)), body.len());
    let (decoded, _) = decode(&[header.as_bytes(), &body].concat()).expect("read");
    assert_eq!(decoded, record("a", 1));
}

/// What the disk may hold of a pod's file when the power goes at any moment of replacing `old` by
/// `new`, on a disk that keeps what fsync promised and on one that does not.
fn torn(old: &[u8], new: &[u8], cut: usize, style: u8) -> Vec<u8> {
    let at = cut.min(new.len());
    match style {
        // The new bytes end early.
        0 => new[..at].to_vec(),
        // New bytes over old ones.
        1 => [&new[..at], old.get(at..).unwrap_or_default()].concat(),
        // The length is there, the bytes are not.
        2 => [&new[..at], &vec![0; new.len() - at][..]].concat(),
        // One bit flips.
        _ => {
            let mut bytes = new.to_vec();
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << (cut % 8);
            }
            bytes
        }
    }
}

proptest! {
    #[test]
    fn a_torn_file_is_the_old_record_or_the_new_one_or_refused(
        old in 0u32..5, new in 0u32..100_000, cut in 0usize..900, style in 0u8..4,
    ) {
        let (old, new) = (record("a", old), record("a", new));
        let bytes = torn(&encode(&old).expect("encoded").0, &encode(&new).expect("encoded").0, cut, style);
        if let Ok((decoded, _)) = decode(&bytes) {
            prop_assert!(decoded == old || decoded == new, "{decoded:?}");
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(decode(&bytes).is_err());
    }
}

/// The agent dies while it writes: the temporary file holds a part, the record is the old one.
#[test]
fn death_within_a_write_keeps_the_old_record() {
    let dir = folder();
    let (mut store, _) = Store::open(dir.path());
    store.put(&record("a", 1)).expect("kept");
    let (bytes, _) = encode(&record("a", 2)).expect("encoded");
    for part in [0, 1, 50, bytes.len() / 2, bytes.len() - 1, bytes.len()] {
        std::fs::write(dir.path().join("pods/.tmp-ferrolet-1-1"), &bytes[..part]).expect("written");
        let (_, loaded) = Store::open(dir.path());
        assert_eq!(loaded.records, [record("a", 1)]);
        assert!(loaded.set_aside.is_empty());
        assert_eq!(names(&dir), ["a.json"]);
    }
}

//! Tests of the mount table on recorded lines, and of real mounts in a mount namespace of their own.

use super::*;
use crate::host::test_support::in_private_mounts;

const TABLE: &str = r"22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard
40 27 0:40 / /pods/a/vol rw - tmpfs tmpfs rw,size=4k
41 40 0:41 /sub /pods/a/vol/with\040blank\134 rw - ext4 /dev/my\011disk rw
42 27 0:42 / /pods/ab rw - tmpfs tmpfs rw
43 40 0:43 / /pods/a/vol rw - tmpfs second rw
44 27 0:44 / /odd rw - tmpfs
not a line
45 x 0:44 / /odd2 rw - tmpfs none rw
46 27 0:45 / /nodash rw tmpfs none rw
47 27 0:46 / /short rw - nfs host:/share
";

#[test]
fn lines_are_parsed_and_odd_ones_left_out() {
    let table = MountTable::parse(TABLE.as_bytes());
    let ids: Vec<_> = table.entries().iter().map(|e| e.id).collect();
    assert_eq!(ids, [22, 27, 40, 41, 42, 43, 47]);
    let entry = &table.entries()[3];
    assert_eq!(entry.mount_point, Path::new("/pods/a/vol/with blank\\"));
    assert_eq!((entry.root.as_path(), entry.source.as_str()), (Path::new("/sub"), "/dev/my\tdisk"));
    assert_eq!(table.entries()[1].super_options, "rw,discard");
    assert_eq!(table.entries()[6].super_options, "");
    assert_eq!(table.entries().iter().filter(|e| e.is_shared).map(|e| e.id).collect::<Vec<_>>(), [27]);
}

#[test]
fn octal_escapes_are_undone_and_others_kept() {
    for (input, expect) in [
        (&b"a\\040b"[..], &b"a b"[..]),
        (b"\\134", b"\\"),
        (b"\\04", b"\\04"),
        (b"\\999", b"\\999"),
        (b"\\777", b"\\777"),
        (b"\xff\\012", b"\xff\n"),
        (b"\\", b"\\"),
    ] {
        assert_eq!(unescape(input).as_os_str().as_bytes(), expect, "{input:?}");
    }
}

#[test]
fn mounts_below_a_folder_come_deepest_and_newest_first() {
    let table = MountTable::parse(TABLE.as_bytes());
    let ids: Vec<_> = table.under(Path::new("/pods/a")).iter().map(|e| e.id).collect();
    assert_eq!(ids, [41, 43, 40], "a sibling with the same start of its name is not below it");
    assert!(table.is_mount_point(Path::new("/pods/ab")));
    assert!(!table.is_mount_point(Path::new("/pods/a")));
    assert_eq!(table.at(Path::new("/pods/a/vol")).map(|e| e.id), Some(43));
}

#[test]
fn a_path_lies_in_the_deepest_mount_above_it() {
    let table = MountTable::parse(TABLE.as_bytes());
    for (path, expect) in [("/pods/a/vol/x/y", 43), ("/pods/abc", 27), ("/pods/ab", 42), ("/", 27)] {
        assert_eq!(table.containing(Path::new(path)).map(|e| e.id), Some(expect), "{path}");
    }
}

#[test]
fn a_folder_is_shared_once() {
    in_private_mounts(|dir| {
        let root = dir.join("root");
        fs::create_dir(&root).unwrap();
        let share = || ensure_shared(&root, Path::new(MOUNT_TABLE)).unwrap();
        assert!(share(), "the test's mounts are private");
        assert!(!share());
        let table = MountTable::read(Path::new(MOUNT_TABLE)).unwrap();
        assert_eq!(table.under(dir).len(), 1);
        assert!(table.at(&root).unwrap().is_shared);
        unmount(&root).unwrap();
    });
}

#[test]
fn a_mount_is_found_through_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().join("real");
    fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, dir.path().join("link")).unwrap();
    let line = format!("9 1 0:1 / {}/vol rw - tmpfs none rw", fs::canonicalize(&real).unwrap().display());
    let table = MountTable::parse(line.as_bytes());
    assert!(table.is_mount_point(&dir.path().join("link/vol")));
}

#[test]
fn a_table_that_cannot_be_read_is_an_error_with_its_path() {
    let error = MountTable::read(Path::new("/nonexistent/mountinfo")).unwrap_err();
    assert!(error.is_not_found() && error.to_string().contains("/nonexistent/mountinfo"), "{error}");
}

#[test]
fn tmpfs_bind_and_unmount_work_on_this_kernel() {
    in_private_mounts(|dir| {
        let (disk, view) = (dir.join("disk"), dir.join("view"));
        fs::create_dir(&disk).unwrap();
        fs::create_dir(&view).unwrap();
        let table = || MountTable::read(Path::new(MOUNT_TABLE)).unwrap();

        mount_tmpfs(&disk, Some(65536), 0o1777).unwrap();
        assert!(table().is_mount_point(&disk));
        assert!(table().at(&disk).unwrap().super_options.contains("size=64k"));
        fs::write(disk.join("file"), "x").unwrap();
        fs::write(disk.join("big"), vec![0; 200_000]).unwrap_err();

        bind(&disk, &view).unwrap();
        assert_eq!(fs::read(view.join("file")).unwrap(), b"x");
        assert_eq!(table().under(dir).len(), 2);

        let held = fs::File::open(view.join("file")).unwrap();
        assert_eq!(unmount(&view).unwrap(), Unmounted::Lazily);
        drop(held);
        assert_eq!(unmount(&view).unwrap(), Unmounted::NotMounted);
        bind(&disk, &view).unwrap();
        bind(&disk, &view).unwrap();
        assert_eq!(unmount(&view).unwrap(), Unmounted::Done);
        fs::remove_file(disk.join("big")).unwrap();
        assert_eq!(unmount(&disk).unwrap(), Unmounted::Done);
        assert_eq!(table().under(dir).len(), 0);
        assert_eq!(unmount(&dir.join("missing")).unwrap(), Unmounted::NotMounted);
        assert!(!disk.join("file").exists());
    });
}

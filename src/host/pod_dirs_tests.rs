//! Tests of the layout on a temporary folder.

use std::os::unix::fs::{MetadataExt as _, symlink};

use super::*;
use crate::host::files::names_in;
use crate::host::mounts::{self, MOUNT_TABLE};
use crate::host::test_support::in_private_mounts;

fn dirs() -> (tempfile::TempDir, PodDirs) {
    let dir = tempfile::tempdir().unwrap();
    let dirs = PodDirs::new(dir.path().join("root"), dir.path().join("logs"));
    dirs.ensure_roots().unwrap();
    (dir, dirs)
}

fn web() -> PodName {
    PodName { namespace: "ns".to_owned(), name: "web-node".to_owned() }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn the_layout_is_upstreams() {
    let dirs = PodDirs::new("/lab/kubelet", "/var/log/pods");
    let uid = PodUid::from("u-1");
    for (path, expect) in [
        (dirs.pod(&uid), "/lab/kubelet/pods/u-1"),
        (
            dirs.volume(&uid, "kubernetes.io~empty-dir", "work"),
            "/lab/kubelet/pods/u-1/volumes/kubernetes.io~empty-dir/work",
        ),
        (
            dirs.plugin_notes(&uid, "kubernetes.io~empty-dir", "work"),
            "/lab/kubelet/pods/u-1/plugins/kubernetes.io~empty-dir/work",
        ),
        (dirs.subpath(&uid, "work", "app", 2), "/lab/kubelet/pods/u-1/volume-subpaths/work/app/2"),
        (dirs.container(&uid, "app"), "/lab/kubelet/pods/u-1/containers/app"),
        (dirs.etc_hosts(&uid), "/lab/kubelet/pods/u-1/etc-hosts"),
        (dirs.container_logs(&web(), &uid, "app"), "/var/log/pods/ns_web-node_u-1/app"),
    ] {
        assert_eq!(path.unwrap(), Path::new(expect));
    }
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let (dir, dirs) = dirs();
    fs::write(dir.path().join("keep"), "x").unwrap();
    for uid in ["", ".", "..", "../..", "a/b", "/etc"] {
        let uid = PodUid::from(uid);
        assert!(dirs.ensure_pod(&uid).is_err() && dirs.remove(&uid, Path::new(MOUNT_TABLE)).is_err(), "{uid}");
        assert!(dirs.volume(&PodUid::from("u"), "p", uid.as_str()).is_err(), "{uid}");
        assert!(dirs.subpath(&PodUid::from("u"), "v", uid.as_str(), 0).is_err(), "{uid}");
    }
    assert!(dir.path().join("keep").exists());
    assert!(names_in(&dirs.pods()).is_empty());
}

#[test]
fn a_pod_is_made_listed_and_removed() {
    let (dir, dirs) = dirs();
    let (a, b) = (PodUid::from("a"), PodUid::from("b"));
    dirs.ensure_pod(&b).unwrap();
    dirs.ensure_pod(&a).unwrap();
    fs::write(dirs.pods().join("file"), "x").unwrap();
    assert_eq!(dirs.list().unwrap(), [a.clone(), b.clone()]);
    let modes =
        ["", "pods", "pods/a", "pods/a/volumes", "pods/a/plugins"].map(|p| mode(&dir.path().join("root").join(p)));
    assert_eq!(modes, [0o750; 5]);

    fs::create_dir_all(dirs.volume(&a, "kubernetes.io~empty-dir", "v").unwrap().join("deep/er")).unwrap();
    dirs.remove(&a, Path::new(MOUNT_TABLE)).unwrap();
    dirs.remove(&a, Path::new(MOUNT_TABLE)).unwrap();
    assert_eq!(dirs.list().unwrap(), [b]);
    assert_eq!(PodDirs::new("/nonexistent", "/nonexistent").list().unwrap(), []);
}

#[test]
fn a_pod_with_a_mount_keeps_everything() {
    in_private_mounts(|dir| {
        let dirs = PodDirs::new(dir.join("root"), dir.join("logs"));
        let uid = PodUid::from("a");
        dirs.ensure_pod(&uid).unwrap();
        let volume = dirs.volume(&uid, "kubernetes.io~nfs", "data").unwrap();
        fs::create_dir_all(&volume).unwrap();
        mounts::mount_tmpfs(&volume, None, 0o755).unwrap();
        fs::write(volume.join("precious"), "x").unwrap();
        let errors = dirs.remove(&uid, Path::new(MOUNT_TABLE)).unwrap_err();
        assert!(
            matches!(&errors[..], [HostError::StillMounted { mounts, .. }] if *mounts == [volume.clone()]),
            "{errors:?}"
        );
        assert!(volume.join("precious").exists() && dirs.pod(&uid).unwrap().join("plugins").exists());
        mounts::unmount(&volume).unwrap();
        dirs.remove(&uid, Path::new(MOUNT_TABLE)).unwrap();
    });
}

#[test]
fn termination_files_are_new_open_to_all_and_pruned() {
    let (_dir, dirs) = dirs();
    let uid = PodUid::from("a");
    let files: Vec<_> = (0..3).map(|_| dirs.make_termination_file(&uid, "app").unwrap()).collect();
    for file in &files {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(name.len() == 8 && name.bytes().all(|b| b.is_ascii_hexdigit()), "{name}");
        assert_eq!((mode(file), fs::metadata(file).unwrap().len()), (0o666, 0));
    }
    dirs.prune_termination_files(&uid, "app", &files[1..2]).unwrap();
    assert_eq!(files.iter().map(|f| f.exists()).collect::<Vec<_>>(), [false, true, false]);
    dirs.prune_termination_files(&uid, "other", &[]).unwrap();
}

#[test]
fn the_hosts_file_keeps_its_inode_and_is_written_on_change_only() {
    let (_dir, dirs) = dirs();
    let uid = PodUid::from("a");
    dirs.ensure_pod(&uid).unwrap();
    let path = dirs.write_etc_hosts(&uid, "127.0.0.1 localhost\n").unwrap();
    let stat = || fs::metadata(&path).map(|m| (m.ino(), m.modified().unwrap())).unwrap();
    let before = stat();
    dirs.write_etc_hosts(&uid, "127.0.0.1 localhost\n").unwrap();
    assert_eq!(stat(), before);
    dirs.write_etc_hosts(&uid, "short\n").unwrap();
    assert_eq!((stat().0, fs::read_to_string(&path).unwrap()), (before.0, "short\n".to_owned()));
    assert_eq!(mode(&path), 0o644);
}

#[test]
fn log_folders_are_made_read_back_and_removed() {
    let (dir, dirs) = dirs();
    let uid = PodUid::from("u-1");
    let folder = dirs.ensure_container_logs(&web(), &uid, "app").unwrap();
    assert_eq!(mode(&folder), 0o755);
    for name in ["0.log", "3.log", "12.log.20260101-000000.gz", "x.log", "99.txt", "log"] {
        fs::write(folder.join(name), "").unwrap();
    }
    assert_eq!(last_attempt(&folder), Some(12));
    assert_eq!(last_attempt(dir.path()), None);
    for name in ["ns_pod", "a_b_c_d", "_b_c"] {
        fs::create_dir(dir.path().join("logs").join(name)).unwrap();
    }
    assert_eq!(dirs.list_logs().unwrap(), [(web(), uid.clone())]);
    dirs.remove_logs(&web(), &uid).unwrap();
    dirs.remove_logs(&web(), &uid).unwrap();
    assert_eq!(dirs.list_logs().unwrap(), []);
}

#[test]
fn log_links_have_the_name_that_shippers_know() {
    assert_eq!(log_link_name(&web(), "app", "0123"), "web-node_ns_app-0123.log");
    // Around the bound, where the last bytes of the id are cut.
    for id in [233, 234, 235, 236, 300] {
        let link = log_link_name(&web(), "app", &"f".repeat(id));
        assert!(link.len() <= 255 && link.ends_with("f.log"), "{id} {}", link.len());
    }
    assert_eq!(log_link_name(&web(), "app", &"f".repeat(300)).len(), 255);
    assert!(log_link_name(&web(), "app", &"é".repeat(200)).len() <= 255);
}

#[test]
fn log_links_are_replaced_and_dead_ones_pruned() {
    let (dir, _) = dirs();
    let folder = dir.path().join("containers");
    let target = dir.path().join("0.log");
    fs::write(&target, "x").unwrap();
    link_log(&folder, "a.log", Path::new("/nowhere")).unwrap();
    link_log(&folder, "a.log", &target).unwrap();
    link_log(&folder, "a.log", &target).unwrap();
    link_log(&folder, "dead.log", Path::new("/nowhere")).unwrap();
    fs::write(folder.join("file"), "").unwrap();
    symlink(&folder, folder.join("folder")).unwrap();
    assert_eq!(fs::read(folder.join("a.log")).unwrap(), b"x");
    assert_eq!(prune_log_links(&folder).unwrap(), 1);
    assert_eq!(names_in(&folder), ["a.log", "file", "folder"]);
    remove_log_link(&folder, "a.log").unwrap();
    remove_log_link(&folder, "a.log").unwrap();
    assert!(link_log(&folder, "../b.log", &target).is_err());
    assert_eq!(prune_log_links(&dir.path().join("none")).unwrap(), 0);
}

//! Tests of opening below a root and of giving a tree to a group.

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::host::mounts;
use crate::host::test_support::{in_private_mounts, report, swap_until};

/// A volume with folders, files and links, beside a secret outside of it.
fn volume() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let volume = dir.path().join("volume");
    fs::create_dir_all(volume.join("a/b")).unwrap();
    fs::create_dir(dir.path().join("secret")).unwrap();
    fs::write(dir.path().join("secret/key"), "outside").unwrap();
    fs::write(volume.join("a/file"), "inside").unwrap();
    for (target, link) in [
        ("a", "to-a"),
        ("../a/b", "a/up-and-down"),
        ("../..", "a/out"),
        ("../secret", "out"),
        ("/etc", "absolute"),
        ("loop", "loop"),
        ("a/file", "to-file"),
        ("a/new", "to-new"),
    ] {
        symlink(target, volume.join(link)).unwrap();
    }
    (dir, volume)
}

/// What the opened thing is, relative to the volume, or the kind of error.
fn check(path: &str, missing: Missing, expect: &str) {
    let (_dir, volume) = volume();
    let got = match open_beneath(&volume, Path::new(path), missing) {
        Ok(opened) => {
            let real = fs::read_link(opened.path()).unwrap();
            let real = real.strip_prefix(volume.canonicalize().unwrap()).unwrap().display().to_string();
            format!("{} {real}", if opened.is_folder { "folder" } else { "file" })
        }
        Err(HostError::Escapes { .. }) => "escapes".to_owned(),
        Err(HostError::Io { source, .. }) => errno(source).to_string(),
        Err(e) => e.to_string(),
    };
    assert_eq!(got, expect, "{path}");
}

#[test]
fn paths_stay_below_the_root() {
    for (path, expect) in [
        ("", "folder "),
        (".", "folder "),
        ("a/./b", "folder a/b"),
        ("a/file", "file a/file"),
        ("to-a/b", "folder a/b"),
        ("to-file", "file a/file"),
        ("a/up-and-down", "folder a/b"),
        ("a/b/../..", "folder "),
        ("a/..", "folder "),
        ("..", "escapes"),
        ("a/b/../../..", "escapes"),
        ("a/out", "escapes"),
        ("out/key", "escapes"),
        ("absolute/passwd", "escapes"),
        ("/etc", "escapes"),
        ("loop", "ELOOP: Too many symbolic links encountered"),
        ("a/file/x", "ENOTDIR: Not a directory"),
        ("missing", "ENOENT: No such file or directory"),
    ] {
        check(path, Missing::Refuse, expect);
    }
}

#[test]
fn missing_folders_are_made_below_the_root_only() {
    for (path, expect) in [
        ("x/y/z", "folder x/y/z"),
        ("to-a/x", "folder a/x"),
        ("to-new/x", "folder a/new/x"),
        ("out/x", "escapes"),
        ("absolute/x", "escapes"),
        ("a/file/x", "ENOTDIR: Not a directory"),
    ] {
        check(path, Missing::MakeFolders(0o2770), expect);
    }
    let (dir, volume) = volume();
    open_beneath(&volume, Path::new("x/y"), Missing::MakeFolders(0o2777)).unwrap();
    assert_eq!(fs::metadata(volume.join("x/y")).unwrap().mode() & 0o7777, 0o2777, "whatever the umask is");
    open_beneath(&volume, Path::new("out/evil"), Missing::MakeFolders(0o777)).unwrap_err();
    assert_eq!(names_in(&dir.path().join("secret")), ["key"]);
}

#[test]
fn a_very_long_path_ends() {
    let (_dir, volume) = volume();
    let long = "a/../".repeat(600);
    let error = open_beneath(&volume, Path::new(&long), Missing::Refuse).unwrap_err();
    assert!(crate::host::explain(&error).contains("File name too long"), "{error}");
}

#[test]
fn a_swapped_link_never_leads_out() {
    const ROUNDS: usize = 1000;
    let (dir, volume) = volume();
    let secret = fs::metadata(dir.path().join("secret")).unwrap().ino();
    let (name, link) = (volume.join("swap"), volume.join("link"));
    fs::create_dir_all(name.join("secret")).unwrap();
    symlink("..", &link).unwrap();
    let stop = AtomicBool::new(false);
    let (mut opened, mut refused, mut led_out) = (0, 0, false);
    std::thread::scope(|scope| {
        scope.spawn(|| swap_until(&stop, &name, &link));
        for i in 0..ROUNDS {
            let (path, missing) = match i % 2 {
                0 => ("swap/secret", Missing::Refuse),
                _ => ("swap/secret/made", Missing::MakeFolders(0o755)),
            };
            match open_beneath(&volume, Path::new(path), missing) {
                Ok(found) => {
                    opened += 1;
                    led_out |= nix::sys::stat::fstat(&found.fd).unwrap().st_ino == secret;
                }
                // A folder swapped for a link between two steps is not followed either.
                Err(_) => refused += 1,
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(!led_out, "led out of the volume");
    assert_eq!(names_in(&dir.path().join("secret")), ["key"], "a folder was made outside");
    report(&format!("{opened} opened, {refused} refused while the link was swapped"));
    assert_eq!(opened + refused, ROUNDS);
}

fn modes(root: &Path, names: &[&str]) -> Vec<(u32, u32)> {
    names
        .iter()
        .map(|name| {
            let meta = fs::symlink_metadata(root.join(name)).unwrap();
            (meta.gid(), meta.mode() & 0o7777)
        })
        .collect()
}

#[test]
fn a_tree_is_given_to_its_group() {
    if !nix::unistd::geteuid().is_root() {
        return report("skipped: only root gives files to another group");
    }
    let (dir, volume) = volume();
    fs::set_permissions(&volume, fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(volume.join("a"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(volume.join("a/file"), fs::Permissions::from_mode(0o4711)).unwrap();
    let first = give_to_group(&volume, 2000, false, ChangePolicy::Always).unwrap();
    assert_eq!((first.changed, first.failed), (12, 0), "{:?}", first.first_failure);
    let expect = [(2000, 0o2777), (2000, 0o2770), (2000, 0o4771), (2000, 0o777)];
    assert_eq!(modes(&volume, &["", "a", "a/file", "out"]), expect);
    assert_eq!(modes(dir.path(), &["secret", "secret/key"])[0].0, 0, "what a link points at is not touched");

    let again = give_to_group(&volume, 2000, false, ChangePolicy::Always).unwrap();
    assert_eq!((again.changed, again.failed), (0, 0), "nothing is written twice");

    fs::write(volume.join("a/late"), "x").unwrap();
    fs::set_permissions(volume.join("a/late"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(give_to_group(&volume, 2000, false, ChangePolicy::OnRootMismatch).unwrap().changed, 0);
    assert_eq!(give_to_group(&volume, 2000, false, ChangePolicy::Always).unwrap().changed, 1);
    assert_eq!(give_to_group(&volume, 2001, true, ChangePolicy::OnRootMismatch).unwrap().changed, 13);
}

#[test]
fn a_walk_does_not_enter_another_mount() {
    in_private_mounts(|dir| {
        let volume = dir.join("volume");
        let other = dir.join("other");
        fs::create_dir_all(volume.join("mounted")).unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(other.join("file"), "x").unwrap();
        mounts::bind(&other, &volume.join("mounted")).unwrap();
        let done = give_to_group(&volume, 2000, false, ChangePolicy::Always).unwrap();
        assert_eq!((done.changed, done.failed), (1, 0), "{:?}", done.first_failure);
        assert_eq!(fs::metadata(other.join("file")).unwrap().gid(), 0);
    });
}

#[test]
fn a_tree_deeper_than_the_bound_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut path = dir.path().to_path_buf();
    (0..DEPTH_LIMIT + 5).for_each(|_| path.push("d"));
    fs::create_dir_all(&path).unwrap();
    let gid = nix::unistd::getegid().as_raw();
    let done = give_to_group(dir.path(), gid, false, ChangePolicy::Always).unwrap();
    assert_eq!(done.failed, 1);
    assert!(done.first_failure.unwrap().to_string().contains("folders deep"));
}

#[test]
fn folders_get_their_mode_and_keep_it() {
    let dir = tempfile::tempdir().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    let path = dir.path().join("a/b");
    ensure_folder(&path, 0o777).unwrap();
    assert_eq!((mode(&path), mode(&dir.path().join("a"))), (0o777, 0o777));
    ensure_folder(&path, 0o700).unwrap();
    assert_eq!(mode(&path), 0o777);
    fs::write(dir.path().join("file"), "").unwrap();
    symlink(&path, dir.path().join("link")).unwrap();
    for name in ["file", "link"] {
        let error = ensure_folder(&dir.path().join(name), 0o700).unwrap_err();
        assert!(error.to_string().contains("something else is there"), "{error}");
    }
}

#[test]
fn only_an_end_of_a_regular_file_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("long"), [vec![b'x'; 9000], b"end".to_vec()].concat()).unwrap();
    fs::write(path("short"), "end").unwrap();
    symlink(path("long"), path("link")).unwrap();
    nix::unistd::mkfifo(&path("fifo"), Mode::S_IRWXU).unwrap();
    assert_eq!(read_start(&path("long"), 4096).unwrap().map(|b| b.len()), Some(4096));
    assert_eq!(read_start(&path("none"), 4096).unwrap(), None);
    assert_eq!(read_end(&path("none"), 4096).unwrap(), None);
    assert_eq!(read_end(&path("long"), 4).unwrap().unwrap(), b"xend");
    assert_eq!(read_end(&path("short"), 4).unwrap().unwrap(), b"end");
    for name in ["link", "fifo"] {
        assert!(read_start(&path(name), 4096).is_err() && read_end(&path(name), 4096).is_err(), "{name}");
    }
    assert!(read_start(dir.path(), 4096).is_err());
}

#[test]
fn file_names_are_told_from_paths() {
    for (text, expect) in
        [("a", true), ("..a", true), ("", false), (".", false), ("..", false), ("a/b", false), ("a\0", false)]
    {
        assert_eq!(is_file_name(text), expect, "{text:?}");
    }
    assert!(is_file_name(&"x".repeat(255)) && !is_file_name(&"x".repeat(256)));
}

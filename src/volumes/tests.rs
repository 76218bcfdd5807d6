//! Tests of a pod's volumes on a temporary root folder; those that mount do so in a mount namespace of
//! their own.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::objects::NoObjects;
use super::subpath::SubPathMount;
use super::*;
use crate::api::PodUid;
use crate::host::explain;
use crate::host::files::names_in;
use crate::host::mounts::{self, MOUNT_TABLE, MountTable};
use crate::host::test_support::{in_private_mounts, report, swap_until};

const NODE_MEMORY: u64 = 64 << 20;

/// A pod with these volumes, each mounted by its container, and this security context.
pub(super) fn pod(volumes: Value, security: Value) -> Pod {
    let names = volumes.as_array().unwrap().iter().map(|v| json!({ "name": v["name"], "mountPath": v["name"] }));
    let mounts: Vec<_> = names.collect();
    serde_json::from_value(json!({
        "metadata": { "name": "p", "namespace": "n", "uid": "u-1" },
        "spec": {
            "securityContext": security,
            "containers": [{ "name": "a", "volumeMounts": mounts }],
            "volumes": volumes,
        },
    }))
    .unwrap()
}

/// Calls with the folders of pod `u-1`, and with where its volumes' objects come from.
pub(super) fn with_objects(dir: &Path, objects: &dyn ObjectSource, body: impl FnOnce(&VolumeContext<'_>, &PodUid)) {
    let dirs = PodDirs::new(dir.join("root"), dir.join("logs"));
    let uid = PodUid::from("u-1");
    dirs.ensure_pod(&uid).unwrap();
    let context = VolumeContext { dirs: &dirs, mount_table: Path::new(MOUNT_TABLE), node_memory: NODE_MEMORY, objects };
    body(&context, &uid);
}

fn with(dir: &Path, body: impl FnOnce(&VolumeContext<'_>, &PodUid)) {
    with_objects(dir, &NoObjects, body);
}

/// Mounts everything, and expects that nothing is left old.
fn mount(ctx: &VolumeContext<'_>, pod: &Pod, inputs: &PodInputs) -> Result<MountedVolumes, Vec<VolumeError>> {
    mount_pod(ctx, pod, inputs).map(|mounted| {
        assert!(mounted.kept.is_empty(), "{:?}", mounted.kept);
        mounted.volumes
    })
}

fn path_of(mounted: &MountedVolumes, name: &str) -> PathBuf {
    match &mounted[name] {
        MountedVolume::Path { host_path, .. } => host_path.clone(),
        other => panic!("{other:?}"),
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn errors(ctx: &VolumeContext<'_>, volumes: Value) -> Vec<String> {
    let errors = mount(ctx, &pod(volumes, json!({})), &PodInputs::default()).unwrap_err();
    errors.iter().map(|e| explain(e)).collect()
}

#[test]
fn an_empty_dir_on_disk_keeps_its_data() {
    let dir = tempfile::tempdir().unwrap();
    with(dir.path(), |ctx, uid| {
        let pod = pod(json!([{ "name": "work", "emptyDir": {} }, { "name": "bare" }]), json!({}));
        let mounted = mount(ctx, &pod, &PodInputs::default()).unwrap();
        let work = path_of(&mounted, "work");
        assert_eq!(work, dir.path().join("root/pods/u-1/volumes/kubernetes.io~empty-dir/work"));
        assert_eq!(
            (mode(&work), mode(work.parent().unwrap()), mode(&path_of(&mounted, "bare"))),
            (0o777, 0o750, 0o777)
        );
        let expect = MountedVolume::Path { host_path: work.clone(), read_only: false, selinux_relabel: true };
        assert_eq!(mounted["work"], expect);

        fs::write(work.join("data"), "x").unwrap();
        fs::set_permissions(&work, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(mount(ctx, &pod, &PodInputs::default()).unwrap(), mounted);
        assert_eq!((mode(&work), fs::read(work.join("data")).unwrap()), (0o700, b"x".to_vec()), "it is the pod's now");

        unmount_pod(ctx, uid).unwrap();
        unmount_pod(ctx, uid).unwrap();
        assert!(!work.exists());
        mount(ctx, &pod, &PodInputs::default()).unwrap();
        assert_eq!((mode(&work), names_in(&work).len()), (0o777, 0), "the mark went with the volume");
    });
}

#[test]
fn a_crash_between_mkdir_and_chmod_is_made_good() {
    let dir = tempfile::tempdir().unwrap();
    with(dir.path(), |ctx, uid| {
        let work = ctx.dirs.volume(uid, EMPTY_DIR, "work").unwrap();
        fs::create_dir_all(&work).unwrap();
        let pod = pod(json!([{ "name": "work", "emptyDir": {} }]), json!({}));
        mount(ctx, &pod, &PodInputs::default()).unwrap();
        assert_eq!(mode(&work), 0o777);
    });
}

#[test]
fn memory_volumes_are_bounded_and_mounted_once() {
    in_private_mounts(|dir| {
        with(dir, |ctx, uid| {
            let volumes = json!([
                { "name": "small", "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } },
                { "name": "pod", "emptyDir": { "medium": "Memory", "sizeLimit": "1Gi" } },
            ]);
            let pod = pod(volumes, json!({}));
            let inputs = PodInputs { memory_limit: Some(8 << 20), ..PodInputs::default() };
            let mounted = mount(ctx, &pod, &inputs).unwrap();
            let small = path_of(&mounted, "small");
            let table = || MountTable::read(ctx.mount_table).unwrap();
            for (path, size) in [(&small, "size=1024k"), (&path_of(&mounted, "pod"), "size=8192k")] {
                let options = table().at(path).unwrap().super_options.clone();
                assert!(options.split(',').any(|o| o == size), "{options}");
            }
            assert_eq!(mode(&small), 0o1777);
            fs::write(small.join("data"), "x").unwrap();
            mount(ctx, &pod, &inputs).unwrap();
            assert!(small.join("data").exists());
            assert_eq!(table().under(dir).len(), 2, "nothing is mounted twice");

            // After a reboot the mark is there and the mount is not.
            mounts::unmount(&small).unwrap();
            mount(ctx, &pod, &inputs).unwrap();
            assert_eq!(table().under(dir).len(), 2);

            unmount_pod(ctx, uid).unwrap();
            assert_eq!(table().under(dir).len(), 0);
            ctx.dirs.remove(uid, ctx.mount_table).unwrap();
        });
    });
}

#[test]
fn a_pods_group_owns_its_empty_dirs() {
    in_private_mounts(|dir| {
        with(dir, |ctx, _| {
            let volumes = json!([
                { "name": "disk", "emptyDir": {} },
                { "name": "memory", "emptyDir": { "medium": "Memory" } },
                { "name": "host", "hostPath": { "path": dir.join("host"), "type": "DirectoryOrCreate" } },
            ]);
            let mounted = mount(ctx, &pod(volumes, json!({ "fsGroup": 2000 })), &PodInputs::default()).unwrap();
            let look = |name: &str| {
                let meta = fs::metadata(path_of(&mounted, name)).unwrap();
                (meta.gid(), meta.mode() & 0o7777)
            };
            assert_eq!(look("disk"), (2000, 0o2777));
            assert_eq!(look("memory"), (2000, 0o3777));
            assert_eq!(look("host"), (0, 0o755), "a path of the node keeps its group");
        });
    });
}

#[test]
fn host_paths_are_checked_against_their_type() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("file"), "x").unwrap();
    let _socket = UnixListener::bind(at("socket")).unwrap();
    symlink(at("folder"), at("link")).unwrap();
    with(dir.path(), |ctx, _| {
        let check = |path: &Path, type_: &str, expect: &str| {
            let volumes = json!([{ "name": "h", "hostPath": { "path": path, "type": type_ } }]);
            match mount(ctx, &pod(volumes, json!({})), &PodInputs::default()) {
                Ok(mounted) => {
                    assert_eq!(expect, "ok", "{path:?} {type_}");
                    let plain =
                        MountedVolume::Path { host_path: path.to_path_buf(), read_only: false, selinux_relabel: false };
                    assert_eq!(mounted["h"], plain);
                }
                Err(errors) => {
                    let text = explain(&errors[0]);
                    assert!(expect != "ok" && text.contains(expect), "{path:?} {type_}: {text}");
                }
            }
        };
        for (name, type_, expect) in [
            ("nothing", "", "ok"),
            ("folder", "Directory", "ok"),
            ("link", "Directory", "ok"),
            ("file", "Directory", "is not a directory"),
            ("nothing", "Directory", "does not exist, a directory is expected"),
            ("made/a/b", "DirectoryOrCreate", "ok"),
            ("folder", "DirectoryOrCreate", "ok"),
            ("file", "DirectoryOrCreate", "is not a directory"),
            ("file", "File", "ok"),
            ("folder", "File", "is not a file"),
            ("new-file", "FileOrCreate", "ok"),
            ("file", "FileOrCreate", "ok"),
            ("none/new-file", "FileOrCreate", "No such file or directory"),
            ("socket", "Socket", "ok"),
            ("file", "Socket", "is not a socket file"),
            ("file", "BlockDevice", "is not a block device"),
            ("file", "Pipe", "\"Pipe\" is no type of a hostPath"),
            ("../escape", "", "must be a path without"),
        ] {
            check(&at(name), type_, expect);
        }
        check(Path::new("/dev/null"), "CharDevice", "ok");
        check(Path::new("/dev/null"), "File", "is not a file");
        check(Path::new(""), "", "must be a path");
    });
    assert_eq!((mode(&at("made/a/b")), mode(&at("new-file"))), (0o755, 0o644));
    assert_eq!(fs::read(at("file")).unwrap(), b"x");
}

#[test]
fn what_is_not_supported_is_said_for_every_volume_at_once() {
    let dir = tempfile::tempdir().unwrap();
    with(dir.path(), |ctx, _| {
        let told = errors(
            ctx,
            json!([
                { "name": "s", "secret": { "secretName": "x" } },
                { "name": "c", "configMap": { "name": "x" } },
                { "name": "p", "persistentVolumeClaim": { "claimName": "x" } },
                { "name": "csi", "csi": { "driver": "d" } },
                { "name": "git", "gitRepo": { "repository": "r" } },
                { "name": "t", "projected": { "sources": [{ "serviceAccountToken": { "path": "t" } }] } },
                { "name": "m", "emptyDir": { "medium": "Tape" } },
                { "name": "i", "image": {} },
                { "name": "fine", "emptyDir": {} },
                { "name": "d", "downwardAPI": { "items": [] } },
                { "name": "b", "projected": { "sources": [{ "clusterTrustBundle": { "path": "x" } }, {}] } },
            ]),
        );
        for (told, expect) in told.iter().zip([
            "MountVolume.SetUp failed for volume \"s\" : couldn't get secret n/x, no kubeClient defined: this node",
            "MountVolume.SetUp failed for volume \"c\" : couldn't get configmap n/x, no kubeClient defined: this node",
            "volume \"p\" of kind persistentVolumeClaim is not supported: this version mounts no claims",
            "volume \"csi\" of kind csi is not supported: this version mounts no claims and no CSI volumes",
            "volume \"git\" of kind gitRepo is not supported: it was removed",
            "MountVolume.SetUp failed for volume \"t\" : couldn't get a token of service account , no kubeClient",
            "MountVolume.SetUp failed for volume \"m\" : medium \"Tape\" is none of",
            "MountVolume.SetUp failed for volume \"i\" : image.reference is empty",
            "MountVolume.SetUp failed for volume \"d\" : nobody computed its files",
            "MountVolume.SetUp failed for volume \"b\" : [a projected clusterTrustBundle is not supported by this agent; \
             use a configMap with the certificates, source 1 of projected volume \"b\" is of a kind",
        ]) {
            assert!(told.starts_with(expect), "{told}\n{expect}");
        }
        assert_eq!(told.len(), 10);
    });
}

#[test]
fn volumes_that_nobody_mounts_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    with(dir.path(), |ctx, uid| {
        let mut pod = pod(json!([{ "name": "a", "emptyDir": {} }]), json!({}));
        let spec = pod.spec.as_mut().unwrap();
        spec.volumes =
            serde_json::from_value(json!([{ "name": "b", "emptyDir": {} }, { "name": "s", "secret": {} }])).unwrap();
        spec.init_containers =
            serde_json::from_value(json!([{ "name": "i", "volumeMounts": [{ "name": "b", "mountPath": "/b" }] }]))
                .unwrap();
        let mounted = mount(ctx, &pod, &PodInputs::default()).unwrap();
        assert_eq!(mounted.keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(names_in(&ctx.dirs.volumes(uid).unwrap().join(EMPTY_DIR)), ["b"]);
    });
}

#[test]
fn an_image_volume_leaves_nothing_on_the_host() {
    let dir = tempfile::tempdir().unwrap();
    with(dir.path(), |ctx, uid| {
        let image = json!([{ "name": "i", "image": { "reference": "r/i:1", "pullPolicy": "Never" } }]);
        let mounted = mount(ctx, &pod(image, json!({})), &PodInputs::default()).unwrap();
        let expect = MountedVolume::Image { reference: "r/i:1".to_owned(), pull_policy: Some("Never".to_owned()) };
        assert_eq!(mounted["i"], expect);
        assert!(names_in(&ctx.dirs.volumes(uid).unwrap()).is_empty());
    });
}

#[test]
fn files_of_the_downward_api_are_written_for_the_pods_group() {
    in_private_mounts(|dir| {
        with(dir, |ctx, uid| {
            let volumes = json!([
                { "name": "info", "downwardAPI": {} },
                { "name": "all", "projected": { "sources": [{ "downwardAPI": {} }] } },
            ]);
            let pod = pod(volumes, json!({ "fsGroup": 2000 }));
            let file = |path: &str, mode, text: &str| VolumeFile {
                path: path.to_owned(),
                mode,
                owner: None,
                bytes: text.into(),
            };
            let files = |labels: &str| Ok(vec![file("labels", 0o600, labels), file("cpu/limit", 0o444, "2")]);
            let inputs = |labels: &str| PodInputs {
                downward: BTreeMap::from([
                    (("info".to_owned(), 0), files(labels)),
                    (("all".to_owned(), 0), files(labels)),
                ]),
                ..PodInputs::default()
            };
            let mounted = mount(ctx, &pod, &inputs("a=\"1\"")).unwrap();
            let info = path_of(&mounted, "info");
            assert_eq!(info, ctx.dirs.volume(uid, DOWNWARD_API, "info").unwrap());
            assert_eq!(path_of(&mounted, "all"), ctx.dirs.volume(uid, PROJECTED, "all").unwrap());
            assert!(matches!(mounted["info"], MountedVolume::Path { read_only: true, .. }));
            assert!(MountTable::read(ctx.mount_table).unwrap().is_mount_point(&info), "it never reaches the disk");
            assert_eq!(fs::read_to_string(info.join("labels")).unwrap(), "a=\"1\"");
            assert_eq!(fs::read_link(info.join("cpu")).unwrap(), Path::new("..data/cpu"));
            let meta = fs::metadata(info.join("labels")).unwrap();
            assert_eq!((meta.gid(), meta.mode() & 0o7777), (2000, 0o640));
            assert_eq!(mode(&info.join("cpu/limit")), 0o444);

            let data = || fs::read_link(info.join("..data")).unwrap();
            let before = data();
            mount(ctx, &pod, &inputs("a=\"1\"")).unwrap();
            assert_eq!(data(), before, "nothing is written twice");
            mount(ctx, &pod, &inputs("a=\"2\"")).unwrap();
            assert_ne!(data(), before);
            assert_eq!(fs::read_to_string(info.join("labels")).unwrap(), "a=\"2\"");
            assert_eq!(fs::metadata(info.join("labels")).unwrap().gid(), 2000);
            unmount_pod(ctx, uid).unwrap();
            ctx.dirs.remove(uid, ctx.mount_table).unwrap();
        });
    });
}

fn part<'a>(root: &'a Path, index: usize, sub_path: &'a str) -> SubPathMount<'a> {
    SubPathMount { volume: "work", volume_root: root, container: "a", index, sub_path }
}

#[test]
fn sub_paths_are_mounted_once_and_follow_the_volume() {
    in_private_mounts(|dir| {
        with(dir, |ctx, uid| {
            let root = dir.join("volume");
            fs::create_dir(&root).unwrap();
            fs::set_permissions(&root, std::os::unix::fs::PermissionsExt::from_mode(0o2770)).unwrap();
            fs::write(root.join("file"), "one").unwrap();

            let folder = prepare_subpath(ctx, uid, &part(&root, 0, "new/folder")).unwrap();
            assert_eq!(folder, dir.join("root/pods/u-1/volume-subpaths/work/a/0"));
            assert_eq!((mode(&root.join("new")), mode(&folder)), (0o2770, 0o2770), "as the volume itself");
            fs::write(folder.join("seen"), "x").unwrap();
            assert!(root.join("new/folder/seen").exists());
            let file = prepare_subpath(ctx, uid, &part(&root, 1, "file")).unwrap();
            assert_eq!(fs::read(&file).unwrap(), b"one");

            let count = || MountTable::read(ctx.mount_table).unwrap().under(dir).len();
            prepare_subpath(ctx, uid, &part(&root, 0, "new/folder")).unwrap();
            assert_eq!(count(), 2);
            // A file replaced by rename is another file: the next container shall see the new one.
            fs::write(root.join("tmp"), "two").unwrap();
            fs::rename(root.join("tmp"), root.join("file")).unwrap();
            prepare_subpath(ctx, uid, &part(&root, 1, "file")).unwrap();
            assert_eq!((fs::read(&file).unwrap(), count()), (b"two".to_vec(), 2));
            // The same place, now for a folder.
            prepare_subpath(ctx, uid, &part(&root, 1, "new")).unwrap();
            assert_eq!((file.is_dir(), count()), (true, 2));
            // The whole volume.
            prepare_subpath(ctx, uid, &part(&root, 2, "")).unwrap();

            assert!(ctx.dirs.remove(uid, ctx.mount_table).is_err(), "while anything is mounted nothing is removed");
            unmount_pod(ctx, uid).unwrap();
            assert_eq!((count(), names_in(&root.join("new/folder"))), (0, vec!["seen".to_owned()]));
            ctx.dirs.remove(uid, ctx.mount_table).unwrap();
        });
    });
}

#[test]
fn sub_paths_do_not_escape() {
    in_private_mounts(|dir| {
        with(dir, |ctx, uid| {
            let root = dir.join("volume");
            fs::create_dir_all(root.join("a")).unwrap();
            fs::write(dir.join("secret"), "x").unwrap();
            for (target, link) in [("/etc", "absolute"), ("../secret", "up"), ("a", "inside"), ("up", "twice")] {
                symlink(target, root.join(link)).unwrap();
            }
            for (path, expect) in [
                ("..", "must be relative"),
                ("a/../../secret", "must be relative"),
                ("/etc", "must be relative"),
                ("absolute", "leads out of"),
                ("absolute/made", "leads out of"),
                ("up", "leads out of"),
                ("twice", "leads out of"),
            ] {
                let error = prepare_subpath(ctx, uid, &part(&root, 0, path)).unwrap_err();
                assert!(explain(&error).contains(expect), "{path}: {}", explain(&error));
            }
            assert!(MountTable::read(ctx.mount_table).unwrap().under(dir).is_empty());
            prepare_subpath(ctx, uid, &part(&root, 0, "inside/b")).unwrap();
            assert!(root.join("a/b").is_dir());
            unmount_pod(ctx, uid).unwrap();
        });
    });
}

#[test]
fn a_sub_path_swapped_for_a_link_is_never_mounted() {
    const ROUNDS: usize = 200;
    in_private_mounts(|dir| {
        with(dir, |ctx, uid| {
            let root = dir.join("volume");
            let (name, link) = (root.join("swap"), root.join("link"));
            fs::create_dir_all(name.join("data")).unwrap();
            fs::create_dir(dir.join("data")).unwrap();
            symlink("..", &link).unwrap();
            let outside = fs::metadata(dir.join("data")).unwrap().ino();
            let stop = AtomicBool::new(false);
            let mut mounted = Vec::new();
            std::thread::scope(|scope| {
                scope.spawn(|| swap_until(&stop, &name, &link));
                for _ in 0..ROUNDS {
                    if let Ok(target) = prepare_subpath(ctx, uid, &part(&root, 0, "swap/data")) {
                        mounted.push(fs::metadata(target).map(|meta| meta.ino()).unwrap_or(outside));
                    }
                }
                stop.store(true, Ordering::Relaxed);
            });
            report(&format!("{} of {ROUNDS} mounted while the link was swapped", mounted.len()));
            assert!(!mounted.contains(&outside), "led out of the volume");
            unmount_pod(ctx, uid).unwrap();
            assert!(names_in(&dir.join("data")).is_empty());
        });
    });
}

#[test]
fn a_foreign_mount_is_told_and_left() {
    in_private_mounts(|dir| {
        with(dir, |ctx, uid| {
            let pod = pod(json!([{ "name": "work", "emptyDir": {} }]), json!({}));
            let work = path_of(&mount(ctx, &pod, &PodInputs::default()).unwrap(), "work");
            let csi = ctx.dirs.volume(uid, "kubernetes.io~csi", "pv").unwrap();
            fs::create_dir_all(&csi).unwrap();
            mounts::mount_tmpfs(&csi, None, 0o755).unwrap();
            fs::write(csi.join("precious"), "x").unwrap();
            // A privileged container mounted something into its volume, and it came back to the host.
            fs::create_dir(work.join("inner")).unwrap();
            mounts::bind(&csi, &work.join("inner")).unwrap();

            unmount_pod(ctx, uid).unwrap();
            assert!(!work.exists() && csi.join("precious").exists());
            let errors = ctx.dirs.remove(uid, ctx.mount_table).unwrap_err();
            assert!(explain(&errors[0]).contains("kubernetes.io~csi/pv"), "{errors:?}");
            assert!(csi.join("precious").exists());
        });
    });
}

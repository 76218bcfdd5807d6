//! Tests of volumes that the agent fills, on disk and in memory, in a mount namespace of their own.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use serde_json::json;

use super::objects::{ObjectData, ObjectKind};
use super::shelf::Shelf;
use super::tests::{pod, with_objects};
use super::*;
use crate::host::explain;
use crate::host::mounts::MountTable;
use crate::host::test_support::in_private_mounts;

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| format!("{}: {e}", path.display()))
}

#[test]
fn each_kind_lies_where_upstream_puts_it_and_follows_its_source() {
    in_private_mounts(|dir| {
        let shelf = Shelf::default();
        shelf.put(ObjectKind::ConfigMap, "c", &[("key", "1")]);
        shelf.put(ObjectKind::Secret, "s", &[("key", "2")]);
        with_objects(dir, &shelf, |ctx, uid| {
            let volumes = json!([
                { "name": "c", "configMap": { "name": "c" } },
                { "name": "s", "secret": { "secretName": "s" } },
                { "name": "p", "projected": { "sources": [
                    { "serviceAccountToken": { "path": "token" } }, { "configMap": { "name": "c" } }] } },
            ]);
            let pod = pod(volumes, json!({ "runAsUser": 1000, "fsGroup": 2000 }));
            let mount = || mount_pod(ctx, &pod, &PodInputs::default()).unwrap();
            assert_eq!(mount().volumes.len(), 3);
            let folder = dir.join("root/pods/u-1/volumes");
            let (c, s) = (folder.join("kubernetes.io~configmap/c"), folder.join("kubernetes.io~secret/s"));
            let p = folder.join("kubernetes.io~projected/p");
            let table = MountTable::read(ctx.mount_table).unwrap();
            assert_eq!([&c, &s, &p].map(|path| table.is_mount_point(path)), [false, true, true]);
            let notes = dir.join("root/pods/u-1/plugins/kubernetes.io~empty-dir");
            for name in ["wrapped_c", "wrapped_s", "wrapped_p"] {
                assert!(notes.join(name).join("ready").exists(), "{name}");
            }
            assert_eq!([c.join("key"), s.join("key"), p.join("key")].map(|path| text(&path)), ["1", "2", "1"]);
            let meta = |path: &Path| {
                let meta = fs::metadata(path).unwrap();
                (meta.uid(), meta.gid(), meta.mode() & 0o7777)
            };
            assert_eq!(meta(&p.join("token")), (1000, 2000, 0o640));
            assert_eq!(meta(&c.join("key")), (0, 2000, 0o644));
            assert_eq!(meta(&c), (0, 2000, 0o2777));

            let before = fs::read_link(c.join("..data")).unwrap();
            mount();
            assert_eq!(fs::read_link(c.join("..data")).unwrap(), before, "nothing is written while nothing changes");
            shelf.put(ObjectKind::ConfigMap, "c", &[("key", "new"), ("more", "x")]);
            mount();
            assert_eq!([c.join("key"), c.join("more"), p.join("key")].map(|path| text(&path)), ["new", "x", "new"]);
            assert_eq!(meta(&c.join("more")), (0, 2000, 0o644));

            unmount_pod(ctx, uid).unwrap();
            assert!(!c.exists() && MountTable::read(ctx.mount_table).unwrap().under(dir).is_empty());
            ctx.dirs.remove(uid, ctx.mount_table).unwrap();
        });
    });
}

#[test]
fn what_was_filled_stays_when_its_source_is_gone_or_silent() {
    let dir = tempfile::tempdir().unwrap();
    let shelf = Shelf::default();
    with_objects(dir.path(), &shelf, |ctx, _| {
        let pod = pod(json!([{ "name": "c", "configMap": { "name": "c" } }]), json!({}));
        let mount = || mount_pod(ctx, &pod, &PodInputs::default());
        let told = |errors: &[VolumeError]| errors.iter().map(|e| explain(e)).collect::<Vec<_>>();
        let missing = "MountVolume.SetUp failed for volume \"c\" : configmap \"c\" not found";
        assert_eq!(told(&mount().unwrap_err()), [missing]);
        shelf.put(ObjectKind::ConfigMap, "c", &[("key", "1")]);
        let path = match &mount().unwrap().volumes["c"] {
            MountedVolume::Path { host_path, .. } => host_path.clone(),
            other => panic!("{other:?}"),
        };
        shelf.remove(ObjectKind::ConfigMap, "c");
        let mounted = mount().unwrap();
        assert_eq!((told(&mounted.kept), mounted.volumes.len()), (vec![missing.to_owned()], 1));
        shelf.mute(ObjectKind::ConfigMap);
        assert_eq!(
            told(&mount().unwrap().kept),
            ["MountVolume.SetUp failed for volume \"c\" : failed to get configmap n/c: no answer"]
        );
        assert_eq!(text(&path.join("key")), "1");
    });
}

#[test]
fn a_whole_object_of_a_mebibyte_and_folders_for_nested_mounts() {
    let dir = tempfile::tempdir().unwrap();
    let shelf = Shelf::default();
    let bytes = [("big".to_owned(), vec![7; 1 << 20])].into();
    shelf.put_data(ObjectKind::ConfigMap, "c", ObjectData { bytes, ..ObjectData::default() });
    with_objects(dir.path(), &shelf, |ctx, _| {
        let mut pod =
            pod(json!([{ "name": "c", "configMap": { "name": "c" } }, { "name": "e", "emptyDir": {} }]), json!({}));
        let mounts = json!([{ "name": "c", "mountPath": "/etc/c" }, { "name": "e", "mountPath": "/etc/c/sub/e" }]);
        pod.spec.as_mut().unwrap().containers[0].volume_mounts = serde_json::from_value(mounts).unwrap();
        let mounted = mount_pod(ctx, &pod, &PodInputs::default()).unwrap();
        let MountedVolume::Path { host_path, read_only: true, .. } = &mounted.volumes["c"] else { panic!() };
        assert_eq!(fs::metadata(host_path.join("big")).unwrap().len(), 1 << 20);
        assert!(host_path.join("sub/e").is_dir());
        mount_pod(ctx, &pod, &PodInputs::default()).unwrap();
        assert!(crate::api::pod::has_filled_volumes(&pod));
    });
}

//! Tests of what a folder of manifests gives, without the thread `src-file` and without inotify.

use super::*;
use crate::api::runtime::FilePod;
use expect_test::{Expect, expect};
use std::fs;
use std::os::unix::fs::symlink;

const NOBODY_WRITES: fn(&OsStr) -> bool = |_| false;

struct Lab {
    folder: tempfile::TempDir,
    manifests: Manifests,
}

fn lab() -> Lab {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m");
    fs::create_dir(&path).expect("a folder");
    Lab { manifests: Manifests::new(path, "node".to_owned()), folder }
}

/// The manifest of a pod.
fn pod(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: c, image: \"{image}\"}}]}}\n"
    )
}

impl Lab {
    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join("m").join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.at(name), text).expect("written");
    }

    /// Rescans and shows pods with their images, and problems.
    fn check(&mut self, expect: Expect) {
        self.manifests.rescan(NOBODY_WRITES);
        let (pods, problems) = self.manifests.result();
        let mut shown = String::new();
        for pod in pods {
            let spec = pod.spec.as_ref().expect("a spec");
            let images: Vec<_> = spec.containers.iter().filter_map(|c| c.image.as_deref()).collect();
            shown += &format!("{} {images:?}\n", pod.metadata.name.as_deref().unwrap_or_default());
        }
        for problem in problems {
            let folder = self.folder.path().display().to_string();
            shown += &format!("! {}: {}\n", problem.origin, problem.message).replace(&folder, "");
        }
        expect.assert_eq(&shown);
    }

    fn pods(&mut self) -> Vec<Arc<Pod>> {
        self.manifests.rescan(NOBODY_WRITES);
        self.manifests.result().0
    }
}

#[test]
fn a_folder_is_followed() {
    let mut lab = lab();
    lab.check(expect![""]);
    lab.write("b.yaml", pod("b", "1"));
    lab.write(
        "a.json",
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"1"}]}}"#,
    );
    lab.write(".hidden.yaml", pod("hidden", "1"));
    lab.check(expect![[r#"
        a-node ["1"]
        b-node ["1"]
    "#]]);
    lab.write("b.yaml", pod("b", "22"));
    fs::remove_file(lab.at("a.json")).expect("removed");
    lab.check(expect![[r#"
        b-node ["22"]
    "#]]);
    lab.write("new", pod("b", "333"));
    fs::rename(lab.at("new"), lab.at("b.yaml")).expect("renamed");
    lab.check(expect![[r#"
        b-node ["333"]
    "#]]);
}

#[test]
fn things_that_are_no_manifest_are_named_and_left_alone() {
    let mut lab = lab();
    lab.write("good.yaml", pod("good", "1"));
    fs::create_dir(lab.at("folder")).expect("a folder");
    lab.write("folder/inner.yaml", pod("inner", "1"));
    let fifo = std::process::Command::new("mkfifo").arg(lab.at("fifo")).status().expect("mkfifo runs");
    assert!(fifo.success());
    let _socket = std::os::unix::net::UnixListener::bind(lab.at("socket")).expect("a socket");
    symlink("/dev/null", lab.at("device")).expect("a link");
    symlink("loop-b", lab.at("loop-a")).expect("a link");
    symlink("loop-a", lab.at("loop-b")).expect("a link");
    symlink("nowhere", lab.at("dangling")).expect("a link");
    symlink("good.yaml", lab.at("twin")).expect("a link");
    lab.check(expect![[r#"
        good-node ["1"]
        ! /m/dangling: is a symbolic link that leads nowhere
        ! /m/device: is a device, not a file: it is left alone
        ! /m/fifo: is a fifo, not a file: it is left alone
        ! /m/folder: is a folder, not a file: it is left alone
        ! /m/loop-a: cannot be looked at: Too many levels of symbolic links (os error 40)
        ! /m/loop-b: cannot be looked at: Too many levels of symbolic links (os error 40)
        ! /m/socket: is a socket, not a file: it is left alone
        ! /m/twin: not used: good.yaml defines pod default/good-node already
    "#]]);
}

#[test]
fn a_bad_manifest_costs_no_other_pod() {
    let mut lab = lab();
    lab.write("a-empty.yaml", "");
    lab.write("b-cut.yaml", &pod("x", "1")[..70]);
    lab.write("c-bytes.yaml", b"\xff\xfe\x00");
    lab.write("d-big.yaml", vec![b'#'; 10 << 20]);
    lab.write("e-kind.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n");
    lab.write(
        "f-type.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c, image: [i]}]}\n",
    );
    lab.write("g-nothing.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n");
    lab.write(
        "h-uid.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x, uid: ../..}\nspec: {containers: [{name: c, image: i}]}\n",
    );
    lab.write("i-list.yaml", "apiVersion: v1\nkind: PodList\nitems: []\n");
    lab.write("j-good.yaml", pod("good", "1") + "status: {phase: Failed}\nfoo: bar\n");
    lab.check(expect![[r#"
        good-node ["1"]
        ! /m/a-empty.yaml: the manifest is empty: write a Pod of apiVersion v1
        ! /m/b-cut.yaml: not readable as YAML or JSON: did not find expected ',' or '}' at line 5 column 1, while parsing a flow mapping at line 4 column 21
        ! /m/c-bytes.yaml: not readable as YAML or JSON: line 1 is not UTF-8 text (byte 0 of the text)
        ! /m/d-big.yaml: has more than the 4194304 bytes that are read of a manifest
        ! /m/e-kind.yaml: kind is "ConfigMap", expected Pod
        ! /m/f-type.yaml: spec.containers[0].image: invalid type: sequence, expected a string
        ! /m/g-nothing.yaml: spec.containers: a pod needs at least one container
        ! /m/h-uid.yaml: metadata.uid: use up to 128 letters, digits, '-', '_' and '.', starting with a letter or digit, or leave it out
        ! /m/i-list.yaml: kind is "PodList", expected Pod
        ! /m/j-good.yaml: foo: unknown field, read over
    "#]]);
}

#[test]
fn a_file_that_breaks_keeps_its_last_good_pod() {
    let mut lab = lab();
    lab.write("a.yaml", pod("a", "1"));
    let before = lab.pods();
    lab.write("a.yaml", "apiVersion: v1\nkind: Pod\nmeta");
    lab.check(expect![[r#"
        a-node ["1"]
        ! /m/a.yaml: not readable as YAML or JSON: could not find expected ':' at line 4 column 1, while scanning a simple key at line 3 column 1 (pod a-node stays as it was; remove the file to remove the pod)
    "#]]);
    fs::remove_file(lab.at("a.yaml")).expect("removed");
    fs::create_dir(lab.at("a.yaml")).expect("a folder");
    lab.check(expect![[r#"
        a-node ["1"]
        ! /m/a.yaml: is a folder, not a file: it is left alone (pod a-node stays as it was; remove the file to remove the pod)
    "#]]);
    fs::remove_dir(lab.at("a.yaml")).expect("removed");
    lab.write("a.yaml", pod("a", "1"));
    let after = lab.pods();
    assert!(Arc::ptr_eq(&before[0], &after[0]), "back to the same content: nothing changed");
    fs::remove_file(lab.at("a.yaml")).expect("removed");
    lab.check(expect![""]);
}

#[test]
fn a_rescan_of_unchanged_files_reads_none() {
    let mut lab = lab();
    lab.write("a.yaml", pod("a", "1"));
    let old = SystemTime::now() - Duration::from_secs(3600);
    let set_time = |lab: &Lab| {
        let file = fs::File::options().write(true).open(lab.at("a.yaml")).expect("open");
        file.set_modified(old).expect("a time");
    };
    set_time(&lab);
    let before = lab.pods();
    let look = lab.manifests.entries[OsStr::new("a.yaml")].look;
    assert!(look.is_some(), "a settled file is remembered by its look");
    // Whoever reads it now gets this mark instead of the file's content.
    lab.manifests.entries.get_mut(OsStr::new("a.yaml")).expect("an entry").messages = vec!["unread".to_owned()];
    let after = lab.pods();
    assert!(Arc::ptr_eq(&before[0], &after[0]));
    assert_eq!(lab.manifests.entries[OsStr::new("a.yaml")].messages, ["unread"]);
    lab.manifests.suspect(OsStr::new("a.yaml"));
    let read_again = lab.pods();
    assert!(Arc::ptr_eq(&before[0], &read_again[0]), "the same content is the same pod");
    assert_eq!(lab.manifests.entries[OsStr::new("a.yaml")].messages, [""; 0]);
}

#[test]
fn a_file_written_just_now_is_read_again_although_it_looks_the_same() {
    let mut lab = lab();
    lab.write("a.yaml", pod("a", "1"));
    lab.check(expect![[r#"
        a-node ["1"]
    "#]]);
    assert_eq!(lab.manifests.entries[OsStr::new("a.yaml")].look, None);
    lab.write("a.yaml", pod("a", "2"));
    lab.check(expect![[r#"
        a-node ["2"]
    "#]]);
}

#[test]
fn the_same_pod_in_two_files_comes_from_the_first() {
    let mut lab = lab();
    let with_uid = |name: &str| pod(name, "1").replace("metadata: {", "metadata: {uid: u-1, ");
    lab.write("1.yaml", pod("a", "1"));
    lab.write("2.yaml", pod("a", "2"));
    lab.write("3.yaml", with_uid("b"));
    lab.write("4.yaml", with_uid("c"));
    lab.check(expect![[r#"
        a-node ["1"]
        b-node ["1"]
        ! /m/2.yaml: not used: 1.yaml defines pod default/a-node already
        ! /m/4.yaml: not used: 3.yaml defines a pod of the same uid u-1 already
    "#]]);
    fs::remove_file(lab.at("1.yaml")).expect("removed");
    fs::remove_file(lab.at("3.yaml")).expect("removed");
    lab.check(expect![[r#"
        a-node ["2"]
        c-node ["1"]
    "#]]);
}

#[test]
fn a_file_being_written_waits() {
    let mut lab = lab();
    lab.write("a.yaml", pod("a", "1"));
    lab.pods();
    lab.write("a.yaml", pod("a", "2"));
    lab.write("b.yaml", pod("b", "1"));
    lab.manifests.rescan(|_| true);
    let images: Vec<_> = lab
        .manifests
        .result()
        .0
        .iter()
        .map(|pod| pod.spec.as_ref().expect("spec").containers[0].image.clone())
        .collect();
    assert_eq!(images, [Some("1".to_owned())]);
    lab.check(expect![[r#"
        a-node ["2"]
        b-node ["1"]
    "#]]);
}

#[test]
fn the_path_may_be_missing_a_file_or_something_else() {
    let mut lab = lab();
    let path = lab.folder.path().join("m");
    fs::remove_dir(&path).expect("removed");
    lab.check(expect![[r#"
        ! /m: is not there: waiting for it to appear
    "#]]);
    fs::write(&path, pod("single", "1")).expect("written");
    lab.check(expect![[r#"
        single-node ["1"]
    "#]]);
    fs::write(&path, "nonsense").expect("written");
    lab.check(expect![[r#"
        single-node ["1"]
        ! /m: the manifest must be an object with apiVersion, kind, metadata and spec, not a text (pod single-node stays as it was; remove the file to remove the pod)
    "#]]);
    fs::remove_file(&path).expect("removed");
    let _socket = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    lab.check(expect![[r#"
        single-node ["1"]
        ! /m: is a socket, but must be a folder of manifests or one manifest
        ! /m: the manifest must be an object with apiVersion, kind, metadata and spec, not a text (pod single-node stays as it was; remove the file to remove the pod)
    "#]]);
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("a folder");
    lab.check(expect![""]);
}

#[test]
fn a_thousand_manifests_are_read_and_far_too_many_are_cut() {
    let mut lab = lab();
    for i in 0..1000 {
        lab.write(&format!("{i:04}.yaml"), pod(&format!("p{i}"), "1"));
    }
    assert_eq!(lab.pods().len(), 1000);
    for i in 1000..MAX_FILES + 2 {
        symlink("nowhere", lab.at(&format!("{i:04}"))).expect("a link");
    }
    let (pods, problems) = (lab.pods(), lab.manifests.result().1);
    assert_eq!((pods.len(), lab.manifests.entries.len()), (1000, MAX_FILES));
    assert!(problems[0].message.contains("has 4098 files, of which only the first 4096"), "{}", problems[0].message);
}

#[test]
fn a_manifest_that_nobody_touched_goes_on_as_the_pod_that_runs() {
    for (seen, goes_on) in [("1970-01-01T00:00:00Z", false), ("9999-01-01T00:00:00Z", true)] {
        let mut lab = lab();
        lab.write("web.yaml", pod("web", "a"));
        let [namespace, name, uid, seen] = ["default", "web-node", "elder", seen].map(str::to_owned);
        lab.manifests.go_on_with(Elders::new([FilePod { namespace, name, uid, seen }]));
        lab.manifests.rescan(NOBODY_WRITES);
        let (pods, _) = lab.manifests.result();
        assert_eq!(pods[0].metadata.uid.as_deref() == Some("elder"), goes_on);
    }
}

#[test]
fn a_link_is_as_new_as_it_was_made() {
    let lab = lab();
    lab.write("file", "");
    symlink(lab.at("file"), lab.at("link")).expect("a link");
    let [file, link] = ["file", "link"].map(|name| lab.at(name));
    assert_eq!(last_touched(&[&file]), None);
    let own = fs::symlink_metadata(&link).expect("a link");
    assert!(last_touched(&[&file, &link]).is_some_and(|at| Some(at) == changed(&own)));
}

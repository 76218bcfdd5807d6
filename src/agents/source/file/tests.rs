//! Tests of the thread `src-file`: real files, real inotify, one channel; no waiting but on messages.

use super::*;
use crossbeam_channel::Receiver;
use std::fs;
use std::path::Path;

/// Far beyond what anything here takes; only a failing test waits so long.
const LONG: Duration = Duration::from_secs(60);
/// A rescan timer that never fires within a test: what is seen, inotify told.
const NEVER: Duration = Duration::from_secs(3600);

struct Lab {
    folder: tempfile::TempDir,
    updates: Receiver<SourceUpdate>,
    _source: FileSourceHandle,
}

fn pod(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: c, image: \"{image}\"}}]}}\n"
    )
}

/// Starts a source on `path` below a new folder, after `prepare` ran there.
fn start(path: &str, frequency: Duration, prepare: impl FnOnce(&Path)) -> Lab {
    let folder = tempfile::tempdir().expect("a folder");
    prepare(folder.path());
    let (sender, updates) = crossbeam_channel::unbounded();
    let config = FileSourceConfig { path: folder.path().join(path), node_name: "node".to_owned(), frequency };
    let source = FileSourceHandle::spawn(
        config,
        |_| Vec::new(),
        move |update| {
            let _the_test_may_be_over = sender.send(update);
        },
    );
    Lab { folder, updates, _source: source.expect("a thread") }
}

fn shown(update: &SourceUpdate) -> String {
    let images = update.pods.iter().map(|pod| {
        let image = pod.spec.as_ref().and_then(|spec| spec.containers[0].image.as_deref());
        format!("{}={}", pod.metadata.name.as_deref().unwrap_or_default(), image.unwrap_or_default())
    });
    images.chain(update.problems.iter().map(|_| "!".to_owned())).collect::<Vec<_>>().join(" ")
}

impl Lab {
    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits for the update that shows `expect`; those on the way there may come or be skipped over.
    fn expect(&self, expect: &str) {
        let deadline = Instant::now() + LONG;
        let mut seen = Vec::new();
        while let Ok(update) = self.updates.recv_deadline(deadline) {
            if shown(&update) == expect {
                return;
            }
            seen.push(shown(&update));
        }
        panic!("waited for {expect:?}, saw {seen:?}");
    }
}

#[test]
fn an_empty_folder_is_told_at_once() {
    let lab = start("m", NEVER, |at| fs::create_dir(at.join("m")).expect("a folder"));
    assert_eq!(shown(&lab.updates.recv_timeout(LONG).expect("an update")), "");
}

#[test]
fn changes_in_a_folder_are_followed_without_the_timer() {
    let lab = start("m", NEVER, |at| {
        fs::create_dir(at.join("m")).expect("a folder");
        fs::write(at.join("m/a.yaml"), pod("a", "1")).expect("written");
    });
    lab.expect("a-node=1");
    fs::write(lab.at("m/b.yaml"), pod("b", "1")).expect("written");
    lab.expect("a-node=1 b-node=1");
    fs::write(lab.at("m/a.yaml"), pod("a", "2")).expect("written");
    lab.expect("a-node=2 b-node=1");
    fs::write(lab.at("elsewhere"), pod("a", "3")).expect("written");
    fs::rename(lab.at("elsewhere"), lab.at("m/a.yaml")).expect("renamed");
    lab.expect("a-node=3 b-node=1");
    fs::rename(lab.at("m/b.yaml"), lab.at("m/.b.yaml")).expect("renamed");
    lab.expect("a-node=3");
    std::os::unix::fs::symlink("../elsewhere", lab.at("m/c.yaml")).expect("a link");
    lab.expect("a-node=3 !");
    fs::write(lab.at("m/c.yaml"), pod("c", "1")).expect("written");
    fs::remove_file(lab.at("m/a.yaml")).expect("removed");
    fs::remove_file(lab.at("m/c.yaml")).expect("removed");
    lab.expect("");
}

#[test]
fn a_file_is_read_when_its_writer_closes_it() {
    use std::io::Write;
    let lab = start("m", NEVER, |at| fs::create_dir(at.join("m")).expect("a folder"));
    lab.expect("");
    let text = pod("a", "1");
    let (first, second) = text.split_at(text.len() - 5);
    let mut file = fs::File::create(lab.at("m/a.yaml")).expect("a file");
    file.write_all(first.as_bytes()).expect("written");
    fs::write(lab.at("m/b.yaml"), pod("b", "1")).expect("written");
    let update = lab.updates.recv_timeout(LONG).expect("an update");
    assert_eq!(shown(&update), "b-node=1", "the half-written file is not judged");
    file.write_all(second.as_bytes()).expect("written");
    drop(file);
    lab.expect("a-node=1 b-node=1");
}

#[test]
fn a_path_that_appears_later_is_found_folder_by_folder() {
    let lab = start("x/y/m", NEVER, |_| {});
    lab.expect("!");
    fs::create_dir_all(lab.at("x/y/m")).expect("folders");
    lab.expect("");
    fs::write(lab.at("x/y/m/a.yaml"), pod("a", "1")).expect("written");
    lab.expect("a-node=1");
    fs::remove_dir_all(lab.at("x")).expect("removed");
    lab.expect("!");
    fs::create_dir_all(lab.at("x/y")).expect("folders");
    fs::write(lab.at("x/y/m"), pod("single", "1")).expect("written");
    lab.expect("single-node=1");
    fs::write(lab.at("x/y/m"), pod("single", "2")).expect("written");
    lab.expect("single-node=2");
}

#[test]
fn a_folder_that_is_replaced_is_followed() {
    let lab = start("m", NEVER, |at| {
        fs::create_dir(at.join("m")).expect("a folder");
        fs::create_dir(at.join("new")).expect("a folder");
        fs::write(at.join("m/a.yaml"), pod("a", "1")).expect("written");
        fs::write(at.join("new/b.yaml"), pod("b", "1")).expect("written");
    });
    lab.expect("a-node=1");
    fs::rename(lab.at("m"), lab.at("old")).expect("renamed");
    fs::rename(lab.at("new"), lab.at("m")).expect("renamed");
    lab.expect("b-node=1");
    fs::write(lab.at("m/c.yaml"), pod("c", "1")).expect("written");
    lab.expect("b-node=1 c-node=1");
}

#[test]
fn what_the_watch_cannot_see_the_timer_finds() {
    let lab = start("m", Duration::from_millis(100), |at| {
        fs::create_dir(at.join("m")).expect("a folder");
        fs::write(at.join("elsewhere"), pod("a", "1")).expect("written");
        std::os::unix::fs::symlink("../elsewhere", at.join("m/a.yaml")).expect("a link");
    });
    lab.expect("a-node=1");
    fs::write(lab.at("elsewhere"), pod("a", "2")).expect("written");
    lab.expect("a-node=2");
}

#[test]
fn a_sleeping_source_stops_at_once() {
    let lab = start("m", NEVER, |at| fs::create_dir(at.join("m")).expect("a folder"));
    lab.expect("");
    let started = Instant::now();
    drop(lab);
    assert!(started.elapsed() < LONG);
}

//! How full folders and file systems are, found out when somebody asks, without anybody waiting for a disk that hangs.
//!
//! [`DiskUsage`] owns what was measured last and when. A question that this does not answer is measured on a `du` thread,
//! of which there are a few while there is something to measure and none else; who asks waits up to a limit and then takes
//! the last answer or none. A place whose measuring does not end is not measured a second time until it does.
//! A container wrote what is in its volumes: links are not followed, and no mount point is entered.

use std::collections::HashMap;
use std::collections::HashSet;
use std::collections::VecDeque;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::sys::statvfs::statvfs;

use crate::host::files::{Level, open_child};
use crate::util::thread::{StackSize, spawn};

/// Threads that measure at a time, those that hang not counted.
const AT_ONCE: usize = 2;
/// Threads that may hang.
const MAY_HANG: usize = 8;
/// One place that takes longer counts as hanging.
const HANGS_AFTER: Duration = Duration::from_secs(10);
/// What nobody asked for so long is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(600);
/// Folders below each other that are looked into; what is deeper is not counted.
const DEPTH_LIMIT: usize = 256;
/// Entries of one folder tree that are counted; a tree with more has no figure.
const ENTRY_LIMIT: u64 = 5_000_000;

/// How a place is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Measure {
    /// The file system at the path: it holds nothing else.
    FileSystem,
    /// What the folder or file takes, and the file system that it is on.
    Tree,
    /// The same of what is in the folder, without the folder itself.
    Content,
}

/// What was found. Bytes and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Size of the file system.
    pub capacity: u64,
    /// What users may still take of it.
    pub available: u64,
    /// Taken: by the file system's content, or by the folder.
    pub used: u64,
    /// Inodes of the file system.
    pub inodes: u64,
    /// Those that are free.
    pub inodes_free: u64,
    /// Those that are taken: of the file system, or by the folder.
    pub inodes_used: u64,
}

/// An answer and its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// What was found.
    pub room: Room,
    /// When.
    pub at: Instant,
    /// How long it took.
    pub took: Duration,
}

/// One question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// Where.
    pub path: PathBuf,
    /// What.
    pub measure: Measure,
}

/// Measures places and remembers what it found.
#[derive(Clone, Debug, Default)]
pub struct DiskUsage {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Rung whenever a place was measured.
    measured: Condvar,
}

#[derive(Debug, Default)]
struct State {
    places: HashMap<Question, Place>,
    queue: VecDeque<Question>,
    threads: usize,
}

#[derive(Debug)]
struct Place {
    last: Option<Measured>,
    now: Activity,
    asked_at: Instant,
}

/// What is done about a place now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    Nothing,
    Queued,
    /// Since then.
    Measuring(Instant),
}

impl DiskUsage {
    /// Answers questions: what is known is taken if it is not older than `fresh`, the rest is measured. Waits up to
    /// `patience` for all together.
    pub fn ask(&self, questions: &[Question], fresh: Duration, patience: Duration) -> Vec<Option<Measured>> {
        let begun = Instant::now();
        let until = begun + patience;
        let is_fresh = |place: &Place| place.last.is_some_and(|last| last.at + fresh > begun);
        let mut state = self.shared.lock();
        state.places.retain(|_, place| place.now != Activity::Nothing || place.asked_at + FORGET_AFTER > begun);
        for question in questions {
            let place = state.places.entry(question.clone()).or_insert(Place {
                last: None,
                now: Activity::Nothing,
                asked_at: begun,
            });
            place.asked_at = begun;
            if place.now == Activity::Nothing && !is_fresh(place) {
                place.now = Activity::Queued;
                state.queue.push_back(question.clone());
            }
        }
        loop {
            self.start_threads(&mut state);
            let waits =
                questions.iter().filter_map(|question| state.places.get(question)).any(|place| match place.now {
                    Activity::Nothing => false,
                    Activity::Queued => true,
                    Activity::Measuring(since) => since.elapsed() < HANGS_AFTER,
                });
            let left = until.saturating_duration_since(Instant::now());
            if !waits || left.is_zero() {
                break;
            }
            state = self.shared.measured.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        questions.iter().map(|question| state.places.get(question).and_then(|place| place.last)).collect()
    }

    /// Threads that measure now, those that hang included.
    pub fn threads(&self) -> usize {
        self.shared.lock().threads
    }

    fn start_threads(&self, state: &mut State) {
        let hanging = state
            .places
            .values()
            .filter(|place| matches!(place.now, Activity::Measuring(since) if since.elapsed() >= HANGS_AFTER))
            .count();
        let mut started = 0;
        while started < state.queue.len()
            && state.threads.saturating_sub(hanging) < AT_ONCE
            && state.threads < AT_ONCE + MAY_HANG
        {
            started += 1;
            let shared = Arc::clone(&self.shared);
            match spawn("du", StackSize::Small, move || shared.measure_all()) {
                Ok(thread) => {
                    state.threads += 1;
                    // It ends by itself when there is nothing left to measure; one that hangs holds up nobody.
                    thread.abandon();
                }
                Err(error) => {
                    log::warn!("no thread to find out how full folders are: {error}");
                    for question in std::mem::take(&mut state.queue) {
                        if let Some(place) = state.places.get_mut(&question) {
                            place.now = Activity::Nothing;
                        }
                    }
                }
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A `du` thread: measures until nothing is left.
    fn measure_all(&self) {
        loop {
            let question = {
                let mut state = self.lock();
                let Some(question) = state.queue.pop_front() else {
                    state.threads -= 1;
                    return;
                };
                if let Some(place) = state.places.get_mut(&question) {
                    place.now = Activity::Measuring(Instant::now());
                }
                question
            };
            let begun = Instant::now();
            let room = measure(&question);
            let mut state = self.lock();
            if let Some(place) = state.places.get_mut(&question) {
                place.now = Activity::Nothing;
                // A place that is gone has no figure any more.
                place.last = room.map(|room| Measured { room, at: Instant::now(), took: begun.elapsed() });
            }
            drop(state);
            self.measured.notify_all();
        }
    }
}

/// The file system at a path, measured at once on the caller's thread; `None` if it can't be. A local one answers from
/// memory, one over a network may hang.
pub fn file_system(path: &Path) -> Option<Room> {
    let found = statvfs(path).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.fragment_size());
    Some(Room {
        capacity: bytes(found.blocks()),
        available: bytes(found.blocks_available()),
        used: bytes(found.blocks().saturating_sub(found.blocks_free())),
        inodes: found.files(),
        inodes_free: found.files_free(),
        inodes_used: found.files().saturating_sub(found.files_free()),
    })
}

/// Measures one place; `None` if it can't be. Blocks as long as the disk likes.
fn measure(question: &Question) -> Option<Room> {
    let room = file_system(&question.path)?;
    match question.measure {
        Measure::FileSystem => Some(room),
        Measure::Tree => {
            let (used, inodes_used) = tree(&question.path)?;
            Some(Room { used, inodes_used, ..room })
        }
        Measure::Content => {
            let top = std::fs::symlink_metadata(&question.path).ok()?.blocks().saturating_mul(512);
            let (used, inodes_used) = tree(&question.path)?;
            Some(Room { used: used.saturating_sub(top), inodes_used: inodes_used.saturating_sub(1), ..room })
        }
    }
}

/// Bytes and inodes of a folder with all in it, or of a file. An inode with several names counts once.
fn tree(path: &Path) -> Option<(u64, u64)> {
    let top = std::fs::symlink_metadata(path).ok()?;
    let (mut bytes, mut inodes) = (top.blocks().saturating_mul(512), 1_u64);
    if !top.is_dir() {
        return Some((bytes, inodes));
    }
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let fd = nix::fcntl::open(path, flags, Mode::empty()).ok()?;
    let mut walk = vec![Level::open(fd, path.to_path_buf()).ok()?];
    let mut several_names = HashSet::new();
    while let Some(level) = walk.last_mut() {
        let Some(entry) = level.entries.next() else {
            walk.pop();
            continue;
        };
        // What goes away while it is counted does not count.
        let Some((entry, found)) = entry.ok().and_then(|entry| entry.metadata().ok().map(|found| (entry, found)))
        else {
            continue;
        };
        if found.dev() != level.device || (found.nlink() > 1 && !found.is_dir() && !several_names.insert(entry.ino())) {
            continue;
        }
        bytes = bytes.saturating_add(found.blocks().saturating_mul(512));
        inodes += 1;
        if inodes > ENTRY_LIMIT {
            return None;
        }
        if found.is_dir() && walk.len() < DEPTH_LIMIT {
            let Some(level) = walk.last() else { break };
            if let Ok(Some(fd)) = open_child(&level.fd, &entry.file_name(), level.device)
                && let Ok(next) = Level::open(fd, PathBuf::new())
            {
                walk.push(next);
            }
        }
    }
    Some((bytes, inodes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::test_support::in_private_mounts;
    use std::fs;

    const NOW: Duration = Duration::ZERO;
    const PATIENT: Duration = Duration::from_secs(60);

    fn used(path: &Path) -> Option<(u64, u64)> {
        let question = Question { path: path.to_path_buf(), measure: Measure::Tree };
        let answer = DiskUsage::default().ask(&[question], NOW, PATIENT)[0]?;
        Some((answer.room.used, answer.room.inodes_used))
    }

    #[test]
    fn a_tree_counts_what_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        fs::create_dir_all(top.join("a/b")).unwrap();
        let (empty, inodes) = used(&top).unwrap();
        assert_eq!(inodes, 3);
        fs::write(top.join("a/b/file"), vec![1; 100_000]).unwrap();
        fs::hard_link(top.join("a/b/file"), top.join("again")).unwrap();
        std::os::unix::fs::symlink("/usr", top.join("link")).unwrap();
        let (full, inodes) = used(&top).unwrap();
        assert_eq!(inodes, 5, "a second name is no second inode, and a link is not followed");
        assert!((100_000..200_000).contains(&(full - empty)), "{empty} then {full}");
        assert_eq!(used(&top.join("a/b/file")).unwrap().1, 1);
        assert_eq!(used(&top.join("none")), None);
    }

    #[test]
    fn a_mount_in_a_tree_is_not_its_own() {
        in_private_mounts(|dir| {
            let top = dir.join("top");
            fs::create_dir_all(top.join("mounted")).unwrap();
            crate::host::mounts::mount_tmpfs(&top.join("mounted"), Some(1 << 20), 0o755).unwrap();
            fs::write(top.join("mounted/file"), vec![1; 100_000]).unwrap();
            assert!(used(&top).unwrap().0 < 50_000);
            let question = Question { path: top.join("mounted"), measure: Measure::FileSystem };
            let room = DiskUsage::default().ask(&[question], NOW, PATIENT)[0].unwrap().room;
            assert_eq!(room.capacity, 1 << 20);
            assert!(room.used >= 100_000 && room.available <= room.capacity - room.used, "{room:?}");
        });
    }

    #[test]
    fn what_is_fresh_is_not_measured_again() {
        let dir = tempfile::tempdir().unwrap();
        let question = [Question { path: dir.path().to_path_buf(), measure: Measure::Tree }];
        let disk = DiskUsage::default();
        let first = disk.ask(&question, NOW, PATIENT)[0].unwrap();
        fs::write(dir.path().join("file"), vec![1; 100_000]).unwrap();
        assert_eq!(disk.ask(&question, Duration::from_secs(3600), PATIENT)[0], Some(first));
        assert!(disk.ask(&question, NOW, PATIENT)[0].unwrap().room.used > first.room.used);
    }

    #[test]
    fn a_place_that_hangs_holds_up_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let hangs = Question { path: dir.path().join("hangs"), measure: Measure::Tree };
        let well = Question { path: dir.path().to_path_buf(), measure: Measure::Tree };
        let disk = DiskUsage::default();
        // As a `du` thread that took it long ago and never came back.
        {
            let mut state = disk.shared.lock();
            let since = Instant::now().checked_sub(HANGS_AFTER).unwrap();
            let place = Place { last: None, now: Activity::Measuring(since), asked_at: since };
            state.places.insert(hangs.clone(), place);
            state.threads = 1;
        }
        let begun = Instant::now();
        let answers = disk.ask(&[hangs.clone(), well], NOW, PATIENT);
        assert!(answers[0].is_none() && answers[1].is_some());
        assert!(begun.elapsed() < PATIENT, "nobody waited for it");
        assert!(disk.shared.lock().queue.is_empty(), "and it was not tried a second time");
    }

    #[test]
    fn who_asks_waits_no_longer_than_said() {
        let disk = DiskUsage::default();
        let question = Question { path: PathBuf::from("/nowhere"), measure: Measure::Tree };
        {
            let mut state = disk.shared.lock();
            let now = Instant::now();
            state.places.insert(question.clone(), Place { last: None, now: Activity::Measuring(now), asked_at: now });
        }
        let begun = Instant::now();
        assert_eq!(disk.ask(&[question], NOW, Duration::from_millis(20)), [None]);
        assert!(begun.elapsed() >= Duration::from_millis(20));
    }
}

//! The thread `src-file`: manifests of a folder or one file become pods, and stay in step with it.
//!
//! The thread owns the manifests read so far and the watch on their folder. It wakes when something
//! changes there, and every `fileCheckFrequency` as the repair of lost events and of what a watch
//! cannot see. It sends a full set of pods when the set or its problems changed, and once at start.
//! It never blocks on a manifest, and never sends less because it could not look.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::api::runtime::FilePod;
use crate::msg::{SourceKind, SourceUpdate};
use crate::util::cancel::Cancel;
use crate::util::poll::Bell;
use crate::util::thread::{OwnerThread, StackSize};

use super::elders::Elders;
use super::folder::{Manifests, Place};
use super::outbox::Outbox;
use super::watch::{Change, Watch};

/// The shortest time between rescans, whatever the configuration says.
const MIN_FREQUENCY: Duration = Duration::from_millis(100);
/// How long a file that somebody writes is left unread after the last bytes came.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);
/// The same for a file that was made and got no bytes yet.
const CREATE_PATIENCE: Duration = Duration::from_secs(1);
/// How many files being written are remembered; more are read as they are.
const MAX_WRITING: usize = 1024;
/// How often a path may turn from file to folder or the like during one look.
const MAX_LOOKS: usize = 4;

/// Where to look.
#[derive(Clone, Debug)]
pub struct FileSourceConfig {
    /// `staticPodPath`: a folder of manifests or one manifest, there already or not.
    pub path: PathBuf,
    /// Name of this node.
    pub node_name: String,
    /// `fileCheckFrequency`.
    pub frequency: Duration,
}

/// The running thread. Dropping it stops the thread at once and waits for its end.
#[derive(Debug)]
pub struct FileSourceHandle {
    cancel: Cancel,
    _thread: OwnerThread,
}

impl FileSourceHandle {
    /// Starts the thread. `elders` finds the static pods that the node has from before; it is asked once, on the thread, if there is
    /// anything at the path, and may take its time. `send` gets every update; it may block, which holds up this source only.
    ///
    /// # Errors
    /// The path has no absolute form, or the kernel has no thread or descriptor left.
    pub fn spawn(
        config: FileSourceConfig,
        elders: impl FnOnce(&Cancel) -> Vec<FilePod> + Send + 'static,
        send: impl Fn(SourceUpdate) + Send + 'static,
    ) -> io::Result<Self> {
        let path = std::path::absolute(&config.path)?;
        let (cancel, bell) = (Cancel::new(), Bell::new()?);
        let mut actor = FileActor {
            watch: Watch::new(path.clone()),
            manifests: Manifests::new(path.clone(), config.node_name),
            path,
            frequency: config.frequency.max(MIN_FREQUENCY),
            writing: BTreeMap::new(),
            polls: false,
            outbox: Outbox::new(SourceKind::File, send),
        };
        let stop = cancel.clone();
        let thread = OwnerThread::spawn("src-file", StackSize::Large, move || {
            if Place::of(&actor.path) != Place::Missing {
                actor.manifests.go_on_with(Elders::new(elders(&stop)));
            }
            actor.run(&stop, &bell);
        })?;
        Ok(Self { cancel, _thread: thread })
    }
}

impl Drop for FileSourceHandle {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

struct FileActor<S> {
    path: PathBuf,
    frequency: Duration,
    watch: Watch,
    manifests: Manifests,
    /// Files that somebody writes, with the time until which they are left unread.
    writing: BTreeMap<OsString, Instant>,
    /// Whether there is no watch and this was said.
    polls: bool,
    outbox: Outbox<S>,
}

impl<S: Fn(SourceUpdate)> FileActor<S> {
    fn run(mut self, stop: &Cancel, bell: &Bell) {
        let _registration = stop.register(bell.waker());
        while !stop.is_cancelled() {
            self.look();
            let (pods, problems) = self.manifests.result();
            self.outbox.report(pods, problems);
            if let Err(error) = self.sleep(stop, bell) {
                log::error!("the manifests at {} cannot be waited for: {error}", self.path.display());
                stop.wait(self.frequency);
            }
        }
    }

    /// Looks at the path, with a watch in place from before the look.
    fn look(&mut self) {
        let now = Instant::now();
        self.writing.retain(|_, until| *until > now);
        let mut place = Place::of(&self.path);
        for _ in 0..MAX_LOOKS {
            self.arm(place);
            let found = self.manifests.rescan(|name| self.writing.contains_key(name));
            if found == place {
                break;
            }
            place = found;
        }
    }

    fn arm(&mut self, place: Place) {
        match self.watch.arm(place) {
            Ok(()) => self.polls = false,
            Err(error) if !self.polls => {
                self.polls = true;
                log::warn!(
                    "no watch on the manifests at {}: {error}; changes are found every {:?} instead (fs.inotify.max_user_watches and max_user_instances may be too low)",
                    self.path.display(),
                    self.frequency
                );
            }
            Err(_) => {}
        }
    }

    /// Sleeps until a look is due: something is complete, the timer ends, a writer's time is up.
    fn sleep(&mut self, stop: &Cancel, bell: &Bell) -> io::Result<()> {
        let rescan = Instant::now() + self.frequency;
        while !stop.is_cancelled() {
            let until = self.writing.values().copied().min().map_or(rescan, |patience| patience.min(rescan));
            let changed = match self.watch.descriptor() {
                Some(watch) => bell.wait([watch.as_fd()], Some(until))?[0],
                None => bell.wait([], Some(until)).map(|[]| false)?,
            };
            if changed && self.take_changes() || Instant::now() >= until {
                break;
            }
        }
        Ok(())
    }

    /// Whether the changes call for a look.
    fn take_changes(&mut self) -> bool {
        let mut look = false;
        for change in self.watch.changes() {
            match change {
                Change::Writing { name, has_content } => {
                    let patience = if has_content { WRITE_PATIENCE } else { CREATE_PATIENCE };
                    if self.writing.len() < MAX_WRITING || self.writing.contains_key(&name) {
                        self.writing.insert(name, Instant::now() + patience);
                    } else {
                        look = true;
                    }
                }
                Change::Complete(name) => {
                    self.writing.remove(&name);
                    self.manifests.suspect(&name);
                    look = true;
                }
                Change::Other => look = true,
            }
        }
        look
    }
}

#[cfg(test)]
mod tests;

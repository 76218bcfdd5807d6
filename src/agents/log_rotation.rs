//! Rotation of container logs: thread `logs` wakes at each interval and looks how long the logs of running containers
//! are; a thread `logs-N` rotates one that is too long, and ends when there is no other. Most of the time there is none.
//!
//! `logs` owns the jobs at hand. It never reads a log, and rotates none itself: a runtime that does not answer or a log of
//! gigabytes to compress holds up a worker, and neither the other workers nor the next look. What to do with which file
//! is decided in `core::log_rotation`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::api::runtime::ContainerState;
use crate::api::{ContainerId, PodName};
use crate::core::log_rotation::{COMPRESSED, RotationPolicy, UNFINISHED, rotated_name, tidy};
use crate::cri::{Client, CriError};
use crate::host::HostError;
use crate::host::error::explain;
use crate::host::log_files::{self, Moved};
use crate::msg::NodeView;
use crate::util::cancel::Cancel;
use crate::util::clock;
use crate::util::snapshot::Snapshot;
use crate::util::thread::{JoinHandle, OwnerThread, StackSize, catch, spawn};

/// When and how logs are rotated.
#[derive(Clone, Copy, Debug)]
pub struct LogRotationSettings {
    /// What is too long, and what is kept.
    pub policy: RotationPolicy,
    /// Most logs that are rotated at the same time.
    pub workers: usize,
    /// How often it is looked.
    pub interval: Duration,
}

/// The running thread; dropping it ends it and waits for rotations under way, which are cut short.
#[derive(Debug)]
pub struct LogRotationHandle {
    stop: Cancel,
    _thread: OwnerThread,
}

impl LogRotationHandle {
    /// Looks at the logs of the containers in `view`.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn start(client: Client, settings: LogRotationSettings, view: Arc<Snapshot<NodeView>>) -> io::Result<Self> {
        let stop = Cancel::new();
        let token = stop.clone();
        let thread = OwnerThread::spawn("logs", StackSize::Small, move || {
            let shared = Arc::new(Shared { client, settings, stop: token, desk: Mutex::default() });
            let mut crew = Crew { shared: Arc::clone(&shared), threads: Vec::new() };
            while !shared.stop.wait(settings.interval) {
                crew.look(&view.get());
            }
        })?;
        Ok(Self { stop, _thread: thread })
    }
}

impl Drop for LogRotationHandle {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A log to rotate, or to begin where there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Job {
    pod: PodName,
    container: ContainerId,
    log: PathBuf,
}

/// Jobs at hand.
#[derive(Default)]
struct Desk {
    waiting: VecDeque<Job>,
    /// Containers whose job waits or is being done.
    taken: BTreeSet<ContainerId>,
    workers: usize,
    /// What was told of a log that could not be rotated, so that it is not told at each look.
    told: BTreeMap<ContainerId, String>,
}

struct Shared {
    client: Client,
    settings: LogRotationSettings,
    stop: Cancel,
    desk: Mutex<Desk>,
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells people of a failure, once for as long as it stays the same.
    fn tell(&self, job: &Job, why: String) {
        let told = self.desk().told.insert(job.container.clone(), why.clone());
        if told.as_ref() != Some(&why) && !self.stop.is_cancelled() {
            log::warn!("pod {}: log {} is not rotated: {why}", job.pod, job.log.display());
        }
    }
}

struct Crew {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    fn look(&mut self, view: &NodeView) {
        let mut running = BTreeSet::new();
        for pod in view.pods.values() {
            for container in pod.runtime.iter().flat_map(|runtime| &runtime.containers) {
                // What has ended prints no more, and an empty newest log serves nobody.
                if !matches!(container.state, ContainerState::Running { .. }) || container.log_path.is_empty() {
                    continue;
                }
                running.insert(&container.id);
                let log = Path::new(&container.log_path);
                let job = || Job { pod: pod.name.clone(), container: container.id.clone(), log: log.to_path_buf() };
                match log_files::size(log) {
                    Ok(Some(size)) if size < self.shared.settings.policy.max_size => {}
                    // One that somebody removed, or set aside and then died: the runtime writes on to a file without a name.
                    Ok(_) => self.give(job()),
                    Err(error) => self.shared.tell(&job(), explain(&error)),
                }
            }
        }
        self.shared.desk().told.retain(|container, _| running.contains(container));
    }

    /// Has a job done, by a new worker while there may be one more.
    fn give(&mut self, job: Job) {
        let mut desk = self.shared.desk();
        if !desk.taken.insert(job.container.clone()) {
            return;
        }
        desk.waiting.push_back(job);
        if desk.workers >= self.shared.settings.workers {
            return;
        }
        self.threads.retain(|thread| !thread.has_ended());
        let shared = Arc::clone(&self.shared);
        match spawn(&format!("logs-{}", desk.workers), StackSize::Normal, move || work(&shared)) {
            Ok(thread) => {
                desk.workers += 1;
                self.threads.push(thread);
            }
            Err(error) => {
                log::warn!("no thread to rotate logs: {error}");
                // Nobody else will come for them: the next look finds them again.
                if desk.workers == 0 {
                    desk.waiting.clear();
                    desk.taken.clear();
                }
            }
        }
    }
}

/// A worker: does what waits, then ends.
fn work(shared: &Shared) {
    loop {
        let mut desk = shared.desk();
        let Some(job) = desk.waiting.pop_front().filter(|_| !shared.stop.is_cancelled()) else {
            desk.workers -= 1;
            return;
        };
        drop(desk);
        // One log that cannot be rotated costs no other.
        let done = catch(|| rotate(shared, &job)).unwrap_or_else(|panic| Err(Failure::Panicked(panic.to_string())));
        match done {
            Ok(()) => drop(shared.desk().told.remove(&job.container)),
            Err(error) => shared.tell(&job, explain(&error)),
        }
        shared.desk().taken.remove(&job.container);
    }
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    File(#[from] HostError),
    #[error("the runtime does not begin a new one")]
    Reopen(#[source] CriError),
    #[error("the runtime does not begin a new one, and its lines since {0} are in the file of that name")]
    LeftAside(String, #[source] HostError),
    #[error("{0}")]
    Panicked(String),
}

fn rotate(shared: &Shared, job: &Job) -> Result<(), Failure> {
    let log = job.log.as_path();
    let reopen = || shared.client.reopen_container_log(&job.container, &shared.stop);
    match log_files::size(log)? {
        None => return reopen().map_err(Failure::Reopen),
        Some(size) if size < shared.settings.policy.max_size => return Ok(()),
        Some(_) => {}
    }
    let Some(name) = log.file_name().and_then(|name| name.to_str()) else {
        return Err(HostError::refused("rotate log", log, "it names no file").into());
    };
    let beside = log_files::beside(log)?;
    let tidying = tidy(name, &beside, &shared.settings.policy);
    for old in &tidying.remove {
        log_files::remove(&log.with_file_name(old))?;
    }
    for plain in &tidying.compress {
        let give_up = || shared.stop.is_cancelled();
        // A disk too full to compress is the last reason to let the log grow on.
        if let Err(error) = log_files::compress(&log.with_file_name(plain), COMPRESSED, UNFINISHED, &give_up) {
            log::warn!("pod {}: an old log stays as it is: {}", job.pod, explain(&error));
        }
    }
    if shared.stop.is_cancelled() {
        return Ok(());
    }
    let aside = log.with_file_name(rotated_name(name, &beside, clock::wall()));
    if log_files::rename_to_free(log, &aside)? == Moved::NameTaken {
        return Err(HostError::refused("set the log aside as", aside, "there is such a file").into());
    }
    let Err(error) = reopen() else { return Ok(()) };
    match log_files::rename_to_free(&aside, log) {
        // Where the runtime did begin a new one although it said nothing, both stay.
        Ok(Moved::NameTaken) => Ok(()),
        Ok(Moved::Done) => Err(Failure::Reopen(error)),
        Err(error) => Err(Failure::LeftAside(aside.display().to_string(), error)),
    }
}

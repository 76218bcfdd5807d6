//! Threads that make attempts: as many as there is work, up to a bound, and none while there is nothing to do.
//!
//! The thread `probe` hands jobs in and never waits; each thread takes one at a time. A probe has one job at most, which
//! bounds what waits here.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use super::attempt::{self, Attempts};
use crate::api::probe::{ErroredState, ProbeOutcome};
use crate::core::probe::Job;
use crate::util::cancel::Cancel;
use crate::util::metrics::own;
use crate::util::thread::{StackSize, catch, spawn};

/// How long a thread waits for the next job before it ends.
const IDLE: Duration = Duration::from_secs(5);

/// How a pool is called, and how far it grows.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolSettings {
    /// Name of its threads.
    pub(super) name: &'static str,
    /// Most threads.
    pub(super) max: usize,
}

/// An attempt that ended.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) job: Job,
    pub(super) outcome: ProbeOutcome,
    pub(super) took: Duration,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Threads that live.
    live: usize,
    /// Those of them that wait for a job.
    idle: usize,
    is_closed: bool,
}

struct Shared {
    settings: PoolSettings,
    attempts: Arc<dyn Attempts>,
    done: Sender<Done>,
    /// Ends the attempts that can be ended.
    cancel: Cancel,
    queue: Mutex<Queue>,
    wake: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One pool. When it is dropped its threads end after the attempts that they make; nobody waits for them.
pub(super) struct Pool {
    shared: Arc<Shared>,
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.is_closed = true;
        queue.jobs.clear();
        drop(queue);
        self.shared.cancel.cancel();
        self.shared.wake.notify_all();
    }
}

impl Pool {
    pub(super) fn new(settings: PoolSettings, attempts: Arc<dyn Attempts>, done: Sender<Done>) -> Self {
        own::POOL_LIMIT.set(&[settings.name], settings.max as f64);
        let (cancel, queue, wake) = (Cancel::new(), Mutex::default(), Condvar::new());
        Self { shared: Arc::new(Shared { settings, attempts, done, cancel, queue, wake }) }
    }

    /// Has a job done, now or as soon as there is a thread for it. Gives it back where there is no thread and none
    /// to be had.
    pub(super) fn submit(&self, job: Job) -> Option<Job> {
        let mut queue = self.shared.lock();
        queue.jobs.push_back(job);
        if queue.jobs.len() <= queue.idle {
            self.shared.wake.notify_one();
            return None;
        }
        if queue.live >= self.shared.settings.max {
            own::POOL_FULL.inc(&[self.shared.settings.name]);
            return None;
        }
        queue.live += 1;
        own::POOL_THREADS.add(&[self.shared.settings.name], 1.0);
        drop(queue);
        let shared = Arc::clone(&self.shared);
        match spawn(self.shared.settings.name, StackSize::Small, move || work(&shared)) {
            // It ends by itself; at the agent's end the process does not wait for attempts.
            Ok(thread) => {
                thread.abandon();
                None
            }
            Err(error) => {
                log::warn!("there is no thread for another probe: {error}");
                let mut queue = self.shared.lock();
                queue.live -= 1;
                own::POOL_THREADS.add(&[self.shared.settings.name], -1.0);
                // Those that live will come to it.
                if queue.live == 0 { queue.jobs.pop_back() } else { None }
            }
        }
    }
}

fn work(shared: &Shared) {
    let mut queue = shared.lock();
    loop {
        if let Some(job) = queue.jobs.pop_front() {
            drop(queue);
            make(shared, job);
            queue = shared.lock();
            continue;
        }
        if queue.is_closed {
            break;
        }
        queue.idle += 1;
        let (woken, wait) = shared.wake.wait_timeout(queue, IDLE).unwrap_or_else(PoisonError::into_inner);
        queue = woken;
        queue.idle -= 1;
        if wait.timed_out() && queue.jobs.is_empty() {
            break;
        }
    }
    queue.live -= 1;
    own::POOL_THREADS.add(&[shared.settings.name], -1.0);
}

fn make(shared: &Shared, job: Job) {
    let began = Instant::now();
    let outcome = catch(|| attempt::with_retries(&*shared.attempts, &job, &shared.cancel)).unwrap_or_else(|panic| {
        log::error!("an attempt of a probe failed in a way that it should not: {panic}");
        ProbeOutcome::Errored { state: ErroredState::Unknown, why: panic.to_string() }
    });
    // Disconnected: the prober has ended.
    let _ended = shared.done.send(Done { job, outcome, took: began.elapsed() });
}

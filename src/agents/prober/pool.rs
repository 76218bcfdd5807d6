//! Where attempts are made: threads of a pool, one attempt at a time each.
//!
//! The thread `probe` hands jobs in and never waits. A probe has one job at most, which bounds what waits here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use super::attempt::{self, Attempts};
use crate::api::probe::{ErroredState, ProbeOutcome};
use crate::core::probe::Job;
use crate::util::cancel::Cancel;
use crate::util::pool;
use crate::util::thread::{StackSize, catch};

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

/// One pool. When it is dropped its threads end after the attempts that they make; nobody waits for them.
pub(super) struct Pool {
    /// Ends the attempts that can be ended.
    cancel: Cancel,
    threads: pool::Pool<Job>,
}

impl Drop for Pool {
    fn drop(&mut self) {
        // First, so that no attempt begins that is to be ended at once.
        self.threads.close();
        self.cancel.cancel();
    }
}

impl Pool {
    pub(super) fn new(settings: PoolSettings, attempts: Arc<dyn Attempts>, done: Sender<Done>) -> Self {
        let PoolSettings { name, max } = settings;
        let settings = pool::PoolSettings { name, stack: StackSize::Small, max, queued: usize::MAX };
        let cancel = Cancel::new();
        let theirs = cancel.clone();
        let threads = pool::Pool::new(settings, move |job| make(&*attempts, &theirs, &done, job));
        Self { cancel, threads }
    }

    /// Has a job done, now or as soon as there is a thread for it. Gives it back where there is no thread and none
    /// to be had.
    pub(super) fn submit(&self, job: Job) -> Option<Job> {
        self.threads.submit(job).err()
    }
}

fn make(attempts: &dyn Attempts, cancel: &Cancel, done: &Sender<Done>, job: Job) {
    let began = Instant::now();
    let outcome = catch(|| attempt::with_retries(attempts, &job, cancel)).unwrap_or_else(|panic| {
        log::error!("an attempt of a probe failed in a way that it should not: {panic}");
        ProbeOutcome::Errored { state: ErroredState::Unknown, why: panic.to_string() }
    });
    // Disconnected: the prober has ended.
    let _ended = done.send(Done { job, outcome, took: began.elapsed() });
}

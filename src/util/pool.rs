//! Threads that do jobs: as many as there is work, up to a bound, and none while there is nothing to do.
//!
//! Whoever hands jobs in never waits; each thread takes one at a time, and ends when it had none for a while. Owns the jobs that
//! wait. What a job does, its panics included, is the affair of the function that the pool was made with.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::metrics::own;
use super::thread::{StackSize, spawn};

/// How long a thread waits for the next job before it ends.
const IDLE: Duration = Duration::from_secs(5);

/// How a pool is called, and how far it grows.
#[derive(Clone, Copy, Debug)]
pub struct PoolSettings {
    /// Name of its threads, and of the pool in metrics.
    pub name: &'static str,
    /// Stack of each thread.
    pub stack: StackSize,
    /// Most threads.
    pub max: usize,
    /// Most jobs that wait.
    pub queued: usize,
}

struct Queue<J> {
    jobs: VecDeque<J>,
    /// Threads that live.
    live: usize,
    /// Those of them that wait for a job.
    idle: usize,
    is_closed: bool,
}

struct Shared<J> {
    settings: PoolSettings,
    run: Box<dyn Fn(J) + Send + Sync>,
    queue: Mutex<Queue<J>>,
    wake: Condvar,
}

impl<J> Shared<J> {
    fn lock(&self) -> MutexGuard<'_, Queue<J>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One pool. When it is dropped its threads end after what they do; nobody waits for them.
pub struct Pool<J> {
    shared: Arc<Shared<J>>,
}

impl<J> fmt::Debug for Pool<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("settings", &self.shared.settings).finish_non_exhaustive()
    }
}

impl<J> Drop for Pool<J> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<J> Pool<J> {
    /// Drops what waits, and has the threads end after what they do.
    pub fn close(&self) {
        let mut queue = self.shared.lock();
        queue.is_closed = true;
        let jobs = std::mem::take(&mut queue.jobs);
        drop(queue);
        self.shared.wake.notify_all();
        drop(jobs);
    }
}

impl<J: Send + 'static> Pool<J> {
    /// A pool without threads yet, whose threads `run` each job.
    pub fn new(settings: PoolSettings, run: impl Fn(J) + Send + Sync + 'static) -> Self {
        own::POOL_LIMIT.set(&[settings.name], settings.max as f64);
        let queue = Queue { jobs: VecDeque::new(), live: 0, idle: 0, is_closed: false };
        let (run, queue, wake) = (Box::new(run), Mutex::new(queue), Condvar::new());
        Self { shared: Arc::new(Shared { settings, run, queue, wake }) }
    }

    /// Has a job done, now or as soon as there is a thread for it.
    ///
    /// # Errors
    /// Gives it back where too many wait already, and where there is no thread and none to be had.
    pub fn submit(&self, job: J) -> Result<(), J> {
        let settings = self.shared.settings;
        let mut queue = self.shared.lock();
        if queue.jobs.len() >= settings.queued {
            return Err(job);
        }
        queue.jobs.push_back(job);
        if queue.jobs.len() <= queue.idle {
            self.shared.wake.notify_one();
            return Ok(());
        }
        if queue.live >= settings.max {
            own::POOL_FULL.inc(&[settings.name]);
            return Ok(());
        }
        queue.live += 1;
        own::POOL_THREADS.add(&[settings.name], 1.0);
        drop(queue);
        let shared = Arc::clone(&self.shared);
        match spawn(settings.name, settings.stack, move || work(&shared)) {
            // It ends by itself; at the agent's end the process does not wait for it.
            Ok(thread) => {
                thread.abandon();
                Ok(())
            }
            Err(error) => {
                log::warn!("there is no thread for another job of the pool {}: {error}", settings.name);
                let mut queue = self.shared.lock();
                queue.live -= 1;
                own::POOL_THREADS.add(&[settings.name], -1.0);
                // Those that live will come to it.
                match queue.live {
                    0 => queue.jobs.pop_back().map_or(Ok(()), Err),
                    _ => Ok(()),
                }
            }
        }
    }
}

fn work<J>(shared: &Shared<J>) {
    let mut queue = shared.lock();
    loop {
        if let Some(job) = queue.jobs.pop_front() {
            drop(queue);
            (shared.run)(job);
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

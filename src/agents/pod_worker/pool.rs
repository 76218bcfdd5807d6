//! The pool: as many threads as there is work, up to a bound.
//!
//! Thread `pods` owns the works that wait; `pod-N` threads own one work each. A work is handed over only
//! to a thread that waits for it, never queued behind one that may hang.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};

use super::Tools;
use super::run::{carry_out, report};
use crate::msg::{FromWorker, PodWork, Reason, Step, StepResult, WorkReport};
use crate::util::heap;
use crate::util::metrics::{kubelet, own};
use crate::util::thread::{OwnerThread, StackSize, catch, spawn};

/// Its name in metrics.
const POOL: &str = "pods";

/// How the pool grows and shrinks.
#[derive(Clone, Copy, Debug)]
pub struct WorkerPoolSettings {
    /// Most threads.
    pub max: usize,
    /// How long a thread waits for the next work before it ends.
    pub idle: Duration,
}

/// The running pool. It ends when the sender of its works is dropped; works in flight are cancelled by
/// their own tokens.
#[derive(Debug)]
pub struct WorkerPool {
    live: Arc<AtomicUsize>,
    _thread: OwnerThread,
}

impl WorkerPool {
    /// Starts the pool.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn start(
        tools: Arc<Tools>,
        settings: WorkerPoolSettings,
        works: Receiver<PodWork>,
        to_loop: Sender<FromWorker>,
    ) -> io::Result<Self> {
        let live = Arc::new(AtomicUsize::new(0));
        let (hand, taken) = bounded(0);
        own::POOL_LIMIT.set(&[POOL], settings.max as f64);
        let dispatcher = Dispatcher { tools, settings, to_loop, hand, taken, live: Arc::clone(&live), next: 0 };
        let thread = OwnerThread::spawn("pods", StackSize::Small, move || dispatcher.run(&works))?;
        Ok(Self { live, _thread: thread })
    }

    /// Threads that live now.
    pub fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }
}

struct Dispatcher {
    tools: Arc<Tools>,
    settings: WorkerPoolSettings,
    to_loop: Sender<FromWorker>,
    hand: Sender<PodWork>,
    taken: Receiver<PodWork>,
    live: Arc<AtomicUsize>,
    next: usize,
}

impl Dispatcher {
    fn run(mut self, works: &Receiver<PodWork>) {
        for work in works {
            match self.hand.try_send(work) {
                Ok(()) => {}
                Err(TrySendError::Full(work) | TrySendError::Disconnected(work)) => self.hand_to_new(work),
            }
        }
    }

    fn hand_to_new(&mut self, work: PodWork) {
        if self.live.load(Ordering::Relaxed) >= self.settings.max {
            // All threads are busy: the next one that is free takes it.
            own::POOL_FULL.inc(&[POOL]);
            let _ended = self.hand.send(work);
            return;
        }
        let name = format!("pod-{}", self.next % 100_000);
        self.next = self.next.wrapping_add(1);
        let (tools, to_loop, taken) = (Arc::clone(&self.tools), self.to_loop.clone(), self.taken.clone());
        let (idle, live) = (self.settings.idle, Arc::clone(&self.live));
        live.fetch_add(1, Ordering::Relaxed);
        own::POOL_THREADS.add(&[POOL], 1.0);
        // The thread takes the work from a slot, so that it is not lost if there is no thread to be had.
        let (give, first) = bounded(1);
        let started = spawn(&name, StackSize::Small, move || {
            let mut next = first.recv();
            while let Ok(work) = next {
                work_and_report(&tools, &work, &to_loop);
                next = match taken.recv_timeout(idle) {
                    Ok(work) => Ok(work),
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
                };
            }
            own::POOL_THREADS.add(&[POOL], -1.0);
            if live.fetch_sub(1, Ordering::Relaxed) == 1 {
                // The rush is over: what it needed is not needed while nothing happens.
                heap::give_back();
            }
        });
        match started {
            Ok(thread) => {
                let _has_room = give.send(work);
                // It ends by itself when idle; at the agent's end the process does not wait for works.
                thread.abandon();
            }
            Err(error) => {
                self.live.fetch_sub(1, Ordering::Relaxed);
                own::POOL_THREADS.add(&[POOL], -1.0);
                let reason = Reason {
                    reason: "NoThread".to_owned(),
                    message: format!("no thread for pod {}: {error}", work.name),
                };
                let _ended = self.to_loop.send(FromWorker::Report(failed(&work, &reason)));
            }
        }
    }
}

fn work_and_report(tools: &Tools, work: &PodWork, to_loop: &Sender<FromWorker>) {
    let began = Instant::now();
    let report = match catch(|| carry_out(tools, work, to_loop)) {
        Ok(report) => report,
        Err(panic) => {
            log::error!("a worker of pod {} failed in a way that it should not: {panic}", work.name);
            failed(work, &Reason { reason: "InternalError".to_owned(), message: panic.to_string() })
        }
    };
    kubelet::POD_WORKER.observe(&[operation(work)], began.elapsed());
    let _ended = to_loop.send(FromWorker::Report(report));
}

/// What a work is for, in upstream's words.
fn operation(work: &PodWork) -> &'static str {
    let any = |is: fn(&Step) -> bool| work.steps.iter().any(|planned| is(&planned.step));
    if any(|step| matches!(step, Step::ReleasePod | Step::ForgetPod)) {
        "terminated"
    } else if any(|step| matches!(step, Step::RunSandbox { attempt: 0 })) {
        "create"
    } else if any(|step| matches!(step, Step::StopSandbox(_))) && !any(|step| matches!(step, Step::RunSandbox { .. })) {
        "kill"
    } else {
        "sync"
    }
}

/// A report in which every step failed.
fn failed(work: &PodWork, reason: &Reason) -> WorkReport {
    let results = work.steps.iter().map(|s| (s.step.clone(), StepResult::Failed(reason.clone()))).collect();
    report(work, results)
}

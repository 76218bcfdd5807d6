//! The `probe` thread: makes every attempt of every probe at its time, and tells the sync loop what changed.
//!
//! Owns the book of probes with their due times. It is woken by a bell when the node's view has changed, by the next due
//! time, and by attempts that ended; without probes nothing wakes it. Attempts are made on the pool's threads, one
//! for each probe at most. It decides nothing about pods.

mod attempt;
mod metrics;
mod pool;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, at, bounded, never, select};

pub use self::attempt::{Attempts, Ports};
use self::pool::{Done, Pool, PoolSettings};
use crate::api::probe::{ProbeAction, ProbeOutcome};
use crate::core::probe::{Book, Job};
use crate::msg::{FromProber, NodeView};
use crate::util::snapshot::Snapshot;
use crate::util::thread::{OwnerThread, StackSize};
use crate::util::{clock, jitter};

/// Attempts over the network at once. Those above it begin late, and their time counts from their own begin.
const NET_POOL: PoolSettings = PoolSettings { name: "probe-net", max: 64 };
/// Commands at once, apart from the others: a runtime that hangs shall hold up no probe that does without it.
const EXEC_POOL: PoolSettings = PoolSettings { name: "probe-exec", max: 32 };

/// The running prober. Dropping it ends the thread; attempts under way are given up.
#[derive(Debug)]
pub struct ProberHandle {
    /// Dropped before the thread is joined, which tells it to end.
    stop: Option<Sender<()>>,
    thread: Option<OwnerThread>,
}

impl ProberHandle {
    /// Starts the thread. It reads `view` whenever `rung` does.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn start(
        attempts: Arc<dyn Attempts>,
        view: Arc<Snapshot<NodeView>>,
        rung: Receiver<()>,
        to_loop: Sender<FromProber>,
    ) -> io::Result<Self> {
        let (stop, stopped) = bounded(0);
        // Room for a few: whoever finds none waits for this thread, which never waits for them.
        let (done_sender, done) = bounded(16);
        let net = Pool::new(NET_POOL, Arc::clone(&attempts), done_sender.clone());
        let exec = Pool::new(EXEC_POOL, attempts, done_sender);
        let actor = ProberActor { book: Book::new(clock::now()), view, net, exec, to_loop };
        let thread = OwnerThread::spawn("probe", StackSize::Normal, move || actor.run(&rung, &done, &stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for ProberHandle {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

struct ProberActor {
    book: Book,
    view: Arc<Snapshot<NodeView>>,
    net: Pool,
    exec: Pool,
    to_loop: Sender<FromProber>,
}

impl ProberActor {
    fn run(mut self, rung: &Receiver<()>, done: &Receiver<Done>, stopped: &Receiver<()>) {
        self.look();
        loop {
            self.begin_due();
            let timer = match self.book.next_due() {
                Some(due) => at(clock::instant_of(due)),
                None => never(),
            };
            select! {
                recv(stopped) -> _ => return,
                // The loop has ended: so does the process.
                recv(rung) -> got => if got.is_ok() { self.look() } else { return },
                recv(done) -> got => if let Ok(done) = got { self.take(&done) },
                recv(timer) -> _ => {}
            }
        }
    }

    fn look(&mut self) {
        let view = self.view.get();
        let forgotten = self.book.forgotten();
        self.book.see(&view, clock::now(), &mut jitter::chance);
        if self.book.forgotten() != forgotten {
            metrics::forget(&self.book);
        }
    }

    fn take(&mut self, done: &Done) {
        metrics::count(&self.book, done);
        self.finish(&done.job, &done.outcome);
    }

    fn begin_due(&mut self) {
        while let Some(job) = self.book.take_due(clock::moment()) {
            let left = match &job.call {
                Ok(call) => match call.action {
                    ProbeAction::Exec { .. } => self.exec.submit(job),
                    ProbeAction::Net(_) => self.net.submit(job),
                },
                Err(_) => Some(job),
            };
            if let Some(job) = left {
                let why = job.call.as_ref().err().map_or("the agent has no thread for it", String::as_str);
                self.finish(&job, &attempt::impossible(why));
            }
        }
    }

    fn finish(&mut self, job: &Job, outcome: &ProbeOutcome) {
        for message in self.book.finish(job, outcome, clock::now()) {
            // Disconnected: the agent ends.
            let _ended = self.to_loop.send(message);
        }
    }
}

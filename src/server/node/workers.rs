//! The threads that serve requests: as many as there are requests, up to a bound, and none while nobody asks.
//!
//! The accepting thread hands requests in and never waits; each thread serves one at a time, and further ones of the same connection that
//! have arrived already. Then the connection goes back to the accepting thread.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::connections::Place;
use super::counts::{Counts, Labels};
use super::dispatch::{Dispatch, Door};
use super::http::Duplex;
use super::http::body::Carrier as _;
use super::http::connection::Connection;
use super::http::head::{Head, parse};
use super::http::writer::{After, Asked, write};
use super::limits::Limits;
use crate::util::thread::{StackSize, catch, spawn};

/// How long a thread waits for the next request before it ends.
const IDLE: Duration = Duration::from_secs(5);
/// Requests of one connection that are served in a row before others have a turn.
const IN_A_ROW: usize = 32;

/// A connection to a client.
pub(super) struct Client {
    pub(super) connection: Connection,
    pub(super) dispatch: Arc<Dispatch>,
    pub(super) place: Place,
    /// Whether a request of it was let in: strangers make room for others first.
    pub(super) is_known: bool,
}

/// A request to serve.
pub(super) struct Job {
    pub(super) client: Client,
    pub(super) head: Head,
}

/// What a connection is good for after its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Back {
    /// More requests.
    Waits,
    /// Nothing: what the client still sends is dropped.
    Ends,
}

/// Takes connections back.
pub(super) type TakeBack = dyn Fn(Client, Back) + Send + Sync;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Threads that live.
    live: usize,
    /// Those of them that wait.
    idle: usize,
    is_closed: bool,
}

struct Shared {
    limits: Limits,
    take_back: Box<TakeBack>,
    queue: Mutex<Queue>,
    wake: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The threads. When it is dropped they end after what they serve; nobody waits for them, since their connections
/// are ended then.
pub(super) struct Workers {
    shared: Arc<Shared>,
}

impl Drop for Workers {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.is_closed = true;
        let jobs = std::mem::take(&mut queue.jobs);
        drop(queue);
        self.shared.wake.notify_all();
        drop(jobs);
    }
}

impl Workers {
    pub(super) fn new(limits: Limits, take_back: Box<TakeBack>) -> Self {
        Self { shared: Arc::new(Shared { limits, take_back, queue: Mutex::default(), wake: Condvar::new() }) }
    }

    /// Has a request served, now or as soon as there is a thread for it. Gives it back where too many wait already.
    pub(super) fn submit(&self, job: Job) -> Result<(), Box<Job>> {
        let mut queue = self.shared.lock();
        if queue.jobs.len() >= self.shared.limits.queued {
            return Err(Box::new(job));
        }
        queue.jobs.push_back(job);
        if queue.jobs.len() <= queue.idle {
            self.shared.wake.notify_one();
            return Ok(());
        }
        if queue.live >= self.shared.limits.workers {
            return Ok(());
        }
        queue.live += 1;
        drop(queue);
        let shared = Arc::clone(&self.shared);
        match spawn("node-conn", StackSize::Normal, move || work(&shared)) {
            Ok(thread) => {
                thread.abandon();
                Ok(())
            }
            Err(error) => {
                log::warn!("there is no thread for another request: {error}");
                let mut queue = self.shared.lock();
                queue.live -= 1;
                // Those that live will come to it.
                match queue.live {
                    0 => queue.jobs.pop_back().map_or(Ok(()), |job| Err(Box::new(job))),
                    _ => Ok(()),
                }
            }
        }
    }
}

fn work(shared: &Shared) {
    let mut queue = shared.lock();
    loop {
        if let Some(job) = queue.jobs.pop_front() {
            drop(queue);
            if let Err(panic) = catch(|| serve(shared, job)) {
                log::error!("a connection was given up: {panic}");
            }
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
}

/// Serves the requests of a connection that have arrived.
fn serve(shared: &Shared, job: Job) {
    let Job { mut client, mut head } = job;
    for served in 1.. {
        match serve_one(shared, &mut client, head) {
            After::GoesOn => {}
            After::Ends => return (shared.take_back)(client, Back::Ends),
            After::TakenOver(go_on) => {
                let Client { connection, place, .. } = client;
                let (wire, ahead) = connection.into_parts();
                return go_on(Duplex::new(wire, ahead, Some(Box::new(place))));
            }
        }
        match parse(client.connection.ahead()) {
            Ok(Some((next, length))) if served < IN_A_ROW => {
                client.connection.consume(length);
                head = next;
            }
            // It has its turn later; and what is refused is answered where all heads are read.
            Ok(_) | Err(_) => break,
        }
    }
    (shared.take_back)(client, Back::Waits);
}

fn serve_one(shared: &Shared, client: &mut Client, head: Head) -> After {
    let dispatch = Arc::clone(&client.dispatch);
    let is_read_only = matches!(dispatch.door, Door::ReadOnly);
    let counts: &Counts = &dispatch.counts;
    let running = counts.begin(Labels::of(head.method, &head.path, is_read_only));
    let asked = Asked::of(&head);
    let connection = &mut client.connection;
    connection.expect_within(shared.limits.body);
    let what = format!("{} {}", head.method.as_str(), head.path);
    let answer = dispatch.answer(head, connection);
    client.is_known |= answer.is_let_in;
    log::debug!("{what}: {}", answer.reply.status());
    connection.set_stall(if answer.long.is_some() { shared.limits.long_stall } else { shared.limits.stall });
    let after = write(connection, asked, answer.reply);
    drop(answer.long);
    drop(running);
    after.unwrap_or_else(|error| {
        log::debug!("{what}: the answer was broken off: {error}");
        After::Ends
    })
}

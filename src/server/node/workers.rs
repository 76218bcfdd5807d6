//! The threads that serve requests: as many as there are requests, up to a bound, and none while nobody asks.
//!
//! The accepting thread hands requests in and never waits; each thread serves one at a time, and further ones of the same connection that
//! have arrived already. Then the connection goes back to the accepting thread.

use std::sync::Arc;

use super::connections::Place;
use super::counts::{Counts, Labels};
use super::dispatch::{Dispatch, Door};
use super::http::Duplex;
use super::http::body::Carrier as _;
use super::http::connection::Connection;
use super::http::head::{Head, parse};
use super::http::writer::{After, Asked, write};
use super::limits::Limits;
use crate::util::pool::{Pool, PoolSettings};
use crate::util::thread::{StackSize, catch};

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

struct Shared {
    limits: Limits,
    take_back: Box<TakeBack>,
}

/// The threads. When it is dropped they end after what they serve; nobody waits for them, since their connections
/// are ended then.
pub(super) struct Workers {
    threads: Pool<Job>,
}

impl Workers {
    pub(super) fn new(limits: Limits, take_back: Box<TakeBack>) -> Self {
        let (max, queued) = (limits.workers, limits.queued);
        let settings = PoolSettings { name: "node-conn", stack: StackSize::Normal, max, queued };
        let shared = Shared { limits, take_back };
        let threads = Pool::new(settings, move |job| {
            if let Err(panic) = catch(|| serve(&shared, job)) {
                log::error!("a connection was given up: {panic}");
            }
        });
        Self { threads }
    }

    /// Has a request served, now or as soon as there is a thread for it. Gives it back where too many wait already.
    pub(super) fn submit(&self, job: Job) -> Result<(), Box<Job>> {
        self.threads.submit(job).map_err(Box::new)
    }
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

//! The `events` thread: writes what happened to pods and to the node as API events.
//!
//! Owns the memory of what was written, and an API client with a limit of its own (eventRecordQPS,
//! eventBurst). Whoever has an event leaves it and never waits: the queue is bounded, and while the API
//! server is away the oldest go first. An event is tried twelve times, ten seconds apart, as upstream
//! does. It decides nothing, and never writes to a disk.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::api::v1::Event;
use crate::core::event_fold::{EventFold, Folded};
use crate::kube::reports::{EventApi, Refusal};
use crate::msg::ToldEvent;
use crate::util::cancel::Cancel;
use crate::util::clock;
use crate::util::metrics::own;
use crate::util::thread::{OwnerThread, StackSize};

/// Events that wait; as upstream.
const QUEUED: usize = 1000;
/// How often one event is tried.
const TRIES: u32 = 12;
/// How long between two tries.
const PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<ToldEvent>,
    /// Dropped since the last one was written.
    dropped: u64,
}

#[derive(Debug)]
struct Shared {
    /// A lock and not a channel, because a channel cannot let go of its oldest message. Held for one
    /// push or pop, never over I/O.
    queue: Mutex<Queue>,
    arrived: Condvar,
    stop: Cancel,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where events are left. Clones leave them at the same place.
#[derive(Clone, Debug)]
pub struct EventSender {
    shared: Arc<Shared>,
}

impl EventSender {
    /// Leaves an event. Never waits for the API server.
    pub fn tell(&self, event: ToldEvent) {
        let mut queue = self.shared.lock();
        if queue.waiting.len() >= QUEUED {
            queue.waiting.pop_front();
            queue.dropped += 1;
            own::EVENTS_DROPPED.inc();
        }
        queue.waiting.push_back(event);
        drop(queue);
        self.shared.arrived.notify_one();
    }
}

/// The running writer. Dropping it ends the thread; events that wait are lost with it.
#[derive(Debug)]
pub struct EventsHandle {
    shared: Arc<Shared>,
    /// Joined after [`Drop::drop`] told the thread to end.
    _thread: OwnerThread,
}

impl EventsHandle {
    /// Starts the thread for this node's events.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn start(api: Box<dyn EventApi>, node: &str) -> io::Result<Self> {
        Self::start_with(api, node, PAUSE)
    }

    fn start_with(api: Box<dyn EventApi>, node: &str, pause: Duration) -> io::Result<Self> {
        let shared = Arc::new(Shared { queue: Mutex::default(), arrived: Condvar::new(), stop: Cancel::new() });
        let actor = EventsActor { api, fold: EventFold::new(node), shared: Arc::clone(&shared), pause };
        let thread = OwnerThread::spawn("events", StackSize::Normal, move || actor.run())?;
        Ok(Self { shared, _thread: thread })
    }

    /// A place to leave events.
    pub fn sender(&self) -> EventSender {
        EventSender { shared: Arc::clone(&self.shared) }
    }
}

impl Drop for EventsHandle {
    fn drop(&mut self) {
        self.shared.stop.cancel();
        // Taken, so that a thread between its look at the token and its sleep is not missed.
        drop(self.shared.lock());
        self.shared.arrived.notify_all();
    }
}

struct EventsActor {
    api: Box<dyn EventApi>,
    fold: EventFold,
    shared: Arc<Shared>,
    pause: Duration,
}

impl EventsActor {
    fn run(mut self) {
        while let Some(told) = self.next() {
            match self.fold.fold(&told, clock::now()) {
                Folded::Unheard => log::debug!("too many events of {} {}", told.object.kind, told.object.name),
                Folded::Create(event) => self.write(*event, None),
                Folded::Count { event, patch } => self.write(*event, Some(patch.to_string().into_bytes())),
            }
        }
    }

    fn next(&self) -> Option<ToldEvent> {
        let mut queue = self.shared.lock();
        loop {
            if self.shared.stop.is_cancelled() {
                return None;
            }
            if let Some(told) = queue.waiting.pop_front() {
                if queue.dropped > 0 {
                    log::warn!("{} events were dropped, the API server did not take them in time", queue.dropped);
                    queue.dropped = 0;
                }
                return Some(told);
            }
            queue = self.shared.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Writes one event, as often as it takes and no more.
    fn write(&mut self, event: Event, patch: Option<Vec<u8>>) {
        let name = event.metadata.name.clone().unwrap_or_default();
        for tried in 1..=TRIES {
            match self.send(&event, patch.as_deref()) {
                Ok(stored) => return self.fold.stored(&stored),
                Err(Refusal::Away(why)) => {
                    if tried == TRIES {
                        log::warn!("event {name} is given up: {why}");
                        return;
                    }
                    // The first pause is cut by chance, so that many nodes do not come back together.
                    let pause = if tried == 1 { crate::util::jitter::up_to(self.pause) } else { self.pause };
                    if self.shared.stop.wait(pause) {
                        return;
                    }
                }
                // Its namespace ends, or it is there already: nobody misses it.
                Err(Refusal::Exists | Refusal::Conflict | Refusal::NotFound | Refusal::Ends) => return,
                Err(Refusal::Denied(why)) => {
                    log::debug!("event {name}: {why}");
                    return;
                }
            }
        }
    }

    fn send(&self, event: &Event, patch: Option<&[u8]>) -> Result<Event, Refusal> {
        let metadata = &event.metadata;
        if let (Some(patch), Some(namespace), Some(name)) = (patch, &metadata.namespace, &metadata.name) {
            match self.api.patch_event(namespace, name, patch.to_vec()) {
                // The API server keeps events for an hour: it is written anew, with its count.
                Err(Refusal::NotFound) => {}
                other => return other,
            }
        }
        self.api.create_event(event)
    }
}

//! How many pulls run at once, first come, first served.
//!
//! Pod workers wait here on their own threads. Owns the queue; holds no place for anybody who gave up:
//! a waiting worker leaves at once when its token is set. It never waits with its lock held.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::util::cancel::{Cancel, unparker};

/// A queue before a bounded number of places.
#[derive(Debug)]
pub(super) struct Gate {
    /// `None` lets everybody in.
    places: Option<usize>,
    /// A lock, because those who wait are the pod workers themselves; there is no thread that could
    /// own the queue. Bounded by the number of workers.
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    inside: usize,
    next_ticket: u64,
    waiting: VecDeque<(u64, Waker)>,
}

/// A place behind the gate, given back on drop.
#[derive(Debug)]
pub(super) struct Place<'a> {
    gate: &'a Gate,
}

impl Gate {
    pub(super) fn new(places: Option<usize>) -> Self {
        Self { places: places.map(|places| places.max(1)), queue: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a place; `None` if `cancel` is set before there is one.
    pub(super) fn enter(&self, cancel: &Cancel) -> Option<Place<'_>> {
        let Some(places) = self.places else { return Some(Place { gate: self }) };
        let waker = unparker();
        let registration = cancel.register(waker.clone());
        let ticket = {
            let mut queue = self.lock();
            let ticket = queue.next_ticket;
            queue.next_ticket += 1;
            queue.waiting.push_back((ticket, waker));
            ticket
        };
        loop {
            let mut queue = self.lock();
            let is_first = queue.waiting.front().is_some_and(|(first, _)| *first == ticket);
            let gives_up = cancel.is_cancelled();
            if gives_up || (is_first && queue.inside < places) {
                queue.waiting.retain(|(other, _)| *other != ticket);
                queue.inside += usize::from(!gives_up);
                // Whoever is first now may find a place too.
                let next = queue.waiting.front().map(|(_, waker)| waker.clone());
                drop(queue);
                if let Some(next) = next {
                    next.wake();
                }
                drop(registration);
                // Lazily: a place that was never taken must not be given back.
                return (!gives_up).then(|| Place { gate: self });
            }
            drop(queue);
            cancel.park_until(None);
        }
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.gate.places.is_none() {
            return;
        }
        let mut queue = self.gate.lock();
        queue.inside = queue.inside.saturating_sub(1);
        let next = queue.waiting.front().map(|(_, waker)| waker.clone());
        drop(queue);
        if let Some(next) = next {
            next.wake();
        }
    }
}

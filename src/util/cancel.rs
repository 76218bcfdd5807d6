//! A token by which one thread tells another to give up, at once, whatever it waits for.
//!
//! Any thread sets it, usually the sync loop's side of a pod worker; the worker's thread waits on it.
//! Owns one flag and the wakers of those who wait now. Never blocks the thread that sets it beyond
//! waking the others, and never un-sets: a new operation takes a new token.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// A cancellation token. Clones share the state. The default is [`Cancel::new`].
#[derive(Clone, Debug)]
pub struct Cancel {
    /// `None` can never be cancelled.
    shared: Option<Arc<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    cancelled: AtomicBool,
    waiting: Mutex<Waiting>,
    condvar: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    next_key: u64,
    wakers: Vec<(u64, Waker)>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Cancel {
    fn default() -> Self {
        Self::new()
    }
}

impl Cancel {
    /// A token that is not set yet.
    pub fn new() -> Self {
        Self { shared: Some(Arc::default()) }
    }

    /// A token that nobody can set: for calls whose deadline is bound enough.
    pub const fn never() -> Self {
        Self { shared: None }
    }

    /// Sets the token and wakes everyone who waits on it. Later calls change nothing; on a
    /// [`Cancel::never`] it does nothing at all.
    pub fn cancel(&self) {
        let Some(shared) = &self.shared else { return };
        let mut waiting = shared.lock();
        shared.cancelled.store(true, Ordering::Release);
        let wakers = std::mem::take(&mut waiting.wakers);
        drop(waiting);
        shared.condvar.notify_all();
        for (_, waker) in wakers {
            waker.wake();
        }
    }

    /// Whether the token is set.
    pub fn is_cancelled(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.cancelled.load(Ordering::Acquire))
    }

    /// Sleeps until the token is set (true) or `timeout` has passed (false).
    pub fn wait(&self, timeout: Duration) -> bool {
        let Some(shared) = &self.shared else {
            std::thread::sleep(timeout);
            return false;
        };
        let guard = shared.lock();
        let outcome = shared.condvar.wait_timeout_while(guard, timeout, |_| !shared.cancelled.load(Ordering::Acquire));
        drop(outcome.unwrap_or_else(PoisonError::into_inner));
        self.is_cancelled()
    }

    /// Wakes `waker` once when the token gets set, or now if it is. Ends when the result is dropped.
    /// A thread that waits for something else as well hands in [`unparker`] and parks.
    #[must_use = "the registration ends when it is dropped"]
    pub fn register(&self, waker: Waker) -> Registration<'_> {
        let Some(shared) = &self.shared else { return Registration { shared: None, key: 0 } };
        let mut waiting = shared.lock();
        if shared.cancelled.load(Ordering::Acquire) {
            drop(waiting);
            waker.wake();
            return Registration { shared: None, key: 0 };
        }
        let key = waiting.next_key;
        waiting.next_key += 1;
        waiting.wakers.push((key, waker));
        Registration { shared: Some(shared), key }
    }

    /// Parks the calling thread until it is unparked, the token is set or `until` comes. Returns on
    /// spurious wake-ups too: call it in a loop, with the own waker made by [`unparker`].
    pub fn park_until(&self, until: Option<Instant>) {
        if self.is_cancelled() {
            return;
        }
        match until {
            None => std::thread::park(),
            Some(until) => std::thread::park_timeout(until.saturating_duration_since(Instant::now())),
        }
    }
}

/// Keeps a waker on a token's list; dropping it takes the waker off.
#[derive(Debug)]
pub struct Registration<'a> {
    shared: Option<&'a Arc<Shared>>,
    key: u64,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared {
            shared.lock().wakers.retain(|(key, _)| *key != self.key);
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// A waker that unparks the calling thread.
pub fn unparker() -> Waker {
    Arc::new(Unpark(std::thread::current())).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Runs `blocked` on a thread of its own, cancels once it says that it waits, and expects its answer.
    fn check(blocked: fn(&Cancel, &dyn Fn()) -> bool, expect: bool) {
        let cancel = Cancel::new();
        let (says, hears) = crossbeam_channel::bounded(1);
        let theirs = cancel.clone();
        let started = Instant::now();
        let thread = std::thread::spawn(move || blocked(&theirs, &|| says.send(()).expect("heard")));
        hears.recv().expect("it waits");
        cancel.cancel();
        assert_eq!(thread.join().expect("no panic"), expect);
        assert!(started.elapsed() < LONG, "it was woken, not timed out");
    }

    #[test]
    fn cancel_ends_a_wait() {
        check(
            |cancel, waits| {
                waits();
                cancel.wait(LONG)
            },
            true,
        );
    }

    #[test]
    fn cancel_unparks_a_registered_thread() {
        check(
            |cancel, waits| {
                let _registration = cancel.register(unparker());
                waits();
                while !cancel.is_cancelled() {
                    cancel.park_until(Some(Instant::now() + LONG));
                }
                true
            },
            true,
        );
    }

    #[test]
    fn registering_late_wakes_at_once() {
        let cancel = Cancel::new();
        cancel.cancel();
        let _registration = cancel.register(unparker());
        std::thread::park();
        assert!(cancel.is_cancelled());
        assert!(cancel.wait(LONG));
    }

    #[test]
    fn a_wait_ends_by_its_timeout() {
        assert!(!Cancel::new().wait(Duration::from_millis(1)));
        assert!(!Cancel::never().wait(Duration::from_millis(1)));
    }

    #[test]
    fn never_cannot_be_cancelled() {
        let never = Cancel::never();
        never.cancel();
        assert!(!never.is_cancelled());
    }

    #[test]
    fn a_dropped_registration_leaves_nothing_behind() {
        let cancel = Cancel::new();
        for _ in 0..3 {
            drop(cancel.register(unparker()));
        }
        let kept = cancel.register(unparker());
        assert_eq!(cancel.shared.as_ref().expect("a token").lock().wakers.len(), 1);
        drop(kept);
        assert!(cancel.shared.as_ref().expect("a token").lock().wakers.is_empty());
    }
}

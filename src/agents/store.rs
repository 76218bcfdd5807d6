//! The `store` thread: writes and removes pod records behind everybody's back.
//!
//! Owns the [`Store`]. Callers hand over records and never wait for the disk: per pod the newest wins,
//! so what is pending is bounded by the number of pods, however slow or full the disk is. While the
//! disk refuses, the newest records stay in memory and are tried again, with one log line when that
//! begins and one when it ends. It decides nothing and reads nothing after the start.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::api::PodUid;
use crate::api::moment::Moment;
use crate::api::record::PodRecord;
use crate::store::{Store, StoreError};
use crate::util::backoff::{Backoff, BackoffPolicy};
use crate::util::clock;
use crate::util::thread::{OwnerThread, StackSize};

/// How soon a refusing disk is tried again.
const RETRY: BackoffPolicy = BackoffPolicy { initial: Duration::from_secs(1), max: Duration::from_secs(60) };

/// What shall become of a pod's record.
#[derive(Debug)]
enum Pending {
    Put(Arc<PodRecord>),
    Remove,
}

/// What callers left for the thread.
#[derive(Debug, Default)]
struct Inbox {
    pending: BTreeMap<PodUid, Pending>,
    flushes: Vec<Sender<Flushed>>,
    stopping: bool,
    /// Why the disk refuses; for health and `ferrolet why`.
    trouble: Option<String>,
}

#[derive(Debug, Default)]
struct Shared {
    /// A lock and not a channel, because a bounded channel cannot let the newest record replace an
    /// older one. Held for map operations only, never over I/O.
    inbox: Mutex<Inbox>,
    arrived: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer to [`StoreHandle::flush`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// Everything handed over before is safe against a power cut.
    Safe,
    /// The disk refuses; the records stay in memory.
    Refused,
}

/// Hands records to the thread. Dropping it writes what is pending, once, and ends the thread.
#[derive(Debug)]
pub struct StoreHandle {
    shared: Arc<Shared>,
    /// Joined after [`Drop::drop`] told the thread to stop.
    _thread: OwnerThread,
}

impl StoreHandle {
    /// Starts the thread.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn start(store: Store) -> io::Result<Self> {
        Self::start_with(store, RETRY)
    }

    fn start_with(store: Store, retry: BackoffPolicy) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let actor = StoreActor { store, shared: Arc::clone(&shared), retry, failing: None };
        let thread = OwnerThread::spawn("store", StackSize::Normal, move || actor.run())?;
        Ok(Self { shared, _thread: thread })
    }

    /// Keeps a record, in place of whatever was kept or pending for its pod. Never waits for the disk.
    pub fn put(&self, record: Arc<PodRecord>) {
        self.shared.lock().pending.insert(record.uid.clone(), Pending::Put(record));
        self.shared.arrived.notify_one();
    }

    /// Forgets a pod's record. Never waits for the disk.
    pub fn remove(&self, uid: PodUid) {
        self.shared.lock().pending.insert(uid, Pending::Remove);
        self.shared.arrived.notify_one();
    }

    /// Asks for everything handed over so far to be made safe now; the answer comes on the channel.
    pub fn flush(&self) -> Receiver<Flushed> {
        let (done, answer) = bounded(1);
        self.shared.lock().flushes.push(done);
        self.shared.arrived.notify_one();
        answer
    }

    /// Why the disk refuses records at present, if it does.
    pub fn trouble(&self) -> Option<String> {
        self.shared.lock().trouble.clone()
    }

    /// How many pods have a record that is not on disk yet.
    pub fn pending(&self) -> usize {
        self.shared.lock().pending.len()
    }
}

impl Drop for StoreHandle {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.arrived.notify_one();
    }
}

/// What woke the thread.
struct Batch {
    pending: BTreeMap<PodUid, Pending>,
    flushes: Vec<Sender<Flushed>>,
    stopping: bool,
}

struct StoreActor {
    store: Store,
    shared: Arc<Shared>,
    retry: BackoffPolicy,
    failing: Option<Backoff>,
}

impl StoreActor {
    fn run(mut self) {
        loop {
            let batch = self.next_batch();
            let left = self.write(batch.pending);
            for flush in batch.flushes {
                // Nobody may be waiting any more.
                let _ = flush.send(if self.failing.is_some() { Flushed::Refused } else { Flushed::Safe });
            }
            if batch.stopping {
                if left > 0 {
                    log::error!("{left} pod records could not be written before the end");
                }
                return;
            }
        }
    }

    /// Sleeps until there is something to do: new records while the disk takes them, the time of the
    /// next try while it does not, a flush or the end in any case.
    fn next_batch(&self) -> Batch {
        let mut inbox = self.shared.lock();
        loop {
            let due = self.failing.map(|failing| failing.until().since(clock::moment()));
            let ready = match due {
                None => !inbox.pending.is_empty(),
                Some(rest) => rest.is_zero(),
            };
            if ready || inbox.stopping || !inbox.flushes.is_empty() {
                return Batch {
                    pending: std::mem::take(&mut inbox.pending),
                    flushes: std::mem::take(&mut inbox.flushes),
                    stopping: inbox.stopping,
                };
            }
            inbox = match due {
                None => self.shared.arrived.wait(inbox).unwrap_or_else(PoisonError::into_inner),
                Some(rest) => self.shared.arrived.wait_timeout(inbox, rest).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }

    /// Carries out a batch; what the disk refused goes back to the inbox unless something newer is
    /// there. Returns how many are left.
    fn write(&mut self, batch: BTreeMap<PodUid, Pending>) -> usize {
        let mut refused = Vec::new();
        let mut trouble = None;
        for (uid, pending) in batch {
            let outcome = match &pending {
                Pending::Put(record) => self.store.put(record).map(drop),
                Pending::Remove => self.store.remove(&uid).map(drop),
            };
            match outcome {
                Ok(()) => {}
                Err(err) if err.may_pass() => {
                    refused.push((uid, pending));
                    trouble.get_or_insert(err);
                }
                Err(err) => log::error!("{err}"),
            }
        }
        if let Err(err) = self.store.sync() {
            trouble.get_or_insert(err);
        }
        let left = refused.len();
        let shared = Arc::clone(&self.shared);
        let mut inbox = shared.lock();
        for (uid, pending) in refused {
            inbox.pending.entry(uid).or_insert(pending);
        }
        self.note(trouble, clock::moment(), &mut inbox);
        left
    }

    fn note(&mut self, trouble: Option<StoreError>, now: Moment, inbox: &mut Inbox) {
        let Some(err) = trouble else {
            if self.failing.take().is_some() {
                log::info!("pod records are written again");
                inbox.trouble = None;
            }
            return;
        };
        let text = full_text(&err);
        if self.failing.is_none() {
            log::error!("{text}; the newest records stay in memory and are tried again: free or repair the disk");
        }
        self.failing = Some(Backoff::after_failure(self.failing, &self.retry, now));
        inbox.trouble = Some(text);
    }
}

/// An error with its causes.
fn full_text(err: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(err.source(), |cause| cause.source());
    causes.fold(err.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::record::RECORD_VERSION;
    use crate::api::v1::Pod;
    use std::path::Path;

    const LONG: Duration = Duration::from_secs(60);
    /// Short enough not to be waited for, long enough not to spin.
    const SOON: BackoffPolicy = BackoffPolicy { initial: Duration::from_millis(2), max: Duration::from_millis(2) };
    /// Never within a test.
    const LATE: BackoffPolicy = BackoffPolicy { initial: LONG, max: LONG };

    fn record(uid: &str, attempt: u32) -> Arc<PodRecord> {
        Arc::new(PodRecord {
            version: RECORD_VERSION,
            uid: uid.into(),
            boot_id: "b".into(),
            pod: Arc::new(Pod::default()),
            start_time: 0,
            started_ms: Some(0),
            before_boot_ms: 0,
            next_sandbox_attempt: attempt,
            containers: BTreeMap::new(),
            ending: None,
        })
    }

    fn start(dir: &Path, retry: BackoffPolicy) -> StoreHandle {
        StoreHandle::start_with(Store::open(dir).0, retry).expect("started")
    }

    /// What a restart would find: `uid=attempt`.
    fn on_disk(dir: &Path) -> Vec<String> {
        let loaded = Store::open(dir).1;
        loaded.records.iter().map(|record| format!("{}={}", record.uid, record.next_sandbox_attempt)).collect()
    }

    fn flushed(handle: &StoreHandle) -> Flushed {
        handle.flush().recv_timeout(LONG).expect("an answer")
    }

    #[test]
    fn a_flush_answers_when_everything_before_it_is_safe() {
        let dir = tempfile::tempdir().expect("a folder");
        let store = start(dir.path(), LATE);
        for attempt in 0..20 {
            store.put(record("a", attempt));
            store.put(record("b", attempt));
        }
        store.remove("b".into());
        assert_eq!(flushed(&store), Flushed::Safe);
        assert_eq!(on_disk(dir.path()), ["a=19"]);
        assert_eq!((store.pending(), store.trouble()), (0, None));
    }

    #[test]
    fn the_end_writes_what_is_pending() {
        let dir = tempfile::tempdir().expect("a folder");
        let store = start(dir.path(), LATE);
        store.put(record("a", 7));
        drop(store);
        assert_eq!(on_disk(dir.path()), ["a=7"]);
    }

    /// A file where the folder belongs stands for a disk that takes nothing.
    #[test]
    fn a_refusing_disk_loses_no_record_and_recovers() {
        let dir = tempfile::tempdir().expect("a folder");
        let records = dir.path().join("ferrolet");
        std::fs::write(&records, "").expect("in the way");
        let store = start(&records, SOON);
        store.put(record("a", 1));
        assert_eq!(flushed(&store), Flushed::Refused);
        store.put(record("a", 2));
        store.put(record("b", 1));
        store.remove("b".into());
        store.put(record("c", 3));
        assert_eq!(flushed(&store), Flushed::Refused);
        let trouble = store.trouble().expect("it is told");
        assert!(trouble.contains("pod a") && trouble.contains("ferrolet"), "{trouble}");
        assert!(store.pending() <= 2, "a removal of what is not on disk needs no disk");

        std::fs::remove_file(&records).expect("repaired");
        // No new record is needed for the next try.
        let started = std::time::Instant::now();
        while store.trouble().is_some() && started.elapsed() < LONG {
            let _ = flushed(&store);
        }
        assert_eq!(on_disk(&records), ["a=2", "c=3"]);
        assert_eq!((store.pending(), store.trouble()), (0, None));
    }

    #[test]
    fn a_retry_needs_no_new_record() {
        let dir = tempfile::tempdir().expect("a folder");
        let records = dir.path().join("ferrolet");
        std::fs::write(&records, "").expect("in the way");
        let store = start(&records, SOON);
        store.put(record("a", 1));
        let started = std::time::Instant::now();
        while store.trouble().is_none() && started.elapsed() < LONG {
            std::thread::yield_now();
        }
        std::fs::remove_file(&records).expect("repaired");
        while store.pending() > 0 && started.elapsed() < LONG {
            std::thread::yield_now();
        }
        drop(store);
        assert_eq!(on_disk(&records), ["a=1"]);
    }

    #[test]
    fn records_that_come_while_the_disk_refuses_wait_for_the_next_try() {
        let dir = tempfile::tempdir().expect("a folder");
        let records = dir.path().join("ferrolet");
        std::fs::write(&records, "").expect("in the way");
        let store = start(&records, LATE);
        store.put(record("a", 1));
        assert_eq!(flushed(&store), Flushed::Refused);
        std::fs::remove_file(&records).expect("repaired");
        for attempt in 2..50 {
            store.put(record("a", attempt));
        }
        assert!(!records.exists(), "the disk is left alone until the next try");
        assert_eq!(flushed(&store), Flushed::Safe);
        assert_eq!(on_disk(&records), ["a=49"]);
    }
}

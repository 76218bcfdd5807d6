//! Lets file work that may hang for ever (a path on a dead NFS server) cost its own pod some minutes, and
//! the worker not at all. On a `pod-N` thread, with a thread `may-hang` for the work.
//!
//! Owns the list of what hangs: while something of a pod does, nothing more is tried for it, so that a
//! pod has one such thread at most. A thread that hangs in the kernel cannot be ended; it ends by itself
//! when the kernel lets it, and the pod goes on with its next try.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, bounded};

use crate::api::PodUid;
use crate::util::cancel::Cancel;
use crate::util::thread::{StackSize, spawn};

/// How long file work of a pod may take: what upstream waits for a pod's volumes.
pub(super) const LIMIT: Duration = Duration::from_secs(123);

/// How often it is seen whether the pod's work was overtaken meanwhile.
const LOOK: Duration = Duration::from_millis(500);

/// What hangs.
#[derive(Clone, Debug, Default)]
pub struct Patience {
    hanging: List,
}

/// What of a pod is under way, with a number that tells one try from the next.
type List = Arc<Mutex<BTreeMap<PodUid, (u64, String)>>>;

/// Numbers for tries.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl Patience {
    /// Runs `job`, at most for `limit` or until `cancel` is set.
    ///
    /// # Errors
    /// It did not end in time, or something of this pod hangs since an earlier try.
    pub(super) fn within<T: Send + 'static>(
        &self,
        uid: &PodUid,
        what: &str,
        limit: Duration,
        cancel: &Cancel,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        let lock = || self.hanging.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, earlier)) = lock().get(uid) {
            return Err(format!(
                "{earlier} still hangs since an earlier try; see whether a network file system is away"
            ));
        }
        let (done, result) = bounded(1);
        let try_number = NEXT.fetch_add(1, Ordering::Relaxed);
        let listed = Listed { list: Arc::clone(&self.hanging), uid: uid.clone(), try_number };
        lock().insert(uid.clone(), (try_number, what.to_owned()));
        let work = move || {
            let _listed = listed;
            // Nobody may be waiting any more.
            let _late = done.send(job());
        };
        match spawn("may-hang", StackSize::Small, work) {
            Ok(thread) => thread.abandon(),
            Err(error) => {
                lock().remove(uid);
                return Err(format!("no thread for {what}: {error}"));
            }
        }
        let mut left = limit;
        loop {
            match result.recv_timeout(LOOK.min(left)) {
                Ok(result) => {
                    // Off the list before the caller's next step, and not a moment after it.
                    lock().remove(uid);
                    return Ok(result);
                }
                Err(RecvTimeoutError::Disconnected) => return Err(format!("{what} ended in a panic")),
                Err(RecvTimeoutError::Timeout) => left = left.saturating_sub(LOOK),
            }
            if cancel.is_cancelled() {
                return Err(format!("{what} takes long, and the pod changed meanwhile"));
            }
            if left.is_zero() {
                return Err(format!("{what} does not end within {limit:?}; the pod waits for it, others do not"));
            }
        }
    }
}

/// Takes a pod off the list when its work ends, well or badly.
struct Listed {
    list: List,
    uid: PodUid,
    try_number: u64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        // The next try may be listed already.
        if list.get(&self.uid).is_some_and(|(number, _)| *number == self.try_number) {
            list.remove(&self.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_holds_its_own_pod_until_it_ends() {
        let patience = Patience::default();
        let (never, cancelled) = (Cancel::never(), Cancel::new());
        let long = Duration::from_secs(60);
        let (a, b) = (PodUid::from("a"), PodUid::from("b"));
        let (let_go, hangs) = bounded::<()>(0);
        let stuck = hangs.clone();
        let short = Duration::from_millis(1);
        let first = patience.within(&a, "looking at /nfs", short, &never, move || stuck.recv());
        assert!(first.is_err_and(|why| why.starts_with("looking at /nfs does not end within 1ms")));
        let second = patience.within(&a, "unmounting", long, &never, || ());
        assert!(second.is_err_and(|why| why.starts_with("looking at /nfs still hangs")));
        assert_eq!(patience.within(&b, "mounting", long, &never, || 7), Ok(7));
        assert_eq!(patience.within(&b, "mounting", long, &never, || 8), Ok(8));
        cancelled.cancel();
        let third = patience.within(&b, "mounting", long, &cancelled, move || hangs.recv());
        assert!(third.is_err_and(|why| why.contains("the pod changed")));
        // Both threads are let go, and the pods go on.
        drop(let_go);
        while patience.within(&a, "again", long, &never, || ()).is_err() {
            std::thread::yield_now();
        }
    }
}

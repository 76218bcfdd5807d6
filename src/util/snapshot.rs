//! One owner publishes, anybody reads the newest: how snapshots leave the thread that owns the state.
//!
//! Used by the sync loop (writes) and servers (read). The lock is held for one pointer copy, never
//! while anything is computed, printed or sent, so that a slow reader delays nobody.

use std::sync::{Arc, PoisonError, RwLock};

/// The newest value of something.
#[derive(Debug, Default)]
pub struct Snapshot<T> {
    newest: RwLock<Arc<T>>,
}

impl<T> Snapshot<T> {
    /// Starts with `value`.
    pub fn new(value: T) -> Self {
        Self { newest: RwLock::new(Arc::new(value)) }
    }

    /// The newest value.
    pub fn get(&self) -> Arc<T> {
        Arc::clone(&self.newest.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Publishes a value.
    pub fn set(&self, value: Arc<T>) {
        *self.newest.write().unwrap_or_else(PoisonError::into_inner) = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_keeps_what_it_got() {
        let snapshot = Snapshot::new(1);
        let old = snapshot.get();
        snapshot.set(Arc::new(2));
        assert_eq!((*old, *snapshot.get()), (1, 2));
    }
}

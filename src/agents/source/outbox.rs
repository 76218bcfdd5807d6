//! What a source said last, so that it speaks only when there is something new.
//!
//! Owned by the threads `src-api`, `src-file` and `src-http`, one each. Never sends the same set twice in a row,
//! and logs every problem once.

use std::sync::Arc;

use crate::api::v1::Pod;
use crate::msg::{SourceKind, SourceProblem, SourceUpdate};

/// The way from a source to the sync loop.
#[derive(Debug)]
pub struct Outbox<S> {
    source: SourceKind,
    send: S,
    sent: Option<(Vec<Arc<Pod>>, Vec<SourceProblem>)>,
}

impl<S: Fn(SourceUpdate)> Outbox<S> {
    /// Nothing is sent yet. `send` may block, which holds up this source only.
    pub fn new(source: SourceKind, send: S) -> Self {
        Self { source, send, sent: None }
    }

    /// Whether anything was sent.
    pub fn has_spoken(&self) -> bool {
        self.sent.is_some()
    }

    /// Sends the full set, unless it is the one sent last. Pods are compared as objects: an equal pod
    /// must be the same `Arc`.
    pub fn report(&mut self, pods: Vec<Arc<Pod>>, problems: Vec<SourceProblem>) {
        let before = self.sent.as_ref().map(|(_, problems)| problems.as_slice()).unwrap_or_default();
        let what = if self.source == SourceKind::Api { "API server" } else { "manifest" };
        for problem in problems.iter().filter(|problem| !before.contains(problem)) {
            log::warn!("{what} {}: {}", problem.origin, problem.message);
        }
        let is_same = self.sent.as_ref().is_some_and(|(old_pods, old_problems)| {
            *old_problems == problems
                && old_pods.len() == pods.len()
                && old_pods.iter().zip(&pods).all(|(old, new)| Arc::ptr_eq(old, new))
        });
        if !is_same {
            self.sent = Some((pods.clone(), problems.clone()));
            (self.send)(SourceUpdate { source: self.source, pods, problems });
        }
    }
}

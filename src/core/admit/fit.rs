//! Whether the node has room for a pod.
//!
//! Layer L1, pure, called on the sync thread.

use super::{AdmissionView, Check, Verdict};
use crate::api::v1::Pod;

/// `maxPods`.
#[derive(Debug)]
pub(super) struct PodCount;

impl Check for PodCount {
    fn name(&self) -> &'static str {
        "number of pods"
    }

    fn admit(&self, _pod: &Pod, view: &AdmissionView<'_>) -> Verdict {
        let (used, capacity) = (view.others.len(), view.limits.max_pods);
        if capacity == 0 || used < capacity {
            return Verdict::Admit;
        }
        let text = format!("Node didn't have enough resource: pods, requested: 1, used: {used}, capacity: {capacity}");
        Verdict::refuse("OutOfpods", text)
    }
}

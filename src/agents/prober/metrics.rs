//! Counts attempts of probes, on the thread `probe`. A pod that is gone takes its figures with it.

use super::pool::Done;
use crate::api::probe::ProbeOutcome;
use crate::core::probe::Book;
use crate::util::metrics::kubelet::probes::{PROBE_DURATION, PROBES};
use crate::util::order::Gather;

/// Counts an attempt.
pub(super) fn count(book: &Book, done: &Done) {
    let Some((pod, uid, container, kind)) = book.whose(&done.job) else { return };
    let kind = kind.as_str();
    let result = match done.outcome {
        ProbeOutcome::Success | ProbeOutcome::Warning(_) => {
            PROBE_DURATION.observe(&[container, &pod.namespace, &pod.name, kind], done.took);
            "successful"
        }
        ProbeOutcome::Failure(_) => "failed",
        ProbeOutcome::Errored { .. } => "unknown",
        // There was nothing to probe.
        ProbeOutcome::Gone => return,
    };
    PROBES.inc(&[container, &pod.namespace, &pod.name, uid.as_str(), kind, result]);
}

/// Forgets the figures of pods that have no probes any more.
pub(super) fn forget(book: &Book) {
    PROBES.retain(&|labels| labels.get(3).is_some_and(|uid| book.has_pod(uid)));
    let names: std::collections::BTreeSet<(&str, &str)> =
        book.pods().map(|name| (name.namespace.as_str(), name.name.as_str())).gather();
    PROBE_DURATION.retain(&|labels| labels.len() > 2 && names.contains(&(&*labels[1], &*labels[2])));
}

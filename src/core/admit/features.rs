//! Checks of pods that need what this node was told not to do.
//!
//! Layer L1, pure, called on the sync thread.

use super::{AdmissionView, Check, Verdict};
use crate::api::v1::Pod;
use crate::core::qos::has_pod_level_resources;

/// Pod-level resources, with their gate turned off.
#[derive(Debug)]
pub(super) struct PodLevelResources;

impl Check for PodLevelResources {
    fn name(&self) -> &'static str {
        "pod-level resources"
    }

    fn admit(&self, pod: &Pod, view: &AdmissionView<'_>) -> Verdict {
        if view.limits.no_pod_level_resources && has_pod_level_resources(pod) {
            return Verdict::refuse("PodLevelResourcesNotSupported", "PodLevelResources feature gate is disabled");
        }
        Verdict::Admit
    }
}

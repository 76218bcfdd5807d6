//! Checks of a pod's security settings: sysctls, `supplementalGroupsPolicy`, AppArmor.
//!
//! Layer L1, pure, called on the sync thread. The rules themselves are in `core/spec/admission.rs`, beside the
//! code that hands these settings to the runtime; here they only take their places among the checks.

use super::{AdmissionView, Check, Verdict};
use crate::api::v1::Pod;
use crate::core::spec::admission::{Refusal, apparmor_refusal, supplemental_groups_refusal};

/// Sysctls that are not allowed, or that would change the node instead of the pod.
#[derive(Debug)]
pub(super) struct Sysctls;

impl Check for Sysctls {
    fn name(&self) -> &'static str {
        "sysctls"
    }

    fn admit(&self, pod: &Pod, view: &AdmissionView<'_>) -> Verdict {
        verdict(view.limits.sysctls.refusal(pod))
    }
}

/// `supplementalGroupsPolicy: Strict` on a runtime that cannot do it.
#[derive(Debug)]
pub(super) struct SupplementalGroups;

impl Check for SupplementalGroups {
    fn name(&self) -> &'static str {
        "supplemental groups"
    }

    fn admit(&self, pod: &Pod, view: &AdmissionView<'_>) -> Verdict {
        verdict(supplemental_groups_refusal(pod, view.limits.supplemental_groups_policy))
    }
}

/// An AppArmor profile on a kernel that enforces none.
#[derive(Debug)]
pub(super) struct AppArmor;

impl Check for AppArmor {
    fn name(&self) -> &'static str {
        "AppArmor"
    }

    fn admit(&self, pod: &Pod, view: &AdmissionView<'_>) -> Verdict {
        verdict(apparmor_refusal(pod, view.limits.apparmor))
    }
}

fn verdict(refusal: Option<Refusal>) -> Verdict {
    refusal.map_or(Verdict::Admit, |r| Verdict::refuse(r.reason, r.message))
}

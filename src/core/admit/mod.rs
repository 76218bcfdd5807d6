//! Admission: whether a pod may start on this node at all.
//!
//! Layer L1, pure, called on the sync thread. Each kind of check is a [`Check`] in a file of its own; they are
//! asked in the upstream kubelet's order, and the first refusal is the pod's end: it becomes Failed with that
//! reason, in upstream's words. What a check needs to know of the node comes in as an [`AdmissionView`]; it looks
//! at nothing else and remembers nothing, so that the same pod beside the same others has the same answer.

mod features;
mod fit;
mod placement;
mod ports;
mod preempt;
mod pressure;
mod security;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::api::PodUid;
use crate::api::pressure::Pressures;
use crate::api::v1::{Pod, Taint};
use crate::core::qos::ResourceList;
use crate::core::spec::admission::SysctlAllowlist;
use crate::msg::Reason;

pub use fit::{Claim, shortage};

/// What of the node pods are checked against.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Name of the node.
    pub node_name: String,
    /// Labels of the node.
    pub labels: BTreeMap<String, String>,
    /// Taints of the node.
    pub taints: Vec<Taint>,
    /// Whether `labels` and `taints` are those of the Node object as it is now. While they are only what the node was
    /// started with, no pod of the API server is refused for them: its scheduler has looked at the real ones.
    pub node_is_known: bool,
    /// What the node is short of.
    pub pressures: Pressures,
    /// What pods may request together; what is not named is not there.
    pub allocatable: ResourceList,
    /// Sysctls that pods may set: the safe ones of this kernel and `allowedUnsafeSysctls`.
    pub sysctls: SysctlAllowlist,
    /// Whether the kernel enforces AppArmor profiles.
    pub apparmor: bool,
    /// Whether the runtime keeps to `supplementalGroupsPolicy`.
    pub supplemental_groups_policy: bool,
    /// Whether the gate `PodLevelResources` was turned off.
    pub no_pod_level_resources: bool,
}

/// The node at the moment of the question.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionView<'a> {
    /// What does not depend on the other pods.
    pub limits: &'a Limits,
    /// Pods that were admitted and are not done.
    pub others: &'a [Other<'a>],
}

/// A pod beside the one that is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Other<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// What it requests.
    pub claim: &'a Claim,
}

/// What a check says of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing speaks against it.
    Admit,
    /// It shall not start, for this reason.
    Refuse(Reason),
    /// It is critical, and there is room for it once others have ended.
    Preempt {
        /// The first resource that is short.
        short: String,
        /// The pods that have to end.
        victims: Vec<PodUid>,
    },
}

impl Verdict {
    /// A refusal in the words of the pod's status.
    pub fn refuse(reason: &str, message: impl Into<String>) -> Self {
        Self::Refuse(Reason { reason: reason.to_owned(), message: message.into() })
    }

    /// A refusal by one of the rules that the scheduler has too, which go by their names there.
    fn failed_predicate(name: &str, why: &str) -> Self {
        Self::refuse(name, format!("Predicate {name} failed: {why}"))
    }
}

/// One kind of check.
pub trait Check: Sync {
    /// Its name, for people.
    fn name(&self) -> &'static str;

    /// What it says of `pod`.
    fn admit(&self, pod: &Pod, view: &AdmissionView<'_>) -> Verdict;
}

/// All checks of this node, in the order of the upstream kubelet. A lack of resources comes first for most pods; for
/// a critical one all other reasons count more.
pub const CHECKS: &[&dyn Check] = &[
    &pressure::Pressure,
    &security::Sysctls,
    &placement::OperatingSystem,
    &security::SupplementalGroups,
    &fit::Fit,
    &placement::NodeAffinity,
    &placement::NodeName,
    &ports::HostPorts,
    &placement::Taints,
    &preempt::CriticalFit,
    &security::AppArmor,
    &features::PodLevelResources,
];

/// Whether `pod` may start: the first refusal of `checks`. Others make room for it only if nothing refuses it, not
/// even a check that upstream asks too late to spare them.
pub fn admit(checks: &[&dyn Check], pod: &Pod, view: &AdmissionView<'_>) -> Verdict {
    let mut verdict = Verdict::Admit;
    for check in checks {
        match check.admit(pod, view) {
            Verdict::Admit => {}
            refusal @ Verdict::Refuse(_) => return refusal,
            room @ Verdict::Preempt { .. } => verdict = room,
        }
    }
    verdict
}

//! Whether the node has room for a pod: number of pods, CPU, memory, storage, huge pages, extended resources.
//!
//! Layer L1, pure, called on the sync thread. What other pods request counts, not what they use. A critical pod
//! is not refused here: [`super::preempt`] makes room for it. CPU counts in
//! thousandths, all else in whole units, rounded up pod by pod.

use super::{AdmissionView, Check, Verdict};
use crate::api::pod;
use crate::api::quantity::Amount;
use crate::api::v1::Pod;
use crate::core::capacity::PODS;
use crate::core::qos::{CPU, EPHEMERAL_STORAGE, HUGEPAGES_PREFIX, MEMORY, Overhead, ResourceList, pod_requests};

/// Room for what the pod requests.
#[derive(Debug)]
pub(super) struct Fit;

impl Check for Fit {
    fn name(&self) -> &'static str {
        "resources"
    }

    fn admit(&self, pod: &Pod, view: &AdmissionView<'_>) -> Verdict {
        if pod::is_critical(pod) {
            return Verdict::Admit;
        }
        match shortages(pod, view).first() {
            Some(short) => Verdict::refuse(&format!("OutOf{}", short.resource), short.message()),
            None => Verdict::Admit,
        }
    }
}

/// What the node has not enough of for a pod, in a sentence; `None` where it has all.
pub fn shortage(pod: &Pod, view: &AdmissionView<'_>) -> Option<String> {
    shortages(pod, view).first().map(Shortage::message)
}

/// Something that the node has not enough of; CPU in thousandths, all else in whole units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shortage {
    pub(super) resource: String,
    requested: i64,
    used: i64,
    capacity: i64,
}

impl Shortage {
    /// How much has to become free.
    pub(super) fn missing(&self) -> i64 {
        self.requested.saturating_sub(self.capacity.saturating_sub(self.used))
    }

    fn message(&self) -> String {
        let Self { resource, requested, used, capacity } = self;
        format!(
            "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
        )
    }
}

/// All that the node has not enough of for `pod`, in the order in which upstream looks.
pub(super) fn shortages(pod: &Pod, view: &AdmissionView<'_>) -> Vec<Shortage> {
    let allocatable = &view.limits.allocatable;
    let requests = counted_requests(pod, allocatable);
    let mut short = Vec::new();
    let mut look = |resource: &str, requested: i64, used: i64| {
        let capacity = amount_of(allocatable, resource);
        if requested > 0 && requested > capacity.saturating_sub(used) {
            short.push(Shortage { resource: resource.to_owned(), requested, used, capacity });
        }
    };
    look(PODS, 1, i64::try_from(view.others.len()).unwrap_or(i64::MAX));
    if requests.values().all(Amount::is_zero) {
        return short;
    }
    let first = [CPU, MEMORY, EPHEMERAL_STORAGE];
    let others = requests.keys().map(String::as_str).filter(|name| !first.contains(name));
    for name in first.into_iter().chain(others) {
        let used = view.others.iter().fold(0_i64, |sum, other| sum.saturating_add(other.claim.amount(name)));
        look(name, amount_of(&requests, name), used);
    }
    short
}

/// What of the pod's requests the node has to have. An extended resource that this node does not have at all is
/// not its business: the scheduler knows of resources that belong to the cluster.
fn counted_requests(pod: &Pod, allocatable: &ResourceList) -> ResourceList {
    let mut requests = pod_requests(pod, Overhead::Included);
    requests.retain(|name, _| match name.as_str() {
        CPU | MEMORY | EPHEMERAL_STORAGE => true,
        name if name.starts_with(HUGEPAGES_PREFIX) || name.starts_with("attachable-volumes-") => true,
        name if name.contains("kubernetes.io/") => true,
        name => name.contains('/') && allocatable.contains_key(name),
    });
    requests
}

/// What a pod requests, overhead included, as others are compared with it. It is taken from the pod once: each pod that
/// comes is held against those of all the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim(Box<[(Box<str>, i64)]>);

impl Claim {
    /// The claim of `pod`.
    pub fn of(pod: &Pod) -> Self {
        let requests = pod_requests(pod, Overhead::Included);
        let amounts = requests.keys().map(|name| (name.as_str().into(), amount_of(&requests, name)));
        Self(amounts.filter(|(_, amount)| *amount != 0).collect())
    }

    /// How much of a resource: thousandths of CPU, whole units of all else.
    pub(super) fn amount(&self, resource: &str) -> i64 {
        self.0.iter().find(|(name, _)| **name == *resource).map_or(0, |(_, amount)| *amount)
    }
}

/// One entry of a list in the unit that is compared: thousandths for CPU, whole units for all else.
fn amount_of(list: &ResourceList, resource: &str) -> i64 {
    let amount = list.get(resource).copied().unwrap_or_default();
    if resource == CPU { amount.milli_value() } else { amount.value() }
}

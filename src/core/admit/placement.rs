//! Whether the pod belongs on this node: operating system, node name, node selector and affinity, taints.
//!
//! Layer L1, pure, called on the sync thread. The scheduler has looked at all of this for its pods; here it matters
//! for pods that came another way, and for a node that changed since.

use std::collections::BTreeMap;

use super::{AdmissionView, Check, Verdict};
use crate::api::pod;
use crate::api::v1::{NodeSelectorRequirement, NodeSelectorTerm, Pod, Taint, Toleration};

/// Label of the operating system.
const OS_LABEL: &str = "kubernetes.io/os";
/// The operating system that ferrolet runs on.
const OS: &str = "linux";

/// The pod's label and field that name an operating system.
#[derive(Debug)]
pub(super) struct OperatingSystem;

impl Check for OperatingSystem {
    fn name(&self) -> &'static str {
        "operating system"
    }

    fn admit(&self, pod: &Pod, _view: &AdmissionView<'_>) -> Verdict {
        let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(OS_LABEL));
        if label.is_some_and(|os| os != OS) {
            return Verdict::refuse(
                "PodOSSelectorNodeLabelDoesNotMatch",
                "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
            );
        }
        if pod::spec(pod).and_then(|s| s.os.as_ref()).is_some_and(|os| os.name != OS) {
            return Verdict::refuse("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS");
        }
        Verdict::Admit
    }
}

/// `nodeSelector`, and the node affinity that is required.
#[derive(Debug)]
pub(super) struct NodeAffinity;

impl Check for NodeAffinity {
    fn name(&self) -> &'static str {
        "node affinity"
    }

    fn admit(&self, pod: &Pod, view: &AdmissionView<'_>) -> Verdict {
        let Some(spec) = pod::spec(pod) else { return Verdict::Admit };
        let labels = &view.limits.labels;
        let selected = spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
        let affinity = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
        let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
        let name = view.limits.node_name.as_str();
        let matches =
            required.is_none_or(|r| r.node_selector_terms.iter().any(|term| term_matches(term, labels, name)));
        if (selected && matches) || is_scheduled(pod, view) {
            return Verdict::Admit;
        }
        Verdict::failed_predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
    }
}

/// `nodeName`.
#[derive(Debug)]
pub(super) struct NodeName;

impl Check for NodeName {
    fn name(&self) -> &'static str {
        "node name"
    }

    fn admit(&self, pod: &Pod, view: &AdmissionView<'_>) -> Verdict {
        let wanted = pod::spec(pod).and_then(|s| s.node_name.as_deref()).filter(|name| !name.is_empty());
        if wanted.is_none_or(|name| name == view.limits.node_name) {
            return Verdict::Admit;
        }
        Verdict::failed_predicate("NodeName", "node(s) didn't match the requested node name")
    }
}

/// Taints that let nothing run that does not tolerate them. Static pods run whatever the taints.
#[derive(Debug)]
pub(super) struct Taints;

impl Check for Taints {
    fn name(&self) -> &'static str {
        "taints"
    }

    fn admit(&self, pod: &Pod, view: &AdmissionView<'_>) -> Verdict {
        if pod::is_static(pod) || is_scheduled(pod, view) {
            return Verdict::Admit;
        }
        let tolerations = pod::spec(pod).and_then(|s| s.tolerations.as_deref()).unwrap_or_default();
        // NoSchedule is the scheduler's word alone: a pod that was bound all the same may run.
        let mut taints = view.limits.taints.iter().filter(|taint| taint.effect == "NoExecute");
        if taints.all(|taint| tolerations.iter().any(|t| tolerates(t, taint))) {
            return Verdict::Admit;
        }
        Verdict::failed_predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")
    }
}

/// Whether somebody who knew the Node object better has decided that the pod belongs here.
fn is_scheduled(pod: &Pod, view: &AdmissionView<'_>) -> bool {
    !view.limits.node_is_known && pod::config_source(pod) == Some(pod::ConfigSource::Api)
}

/// Whether a toleration covers a taint. The comparisons `Lt` and `Gt` are behind a gate that is off.
pub(super) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let given = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    if given(&toleration.effect).is_some_and(|effect| effect != taint.effect)
        || given(&toleration.key).is_some_and(|key| key != taint.key)
    {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default(),
        "Exists" => true,
        _ => false,
    }
}

/// Whether the node is one that a term selects; a term that says nothing, or something wrong, selects none.
fn term_matches(term: &NodeSelectorTerm, labels: &BTreeMap<String, String>, node_name: &str) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(|r| label_matches(r, labels))
        && fields.iter().all(|r| field_matches(r, node_name))
}

fn label_matches(requirement: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let label = labels.get(&requirement.key);
    match requirement.operator.as_str() {
        "In" => label.is_some_and(|label| values.contains(label)),
        "NotIn" => !values.is_empty() && label.is_none_or(|label| !values.contains(label)),
        "Exists" => values.is_empty() && label.is_some(),
        "DoesNotExist" => values.is_empty() && label.is_none(),
        operator @ ("Gt" | "Lt") => {
            let [bound] = values else { return false };
            let number = |text: &str| text.parse::<i64>().ok();
            let (Some(label), Some(bound)) = (label.and_then(|l| number(l)), number(bound)) else { return false };
            if operator == "Gt" { label > bound } else { label < bound }
        }
        _ => false,
    }
}

/// `metadata.name` is the one field that there is.
fn field_matches(requirement: &NodeSelectorRequirement, node_name: &str) -> bool {
    let [value] = requirement.values.as_deref().unwrap_or_default() else { return false };
    let field = if requirement.key == "metadata.name" { node_name } else { "" };
    match requirement.operator.as_str() {
        "In" => field == value,
        "NotIn" => field != value,
        _ => false,
    }
}

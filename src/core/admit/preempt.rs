//! Room for critical pods: which pods have to end for one.
//!
//! Layer L1, pure, called on the sync thread. Static pods, mirror pods and those of system priority are critical:
//! no lack of resources keeps them out as long as pods that matter less can give way. Guaranteed pods are spared
//! before Burstable ones and those before BestEffort ones; of each class as few end as possible, and small ones
//! rather than large ones. That the chosen ones end, and that the critical pod waits for it, is the node's part.

use super::fit::shortages;
use super::{AdmissionView, Check, Claim, Other, Verdict};
use crate::api::pod;
use crate::api::v1::Pod;
use crate::core::capacity::PODS;
use crate::core::qos::{CPU, MEMORY, QosClass, qos_class};

/// Room for a critical pod.
#[derive(Debug)]
pub(super) struct CriticalFit;

impl Check for CriticalFit {
    fn name(&self) -> &'static str {
        "room for critical pods"
    }

    fn admit(&self, pod: &Pod, view: &AdmissionView<'_>) -> Verdict {
        if !pod::is_critical(pod) {
            return Verdict::Admit;
        }
        let short = shortages(pod, view);
        if short.is_empty() {
            return Verdict::Admit;
        }
        let needs: Vec<Need> =
            short.iter().map(|s| Need { resource: s.resource.clone(), amount: s.missing() }).collect();
        match victims(pod, view.others, &needs) {
            Ok(victims) => Verdict::Preempt {
                short: needs[0].resource.clone(),
                victims: victims.iter().map(|v| pod::pod_uid(v)).collect(),
            },
            Err(needs) => Verdict::refuse(
                "UnexpectedAdmissionError",
                format!(
                    "Unexpected error while attempting to recover from admission failure: preemption: error finding a \
                     set of pods to preempt: no set of running pods found to reclaim resources: {}",
                    told(&needs)
                ),
            ),
        }
    }
}

/// How much of something has to become free; above 0.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Need {
    resource: String,
    amount: i64,
}

fn told(needs: &[Need]) -> String {
    let each: Vec<String> = needs.iter().map(|n| format!("(res: {}, q: {}), ", n.resource, n.amount)).collect();
    format!("[{}]", each.concat())
}

/// A pod that may have to give way.
#[derive(Clone, Copy, Debug)]
struct Candidate<'a> {
    pod: &'a Pod,
    claim: &'a Claim,
}

impl Candidate<'_> {
    fn frees(&self, resource: &str) -> i64 {
        if resource == PODS { 1 } else { self.claim.amount(resource) }
    }

    /// How far the needs are from being met once this pod is gone, each need weighing the same.
    fn distance(&self, needs: &[Need]) -> f64 {
        let share = |need: &Need| {
            let left = need.amount.saturating_sub(self.frees(&need.resource));
            #[allow(clippy::cast_precision_loss)]
            let left = left.max(0) as f64 / need.amount as f64;
            left * left
        };
        needs.iter().map(share).sum()
    }

    fn size(&self) -> (i64, i64) {
        (self.frees(MEMORY), self.frees(CPU))
    }
}

/// The pods to end so that `needs` are met; what cannot be met if there are none.
fn victims<'a>(preemptor: &Pod, others: &[Other<'a>], needs: &[Need]) -> Result<Vec<&'a Pod>, Vec<Need>> {
    let of_class = |class: QosClass| -> Vec<Candidate<'a>> {
        let may = others.iter().filter(|o| gives_way(preemptor, o.pod) && qos_class(o.pod) == class);
        may.map(|Other { pod, claim }| Candidate { pod, claim }).collect()
    };
    let best_effort = of_class(QosClass::BestEffort);
    let burstable = of_class(QosClass::Burstable);
    let guaranteed = of_class(QosClass::Guaranteed);
    let all = [best_effort.as_slice(), &burstable, &guaranteed].concat();
    let unmet = without(needs, &all);
    if !unmet.is_empty() {
        return Err(unmet);
    }
    let lesser = [best_effort.as_slice(), &burstable].concat();
    let guaranteed = nearest(guaranteed, without(needs, &lesser))?;
    let burstable = nearest(burstable, without(needs, &[best_effort.as_slice(), &guaranteed].concat()))?;
    let best_effort = nearest(best_effort, without(needs, &[burstable.as_slice(), &guaranteed].concat()))?;
    Ok([best_effort, burstable, guaranteed].concat().into_iter().map(|c| c.pod).collect())
}

/// Whether `other` has to go for `preemptor`: it is not critical, or its priority is lower.
fn gives_way(preemptor: &Pod, other: &Pod) -> bool {
    let priority = |pod: &Pod| pod::spec(pod).and_then(|s| s.priority);
    if !pod::is_critical(other) {
        return true;
    }
    matches!((priority(preemptor), priority(other)), (Some(ours), Some(theirs)) if ours > theirs)
}

/// What of the needs is left when these pods are gone.
fn without(needs: &[Need], gone: &[Candidate<'_>]) -> Vec<Need> {
    let left = needs.iter().map(|need| {
        let freed = gone.iter().fold(0_i64, |sum, pod| sum.saturating_add(pod.frees(&need.resource)));
        Need { resource: need.resource.clone(), amount: need.amount.saturating_sub(freed) }
    });
    left.filter(|need| need.amount > 0).collect()
}

/// Takes, again and again, the pod that meets most of what is needed, the smaller one of two equals.
fn nearest<'a>(mut pods: Vec<Candidate<'a>>, mut needs: Vec<Need>) -> Result<Vec<Candidate<'a>>, Vec<Need>> {
    let mut taken = Vec::new();
    while !needs.is_empty() {
        let better = |a: &Candidate<'_>, b: &Candidate<'_>| {
            a.distance(&needs).total_cmp(&b.distance(&needs)).then_with(|| a.size().cmp(&b.size()))
        };
        let best = pods.iter().enumerate().min_by(|(_, a), (_, b)| better(a, b)).map(|(index, _)| index);
        let Some(best) = best else { return Err(needs) };
        let best = pods.remove(best);
        needs = without(&needs, std::slice::from_ref(&best));
        taken.push(best);
    }
    Ok(taken)
}

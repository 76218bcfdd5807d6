//! A graceful shutdown of the machine: which pods end when, and how long they have for it. Pure; `core::node` carries it out.
//!
//! Pods end in groups by their priority, the lowest first; a group begins when the one before has ended, or its time is over.
//! A group without pods takes no time.

use std::time::Duration;

use super::status;
use crate::api::v1::Pod;
use crate::msg::Reason;
use crate::util::order;

/// What pods have whose spec names no priority.
const DEFAULT_PRIORITY: i32 = 0;
/// `system-cluster-critical` and above.
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// Pods from this priority on, up to the next one's, and how long they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// The lowest priority that belongs to it.
    pub priority: i32,
    /// The longest grace period of its pods, and of the group.
    pub grace: Duration,
}

/// Groups in the order in which they end; empty where nothing was set, so that a shutdown is not waited for.
///
/// `whole` and `critical` are `shutdownGracePeriod` and `shutdownGracePeriodCriticalPods`, the latter a part of the former;
/// `by_priority` is `shutdownGracePeriodByPodPriority` (priority, seconds), which counts where it is set.
pub fn periods(whole: Duration, critical: Duration, by_priority: &[(i32, i64)]) -> Vec<Period> {
    let seconds = |seconds: u64| Duration::from_secs(seconds);
    let mut periods: Vec<Period> = by_priority
        .iter()
        .map(|(priority, grace)| Period { priority: *priority, grace: seconds(u64::try_from(*grace).unwrap_or(0)) })
        .collect();
    if periods.is_empty() && !whole.is_zero() && critical <= whole {
        periods = vec![
            Period { priority: DEFAULT_PRIORITY, grace: seconds((whole - critical).as_secs()) },
            Period { priority: CRITICAL_PRIORITY, grace: seconds(critical.as_secs()) },
        ];
    }
    order::sort_by_key(&mut periods, |period| period.priority);
    periods
}

/// How long all of them take at most: so long the machine has to wait.
pub fn whole(periods: &[Period]) -> Duration {
    periods.iter().map(|period| period.grace).sum()
}

/// The group of a pod: the last one that begins at its priority or below, and the first for pods below all.
pub fn group_of(periods: &[Period], pod: &Pod) -> usize {
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(DEFAULT_PRIORITY);
    periods.iter().rposition(|period| period.priority <= priority).unwrap_or(0)
}

/// What is told of a pod that ends for it.
pub fn ending() -> status::Ending {
    let message = "Pod was terminated in response to imminent node shutdown.".to_owned();
    status::Ending {
        reason: Reason { reason: "Terminated".to_owned(), message: message.clone() },
        disruption: Some(Reason { reason: "TerminationByKubelet".to_owned(), message }),
    }
}

/// Whether this is what was told of a pod that ended for a shutdown.
pub fn is_of_shutdown(ending: &status::Ending) -> bool {
    *ending == self::ending()
}

/// Why a pod that comes meanwhile is not let in.
pub fn refusal() -> Reason {
    Reason { reason: "NodeShutdown".to_owned(), message: "Pod was rejected as the node is shutting down.".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::v1::PodSpec;

    fn check(whole: u64, critical: u64, by_priority: &[(i32, i64)], expect: &[(i32, u64)]) {
        let got = periods(Duration::from_secs(whole), Duration::from_secs(critical), by_priority);
        let got: Vec<(i32, u64)> = got.iter().map(|p| (p.priority, p.grace.as_secs())).collect();
        assert_eq!(got, expect, "{whole} {critical} {by_priority:?}");
    }

    #[test]
    fn periods_come_from_either_setting() {
        check(0, 0, &[], &[]);
        check(0, 10, &[], &[]);
        check(30, 10, &[], &[(0, 20), (CRITICAL_PRIORITY, 10)]);
        check(30, 0, &[], &[(0, 30), (CRITICAL_PRIORITY, 0)]);
        check(10, 30, &[], &[]);
        check(0, 0, &[(100, 5), (-5, 60), (7, -1)], &[(-5, 60), (7, 0), (100, 5)]);
    }

    #[test]
    fn a_pod_belongs_to_the_group_at_or_below_its_priority() {
        let periods = periods(Duration::ZERO, Duration::ZERO, &[(-10, 1), (0, 2), (1000, 4)]);
        assert_eq!(super::whole(&periods), Duration::from_secs(7));
        for (priority, expect) in [
            (None, 1),
            (Some(0), 1),
            (Some(999), 1),
            (Some(1000), 2),
            (Some(i32::MAX), 2),
            (Some(-1), 0),
            (Some(-10), 0),
            (Some(-11), 0),
        ] {
            let pod = Pod { spec: Some(PodSpec { priority, ..PodSpec::default() }), ..Pod::default() };
            assert_eq!(group_of(&periods, &pod), expect, "{priority:?}");
        }
    }
}

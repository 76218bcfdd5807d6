//! Checks of the eviction signals and thresholds. Pure; runs on the main thread.

use super::{Checker, names};
use crate::config::GoDuration;
use crate::config::yaml::push_key;
use std::collections::BTreeMap;

/// What can be short.
pub(super) const SIGNALS: [&str; 9] = [
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "allocatableMemory.available",
    "pid.available",
];

pub(super) fn check(checker: &mut Checker<'_>) {
    let config = checker.config;
    thresholds(checker, "evictionHard", &config.eviction_hard);
    thresholds(checker, "evictionSoft", &config.eviction_soft);
    for signal in config.eviction_soft.keys() {
        if !config.eviction_soft_grace_period.contains_key(signal) {
            let want = "is missing: every signal of evictionSoft needs a grace period, such as 1m30s";
            checker.wrong(path("evictionSoftGracePeriod", signal), "", want);
        }
    }
    for (signal, period) in &config.eviction_soft_grace_period {
        let at = path("evictionSoftGracePeriod", signal);
        checker.one_of(&at, signal, &SIGNALS);
        let right = GoDuration::parse(period).is_some_and(|period| period >= GoDuration::ZERO);
        checker.require(right, &at, format!("`{period}`"), "must be a duration such as 1m30s, not negative");
    }
    for (signal, amount) in &config.eviction_minimum_reclaim {
        let at = path("evictionMinimumReclaim", signal);
        checker.one_of(&at, signal, &SIGNALS);
        let right = match amount.strip_suffix('%') {
            Some(share) => share.parse::<f32>().is_ok_and(|share| share > 0.0 && share.is_finite()),
            None => names::amount(amount).is_some_and(|amount| !amount.is_negative()),
        };
        checker.require(right, &at, format!("`{amount}`"), "must be an amount such as 500Mi, or a share above 0%");
    }
    checker.not_negative("evictionPressureTransitionPeriod", config.eviction_pressure_transition_period);
}

fn thresholds(checker: &mut Checker<'_>, field: &str, thresholds: &BTreeMap<String, String>) {
    for (signal, threshold) in thresholds {
        let at = path(field, signal);
        checker.one_of(&at, signal, &SIGNALS);
        let right = match threshold.strip_suffix('%') {
            Some(share) => share.parse::<f32>().is_ok_and(|share| (0.0..=100.0).contains(&share)),
            None => names::amount(threshold).is_some_and(|amount| !amount.is_zero() && !amount.is_negative()),
        };
        let want = "must be an amount above zero such as 100Mi, or a share from 0% to 100% (both of these turn it off)";
        checker.require(right, &at, format!("`{threshold}`"), want);
    }
}

fn path(field: &str, signal: &str) -> String {
    let mut path = field.to_owned();
    push_key(&mut path, signal);
    path
}

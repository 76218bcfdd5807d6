//! CPU rates: what was used since the look before. See the parent module for which look that is.
//!
//! Owns a number and a moment for each cgroup that was looked at lately, behind a lock that is held for sums only.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::gather::{NodeReading, Used};
use crate::api::moment::{Moment, Now};

/// Nearer looks tell nothing: what ran in between is chance.
const NEAREST: Duration = Duration::from_millis(250);
/// A look is kept for that long before a newer one takes its place, so that two who ask by turns don't spoil each
/// other's rates.
const KEPT: Duration = Duration::from_secs(5);
/// Older looks tell of another time.
const OLDEST: Duration = Duration::from_secs(300);

/// The looks before.
#[derive(Debug, Default)]
pub(super) struct Rates {
    before: Mutex<Before>,
}

#[derive(Debug, Default)]
struct Before {
    /// When somebody last looked.
    at: Option<Moment>,
    looks: HashMap<u64, Look>,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    /// Nanoseconds of CPU used until then.
    usage: u64,
    at: Moment,
}

impl Rates {
    fn lock(&self) -> MutexGuard<'_, Before> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is no earlier look that tells anything.
    pub(super) fn are_cold(&self, now: Moment) -> bool {
        let before = self.lock();
        before.at.is_none_or(|at| now.since(at) > OLDEST)
    }

    /// Keeps a first look.
    pub(super) fn learn(&self, node: &NodeReading) {
        let mut before = self.lock();
        before.looks.clear();
        before.at = Some(node.at.mono);
        node.each_used(&mut |key, used| {
            if let Some(cpu) = used.usage.cpu {
                before.looks.insert(hash(key), Look { usage: cpu.usage, at: node.at.mono });
            }
        });
    }

    /// Fills in the rates of a look, and keeps it for the next.
    pub(super) fn tell(&self, node: &mut NodeReading) {
        let now = node.at;
        let mut before = self.lock();
        before.at = Some(now.mono);
        let old = std::mem::take(&mut before.looks);
        let looks = &mut before.looks;
        node.each_used_mut(&mut |key, used| {
            let Some(cpu) = used.usage.cpu else { return };
            let key = hash(key);
            let look = Look { usage: cpu.usage, at: now.mono };
            let last =
                old.get(&key).copied().filter(|last| now.mono.since(last.at) <= OLDEST && last.usage <= cpu.usage);
            used.nano_cores = match last {
                Some(last) => rate(cpu.usage - last.usage, now.mono.since(last.at)),
                None => young(used, cpu.usage, now),
            };
            let kept = last.filter(|last| now.mono.since(last.at) < KEPT);
            looks.insert(key, kept.unwrap_or(look));
        });
    }
}

/// The rate since its start of something that began after the look before.
fn young(used: &Used, usage: u64, now: Now) -> Option<u64> {
    let age = u64::try_from(now.wall.checked_sub(used.started_at)?).ok()?;
    let age = Duration::from_nanos(age);
    (used.started_at > 0 && age <= OLDEST).then(|| rate(usage, age)).flatten()
}

/// Nanoseconds of CPU a second; `None` for a span that is too short to tell.
fn rate(nanos: u64, span: Duration) -> Option<u64> {
    if span < NEAREST {
        return None;
    }
    u64::try_from(u128::from(nanos) * 1_000_000_000 / span.as_nanos()).ok()
}

fn hash(key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::usage::{CgroupUsage, Cpu};

    /// Looks of one container: milliseconds since boot and of CPU; and the rates in millicores.
    fn check(started_ms: u64, looks: &[(u64, u64)], expect: &str) {
        let rates = Rates::default();
        let one = |(at, cpu): &(u64, u64)| {
            let mono = Moment::from_boot(Duration::from_millis(*at));
            let wall = i64::try_from(*at * 1_000_000).unwrap();
            let cpu = Cpu { usage: cpu * 1_000_000, ..Cpu::default() };
            let usage = CgroupUsage { cpu: Some(cpu), ..CgroupUsage::default() };
            let started_at = i64::try_from(started_ms * 1_000_000).unwrap();
            let mut node = NodeReading::bare(Now { mono, wall }, Used { usage, started_at, nano_cores: None });
            rates.tell(&mut node);
            node.root.nano_cores.map_or_else(|| "-".to_owned(), |rate| (rate / 1_000_000).to_string())
        };
        assert_eq!(looks.iter().map(one).collect::<Vec<_>>().join(" "), expect);
    }

    #[test]
    fn rates_come_from_the_look_before() {
        check(0, &[(1000, 0), (2000, 500), (3000, 500)], "- 500 250");
        // The first look is kept for five seconds, then the next one counts.
        check(0, &[(1000, 0), (6000, 1000), (7000, 2000)], "- 200 1000");
        // Too soon after another.
        check(0, &[(1000, 0), (1100, 50)], "- -");
        // After a long silence there is no look before.
        check(0, &[(1000, 0), (400_000, 1000)], "- -");
        // It began again under the same name.
        check(0, &[(1000, 500), (2000, 100)], "- -");
        // It is young.
        check(1000, &[(3000, 1000), (4000, 1500)], "500 500");
    }

    #[test]
    fn silence_makes_cold() {
        let rates = Rates::default();
        let at = |seconds| Moment::from_boot(Duration::from_secs(seconds));
        assert!(rates.are_cold(at(1)));
        let look = |seconds| NodeReading::bare(Now { mono: at(seconds), wall: 0 }, Used::default());
        rates.learn(&look(1));
        assert!(!rates.are_cold(at(100)) && rates.are_cold(at(400)));
    }
}

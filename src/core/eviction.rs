//! Which eviction thresholds the node is below, and which of its conditions hold because of that.
//!
//! Layer L1, pure; used on the `node` thread. It judges what was read and remembers since when something is short: a
//! condition holds from the first look below a threshold, a soft one's grace period or not, until
//! `evictionPressureTransitionPeriod` after the last one. What is short by a threshold that has led to evictions (its
//! grace period is over) stays so until `evictionMinimumReclaim` more than the threshold is there. Nothing is evicted
//! here, nor anywhere yet.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::moment::Moment;
use crate::api::pressure::{Level, Levels, Pressures, Signal};
use crate::api::quantity::{Amount, Format};

/// The settings, by signal and as they are written; they were found right before.
#[derive(Clone, Debug, Default)]
pub struct EvictionSettings {
    /// `evictionHard`.
    pub hard: BTreeMap<String, String>,
    /// `evictionSoft`, with the periods of `evictionSoftGracePeriod`.
    pub soft: BTreeMap<String, (String, Duration)>,
    /// `evictionMinimumReclaim`.
    pub reclaim: BTreeMap<String, String>,
    /// `evictionPressureTransitionPeriod`.
    pub transition: Duration,
}

/// An amount, or a share of the whole.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Size {
    Amount(i64),
    Share(f32),
}

impl Size {
    fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('%') {
            // In single precision, so that the bytes are those that upstream computes.
            Some(percent) => percent.parse::<f32>().ok().map(|percent| Self::Share(percent / 100.0)),
            None => Amount::parse(text).ok().map(|amount| Self::Amount(amount.value())),
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
    fn of(self, whole: u64) -> i64 {
        match self {
            Self::Amount(amount) => amount,
            Self::Share(share) => (whole as f64 * f64::from(share)) as i64,
        }
    }
}

/// One threshold.
#[derive(Clone, Debug)]
struct Threshold {
    signal: Signal,
    size: Size,
    reclaim: Option<Size>,
    /// Zero for a hard one.
    grace: Duration,
    standing: Standing,
}

/// How things stand with a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// There is enough.
    Above,
    /// There is not, since then; the grace period is not over.
    Below(Moment),
    /// It is over: what is missing has to be made up for, and more.
    Met(Moment),
}

impl Threshold {
    /// Takes what was read; a signal that was not read tells of no shortage.
    fn step(&mut self, level: Option<Level>, now: Moment) {
        let is_below = |more: Option<Size>| {
            level.is_some_and(|level| {
                let wanted = self.size.of(level.whole).saturating_add(more.map_or(0, |more| more.of(level.whole)));
                wanted > i64::try_from(level.available).unwrap_or(i64::MAX)
            })
        };
        let (since, is_short) = match self.standing {
            Standing::Above => (now, is_below(None)),
            Standing::Below(since) => (since, is_below(None)),
            Standing::Met(since) => (since, is_below(None) || is_below(self.reclaim)),
        };
        self.standing = match is_short {
            false => Standing::Above,
            true if now.since(since) >= self.grace => Standing::Met(since),
            true => Standing::Below(since),
        };
    }
}

/// Judges what is read of the node, again and again.
#[derive(Clone, Debug)]
pub struct PressureJudge {
    thresholds: Vec<Threshold>,
    transition: Duration,
    /// When a condition's cause was seen last.
    memory: Option<Moment>,
    disk: Option<Moment>,
    pid: Option<Moment>,
}

impl PressureJudge {
    /// Reads the settings. Thresholds of writable layers follow from those of the node's file system, and those of the
    /// pods' memory from the machine's, as upstream has it; what is written for them does not count.
    pub fn new(settings: &EvictionSettings) -> Self {
        let mut thresholds = Vec::new();
        let hard = settings.hard.iter().map(|(signal, size)| (signal, size, Duration::ZERO));
        let soft = settings.soft.iter().map(|(signal, (size, grace))| (signal, size, *grace));
        for (name, text, grace) in hard.chain(soft) {
            let (Some(signal), Some(size)) = (Signal::parse(name), Size::parse(text)) else { continue };
            if text == "0%" || text == "100%" {
                continue;
            }
            let also = match signal {
                Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree => continue,
                Signal::MemoryAvailable if grace.is_zero() => Some(Signal::AllocatableMemoryAvailable),
                Signal::NodeFsAvailable => Some(Signal::ContainerFsAvailable),
                Signal::NodeFsInodesFree => Some(Signal::ContainerFsInodesFree),
                Signal::MemoryAvailable
                | Signal::AllocatableMemoryAvailable
                | Signal::ImageFsAvailable
                | Signal::ImageFsInodesFree
                | Signal::PidAvailable => None,
            };
            let reclaim = settings.reclaim.get(name).and_then(|text| Size::parse(text));
            let threshold = Threshold { signal, size, reclaim, grace, standing: Standing::Above };
            thresholds.extend(also.map(|signal| Threshold { signal, ..threshold.clone() }));
            thresholds.push(threshold);
        }
        Self { thresholds, transition: settings.transition, memory: None, disk: None, pid: None }
    }

    /// Whether there is anything to judge by.
    pub fn is_idle(&self) -> bool {
        self.thresholds.is_empty()
    }

    /// Whether a signal is asked for.
    pub fn asks_for(&self, signals: &[Signal]) -> bool {
        self.thresholds.iter().any(|threshold| signals.contains(&threshold.signal))
    }

    /// Takes what was read, and tells which conditions hold.
    pub fn judge(&mut self, levels: &Levels, now: Moment) -> Pressures {
        for threshold in &mut self.thresholds {
            let level = levels.iter().find_map(|(signal, level)| (*signal == threshold.signal).then_some(*level));
            threshold.step(level, now);
            if threshold.standing != Standing::Above {
                *match threshold.signal {
                    Signal::MemoryAvailable | Signal::AllocatableMemoryAvailable => &mut self.memory,
                    Signal::NodeFsAvailable
                    | Signal::NodeFsInodesFree
                    | Signal::ImageFsAvailable
                    | Signal::ImageFsInodesFree
                    | Signal::ContainerFsAvailable
                    | Signal::ContainerFsInodesFree => &mut self.disk,
                    Signal::PidAvailable => &mut self.pid,
                } = Some(now);
            }
        }
        let holds = |seen: Option<Moment>| seen.is_some_and(|at| at == now || now.since(at) < self.transition);
        Pressures { memory: holds(self.memory), disk: holds(self.disk), pid: holds(self.pid) }
    }

    /// What is short at the moment, for people; empty if there is enough of all.
    pub fn shortages(&self, levels: &Levels) -> String {
        let short = self.thresholds.iter().filter(|threshold| threshold.standing != Standing::Above);
        let tell = |threshold: &Threshold| {
            let (signal, level) = levels.iter().find(|(signal, _)| *signal == threshold.signal)?;
            let amount = |value: i64| match signal {
                Signal::NodeFsInodesFree
                | Signal::ImageFsInodesFree
                | Signal::ContainerFsInodesFree
                | Signal::PidAvailable => value.to_string(),
                _ => Amount::from_value(value, Format::BinarySi).to_string(),
            };
            let available = amount(i64::try_from(level.available).unwrap_or(i64::MAX));
            Some(format!("{} is {available} of {}", signal.as_str(), amount(threshold.size.of(level.whole))))
        };
        short.filter_map(tell).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `signal=threshold`, `signal=threshold/grace` and `+signal=reclaim`; the transition period is 300 s.
    fn judge(settings: &str) -> PressureJudge {
        let mut read = EvictionSettings { transition: Duration::from_secs(300), ..EvictionSettings::default() };
        for (signal, value) in settings.split_whitespace().filter_map(|word| word.split_once('=')) {
            if let Some(signal) = signal.strip_prefix('+') {
                read.reclaim.insert(signal.to_owned(), value.to_owned());
            } else if let Some((size, grace)) = value.split_once('/') {
                let grace = Duration::from_secs(grace.parse().expect("seconds"));
                read.soft.insert(signal.to_owned(), (size.to_owned(), grace));
            } else {
                read.hard.insert(signal.to_owned(), value.to_owned());
            }
        }
        PressureJudge::new(&read)
    }

    /// `signal=available/whole` in MiB (inodes and process ids: in millions).
    fn levels(text: &str) -> Levels {
        let level = |word: &str| {
            let (signal, level) = word.split_once('=').expect("a level");
            let (available, whole) = level.split_once('/').expect("a whole");
            let mebi = |number: &str| number.parse::<u64>().expect("a number") << 20;
            (Signal::parse(signal).expect("a signal"), Level { available: mebi(available), whole: mebi(whole) })
        };
        text.split_whitespace().map(level).collect()
    }

    /// One node over time: second, levels, conditions.
    fn check(settings: &str, story: &[(u64, &str, &str)]) {
        let mut judge = judge(settings);
        for (second, found, expect) in story {
            let now = Moment::from_boot(Duration::from_secs(*second));
            let holds = judge.judge(&levels(found), now).names().join(" ");
            assert_eq!(&holds, expect, "{settings}: {found} after {second} s");
        }
    }

    #[test]
    fn each_signal_has_its_condition() {
        let all = "memory.available=100Mi nodefs.available=10% nodefs.inodesFree=5% imagefs.available=15% \
                   imagefs.inodesFree=5% pid.available=10%";
        for (found, expect) in [
            // A tenth in single precision is a little more than one.
            (
                "memory.available=100/1000 nodefs.available=101/1000 imagefs.available=151/1000 pid.available=101/1000",
                "",
            ),
            ("memory.available=99/1000", "MemoryPressure"),
            // What all pods may take is judged by the machine's threshold.
            ("allocatableMemory.available=99/1000 memory.available=500/1000", "MemoryPressure"),
            ("nodefs.available=99/1000", "DiskPressure"),
            ("nodefs.inodesFree=49/1000", "DiskPressure"),
            ("imagefs.available=149/1000", "DiskPressure"),
            ("imagefs.inodesFree=49/1000", "DiskPressure"),
            // Writable layers are judged by the node's thresholds.
            ("containerfs.available=99/1000 nodefs.available=500/1000", "DiskPressure"),
            ("containerfs.inodesFree=50/1000", ""),
            ("pid.available=99/1000", "PIDPressure"),
            (
                "pid.available=0/1000 memory.available=0/1000 nodefs.available=0/1000",
                "MemoryPressure DiskPressure PIDPressure",
            ),
            ("", ""),
        ] {
            check(all, &[(0, found, expect)]);
        }
    }

    #[test]
    fn thresholds_that_are_off_or_do_not_count() {
        let nothing = "memory.available=0/1000 containerfs.available=0/1000";
        for settings in ["", "memory.available=0%", "memory.available=100%", "containerfs.available=50%"] {
            check(settings, &[(0, nothing, "")]);
            assert!(judge(settings).is_idle(), "{settings}");
        }
        assert!(!judge("pid.available=1").is_idle());
        let images = [Signal::ImageFsAvailable, Signal::ImageFsInodesFree];
        assert!(judge("imagefs.inodesFree=1").asks_for(&images) && !judge("pid.available=1").asks_for(&images));
    }

    #[test]
    fn a_condition_holds_for_the_transition_period() {
        check(
            "memory.available=100Mi",
            &[
                (0, "memory.available=500/1000", ""),
                (10, "memory.available=50/1000", "MemoryPressure"),
                (20, "memory.available=500/1000", "MemoryPressure"),
                (309, "memory.available=500/1000", "MemoryPressure"),
                (310, "memory.available=500/1000", ""),
                (320, "memory.available=99/1000", "MemoryPressure"),
                (600, "memory.available=99/1000", "MemoryPressure"),
                // A look that found nothing tells of no shortage, and the condition outlasts it all the same.
                (610, "", "MemoryPressure"),
                (899, "", "MemoryPressure"),
                (900, "", ""),
            ],
        );
    }

    #[test]
    fn a_soft_threshold_sets_its_condition_before_its_grace_period_is_over() {
        check(
            "nodefs.available=20%/60",
            &[(0, "nodefs.available=199/1000", "DiskPressure"), (299, "nodefs.available=200/1000", "DiskPressure")],
        );
        // The pods' memory has hard thresholds only.
        check("memory.available=20%/60", &[(0, "allocatableMemory.available=1/1000", "")]);
    }

    #[test]
    fn more_than_the_threshold_is_asked_for_once_its_grace_period_is_over() {
        // Hard: at once. The condition lasts from the last look below 100 + 50.
        check(
            "memory.available=100Mi +memory.available=5%",
            &[
                (0, "memory.available=149/1000", ""),
                (10, "memory.available=99/1000", "MemoryPressure"),
                (20, "memory.available=149/1000", "MemoryPressure"),
                (319, "memory.available=150/1000", "MemoryPressure"),
                (320, "memory.available=149/1000", ""),
            ],
        );
        // Soft: after its period, which begins anew whenever there was enough.
        check(
            "memory.available=100Mi/60 +memory.available=50Mi",
            &[
                (0, "memory.available=99/1000", "MemoryPressure"),
                (50, "memory.available=149/1000", "MemoryPressure"),
                (300, "memory.available=149/1000", ""),
                (400, "memory.available=99/1000", "MemoryPressure"),
                (460, "memory.available=99/1000", "MemoryPressure"),
                (470, "memory.available=149/1000", "MemoryPressure"),
                (769, "memory.available=150/1000", "MemoryPressure"),
                (770, "memory.available=150/1000", ""),
            ],
        );
    }

    #[test]
    fn people_are_told_what_is_short() {
        let mut judge = judge("memory.available=100Mi nodefs.available=25% pid.available=10%");
        let found = levels("memory.available=50/1000 nodefs.available=1024/8192 pid.available=900/1000");
        judge.judge(&found, Moment::default());
        assert_eq!(judge.shortages(&found), "memory.available is 50Mi of 100Mi, nodefs.available is 1Gi of 2Gi");
        assert_eq!(judge.shortages(&Levels::new()), "");
    }
}

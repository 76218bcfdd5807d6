//! The state of one probe: its beat, the instance that it looks at, its counts. Pure; see the parent module.

use std::time::Duration;

use super::target::{Running, Timing};
use crate::api::ContainerId;
use crate::api::moment::{Moment, Now};
use crate::api::probe::ProbeOutcome;
use crate::msg::ProbeKind;

/// What a probe thinks of the instance that it looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It is another probe's turn: the startup probe goes first, and rests once the container has started.
    Closed,
    /// Attempts are made.
    Open,
    /// It has said its last word about this instance.
    Rests,
}

/// One instance of the container.
#[derive(Clone, Debug)]
struct Instance {
    id: ContainerId,
    /// When it started.
    began: Moment,
    standing: Standing,
    /// The newest result, and how often it came in a row.
    run: Option<(bool, u32)>,
    /// What everybody believes: a verdict that says the same is no news. `None` while nothing is believed.
    believed: Option<bool>,
}

/// One probe of one container of one pod.
#[derive(Clone, Debug)]
pub(super) struct Tracker {
    kind: ProbeKind,
    timing: Timing,
    /// Attempts are made at whole periods from here.
    anchor: Moment,
    instance: Option<Instance>,
    /// When the attempt under way began.
    attempt: Option<Moment>,
    due: Option<Moment>,
}

impl Tracker {
    /// A probe that was not known before; its beat begins at `anchor`.
    pub(super) fn new(kind: ProbeKind, timing: Timing, anchor: Moment) -> Self {
        Self { kind, timing, anchor, instance: None, attempt: None, due: None }
    }

    /// When the next attempt is due.
    pub(super) fn due(&self) -> Option<Moment> {
        self.due
    }

    /// Takes a look at the container. `is_found` says that it ran before this agent did: nothing is urgent then.
    pub(super) fn see(&mut self, timing: Timing, running: Option<&Running>, is_found: bool, now: Now) {
        self.timing = timing;
        let Some(running) = running else {
            self.instance = None;
            self.due = None;
            return;
        };
        let old = self.instance.take().filter(|instance| instance.id == running.id);
        let mut instance = old.unwrap_or_else(|| {
            let age = Duration::from_nanos(u64::try_from(now.wall.saturating_sub(running.started_at)).unwrap_or(0));
            let believed = match self.kind {
                ProbeKind::Startup => None,
                ProbeKind::Liveness => Some(true),
                ProbeKind::Readiness => Some(running.ready),
            };
            let (id, began) = (running.id.clone(), now.mono - age);
            Instance { id, began, standing: Standing::Closed, run: None, believed }
        });
        let is_turn = (self.kind == ProbeKind::Startup) != running.started;
        let standing = match (instance.standing, is_turn) {
            (Standing::Rests, _) => Standing::Rests,
            (Standing::Open | Standing::Closed, true) => Standing::Open,
            (Standing::Open | Standing::Closed, false) => Standing::Closed,
        };
        let opens = instance.standing == Standing::Closed && standing == Standing::Open;
        instance.standing = standing;
        let may_begin = now.mono.max(instance.began + self.timing.initial_delay);
        if opens && self.kind == ProbeKind::Readiness && !is_found {
            // Somebody waits for it: it does not wait for its beat.
            self.anchor = may_begin;
        }
        let keeps = standing == Standing::Open && !opens;
        self.instance = Some(instance);
        self.due = match standing {
            _ if self.attempt.is_some() => None,
            Standing::Closed | Standing::Rests => None,
            Standing::Open if keeps && self.due.is_some() => self.due,
            Standing::Open => Some(self.beat_from(may_begin)),
        };
    }

    /// The first whole period that is not before `at`.
    fn beat_from(&self, at: Moment) -> Moment {
        let (period, since) = (self.timing.period.as_nanos().max(1), at.since(self.anchor).as_nanos());
        let beats = u32::try_from(since.div_ceil(period)).unwrap_or(u32::MAX);
        self.anchor + self.timing.period.saturating_mul(beats)
    }

    /// An attempt begins, at this instance.
    pub(super) fn begin(&mut self, now: Moment) -> Option<ContainerId> {
        let instance = self.instance.as_ref().filter(|_| self.attempt.is_none())?;
        self.due = None;
        self.attempt = Some(now);
        Some(instance.id.clone())
    }

    /// An attempt at `of` ended. The verdict, if there is news.
    pub(super) fn finish(&mut self, of: &ContainerId, outcome: &ProbeOutcome, now: Moment) -> Option<bool> {
        let began = self.attempt.take()?;
        let verdict = self.count(of, outcome);
        let instance = self.instance.as_ref().filter(|instance| instance.standing == Standing::Open);
        self.due = instance.map(|instance| {
            // One that took longer than its period is followed by the next one at once, and by one only.
            let next = self.beat_from(began + Duration::from_nanos(1)).max(now);
            if instance.id == *of { next } else { self.beat_from(now.max(instance.began + self.timing.initial_delay)) }
        });
        verdict
    }

    fn count(&mut self, of: &ContainerId, outcome: &ProbeOutcome) -> Option<bool> {
        let is_success = match outcome {
            ProbeOutcome::Success | ProbeOutcome::Warning(_) => true,
            ProbeOutcome::Failure(_) => false,
            ProbeOutcome::Gone | ProbeOutcome::Errored { .. } => return None,
        };
        let instance = self.instance.as_mut().filter(|i| i.id == *of && i.standing == Standing::Open)?;
        let times = match instance.run {
            Some((same, times)) if same == is_success => times.saturating_add(1),
            Some(_) | None => 1,
        };
        instance.run = Some((is_success, times));
        let needed = if is_success { self.timing.successes } else { self.timing.failures };
        if times < needed {
            return None;
        }
        let is_last_word = match self.kind {
            ProbeKind::Startup => true,
            ProbeKind::Liveness => !is_success,
            ProbeKind::Readiness => false,
        };
        if is_last_word {
            // What is about to be stopped, or has begun, is not asked again.
            instance.standing = Standing::Rests;
        }
        let is_news = instance.believed != Some(is_success);
        instance.believed = Some(is_success);
        is_news.then_some(is_success)
    }
}

//! The machine shuts down: pods end, group by group, and none begins. Pure; see the parent module.
//!
//! Nothing of it is remembered across a restart of the agent: who tells of the shutdown tells again.

use std::time::Duration;

use super::entry::{Entry, Stage};
use super::{Effect, Node};
use crate::api::PodUid;
use crate::api::moment::{Moment, Now};
use crate::api::pod::grace_seconds;
use crate::core::plan;
use crate::core::shutdown;

/// How far a shutdown is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Shutdown {
    /// There is none.
    #[default]
    None,
    /// Pods of this group end, until this time; those of the groups before have had theirs.
    Group { at: usize, until: Moment },
    /// All groups have ended; the machine may go.
    Done,
}

impl Node {
    /// A shutdown begins, or was called off. Pods that ended for it stay so.
    pub(super) fn take_shutdown(&mut self, now: Now, begins: bool) {
        self.stale_node = true;
        self.shutdown = match (self.shutdown, begins) {
            (_, false) => Shutdown::None,
            (Shutdown::None, true) => Shutdown::Group { at: 0, until: now.mono + self.time_of_group(0) },
            (under_way, true) => under_way,
        };
    }

    /// Whether the machine shuts down.
    pub(super) fn is_shutting_down(&self) -> bool {
        self.shutdown != Shutdown::None
    }

    /// When the group at hand has had its time.
    pub(super) fn shutdown_deadline(&self) -> Option<Moment> {
        match self.shutdown {
            Shutdown::Group { until, .. } => Some(until),
            Shutdown::None | Shutdown::Done => None,
        }
    }

    /// Ends the pods of the group at hand, and goes on to the next when they have ended or their time is over. What runs is
    /// known only once the runtime was listed; until then the group's time goes by.
    pub(super) fn advance_shutdown(&mut self, now: Now) {
        while let Shutdown::Group { at, until } = self.shutdown {
            if at >= self.settings.shutdown.len() {
                self.shutdown = Shutdown::Done;
                self.effect(Effect::ShutdownDone);
                return;
            }
            let members = self.members(at);
            for uid in &members {
                self.end_for_shutdown(now, uid, at);
            }
            let is_known = self.listed_at.is_some();
            let waits = !is_known || members.iter().any(|uid| self.pods.get(uid).is_some_and(Entry::has_not_ended));
            if waits && now.mono < until {
                return;
            }
            let at = at + 1;
            self.shutdown = Shutdown::Group { at, until: now.mono + self.time_of_group(at) };
        }
    }

    fn time_of_group(&self, at: usize) -> Duration {
        self.settings.shutdown.get(at).map_or(Duration::ZERO, |period| period.grace)
    }

    /// Pods of this group that have not ended yet, and those of groups before that came to light since.
    fn members(&self, at: usize) -> Vec<PodUid> {
        let periods = &self.settings.shutdown;
        let is_member = |entry: &&Entry| entry.has_not_ended() && shutdown::group_of(periods, &entry.pod) <= at;
        self.pods.values().filter(is_member).map(|entry| entry.uid.clone()).collect()
    }

    fn end_for_shutdown(&mut self, now: Now, uid: &PodUid, at: usize) {
        let limit = self.time_of_group(at);
        let Some(entry) = self.pods.get_mut(uid) else { return };
        if entry.doom.is_some() || entry.stage.cause().is_some() {
            // It ends for another reason, in its own time; the group's end does not wait longer for that.
            return;
        }
        entry.grace_limit = Some(limit.min(plan::seconds(grace_seconds(&entry.pod))));
        entry.doom = Some(Box::new(shutdown::ending()));
        self.drive(now, uid);
    }
}

impl Entry {
    /// Whether something of it may run, or hold on to its volumes.
    fn has_not_ended(&self) -> bool {
        match self.stage {
            Stage::Active
            | Stage::Asking
            | Stage::MakingRoom { .. }
            | Stage::Ending { .. }
            | Stage::Releasing { .. } => true,
            Stage::Queued | Stage::Rejected(_) | Stage::Ended { .. } | Stage::Forgetting => false,
        }
    }
}

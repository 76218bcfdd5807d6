//! What of a pod's life is counted: its start, its containers' ends. Pure; see the parent module.

use std::time::Duration;

use super::entry::Entry;
use super::{Effect, Node, Tally};
use crate::api::PodUid;
use crate::api::moment::{Moment, Now};
use crate::api::pod::{app_containers, find_container, init_containers};
use crate::api::runtime::{ContainerState, RuntimePod};

impl Entry {
    /// A worker gets work on it; what there is to count if it is the first.
    pub(super) fn begin(&mut self, now: Moment) -> Option<Tally> {
        let birth = self.birth.as_mut().filter(|birth| !birth.has_begun)?;
        birth.has_begun = true;
        let containers = app_containers(&self.pod).len() + init_containers(&self.pod).len();
        Some(Tally::Begun { after: now.since(birth.seen_at), containers })
    }

    /// What there is to count if all its containers have started by now.
    pub(super) fn finish_start(&mut self, now: Now) -> Option<Tally> {
        let birth = self.birth?;
        let told = self.status.container_statuses.as_deref().unwrap_or_default();
        let has_started = |status: &crate::api::v1::ContainerStatus| {
            let state = status.state.as_ref();
            state.is_some_and(|state| state.running.is_some() || state.terminated.is_some())
        };
        let wanted = app_containers(&self.pod).len();
        if wanted == 0 || told.len() < wanted || !told.iter().all(has_started) {
            return None;
        }
        self.birth = None;
        let created = self.pod.metadata.creation_timestamp.as_ref().map(|time| {
            let created = i64::try_from(time.0.as_nanosecond()).unwrap_or(now.wall);
            // The clocks of the API server and this machine may be apart.
            Duration::from_nanos(u64::try_from(now.wall.saturating_sub(created)).unwrap_or(0))
        });
        Some(Tally::Started { seen: now.mono.since(birth.seen_at), created, pulled: birth.pulled })
    }
}

impl Node {
    /// Counts the containers of a pod that have ended since the last look at it. What had ended before this agent
    /// looked at all does not count again.
    pub(super) fn tally_ends(&mut self, uid: &PodUid, now: &RuntimePod) {
        let before = self.runtime.get(uid).map(|seen| &seen.pod);
        let Some(entry) = self.pods.get(uid) else { return };
        if before.is_none() && entry.birth.is_none() {
            return;
        }
        let mut ended = Vec::new();
        for container in &now.containers {
            let ContainerState::Exited(exit) = &container.state else { continue };
            let had_ended = before
                .into_iter()
                .flat_map(|pod| &pod.containers)
                .any(|old| old.id == container.id && matches!(old.state, ContainerState::Exited(_)));
            let Some((kind, _)) = find_container(&entry.pod, &container.name).filter(|_| !had_ended) else { continue };
            ended.push(Tally::Ended { kind, code: exit.code, reason: exit.reason.clone() });
        }
        self.effects.extend(ended.into_iter().map(Effect::Count));
    }
}

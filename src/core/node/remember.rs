//! What of a pod outlives the agent: entries to records and back. Pure; see the parent module.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::entry::{Cause, Entry, Stage};
use super::{Effect, Node};
use crate::api::labels::CONFIG_SEEN;
use crate::api::meta::ObjectMeta;
use crate::api::moment::{Moment, Now};
use crate::api::pod::{find_container, is_static, pod_uid};
use crate::api::record::{
    ContainerRecord, CrashRecord, EndingRecord, LOST_EXIT_CODE, LastRun, PodRecord, RECORD_VERSION,
};
use crate::api::runtime::RuntimePod;
use crate::api::v1::{Container, Pod, PodSpec};
use crate::api::{PodName, PodUid};
use crate::core::backoff::CrashBackoff;
use crate::core::plan::{self, ContainerMemory};
use crate::core::shutdown;
use crate::core::status::{self, RestartAll};
use crate::msg::Reason;
use crate::util::json;

impl Node {
    /// Sends the pod's record to the store if it differs from what is there.
    pub(super) fn remember(&mut self, uid: &PodUid) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        // A pod that nothing was done for needs no record.
        let fresh =
            matches!(entry.stage, Stage::Queued | Stage::Asking | Stage::MakingRoom { .. } | Stage::Rejected(_))
                || !entry.was_touched();
        if entry.saved.is_none() && fresh {
            return;
        }
        let record = entry.record(&self.settings.boot_id, self.settings.restart_all);
        let is_saved = entry.saved.as_deref() == Some(&record);
        let record = Arc::new(record);
        // An equal one replaces that of an earlier life too: it shares its pod with the entry.
        entry.saved = Some(Arc::clone(&record));
        if !is_saved {
            self.effect(Effect::Record(record));
        }
    }
}

fn millis(moment: Moment) -> u64 {
    u64::try_from(moment.since_boot().as_millis()).unwrap_or(u64::MAX)
}

fn words(reason: Option<&Reason>) -> (String, String) {
    reason.map_or_else(Default::default, |r| (r.reason.clone(), r.message.clone()))
}

fn evicted(record: &EndingRecord) -> status::Ending {
    let reason = |reason: &str, message: &str| Reason { reason: reason.to_owned(), message: message.to_owned() };
    let disruption = reason(&record.disruption_reason, &record.disruption_message);
    status::Ending {
        reason: reason(&record.reason, &record.message),
        disruption: Some(disruption).filter(|d| !d.reason.is_empty()),
    }
}

fn moment(millis: u64) -> Moment {
    Moment::from_boot(Duration::from_millis(millis))
}

impl Entry {
    fn was_touched(&self) -> bool {
        let was_probed = |name: &str, memory: &ContainerMemory| {
            let spec = || find_container(&self.pod, name);
            let has_started = || spec().is_some_and(|(_, container)| container.startup_probe.is_some());
            memory.ready.is_some() || (memory.started.is_some() && has_started())
        };
        self.is_busy()
            || self.settled_at != Moment::default()
            || self.stage.cause().is_some()
            || self.memory.iter().any(|(name, memory)| was_probed(name, memory))
    }

    pub(super) fn record(&self, boot_id: &str, restart_all: RestartAll) -> PodRecord {
        let ending = self.stage.cause().map(|cause| {
            let deadline = match self.stage {
                Stage::Ending { deadline, .. } => deadline,
                _ => Moment::default(),
            };
            let phase = match cause {
                Cause::Completed(plan::Ending::Succeeded) => "Succeeded",
                Cause::Completed(plan::Ending::Failed) | Cause::DeadlineExceeded | Cause::Evicted(_) => "Failed",
                Cause::Removed | Cause::Deleted | Cause::Orphan => "",
            };
            let ending = match cause {
                Cause::Evicted(ending) => Some(ending),
                Cause::Removed | Cause::Deleted | Cause::Orphan | Cause::Completed(_) | Cause::DeadlineExceeded => None,
            };
            let (reason, message) = words(ending.map(|e| &e.reason));
            let (disruption_reason, disruption_message) = words(ending.and_then(|e| e.disruption.as_ref()));
            EndingRecord {
                cause: cause.word().to_owned(),
                deadline_ms: millis(deadline),
                phase: phase.to_owned(),
                reason,
                message,
                disruption_reason,
                disruption_message,
            }
        });
        let containers = self.memory.iter().map(|(name, memory)| {
            let crash = memory.crash.as_ref().map(|(state, hash)| CrashRecord {
                delay_ms: u64::try_from(state.delay.as_millis()).unwrap_or(u64::MAX),
                restarted_ms: millis(state.restarted_at),
                hash: hash.clone(),
            });
            // Whoever always restarts does so whatever the past: nothing to write at each of its exits.
            let spec = find_container(&self.pod, name);
            let may_end = spec.as_ref().is_some_and(|(kind, container)| {
                let kind = *kind;
                let ends_after = |code| !status::restarts_after(&self.pod, kind, container, code, restart_all);
                // An end upon which all containers restart has to be known until they do.
                ends_after(0) || ends_after(LOST_EXIT_CODE) || container.restart_policy_rules.is_some()
            });
            let last_run = if may_end { memory.last_run } else { LastRun::Never };
            let (first_attempt, next_attempt) = (memory.first_attempt, memory.next_attempt);
            // Without a probe it is as its state says.
            let has = |probe: fn(&Container) -> bool| spec.as_ref().is_some_and(|(_, container)| probe(container));
            let started = memory.started.clone().filter(|_| has(|c| c.startup_probe.is_some()));
            let ready = memory.ready.clone().filter(|_| has(|c| c.readiness_probe.is_some()));
            let actuated = memory.actuated;
            let record = ContainerRecord { first_attempt, next_attempt, last_run, crash, started, ready, actuated };
            (name.clone(), record)
        });
        PodRecord {
            version: RECORD_VERSION,
            uid: self.uid.clone(),
            boot_id: boot_id.to_owned(),
            pod: worth_keeping(&self.pod, self.saved.as_ref().map(|saved| &saved.pod)),
            start_time: self.start_time,
            started_ms: Some(millis(self.started_at)),
            before_boot_ms: u64::try_from(self.before_boot.as_millis()).unwrap_or(u64::MAX),
            next_sandbox_attempt: self.next_sandbox_attempt,
            containers: containers.collect(),
            ending,
        }
    }

    /// Takes up what an earlier life of the agent knew of this pod.
    pub(super) fn restore(&mut self, mut record: PodRecord, boot_id: &str, now: Now) {
        let same_boot = record.boot_id == boot_id;
        self.began(record.start_time, now);
        if let Some(started) = record.started_ms.filter(|_| same_boot) {
            self.started_at = moment(started).min(now.mono);
            self.before_boot = Duration::from_millis(record.before_boot_ms);
        }
        self.next_sandbox_attempt = record.next_sandbox_attempt;
        for (name, kept) in &record.containers {
            let crash = kept.crash.as_ref().filter(|_| same_boot).map(|crash| {
                let state = CrashBackoff {
                    delay: Duration::from_millis(crash.delay_ms),
                    restarted_at: moment(crash.restarted_ms).min(now.mono),
                };
                (state, crash.hash.clone())
            });
            let ContainerRecord { first_attempt, next_attempt, last_run, actuated, .. } = *kept;
            let (started, ready) = (kept.started.clone(), kept.ready.clone());
            let memory = ContainerMemory {
                first_attempt,
                next_attempt,
                last_run,
                crash,
                started,
                ready,
                actuated,
                ..Default::default()
            };
            self.memory.insert(name.clone(), Box::new(memory));
        }
        if let Some(ending) = &record.ending {
            let cause = match (ending.cause.as_str(), ending.phase.as_str()) {
                ("Completed", "Succeeded") => Cause::Completed(plan::Ending::Succeeded),
                ("Completed", _) => Cause::Completed(plan::Ending::Failed),
                ("DeadlineExceeded", _) => Cause::DeadlineExceeded,
                ("Evicted", _) => Cause::Evicted(Box::new(evicted(ending))),
                ("Removed", _) => Cause::Removed,
                ("Deleted", _) => Cause::Deleted,
                _ => Cause::Orphan,
            };
            // What ended for the last shutdown of the machine, and is not told at the API, was to run after it.
            let is_back = !same_boot
                && is_static(&self.pod)
                && matches!(&cause, Cause::Evicted(ending) if shutdown::is_of_shutdown(ending));
            if !is_back {
                // The grace period goes on where it was, and never grows.
                let latest = now.mono + self.grace();
                let deadline = if same_boot { moment(ending.deadline_ms).min(latest) } else { now.mono };
                self.stage = Stage::Ending { cause, deadline };
            }
        }
        if is_same_but_for_seen(&record.pod, &self.pod) {
            record.pod = Arc::clone(&self.pod);
        }
        self.saved = Some(Arc::new(record));
    }

    /// An entry for something that no source asks for: from its record, else from its marks.
    pub(super) fn unwanted(
        uid: &PodUid,
        record: Option<PodRecord>,
        seen: Option<&RuntimePod>,
        boot_id: &str,
        now: Now,
    ) -> Self {
        let pod = match (&record, seen) {
            (Some(record), _) if pod_uid(&record.pod) == *uid => Arc::clone(&record.pod),
            (_, Some(seen)) => Arc::new(pod_from_marks(uid, seen)),
            (_, None) => Arc::new(bare_pod(uid, &PodName { namespace: String::new(), name: String::new() })),
        };
        let mut entry = Self::new(pod, false, now);
        let deadline = now.mono + entry.grace();
        entry.stage = Stage::Ending { cause: Cause::Orphan, deadline };
        if let Some(record) = record {
            entry.restore(record, boot_id, now);
        }
        if seen.is_none_or(plan::at_rest) {
            entry.stage = Stage::Forgetting;
        }
        entry
    }
}

/// The pod without what the API server writes anew each time somebody touches it: that is no news for
/// the disk, and its status is told by the API and by the runtime.
/// Without such parts it is the pod itself, and with them the copy that was `saved` while that still holds.
fn worth_keeping(pod: &Arc<Pod>, saved: Option<&Arc<Pod>>) -> Arc<Pod> {
    let keeps_status = pod.status.is_none() || is_static(pod);
    if keeps_status && pod.metadata.managed_fields.is_none() && pod.metadata.resource_version.is_none() {
        return Arc::clone(pod);
    }
    let metadata = ObjectMeta { managed_fields: None, resource_version: None, ..pod.metadata.clone() };
    let status = if keeps_status { pod.status.clone() } else { None };
    match saved {
        Some(saved) if saved.spec == pod.spec && saved.metadata == metadata && saved.status == status => {
            Arc::clone(saved)
        }
        Some(_) | None => Arc::new(Pod { metadata, spec: pod.spec.clone(), status }),
    }
}

/// Whether a recorded pod is the one that its source gives now, save for the time at which the source first saw it: each life
/// of the agent has its own, which is no news for the disk.
fn is_same_but_for_seen(recorded: &Pod, now: &Pod) -> bool {
    if recorded.spec != now.spec || recorded.status != now.status {
        return false;
    }
    let mut metadata = recorded.metadata.clone();
    let seen = now.metadata.annotations.as_ref().and_then(|annotations| annotations.get(CONFIG_SEEN));
    if let (Some(annotations), Some(seen)) = (&mut metadata.annotations, seen) {
        annotations.insert(CONFIG_SEEN.to_owned(), seen.clone());
    }
    metadata == now.metadata
}

fn bare_pod(uid: &PodUid, name: &PodName) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.uid = Some(uid.to_string());
    pod.metadata.name = Some(name.name.clone());
    pod.metadata.namespace = Some(name.namespace.clone());
    pod
}

/// What the marks of a pod's containers tell of its spec: names, images, grace period.
fn pod_from_marks(uid: &PodUid, seen: &RuntimePod) -> Pod {
    let mut pod = bare_pod(uid, &PodName { namespace: seen.namespace.clone(), name: seen.name.clone() });
    let mut containers: BTreeMap<&str, Container> = BTreeMap::new();
    let mut grace = None;
    for container in &seen.containers {
        let marks = &container.marks;
        grace = grace.or(marks.grace_seconds);
        pod.metadata.deletion_grace_period_seconds =
            pod.metadata.deletion_grace_period_seconds.or(marks.deletion_grace_seconds);
        let lifecycle = json::from_slice(marks.pre_stop.as_bytes())
            .ok()
            .map(|pre_stop| crate::api::v1::Lifecycle { pre_stop: Some(pre_stop), ..Default::default() });
        containers.entry(&container.name).or_insert_with(|| Container {
            name: container.name.clone(),
            image: Some(container.image.clone()),
            ports: json::from_slice(marks.ports.as_bytes()).ok(),
            lifecycle,
            ..Container::default()
        });
    }
    pod.spec = Some(PodSpec {
        containers: containers.into_values().collect(),
        termination_grace_period_seconds: grace,
        ..PodSpec::default()
    });
    pod
}

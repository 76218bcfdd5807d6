//! A close look at one pod, on a thread of its own.
//!
//! Lists the pod, then inspects what is new since the last view: what a dead container or a ready
//! sandbox once told does not change, and what runs tells the same until somebody changes it. Owns nothing but its job; sends exactly one result.

use std::cmp::Reverse;
use std::sync::Arc;

use crossbeam_channel::Sender;

use super::last_words::last_words;
use super::state_number;
use crate::api::moment::Moment;
use crate::api::runtime::{ContainerState, RuntimeContainer, RuntimePod, RuntimeSandbox, SandboxState};
use crate::api::{ContainerId, PodUid};
use crate::cri::{Client, CriError};
use crate::util::cancel::Cancel;
use crate::util::order;
use crate::util::{clock, thread};

/// What a look found.
#[derive(Debug)]
pub(super) struct Inspected {
    pub(super) uid: PodUid,
    /// When it began.
    pub(super) started_at: Moment,
    /// The pod; `None` if the runtime has nothing of it; the error's text if it could not be looked at.
    pub(super) found: Result<Option<RuntimePod>, String>,
    /// Ends that this look was given and could not use: the next look gets them.
    pub(super) ends: Vec<RuntimePod>,
    /// Whether the pod has a container here that the runtime has no more: another look has to follow.
    pub(super) recalls: bool,
    /// Whether a container that ran at the last look is not there, and nobody has told of its end.
    pub(super) misses: bool,
}

/// One look.
pub(super) struct Job {
    pub(super) client: Client,
    pub(super) uid: PodUid,
    pub(super) last: Option<Arc<RuntimePod>>,
    /// Whether what runs is read again though nothing of it is new.
    pub(super) anew: bool,
    /// Containers whose end the runtime has told by an event, one each.
    pub(super) ends: Vec<RuntimePod>,
    pub(super) cancel: Cancel,
    pub(super) results: Sender<Inspected>,
}

impl Job {
    pub(super) fn run(self) {
        let started_at = clock::moment();
        let found = match thread::catch(|| self.inspect().map(|found| self.recall(found))) {
            Ok(found) => found.map_err(|error| error.to_string()),
            Err(panic) => Err(panic.to_string()),
        };
        let inspected = match found {
            Ok((found, recalls)) => {
                let misses = self.misses(found.as_ref());
                Inspected { uid: self.uid, started_at, found: Ok(found), ends: Vec::new(), recalls, misses }
            }
            Err(why) => {
                let (uid, ends) = (self.uid, self.ends);
                Inspected { uid, started_at, found: Err(why), ends, recalls: false, misses: false }
            }
        };
        // PLEG has ended if nobody takes it.
        let _ended = self.results.send(inspected);
    }

    fn inspect(&self) -> Result<Option<RuntimePod>, CriError> {
        let Some(mut pod) = self.client.list_pod(self.uid.as_str(), &self.cancel)? else { return Ok(None) };
        let mut sandboxes = Vec::with_capacity(pod.sandboxes.len());
        for (i, sandbox) in std::mem::take(&mut pod.sandboxes).into_iter().enumerate() {
            // Only the newest tells anything that matters: its addresses.
            let looked_at = if i == 0 { self.sandbox(sandbox)? } else { Some(sandbox) };
            sandboxes.extend(looked_at);
        }
        pod.sandboxes = sandboxes;
        let mut containers = Vec::with_capacity(pod.containers.len());
        for container in std::mem::take(&mut pod.containers) {
            containers.extend(self.container(container)?);
        }
        pod.containers = containers;
        Ok(Some(pod))
    }

    /// Adds the containers that ended and were removed between the last look and this one: their end is told once, as if
    /// they were there. An event may come late, and nothing of what was seen to have ended or to be gone comes back by it,
    /// nor what the agent itself has had removed.
    fn recall(&self, found: Option<RuntimePod>) -> (Option<RuntimePod>, bool) {
        let ran: Vec<_> = self.ran().map(|container| &container.id).collect();
        let (mut found, mut recalls) = (found, false);
        for end in &self.ends {
            for container in end.containers.iter().filter(|container| ran.contains(&&container.id)) {
                if self.has_removed(container) {
                    continue;
                }
                if found.iter().flat_map(|pod| &pod.containers).any(|c| c.id == container.id) {
                    continue;
                }
                let pod = found.get_or_insert_with(|| RuntimePod { containers: Vec::new(), ..end.clone() });
                pod.containers.push(with_last_words(container.clone()));
                order::sort_by_key(&mut pod.containers, |container| Reverse((container.created_at, container.attempt)));
                recalls = true;
            }
        }
        (found, recalls)
    }

    /// What had not ended at the last look.
    fn ran(&self) -> impl Iterator<Item = &RuntimeContainer> {
        let of_last = self.last.iter().flat_map(|last| &last.containers);
        of_last.filter(|container| !matches!(container.state, ContainerState::Exited(_)))
    }

    fn has_removed(&self, container: &RuntimeContainer) -> bool {
        self.client.has_removed(container.id.as_str()) || self.client.has_removed(container.sandbox_id.as_str())
    }

    fn misses(&self, found: Option<&RuntimePod>) -> bool {
        let is_there =
            |id: &ContainerId| found.is_some_and(|pod| pod.containers.iter().any(|container| container.id == *id));
        self.ran().any(|container| !is_there(&container.id) && !self.has_removed(container))
    }

    fn sandbox(&self, listed: RuntimeSandbox) -> Result<Option<RuntimeSandbox>, CriError> {
        let known = self.last.iter().flat_map(|last| &last.sandboxes).find(|s| s.id == listed.id);
        if let Some(known) = known.filter(|s| s.state == listed.state) {
            let is_settled = known.host_network || !known.ips.is_empty() || known.state == SandboxState::NotReady;
            if is_settled {
                return Ok(Some(known.clone()));
            }
        }
        match self.client.sandbox_status(&listed.id, &self.cancel) {
            Ok(status) => Ok(Some(status.sandbox)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn container(&self, listed: RuntimeContainer) -> Result<Option<RuntimeContainer>, CriError> {
        let known = self.last.iter().flat_map(|last| &last.containers).find(|c| c.id == listed.id);
        let is_same = |c: &&RuntimeContainer| {
            let changed = self.anew && matches!(listed.state, ContainerState::Running { .. });
            !changed && state_number(&c.state) == state_number(&listed.state)
        };
        if let Some(known) = known.filter(is_same) {
            return Ok(Some(known.clone()));
        }
        let container = match self.client.container_status(&listed.id, &self.cancel) {
            Ok(status) => RuntimeContainer { sandbox_id: listed.sandbox_id, ..status },
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(with_last_words(container)))
    }
}

/// A container with its termination message, if it has ended.
fn with_last_words(mut container: RuntimeContainer) -> RuntimeContainer {
    if let ContainerState::Exited(exit) = &container.state {
        let words = last_words(&container, exit);
        if let (ContainerState::Exited(exit), Some(words)) = (&mut container.state, words) {
            exit.message = match exit.message.as_str() {
                "" => words,
                runtime => format!("{runtime}: {words}"),
            };
        }
    }
    // They have served: no status tells them.
    container.mounts = Vec::new();
    container
}

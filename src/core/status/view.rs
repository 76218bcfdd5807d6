//! The runtime's lists in one fixed order: which sandbox is the newest, which instances a container has.
//!
//! Layer L1, pure, used by the status computation only. It trusts neither order nor uniqueness of the
//! lists it reads.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::runtime::{ContainerState, RuntimeContainer, RuntimePod, RuntimeSandbox, SandboxState};
use crate::util::order::{self, Gather};

/// The two newest instances of one container.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instances<'a> {
    /// The newest.
    pub newest: &'a RuntimeContainer,
    /// The one before it.
    pub older: Option<&'a RuntimeContainer>,
}

/// What the runtime has of a pod, in order.
#[derive(Debug, Default)]
pub(super) struct View<'a> {
    /// Newest sandbox.
    pub sandbox: Option<&'a RuntimeSandbox>,
    /// How many sandboxes are ready.
    pub ready_sandboxes: usize,
    containers: BTreeMap<&'a str, Instances<'a>>,
}

impl<'a> View<'a> {
    /// Puts the lists in order; nothing observed is an empty view.
    pub(super) fn new(observed: Option<&'a RuntimePod>) -> Self {
        let Some(observed) = observed else { return Self::default() };
        let is_ready = |s: &&RuntimeSandbox| s.state == SandboxState::Ready;
        let key = |s: &&'a RuntimeSandbox| (s.attempt, s.created_at, &s.id, is_ready(s), &s.ips, s.host_network);
        let sandbox = observed.sandboxes.iter().max_by_key(key);
        let ready: BTreeSet<_> = observed.sandboxes.iter().filter(is_ready).map(|s| &s.id).gather();

        // Attempts come before creation times: a clock that was set back does not reorder instances.
        let mut sorted: Vec<&RuntimeContainer> = observed.containers.iter().collect();
        order::sort_by(&mut sorted, |a, b| {
            let key = |c: &'a RuntimeContainer| (c.attempt, c.created_at, &c.id, state_key(&c.state));
            key(b).cmp(&key(a))
        });
        let mut containers: BTreeMap<&str, Instances<'_>> = BTreeMap::new();
        for container in sorted {
            match containers.get_mut(container.name.as_str()) {
                None => {
                    containers.insert(&container.name, Instances { newest: container, older: None });
                }
                Some(seen) if seen.older.is_none() && seen.newest.id != container.id => seen.older = Some(container),
                Some(_) => {}
            }
        }
        Self { sandbox, ready_sandboxes: ready.len(), containers }
    }

    /// The newest sandbox, if it is ready.
    pub(super) fn ready_sandbox(&self) -> Option<&'a RuntimeSandbox> {
        self.sandbox.filter(|s| s.state == SandboxState::Ready)
    }

    /// The instances of a container.
    pub(super) fn instances(&self, name: &str) -> Option<Instances<'a>> {
        self.containers.get(name).copied()
    }
}

/// Orders two looks at the same instance: the later one wins.
fn state_key(state: &ContainerState) -> (u8, i64, i32, &str, &str) {
    match state {
        ContainerState::Unknown => (0, 0, 0, "", ""),
        ContainerState::Created => (1, 0, 0, "", ""),
        ContainerState::Running { started_at } => (2, *started_at, 0, "", ""),
        ContainerState::Exited(exit) => (3, exit.finished_at, exit.code, &exit.reason, &exit.message),
    }
}

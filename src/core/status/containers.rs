//! Container statuses: one entry for each container of the spec, from the runtime's newest instance
//! of it, the status told before and the reasons why it does not start.
//!
//! Layer L1, pure. Order: init containers as in the spec, the others by name, which is the order that
//! clients know from the kubelet.

use super::view::{Instances, View};
use super::{ContainerFacts, StatusInput, conditions, phase, resources, time};
use crate::api::pod::{self, ContainerKind};
use crate::api::runtime::{ContainerState as Seen, Exit, RuntimeContainer, UserIds};
use crate::api::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    ContainerUser, LinuxContainerUser, VolumeMount, VolumeMountStatus,
};
use crate::util::order;

/// Bytes of all termination messages of a pod together; each container has its share.
const MAX_TERMINATION_MESSAGES: usize = 12 * 1024;

/// Exit code of a container that ended out of sight.
const LOST_EXIT_CODE: i32 = 137;

/// Why a container waits, and how it ended, while all containers of its pod restart.
const RESTARTING_ALL: &str = "RestartingAllContainers";

/// The explanation to [`RESTARTING_ALL`].
const RESTARTING_ALL_TEXT: &str = "The container is removed because RestartAllContainers in place";

/// Container statuses by kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Lists {
    /// `initContainerStatuses`, sidecars included.
    pub init: Vec<ContainerStatus>,
    /// `containerStatuses`.
    pub app: Vec<ContainerStatus>,
    /// `ephemeralContainerStatuses`.
    pub ephemeral: Vec<ContainerStatus>,
}

/// Computes all container statuses of a pod.
pub(super) fn container_statuses(input: &StatusInput<'_>, view: &View<'_>) -> Lists {
    let before = input.before();
    let containers = pod::all_containers(input.pod).count().max(1);
    let restarting_all = conditions::restarts_all(input, view);
    let writer = Writer { input, view, restarting_all, max_message: MAX_TERMINATION_MESSAGES / containers };
    let old = |list: Option<&'_ Vec<ContainerStatus>>, name: &str| {
        list.and_then(|list| phase::find(list, name)).cloned().map(|mut status| {
            status.last_state.get_or_insert_default();
            status
        })
    };
    let mut lists = Lists::default();
    for (kind, container) in pod::all_containers(input.pod) {
        let (list, told) = match kind {
            ContainerKind::Init | ContainerKind::Sidecar => {
                (&mut lists.init, before.and_then(|s| s.init_container_statuses.as_ref()))
            }
            ContainerKind::App => (&mut lists.app, before.and_then(|s| s.container_statuses.as_ref())),
            ContainerKind::Ephemeral => {
                (&mut lists.ephemeral, before.and_then(|s| s.ephemeral_container_statuses.as_ref()))
            }
        };
        list.push(writer.status(kind, &container, old(told, &container.name)));
    }
    // A status is large and kept for long.
    for list in [&mut lists.init, &mut lists.app, &mut lists.ephemeral] {
        list.shrink_to_fit();
    }
    order::sort_by(&mut lists.app, |a, b| a.name.cmp(&b.name));
    order::sort_by(&mut lists.ephemeral, |a, b| a.name.cmp(&b.name));
    lists
}

/// How the present instance ended, if it did.
pub(super) fn terminated(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    status.state.as_ref()?.terminated.as_ref()
}

/// Whether the present instance runs.
pub(super) fn is_running(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|s| s.running.is_some())
}

/// Whether there is no present instance that runs or ran.
pub(super) fn is_waiting(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_none_or(|s| s.running.is_none() && s.terminated.is_none())
}

/// Whether it waits and its last end is that of the very instance it speaks of, seen or not.
fn waits_after_end(status: &ContainerStatus) -> bool {
    let last = status.last_state.as_ref().and_then(|s| s.terminated.as_ref());
    is_waiting(status) && last.is_some_and(|t| t.container_id.is_none() || t.container_id == status.container_id)
}

/// The exit code of a container that does not run: of its present instance, or of the last one while
/// it waits. `None` while it runs and when it never has.
pub(super) fn exit_code_so_far(status: &ContainerStatus) -> Option<i32> {
    if is_running(status) {
        return None;
    }
    let last = || status.last_state.as_ref()?.terminated.as_ref();
    terminated(status).or_else(last).map(|t| t.exit_code)
}

/// Whether the end that counts is a removal for the restart of all containers.
pub(super) fn ended_to_restart_all(status: &ContainerStatus) -> bool {
    let last = || status.last_state.as_ref()?.terminated.as_ref();
    let end = terminated(status).or_else(last).filter(|_| !is_running(status));
    end.is_some_and(is_restart_of_all)
}

/// Whether this end is told of a container that was removed so that all containers of its pod restart.
pub fn is_restart_of_all(end: &ContainerStateTerminated) -> bool {
    end.reason.as_deref() == Some(RESTARTING_ALL)
}

/// The state of a container that must have ended, though nobody saw how.
pub(super) fn lost(message: &str) -> ContainerState {
    ended(ContainerStateTerminated {
        exit_code: LOST_EXIT_CODE,
        reason: Some("ContainerStatusUnknown".into()),
        message: Some(message.into()),
        ..ContainerStateTerminated::default()
    })
}

fn ended(terminated: ContainerStateTerminated) -> ContainerState {
    ContainerState { terminated: Some(terminated), ..ContainerState::default() }
}

fn waiting(reason: Option<&str>, message: Option<&str>) -> ContainerState {
    let text = |t: Option<&str>| t.filter(|t| !t.is_empty()).map(str::to_owned);
    let waiting = ContainerStateWaiting { reason: text(reason), message: text(message) };
    ContainerState { waiting: Some(waiting), ..ContainerState::default() }
}

struct Writer<'a> {
    input: &'a StatusInput<'a>,
    view: &'a View<'a>,
    /// Whether the pod ends a round in which all containers restart.
    restarting_all: bool,
    max_message: usize,
}

impl Writer<'_> {
    fn status(&self, kind: ContainerKind, container: &Container, old: Option<ContainerStatus>) -> ContainerStatus {
        let instances = self.view.instances(&container.name);
        let mut status = match (instances, &old) {
            (Some(instances), _) => self.of_instances(container, old.as_ref(), instances),
            (None, Some(old)) if self.input.observed.is_none() => old.clone(),
            (None, _) => self.of_nothing(kind, container, old.as_ref()),
        };
        let facts = self.input.facts.get(&container.name);
        if let Some(reason) = facts.and_then(|f| f.waiting.as_ref())
            && self.waits_for_start(kind, container, instances, &status)
        {
            if terminated(&status).is_some() {
                let last_state = status.state.take();
                if instances.is_none() {
                    // Nothing is left of the instance but its end.
                    status = self.not_started(container, Some(&status));
                }
                status.last_state = last_state;
            }
            status.state = Some(waiting(Some(&reason.reason), Some(&reason.message)));
        }
        status.volume_mounts = self.volume_mounts(container);
        self.answer_probes(kind, container, old.as_ref(), facts, &mut status);
        status
    }

    /// The status of a container that the runtime has: its newest instance now, the one before as the
    /// last state.
    fn of_instances(
        &self,
        container: &Container,
        old: Option<&ContainerStatus>,
        instances: Instances<'_>,
    ) -> ContainerStatus {
        let newest = instances.newest;
        let id = self.container_id(newest);
        let same_instance = old.is_some_and(|o| o.container_id.as_ref() == Some(&id));
        let old_end = old.and_then(terminated);
        let older_was_told = old.is_some_and(|o| instances.older.is_some_and(|older| tells_of(o, older)));
        let told_count = old.map_or(0, |o| o.restart_count);
        // A new instance is a restart, even if it starts to count anew because the runtime lost all
        // the older ones.
        let follows = !same_instance && old.is_some_and(|old| is_successor(instances, old));
        let least = told_count.saturating_add(i32::from(follows));
        let mut restart_count = restart_count(newest).max(least);
        let state = match &newest.state {
            Seen::Created => waiting(None, None),
            Seen::Running { started_at } => {
                let running = ContainerStateRunning { started_at: time(*started_at) };
                ContainerState { running: Some(running), ..ContainerState::default() }
            }
            Seen::Exited(exit) => ended(self.end(newest, exit)),
            Seen::Unknown => match old {
                Some(old) if same_instance && old_end.is_some() => old.state.clone().unwrap_or_default(),
                Some(old) if is_running(old) && (same_instance || !older_was_told) => {
                    restart_count = restart_count.max(old.restart_count.saturating_add(1));
                    lost("The container could not be located when the pod was terminated")
                }
                _ => waiting(None, None),
            },
        };
        let last_told = || old.and_then(|o| o.last_state.clone()).unwrap_or_default();
        let last_state = match instances.older.map(|older| (&older.state, older)) {
            // How it ended has been told, and stays so now that the runtime knows less.
            _ if newest.state == Seen::Unknown && same_instance && old.is_some_and(waits_after_end) => last_told(),
            Some((Seen::Exited(exit), older)) => ended(self.end(older, exit)),
            _ if !same_instance && old_end.is_some() => ended(old_end.cloned().unwrap_or_default()),
            _ => last_told(),
        };
        let spec = container.resources.as_ref();
        let resizing = self.input.facts.get(&container.name).is_some_and(|facts| facts.resizing);
        ContainerStatus {
            allocated_resources: spec.and_then(|r| r.requests.clone()).filter(|r| !r.is_empty()),
            container_id: Some(id),
            image: if newest.image.is_empty() { container_image(container) } else { newest.image.clone() },
            image_id: newest.image_ref.clone(),
            last_state: Some(last_state),
            name: container.name.clone(),
            resources: Some(resources::in_force(spec, newest, old.filter(|_| same_instance && resizing))),
            restart_count,
            state: Some(state),
            user: newest.user.as_ref().map(user),
            ..ContainerStatus::default()
        }
    }

    /// The status of a container of which the runtime has nothing: it has not started yet, or it has
    /// been removed.
    fn of_nothing(&self, kind: ContainerKind, container: &Container, old: Option<&ContainerStatus>) -> ContainerStatus {
        if let Some(old) = old.filter(|o| self.restarting_all && kind != ContainerKind::Ephemeral && !is_waiting(o)) {
            let mut status = self.not_started(container, Some(old));
            status.state = Some(waiting(Some(RESTARTING_ALL), Some(RESTARTING_ALL_TEXT)));
            status.last_state = Some(ended(ContainerStateTerminated {
                exit_code: LOST_EXIT_CODE,
                reason: Some(RESTARTING_ALL.into()),
                message: Some(RESTARTING_ALL_TEXT.into()),
                ..ContainerStateTerminated::default()
            }));
            status.restart_count = old.restart_count.saturating_add(1);
            return status;
        }
        if let Some(old) = old.filter(|o| terminated(o).is_some()) {
            return old.clone();
        }
        let mut status = self.not_started(container, old);
        if kind == ContainerKind::Init && !self.restarting_all && self.app_container_was_made() {
            // The runtime forgets init containers, and a static pod's status is kept nowhere else.
            status.state = Some(ended(ContainerStateTerminated {
                reason: Some("Completed".into()),
                message: Some(
                    "Unable to get init container status from container runtime and pod has been initialized, \
                     treat it as exited normally"
                        .into(),
                ),
                ..ContainerStateTerminated::default()
            }));
            return status;
        }
        let ran = old.is_some_and(is_running);
        // Removed before anybody was told how it ended, which was seen all the same.
        let untold = old.is_none_or(|o| ran || exit_code_so_far(o).is_none());
        if let Some(code) = self.input.facts.get(&container.name).and_then(|f| f.ended).filter(|_| untold) {
            status.state = Some(ended(ContainerStateTerminated {
                exit_code: code,
                reason: Some(if code == 0 { "Completed" } else { "Error" }.into()),
                ..ContainerStateTerminated::default()
            }));
            return status;
        }
        let has_last = status.last_state.as_ref().is_some_and(|s| s.terminated.is_some());
        if ran && !has_last {
            // It ran and is gone: it stopped, and the pod is not pending again.
            status.last_state = Some(lost(
                "The container could not be located when the pod was deleted.  The container used to be Running",
            ));
            if self.input.may_start() {
                status.restart_count = status.restart_count.saturating_add(1);
            }
        }
        status
    }

    fn not_started(&self, container: &Container, old: Option<&ContainerStatus>) -> ContainerStatus {
        let has_init = !pod::init_containers(self.input.pod).is_empty();
        let reason = if has_init { "PodInitializing" } else { "ContainerCreating" };
        ContainerStatus {
            image: container_image(container),
            last_state: Some(old.and_then(|o| o.last_state.clone()).unwrap_or_default()),
            name: container.name.clone(),
            restart_count: old.map_or(0, |o| o.restart_count),
            state: Some(waiting(Some(reason), None)),
            ..ContainerStatus::default()
        }
    }

    fn app_container_was_made(&self) -> bool {
        let is_known = |name: &str| self.view.instances(name).is_some_and(|i| i.newest.state != Seen::Unknown);
        pod::app_containers(self.input.pod).iter().any(|c| is_known(&c.name))
    }

    /// Whether the container's next event is a start, so that a reason for waiting is news.
    fn waits_for_start(
        &self,
        kind: ContainerKind,
        container: &Container,
        instances: Option<Instances<'_>>,
        status: &ContainerStatus,
    ) -> bool {
        let after = |code: i32| {
            let done = kind == ContainerKind::Init && code == 0;
            !done && phase::restarts_after(self.input.pod, kind, container, code, self.input.restart_all)
        };
        self.input.may_start()
            && match instances.map(|i| &i.newest.state) {
                Some(Seen::Running { .. }) => false,
                Some(Seen::Created | Seen::Unknown) => true,
                Some(Seen::Exited(exit)) => after(exit.code),
                // A forgotten init container counts as done once an app container was made.
                None if kind == ContainerKind::Init && self.app_container_was_made() => false,
                None => terminated(status).is_none_or(|t| after(t.exit_code)),
            }
    }

    /// Fills in `started` and `ready`. Without a verdict about this very instance, one told before
    /// about it stands (the agent may have been restarted), and without a probe it is as good as its
    /// state.
    fn answer_probes(
        &self,
        kind: ContainerKind,
        container: &Container,
        old: Option<&ContainerStatus>,
        facts: Option<&ContainerFacts>,
        status: &mut ContainerStatus,
    ) {
        if kind == ContainerKind::Ephemeral {
            return;
        }
        let facts = facts.filter(|f| self.is_about(f, status));
        let same = old.filter(|o| o.container_id == status.container_id);
        let started = is_running(status)
            && facts
                .and_then(|f| f.started)
                .unwrap_or_else(|| container.startup_probe.is_none() || same.is_some_and(|o| o.started == Some(true)));
        status.started = Some(started);
        status.ready = match kind {
            ContainerKind::Init => terminated(status).is_some_and(|t| t.exit_code == 0),
            _ => {
                started
                    && facts
                        .and_then(|f| f.ready)
                        .unwrap_or_else(|| container.readiness_probe.is_none() || same.is_some_and(|o| o.ready))
            }
        };
    }

    fn is_about(&self, facts: &ContainerFacts, status: &ContainerStatus) -> bool {
        facts.probed.as_ref().is_some_and(|probed| Some(probed.as_str()) == bare_id(status))
    }

    fn container_id(&self, container: &RuntimeContainer) -> String {
        format!("{}://{}", self.input.runtime_name, container.id)
    }

    fn end(&self, container: &RuntimeContainer, exit: &Exit) -> ContainerStateTerminated {
        let mut message = exit.message.clone();
        message.truncate(floor_char_boundary(&message, self.max_message));
        let reason = match exit.reason.as_str() {
            "" if exit.code == 0 => "Completed",
            "" => "Error",
            reason => reason,
        };
        ContainerStateTerminated {
            container_id: Some(self.container_id(container)),
            exit_code: exit.code,
            finished_at: time(exit.finished_at),
            message: Some(message).filter(|m| !m.is_empty()),
            reason: Some(reason.to_owned()),
            signal: None,
            started_at: time(exit.started_at),
        }
    }

    fn volume_mounts(&self, container: &Container) -> Option<Vec<VolumeMountStatus>> {
        let mounts = container.volume_mounts.as_ref().filter(|m| !m.is_empty())?;
        let status = |mount: &VolumeMount| VolumeMountStatus {
            mount_path: mount.mount_path.clone(),
            name: mount.name.clone(),
            read_only: mount.read_only.filter(|r| *r),
            recursive_read_only: (mount.read_only == Some(true)).then(|| self.recursive_read_only(mount).to_owned()),
            volume_status: None,
        };
        Some(mounts.iter().map(status).collect())
    }

    fn recursive_read_only(&self, mount: &VolumeMount) -> &'static str {
        let asked = matches!(mount.recursive_read_only.as_deref(), Some("Enabled" | "IfPossible"));
        let propagates = mount.mount_propagation.as_deref().is_some_and(|p| !p.is_empty() && p != "None");
        if asked && !propagates && self.input.recursive_read_only { "Enabled" } else { "Disabled" }
    }
}

fn tells_of(status: &ContainerStatus, container: &RuntimeContainer) -> bool {
    bare_id(status).is_some_and(|id| id == container.id.as_str())
}

/// The container's id without the runtime's name.
fn bare_id(status: &ContainerStatus) -> Option<&str> {
    status.container_id.as_deref()?.split_once("://").map(|(_, id)| id)
}

/// Whether the newest instance came after the one that a status speaks of.
fn is_successor(instances: Instances<'_>, told: &ContainerStatus) -> bool {
    if told.container_id.is_none() {
        return false;
    }
    if instances.older.is_some_and(|older| tells_of(told, older)) {
        return true;
    }
    let (state, last) = (told.state.as_ref(), told.last_state.as_ref());
    let ended_at = |t: &ContainerStateTerminated| t.finished_at.clone();
    let since = match state.and_then(|s| s.running.as_ref()) {
        Some(running) => running.started_at.clone(),
        None => [state, last].into_iter().find_map(|s| s.and_then(|s| s.terminated.as_ref()).and_then(ended_at)),
    };
    since.is_some() && time(instances.newest.created_at) >= since
}

fn container_image(container: &Container) -> String {
    container.image.clone().unwrap_or_default()
}

/// Its mark; the attempt stands in for a missing or unreadable one.
fn restart_count(container: &RuntimeContainer) -> i32 {
    i32::try_from(container.marks.restart_count.unwrap_or(container.attempt)).unwrap_or(i32::MAX)
}

fn user(ids: &UserIds) -> ContainerUser {
    let groups = Some(ids.supplemental_groups.clone()).filter(|g| !g.is_empty());
    ContainerUser { linux: Some(LinuxContainerUser { uid: ids.uid, gid: ids.gid, supplemental_groups: groups }) }
}

fn floor_char_boundary(text: &str, max: usize) -> usize {
    (0..=max.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

//! Stops containers: hooks side by side, then in waves, all within one grace period. On a `pod-N` thread
//! and one short-lived thread for each further container.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::hooks;
use super::run::{Run, cri, reason};
use super::start::field_path;
use crate::api::ContainerId;
use crate::api::pod::{ContainerKind, RestartPolicy, container_restart_policy, find_container, grace_seconds};
use crate::api::v1::Container;
use crate::msg::{EventType, Reason, StopContainer, StopReason};
use crate::util::clock;
use crate::util::thread::{StackSize, spawn_scoped};

/// What a container gets at least between SIGTERM and SIGKILL, however long its hook took.
const SHORTEST: Duration = Duration::from_secs(2);

/// Counts the containers of each wave that have not ended, so that the next wave knows its turn.
struct Waves {
    left: Mutex<Vec<(u32, usize)>>,
    changed: Condvar,
}

impl Waves {
    fn new(stops: &[StopContainer]) -> Self {
        let mut left: Vec<(u32, usize)> = Vec::new();
        for stop in stops {
            match left.iter_mut().find(|(wave, _)| *wave == stop.wave) {
                Some((_, count)) => *count += 1,
                None => left.push((stop.wave, 1)),
            }
        }
        Self { left: Mutex::new(left), changed: Condvar::new() }
    }

    fn ended(&self, wave: u32) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, count)) = left.iter_mut().find(|(w, _)| *w == wave) {
            *count = count.saturating_sub(1);
        }
        drop(left);
        self.changed.notify_all();
    }

    /// Waits until every earlier wave has ended, at most `limit`.
    fn wait_for_turn(&self, wave: u32, limit: Duration) {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = |left: &mut Vec<(u32, usize)>| left.iter().any(|(w, count)| *w < wave && *count > 0);
        let _turn = self.changed.wait_timeout_while(left, limit, earlier);
    }
}

/// Stops the containers; every failure is collected.
pub(super) fn containers(run: &Run<'_>, stops: &[StopContainer], grace: Duration) -> Result<(), Reason> {
    let waves = Waves::new(stops);
    let mut failures: Vec<Reason> = Vec::new();
    std::thread::scope(|scope| {
        let mut others = Vec::new();
        let Some((first, rest)) = stops.split_first() else { return };
        for stop in rest {
            let waves = &waves;
            match spawn_scoped(scope, "stop", StackSize::Small, move || one(run, stop, grace, waves)) {
                Ok(thread) => others.push(thread),
                // No thread to be had: one after the other then.
                Err(_) => failures.extend(one(run, stop, grace, waves).err()),
            }
        }
        failures.extend(one(run, first, grace, &waves).err());
        for thread in others {
            match thread.join() {
                Ok(Ok(result)) => failures.extend(result.err()),
                Ok(Err(panic)) => failures.push(reason("KillContainerError", panic.to_string())),
                Err(_) => failures.push(reason("KillContainerError", "the stopping thread ended early")),
            }
        }
    });
    if failures.is_empty() {
        return Ok(());
    }
    let texts: Vec<String> = failures.into_iter().map(|f| f.message).collect();
    Err(reason("KillContainerError", texts.join("; ")))
}

fn one(run: &Run<'_>, stop: &StopContainer, grace: Duration, waves: &Waves) -> Result<(), Reason> {
    let result = hook_turn_stop(run, stop, grace, waves);
    waves.ended(stop.wave);
    result
}

fn without_restart(text: &str) -> &str {
    text.trim_end_matches(", will be restarted")
}

fn hook_turn_stop(run: &Run<'_>, stop: &StopContainer, grace: Duration, waves: &Waves) -> Result<(), Reason> {
    let (tools, work) = (run.tools, run.work);
    let deadline = clock::moment() + grace;
    let spec = find_container(&work.pod, &stop.name);
    let path = field_path(spec.as_ref().map_or(ContainerKind::App, |(kind, _)| *kind), &stop.name);
    let is_sidecar = spec.as_ref().is_some_and(|(kind, _)| *kind == ContainerKind::Sidecar);
    let text = match stop.reason {
        StopReason::PodEnds => format!("Stopping container {}", stop.name),
        // As the kubelet words it, which says nothing of the restart here.
        StopReason::Liveness | StopReason::Startup | StopReason::SpecChanged if is_sidecar => {
            format!("Init container {} {}", stop.name, without_restart(stop.reason.text()))
        }
        other => {
            let stays_down = spec.as_ref().is_some_and(|(kind, container)| {
                container_restart_policy(&work.pod, *kind, container) == RestartPolicy::Never
            });
            let text = other.text();
            format!("Container {} {}", stop.name, if stays_down { without_restart(text) } else { text })
        }
    };
    run.event(&path, EventType::Normal, "Killing", text);
    if let Some(hook) = &stop.pre_stop
        && !grace.is_zero()
    {
        let unnamed = Container { name: stop.name.clone(), ..Container::default() };
        let container = spec.as_ref().map_or(&unnamed, |(_, c)| c.as_ref());
        if let Err(why) = hooks::run(run, container, &stop.id, hook, grace)
            && !work.cancel.is_cancelled()
        {
            log::warn!("pod {}: preStop hook of {}: {why}", work.name, stop.name);
            run.event(&path, EventType::Warning, "FailedPreStopHook", "PreStopHook failed".to_owned());
        }
    }
    waves.wait_for_turn(stop.wave, deadline.since(clock::moment()));
    let left = deadline.since(clock::moment()).max(SHORTEST);
    match tools.client.stop_container(&stop.id, left, &work.cancel) {
        Err(error) if !error.is_not_found() => Err(cri("KillContainerError", &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Stops a container whose postStart hook failed.
pub(super) fn after_failed_hook(run: &Run<'_>, container: &Container, id: &ContainerId) {
    let grace = Duration::from_secs(u64::try_from(grace_seconds(&run.work.pod)).unwrap_or(0));
    let stop = StopContainer {
        id: id.clone(),
        name: container.name.clone(),
        reason: StopReason::PodEnds,
        pre_stop: container.lifecycle.as_ref().and_then(|l| l.pre_stop.clone()),
        wave: 0,
    };
    if let Err(why) = containers(run, &[stop], grace) {
        log::warn!("pod {}: after a failed postStart hook: {}", run.work.name, why.message);
    }
}

//! The last status of a pod: containers of which no end is known are told as failed.
//!
//! Layer L1, pure. Once a pod is over its status must not claim that something waits or runs, and
//! what nobody saw ending must not count as success.

use super::StatusInput;
use super::containers::{self, Lists};
use super::phase;
use crate::api::pod;
use crate::api::v1::ContainerStatus;

/// Marks the containers that have no end yet. App containers of a pod whose initialisation never
/// finished, and init containers whose turn never came, stay waiting: they never ran.
pub(super) fn end_all_containers(input: &StatusInput<'_>, lists: &mut Lists) {
    if is_initialized(input, lists) {
        lists.app.iter_mut().for_each(end);
    }
    let began =
        lists.init.iter().rposition(|s| !containers::is_waiting(s) || last_exit_code(s).is_some()).map_or(1, |i| i + 1);
    lists.init.iter_mut().take(began).for_each(end);
}

fn end(status: &mut ContainerStatus) {
    if containers::terminated(status).is_none() {
        status.state = Some(containers::lost("The container could not be located when the pod was terminated"));
        status.ready = false;
        status.started = Some(false);
    }
}

fn last_exit_code(status: &ContainerStatus) -> Option<i32> {
    status.last_state.as_ref()?.terminated.as_ref().map(|t| t.exit_code)
}

/// Whether an app container has had its turn, or the last init container has done its part.
fn is_initialized(input: &StatusInput<'_>, lists: &Lists) -> bool {
    let Some(last) = pod::init_containers(input.pod).last() else { return true };
    if lists.app.iter().any(|s| !containers::is_waiting(s) || last_exit_code(s).is_some()) {
        return true;
    }
    let Some(status) = phase::find(&lists.init, &last.name) else { return false };
    if pod::is_sidecar(last) {
        return status.started == Some(true);
    }
    last_exit_code(status) == Some(0) || containers::terminated(status).is_some_and(|t| t.exit_code == 0)
}

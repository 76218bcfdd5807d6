//! Gives running containers other CPU and memory, and the pod's cgroup with them. On a `pod-N` thread.
//!
//! What grows grows from the outside in, what shrinks from the inside out, so that no container is ever held below its
//! limit by its pod. Repeating it is harmless: values that are in force are not written again.

use super::prepare::{pod_cgroup_values, qos_level, weigh_burstable};
use super::run::{Run, cri, reason};
use crate::api::pod::find_container;
use crate::core::spec::container_resources;
use crate::host::error::explain;
use crate::msg::{Reason, ResizeContainer};
use crate::util::order;

/// The word for a resize that failed.
const ERROR: &str = "ResizePodInPlaceError";

pub(super) fn containers(run: &mut Run<'_>, all: &[ResizeContainer]) -> Result<(), Reason> {
    let (tools, work) = (run.tools, run.work);
    let values = pod_cgroup_values(run);
    let level = qos_level(run);
    may_shrink(run, all, values.memory_limit)?;
    ask_runtime(run)?;
    if let Some(cgroups) = &tools.cgroups {
        cgroups.raise(&cgroups.pod(level, &work.uid), &values).map_err(|e| reason(ERROR, explain(&e)))?;
    }
    // Those first that give something back.
    let mut all: Vec<&ResizeContainer> = all.iter().collect();
    order::sort_by_key(&mut all, |one| {
        (one.to.memory_limit > one.from.memory_limit, one.to.cpu_limit > one.from.cpu_limit)
    });
    for one in all {
        let Some((_, container)) = find_container(&work.pod, &one.name) else { continue };
        let resources = container_resources(&work.pod, &container, &tools.facts);
        tools
            .client
            .update_container_resources(&one.id, &resources, &work.cancel)
            .map_err(|error| cri(ERROR, &error))?;
    }
    if let Some(cgroups) = &tools.cgroups {
        cgroups.ensure_pod(level, &work.uid, &values).map_err(|e| reason(ERROR, explain(&e)))?;
        weigh_burstable(run);
    }
    Ok(())
}

/// Tells the runtime what the whole pod will have, before anything of it changes: one that runs pods in machines of their
/// own has to make room, and may refuse. One that knows no such call has no part in it.
fn ask_runtime(run: &mut Run<'_>) -> Result<(), Reason> {
    let (tools, work) = (run.tools, run.work);
    let Some(sandbox) = run.sandbox.clone() else { return Ok(()) };
    let spec = run.sandbox_spec(sandbox.attempt)?;
    let client = &tools.client;
    match client.update_pod_sandbox_resources(&sandbox.id, &spec.overhead, &spec.resources, &work.cancel) {
        Err(error) if !error.is_unimplemented() => Err(cri(ERROR, &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Refuses a memory limit below what is in use now: the kernel would kill somebody for it. What is not known does not
/// stand in the way of a container; it is asked for again each time.
fn may_shrink(run: &Run<'_>, all: &[ResizeContainer], pod_limit: Option<i64>) -> Result<(), Reason> {
    let (tools, work) = (run.tools, run.work);
    let shrinks = |one: &&ResizeContainer| {
        one.to.memory_limit > 0 && (one.from.memory_limit == 0 || one.to.memory_limit < one.from.memory_limit)
    };
    let mut problems = Vec::new();
    let mut any = false;
    for one in all.iter().filter(shrinks) {
        any = true;
        let stats = tools.client.container_stats(&one.id, &work.cancel).map_err(|error| cri(ERROR, &error))?;
        match stats.memory.and_then(|memory| memory.usage.or(memory.working_set)) {
            Some(usage) if i64::try_from(usage).is_ok_and(|usage| usage < one.to.memory_limit) => {}
            Some(usage) => problems.push(format!(
                "attempting to set container {:?} memory limit ({}) below current usage ({usage})",
                one.name, one.to.memory_limit
            )),
            None => problems.push(format!("missing container {:?} memory usage", one.name)),
        }
    }
    let usage = tools.cgroups.as_ref().filter(|_| any).map(|cgroups| {
        cgroups.memory_usage(&cgroups.pod(qos_level(run), &work.uid)).map_err(|e| reason(ERROR, explain(&e)))
    });
    if let (Some(usage), Some(limit)) = (usage.transpose()?.flatten(), pod_limit.filter(|limit| *limit > 0))
        && i64::try_from(usage).is_ok_and(|usage| usage >= limit)
    {
        problems.push(format!("attempting to set pod memory limit ({limit}) below current usage ({usage})"));
    }
    if problems.is_empty() { Ok(()) } else { Err(reason(ERROR, problems.join(", "))) }
}

//! When all trouble has ended: the node comes to rest, and what runs is what is wanted.

use std::collections::BTreeSet;

use ferrolet::api::PodUid;
use ferrolet::api::pod::{
    ContainerKind, RestartPolicy, all_containers, container_restart_policy, find_container, pod_uid,
};
use ferrolet::api::runtime::{ContainerState, SandboxState};
use ferrolet::api::v1::Pod;
use ferrolet::core::node::Input;
use ferrolet::msg::SourceKind;

use super::runtime::{at_rest, lives};
use super::world::World;

/// Turns within which a node comes to rest.
const LIMIT: u32 = 20_000;

/// Runs the world until nothing happens any more, then looks at what is there.
pub(super) fn come_to_rest(world: &mut World) {
    let mut idle = 0;
    for _ in 0..LIMIT {
        if !world.runtime.broken.is_empty() {
            return;
        }
        let before = world.effects();
        let happened = world.step();
        if happened {
            if world.effects() != before {
                idle = 0;
            }
            continue;
        }
        if end_what_ends(world) {
            idle = 0;
            continue;
        }
        // Relists without consequences are what rest looks like; the loop hears of every tenth.
        idle += 1;
        if idle > 12 && world.is_quiet() && world.node.next_deadline().is_none() {
            return look_around(world);
        }
        world.wait_for_next();
    }
    world.runtime.broken.push("it does not come to rest".to_owned());
}

/// Init containers and jobs end well by themselves; services run on.
fn end_what_ends(world: &mut World) -> bool {
    let found = world.running().into_iter().find(|(uid, id)| {
        let seen = world.runtime.pods.get(uid).and_then(|p| p.containers.iter().find(|c| c.id == *id));
        let spec = world.specs.get(uid).zip(seen).and_then(|(pod, seen)| find_container(pod, &seen.name));
        spec.is_some_and(|(kind, container)| kind == ContainerKind::Init || container.name.starts_with("job"))
    });
    if let Some((uid, id)) = &found {
        world.end(uid, id, 0);
    }
    found.is_some()
}

fn look_around(world: &mut World) {
    let mut broken = Vec::new();
    let sets = [SourceKind::File, SourceKind::Http].map(|source| world.manifests.of(source).pods);
    let wanted: Vec<Pod> = sets.iter().flatten().map(|p| p.as_ref().clone()).collect();
    let uids: BTreeSet<PodUid> = wanted.iter().map(pod_uid).collect();
    for pod in &wanted {
        broken.extend(look_at(world, pod));
    }
    for (what, others) in [
        ("the runtime has", world.runtime.pods.keys().cloned().collect::<Vec<_>>()),
        ("there are folders of", world.runtime.folders.iter().cloned().collect()),
        ("there is a record of", world.disk.keys().cloned().collect()),
    ] {
        broken.extend(
            others.iter().filter(|uid| !uids.contains(*uid)).map(|uid| format!("{what} {uid}, which nobody wants")),
        );
    }
    let now = world.clock();
    let shown: BTreeSet<PodUid> = world.node.view(now).pods.keys().cloned().collect();
    if shown != uids {
        broken.push(format!("the node shows {shown:?}, wanted are {uids:?}"));
    }
    let more = world.node.step(now, Input::Timer);
    if !more.is_empty() {
        broken.push(format!("a timer at rest leads to {more:?}"));
    }
    world.runtime.broken.extend(broken);
}

/// One wanted pod: what should run does, once, and nothing beside it.
fn look_at(world: &mut World, pod: &Pod) -> Vec<String> {
    let uid = pod_uid(pod);
    let now = world.clock();
    let stage = world.node.pod_view(now, &uid).map(|v| v.stage.clone()).unwrap_or_default();
    let Some(seen) = world.runtime.pods.get(&uid) else {
        // All that it left may have been removed by hand.
        return if stage == "Ended" {
            Vec::new()
        } else {
            vec![format!("{uid}: is {stage} and there is nothing of it")]
        };
    };
    if stage == "Ended" {
        let may_end = pod.spec.as_ref().is_some_and(|s| s.active_deadline_seconds.is_some())
            || all_containers(pod)
                .filter(|(kind, _)| *kind == ContainerKind::App)
                .all(|(kind, c)| container_restart_policy(pod, kind, &c) != RestartPolicy::Always);
        let mut broken = Vec::new();
        if !may_end {
            broken.push(format!("{uid}: has ended though it always restarts"));
        }
        if !at_rest(seen) {
            broken.push(format!("{uid}: has ended and something of it runs"));
        }
        return broken;
    }
    let mut broken = Vec::new();
    if stage != "Active" {
        broken.push(format!("{uid}: is {stage}"));
    }
    if seen.sandboxes.iter().filter(|s| s.state == SandboxState::Ready).count() != 1 {
        broken.push(format!("{uid}: has not one ready sandbox"));
    }
    for (kind, container) in all_containers(pod) {
        let instances = || seen.containers.iter().filter(|c| c.name == container.name);
        let running = instances().filter(|c| matches!(c.state, ContainerState::Running { .. })).count();
        let over = container_restart_policy(pod, kind, &container) == RestartPolicy::Never;
        let expected = match kind {
            ContainerKind::Init | ContainerKind::Ephemeral => 0,
            ContainerKind::Sidecar => 1,
            ContainerKind::App => usize::from(!over),
        };
        let past = world.runtime.asked.get(&uid).and_then(|past| past.get(container.name.as_str()));
        if past.is_some_and(|past| instances().all(|c| c.attempt <= *past)) {
            broken.push(format!("{uid}: {} did not restart with all others", container.name));
        }
        if running != expected {
            broken.push(format!("{uid}: {running} of {} run, not {expected}", container.name));
        }
    }
    if let Some(view) = world.node.pod_view(now, &uid) {
        let lists = [&view.status.container_statuses, &view.status.init_container_statuses];
        let runs =
            lists.into_iter().flatten().flatten().filter(|c| c.state.as_ref().is_some_and(|s| s.running.is_some()));
        broken.extend(runs.filter(|c| !c.ready).map(|c| format!("{uid}: {} runs well and is not ready", c.name)));
    }
    world.runtime.asked.remove(&uid);
    let strangers = seen.containers.iter().filter(|c| lives(c) && find_container(pod, &c.name).is_none());
    broken.extend(strangers.map(|c| format!("{uid}: {} runs and is not in the spec", c.id)));
    broken
}

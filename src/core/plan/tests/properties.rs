//! What holds of every single plan, whatever the pod, the runtime and the memory are like.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::strategies::{a_broken_scene, a_scene};
use super::*;
use crate::api::pod::{
    ContainerKind, app_containers, ephemeral_target, find_container, grace_seconds, init_containers, is_sidecar,
};
use crate::api::v1::Container;
use crate::core::status::restarts_all;
use crate::msg::ResizeContainer;

type Held = Result<(), TestCaseError>;

/// The starts of a plan: where each stands, its kind, name and attempt.
fn starts<'a>(plan: &'a Plan) -> Vec<(usize, ContainerKind, &'a str, u32)> {
    let start = |(i, planned): (usize, &'a PlannedStep)| match &planned.step {
        Step::StartContainer { kind, name, attempt, .. } => Some((i, *kind, name.as_str(), *attempt)),
        _ => None,
    };
    plan.steps.iter().enumerate().filter_map(start).collect()
}

/// Where the plan makes a sandbox, and with which attempt.
fn new_sandbox(plan: &Plan) -> Option<(usize, u32)> {
    plan.steps.iter().enumerate().find_map(|(i, planned)| match planned.step {
        Step::RunSandbox { attempt } => Some((i, attempt)),
        _ => None,
    })
}

/// The containers that these steps stop for sure: what follows is not tried when one of them fails.
fn stopped_for_sure<'a>(steps: &'a [PlannedStep], observed: &'a RuntimePod) -> Vec<&'a ContainerId> {
    let sure = steps.iter().filter(|planned| planned.on_failure == OnFailure::Abort);
    sure.flat_map(|planned| match &planned.step {
        Step::StopContainers { containers, .. } => containers.iter().map(|stop| &stop.id).collect(),
        Step::StopSandbox(id) => {
            observed.containers.iter().filter(|c| c.sandbox_id == *id).map(|c| &c.id).collect::<Vec<_>>()
        }
        _ => Vec::new(),
    })
    .collect()
}

/// The newest instance of a container where the plan's containers live; none in a sandbox still to be made.
fn present<'a>(scene: &'a Scene, plan: &Plan, name: &str) -> Option<&'a RuntimeContainer> {
    let sandbox = newest_sandbox(&scene.observed).filter(|_| new_sandbox(plan).is_none())?;
    newest(scene.observed.containers.iter().filter(|c| c.sandbox_id == sandbox.id), name)
}

/// Every plan that a scene can lead to: to run, to end, to forget.
fn all_plans(scene: &Scene) -> [Plan; 4] {
    let grace = Duration::from_secs(20);
    [
        plan_active(&scene.input()),
        plan_ending(Some(&scene.pod), &scene.observed, grace, "why"),
        plan_ending(None, &scene.observed, grace, "why"),
        plan_forget(Some(&scene.observed), "why"),
    ]
}

fn shuffle<T>(list: &mut [T], mut seed: u64) {
    for last in (1..list.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        list.swap(last, usize::try_from(seed >> 33).expect("31 bits") % (last + 1));
    }
}

fn is_new(step: &Step) -> bool {
    matches!(step, Step::PreparePod | Step::RunSandbox { .. } | Step::StartContainer { .. })
}

/// Whether a container that ended with this code starts again, as the API's words have it.
fn starts_again(scene: &Scene, container: &Container, code: i32) -> bool {
    let own = container.restart_policy.as_deref();
    let of_pod = scene.pod.spec.as_ref().and_then(|s| s.restart_policy.as_deref()).unwrap_or("Always");
    let rule_says_so = container.restart_policy_rules.iter().flatten().any(|rule| {
        let on = rule.exit_codes.as_ref().expect("codes");
        on.values.as_ref().is_some_and(|values| values.contains(&code)) == (on.operator == "In")
    });
    match own.unwrap_or(of_pod) {
        _ if rule_says_so => true,
        "Never" => false,
        "OnFailure" => code != 0,
        _ => true,
    }
}

/// Whether an init container has done its part: those after it may come.
fn did_its_part(scene: &Scene, plan: &Plan, inits: &[Container], index: usize) -> bool {
    let container = &inits[index];
    let later = inits[index + 1..].iter().chain(app_containers(&scene.pod));
    if later.into_iter().any(|c| present(scene, plan, &c.name).is_some()) {
        return true;
    }
    let Some(instance) = present(scene, plan, &container.name) else { return false };
    match &instance.state {
        ContainerState::Exited(exit) => !is_sidecar(container) && exit.code == 0,
        ContainerState::Running { .. } => {
            let passed = scene.memory.get(&container.name).is_some_and(|m| m.started.as_ref() == Some(&instance.id));
            is_sidecar(container) && (container.startup_probe.is_none() || passed)
        }
        ContainerState::Created | ContainerState::Unknown => false,
    }
}

fn order_is_kept(scene: &Scene, plan: &Plan) -> Held {
    let inits = init_containers(&scene.pod);
    let apps = app_containers(&scene.pod);
    for (_, kind, name, _) in starts(plan) {
        let spec = find_container(&scene.pod, name);
        prop_assert_eq!(Some(kind), spec.map(|(kind, _)| kind), "{} is of another kind", name);
        let place = inits.iter().position(|c| c.name == name).unwrap_or(inits.len());
        let later = || inits.iter().skip(place + 1).chain(apps);
        match kind {
            ContainerKind::Sidecar if later().any(|c| present(scene, plan, &c.name).is_some()) => continue,
            ContainerKind::App if apps.iter().any(|c| present(scene, plan, &c.name).is_some()) => continue,
            ContainerKind::Init => {
                let passed_by = later().find(|c| present(scene, plan, &c.name).is_some());
                prop_assert!(passed_by.is_none(), "{} again though {:?} is there", name, passed_by.map(|c| &c.name));
            }
            // Whatever the others do.
            ContainerKind::Ephemeral => continue,
            ContainerKind::Sidecar | ContainerKind::App => {}
        }
        for earlier in 0..place {
            let done = did_its_part(scene, plan, inits, earlier);
            prop_assert!(done, "{} before {} did its part", name, inits[earlier].name);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_input_has_a_plan_with_a_reason_for_each_step(scene in a_broken_scene()) {
        for plan in all_plans(&scene) {
            prop_assert!(plan.steps.iter().all(|planned| !planned.cause.is_empty()), "{}", transcript(&plan));
        }
    }

    #[test]
    fn the_order_of_the_runtimes_lists_changes_no_plan(mut scene in a_scene(), seed in any::<u64>()) {
        let before = all_plans(&scene);
        prop_assert_eq!(&before, &all_plans(&scene));
        shuffle(&mut scene.observed.containers, seed);
        shuffle(&mut scene.observed.sandboxes, seed);
        for (before, after) in before.iter().zip(&all_plans(&scene)) {
            prop_assert_eq!(transcript(before), transcript(after));
            prop_assert_eq!(before, after);
        }
    }

    #[test]
    fn a_plan_speaks_only_of_what_was_seen(scene in a_broken_scene()) {
        let container = |id: &ContainerId| scene.observed.containers.iter().any(|c| c.id == *id);
        let sandbox = |id| scene.observed.sandboxes.iter().any(|s| s.id == id);
        for plan in all_plans(&scene) {
            for planned in plan.steps {
                let known = match planned.step {
                    Step::StopContainers { containers, .. } => containers.iter().all(|stop| container(&stop.id)),
                    Step::RemoveContainer { id, .. } => container(&id),
                    Step::StopSandbox(id) | Step::RemoveSandbox(id) => sandbox(id),
                    Step::ResizeContainers(all) => all.iter().all(|one| container(&one.id)),
                    Step::StartContainer { name, .. } => find_container(&scene.pod, &name).is_some(),
                    Step::PreparePod | Step::RunSandbox { .. } | Step::ReleasePod | Step::ForgetPod => true,
                    Step::AskAdmissionHook => false,
                };
                prop_assert!(known, "{}", planned.cause);
            }
        }
    }

    #[test]
    fn no_container_starts_beside_a_live_instance_of_it(scene in a_scene()) {
        let plan = plan_active(&scene.input());
        for (at, _, name, _) in starts(&plan) {
            let stopped = stopped_for_sure(&plan.steps[..at], &scene.observed);
            let mut alive = scene.observed.containers.iter().filter(|c| c.name == name && c.state.may_run());
            prop_assert!(alive.all(|c| stopped.contains(&&c.id)), "{name}:\n{}", transcript(&plan));
            let starts = starts(&plan).iter().filter(|(_, _, other, _)| *other == name).count();
            prop_assert_eq!(starts, 1, "{}:\n{}", name, transcript(&plan));
        }
    }

    #[test]
    fn no_sandbox_is_made_beside_a_ready_one_or_a_live_container(scene in a_scene()) {
        let plan = plan_active(&scene.input());
        if let Some((at, _)) = new_sandbox(&plan) {
            let before = &plan.steps[..at];
            let mut ready = scene.observed.sandboxes.iter().filter(|s| is_ready(s));
            let is_stopped = |s: &RuntimeSandbox| {
                let mut sure = before.iter().filter(|planned| planned.on_failure == OnFailure::Abort);
                sure.any(|planned| planned.step == Step::StopSandbox(s.id.clone()))
            };
            prop_assert!(ready.all(is_stopped), "{}", transcript(&plan));
            let stopped = stopped_for_sure(before, &scene.observed);
            let mut alive = scene.observed.containers.iter().filter(|c| c.state.may_run());
            prop_assert!(alive.all(|c| stopped.contains(&&c.id)), "{}", transcript(&plan));
            prop_assert!(before.iter().any(|planned| planned.step == Step::PreparePod), "{}", transcript(&plan));
        }
    }

    #[test]
    fn nothing_is_made_while_a_pod_ends(scene in a_scene(), grace in 0..60_u64) {
        let grace = Duration::from_secs(grace);
        let ending = plan_ending(Some(&scene.pod), &scene.observed, grace, "why");
        let unknown = plan_ending(None, &scene.observed, grace, "why");
        let forget = plan_forget(Some(&scene.observed), "why");
        for plan in [&ending, &unknown, &forget] {
            prop_assert!(plan.steps.iter().all(|planned| !is_new(&planned.step)), "{}", transcript(plan));
        }
        // It is brought to rest, all of it, and a pod at rest is left in peace.
        let stopped = ending.steps.iter().flat_map(|planned| match &planned.step {
            Step::StopContainers { containers, .. } => containers.iter().map(|stop| &stop.id).collect(),
            _ => Vec::new(),
        });
        let mut stopped: Vec<&ContainerId> = stopped.collect();
        let alive = scene.observed.containers.iter().filter(|c| c.state.may_run());
        let mut alive: Vec<&ContainerId> = alive.map(|c| &c.id).collect();
        stopped.sort();
        alive.sort();
        prop_assert_eq!(stopped, alive);
        prop_assert_eq!(ending.steps.is_empty(), at_rest(&scene.observed));
    }

    #[test]
    fn a_pod_that_has_ended_has_nothing_planned(scene in a_scene()) {
        let plan = plan_active(&scene.input());
        if plan.ended.is_some() {
            prop_assert!(plan.steps.is_empty() && plan.wake_at.is_none(), "{}", transcript(&plan));
            prop_assert!(plan.restarts.is_empty() && plan.waiting.is_empty(), "{}", transcript(&plan));
        }
    }

    #[test]
    fn what_shall_not_run_again_does_not(scene in a_scene()) {
        let plan = plan_active(&scene.input());
        for (_, kind, name, _) in starts(&plan) {
            let (_, container) = find_container(&scene.pod, name).expect("a container of the pod");
            let over = |code| !starts_again(&scene, &container, code);
            // What counts is the newest instance where the container lives, else the newest of all, else the memory.
            let last = present(&scene, &plan, name).or_else(|| newest(&scene.observed.containers, name));
            let remembered = scene.memory.get(name).and_then(|m| m.last_run.exit_code());
            match (kind, last.map(|c| &c.state)) {
                (ContainerKind::App, Some(ContainerState::Exited(exit))) => {
                    prop_assert!(!over(exit.code), "{name} after {}:\n{}", exit.code, transcript(&plan));
                }
                (ContainerKind::App, None) => {
                    prop_assert!(!remembered.is_some_and(over), "{name}:\n{}", transcript(&plan));
                }
                _ => {}
            }
        }
        // When all apps are done nothing starts any more, sidecars neither.
        let is_done = |c: &Container| match present(&scene, &plan, &c.name).map(|i| &i.state) {
            Some(ContainerState::Exited(exit)) => !starts_again(&scene, c, exit.code),
            Some(_) | None => false,
        };
        if app_containers(&scene.pod).iter().all(is_done) {
            prop_assert!(starts(&plan).is_empty(), "{}", transcript(&plan));
        }
        // An init container that failed for good takes the pod with it.
        let failed = init_containers(&scene.pod).iter().filter(|c| !is_sidecar(c)).find(|c| {
            let state = present(&scene, &plan, &c.name).map(|i| &i.state);
            let is_over = |code| code != 0 && !starts_again(&scene, c, code);
            matches!(state, Some(ContainerState::Exited(exit)) if is_over(exit.code))
        });
        let later_is_there = |c: &Container| {
            let later = init_containers(&scene.pod).iter().skip_while(|other| other.name != c.name).skip(1);
            later.chain(app_containers(&scene.pod)).any(|c| present(&scene, &plan, &c.name).is_some())
        };
        if new_sandbox(&plan).is_none() && failed.is_some_and(|c| !later_is_there(c)) {
            // Whoever debugs it may still look: one that is added starts beside the chain, as upstream.
            let others = starts(&plan).into_iter().filter(|(_, kind, ..)| *kind != ContainerKind::Ephemeral);
            prop_assert!(others.count() == 0, "{}", transcript(&plan));
        }
    }

    #[test]
    fn all_containers_restart_together_or_not_at_all(scene in a_scene()) {
        let plan = plan_active(&scene.input());
        let named = |c: &&RuntimeContainer| {
            find_container(&scene.pod, &c.name).is_some_and(|(kind, _)| kind != ContainerKind::Ephemeral)
        };
        let removes = |id: &ContainerId| {
            plan.steps.iter().any(|p| matches!(&p.step, Step::RemoveContainer { id: removed, .. } if removed == id))
        };
        let asks = |c: &RuntimeContainer| match &c.state {
            ContainerState::Exited(exit) => find_container(&scene.pod, &c.name)
                .is_some_and(|(_, spec)| restarts_all(&spec, exit.code, RestartAll::InForce)),
            _ => false,
        };
        let mut present = scene.observed.containers.iter().filter(named);
        let asked = present.clone().any(|c| asks(c) && newest(&scene.observed.containers, &c.name) == Some(c));
        prop_assert!(!asked || !plan.new_round.is_empty(), "{}", transcript(&plan));
        if !plan.new_round.is_empty() {
            prop_assert!(plan.steps.iter().all(|planned| !is_new(&planned.step)), "{}", transcript(&plan));
            prop_assert!(present.clone().all(|c| removes(&c.id)), "{}", transcript(&plan));
            let is_past = |c: &RuntimeContainer| plan.new_round[&c.name] > c.attempt;
            prop_assert!(present.all(is_past), "{}", transcript(&plan));
            // Whoever asked goes last, so that what is left tells what is going on.
            let order = plan.steps.iter().filter_map(|planned| match &planned.step {
                Step::RemoveContainer { id, .. } => scene.observed.containers.iter().find(|c| c.id == *id).map(asks),
                _ => None,
            });
            prop_assert!(order.is_sorted(), "{}", transcript(&plan));
        }
    }

    #[test]
    fn init_containers_and_sidecars_come_in_their_order(scene in a_scene()) {
        let plan = plan_active(&scene.input());
        order_is_kept(&scene, &plan)?;
        // A plain init container that still runs, its turn long past or not, is waited for.
        let begun = app_containers(&scene.pod).iter().any(|c| present(&scene, &plan, &c.name).is_some());
        for (at, kind, name, _) in starts(&plan) {
            let stopped = stopped_for_sure(&plan.steps[..at], &scene.observed);
            let mut running = init_containers(&scene.pod).iter().filter(|c| !is_sidecar(c)).filter(|c| {
                let live = present(&scene, &plan, &c.name).filter(|i| i.state.may_run());
                live.is_some_and(|i| !stopped.contains(&&i.id))
            });
            let along = matches!(kind, ContainerKind::Sidecar | ContainerKind::Ephemeral);
            let waits = along || begun || running.next().is_none();
            prop_assert!(waits, "{} starts beside an init container:\n{}", name, transcript(&plan));
        }
        // One plain init container at a time, and no app beside it.
        let plain = starts(&plan).iter().filter(|(_, kind, ..)| *kind == ContainerKind::Init).count();
        let apps = starts(&plan).iter().filter(|(_, kind, ..)| *kind == ContainerKind::App).count();
        prop_assert!(plain <= 1 && (plain == 0 || apps == 0), "{}", transcript(&plan));
    }

    #[test]
    fn an_ephemeral_container_starts_once_and_beside_its_target(scene in a_scene()) {
        let plan = plan_active(&scene.input());
        for planned in &plan.steps {
            let Step::StartContainer { kind, name, target, .. } = &planned.step else { continue };
            let wanted = ephemeral_target(&scene.pod, name);
            prop_assert_eq!(target.is_some(), wanted.is_some(), "{}", transcript(&plan));
            if *kind != ContainerKind::Ephemeral {
                continue;
            }
            prop_assert!(newest(&scene.observed.containers, name).is_none(), "{}", transcript(&plan));
            let ran = scene.memory.get(name).is_some_and(|m| m.last_run != LastRun::Never);
            prop_assert!(!ran && new_sandbox(&plan).is_none(), "{}", transcript(&plan));
            let of_target = wanted.and_then(|wanted| present(&scene, &plan, wanted)).map(|c| &c.id);
            prop_assert_eq!(target.as_ref(), of_target, "{}", transcript(&plan));
        }
    }

    #[test]
    fn no_stop_takes_longer_than_it_may(scene in a_scene(), left in 0..60_u64) {
        let left = Duration::from_secs(left);
        let longest = |plan: &Plan| {
            let graces = plan.steps.iter().filter_map(|planned| match &planned.step {
                Step::StopContainers { grace, .. } => Some(*grace),
                _ => None,
            });
            graces.max().unwrap_or_default()
        };
        // The rest of an ending's grace period is all there is, whatever the pod asks for.
        prop_assert!(longest(&plan_ending(Some(&scene.pod), &scene.observed, left, "why")) <= left);
        prop_assert!(longest(&plan_ending(None, &scene.observed, left, "why")) <= left);
        // A probe may have a period of its own; in these pods it is 7 s.
        let own = Duration::from_secs(7).max(seconds(grace_seconds(&scene.pod)));
        prop_assert!(longest(&plan_active(&scene.input())) <= own);
    }

    #[test]
    fn no_attempt_is_used_twice(scene in a_scene()) {
        let plan = plan_active(&scene.input());
        for (_, _, name, attempt) in starts(&plan) {
            let mut seen = scene.observed.containers.iter().filter(|c| c.name == name);
            let below = |c: &RuntimeContainer| c.attempt < attempt && c.marks.restart_count.unwrap_or(0) < attempt;
            prop_assert!(seen.all(below), "{}", transcript(&plan));
            prop_assert!(scene.memory.get(name).is_none_or(|m| m.next_attempt <= attempt), "{}", transcript(&plan));
        }
        if let Some((_, attempt)) = new_sandbox(&plan) {
            let below = scene.observed.sandboxes.iter().all(|s| s.attempt < attempt);
            prop_assert!(below && scene.next_sandbox_attempt <= attempt, "{}", transcript(&plan));
        }
    }

    #[test]
    fn stops_come_before_starts_and_removals_last(scene in a_scene()) {
        let plan = plan_active(&scene.input());
        let made = new_sandbox(&plan).map(|(at, _)| at);
        for (i, planned) in plan.steps.iter().enumerate() {
            let later = &plan.steps[i + 1..];
            match &planned.step {
                Step::StartContainer { name, .. } => {
                    let stops_it = later.iter().any(|planned| match &planned.step {
                        Step::StopContainers { containers, .. } => containers.iter().any(|stop| stop.name == *name),
                        Step::StopSandbox(_) | Step::RunSandbox { .. } | Step::PreparePod => true,
                        _ => false,
                    });
                    prop_assert!(!stops_it, "{}", transcript(&plan));
                    prop_assert!(made.is_none_or(|made| made < i), "{}", transcript(&plan));
                }
                Step::ResizeContainers(all) => {
                    let stops = |step: &Step| matches!(step, Step::StopContainers { .. } | Step::StopSandbox(_));
                    prop_assert!(!later.iter().any(|planned| stops(&planned.step)), "{}", transcript(&plan));
                    let started = plan.steps[..i].iter().any(|p| matches!(p.step, Step::StartContainer { .. }));
                    prop_assert!(!started && made.is_none() && !all.is_empty(), "{}", transcript(&plan));
                    let runs = |c: &RuntimeContainer| matches!(c.state, ContainerState::Running { .. });
                    let present = |one: &ResizeContainer| present(&scene, &plan, &one.name).is_some_and(|c| c.id == one.id && runs(c));
                    prop_assert!(all.iter().all(present), "{}", transcript(&plan));
                }
                Step::RunSandbox { .. } => {
                    let stops = |step: &Step| matches!(step, Step::StopContainers { .. } | Step::StopSandbox(_));
                    prop_assert!(!later.iter().any(|planned| stops(&planned.step)), "{}", transcript(&plan));
                }
                Step::RemoveContainer { .. } | Step::RemoveSandbox(_) => {
                    let removes = |step: &Step| matches!(step, Step::RemoveContainer { .. } | Step::RemoveSandbox(_));
                    prop_assert!(later.iter().all(|planned| removes(&planned.step)), "{}", transcript(&plan));
                }
                Step::PreparePod | Step::StopContainers { .. } | Step::StopSandbox(_) => {}
                Step::ReleasePod | Step::ForgetPod => prop_assert!(false, "an active pod is not forgotten"),
                Step::AskAdmissionHook => prop_assert!(false, "an active pod was admitted"),
            }
        }
    }

    #[test]
    fn only_the_dead_are_removed_and_the_present_stays(scene in a_scene()) {
        let plan = plan_active(&scene.input());
        for planned in &plan.steps {
            match &planned.step {
                Step::RemoveContainer { id, name, .. } => {
                    let seen = scene.observed.containers.iter().find(|c| c.id == *id).expect("one that was seen");
                    prop_assert_eq!(&seen.name, name);
                    if !plan.new_round.is_empty() {
                        // All containers restart, so all of them go; what lives is stopped first.
                        let stopped = stopped_for_sure(&plan.steps, &scene.observed);
                        prop_assert!(!seen.state.may_run() || stopped.contains(&id), "{}", transcript(&plan));
                        continue;
                    }
                    prop_assert!(!seen.state.may_run(), "{}", transcript(&plan));
                    let present = newest(&scene.observed.containers, name);
                    prop_assert!(present.is_none_or(|c| c.id != *id), "{}", transcript(&plan));
                }
                Step::RemoveSandbox(id) => {
                    let inside = scene.observed.containers.iter().filter(|c| c.sandbox_id == *id);
                    let mut alive = inside.filter(|c| c.state.may_run());
                    prop_assert!(alive.next().is_none(), "{}", transcript(&plan));
                    let ready = scene.observed.sandboxes.iter().any(|s| s.id == *id && is_ready(s));
                    prop_assert!(!ready, "{}", transcript(&plan));
                }
                _ => {}
            }
        }
    }
}

//! CPU and memory of a running pod change: what is allocated, what the node has room for, how it is told.
//!
//! Layer L1, pure. Three things are told apart: what the pod's source wants, what the node has set aside for it (with
//! which all else is computed), and what its running containers have. Only CPU and memory change in place; ephemeral
//! containers have neither.

use std::cmp::Ordering;
use std::fmt::Write as _;

use serde::Serialize;

use super::admit::{AdmissionView, shortage};
use super::qos::{self, CPU, MEMORY, Overhead, amount};
use crate::api::pod::{self, ContainerKind, all_containers, app_containers, init_containers};
use crate::api::record::Sizes;
use crate::api::v1::{Container, Pod, ResourceRequirements};

/// Whether containers of this kind can be resized.
pub fn is_resizable(kind: ContainerKind) -> bool {
    kind != ContainerKind::Ephemeral
}

/// What a container of the pod shall have. One without a limit may use what the pod as a whole may.
pub fn sizes(pod: &Pod, container: &Container) -> Sizes {
    let own = container.resources.as_ref();
    let (requests, limits) = (own.and_then(|r| r.requests.as_ref()), own.and_then(|r| r.limits.as_ref()));
    let of_pod = pod::spec(pod).and_then(|s| s.resources.as_ref()).and_then(|r| r.limits.as_ref());
    let limit = |name: &str| match amount(limits, name) {
        own if own.is_zero() => amount(of_pod, name),
        own => own,
    };
    Sizes {
        cpu_request: amount(requests, CPU).milli_value(),
        cpu_limit: limit(CPU).milli_value(),
        memory_request: amount(requests, MEMORY).value(),
        memory_limit: limit(MEMORY).value(),
    }
}

/// The pod as its source wants it, with the resources that `before` has; `None` where they are the same.
pub fn with_resources_of(wanted: &Pod, before: &Pod) -> Option<Pod> {
    let (spec, old) = (wanted.spec.as_ref()?, before.spec.as_ref()?);
    let find = |name: &str| init_containers(before).iter().chain(app_containers(before)).find(|c| c.name == name);
    let differs = |c: &Container| find(&c.name).is_some_and(|old| old.resources != c.resources);
    let same = spec.resources == old.resources && !init_containers(wanted).iter().chain(&spec.containers).any(differs);
    if same {
        return None;
    }
    let mut pod = wanted.clone();
    let spec = pod.spec.as_mut()?;
    spec.resources.clone_from(&old.resources);
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        if let Some(old) = find(&container.name) {
            container.resources.clone_from(&old.resources);
        }
    }
    Some(pod)
}

/// The containers that get other sizes, with what they had.
pub fn changed<'a>(wanted: &'a Pod, before: &'a Pod) -> impl Iterator<Item = (String, Sizes)> + 'a {
    all_containers(wanted).filter(|(kind, _)| is_resizable(*kind)).filter_map(move |(_, container)| {
        let (_, old) = pod::find_container(before, &container.name)?;
        let old = sizes(before, &old);
        (old != sizes(wanted, &container)).then(|| (container.name.clone(), old))
    })
}

/// One change of CPU or memory that a pod's source asks for, in the words of the metric that counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizeAsked {
    /// `cpu` or `memory`.
    pub resource: &'static str,
    /// `requests` or `limits`.
    pub requirement: &'static str,
    /// `add`, `remove`, `increase` or `decrease`.
    pub operation: &'static str,
}

/// What `wanted` asks for its containers that `before` did not.
pub fn asked(wanted: &Pod, before: &Pod) -> Vec<ResizeAsked> {
    let mut all = Vec::new();
    for (_, old) in all_containers(before).filter(|(kind, _)| is_resizable(*kind)) {
        let Some((_, new)) = pod::find_container(wanted, &old.name) else { continue };
        for resource in [MEMORY, CPU] {
            for requirement in ["requests", "limits"] {
                let of = |container: &Container| {
                    let own = container.resources.as_ref();
                    let list = if requirement == "limits" {
                        own.and_then(|r| r.limits.as_ref())
                    } else {
                        own.and_then(|r| r.requests.as_ref())
                    };
                    amount(list, resource)
                };
                let (new, old) = (of(&new), of(&old));
                let operation = match new.cmp(&old) {
                    Ordering::Equal => continue,
                    _ if old.is_zero() => "add",
                    _ if new.is_zero() => "remove",
                    Ordering::Greater => "increase",
                    Ordering::Less => "decrease",
                };
                all.push(ResizeAsked { resource, requirement, operation });
            }
        }
    }
    all
}

/// Whether a container has to be started anew to get other sizes.
pub fn needs_restart(container: &Container, from: Sizes, to: Sizes) -> bool {
    let restarts = |resource: &str| {
        let policies = container.resize_policy.as_deref().unwrap_or_default();
        policies.iter().find(|p| p.resource_name == resource).is_some_and(|p| p.restart_policy == "RestartContainer")
    };
    let cpu = (from.cpu_request, from.cpu_limit) != (to.cpu_request, to.cpu_limit);
    let memory = (from.memory_request, from.memory_limit) != (to.memory_request, to.memory_limit);
    (cpu && restarts(CPU)) || (memory && restarts(MEMORY))
}

/// Why the node has no room for a pod as it wants to be; `None` where it has. `view` is without the pod itself.
pub fn refusal(wanted: &Pod, view: &AdmissionView<'_>) -> Option<String> {
    shortage(wanted, view)
}

/// Whether a pod asks for more than before.
pub fn grows(wanted: &Pod, before: &Pod) -> bool {
    let (new, old) = (qos::pod_requests(wanted, Overhead::Included), qos::pod_requests(before, Overhead::Included));
    [CPU, MEMORY].iter().any(|name| {
        let of = |list: &qos::ResourceList| list.get(*name).copied().unwrap_or_default();
        of(&new) > of(&old)
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<Part<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<Part<'a>>,
    generation: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

#[derive(Serialize)]
struct Part<'a> {
    name: &'a str,
    resources: ResourceRequirements,
}

/// The message of an event about a resize: what happened, and the sizes that it is about as JSON.
pub fn message(what: &str, pod: &Pod, generation: i64, error: &str) -> String {
    fn parts(list: &[Container]) -> Vec<Part<'_>> {
        let part = |c: &'_ Container| c.resources.clone().unwrap_or_default();
        list.iter().map(|c| Part { name: &c.name, resources: part(c) }).collect()
    }
    let summary = Summary {
        init_containers: parts(init_containers(pod)),
        containers: parts(app_containers(pod)),
        generation,
        error,
    };
    let mut text = format!("Pod resize {what}");
    if let Ok(json) = serde_json::to_string(&summary) {
        let _ = write!(text, ": {json}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::admit::{Claim, Limits, Other};
    use serde_json::{Value, json};

    fn pod(a: Value, of_pod: Value) -> Pod {
        let containers = json!([{"name": "a", "resources": a}, {"name": "b", "resources": {"limits": {"cpu": "2"}}}]);
        let spec = json!({"resources": of_pod, "containers": containers, "initContainers": [{"name": "i"}]});
        serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u", "generation": 7}, "spec": spec}))
            .expect("a pod")
    }

    fn ask(cpu: &str, memory: &str) -> Value {
        json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}})
    }

    #[test]
    fn limits_of_the_pod_stand_in() {
        let p = pod(ask("100m", "1Ki"), json!({"limits": {"cpu": "1", "memory": "4Ki"}}));
        let of = |name: &str| sizes(&p, &pod::find_container(&p, name).expect("a container").1);
        let sizes = |cpu_request, cpu_limit, memory_request, memory_limit| Sizes {
            cpu_request,
            cpu_limit,
            memory_request,
            memory_limit,
        };
        assert_eq!(of("a"), sizes(100, 1000, 1024, 1024));
        assert_eq!(of("b"), sizes(0, 2000, 0, 4096));
        assert_eq!(of("i"), sizes(0, 1000, 0, 4096));
    }

    #[test]
    fn what_is_asked_for_is_told_in_the_words_of_the_metric() {
        let check = |before: Value, wanted: Value, expect: &[&str]| {
            let asked = asked(&pod(wanted, Value::Null), &pod(before, Value::Null));
            let told: Vec<String> =
                asked.iter().map(|a| format!("{} {} {}", a.resource, a.requirement, a.operation)).collect();
            assert_eq!(told, expect);
        };
        check(ask("1", "1Ki"), ask("1000m", "1024"), &[]);
        check(
            ask("1", "2Ki"),
            ask("2", "1Ki"),
            &["memory requests decrease", "memory limits decrease", "cpu requests increase"],
        );
        check(
            json!({"requests": {"cpu": "1"}}),
            json!({"limits": {"memory": "1"}}),
            &["memory limits add", "cpu requests remove"],
        );
        check(Value::Null, ask("0", "0"), &[]);
    }

    #[test]
    fn a_wish_is_kept_apart_from_what_is_allocated() {
        let none = Value::Null;
        let before = pod(ask("100m", "1Ki"), none.clone());
        assert_eq!(with_resources_of(&before.clone(), &before), None);
        let mut wanted = pod(ask("200m", "1Ki"), none.clone());
        wanted.metadata.generation = Some(8);
        let allocated = with_resources_of(&wanted, &before).expect("another one");
        assert_eq!((allocated.metadata.generation, &allocated.spec), (Some(8), &before.spec));
        let had: Vec<_> = changed(&wanted, &before).collect();
        assert_eq!(had.len(), 1);
        assert_eq!((had[0].0.as_str(), had[0].1.cpu_request), ("a", 100));
        assert!(grows(&wanted, &before) && !grows(&before, &wanted) && !grows(&before, &before));
        // A limit of the pod as a whole changes those that have none.
        let level = pod(ask("100m", "1Ki"), json!({"limits": {"memory": "8Ki"}}));
        assert!(with_resources_of(&level, &before).is_some());
        let names: Vec<String> = changed(&level, &before).map(|(name, _)| name).collect();
        assert_eq!(names, ["i", "b"]);
    }

    #[test]
    fn policies_say_what_needs_a_restart() {
        let policies = serde_json::from_value(json!([
            {"resourceName": "cpu", "restartPolicy": "NotRequired"},
            {"resourceName": "memory", "restartPolicy": "RestartContainer"},
        ]))
        .expect("policies");
        let container = Container { resize_policy: policies, ..Container::default() };
        let from = Sizes { cpu_request: 1, memory_limit: 1, ..Sizes::default() };
        for (to, expect) in [
            (from, false),
            (Sizes { cpu_request: 2, cpu_limit: 3, ..from }, false),
            (Sizes { memory_limit: 2, ..from }, true),
            (Sizes { memory_request: 1, ..from }, true),
        ] {
            assert_eq!(needs_restart(&container, from, to), expect, "{to:?}");
            assert!(!needs_restart(&Container::default(), from, to));
        }
    }

    #[test]
    fn room_is_what_others_leave() {
        let allocatable = qos::amounts(Some(
            &serde_json::from_value(json!({"cpu": "4", "memory": "4Ki", "pods": "2"})).expect("amounts"),
        ));
        let limits = Limits { allocatable, ..Limits::default() };
        let other = pod(ask("1", "1Ki"), Value::Null);
        let claim = Claim::of(&other);
        let view = AdmissionView { limits: &limits, others: &[Other { pod: &other, claim: &claim }] };
        assert_eq!(refusal(&pod(ask("1", "3Ki"), Value::Null), &view), None);
        let why = "Node didn't have enough resource: memory, requested: 4096, used: 1024, capacity: 4096";
        assert_eq!(refusal(&pod(ask("1", "4Ki"), Value::Null), &view).as_deref(), Some(why));
    }

    #[test]
    fn events_tell_the_sizes() {
        let p = pod(ask("1", "1Ki"), Value::Null);
        let sizes = r#"{"initContainers":[{"name":"i","resources":{}}],"containers":[{"name":"a","resources":{"limits":{"memory":"1Ki"},"requests":{"cpu":"1","memory":"1Ki"}}},{"name":"b","resources":{"limits":{"cpu":"2"}}}],"generation":7"#;
        assert_eq!(message("started", &p, 7, ""), format!("Pod resize started: {sizes}}}"));
        assert_eq!(
            message("Deferred", &p, 7, "no room"),
            format!("Pod resize Deferred: {sizes},\"error\":\"no room\"}}")
        );
    }
}

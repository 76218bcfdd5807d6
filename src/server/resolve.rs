//! Finds the pod and the container that somebody means. Pure; runs on the socket's connection threads.
//!
//! It never guesses: of two that fit equally none is taken, and both are told.

use std::sync::Arc;

use super::wire::{Failure, FailureKind};
use crate::api::ContainerId;
use crate::api::pod;
use crate::api::runtime::{ContainerState, RuntimeContainer};
use crate::api::v1::Pod;
use crate::msg::{NodeView, PodView};
use crate::util::order;

/// Most candidates that are told.
const CANDIDATES: usize = 10;

/// Names the container that `kubectl` takes without `-c`.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

fn failure(kind: FailureKind, message: String) -> Failure {
    Failure { kind, message }
}

/// The pod meant by `word`: its uid, `namespace/name`, its name in any namespace, or else the only one
/// whose name (`namespace/` before it or not) or uid starts with it. Of two with one name the one that
/// lives on is meant, not the one that ends.
///
/// # Errors
/// Nothing fits, or several do.
pub fn find_pod(view: &NodeView, word: &str) -> Result<Arc<PodView>, Failure> {
    let word = word.strip_prefix("pod/").or_else(|| word.strip_prefix("pods/")).unwrap_or(word);
    if word.is_empty() {
        return Err(failure(FailureKind::BadRequest, "no pod was named".to_owned()));
    }
    let full = |pod: &PodView| format!("{}/{}", pod.name.namespace, pod.name.name);
    let exact = |pod: &&Arc<PodView>| pod.uid.as_str() == word || pod.name.name == word || full(pod) == word;
    let prefix = |pod: &&Arc<PodView>| {
        pod.name.name.starts_with(word) || full(pod).starts_with(word) || pod.uid.as_str().starts_with(word)
    };
    let mut found: Vec<&Arc<PodView>> = view.pods.values().filter(exact).collect();
    if found.is_empty() {
        found = view.pods.values().filter(prefix).collect();
    }
    let lives = |pod: &PodView| matches!(pod.stage.as_str(), "Active" | "Queued" | "Rejected");
    if found.len() > 1 && found.iter().all(|pod| pod.name == found[0].name) {
        let alive: Vec<_> = found.iter().copied().filter(|pod| lives(pod)).collect();
        if alive.len() == 1 {
            found = alive;
        }
    }
    match found[..] {
        [pod] => Ok(Arc::clone(pod)),
        [] => {
            let hint = match view.pods.len() {
                0 => "this node has no pods".to_owned(),
                1 => "`ferrolet ps` shows the only one there is".to_owned(),
                pods => format!("`ferrolet ps` lists the {pods} there are"),
            };
            Err(failure(FailureKind::NotFound, format!("no pod is called {word:?} or starts like it; {hint}")))
        }
        _ => {
            let mut names: Vec<String> =
                found.iter().take(CANDIDATES).map(|pod| format!("{} (uid {})", full(pod), pod.uid)).collect();
            order::sort(&mut names);
            if found.len() > CANDIDATES {
                names.push(format!("and {} more", found.len() - CANDIDATES));
            }
            Err(failure(FailureKind::Ambiguous, format!("{word:?} may be any of: {}", names.join(", "))))
        }
    }
}

/// The name of the container of `view` that is meant; see [`choose_container`].
///
/// # Errors
/// There is no such container.
pub fn container_name(view: &PodView, word: &str) -> Result<String, Failure> {
    let running = view.runtime.iter().flat_map(|runtime| &runtime.containers).map(|c| c.name.as_str());
    choose_container(view.pod.as_deref(), running, &view.name.name, word)
}

/// The name of the container that is meant by `word`: that very one, which must be part of the pod's spec
/// or among those that the runtime has, or for an empty word the pod's default one.
///
/// # Errors
/// There is no such container.
pub fn choose_container<'a>(
    spec: Option<&Pod>,
    in_runtime: impl Iterator<Item = &'a str>,
    pod_name: &str,
    word: &str,
) -> Result<String, Failure> {
    let wanted = spec.into_iter().flat_map(pod::all_containers).map(|(_, container)| container.name.clone());
    let mut names: Vec<String> = wanted.collect();
    for name in in_runtime {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    if word.is_empty() {
        let marked = spec.and_then(|pod| pod::annotation(pod, DEFAULT_CONTAINER));
        let marked = marked.filter(|name| names.iter().any(|n| n == name));
        let first = spec.and_then(|pod| pod::app_containers(pod).first()).map(|container| container.name.as_str());
        return marked
            .or(first)
            .map(ToOwned::to_owned)
            .or_else(|| names.first().cloned())
            .ok_or_else(|| failure(FailureKind::NotFound, format!("pod {pod_name} has no containers that are known")));
    }
    if names.iter().any(|name| name == word) {
        return Ok(word.to_owned());
    }
    let message = format!("pod {pod_name} has no container {word:?}; it has {}", names.join(", "));
    Err(failure(FailureKind::NotFound, message))
}

/// The running container by this name.
///
/// # Errors
/// It does not run; says what it does instead.
pub fn running_container(view: &PodView, name: &str) -> Result<ContainerId, Failure> {
    let all = view.runtime.iter().flat_map(|runtime| &runtime.containers);
    let newest: Option<&RuntimeContainer> = all.filter(|c| c.name == name).max_by_key(|c| (c.attempt, c.created_at));
    let does = match newest.map(|container| (&container.state, container)) {
        Some((ContainerState::Running { .. }, container)) => return Ok(container.id.clone()),
        Some((ContainerState::Created, _)) => "was made and not started yet".to_owned(),
        Some((ContainerState::Exited(exit), _)) => format!("has ended with exit code {}", exit.code),
        Some((ContainerState::Unknown, _)) => "is in a state that the runtime does not know".to_owned(),
        None => "was not made yet".to_owned(),
    };
    let message = format!("container {name} of pod {} {does}; pod: {}", view.name.name, view.waits_for);
    Err(failure(FailureKind::NotRunning, message))
}

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;

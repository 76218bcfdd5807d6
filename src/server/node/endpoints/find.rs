//! The pod and the container that a path names, in the newest view.
//!
//! Pure; on the threads that serve requests. By exact names only: a cluster's clients do not guess.

use std::sync::Arc;

use crate::api::pod;
use crate::api::runtime::{ContainerState, RuntimeContainer};
use crate::api::v1::Container;
use crate::msg::{NodeView, PodView};

/// The pod of that name: the one that somebody wants, before one that only ends.
pub(super) fn pod(view: &NodeView, namespace: &str, name: &str) -> Option<Arc<PodView>> {
    let named = view.pods.values().filter(|pod| pod.name.namespace == namespace && pod.name.name == name);
    named.max_by_key(|pod| pod.wanted.is_some()).map(Arc::clone)
}

/// Whether a uid that a client gives is this pod's: its own, or that of its picture at the API server.
pub(super) fn has_uid(view: &NodeView, pod: &PodView, uid: &str) -> bool {
    let mirror = view.mirrors.get(&pod.name).and_then(|mirror| mirror.metadata.uid.as_deref());
    pod.uid.as_str() == uid || mirror == Some(uid)
}

/// A container of the pod's spec.
pub(super) fn spec(pod: &PodView, container: &str) -> Option<Container> {
    let (_, found) = pod::find_container(pod.pod.as_deref()?, container)?;
    Some(found.into_owned())
}

/// The instance that runs now.
pub(super) fn running<'a>(pod: &'a PodView, container: &str) -> Option<&'a RuntimeContainer> {
    let all = pod.runtime.iter().flat_map(|runtime| &runtime.containers);
    let runs = |one: &&RuntimeContainer| one.name == container && matches!(one.state, ContainerState::Running { .. });
    all.filter(runs).max_by_key(|one| (one.attempt, one.created_at))
}

/// Name and namespace as the kubelet writes them in its messages.
pub(super) fn full_name(pod: &PodView) -> String {
    format!("{}_{}", pod.name.name, pod.name.namespace)
}

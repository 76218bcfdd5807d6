//! Pods and containers to look for, in tests.

use crate::api::runtime::{ContainerState, RuntimeContainer};
use crate::api::{PodName, PodUid};
use crate::msg::PodView;

/// A pod without anything but names.
pub(crate) fn pod(uid: &str, namespace: &str, name: &str, stage: &str) -> PodView {
    let name = PodName { namespace: namespace.to_owned(), name: name.to_owned() };
    PodView {
        stage: stage.to_owned(),
        waits_for: "waits for the image".to_owned(),
        ..PodView::named(PodUid::from(uid), name)
    }
}

/// A container without anything but a state.
pub(crate) fn container(name: &str, attempt: u32, state: ContainerState) -> RuntimeContainer {
    RuntimeContainer::bare(&format!("{name}-{attempt}"), "sandbox", name, attempt, state)
}

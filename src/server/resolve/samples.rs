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
    RuntimeContainer {
        id: format!("{name}-{attempt}").into(),
        sandbox_id: "sandbox".to_owned().into(),
        name: name.to_owned(),
        attempt,
        state,
        created_at: 0,
        image: String::new(),
        image_id: String::new(),
        image_ref: String::new(),
        log_path: String::new(),
        marks: Default::default(),
        mounts: Vec::new(),
        user: None,
        resources: None,
        stop_signal: String::new(),
    }
}

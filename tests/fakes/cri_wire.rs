//! The fake runtime's state as CRI messages, and its choice by filter.
//!
//! Pure functions, called with the fake's mutex held.

use std::collections::BTreeMap;
use std::path::Path;

use ferrolet::cri::proto;
use protobuf::{EnumOrUnknown, MessageField};

use super::cri_state::{Container, Life, Sandbox, State};

fn sandbox_state(sandbox: &Sandbox) -> EnumOrUnknown<proto::PodSandboxState> {
    EnumOrUnknown::new(if sandbox.ready {
        proto::PodSandboxState::SANDBOX_READY
    } else {
        proto::PodSandboxState::SANDBOX_NOTREADY
    })
}

/// A sandbox as a list shows it.
pub(crate) fn sandbox(sandbox: &Sandbox) -> proto::PodSandbox {
    proto::PodSandbox {
        id: sandbox.id.clone(),
        metadata: sandbox.config.metadata.clone(),
        state: sandbox_state(sandbox),
        created_at: sandbox.created_at,
        labels: sandbox.config.labels.clone(),
        annotations: sandbox.config.annotations.clone(),
        runtime_handler: sandbox.handler.clone(),
        ..Default::default()
    }
}

/// A sandbox looked at closely.
pub(crate) fn sandbox_status(sandbox: &Sandbox) -> proto::PodSandboxStatus {
    let options = sandbox.config.linux.get_or_default().security_context.get_or_default().namespace_options.clone();
    let network = proto::PodSandboxNetworkStatus { ip: sandbox.ip.clone(), ..Default::default() };
    let namespaces = proto::Namespace { options, ..Default::default() };
    let linux = proto::LinuxPodSandboxStatus { namespaces: MessageField::some(namespaces), ..Default::default() };
    proto::PodSandboxStatus {
        id: sandbox.id.clone(),
        metadata: sandbox.config.metadata.clone(),
        state: sandbox_state(sandbox),
        created_at: sandbox.created_at,
        network: MessageField::some(if sandbox.ready { network } else { Default::default() }),
        linux: MessageField::some(linux),
        labels: sandbox.config.labels.clone(),
        annotations: sandbox.config.annotations.clone(),
        runtime_handler: sandbox.handler.clone(),
        ..Default::default()
    }
}

fn container_state(container: &Container) -> EnumOrUnknown<proto::ContainerState> {
    EnumOrUnknown::new(match container.life {
        Life::Created => proto::ContainerState::CONTAINER_CREATED,
        Life::Running => proto::ContainerState::CONTAINER_RUNNING,
        Life::Exited => proto::ContainerState::CONTAINER_EXITED,
    })
}

/// A container as a list shows it.
pub(crate) fn container(container: &Container) -> proto::Container {
    proto::Container {
        id: container.id.clone(),
        pod_sandbox_id: container.sandbox_id.clone(),
        metadata: container.config.metadata.clone(),
        image: container.config.image.clone(),
        image_ref: container.image_id.clone(),
        image_id: container.image_id.clone(),
        state: container_state(container),
        created_at: container.created_at,
        labels: container.config.labels.clone(),
        annotations: container.config.annotations.clone(),
        ..Default::default()
    }
}

/// A container looked at closely. Like containerd, it shows a tag of the image and not the name asked for.
pub(crate) fn container_status(state: &State, container: &Container) -> proto::ContainerStatus {
    let logs = state.sandboxes.get(&container.sandbox_id).map(|sandbox| sandbox.config.log_directory.as_str());
    let log_path = logs
        .filter(|logs| !logs.is_empty())
        .map(|logs| Path::new(logs).join(&container.config.log_path).to_string_lossy().into_owned());
    let image = state.images.get(&container.image_id);
    let name = image.and_then(|image| image.repo_tags.first().cloned()).unwrap_or_else(|| container.image_id.clone());
    let reference = image.and_then(|image| image.repo_digests.first().cloned());
    let linux = container.config.linux.get_or_default();
    proto::ContainerStatus {
        id: container.id.clone(),
        metadata: container.config.metadata.clone(),
        state: container_state(container),
        created_at: container.created_at,
        started_at: container.started_at,
        finished_at: container.finished_at,
        exit_code: container.exit_code,
        reason: container.reason.clone(),
        message: container.message.clone(),
        image: MessageField::some(proto::ImageSpec { image: name, ..Default::default() }),
        image_ref: reference.unwrap_or_else(|| container.image_id.clone()),
        image_id: container.image_id.clone(),
        labels: container.config.labels.clone(),
        annotations: container.config.annotations.clone(),
        mounts: container.config.mounts.clone(),
        log_path: log_path.unwrap_or_default(),
        resources: MessageField::some(proto::ContainerResources {
            linux: linux.resources.clone(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn has_labels(labels: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(name, value)| labels.get(name) == Some(value))
}

fn is(wanted: &str, found: &str) -> bool {
    wanted.is_empty() || wanted == found
}

/// The sandboxes that a filter asks for.
pub(crate) fn sandboxes<'a>(
    state: &'a State,
    filter: &MessageField<proto::PodSandboxFilter>,
) -> impl Iterator<Item = &'a Sandbox> {
    let filter = filter.get_or_default().clone();
    state.sandboxes.values().filter(move |sandbox| {
        is(&filter.id, &sandbox.id)
            && has_labels(&sandbox.config.labels, &filter.label_selector)
            && filter.state.as_ref().is_none_or(|wanted| wanted.state == sandbox_state(sandbox))
    })
}

/// The containers that a filter asks for.
pub(crate) fn containers<'a>(
    state: &'a State,
    filter: &MessageField<proto::ContainerFilter>,
) -> impl Iterator<Item = &'a Container> {
    let filter = filter.get_or_default().clone();
    state.containers.values().filter(move |container| {
        is(&filter.id, &container.id)
            && is(&filter.pod_sandbox_id, &container.sandbox_id)
            && has_labels(&container.config.labels, &filter.label_selector)
            && filter.state.as_ref().is_none_or(|wanted| wanted.state == container_state(container))
    })
}

/// Invented usage of a container that runs.
pub(crate) fn container_stats(container: &Container) -> proto::ContainerStats {
    let number = |value| MessageField::some(proto::UInt64Value { value, ..Default::default() });
    proto::ContainerStats {
        attributes: MessageField::some(proto::ContainerAttributes {
            id: container.id.clone(),
            metadata: container.config.metadata.clone(),
            labels: container.config.labels.clone(),
            annotations: container.config.annotations.clone(),
            ..Default::default()
        }),
        cpu: MessageField::some(proto::CpuUsage {
            timestamp: container.started_at + 1,
            usage_core_nano_seconds: number(1_000_000),
            ..Default::default()
        }),
        memory: MessageField::some(proto::MemoryUsage {
            timestamp: container.started_at + 1,
            working_set_bytes: number(1 << 20),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Invented usage of a sandbox with its running containers.
pub(crate) fn sandbox_stats(state: &State, sandbox: &Sandbox) -> proto::PodSandboxStats {
    proto::PodSandboxStats {
        attributes: MessageField::some(proto::PodSandboxAttributes {
            id: sandbox.id.clone(),
            metadata: sandbox.config.metadata.clone(),
            labels: sandbox.config.labels.clone(),
            annotations: sandbox.config.annotations.clone(),
            ..Default::default()
        }),
        linux: MessageField::some(proto::LinuxPodSandboxStats {
            containers: state
                .containers
                .values()
                .filter(|it| it.sandbox_id == sandbox.id && it.life == Life::Running)
                .map(container_stats)
                .collect(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

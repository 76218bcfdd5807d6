//! Answers: CRI v1 messages turned into our words, by moving their parts.
//!
//! Pure functions on the caller's thread. They believe nothing: a missing part is an error in words or
//! the value that says "unknown", an enum number from the future never stops a list.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use protobuf::{EnumOrUnknown, MessageField};

use super::proto;
use crate::api::labels::{self, Marks};
use crate::api::runtime::{
    ContainerState, Exit, FilePod, IdMapping, Image, ImageSpec, Mount, Propagation, Resources, RuntimeContainer,
    RuntimePod, RuntimeSandbox, SandboxState, UserIds,
};
use crate::api::runtime_info::{
    ContainerEvent, ContainerEventKind, RuntimeCondition, RuntimeHandler, RuntimeStatus, RuntimeVersion, SandboxStatus,
};
use crate::api::{ContainerId, PodUid, SandboxId};
use crate::util::order;

/// What is wrong with an answer, for `CriFailure::Garbage`.
pub(super) type Problem = String;

fn some_id(id: String, of: &str) -> Result<String, Problem> {
    if id.is_empty() { Err(format!("{of} without an id")) } else { Ok(id) }
}

/// The version answer.
pub(super) fn version(answer: proto::VersionResponse) -> RuntimeVersion {
    RuntimeVersion {
        name: answer.runtime_name,
        version: answer.runtime_version,
        api_version: answer.runtime_api_version,
    }
}

/// The status answer.
pub(super) fn status(answer: proto::StatusResponse) -> RuntimeStatus {
    let features = answer.features.unwrap_or_default();
    RuntimeStatus {
        conditions: answer
            .status
            .unwrap_or_default()
            .conditions
            .into_iter()
            .map(|condition| RuntimeCondition {
                type_: condition.type_,
                status: condition.status,
                reason: condition.reason,
                message: condition.message,
            })
            .collect(),
        handlers: answer
            .runtime_handlers
            .into_iter()
            .map(|handler| {
                let features = handler.features.unwrap_or_default();
                RuntimeHandler {
                    name: handler.name,
                    recursive_read_only_mounts: features.recursive_read_only_mounts,
                    user_namespaces: features.user_namespaces,
                }
            })
            .collect(),
        supplemental_groups_policy: features.supplemental_groups_policy,
        user_namespaces_host_network: features.user_namespaces_host_network,
        mount_options: features.mount_options,
        info: answer.info,
    }
}

fn sandbox_state(state: EnumOrUnknown<proto::PodSandboxState>) -> SandboxState {
    match state.enum_value() {
        Ok(proto::PodSandboxState::SANDBOX_READY) => SandboxState::Ready,
        Ok(proto::PodSandboxState::SANDBOX_NOTREADY) | Err(_) => SandboxState::NotReady,
    }
}

/// An object of a list with its labels, which tell whose it is and are not kept.
pub(super) struct Labelled<T> {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) it: T,
}

/// The static pod of a manifest file whose sandbox this is; `None` for every other.
pub(super) fn file_pod(item: &proto::PodSandbox) -> Option<FilePod> {
    let metadata = item.metadata.get_or_default();
    FilePod::from_annotations(&metadata.namespace, &metadata.name, &metadata.uid, &item.annotations)
}

/// One sandbox of a list.
pub(super) fn sandbox(item: proto::PodSandbox) -> Result<Labelled<RuntimeSandbox>, Problem> {
    let sandbox = RuntimeSandbox {
        id: SandboxId::from(some_id(item.id, "a sandbox")?),
        attempt: item.metadata.get_or_default().attempt,
        state: sandbox_state(item.state),
        created_at: item.created_at,
        ips: Vec::new(),
        host_network: false,
        runtime_handler: item.runtime_handler,
    };
    Ok(Labelled { labels: item.labels, it: sandbox })
}

/// A sandbox looked at closely.
pub(super) fn inspected_sandbox(status: proto::PodSandboxStatus) -> Result<RuntimeSandbox, Problem> {
    let network = status.network.unwrap_or_default();
    let options = status.linux.unwrap_or_default().namespaces.unwrap_or_default().options.unwrap_or_default();
    let ips = std::iter::once(network.ip)
        .chain(network.additional_ips.into_iter().map(|additional| additional.ip))
        .filter(|ip| !ip.is_empty())
        .collect();
    Ok(RuntimeSandbox {
        id: SandboxId::from(some_id(status.id, "a sandbox")?),
        attempt: status.metadata.get_or_default().attempt,
        state: sandbox_state(status.state),
        created_at: status.created_at,
        ips,
        host_network: options.network.enum_value() == Ok(proto::NamespaceMode::NODE),
        runtime_handler: status.runtime_handler,
    })
}

/// The answer about one sandbox, with its containers where the runtime sends them.
pub(super) fn sandbox_status(answer: proto::PodSandboxStatusResponse) -> Result<SandboxStatus, Problem> {
    Ok(SandboxStatus {
        sandbox: inspected_sandbox(answer.status.into_option().ok_or("no status")?)?,
        containers: answer.containers_statuses.into_iter().map(inspected_container).collect::<Result<_, _>>()?,
        timestamp: answer.timestamp,
    })
}

/// The name to show: what the pod's author wrote, where the runtime keeps it.
fn image_name(image: MessageField<proto::ImageSpec>) -> String {
    let image = image.unwrap_or_default();
    if image.user_specified_image.is_empty() { image.image } else { image.user_specified_image }
}

fn or_else(first: String, second: &str) -> String {
    if first.is_empty() { second.to_owned() } else { first }
}

/// One container of a list: its state without code and times.
pub(super) fn container(item: proto::Container) -> Result<Labelled<RuntimeContainer>, Problem> {
    let metadata = item.metadata.unwrap_or_default();
    let state = match item.state.enum_value() {
        Ok(proto::ContainerState::CONTAINER_CREATED) => ContainerState::Created,
        Ok(proto::ContainerState::CONTAINER_RUNNING) => ContainerState::Running { started_at: 0 },
        Ok(proto::ContainerState::CONTAINER_EXITED) => ContainerState::Exited(Exit::default()),
        Ok(proto::ContainerState::CONTAINER_UNKNOWN) | Err(_) => ContainerState::Unknown,
    };
    let container = RuntimeContainer {
        id: ContainerId::from(some_id(item.id, "a container")?),
        sandbox_id: SandboxId::from(item.pod_sandbox_id),
        name: metadata.name,
        attempt: metadata.attempt,
        state,
        created_at: item.created_at,
        image: image_name(item.image),
        image_id: or_else(item.image_id, &item.image_ref),
        image_ref: item.image_ref,
        log_path: String::new(),
        marks: Marks::read(&item.annotations),
        mounts: Vec::new(),
        user: None,
        resources: None,
        stop_signal: String::new(),
    };
    Ok(Labelled { labels: item.labels, it: container })
}

/// A container looked at closely. CRI does not name its sandbox here: that stays empty.
pub(super) fn inspected_container(status: proto::ContainerStatus) -> Result<RuntimeContainer, Problem> {
    let metadata = status.metadata.unwrap_or_default();
    let state = match status.state.enum_value() {
        Ok(proto::ContainerState::CONTAINER_CREATED) => ContainerState::Created,
        Ok(proto::ContainerState::CONTAINER_RUNNING) => ContainerState::Running { started_at: status.started_at },
        Ok(proto::ContainerState::CONTAINER_EXITED) => ContainerState::Exited(Exit {
            code: status.exit_code,
            reason: status.reason,
            message: status.message,
            started_at: status.started_at,
            finished_at: status.finished_at,
        }),
        Ok(proto::ContainerState::CONTAINER_UNKNOWN) | Err(_) => ContainerState::Unknown,
    };
    Ok(RuntimeContainer {
        id: ContainerId::from(some_id(status.id, "a container")?),
        sandbox_id: SandboxId::from(""),
        name: metadata.name,
        attempt: metadata.attempt,
        state,
        created_at: status.created_at,
        image: image_name(status.image),
        image_id: or_else(status.image_id, &status.image_ref),
        image_ref: status.image_ref,
        log_path: status.log_path,
        marks: Marks::read(&status.annotations),
        mounts: status.mounts.into_iter().map(mount).collect(),
        user: status.user.into_option().and_then(|user| user.linux.into_option()).map(|user| UserIds {
            uid: user.uid,
            gid: user.gid,
            supplemental_groups: user.supplemental_groups,
        }),
        resources: status.resources.into_option().and_then(|found| found.linux.into_option()).map(resources),
        stop_signal: signal(status.stop_signal),
    })
}

/// `SIGRTMIN+1` for `SIGNAL_SIGRTMINPLUS1`; empty for the runtime's default and unknown numbers.
fn signal(signal: EnumOrUnknown<proto::Signal>) -> String {
    match signal.enum_value() {
        Ok(proto::Signal::SIGNAL_RUNTIME_DEFAULT) | Err(_) => String::new(),
        Ok(known) => format!("{known:?}").trim_start_matches("SIGNAL_").replace("PLUS", "+").replace("MINUS", "-"),
    }
}

fn mount(mount: proto::Mount) -> Mount {
    Mount {
        container_path: mount.container_path,
        host_path: mount.host_path,
        readonly: mount.readonly,
        recursive_read_only: mount.recursive_read_only,
        selinux_relabel: mount.selinux_relabel,
        propagation: match mount.propagation.enum_value() {
            Ok(proto::MountPropagation::PROPAGATION_HOST_TO_CONTAINER) => Propagation::HostToContainer,
            Ok(proto::MountPropagation::PROPAGATION_BIDIRECTIONAL) => Propagation::Bidirectional,
            Ok(proto::MountPropagation::PROPAGATION_PRIVATE) | Err(_) => Propagation::Private,
        },
        image: mount.image.into_option().map(image_spec),
        image_sub_path: mount.image_sub_path,
        uid_mappings: id_mappings(mount.uidMappings),
        gid_mappings: id_mappings(mount.gidMappings),
        options: mount.mount_options,
    }
}

fn id_mappings(mappings: Vec<proto::IDMapping>) -> Vec<IdMapping> {
    mappings
        .into_iter()
        .map(|mapping| IdMapping {
            host_id: mapping.host_id,
            container_id: mapping.container_id,
            length: mapping.length,
        })
        .collect()
}

fn image_spec(image: proto::ImageSpec) -> ImageSpec {
    ImageSpec {
        image: image.image,
        user_specified: image.user_specified_image,
        runtime_handler: image.runtime_handler,
        annotations: image.annotations,
    }
}

fn resources(found: proto::LinuxContainerResources) -> Resources {
    Resources {
        cpu_period: found.cpu_period,
        cpu_quota: found.cpu_quota,
        cpu_shares: found.cpu_shares,
        memory_limit: found.memory_limit_in_bytes,
        memory_swap_limit: found.memory_swap_limit_in_bytes,
        oom_score_adj: found.oom_score_adj,
        cpuset_cpus: found.cpuset_cpus,
        cpuset_mems: found.cpuset_mems,
        hugepages: found.hugepage_limits.into_iter().map(|limit| (limit.page_size, limit.limit)).collect(),
        unified: found.unified,
    }
}

/// An image that the runtime holds.
pub(super) fn image(image: proto::Image) -> Result<Image, Problem> {
    Ok(Image {
        id: some_id(image.id, "an image")?,
        repo_tags: image.repo_tags,
        repo_digests: image.repo_digests,
        size: image.size,
        uid: image.uid.into_option().map(|uid| uid.value),
        username: image.username,
        pinned: image.pinned,
    })
}

/// Sandboxes and containers joined to pods by the pod uid label, in the order of uids. What lacks the
/// label is not a pod's and is left out, and so is what is listed again: the first mention counts.
pub(super) fn pods(
    sandboxes: Vec<Labelled<RuntimeSandbox>>,
    containers: Vec<Labelled<RuntimeContainer>>,
) -> Vec<RuntimePod> {
    let mut pods: BTreeMap<PodUid, RuntimePod> = BTreeMap::new();
    let mut listed = BTreeSet::new();
    for Labelled { labels, it } in sandboxes {
        if let Some(pod) = pod_of(&mut pods, &labels)
            && listed.insert(it.id.as_str().to_owned())
        {
            pod.sandboxes.push(it);
        }
    }
    for Labelled { labels, it } in containers {
        if let Some(pod) = pod_of(&mut pods, &labels)
            && listed.insert(it.id.as_str().to_owned())
        {
            pod.containers.push(it);
        }
    }
    let mut pods: Vec<_> = pods.into_values().collect();
    for pod in &mut pods {
        sort(pod);
    }
    pods
}

fn pod_of<'a>(
    pods: &'a mut BTreeMap<PodUid, RuntimePod>,
    labels: &BTreeMap<String, String>,
) -> Option<&'a mut RuntimePod> {
    let uid = labels.get(labels::POD_UID).filter(|uid| !uid.is_empty())?;
    if !pods.contains_key(uid.as_str()) {
        let label = |name: &str| labels.get(name).cloned().unwrap_or_default();
        let pod = RuntimePod {
            uid: Some(PodUid::from(uid.as_str())),
            name: label(labels::POD_NAME),
            namespace: label(labels::POD_NAMESPACE),
            ..Default::default()
        };
        pods.insert(PodUid::from(uid.as_str()), pod);
    }
    pods.get_mut(uid.as_str())
}

fn sort(pod: &mut RuntimePod) {
    order::sort_by_key(&mut pod.sandboxes, |sandbox| Reverse((sandbox.attempt, sandbox.created_at)));
    order::sort_by_key(&mut pod.containers, |container| Reverse((container.created_at, container.attempt)));
}

/// A container event with its pod. `None` for a kind from the future.
pub(super) fn event(event: proto::ContainerEventResponse) -> Result<Option<ContainerEvent>, Problem> {
    let kind = match event.container_event_type.enum_value() {
        Ok(proto::ContainerEventType::CONTAINER_CREATED_EVENT) => ContainerEventKind::Created,
        Ok(proto::ContainerEventType::CONTAINER_STARTED_EVENT) => ContainerEventKind::Started,
        Ok(proto::ContainerEventType::CONTAINER_STOPPED_EVENT) => ContainerEventKind::Stopped,
        Ok(proto::ContainerEventType::CONTAINER_DELETED_EVENT) => ContainerEventKind::Deleted,
        Err(_) => return Ok(None),
    };
    let mut sandboxes = Vec::new();
    if let Some(mut status) = event.pod_sandbox_status.into_option() {
        let labels = std::mem::take(&mut status.labels);
        sandboxes.push(Labelled { labels, it: inspected_sandbox(status)? });
    }
    let mut containers = Vec::with_capacity(event.containers_statuses.len());
    for mut status in event.containers_statuses {
        let labels = std::mem::take(&mut status.labels);
        let mut it = inspected_container(status)?;
        if let Some(sandbox) = sandboxes.first() {
            it.sandbox_id = sandbox.it.id.clone();
        }
        containers.push(Labelled { labels, it });
    }
    Ok(Some(ContainerEvent {
        container_id: ContainerId::from(event.container_id),
        kind,
        created_at: event.created_at,
        pod: pods(sandboxes, containers).into_iter().next(),
    }))
}

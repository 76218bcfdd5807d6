//! Starts one container: image, config, files, create, start, log link, postStart hook. On a `pod-N`
//! thread.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use super::run::{Run, cri, reason, runtime_handler};
use super::{credentials, environment, hooks, prepare, stop};
use crate::api::ContainerId;
use crate::api::moment::Moment;
use crate::api::pod::{self, ContainerKind, find_container};
use crate::api::runtime::{ContainerSpec, SandboxSpec};
use crate::api::v1::Container;
use crate::core::images::{ImageError, PullPolicy, PullRequest, PulledImage};
use crate::core::spec::hostname::etc_hosts;
use crate::core::spec::{
    CONTAINER_CONFIG_ERROR, ContainerInputs, VolumeSource, container_spec, subpaths, wants_etc_hosts,
};
use crate::host::error::explain;
use crate::host::files::read_start;
use crate::host::log_files;
use crate::host::pod_dirs::{link_log, log_link_name, remove_log_link};
use crate::msg::{EventType, Reason, SandboxRef};
use crate::util::metrics::kubelet;
use crate::volumes::prepare_subpath;
use crate::volumes::subpath::SubPathMount;

/// Largest /etc/hosts of the node that is read.
const HOSTS_LIMIT: u64 = 1024 * 1024;

pub(super) fn container(
    run: &mut Run<'_>,
    kind: ContainerKind,
    name: &str,
    attempt: u32,
    target: Option<&ContainerId>,
) -> Result<(), Reason> {
    let pod = std::sync::Arc::clone(&run.work.pod);
    let Some((_, container)) = find_container(&pod, name) else {
        return Err(reason(CONTAINER_CONFIG_ERROR, format!("the pod has no container {name}")));
    };
    let Some(sandbox) = run.sandbox.clone() else {
        return Err(reason("CreateContainerError", "the pod has no sandbox to start it in"));
    };
    let path = field_path(kind, name);
    kubelet::STARTED_CONTAINERS.inc(&[kind.metric_label()]);
    let started = start(run, &container, Life { attempt, target }, &sandbox, &path).map_err(|failure| match failure {
        Failure::Told(why) => why,
        Failure::NoImage(why, retry_at) => {
            run.image_waits.extend(retry_at.map(|at| (name.to_owned(), at)));
            why
        }
        Failure::Untold(why) => {
            if !run.work.cancel.is_cancelled() {
                run.event(&path, EventType::Warning, "Failed", format!("Error: {}", why.message));
            }
            why
        }
    });
    started.inspect_err(|why| kubelet::STARTED_CONTAINERS_ERRORS.inc(&[&why.reason, kind.metric_label()]))
}

/// Why a container did not start, and whether an event has said so.
enum Failure {
    Told(Reason),
    Untold(Reason),
    /// The image source has told, and knows when another try may pull.
    NoImage(Reason, Option<Moment>),
}

impl From<Reason> for Failure {
    fn from(why: Reason) -> Self {
        Self::Untold(why)
    }
}

impl From<ImageError> for Failure {
    /// The image source tells its events itself.
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::Cancelled => Self::Told(reason("ErrImagePull", error.to_string())),
            ImageError::Failed { reason: word, message, retry_at } => {
                Self::NoImage(reason(word.as_str(), message), retry_at)
            }
        }
    }
}

/// What sets this instance of a container apart.
#[derive(Clone, Copy)]
struct Life<'a> {
    attempt: u32,
    target: Option<&'a ContainerId>,
}

fn start(
    run: &mut Run<'_>,
    container: &Container,
    life: Life<'_>,
    sandbox: &SandboxRef,
    path: &str,
) -> Result<(), Failure> {
    let sandbox_spec = run.sandbox_spec(sandbox.attempt)?;
    run.prepare()?;
    let tools = run.tools;
    let work = run.work;
    let image = container.image.as_deref().unwrap_or_default();
    let asked_at = Instant::now();
    let ready = pulled(run, image, container.image_pull_policy.as_deref(), &sandbox_spec, path);
    run.pulled += asked_at.elapsed();
    let ready = ready?;
    let volumes = volumes(run, container, &sandbox_spec)?;
    let spec = config(run, container, life, sandbox, &ready, &volumes)?;
    let client = &tools.client;
    let id = client
        .create_container(&sandbox.id, &spec, &sandbox_spec, &work.cancel)
        .map_err(|error| cri("CreateContainerError", &error))?;
    run.event(path, EventType::Normal, "Created", "Container created".to_owned());
    client.start_container(&id, &work.cancel).map_err(|error| cri("RunContainerError", &error))?;
    run.event(path, EventType::Normal, "Started", "Container started".to_owned());
    link(run, &spec, &sandbox_spec.log_directory, &id);
    let post_start = container.lifecycle.as_ref().and_then(|l| l.post_start.as_ref());
    let Some(hook) = post_start else { return Ok(()) };
    let Err(why) = hooks::run(run, container, &id, hook, hooks::NO_LIMIT) else { return Ok(()) };
    if work.cancel.is_cancelled() {
        return Err(Failure::Told(reason("PostStartHookError", why)));
    }
    log::warn!("pod {}: postStart hook of {}: {why}", work.name, container.name);
    run.event(path, EventType::Warning, "FailedPostStartHook", "PostStartHook failed".to_owned());
    stop::after_failed_hook(run, container, &id);
    Err(Failure::Told(reason("PostStartHookError", why)))
}

/// An image that is there, pulled if its policy says so; what happens is told about `path`.
fn pulled(
    run: &Run<'_>,
    image: &str,
    policy: Option<&str>,
    sandbox: &SandboxSpec,
    path: &str,
) -> Result<PulledImage, ImageError> {
    let (work, none) = (run.work, BTreeMap::new());
    let policy = PullPolicy::from_api(policy);
    let auth = if policy == PullPolicy::Never { Vec::new() } else { credentials::for_image(run, image) };
    let request = PullRequest {
        uid: &work.uid,
        image,
        policy,
        auth: &auth,
        annotations: work.pod.metadata.annotations.as_ref().unwrap_or(&none),
        sandbox: Some(sandbox),
    };
    run.tools.images.ensure(&request, &work.cancel, &mut |event| {
        run.event(path, event.event_type, event.reason, event.message);
    })
}

/// The pod's volumes, with the images that this container mounts pulled.
fn volumes(
    run: &Run<'_>,
    container: &Container,
    sandbox: &SandboxSpec,
) -> Result<BTreeMap<String, VolumeSource>, Failure> {
    let mut volumes = run.prepared.as_ref().map(|prepared| prepared.volumes.clone()).unwrap_or_default();
    let specs = || run.work.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    for mount in container.volume_mounts.iter().flatten() {
        let Some(VolumeSource::Image(image)) = volumes.get_mut(&mount.name) else { continue };
        let spec = specs().find(|volume| volume.name == mount.name).and_then(|volume| volume.image.as_ref());
        let policy = spec.and_then(|spec| spec.pull_policy.as_deref());
        // It is the pod's, and no single container's.
        image.image = pulled(run, &image.user_specified, policy, sandbox, "")?.image_ref;
    }
    Ok(volumes)
}

/// The container's config, with the files on the host that it needs.
fn config(
    run: &Run<'_>,
    container: &Container,
    life: Life<'_>,
    sandbox: &SandboxRef,
    ready: &PulledImage,
    volumes: &BTreeMap<String, VolumeSource>,
) -> Result<ContainerSpec, Reason> {
    let (tools, work) = (run.tools, run.work);
    let failed = |text: String| reason(CONTAINER_CONFIG_ERROR, text);
    let pod = &work.pod;
    let host_ips = &tools.facts.node_ips;
    let pod_ips = if pod::is_host_network(pod) { host_ips } else { &sandbox.ips };
    let hosts = if wants_etc_hosts(pod, container, pod_ips) {
        let node_hosts = match pod::is_host_network(pod) {
            true => read_start(Path::new("/etc/hosts"), HOSTS_LIMIT).map_err(|e| failed(explain(&e)))?,
            false => None,
        };
        let content = etc_hosts(pod, &tools.facts, pod_ips, &node_hosts.unwrap_or_default())
            .map_err(|e| failed(e.to_string()))?;
        let text = String::from_utf8_lossy(&content);
        let path = tools.dirs.write_etc_hosts(&work.uid, &text).map_err(|e| failed(explain(&e)))?;
        Some(path.to_string_lossy().into_owned())
    } else {
        None
    };
    let wants_message = container.termination_message_path.as_deref().is_some_and(|p| !p.is_empty());
    let message_file = if wants_message {
        let path = tools.dirs.make_termination_file(&work.uid, &container.name).map_err(|e| failed(explain(&e)))?;
        Some(path.to_string_lossy().into_owned())
    } else {
        None
    };
    tools.dirs.ensure_container_logs(&work.name, &work.uid, &container.name).map_err(|e| failed(explain(&e)))?;
    let no_subpaths = BTreeMap::new();
    let env = environment::sources(run, container, volumes).map_err(failed)?;
    let user_namespace = run.user_namespace()?;
    let inputs = ContainerInputs {
        attempt: life.attempt,
        image: &ready.image,
        image_ref: &ready.image_ref,
        runtime_handler: runtime_handler(work),
        pod_ips,
        volumes,
        subpaths: &no_subpaths,
        etc_hosts: hosts.as_deref(),
        termination_log: message_file.as_deref(),
        target: life.target,
        user_namespace: user_namespace.as_ref(),
        env: &env,
    };
    let wanted = subpaths(pod, container, &tools.facts, &inputs).map_err(|e| failed(e.to_string()))?;
    let mut bound: BTreeMap<usize, String> = BTreeMap::new();
    for part in wanted {
        let refused = |why: String| {
            let text = format!(
                "failed to prepare subPath for volumeMount {:?} of container {:?}",
                part.volume, container.name
            );
            failed(format!("{text}: {why}"))
        };
        let (uid, name, mount) = (work.uid.clone(), container.name.clone(), part.clone());
        let path = prepare::on_volumes(run, "preparing a subPath", move |context| {
            let mount = SubPathMount {
                volume: &mount.volume,
                volume_root: Path::new(&mount.volume_path),
                container: &name,
                index: mount.mount_index,
                sub_path: &mount.path,
            };
            prepare_subpath(context, &uid, &mount)
        })
        .map_err(&refused)?
        .map_err(|e| refused(explain(&e)))?;
        bound.insert(part.mount_index, path.to_string_lossy().into_owned());
    }
    let inputs = ContainerInputs { subpaths: &bound, ..inputs };
    container_spec(pod, container, &tools.facts, &inputs).map_err(|e| failed(e.to_string()))
}

/// The link by which log shippers find the container's log. Its loss costs no container.
fn link(run: &Run<'_>, spec: &ContainerSpec, log_directory: &str, id: &ContainerId) {
    let Some(folder) = &run.tools.log_links else { return };
    let name = log_link_name(&run.work.name, &spec.name, id.as_str());
    let target = Path::new(log_directory).join(&spec.log_path);
    if let Err(error) = link_log(folder, &name, &target) {
        log::warn!("pod {}: no log link for container {}: {}", run.work.name, spec.name, explain(&error));
    }
}

/// Removes the logs of a removed container and the link to them. What is left of them goes with the pod.
pub(super) fn remove_logs(run: &Run<'_>, name: &str, id: &ContainerId, attempt: u32) {
    let (tools, work) = (run.tools, run.work);
    let folder = tools.dirs.container_logs(&work.name, &work.uid, name);
    let removed = folder.and_then(|folder| log_files::remove_all(&folder.join(format!("{attempt}.log"))));
    let link = log_link_name(&work.name, name, id.as_str());
    let unlinked = tools.log_links.as_ref().map_or(Ok(()), |folder| remove_log_link(folder, &link));
    for error in [removed, unlinked].into_iter().filter_map(Result::err) {
        log::warn!("pod {}: {}", work.name, explain(&error));
    }
}

/// Field path of a container in events.
pub(super) fn field_path(kind: ContainerKind, name: &str) -> String {
    match kind {
        ContainerKind::Init | ContainerKind::Sidecar => format!("spec.initContainers{{{name}}}"),
        ContainerKind::App => format!("spec.containers{{{name}}}"),
        ContainerKind::Ephemeral => format!("spec.ephemeralContainers{{{name}}}"),
    }
}

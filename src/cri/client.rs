//! The client: the runtime itself, sandboxes and containers.
//!
//! Runs on the caller's thread. Owns the channels to the runtime's and the image service's socket.
//! Each method is one CRI call and nothing else.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use grpcio::Method;

use super::endpoint::Endpoint;
use super::error::{CriError, CriFailure};
use super::from_wire::{self, Labelled, Problem};
use super::proto::{self, runtime_service as rpc};
use super::to_wire;
use super::transport::{Ask, Transport};
use crate::api::runtime::{
    ContainerSpec, FilePod, Resources, RuntimeContainer, RuntimePod, RuntimeSandbox, SandboxSpec,
};
use crate::api::runtime_info::{
    CgroupDriver, ContainerFilter, ExecOutput, RuntimeStatus, RuntimeVersion, SandboxStatus, StreamOptions,
};
use crate::api::{ContainerId, SandboxId};
use crate::util::cancel::Cancel;

/// Most bytes kept of each output stream of [`Client::exec_sync`].
pub const EXEC_OUTPUT_LIMIT: usize = 4 << 20;

/// A client of one container runtime. Cheap to clone; all clones share the connection.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    runtime: Transport,
    images: Transport,
    timeout: Duration,
    /// Of all clients on the same connections.
    removed: Arc<Mutex<Removed>>,
}

/// What this agent has had removed lately, as a hash of each id: the newest last.
type Removed = VecDeque<u64>;

/// How many removals are remembered: more than can be told of by events that are still under way.
const REMOVALS: usize = 512;

fn hash_of(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("timeout", &self.shared.timeout).finish_non_exhaustive()
    }
}

impl Client {
    /// A client for `containerRuntimeEndpoint`, for images too unless `imageServiceEndpoint` says
    /// otherwise, whose calls take at most `timeout` (`runtimeRequestTimeout`) where nothing else is
    /// said. Does not connect: a runtime that starts later is found by the calls themselves.
    ///
    /// # Errors
    /// An endpoint that is no unix socket.
    pub fn new(runtime_endpoint: &str, image_endpoint: Option<&str>, timeout: Duration) -> Result<Self, CriError> {
        let parse = |text: &str| {
            Endpoint::parse(text).map_err(|failure| CriError {
                method: "connect",
                object: "".into(),
                endpoint: text.into(),
                failure,
            })
        };
        let runtime_endpoint = parse(runtime_endpoint)?;
        let image_endpoint = match image_endpoint {
            Some(text) if !text.is_empty() => parse(text)?,
            _ => runtime_endpoint.clone(),
        };
        let runtime = Transport::new(runtime_endpoint.clone());
        let images = if image_endpoint == runtime_endpoint { runtime.clone() } else { Transport::new(image_endpoint) };
        Ok(Self { shared: Arc::new(Shared { runtime, images, timeout, removed: Arc::default() }) })
    }

    /// A client on the same connections whose calls take at most `timeout`.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        let Shared { runtime, images, removed, .. } = &*self.shared;
        let (runtime, images, removed) = (runtime.clone(), images.clone(), Arc::clone(removed));
        Self { shared: Arc::new(Shared { runtime, images, timeout, removed }) }
    }

    /// How long a call may take where nothing else is said.
    pub fn timeout(&self) -> Duration {
        self.shared.timeout
    }

    pub(super) fn runtime(&self) -> &Transport {
        &self.shared.runtime
    }

    pub(super) fn images(&self) -> &Transport {
        &self.shared.images
    }

    /// One call to the runtime service with the usual deadline.
    pub(super) fn call<Req, Resp: Unpin>(
        &self,
        method: &Method<Req, Resp>,
        request: &Req,
        object: &str,
        cancel: &Cancel,
    ) -> Result<Resp, CriError> {
        self.runtime().unary(method, request, Ask { object, timeout: self.timeout(), cancel })
    }

    /// The same with time on top of the usual deadline.
    fn call_longer<Req, Resp: Unpin>(
        &self,
        method: &Method<Req, Resp>,
        request: &Req,
        object: &str,
        more: Duration,
        cancel: &Cancel,
    ) -> Result<Resp, CriError> {
        self.runtime().unary(method, request, Ask { object, timeout: self.timeout().saturating_add(more), cancel })
    }

    /// Names the call in front of what is wrong with its answer.
    pub(super) fn checked<T, Req, Resp>(
        &self,
        method: &Method<Req, Resp>,
        object: &str,
        result: Result<T, Problem>,
    ) -> Result<T, CriError> {
        result.map_err(|problem| self.runtime().error(method.name, object, CriFailure::Garbage(problem)))
    }

    /// Who answers. Fails with [`CriFailure::OnlyOldApi`] or [`CriFailure::NoCri`] where CRI v1 is missing.
    pub fn version(&self, cancel: &Cancel) -> Result<RuntimeVersion, CriError> {
        let request = proto::VersionRequest { version: "0.1.0".into(), ..Default::default() };
        Ok(from_wire::version(self.call(&rpc::VERSION, &request, "", cancel)?))
    }

    /// Whether the runtime and its network are ready, and what it can do; `verbose` adds its own facts.
    pub fn status(&self, verbose: bool, cancel: &Cancel) -> Result<RuntimeStatus, CriError> {
        let request = proto::StatusRequest { verbose, ..Default::default() };
        Ok(from_wire::status(self.call(&rpc::STATUS, &request, "", cancel)?))
    }

    /// The runtime's cgroup driver; `None` where it does not tell (containerd before 2.0).
    pub fn runtime_config(&self, cancel: &Cancel) -> Result<Option<CgroupDriver>, CriError> {
        match self.call(&rpc::RUNTIME_CONFIG, &proto::RuntimeConfigRequest::new(), "", cancel) {
            Ok(answer) => Ok(answer.linux.into_option().and_then(|linux| match linux.cgroup_driver.enum_value() {
                Ok(proto::CgroupDriver::SYSTEMD) => Some(CgroupDriver::Systemd),
                Ok(proto::CgroupDriver::CGROUPFS) => Some(CgroupDriver::Cgroupfs),
                Err(_) => None,
            })),
            Err(error) if error.is_unimplemented() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Tells the runtime the node's pod CIDR.
    pub fn update_runtime_config(&self, pod_cidr: &str, cancel: &Cancel) -> Result<(), CriError> {
        let network = proto::NetworkConfig { pod_cidr: pod_cidr.to_owned(), ..Default::default() };
        let config = proto::RuntimeConfig { network_config: Some(network).into(), ..Default::default() };
        let request = proto::UpdateRuntimeConfigRequest { runtime_config: Some(config).into(), ..Default::default() };
        self.call(&rpc::UPDATE_RUNTIME_CONFIG, &request, pod_cidr, cancel).map(drop)
    }

    /// All pods that the runtime knows, from its two lists: each with all its sandboxes and containers,
    /// in the order of uids. Objects without the pod uid label are left out.
    pub fn list_pods(&self, cancel: &Cancel) -> Result<Vec<RuntimePod>, CriError> {
        let sandboxes = self.sandboxes(None, cancel)?;
        let containers = self.containers(&ContainerFilter::default(), cancel)?;
        Ok(from_wire::pods(sandboxes, containers))
    }

    /// One pod from the two lists, filtered by the runtime; `None` if it knows nothing of it.
    pub fn list_pod(&self, uid: &str, cancel: &Cancel) -> Result<Option<RuntimePod>, CriError> {
        let sandboxes = self.sandboxes(Some(uid), cancel)?;
        let filter = ContainerFilter { pod_uid: Some(uid.to_owned()), ..Default::default() };
        let containers = self.containers(&filter, cancel)?;
        Ok(from_wire::pods(sandboxes, containers).into_iter().next())
    }

    /// All sandboxes, or those of one pod.
    pub fn list_sandboxes(&self, pod_uid: Option<&str>, cancel: &Cancel) -> Result<Vec<RuntimeSandbox>, CriError> {
        Ok(self.sandboxes(pod_uid, cancel)?.into_iter().map(|sandbox| sandbox.it).collect())
    }

    fn sandboxes(&self, pod_uid: Option<&str>, cancel: &Cancel) -> Result<Vec<Labelled<RuntimeSandbox>>, CriError> {
        let filter = pod_uid.map(|uid| proto::PodSandboxFilter {
            label_selector: to_wire::uid_selector(Some(uid)),
            ..Default::default()
        });
        let request = proto::ListPodSandboxRequest { filter: filter.into(), ..Default::default() };
        let answer = self.call(&rpc::LIST_POD_SANDBOX, &request, pod_uid.unwrap_or_default(), cancel)?;
        let sandboxes = answer.items.into_iter().map(from_wire::sandbox).collect();
        self.checked(&rpc::LIST_POD_SANDBOX, "", sandboxes)
    }

    /// The static pods of manifest files that there are sandboxes of, whoever made them; one of several sandboxes each.
    pub fn file_pods(&self, cancel: &Cancel) -> Result<Vec<FilePod>, CriError> {
        let answer = self.call(&rpc::LIST_POD_SANDBOX, &proto::ListPodSandboxRequest::new(), "", cancel)?;
        Ok(answer.items.iter().filter_map(from_wire::file_pod).collect())
    }

    /// A close look at one sandbox.
    pub fn sandbox_status(&self, id: &SandboxId, cancel: &Cancel) -> Result<SandboxStatus, CriError> {
        let request = proto::PodSandboxStatusRequest { pod_sandbox_id: id.to_string(), ..Default::default() };
        let answer = self.call(&rpc::POD_SANDBOX_STATUS, &request, id.as_str(), cancel)?;
        let mut status = self.checked(&rpc::POD_SANDBOX_STATUS, id.as_str(), from_wire::sandbox_status(answer))?;
        for container in &mut status.containers {
            container.sandbox_id = status.sandbox.id.clone();
        }
        Ok(status)
    }

    /// Makes and starts a sandbox; answers its id. A cancelled or timed-out call may still leave one
    /// behind: the next relist shows it.
    pub fn run_pod_sandbox(&self, spec: &SandboxSpec, cancel: &Cancel) -> Result<SandboxId, CriError> {
        let object = format!("{}/{}", spec.namespace, spec.name);
        let request = proto::RunPodSandboxRequest {
            config: Some(to_wire::sandbox_config(spec)).into(),
            runtime_handler: spec.runtime_handler.clone(),
            ..Default::default()
        };
        let answer = self.call_longer(&rpc::RUN_POD_SANDBOX, &request, &object, self.timeout(), cancel)?;
        self.checked(&rpc::RUN_POD_SANDBOX, &object, given_id(answer.pod_sandbox_id).map(SandboxId::from))
    }

    /// Stops a sandbox and everything in it, and gives its network back. One that is stopped or gone is
    /// fine: containerd 1.6 calls that an error, CRI and containerd 2 do not.
    pub fn stop_pod_sandbox(&self, id: &SandboxId, cancel: &Cancel) -> Result<(), CriError> {
        let request = proto::StopPodSandboxRequest { pod_sandbox_id: id.to_string(), ..Default::default() };
        gone_is_fine(self.call(&rpc::STOP_POD_SANDBOX, &request, id.as_str(), cancel))
    }

    /// Removes a sandbox with its containers. One that is gone is fine.
    pub fn remove_pod_sandbox(&self, id: &SandboxId, cancel: &Cancel) -> Result<(), CriError> {
        self.note_removal(id.as_str());
        let request = proto::RemovePodSandboxRequest { pod_sandbox_id: id.to_string(), ..Default::default() };
        gone_is_fine(self.call(&rpc::REMOVE_POD_SANDBOX, &request, id.as_str(), cancel))
    }

    fn note_removal(&self, id: &str) {
        let mut removed = self.shared.removed.lock().unwrap_or_else(PoisonError::into_inner);
        if removed.len() >= REMOVALS {
            removed.pop_front();
        }
        removed.push_back(hash_of(id));
    }

    /// Whether a container or a sandbox was removed, or was to be, by this client or a clone of it lately: an event that
    /// still tells of it says nothing new.
    pub fn has_removed(&self, id: &str) -> bool {
        self.shared.removed.lock().unwrap_or_else(PoisonError::into_inner).contains(&hash_of(id))
    }

    /// The pod's resources have changed (in-place resize); runtimes before 2025 do not have this call.
    pub fn update_pod_sandbox_resources(
        &self,
        id: &SandboxId,
        overhead: &Resources,
        resources: &Resources,
        cancel: &Cancel,
    ) -> Result<(), CriError> {
        let request = proto::UpdatePodSandboxResourcesRequest {
            pod_sandbox_id: id.to_string(),
            overhead: Some(to_wire::resources(overhead)).into(),
            resources: Some(to_wire::resources(resources)).into(),
            ..Default::default()
        };
        self.call(&rpc::UPDATE_POD_SANDBOX_RESOURCES, &request, id.as_str(), cancel).map(drop)
    }

    /// Containers, all or some, without what only an inspection tells.
    fn containers(
        &self,
        filter: &ContainerFilter,
        cancel: &Cancel,
    ) -> Result<Vec<Labelled<RuntimeContainer>>, CriError> {
        let request = proto::ListContainersRequest { filter: to_wire::container_filter(filter), ..Default::default() };
        let object = filter.pod_uid.as_deref().unwrap_or_default();
        let answer = self.call(&rpc::LIST_CONTAINERS, &request, object, cancel)?;
        let containers = answer.containers.into_iter().map(from_wire::container).collect();
        self.checked(&rpc::LIST_CONTAINERS, "", containers)
    }

    /// A close look at one container. CRI does not tell its sandbox here: `sandbox_id` is empty.
    pub fn container_status(&self, id: &ContainerId, cancel: &Cancel) -> Result<RuntimeContainer, CriError> {
        let request = proto::ContainerStatusRequest { container_id: id.to_string(), ..Default::default() };
        let answer = self.call(&rpc::CONTAINER_STATUS, &request, id.as_str(), cancel)?;
        let status = answer.status.into_option().ok_or_else(|| "no status".to_owned());
        self.checked(&rpc::CONTAINER_STATUS, id.as_str(), status.and_then(from_wire::inspected_container))
    }

    /// Makes a container in a sandbox; answers its id. `sandbox_spec` is what the sandbox was made from.
    pub fn create_container(
        &self,
        sandbox: &SandboxId,
        spec: &ContainerSpec,
        sandbox_spec: &SandboxSpec,
        cancel: &Cancel,
    ) -> Result<ContainerId, CriError> {
        let config = to_wire::container_config(spec).map_err(|problem| {
            self.runtime().error(rpc::CREATE_CONTAINER.name, &spec.name, CriFailure::Unfit(problem))
        })?;
        let request = proto::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_string(),
            config: Some(config).into(),
            sandbox_config: Some(to_wire::sandbox_config(sandbox_spec)).into(),
            ..Default::default()
        };
        let answer = self.call(&rpc::CREATE_CONTAINER, &request, &spec.name, cancel)?;
        self.checked(&rpc::CREATE_CONTAINER, &spec.name, given_id(answer.container_id).map(ContainerId::from))
    }

    /// Starts a container that was made.
    pub fn start_container(&self, id: &ContainerId, cancel: &Cancel) -> Result<(), CriError> {
        let request = proto::StartContainerRequest { container_id: id.to_string(), ..Default::default() };
        self.call(&rpc::START_CONTAINER, &request, id.as_str(), cancel).map(drop)
    }

    /// Asks a container to end and kills it after `grace` (whole seconds, rounded up; zero kills at
    /// once). Returns when it has ended; its deadline is `grace` plus the usual one. One that has ended or
    /// is gone is fine.
    pub fn stop_container(&self, id: &ContainerId, grace: Duration, cancel: &Cancel) -> Result<(), CriError> {
        let timeout = to_wire::seconds(grace);
        let request = proto::StopContainerRequest { container_id: id.to_string(), timeout, ..Default::default() };
        gone_is_fine(self.call_longer(&rpc::STOP_CONTAINER, &request, id.as_str(), grace, cancel))
    }

    /// Removes a container, killing it if it runs. One that is gone is fine.
    pub fn remove_container(&self, id: &ContainerId, cancel: &Cancel) -> Result<(), CriError> {
        self.note_removal(id.as_str());
        let request = proto::RemoveContainerRequest { container_id: id.to_string(), ..Default::default() };
        gone_is_fine(self.call(&rpc::REMOVE_CONTAINER, &request, id.as_str(), cancel))
    }

    /// Changes the limits of a running container; a zero leaves a limit as it is.
    pub fn update_container_resources(
        &self,
        id: &ContainerId,
        resources: &Resources,
        cancel: &Cancel,
    ) -> Result<(), CriError> {
        let request = proto::UpdateContainerResourcesRequest {
            container_id: id.to_string(),
            linux: Some(to_wire::resources(resources)).into(),
            ..Default::default()
        };
        self.call(&rpc::UPDATE_CONTAINER_RESOURCES, &request, id.as_str(), cancel).map(drop)
    }

    /// Tells the runtime to write on to a fresh file after the log was moved away.
    pub fn reopen_container_log(&self, id: &ContainerId, cancel: &Cancel) -> Result<(), CriError> {
        let request = proto::ReopenContainerLogRequest { container_id: id.to_string(), ..Default::default() };
        self.call(&rpc::REOPEN_CONTAINER_LOG, &request, id.as_str(), cancel).map(drop)
    }

    /// Writes a checkpoint of a running container to `location`, a file that must not exist.
    pub fn checkpoint_container(
        &self,
        id: &ContainerId,
        location: &str,
        timeout: Duration,
        cancel: &Cancel,
    ) -> Result<(), CriError> {
        let request = proto::CheckpointContainerRequest {
            container_id: id.to_string(),
            location: location.to_owned(),
            timeout: to_wire::seconds(timeout),
            ..Default::default()
        };
        self.call_longer(&rpc::CHECKPOINT_CONTAINER, &request, id.as_str(), timeout, cancel).map(drop)
    }

    /// Runs a command in a container to its end. The runtime kills it after `timeout` (whole seconds,
    /// rounded up) and the error then says [`CriError::is_deadline`]. Cancelling gives up waiting, not
    /// the command.
    pub fn exec_sync(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Duration,
        cancel: &Cancel,
    ) -> Result<ExecOutput, CriError> {
        let request = proto::ExecSyncRequest {
            container_id: id.to_string(),
            cmd: command.to_vec(),
            timeout: to_wire::seconds(timeout).max(1),
            ..Default::default()
        };
        let answer = self.call_longer(&rpc::EXEC_SYNC, &request, id.as_str(), timeout, cancel)?;
        let mut output = ExecOutput {
            truncated: answer.stdout.len() > EXEC_OUTPUT_LIMIT || answer.stderr.len() > EXEC_OUTPUT_LIMIT,
            stdout: answer.stdout,
            stderr: answer.stderr,
            exit_code: answer.exit_code,
        };
        output.stdout.truncate(EXEC_OUTPUT_LIMIT);
        output.stderr.truncate(EXEC_OUTPUT_LIMIT);
        Ok(output)
    }

    /// The URL at which the runtime serves an exec session.
    pub fn exec_url(
        &self,
        id: &ContainerId,
        command: &[String],
        streams: StreamOptions,
        cancel: &Cancel,
    ) -> Result<String, CriError> {
        let request = proto::ExecRequest {
            container_id: id.to_string(),
            cmd: command.to_vec(),
            tty: streams.tty,
            stdin: streams.stdin,
            stdout: streams.stdout,
            stderr: streams.stderr,
            ..Default::default()
        };
        Ok(self.call(&rpc::EXEC, &request, id.as_str(), cancel)?.url)
    }

    /// The URL at which the runtime serves an attach session.
    pub fn attach_url(&self, id: &ContainerId, streams: StreamOptions, cancel: &Cancel) -> Result<String, CriError> {
        let request = proto::AttachRequest {
            container_id: id.to_string(),
            stdin: streams.stdin,
            tty: streams.tty,
            stdout: streams.stdout,
            stderr: streams.stderr,
            ..Default::default()
        };
        Ok(self.call(&rpc::ATTACH, &request, id.as_str(), cancel)?.url)
    }

    /// The URL at which the runtime forwards ports of a sandbox.
    pub fn port_forward_url(&self, id: &SandboxId, ports: &[i32], cancel: &Cancel) -> Result<String, CriError> {
        let request =
            proto::PortForwardRequest { pod_sandbox_id: id.to_string(), port: ports.to_vec(), ..Default::default() };
        Ok(self.call(&rpc::PORT_FORWARD, &request, id.as_str(), cancel)?.url)
    }
}

fn given_id(id: String) -> Result<String, Problem> {
    if id.is_empty() { Err("an empty id for what was made".to_owned()) } else { Ok(id) }
}

/// The object was to end, and it is not there: that is what was wanted.
fn gone_is_fine<T>(result: Result<T, CriError>) -> Result<(), CriError> {
    match result {
        Err(error) if !error.is_not_found() => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

//! What a fake container runtime holds: sandboxes, containers, images, and how they live and die.
//!
//! Plain state behind the fake's one mutex; the time is an argument. It follows containerd where an
//! agent could notice a difference: names are reserved, dead things stay until removed, a stopped
//! sandbox takes its containers along. It never runs a process.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ferrolet::cri::proto;
use sha2::{Digest, Sha256};

/// A gRPC code and message that a call answers with.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// gRPC code.
    pub(crate) code: i32,
    /// Message.
    pub(crate) message: String,
}

/// Makes a fault; the number is the gRPC code.
pub(crate) fn fault(code: i32, message: impl Into<String>) -> Fault {
    Fault { code, message: message.into() }
}

/// gRPC code NotFound.
pub(crate) const NOT_FOUND: i32 = 5;
/// gRPC code Unknown, which containerd uses for most failures.
pub(crate) const UNKNOWN: i32 = 2;

/// How containers of one name behave.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    /// Ends by itself this long after its start, with this code.
    pub(crate) exit: Option<(Duration, i32)>,
    /// Does not end on SIGTERM, only when killed.
    pub(crate) ignores_term: bool,
    /// Code with which it ends on SIGTERM.
    pub(crate) term_code: i32,
    /// StartContainer fails with this message.
    pub(crate) start_error: Option<String>,
    /// Written to its termination message file when it ends.
    pub(crate) termination_message: String,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self { exit: None, ignores_term: false, term_code: 143, start_error: None, termination_message: String::new() }
    }
}

/// A sandbox.
#[derive(Clone, Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    /// The name that is taken while it is there.
    pub(crate) reserved: String,
    pub(crate) config: proto::PodSandboxConfig,
    pub(crate) handler: String,
    pub(crate) ready: bool,
    pub(crate) created_at: i64,
    pub(crate) ip: String,
}

/// Where a container is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Created,
    Running,
    Exited,
}

/// A container.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub(crate) id: String,
    /// The name that is taken while it is there.
    pub(crate) reserved: String,
    pub(crate) sandbox_id: String,
    pub(crate) config: proto::ContainerConfig,
    pub(crate) image_id: String,
    pub(crate) life: Life,
    pub(crate) created_at: i64,
    pub(crate) started_at: i64,
    pub(crate) finished_at: i64,
    pub(crate) exit_code: i32,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) exits_at: Option<(Instant, i32)>,
}

impl Container {
    /// Its name in the pod.
    pub(crate) fn name(&self) -> &str {
        &self.config.metadata.get_or_default().name
    }

    /// Its attempt.
    pub(crate) fn attempt(&self) -> u32 {
        self.config.metadata.get_or_default().attempt
    }
}

/// The runtime's answer to a command in a container: output, errors, exit code.
pub(crate) type Exec = Box<dyn FnMut(&str, &[String]) -> (Vec<u8>, Vec<u8>, i32) + Send>;

/// Changes an answer's bytes.
pub(crate) type Lie = Box<dyn FnMut(Vec<u8>) -> Vec<u8> + Send>;

/// Everything.
pub(crate) struct State {
    pub(crate) sandboxes: BTreeMap<String, Sandbox>,
    pub(crate) containers: BTreeMap<String, Container>,
    pub(crate) images: BTreeMap<String, proto::Image>,
    /// Images that a pull finds, by normal name.
    pub(crate) pullable: BTreeSet<String>,
    /// How containers behave, by their name in the pod.
    pub(crate) behaviours: BTreeMap<String, Behaviour>,
    pub(crate) exec: Exec,
    pub(crate) runtime_ready: bool,
    pub(crate) network_ready: bool,
    /// Calls in order, with their arguments.
    pub(crate) called: Vec<String>,
    pub(crate) faults: BTreeMap<String, VecDeque<Fault>>,
    pub(crate) hung: BTreeSet<String>,
    pub(crate) slow: BTreeMap<String, Duration>,
    /// Methods that answer bytes which are no message, and how many times more.
    pub(crate) garbage: BTreeMap<String, usize>,
    /// Methods that answer "OK" without a message, and how many times more.
    pub(crate) empty: BTreeMap<String, usize>,
    /// Methods whose answers are changed on their way out.
    pub(crate) lies: BTreeMap<String, Lie>,
    /// Whether there are container events; `None`: the call does not exist.
    pub(crate) events: Option<Events>,
    /// Events since the last look of the event threads.
    pub(crate) outbox: Vec<proto::ContainerEventResponse>,
    /// Logs of running containers, open as a runtime holds them: by id.
    logs: BTreeMap<String, std::fs::File>,
    /// Names in use, with the id that has each.
    names: BTreeMap<String, String>,
    serial: u64,
    last_time: i64,
}

/// What happens to container events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Events {
    /// They are sent.
    Sent,
    /// They get lost on the way.
    Lost,
}

impl Default for State {
    fn default() -> Self {
        Self {
            sandboxes: BTreeMap::new(),
            containers: BTreeMap::new(),
            images: BTreeMap::new(),
            pullable: BTreeSet::new(),
            behaviours: BTreeMap::new(),
            exec: Box::new(|_, _| (Vec::new(), Vec::new(), 0)),
            runtime_ready: true,
            network_ready: true,
            called: Vec::new(),
            faults: BTreeMap::new(),
            hung: BTreeSet::new(),
            slow: BTreeMap::new(),
            garbage: BTreeMap::new(),
            empty: BTreeMap::new(),
            lies: BTreeMap::new(),
            events: None,
            outbox: Vec::new(),
            logs: BTreeMap::new(),
            names: BTreeMap::new(),
            serial: 0,
            last_time: 0,
        }
    }
}

/// The full name of an image, as containerd stores it.
pub(crate) fn normal_name(name: &str) -> String {
    if name.starts_with("sha256:") {
        return name.to_owned();
    }
    let has_host = name.split_once('/').is_some_and(|(host, _)| host.contains(['.', ':']) || host == "localhost");
    let full = match (has_host, name.contains('/')) {
        (true, _) => name.to_owned(),
        (false, true) => format!("docker.io/{name}"),
        (false, false) => format!("docker.io/library/{name}"),
    };
    let last = full.rsplit('/').next().unwrap_or_default();
    if last.contains(':') || last.contains('@') { full } else { format!("{full}:latest") }
}

fn digest(text: &str) -> String {
    let mut hex = String::from("sha256:");
    for byte in Sha256::digest(text.as_bytes()) {
        hex.push_str(&format!("{byte:02x}"));
    }
    hex
}

impl State {
    /// Wall-clock nanoseconds, later with each call.
    pub(crate) fn now(&mut self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        self.last_time = i64::try_from(now).unwrap_or(i64::MAX).max(self.last_time + 1);
        self.last_time
    }

    /// The next id: 64 hexadecimal digits, `5…` for sandboxes and `c…` for containers.
    fn next_id(&mut self, kind: char) -> String {
        self.serial += 1;
        format!("{kind}{:011x}{:052x}", self.serial, 0)
    }

    /// Puts an image on the node.
    pub(crate) fn add_image(&mut self, name: &str) -> String {
        let name = normal_name(name);
        let id = digest(&name);
        let repository = name.rsplit_once(':').map_or(name.as_str(), |(repository, _)| repository).to_owned();
        self.images.insert(
            id.clone(),
            proto::Image {
                id: id.clone(),
                repo_digests: vec![format!("{repository}@{}", digest(&id))],
                repo_tags: vec![name],
                size: 1 << 20,
                ..Default::default()
            },
        );
        id
    }

    /// The image of this name or id.
    pub(crate) fn find_image(&self, name: &str) -> Option<&proto::Image> {
        if let Some(image) = self.images.get(name) {
            return Some(image);
        }
        let name = normal_name(name);
        self.images.values().find(|image| image.repo_tags.contains(&name) || image.repo_digests.contains(&name))
    }

    /// Makes a sandbox.
    pub(crate) fn run_sandbox(&mut self, config: proto::PodSandboxConfig, handler: &str) -> Result<String, Fault> {
        let wanted = config.metadata.get_or_default();
        let name = format!("{}_{}_{}_{}", wanted.name, wanted.namespace, wanted.uid, wanted.attempt);
        if let Some(other) = self.names.get(&name) {
            let message = format!("failed to reserve sandbox name {name:?}: name {name:?} is reserved for {other:?}");
            return Err(fault(UNKNOWN, message));
        }
        let id = self.next_id('5');
        let options =
            config.linux.get_or_default().security_context.get_or_default().namespace_options.get_or_default();
        let host_network = options.network.enum_value() == Ok(proto::NamespaceMode::NODE);
        let ip = if host_network {
            String::new()
        } else {
            format!("10.244.{}.{}", self.serial / 250 % 250, self.serial % 250 + 2)
        };
        let created_at = self.now();
        let reserved = name.clone();
        let sandbox =
            Sandbox { id: id.clone(), reserved, config, handler: handler.to_owned(), ready: true, created_at, ip };
        self.names.insert(name, id.clone());
        self.sandboxes.insert(id.clone(), sandbox);
        self.sandbox_event(&id, proto::ContainerEventType::CONTAINER_CREATED_EVENT);
        self.sandbox_event(&id, proto::ContainerEventType::CONTAINER_STARTED_EVENT);
        Ok(id)
    }

    /// Stops a sandbox: its containers die with it.
    pub(crate) fn stop_sandbox(&mut self, id: &str) {
        let inside: Vec<String> =
            self.containers.values().filter(|it| it.sandbox_id == id).map(|it| it.id.clone()).collect();
        for container in inside {
            self.end(&container, 137, "Error");
        }
        if self.sandboxes.get_mut(id).is_some_and(|sandbox| std::mem::replace(&mut sandbox.ready, false)) {
            self.sandbox_event(id, proto::ContainerEventType::CONTAINER_STOPPED_EVENT);
        }
    }

    /// Removes a sandbox with its containers, stopping it first if need be.
    pub(crate) fn remove_sandbox(&mut self, id: &str) {
        self.stop_sandbox(id);
        let names = &mut self.names;
        self.containers.retain(|_, container| {
            let stays = container.sandbox_id != id;
            if !stays {
                names.remove(&container.reserved);
            }
            stays
        });
        if self.sandboxes.contains_key(id) {
            self.sandbox_event(id, proto::ContainerEventType::CONTAINER_DELETED_EVENT);
        }
        if let Some(sandbox) = self.sandboxes.remove(id) {
            self.names.remove(&sandbox.reserved);
        }
    }

    /// Makes a container.
    pub(crate) fn create(&mut self, sandbox_id: &str, config: proto::ContainerConfig) -> Result<String, Fault> {
        let Some(sandbox) = self.sandboxes.get(sandbox_id) else {
            return Err(fault(NOT_FOUND, format!("failed to find sandbox id {sandbox_id:?}: not found")));
        };
        let pod = sandbox.config.metadata.get_or_default().clone();
        let wanted = config.metadata.get_or_default();
        let name = format!("{}_{}_{}_{}_{}", wanted.name, pod.name, pod.namespace, pod.uid, wanted.attempt);
        if let Some(other) = self.names.get(&name) {
            let message = format!("failed to reserve container name {name:?}: name {name:?} is reserved for {other:?}");
            return Err(fault(UNKNOWN, message));
        }
        let asked = &config.image.get_or_default().image;
        let Some(image) = self.find_image(asked) else {
            return Err(fault(NOT_FOUND, format!("failed to resolve image {asked:?}: not found")));
        };
        let image_id = image.id.clone();
        let id = self.next_id('c');
        let created_at = self.now();
        self.names.insert(name.clone(), id.clone());
        self.containers.insert(
            id.clone(),
            Container {
                id: id.clone(),
                reserved: name,
                sandbox_id: sandbox_id.to_owned(),
                config,
                image_id,
                life: Life::Created,
                created_at,
                started_at: 0,
                finished_at: 0,
                exit_code: 0,
                reason: String::new(),
                message: String::new(),
                exits_at: None,
            },
        );
        self.container_event(&id, proto::ContainerEventType::CONTAINER_CREATED_EVENT);
        Ok(id)
    }

    /// How this container behaves.
    pub(crate) fn behaviour(&self, id: &str) -> Behaviour {
        let name = self.containers.get(id).map(Container::name).unwrap_or_default();
        self.behaviours.get(name).cloned().unwrap_or_default()
    }

    /// Starts a container that was made.
    pub(crate) fn start(&mut self, id: &str, now: Instant) -> Result<(), Fault> {
        let behaviour = self.behaviour(id);
        let time = self.now();
        let Some(container) = self.containers.get_mut(id) else { return Err(no_container(id)) };
        if container.life != Life::Created {
            let state = if container.life == Life::Running { "CONTAINER_RUNNING" } else { "CONTAINER_EXITED" };
            let message = format!("failed to set starting state for container {id:?}: container is in {state} state");
            return Err(fault(UNKNOWN, message));
        }
        if !self.sandboxes.get(&container.sandbox_id).is_some_and(|sandbox| sandbox.ready) {
            return Err(fault(UNKNOWN, format!("sandbox container {:?} is not running", container.sandbox_id)));
        }
        if let Some(message) = behaviour.start_error {
            container.life = Life::Exited;
            container.finished_at = time;
            container.exit_code = 128;
            container.reason = "StartError".to_owned();
            container.message.clone_from(&message);
            return Err(fault(UNKNOWN, message));
        }
        container.life = Life::Running;
        container.started_at = time;
        let exits = behaviour.exit.is_some();
        container.exits_at = behaviour.exit.map(|(after, code)| (now + after, code));
        if self.open_log(id) {
            self.print(id, "started");
        }
        self.container_event(id, proto::ContainerEventType::CONTAINER_STARTED_EVENT);
        if exits {
            self.tick(now);
        }
        Ok(())
    }

    /// Ends a container's process, if it has one.
    pub(crate) fn end(&mut self, id: &str, code: i32, reason: &str) {
        let message = self.behaviour(id).termination_message;
        let time = self.now();
        let Some(container) = self.containers.get_mut(id) else { return };
        if container.life != Life::Running {
            return;
        }
        container.life = Life::Exited;
        container.finished_at = time;
        container.exit_code = code;
        container.reason = reason.to_owned();
        container.exits_at = None;
        let path = "io.kubernetes.container.terminationMessagePath";
        if let Some(path) = container.config.annotations.get(path).filter(|_| !message.is_empty()) {
            for mount in container.config.mounts.iter().filter(|mount| &mount.container_path == path) {
                let _ = std::fs::write(&mount.host_path, &message);
            }
        }
        self.print(id, "ended");
        self.logs.remove(id);
        self.container_event(id, proto::ContainerEventType::CONTAINER_STOPPED_EVENT);
    }

    /// Opens a container's log, or what stands under its path by now; false if the agent made no log folder.
    pub(crate) fn open_log(&mut self, id: &str) -> bool {
        let Some(container) = self.containers.get(id) else { return false };
        let folder = self.sandboxes.get(&container.sandbox_id).map(|sandbox| sandbox.config.log_directory.as_str());
        let Some(folder) = folder.map(Path::new).filter(|folder| folder.is_absolute() && folder.is_dir()) else {
            return false;
        };
        let path = folder.join(&container.config.log_path);
        let _ = path.parent().map(std::fs::create_dir_all);
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        file.is_ok_and(|file| self.logs.insert(id.to_owned(), file).is_none_or(|_| true))
    }

    /// Adds a line to a container's log, in the form all runtimes use, wherever the open file is by now.
    pub(crate) fn print(&mut self, id: &str, line: &str) {
        let name = self.containers.get(id).map(Container::name).unwrap_or_default();
        if let Some(file) = self.logs.get_mut(id) {
            let _ = writeln!(file, "2026-11-30T06:44:21.153863751Z stdout F {name} {line}");
        }
    }

    /// Ends the containers whose time has come; true if there were any.
    pub(crate) fn tick(&mut self, now: Instant) -> bool {
        let due: Vec<(String, i32)> = self
            .containers
            .values()
            .filter_map(|it| it.exits_at.filter(|(at, _)| *at <= now).map(|(_, code)| (it.id.clone(), code)))
            .collect();
        for (id, code) in &due {
            self.end(id, *code, if *code == 0 { "Completed" } else { "Error" });
        }
        !due.is_empty()
    }

    /// When the next container ends by itself.
    pub(crate) fn next_exit(&self) -> Option<Instant> {
        self.containers.values().filter_map(|it| it.exits_at.map(|(at, _)| at)).min()
    }

    /// Removes a container, killing it first if it runs.
    pub(crate) fn remove(&mut self, id: &str) {
        self.end(id, 137, "Error");
        if self.containers.contains_key(id) {
            self.container_event(id, proto::ContainerEventType::CONTAINER_DELETED_EVENT);
        }
        if let Some(container) = self.containers.remove(id) {
            self.names.remove(&container.reserved);
        }
    }

    /// A line for the call log: `namespace/pod container`.
    pub(crate) fn label(&self, container_id: &str) -> String {
        match self.containers.get(container_id) {
            Some(container) => format!("{} {}", self.pod_label(&container.sandbox_id), container.name()),
            None => format!("unknown {container_id}"),
        }
    }

    /// A line for the call log: `namespace/pod`.
    pub(crate) fn pod_label(&self, sandbox_id: &str) -> String {
        match self.sandboxes.get(sandbox_id) {
            Some(sandbox) => {
                let metadata = sandbox.config.metadata.get_or_default();
                format!("{}/{}", metadata.namespace, metadata.name)
            }
            None => format!("unknown {sandbox_id}"),
        }
    }

    fn container_event(&mut self, id: &str, kind: proto::ContainerEventType) {
        let Some(sandbox_id) = self.containers.get(id).map(|it| it.sandbox_id.clone()) else { return };
        self.event(id, &sandbox_id, kind);
    }

    fn sandbox_event(&mut self, id: &str, kind: proto::ContainerEventType) {
        self.event(id, id, kind);
    }

    fn event(&mut self, id: &str, sandbox_id: &str, kind: proto::ContainerEventType) {
        if self.events != Some(Events::Sent) {
            return;
        }
        let created_at = self.now();
        let deleted = kind == proto::ContainerEventType::CONTAINER_DELETED_EVENT;
        let event = proto::ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: protobuf::EnumOrUnknown::new(kind),
            created_at,
            pod_sandbox_status: self.sandboxes.get(sandbox_id).map(super::cri_wire::sandbox_status).into(),
            containers_statuses: self
                .containers
                .values()
                .filter(|it| it.sandbox_id == sandbox_id && !(deleted && it.id == id))
                .map(|it| super::cri_wire::container_status(self, it))
                .collect(),
            ..Default::default()
        };
        self.outbox.push(event);
    }
}

/// containerd's words for an unknown container.
pub(crate) fn no_container(id: &str) -> Fault {
    fault(NOT_FOUND, format!("an error occurred when try to find container {id:?}: not found"))
}

//! A fake container runtime on a real unix socket: the handle that tests hold.
//!
//! `FakeCri::start()` serves CRI v1 in a temporary folder until it is dropped. It records every call,
//! can be told to fail, hang, answer slowly or garbage, to lose its connection or to restart on the
//! same path, and keeps the state of its sandboxes and containers meanwhile, as containerd does.
//! It owns its folder, its server and one clock thread; it never touches the real system.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ferrolet::cri::proto;
use grpcio::{EnvBuilder, Environment, Server, ServerBuilder, ServerCredentials, ServiceBuilder};
use protobuf::{Message, MessageField};
use tempfile::TempDir;

use super::cri_calls;
use super::cri_service::{Calls, Shared, block_on};
use super::cri_state::{Behaviour, Events, Life, State, fault};

/// How long a test waits for something that will happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which version of CRI the fake speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Api {
    V1,
    V1Alpha2,
    /// gRPC without CRI, like a containerd whose cri plugin is disabled.
    None,
}

/// A running fake runtime.
pub(crate) struct FakeCri {
    shared: Arc<Shared>,
    api: Api,
    environment: Arc<Environment>,
    server: Option<Server>,
    clock: Option<JoinHandle<()>>,
    socket: PathBuf,
    _folder: TempDir,
}

/// A server environment, with a thread of its own, so that a fake with much to do holds up no neighbour. Environments of
/// fakes that have ended serve the next ones: the C core does not end cleanly.
fn environment() -> Arc<Environment> {
    let mut all = ENVIRONMENTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(idle) = all.iter().find(|it| Arc::strong_count(it) == 1) {
        return idle.clone();
    }
    let fresh = Arc::new(EnvBuilder::new().cq_count(1).name_prefix("fake-cri").build());
    all.push(fresh.clone());
    fresh
}

static ENVIRONMENTS: Mutex<Vec<Arc<Environment>>> = Mutex::new(Vec::new());

impl FakeCri {
    /// A runtime that holds nothing, with `registry.k8s.io/pause:3.10` and no other image.
    pub(crate) fn start() -> Self {
        Self::with_api(Api::V1)
    }

    /// A runtime from before CRI v1.
    pub(crate) fn start_v1alpha2() -> Self {
        Self::with_api(Api::V1Alpha2)
    }

    /// A gRPC server that knows no CRI at all.
    pub(crate) fn start_without_cri() -> Self {
        Self::with_api(Api::None)
    }

    fn with_api(api: Api) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("cri.sock");
        let shared = Arc::new(Shared::default());
        shared.with(|state| state.add_image("registry.k8s.io/pause:3.10"));
        let clock = std::thread::Builder::new().name("fake-cri-clock".into()).spawn({
            let shared = shared.clone();
            move || shared.run_clock()
        });
        let mut fake = Self {
            shared,
            api,
            environment: environment(),
            server: None,
            clock: Some(clock.expect("a thread")),
            socket,
            _folder: folder,
        };
        fake.serve();
        fake
    }

    /// Serves again after [`FakeCri::stop`], on the same path and with the same state.
    pub(crate) fn serve(&mut self) {
        let calls = Calls(self.shared.clone());
        let service = match self.api {
            Api::V1 => calls.events(cri_calls::register(ServiceBuilder::new(), &calls)),
            Api::V1Alpha2 => cri_calls::register_old_api(ServiceBuilder::new(), &calls),
            Api::None => ServiceBuilder::new(),
        };
        let builder =
            ServerBuilder::new(self.environment.clone()).requests_slot_per_cq(64).register_service(service.build());
        let mut server = builder.build().expect("a server");
        server
            .add_listening_port(format!("unix:{}", self.socket.display()), ServerCredentials::insecure())
            .expect("a socket");
        server.start();
        self.server = Some(server);
    }

    /// Ends the server as a dying process would: connections break, the state stays.
    pub(crate) fn stop(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        let ended = server.shutdown();
        server.cancel_all_calls();
        self.shared.drop_waiting();
        block_on(ended).expect("shut down");
    }

    /// Dies and comes back on the same path.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.serve();
    }

    /// Learns CRI v1, as an upgrade of the runtime brings it; in force from the next start on.
    pub(crate) fn upgrade(&mut self) {
        self.api = Api::V1;
    }

    /// Its socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Its socket as `containerRuntimeEndpoint`.
    pub(crate) fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// Looks at or changes its state.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        self.shared.with(look)
    }

    /// Waits until the state is as wanted. Fails the test with the call log if that never happens.
    pub(crate) fn wait_for(&self, what: &str, wanted: impl FnMut(&State) -> bool) {
        if !self.shared.wait(Instant::now() + PATIENCE, wanted) {
            panic!("the fake runtime never saw {what}; calls:\n{}", self.called().join("\n"));
        }
    }

    /// Waits until a call that starts with `line` has come in.
    pub(crate) fn wait_called(&self, line: &str) {
        self.wait_for(line, |state| state.called.iter().any(|called| called.starts_with(line)));
    }

    /// All calls since the start, or since [`FakeCri::forget_calls`], with their arguments.
    pub(crate) fn called(&self) -> Vec<String> {
        self.with(|state| state.called.clone())
    }

    /// The calls that changed something.
    pub(crate) fn changes(&self) -> Vec<String> {
        const READS: &[&str] =
            &["List", "Version", "Status", "RuntimeConfig", "ContainerSt", "PodSandboxSt", "ImageS", "ImageF", "GetC"];
        let mut calls = self.called();
        calls.retain(|line| !READS.iter().any(|read| line.starts_with(read)));
        calls
    }

    /// Starts the call log anew.
    pub(crate) fn forget_calls(&self) {
        self.with(|state| state.called.clear());
    }

    /// The next `times` calls of a method fail so.
    pub(crate) fn inject(&self, method: &str, code: i32, message: &str, times: usize) {
        self.with(|state| {
            let faults = state.faults.entry(method.to_owned()).or_default();
            faults.extend((0..times).map(|_| fault(code, message)));
        });
    }

    /// Calls of a method are taken and not answered, nor carried out, until [`FakeCri::release`].
    pub(crate) fn hang(&self, method: &str) {
        self.with(|state| state.hung.insert(method.to_owned()));
    }

    /// Lets the calls go on that hang.
    pub(crate) fn release(&self, method: &str) {
        self.with(|state| state.hung.remove(method));
    }

    /// Calls of a method are carried out and answered after this time.
    pub(crate) fn slow(&self, method: &str, by: Duration) {
        self.with(|state| state.slow.insert(method.to_owned(), by));
    }

    /// The next `times` calls of a method are answered with bytes that are no message.
    pub(crate) fn garbage(&self, method: &str, times: usize) {
        self.with(|state| state.garbage.insert(method.to_owned(), times));
    }

    /// The next `times` calls of a method are answered "OK" with no message at all.
    pub(crate) fn empty(&self, method: &str, times: usize) {
        self.with(|state| state.empty.insert(method.to_owned(), times));
    }

    /// Answers of a method are changed before they are sent, from now until [`FakeCri::tell_the_truth`].
    pub(crate) fn lie<M: Message>(&self, method: &str, mut change: impl FnMut(&mut M) + Send + 'static) {
        let lie = move |truth: Vec<u8>| {
            let mut answer = M::parse_from_bytes(&truth).expect("what the fake made itself");
            change(&mut answer);
            answer.write_to_bytes().expect("an answer")
        };
        self.with(|state| state.lies.insert(method.to_owned(), Box::new(lie)));
    }

    /// No answer is changed any more.
    pub(crate) fn tell_the_truth(&self) {
        self.with(|state| state.lies.clear());
    }

    /// Whether there are container events, and whether they arrive. Without, the call is unimplemented.
    pub(crate) fn set_events(&self, events: Option<Events>) {
        self.with(|state| state.events = events);
    }

    /// Ends all event streams: as a server that closes, or with an error.
    pub(crate) fn end_events(&self, error: Option<(i32, &str)>) {
        self.shared.end_streams(error);
    }

    /// How many event streams are open.
    pub(crate) fn subscribers(&self) -> usize {
        self.shared.subscribers()
    }

    /// How containers of this name behave from now on.
    pub(crate) fn behave(&self, container: &str, behaviour: Behaviour) {
        self.with(|state| state.behaviours.insert(container.to_owned(), behaviour));
    }

    /// What commands in containers do: from container name and command to output, errors and exit code.
    pub(crate) fn on_exec(&self, exec: impl FnMut(&str, &[String]) -> (Vec<u8>, Vec<u8>, i32) + Send + 'static) {
        self.with(|state| state.exec = Box::new(exec));
    }

    /// Puts an image on the node.
    pub(crate) fn add_image(&self, name: &str) {
        self.with(|state| state.add_image(name));
    }

    /// An image that pulls find.
    pub(crate) fn add_pullable(&self, name: &str) {
        self.with(|state| state.pullable.insert(super::cri_state::normal_name(name)));
    }

    /// The id of the newest container of this name in the pod of this name.
    pub(crate) fn container_id(&self, pod: &str, container: &str) -> Option<String> {
        self.with(|state| {
            let of_pod = |sandbox: &str| {
                state.sandboxes.get(sandbox).is_some_and(|it| it.config.metadata.get_or_default().name == pod)
            };
            let mine = state.containers.values().filter(|it| it.name() == container && of_pod(&it.sandbox_id));
            mine.max_by_key(|it| it.created_at).map(|it| it.id.clone())
        })
    }

    /// Ends a container's process with this code.
    pub(crate) fn exit_container(&self, id: &str, code: i32) {
        self.with(|state| state.end(id, code, if code == 0 { "Completed" } else { "Error" }));
    }

    /// Ends a container's process as the kernel does when memory is short.
    pub(crate) fn oom(&self, id: &str) {
        self.with(|state| state.end(id, 137, "OOMKilled"));
    }

    /// A sandbox dies, and what is in it.
    pub(crate) fn crash_sandbox(&self, id: &str) {
        self.with(|state| state.stop_sandbox(id));
    }

    /// One line a container: `namespace/pod name#attempt state`, in the order of creation.
    pub(crate) fn containers(&self) -> Vec<String> {
        self.with(|state| {
            let mut all: Vec<_> = state.containers.values().collect();
            all.sort_by_key(|container| container.created_at);
            let line = |it: &&super::cri_state::Container| {
                let life = match it.life {
                    Life::Exited => format!("Exited {}", it.exit_code),
                    other => format!("{other:?}"),
                };
                format!("{}#{} {life}", state.label(&it.id), it.attempt())
            };
            all.iter().map(line).collect()
        })
    }

    /// Fills the node with running pods of `containers` containers each, with the labels and annotations
    /// that an agent gives them.
    pub(crate) fn add_pods(&self, pods: usize, containers: usize) {
        self.with(|state| {
            state.add_image("busybox");
            for number in 0..pods {
                let name = format!("pod-{number}");
                let uid = format!("00000000-0000-4000-8000-{number:012}");
                let labels = labels(&name, &uid);
                let metadata =
                    proto::PodSandboxMetadata { name, uid, namespace: "default".into(), ..Default::default() };
                let config = proto::PodSandboxConfig {
                    metadata: MessageField::some(metadata),
                    log_directory: "/var/log/pods/x".into(),
                    annotations: pairs(&[
                        ("kubernetes.io/config.seen", "2026-11-30T06:44:21.153863751Z"),
                        ("kubernetes.io/config.source", "file"),
                        ("kubernetes.io/config.hash", "0123456789abcdef0123456789abcdef"),
                    ]),
                    labels: labels.clone(),
                    ..Default::default()
                };
                let sandbox = state.run_sandbox(config, "").expect("a sandbox");
                for number in 0..containers {
                    let id = state.create(&sandbox, container(&labels, number)).expect("a container");
                    state.start(&id, Instant::now()).expect("started");
                }
            }
        });
    }
}

fn pairs(pairs: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn labels(name: &str, uid: &str) -> std::collections::BTreeMap<String, String> {
    pairs(&[
        ("app", "bench"),
        ("tier", "edge"),
        ("io.kubernetes.pod.name", name),
        ("io.kubernetes.pod.namespace", "default"),
        ("io.kubernetes.pod.uid", uid),
    ])
}

fn container(pod_labels: &std::collections::BTreeMap<String, String>, number: usize) -> proto::ContainerConfig {
    let name = format!("c{number}");
    let mut labels = pod_labels.clone();
    labels.insert("io.kubernetes.container.name".into(), name.clone());
    proto::ContainerConfig {
        metadata: MessageField::some(proto::ContainerMetadata { name: name.clone(), ..Default::default() }),
        image: MessageField::some(proto::ImageSpec {
            image: "busybox".into(),
            user_specified_image: "busybox".into(),
            ..Default::default()
        }),
        labels,
        annotations: pairs(&[
            ("io.kubernetes.container.hash", "3ada567e"),
            ("io.kubernetes.container.restartCount", "0"),
            ("io.kubernetes.container.terminationMessagePath", "/dev/termination-log"),
            ("io.kubernetes.container.terminationMessagePolicy", "File"),
            ("io.kubernetes.pod.terminationGracePeriod", "30"),
        ]),
        log_path: format!("{name}/0.log"),
        ..Default::default()
    }
}

impl Drop for FakeCri {
    fn drop(&mut self) {
        self.stop();
        self.shared.close();
        if let Some(clock) = self.clock.take() {
            let _ = clock.join();
        }
    }
}

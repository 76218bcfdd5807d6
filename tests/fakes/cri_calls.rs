//! The calls of the fake runtime: what each says in the call log, and what it does.
//!
//! Each call is two functions of the state, run with the fake's mutex held: one describes the request,
//! one carries it out. None blocks: a call that takes time answers [`Answer::Later`].

use std::time::{Duration, Instant};

use ferrolet::cri::proto::{self, image_service as images, runtime_service as rpc};
use grpcio::ServiceBuilder;
use protobuf::{EnumOrUnknown, MessageField};

use super::cri_service::{Answer, Calls, Poll};
use super::cri_state::{Fault, Life, NOT_FOUND, State, UNKNOWN, fault, no_container, normal_name};
use super::cri_wire;

fn some<T>(value: T) -> MessageField<T> {
    MessageField::some(value)
}

fn now<T>(value: T) -> Answer<T> {
    Answer::Now(Ok(value))
}

fn no_sandbox(id: &str) -> Fault {
    fault(NOT_FOUND, format!("an error occurred when try to find sandbox {id:?}: not found"))
}

/// Registers every call that the fake knows.
pub(crate) fn register(builder: ServiceBuilder, calls: &Calls) -> ServiceBuilder {
    let builder = runtime(builder, calls);
    let builder = sandboxes(builder, calls);
    let builder = containers(builder, calls);
    image_calls(builder, calls)
}

fn version(_: &mut State, _: &proto::VersionRequest, _: Instant) -> Answer<proto::VersionResponse> {
    now(proto::VersionResponse {
        version: "0.1.0".into(),
        runtime_name: "fake".into(),
        runtime_version: "1.0".into(),
        runtime_api_version: "v1".into(),
        ..Default::default()
    })
}

/// Registers the one call of a runtime from before CRI v1.
pub(crate) fn register_old_api(builder: ServiceBuilder, calls: &Calls) -> ServiceBuilder {
    let method = grpcio::Method { name: "/runtime.v1alpha2.RuntimeService/Version", ..rpc::VERSION };
    calls.unary(builder, method, |_, _| String::new(), version)
}

fn runtime(builder: ServiceBuilder, calls: &Calls) -> ServiceBuilder {
    let builder = calls.unary(builder, rpc::VERSION, |_, _| String::new(), version);
    let builder = calls.unary(
        builder,
        rpc::STATUS,
        |_, _| String::new(),
        |state, request, _| {
            let condition = |type_: &str, status: bool| proto::RuntimeCondition {
                type_: type_.into(),
                status,
                reason: if status { String::new() } else { "FakeSaysNo".into() },
                ..Default::default()
            };
            let conditions =
                vec![condition("RuntimeReady", state.runtime_ready), condition("NetworkReady", state.network_ready)];
            let handler = proto::RuntimeHandler {
                features: some(proto::RuntimeHandlerFeatures {
                    recursive_read_only_mounts: true,
                    user_namespaces: true,
                    ..Default::default()
                }),
                ..Default::default()
            };
            now(proto::StatusResponse {
                status: some(proto::RuntimeStatus { conditions, ..Default::default() }),
                info: request.verbose.then(|| ("config".to_owned(), "{}".to_owned())).into_iter().collect(),
                runtime_handlers: vec![handler],
                features: some(proto::RuntimeFeatures { supplemental_groups_policy: true, ..Default::default() }),
                ..Default::default()
            })
        },
    );
    let builder = calls.unary(
        builder,
        rpc::RUNTIME_CONFIG,
        |_, _| String::new(),
        |_, _, _| {
            let linux = proto::LinuxRuntimeConfiguration {
                cgroup_driver: EnumOrUnknown::new(proto::CgroupDriver::CGROUPFS),
                ..Default::default()
            };
            now(proto::RuntimeConfigResponse { linux: some(linux), ..Default::default() })
        },
    );
    calls.unary(
        builder,
        rpc::UPDATE_RUNTIME_CONFIG,
        |_, request| request.runtime_config.get_or_default().network_config.get_or_default().pod_cidr.clone(),
        |_, _, _| now(Default::default()),
    )
}

fn sandboxes(builder: ServiceBuilder, calls: &Calls) -> ServiceBuilder {
    let builder = calls.unary(
        builder,
        rpc::RUN_POD_SANDBOX,
        |_, request| {
            let metadata = request.config.get_or_default().metadata.get_or_default();
            format!("{}/{} attempt {}", metadata.namespace, metadata.name, metadata.attempt)
        },
        |state, request, _| {
            let made = state.run_sandbox(request.config.clone().unwrap_or_default(), &request.runtime_handler);
            Answer::Now(made.map(|id| proto::RunPodSandboxResponse { pod_sandbox_id: id, ..Default::default() }))
        },
    );
    let builder = calls.unary(
        builder,
        rpc::STOP_POD_SANDBOX,
        |state, request| state.pod_label(&request.pod_sandbox_id),
        |state, request, _| {
            if !state.sandboxes.contains_key(&request.pod_sandbox_id) {
                return Answer::Now(Err(no_sandbox(&request.pod_sandbox_id)));
            }
            state.stop_sandbox(&request.pod_sandbox_id);
            now(Default::default())
        },
    );
    let builder = calls.unary(
        builder,
        rpc::REMOVE_POD_SANDBOX,
        |state, request| state.pod_label(&request.pod_sandbox_id),
        |state, request, _| {
            state.remove_sandbox(&request.pod_sandbox_id);
            now(Default::default())
        },
    );
    let builder = calls.unary(
        builder,
        rpc::POD_SANDBOX_STATUS,
        |state, request| state.pod_label(&request.pod_sandbox_id),
        |state, request, _| match state.sandboxes.get(&request.pod_sandbox_id) {
            None => Answer::Now(Err(no_sandbox(&request.pod_sandbox_id))),
            Some(sandbox) => now(proto::PodSandboxStatusResponse {
                status: some(cri_wire::sandbox_status(sandbox)),
                ..Default::default()
            }),
        },
    );
    let builder = calls.unary(
        builder,
        rpc::LIST_POD_SANDBOX,
        |_, _| String::new(),
        |state, request, _| {
            let items = cri_wire::sandboxes(state, &request.filter).map(cri_wire::sandbox).collect();
            now(proto::ListPodSandboxResponse { items, ..Default::default() })
        },
    );
    let builder = calls.unary(
        builder,
        rpc::POD_SANDBOX_STATS,
        |state, request| state.pod_label(&request.pod_sandbox_id),
        |state, request, _| match state.sandboxes.get(&request.pod_sandbox_id) {
            None => Answer::Now(Err(no_sandbox(&request.pod_sandbox_id))),
            Some(sandbox) => now(proto::PodSandboxStatsResponse {
                stats: some(cri_wire::sandbox_stats(state, sandbox)),
                ..Default::default()
            }),
        },
    );
    let builder = calls.unary(
        builder,
        rpc::LIST_POD_SANDBOX_STATS,
        |_, _| String::new(),
        |state, _, _| {
            let stats = state.sandboxes.values().map(|sandbox| cri_wire::sandbox_stats(state, sandbox)).collect();
            now(proto::ListPodSandboxStatsResponse { stats, ..Default::default() })
        },
    );
    calls.unary(
        builder,
        rpc::PORT_FORWARD,
        |state, request| format!("{} {:?}", state.pod_label(&request.pod_sandbox_id), request.port),
        |_, _, _| {
            now(proto::PortForwardResponse { url: "http://127.0.0.1:1/portforward".into(), ..Default::default() })
        },
    )
}

fn stop_container(
    state: &mut State,
    request: &proto::StopContainerRequest,
    at: Instant,
) -> Answer<proto::StopContainerResponse> {
    let id = request.container_id.clone();
    if !state.containers.contains_key(&id) {
        return Answer::Now(Err(no_container(&id)));
    }
    let behaviour = state.behaviour(&id);
    let running = |state: &State, id: &str| state.containers.get(id).is_some_and(|it| it.life == Life::Running);
    if request.timeout <= 0 {
        state.end(&id, 137, "Error");
    } else if !behaviour.ignores_term {
        state.end(&id, behaviour.term_code, if behaviour.term_code == 0 { "Completed" } else { "Error" });
    }
    if !running(state, &id) {
        return now(Default::default());
    }
    let kill_at = at + Duration::from_secs(request.timeout.unsigned_abs());
    Answer::Later(Box::new(move |state, now| {
        if now >= kill_at {
            state.end(&id, 137, "Error");
        }
        if running(state, &id) { Poll::Until(Some(kill_at)) } else { Poll::Done(Ok(Default::default())) }
    }))
}

fn containers(builder: ServiceBuilder, calls: &Calls) -> ServiceBuilder {
    let builder = calls.unary(
        builder,
        rpc::CREATE_CONTAINER,
        |state, request| {
            let metadata = request.config.get_or_default().metadata.get_or_default();
            format!("{} {} attempt {}", state.pod_label(&request.pod_sandbox_id), metadata.name, metadata.attempt)
        },
        |state, request, _| {
            let made = state.create(&request.pod_sandbox_id, request.config.clone().unwrap_or_default());
            Answer::Now(made.map(|id| proto::CreateContainerResponse { container_id: id, ..Default::default() }))
        },
    );
    let builder = calls.unary(
        builder,
        rpc::START_CONTAINER,
        |state, request| state.label(&request.container_id),
        |state, request, at| Answer::Now(state.start(&request.container_id, at).map(|()| Default::default())),
    );
    let builder = calls.unary(
        builder,
        rpc::STOP_CONTAINER,
        |state, request| format!("{} {} s", state.label(&request.container_id), request.timeout),
        stop_container,
    );
    let builder = calls.unary(
        builder,
        rpc::REMOVE_CONTAINER,
        |state, request| state.label(&request.container_id),
        |state, request, _| {
            state.remove(&request.container_id);
            now(Default::default())
        },
    );
    let builder = calls.unary(
        builder,
        rpc::LIST_CONTAINERS,
        |_, _| String::new(),
        |state, request, _| {
            let containers = cri_wire::containers(state, &request.filter).map(cri_wire::container).collect();
            now(proto::ListContainersResponse { containers, ..Default::default() })
        },
    );
    let builder = calls.unary(
        builder,
        rpc::CONTAINER_STATUS,
        |state, request| state.label(&request.container_id),
        |state, request, _| match state.containers.get(&request.container_id) {
            None => Answer::Now(Err(no_container(&request.container_id))),
            Some(container) => now(proto::ContainerStatusResponse {
                status: some(cri_wire::container_status(state, container)),
                ..Default::default()
            }),
        },
    );
    let builder = calls.unary(
        builder,
        rpc::UPDATE_CONTAINER_RESOURCES,
        |state, request| state.label(&request.container_id),
        |state, request, _| match state.containers.get_mut(&request.container_id) {
            None => Answer::Now(Err(no_container(&request.container_id))),
            Some(container) => {
                container.config.linux.mut_or_insert_default().resources = request.linux.clone();
                now(Default::default())
            }
        },
    );
    let builder = calls.unary(
        builder,
        rpc::UPDATE_POD_SANDBOX_RESOURCES,
        |state, request| {
            let memory = request.resources.get_or_default().memory_limit_in_bytes;
            format!("{} memory {memory}", state.pod_label(&request.pod_sandbox_id))
        },
        |state, request, _| match state.sandboxes.contains_key(&request.pod_sandbox_id) {
            true => now(Default::default()),
            false => Answer::Now(Err(no_sandbox(&request.pod_sandbox_id))),
        },
    );
    let builder = calls.unary(
        builder,
        rpc::REOPEN_CONTAINER_LOG,
        |state, request| state.label(&request.container_id),
        |state, request, _| match state.containers.get(&request.container_id).map(|container| container.life) {
            None => Answer::Now(Err(no_container(&request.container_id))),
            Some(Life::Running) => {
                state.open_log(&request.container_id);
                now(Default::default())
            }
            Some(_) => Answer::Now(Err(fault(UNKNOWN, "container is not running"))),
        },
    );
    let builder = execs(builder, calls);
    let builder = calls.unary(
        builder,
        rpc::CONTAINER_STATS,
        |state, request| state.label(&request.container_id),
        |state, request, _| match state.containers.get(&request.container_id) {
            None => Answer::Now(Err(no_container(&request.container_id))),
            Some(container) => now(proto::ContainerStatsResponse {
                stats: some(cri_wire::container_stats(container)),
                ..Default::default()
            }),
        },
    );
    calls.unary(
        builder,
        rpc::LIST_CONTAINER_STATS,
        |_, _| String::new(),
        |state, _, _| {
            let running = state.containers.values().filter(|container| container.life == Life::Running);
            let stats = running.map(cri_wire::container_stats).collect();
            now(proto::ListContainerStatsResponse { stats, ..Default::default() })
        },
    )
}

fn execs(builder: ServiceBuilder, calls: &Calls) -> ServiceBuilder {
    let builder = calls.unary(
        builder,
        rpc::EXEC_SYNC,
        |state, request| format!("{} {}", state.label(&request.container_id), request.cmd.join(" ")),
        |state, request, _| match state.containers.get(&request.container_id) {
            None => Answer::Now(Err(no_container(&request.container_id))),
            Some(container) if container.life != Life::Running => {
                Answer::Now(Err(fault(UNKNOWN, "container is in CONTAINER_EXITED state")))
            }
            Some(container) => {
                let name = container.name().to_owned();
                let (stdout, stderr, exit_code) = (state.exec)(&name, &request.cmd);
                now(proto::ExecSyncResponse { stdout, stderr, exit_code, ..Default::default() })
            }
        },
    );
    let builder = calls.unary(
        builder,
        rpc::EXEC,
        |state, request| format!("{} {}", state.label(&request.container_id), request.cmd.join(" ")),
        |_, _, _| now(proto::ExecResponse { url: "http://127.0.0.1:1/exec".into(), ..Default::default() }),
    );
    calls.unary(
        builder,
        rpc::ATTACH,
        |state, request| state.label(&request.container_id),
        |_, _, _| now(proto::AttachResponse { url: "http://127.0.0.1:1/attach".into(), ..Default::default() }),
    )
}

fn image_calls(builder: ServiceBuilder, calls: &Calls) -> ServiceBuilder {
    let builder = calls.unary(
        builder,
        images::LIST_IMAGES,
        |_, _| String::new(),
        |state, _, _| {
            now(proto::ListImagesResponse { images: state.images.values().cloned().collect(), ..Default::default() })
        },
    );
    let builder = calls.unary(
        builder,
        images::IMAGE_STATUS,
        |_, request| request.image.get_or_default().image.clone(),
        |state, request, _| {
            let found = state.find_image(&request.image.get_or_default().image).cloned();
            now(proto::ImageStatusResponse { image: found.into(), ..Default::default() })
        },
    );
    let builder = calls.unary(
        builder,
        images::PULL_IMAGE,
        |_, request| {
            let user = &request.auth.get_or_default().username;
            let image = &request.image.get_or_default().image;
            if user.is_empty() { image.clone() } else { format!("{image} as {user}") }
        },
        |state, request, _| {
            let asked = &request.image.get_or_default().image;
            if !state.pullable.contains(&normal_name(asked)) {
                let message = format!("failed to pull and unpack image {:?}: not found", normal_name(asked));
                return Answer::Now(Err(fault(NOT_FOUND, message)));
            }
            let image_ref = state.add_image(asked);
            now(proto::PullImageResponse { image_ref, ..Default::default() })
        },
    );
    let builder = calls.unary(
        builder,
        images::REMOVE_IMAGE,
        |_, request| request.image.get_or_default().image.clone(),
        |state, request, _| {
            if let Some(id) = state.find_image(&request.image.get_or_default().image).map(|image| image.id.clone()) {
                state.images.remove(&id);
            }
            now(Default::default())
        },
    );
    calls.unary(
        builder,
        images::IMAGE_FS_INFO,
        |_, _| String::new(),
        |state, _, _| {
            let number = |value| some(proto::UInt64Value { value, ..Default::default() });
            let usage = proto::FilesystemUsage {
                timestamp: 1,
                fs_id: some(proto::FilesystemIdentifier { mountpoint: "/".into(), ..Default::default() }),
                used_bytes: number(state.images.values().map(|image| image.size).sum()),
                inodes_used: number(u64::try_from(state.images.len()).unwrap_or_default()),
                ..Default::default()
            };
            now(proto::ImageFsInfoResponse { image_filesystems: vec![usage], ..Default::default() })
        },
    )
}

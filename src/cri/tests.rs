//! Tests of the conversions between our words and CRI v1, and of the wire they make.

use std::collections::BTreeMap;
use std::time::Duration;

use protobuf::{EnumOrUnknown, Message, MessageField};

use super::{from_wire, proto, to_wire};
use crate::api::labels;
use crate::api::runtime::{
    ContainerSecurity, ContainerSpec, ContainerState, Device, Dns, Exit, IdMapping, ImageSpec, Mount, NamespaceMode,
    Namespaces, PortMapping, Propagation, Protocol, Resources, SandboxSecurity, SandboxSpec, SandboxState, SeLinux,
    SecurityProfile,
};
use crate::api::runtime_info::ContainerFilter;

fn some<T>(value: T) -> MessageField<T> {
    MessageField::some(value)
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The bytes of a message in hexadecimal.
fn wire(message: &impl Message) -> String {
    message.write_to_bytes().expect("bytes").iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn field_numbers_are_those_of_cri_v1() {
    let mapping = || proto::IDMapping { host_id: 1, ..Default::default() };
    let data = |total| some(proto::PsiData { Total: total, ..Default::default() });
    for (got, expect) in [
        (wire(&proto::ImageSpec { user_specified_image: "a".into(), ..Default::default() }), "920101 61"),
        (wire(&proto::ImageSpec { runtime_handler: "a".into(), ..Default::default() }), "9a0101 61"),
        (wire(&proto::Mount { uidMappings: vec![mapping()], ..Default::default() }), "3202 0801"),
        (wire(&proto::Mount { gidMappings: vec![mapping()], ..Default::default() }), "3a02 0801"),
        (wire(&proto::Mount { recursive_read_only: true, ..Default::default() }), "4001"),
        (wire(&proto::PsiStats { Full: data(1), Some: data(2), ..Default::default() }), "0a020801 12020802"),
        (wire(&proto::SELinuxOption { type_: "a".into(), ..Default::default() }), "1a0161"),
        (
            wire(&proto::ContainerConfig {
                CDI_devices: vec![proto::CDIDevice { name: "a".into(), ..Default::default() }],
                stop_signal: EnumOrUnknown::new(proto::Signal::SIGNAL_SIGTERM),
                ..Default::default()
            }),
            "8a01030a0161 900117",
        ),
        (
            wire(&proto::LinuxContainerSecurityContext {
                run_as_group: some(Default::default()),
                ..Default::default()
            }),
            "6200",
        ),
    ] {
        assert_eq!(got, expect.replace(' ', ""));
    }
    assert_eq!(proto::runtime_service::LIST_POD_SANDBOX.name, "/runtime.v1.RuntimeService/ListPodSandbox");
    assert_eq!(proto::image_service::PULL_IMAGE.name, "/runtime.v1.ImageService/PullImage");
}

#[test]
fn grace_is_rounded_up_to_whole_seconds() {
    for (millis, expect) in [(0, 0), (1, 1), (999, 1), (1000, 1), (1001, 2), (30_000, 30)] {
        assert_eq!(to_wire::seconds(Duration::from_millis(millis)), expect, "{millis} ms");
    }
    assert_eq!(to_wire::seconds(Duration::MAX), i64::MAX);
}

#[test]
fn a_sandbox_arrives_as_the_upstream_agent_sends_it() {
    let spec = SandboxSpec {
        uid: "u".into(),
        name: "n".into(),
        namespace: "ns".into(),
        attempt: 2,
        hostname: "h".into(),
        log_directory: "/var/log/pods/ns_n_u".into(),
        dns: Some(Dns {
            servers: vec!["10.96.0.10".into()],
            searches: vec!["a".into()],
            options: vec!["ndots:5".into()],
        }),
        port_mappings: vec![PortMapping {
            protocol: Protocol::Sctp,
            container_port: 80,
            host_port: 8080,
            host_ip: "127.0.0.1".into(),
        }],
        labels: map(&[("l", "1")]),
        annotations: map(&[("a", "2")]),
        cgroup_parent: "/kubepods/podu".into(),
        sysctls: map(&[("net.core.somaxconn", "9")]),
        security: SandboxSecurity {
            namespaces: Namespaces { pid: NamespaceMode::Container, ..Default::default() },
            seccomp: Some(SecurityProfile::RuntimeDefault),
            run_as_user: Some(0),
            supplemental_groups: vec![7],
            strict_groups: true,
            ..Default::default()
        },
        resources: Resources { cpu_period: 100_000, cpu_shares: 2, ..Default::default() },
        ..Default::default()
    };
    let sent = to_wire::sandbox_config(&spec);
    let metadata = sent.metadata.get_or_default();
    assert_eq!((&*metadata.name, &*metadata.uid, &*metadata.namespace, metadata.attempt), ("n", "u", "ns", 2));
    assert_eq!((&*sent.hostname, &*sent.log_directory), ("h", "/var/log/pods/ns_n_u"));
    assert_eq!(sent.dns_config.get_or_default().options, ["ndots:5"]);
    let port = &sent.port_mappings[0];
    assert_eq!(
        (port.protocol.value(), port.container_port, port.host_port, &*port.host_ip),
        (2, 80, 8080, "127.0.0.1")
    );
    assert_eq!((sent.labels, sent.annotations), (map(&[("l", "1")]), map(&[("a", "2")])));
    let linux = sent.linux.get_or_default();
    assert_eq!((&*linux.cgroup_parent, &linux.sysctls), ("/kubepods/podu", &spec.sysctls));
    assert!(linux.overhead.is_some());
    let resources = linux.resources.get_or_default();
    assert_eq!((resources.cpu_period, resources.cpu_shares), (100_000, 2));
    let security = linux.security_context.get_or_default();
    // As in the upstream agent's requests: pid CONTAINER, user namespace NODE, seccomp present and zero.
    assert_eq!(wire(&*security.namespace_options), "10012a020802");
    assert_eq!(wire(&*security.seccomp), "");
    assert!(security.seccomp.is_some() && security.apparmor.is_none() && security.run_as_group.is_none());
    assert_eq!(security.run_as_user.as_ref().map(|user| user.value), Some(0));
    assert_eq!((security.supplemental_groups_policy.value(), &security.supplemental_groups), (1, &vec![7]));
}

#[test]
fn namespaces_become_modes() {
    let ids = |host_id| vec![IdMapping { host_id, container_id: 0, length: 65_536 }];
    let user = Some((ids(100_000), ids(200_000)));
    for (wanted, expect) in [
        (Namespaces::default(), (0, 0, 0, "", 2, 0)),
        (
            Namespaces { network: NamespaceMode::Node, ipc: NamespaceMode::Node, ..Default::default() },
            (2, 0, 2, "", 2, 0),
        ),
        (Namespaces { pid: NamespaceMode::Target("c1".into()), ..Default::default() }, (0, 3, 0, "c1", 2, 0)),
        (Namespaces { user, ..Default::default() }, (0, 0, 0, "", 0, 100_000)),
    ] {
        let security = SandboxSecurity { namespaces: wanted, ..Default::default() };
        let sent = to_wire::sandbox_config(&SandboxSpec { security, ..Default::default() });
        let linux = sent.linux.unwrap_or_default();
        let options = linux.security_context.unwrap_or_default().namespace_options.unwrap_or_default();
        let user = options.userns_options.unwrap_or_default();
        let got = (
            options.network.value(),
            options.pid.value(),
            options.ipc.value(),
            &*options.target_id,
            user.mode.value(),
            user.uids.first().map_or(0, |mapping| mapping.host_id),
        );
        assert_eq!(got, expect);
    }
}

fn full_container() -> ContainerSpec {
    ContainerSpec {
        name: "c".into(),
        attempt: 3,
        image: ImageSpec { image: "sha256:1".into(), user_specified: "busybox".into(), ..Default::default() },
        command: vec!["sh".into()],
        args: vec!["-c".into()],
        working_dir: "/w".into(),
        env: vec![("B".into(), "2".into()), ("A".into(), "1".into())],
        mounts: vec![Mount {
            container_path: "/c".into(),
            host_path: "/h".into(),
            readonly: true,
            recursive_read_only: true,
            propagation: Propagation::Bidirectional,
            options: vec!["noexec".into()],
            ..Default::default()
        }],
        devices: vec![Device { host_path: "/dev/a".into(), container_path: "/dev/b".into(), permissions: "rw".into() }],
        cdi_devices: vec!["v.com/c=d".into()],
        labels: map(&[("l", "1")]),
        annotations: map(&[("a", "2")]),
        log_path: "c/3.log".into(),
        stdin: true,
        stdin_once: true,
        tty: true,
        stop_signal: "SIGRTMIN+3".into(),
        resources: Resources {
            memory_limit: 5,
            oom_score_adj: -997,
            hugepages: vec![("2MB".into(), 0)],
            unified: map(&[("memory.high", "4")]),
            ..Default::default()
        },
        security: ContainerSecurity {
            add_capabilities: vec!["NET_ADMIN".into()],
            run_as_user: Some(0),
            no_new_privs: true,
            masked_paths: vec!["/proc/kcore".into()],
            seccomp: Some(SecurityProfile::Localhost("/p.json".into())),
            apparmor: Some(SecurityProfile::Unconfined),
            selinux: Some(SeLinux { level: "s0".into(), ..Default::default() }),
            ..Default::default()
        },
    }
}

#[test]
fn a_container_arrives_whole() {
    let sent = to_wire::container_config(&full_container()).expect("it can be said");
    assert_eq!((&*sent.metadata.name, sent.metadata.attempt), ("c", 3));
    assert_eq!((&*sent.image.image, &*sent.image.user_specified_image), ("sha256:1", "busybox"));
    assert_eq!((&*sent.command, &*sent.args, &*sent.working_dir), (&["sh".into()][..], &["-c".into()][..], "/w"));
    let envs: Vec<_> = sent.envs.iter().map(|env| (&*env.key, &*env.value)).collect();
    assert_eq!(envs, [("B", &b"2"[..]), ("A", b"1")]);
    let mount = &sent.mounts[0];
    assert!(mount.readonly && mount.recursive_read_only && mount.propagation.value() == 2 && mount.image.is_none());
    assert_eq!(mount.mount_options, ["noexec"]);
    assert_eq!((&*sent.devices[0].host_path, &*sent.CDI_devices[0].name), ("/dev/a", "v.com/c=d"));
    assert!(sent.stdin && sent.stdin_once && sent.tty);
    assert_eq!(sent.stop_signal.enum_value(), Ok(proto::Signal::SIGNAL_SIGRTMINPLUS3));
    let linux = sent.linux.get_or_default();
    assert_eq!((linux.resources.memory_limit_in_bytes, linux.resources.oom_score_adj), (5, -997));
    assert_eq!(linux.resources.hugepage_limits[0].page_size, "2MB");
    let security = linux.security_context.get_or_default();
    assert_eq!(security.capabilities.add_capabilities, ["NET_ADMIN"]);
    assert!(security.no_new_privs && security.run_as_user.is_some() && security.run_as_group.is_none());
    assert_eq!((security.seccomp.profile_type.value(), &*security.seccomp.localhost_ref), (2, "/p.json"));
    assert_eq!((security.apparmor.profile_type.value(), &*security.selinux_options.level), (1, "s0"));
}

#[test]
fn capabilities_that_nobody_named_are_not_sent() {
    let sent = to_wire::container_config(&ContainerSpec::default()).expect("it can be said");
    assert!(sent.linux.security_context.capabilities.is_none());
}

#[test]
fn a_stop_signal_that_cri_does_not_know_is_an_error() {
    let spec = ContainerSpec { stop_signal: "SIGFOO".into(), ..Default::default() };
    assert_eq!(
        to_wire::container_config(&spec).err().as_deref(),
        Some("stop signal \"SIGFOO\" is none that CRI knows")
    );
}

#[test]
fn a_filter_for_everything_is_no_filter() {
    assert!(to_wire::container_filter(&ContainerFilter::default()).is_none());
    let one = ContainerFilter { pod_uid: Some("u".into()), sandbox: Some("s".into()), id: Some("c".into()) };
    let sent = to_wire::container_filter(&one).unwrap_or_default();
    assert_eq!((&*sent.id, &*sent.pod_sandbox_id), ("c", "s"));
    assert_eq!(sent.label_selector, map(&[(labels::POD_UID, "u")]));
}

fn listed(id: &str, uid: &str, created_at: i64, attempt: u32) -> proto::Container {
    proto::Container {
        id: id.into(),
        pod_sandbox_id: "s".into(),
        metadata: some(proto::ContainerMetadata { name: "c".into(), attempt, ..Default::default() }),
        created_at,
        labels: map(&[(labels::POD_UID, uid), (labels::POD_NAME, "n"), (labels::POD_NAMESPACE, "ns")]),
        ..Default::default()
    }
}

#[test]
fn states_of_a_list_and_from_the_future_are_understood() {
    use proto::ContainerState as Wire;
    let state = |state: EnumOrUnknown<Wire>| {
        from_wire::container(proto::Container { state, ..listed("c1", "u", 1, 0) }).expect("a container").it.state
    };
    assert_eq!(state(EnumOrUnknown::new(Wire::CONTAINER_CREATED)), ContainerState::Created);
    assert_eq!(state(EnumOrUnknown::new(Wire::CONTAINER_RUNNING)), ContainerState::Running { started_at: 0 });
    assert_eq!(state(EnumOrUnknown::new(Wire::CONTAINER_EXITED)), ContainerState::Exited(Exit::default()));
    assert_eq!(state(EnumOrUnknown::new(Wire::CONTAINER_UNKNOWN)), ContainerState::Unknown);
    assert_eq!(state(EnumOrUnknown::from_i32(77)), ContainerState::Unknown);
    let sandbox = proto::PodSandbox { id: "s".into(), state: EnumOrUnknown::from_i32(77), ..Default::default() };
    assert_eq!(from_wire::sandbox(sandbox).expect("a sandbox").it.state, SandboxState::NotReady);
}

#[test]
fn an_inspection_tells_what_a_list_does_not() {
    let status = proto::ContainerStatus {
        id: "c1".into(),
        state: EnumOrUnknown::new(proto::ContainerState::CONTAINER_EXITED),
        created_at: 1,
        started_at: 2,
        finished_at: 3,
        exit_code: 137,
        reason: "OOMKilled".into(),
        message: "m".into(),
        image: some(proto::ImageSpec { image: "docker.io/library/busybox:latest".into(), ..Default::default() }),
        image_ref: "busybox@sha256:1".into(),
        log_path: "/l/0.log".into(),
        stop_signal: EnumOrUnknown::new(proto::Signal::SIGNAL_SIGRTMAXMINUS14),
        user: some(proto::ContainerUser {
            linux: some(proto::LinuxContainerUser { uid: 5, gid: 6, ..Default::default() }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let seen = from_wire::inspected_container(status).expect("a container");
    let exit = Exit { code: 137, reason: "OOMKilled".into(), message: "m".into(), started_at: 2, finished_at: 3 };
    assert_eq!(seen.state, ContainerState::Exited(exit));
    assert_eq!((&*seen.image, &*seen.image_id), ("docker.io/library/busybox:latest", "busybox@sha256:1"));
    assert_eq!((&*seen.log_path, &*seen.stop_signal), ("/l/0.log", "SIGRTMAX-14"));
    assert_eq!(seen.user.map(|user| (user.uid, user.gid)), Some((5, 6)));
}

#[test]
fn addresses_and_host_network_of_a_sandbox() {
    let ip = |ip: &str| proto::PodIP { ip: ip.into(), ..Default::default() };
    let options = proto::NamespaceOption { network: EnumOrUnknown::from_i32(2), ..Default::default() };
    let namespaces = proto::Namespace { options: some(options), ..Default::default() };
    let status = proto::PodSandboxStatus {
        id: "s".into(),
        network: some(proto::PodSandboxNetworkStatus {
            ip: "10.0.0.2".into(),
            additional_ips: vec![ip("fd00::2"), ip("")],
            ..Default::default()
        }),
        linux: some(proto::LinuxPodSandboxStatus { namespaces: some(namespaces), ..Default::default() }),
        ..Default::default()
    };
    let seen = from_wire::inspected_sandbox(status).expect("a sandbox");
    assert!(seen.host_network);
    assert_eq!(seen.ips, ["10.0.0.2", "fd00::2"]);
}

#[test]
fn what_has_no_id_or_status_is_named() {
    let problem = |result: Result<(), String>| result.expect_err("a problem");
    assert_eq!(problem(from_wire::container(Default::default()).map(drop)), "a container without an id");
    assert_eq!(problem(from_wire::sandbox(Default::default()).map(drop)), "a sandbox without an id");
    assert_eq!(problem(from_wire::image(Default::default()).map(drop)), "an image without an id");
    assert_eq!(problem(from_wire::sandbox_status(Default::default()).map(drop)), "no status");
}

#[test]
fn pods_are_joined_by_uid_with_the_newest_first() {
    let containers = [
        listed("old", "u2", 1, 0),
        listed("new", "u2", 9, 1),
        listed("same-time", "u2", 9, 2),
        listed("other", "u1", 5, 0),
        listed("foreign", "", 5, 0),
    ];
    let containers = containers.map(|it| from_wire::container(it).expect("a container")).into();
    let sandbox = |id: &str, attempt| {
        let metadata = some(proto::PodSandboxMetadata { attempt, ..Default::default() });
        let labels = map(&[(labels::POD_UID, "u2")]);
        from_wire::sandbox(proto::PodSandbox { id: id.into(), metadata, labels, ..Default::default() }).expect("one")
    };
    let pods = from_wire::pods(vec![sandbox("s0", 0), sandbox("s1", 1)], containers);
    let ids: Vec<(String, Vec<_>, Vec<_>)> = pods
        .iter()
        .map(|pod| {
            (
                pod.uid.as_ref().map(ToString::to_string).unwrap_or_default(),
                pod.sandboxes.iter().map(|it| it.id.as_str()).collect(),
                pod.containers.iter().map(|it| it.id.as_str()).collect(),
            )
        })
        .collect();
    assert_eq!(
        ids,
        [("u1".into(), vec![], vec!["other"]), ("u2".into(), vec!["s1", "s0"], vec!["same-time", "new", "old"])]
    );
    assert_eq!((&*pods[0].name, &*pods[0].namespace), ("n", "ns"));
}

#[test]
fn an_event_of_a_kind_from_the_future_is_no_event() {
    let event = |kind| proto::ContainerEventResponse {
        container_id: "c1".into(),
        container_event_type: EnumOrUnknown::from_i32(kind),
        ..Default::default()
    };
    assert_eq!(from_wire::event(event(77)), Ok(None));
    let bare = from_wire::event(event(2)).expect("valid").expect("an event");
    assert_eq!((bare.container_id.as_str(), bare.pod), ("c1", None));
}

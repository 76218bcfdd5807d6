//! Requests: our words turned into CRI v1 messages.
//!
//! Pure functions on the caller's thread. They decide nothing: what is `None` stays unset on the
//! wire, and no default is put in its place.

use std::collections::BTreeMap;
use std::time::Duration;

use protobuf::{EnumOrUnknown, MessageField};

use super::proto;
use crate::api::labels;
use crate::api::runtime::{
    ContainerSecurity, ContainerSpec, Device, IdMapping, ImageSpec, Mount, NamespaceMode, Namespaces, PortMapping,
    Propagation, Protocol, RegistryAuth, Resources, SandboxSecurity, SandboxSpec, SeLinux, SecurityProfile,
};
use crate::api::runtime_info::ContainerFilter;

fn set<T>(value: T) -> MessageField<T> {
    MessageField::some(value)
}

fn int64(value: Option<i64>) -> MessageField<proto::Int64Value> {
    value.map(|value| proto::Int64Value { value, ..Default::default() }).into()
}

/// Whole seconds, rounded up, so that a short grace does not become none.
pub(super) fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX).saturating_add(i64::from(duration.subsec_nanos() > 0))
}

/// A whole sandbox configuration.
pub(super) fn sandbox_config(spec: &SandboxSpec) -> proto::PodSandboxConfig {
    proto::PodSandboxConfig {
        metadata: set(proto::PodSandboxMetadata {
            name: spec.name.clone(),
            uid: spec.uid.clone(),
            namespace: spec.namespace.clone(),
            attempt: spec.attempt,
            ..Default::default()
        }),
        hostname: spec.hostname.clone(),
        log_directory: spec.log_directory.clone(),
        dns_config: spec
            .dns
            .as_ref()
            .map(|dns| proto::DNSConfig {
                servers: dns.servers.clone(),
                searches: dns.searches.clone(),
                options: dns.options.clone(),
                ..Default::default()
            })
            .into(),
        port_mappings: spec.port_mappings.iter().map(port_mapping).collect(),
        labels: spec.labels.clone(),
        annotations: spec.annotations.clone(),
        linux: set(proto::LinuxPodSandboxConfig {
            cgroup_parent: spec.cgroup_parent.clone(),
            security_context: set(sandbox_security(&spec.security)),
            sysctls: spec.sysctls.clone(),
            overhead: set(resources(&spec.overhead)),
            resources: set(resources(&spec.resources)),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn port_mapping(port: &PortMapping) -> proto::PortMapping {
    proto::PortMapping {
        protocol: EnumOrUnknown::new(match port.protocol {
            Protocol::Tcp => proto::Protocol::TCP,
            Protocol::Udp => proto::Protocol::UDP,
            Protocol::Sctp => proto::Protocol::SCTP,
        }),
        container_port: port.container_port,
        host_port: port.host_port,
        host_ip: port.host_ip.clone(),
        ..Default::default()
    }
}

fn groups_policy(strict: bool) -> EnumOrUnknown<proto::SupplementalGroupsPolicy> {
    EnumOrUnknown::new(if strict {
        proto::SupplementalGroupsPolicy::Strict
    } else {
        proto::SupplementalGroupsPolicy::Merge
    })
}

fn sandbox_security(security: &SandboxSecurity) -> proto::LinuxSandboxSecurityContext {
    proto::LinuxSandboxSecurityContext {
        namespace_options: set(namespaces(&security.namespaces)),
        selinux_options: security.selinux.as_ref().map(selinux).into(),
        run_as_user: int64(security.run_as_user),
        run_as_group: int64(security.run_as_group),
        supplemental_groups: security.supplemental_groups.clone(),
        supplemental_groups_policy: groups_policy(security.strict_groups),
        privileged: security.privileged,
        seccomp: security.seccomp.as_ref().map(profile).into(),
        apparmor: security.apparmor.as_ref().map(profile).into(),
        ..Default::default()
    }
}

fn namespaces(wanted: &Namespaces) -> proto::NamespaceOption {
    let mut target_id = String::new();
    let mut mode = |mode: &NamespaceMode| {
        EnumOrUnknown::new(match mode {
            NamespaceMode::Pod => proto::NamespaceMode::POD,
            NamespaceMode::Container => proto::NamespaceMode::CONTAINER,
            NamespaceMode::Node => proto::NamespaceMode::NODE,
            NamespaceMode::Target(id) => {
                target_id = id.as_str().to_owned();
                proto::NamespaceMode::TARGET
            }
        })
    };
    let (network, pid, ipc) = (mode(&wanted.network), mode(&wanted.pid), mode(&wanted.ipc));
    let user = match &wanted.user {
        None => proto::UserNamespace { mode: EnumOrUnknown::new(proto::NamespaceMode::NODE), ..Default::default() },
        Some((uids, gids)) => proto::UserNamespace {
            mode: EnumOrUnknown::new(proto::NamespaceMode::POD),
            uids: id_mappings(uids),
            gids: id_mappings(gids),
            ..Default::default()
        },
    };
    proto::NamespaceOption { network, pid, ipc, target_id, userns_options: set(user), ..Default::default() }
}

fn id_mappings(mappings: &[IdMapping]) -> Vec<proto::IDMapping> {
    mappings
        .iter()
        .map(|mapping| proto::IDMapping {
            host_id: mapping.host_id,
            container_id: mapping.container_id,
            length: mapping.length,
            ..Default::default()
        })
        .collect()
}

fn selinux(label: &SeLinux) -> proto::SELinuxOption {
    proto::SELinuxOption {
        user: label.user.clone(),
        role: label.role.clone(),
        type_: label.type_.clone(),
        level: label.level.clone(),
        ..Default::default()
    }
}

fn profile(profile: &SecurityProfile) -> proto::SecurityProfile {
    use proto::security_profile::ProfileType;
    let (profile_type, localhost_ref) = match profile {
        SecurityProfile::RuntimeDefault => (ProfileType::RuntimeDefault, String::new()),
        SecurityProfile::Unconfined => (ProfileType::Unconfined, String::new()),
        SecurityProfile::Localhost(reference) => (ProfileType::Localhost, reference.clone()),
    };
    proto::SecurityProfile { profile_type: EnumOrUnknown::new(profile_type), localhost_ref, ..Default::default() }
}

/// Limits; a zero stays unset.
pub(super) fn resources(resources: &Resources) -> proto::LinuxContainerResources {
    proto::LinuxContainerResources {
        cpu_period: resources.cpu_period,
        cpu_quota: resources.cpu_quota,
        cpu_shares: resources.cpu_shares,
        memory_limit_in_bytes: resources.memory_limit,
        oom_score_adj: resources.oom_score_adj,
        cpuset_cpus: resources.cpuset_cpus.clone(),
        cpuset_mems: resources.cpuset_mems.clone(),
        hugepage_limits: resources
            .hugepages
            .iter()
            .map(|(page_size, limit)| proto::HugepageLimit {
                page_size: page_size.clone(),
                limit: *limit,
                ..Default::default()
            })
            .collect(),
        unified: resources.unified.clone(),
        memory_swap_limit_in_bytes: resources.memory_swap_limit,
        ..Default::default()
    }
}

/// An image to run or pull.
pub(super) fn image_spec(image: &ImageSpec) -> proto::ImageSpec {
    proto::ImageSpec {
        image: image.image.clone(),
        annotations: image.annotations.clone(),
        user_specified_image: image.user_specified.clone(),
        runtime_handler: image.runtime_handler.clone(),
        ..Default::default()
    }
}

/// Registry credentials.
pub(super) fn auth(auth: &RegistryAuth) -> proto::AuthConfig {
    proto::AuthConfig {
        username: auth.username.clone(),
        password: auth.password.clone(),
        auth: auth.auth.clone(),
        server_address: auth.server_address.clone(),
        identity_token: auth.identity_token.clone(),
        registry_token: auth.registry_token.clone(),
        ..Default::default()
    }
}

fn mount(mount: &Mount) -> proto::Mount {
    proto::Mount {
        container_path: mount.container_path.clone(),
        host_path: mount.host_path.clone(),
        readonly: mount.readonly,
        selinux_relabel: mount.selinux_relabel,
        propagation: EnumOrUnknown::new(match mount.propagation {
            Propagation::Private => proto::MountPropagation::PROPAGATION_PRIVATE,
            Propagation::HostToContainer => proto::MountPropagation::PROPAGATION_HOST_TO_CONTAINER,
            Propagation::Bidirectional => proto::MountPropagation::PROPAGATION_BIDIRECTIONAL,
        }),
        uidMappings: id_mappings(&mount.uid_mappings),
        gidMappings: id_mappings(&mount.gid_mappings),
        recursive_read_only: mount.recursive_read_only,
        image: mount.image.as_ref().map(image_spec).into(),
        image_sub_path: mount.image_sub_path.clone(),
        mount_options: mount.options.clone(),
        ..Default::default()
    }
}

fn device(device: &Device) -> proto::Device {
    proto::Device {
        container_path: device.container_path.clone(),
        host_path: device.host_path.clone(),
        permissions: device.permissions.clone(),
        ..Default::default()
    }
}

/// A whole container configuration. A stop signal that CRI does not know is an error.
pub(super) fn container_config(spec: &ContainerSpec) -> Result<proto::ContainerConfig, String> {
    Ok(proto::ContainerConfig {
        metadata: set(proto::ContainerMetadata {
            name: spec.name.clone(),
            attempt: spec.attempt,
            ..Default::default()
        }),
        image: set(image_spec(&spec.image)),
        command: spec.command.clone(),
        args: spec.args.clone(),
        working_dir: spec.working_dir.clone(),
        envs: spec
            .env
            .iter()
            .map(|(key, value)| proto::KeyValue {
                key: key.clone(),
                value: value.clone().into_bytes(),
                ..Default::default()
            })
            .collect(),
        mounts: spec.mounts.iter().map(mount).collect(),
        devices: spec.devices.iter().map(device).collect(),
        labels: spec.labels.clone(),
        annotations: spec.annotations.clone(),
        log_path: spec.log_path.clone(),
        stdin: spec.stdin,
        stdin_once: spec.stdin_once,
        tty: spec.tty,
        linux: set(proto::LinuxContainerConfig {
            resources: set(resources(&spec.resources)),
            security_context: set(container_security(&spec.security)),
            ..Default::default()
        }),
        CDI_devices: spec
            .cdi_devices
            .iter()
            .map(|name| proto::CDIDevice { name: name.clone(), ..Default::default() })
            .collect(),
        stop_signal: EnumOrUnknown::new(signal(&spec.stop_signal)?),
        ..Default::default()
    })
}

fn container_security(security: &ContainerSecurity) -> proto::LinuxContainerSecurityContext {
    let has_capabilities = !security.add_capabilities.is_empty() || !security.drop_capabilities.is_empty();
    proto::LinuxContainerSecurityContext {
        capabilities: has_capabilities
            .then(|| proto::Capability {
                add_capabilities: security.add_capabilities.clone(),
                drop_capabilities: security.drop_capabilities.clone(),
                ..Default::default()
            })
            .into(),
        privileged: security.privileged,
        namespace_options: set(namespaces(&security.namespaces)),
        selinux_options: security.selinux.as_ref().map(selinux).into(),
        run_as_user: int64(security.run_as_user),
        run_as_group: int64(security.run_as_group),
        run_as_username: security.run_as_username.clone(),
        readonly_rootfs: security.readonly_rootfs,
        supplemental_groups: security.supplemental_groups.clone(),
        supplemental_groups_policy: groups_policy(security.strict_groups),
        no_new_privs: security.no_new_privs,
        masked_paths: security.masked_paths.clone(),
        readonly_paths: security.readonly_paths.clone(),
        seccomp: security.seccomp.as_ref().map(profile).into(),
        apparmor: security.apparmor.as_ref().map(profile).into(),
        ..Default::default()
    }
}

/// `SIGTERM` as CRI's number for it; empty is the runtime's default.
fn signal(name: &str) -> Result<proto::Signal, String> {
    if name.is_empty() {
        return Ok(proto::Signal::SIGNAL_RUNTIME_DEFAULT);
    }
    // SIGRTMIN+1 is SIGRTMINPLUS1 on the wire.
    let wire_name = format!("SIGNAL_{}", name.replace('+', "PLUS").replace('-', "MINUS"));
    <proto::Signal as protobuf::Enum>::from_str(&wire_name)
        .ok_or_else(|| format!("stop signal {name:?} is none that CRI knows"))
}

/// A filter for ListContainers; unset when it asks for all.
pub(super) fn container_filter(filter: &ContainerFilter) -> MessageField<proto::ContainerFilter> {
    if *filter == ContainerFilter::default() {
        return MessageField::none();
    }
    set(proto::ContainerFilter {
        id: filter.id.as_ref().map(|id| id.as_str().to_owned()).unwrap_or_default(),
        pod_sandbox_id: filter.sandbox.as_ref().map(|id| id.as_str().to_owned()).unwrap_or_default(),
        label_selector: uid_selector(filter.pod_uid.as_deref()),
        ..Default::default()
    })
}

/// Selects by the pod uid label; empty selects all.
pub(super) fn uid_selector(uid: Option<&str>) -> BTreeMap<String, String> {
    uid.map(|uid| (labels::POD_UID.to_owned(), uid.to_owned())).into_iter().collect()
}

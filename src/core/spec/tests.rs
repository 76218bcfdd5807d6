//! The configuration of recorded pods, compared with what the upstream kubelet 1.36.3 asked the
//! runtime for when it ran them (`testdata/reference.json`: pods as the API server had them, CRI
//! messages as the runtime got them, the environment as a map because its order is accidental).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::env::{EnvSources, Lookup};
use super::*;
use crate::api::pod;
use crate::api::runtime::{
    ContainerSpec, Mount, NamespaceMode, Namespaces, Propagation, Protocol, Resources, SandboxSpec, SecurityProfile,
};
use crate::api::v1::Pod;
use crate::core::qos::CgroupVersion;

fn reference() -> Value {
    serde_json::from_str(include_str!("testdata/reference.json")).expect("the reference")
}

fn pod_named(reference: &Value, name: &str) -> Pod {
    serde_json::from_value(reference["pods"][name].clone()).expect("a pod")
}

fn facts() -> NodeFacts {
    let handler = HandlerFeatures { recursive_read_only_mounts: true, user_namespaces: false };
    NodeFacts {
        node_name: "edge-1".into(),
        node_ips: vec!["192.0.2.2".into()],
        root_dir: "/var/lib/kubelet".into(),
        pod_logs_dir: "/var/log/pods".into(),
        cluster_domain: "cluster.local".into(),
        cluster_dns: vec!["10.96.0.10".into()],
        memory_capacity: 24_683_652 << 10,
        hugepage_sizes: vec![2 << 20, 1 << 30],
        cgroup: CgroupFacts { version: CgroupVersion::V1, single_process_oom_kill: true, ..CgroupFacts::default() },
        handlers: ["", "runc"].into_iter().map(|name| (name.to_owned(), handler)).collect(),
        ..NodeFacts::default()
    }
}

/// A message as JSON the way the recording shows it: zero values are left out.
fn message(fields: Value) -> Value {
    let Value::Object(fields) = fields else { return fields };
    let is_zero = |v: &Value| match v {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(_) => false,
    };
    Value::Object(fields.into_iter().filter(|(_, v)| !is_zero(v)).collect())
}

fn mode(mode: &NamespaceMode) -> u8 {
    match mode {
        NamespaceMode::Pod => 0,
        NamespaceMode::Container => 1,
        NamespaceMode::Node => 2,
        NamespaceMode::Target(_) => 3,
    }
}

fn namespaces_json(n: &Namespaces) -> Value {
    message(json!({
        "network": mode(&n.network), "pid": mode(&n.pid), "ipc": mode(&n.ipc),
        "userns_options": message(json!({"mode": if n.user.is_none() { 2 } else { 0 }})),
    }))
}

fn profile_json(profile: &Option<SecurityProfile>) -> Value {
    match profile {
        None => Value::Null,
        Some(SecurityProfile::RuntimeDefault) => json!({}),
        Some(SecurityProfile::Unconfined) => json!({"profile_type": 1}),
        Some(SecurityProfile::Localhost(path)) => json!({"profile_type": 2, "localhost_ref": path}),
    }
}

fn resources_json(r: &Resources) -> Value {
    let hugepages = r.hugepages.iter().map(|(size, limit)| message(json!({"page_size": size, "limit": limit})));
    message(json!({
        "cpu_period": r.cpu_period, "cpu_quota": r.cpu_quota, "cpu_shares": r.cpu_shares,
        "memory_limit_in_bytes": r.memory_limit, "memory_swap_limit_in_bytes": r.memory_swap_limit,
        "oom_score_adj": r.oom_score_adj, "cpuset_cpus": r.cpuset_cpus, "cpuset_mems": r.cpuset_mems,
        "hugepage_limits": hugepages.collect::<Vec<_>>(), "unified": non_empty(&r.unified),
    }))
}

fn non_empty(map: &BTreeMap<String, String>) -> Value {
    if map.is_empty() { Value::Null } else { json!(map) }
}

fn id(value: Option<i64>) -> Value {
    value.map_or(Value::Null, |v| message(json!({"value": v})))
}

fn sandbox_json(s: &SandboxSpec) -> Value {
    let ports = s.port_mappings.iter().map(|p| {
        let protocol = match p.protocol {
            Protocol::Tcp => 0,
            Protocol::Udp => 1,
            Protocol::Sctp => 2,
        };
        message(json!({
            "protocol": protocol, "container_port": p.container_port, "host_port": p.host_port, "host_ip": p.host_ip,
        }))
    });
    let security = message(json!({
        "namespace_options": namespaces_json(&s.security.namespaces),
        "run_as_user": id(s.security.run_as_user), "run_as_group": id(s.security.run_as_group),
        "supplemental_groups": s.security.supplemental_groups, "privileged": s.security.privileged,
        "seccomp": profile_json(&s.security.seccomp), "apparmor": profile_json(&s.security.apparmor),
    }));
    let dns =
        s.dns.as_ref().map(|d| message(json!({"servers": d.servers, "searches": d.searches, "options": d.options})));
    message(json!({
        "metadata": message(json!({"name": s.name, "namespace": s.namespace, "uid": s.uid, "attempt": s.attempt})),
        "hostname": s.hostname, "log_directory": s.log_directory, "dns_config": dns,
        "port_mappings": ports.collect::<Vec<_>>(), "labels": non_empty(&s.labels),
        "annotations": non_empty(&s.annotations),
        "linux": message(json!({
            "cgroup_parent": s.cgroup_parent, "sysctls": non_empty(&s.sysctls), "security_context": security,
            "overhead": resources_json(&s.overhead), "resources": resources_json(&s.resources),
        })),
    }))
}

fn mount_json(m: &Mount) -> Value {
    let propagation = match m.propagation {
        Propagation::Private => 0,
        Propagation::HostToContainer => 1,
        Propagation::Bidirectional => 2,
    };
    message(json!({
        "container_path": m.container_path, "host_path": m.host_path, "readonly": m.readonly,
        "recursive_read_only": m.recursive_read_only, "selinux_relabel": m.selinux_relabel, "propagation": propagation,
    }))
}

fn container_json(c: &ContainerSpec) -> Value {
    let s = &c.security;
    let capabilities =
        message(json!({"add_capabilities": s.add_capabilities, "drop_capabilities": s.drop_capabilities}));
    let has_capabilities = capabilities.as_object().is_some_and(|m: &Map<String, Value>| !m.is_empty());
    let security = message(json!({
        "capabilities": if has_capabilities { capabilities } else { Value::Null },
        "privileged": s.privileged, "namespace_options": namespaces_json(&s.namespaces),
        "run_as_user": id(s.run_as_user), "run_as_group": id(s.run_as_group), "run_as_username": s.run_as_username,
        "readonly_rootfs": s.readonly_rootfs, "supplemental_groups": s.supplemental_groups,
        "no_new_privs": s.no_new_privs, "masked_paths": s.masked_paths, "readonly_paths": s.readonly_paths,
        "seccomp": profile_json(&s.seccomp), "apparmor": profile_json(&s.apparmor),
    }));
    let env: BTreeMap<_, _> = c.env.iter().cloned().collect();
    message(json!({
        "metadata": message(json!({"name": c.name, "attempt": c.attempt})),
        "image": message(json!({"image": c.image.image, "user_specified_image": c.image.user_specified})),
        "command": c.command, "args": c.args, "working_dir": c.working_dir, "envs": json!(env),
        "mounts": c.mounts.iter().map(mount_json).collect::<Vec<_>>(),
        "labels": non_empty(&c.labels), "annotations": non_empty(&c.annotations), "log_path": c.log_path,
        "stdin": c.stdin, "stdin_once": c.stdin_once, "tty": c.tty,
        "linux": json!({"resources": resources_json(&c.resources), "security_context": security}),
    }))
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("JSON")
}

#[test]
fn sandboxes_are_those_of_the_reference() {
    let reference = reference();
    let sandboxes = reference["sandboxes"].as_object().expect("sandboxes");
    assert_eq!(sandboxes.len(), 7);
    for (key, expect) in sandboxes {
        let (name, attempt) = key.split_once('/').expect("pod/attempt");
        let inputs = SandboxInputs {
            attempt: attempt.parse().expect("a number"),
            resolv_conf: Some("nameserver 192.0.2.53\n"),
            ..SandboxInputs::default()
        };
        let (spec, warnings) = sandbox_spec(&pod_named(&reference, name), &facts(), &inputs).expect(key);
        assert_eq!(pretty(&sandbox_json(&spec)), pretty(expect), "{key}");
        assert_eq!(warnings, [], "{key}");
    }
}

/// Volumes as the volume plugins of the recording had laid them out.
fn volumes(pod: &Pod, facts: &NodeFacts) -> BTreeMap<String, VolumeSource> {
    let uid = pod.metadata.uid.as_deref().expect("a uid");
    let declared = pod::spec(pod).and_then(|s| s.volumes.as_deref()).unwrap_or_default();
    let place = |v: &crate::api::v1::Volume| {
        let (plugin, read_only) = match v {
            v if v.empty_dir.is_some() => ("empty-dir", false),
            v if v.config_map.is_some() => ("configmap", true),
            v if v.secret.is_some() => ("secret", true),
            v if v.downward_api.is_some() => ("downward-api", true),
            v if v.projected.is_some() => ("projected", true),
            v => {
                let path = v.host_path.as_ref().expect("a host path").path.clone();
                return VolumeSource::Path { host_path: path, read_only: false, selinux_relabel: false };
            }
        };
        let host_path = format!("{}/volumes/kubernetes.io~{plugin}/{}", facts.pod_dir(uid), v.name);
        VolumeSource::Path { host_path, read_only, selinux_relabel: true }
    };
    declared.iter().map(|v| (v.name.clone(), place(v))).collect()
}

fn env_sources(expect: &Value) -> EnvSources {
    let is_service = |(name, _): &(&String, &Value)| name.starts_with("KUBERNETES_") || name.starts_with("DB_");
    let services = expect["envs"].as_object().expect("variables").iter().filter(is_service);
    let settings = [("colour", "green"), ("app.conf", "size=3\n")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    EnvSources {
        services: services.map(|(k, v)| (k.clone(), v.as_str().expect("text").to_owned())).collect(),
        config_maps: [("settings".to_owned(), Lookup::Found(settings.into()))].into(),
        secrets: [("keys".to_owned(), Lookup::Found([("token".to_owned(), b"s3cret".to_vec())].into()))].into(),
        files: BTreeMap::new(),
    }
}

fn mount_at<'a>(expect: &'a Value, path: &str) -> Option<&'a str> {
    let mounts = expect["mounts"].as_array().expect("mounts");
    mounts.iter().find(|m| m["container_path"] == path)?["host_path"].as_str()
}

#[test]
fn containers_are_those_of_the_reference() {
    let reference = reference();
    let containers = reference["containers"].as_object().expect("containers");
    assert_eq!(containers.len(), 9);
    let facts = facts();
    for (key, expect) in containers {
        let parts: Vec<&str> = key.split('/').collect();
        let pod = pod_named(&reference, parts[0]);
        let (_, container) = pod::find_container(&pod, parts[1]).expect("the container");
        let uid = pod.metadata.uid.clone().expect("a uid");
        let volumes = volumes(&pod, &facts);
        let env = env_sources(expect);
        let etc_hosts = facts.etc_hosts_path(&uid);
        let pod_ips = [if pod::is_host_network(&pod) { "192.0.2.2" } else { "10.88.1.3" }.to_owned()];
        let image = Image::default();
        let mut inputs = ContainerInputs {
            attempt: parts[2].parse().expect("a number"),
            image: &image,
            image_ref: expect["image"]["image"].as_str().expect("text"),
            runtime_handler: "",
            pod_ips: &pod_ips,
            volumes: &volumes,
            subpaths: &BTreeMap::new(),
            etc_hosts: Some(&etc_hosts),
            termination_log: mount_at(expect, "/dev/termination-log"),
            target: None,
            user_namespace: None,
            env: &env,
        };
        let bound = subpaths(&pod, &container, &facts, &inputs).expect(key);
        let bound: BTreeMap<usize, String> = bound.into_iter().map(|s| (s.mount_index, s.bind_path)).collect();
        inputs.subpaths = &bound;
        let spec = container_spec(&pod, &container, &facts, &inputs).expect(key);
        assert_eq!(pretty(&container_json(&spec)), pretty(expect), "{key}");
        let folder = facts.container_dir(&uid, parts[1]);
        assert!(inputs.termination_log.is_some_and(|p| p.starts_with(&folder)), "{key} {folder}");
    }
}

/// The one container of a small pod, with an empty environment around it.
fn small(container: Value) -> Result<ContainerSpec, SpecError> {
    let pod: Pod =
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}})).expect("a pod");
    let inputs = ContainerInputs {
        attempt: 2,
        image: &Image::default(),
        image_ref: "sha256:1",
        runtime_handler: "",
        pod_ips: &[],
        volumes: &BTreeMap::new(),
        subpaths: &BTreeMap::new(),
        etc_hosts: None,
        termination_log: None,
        target: None,
        user_namespace: None,
        env: &EnvSources::default(),
    };
    container_spec(&pod, &pod::app_containers(&pod)[0], &facts(), &inputs)
}

#[test]
fn command_and_args_are_expanded_with_the_environment() {
    let spec = small(json!({
        "name": "c", "command": ["$(A)", "$$(A)"], "args": ["-x=$(B)", "$(NOPE)"], "workingDir": "/$(A)",
        "env": [{"name": "A", "value": "a"}, {"name": "B", "value": "$(A)b"}],
        "lifecycle": {"stopSignal": "SIGUSR1"}, "stdinOnce": true,
    }))
    .expect("a container");
    assert_eq!((spec.command, spec.args), (vec!["a".into(), "$(A)".into()], vec!["-x=ab".into(), "$(NOPE)".into()]));
    assert_eq!((spec.working_dir.as_str(), spec.log_path.as_str(), spec.attempt), ("/$(A)", "c/2.log", 2));
    assert_eq!((spec.stop_signal.as_str(), spec.stdin_once, spec.stdin), ("SIGUSR1", true, false));
}

#[test]
fn what_cannot_be_done_is_told() {
    for (container, expect) in [
        (json!({"name": "c", "volumeDevices": [{"name": "d", "devicePath": "/dev/x"}]}), "volumeDevices"),
        (json!({"name": "c", "resources": {"claims": [{"name": "gpu"}]}}), "resources.claims"),
    ] {
        let problem = small(container.clone()).expect_err("a refusal").to_string();
        assert_eq!(problem, format!("container \"c\": {expect} is not supported by this agent"), "{container}");
    }
}

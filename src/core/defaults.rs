//! The defaults that an API server would have filled into a pod (core/v1 of Kubernetes 1.36).
//!
//! Pure; called by the threads that read static pods, which no API server has seen. Filling twice
//! changes nothing more. Never refuses anything: a value that makes no sense stays as it is for
//! `validate` to name.

use std::collections::BTreeMap;

use crate::api::Quantity;
use crate::api::quantity::{Amount, Format};
use crate::api::v1::{
    Container, ContainerPort, DownwardAPIVolumeFile, EmptyDirVolumeSource, EnvVar, HTTPGetAction, Lifecycle,
    ObjectFieldSelector, Pod, PodSecurityContext, PodSpec, Probe, ResourceFieldSelector, ResourceRequirements, Volume,
};
use crate::util::order::Gather;

type ResourceList = BTreeMap<String, Quantity>;

/// What a container gets, of either type: containers and ephemeral containers share their fields, not a type.
macro_rules! fill_container {
    ($container:expr) => {{
        let container = &mut *$container;
        fill_image(container.image.as_deref(), &mut container.image_pull_policy);
        fill_text(&mut container.termination_message_path, TERMINATION_MESSAGE_PATH);
        fill_text(&mut container.termination_message_policy, "File");
        container.ports.iter_mut().flatten().for_each(fill_port);
        container.env.iter_mut().flatten().for_each(fill_env);
        round_resources(container.resources.as_mut());
        [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe]
            .into_iter()
            .flatten()
            .for_each(fill_probe);
        container.lifecycle.iter_mut().for_each(fill_lifecycle);
    }};
}

/// Where a container's last words are read when its spec does not say.
pub const TERMINATION_MESSAGE_PATH: &str = "/dev/termination-log";
/// Permissions of files that volumes make from API data when the spec does not say: rw-r--r--.
pub const FILE_MODE: i32 = 0o644;

/// The priority of a class that every cluster has; `None` for classes that only an API server knows.
pub fn well_known_priority(class: &str) -> Option<i32> {
    match class {
        "system-node-critical" => Some(2_000_001_000),
        "system-cluster-critical" => Some(2_000_000_000),
        _ => None,
    }
}

/// Fills everything in that the pod's author left out and the API has a value for.
pub fn fill_defaults(pod: &mut Pod) {
    let spec = pod.spec.get_or_insert_with(PodSpec::default);
    fill_text(&mut spec.dns_policy, "ClusterFirst");
    fill_text(&mut spec.restart_policy, "Always");
    fill_text(&mut spec.scheduler_name, "default-scheduler");
    spec.termination_grace_period_seconds.get_or_insert(30);
    spec.enable_service_links.get_or_insert(true);
    spec.security_context.get_or_insert_with(PodSecurityContext::default);
    fill_priority(spec);
    // Two names of one field; the old one is kept in step as the API does.
    if spec.service_account_name.as_deref().unwrap_or_default().is_empty() {
        spec.service_account_name = spec.service_account.clone().filter(|name| !name.is_empty());
    }
    spec.service_account = spec.service_account_name.clone();

    let host_network = spec.host_network == Some(true);
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        fill_container!(container);
        // Never absent in the API, if empty.
        requests_from_limits(container.resources.get_or_insert_default());
        if host_network {
            container.ports.iter_mut().flatten().for_each(fill_host_port);
        }
    }
    for container in spec.ephemeral_containers.iter_mut().flatten() {
        fill_container!(container);
    }
    spec.overhead.iter_mut().for_each(round_to_milli);
    fill_pod_resources(spec);
    spec.volumes.iter_mut().flatten().for_each(fill_volume);
}

/// Sets a text that is absent or empty, which the API takes for the same.
fn fill_text(field: &mut Option<String>, default: &str) {
    if field.as_deref().unwrap_or_default().is_empty() {
        *field = Some(default.to_owned());
    }
}

/// Sets a number that is absent or 0, which the API takes for the same.
fn fill_number(field: &mut Option<i32>, default: i32) {
    if field.unwrap_or(0) == 0 {
        *field = Some(default);
    }
}

fn fill_priority(spec: &mut PodSpec) {
    if let Some(priority) = spec.priority_class_name.as_deref().and_then(well_known_priority) {
        spec.priority.get_or_insert(priority);
        spec.preemption_policy.get_or_insert_with(|| "PreemptLowerPriority".to_owned());
    }
}

fn fill_image(image: Option<&str>, policy: &mut Option<String>) {
    fill_text(policy, if follows_latest(image.unwrap_or_default()) { "Always" } else { "IfNotPresent" });
}

/// Whether an image reference means the tag `latest`: by name, or because it has neither tag nor digest.
fn follows_latest(image: &str) -> bool {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    // A colon before the last slash belongs to the registry's port.
    let last = name.rsplit('/').next().unwrap_or(name);
    match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => digest.is_none() && !name.is_empty(),
    }
}

fn fill_port(port: &mut ContainerPort) {
    fill_text(&mut port.protocol, "TCP");
}

fn fill_host_port(port: &mut ContainerPort) {
    fill_number(&mut port.host_port, port.container_port);
}

fn fill_field_ref(field: &mut ObjectFieldSelector) {
    fill_text(&mut field.api_version, "v1");
}

fn fill_resource_ref(field: &mut ResourceFieldSelector) {
    field.divisor.get_or_insert_with(|| Quantity("0".to_owned()));
}

fn fill_env(variable: &mut EnvVar) {
    let Some(source) = &mut variable.value_from else { return };
    source.field_ref.iter_mut().for_each(fill_field_ref);
    source.resource_field_ref.iter_mut().for_each(fill_resource_ref);
    if let Some(file) = &mut source.file_key_ref {
        file.optional.get_or_insert(false);
    }
}

fn fill_probe(probe: &mut Probe) {
    fill_number(&mut probe.timeout_seconds, 1);
    fill_number(&mut probe.period_seconds, 10);
    fill_number(&mut probe.success_threshold, 1);
    fill_number(&mut probe.failure_threshold, 3);
    probe.http_get.iter_mut().for_each(fill_http_get);
    if let Some(grpc) = &mut probe.grpc {
        grpc.service.get_or_insert_with(String::new);
    }
}

fn fill_http_get(action: &mut HTTPGetAction) {
    fill_text(&mut action.path, "/");
    fill_text(&mut action.scheme, "HTTP");
}

fn fill_lifecycle(lifecycle: &mut Lifecycle) {
    for handler in [&mut lifecycle.post_start, &mut lifecycle.pre_stop].into_iter().flatten() {
        handler.http_get.iter_mut().for_each(fill_http_get);
    }
}

fn requests_from_limits(resources: &mut ResourceRequirements) {
    let Some(limits) = &resources.limits else { return };
    let requests = resources.requests.get_or_insert_default();
    for (name, limit) in limits {
        requests.entry(name.clone()).or_insert_with(|| limit.clone());
    }
}

fn round_resources(resources: Option<&mut ResourceRequirements>) {
    let Some(resources) = resources else { return };
    [&mut resources.limits, &mut resources.requests].into_iter().flatten().for_each(round_to_milli);
}

/// The API keeps resources to a thousandth, rounded up.
fn round_to_milli(list: &mut ResourceList) {
    for quantity in list.values_mut() {
        if let Ok(amount) = Amount::try_from(&*quantity)
            && !amount.is_whole_milli()
        {
            *quantity = Amount::from_milli(amount.milli_value(), Format::DecimalSi).to_quantity();
        }
    }
}

/// Resources that a pod can have as a whole (KEP-2837).
fn is_pod_level(name: &str) -> bool {
    name == "cpu" || name == "memory" || is_huge_page(name)
}

fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// What the pod's containers need together at the moment they need most: all app containers and
/// sidecars at once, or an init container beside the sidecars started before it (KEP-753).
fn aggregate(
    spec: &PodSpec,
    list: impl Fn(&ResourceRequirements) -> Option<&ResourceList>,
) -> BTreeMap<String, Amount> {
    let amounts = |container: &Container| -> BTreeMap<String, Amount> {
        let quantities = container.resources.as_ref().and_then(&list);
        let read = |(name, quantity)| Some((String::clone(name), Amount::try_from(quantity).ok()?));
        quantities.into_iter().flatten().filter_map(read).gather()
    };
    let add = |total: &mut BTreeMap<String, Amount>, more: &BTreeMap<String, Amount>| {
        for (name, amount) in more {
            let sum = total.entry(name.clone()).or_insert(Amount::ZERO);
            *sum = sum.plus(*amount);
        }
    };
    let mut total = BTreeMap::new();
    for container in &spec.containers {
        add(&mut total, &amounts(container));
    }
    let mut sidecars = BTreeMap::new();
    let mut init_peak: BTreeMap<String, Amount> = BTreeMap::new();
    for container in spec.init_containers.iter().flatten() {
        let mut now = amounts(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut total, &now);
            add(&mut sidecars, &now);
            now.clone_from(&sidecars);
        } else {
            add(&mut now, &sidecars);
        }
        for (name, amount) in now {
            let peak = init_peak.entry(name).or_insert(amount);
            *peak = amount.max(*peak);
        }
    }
    for (name, amount) in init_peak {
        let peak = total.entry(name).or_insert(amount);
        *peak = amount.max(*peak);
    }
    total
}

/// Limits and requests of the pod as a whole, where its author gave some of them.
fn fill_pod_resources(spec: &mut PodSpec) {
    let Some(mut resources) = spec.resources.take() else { return };
    let has_some = |list: &Option<ResourceList>| list.as_ref().is_some_and(|list| !list.is_empty());
    if has_some(&resources.limits) || has_some(&resources.requests) {
        for (name, amount) in aggregate(spec, |r| r.limits.as_ref()) {
            let requested = resources.requests.as_ref().is_some_and(|list| list.contains_key(&name));
            if is_huge_page(&name) && !requested {
                resources.limits.get_or_insert_default().entry(name).or_insert_with(|| amount.to_quantity());
            }
        }
    }
    if has_some(&resources.limits) {
        let requests = resources.requests.get_or_insert_default();
        for (name, amount) in aggregate(spec, |r| r.requests.as_ref()) {
            if name == "cpu" || name == "memory" {
                requests.entry(name).or_insert_with(|| amount.to_quantity());
            }
        }
        for (name, limit) in resources.limits.iter().flatten().filter(|(name, _)| is_pod_level(name)) {
            requests.entry(name.clone()).or_insert_with(|| limit.clone());
        }
        if requests.is_empty() {
            resources.requests = None;
        }
    }
    round_resources(Some(&mut resources));
    spec.resources = Some(resources);
}

fn fill_downward_items(items: &mut Option<Vec<DownwardAPIVolumeFile>>) {
    for item in items.iter_mut().flatten() {
        item.field_ref.iter_mut().for_each(fill_field_ref);
        item.resource_field_ref.iter_mut().for_each(fill_resource_ref);
    }
}

fn fill_volume(volume: &mut Volume) {
    // A volume without any source is an empty folder. The comparison sees all sources, also
    // those that a later version of the API brings.
    if *volume == (Volume { name: volume.name.clone(), ..Volume::default() }) {
        volume.empty_dir = Some(EmptyDirVolumeSource::default());
    }
    if let Some(source) = &mut volume.host_path {
        source.type_.get_or_insert_with(String::new);
    }
    if let Some(source) = &mut volume.secret {
        source.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(source) = &mut volume.config_map {
        source.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(source) = &mut volume.downward_api {
        source.default_mode.get_or_insert(FILE_MODE);
        fill_downward_items(&mut source.items);
    }
    if let Some(source) = &mut volume.projected {
        source.default_mode.get_or_insert(FILE_MODE);
        for projection in source.sources.iter_mut().flatten() {
            if let Some(downward) = &mut projection.downward_api {
                fill_downward_items(&mut downward.items);
            }
            if let Some(token) = &mut projection.service_account_token {
                token.expiration_seconds.get_or_insert(3600);
            }
        }
    }
    if let Some(source) = &mut volume.image {
        fill_image(source.reference.as_deref(), &mut source.pull_policy);
    }
    if let Some(template) = volume.ephemeral.as_mut().and_then(|source| source.volume_claim_template.as_mut()) {
        template.spec.volume_mode.get_or_insert_with(|| "Filesystem".to_owned());
        if let Some(resources) = &mut template.spec.resources {
            [&mut resources.limits, &mut resources.requests].into_iter().flatten().for_each(round_to_milli);
        }
    }
    fill_legacy_volume(volume);
}

/// Volume types of storage vendors that the API still knows; a node only reports them, complete.
fn fill_legacy_volume(volume: &mut Volume) {
    if let Some(source) = &mut volume.iscsi {
        fill_text(&mut source.iscsi_interface, "default");
    }
    if let Some(source) = &mut volume.rbd {
        fill_text(&mut source.pool, "rbd");
        fill_text(&mut source.user, "admin");
        fill_text(&mut source.keyring, "/etc/ceph/keyring");
    }
    if let Some(source) = &mut volume.azure_disk {
        source.caching_mode.get_or_insert_with(|| "ReadWrite".to_owned());
        source.fs_type.get_or_insert_with(|| "ext4".to_owned());
        source.kind.get_or_insert_with(|| "Shared".to_owned());
        source.read_only.get_or_insert(false);
    }
    if let Some(source) = &mut volume.scale_io {
        fill_text(&mut source.storage_mode, "ThinProvisioned");
        fill_text(&mut source.fs_type, "xfs");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn filled(spec: Value) -> Value {
        let mut pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).expect("a pod");
        fill_defaults(&mut pod);
        let once = serde_json::to_value(&pod).expect("json");
        fill_defaults(&mut pod);
        assert_eq!(once, serde_json::to_value(&pod).expect("json"), "filling twice changes nothing more");
        once["spec"].clone()
    }

    /// Fills a spec and compares what lies at `pointer`.
    fn check(spec: Value, pointer: &str, expect: Value) {
        let filled = filled(spec);
        assert_eq!(filled.pointer(pointer), Some(&expect), "{pointer} in {filled:#}");
    }

    #[test]
    fn the_smallest_pod_becomes_what_the_api_server_stores() {
        let expect = json!({
            "containers": [{
                "name": "c", "image": "busybox", "imagePullPolicy": "Always", "resources": {},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }],
            "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "restartPolicy": "Always",
            "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30,
        });
        check(json!({"containers": [{"name": "c", "image": "busybox"}]}), "", expect);
    }

    #[test]
    fn what_the_author_wrote_stays() {
        let spec = json!({
            "containers": [{
                "name": "c", "image": "busybox", "imagePullPolicy": "Never", "terminationMessagePath": "/m",
                "terminationMessagePolicy": "FallbackToLogsOnError", "resources": {},
                "ports": [{"containerPort": 1, "protocol": "UDP", "hostPort": 7}],
                "livenessProbe": {"timeoutSeconds": 2, "periodSeconds": 3, "successThreshold": 1, "failureThreshold": 5,
                    "httpGet": {"path": "/x", "port": 1, "scheme": "HTTPS"}},
            }],
            "dnsPolicy": "None", "enableServiceLinks": false, "restartPolicy": "Never", "schedulerName": "s",
            "securityContext": {"runAsUser": 1}, "terminationGracePeriodSeconds": 0, "hostNetwork": true,
            "priority": 7, "preemptionPolicy": "Never", "priorityClassName": "system-node-critical",
            "volumes": [{"name": "v", "hostPath": {"path": "/", "type": "Directory"}}],
        });
        check(spec.clone(), "", spec);
    }

    #[test]
    fn the_pull_policy_follows_the_tag() {
        let digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        for (image, expect) in [
            ("busybox", "Always"),
            ("busybox:latest", "Always"),
            ("busybox:1.36", "IfNotPresent"),
            ("localhost:5000/busybox", "Always"),
            ("localhost:5000/busybox:1", "IfNotPresent"),
            (&format!("busybox@{digest}"), "IfNotPresent"),
            (&format!("busybox:latest@{digest}"), "Always"),
            (&format!("localhost:5000/a/b@{digest}"), "IfNotPresent"),
            ("", "IfNotPresent"),
        ] {
            check(
                json!({"containers": [{"name": "c", "image": image}]}),
                "/containers/0/imagePullPolicy",
                json!(expect),
            );
            let volume = json!({"containers": [], "volumes": [{"name": "v", "image": {"reference": image}}]});
            check(volume, "/volumes/0/image/pullPolicy", json!(expect));
        }
    }

    #[test]
    fn containers_of_every_kind_are_filled() {
        let container = json!({
            "name": "c", "image": "a:1",
            "ports": [{"containerPort": 80}],
            "env": [
                {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                {"name": "C", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}},
            ],
            "livenessProbe": {"httpGet": {"port": 80}},
            "readinessProbe": {"grpc": {"port": 80}},
            "startupProbe": {"exec": {"command": ["true"]}},
            "lifecycle": {"preStop": {"httpGet": {"port": 80}}, "postStart": {"httpGet": {"port": 81, "path": "/a"}}},
            "resources": {"requests": {"cpu": "0.0001"}},
        });
        let timing = |mut handler: Value| {
            for (key, value) in
                [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
            {
                handler[key] = json!(value);
            }
            handler
        };
        let expect = json!({
            "name": "c", "image": "a:1", "imagePullPolicy": "IfNotPresent",
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "ports": [{"containerPort": 80, "protocol": "TCP"}],
            "env": [
                {"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
                {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}}},
                {"name": "C", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k", "optional": false}}},
            ],
            "livenessProbe": timing(json!({"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}})),
            "readinessProbe": timing(json!({"grpc": {"port": 80, "service": ""}})),
            "startupProbe": timing(json!({"exec": {"command": ["true"]}})),
            "lifecycle": {
                "preStop": {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}},
                "postStart": {"httpGet": {"port": 81, "path": "/a", "scheme": "HTTP"}},
            },
            "resources": {"requests": {"cpu": "1m"}},
        });
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            check(json!({list: [container]}), &format!("/{list}/0"), expect.clone());
        }
    }

    #[test]
    fn requests_come_from_limits_and_pod_totals_from_containers() {
        let resources = |requests: Value, limits: Value| json!({"requests": requests, "limits": limits});
        let container = |resources: Value| json!({"name": "c", "resources": resources});
        check(
            json!({"containers": [container(resources(json!({"cpu": "1"}), json!({"cpu": "2", "memory": "1Gi"})))]}),
            "/containers/0/resources/requests",
            json!({"cpu": "1", "memory": "1Gi"}),
        );
        for (containers, init, pod, expect) in [
            // Limits of the pod alone become its requests.
            (
                json!([]),
                json!([]),
                resources(json!({}), json!({"cpu": "2"})),
                resources(json!({"cpu": "2"}), json!({"cpu": "2"})),
            ),
            // What containers ask for goes first.
            (
                json!([
                    container(resources(json!({"cpu": "300m"}), json!({}))),
                    container(resources(json!({"cpu": "200m"}), json!({})))
                ]),
                json!([]),
                resources(json!({}), json!({"cpu": "2", "memory": "1Gi"})),
                resources(json!({"cpu": "500m", "memory": "1Gi"}), json!({"cpu": "2", "memory": "1Gi"})),
            ),
            // An init container beside a sidecar may need more than all that comes later.
            (
                json!([container(resources(json!({"cpu": "100m"}), json!({})))]),
                json!([
                    {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
                    {"name": "i", "resources": {"requests": {"cpu": "700m"}}},
                ]),
                resources(json!({}), json!({"cpu": "2"})),
                resources(json!({"cpu": "800m"}), json!({"cpu": "2"})),
            ),
            // Huge pages of containers become the pod's limit and request.
            (
                json!([container(resources(json!({}), json!({"hugepages-2Mi": "4Mi"})))]),
                json!([]),
                resources(json!({"cpu": "1"}), json!({})),
                resources(json!({"cpu": "1", "hugepages-2Mi": "4Mi"}), json!({"hugepages-2Mi": "4Mi"})),
            ),
        ] {
            check(json!({"containers": containers, "initContainers": init, "resources": pod}), "/resources", expect);
        }
        check(json!({"containers": [], "resources": {}}), "/resources", json!({}));
    }

    #[test]
    fn volumes_get_their_source_and_modes() {
        for (volume, expect) in [
            (json!({}), json!({"emptyDir": {}})),
            (json!({"hostPath": {"path": "/a"}}), json!({"hostPath": {"path": "/a", "type": ""}})),
            (json!({"secret": {"secretName": "s"}}), json!({"secret": {"secretName": "s", "defaultMode": 420}})),
            (json!({"configMap": {"name": "s"}}), json!({"configMap": {"name": "s", "defaultMode": 420}})),
            (
                json!({"downwardAPI": {"defaultMode": 256, "items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]}}),
                json!({"downwardAPI": {"defaultMode": 256, "items": [{"path": "p", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}]}}),
            ),
            (
                json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}),
                json!({"projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]}}),
            ),
            (
                json!({"iscsi": {"targetPortal": "p", "iqn": "i", "lun": 0}}),
                json!({"iscsi": {"targetPortal": "p", "iqn": "i", "lun": 0, "iscsiInterface": "default"}}),
            ),
        ] {
            let named = |mut volume: Value| {
                volume["name"] = json!("v");
                volume
            };
            check(json!({"containers": [], "volumes": [named(volume)]}), "/volumes/0", named(expect));
        }
    }

    #[test]
    fn host_ports_follow_with_host_networking_only() {
        for (host_network, expect) in [
            (true, json!({"containerPort": 80, "hostPort": 80, "protocol": "TCP"})),
            (false, json!({"containerPort": 80, "protocol": "TCP"})),
        ] {
            let spec =
                json!({"hostNetwork": host_network, "containers": [{"name": "c", "ports": [{"containerPort": 80}]}]});
            check(spec, "/containers/0/ports/0", expect);
        }
    }

    #[test]
    fn critical_classes_have_their_priority() {
        for (class, priority) in
            [("system-node-critical", json!(2_000_001_000)), ("system-cluster-critical", json!(2_000_000_000))]
        {
            check(json!({"containers": [], "priorityClassName": class}), "/priority", priority);
        }
        assert_eq!(filled(json!({"containers": [], "priorityClassName": "mine"})).get("priority"), None);
        check(json!({"containers": [], "serviceAccount": "old"}), "/serviceAccountName", json!("old"));
    }
}

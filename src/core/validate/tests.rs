//! Tables of good and bad pods: what is wrong, told with the path of its field.

mod spec;

use super::*;
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::core::defaults::fill_defaults;

fn base() -> Value {
    json!({
        "metadata": {"name": "p-node", "namespace": "default", "labels": {"app": "web"}},
        "spec": {
            "nodeName": "node",
            "containers": [
                {"name": "c", "image": "busybox"},
                {"name": "d", "image": "busybox"},
            ],
            "initContainers": [{"name": "i", "image": "busybox"}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    })
}

/// The base pod with `value` put at `field` (`spec.containers[0].ports`) and defaults filled in.
fn pod_with(field: &str, value: Value) -> Pod {
    let mut pod = base();
    let mut place = &mut pod;
    for part in field.split('.') {
        let (name, index) = match part.split_once('[') {
            Some((name, index)) => (name, index.trim_end_matches(']').parse::<usize>().ok()),
            None => (part, None),
        };
        place = &mut place[name];
        if let Some(index) = index {
            place = &mut place[index];
        }
    }
    *place = value;
    let mut pod: Pod = serde_json::from_value(pod).expect("a pod");
    fill_defaults(&mut pod);
    pod
}

fn shown(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

/// Puts one value after the other at a field of the base pod and shows what is wrong with each.
fn check(field: &str, values: impl IntoIterator<Item = Value>, expect: &Expect) {
    let text: String = values.into_iter().map(|value| shown(&validate(&pod_with(field, value)))).collect();
    expect.assert_eq(&text);
}

/// These values are fine.
fn fine(field: &str, values: impl IntoIterator<Item = Value>) {
    check(field, values, &expect![""]);
}

#[test]
fn a_plain_pod_is_valid() {
    fine("spec.hostname", [json!("h")]);
    assert_eq!(api_references(&pod_with("spec.hostname", json!("h"))), []);
}

#[test]
fn metadata() {
    fine("metadata.name", [json!("a.b-c")]);
    check(
        "metadata.name",
        [json!(""), json!("A_b"), json!("a".repeat(254))],
        &expect![[r#"
        metadata.name: must be set
        metadata.name: "A_b" must be up to 253 lower-case letters, digits, '-' and '.', each part between dots beginning and ending with a letter or digit
        metadata.name: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…" must be up to 253 lower-case letters, digits, '-' and '.', each part between dots beginning and ending with a letter or digit
    "#]],
    );
    check(
        "metadata.namespace",
        [json!("a.b")],
        &expect![[r#"
        metadata.namespace: "a.b" must be up to 63 lower-case letters, digits and '-', beginning and ending with a letter or digit
    "#]],
    );
    fine("metadata.labels", [json!({"a.b/c": "", "x": "Y_1"})]);
    check(
        "metadata.labels",
        [json!({"a b": "x", "c": "-", "d/e/f": "g"})],
        &expect![[r#"
        metadata.labels[a b]: "a b" must be a name of up to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, with or without a domain and '/' before it
        metadata.labels[c]: "-" must be empty or up to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit
        metadata.labels[d/e/f]: "d/e/f" must be a name of up to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, with or without a domain and '/' before it
    "#]],
    );
    fine("metadata.annotations", [json!({"A.b/C": "any text\n", "x": "y"})]);
    check(
        "metadata.annotations",
        [json!({"a b": "x"}), json!({"a": "x".repeat(256 * 1024)})],
        &expect![[r#"
        metadata.annotations[a b]: "a b" must be a name of up to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, with or without a domain and '/' before it
        metadata.annotations: 262145 bytes are too many: at most 262144
    "#]],
    );
}

#[test]
fn containers() {
    check(
        "spec.containers",
        [json!([])],
        &expect![[r#"
        spec.containers: a pod needs at least one container
    "#]],
    );
    check(
        "spec.containers[0]",
        [
            json!({}),
            json!({"name": "C_1", "image": " busybox"}),
            json!({"name": "d", "image": "x"}),
            json!({"name": "i", "image": "x"}),
            json!({"name": "c", "image": "x", "imagePullPolicy": "Sometimes", "terminationMessagePolicy": "Mail"}),
            json!({"name": "c", "image": "x", "restartPolicy": "Perhaps"}),
            json!({"name": "c", "image": "x", "restartPolicyRules": [{"action": "Dance"}]}),
            json!({"name": "c", "image": "x", "resizePolicy": [{"resourceName": "disk", "restartPolicy": "NotRequired"}]}),
        ],
        &expect![[r#"
            spec.containers[0].name: must be set
            spec.containers[0].image: must be set
            spec.containers[0].name: "C_1" must be up to 63 lower-case letters, digits and '-', beginning and ending with a letter or digit
            spec.containers[0].image: " busybox" must have no spaces around it
            spec.containers[1].name: "d" is the name of another container as well
            spec.initContainers[0].name: "i" is the name of another container as well
            spec.containers[0].imagePullPolicy: "Sometimes" is not known: use Always, IfNotPresent or Never
            spec.containers[0].terminationMessagePolicy: "Mail" is not known: use File or FallbackToLogsOnError
            spec.containers[0].restartPolicy: "Perhaps" is not known: use Always, OnFailure or Never
            spec.containers[0].restartPolicy: must be set when restartPolicyRules are
            spec.containers[0].restartPolicyRules[0].action: "Dance" is not known: use Restart or RestartAllContainers
            spec.containers[0].restartPolicyRules[0].exitCodes: must be set
            spec.containers[0].resizePolicy[0].resourceName: "disk" is not known: use cpu or memory
        "#]],
    );
    fine("spec.containers[0].restartPolicyRules", [json!([])]);
    fine(
        "spec.containers[0]",
        [json!({"name": "c", "image": "x", "restartPolicy": "Never",
            "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]})],
    );
    check(
        "spec.ephemeralContainers",
        [json!([{"name": "e", "image": "x"}])],
        &expect![[r#"
        spec.ephemeralContainers: must not be set for a new pod
    "#]],
    );
}

#[test]
fn init_containers_and_sidecars() {
    let probe = json!({"exec": {"command": ["true"]}});
    fine(
        "spec.initContainers[0]",
        [
            json!({"name": "s", "image": "x", "restartPolicy": "Always", "startupProbe": probe, "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}),
            json!({"name": "s", "image": "x", "restartPolicy": "Never"}),
        ],
    );
    check(
        "spec.initContainers[0]",
        [
            json!({"name": "i", "image": "x", "livenessProbe": probe, "readinessProbe": probe, "startupProbe": probe, "lifecycle": {}}),
            json!({"name": "s", "image": "x", "restartPolicy": "Always", "livenessProbe": {}}),
        ],
        &expect![[r#"
            spec.initContainers[0].lifecycle: must not be set for an init container without restartPolicy Always
            spec.initContainers[0].livenessProbe: must not be set for an init container without restartPolicy Always
            spec.initContainers[0].readinessProbe: must not be set for an init container without restartPolicy Always
            spec.initContainers[0].startupProbe: must not be set for an init container without restartPolicy Always
            spec.initContainers[0].livenessProbe: needs a handler: exec, httpGet, tcpSocket or grpc
        "#]],
    );
}

#[test]
fn ports() {
    fine(
        "spec.containers[0].ports",
        [json!([{"containerPort": 80, "name": "web"}, {"containerPort": 80, "protocol": "UDP", "hostPort": 80},
            {"containerPort": 81, "hostPort": 80, "hostIP": "127.0.0.1"}])],
    );
    check(
        "spec.containers[0].ports",
        [
            json!([{}]),
            json!([{"containerPort": 65536, "hostPort": -1, "protocol": "ICMP", "hostIP": "here", "name": "Web"}]),
            json!([{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]),
            json!([{"containerPort": 1, "hostPort": 80}, {"containerPort": 2, "hostPort": 80}]),
        ],
        &expect![[r#"
            spec.containers[0].ports[0].containerPort: 0 must be from 1 to 65535
            spec.containers[0].ports[0].name: "Web" must be up to 15 lower-case letters, digits and single '-', with a letter among them and no '-' at either end
            spec.containers[0].ports[0].containerPort: 65536 must be from 1 to 65535
            spec.containers[0].ports[0].hostPort: -1 must be from 1 to 65535
            spec.containers[0].ports[0].protocol: "ICMP" is not known: use TCP, UDP or SCTP
            spec.containers[0].ports[0].hostIP: "here" must be an IPv4 or IPv6 address
            spec.containers[0].ports[1].name: "a" is the name of another port of this container as well
            spec.containers[0].ports[1].hostPort: 80 is taken by another port of this pod
        "#]],
    );
    let mut pod = pod_with("spec.hostNetwork", json!(true));
    let ports = json!([{"containerPort": 80, "hostPort": 81, "protocol": "TCP"}]);
    pod.spec.as_mut().expect("a spec").containers[0].ports = serde_json::from_value(ports).expect("ports");
    expect![[r#"
        spec.containers[0].ports[0].hostPort: must be the same as containerPort when hostNetwork is true
    "#]]
    .assert_eq(&shown(&validate(&pod)));
}

#[test]
fn environment() {
    fine(
        "spec.containers[0].env",
        [
            json!([{"name": "A.b", "value": ""}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a.b/c']"}}}]),
            json!([{"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.hugepages-2Mi", "divisor": "1Mi"}}}]),
            json!([{"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "status.podIPs"}}}]),
            json!([{"name": "E", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "env", "key": "E"}}}]),
        ],
    );
    check(
        "spec.containers[0].env",
        [
            json!([{"name": "", "value": "x"}, {"name": "A=B"}]),
            json!([{"name": "A", "valueFrom": {}}]),
            json!([{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
            json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}, "resourceFieldRef": {"resource": "limits.cpu"}}}]),
            json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.containers"}}}]),
            json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels"}}}]),
            json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name['x']"}}}]),
            json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a b']"}}}]),
            json!([{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.disk"}}}]),
            json!([{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1Mi"}}}]),
            json!([{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "x"}}}]),
            json!([{"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "w", "path": "../env", "key": "="}}}]),
        ],
        &expect![[r#"
            spec.containers[0].env[0].name: must be set
            spec.containers[0].env[1].name: "A=B" must be printable ASCII characters without '='
            spec.containers[0].env[0].valueFrom: needs a source: fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef or fileKeyRef
            spec.containers[0].env[0].valueFrom: must not be given together with value
            spec.containers[0].env[0].valueFrom: only one source may be given
            spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: "spec.containers" is not known: use metadata.name, metadata.namespace, metadata.uid, spec.nodeName, spec.serviceAccountName, status.hostIP, status.hostIPs, status.podIP, status.podIPs, metadata.labels['KEY'] or metadata.annotations['KEY']
            spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: "metadata.labels" is not known: use metadata.name, metadata.namespace, metadata.uid, spec.nodeName, spec.serviceAccountName, status.hostIP, status.hostIPs, status.podIP, status.podIPs, metadata.labels['KEY'] or metadata.annotations['KEY']
            spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: "metadata.name" has no keys: only metadata.labels and metadata.annotations do
            spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: "a b" must be a name of up to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, with or without a domain and '/' before it
            spec.containers[0].env[0].valueFrom.resourceFieldRef.resource: "limits.disk" is not known: use limits.cpu, limits.memory, limits.ephemeral-storage, requests.cpu, requests.memory or requests.ephemeral-storage
            spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: "1Mi" must be 1 or 1m
            spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: quantity "x" has no number: write one such as 500m, 2 or 1.5Gi
            spec.containers[0].env[0].valueFrom.fileKeyRef.key: "=" must be printable ASCII characters without '='
            spec.containers[0].env[0].valueFrom.fileKeyRef.path: "../env" must not contain '..'
            spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: "w" is no volume of this pod
        "#]],
    );
    check(
        "spec.containers[0].envFrom",
        [
            json!([{}]),
            json!([{"prefix": "=", "configMapRef": {"name": "m"}, "secretRef": {"name": "s"}}]),
            json!([{"secretRef": {"name": ""}}]),
        ],
        &expect![[r#"
            spec.containers[0].envFrom[0]: needs configMapRef or secretRef
            spec.containers[0].envFrom[0].prefix: "=" must be printable ASCII characters without '='
            spec.containers[0].envFrom[0]: only one of configMapRef and secretRef may be given
            spec.containers[0].envFrom[0].secretRef.name: must be set
        "#]],
    );
}

#[test]
fn probes_and_hooks() {
    fine(
        "spec.containers[0].livenessProbe",
        [
            json!({"httpGet": {"port": "web", "scheme": "HTTPS", "httpHeaders": [{"name": "X-A", "value": "1"}]}}),
            json!({"grpc": {"port": 1}, "terminationGracePeriodSeconds": 1}),
            json!({"tcpSocket": {"port": 65535}}),
        ],
    );
    check(
        "spec.containers[0].livenessProbe",
        [
            json!({}),
            json!({"exec": {"command": ["x"]}, "tcpSocket": {"port": 1}}),
            json!({"exec": {}}),
            json!({"httpGet": {"port": 0, "scheme": "FTP", "httpHeaders": [{"name": "X A", "value": "1"}]}}),
            json!({"httpGet": {"port": "-"}}),
            json!({"grpc": {"port": 0}}),
            json!({"exec": {"command": ["x"]}, "periodSeconds": -1, "successThreshold": 2, "terminationGracePeriodSeconds": 0}),
        ],
        &expect![[r#"
            spec.containers[0].livenessProbe: needs a handler: exec, httpGet, tcpSocket or grpc
            spec.containers[0].livenessProbe.tcpSocket: only one handler may be given
            spec.containers[0].livenessProbe.exec.command: must be set
            spec.containers[0].livenessProbe.httpGet.port: 0 must be from 1 to 65535
            spec.containers[0].livenessProbe.httpGet.scheme: "FTP" is not known: use HTTP or HTTPS
            spec.containers[0].livenessProbe.httpGet.httpHeaders[0].name: "X A" must be letters, digits, '-' and '_'
            spec.containers[0].livenessProbe.httpGet.port: "-" must be up to 15 lower-case letters, digits and single '-', with a letter among them and no '-' at either end
            spec.containers[0].livenessProbe.grpc.port: 0 must be from 1 to 65535
            spec.containers[0].livenessProbe.periodSeconds: -1 must be at least 0
            spec.containers[0].livenessProbe.terminationGracePeriodSeconds: 0 must be at least 1
            spec.containers[0].livenessProbe.successThreshold: must be 1 for a liveness or startup probe
        "#]],
    );
    check(
        "spec.containers[0].readinessProbe",
        [json!({"exec": {"command": ["x"]}, "successThreshold": 2, "terminationGracePeriodSeconds": 1})],
        &expect![[r#"
            spec.containers[0].readinessProbe.terminationGracePeriodSeconds: must not be set for a readiness probe: it stops nothing
        "#]],
    );
    fine(
        "spec.containers[0].lifecycle",
        [json!({}), json!({"preStop": {"sleep": {"seconds": 30}}, "postStart": {"sleep": {"seconds": 0}}})],
    );
    check(
        "spec.containers[0].lifecycle",
        [
            json!({"preStop": {}}),
            json!({"preStop": {"sleep": {"seconds": 31}}}),
            json!({"postStart": {"exec": {"command": ["x"]}, "httpGet": {"port": 1}}}),
            json!({"stopSignal": "SIGTERM"}),
        ],
        &expect![[r#"
            spec.containers[0].lifecycle.preStop: needs a handler: exec, httpGet, tcpSocket or sleep
            spec.containers[0].lifecycle.preStop.sleep.seconds: 31 must be from 0 to 30
            spec.containers[0].lifecycle.postStart.httpGet: only one handler may be given
            spec.containers[0].lifecycle.stopSignal: needs spec.os.name to be set
        "#]],
    );
}

#[test]
fn resource_lists() {
    fine(
        "spec.containers[0].resources",
        [
            json!({"limits": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1G", "example.com/gpu": "2"}, "requests": {"cpu": "100m"}}),
            json!({"limits": {"cpu": "1", "hugepages-2Mi": "4Mi"}}),
        ],
    );
    check(
        "spec.containers[0].resources",
        [
            json!({"limits": {"cpu": "-1", "memory": "lots"}}),
            json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
            json!({"limits": {"disk": "1", "a b": "1", "requests.example.com/x": "1"}}),
            json!({"limits": {"example.com/gpu": "1500m"}}),
            json!({"requests": {"example.com/gpu": "1"}}),
            json!({"limits": {"hugepages-2Mi": "3Mi"}}),
            json!({"limits": {"hugepages-x": "3Mi", "cpu": "1"}, "requests": {"hugepages-x": "1Mi"}}),
            json!({"claims": [{"name": "gpu"}]}),
        ],
        &expect![[r#"
            spec.containers[0].resources.limits[cpu]: -1 must not be below 0
            spec.containers[0].resources.limits[memory]: quantity "lots" has no number: write one such as 500m, 2 or 1.5Gi
            spec.containers[0].resources.requests[cpu]: 2 must not be above the limit of 1
            spec.containers[0].resources.limits[a b]: "a b" must be a name of up to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, with or without a domain and '/' before it
            spec.containers[0].resources.limits[disk]: "disk" is no resource here: use cpu, memory or ephemeral-storage, hugepages-SIZE or a name with a domain
            spec.containers[0].resources.limits[requests.example.com/x]: "requests.example.com/x" must not begin with 'requests.'
            spec.containers[0].resources.limits[example.com/gpu]: 1500m must be a whole number
            spec.containers[0].resources.requests[example.com/gpu]: needs a limit of the same size
            spec.containers[0].resources.limits[hugepages-2Mi]: 3Mi must be a multiple of the page size 2Mi
            spec.containers[0].resources: huge pages need cpu or memory besides
            spec.containers[0].resources.limits[hugepages-x]: "x" must be a page size, such as 2Mi
            spec.containers[0].resources.requests[hugepages-x]: "x" must be a page size, such as 2Mi
            spec.containers[0].resources.requests[hugepages-x]: 1Mi must be the same as the limit of 3Mi
            spec.containers[0].resources.claims[0]: "gpu" is not among spec.resourceClaims
        "#]],
    );
    fine("spec.resources", [json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}})]);
    check(
        "spec.resources",
        [
            json!({"limits": {"ephemeral-storage": "1"}}),
            json!({"limits": {"example.com/gpu": "1"}}),
            json!({"claims": [{"name": "x"}]}),
        ],
        &expect![[r#"
            spec.resources.limits[ephemeral-storage]: "ephemeral-storage" is no resource here: use cpu or memory, hugepages-SIZE or a name with a domain
            spec.resources.limits[example.com/gpu]: "example.com/gpu" is no resource of a pod: use cpu or memory or hugepages-SIZE
            spec.resources.claims: must not be set for the pod as a whole
        "#]],
    );
    check(
        "spec.overhead",
        [json!({"cpu": "x", "shoes": "2"})],
        &expect![[r#"
        spec.overhead[cpu]: quantity "x" has no number: write one such as 500m, 2 or 1.5Gi
        spec.overhead[shoes]: "shoes" is no resource here: use cpu, memory or ephemeral-storage, hugepages-SIZE or a name with a domain
    "#]],
    );
}

#[test]
fn problems_are_counted_beyond_the_limit() {
    let env: Vec<Value> = (0..60).map(|_| json!({"name": "="})).collect();
    let problems = validate(&pod_with("spec.containers[0].env", json!(env)));
    assert_eq!((problems.len(), problems[MAX_PROBLEMS].message.as_str()), (MAX_PROBLEMS + 1, "and 10 more problems"));
}

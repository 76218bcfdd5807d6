//! Pods as a whole: what the API changes in them, their security, /etc/hosts, sysctls, runtime classes, debug containers,
//! images as volumes.

use serde_json::{Value, json};

use super::make::{BUSYBOX, RUNS, delete, kubectl, once, pod, prints, row, shell, until, with};
use super::scene::{Look, Row, Step};

pub(super) fn shared() -> Vec<Value> {
    let ports = json!([{ "port": 8765, "targetPort": 8080 }]);
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "fooservice" },
        "spec": { "ports": ports, "selector": { "name": "nobody" } } });
    vec![
        service,
        class("runc", json!({})),
        class("${namespace}-over", json!({ "overhead": { "podFixed": { "cpu": "10m", "memory": "1Mi" } } })),
    ]
}

fn class(name: &str, more: Value) -> Value {
    with(
        json!({ "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": { "name": name }, "handler": "runc" }),
        more,
    )
}

fn runs(name: &str) -> Value {
    pod(name, &[shell("c", RUNS)], json!({}))
}

fn pod_rows() -> Vec<Row> {
    let of = |what: &str| format!("Pods should {what}");
    let ready = |name: &str| until(name, vec![Look::Ready(true)]);
    let labelled = |name: &str| with_label(runs(name), "type", "collected");
    vec![
        row(
            &of("get a host IP"),
            vec![
                Step::Make(runs("host-ip")),
                until("host-ip", vec![Look::Ready(true), Look::Is("/status/hostIP", json!("${address}"))]),
            ],
        ),
        row(
            &of("be submitted and removed"),
            vec![
                Step::Make(runs("submitted")),
                ready("submitted"),
                delete("submitted"),
                until("submitted", vec![Look::Gone]),
            ],
        ),
        row(
            &of("be updated"),
            vec![
                Step::Make(runs("updated")),
                ready("updated"),
                kubectl(&["label", "pod", "updated", "time=now"]),
                Step::For(
                    3,
                    "updated".to_owned(),
                    vec![
                        Look::Is("/metadata/labels/time", json!("now")),
                        Look::Ready(true),
                        Look::Restarts("c", 0..=0),
                    ],
                ),
            ],
        ),
        row(
            &of("allow activeDeadlineSeconds to be updated"),
            vec![
                Step::Make(runs("deadline")),
                ready("deadline"),
                kubectl(&["patch", "pod", "deadline", "-p", r#"{"spec":{"activeDeadlineSeconds":5}}"#]),
                until("deadline", vec![Look::Phase("Failed"), Look::Is("/status/reason", json!("DeadlineExceeded"))]),
            ],
        ),
        prints(
            &of("contain environment variables for services"),
            "services",
            pod("services", &[shell("c", "env")], json!({ "restartPolicy": "Never", "enableServiceLinks": true })),
            "c",
            &[
                "FOOSERVICE_SERVICE_HOST=",
                "FOOSERVICE_SERVICE_PORT=8765",
                "FOOSERVICE_PORT=tcp://",
                "FOOSERVICE_PORT_8765_TCP_PORT=8765",
                "FOOSERVICE_PORT_8765_TCP_PROTO=tcp",
                "FOOSERVICE_PORT_8765_TCP=tcp://",
                "FOOSERVICE_PORT_8765_TCP_ADDR=",
            ],
        ),
        row(
            &of("delete a collection of pods"),
            vec![
                Step::Make(labelled("collected-1")),
                Step::Make(labelled("collected-2")),
                Step::Make(labelled("collected-3")),
                ready("collected-1"),
                ready("collected-2"),
                ready("collected-3"),
                kubectl(&["delete", "pods", "-l", "type=collected", "--wait=false"]),
                until("collected-1", vec![Look::Gone]),
                until("collected-2", vec![Look::Gone]),
                until("collected-3", vec![Look::Gone]),
            ],
        ),
        row(
            &of("patch a pod status"),
            vec![
                Step::Make(runs("patched")),
                ready("patched"),
                kubectl(&[
                    "patch",
                    "pod",
                    "patched",
                    "--subresource=status",
                    "-p",
                    r#"{"status":{"message":"told by a test","reason":"Test"}}"#,
                ]),
                Step::For(
                    3,
                    "patched".to_owned(),
                    vec![Look::Phase("Running"), Look::Restarts("c", 0..=0), Look::Condition("Ready", "True")],
                ),
            ],
        ),
        row(
            &of("run through the lifecycle of Pods and PodStatus"),
            vec![
                Step::Make(runs("cycle")),
                ready("cycle"),
                // The same content under another name would do as well: it is the name that has the container begin anew.
                kubectl(&[
                    "patch",
                    "pod",
                    "cycle",
                    "-p",
                    r#"{"metadata":{"labels":{"time":"later"}},"spec":{"containers":[{"name":"c","image":"docker.io/library/busybox"}]}}"#,
                ]),
                until(
                    "cycle",
                    vec![
                        Look::Is("/metadata/labels/time", json!("later")),
                        Look::Restarts("c", 1..=1),
                        Look::Ready(true),
                    ],
                ),
                delete("cycle"),
                until("cycle", vec![Look::Gone]),
            ],
        ),
    ]
}

fn with_label(mut object: Value, key: &str, value: &str) -> Value {
    object["metadata"]["labels"][key] = value.into();
    object
}

fn kubelet_rows() -> Vec<Row> {
    let of = |what: &str| format!("Kubelet when scheduling {what}");
    let fails = |name: &str| pod(name, &[shell("c", "false")], json!({}));
    let read_only =
        with(shell("c", "echo test >/file; sleep 1"), json!({ "securityContext": { "readOnlyRootFilesystem": true } }));
    let aliases =
        json!({ "restartPolicy": "Never", "hostAliases": [{ "ip": "123.45.67.89", "hostnames": ["foo", "bar"] }] });
    let host = json!({ "name": "host", "mountPath": "/hosts-of-the-node" });
    let look = "head -1 /etc/hosts; head -1 /hosts-of-the-node | sed 's/^/node: /'";
    let container = |name: &str| with(shell(name, look), json!({ "volumeMounts": [host] }));
    let own =
        with(shell("own", look), json!({ "volumeMounts": [host, { "name": "host", "mountPath": "/etc/hosts" }] }));
    let volume = json!({ "restartPolicy": "Never", "volumes": [{ "name": "host", "hostPath": { "path": "/etc/hosts", "type": "FileOrCreate" } }] });
    let managed = || "# Kubernetes-managed hosts file.".to_owned();
    vec![
        prints(
            &of("a busybox command in a pod should print the output to logs"),
            "prints",
            once("prints", shell("c", "echo Hello World")),
            "c",
            &["Hello World"],
        ),
        row(
            &of("a busybox command that always fails in a pod should have an terminated reason"),
            vec![
                Step::Make(once("always-fails", shell("c", "false"))),
                until(
                    "always-fails",
                    vec![
                        Look::Status("c", "/state/terminated/reason", json!("Error")),
                        Look::Status("c", "/state/terminated/exitCode", json!(1)),
                    ],
                ),
            ],
        ),
        row(
            &of("a busybox command that always fails in a pod should be possible to delete"),
            vec![
                Step::Make(fails("fails-gone")),
                until("fails-gone", vec![Look::Restarts("c", 1..=1000)]),
                delete("fails-gone"),
                until("fails-gone", vec![Look::Gone]),
            ],
        ),
        prints(
            &of("a read only busybox container should not write to root filesystem"),
            "read-only",
            once("read-only", read_only),
            "c",
            &["Read-only file system"],
        ),
        prints(
            &of("an agnhost Pod with hostAliases should write entries to /etc/hosts"),
            "aliases",
            pod("aliases", &[shell("c", "cat /etc/hosts")], aliases),
            "c",
            &["123.45.67.89\tfoo\tbar"],
        ),
        row(
            "KubeletManagedEtcHosts should test kubelet managed /etc/hosts file",
            vec![
                Step::Make(pod("hosts-file", &[container("one"), container("two"), own], volume.clone())),
                Step::Make(pod(
                    "hosts-node",
                    &[container("one"), container("two")],
                    with(volume, json!({ "hostNetwork": true })),
                )),
                until(
                    "hosts-file",
                    vec![
                        Look::Phase("Succeeded"),
                        Look::Says("one", managed()),
                        Look::Says("two", managed()),
                        Look::Silent("own", managed()),
                    ],
                ),
                until(
                    "hosts-node",
                    vec![Look::Phase("Succeeded"), Look::Silent("one", managed()), Look::Silent("two", managed())],
                ),
            ],
        ),
    ]
}

fn security_rows() -> Vec<Row> {
    let of = |what: &str| format!("Security Context {what}");
    let secured = |name: &str, script: &str, context: Value| {
        once(name, with(shell("c", script), json!({ "securityContext": context })))
    };
    let sysctls = |list: Value| json!({ "restartPolicy": "Never", "securityContext": { "sysctls": list } });
    let named = |name: &str, value: &str| json!({ "name": name, "value": value });
    let classed = |name: &str, class: &str| pod(name, &[shell("c", RUNS)], json!({ "runtimeClassName": class }));
    vec![
        prints(
            &of("When creating a container with runAsUser should run the container with uid 65534"),
            "uid",
            secured("uid", "id", json!({ "runAsUser": 65534 })),
            "c",
            &["uid=65534"],
        ),
        prints(
            &of("When creating a pod with privileged should run the container as unprivileged when false"),
            "unprivileged",
            secured("unprivileged", "ip link add dummy0 type dummy || true", json!({ "privileged": false })),
            "c",
            &["Operation not permitted"],
        ),
        prints(
            &of(
                "When creating a pod with readOnlyRootFilesystem should run the container with writable rootfs when readOnlyRootFilesystem=false",
            ),
            "writable",
            secured("writable", "touch /checkfile && echo written", json!({ "readOnlyRootFilesystem": false })),
            "c",
            &["written"],
        ),
        prints(
            &of(
                "when creating containers with AllowPrivilegeEscalation should not allow privilege escalation when false",
            ),
            "no-more-rights",
            secured(
                "no-more-rights",
                "grep NoNewPrivs /proc/self/status",
                json!({ "runAsUser": 1000, "allowPrivilegeEscalation": false }),
            ),
            "c",
            &["NoNewPrivs:\t1"],
        ),
        prints(
            "Sysctls should support sysctls",
            "sysctl",
            pod(
                "sysctl",
                &[shell("c", "sysctl kernel.shm_rmid_forced")],
                sysctls(json!([named("kernel.shm_rmid_forced", "1")])),
            ),
            "c",
            &["kernel.shm_rmid_forced = 1"],
        ),
        row(
            "Sysctls should reject invalid sysctls",
            vec![Step::Refused(
                pod(
                    "sysctl-bad",
                    &[shell("c", "true")],
                    with(
                        json!({ "nodeName": "nobody" }),
                        sysctls(json!([
                            named("foo-", "bar"),
                            named("kernel.shmmax", "100000000"),
                            named("safe-and-unsafe", "1"),
                            named("bar..", "42")
                        ])),
                    ),
                ),
                &["Invalid value: \"foo-\"", "Invalid value: \"bar..\""],
                "safe-and-unsafe",
            )],
        ),
        row(
            "RuntimeClass should reject a Pod requesting a non-existent RuntimeClass",
            vec![Step::Refused(
                with_node(classed("class-none", "nonexistent")),
                &["RuntimeClass \"nonexistent\" not found"],
                "created",
            )],
        ),
        row(
            "RuntimeClass should reject a Pod requesting a deleted RuntimeClass",
            vec![
                Step::Make(class("delete-me", json!({}))),
                kubectl(&["delete", "runtimeclass", "delete-me"]),
                Step::Refused(
                    with_node(classed("class-gone", "delete-me")),
                    &["RuntimeClass \"delete-me\" not found"],
                    "created",
                ),
            ],
        ),
        row(
            "RuntimeClass should schedule a Pod requesting a RuntimeClass without PodOverhead",
            vec![
                Step::Make(classed("class-plain", "runc")),
                until("class-plain", vec![Look::Ready(true), Look::Is("/spec/overhead", Value::Null)]),
            ],
        ),
        row(
            "RuntimeClass should schedule a Pod requesting a RuntimeClass and initialize its Overhead",
            vec![
                Step::Make(classed("class-over", "${namespace}-over")),
                until(
                    "class-over",
                    vec![Look::Is("/spec/overhead/cpu", json!("10m")), Look::Is("/spec/overhead/memory", json!("1Mi"))],
                ),
            ],
        ),
    ]
}

/// A name for what never gets to a node.
fn with_node(mut object: Value) -> Value {
    object["spec"]["nodeName"] = "nobody".into();
    object
}

fn guest_rows() -> Vec<Row> {
    let of = |what: &str| format!("Ephemeral Containers {what}");
    let debug = |pod: &str, name: &str| {
        let image = format!("--image={BUSYBOX}");
        kubectl(&[
            "debug",
            pod,
            &image,
            "--image-pull-policy=IfNotPresent",
            "-c",
            name,
            "--",
            "sh",
            "-c",
            "while :; do echo polo; sleep 1; done",
        ])
    };
    let speaks = |name: &'static str| {
        [
            Look::Status(name, "/restartCount", json!(0)),
            Look::Says(name, "polo".to_owned()),
            Look::Status(name, "/state/waiting", Value::Null),
        ]
    };
    let volume = json!({ "volumes": [{ "name": "v", "image": { "reference": "${registry}/volume:1", "pullPolicy": "Always" } }], "restartPolicy": "Never" });
    let mounted = with(shell("c", "ls /volume"), json!({ "volumeMounts": [{ "name": "v", "mountPath": "/volume" }] }));
    vec![
        row(
            &of("will start an ephemeral container in an existing pod"),
            vec![
                Step::Make(runs("guest")),
                until("guest", vec![Look::Ready(true), Look::Is("/metadata/generation", json!(1))]),
                debug("guest", "debugger"),
                until(
                    "guest",
                    speaks("debugger")
                        .into_iter()
                        .chain([Look::Is("/metadata/generation", json!(2)), Look::Restarts("c", 0..=0)])
                        .collect(),
                ),
            ],
        ),
        row(
            &of("should update the ephemeral containers in an existing pod"),
            vec![
                Step::Make(runs("guests")),
                until("guests", vec![Look::Ready(true)]),
                debug("guests", "debugger"),
                until("guests", speaks("debugger").into()),
                debug("guests", "debugger2"),
                until(
                    "guests",
                    speaks("debugger")
                        .into_iter()
                        .chain(speaks("debugger2"))
                        .chain([Look::Restarts("c", 0..=0)])
                        .collect(),
                ),
            ],
        ),
        prints(
            "ImageVolume should succeed with pod and pull policy of Always",
            "image-volume",
            pod("image-volume", &[mounted], volume),
            "c",
            &["program"],
        ),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    [pod_rows(), kubelet_rows(), security_rows(), guest_rows()].into_iter().flatten().collect()
}

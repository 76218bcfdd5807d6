//! What containers are told: variables from ConfigMaps, Secrets and the downward API, expansion, commands and arguments.

use serde_json::{Value, json};

use super::make::{AGNHOST, RUNS, data, kubectl, once, pod, prints, row, shell, until, with};
use super::scene::{Look, Row, Step};

/// What pods of several rows read.
pub(super) fn shared() -> Vec<Value> {
    let three = || json!({ "data-1": "value-1", "data-2": "value-2", "data-3": "value-3" });
    vec![data("ConfigMap", "three", three()), data("Secret", "three", three())]
}

fn env(name: &str, env: Value) -> Value {
    // No shell: it would drop the names that it cannot have itself.
    once(name, with(with(shell("c", ""), json!({ "command": ["env"] })), env))
}

fn object_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (kind, title, key, from) in [
        ("configmap", "ConfigMap", "configMapKeyRef", "configMapRef"),
        ("secret", "Secrets", "secretKeyRef", "secretRef"),
    ] {
        let (one, all, odd) = (format!("{kind}-one"), format!("{kind}-all"), format!("{kind}-odd"));
        let single = json!({ "env": [{ "name": "DATA", "valueFrom": { key: { "name": "three", "key": "data-1" } } }] });
        let whole = |prefixes: &[&str]| -> Value {
            let from = |prefix: &&str| json!({ "prefix": prefix, from: { "name": "three" } });
            json!({ "envFrom": prefixes.iter().map(from).collect::<Vec<_>>() })
        };
        let names = if kind == "secret" {
            ["from pods in env vars", "as environment variable names variable names with various prefixes"]
        } else {
            ["via environment variable", "as environment variable names with various prefixes"]
        };
        rows.push(prints(
            &format!("{title} should be consumable {}", names[0]),
            &one,
            env(&one, single),
            "c",
            &["DATA=value-1"],
        ));
        rows.push(prints(
            &format!("{title} should be consumable via the environment"),
            &all,
            env(&all, whole(&["", "p-"])),
            "c",
            &["data-1=value-1", "data-2=value-2", "data-3=value-3", "p-data-1=value-1", "p-data-3=value-3"],
        ));
        rows.push(prints(
            &format!("{title} should be consumable {}", names[1]),
            &odd,
            env(&odd, whole(&["p_", "#_", "1-"])),
            "c",
            &["p_data-1=value-1", "#_data-2=value-2", "1-data-3=value-3"],
        ));
    }
    rows
}

fn field(name: &str, path: &str) -> Value {
    json!({ "name": name, "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": path } } })
}

fn downward_rows() -> Vec<Row> {
    let of = |what: &str| format!("Downward API should provide {what}");
    let resource =
        |name: &str, what: &str| json!({ "name": name, "valueFrom": { "resourceFieldRef": { "resource": what } } });
    let sizes = || {
        json!([
            resource("CPU_LIMIT", "limits.cpu"),
            resource("MEMORY_LIMIT", "limits.memory"),
            resource("CPU_REQUEST", "requests.cpu"),
            resource("MEMORY_REQUEST", "requests.memory")
        ])
    };
    let resources =
        json!({ "requests": { "cpu": "50m", "memory": "32Mi" }, "limits": { "cpu": "1250m", "memory": "64Mi" } });
    vec![
        prints(
            &of("pod name, namespace and IP address as env vars"),
            "down-names",
            env(
                "down-names",
                json!({ "env": [field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace"), field("POD_IP", "status.podIP")] }),
            ),
            "c",
            &["POD_NAME=down-names", "POD_NAMESPACE=${namespace}", "POD_IP=10."],
        ),
        prints(
            &of("host IP as an env var"),
            "down-host",
            env("down-host", json!({ "env": [field("HOST_IP", "status.hostIP")] })),
            "c",
            &["HOST_IP=${/status/hostIP}"],
        ),
        prints(
            &of("hostIPs as an env var"),
            "down-hosts",
            env("down-hosts", json!({ "env": [field("HOST_IPS", "status.hostIPs")] })),
            "c",
            &["HOST_IPS=${/status/hostIPs/0/ip}"],
        ),
        prints(
            &of("pod UID as env vars"),
            "down-uid",
            env("down-uid", json!({ "env": [field("POD_UID", "metadata.uid")] })),
            "c",
            &["POD_UID=${/metadata/uid}"],
        ),
        prints(
            &of("container's limits.cpu/memory and requests.cpu/memory as env vars"),
            "down-sizes",
            env("down-sizes", json!({ "env": sizes(), "resources": resources })),
            "c",
            &["CPU_LIMIT=2", "CPU_REQUEST=1", "MEMORY_LIMIT=67108864", "MEMORY_REQUEST=33554432"],
        ),
        prints(
            &of("default limits.cpu/memory from node allocatable"),
            "down-defaults",
            env("down-defaults", json!({ "env": sizes() })),
            "c",
            &["CPU_LIMIT=${cpus}", "MEMORY_LIMIT=${memory}", "CPU_REQUEST=0", "MEMORY_REQUEST=0"],
        ),
    ]
}

/// A container whose sub path is made of variables.
fn sub_path(script: &str, variables: Value, expression: &str) -> (Value, Value) {
    let mounts = json!([{ "name": "work", "mountPath": "/sub", "subPathExpr": expression }, { "name": "work", "mountPath": "/whole" }]);
    (
        with(shell("c", script), json!({ "env": variables, "volumeMounts": mounts })),
        json!({ "volumes": [{ "name": "work", "emptyDir": {} }] }),
    )
}

fn expansion_rows() -> Vec<Row> {
    let of = |what: &str| format!("Variable Expansion should {what}");
    let value = |name: &str, value: &str| json!({ "name": name, "value": value });
    let vars = json!([value("FOO", "foo-value"), value("BAR", "bar-value"), value("FOOBAR", "$(FOO);;$(BAR)")]);
    let alone = |name: &str, (container, more): (Value, Value)| {
        pod(name, &[container], with(more, json!({ "restartPolicy": "Never" })))
    };
    let annotated = |name: &str, key: &str| {
        let variables = json!([value("POD_NAME", "foo"), field("ANNOTATION", "metadata.annotations['mysubpath']")]);
        let script = format!("touch /whole/mypath/foo/test.log && ls /sub; {RUNS}");
        let (container, more) = sub_path(&script, variables, "$(ANNOTATION)/$(POD_NAME)");
        let mut object = pod(name, &[container], more);
        object["metadata"]["annotations"] = json!({ key: "mypath" });
        object
    };
    let refused = |what: &str, name: &str, path: &str| {
        let looks = vec![
            Look::Status("c", "/state/waiting/reason", json!("CreateContainerConfigError")),
            Look::Phase("Pending"),
        ];
        row(
            &of(what),
            vec![
                Step::Make(alone(name, sub_path("true", json!([value("POD_NAME", path)]), "$(POD_NAME)"))),
                until(name, looks),
            ],
        )
    };
    vec![
        prints(
            &of("allow composing env vars into new env vars"),
            "expand-vars",
            env("expand-vars", json!({ "env": vars })),
            "c",
            &["FOOBAR=foo-value;;bar-value"],
        ),
        prints(
            &of("allow substituting values in a container's command"),
            "expand-command",
            once(
                "expand-command",
                with(shell("c", "X=wrong; echo \"$(TEST_VAR)\""), json!({ "env": [value("TEST_VAR", "test-value")] })),
            ),
            "c",
            &["test-value"],
        ),
        prints(
            &of("allow substituting values in a container's args"),
            "expand-args",
            once(
                "expand-args",
                with(
                    shell("c", ""),
                    json!({ "env": [value("TEST_VAR", "test-value")], "command": ["sh", "-c"], "args": ["echo \"$(TEST_VAR)\""] }),
                ),
            ),
            "c",
            &["test-value"],
        ),
        prints(
            &of("allow substituting values in a volume subpath"),
            "expand-path",
            alone(
                "expand-path",
                sub_path("test -d /whole/foo; echo it is $?", json!([value("POD_NAME", "foo")]), "$(POD_NAME)"),
            ),
            "c",
            &["it is 0"],
        ),
        refused("fail substituting values in a volume subpath with backticks", "expand-dots", ".."),
        refused("fail substituting values in a volume subpath with absolute path", "expand-root", "/tmp"),
        row(
            &of("verify that a failing subpath expansion can be modified during the lifecycle of a container"),
            vec![
                Step::Make(annotated("expand-later", "notmysubpath")),
                until(
                    "expand-later",
                    vec![
                        Look::Status("c", "/state/waiting/reason", json!("CreateContainerConfigError")),
                        Look::Phase("Pending"),
                    ],
                ),
                kubectl(&["annotate", "pod", "expand-later", "mysubpath=mypath"]),
                until("expand-later", vec![Look::Ready(true), Look::Says("c", "test.log".to_owned())]),
            ],
        ),
        row(
            &of("succeed in writing subpaths in container"),
            vec![
                Step::Make(annotated("expand-write", "mysubpath")),
                until("expand-write", vec![Look::Ready(true), Look::Says("c", "test.log".to_owned())]),
                kubectl(&["annotate", "--overwrite", "pod", "expand-write", "mysubpath=mynewpath"]),
                Step::For(4, "expand-write".to_owned(), vec![Look::Ready(true), Look::Restarts("c", 0..=0)]),
                kubectl(&["delete", "pod", "expand-write", "--wait=false"]),
                until("expand-write", vec![Look::Gone]),
            ],
        ),
    ]
}

fn command_rows() -> Vec<Row> {
    let of = |what: &str| format!("Containers should {what}");
    let container =
        |more: Value| with(json!({ "name": "c", "image": AGNHOST, "imagePullPolicy": "IfNotPresent" }), more);
    vec![
        row(
            &of("use the image defaults if command and args are blank"),
            vec![
                Step::Make(pod("image-defaults", &[container(json!({}))], json!({}))),
                until("image-defaults", vec![Look::Ready(true), Look::Says("c", "Paused".to_owned())]),
            ],
        ),
        prints(
            &of("be able to override the image's default arguments (container cmd)"),
            "image-args",
            once("image-args", container(json!({ "args": ["entrypoint-tester", "override", "arguments"] }))),
            "c",
            &["[/agnhost entrypoint-tester override arguments]"],
        ),
        prints(
            &of("be able to override the image's default command (container entrypoint)"),
            "image-command",
            once("image-command", container(json!({ "command": ["/agnhost", "entrypoint-tester"] }))),
            "c",
            &["[/agnhost entrypoint-tester]"],
        ),
        prints(
            &of("be able to override the image's default command and arguments"),
            "image-all",
            once(
                "image-all",
                container(json!({ "command": ["/agnhost"], "args": ["entrypoint-tester", "override", "arguments"] })),
            ),
            "c",
            &["[/agnhost entrypoint-tester override arguments]"],
        ),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    [object_rows(), downward_rows(), expansion_rows(), command_rows()].into_iter().flatten().collect()
}

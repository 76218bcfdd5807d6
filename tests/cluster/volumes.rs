//! What pods get from a real API server: ConfigMaps, Secrets, tokens, the downward API, variables; and that no secret
//! leaves by another way.

use std::{fs, time::Duration};

use serde_json::{Value, json};

use super::lab::{Ground, SOON};
use crate::harness::{Agent, Cluster, read_inside, wait};

/// A value that must show up in containers and nowhere else.
const CANARY: &str = "kanarienvogel-7311";

/// A pod for this node, with one container that does `script`.
fn pod(ground: &Ground<'_>, namespace: &str, name: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": namespace, "name": name, "labels": { "colour": "red" } },
        "spec": {
            "nodeName": ground.name, "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "c", "image": "busybox", "imagePullPolicy": "Never",
                "command": ["sh", "-c", format!("{script}; while true; do sleep 1; done")] }],
            "tolerations": [{ "operator": "Exists" }],
        },
    })
}

/// Waits until the container's log holds all of these lines.
#[track_caller]
fn wait_log(agent: &Agent<'_>, name: &str, lines: &[&str]) -> String {
    wait::until(&format!("the log of {name}"), SOON, || {
        let log = agent.tool(&["logs", name])?;
        let missing: Vec<_> = lines.iter().filter(|line| !log.lines().any(|have| have == **line)).collect();
        if missing.is_empty() { Ok(log) } else { Err(format!("{missing:?} not in {log}")) }
    })
}

/// Waits until a command in the pod prints this.
#[track_caller]
fn wait_prints(agent: &Agent<'_>, name: &str, command: &[&str], expect: &str) {
    wait::until(&format!("{command:?} in {name}"), SOON, || {
        let got = agent.tool(&[&["exec", name, "--"], command].concat())?;
        if got.trim() == expect { Ok(()) } else { Err(got) }
    });
}

fn uid(cluster: &Cluster, namespace: &str, name: &str) -> String {
    let object = cluster.get(&["-n", namespace, "pod", name]).expect("the pod");
    object["metadata"]["uid"].as_str().expect("a uid").to_owned()
}

#[test]
fn a_pod_gets_its_objects_and_follows_them_and_no_secret_shows_elsewhere() {
    let cluster = Cluster::shared();
    let ground = Ground::new(cluster);
    ground.node.import("busybox");
    let (namespace, name) = (format!("volumes-{}", ground.name), "everything");
    cluster.namespace(&namespace);
    let object = |kind: &str, name: &str, data: Value| {
        let key = if kind == "Secret" { "stringData" } else { "data" };
        json!({ "apiVersion": "v1", "kind": kind, "metadata": { "namespace": namespace, "name": name }, key: data })
    };
    cluster.apply(&object("ConfigMap", "settings", json!({ "mode": "slow", "HOST": "here" })));
    cluster.apply(&object("Secret", "key", json!({ "password": CANARY })));
    let agent = ground.join(&[], |_| ());

    let mut pod = pod(
        &ground,
        &namespace,
        name,
        "echo mode=$MODE host=$P_HOST api=${KUBERNETES_SERVICE_PORT}; \
         [ $PASSWORD = $(cat /key/password) ] && echo same; stat -L -c 'key %a %u' /key/password; \
         stat -L -c 'token %a %u' /var/run/secrets/kubernetes.io/serviceaccount/token; \
         grep -q BEGIN /var/run/secrets/kubernetes.io/serviceaccount/ca.crt && echo ca",
    );
    let container = &mut pod["spec"]["containers"][0];
    container["env"] = json!([
        { "name": "MODE", "valueFrom": { "configMapKeyRef": { "name": "settings", "key": "mode" } } },
        { "name": "PASSWORD", "valueFrom": { "secretKeyRef": { "name": "key", "key": "password" } } },
        { "name": "NONE", "valueFrom": { "secretKeyRef": { "name": "none", "key": "x", "optional": true } } },
    ]);
    container["envFrom"] = json!([{ "prefix": "P_", "configMapRef": { "name": "settings" } }]);
    container["volumeMounts"] = json!([
        { "name": "settings", "mountPath": "/settings" }, { "name": "key", "mountPath": "/key" },
        { "name": "info", "mountPath": "/info" }, { "name": "none", "mountPath": "/none" },
    ]);
    pod["spec"]["securityContext"] = json!({ "runAsUser": 1000, "fsGroup": 2000 });
    pod["spec"]["volumes"] = json!([
        { "name": "settings", "configMap": { "name": "settings" } },
        { "name": "key", "secret": { "secretName": "key", "defaultMode": 0o400 } },
        { "name": "info", "projected": { "sources": [{ "downwardAPI":
            { "items": [{ "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } }] } }] } },
        { "name": "none", "configMap": { "name": "none", "optional": true } },
    ]);
    cluster.apply(&pod);
    let expect = ["mode=slow host=here api=443", "same", "key 440 0", "token 640 1000", "ca"];
    wait_log(&agent, name, &expect);

    // The token is the pod's own.
    let uid = uid(cluster, &namespace, name);
    let volumes = agent.root_dir().join("pods").join(&uid).join("volumes");
    let spec = cluster.get(&["-n", &namespace, "pod", name]).expect("the pod");
    let access = spec["spec"]["volumes"]
        .as_array()
        .into_iter()
        .flatten()
        .find_map(|volume| volume["name"].as_str().filter(|name| name.starts_with("kube-api-access-")));
    let folder = volumes.join("kubernetes.io~projected").join(access.expect("the volume that every pod gets"));
    let token = read_inside(&ground.node, &folder.join("token"));
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token } });
    let review = cluster.kubectl_with(&["create", "-o", "json", "-f", "-"], &review.to_string()).expect("a review");
    let review: Value = serde_json::from_str(&review).expect("JSON");
    assert_eq!(review["status"]["authenticated"], true, "{:?}", review["status"]["error"]);
    assert_eq!(review["status"]["user"]["extra"]["authentication.kubernetes.io/pod-uid"][0], uid.as_str());

    // Changes arrive in the files.
    cluster.apply(&object("ConfigMap", "settings", json!({ "mode": "fast", "new": "x" })));
    wait_prints(&agent, name, &["cat", "/settings/mode", "/settings/new"], "fastx");
    cluster.kubectl(&["-n", &namespace, "label", "--overwrite", "pod", name, "colour=blue"]).expect("a label");
    wait_prints(&agent, name, &["cat", "/info/labels"], "colour=\"blue\"");
    cluster.apply(&object("ConfigMap", "none", json!({ "now": "there" })));
    wait_prints(&agent, name, &["cat", "/none/now"], "there");

    // An agent that starts anew takes its volumes up, and they go on to follow.
    agent.kill();
    let agent = ground.join(&[], |_| ());
    cluster.apply(&object("ConfigMap", "settings", json!({ "mode": "again" })));
    wait_prints(&agent, name, &["cat", "/settings/mode"], "again");
    assert!(agent.tool(&["logs", name]).expect("a log").lines().filter(|line| *line == "same").count() == 1);

    // Nothing of the Secret is anywhere but in the container.
    let tools = [&["ps"][..], &["describe", name], &["describe", name, "-o", "json"], &["why", name], &["config"]];
    let mut told: Vec<(String, String)> = vec![("log".to_owned(), agent.log())];
    told.extend(tools.iter().map(|words| (words.join(" "), agent.tool(words).unwrap_or_else(|said| said))));
    let events = cluster.kubectl(&["-n", &namespace, "get", "events,pods", "-o", "json"]).expect("events and pods");
    told.push(("events and pods".to_owned(), events));
    let numbers = format!("{:?}", CANARY.as_bytes()).trim_matches(['[', ']']).to_owned();
    for (what, text) in told {
        assert!(!text.contains(CANARY) && !text.contains(&numbers), "{what} tells a secret: {text}");
        assert!(!text.contains(&token), "{what} tells a token");
    }

    cluster.kubectl(&["-n", &namespace, "delete", "pod", name, "--force", "--grace-period=0"]).expect("deleted");
    wait::until("the pod's folder to be gone", SOON, || {
        let left = fs::read_dir(agent.root_dir().join("pods")).map_or(0, Iterator::count);
        if left == 0 { Ok(()) } else { Err(format!("{left} are there")) }
    });
}

#[test]
fn a_pod_waits_for_what_is_missing_and_says_so() {
    let cluster = Cluster::shared();
    let ground = Ground::new(cluster);
    ground.node.import("busybox");
    let namespace = format!("volumes-{}", ground.name);
    cluster.namespace(&namespace);
    let agent = ground.join(&[], |_| ());
    let mut late = pod(&ground, &namespace, "late", "echo started");
    late["spec"]["volumes"] = json!([{ "name": "v", "configMap": { "name": "late" } }]);
    late["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "v", "mountPath": "/v" }]);
    let mut claim = pod(&ground, &namespace, "claim", "echo started");
    claim["spec"]["volumes"] = json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "none" } }]);
    claim["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "v", "mountPath": "/v" }]);
    let mut env = pod(&ground, &namespace, "env", "echo started with $V");
    env["spec"]["containers"][0]["env"] =
        json!([{ "name": "V", "valueFrom": { "secretKeyRef": { "name": "late", "key": "v" } } }]);
    for pod in [&late, &claim, &env] {
        cluster.apply(pod);
    }
    let wait_told = |name: &str, word: &str| {
        wait::until(&format!("{word:?} about {name}"), SOON, || {
            let told = agent.tool(&["describe", name])?;
            if told.contains(word) { Ok(()) } else { Err(told) }
        });
    };
    wait_told("late", "MountVolume.SetUp failed for volume \"v\" : configmap \"late\" not found");
    wait_told("claim", "volume \"v\" of kind persistentVolumeClaim is not supported");
    wait_told("env", "secret \"late\" not found");
    for kind in ["ConfigMap", "Secret"] {
        let metadata = json!({ "namespace": namespace, "name": "late" });
        let key = if kind == "Secret" { "stringData" } else { "data" };
        cluster.apply(&json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata, key: { "v": "it" } }));
    }
    wait_log(&agent, "late", &["started"]);
    wait_log(&agent, "env", &["started with it"]);
    assert!(agent.tool(&["logs", "claim"]).is_err(), "it has no container");
    cluster.kubectl(&["-n", &namespace, "delete", "pod", "--all", "--force", "--grace-period=0"]).expect("deleted");
}

#[test]
fn without_watches_new_pods_see_what_is_new_and_mounted_files_follow_in_a_while() {
    let cluster = Cluster::shared();
    let strategies = ["Cache", "Get"];
    let grounds = strategies.map(|_| Ground::new(cluster));
    let agents: Vec<_> = grounds
        .iter()
        .zip(strategies)
        .map(|(ground, strategy)| {
            ground.node.import("busybox");
            let set = |config: &mut Value| config["configMapAndSecretChangeDetectionStrategy"] = strategy.into();
            ground.join(&[], set)
        })
        .collect();
    let namespaces: Vec<String> = grounds.iter().map(|ground| format!("volumes-{}", ground.name)).collect();
    namespaces.iter().for_each(|namespace| cluster.namespace(namespace));
    let settings = |value: &str| {
        for namespace in &namespaces {
            let metadata = json!({ "namespace": namespace, "name": "settings" });
            cluster.apply(
                &json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { "v": value } }),
            );
        }
    };
    let run = |name: &str| {
        for (ground, namespace) in grounds.iter().zip(&namespaces) {
            let mut pod = pod(ground, namespace, name, "echo v=$V");
            let container = &mut pod["spec"]["containers"][0];
            container["env"] =
                json!([{ "name": "V", "valueFrom": { "configMapKeyRef": { "name": "settings", "key": "v" } } }]);
            container["volumeMounts"] = json!([{ "name": "settings", "mountPath": "/settings" }]);
            pod["spec"]["volumes"] = json!([{ "name": "settings", "configMap": { "name": "settings" } }]);
            cluster.apply(&pod);
        }
    };
    settings("old");
    run("early");
    agents.iter().for_each(|agent| drop(wait_log(agent, "early", &["v=old"])));
    settings("new");
    run("late");
    agents.iter().for_each(|agent| drop(wait_log(agent, "late", &["v=new"])));
    // Asked for once a minute.
    for agent in &agents {
        wait::until("the mounted file to follow", 2 * SOON, || {
            let got = agent.tool(&["exec", "early", "--", "cat", "/settings/v"])?;
            if got.trim() == "new" { Ok(()) } else { Err(got) }
        });
    }
    for namespace in &namespaces {
        cluster.kubectl(&["-n", namespace, "delete", "pod", "--all", "--force", "--grace-period=0"]).expect("deleted");
    }
}

#[test]
fn many_objects_share_a_few_connections() {
    const PODS: usize = 4;
    /// What three connections of a hundred streams each can take, nearly.
    const EACH: usize = 72;
    let cluster = Cluster::shared();
    let ground = Ground::new(cluster);
    ground.node.import("busybox");
    let namespace = format!("volumes-{}", ground.name);
    cluster.namespace(&namespace);
    let agent = ground.join(&[], |_| ());
    let object = |n: usize, value: &str| {
        let metadata = json!({ "namespace": namespace, "name": format!("c{n}") });
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { "v": value } })
    };
    let all = (0..PODS * EACH).map(|n| object(n, "old")).collect::<Vec<_>>();
    let all = json!({ "apiVersion": "v1", "kind": "List", "items": all });
    cluster.kubectl_with(&["create", "-f", "-"], &all.to_string()).expect("ConfigMaps");
    let names: Vec<String> = (0..PODS).map(|n| format!("many{n}")).collect();
    for (index, name) in names.iter().enumerate() {
        let mut pod = pod(&ground, &namespace, name, "echo started");
        let (mut volumes, mut mounts) = (Vec::new(), Vec::new());
        for n in index * EACH..(index + 1) * EACH {
            volumes.push(json!({ "name": format!("v{n}"), "configMap": { "name": format!("c{n}") } }));
            mounts.push(json!({ "name": format!("v{n}"), "mountPath": format!("/v/{n}") }));
        }
        pod["spec"]["volumes"] = volumes.into();
        pod["spec"]["containers"][0]["volumeMounts"] = mounts.into();
        cluster.apply(&pod);
    }
    names.iter().for_each(|name| drop(wait_log(&agent, name, &["started"])));
    for (index, name) in names.iter().enumerate() {
        let n = (index + 1) * EACH - 1;
        cluster.apply(&object(n, "new"));
        wait_prints(&agent, name, &["cat", &format!("/v/{n}/v")], "new");
    }
    let server = fs::read_to_string(&ground.kubeconfig).expect("the kubeconfig");
    let port: u16 = server
        .split("server:")
        .nth(1)
        .and_then(|rest| rest.split(['"', '\n', ',']).find_map(|part| part.rsplit_once(':')?.1.trim().parse().ok()))
        .expect("the API server's port");
    // Three for the objects, and those that every node has.
    wait::until("few connections", Duration::from_secs(10), || {
        let open = connections(agent.pid(), port);
        if (5..=10).contains(&open) { Ok(()) } else { Err(format!("{open} connections")) }
    });
    cluster.kubectl(&["-n", &namespace, "delete", "pod", "--all", "--force", "--grace-period=0"]).expect("deleted");
}

/// How many sockets of a process are connected to a port of this machine.
fn connections(pid: u32, port: u16) -> usize {
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).expect("the table of connections");
    let inodes: Vec<String> = table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let remote = fields.get(2)?.rsplit_once(':')?.1;
            (u16::from_str_radix(remote, 16) == Ok(port) && fields.get(3) == Some(&"01"))
                .then(|| format!("socket:[{}]", fields.get(9).unwrap_or(&"")))
        })
        .collect();
    let files = fs::read_dir(format!("/proc/{pid}/fd")).expect("the process' files");
    let targets = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
    targets.filter(|target| inodes.iter().any(|inode| target.as_os_str() == inode.as_str())).count()
}

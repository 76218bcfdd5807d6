//! What the node's server answers, beside the upstream kubelet's answers to the same requests on the same node: statuses, types,
//! texts, fields, names of metrics.
//!
//! Used from the thread of one test. Both run one after the other on the same port, with the same certificates, and take the same pod over.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use serde_json::{Map, Value, json};

use super::callers::{admin, ask};
use super::endings::{RUNS, is_ready, pod, shell};
use super::lab::{Ground, SOON};
use super::upstream::{Kubelet, differences};
use crate::agent::node_server::client::Client;
use crate::fakes::api_tls::Pair;
use crate::harness::{Cluster, Containerd, config::free_port, wait};

/// What an administrator asks. `POD` is the test's pod.
const ASKED: &[&str] = &[
    "GET /",
    "GET /nope",
    "DELETE /nope",
    "GET //pods",
    "GET /PODS",
    "GET /spec/",
    "GET /cri/exec/x",
    "GET /healthz",
    "GET /healthz?verbose",
    "GET /healthz/",
    "GET /healthz/ping",
    "GET /healthz/log",
    "GET /healthz/syncloop",
    "GET /healthz/nope",
    "PUT /healthz",
    "HEAD /healthz",
    "GET /configz",
    "GET /configz/",
    "POST /configz",
    "GET /flagz",
    "POST /flagz",
    "GET /statusz",
    "GET /statusz/",
    "POST /statusz",
    "GET /pods",
    "GET /pods/",
    "GET /pods?x",
    "GET /pods/x",
    "POST /pods",
    "DELETE /pods",
    "HEAD /pods",
    "GET /runningpods",
    "GET /runningpods/",
    "POST /runningpods/",
    "GET /stats",
    "GET /stats/",
    "GET /stats/container",
    "GET /stats/summary",
    "GET /stats/summary/",
    "POST /stats/summary",
    "DELETE /stats/summary",
    "GET /stats/summary?only_cpu_and_memory=true",
    "GET /metrics",
    "POST /metrics",
    "GET /metrics/",
    "GET /metrics/nope",
    "GET /metrics/cadvisor",
    "GET /metrics/cadvisor/x",
    "GET /metrics/resource",
    "GET /metrics/probes",
    "GET /metrics/slis",
    "GET /logs",
    "GET /logs/",
    "GET /logs/nope",
    "GET /logs/../etc",
    "GET /logs/?query=kubelet",
    "POST /logs/",
    "GET /debug",
    "GET /debug/flags/v",
    "PUT /debug/flags/v",
    "GET /debug/pprof",
    "GET /debug/pprof/",
    "GET /debug/pprof/nope",
    "PUT /debug/pprof/",
    "GET /containerLogs",
    "GET /containerLogs/a/b",
    "GET /containerLogs/default/nope/c",
    "POST /containerLogs/default/nope/c",
    "GET /containerLogs/POD/nope",
    "GET /containerLogs/POD/a",
    "GET /containerLogs/POD/a?tailLines=x",
    "GET /containerLogs/POD/a?tailLines=-1",
    "GET /containerLogs/POD/a?sinceSeconds=0",
    "GET /containerLogs/POD/a?sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
    "GET /containerLogs/POD/a?limitBytes=0",
    "GET /containerLogs/POD/a?stream=Both",
    "GET /containerLogs/POD/a?previous=true",
    "GET /containerLogs/POD/a?tailLines=1",
    "GET /containerLogs/POD/first",
    "GET /exec",
    "GET /exec/a/b",
    "GET /exec/default/nope/c",
    "GET /exec/default/nope/c?output=1",
    "POST /exec/default/nope/c?output=1",
    "PATCH /exec/default/nope/c",
    "POST /exec/POD/nope?output=1",
    "POST /exec/POD/a?output=1",
    "POST /exec/POD/a?output=1&command=true",
    "GET /attach/default/nope/c",
    "POST /attach/default/nope/c?output=1",
    "POST /attach/POD/nope?output=1",
    "POST /attach/POD/a",
    "GET /portForward/default",
    "GET /portForward/default/nope",
    "POST /portForward/default/nope",
    "POST /portForward/POD",
    "GET /run/a",
    "GET /run/default/nope/c",
    "POST /run/default/nope/c",
    "POST /run/POD/nope",
    "GET /checkpoint/default/nope/c",
    "POST /checkpoint/default/nope/c",
];

/// Where the two may differ, and why.
const ACCEPTED: &[(&str, &str)] = &[
    ("GET //pods", "a path that is not clean is nobody's here, and a redirect there"),
    ("GET /logs/../etc", "likewise"),
    ("GET /healthz/", "a slash at the end makes no difference here"),
    ("GET /configz/", "likewise"),
    ("GET /statusz/", "likewise"),
    ("GET /metrics/", "likewise"),
    ("GET /runningpods", "likewise, where upstream redirects"),
    ("GET /stats", "likewise"),
    ("GET /logs", "likewise"),
    ("GET /debug/pprof", "it tells what there is instead of Go's profiles"),
    ("GET /debug/pprof/", "likewise"),
    ("PUT /debug/pprof/", "likewise"),
    ("GET /debug/pprof/nope.body", "the text names what is not known"),
    ("PUT /debug/flags/v.body", "the text says what a verbosity is"),
    ("GET /healthz?verbose.body", "there is no device manager here, and PLEG is a check of its own there as well"),
    (
        "GET /flagz.body",
        "each tells its own flags; upstream tells values of the configuration that its flags do not have",
    ),
    ("POST /flagz.body", "likewise"),
    ("GET /statusz.body", "the time, and each its own version and paths"),
    ("POST /statusz.body", "likewise"),
    ("GET /configz.body.kubeletconfig.address", "each has its own in these tests"),
    ("GET /configz.body.kubeletconfig.healthzPort", "likewise"),
    ("GET /configz.body.kubeletconfig.logging.verbosity", "likewise"),
    ("GET /configz.body.kubeletconfig.makeIPTablesUtilChains", "likewise"),
    ("GET /configz.body.kubeletconfig.staticPodPath", "likewise"),
    ("POST /configz.body.kubeletconfig.address", "each has its own in these tests"),
    ("POST /configz.body.kubeletconfig.healthzPort", "likewise"),
    ("POST /configz.body.kubeletconfig.logging.verbosity", "likewise"),
    ("POST /configz.body.kubeletconfig.makeIPTablesUtilChains", "likewise"),
    ("POST /configz.body.kubeletconfig.staticPodPath", "likewise"),
    ("GET /containerLogs/POD/a.type", "upstream names no type"),
    ("GET /containerLogs/POD/a?previous=true.type", "upstream names no type"),
    ("GET /containerLogs/POD/a?tailLines=1.type", "upstream names no type"),
    ("GET /containerLogs/POD/first.type", "upstream names no type"),
    ("nobody: GET /nope", "who is not let in is told so for every path, known or not"),
    ("a wrong token: GET /pods.body", "the text says why"),
    ("GET /pods.body.items.0.metadata.managedFields", "what nobody on a node reads is not kept"),
    ("GET /pods.body.items.0.metadata.resourceVersion", "the status changed meanwhile"),
    ("GET /pods.body.items.0.metadata.annotations.kubernetes.io/config.seen", "the time"),
    ("GET /pods.body.items.0.status.conditions.*.lastTransitionTime", "upstream was not ready in between"),
    (
        "GET /pods.body.items.0.status.conditions.*.status",
        "upstream forgets that a container was ready until it has looked again",
    ),
    (
        "GET /pods.body.items.0.status.conditions.*.reason",
        "upstream forgets that a container was ready until it has looked again",
    ),
    (
        "GET /pods.body.items.0.status.conditions.*.message",
        "upstream forgets that a container was ready until it has looked again",
    ),
    ("GET /pods.body.items.0.status.containerStatuses.0.ready", "likewise"),
    ("GET /pods.body.items.0.status.resources.limits.memory", "upstream reads no limit of cgroup v1 back as 8 EiB"),
    ("GET /runningpods/.body.items.0.spec.containers.0.image", "the image's name, where upstream has its id"),
];

/// Fields of /stats/summary that may be on one side only, by a word in their path, and why.
const SUMMARY_ACCEPTED: &[(&str, &str)] = &[
    (".psi.", "without pressure files (cgroup v1) there is nothing to tell; upstream tells zeros"),
    (".network", "upstream's cAdvisor does not see the networks of every sandbox"),
    (".rootfs.time", "the runtime has no figure of it yet"),
    (".process_stats", "upstream counts processes with some of its sources only"),
    (
        ".node.systemContainers.pods.memory.availableBytes",
        "whether the cgroup of all pods has its limit when it is read",
    ),
    ("(least).pods.web.containers.a.memory.availableBytes", "who asks for little is told no limits"),
];

/// Answers to all of it, each under its request.
struct Answers {
    told: Map<String, Value>,
    pages: BTreeMap<String, String>,
}

impl Answers {
    fn gather(port: u16, pod: &str, admin: &Pair, node: &Pair) -> Answers {
        let mut answers = Answers { told: Map::new(), pages: BTreeMap::new() };
        for line in ASKED {
            answers.add(line, ask(port, &line.replace("POD", pod), Some(admin), ""));
        }
        for (who, line, shows, token) in [
            ("nobody", "GET /pods", None, ""),
            ("nobody", "GET /healthz", None, ""),
            ("nobody", "GET /nope", None, ""),
            ("nobody", "POST /exec/a/b/c", None, ""),
            ("a wrong token", "GET /pods", None, "nonsense"),
            ("the node", "GET /pods", Some(node), ""),
            ("the node", "GET /healthz", Some(node), ""),
            ("the node", "GET /metrics/cadvisor", Some(node), ""),
            ("the node", "GET /stats/summary", Some(node), ""),
            ("the node", "GET /logs/", Some(node), ""),
            ("the node", "GET /configz", Some(node), ""),
            ("the node", "POST /run/a/b/c", Some(node), ""),
            ("the node", "PUT /debug/flags/v", Some(node), ""),
            ("the node", "PATCH /checkpoint/a/b/c", Some(node), ""),
        ] {
            answers.add(&format!("{who}: {line}"), ask(port, line, shows, token));
        }
        answers
    }

    fn add(&mut self, line: &str, answer: crate::agent::node_server::client::Answer) {
        let mut types = answer.head.lines().filter_map(|line| line.split_once(": "));
        let type_ = types.find(|(name, _)| name.eq_ignore_ascii_case("content-type")).map_or("", |(_, value)| value);
        let is_page = line.contains("/metrics") && answer.status == 200;
        let has_list = answer.status == 200 && line.contains(" /logs/");
        let is_same = matches!(line, "GET /pods/" | "GET /pods?x");
        let body = if is_same || is_page || line.contains("/stats/summary") || has_list {
            // Compared apart, or what is on the machine just now.
            Value::Null
        } else {
            serde_json::from_str(&answer.body).unwrap_or_else(|_| json!(answer.body))
        };
        let type_ = type_.replace("; escaping=underscores", "");
        self.told.insert(line.to_owned(), json!({ "status": answer.status, "type": type_, "body": body }));
        self.pages.insert(line.to_owned(), answer.body);
    }

    fn page(&self, line: &str) -> &str {
        self.pages.get(line).map_or("", String::as_str)
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(self.page(line)).unwrap_or_else(|error| panic!("{line}: {error}"))
    }
}

/// The paths of all fields, with the items of lists by their names.
fn fields(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| fields(value, &format!("{path}.{key}"), found)),
        Value::Array(items) => {
            for item in items {
                let name = item["name"].as_str().or(item["podRef"]["name"].as_str()).unwrap_or("*");
                fields(item, &format!("{path}.{name}"), found);
            }
        }
        Value::Null => {}
        _ => drop(found.insert(path.to_owned())),
    }
}

fn fields_that_differ(label: &str, ours: &Value, theirs: &Value) -> Vec<String> {
    let [ours, theirs] = [ours, theirs].map(|value| {
        let mut found = BTreeSet::new();
        fields(value, label, &mut found);
        found
    });
    assert!(ours.len() > 30, "{label}: only {ours:?}");
    let differ = ours.symmetric_difference(&theirs);
    let differ = differ.filter(|path| !SUMMARY_ACCEPTED.iter().any(|(part, _)| path.contains(part)));
    differ
        .map(|path| format!("{path} is only {}", if ours.contains(path) { "ferrolet's" } else { "upstream's" }))
        .collect()
}

/// Type and labels of each metric of a page that has series.
fn metrics(page: &str) -> BTreeMap<&str, (&str, BTreeSet<&str>)> {
    let mut types = BTreeMap::new();
    let mut found: BTreeMap<&str, (&str, BTreeSet<&str>)> = BTreeMap::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            types.extend(rest.split_once(' '));
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap_or(line.len()));
        let of_family = ["_bucket", "_sum", "_count"].into_iter().filter_map(|end| name.strip_suffix(end));
        let name = of_family.into_iter().find(|family| types.contains_key(family)).unwrap_or(name);
        let entry = found.entry(name).or_insert_with(|| (types.get(name).copied().unwrap_or("none"), BTreeSet::new()));
        // A value may hold anything, quotes by a backslash: every other part is a value.
        let labels = rest.strip_prefix('{').map_or("", |rest| rest.rsplit_once('}').map_or("", |(labels, _)| labels));
        let labels = labels.split("\",").filter_map(|part| part.split_once("=\"")).map(|(label, _)| label);
        entry.1.extend(labels.filter(|label| !matches!(*label, "le" | "quantile")));
    }
    found
}

/// What differs in the metrics that both have. (What ferrolet leaves out is told and excused beside its metrics.)
fn metrics_that_differ(line: &str, ours: &str, theirs: &str, at_least: usize) -> Vec<String> {
    let (ours, theirs) = (metrics(ours), metrics(theirs));
    let both: Vec<_> = ours.iter().filter_map(|(name, ours)| Some((name, ours, theirs.get(name)?))).collect();
    assert!(both.len() >= at_least, "{line}: only {} metrics are in both", both.len());
    let differ = both.into_iter().filter(|(_, ours, theirs)| ours != theirs);
    differ.map(|(name, ours, theirs)| format!("{line} {name}: ferrolet {ours:?}, upstream {theirs:?}")).collect()
}

#[test]
fn requests_are_answered_as_upstream_answers_them() {
    let cluster = Cluster::shared();
    let ground = Ground::serving(cluster, Containerd::Two);
    let port = free_port();
    let read = |name: &str| fs::read_to_string(cluster.path("pki").join(name)).expect("the control plane's files");
    let node = Pair { certificate: read(&format!("{}.crt", ground.name)), key: read(&format!("{}.key", ground.name)) };
    let admin = admin(cluster);
    let mut web = pod(&ground.name, "web", &ground.name, &[shell("a", &format!("echo one; echo two; {RUNS}"))]);
    web["spec"]["initContainers"] = json!([shell("first", "echo first")]);
    web["spec"]["volumes"] = json!([{ "name": "work", "emptyDir": {} }]);
    web["spec"]["containers"][0]["resources"] = json!({ "limits": { "cpu": "500m", "memory": "64Mi" } });
    web["spec"]["containers"][0]["readinessProbe"] = json!({ "exec": { "command": ["true"] }, "timeoutSeconds": 20 });
    let full_name = format!("{}/web", ground.name);
    let gather = || {
        wait::until("the server", SOON, || Client::connect(port).map(drop));
        wait::until("the pod and its figures", 3 * SOON, || {
            // Upstream forgets that a container was ready until it has looked again.
            let told: Value = serde_json::from_str(&ask(port, "GET /pods", Some(&admin), "").body)
                .map_err(|error| error.to_string())?;
            let pod = &told["items"][0];
            let summary: Value = serde_json::from_str(&ask(port, "GET /stats/summary", Some(&admin), "").body)
                .map_err(|error| error.to_string())?;
            let cpu = &summary["pods"][0]["containers"][0]["cpu"];
            let has_disks = summary["pods"][0]["ephemeral-storage"]["usedBytes"].is_number();
            // Who has just begun has the runtime's figures before the pods of the API server.
            let log = ask(port, &format!("GET /containerLogs/{full_name}/a"), Some(&admin), "");
            let is_whole = log.status == 200 && is_ready(pod) && cpu["usageNanoCores"].is_number() && has_disks;
            if is_whole { Ok(()) } else { Err(format!("{log:?} {summary:#} {:#}", pod["status"])) }
        });
        Answers::gather(port, &full_name, &admin, &node)
    };
    let ours = {
        let agent = ground.serve(|config| config["port"] = port.into());
        cluster.apply(&web);
        let answers = gather();
        agent.kill();
        answers
    };
    let theirs = {
        let _kubelet = Kubelet::start(&ground, port, |config| {
            config["podLogsDir"] = json!(ground.node.path("pod-logs"));
        });
        gather()
    };
    cluster.kubectl(&["delete", "-n", &ground.name, "pod", "web", "--grace-period=0", "--force"]).expect("deleted");
    let mut found = differences(&Value::Object(ours.told.clone()), &Value::Object(theirs.told.clone()), ACCEPTED);
    for (line, label) in [("GET /stats/summary", "(all)"), ("GET /stats/summary?only_cpu_and_memory=true", "(least)")] {
        found.extend(fields_that_differ(label, &ours.json(line), &theirs.json(line)));
    }
    for (line, at_least) in [
        ("GET /metrics", 40),
        ("GET /metrics/cadvisor", 50),
        ("GET /metrics/resource", 10),
        ("GET /metrics/probes", 1),
        ("GET /metrics/slis", 3),
    ] {
        found.extend(metrics_that_differ(line, ours.page(line), theirs.page(line), at_least));
    }
    assert!(found.is_empty(), "not accepted:\n  {}", found.join("\n  "));
}

#[test]
fn fields_and_metrics_that_differ_are_found() {
    let page =
        "# TYPE a counter\na{x=\"1\",y=\"}\"} 1\n# TYPE b histogram\nb_bucket{le=\"1\"} 0\nb_sum 0\nb_count 0\nc 1\n";
    let expect = [
        ("a", ("counter", BTreeSet::from(["x", "y"]))),
        ("b", ("histogram", BTreeSet::new())),
        ("c", ("none", BTreeSet::new())),
    ];
    assert_eq!(metrics(page), BTreeMap::from(expect));
    assert_eq!(metrics_that_differ("p", page, page, 3), [""; 0]);
    assert_eq!(metrics_that_differ("p", page, &page.replace("a counter", "a gauge"), 3).len(), 1);
    let mut found = BTreeSet::new();
    fields(&json!({ "a": [{ "name": "n", "x": 1 }, { "podRef": { "name": "p" } }], "b": null }), "", &mut found);
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [".a.n.name", ".a.n.x", ".a.p.podRef.name"]);
}

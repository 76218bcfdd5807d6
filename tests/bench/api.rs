//! What a node costs and how quick it is in a real cluster: ferrolet and the upstream kubelet, one after the other, on the
//! same control plane.
//!
//! Used from the main thread of the benchmark; owns the control plane and, one at a time, a node with a kubelet on it. What
//! is seen is seen through a watch of the API server, as any client sees it. Requests are those of the server's audit
//! log, bytes those of a relay before the server.

use std::{
    collections::BTreeMap,
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant, SystemTime},
};

use ferrolet::api::meta::DeleteOptions;
use ferrolet::config::yaml::{Limits, yaml_to_json};
use ferrolet::kube::{ApiClient, ListEvent, RateLimit, kubeconfig, paths};
use ferrolet::util::cancel::Cancel;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::cluster::{Cluster, condition};
use crate::node::{Containerd, Node};
use crate::options::Options;
use crate::proc::{Process, load};
use crate::relay::Relay;
use crate::upstream::Upstream;
use crate::{middle, wait};

/// How long anything may take that is waited for here.
const PATIENCE: Duration = Duration::from_secs(300);
/// Work that a start or an end of pods leaves behind is done after that.
const SETTLE: Duration = Duration::from_secs(15);
/// A container that ends only when it is killed.
const STUBBORN: &str = "trap '' TERM; while true; do sleep 1; done";
/// A container that takes a second to end.
const TIDYING: &str = "trap 'sleep 1; exit 0' TERM; sleep 36000 & wait";

/// Who is measured.
#[derive(Clone, Copy)]
enum Who<'a> {
    Ferrolet(&'a str, &'a Path),
    Upstream,
}

/// A kubelet that runs.
enum Running<'node> {
    Ferrolet(Agent<'node>),
    Upstream(Upstream),
}

impl Running<'_> {
    fn process(&self) -> Process {
        match self {
            Running::Ferrolet(agent) => agent.process(),
            Running::Upstream(kubelet) => kubelet.process(),
        }
    }
}

/// What was measured of one.
#[derive(Default)]
struct Row {
    name: String,
    /// Milliseconds from the start of the process to a node that is Ready.
    ready: Vec<f64>,
    /// Pods, seconds until all run, CPU seconds of the kubelet for that.
    starts: Vec<(usize, Vec<f64>, Vec<f64>)>,
    /// Seconds from DELETE with a grace period of 1 s to the pod's end: of one whose container takes that second, and of one
    /// whose container has to be killed, to which every kubelet gives two seconds.
    ends: [Vec<f64>; 2],
    /// In the idle window, as a minute: requests by verb and resource, bytes from and to the node, CPU seconds.
    requests: BTreeMap<String, f64>,
    bytes: (f64, f64),
    cpu: f64,
    /// Connections while idle, and the most that there were.
    connections: (u64, u64),
    load: String,
}

/// Runs the part of the benchmark that has an API server.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let (policy, audit) = (folder.path().join("policy.yaml"), folder.path().join("audit.log"));
    let rules = json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
        "rules": [{ "level": "Metadata", "userGroups": ["system:nodes"] }, { "level": "None" }],
    });
    fs::write(&policy, rules.to_string()).map_err(|error| error.to_string())?;
    let flags = format!("--audit-policy-file={} --audit-log-path={}", policy.display(), audit.display());
    let cluster = Cluster::start(&[("EXTRA_API", flags.as_str())]);
    let ferrolets = options.programs.iter().map(|program| Who::Ferrolet(program.name, &program.path));
    let mut rows = Vec::new();
    for (index, who) in ferrolets.chain([Who::Upstream]).enumerate() {
        let node = Node::start(Containerd::Two);
        let lab = Lab::new(&cluster, &node, who, index)?;
        rows.push(lab.measure(options, &audit)?);
        if let (Some(away), Who::Ferrolet(..)) = (options.away, who) {
            lab.away(away)?;
        }
        if let (Some(count), Who::Ferrolet(..)) = (options.crowd, who) {
            lab.crowd(count, options.window, &audit)?;
        }
    }
    print(&rows);
    Ok(())
}

fn print(rows: &[Row]) {
    let ends = "DELETE to gone, 1 s grace: ends by itself, is killed";
    println!("\n| program | start to Ready | pods: POST to all Running (CPU) | {ends} | load |");
    println!("|---|---|---|---|---|");
    for row in rows {
        let starts = row
            .starts
            .iter()
            .map(|(count, times, cpu)| format!("{count}: {:.2} s ({:.2} s)", middle(times), middle(cpu)));
        let starts: Vec<String> = starts.collect();
        let (name, load) = (&row.name, &row.load);
        let (ready, ends) = (middle(&row.ready), row.ends.each_ref().map(|times| middle(times)));
        println!("| {name} | {ready:.0} ms | {} | {:.2} s, {:.2} s | {load} |", starts.join(", "), ends[0], ends[1]);
    }
    println!("\n| program | idle: requests/min | bytes/min from, to the node | CPU s/min | connections (most) |");
    println!("|---|---|---|---|---|");
    for row in rows {
        let requests: Vec<String> = row.requests.iter().map(|(what, count)| format!("{what} {count:.1}")).collect();
        let ((from, to), (open, most)) = (row.bytes, row.connections);
        let (name, cpu) = (&row.name, row.cpu);
        println!("| {name} | {} | {from:.0}, {to:.0} | {cpu:.3} | {open} ({most}) |", requests.join(", "));
    }
}

/// One kubelet's node in the cluster.
struct Lab<'a> {
    cluster: &'a Cluster,
    node: &'a Node,
    who: Who<'a>,
    /// Of the node and of the namespace.
    name: String,
    kubeconfig: PathBuf,
    relay: Relay,
    admin: ApiClient,
}

impl<'a> Lab<'a> {
    fn new(cluster: &'a Cluster, node: &'a Node, who: Who<'a>, index: usize) -> Result<Self, String> {
        let name = match who {
            Who::Ferrolet(name, _) => format!("bench-{index}-{name}"),
            Who::Upstream => format!("bench-{index}-upstream"),
        };
        let text = fs::read_to_string(cluster.kubeconfig(&name)).map_err(|error| error.to_string())?;
        let port = text.split("https://127.0.0.1:").nth(1).and_then(|rest| rest.split('"').next());
        let port = port.and_then(|port| port.parse().ok()).ok_or("the kubeconfig names no port")?;
        let relay = Relay::start(port)?;
        let kubeconfig = node.path("relayed.kubeconfig");
        let relayed = text.replace(&format!("127.0.0.1:{port}"), &format!("127.0.0.1:{}", relay.port));
        fs::write(&kubeconfig, relayed).map_err(|error| error.to_string())?;
        cluster.namespace(&name);
        let admin = client(&cluster.path("admin.kubeconfig"))?;
        Ok(Lab { cluster, node, who, name, kubeconfig, relay, admin })
    }

    fn start(&self) -> Result<Running<'a>, String> {
        match self.who {
            Who::Ferrolet(_, path) => {
                let flag = format!("--kubeconfig={}", self.kubeconfig.display());
                Ok(Running::Ferrolet(Agent::join(self.node, path, &self.name, &[flag])))
            }
            Who::Upstream => {
                let kubelet = Upstream::start(self.node, self.cluster, &self.name, &self.kubeconfig)?;
                Ok(Running::Upstream(kubelet))
            }
        }
    }

    fn measure(&self, options: &Options, audit: &Path) -> Result<Row, String> {
        let mut row = Row { name: self.name.clone(), load: load(), ..Row::default() };
        let mut kubelet = None;
        for _ in 0..options.rounds {
            drop(kubelet.take());
            self.forget_node()?;
            let nodes = Watcher::start(&self.admin, paths::NODES, &format!("metadata.name={}", self.name));
            let begin = Instant::now();
            kubelet = Some(self.start()?);
            let ready = nodes.until(|gone, node| !gone && is_true(node, "Ready"))?;
            row.ready.push((ready - begin).as_secs_f64() * 1e3);
        }
        let kubelet = kubelet.ok_or("no round was wanted")?;
        self.wait_taints()?;
        let pods = Watcher::start(&self.admin, &paths::core_list(&self.name, "pods"), "");
        // What is done only once is paid before the first round.
        self.run_pods(&pods, "warm", 1)?;
        self.end_pods(&pods, "warm", 1)?;
        for (place, count) in options.pods.iter().copied().enumerate() {
            let rounds = if count > 1 { 1 } else { options.rounds };
            let (mut times, mut cpu) = (Vec::new(), Vec::new());
            for round in 0..rounds {
                let prefix = format!("p{place}-{round}");
                let before = kubelet.process().cpu()?;
                times.push(self.run_pods(&pods, &prefix, count)?);
                cpu.push(kubelet.process().cpu()? - before);
                let is_last = place + 1 == options.pods.len() && round + 1 == rounds;
                if is_last {
                    self.idle(&kubelet, options.window, audit, &mut row)?;
                }
                self.end_pods(&pods, &prefix, count)?;
            }
            row.starts.push((count, times, cpu));
        }
        for (kind, script) in [TIDYING, STUBBORN].into_iter().enumerate() {
            for round in 0..options.rounds {
                let name = format!("end-{kind}-{round}");
                self.create(&name, Some(script))?;
                pods.until(|gone, pod| !gone && pod["metadata"]["name"] == name.as_str() && runs(pod))?;
                // Its shell has set its trap by then.
                std::thread::sleep(Duration::from_millis(300));
                let begin = Instant::now();
                self.delete(&name)?;
                let gone = pods.until(|gone, pod| gone && pod["metadata"]["name"] == name.as_str())?;
                row.ends[kind].push((gone - begin).as_secs_f64());
            }
        }
        Ok(row)
    }

    /// Takes the node's object away, so that the next start registers it.
    fn forget_node(&self) -> Result<(), String> {
        match self.admin.delete(&paths::node(&self.name), &DeleteOptions::default()) {
            Err(error) if !error.is_not_found() => Err(error.to_string()),
            _ => Ok(()),
        }
    }

    /// Waits until the controller manager has taken its taints off the new node, as no pod waits for them here.
    fn wait_taints(&self) -> Result<(), String> {
        let nodes = Watcher::start(&self.admin, paths::NODES, &format!("metadata.name={}", self.name));
        nodes.until(|gone, node| !gone && node["spec"]["taints"].as_array().is_none_or(Vec::is_empty)).map(drop)
    }

    fn create(&self, name: &str, script: Option<&str>) -> Result<(), String> {
        self.create_with(name, script, json!([]))
    }

    fn create_with(&self, name: &str, script: Option<&str>, volumes: Value) -> Result<(), String> {
        let container = match script {
            None => json!({ "image": "registry.k8s.io/pause:3.10" }),
            Some(script) => json!({ "image": "docker.io/library/busybox:latest", "command": ["sh", "-c", script] }),
        };
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": self.name, "labels": { "app": "bench" } },
            "spec": {
                // Bound already: the scheduler is not what is measured.
                "nodeName": self.name, "terminationGracePeriodSeconds": 1,
                "containers": [container],
                "tolerations": [{ "operator": "Exists" }],
            },
        });
        pod["spec"]["containers"][0]["name"] = "c".into();
        pod["spec"]["volumes"] = volumes;
        pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
        let path = paths::core_list(&self.name, "pods");
        self.admin.create::<_, Value>(&path, &pod).map(drop).map_err(|error| error.to_string())
    }

    fn delete(&self, name: &str) -> Result<(), String> {
        let options = DeleteOptions { grace_period_seconds: Some(1), ..DeleteOptions::default() };
        self.admin.delete(&paths::pod(&self.name, name), &options).map_err(|error| error.to_string())
    }

    /// Seconds from the first POST to the last pod that runs.
    fn run_pods(&self, pods: &Watcher, prefix: &str, count: usize) -> Result<f64, String> {
        let begin = Instant::now();
        for number in 0..count {
            self.create(&format!("{prefix}-{number}"), None)?;
        }
        let mut running = std::collections::BTreeSet::new();
        let all = pods.until(|gone, pod| {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            if !gone && name.starts_with(prefix) && runs(pod) {
                running.insert(name.to_owned());
            }
            running.len() == count
        })?;
        Ok((all - begin).as_secs_f64())
    }

    fn end_pods(&self, pods: &Watcher, prefix: &str, count: usize) -> Result<(), String> {
        for number in 0..count {
            self.delete(&format!("{prefix}-{number}"))?;
        }
        let mut ended = 0;
        let is_one = |pod: &Value| pod["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(prefix));
        pods.until(|gone, pod| {
            ended += usize::from(gone && is_one(pod));
            ended == count
        })
        .map(drop)
    }

    /// Watches the node do nothing.
    fn idle(&self, kubelet: &Running<'_>, window: Duration, audit: &Path, row: &mut Row) -> Result<(), String> {
        std::thread::sleep(SETTLE);
        let (begin, wall, cpu, bytes) =
            (Instant::now(), SystemTime::now(), kubelet.process().cpu()?, self.relay.bytes());
        std::thread::sleep(window);
        let minutes = begin.elapsed().as_secs_f64() / 60.0;
        let (after, until) = (self.relay.bytes(), SystemTime::now());
        row.bytes = ((after.0 - bytes.0) as f64 / minutes, (after.1 - bytes.1) as f64 / minutes);
        row.cpu = (kubelet.process().cpu()? - cpu) / minutes;
        row.connections = self.relay.connections();
        for (what, count) in requests(audit, &self.name, wall, until)? {
            row.requests.insert(what, count as f64 / minutes);
        }
        Ok(())
    }

    /// Many pods with three volumes of the API server each (a token, a ConfigMap of their own, a Secret shared by ten), and
    /// what the node does once they run.
    fn crowd(&self, count: usize, window: Duration, audit: &Path) -> Result<(), String> {
        const SHARING: usize = 10;
        self.forget_node()?;
        let agent = self.start()?;
        let post = |resource: &str, object: Value| {
            let made = self.admin.create::<_, Value>(&paths::core_list(&self.name, resource), &object);
            made.map(drop).map_err(|error| error.to_string())
        };
        for number in 0..count {
            let name = format!("crowd-{number}");
            post("configmaps", json!({ "metadata": { "name": name }, "data": { "number": number.to_string() } }))?;
            if number % SHARING == 0 {
                let name = format!("crowd-{}", number / SHARING);
                post("secrets", json!({ "metadata": { "name": name }, "stringData": { "word": name } }))?;
            }
        }
        let pods = Watcher::start(&self.admin, &paths::core_list(&self.name, "pods"), "");
        let begin = Instant::now();
        for number in 0..count {
            let volumes = json!([
                { "name": "own", "configMap": { "name": format!("crowd-{number}") } },
                { "name": "shared", "secret": { "secretName": format!("crowd-{}", number / SHARING) } },
            ]);
            self.create_with(&format!("crowd-{number}"), None, volumes)?;
        }
        let mut running = std::collections::BTreeSet::new();
        let all = pods.until(|gone, pod| {
            if !gone && runs(pod) {
                running.insert(pod["metadata"]["name"].as_str().unwrap_or_default().to_owned());
            }
            running.len() == count
        })?;
        let mut row = Row::default();
        self.idle(&agent, window, audit, &mut row)?;
        let requests: Vec<String> = row.requests.iter().map(|(what, count)| format!("{what} {count:.1}")).collect();
        let ((from, to), (open, most), memory) = (row.bytes, row.connections, agent.process().memory()?);
        println!(
            "\n{}: {count} pods with 3 volumes of the API server each ran after {:.1} s; then, a minute: {}; {from:.0} bytes from and \
             {to:.0} to the node, {:.3} s of CPU; {open} connections (at most {most}); PSS {:.1} MiB; {}",
            self.name,
            (all - begin).as_secs_f64(),
            requests.join(", "),
            row.cpu,
            memory.pss as f64 / f64::from(1 << 20),
            load(),
        );
        self.end_pods(&pods, "crowd", count)
    }

    /// The API server goes for a while, and the agent is killed and started meanwhile: what runs goes on.
    fn away(&self, time: Duration) -> Result<(), String> {
        const PODS: usize = 5;
        // The one that measured has ended.
        self.forget_node()?;
        let agent = self.start()?;
        let Running::Ferrolet(agent) = agent else { return Ok(()) };
        let pods = Watcher::start(&self.admin, &paths::core_list(&self.name, "pods"), "");
        self.run_pods(&pods, "stays", PODS)?;
        drop(pods);
        let ids = || -> BTreeMap<String, String> {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let all = self.node.containers(&[]);
            let of_api = all.iter().filter(|one| one["metadata"]["name"] == "c");
            of_api.map(|one| (text(&one["id"]), one["metadata"]["attempt"].to_string())).collect()
        };
        let before = ids();
        self.cluster.kill("kube-apiserver");
        let begin = Instant::now();
        let still = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "still" },
            "spec": { "containers": [{ "name": "static", "image": "registry.k8s.io/pause:3.10", "imagePullPolicy": "IfNotPresent" }] },
        });
        agent.put(&[("still.json".to_owned(), still.to_string())]);
        self.wait_static(1);
        std::thread::sleep(time / 2);
        drop(agent);
        let agent = self.start()?;
        let Running::Ferrolet(agent) = agent else { return Ok(()) };
        agent.clear();
        self.wait_static(0);
        std::thread::sleep(time.saturating_sub(begin.elapsed()));
        let meanwhile = ids();
        self.cluster.start_again();
        let back = Instant::now();
        let nodes = Watcher::start(&self.admin, paths::NODES, &format!("metadata.name={}", self.name));
        let renewed = nodes.until(|gone, node| !gone && is_true(node, "Ready"))?;
        std::thread::sleep(SETTLE);
        let after = ids();
        let same = before == meanwhile && before == after && before.len() == PODS;
        println!(
            "\n{}: the API server away for {} s, the agent killed meanwhile: {} containers before, {} after, {}; Ready is seen {:.1} s after its return",
            self.name,
            time.as_secs(),
            before.len(),
            after.len(),
            if same { "the same ones, none restarted" } else { "NOT THE SAME" },
            (renewed - back).as_secs_f64(),
        );
        drop(agent);
        if same { Ok(()) } else { Err(format!("{before:?} before, {meanwhile:?} meanwhile, {after:?} after")) }
    }

    fn wait_static(&self, count: usize) {
        wait::until("the static pod", PATIENCE, || {
            let all = self.node.containers(&[]);
            let seen = all.iter().filter(|one| one["metadata"]["name"] == "static").count();
            if seen == count { Ok(()) } else { Err(format!("{seen} of {count}")) }
        });
    }
}

/// Follows a set of objects in a thread that ends with it.
struct Watcher {
    cancel: Cancel,
    news: Receiver<(Instant, bool, Value)>,
}

impl Watcher {
    fn start(admin: &ApiClient, path: &str, selector: &str) -> Watcher {
        let (sender, news) = channel();
        let cancel = Cancel::new();
        let (theirs, client) = (cancel.clone(), admin.separate());
        let (path, selector) = (path.to_owned(), selector.to_owned());
        std::thread::spawn(move || {
            client.list_watch::<Value>(&path, &[("fieldSelector", selector.as_str())], &theirs, &mut |event| {
                let now = Instant::now();
                let told = match event {
                    ListEvent::Listed(all) => all.into_iter().map(|one| (now, false, one)).collect(),
                    ListEvent::Set(one) => vec![(now, false, one)],
                    ListEvent::Gone(one) => vec![(now, true, one)],
                    ListEvent::Settled | ListEvent::Failed(_) => Vec::new(),
                };
                let is_over = told.into_iter().any(|one| sender.send(one).is_err());
                if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        });
        Watcher { cancel, news }
    }

    /// The moment of the first news of which `look` says yes: whether an object is gone, and the object.
    fn until(&self, mut look: impl FnMut(bool, &Value) -> bool) -> Result<Instant, String> {
        let over = Instant::now() + PATIENCE;
        loop {
            let left = over.saturating_duration_since(Instant::now());
            let news = self.news.recv_timeout(left);
            let (at, gone, object) = news.map_err(|_| format!("nothing was told within {PATIENCE:?}"))?;
            if look(gone, &object) {
                return Ok(at);
            }
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

fn client(file: &Path) -> Result<ApiClient, String> {
    let text = fs::read(file).map_err(|error| error.to_string())?;
    let document = yaml_to_json(&text, &Limits::default()).map_err(|error| error.to_string())?;
    let access = kubeconfig::read(document.value, file, None).map_err(|error| error.to_string())?;
    Ok(ApiClient::new(access, "ferrolet/bench", RateLimit { per_second: -1.0, burst: 1 }))
}

fn is_true(object: &Value, type_: &str) -> bool {
    condition(object, type_)["status"] == "True"
}

fn runs(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running"
}

/// The requests of a node in a span of time, by verb and resource, as the audit log has them.
fn requests(audit: &Path, node: &str, from: SystemTime, to: SystemTime) -> Result<BTreeMap<String, usize>, String> {
    let text = fs::read_to_string(audit).map_err(|error| error.to_string())?;
    let user = format!("system:node:{node}");
    let mut seen = BTreeMap::new();
    for line in text.lines() {
        // The last line may be half written.
        let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
        let at = event["requestReceivedTimestamp"].as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
        let Some(at) = at.map(SystemTime::from).filter(|at| (from..to).contains(at)) else { continue };
        let _ = at;
        if event["user"]["username"] == user.as_str() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let what = format!("{} {}", text(&event["verb"]), text(&event["objectRef"]["resource"]));
            seen.insert(text(&event["auditID"]), what);
        }
    }
    let mut counts = BTreeMap::new();
    seen.into_values().for_each(|what| *counts.entry(what).or_default() += 1);
    Ok(counts)
}

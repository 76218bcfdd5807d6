//! What probes cost: containers with a probe each second, one kind at a time, beside the same calls made by nobody but a loop.
//!
//! The agent's cost is what its CPU time is above that of the same containers without a probe. The floor is the prober's own
//! ports (`ferrolet::probe`, `exec_sync` of the CRI client) called one after the other by one thread, at the same addresses; its
//! price is for as many calls as the agent made. What the runtime and the probed programs take themselves stands beside it: it is the machine's whole time less
//! both. False failures are told by the agent's own events. Used from the main thread of the benchmark.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use ferrolet::api::ContainerId;
use ferrolet::api::probe::{NetAction, ProbeOutcome};
use ferrolet::api::runtime::{ContainerState, RuntimePod};
use ferrolet::cri::Client;
use ferrolet::probe::NetProber;
use ferrolet::util::cancel::Cancel;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::floor;
use crate::node::{Containerd, Node};
use crate::options::Options;
use crate::proc::{Process, load};

/// The image that all kinds run, so that only the probe differs.
const IMAGE: &str = "registry.k8s.io/e2e-test-images/agnhost:2.56";

/// The kinds in their order; the first has no probe at all.
const KINDS: [&str; 5] = ["none", "http", "tcp", "grpc", "exec"];

/// Containers of one pod: few sandboxes, and many probes.
const IN_A_POD: usize = 10;

/// What an attempt may take: longer than a period is too long for one a second.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The same for commands: so many at once are more than two CPUs can start in a second, and each waits for the others.
const EXEC_TIMEOUT: Duration = Duration::from_secs(30);

/// A command that can be counted afterwards.
const COUNTS: [&str; 3] = ["/bin/sh", "-c", "echo >>/tmp/runs"];

/// Calls by which the price of one is found.
const CALLS: usize = 2000;

/// The same of commands, each of which takes the runtime a tenth of a second.
const EXEC_CALLS: usize = 200;

/// What one kind cost.
struct Cost {
    /// Seconds of the agent on a CPU.
    agent: f64,
    /// Seconds of the whole machine.
    machine: f64,
    /// Attempts that the agent made.
    attempts: f64,
    /// `Unhealthy` events.
    failures: u64,
    load: String,
}

/// Measures all kinds with so many containers each.
pub(crate) fn run(options: &Options, count: usize) -> Result<(), String> {
    let node = Node::start(Containerd::Two);
    node.import("agnhost");
    let client = crate::client(&node)?;
    for program in &options.programs {
        println!(
            "\n{}: {count} containers, a probe each second, {:.0} s a kind",
            program.name,
            options.window.as_secs_f64()
        );
        println!(
            "\n| probe | attempts | CPU of the agent | for probes | the same calls alone | times | machine | false failures | load |"
        );
        println!("|---|---|---|---|---|---|---|---|---|");
        let mut idle = 0.0;
        for kind in KINDS {
            let agent = Agent::start(&node, &program.path);
            agent.wait_healthy().ok_or_else(|| format!("it never became healthy\n{}", agent.last_words()))?;
            agent.put(&manifests(kind, count));
            let pods = count.div_ceil(IN_A_POD);
            floor::wait_running(&client, pods).map_err(|error| format!("{error}\n{}", agent.last_words()))?;
            wait_ready(&node, count)?;
            let targets = targets(&client, count)?;
            let cost = watch(&node, &agent, &client, kind, &targets, options.window)?;
            let direct = direct(&client, kind, &targets, cost.attempts)?;
            let probes = cost.agent - idle;
            if kind == "none" {
                idle = cost.agent;
            }
            let parts = if kind == "none" {
                "| | | ".to_owned()
            } else {
                format!("| {probes:.2} s | {direct:.2} s | {:.2} ", probes / direct.max(0.01))
            };
            println!(
                "| {kind} | {:.0} | {:.2} s {parts}| {:.0} s | {} | {} |",
                cost.attempts, cost.agent, cost.machine, cost.failures, cost.load
            );
            drop(agent);
            floor::remove_all(&client)?;
            crate::forget(&node)?;
        }
    }
    Ok(())
}

/// Pods whose containers serve on ports of their own and are probed for readiness; gRPC and exec alike.
fn manifests(kind: &str, count: usize) -> Vec<(String, String)> {
    let container = |number: usize| {
        let port = 9000 + number % IN_A_POD;
        let mut container = json!({ "name": format!("c{}", number % IN_A_POD), "image": IMAGE, "imagePullPolicy": "IfNotPresent", "args": serves(kind, port) });
        if let Some(handler) = handler(kind, port) {
            // One period is missed by one failure, and each is seen.
            let timeout = if kind == "exec" { EXEC_TIMEOUT } else { TIMEOUT };
            let mut probe = json!({ "periodSeconds": 1, "timeoutSeconds": timeout.as_secs(), "failureThreshold": 1 });
            probe.as_object_mut().expect("an object").extend(handler.as_object().expect("an object").clone());
            container["readinessProbe"] = probe;
        }
        container
    };
    let numbers: Vec<usize> = (0..count).collect();
    let pod = |(index, some): (usize, &[usize])| {
        let name = format!("{kind}-{index}");
        let containers: Vec<Value> = some.iter().map(|number| container(*number)).collect();
        let spec = json!({ "terminationGracePeriodSeconds": 1, "containers": containers });
        (
            format!("{name}.json"),
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": spec }).to_string(),
        )
    };
    numbers.chunks(IN_A_POD).enumerate().map(pod).collect()
}

/// What a container runs. Without a probe and for exec it serves HTTP as well, so that memory and threads are alike.
fn serves(kind: &str, port: usize) -> Vec<String> {
    match kind {
        "grpc" => {
            vec!["grpc-health-checking".to_owned(), format!("--port={port}"), format!("--http-port={}", port + 1000)]
        }
        _ => vec!["netexec".to_owned(), format!("--http-port={port}"), "--udp-port=-1".to_owned()],
    }
}

fn handler(kind: &str, port: usize) -> Option<Value> {
    Some(match kind {
        "http" => json!({ "httpGet": { "port": port, "path": "/" } }),
        "tcp" => json!({ "tcpSocket": { "port": port } }),
        "grpc" => json!({ "grpc": { "port": port } }),
        "exec" => json!({ "exec": { "command": COUNTS } }),
        _ => return None,
    })
}

/// What the agent knows of its pods.
fn pods(node: &Node) -> Result<Vec<Value>, String> {
    let ask = || -> std::io::Result<Vec<Value>> {
        let mut stream = UnixStream::connect(node.path("kubelet/ferrolet/ferrolet.sock"))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        writeln!(stream, r#"{{"pods":{{}}}}"#)?;
        let lines = BufReader::new(stream).lines();
        lines.map(|line| serde_json::from_str(&line?).map_err(std::io::Error::from)).collect()
    };
    let told = ask().map_err(|error| format!("ask the agent: {error}"))?;
    Ok(told.into_iter().filter_map(|mut line| line.get_mut("pod").map(Value::take)).collect())
}

/// Waits until all containers are ready.
fn wait_ready(node: &Node, count: usize) -> Result<(), String> {
    let begin = Instant::now();
    loop {
        let pods = pods(node)?;
        let statuses = pods.iter().filter_map(|pod| pod["status"]["containerStatuses"].as_array()).flatten();
        let ready = statuses.filter(|status| status["ready"] == true).count();
        if ready == count {
            return Ok(());
        }
        if begin.elapsed() > Duration::from_secs(180) {
            return Err(format!("{ready} of {count} containers are ready"));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Failures of probes that the agent has told so far.
fn failures(node: &Node) -> Result<u64, String> {
    let pods = pods(node)?;
    let events = pods.iter().filter_map(|pod| pod["events"].as_array()).flatten();
    let bad = events.filter(|event| ["Unhealthy", "ProbeWarning"].iter().any(|reason| event["reason"] == *reason));
    Ok(bad.map(|event| event["count"].as_u64().unwrap_or(1)).sum())
}

/// How often the commands ran so far.
fn runs(client: &Client, targets: &[Target]) -> Result<f64, String> {
    let command = ["/bin/sh", "-c", "wc -l </tmp/runs"].map(str::to_owned);
    let mut all = 0.0;
    for target in targets {
        let output = client.exec_sync(&target.id, &command, Duration::from_secs(60), &Cancel::never());
        let output = output.map_err(|error| error.to_string())?;
        all += String::from_utf8_lossy(&output.stdout).trim().parse::<f64>().unwrap_or(0.0);
    }
    Ok(all)
}

fn watch(
    node: &Node,
    agent: &Agent<'_>,
    client: &Client,
    kind: &str,
    targets: &[Target],
    window: Duration,
) -> Result<Cost, String> {
    // What the start still does, and verdicts of servers that were not up at their first probe.
    std::thread::sleep(Duration::from_secs(15));
    let process: Process = agent.process();
    let begin = Instant::now();
    let ran = if kind == "exec" { runs(client, targets)? } else { 0.0 };
    let counted = begin.elapsed();
    let (failed, cpu, machine) = (failures(node)?, process.cpu()?, busy());
    std::thread::sleep(window);
    let (agent, machine) = (process.cpu()? - cpu, busy() - machine);
    let attempts = match kind {
        "none" => 0.0,
        // Counting takes its time, and they run on meanwhile.
        "exec" => {
            let (again, since) = (runs(client, targets)?, begin.elapsed() - counted);
            (again - ran) * window.as_secs_f64() / since.as_secs_f64()
        }
        _ => targets.len() as f64 * window.as_secs_f64(),
    };
    Ok(Cost { agent, machine, attempts, failures: failures(node)?.saturating_sub(failed), load: load() })
}

/// Seconds that all CPUs of the machine were busy.
fn busy() -> f64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let numbers: Vec<f64> = text
        .lines()
        .next()
        .into_iter()
        .flat_map(|line| line.split_whitespace().skip(1))
        .filter_map(|word| word.parse().ok())
        .collect();
    // All but the fourth and fifth, idle and waiting for a disk; guests' time is in user's already.
    numbers.iter().take(8).enumerate().filter(|(at, _)| ![3, 4].contains(at)).map(|(_, ticks)| ticks).sum::<f64>()
        / 100.0
}

/// CPU seconds of this process for as many attempts, one after the other.
fn direct(client: &Client, kind: &str, targets: &[Target], attempts: f64) -> Result<f64, String> {
    if kind == "none" {
        return Ok(0.0);
    }
    let (net, cancel, me) = (NetProber::default(), Cancel::never(), Process(std::process::id()));
    let calls = if kind == "exec" { EXEC_CALLS } else { CALLS };
    let command = COUNTS.map(str::to_owned);
    let before = me.cpu()?;
    for target in targets.iter().cycle().take(calls) {
        let outcome = match action(kind, target) {
            Some(action) => net.attempt(&action, Duration::from_secs(20)),
            None => match client.exec_sync(&target.id, &command, Duration::from_secs(20), &cancel) {
                Ok(output) if output.exit_code == 0 => ProbeOutcome::Success,
                other => return Err(format!("exec in {}: {other:?}", target.id)),
            },
        };
        if outcome != ProbeOutcome::Success {
            return Err(format!("{kind} at {}:{}: {outcome:?}", target.ip, target.port));
        }
    }
    Ok((me.cpu()? - before) * attempts / calls as f64)
}

/// A container that is probed.
struct Target {
    id: ContainerId,
    ip: String,
    port: u16,
}

fn targets(client: &Client, count: usize) -> Result<Vec<Target>, String> {
    let cancel = Cancel::never();
    let glimpsed = client.glimpse(&cancel).map_err(|error| error.to_string())?;
    let mut targets = Vec::new();
    for pod in glimpsed {
        let found: Option<RuntimePod> =
            client.list_pod(pod.uid.as_str(), &cancel).map_err(|error| error.to_string())?;
        let Some(found) = found else { continue };
        let Some(sandbox) = found.sandboxes.first() else { continue };
        let status = client.sandbox_status(&sandbox.id, &cancel).map_err(|error| error.to_string())?;
        let ip = status.sandbox.ips.first().cloned().unwrap_or_default();
        for container in found.containers.iter().filter(|it| matches!(it.state, ContainerState::Running { .. })) {
            let number: u16 =
                container.name.trim_start_matches('c').parse().map_err(|_| format!("what is {}", container.name))?;
            targets.push(Target { id: container.id.clone(), ip: ip.clone(), port: 9000 + number });
        }
    }
    if targets.len() == count { Ok(targets) } else { Err(format!("{} of {count} containers run", targets.len())) }
}

fn action(kind: &str, target: &Target) -> Option<NetAction> {
    let (host, port) = (target.ip.clone(), target.port);
    Some(match kind {
        "http" => NetAction::Http { tls: false, host, port, path: "/".to_owned(), headers: Vec::new() },
        "tcp" => NetAction::Tcp { host, port },
        "grpc" => NetAction::Grpc { host, port, service: String::new() },
        _ => return None,
    })
}

//! The benchmark: what the agent costs, on real containerds, in one run. `tests/bench/run` builds and starts it.
//!
//! The main thread does everything, one after the other, so that nothing of the benchmark itself runs beside what is measured,
//! but the observer that polls the runtime while pods start; it polls for the agent and for the floor alike. It owns a node
//! (tests/harness) for each containerd. It prints facts, with the machine's load, and judges nothing.

#![allow(clippy::print_stdout, reason = "printing is what a benchmark is for")]

mod agent;
mod floor;
mod idle;
#[path = "../harness/node.rs"]
#[allow(dead_code, reason = "the harness offers more than is used here")]
mod node;
mod options;
mod proc;
#[path = "../harness/wait.rs"]
#[allow(dead_code, reason = "see above")]
mod wait;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ferrolet::cri::Client;

use agent::Agent;
use floor::Floor;
use idle::Idle;
use node::{Containerd, Node};
use options::Options;
use proc::load;

/// How often the time to /healthz is taken.
const STARTS: usize = 5;

fn main() -> std::process::ExitCode {
    let options = match Options::read(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            println!("tests/bench/run: {problem}");
            return std::process::ExitCode::from(2);
        }
    };
    let binary = options.agent.clone().unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_ferrolet")));
    machine(&binary);
    let mut code = std::process::ExitCode::SUCCESS;
    for kind in &options.containerds {
        println!(
            "\n## {}",
            match kind {
                Containerd::System => "The distribution's containerd (1.6 on Debian 12: no container events)",
                Containerd::Two => "containerd 2 (container events)",
            }
        );
        // A fresh node for each part: what one leaves in containerd's memory and disk does not meet the other.
        for part in [idle_part, starts_part] {
            let node = Node::start(*kind);
            if let Err(problem) = part(&node, &binary, &options) {
                println!("FAILED: {problem}");
                code = std::process::ExitCode::FAILURE;
            }
        }
    }
    code
}

fn machine(binary: &Path) {
    let now: jiff::Timestamp = SystemTime::now().try_into().unwrap_or_default();
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": an unnamed CPU");
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    println!("# ferrolet's footprint, {}", now.strftime("%Y-%m-%d %H:%M UTC"));
    println!("machine: {cpus} x {}, {}", model.trim_start_matches([' ', '\t', ':']), load());
    let size = std::fs::metadata(binary).map_or(0, |metadata| metadata.len());
    let linked = std::process::Command::new("ldd").arg(binary).output();
    let libraries = linked.map_or(0, |output| String::from_utf8_lossy(&output.stdout).matches("=> /").count());
    println!("program: {}, {} and {libraries} shared libraries", binary.display(), mebibytes(size));
}

fn client(node: &Node) -> Result<Client, String> {
    Client::new(&node.endpoint(), None, Duration::from_secs(120)).map_err(|error| error.to_string())
}

/// A pod with one container that waits.
fn manifests(count: usize, round: usize) -> Vec<(String, String)> {
    let one = |number: usize| {
        let name = format!("p{round}-{number}");
        let pod = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": name, "labels": { "app": "bench" } },
            "spec": {
                "terminationGracePeriodSeconds": 5,
                "containers": [{
                    "name": "wait",
                    "image": "registry.k8s.io/pause:3.10",
                    "imagePullPolicy": "IfNotPresent",
                    "resources": { "requests": { "cpu": "10m", "memory": "16Mi" }, "limits": { "memory": "64Mi" } },
                }],
            },
        });
        (format!("{name}.json"), pod.to_string())
    };
    (0..count).map(one).collect()
}

/// The idle agent, with no pod and with some.
fn idle_part(node: &Node, binary: &Path, options: &Options) -> Result<(), String> {
    if options.idle.is_empty() {
        return Ok(());
    }
    let client = client(node)?;
    let mut healthy = Vec::new();
    for _ in 1..STARTS {
        healthy.push(Agent::start(node, binary).wait_healthy());
    }
    let agent = Agent::start(node, binary);
    healthy.push(agent.wait_healthy());
    let healthy: Option<Vec<f64>> = healthy.into_iter().map(|time| time.map(|time| time.as_secs_f64() * 1e3)).collect();
    match healthy {
        Some(times) => println!(
            "start of the process to /healthz 200: {:.0} ms (the middle of {}: {})",
            middle(&times),
            times.len(),
            times.iter().map(|time| format!("{time:.0}")).collect::<Vec<_>>().join(" ")
        ),
        None => println!("start of the process to /healthz 200: it never came"),
    }
    println!(
        "\n| pods | PSS | RSS | own pages | heap, stacks | threads | CPU s/min | wakeups/s | disk B/min | other B/min | log B/min |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let mut seen = Vec::new();
    for (round, count) in options.idle.iter().copied().enumerate() {
        agent.clear();
        agent.put(&manifests(count, round));
        floor::wait_running(&client, count).map_err(|error| format!("{error}\n{}", agent.last_words()))?;
        let idle = idle::watch(&agent, count, options.window)?;
        print_idle(&idle);
        seen.push(idle);
    }
    for Idle { pods, busy, load, .. } in seen {
        let busy = busy.iter().map(|(name, cpu, sleeps)| format!("{name} {:.1} ms {sleeps:.0} wakeups", cpu / 1e3));
        println!("in a minute with {pods} pods ({load}): {}", busy.collect::<Vec<_>>().join(", "));
    }
    drop(agent);
    floor::remove_all(&client)
}

fn print_idle(idle: &Idle) {
    let Idle { pods, memory, threads, cpu, wakeups, disk, written, logged, .. } = idle;
    let [pss, rss, own, anonymous] = [memory.pss, memory.rss, memory.own, memory.anonymous].map(mebibytes);
    println!(
        "| {pods} | {pss} | {rss} | {own} | {anonymous} | {threads} | {cpu:.3} | {wakeups:.1} | {disk:.0} | {written:.0} | {logged:.0} |"
    );
}

/// Pods from manifests to Running, agent and floor in turn.
fn starts_part(node: &Node, binary: &Path, options: &Options) -> Result<(), String> {
    if options.starts.is_empty() {
        return Ok(());
    }
    let client = client(node)?;
    let floor = Floor::new(node, &client)?;
    println!("\n| pods | agent | floor | agent / floor | CPU of the agent | rounds (agent/floor s) | load |");
    println!("|---|---|---|---|---|---|---|");
    // What containerd does only once is paid before the first round.
    floor.start(&manifests(2, 0))?;
    floor::remove_all(&client)?;
    let mut round = 0;
    for count in options.starts.iter().copied() {
        let rounds = if count > 30 { 1 } else { options.rounds };
        let (mut by_agent, mut by_floor, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            round += 1;
            let manifests = manifests(count, round);
            by_floor.push(floor.start(&manifests)?.as_secs_f64());
            floor::remove_all(&client)?;
            let agent = Agent::start(node, binary);
            agent.wait_healthy();
            let used = |agent: &Agent<'_>| -> Result<u64, String> {
                Ok(agent.process().counters()?.threads.values().map(|thread| thread.cpu).sum())
            };
            let before = used(&agent)?;
            let begin = std::time::Instant::now();
            agent.put(&manifests);
            let running = floor::wait_running(&client, count);
            let running = running.map_err(|error| format!("{error}\n{}", agent.last_words()))?;
            by_agent.push((running - begin).as_secs_f64());
            cpu.push((used(&agent)? - before) as f64 / 1e9);
            drop(agent);
            floor::remove_all(&client)?;
            forget(node)?;
        }
        let pairs = by_agent.iter().zip(&by_floor);
        let rounds: Vec<String> = pairs.map(|(agent, floor)| format!("{agent:.2}/{floor:.2}")).collect();
        let (agent, floor) = (middle(&by_agent), middle(&by_floor));
        println!(
            "| {count} | {agent:.2} s | {floor:.2} s | {:.2} | {:.2} s | {} | {} |",
            agent / floor,
            middle(&cpu),
            rounds.join(" "),
            load()
        );
    }
    Ok(())
}

/// Takes away what an ended agent remembers and would start again: its folder and the manifests.
fn forget(node: &Node) -> Result<(), String> {
    for folder in ["manifests", "kubelet"] {
        let path = node.path(folder);
        std::fs::remove_dir_all(&path).map_err(|error| format!("remove {}: {error}", path.display()))?;
    }
    Ok(())
}

/// The one in the middle; of an even number the lower of both, which less disturbs.
fn middle(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / 1_048_576.0)
}

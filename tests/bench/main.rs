//! The benchmark: what the agent costs, on real containerds, in one run. `tests/bench/run` builds and starts it.
//!
//! The main thread does everything, one after the other, so that nothing of the benchmark itself runs beside what is measured,
//! but the observer that polls the runtime while pods start; it polls for the agent and for the floor alike. It owns a node
//! (tests/harness) for each containerd. It prints facts, with the machine's load, and judges nothing.

#![allow(clippy::print_stdout, reason = "printing is what a benchmark is for")]

mod agent;
mod api;
#[path = "../harness/cluster.rs"]
#[allow(dead_code, reason = "the harness offers more than is used here")]
mod cluster;
#[path = "../harness/config.rs"]
#[allow(dead_code, reason = "the harness offers more than is used here")]
mod config;
mod floor;
mod idle;
#[path = "../harness/node.rs"]
#[allow(dead_code, reason = "see above")]
mod node;
mod options;
mod probes;
mod proc;
mod relay;
mod scrapes;
mod upstream;
#[path = "../harness/wait.rs"]
#[allow(dead_code, reason = "see above")]
mod wait;

use std::path::Path;
use std::time::{Duration, SystemTime};

use ferrolet::cri::Client;

use agent::Agent;
use floor::Floor;
use idle::Idle;
use node::{Containerd, Node};
use options::{Options, Program};
use proc::load;

/// How often the time to /healthz is taken.
const STARTS: usize = 5;

fn main() -> std::process::ExitCode {
    let built = Path::new(env!("CARGO_BIN_EXE_ferrolet"));
    let options = match Options::read(std::env::args().skip(1), built) {
        Ok(options) => options,
        Err(problem) => {
            println!("tests/bench/run: {problem}");
            return std::process::ExitCode::from(2);
        }
    };
    machine();
    options.programs.iter().for_each(tell_program);
    let mut code = std::process::ExitCode::SUCCESS;
    let mut part = |result: Result<(), String>| {
        if let Err(problem) = result {
            println!("FAILED: {problem}");
            code = std::process::ExitCode::FAILURE;
        }
    };
    if options.is_cluster {
        println!("\n## In a cluster (containerd 2)");
        part(api::run(&options));
    }
    if let Some(count) = options.probes {
        println!("\n## Probes (containerd 2)");
        part(probes::run(&options, count));
    }
    for kind in &options.containerds {
        println!(
            "\n## {}",
            match kind {
                Containerd::System => "The distribution's containerd (1.6 on Debian 12: no container events)",
                Containerd::Two => "containerd 2 (container events)",
            }
        );
        if let Some(count) = options.scrapes {
            for program in &options.programs {
                part(scrapes::run(&Node::start(*kind), program, count, &manifests(count, 1)));
            }
            continue;
        }
        // A fresh node for each part: what one leaves in containerd's memory and disk does not meet the other.
        if !options.idle.is_empty() {
            for program in &options.programs {
                part(idle_part(&Node::start(*kind), program, &options));
            }
        }
        if !options.starts.is_empty() {
            part(starts_part(&Node::start(*kind), &options));
        }
    }
    code
}

fn machine() {
    let now: jiff::Timestamp = SystemTime::now().try_into().unwrap_or_default();
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": an unnamed CPU");
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    println!("# ferrolet's footprint, {}", now.strftime("%Y-%m-%d %H:%M UTC"));
    println!("machine: {cpus} x {}, {}", model.trim_start_matches([' ', '\t', ':']), load());
    println!("the floor's client: {}", if cfg!(debug_assertions) { "NOT OPTIMIZED" } else { "a release build" });
}

fn tell_program(program: &Program) {
    let size = std::fs::metadata(&program.path).map_or(0, |metadata| metadata.len());
    let linked = std::process::Command::new("ldd").arg(&program.path).output();
    let libraries = linked.map_or(0, |output| String::from_utf8_lossy(&output.stdout).matches("=> /").count());
    println!("{}: {}, {} and {libraries} shared libraries", program.name, program.path.display(), mebibytes(size));
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
fn idle_part(node: &Node, program: &Program, options: &Options) -> Result<(), String> {
    let client = client(node)?;
    let mut healthy = Vec::new();
    for _ in 1..STARTS {
        healthy.push(Agent::start(node, &program.path).wait_healthy());
    }
    let agent = Agent::start(node, &program.path);
    healthy.push(agent.wait_healthy());
    let healthy: Option<Vec<f64>> = healthy.into_iter().map(|time| time.map(|time| time.as_secs_f64() * 1e3)).collect();
    match healthy {
        Some(times) => println!(
            "\n{}: start of the process to /healthz 200: {:.0} ms (the middle of {}: {})",
            program.name,
            middle(&times),
            times.len(),
            times.iter().map(|time| format!("{time:.0}")).collect::<Vec<_>>().join(" ")
        ),
        None => println!("\n{}: start of the process to /healthz 200: it never came", program.name),
    }
    println!(
        "\n| program | pods | PSS | RSS | own pages | heap, stacks | threads | CPU s/min | wakeups/s | disk B/min | other B/min | log B/min |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    let mut seen = Vec::new();
    for (round, count) in options.idle.iter().copied().enumerate() {
        agent.clear();
        agent.put(&manifests(count, round));
        floor::wait_running(&client, count).map_err(|error| format!("{error}\n{}", agent.last_words()))?;
        let idle = idle::watch(&agent, count, options.window)?;
        print_idle(program.name, &idle);
        seen.push(idle);
    }
    for Idle { pods, busy, load, .. } in seen {
        let busy = busy.iter().map(|(name, cpu, sleeps)| format!("{name} {:.1} ms {sleeps:.0} wakeups", cpu / 1e3));
        println!("in a minute with {pods} pods ({load}): {}", busy.collect::<Vec<_>>().join(", "));
    }
    drop(agent);
    floor::remove_all(&client)
}

fn print_idle(name: &str, idle: &Idle) {
    let Idle { pods, memory, threads, cpu, wakeups, disk, written, logged, .. } = idle;
    let [pss, rss, own, anonymous] = [memory.pss, memory.rss, memory.own, memory.anonymous].map(mebibytes);
    println!(
        "| {name} | {pods} | {pss} | {rss} | {own} | {anonymous} | {threads} | {cpu:.3} | {wakeups:.1} | {disk:.0} | {written:.0} | {logged:.0} |"
    );
}

/// Pods from manifests to Running, floor and agents in turn.
fn starts_part(node: &Node, options: &Options) -> Result<(), String> {
    let client = client(node)?;
    let floor = Floor::new(node, &client)?;
    println!("\n| program | pods | agent | floor | agent / floor | CPU of the agent | rounds (agent/floor s) | load |");
    println!("|---|---|---|---|---|---|---|---|");
    // What containerd does only once is paid before the first round.
    floor.start(&manifests(2, 0))?;
    floor::remove_all(&client)?;
    let mut round = 0;
    for count in options.starts.iter().copied() {
        let rounds = if count > 30 { 1 } else { options.rounds };
        let mut by_floor = Vec::new();
        let mut by_agent: Vec<Vec<(f64, f64)>> = vec![Vec::new(); options.programs.len()];
        for _ in 0..rounds {
            round += 1;
            by_floor.push(floor.start(&manifests(count, round))?.as_secs_f64());
            floor::remove_all(&client)?;
            for (program, starts) in options.programs.iter().zip(&mut by_agent) {
                round += 1;
                starts.push(start_with(node, program, &client, &manifests(count, round))?);
                floor::remove_all(&client)?;
                forget(node)?;
            }
        }
        for (program, starts) in options.programs.iter().zip(&by_agent) {
            let (times, cpu): (Vec<f64>, Vec<f64>) = starts.iter().copied().unzip();
            let pairs = times.iter().zip(&by_floor);
            let rounds: Vec<String> = pairs.map(|(agent, floor)| format!("{agent:.2}/{floor:.2}")).collect();
            let (agent, floor) = (middle(&times), middle(&by_floor));
            println!(
                "| {} | {count} | {agent:.2} s | {floor:.2} s | {:.2} | {:.2} s | {} | {} |",
                program.name,
                agent / floor,
                middle(&cpu),
                rounds.join(" "),
                load()
            );
        }
    }
    Ok(())
}

/// One start of pods by an agent that runs already: seconds until all run, and the agent's seconds on a CPU for that.
fn start_with(
    node: &Node,
    program: &Program,
    client: &Client,
    manifests: &[(String, String)],
) -> Result<(f64, f64), String> {
    let agent = Agent::start(node, &program.path);
    agent.wait_healthy().ok_or_else(|| format!("it never became healthy\n{}", agent.last_words()))?;
    let before = agent.process().cpu()?;
    let begin = std::time::Instant::now();
    agent.put(manifests);
    let running = floor::wait_running(client, manifests.len());
    let running = running.map_err(|error| format!("{error}\n{}", agent.last_words()))?;
    Ok(((running - begin).as_secs_f64(), agent.process().cpu()? - before))
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

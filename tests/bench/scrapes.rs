//! What it costs to tell numbers: each page of the node's server, beside the time of reading the same files once.
//!
//! Used from the main thread of the benchmark. A scrape is asked for over a connection of its own on loopback. The floor opens
//! and reads, in this process, the cgroup and proc files that the page is made of, of the same pods; it parses nothing.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::agent::Agent;
use crate::config::Ground;
use crate::floor;
use crate::node::Node;
use crate::options::Program;
use crate::proc::{Process, load};

/// How often each page is asked for, and each floor taken.
const ROUNDS: u32 = 30;
/// How long a page may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Files of a cgroup that /metrics/resource is made of; names of cgroup v1 and v2.
const LEAST: &[&str] = &[
    "cpuacct.usage",
    "memory.usage_in_bytes",
    "memory.memsw.limit_in_bytes",
    "memory.stat",
    "cpu.stat",
    "memory.current",
    "memory.swap.current",
    "memory.swap.max",
];
/// Those of /stats/summary, besides.
const SUMMARY: &[&str] = &[
    "memory.limit_in_bytes",
    "memory.max",
    "pids.current",
    "pids.max",
    "cgroup.procs",
    "cpu.pressure",
    "memory.pressure",
    "io.pressure",
];
/// Those of /metrics/cadvisor, besides.
const ALL: &[&str] = &[
    "cpuacct.stat",
    "cpu.shares",
    "cpu.cfs_period_us",
    "cpu.cfs_quota_us",
    "memory.max_usage_in_bytes",
    "memory.failcnt",
    "memory.kmem.usage_in_bytes",
    "memory.soft_limit_in_bytes",
    "memory.oom_control",
    "blkio.throttle.io_service_bytes_recursive",
    "blkio.throttle.io_serviced_recursive",
    "cpu.max",
    "cpu.weight",
    "memory.peak",
    "memory.min",
    "memory.events",
    "io.stat",
];

/// Pods run; every page is asked for many times.
pub(crate) fn run(node: &Node, program: &Program, count: usize, manifests: &[(String, String)]) -> Result<(), String> {
    let client = crate::client(node)?;
    let (agent, port) = Agent::serving(node, &program.path);
    agent.wait_healthy();
    agent.put(manifests);
    floor::wait_running(&client, count).map_err(|error| format!("{error}\n{}", agent.last_words()))?;
    // Until the agent knows what runs.
    std::thread::sleep(Duration::from_secs(5));
    println!(
        "\n| program | pods | page | bytes | time | CPU of the agent | the same files once: time | CPU | CPU / CPU | load |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let pages: [(&str, &[&[&str]], bool); 4] = [
        ("/metrics/resource", &[LEAST], false),
        ("/stats/summary?only_cpu_and_memory=true", &[LEAST], false),
        ("/stats/summary", &[LEAST, SUMMARY], false),
        ("/metrics/cadvisor", &[LEAST, SUMMARY, ALL], true),
    ];
    for (page, names, has_descriptors) in pages {
        // The first one of a page looks twice, or measures disks.
        scrape(port, page)?;
        let (begin, cpu) = (Instant::now(), agent.process().cpu()?);
        let mut bytes = 0;
        for _ in 0..ROUNDS {
            bytes = scrape(port, page)?;
        }
        let (time, cpu) = (begin.elapsed() / ROUNDS, (agent.process().cpu()? - cpu) * 1e3 / f64::from(ROUNDS));
        let files = files(&node.cgroup_root(), names);
        let this = Process(std::process::id());
        let (begin, own) = (Instant::now(), this.cpu()?);
        let mut block = vec![0; 64 << 10];
        for _ in 0..ROUNDS {
            read(&files, has_descriptors, &mut block);
        }
        let (floor_time, floor_cpu) = (begin.elapsed() / ROUNDS, (this.cpu()? - own) * 1e3 / f64::from(ROUNDS));
        println!(
            "| {} | {count} | {page} | {bytes} | {:.1} ms | {cpu:.1} ms | {:.1} ms ({} files) | {floor_cpu:.1} ms | {:.2} | {} |",
            program.name,
            time.as_secs_f64() * 1e3,
            floor_time.as_secs_f64() * 1e3,
            files.len(),
            cpu / floor_cpu.max(0.1),
            load()
        );
    }
    drop(agent);
    floor::remove_all(&client)
}

/// Asks for a page; the bytes of the answer.
fn scrape(port: u16, page: &str) -> Result<usize, String> {
    let failed = |error: std::io::Error| format!("GET {page}: {error}");
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let request = format!("GET {page} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(failed)?;
    if answer.starts_with(b"HTTP/1.1 200") {
        Ok(answer.len())
    } else {
        Err(format!("GET {page}: {}", String::from_utf8_lossy(&answer[..answer.len().min(200)])))
    }
}

/// All files of these names in the cgroups of the node's pods.
fn files(root: &str, names: &[&[&str]]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let top = Path::new("/sys/fs/cgroup");
    let below = format!("{}/kubepods", root.trim_start_matches('/'));
    let hierarchies = fs::read_dir(top).into_iter().flatten().flatten().map(|entry| entry.path());
    for hierarchy in hierarchies.chain([top.to_path_buf()]) {
        let mut folders = vec![hierarchy.join(&below)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let name = entry.file_name();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(entry.path());
                } else if names.iter().any(|names| names.iter().any(|wanted| name == *wanted)) {
                    found.push(entry.path());
                }
            }
        }
    }
    found
}

/// Reads all of them once; with what their processes have open, if that is told too.
fn read(files: &[PathBuf], has_descriptors: bool, block: &mut [u8]) {
    for path in files {
        let Ok(length) = File::open(path).and_then(|mut file| file.read(block)) else { continue };
        if !has_descriptors || path.file_name().is_none_or(|name| name != "cgroup.procs") {
            continue;
        }
        for pid in String::from_utf8_lossy(&block[..length]).lines() {
            for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
                drop(fs::read_link(entry.path()));
            }
        }
    }
}

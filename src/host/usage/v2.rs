//! Files of cgroup v2, one hierarchy for all controllers. Pure but for the reads; see the parent module.
//!
//! The root cgroup has no file for its memory: what the machine uses is told by /proc/meminfo, as upstream's reader has it.

use std::path::Path;

use super::v1::{disk_of, parse_device};
use super::{CgroupUsage, Cpu, Detail, Memory, Pressure, Reader, Threads, each_pair, limit};
use crate::host::cgroup::CgroupTree;

pub(super) fn read(reader: &mut Reader, tree: &CgroupTree, cgroup: &Path, detail: Detail) -> CgroupUsage {
    let Some(folder) = tree.stats_folder("cpu", cgroup) else { return CgroupUsage::default() };
    let is_root = cgroup == Path::new("/");
    let mut usage = CgroupUsage {
        cpu: cpu(reader, &folder, detail),
        memory: memory(reader, &folder, detail, is_root),
        ..CgroupUsage::default()
    };
    if detail >= Detail::Summary {
        usage.threads = reader
            .number(&folder, "pids.current")
            .map(|current| Threads { current, limit: reader.number(&folder, "pids.max") });
        usage.processes = reader.processes(&folder, detail);
        usage.pressure = Pressure {
            cpu: reader.psi(&folder, "cpu.pressure"),
            memory: reader.psi(&folder, "memory.pressure"),
            io: reader.psi(&folder, "io.pressure"),
        };
    }
    if detail >= Detail::All
        && let Some(text) = reader.text(&folder, "io.stat")
    {
        for line in text.lines() {
            let mut words = line.split(' ');
            let Some(device) = words.next().and_then(parse_device) else { continue };
            for (name, value) in words.filter_map(|word| word.split_once('=')) {
                let Ok(value) = value.parse() else { continue };
                let disk = disk_of(&mut usage.disks, device);
                match name {
                    "rbytes" => disk.read_bytes = value,
                    "wbytes" => disk.written_bytes = value,
                    "rios" => disk.reads = value,
                    "wios" => disk.writes = value,
                    _ => {}
                }
            }
        }
    }
    usage
}

fn cpu(reader: &mut Reader, folder: &Path, detail: Detail) -> Option<Cpu> {
    let mut cpu = Cpu::default();
    let mut told = false;
    each_pair(reader.text(folder, "cpu.stat")?, |name, value| {
        // Microseconds to nanoseconds; periods are counted.
        let nanos = value.saturating_mul(1000);
        match name {
            "usage_usec" => {
                told = true;
                cpu.usage = nanos;
            }
            "user_usec" => cpu.user = nanos,
            "system_usec" => cpu.system = nanos,
            "nr_periods" => cpu.periods = value,
            "nr_throttled" => cpu.throttled_periods = value,
            "throttled_usec" => cpu.throttled = nanos,
            "nr_bursts" => cpu.burst_periods = value,
            "burst_usec" => cpu.burst = nanos,
            _ => {}
        }
    });
    if detail >= Detail::All {
        if let Some(max) = reader.text(folder, "cpu.max") {
            let mut words = max.split_whitespace();
            cpu.quota = words.next().and_then(|word| word.parse().ok());
            cpu.period = words.next().and_then(|word| word.parse().ok());
        }
        cpu.shares = reader.number(folder, "cpu.weight").map(shares_of_weight);
    }
    told.then_some(cpu)
}

/// Weight 1 to 10000 as shares 2 to 262144.
fn shares_of_weight(weight: u64) -> u64 {
    2 + (weight.saturating_sub(1)).saturating_mul(262_142) / 9999
}

fn memory(reader: &mut Reader, folder: &Path, detail: Detail, is_root: bool) -> Option<Memory> {
    let mut memory = match reader.number(folder, "memory.current") {
        Some(usage) => Memory { usage, ..Memory::default() },
        None if is_root => {
            let machine = reader.machine_memory()?;
            let used = |total: u64, free: u64| total.saturating_sub(free);
            Memory {
                usage: used(machine.total, machine.free),
                swap: Some(used(machine.swap_total, machine.swap_free)),
                ..Memory::default()
            }
        }
        None => return None,
    };
    if let Some(text) = reader.text(folder, "memory.stat") {
        each_pair(text, |name, value| match name {
            "file" => memory.cache = value,
            "anon" => memory.rss = value,
            "file_mapped" => memory.mapped_file = value,
            "kernel" => memory.kernel = Some(value),
            "pgfault" => memory.faults = value,
            "pgmajfault" => memory.major_faults = value,
            "active_file" => memory.active_file = value,
            "inactive_file" => memory.inactive_file = value,
            _ => {}
        });
    }
    if is_root {
        return Some(memory);
    }
    memory.swap = reader.number(folder, "memory.swap.current");
    memory.swap_limit = limit(reader.number(folder, "memory.swap.max"));
    if detail >= Detail::Summary {
        memory.limit = limit(reader.number(folder, "memory.max"));
    }
    if detail >= Detail::All {
        memory.max_usage = reader.number(folder, "memory.peak");
        memory.reservation = limit(reader.number(folder, "memory.min"));
        if let Some(text) = reader.text(folder, "memory.events") {
            each_pair(text, |name, value| match name {
                "max" => memory.failcnt = Some(value),
                "oom_kill" => memory.oom_kills = Some(value),
                _ => {}
            });
        }
    }
    Some(memory)
}

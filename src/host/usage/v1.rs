//! Files of cgroup v1, one hierarchy for each controller. Pure but for the reads; see the parent module.

use std::path::Path;

use super::{CgroupUsage, Cpu, Detail, DiskIo, Memory, Reader, Threads, each_pair, limit};
use crate::host::cgroup::CgroupTree;

/// `USER_HZ`, by which the kernel counts ticks for programs: 100 on every architecture that runs containers.
const TICK: u64 = 1_000_000_000 / 100;

pub(super) fn read(reader: &mut Reader, tree: &CgroupTree, cgroup: &Path, detail: Detail) -> CgroupUsage {
    let mut usage = CgroupUsage::default();
    if let Some(folder) = tree.stats_folder("cpuacct", cgroup) {
        usage.cpu = cpu(reader, &folder, detail);
    }
    if let Some(folder) = tree.stats_folder("memory", cgroup) {
        usage.memory = memory(reader, &folder, detail);
    }
    if detail >= Detail::All
        && let (Some(cpu), Some(folder)) = (&mut usage.cpu, tree.stats_folder("cpu", cgroup))
    {
        throttling(reader, &folder, cpu);
    }
    if detail >= Detail::Summary
        && let Some(folder) = tree.stats_folder("pids", cgroup)
    {
        usage.threads = reader
            .number(&folder, "pids.current")
            .map(|current| Threads { current, limit: reader.number(&folder, "pids.max") });
        usage.processes = reader.processes(&folder, detail);
    }
    if detail >= Detail::All
        && let Some(folder) = tree.stats_folder("blkio", cgroup)
    {
        disks(reader, &folder, &mut usage.disks);
    }
    usage
}

fn cpu(reader: &mut Reader, folder: &Path, detail: Detail) -> Option<Cpu> {
    let mut cpu = Cpu { usage: reader.number(folder, "cpuacct.usage")?, ..Cpu::default() };
    if detail >= Detail::All
        && let Some(text) = reader.text(folder, "cpuacct.stat")
    {
        each_pair(text, |name, value| match name {
            "user" => cpu.user = value.saturating_mul(TICK),
            "system" => cpu.system = value.saturating_mul(TICK),
            _ => {}
        });
    }
    Some(cpu)
}

fn throttling(reader: &mut Reader, folder: &Path, cpu: &mut Cpu) {
    cpu.shares = reader.number(folder, "cpu.shares");
    cpu.period = reader.number(folder, "cpu.cfs_period_us");
    // Without a quota it says -1.
    cpu.quota = reader.number(folder, "cpu.cfs_quota_us");
    if cpu.quota.is_some()
        && let Some(text) = reader.text(folder, "cpu.stat")
    {
        each_pair(text, |name, value| match name {
            "nr_periods" => cpu.periods = value,
            "nr_throttled" => cpu.throttled_periods = value,
            "throttled_time" => cpu.throttled = value,
            "nr_bursts" => cpu.burst_periods = value,
            "burst_time" => cpu.burst = value,
            _ => {}
        });
    }
}

fn memory(reader: &mut Reader, folder: &Path, detail: Detail) -> Option<Memory> {
    let mut memory = Memory { usage: reader.number(folder, "memory.usage_in_bytes")?, ..Memory::default() };
    if let Some(text) = reader.text(folder, "memory.stat") {
        each_pair(text, |name, value| match name {
            "total_cache" => memory.cache = value,
            "total_rss" => memory.rss = value,
            "total_mapped_file" => memory.mapped_file = value,
            "total_swap" => memory.swap = Some(value),
            "total_pgfault" => memory.faults = value,
            "total_pgmajfault" => memory.major_faults = value,
            "total_active_file" => memory.active_file = value,
            "total_inactive_file" => memory.inactive_file = value,
            _ => {}
        });
    }
    memory.swap_limit = limit(reader.number(folder, "memory.memsw.limit_in_bytes"));
    if detail >= Detail::Summary {
        memory.limit = limit(reader.number(folder, "memory.limit_in_bytes"));
    }
    if detail >= Detail::All {
        memory.max_usage = reader.number(folder, "memory.max_usage_in_bytes");
        memory.failcnt = reader.number(folder, "memory.failcnt");
        memory.kernel = reader.number(folder, "memory.kmem.usage_in_bytes");
        memory.reservation = limit(reader.number(folder, "memory.soft_limit_in_bytes"));
        if let Some(text) = reader.text(folder, "memory.oom_control") {
            each_pair(text, |name, value| {
                if name == "oom_kill" {
                    memory.oom_kills = Some(value);
                }
            });
        }
    }
    Some(memory)
}

fn disks(reader: &mut Reader, folder: &Path, disks: &mut Vec<DiskIo>) {
    for (file, bytes) in
        [("blkio.throttle.io_service_bytes_recursive", true), ("blkio.throttle.io_serviced_recursive", false)]
    {
        let Some(text) = reader.text(folder, file) else { continue };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(device), Some(what), Some(value)) = (words.next(), words.next(), words.next()) else { continue };
            let (Some(device), Ok(value)) = (parse_device(device), value.parse()) else { continue };
            let disk = disk_of(disks, device);
            match (what, bytes) {
                ("Read", true) => disk.read_bytes = value,
                ("Write", true) => disk.written_bytes = value,
                ("Read", false) => disk.reads = value,
                ("Write", false) => disk.writes = value,
                _ => {}
            }
        }
    }
}

/// `8:0`.
pub(super) fn parse_device(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The entry of a device, made if it is not there.
pub(super) fn disk_of(disks: &mut Vec<DiskIo>, device: (u32, u32)) -> &mut DiskIo {
    let index = disks.iter().position(|disk| disk.device == device).unwrap_or_else(|| {
        disks.push(DiskIo { device, ..DiskIo::default() });
        disks.len() - 1
    });
    &mut disks[index]
}

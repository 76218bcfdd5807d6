//! What the machine as a whole uses, from procfs. Blocking reads; see the parent module.

use std::fs;

use super::{Pressure, Reader, parse_psi};
use crate::api::runtime::UnixNanos;

/// The machine's memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineMemory {
    /// All.
    pub total: u64,
    /// In use for nothing.
    pub free: u64,
    /// Swap.
    pub swap_total: u64,
    /// Swap in use for nothing.
    pub swap_free: u64,
}

/// Processes of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineProcesses {
    /// How many there may be: the least of all limits.
    pub max: Option<u64>,
    /// How many tasks there are.
    pub current: Option<u64>,
}

/// What this process itself uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OwnProcess {
    /// Seconds of CPU.
    pub cpu_seconds: f64,
    /// Bytes resident.
    pub resident: u64,
    /// Bytes of address space.
    pub size: u64,
    /// Open files.
    pub descriptors: u64,
    /// Files it may open.
    pub max_descriptors: Option<u64>,
    /// Threads.
    pub threads: u64,
    /// When it started, nanoseconds since 1970.
    pub started_at: UnixNanos,
}

/// Counters of one block device, from /proc/diskstats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockDevice {
    /// Major and minor number.
    pub device: (u32, u32),
    /// Name, `sda1`.
    pub name: String,
    /// Reads, reads merged, sectors read, ms spent reading; the same of writes; in flight, ms of I/O, weighted ms.
    pub counters: [u64; 11],
}

impl Reader {
    /// /proc/meminfo.
    pub fn machine_memory(&mut self) -> Option<MachineMemory> {
        let text = self.proc_text("meminfo")?;
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name))?;
            value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
        };
        Some(MachineMemory {
            total: field("MemTotal:")?,
            free: field("MemFree:")?,
            swap_total: field("SwapTotal:").unwrap_or(0),
            swap_free: field("SwapFree:").unwrap_or(0),
        })
    }

    /// The machine's pressure, which there is on cgroup v1 too.
    pub fn machine_pressure(&mut self) -> Pressure {
        let mut psi = |name: &str| self.proc_text(name).and_then(parse_psi);
        Pressure { cpu: psi("pressure/cpu"), memory: psi("pressure/memory"), io: psi("pressure/io") }
    }

    /// How many processes there are and may be.
    pub fn machine_processes(&mut self) -> MachineProcesses {
        let mut number = |name: &str| self.proc_text(name)?.trim().parse::<u64>().ok();
        let limits = [number("sys/kernel/pid_max"), number("sys/kernel/threads-max")];
        // The fourth word of loadavg is "running/all".
        let current = self.proc_text("loadavg").and_then(|text| {
            let (_, all) = text.split_whitespace().nth(3)?.split_once('/')?;
            all.parse().ok()
        });
        MachineProcesses { max: limits.into_iter().flatten().min(), current }
    }

    /// When the machine was booted, nanoseconds since 1970.
    pub fn booted_at(&mut self) -> Option<UnixNanos> {
        let text = self.proc_text("stat")?;
        let seconds = text.lines().find_map(|line| line.strip_prefix("btime "))?;
        seconds.trim().parse::<i64>().ok()?.checked_mul(1_000_000_000)
    }

    /// This process.
    pub fn own_process(&mut self) -> Option<OwnProcess> {
        let booted_at = self.booted_at()?;
        let stat = self.proc_text("self/stat")?;
        // The name in brackets may hold anything; what counts follows the last bracket, from field 3 on.
        let (_, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        let field = |number: usize| fields.get(number - 3)?.trim().parse::<u64>().ok();
        let (user, system, threads, start) = (field(14)?, field(15)?, field(20)?, field(22)?);
        let (size, pages) = (field(23)?, field(24)?);
        #[expect(clippy::cast_precision_loss)]
        let cpu_seconds = (user + system) as f64 / 100.0;
        let max_descriptors = self.proc_text("self/limits").and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
            line.split_whitespace().next()?.parse().ok()
        });
        let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten().unwrap_or(4096);
        let started_at = booted_at.saturating_add(i64::try_from(start).ok()?.saturating_mul(10_000_000));
        self.path.as_mut_os_string().clear();
        self.path.push(&self.proc);
        self.path.push("self/fd");
        Some(OwnProcess {
            cpu_seconds,
            resident: pages.saturating_mul(u64::try_from(page).unwrap_or(4096)),
            size,
            // The one that looks is not counted.
            descriptors: fs::read_dir(&self.path).map_or(0, |entries| entries.count() as u64).saturating_sub(1),
            max_descriptors,
            threads,
            started_at,
        })
    }

    /// All block devices.
    pub fn block_devices(&mut self) -> Vec<BlockDevice> {
        let one = |line: &str| {
            let mut words = line.split_whitespace();
            let device = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let name = words.next()?.to_owned();
            let mut counters = [0; 11];
            for counter in &mut counters {
                *counter = words.next()?.parse().ok()?;
            }
            Some(BlockDevice { device, name, counters })
        };
        self.proc_text("diskstats").map(|text| text.lines().filter_map(one).collect()).unwrap_or_default()
    }
}

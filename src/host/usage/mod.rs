//! What a cgroup uses: CPU, memory, processes, disks and pressure, read from the kernel's files when somebody asks.
//!
//! Layer L1, blocking reads of cgroup and proc files on the caller's thread; the sync loop never calls it. A [`Reader`]
//! owns one path and one buffer and uses them for all files. Nothing is sampled and nothing is kept: rates need two
//! looks, and whoever wants one keeps the first. A figure that this kernel does not tell is `None`, which is not zero.

pub mod disk;
pub mod network;
pub mod node;
mod processes;
pub mod signals;
mod v1;
mod v2;

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::cgroup::{CgroupTree, CgroupVersion};
use crate::api::runtime::UnixNanos;
use crate::api::runtime_stats::{Psi, PsiData};

pub use processes::Processes;

/// Largest file that is read, as far as it goes.
const FILE_LIMIT: usize = 1 << 20;

/// How much is read of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// CPU time, memory and swap: what decides about scaling.
    CpuAndMemory,
    /// And limits, pressure and the number of processes.
    Summary,
    /// And all that dashboards of containers show.
    All,
}

/// CPU time and its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Nanoseconds of CPU used.
    pub usage: u64,
    /// Of them, outside the kernel.
    pub user: u64,
    /// Of them, in the kernel.
    pub system: u64,
    /// Periods in which anything ran, where there is a quota.
    pub periods: u64,
    /// Of them, those in which the quota was used up.
    pub throttled_periods: u64,
    /// Nanoseconds throttled.
    pub throttled: u64,
    /// Periods in which more than the quota was used.
    pub burst_periods: u64,
    /// Nanoseconds used above the quota.
    pub burst: u64,
    /// Shares, on the scale of cgroup v1.
    pub shares: Option<u64>,
    /// Microseconds allowed in each period; `None` without a quota.
    pub quota: Option<u64>,
    /// Length of a period in microseconds.
    pub period: Option<u64>,
}

/// Memory in bytes, and faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All of it, page cache included.
    pub usage: u64,
    /// Most that it ever was.
    pub max_usage: Option<u64>,
    /// Times that the limit was met.
    pub failcnt: Option<u64>,
    /// The limit; `None` without.
    pub limit: Option<u64>,
    /// The limit of swap: v1 counts memory and swap together, v2 swap alone; `None` without.
    pub swap_limit: Option<u64>,
    /// What is left to it when memory is short.
    pub reservation: Option<u64>,
    /// Page cache.
    pub cache: u64,
    /// Anonymous memory.
    pub rss: u64,
    /// Swap in use; `None` where the kernel does not count it.
    pub swap: Option<u64>,
    /// Mapped files.
    pub mapped_file: u64,
    /// Memory that the kernel holds for it.
    pub kernel: Option<u64>,
    /// Page faults, those of cgroups below included.
    pub faults: u64,
    /// Those that needed a disk.
    pub major_faults: u64,
    /// File pages used lately.
    pub active_file: u64,
    /// File pages not used lately.
    pub inactive_file: u64,
    /// Processes killed because memory ran out.
    pub oom_kills: Option<u64>,
}

impl Memory {
    /// What can't be taken away without harm, as upstream counts it: all but file pages not used lately.
    pub fn working_set(&self) -> u64 {
        self.usage.saturating_sub(self.inactive_file)
    }
}

/// Reads and writes on one block device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskIo {
    /// Major and minor number.
    pub device: (u32, u32),
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// Threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Threads {
    /// How many.
    pub current: u64,
    /// How many there may be; `None` without a limit.
    pub limit: Option<u64>,
}

/// Pressure of all kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// For CPU.
    pub cpu: Option<Psi>,
    /// For memory.
    pub memory: Option<Psi>,
    /// For disks.
    pub io: Option<Psi>,
}

/// What a cgroup uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CgroupUsage {
    /// CPU; `None` where nobody counts it.
    pub cpu: Option<Cpu>,
    /// Memory; likewise.
    pub memory: Option<Memory>,
    /// Threads; likewise.
    pub threads: Option<Threads>,
    /// Processes with what they have open.
    pub processes: Option<Processes>,
    /// Disks that it used.
    pub disks: Vec<DiskIo>,
    /// Pressure, on cgroup v2.
    pub pressure: Pressure,
}

/// Reads files with one path and one buffer.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    buffer: Vec<u8>,
    proc: PathBuf,
}

impl Reader {
    /// A reader; `proc` is where procfs is mounted.
    pub fn new(proc: impl Into<PathBuf>) -> Self {
        Self { path: PathBuf::with_capacity(256), buffer: vec![0; 4096], proc: proc.into() }
    }

    /// What a cgroup uses; `None` if it is gone. `cgroup` is its path within the tree, `/` for all of the machine.
    pub fn cgroup(&mut self, tree: &CgroupTree, cgroup: &Path, detail: Detail) -> Option<CgroupUsage> {
        let usage = match tree.version() {
            CgroupVersion::V1 => v1::read(self, tree, cgroup, detail),
            CgroupVersion::V2 => v2::read(self, tree, cgroup, detail),
        };
        (usage.cpu.is_some() || usage.memory.is_some()).then_some(usage)
    }

    /// When a cgroup was made, in nanoseconds since 1970.
    pub fn made_at(&mut self, tree: &CgroupTree, cgroup: &Path) -> Option<UnixNanos> {
        let folder = tree.stats_folder("memory", cgroup)?;
        // The folder's own time moves when children come and go; that of these files does not.
        let file = match tree.version() {
            CgroupVersion::V1 => "cgroup.clone_children",
            CgroupVersion::V2 => "cgroup.events",
        };
        let made = |path: &Path| {
            let found = std::fs::metadata(path).ok()?;
            Some(found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec()))
        };
        made(&folder.join(file)).into_iter().chain(made(&folder)).min()
    }

    /// The first process of a cgroup.
    pub fn first_process(&mut self, tree: &CgroupTree, cgroup: &Path) -> Option<u32> {
        let folder = tree.stats_folder("pids", cgroup).or_else(|| tree.stats_folder("memory", cgroup))?;
        self.text(&folder, "cgroup.procs")?.lines().find_map(|line| line.trim().parse().ok())
    }

    /// The text of a file in a folder, as far as it is UTF-8; `None` if it can't be read.
    fn text(&mut self, folder: &Path, name: &str) -> Option<&str> {
        self.path.as_mut_os_string().clear();
        self.path.push(folder);
        self.path.push(name);
        self.read()
    }

    /// The text of a file in procfs.
    fn proc_text(&mut self, name: impl AsRef<OsStr>) -> Option<&str> {
        self.path.as_mut_os_string().clear();
        self.path.push(&self.proc);
        self.path.push(Path::new(&name));
        self.read()
    }

    /// The whole file at the reader's path. Such files are made for each read: one that fills the buffer is read on.
    fn read(&mut self) -> Option<&str> {
        let mut file = File::open(&self.path).ok()?;
        let mut length = 0;
        loop {
            match file.read(&mut self.buffer[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
            if length == self.buffer.len() {
                if length >= FILE_LIMIT {
                    break;
                }
                self.buffer.resize(length * 4, 0);
            }
        }
        let text = &self.buffer[..length];
        match std::str::from_utf8(text) {
            Ok(text) => Some(text),
            Err(error) => std::str::from_utf8(&text[..error.valid_up_to()]).ok(),
        }
    }

    /// The number that a file holds; `None` for `max` and what is no number.
    fn number(&mut self, folder: &Path, name: &str) -> Option<u64> {
        self.text(folder, name)?.trim().parse().ok()
    }

    /// Pressure as a file tells it.
    fn psi(&mut self, folder: &Path, name: &str) -> Option<Psi> {
        parse_psi(self.text(folder, name)?)
    }
}

/// Calls `take` with the name and the number of each line.
fn each_pair(text: &str, mut take: impl FnMut(&str, u64)) {
    for line in text.lines() {
        if let Some((name, value)) = line.split_once(' ')
            && let Ok(value) = value.trim().parse()
        {
            take(name, value);
        }
    }
}

/// Reads pressure. The kernel tells microseconds in all and percent on average; a kernel that does not say "full" of CPU
/// says zero.
pub(super) fn parse_psi(text: &str) -> Option<Psi> {
    let mut psi = Psi::default();
    let mut some = false;
    for line in text.lines() {
        let mut words = line.split(' ');
        let data = match words.next()? {
            "some" => {
                some = true;
                &mut psi.some
            }
            "full" => &mut psi.full,
            _ => continue,
        };
        *data = psi_data(words)?;
    }
    some.then_some(psi)
}

fn psi_data<'a>(words: impl Iterator<Item = &'a str>) -> Option<PsiData> {
    let mut data = PsiData::default();
    for word in words {
        let (name, value) = word.split_once('=')?;
        match name {
            "avg10" => data.avg10 = value.parse().ok()?,
            "avg60" => data.avg60 = value.parse().ok()?,
            "avg300" => data.avg300 = value.parse().ok()?,
            "total" => data.total = value.parse().ok()?,
            _ => {}
        }
    }
    Some(data)
}

/// A limit above what any machine has is none; upstream draws the line here, as the kernel rounds its largest number.
fn limit(value: Option<u64>) -> Option<u64> {
    value.filter(|value| *value <= 1 << 62)
}

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;

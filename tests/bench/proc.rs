//! What /proc tells of one process: memory, threads, CPU time, wakeups, bytes written.
//!
//! Used from the main thread of the benchmark; owns nothing. It only reads files, and never stops or slows the process that it
//! looks at.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

/// Memory of a process in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// Each page divided by the number of its users, of which the benchmark is none: it maps the same libraries as the agent.
    pub(crate) pss: u64,
    /// Every page that is mapped and present.
    pub(crate) rss: u64,
    /// Pages that no other process has: what ending this process would give back.
    pub(crate) own: u64,
    /// Pages without a file behind them: heap and stacks.
    pub(crate) anonymous: u64,
}

/// Counters of one thread.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    pub(crate) name: String,
    /// Nanoseconds on a CPU.
    pub(crate) cpu: u64,
    /// Times that it went to sleep of its own accord, and so times that it was woken.
    pub(crate) sleeps: u64,
}

/// Counters of a process at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Counters {
    /// By thread id.
    pub(crate) threads: BTreeMap<u32, Thread>,
    /// Bytes that were to go to a disk.
    pub(crate) disk: u64,
    /// Bytes handed to write calls of any kind: files, pipes, event counters (8 bytes for each wakeup).
    pub(crate) written: u64,
}

/// Clock ticks in a second, as /proc tells them to every program on Linux.
const TICKS: f64 = 100.0;

/// One process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(pub(crate) u32);

impl Process {
    fn file(self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.0))
    }

    fn text(self, name: &str) -> Result<String, String> {
        let path = self.file(name);
        fs::read_to_string(&path).map_err(|error| format!("read {}: {error}", path.display()))
    }

    /// Its memory now.
    pub(crate) fn memory(self) -> Result<Memory, String> {
        let ours = Process(std::process::id()).text("maps")?;
        let ours: BTreeSet<&str> = ours.lines().filter_map(mapped_file).collect();
        let text = self.text("smaps")?;
        let mut memory = Memory::default();
        for mapping in mappings(&text) {
            let bytes = |key: &str| field(mapping, key) * 1024;
            let own = bytes("Private_Clean:") + bytes("Private_Dirty:");
            let pss = bytes("Pss:");
            let shared = bytes("Shared_Clean:") + bytes("Shared_Dirty:");
            memory.pss += match mapping.lines().next().and_then(mapped_file) {
                Some(file) if ours.contains(file) => own + without_one(shared, pss.saturating_sub(own)),
                Some(_) | None => pss,
            };
            memory.rss += bytes("Rss:");
            memory.own += own;
            memory.anonymous += bytes("Anonymous:");
        }
        Ok(memory)
    }

    /// Seconds on a CPU so far, those of ended threads too.
    pub(crate) fn cpu(self) -> Result<f64, String> {
        let text = self.text("stat")?;
        // After the name in brackets, which may hold anything: the 12th and 13th word are user and system time.
        let after = text.rfind(')').and_then(|at| text.get(at + 1..)).unwrap_or_default();
        let ticks: u64 = after.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum();
        Ok(ticks as f64 / TICKS)
    }

    /// Its counters now.
    pub(crate) fn counters(self) -> Result<Counters, String> {
        let folder = self.file("task");
        let tasks = fs::read_dir(&folder).map_err(|error| format!("read {}: {error}", folder.display()))?;
        let mut threads = BTreeMap::new();
        for task in tasks.flatten() {
            let Some(id) = task.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let read = |name: &str| fs::read_to_string(task.path().join(name));
            // A thread may end between the listing and the look.
            let (Ok(name), Ok(status), Ok(schedule)) = (read("comm"), read("status"), read("schedstat")) else {
                continue;
            };
            let cpu = schedule.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0);
            let sleeps = field(&status, "voluntary_ctxt_switches:");
            threads.insert(id, Thread { name: name.trim_end().to_owned(), cpu, sleeps });
        }
        let io = self.text("io")?;
        Ok(Counters { threads, disk: field(&io, "write_bytes:"), written: field(&io, "wchar:") })
    }
}

/// The parts of smaps, one for each mapping: a line that begins with an address, and its numbers.
fn mappings(smaps: &str) -> impl Iterator<Item = &str> {
    let is_head = |line: &str| line.split(' ').next().is_some_and(|word| word.contains('-') && !word.ends_with(':'));
    let mut begins: Vec<usize> = Vec::new();
    let mut at = 0;
    for line in smaps.split_inclusive('\n') {
        if is_head(line) {
            begins.push(at);
        }
        at += line.len();
    }
    let ends: Vec<usize> = begins.iter().skip(1).copied().chain([smaps.len()]).collect();
    begins.into_iter().zip(ends).map(|(begin, end)| &smaps[begin..end])
}

/// The file that a line of maps or smaps names.
fn mapped_file(line: &str) -> Option<&str> {
    let at = line.find(" /")?;
    Some(&line[at + 1..])
}

/// The share of `shared` bytes when one of their users goes away; `part` is the share with all of them.
fn without_one(shared: u64, part: u64) -> u64 {
    if part == 0 {
        return 0;
    }
    let others = (shared as f64 / part as f64 - 1.0).max(1.0);
    (shared as f64 / others) as u64
}

/// The number after `key` in a file of lines `key number`; 0 if it is not there.
fn field(text: &str, key: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The machine's load: the three averages, and how many wait for a CPU now.
pub(crate) fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        [one, five, fifteen, now, ..] => format!("load {one} {five} {fifteen}, {now} runnable"),
        _ => "load unknown".to_owned(),
    }
}

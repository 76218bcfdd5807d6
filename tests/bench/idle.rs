//! What an agent costs while nothing happens.
//!
//! Used from the main thread of the benchmark. An agent is left alone for a while, so that threads that a start needed have
//! ended, and its counters are read at both ends of a window. Never asks the agent or the runtime anything inside the window.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::agent::Agent;
use crate::proc::{Memory, Thread, load};

/// Workers that have nothing to do end after ten seconds; then the agent is what it stays.
const SETTLE: Duration = Duration::from_secs(13);

/// What was seen.
pub(crate) struct Idle {
    pub(crate) pods: usize,
    pub(crate) memory: Memory,
    pub(crate) threads: usize,
    /// Seconds on a CPU in a minute.
    pub(crate) cpu: f64,
    /// Wakeups in a second.
    pub(crate) wakeups: f64,
    /// Bytes to a disk in a minute.
    pub(crate) disk: f64,
    /// Bytes handed to write calls in a minute, the log's not counted.
    pub(crate) written: f64,
    /// Bytes of log in a minute.
    pub(crate) logged: f64,
    pub(crate) load: String,
    /// The threads that did something, the busiest first: name, CPU microseconds and wakeups in a minute.
    pub(crate) busy: Vec<(String, f64, f64)>,
}

/// Watches an agent for `window`.
pub(crate) fn watch(agent: &Agent<'_>, pods: usize, window: Duration) -> Result<Idle, String> {
    std::thread::sleep(SETTLE);
    let process = agent.process();
    let (first, logged, begin) = (process.counters()?, agent.logged(), Instant::now());
    std::thread::sleep(window);
    let (last, took) = (process.counters()?, begin.elapsed());
    let a_minute = |count: u64| count as f64 * 60.0 / took.as_secs_f64();
    let logged = agent.logged() - logged;
    let mut by_name: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (id, thread) in &last.threads {
        let none = Thread { name: String::new(), cpu: 0, sleeps: 0 };
        let before = first.threads.get(id).unwrap_or(&none);
        let sum = by_name.entry(thread.name.clone()).or_default();
        sum.0 += thread.cpu - before.cpu;
        sum.1 += thread.sleeps - before.sleeps;
    }
    let (cpu, sleeps) = by_name.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let mut busy: Vec<_> = by_name.into_iter().filter(|(_, (cpu, _))| *cpu > 0).collect();
    busy.sort_by_key(|(_, (cpu, _))| std::cmp::Reverse(*cpu));
    Ok(Idle {
        pods,
        memory: process.memory()?,
        threads: last.threads.len(),
        cpu: a_minute(cpu) / 1e9,
        wakeups: sleeps as f64 / took.as_secs_f64(),
        disk: a_minute(last.disk - first.disk),
        written: a_minute((last.written - first.written).saturating_sub(logged)),
        logged: a_minute(logged),
        load: load(),
        busy: busy.into_iter().map(|(name, (cpu, sleeps))| (name, a_minute(cpu) / 1e3, a_minute(sleeps))).collect(),
    })
}

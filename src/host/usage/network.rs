//! Traffic of a network namespace, as any process in it sees it. Blocking reads; see the parent module.

use super::Reader;

/// Counters of one network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Name, `eth0`.
    pub name: String,
    /// Received: bytes, packets, errors, dropped.
    pub received: Traffic,
    /// Sent.
    pub sent: Traffic,
}

/// One direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Errors.
    pub errors: u64,
    /// Dropped packets.
    pub dropped: u64,
}

impl Reader {
    /// The interfaces that a process sees, its loopback and what stands for others' (veth, docker) left out, as upstream
    /// does. None if the process is gone.
    pub fn interfaces(&mut self, pid: u32) -> Vec<Interface> {
        self.proc_text(format!("{pid}/net/dev")).map(parse).unwrap_or_default()
    }
}

/// Reads /proc/PID/net/dev.
pub(super) fn parse(text: &str) -> Vec<Interface> {
    let ignored =
        |name: &str| name == "lo" || ["veth", "docker", "nerdctl"].iter().any(|begin| name.starts_with(begin));
    let one = |line: &str| {
        let (name, counters) = line.split_once(':')?;
        let name = name.trim();
        if ignored(name) {
            return None;
        }
        let numbers: Vec<u64> = counters.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let traffic = |from: usize| {
            let [bytes, packets, errors, dropped] = *numbers.get(from..from + 4)? else { return None };
            Some(Traffic { bytes, packets, errors, dropped })
        };
        Some(Interface { name: name.to_owned(), received: traffic(0)?, sent: traffic(8)? })
    };
    text.lines().filter_map(one).collect()
}

//! Processes of a cgroup: how many, and what they have open. Blocking reads; see the parent module.

use std::fs;
use std::path::Path;

use super::{Detail, Reader};

/// Processes whose open files are counted; a cgroup with more tells of the first ones.
const COUNTED: usize = 4096;

/// Processes and what they have open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processes {
    /// How many.
    pub count: u64,
    /// Open file descriptors, sockets included; counted at [`Detail::All`] only.
    pub descriptors: u64,
    /// Of them, sockets.
    pub sockets: u64,
    /// Files that the first process may open; likewise.
    pub max_open_files: Option<u64>,
}

impl Reader {
    /// The processes in a cgroup's folder, those of cgroups below not included.
    pub(super) fn processes(&mut self, folder: &Path, detail: Detail) -> Option<Processes> {
        let text = self.text(folder, "cgroup.procs")?;
        let mut found = Processes { count: text.lines().count() as u64, ..Processes::default() };
        if detail < Detail::All {
            return Some(found);
        }
        let pids: Vec<u32> = text.lines().take(COUNTED).filter_map(|line| line.parse().ok()).collect();
        found.max_open_files = pids.first().and_then(|pid| {
            let limits = self.proc_text(format!("{pid}/limits"))?;
            let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
            line.split_whitespace().next()?.parse().ok()
        });
        for pid in pids {
            self.path.as_mut_os_string().clear();
            self.path.push(&self.proc);
            self.path.push(pid.to_string());
            self.path.push("fd");
            // It has ended meanwhile, or is nobody's to look at.
            let Ok(entries) = fs::read_dir(&self.path) else { continue };
            for entry in entries.flatten() {
                found.descriptors += 1;
                let is_socket = fs::read_link(entry.path())
                    .is_ok_and(|target| target.as_os_str().as_encoded_bytes().starts_with(b"socket:"));
                found.sockets += u64::from(is_socket);
            }
        }
        Some(found)
    }
}

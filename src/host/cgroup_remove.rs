//! The end of a pod's cgroup: what is left in it, how it is emptied and removed, and which are there.
//!
//! Layer L1, blocking, called by pod workers and housekeeping; `destroy` takes at most about a second.
//! Owns nothing. It never removes anything but the cgroup of a pod, and never signals itself, process 1
//! or a process of another process namespace.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::HostError;
use super::cgroup::{CgroupTree, CgroupVersion, QosLevel, pod_uid, read_file, slice_name, write_file};
use crate::api::PodUid;
use crate::util::order;

/// How deep a container may have nested cgroups of its own.
const DEPTH_LIMIT: usize = 32;
/// How many cgroups below one pod are removed in one call.
const COUNT_LIMIT: usize = 4096;
/// Tries to empty and remove; the pause doubles each time from [`FIRST_PAUSE`] on: 630 ms in all.
const TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// What the kernel tells about memory running out in a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OomFacts {
    /// v2 only: whether all processes of the cgroup die together.
    pub group: Option<bool>,
    /// Processes killed so far, where the kernel counts them.
    pub kills: Option<u64>,
}

impl CgroupTree {
    /// The pods that have a cgroup, in any hierarchy: path in the tree and uid, in order of the path.
    pub fn list_pods(&self) -> Result<Vec<(PathBuf, PodUid)>, HostError> {
        let mut found = BTreeMap::new();
        for qos in QosLevel::ALL {
            let level = self.level(qos);
            for folder in self.folders(&level) {
                let entries = match fs::read_dir(&folder) {
                    Ok(entries) => entries,
                    Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                    Err(e) => return Err(HostError::io("list cgroups in", &folder, e)),
                };
                for entry in entries {
                    let entry = entry.map_err(|e| HostError::io("list cgroups in", &folder, e))?;
                    let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                    if let Some(uid) = entry.file_name().to_str().and_then(pod_uid)
                        && is_folder
                    {
                        found.insert(level.join(entry.file_name()), uid);
                    }
                }
            }
        }
        Ok(found.into_iter().collect())
    }

    /// Kills whatever is left in a pod's cgroup and removes it from every hierarchy, deepest first. A
    /// cgroup that is not there is a success. Bounded: after some 600 ms it gives up with
    /// [`HostError::CgroupBusy`], to be tried again later.
    pub fn destroy(&self, cgroup: &Path) -> Result<(), HostError> {
        self.check_pod(cgroup, "remove cgroup")?;
        let folders = self.folders(cgroup);
        let mut pause = FIRST_PAUSE;
        for attempt in 1..=TRIES {
            let mut failed = None;
            for folder in &folders {
                let stop = || self.stop_slice(cgroup, folder);
                if let Err(e) = self.empty(folder).and_then(|()| stop()).and_then(|()| remove_tree(folder)) {
                    failed = Some(e);
                }
            }
            match failed {
                None => return Ok(()),
                Some(e) if attempt == TRIES => return Err(self.why_busy(&folders, e)),
                Some(_) => std::thread::sleep(pause),
            }
            pause *= 2;
        }
        Ok(())
    }

    /// What is known about memory running out in a cgroup; for `singleProcessOOMKill`.
    pub fn oom_facts(&self, cgroup: &Path) -> OomFacts {
        let Some(folder) = self.controller_folder("memory", cgroup) else { return OomFacts::default() };
        let (group, events) = match self.version() {
            CgroupVersion::V1 => (None, "memory.oom_control"),
            CgroupVersion::V2 => {
                let group = read_file(&folder.join("memory.oom.group")).ok();
                (group.map(|text| text.trim() == "1"), "memory.events")
            }
        };
        let text = read_file(&folder.join(events)).unwrap_or_default();
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok());
        OomFacts { group, kills }
    }

    /// Has systemd let go of a slice whose folder is there.
    fn stop_slice(&self, cgroup: &Path, folder: &Path) -> Result<(), HostError> {
        match (&self.units, slice_name(cgroup)) {
            (Some(units), Some(slice)) if folder.is_dir() => {
                units.stop(slice).map_err(|e| HostError::systemd("end", slice, e))
            }
            _ => Ok(()),
        }
    }

    fn empty(&self, folder: &Path) -> Result<(), HostError> {
        let pids = pids_below(folder)?;
        if pids.is_empty() {
            return Ok(());
        }
        // The kernel's own way (5.14 and later) also catches what forks meanwhile.
        if self.version() == CgroupVersion::V2 && write_file(&folder.join("cgroup.kill"), "1").is_ok() {
            return Ok(());
        }
        let own = std::process::id();
        for pid in pids {
            if pid > 1 && u32::try_from(pid) != Ok(own) {
                // A process that is gone by now is what we want; one that will not go shows as busy.
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        Ok(())
    }

    fn why_busy(&self, folders: &[PathBuf], error: HostError) -> HostError {
        for folder in folders {
            let mut pids = pids_below(folder).unwrap_or_default();
            if !pids.is_empty() {
                pids.truncate(16);
                return HostError::CgroupBusy { path: folder.clone(), pids };
            }
        }
        error
    }
}

/// Process ids in a cgroup and all below it.
fn pids_below(folder: &Path) -> Result<Vec<i32>, HostError> {
    let mut pids = Vec::new();
    for folder in tree(folder)? {
        match read_file(&folder.join("cgroup.procs")) {
            Ok(text) => pids.extend(text.lines().filter_map(|line| line.trim().parse::<i32>().ok())),
            Err(e) if e.is_not_found() => {}
            // A threaded v2 cgroup lists no processes; its threads are those of the cgroup above it.
            Err(HostError::Io { source, .. }) if source.raw_os_error() == Some(nix::libc::EOPNOTSUPP) => {}
            Err(e) => return Err(e),
        }
    }
    order::sort(&mut pids);
    pids.dedup();
    Ok(pids)
}

fn remove_tree(folder: &Path) -> Result<(), HostError> {
    for folder in tree(folder)?.iter().rev() {
        match fs::remove_dir(folder) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(HostError::io("remove cgroup", folder, e)),
        }
    }
    Ok(())
}

/// The folder and all below it, each before its children; empty if it is not there.
fn tree(top: &Path) -> Result<Vec<PathBuf>, HostError> {
    if !top.is_dir() {
        return Ok(Vec::new());
    }
    let mut found = vec![(top.to_path_buf(), 0)];
    let mut next = 0;
    while let Some((folder, depth)) = found.get(next).cloned() {
        next += 1;
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(HostError::io("list cgroups in", &folder, e)),
        };
        for entry in entries.flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if depth == DEPTH_LIMIT || found.len() == COUNT_LIMIT {
                let why = format!("more than {DEPTH_LIMIT} levels or {COUNT_LIMIT} cgroups in it");
                return Err(HostError::refused("walk through cgroup", top, why));
            }
            found.push((entry.path(), depth + 1));
        }
    }
    Ok(found.into_iter().map(|(folder, _)| folder).collect())
}

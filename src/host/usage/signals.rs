//! How much of what may run short there is left: memory, disks, process ids.
//!
//! Blocking reads on the `node` thread, some eight small files in all. A local file system tells its room without
//! touching the disk; one over a network is asked on a thread that may hang, for a moment only. What can't be read is
//! left out. It judges nothing.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::disk::{DiskUsage, Measure, Question, Room, file_system};
use super::{Detail, Reader};
use crate::api::pressure::{Level, Levels, Signal};
use crate::api::runtime_stats::ImageFs;
use crate::host::cgroup::CgroupTree;
use crate::host::mounts::MountTable;

/// How long a file system over a network may take; then its last answer counts.
const PATIENCE: Duration = Duration::from_secs(1);
/// File systems that another machine or program answers for, by the beginnings of their types.
const REMOTE: [&str; 8] = ["nfs", "cifs", "smb", "ceph", "9p", "fuse", "glusterfs", "lustre"];

/// Reads the signals of one machine.
#[derive(Debug)]
pub struct SignalReader {
    reader: Reader,
    cgroups: Option<CgroupTree>,
    /// The machine's memory in bytes.
    memory: u64,
    mount_table: PathBuf,
    disks: DiskUsage,
    node: Place,
    images: Option<Place>,
    layers: Option<Place>,
}

/// A folder on a file system.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    is_remote: bool,
}

impl SignalReader {
    /// A reader. Without `cgroups` nothing is read of memory; `memory` is all that the machine has, `root_dir` the
    /// agent's folder, `proc` where procfs is mounted.
    pub fn new(cgroups: Option<CgroupTree>, memory: u64, root_dir: &Path, proc: &Path, mount_table: &Path) -> Self {
        Self {
            reader: Reader::new(proc),
            cgroups,
            memory,
            mount_table: mount_table.to_path_buf(),
            disks: DiskUsage::default(),
            node: Place::find(root_dir, mount_table),
            images: None,
            layers: None,
        }
    }

    /// Takes the runtime's word about where images and writable layers lie.
    pub fn set_images(&mut self, told: &ImageFs) {
        let first = |list: &[crate::api::runtime_stats::FilesystemUsage]| {
            let path = Path::new(&list.first()?.mountpoint);
            path.is_absolute().then(|| Place::find(path, &self.mount_table))
        };
        let (images, layers) = (first(&told.images), first(&told.containers));
        // Most runtimes name one place for both.
        self.layers = layers.filter(|layers| images.as_ref().is_none_or(|images| !layers.is_beside(images)));
        self.images = images;
    }

    /// Reads all.
    pub fn read(&mut self) -> Levels {
        let mut levels = Levels::new();
        let mut add = |signal, available: u64, whole: u64| levels.push((signal, Level { available, whole }));
        if let Some(tree) = &self.cgroups {
            let mut working_set = |cgroup: &Path| self.reader.cgroup(tree, cgroup, Detail::CpuAndMemory)?.memory;
            if let Some(used) = working_set(Path::new("/")) {
                add(Signal::MemoryAvailable, self.memory.saturating_sub(used.working_set()), self.memory);
            }
            // Without a limit for all pods the machine's memory is what they have.
            if let Some(used) = working_set(tree.kubepods())
                && let Some(limit) = used.limit
            {
                add(Signal::AllocatableMemoryAvailable, limit.saturating_sub(used.working_set()), limit);
            }
        }
        let places = [
            (Some(&self.node), Signal::NodeFsAvailable, Signal::NodeFsInodesFree),
            (self.images.as_ref(), Signal::ImageFsAvailable, Signal::ImageFsInodesFree),
            (self.layers.as_ref(), Signal::ContainerFsAvailable, Signal::ContainerFsInodesFree),
        ];
        for (place, bytes, inodes) in places {
            let Some(room) = place.and_then(|place| place.room(&self.disks)) else { continue };
            add(bytes, room.available, room.capacity);
            // A file system that makes inodes as it needs them has none to run out of.
            if room.inodes > 0 {
                add(inodes, room.inodes_free, room.inodes);
            }
        }
        let processes = self.reader.machine_processes();
        if let (Some(max), Some(current)) = (processes.max, processes.current) {
            add(Signal::PidAvailable, max.saturating_sub(current), max);
        }
        levels
    }
}

impl Place {
    fn find(path: &Path, mount_table: &Path) -> Self {
        let table = MountTable::read(mount_table).unwrap_or_default();
        let is_remote = path.ancestors().find_map(|above| {
            let mount = table.entries().iter().rev().find(|mount| mount.mount_point == above)?;
            Some(REMOTE.iter().any(|kind| mount.fs_type.starts_with(kind)))
        });
        Self { path: path.to_path_buf(), is_remote: is_remote.unwrap_or(false) }
    }

    fn room(&self, disks: &DiskUsage) -> Option<Room> {
        if !self.is_remote {
            return file_system(&self.path);
        }
        let question = Question { path: self.path.clone(), measure: Measure::FileSystem };
        disks.ask(&[question], Duration::ZERO, PATIENCE).into_iter().next().flatten().map(|measured| measured.room)
    }

    /// Whether both are on one file system. What is remote is not asked.
    fn is_beside(&self, other: &Self) -> bool {
        let device = |place: &Self| std::fs::metadata(&place.path).ok().map(|found| found.dev());
        self.path == other.path || (!self.is_remote && !other.is_remote && device(self) == device(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::runtime_stats::FilesystemUsage;
    use std::fs;

    fn on(path: &Path) -> Vec<FilesystemUsage> {
        vec![FilesystemUsage { mountpoint: path.display().to_string(), ..FilesystemUsage::default() }]
    }

    fn names(reader: &mut SignalReader) -> Vec<&'static str> {
        reader.read().into_iter().map(|(signal, _)| signal.as_str()).collect()
    }

    #[test]
    fn the_machine_tells_what_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let proc = dir.path().join("proc");
        fs::create_dir_all(proc.join("sys/kernel")).unwrap();
        fs::write(proc.join("sys/kernel/pid_max"), "4096\n").unwrap();
        fs::write(proc.join("sys/kernel/threads-max"), "1000\n").unwrap();
        fs::write(proc.join("loadavg"), "0.1 0.1 0.1 2/300 77\n").unwrap();
        let mut reader = SignalReader::new(None, 1 << 30, dir.path(), &proc, &dir.path().join("no-table"));
        let levels = reader.read();
        let pids = levels.iter().find(|(signal, _)| *signal == Signal::PidAvailable).map(|(_, level)| *level);
        assert_eq!(pids, Some(Level { available: 700, whole: 1000 }));
        let node = levels.iter().find(|(signal, _)| *signal == Signal::NodeFsAvailable).map(|(_, level)| *level);
        let room = file_system(dir.path()).unwrap();
        assert_eq!(node.map(|level| level.whole), Some(room.capacity));
        fs::remove_file(proc.join("loadavg")).unwrap();
        assert!(!names(&mut reader).contains(&"pid.available"), "what can't be read is left out");
    }

    #[test]
    fn writable_layers_count_where_they_lie_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let mut reader = SignalReader::new(None, 1, dir.path(), Path::new("/proc"), &dir.path().join("no-table"));
        let mut check = |images: &Path, containers: &[&Path], expect: &[&str]| {
            let containers = containers.iter().flat_map(|path| on(path)).collect();
            reader.set_images(&ImageFs { images: on(images), containers });
            let found = names(&mut reader);
            let found: Vec<_> = found.into_iter().filter(|name| name.contains("fs.available")).collect();
            assert_eq!(found, expect, "{}", images.display());
        };
        check(dir.path(), &[], &["nodefs.available", "imagefs.available"]);
        check(dir.path(), &[dir.path()], &["nodefs.available", "imagefs.available"]);
        check(
            dir.path(),
            &[Path::new("/proc/self")],
            &["nodefs.available", "imagefs.available", "containerfs.available"],
        );
        check(Path::new("gone"), &[], &["nodefs.available"]);
        check(&dir.path().join("gone"), &[], &["nodefs.available"]);
    }

    #[test]
    fn a_file_system_over_a_network_is_asked_by_a_thread_that_may_hang() {
        let dir = tempfile::tempdir().unwrap();
        let table = dir.path().join("table");
        let lines = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:9 / /data rw - nfs4 server:/x rw\n\
                     3 2 8:2 / /data/local rw - xfs /dev/sdb rw\n4 1 0:8 / /f rw - fuse.sshfs a:/ rw\n";
        fs::write(&table, lines).unwrap();
        for (path, expect) in
            [("/var/lib", false), ("/data/x", true), ("/data/local/x", false), ("/f", true), ("/database", false)]
        {
            assert_eq!(Place::find(Path::new(path), &table).is_remote, expect, "{path}");
        }
        let place = Place { path: dir.path().to_path_buf(), is_remote: true };
        assert!(place.room(&DiskUsage::default()).is_some());
    }
}

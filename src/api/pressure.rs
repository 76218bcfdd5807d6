//! What of a node may run short, how much of it there is, and the conditions that tell of it.
//!
//! Layer L0, plain values.

/// Something that may run short, by the name that eviction thresholds have for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// Memory of the machine.
    MemoryAvailable,
    /// Memory that all pods together may still take.
    AllocatableMemoryAvailable,
    /// Bytes on the file system of the root folder.
    NodeFsAvailable,
    /// Inodes there.
    NodeFsInodesFree,
    /// Bytes on the file system of images.
    ImageFsAvailable,
    /// Inodes there.
    ImageFsInodesFree,
    /// Bytes on the file system of writable layers, where that is another one than that of images.
    ContainerFsAvailable,
    /// Inodes there.
    ContainerFsInodesFree,
    /// Process ids.
    PidAvailable,
}

impl Signal {
    /// All, with their names.
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::MemoryAvailable, "memory.available"),
        (Self::AllocatableMemoryAvailable, "allocatableMemory.available"),
        (Self::NodeFsAvailable, "nodefs.available"),
        (Self::NodeFsInodesFree, "nodefs.inodesFree"),
        (Self::ImageFsAvailable, "imagefs.available"),
        (Self::ImageFsInodesFree, "imagefs.inodesFree"),
        (Self::ContainerFsAvailable, "containerfs.available"),
        (Self::ContainerFsInodesFree, "containerfs.inodesFree"),
        (Self::PidAvailable, "pid.available"),
    ];

    /// Reads a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find_map(|(signal, its)| (its == name).then_some(signal))
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        Self::ALL.into_iter().find_map(|(signal, name)| (signal == self).then_some(name)).unwrap_or_default()
    }
}

/// How much there is of something: bytes, inodes or process ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// What is left.
    pub available: u64,
    /// All of it.
    pub whole: u64,
}

/// What was read: a signal that could not be is missing.
pub type Levels = Vec<(Signal, Level)>;

/// The conditions that hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressures {
    /// MemoryPressure.
    pub memory: bool,
    /// DiskPressure: room or inodes on a disk.
    pub disk: bool,
    /// PIDPressure: process ids.
    pub pid: bool,
}

impl Pressures {
    /// The names of those that hold.
    pub fn names(self) -> Vec<&'static str> {
        let all = [(self.memory, "MemoryPressure"), (self.disk, "DiskPressure"), (self.pid, "PIDPressure")];
        all.into_iter().filter_map(|(holds, name)| holds.then_some(name)).collect()
    }
}

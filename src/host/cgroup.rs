//! The pod cgroup tree: `kubepods[/burstable|/besteffort]/pod<uid>` on cgroup v1 and v2, or slices of systemd's
//! (`kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice`) on v2.
//!
//! Layer L1, blocking file access, called by pod workers (ensure, update), housekeeping (list, destroy)
//! and start-up (open). [`CgroupTree`] owns only where the hierarchies are; the kernel owns the rest.
//! It never touches a cgroup outside the tree under `cgroupRoot`.
//!
//! With the systemd driver systemd makes and removes the folders (`bus::units`) and knows the values that it has words for, so that
//! it does not take them away; all values are written to the files as well.
//!
//! cgroups-rs sets and reads the cpu, memory and pids values (`cgroup_values`): its controllers take a
//! folder and know the file names of both versions. Everything else is small direct file access,
//! because there the crate has `/sys/fs/cgroup` and `/proc/self/mountinfo` built in (tests need a
//! folder of their own), takes a hybrid machine apart wrongly when v1 mounts are missing, swallows
//! errors of mkdir, and needs its regular expressions for huge pages.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::HostError;
use super::bus::{self, units::Units};
use super::cgroup_values::{self, CgroupValues};
use super::mounts::MountTable;
use crate::api::PodUid;
use crate::util::order::Gather;

/// Where control groups are mounted.
pub const CGROUP_MOUNT: &str = "/sys/fs/cgroup";

/// Name of the cgroup above all pods.
pub const KUBEPODS: &str = "kubepods";

/// CPU shares of the best-effort level: the least the kernel knows.
pub const BEST_EFFORT_SHARES: u64 = 2;

/// Controllers that pods need; those of them that the machine lacks are told once.
const WANTED: [&str; 5] = ["cpu", "cpuset", "memory", "pids", "hugetlb"];

/// Largest cgroup file that is read.
const FILE_LIMIT: u64 = 1 << 20;

/// Which interface the kernel offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    /// One hierarchy per controller; a hybrid machine counts as this, as upstream has it.
    V1,
    /// One hierarchy for all.
    V2,
}

/// Who makes the cgroups (`cgroupDriver`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// This agent, with plain folders.
    Cgroupfs,
    /// systemd, over D-Bus.
    Systemd,
}

impl std::fmt::Display for CgroupDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Cgroupfs => "cgroupfs",
            Self::Systemd => "systemd",
        })
    }
}

/// Quality-of-service level of a pod: where in the tree it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QosLevel {
    /// Directly under kubepods.
    Guaranteed,
    /// Under `burstable`.
    Burstable,
    /// Under `besteffort`.
    BestEffort,
}

impl QosLevel {
    /// All levels.
    pub const ALL: [Self; 3] = [Self::Guaranteed, Self::Burstable, Self::BestEffort];

    /// Name of its cgroup; `None` for guaranteed pods, which have no level of their own.
    pub fn cgroup_name(self) -> Option<&'static str> {
        match self {
            Self::Guaranteed => None,
            Self::Burstable => Some("burstable"),
            Self::BestEffort => Some("besteffort"),
        }
    }
}

/// One mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hierarchy {
    /// Where it is mounted.
    pub(super) mount_point: PathBuf,
    /// Its controllers; for v1 `name=systemd` too, for v2 those the root offers.
    pub(super) controllers: BTreeSet<String>,
}

/// The tree of pod cgroups on this machine.
#[derive(Clone, Debug)]
pub struct CgroupTree {
    version: CgroupVersion,
    hierarchies: Vec<Hierarchy>,
    /// The v2 hierarchy of a hybrid machine: made by others, cleaned up by us.
    hybrid: Option<PathBuf>,
    /// `cgroupRoot` and kubepods, absolute within each hierarchy.
    kubepods: PathBuf,
    /// Who makes them; `None` for this agent itself.
    pub(super) units: Option<Arc<Units>>,
}

impl CgroupTree {
    /// Finds out how control groups are mounted. `mount_table` is a mountinfo file, `cgroup_mount` the
    /// folder of [`CGROUP_MOUNT`], `cgroup_root` the setting of that name (`/` or empty for the top).
    ///
    /// # Errors
    /// The systemd driver on cgroup v1, a root that leaves the hierarchy, no cgroups at all.
    pub fn open(
        mount_table: &Path,
        cgroup_mount: &Path,
        cgroup_root: &str,
        driver: CgroupDriver,
    ) -> Result<Self, HostError> {
        let root = relative(cgroup_root).ok_or_else(|| {
            HostError::refused("use as cgroupRoot", cgroup_root, "it must be a path without .. in the cgroup tree")
        })?;
        let table = MountTable::read(mount_table)?;
        let (version, hierarchies, hybrid) = detect(&table, cgroup_mount)?;
        if driver == CgroupDriver::Systemd && version == CgroupVersion::V1 {
            return Err(HostError::Unsupported {
                what: "cgroupDriver systemd on a machine with cgroup v1".to_owned(),
                why: "boot with systemd.unified_cgroup_hierarchy=1, or set cgroupDriver: cgroupfs here and in the container \
                      runtime (containerd: SystemdCgroup = false)"
                    .to_owned(),
            });
        }
        let units = (driver == CgroupDriver::Systemd).then(|| Arc::new(Units::new(&bus::system_bus())));
        let mut tree = Self { version, hierarchies, hybrid, kubepods: PathBuf::from("/"), units };
        for part in root.iter().filter_map(|part| part.to_str()).chain([KUBEPODS]) {
            tree.kubepods = tree.child(&tree.kubepods, part);
        }
        Ok(tree)
    }

    /// Who makes the cgroups.
    pub fn driver(&self) -> CgroupDriver {
        if self.units.is_some() { CgroupDriver::Systemd } else { CgroupDriver::Cgroupfs }
    }

    /// A cgroup in another one, by the last part of its name.
    fn child(&self, parent: &Path, name: &str) -> PathBuf {
        if self.units.is_none() {
            return parent.join(name);
        }
        let name = name.replace('-', "_");
        let above = parent.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".slice"));
        parent.join(above.map_or_else(|| format!("{name}.slice"), |above| format!("{above}-{name}.slice")))
    }

    /// v1 or v2.
    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    /// Controllers that pods will not have: not offered here, or (v2, once kubepods is there) not handed
    /// down to it. Their limits are not in force. To be told once, after [`CgroupTree::ensure_levels`].
    pub fn missing_controllers(&self) -> Vec<String> {
        let offered = |name: &str| self.hierarchies.iter().any(|h| h.controllers.contains(name));
        let handed_down = match self.version {
            CgroupVersion::V1 => None,
            CgroupVersion::V2 => {
                let first = self.hierarchies.first();
                first.and_then(|h| read_file(&h.folder(&self.kubepods).join("cgroup.controllers")).ok())
            }
        };
        let has = |name: &str| {
            offered(name) && handed_down.as_ref().is_none_or(|list| list.split_whitespace().any(|word| word == name))
        };
        WANTED.iter().filter(|name| !has(name)).map(|name| (*name).to_owned()).collect()
    }

    /// The cgroup above all pods, e.g. `/kubepods`.
    pub fn kubepods(&self) -> &Path {
        &self.kubepods
    }

    /// The cgroup of a level, e.g. `/kubepods/burstable`.
    pub fn level(&self, qos: QosLevel) -> PathBuf {
        qos.cgroup_name().map_or_else(|| self.kubepods.clone(), |name| self.child(&self.kubepods, name))
    }

    /// The cgroup of a pod, e.g. `/kubepods/burstable/pod<uid>`: the sandbox's cgroup parent.
    pub fn pod(&self, qos: QosLevel, uid: &PodUid) -> PathBuf {
        self.child(&self.level(qos), &format!("pod{uid}"))
    }

    /// Makes kubepods and its levels. `node` bounds all pods together; `burstable_shares` is the share
    /// for the sum of what burstable pods request. Running it again writes only what differs.
    pub fn ensure_levels(&self, node: &CgroupValues, burstable_shares: u64) -> Result<(), HostError> {
        self.ensure(&self.kubepods, node)?;
        self.ensure_level_shares(QosLevel::Burstable, burstable_shares)?;
        self.ensure_level_shares(QosLevel::BestEffort, BEST_EFFORT_SHARES)
    }

    /// Sets the share of one level (burstable, as pods come and go), making its cgroup if need be.
    pub fn ensure_level_shares(&self, qos: QosLevel, shares: u64) -> Result<(), HostError> {
        let values = CgroupValues { cpu_shares: Some(shares.max(BEST_EFFORT_SHARES)), ..CgroupValues::default() };
        self.ensure(&self.level(qos), &values)
    }

    /// Makes a pod's cgroup with its values and returns its path in the tree. Huge pages of sizes that
    /// the values do not name are forbidden, as upstream does. Running it again writes only what differs.
    pub fn ensure_pod(&self, qos: QosLevel, uid: &PodUid, values: &CgroupValues) -> Result<PathBuf, HostError> {
        let cgroup = self.pod(qos, uid);
        self.check_pod(&cgroup, "make cgroup")?;
        self.ensure(&cgroup, values)?;
        if let Some(folder) = self.controller_folder("hugetlb", &cgroup) {
            cgroup_values::forbid_other_hugepages(self.version, &folder, &values.hugepages)?;
        }
        Ok(cgroup)
    }

    /// Sets values of a cgroup that exists.
    pub fn update(&self, cgroup: &Path, values: &CgroupValues) -> Result<(), HostError> {
        self.check_inside(cgroup, "update cgroup")?;
        if let (Some(units), Some(slice)) = (&self.units, slice_name(cgroup)) {
            units
                .update(slice, &cgroup_values::properties(values))
                .map_err(|e| HostError::systemd("change", slice, e))?;
        }
        for hierarchy in &self.hierarchies {
            let folder = hierarchy.folder(cgroup);
            cgroup_values::apply(self.version, &hierarchy.controllers, &folder, values)?;
        }
        Ok(())
    }

    /// Sets only those limits of a cgroup that exists which are above what it has: what a child may grow into.
    pub fn raise(&self, cgroup: &Path, values: &CgroupValues) -> Result<(), HostError> {
        self.check_inside(cgroup, "update cgroup")?;
        for hierarchy in &self.hierarchies {
            let folder = hierarchy.folder(cgroup);
            let above = cgroup_values::above(self.version, &hierarchy.controllers, &folder, values);
            if let (Some(units), Some(slice)) = (&self.units, slice_name(cgroup)) {
                units
                    .update(slice, &cgroup_values::properties(&above))
                    .map_err(|e| HostError::systemd("change", slice, e))?;
            }
            cgroup_values::apply(self.version, &hierarchy.controllers, &folder, &above)?;
        }
        Ok(())
    }

    /// Memory that the processes of a cgroup use, in bytes; `None` if the kernel does not count it.
    pub fn memory_usage(&self, cgroup: &Path) -> Result<Option<u64>, HostError> {
        let Some(folder) = self.controller_folder("memory", cgroup) else { return Ok(None) };
        let v1 = self.version == CgroupVersion::V1;
        let file = folder.join(if v1 { "memory.usage_in_bytes" } else { "memory.current" });
        Ok(read_file(&file)?.trim().parse().ok())
    }

    /// Whether the cgroup exists in every hierarchy.
    pub fn exists(&self, cgroup: &Path) -> bool {
        self.hierarchies.iter().all(|h| h.folder(cgroup).is_dir())
    }

    /// Every folder that may stand for this cgroup, the hybrid one included.
    pub(super) fn folders(&self, cgroup: &Path) -> Vec<PathBuf> {
        let hybrid = self.hybrid.iter().map(|mount| below(mount, cgroup));
        self.hierarchies.iter().map(|h| h.folder(cgroup)).chain(hybrid).collect()
    }

    /// The folder of the cgroup in the hierarchy of one controller.
    pub fn controller_folder(&self, controller: &str, cgroup: &Path) -> Option<PathBuf> {
        self.hierarchies.iter().find(|h| h.controllers.contains(controller)).map(|h| h.folder(cgroup))
    }

    /// Where the files of one controller tell of a cgroup. On v2 all files lie in one folder, those of controllers that
    /// are turned off included.
    pub(super) fn stats_folder(&self, controller: &str, cgroup: &Path) -> Option<PathBuf> {
        match self.version {
            CgroupVersion::V1 => self.controller_folder(controller, cgroup),
            CgroupVersion::V2 => self.hierarchies.first().map(|hierarchy| hierarchy.folder(cgroup)),
        }
    }

    fn ensure(&self, cgroup: &Path, values: &CgroupValues) -> Result<(), HostError> {
        if let Some(units) = &self.units {
            let mut path = PathBuf::from("/");
            for name in cgroup.iter().filter_map(|name| name.to_str()).filter(|name| *name != "/") {
                path.push(name);
                let values = if path == cgroup { cgroup_values::properties(values) } else { Vec::new() };
                let is_there = || self.hierarchies.iter().all(|hierarchy| hierarchy.folder(&path).is_dir());
                units.ensure(name, &values, is_there).map_err(|e| HostError::systemd("make", name, e))?;
            }
        }
        for hierarchy in &self.hierarchies {
            hierarchy.make(self.version, cgroup)?;
        }
        self.update(cgroup, values)
    }

    fn check_inside(&self, cgroup: &Path, op: &'static str) -> Result<(), HostError> {
        let plain = cgroup.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
        if plain && cgroup.starts_with(&self.kubepods) {
            return Ok(());
        }
        Err(HostError::refused(op, cgroup, format!("it is not in {}", self.kubepods.display())))
    }

    /// Refuses whatever is not the cgroup of a pod in this tree.
    pub(super) fn check_pod(&self, cgroup: &Path, op: &'static str) -> Result<(), HostError> {
        self.check_inside(cgroup, op)?;
        let is_pod = cgroup.file_name().and_then(|name| pod_uid(name.to_str()?)).is_some();
        let in_level = QosLevel::ALL.iter().any(|qos| cgroup.parent() == Some(self.level(*qos).as_path()));
        if is_pod && in_level {
            return Ok(());
        }
        Err(HostError::refused(op, cgroup, "it is not the cgroup of a pod"))
    }
}

impl Hierarchy {
    pub(super) fn folder(&self, cgroup: &Path) -> PathBuf {
        below(&self.mount_point, cgroup)
    }

    /// Makes the cgroup and those above it, and hands the controllers down.
    fn make(&self, version: CgroupVersion, cgroup: &Path) -> Result<(), HostError> {
        let mut folder = self.mount_point.clone();
        for part in cgroup.components() {
            let Component::Normal(name) = part else { continue };
            if version == CgroupVersion::V2 {
                enable_controllers(&folder, &self.controllers)?;
            }
            let parent = folder.clone();
            folder.push(name);
            match fs::create_dir(&folder) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(HostError::io("make cgroup", &folder, e)),
            }
            if version == CgroupVersion::V1 && self.controllers.contains("cpuset") {
                inherit_cpuset(&parent, &folder)?;
            }
        }
        Ok(())
    }
}

/// Turns on in a v2 cgroup, for its children, what pods need and it has. A controller that refuses
/// (cpu beside real-time processes, a threaded cgroup) does not take the others down with it.
fn enable_controllers(folder: &Path, offered: &BTreeSet<String>) -> Result<(), HostError> {
    let control = folder.join("cgroup.subtree_control");
    let enabled = read_file(&control)?;
    let enabled: BTreeSet<_> = enabled.split_whitespace().gather();
    let here = read_file(&folder.join("cgroup.controllers"))?;
    let wanted: Vec<_> = here
        .split_whitespace()
        .filter(|name| WANTED.contains(name) || *name == "io")
        .filter(|name| offered.contains(*name) && !enabled.contains(name))
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let line: Vec<_> = wanted.iter().map(|name| format!("+{name}")).collect();
    if write_file(&control, &line.join(" ")).is_ok() {
        return Ok(());
    }
    for name in &line {
        // One that stays off shows in `missing_controllers`, and its values are left out.
        let _ = write_file(&control, name);
    }
    Ok(())
}

/// A fresh v1 cpuset has no CPU and takes no process until it has: it starts with its parent's.
fn inherit_cpuset(parent: &Path, folder: &Path) -> Result<(), HostError> {
    for name in ["cpuset.cpus", "cpuset.mems"] {
        let file = folder.join(name);
        if read_file(&file)?.trim().is_empty() {
            let value = read_file(&parent.join(name))?;
            write_file(&file, value.trim()).map_err(|e| HostError::io("write", &file, e))?;
        }
    }
    Ok(())
}

fn detect(
    table: &MountTable,
    cgroup_mount: &Path,
) -> Result<(CgroupVersion, Vec<Hierarchy>, Option<PathBuf>), HostError> {
    if table.at(cgroup_mount).is_some_and(|entry| entry.fs_type == "cgroup2") {
        let offered = read_file(&cgroup_mount.join("cgroup.controllers"))?;
        let controllers = offered.split_whitespace().map(str::to_owned).collect();
        let one = Hierarchy { mount_point: cgroup_mount.to_path_buf(), controllers };
        return Ok((CgroupVersion::V2, vec![one], None));
    }
    let mut hierarchies: Vec<Hierarchy> = Vec::new();
    let mut hybrid = None;
    for entry in table.entries().iter().filter(|entry| entry.mount_point.starts_with(cgroup_mount)) {
        if entry.fs_type == "cgroup2" {
            hybrid = Some(entry.mount_point.clone());
        }
        if entry.fs_type != "cgroup" {
            continue;
        }
        let known = |name: &str| !matches!(name, "rw" | "ro" | "xattr" | "noprefix" | "clone_children" | "seclabel");
        let controllers: BTreeSet<_> = entry
            .super_options
            .split(',')
            .filter(|name| known(name) && !name.starts_with("release_agent="))
            .map(str::to_owned)
            .collect();
        // The same hierarchy can be mounted twice; the first place will do.
        if !controllers.is_empty() && !hierarchies.iter().any(|h| h.controllers == controllers) {
            hierarchies.push(Hierarchy { mount_point: entry.mount_point.clone(), controllers });
        }
    }
    if hierarchies.is_empty() {
        return Err(HostError::refused(
            "use control groups at",
            cgroup_mount,
            "no cgroup file system is mounted there; mount cgroup2 on it",
        ));
    }
    Ok((CgroupVersion::V1, hierarchies, hybrid))
}

/// The pod uid in a cgroup's name, if it has one.
pub(super) fn pod_uid(name: &str) -> Option<PodUid> {
    let uid = match name.strip_suffix(".slice") {
        // A minus is where a slice's name has its steps, so that of a uid is an underscore.
        Some(slice) => slice.rsplit_once("-pod")?.1.replace('_', "-"),
        None => name.strip_prefix("pod")?.to_owned(),
    };
    let plain = !uid.is_empty() && uid.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    plain.then(|| PodUid::from(uid.as_str()))
}

/// The unit that stands for a cgroup of systemd's.
pub(super) fn slice_name(cgroup: &Path) -> Option<&str> {
    cgroup.file_name()?.to_str().filter(|name| name.ends_with(".slice"))
}

/// `cgroupRoot` as a path relative to the top of a hierarchy.
fn relative(root: &str) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for part in Path::new(root).components() {
        match part {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => path.push(name),
            _ => return None,
        }
    }
    Some(path)
}

fn below(mount: &Path, cgroup: &Path) -> PathBuf {
    mount.join(cgroup.strip_prefix("/").unwrap_or(cgroup))
}

/// Reads a small cgroup file.
pub(super) fn read_file(path: &Path) -> Result<String, HostError> {
    let file = fs::File::open(path).map_err(|e| HostError::io("open", path, e))?;
    let mut text = String::new();
    file.take(FILE_LIMIT).read_to_string(&mut text).map_err(|e| HostError::io("read", path, e))?;
    Ok(text)
}

/// Writes a cgroup file in one call, without making it: a file that is not there is a controller that
/// is not there.
pub(super) fn write_file(path: &Path, value: &str) -> io::Result<()> {
    use std::io::Write as _;
    fs::OpenOptions::new().write(true).truncate(true).open(path)?.write_all(value.as_bytes())
}

#[cfg(test)]
#[path = "cgroup_tests.rs"]
mod tests;

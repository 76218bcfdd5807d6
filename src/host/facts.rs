//! Facts of this machine that the agent needs: memory, CPUs, names, huge pages, swap; and what it sets
//! for its own process.
//!
//! Layer L1, blocking reads of procfs and sysfs, at start and when the Node is reported. Owns nothing.
//! A fact that a small or odd machine lacks is empty, not an error; only what pods cannot do without
//! fails. It never changes the machine, only its own process.

use std::fs;
use std::io;
use std::path::Path;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::statvfs::statvfs;

use super::HostError;
use crate::util::fs::{FsError, read_bounded};
use crate::util::order;

/// Largest file of procfs or sysfs that is read whole.
const FILE_LIMIT: u64 = 1 << 20;
/// Largest resolv.conf, as upstream has it.
const RESOLV_CONF_LIMIT: u64 = 10 << 20;

/// What is known of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineFacts {
    /// Memory in bytes.
    pub memory: u64,
    /// Swap in bytes.
    pub swap: u64,
    /// Swap devices and files in use, e.g. `/dev/sda2`; for `failSwapOn`.
    pub swap_devices: Vec<String>,
    /// CPUs that are online.
    pub cpus: u32,
    /// Numbers of CPUs that have a `thermal_throttle` folder in sysfs, in order.
    pub thermal_throttle_cpus: Vec<u32>,
    /// Id of this boot.
    pub boot_id: String,
    /// Id of this installation (`/etc/machine-id`).
    pub machine_id: String,
    /// The board's uuid; the machine id where there is none.
    pub system_uuid: String,
    /// Kernel release.
    pub kernel: String,
    /// Name of the operating system.
    pub os_image: String,
    /// Host name, lower case.
    pub hostname: String,
    /// Sizes of huge pages in bytes, ascending.
    pub hugepage_sizes: Vec<u64>,
    /// Size in bytes and number of the huge pages of each size, by size.
    pub hugepages: Vec<(u64, u64)>,
    /// Whether the kernel enforces AppArmor profiles.
    pub apparmor: bool,
}

/// Reads the facts below `root`: `/`, or a folder with `proc`, `sys` and `etc` in it.
///
/// # Errors
/// Memory or CPUs cannot be read: without procfs no pod can be placed.
pub fn read(root: &Path) -> Result<MachineFacts, HostError> {
    let meminfo = root.join("proc/meminfo");
    let memory = read_text(&meminfo)?;
    let field = |name: &str| memory.lines().find_map(|line| kibibytes(line.strip_prefix(name)?));
    let total = field("MemTotal:").ok_or_else(|| HostError::refused("use", &meminfo, "it has no MemTotal line"))?;
    let online = root.join("sys/devices/system/cpu/online");
    let cpus = match text(&online) {
        list if !list.is_empty() => cpu_list(&list),
        _ => cpuinfo(&read_text(&root.join("proc/cpuinfo"))?),
    };
    if cpus == 0 {
        return Err(HostError::refused("use", online, "it names no CPU"));
    }
    let machine_id = first(root, &["etc/machine-id", "var/lib/dbus/machine-id"]);
    let mut system_uuid =
        first(root, &["sys/class/dmi/id/product_uuid", "proc/device-tree/vm,uuid", "proc/device-tree/system-id"]);
    if system_uuid.is_empty() {
        system_uuid.clone_from(&machine_id);
    }
    let hugepages = hugepages(&root.join("sys/kernel/mm/hugepages"));
    Ok(MachineFacts {
        memory: total,
        swap: field("SwapTotal:").unwrap_or(0),
        swap_devices: swaps(&text(&root.join("proc/swaps"))),
        cpus,
        thermal_throttle_cpus: throttled(&root.join("sys/devices/system/cpu")),
        boot_id: text(&root.join("proc/sys/kernel/random/boot_id")),
        machine_id,
        system_uuid,
        kernel: text(&root.join("proc/sys/kernel/osrelease")),
        os_image: os_image(&first(root, &["etc/os-release", "usr/lib/os-release"])),
        hostname: text(&root.join("proc/sys/kernel/hostname")).to_lowercase(),
        hugepage_sizes: hugepages.iter().map(|(size, _)| *size).collect(),
        hugepages,
        apparmor: root.join("sys/kernel/security/apparmor").exists()
            && text(&root.join("sys/module/apparmor/parameters/enabled")).starts_with('Y'),
    })
}

/// Size in bytes of the file system that a folder is on.
pub fn storage_capacity(folder: &Path) -> Result<u64, HostError> {
    let found = statvfs(folder).map_err(|e| HostError::io("find the size of the file system of", folder, e))?;
    Ok(found.blocks().saturating_mul(found.fragment_size()))
}

/// What is free on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes that anybody may still write.
    pub free_bytes: u64,
    /// The same in percent of the whole.
    pub free_percent: u64,
    /// Inodes that are free, in percent; 100 where the file system does not count them.
    pub free_inodes_percent: u64,
}

/// What is free on the file system that a folder is on.
///
/// # Errors
/// The kernel does not tell.
pub fn room(folder: &Path) -> Result<Room, HostError> {
    let found = statvfs(folder).map_err(|e| HostError::io("find the room on the file system of", folder, e))?;
    let percent = |free: u64, all: u64| free.saturating_mul(100).checked_div(all).unwrap_or(100);
    Ok(Room {
        free_bytes: found.blocks_available().saturating_mul(found.fragment_size()),
        free_percent: percent(found.blocks_available(), found.blocks()),
        free_inodes_percent: percent(found.files_available(), found.files()),
    })
}

/// Name of a huge page size as the runtime and cgroups spell it: `2MB`, `1GB`, `64KB`.
pub fn hugepage_name(bytes: u64) -> String {
    let (mut size, mut unit) = (bytes / 1024, 0);
    while size >= 1024 && size.is_multiple_of(1024) && unit < 2 {
        size /= 1024;
        unit += 1;
    }
    format!("{size}{}", ["KB", "MB", "GB"][unit])
}

/// The text of a resolv.conf. A setting that names a file which is not there is an error, as upstream
/// has it: pods would else resolve nothing, silently. Links are followed (systemd-resolved makes one).
pub fn read_resolv_conf(path: &Path) -> Result<String, HostError> {
    let bytes = read_bounded(path, RESOLV_CONF_LIMIT).map_err(host_error)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Sets how likely the kernel is to kill this process when memory runs out; `file` is
/// `/proc/self/oom_score_adj`. Lowering it needs CAP_SYS_RESOURCE: the caller tells of a failure and
/// goes on.
pub fn set_oom_score_adj(file: &Path, score: i32) -> Result<(), HostError> {
    if text(file).parse() == Ok(score) {
        return Ok(());
    }
    fs::write(file, score.to_string()).map_err(|e| HostError::io("write", file, e))
}

/// Raises the number of files this process may open to `wanted` (`maxOpenFiles`), never lowers it, and
/// returns what it is now: as far as the hard limit where this user may not raise that.
pub fn raise_open_files(wanted: u64) -> Result<u64, HostError> {
    let failed = |e| HostError::io("raise the limit of open files of", "this process", io::Error::from(e));
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
    if soft >= wanted {
        return Ok(soft);
    }
    if setrlimit(Resource::RLIMIT_NOFILE, wanted, hard.max(wanted)).is_ok() {
        return Ok(wanted);
    }
    let possible = hard.min(wanted);
    if possible > soft {
        setrlimit(Resource::RLIMIT_NOFILE, possible, hard).map_err(failed)?;
    }
    Ok(possible)
}

fn host_error(error: FsError) -> HostError {
    match error {
        FsError::Io { operation, path, source } => HostError::Io { op: operation, path, source },
        FsError::TooLarge { path, max } => HostError::TooLarge { path, limit: max },
        FsError::NotAFile { path, found } => {
            HostError::refused("read", path, format!("it is {found}, not a regular file"))
        }
    }
}

fn read_text(path: &Path) -> Result<String, HostError> {
    let bytes = read_bounded(path, FILE_LIMIT).map_err(host_error)?;
    Ok(String::from_utf8_lossy(&bytes).trim_matches(['\n', ' ', '\0']).to_owned())
}

/// The text of a file; empty if it cannot be read.
fn text(path: &Path) -> String {
    read_text(path).unwrap_or_default()
}

/// The text of the first of these files that says something.
fn first(root: &Path, files: &[&str]) -> String {
    files.iter().map(|file| text(&root.join(file))).find(|text| !text.is_empty()).unwrap_or_default()
}

fn kibibytes(value: &str) -> Option<u64> {
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// How many CPUs a list like `0-3,7` names.
pub fn cpu_list(list: &str) -> u32 {
    let count = |range: &str| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (from, to) = (from.trim().parse::<u32>().ok()?, to.trim().parse::<u32>().ok()?);
        to.checked_sub(from)?.checked_add(1)
    };
    list.split(',').filter_map(count).fold(0, u32::saturating_add)
}

fn cpuinfo(text: &str) -> u32 {
    u32::try_from(text.lines().filter(|line| line.starts_with("processor")).count()).unwrap_or(u32::MAX)
}

fn throttled(cpus: &Path) -> Vec<u32> {
    let number = |name: &str| name.strip_prefix("cpu")?.parse().ok();
    let mut found: Vec<u32> = fs::read_dir(cpus)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().join("thermal_throttle").is_dir())
        .filter_map(|entry| number(entry.file_name().to_str()?))
        .collect();
    order::sort(&mut found);
    found
}

/// Names in /proc/swaps, below its header.
fn swaps(text: &str) -> Vec<String> {
    text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

fn hugepages(folder: &Path) -> Vec<(u64, u64)> {
    let size = |name: &str| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok()?.checked_mul(1024);
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut pages: Vec<_> = entries
        .filter_map(|entry| {
            let count = text(&entry.path().join("nr_hugepages")).parse().unwrap_or(0);
            Some((size(entry.file_name().to_str()?)?, count))
        })
        .collect();
    order::sort(&mut pages);
    pages
}

fn os_image(release: &str) -> String {
    let value = |key: &str| {
        let line = release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.map(|value| value.trim_matches(['"', '\'']).to_owned())
    };
    value("PRETTY_NAME").or_else(|| value("NAME")).unwrap_or_else(|| "Linux".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (file, content) in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        dir
    }

    const MEMORY: (&str, &str) =
        ("proc/meminfo", "MemTotal:        2048 kB\nMemFree: 1 kB\nSwapTotal:       1024 kB\n");

    #[test]
    fn facts_are_read_below_a_root() {
        let dir = root(&[
            MEMORY,
            ("sys/devices/system/cpu/online", "0-2,5\n"),
            ("sys/devices/system/cpu/cpu10/thermal_throttle/x", ""),
            ("sys/devices/system/cpu/cpu2/thermal_throttle/x", ""),
            ("sys/devices/system/cpu/cpufreq/thermal_throttle/x", ""),
            ("proc/swaps", "Filename\tType\n/dev/zram0  partition 1\n/swap file 2\n"),
            ("proc/sys/kernel/random/boot_id", "b-1\n"),
            ("proc/sys/kernel/osrelease", "6.1.0\n"),
            ("proc/sys/kernel/hostname", "Edge-7\n"),
            ("etc/machine-id", "m-1\n"),
            ("etc/os-release", "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 13\"\n"),
            ("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", ""),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "16\n"),
            ("sys/kernel/mm/hugepages/odd/nr_hugepages", ""),
            ("sys/kernel/security/apparmor/profiles", ""),
            ("sys/module/apparmor/parameters/enabled", "Y\n"),
        ]);
        let expect = MachineFacts {
            memory: 2 << 20,
            swap: 1 << 20,
            swap_devices: vec!["/dev/zram0".to_owned(), "/swap".to_owned()],
            cpus: 4,
            thermal_throttle_cpus: vec![2, 10],
            boot_id: "b-1".to_owned(),
            machine_id: "m-1".to_owned(),
            system_uuid: "m-1".to_owned(),
            kernel: "6.1.0".to_owned(),
            os_image: "Debian GNU/Linux 13".to_owned(),
            hostname: "edge-7".to_owned(),
            hugepage_sizes: vec![2 << 20, 1 << 30],
            hugepages: vec![(2 << 20, 16), (1 << 30, 0)],
            apparmor: true,
        };
        assert_eq!(read(dir.path()).unwrap(), expect);
    }

    #[test]
    fn a_small_machine_lacks_much_and_still_counts() {
        let dir = root(&[MEMORY, ("proc/cpuinfo", "processor\t: 0\nmodel: x\n\nprocessor\t: 1\n")]);
        let facts = read(dir.path()).unwrap();
        assert_eq!((facts.cpus, facts.swap_devices.len(), facts.os_image.as_str()), (2, 0, "Linux"));
        for (files, expect) in [
            (&[][..], "meminfo"),
            (&[("proc/meminfo", "MemTotal: lots\n")][..], "no MemTotal"),
            (&[MEMORY][..], "cpuinfo"),
            (&[MEMORY, ("proc/cpuinfo", "nothing")][..], "names no CPU"),
        ] {
            let error = read(root(files).path()).unwrap_err();
            assert!(error.to_string().contains(expect), "{error}");
        }
    }

    #[test]
    fn this_machine_has_facts() {
        let facts = read(Path::new("/")).unwrap();
        assert!(facts.memory > 16 << 20 && facts.cpus > 0, "{facts:?}");
        assert!(!facts.boot_id.is_empty() && !facts.kernel.is_empty() && !facts.hostname.is_empty(), "{facts:?}");
    }

    #[test]
    fn a_file_system_has_a_size() {
        let dir = root(&[]);
        assert!(storage_capacity(dir.path()).unwrap() > 0);
        assert!(storage_capacity(&dir.path().join("none")).unwrap_err().is_not_found());
    }

    #[test]
    fn huge_pages_have_the_runtimes_names() {
        for (bytes, expect) in
            [(64 << 10, "64KB"), (2 << 20, "2MB"), (1 << 30, "1GB"), (16 << 30, "16GB"), (1 << 41, "2048GB")]
        {
            assert_eq!(hugepage_name(bytes), expect);
        }
    }

    #[test]
    fn resolv_conf_is_read_within_bounds() {
        let dir = root(&[("resolv.conf", "nameserver 1.1.1.1\n")]);
        assert_eq!(read_resolv_conf(&dir.path().join("resolv.conf")).unwrap(), "nameserver 1.1.1.1\n");
        assert!(read_resolv_conf(&dir.path().join("none")).unwrap_err().is_not_found());
        assert!(read_resolv_conf(dir.path()).unwrap_err().to_string().contains("not a regular file"));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("resolv.conf", &link).unwrap();
        assert_eq!(read_resolv_conf(&link).unwrap(), "nameserver 1.1.1.1\n");
        let huge = dir.path().join("huge");
        fs::File::create(&huge).unwrap().set_len(RESOLV_CONF_LIMIT + 1).unwrap();
        assert!(read_resolv_conf(&huge).unwrap_err().to_string().contains("10485760"), "refused, not cut");
    }

    #[test]
    fn the_oom_score_is_written_when_it_differs() {
        let dir = root(&[("oom_score_adj", "0\n")]);
        let file = dir.path().join("oom_score_adj");
        set_oom_score_adj(&file, 0).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "0\n", "not written");
        set_oom_score_adj(&file, -999).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "-999");
        assert!(set_oom_score_adj(&dir.path().join("none/x"), 1).is_err());
    }

    #[test]
    fn the_limit_of_open_files_only_rises() {
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(raise_open_files(1).unwrap(), soft);
        let now = raise_open_files(soft + 1).unwrap();
        assert!(now == soft + 1 || now == soft, "{now}");
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap().0, now);
    }
}

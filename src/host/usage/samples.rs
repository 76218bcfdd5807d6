//! Recorded files of cgroup v1, cgroup v2 and procfs, put into a temporary folder: what tests of usage read.

use std::fs;
use std::path::{Path, PathBuf};

use crate::host::cgroup::{CgroupDriver, CgroupTree};

/// A machine of files.
pub(crate) struct Machine {
    dir: tempfile::TempDir,
    is_v2: bool,
}

const V1: &[(&str, &[(&str, &str)])] = &[
    (
        "cpu",
        &[
            ("cpu.shares", "102\n"),
            ("cpu.cfs_quota_us", "10000\n"),
            ("cpu.cfs_period_us", "100000\n"),
            ("cpu.stat", "nr_periods 40\nnr_throttled 3\nthrottled_time 5000000\nnr_bursts 1\nburst_time 7000\n"),
        ],
    ),
    ("cpuacct", &[("cpuacct.usage", "16519821\n"), ("cpuacct.stat", "user 1\nsystem 2\n")]),
    (
        "memory",
        &[
            ("memory.usage_in_bytes", "1327680\n"),
            ("memory.max_usage_in_bytes", "2000000\n"),
            ("memory.failcnt", "4\n"),
            ("memory.kmem.usage_in_bytes", "69632\n"),
            ("memory.limit_in_bytes", "16777216\n"),
            ("memory.memsw.limit_in_bytes", "33554432\n"),
            ("memory.soft_limit_in_bytes", "9223372036854771712\n"),
            ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"),
            (
                "memory.stat",
                "cache 1\nrss 2\npgfault 3\nhierarchical_memory_limit 16777216\ntotal_cache 1000000\ntotal_rss 53248\n\
                 total_mapped_file 8192\ntotal_swap 4096\ntotal_pgfault 1034\ntotal_pgmajfault 1\n\
                 total_inactive_file 900000\ntotal_active_file 100000\n",
            ),
        ],
    ),
    ("pids", &[("pids.current", "3\n"), ("pids.max", "max\n"), ("cgroup.procs", "7\n8\n")]),
    (
        "blkio",
        &[
            (
                "blkio.throttle.io_service_bytes_recursive",
                "8:0 Read 4096\n8:0 Write 8192\n8:0 Sync 4096\n8:0 Total 12288\nTotal 12288\n",
            ),
            ("blkio.throttle.io_serviced_recursive", "8:0 Read 1\n8:0 Write 2\n8:0 Total 3\nTotal 3\n"),
        ],
    ),
];

const V2: &[(&str, &str)] = &[
    ("cgroup.controllers", "cpuset cpu io memory hugetlb pids\n"),
    ("cgroup.events", "populated 1\nfrozen 0\n"),
    ("cgroup.procs", "7\n8\n"),
    (
        "cpu.stat",
        "usage_usec 16519\nuser_usec 10000\nsystem_usec 6519\nnice_usec 0\nnr_periods 40\nnr_throttled 3\n\
         throttled_usec 5000\nnr_bursts 1\nburst_usec 7\n",
    ),
    ("cpu.max", "10000 100000\n"),
    ("cpu.weight", "5\n"),
    (
        "cpu.pressure",
        "some avg10=1.50 avg60=0.25 avg300=0.00 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1000\n",
    ),
    ("memory.current", "1327680\n"),
    ("memory.peak", "2000000\n"),
    ("memory.max", "16777216\n"),
    ("memory.min", "0\n"),
    ("memory.swap.current", "4096\n"),
    ("memory.swap.max", "max\n"),
    ("memory.events", "low 0\nhigh 0\nmax 4\noom 5\noom_kill 5\noom_group_kill 0\n"),
    (
        "memory.stat",
        "anon 53248\nfile 1000000\nkernel 69632\nfile_mapped 8192\ninactive_file 900000\nactive_file 100000\n\
         pgfault 1034\npgmajfault 1\n",
    ),
    (
        "memory.pressure",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    ),
    (
        "io.pressure",
        "some avg10=0.00 avg60=0.00 avg300=0.10 total=77\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=66\n",
    ),
    ("io.stat", "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n7:0 \n"),
    ("pids.current", "3\n"),
    ("pids.max", "max\n"),
];

/// Files of the root cgroup of v2 that there are.
const V2_ROOT: &[&str] = &["cgroup.controllers", "cgroup.procs", "cpu.stat", "memory.stat", "cpu.pressure", "io.stat"];

const PROC: &[(&str, &str)] = &[
    (
        "meminfo",
        "MemTotal:        1048576 kB\nMemFree:          524288 kB\nMemAvailable:     900000 kB\nSwapTotal:        262144 kB\n\
         SwapFree:         131072 kB\n",
    ),
    (
        "pressure/cpu",
        "some avg10=86.36 avg60=66.89 avg300=72.87 total=25532087573\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    ),
    (
        "pressure/memory",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=2\n",
    ),
    ("pressure/io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=3\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=4\n"),
    ("sys/kernel/pid_max", "32768\n"),
    ("sys/kernel/threads-max", "192000\n"),
    (
        "7/limits",
        "Limit                     Soft Limit           Hard Limit           Units\nMax open files            1024                 4096                 files\n",
    ),
    ("loadavg", "0.10 0.20 0.30 2/237 4711\n"),
    ("stat", "cpu  1 2 3 4\nbtime 1790000000\nprocesses 5\n"),
    (
        "1/net/dev",
        "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs drop fifo \
         frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    lo: 5 1 0 0 0 0 0 0 5 1 0 0 \
         0 0 0 0\n  eth0: 725620418 50188 1 2 0 0 0 0 3299180 35844 3 4 0 0 0 0\n",
    ),
    (
        "7/net/dev",
        "Inter-| Receive | Transmit\n face |bytes\n    lo: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n  eth0: 2359 31 0 0 0 0 0 0 1909 23 0 \
         0 0 0 0 0\nveth12ab: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n",
    ),
    (
        "self/stat",
        "71 (ferro) let) S 1 71 71 0 -1 4194560 1 2 3 4 500 250 0 0 20 0 19 0 1000 104857600 2048 18446744073709551615 1 1 0\n",
    ),
    (
        "self/limits",
        "Limit Soft Limit Hard Limit Units\nMax open files            1024                 4096                 files\n",
    ),
    (
        "diskstats",
        "   8       0 sda 10 1 80 5 20 2 160 9 0 14 14 0 0 0 0 0 0\n   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
    ),
];

impl Machine {
    /// With cgroup v1.
    pub(crate) fn v1() -> Self {
        Self::new(false)
    }

    /// With cgroup v2.
    pub(crate) fn v2() -> Self {
        Self::new(true)
    }

    fn new(is_v2: bool) -> Self {
        let machine = Self { dir: tempfile::tempdir().unwrap(), is_v2 };
        for (name, text) in PROC {
            let file = machine.proc().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        fs::create_dir_all(machine.proc().join("7/fd")).unwrap();
        fs::create_dir_all(machine.proc().join("self/fd")).unwrap();
        for (number, target) in ["/dev/null", "socket:[12]", "pipe:[4]"].iter().enumerate() {
            std::os::unix::fs::symlink(target, machine.proc().join("7/fd").join(number.to_string())).unwrap();
        }
        let mut table = String::new();
        if is_v2 {
            table = format!("9 1 0:9 / {} rw - cgroup2 cgroup2 rw\n", machine.cgroups().display());
        } else {
            for (name, _) in V1 {
                let at = machine.cgroups().join(name);
                table.push_str(&format!("9 1 0:9 / {} rw - cgroup cgroup rw,{name}\n", at.display()));
            }
        }
        // A disk, besides.
        table.push_str(&format!("8 1 8:1 / {} rw - ext4 /dev/sda1 rw\n", machine.dir.path().display()));
        fs::write(machine.dir.path().join("mountinfo"), table).unwrap();
        machine.add("/");
        machine
    }

    fn cgroups(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("cgroup")
    }

    /// Where its procfs is.
    pub(crate) fn proc(&self) -> PathBuf {
        self.dir.path().join("proc")
    }

    /// Its mount table.
    pub(crate) fn mount_table(&self) -> PathBuf {
        self.dir.path().join("mountinfo")
    }

    /// Its folder.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Makes a cgroup with the recorded files.
    pub(crate) fn add(&self, cgroup: &str) {
        let inside = cgroup.trim_start_matches('/');
        if self.is_v2 {
            let folder = self.cgroups().join(inside);
            fs::create_dir_all(&folder).unwrap();
            for (name, text) in V2.iter().filter(|(name, _)| !inside.is_empty() || V2_ROOT.contains(name)) {
                fs::write(folder.join(name), text).unwrap();
            }
        } else {
            for (controller, files) in V1 {
                let folder = self.cgroups().join(controller).join(inside);
                fs::create_dir_all(&folder).unwrap();
                for (name, text) in *files {
                    fs::write(folder.join(name), text).unwrap();
                }
            }
        }
    }

    /// Gives a file of a cgroup another text.
    pub(crate) fn set(&self, controller: &str, cgroup: &str, file: &str, text: &str) {
        let top = if self.is_v2 { self.cgroups() } else { self.cgroups().join(controller) };
        fs::write(top.join(cgroup.trim_start_matches('/')).join(file), text).unwrap();
    }

    /// Its cgroups.
    pub(crate) fn tree(&self) -> CgroupTree {
        let table = self.dir.path().join("mountinfo");
        CgroupTree::open(&table, &self.cgroups(), "/", CgroupDriver::Cgroupfs).unwrap()
    }
}

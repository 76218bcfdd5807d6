//! Tests of the cgroup tree on fixture folders that hold the kernel's files, and once on the machine's
//! own hierarchy.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use super::*;
use crate::host::cgroup_remove::OomFacts;
use crate::host::cgroup_values::{cpu_shares, cpu_weight};
use crate::host::mounts::MOUNT_TABLE;
use crate::host::test_support::report;

/// A folder with hierarchies in it. In cgroupfs the kernel makes the files of a new cgroup; here
/// `fill` does, right after the folder.
struct Fixture {
    dir: tempfile::TempDir,
}

const V1: [(&str, &[(&str, &str)]); 5] = [
    ("cpu", &[("cpu.shares", "1024"), ("cpu.cfs_quota_us", "-1"), ("cpu.cfs_period_us", "100000")]),
    ("cpuset", &[("cpuset.cpus", "\n"), ("cpuset.mems", "\n")]),
    ("memory", &[("memory.limit_in_bytes", "9223372036854771712"), ("memory.oom_control", "oom_kill 3\n")]),
    ("pids", &[("pids.max", "max")]),
    ("systemd", &[]),
];

const V2: [(&str, &str); 12] = [
    ("cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma"),
    ("cgroup.subtree_control", ""),
    ("cpu.weight", "100"),
    ("cpu.max", "max 100000"),
    ("memory.max", "max"),
    ("memory.oom.group", "1\n"),
    ("memory.events", "low 0\noom 2\noom_kill 7\n"),
    ("pids.max", "max"),
    ("hugetlb.2MB.max", "max"),
    ("hugetlb.2MB.rsvd.max", "max"),
    ("hugetlb.1GB.max", "max"),
    ("hugetlb.1GB.events", "max 0"),
];

impl Fixture {
    fn v1() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, _) in V1 {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("cpuset/cpuset.cpus"), "0-1\n").unwrap();
        fs::write(dir.path().join("cpuset/cpuset.mems"), "0\n").unwrap();
        let mut table = String::new();
        for (name, _) in V1 {
            let option = if name == "systemd" { "name=systemd" } else { name };
            let at = dir.path().join(name);
            table.push_str(&format!("9 1 0:9 / {} rw - cgroup cgroup rw,xattr,{option}\n", at.display()));
        }
        fs::write(dir.path().join("mountinfo"), table).unwrap();
        Self { dir }
    }

    fn v2() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let table = format!("9 1 0:9 / {} rw - cgroup2 cgroup2 rw,nsdelegate\n", dir.path().display());
        fs::write(dir.path().join("mountinfo"), table).unwrap();
        let fixture = Self { dir };
        fixture.fill("");
        fixture
    }

    /// Makes the kernel's files in a v1 (all hierarchies) or v2 cgroup.
    fn fill(&self, cgroup: &str) {
        let write = |folder: PathBuf, files: &[(&str, &str)]| {
            fs::create_dir_all(&folder).unwrap();
            for (name, value) in files {
                fs::write(folder.join(name), value).unwrap();
            }
        };
        if self.dir.path().join("memory").exists() {
            V1.iter().for_each(|(name, files)| write(self.dir.path().join(name).join(cgroup), files));
        } else {
            write(self.dir.path().join(cgroup), &V2);
        }
    }

    fn levels(self) -> Self {
        for cgroup in ["kubepods", "kubepods/burstable", "kubepods/besteffort"] {
            self.fill(cgroup);
        }
        self
    }

    fn tree(&self) -> CgroupTree {
        self.open("/").unwrap()
    }

    fn open(&self, root: &str) -> Result<CgroupTree, HostError> {
        self.open_for(root, CgroupDriver::Cgroupfs)
    }

    fn open_for(&self, root: &str, driver: CgroupDriver) -> Result<CgroupTree, HostError> {
        let root_folder = self.dir.path().canonicalize().unwrap();
        CgroupTree::open(&self.dir.path().join("mountinfo"), &root_folder, root, driver)
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.dir.path().join(file)).unwrap_or_else(|e| format!("({})", e.kind()))
    }
}

fn uid(text: &str) -> PodUid {
    PodUid::from(text)
}

fn values() -> CgroupValues {
    CgroupValues {
        cpu_shares: Some(512),
        cpu_quota: Some(50_000),
        cpu_period: Some(100_000),
        memory_limit: Some(64 << 20),
        pids_limit: Some(100),
        hugepages: BTreeMap::from([("2MB".to_owned(), 4 << 20)]),
        unified: BTreeMap::new(),
    }
}

#[test]
fn v1_levels_and_pods_get_their_values() {
    let fixture = Fixture::v1().levels();
    let tree = fixture.tree();
    assert_eq!(tree.version(), CgroupVersion::V1);
    assert_eq!(tree.missing_controllers(), ["hugetlb"]);
    tree.ensure_levels(&CgroupValues { memory_limit: Some(1 << 30), ..Default::default() }, 300).unwrap();
    assert_eq!(fixture.read("memory/kubepods/memory.limit_in_bytes"), "1073741824");
    assert_eq!(fixture.read("cpu/kubepods/cpu.shares"), "1024");
    assert_eq!(fixture.read("cpu/kubepods/burstable/cpu.shares"), "300");
    assert_eq!(fixture.read("cpu/kubepods/besteffort/cpu.shares"), "2");
    assert_eq!(fixture.read("cpuset/kubepods/burstable/cpuset.cpus"), "0-1");

    fixture.fill("kubepods/burstable/poda-b");
    let cgroup = tree.ensure_pod(QosLevel::Burstable, &uid("a-b"), &values()).unwrap();
    assert_eq!(cgroup, Path::new("/kubepods/burstable/poda-b"));
    for (file, expect) in [
        ("cpu/kubepods/burstable/poda-b/cpu.shares", "512"),
        ("cpu/kubepods/burstable/poda-b/cpu.cfs_quota_us", "50000"),
        ("cpu/kubepods/burstable/poda-b/cpu.cfs_period_us", "100000"),
        ("memory/kubepods/burstable/poda-b/memory.limit_in_bytes", "67108864"),
        ("pids/kubepods/burstable/poda-b/pids.max", "100"),
        ("cpuset/kubepods/burstable/poda-b/cpuset.mems", "0"),
    ] {
        assert_eq!(fixture.read(file), expect, "{file}");
    }
    assert!(tree.exists(&cgroup));
    let unlimited = CgroupValues { cpu_quota: Some(-1), memory_limit: Some(-1), ..Default::default() };
    tree.update(&cgroup, &unlimited).unwrap();
    assert_eq!(fixture.read("cpu/kubepods/burstable/poda-b/cpu.cfs_quota_us"), "-1");
    assert_eq!(fixture.read("memory/kubepods/burstable/poda-b/memory.limit_in_bytes"), "-1");
    assert_eq!(tree.oom_facts(&cgroup), OomFacts { group: None, kills: Some(3) });
}

#[test]
fn v2_controllers_are_handed_down_and_values_converted() {
    let fixture = Fixture::v2().levels();
    let tree = fixture.tree();
    assert_eq!(tree.version(), CgroupVersion::V2);
    assert!(tree.missing_controllers().is_empty());
    tree.ensure_levels(&CgroupValues::default(), 1024).unwrap();
    for folder in ["", "kubepods/"] {
        let file = format!("{folder}cgroup.subtree_control");
        assert_eq!(fixture.read(&file), "+cpuset +cpu +io +memory +hugetlb +pids", "{file}");
    }
    assert_eq!(fixture.read("kubepods/burstable/cgroup.subtree_control"), "", "no child yet");
    assert_eq!(fixture.read("kubepods/burstable/cpu.weight"), "39");
    assert_eq!(fixture.read("kubepods/besteffort/cpu.weight"), "1");

    fs::write(fixture.dir.path().join("kubepods/cgroup.controllers"), "cpu memory pids hugetlb\n").unwrap();
    assert_eq!(tree.missing_controllers(), ["cpuset"], "what the root did not hand down is told");

    fixture.fill("kubepods/podg");
    let unified = BTreeMap::from([("pids.max".to_owned(), "5".to_owned())]);
    let cgroup = tree.ensure_pod(QosLevel::Guaranteed, &uid("g"), &CgroupValues { unified, ..values() }).unwrap();
    for (file, expect) in [
        ("cpu.weight", "20"),
        ("cpu.max", "50000 100000"),
        ("memory.max", "67108864"),
        ("pids.max", "5"),
        ("hugetlb.2MB.max", "4194304"),
        ("hugetlb.2MB.rsvd.max", "4194304"),
        ("hugetlb.1GB.max", "0"),
        ("hugetlb.1GB.events", "max 0"),
        ("cgroup.subtree_control", ""),
    ] {
        assert_eq!(fixture.read(&format!("kubepods/podg/{file}")), expect, "{file}");
    }
    assert_eq!(tree.oom_facts(&cgroup), OomFacts { group: Some(true), kills: Some(7) });
    for key in ["cgroup.kill", "../memory.max", "memory"] {
        let unified = BTreeMap::from([(key.to_owned(), "1".to_owned())]);
        let error = tree.update(&cgroup, &CgroupValues { unified, ..Default::default() }).unwrap_err();
        assert!(matches!(error, HostError::Refused { .. }), "{key}: {error}");
    }
}

#[test]
fn running_again_writes_nothing() {
    for fixture in [Fixture::v1().levels(), Fixture::v2().levels()] {
        fixture.fill("kubepods/podx");
        let tree = fixture.tree();
        let run = || {
            tree.ensure_levels(&values(), 77).unwrap();
            tree.ensure_pod(QosLevel::Guaranteed, &uid("x"), &values()).unwrap();
        };
        run();
        // The kernel prints what is enabled without the plus signs.
        for folder in ["", "kubepods"] {
            let control = fixture.dir.path().join(folder).join("cgroup.subtree_control");
            if control.exists() {
                fs::write(&control, "cpuset cpu io memory hugetlb pids").unwrap();
            }
        }
        let stamps = || {
            let mut files = Vec::new();
            let mut folders = vec![fixture.dir.path().to_path_buf()];
            while let Some(folder) = folders.pop() {
                for entry in fs::read_dir(folder).unwrap().flatten() {
                    if entry.path().is_dir() {
                        folders.push(entry.path());
                    } else {
                        files.push((entry.path(), entry.metadata().unwrap().modified().unwrap()));
                    }
                }
            }
            files.sort();
            files
        };
        let before = stamps();
        run();
        assert_eq!(before, stamps());
    }
}

#[test]
fn pods_are_listed_from_every_hierarchy() {
    let fixture = Fixture::v1().levels();
    for folder in [
        "cpu/kubepods/burstable/pod1",
        "memory/kubepods/burstable/pod1",
        "pids/kubepods/besteffort/pod2-x",
        "memory/kubepods/podthree",
        "memory/kubepods/burstable/cri-containerd-77",
        "memory/kubepods/pod",
        "memory/kubepods/burstable/deep/pod9",
    ] {
        fs::create_dir_all(fixture.dir.path().join(folder)).unwrap();
    }
    let found: Vec<_> = fixture.tree().list_pods().unwrap();
    let found: Vec<_> = found.iter().map(|(path, uid)| (path.to_str().unwrap(), uid.as_str())).collect();
    let expect =
        [("/kubepods/besteffort/pod2-x", "2-x"), ("/kubepods/burstable/pod1", "1"), ("/kubepods/podthree", "three")];
    assert_eq!(found, expect);
    assert_eq!(Fixture::v2().tree().list_pods().unwrap(), [], "no kubepods yet");
}

#[test]
fn only_cgroups_of_pods_are_destroyed() {
    let fixture = Fixture::v1().levels();
    let tree = fixture.tree();
    for path in [
        "/",
        "/kubepods",
        "/kubepods/burstable",
        "/system.slice/podx",
        "/kubepods/burstable/podx/inner",
        "/kubepods/../podx",
    ] {
        let error = tree.destroy(Path::new(path)).unwrap_err();
        assert!(matches!(error, HostError::Refused { .. }), "{path}: {error}");
    }
    let error = tree.ensure_pod(QosLevel::Burstable, &uid("../../x"), &values()).unwrap_err();
    assert!(matches!(error, HostError::Refused { .. }), "{error}");
    tree.destroy(Path::new("/kubepods/podgone")).unwrap();
    // Folders of a fixture hold no files here, as the kernel's would not count.
    fs::create_dir_all(fixture.dir.path().join("memory/kubepods/podz/a/b")).unwrap();
    tree.destroy(Path::new("/kubepods/podz")).unwrap();
    assert!(!fixture.dir.path().join("memory/kubepods/podz").exists());
}

#[test]
fn what_is_not_empty_stays_and_is_told() {
    let fixture = Fixture::v1().levels();
    fixture.fill("kubepods/podx");
    let error = fixture.tree().destroy(Path::new("/kubepods/podx")).unwrap_err();
    assert!(matches!(error, HostError::Io { op: "remove cgroup", .. }), "{error}");
}

#[test]
fn the_root_setting_moves_the_tree() {
    for (root, expect) in [
        ("", Some("/kubepods")),
        ("/edge/a", Some("/edge/a/kubepods")),
        ("a/./b", Some("/a/b/kubepods")),
        ("../x", None),
    ] {
        let tree = Fixture::v1().open(root);
        assert_eq!(tree.ok().map(|t| t.kubepods().to_path_buf()).as_deref(), expect.map(Path::new), "{root}");
    }
}

#[test]
fn the_systemd_driver_needs_v2() {
    let fixture = Fixture::v1();
    let error = fixture.open_for("/", CgroupDriver::Systemd).unwrap_err();
    assert!(error.to_string().contains("set cgroupDriver: cgroupfs"), "{error}");
}

#[test]
fn systemd_calls_cgroups_by_its_own_names() {
    let uid = PodUid::from("12-34");
    for (root, qos, expect) in [
        ("/", QosLevel::Guaranteed, "/kubepods.slice/kubepods-pod12_34.slice"),
        ("", QosLevel::Burstable, "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_34.slice"),
        (
            "/a-b/c",
            QosLevel::BestEffort,
            "/a_b.slice/a_b-c.slice/a_b-c-kubepods.slice/a_b-c-kubepods-besteffort.slice/a_b-c-kubepods-besteffort-pod12_34.slice",
        ),
    ] {
        let tree = Fixture::v2().open_for(root, CgroupDriver::Systemd).unwrap();
        let pod = tree.pod(qos, &uid);
        assert_eq!(pod, Path::new(expect));
        assert_eq!(tree.driver(), CgroupDriver::Systemd);
        tree.check_pod(&pod, "look at").unwrap();
        assert_eq!(pod.file_name().and_then(|name| pod_uid(name.to_str()?)), Some(uid.clone()));
    }
    assert_eq!(pod_uid("kubepods-burstable.slice"), None);
    assert_eq!(pod_uid("cri-containerd-podx.scope"), None);
}

#[test]
fn values_become_properties_that_systemd_knows() {
    let values = |change: fn(&mut CgroupValues)| {
        let mut values = CgroupValues::default();
        change(&mut values);
        cgroup_values::properties(&values)
    };
    assert_eq!(values(|_| {}), []);
    assert_eq!(values(|v| v.cpu_shares = Some(2)), [("CPUWeight", 1)]);
    assert_eq!(values(|v| v.memory_limit = Some(-1)), [("MemoryMax", u64::MAX)]);
    assert_eq!(values(|v| v.memory_limit = Some(4096)), [("MemoryMax", 4096)]);
    assert_eq!(values(|v| v.pids_limit = Some(9)), [("TasksMax", 9)]);
    let quota = |quota, period| {
        let values = CgroupValues { cpu_quota: Some(quota), cpu_period: period, ..CgroupValues::default() };
        cgroup_values::properties(&values)
    };
    assert_eq!(quota(50_000, Some(100_000)), [("CPUQuotaPeriodUSec", 100_000), ("CPUQuotaPerSecUSec", 500_000)]);
    assert_eq!(quota(1, Some(100_000)), [("CPUQuotaPeriodUSec", 100_000), ("CPUQuotaPerSecUSec", 10_000)]);
    assert_eq!(quota(-1, None), [("CPUQuotaPerSecUSec", u64::MAX)]);
}

#[test]
fn a_machine_without_cgroups_is_told_so() {
    let fixture = Fixture::v1();
    fs::write(fixture.dir.path().join("mountinfo"), "9 1 0:9 / / rw - ext4 none rw\n").unwrap();
    let error = fixture.open("/").unwrap_err();
    assert!(error.to_string().contains("no cgroup file system is mounted"), "{error}");
}

#[test]
fn shares_and_weights() {
    for (milli, shares, weight) in [
        (-5, 2, 1),
        (0, 2, 1),
        (1, 2, 1),
        (100, 102, 4),
        (1000, 1024, 39),
        (256_000, 262_144, 10_000),
        (i64::MAX, 262_144, 10_000),
    ] {
        assert_eq!((cpu_shares(milli), cpu_weight(cpu_shares(milli))), (shares, weight), "{milli}");
    }
    assert_eq!(cpu_weight(0), 1);
}

#[test]
fn a_real_cgroup_is_made_filled_emptied_and_removed() {
    // On a hybrid machine both versions can be tried.
    let hybrid = Path::new(CGROUP_MOUNT).join("unified");
    let table = MountTable::read(Path::new(MOUNT_TABLE)).unwrap();
    let mut mounts = vec![PathBuf::from(CGROUP_MOUNT)];
    mounts.extend(table.is_mount_point(&hybrid).then_some(hybrid));
    mounts.iter().for_each(|mount| real_cgroup(mount));
}

fn real_cgroup(mount: &Path) {
    let root = format!("/ferrolet-test-{}", std::process::id());
    let tree = match CgroupTree::open(Path::new(MOUNT_TABLE), mount, &root, CgroupDriver::Cgroupfs) {
        Ok(tree) => tree,
        Err(e) => return report(&format!("skipped: no control groups at {} ({e})", mount.display())),
    };
    let control = mount.join("cgroup.subtree_control");
    let before = read_file(&control).unwrap_or_default();
    let remove_root = || {
        let levels = [tree.level(QosLevel::Burstable), tree.level(QosLevel::BestEffort)];
        for cgroup in levels.into_iter().chain([tree.kubepods().to_path_buf(), PathBuf::from(&root)]) {
            tree.folders(&cgroup).iter().for_each(|folder| drop(fs::remove_dir(folder)));
        }
        let after = read_file(&control).unwrap_or_default();
        for name in after.split_whitespace().filter(|name| !before.split_whitespace().any(|old| old == *name)) {
            let _ = write_file(&control, &format!("-{name}"));
        }
    };
    if let Err(e) = tree.ensure_levels(&CgroupValues::default(), 512) {
        remove_root();
        return report(&format!("skipped: this user may not make control groups ({})", crate::host::explain(&e)));
    }
    let cgroup = tree.ensure_pod(QosLevel::Burstable, &uid("real"), &values()).unwrap();
    tree.ensure_pod(QosLevel::Burstable, &uid("real"), &values()).unwrap();
    assert_eq!(tree.list_pods().unwrap(), [(cgroup.clone(), uid("real"))]);
    let (memory, pages) = match tree.version() {
        CgroupVersion::V1 => ("memory.limit_in_bytes", "hugetlb.2MB.limit_in_bytes"),
        CgroupVersion::V2 => ("memory.max", "hugetlb.2MB.max"),
    };
    let missing = tree.missing_controllers();
    for (controller, file, expect) in
        [("memory", memory, "67108864"), ("hugetlb", pages, "4194304"), ("pids", "pids.max", "100")]
    {
        if !missing.iter().any(|name| name == controller) {
            let folder = tree.controller_folder(controller, &cgroup).unwrap();
            assert_eq!(read_file(&folder.join(file)).unwrap().trim(), expect, "{file}");
        }
    }
    // A process of a container that outlived its pod, two levels down.
    let mut child = Command::new("sh").args(["-c", "echo up; exec sleep 600"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut moved = 0;
    for folder in tree.folders(&cgroup) {
        let inner = folder.join("container");
        if fs::create_dir_all(&inner).is_ok() {
            let _ = inherit_cpuset(&folder, &inner);
            moved += usize::from(write_file(&inner.join("cgroup.procs"), &child.id().to_string()).is_ok());
        }
    }
    assert!(moved > 0);
    // Reaps the child as soon as it dies: a zombie still counts as a process of its cgroup.
    let reaper = std::thread::spawn(move || child.wait().unwrap());
    let outcome = tree.destroy(&cgroup);
    remove_root();
    outcome.unwrap();
    assert!(!reaper.join().unwrap().success());
    assert!(tree.folders(Path::new(&root)).iter().all(|folder| !folder.exists()));
}

//! What of the machine a node needs: rights, kernel, cgroups, swap, disk, clock. Each judgement is a function over what was found.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{Line, fail, ok, warn};
use crate::config::Loaded;
use crate::host::cgroup::{CGROUP_MOUNT, CgroupDriver, CgroupTree, CgroupVersion};
use crate::host::explain;
use crate::host::facts::{self, Room};
use crate::host::mounts::MOUNT_TABLE;
use crate::util::fs::read_bounded;

/// Kernel settings that the kubelet wants, and what they are for.
const SYSCTLS: &[(&str, &str)] = &[
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// A clock before this time was never set: it is older than this program (1 November 2026).
const NOT_BEFORE: i64 = 1_793_491_200;

pub(super) fn lines(loaded: &Loaded) -> Vec<Line> {
    let set = &loaded.config;
    let mut lines = Vec::new();
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    lines.push(if is_root {
        ok("rights", "runs as root")
    } else {
        fail(
            "rights",
            "does not run as root",
            "run this, and the agent, as root: without that much here cannot be seen",
        )
    });
    match facts::read(Path::new("/")) {
        Ok(machine) => {
            lines.push(swap(&machine.swap_devices, set.fail_swap_on));
            let name = loaded.flags.hostname_override.clone().unwrap_or(machine.hostname);
            lines.push(hostname(&name));
            lines.push(if machine.machine_id.is_empty() {
                warn(
                    "machine-id",
                    "/etc/machine-id is empty",
                    "run systemd-machine-id-setup: nodes are told apart by it",
                )
            } else {
                ok("machine-id", machine.machine_id)
            });
        }
        Err(error) => lines.push(fail("machine", explain(&error), "mount procfs and sysfs")),
    }
    lines.extend(cgroups(loaded));
    for (name, what) in
        [("overlay", "images are kept with it"), ("br_netfilter", "services reach pods of a bridge by it")]
    {
        lines.push(module(name, what));
    }
    lines.push(sysctl("net/ipv4/ip_forward", "1", value("net/ipv4/ip_forward").as_deref(), false));
    for (name, wanted) in SYSCTLS {
        lines.push(sysctl(name, wanted, value(name).as_deref(), set.protect_kernel_defaults));
    }
    for (what, folder) in
        [("disk.root-dir", loaded.flags.root_dir.as_path()), ("disk.logs", Path::new(&set.pod_logs_dir))]
    {
        lines.push(match nearest(folder).and_then(|folder| facts::room(folder).ok()) {
            Some(room) => disk(what, folder, room),
            None => warn(what, format!("{} cannot be looked at", folder.display()), "see that it can be made"),
        });
    }
    lines.push(clock(
        crate::util::clock::wall() / 1_000_000_000,
        Path::new("/run/systemd/timesync/synchronized").exists(),
    ));
    if !set.resolv_conf.is_empty() {
        lines.push(match facts::read_resolv_conf(Path::new(&set.resolv_conf)) {
            Ok(_) => ok("resolv-conf", set.resolv_conf.as_str()),
            Err(error) => fail("resolv-conf", explain(&error), "set resolvConf to a file that is there, or to \"\""),
        });
    }
    if !crate::app::facts::shutdown_periods(set).is_empty() {
        lines.push(if crate::host::bus::system_bus().exists() {
            ok("shutdown", "logind can be heard: pods end in order when the machine shuts down")
        } else {
            warn(
                "shutdown",
                "there is no D-Bus, so shutdownGracePeriod has no effect",
                "install dbus and systemd-logind",
            )
        });
    }
    lines
}

fn swap(devices: &[String], fail_swap_on: bool) -> Line {
    match (devices, fail_swap_on) {
        ([], _) => ok("swap", "off"),
        (some, false) => ok("swap", format!("on ({}), and failSwapOn is false: pods get none of it", some.join(", "))),
        (some, true) => fail(
            "swap",
            format!("on ({}), and failSwapOn is true", some.join(", ")),
            "turn it off (swapoff -a and /etc/fstab) or set failSwapOn: false",
        ),
    }
}

fn hostname(name: &str) -> Line {
    let fits = |part: &str| {
        !part.is_empty()
            && part.len() <= 63
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    let name = name.trim().to_lowercase();
    if name.len() <= 253 && name.split('.').all(fits) {
        ok("node-name", name)
    } else {
        fail(
            "node-name",
            format!("`{name}` is no name for a node"),
            "use a-z, 0-9, - and . (hostnamectl, --hostname-override)",
        )
    }
}

fn cgroups(loaded: &Loaded) -> Vec<Line> {
    let set = &loaded.config;
    let opened =
        CgroupTree::open(Path::new(MOUNT_TABLE), Path::new(CGROUP_MOUNT), &set.cgroup_root, CgroupDriver::Cgroupfs);
    let tree = match opened {
        Ok(tree) => tree,
        Err(error) => return vec![fail("cgroup", explain(&error), "mount cgroup2 on /sys/fs/cgroup")],
    };
    vec![cgroup_version(tree.version(), set.fail_cgroup_v1), controllers(&tree.missing_controllers())]
}

fn cgroup_version(version: CgroupVersion, fail_v1: bool) -> Line {
    let advice = "boot with systemd.unified_cgroup_hierarchy=1, or set failCgroupV1: false";
    match (version, fail_v1) {
        (CgroupVersion::V2, _) => ok("cgroup", "v2"),
        (CgroupVersion::V1, true) => fail("cgroup", "v1, and failCgroupV1 is true", advice),
        (CgroupVersion::V1, false) => {
            warn("cgroup", "v1, which Kubernetes no longer develops", "boot with systemd.unified_cgroup_hierarchy=1")
        }
    }
}

fn controllers(missing: &[String]) -> Line {
    let vital: Vec<&str> =
        missing.iter().map(String::as_str).filter(|name| ["cpu", "memory", "pids"].contains(name)).collect();
    match (missing, vital.as_slice()) {
        ([], _) => ok("cgroup.controllers", "all that pods need"),
        (_, []) => warn(
            "cgroup.controllers",
            format!("without {}", missing.join(", ")),
            "pods run; their limits of that kind are not enforced",
        ),
        (_, vital) => fail(
            "cgroup.controllers",
            format!("without {}", vital.join(", ")),
            "on Raspberry Pi and the like add cgroup_enable=memory to the kernel's command line",
        ),
    }
}

fn module(name: &str, what: &str) -> Line {
    let in_use = Path::new("/sys/module").join(name).exists()
        || (name == "overlay" && text(Path::new("/proc/filesystems")).is_some_and(|all| all.contains("overlay")));
    let check = format!("module.{name}");
    match in_use {
        true => ok(&check, "loaded"),
        false => warn(
            &check,
            format!("not loaded; {what}"),
            format!("modprobe {name}, and name it in /etc/modules-load.d/ferrolet.conf"),
        ),
    }
}

fn sysctl(name: &str, wanted: &str, found: Option<&str>, is_vital: bool) -> Line {
    let check = format!("sysctl.{}", name.replace('/', "."));
    let advice = format!("sysctl -w {}={wanted}, and write it to /etc/sysctl.d/ferrolet.conf", name.replace('/', "."));
    match found {
        Some(found) if found == wanted => ok(&check, found),
        None => warn(&check, "this kernel does not have it", ""),
        Some(found) if is_vital => fail(&check, format!("{found}, and protectKernelDefaults is true"), advice),
        Some(found) => warn(&check, found, advice),
    }
}

fn disk(check: &str, folder: &Path, room: Room) -> Line {
    let found = format!(
        "{}: {} MiB ({} %) and {} % of its inodes are free",
        folder.display(),
        room.free_bytes >> 20,
        room.free_percent,
        room.free_inodes_percent
    );
    if room.free_percent < 5 || room.free_inodes_percent < 3 || room.free_bytes < 64 << 20 {
        fail(check, found, "make room: images and containers will not fit")
    } else if room.free_percent < 15 || room.free_inodes_percent < 5 {
        warn(check, found, "make room: below evictionHard (10 %, 15 % for images) pods are not wanted here")
    } else {
        ok(check, found)
    }
}

fn clock(seconds: i64, is_synchronized: bool) -> Line {
    if seconds < NOT_BEFORE {
        let advice = "set the clock (timedatectl): certificates and tokens will not count";
        return fail("clock", format!("it is {seconds} s after 1970 by it"), advice);
    }
    match is_synchronized {
        true => ok("clock", "set from the network"),
        false => warn(
            "clock",
            "plausible; systemd-timesyncd does not say that it was set from the network",
            "see that something keeps it (timedatectl status, chronyc tracking)",
        ),
    }
}

/// The folder, or the nearest one above it that is there.
fn nearest(folder: &Path) -> Option<&Path> {
    folder.ancestors().find(|folder| folder.is_dir())
}

fn value(name: &str) -> Option<String> {
    text(&Path::new("/proc/sys").join(name))
}

fn text(path: &Path) -> Option<String> {
    let bytes = read_bounded(path, 1 << 16).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::Verdict::{Fail, Ok as Fine, Warn};
    use super::super::tests::check;
    use super::*;

    #[test]
    fn the_machine_is_judged() {
        let swapped = ["/dev/sda2".to_owned()];
        check(swap(&[], true), Fine);
        check(swap(&swapped, false), Fine);
        check(swap(&swapped, true), Fail);
        for (name, expect) in
            [("node-1.example", Fine), ("Node", Fine), ("a_b", Fail), ("", Fail), ("-a", Fail), ("a..b", Fail)]
        {
            check(hostname(name), expect);
        }
        check(cgroup_version(CgroupVersion::V2, true), Fine);
        check(cgroup_version(CgroupVersion::V1, true), Fail);
        check(cgroup_version(CgroupVersion::V1, false), Warn);
        let missing = |names: &[&str]| controllers(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        check(missing(&[]), Fine);
        check(missing(&["hugetlb"]), Warn);
        check(missing(&["hugetlb", "memory"]), Fail);
        check(sysctl("vm/panic_on_oom", "0", Some("0"), true), Fine);
        check(sysctl("vm/panic_on_oom", "0", Some("1"), false), Warn);
        check(sysctl("vm/panic_on_oom", "0", Some("1"), true), Fail);
        check(sysctl("vm/panic_on_oom", "0", None, true), Warn);
        let room = |free_percent, free_inodes_percent| {
            disk("disk", Path::new("/"), Room { free_bytes: 1 << 40, free_percent, free_inodes_percent })
        };
        check(room(50, 50), Fine);
        check(room(14, 50), Warn);
        check(room(50, 4), Warn);
        check(room(4, 50), Fail);
        check(room(50, 2), Fail);
        check(clock(0, true), Fail);
        check(clock(NOT_BEFORE, true), Fine);
        check(clock(NOT_BEFORE, false), Warn);
    }

    #[test]
    fn a_folder_that_is_not_there_yet_is_judged_by_the_one_above() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(nearest(&folder.path().join("a/b")), Some(folder.path()));
    }
}

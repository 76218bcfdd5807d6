//! Values of one cgroup: CPU, memory, process ids, huge pages; how they are converted and written.
//!
//! Layer L1, blocking file access on the caller's thread; owns nothing. A value is read first and
//! written only when it differs, so that running again costs no write. It never sets what was not
//! asked for and never makes a cgroup.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cgroups_rs::MaxValue;
use cgroups_rs::cpu::CpuController;
use cgroups_rs::memory::MemController;
use cgroups_rs::pid::PidController;

use super::HostError;
use super::bus::units::{INFINITY, Property};
use super::cgroup::{CgroupVersion, read_file, write_file};
use crate::api::runtime::Resources;

/// Values of a cgroup. What is `None` is left as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupValues {
    /// CPU shares on the scale of v1, 2 to 262144.
    pub cpu_shares: Option<u64>,
    /// CPU time in microseconds per period; -1 for no limit.
    pub cpu_quota: Option<i64>,
    /// Period in microseconds.
    pub cpu_period: Option<u64>,
    /// Memory limit in bytes; -1 for none.
    pub memory_limit: Option<i64>,
    /// Largest number of processes and threads; -1 for no limit.
    pub pids_limit: Option<i64>,
    /// Limit in bytes for each huge page size (`2MB`).
    pub hugepages: BTreeMap<String, u64>,
    /// Raw v2 keys (`memory.high`); ignored by v1, which has none of them.
    pub unified: BTreeMap<String, String>,
}

impl From<&Resources> for CgroupValues {
    /// In `Resources` 0 stands for "not set", as on the wire.
    fn from(resources: &Resources) -> Self {
        let set = |value: i64| (value != 0).then_some(value);
        let positive = |value: i64| u64::try_from(value).ok().filter(|v| *v > 0);
        Self {
            cpu_shares: positive(resources.cpu_shares),
            cpu_quota: set(resources.cpu_quota),
            cpu_period: positive(resources.cpu_period),
            memory_limit: set(resources.memory_limit),
            pids_limit: None,
            hugepages: resources.hugepages.iter().cloned().collect(),
            unified: resources.unified.clone(),
        }
    }
}

/// CPU weight of v2 (1 to 10000) for shares of v1 (2 to 262144), on a straight line between the ends.
///
/// This is what the upstream kubelet 1.36 does for the cgroups it makes itself (kubepods, levels, pods).
/// runc and crun of 2025 and later convert the shares of *containers* by a curve that maps 1024 to 100;
/// that is the runtime's choice and happens below our cgroups, where only siblings are compared.
pub fn cpu_weight(shares: u64) -> u64 {
    match shares {
        0..=2 => 1,
        262_144.. => 10_000,
        shares => 1 + ((shares - 2) * 9_999) / 262_142,
    }
}

/// CPU shares of v1 for thousandths of a CPU: 1024 for one CPU, within 2 and 262144.
pub fn cpu_shares(milli_cpu: i64) -> u64 {
    let milli = u64::try_from(milli_cpu).unwrap_or(0);
    (milli.saturating_mul(1024) / 1000).clamp(2, 262_144)
}

/// The values that systemd has words for, as properties of a slice (cgroup v2). It rounds CPU time up to whole percents.
pub(super) fn properties(values: &CgroupValues) -> Vec<Property> {
    let limit = |value: i64| u64::try_from(value).unwrap_or(INFINITY);
    let mut found = Vec::new();
    found.extend(values.cpu_shares.map(|shares| ("CPUWeight", cpu_weight(shares))));
    found.extend(values.cpu_period.map(|period| ("CPUQuotaPeriodUSec", period)));
    found.extend(values.cpu_quota.map(|quota| {
        let period = values.cpu_period.unwrap_or(100_000).max(1);
        let per_second = |quota: u64| (quota.saturating_mul(1_000_000) / period).div_ceil(10_000) * 10_000;
        ("CPUQuotaPerSecUSec", u64::try_from(quota).ok().filter(|quota| *quota > 0).map_or(INFINITY, per_second))
    }));
    found.extend(values.memory_limit.map(|bytes| ("MemoryMax", limit(bytes))));
    found.extend(values.pids_limit.map(|pids| ("TasksMax", limit(pids))));
    found
}

/// Writes the values into one folder. Only values of the controllers given, and only where the folder
/// has the file: a controller that is missing was told about once at start.
pub(super) fn apply(
    version: CgroupVersion,
    controllers: &BTreeSet<String>,
    folder: &Path,
    values: &CgroupValues,
) -> Result<(), HostError> {
    let v2 = version == CgroupVersion::V2;
    let has = |controller: &str, file: &str| controllers.contains(controller) && folder.join(file).exists();
    let failed =
        |what: String| move |e| HostError::CgroupValue { what, path: folder.to_path_buf(), source: Box::new(e) };

    if let Some(shares) = values.cpu_shares
        && has("cpu", if v2 { "cpu.weight" } else { "cpu.shares" })
    {
        let cpu = CpuController::new(folder.to_path_buf(), v2);
        let wanted = if v2 { cpu_weight(shares) } else { shares.clamp(2, 262_144) };
        if cpu.shares().ok() != Some(wanted) {
            cpu.set_shares(wanted).map_err(failed(format!("cpu shares {wanted}")))?;
        }
    }
    if (values.cpu_quota.is_some() || values.cpu_period.is_some())
        && has("cpu", if v2 { "cpu.max" } else { "cpu.cfs_quota_us" })
    {
        set_bandwidth(v2, folder, values)?;
    }
    if let Some(limit) = values.memory_limit
        && has("memory", if v2 { "memory.max" } else { "memory.limit_in_bytes" })
    {
        let file = folder.join(if v2 { "memory.max" } else { "memory.limit_in_bytes" });
        let wanted = if limit < 0 { -1 } else { limit };
        if !same_limit(&read_file(&file)?, wanted) {
            let memory = MemController::new(folder.to_path_buf(), v2);
            memory.set_limit(wanted).map_err(failed(format!("memory limit {wanted}")))?;
        }
    }
    if let Some(limit) = values.pids_limit
        && has("pids", "pids.max")
    {
        let pids = PidController::new(folder.to_path_buf(), v2);
        let wanted = if limit < 0 { MaxValue::Max } else { MaxValue::Value(limit) };
        if pids.get_pid_max().ok() != Some(wanted) {
            pids.set_pid_max(wanted).map_err(failed(format!("process limit {limit}")))?;
        }
    }
    if controllers.contains("hugetlb") {
        for (size, limit) in &values.hugepages {
            limit_hugepages(version, folder, size, *limit)?;
        }
    }
    if v2 {
        for (key, value) in &values.unified {
            if key.contains('/') || !key.contains('.') || key.starts_with("cgroup.") {
                return Err(HostError::refused("write", folder.join(key), "it is not the key of a controller"));
            }
            write_if_differs(folder, key, value)?;
        }
    }
    Ok(())
}

/// Those of the limits on CPU time and memory that are above what a folder has now. What cannot be read counts as lower.
pub(super) fn above(
    version: CgroupVersion,
    controllers: &BTreeSet<String>,
    folder: &Path,
    values: &CgroupValues,
) -> CgroupValues {
    let v2 = version == CgroupVersion::V2;
    let higher = |wanted: i64, now: i64| now >= 0 && (wanted < 0 || wanted > now);
    let memory = || {
        let file = folder.join(if v2 { "memory.max" } else { "memory.limit_in_bytes" });
        let text = read_file(&file).ok()?;
        Some(if same_limit(&text, -1) { -1 } else { text.trim().parse().ok()? })
    };
    let quota = || {
        let quota = CpuController::new(folder.to_path_buf(), v2).cfs_quota().ok()?;
        Some(if quota == i64::MAX { -1 } else { quota })
    };
    let with = |controller: &str| controllers.contains(controller);
    let memory_limit = values.memory_limit.filter(|wanted| with("memory") && higher(*wanted, memory().unwrap_or(0)));
    let cpu_quota = values.cpu_quota.filter(|wanted| with("cpu") && higher(*wanted, quota().unwrap_or(0)));
    let cpu_period = values.cpu_period.filter(|_| cpu_quota.is_some());
    CgroupValues { cpu_quota, cpu_period, memory_limit, ..CgroupValues::default() }
}

fn limit_hugepages(version: CgroupVersion, folder: &Path, size: &str, limit: u64) -> Result<(), HostError> {
    let file = hugepage_file(version);
    // Reserved pages are bounded too where the kernel counts them (5.7 and later).
    for kind in ["", "rsvd."] {
        write_if_differs(folder, &format!("hugetlb.{size}.{kind}{file}"), &limit.to_string())?;
    }
    Ok(())
}

fn hugepage_file(version: CgroupVersion) -> &'static str {
    match version {
        CgroupVersion::V1 => "limit_in_bytes",
        CgroupVersion::V2 => "max",
    }
}

/// Sets the limit of every huge page size that is not in `named` to 0. The kernel's files tell which
/// sizes there are.
pub(super) fn forbid_other_hugepages(
    version: CgroupVersion,
    folder: &Path,
    named: &BTreeMap<String, u64>,
) -> Result<(), HostError> {
    let entries = std::fs::read_dir(folder).map_err(|e| HostError::io("list cgroup", folder, e))?;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let size = name.to_str().and_then(|name| name.strip_prefix("hugetlb.")?.strip_suffix(hugepage_file(version)));
        // "2MB." is a limit, "2MB.rsvd." its twin.
        if let Some(size) = size.and_then(|size| size.strip_suffix('.'))
            && !size.contains('.')
            && !named.contains_key(size)
        {
            limit_hugepages(version, folder, size, 0)?;
        }
    }
    Ok(())
}

fn set_bandwidth(v2: bool, folder: &Path, values: &CgroupValues) -> Result<(), HostError> {
    let cpu = CpuController::new(folder.to_path_buf(), v2);
    let (old_quota, old_period) = (cpu.cfs_quota().ok(), cpu.cfs_period().ok());
    // v2 spells "no limit" as a word, which cgroups-rs gives back as the largest number.
    let old_quota = old_quota.map(|quota| if quota == i64::MAX { -1 } else { quota });
    let quota = values.cpu_quota.map(|quota| if quota <= 0 { -1 } else { quota });
    let quota = quota.filter(|quota| Some(*quota) != old_quota);
    let period = values.cpu_period.filter(|period| Some(*period) != old_period);
    if quota.is_none() && period.is_none() {
        return Ok(());
    }
    let failed = |e| HostError::CgroupValue {
        what: format!("cpu quota {quota:?} period {period:?}"),
        path: folder.to_path_buf(),
        source: Box::new(e),
    };
    if v2 {
        return cpu.set_cfs_quota_and_period(quota, period).map_err(failed);
    }
    // v1 checks each file against the other and against the children: where the new period does not
    // go with the old quota, the quota goes first.
    let period_later = match period {
        Some(period) if cpu.set_cfs_period(period).is_err() => Some(period),
        _ => None,
    };
    if let Some(quota) = quota {
        cpu.set_cfs_quota(quota).map_err(failed)?;
    }
    period_later.map_or(Ok(()), |period| cpu.set_cfs_period(period).map_err(failed))
}

/// Whether a memory limit is already in force. The kernel rounds down to whole pages, and v1 prints
/// "no limit" as the largest number of pages.
fn same_limit(current: &str, wanted: i64) -> bool {
    const PAGE: i64 = 4096;
    let current = current.trim();
    let unlimited = current == "max" || current.parse::<i64>().is_ok_and(|v| v >= i64::MAX / PAGE * PAGE - 65536);
    match wanted {
        ..0 => unlimited,
        wanted => current.parse::<i64>().is_ok_and(|v| v == wanted || v == wanted / PAGE * PAGE),
    }
}

fn write_if_differs(folder: &Path, name: &str, value: &str) -> Result<(), HostError> {
    let file = folder.join(name);
    match read_file(&file) {
        Ok(current) if current.trim() == value => Ok(()),
        Err(e) if e.is_not_found() => Ok(()),
        _ => write_file(&file, value).map_err(|e| HostError::io("write", file, e)),
    }
}

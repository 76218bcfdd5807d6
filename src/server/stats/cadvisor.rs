//! /metrics/cadvisor: container_* by the names, labels and units that cAdvisor made usual. Pure writing, but for the
//! machine's file systems; see the parent module.
//!
//! One table of metrics, and one list of cgroups that each is told of. What a cgroup has no figure for is left out.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Stats;
use super::gather::{ContainerReading, NodeReading, PodReading, Used};
use super::resource::seconds;
use crate::host::mounts::MountTable;
use crate::host::usage::disk::{Measure, Question, Room};
use crate::host::usage::network::Interface;
use crate::host::usage::node::BlockDevice;
use crate::host::usage::{CgroupUsage, DiskIo, Memory, Reader};
use crate::util::metrics::Kind::{Counter, Gauge};
use crate::util::metrics::{Kind, Number, Text, push_label};
use crate::util::order::Gather;

/// How long the machine's file systems may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// Sizes of file systems are good for that long.
const FRESH: Duration = Duration::from_secs(10);

/// A cgroup with its labels.
struct Subject<'a> {
    labels: String,
    used: &'a Used,
    interfaces: &'a [Interface],
    is_machine: bool,
}

/// A metric with one series for each cgroup. A label that all series have is part of the row.
struct Row(&'static str, Kind, &'static str, &'static str, fn(&Used) -> Option<Number>);

/// Those that come with the time of the look.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row("container_cpu_cfs_burst_periods_total", Counter, "Periods in which more than the quota was used.", "", |used| quota(used, |cpu| cpu.burst_periods.into())),
    Row("container_cpu_cfs_burst_seconds_total", Counter, "Seconds of CPU used above the quota.", "", |used| quota(used, |cpu| seconds(cpu.burst))),
    Row("container_cpu_cfs_periods_total", Counter, "Periods in which anything ran.", "", |used| quota(used, |cpu| cpu.periods.into())),
    Row("container_cpu_cfs_throttled_periods_total", Counter, "Periods in which the quota was used up.", "", |used| quota(used, |cpu| cpu.throttled_periods.into())),
    Row("container_cpu_cfs_throttled_seconds_total", Counter, "Seconds that it was throttled.", "", |used| quota(used, |cpu| seconds(cpu.throttled))),
    Row("container_cpu_system_seconds_total", Counter, "Seconds of CPU used in the kernel.", "", |used| used.usage.cpu.map(|cpu| seconds(cpu.system))),
    Row("container_cpu_usage_seconds_total", Counter, "Seconds of CPU used.", "cpu=\"total\"", |used| used.usage.cpu.map(|cpu| seconds(cpu.usage))),
    Row("container_cpu_user_seconds_total", Counter, "Seconds of CPU used outside the kernel.", "", |used| used.usage.cpu.map(|cpu| seconds(cpu.user))),
    Row("container_file_descriptors", Gauge, "Open file descriptors.", "", |used| used.usage.processes.map(|processes| processes.descriptors.into())),
    Row("container_memory_cache", Gauge, "Bytes of page cache.", "", |used| memory(used, |memory| Some(memory.cache))),
    Row("container_memory_failcnt", Counter, "Times that the memory limit was met.", "", |used| memory(used, |memory| memory.failcnt)),
    Row("container_memory_kernel_usage", Gauge, "Bytes that the kernel holds for it.", "", |used| memory(used, |memory| memory.kernel)),
    Row("container_memory_mapped_file", Gauge, "Bytes of mapped files.", "", |used| memory(used, |memory| Some(memory.mapped_file))),
    Row("container_memory_max_usage_bytes", Gauge, "Most bytes of memory used so far.", "", |used| memory(used, |memory| memory.max_usage)),
    Row("container_memory_rss", Gauge, "Bytes of anonymous memory.", "", |used| memory(used, |memory| Some(memory.rss))),
    Row("container_memory_swap", Gauge, "Bytes of swap used.", "", |used| memory(used, |memory| memory.swap)),
    Row("container_memory_total_active_file_bytes", Gauge, "Bytes of file pages used lately.", "", |used| memory(used, |memory| Some(memory.active_file))),
    Row("container_memory_total_inactive_file_bytes", Gauge, "Bytes of file pages not used lately.", "", |used| memory(used, |memory| Some(memory.inactive_file))),
    Row("container_memory_usage_bytes", Gauge, "Bytes of memory used, caches included.", "", |used| memory(used, |memory| Some(memory.usage))),
    Row("container_memory_working_set_bytes", Gauge, "Bytes of memory that can't be taken away.", "", |used| memory(used, |memory| Some(memory.working_set()))),
    Row("container_oom_events_total", Counter, "Processes killed because memory ran out.", "", |used| memory(used, |memory| memory.oom_kills)),
    Row("container_pressure_cpu_stalled_seconds_total", Counter, "Seconds in which nothing could run for want of CPU.", "", |used| used.usage.pressure.cpu.map(|psi| micros(psi.full.total))),
    Row("container_pressure_cpu_waiting_seconds_total", Counter, "Seconds in which something waited for CPU.", "", |used| used.usage.pressure.cpu.map(|psi| micros(psi.some.total))),
    Row("container_pressure_io_stalled_seconds_total", Counter, "Seconds in which nothing could run for want of disks.", "", |used| used.usage.pressure.io.map(|psi| micros(psi.full.total))),
    Row("container_pressure_io_waiting_seconds_total", Counter, "Seconds in which something waited for disks.", "", |used| used.usage.pressure.io.map(|psi| micros(psi.some.total))),
    Row("container_pressure_memory_stalled_seconds_total", Counter, "Seconds in which nothing could run for want of memory.", "", |used| used.usage.pressure.memory.map(|psi| micros(psi.full.total))),
    Row("container_pressure_memory_waiting_seconds_total", Counter, "Seconds in which something waited for memory.", "", |used| used.usage.pressure.memory.map(|psi| micros(psi.some.total))),
    Row("container_processes", Gauge, "Processes.", "", |used| used.usage.processes.map(|processes| processes.count.into())),
    Row("container_sockets", Gauge, "Open sockets.", "", |used| used.usage.processes.map(|processes| processes.sockets.into())),
    Row("container_threads", Gauge, "Threads.", "", |used| used.usage.threads.map(|threads| threads.current.into())),
    Row("container_threads_max", Gauge, "Threads that there may be; 0 without a limit.", "", |used| used.usage.threads.map(|threads| threads.limit.unwrap_or(0).into())),
    Row("container_ulimits_soft", Gauge, "Limits of the first process.", "ulimit=\"max_open_files\"", |used| used.usage.processes?.max_open_files.map(Number::Whole)),
];

/// Those of what was asked for, which have no time.
#[rustfmt::skip]
const SPEC: &[Row] = &[
    Row("container_spec_cpu_period", Gauge, "Length of a period of CPU in microseconds.", "", |used| used.usage.cpu?.period.map(Number::Whole)),
    Row("container_spec_cpu_quota", Gauge, "Microseconds of CPU allowed in a period.", "", |used| used.usage.cpu?.quota.map(Number::Whole)),
    Row("container_spec_cpu_shares", Gauge, "Share of CPU beside others.", "", |used| used.usage.cpu?.shares.map(Number::Whole)),
    Row("container_spec_memory_limit_bytes", Gauge, "Limit of memory; 0 without one.", "", |used| used.usage.memory.map(|memory| memory.limit.unwrap_or(0).into())),
    Row("container_spec_memory_reservation_limit_bytes", Gauge, "Memory that is left to it; 0 without a reservation.", "", |used| used.usage.memory.map(|memory| memory.reservation.unwrap_or(0).into())),
    Row("container_spec_memory_swap_limit_bytes", Gauge, "Limit of swap; 0 without one.", "", |used| used.usage.memory.map(|memory| memory.swap_limit.unwrap_or(0).into())),
    Row("container_start_time_seconds", Gauge, "When it started, in seconds since 1970.", "", |used| u64::try_from(used.started_at / 1_000_000_000).ok().filter(|at| *at > 0).map(Number::Whole)),
];

/// A counter of an interface.
type OfInterface = fn(&Interface) -> u64;

#[rustfmt::skip]
const NETWORK: &[(&str, &str, OfInterface)] = &[
    ("container_network_receive_bytes_total", "Bytes received.", |interface| interface.received.bytes),
    ("container_network_receive_errors_total", "Errors while receiving.", |interface| interface.received.errors),
    ("container_network_receive_packets_dropped_total", "Packets dropped while receiving.", |interface| interface.received.dropped),
    ("container_network_receive_packets_total", "Packets received.", |interface| interface.received.packets),
    ("container_network_transmit_bytes_total", "Bytes sent.", |interface| interface.sent.bytes),
    ("container_network_transmit_errors_total", "Errors while sending.", |interface| interface.sent.errors),
    ("container_network_transmit_packets_dropped_total", "Packets dropped while sending.", |interface| interface.sent.dropped),
    ("container_network_transmit_packets_total", "Packets sent.", |interface| interface.sent.packets),
];

/// A counter of a disk: of a cgroup's use of it, and of the whole device. Some are known of devices alone.
struct DiskRow(&'static str, Kind, &'static str, Option<fn(&DiskIo) -> u64>, Option<fn(&BlockDevice) -> Number>);

#[rustfmt::skip]
const DISKS: &[DiskRow] = &[
    DiskRow("container_fs_io_current", Gauge, "Reads and writes under way.", None, Some(|device| device.counters[8].into())),
    DiskRow("container_fs_io_time_seconds_total", Counter, "Seconds in which it was busy.", None, Some(|device| millis(device.counters[9]))),
    DiskRow("container_fs_io_time_weighted_seconds_total", Counter, "Seconds in which it was busy, times what was under way.", None, Some(|device| millis(device.counters[10]))),
    DiskRow("container_fs_read_seconds_total", Counter, "Seconds spent reading.", None, Some(|device| millis(device.counters[3]))),
    DiskRow("container_fs_reads_bytes_total", Counter, "Bytes read.", Some(|disk| disk.read_bytes), None),
    DiskRow("container_fs_reads_merged_total", Counter, "Reads that were joined.", None, Some(|device| device.counters[1].into())),
    DiskRow("container_fs_reads_total", Counter, "Reads.", Some(|disk| disk.reads), Some(|device| device.counters[0].into())),
    DiskRow("container_fs_sector_reads_total", Counter, "Sectors read.", None, Some(|device| device.counters[2].into())),
    DiskRow("container_fs_sector_writes_total", Counter, "Sectors written.", None, Some(|device| device.counters[6].into())),
    DiskRow("container_fs_write_seconds_total", Counter, "Seconds spent writing.", None, Some(|device| millis(device.counters[7]))),
    DiskRow("container_fs_writes_bytes_total", Counter, "Bytes written.", Some(|disk| disk.written_bytes), None),
    DiskRow("container_fs_writes_merged_total", Counter, "Writes that were joined.", None, Some(|device| device.counters[5].into())),
    DiskRow("container_fs_writes_total", Counter, "Writes.", Some(|disk| disk.writes), Some(|device| device.counters[4].into())),
];

/// A figure of a file system.
type OfRoom = fn(&Room) -> u64;

const ROOMS: &[(&str, &str, OfRoom)] = &[
    ("container_fs_inodes_free", "Free inodes.", |room| room.inodes_free),
    ("container_fs_inodes_total", "Inodes.", |room| room.inodes),
    ("container_fs_limit_bytes", "Size of the file system.", |room| room.capacity),
    ("container_fs_usage_bytes", "Bytes taken on the file system.", |room| room.used),
];

pub(super) fn write(stats: &Stats, node: &NodeReading, text: &mut Text<'_>) {
    let at = node.at.wall / 1_000_000;
    let subjects = subjects(node);
    for row in ROWS {
        series(text, row, &subjects, Some(at));
    }
    for row in SPEC {
        series(text, row, &subjects, None);
    }
    text.head("container_last_seen", Gauge, "When it was looked at, in seconds since 1970.");
    let seen = u64::try_from(node.at.wall / 1_000_000_000).unwrap_or(0);
    for subject in &subjects {
        text.sample_at("container_last_seen", &subject.labels, "", seen.into(), at);
    }
    faults(text, &subjects, at);
    network(text, &subjects, at);
    let mut reader = Reader::new(&stats.sources.proc);
    let devices: BTreeMap<(u32, u32), BlockDevice> =
        reader.block_devices().into_iter().map(|device| (device.device, device)).gather();
    disks(text, &subjects, &devices, at);
    rooms(stats, text, &subjects, at);
    text.head("container_scrape_error", Gauge, "1 if the machine's figures could not be read, else 0.");
    text.sample("container_scrape_error", "", u64::from(node.failed).into());
}

fn subjects(node: &NodeReading) -> Vec<Subject<'_>> {
    let none: &[Interface] = &[];
    let labels = label_text("", "/", "", "", None);
    let mut subjects = vec![Subject { labels, used: &node.root, interfaces: &node.interfaces, is_machine: true }];
    for group in &node.groups {
        let labels = label_text("", &group.cgroup.to_string_lossy(), "", "", None);
        subjects.push(Subject { labels, used: &group.used, interfaces: none, is_machine: false });
    }
    for pod in &node.pods {
        let labels = label_text("", &pod.cgroup.to_string_lossy(), "", "", Some(pod));
        // The network is the sandbox's, as upstream tells it.
        let interfaces = if pod.sandbox.is_some() { none } else { &pod.interfaces };
        subjects.push(Subject { labels, used: &pod.used, interfaces, is_machine: false });
        if let Some(sandbox) = &pod.sandbox {
            let id = pod.sandbox_facts().map_or("", |facts| facts.id.as_str());
            let labels = label_text("", &sandbox.cgroup.to_string_lossy(), "", id, Some(pod));
            subjects.push(Subject { labels, used: &sandbox.used, interfaces: &pod.interfaces, is_machine: false });
        }
        subjects.extend(pod.containers.iter().filter_map(|container| of_container(pod, container)));
    }
    subjects
}

fn of_container<'a>(pod: &'a PodReading, container: &'a ContainerReading) -> Option<Subject<'a>> {
    let facts = pod.container(container)?;
    let cgroup = container.cgroup.to_string_lossy();
    let labels = label_text(&facts.name, &cgroup, &facts.image, facts.id.as_str(), Some(pod));
    Some(Subject { labels, used: &container.used, interfaces: &[], is_machine: false })
}

/// The labels that every series has; they are empty where there is nothing to say.
fn label_text(container: &str, id: &str, image: &str, name: &str, pod: Option<&PodReading>) -> String {
    let mut labels = String::with_capacity(320);
    let (namespace, pod) = match pod {
        Some(pod) => (pod.view.name.namespace.as_str(), pod.view.name.name.as_str()),
        None => ("", ""),
    };
    for (label, value) in
        [("container", container), ("id", id), ("image", image), ("name", name), ("namespace", namespace), ("pod", pod)]
    {
        push_label(&mut labels, label, value);
    }
    labels
}

fn series(text: &mut Text<'_>, row: &Row, subjects: &[Subject<'_>], at: Option<i64>) {
    let Row(name, kind, help, more, of) = row;
    let mut found = subjects.iter().filter_map(|subject| Some((subject, of(subject.used)?))).peekable();
    if found.peek().is_some() {
        text.head(name, *kind, help);
    }
    for (subject, value) in found {
        match at {
            Some(at) => text.sample_at(name, &subject.labels, more, value, at),
            None => text.sample(name, &subject.labels, value),
        }
    }
}

/// Page faults; those below a cgroup count as its own, so that both scopes tell the same, as upstream's do.
fn faults(text: &mut Text<'_>, subjects: &[Subject<'_>], at: i64) {
    let name = "container_memory_failures_total";
    text.head(name, Counter, "Page faults.");
    for subject in subjects {
        let Some(memory) = subject.used.usage.memory else { continue };
        for (more, value) in [
            ("failure_type=\"pgfault\",scope=\"container\"", memory.faults),
            ("failure_type=\"pgfault\",scope=\"hierarchy\"", memory.faults),
            ("failure_type=\"pgmajfault\",scope=\"container\"", memory.major_faults),
            ("failure_type=\"pgmajfault\",scope=\"hierarchy\"", memory.major_faults),
        ] {
            text.sample_at(name, &subject.labels, more, value.into(), at);
        }
    }
}

fn network(text: &mut Text<'_>, subjects: &[Subject<'_>], at: i64) {
    if subjects.iter().all(|subject| subject.interfaces.is_empty()) {
        return;
    }
    let mut more = String::new();
    for (name, help, of) in NETWORK {
        text.head(name, Counter, help);
        for subject in subjects {
            for interface in subject.interfaces {
                more.clear();
                push_label(&mut more, "interface", &interface.name);
                text.sample_at(name, &subject.labels, &more, of(interface).into(), at);
            }
        }
    }
}

fn disks(text: &mut Text<'_>, subjects: &[Subject<'_>], devices: &BTreeMap<(u32, u32), BlockDevice>, at: i64) {
    let mut more = String::new();
    for DiskRow(name, kind, help, of_cgroup, of_device) in DISKS {
        let mut begun = false;
        let mut tell = |text: &mut Text<'_>, labels: &str, device: &str, value: Number| {
            if !begun {
                text.head(name, *kind, help);
                begun = true;
            }
            more.clear();
            push_label(&mut more, "device", device);
            text.sample_at(name, labels, &more, value, at);
        };
        for subject in subjects {
            if subject.is_machine
                && let Some(of_device) = of_device
            {
                for device in devices.values().filter(|device| device.counters.iter().any(|counter| *counter > 0)) {
                    tell(text, &subject.labels, &format!("/dev/{}", device.name), of_device(device));
                }
            } else if let Some(of_cgroup) = of_cgroup {
                for disk in &subject.used.usage.disks {
                    // A device that is gone keeps its number.
                    let (major, minor) = disk.device;
                    let name = devices.get(&disk.device).map(|device| format!("/dev/{}", device.name));
                    let name = name.unwrap_or_else(|| format!("{major}:{minor}"));
                    tell(text, &subject.labels, &name, of_cgroup(disk).into());
                }
            }
        }
    }
}

/// File systems on block devices, each once, as the machine's own.
fn rooms(stats: &Stats, text: &mut Text<'_>, subjects: &[Subject<'_>], at: i64) {
    let Some(machine) = subjects.iter().find(|subject| subject.is_machine) else { return };
    let table = MountTable::read(&stats.sources.mount_table).unwrap_or_default();
    let mut places = BTreeMap::new();
    for entry in table.entries().iter().filter(|entry| entry.source.starts_with("/dev/")) {
        places.entry(entry.source.as_str()).or_insert(&entry.mount_point);
    }
    let questions: Vec<Question> =
        places.values().map(|place| Question { path: place.to_path_buf(), measure: Measure::FileSystem }).collect();
    let answers = stats.disks.ask(&questions, FRESH, PATIENCE);
    let found: Vec<(String, Room)> = places
        .keys()
        .zip(answers)
        .filter_map(|(device, answer)| {
            let mut more = String::new();
            push_label(&mut more, "device", device);
            Some((more, answer?.room))
        })
        .collect();
    for (name, help, of) in ROOMS.iter().filter(|_| !found.is_empty()) {
        text.head(name, Gauge, help);
        for (more, room) in &found {
            text.sample_at(name, &machine.labels, more, of(room).into(), at);
        }
    }
}

fn quota(used: &Used, of: fn(&crate::host::usage::Cpu) -> Number) -> Option<Number> {
    let cpu = used.usage.cpu.as_ref()?;
    cpu.quota.map(|_| of(cpu))
}

fn memory(used: &Used, of: fn(&Memory) -> Option<u64>) -> Option<Number> {
    let CgroupUsage { memory, .. } = &used.usage;
    of(memory.as_ref()?).map(Number::Whole)
}

fn micros(value: u64) -> Number {
    seconds(value.saturating_mul(1000))
}

fn millis(value: u64) -> Number {
    seconds(value.saturating_mul(1_000_000))
}

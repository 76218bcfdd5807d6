//! machine_*, and what an agent tells of its own process. Blocking reads of procfs and sysfs; see the parent module.

use std::collections::BTreeSet;
use std::fs;

use super::Stats;
use crate::host::usage::Reader;
use crate::util::metrics::Kind::{Counter, Gauge};
use crate::util::metrics::{Kind, Number, Text, push_label};

pub(super) fn write(stats: &Stats, text: &mut Text<'_>) {
    let machine = &stats.sources.machine;
    let mut labels = String::new();
    push_label(&mut labels, "boot_id", &machine.boot_id);
    push_label(&mut labels, "machine_id", &machine.machine_id);
    push_label(&mut labels, "system_uuid", &machine.system_uuid);
    let Topology { cores, sockets } = Topology::read(stats);
    for (name, help, value) in [
        ("machine_cpu_books", "Books of CPUs, which only s390 has.", 0),
        ("machine_cpu_cores", "CPUs that are online.", machine.cpus.into()),
        ("machine_cpu_drawers", "Drawers of CPUs, which only s390 has.", 0),
        ("machine_cpu_physical_cores", "Cores, however many CPUs each is.", cores),
        ("machine_cpu_sockets", "Sockets with CPUs.", sockets),
        ("machine_memory_bytes", "Memory of the machine.", machine.memory),
        ("machine_swap_bytes", "Swap of the machine.", machine.swap),
    ] {
        text.head(name, Gauge, help);
        text.sample(name, &labels, value.into());
    }
    text.head("machine_scrape_error", Gauge, "1 if the machine could not be read, else 0.");
    text.sample("machine_scrape_error", "", 0.into());

    let mut labels = String::new();
    for (label, value) in [
        ("cadvisorRevision", ""),
        ("cadvisorVersion", ""),
        ("dockerVersion", ""),
        ("kernelVersion", machine.kernel.as_str()),
        ("osVersion", machine.os_image.as_str()),
    ] {
        push_label(&mut labels, label, value);
    }
    text.head("cadvisor_version_info", Gauge, "Kernel and operating system; there is no cAdvisor here.");
    text.sample("cadvisor_version_info", &labels, 1.into());
}

/// Cores and sockets.
struct Topology {
    cores: u64,
    sockets: u64,
}

impl Topology {
    fn read(stats: &Stats) -> Self {
        let cpus = fs::read_dir(stats.sources.sys.join("devices/system/cpu")).into_iter().flatten().flatten();
        let mut cores = BTreeSet::new();
        let mut sockets = BTreeSet::new();
        for cpu in cpus {
            let number = |file: &str| {
                let text = fs::read_to_string(cpu.path().join("topology").join(file)).ok()?;
                text.trim().parse::<i64>().ok()
            };
            if let (Some(socket), Some(core)) = (number("physical_package_id"), number("core_id")) {
                sockets.insert(socket);
                cores.insert((socket, core));
            }
        }
        Self { cores: cores.len() as u64, sockets: sockets.len() as u64 }
    }
}

/// process_*: this process, in the words of every Prometheus client.
pub(super) fn write_process(stats: &Stats, text: &mut Text<'_>) {
    let mut reader = Reader::new(&stats.sources.proc);
    let Some(own) = reader.own_process() else { return };
    let mut tell = |name: &str, kind: Kind, help: &str, value: Number| {
        text.head(name, kind, help);
        text.sample(name, "", value);
    };
    tell("process_cpu_seconds_total", Counter, "Seconds of CPU that the agent used.", own.cpu_seconds.into());
    if let Some(max) = own.max_descriptors {
        tell("process_max_fds", Gauge, "Files that the agent may open.", max.into());
    }
    tell("process_open_fds", Gauge, "Files that the agent has open.", own.descriptors.into());
    tell("process_resident_memory_bytes", Gauge, "Memory of the agent.", own.resident.into());
    tell("process_threads", Gauge, "Threads of the agent.", own.threads.into());
    tell("process_virtual_memory_bytes", Gauge, "Address space of the agent.", own.size.into());
    write_start_time(stats, text);
}

/// When the agent started, which stands at the end of each page.
pub(super) fn write_start_time(stats: &Stats, text: &mut Text<'_>) {
    if let Some(own) = Reader::new(&stats.sources.proc).own_process() {
        let help = "When the agent started, in seconds since 1970.";
        text.head("process_start_time_seconds", Gauge, help);
        let nanos = u64::try_from(own.started_at).unwrap_or(0);
        text.sample("process_start_time_seconds", "", super::resource::seconds(nanos));
    }
}

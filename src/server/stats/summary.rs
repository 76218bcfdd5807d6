//! /stats/summary: the JSON that upstream's `stats/v1alpha1` has, field by field. Pure writing; see the parent module.
//!
//! What nobody knows is left out: pressure of pods on cgroup v1, memory that is left where there is no limit. Upstream writes
//! zeros there by accident.

use std::io::{self, Write};

use super::Stats;
use super::disks::{Disks, PodDisks};
use super::gather::{NodeReading, PodReading, Used};
use super::json::Json;
use crate::api::runtime::UnixNanos;
use crate::api::runtime_stats::{FilesystemUsage, Psi, PsiData};
use crate::host::usage::Reader;
use crate::host::usage::disk::{Measured, Room};
use crate::host::usage::network::Interface;
use crate::util::clock;

/// The interface that stands for all of a network, as upstream has it.
const DEFAULT_INTERFACE: &str = "eth0";

pub(super) fn write(stats: &Stats, node: &NodeReading, disks: Option<&Disks>, out: &mut dyn Write) -> io::Result<()> {
    let mut summary = Summary { json: Json::new(out), at: node.at.wall, disks };
    summary.json.open("");
    summary.node(stats, node);
    summary.json.open_list("pods");
    for (index, pod) in node.pods.iter().enumerate() {
        summary.pod(pod, disks.and_then(|disks| disks.pods.get(index)));
    }
    summary.json.close_list();
    summary.json.close();
    summary.json.finish()
}

struct Summary<'a> {
    json: Json<'a>,
    at: UnixNanos,
    /// `None` for CPU and memory alone.
    disks: Option<&'a Disks>,
}

impl Summary<'_> {
    fn node(&mut self, stats: &Stats, node: &NodeReading) {
        self.json.open("node");
        self.json.text("nodeName", &stats.sources.node);
        self.json.open_list("systemContainers");
        for group in node.groups.iter().filter(|group| !group.name.is_empty()) {
            self.json.open("");
            self.json.text("name", group.name);
            self.json.time("startTime", group.used.started_at);
            self.used(&group.used);
            self.json.close();
        }
        self.json.close_list();
        self.json.time("startTime", node.root.started_at);
        self.used(&node.root);
        if let Some(disks) = self.disks {
            self.network(&node.interfaces);
            if let Some(measured) = &disks.node {
                self.room("fs", &measured.room, measured);
            }
            self.json.open("runtime");
            let containers = disks.containers.as_ref().or(disks.images.as_ref());
            self.runtime_fs("imageFs", disks.images.as_ref());
            self.runtime_fs("containerFs", containers);
            self.json.close();
            let processes = Reader::new(&stats.sources.proc).machine_processes();
            self.json.open("rlimit");
            self.json.time("time", self.at);
            self.json.maybe("maxpid", processes.max);
            self.json.maybe("curproc", processes.current);
            self.json.close();
        }
        self.json.close();
    }

    fn pod(&mut self, pod: &PodReading, disks: Option<&PodDisks>) {
        self.json.open("");
        self.json.open("podRef");
        self.json.text("name", &pod.view.name.name);
        self.json.text("namespace", &pod.view.name.namespace);
        self.json.text("uid", pod.view.uid.as_str());
        self.json.close();
        self.json.time("startTime", pod.started_at());
        self.json.open_list("containers");
        for (index, container) in pod.containers.iter().enumerate() {
            let Some(facts) = pod.container(container) else { continue };
            self.json.open("");
            self.json.text("name", &facts.name);
            self.json.time("startTime", container.used.started_at);
            self.used(&container.used);
            if let Some(disks) = disks {
                self.container_disks(disks, index);
            }
            self.json.close();
        }
        self.json.close_list();
        self.used(&pod.used);
        if let Some(disks) = disks {
            self.network(&pod.interfaces);
            self.volumes(disks);
            self.ephemeral(disks);
            let counts = pod.containers.iter().filter_map(|container| container.used.usage.processes);
            self.json.open("process_stats");
            self.json.number("process_count", counts.map(|processes| processes.count).sum());
            self.json.close();
        }
        self.json.close();
    }

    /// cpu, memory, swap, io.
    fn used(&mut self, used: &Used) {
        let usage = &used.usage;
        let (at, json) = (self.at, &mut self.json);
        if let Some(cpu) = &usage.cpu {
            json.open("cpu");
            json.time("time", at);
            json.maybe("usageNanoCores", used.nano_cores);
            json.number("usageCoreNanoSeconds", cpu.usage);
            psi(json, usage.pressure.cpu.as_ref());
            json.close();
        }
        if let Some(memory) = &usage.memory {
            json.open("memory");
            json.time("time", at);
            json.maybe("availableBytes", memory.limit.map(|limit| limit.saturating_sub(memory.working_set())));
            json.number("usageBytes", memory.usage);
            json.number("workingSetBytes", memory.working_set());
            json.number("rssBytes", memory.rss);
            json.number("pageFaults", memory.faults);
            json.number("majorPageFaults", memory.major_faults);
            psi(json, usage.pressure.memory.as_ref());
            json.close();
            if let Some(swap) = memory.swap {
                json.open("swap");
                json.time("time", at);
                json.maybe("swapAvailableBytes", memory.swap_limit.map(|limit| limit.saturating_sub(swap)));
                json.number("swapUsageBytes", swap);
                json.close();
            }
        }
        if self.disks.is_some() {
            json.open("io");
            json.time("time", at);
            psi(json, usage.pressure.io.as_ref());
            json.close();
        }
    }

    fn network(&mut self, interfaces: &[Interface]) {
        if interfaces.is_empty() {
            return;
        }
        self.json.open("network");
        self.json.time("time", self.at);
        if let Some(usual) = interfaces.iter().find(|interface| interface.name == DEFAULT_INTERFACE) {
            self.interface(usual);
        }
        self.json.open_list("interfaces");
        for interface in interfaces {
            self.json.open("");
            self.interface(interface);
            self.json.close();
        }
        self.json.close_list();
        self.json.close();
    }

    fn interface(&mut self, interface: &Interface) {
        self.json.text("name", &interface.name);
        self.json.number("rxBytes", interface.received.bytes);
        self.json.number("rxErrors", interface.received.errors);
        self.json.number("txBytes", interface.sent.bytes);
        self.json.number("txErrors", interface.sent.errors);
    }

    fn container_disks(&mut self, disks: &PodDisks, index: usize) {
        let all = self.disks;
        if let Some(Some(layer)) = disks.layers.get(index) {
            let on = all.and_then(|all| all.containers.as_ref().or(all.images.as_ref()));
            self.usage_on("rootfs", layer, on.and_then(|(_, measured)| measured.as_ref()));
        }
        if let Some(Some(logs)) = disks.logs.get(index) {
            self.room("logs", &logs.room, logs);
        }
    }

    fn volumes(&mut self, disks: &PodDisks) {
        if disks.volumes.is_empty() {
            return;
        }
        self.json.open_list("volume");
        for volume in &disks.volumes {
            self.json.open("");
            self.fields(&volume.measured.room, measured_at(&volume.measured));
            self.json.text("name", &volume.name);
            self.json.close();
        }
        self.json.close_list();
    }

    /// All that the pod takes of the node's disk, on which it is.
    fn ephemeral(&mut self, disks: &PodDisks) {
        let Some(node) = self.disks.and_then(|disks| disks.node) else { return };
        let mut room = Room { used: 0, inodes_used: 0, ..node.room };
        let mut add = |used: u64, inodes: u64| {
            room.used = room.used.saturating_add(used);
            room.inodes_used = room.inodes_used.saturating_add(inodes);
        };
        for layer in disks.layers.iter().flatten() {
            add(layer.used_bytes.unwrap_or(0), layer.inodes_used.unwrap_or(0));
        }
        let measured = disks.logs.iter().flatten().chain(&disks.hosts);
        let volumes = disks.volumes.iter().filter(|volume| volume.is_ephemeral).map(|volume| &volume.measured);
        for measured in measured.chain(volumes) {
            add(measured.room.used, measured.room.inodes_used);
        }
        self.room("ephemeral-storage", &room, &node);
    }

    fn runtime_fs(&mut self, key: &str, found: Option<&(FilesystemUsage, Option<Measured>)>) {
        if let Some((usage, measured)) = found {
            self.usage_on(key, usage, measured.as_ref());
        }
    }

    /// What the runtime says is taken, on a file system that was looked at.
    fn usage_on(&mut self, key: &str, usage: &FilesystemUsage, on: Option<&Measured>) {
        self.json.open(key);
        self.json.time("time", usage.timestamp);
        if let Some(Measured { room, .. }) = on {
            self.json.number("availableBytes", room.available);
            self.json.number("capacityBytes", room.capacity);
        }
        self.json.maybe("usedBytes", usage.used_bytes);
        if let Some(Measured { room, .. }) = on {
            self.json.number("inodesFree", room.inodes_free);
            self.json.number("inodes", room.inodes);
        }
        self.json.maybe("inodesUsed", usage.inodes_used);
        self.json.close();
    }

    fn room(&mut self, key: &str, room: &Room, measured: &Measured) {
        self.json.open(key);
        self.fields(room, measured_at(measured));
        self.json.close();
    }

    fn fields(&mut self, room: &Room, at: UnixNanos) {
        self.json.time("time", at);
        self.json.number("availableBytes", room.available);
        self.json.number("capacityBytes", room.capacity);
        self.json.number("usedBytes", room.used);
        self.json.number("inodesFree", room.inodes_free);
        self.json.number("inodes", room.inodes);
        self.json.number("inodesUsed", room.inodes_used);
    }
}

/// The wall-clock time of a measurement.
fn measured_at(measured: &Measured) -> UnixNanos {
    let age = i64::try_from(measured.at.elapsed().as_nanos()).unwrap_or(0);
    clock::wall().saturating_sub(age)
}

fn psi(json: &mut Json<'_>, psi: Option<&Psi>) {
    let Some(psi) = psi else { return };
    json.open("psi");
    for (key, data) in [("full", &psi.full), ("some", &psi.some)] {
        let PsiData { total, avg10, avg60, avg300 } = *data;
        json.open(key);
        // Microseconds of the kernel, which upstream passes on as they are.
        json.number("total", total);
        json.float("avg10", avg10);
        json.float("avg60", avg60);
        json.float("avg300", avg300);
        json.close();
    }
    json.close();
}

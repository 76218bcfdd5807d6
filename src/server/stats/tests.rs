//! Numbers of recorded machines with one pod on them, and names, types and labels beside those of an upstream kubelet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use expect_test::{Expect, expect};
use serde_json::Value;

use super::*;
use crate::api::meta::Time;
use crate::api::pod as pods;
use crate::api::runtime::{ContainerState, RuntimeContainer, RuntimePod, RuntimeSandbox, SandboxState};
use crate::api::v1::{Pod, PodStatus};
use crate::api::{PodName, PodUid};
use crate::host::usage::samples::Machine;
use crate::msg::PodView;
use crate::util::json;
use crate::util::metrics::{Registered, kubelet, own};

/// 2026-09-21, nanoseconds since 1970.
const START: i64 = 1_790_000_100_000_000_000;

fn pod() -> PodView {
    let spec = serde_json::json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u-1"},
        "spec": {
            "containers": [{"name": "app", "image": "web:1", "resources": {"requests": {"cpu": "1"}}}],
            "volumes": [{"name": "scratch", "emptyDir": {}}, {"name": "host", "hostPath": {"path": "/etc"}}],
        },
    });
    let spec: Pod = json::from_value(&spec).expect("a pod");
    let sandbox = RuntimeSandbox {
        id: "sb-1".into(),
        attempt: 0,
        state: SandboxState::Ready,
        created_at: START,
        ips: vec!["10.0.0.7".to_owned()],
        host_network: false,
        runtime_handler: String::new(),
    };
    let running = ContainerState::Running { started_at: START + 1_000_000_000 };
    let mut container = RuntimeContainer::bare("c-2", "sb-1", "app", 1, running);
    container.image = "web:1".to_owned();
    let ended = RuntimeContainer::bare("c-1", "sb-1", "app", 0, ContainerState::Exited(Default::default()));
    let runtime = RuntimePod {
        uid: Some(PodUid::from("u-1")),
        name: "web".to_owned(),
        namespace: "default".to_owned(),
        sandboxes: vec![sandbox],
        containers: vec![container, ended],
    };
    let start = jiff::Timestamp::from_nanosecond(START.into()).expect("a time");
    let told = serde_json::json!({"phase": "Running", "containerStatuses": [
        {"name": "app", "restartCount": 1, "ready": true, "image": "web:1", "imageID": ""},
    ]});
    let told: PodStatus = json::from_value(&told).expect("a status");
    let status = PodStatus { start_time: Some(Time(start)), ..told };
    let (uid, name) = (pods::pod_uid(&spec), PodName { namespace: "default".to_owned(), name: "web".to_owned() });
    let spec = Arc::new(spec);
    PodView {
        wanted: Some(Arc::clone(&spec)),
        pod: Some(spec),
        status: Arc::new(status),
        runtime: Some(Arc::new(runtime)),
        ..PodView::named(uid, name)
    }
}

/// The numbers of a machine on which the pod runs.
fn stats(machine: &Machine) -> Stats {
    for cgroup in
        ["", "/burstable", "/besteffort", "/burstable/podu-1", "/burstable/podu-1/sb-1", "/burstable/podu-1/c-2"]
    {
        machine.add(&format!("/kubepods{cgroup}"));
    }
    let root = machine.path().join("root");
    let logs = machine.path().join("logs");
    std::fs::create_dir_all(root.join("pods/u-1/volumes/kubernetes.io~empty-dir/scratch")).expect("a folder");
    std::fs::create_dir_all(logs.join("default_web_u-1/app")).expect("a folder");
    std::fs::write(logs.join("default_web_u-1/app/1.log"), vec![b'x'; 5000]).expect("a log");
    std::fs::write(root.join("pods/u-1/etc-hosts"), "127.0.0.1 localhost\n").expect("a file");
    let pod = pod();
    let view = NodeView { pods: BTreeMap::from([(pod.uid.clone(), Arc::new(pod))]), ..NodeView::default() };
    let sources = StatsSources {
        view: Arc::new(Snapshot::new(view)),
        cgroups: Some(machine.tree()),
        dirs: PodDirs::new(root, logs),
        machine: MachineFacts { memory: 1 << 30, swap: 256 << 20, cpus: 2, ..MachineFacts::default() },
        mount_table: machine.mount_table(),
        proc: machine.proc(),
        ..StatsSources::for_tests()
    };
    Stats::new(sources)
}

fn text(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).expect("memory takes everything");
    String::from_utf8(out).expect("UTF-8")
}

/// The samples that have a word in them, without the time of the look.
fn samples(text: &str, word: &str) -> String {
    let is_of_a_clock = |line: &str| line.starts_with("container_last_seen") || line.starts_with("process_start_time");
    let lines = text.lines().filter(|line| !line.starts_with('#') && line.contains(word) && !is_of_a_clock(line));
    let plain = |line: &str| match line.rsplit_once("} ") {
        Some((name, values)) => format!("{name}}} {}\n", values.split(' ').next().unwrap_or_default()),
        None => format!("{}\n", line.split(' ').take(2).collect::<Vec<_>>().join(" ")),
    };
    lines.map(plain).collect()
}

#[test]
fn resource_metrics_are_what_metrics_server_reads() {
    let check = |machine: Machine, expect: Expect| {
        let stats = stats(&machine);
        let text = text(|out| stats.resource_metrics(out));
        expect.assert_eq(&samples(&text, ""));
    };
    check(
        Machine::v1(),
        expect![[r#"
            container_cpu_usage_seconds_total{container="app",namespace="default",pod="web"} 0.016519821
            container_memory_working_set_bytes{container="app",namespace="default",pod="web"} 427680
            container_start_time_seconds{container="app",namespace="default",pod="web"} 1790000101
            container_swap_limit_bytes{container="app",namespace="default",pod="web"} 33554432
            container_swap_usage_bytes{container="app",namespace="default",pod="web"} 4096
            node_cpu_usage_seconds_total 0.016519821
            node_memory_working_set_bytes 427680
            node_swap_usage_bytes 4096
            pod_cpu_usage_seconds_total{namespace="default",pod="web"} 0.016519821
            pod_memory_working_set_bytes{namespace="default",pod="web"} 427680
            pod_swap_usage_bytes{namespace="default",pod="web"} 4096
            resource_scrape_error 0
        "#]],
    );
    check(
        Machine::v2(),
        expect![[r#"
        container_cpu_usage_seconds_total{container="app",namespace="default",pod="web"} 0.016519
        container_memory_working_set_bytes{container="app",namespace="default",pod="web"} 427680
        container_start_time_seconds{container="app",namespace="default",pod="web"} 1790000101
        container_swap_usage_bytes{container="app",namespace="default",pod="web"} 4096
        node_cpu_usage_seconds_total 0.016519
        node_memory_working_set_bytes 535970912
        node_swap_usage_bytes 134217728
        pod_cpu_usage_seconds_total{namespace="default",pod="web"} 0.016519
        pod_memory_working_set_bytes{namespace="default",pod="web"} 427680
        pod_swap_usage_bytes{namespace="default",pod="web"} 4096
        resource_scrape_error 0
    "#]],
    );
}

#[test]
fn a_containers_metrics_are_what_dashboards_show() {
    let machine = Machine::v2();
    let stats = stats(&machine);
    let text = text(|out| stats.container_metrics(out));
    expect![[r#"
        container_cpu_cfs_burst_periods_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 1
        container_cpu_cfs_burst_seconds_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 0.000007
        container_cpu_cfs_periods_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 40
        container_cpu_cfs_throttled_periods_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 3
        container_cpu_cfs_throttled_seconds_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 0.005
        container_cpu_system_seconds_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 0.006519
        container_cpu_usage_seconds_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web",cpu="total"} 0.016519
        container_cpu_user_seconds_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 0.01
        container_file_descriptors{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 3
        container_memory_cache{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 1000000
        container_memory_failcnt{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 4
        container_memory_kernel_usage{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 69632
        container_memory_mapped_file{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 8192
        container_memory_max_usage_bytes{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 2000000
        container_memory_rss{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 53248
        container_memory_swap{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 4096
        container_memory_total_active_file_bytes{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 100000
        container_memory_total_inactive_file_bytes{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 900000
        container_memory_usage_bytes{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 1327680
        container_memory_working_set_bytes{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 427680
        container_oom_events_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 5
        container_pressure_cpu_stalled_seconds_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 0.001
        container_pressure_cpu_waiting_seconds_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 0.123456
        container_pressure_io_stalled_seconds_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 0.000066
        container_pressure_io_waiting_seconds_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 0.000077
        container_pressure_memory_stalled_seconds_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 0
        container_pressure_memory_waiting_seconds_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 0
        container_processes{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 2
        container_sockets{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 1
        container_threads{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 3
        container_threads_max{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 0
        container_ulimits_soft{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web",ulimit="max_open_files"} 1024
        container_spec_cpu_period{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 100000
        container_spec_cpu_quota{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 10000
        container_spec_cpu_shares{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 106
        container_spec_memory_limit_bytes{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 16777216
        container_spec_memory_reservation_limit_bytes{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 0
        container_spec_memory_swap_limit_bytes{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 0
        container_start_time_seconds{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web"} 1790000101
        container_memory_failures_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web",failure_type="pgfault",scope="container"} 1034
        container_memory_failures_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web",failure_type="pgfault",scope="hierarchy"} 1034
        container_memory_failures_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web",failure_type="pgmajfault",scope="container"} 1
        container_memory_failures_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web",failure_type="pgmajfault",scope="hierarchy"} 1
        container_fs_reads_bytes_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web",device="/dev/sda"} 4096
        container_fs_reads_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web",device="/dev/sda"} 1
        container_fs_writes_bytes_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web",device="/dev/sda"} 8192
        container_fs_writes_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web",device="/dev/sda"} 2
    "#]].assert_eq(&samples(&text, "container=\"app\""));
    expect![[r#"
        container_network_receive_bytes_total{container="",id="/kubepods/burstable/podu-1/sb-1",image="",name="sb-1",namespace="default",pod="web",interface="eth0"} 2359
        container_network_receive_errors_total{container="",id="/kubepods/burstable/podu-1/sb-1",image="",name="sb-1",namespace="default",pod="web",interface="eth0"} 0
        container_network_receive_packets_dropped_total{container="",id="/kubepods/burstable/podu-1/sb-1",image="",name="sb-1",namespace="default",pod="web",interface="eth0"} 0
        container_network_receive_packets_total{container="",id="/kubepods/burstable/podu-1/sb-1",image="",name="sb-1",namespace="default",pod="web",interface="eth0"} 31
        container_network_transmit_bytes_total{container="",id="/kubepods/burstable/podu-1/sb-1",image="",name="sb-1",namespace="default",pod="web",interface="eth0"} 1909
        container_network_transmit_errors_total{container="",id="/kubepods/burstable/podu-1/sb-1",image="",name="sb-1",namespace="default",pod="web",interface="eth0"} 0
        container_network_transmit_packets_dropped_total{container="",id="/kubepods/burstable/podu-1/sb-1",image="",name="sb-1",namespace="default",pod="web",interface="eth0"} 0
        container_network_transmit_packets_total{container="",id="/kubepods/burstable/podu-1/sb-1",image="",name="sb-1",namespace="default",pod="web",interface="eth0"} 23
    "#]].assert_eq(&samples(&samples(&text, "network"), "pod=\"web\""));
    assert!(
        text.contains("\nmachine_memory_bytes{boot_id=\"\",machine_id=\"\",system_uuid=\"\"} 1073741824\n"),
        "{text}"
    );
}

#[test]
fn the_sandbox_has_the_pods_network_and_cgroup_v1_the_same_names() {
    let machine = Machine::v1();
    let stats = stats(&machine);
    let text = text(|out| stats.container_metrics(out));
    expect![[r#"
        container_cpu_usage_seconds_total{container="",id="/",image="",name="",namespace="",pod="",cpu="total"} 0.016519821
        container_cpu_usage_seconds_total{container="",id="/kubepods",image="",name="",namespace="",pod="",cpu="total"} 0.016519821
        container_cpu_usage_seconds_total{container="",id="/kubepods/burstable",image="",name="",namespace="",pod="",cpu="total"} 0.016519821
        container_cpu_usage_seconds_total{container="",id="/kubepods/besteffort",image="",name="",namespace="",pod="",cpu="total"} 0.016519821
        container_cpu_usage_seconds_total{container="",id="/kubepods/burstable/podu-1",image="",name="",namespace="default",pod="web",cpu="total"} 0.016519821
        container_cpu_usage_seconds_total{container="",id="/kubepods/burstable/podu-1/sb-1",image="",name="sb-1",namespace="default",pod="web",cpu="total"} 0.016519821
        container_cpu_usage_seconds_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web",cpu="total"} 0.016519821
    "#]].assert_eq(&samples(&text, "container_cpu_usage_seconds_total"));
    expect![[r#"
        container_network_receive_bytes_total{container="",id="/",image="",name="",namespace="",pod="",interface="eth0"} 725620418
        container_network_receive_bytes_total{container="",id="/kubepods/burstable/podu-1/sb-1",image="",name="sb-1",namespace="default",pod="web",interface="eth0"} 2359
    "#]].assert_eq(&samples(&text, "container_network_receive_bytes_total"));
    expect![[r#"
        container_fs_io_current{container="",id="/",image="",name="",namespace="",pod="",device="/dev/sda"} 0
        container_fs_io_time_seconds_total{container="",id="/",image="",name="",namespace="",pod="",device="/dev/sda"} 0.014
        container_fs_io_time_weighted_seconds_total{container="",id="/",image="",name="",namespace="",pod="",device="/dev/sda"} 0.014
        container_fs_read_seconds_total{container="",id="/",image="",name="",namespace="",pod="",device="/dev/sda"} 0.005
        container_fs_reads_bytes_total{container="",id="/",image="",name="",namespace="",pod="",device="/dev/sda"} 4096
        container_fs_reads_bytes_total{container="",id="/kubepods",image="",name="",namespace="",pod="",device="/dev/sda"} 4096
        container_fs_reads_bytes_total{container="",id="/kubepods/burstable",image="",name="",namespace="",pod="",device="/dev/sda"} 4096
        container_fs_reads_bytes_total{container="",id="/kubepods/besteffort",image="",name="",namespace="",pod="",device="/dev/sda"} 4096
        container_fs_reads_bytes_total{container="",id="/kubepods/burstable/podu-1",image="",name="",namespace="default",pod="web",device="/dev/sda"} 4096
        container_fs_reads_bytes_total{container="",id="/kubepods/burstable/podu-1/sb-1",image="",name="sb-1",namespace="default",pod="web",device="/dev/sda"} 4096
        container_fs_reads_bytes_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web",device="/dev/sda"} 4096
        container_fs_reads_merged_total{container="",id="/",image="",name="",namespace="",pod="",device="/dev/sda"} 1
        container_fs_reads_total{container="",id="/",image="",name="",namespace="",pod="",device="/dev/sda"} 10
        container_fs_reads_total{container="",id="/kubepods",image="",name="",namespace="",pod="",device="/dev/sda"} 1
        container_fs_reads_total{container="",id="/kubepods/burstable",image="",name="",namespace="",pod="",device="/dev/sda"} 1
        container_fs_reads_total{container="",id="/kubepods/besteffort",image="",name="",namespace="",pod="",device="/dev/sda"} 1
        container_fs_reads_total{container="",id="/kubepods/burstable/podu-1",image="",name="",namespace="default",pod="web",device="/dev/sda"} 1
        container_fs_reads_total{container="",id="/kubepods/burstable/podu-1/sb-1",image="",name="sb-1",namespace="default",pod="web",device="/dev/sda"} 1
        container_fs_reads_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web",device="/dev/sda"} 1
        container_fs_sector_reads_total{container="",id="/",image="",name="",namespace="",pod="",device="/dev/sda"} 80
        container_fs_sector_writes_total{container="",id="/",image="",name="",namespace="",pod="",device="/dev/sda"} 160
        container_fs_write_seconds_total{container="",id="/",image="",name="",namespace="",pod="",device="/dev/sda"} 0.009
        container_fs_writes_bytes_total{container="",id="/",image="",name="",namespace="",pod="",device="/dev/sda"} 8192
        container_fs_writes_bytes_total{container="",id="/kubepods",image="",name="",namespace="",pod="",device="/dev/sda"} 8192
        container_fs_writes_bytes_total{container="",id="/kubepods/burstable",image="",name="",namespace="",pod="",device="/dev/sda"} 8192
        container_fs_writes_bytes_total{container="",id="/kubepods/besteffort",image="",name="",namespace="",pod="",device="/dev/sda"} 8192
        container_fs_writes_bytes_total{container="",id="/kubepods/burstable/podu-1",image="",name="",namespace="default",pod="web",device="/dev/sda"} 8192
        container_fs_writes_bytes_total{container="",id="/kubepods/burstable/podu-1/sb-1",image="",name="sb-1",namespace="default",pod="web",device="/dev/sda"} 8192
        container_fs_writes_bytes_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web",device="/dev/sda"} 8192
        container_fs_writes_merged_total{container="",id="/",image="",name="",namespace="",pod="",device="/dev/sda"} 2
        container_fs_writes_total{container="",id="/",image="",name="",namespace="",pod="",device="/dev/sda"} 20
        container_fs_writes_total{container="",id="/kubepods",image="",name="",namespace="",pod="",device="/dev/sda"} 2
        container_fs_writes_total{container="",id="/kubepods/burstable",image="",name="",namespace="",pod="",device="/dev/sda"} 2
        container_fs_writes_total{container="",id="/kubepods/besteffort",image="",name="",namespace="",pod="",device="/dev/sda"} 2
        container_fs_writes_total{container="",id="/kubepods/burstable/podu-1",image="",name="",namespace="default",pod="web",device="/dev/sda"} 2
        container_fs_writes_total{container="",id="/kubepods/burstable/podu-1/sb-1",image="",name="sb-1",namespace="default",pod="web",device="/dev/sda"} 2
        container_fs_writes_total{container="app",id="/kubepods/burstable/podu-1/c-2",image="web:1",name="c-2",namespace="default",pod="web",device="/dev/sda"} 2
    "#]].assert_eq(&samples(&text, "device=\"/dev/sda\""));
}

#[test]
fn the_summary_tells_of_node_pods_and_containers() {
    let machine = Machine::v2();
    let stats = stats(&machine);
    let full: Value = serde_json::from_str(&text(|out| stats.summary(false, out))).expect("JSON");
    let container = &full["pods"][0]["containers"][0];
    assert_eq!(container["memory"]["workingSetBytes"], 427_680);
    assert_eq!(container["memory"]["availableBytes"], (16 << 20) - 427_680);
    assert_eq!(container["startTime"], "2026-09-21T14:15:01Z");
    assert_eq!(container["logs"]["inodesUsed"], 1);
    assert!(container["logs"]["usedBytes"].as_u64().is_some_and(|used| used >= 5000), "{container}");
    assert_eq!(container["cpu"]["usageNanoCores"], 0, "nothing was used between two looks");
    let pod = &full["pods"][0];
    assert_eq!(pod["network"]["rxBytes"], 2359);
    assert_eq!(pod["network"]["interfaces"].as_array().map(Vec::len), Some(1));
    assert_eq!(pod["volume"][0]["name"], "scratch");
    assert_eq!(pod["volume"].as_array().map(Vec::len), Some(1), "a hostPath is not the pod's");
    assert_eq!(pod["process_stats"]["process_count"], 2);
    let taken = |value: &Value| value["usedBytes"].as_u64().unwrap_or(0);
    assert_eq!(
        taken(&pod["ephemeral-storage"]),
        taken(&container["logs"]) + taken(&pod["volume"][0]) + 4096,
        "logs, volume and the hosts file: {pod}"
    );
    let node = &full["node"];
    assert_eq!((&node["rlimit"]["maxpid"], &node["rlimit"]["curproc"]), (&32768.into(), &237.into()));
    assert_eq!(node["startTime"], "2026-09-21T14:13:20Z");
    assert_eq!(node["memory"]["availableBytes"], (1_u64 << 30) - (512 << 20) + 900_000);
    assert_eq!(node["swap"]["swapAvailableBytes"], 128 << 20);

    let least: Value = serde_json::from_str(&text(|out| stats.summary(true, out))).expect("JSON");
    let keys = |value: &Value| value.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>().join(" "));
    assert_eq!(keys(&least["node"]).as_deref(), Some("cpu memory nodeName startTime swap systemContainers"));
    assert_eq!(keys(&least["pods"][0]).as_deref(), Some("containers cpu memory podRef startTime swap"));
}

/// Every path in a JSON value that leads to something that is no object.
fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| paths(value, &format!("{path}.{key}"), found)),
        Value::Array(items) => items.iter().for_each(|value| paths(value, &format!("{path}[]"), found)),
        _ => drop(found.insert(path.to_owned())),
    }
}

#[test]
fn the_summary_has_upstreams_shape() {
    let recorded: Value = serde_json::from_str(include_str!("testdata/summary.json")).expect("JSON");
    let mut upstream = BTreeSet::new();
    paths(&recorded, "", &mut upstream);
    let machine = Machine::v2();
    let stats = stats(&machine);
    let ours: Value = serde_json::from_str(&text(|out| stats.summary(false, out))).expect("JSON");
    let mut found = BTreeSet::new();
    paths(&ours, "", &mut found);
    let missing: Vec<&String> = upstream.difference(&found).collect();
    // The runtime's part, which a test on a real one has.
    let of_runtime = ["containers[].rootfs.", "node.runtime."];
    let missing: Vec<_> =
        missing.into_iter().filter(|path| !of_runtime.iter().any(|part| path.contains(part))).collect();
    // Upstream's 0 for swap that is not limited.
    assert_eq!(missing, [".pods[].containers[].swap.swapAvailableBytes"]);
    let more: BTreeSet<String> = found
        .difference(&upstream)
        .filter(|path| !path.contains(".psi.") && !path.contains(".network.") && !path.contains(".volume[]"))
        .cloned()
        .collect();
    assert_eq!(more.into_iter().collect::<Vec<_>>(), [".pods[].process_stats.process_count"]);
}

#[test]
fn top_shows_pods() {
    let machine = Machine::v1();
    let node = stats(&machine).top();
    let pod = &node.pods[0];
    assert_eq!((pod.name.as_str(), pod.nano_cores, pod.memory), ("web", Some(0), Some(427_680)));
    assert_eq!((pod.containers.len(), pod.containers[0].restarts), (1, 1));
    assert_eq!((node.memory_capacity, node.cpus), (1 << 30, 2));
}

/// Name, type and labels of everything that a text has.
fn names(text: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let mut found: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
    let mut now = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            now = name.to_owned();
            let twice = found.insert(now.clone(), (kind.to_owned(), BTreeSet::new()));
            assert!(twice.is_none(), "{name} is there twice");
        } else if !line.starts_with('#') {
            assert!(line.starts_with(now.as_str()), "{line} is not of {now}");
            let labels =
                line.split_once('{').and_then(|(_, rest)| rest.rsplit_once("} ")).map_or("", |(labels, _)| labels);
            let names = labels.split("\",").filter_map(|label| label.split_once('=')).map(|(name, _)| name.to_owned());
            let entry = found.get_mut(&now).expect("a type before the samples");
            entry.1.extend(names.filter(|name| name != "le"));
        }
    }
    found
}

/// What the upstream kubelet has and this agent has not, by how the name begins, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    ("aggregator_", "of a library of the API server, which is linked into upstream's program"),
    ("apiserver_", "likewise"),
    ("cardinality_enforcement", "of Kubernetes' metrics library"),
    ("disabled_metrics_total", "likewise"),
    ("hidden_metrics_total", "likewise"),
    ("registered_metrics_total", "likewise"),
    ("go_", "there is no Go runtime"),
    ("dra_", "dynamic resource allocation is not done yet"),
    ("force_cleaned_", "volumes are found again from the mount table, none is cleaned up by force"),
    ("reconstruct_volume_", "likewise"),
    ("volume_manager_total_volumes", "there is no actual and desired state of volumes, pods hold them"),
    (
        "volume_operation_total_seconds",
        "volumes have one operation each, which storage_operation_duration_seconds tells",
    ),
    ("workqueue_", "there are no work queues of client-go"),
    ("kubelet_cpu_manager_", "CPUs are not given to containers for themselves"),
    ("kubelet_memory_manager_", "memory is not given to containers by NUMA node"),
    ("kubelet_topology_manager_", "likewise"),
    ("kubelet_first_network_pod_start_sli_duration_seconds", "internal to upstream's own load tests"),
    ("kubelet_image_volume_", "the runtime mounts image volumes, and tells of them with the container"),
    ("kubelet_imagemanager_", "there are no records of pulls by credential"),
    ("kubelet_orphan_pod_cleaned_volumes", "leftovers of pods are removed with their volumes in one step"),
    ("kubelet_pod_watch_events_dropped_total", "the pods API is not served"),
    ("process_network_", "counts all of the node's network, which node_exporter and /stats/summary tell"),
    ("process_virtual_memory_max_bytes", "there is no limit"),
    ("rest_client_exec_plugin_", "credentials of plugins are asked for at the start of a connection only"),
    ("rest_client_request_size_bytes", "two histograms for each verb that no dashboard shows"),
    ("rest_client_response_size_bytes", "likewise"),
    ("rest_client_transport_", "of client-go's cache of connections"),
    ("container_cpu_load_average_10s", "always 0 in upstream, which does not measure it"),
    ("container_cpu_load_d_average_10s", "likewise"),
    ("container_tasks_state", "likewise"),
    ("container_health_state", "of Docker's health checks, always 0 in upstream"),
    ("machine_nvm_", "memory of a kind that is not made any more"),
];

#[test]
fn names_types_and_labels_are_upstreams() {
    let mut ours: BTreeMap<(&str, String), (String, BTreeSet<String>)> = BTreeMap::new();
    for machine in [Machine::v1(), Machine::v2()] {
        let stats = stats(&machine);
        type Page = fn(&Stats, &mut dyn Write) -> io::Result<()>;
        let pages: [(&str, Page); 5] = [
            ("/metrics", Stats::metrics),
            ("/metrics/cadvisor", Stats::container_metrics),
            ("/metrics/resource", Stats::resource_metrics),
            ("/metrics/probes", Stats::probe_metrics),
            ("/metrics/slis", Stats::sli_metrics),
        ];
        for (page, write) in pages {
            for (name, (kind, labels)) in names(&text(|out| write(&stats, out))) {
                let entry = ours.entry((page, name)).or_insert_with(|| (kind.clone(), BTreeSet::new()));
                assert_eq!(entry.0, kind);
                entry.1.extend(labels);
            }
        }
    }
    let tables: [(&str, &[&dyn Registered]); 3] =
        [("/metrics", kubelet::ALL), ("/metrics/probes", kubelet::probes::ALL), ("/metrics", own::ALL)];
    for (page, table) in tables {
        for about in table.iter().map(|metric| metric.about()) {
            let labels = about.labels.iter().map(ToString::to_string).collect();
            ours.insert((page, about.name.to_owned()), (about.kind.as_str().to_owned(), labels));
        }
    }
    let mut unused: BTreeSet<&str> = LEFT_OUT.iter().map(|(begin, _)| *begin).collect();
    let mut wrong = Vec::new();
    for line in include_str!("testdata/metrics.tsv").lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let (page, name, kind) = (fields[0], fields[1], fields[2]);
        let labels: BTreeSet<String> =
            fields[3].split(',').filter(|label| !label.is_empty()).map(str::to_owned).collect();
        let reason = LEFT_OUT.iter().find(|(begin, _)| name.starts_with(begin));
        match (ours.get(&(page, name.to_owned())), reason) {
            (Some(_), Some(_)) => wrong.push(format!("{page} {name} is there and need not be excused")),
            (Some((our_kind, our_labels)), None) if our_kind == kind && *our_labels == labels => {}
            (Some(found), None) => wrong.push(format!("{page} {name} {kind} {labels:?} is {found:?}")),
            (None, Some((begin, _))) => drop(unused.remove(begin)),
            (None, None) => wrong.push(format!("{page} {name} {kind} {labels:?} is missing")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(unused.is_empty(), "nothing to excuse: {unused:?}");
}

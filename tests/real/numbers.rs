//! Numbers about real pods: /stats/summary, the /metrics pages and `ferrolet top`, and what Prometheus' own parser says of them.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use super::lab::{Lab, SOON, pod, shell, until_term};
use crate::harness::{Containerd, Node, config::free_port, wait};

const PAGES: [&str; 5] = ["/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes", "/metrics/slis"];

/// A page of the server, through a client that reads answers of any length.
fn page(port: u16, path: &str) -> Result<String, String> {
    let url = format!("http://127.0.0.1:{port}{path}");
    let output = Command::new("curl").args(["-sS", "-f", "--max-time", "30", &url]).output().expect("start curl");
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn summary(port: u16) -> Result<Value, String> {
    serde_json::from_str(&page(port, "/stats/summary")?).map_err(|error| error.to_string())
}

fn pod_of<'v>(summary: &'v Value, name: &str) -> Result<&'v Value, String> {
    let pods = summary["pods"].as_array().ok_or("no pods")?;
    pods.iter().find(|pod| pod["podRef"]["name"] == name).ok_or_else(|| format!("{name} is not in {summary}"))
}

/// The value of the one sample that begins so.
fn sample(text: &str, begin: &str) -> Result<f64, String> {
    let mut found = text.lines().filter(|line| line.starts_with(begin));
    let line = found.next().ok_or_else(|| format!("{begin} is not there"))?;
    let (_, values) = line.rsplit_once("} ").ok_or(line)?;
    values.split(' ').next().and_then(|value| value.parse().ok()).ok_or_else(|| line.to_owned())
}

/// Has Prometheus' own tool read a page. It may find names that it does not like, since upstream has them; what it can't
/// read is an error.
fn check_text(path: &str, text: &str) {
    let mut tool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool of the package prometheus is not installed: tests/peers/install runtime");
    tool.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("promtool reads");
    let output = tool.wait_with_output().expect("promtool ends");
    let said = String::from_utf8_lossy(&output.stderr);
    let fine = matches!(output.status.code(), Some(0 | 3)) && !said.contains("error while linting");
    assert!(fine, "{path}: promtool says {:?}: {said}", output.status);
}

fn numbers_of_pods_are_plausible(containerd: Containerd) {
    let node = Node::start(containerd);
    let port = free_port();
    let lab = Lab::start_with(&node, |config| {
        config["enableServer"] = json!(true);
        config["port"] = json!(free_port());
        config["readOnlyPort"] = json!(port);
        config["address"] = json!("127.0.0.1");
    });
    let limits = json!({
        "resources": {"limits": {"cpu": "300m", "memory": "64Mi"}},
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1},
    });
    let script = "dd if=/dev/zero of=/scratch/file bs=1024 count=300 2>/dev/null; echo hello; \
                  dd if=/dev/zero of=/written bs=1024 count=200 2>/dev/null; while :; do :; done";
    lab.put(&pod("busy", &[shell("app", script, limits)], json!({"volumes": [{"name": "scratch", "emptyDir": {}}]})));
    lab.put(&pod("calm", &[shell("app", &until_term("", ""), json!({}))], json!({"hostNetwork": true})));
    lab.wait_running("busy");
    lab.wait_running("calm");

    // What the runtime finds out by itself, disks, is a few seconds late.
    let first = wait::until("a whole summary", SOON, || {
        let found = summary(port)?;
        let busy = pod_of(&found, "busy-node")?;
        let app = &busy["containers"][0];
        let number = |value: &Value, what: &str| value.as_u64().ok_or_else(|| format!("no {what}: {busy}"));
        let at_least = |value: u64, least: u64, what: &str| {
            if value >= least { Ok(()) } else { Err(format!("{what} is {value}, below {least}: {busy}")) }
        };
        at_least(number(&app["memory"]["workingSetBytes"], "working set")?, 4096, "working set")?;
        at_least(number(&app["memory"]["availableBytes"], "available memory")?, 1 << 20, "available memory")?;
        at_least(number(&app["cpu"]["usageCoreNanoSeconds"], "CPU")?, 1_000_000, "CPU")?;
        at_least(number(&app["cpu"]["usageNanoCores"], "CPU rate")?, 10_000_000, "CPU rate")?;
        at_least(number(&app["rootfs"]["usedBytes"], "writable layer")?, 200 << 10, "writable layer")?;
        at_least(number(&app["logs"]["usedBytes"], "logs")?, 1, "logs")?;
        at_least(number(&busy["volume"][0]["usedBytes"], "volume")?, 300 << 10, "volume")?;
        at_least(number(&busy["ephemeral-storage"]["usedBytes"], "ephemeral storage")?, 500 << 10, "storage")?;
        at_least(number(&busy["process_stats"]["process_count"], "processes")?, 1, "processes")?;
        number(&busy["network"]["rxBytes"], "network")?;
        Ok(found)
    });
    let busy = pod_of(&first, "busy-node").expect("busy");
    let calm = pod_of(&first, "calm-node").expect("calm");
    assert!(calm["network"].is_null(), "its network is the node's: {calm}");
    let cores = |pod: &Value| pod["cpu"]["usageNanoCores"].as_u64().unwrap_or(0);
    assert!(cores(busy) < 600_000_000, "its limit is 300m: {busy}");
    assert!(cores(calm) < cores(busy), "{calm} {busy}");
    let node_stats = &first["node"];
    let total = node_stats["memory"]["workingSetBytes"].as_u64().unwrap_or(0);
    assert!(total > busy["memory"]["workingSetBytes"].as_u64().unwrap_or(u64::MAX), "{node_stats}");
    for path in ["/runtime/imageFs/usedBytes", "/fs/capacityBytes", "/rlimit/maxpid", "/systemContainers/0/cpu"] {
        assert!(node_stats.pointer(path).is_some_and(|value| !value.is_null()), "no {path}: {node_stats}");
    }

    let labels = "{container=\"app\",namespace=\"default\",pod=\"busy-node\"}";
    let name = format!("container_cpu_usage_seconds_total{labels}");
    let before = sample(&page(port, "/metrics/resource").expect("a page"), &name).expect("CPU");
    wait::until("CPU that grows", SOON, || {
        let now = sample(&page(port, "/metrics/resource")?, &name)?;
        if now > before { Ok(()) } else { Err(format!("{now} after {before}")) }
    });
    let containers = page(port, "/metrics/cadvisor").expect("a page");
    let begin = "container_memory_working_set_bytes{container=\"app\",id=\"/";
    assert!(
        containers.lines().any(|line| line.starts_with(begin) && line.contains("pod=\"busy-node\"")),
        "{containers}"
    );
    let network = |line: &&str| line.starts_with("container_network_receive_bytes_total") && line.contains("busy-node");
    assert_eq!(containers.lines().filter(network).count(), 1, "{containers}");
    wait::until("counted probes", SOON, || {
        let begin = "prober_probe_total{container=\"app\",namespace=\"default\",pod=\"busy-node\"";
        sample(&page(port, "/metrics/probes")?, begin).map(drop)
    });
    for path in PAGES {
        check_text(path, &page(port, path).expect("a page"));
    }
    let all = page(port, "/metrics").expect("a page");
    for begin in [
        "kubelet_running_pods 2",
        "kubelet_running_containers{container_state=\"running\"} 2",
        "kubelet_desired_pods{static=\"true\"} 2",
        "kubelet_started_pods_total ",
        "kubelet_runtime_operations_total{operation_type=\"run_podsandbox\"} 2",
        "kubelet_pod_start_duration_seconds_count 2",
        "kubelet_node_name{node=\"node\"} 1",
        "ferrolet_sync_loop_turns_total ",
    ] {
        assert!(all.lines().any(|line| line.starts_with(begin)), "{begin} is not in\n{all}");
    }

    let table = lab.agent.tool(&["top", "--once"]).expect("a table");
    let line = table.lines().find(|line| line.contains("busy-node")).expect("the busy pod");
    assert!(!line.contains(" 0m "), "{table}");
    let told: Value = serde_json::from_str(&lab.agent.tool(&["top", "-o", "json"]).expect("JSON")).expect("JSON");
    assert_eq!(told["pods"].as_array().map(Vec::len), Some(2), "{told}");
    assert!(told["pods"][0]["memory"].as_u64().is_some_and(|memory| memory > 0), "{told}");
}

#[test]
fn numbers_of_pods_are_plausible_on_the_distributions_containerd() {
    numbers_of_pods_are_plausible(Containerd::System);
}

#[test]
fn numbers_of_pods_are_plausible_on_containerd_2() {
    numbers_of_pods_are_plausible(Containerd::Two);
}

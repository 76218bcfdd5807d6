//! /metrics: what the agent counts, and what is counted in the node's view when somebody asks. See the parent module.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Stats;
use super::machine;
use crate::api::pod as pods;
use crate::api::runtime::{ContainerState, SandboxState};
use crate::config::KUBELET_VERSION;
use crate::config::features::{self, Stage};
use crate::core::node_object::go_architecture;
use crate::host::cgroup::CgroupVersion;
use crate::host::usage::disk::{Measure, Question};
use crate::msg::{Life, NodeView, PodView};
use crate::util::metrics::{Kind, Number, Text, kubelet, own, push_label, write_all};

/// Logs are measured again after this long.
const LOGS_FRESH: Duration = Duration::from_secs(60);
/// How long logs may take.
const LOGS_PATIENCE: Duration = Duration::from_secs(1);

pub(super) fn write(stats: &Stats, text: &mut Text<'_>) {
    let view = stats.sources.view.get();
    let mut out = Gauges { text };
    of_view(&view, &mut out);
    out.family("kubelet_node_name", "The node's name.", &["node"], &[(vec![stats.sources.node.clone()], 1)]);
    if let Some(tree) = &stats.sources.cgroups {
        let version = match tree.version() {
            CgroupVersion::V1 => 1,
            CgroupVersion::V2 => 2,
        };
        out.one("kubelet_cgroup_version", "Version of the machine's cgroups.", version);
    }
    let provider = vec!["ferrolet".to_owned()];
    out.family("kubelet_metrics_provider", "Who reads figures of pods.", &["provider"], &[(provider, 1)]);
    logs(stats, &view, &mut out);
    write_all(kubelet::ALL, text);
    write_all(own::ALL, text);
    build(text);
    gates(stats, text);
    machine::write_process(stats, text);
}

/// Gauges that are counted now.
struct Gauges<'a, 'b> {
    text: &'a mut Text<'b>,
}

impl Gauges<'_, '_> {
    fn one(&mut self, name: &str, help: &str, value: u64) {
        self.text.head(name, Kind::Gauge, help);
        self.text.sample(name, "", value.into());
    }

    fn family(&mut self, name: &str, help: &str, labels: &[&str], series: &[(Vec<String>, u64)]) {
        if !series.is_empty() {
            self.text.head(name, Kind::Gauge, help);
        }
        for (values, value) in series {
            let mut text = String::new();
            for (label, value) in labels.iter().zip(values) {
                push_label(&mut text, label, value);
            }
            self.text.sample(name, &text, Number::Whole(*value));
        }
    }
}

/// Whose pod it is, as upstream labels it.
fn is_static(pod: &PodView) -> &'static str {
    if pod.pod.as_deref().is_some_and(pods::is_static) { "true" } else { "" }
}

fn of_view(view: &NodeView, out: &mut Gauges<'_, '_>) {
    let mut running_pods = 0;
    let mut ephemeral = 0;
    let mut containers = BTreeMap::new();
    // All of them are told, those without any pod as well.
    let mut desired = BTreeMap::from([("", 0), ("true", 0)]);
    let mut active = desired.clone();
    let mut working = BTreeMap::new();
    for lifecycle in ["sync", "terminating", "terminated"] {
        for config in ["desired", "orphan"] {
            for is_static in ["", "true"] {
                working.insert((config, lifecycle, is_static), 0);
            }
        }
        working.insert(("runtime_only", lifecycle, "unknown"), 0);
    }
    for pod in view.pods.values() {
        let is_static = is_static(pod);
        if pod.wanted.is_some() {
            *desired.entry(is_static).or_insert(0) += 1;
            let is_over = matches!(pod.status.phase.as_deref(), Some("Failed" | "Succeeded"));
            if !is_over && pod.life != Life::Over {
                *active.entry(is_static).or_insert(0) += 1;
            }
            ephemeral += pod.pod.as_deref().map_or(0, |pod| pods::ephemeral_containers(pod).len() as u64);
        }
        let lifecycle = match pod.life {
            Life::Waiting | Life::Active => "sync",
            Life::Ending => "terminating",
            Life::Over => "terminated",
        };
        let key = match (&pod.wanted, &pod.pod) {
            (Some(_), _) => ("desired", lifecycle, is_static),
            (None, Some(_)) => ("orphan", lifecycle, is_static),
            (None, None) => ("runtime_only", lifecycle, "unknown"),
        };
        *working.entry(key).or_insert(0) += 1;
        let Some(runtime) = &pod.runtime else { continue };
        running_pods += u64::from(runtime.sandboxes.iter().any(|sandbox| sandbox.state == SandboxState::Ready));
        for container in &runtime.containers {
            let state = match container.state {
                ContainerState::Created => "created",
                ContainerState::Running { .. } => "running",
                ContainerState::Exited(_) => "exited",
                ContainerState::Unknown => "unknown",
            };
            *containers.entry(state).or_insert(0) += 1;
        }
    }
    let by_one = |counts: BTreeMap<&str, u64>| -> Vec<(Vec<String>, u64)> {
        counts.into_iter().map(|(label, count)| (vec![label.to_owned()], count)).collect()
    };
    out.family("kubelet_active_pods", "Pods that the node runs or will run.", &["static"], &by_one(active));
    out.family("kubelet_desired_pods", "Pods that the sources want on the node.", &["static"], &by_one(desired));
    out.one("kubelet_managed_ephemeral_containers", "Ephemeral containers of the node's pods.", ephemeral);
    out.one("kubelet_mirror_pods", "Mirrors of static pods in the API.", view.mirrors.len() as u64);
    let help = "Containers in the runtime, by state.";
    out.family("kubelet_running_containers", help, &["container_state"], &by_one(containers));
    out.one("kubelet_running_pods", "Pods with a sandbox that is ready.", running_pods);
    let working: Vec<(Vec<String>, u64)> = working
        .into_iter()
        .map(|((config, lifecycle, is_static), count)| {
            (vec![config.to_owned(), lifecycle.to_owned(), is_static.to_owned()], count)
        })
        .collect();
    let help = "Pods that the agent knows of, by where in their life they are.";
    out.family("kubelet_working_pods", help, &["config", "lifecycle", "static"], &working);
    resizes(view, out);
}

/// Resizes under way, as the pods' conditions tell.
fn resizes(view: &NodeView, out: &mut Gauges<'_, '_>) {
    let mut in_progress = 0;
    let mut pending = BTreeMap::new();
    for condition in view.pods.values().flat_map(|pod| pod.status.conditions.iter().flatten()) {
        match condition.type_.as_str() {
            "PodResizeInProgress" if condition.status == "True" => in_progress += 1,
            "PodResizePending" if condition.status == "True" => {
                let reason = condition.reason.clone().unwrap_or_default().to_lowercase();
                *pending.entry(reason).or_insert(0) += 1;
            }
            _ => {}
        }
    }
    out.one("kubelet_pod_in_progress_resizes", "Pods whose containers are being resized.", in_progress);
    let pending: Vec<(Vec<String>, u64)> = pending.into_iter().map(|(reason, count)| (vec![reason], count)).collect();
    out.family("kubelet_pod_pending_resizes", "Pods whose resize waits, by reason.", &["reason"], &pending);
}

fn logs(stats: &Stats, view: &NodeView, out: &mut Gauges<'_, '_>) {
    let mut questions = Vec::new();
    let mut labels = Vec::new();
    for pod in view.pods.values() {
        let containers = pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses).flatten();
        for container in containers {
            let Ok(path) = stats.sources.dirs.container_logs(&pod.name, &pod.uid, &container.name) else { continue };
            questions.push(Question { path, measure: Measure::Content });
            labels.push(vec![
                container.name.clone(),
                pod.name.namespace.clone(),
                pod.name.name.clone(),
                pod.uid.to_string(),
            ]);
        }
    }
    let answers = stats.disks.ask(&questions, LOGS_FRESH, LOGS_PATIENCE);
    let series: Vec<(Vec<String>, u64)> =
        labels.into_iter().zip(answers).filter_map(|(labels, answer)| Some((labels, answer?.room.used))).collect();
    let help = "Bytes that the container's logs take.";
    let names = ["container", "namespace", "pod", "uid"];
    out.family("kubelet_container_log_filesystem_used_bytes", help, &names, &series);
}

fn build(text: &mut Text<'_>) {
    let version = KUBELET_VERSION.trim_start_matches('v');
    let mut parts = version.split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mut labels = String::new();
    for (label, value) in [
        ("build_date", ""),
        ("compiler", "rustc"),
        ("git_commit", ""),
        ("git_tree_state", ""),
        ("git_version", KUBELET_VERSION),
        ("go_version", ""),
        ("major", major),
        ("minor", minor),
        ("platform", &format!("linux/{}", go_architecture(std::env::consts::ARCH))),
    ] {
        push_label(&mut labels, label, value);
    }
    text.head("kubernetes_build_info", Kind::Gauge, "The kubelet that this agent stands for.");
    text.sample("kubernetes_build_info", &labels, 1.into());
}

fn gates(stats: &Stats, text: &mut Text<'_>) {
    text.head("kubernetes_feature_enabled", Kind::Gauge, "1 for a feature that is on, 0 for one that is off.");
    for gate in features::GATES {
        let stage = match gate.stage {
            Stage::Alpha => "ALPHA",
            Stage::Beta => "BETA",
            Stage::Stable => "",
            Stage::Deprecated => "DEPRECATED",
        };
        let mut labels = String::new();
        push_label(&mut labels, "name", gate.name);
        push_label(&mut labels, "stage", stage);
        let is_on = features::is_enabled(&stats.sources.feature_gates, gate.name);
        text.sample("kubernetes_feature_enabled", &labels, u64::from(is_on).into());
    }
}

//! /metrics/resource: what metrics-server scales and schedules by. Pure writing; see the parent module.

use super::gather::{NodeReading, PodReading, Used};
use crate::util::metrics::{Kind, Number, Text, push_label};

/// Labels of a series, and what it tells of.
struct Subject<'a> {
    labels: String,
    used: &'a Used,
}

pub(super) fn write(node: &NodeReading, text: &mut Text<'_>) {
    let at = node.at.wall / 1_000_000;
    let mut containers = Vec::new();
    let mut pods = Vec::new();
    for pod in &node.pods {
        for container in &pod.containers {
            if let Some(facts) = pod.container(container) {
                containers.push(Subject { labels: labels(pod, Some(&facts.name)), used: &container.used });
            }
        }
        pods.push(Subject { labels: labels(pod, None), used: &pod.used });
    }
    let machine = [Subject { labels: String::new(), used: &node.root }];

    let mut family = |name: &str, kind: Kind, help: &str, subjects: &[Subject<'_>], of: fn(&Used) -> Option<Number>| {
        let mut found = subjects.iter().filter_map(|subject| Some((subject, of(subject.used)?))).peekable();
        if found.peek().is_some() {
            text.head(name, kind, help);
        }
        for (subject, value) in found {
            text.sample_at(name, &subject.labels, "", value, at);
        }
    };
    let (gauge, counter) = (Kind::Gauge, Kind::Counter);
    family("container_cpu_usage_seconds_total", counter, "Seconds of CPU that the container used.", &containers, cpu);
    family(
        "container_memory_working_set_bytes",
        gauge,
        "Memory of the container that can't be taken away.",
        &containers,
        memory,
    );
    family("container_start_time_seconds", gauge, "When the container started, since 1970.", &containers, start);
    family(
        "container_swap_limit_bytes",
        gauge,
        "Swap that the container may use, as far as it is limited.",
        &containers,
        |used| used.usage.memory?.swap.and(used.usage.memory?.swap_limit).map(Number::Whole),
    );
    family("container_swap_usage_bytes", gauge, "Swap that the container uses.", &containers, swap);
    family("node_cpu_usage_seconds_total", counter, "Seconds of CPU that the machine used.", &machine, cpu);
    family("node_memory_working_set_bytes", gauge, "Memory of the machine that can't be taken away.", &machine, memory);
    family("node_swap_usage_bytes", gauge, "Swap that the machine uses.", &machine, swap);
    family("pod_cpu_usage_seconds_total", counter, "Seconds of CPU that the pod used.", &pods, cpu);
    family("pod_memory_working_set_bytes", gauge, "Memory of the pod that can't be taken away.", &pods, memory);
    family("pod_swap_usage_bytes", gauge, "Swap that the pod uses.", &pods, swap);

    let help = "1 if the machine's figures could not be read, else 0.";
    text.head("resource_scrape_error", gauge, help);
    text.sample("resource_scrape_error", "", u64::from(node.failed).into());
}

fn labels(pod: &PodReading, container: Option<&str>) -> String {
    let mut labels = String::new();
    if let Some(container) = container {
        push_label(&mut labels, "container", container);
    }
    push_label(&mut labels, "namespace", &pod.view.name.namespace);
    push_label(&mut labels, "pod", &pod.view.name.name);
    labels
}

/// Nanoseconds as seconds.
#[expect(clippy::cast_precision_loss)]
pub(super) fn seconds(nanos: u64) -> Number {
    Number::Float(nanos as f64 / 1e9)
}

fn cpu(used: &Used) -> Option<Number> {
    used.usage.cpu.map(|cpu| seconds(cpu.usage))
}

fn memory(used: &Used) -> Option<Number> {
    used.usage.memory.map(|memory| memory.working_set().into())
}

fn swap(used: &Used) -> Option<Number> {
    used.usage.memory?.swap.map(Number::Whole)
}

fn start(used: &Used) -> Option<Number> {
    u64::try_from(used.started_at).ok().filter(|at| *at > 0).map(seconds)
}

//! CPU and memory of running pods changed through the API, and back again.

use serde_json::{Value, json};

use super::make::{pod, row, shell, until, with};
use super::scene::{Look, Row, Step};
use crate::harness::cluster::condition;

/// What a container asks for and may take: `cpu`, `cpu limit`, `memory`, `memory limit`; empty is nothing.
type Size = [&'static str; 4];

fn resources(size: &Size) -> Value {
    let list = |cpu: &str, memory: &str| {
        let given = [("cpu", cpu), ("memory", memory)].into_iter().filter(|(_, amount)| !amount.is_empty());
        given.map(|(name, amount)| (name.to_owned(), json!(amount))).collect::<serde_json::Map<_, _>>()
    };
    let (requests, limits) = (list(size[0], size[2]), list(size[1], size[3]));
    let parts = [("requests", requests), ("limits", limits)].into_iter().filter(|(_, list)| !list.is_empty());
    Value::Object(parts.map(|(name, list)| (name.to_owned(), Value::Object(list))).collect())
}

const NAMES: [&str; 5] = ["c1", "c2", "c3", "c4", "c5"];

/// Prints its own limit of memory in bytes, whichever hierarchy it is in.
const TELLS: &str =
    "while :; do cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null; sleep 1; done";

fn containers(sizes: &[Size]) -> Vec<Value> {
    sizes
        .iter()
        .zip(NAMES)
        .map(|(size, name)| with(shell(name, TELLS), json!({ "resources": resources(size) })))
        .collect()
}

/// A change of all containers: strategic merges drop nothing, and here nothing is to be dropped.
fn patch(pod: &str, sizes: &[Size]) -> Step {
    let list: Vec<Value> =
        sizes.iter().zip(NAMES).map(|(size, name)| json!({ "name": name, "resources": resources(size) })).collect();
    let text = json!({ "spec": { "containers": list } }).to_string();
    Step::Kubectl(["patch", "pod", pod, "--subresource", "resize", "-p", &text].map(str::to_owned).into())
}

/// The containers run with these sizes in the API, without a restart, and the kernel has the memory limits.
fn has(sizes: &[Size]) -> Vec<Look> {
    let rests = Look::Holds("no resize is under way", |pod| {
        ["PodResizePending", "PodResizeInProgress"].iter().all(|kind| condition(pod, kind).is_null())
    });
    let mut looks = vec![Look::Ready(true), rests];
    for (size, name) in sizes.iter().zip(NAMES) {
        looks.push(Look::Restarts(name, 0..=0));
        for (pointer, amount) in [
            ("/resources/requests/cpu", size[0]),
            ("/resources/limits/cpu", size[1]),
            ("/resources/requests/memory", size[2]),
            ("/resources/limits/memory", size[3]),
        ] {
            if !amount.is_empty() {
                looks.push(Look::Status(name, pointer, json!(amount)));
            }
        }
        if let Some(mebi) = size[3].strip_suffix("Mi").and_then(|mebi| mebi.parse::<u64>().ok()) {
            looks.push(Look::Says(name, (mebi << 20).to_string()));
        }
    }
    looks
}

fn same_generation(mut looks: Vec<Look>) -> Vec<Look> {
    looks.push(Look::Holds("the node has seen the newest generation", |pod| {
        pod["status"]["observedGeneration"] == pod["metadata"]["generation"]
    }));
    looks
}

fn changed(name: &str, slug: &str, before: &[Size], after: &[Size], back: bool) -> Row {
    let mut steps = vec![
        Step::Make(pod(slug, &containers(before), json!({}))),
        until(slug, has(before)),
        patch(slug, after),
        until(slug, same_generation(has(after))),
    ];
    if back {
        steps.extend([patch(slug, before), until(slug, same_generation(has(before)))]);
    }
    row(&format!("Pod InPlace Resize Container {name}"), steps)
}

/// Guaranteed: requests are limits.
const fn same(cpu: &'static str, memory: &'static str) -> Size {
    [cpu, cpu, memory, memory]
}

pub(super) fn rows() -> Vec<Row> {
    let three = [same("20m", "35Mi"), same("22m", "37Mi"), same("24m", "39Mi")];
    let of = |what: &str| format!("guaranteed pods with multiple containers 3 containers - {what}");
    let before =
        [["20m", "", "", ""], ["", "", "35Mi", ""], ["20m", "", "35Mi", ""], ["20m", "", "", ""], ["", "", "35Mi", ""]];
    let after = [
        ["25m", "35m", "", ""],
        ["", "", "30Mi", "50Mi"],
        ["20m", "", "30Mi", ""],
        ["15m", "", "35Mi", ""],
        ["20m", "", "40Mi", ""],
    ];
    let replaced = {
        let whole = |size: &Size| {
            let replace =
                json!([{ "op": "replace", "path": "/spec/containers/0/resources", "value": resources(size) }])
                    .to_string();
            Step::Kubectl(
                ["patch", "pod", "resize-whole", "--subresource", "resize", "--type=json", "-p", &replace]
                    .map(str::to_owned)
                    .into(),
            )
        };
        let (small, large) = (["20m", "30m", "35Mi", "45Mi"], ["25m", "35m", "40Mi", "50Mi"]);
        row(
            "Pod InPlace Resize Container resize pod via the replace endpoint",
            vec![
                Step::Make(pod("resize-whole", &containers(&[small]), json!({}))),
                until("resize-whole", has(&[small])),
                whole(&large),
                until("resize-whole", same_generation(has(&[large]))),
            ],
        )
    };
    vec![
        changed(
            &of("increase cpu & mem on c1, c2, decrease cpu & mem on c3 - net increase"),
            "resize-up",
            &three,
            &[same("25m", "40Mi"), same("27m", "42Mi"), same("19m", "34Mi")],
            true,
        ),
        changed(
            &of("increase cpu & mem on c1, decrease cpu & mem on c2, c3 - net decrease"),
            "resize-down",
            &three,
            &[same("25m", "40Mi"), same("17m", "32Mi"), same("19m", "34Mi")],
            true,
        ),
        changed(
            &of("increase: CPU (c1,c3), memory (c2, c3) ; decrease: CPU (c2)"),
            "resize-mix",
            &three,
            &[same("25m", "35Mi"), same("17m", "42Mi"), same("29m", "44Mi")],
            true,
        ),
        changed(
            "burstable pods - extended 6 containers - various operations performed (including adding limits and requests)",
            "resize-adds",
            &before,
            &after,
            false,
        ),
        changed(
            "burstable pods - extended resize with equivalents",
            "resize-equal",
            &[["2m", "10m", "", ""]],
            &[["1m", "5m", "", ""]],
            true,
        ),
        replaced,
        whole_pod(),
    ]
}

/// The pod as a whole has sizes, and gets others, while those of its container stay.
fn whole_pod() -> Row {
    let (before, after) = (["4m", "20m", "40Mi", "60Mi"], ["5m", "25m", "40Mi", "80Mi"]);
    let inside = [["2m", "10m", "", ""]];
    let ask = |size: &Size| {
        let text = json!({ "spec": { "resources": resources(size) } }).to_string();
        Step::Kubectl(["patch", "pod", "resize-pod", "--subresource", "resize", "-p", &text].map(str::to_owned).into())
    };
    let looks = |size: &Size| {
        let mut looks = same_generation(has(&inside));
        looks.push(Look::Is("/status/resources", resources(size)));
        looks.push(Look::Is("/status/allocatedResources", resources(size)["requests"].clone()));
        looks
    };
    let object = pod("resize-pod", &containers(&inside), json!({ "resources": resources(&before) }));
    let name = "Pod InPlace Resize Container burstable pods - pod-level resources pod-level resize with equivalents";
    row(
        name,
        vec![
            Step::Make(object),
            until("resize-pod", looks(&before)),
            ask(&after),
            until("resize-pod", looks(&after)),
            ask(&before),
            until("resize-pod", looks(&before)),
        ],
    )
}

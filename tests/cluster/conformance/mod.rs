//! The behaviours that Kubernetes' own node tests name, one row each, on a real control plane: all of them at once on one node.
//!
//! `names.tsv` lists every name with where it is shown: by a row of the table here, by a test of another place, or nowhere
//! yet, with the reason. The rows are in `probes`, `hooks`, `lives`, `words`, `pods` and `resizes`; `scene` plays them and
//! `make` is what they are made of. With `FERROLET_CONFORMANCE=upstream` in the environment the same rows are played on the
//! upstream kubelet, to see that they ask for what it does; `FERROLET_ROWS=Lifecycle` plays those alone that are named so.

mod hooks;
mod lives;
mod make;
mod pods;
mod probes;
mod resizes;
mod scene;
mod words;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::Instant,
};

use serde_json::{Value, json};

use self::scene::{Row, Scene};
use super::lab::Ground;
use super::upstream::Kubelet;
use crate::{
    fakes::{registry::Registry, registry_image::RegistryImage},
    harness::{Cluster, config},
};

const NAMES: &str = include_str!("names.tsv");

/// What one of the rows' names says of where it is shown.
const HERE: &str = "row";

/// The table.
fn rows() -> Vec<Row> {
    [probes::rows(), hooks::rows(), lives::rows(), words::rows(), pods::rows(), resizes::rows()]
        .into_iter()
        .flatten()
        .collect()
}

fn names() -> BTreeMap<&'static str, &'static str> {
    NAMES.lines().map(|line| line.split_once('\t').unwrap_or_else(|| panic!("no tab in {line:?}"))).collect()
}

/// Whether a test of that path is there: `cluster::pods::a_test` below tests/, `src::core::plan::tests::a_test` below src/.
fn is_test(path: &str) -> bool {
    let (place, path) = path.strip_prefix("src::").map_or(("tests", path), |path| ("src", path));
    let Some((module, test)) = path.rsplit_once("::") else { return false };
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join(place).join(module.replace("::", "/"));
    let texts =
        [module.with_extension("rs"), module.join("mod.rs")].map(|file| fs::read_to_string(file).unwrap_or_default());
    texts.iter().any(|text| {
        text.contains(&format!("#[test]\nfn {test}()")) || text.contains(&format!("#[test]\n    fn {test}()"))
    })
}

#[test]
fn every_name_is_shown_by_a_row_or_says_where_else() {
    let (names, rows) = (names(), rows());
    assert_eq!(names.len(), NAMES.lines().count(), "a name stands there twice");
    let here: BTreeSet<&str> = names.iter().filter(|(_, place)| **place == HERE).map(|(name, _)| *name).collect();
    let shown: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(shown.len(), rows.len(), "two rows have one name");
    let missing: Vec<_> = here.difference(&shown).collect();
    let strange: Vec<_> = shown.difference(&here).collect();
    assert!(missing.is_empty() && strange.is_empty(), "without a row: {missing:#?}; not in names.tsv: {strange:#?}");
    for (name, place) in names.iter().filter(|(_, place)| **place != HERE) {
        let told = match place.split_once(": ") {
            Some(("test", path)) => is_test(path),
            Some(("api" | "open", reason)) => !reason.is_empty(),
            _ => false,
        };
        assert!(told, "{name}: {place:?} is neither a row, nor a test that exists, nor a reason");
    }
}

#[test]
fn a_test_is_found_by_its_path() {
    for (path, expect) in [
        ("cluster::pods::a_static_pod_has_its_mirror", true),
        ("cluster::pods::a_static_pod_has_no_mirror", false),
        ("cluster::nowhere::a_static_pod_has_its_mirror", false),
        ("cluster::conformance::a_test_is_found_by_its_path", true),
        ("src::core::backoff::tests::nothing", false),
    ] {
        assert_eq!(is_test(path), expect, "{path}");
    }
}

/// A crash costs a second and not ten; a machine with a full disk evicts nobody; the node has room for all.
fn settle(config: &mut Value) {
    config["crashLoopBackOff"] = json!({ "maxContainerRestartPeriod": "1s" });
    config["evictionHard"] =
        json!({ "memory.available": "1Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi" });
}

fn play(ground: &Ground<'_>, logs: &str, registry: &Registry) -> Vec<String> {
    let node = ground.wait_ready();
    let amount = |name: &str| node["status"]["allocatable"][name].as_str().unwrap_or_default().to_owned();
    let kibi: u64 = amount("memory").trim_end_matches("Ki").parse().expect("memory in Ki");
    let address = node["status"]["addresses"][0]["address"].as_str().expect("an address").to_owned();
    let words = [
        ("node", ground.name.clone()),
        ("namespace", ground.name.clone()),
        ("address", address),
        ("registry", registry.address()),
        ("cpus", amount("cpu")),
        ("memory", (kibi << 10).to_string()),
    ];
    let scene = Scene {
        ground,
        namespace: ground.name.clone(),
        logs: ground.node.path(logs),
        began: Instant::now(),
        words: words.into(),
    };
    scene.make(&[words::shared(), pods::shared(), vec![hooks::listener()]].concat());
    let some = std::env::var("FERROLET_ROWS").unwrap_or_default();
    let failures = scene.play(rows().into_iter().filter(|row| row.name.contains(&some)).collect());
    scene.wait_empty();
    failures
}

#[test]
fn every_row_holds() {
    let ground = Ground::with_namespace(Cluster::shared());
    ground.node.import("agnhost");
    let registry = Registry::start();
    registry.write_hosts(&ground.node.path("certs.d"), &registry.address()).expect("write hosts.toml");
    registry.add("volume", "1", &RegistryImage::of_program("program", b"of an image that is a volume"));
    let failures = if std::env::var_os("FERROLET_CONFORMANCE").is_some_and(|of| of == "upstream") {
        let _kubelet = Kubelet::start(&ground, config::free_port(), settle);
        play(&ground, "pod-logs-upstream", &registry)
    } else {
        let _agent = ground.join(&[], settle);
        play(&ground, "pod-logs", &registry)
    };
    assert!(failures.is_empty(), "{} rows failed:\n{}", failures.len(), failures.join("\n"));
}

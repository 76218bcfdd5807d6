//! The pods of the simulation: a few names, each with a few versions, from two sources.
//!
//! Like real ones, a file's pod has another uid in each version and the same uid again when an old
//! version comes back; a pod of the URL keeps its uid and changes its spec.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrolet::api::v1::Pod;
use ferrolet::msg::{SourceKind, SourceUpdate};
use serde_json::{Value, json};

use super::rng::Rng;

/// What the specs are like; the number of the version picks one.
const KINDS: u64 = 10;

/// The manifests that are there now: name to version.
#[derive(Clone, Default)]
pub(super) struct Manifests {
    files: BTreeMap<String, u64>,
    url: BTreeMap<String, u64>,
}

impl Manifests {
    /// Changes one of them and tells which source has to speak.
    pub(super) fn change(&mut self, rng: &mut Rng) -> (SourceKind, String) {
        let (kind, set, name) = match rng.chance(700) {
            true => (SourceKind::File, &mut self.files, format!("file-{}", rng.below(4))),
            false => (SourceKind::Http, &mut self.url, format!("url-{}", rng.below(2))),
        };
        let what = match set.get(&name) {
            Some(_) if rng.chance(500) => {
                set.remove(&name);
                format!("manifest {name} is removed")
            }
            _ => {
                let version = rng.below(KINDS);
                set.insert(name.clone(), version);
                format!("manifest {name} is now version {version}")
            }
        };
        (kind, what)
    }

    /// The full set of a source.
    pub(super) fn of(&self, source: SourceKind) -> SourceUpdate {
        let set = match source {
            SourceKind::File => &self.files,
            SourceKind::Http | SourceKind::Api => &self.url,
        };
        let pods = set.iter().map(|(name, version)| Arc::new(pod(source, name, *version))).collect();
        SourceUpdate { source, pods, problems: Vec::new() }
    }
}

fn pod(source: SourceKind, name: &str, version: u64) -> Pod {
    let uid = match source {
        SourceKind::File => format!("{name}-{version}"),
        SourceKind::Http | SourceKind::Api => name.to_owned(),
    };
    let annotations = json!({"kubernetes.io/config.source": source.as_str()});
    let metadata = json!({"name": name, "namespace": "sim", "uid": uid, "annotations": annotations});
    let spec = match source {
        SourceKind::File => spec(version),
        // One pod whose images and containers change under it.
        SourceKind::Http | SourceKind::Api => changing_spec(version),
    };
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod")
}

fn app(name: &str) -> Value {
    json!({"name": name, "image": format!("{name}:1")})
}

/// A container with these probes, and with `more`.
fn probed(name: &str, more: Value, probes: &[&str]) -> Value {
    let mut container = app(name);
    let more = more.as_object().cloned().unwrap_or_default();
    let probe = json!({"tcpSocket": {"port": 1}, "periodSeconds": 2, "failureThreshold": 2});
    let probes = probes.iter().map(|field| ((*field).to_owned(), probe.clone()));
    container.as_object_mut().expect("an object").extend(more.into_iter().chain(probes));
    container
}

fn spec(version: u64) -> Value {
    let side = probed("side", json!({"restartPolicy": "Always"}), &["startupProbe", "livenessProbe"]);
    let web = || probed("web", json!({}), &["livenessProbe", "readinessProbe"]);
    let slow = probed("web", json!({}), &["startupProbe", "readinessProbe"]);
    match version {
        0 => json!({"containers": [web()]}),
        1 => json!({"containers": [app("web"), app("db")], "initContainers": [app("init-a"), app("init-b")]}),
        2 => json!({"containers": [web()], "initContainers": [side, app("init-a")]}),
        3 => json!({"containers": [app("job-a")], "restartPolicy": "Never"}),
        4 => {
            json!({"containers": [app("job-a"), app("job-b")], "restartPolicy": "OnFailure", "initContainers": [side]})
        }
        5 => json!({"containers": [app("web")], "activeDeadlineSeconds": 60}),
        6 => json!({"containers": [app("web")], "hostNetwork": true, "terminationGracePeriodSeconds": 2}),
        7 => {
            json!({"containers": [app("job-a"), app("job-b")], "restartPolicy": "Never", "initContainers": [app("init-a")]})
        }
        8 => json!({"containers": [slow, {"name": "job-own", "image": "j:1", "restartPolicy": "Never"}]}),
        _ => {
            let all = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]);
            let web = json!({"name": "web", "image": "web:1", "restartPolicy": "Always", "restartPolicyRules": all});
            let job = json!({"name": "job-own", "image": "j:1", "restartPolicy": "Never"});
            json!({"containers": [web, job], "initContainers": [side, app("init-a")]})
        }
    }
}

fn changing_spec(version: u64) -> Value {
    let web = probed("web", json!({"image": format!("web:{}", version % 3)}), &["readinessProbe"]);
    match version {
        0..3 => json!({"containers": [web]}),
        3..6 => json!({"containers": [web, app("db")]}),
        _ => json!({"containers": [web], "hostNetwork": version == 8, "initContainers": [app("init-a")]}),
    }
}

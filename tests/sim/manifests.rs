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

fn spec(version: u64) -> Value {
    let side = json!({"name": "side", "image": "side:1", "restartPolicy": "Always", "startupProbe": {}});
    match version {
        0 => json!({"containers": [app("web")]}),
        1 => json!({"containers": [app("web"), app("db")], "initContainers": [app("init-a"), app("init-b")]}),
        2 => json!({"containers": [app("web")], "initContainers": [side, app("init-a")]}),
        3 => json!({"containers": [app("job-a")], "restartPolicy": "Never"}),
        4 => {
            json!({"containers": [app("job-a"), app("job-b")], "restartPolicy": "OnFailure", "initContainers": [side]})
        }
        5 => json!({"containers": [app("web")], "activeDeadlineSeconds": 60}),
        6 => json!({"containers": [app("web")], "hostNetwork": true, "terminationGracePeriodSeconds": 2}),
        7 => {
            json!({"containers": [app("job-a"), app("job-b")], "restartPolicy": "Never", "initContainers": [app("init-a")]})
        }
        8 => json!({"containers": [app("web"), {"name": "job-own", "image": "j:1", "restartPolicy": "Never"}]}),
        _ => {
            let all = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]);
            let web = json!({"name": "web", "image": "web:1", "restartPolicy": "Always", "restartPolicyRules": all});
            let job = json!({"name": "job-own", "image": "j:1", "restartPolicy": "Never"});
            json!({"containers": [web, job], "initContainers": [side, app("init-a")]})
        }
    }
}

fn changing_spec(version: u64) -> Value {
    let web = json!({"name": "web", "image": format!("web:{}", version % 3)});
    match version {
        0..3 => json!({"containers": [web]}),
        3..6 => json!({"containers": [web, app("db")]}),
        _ => json!({"containers": [web], "hostNetwork": version == 8, "initContainers": [app("init-a")]}),
    }
}

//! What the node registers with, and how an object that is there already is taken over.
//!
//! Layer L1, pure. Taking over follows upstream: labels that describe the machine and the attach
//! annotation are put right, everything else is the administrator's, taints and extra labels included.

use std::collections::BTreeMap;

use super::{NodeSettings, OPERATING_SYSTEM, addresses};
use crate::api::meta::ObjectMeta;
use crate::api::v1::{Node, NodeSpec, Taint};
use crate::util::order::Gather;

/// Tells the attach controller that volumes of this node are its business.
pub const CONTROLLER_ATTACHES: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// Tells an external cloud provider what `--node-ip` said.
pub const PROVIDED_IP: &str = "alpha.kubernetes.io/provided-node-ip";
/// Keeps pods away until an external cloud provider has looked at the node.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

const HOSTNAME: &str = "kubernetes.io/hostname";
const OS: &str = "kubernetes.io/os";
const ARCH: &str = "kubernetes.io/arch";
const OLD_OS: &str = "beta.kubernetes.io/os";
const OLD_ARCH: &str = "beta.kubernetes.io/arch";

/// Labels of an existing object that follow this node's settings.
const FOLLOWED: &[&str] = &[
    HOSTNAME,
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    OS,
    ARCH,
    OLD_OS,
    OLD_ARCH,
];

/// The object to create, without a status.
pub fn initial(settings: &NodeSettings) -> Node {
    let architecture = settings.machine.architecture.as_str();
    let own = [
        (HOSTNAME, settings.hostname.as_str()),
        (OS, OPERATING_SYSTEM),
        (ARCH, architecture),
        (OLD_OS, OPERATING_SYSTEM),
        (OLD_ARCH, architecture),
    ];
    let mut labels: BTreeMap<String, String> =
        own.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).gather();
    labels.extend(settings.labels.clone());
    let mut taints = settings.taints.clone();
    if settings.external_cloud {
        taints.push(Taint {
            key: UNINITIALIZED.to_owned(),
            value: Some("true".to_owned()),
            effect: "NoSchedule".to_owned(),
            time_added: None,
        });
    }
    let mut node = Node {
        metadata: ObjectMeta { name: Some(settings.name.clone()), labels: Some(labels), ..ObjectMeta::default() },
        spec: Some(NodeSpec {
            taints: Some(taints).filter(|taints| !taints.is_empty()),
            provider_id: Some(settings.provider_id.clone()).filter(|id| !id.is_empty()),
            ..NodeSpec::default()
        }),
        status: None,
    };
    annotate(&mut node, settings);
    node
}

/// Puts right what this node answers for in an object that was registered before.
pub fn adopt(existing: &Node, settings: &NodeSettings) -> Node {
    let mut node = existing.clone();
    let wanted = initial(settings).metadata.labels.unwrap_or_default();
    let labels = node.metadata.labels.get_or_insert_default();
    for key in FOLLOWED {
        match wanted.get(*key).map(String::as_str) {
            None => {}
            // A label that is set to nothing is a label that shall go.
            Some("") => drop(labels.remove(*key)),
            Some(value) => drop(labels.insert((*key).to_owned(), value.to_owned())),
        }
    }
    annotate(&mut node, settings);
    node
}

/// Puts back what pods are scheduled by, should somebody have taken it away meanwhile.
pub(super) fn require_labels(node: &mut Node, settings: &NodeSettings) {
    let labels = node.metadata.labels.get_or_insert_default();
    for (key, value) in [(OS, OPERATING_SYSTEM), (ARCH, settings.machine.architecture.as_str())] {
        if labels.get(key).map(String::as_str) != Some(value) {
            labels.insert(key.to_owned(), value.to_owned());
        }
    }
}

/// Sets or takes away the annotations that are this node's.
pub(super) fn annotate(node: &mut Node, settings: &NodeSettings) {
    let wanted = [
        (CONTROLLER_ATTACHES, settings.controller_attaches.then(|| "true".to_owned())),
        (PROVIDED_IP, addresses::provided_ip(settings)),
    ];
    let mut annotations = node.metadata.annotations.take().unwrap_or_default();
    for (key, value) in wanted {
        match value {
            Some(value) => annotations.insert(key.to_owned(), value),
            None => annotations.remove(key),
        };
    }
    node.metadata.annotations = Some(annotations).filter(|annotations| !annotations.is_empty());
}

#[cfg(test)]
mod tests {
    use super::super::Machine;
    use super::*;

    fn settings() -> NodeSettings {
        NodeSettings {
            name: "n1".to_owned(),
            hostname: "edge".to_owned(),
            controller_attaches: true,
            machine: Machine { architecture: "arm64".to_owned(), ..Machine::default() },
            ..NodeSettings::default()
        }
    }

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn taints(node: &Node) -> Vec<String> {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        taints.iter().map(|t| format!("{}={}:{}", t.key, t.value.as_deref().unwrap_or(""), t.effect)).collect()
    }

    #[test]
    fn a_plain_node_has_five_labels_and_one_annotation() {
        let node = initial(&settings());
        assert_eq!(
            node.metadata.labels.unwrap(),
            map(&[(HOSTNAME, "edge"), (OS, "linux"), (ARCH, "arm64"), (OLD_OS, "linux"), (OLD_ARCH, "arm64")])
        );
        assert_eq!(node.metadata.annotations.unwrap(), map(&[(CONTROLLER_ATTACHES, "true")]));
        assert_eq!((node.metadata.name.as_deref(), node.spec), (Some("n1"), Some(NodeSpec::default())));
    }

    #[test]
    fn settings_reach_the_object() {
        let mut settings = settings();
        settings.labels = map(&[("site", "roof"), (HOSTNAME, "other")]);
        settings.taints = vec![Taint { key: "a".into(), effect: "NoExecute".into(), ..Taint::default() }];
        settings.provider_id = "x://1".to_owned();
        settings.external_cloud = true;
        settings.controller_attaches = false;
        settings.node_ips = vec!["10.0.0.5".parse().unwrap()];
        let node = initial(&settings);
        assert_eq!(taints(&node), ["a=:NoExecute", "node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule"]);
        assert_eq!(node.spec.as_ref().unwrap().provider_id.as_deref(), Some("x://1"));
        assert_eq!(node.metadata.annotations.unwrap(), map(&[(PROVIDED_IP, "10.0.0.5")]));
        let labels = node.metadata.labels.unwrap();
        assert_eq!((labels[HOSTNAME].as_str(), labels["site"].as_str()), ("other", "roof"));
    }

    #[test]
    fn an_existing_object_keeps_what_is_the_administrators() {
        let mut settings = settings();
        settings.labels = map(&[("site", "roof"), ("topology.kubernetes.io/zone", "z2"), (OLD_OS, "")]);
        settings.taints = vec![Taint { key: "a".into(), effect: "NoExecute".into(), ..Taint::default() }];
        let existing = Node {
            metadata: ObjectMeta {
                labels: Some(map(&[("mine", "1"), (HOSTNAME, "old"), (ARCH, "mips"), (OLD_OS, "plan9")])),
                annotations: Some(map(&[(PROVIDED_IP, "10.0.0.9"), ("note", "x")])),
                ..ObjectMeta::default()
            },
            ..Node::default()
        };
        let node = adopt(&existing, &settings);
        let labels = node.metadata.labels.clone().unwrap();
        let expect = [("mine", "1"), (HOSTNAME, "edge"), ("topology.kubernetes.io/zone", "z2"), (ARCH, "arm64")];
        for (key, value) in expect {
            assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
        }
        assert!(!labels.contains_key("site") && !labels.contains_key(OLD_OS), "{labels:?}");
        assert_eq!(node.metadata.annotations.clone().unwrap(), map(&[(CONTROLLER_ATTACHES, "true"), ("note", "x")]));
        assert_eq!(taints(&node), [""; 0]);
        assert_eq!(adopt(&node, &settings), node, "a second time changes nothing");
    }
}

//! The node's object as it shall be now, from what was found out and what the API server has.
//!
//! Layer L1, pure. It starts from the server's object, so that what others wrote there (conditions,
//! attached volumes, extended resources) stays.

use std::collections::BTreeMap;

use super::addresses::{AddressError, HostNetwork, node_addresses};
use super::conditions;
use super::runtime::RuntimeSeen;
use super::{NodeSettings, OPERATING_SYSTEM, kubelet_version, registration};
use crate::api::Quantity;
use crate::api::moment::Now;
use crate::api::pressure::Pressures;
use crate::api::quantity::Amount;
use crate::api::v1::{ContainerImage, DaemonEndpoint, Node, NodeDaemonEndpoints, NodeSwapStatus, NodeSystemInfo};

/// What was found out about the node just now.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The host's network.
    pub network: HostNetwork,
    /// The runtime.
    pub runtime: RuntimeSeen,
    /// The images, if they were listed yet.
    pub images: Option<Vec<ContainerImage>>,
    /// What is short.
    pub pressures: Pressures,
    /// Why the node is not ready, beside what the runtime has to do with it.
    pub trouble: Vec<String>,
}

/// An object that is to be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// The whole object.
    pub node: Node,
    /// Reasons of events that are due: `NodeReady`, …
    pub news: Vec<&'static str>,
    /// Why its addresses could not be found; they are then as before.
    pub address_error: Option<AddressError>,
    /// The boot id that the object had, if the machine was booted since.
    pub rebooted_from: Option<String>,
}

/// `present` with this node's status, labels and annotations put right.
pub fn tell(settings: &NodeSettings, present: &Node, findings: &Findings, now: Now) -> Told {
    let mut node = present.clone();
    registration::require_labels(&mut node, settings);
    registration::annotate(&mut node, settings);
    let status = node.status.get_or_insert_default();

    let addresses = node_addresses(settings, &findings.network, status.addresses.as_deref().unwrap_or_default());
    let address_error = match addresses {
        Ok(addresses) => {
            status.addresses = Some(addresses);
            None
        }
        Err(error) => Some(error),
    };
    resources(status.capacity.get_or_insert_default(), &settings.capacity);
    resources(status.allocatable.get_or_insert_default(), &settings.allocatable);
    let rebooted_from = system_info(status.node_info.get_or_insert_default(), settings, findings);
    status.daemon_endpoints =
        Some(NodeDaemonEndpoints { kubelet_endpoint: Some(DaemonEndpoint { port: settings.port }) });
    if let Some(images) = &findings.images {
        status.images = Some(images.clone()).filter(|images| !images.is_empty());
    }
    if findings.runtime.status.is_some() {
        status.runtime_handlers = findings.runtime.handlers();
        status.features = findings.runtime.features();
    }
    status.declared_features = Some(settings.declared.clone()).filter(|declared| !declared.is_empty());

    let mut trouble = findings.runtime.trouble(now.mono);
    trouble.extend(findings.trouble.iter().cloned());
    let news = conditions::set(status.conditions.get_or_insert_default(), findings.pressures, &trouble, now.wall);
    Told { node, news, address_error, rebooted_from }
}

/// Sets the node's own resources. Huge pages of a size that is gone go with it; resources of others stay.
fn resources(present: &mut BTreeMap<String, Quantity>, own: &BTreeMap<String, Quantity>) {
    present.retain(|name, _| !name.starts_with("hugepages-") || own.contains_key(name));
    for (name, quantity) in own {
        // The server writes some amounts in another form: the same amount is no news.
        let amount = |quantity: &Quantity| Amount::parse(&quantity.0).ok();
        if present.get(name).and_then(amount) != amount(quantity) {
            present.insert(name.clone(), quantity.clone());
        }
    }
}

fn system_info(info: &mut NodeSystemInfo, settings: &NodeSettings, findings: &Findings) -> Option<String> {
    let machine = &settings.machine;
    let before = std::mem::replace(&mut info.boot_id, machine.boot_id.clone());
    info.machine_id.clone_from(&machine.machine_id);
    info.system_uuid.clone_from(&machine.system_uuid);
    info.kernel_version.clone_from(&machine.kernel);
    info.os_image.clone_from(&machine.os_image);
    info.operating_system = OPERATING_SYSTEM.to_owned();
    info.architecture.clone_from(&machine.architecture);
    info.kubelet_version = kubelet_version();
    info.kube_proxy_version = String::new();
    if let Some(version) = findings.runtime.container_runtime_version() {
        info.container_runtime_version = version;
    } else if info.container_runtime_version.is_empty() {
        info.container_runtime_version = "://Unknown".to_owned();
    }
    if machine.swap > 0 {
        info.swap = Some(NodeSwapStatus { capacity: Some(i64::try_from(machine.swap).unwrap_or(i64::MAX)) });
    }
    Some(before).filter(|before| !before.is_empty() && *before != machine.boot_id)
}

#[cfg(test)]
mod tests {
    use super::super::Machine;
    use super::*;
    use crate::api::runtime_info::{RuntimeCondition, RuntimeStatus, RuntimeVersion};
    use serde_json::json;

    fn settings() -> NodeSettings {
        let amounts = |list: &[(&str, &str)]| {
            list.iter().map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned()))).collect()
        };
        NodeSettings {
            name: "n1".to_owned(),
            hostname: "edge".to_owned(),
            port: 10250,
            declared: vec!["Resizes".to_owned()],
            machine: Machine {
                machine_id: "m".into(),
                system_uuid: "s".into(),
                boot_id: "b2".into(),
                architecture: "riscv64".into(),
                kernel: "6.1".into(),
                os_image: "Debian".into(),
                swap: 0,
            },
            capacity: amounts(&[("cpu", "2"), ("memory", "1024Ki"), ("hugepages-2Mi", "0")]),
            allocatable: amounts(&[("cpu", "1500m"), ("memory", "512Ki"), ("hugepages-2Mi", "0")]),
            ..NodeSettings::default()
        }
    }

    fn findings() -> Findings {
        let condition = |type_: &str| RuntimeCondition { type_: type_.to_owned(), status: true, ..Default::default() };
        let mut runtime = RuntimeSeen::default();
        runtime.take(
            RuntimeStatus {
                conditions: vec![condition("RuntimeReady"), condition("NetworkReady")],
                ..Default::default()
            },
            Now::default().mono,
        );
        runtime.version =
            Some(RuntimeVersion { name: "cri-o".into(), version: "1.36".into(), api_version: "v1".into() });
        let ip = "10.0.0.5".parse().unwrap();
        let network = HostNetwork { own: vec![ip], outgoing: vec![ip], named: vec![] };
        Findings { network, runtime, ..Findings::default() }
    }

    #[test]
    fn a_new_node_tells_everything_at_once() {
        let told = tell(&settings(), &registration::initial(&settings()), &findings(), Now::default());
        let status = serde_json::to_value(told.node.status.unwrap()).unwrap();
        let mut expect = json!({
            "addresses": [{"type": "InternalIP", "address": "10.0.0.5"}, {"type": "Hostname", "address": "edge"}],
            "allocatable": {"cpu": "1500m", "hugepages-2Mi": "0", "memory": "512Ki"},
            "capacity": {"cpu": "2", "hugepages-2Mi": "0", "memory": "1024Ki"},
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "declaredFeatures": ["Resizes"],
            "nodeInfo": {
                "architecture": "riscv64", "bootID": "b2", "containerRuntimeVersion": "cri-o://1.36",
                "kernelVersion": "6.1", "kubeProxyVersion": "", "kubeletVersion": kubelet_version(), "machineID": "m",
                "operatingSystem": "linux", "osImage": "Debian", "systemUUID": "s",
            },
        });
        expect["conditions"] = status["conditions"].clone();
        assert_eq!(status, expect);
        assert_eq!(status["conditions"][3]["status"], "True");
        assert_eq!((told.address_error, told.rebooted_from), (None, None));
    }

    #[test]
    fn what_others_wrote_stays() {
        let present: Node = serde_json::from_value(json!({
            "metadata": {"name": "n1", "labels": {"a": "b"}},
            "status": {
                "capacity": {"cpu": "2000m", "example.com/gpu": "4", "hugepages-1Gi": "1Gi"},
                "conditions": [{"type": "NetworkUnavailable", "status": "False"}],
                "nodeInfo": {
                    "architecture": "", "bootID": "b1", "containerRuntimeVersion": "", "kernelVersion": "",
                    "kubeProxyVersion": "v1.2.3", "kubeletVersion": "", "machineID": "", "operatingSystem": "",
                    "osImage": "", "systemUUID": "",
                },
                "volumesAttached": [{"name": "v", "devicePath": "/dev/x"}],
                "declaredFeatures": ["Something"],
            },
        }))
        .unwrap();
        let mut findings = findings();
        findings.network = HostNetwork::default();
        findings.trouble = vec!["PLEG is not healthy".to_owned()];
        let told = tell(&settings(), &present, &findings, Now::default());
        let node = serde_json::to_value(&told.node).unwrap();
        let capacity = json!({"cpu": "2000m", "example.com/gpu": "4", "hugepages-2Mi": "0", "memory": "1024Ki"});
        assert_eq!(node["status"]["capacity"], capacity);
        assert_eq!(node["status"]["conditions"][0]["type"], "NetworkUnavailable");
        assert_eq!(node["status"]["conditions"][4]["message"], "PLEG is not healthy");
        assert_eq!(node["status"]["volumesAttached"][0]["name"], "v");
        assert_eq!(node["status"]["declaredFeatures"], json!(["Resizes"]), "what another agent did is not declared");
        assert_eq!(node["status"]["nodeInfo"]["kubeProxyVersion"], "");
        assert_eq!(node["metadata"]["labels"]["a"], "b");
        assert_eq!(node["metadata"]["labels"]["kubernetes.io/arch"], "riscv64");
        assert_eq!((told.address_error, told.rebooted_from.as_deref()), (Some(AddressError::None), Some("b1")));
    }
}

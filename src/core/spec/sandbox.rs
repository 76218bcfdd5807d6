//! The sandbox of a pod.
//!
//! Layer L1, pure. It gathers what the other files of this folder decide.

use std::collections::BTreeSet;

use crate::api::pod;
use crate::api::runtime::{PortMapping, Protocol, SandboxSpec};
use crate::api::v1::{Container, ContainerPort, Pod};
use crate::core::qos;
use crate::util::order::Gather;

use super::admission::sysctl_name;
use super::{NodeFacts, SandboxInputs, SpecError, SpecWarning, dns, hostname, marks, resources, security};

/// What the runtime is asked for to make the pod's sandbox, and what its owner should hear. An error
/// means the reason [`SANDBOX_CONFIG_ERROR`](super::SANDBOX_CONFIG_ERROR).
pub fn sandbox_spec(
    pod: &Pod,
    facts: &NodeFacts,
    inputs: &SandboxInputs<'_>,
) -> Result<(SandboxSpec, Vec<SpecWarning>), SpecError> {
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let (dns, warnings) = dns::pod_dns(pod, facts, inputs.resolv_conf)?;
    let hostname = if pod::is_host_network(pod) {
        String::new()
    } else {
        let (hostname, domain) = hostname::pod_hostname(pod, &facts.cluster_domain)?;
        hostname::kernel_hostname(pod, hostname, &domain)?
    };
    let sysctls = pod::spec(pod).and_then(|s| s.security_context.as_ref()).and_then(|c| c.sysctls.as_deref());
    let spec = SandboxSpec {
        name: pod::name(pod).to_owned(),
        namespace: pod::namespace(pod).to_owned(),
        attempt: inputs.attempt,
        hostname,
        log_directory: facts.pod_log_dir(pod::namespace(pod), pod::name(pod), &uid),
        dns: Some(dns),
        port_mappings: port_mappings(pod)?,
        labels: marks::sandbox_labels(pod),
        annotations: pod.metadata.annotations.clone().unwrap_or_default(),
        cgroup_parent: qos::pod_cgroup_parent(pod, &facts.cgroup),
        sysctls: sysctls.unwrap_or_default().iter().map(|s| (sysctl_name(&s.name), s.value.clone())).gather(),
        security: security::sandbox_security(pod, facts, inputs.runtime_handler, inputs.user_namespace)?,
        overhead: resources::overhead_resources(pod, facts),
        resources: resources::sandbox_resources(pod, facts),
        runtime_handler: inputs.runtime_handler.to_owned(),
        uid,
    };
    Ok((spec, warnings))
}

/// Host ports of app containers and of sidecars, which serve as they do. A name or an equal mapping
/// counts once per container.
fn port_mappings(pod: &Pod) -> Result<Vec<PortMapping>, SpecError> {
    let sidecars = pod::init_containers(pod).iter().filter(|c| pod::is_sidecar(c));
    let mut mappings = Vec::new();
    for container in pod::app_containers(pod).iter().chain(sidecars) {
        container_ports(container, &mut mappings)?;
    }
    Ok(mappings)
}

fn container_ports(container: &Container, mappings: &mut Vec<PortMapping>) -> Result<(), SpecError> {
    let mut names = BTreeSet::new();
    let mut seen = Vec::new();
    for port in container.ports.iter().flatten() {
        let mapping = PortMapping {
            protocol: protocol(port)?,
            container_port: port.container_port,
            host_port: port.host_port.unwrap_or(0),
            host_ip: port.host_ip.clone().unwrap_or_default(),
        };
        let is_new = match port.name.as_deref().filter(|n| !n.is_empty()) {
            Some(name) => names.insert(name.to_owned()),
            None => !seen.contains(&mapping),
        };
        if is_new {
            seen.push(mapping.clone());
            mappings.push(mapping);
        }
    }
    Ok(())
}

fn protocol(port: &ContainerPort) -> Result<Protocol, SpecError> {
    match port.protocol.as_deref() {
        None | Some("" | "TCP") => Ok(Protocol::Tcp),
        Some("UDP") => Ok(Protocol::Udp),
        Some("SCTP") => Ok(Protocol::Sctp),
        Some(other) => Err(SpecError::UnknownValue {
            field: "ports[].protocol",
            value: other.to_owned(),
            expected: "TCP, UDP or SCTP",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn host_ports_of_apps_and_sidecars() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {
            "initContainers": [
                {"name": "i", "ports": [{"containerPort": 1, "hostPort": 1}]},
                {"name": "s", "restartPolicy": "Always", "ports": [{"containerPort": 2, "hostPort": 3, "protocol": "SCTP"}]},
            ],
            "containers": [{"name": "c", "ports": [
                {"name": "dns", "containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIP": "::1"},
                {"name": "dns", "containerPort": 54},
                {"containerPort": 80, "hostPort": 8080}, {"containerPort": 80, "hostPort": 8080},
                {"containerPort": 80, "hostPort": 8081},
            ]}],
        }}))
        .expect("a pod");
        let got = port_mappings(&pod).expect("mappings");
        let got: Vec<_> = got.iter().map(|m| (m.protocol, m.container_port, m.host_port, m.host_ip.as_str())).collect();
        let expect = [
            (Protocol::Udp, 53, 53, "::1"),
            (Protocol::Tcp, 80, 8080, ""),
            (Protocol::Tcp, 80, 8081, ""),
            (Protocol::Sctp, 2, 3, ""),
        ];
        assert_eq!(got, expect);
    }

    #[test]
    fn sysctls_are_told_with_dots() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {
            "containers": [], "securityContext": {"sysctls": [{"name": "net/ipv4/conf/eno2.1/x", "value": "1"}]},
        }}))
        .expect("a pod");
        let (spec, warnings) = sandbox_spec(&pod, &NodeFacts::default(), &SandboxInputs::default()).expect("a sandbox");
        assert_eq!(
            spec.sysctls.into_iter().collect::<Vec<_>>(),
            [("net.ipv4.conf.eno2/1.x".to_owned(), "1".to_owned())]
        );
        assert_eq!(warnings.iter().map(|w| w.reason).collect::<Vec<_>>(), ["MissingClusterDNS"]);
    }

    #[test]
    fn a_bad_hostname_stops_a_pod_but_not_one_with_host_networking() {
        for (host_network, good) in [(false, false), (true, true)] {
            let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {
                "containers": [], "hostname": "Not_A_Label", "hostNetwork": host_network,
            }}))
            .expect("a pod");
            let got = sandbox_spec(&pod, &NodeFacts::default(), &SandboxInputs::default());
            assert_eq!(got.is_ok(), good, "{got:?}");
        }
    }
}

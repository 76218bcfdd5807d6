//! The variables that tell a pod where the services of its namespace are.
//!
//! Layer L1, pure. What is kept of a service is [`ServiceFacts`], since a cluster may have many and the
//! rest of them is of no use on a node.

use crate::api::v1::Service;
use crate::util::order;

/// What a node has to know of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceFacts {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// `spec.clusterIP`, an address.
    pub cluster_ip: String,
    /// Ports in their order.
    pub ports: Vec<ServicePort>,
}

/// One port of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Its name; empty for none.
    pub name: String,
    /// TCP, UDP or SCTP.
    pub protocol: String,
    /// Number.
    pub port: i32,
}

impl ServiceFacts {
    /// `None` for a service that pods are not told of: one without an address or a port.
    pub fn of(service: &Service) -> Option<Self> {
        let spec = service.spec.as_ref()?;
        let cluster_ip = spec.cluster_ip.as_deref().filter(|ip| !ip.is_empty() && *ip != "None")?;
        let port = |port: &crate::api::v1::ServicePort| ServicePort {
            name: port.name.clone().unwrap_or_default(),
            protocol: port.protocol.clone().filter(|p| !p.is_empty()).unwrap_or_else(|| "TCP".to_owned()),
            port: port.port,
        };
        let ports: Vec<ServicePort> = spec.ports.iter().flatten().map(port).collect();
        (!ports.is_empty()).then(|| Self {
            namespace: service.metadata.namespace.clone().unwrap_or_default(),
            name: service.metadata.name.clone().unwrap_or_default(),
            cluster_ip: cluster_ip.to_owned(),
            ports,
        })
    }

    /// Whether a pod of `namespace` sees it. Every pod sees the API server's own.
    fn is_seen_from(&self, namespace: &str, links: bool) -> bool {
        let is_master = self.namespace == "default" && self.name == "kubernetes";
        is_master || (links && self.namespace == namespace)
    }
}

/// The variables for a pod of `namespace`; `links` is its `enableServiceLinks`. In the order of the
/// services' names, so that two containers get the same.
pub fn variables<'a>(
    services: impl IntoIterator<Item = &'a ServiceFacts>,
    namespace: &str,
    links: bool,
) -> Vec<(String, String)> {
    let mut seen: Vec<&ServiceFacts> = services.into_iter().filter(|s| s.is_seen_from(namespace, links)).collect();
    // The API server's own goes before one of the same name in the pod's namespace, as upstream's does by chance.
    order::sort_by_key(&mut seen, |service| (&service.name, service.namespace == namespace));
    let mut all = Vec::new();
    for service in seen {
        of_service(service, &mut all);
    }
    all
}

fn of_service(service: &ServiceFacts, all: &mut Vec<(String, String)>) {
    let prefix = variable_name(&service.name);
    let ip = &service.cluster_ip;
    all.push((format!("{prefix}_SERVICE_HOST"), ip.clone()));
    let Some(first) = service.ports.first() else { return };
    all.push((format!("{prefix}_SERVICE_PORT"), first.port.to_string()));
    for port in service.ports.iter().filter(|port| !port.name.is_empty()) {
        all.push((format!("{prefix}_SERVICE_PORT_{}", variable_name(&port.name)), port.port.to_string()));
    }
    // As Docker's links had it.
    let host = if ip.contains(':') { format!("[{ip}]") } else { ip.clone() };
    for (index, port) in service.ports.iter().enumerate() {
        let protocol = port.protocol.to_lowercase();
        let url = format!("{protocol}://{host}:{}", port.port);
        if index == 0 {
            all.push((format!("{prefix}_PORT"), url.clone()));
        }
        let port_prefix = format!("{prefix}_PORT_{}_{}", port.port, port.protocol.to_uppercase());
        all.push((port_prefix.clone(), url));
        all.push((format!("{port_prefix}_PROTO"), protocol));
        all.push((format!("{port_prefix}_PORT"), port.port.to_string()));
        all.push((format!("{port_prefix}_ADDR"), ip.clone()));
    }
}

fn variable_name(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn service(namespace: &str, name: &str, spec: Value) -> Service {
        serde_json::from_value(json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec}))
            .expect("a service")
    }

    fn check(namespace: &str, links: bool, expect: &[&str]) {
        let https = json!([{"name": "https", "port": 443, "protocol": "TCP"}]);
        let all = [
            service("default", "kubernetes", json!({"clusterIP": "10.0.0.1", "ports": https})),
            service(
                "ns",
                "my-db",
                json!({"clusterIP": "fd00::1", "ports": [{"port": 5}, {"name": "a-b", "port": 6, "protocol": "UDP"}]}),
            ),
            service("ns", "headless", json!({"clusterIP": "None", "ports": https})),
            service("ns", "pending", json!({"ports": https})),
            service("ns", "portless", json!({"clusterIP": "10.0.0.9"})),
            service("default", "web", json!({"clusterIP": "10.0.0.2", "ports": [{"port": 80}]})),
        ];
        let facts: Vec<ServiceFacts> = all.iter().filter_map(ServiceFacts::of).collect();
        let got: Vec<String> =
            variables(&facts, namespace, links).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(got, expect, "{namespace} {links}");
    }

    const KUBERNETES: [&str; 8] = [
        "KUBERNETES_SERVICE_HOST=10.0.0.1",
        "KUBERNETES_SERVICE_PORT=443",
        "KUBERNETES_SERVICE_PORT_HTTPS=443",
        "KUBERNETES_PORT=tcp://10.0.0.1:443",
        "KUBERNETES_PORT_443_TCP=tcp://10.0.0.1:443",
        "KUBERNETES_PORT_443_TCP_PROTO=tcp",
        "KUBERNETES_PORT_443_TCP_PORT=443",
        "KUBERNETES_PORT_443_TCP_ADDR=10.0.0.1",
    ];

    #[test]
    fn a_pod_sees_its_namespace_and_the_api_server() {
        check("other", true, &KUBERNETES);
        check("ns", false, &KUBERNETES);
        let db = [
            "MY_DB_SERVICE_HOST=fd00::1",
            "MY_DB_SERVICE_PORT=5",
            "MY_DB_SERVICE_PORT_A_B=6",
            "MY_DB_PORT=tcp://[fd00::1]:5",
            "MY_DB_PORT_5_TCP=tcp://[fd00::1]:5",
            "MY_DB_PORT_5_TCP_PROTO=tcp",
            "MY_DB_PORT_5_TCP_PORT=5",
            "MY_DB_PORT_5_TCP_ADDR=fd00::1",
            "MY_DB_PORT_6_UDP=udp://[fd00::1]:6",
            "MY_DB_PORT_6_UDP_PROTO=udp",
            "MY_DB_PORT_6_UDP_PORT=6",
            "MY_DB_PORT_6_UDP_ADDR=fd00::1",
        ];
        check("ns", true, &[&KUBERNETES[..], &db[..]].concat());
    }
}

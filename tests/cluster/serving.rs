//! The serving certificate of a node in a real control plane: asked for, approved by hand, signed, kept.

use std::fs;

use ferrolet::kube::certificate;
use serde_json::Value;

use super::lab::{Ground, SOON};
use crate::harness::{Cluster, wait};

const SIGNER: &str = "kubernetes.io/kubelet-serving";

#[test]
fn a_node_gets_a_certificate_to_serve_with_for_its_addresses() {
    let cluster = Cluster::shared();
    let ground = Ground::new(cluster);
    let folder = tempfile::tempdir().expect("a folder");
    let flag = format!("--cert-dir={}", folder.path().display());
    let agent = ground.join(&[&flag], |config| config["serverTLSBootstrap"] = true.into());
    let user = format!("system:node:{}", ground.name);
    let request = wait::until("a request", SOON, || {
        let all = cluster.get(&["csr"])?;
        let mut all = all["items"].as_array().into_iter().flatten();
        let own = all.find(|csr| csr["spec"]["signerName"] == SIGNER && csr["spec"]["username"] == user.as_str());
        own.cloned().ok_or_else(|| "no such request".to_owned())
    });
    assert_eq!(request["spec"]["usages"], serde_json::json!(["digital signature", "server auth"]));
    let current = folder.path().join("kubelet-server-current.pem");
    assert!(!current.exists(), "nobody has approved it");
    let name = request["metadata"]["name"].as_str().expect("a name");
    cluster.kubectl(&["certificate", "approve", name]).expect("approved");
    let pem = wait::until("the certificate", SOON, || fs::read(&current).map_err(|error| error.to_string()));

    let object = ground.wait_ready();
    let addresses = object["status"]["addresses"].as_array().expect("addresses");
    let of = |types: &[&str]| -> Vec<String> {
        let fit = addresses.iter().filter(|address| types.iter().any(|type_| address["type"] == *type_));
        fit.filter_map(|address| address["address"].as_str().map(str::to_owned)).collect()
    };
    let ips: Vec<_> = of(&["InternalIP"]).iter().map(|ip| ip.parse().expect("an address")).collect();
    assert!(!ips.is_empty() && certificate::covers(&pem, &of(&["Hostname"]), &ips), "{addresses:?}");
    certificate::check_pair(&pem, &pem).expect("certificate and key in one file");

    // A restart has nothing to ask for.
    agent.kill();
    let agent = ground.join(&[&flag], |config| config["serverTLSBootstrap"] = true.into());
    ground.wait_renewals(2);
    let requests = cluster.get(&["csr"]).expect("requests");
    let own = |csr: &&Value| csr["spec"]["username"] == user.as_str();
    assert_eq!(requests["items"].as_array().into_iter().flatten().filter(own).count(), 1);
    drop(agent);
}

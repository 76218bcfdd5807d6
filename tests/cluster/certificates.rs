//! Nodes that join a real control plane with a token, as kubeadm's do: request, approval, certificate, its renewals while
//! pods run, and an API server that is away until the certificate has expired.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ferrolet::kube::certificate;
use serde_json::Value;

use super::endings::{RUNS, is_ready, pod, shell};
use super::lab::{Ground, SOON};
use crate::harness::{Agent, Cluster, Containerd, Node, wait};

/// The certificates of the test live for a minute: they are renewed after some fifty seconds.
const SHORT_LIVES: (&str, &str) = ("EXTRA_KCM", "--cluster-signing-duration=60s");

/// A node that has nothing but a token.
fn ground(cluster: &Cluster, kubeconfig: impl FnOnce(&Node) -> PathBuf) -> Ground<'_> {
    let node = Node::start(Containerd::Two);
    let kubeconfig = kubeconfig(&node);
    let ground = Ground { cluster, node, name: cluster.node_name(), kubeconfig };
    cluster.namespace(&ground.name);
    ground
}

fn join<'ground>(ground: &'ground Ground<'_>, bootstrap: Option<&Path>) -> Agent<'ground> {
    let folder = format!("--cert-dir={}", ground.node.path("pki").display());
    let bootstrap = bootstrap.map(|path| format!("--bootstrap-kubeconfig={}", path.display()));
    let flags: Vec<&str> = [Some(folder.as_str()), bootstrap.as_deref()].into_iter().flatten().collect();
    ground.join(&flags, |config| config["rotateCertificates"] = true.into())
}

/// The certificate in use: its file and its end in seconds since 1970.
fn current(ground: &Ground<'_>) -> Result<(PathBuf, i64), String> {
    let link = ground.node.path("pki/kubelet-client-current.pem");
    let pem = fs::read(&link).map_err(|error| error.to_string())?;
    let target = fs::read_link(&link).map_err(|error| error.to_string())?;
    Ok((target, certificate::validity(&pem)?.1))
}

#[track_caller]
fn wait_renewed(ground: &Ground<'_>, old: &Path) -> PathBuf {
    wait::until("a renewed certificate", 3 * SOON, || match current(ground)? {
        (target, _) if target != old => Ok(target),
        (target, end) => Err(format!("still {} until {end}", target.display())),
    })
}

/// Waits until the certificate in use is of no use any more.
#[track_caller]
fn wait_expired(ground: &Ground<'_>) {
    wait::until("the end of the certificate", 3 * SOON, || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed());
        match current(ground)? {
            (_, end) if end + 1 < now => Ok(()),
            (_, end) => Err(format!("{} s left", end - now)),
        }
    });
}

/// Id and restarts of the pod's container.
fn life(pod: &Value) -> (Value, Value) {
    let container = &pod["status"]["containerStatuses"][0];
    (container["containerID"].clone(), container["restartCount"].clone())
}

#[test]
fn a_node_joins_with_a_token_and_its_short_lived_certificates_are_renewed_while_pods_run() {
    let cluster = Cluster::start(&[SHORT_LIVES]);
    let bootstrap = cluster.bootstrap_kubeconfig();
    let ground = ground(&cluster, |node| node.path("kubelet.kubeconfig"));
    let agent = join(&ground, Some(&bootstrap));
    let object = ground.wait_ready();
    let written = fs::read_to_string(&ground.kubeconfig).expect("a kubeconfig was written");
    let link = ground.node.path("pki/kubelet-client-current.pem").display().to_string();
    assert_eq!(written.matches(&link).count(), 2, "certificate and key: {written}");
    assert!(!written.contains("0123456789abcdef"), "no token in {written}");

    cluster.apply(&pod(&ground.name, "stays", &ground.name, &[shell("c", RUNS)]));
    let pod = || cluster.get(&["-n", &ground.name, "pod", "stays"]);
    let wait_pod = || {
        wait::until("the pod", SOON, || {
            let pod = pod()?;
            if is_ready(&pod) { Ok(pod) } else { Err(format!("{:#}", pod["status"])) }
        })
    };
    let before = life(&wait_pod());

    let (mut target, _) = current(&ground).expect("a certificate");
    for _ in 0..2 {
        target = wait_renewed(&ground, &target);
        ground.wait_renewals(1);
    }
    let requests = cluster.get(&["csr"]).expect("requests");
    let user = format!("system:node:{}", ground.name);
    let by = |name: &dyn Fn(&str) -> bool| {
        let all = requests["items"].as_array().into_iter().flatten();
        all.filter(|csr| csr["spec"]["username"].as_str().is_some_and(name)).count()
    };
    assert!(by(&|name| name.starts_with("system:bootstrap:")) >= 1 && by(&|name| name == user) >= 2, "{requests:#}");

    // Away until the certificate is of no use any more: the token is still good, and has the node in again.
    cluster.kill("kube-apiserver");
    wait_expired(&ground);
    assert_eq!(agent.healthz().expect("an answer").0, 200);
    let expired = current(&ground).expect("the old one").0;
    cluster.start_again();
    wait_renewed(&ground, &expired);
    ground.wait_renewals(1);
    let after = ground.wait_ready();
    assert_eq!(after["metadata"]["uid"], object["metadata"]["uid"]);
    assert_eq!(life(&wait_pod()), before, "nothing happened to the pod");

    // And with an agent that starts with an expired one.
    agent.kill();
    wait_expired(&ground);
    let expired = current(&ground).expect("the old one").0;
    let agent = join(&ground, Some(&bootstrap));
    wait_renewed(&ground, &expired);
    ground.wait_renewals(1);
    assert_eq!(life(&wait_pod()), before, "nothing happened to the pod");
    drop(agent);
}

#[test]
fn a_kubeconfig_with_a_token_asks_for_the_certificate_that_the_node_is_known_by() {
    let cluster = Cluster::shared();
    let ground = ground(cluster, |_| cluster.bootstrap_kubeconfig());
    let told = fs::read(&ground.kubeconfig).expect("the kubeconfig");
    let agent = join(&ground, None);
    // The token itself may not so much as read a node.
    ground.wait_ready();
    let (_, end) = current(&ground).expect("a certificate");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970") + Duration::from_secs(3600);
    assert!(end > now.as_secs().cast_signed(), "{end}");
    assert_eq!(fs::read(&ground.kubeconfig).expect("the kubeconfig"), told, "it stays as it is");
    // The next one needs no token.
    agent.kill();
    let agent = join(&ground, None);
    ground.wait_renewals(1);
    let requests = cluster.get(&["csr"]).expect("requests");
    let subject = |csr: &&Value| csr["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("node-csr-"));
    let own = requests["items"].as_array().into_iter().flatten().filter(subject);
    let bootstrap =
        own.filter(|csr| csr["spec"]["username"].as_str().is_some_and(|n| n.starts_with("system:bootstrap:")));
    assert_eq!(bootstrap.count(), 1, "{requests:#}");
    drop(agent);
}

//! Callers of the node's server in a real control plane: who is let in, by what they show, and what they may.
//!
//! Each test is used from its own thread; the one that takes the API server away has a control plane of its own.

use std::{fs, net::UdpSocket};

use serde_json::{Value, json};

use super::lab::{Ground, SOON};
use crate::{
    agent::node_server::client::{Answer, Client, config},
    fakes::api_tls::{Authority, Pair},
    harness::{Agent, Cluster, config::free_port, wait},
};

const YEAR: i64 = 365 * 24 * 3600;

/// The cluster's own authority.
fn authority(cluster: &Cluster) -> Authority {
    let read = |name: &str| fs::read_to_string(cluster.path("pki").join(name)).expect("the control plane's files");
    Authority::known("ca", &read("ca.crt"), &read("ca.key"))
}

/// The address by which others reach this machine.
fn address() -> String {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    // Nothing is sent: it only asks for the way.
    socket.connect("192.0.2.1:9").expect("a way out");
    socket.local_addr().expect("an address").ip().to_string()
}

/// A node with a server that this cluster's authority has signed a certificate for.
fn serving<'a>(ground: &'a Ground<'_>, port: u16) -> Agent<'a> {
    let ip = address();
    let pair = authority(ground.cluster).pair("node", &[&ip, "localhost", &ground.name]);
    let (certificate, key) = (ground.node.path("tls.crt"), ground.node.path("tls.key"));
    fs::write(&certificate, pair.certificate).expect("written");
    fs::write(&key, pair.key).expect("written");
    let agent = ground.join(&[&format!("--node-ip={ip}")], |config| {
        config["enableServer"] = json!(true);
        config["port"] = json!(port);
        config["authentication"] = json!({ "x509": { "clientCAFile": ground.cluster.path("pki/ca.crt") } });
        config["tlsCertFile"] = json!(certificate);
        config["tlsPrivateKeyFile"] = json!(key);
    });
    ground.wait_ready();
    agent
}

/// What somebody gets who shows this certificate and token.
pub(super) fn ask(port: u16, line: &str, shows: Option<&Pair>, token: &str) -> Answer {
    let shows = shows.map(|pair| (pair.certificate.as_str(), pair.key.as_str()));
    let mut client = Client::connect_as(port, config(shows, rustls::ALL_VERSIONS)).expect("TLS whatever is shown");
    let header = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    client.ask(line, &header)
}

/// A service account's token; it may `get` these subresources of nodes.
fn account(cluster: &Cluster, namespace: &str, name: &str, subresources: &[&str]) -> String {
    cluster.apply(&json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": namespace },
    }));
    if !subresources.is_empty() {
        let full = format!("{namespace}-{name}");
        cluster.apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": full },
            "rules": [{ "apiGroups": [""], "resources": subresources, "verbs": ["get"] }],
        }));
        cluster.apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": full },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": full },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": namespace }],
        }));
    }
    cluster.kubectl(&["-n", namespace, "create", "token", name]).expect("a token").trim().to_owned()
}

pub(super) fn admin(cluster: &Cluster) -> Pair {
    let read = |name: &str| fs::read_to_string(cluster.path("pki").join(name)).expect("the control plane's files");
    Pair { certificate: read("admin.crt"), key: read("admin.key") }
}

#[test]
fn callers_are_known_by_what_they_show_and_get_what_they_may() {
    let cluster = Cluster::shared();
    let ground = Ground::with_namespace(cluster);
    let port = free_port();
    let _agent = serving(&ground, port);

    // Through the API server, which shows a certificate of its own and verifies ours.
    let object = ground.object().expect("a node");
    assert_eq!(object["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"], json!(port));
    let raw = |path: &str| cluster.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{}/proxy{path}", ground.name)]);
    let pods: Value = serde_json::from_str(&raw("/pods").expect("the pods")).expect("JSON");
    assert_eq!(pods["kind"], "PodList");
    assert_eq!(raw("/healthz").as_deref(), Ok("ok"));
    let configuration: Value = serde_json::from_str(&raw("/configz").expect("the configuration")).expect("JSON");
    assert_eq!(configuration["kubeletconfig"]["port"], json!(port));

    let own = authority(cluster);
    let stranger = own.pair("stranger", &[]);
    let unknown = Authority::new("another").pair("admin", &[]);
    let forged = Authority::new("ca").pair("admin", &[]);
    let expired = Pair { certificate: own.sign(&stranger.key, "admin", YEAR, 2 * YEAR), ..stranger.clone() };
    let admin = admin(cluster);
    let reader = account(cluster, &ground.name, "reader", &["nodes/pods", "nodes/metrics"]);
    let proxy = account(cluster, &ground.name, "proxy", &["nodes/proxy"]);
    let nobody = account(cluster, &ground.name, "nobody", &[]);
    let account_name = |name: &str| format!("system:serviceaccount:{}:{name}", ground.name);

    let check = |line: &str, shows: Option<&Pair>, token: &str, status: u16, part: &str| {
        let answer = ask(port, line, shows, token);
        assert!(answer.status == status && answer.body.contains(part), "{line} {token}: {answer:?}");
    };
    check("GET /pods", None, "", 401, "Unauthorized");
    check("GET /pods", None, "made-up", 401, "Unauthorized");
    check("GET /pods", Some(&unknown), "", 401, "UnknownIssuer");
    check("GET /pods", Some(&forged), "", 401, "BadSignature");
    check("GET /pods", Some(&expired), "", 401, "expired");
    check("GET /pods", Some(&admin), "", 200, "PodList");
    check(
        "GET /pods",
        Some(&stranger),
        "",
        403,
        "Forbidden (user=stranger, verb=get, resource=nodes, subresource(s)=[pods proxy])\n",
    );
    check("GET /pods", None, &reader, 200, "PodList");
    check("GET /metrics/nothing", None, &reader, 404, "");
    check("GET /configz", None, &reader, 403, &account_name("reader"));
    check("PUT /debug/flags/v", None, &reader, 403, "verb=update, resource=nodes, subresource(s)=[proxy]");
    check("GET /pods", None, &proxy, 200, "PodList");
    check("GET /configz", None, &proxy, 200, "kubeletconfig");
    check("GET /metrics", None, &proxy, 403, "subresource(s)=[metrics]");
    check("POST /exec/a/b/c", None, &proxy, 403, "verb=create");
    check("GET /pods", None, &nobody, 403, &account_name("nobody"));
    // The first credential that counts decides; one that does not count is passed over if another one does.
    check("GET /pods", Some(&stranger), &reader, 403, "user=stranger");
    check("GET /pods", Some(&unknown), &reader, 200, "PodList");
    check("GET /pods", Some(&unknown), "made-up", 401, "UnknownIssuer");
}

#[test]
fn an_api_server_that_is_away_means_no_but_for_what_was_said_before() {
    let cluster = Cluster::start(&[]);
    let ground = Ground::with_namespace(&cluster);
    let port = free_port();
    let agent = serving(&ground, port);
    let reader = account(&cluster, &ground.name, "reader", &["nodes/pods"]);
    let admin = admin(&cluster);
    wait::until("the reader's right", SOON, || match ask(port, "GET /pods", None, &reader) {
        Answer { status: 200, .. } => Ok(()),
        other => Err(format!("{other:?}")),
    });
    cluster.kill("kube-apiserver");
    assert_eq!(ask(port, "GET /pods", None, &reader).status, 200, "both answers are remembered");
    let answer = ask(port, "GET /pods", None, "made-up");
    assert!(answer.status == 401 && answer.body.contains("could not be asked"), "{answer:?}");
    let answer = ask(port, "GET /pods", Some(&admin), "");
    assert!(
        answer.status == 500
            && answer.body.starts_with("Authorization error (user=admin, verb=get, resource=nodes, subresource=pods)"),
        "{answer:?}"
    );
    // Nothing of it is remembered.
    cluster.start_again();
    wait::until("the administrator's right", SOON, || match ask(port, "GET /pods", Some(&admin), "") {
        Answer { status: 200, .. } => Ok(()),
        other => Err(format!("{other:?}")),
    });
    agent.kill();
}

//! The client of the API server against a fake one: who it is, whom it trusts, and what it does when that changes.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use ferrolet::kube::{ApiClient, ApiError, RateLimit, kubeconfig};
use serde_json::{Value, json};

use crate::fakes::api::{ApiFault, FakeApi};
use crate::fakes::api_tls::{Authority, Pair, certificate};

pub(crate) const NO_LIMIT: RateLimit = RateLimit { per_second: -1.0, burst: 1 };

pub(crate) fn client(value: Value, folder: &Path) -> ApiClient {
    let access = kubeconfig::read(value, &folder.join("kubeconfig"), None).expect("a good kubeconfig");
    ApiClient::new(access, "ferrolet/test (linux/amd64)", NO_LIMIT)
}

/// A server with one node that speaks TLS, its authority, and a folder for files.
struct Lab {
    authority: Authority,
    api: FakeApi,
    folder: tempfile::TempDir,
}

const NODE: &str = "/api/v1/nodes/n";

impl Lab {
    fn new() -> Self {
        let authority = Authority::new("the cluster");
        let api = FakeApi::start_tls(authority.server(&authority.pair("api", &["127.0.0.1", "kubernetes"])));
        api.put(NODE, json!({"kind": "Node", "metadata": {"name": "n"}}));
        Self { authority, api, folder: tempfile::tempdir().expect("a folder") }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).expect("written");
    }

    fn write_pair(&self, pair: &Pair) {
        self.write("client.pem", &pair.certificate);
        self.write("client.key", &pair.key);
    }

    fn client(&self, cluster: &Value, user: &Value) -> ApiClient {
        client(self.api.kubeconfig("https", cluster, user), self.folder.path())
    }

    fn trusting(&self, user: &Value) -> ApiClient {
        self.write("ca.pem", &self.authority.pem);
        self.client(&json!({"certificate-authority": "ca.pem"}), user)
    }

    /// The client certificate of the newest request.
    fn shown(&self) -> Option<Vec<u8>> {
        self.api.requests().last().and_then(|request| request.certificate.clone())
    }
}

fn get(client: &ApiClient) -> Result<Value, ApiError> {
    client.get::<Value>(NODE)
}

fn base64(text: &str) -> Value {
    serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec())).expect("text")
}

#[test]
fn a_server_is_trusted_for_its_authority_and_name_only() {
    let lab = Lab::new();
    let stranger = Authority::new("somebody else");
    let own = base64(&lab.authority.pem);
    let user = json!({"token": "t"});
    for (cluster, expect) in [
        (json!({"certificate-authority-data": own}), ""),
        (json!({"certificate-authority-data": own, "tls-server-name": "kubernetes"}), ""),
        (json!({"certificate-authority-data": own, "tls-server-name": "elsewhere"}), "not valid for name"),
        (json!({"certificate-authority-data": base64(&stranger.pem)}), "invalid peer certificate"),
        (json!({"insecure-skip-tls-verify": true}), ""),
        (
            json!({"certificate-authority-data": base64("no certificate")}),
            "no credentials: the certificate authority holds",
        ),
        (json!({"certificate-authority": "missing.pem"}), "no credentials: cannot open"),
    ] {
        let answer = get(&lab.client(&cluster, &user));
        match answer {
            Ok(_) => assert_eq!(expect, "", "{cluster}"),
            Err(error) => assert!(!expect.is_empty() && error.to_string().contains(expect), "{cluster}: {error}"),
        }
    }
    let plain = client(lab.api.kubeconfig("http", &json!({}), &user), lab.folder.path());
    let error = get(&plain).expect_err("it speaks TLS");
    assert!(matches!(error, ApiError::Connection { .. }), "{error}");
}

#[test]
fn a_client_certificate_is_shown_and_changes_in_place() {
    let lab = Lab::new();
    let (first, second) = (lab.authority.pair("node 1", &["n"]), lab.authority.pair("node 2", &["n"]));
    lab.write_pair(&first);
    let client = lab.trusting(&json!({"client-certificate": "client.pem", "client-key": "client.key"}));
    get(&client).expect("there");
    assert_eq!(lab.shown().as_deref(), Some(certificate(&first.certificate).as_ref()));

    // Only one of the two files is new: they do not fit, and the old ones stay in use.
    lab.write("client.pem", &second.certificate);
    client.reload();
    get(&client).expect("there");
    assert_eq!(lab.shown().as_deref(), Some(certificate(&first.certificate).as_ref()));
    lab.write_pair(&second);
    client.reload();
    get(&client).expect("there");
    assert_eq!(lab.shown().as_deref(), Some(certificate(&second.certificate).as_ref()));

    // The files go away: what was read last stays.
    fs::remove_file(lab.folder.path().join("client.key")).expect("removed");
    client.reload();
    get(&client).expect("there");
}

#[test]
fn a_new_authority_is_trusted_once_its_file_says_so() {
    let lab = Lab::new();
    let client = lab.trusting(&json!({"token": "t"}));
    get(&client).expect("there");
    let successor = Authority::new("the cluster, renewed");
    lab.api.set_tls(successor.server(&successor.pair("api", &["127.0.0.1"])));
    lab.api.fail(NODE, ApiFault::Close, 1);
    let error = get(&client).expect_err("not trusted yet");
    assert!(matches!(error, ApiError::Tls { .. }), "{error}");
    lab.write("ca.pem", &successor.pem);
    client.reload();
    get(&client).expect("trusted now");
}

#[test]
fn credentials_that_are_not_there_yet_are_waited_for() {
    let lab = Lab::new();
    let client = lab.trusting(&json!({"client-certificate": "client.pem", "client-key": "client.key"}));
    let error = get(&client).expect_err("no certificate");
    assert!(matches!(&error, ApiError::Credentials { .. }) && error.is_temporary(), "{error}");
    lab.write_pair(&lab.authority.pair("node", &["n"]));
    get(&client).expect("there now");
}

/// The Authorization headers of all requests.
fn authorizations(api: &FakeApi) -> Vec<String> {
    api.requests().iter().map(|request| request.headers.get("authorization").cloned().unwrap_or_default()).collect()
}

#[test]
fn each_kind_of_user_says_who_it_is() {
    let lab = Lab::new();
    lab.write("token", "from-file\n");
    for user in [
        json!({}),
        json!({"token": "inline"}),
        json!({"tokenFile": "token", "token": "not this"}),
        json!({"tokenFile": "missing", "token": "the first"}),
        json!({"username": "u", "password": "p"}),
    ] {
        get(&lab.trusting(&user)).expect("there");
    }
    assert_eq!(authorizations(&lab.api), ["", "Bearer inline", "Bearer from-file", "Bearer the first", "Basic dTpw"]);
    let request = lab.api.requests().pop().expect("one");
    assert_eq!(request.headers["user-agent"], "ferrolet/test (linux/amd64)");
    assert_eq!(
        (request.headers["accept"].as_str(), request.headers["accept-encoding"].as_str()),
        ("application/json", "gzip")
    );
}

#[test]
fn a_token_that_was_refused_is_read_again_at_once() {
    let lab = Lab::new();
    lab.write("token", "old");
    let client = lab.trusting(&json!({"tokenFile": "token"}));
    get(&client).expect("there");
    lab.write("token", "new");
    lab.api.fail(NODE, ApiFault::Status(401, None), 1);
    get(&client).expect("there again");
    lab.api.fail(NODE, ApiFault::Status(401, None), 2);
    let error = get(&client).expect_err("the token did not change");
    assert!(error.is_unauthorized() && error.is_temporary(), "{error}");
    assert_eq!(authorizations(&lab.api), ["Bearer old", "Bearer old", "Bearer new", "Bearer new"]);
}

fn plugin(lab: &Lab, script: &str) -> Value {
    let path = lab.folder.path().join("plugin");
    lab.write("plugin", script);
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
    let env = json!([{"name": "WORD", "value": "hello"}]);
    json!({"exec": {
        "command": "./plugin", "args": ["arg"], "env": env, "provideClusterInfo": true,
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
    }})
}

/// Prints a token with the number of its run.
const COUNTING: &str = r#"#!/bin/sh
cd "$(dirname "$0")"
echo x >> runs
echo "$KUBERNETES_EXEC_INFO" > info
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "'$WORD-$1-$(wc -l < runs)'" EXPIRY}}'
"#;

#[test]
fn a_plugin_runs_once_and_again_when_its_word_is_old_or_refused() {
    let lab = Lab::new();
    let client = lab.trusting(&plugin(&lab, &COUNTING.replace("EXPIRY", "")));
    get(&client).expect("there");
    get(&client.separate()).expect("there");
    lab.api.fail(NODE, ApiFault::Status(401, None), 1);
    get(&client).expect("there");
    let tokens = ["Bearer hello-arg-1", "Bearer hello-arg-1", "Bearer hello-arg-1", "Bearer hello-arg-2"];
    assert_eq!(authorizations(&lab.api), tokens);
    let info: Value = serde_json::from_slice(&fs::read(lab.folder.path().join("info")).expect("told")).expect("JSON");
    assert_eq!(info["spec"]["interactive"], false);
    assert_eq!(info["spec"]["cluster"]["server"], format!("https://{}", lab.api.address()));

    let expired = r#", "expirationTimestamp": "2001-01-01T00:00:00Z""#;
    let client = lab.trusting(&plugin(&lab, &COUNTING.replace("EXPIRY", expired)));
    get(&client).expect("there");
    get(&client).expect("there");
    assert_eq!(authorizations(&lab.api)[4..], ["Bearer hello-arg-3", "Bearer hello-arg-4"]);
}

#[test]
fn a_plugin_that_fails_is_named_and_says_no_secret() {
    let lab = Lab::new();
    for (script, expect) in [
        ("#!/bin/sh\necho 'no such account' >&2; exit 7\n", "plugin failed (exit status: 7): no such account"),
        ("#!/bin/sh\necho 'token: hidden'\n", "plugin: it prints no ExecCredential: not JSON at line 1 column"),
    ] {
        let error = get(&lab.trusting(&plugin(&lab, script))).expect_err("no credentials").to_string();
        assert!(error.contains(expect) && !error.contains("hidden"), "{error}");
    }
    let missing = json!({"exec": {
        "command": "/no/such/program", "apiVersion": "client.authentication.k8s.io/v1beta1", "installHint": "install it",
    }});
    let error = get(&lab.trusting(&missing)).expect_err("no credentials").to_string();
    assert!(error.contains("exec plugin /no/such/program: there is no such program; install it"), "{error}");
}

#[test]
fn calls_share_a_connection_and_a_separate_client_has_its_own() {
    let lab = Lab::new();
    let client = lab.trusting(&json!({"token": "t"}));
    for _ in 0..20 {
        get(&client).expect("there");
    }
    assert_eq!(lab.api.connections(), 1);
    let separate = client.separate();
    get(&separate).expect("there");
    assert_eq!(lab.api.connections(), 2);
}

/// A proxy for one connection; gives what it was asked.
fn proxy(answer: &'static str) -> (String, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let thread = std::thread::spawn(move || {
        let (mut near, _) = listener.accept().expect("a client");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            near.read_exact(&mut byte).expect("a request");
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).expect("text");
        near.write_all(answer.as_bytes()).expect("sent");
        if answer.contains(" 200 ") {
            let target = head.split(' ').nth(1).expect("a target").to_owned();
            let mut far = TcpStream::connect(target).expect("reachable");
            let (mut near_twin, mut far_twin) =
                (near.try_clone().expect("a socket"), far.try_clone().expect("a socket"));
            let back = std::thread::spawn(move || {
                let _broken = std::io::copy(&mut far_twin, &mut near_twin);
            });
            let _broken = std::io::copy(&mut near, &mut far);
            let _closed = far.shutdown(std::net::Shutdown::Both);
            back.join().expect("no panic");
        }
        head
    });
    (address, thread)
}

#[test]
fn a_proxy_is_asked_for_a_tunnel() {
    let lab = Lab::new();
    lab.write("ca.pem", &lab.authority.pem);
    let through = |address: &str| {
        let cluster = json!({"certificate-authority": "ca.pem", "proxy-url": format!("http://u:p@{address}")});
        lab.client(&cluster, &json!({"token": "t"}))
    };
    let (address, served) = proxy("HTTP/1.1 200 Connection established\r\n\r\n");
    let client = through(&address);
    get(&client).expect("there");
    client.shut_down();
    let asked = served.join().expect("no panic");
    let server = lab.api.address();
    assert_eq!(
        asked,
        format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\nProxy-Authorization: Basic dTpw\r\n\r\n")
    );

    let (address, served) = proxy("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
    let error = get(&through(&address)).expect_err("refused").to_string();
    assert!(error.contains("no way through the proxy") && error.contains("407"), "{error}");
    served.join().expect("no panic");
}

#[test]
fn the_limit_of_requests_holds_across_clones() {
    let lab = Lab::new();
    lab.write("ca.pem", &lab.authority.pem);
    let value = lab.api.kubeconfig("https", &json!({"certificate-authority": "ca.pem"}), &json!({"token": "t"}));
    let access = kubeconfig::read(value, &lab.folder.path().join("k"), None).expect("good");
    let client = ApiClient::new(access, "t", RateLimit { per_second: 0.001, burst: 2 });
    get(&client).expect("there");
    get(&client.clone()).expect("there");
    let error = get(&client).expect_err("the third would wait a quarter of an hour");
    assert!(matches!(error, ApiError::Throttled { delay, .. } if delay > Duration::from_secs(500)), "{error}");
    get(&client.separate()).expect("its own limit");
}

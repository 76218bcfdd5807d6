//! The care for the client and the serving certificate, against a fake API server: the first one, its renewal, refusals, bad clocks.
//!
//! The test signs: it takes the key that the agent keeps for a request under way, as no real signer could.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ferrolet::agents::certs::{CertFiles, CertsConfig, CertsHandle, ServingConfig};
use ferrolet::core::certs::ServingNames;
use ferrolet::kube::{ApiClient, RateLimit, certificate, kubeconfig};
use serde_json::{Value, json};

use crate::fakes::api::FakeApi;
use crate::fakes::api_tls::Authority;
use crate::harness::wait::{holds, until};

const LONG: Duration = Duration::from_secs(60);
const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const NODE: &str = "/api/v1/nodes/n";

struct Lab {
    authority: Authority,
    api: FakeApi,
    folder: tempfile::TempDir,
    files: CertFiles,
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_secs()).expect("before the end of time")
}

impl Lab {
    fn new() -> Self {
        let authority = Authority::new("the cluster");
        let api = FakeApi::start_tls(authority.server(&authority.pair("api", &["127.0.0.1"])));
        api.put(NODE, json!({"kind": "Node", "metadata": {"name": "n"}}));
        let folder = tempfile::tempdir().expect("a folder");
        let files = CertFiles::new(&folder.path().join("pki"));
        Self { authority, api, folder, files }
    }

    fn client(&self, is_bootstrap: bool) -> ApiClient {
        let ca = serde_json::to_value(k8s_openapi::ByteString(self.authority.pem.clone().into_bytes())).expect("text");
        let user = if is_bootstrap { json!({"token": "bootstrap"}) } else { json!({}) };
        let value = self.api.kubeconfig("https", &json!({"certificate-authority-data": ca}), &user);
        let access = kubeconfig::read(value, &self.folder.path().join("k"), None).expect("good");
        let current = self.files.current();
        let access = if is_bootstrap { access } else { access.with_client_certificate(&current, &current) };
        ApiClient::new(access, "t", RateLimit { per_second: -1.0, burst: 1 })
    }

    fn start(&self, can_bootstrap: bool) -> (CertsHandle, ApiClient) {
        let client = self.client(false);
        let config = CertsConfig {
            folder: self.files.folder().to_owned(),
            node_name: "n".to_owned(),
            rotate: true,
            client: client.clone(),
            bootstrap: can_bootstrap.then(|| self.client(true)),
        };
        (CertsHandle::start(config).expect("a thread"), client)
    }

    fn key_file(&self) -> PathBuf {
        self.files.folder().join("kubelet-client.key.tmp")
    }

    /// Waits for request number `count` and gives it.
    fn asked(&self, count: usize) -> Value {
        self.api.wait_for(&format!("POST {CSRS}"), count);
        let requests = self.api.requests();
        let mut posts = requests.iter().filter(|request| request.method == "POST");
        serde_json::from_slice(&posts.nth(count - 1).expect("made").body).expect("JSON")
    }

    /// Answers a request with a certificate that is good from and to so many seconds from now.
    fn sign(&self, request: &Value, from: i64, to: i64) {
        let key = fs::read_to_string(self.key_file()).expect("kept");
        let pem = self.authority.sign(&key, "system:node:n", now() + from, now() + to);
        let certificate = serde_json::to_value(k8s_openapi::ByteString(pem.into_bytes())).expect("text");
        self.answer(request, &json!({"certificate": certificate}));
    }

    fn answer(&self, request: &Value, status: &Value) {
        let path = format!("{CSRS}/{}", request["metadata"]["name"].as_str().expect("a name"));
        let mut object = until("the request", LONG, || self.api.object(&path).ok_or_else(|| "not there".to_owned()));
        object["status"] = status.clone();
        self.api.put(&path, object);
    }

    fn wait_for_certificate(&self, not_after: impl Fn(i64) -> bool) {
        until("a certificate", LONG, || match self.files.validity() {
            Some(found) if not_after(found.not_after) => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
}

#[test]
fn a_node_gets_its_certificate_and_renews_it_as_itself() {
    let lab = Lab::new();
    let (certs, client) = lab.start(true);
    let request = lab.asked(1);
    assert_eq!(request["spec"]["signerName"], "kubernetes.io/kube-apiserver-client-kubelet");
    assert_eq!(request["spec"]["usages"], json!(["digital signature", "client auth"]));
    let error = client.get::<Value>(NODE).expect_err("no certificate yet");
    assert!(error.to_string().contains("no credentials: cannot open"), "{error}");

    // Most of its life is over: it is renewed at once, by its owner.
    lab.sign(&request, -3600, 120);
    lab.wait_for_certificate(|not_after| not_after < now() + 300);
    client.get::<Value>(NODE).expect("the node is known now");
    let second = lab.asked(2);
    assert_ne!(second["metadata"]["name"], request["metadata"]["name"], "a new key");
    let posts: Vec<_> = lab.api.requests().into_iter().filter(|request| request.method == "POST").collect();
    let who = |index: usize| (posts[index].headers.get("authorization").cloned(), posts[index].certificate.is_some());
    assert_eq!((who(0), who(1)), ((Some("Bearer bootstrap".to_owned()), false), (None, true)));
    lab.sign(&second, -10, 7200);
    lab.wait_for_certificate(|not_after| not_after > now() + 3600);
    until("the pending key to go", LONG, || if lab.key_file().exists() { Err("there".to_owned()) } else { Ok(()) });
    client.get::<Value>(NODE).expect("with the new one");
    drop(certs);
}

#[test]
fn a_refused_request_is_made_anew_with_another_key_and_a_restart_goes_on_with_the_old_one() {
    let lab = Lab::new();
    let (certs, _client) = lab.start(true);
    let first = lab.asked(1);
    drop(certs);
    let (_certs, _client) = lab.start(true);
    let again = lab.asked(2);
    assert_eq!(again["metadata"]["name"], first["metadata"]["name"], "the same key, the same request");
    lab.answer(
        &again,
        &json!({"conditions": [{"type": "Denied", "status": "True", "reason": "No", "message": "never"}]}),
    );
    let third = lab.asked(3);
    assert_ne!(third["metadata"]["name"], first["metadata"]["name"]);
    lab.sign(&third, -10, 7200);
    lab.wait_for_certificate(|not_after| not_after > now());
}

#[test]
fn without_a_good_certificate_and_a_token_it_waits_for_files() {
    let lab = Lab::new();
    let key = rcgen::KeyPair::generate().expect("a key").serialize_pem();
    for (from, to) in [(-100, -50), (1000, 2000)] {
        let chain = lab.authority.sign(&key, "system:node:n", now() + from, now() + to);
        lab.files.put(chain.as_bytes(), &key).expect("written");
        let (_certs, _client) = lab.start(false);
        holds("nobody is asked", Duration::from_millis(300), || match lab.api.asked() {
            asked if asked.is_empty() => Ok(()),
            asked => Err(format!("{asked:?}")),
        });
    }
    // An expired one and a token: the bootstrap.
    let chain = lab.authority.sign(&key, "system:node:n", now() - 100, now() - 50);
    lab.files.put(chain.as_bytes(), &key).expect("written");
    let (_certs, _client) = lab.start(true);
    let request = lab.asked(1);
    lab.sign(&request, -10, 7200);
    lab.wait_for_certificate(|not_after| not_after > now());
}

#[test]
fn a_serving_certificate_is_asked_for_when_addresses_are_known_and_anew_when_they_change() {
    let lab = Lab::new();
    let names: Arc<Mutex<Option<ServingNames>>> = Arc::default();
    let names_of = |ips: &[&str]| {
        let ips = ips.iter().map(|ip| ip.parse().expect("an address")).collect();
        Some(ServingNames { dns: vec!["n".to_owned()], ips })
    };
    let told = Arc::clone(&names);
    let config = ServingConfig {
        folder: lab.files.folder().to_owned(),
        node_name: "n".to_owned(),
        client: lab.client(true),
        names: Box::new(move || told.lock().expect("whole").clone()),
    };
    let serving = CertsHandle::start_serving(config).expect("a thread");
    holds("nobody is asked", Duration::from_millis(300), || match lab.api.asked() {
        asked if asked.is_empty() => Ok(()),
        asked => Err(format!("{asked:?}")),
    });
    let change = |ips: &[&str]| {
        *names.lock().expect("whole") = names_of(ips);
        let _rung_already = serving.bell().try_send(());
    };
    let files = CertFiles::serving(lab.files.folder());
    let sign = |request: &Value, names: &[&str], from: i64, to: i64| {
        let key = fs::read_to_string(lab.files.folder().join("kubelet-server.key.tmp")).expect("kept");
        let pem = lab.authority.sign_for(&key, "system:node:n", names, now() + from, now() + to);
        let certificate = serde_json::to_value(k8s_openapi::ByteString(pem.into_bytes())).expect("text");
        lab.answer(request, &json!({"certificate": certificate}));
    };
    let wait_for = |ips: &[&str]| {
        let names = names_of(ips).expect("names");
        until("the certificate", LONG, || match fs::read(files.current()) {
            Ok(pem) if certificate::covers(&pem, &names.dns, &names.ips) => Ok(()),
            other => Err(format!("{:?}", other.map(|pem| pem.len()))),
        });
    };

    change(&["10.0.0.1"]);
    let first = lab.asked(1);
    assert_eq!(first["spec"]["signerName"], "kubernetes.io/kubelet-serving");
    assert_eq!(first["spec"]["usages"], json!(["digital signature", "server auth"]));
    // Another address before anybody has answered.
    change(&["10.0.0.2"]);
    let second = lab.asked(2);
    assert_ne!(second["metadata"]["name"], first["metadata"]["name"]);
    sign(&second, &["n", "10.0.0.2"], -10, 7200);
    wait_for(&["10.0.0.2"]);
    let target = fs::read_link(files.current()).expect("a symlink");
    assert!(target.file_name().is_some_and(|name| name.to_string_lossy().starts_with("kubelet-server-2")));
    // One more, with a certificate that counts.
    change(&["10.0.0.2", "fd00::2"]);
    // It is renewed late in its life as any other.
    sign(&lab.asked(3), &["n", "10.0.0.2", "fd00::2"], -3600, 120);
    wait_for(&["10.0.0.2", "fd00::2"]);
    sign(&lab.asked(4), &["n", "10.0.0.2", "fd00::2"], -10, 7200);
    until("the renewed one", LONG, || match files.validity() {
        Some(found) if found.not_after > now() + 3600 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert!(!lab.files.current().exists(), "the client's certificate is another");
}

//! Kubeconfigs and what is read from them.

use super::*;
use serde_json::json;

fn whole(cluster: Value, user: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "other", "cluster": {"server": "https://o"}}, {"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    })
}

fn check(value: Value, expect: &str) {
    let got = match read(value, Path::new("/etc/k/kubelet.conf"), None) {
        Ok(access) => format!("{access:?}"),
        Err(error) => error.to_string(),
    };
    let got = got.strip_prefix("/etc/k/kubelet.conf: ").unwrap_or(&got);
    assert!(got.contains(expect), "{got}\n  does not say\n{expect}");
}

#[test]
fn a_kubeconfig_of_each_kind() {
    let server = json!({"server": "https://10.0.0.1:6443/prefix/"});
    check(
        whole(server.clone(), json!({})),
        r#"origin: "https://10.0.0.1:6443", host: "10.0.0.1", prefix: "/prefix", is_tls: true"#,
    );
    check(whole(server.clone(), json!({"token": "secret"})), "auth: token");
    check(whole(server.clone(), json!({"tokenFile": "token"})), "auth: tokenFile");
    check(whole(server.clone(), json!({"username": "u", "password": "p"})), "auth: basic");
    check(
        whole(server.clone(), json!({"client-certificate": "pki/c.pem", "client-key-data": "aGVsbG8="})),
        "identity: Some((/etc/k/pki/c.pem, 5 bytes inline))",
    );
    check(whole(json!({"server": "https://a", "certificate-authority": "/ca.pem"}), json!({})), "ca: Some(/ca.pem)");
    check(whole(json!({"server": "https://a", "proxy-url": "http://u:p@proxy"}), json!({})), "proxy: Some(proxy:80)");
    let insecure = json!({"server": "https://a", "insecure-skip-tls-verify": true});
    check(whole(insecure, json!({})), "insecure-skip-tls-verify: the API server is not verified");
    check(whole(json!({"server": "127.0.0.1:8080"}), json!({})), "is_tls: false");
    let exec = json!({"exec": {"command": "./give", "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "args": null, "env": null}});
    check(whole(server.clone(), exec), "auth: exec");
}

#[test]
fn every_mistake_is_named_with_its_place() {
    let server = json!({"server": "https://a"});
    let exec = |changes: Value| {
        let mut exec =
            json!({"command": "x", "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"});
        exec.as_object_mut().expect("a map").extend(changes.as_object().expect("a map").clone());
        whole(json!({"server": "https://a"}), json!({"exec": exec}))
    };
    for (value, expect) in [
        (Value::Null, ".: is no kubeconfig"),
        (json!({"kind": "Pod"}), r#"kind: is "Pod", expected Config"#),
        (json!({"clusters": {}}), "clusters: invalid type"),
        (json!({}), "current-context: is not set"),
        (json!({"current-context": "x"}), r#"current-context: there is no context "x" in contexts"#),
        (
            json!({"current-context": "x", "contexts": [{"name": "x"}]}),
            "contexts[0].context.cluster: there is no cluster",
        ),
        (whole(json!({}), json!({})), "clusters[1].cluster.server: is missing"),
        (
            whole(json!({"server": "ftp://a"}), json!({})),
            r#"clusters[1].cluster.server: "ftp://a" must start with https://"#,
        ),
        (whole(json!({"server": "https://u:p@a"}), json!({})), "clusters[1].cluster.server: holds a user name"),
        (
            whole(
                json!({"server": "https://a", "certificate-authority": "a", "certificate-authority-data": "aGVsbG8="}),
                json!({}),
            ),
            "clusters[1].cluster.certificate-authority: stands beside certificate-authority-data",
        ),
        (
            whole(json!({"server": "https://a", "certificate-authority-data": "%%%"}), json!({})),
            "clusters[1].cluster.certificate-authority-data: has the wrong type, or is not base64",
        ),
        (
            whole(
                json!({"server": "https://a", "certificate-authority": "a", "insecure-skip-tls-verify": true}),
                json!({}),
            ),
            "clusters[1].cluster.insecure-skip-tls-verify: stands beside",
        ),
        (whole(json!({"server": "https://a", "tls-server-name": "a b"}), json!({})), "tls-server-name: "),
        (whole(json!({"server": "https://a", "proxy-url": "socks5://p"}), json!({})), "proxy-url: only a proxy"),
        (whole(server.clone(), json!({"token": 12})), "users[0].user.token: has the wrong type"),
        (whole(server.clone(), json!({"client-certificate": "a"})), "users[0].user.client-key: is missing"),
        (whole(server.clone(), json!({"client-key": "a"})), "users[0].user.client-certificate: is missing"),
        (
            whole(server.clone(), json!({"token": "t", "password": "p"})),
            "users[0].user.username: stands beside a token",
        ),
        (whole(server.clone(), json!({"as": "admin"})), "users[0].user.as: a node speaks for itself"),
        (whole(server, json!({"auth-provider": {"name": "x"}})), "users[0].user.auth-provider: was removed"),
        (exec(json!({"command": ""})), "users[0].user.exec.command: is missing"),
        (exec(json!({"apiVersion": "v1"})), r#"users[0].user.exec.apiVersion: is "v1""#),
        (exec(json!({"interactiveMode": "Always"})), "users[0].user.exec.interactiveMode: is Always"),
        (exec(json!({"interactiveMode": null})), "users[0].user.exec.interactiveMode: is missing"),
        (exec(json!({"env": [{"name": "", "value": "v"}]})), "users[0].user.exec.env[0].name: is no name"),
    ] {
        check(value, expect);
    }
}

#[test]
fn nothing_that_can_be_printed_holds_a_secret() {
    let exec =
        json!({"token": "hidden1", "tokenFile": "f", "client-certificate": "c", "client-key-data": "aGlkZGVuMg=="});
    let access =
        read(whole(json!({"server": "https://a", "proxy-url": "http://u:hidden3@p"}), exec), Path::new("k"), None);
    let text = format!("{:?}", access.expect("good"));
    assert!(!text.contains("hidden") && !text.contains("aGlk"), "{text}");
}

#[test]
fn a_named_context_counts_instead_of_the_current_one() {
    let mut value = whole(json!({"server": "https://a"}), json!({}));
    value["contexts"] = json!([{"name": "c"}, {"name": "d", "context": {"cluster": "other", "user": "u"}}]);
    let access = read(value, Path::new("k"), Some("d")).expect("good");
    assert_eq!(access.server(), "https://o");
}

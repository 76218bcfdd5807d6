//! Tests of what a volume's files are: tables, and properties of the projection.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::objects::NoObjects;
use super::super::shelf::Shelf;
use super::*;

fn shelf() -> Shelf {
    let shelf = Shelf::default();
    let text = [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())].into();
    let bytes = [("raw".to_owned(), vec![0, 255])].into();
    shelf.put_data(ObjectKind::ConfigMap, "cm", ObjectData { text, bytes, ..ObjectData::default() });
    shelf.put(ObjectKind::Secret, "s", &[("password", "x"), ("a", "secret")]);
    shelf
}

fn pod(volume: &Value, spec: Value) -> Pod {
    let mut spec = spec;
    spec["volumes"] = json!([volume]);
    spec["serviceAccountName"] = json!("robot");
    if spec["containers"].is_null() {
        spec["containers"] = json!([{ "name": "c" }]);
    }
    serde_json::from_value(json!({ "metadata": { "name": "p", "namespace": "n", "uid": "u" }, "spec": spec })).unwrap()
}

fn collect(shelf: &Shelf, volume: &Value, spec: Value) -> Result<Vec<VolumeFile>, String> {
    let pod = pod(volume, spec);
    let volume = &pod.spec.as_ref().unwrap().volumes.as_ref().unwrap()[0];
    let file = VolumeFile { path: "labels".into(), mode: 0o444, owner: None, bytes: b"app=\"x\"".to_vec() };
    let inputs = PodInputs {
        downward: [
            (("v".to_owned(), 0), Ok(vec![file.clone()])),
            (("v".to_owned(), 1), Ok(vec![VolumeFile { path: "a".into(), ..file }])),
            (("v".to_owned(), 2), Err("fieldRef: no such field".to_owned())),
        ]
        .into(),
        ..PodInputs::default()
    };
    let until = Instant::now() + Duration::from_secs(60);
    Collector { pod: &pod, volume, inputs: &inputs, objects: shelf, until }.files()
}

/// `expect`: lines `path mode[:owner] content`, or the problem.
fn check(volume: Value, spec: Value, expect: Result<&[&str], &str>) {
    let mut volume = volume;
    volume["name"] = json!("v");
    let got = collect(&shelf(), &volume, spec).map(|files| {
        let line = |f: &VolumeFile| {
            let owner = f.owner.map(|o| format!(":{o}")).unwrap_or_default();
            format!("{} {:o}{owner} {}", f.path, f.mode, f.bytes.escape_ascii())
        };
        files.iter().map(line).collect::<Vec<_>>()
    });
    let expect = expect.map(|lines| lines.iter().map(|l| (*l).to_owned()).collect()).map_err(str::to_owned);
    assert_eq!(got, expect, "{volume}");
}

#[test]
fn config_maps_and_secrets() {
    let all = ["a 644 1", "b 644 2", "raw 644 \\x00\\xff"];
    for (source, expect) in [
        (json!({ "name": "cm" }), Ok(&all[..])),
        (
            json!({ "name": "cm", "defaultMode": 0o440, "items": [{ "key": "raw", "path": "deep/raw" },
            { "key": "a", "path": "x", "mode": 0o400 }] }),
            Ok(&["deep/raw 440 \\x00\\xff", "x 400 1"][..]),
        ),
        (
            json!({ "name": "cm", "items": [{ "key": "none", "path": "x" }] }),
            Err("configmap references non-existent config key: none"),
        ),
        (
            json!({ "name": "cm", "optional": true, "items": [{ "key": "none", "path": "x" }, { "key": "b", "path": "b" }] }),
            Ok(&["b 644 2"][..]),
        ),
        (json!({ "name": "gone" }), Err("configmap \"gone\" not found")),
        (json!({ "name": "gone", "optional": true }), Ok(&[][..])),
        // The same path twice: the later item counts.
        (
            json!({ "name": "cm", "items": [{ "key": "a", "path": "x" }, { "key": "b", "path": "x" }] }),
            Ok(&["x 644 2"][..]),
        ),
    ] {
        check(json!({ "configMap": source }), json!({}), expect);
    }
    for (source, expect) in [
        (json!({ "secretName": "s" }), Ok(&["a 644 secret", "password 644 x"][..])),
        (
            json!({ "secretName": "s", "items": [{ "key": "none", "path": "x" }] }),
            Err("references non-existent secret key: none"),
        ),
        (json!({ "secretName": "gone" }), Err("secret \"gone\" not found")),
        (json!({ "secretName": "gone", "optional": true }), Ok(&[][..])),
    ] {
        check(json!({ "secret": source }), json!({}), expect);
    }
    check(json!({ "downwardAPI": {} }), json!({}), Ok(&["labels 444 app=\\\"x\\\""]));
}

#[test]
fn projected_sources_in_their_order_and_all_problems_at_once() {
    let projected = |sources: Value| json!({ "projected": { "defaultMode": 0o640, "sources": sources } });
    check(
        projected(json!([{ "configMap": { "name": "cm" } }, { "downwardAPI": {} },
            { "secret": { "name": "s", "items": [{ "key": "a", "path": "b" }] } }])),
        json!({}),
        Ok(&["a 444 app=\\\"x\\\"", "b 640 secret", "raw 640 \\x00\\xff"]),
    );
    check(
        projected(json!([{ "configMap": { "name": "gone" } }, { "secret": { "name": "gone" } }, { "downwardAPI": {} },
            { "podCertificate": { "keyType": "ED25519", "signerName": "x" } }, {}])),
        json!({}),
        Err("[configmap \"gone\" not found, secret \"gone\" not found, fieldRef: no such field, a projected \
             podCertificate is not supported by this agent; use a secret with key and certificate, source 4 of \
             projected volume \"v\" is of a kind that this agent does not know]"),
    );
}

#[test]
fn tokens_belong_to_the_pods_user() {
    let token = json!({ "projected": { "defaultMode": 0o644, "sources":
        [{ "serviceAccountToken": { "path": "token", "audience": "vault" } }] } });
    let user = |uid: i64| json!({ "runAsUser": uid });
    for (spec, expect) in [
        (json!({}), "token 644 token for vault"),
        (json!({ "securityContext": { "fsGroup": 7 } }), "token 600 token for vault"),
        (json!({ "securityContext": user(5) }), "token 600:5 token for vault"),
        (
            json!({ "securityContext": user(5), "containers": [{ "name": "a" }, { "name": "b", "securityContext": user(5) }] }),
            "token 600:5 token for vault",
        ),
        (
            json!({ "securityContext": user(5), "containers": [{ "name": "a" }, { "name": "b", "securityContext": user(6) }] }),
            "token 644 token for vault",
        ),
        (
            json!({ "containers": [{ "name": "a" }, { "name": "b", "securityContext": user(6) }] }),
            "token 644 token for vault",
        ),
        (
            json!({ "initContainers": [{ "name": "i" }], "containers": [{ "name": "b", "securityContext": user(6) }] }),
            "token 644 token for vault",
        ),
    ] {
        check(token.clone(), spec, Ok(&[expect]));
    }
    let shelf = shelf();
    let mut token = token;
    token["name"] = json!("v");
    collect(&shelf, &token, json!({})).unwrap();
    let asked = shelf.asked.lock().unwrap().clone();
    let expect = TokenWanted {
        pod: "u".into(),
        namespace: "n".into(),
        pod_name: "p".into(),
        account: "robot".into(),
        audience: "vault".into(),
        seconds: Some(3600),
    };
    assert_eq!(asked, [expect]);
}

#[test]
fn nothing_secret_shows_in_debug() {
    const CANARY: &str = "kanarienvogel";
    let shelf = Shelf::default();
    shelf.put(ObjectKind::Secret, "s", &[("k", CANARY)]);
    let volume = json!({ "name": "v", "secret": { "secretName": "s" } });
    let files = collect(&shelf, &volume, json!({})).unwrap();
    let token = super::super::objects::Token(CANARY.to_owned());
    let text = format!("{files:?} {shelf:?} {token:?} {NoObjects:?}");
    let numbers = format!("{:?}", CANARY.as_bytes());
    assert!(text.contains("k (644, owner None, 13 bytes)"), "{text}");
    assert!(!text.contains(CANARY) && !text.contains(numbers.trim_matches(['[', ']'])), "{text}");
}

proptest! {
    /// Without items every key is one file; with items exactly the chosen ones, unless one is missing
    /// and not optional.
    #[test]
    fn projection_is_exact(
        keys in proptest::collection::btree_map("[a-z]{1,3}", "[ -~]{0,8}", 0..6),
        items in proptest::collection::vec(("[a-z]{1,3}", "[a-z]{1,2}(/[a-z]{1,2})?", proptest::option::of(0..0o777i32)), 0..6),
        mode in 0..0o777i32,
        optional: bool,
    ) {
        let data = ObjectData {
            bytes: keys.iter().map(|(k, v)| (k.clone(), v.clone().into_bytes())).collect(),
            ..ObjectData::default()
        };
        let chosen_items: Vec<KeyToPath> = items
            .iter()
            .map(|(key, path, mode)| KeyToPath { key: key.clone(), path: path.clone(), mode: *mode })
            .collect();
        let got = chosen(ObjectKind::Secret, &data, &chosen_items, mode, optional);
        if items.is_empty() {
            let files = got.unwrap();
            prop_assert_eq!(files.len(), keys.len());
            prop_assert!(files.iter().all(|f| keys[&f.path].as_bytes() == f.bytes && f.mode == u32::try_from(mode).unwrap()));
        } else if !optional && items.iter().any(|(key, ..)| !keys.contains_key(key)) {
            prop_assert!(got.unwrap_err().starts_with("references non-existent secret key: "));
        } else {
            let present: Vec<_> = items.iter().filter(|(key, ..)| keys.contains_key(key)).collect();
            let files = got.unwrap();
            prop_assert_eq!(files.len(), present.len());
            for (file, (key, path, own)) in files.iter().zip(present) {
                prop_assert_eq!(&file.path, path);
                prop_assert_eq!(&file.bytes, keys[key].as_bytes());
                prop_assert_eq!(file.mode, u32::try_from(own.unwrap_or(mode)).unwrap());
            }
        }
    }
}

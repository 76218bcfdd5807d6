//! What the fake API server keeps: objects by path, their history, and the rules of the API that clients rely on.
//!
//! Owned by the fake server behind its lock. It knows no schema: an object is JSON, a patch of any kind is merged as
//! RFC 7386 has it, a selector may ask for `spec.nodeName` and `metadata.name`. It never invents an answer that the real
//! server would not give.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::api_wire::Request;

/// Kinds by their plural, as far as tests need them.
const KINDS: &[(&str, &str, &str)] = &[
    ("pods", "Pod", "v1"),
    ("nodes", "Node", "v1"),
    ("services", "Service", "v1"),
    ("secrets", "Secret", "v1"),
    ("configmaps", "ConfigMap", "v1"),
    ("events", "Event", "v1"),
    ("leases", "Lease", "coordination.k8s.io/v1"),
    ("runtimeclasses", "RuntimeClass", "node.k8s.io/v1"),
    ("certificatesigningrequests", "CertificateSigningRequest", "certificates.k8s.io/v1"),
];

/// One change, as watches tell it.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) kind: &'static str,
    pub(crate) path: String,
    pub(crate) object: Value,
}

/// An answer: status code and body.
pub(crate) type Answer = (u16, Value);

/// All objects.
#[derive(Debug, Default)]
pub(crate) struct ApiStore {
    objects: BTreeMap<String, Value>,
    pub(crate) history: Vec<Change>,
    pub(crate) version: u64,
    /// Changes up to this version are forgotten.
    pub(crate) compacted: u64,
    /// How long tokens live, whatever was asked for.
    pub(crate) token_seconds: Option<i64>,
}

/// A Status object of a failure.
pub(crate) fn failure(code: u16, reason: &str, message: &str) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    (code, status)
}

/// The plural that a path ends with, and its kind.
fn kind_of(path: &str) -> Option<(&'static str, &'static str, &'static str)> {
    let last = path.rsplit('/').next()?;
    KINDS.iter().copied().find(|(plural, ..)| *plural == last)
}

/// Whether the object at `object` belongs to the collection at `collection`.
pub(crate) fn belongs(object: &str, collection: &str) -> bool {
    let Some((parent, _)) = object.rsplit_once('/') else { return false };
    if parent == collection {
        return true;
    }
    // /api/v1/pods holds the pods of all namespaces.
    let Some((group, plural)) = collection.rsplit_once('/') else { return false };
    parent.starts_with(&format!("{group}/namespaces/")) && parent.ends_with(&format!("/{plural}"))
}

/// Whether an object fits a field selector.
pub(crate) fn selected(object: &Value, selector: &str) -> bool {
    selector.split(',').filter(|term| !term.is_empty()).all(|term| match term.split_once('=') {
        Some(("spec.nodeName", name)) => object["spec"]["nodeName"] == name,
        Some(("metadata.name", name)) => object["metadata"]["name"] == name,
        _ => false,
    })
}

fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    let Some(map) = into.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

impl ApiStore {
    fn record(&mut self, kind: &'static str, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if kind == "DELETED" {
            self.objects.remove(path);
        } else {
            self.objects.insert(path.to_owned(), object.clone());
        }
        self.history.push(Change { version: self.version, kind, path: path.to_owned(), object: object.clone() });
        object
    }

    /// Puts an object there, whatever was there before.
    pub(crate) fn put(&mut self, path: &str, object: Value) -> Value {
        let kind = if self.objects.contains_key(path) { "MODIFIED" } else { "ADDED" };
        self.record(kind, path, object)
    }

    /// Takes an object away at once.
    pub(crate) fn remove(&mut self, path: &str) -> Option<Value> {
        let object = self.objects.get(path)?.clone();
        Some(self.record("DELETED", path, object))
    }

    pub(crate) fn object(&self, path: &str) -> Option<&Value> {
        self.objects.get(path)
    }

    /// Forgets the history: watches of older versions are told 410.
    pub(crate) fn compact(&mut self) {
        self.version += 1;
        self.compacted = self.version;
        self.history.clear();
    }

    /// The lines of a watch since a version, or of what there is now; `None` if that is forgotten.
    pub(crate) fn news(&self, request: &Request, from: Option<u64>) -> Option<String> {
        if from.is_some_and(|from| from < self.compacted) {
            return None;
        }
        let selector = request.query.get("fieldSelector").map_or("", String::as_str);
        let is_meant = |path: &str, object: &Value| belongs(path, &request.path) && selected(object, selector);
        let line = |kind: &str, object: &Value| format!("{}\n", json!({"type": kind, "object": object}));
        let Some(from) = from else {
            let there = self.objects.iter().filter(|(path, object)| is_meant(path, object));
            return Some(there.map(|(_, object)| line("ADDED", object)).collect());
        };
        let new = self.history.iter().filter(|change| change.version > from && is_meant(&change.path, &change.object));
        Some(new.map(|change| line(change.kind, &change.object)).collect())
    }

    /// GET of an object or a list.
    pub(crate) fn get(&self, path: &str, query: &BTreeMap<String, String>) -> Answer {
        let path = path.trim_end_matches("/status");
        if let Some(object) = self.objects.get(path) {
            return (200, object.clone());
        }
        let Some((plural, kind, version)) = kind_of(path) else {
            return failure(404, "NotFound", &format!("{path} not found"));
        };
        let selector = query.get("fieldSelector").map_or("", String::as_str);
        let mut items: Vec<(&String, &Value)> = self.objects.iter().filter(|(key, _)| belongs(key, path)).collect();
        items.retain(|(_, object)| selected(object, selector));
        let after = query.get("continue").cloned().unwrap_or_default();
        items.retain(|(key, _)| after.is_empty() || **key > after);
        // From the cache (resourceVersion=0) the real server gives all at once.
        let limit = query.get("limit").and_then(|text| text.parse().ok()).filter(|limit| *limit > 0);
        let mut metadata = json!({"resourceVersion": self.version.to_string()});
        if let Some(limit) = limit.filter(|limit| items.len() > *limit) {
            items.truncate(limit);
            metadata["continue"] = json!(items.last().map(|(key, _)| key));
        }
        let items: Vec<&Value> = items.into_iter().map(|(_, object)| object).collect();
        let _ = plural;
        (200, json!({"kind": format!("{kind}List"), "apiVersion": version, "metadata": metadata, "items": items}))
    }

    /// POST to a collection, or for a token, each of which is another.
    pub(crate) fn create(&mut self, path: &str, mut object: Value) -> Answer {
        if path.contains("/serviceaccounts/") && path.ends_with("/token") {
            self.version += 1;
            let life = self.token_seconds.map_or_else(|| object["spec"]["expirationSeconds"].clone(), Value::from);
            object["spec"]["expirationSeconds"] = life;
            object["status"] = json!({"token": format!("token-{}", self.version)});
            return (201, object);
        }
        let Some((plural, kind, version)) = kind_of(path) else {
            return failure(404, "NotFound", &format!("{path} not found"));
        };
        let mut name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if let (true, Some(prefix)) = (name.is_empty(), object["metadata"]["generateName"].as_str()) {
            name = format!("{prefix}{:05}", self.version);
        }
        if name.is_empty() {
            return failure(422, "Invalid", "metadata.name: Required value");
        }
        let key = format!("{path}/{name}");
        if self.objects.contains_key(&key) {
            return failure(409, "AlreadyExists", &format!("{plural} \"{name}\" already exists"));
        }
        object["kind"] = json!(kind);
        object["apiVersion"] = json!(version);
        object["metadata"]["name"] = json!(name);
        if object["metadata"]["uid"].as_str().unwrap_or_default().is_empty() {
            object["metadata"]["uid"] = json!(format!("00000000-0000-4000-8000-{:012}", self.version));
        }
        if let Some(namespace) = path.split("/namespaces/").nth(1).and_then(|rest| rest.split('/').next()) {
            object["metadata"]["namespace"] = json!(namespace);
        }
        object["metadata"]["creationTimestamp"] = json!("2026-11-30T00:00:00Z");
        (201, self.record("ADDED", &key, object))
    }

    /// PUT of an object or its status.
    pub(crate) fn update(&mut self, path: &str, object: Value) -> Answer {
        let (path, is_status) = path.strip_suffix("/status").map_or((path, false), |path| (path, true));
        let Some(old) = self.objects.get(path) else {
            return failure(404, "NotFound", &format!("{path} not found"));
        };
        let given = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if !given.is_empty() && old["metadata"]["resourceVersion"] != given {
            return failure(
                409,
                "Conflict",
                "the object has been modified; please apply your changes to the latest version",
            );
        }
        let mut new = if is_status { old.clone() } else { object.clone() };
        if is_status {
            new["status"] = object["status"].clone();
        } else {
            new["metadata"]["uid"] = old["metadata"]["uid"].clone();
        }
        (200, self.record("MODIFIED", path, new))
    }

    /// PATCH of an object or its status.
    pub(crate) fn patch(&mut self, path: &str, patch: &Value) -> Answer {
        let path = path.trim_end_matches("/status");
        let Some(old) = self.objects.get(path) else {
            return failure(404, "NotFound", &format!("{path} not found"));
        };
        let uid = &patch["metadata"]["uid"];
        if !uid.is_null() && *uid != old["metadata"]["uid"] {
            return failure(409, "Conflict", "Precondition failed: UID in precondition differs");
        }
        let mut new = old.clone();
        merge(&mut new, patch);
        (200, self.record("MODIFIED", path, new))
    }

    /// DELETE of an object; a pod with a grace period stays and is marked.
    pub(crate) fn delete(&mut self, path: &str, options: &Value) -> Answer {
        let Some(old) = self.objects.get(path).cloned() else {
            return failure(404, "NotFound", &format!("{path} not found"));
        };
        let uid = &options["preconditions"]["uid"];
        if !uid.is_null() && *uid != old["metadata"]["uid"] {
            return failure(409, "Conflict", "Precondition failed: UID in precondition differs");
        }
        let grace = options["gracePeriodSeconds"].as_i64();
        let is_running_pod = old["kind"] == "Pod" && !old["spec"]["nodeName"].is_null();
        if is_running_pod && grace != Some(0) {
            let mut marked = old;
            marked["metadata"]["deletionTimestamp"] = json!("2026-11-30T00:00:30Z");
            marked["metadata"]["deletionGracePeriodSeconds"] = json!(grace.unwrap_or(30));
            return (200, self.record("MODIFIED", path, marked));
        }
        (200, self.record("DELETED", path, old))
    }
}

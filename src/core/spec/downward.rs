//! The downward API: fields and resources of the pod as text, for variables and for files.
//!
//! Layer L1, pure. It writes no file: [`downward_files`] tells what a downwardAPI volume (or a
//! downwardAPI source of a projected one) must contain.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::api::pod;
use crate::api::quantity::Amount;
use crate::api::v1::{Container, DownwardAPIVolumeFile, ObjectFieldSelector, Pod, ResourceFieldSelector};
use crate::core::qos::{self, CPU, EPHEMERAL_STORAGE, HUGEPAGES_PREFIX, MEMORY, ResourceList};
use crate::util::order;

use super::{NodeFacts, SpecError, names};

/// A file of a downwardAPI volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownwardFile {
    /// Path relative to the volume.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Content.
    pub bytes: Vec<u8>,
}

/// The value of a `fieldRef` of an environment variable.
pub fn field_value(
    pod: &Pod,
    reference: &ObjectFieldSelector,
    facts: &NodeFacts,
    pod_ips: &[String],
) -> Result<String, SpecError> {
    check_version(reference)?;
    let path = reference.field_path.as_str();
    let spec = pod::spec(pod);
    let value = match path {
        "spec.nodeName" | "spec.host" => spec.and_then(|s| s.node_name.as_deref()).unwrap_or_default().to_owned(),
        "spec.serviceAccountName" => {
            spec.and_then(|s| s.service_account_name.as_deref()).unwrap_or_default().to_owned()
        }
        "status.hostIP" => match facts.node_ips.first() {
            Some(ip) => ip.clone(),
            None => return Err(no_address(path)),
        },
        "status.hostIPs" if facts.node_ips.is_empty() => return Err(no_address(path)),
        "status.hostIPs" => facts.node_ips.join(","),
        "status.podIP" => in_node_order(pod_ips, facts).first().map(|ip| (*ip).to_owned()).unwrap_or_default(),
        "status.podIPs" => in_node_order(pod_ips, facts).join(","),
        _ => return metadata_value(pod, path),
    };
    Ok(value)
}

fn no_address(path: &str) -> SpecError {
    SpecError::FieldPath { path: path.to_owned(), why: "is not known: the node has no address yet".to_owned() }
}

fn check_version(reference: &ObjectFieldSelector) -> Result<(), SpecError> {
    match reference.api_version.as_deref() {
        None | Some("" | "v1") => Ok(()),
        Some(other) => {
            Err(SpecError::UnknownValue { field: "fieldRef.apiVersion", value: other.to_owned(), expected: "v1" })
        }
    }
}

/// Addresses of the family that the node prefers come first.
fn in_node_order<'a>(pod_ips: &'a [String], facts: &NodeFacts) -> Vec<&'a str> {
    let is_v6 = |ip: &str| ip.contains(':');
    let first_is_v6 = facts.node_ips.first().map(|ip| is_v6(ip));
    let mut ips: Vec<&str> = pod_ips.iter().map(String::as_str).collect();
    if let Some(v6) = first_is_v6 {
        order::sort_by_key(&mut ips, |ip| is_v6(ip) != v6);
    }
    ips
}

fn metadata_value(pod: &Pod, path: &str) -> Result<String, SpecError> {
    let none = BTreeMap::new();
    let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
    let annotations = pod.metadata.annotations.as_ref().unwrap_or(&none);
    let problem = |why: String| SpecError::FieldPath { path: path.to_owned(), why };
    if let Some((field, key)) = subscript(path) {
        let (map, checked) = match field {
            "metadata.labels" => (labels, key.to_owned()),
            "metadata.annotations" => (annotations, key.to_lowercase()),
            _ => return Err(problem("takes no key in brackets".to_owned())),
        };
        return match names::qualified_name_problem(&checked) {
            Some(why) => Err(problem(format!("has no valid key: {why}"))),
            None => Ok(map.get(key).cloned().unwrap_or_default()),
        };
    }
    match path {
        "metadata.labels" => Ok(format_map(labels)),
        "metadata.annotations" => Ok(format_map(annotations)),
        "metadata.name" => Ok(pod::name(pod).to_owned()),
        "metadata.namespace" => Ok(pod::namespace(pod).to_owned()),
        "metadata.uid" => Ok(pod.metadata.uid.clone().unwrap_or_default()),
        _ => Err(problem("is not supported; use metadata.name, namespace, uid, labels, annotations, spec.nodeName, spec.serviceAccountName, status.hostIP(s) or status.podIP(s)".to_owned())),
    }
}

/// `metadata.labels['key']` → `metadata.labels` and `key`.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (field, key) = path.strip_suffix("']")?.split_once("['")?;
    (!field.is_empty()).then_some((field, key))
}

/// Lines `key="value"` in the order of the keys, values quoted as Go quotes them.
fn format_map(map: &BTreeMap<String, String>) -> String {
    map.iter().map(|(key, value)| format!("{key}={}", go_quote(value))).collect::<Vec<_>>().join("\n")
}

/// A string literal of the Go language, because the files have always been written so.
fn go_quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if is_printable(c) => out.push(c),
            c if u32::from(c) < 0x80 => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if u32::from(c) < 0x1_0000 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

fn is_printable(c: char) -> bool {
    // std escapes what has no glyph; combining marks only at the start of a text, hence the letter.
    let text: String = ['a', c].into_iter().collect();
    !text.escape_debug().skip(1).collect::<String>().starts_with("\\u{")
}

/// The value of a `resourceFieldRef` of an environment variable. A limit that the container lacks is
/// that of the pod, else what the node can allocate.
pub fn env_resource_value(
    pod: &Pod,
    container: &Container,
    reference: &ResourceFieldSelector,
    facts: &NodeFacts,
) -> Result<String, SpecError> {
    let mut defaults = qos::amounts(Some(&facts.allocatable));
    let own = pod::spec(pod).and_then(|s| s.resources.as_ref()).and_then(|r| r.limits.as_ref());
    for (name, limit) in qos::amounts(own) {
        if (name == CPU || name == MEMORY) && !limit.is_zero() && defaults.contains_key(&name) {
            defaults.insert(name, limit);
        }
    }
    let target = match reference.container_name.as_deref().filter(|n| !n.is_empty()) {
        Some(name) => find(pod, name)?,
        None => Cow::Borrowed(container),
    };
    resource_value(&target, reference, &defaults)
}

fn find<'a>(pod: &'a Pod, name: &str) -> Result<Cow<'a, Container>, SpecError> {
    let plain = pod::app_containers(pod).iter().chain(pod::init_containers(pod)).find(|c| c.name == name);
    plain.map(Cow::Borrowed).ok_or_else(|| SpecError::ResourceField(format!("the pod has no container {name:?}")))
}

fn resource_value(
    container: &Container,
    reference: &ResourceFieldSelector,
    default_limits: &ResourceList,
) -> Result<String, SpecError> {
    let unsupported = || {
        SpecError::ResourceField(format!(
            "{:?} is not supported; use limits or requests of cpu, memory, ephemeral-storage or hugepages-<size>",
            reference.resource
        ))
    };
    let (side, name) = reference.resource.split_once('.').ok_or_else(unsupported)?;
    let ordinary = [CPU, MEMORY, EPHEMERAL_STORAGE].contains(&name);
    if !ordinary && !name.starts_with(HUGEPAGES_PREFIX) {
        return Err(unsupported());
    }
    let resources = container.resources.as_ref();
    let amount = match side {
        "requests" => qos::amount(resources.and_then(|r| r.requests.as_ref()), name),
        "limits" => match qos::amount(resources.and_then(|r| r.limits.as_ref()), name) {
            // Huge pages are never overcommitted, so that a missing limit means none.
            own if own.is_zero() && ordinary => default_limits.get(name).copied().unwrap_or_default(),
            own => own,
        },
        _ => return Err(unsupported()),
    };
    let divisor = match &reference.divisor {
        None => Amount::ZERO,
        Some(q) => Amount::try_from(q).map_err(|e| SpecError::ResourceField(format!("divisor: {e}")))?,
    };
    let (number, by) = match name {
        CPU => (amount.milli_value(), if divisor.is_zero() { 1000 } else { divisor.milli_value() }),
        _ => (amount.value(), if divisor.is_zero() { 1 } else { divisor.value() }),
    };
    if by <= 0 {
        return Err(SpecError::ResourceField("the divisor must be above 0".to_owned()));
    }
    // Rounded up: a container that counts its CPUs must not find none.
    let (number, by) = (i128::from(number), i128::from(by));
    Ok((number / by + i128::from(number % by > 0)).to_string())
}

/// What the files of a downwardAPI volume contain, by path. Two items with the same path: the later one.
pub fn downward_files(
    pod: &Pod,
    items: &[DownwardAPIVolumeFile],
    default_mode: i32,
    facts: &NodeFacts,
) -> Result<Vec<DownwardFile>, SpecError> {
    let allocatable = qos::amounts(Some(&facts.allocatable));
    let mut files = BTreeMap::new();
    for item in items {
        let value = if let Some(reference) = &item.field_ref {
            check_version(reference)?;
            metadata_value(pod, &reference.field_path)?
        } else if let Some(reference) = &item.resource_field_ref {
            let name = reference.container_name.as_deref().unwrap_or_default();
            resource_value(find(pod, name)?.as_ref(), reference, &allocatable)?
        } else {
            String::new()
        };
        let parts: Vec<&str> = item.path.split('/').filter(|p| !p.is_empty() && *p != ".").collect();
        if parts.is_empty() || parts.contains(&"..") || item.path.starts_with('/') {
            return Err(SpecError::FieldPath {
                path: item.path.clone(),
                why: "is no path in a volume: it must be relative and without \"..\"".to_owned(),
            });
        }
        let mode = u32::try_from(item.mode.unwrap_or(default_mode)).unwrap_or(0) & 0o777;
        let path = parts.join("/");
        files.insert(path.clone(), DownwardFile { path, mode, bytes: value.into_bytes() });
    }
    Ok(files.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": "p", "namespace": "n", "uid": "u",
                "labels": {"app": "full", "tier": "web", "ex.com/k": "v"},
                "annotations": {"Note": "a \"b\"\n\\", "uni": "é\u{7f}\u{200b}\u{301}"},
            },
            "spec": {
                "nodeName": "box", "serviceAccountName": "default",
                "containers": [{"name": "c", "resources": {
                    "requests": {"cpu": "1500m", "memory": "64Mi", "hugepages-2Mi": "4Mi"},
                    "limits": {"cpu": "500m", "hugepages-2Mi": "4Mi"}}}],
                "initContainers": [{"name": "i"}],
            },
        }))
        .expect("a pod")
    }

    fn facts() -> NodeFacts {
        NodeFacts {
            node_ips: vec!["192.0.2.2".into(), "fd00::2".into()],
            allocatable: serde_json::from_value(json!({"cpu": "2", "memory": "4Gi", "ephemeral-storage": "10Gi"}))
                .expect("quantities"),
            ..NodeFacts::default()
        }
    }

    #[test]
    fn fields() {
        let ips = ["fd00::9".to_owned(), "10.0.0.9".to_owned()];
        for (path, expect) in [
            ("metadata.name", Some("p")),
            ("metadata.namespace", Some("n")),
            ("metadata.uid", Some("u")),
            ("metadata.labels", Some("app=\"full\"\nex.com/k=\"v\"\ntier=\"web\"")),
            ("metadata.annotations", Some("Note=\"a \\\"b\\\"\\n\\\\\"\nuni=\"é\\x7f\\u200b\u{301}\"")),
            ("metadata.labels['tier']", Some("web")),
            ("metadata.labels['ex.com/k']", Some("v")),
            ("metadata.labels['absent']", Some("")),
            ("metadata.annotations['Note']", Some("a \"b\"\n\\")),
            ("metadata.labels['-']", None),
            ("metadata.name['x']", None),
            ("spec.nodeName", Some("box")),
            ("spec.serviceAccountName", Some("default")),
            ("status.hostIP", Some("192.0.2.2")),
            ("status.hostIPs", Some("192.0.2.2,fd00::2")),
            ("status.podIP", Some("10.0.0.9")),
            ("status.podIPs", Some("10.0.0.9,fd00::9")),
            ("spec.restartPolicy", None),
            ("status.phase", None),
            ("", None),
        ] {
            let reference = ObjectFieldSelector { api_version: Some("v1".into()), field_path: path.into() };
            let got = field_value(&pod(), &reference, &facts(), &ips);
            assert_eq!(got.as_deref().ok(), expect, "{path}: {got:?}");
        }
        let unknown = NodeFacts::default();
        let reference = ObjectFieldSelector { api_version: None, field_path: "status.hostIP".into() };
        assert!(field_value(&pod(), &reference, &unknown, &[]).is_err());
        let v2 = ObjectFieldSelector { api_version: Some("v2".into()), field_path: "metadata.name".into() };
        assert!(field_value(&pod(), &v2, &facts(), &[]).is_err());
    }

    #[test]
    fn resources_are_divided_and_rounded_up() {
        for (reference, expect) in [
            (json!({"resource": "limits.cpu"}), Some("1")),
            (json!({"resource": "limits.cpu", "divisor": "1m"}), Some("500")),
            (json!({"resource": "requests.cpu"}), Some("2")),
            (json!({"resource": "requests.memory", "divisor": "1Mi"}), Some("64")),
            (json!({"resource": "requests.memory", "divisor": "1Gi"}), Some("1")),
            (json!({"resource": "limits.memory", "divisor": "1Gi"}), Some("4")),
            (json!({"resource": "limits.ephemeral-storage", "divisor": "1Gi"}), Some("10")),
            (json!({"resource": "requests.ephemeral-storage"}), Some("0")),
            (json!({"resource": "limits.hugepages-2Mi", "divisor": "1Mi"}), Some("4")),
            (json!({"resource": "limits.hugepages-1Gi"}), Some("0")),
            (json!({"resource": "limits.cpu", "containerName": "i"}), Some("2")),
            (json!({"resource": "limits.cpu", "divisor": "0"}), Some("1")),
            (json!({"resource": "limits.cpu", "containerName": "zz"}), None),
            (json!({"resource": "limits.gpu"}), None),
            (json!({"resource": "status.cpu"}), None),
            (json!({"resource": "cpu"}), None),
            (json!({"resource": "limits.cpu", "divisor": "-1"}), None),
            (json!({"resource": "limits.cpu", "divisor": "x"}), None),
        ] {
            let p = pod();
            let selector = serde_json::from_value(reference.clone()).expect("a selector");
            let got = env_resource_value(&p, &pod::app_containers(&p)[0], &selector, &facts());
            assert_eq!(got.as_deref().ok(), expect, "{reference}: {got:?}");
        }
    }

    #[test]
    fn a_pod_level_limit_stands_in_for_the_node() {
        let mut p = pod();
        let limits: Value = json!({"limits": {"memory": "1Gi"}});
        p.spec.as_mut().expect("a spec").resources = Some(serde_json::from_value(limits).expect("resources"));
        let selector =
            serde_json::from_value(json!({"resource": "limits.memory", "divisor": "1Mi"})).expect("selector");
        let got = env_resource_value(&p, &pod::app_containers(&p)[0], &selector, &facts());
        assert_eq!(got.as_deref(), Ok("1024"));
    }

    #[test]
    fn files_of_a_volume() {
        let items: Vec<DownwardAPIVolumeFile> = serde_json::from_value(json!([
            {"path": "./d//labels", "fieldRef": {"fieldPath": "metadata.labels"}},
            {"path": "cpu", "mode": 0o400, "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu", "divisor": "1m"}},
            {"path": "name", "fieldRef": {"fieldPath": "metadata.uid"}},
            {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
        ]))
        .expect("items");
        let files = downward_files(&pod(), &items, 0o644, &facts()).expect("files");
        let seen: Vec<_> =
            files.iter().map(|f| (f.path.as_str(), f.mode, String::from_utf8_lossy(&f.bytes).into_owned())).collect();
        let labels = "app=\"full\"\nex.com/k=\"v\"\ntier=\"web\"".to_owned();
        assert_eq!(
            seen,
            [("cpu", 0o400, "500".to_owned()), ("d/labels", 0o644, labels), ("name", 0o644, "p".to_owned())]
        );
        for path in ["../x", "/x", "", ".", "a/../b"] {
            let items = serde_json::from_value(json!([{"path": path, "fieldRef": {"fieldPath": "metadata.name"}}]));
            assert!(downward_files(&pod(), &items.unwrap_or_else(|_| Vec::new()), 0o644, &facts()).is_err(), "{path}");
        }
    }
}

//! The bytes of a manifest to pods: YAML or JSON, one Pod or (from a URL) a PodList.
//!
//! Runs on the threads `src-file` and `src-http`; owns nothing, does no I/O. Text is read within
//! limits, so that no manifest can cost more than it is worth. It neither fills in defaults nor
//! judges a pod: see `core::defaults` and `core::validate`.

use serde_json::Value;

use crate::api::v1::Pod;
use crate::config::yaml::{Limits, YamlError, yaml_to_json};
use crate::util::json::{self, Misplaced};

/// What a manifest file may cost: 4 MiB, which is far above the 1.5 MiB of an object in the API.
pub const FILE_LIMITS: Limits = Limits { max_bytes: 4 << 20, max_depth: 64, max_nodes: 200_000 };
/// What the answer of a manifest URL may cost, which can be a list of all pods of the node: 10 MiB.
pub const URL_LIMITS: Limits = Limits { max_bytes: 10 << 20, max_depth: 64, max_nodes: 1_000_000 };
/// How many pods of a list are read; the rest is reported.
pub const MAX_LISTED: usize = 1000;
/// How many warnings one manifest may cause.
const MAX_WARNINGS: usize = 16;

/// Why a manifest gives no pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// There is nothing in it.
    #[error("the manifest is empty: write a Pod of apiVersion v1")]
    Empty,
    /// It is not YAML or JSON, or costs too much to read.
    #[error("not readable as YAML or JSON: {0}")]
    Text(#[from] YamlError),
    /// It is a list, a number, …
    #[error("the manifest must be an object with apiVersion, kind, metadata and spec, not {0}")]
    NotAnObject(&'static str),
    /// It is something else than a pod.
    #[error("{field} is {found:?}, expected {expected}")]
    WrongKind {
        /// `apiVersion` or `kind`.
        field: &'static str,
        /// What stands there; empty when it is missing.
        found: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// A field has the wrong type.
    #[error("{path}: {message}")]
    Field {
        /// Path of the field.
        path: String,
        /// What is wrong with it.
        message: String,
    },
}

/// One pod of a manifest, or why it is none.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// What its author calls it, as far as that can be read: `namespace/name`, with the default
    /// namespace where none is given.
    pub name: Option<String>,
    /// The pod as written, without the status, which is not the author's to say.
    pub pod: Result<Pod, DecodeError>,
}

/// What a manifest holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// Its pods.
    pub items: Vec<Item>,
    /// What was read over: unknown fields, keys that are written twice, further documents.
    pub warnings: Vec<String>,
}

/// Reads the manifest of one pod.
///
/// # Errors
/// The text cannot be read or is no Pod.
pub fn decode_pod(text: &[u8], limits: &Limits) -> Result<(Pod, Vec<String>), DecodeError> {
    let (value, mut warnings) = read_text(text, limits)?;
    expect_kind(&value, "Pod")?;
    let pod = read_pod(value, "", &mut warnings)?;
    Ok((pod, warnings))
}

/// Reads the manifest of one pod or of a list of them.
///
/// # Errors
/// The text cannot be read or is neither; a broken pod within a list is an error of its item only.
pub fn decode_pods(text: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
    let (mut value, mut warnings) = read_text(text, limits)?;
    if value.get("kind").and_then(Value::as_str) != Some("PodList") {
        expect_kind(&value, "Pod or PodList")?;
        let name = name_of(&value);
        let pod = Ok(read_pod(value, "", &mut warnings)?);
        return Ok(Decoded { items: vec![Item { name, pod }], warnings });
    }
    expect_version(&value)?;
    let mut values = match value.get_mut("items").map(Value::take) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(values)) => values,
        Some(other) => {
            let message = format!("expected a list of pods, not {}", type_name(&other));
            return Err(DecodeError::Field { path: "items".to_owned(), message });
        }
    };
    if values.len() > MAX_LISTED {
        warn(&mut warnings, || format!("of {} pods in the list only the first {MAX_LISTED} are read", values.len()));
        values.truncate(MAX_LISTED);
    }
    let mut items = Vec::with_capacity(values.len());
    for (index, value) in values.into_iter().enumerate() {
        let path = format!("items[{index}]");
        let name = name_of(&value);
        let pod = expect_item(&value).and_then(|()| read_pod(value, &path, &mut warnings));
        items.push(Item { name, pod: pod.map_err(|error| error.below(&path)) });
    }
    Ok(Decoded { items, warnings })
}

impl DecodeError {
    /// The error of a list's item: names the item where the path does not.
    fn below(self, item: &str) -> Self {
        match self {
            Self::Field { .. } => self,
            other => Self::Field { path: item.to_owned(), message: other.to_string() },
        }
    }
}

fn warn(warnings: &mut Vec<String>, text: impl FnOnce() -> String) {
    match warnings.len() {
        0..MAX_WARNINGS => warnings.push(text()),
        MAX_WARNINGS => warnings.push("and more of the kind".to_owned()),
        _ => {}
    }
}

fn read_text(text: &[u8], limits: &Limits) -> Result<(Value, Vec<String>), DecodeError> {
    let document = yaml_to_json(text, limits)?;
    let mut warnings = Vec::new();
    for path in &document.duplicates {
        warn(&mut warnings, || format!("{path}: written twice, the last one counts"));
    }
    if document.more_documents {
        warn(&mut warnings, || "only the first document is read: write each pod to a file of its own".to_owned());
    }
    match document.value {
        Value::Null => Err(DecodeError::Empty),
        value @ Value::Object(_) => Ok((value, warnings)),
        other => Err(DecodeError::NotAnObject(type_name(&other))),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// `apiVersion` or `kind` as text; empty when missing.
fn type_field(value: &Value, field: &'static str) -> String {
    match value.get(field) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.chars().take(100).collect(),
        Some(other) => type_name(other).to_owned(),
    }
}

fn expect_version(value: &Value) -> Result<(), DecodeError> {
    match type_field(value, "apiVersion") {
        found if found == "v1" => Ok(()),
        found => Err(DecodeError::WrongKind { field: "apiVersion", found, expected: "v1" }),
    }
}

fn expect_kind(value: &Value, expected: &'static str) -> Result<(), DecodeError> {
    match type_field(value, "kind") {
        found if found == "Pod" => expect_version(value),
        found => Err(DecodeError::WrongKind { field: "kind", found, expected }),
    }
}

/// An item of a list may leave out what the list says already, but not contradict it.
fn expect_item(value: &Value) -> Result<(), DecodeError> {
    if !value.is_object() {
        return Err(DecodeError::NotAnObject(type_name(value)));
    }
    for (field, expected) in [("apiVersion", "v1"), ("kind", "Pod")] {
        let found = type_field(value, field);
        if !found.is_empty() && found != expected {
            return Err(DecodeError::WrongKind { field, found, expected });
        }
    }
    Ok(())
}

fn name_of(value: &Value) -> Option<String> {
    let metadata = value.get("metadata")?;
    let name = metadata.get("name")?.as_str()?;
    let namespace = metadata.get("namespace").and_then(Value::as_str).filter(|text| !text.is_empty());
    Some(format!("{}/{name}", namespace.unwrap_or("default")))
}

/// Reads a pod out of JSON; `prefix` is where it stands in the manifest.
fn read_pod(mut value: Value, prefix: &str, warnings: &mut Vec<String>) -> Result<Pod, DecodeError> {
    if let Some(pod) = value.as_object_mut() {
        // The author asks, the node reports.
        pod.remove("status");
        pod.remove("apiVersion");
        pod.remove("kind");
    }
    if let Some(spec) = value.get_mut("spec") {
        quantities_to_text(spec);
    }
    let at = |path: String| match (prefix, path.as_str()) {
        ("", _) => path,
        (_, "" | ".") => prefix.to_owned(),
        _ => format!("{prefix}.{path}"),
    };
    let pod: Pod = json::from_value(&value).map_err(|Misplaced { path, error }| {
        let mut message = error.to_string();
        let is_scalar =
            ["integer", "floating point", "boolean"].iter().any(|kind| message.contains(&format!("type: {kind}")));
        if is_scalar && message.ends_with("expected a string") {
            message.push_str(": put it in quotes");
        }
        DecodeError::Field { path: at(path), message }
    })?;
    let kept = serde_json::to_value(&pod).unwrap_or_default();
    for path in json::unknown_fields(&value, &kept) {
        warn(warnings, || format!("{}: unknown field, read over", at(path)));
    }
    Ok(pod)
}

/// Turns numbers into text wherever a spec has a quantity: the API takes `cpu: 1` as well as
/// `cpu: "1"`, the types here hold text only. The names are used for nothing else in a pod's spec.
fn quantities_to_text(value: &mut Value) {
    let to_text = |value: &mut Value| {
        if let Value::Number(number) = value {
            *value = Value::String(number.to_string());
        }
    };
    match value {
        Value::Array(values) => values.iter_mut().for_each(quantities_to_text),
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("limits" | "requests" | "overhead", Value::Object(list)) => list.values_mut().for_each(to_text),
                    ("sizeLimit" | "divisor", value) => to_text(value),
                    (_, value) => quantities_to_text(value),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - {name: c, image: i}\n";

    /// Decodes a text as a URL's answer and shows names, first image, errors and warnings.
    fn check(text: impl AsRef<[u8]>, expect: &Expect) {
        let shown = match decode_pods(text.as_ref(), &URL_LIMITS) {
            Err(error) => format!("{error}\n"),
            Ok(decoded) => {
                let items = decoded.items.iter().map(|item| match &item.pod {
                    Err(error) => format!("{:?}: {error}\n", item.name.as_deref()),
                    Ok(pod) => {
                        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
                        let images: Vec<_> = containers.filter_map(|c| c.image.as_deref()).collect();
                        format!("{:?} runs {images:?}\n", item.name.as_deref())
                    }
                });
                let warnings = decoded.warnings.iter().map(|warning| format!("warning: {warning}\n"));
                items.chain(warnings).collect()
            }
        };
        expect.assert_eq(&shown);
    }

    #[test]
    fn yaml_json_and_lists_are_read() {
        check(
            POD,
            &expect![[r#"
            Some("default/p") runs ["i"]
        "#]],
        );
        check(
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"n"},"spec":{"containers":[{"name":"c","image":"i"}]},"status":7}"#,
            &expect![[r#"
                Some("n/p") runs ["i"]
            "#]],
        );
        check(
            r#"{"kind":"PodList","apiVersion":"v1","items":[
                {"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"1"}]}},
                {"kind":"Pod","metadata":{"name":"b"},"spec":{"containers":{"name":"c"}}},
                {"kind":"Service","metadata":{"name":"c"}},
                7,
                {"metadata":{"name":"d"},"spec":{"containers":[{"name":"c","image":"2","imagge":"x"}]}}]}"#,
            &expect![[r#"
                Some("default/a") runs ["1"]
                Some("default/b"): items[1].spec.containers: invalid type: map, expected a sequence
                Some("default/c"): items[2]: kind is "Service", expected Pod
                None: items[3]: the manifest must be an object with apiVersion, kind, metadata and spec, not a number
                Some("default/d") runs ["2"]
                warning: items[4].spec.containers[0].imagge: unknown field, read over
            "#]],
        );
        check("kind: PodList\napiVersion: v1\n", &expect![""]);
    }

    #[test]
    fn other_things_are_named() {
        for (text, expect) in [
            (
                "",
                expect![[r#"
                the manifest is empty: write a Pod of apiVersion v1
            "#]],
            ),
            (
                "# only a comment\n",
                expect![[r#"
                the manifest is empty: write a Pod of apiVersion v1
            "#]],
            ),
            (
                "- a\n- b\n",
                expect![[r#"
                the manifest must be an object with apiVersion, kind, metadata and spec, not a list
            "#]],
            ),
            (
                "just words",
                expect![[r#"
                the manifest must be an object with apiVersion, kind, metadata and spec, not a text
            "#]],
            ),
            (
                "kind: Service\napiVersion: v1\n",
                expect![[r#"
                kind is "Service", expected Pod or PodList
            "#]],
            ),
            (
                "kind: Pod\n",
                expect![[r#"
                apiVersion is "", expected v1
            "#]],
            ),
            (
                "kind: Pod\napiVersion: v2\n",
                expect![[r#"
                apiVersion is "v2", expected v1
            "#]],
            ),
            (
                "apiVersion: v1\nkind: [Pod]\n",
                expect![[r#"
                kind is "a list", expected Pod or PodList
            "#]],
            ),
            (
                "apiVersion: v1\nkind: PodList\nitems: 7\n",
                expect![[r#"
                items: expected a list of pods, not a number
            "#]],
            ),
        ] {
            check(text, &expect);
        }
        assert_eq!(
            decode_pod(b"kind: PodList\napiVersion: v1\n", &FILE_LIMITS).unwrap_err().to_string(),
            "kind is \"PodList\", expected Pod",
            "a file holds one pod, as upstream"
        );
    }

    #[test]
    fn wrong_types_name_their_field() {
        for (line, expect) in [
            (
                "  - {name: c, image: i, ports: [{containerPort: http}]}",
                expect![[r#"
                spec.containers[0].ports[0].containerPort: invalid type: string "http", expected i32
            "#]],
            ),
            (
                "  - {name: c, image: i, env: [{name: A, value: 1}]}",
                expect![[r#"
                    spec.containers[0].env[0].value: invalid type: integer `1`, expected a string: put it in quotes
                "#]],
            ),
            (
                "  - {name: c, image: i, stdin: sure}",
                expect![[r#"
                spec.containers[0].stdin: invalid type: string "sure", expected a boolean
            "#]],
            ),
            (
                "  - just words",
                expect![[r#"
                spec.containers[0]: invalid type: string "just words", expected Container
            "#]],
            ),
        ] {
            check(format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  containers:\n{line}\n"), &expect);
        }
    }

    #[test]
    fn what_is_read_over_is_told() {
        check(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p, colour: red}\nspec:\n  containers:\n  - {name: c, image: i, image: j, prots: []}\n  hostNework: true\n---\nkind: Pod\n",
            &expect![[r#"
                Some("default/p") runs ["j"]
                warning: spec.containers[0].image: written twice, the last one counts
                warning: only the first document is read: write each pod to a file of its own
                warning: metadata.colour: unknown field, read over
                warning: spec.containers[0].prots: unknown field, read over
                warning: spec.hostNework: unknown field, read over
            "#]],
        );
        let many: String = (0..1000).map(|i| format!("  field{i}: 1\n")).collect();
        let (_, warnings) = decode_pod(format!("{POD}{many}").as_bytes(), &FILE_LIMITS).expect("a pod");
        assert_eq!((warnings.len(), warnings[16].as_str()), (17, "and more of the kind"));
    }

    #[test]
    fn quantities_may_be_numbers() {
        let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  overhead: {cpu: 0.5}\n  resources: {limits: {cpu: 2}}\n  containers:\n  - name: c\n    resources: {limits: {cpu: 1, memory: 1e9}, requests: {cpu: 0.25}}\n    env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1}}}]\n  volumes: [{name: v, emptyDir: {sizeLimit: 1000}}]\n";
        let (pod, _) = decode_pod(text.as_bytes(), &FILE_LIMITS).expect("a pod");
        let spec = serde_json::to_value(pod.spec).expect("json");
        for (pointer, expect) in [
            ("/overhead/cpu", "0.5"),
            ("/resources/limits/cpu", "2"),
            ("/containers/0/resources/limits/cpu", "1"),
            ("/containers/0/resources/limits/memory", "1000000000"),
            ("/containers/0/resources/requests/cpu", "0.25"),
            ("/containers/0/env/0/valueFrom/resourceFieldRef/divisor", "1"),
            ("/volumes/0/emptyDir/sizeLimit", "1000"),
        ] {
            assert_eq!(spec.pointer(pointer).and_then(Value::as_str), Some(expect), "{pointer}");
        }
    }

    #[test]
    fn hostile_texts_cost_little() {
        let bomb = {
            let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
            for i in 1..12 {
                let above = i - 1;
                text += &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{above}"); 10].join(", "));
            }
            text
        };
        let deep = format!("{}{}", "[".repeat(300_000), "]".repeat(300_000));
        let half = &POD.as_bytes()[..POD.len() - 12];
        for (what, text) in [
            ("alias bomb", bomb.into_bytes()),
            ("nested lists", deep.into_bytes()),
            ("open brackets", b"{\"a\":".repeat(100_000)),
            ("truncated", half.to_vec()),
            ("not UTF-8", [POD.as_bytes(), b"# \xff\xfe\n"].concat()),
            ("ten megabytes", [POD.as_bytes(), &b"# padding\n".repeat(1 << 20)].concat()),
            ("zeros", vec![0; 4096]),
        ] {
            let error = decode_pods(&text, &FILE_LIMITS).expect_err(what);
            assert!(matches!(error, DecodeError::Text(_)), "{what}: {error}");
        }
        let many: String = (0..1200).map(|i| format!("{{\"metadata\":{{\"name\":\"p{i}\"}}}},")).collect();
        let list = format!("{{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"items\":[{}]}}", many.trim_end_matches(','));
        let decoded = decode_pods(list.as_bytes(), &URL_LIMITS).expect("a list");
        assert_eq!(
            (decoded.items.len(), decoded.warnings.as_slice()),
            (MAX_LISTED, ["of 1200 pods in the list only the first 1000 are read".to_owned()].as_slice())
        );
    }
}

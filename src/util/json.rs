//! JSON to typed objects, by one way.
//!
//! Pure; called from any thread; owns nothing. serde writes the code that reads a type once for each kind of reader,
//! and of a `Pod` that is a quarter of a megabyte. So everything of the Kubernetes API is parsed to a [`Value`] first,
//! and read from there. Nothing here may name a type of an object, or keep a text that it was given.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// A value is not what its place asks for.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}")]
pub struct Misplaced {
    /// Where: `spec.containers[0].image`, `.` for the whole.
    pub path: String,
    /// serde's words; they quote the value.
    #[source]
    pub error: serde_json::Error,
}

/// Why a text is not the object that was expected.
#[derive(Debug, thiserror::Error)]
pub enum Mistake {
    /// It is not JSON.
    #[error(transparent)]
    Syntax(serde_json::Error),
    /// It holds something else.
    #[error(transparent)]
    Field(#[from] Misplaced),
}

/// Reads an object out of a text.
///
/// # Errors
/// The text is not JSON, or a value is not what its place asks for.
pub fn from_slice<T: DeserializeOwned>(text: &[u8]) -> Result<T, Mistake> {
    Ok(from_value(&serde_json::from_slice(text).map_err(Mistake::Syntax)?)?)
}

/// Reads an object out of a parsed text.
///
/// # Errors
/// A value is not what its place asks for.
pub fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, Misplaced> {
    T::deserialize(value).map_err(|error| {
        let says = error.to_string();
        let fails = |value: &Value| T::deserialize(value).is_err_and(|error| error.to_string() == says);
        Misplaced { path: place(value, &fails), error }
    })
}

/// Fields that an object was given and has not kept, each by its path: nobody knows them. `kept` is the object as it
/// is written again. A field whose value is `null` says nothing, and is not missed.
pub fn unknown_fields(given: &Value, kept: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare(given, kept, "", &mut found);
    found
}

fn compare(given: &Value, kept: &Value, path: &str, found: &mut Vec<String>) {
    match (given, kept) {
        (Value::Object(given), Value::Object(kept)) => {
            for (name, value) in given {
                let path = below(path, name);
                match kept.get(name) {
                    Some(kept) => compare(value, kept, &path, found),
                    None if value.is_null() => {}
                    None => found.push(path),
                }
            }
        }
        (Value::Array(given), Value::Array(kept)) => {
            for (index, (given, kept)) in given.iter().zip(kept).enumerate() {
                compare(given, kept, &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Where in `value` the reader fails. It reads in order and ends at the first mistake, so the culprit among a node's
/// children is the first without which, and without those after it, it does not fail any more.
fn place(value: &Value, fails: &dyn Fn(&Value) -> bool) -> String {
    let mut path = String::new();
    let mut root = value.clone();
    // The way to the node in `root`, from which all that lies beside it is cut off.
    let mut way: Vec<String> = Vec::new();
    loop {
        let pointer: String =
            way.iter().map(|step| format!("/{}", step.replace('~', "~0").replace('/', "~1"))).collect();
        let Some(whole) = root.pointer_mut(&pointer).map(Value::take) else { break };
        let mut fails_with = |part: Value| {
            if let Some(node) = root.pointer_mut(&pointer) {
                *node = part;
            }
            fails(&root)
        };
        let (mut fine, mut bad) = (None, children(&whole));
        // `bad` children fail; `fine` ones, if any number is known to be so, do not.
        while bad > fine.map_or(0, |fine: usize| fine + 1) {
            let middle = fine.map_or(0, |fine| fine + (bad - fine) / 2);
            if fails_with(first(&whole, middle)) { bad = middle } else { fine = Some(middle) }
        }
        let Some(culprit) = bad.checked_sub(1) else { break };
        let (step, name, only) = alone(whole, culprit);
        fails_with(only);
        path = match name {
            Some(name) => below(&path, &name),
            None => format!("{path}[{culprit}]"),
        };
        way.push(step);
    }
    if path.is_empty() { ".".to_owned() } else { path }
}

fn children(value: &Value) -> usize {
    match value {
        Value::Object(fields) => fields.len(),
        Value::Array(items) => items.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// The value with its first children alone.
fn first(value: &Value, count: usize) -> Value {
    match value {
        Value::Object(fields) => fields.iter().take(count).map(|(name, value)| (name.clone(), value.clone())).collect(),
        Value::Array(items) => items.iter().take(count).cloned().collect(),
        other => other.clone(),
    }
}

/// The value with one child alone; the step that leads to it now, and its name if it has one.
fn alone(value: Value, index: usize) -> (String, Option<String>, Value) {
    match value {
        Value::Object(fields) => match fields.into_iter().nth(index) {
            Some((name, child)) => (name.clone(), Some(name.clone()), Value::from_iter([(name, child)])),
            None => (String::new(), None, Value::Null),
        },
        Value::Array(mut items) => ("0".to_owned(), None, Value::Array(vec![items.swap_remove(index)])),
        other => (String::new(), None, other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::v1::Pod;
    use proptest::prelude::*;
    use serde_json::json;

    fn check(value: &Value, expect: &str) {
        let found = match from_value::<Pod>(value) {
            Ok(_) => "a pod".to_owned(),
            Err(mistake) => mistake.to_string(),
        };
        assert_eq!(found, expect, "{value}");
    }

    #[test]
    fn a_mistake_is_named_with_its_place() {
        let pod = |spec: Value| json!({"metadata": {"name": "p"}, "spec": spec});
        check(&pod(json!({"containers": [{"name": "c"}]})), "a pod");
        check(&json!(7), ".: invalid type: integer `7`, expected Pod");
        check(&pod(json!(7)), "spec: invalid type: integer `7`, expected PodSpec");
        check(&pod(json!({"containers": {"name": "c"}})), "spec.containers: invalid type: map, expected a sequence");
        check(
            &pod(
                json!({"containers": [{"name": "a"}, {"name": "b", "ports": [{"containerPort": 1}, {"containerPort": "x"}]}]}),
            ),
            "spec.containers[1].ports[1].containerPort: invalid type: string \"x\", expected i32",
        );
        // Of two of the same words it is the one that is read first.
        check(
            &pod(json!({"containers": [{"image": 1}, {"name": 1}], "hostname": 1})),
            "spec.containers[0].image: invalid type: integer `1`, expected a string",
        );
        check(
            &json!({"metadata": {"annotations": {"a": "", "b/~c": 1, "d": ""}}}),
            "metadata.annotations.b/~c: invalid type: integer `1`, expected a string",
        );
    }

    #[test]
    fn a_text_that_is_no_json_is_told_apart() {
        assert!(matches!(from_slice::<Pod>(b"{"), Err(Mistake::Syntax(_))));
        assert!(matches!(from_slice::<Pod>(b"[]"), Err(Mistake::Field(_))));
        assert!(from_slice::<Pod>(b"{}").is_ok());
    }

    #[test]
    fn unknown_fields_are_found() {
        let unknown = |given: Value| {
            let kept = serde_json::to_value(from_value::<Pod>(&given).expect("a pod")).expect("JSON");
            unknown_fields(&given, &kept).join(" ")
        };
        let known = json!({"metadata": {"labels": {"a": ""}}, "spec": {"nodeName": null, "containers": [
            {"name": "c", "resources": {"limits": {"cpu": "1"}}, "ports": [], "livenessProbe": {"httpGet": {"port": "a"}}}]}});
        assert_eq!(unknown(known), "");
        assert_eq!(
            unknown(
                json!({"kinds": 1, "spec": {"container": 1, "containers": [{}, {"imagge": {"a": 1}, "env": [{"nam": 1}]}]}})
            ),
            "kinds spec.container spec.containers[1].env[0].nam spec.containers[1].imagge"
        );
    }

    proptest! {
        /// Wherever a list is broken, and however large what lies around it is.
        #[test]
        fn the_broken_one_of_many_is_found(count in 1_usize..40, broken in 0_usize..40, name in "[a-z/~.]{1,5}") {
            let broken = broken % count;
            let mut items: Vec<Value> = (0..count).map(|n| json!({"name": n.to_string(), "value": ""})).collect();
            items[broken]["value"] = json!({name: 1});
            let pod = json!({"spec": {"containers": [{"env": items}], "volumes": [{"name": "v"}]}});
            let found = from_value::<Pod>(&pod).err().map(|mistake| mistake.to_string()).unwrap_or_default();
            prop_assert!(found.starts_with(&format!("spec.containers[0].env[{broken}].value: ")), "{found}");
        }
    }
}

//! Patches that the upstream kubelet 1.36.3 sent in one real run: from one status to the next that they led to, ours
//! have to be the same.
//!
//! `recorded_patches.json` holds them in their order, without the nulls that say nothing.

use serde_json::Map;

use super::*;

/// What a patch makes of a value, as the API server does it.
fn apply(value: &mut Value, patch: &Value) {
    let (Value::Object(value), Value::Object(patch)) = (value, patch) else { panic!("no object: {patch}") };
    for (key, change) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
        let merge_key =
            [("conditions", "type"), ("podIPs", "ip"), ("hostIPs", "ip")].into_iter().find(|(list, _)| list == key);
        match (change, merge_key) {
            (Value::Null, _) => drop(value.remove(key)),
            (Value::Array(items), Some((_, by))) => {
                let order = patch.get(&format!("$setElementOrder/{key}"));
                let list = value.entry(key).or_insert_with(|| json!([]));
                apply_list(list.as_array_mut().expect("a list"), items, by);
                if let Some(Value::Array(order)) = order {
                    let place = |item: &Value| order.iter().position(|other| other[by] == item[by]);
                    list.as_array_mut().expect("a list").sort_by_key(place);
                }
            }
            (Value::Object(_), _) => apply(value.entry(key).or_insert_with(|| json!({})), change),
            (change, _) => drop(value.insert(key.clone(), change.clone())),
        }
    }
}

fn apply_list(list: &mut Vec<Value>, items: &[Value], by: &str) {
    for item in items {
        let at = list.iter().position(|other| other[by] == item[by]);
        match (at, item["$patch"] == "delete") {
            (Some(at), true) => drop(list.remove(at)),
            (None, true) => {}
            (Some(at), false) => apply(&mut list[at], item),
            (None, false) => list.push(item.clone()),
        }
    }
}

#[test]
fn patches_are_those_that_upstream_sent() {
    let recorded: Vec<Value> = serde_json::from_str(include_str!("recorded_patches.json")).expect("the record");
    let mut statuses: BTreeMap<String, Value> = BTreeMap::new();
    let mut differ = Vec::new();
    for (line, step) in recorded.iter().enumerate() {
        let pod = step["pod"].as_str().expect("a pod");
        let status = statuses.entry(pod.to_owned()).or_insert_with(|| Value::Object(Map::new()));
        let old: PodStatus = serde_json::from_value(status.clone()).expect("a status");
        apply(status, &step["status"]);
        let new: PodStatus = serde_json::from_value(status.clone()).expect("a status");
        let ours = patch("u", &old, &new).map_or(Value::Null, |patch| patch["status"].clone());
        if ours != step["status"] {
            differ.push(format!("step {line} of {pod}:\n ours {ours}\nrecorded {}", step["status"]));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

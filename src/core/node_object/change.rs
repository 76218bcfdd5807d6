//! Whether two Node objects say different things, and the patch that makes one of the other.
//!
//! Layer L1, pure. The patch is a strategic merge patch for the status subresource, which takes labels
//! and annotations too. Lists are replaced whole, except conditions, which merge by their type.

use serde_json::{Map, Value, json};

use crate::api::v1::{Node, NodeCondition};
use crate::util::order;

/// Whether `new` says more than that time has passed.
pub fn differs(old: &Node, new: &Node) -> bool {
    let plain = |node: &Node| {
        let status = node.status.as_ref();
        let mut conditions: Vec<NodeCondition> =
            status.and_then(|status| status.conditions.clone()).unwrap_or_default();
        for condition in &mut conditions {
            condition.last_heartbeat_time = None;
            // The server keeps whole seconds.
            condition.last_transition_time = None;
        }
        order::sort_by(&mut conditions, |a, b| a.type_.cmp(&b.type_));
        conditions
    };
    plain(old) != plain(new) || !patch_parts(old, new, Heartbeats::Left).is_empty()
}

/// The patch, heartbeats of the conditions included; `None` if there is nothing in it.
pub fn patch(old: &Node, new: &Node) -> Option<Value> {
    let parts = patch_parts(old, new, Heartbeats::Sent);
    if parts.is_empty() { None } else { Some(Value::Object(parts)) }
}

/// Whether conditions are part of a comparison.
#[derive(Clone, Copy, PartialEq)]
enum Heartbeats {
    Sent,
    Left,
}

fn patch_parts(old: &Node, new: &Node, heartbeats: Heartbeats) -> Map<String, Value> {
    let mut parts = Map::new();
    let mut metadata = Map::new();
    for (key, old, new) in [
        ("labels", &old.metadata.labels, &new.metadata.labels),
        ("annotations", &old.metadata.annotations, &new.metadata.annotations),
    ] {
        let changes = difference(&json!(old.clone().unwrap_or_default()), &json!(new.clone().unwrap_or_default()));
        if let Some(changes) = changes {
            metadata.insert(key.to_owned(), changes);
        }
    }
    if !metadata.is_empty() {
        parts.insert("metadata".to_owned(), Value::Object(metadata));
    }
    let status = |node: &Node| match serde_json::to_value(node.status.as_ref()) {
        Ok(Value::Object(status)) => status,
        _ => Map::new(),
    };
    let (mut before, mut after) = (status(old), status(new));
    let conditions = (before.remove("conditions"), after.remove("conditions"));
    let mut changes = match difference(&Value::Object(before), &Value::Object(after)) {
        Some(Value::Object(changes)) => changes,
        _ => Map::new(),
    };
    // The API merges addresses by their type, so that two of one type or a new order would be lost.
    if let Some(Value::Array(addresses)) = changes.get_mut("addresses") {
        addresses.push(json!({"$patch": "replace"}));
    }
    if heartbeats == Heartbeats::Sent {
        let (old, new) = (list(conditions.0), list(conditions.1));
        let changed: Vec<Value> = new.into_iter().filter(|condition| !old.contains(condition)).collect();
        if !changed.is_empty() {
            changes.insert("conditions".to_owned(), Value::Array(changed));
        }
    }
    if !changes.is_empty() {
        parts.insert("status".to_owned(), Value::Object(changes));
    }
    parts
}

fn list(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

/// What has to be merged into `old` for `new`: objects key by key, with null for what is gone, everything
/// else whole. `None` if they are the same.
fn difference(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(before), Value::Object(after)) = (old, new) else { return Some(new.clone()) };
    let mut changes = Map::new();
    for (key, value) in after {
        match before.get(key) {
            Some(old) => changes.extend(difference(old, value).map(|change| (key.clone(), change))),
            None => drop(changes.insert(key.clone(), value.clone())),
        }
    }
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    changes.extend(gone.map(|key| (key.clone(), Value::Null)));
    Some(Value::Object(changes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(value: Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    fn condition(type_: &str, status: &str, second: u32) -> Value {
        json!({"type": type_, "status": status, "lastHeartbeatTime": format!("2026-01-01T00:00:{second:02}Z")})
    }

    fn check(old: Value, new: Value, news: bool, expect: Option<Value>) {
        let (old, new) = (node(old), node(new));
        assert_eq!((differs(&old, &new), patch(&old, &new)), (news, expect), "{old:?} to {new:?}");
    }

    #[test]
    fn a_heartbeat_is_sent_but_is_no_news() {
        let at =
            |second| json!({"status": {"conditions": [condition("Ready", "True", second), condition("X", "True", 0)]}});
        check(at(1), at(1), false, None);
        check(at(1), at(2), false, Some(json!({"status": {"conditions": [condition("Ready", "True", 2)]}})));
    }

    #[test]
    fn the_order_of_conditions_is_no_news() {
        let (a, b) = (condition("A", "True", 1), condition("B", "True", 1));
        check(
            json!({"status": {"conditions": [a.clone(), b.clone()]}}),
            json!({"status": {"conditions": [b, a]}}),
            false,
            None,
        );
    }

    #[test]
    fn what_differs_is_named_and_no_more() {
        check(
            json!({"metadata": {"labels": {"a": "1", "b": "2"}, "annotations": {"n": "x"}}}),
            json!({"metadata": {"labels": {"a": "1", "b": "3", "c": "4"}}}),
            true,
            Some(json!({"metadata": {"labels": {"b": "3", "c": "4"}, "annotations": {"n": null}}})),
        );
        check(
            json!({"status": {"capacity": {"cpu": "2", "hugepages-1Gi": "0"}, "allocatable": {"cpu": "2"}}}),
            json!({"status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "2"}}}),
            true,
            Some(json!({"status": {"capacity": {"cpu": "4", "hugepages-1Gi": null}}})),
        );
        let images = |name: &str| json!({"status": {"images": [{"names": [name], "sizeBytes": 1}]}});
        check(images("a"), images("b"), true, Some(images("b")));
        check(
            json!({"status": {"conditions": [condition("Ready", "Unknown", 1)]}}),
            json!({"status": {"conditions": [condition("Ready", "True", 1)]}}),
            true,
            Some(json!({"status": {"conditions": [condition("Ready", "True", 1)]}})),
        );
    }

    #[test]
    fn addresses_are_replaced_as_a_list() {
        let address = |ip: &str| json!({"type": "InternalIP", "address": ip});
        check(
            json!({"status": {"addresses": [address("10.0.0.1")]}}),
            json!({"status": {"addresses": [address("10.0.0.2"), address("fd00::2")]}}),
            true,
            Some(json!({"status": {"addresses": [address("10.0.0.2"), address("fd00::2"), {"$patch": "replace"}]}})),
        );
    }
}

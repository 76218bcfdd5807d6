//! The strategic merge patch that turns the status that the API has into the one that the node tells.
//!
//! Layer L1, pure. What others own is taken from the API's status: their conditions, and the states of
//! resource claims. Lists are patched as the API's types say: conditions by type, addresses by
//! themselves, container statuses as a whole. It never touches what the node agent does not own.

use serde_json::{Map, Value, json};

use super::conditions::{find, is_own, is_shared};
use super::{Phase, differs};
use crate::api::v1::{PodCondition, PodStatus};

/// Lists of a pod status that are merged, and the field by which their items are known.
const MERGED_LISTS: [(&str, &str); 4] =
    [("conditions", "type"), ("hostIPs", "ip"), ("podIPs", "ip"), ("resourceClaimStatuses", "name")];

/// The patch for `pods/status`, with the pod's uid as its precondition; `None` if the API knows it all.
pub fn patch(uid: &str, of_api: &PodStatus, ours: &PodStatus) -> Option<Value> {
    let merged = merge(of_api, ours);
    if !differs(of_api, &merged) {
        return None;
    }
    // A status is plain data: it always has a form in JSON.
    let (old, new) = (serde_json::to_value(of_api).ok()?, serde_json::to_value(&merged).ok()?);
    let status = difference(old.as_object()?, new.as_object()?, &MERGED_LISTS)?;
    Some(json!({"metadata": {"uid": uid}, "status": status}))
}

/// Our status with what others own as the API has it.
fn merge(of_api: &PodStatus, ours: &PodStatus) -> PodStatus {
    let theirs = of_api.conditions.iter().flatten().filter(|c| !is_own(&c.type_));
    let mut conditions: Vec<PodCondition> = theirs.cloned().collect();
    let ends_now = ends(ours) && !ends(of_api);
    for condition in ours.conditions.iter().flatten() {
        if is_own(&condition.type_) {
            conditions.push(condition.clone());
        } else if is_shared(&condition.type_) && ends_now {
            match conditions.iter_mut().find(|c| c.type_ == condition.type_) {
                Some(same) if find(of_api, &condition.type_).is_some_and(|c| c.status == condition.status) => {
                    let since = same.last_transition_time.clone();
                    *same = PodCondition { last_transition_time: since, ..condition.clone() };
                }
                Some(other) => *other = condition.clone(),
                None => conditions.push(condition.clone()),
            }
        }
    }
    PodStatus {
        conditions: Some(conditions).filter(|c| !c.is_empty()),
        resource_claim_statuses: of_api.resource_claim_statuses.clone(),
        extended_resource_claim_status: of_api.extended_resource_claim_status.clone(),
        node_allocatable_resource_claim_statuses: of_api.node_allocatable_resource_claim_statuses.clone(),
        nominated_node_name: of_api.nominated_node_name.clone(),
        ..ours.clone()
    }
}

fn ends(status: &PodStatus) -> bool {
    Phase::of(status).is_some_and(Phase::is_terminal)
}

/// What has to be said so that `old` becomes `new`; `None` if they are the same. A field that is gone
/// becomes null.
fn difference(old: &Map<String, Value>, new: &Map<String, Value>, lists: &[(&str, &str)]) -> Option<Value> {
    let mut patch = Map::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        let merge_key = lists.iter().find(|(list, _)| list == key).map(|(_, merge_key)| *merge_key);
        match (old.get(key), value, merge_key) {
            (Some(before), value, _) if before == value => {}
            (Some(Value::Object(before)), Value::Object(now), _) => {
                if let Some(inner) = difference(before, now, &[]) {
                    patch.insert(key.clone(), inner);
                }
            }
            (Some(Value::Array(before)), Value::Array(now), Some(merge_key)) => {
                patch_list(&mut patch, key, before, now, merge_key);
            }
            (_, value, _) => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    Some(patch).filter(|patch| !patch.is_empty()).map(Value::Object)
}

/// Patches a list whose items are known by one of their fields, and tells the order of all items.
fn patch_list(patch: &mut Map<String, Value>, key: &str, old: &[Value], new: &[Value], merge_key: &str) {
    let same = |item: &Value, list: &[Value]| list.iter().position(|other| other.get(merge_key) == item.get(merge_key));
    let name = |item: &Value| item.get(merge_key).cloned().unwrap_or_default();
    let mut items = Vec::new();
    for item in new {
        match (same(item, old).and_then(|at| old[at].as_object()), item.as_object()) {
            (Some(before), Some(now)) => {
                if let Some(Value::Object(mut changed)) = difference(before, now, &[]) {
                    changed.insert(merge_key.to_owned(), name(item));
                    items.push(Value::Object(changed));
                }
            }
            (None, _) | (_, None) => items.push(item.clone()),
        }
    }
    for item in old.iter().filter(|item| same(item, new).is_none()) {
        items.push(json!({"$patch": "delete", merge_key: name(item)}));
    }
    let order: Vec<Value> = new.iter().map(|item| json!({ merge_key: name(item) })).collect();
    patch.insert(format!("$setElementOrder/{key}"), Value::Array(order));
    if !items.is_empty() {
        patch.insert(key.to_owned(), Value::Array(items));
    }
}

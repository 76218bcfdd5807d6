//! A configuration as text: YAML for people, JSON for /configz. Pure; runs on any thread; changes nothing.

use super::decode::{Field, Presence};
use super::nested::{
    AnonymousAuthentication, Authentication, Authorization, CrashLoopBackOff, LogRouting, Logging, LoggingOptions,
    MemorySwap, Taint, Tracing, UserNamespaces, WebhookAuthentication, WebhookAuthorization, X509Authentication,
};
use super::types::KubeletConfiguration;
use serde_json::{Map, Value};

/// The whole configuration as YAML: every field, in the order of the struct.
pub fn to_yaml(config: &KubeletConfiguration) -> String {
    // Writing plain values to a string fails only on maps with odd keys, and there are none.
    serde_yaml::to_string(config).unwrap_or_else(|error| format!("# cannot be written as YAML: {error}\n"))
}

/// The whole configuration as a JSON map: every field, null where one is not set.
pub fn to_map(config: &KubeletConfiguration) -> Map<String, Value> {
    match serde_json::to_value(config) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// The configuration as /configz shows it: without fields that the API leaves out when empty.
pub fn to_configz(config: &KubeletConfiguration) -> Value {
    let mut map = to_map(config);
    prune(&mut map, KubeletConfiguration::FIELDS);
    Value::Object(map)
}

/// The fields of the struct that a field holds.
fn inner(name: &str, value: &Map<String, Value>) -> Option<&'static [Field]> {
    Some(match name {
        "authentication" => Authentication::FIELDS,
        "authorization" => Authorization::FIELDS,
        "x509" => X509Authentication::FIELDS,
        "webhook" if value.contains_key("enabled") => WebhookAuthentication::FIELDS,
        "webhook" => WebhookAuthorization::FIELDS,
        "anonymous" => AnonymousAuthentication::FIELDS,
        "memorySwap" => MemorySwap::FIELDS,
        "logging" => Logging::FIELDS,
        "options" => LoggingOptions::FIELDS,
        "text" | "json" => LogRouting::FIELDS,
        "crashLoopBackOff" => CrashLoopBackOff::FIELDS,
        "registerWithTaints" => Taint::FIELDS,
        "tracing" => Tracing::FIELDS,
        "userNamespaces" => UserNamespaces::FIELDS,
        _ => return None,
    })
}

fn prune(map: &mut Map<String, Value>, fields: &[Field]) {
    for field in fields {
        let empty = map.get(field.name).is_none_or(|value| match field.presence {
            Presence::Pointer => value.is_null(),
            Presence::Zero => is_zero(value),
            Presence::Always => false,
        });
        if empty {
            map.remove(field.name);
            continue;
        }
        let values = match map.get_mut(field.name) {
            Some(Value::Array(list)) => list.iter_mut().collect(),
            Some(value) => vec![value],
            None => Vec::new(),
        };
        for value in values.into_iter().filter_map(Value::as_object_mut) {
            if let Some(fields) = inner(field.name, value) {
                prune(value, fields);
            }
        }
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

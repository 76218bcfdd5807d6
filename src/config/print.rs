//! A configuration as text: YAML for people, JSON for /configz. Pure; runs on any thread; changes nothing.

use super::decode::{Field, Presence};
use super::nested::{
    AnonymousAuthentication, Authentication, Authorization, CrashLoopBackOff, LogRouting, Logging, LoggingOptions,
    MemorySwap, Taint, Tracing, UserNamespaces, WebhookAuthentication, WebhookAuthorization, X509Authentication,
};
use super::types::KubeletConfiguration;
use super::yaml::{Limits, yaml_to_json};
use serde_json::{Map, Value};

/// The whole configuration as YAML: every field, in the order of the struct.
///
/// serde_yaml's own writer follows YAML 1.2 and leaves `yes` and `0644` without quotes, which the Go tools read as a truth value
/// and a number; so the text is made here.
pub fn to_yaml(config: &KubeletConfiguration) -> String {
    let mut text = String::new();
    if let Ok(serde_yaml::Value::Mapping(map)) = serde_yaml::to_value(config) {
        write_map(&mut text, &map, 0);
    }
    text
}

fn write_map(out: &mut String, map: &serde_yaml::Mapping, indent: usize) {
    for (key, value) in map {
        out.extend(std::iter::repeat_n(' ', indent));
        write_scalar(out, key);
        out.push(':');
        write_value(out, value, indent);
    }
}

/// What stands after `name:`, with the line's end.
fn write_value(out: &mut String, value: &serde_yaml::Value, indent: usize) {
    use serde_yaml::Value as Yaml;
    match value {
        Yaml::Mapping(map) if !map.is_empty() => {
            out.push('\n');
            write_map(out, map, indent + 2);
        }
        Yaml::Sequence(list) if !list.is_empty() => {
            out.push('\n');
            for item in list {
                out.extend(std::iter::repeat_n(' ', indent));
                out.push('-');
                match item {
                    Yaml::Mapping(map) if !map.is_empty() => {
                        let mut lines = String::new();
                        write_map(&mut lines, map, indent + 2);
                        out.push(' ');
                        out.push_str(lines.trim_start());
                    }
                    item => write_value(out, item, indent),
                }
            }
        }
        other => {
            out.push(' ');
            write_scalar(out, other);
            out.push('\n');
        }
    }
}

fn write_scalar(out: &mut String, value: &serde_yaml::Value) {
    use serde_yaml::Value as Yaml;
    match value {
        Yaml::Null => out.push_str("null"),
        Yaml::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Yaml::Number(number) => out.push_str(&number.to_string()),
        Yaml::String(text) if is_plain(text) => out.push_str(text),
        Yaml::String(text) => write_quoted(out, text),
        Yaml::Sequence(_) => out.push_str("[]"),
        Yaml::Mapping(_) | Yaml::Tagged(_) => out.push_str("{}"),
    }
}

/// Whether a text stands for itself without quotes.
fn is_plain(text: &str) -> bool {
    let simple = |byte: u8| byte.is_ascii_alphanumeric() || b"_./%@+:-".contains(&byte);
    let starts = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'/';
    text.as_bytes().first().is_some_and(starts)
        && text.bytes().all(simple)
        && !text.ends_with(':')
        && yaml_to_json(text.as_bytes(), &Limits::default()).is_ok_and(|document| document.value == text)
}

fn write_quoted(out: &mut String, text: &str) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            // YAML takes some letters beyond ASCII for line breaks or marks.
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            letter if letter.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(letter))),
            letter => out.push(letter),
        }
    }
    out.push('"');
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        let mut out = String::new();
        write_scalar(&mut out, &serde_yaml::Value::String(text.to_owned()));
        assert_eq!(out, expect);
    }

    #[test]
    fn text_is_quoted_where_go_would_take_it_for_something_else() {
        for plain in ["a", "10Mi", "1m30s", "0.0.0.0", "/var/log", "unix:///run/x.sock", "a:b", "50%", "TRUe"] {
            check(plain, plain);
        }
        for text in
            ["yes", "No", "on", "y", "0644", "1_000", "1e3", "true", "null", "0x1f", "a:", "-a", "@a", "a b", "%"]
        {
            check(text, &format!("\"{text}\""));
        }
        check("", "\"\"");
        check("a\"\\\n\u{85}\u{2028}ä", r#""a\"\\\n\u0085\u2028ä""#);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_back(texts in proptest::collection::vec(".{0,12}|[a-z0-9:#.+_-]{0,6}", 1..4), key in ".{0,5}") {
            // No setting is called so, and the reader cannot tell it from a merge key: quotes do not reach it.
            proptest::prop_assume!(key != "<<");
            let map: serde_yaml::Mapping = [(key.clone().into(), texts.clone().into()), ("inner".into(), serde_yaml::Value::Mapping([(key.clone().into(), key.clone().into())].into_iter().collect()))].into_iter().collect();
            let mut out = String::new();
            write_map(&mut out, &map, 0);
            let document = yaml_to_json(out.as_bytes(), &Limits::default()).unwrap();
            if key != "inner" {
                assert_eq!(document.value, serde_json::json!({key.clone(): texts, "inner": {key.clone(): key}}), "{out}");
            }
        }
    }
}

//! `/configz`, `/flagz` and `/statusz`: with what the agent runs, and since when.
//!
//! On the threads that serve requests. The flags are read from the process's own command line when somebody asks; nothing is kept for that.

use std::fmt::Write as _;
use std::io;

use serde_json::{Map, Value, json};

use super::super::NodeParts;
use super::super::http::{Reply, Request};
use crate::config::defaults::get;
use crate::config::flags::{CONFIG, LOGGING, NODE, Target};
use crate::util::clock;
use crate::util::fs::read_bounded;
use crate::util::order;

/// Its value may hold a secret.
const HIDDEN: &str = "manifest-url-header";
const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees \
                       and is for debugging purposes only.";

/// `/configz`: the configuration in force.
pub(in crate::server::node) fn configuration(parts: &NodeParts, _: &mut Request<'_>) -> Reply {
    Reply::json(format!("{{\"kubeletconfig\":{}}}", parts.configuration.get()).into_bytes())
}

/// `/flagz`: every flag with its value.
pub(in crate::server::node) fn flags(parts: &NodeParts, request: &mut Request<'_>) -> Reply {
    let given = match command_line() {
        Ok(given) => given,
        Err(error) => return Reply::error(500, &format!("the process's own command line can't be read: {error}")),
    };
    let configuration: Map<String, Value> = serde_json::from_str(&parts.configuration.get()).unwrap_or_default();
    let values = values(&configuration, &given);
    structured(request, "Flagz", |object| {
        object.insert(
            "flags".to_owned(),
            values.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect(),
        );
    })
    .unwrap_or_else(|| {
        let mut text = format!("\nkubelet flagz\n{WARNING}\n");
        for (name, value) in &values {
            // Writing to a String cannot fail.
            let _written = writeln!(text, "{name}={value}");
        }
        Reply::text(200, &text)
    })
}

fn values(configuration: &Map<String, Value>, given: &[String]) -> Vec<(&'static str, String)> {
    let mut values: Vec<(&'static str, String)> = Vec::new();
    for flag in NODE.iter().chain(LOGGING).chain(CONFIG) {
        let value = match flag.target {
            _ if flag.name == HIDDEN => "(not shown)".to_owned(),
            Target::Config(path) => get(configuration, path).map(plain).unwrap_or_default(),
            _ => last(given, flag.name).unwrap_or(flag.default).to_owned(),
        };
        values.push((flag.name, value));
    }
    order::sort(&mut values);
    values
}

/// A value as a flag has it.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(","),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| format!("{name}={}", plain(value))).collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    }
}

fn command_line() -> io::Result<Vec<String>> {
    let bytes = read_bounded(std::path::Path::new("/proc/self/cmdline"), 1 << 20).map_err(io::Error::other)?;
    Ok(bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect())
}

/// The last value that a flag was given.
fn last<'a>(given: &'a [String], name: &str) -> Option<&'a str> {
    let mut found = None;
    for (index, word) in given.iter().enumerate() {
        let Some(word) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else { continue };
        match word.split_once('=') {
            Some((known, value)) if known == name => found = Some(value),
            None if word == name => {
                let next =
                    given.get(index + 1).map(String::as_str).filter(|next| !next.is_empty() && !next.starts_with('-'));
                found = Some(next.unwrap_or("true"));
            }
            _ => {}
        }
    }
    found
}

/// `/statusz`: version, age and paths.
pub(in crate::server::node) fn status(_: &NodeParts, request: &mut Request<'_>) -> Reply {
    let seconds = age();
    let started = jiff::Timestamp::from_second(clock::wall() / 1_000_000_000 - seconds).unwrap_or_default();
    let paths = paths();
    let version = env!("CARGO_PKG_VERSION");
    structured(request, "Statusz", |object| {
        object.insert("startTime".to_owned(), json!(started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()));
        object.insert("uptimeSeconds".to_owned(), json!(seconds));
        // The field is there for what the other implementation is built with.
        object.insert("goVersion".to_owned(), json!(""));
        object.insert("binaryVersion".to_owned(), json!(version));
        object.insert("paths".to_owned(), json!(paths));
    })
    .unwrap_or_else(|| {
        let up = format!("{} hr {:02} min {:02} sec", seconds / 3600, seconds / 60 % 60, seconds % 60);
        let started = started.strftime("%a %b %e %H:%M:%S UTC %Y");
        Reply::text(
            200,
            &format!(
                "\nkubelet statusz\n{WARNING}\n\nStarted:  {started}\nUp:  {up}\nBinary version:  {version}\nPaths:  {}\n",
                paths.join(" ")
            ),
        )
    })
}

/// How long the process runs, in seconds.
fn age() -> i64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The 22nd field, counted behind the name, which may hold anything.
    let ticks =
        stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19)).and_then(|field| field.parse().ok());
    let since_boot = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let since_boot: f64 = since_boot.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or_default();
    // The kernel shows ticks of a hundredth of a second to everybody.
    let started: f64 = ticks.unwrap_or(0.0) / 100.0;
    (since_boot - started).max(0.0) as i64
}

/// First segments of all paths.
fn paths() -> Vec<String> {
    let first = |path: &str| format!("/{}", path.trim_start_matches('/').split('/').next().unwrap_or_default());
    let mut paths: Vec<String> = super::super::routes::ROUTES.iter().map(|endpoint| first(endpoint.path)).collect();
    order::sort(&mut paths);
    paths.dedup();
    paths
}

/// The object that a client asks for by `Accept: application/json;as=KIND;g=config.k8s.io;v=v1beta1`; `None` where it wants text.
fn structured(request: &Request<'_>, kind: &str, fill: impl FnOnce(&mut Map<String, Value>)) -> Option<Reply> {
    let accept = request.header("accept").unwrap_or_default().trim();
    for choice in accept.split(',') {
        let mut parts = choice.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        if matches!(media, "" | "text/plain" | "text/*" | "*/*") {
            return None;
        }
        let parameter =
            |name: &str| choice.split(';').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='));
        let version = parameter("v").filter(|version| matches!(*version, "v1beta1" | "v1alpha1"));
        let fits = matches!(media, "application/json" | "application/*")
            && parameter("as") == Some(kind)
            && parameter("g") == Some("config.k8s.io");
        if let Some(version) = version.filter(|_| fits) {
            let mut object = Map::new();
            object.insert("kind".to_owned(), json!(kind));
            object.insert("apiVersion".to_owned(), json!(format!("config.k8s.io/{version}")));
            object.insert("metadata".to_owned(), json!({"name": "kubelet"}));
            fill(&mut object);
            return Some(Reply::json(Value::Object(object).to_string().into_bytes()));
        }
    }
    let text = format!("text/plain is told here, and application/json;as={kind};v=v1beta1;g=config.k8s.io");
    Some(Reply::error(406, &text))
}

#[cfg(test)]
mod tests {
    use super::super::super::http::request::with_request;
    use super::*;
    use std::sync::Arc;

    fn ask(handle: fn(&NodeParts, &mut Request<'_>) -> Reply, accept: &str) -> (u16, String) {
        let parts = NodeParts::for_tests();
        parts.configuration.set(Arc::new(json!({"maxPods": 7, "clusterDNS": ["a", "b"]}).to_string()));
        let reply = with_request("GET /x", "", |request| {
            if !accept.is_empty() {
                request.head.headers.push(("Accept".to_owned(), accept.to_owned()));
            }
            handle(&parts, request)
        });
        (reply.status(), String::from_utf8(reply.into_bytes().expect("a body")).expect("text"))
    }

    #[test]
    fn the_configuration_is_told() {
        assert_eq!(
            ask(configuration, ""),
            (200, r#"{"kubeletconfig":{"clusterDNS":["a","b"],"maxPods":7}}"#.to_owned())
        );
    }

    #[test]
    fn text_is_told_unless_an_object_is_asked_for() {
        for handle in [flags, status] {
            for accept in ["", "*/*", "text/plain", "application/json, */*"] {
                let (code, text) = ask(handle, accept);
                assert!(code == 200 && text.starts_with("\nkubelet "), "{accept}: {code} {text}");
            }
            for accept in ["application/json", "application/json;as=Other;v=v1beta1;g=config.k8s.io", "image/png"] {
                assert_eq!(ask(handle, accept).0, 406, "{accept}");
            }
        }
        let (_, text) = ask(status, "application/json;as=Statusz;v=v1beta1;g=config.k8s.io");
        let object: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(object["kind"], "Statusz");
        assert!(object["paths"].as_array().is_some_and(|paths| paths.contains(&json!("/pods"))), "{text}");
        assert!(object["uptimeSeconds"].as_i64().is_some_and(|seconds| (0..1_000_000).contains(&seconds)), "{text}");
        let (_, text) = ask(flags, "application/json;v=v1alpha1;g=config.k8s.io;as=Flagz");
        let object: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            (&object["apiVersion"], &object["flags"]["max-pods"]),
            (&json!("config.k8s.io/v1alpha1"), &json!("7"))
        );
    }

    #[test]
    fn flags_have_the_value_in_force() {
        let given = [
            "ferrolet",
            "--root-dir=/a",
            "--hostname-override",
            "n1",
            "-v",
            "4",
            "--root-dir",
            "/b",
            "--manifest-url-header=secret",
        ];
        let given: Vec<String> = given.iter().map(|word| (*word).to_owned()).collect();
        let configuration = json!({"maxPods": 7, "clusterDNS": ["a", "b"], "logging": {"verbosity": 4}, "staticPodURLHeader": {"x": ["secret"]}});
        let values = values(configuration.as_object().expect("a map"), &given);
        let value = |name: &str| values.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
        for (name, expect) in [
            ("root-dir", "/b"),
            ("hostname-override", "n1"),
            ("cert-dir", "/var/lib/kubelet/pki"),
            ("v", "4"),
            ("max-pods", "7"),
            ("cluster-dns", "a,b"),
        ] {
            assert_eq!(value(name), Some(expect), "{name}");
        }
        assert!(values.iter().all(|(_, value)| !value.contains("secret")));
    }
}

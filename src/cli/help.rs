//! The help: made from the tables of tools and flags, so that it cannot miss one. Runs on the main thread; asks nobody.

use super::{TOOLS, Tool, complain, print};
use crate::config::flags::{CONFIG, Flag, GLOBAL, IGNORED, Kind, LOGGING, NODE, Target};
use crate::config::{KUBELET_VERSION, KubeletConfiguration, defaults, print as yaml};
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::process::ExitCode;

/// How wide the help is, in letters.
const WIDTH: usize = 100;
/// Where the texts beside the flags begin.
const INDENT: usize = 8;

/// `ferrolet help [COMMAND]`.
pub(super) fn run(args: Vec<OsString>) -> ExitCode {
    let words: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    match words.as_slice() {
        [] => print(&whole(false)),
        [name] if TOOLS.iter().any(|tool| tool.name == name) => print(&tool(name)),
        _ => {
            complain("help takes the name of one command, see ferrolet help");
            ExitCode::from(2)
        }
    }
}

/// What one tool is for.
pub(super) fn tool(name: &str) -> String {
    match TOOLS.iter().find(|tool| tool.name == name) {
        Some(Tool { name, arguments, about, .. }) => format!("Usage: ferrolet {name} {arguments}\n\n{about}\n"),
        None => String::new(),
    }
}

/// The whole help.
pub(super) fn whole(as_kubelet: bool) -> String {
    let program = if as_kubelet { "kubelet" } else { "ferrolet" };
    let mut out =
        format!("ferrolet runs the pods of one node: it stands in for the kubelet {KUBELET_VERSION}.\n\nUsage:\n");
    out.push_str(&format!("  {program} [flags]\n      Run the agent.\n"));
    if !as_kubelet {
        for Tool { name, arguments, about, .. } in TOOLS {
            out.push_str(&format!("  {program} {name} {arguments}\n      {about}\n"));
        }
    }
    out.push_str(&format!(
        "\nA node that runs its own pods, without a cluster:\n  {program} --config /etc/kubernetes/kubelet.yaml\n"
    ));
    let map = without_a_file();
    for (title, flags) in [
        ("Flags", GLOBAL),
        ("Flags of this node", NODE),
        ("Flags of the log", LOGGING),
        (
            "Flags for fields of the configuration file (deprecated: better set the field; the defaults shown are those \
             without --config)",
            CONFIG,
        ),
        ("Flags without effect (the kubelet's cAdvisor)", IGNORED),
    ] {
        out.push('\n');
        wrap(&mut out, &format!("{title}:"), 0);
        for flag in flags {
            one(&mut out, flag, &map);
        }
    }
    out
}

/// The configuration of a command line without a file, whose values are the flags' defaults.
fn without_a_file() -> Map<String, Value> {
    let mut map = yaml::to_map(&KubeletConfiguration::default());
    defaults::apply_legacy(&mut map);
    map
}

fn one(out: &mut String, flag: &Flag, config: &Map<String, Value>) {
    let dashes = if flag.name == "v" {
        "-v, --"
    } else if flag.name == "help" {
        "-h, --"
    } else {
        "--"
    };
    let value = flag.kind.placeholder();
    out.push_str(&format!("  {dashes}{}{}{value}\n", flag.name, if value.is_empty() { "" } else { " " }));
    let (default, field) = match flag.target {
        Target::Config(path) => (shown(flag.kind, defaults::get(config, path)), Some(path)),
        _ => (flag.default.to_owned(), None),
    };
    let mut notes = Vec::new();
    notes.extend(field.map(|field| format!("field {field}")));
    if !default.is_empty() && (flag.kind != Kind::Bool || default != "false") {
        notes.push(format!("default {default}"));
    }
    match flag.target {
        Target::Node(_) if !flag.deprecated.is_empty() => notes.push(format!("deprecated: {}", flag.deprecated)),
        _ => {}
    }
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
    wrap(out, &format!("{}{notes}", flag.help), INDENT);
}

/// A default as one would type it.
fn shown(kind: Kind, value: Option<&Value>) -> String {
    let sign = match kind {
        Kind::Thresholds => "<",
        _ => "=",
    };
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match value {
        None => String::new(),
        Some(Value::Object(map)) => {
            map.iter().map(|(key, value)| format!("{key}{sign}{}", plain(value))).collect::<Vec<_>>().join(", ")
        }
        Some(Value::Array(list)) => list.iter().map(plain).collect::<Vec<_>>().join(","),
        Some(value) => plain(value),
    }
}

/// Appends a text, broken into lines at spaces.
fn wrap(out: &mut String, text: &str, indent: usize) {
    let mut column = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            out.push('\n');
            column = 0;
        }
        if column == 0 {
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
}

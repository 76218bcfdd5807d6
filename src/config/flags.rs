//! The command line, read as the kubelet's flag library does. Pure (no files, no output); runs on the main thread. Collects every
//! problem and warning instead of stopping at the first.

use super::problem::{Problem, nearest};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::ffi::OsString;

mod node_flags;
mod table;
#[cfg(test)]
mod tests;
mod value;

pub use node_flags::NodeFlags;
pub use table::{CONFIG, Flag, GLOBAL, IGNORED, LOGGING, NODE, Target, all, find};
pub use value::Kind;

/// What `--version` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionRequest {
    /// One line.
    Short,
    /// `--version=raw`: everything.
    Raw,
}

/// A command line after reading.
#[derive(Debug, Default)]
pub struct CommandLine {
    /// Whether the help is asked for; nothing else counts then.
    pub help: bool,
    /// Whether the version is asked for; nothing but the help counts before it.
    pub version: Option<VersionRequest>,
    /// The flags about this node.
    pub node: NodeFlags,
    /// Node flags that were used, by name.
    pub node_flags_used: Vec<&'static str>,
    /// What flags set in the configuration: by path, with the flag's name.
    pub settings: BTreeMap<&'static str, (&'static str, Value)>,
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// What is accepted but should be known.
    pub warnings: Vec<String>,
}

/// Reads the arguments after the program's name.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> CommandLine {
    let mut line = CommandLine::default();
    let mut args = args.into_iter().peekable();
    let mut used: BTreeMap<&'static str, &'static Flag> = BTreeMap::new();
    while let Some(arg) = args.next() {
        let Some(arg) = arg.to_str() else {
            line.problems.push(Problem::new(arg.to_string_lossy(), "", "arguments must be UTF-8 text"));
            continue;
        };
        let (given, name, inline) = match split(arg) {
            Argument::Flag { name, inline } => (arg.split('=').next().unwrap_or(arg), name, inline),
            Argument::Rest => {
                let rest: Vec<_> = args.by_ref().map(|arg| arg.to_string_lossy().into_owned()).collect();
                line.problems.extend(rest.iter().map(|arg| stray(arg)));
                break;
            }
            Argument::Word => {
                line.problems.push(stray(arg));
                continue;
            }
            Argument::BadShort => {
                let want = match nearest(arg.trim_start_matches('-'), all().map(|flag| flag.name)) {
                    Some(name) => format!("unknown flag, write --{name} with two dashes"),
                    None => "unknown flag, long flags start with two dashes".to_owned(),
                };
                line.problems.push(Problem::new(arg, "", want));
                continue;
            }
        };
        let Some(flag) = find(&name) else {
            line.problems.push(unknown(given, &name));
            // The word after an unknown flag is its value, as a rule; it is no second mistake.
            if inline.is_none() {
                args.next_if(|next| next.to_str().is_some_and(|next| !next.starts_with('-')));
            }
            continue;
        };
        let text = match (inline, flag.kind) {
            (Some(text), _) => text,
            (None, Kind::Bool) => "true".to_owned(),
            (None, _) => match args.next() {
                Some(text) => text.to_string_lossy().into_owned(),
                None => {
                    line.problems.push(Problem::new(
                        given,
                        "",
                        format!("needs a value: {given}={}", flag.kind.placeholder()),
                    ));
                    continue;
                }
            },
        };
        used.insert(flag.name, flag);
        if let Err(want) = line.apply(flag, &text) {
            line.problems.push(Problem::new(given, format!("`{text}`"), want));
        }
    }
    line.warn_of_old_flags(used.into_values());
    line
}

impl CommandLine {
    fn apply(&mut self, flag: &'static Flag, text: &str) -> Result<(), String> {
        match flag.target {
            Target::Help => self.help |= value::boolean(text).unwrap_or(true),
            Target::Version => {
                self.version = match text {
                    "raw" => Some(VersionRequest::Raw),
                    other => match value::boolean(other) {
                        Some(true) => Some(VersionRequest::Short),
                        Some(false) => None,
                        None => return Err("must be true, false or raw".to_owned()),
                    },
                }
            }
            Target::Config(path) => {
                let earlier = self.settings.remove(path).map(|(_, value)| value);
                let value = flag.kind.read(text, earlier)?;
                self.settings.insert(path, (flag.name, value));
            }
            Target::Node(set) => {
                flag.kind.read(text, None)?;
                set(&mut self.node, text);
                if !self.node_flags_used.contains(&flag.name) {
                    self.node_flags_used.push(flag.name);
                }
            }
            Target::Ignored => {
                flag.kind.read(text, None)?;
            }
        }
        Ok(())
    }

    fn warn_of_old_flags(&mut self, used: impl Iterator<Item = &'static Flag>) {
        let old: Vec<String> =
            used.filter_map(|flag| flag.advice().map(|advice| format!("--{} ({advice})", flag.name))).collect();
        if !old.is_empty() {
            self.warnings.push(format!("these flags work but are deprecated: {}", old.join(", ")));
        }
    }

    /// The settings of the configuration as one JSON map, laid over `base`.
    pub fn lay_over(&self, base: &mut Map<String, Value>) {
        for (path, (_, value)) in &self.settings {
            if *path != "featureGates" {
                super::defaults::set(base, path, value.clone());
            }
        }
        self.lay_over_gates(base);
    }

    /// The feature gates alone, laid over `base`: gates there stay unless a flag names them.
    pub fn lay_over_gates(&self, base: &mut Map<String, Value>) {
        let Some((_, Value::Object(set))) = self.settings.get("featureGates") else { return };
        let mut gates = base.get("featureGates").and_then(Value::as_object).cloned().unwrap_or_default();
        gates.extend(set.clone());
        base.insert("featureGates".to_owned(), Value::Object(gates));
    }
}

/// One argument, looked at by itself.
enum Argument {
    /// A flag with its full name, and the value after `=`.
    Flag { name: String, inline: Option<String> },
    /// `--`.
    Rest,
    /// Something without dashes.
    Word,
    /// One dash and letters that are no flag.
    BadShort,
}

fn split(arg: &str) -> Argument {
    if arg == "--" {
        return Argument::Rest;
    }
    if let Some(long) = arg.strip_prefix("--") {
        let (name, inline) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (long, None),
        };
        return Argument::Flag { name: name.replace('_', "-"), inline };
    }
    match arg.strip_prefix('-') {
        None | Some("") => Argument::Word,
        Some("h") => Argument::Flag { name: "help".to_owned(), inline: None },
        Some("v") => Argument::Flag { name: "v".to_owned(), inline: None },
        Some(short) => match short.strip_prefix('v').map(|value| value.strip_prefix('=').unwrap_or(value)) {
            Some(value) if value.starts_with(|c: char| c.is_ascii_digit()) || short.starts_with("v=") => {
                Argument::Flag { name: "v".to_owned(), inline: Some(value.to_owned()) }
            }
            _ => Argument::BadShort,
        },
    }
}

fn stray(arg: &str) -> Problem {
    let want = match arg {
        "true" | "false" => "not a flag; write a switch and its value together, as in --name=false",
        _ => "not a flag: flags start with two dashes",
    };
    Problem::new(format!("`{arg}`"), "", want)
}

fn unknown(given: &str, name: &str) -> Problem {
    if let Some((_, advice)) = table::REMOVED.iter().find(|(removed, _)| *removed == name) {
        return Problem::new(given, "", format!("this flag is gone from the kubelet, {advice}"));
    }
    let known = all().map(|flag| flag.name);
    let want = match nearest(name, known) {
        Some(near) => format!("unknown flag, did you mean --{near}?"),
        None => "unknown flag, see --help for all flags".to_owned(),
    };
    Problem::new(given, "", want)
}

//! KubeletConfiguration, flags, drop-ins: read, default, validate, print. Runs on the main thread at start; owns nothing afterwards;
//! logs nothing itself, since the log is set up from what is read here.
//!
//! Flags win over drop-ins, those over the file, that over the defaults. Everything is a JSON value until all of it is laid
//! together, then it becomes one typed [`KubeletConfiguration`].

pub mod decode;
pub mod defaults;
pub mod duration;
pub mod features;
pub mod file;
pub mod flags;
pub mod in_force;
pub mod nested;
pub mod own;
pub mod print;
pub mod problem;
pub mod reload;
#[cfg(test)]
mod tests;
pub mod types;
pub mod validate;
pub mod yaml;

pub use duration::GoDuration;
pub use flags::{CommandLine, NodeFlags};
pub use own::OwnConfig;
pub use problem::Problem;
pub use types::KubeletConfiguration;

use decode::{Decode, Place};
use file::Layer;
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::fmt;

/// The kubelet that ferrolet stands in for.
pub const KUBELET_VERSION: &str = "v1.36.3";

/// A configuration in effect.
#[derive(Debug)]
pub struct Loaded {
    /// Everything that the file, the drop-ins and the flags say, with defaults.
    pub config: KubeletConfiguration,
    /// The flags about this node.
    pub flags: NodeFlags,
    /// What only ferrolet has.
    pub own: OwnConfig,
    /// The flag or the file that sets `cgroupDriver`; `None` where nobody does: the container runtime's word counts then.
    pub cgroup_driver_from: Option<String>,
    /// What the owner should know; log each as a warning.
    pub warnings: Vec<String>,
    /// What explains what was read; log each for information.
    pub notes: Vec<String>,
}

/// Why there is no configuration: every problem at once.
#[derive(Debug)]
pub struct LoadError {
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// What should be known beside that.
    pub warnings: Vec<String>,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, s) = (self.problems.len(), if self.problems.len() == 1 { "" } else { "s" });
        write!(f, "the configuration has {count} problem{s}")?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for LoadError {}

/// Reads the command line (without the program's name) and the files that it names.
///
/// # Errors
/// Anything is wrong with the flags, the files or their values; the error holds all of it.
pub fn load(args: impl IntoIterator<Item = OsString>) -> Result<Loaded, LoadError> {
    load_command_line(flags::parse(args))
}

/// Reads the files that a command line names, lays everything together and checks it.
///
/// # Errors
/// As [`load`].
pub fn load_command_line(line: CommandLine) -> Result<Loaded, LoadError> {
    let mut loader = Loader::default();
    let mut config = loader.lay_together(&line);
    let CommandLine { node, node_flags_used, settings, problems, warnings, .. } = line;
    let says = |value: &Value| !value.is_null() && value != "";
    let named = loader.source_of("cgroupDriver", &settings).filter(|(_, value)| says(value));
    let cgroup_driver_from = named.map(|(source, _)| source);
    config.seccomp_default |= node.seccomp_default;
    let checks = validate::validate(&config).into_iter();
    let checks: Vec<Problem> = checks.map(|problem| loader.name_source(problem, &settings)).collect();
    let mut all = problems;
    all.append(&mut loader.problems);
    all.extend(checks);
    all.extend(validate::validate_node_flags(&node));
    let own = own::load(node.ferrolet_config.as_deref()).unwrap_or_else(|problems| {
        all.extend(problems);
        OwnConfig::default()
    });
    let mut warnings = warnings;
    warnings.append(&mut loader.warnings);
    if !all.is_empty() {
        return Err(LoadError { problems: all, warnings });
    }
    let (now, before) = (print::to_map(&config), loader.baseline());
    warnings.extend(in_force::warning(&now, &before, &node_flags_used));
    Ok(Loaded { config, flags: node, own, cgroup_driver_from, warnings, notes: loader.notes })
}

/// The name of a flag and what it set, by the path in the configuration.
type Settings = std::collections::BTreeMap<&'static str, (&'static str, Value)>;

#[derive(Default)]
struct Loader {
    /// The file and the drop-ins, in the order in which they were laid over each other.
    layers: Vec<Layer>,
    /// Whether there is no configuration file, so that the old open defaults hold.
    legacy: bool,
    problems: Vec<Problem>,
    warnings: Vec<String>,
    notes: Vec<String>,
}

impl Loader {
    fn lay_together(&mut self, line: &CommandLine) -> KubeletConfiguration {
        let node = &line.node;
        self.legacy = node.config.is_none();
        let mut fields = Map::new();
        if let Some(path) = &node.config {
            let mut layer = file::read_file(path);
            file::resolve_paths(&mut layer.fields, path);
            fields = layer.fields.clone();
            self.take(layer);
        }
        // Some defaults hang on gates, and gates of flags count from the beginning.
        line.lay_over_gates(&mut fields);
        defaults::apply(&mut fields);
        defaults::apply_eviction_hard(&mut fields);
        if self.legacy {
            defaults::apply_legacy(&mut fields);
        }
        if let Some(folder) = &node.config_dir {
            self.lay_drop_ins(folder, &mut fields);
            line.lay_over_gates(&mut fields);
            defaults::apply(&mut fields);
            if !fields.contains_key("evictionHard") {
                defaults::apply_eviction_hard(&mut fields);
            }
            if self.legacy {
                self.warn_of_open_defaults(&fields);
            }
        }
        line.lay_over(&mut fields);
        let mut place = Place::default();
        let config = KubeletConfiguration::decode(Value::Object(fields), &mut place);
        self.problems.extend(place.found.problems);
        config
    }

    fn take(&mut self, mut layer: Layer) {
        self.problems.append(&mut layer.problems);
        self.warnings.append(&mut layer.warnings);
        self.layers.push(layer);
    }

    fn lay_drop_ins(&mut self, folder: &std::path::Path, fields: &mut Map<String, Value>) {
        let found = file::list_drop_ins(folder);
        self.problems.extend(found.problems);
        if !found.skipped.is_empty() {
            let names: Vec<_> = found.skipped.iter().map(|path| path.display().to_string()).collect();
            self.notes.push(format!("not read, since drop-ins must end in .conf: {}", names.join(", ")));
        }
        for path in found.files {
            let layer = file::read_file(&path);
            for field in file::relative_paths(&layer.fields) {
                let source = &layer.source;
                self.warnings
                    .push(format!("{source}: {field} is relative, in drop-ins it counts from the working folder"));
            }
            file::merge_patch(fields, &layer.fields);
            self.notes.push(format!("drop-in laid over: {}", layer.source));
            self.take(layer);
        }
    }

    fn warn_of_open_defaults(&mut self, fields: &Map<String, Value>) {
        let open: Vec<String> = defaults::LEGACY_PATHS
            .iter()
            .filter(|path| defaults::is_legacy(fields, path))
            .map(|path| format!("{path}: {}", defaults::get(fields, path).unwrap_or(&Value::Null)))
            .collect();
        if !open.is_empty() {
            self.warnings.push(format!(
                "--config-dir without --config keeps the open defaults of old kubelets where no drop-in sets them: {}; \
                 name a --config file to get the safe ones",
                open.join(", ")
            ));
        }
    }

    /// The whole configuration of somebody who set nothing, to tell what was set.
    fn baseline(&self) -> Map<String, Value> {
        let mut fields = print::to_map(&KubeletConfiguration::default());
        if self.legacy {
            defaults::apply_legacy(&mut fields);
        }
        fields
    }

    /// Says which flag or file a problem comes from, where one of them set the field.
    fn name_source(&self, problem: Problem, settings: &Settings) -> Problem {
        match self.source_of(&problem.at, settings) {
            Some((source, _)) => problem.from_source(&source),
            None => problem,
        }
    }

    /// The flag or the file that set what is at this place, the last one of several, and the value of its field.
    fn source_of<'a>(&'a self, at: &str, settings: &'a Settings) -> Option<(String, &'a Value)> {
        let under =
            |path: &str| at.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
        if let Some((_, (flag, value))) = settings.iter().find(|(path, _)| under(path)) {
            return Some((format!("--{flag}"), value));
        }
        let top = &at[..at.find(['.', '[']).unwrap_or(at.len())];
        self.layers.iter().rev().find_map(|layer| Some((layer.source.clone(), layer.fields.get(top)?)))
    }
}

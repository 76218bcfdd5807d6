//! Configuration files: one file, and a folder of drop-ins laid over it. Reads files; runs on the main thread at start. Knows
//! nothing of flags, and of fields only which ones are paths.

use super::decode::{Decode, Place};
use super::defaults::{API_VERSION, KIND, get, set};
use super::problem::Problem;
use super::types::KubeletConfiguration;
use super::yaml::{Limits, yaml_to_json};
use crate::util::fs::read_bounded;
use crate::util::order;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// The largest configuration file that is read, in bytes.
pub const MAX_FILE: u64 = 4 << 20;
/// How many files a drop-in folder may hold, of any name, and how deep its folders may be nested.
const MAX_FILES: usize = 1000;
const MAX_DEPTH: usize = 16;

/// Fields that are paths: relative ones count from the folder of the file they are in.
const PATHS: [&str; 7] = [
    "staticPodPath",
    "authentication.x509.clientCAFile",
    "tlsCertFile",
    "tlsPrivateKeyFile",
    "resolvConf",
    "volumePluginDir",
    "podLogsDir",
];

/// What one file says, without its mistakes.
#[derive(Debug)]
pub struct Layer {
    /// The file's name, for messages.
    pub source: String,
    /// Its fields; those of a wrong type are taken out (and are in `problems`).
    pub fields: Map<String, Value>,
    /// What is wrong with it.
    pub problems: Vec<Problem>,
    /// What is accepted but should be known.
    pub warnings: Vec<String>,
}

/// Reads one configuration file.
pub fn read_file(path: &Path) -> Layer {
    let mut layer =
        Layer { source: path.display().to_string(), fields: Map::new(), problems: Vec::new(), warnings: Vec::new() };
    match read_bounded(path, MAX_FILE) {
        Err(error) => layer.problems.push(Problem::new(layer.source.clone(), "", error_text(&error))),
        Ok(text) => read_text(&text, &mut layer),
    }
    layer
}

/// An error with its causes on one line.
pub(super) fn error_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}

fn read_text(text: &[u8], layer: &mut Layer) {
    let limits = Limits { max_bytes: MAX_FILE as usize, max_nodes: 100_000, ..Limits::default() };
    let document = match yaml_to_json(text, &limits) {
        Ok(document) => document,
        Err(error) => {
            layer.problems.push(Problem::new(layer.source.clone(), "", error.to_string()));
            return;
        }
    };
    if document.more_documents {
        layer.warnings.push(format!("{}: only the first document is read, what follows `---` is not", layer.source));
    }
    let strict_failed = |what: String| format!("{}: {what}", layer.source);
    for path in &document.duplicates {
        layer.warnings.push(strict_failed(format!("{path} is written twice, the last one counts")));
    }
    let Value::Object(fields) = document.value else {
        let want = format!("must be a map of fields that starts with apiVersion: {API_VERSION} and kind: {KIND}");
        layer.problems.push(Problem::new(layer.source.clone(), "", want));
        return;
    };
    let mut place = Place::default();
    KubeletConfiguration::decode(Value::Object(fields.clone()), &mut place);
    for (path, near) in place.found.unknown {
        let hint = near.map(|near| format!(", did you mean {near}?")).unwrap_or_default();
        layer.warnings.push(strict_failed(format!("{path} is no known field and is not used{hint}")));
    }
    layer.fields = fields;
    layer.problems.extend(place.found.problems);
    for (name, want) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        match layer.fields.get(name).and_then(Value::as_str) {
            Some(found) if found == want => {}
            Some(found) => layer.problems.push(Problem::new(name, format!("`{found}`"), format!("must be {want}"))),
            None if layer.problems.iter().any(|problem| problem.at == name) => {}
            None => layer.problems.push(Problem::new(name, "", format!("is missing, write {name}: {want}"))),
        }
    }
    for problem in &mut layer.problems {
        remove(&mut layer.fields, &problem.at);
        problem.source = Some(layer.source.clone());
    }
}

/// Takes the top-level field out that `path` is in, so that one wrong value brings no second problem.
fn remove(fields: &mut Map<String, Value>, path: &str) {
    let end = path.find(['.', '[']).unwrap_or(path.len());
    fields.remove(&path[..end]);
}

/// Makes relative paths of a layer absolute, from the folder of its file.
pub fn resolve_paths(fields: &mut Map<String, Value>, file: &Path) {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let Some(folder) = file.parent() else { return };
    for field in PATHS {
        let relative =
            get(fields, field).and_then(Value::as_str).filter(|path| !path.is_empty() && !path.starts_with('/'));
        if let Some(relative) = relative {
            let path = clean(&folder.join(relative));
            set(fields, field, path.into());
        }
    }
}

/// Paths of a layer that are relative.
pub fn relative_paths(fields: &Map<String, Value>) -> Vec<&'static str> {
    let relative = |field: &&str| {
        get(fields, field).and_then(Value::as_str).is_some_and(|path| !path.is_empty() && !path.starts_with('/'))
    };
    PATHS.into_iter().filter(relative).collect()
}

/// An absolute path without `.`, `..` and double slashes, by its text alone.
fn clean(path: &Path) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let text = path.to_string_lossy();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// The files of a drop-in folder.
#[derive(Debug, Default)]
pub struct DropIns {
    /// `*.conf`, in the order in which they are laid over each other.
    pub files: Vec<PathBuf>,
    /// Files of other names, which are not read.
    pub skipped: Vec<PathBuf>,
    /// What could not be looked at.
    pub problems: Vec<Problem>,
}

/// Lists a drop-in folder and the folders in it, in lexical order. Symlinks to folders are not followed, as upstream.
pub fn list_drop_ins(folder: &Path) -> DropIns {
    let mut found = DropIns::default();
    walk(folder, 0, &mut found);
    found
}

fn walk(folder: &Path, depth: usize, found: &mut DropIns) {
    let at = || folder.display().to_string();
    let too_much = |found: &DropIns| found.files.len() + found.skipped.len() >= MAX_FILES;
    if depth > MAX_DEPTH {
        found.problems.push(Problem::new(at(), "", format!("folders are nested more than {MAX_DEPTH} deep")));
        return;
    }
    let entries = match std::fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
        Ok(entries) => entries,
        Err(error) => {
            found.problems.push(Problem::new(at(), "", format!("cannot be listed: {error}")));
            return;
        }
    };
    let mut entries: Vec<_> = entries.into_iter().map(|entry| (entry.file_name(), entry)).collect();
    order::sort_by(&mut entries, |a, b| a.0.cmp(&b.0));
    for (name, entry) in entries {
        if too_much(found) {
            if !found.problems.iter().any(|problem| problem.want.contains("more than")) {
                found.problems.push(Problem::new(at(), "", format!("there are more than {MAX_FILES} files")));
            }
            return;
        }
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(&path, depth + 1, found);
        } else if name.to_string_lossy().ends_with(".conf") {
            found.files.push(path);
        } else {
            found.skipped.push(path);
        }
    }
}

/// Lays `patch` over `base` as RFC 7386 says: maps merge, null removes, everything else replaces.
pub fn merge_patch(base: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, value) in patch {
        match value {
            Value::Null => {
                base.remove(key);
            }
            Value::Object(inner) => {
                let slot = base.entry(key.clone()).or_insert(Value::Null);
                if !slot.is_object() {
                    *slot = Value::Object(Map::new());
                }
                if let Value::Object(slot) = slot {
                    merge_patch(slot, inner);
                }
            }
            other => {
                base.insert(key.clone(), other.clone());
            }
        }
    }
}

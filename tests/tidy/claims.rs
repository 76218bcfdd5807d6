//! What `config::in_force` claims, held against the sources: a field in force is read by whoever joins the house, and one
//! that is not in force is read by nobody.
//!
//! Text search in `src/app` and `src/cli`, the only places that hold a whole configuration. Reading a field is not yet
//! acting on it, but a field that nobody reads cannot be in force.

use std::{collections::BTreeMap, fs, path::Path};

use ferrolet::config::flags;
use ferrolet::config::in_force::{FLAGS_NOT_IN_FORCE, IN_FORCE, IN_PART, NOT_IN_FORCE, WITHOUT_EFFECT};

/// Read although they are not in force, and why that is no contradiction.
const READ_ALL_THE_SAME: &[(&str, &str)] = &[
    ("kubeletCgroups", "its figures are told, and the agent is not moved there"),
    ("systemCgroups", "its figures are told, and nobody is moved there"),
    ("localStorageCapacityIsolation", "without it there is no storage to request, and nothing is limited yet"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The code below these folders and in these files, without tests, comments and texts.
fn code(paths: &[&str]) -> String {
    let mut code = String::new();
    let mut todo: Vec<_> = paths.iter().map(|path| root().join(path)).collect();
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            todo.extend(
                fs::read_dir(&path).expect("read a folder of the sources").map(|entry| entry.expect("entry").path()),
            );
            continue;
        }
        let text = fs::read_to_string(&path).expect("read a source");
        let source = super::Source::read(&path.display().to_string(), &text, path.ends_with("tests.rs"));
        for line in source.lines.iter().filter(|line| !line.in_test) {
            // A chain of calls that was broken over lines is one again.
            let text = line.code.trim();
            code.push_str(if text.starts_with('.') { "" } else { "\n" });
            code.push_str(text);
        }
    }
    assert!(code.len() > 1000, "there is no code in {paths:?}");
    code
}

/// Whether the code reads `value.field`, and not a field whose name only begins so.
fn reads(code: &str, value: &str, field: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let path = format!("{value}.{field}");
    code.match_indices(&path).any(|(at, _)| !code[at + path.len()..].starts_with(word) && !code[..at].ends_with(word))
}

/// The Rust names of all fields, by their names in files.
fn rust_names() -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for file in ["types.rs", "nested.rs"] {
        let text = fs::read_to_string(root().join("src/config").join(file)).expect("read the fields");
        for line in text.lines() {
            let Some((rust, rest)) = line.trim().split_once(": ") else { continue };
            if let Some((_, name)) = rest.split_once(" = \"")
                && let Some((name, _)) = name.split_once('"')
            {
                names.insert(name.to_owned(), rust.to_owned());
            }
        }
    }
    assert!(names.len() > 125, "only {} fields were found", names.len());
    names
}

/// Whether the code reads a field, given by its path in files: `maxPods`, `logging.format`.
fn reads_field(code: &str, names: &BTreeMap<String, String>, path: &str) -> bool {
    let rust = |name: &str| names.get(name).unwrap_or_else(|| panic!("there is no field {path}")).clone();
    match path.split_once('.') {
        None => reads(code, "config", &rust(path)),
        Some((parent, field)) => {
            let parent = rust(parent);
            reads(code, "config", &parent) && reads(code, &parent, &rust(field))
        }
    }
}

#[test]
fn fields_in_force_are_read_and_others_are_not() {
    let (code, names) = (code(&["src/app", "src/cli"]), rust_names());
    // The defaults are merged while the file is read.
    let in_part = IN_PART.1.iter().filter(|path| **path != "mergeDefaultEvictionSettings");
    let unread: Vec<_> = IN_FORCE.iter().chain(in_part).filter(|path| !reads_field(&code, &names, path)).collect();
    assert_eq!(unread, [""; 0].iter().collect::<Vec<_>>(), "nobody reads these: they belong into NOT_IN_FORCE");
    let idle = NOT_IN_FORCE.iter().chain(WITHOUT_EFFECT);
    let idle = idle.filter(|path| READ_ALL_THE_SAME.iter().all(|(name, _)| name != *path));
    let read: Vec<_> = idle.filter(|path| reads_field(&code, &names, path)).collect();
    assert_eq!(read, [""; 0].iter().collect::<Vec<_>>(), "these are read: they belong into IN_FORCE");
}

#[test]
fn flags_in_force_are_read_and_others_are_not() {
    let code = code(&["src/app", "src/cli", "src/config/mod.rs"]);
    let mut wrong = Vec::new();
    for flag in flags::NODE {
        let field = flag.name.replace('-', "_");
        let is_read = reads(&code, "flags", &field) || reads(&code, "node", &field);
        let is_idle = FLAGS_NOT_IN_FORCE.contains(&flag.name);
        let is_known = READ_ALL_THE_SAME.iter().any(|(name, _)| *name == flag.name);
        if is_read == is_idle && !is_known {
            wrong.push(format!(
                "--{}: {}",
                flag.name,
                if is_read { "read, but listed as idle" } else { "nobody reads it" }
            ));
        }
    }
    assert_eq!(wrong, [""; 0]);
    assert!(FLAGS_NOT_IN_FORCE.iter().all(|name| flags::find(name).is_some()));
}

#[test]
fn a_read_is_told_from_a_mention() {
    for (code, expect) in [
        ("if config.max_pods > 1", true),
        ("&loaded.config.max_pods;", true),
        ("config.max_pods_per_core", false),
        ("reconfig.max_pods", false),
        ("max_pods: config", false),
    ] {
        assert_eq!(reads(code, "config", "max_pods"), expect, "{code}");
    }
}

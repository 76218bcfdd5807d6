//! Runs the rules over the whole checkout.
//!
//! Reads every text file below the crate's folder, build output and git's own apart.

use std::{fs, path::Path};

use super::{
    Breach, rules,
    source::{Source, test_modules},
};

/// Every breach in the checkout, in the order of paths.
pub(super) fn breaches() -> Vec<Breach> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    collect(root, "", &mut files);
    files.sort();
    let sources: Vec<&(String, String)> = files.iter().filter(|(path, _)| path.ends_with(".rs")).collect();
    for needed in ["README.md", "Cargo.lock", "src/lib.rs"] {
        assert!(files.iter().any(|(path, _)| path == needed), "there is no {needed} in {}", root.display());
    }
    assert!(sources.len() > 20, "the walk found only {} Rust files below {}", sources.len(), root.display());
    let agents: Vec<&str> = files.iter().filter_map(|(path, _)| agent(path)).collect();
    let mut tests: Vec<String> = sources.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    // What a test module declares is a test as well.
    tests.extend(tests.iter().map(|module| format!("{module}/")).collect::<Vec<_>>());

    let mut found = Vec::new();
    for (path, text) in &files {
        if let Some(rest) = path.strip_suffix(".rs") {
            if rest.starts_with("src/") || rest.starts_with("tests/") || rest == "build" {
                let is_test = tests
                    .iter()
                    .any(|module| rest == module || module.ends_with('/') && rest.starts_with(module.as_str()));
                found.extend(rules::of_file(&Source::read(path, text, is_test), &agents));
            }
        } else if text.starts_with("#!") {
            found.extend(rules::length(path, text));
        }
        // The rules' own snippets break the rules on purpose; recorded data has paths inside of containers.
        if path != "tests/tidy.rs" && !path.contains("/testdata/") {
            found.extend(rules::of_any_text(path, text));
        }
        match path.as_str() {
            "Cargo.lock" => found.extend(rules::of_lock_file(text)),
            "README.md" => found.extend(rules::of_readme(text)),
            _ => {}
        }
    }
    found
}

/// The agent that a path belongs to: `src/agents/pleg/tests.rs` and `src/agents/pleg.rs` are `pleg`.
fn agent(path: &str) -> Option<&str> {
    let name = path.strip_prefix("src/agents/")?.split('/').next()?;
    let name = name.strip_suffix(".rs").unwrap_or(name);
    (name != "mod").then_some(name)
}

/// Adds the path and text of every text file below `root/folder`.
fn collect(root: &Path, folder: &str, files: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(root.join(folder)).expect("read a folder of the checkout") {
        let entry = entry.expect("read a folder of the checkout");
        let name = entry.file_name().into_string().expect("names in the checkout are UTF-8");
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if name == ".git" {
            continue;
        }
        let kind = entry.file_type().expect("the kind of a file");
        if kind.is_dir() && path != "target" {
            collect(root, &path, files);
        } else if kind.is_file()
            && let Ok(text) = fs::read_to_string(entry.path())
        {
            files.push((path, text));
        }
    }
}

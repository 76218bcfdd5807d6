//! Every metric of the tables is counted somewhere: a row that nobody adds to promises what it does not keep.
//!
//! Text search in `src`, outside of the tables and of tests.

use std::{fs, path::Path};

use super::source::Source;

/// Rows that nobody adds to, and why they are there.
const NEVER: &[(&str, &str)] =
    &[("PLEG_DISCARDED", "nothing is dropped here, and alerts on it go on working: 0 is the truth")];

/// Names of the statics in the tables of a file.
fn rows(table: &str) -> Vec<&str> {
    let is_name = |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    table.lines().filter_map(|line| line.trim().split_once(": ").map(|(name, _)| name)).filter(is_name).collect()
}

/// The code below `folder` without tests, comments and texts, the metrics' own apart.
fn code(folder: &Path, all: &mut String) {
    for entry in fs::read_dir(folder).expect("read a folder of the sources").map(|entry| entry.expect("an entry")) {
        let path = entry.path();
        if ["src/util/metrics/kubelet.rs", "src/util/metrics/own.rs"].iter().any(|table| path.ends_with(table)) {
            continue;
        }
        if path.is_dir() {
            code(&path, all);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            let text = fs::read_to_string(&path).expect("read a source");
            let source = Source::read(&path.display().to_string(), &text, path.ends_with("tests.rs"));
            for line in source.lines.iter().filter(|line| !line.in_test) {
                all.push_str(&line.code);
                all.push('\n');
            }
        }
    }
}

/// The rows that nobody names and nobody excuses, and the excuses that are not needed.
fn wrong(rows: &[&str], code: &str) -> Vec<String> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let is_named = |name: &str| {
        code.match_indices(name)
            .any(|(at, _)| !code[at + name.len()..].starts_with(word) && !code[..at].ends_with(word))
    };
    let of_row = |name: &&str| match (is_named(name), NEVER.iter().any(|(never, _)| never == name)) {
        (false, false) => Some(format!("{name} is counted nowhere: count it, or take its row away")),
        (true, true) => Some(format!("{name} is counted, and need not be excused")),
        _ => None,
    };
    rows.iter().filter_map(of_row).collect()
}

#[test]
fn every_metric_is_counted_somewhere() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = String::new();
    code(&source, &mut all);
    for table in ["kubelet.rs", "own.rs"] {
        let text = fs::read_to_string(source.join("util/metrics").join(table)).expect("read a table");
        let rows = rows(&text);
        assert!(rows.len() > 8, "{table}: only {rows:?} were found");
        assert_eq!(wrong(&rows, &all), [""; 0], "{table}");
    }
}

#[test]
fn a_metric_that_is_counted_nowhere_is_found() {
    let rows = rows(
        "table! {\n    A: Counter(\"a\", \"It.\");\n    B_C: Gauge(\"b\", \"It: that.\");\n    PLEG_DISCARDED: Counter(\"c\", \"It.\");\n}",
    );
    assert_eq!(rows, ["A", "B_C", "PLEG_DISCARDED"]);
    assert_eq!(wrong(&rows, "kubelet::A.inc(); kubelet::B_CD.set(1.0)").len(), 1);
    assert_eq!(wrong(&rows, "kubelet::A.inc(); B_C.set(1.0); PLEG_DISCARDED.inc()").len(), 1);
    assert_eq!(wrong(&rows, "A B_C"), [""; 0]);
}

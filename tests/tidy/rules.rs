//! The rules themselves, each a function from text to breaches.
//!
//! A rule names what to do and not only what is wrong. Where a rule has exceptions they are in its
//! table, with the reason.

use super::{Breach, layers, source::Source};

/// Lines that a file of Rust or shell may have.
const MAX_LINES: usize = 600;

/// Libraries and the only places in `src` that speak to them: paths that start with one of these. Tests may use them to
/// set a scene.
const IMPORTERS: &[(&str, &[&str])] = &[
    ("grpcio", &["src/cri"]),
    ("protobuf", &["src/cri"]),
    ("ureq", &["src/kube"]),
    ("rustls", &["src/kube", "src/server", "src/probe", "src/util/any_certificate"]),
    ("rcgen", &["src/kube", "src/server", "src/probe"]),
    ("inotify", &["src/agents/source", "src/host/log_watch"]),
    ("flate2", &["src/host", "src/server"]),
    ("nix", &["src/host", "src/util", "src/server"]),
    ("serde_yaml", &["src/config", "src/agents/source", "src/cli"]),
    ("cgroups_rs", &["src/host"]),
    ("rustbus", &["src/host/bus"]),
    ("nix_of_rustbus", &["src/host/bus"]),
    ("anyhow", &["src/main", "src/app", "src/cli"]),
];

/// What the pure core does without. Tests of the core may read a clock to make an `Instant`.
const IMPURE: &[&str] = &[
    "std::fs",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "UnixStream",
    "ToSocketAddrs",
    "std::process",
    "std::thread",
    "std::env",
    "Instant::now",
    "SystemTime::now",
    "crossbeam_channel",
    "log::",
];

/// Modules of `util` that act, and so are closed to the core.
const IMPURE_UTIL: &[&str] = &["thread", "fs", "signal", "clock", "log", "logging"];

/// Parts of crate names that mean an async runtime.
const ASYNC: &[&str] =
    &["tokio", "async-std", "smol", "async-executor", "async-io", "zbus", "actix", "glommio", "monoio"];

/// Every rule that looks at one Rust file. `agents` names the modules of `src/agents`.
pub(super) fn of_file(source: &Source, agents: &[&str]) -> Vec<Breach> {
    let mut found = Vec::from_iter(header(source));
    found.extend(length(&source.path, &source.text));
    found.extend(layers::breaches(source, agents));
    found.extend(pure_core(source));
    found.extend(single_importers(source));
    found.extend(panics(source));
    found.extend(threads(source));
    found.extend(half_done(source));
    found.extend(sleeps(source));
    found
}

fn breach(source: &Source, index: usize, rule: &'static str, advice: impl Into<String>) -> Breach {
    Breach { path: source.path.clone(), line: index + 1, rule, advice: advice.into() }
}

fn header(source: &Source) -> Option<Breach> {
    let text: String =
        source.text.lines().map_while(|line| line.strip_prefix("//!")).flat_map(|line| [line, "\n"]).collect();
    let is_test = source.lines.iter().all(|line| line.in_test);
    if text.trim().len() < if is_test { 15 } else { 40 } {
        return Some(breach(
            source,
            0,
            "header",
            "start the file with `//!` lines: what it is for, which thread runs it, what it owns, what it must never do",
        ));
    }
    let agent = source.path.starts_with("src/agents/") && !is_test;
    (agent && !text.to_lowercase().contains("thread"))
        .then(|| breach(source, 0, "header", "an agent's header names the thread that runs it"))
}

/// The limit on a file's lines, for any kind of text that people write.
pub(super) fn length(path: &str, text: &str) -> Option<Breach> {
    let lines = text.lines().count();
    (lines > MAX_LINES).then(|| Breach {
        path: path.to_owned(),
        line: lines,
        rule: "length",
        advice: format!("{lines} lines, and {MAX_LINES} is the limit: a file this long asks to be split"),
    })
}

/// Does `code` hold `word` as a word of its own, not as the tail of a longer name?
fn holds(code: &str, word: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        let open_start = word.starts_with(part_of_name) && before.is_some_and(part_of_name);
        let open_end = word.ends_with(part_of_name) && after.is_some_and(part_of_name);
        !open_start && !open_end
    })
}

fn pure_core(source: &Source) -> Vec<Breach> {
    if !source.path.starts_with("src/core") {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut say = |index, what: &str| {
        let advice = format!(
            "no `{what}` in src/core: it decides from plain values (`now` is an argument); do the rest in an agent or a port"
        );
        found.push(breach(source, index, "pure core", advice));
    };
    for (index, line) in source.lines.iter().enumerate().filter(|(_, line)| !line.in_test) {
        for what in IMPURE.iter().filter(|what| holds(&line.code, what)) {
            say(index, what);
        }
    }
    for (line, path) in layers::paths(source, &source.module()) {
        if path[0] == "util" && path.get(1).is_some_and(|module| IMPURE_UTIL.contains(&module.as_str())) {
            say(line - 1, &format!("crate::{}", path[..2].join("::")));
        }
    }
    found
}

fn single_importers(source: &Source) -> Vec<Breach> {
    if !source.path.starts_with("src/") {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (index, line) in source.lines.iter().enumerate().filter(|(_, line)| !line.in_test) {
        for (library, places) in IMPORTERS {
            let path = format!("{library}::");
            let named = holds(&line.code, &path) || line.code.trim_start() == format!("use {library};");
            if named && !places.iter().any(|place| source.path.starts_with(place)) {
                let places = places.join(", ");
                let advice = format!("`{library}` is spoken to in {places} only: ask for what you need there");
                found.push(breach(source, index, "single importer", advice));
            }
        }
    }
    found
}

fn panics(source: &Source) -> Vec<Breach> {
    if !source.path.starts_with("src/") {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (index, line) in source.lines.iter().enumerate().filter(|(_, line)| !line.in_test) {
        for what in [".unwrap()", ".unwrap_err()", ".expect(", ".expect_err(", "panic!", "unreachable!"] {
            if holds(&line.code, what) && !has_reason(source, index) {
                let advice = format!(
                    "`{what}` outside of tests: return an error, or say in an `// invariant:` comment right above why it can't fail"
                );
                found.push(breach(source, index, "panics", advice));
            }
        }
    }
    found
}

/// Is there an `// invariant:` comment on the line, or on the comment lines right above its statement?
fn has_reason(source: &Source, index: usize) -> bool {
    let is_comment = |i: usize| source.lines[i].code.trim().is_empty() && !source.lines[i].comment.is_empty();
    let says = |i: usize| source.lines[i].comment.contains("invariant:");
    if says(index) {
        return true;
    }
    // A call chain that rustfmt broke into lines: go up to where the statement starts.
    let mut at = index;
    while at > 0 && source.lines[at].code.trim_start().starts_with(['.', '}', ')']) {
        at -= 1;
    }
    (0..at).rev().take_while(|i| is_comment(*i)).any(says) || says(at)
}

fn threads(source: &Source) -> Vec<Breach> {
    if !source.path.starts_with("src/") || source.path == "src/util/thread.rs" {
        return Vec::new();
    }
    let starts = |code: &str| ["thread::spawn(", "thread::Builder"].iter().any(|what| holds(code, what));
    let advice = "threads are started in src/util/thread.rs only: named, joined, with a panic policy";
    let lines = source.lines.iter().enumerate();
    lines
        .filter(|(_, line)| !line.in_test && starts(&line.code))
        .map(|(index, _)| breach(source, index, "threads", advice))
        .collect()
}

fn half_done(source: &Source) -> Vec<Breach> {
    let mut found = Vec::new();
    for (index, line) in source.lines.iter().enumerate() {
        for (what, advice) in [
            ("#[ignore", "a test runs, or it is not there"),
            ("#[should_panic", "compare the error"),
            ("todo!", "finish it, or refuse in plain words what is not supported"),
            ("unimplemented!", "finish it, or refuse in plain words what is not supported"),
        ] {
            if holds(&line.code, what) {
                found.push(breach(source, index, "half done", format!("no `{what}`: {advice}")));
            }
        }
    }
    found
}

fn sleeps(source: &Source) -> Vec<Breach> {
    // What a benchmark measures is a span of time: it sleeps through it, and no test hangs on that.
    if source.path == "tests/harness/wait.rs" || source.path.starts_with("tests/bench/") {
        return Vec::new();
    }
    let advice = "a sleep hopes; wait for a condition (tests/harness/wait.rs) or take the clock as an argument";
    let lines = source.lines.iter().enumerate();
    lines
        .filter(|(_, line)| line.in_test && holds(&line.code, "thread::sleep"))
        .map(|(index, _)| breach(source, index, "sleep", advice))
        .collect()
}

/// No async runtime may come in, not even behind a dependency.
pub(super) fn of_lock_file(text: &str) -> Vec<Breach> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(name) = line.strip_prefix("name = \"").and_then(|rest| rest.strip_suffix('"')) else { continue };
        let whole_or_family =
            |word: &&str| name == *word || name.strip_prefix(*word).is_some_and(|rest| rest.starts_with('-'));
        if ASYNC.iter().any(whole_or_family) {
            let advice = format!("`{name}` is in the dependency tree: `cargo tree -i {name}` tells who brings it");
            found.push(Breach { path: "Cargo.lock".to_owned(), line: index + 1, rule: "no async runtime", advice });
        }
    }
    found
}

/// The first two `sh` blocks are the demo and the tests, one line each.
pub(super) fn of_readme(text: &str) -> Vec<Breach> {
    let mut blocks: Vec<(usize, usize)> = Vec::new();
    let mut open: Option<(usize, bool)> = None;
    for (index, line) in text.lines().enumerate() {
        open = match open {
            None if line.starts_with("```") => Some((index, line.trim_end() == "```sh")),
            Some((start, is_shell)) if line.starts_with("```") => {
                if is_shell {
                    blocks.push((start + 1, index - start - 1));
                }
                None
            }
            other => other,
        };
    }
    let mut found = Vec::new();
    for (index, what) in ["the demo (the first `sh` block)", "the tests (the second `sh` block)"].iter().enumerate() {
        let (line, advice) = match blocks.get(index) {
            Some((_, 1)) => continue,
            Some((line, _)) => (*line, format!("{what} is one line")),
            None => (0, format!("{what} is missing")),
        };
        found.push(Breach { path: "README.md".to_owned(), line, rule: "readme", advice });
    }
    found
}

/// Paths that exist on one person's machine only.
pub(super) fn of_any_text(path: &str, text: &str) -> Vec<Breach> {
    let private = |line: &str| {
        ["/home/", "/root/", "/work/"].iter().any(|folder| {
            line.match_indices(folder).any(|(at, _)| {
                let fresh =
                    !line[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '}' | '"' | '/'));
                fresh && line[at + folder.len()..].starts_with(|c: char| c.is_ascii_alphanumeric())
            })
        })
    };
    let advice = "a path on one person's machine means nothing to the next reader";
    let lines = text.lines().enumerate().filter(|(_, line)| private(line));
    lines
        .map(|(index, _)| Breach {
            path: path.to_owned(),
            line: index + 1,
            rule: "private path",
            advice: advice.to_owned(),
        })
        .collect()
}

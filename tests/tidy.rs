//! The rules of the house, held by a test: who may import whom, which library is spoken to from
//! where, what every file starts with, what no file may hold.
//!
//! `the_tree_is_tidy` reads the whole checkout and prints every breach as `file:line: rule: what to
//! do`. Each rule is a function over text, and is itself tested on snippets that break it: a rule
//! that can't fail guards nothing. It reads files only, and must never need a build or the network.

mod claims;
mod counted;
mod layers;
mod rules;
mod source;
mod tree;

use std::fmt::Write;

use expect_test::{Expect, expect};

use source::Source;

/// One breach of one rule.
struct Breach {
    path: String,
    /// Counted from 1; 0 where the file as a whole is meant.
    line: usize,
    rule: &'static str,
    /// What is wrong and what to do about it.
    advice: String,
}

fn print(breaches: &[Breach]) -> String {
    let mut text = String::new();
    for Breach { path, line, rule, advice } in breaches {
        writeln!(text, "{path}:{line}: {rule}: {advice}").unwrap();
    }
    text
}

/// Runs every per-file rule over one file's text.
fn check(path: &str, text: &str, expected: Expect) {
    let breaches =
        rules::of_file(&Source::read(path, text, path.ends_with("/tests.rs")), &["pleg", "pod_worker", "source"]);
    expected.assert_eq(&print(&breaches));
}

/// Runs every per-file rule over the body of a file whose header is in order.
fn check_body(path: &str, body: &str, expected: Expect) {
    check(
        path,
        &format!("//! Words that say what this file is for, on which thread it runs and what it owns.\n{body}"),
        expected,
    );
}

#[test]
fn the_tree_is_tidy() {
    let breaches = tree::breaches();
    assert!(breaches.is_empty(), "{} rules of the house are broken:\n{}", breaches.len(), print(&breaches));
}

#[test]
fn a_tidy_file_passes() {
    check_body(
        "src/agents/pleg.rs",
        r#"
use crate::api::PodUid;
use crate::cri::Client;
use super::heartbeat;

/* a block comment may say use crate::server, todo!() and x.unwrap() */
fn ask(lock: &Mutex<u8>) -> &'static str {
    // invariant: the sandbox list was checked to hold one entry above.
    let first = list.first().unwrap();
    "thread::spawn, todo!() and .unwrap() in a text are just text"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks() {
        assert_eq!(ask(&lock()).parse::<u8>().unwrap(), 1);
    }
}
"#,
        expect![""],
    );
}

#[test]
fn files_behind_cfg_test_are_known() {
    let text = "#[cfg(test)]\nmod tests;\n#[cfg(test)]\n#[path = \"plan_cases.rs\"]\npub(crate) mod cases;\n#[cfg(test)]\nuse x;\nmod view;\n";
    assert_eq!(source::test_modules("src/core/plan.rs", text), ["src/core/plan/tests", "src/core/plan_cases"]);
    assert_eq!(source::test_modules("src/core/mod.rs", "#[cfg(test)]\nmod support;\n"), ["src/core/support"]);
    assert_eq!(source::test_modules("src/core/mod.rs", "mod support;\n"), [""; 0]);
}

#[test]
fn every_file_says_what_it_is_for() {
    check(
        "src/core/plan.rs",
        "use std::fmt;\n",
        expect![[r#"
        src/core/plan.rs:1: header: start the file with `//!` lines: what it is for, which thread runs it, what it owns, what it must never do
    "#]],
    );
    check(
        "src/core/plan.rs",
        "//! The plan.\n",
        expect![[r#"
        src/core/plan.rs:1: header: start the file with `//!` lines: what it is for, which thread runs it, what it owns, what it must never do
    "#]],
    );
    check(
        "src/agents/pleg.rs",
        "//! Looks at the runtime once a second and tells the loop what is new there.\n",
        expect![[r#"
        src/agents/pleg.rs:1: header: an agent's header names the thread that runs it
    "#]],
    );
}

#[test]
fn layers_look_down_only() {
    check_body(
        "src/core/plan.rs",
        "use crate::api::PodUid;\nuse crate::{cri::Client, msg};\nfn f() { crate::host::mounts() }\n",
        expect![[r#"
            src/core/plan.rs:3: layers: src/core may not import `crate::cri`, only core, api, msg, util: move the code, or pass the value in
            src/core/plan.rs:4: layers: src/core may not import `crate::host`, only core, api, msg, util: move the code, or pass the value in
        "#]],
    );
    check_body(
        "src/volumes/mod.rs",
        "use crate::host;\nuse crate::cri;\npub use super::kube::Client;\n",
        expect![[r#"
            src/volumes/mod.rs:3: layers: src/volumes may not import `crate::cri`, only volumes, host, api, msg, util: move the code, or pass the value in
            src/volumes/mod.rs:4: layers: src/volumes may not import `crate::kube`, only volumes, host, api, msg, util: move the code, or pass the value in
        "#]],
    );
    check_body(
        "src/sync_loop.rs",
        "use crate::agents::pleg::PlegHandle;\n",
        expect![[r#"
        src/sync_loop.rs:2: layers: src/sync_loop may not import `crate::agents`, only sync_loop, core, api, msg, util: move the code, or pass the value in
    "#]],
    );
    check_body(
        "src/newcomer/mod.rs",
        "use crate::api;\n",
        expect![[r#"
            src/newcomer/mod.rs:2: layers: src/newcomer has no row in the import table: add one to tests/tidy/layers.rs and to README.md, "Architecture"
        "#]],
    );
    check_body("src/app.rs", "use crate::{agents, server, sync_loop};\n", expect![""]);
}

#[test]
fn agents_never_import_each_other() {
    check_body(
        "src/agents/pod_worker.rs",
        "use crate::agents::pleg::Observation;\nuse super::pleg;\nuse super::heartbeat;\nuse crate::server;\n",
        expect![[r#"
            src/agents/pod_worker.rs:2: layers: agents never import each other: put what both need into msg, core or src/agents/mod.rs
            src/agents/pod_worker.rs:3: layers: agents never import each other: put what both need into msg, core or src/agents/mod.rs
            src/agents/pod_worker.rs:5: layers: src/agents may not import `crate::server`, only agents, core, cri, kube, probe, host, volumes, store, config, api, msg, util: move the code, or pass the value in
        "#]],
    );
    check_body(
        "src/agents/source/file.rs",
        "use super::http;\nuse super::super::pleg;\n",
        expect![[r#"
        src/agents/source/file.rs:3: layers: agents never import each other: put what both need into msg, core or src/agents/mod.rs
    "#]],
    );
    check_body("src/agents/pleg/tests.rs", "use super::*;\nmod deep {\n    use super::super::Actor;\n}\n", expect![""]);
}

#[test]
fn the_core_is_pure() {
    check_body(
        "src/core/plan.rs",
        "use std::fs;\nuse std::time::{Duration, Instant};\nfn f() {\n    let now = Instant::now();\n    log::warn!(\"x\");\n    let (tx, rx) = crossbeam_channel::bounded(1);\n}\n#[cfg(test)]\nmod tests {\n    fn now() -> Instant { Instant::now() }\n}\n",
        expect![[r#"
            src/core/plan.rs:2: pure core: no `std::fs` in src/core: it decides from plain values (`now` is an argument); do the rest in an agent or a port
            src/core/plan.rs:5: pure core: no `Instant::now` in src/core: it decides from plain values (`now` is an argument); do the rest in an agent or a port
            src/core/plan.rs:6: pure core: no `log::` in src/core: it decides from plain values (`now` is an argument); do the rest in an agent or a port
            src/core/plan.rs:7: pure core: no `crossbeam_channel` in src/core: it decides from plain values (`now` is an argument); do the rest in an agent or a port
        "#]],
    );
    check_body(
        "src/core/plan.rs",
        "use crate::util::{backoff, thread::spawn};\n",
        expect![[r#"
        src/core/plan.rs:2: pure core: no `crate::util::thread` in src/core: it decides from plain values (`now` is an argument); do the rest in an agent or a port
    "#]],
    );
}

#[test]
fn every_library_has_one_importer() {
    check_body(
        "src/agents/pleg.rs",
        "use grpcio::Channel;\nfn f() -> nix::Result<()> { serde_yaml::from_str(x) }\nfn prefix_nix() { my_ureq::get() }\n",
        expect![[r#"
            src/agents/pleg.rs:2: single importer: `grpcio` is spoken to in src/cri only: ask for what you need there
            src/agents/pleg.rs:3: single importer: `nix` is spoken to in src/host, src/util, src/server only: ask for what you need there
            src/agents/pleg.rs:3: single importer: `serde_yaml` is spoken to in src/config, src/agents/source, src/cli only: ask for what you need there
        "#]],
    );
    check_body("src/agents/source.rs", "use inotify::Inotify;\n", expect![""]);
    check_body("src/agents/source/file.rs", "use inotify::Inotify;\n", expect![""]);
    check_body("src/host/cgroup.rs", "use nix::sched;\nuse cgroups_rs::Cgroup;\n", expect![""]);
    check_body("tests/fakes/cri.rs", "use grpcio::Server;\n", expect![""]);
}

#[test]
fn outside_data_never_panics() {
    check_body(
        "src/host/mod.rs",
        "fn f() {\n    a.unwrap();\n    b\n        .expect(\"b\");\n    unreachable!();\n    c.unwrap_or_default();\n    // invariant: d was set in `new`.\n    d.expect(\"d\");\n}\n#[test]\nfn t() {\n    e.unwrap();\n}\n",
        expect![[r#"
            src/host/mod.rs:3: panics: `.unwrap()` outside of tests: return an error, or say in an `// invariant:` comment right above why it can't fail
            src/host/mod.rs:5: panics: `.expect(` outside of tests: return an error, or say in an `// invariant:` comment right above why it can't fail
            src/host/mod.rs:6: panics: `unreachable!` outside of tests: return an error, or say in an `// invariant:` comment right above why it can't fail
        "#]],
    );
}

#[test]
fn threads_have_one_birthplace() {
    check_body(
        "src/host/mod.rs",
        "fn f() {\n    std::thread::spawn(g);\n    thread::Builder::new();\n}\n",
        expect![[r#"
        src/host/mod.rs:3: threads: threads are started in src/util/thread.rs only: named, joined, with a panic policy
        src/host/mod.rs:4: threads: threads are started in src/util/thread.rs only: named, joined, with a panic policy
    "#]],
    );
    check_body("src/util/thread.rs", "fn f() {\n    std::thread::Builder::new();\n}\n", expect![""]);
    check_body("tests/fakes/kube.rs", "fn f() {\n    std::thread::spawn(g);\n}\n", expect![""]);
}

#[test]
fn nothing_is_half_done_or_hopeful() {
    check_body(
        "tests/web_pod.rs",
        "#[ignore]\n#[ignore = \"later\"]\n#[should_panic(expected = \"x\")]\nfn f() {\n    todo!();\n    std::thread::sleep(SECOND);\n}\n",
        expect![[r#"
            tests/web_pod.rs:2: half done: no `#[ignore`: a test runs, or it is not there
            tests/web_pod.rs:3: half done: no `#[ignore`: a test runs, or it is not there
            tests/web_pod.rs:4: half done: no `#[should_panic`: compare the error
            tests/web_pod.rs:6: half done: no `todo!`: finish it, or refuse in plain words what is not supported
            tests/web_pod.rs:7: sleep: a sleep hopes; wait for a condition (tests/harness/wait.rs) or take the clock as an argument
        "#]],
    );
    check_body("tests/harness/wait.rs", "fn f() { thread::sleep(STEP) }\n", expect![""]);
    check_body(
        "src/host/mod.rs",
        "fn f() {}\n#[cfg(test)]\nmod tests {\n    fn g() { thread::sleep(S) }\n}\n",
        expect![[r#"
        src/host/mod.rs:5: sleep: a sleep hopes; wait for a condition (tests/harness/wait.rs) or take the clock as an argument
    "#]],
    );
}

#[test]
fn long_files_ask_to_be_split() {
    check_body("src/host/mod.rs", &"\n".repeat(599), expect![""]);
    check_body(
        "src/host/mod.rs",
        &"\n".repeat(600),
        expect![[r#"
        src/host/mod.rs:601: length: 601 lines, and 600 is the limit: a file this long asks to be split
    "#]],
    );
}

#[test]
fn a_lock_file_with_an_async_runtime_is_seen() {
    let lock = "[[package]]\nname = \"log\"\n\n[[package]]\nname = \"tokio\"\n\n[[package]]\nname = \"actix-web\"\n";
    expect![[r#"
        Cargo.lock:5: no async runtime: `tokio` is in the dependency tree: `cargo tree -i tokio` tells who brings it
        Cargo.lock:8: no async runtime: `actix-web` is in the dependency tree: `cargo tree -i actix-web` tells who brings it
    "#]]
    .assert_eq(&print(&rules::of_lock_file(lock)));
}

#[test]
fn the_readme_opens_with_two_commands() {
    let good = "# x\n```sh\n./demo\n```\ntext\n```sh\n./test\n```\n```sh\na\nb\n```\n";
    let long = "# x\n```sh\n./demo\n./more\n```\n```\n./test\n```\n";
    expect![""].assert_eq(&print(&rules::of_readme(good)));
    expect![[r#"
        README.md:2: readme: the demo (the first `sh` block) is one line
        README.md:0: readme: the tests (the second `sh` block) is missing
    "#]]
    .assert_eq(&print(&rules::of_readme(long)));
}

#[test]
fn no_file_names_one_persons_folders() {
    let text = "see /home/ann/notes.md\nHOME=/root\n~/.cache and /root/.docker are fine\ncd /root/project\n";
    expect![[r#"
        README.md:1: private path: a path on one person's machine means nothing to the next reader
        README.md:4: private path: a path on one person's machine means nothing to the next reader
    "#]]
    .assert_eq(&print(&rules::of_any_text("README.md", text)));
}

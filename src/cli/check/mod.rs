//! `ferrolet check`: looks whether this machine can be a node, before the agent starts on it or while it runs. Runs on the main
//! thread; reads files, asks the container runtime, tries whether ports are free. It changes nothing.
//!
//! Each line says ok, warn or fail, what was found, and what to do. The judgements are functions over what was found.

mod cis;
mod machine;
mod node;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use super::{complain, help, print};
use crate::config::{Loaded, flags, load_command_line};

/// What the packaged service starts with; taken where no flag is given.
const PACKAGED: [(&str, &str); 2] =
    [("--config", "/etc/ferrolet/config.yaml"), ("--config-dir", "/etc/ferrolet/config.d")];

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    /// As it should be.
    Ok,
    /// The node works, and could be better.
    Warn,
    /// The node, or a part of what it promises, does not work.
    Fail,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One line of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    /// What was looked at, one word with dots.
    check: String,
    verdict: Verdict,
    /// What was found.
    found: String,
    /// What to do; empty where nothing is.
    advice: String,
}

/// It is as it should be.
fn ok(check: &str, found: impl Into<String>) -> Line {
    Line { check: check.to_owned(), verdict: Verdict::Ok, found: found.into(), advice: String::new() }
}

/// It could be better.
fn warn(check: &str, found: impl Into<String>, advice: impl Into<String>) -> Line {
    Line { check: check.to_owned(), verdict: Verdict::Warn, found: found.into(), advice: advice.into() }
}

/// It does not work.
fn fail(check: &str, found: impl Into<String>, advice: impl Into<String>) -> Line {
    Line { verdict: Verdict::Fail, ..warn(check, found, advice) }
}

/// `ferrolet check [-o json] [agent flags]`: exit code 0 if nothing fails, 1 if something does, 2 for wrong usage.
pub(super) fn run(args: Vec<OsString>) -> ExitCode {
    let (as_json, rest) = match take_output(args) {
        Ok(taken) => taken,
        Err(why) => {
            complain(&why);
            return ExitCode::from(2);
        }
    };
    let line = flags::parse(with_packaged(rest, |path| Path::new(path).exists()));
    if line.help {
        return print(&format!(
            "{}\nWithout flags it takes those of the packaged service, where its configuration is there.\n\
             Exit codes: 0 nothing fails (there may be warnings), 1 something fails, 2 wrong usage.\n",
            help::tool("check")
        ));
    }
    let lines = match load_command_line(line) {
        Ok(loaded) => all(&loaded),
        Err(error) => error
            .problems
            .iter()
            .map(|problem| fail("config", problem.to_string(), "put it right, the agent does not start with it"))
            .collect(),
    };
    let printed = print(&if as_json { for_programs(&lines) } else { for_people(&lines) });
    let fails = lines.iter().any(|line| line.verdict == Verdict::Fail);
    if fails { ExitCode::FAILURE } else { printed }
}

/// Takes `-o json` out of the arguments.
fn take_output(args: Vec<OsString>) -> Result<(bool, Vec<OsString>), String> {
    let (mut as_json, mut rest) = (false, Vec::new());
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("-o" | "--output") => match args.next() {
                Some(word) if word == "json" => as_json = true,
                _ => return Err("-o takes json".to_owned()),
            },
            Some("-ojson" | "-o=json" | "--output=json") => as_json = true,
            _ => rest.push(arg),
        }
    }
    Ok((as_json, rest))
}

/// The flags of the packaged service, where none are given.
fn with_packaged(args: Vec<OsString>, exists: impl Fn(&str) -> bool) -> Vec<OsString> {
    if !args.is_empty() {
        return args;
    }
    PACKAGED.iter().filter(|(_, path)| exists(path)).map(|(flag, path)| format!("{flag}={path}").into()).collect()
}

fn all(loaded: &Loaded) -> Vec<Line> {
    let mut lines: Vec<Line> = loaded
        .warnings
        .iter()
        .map(|warning| warn("config", warning.as_str(), "see etc/kubelet.yaml for what each field does"))
        .collect();
    if lines.is_empty() {
        lines.push(ok("config", "every flag and field is understood and in force"));
    }
    lines.extend(machine::lines(loaded));
    lines.extend(node::lines(loaded));
    lines.extend(cis::lines(loaded));
    lines
}

fn count(lines: &[Line], verdict: Verdict) -> usize {
    lines.iter().filter(|line| line.verdict == verdict).count()
}

fn for_people(lines: &[Line]) -> String {
    let width = lines.iter().map(|line| line.check.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Line { check, verdict, found, advice } in lines {
        let found: Vec<&str> = found.split_whitespace().collect();
        let found = found.join(" ");
        text.push_str(&format!("{:<4}  {check:<width$}  {found}\n", verdict.word()));
        if !advice.is_empty() {
            text.push_str(&format!("      {:width$}  -> {advice}\n", ""));
        }
    }
    let [oks, warns, fails] = [Verdict::Ok, Verdict::Warn, Verdict::Fail].map(|verdict| count(lines, verdict));
    text.push_str(&format!("{oks} ok, {warns} warn, {fails} fail\n"));
    text
}

fn for_programs(lines: &[Line]) -> String {
    let one = |line: &Line| json!({"check": line.check, "verdict": line.verdict.word(), "found": line.found, "advice": line.advice});
    let worst = lines.iter().map(|line| line.verdict).max().unwrap_or(Verdict::Ok);
    let value = json!({"verdict": worst.word(), "checks": lines.iter().map(one).collect::<Vec<_>>()});
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a line is judged so, and says what to do where it should.
    pub(super) fn check(line: Line, expect: Verdict) {
        assert_eq!(line.verdict, expect, "{line:?}");
        assert!(expect != Verdict::Fail || !line.advice.is_empty(), "a failure says what to do: {line:?}");
    }

    fn lines() -> [Line; 3] {
        [ok("a", "fine"), warn("long.er", "so\nso", "do this"), fail("b", "bad", "do that")]
    }

    #[test]
    fn people_read_a_table_and_programs_json() {
        expect_test::expect![[r"
            ok    a        fine
            warn  long.er  so so
                           -> do this
            fail  b        bad
                           -> do that
            1 ok, 1 warn, 1 fail
        "]]
        .assert_eq(&for_people(&lines()));
        let value: serde_json::Value = serde_json::from_str(&for_programs(&lines())).expect("json");
        assert_eq!(value["verdict"], "fail");
        assert_eq!(
            value["checks"][1],
            json!({"check": "long.er", "verdict": "warn", "found": "so\nso", "advice": "do this"})
        );
    }

    #[test]
    fn arguments_are_the_agents_but_for_the_output() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        for (args, expect) in [
            (&[][..], Some((false, &[][..]))),
            (&["-o", "json", "--max-pods=5"], Some((true, &["--max-pods=5"]))),
            (&["--max-pods=5", "-o=json"], Some((true, &["--max-pods=5"]))),
            (&["-o", "yaml"], None),
            (&["-o"], None),
        ] {
            let expect = expect.map(|(as_json, rest)| (as_json, words(rest)));
            assert_eq!(take_output(words(args)).ok(), expect, "{args:?}");
        }
        assert_eq!(with_packaged(words(&["-v=1"]), |_| true), words(&["-v=1"]));
        assert_eq!(
            with_packaged(words(&[]), |path| path.ends_with("yaml")),
            words(&["--config=/etc/ferrolet/config.yaml"])
        );
    }
}

//! What the program's name and arguments choose, what --version prints, and that the help misses nothing. No agent is started.

use super::*;
use crate::config::flags::{self, VersionRequest};

fn chosen(program: &str, args: &[&str]) -> String {
    let args: Vec<OsString> = args.iter().map(OsString::from).collect();
    match choose(OsStr::new(program), &args) {
        Choice::Agent { as_kubelet: true } => "kubelet".to_owned(),
        Choice::Agent { as_kubelet: false } => "agent".to_owned(),
        Choice::Tool(tool) => format!("tool {}", tool.name),
        Choice::Unknown(word) => format!("unknown {word}"),
    }
}

#[test]
fn name_and_first_argument_choose() {
    for (program, args, expect) in [
        ("ferrolet", &[][..], "agent"),
        ("ferrolet", &["--config", "x"], "agent"),
        ("/usr/bin/ferrolet", &["-v4"], "agent"),
        ("ferrolet", &["config"], "tool config"),
        ("ferrolet", &["config", "--config", "x"], "tool config"),
        ("ferrolet", &["version"], "tool version"),
        ("ferrolet", &["confg"], "unknown confg"),
        ("/usr/bin/kubelet", &[], "kubelet"),
        ("kubelet", &["config"], "kubelet"),
        ("kubelet-1.36", &["config"], "tool config"),
        ("", &[], "agent"),
    ] {
        assert_eq!(chosen(program, args), expect, "{program} {args:?}");
    }
}

#[test]
fn versions_are_readable_by_people_and_by_kubeadm() {
    assert_eq!(version::text(VersionRequest::Short, true), "Kubernetes v1.36.3\n");
    assert_eq!(version::text(VersionRequest::Short, false), "ferrolet 0.1.0 (kubelet v1.36.3)\n");
    let raw = version::text(VersionRequest::Raw, true);
    assert!(raw.starts_with("version.Info{Major:\"1\", Minor:\"36\", GitVersion:\"v1.36.3\","), "{raw}");
}

#[test]
fn the_help_names_every_flag_and_tool_within_its_width() {
    let text = help::whole(false);
    for flag in flags::all() {
        let named = |dashes: &str| text.contains(&format!("  {dashes}{}", flag.name));
        assert!(named("--") || named("-v, --") || named("-h, --"), "--{} is missing", flag.name);
    }
    for tool in TOOLS {
        assert!(text.contains(&format!("ferrolet {} ", tool.name)), "{}", tool.name);
        assert!(help::tool(tool.name).contains(tool.about));
    }
    let long: Vec<_> = text.lines().filter(|line| line.chars().count() > 100).collect();
    assert_eq!(long, [""; 0]);
    assert!(text.contains("--eviction-hard SIGNAL<AMOUNT,...\n"));
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("default imagefs.available<15%, imagefs.inodesFree<5%,"), "{text}");
    assert!(words.contains("(field readOnlyPort; default 10255)"), "{text}");
    assert!(!help::whole(true).contains("ferrolet config"));
}

#[test]
fn names_of_tools_are_taken_once() {
    let mut names: Vec<_> = TOOLS.iter().map(|tool| tool.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), TOOLS.len());
}

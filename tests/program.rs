//! The program from outside: what it prints, where, and its exit code. Starts the built program; no agent gets as far as a runtime.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ferrolet");

fn run(args: &[&str]) -> Output {
    Command::new(PROGRAM).args(args).output().unwrap()
}

/// Exit code, a part of stdout, a part of stderr; an empty part means that nothing is there.
fn check(args: &[&str], code: i32, out: &str, err: &str) {
    let output = run(args);
    let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
    for (text, part) in [(&stdout, out), (&stderr, err)] {
        assert!(
            if part.is_empty() { text.is_empty() } else { text.contains(part) },
            "{args:?}: {text} is not {part:?}"
        );
    }
}

#[test]
fn versions_and_help_go_to_stdout() {
    check(&["--version"], 0, "ferrolet 0.1.0 (kubelet v1.36.3)\n", "");
    check(&["version"], 0, "ferrolet 0.1.0 (kubelet v1.36.3)\n", "");
    check(&["version", "-o", "json"], 0, "{\"ferrolet\":\"0.1.0\",\"kubelet\":\"v1.36.3\"}\n", "");
    check(&["--version=raw"], 0, "GitVersion:\"v1.36.3\"", "");
    check(&["--help"], 0, "Usage:\n  ferrolet [flags]\n", "");
    check(&["help", "config"], 0, "Usage: ferrolet config", "");
    check(&["config", "-h"], 0, "Usage: ferrolet config", "");
}

#[test]
fn a_link_named_kubelet_is_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("kubelet");
    std::os::unix::fs::symlink(PROGRAM, &link).unwrap();
    let output = Command::new(&link).arg("--version").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Kubernetes v1.36.3\n");
    let output = Command::new(&link).arg("version").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("`version`: not a flag"));
}

#[test]
fn mistakes_end_with_a_code_and_all_of_them_on_stderr() {
    check(&["confg"], 2, "", "there is no command `confg`, did you mean config?");
    check(&["--max-pods=x", "--no-such", "config"], 1, "", "the configuration has 2 problems\n  --max-pods is `x`");
    check(&["config", "--max-pods=x", "--prot=5"], 1, "", "--prot: unknown flag, did you mean --port?");
    check(&["config", "--config=/nowhere/k.yaml"], 1, "", "/nowhere/k.yaml");
    check(&["version", "x"], 2, "", "version takes nothing but -o json");
    check(&["help", "x"], 2, "", "help takes the name of one command");
}

#[test]
fn config_prints_what_is_in_effect() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("etc/kubelet.yaml");
    let sample = sample.to_str().unwrap();
    check(&["config", "--config", sample], 0, "\nmaxPods: 110\n", "");
    check(&["config", "--config", sample, "--max-pods=7"], 0, "\nmaxPods: 7\n", "deprecated: --max-pods");
    let first = run(&["config", "--config", sample]).stdout;
    let folder = tempfile::tempdir().unwrap();
    let again = folder.path().join("again.yaml");
    std::fs::write(&again, &first).unwrap();
    assert_eq!(run(&["config", "--config", again.to_str().unwrap()]).stdout, first);
}

#[test]
fn a_check_says_what_to_do_and_fails_where_the_machine_cannot_be_a_node() {
    let none = "--container-runtime-endpoint=unix:///nowhere/runtime.sock";
    let output = run(&["check", "-o", "json", "--root-dir=/nowhere/kubelet", "--healthz-port=0", none]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("json");
    let checks = value["checks"].as_array().expect("a list");
    let of =
        |name: &str| checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("no {name}: {value}"));
    assert_eq!(of("runtime")["verdict"], "fail");
    assert!(of("runtime")["advice"].as_str().unwrap().contains("install and start a container runtime"), "{value}");
    assert_eq!((output.status.code(), &value["verdict"]), (Some(1), &"fail".into()));
    for name in ["rights", "cgroup", "swap", "clock", "disk.root-dir", "sysctl.vm.overcommit_memory", "cis.4.2.13 pids"]
    {
        of(name);
    }
    check(&["check", "--max-pods=x"], 1, "fail  config  --max-pods is `x`", "");
    check(&["check", "-o", "yaml"], 2, "", "-o takes json");
}

/// /dev/full refuses every write; a closed pipe brings EPIPE.
#[test]
fn nothing_panics_when_nobody_can_be_told() {
    for args in [&["--help"][..], &["config"], &["--max-pods=x"], &["confg"], &["--config=/nowhere"]] {
        let full = || Stdio::from(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
        let status = Command::new(PROGRAM).args(args).stdout(full()).stderr(full()).status().unwrap();
        assert!(matches!(status.code(), Some(0..=2)), "{args:?}: {status}");
        let mut child = Command::new(PROGRAM).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop((child.stdout.take(), child.stderr.take()));
        let status = child.wait().unwrap();
        assert!(matches!(status.code(), Some(0..=2)), "{args:?}: {status}");
    }
    assert_eq!(Path::new(PROGRAM).file_name(), Some(OsStr::new("ferrolet")));
}

#[test]
fn the_packaged_configuration_is_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = root.join("packaging/systemd/config.yaml");
    let output = run(&["config", &format!("--config={}", file.display())]);
    let (text, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && told.is_empty(), "{told}");
    assert!(text.contains("staticPodPath: /etc/kubernetes/manifests"), "{text}");
}

#[test]
fn manual_and_completions_name_every_command_and_flag() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let help = folder.path().join("help");
    std::fs::write(&help, run(&["--help"]).stdout).unwrap();
    let made = Command::new(root.join("packaging/documents"))
        .args([help.as_path(), folder.path()])
        .args(["1.2.3", "2026-11-30"])
        .output()
        .expect("packaging/documents needs python3");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    for (file, dashes) in
        [("ferrolet.8", "\\-\\-"), ("ferrolet.bash", "--"), ("_ferrolet", "--"), ("ferrolet.fish", "-l ")]
    {
        let text = std::fs::read_to_string(folder.path().join(file)).unwrap();
        for tool in ferrolet::cli::TOOLS {
            assert!(text.contains(tool.name), "{file} does not name {}", tool.name);
        }
        for flag in ["kubeconfig", "max-pods", "vmodule"] {
            let name = if file == "ferrolet.8" { flag.replace('-', "\\-") } else { flag.to_owned() };
            assert!(text.contains(&format!("{dashes}{name}")), "{file} does not name --{flag}");
        }
        let places = ["@COMMANDS@", "@FLAGS@", "@VERSION@", "@DATE@"];
        assert!(!places.iter().any(|place| text.contains(place)), "{file} has a place that was not filled in");
    }
}

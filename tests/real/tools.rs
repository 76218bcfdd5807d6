//! The tools at work on a real node: what people type and read, exec sessions and followed logs included.

use std::{
    fs::File,
    process::{Output, Stdio},
};

use serde_json::{Value, json};

use super::lab::{Lab, SOON, pod, shell, until_term};
use crate::harness::{Containerd, Node, wait};

/// Runs a tool with something on its standard input.
fn with_input(lab: &Lab<'_>, arguments: &[&str], input: &[u8]) -> Output {
    let file = lab.node.path("input");
    std::fs::write(&file, input).expect("write the input");
    let mut command = lab.node.command(env!("CARGO_BIN_EXE_ferrolet"));
    command.args(arguments).env("FERROLET_SOCKET", lab.agent.root_dir().join("ferrolet/ferrolet.sock"));
    command.stdin(File::open(file).expect("open the input")).stderr(Stdio::piped()).output().expect("start the tool")
}

fn check_exec(lab: &Lab<'_>) {
    let both = with_input(lab, &["exec", "tell", "--", "sh", "-c", "echo out; echo err >&2; exit 7"], b"");
    assert_eq!((both.status.code(), &both.stdout[..], &both.stderr[..]), (Some(7), &b"out\n"[..], &b"err\n"[..]));
    let limited = with_input(lab, &["exec", "tell", "--timeout", "20", "--", "sh", "-c", "echo out; exit 6"], b"");
    assert_eq!((limited.status.code(), &limited.stdout[..]), (Some(6), &b"out\n"[..]));
    // More than any pipe or socket holds, there and back, with its end.
    let much: Vec<u8> = (0..2_000_000u32).map(|n| n.to_le_bytes()[1] ^ n.to_le_bytes()[0]).collect();
    let back = with_input(lab, &["exec", "-i", "tell", "-c", "app", "--", "cat"], &much);
    assert_eq!(back.status.code(), Some(0), "{}", String::from_utf8_lossy(&back.stderr));
    assert!(back.stdout == much, "{} of {} bytes came back", back.stdout.len(), much.len());
    let none = with_input(lab, &["exec", "tell", "--", "/no/such/program"], b"");
    assert_eq!(none.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&none.stderr).contains("/no/such/program"), "{none:?}");
}

fn check_logs(lab: &Lab<'_>) {
    wait::until("the container's first words", SOON, || {
        let logs = lab.agent.tool(&["logs", "tell"])?;
        if logs == "hello\ntrouble\n" { Ok(()) } else { Err(logs) }
    });
    assert_eq!(lab.agent.tool(&["logs", "--tail", "1", "tell"]), Ok("trouble\n".to_owned()));
    let stamped = lab.agent.tool(&["logs", "--timestamps", "tell", "app"]).expect("logs");
    assert!(stamped.starts_with("20") && stamped.contains("Z hello\n"), "{stamped}");
    // Followed to the end of a pod that runs once, however often it is looked at before that.
    lab.put(&pod(
        "once",
        &[shell("app", "echo one; sleep 1; echo two", json!({}))],
        json!({ "restartPolicy": "Never" }),
    ));
    lab.wait_pod("once", "a log", |pod| {
        pod["containers"][0]["logPath"].as_str().filter(|path| !path.is_empty()).map(drop)
    });
    assert_eq!(lab.agent.tool(&["logs", "-f", "once"]), Ok("one\ntwo\n".to_owned()));
}

fn check_words(lab: &Lab<'_>) {
    let table = lab.agent.tool(&["ps"]).expect("a table");
    assert!(table.lines().any(|line| line.starts_with("default     tell-node   1/1     Running")), "{table}");
    let list: Value = serde_json::from_str(&lab.agent.tool(&["ps", "-o", "json"]).expect("a list")).expect("JSON");
    assert_eq!(list["items"][0]["status"]["phase"], "Running");
    let sheet = lab.agent.tool(&["describe", "tell"]).expect("a sheet");
    for line in ["Name:               tell-node", "Restart Policy:     Always", "    State:          Running"] {
        assert!(sheet.lines().any(|l| l == line), "{line:?} is not in\n{sheet}");
    }
    let why = lab.agent.tool(&["why", "tell-node"]).expect("a sentence");
    assert_eq!(why, "default/tell-node runs as it should; nothing to do\n");
    lab.agent
        .put_manifest("bad.yaml", "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"bad\"}}");
    wait::until("the reason why a pod is not there", SOON, || {
        let said = lab.agent.tool(&["why", "bad"]).err().ok_or("a bad pod is there")?;
        if said.contains("/manifests/bad.yaml cannot be used: ") { Ok(()) } else { Err(said) }
    });
}

fn tools_tell_what_runs_and_join_in(containerd: Containerd) {
    let node = Node::start(containerd);
    let lab = Lab::start(&node);
    lab.put(&pod(
        "tell",
        &[shell("app", &until_term("echo hello; sleep 0.1; echo trouble >&2;", ""), json!({}))],
        json!({}),
    ));
    lab.wait_running("tell");
    check_words(&lab);
    check_exec(&lab);
    check_logs(&lab);
    lab.wait_pod("once", "its end", |pod| (pod["status"]["phase"] == "Succeeded").then_some(()));
    let socket = lab.agent.root_dir().join("ferrolet/ferrolet.sock");
    let Lab { node, agent, .. } = lab;
    agent.terminate();
    let mut command = node.command(env!("CARGO_BIN_EXE_ferrolet"));
    let output = command.args(["ps", "--socket"]).arg(&socket).output().expect("start the tool");
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("ferrolet: the agent is not running: there is no /"), "{said}");
}

#[test]
fn tools_tell_what_runs_and_join_in_on_the_distributions_containerd() {
    tools_tell_what_runs_and_join_in(Containerd::System);
}

#[test]
fn tools_tell_what_runs_and_join_in_on_containerd_2() {
    tools_tell_what_runs_and_join_in(Containerd::Two);
}

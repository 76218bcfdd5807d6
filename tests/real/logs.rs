//! Rotation of the log of a container that prints all the time, on a real containerd: no line is lost.

use std::{
    fs::{self, File},
    process::Stdio,
};

use serde_json::json;

use super::lab::{Lab, SOON, pod, shell};
use crate::harness::{Containerd, Node, logs, wait};

/// How many lines the container prints, over a good dozen seconds.
const LINES: usize = 6000;

/// The numbers of the lines in a text, whatever stands before them.
fn numbers(text: &str) -> Vec<usize> {
    text.lines().filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect()
}

fn logs_lose_no_line(containerd: Containerd) {
    let node = Node::start(containerd);
    let lab = Lab::start_with(&node, |config| {
        config["containerLogMaxSize"] = json!("16Ki");
        config["containerLogMaxFiles"] = json!(100);
        config["containerLogMonitorInterval"] = json!("3s");
    });
    let script =
        format!("i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo line $i; [ $((i%100)) = 0 ] && sleep 0.2; done");
    lab.put(&pod("talks", &[shell("app", &script, json!({}))], json!({ "restartPolicy": "Never" })));
    let log = lab.wait_pod("talks", "a log", logs::path_of);
    let heard = node.path("heard");
    let mut command = node.command(env!("CARGO_BIN_EXE_ferrolet"));
    command.args(["logs", "-f", "talks"]).env("FERROLET_SOCKET", lab.agent.root_dir().join("ferrolet/ferrolet.sock"));
    let mut follower =
        command.stdout(File::create(&heard).expect("a file")).stderr(Stdio::inherit()).spawn().expect("start the tool");
    lab.wait_phase("talks", "Succeeded");

    let all: Vec<usize> = (1..=LINES).collect();
    let entries = fs::read_dir(log.parent().expect("a folder")).expect("list the logs");
    let mut names: Vec<String> =
        entries.map(|e| e.expect("an entry").file_name().into_string().expect("text")).collect();
    names.sort();
    assert!(names.len() >= 4 && names.iter().any(|name| name.ends_with(".gz")), "{names:?}");
    names.rotate_left(1);
    let kept: Vec<usize> = names.iter().flat_map(|name| numbers(&logs::read(&log.with_file_name(name)))).collect();
    assert!(kept == all, "{} of {LINES} lines are in {names:?}", kept.len());
    assert!(follower.wait().expect("the tool ends").success());
    let heard = numbers(&fs::read_to_string(heard).expect("what was heard"));
    assert!(heard == all, "{} of {LINES} lines were heard", heard.len());
    lab.remove("talks");
    wait::until("no logs", SOON, || if log.exists() { Err(log.display().to_string()) } else { Ok(()) });
}

#[test]
fn logs_lose_no_line_on_the_distributions_containerd() {
    logs_lose_no_line(Containerd::System);
}

#[test]
fn logs_lose_no_line_on_containerd_2() {
    logs_lose_no_line(Containerd::Two);
}

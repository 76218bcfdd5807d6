//! Pods that a live node refuses: what their status says, and that it is so after a restart of the agent.
//!
//! Static pods are critical: what is too big for them is told in the words for pods that nobody can make room for.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::{Value, json};

use super::lab::{Lab, has_event, pod, shell, until_term};
use crate::harness::{Containerd, Node};

fn app(more: Value) -> Value {
    shell("app", &until_term("", ""), more)
}

/// Waits for a refused pod, and compares what its status says, what the event says and that nothing of it began.
#[track_caller]
fn refused(lab: &Lab<'_>, name: &str, reason: &str, message: &str) {
    let told = lab.wait_phase(name, "Failed");
    let status = &told["status"];
    assert_eq!(
        (&status["reason"], &status["message"]),
        (&json!(reason), &json!(format!("Pod was rejected: {message}")))
    );
    assert!(has_event(&told, reason), "{told}");
    assert_eq!(lab.containers(name).len(), 0);
}

fn by_the_node(lab: &Lab<'_>) {
    let big = json!({ "resources": { "requests": { "cpu": "6400" } } });
    lab.put(&pod("big", &[app(big)], json!({})));
    let told = lab.wait_phase("big", "Failed");
    let message = told["status"]["message"].as_str().expect("a message");
    let start = "Pod was rejected: Unexpected error while attempting to recover from admission failure: preemption: ";
    assert!(message.starts_with(start) && message.contains("[(res: cpu, q: "), "{message}");
    assert_eq!(told["status"]["reason"], "UnexpectedAdmissionError");

    let sysctls = json!({ "securityContext": { "sysctls": [{ "name": "kernel.msgmax", "value": "65536" }] } });
    lab.put(&pod("sysctl", &[app(json!({}))], sysctls));
    refused(lab, "sysctl", "SysctlForbidden", "forbidden sysctl: \"kernel.msgmax\" not allowlisted");

    let port = json!({ "ports": [{ "containerPort": 80, "hostPort": 18080 }] });
    lab.put(&pod("first", &[app(port.clone())], json!({})));
    lab.wait_running("first");
    lab.put(&pod("second", &[app(port)], json!({})));
    let taken = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    refused(lab, "second", "NodePorts", taken);

    lab.put(&pod("elsewhere", &[app(json!({}))], json!({ "nodeSelector": { "kubernetes.io/arch": "vax" } })));
    let wrong = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    refused(lab, "elsewhere", "NodeAffinity", wrong);
}

#[test]
fn pods_that_the_node_refuses_stay_refused_and_the_others_run() {
    let node = Node::start(Containerd::System);
    let lab = Lab::start(&node);
    by_the_node(&lab);
    let before = lab.identities("first").expect("the runtime lists");
    lab.agent.kill();
    let lab = Lab::start(&node);
    for name in ["big", "sysctl", "second", "elsewhere"] {
        lab.wait_phase(name, "Failed");
    }
    lab.wait_running("first");
    assert_eq!(lab.identities("first").expect("the runtime lists"), before);
    for name in ["big", "sysctl", "second", "elsewhere", "first"] {
        lab.remove(name);
        lab.wait_gone(name);
    }
}

/// Writes the node's own settings with a hook that refuses one pod and hangs over another.
fn put_hook(node: &Node, timeout: &str, failure_policy: &str) {
    let script = r#"#!/bin/sh
case "$(cat)" in
*'"name":"hung-node"'*) sleep 1000 ;;
*'"name":"unwanted-node"'*) echo '{"admit": false, "reason": "NoGpu", "message": "no GPU here"}' ;;
*) echo '{"admit": true}' ;;
esac
"#;
    let program = node.path("hook.sh");
    fs::write(&program, script).expect("write the hook");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("make the hook a program");
    let hook = json!({ "command": [program], "timeout": timeout, "failurePolicy": failure_policy });
    let own = json!({ "admissionHook": hook });
    fs::write(node.path("ferrolet.yaml"), own.to_string()).expect("write the agent's own settings");
}

#[test]
fn a_program_of_the_owner_has_the_last_word_and_delays_its_own_pod_only() {
    let node = Node::start(Containerd::System);
    put_hook(&node, "2m", "reject");
    let lab = Lab::start(&node);
    lab.put(&pod("hung", &[app(json!({}))], json!({})));
    lab.wait_pod("hung", "asked about", |pod| (pod["stage"] == "Asking").then_some(()));
    lab.put(&pod("fine", &[app(json!({}))], json!({})));
    lab.put(&pod("unwanted", &[app(json!({}))], json!({})));
    lab.wait_running("fine");
    refused(&lab, "unwanted", "NoGpu", "no GPU here");
    assert_eq!(lab.pod("hung").expect("it is still there")["stage"], "Asking");

    // A shorter patience, and the other policy: the pod that runs is not asked about again.
    let before = lab.identities("fine").expect("the runtime lists");
    lab.agent.kill();
    put_hook(&node, "1s", "admit");
    let lab = Lab::start(&node);
    let told = lab.wait_running("hung");
    assert!(has_event(&told, "AdmissionHookFailed"), "{told}");
    lab.wait_running("fine");
    assert_eq!(lab.identities("fine").expect("the runtime lists"), before);
    for name in ["hung", "fine", "unwanted"] {
        lab.remove(name);
        lab.wait_gone(name);
    }
}

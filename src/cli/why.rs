//! `ferrolet why`: what a pod waits for, in plain sentences. Runs on the main thread; asks the agent.

use super::client::{self, Agent, Output, Refusal, node_problems};
use super::print;
use crate::server::wire::{FailureKind, NodeDetails, PodDetails};
use std::ffi::OsString;
use std::fmt::Write;
use std::process::ExitCode;

const HELP: &str = "\nSays for one pod what it waits for and what was planned last, and what is wrong with the node \
if that may be why.\nWithout a pod: everything that is not as it should be.\n\n  -o json|yaml    for programs\n";

/// What an active pod says of itself when all is well.
const AT_REST: &str = "runs as it should; nothing to do";

/// `ferrolet why [POD] [-o json|yaml]`.
pub(super) fn run(args: Vec<OsString>) -> ExitCode {
    client::end("why", why(args))
}

fn why(args: Vec<OsString>) -> Result<ExitCode, Refusal> {
    use lexopt::prelude::*;
    let (mut agent, mut output, mut pod) = (Agent::default(), Output::Text, None);
    let mut words = lexopt::Parser::from_args(args);
    while let Some(word) = words.next()? {
        match word {
            Short('h') | Long("help") => return Ok(client::show_help("why", HELP)),
            Short('o') | Long("output") => output = Output::parse(&words.value()?, false)?,
            Long("socket") => agent.socket = Some(words.value()?.into()),
            Value(word) => client::take_pod(&mut pod, word)?,
            other => return Err(other.unexpected().into()),
        }
    }
    let (node, pods) = match &pod {
        Some(word) => match agent.pod(word) {
            Ok((node, pod)) => (node, vec![pod]),
            Err(refusal) if refusal.kind == Some(FailureKind::NotFound) => return Err(not_there(&agent, refusal)),
            Err(refusal) => return Err(refusal),
        },
        None => agent.pods().map(|(node, pods)| (node, pods.into_iter().filter(|pod| !is_well(pod)).collect()))?,
    };
    match output {
        Output::Json | Output::Yaml => {
            let pods: Vec<_> = pods.iter().map(as_value).collect();
            output.print(&serde_json::json!({"node": node_problems(&node), "pods": pods}))
        }
        Output::Text | Output::Wide if pod.is_some() => Ok(print(&one(&node, &pods))),
        Output::Text | Output::Wide => Ok(print(&all(&node, &pods))),
    }
}

/// A pod that is not there may be one whose manifest cannot be used.
fn not_there(agent: &Agent, refusal: Refusal) -> Refusal {
    let Ok((node, _)) = agent.pods() else { return refusal };
    let mut message = refusal.message;
    for problem in node_problems(&node) {
        let _written = write!(message, "\n  perhaps because {problem}");
    }
    Refusal { message, ..refusal }
}

fn is_well(pod: &PodDetails) -> bool {
    pod.stage == "Active" && pod.waits_for == AT_REST
}

fn as_value(pod: &PodDetails) -> serde_json::Value {
    serde_json::json!({
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "stage": pod.stage,
        "waitsFor": pod.waits_for,
        "plan": pod.plan,
    })
}

fn one(node: &NodeDetails, pods: &[PodDetails]) -> String {
    let mut text = String::new();
    for pod in pods {
        text.push_str(&sentence(pod));
        for step in &pod.plan {
            let _written = writeln!(text, "  planned: {step}");
        }
        let trouble = pod.events.iter().rev().find(|event| event.type_ == "Warning").filter(|_| !is_well(pod));
        if let Some(event) = trouble {
            let _written = writeln!(text, "  last trouble: {}: {}", event.reason, event.message);
        }
        // The manifests of other pods are not why this one waits.
        if !is_well(pod) {
            let node = NodeDetails { problems: Vec::new(), ..node.clone() };
            for problem in node_problems(&node) {
                let _written = writeln!(text, "  and {problem}");
            }
        }
    }
    text
}

fn all(node: &NodeDetails, pods: &[PodDetails]) -> String {
    let mut text: String =
        node_problems(node).into_iter().map(|problem| format!("node {}: {problem}\n", node.name)).collect();
    text.extend(pods.iter().map(sentence));
    if text.is_empty() { "all pods run as they should\n".to_owned() } else { text }
}

fn sentence(pod: &PodDetails) -> String {
    format!("{}/{} {}\n", pod.namespace, pod.name, pod.waits_for)
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use expect_test::{Expect, expect};

    fn check(pods: &[&str], expect: Expect) {
        let chosen: Vec<PodDetails> =
            samples::pods().into_iter().filter(|pod| pods.contains(&pod.name.as_str())).collect();
        let text = if let [_] = pods { one(&samples::node(), &chosen) } else { all(&samples::node(), &chosen) };
        expect.assert_eq(&text);
    }

    #[test]
    fn sentences() {
        check(
            &["web-edge"],
            expect![[r#"
            default/web-edge waits for back-off of container web: 80 s more
              planned: start container web: it has ended
              last trouble: BackOff: Back-off restarting failed container
              and the container runtime does not answer: no such socket
              and no word yet from these sources of pods, so nothing is removed: http
        "#]],
        );
        check(
            &["db-edge"],
            expect![[r#"
            default/db-edge runs as it should; nothing to do
        "#]],
        );
        check(
            &["web-edge", "old-edge"],
            expect![[r#"
            node edge: the container runtime does not answer: no such socket
            node edge: no word yet from these sources of pods, so nothing is removed: http
            node edge: /etc/m/bad.yaml cannot be used: spec.containers is empty
            default/web-edge waits for back-off of container web: 80 s more
            kube-system/old-edge ends: its source no longer has it
        "#]],
        );
        assert_eq!(all(&NodeDetails::default(), &[]), "all pods run as they should\n");
    }
}

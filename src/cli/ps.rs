//! `ferrolet ps`: the pods of this node, one a line. Runs on the main thread; asks the agent once.

use super::client::{self, Agent, Output, Refusal};
use super::table::{age, age_of, nanos, table};
use super::{complain, print};
use crate::api::runtime::UnixNanos;
use crate::api::v1::Pod;
use crate::core::status::summary;
use crate::server::wire::PodDetails;
use crate::util::clock;
use std::ffi::OsString;
use std::process::ExitCode;

const HELP: &str = "\n  -n, --namespace NS   only this namespace\n  -o wide|json|yaml    more columns, or whole pods as in \
the Kubernetes API\n  --no-headers         leave the first line out\n";

/// `ferrolet ps [-n NS] [-o wide|json|yaml] [--no-headers]`.
pub(super) fn run(args: Vec<OsString>) -> ExitCode {
    client::end("ps", ps(args))
}

fn ps(args: Vec<OsString>) -> Result<ExitCode, Refusal> {
    use lexopt::prelude::*;
    let (mut agent, mut output, mut namespace, mut headers) = (Agent::default(), Output::Text, None, true);
    let mut words = lexopt::Parser::from_args(args);
    while let Some(word) = words.next()? {
        match word {
            Short('h') | Long("help") => return Ok(client::show_help("ps", HELP)),
            Short('o') | Long("output") => output = Output::parse(&words.value()?, true)?,
            Short('n') | Long("namespace") => namespace = Some(client::text(words.value()?)?),
            Short('A') | Long("all-namespaces") => namespace = None,
            Long("no-headers") => headers = false,
            Long("socket") => agent.socket = Some(words.value()?.into()),
            other => return Err(other.unexpected().into()),
        }
    }
    let (node, mut pods) = agent.pods()?;
    pods.retain(|pod| namespace.as_ref().is_none_or(|namespace| *namespace == pod.namespace));
    for problem in client::node_problems(&node) {
        complain(&format!("warning: {problem}"));
    }
    match output {
        Output::Json | Output::Yaml => {
            let items: Vec<Pod> = pods.iter().map(as_api_pod).collect();
            output.print(&serde_json::json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}))
        }
        Output::Text | Output::Wide if pods.is_empty() => {
            complain(&namespace.map_or_else(
                || "this node has no pods".to_owned(),
                |namespace| format!("this node has no pods in namespace {namespace}"),
            ));
            Ok(ExitCode::SUCCESS)
        }
        Output::Text | Output::Wide => Ok(print(&render(&pods, output == Output::Wide, headers, clock::wall()))),
    }
}

/// The pod as the API would tell it: what should run, with the status that the node computed.
pub(super) fn as_api_pod(details: &PodDetails) -> Pod {
    let mut pod = details.pod.as_deref().cloned().unwrap_or_default();
    pod.metadata.uid = Some(details.uid.clone());
    pod.metadata.namespace = Some(details.namespace.clone());
    pod.metadata.name = Some(details.name.clone());
    pod.status = Some((*details.status).clone());
    pod
}

/// The word of the STATUS column. Pods of files have no deletion time: their stage tells that they end.
pub(super) fn status_word(details: &PodDetails, word: String) -> String {
    if details.stage == "Terminating" && !matches!(word.as_str(), "Completed" | "Error") {
        return details.stage.clone();
    }
    word
}

fn render(pods: &[PodDetails], wide: bool, headers: bool, now: UnixNanos) -> String {
    let mut rows = Vec::new();
    if headers {
        let heads = ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP"];
        let more: &[&str] = if wide { &["UID", "STAGE", "WAITS FOR"] } else { &[] };
        rows.push(heads.iter().chain(more).map(ToString::to_string).collect::<Vec<_>>());
    }
    for details in pods {
        let pod = details.pod.as_deref().cloned().unwrap_or_default();
        let line = summary(&details.status, &pod);
        let restarts = match &line.last_restart {
            Some(time) => format!("{} ({} ago)", line.restarts, age(nanos(time), now)),
            None => line.restarts.to_string(),
        };
        let ip = details.status.pod_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| "<none>".to_owned());
        let mut row = vec![
            details.namespace.clone(),
            details.name.clone(),
            line.ready,
            status_word(details, line.status),
            restarts,
            age_of(line.since.as_ref(), now),
            ip,
        ];
        if wide {
            let waits_for = details.waits_for.lines().next().unwrap_or_default();
            row.extend([details.uid.clone(), details.stage.clone(), waits_for.to_owned()]);
        }
        rows.push(row);
    }
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use expect_test::{Expect, expect};

    fn check(wide: bool, headers: bool, expect: Expect) {
        expect.assert_eq(&render(&samples::pods(), wide, headers, samples::NOW));
    }

    #[test]
    fn tables() {
        check(
            false,
            true,
            expect![[r#"
            NAMESPACE     NAME       READY   STATUS             RESTARTS      AGE         IP
            default       db-edge    1/1     Running            0             3h          10.0.0.7
            default       web-edge   0/1     CrashLoopBackOff   4 (60s ago)   10m         10.0.0.8
            kube-system   old-edge   0/0     Terminating        0             <unknown>   <none>
        "#]],
        );
        check(
            true,
            false,
            expect![[r#"
            default       db-edge    1/1   Running            0             3h          10.0.0.7   1111   Active        runs as it should; nothing to do
            default       web-edge   0/1   CrashLoopBackOff   4 (60s ago)   10m         10.0.0.8   2222   Active        waits for back-off of container web: 80 s more
            kube-system   old-edge   0/0   Terminating        0             <unknown>   <none>     3333   Terminating   ends: its source no longer has it
        "#]],
        );
    }

    #[test]
    fn programs_get_pods_with_their_status() {
        let pod = as_api_pod(&samples::pods()[0]);
        let value = serde_json::to_value(&pod).expect("JSON");
        assert_eq!(value["kind"], "Pod");
        assert_eq!(value["metadata"]["name"], "db-edge");
        assert_eq!(value["status"]["phase"], "Running");
    }
}

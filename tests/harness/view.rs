//! What an agent thinks, read from its local socket: pods with their status, and what its sources could not use.
//!
//! Used from the thread of one test; each look is one question. Nothing here changes anything.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use serde_json::Value;

use super::{Agent, wait};

impl Agent<'_> {
    /// All that the agent knows: lines with `node`, `pod` or `end`.
    fn view(&self) -> Result<Vec<Value>, String> {
        let socket = self.root_dir().join("ferrolet/ferrolet.sock");
        let told = ask(&socket, r#"{"pods":{}}"#).map_err(|err| format!("{}: {err}", socket.display()))?;
        if !told.iter().any(|line| line.get("end").is_some()) {
            return Err(format!("the answer was cut off after {} lines", told.len()));
        }
        Ok(told)
    }

    /// All pods that the agent knows.
    pub(crate) fn pods(&self) -> Result<Vec<Value>, String> {
        let told = self.view()?;
        Ok(told.into_iter().filter_map(|mut line| line.get_mut("pod").map(Value::take)).collect())
    }

    /// What the agent could not use of a manifest file; empty if nothing is wrong with it.
    pub(crate) fn problem_of(&self, file: &str) -> Result<String, String> {
        let origin = self.manifests().join(file).display().to_string();
        let told = self.view()?;
        let problems = told.iter().filter_map(|line| line["node"]["problems"].as_array()).flatten();
        let messages = problems.filter(|problem| problem["origin"] == origin.as_str());
        Ok(messages.filter_map(|problem| problem["message"].as_str()).collect::<Vec<_>>().join("; "))
    }

    /// One pod, by its name in the manifest. When two lives of a name overlap, the one that is not on its way out.
    pub(crate) fn pod(&self, name: &str) -> Result<Value, String> {
        let full = format!("{name}-node");
        let mut found: Vec<Value> = self.pods()?.into_iter().filter(|pod| pod["name"] == full.as_str()).collect();
        found.sort_by_key(|pod| pod["stage"] == "Active");
        found.pop().ok_or_else(|| format!("the agent has no pod {full}"))
    }

    /// Waits until `look` has what it wants of a pod.
    #[track_caller]
    pub(crate) fn wait_pod<T>(
        &self,
        name: &str,
        what: &str,
        within: Duration,
        look: impl Fn(&Value) -> Option<T>,
    ) -> T {
        wait::until(&format!("pod {name}: {what}"), within, || {
            let pod = self.pod(name)?;
            look(&pod).ok_or_else(|| story(&pod))
        })
    }
}

/// What a pod is doing, for the message of a test that waited in vain.
pub(crate) fn story(pod: &Value) -> String {
    let pick = |what: &str| pod[what].to_string();
    let events: Vec<String> =
        pod["events"].as_array().into_iter().flatten().map(|e| format!("{} {}", e["reason"], e["message"])).collect();
    let statuses = ["initContainerStatuses", "containerStatuses"].map(|list| pod["status"][list].to_string());
    format!(
        "{} {}, waits for {}, plan {}, {}, events {events:#?}",
        pick("stage"),
        pod["status"]["phase"],
        pick("waitsFor"),
        pick("plan"),
        statuses.join(", ")
    )
}

/// Whether every app container of a pod runs.
pub(crate) fn is_running(pod: &Value) -> bool {
    let statuses = pod["status"]["containerStatuses"].as_array();
    let running = |status: &Value| status["state"].get("running").is_some();
    statuses.is_some_and(|all| !all.is_empty() && all.iter().all(running))
}

/// Asks a local socket and gives the lines of the answer.
fn ask(socket: &Path, question: &str) -> std::io::Result<Vec<Value>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    writeln!(stream, "{question}")?;
    BufReader::new(stream).lines().map(|line| serde_json::from_str(&line?).map_err(std::io::Error::from)).collect()
}

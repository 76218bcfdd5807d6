//! `/checkpoint/{namespace}/{pod}/{container}`: has the runtime write a running container to a file.
//!
//! On the threads that serve requests, as long as the runtime takes. The file lies in `<root-dir>/checkpoints`, which only root may read; its
//! name says of which container and when.

use std::os::unix::fs::DirBuilderExt as _;
use std::time::Duration;

use super::super::NodeParts;
use super::super::http::{Reply, Request};
use super::find;
use crate::util::clock;

/// The folder of checkpoints, as upstream has it.
const FOLDER: &str = "checkpoints";
/// Longest time that a client may ask for.
const MAX_SECONDS: i64 = 3600;

/// Answers.
pub(in crate::server::node) fn checkpoint(parts: &NodeParts, request: &mut Request<'_>) -> Reply {
    match write(parts, request) {
        Ok(location) => Reply::json(format!("{{\"items\":[{}]}}", serde_json::Value::from(location)).into_bytes()),
        Err(reply) => reply,
    }
}

fn write(parts: &NodeParts, request: &Request<'_>) -> Result<String, Reply> {
    if !parts.streams.checkpoints {
        return Err(Reply::error(404, "404: Page Not Found"));
    }
    let (namespace, name, container) = (request.param("namespace"), request.param("pod"), request.param("container"));
    let missing = |text: &str| Reply::text(404, text);
    let pod = find::pod(&parts.view.get(), namespace, name).ok_or_else(|| missing("pod does not exist"))?;
    if find::spec(&pod, container).is_none() {
        return Err(missing(&format!("container {container} does not exist")));
    }
    // Without a word of the client the usual time of a call counts.
    let seconds = match request.query_all("timeout").last() {
        None => 0,
        Some(text) => text.parse::<i64>().map_err(|_| missing("cannot parse value of timeout parameter"))?,
    };
    let seconds = u64::try_from(seconds.min(MAX_SECONDS)).unwrap_or(0);
    let failed =
        |why: &str| Reply::text(500, &format!("checkpointing of {namespace}/{name}/{container} failed ({why})"));
    let running = find::running(&pod, container).ok_or_else(|| failed(&format!("container {container} not found")))?;
    let folder = parts.root_dir.join(FOLDER);
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.map_err(|error| failed(&format!("cannot make {}: {error}", folder.display())))?;
    let now = jiff::Timestamp::from_second(clock::wall() / 1_000_000_000).unwrap_or_default();
    let location = folder.join(format!("checkpoint-{}-{container}-{now}.tar", find::full_name(&pod)));
    let location = location.display().to_string();
    let asked = parts.runtime.checkpoint_container(&running.id, &location, Duration::from_secs(seconds), &parts.stop);
    asked.map_err(|error| failed(&error.rpc_text()))?;
    Ok(location)
}

#[cfg(test)]
mod tests {
    use super::super::super::http::request::with_request;
    use super::*;
    use crate::api::PodName;
    use crate::api::runtime::{ContainerState, RuntimeContainer, RuntimePod};
    use crate::api::v1::Pod;
    use crate::msg::{NodeView, PodView};
    use serde_json::json;
    use std::sync::Arc;

    fn check(path: &str, is_on: bool, status: u16, expect: &str) {
        let dir = tempfile::tempdir().expect("a folder");
        let mut parts = NodeParts::for_tests();
        parts.streams.checkpoints = is_on;
        parts.root_dir = dir.path().to_owned();
        let pod: Pod = serde_json::from_value(
            json!({"metadata": {"name": "web", "namespace": "ns"}, "spec": {"containers": [{"name": "c"}, {"name": "late"}]}}),
        )
        .expect("a pod");
        let running = RuntimeContainer::bare("id1", "s", "c", 0, ContainerState::Running { started_at: 0 });
        let runtime = RuntimePod {
            uid: Some("u1".into()),
            name: "web".to_owned(),
            namespace: "ns".to_owned(),
            sandboxes: Vec::new(),
            containers: vec![running],
        };
        let name = PodName { namespace: "ns".to_owned(), name: "web".to_owned() };
        let view =
            PodView { pod: Some(Arc::new(pod)), runtime: Some(Arc::new(runtime)), ..PodView::named("u1".into(), name) };
        parts.view.set(Arc::new(NodeView { pods: [(view.uid.clone(), Arc::new(view))].into(), ..NodeView::default() }));
        let reply = with_request(&format!("POST /checkpoint/{path}"), "", |request| {
            let words = path.split('?').next().unwrap_or_default().split('/').map(str::to_owned);
            request.params.extend(["namespace", "pod", "container"].into_iter().zip(words));
            checkpoint(&parts, request)
        });
        let got = (reply.status(), String::from_utf8(reply.into_bytes().expect("a body")).expect("text"));
        assert!(got.0 == status && got.1.starts_with(expect), "{path}: {got:?}");
    }

    #[test]
    fn what_is_no_checkpoint_is_told_in_the_kubelets_words() {
        check("ns/no/c", true, 404, "pod does not exist");
        check("ns/web/x", true, 404, "container x does not exist");
        check("ns/web/c?timeout=5&timeout=x", true, 404, "cannot parse value of timeout parameter");
        check("ns/web/late", true, 500, "checkpointing of ns/web/late failed (container late not found)");
        check(
            "ns/web/c",
            true,
            500,
            "checkpointing of ns/web/c failed (CheckpointContainer: the socket does not exist",
        );
        check("ns/web/c", false, 404, "404: Page Not Found");
    }
}

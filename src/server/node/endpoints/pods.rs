//! `/pods` and `/runningpods/`: what should run here, and what does.
//!
//! On the threads that serve requests; reads the newest view, or asks the runtime. Pods are written one after the other, so that a full node's
//! do not stand in memory twice.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Value, json};

use super::super::NodeParts;
use super::super::http::reply::JSON;
use super::super::http::{Reply, Request};
use crate::api::pod::is_static;
use crate::api::runtime::{ContainerState, RuntimePod, SandboxState};
use crate::msg::PodView;

const START: &[u8] = br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#;

/// `/pods`: the pods that the sources want here, as the API has them. The status of a pod from the API server is the API server's word;
/// of a static one there is only this node's.
pub(in crate::server::node) fn wanted(parts: &NodeParts, _: &mut Request<'_>) -> Reply {
    let view = parts.view.get();
    Reply::stream(JSON, move |out| list(out, view.pods.values().filter_map(|view| wanted_pod(view))))
}

fn list(out: &mut dyn Write, pods: impl Iterator<Item = Value>) -> io::Result<()> {
    out.write_all(START)?;
    for (index, pod) in pods.enumerate() {
        if index > 0 {
            out.write_all(b",")?;
        }
        write!(out, "{pod}")?;
    }
    out.write_all(b"]}\n")
}

fn wanted_pod(view: &PodView) -> Option<Value> {
    let pod = view.wanted.as_deref()?;
    let mut value = serde_json::to_value(pod).ok()?;
    if is_static(pod) {
        value["status"] = serde_json::to_value(&*view.status).ok()?;
    }
    // Items of a list do not say what they are.
    let fields = value.as_object_mut()?;
    fields.remove("kind");
    fields.remove("apiVersion");
    fields.entry("status").or_insert_with(|| json!({}));
    Some(value)
}

/// `/runningpods/`: the pods of which the runtime has something alive, with little more than their names.
pub(in crate::server::node) fn running(parts: &NodeParts, _: &mut Request<'_>) -> Reply {
    match parts.runtime.list_pods(&parts.stop) {
        Err(error) => Reply::error(500, &format!("the container runtime does not tell: {error}")),
        Ok(pods) => Reply::stream(JSON, move |out| list(out, pods.iter().filter_map(running_pod))),
    }
}

fn running_pod(pod: &RuntimePod) -> Option<Value> {
    let uid = pod.uid.as_ref()?;
    let lives = |state: &ContainerState| matches!(state, ContainerState::Running { .. });
    let ready = pod.sandboxes.iter().any(|sandbox| sandbox.state == SandboxState::Ready);
    // One entry for each name, the newest instance.
    let mut containers: BTreeMap<&str, Value> = BTreeMap::new();
    for container in pod.containers.iter().filter(|container| lives(&container.state)) {
        let value = json!({"name": container.name, "image": container.image, "resources": {}});
        containers.entry(&container.name).or_insert(value);
    }
    if containers.is_empty() && !ready {
        return None;
    }
    let containers: Vec<Value> = containers.into_values().collect();
    Some(json!({
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": uid.to_string()},
        "spec": {"containers": containers},
        "status": {},
    }))
}

#[cfg(test)]
mod tests {
    use super::super::super::http::request::with_request;
    use super::*;
    use crate::api::v1::{Pod, PodStatus};
    use crate::api::{PodName, PodUid};
    use crate::msg::NodeView;
    use crate::util::json::from_value;
    use crate::util::snapshot::Snapshot;
    use std::sync::Arc;

    fn pod(name: &str, source: &str) -> Arc<Pod> {
        let value = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"),
                "annotations": {"kubernetes.io/config.source": source}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Pending"},
        });
        Arc::new(from_value(&value).expect("a pod"))
    }

    #[test]
    fn wanted_pods_are_told_as_the_api_has_them() {
        let view = |name: &str, wanted: Option<Arc<Pod>>| {
            let status = PodStatus { phase: Some("Running".to_owned()), ..PodStatus::default() };
            let uid = PodUid::from(format!("uid-{name}").as_str());
            let names = PodName { namespace: "ns".to_owned(), name: name.to_owned() };
            let view = PodView { wanted, status: Arc::new(status), ..PodView::named(uid.clone(), names) };
            (uid, Arc::new(view))
        };
        let pods = [view("a", Some(pod("a", "api"))), view("b", Some(pod("b", "file"))), view("gone", None)];
        let view = NodeView { pods: pods.into_iter().collect(), ..NodeView::default() };
        let parts = NodeParts { view: Arc::new(Snapshot::new(view)), ..NodeParts::for_tests() };
        let reply = with_request("GET /pods", "", |request| wanted(&parts, request));
        assert_eq!((reply.status(), reply.header("content-type")), (200, Some("application/json")));
        let list: Value = serde_json::from_slice(&reply.into_bytes().expect("a list")).expect("JSON");
        assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("PodList"), &json!("v1")));
        let items = list["items"].as_array().expect("items");
        let facts: Vec<_> = items.iter().map(|item| (&item["metadata"]["name"], &item["status"]["phase"])).collect();
        assert_eq!(facts, [(&json!("a"), &json!("Pending")), (&json!("b"), &json!("Running"))]);
        assert!(items.iter().all(|item| item.get("kind").is_none() && item.get("apiVersion").is_none()));
    }

    #[test]
    fn a_runtime_that_is_away_is_a_failure() {
        let reply = with_request("GET /runningpods/", "", |request| running(&NodeParts::for_tests(), request));
        assert_eq!(reply.status(), 500);
    }
}

//! Ring 3 of the reporters: statuses and events over real HTTP, to an API server that fails on demand.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use ferrolet::agents::events::EventsHandle;
use ferrolet::agents::status::StatusHandle;
use ferrolet::api::v1::{Pod, PodStatus};
use ferrolet::api::{PodName, PodUid};
use ferrolet::msg::{EventObject, EventType, Life, NodeView, PodView, ToldEvent};
use ferrolet::util::snapshot::Snapshot;
use serde_json::{Value, json};

use crate::fakes::api::{ApiFault, FakeApi};
use crate::it_kube::client;

const POD: &str = "/api/v1/namespaces/ns/pods/a";

/// A reporter of statuses, its view and its API server with one pod.
struct Lab {
    api: FakeApi,
    view: Arc<Snapshot<NodeView>>,
    bell: Sender<()>,
    _status: StatusHandle,
    _folder: tempfile::TempDir,
}

impl Lab {
    fn new() -> Self {
        let api = FakeApi::start();
        let folder = tempfile::tempdir().expect("a folder");
        let client = client(api.kubeconfig("http", &json!({}), &json!({})), folder.path());
        let view = Arc::new(Snapshot::new(NodeView { is_listed: true, ..NodeView::default() }));
        let (bell, rung) = bounded(1);
        let status = StatusHandle::start(Box::new(client), Arc::clone(&view), Box::new(|| None), rung);
        Self { api, view, bell, _status: status.expect("a thread"), _folder: folder }
    }

    /// The API has the pod, and the node says this of it.
    fn tell(&self, object: &Value, phase: &str, life: Life) {
        let pod: Arc<Pod> = Arc::new(serde_json::from_value(object.clone()).expect("a pod"));
        let name = PodName { namespace: "ns".to_owned(), name: "a".to_owned() };
        let status = PodStatus { phase: Some(phase.to_owned()), ..PodStatus::default() };
        let view = PodView {
            pod: Some(Arc::clone(&pod)),
            wanted: Some(pod),
            status: Arc::new(status),
            life,
            ..PodView::named(PodUid::from("u"), name)
        };
        let mut node = NodeView { is_listed: true, ..NodeView::default() };
        node.pods.insert(view.uid.clone(), Arc::new(view));
        self.view.set(Arc::new(node));
        // It rings already.
        let _rings = self.bell.try_send(());
    }

    fn object(&self, deleted: bool) -> Value {
        let mut object = json!({"kind": "Pod", "metadata": {"name": "a", "namespace": "ns", "uid": "u"}, "status": {}});
        if deleted {
            object["metadata"]["deletionTimestamp"] = json!("2026-11-30T10:00:00Z");
        }
        self.api.put(POD, object)
    }
}

fn body(api: &FakeApi, part: &str) -> Value {
    let requests = api.requests();
    let newest = requests.iter().rev().find(|request| request.short().contains(part)).expect("the request");
    serde_json::from_slice(&newest.body).expect("JSON")
}

/// Waits until an object is so: a request is on record before its answer is made.
fn until(api: &FakeApi, path: &str, is_so: impl Fn(&Value) -> bool) {
    crate::harness::wait::until(path, Duration::from_secs(60), || match api.object(path) {
        Some(object) if is_so(&object) => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[test]
fn a_status_is_patched_and_a_pod_that_is_gone_is_deleted_for_good() {
    let lab = Lab::new();
    let object = lab.object(true);
    lab.tell(&object, "Running", Life::Ending);
    lab.api.wait_for("PATCH", 1);
    assert_eq!(body(&lab.api, "PATCH"), json!({"metadata": {"uid": "u"}, "status": {"phase": "Running"}}));
    let patch = lab.api.requests().into_iter().find(|request| request.method == "PATCH").expect("the patch");
    assert_eq!(patch.headers["content-type"], "application/strategic-merge-patch+json");
    lab.tell(&object, "Succeeded", Life::Over);
    lab.api.wait_for("DELETE", 1);
    let options = body(&lab.api, "DELETE");
    assert_eq!((&options["gracePeriodSeconds"], &options["preconditions"]), (&json!(0), &json!({"uid": "u"})));
    let path = POD.to_owned();
    // No request is spent on reading what the watch or the last answer showed.
    let expect = [format!("PATCH {path}/status"), format!("PATCH {path}/status"), format!("DELETE {path}")];
    assert_eq!(lab.api.asked(), expect);
}

#[test]
fn a_server_that_was_away_is_told_the_newest_status_once() {
    let lab = Lab::new();
    let object = lab.object(false);
    lab.api.fail("PATCH", ApiFault::Close, 1000);
    lab.tell(&object, "Pending", Life::Active);
    lab.api.wait_for("PATCH", 1);
    lab.tell(&object, "Running", Life::Active);
    lab.api.wait_for("PATCH", 3);
    lab.api.mend();
    until(&lab.api, POD, |pod| pod["status"]["phase"] == "Running");
    let told = lab.api.asked().len();
    lab.tell(&object, "Failed", Life::Over);
    until(&lab.api, POD, |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(lab.api.asked().len(), told + 1, "nothing was told twice");
}

#[test]
fn a_conflict_and_a_sick_server_are_no_reason_to_lose_a_status() {
    let lab = Lab::new();
    let object = lab.object(false);
    lab.api.fail("PATCH", ApiFault::Status(409, None), 1);
    lab.api.fail("PATCH", ApiFault::Status(500, None), 1);
    lab.tell(&object, "Running", Life::Active);
    lab.api.wait_for("PATCH", 3);
    until(&lab.api, POD, |pod| pod["status"]["phase"] == "Running");
}

#[test]
fn events_are_created_counted_and_created_anew_when_they_were_forgotten() {
    let api = FakeApi::start();
    let folder = tempfile::tempdir().expect("a folder");
    let client = client(api.kubeconfig("http", &json!({}), &json!({})), folder.path());
    let handle = EventsHandle::start(Box::new(client), "n").expect("a thread");
    let tell = |message: &str| {
        let object = EventObject {
            kind: "Pod",
            name: "a".to_owned(),
            namespace: "ns".to_owned(),
            uid: "u".to_owned(),
            ..EventObject::default()
        };
        let (reason, message) = ("Pulled".to_owned(), message.to_owned());
        handle.sender().tell(ToldEvent { object, event_type: EventType::Normal, reason, message, at: 1 });
    };
    tell("m");
    tell("m");
    api.wait_for("PATCH", 1);
    let name = "/api/v1/namespaces/ns/events/a.1";
    until(&api, name, |event| event["count"] == 2 && event["involvedObject"]["uid"] == "u");
    api.remove(name);
    tell("m");
    api.wait_for("POST", 2);
    until(&api, name, |event| event["count"] == 3);
    // What is refused for good is dropped, and the next one is written.
    api.fail("POST", ApiFault::Status(403, None), 1);
    tell("refused");
    tell("taken");
    api.wait_for("POST", 4);
    assert_eq!(body(&api, "POST")["message"], "taken");
}

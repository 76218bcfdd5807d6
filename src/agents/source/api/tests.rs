//! What the source makes of the news of the API server.

use super::*;
use serde_json::{Value, json};
use std::cell::RefCell;

fn pod(name: &str, uid: &str, version: &str, more: Value) -> Pod {
    let mut metadata = json!({"name": name, "namespace": "n", "uid": uid, "resourceVersion": version});
    metadata.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    serde_json::from_value(json!({"metadata": metadata, "spec": {"containers": []}})).expect("a pod")
}

fn failed(message: &str) -> ListEvent<Pod> {
    ListEvent::Failed(crate::kube::ApiError::Connection {
        method: "WATCH",
        path: "/p".to_owned(),
        message: message.to_owned(),
    })
}

/// Tells the events and prints every set that was sent: `name@version`, `!` for problems.
fn check(events: Vec<ListEvent<Pod>>, expect: &[&str]) {
    let sent = RefCell::new(Vec::new());
    let mut actor = ApiActor {
        origin: "https://a".to_owned(),
        pods: BTreeMap::new(),
        failure: None,
        is_changed: false,
        outbox: Outbox::new(SourceKind::Api, |update: SourceUpdate| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let names = update
                .pods
                .iter()
                .map(|pod| format!("{}@{}", text(&pod.metadata.name), text(&pod.metadata.resource_version)));
            let problems = update.problems.iter().map(|problem| format!("!{}", problem.message));
            sent.borrow_mut().push(names.chain(problems).collect::<Vec<_>>().join(" "));
        }),
    };
    for (index, event) in events.into_iter().enumerate() {
        actor.hear(event, &format!("time {index}"));
    }
    drop(actor);
    assert_eq!(sent.into_inner(), expect);
}

#[test]
fn a_burst_of_news_is_one_set() {
    let none = json!({});
    check(
        vec![
            ListEvent::Listed(vec![pod("a", "1", "5", none.clone()), pod("b", "2", "6", none.clone())]),
            ListEvent::Settled,
            ListEvent::Settled,
            ListEvent::Set(pod("c", "3", "7", none.clone())),
            ListEvent::Set(pod("a", "1", "8", none.clone())),
            ListEvent::Gone(pod("b", "2", "9", none.clone())),
            ListEvent::Settled,
            ListEvent::Gone(pod("never", "4", "9", none)),
            ListEvent::Settled,
        ],
        &["a@5 b@6", "a@8 c@7"],
    );
}

#[test]
fn an_empty_list_is_an_answer_and_a_failure_is_none() {
    check(vec![failed("x"), failed("y")], &[]);
    check(vec![ListEvent::Listed(Vec::new()), ListEvent::Settled], &[""]);
    check(
        vec![
            ListEvent::Listed(vec![pod("a", "1", "5", json!({}))]),
            ListEvent::Settled,
            failed("refused"),
            failed("refused"),
            ListEvent::Listed(vec![pod("a", "1", "5", json!({}))]),
            ListEvent::Settled,
        ],
        &["a@5", "a@5 !WATCH /p: refused (its pods stay as they were)", "a@5"],
    );
}

#[test]
fn a_pod_replaced_under_its_name_is_another_pod() {
    check(
        vec![
            ListEvent::Listed(vec![pod("a", "1", "5", json!({}))]),
            ListEvent::Settled,
            ListEvent::Gone(pod("a", "1", "6", json!({}))),
            ListEvent::Set(pod("a", "2", "7", json!({}))),
            ListEvent::Settled,
        ],
        &["a@5", "a@7"],
    );
}

#[test]
fn a_pod_is_marked_with_its_source_and_first_sight_and_a_mirror_is_left_alone() {
    let sent = RefCell::new(Vec::new());
    let mut actor = ApiActor {
        origin: String::new(),
        pods: BTreeMap::new(),
        failure: None,
        is_changed: false,
        outbox: Outbox::new(SourceKind::Api, |update: SourceUpdate| *sent.borrow_mut() = update.pods),
    };
    let fields = json!({"managedFields": [{"manager": "kubectl"}]});
    let mirror = json!({"annotations": {labels::CONFIG_MIRROR: "h", labels::CONFIG_SOURCE: "file"}});
    actor.hear(ListEvent::Listed(vec![pod("a", "1", "5", fields.clone()), pod("m", "2", "5", mirror)]), "first");
    actor.hear(ListEvent::Set(pod("a", "1", "6", fields)), "second");
    actor.hear(ListEvent::Settled, "third");
    drop(actor);
    let pods = sent.into_inner();
    let annotations = |index: usize| serde_json::to_value(&pods[index].metadata.annotations).expect("json");
    assert_eq!(annotations(0), json!({labels::CONFIG_SOURCE: "api", labels::CONFIG_SEEN: "first"}));
    assert_eq!(annotations(1), json!({labels::CONFIG_MIRROR: "h", labels::CONFIG_SOURCE: "file"}));
    assert_eq!(pods[0].metadata.managed_fields, None);
}

//! Tests of the status reporter against an API server in memory: what it asks, and when.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::{Value, json};

use super::*;
use crate::api::v1::Pod;
use crate::api::{PodName, PodUid};
use crate::msg::{Life, PodView};

/// An API server with some pods; it notes what it is asked.
#[derive(Default)]
struct Server {
    pods: BTreeMap<String, Value>,
    /// The newest resource version.
    version: u64,
    asked: Vec<String>,
    /// Answers to the next requests instead of the true ones.
    refusals: Vec<Refusal>,
}

#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Server>>);

impl Fake {
    fn ask<T>(&self, what: String, answer: impl FnOnce(&mut Server) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let mut server = self.0.lock().expect("the server");
        server.asked.push(what);
        match server.refusals.pop() {
            Some(refusal) => Err(refusal),
            None => answer(&mut server),
        }
    }

    fn asked(&self) -> String {
        std::mem::take(&mut self.0.lock().expect("the server").asked).join(", ")
    }
}

impl Server {
    /// The next resource version.
    fn next(&mut self) -> Value {
        self.version += 1;
        self.version.to_string().into()
    }
}

fn pod_of(value: &Value) -> Pod {
    serde_json::from_value(value.clone()).expect("a pod")
}

impl PodApi for Fake {
    fn get(&self, name: &PodName) -> Result<Pod, Refusal> {
        self.ask(format!("get {}", name.name), |server| {
            server.pods.get(&name.name).map(pod_of).ok_or(Refusal::NotFound)
        })
    }

    fn patch_status(&self, name: &PodName, patch: Vec<u8>) -> Result<Pod, Refusal> {
        let patch: Value = serde_json::from_slice(&patch).expect("a patch");
        let phase = patch["status"]["phase"].clone();
        self.ask(format!("patch {} {phase}", name.name), |server| {
            let next = server.next();
            let pod = server.pods.get_mut(&name.name).ok_or(Refusal::NotFound)?;
            if patch["metadata"]["uid"] != pod["metadata"]["uid"] {
                return Err(Refusal::Conflict);
            }
            pod["status"]["phase"] = phase;
            pod["metadata"]["resourceVersion"] = next;
            Ok(pod_of(pod))
        })
    }

    fn create(&self, name: &PodName, pod: &Pod) -> Result<(), Refusal> {
        let hash = pod.metadata.annotations.as_ref().expect("annotations")["kubernetes.io/config.mirror"].clone();
        self.ask(format!("create {} {hash}", name.name), |_| Ok(()))
    }

    fn delete_now(&self, name: &PodName, uid: &str) -> Result<(), Refusal> {
        self.ask(format!("delete {} {uid}", name.name), |server| {
            server.pods.remove(&name.name).map(drop).ok_or(Refusal::NotFound)
        })
    }
}

/// The reporter's inside, its view and its API server.
struct Story {
    fake: Fake,
    actor: StatusActor,
    view: NodeView,
    _stop: Sender<()>,
    stopped: Receiver<()>,
}

impl Story {
    fn new() -> Self {
        let fake = Fake::default();
        let owner: OwnerSource = Box::new(|| Some(Owner { name: "n".to_owned(), uid: "node".to_owned() }));
        let actor = StatusActor {
            api: Box::new(fake.clone()),
            view: Arc::default(),
            owner,
            book: Book::default(),
            mirrors: Mirrors::default(),
            away: None,
        };
        let (stop, stopped) = bounded(0);
        let view = NodeView { is_listed: true, ..NodeView::default() };
        Self { fake, actor, view, _stop: stop, stopped }
    }

    /// The API and the node have this pod; `more` is merged over its metadata at the API.
    fn pod(&mut self, uid: &str, name: &str, phase: &str, life: Life, deleted: bool) {
        let mut object = json!({"metadata": {"uid": uid, "name": name, "namespace": "ns"}, "status": {}});
        if deleted {
            object["metadata"]["deletionTimestamp"] = json!("2026-11-30T10:00:00Z");
        }
        let mut server = self.fake.0.lock().expect("the server");
        object["metadata"]["resourceVersion"] = server.next();
        let pod = Arc::new(pod_of(&object));
        server.pods.insert(name.to_owned(), object);
        drop(server);
        let status = PodStatus { phase: Some(phase.to_owned()), ..PodStatus::default() };
        let name = PodName { namespace: "ns".to_owned(), name: name.to_owned() };
        let view = PodView {
            pod: Some(Arc::clone(&pod)),
            wanted: Some(pod),
            status: Arc::new(status),
            life,
            ..PodView::named(PodUid::from(uid), name)
        };
        self.view.pods.insert(view.uid.clone(), Arc::new(view));
    }

    /// The watch shows what the server has.
    fn watch(&mut self) {
        let server = self.fake.0.lock().expect("the server");
        for view in self.view.pods.values_mut() {
            let shown = server.pods.get(&view.name.name).map(|value| Arc::new(pod_of(value)));
            let mut newer = view.as_ref().clone();
            newer.wanted = shown;
            *view = Arc::new(newer);
        }
    }

    /// What is asked in one turn.
    fn turn(&mut self) -> String {
        self.actor.view.set(Arc::new(self.view.clone()));
        self.actor.turn(&self.stopped);
        self.fake.asked()
    }

    fn refuse(&mut self, refusals: Vec<Refusal>) {
        self.fake.0.lock().expect("the server").refusals = refusals;
    }
}

#[test]
fn a_status_is_told_once() {
    let mut story = Story::new();
    story.pod("u", "a", "Running", Life::Active, false);
    assert_eq!(story.turn(), "patch a \"Running\"");
    assert_eq!(story.turn(), "");
    story.watch();
    assert_eq!(story.turn(), "");
    assert_eq!(story.actor.turn(&story.stopped), None, "nothing is to come: no timer");
    story.pod("u", "a", "Succeeded", Life::Over, false);
    assert_eq!(story.turn(), "patch a \"Succeeded\"");
}

#[test]
fn steps_on_the_way_are_gathered_and_news_is_not() {
    let mut story = Story::new();
    let mut book = Book::default();
    let begin = clock::moment();
    let mut at = |story: &mut Story, phase: &str, life, millis| {
        story.pod("u", "a", phase, life, true);
        let now = begin + Duration::from_millis(millis);
        let (due, wake) = book.due(&story.view, now);
        if let [due] = &due[..] {
            book.told(due, None, now);
        }
        (due.len(), wake.map(|wake| wake.since(begin).as_millis()))
    };
    assert_eq!(at(&mut story, "Pending", Life::Active, 0), (1, None));
    assert_eq!(at(&mut story, "Pending", Life::Active, 100), (0, Some(500)), "it goes on before that, most often");
    assert_eq!(at(&mut story, "Pending", Life::Active, 499), (0, Some(500)));
    assert_eq!(at(&mut story, "Running", Life::Active, 499), (1, None), "another phase is news");
    assert_eq!(at(&mut story, "Running", Life::Active, 600), (0, Some(999)));
    assert_eq!(at(&mut story, "Running", Life::Active, 999), (1, None));
    assert_eq!(at(&mut story, "Running", Life::Over, 1000), (1, None), "nothing comes after the end");
}

#[test]
fn the_newer_of_watch_and_answer_is_what_a_patch_is_made_from() {
    let mut story = Story::new();
    let steps = [
        // The version that the watch shows, and the one that was answered; what the next patch is made from.
        (Some("7"), Some("6"), Some("7")),
        (Some("7"), Some("7"), Some("7")),
        (Some("9"), Some("10"), Some("10")),
        (Some("7"), Some("odd"), None),
        (None, Some("7"), None),
        (None, None, None),
    ];
    for (shown, answered, want) in steps {
        story.pod("u", "a", "Pending", Life::Active, false);
        let version = |version: Option<&str>| {
            pod_of(&json!({"metadata": {"uid": "u", "name": "a", "namespace": "ns", "resourceVersion": version}}))
        };
        let mut book = Book::default();
        let (due, _) = book.due(&story.view, clock::moment());
        book.told(&due[0], Some(Arc::new(version(answered))), clock::moment());
        let mut view = story.view.pods[&PodUid::from("u")].as_ref().clone();
        view.wanted = Some(Arc::new(version(shown)));
        view.status = Arc::new(PodStatus { phase: Some("Failed".to_owned()), ..PodStatus::default() });
        story.view.pods.insert(view.uid.clone(), Arc::new(view));
        let (due, _) = book.due(&story.view, clock::moment());
        let got = due[0].base.as_ref().map(|pod| pod.metadata.resource_version.as_deref().unwrap_or_default());
        assert_eq!(got, want, "shown {shown:?}, answered {answered:?}");
    }
}

#[test]
fn nothing_is_told_before_the_runtime_was_listed() {
    let mut story = Story::new();
    story.pod("u", "a", "Pending", Life::Waiting, false);
    story.view.is_listed = false;
    assert_eq!(story.turn(), "");
}

#[test]
fn a_deleted_pod_of_which_nothing_is_left_may_be_forgotten() {
    let mut story = Story::new();
    story.pod("u", "a", "Running", Life::Ending, true);
    assert_eq!(story.turn(), "patch a \"Running\"");
    story.pod("u", "a", "Failed", Life::Ending, true);
    assert_eq!(story.turn(), "patch a \"Failed\"", "its volumes are still there");
    story.pod("u", "a", "Failed", Life::Over, true);
    assert_eq!(story.turn(), "patch a \"Failed\", delete a u");
    assert_eq!(story.turn(), "");
}

#[test]
fn a_pod_that_nobody_deleted_stays_at_the_api() {
    let mut story = Story::new();
    story.pod("u", "a", "Succeeded", Life::Over, false);
    assert_eq!(story.turn(), "patch a \"Succeeded\"");
}

#[test]
fn another_pod_of_the_name_is_left_alone() {
    let mut story = Story::new();
    story.pod("u", "a", "Failed", Life::Over, true);
    story
        .fake
        .0
        .lock()
        .expect("the server")
        .pods
        .insert("a".to_owned(), json!({"metadata": {"uid": "another", "name": "a", "namespace": "ns"}, "status": {}}));
    assert_eq!(story.turn(), "patch a \"Failed\", get a");
    assert_eq!(story.turn(), "");
}

#[test]
fn a_pod_that_is_gone_is_forgotten_and_a_conflict_is_tried_again() {
    let mut story = Story::new();
    story.pod("u", "a", "Running", Life::Active, false);
    story.refuse(vec![Refusal::NotFound]);
    assert_eq!(story.turn(), "patch a \"Running\"");
    assert_eq!(story.turn(), "");
    story.pod("v", "b", "Running", Life::Active, false);
    story.refuse(vec![Refusal::Conflict]);
    assert_eq!(story.turn(), "patch b \"Running\", get b, patch b \"Running\"");
}

#[test]
fn what_is_refused_is_told_again_later_and_delays_nobody() {
    let mut story = Story::new();
    story.pod("u", "a", "Running", Life::Active, false);
    story.pod("v", "b", "Running", Life::Active, false);
    story.refuse(vec![Refusal::Denied("forbidden".to_owned())]);
    assert_eq!(story.turn(), "patch a \"Running\", patch b \"Running\"");
    assert_eq!(story.turn(), "");
    assert!(story.actor.turn(&story.stopped).is_some(), "it is tried again");
}

#[test]
fn while_the_server_is_away_it_is_asked_rarely_and_told_the_newest_once() {
    let mut story = Story::new();
    story.pod("u", "a", "Pending", Life::Active, false);
    story.pod("v", "b", "Pending", Life::Active, false);
    story.refuse(vec![Refusal::Away("no route".to_owned())]);
    assert_eq!(story.turn(), "patch a \"Pending\"");
    story.pod("u", "a", "Running", Life::Active, false);
    assert_eq!(story.turn(), "", "not sooner because of news");
    story.pod("u", "a", "Succeeded", Life::Over, false);
    // The pause is over.
    let away = story.actor.away.expect("it is away");
    story.actor.away = Some(Backoff { delay: Duration::ZERO, ..away });
    assert_eq!(story.turn(), "patch a \"Succeeded\", patch b \"Pending\"");
    assert!(story.actor.away.is_none());
}

#[test]
fn a_static_pod_gets_its_mirror_and_the_mirror_its_status() {
    let mut story = Story::new();
    let annotations = json!({"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "hash"});
    let object = json!({"metadata": {"uid": "hash", "name": "s", "namespace": "ns", "annotations": annotations}});
    let pod = Arc::new(pod_of(&object));
    let name = PodName { namespace: "ns".to_owned(), name: "s".to_owned() };
    let status = PodStatus { phase: Some("Running".to_owned()), ..PodStatus::default() };
    let view = PodView {
        pod: Some(Arc::clone(&pod)),
        wanted: Some(pod),
        status: Arc::new(status),
        ..PodView::named(PodUid::from("hash"), name.clone())
    };
    story.view.pods.insert(view.uid.clone(), Arc::new(view));
    story.view.silent_sources = vec!["http"];
    assert_eq!(story.turn(), "", "another source may still have the pod of some mirror");
    story.view.silent_sources.clear();
    assert_eq!(story.turn(), "create s hash");
    assert_eq!(story.turn(), "", "the watch will show it");
    let mut mirror = object;
    mirror["metadata"]["uid"] = json!("mirror-uid");
    mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("hash");
    story.fake.0.lock().expect("the server").pods.insert("s".to_owned(), mirror.clone());
    story.view.mirrors = Arc::new([(name, Arc::new(pod_of(&mirror)))].into_iter().collect());
    assert_eq!(story.turn(), "patch s \"Running\"");
    // Its manifest is gone, and so is the pod.
    story.view.pods.clear();
    assert_eq!(story.turn(), "delete s mirror-uid");
}

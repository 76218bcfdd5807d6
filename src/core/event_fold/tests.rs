//! Tests of the folding of events: stories of what happened, and what is sent.

use super::*;
use crate::msg::EventObject;

struct Story {
    fold: EventFold,
    seconds: u64,
}

fn told(reason: &str, message: &str) -> ToldEvent {
    let object = EventObject {
        kind: "Pod",
        name: "web".to_owned(),
        namespace: "ns".to_owned(),
        uid: "u".to_owned(),
        resource_version: "7".to_owned(),
        field_path: "spec.containers{c}".to_owned(),
    };
    let (reason, message) = (reason.to_owned(), message.to_owned());
    ToldEvent { object, event_type: EventType::Normal, reason, message, at: 0 }
}

impl Story {
    fn new() -> Self {
        Self { fold: EventFold::new("n1"), seconds: 1000 }
    }

    fn hears(&mut self, mut event: ToldEvent) -> Folded {
        self.seconds += 1;
        let wall = i64::try_from(self.seconds).expect("small") * 1_000_000_000;
        event.at = wall;
        self.fold.fold(&event, Now { mono: Moment::from_boot(Duration::from_secs(self.seconds)), wall })
    }

    /// What is sent, in short.
    fn sends(&mut self, reason: &str, message: &str) -> String {
        let folded = self.hears(told(reason, message));
        match folded {
            Folded::Unheard => "nothing".to_owned(),
            Folded::Create(event) => {
                self.fold.stored(&event);
                format!("new {}", event.message.unwrap_or_default())
            }
            Folded::Count { event, patch } => {
                self.fold.stored(&event);
                format!("{} {}", patch["count"], patch["message"].as_str().unwrap_or_default())
            }
        }
    }
}

#[test]
fn an_event_has_the_form_that_the_reference_run_recorded() {
    let Folded::Create(event) = Story::new().hears(told("Pulled", "m")) else { panic!("not new") };
    let expect = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": "web.e9103fda00", "namespace": "ns"},
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "web", "uid": "u", "resourceVersion": "7",
            "fieldPath": "spec.containers{c}",
        },
        "reason": "Pulled", "message": "m", "type": "Normal", "count": 1,
        "source": {"component": "kubelet", "host": "n1"},
        "reportingComponent": "kubelet", "reportingInstance": "n1",
        "firstTimestamp": "1970-01-01T00:16:41Z", "lastTimestamp": "1970-01-01T00:16:41Z",
    });
    assert_eq!(serde_json::to_value(event).expect("json"), expect);
}

#[test]
fn events_of_a_node_live_in_the_default_namespace() {
    let mut event = told("Starting", "Starting kubelet.");
    event.object = EventObject { kind: "Node", name: "n1".to_owned(), uid: "n1".to_owned(), ..EventObject::default() };
    let Folded::Create(event) = Story::new().hears(event) else { panic!("not new") };
    assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
    assert_eq!((event.involved_object.namespace, event.involved_object.field_path), (None, None));
}

#[test]
fn the_same_again_counts_up_under_the_name_of_the_first() {
    let mut story = Story::new();
    assert_eq!(story.sends("BackOff", "m"), "new m");
    assert_eq!(story.sends("BackOff", "m"), "2 m");
    let Folded::Count { event, patch } = story.hears(told("BackOff", "m")) else { panic!("not counted") };
    assert_eq!(event.metadata.name.as_deref(), Some("web.e9103fda00"));
    assert_eq!(patch, json!({"count": 3, "lastTimestamp": "1970-01-01T00:16:43Z", "message": "m"}));
    assert_eq!(event.first_timestamp, time(1_001_000_000_000));
}

#[test]
fn the_tenth_similar_event_is_combined_with_those_that_follow() {
    let mut story = Story::new();
    for n in 1..10 {
        assert_eq!(story.sends("Unhealthy", &format!("m{n}")), format!("new m{n}"));
    }
    assert_eq!(story.sends("Unhealthy", "m10"), "new (combined from similar events): m10");
    assert_eq!(story.sends("Unhealthy", "m11"), "2 (combined from similar events): m11");
    // Another reason is another matter.
    assert_eq!(story.sends("Pulled", "m"), "new m");
    story.seconds += 601;
    assert_eq!(story.sends("Unhealthy", "m12"), "new m12");
}

#[test]
fn an_object_that_is_talked_of_too_much_is_heard_again_after_five_minutes() {
    let mut story = Story::new();
    for _ in 0..25 {
        assert_ne!(story.sends("A", "m"), "nothing");
    }
    assert_eq!(story.sends("A", "m"), "nothing");
    assert_eq!(story.sends("B", "m"), "nothing");
    // Warnings have a measure of their own, and what was not heard was counted.
    let mut warning = told("A", "m");
    warning.event_type = EventType::Warning;
    assert!(matches!(story.hears(warning), Folded::Create(_)));
    story.seconds += 300;
    assert_eq!(story.sends("A", "m"), "27 m");
    assert_eq!(story.sends("A", "m"), "nothing");
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut recent = Recent::new();
    for n in 0..2 * REMEMBERED {
        recent.put(hash(&[&n.to_string()]), n);
        recent.put(hash(&["kept"]), n);
    }
    assert_eq!((recent.entries.len(), recent.order.len()), (REMEMBERED, REMEMBERED));
    assert_eq!(recent.get(&hash(&["kept"])), Some(&(2 * REMEMBERED - 1)));
    assert_eq!(recent.get(&hash(&["0"])), None);
}

#[test]
fn a_long_message_is_cut_where_a_character_ends() {
    let long = "\u{e4}".repeat(600) + "x";
    let Folded::Create(event) = Story::new().hears(told("A", &long)) else { panic!("not new") };
    assert_eq!(event.message.map(|m| m.len()), Some(MAX_MESSAGE));
}

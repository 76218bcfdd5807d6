//! Folds what happened into API events: the same thing again counts up, similar things become one, and
//! who talks too much about one object is not listened to for a while.
//!
//! Layer L1, pure; owned by the thread `events`. The rules and limits are the upstream kubelet's: ten
//! events that differ in their message alone within ten minutes are combined, and an object has 25
//! events and one more each five minutes. What is remembered is bounded; the longest unseen goes first.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::api::meta::{ObjectMeta, Time};
use crate::api::moment::{Moment, Now};
use crate::api::runtime::UnixNanos;
use crate::api::v1::{Event, EventSource, ObjectReference};
use crate::msg::{EventType, ToldEvent};

/// Events, groups and objects remembered, each.
const REMEMBERED: usize = 1024;
/// Different messages of one reason about one object that are told one by one.
const SIMILAR: usize = 10;
/// How long similar events count as such.
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
/// Events that an object has at once.
const BURST: f64 = 25.0;
/// One more event about an object each 300 s.
const REFILL_PER_SECOND: f64 = 1.0 / 300.0;
/// Longest message that the API server takes.
const MAX_MESSAGE: usize = 1024;

/// What to do about something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Folded {
    /// Nothing: too much was said about that object.
    Unheard,
    /// Create the event.
    Create(Box<Event>),
    /// Patch the event that is there; if it is gone, create this one.
    Count {
        /// The event as it is then.
        event: Box<Event>,
        /// Strategic merge patch.
        patch: Value,
    },
}

type Key = [u8; 16];

/// What is known of an event that was sent.
#[derive(Clone, Debug)]
struct Sent {
    count: i32,
    first: UnixNanos,
    name: String,
}

#[derive(Clone, Debug)]
struct Group {
    messages: BTreeSet<Key>,
    last: Moment,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Moment,
}

/// Everything remembered about events.
#[derive(Debug)]
pub struct EventFold {
    node: String,
    sent: Recent<Sent>,
    groups: Recent<Group>,
    buckets: Recent<Bucket>,
}

impl EventFold {
    /// Folds events of this node.
    pub fn new(node: &str) -> Self {
        Self { node: node.to_owned(), sent: Recent::new(), groups: Recent::new(), buckets: Recent::new() }
    }

    /// Takes one thing that happened.
    pub fn fold(&mut self, told: &ToldEvent, now: Now) -> Folded {
        let mut event = self.event(told);
        let mut key = full_key(&event);
        if self.is_one_of_many(&event, now.mono) {
            key = group_key(&event);
            event.message = Some(cut(format!("(combined from similar events): {}", told.message)));
            event.metadata.name = Some(event_name(&told.object.name, now.wall));
            event.first_timestamp = time(now.wall);
            event.last_timestamp = time(now.wall);
            event.reporting_component = None;
            event.reporting_instance = None;
        }
        let patch = self.sent.get(&key).map(|sent| {
            let count = sent.count.saturating_add(1);
            event.metadata.name = Some(sent.name.clone());
            event.first_timestamp = time(sent.first);
            event.count = Some(count);
            json!({"count": count, "lastTimestamp": event.last_timestamp, "message": event.message})
        });
        self.remember(key, &event);
        if !self.may_speak(&event, now.mono) {
            return Folded::Unheard;
        }
        let event = Box::new(event);
        match patch {
            Some(patch) => Folded::Count { event, patch },
            None => Folded::Create(event),
        }
    }

    /// Learns what the API server made of an event.
    pub fn stored(&mut self, event: &Event) {
        self.remember(full_key(event), event);
    }

    fn event(&self, told: &ToldEvent) -> Event {
        let object = &told.object;
        let text = |t: &str| Some(t.to_owned()).filter(|t| !t.is_empty());
        let namespace = text(&object.namespace).unwrap_or_else(|| "default".to_owned());
        Event {
            count: Some(1),
            first_timestamp: time(told.at),
            involved_object: ObjectReference {
                api_version: text("v1"),
                field_path: text(&object.field_path),
                kind: text(object.kind),
                name: text(&object.name),
                namespace: text(&object.namespace),
                resource_version: text(&object.resource_version),
                uid: text(&object.uid),
            },
            last_timestamp: time(told.at),
            message: Some(cut(told.message.clone())),
            metadata: ObjectMeta {
                name: Some(event_name(&object.name, told.at)),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            reason: Some(told.reason.clone()),
            reporting_component: text("kubelet"),
            reporting_instance: Some(self.node.clone()),
            source: Some(EventSource { component: text("kubelet"), host: Some(self.node.clone()) }),
            type_: text(match told.event_type {
                EventType::Normal => "Normal",
                EventType::Warning => "Warning",
            }),
            ..Event::default()
        }
    }

    /// Whether so many events like this one came lately that they are combined.
    fn is_one_of_many(&mut self, event: &Event, now: Moment) -> bool {
        let key = group_key(event);
        let fresh = || Group { messages: BTreeSet::new(), last: now };
        let mut group = self.groups.get(&key).cloned().unwrap_or_else(fresh);
        if now.since(group.last) > SIMILAR_WITHIN {
            group = fresh();
        }
        group.last = now;
        group.messages.insert(hash(&[event.message.as_deref().unwrap_or_default()]));
        let many = group.messages.len() >= SIMILAR;
        if many {
            group.messages.pop_first();
        }
        self.groups.put(key, group);
        many
    }

    fn may_speak(&mut self, event: &Event, now: Moment) -> bool {
        let key = object_key(event);
        let bucket = self.buckets.get(&key).copied().unwrap_or(Bucket { left: BURST, at: now });
        let refilled = now.since(bucket.at).as_secs_f64() * REFILL_PER_SECOND;
        let left = (bucket.left + refilled).min(BURST);
        let may = left >= 1.0;
        self.buckets.put(key, Bucket { left: if may { left - 1.0 } else { left }, at: now });
        may
    }

    fn remember(&mut self, key: Key, event: &Event) {
        let first = event.first_timestamp.as_ref().and_then(|t| i64::try_from(t.0.as_nanosecond()).ok());
        let sent = Sent {
            count: event.count.unwrap_or(1),
            first: first.unwrap_or(0),
            name: event.metadata.name.clone().unwrap_or_default(),
        };
        self.sent.put(key, sent);
    }
}

/// Object name and nanoseconds in hex, as clients know them.
fn event_name(object: &str, at: UnixNanos) -> String {
    format!("{object}.{:x}", at.max(0))
}

fn cut(mut message: String) -> String {
    let end = (0..=MAX_MESSAGE.min(message.len())).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
    message.truncate(end);
    message
}

fn time(nanos: UnixNanos) -> Option<Time> {
    Timestamp::from_second(nanos / 1_000_000_000).ok().map(Time)
}

fn texts(event: &Event) -> [&str; 7] {
    let object = &event.involved_object;
    fn text(t: &Option<String>) -> &str {
        t.as_deref().unwrap_or_default()
    }
    [
        text(&object.kind),
        text(&object.namespace),
        text(&object.name),
        text(&object.uid),
        text(&event.type_),
        text(&event.reason),
        text(&object.field_path),
    ]
}

/// The very same event.
fn full_key(event: &Event) -> Key {
    let texts = texts(event);
    let message = event.message.as_deref().unwrap_or_default();
    hash(&["event", texts[0], texts[1], texts[2], texts[3], texts[4], texts[5], texts[6], message])
}

/// Events that differ in their message, or in the container that they speak of.
fn group_key(event: &Event) -> Key {
    let texts = texts(event);
    hash(&["group", texts[0], texts[1], texts[2], texts[3], texts[4], texts[5]])
}

/// Everything of one type about one object.
fn object_key(event: &Event) -> Key {
    let texts = texts(event);
    hash(&["object", texts[0], texts[1], texts[2], texts[3], texts[4]])
}

fn hash(parts: &[&str]) -> Key {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part.as_bytes());
    }
    let mut key = Key::default();
    key.copy_from_slice(&hash.finalize()[..16]);
    key
}

/// A bounded memory: when it is full the entry that was not touched for longest goes.
#[derive(Debug)]
struct Recent<T> {
    entries: BTreeMap<Key, (u64, T)>,
    order: BTreeMap<u64, Key>,
    next: u64,
}

impl<T> Recent<T> {
    fn new() -> Self {
        Self { entries: BTreeMap::new(), order: BTreeMap::new(), next: 0 }
    }

    fn get(&self, key: &Key) -> Option<&T> {
        self.entries.get(key).map(|(_, value)| value)
    }

    fn put(&mut self, key: Key, value: T) {
        if let Some((at, _)) = self.entries.insert(key, (self.next, value)) {
            self.order.remove(&at);
        }
        self.order.insert(self.next, key);
        self.next += 1;
        if self.entries.len() > REMEMBERED
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.entries.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests;

//! One watch for each mounted object, all on one connection. On the thread `objects`; owns the connection
//! and knows which stream is for which object. What the watches say goes out as [`News`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::cache::Known;
use super::{Shared, decode};
use crate::api::moment::Moment;
use crate::kube::streams::{StreamEnd, StreamEvent, Streams};
use crate::kube::{ApiError, paths};
use crate::util::clock;
use crate::util::jitter::{longer_by, up_to};
use crate::volumes::objects::{ObjectKey, ObjectKind};

/// A watch that began tells of its object within this time, if there is one.
const SAYS_WITHIN: Duration = Duration::from_secs(10);
/// The server ends a watch after this time or up to twice of it.
const WATCH_TIME: Duration = Duration::from_secs(1800);
/// After a watch that was refused.
const AFTER_REFUSAL: Duration = Duration::from_secs(10);

/// What a watch says.
#[derive(Debug)]
pub(super) enum News {
    /// It tells of the object from now on.
    Live(ObjectKey),
    /// It does no longer.
    Blind(ObjectKey),
    /// The object is this now.
    Is(ObjectKey, Known),
    /// It began a while ago and did not tell of the object.
    Silent(ObjectKey),
}

/// Where one watch stands.
enum Stage {
    /// Asked for.
    Opening,
    /// It began, and has not told of its object by this time.
    Quiet(Moment),
    /// It has told.
    Told,
}

struct One {
    key: ObjectKey,
    stage: Stage,
}

/// All watches.
pub(super) struct Watches {
    streams: Streams,
    open: BTreeMap<u32, One>,
    watched: BTreeMap<ObjectKey, u32>,
    /// Objects whose watch is made anew not before this.
    later: BTreeMap<ObjectKey, Moment>,
}

/// An event's type and its object, which stays text until it is known what it is.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

impl Watches {
    pub(super) fn new(streams: Streams) -> Self {
        Self { streams, open: BTreeMap::new(), watched: BTreeMap::new(), later: BTreeMap::new() }
    }

    /// Whether the server takes no more streams.
    pub(super) fn is_full(&self) -> bool {
        !self.streams.has_room()
    }

    /// Opens and closes what has to be, then waits for news, for the bell or until `until`.
    ///
    /// # Errors
    /// The connection is of no more use.
    pub(super) fn turn(&mut self, shared: &Shared, until: Option<Moment>) -> Result<Vec<News>, ApiError> {
        let wanted: BTreeSet<ObjectKey> = shared.cache().to_watch().cloned().collect();
        self.close_others(&wanted)?;
        let now = clock::moment();
        self.later.retain(|key, at| wanted.contains(key) && *at > now);
        for key in wanted {
            if !self.watched.contains_key(&key) && !self.later.contains_key(&key) && self.streams.has_room() {
                self.begin(key)?;
            }
        }
        let quiet = self.open.values().filter_map(|one| match one.stage {
            Stage::Quiet(until) => Some(until),
            Stage::Opening | Stage::Told => None,
        });
        let next = quiet.chain(self.later.values().copied()).chain(until).min();
        let events = self.streams.wait(&shared.bell, next.map(clock::instant_of))?;
        let mut news = Vec::new();
        for event in events {
            self.take(event, &mut news);
        }
        let now = clock::moment();
        for one in self.open.values_mut() {
            if matches!(one.stage, Stage::Quiet(until) if until <= now) {
                one.stage = Stage::Told;
                news.push(News::Silent(one.key.clone()));
            }
        }
        Ok(news)
    }

    fn close_others(&mut self, wanted: &BTreeSet<ObjectKey>) -> Result<(), ApiError> {
        let gone: Vec<ObjectKey> = self.watched.keys().filter(|key| !wanted.contains(key)).cloned().collect();
        for key in gone {
            if let Some(id) = self.watched.remove(&key) {
                self.open.remove(&id);
                self.streams.close(id)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, key: ObjectKey) -> Result<(), ApiError> {
        let plural = match key.kind {
            ObjectKind::ConfigMap => "configmaps",
            ObjectKind::Secret => "secrets",
        };
        let time = (WATCH_TIME + up_to(WATCH_TIME)).as_secs().to_string();
        let selector = format!("metadata.name={}", key.name);
        // Without a version it begins with the object as it is now, and needs no list before it.
        let query = [("watch", "true"), ("fieldSelector", selector.as_str()), ("timeoutSeconds", time.as_str())];
        let id = self.streams.open(&paths::core_list(&key.namespace, plural), &query)?;
        self.watched.insert(key.clone(), id);
        self.open.insert(id, One { key, stage: Stage::Opening });
        Ok(())
    }

    fn take(&mut self, event: StreamEvent, news: &mut Vec<News>) {
        match event {
            StreamEvent::Began(id) => {
                if let Some(one) = self.open.get_mut(&id) {
                    one.stage = Stage::Quiet(clock::moment() + SAYS_WITHIN);
                    news.push(News::Live(one.key.clone()));
                }
            }
            StreamEvent::Line(id, line) => {
                let Some(one) = self.open.get_mut(&id) else { return };
                one.stage = Stage::Told;
                match read(one.key.kind, &line) {
                    Read::Is(known) => news.push(News::Is(one.key.clone(), known)),
                    Read::Nothing => {}
                    Read::Over(why) => {
                        log::info!("the watch of {} ended: {why}", one.key);
                        // Whether the connection takes it or not is told by the next wait.
                        let _broken = self.streams.close(id);
                        self.end(id, Duration::from_secs(1), news);
                    }
                }
            }
            StreamEvent::Ended(id, end) => {
                let wait = match end {
                    StreamEnd::Done => Duration::ZERO,
                    StreamEnd::Refused { status, retry_after } => {
                        if let Some(one) = self.open.get(&id) {
                            log::debug!("the API server refuses to watch {}: {status}", one.key);
                        }
                        retry_after.unwrap_or(AFTER_REFUSAL)
                    }
                    StreamEnd::Broken => Duration::from_secs(1),
                };
                self.end(id, wait, news);
            }
        }
    }

    fn end(&mut self, id: u32, wait: Duration, news: &mut Vec<News>) {
        let Some(one) = self.open.remove(&id) else { return };
        self.watched.remove(&one.key);
        if !wait.is_zero() {
            self.later.insert(one.key.clone(), clock::moment() + longer_by(wait, 1.0));
        }
        news.push(News::Blind(one.key));
    }
}

/// What a line means.
enum Read {
    Is(Known),
    Nothing,
    /// The watch is of no more use, for this reason.
    Over(String),
}

fn read(kind: ObjectKind, line: &[u8]) -> Read {
    let Ok(line) = serde_json::from_slice::<Line<'_>>(line) else { return Read::Over("no event".to_owned()) };
    match line.kind {
        "ADDED" | "MODIFIED" => match decode(kind, line.object.get().as_bytes()) {
            Some(data) => Read::Is(Known::Found(Arc::new(data))),
            None => Read::Over("the object is of another kind".to_owned()),
        },
        "DELETED" => Read::Is(Known::Missing),
        "ERROR" => {
            let status: serde_json::Value = serde_json::from_str(line.object.get()).unwrap_or_default();
            Read::Over(status["reason"].as_str().unwrap_or("the server had an error").to_owned())
        }
        _ => Read::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let check = |line: &str, expect: &str| {
            let got = match read(ObjectKind::Secret, line.as_bytes()) {
                Read::Is(Known::Found(data)) => format!("{} {:?}", data.version, data.bytes.keys().collect::<Vec<_>>()),
                Read::Is(Known::Missing) => "missing".to_owned(),
                Read::Nothing => "nothing".to_owned(),
                Read::Over(why) => format!("over: {why}"),
            };
            assert_eq!(got, expect, "{line}");
        };
        let secret = r#"{"metadata": {"resourceVersion": "7"}, "data": {"k": "dg=="}}"#;
        check(&format!(r#"{{"type": "ADDED", "object": {secret}}}"#), "7 [\"k\"]");
        check(&format!(r#"{{"type": "MODIFIED", "object": {secret}}}"#), "7 [\"k\"]");
        check(&format!(r#"{{"type": "DELETED", "object": {secret}}}"#), "missing");
        check(r#"{"type": "BOOKMARK", "object": {}}"#, "nothing");
        check(r#"{"type": "ERROR", "object": {"kind": "Status", "reason": "Expired", "code": 410}}"#, "over: Expired");
        check(r#"{"type": "ADDED", "object": {"data": {"k": "secret!"}}}"#, "over: the object is of another kind");
        check("nonsense", "over: no event");
    }
}

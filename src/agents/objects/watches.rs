//! One watch for each mounted object, many on one connection and up to [`MOST_LINKS`] connections. On the thread
//! `objects`; owns the connections and knows which stream is for which object. What the watches say goes out as
//! [`News`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::cache::Known;
use super::{Shared, decode};
use crate::api::moment::Moment;
use crate::kube::streams::{StreamEnd, StreamEvent, Streams, wait_any};
use crate::kube::{ApiError, paths};
use crate::util::clock;
use crate::util::jitter::{longer_by, up_to};
use crate::util::order::Gather;
use crate::volumes::objects::{ObjectKey, ObjectKind};

/// Connections at once. An API server takes 100 or 250 streams on each; what finds no place is asked for.
const MOST_LINKS: usize = 3;
/// After another connection could not be had.
const LINK_REST: Duration = Duration::from_secs(30);
/// A watch that began tells of its object within this time, if there is one.
const SAYS_WITHIN: Duration = Duration::from_secs(10);
/// The server ends a watch after this time or up to twice of it.
const WATCH_TIME: Duration = Duration::from_secs(1800);
/// After a watch that was refused.
const AFTER_REFUSAL: Duration = Duration::from_secs(10);

/// What errors of the connections name.
pub(super) const EVERYTHING: &str = "/api/v1";

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

/// One connection, and the watches on it by their streams.
struct Link {
    streams: Streams,
    open: BTreeMap<u32, One>,
}

/// All watches.
pub(super) struct Watches {
    links: Vec<Link>,
    watched: BTreeSet<ObjectKey>,
    /// Objects whose watch is made anew not before this.
    later: BTreeMap<ObjectKey, Moment>,
    /// Another connection is not tried before this.
    next_link: Moment,
    /// Some objects find no place.
    is_full: bool,
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
        Self {
            links: vec![Link { streams, open: BTreeMap::new() }],
            watched: BTreeSet::new(),
            later: BTreeMap::new(),
            next_link: Moment::default(),
            is_full: false,
        }
    }

    /// Whether some objects find no place.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Opens and closes what has to be, then waits for news, for the bell or until `until`.
    ///
    /// # Errors
    /// No connection is left.
    pub(super) fn turn(&mut self, shared: &Shared, until: Option<Moment>) -> Result<Vec<News>, ApiError> {
        let mut news = Vec::new();
        let wanted: BTreeSet<ObjectKey> = shared.cache().to_watch().cloned().gather();
        self.close_others(&wanted, &mut news)?;
        let now = clock::moment();
        self.later.retain(|key, at| wanted.contains(key) && *at > now);
        self.is_full = false;
        for key in wanted {
            if !self.watched.contains(&key) && !self.later.contains_key(&key) && !self.begin(shared, key, &mut news)? {
                self.is_full = true;
                break;
            }
        }
        if !news.is_empty() {
            return Ok(news);
        }
        let quiet = self.links.iter().flat_map(|link| link.open.values()).filter_map(|one| match one.stage {
            Stage::Quiet(until) => Some(until),
            Stage::Opening | Stage::Told => None,
        });
        let may_grow = self.is_full && self.links.len() < MOST_LINKS;
        let next = quiet.chain(self.later.values().copied()).chain(may_grow.then_some(self.next_link));
        let next = next.chain(until).min().map(clock::instant_of);
        let mut connections: Vec<&mut Streams> = self.links.iter_mut().map(|link| &mut link.streams).collect();
        let told = wait_any(&mut connections, &shared.bell, next).map_err(|error| ApiError::Connection {
            method: "WATCH",
            path: EVERYTHING.to_owned(),
            message: error.to_string(),
        })?;
        let mut broken = Vec::new();
        for (index, told) in told {
            match told {
                Ok(events) => {
                    for event in events {
                        self.take(index, event, &mut news);
                    }
                }
                Err(error) => broken.push((index, error)),
            }
        }
        // From behind, so that the others keep their places.
        for (index, error) in broken.into_iter().rev() {
            self.lose(index, error, &mut news)?;
        }
        let now = clock::moment();
        for one in self.links.iter_mut().flat_map(|link| link.open.values_mut()) {
            if matches!(one.stage, Stage::Quiet(until) if until <= now) {
                one.stage = Stage::Told;
                news.push(News::Silent(one.key.clone()));
            }
        }
        Ok(news)
    }

    fn close_others(&mut self, wanted: &BTreeSet<ObjectKey>, news: &mut Vec<News>) -> Result<(), ApiError> {
        if self.watched.is_subset(wanted) {
            return Ok(());
        }
        self.watched.retain(|key| wanted.contains(key));
        let mut index = 0;
        while let Some(link) = self.links.get_mut(index) {
            let gone: Vec<u32> =
                link.open.iter().filter(|(_, one)| !wanted.contains(&one.key)).map(|(id, _)| *id).collect();
            link.open.retain(|id, _| !gone.contains(id));
            let closed = gone.into_iter().try_for_each(|id| link.streams.close(id));
            // The first one is kept by the owner as long as anything is mounted.
            let is_idle = link.open.is_empty() && self.links.len() > 1;
            match closed {
                Err(error) => self.lose(index, error, news)?,
                Ok(()) if is_idle => drop(self.links.remove(index)),
                Ok(()) => index += 1,
            }
        }
        Ok(())
    }

    /// A connection broke: its objects have no watch for now.
    ///
    /// # Errors
    /// It was the last one.
    fn lose(&mut self, index: usize, error: ApiError, news: &mut Vec<News>) -> Result<(), ApiError> {
        let link = self.links.remove(index);
        if self.links.is_empty() {
            return Err(error);
        }
        log::info!("{} watches of mounted objects broke and are made anew: {error}", link.open.len());
        for one in link.open.into_values() {
            self.watched.remove(&one.key);
            news.push(News::Blind(one.key));
        }
        self.next_link = self.next_link.max(clock::moment() + longer_by(Duration::from_secs(1), 1.0));
        Ok(())
    }

    /// Begins to watch an object; false if it finds no place.
    fn begin(&mut self, shared: &Shared, key: ObjectKey, news: &mut Vec<News>) -> Result<bool, ApiError> {
        let index = match self.links.iter().position(|link| link.streams.has_room()) {
            Some(index) => index,
            None if self.grow(shared) => self.links.len() - 1,
            None => return Ok(false),
        };
        let plural = match key.kind {
            ObjectKind::ConfigMap => "configmaps",
            ObjectKind::Secret => "secrets",
        };
        let time = (WATCH_TIME + up_to(WATCH_TIME)).as_secs().to_string();
        let selector = format!("metadata.name={}", key.name);
        // Without a version it begins with the object as it is now, and needs no list before it.
        let query = [("watch", "true"), ("fieldSelector", selector.as_str()), ("timeoutSeconds", time.as_str())];
        let link = &mut self.links[index];
        match link.streams.open(&paths::core_list(&key.namespace, plural), &query) {
            Ok(id) => {
                self.watched.insert(key.clone());
                link.open.insert(id, One { key, stage: Stage::Opening });
                Ok(true)
            }
            Err(error) => self.lose(index, error, news).map(|()| false),
        }
    }

    /// Makes another connection, if there may be one.
    fn grow(&mut self, shared: &Shared) -> bool {
        let now = clock::moment();
        // One that the server leaves takes nobody's place.
        let staying = self.links.iter().filter(|link| !link.streams.is_leaving()).count();
        if staying >= MOST_LINKS || self.links.len() > MOST_LINKS || now < self.next_link {
            return false;
        }
        match shared.client.streams(EVERYTHING, &shared.stop) {
            Ok(Some(streams)) => {
                self.links.push(Link { streams, open: BTreeMap::new() });
                true
            }
            other => {
                let why = other.err().map_or_else(|| "it speaks no HTTP/2 any more".to_owned(), |e| e.to_string());
                log::info!("no other connection for watches of mounted objects: {why}");
                self.next_link = now + longer_by(LINK_REST, 0.5);
                false
            }
        }
    }

    fn take(&mut self, index: usize, event: StreamEvent, news: &mut Vec<News>) {
        let Some(link) = self.links.get_mut(index) else { return };
        match event {
            StreamEvent::Began(id) => {
                if let Some(one) = link.open.get_mut(&id) {
                    one.stage = Stage::Quiet(clock::moment() + SAYS_WITHIN);
                    news.push(News::Live(one.key.clone()));
                }
            }
            StreamEvent::Line(id, line) => {
                let Some(one) = link.open.get_mut(&id) else { return };
                one.stage = Stage::Told;
                match read(one.key.kind, &line) {
                    Read::Is(known) => news.push(News::Is(one.key.clone(), known)),
                    Read::Nothing => {}
                    Read::Over(why) => {
                        log::info!("the watch of {} ended: {why}", one.key);
                        // Whether the connection takes it or not is told by the next wait.
                        let _broken = link.streams.close(id);
                        self.end(index, id, Duration::from_secs(1), news);
                    }
                }
            }
            StreamEvent::Ended(id, end) => {
                let wait = match end {
                    StreamEnd::Done => Duration::ZERO,
                    StreamEnd::Refused(status) => {
                        if let Some(one) = link.open.get(&id) {
                            log::debug!("the API server refuses to watch {}: {}", one.key, status.message);
                        }
                        status.retry_after.unwrap_or(AFTER_REFUSAL)
                    }
                    StreamEnd::Broken => Duration::from_secs(1),
                };
                self.end(index, id, wait, news);
            }
        }
    }

    fn end(&mut self, index: usize, id: u32, wait: Duration, news: &mut Vec<News>) {
        let Some(one) = self.links.get_mut(index).and_then(|link| link.open.remove(&id)) else { return };
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

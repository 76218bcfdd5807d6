//! One watch: the changes of a set of objects, as long as the connection lasts.
//!
//! Runs on the thread that wants to know, which waits nearly all the time. Owns one connection and the
//! line at hand. A peer that died is noticed by the kernel within seconds; one that hangs by a question after a
//! silence ([`super::streams`]), and where the server speaks no HTTP/2 by the first call that it does not answer.
//! It goes on from nowhere by itself: see `list_watch`.

use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::client::{ApiClient, Call, MAX_OBJECT, Method};
use super::error::{ApiError, Status};
use super::exchange::{Failure, Guard, Timeouts, without_values};
use super::streams::{StreamEnd, StreamEvent, Streams};
use crate::util::cancel::Cancel;
use crate::util::poll::Bell;

/// Longest time without an event: the API server sends a bookmark about every minute.
const SILENCE: Duration = Duration::from_secs(150);
/// Time until a watch begins.
const HEAD: Duration = Duration::from_secs(30);
/// A buffer for a line that grew beyond this is not kept.
const KEPT_LINE: usize = 64 * 1024;
const METHOD: &str = "WATCH";

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent<T> {
    /// The object is new to the set.
    Added(T),
    /// It changed.
    Modified(T),
    /// It left the set; its last state.
    Deleted(T),
    /// Nothing changed up to this resource version.
    Bookmark(String),
    /// What had arrived has been told: the next change is still to come.
    Settled,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The part of an object that tells how new it is.
#[derive(Deserialize)]
struct Versioned {
    metadata: Option<Version>,
}

#[derive(Deserialize)]
struct Version {
    #[serde(rename = "resourceVersion")]
    resource_version: Option<String>,
}

fn version_of(object: &RawValue) -> Option<String> {
    serde_json::from_str::<Versioned>(object.get()).ok()?.metadata?.resource_version.filter(|text| !text.is_empty())
}

impl ApiClient {
    /// Watches `path` until the server ends it, `on` breaks, `cancel` is set or something fails. Give the resource
    /// version to go on from, `allowWatchBookmarks` and selectors in `query`; `watch=true` is added.
    ///
    /// # Errors
    /// See [`ApiError`]. An ERROR event is [`ApiError::Status`], as if the server had answered with it:
    /// [`ApiError::is_gone`] asks for a new list.
    pub fn watch<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
        cancel: &Cancel,
        on: &mut dyn FnMut(WatchEvent<T>) -> ControlFlow<()>,
    ) -> Result<(), ApiError> {
        self.watch_versions(path, query, cancel, &mut |event, _version| on(event))
    }

    /// [`Self::watch`], with the resource version that each event leads to.
    pub(super) fn watch_versions<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
        cancel: &Cancel,
        on: &mut dyn FnMut(WatchEvent<T>, Option<String>) -> ControlFlow<()>,
    ) -> Result<(), ApiError> {
        self.take_turn(path, HEAD)?;
        let query = [query, &[("watch", "true")]].concat();
        if let Some(streams) = self.streams(path, cancel).map_err(|error| self.unless_given_up(error, path, cancel))? {
            return self.watch_stream(streams, path, &query, cancel, on);
        }
        let mut call = Call::new(Method::Get, path);
        call.query = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let timeouts = Timeouts::Stream { head: HEAD, silence: SILENCE };
        self.stream(&call, HEAD, &timeouts, cancel, &mut |reader| {
            let mut lines = Lines { reader: BufReader::with_capacity(16 * 1024, reader), line: Vec::new() };
            while lines.next(path)? {
                let flow = tell(&lines.line, path, on)?;
                if flow.is_break() || (lines.is_settled() && on(WatchEvent::Settled, None).is_break()) {
                    return Ok(());
                }
            }
            Ok(())
        })
    }

    /// Watches by a stream of HTTP/2.
    fn watch_stream<T: DeserializeOwned>(
        &self,
        mut streams: Streams,
        path: &str,
        query: &[(&str, &str)],
        cancel: &Cancel,
        on: &mut dyn FnMut(WatchEvent<T>, Option<String>) -> ControlFlow<()>,
    ) -> Result<(), ApiError> {
        let broken = |message: String| ApiError::Connection { method: METHOD, path: path.to_owned(), message };
        let bell = Bell::new().map_err(|error| broken(error.to_string()))?;
        let _cancelled = cancel.register(bell.waker());
        let _stopped = self.shared.stop.register(bell.waker());
        streams.open(path, query)?;
        let (mut limit, mut until) = (HEAD, Instant::now() + HEAD);
        loop {
            let events = match streams.wait(&bell, Some(until)) {
                // It goes on with the new ones.
                Err(_) if streams.is_outdated() => return Ok(()),
                waited => waited.map_err(|error| self.unless_given_up(error, path, cancel))?,
            };
            if self.is_given_up(cancel) {
                return Err(ApiError::Cancelled { method: METHOD, path: path.to_owned() });
            }
            if !events.is_empty() {
                (limit, until) = (SILENCE, Instant::now() + SILENCE);
            } else if Instant::now() >= until {
                return Err(ApiError::Timeout { method: METHOD, path: path.to_owned(), limit });
            }
            let mut end = None;
            let mut is_told = false;
            for event in events {
                match event {
                    StreamEvent::Began(_) => {}
                    StreamEvent::Line(_, line) => {
                        is_told = true;
                        if tell(&line, path, on)?.is_break() {
                            return Ok(());
                        }
                    }
                    StreamEvent::Ended(_, how) => end = Some(how),
                }
            }
            if is_told && on(WatchEvent::Settled, None).is_break() {
                return Ok(());
            }
            match end {
                None => {}
                Some(StreamEnd::Done) => return Ok(()),
                Some(StreamEnd::Broken) => return Err(broken("the API server broke the watch off".to_owned())),
                Some(StreamEnd::Refused(status)) => {
                    if status.code == 401 {
                        self.reload();
                    }
                    return Err(ApiError::Status { method: METHOD, path: path.to_owned(), status });
                }
            }
        }
    }

    fn is_given_up(&self, cancel: &Cancel) -> bool {
        cancel.is_cancelled() || self.shared.stop.is_cancelled()
    }

    fn unless_given_up(&self, error: ApiError, path: &str, cancel: &Cancel) -> ApiError {
        if self.is_given_up(cancel) { ApiError::Cancelled { method: METHOD, path: path.to_owned() } } else { error }
    }

    /// Opens one long answer on a connection of its own and lets `read` read it; both end when `cancel` is set.
    pub(super) fn stream(
        &self,
        call: &Call,
        patience: Duration,
        timeouts: &Timeouts,
        cancel: &Cancel,
        read: &mut dyn FnMut(&mut dyn Read) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let path = call.path.as_str();
        let is_watch = matches!(timeouts, Timeouts::Stream { .. });
        let method = if is_watch { METHOD } else { "LIST" };
        let given_up = || ApiError::Cancelled { method, path: path.to_owned() };
        let own = self.single_use();
        let doubt = if is_watch { self.doubt() } else { Cancel::never() };
        let result = (|| {
            own.prepare().map_err(|message| ApiError::Credentials { method, path: path.to_owned(), message })?;
            let _cancelled = Guard::of(cancel, own.current_agent());
            let _stopped = Guard::of(&self.shared.stop, own.current_agent());
            let _doubted = Guard::of(&doubt, own.current_agent());
            let response = own.send(call, Instant::now() + patience, timeouts)?;
            let mut reader = response.into_body().into_reader();
            read(&mut reader)
        })();
        match result {
            Err(_) if self.is_given_up(cancel) => Err(given_up()),
            Err(_) if doubt.is_cancelled() => {
                let message = "the API server does not answer on other connections".to_owned();
                Err(ApiError::Connection { method, path: path.to_owned(), message })
            }
            other => other,
        }
    }
}

/// Tells one line.
fn tell<T: DeserializeOwned>(
    line: &[u8],
    path: &str,
    on: &mut dyn FnMut(WatchEvent<T>, Option<String>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, ApiError> {
    let wrong = |message: String| ApiError::Decode { method: METHOD, path: path.to_owned(), message };
    let Line { kind, object } = serde_json::from_slice(line).map_err(|error| wrong(without_values(&error)))?;
    let version = version_of(object);
    let decode = || super::exchange::decode::<T>(object.get().as_bytes()).map_err(wrong);
    let event = match kind.as_ref() {
        "ADDED" => WatchEvent::Added(decode()?),
        "MODIFIED" => WatchEvent::Modified(decode()?),
        "DELETED" => WatchEvent::Deleted(decode()?),
        "BOOKMARK" => match version.clone() {
            Some(version) => WatchEvent::Bookmark(version),
            None => return Ok(ControlFlow::Continue(())),
        },
        "ERROR" => {
            let status = Status::read(0, None, object.get().as_bytes());
            return Err(ApiError::Status { method: METHOD, path: path.to_owned(), status: Box::new(status) });
        }
        other => {
            return Err(wrong(format!(
                "an event of the unknown type {:?}",
                other.chars().take(20).collect::<String>()
            )));
        }
    };
    Ok(on(event, version))
}

/// The lines of a stream, one at a time, none larger than an object may be.
struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
}

impl<R: Read> Lines<R> {
    /// Reads the next line that is not empty; false at the end.
    fn next(&mut self, path: &str) -> Result<bool, ApiError> {
        loop {
            if self.line.capacity() > KEPT_LINE {
                self.line = Vec::new();
            }
            self.line.clear();
            let read = (&mut self.reader).take(MAX_OBJECT + 1).read_until(b'\n', &mut self.line);
            read.map_err(|error| Failure::Http(ureq::Error::from(error)).explain(METHOD, path, SILENCE))?;
            if self.line.len() as u64 > MAX_OBJECT {
                return Err(Failure::TooLarge(MAX_OBJECT).explain(METHOD, path, SILENCE));
            }
            let is_whole = self.line.ends_with(b"\n");
            if !self.line.trim_ascii().is_empty() {
                // A line that the end cut off is an event that will come again.
                return Ok(is_whole || serde_json::from_slice::<&RawValue>(&self.line).is_ok());
            }
            if !is_whole {
                return Ok(false);
            }
        }
    }

    /// Whether the next line has not arrived, as far as can be told without waiting.
    fn is_settled(&self) -> bool {
        self.reader.buffer().is_empty()
    }
}

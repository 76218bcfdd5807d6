//! Keeps up with a set of objects: lists them, watches them, and starts over where it has to.
//!
//! Runs on the thread that wants to know, until it is cancelled. Owns the resource version to go on from.
//! A failure of any kind is silence: what was told last stays true until a list says otherwise.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use super::client::ApiClient;
use super::error::ApiError;
use super::watch::WatchEvent;
use crate::util::backoff::{Backoff, BackoffPolicy};
use crate::util::cancel::Cancel;
use crate::util::clock;
use crate::util::jitter::{longer_by, up_to};

/// Between two attempts that fail: as upstream's reflectors.
const PATIENCE: BackoffPolicy = BackoffPolicy { initial: Duration::from_millis(800), max: Duration::from_secs(30) };
/// The server ends a watch after this time or up to twice of it.
const WATCH_TIME: Duration = Duration::from_secs(300);
/// A watch that ends sooner without a word did not work.
const SHORT: Duration = Duration::from_secs(1);

/// News of a set.
#[derive(Debug)]
pub enum ListEvent<T> {
    /// The whole set, in place of everything told before.
    Listed(Vec<T>),
    /// One object of the set, new or changed.
    Set(T),
    /// One object that left the set; its last state.
    Gone(T),
    /// What had arrived has been told: a good moment to act on it.
    Settled,
    /// Nothing is heard for now; it is tried again. The set stays as it was.
    Failed(ApiError),
}

/// Where to go on.
enum From {
    /// A list, at least as new as this version.
    List(String),
    /// A watch from this version.
    Watch(String),
}

impl ApiClient {
    /// Tells the set of objects at `path` (with selectors in `query`) and then every change of it, until `cancel`
    /// is set or `on` breaks.
    pub fn list_watch<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
        cancel: &Cancel,
        on: &mut dyn FnMut(ListEvent<T>) -> ControlFlow<()>,
    ) {
        let mut from = From::List("0".to_owned());
        let mut backoff: Option<Backoff> = None;
        while !cancel.is_cancelled() {
            let error = match &mut from {
                From::List(version) => match self.list_all::<T>(path, query, version, cancel) {
                    Ok(listed) => {
                        from = From::Watch(listed.resource_version);
                        if on(ListEvent::Listed(listed.items)).is_break() || on(ListEvent::Settled).is_break() {
                            return;
                        }
                        continue;
                    }
                    Err(error) => {
                        if error.is_gone() || is_too_new(&error) {
                            version.clear();
                        }
                        error
                    }
                },
                From::Watch(version) => match self.watch_on(path, query, version, cancel, on) {
                    Ok(ControlFlow::Break(())) => return,
                    Ok(ControlFlow::Continue(())) => {
                        backoff = None;
                        continue;
                    }
                    Err(error) if error.is_gone() => {
                        log::info!("{error}; listing anew");
                        from = From::List(String::new());
                        continue;
                    }
                    Err(error) => error,
                },
            };
            if cancel.is_cancelled() || matches!(error, ApiError::Cancelled { .. }) {
                return;
            }
            let asked = error.retry_after().unwrap_or_default();
            let state = Backoff::after_failure(backoff, &PATIENCE, clock::moment());
            backoff = Some(state);
            if on(ListEvent::Failed(error)).is_break() {
                return;
            }
            cancel.wait(longer_by(state.delay.max(asked), 1.0));
        }
    }

    /// Watches once and keeps `version` up to date. `Continue` after a watch that worked.
    fn watch_on<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
        version: &mut String,
        cancel: &Cancel,
        on: &mut dyn FnMut(ListEvent<T>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, ApiError> {
        let time = (WATCH_TIME + up_to(WATCH_TIME)).as_secs().to_string();
        let start = version.clone();
        let own =
            [("allowWatchBookmarks", "true"), ("resourceVersion", start.as_str()), ("timeoutSeconds", time.as_str())];
        let query = [query, &own].concat();
        let began = Instant::now();
        let (mut flow, mut heard) = (ControlFlow::Continue(()), false);
        self.watch_versions::<T>(path, &query, cancel, &mut |event, new| {
            heard = true;
            if let Some(new) = new {
                *version = new;
            }
            flow = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => on(ListEvent::Set(object)),
                WatchEvent::Deleted(object) => on(ListEvent::Gone(object)),
                WatchEvent::Bookmark(_) => ControlFlow::Continue(()),
                WatchEvent::Settled => on(ListEvent::Settled),
            };
            flow
        })
        .or_else(|error| if heard && !error.is_gone() && is_cut(&error) { Ok(()) } else { Err(error) })?;
        if flow.is_continue() && !heard && began.elapsed() < SHORT {
            let message = "the API server ended the watch at once".to_owned();
            return Err(ApiError::Connection { method: "WATCH", path: path.to_owned(), message });
        }
        Ok(flow)
    }
}

/// Whether the stream broke: after some events that is the usual end of a watch, and nobody needs to hear of it.
fn is_cut(error: &ApiError) -> bool {
    matches!(error, ApiError::Connection { .. })
}

/// Whether the server has not seen that version yet, as after it was restored from a backup.
fn is_too_new(error: &ApiError) -> bool {
    let causes = error.details().and_then(|status| status.details.as_ref()).and_then(|details| details.causes.as_ref());
    let named = causes
        .is_some_and(|causes| causes.iter().any(|cause| cause.reason.as_deref() == Some("ResourceVersionTooLarge")));
    named || error.details().is_some_and(|status| status.message.contains("Too large resource version"))
}

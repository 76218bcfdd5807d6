//! The client: the stream of container events.
//!
//! Read by one thread (PLEG's event reader). Owns the stream; dropping it ends the call. Events are
//! hints: a stream can break and lose some, so whoever reads them must relist too.

use std::time::{Duration, Instant};

use super::client::Client;
use super::error::{CriError, CriFailure};
use super::from_wire;
use super::proto::{self, runtime_service as rpc};
use super::transport::AnswerStream;
use crate::api::runtime_info::ContainerEvent;
use crate::util::cancel::Cancel;

/// A running subscription to container events.
pub struct EventStream {
    answers: AnswerStream<proto::ContainerEventResponse>,
}

impl std::fmt::Debug for EventStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventStream").finish_non_exhaustive()
    }
}

impl Client {
    /// Subscribes to container events. Answers at once: that a runtime has no events (containerd before
    /// 2.0) is told by the first [`EventStream::next`], with an error that says
    /// [`CriError::is_unimplemented`].
    pub fn subscribe(&self) -> Result<EventStream, CriError> {
        let answers = self.runtime().stream(&rpc::GET_CONTAINER_EVENTS, &proto::GetEventsRequest::new())?;
        Ok(EventStream { answers })
    }
}

impl EventStream {
    /// Waits for the next event; `None` if none came within `timeout`. After an error the stream is
    /// dead: subscribe anew, and relist.
    pub fn next(&mut self, timeout: Duration, cancel: &Cancel) -> Result<Option<ContainerEvent>, CriError> {
        let started = Instant::now();
        loop {
            let Some(answer) = self.answers.next(timeout.saturating_sub(started.elapsed()), cancel)? else {
                return Ok(None);
            };
            match from_wire::event(answer) {
                Ok(Some(event)) => return Ok(Some(event)),
                // A kind of event from the future: the relist will show what it did.
                Ok(None) => {}
                Err(problem) => return Err(self.answers.fail(CriFailure::Garbage(problem))),
            }
        }
    }
}

//! The thread `src-api`: the pods that the API server binds to this node.
//!
//! The thread owns the pods as the API server told them last, mirror pods included, and sends the full
//! set once per burst of changes. A lost connection, a wrong answer or a server that is not there yet is
//! silence: the pods stay as they were, and before the first list nothing is said at all. It never
//! changes an object on the server.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::api::labels;
use crate::api::pod::is_mirror;
use crate::api::v1::Pod;
use crate::kube::{ApiClient, ListEvent, paths};
use crate::msg::{SourceKind, SourceProblem, SourceUpdate};
use crate::util::cancel::Cancel;
use crate::util::thread::{OwnerThread, StackSize};

use super::manifest;
use super::outbox::Outbox;

/// How long the agent's end waits for a request under way; the thread ends by itself later.
const STOP_PATIENCE: Duration = Duration::from_millis(500);

/// The running thread. Dropping it stops the thread; a connection under way is broken.
#[derive(Debug)]
pub struct ApiSourceHandle {
    cancel: Cancel,
    /// `None` once it was let go.
    thread: Option<OwnerThread>,
}

impl ApiSourceHandle {
    /// Starts the thread for the pods of the node `node_name`. `send` gets every update; it may block, which holds
    /// up this source only.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn spawn(client: ApiClient, node_name: &str, send: impl Fn(SourceUpdate) + Send + 'static) -> io::Result<Self> {
        let selector = format!("spec.nodeName={node_name}");
        let actor = ApiActor {
            origin: client.server().to_owned(),
            pods: BTreeMap::new(),
            failure: None,
            is_changed: false,
            outbox: Outbox::new(SourceKind::Api, send),
        };
        let cancel = Cancel::new();
        let stop = cancel.clone();
        let thread = OwnerThread::spawn("src-api", StackSize::Large, move || actor.run(&client, &selector, &stop))?;
        Ok(Self { cancel, thread: Some(thread) })
    }
}

impl Drop for ApiSourceHandle {
    fn drop(&mut self) {
        self.cancel.cancel();
        if let Some(thread) = self.thread.take()
            && !thread.ended_within(STOP_PATIENCE)
        {
            // It resolves a name or connects, which has a deadline, and holds nothing that anybody misses.
            thread.abandon();
        }
    }
}

fn uid_of(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

struct ApiActor<S> {
    /// The server's address, for people.
    origin: String,
    /// By uid: a pod that was replaced under its name is another pod.
    pods: BTreeMap<String, Arc<Pod>>,
    /// Why nothing is heard at the moment.
    failure: Option<String>,
    /// Whether something was heard that is not sent yet.
    is_changed: bool,
    outbox: Outbox<S>,
}

impl<S: Fn(SourceUpdate)> ApiActor<S> {
    fn run(mut self, client: &ApiClient, selector: &str, stop: &Cancel) {
        let query = [("fieldSelector", selector)];
        client.list_watch::<Pod>(paths::ALL_PODS, &query, stop, &mut |event| {
            self.hear(event, &manifest::now_text());
            if stop.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }

    fn hear(&mut self, event: ListEvent<Pod>, seen: &str) {
        if let ListEvent::Failed(error) = event {
            let why = error.to_string();
            if self.failure.as_ref() != Some(&why) {
                if self.outbox.has_spoken() {
                    // The outbox logs it.
                    self.failure = Some(why);
                    self.report();
                } else {
                    log::warn!("API server {}: {why} (it is tried again; static pods run meanwhile)", self.origin);
                    self.failure = Some(why);
                }
            }
            return;
        }
        if self.failure.take().is_some() {
            log::info!("API server {}: answers again", self.origin);
            self.is_changed = true;
        }
        match event {
            ListEvent::Listed(pods) => {
                let mut before = std::mem::take(&mut self.pods);
                for pod in pods {
                    let last = before.remove(uid_of(&pod));
                    self.take(pod, last, seen);
                }
                self.is_changed = true;
            }
            ListEvent::Set(pod) => {
                let last = self.pods.get(uid_of(&pod)).cloned();
                self.take(pod, last, seen);
                self.is_changed = true;
            }
            ListEvent::Gone(pod) => {
                self.is_changed |= self.pods.remove(uid_of(&pod)).is_some();
            }
            ListEvent::Settled if self.is_changed => self.report(),
            ListEvent::Settled | ListEvent::Failed(_) => {}
        }
    }

    /// Takes a pod in. One that did not change stays the same object, by which the outbox knows it.
    fn take(&mut self, mut pod: Pod, last: Option<Arc<Pod>>, seen: &str) {
        let uid = uid_of(&pod).to_owned();
        if uid.is_empty() {
            let name = pod.metadata.name.unwrap_or_default();
            log::error!("API server {}: pod {name} has no uid and is not run", self.origin);
            return;
        }
        if let Some(last) = &last
            && last.metadata.resource_version.is_some()
            && last.metadata.resource_version == pod.metadata.resource_version
        {
            self.pods.insert(uid, Arc::clone(last));
            return;
        }
        // Who changed which field when is of no use here, and often the larger half of a pod.
        pod.metadata.managed_fields = None;
        if !is_mirror(&pod) {
            let first = |pod: &Arc<Pod>| pod.metadata.annotations.as_ref()?.get(labels::CONFIG_SEEN).cloned();
            let seen = last.as_ref().and_then(first).unwrap_or_else(|| seen.to_owned());
            let annotations = pod.metadata.annotations.get_or_insert_default();
            annotations.insert(labels::CONFIG_SOURCE.to_owned(), SourceKind::Api.as_str().to_owned());
            annotations.insert(labels::CONFIG_SEEN.to_owned(), seen);
        }
        self.pods.insert(uid, Arc::new(pod));
    }

    fn report(&mut self) {
        self.is_changed = false;
        let problem = |why: &String| {
            let message = format!("{why} (its pods stay as they were)");
            SourceProblem { origin: self.origin.clone(), message }
        };
        let problems = self.failure.iter().map(problem).collect();
        self.outbox.report(self.pods.values().cloned().collect(), problems);
    }
}

#[cfg(test)]
mod tests;

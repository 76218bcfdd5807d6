//! The thread `src-http`: the pods that a URL names, asked for again and again.
//!
//! The thread owns the pods of the last good answer. It asks every `httpCheckFrequency`, more rarely
//! while it fails, and sends a full set when the set or its problems changed. A failed, empty or
//! unreadable answer is silence: the pods stay as they were, and before the first good answer nothing
//! is said at all. Only a list without pods means that there are none.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::api::v1::Pod;
use crate::kube::fetch::{Fetcher, Request, url_for_logs};
use crate::msg::{SourceKind, SourceProblem, SourceUpdate};
use crate::util::cancel::Cancel;
use crate::util::thread::{OwnerThread, StackSize};

use super::decode::{Decoded, URL_LIMITS, decode_pods};
use super::identity::Origin;
use super::manifest::{self, admit};
use super::outbox::Outbox;

/// The shortest time between two requests, whatever the configuration says.
const MIN_FREQUENCY: Duration = Duration::from_millis(100);
/// Time for one answer, redirects and body included.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How many redirects are followed.
const MAX_REDIRECTS: usize = 10;
/// The longest time between two requests to a server that fails.
const MAX_WAIT: Duration = Duration::from_secs(120);
/// How long the agent's end waits for a request under way; the thread ends by itself later.
const STOP_PATIENCE: Duration = Duration::from_millis(500);

/// Where to ask.
#[derive(Clone, Debug)]
pub struct HttpSourceConfig {
    /// `staticPodURL`.
    pub url: String,
    /// `staticPodURLHeader`: name and values.
    pub headers: BTreeMap<String, Vec<String>>,
    /// Name of this node.
    pub node_name: String,
    /// `httpCheckFrequency`.
    pub frequency: Duration,
}

/// The running thread. Dropping it stops the thread; a request under way is not waited for.
#[derive(Debug)]
pub struct HttpSourceHandle {
    cancel: Cancel,
    /// `None` once it was let go.
    thread: Option<OwnerThread>,
}

impl HttpSourceHandle {
    /// Starts the thread. `send` gets every update; it may block, which holds up this source only.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn spawn(config: HttpSourceConfig, send: impl Fn(SourceUpdate) + Send + 'static) -> io::Result<Self> {
        let named = config.headers.into_iter();
        let headers = named.flat_map(|(name, values)| values.into_iter().map(move |value| (name.clone(), value)));
        let actor = HttpActor {
            shown_url: url_for_logs(&config.url),
            url: config.url,
            headers: headers.collect(),
            node_name: config.node_name,
            frequency: config.frequency.max(MIN_FREQUENCY),
            fetcher: Fetcher::for_world(concat!("ferrolet/", env!("CARGO_PKG_VERSION"))),
            last_body: None,
            pods: Vec::new(),
            problems: Vec::new(),
            failures: 0,
            failure: None,
            outbox: Outbox::new(SourceKind::Http, send),
        };
        let cancel = Cancel::new();
        let stop = cancel.clone();
        let thread = OwnerThread::spawn("src-http", StackSize::Large, move || actor.run(&stop))?;
        Ok(Self { cancel, thread: Some(thread) })
    }
}

impl Drop for HttpSourceHandle {
    fn drop(&mut self) {
        self.cancel.cancel();
        if let Some(thread) = self.thread.take()
            && !thread.ended_within(STOP_PATIENCE)
        {
            // It waits for a server, at most for its deadline, and holds nothing that anybody misses.
            thread.abandon();
        }
    }
}

struct HttpActor<S> {
    url: String,
    /// The URL without its secrets.
    shown_url: String,
    headers: Vec<(String, String)>,
    node_name: String,
    frequency: Duration,
    fetcher: Fetcher,
    /// Hash of the last body that was read.
    last_body: Option<[u8; 32]>,
    /// The pods of the last good answer, with the names that their author gave them.
    pods: Vec<(Option<String>, Arc<Pod>)>,
    /// What was wrong within it.
    problems: Vec<SourceProblem>,
    /// Failed requests in a row.
    failures: u32,
    /// Why the last request failed.
    failure: Option<String>,
    outbox: Outbox<S>,
}

impl<S: Fn(SourceUpdate)> HttpActor<S> {
    fn run(mut self, stop: &Cancel) {
        while !stop.is_cancelled() {
            let result = self.ask();
            if stop.is_cancelled() {
                break;
            }
            self.note(result);
            if self.outbox.has_spoken() || self.last_body.is_some() {
                self.report();
            }
            stop.wait(self.wait_time());
        }
    }

    /// Makes one request and takes in a good answer.
    fn ask(&mut self) -> Result<(), String> {
        let request = Request {
            url: &self.url,
            headers: &self.headers,
            timeout: TIMEOUT,
            max_body: URL_LIMITS.max_bytes,
            redirects: MAX_REDIRECTS,
        };
        let answer = self.fetcher.get(&request).map_err(|error| error.to_string())?;
        if answer.status != 200 {
            return Err(format!("the server answers with status {}", answer.status));
        }
        if answer.is_cut {
            return Err(format!("the answer has more than the {} bytes that are read", URL_LIMITS.max_bytes));
        }
        if answer.body.is_empty() {
            return Err("the answer is empty: send a PodList without items to run no pods".to_owned());
        }
        let hash: [u8; 32] = Sha256::digest(&answer.body).into();
        if self.last_body != Some(hash) {
            let decoded =
                manifest::guarded(|| decode_pods(&answer.body, &URL_LIMITS).map_err(|error| vec![error.to_string()]));
            let decoded = decoded.map_err(|messages| messages.join("; "))?;
            self.take(decoded);
            self.last_body = Some(hash);
        }
        Ok(())
    }

    /// Replaces the pods by those of a new answer; one that is broken keeps its last good self.
    fn take(&mut self, decoded: Decoded) {
        let before = std::mem::take(&mut self.pods);
        let problem = |message: String| SourceProblem { origin: self.shown_url.clone(), message };
        let mut problems: Vec<SourceProblem> = decoded.warnings.into_iter().map(problem).collect();
        let mut pods: Vec<(Option<String>, Arc<Pod>)> = Vec::with_capacity(decoded.items.len());
        let origin = Origin { kind: SourceKind::Http, place: &self.url, node_name: &self.node_name };
        let now = manifest::now_text();
        for (index, item) in decoded.items.into_iter().enumerate() {
            let label = item.name.clone().unwrap_or_else(|| format!("number {}", index + 1));
            let last = before.iter().find(|(name, _)| name.is_some() && *name == item.name).map(|(_, pod)| pod);
            let result = manifest::guarded(|| {
                let pod = item.pod.map_err(|error| vec![error.to_string()])?;
                // Of what a URL answers it cannot be told whether it is what ran before.
                admit(pod, &origin, last.map(Arc::as_ref), &now, |_, _, _| None)
            });
            let pod = match result {
                // An equal pod stays the same object, by which the outbox knows that nothing changed.
                Ok(pod) => last.filter(|last| ***last == pod).cloned().unwrap_or_else(|| Arc::new(pod)),
                Err(messages) => {
                    let fate = if last.is_some() { " (it stays as it was)" } else { "" };
                    problems.extend(messages.iter().map(|message| problem(format!("pod {label}: {message}{fate}"))));
                    let Some(last) = last else { continue };
                    Arc::clone(last)
                }
            };
            let is_twin = |(_, other): &(Option<String>, Arc<Pod>)| {
                let (one, two) = (&other.metadata, &pod.metadata);
                one.uid == two.uid || (one.namespace == two.namespace && one.name == two.name)
            };
            if pods.iter().any(is_twin) {
                problems.push(problem(format!("pod {label}: not used, an earlier one has the same name or uid")));
            } else {
                pods.push((item.name, pod));
            }
        }
        self.pods = pods;
        self.problems = problems;
    }

    /// Counts failures and tells the first of each kind.
    fn note(&mut self, result: Result<(), String>) {
        match result {
            Ok(()) => {
                if self.failures > 0 {
                    log::info!("manifest URL {}: answers again after {} failures", self.shown_url, self.failures);
                }
                self.failures = 0;
                self.failure = None;
            }
            Err(why) => {
                // Once the source has spoken the outbox tells it.
                if self.failure.as_ref() != Some(&why) && !self.outbox.has_spoken() {
                    log::warn!("manifest URL {}: {why}", self.shown_url);
                }
                self.failures = self.failures.saturating_add(1);
                self.failure = Some(why);
            }
        }
    }

    fn report(&mut self) {
        let mut problems = self.problems.clone();
        if let Some(why) = &self.failure {
            let message = format!("{why} (its pods stay as they were)");
            problems.push(SourceProblem { origin: self.shown_url.clone(), message });
        }
        self.outbox.report(self.pods.iter().map(|(_, pod)| Arc::clone(pod)).collect(), problems);
    }

    fn wait_time(&self) -> Duration {
        let doubled = self.frequency.saturating_mul(1 << self.failures.min(16));
        doubled.min(MAX_WAIT.max(self.frequency))
    }
}

#[cfg(test)]
mod tests;

//! `/containerLogs/{namespace}/{pod}/{container}`: what a container printed.
//!
//! On the threads that serve requests; one that follows keeps its thread and wakes up when the runtime writes, when the client goes, and every ten
//! seconds. It reads the newest view and the log's file; it never asks the runtime.

use std::cell::RefCell;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::super::NodeParts;
use super::super::http::reply::TEXT;
use super::super::http::{Reply, Request, StreamOut};
use super::find;
use crate::api::runtime::{ContainerState, RuntimeContainer};
use crate::api::{ContainerId, PodUid};
use crate::host::log_watch::{LogWatch, Woken};
use crate::host::logs::{LogOptions, copy_log};
use crate::host::{HostError, explain};
use crate::msg::NodeView;
use crate::server::container_logs::{instance, query};
use crate::server::words::Refused;
use crate::util::clock;
use crate::util::snapshot::Snapshot;

/// How long a follower waits for a sign that the container goes on.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Answers.
pub(in crate::server::node) fn container(parts: &NodeParts, request: &mut Request<'_>) -> Reply {
    match find_log(parts, request) {
        Ok(log) => Reply::stream(TEXT, move |out| log.copy(out)),
        Err(Refused { status, text }) => Reply::text(status, &text),
    }
}

/// A log to be printed.
#[derive(Debug)]
struct Log {
    path: PathBuf,
    options: LogOptions,
    view: Arc<Snapshot<NodeView>>,
    pod: PodUid,
    container: ContainerId,
}

fn find_log(parts: &NodeParts, request: &Request<'_>) -> Result<Log, Refused> {
    let (namespace, name, container) = (request.param("namespace"), request.param("pod"), request.param("container"));
    let query = query::parse(&request.head.query, clock::wall())?;
    let view = parts.view.get();
    let missing = |text| Refused::new(404, text);
    let pod = find::pod(&view, namespace, name).ok_or_else(|| missing(format!("pod {name:?} does not exist")))?;
    if find::spec(&pod, container).is_none() {
        return Err(missing(format!("container {container:?} not found in pod {name:?}")));
    }
    query::check_stream(&query, parts.streams.split_streams)?;
    let id = instance::container_id(&pod.status, name, container, query.previous)?;
    let bare = id.split_once("://").map_or(id, |(_, bare)| bare);
    let containers = pod.runtime.iter().flat_map(|runtime| &runtime.containers);
    let known: Option<&RuntimeContainer> =
        containers.into_iter().find(|one| one.id.as_str() == bare && !one.log_path.is_empty());
    let Some(known) = known else {
        return Err(Refused::new(400, format!("unable to retrieve container logs for {id}")));
    };
    let path = PathBuf::from(&known.log_path);
    if let Err(error) = path.canonicalize() {
        let text = format!("failed to try resolving symlinks in path {:?}: {error}", known.log_path);
        return Err(Refused::new(400, text));
    }
    let container = known.id.clone();
    Ok(Log { path, options: query.options, view: Arc::clone(&parts.view), pod: pod.uid.clone(), container })
}

/// Written to by the reader of the log while whoever waits for more looks after the client.
struct Shared<'a>(RefCell<&'a mut dyn StreamOut>);

impl Write for &Shared<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.borrow_mut().flush()
    }
}

impl Log {
    fn copy(self, out: &mut dyn StreamOut) -> io::Result<()> {
        // Watched before it is read, so that nothing falls in between.
        let watch = self.options.follow.then(|| LogWatch::new(&self.path)).transpose();
        let mut watch = watch.map_err(broken)?;
        if watch.is_some() {
            // The client learns that there is a log before the first line comes.
            out.flush()?;
        }
        let out = Shared(RefCell::new(out));
        let mut wait = || watch.as_mut().is_some_and(|watch| self.wait(watch, &out));
        copy_log(&self.path, &self.options, &mut &out, &mut wait).map_err(broken)
    }

    /// Waits for more; false when none will come, or nobody reads it.
    fn wait(&self, watch: &mut LogWatch, out: &Shared<'_>) -> bool {
        let mut out = out.0.borrow_mut();
        if out.is_gone() || !self.may_grow() {
            return false;
        }
        match watch.wait(out.client(), LOOK_AGAIN) {
            Ok(Woken::Log | Woken::Time) => true,
            Ok(Woken::ReaderGone) => false,
            Err(error) => {
                log::warn!("the log {} is not followed any further: {error}", self.path.display());
                false
            }
        }
    }

    /// Whether the container may print more.
    fn may_grow(&self) -> bool {
        let view = self.view.get();
        let pod = view.pods.get(&self.pod).and_then(|pod| pod.runtime.as_ref());
        let own = pod.and_then(|pod| pod.containers.iter().find(|one| one.id == self.container));
        own.is_some_and(|own| !matches!(own.state, ContainerState::Exited(_)))
    }
}

fn broken(error: HostError) -> io::Error {
    io::Error::other(explain(&error))
}

#[cfg(test)]
mod tests;

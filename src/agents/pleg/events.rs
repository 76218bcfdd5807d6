//! The `cri-events` thread: reads the runtime's event stream and turns it into hints for PLEG.
//!
//! Owns the stream. An event says "look at this pod": a stream can break and lose some, so nothing that can change
//! is concluded from an event itself, and a broken stream is told, so that PLEG relists meanwhile. How a container
//! ended does not change, and nobody else may be able to tell it by the time of the look: that goes along.

use std::io;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::api::PodUid;
use crate::api::runtime::{ContainerState, RuntimePod};
use crate::api::runtime_info::{ContainerEvent, ContainerEventKind};
use crate::cri::Client;
use crate::util::cancel::Cancel;
use crate::util::clock;
use crate::util::metrics::kubelet;
use crate::util::thread::{JoinHandle, StackSize, spawn};

/// A stream that is still open after this has events; a runtime without them says so at once.
const PROOF: Duration = Duration::from_secs(2);

/// One wait of an established stream; its end only starts the next.
const QUIET: Duration = Duration::from_secs(24 * 3600);

/// Pause before a broken stream is opened again.
const PAUSE: Duration = Duration::from_secs(1);

/// What the reader tells.
#[derive(Debug)]
pub(super) enum FromReader {
    /// Something happened to this pod. With a container that just ended, in an otherwise bare pod.
    Changed(PodUid, Option<Box<RuntimePod>>),
    /// Something happened, and the event does not say to which pod.
    Something,
    /// The stream is open.
    Flowing,
    /// It broke.
    Broken(String),
    /// The runtime has no events.
    Unsupported,
}

/// Makes the thread.
pub(super) struct EventReader;

impl EventReader {
    /// Starts reading; ends when `stop` is set or the runtime has no events.
    pub(super) fn start(client: Client, stop: Cancel) -> io::Result<(Receiver<FromReader>, JoinHandle<()>)> {
        let (sender, receiver) = bounded(256);
        let thread = spawn("cri-events", StackSize::Small, move || read(&client, &stop, &sender))?;
        Ok((receiver, thread))
    }
}

fn read(client: &Client, stop: &Cancel, hints: &Sender<FromReader>) {
    loop {
        let why = match client.subscribe() {
            Err(error) => error,
            Ok(mut stream) => {
                let mut wait = PROOF;
                loop {
                    let hint = match stream.next(wait, stop) {
                        Ok(None) if wait == PROOF => FromReader::Flowing,
                        Ok(None) => continue,
                        Ok(Some(event)) => {
                            if wait == PROOF && hints.send(FromReader::Flowing).is_err() {
                                return;
                            }
                            let late = clock::wall().saturating_sub(event.created_at);
                            // None for one from the future: the clock was set back meanwhile.
                            if let Ok(late) = u64::try_from(late) {
                                kubelet::EVENT_STREAM_LATENCY.observe(Duration::from_nanos(late));
                            }
                            told_by(event)
                        }
                        Err(error) => break error,
                    };
                    wait = QUIET;
                    if hints.send(hint).is_err() {
                        return;
                    }
                }
            }
        };
        if stop.is_cancelled() {
            return;
        }
        if why.is_unimplemented() {
            let _ended = hints.send(FromReader::Unsupported);
            return;
        }
        if hints.send(FromReader::Broken(why.to_string())).is_err() || stop.wait(PAUSE) {
            return;
        }
    }
}

/// What an event says.
fn told_by(event: ContainerEvent) -> FromReader {
    let Some(mut pod) = event.pod else { return FromReader::Something };
    let Some(uid) = pod.uid.clone() else { return FromReader::Something };
    pod.sandboxes = Vec::new();
    pod.containers.retain(|it| it.id == event.container_id && matches!(it.state, ContainerState::Exited(_)));
    let has_ended = event.kind == ContainerEventKind::Stopped && !pod.containers.is_empty();
    FromReader::Changed(uid, has_ended.then(|| Box::new(pod)))
}

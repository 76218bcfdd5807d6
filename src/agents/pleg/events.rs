//! The `cri-events` thread: reads the runtime's event stream and turns it into hints for PLEG.
//!
//! Owns the stream. An event says only "look at this pod": a stream can break and lose some, so nothing
//! is concluded from an event itself, and a broken stream is told, so that PLEG relists meanwhile.

use std::io;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::api::PodUid;
use crate::cri::Client;
use crate::util::cancel::Cancel;
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
    /// Something happened to this pod.
    Changed(PodUid),
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
                            event.pod.and_then(|pod| pod.uid).map_or(FromReader::Something, FromReader::Changed)
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

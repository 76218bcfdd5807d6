//! Somebody who sits on a runtime's socket and is no runtime: closes at once, talks nonsense, or says nothing.
//!
//! Owns the socket's file and one thread that takes callers, each of which it deals with in turn and at once; dropping it
//! ends both. It never reads what callers say.

use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// What it does with a caller.
#[derive(Clone, Debug)]
pub(crate) enum Manners {
    /// Hangs up.
    Close,
    /// Says this and hangs up.
    Say(Vec<u8>),
    /// Takes the call and never says a word.
    Silent,
}

/// One such server.
pub(crate) struct Impostor {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    callers: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Impostor {
    /// Takes the socket's place, in one step, so that no moment is without one.
    pub(crate) fn sit_on(path: &Path, manners: Manners) -> Self {
        let aside = path.with_extension("impostor");
        let listener = UnixListener::bind(&aside).expect("bind a socket");
        std::fs::rename(&aside, path).expect("take the socket's place");
        let (stop, callers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let thread = std::thread::spawn({
            let (stop, callers) = (stop.clone(), callers.clone());
            move || {
                let mut held = Vec::new();
                while let Ok((mut stream, _)) = listener.accept() {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    callers.fetch_add(1, Ordering::SeqCst);
                    match &manners {
                        Manners::Close => {}
                        // The caller may have gone already.
                        Manners::Say(words) => drop(stream.write_all(words)),
                        Manners::Silent => held.push(stream),
                    }
                }
            }
        });
        Self { path: path.to_owned(), stop, callers, thread: Some(thread) }
    }

    /// How many have called.
    pub(crate) fn callers(&self) -> usize {
        self.callers.load(Ordering::SeqCst)
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the thread.
        drop(UnixStream::connect(&self.path));
        drop(std::fs::remove_file(&self.path));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

//! The `status` thread: tells the API server how the pods of this node are, keeps the mirrors of static
//! pods, and lets the API delete pods of which nothing is left.
//!
//! Owns the book of what was told, and its API client. It is woken by a bell when the node's view has
//! changed, and by a timer only while something is unsent or the API shows something else than it was
//! told. While the API server is away it waits, longer each time, and sends the newest status of each
//! pod once when it is back. It decides nothing about pods.

mod book;
mod mirrors;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, after, bounded, never, select};

use self::book::{Book, Due, has_ended};
use self::mirrors::Mirrors;
use crate::api::moment::Moment;
use crate::api::v1::{Pod, PodStatus};
use crate::core::mirror::Owner;
use crate::core::status;
use crate::kube::reports::{PodApi, Refusal};
use crate::msg::NodeView;
use crate::util::backoff::{Backoff, BackoffPolicy};
use crate::util::clock;
use crate::util::snapshot::Snapshot;
use crate::util::thread::{OwnerThread, StackSize};

/// How soon an API server that is away is asked again.
const AWAY: BackoffPolicy = BackoffPolicy { initial: Duration::from_secs(1), max: Duration::from_secs(10) };

/// How often a conflict is answered with another try at once.
const CONFLICTS: u32 = 5;

/// Tells of the Node object that owns the mirrors, once there is one.
pub type OwnerSource = Box<dyn Fn() -> Option<Owner> + Send>;

/// The running reporter. Dropping it ends the thread; what is unsent then is told by the next start.
#[derive(Debug)]
pub struct StatusHandle {
    /// Dropped before the thread is joined, which tells it to end.
    stop: Option<Sender<()>>,
    thread: Option<OwnerThread>,
}

impl StatusHandle {
    /// Starts the thread. It reads `view` whenever `bell` rings: on a new view, and when the node's object
    /// is there.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn start(
        api: Box<dyn PodApi>,
        view: Arc<Snapshot<NodeView>>,
        owner: OwnerSource,
        bell: Receiver<()>,
    ) -> io::Result<Self> {
        let (stop, stopped) = bounded(0);
        let actor = StatusActor { api, view, owner, book: Book::default(), mirrors: Mirrors::default(), away: None };
        let thread = OwnerThread::spawn("status", StackSize::Large, move || actor.run(&bell, &stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for StatusHandle {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

struct StatusActor {
    api: Box<dyn PodApi>,
    view: Arc<Snapshot<NodeView>>,
    owner: OwnerSource,
    book: Book,
    mirrors: Mirrors,
    /// Set while the API server is away.
    away: Option<Backoff>,
}

/// What one pod's turn came to.
enum Turn {
    /// The API knows; what it answered if it had to be told.
    Told(Option<Arc<Pod>>),
    Moot,
    Refused,
    Away,
}

impl StatusActor {
    fn run(mut self, rung: &Receiver<()>, stopped: &Receiver<()>) {
        let mut wake = None;
        loop {
            // While the server is away a new status is no reason to ask it sooner.
            let listens = if self.away.is_some() { &never() } else { rung };
            let timer = match wake {
                Some(at) => after(Moment::since(at, clock::moment())),
                None => never(),
            };
            select! {
                recv(stopped) -> _ => return,
                recv(listens) -> got => if got.is_err() { return },
                recv(timer) -> _ => {}
            }
            wake = self.turn(stopped);
        }
    }

    /// Tells what is due; gives the time of the next look.
    fn turn(&mut self, stopped: &Receiver<()>) -> Option<Moment> {
        if let Some(at) = self.away.map(|away| away.until()).filter(|at| *at > clock::moment()) {
            return Some(at);
        }
        let view = self.view.get();
        let owner = (self.owner)();
        let mut reached = self.mirrors.turn(&*self.api, &view, owner.as_ref(), clock::moment());
        if reached != Reached::No {
            let (due, _) = self.book.due(&view, clock::moment());
            for due in due {
                if stopped.try_recv().is_err_and(|e| e == crossbeam_channel::TryRecvError::Disconnected) {
                    return None;
                }
                match self.tell(&due) {
                    Turn::Told(answer) => self.book.told(&due, answer, clock::moment()),
                    Turn::Moot => self.book.moot(&due),
                    Turn::Refused => self.book.refused(&due, clock::moment()),
                    Turn::Away => {
                        reached = Reached::No;
                        break;
                    }
                }
                reached = Reached::Yes;
            }
        }
        match reached {
            Reached::No => {
                let away = Backoff::after_failure(self.away, &AWAY, clock::moment());
                self.away = Some(away);
                return Some(away.until());
            }
            Reached::Yes => {
                if self.away.take().is_some() {
                    log::info!("the API server takes statuses again");
                }
            }
            // Nobody was asked, so nothing is known: the next pod finds out.
            Reached::NotTried => self.away = None,
        }
        let (_, wake) = self.book.due(&view, clock::moment());
        [wake, self.mirrors.wake()].into_iter().flatten().min()
    }

    /// Tells the API one pod's status, and that it may delete the pod if it waits for that.
    fn tell(&self, due: &Due) -> Turn {
        // A patch names the pod by its uid, so that an object that is known already need not be read again:
        // over a slow line that is half of the time. After a conflict it is read.
        let mut base = due.base.as_deref();
        for _ in 0..CONFLICTS {
            match self.tell_once(due, base.take()) {
                Ok(turn) => return turn,
                Err(Refusal::Conflict | Refusal::Exists) => {}
                Err(Refusal::NotFound) => return Turn::Moot,
                Err(Refusal::Ends) => return Turn::Away,
                Err(Refusal::Denied(why)) => {
                    log::warn!("status of pod {}: {why}", due.name);
                    return Turn::Refused;
                }
                Err(Refusal::Away(why)) => {
                    if self.away.is_none() {
                        log::warn!("the status of pod {} and of others waits: {why}", due.name);
                    }
                    return Turn::Away;
                }
            }
        }
        Turn::Refused
    }

    fn tell_once(&self, due: &Due, base: Option<&Pod>) -> Result<Turn, Refusal> {
        let read;
        let mut object = match base {
            Some(base) => base,
            None => {
                read = self.api.get(&due.name)?;
                &read
            }
        };
        if object.metadata.uid.as_deref() != Some(due.api_uid.as_str()) {
            // Another pod of that name: it has a status of its own.
            return Ok(Turn::Moot);
        }
        let empty = PodStatus::default();
        let patch = status::patch(&due.api_uid, object.status.as_ref().unwrap_or(&empty), &due.status);
        let mut answer = None;
        if let Some(patch) = patch {
            log::debug!("status of pod {}: {patch}", due.name);
            object = answer.insert(self.api.patch_status(&due.name, patch.to_string().into_bytes())?);
        }
        if due.may_be_deleted && object.metadata.deletion_timestamp.is_some() && has_ended(object) {
            match self.api.delete_now(&due.name, &due.api_uid) {
                Ok(()) => log::debug!("pod {} is gone, and the API may forget it", due.name),
                // Somebody else did it, or it is another pod by now.
                Err(Refusal::NotFound | Refusal::Conflict) => return Ok(Turn::Moot),
                Err(other) => return Err(other),
            }
            // With a finalizer its object stays; there is nothing more to say of it.
            return Ok(Turn::Moot);
        }
        Ok(Turn::Told(answer.map(Arc::new)))
    }
}

/// Whether the API server answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    NotTried,
    Yes,
    No,
}

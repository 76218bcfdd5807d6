//! Holds the machine's shutdown up until the pods have ended in order.
//!
//! Thread `shutdown`: owns the connection to logind and the lock by which a shutdown waits. It tells the sync loop when one
//! begins, and lets go when the loop says that the pods have ended; which pods end when is the core's to decide. It sleeps until
//! logind or the loop has something to say. Without logind it tries again now and then. It never ends a pod itself.

mod record;

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::Sender;

use crate::host::bus::BusError;
use crate::host::bus::logind::{Logind, write_delay};
use crate::host::explain;
use crate::util::cancel::Cancel;
use crate::util::poll::Bell;
use crate::util::thread::{OwnerThread, StackSize};
use record::Record;

/// Waits for logind to read its configuration again: 100 ms, doubled each time.
const RELOAD_WAITS: u32 = 5;
const RELOAD_FIRST: Duration = Duration::from_millis(100);
/// Between two tries to reach logind.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_LAST: Duration = Duration::from_secs(60);

/// What is set.
#[derive(Clone, Debug)]
pub struct ShutdownConfig {
    /// The bus that logind is on.
    pub bus: PathBuf,
    /// Where additions to logind's configuration go.
    pub drop_ins: PathBuf,
    /// How long a shutdown may have to wait.
    pub whole: Duration,
    /// The folder that keeps when the last shutdown was; `None`: nothing is kept.
    pub state: Option<PathBuf>,
}

/// The running thread; dropping it ends it, and lets go of the lock.
#[derive(Debug)]
pub struct ShutdownHandle {
    stop: Cancel,
    shared: Arc<Shared>,
    _thread: OwnerThread,
}

#[derive(Debug)]
struct Shared {
    bell: Bell,
    done: AtomicBool,
}

/// Says that the pods have ended.
#[derive(Clone, Debug)]
pub struct DoneBell(Arc<Shared>);

impl DoneBell {
    /// A bell that nobody hears yet.
    ///
    /// # Errors
    /// The kernel has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Shared { bell: Bell::new()?, done: AtomicBool::new(false) })))
    }

    /// They have.
    pub fn ring(&self) {
        self.0.done.store(true, Ordering::Release);
        self.0.bell.ring();
    }
}

impl ShutdownHandle {
    /// Starts the thread. `to_loop` takes the word that a shutdown begins or was called off; `told` hears it first, and must not wait.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn start(
        config: ShutdownConfig,
        done: &DoneBell,
        to_loop: Sender<bool>,
        told: Box<dyn Fn(bool) + Send>,
    ) -> io::Result<Self> {
        let (stop, shared) = (Cancel::new(), Arc::clone(&done.0));
        let (token, theirs) = (stop.clone(), Arc::clone(&shared));
        let thread = OwnerThread::spawn("shutdown", StackSize::Small, move || {
            let record = Record::open(config.state.as_ref().map(|folder| folder.join(record::FILE)));
            Actor { config, to_loop, told, stop: token, shared: theirs, lock: None, is_on: false, record }.run();
        })?;
        Ok(Self { stop, shared, _thread: thread })
    }
}

impl Drop for ShutdownHandle {
    fn drop(&mut self) {
        self.stop.cancel();
        self.shared.bell.ring();
    }
}

struct Actor {
    config: ShutdownConfig,
    to_loop: Sender<bool>,
    told: Box<dyn Fn(bool) + Send>,
    stop: Cancel,
    shared: Arc<Shared>,
    /// While it is open, a shutdown waits.
    lock: Option<OwnedFd>,
    /// Whether a shutdown is under way, as far as was told.
    is_on: bool,
    record: Record,
}

/// Why there is no word from logind.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error("logind lets a shutdown wait {now:?} at most, and {wanted:?} are set (shutdownGracePeriod): {why}")]
    TooShort { now: Duration, wanted: Duration, why: String },
}

impl Actor {
    fn run(mut self) {
        let mut again = AGAIN_FIRST;
        let mut last = String::new();
        loop {
            let (trouble, had_lock) = match self.session(&mut last) {
                Ok(()) => return,
                Err(trouble) => (explain(&trouble), self.lock.is_some()),
            };
            if trouble != last {
                log::warn!("pods do not end in order when this machine shuts down, as logind is not heard: {trouble}");
                last = trouble;
            }
            if had_lock {
                again = AGAIN_FIRST;
            }
            if self.stop.wait(again) {
                return;
            }
            again = (again * 2).min(AGAIN_LAST);
        }
    }

    /// Connects, takes the lock and listens. It ends when the agent does.
    fn session(&mut self, last: &mut String) -> Result<(), Trouble> {
        let mut logind = Logind::connect(&self.config.bus)?;
        self.raise_delay(&mut logind)?;
        // Asked after the connection hears signals, so that no shutdown goes unheard.
        if logind.is_shutting_down()? {
            self.tell(true);
        } else {
            self.tell(false);
            self.lock = logind.hold_up()?;
        }
        if !std::mem::take(last).is_empty() {
            log::info!("logind is heard again: pods end in order when this machine shuts down");
        }
        loop {
            let word = logind.next(&self.shared.bell, None)?;
            if self.stop.is_cancelled() {
                return Ok(());
            }
            if self.shared.done.swap(false, Ordering::AcqRel) {
                // Before the lock: the machine may be gone a moment later.
                self.record.end();
                if self.lock.take().is_some() {
                    log::info!("the pods have ended, the machine may shut down");
                }
            }
            match word {
                Some(true) => self.tell(true),
                Some(false) => {
                    self.tell(false);
                    self.lock = logind.hold_up()?;
                }
                None => {}
            }
        }
    }

    fn tell(&mut self, begins: bool) {
        if std::mem::replace(&mut self.is_on, begins) == begins {
            return;
        }
        match begins {
            true => log::info!("this machine shuts down: the pods end, those of low priority first"),
            false => log::info!("the shutdown of this machine was called off"),
        }
        self.shared.done.store(false, Ordering::Release);
        (self.told)(begins);
        if begins {
            self.record.begin();
        }
        // Disconnected: the agent ends.
        let _told = self.to_loop.send(begins);
    }

    /// Sees to it that logind lets a shutdown wait long enough.
    fn raise_delay(&self, logind: &mut Logind) -> Result<(), Trouble> {
        let wanted = self.config.whole;
        let mut now = logind.delay()?;
        if now >= wanted {
            return Ok(());
        }
        if let Err(error) = write_delay(&self.config.drop_ins, wanted) {
            return Err(Trouble::TooShort { now, wanted, why: explain(&error) });
        }
        logind.reload()?;
        let mut wait = RELOAD_FIRST;
        for _ in 0..RELOAD_WAITS {
            now = logind.delay()?;
            if now >= wanted || self.stop.wait(wait) {
                return Ok(());
            }
            wait *= 2;
        }
        let why = format!("it was asked to read {} again and did not", self.config.drop_ins.display());
        Err(Trouble::TooShort { now, wanted, why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::bus::test_bus::TestBus;
    use crossbeam_channel::{Receiver, bounded};

    struct Scene {
        bus: TestBus,
        folder: tempfile::TempDir,
        done: DoneBell,
        heard: Receiver<bool>,
        _handle: ShutdownHandle,
    }

    const LONG: Duration = Duration::from_secs(20);

    type Calls = Vec<(&'static str, Result<&'static str, &'static str>)>;

    /// A thread that wants 30 s and gets these answers at its start.
    fn scene(calls: Calls) -> (Scene, Vec<crate::host::bus::test_bus::Asked>) {
        let bus = TestBus::start(&["org.freedesktop.login1", "org.freedesktop.systemd1"]);
        let folder = tempfile::tempdir().expect("a folder");
        let answers = bus.answer(calls);
        let (sender, heard) = bounded(4);
        let done = DoneBell::new().expect("a bell");
        let config = ShutdownConfig {
            bus: bus.path.clone(),
            drop_ins: folder.path().join("logind.conf.d"),
            whole: Duration::from_secs(30),
            state: Some(folder.path().to_owned()),
        };
        let handle = ShutdownHandle::start(config, &done, sender, Box::new(|_| {})).expect("a thread");
        let asked = bus.take_back(answers);
        (Scene { bus, folder, done, heard, _handle: handle }, asked)
    }

    #[test]
    fn a_shutdown_is_told_held_up_and_let_go() {
        let (scene, asked) = scene(vec![("Get", Ok("prop 60000000")), ("Get", Ok("no")), ("Inhibit", Ok("fd"))]);
        assert_eq!(asked[2].words[..2], ["shutdown", "kubelet"]);
        assert_eq!(asked[2].words[3], "delay");
        assert!(!scene.folder.path().join("logind.conf.d").exists(), "logind waits long enough as it is");
        scene.bus.prepare_for_shutdown(true);
        assert_eq!(scene.heard.recv_timeout(LONG), Ok(true));
        let state = || {
            let text = std::fs::read_to_string(scene.folder.path().join(record::FILE)).expect("a state");
            let state: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            ["startTime", "endTime"].map(|key| state[key].as_str().expect("a time").to_owned())
        };
        let [start, end] = state();
        assert!(start.as_str() > "2020" && end == "0001-01-01T00:00:00Z", "{start} {end}");
        scene.done.ring();
        let answers = scene.bus.answer(vec![]);
        scene.bus.take_back(answers);
        // Called off: it wants to hold the next one up.
        scene.bus.prepare_for_shutdown(false);
        assert_eq!(scene.heard.recv_timeout(LONG), Ok(false));
        let answers = scene.bus.answer(vec![("Inhibit", Ok("fd"))]);
        scene.bus.take_back(answers);
        let [again, end] = state();
        assert!(again == start && end.as_str() > "2020", "{again} {end}");
    }

    #[test]
    fn logind_is_made_to_wait_long_enough() {
        let (scene, asked) = scene(vec![
            ("Get", Ok("prop 5000000")),
            ("KillUnit", Ok("")),
            ("Get", Ok("prop 5000000")),
            ("Get", Ok("prop 30000000")),
            ("Get", Ok("no")),
            ("Inhibit", Ok("fd")),
        ]);
        assert_eq!(asked[1].words, ["systemd-logind.service", "all"]);
        let text = std::fs::read_to_string(scene.folder.path().join("logind.conf.d/99-kubelet.conf")).expect("a file");
        assert!(text.ends_with("[Login]\nInhibitDelayMaxSec=30\n"), "{text}");
    }

    #[test]
    fn an_agent_that_starts_in_the_middle_of_a_shutdown_goes_on_with_it() {
        let (scene, _) = scene(vec![("Get", Ok("prop 60000000")), ("Get", Ok("yes"))]);
        assert_eq!(scene.heard.recv_timeout(LONG), Ok(true));
    }
}

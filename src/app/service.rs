//! The main thread after the start: waits for signals and tells the service manager how it goes.
//!
//! Layer L4. Owns the way to the service manager. Without a service manager, and without its watchdog once the start is done,
//! nothing wakes this thread but a signal. The watchdog is fed only after the sync loop has answered: an agent that turns no more is
//! restarted, one whose container runtime is away is not, since that would help nobody.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use crossbeam_channel::{Sender, bounded};

use crate::config::{LoadError, Loaded, reload};
use crate::msg::{Life, NodeView};
use crate::util::logging;
use crate::util::notify::Notifier;
use crate::util::signals::{Signals, Told};
use crate::util::snapshot::Snapshot;

/// The start counts as done after this time even if the runtime or a source has not answered: the agent goes on waiting, and
/// the status says for what.
const START_LIMIT: Duration = Duration::from_secs(10);
/// How often it is looked whether the start is done.
const START_LOOKS: Duration = Duration::from_millis(20);
/// The longest wait for the sync loop's answer: a machine that is short of CPU time makes it late, not dead.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Reads the configuration again, from the same command line.
pub(crate) type ReadAgain = Box<dyn Fn() -> Result<Loaded, LoadError>>;

/// Where the agent is in its life, as the service manager sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It is said to be ready when all is known, at the latest at this time.
    Starting { until: Instant },
    /// Ready; the next sign of life is due at this time, if anybody waits for one.
    Running { feed_at: Option<Instant> },
}

/// What the main thread works with.
pub(super) struct Service {
    notifier: Notifier,
    view: Arc<Snapshot<NodeView>>,
    /// Hands the sync loop a question without waiting; false if it is not taken.
    ask: Box<dyn Fn(Sender<()>) -> bool>,
    phase: Phase,
    told: String,
}

impl Service {
    /// What waits for signals.
    pub(super) fn new(
        notifier: Notifier,
        view: Arc<Snapshot<NodeView>>,
        ask: impl Fn(Sender<()>) -> bool + 'static,
    ) -> Self {
        let phase = match notifier.is_heard() {
            true => Phase::Starting { until: Instant::now() + START_LIMIT },
            false => Phase::Running { feed_at: None },
        };
        Self { notifier, view, ask: Box::new(ask), phase, told: String::new() }
    }

    /// Waits until the agent is told to end; `config` is the configuration in force, and `show` is told when it changed.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub(super) fn run(
        &mut self,
        signals: &Signals,
        config: &mut crate::config::KubeletConfiguration,
        read_again: &ReadAgain,
        show: &dyn Fn(&crate::config::KubeletConfiguration),
    ) -> anyhow::Result<()> {
        loop {
            match signals.wait(self.next_look()).context("wait for signals")? {
                Some(Told::End) => {
                    self.notifier.stopping("ending; containers go on");
                    return Ok(());
                }
                Some(Told::Reload) => {
                    self.notifier.reloading();
                    reload(config, read_again());
                    show(config);
                    self.notifier.ready(&status(&self.view.get()));
                }
                None => self.look(),
            }
        }
    }

    fn next_look(&self) -> Option<Instant> {
        match self.phase {
            Phase::Starting { .. } => Some(Instant::now() + START_LOOKS),
            Phase::Running { feed_at } => feed_at,
        }
    }

    fn look(&mut self) {
        let view = self.view.get();
        match self.phase {
            Phase::Starting { until } => {
                let knows_all = view.is_listed && view.silent_sources.is_empty();
                if !knows_all && Instant::now() < until {
                    return;
                }
                self.told = status(&view);
                self.notifier.ready(&self.told);
                self.phase = Phase::Running { feed_at: self.feeding() };
            }
            Phase::Running { .. } => {
                if self.turns() {
                    self.notifier.alive();
                } else {
                    log::error!("the sync loop does not answer: the service manager's watchdog is not fed");
                }
                let now = status(&view);
                if now != self.told {
                    self.notifier.status(&now);
                    self.told = now;
                }
                self.phase = Phase::Running { feed_at: self.feeding() };
            }
        }
    }

    /// A third of the watchdog's time, so that one late answer ends nothing.
    fn feeding(&self) -> Option<Instant> {
        self.notifier.watchdog().map(|limit| Instant::now() + limit / 3)
    }

    /// Whether the sync loop turns.
    fn turns(&self) -> bool {
        let (answer, answered) = bounded(1);
        let limit = self.notifier.watchdog().map_or(ANSWER_LIMIT, |limit| ANSWER_LIMIT.min(limit / 6));
        (self.ask)(answer) && answered.recv_timeout(limit).is_ok()
    }
}

/// Puts in force what can be, and names what waits for the next start.
fn reload(config: &mut crate::config::KubeletConfiguration, read: Result<Loaded, LoadError>) {
    let loaded = match read {
        Ok(loaded) => loaded,
        Err(error) => return log::error!("SIGHUP: the agent goes on as it is: {error}"),
    };
    let changes = reload::changes(config, &loaded.config);
    let logging = loaded.config.logging;
    logging::set_verbosity(logging.verbosity);
    logging::set_vmodule(super::facts::vmodule(&logging));
    config.logging.verbosity = logging.verbosity;
    config.logging.vmodule = logging.vmodule;
    match changes.now.is_empty() {
        true => log::info!("SIGHUP: nothing has changed that can be taken over while the agent runs"),
        false => log::info!("SIGHUP: now in force: {}", changes.now.join(", ")),
    }
    if !changes.later.is_empty() {
        log::warn!("SIGHUP: these changed and wait for the agent's next start: {}", changes.later.join(", "));
    }
}

/// The node in one line.
fn status(view: &NodeView) -> String {
    let of = |life: Life| view.pods.values().filter(|pod| pod.life == life).count();
    let mut text = format!("{} pods, {} kept running", view.pods.len(), of(Life::Active));
    let ending = of(Life::Ending);
    if ending > 0 {
        text.push_str(&format!(", {ending} ending"));
    }
    if !view.runtime_down.is_empty() {
        text.push_str("; the container runtime does not answer: ");
        text.push_str(&view.runtime_down);
    } else if !view.is_listed {
        text.push_str("; waiting for the container runtime");
    }
    if view.is_shutting_down {
        text.push_str("; the machine shuts down");
    }
    if !view.silent_sources.is_empty() {
        text.push_str("; waiting for pods from: ");
        text.push_str(&view.silent_sources.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{PodName, PodUid};
    use crate::config::KubeletConfiguration;
    use crate::msg::PodView;
    use std::os::unix::net::UnixDatagram;

    fn pod(uid: &str, life: Life) -> (PodUid, Arc<PodView>) {
        let name = PodName { namespace: "default".to_owned(), name: uid.to_owned() };
        let view = PodView { life, ..PodView::named(PodUid::from(uid), name) };
        (PodUid::from(uid), Arc::new(view))
    }

    #[test]
    fn the_status_says_what_is_missing() {
        let check = |view: NodeView, expect: &str| assert_eq!(status(&view), expect);
        let listed = NodeView { is_listed: true, ..NodeView::default() };
        check(NodeView::default(), "0 pods, 0 kept running; waiting for the container runtime");
        check(listed.clone(), "0 pods, 0 kept running");
        let pods = [pod("a", Life::Active), pod("b", Life::Ending), pod("c", Life::Over)];
        check(NodeView { pods: pods.into(), ..listed.clone() }, "3 pods, 1 kept running, 1 ending");
        let down = NodeView { runtime_down: "no socket".to_owned(), silent_sources: vec!["api", "file"], ..listed };
        check(
            down,
            "0 pods, 0 kept running; the container runtime does not answer: no socket; waiting for pods from: api, file",
        );
    }

    struct Heard {
        socket: UnixDatagram,
        _folder: tempfile::TempDir,
    }

    impl Heard {
        fn service(view: NodeView, answers: bool) -> (Self, Service) {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("notify");
            let socket = UnixDatagram::bind(&path).expect("a socket");
            socket.set_nonblocking(true).expect("set");
            let notifier = Notifier::new(path.to_str(), Some(Duration::from_millis(60))).expect("a notifier");
            let ask = move |answer: Sender<()>| answers && answer.send(()).is_ok();
            (Self { socket, _folder: folder }, Service::new(notifier, Arc::new(Snapshot::new(view)), ask))
        }

        fn messages(&self) -> Vec<String> {
            let mut buffer = [0; 1024];
            let next = || Some(self.socket.recv(&mut buffer).ok()).flatten().map(|n| buffer[..n].to_vec());
            std::iter::from_fn(next).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect()
        }
    }

    #[test]
    fn it_is_ready_once_all_is_known_and_fed_while_the_loop_turns() {
        let known = NodeView { is_listed: true, ..NodeView::default() };
        let (heard, mut service) = Heard::service(NodeView::default(), true);
        service.look();
        assert_eq!(heard.messages(), [""; 0]);
        service.view.set(Arc::new(known.clone()));
        service.look();
        assert_eq!(heard.messages(), ["READY=1\nSTATUS=0 pods, 0 kept running\n"]);
        service.look();
        assert_eq!(heard.messages(), ["WATCHDOG=1\n"]);
        service.view.set(Arc::new(NodeView { runtime_down: "gone".to_owned(), ..known }));
        service.look();
        assert_eq!(
            heard.messages(),
            ["WATCHDOG=1\n", "STATUS=0 pods, 0 kept running; the container runtime does not answer: gone\n"]
        );
    }

    #[test]
    fn a_start_that_takes_long_is_a_start_all_the_same() {
        let (heard, mut service) = Heard::service(NodeView::default(), true);
        service.phase = Phase::Starting { until: Instant::now() };
        service.look();
        assert_eq!(heard.messages(), ["READY=1\nSTATUS=0 pods, 0 kept running; waiting for the container runtime\n"]);
    }

    #[test]
    fn a_loop_that_does_not_answer_feeds_nobody() {
        let (heard, mut service) = Heard::service(NodeView::default(), false);
        service.phase = Phase::Running { feed_at: None };
        service.told = status(&NodeView::default());
        service.look();
        assert_eq!(heard.messages(), [""; 0]);
    }

    #[test]
    fn nothing_wakes_a_service_without_a_manager() {
        let service = Service::new(Notifier::default(), Arc::default(), |_| true);
        assert_eq!(service.next_look(), None);
    }

    #[test]
    fn a_configuration_that_was_read_again_is_taken_over_where_it_can_be() {
        let mut config = KubeletConfiguration::default();
        let mut new = KubeletConfiguration { max_pods: 7, ..KubeletConfiguration::default() };
        new.logging.verbosity = 5;
        let loaded = Loaded {
            config: new,
            flags: Default::default(),
            own: Default::default(),
            cgroup_driver_from: None,
            warnings: Vec::new(),
            notes: Vec::new(),
        };
        reload(&mut config, Ok(loaded));
        assert_eq!((config.logging.verbosity, config.max_pods), (5, 110));
        logging::set_verbosity(0);
    }
}

//! The thread `objects`: keeps up with what is mounted, and tells the sync loop what to look at again.
//!
//! Owns the connections with the watches. It asks nothing that a worker waits for, so that a server that
//! hangs costs nothing but news.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;

use super::cache::TTL;
use super::watches::{EVERYTHING, News, Watches};
use super::{Shared, Strategy};
use crate::api::PodUid;
use crate::api::moment::Moment;
use crate::kube::streams::NO_STREAMS_FOR;
use crate::msg::Refresh;
use crate::util::backoff::{Backoff, BackoffPolicy};
use crate::util::clock;
use crate::util::jitter::longer_by;
use crate::volumes::objects::ObjectKey;

/// Between two attempts to reach the server.
const PATIENCE: BackoffPolicy = BackoffPolicy { initial: Duration::from_secs(1), max: Duration::from_secs(30) };
/// Time for one answer where objects are asked for one after the other.
const LOOK_WITHIN: Duration = Duration::from_secs(10);

/// How changes are heard of now.
enum Ear {
    /// By nothing, until then.
    Deaf(Moment),
    /// By asking, until then.
    Asking(Moment),
    /// By watches.
    Watching(Box<Watches>),
}

/// The thread's state.
pub(super) struct Keeper {
    shared: Arc<Shared>,
    to_loop: Sender<Refresh>,
    ear: Ear,
    backoff: Option<Backoff>,
}

impl Keeper {
    pub(super) fn new(shared: Arc<Shared>, to_loop: Sender<Refresh>) -> Self {
        let ear = match shared.strategy {
            Strategy::Watch => Ear::Deaf(Moment::default()),
            Strategy::Cache | Strategy::Get => Ear::Asking(Moment::from_boot(Duration::MAX)),
        };
        Self { shared, to_loop, ear, backoff: None }
    }

    /// Runs until told to stop.
    pub(super) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let _stops = shared.stop.register(shared.bell.waker());
        while !shared.stop.is_cancelled() {
            let untold = shared.cache().take_untold();
            if !untold.into_iter().all(|(key, pods)| self.tell(pods, changed(&key))) {
                return;
            }
            let due = shared.tokens().due(clock::moment());
            if !self.tell(due, "a token has to be renewed".to_owned()) || !self.turn() {
                return;
            }
        }
    }

    /// Tells the loop; false if there is none any more.
    fn tell(&self, pods: Vec<PodUid>, cause: String) -> bool {
        pods.is_empty() || self.to_loop.send(Refresh { pods, cause }).is_ok()
    }

    /// Does what is due and sleeps until something is. False if the loop has ended.
    fn turn(&mut self) -> bool {
        let now = clock::moment();
        let next_token = self.shared.tokens().next();
        let is_idle = self.shared.cache().to_watch().next().is_none();
        if is_idle {
            if matches!(self.ear, Ear::Watching(_)) {
                // Nobody mounts anything: no connection for nothing.
                self.go_deaf(Moment::default());
            }
            self.sleep(next_token);
            return true;
        }
        // The server takes so many streams on each connection; what has none is asked for now and then.
        let is_full = matches!(&self.ear, Ear::Watching(watches) if watches.is_full());
        let next_look = self.shared.cache().next_look().map(|(at, _)| at).filter(|_| is_full);
        if next_look.is_some_and(|at| at <= now) {
            return self.look(now, next_token);
        }
        match &mut self.ear {
            Ear::Deaf(until) if *until > now => {
                let until = *until;
                self.sleep([Some(until), next_token].into_iter().flatten().min());
                true
            }
            Ear::Deaf(_) => {
                self.connect(now);
                true
            }
            Ear::Asking(until) if *until <= now => {
                self.ear = Ear::Deaf(now);
                true
            }
            Ear::Asking(_) => self.look(now, next_token),
            Ear::Watching(watches) => {
                let news = watches.turn(&self.shared, [next_look, next_token].into_iter().flatten().min());
                match news {
                    Ok(news) => self.spread(news),
                    Err(error) => {
                        log::info!("the watches of mounted objects broke and are made anew: {error}");
                        self.fail(now);
                        true
                    }
                }
            }
        }
    }

    fn sleep(&self, until: Option<Moment>) {
        if let Err(error) = self.shared.bell.wait([], until.map(clock::instant_of)) {
            log::error!("the objects thread cannot sleep: {error}");
            self.shared.stop.wait(Duration::from_secs(1));
        }
    }

    fn connect(&mut self, now: Moment) {
        match self.shared.client.streams(EVERYTHING, &self.shared.stop) {
            Ok(Some(streams)) => self.ear = Ear::Watching(Box::new(Watches::new(streams))),
            Ok(None) => {
                log::info!("the API server speaks no HTTP/2: mounted objects are asked for every {TTL:?}");
                self.ear = Ear::Asking(now + NO_STREAMS_FOR);
            }
            Err(error) => {
                if self.backoff.is_none() {
                    log::info!("mounted objects are not watched for now: {error}");
                }
                self.fail(now);
            }
        }
    }

    fn fail(&mut self, now: Moment) {
        let state = Backoff::after_failure(self.backoff, &PATIENCE, now);
        self.backoff = Some(state);
        self.go_deaf(now + longer_by(state.delay, 0.5));
    }

    fn go_deaf(&mut self, until: Moment) {
        self.ear = Ear::Deaf(until);
        self.shared.cache().all_blind();
    }

    /// Asks for the object whose turn it is.
    fn look(&mut self, now: Moment, next_token: Option<Moment>) -> bool {
        let next = self.shared.cache().next_look().map(|(at, key)| (at, key.clone()));
        match next {
            Some((at, key)) if at <= now => match self.shared.fetch(&key, LOOK_WITHIN) {
                Ok(known) => {
                    self.backoff = None;
                    self.spread(vec![News::Is(key, known)])
                }
                Err(error) => {
                    log::debug!("{key} is not looked at: {error}");
                    let state = Backoff::after_failure(self.backoff, &PATIENCE, now);
                    self.backoff = Some(state);
                    self.shared.cache().put_off(clock::moment() + longer_by(state.delay, 0.5));
                    true
                }
            },
            other => {
                let at = other.map(|(at, _)| at);
                self.sleep([at, next_token].into_iter().flatten().min());
                true
            }
        }
    }

    fn spread(&mut self, news: Vec<News>) -> bool {
        for one in news {
            let (pods, key) = {
                let mut cache = self.shared.cache();
                match one {
                    News::Live(key) => {
                        self.backoff = None;
                        cache.live(&key);
                        continue;
                    }
                    News::Blind(key) => {
                        cache.blind(&key);
                        continue;
                    }
                    News::Is(key, known) => (cache.told(&key, known, clock::moment()), key),
                    News::Silent(key) => (if cache.is_found(&key) { cache.doubt(&key) } else { Vec::new() }, key),
                }
            };
            if !self.tell(pods, changed(&key)) {
                return false;
            }
        }
        true
    }
}

fn changed(key: &ObjectKey) -> String {
    format!("{key} changed")
}

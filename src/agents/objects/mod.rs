//! API objects for volumes and environments: what pods need of ConfigMaps, Secrets, tokens and services.
//!
//! Pod workers ask on their own threads ([`Objects`] is the [`ObjectSource`] of a node with an API
//! server), so that a slow answer holds up one pod. The thread `objects` keeps up with what is mounted:
//! by a watch for each object on a few HTTP/2 connections (an API server takes 100 or 250 on each), and by asking
//! for one after the other for those beyond that, and where server or configuration do not have it so. It tells the
//! sync loop which pods' volumes show something new, and when tokens grow old. With nothing mounted and no token due
//! it sleeps. No value of an object is ever logged.

mod cache;
mod keeper;
mod services;
mod tokens;
mod watches;

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use crate::api::PodUid;
use crate::api::v1::{ConfigMap, Secret};
use crate::kube::{ApiClient, ApiError, Call, Method, paths};
use crate::msg::Refresh;
use crate::util::cancel::Cancel;
use crate::util::clock;
use crate::util::json;
use crate::util::poll::Bell;
use crate::util::thread::{OwnerThread, StackSize};
use crate::volumes::ObjectSource;
use crate::volumes::objects::{ObjectData, ObjectError, ObjectKey, ObjectKind, Purpose, Token, TokenWanted};

use cache::{Cache, Known, Say};
use tokens::Tokens;

/// Requests at once, however many pods start.
const CALLS: usize = 2;

/// How changes are found out (`configMapAndSecretChangeDetectionStrategy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// By watches; nothing is asked while nothing changes.
    Watch,
    /// What was got counts for a minute.
    Cache,
    /// What was got counts for nothing.
    Get,
}

impl Strategy {
    /// Reads the word of the configuration.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "Watch" => Some(Self::Watch),
            "Cache" => Some(Self::Cache),
            "Get" => Some(Self::Get),
            _ => None,
        }
    }
}

/// What workers and the thread share.
struct Shared {
    client: ApiClient,
    strategy: Strategy,
    cache: Mutex<Cache>,
    /// Somebody has got something that others wait for.
    got: Condvar,
    tokens: Mutex<Tokens>,
    services: services::Services,
    /// Wakes the thread.
    bell: Bell,
    stop: Cancel,
}

impl Shared {
    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tokens(&self) -> MutexGuard<'_, Tokens> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the API server for one object.
    fn fetch(&self, key: &ObjectKey, limit: Duration) -> Result<Known, ApiError> {
        let path = match key.kind {
            ObjectKind::ConfigMap => paths::config_map(&key.namespace, &key.name),
            ObjectKind::Secret => paths::secret(&key.namespace, &key.name),
        };
        let call = Call::new(Method::Get, path).within(limit);
        match self.client.call(&call) {
            Ok(answer) => decode(key.kind, &answer.body).map(|data| Known::Found(Arc::new(data))).ok_or_else(|| {
                let (method, path) = (call.method.as_str(), call.path.clone());
                ApiError::Decode { method, path, message: "the answer is no such object".to_owned() }
            }),
            Err(error) if error.is_not_found() => Ok(Known::Missing),
            Err(error) => Err(error),
        }
    }
}

/// Reads an object. What is wrong with it is not told: the text of such an error holds parts of it.
fn decode(kind: ObjectKind, text: &[u8]) -> Option<ObjectData> {
    match kind {
        ObjectKind::ConfigMap => json::from_slice::<ConfigMap>(text).ok().map(ObjectData::from),
        ObjectKind::Secret => json::from_slice::<Secret>(text).ok().map(ObjectData::from),
    }
}

/// API objects for pod workers. Cheap to clone.
#[derive(Clone)]
pub struct Objects {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects").field("strategy", &self.shared.strategy).finish_non_exhaustive()
    }
}

/// The running thread; dropping it ends it.
#[derive(Debug)]
pub struct ObjectsHandle {
    /// What pod workers ask.
    pub objects: Objects,
    _thread: OwnerThread,
}

impl ObjectsHandle {
    /// Starts the thread. Nothing is asked for before a pod needs it.
    ///
    /// # Errors
    /// The kernel has no thread or descriptor left.
    pub fn start(client: &ApiClient, strategy: Strategy, to_loop: Sender<Refresh>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            client: client.separate_for(CALLS),
            strategy,
            cache: Mutex::new(Cache::new(strategy)),
            got: Condvar::new(),
            tokens: Mutex::default(),
            services: services::Services::new(client.clone()),
            bell: Bell::new()?,
            stop: Cancel::new(),
        });
        let keeper = keeper::Keeper::new(Arc::clone(&shared), to_loop);
        let thread = OwnerThread::spawn("objects", StackSize::Large, move || keeper.run())?;
        Ok(Self { objects: Objects { shared }, _thread: thread })
    }
}

impl Drop for ObjectsHandle {
    fn drop(&mut self) {
        self.objects.shared.stop.cancel();
        self.objects.shared.services.stop();
        self.objects.shared.bell.ring();
        self.objects.shared.got.notify_all();
    }
}

impl ObjectSource for Objects {
    fn object(
        &self,
        pod: &PodUid,
        key: &ObjectKey,
        purpose: Purpose,
        limit: Duration,
    ) -> Result<Arc<ObjectData>, ObjectError> {
        let shared = &self.shared;
        let until = Instant::now() + limit;
        let mut cache = shared.cache();
        if cache.register(pod, key, purpose) {
            shared.bell.ring();
        }
        loop {
            match cache.ask(key, clock::moment()) {
                Say::Known(known) => return answer(key, known),
                Say::Fetch => break,
                Say::Wait => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || shared.stop.is_cancelled() {
                let why = "another pod's request for it takes too long".to_owned();
                return Err(ObjectError::Unavailable { what: key.to_string(), why });
            }
            cache = shared.got.wait_timeout(cache, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(cache);
        let fetched = shared.fetch(key, until.saturating_duration_since(Instant::now()));
        let mut cache = shared.cache();
        let result = match fetched {
            Ok(known) => {
                cache.fetched(key, known.clone(), clock::moment());
                answer(key, known)
            }
            Err(error) => match cache.failed(key) {
                // What runs goes on with what it has; the thread tells when that grows old.
                Some(old) => answer(key, Known::Found(old)),
                None => Err(ObjectError::Unavailable { what: key.to_string(), why: error.to_string() }),
            },
        };
        drop(cache);
        shared.got.notify_all();
        shared.bell.ring();
        result
    }

    fn token(&self, wanted: &TokenWanted, limit: Duration) -> Result<Token, ObjectError> {
        let got = tokens::get(&self.shared.client, &self.shared.tokens, wanted, limit);
        self.shared.bell.ring();
        got.map_err(|why| ObjectError::Unavailable {
            what: format!("a token of service account {}/{}", wanted.namespace, wanted.account),
            why,
        })
    }

    fn service_variables(
        &self,
        namespace: &str,
        links: bool,
        limit: Duration,
    ) -> Result<Vec<(String, String)>, ObjectError> {
        self.shared.services.variables(namespace, links, limit).ok_or_else(|| ObjectError::Unavailable {
            what: "services".to_owned(),
            why: "services have not yet been read at least once, cannot construct envvars".to_owned(),
        })
    }

    fn forget(&self, pod: &PodUid) {
        let changed = self.shared.cache().forget(pod);
        self.shared.tokens().forget(pod);
        if changed {
            self.shared.bell.ring();
        }
    }
}

fn answer(key: &ObjectKey, known: Known) -> Result<Arc<ObjectData>, ObjectError> {
    match known {
        Known::Found(data) => Ok(data),
        Known::Missing => Err(ObjectError::NotFound { kind: key.kind, name: key.name.clone() }),
    }
}

//! Requests to the API server: one call, one answer.
//!
//! Runs on the calling threads, which wait for the answer. Clones share connections, credentials and the
//! limit of requests; [`ApiClient::separate`] gives a client with connections and a limit of its own. Every call
//! ends at its deadline, reads a bounded number of bytes, and is cut short by [`ApiClient::shut_down`].
//! It decides nothing about objects and retries only where the server asks for it.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::Response;
use ureq::{Agent, Body};

use super::credentials::{Credentials, Current};
use super::dialer::Dialer;
use super::error::{ApiError, Status};
use super::exchange::{Failure, Guard, Timeouts, decode, read_body, retry_after, transmit};
use super::kubeconfig::Access;
use super::limiter::Limiter;
use super::streams::Patience;
use super::tls;
use crate::api::meta::DeleteOptions;
use crate::util::cancel::Cancel;
use crate::util::clock;
use crate::util::metrics::{kubelet, own};

/// Time for one answer where nothing else is said: a half-open connection is noticed within it.
pub const DEADLINE: Duration = Duration::from_secs(25);
/// Time to get a connection.
pub(super) const CONNECT: Duration = Duration::from_secs(10);
/// Largest answer with one object: etcd keeps 1.5 MiB of each.
pub const MAX_OBJECT: u64 = 8 << 20;
/// Largest body of an answer that says no.
const MAX_STATUS: u64 = 64 * 1024;
/// How often a call is repeated because the server asks for patience.
const MAX_RETRIES: u32 = 10;
/// Connections of one client that are kept while nobody uses them.
const IDLE_CONNECTIONS: usize = 1;
/// How long an idle connection may be used again, as Go's clients have it.
const IDLE_AGE: Duration = Duration::from_secs(90);

/// HTTP methods of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Read.
    Get,
    /// Create.
    Post,
    /// Replace.
    Put,
    /// Change in part.
    Patch,
    /// Delete.
    Delete,
}

impl Method {
    /// `GET` …
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// How a patch is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// Lists are merged by their keys.
    Strategic,
    /// RFC 7386.
    Merge,
    /// RFC 6902.
    Json,
}

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentType {
    /// An object.
    Json,
    /// A patch.
    Patch(PatchType),
}

impl ContentType {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Patch(PatchType::Strategic) => "application/strategic-merge-patch+json",
            Self::Patch(PatchType::Merge) => "application/merge-patch+json",
            Self::Patch(PatchType::Json) => "application/json-patch+json",
        }
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct Call {
    /// Method.
    pub method: Method,
    /// Path from the root, escaped: see [`super::paths`].
    pub path: String,
    /// Query, not escaped.
    pub query: Vec<(String, String)>,
    /// Body, if any.
    pub body: Option<(ContentType, Vec<u8>)>,
    /// Time for all of it: waiting for one's turn, connection, answer, repetitions.
    pub deadline: Duration,
}

impl Call {
    /// A request without query and body, with the usual deadline.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), query: Vec::new(), body: None, deadline: DEADLINE }
    }

    /// With an object as its body.
    ///
    /// # Errors
    /// The object cannot be written as JSON.
    pub fn with_json<T: Serialize>(mut self, object: &T) -> Result<Self, ApiError> {
        let bytes = serde_json::to_vec(object).map_err(|error| ApiError::Request {
            method: self.method.as_str(),
            path: self.path.clone(),
            message: error.to_string(),
        })?;
        self.body = Some((ContentType::Json, bytes));
        Ok(self)
    }

    /// With a deadline of its own.
    #[must_use]
    pub fn within(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }
}

/// An answer that says yes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status code, 200 to 299.
    pub status: u16,
    /// Body, at most [`MAX_OBJECT`] bytes.
    pub body: Vec<u8>,
}

/// How many requests may be made: `kubeAPIQPS` and `kubeAPIBurst`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// On average, a second; negative for no limit, 0 for 50.
    pub per_second: f64,
    /// At once; 0 for 100.
    pub burst: u32,
}

/// Speaks to one API server as one user. Cheap to clone.
#[derive(Clone)]
pub struct ApiClient {
    pub(super) shared: Arc<Shared>,
    lane: Arc<Lane>,
}

/// What separate clients have in common.
pub(super) struct Shared {
    pub(super) credentials: Credentials,
    pub(super) user_agent: String,
    limit: RateLimit,
    /// Set at the agent's end.
    pub(super) stop: Cancel,
    /// Whose connections go at the agent's end.
    lanes: Mutex<Vec<Weak<Lane>>>,
    /// How long a silent connection with streams is trusted.
    pub(super) patience: Patience,
    /// The server spoke no HTTP/2, and is not asked about it before.
    pub(super) no_streams_until: Mutex<Option<Instant>>,
    /// Set, and made anew, when a connection fails: silent ones that nobody asks questions on are broken then.
    doubt: Mutex<Cancel>,
}

/// Connections and limit of one client.
struct Lane {
    /// The generation of the credentials that it was made with, and the HTTP library's agent.
    agent: Mutex<Option<(u64, Agent)>>,
    limiter: Mutex<Limiter>,
    use_of: Use,
    /// Calls that may still begin before another ends.
    free: Mutex<usize>,
    freed: Condvar,
}

/// A call under way; dropping it lets another begin.
struct Place<'a>(&'a Lane);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

/// What a lane is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Many calls.
    Calls,
    /// One long answer, which its reader may break off: nothing is tried twice behind the reader's back.
    OneAnswer,
}

impl fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiClient").field("server", &self.shared.credentials.access().server()).finish_non_exhaustive()
    }
}

impl ApiClient {
    /// A client. No connection is made yet, and no file is read.
    pub fn new(access: Access, user_agent: &str, limit: RateLimit) -> Self {
        Self::with_patience(access, user_agent, limit, Patience::default())
    }

    /// As [`Self::new`], with another patience with silent connections.
    pub fn with_patience(access: Access, user_agent: &str, limit: RateLimit, patience: Patience) -> Self {
        let shared = Arc::new(Shared {
            credentials: Credentials::new(access),
            user_agent: user_agent.to_owned(),
            limit,
            stop: Cancel::new(),
            lanes: Mutex::default(),
            patience,
            no_streams_until: Mutex::default(),
            doubt: Mutex::default(),
        });
        Self { lane: shared.lane(Limiter::new(limit.per_second, limit.burst), Use::Calls), shared }
    }

    /// A client with the same credentials, and connections and a limit of requests of its own.
    #[must_use]
    pub fn separate(&self) -> Self {
        self.separate_at(self.shared.limit)
    }

    /// As [`Self::separate`], and no more than so many calls are under way, so that it has no more connections.
    #[must_use]
    pub fn separate_for(&self, calls: usize) -> Self {
        let limiter = Limiter::new(self.shared.limit.per_second, self.shared.limit.burst);
        Self { shared: Arc::clone(&self.shared), lane: self.shared.lane_for(limiter, Use::Calls, calls) }
    }

    /// As [`Self::separate`], with another limit.
    #[must_use]
    pub fn separate_at(&self, limit: RateLimit) -> Self {
        let limiter = Limiter::new(limit.per_second, limit.burst);
        Self { shared: Arc::clone(&self.shared), lane: self.shared.lane(limiter, Use::Calls) }
    }

    /// The server's address, for people.
    pub fn server(&self) -> &str {
        self.shared.credentials.access().server()
    }

    /// Makes the next request read the files of credentials again.
    pub fn reload(&self) {
        self.shared.credentials.look_again();
    }

    /// Breaks every connection of this client, its clones and its separate ones. Whoever waits gets an error at
    /// once, as does every later call. For the end of the agent.
    pub fn shut_down(&self) {
        self.shared.stop.cancel();
        let lanes = std::mem::take(&mut *self.shared.lanes.lock().unwrap_or_else(PoisonError::into_inner));
        for agent in lanes.iter().filter_map(Weak::upgrade).filter_map(|lane| lane.current_agent()) {
            agent.shutdown();
        }
    }

    /// Makes one request and waits for its answer.
    ///
    /// # Errors
    /// There is no answer, or it says no.
    pub fn call(&self, call: &Call) -> Result<Answer, ApiError> {
        let until = Instant::now() + call.deadline;
        let _place = self.lane.place(until).ok_or_else(|| ApiError::Timeout {
            method: call.method.as_str(),
            path: call.path.clone(),
            limit: call.deadline,
        })?;
        let mut response = self.send(call, until, &Timeouts::Within(until))?;
        let status = response.status().as_u16();
        let guard = Guard::of(&self.shared.stop, self.lane.current_agent());
        let body = read_body(&mut response, MAX_OBJECT)
            .map_err(|failure| failure.explain(call.method.as_str(), &call.path, call.deadline));
        drop(guard);
        let body = body.inspect_err(|error| self.after(error))?;
        Ok(Answer { status, body })
    }

    /// Makes one request and reads the object that is its answer. What is wrong with one is told without a word of it.
    ///
    /// # Errors
    /// There is no answer, it says no, or it is no such object.
    pub fn call_for<T: DeserializeOwned>(&self, call: &Call) -> Result<T, ApiError> {
        let answer = self.call(call)?;
        decode(&answer.body).map_err(|message| ApiError::Decode {
            method: call.method.as_str(),
            path: call.path.clone(),
            message,
        })
    }

    /// Reads an object.
    ///
    /// # Errors
    /// See [`ApiError`]; one that is not there is [`ApiError::is_not_found`].
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        self.call_for(&Call::new(Method::Get, path))
    }

    /// Creates an object; gives what the server made of it.
    ///
    /// # Errors
    /// See [`ApiError`]; [`ApiError::is_already_exists`].
    pub fn create<T: Serialize, R: DeserializeOwned>(&self, path: &str, object: &T) -> Result<R, ApiError> {
        self.call_for(&Call::new(Method::Post, path).with_json(object)?)
    }

    /// Replaces an object; gives what the server made of it.
    ///
    /// # Errors
    /// See [`ApiError`]; one whose resource version is not the newest is [`ApiError::is_conflict`].
    pub fn update<T: Serialize, R: DeserializeOwned>(&self, path: &str, object: &T) -> Result<R, ApiError> {
        self.call_for(&Call::new(Method::Put, path).with_json(object)?)
    }

    /// Changes an object in part; gives the whole of it.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub fn patch<R: DeserializeOwned>(&self, path: &str, kind: PatchType, patch: Vec<u8>) -> Result<R, ApiError> {
        let mut call = Call::new(Method::Patch, path);
        call.body = Some((ContentType::Patch(kind), patch));
        self.call_for(&call)
    }

    /// Deletes an object. What the server answers (the object, or a Status) is not looked at.
    ///
    /// # Errors
    /// See [`ApiError`]; a uid or resource version of the options that does not fit is [`ApiError::is_conflict`].
    pub fn delete(&self, path: &str, options: &DeleteOptions) -> Result<(), ApiError> {
        self.call(&Call::new(Method::Delete, path).with_json(options)?).map(drop)
    }

    /// Sends a request, again where the server asks for patience, and gives the head of an answer that says yes.
    pub(super) fn send(&self, call: &Call, until: Instant, timeouts: &Timeouts) -> Result<Response<Body>, ApiError> {
        let (method, path) = (call.method.as_str(), call.path.as_str());
        let may_retry = self.lane.use_of == Use::Calls;
        let mut retries = 0;
        let mut is_second_login = false;
        loop {
            self.wait_for_turn(method, path, until)?;
            let failed = |message| ApiError::Credentials { method, path: path.to_owned(), message };
            let current = self.shared.credentials.current(&self.shared.stop).map_err(failed)?;
            let agent = self.lane.agent(&current, &self.shared).map_err(failed)?;
            let began = Instant::now();
            let sent = {
                let _guard = Guard::of(&self.shared.stop, Some(agent.clone()));
                transmit(&agent, call, self.shared.credentials.access(), current.authorization.as_deref(), timeouts)
            };
            let code = sent.as_ref().map_or(0, |response| response.status().as_u16());
            count(self.shared.credentials.access(), method, code, began.elapsed());
            let mut response = match sent {
                Ok(response) => response,
                Err(_) if self.shared.stop.is_cancelled() => {
                    return Err(ApiError::Cancelled { method, path: path.to_owned() });
                }
                Err(error) => {
                    // The server may have hung up on an idle connection just as it was used again.
                    let broke =
                        matches!(&error, ureq::Error::Io(io) if io.kind() != std::io::ErrorKind::ConnectionRefused);
                    let is_stale = broke && may_retry && call.method == Method::Get && retries == 0;
                    let error = Failure::Http(error).explain(method, path, call.deadline);
                    self.after(&error);
                    if is_stale && Instant::now() < until {
                        retries += 1;
                        continue;
                    }
                    return Err(error);
                }
            };
            let code = response.status().as_u16();
            if (200..300).contains(&code) {
                return Ok(response);
            }
            let retry_after = retry_after(&response);
            let body = read_body(&mut response, MAX_STATUS).unwrap_or_default();
            let status = Status::read(code, retry_after, &body);
            if code == 401 && !may_retry {
                self.shared.credentials.look_again();
            }
            if code == 401 && may_retry && !is_second_login {
                is_second_login = true;
                self.shared.credentials.look_again();
                let renewed = self.shared.credentials.current(&self.shared.stop).map_err(failed)?;
                if renewed.authorization != current.authorization || renewed.generation != current.generation {
                    continue;
                }
            }
            // As the clients of Kubernetes do: only where the server names a time in the header.
            let wait = retry_after.filter(|_| may_retry && (code == 429 || code >= 500) && retries < MAX_RETRIES);
            if let Some(wait) = wait.filter(|wait| Instant::now() + *wait < until) {
                retries += 1;
                if self.shared.stop.wait(wait) {
                    return Err(ApiError::Cancelled { method, path: path.to_owned() });
                }
                continue;
            }
            return Err(ApiError::Status { method, path: path.to_owned(), status: Box::new(status) });
        }
    }

    /// Where one connection is dead, others that are silent are not trusted either.
    fn after(&self, error: &ApiError) {
        if self.lane.use_of != Use::OneAnswer && error.is_of_the_connection() {
            *self.lane.agent.lock().unwrap_or_else(PoisonError::into_inner) = None;
            let mut doubt = self.shared.doubt.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *doubt).cancel();
        }
    }

    /// Set when a connection to the server fails from now on.
    pub(super) fn doubt(&self) -> Cancel {
        self.shared.doubt.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the limit of requests lets one through.
    fn wait_for_turn(&self, method: &'static str, path: &str, until: Instant) -> Result<(), ApiError> {
        let began = Instant::now();
        let patience = until.saturating_duration_since(Instant::now());
        let turn = {
            let mut limiter = self.lane.limiter.lock().unwrap_or_else(PoisonError::into_inner);
            limiter.take(clock::moment(), patience)
        };
        let wait = turn.map_err(|delay| ApiError::Throttled { method, path: path.to_owned(), delay })?;
        let stopped = if wait.is_zero() { self.shared.stop.is_cancelled() } else { self.shared.stop.wait(wait) };
        if !wait.is_zero() {
            own::LIMITER_WAITS.inc(&["API server"]);
        }
        kubelet::CLIENT_LIMITER.observe(&[host(self.shared.credentials.access()), method], began.elapsed());
        if stopped { Err(ApiError::Cancelled { method, path: path.to_owned() }) } else { Ok(()) }
    }

    /// A client with a connection of its own, for one long answer.
    pub(super) fn single_use(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), lane: self.shared.lane(Limiter::new(-1.0, 1), Use::OneAnswer) }
    }

    /// Makes the agent, so that it can be broken while it connects.
    pub(super) fn prepare(&self) -> Result<(), String> {
        let current = self.shared.credentials.current(&self.shared.stop)?;
        self.lane.agent(&current, &self.shared).map(drop)
    }

    /// Takes a turn of this client's limit for a request that another of its lanes makes.
    pub(super) fn take_turn(&self, path: &str, patience: Duration) -> Result<(), ApiError> {
        self.wait_for_turn("WATCH", path, Instant::now() + patience)
    }

    /// The agent that the last request used.
    pub(super) fn current_agent(&self) -> Option<Agent> {
        self.lane.current_agent()
    }
}

/// Host and port of a server, as metrics name it.
fn host(access: &Access) -> &str {
    access.origin.rsplit('/').next().unwrap_or_default()
}

/// Counts a request. `code` is that of the answer; 0 if there is none.
fn count(access: &Access, method: &'static str, code: u16, took: Duration) {
    let host = host(access);
    let code = if code == 0 { "<error>".to_owned() } else { code.to_string() };
    kubelet::CLIENT_REQUESTS.inc(&[&code, host, method]);
    kubelet::CLIENT_DURATION.observe(&[host, method], took);
}

impl Shared {
    fn lane(&self, limiter: Limiter, use_of: Use) -> Arc<Lane> {
        self.lane_for(limiter, use_of, usize::MAX)
    }

    fn lane_for(&self, limiter: Limiter, use_of: Use, calls: usize) -> Arc<Lane> {
        let (free, freed) = (Mutex::new(calls), Condvar::new());
        let lane = Arc::new(Lane { agent: Mutex::new(None), limiter: Mutex::new(limiter), use_of, free, freed });
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|lane| lane.strong_count() > 0);
        lanes.push(Arc::downgrade(&lane));
        lane
    }
}

impl Lane {
    /// Waits until another call may begin; `None` if none may in time.
    fn place(&self, until: Instant) -> Option<Place<'_>> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let left = until.saturating_duration_since(Instant::now());
        let waited = self.freed.wait_timeout_while(free, left, |free| *free == 0);
        let mut free = waited.unwrap_or_else(PoisonError::into_inner).0;
        *free = free.checked_sub(1)?;
        Some(Place(self))
    }

    /// The agent for these credentials: the one at hand, or a new one.
    fn agent(&self, current: &Current, shared: &Shared) -> Result<Agent, String> {
        let mut agent = self.agent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((generation, agent)) = agent.as_ref()
            && *generation == current.generation
        {
            return Ok(agent.clone());
        }
        let made = new_agent(current, shared)?;
        *agent = Some((current.generation, made.clone()));
        Ok(made)
    }

    fn current_agent(&self) -> Option<Agent> {
        let agent = self.agent.lock().unwrap_or_else(PoisonError::into_inner);
        agent.as_ref().map(|(_, agent)| agent.clone())
    }
}

fn new_agent(current: &Current, shared: &Shared) -> Result<Agent, String> {
    let access = shared.credentials.access();
    let tls = match &current.tls {
        None => None,
        Some(config) => {
            let name = access.tls_server_name.as_deref().unwrap_or(&access.host);
            Some((Arc::clone(config), tls::server_name(name)?))
        }
    };
    let dialer = Dialer { tls, proxy: access.proxy.clone() };
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_idle_connections(IDLE_CONNECTIONS)
        .max_idle_connections_per_host(IDLE_CONNECTIONS)
        .max_idle_age(IDLE_AGE)
        .timeout_resolve(Some(CONNECT))
        .timeout_connect(Some(CONNECT))
        .user_agent(&shared.user_agent)
        .accept("application/json")
        .proxy(None);
    let config = if access.gzip { config } else { config.accept_encoding(ureq::config::AutoHeaderValue::None) };
    Ok(Agent::with_parts(config.build(), dialer.clone(), dialer))
}

#[cfg(test)]
mod tests;

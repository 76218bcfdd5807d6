//! One exchange with the server: a request out, the head of its answer in, and what can go wrong between.
//!
//! Runs on the calling threads; owns nothing but the connection in use. No text that it makes holds a
//! credential or a value of a body.

use std::io::Read;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use ureq::http::Response;
use ureq::{Agent, Body, RequestBuilder};

use super::client::{CONNECT, Call, ContentType, Method};
use super::error::ApiError;
use super::kubeconfig::Access;
use super::paths;
use crate::util::cancel::{Cancel, Registration};
use crate::util::json::{self, Misplaced, Mistake};

/// What bounds a request.
pub(super) enum Timeouts {
    /// All of it, body included.
    Within(Instant),
    /// The head of the answer, and then each read of the body.
    Stream { head: Duration, silence: Duration },
}

/// Sends a request and waits for the head of its answer.
pub(super) fn transmit(
    agent: &Agent,
    call: &Call,
    access: &Access,
    authorization: Option<&str>,
    timeouts: &Timeouts,
) -> Result<Response<Body>, ureq::Error> {
    let query = paths::query(call.query.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let url = format!("{}{}{}{query}", access.origin, access.prefix, call.path);
    let body = call.body.as_ref().map(|(_, bytes)| bytes.as_slice());
    let dress = Dress { authorization, content: call.body.as_ref().map(|(content, _)| *content), timeouts };
    match (call.method, body) {
        (Method::Get, _) => dress.on(agent.get(url)).call(),
        (Method::Delete, None) => dress.on(agent.delete(url)).call(),
        (Method::Delete, Some(body)) => dress.on(agent.delete(url).force_send_body()).send(body),
        (Method::Post, body) => dress.on(agent.post(url)).send(body.unwrap_or_default()),
        (Method::Put, body) => dress.on(agent.put(url)).send(body.unwrap_or_default()),
        (Method::Patch, body) => dress.on(agent.patch(url)).send(body.unwrap_or_default()),
    }
}

struct Dress<'a> {
    authorization: Option<&'a str>,
    content: Option<ContentType>,
    timeouts: &'a Timeouts,
}

impl Dress<'_> {
    fn on<B>(&self, mut builder: RequestBuilder<B>) -> RequestBuilder<B> {
        if let Some(authorization) = self.authorization {
            builder = builder.header("authorization", authorization);
        }
        if let Some(content) = self.content {
            builder = builder.header("content-type", content.as_str());
        }
        let config = builder.config();
        match self.timeouts {
            Timeouts::Within(until) => {
                // Zero would be an error of the library, and is over before it began.
                let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
                config.timeout_global(Some(left)).build()
            }
            Timeouts::Stream { head, silence } => {
                config.timeout_recv_response(Some(*head)).timeout_per_read(Some(*silence)).build()
            }
        }
    }
}

/// The header Retry-After in seconds; a date is not used in the API.
pub(super) fn retry_after(response: &Response<Body>) -> Option<Duration> {
    let value = response.headers().get("retry-after")?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}

/// Breaks the connections of an agent when a token is set, as long as it lives.
pub(super) struct Guard<'a> {
    _registration: Option<Registration<'a>>,
}

impl<'a> Guard<'a> {
    pub(super) fn of(cancel: &'a Cancel, agent: Option<Agent>) -> Self {
        let registration = agent.map(|agent| cancel.register(Waker::from(Arc::new(BreakConnections(agent)))));
        Self { _registration: registration }
    }
}

struct BreakConnections(Agent);

impl Wake for BreakConnections {
    fn wake(self: Arc<Self>) {
        self.0.clone().shutdown();
    }
}

/// What went wrong below the API.
pub(super) enum Failure {
    /// The HTTP library's word.
    Http(ureq::Error),
    /// Too many bytes.
    TooLarge(u64),
}

impl Failure {
    /// In words, with method and path. `limit` is the time that was allowed.
    pub(super) fn explain(self, method: &'static str, path: &str, limit: Duration) -> ApiError {
        let path = path.to_owned();
        let connection = |message: String| ApiError::Connection { method, path: path.clone(), message };
        let error = match self {
            Self::TooLarge(limit) => return ApiError::TooLarge { method, path, limit },
            Self::Http(error) => error,
        };
        match error {
            ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
                connection(format!("no connection to the API server within {CONNECT:?}"))
            }
            ureq::Error::Timeout(_) => ApiError::Timeout { method, path, limit },
            ureq::Error::HostNotFound => connection("no address is known for the API server's name".to_owned()),
            ureq::Error::Rustls(error) => ApiError::Tls { method, path, message: error.to_string() },
            ureq::Error::Io(error) => match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                Some(tls) => ApiError::Tls { method, path, message: tls.to_string() },
                None => connection(match error.kind() {
                    std::io::ErrorKind::ConnectionRefused => {
                        "connection refused: no API server listens there".to_owned()
                    }
                    std::io::ErrorKind::UnexpectedEof => {
                        "the API server closed the connection in the middle of its answer".to_owned()
                    }
                    std::io::ErrorKind::TimedOut => return ApiError::Timeout { method, path, limit },
                    _ => error.to_string(),
                }),
            },
            ureq::Error::ConnectProxyFailed(why) => connection(format!("no way through the proxy: {why}")),
            ureq::Error::Http(error) => ApiError::Request { method, path, message: error.to_string() },
            ureq::Error::Decompress(_, error) => connection(format!("the packed answer is broken: {error}")),
            other => connection(other.to_string()),
        }
    }
}

/// Reads a body of at most `max` bytes.
pub(super) fn read_body(response: &mut Response<Body>, max: u64) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    let reader = response.body_mut().as_reader();
    let read = reader.take(max + 1).read_to_end(&mut body);
    read.map_err(|error| Failure::Http(ureq::Error::from(error)))?;
    if body.len() as u64 > max { Err(Failure::TooLarge(max)) } else { Ok(body) }
}

/// JSON to an object; a mistake is named with its path.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    json::from_slice(bytes).map_err(|mistake| match mistake {
        Mistake::Syntax(error) => without_values(&error),
        Mistake::Field(misplaced) => told(&misplaced),
    })
}

/// What is wrong with an object, without a word of it: a value may be a secret.
pub(super) fn told(Misplaced { path, error }: &Misplaced) -> String {
    format!("{path}: {}", without_values(error))
}

/// What is wrong with a JSON text, without a word of it: a value may be a secret.
pub(super) fn without_values(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = match error.line() {
        0 => String::new(),
        line => format!(" at line {line} column {}", error.column()),
    };
    match error.classify() {
        serde_json::error::Category::Data if text.starts_with("missing field") => text,
        serde_json::error::Category::Data => format!("a value of the wrong type{place}"),
        serde_json::error::Category::Eof => "the JSON ends too early".to_owned(),
        serde_json::error::Category::Syntax => format!("not JSON{place}"),
        serde_json::error::Category::Io => text,
    }
}

//! Why a request to the API server gave nothing: plain values for people and for decisions.
//!
//! Made on the threads that call; owns nothing. A text names method and path, never a query, a body or a
//! credential.

use std::time::Duration;

use serde::Deserialize;

use crate::api::meta::StatusDetails;

/// How much of an answer that is no Status object is shown.
const MAX_SHOWN: usize = 200;

/// The server's own word for a failed request: the Status object, or what its HTTP answer says instead.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// HTTP status code.
    pub code: u16,
    /// One CamelCase word: `NotFound`, `Conflict`, `AlreadyExists`, `Expired`; empty when nobody knows.
    pub reason: String,
    /// The server's sentence.
    pub message: String,
    /// Which object, and causes field by field.
    pub details: Option<StatusDetails>,
    /// When the server wants to be asked again, counted from its answer.
    pub retry_after: Option<Duration>,
}

#[derive(Deserialize)]
struct StatusObject {
    kind: String,
    code: Option<i32>,
    reason: Option<String>,
    message: Option<String>,
    details: Option<StatusDetails>,
}

impl Status {
    /// Reads the body of an answer that is no success, or the object of an ERROR event (`code` 0).
    pub(super) fn read(code: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let object = serde_json::from_slice::<StatusObject>(body).ok().filter(|object| object.kind == "Status");
        let Some(object) = object else {
            let text = String::from_utf8_lossy(body);
            let message: String =
                text.trim().chars().take(MAX_SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
            let message = if message.is_empty() { "no explanation".to_owned() } else { message };
            return Self { code, reason: reason_of(code).to_owned(), message, details: None, retry_after };
        };
        let own = object.code.and_then(|code| u16::try_from(code).ok()).unwrap_or(0);
        let code = if code == 0 { own } else { code };
        let reason = object.reason.filter(|reason| !reason.is_empty());
        let asked = object.details.as_ref().and_then(|details| details.retry_after_seconds);
        let asked = asked.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
        Self {
            code,
            reason: reason.unwrap_or_else(|| reason_of(code).to_owned()),
            message: object.message.unwrap_or_default(),
            details: object.details,
            retry_after: retry_after.or(asked.map(Duration::from_secs)),
        }
    }
}

/// The reason that goes with a code when the server says none.
const fn reason_of(code: u16) -> &'static str {
    match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        406 => "NotAcceptable",
        409 => "Conflict",
        410 => "Gone",
        413 => "RequestEntityTooLarge",
        415 => "UnsupportedMediaType",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    }
}

/// A request to the API server failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The server said no.
    #[error("{method} {path}: the API server answers {} {}: {}", .status.code, .status.reason, .status.message)]
    Status {
        /// `GET`, `PATCH`, `WATCH` …
        method: &'static str,
        /// Path without query.
        path: String,
        /// What it said.
        status: Box<Status>,
    },
    /// No complete answer in time.
    #[error("{method} {path}: no complete answer from the API server within {limit:?}")]
    Timeout {
        /// Method.
        method: &'static str,
        /// Path without query.
        path: String,
        /// The time that was allowed.
        limit: Duration,
    },
    /// The connection could not be made, or broke.
    #[error("{method} {path}: {message}")]
    Connection {
        /// Method.
        method: &'static str,
        /// Path without query.
        path: String,
        /// What happened.
        message: String,
    },
    /// The two sides do not accept each other's certificates.
    #[error("{method} {path}: no TLS connection to the API server: {message}")]
    Tls {
        /// Method.
        method: &'static str,
        /// Path without query.
        path: String,
        /// What happened.
        message: String,
    },
    /// A certificate, key or token of the kubeconfig cannot be had right now.
    #[error("{method} {path}: no credentials: {message}")]
    Credentials {
        /// Method.
        method: &'static str,
        /// Path without query.
        path: String,
        /// Which, and what is wrong with it.
        message: String,
    },
    /// More bytes than anybody should send.
    #[error("{method} {path}: the answer has more than the {limit} bytes that are read")]
    TooLarge {
        /// Method.
        method: &'static str,
        /// Path without query.
        path: String,
        /// The limit in bytes, for the whole answer or for one object of it.
        limit: u64,
    },
    /// The answer is no JSON, or not the JSON that belongs there.
    #[error("{method} {path}: the answer of the API server is not understood: {message}")]
    Decode {
        /// Method.
        method: &'static str,
        /// Path without query.
        path: String,
        /// Where and what.
        message: String,
    },
    /// What was to be sent cannot be sent.
    #[error("{method} {path}: the request cannot be sent: {message}")]
    Request {
        /// Method.
        method: &'static str,
        /// Path without query.
        path: String,
        /// What is wrong with it.
        message: String,
    },
    /// The own limit of requests (kubeAPIQPS, kubeAPIBurst) would hold it beyond its deadline.
    #[error("{method} {path}: not sent, kubeAPIQPS and kubeAPIBurst would delay it by {delay:?}")]
    Throttled {
        /// Method.
        method: &'static str,
        /// Path without query.
        path: String,
        /// The delay.
        delay: Duration,
    },
    /// The caller or the end of the agent cut it short.
    #[error("{method} {path}: given up, the agent needs the answer no more")]
    Cancelled {
        /// Method.
        method: &'static str,
        /// Path without query.
        path: String,
    },
}

impl ApiError {
    /// The server's word, where it gave one.
    pub fn details(&self) -> Option<&Status> {
        match self {
            Self::Status { status, .. } => Some(status),
            _ => None,
        }
    }

    /// The HTTP status code of the answer, if there was one that says no.
    pub fn status(&self) -> Option<u16> {
        self.details().map(|status| status.code)
    }

    /// The server's reason: `NotFound`, `Conflict`, `AlreadyExists`, `Expired` …
    pub fn reason(&self) -> Option<&str> {
        self.details().map(|status| status.reason.as_str())
    }

    /// How long the server wants to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        self.details().and_then(|status| status.retry_after)
    }

    /// Whether the object (or its namespace, or the path) is not there.
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(404)
    }

    /// Whether somebody else changed the object first. [`Self::is_already_exists`] is not meant.
    pub fn is_conflict(&self) -> bool {
        self.reason() == Some("Conflict")
    }

    /// Whether an object of that name is there already.
    pub fn is_already_exists(&self) -> bool {
        self.reason() == Some("AlreadyExists")
    }

    /// Whether the resource version is too old to go on from: list anew.
    pub fn is_gone(&self) -> bool {
        self.status() == Some(410) || self.reason() == Some("Expired")
    }

    /// Whether the server does not know who asks.
    pub fn is_unauthorized(&self) -> bool {
        self.status() == Some(401)
    }

    /// Whether the server knows who asks and says no.
    pub fn is_forbidden(&self) -> bool {
        self.status() == Some(403)
    }

    /// Whether the request may succeed unchanged later: nothing in it is wrong.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status.code, 401 | 408 | 429 | 500..=599),
            Self::Request { .. } | Self::TooLarge { .. } | Self::Decode { .. } | Self::Cancelled { .. } => false,
            Self::Timeout { .. }
            | Self::Connection { .. }
            | Self::Tls { .. }
            | Self::Credentials { .. }
            | Self::Throttled { .. } => true,
        }
    }

    /// Whether the connection is of no use any more, and others to the same server may not be either.
    pub(super) const fn is_of_the_connection(&self) -> bool {
        matches!(self, Self::Timeout { .. } | Self::Connection { .. } | Self::Tls { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: u16, body: &str, expect: &str) {
        let status = Status::read(code, None, body.as_bytes());
        let wait = status.retry_after.map(|wait| format!(" after {wait:?}")).unwrap_or_default();
        assert_eq!(format!("{} {}: {}{wait}", status.code, status.reason, status.message), expect);
    }

    #[test]
    fn a_status_object_or_what_stands_in_its_place() {
        check(
            404,
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods \"a\" not found","reason":"NotFound","details":{"name":"a","kind":"pods"},"code":404}"#,
            r#"404 NotFound: pods "a" not found"#,
        );
        check(
            0,
            r#"{"kind":"Status","message":"too old resource version","reason":"Expired","code":410}"#,
            "410 Expired: too old resource version",
        );
        check(
            429,
            r#"{"kind":"Status","message":"wait","details":{"retryAfterSeconds":3}}"#,
            "429 TooManyRequests: wait after 3s",
        );
        check(502, "<html>\nbad gateway</html>", "502 : <html> bad gateway</html>");
        check(503, "", "503 ServiceUnavailable: no explanation");
        check(409, r#"{"kind":"Pod"}"#, r#"409 Conflict: {"kind":"Pod"}"#);
    }

    #[test]
    fn an_error_names_method_path_and_reason_and_can_be_asked() {
        let status =
            Status::read(409, None, br#"{"kind":"Status","reason":"AlreadyExists","message":"there","code":409}"#);
        let error = ApiError::Status { method: "POST", path: "/api/v1/nodes".to_owned(), status: Box::new(status) };
        assert_eq!(error.to_string(), "POST /api/v1/nodes: the API server answers 409 AlreadyExists: there");
        assert!(error.is_already_exists() && !error.is_conflict() && !error.is_gone() && !error.is_temporary());
    }
}

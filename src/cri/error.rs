//! What can go wrong between the agent and the container runtime, in words that say what to do.
//!
//! Used by every thread that calls the runtime. Owns nothing; never holds a gRPC type, so that no
//! other module learns one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A failed call: which call, about what, at which endpoint, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{method}{} at {endpoint}: {failure}", Object(.object))]
pub struct CriError {
    /// The CRI method, `CreateContainer`; `connect` for a bad endpoint.
    pub method: &'static str,
    /// What it was about: a container's id or name, a sandbox's, an image; empty for lists.
    pub object: Box<str>,
    /// The endpoint as configured.
    pub endpoint: Arc<str>,
    /// Why it failed.
    #[source]
    pub failure: CriFailure,
}

/// Prints an object after a space, and nothing for an empty one.
struct Object<'a>(&'a str);

impl fmt::Display for Object<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " {}", self.0) }
    }
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CriFailure {
    /// The endpoint is none that this port can use.
    #[error("{0}")]
    BadEndpoint(String),
    /// There is no socket.
    #[error("the socket does not exist: start the container runtime or correct containerRuntimeEndpoint")]
    SocketMissing,
    /// There is a socket and nobody listens on it.
    #[error("nobody listens on the socket: the container runtime has ended or is still starting")]
    Refused,
    /// The agent may not open the socket.
    #[error("no permission to open the socket: run as root or as a member of the socket's group")]
    NotPermitted,
    /// Something is there that is no socket.
    #[error("this is not a socket: correct containerRuntimeEndpoint")]
    NotASocket,
    /// The runtime answers v1alpha2 and not v1.
    #[error(
        "the runtime speaks only CRI v1alpha2, ferrolet needs CRI v1: use containerd 1.6, CRI-O 1.20 or anything newer"
    )]
    OnlyOldApi,
    /// Something answers gRPC there, but no CRI.
    #[error(
        "whoever answers there offers no CRI v1 ({0}): is this the runtime's socket, and is its cri plugin enabled (disabled_plugins in containerd's config.toml)?"
    )]
    NoCri(String),
    /// What was asked for can't be said in CRI v1.
    #[error("{0}")]
    Unfit(String),
    /// The caller's token was set.
    #[error("given up on request")]
    Cancelled,
    /// No answer in time.
    #[error("no answer within {}", Seconds(.0))]
    Deadline(Duration),
    /// The answer is not what CRI v1 says.
    #[error("the answer is not valid CRI v1: {0}")]
    Garbage(String),
    /// An event stream ended.
    #[error("the runtime closed the stream")]
    StreamEnded,
    /// The runtime says no.
    #[error("{}: {message}", .code)]
    Status {
        /// gRPC code.
        code: Code,
        /// The runtime's message as it came.
        message: String,
    },
    /// The gRPC library gave up.
    #[error("gRPC: {0}")]
    Broken(String),
}

/// Seconds with as many digits as matter.
struct Seconds<'a>(&'a Duration);

impl fmt::Display for Seconds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.0.as_secs_f64())
    }
}

impl CriError {
    /// The object is unknown to the runtime.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(Code::NotFound)
    }

    /// The object, or its name, is taken.
    pub fn is_already_exists(&self) -> bool {
        self.code() == Some(Code::AlreadyExists)
    }

    /// The runtime does not have this call.
    pub fn is_unimplemented(&self) -> bool {
        self.code() == Some(Code::Unimplemented)
    }

    /// Time ran out, here or in the runtime.
    pub fn is_deadline(&self) -> bool {
        matches!(self.failure, CriFailure::Deadline(_)) || self.code() == Some(Code::DeadlineExceeded)
    }

    /// The runtime can't be reached; it may be back soon.
    pub fn is_unavailable(&self) -> bool {
        matches!(
            self.failure,
            CriFailure::SocketMissing | CriFailure::Refused | CriFailure::NotPermitted | CriFailure::NotASocket
        ) || self.code() == Some(Code::Unavailable)
    }

    /// The caller's token was set.
    pub fn is_cancelled(&self) -> bool {
        self.failure == CriFailure::Cancelled
    }

    /// The gRPC code, when the runtime answered with one.
    pub fn code(&self) -> Option<Code> {
        match &self.failure {
            CriFailure::Status { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// The failure without object and endpoint. An answer of the runtime is written as kubectl users
    /// know it: `rpc error: code = NotFound desc = …`; where it gave none, the call is named.
    pub fn rpc_text(&self) -> String {
        match &self.failure {
            CriFailure::Status { code, message } => format!("rpc error: code = {code} desc = {message}"),
            CriFailure::Deadline(_) => {
                format!("rpc error: code = DeadlineExceeded desc = {}: {}", self.method, self.failure)
            }
            other => format!("{}: {other}", self.method),
        }
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)+) => {
        /// A gRPC status code. Prints as Go's gRPC names it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[$doc])* $name,)+
            /// A number that gRPC does not define.
            Other(i32),
        }

        impl From<i32> for Code {
            fn from(number: i32) -> Self {
                match number {
                    $($number => Self::$name,)+
                    other => Self::Other(other),
                }
            }
        }

        impl fmt::Display for Code {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name => f.write_str(stringify!($name)),)+
                    Self::Other(number) => write!(f, "Code({number})"),
                }
            }
        }
    };
}

codes! {
    /// The other side cancelled.
    Canceled = 1,
    /// No closer word; most errors of runtimes.
    Unknown = 2,
    /// The request makes no sense.
    InvalidArgument = 3,
    /// Time ran out.
    DeadlineExceeded = 4,
    /// Unknown object.
    NotFound = 5,
    /// The object is there already.
    AlreadyExists = 6,
    /// Not allowed.
    PermissionDenied = 7,
    /// Too much of something, a message's size included.
    ResourceExhausted = 8,
    /// Not in this state.
    FailedPrecondition = 9,
    /// Given up in the middle.
    Aborted = 10,
    /// Out of range.
    OutOfRange = 11,
    /// No such call.
    Unimplemented = 12,
    /// A fault of the other side or of the transport.
    Internal = 13,
    /// Not reachable.
    Unavailable = 14,
    /// Lost data.
    DataLoss = 15,
    /// No credentials.
    Unauthenticated = 16,
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(object: &str, failure: CriFailure, expect: Expect) {
        let error = CriError {
            method: "StopContainer",
            object: object.into(),
            endpoint: "unix:///run/containerd/containerd.sock".into(),
            failure,
        };
        expect.assert_eq(&format!("{error}\n{}", error.rpc_text()));
    }

    #[test]
    fn errors_name_call_object_endpoint_and_cause() {
        check(
            "c1",
            CriFailure::Status { code: Code::NotFound, message: "no such container".into() },
            expect![[r#"
                StopContainer c1 at unix:///run/containerd/containerd.sock: NotFound: no such container
                rpc error: code = NotFound desc = no such container"#]],
        );
        check(
            "",
            CriFailure::Deadline(Duration::from_millis(1500)),
            expect![[r#"
                StopContainer at unix:///run/containerd/containerd.sock: no answer within 1.5 s
                rpc error: code = DeadlineExceeded desc = StopContainer: no answer within 1.5 s"#]],
        );
        check(
            "c1",
            CriFailure::Status { code: Code::from(99), message: "?".into() },
            expect![[r#"
                StopContainer c1 at unix:///run/containerd/containerd.sock: Code(99): ?
                rpc error: code = Code(99) desc = ?"#]],
        );
    }

    #[test]
    fn predicates_follow_the_failure() {
        let is = |failure: CriFailure| {
            let error = CriError { method: "Status", object: "".into(), endpoint: "".into(), failure };
            [
                error.is_not_found(),
                error.is_unimplemented(),
                error.is_deadline(),
                error.is_unavailable(),
                error.is_cancelled(),
            ]
        };
        let status = |number: i32| CriFailure::Status { code: Code::from(number), message: String::new() };
        for (failure, expect) in [
            (status(5), [true, false, false, false, false]),
            (status(12), [false, true, false, false, false]),
            (status(4), [false, false, true, false, false]),
            (CriFailure::Deadline(Duration::ZERO), [false, false, true, false, false]),
            (status(14), [false, false, false, true, false]),
            (CriFailure::SocketMissing, [false, false, false, true, false]),
            (CriFailure::Refused, [false, false, false, true, false]),
            (CriFailure::Cancelled, [false, false, false, false, true]),
            (CriFailure::OnlyOldApi, [false; 5]),
        ] {
            assert_eq!(is(failure.clone()), expect, "{failure:?}");
        }
    }
}

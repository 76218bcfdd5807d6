//! What an endpoint answers: a value that the server writes.
//!
//! Made on the thread that serves the request. An endpoint never writes to the connection before it has decided on the status: it gives
//! the whole answer, a function that writes the body as it goes, or one that takes the connection over.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;

use super::duplex::Duplex;

/// Where a streamed body is written to. What is written is sent when enough of it is there, and at once by
/// [`Write::flush`]; a client that takes nothing for long ends it with an error.
pub trait StreamOut: Write {
    /// Whether the client has hung up, or the server ends: nothing that is written from now on is read by anybody. Never waits.
    fn is_gone(&mut self) -> bool;

    /// What becomes readable when the client hangs up or the server ends, to wait for beside something else
    /// ([`crate::util::poll::Bell::wait`]); ask [`StreamOut::is_gone`] then. `None` where there is no socket (tests).
    fn client(&self) -> Option<BorrowedFd<'_>>;
}

/// Writes a body as it goes. An error after the first bytes were sent breaks the connection off, so that the client
/// sees that something is missing.
pub type WriteBody = Box<dyn FnOnce(&mut dyn StreamOut) -> io::Result<()> + Send>;

/// Goes on with a connection that is no HTTP any more.
pub type TakeOver = Box<dyn FnOnce(Duplex) + Send>;

/// The body of an answer.
pub enum ReplyBody {
    /// All of it.
    Whole(Cow<'static, [u8]>),
    /// Written as it goes.
    Stream(WriteBody),
    /// None, and no head either: the connection is taken over.
    TakeOver(TakeOver),
}

/// An answer.
pub struct Reply {
    status: u16,
    headers: Vec<(&'static str, Cow<'static, str>)>,
    body: ReplyBody,
    closes: bool,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = match &self.body {
            ReplyBody::Whole(bytes) => String::from_utf8_lossy(bytes),
            ReplyBody::Stream(_) => Cow::Borrowed("(written as it goes)"),
            ReplyBody::TakeOver(_) => Cow::Borrowed("(the connection is taken over)"),
        };
        f.debug_struct("Reply")
            .field("status", &self.status)
            .field("headers", &self.headers)
            .field("body", &body)
            .finish_non_exhaustive()
    }
}

/// Plain text, as Go's servers name it.
pub const TEXT: &str = "text/plain; charset=utf-8";
/// JSON.
pub const JSON: &str = "application/json";

impl Reply {
    /// An answer with this status and body.
    pub fn new(status: u16, content_type: &'static str, body: impl Into<Cow<'static, [u8]>>) -> Self {
        let headers = vec![("Content-Type", Cow::Borrowed(content_type))];
        Self { status, headers, body: ReplyBody::Whole(body.into()), closes: false }
    }

    /// 200 with JSON.
    pub fn json(body: Vec<u8>) -> Self {
        Self::new(200, JSON, body)
    }

    /// Plain text as it stands.
    pub fn text(status: u16, text: &str) -> Self {
        Self::new(status, TEXT, text.as_bytes().to_vec())
    }

    /// A failure, one line for people, as Go's `http.Error` writes it.
    pub fn error(status: u16, message: &str) -> Self {
        Self::text(status, &format!("{message}\n")).with_header("X-Content-Type-Options", "nosniff")
    }

    /// 200 with a body that is written as it goes.
    pub fn stream(
        content_type: &'static str,
        write: impl FnOnce(&mut dyn StreamOut) -> io::Result<()> + Send + 'static,
    ) -> Self {
        let mut reply = Self::new(200, content_type, Vec::new());
        reply.body = ReplyBody::Stream(Box::new(write));
        reply
    }

    /// The connection is `go_on`'s from now on, what was read ahead included; nothing was written to it. It runs on the thread
    /// that served the request and holds that place while it runs: for a long session it hands the connection
    /// to a thread of its own and returns.
    pub fn take_over(go_on: impl FnOnce(Duplex) + Send + 'static) -> Self {
        Self { status: 101, headers: Vec::new(), body: ReplyBody::TakeOver(Box::new(go_on)), closes: false }
    }

    /// With another status.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// With one more header. Length, framing, Connection and Date are the server's business.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// After this answer the connection ends.
    #[must_use]
    pub fn closing(mut self) -> Self {
        self.closes = true;
        self
    }

    /// Status code; 101 for one that takes the connection over.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_ref())
    }

    /// The headers.
    pub fn headers(&self) -> &[(&'static str, Cow<'static, str>)] {
        &self.headers
    }

    /// Whether the connection ends after it.
    pub fn closes(&self) -> bool {
        self.closes
    }

    /// The body.
    pub fn into_body(self) -> ReplyBody {
        self.body
    }

    /// The body's bytes, with a streamed one written to memory: for tests, and for callers without a connection.
    ///
    /// # Errors
    /// What writes the body fails, or the connection was to be taken over.
    pub fn into_bytes(self) -> io::Result<Vec<u8>> {
        match self.body {
            ReplyBody::Whole(bytes) => Ok(bytes.into_owned()),
            ReplyBody::Stream(write) => {
                let mut out = InMemory::default();
                write(&mut out)?;
                Ok(out.bytes)
            }
            ReplyBody::TakeOver(_) => Err(io::Error::other("the connection is taken over")),
        }
    }
}

/// A streamed body in memory.
#[derive(Debug, Default)]
pub struct InMemory {
    /// What was written.
    pub bytes: Vec<u8>,
    /// What [`StreamOut::is_gone`] answers.
    pub gone: bool,
}

impl Write for InMemory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl StreamOut for InMemory {
    fn is_gone(&mut self) -> bool {
        self.gone
    }

    fn client(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

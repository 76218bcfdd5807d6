//! The GET of httpGet probes and hooks: over HTTP/1.1, over TLS too, with redirects on the same host. On a pool thread, or a
//! worker's.

mod answer;
#[cfg(test)]
mod tests;
mod url;

use std::io::{self, Read, Write};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use self::answer::Reader;
pub(super) use self::url::Url;
use super::conn::{Conn, is_timeout, plain};
use super::{GetError, USER_AGENT};
use crate::api::probe::{ErroredState, ProbeOutcome};
use crate::util::any_certificate;

/// Most bytes of a body that are read.
const MAX_BODY: usize = 10 * 1024;
/// Requests of one attempt, redirects included.
const MAX_REQUESTS: usize = 10;

/// What a client of an https server says that speaks HTTP.
const NOT_TLS: &str = "http: server gave HTTP response to HTTPS client";

/// Header fields of a manifest.
type Headers<'a> = &'a [(String, String)];

/// TLS settings, made when the first https probe needs them.
#[derive(Debug, Default)]
pub(super) struct Https {
    config: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl Https {
    fn config(&self) -> Result<Arc<ClientConfig>, String> {
        let made = self.config.get_or_init(|| {
            let mut config = any_certificate::client_config().map_err(|error| error.to_string())?;
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            Ok(Arc::new(config))
        });
        made.clone()
    }
}

/// Makes one attempt.
pub(super) fn get(https: &Https, first: &Url, headers: Headers<'_>, deadline: Instant) -> ProbeOutcome {
    match ask(https, first, headers, USER_AGENT, deadline) {
        Ok(exchange) => exchange.judge(),
        Err(error) => ProbeOutcome::Failure(error.to_string()),
    }
}

/// The status code of the answer, whatever it means.
pub(super) fn status(
    https: &Https,
    first: &Url,
    headers: Headers<'_>,
    agent: &str,
    deadline: Instant,
) -> Result<u16, GetError> {
    let exchange = ask(https, first, headers, agent, deadline)?;
    let status = exchange.answer.status;
    exchange.end();
    Ok(status)
}

/// Asks, and follows redirects on the same host.
fn ask(https: &Https, first: &Url, headers: Headers<'_>, agent: &str, deadline: Instant) -> Result<Exchange, GetError> {
    let mut url = first.clone();
    let failed = |url: String, why: String| GetError::Failed { url, why };
    let head = Head::new(headers, agent).map_err(|why| failed(url.to_string(), why))?;
    let mut host = head.host.clone();
    for _ in 0..MAX_REQUESTS {
        let request = head.request(&url, host.as_deref());
        let exchange = Exchange::begin(https, &url, &request, deadline).map_err(|why| match why.as_str() {
            NOT_TLS => GetError::NotTls { url: url.to_string() },
            _ => failed(url.to_string(), why),
        })?;
        if let Some(location) = exchange.redirect() {
            match url.follow(&location) {
                Err(why) => return Err(failed(location, why)),
                Ok(Some(next)) if next.host.eq_ignore_ascii_case(&first.host) => {
                    // A name of the manifest's own stays while the server does not name the host.
                    if location.contains("//") {
                        host = None;
                    }
                    exchange.end();
                    url = next;
                    continue;
                }
                // Elsewhere: what was said here is the answer.
                Ok(Some(_) | None) => {}
            }
        }
        return Ok(exchange);
    }
    Err(failed(url.to_string(), "stopped after 10 redirects".to_owned()))
}

/// The header fields of a manifest, as they are sent.
struct Head {
    /// `Host`, if the manifest has one.
    host: Option<String>,
    /// All others, ready to be sent.
    fields: String,
}

impl Head {
    fn new(headers: Headers<'_>, agent: &str) -> Result<Self, String> {
        let mut fields: Vec<(String, &str)> = Vec::new();
        for (name, value) in headers {
            let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            if name.is_empty() || !name.chars().all(is_token) {
                return Err(format!("net/http: invalid header field name {name:?}"));
            }
            if value.chars().any(|c| c.is_control() && c != '\t') {
                return Err(format!("net/http: invalid header field value for {name:?}"));
            }
            fields.push((canonical(name), value.trim()));
        }
        let first = |wanted: &str| fields.iter().find(|(name, _)| name == wanted).map(|(_, value)| *value);
        let host = first("Host").filter(|host| !host.is_empty()).map(str::to_owned);
        let agent = first("User-Agent").unwrap_or(agent).to_owned();
        let accept = first("Accept");
        let mut text = String::new();
        let mut push = |name: &str, value: &str| text.extend([name, ": ", value, "\r\n"]);
        if !agent.is_empty() {
            push("User-Agent", &agent);
        }
        if accept.is_none() {
            push("Accept", "*/*");
        }
        for (name, value) in &fields {
            match name.as_str() {
                // One has its own place; the others tell how a body comes, and there is none.
                "Host" | "User-Agent" | "Content-Length" | "Transfer-Encoding" | "Trailer" | "Connection" => {}
                "Accept" if accept == Some("") => {}
                name => push(name, value),
            }
        }
        push("Connection", "close");
        Ok(Self { host, fields: text })
    }

    fn request(&self, url: &Url, host: Option<&str>) -> String {
        let host = host.unwrap_or(&url.authority);
        format!("GET {} HTTP/1.1\r\nHost: {host}\r\n{}\r\n", url.target, self.fields)
    }
}

/// A field's name as servers see it from the kubelet: `X-Custom-Header`.
fn canonical(name: &str) -> String {
    let mut upper = true;
    name.chars()
        .map(|c| {
            let c = if upper { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
            upper = c == '-';
            c
        })
        .collect()
}

/// A connection with or without TLS.
enum Link {
    Plain(Conn),
    Tls(Box<StreamOwned<ClientConnection, Conn>>),
}

impl Read for Link {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(conn) => conn.read(buffer),
            Self::Tls(stream) => match stream.read(buffer) {
                // A peer that ends without a goodbye has ended all the same.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
                other => other,
            },
        }
    }
}

/// A request with the head of its answer.
struct Exchange {
    reader: Reader<Link>,
    answer: answer::Answer,
}

impl Exchange {
    fn begin(https: &Https, url: &Url, request: &str, deadline: Instant) -> Result<Self, String> {
        let conn = Conn::open(&url.host, url.port, deadline)
            .map_err(|error| if error.is_timeout { late() } else { error.to_string() })?;
        let mut link = if url.tls {
            let name =
                ServerName::try_from(url.host.clone()).map_err(|_| format!("{:?} is no server name", url.host))?;
            let tls = ClientConnection::new(https.config()?, name).map_err(|error| format!("tls: {error}"))?;
            Link::Tls(Box::new(StreamOwned::new(tls, conn)))
        } else {
            Link::Plain(conn)
        };
        let sent = match &mut link {
            Link::Plain(conn) => conn.write_all(request.as_bytes()),
            Link::Tls(stream) => stream.write_all(request.as_bytes()).and_then(|()| stream.flush()),
        };
        // A server may answer before it has read all, and close.
        sent.or_else(|error| if url.tls || is_timeout(&error) { Err(error) } else { Ok(()) })
            .map_err(|e| explain(&e))?;
        let mut reader = Reader::new(link);
        let answer = reader.head().map_err(|error| explain(&error))?;
        Ok(Self { reader, answer })
    }

    /// Where the answer sends the client, if it is a redirect that can be followed.
    fn redirect(&self) -> Option<String> {
        let leads = matches!(self.answer.status, 301 | 302 | 303 | 307 | 308) && !self.answer.location.is_empty();
        leads.then(|| self.answer.location.clone())
    }

    /// What the answer means.
    fn judge(mut self) -> ProbeOutcome {
        let body = match self.reader.body(&self.answer, MAX_BODY) {
            Ok(body) => body,
            Err(error) => {
                let why = if is_timeout(&error) { late_body() } else { plain(&error) };
                return ProbeOutcome::Errored { state: ErroredState::Failure, why };
            }
        };
        let status = self.answer.status;
        self.end();
        match status {
            200..300 => ProbeOutcome::Success,
            300..400 => {
                let body = String::from_utf8_lossy(&body);
                ProbeOutcome::Warning(format!("Probe terminated redirects, Response body: {body}"))
            }
            // The body stays out of what people see: it may be anything.
            _ => ProbeOutcome::Failure(format!("HTTP probe failed with statuscode: {status}")),
        }
    }

    fn end(self) {
        match self.reader.into_inner() {
            Link::Plain(conn) => conn.end(),
            Link::Tls(mut stream) => {
                stream.conn.send_close_notify();
                // Best effort: it is broken off else.
                let _sent = stream.flush();
                stream.sock.end();
            }
        }
    }
}

fn late() -> String {
    "context deadline exceeded (Client.Timeout exceeded while awaiting headers)".to_owned()
}

fn late_body() -> String {
    "context deadline exceeded (Client.Timeout or context cancellation while reading body)".to_owned()
}

/// An error on the way to an answer's head.
fn explain(error: &io::Error) -> String {
    if is_timeout(error) {
        return late();
    }
    let text = plain(error);
    // A TLS client that reads "HTTP/1.1 400" finds no TLS record in it.
    if text.contains("InvalidContentType") {
        return NOT_TLS.to_owned();
    }
    text
}

//! One bounded GET: for the manifest URL, lifecycle hooks and HTTP probes.
//!
//! Called on the threads that need an answer; owns no connection between two calls. A request ends at
//! its deadline whatever the server does, and no more of the body is held than asked for. Never retries,
//! never judges a status code.

use std::io::{self, Read};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustls::crypto::ring;
use ureq::Agent;
use ureq::config::AutoHeaderValue;
use ureq::http::{HeaderName, HeaderValue, Uri};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// Most bytes of an answer's header.
const MAX_HEADER_BYTES: usize = 64 * 1024;
/// Most bytes of a file with trusted certificates.
const MAX_ROOTS_BYTES: u64 = 8 << 20;
/// Where distributions keep the certificates that the machine trusts.
const ROOT_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// What to ask for.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Absolute URL, http or https.
    pub url: &'a str,
    /// Header fields, in order; a name may come more than once. An empty `Accept` sends none.
    pub headers: &'a [(String, String)],
    /// Time for all of it: name resolution, connections, redirects, body.
    pub timeout: Duration,
    /// Most bytes of the body to keep.
    pub max_body: usize,
    /// How many redirects are followed, to any host.
    pub redirects: usize,
}

/// The server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Header fields in order, names in lower case; values that are no text are left out.
    pub headers: Vec<(String, String)>,
    /// The body's first bytes, unpacked if it came packed.
    pub body: Vec<u8>,
    /// Whether there was more of it.
    pub is_cut: bool,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The URL makes no sense.
    #[error("{url:?} is not a URL that can be fetched: {why}")]
    Url {
        /// The URL.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A header field cannot be sent.
    #[error("header {name:?} cannot be sent: its name or value has characters that HTTP does not allow")]
    Header {
        /// Its name.
        name: String,
    },
    /// Nothing came in time.
    #[error("GET {url}: no complete answer within {timeout:?}")]
    Timeout {
        /// The URL.
        url: String,
        /// The time allowed.
        timeout: Duration,
    },
    /// The server sent the client in circles.
    #[error("GET {url}: more than {limit} redirects")]
    Redirects {
        /// The last URL.
        url: String,
        /// How many were followed.
        limit: usize,
    },
    /// The server at an https URL speaks plain HTTP.
    #[error("GET {url}: the server speaks HTTP, not HTTPS")]
    NotTls {
        /// The URL.
        url: String,
    },
    /// Anything else between here and the answer's last byte.
    #[error("GET {url}: {message}")]
    Failed {
        /// The URL.
        url: String,
        /// What went wrong.
        message: String,
    },
}

/// Makes requests. Cheap to make and to share; reads the trusted certificates on the first https
/// request only.
#[derive(Debug)]
pub struct Fetcher {
    proxy: Option<ureq::Proxy>,
    user_agent: String,
    plain: Agent,
    tls: OnceLock<Agent>,
}

impl Fetcher {
    /// For the world: certificates that the machine trusts (`SSL_CERT_FILE`, or the distribution's bundle), the proxy of
    /// the environment.
    pub fn for_world(user_agent: &str) -> Self {
        Self::new(ureq::Proxy::try_from_env(), user_agent)
    }

    fn new(proxy: Option<ureq::Proxy>, user_agent: &str) -> Self {
        let plain = agent(proxy.clone(), user_agent, None);
        Self { proxy, user_agent: user_agent.to_owned(), plain, tls: OnceLock::new() }
    }

    fn agent_for(&self, uri: &Uri) -> &Agent {
        if uri.scheme_str() != Some("https") {
            return &self.plain;
        }
        self.tls.get_or_init(|| {
            let tls = TlsConfig::builder().root_certs(system_roots());
            let tls = tls.unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()));
            agent(self.proxy.clone(), &self.user_agent, Some(tls.build()))
        })
    }

    /// Makes one request.
    ///
    /// # Errors
    /// There is no complete answer. Any status code is an answer.
    pub fn get(&self, request: &Request<'_>) -> Result<Answer, FetchError> {
        let deadline = Instant::now() + request.timeout;
        let headers = headers_of(request.headers)?;
        let first = parse_url(request.url)?;
        let mut uri = first.clone();
        for _ in 0..=request.redirects {
            let failed = |error| failure(&uri, request.timeout, error);
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(failed(ureq::Error::Timeout(ureq::Timeout::Global)));
            }
            let mut call = self.agent_for(&uri).get(&uri);
            for (name, value) in &headers {
                // A secret is for the host that it was written for.
                let is_secret = matches!(name.as_str(), "authorization" | "cookie" | "www-authenticate" | "host");
                let stays_home = is_secret && uri.host() != first.host();
                let is_no_accept = name == "accept" && value.is_empty();
                if !stays_home && !is_no_accept {
                    call = call.header(name, value);
                }
            }
            let config = call.config().timeout_global(Some(left));
            let sends_no_accept = headers.iter().any(|(name, value)| name == "accept" && value.is_empty());
            let config = if sends_no_accept { config.accept(AutoHeaderValue::None) } else { config };
            let mut response = config.build().call().map_err(failed)?;
            let status = response.status().as_u16();
            if let Some(next) = redirect_target(status, response.headers().get("location"), &uri) {
                uri = next;
                continue;
            }
            let fields = response.headers().iter();
            let headers = fields.filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())));
            let headers = headers.collect();
            let mut body = Vec::new();
            let reader = response.body_mut().as_reader();
            // One byte more than asked for tells whether there is more.
            let wanted = u64::try_from(request.max_body).unwrap_or(u64::MAX).saturating_add(1);
            reader.take(wanted).read_to_end(&mut body).map_err(|error| failed(ureq::Error::from(error)))?;
            let is_cut = body.len() > request.max_body;
            body.truncate(request.max_body);
            return Ok(Answer { status, headers, body, is_cut });
        }
        Err(FetchError::Redirects { url: shown(&uri), limit: request.redirects })
    }
}

fn agent(proxy: Option<ureq::Proxy>, user_agent: &str, tls: Option<TlsConfig>) -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_response_header_size(MAX_HEADER_BYTES)
        // Between two requests no connection is held: they are seconds apart, and a probe shall test a new one.
        .max_idle_connections(0)
        .user_agent(user_agent)
        .proxy(proxy);
    let config = match tls {
        Some(tls) => config.tls_config(tls),
        None => config,
    };
    Agent::new_with_config(config.build())
}

/// The certificates that this machine trusts. Where it has none that can be read no server is trusted: whom an agent trusts is
/// for its machine to say, not for who compiled it.
fn system_roots() -> RootCerts {
    let pem = system_roots_pem();
    let certificates: Vec<Certificate<'static>> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        log::warn!(
            "no certificate of an authority is on this machine: no server is trusted over https; install ca-certificates, or name a file in SSL_CERT_FILE"
        );
    }
    RootCerts::from(certificates)
}

/// The machine's bundle of trusted certificates as PEM text; empty where there is none.
pub(super) fn system_roots_pem() -> Vec<u8> {
    let own = std::env::var_os("SSL_CERT_FILE");
    let files = own.iter().map(std::path::Path::new).chain(ROOT_FILES.iter().map(std::path::Path::new));
    let mut texts = files.filter_map(|file| crate::util::fs::read_bounded(file, MAX_ROOTS_BYTES).ok());
    let marker = b"-----BEGIN CERTIFICATE-----";
    texts.find(|text| text.windows(marker.len()).any(|window| window == marker)).unwrap_or_default()
}

fn headers_of(headers: &[(String, String)]) -> Result<Vec<(HeaderName, HeaderValue)>, FetchError> {
    let one = |(name, value): &(String, String)| {
        let header = HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_str(value).ok());
        header.ok_or_else(|| FetchError::Header { name: name.chars().take(100).collect() })
    };
    headers.iter().map(one).collect()
}

fn parse_url(url: &str) -> Result<Uri, FetchError> {
    let bad = |why: &str| FetchError::Url { url: url.chars().take(200).collect(), why: why.to_owned() };
    // What follows the # is the reader's own business.
    let sent = url.split('#').next().unwrap_or_default();
    let uri: Uri = sent.parse().map_err(|error: ureq::http::uri::InvalidUri| bad(&error.to_string()))?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.host().is_some_and(|host| !host.is_empty()) => Ok(uri),
        Some("http" | "https") => Err(bad("it names no host")),
        _ => Err(bad("it must start with http:// or https://")),
    }
}

/// Where a redirect leads; `None` if the answer is none that can be followed.
fn redirect_target(status: u16, location: Option<&HeaderValue>, from: &Uri) -> Option<Uri> {
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = location?.to_str().ok()?.split('#').next()?;
    let (scheme, authority) = (from.scheme_str()?, from.authority()?);
    let absolute = if location.contains("://") {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else if location.starts_with('?') {
        format!("{scheme}://{authority}{}{location}", from.path())
    } else {
        let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{scheme}://{authority}{folder}/{location}")
    };
    parse_url(&absolute).ok()
}

/// A URL fit for logs: without user name, password and query, any of which may hold a secret.
pub fn url_for_logs(url: &str) -> String {
    url.parse().map_or_else(|_| "an unreadable URL".to_owned(), |uri| shown(&uri))
}

/// Scheme, host and path.
fn shown(uri: &Uri) -> String {
    let authority = uri.authority().map(|a| a.as_str().rsplit('@').next().unwrap_or_default()).unwrap_or_default();
    let path = uri.path();
    format!("{}://{authority}{path}", uri.scheme_str().unwrap_or_default())
}

fn failure(uri: &Uri, timeout: Duration, error: ureq::Error) -> FetchError {
    let url = shown(uri);
    let text = match error {
        ureq::Error::Timeout(_) => return FetchError::Timeout { url, timeout },
        ureq::Error::HostNotFound => format!("no address is known for host {}", uri.host().unwrap_or_default()),
        ureq::Error::ConnectionFailed => "the connection failed".to_owned(),
        ureq::Error::Io(error) => match error.kind() {
            io::ErrorKind::TimedOut => return FetchError::Timeout { url, timeout },
            io::ErrorKind::ConnectionRefused => "connection refused: nobody listens there".to_owned(),
            io::ErrorKind::UnexpectedEof => "the server closed the connection in the middle of its answer".to_owned(),
            _ => error.to_string(),
        },
        ureq::Error::LargeResponseHeader(..) => format!("the answer's header has more than {MAX_HEADER_BYTES} bytes"),
        other => other.to_string(),
    };
    // A TLS client that reads "HTTP/1.1 400" finds no TLS record in it.
    if uri.scheme_str() == Some("https") && text.contains("InvalidContentType") {
        return FetchError::NotTls { url };
    }
    FetchError::Failed { url, message: text }
}

#[cfg(test)]
mod tests;

//! How connections to the API server are made: TCP with keep-alive, a proxy where one is set, TLS.
//!
//! Runs on the calling threads, under the HTTP library. A connection owns its socket and two buffers,
//! which go when it is idle. Every read and write ends at its deadline even if the other side trickles;
//! the kernel notices a dead peer within [`DEAD_AFTER`] although nothing is read or written.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, ShutdownHandle, Transport};
use ureq::{Error, Timeout};

use crate::util::resolve::addresses;
use crate::util::tcp::notice_death;

/// How long a peer may be dead before the kernel breaks the connection.
pub(super) const DEAD_AFTER: Duration = Duration::from_secs(25);
/// Bytes of each of the two buffers of a connection: an answer's header must fit.
const BUFFER: usize = 16 * 1024;
/// How long a name is looked up for a request that has no deadline.
const LOOKUP_TIME: Duration = Duration::from_secs(10);
/// How many addresses of a name are tried: as many as the HTTP library takes.
const ADDRESSES: usize = 16;
/// Longest answer of a proxy to CONNECT.
const MAX_PROXY_ANSWER: usize = 4096;

/// Where a connection goes through.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct HttpProxy {
    /// `host:port`.
    pub(super) authority: String,
    /// `user:password`, in base64.
    pub(super) basic_auth: Option<String>,
    /// As the kubeconfig writes it; `None` where the environment named it.
    pub(super) written: Option<String>,
}

/// Makes connections to one server.
#[derive(Clone)]
pub(super) struct Dialer {
    /// `None` for plain HTTP.
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    pub(super) proxy: Option<HttpProxy>,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("tls", &self.tls.is_some()).field("proxy", &self.proxy.is_some()).finish()
    }
}

impl Resolver for Dialer {
    fn resolve(
        &self,
        uri: &ureq::http::Uri,
        _config: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let proxied = self.proxy.as_ref().map(|proxy| format!("http://{}", proxy.authority).parse());
        let proxied = proxied.transpose().map_err(|_| Error::InvalidProxyUrl)?;
        let uri = proxied.as_ref().unwrap_or(uri);
        let usual = if uri.scheme_str() == Some("http") { 80 } else { 443 };
        let until = Until::new(timeout);
        let within = until.left().map_err(|error| until.explain(error))?.unwrap_or(LOOKUP_TIME);
        let host = uri.host().unwrap_or_default();
        let found = addresses(host, uri.port_u16().unwrap_or(usual), within).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => until.explain(error),
            _ => Error::HostNotFound,
        })?;
        let mut addresses = self.empty();
        found.into_iter().take(ADDRESSES).for_each(|address| addresses.push(address));
        if addresses.is_empty() { Err(Error::HostNotFound) } else { Ok(addresses) }
    }
}

impl Connector for Dialer {
    type Out = Link;

    fn connect(&self, details: &ConnectionDetails<'_>, _chained: Option<()>) -> Result<Option<Link>, Error> {
        let until = Until::new(details.timeout);
        let socket = Arc::new(Socket(connect(&details.addrs, &until)?));
        (details.register_shutdown)(Arc::downgrade(&socket) as std::sync::Weak<dyn ShutdownHandle>)?;
        socket.0.set_nodelay(true)?;
        // Best effort: without it the deadlines of reads are the bound.
        let _unsupported = notice_death(&socket.0, DEAD_AFTER);
        let mut link = Link { socket, tls: None, buffers: Pair::default() };
        if let Some(proxy) = &self.proxy {
            let target = details.uri.authority().map(|authority| authority.as_str().to_owned()).unwrap_or_default();
            let target = if details.uri.port().is_some() { target } else { format!("{target}:443") };
            through(proxy, &target, &mut Timed { socket: &link.socket.0, until: &until })?;
        }
        if let Some((config, name)) = &self.tls {
            let mut tls = ClientConnection::new(Arc::clone(config), name.clone()).map_err(Error::Rustls)?;
            let mut timed = Timed { socket: &link.socket.0, until: &until };
            while tls.is_handshaking() {
                tls.complete_io(&mut timed).map_err(|error| until.explain(error))?;
            }
            link.tls = Some(Box::new(tls));
        }
        Ok(Some(link))
    }
}

/// Tries the addresses one after another; each gets an equal share of the time that is left.
fn connect(addresses: &[SocketAddr], until: &Until) -> Result<TcpStream, Error> {
    let mut last = Error::HostNotFound;
    for (index, address) in addresses.iter().enumerate() {
        let others = u32::try_from(addresses.len() - index).unwrap_or(1);
        let share = until.left().map_err(|error| until.explain(error))?.map(|left| left / others.max(1));
        let made = match share {
            Some(share) => TcpStream::connect_timeout(address, share.max(Duration::from_millis(10))),
            None => TcpStream::connect(address),
        };
        match made {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => last = Error::Timeout(Timeout::Connect),
            Err(error) => last = Error::Io(error),
        }
    }
    Err(last)
}

/// A connection to `authority` (`host:port`, or a host alone for port 443), through the proxy where one is
/// set, without TLS.
///
/// # Errors
/// In plain words.
pub(super) fn socket(authority: &str, proxy: Option<&HttpProxy>, within: Duration) -> Result<TcpStream, String> {
    let until = Until { deadline: Instant::now().checked_add(within), reason: Timeout::Connect };
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let target = if has_port { authority.to_owned() } else { format!("{authority}:443") };
    let first = proxy.map_or(target.as_str(), |proxy| proxy.authority.as_str());
    let (host, port) = first.rsplit_once(':').unwrap_or((first, ""));
    let port = port.parse().map_err(|_| format!("{first} names no port"))?;
    let addresses = addresses(host, port, within).map_err(|error| format!("lookup {host}: {error}"))?;
    let socket = connect(&addresses, &until).map_err(|error| error.to_string())?;
    if let Some(proxy) = proxy {
        through(proxy, &target, &mut Timed { socket: &socket, until: &until }).map_err(|error| error.to_string())?;
    }
    Ok(socket)
}

/// Asks a proxy for a tunnel to `target`.
fn through(proxy: &HttpProxy, target: &str, timed: &mut Timed<'_>) -> Result<(), Error> {
    let auth =
        proxy.basic_auth.as_ref().map(|word| format!("Proxy-Authorization: Basic {word}\r\n")).unwrap_or_default();
    let ask = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{auth}\r\n");
    timed.write_all(ask.as_bytes()).map_err(|error| timed.until.explain(error))?;
    let mut answer = Vec::new();
    // Byte by byte: what follows the empty line belongs to the tunnel.
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        let read = timed.read(&mut byte).map_err(|error| timed.until.explain(error))?;
        if read == 0 || answer.len() > MAX_PROXY_ANSWER {
            return Err(Error::ConnectProxyFailed("the proxy closes the connection instead of an answer".to_owned()));
        }
        answer.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&answer);
    let first = text.lines().next().unwrap_or_default();
    if first.split(' ').nth(1).is_some_and(|code| code.starts_with('2')) {
        return Ok(());
    }
    Err(Error::ConnectProxyFailed(format!("the proxy answers {first:?}")))
}

/// A socket that another thread can break.
struct Socket(TcpStream);

impl ShutdownHandle for Socket {
    fn shutdown(&self) {
        // An error means that it is closed already.
        let _closed = self.0.shutdown(Shutdown::Both);
    }
}

/// When an operation ends, whatever happened so far.
struct Until {
    deadline: Option<Instant>,
    reason: Timeout,
}

impl Until {
    fn new(timeout: NextTimeout) -> Self {
        let after = timeout.not_zero().map(|after| *after);
        // A time that no clock reaches is none.
        Self { deadline: after.and_then(|after| Instant::now().checked_add(after)), reason: timeout.reason }
    }

    /// The time left; `None` has no end.
    fn left(&self) -> io::Result<Option<Duration>> {
        let Some(deadline) = self.deadline else { return Ok(None) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }

    fn explain(&self, error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Error::Timeout(self.reason),
            _ => Error::Io(error),
        }
    }
}

/// Reads and writes until a deadline.
struct Timed<'a> {
    socket: &'a TcpStream,
    until: &'a Until,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.socket.set_read_timeout(self.until.left()?)?;
            match (&mut &*self.socket).read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
                other => return other,
            }
        }
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.until.left()?)?;
        match (&mut &*self.socket).write(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
            other => other,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One connection.
pub(super) struct Link {
    socket: Arc<Socket>,
    tls: Option<Box<ClientConnection>>,
    buffers: Pair,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("peer", &self.socket.0.peer_addr().ok()).finish_non_exhaustive()
    }
}

impl Transport for Link {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let until = Until::new(timeout.for_write());
        let mut timed = Timed { socket: &self.socket.0, until: &until };
        let output = self.buffers.output.get(..amount).unwrap_or_default();
        let sent = match &mut self.tls {
            Some(tls) => {
                let mut stream = rustls::Stream::new(&mut **tls, &mut timed);
                stream.write_all(output).and_then(|()| stream.flush())
            }
            None => timed.write_all(output),
        };
        sent.map_err(|error| until.explain(error))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        // The request is out: until the next one its buffer is of no use.
        self.buffers.output = Vec::new();
        let until = Until::new(timeout.for_read());
        let mut timed = Timed { socket: &self.socket.0, until: &until };
        let input = self.buffers.input_append_buf();
        let read = match &mut self.tls {
            Some(tls) => rustls::Stream::new(&mut **tls, &mut timed).read(input),
            None => timed.read(input),
        };
        let read = match read {
            // The peer left without a goodbye of TLS; the framing of HTTP tells whether all was said.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
            other => other.map_err(|error| until.explain(error))?,
        };
        self.buffers.input_appended(read);
        Ok(read > 0)
    }

    fn is_open(&mut self) -> bool {
        self.buffers.rest();
        let socket = &self.socket.0;
        let is_quiet = || -> io::Result<bool> {
            socket.set_nonblocking(true)?;
            let seen = socket.peek(&mut [0]);
            socket.set_nonblocking(false)?;
            // Nothing to read: the other side has neither said a word nor hung up.
            Ok(matches!(seen, Err(error) if error.kind() == io::ErrorKind::WouldBlock))
        };
        is_quiet().unwrap_or(false)
    }

    fn is_tls(&self) -> bool {
        self.tls.is_some()
    }
}

/// The two buffers of a connection, there while they are needed.
#[derive(Default)]
struct Pair {
    output: Vec<u8>,
    input: Vec<u8>,
    /// What of `input` is consumed, and what is filled.
    start: usize,
    end: usize,
    /// The last look at the input took something out of it.
    progress: bool,
    scratch: Vec<u8>,
}

impl Pair {
    /// Gives the memory of an idle connection back.
    fn rest(&mut self) {
        self.output = Vec::new();
        self.scratch = Vec::new();
        if self.start == self.end {
            (self.input, self.start, self.end) = (Vec::new(), 0, 0);
        }
    }
}

impl Buffers for Pair {
    fn output(&mut self) -> &mut [u8] {
        self.output.resize(BUFFER, 0);
        &mut self.output
    }

    fn input(&self) -> &[u8] {
        self.input.get(self.start..self.end).unwrap_or_default()
    }

    fn input_append_buf(&mut self) -> &mut [u8] {
        self.input.resize(BUFFER, 0);
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        self.input.get_mut(self.end..).unwrap_or_default()
    }

    fn input_appended(&mut self, amount: usize) {
        self.end = (self.end + amount).min(self.input.len());
    }

    fn input_consume(&mut self, amount: usize) {
        self.progress = amount > 0;
        self.start = (self.start + amount).min(self.end);
    }

    fn tmp_and_output(&mut self) -> (&mut [u8], &mut [u8]) {
        self.scratch.resize(BUFFER, 0);
        self.output.resize(BUFFER, 0);
        (&mut self.scratch, &mut self.output)
    }

    fn can_use_input(&self) -> bool {
        self.start < self.end && self.progress
    }
}

impl HttpProxy {
    /// Reads `http://[user:password@]host[:port]`.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let Some(rest) = url.strip_prefix("http://") else {
            return Err("only a proxy that is reached by http:// is supported".to_owned());
        };
        let rest = rest.trim_end_matches('/');
        let (login, host) = rest.rsplit_once('@').map_or((None, rest), |(login, host)| (Some(login), host));
        let uri: ureq::http::Uri = format!("http://{host}").parse().map_err(|_| "names no host".to_owned())?;
        let authority = uri.authority().filter(|authority| !authority.host().is_empty() && uri.path() == "/");
        let Some(authority) = authority else { return Err("must be http://HOST:PORT".to_owned()) };
        let authority = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80));
        let basic_auth = login.map(|login| {
            let (user, password) = login.split_once(':').unwrap_or((login, ""));
            super::credentials::basic(user, password)
        });
        Ok(Self { authority, basic_auth, written: Some(url.to_owned()) })
    }

    /// The proxy that the environment names for this server (HTTPS_PROXY, NO_PROXY), as every client of
    /// Kubernetes takes it.
    pub(super) fn from_environment(server: &ureq::http::Uri) -> Option<Self> {
        let proxy = ureq::Proxy::try_from_env()?;
        let is_local = server.host().is_some_and(|host| {
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        });
        if is_local || proxy.is_no_proxy(server) || proxy.protocol() != ureq::ProxyProtocol::Http {
            return None;
        }
        let basic_auth = proxy.username().map(|user| super::credentials::basic(user, proxy.password().unwrap_or("")));
        Some(Self { authority: format!("{}:{}", proxy.host(), proxy.port()), basic_auth, written: None })
    }
}

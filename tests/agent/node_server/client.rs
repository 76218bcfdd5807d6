//! A small HTTPS client that sends what it is told to, right or wrong.
//!
//! Used from the thread of one test. It believes any certificate.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use ferrolet::util::any_certificate::AnyCertificate;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, SupportedProtocolVersion};

/// How long it waits for a byte.
const PATIENCE: Duration = Duration::from_secs(30);

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The head as it came.
    pub(crate) head: String,
    pub(crate) body: String,
}

/// A connection.
pub(crate) struct Client {
    tls: ClientConnection,
    tcp: TcpStream,
    ahead: Vec<u8>,
}

/// Settings of a client that shows this certificate and key (PEM), if any.
pub(crate) fn config(shows: Option<(&str, &str)>, versions: &[&'static SupportedProtocolVersion]) -> Arc<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(versions);
    let builder = builder
        .expect("versions that there are")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate::new(provider)));
    Arc::new(match shows {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain.as_bytes()).collect();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
            builder.with_client_auth_cert(chain.expect("certificates"), key).expect("a pair")
        }
    })
}

impl Client {
    pub(crate) fn connect(port: u16) -> Result<Self, String> {
        Self::connect_as(port, config(None, rustls::ALL_VERSIONS))
    }

    pub(crate) fn connect_as(port: u16, config: Arc<ClientConfig>) -> Result<Self, String> {
        let connect = || -> io::Result<TcpStream> {
            let tcp = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), PATIENCE)?;
            tcp.set_read_timeout(Some(PATIENCE))?;
            tcp.set_write_timeout(Some(PATIENCE))?;
            tcp.set_nodelay(true)?;
            Ok(tcp)
        };
        let mut tcp = connect().map_err(|error| format!("connect to :{port}: {error}"))?;
        let name = ServerName::try_from("localhost").expect("a name");
        let mut tls = ClientConnection::new(config, name).map_err(|error| error.to_string())?;
        while tls.is_handshaking() {
            tls.complete_io(&mut tcp).map_err(|error| format!("TLS on :{port}: {error}"))?;
        }
        Ok(Self { tls, tcp, ahead: Vec::new() })
    }

    /// The version of TLS, the protocol behind it, and the server's certificate.
    pub(crate) fn agreed(&self) -> (String, Option<String>, Vec<u8>) {
        let version = format!("{:?}", self.tls.protocol_version().expect("agreed"));
        let alpn = self.tls.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned());
        (version, alpn, self.tls.peer_certificates().expect("shown")[0].to_vec())
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        rustls::Stream::new(&mut self.tls, &mut self.tcp).write_all(bytes)
    }

    /// Reads some bytes; none at the end of the connection.
    fn more(&mut self) -> io::Result<usize> {
        let mut block = [0; 16384];
        // Only reading: what could not be sent any more would fail again here, and hide the answer.
        let count = loop {
            match self.tls.reader().read(&mut block) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break 0,
                other => break other?,
            }
            match self.tls.read_tls(&mut self.tcp) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break 0,
                other => drop(other?),
            }
            self.tls.process_new_packets().map_err(io::Error::other)?;
        };
        self.ahead.extend_from_slice(&block[..count]);
        Ok(count)
    }

    /// Whether the server ends the connection, and sends nothing before.
    pub(crate) fn is_ended(&mut self) -> bool {
        self.ahead.is_empty() && matches!(self.more(), Ok(0))
    }

    /// A request without a body, and its answer.
    pub(crate) fn ask(&mut self, line: &str, headers: &str) -> Answer {
        self.send(format!("{line} HTTP/1.1\r\nHost: n\r\n{headers}\r\n").as_bytes()).expect("sent");
        self.answer(line.starts_with("HEAD"))
    }

    /// The next answer.
    pub(crate) fn answer(&mut self, without_body: bool) -> Answer {
        let end = loop {
            if let Some(end) = self.ahead.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            assert_ne!(
                self.more().expect("a byte in time"),
                0,
                "no answer, only {:?}",
                String::from_utf8_lossy(&self.ahead)
            );
        };
        let head = String::from_utf8(self.ahead.drain(..end).collect()).expect("a head of text");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let header = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
        };
        let mut body = Vec::new();
        if without_body || status == 100 {
        } else if let Some(length) = header("content-length") {
            body = self.take(length.parse().expect("a length"));
        } else if header("transfer-encoding").is_some() {
            loop {
                let size = self.line();
                let size = usize::from_str_radix(&size, 16).expect("a size");
                body.extend(self.take(size));
                assert_eq!(self.line(), "");
                if size == 0 {
                    break;
                }
            }
        } else {
            while self.more().expect("in time") > 0 {}
            body = std::mem::take(&mut self.ahead);
        }
        Answer { status, head, body: String::from_utf8(body).expect("a body of text") }
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        while self.ahead.len() < count {
            assert_ne!(self.more().expect("in time"), 0, "the body ends early");
        }
        self.ahead.drain(..count).collect()
    }

    fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.ahead.windows(2).position(|two| two == b"\r\n") {
                let line = self.take(end + 2);
                return String::from_utf8_lossy(&line[..end]).into_owned();
            }
            assert_ne!(self.more().expect("in time"), 0, "the body ends early");
        }
    }
}

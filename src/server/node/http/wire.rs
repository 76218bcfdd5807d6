//! A socket with or without TLS, never waiting by itself.
//!
//! Owned by one thread at a time: the accepting one, one that serves a request, or whoever took the connection over.
//! Reads and writes give [`io::ErrorKind::WouldBlock`] instead of waiting; [`Wire::wait`] waits, with a deadline. It holds no more
//! than TLS needs to hold.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustls::{ServerConfig, ServerConnection};

/// What to wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Until something can be read.
    pub read: bool,
    /// Until something can be written.
    pub write: bool,
}

/// A connected socket.
#[derive(Debug)]
pub struct Wire {
    tcp: Arc<TcpStream>,
    tls: Option<Box<ServerConnection>>,
}

fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl Wire {
    /// A socket as it is.
    ///
    /// # Errors
    /// The kernel refuses to make it not wait.
    pub fn plain(tcp: TcpStream) -> io::Result<Self> {
        tcp.set_nonblocking(true)?;
        // Answers are written in as few pieces as there can be.
        tcp.set_nodelay(true)?;
        Ok(Self { tcp: Arc::new(tcp), tls: None })
    }

    /// A socket on which the client begins TLS.
    ///
    /// # Errors
    /// As [`Wire::plain`], or the configuration makes no sense.
    pub fn secured(tcp: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let mut wire = Self::plain(tcp)?;
        wire.tls = Some(Box::new(ServerConnection::new(config).map_err(broken)?));
        Ok(wire)
    }

    /// The socket, to end it from another thread.
    pub fn socket(&self) -> &Arc<TcpStream> {
        &self.tcp
    }

    /// Whether TLS is spoken on it.
    pub fn is_secured(&self) -> bool {
        self.tls.is_some()
    }

    /// The certificates that the client has shown, its own first; the client has proven that it has the key of the
    /// first one, and nothing else is known of them.
    pub fn client_certificates(&self) -> &[rustls::pki_types::CertificateDer<'static>] {
        self.tls.as_ref().and_then(|tls| tls.peer_certificates()).unwrap_or_default()
    }

    /// Whether TLS was begun and is not agreed on yet.
    pub fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Whether the client, which has to begin with TLS, began with a word as those who speak plain HTTP do. Reads nothing.
    pub fn begins_with_a_word(&self) -> bool {
        let mut first = [0; 1];
        self.tls.is_some() && matches!(self.tcp.peek(&mut first), Ok(1)) && first[0].is_ascii_uppercase()
    }

    /// Gives TLS up, and sends a few bytes without it, as far as they go at once.
    pub fn answer_plain(&mut self, bytes: &[u8]) {
        self.tls = None;
        // Who speaks no TLS may not listen either.
        let _sent = (&*self.tcp).write(bytes);
    }

    /// Reads what is there; 0 when the peer sends no more.
    ///
    /// # Errors
    /// Nothing is there yet, the connection is broken, or the peer speaks no TLS.
    pub fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return retry(|| (&*self.tcp).read(into)) };
        loop {
            match tls.reader().read(into) {
                // The peer ended the connection without a word; who reads knows whether something is missing.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            retry(|| tls.read_tls(&mut &*self.tcp))?;
            let processed = tls.process_new_packets();
            // What the other side is to know (the handshake, an alert) goes out as far as it goes now.
            match send_tls(tls, &self.tcp) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock && processed.is_ok() => return Err(error),
                _ => {}
            }
            processed.map_err(broken)?;
        }
    }

    /// Takes some bytes to send. What was taken is sent by [`Wire::try_flush`] at the latest.
    ///
    /// # Errors
    /// There is no room yet, or the connection is broken.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return retry(|| (&*self.tcp).write(bytes)) };
        // One record's worth at most waits here, so that a slow peer slows down the writer.
        send_tls(tls, &self.tcp)?;
        let taken = tls.writer().write(&bytes[..bytes.len().min(16 << 10)])?;
        match send_tls(tls, &self.tcp) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Sends what was taken.
    ///
    /// # Errors
    /// Some of it is still here ([`io::ErrorKind::WouldBlock`]), or the connection is broken.
    pub fn try_flush(&mut self) -> io::Result<()> {
        self.tls.as_mut().map_or(Ok(()), |tls| send_tls(tls, &self.tcp))
    }

    /// Tells the peer that nothing more comes, as soon as what was written is sent; reading goes on.
    ///
    /// # Errors
    /// As [`Wire::try_flush`]: call it again then.
    pub fn try_finish(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            send_tls(tls, &self.tcp)?;
        }
        self.tcp.shutdown(Shutdown::Write)
    }

    /// Whether something was taken that is not sent yet.
    pub fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Waits until the socket is ready for one of these, or broken; false at the deadline.
    ///
    /// # Errors
    /// The kernel cannot wait.
    pub fn wait(&self, interest: Interest, until: Instant) -> io::Result<bool> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, interest.read);
        flags.set(PollFlags::POLLOUT, interest.write || self.wants_write());
        loop {
            let left = until.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
            let timeout = i32::try_from(left).ok().and_then(|left| PollTimeout::try_from(left).ok());
            match poll(&mut [PollFd::new(self.tcp.as_fd(), flags)], timeout.unwrap_or(PollTimeout::MAX)) {
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok(0) if Instant::now() < until => {}
                Ok(ready) => return Ok(ready > 0),
            }
        }
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}

fn send_tls(tls: &mut ServerConnection, tcp: &TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        if retry(|| tls.write_tls(&mut &*tcp))? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}

/// Again where a signal came between.
fn retry(mut act: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match act() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

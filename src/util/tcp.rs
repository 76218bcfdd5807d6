//! What std cannot ask of a TCP socket.
//!
//! Used by ports on any thread; owns nothing.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};

/// Lets the kernel break the connection when the peer has been dead for about `after` (at least 6 s): by
/// probes while it is silent, by missing acknowledgements while something is under way. No thread wakes for it.
///
/// # Errors
/// The kernel refuses an option; those before it are set.
pub fn notice_death(socket: &TcpStream, after: Duration) -> io::Result<()> {
    let seconds = u32::try_from(after.as_secs()).unwrap_or(u32::MAX).max(6);
    // Silence, then three probes: 2/5 + 3 × 1/5 of the time.
    setsockopt(socket, sockopt::KeepAlive, &true)?;
    setsockopt(socket, sockopt::TcpKeepIdle, &(seconds * 2 / 5))?;
    setsockopt(socket, sockopt::TcpKeepInterval, &(seconds / 5))?;
    setsockopt(socket, sockopt::TcpKeepCount, &3)?;
    setsockopt(socket, sockopt::TcpUserTimeout, &seconds.saturating_mul(1000))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_keeps_what_was_asked() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        notice_death(&socket, Duration::from_secs(25)).expect("allowed");
        let ask = |name, got: u32| assert_eq!(got, name);
        ask(10, nix::sys::socket::getsockopt(&socket, sockopt::TcpKeepIdle).expect("there"));
        ask(5, nix::sys::socket::getsockopt(&socket, sockopt::TcpKeepInterval).expect("there"));
        ask(25_000, nix::sys::socket::getsockopt(&socket, sockopt::TcpUserTimeout).expect("there"));
    }
}

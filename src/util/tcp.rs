//! What std cannot ask of a TCP socket.
//!
//! Used by ports on any thread; owns nothing.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use nix::libc::linger;
use nix::sys::socket::{setsockopt, sockopt};

/// Lets the kernel break the connection when the peer has been dead for about `after` (at least 6 s): by
/// probes while it is silent, by missing acknowledgements while something is under way. No thread wakes for it.
///
/// # Errors
/// The kernel refuses an option; those before it are set.
pub fn notice_death(socket: &TcpStream, after: Duration) -> io::Result<()> {
    keep_alive(socket, after)?;
    setsockopt(socket, sockopt::TcpUserTimeout, &seconds(after).saturating_mul(1000))?;
    Ok(())
}

/// The same while nothing is under way: a peer that lives and takes nothing, for as long as it likes, is not dead.
///
/// # Errors
/// As [`notice_death`].
pub fn keep_alive(socket: &TcpStream, after: Duration) -> io::Result<()> {
    let seconds = seconds(after);
    // Silence, then three probes: 2/5 + 3 × 1/5 of the time.
    setsockopt(socket, sockopt::KeepAlive, &true)?;
    setsockopt(socket, sockopt::TcpKeepIdle, &(seconds * 2 / 5))?;
    setsockopt(socket, sockopt::TcpKeepInterval, &(seconds / 5))?;
    setsockopt(socket, sockopt::TcpKeepCount, &3)?;
    Ok(())
}

fn seconds(after: Duration) -> u32 {
    u32::try_from(after.as_secs()).unwrap_or(u32::MAX).max(6)
}

/// Whether closing the socket breaks the connection off (a reset) instead of ending it. One that is broken off leaves
/// nothing behind that waits for a minute.
///
/// # Errors
/// The kernel refuses the option.
pub fn break_on_close(socket: &TcpStream, breaks: bool) -> io::Result<()> {
    Ok(setsockopt(socket, sockopt::Linger, &linger { l_onoff: breaks.into(), l_linger: 0 })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_broken_off_is_reset() {
        use std::io::Read;
        for (breaks, expect) in [(true, Err(io::ErrorKind::ConnectionReset)), (false, Ok(0))] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
            let (mut peer, _) = listener.accept().expect("accepted");
            break_on_close(&socket, true).expect("allowed");
            break_on_close(&socket, breaks).expect("allowed");
            drop(socket);
            assert_eq!(peer.read(&mut [0]).map_err(|error| error.kind()), expect, "{breaks}");
        }
    }

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

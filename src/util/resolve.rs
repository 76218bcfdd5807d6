//! The addresses of a host, with a deadline.
//!
//! Called on any thread that may wait. The system's resolver knows no deadline, so that a name is looked up
//! by a thread of its own, which the caller gives up on; an address needs none. Owns nothing but the count
//! of those threads, of which there are never more than [`LOOKUPS`].

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::bounded;

use super::thread::{StackSize, spawn};

/// How many lookups may be under way, those that were given up included: each ends when the system's resolver
/// gives up.
pub const LOOKUPS: usize = 16;

static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// The addresses of `host`, a name or an address with or without brackets, each with `port`.
///
/// # Errors
/// The resolver's; nothing came `within` the time (`TimedOut`); too many lookups hang already (`WouldBlock`).
pub fn addresses(host: &str, port: u16, within: Duration) -> io::Result<Vec<SocketAddr>> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let bare = bare.to_owned();
    look_up(&UNDER_WAY, within, move || Ok((bare.as_str(), port).to_socket_addrs()?.collect()))
}

fn look_up<T: Send + 'static>(
    under_way: &'static AtomicUsize,
    within: Duration,
    lookup: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let place = Place::take(under_way).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::WouldBlock,
            format!("{LOOKUPS} lookups of names hang already: is the DNS server there?"),
        )
    })?;
    let (found, wait) = bounded(1);
    spawn("lookup", StackSize::Small, move || {
        let _place = place;
        // Nobody listens once it was given up.
        let _given_up = found.send(lookup());
    })?
    .abandon();
    wait.recv_timeout(within).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// One of the lookups.
struct Place(&'static AtomicUsize);

impl Place {
    fn take(count: &'static AtomicUsize) -> Option<Self> {
        let more = |now: usize| (now < LOOKUPS).then_some(now + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self(count))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_as_it_is_and_a_name_is_looked_up() {
        let long = Duration::from_secs(60);
        let check = |host: &str, expect: &str| {
            let found = addresses(host, 80, long).expect(host);
            assert_eq!(found.iter().map(ToString::to_string).next().as_deref(), Some(expect), "{host}");
        };
        check("10.0.0.1", "10.0.0.1:80");
        check("::1", "[::1]:80");
        check("[::1]", "[::1]:80");
        assert!(addresses("localhost", 80, long).expect("localhost").iter().all(|found| found.ip().is_loopback()));
        assert!(addresses("not a name", 80, long).is_err());
    }

    #[test]
    fn a_lookup_that_hangs_is_given_up_and_their_number_is_bounded() {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let (hold, held) = bounded::<()>(0);
        for number in 0..=LOOKUPS {
            let held = held.clone();
            let got = look_up(&COUNT, Duration::from_millis(1), move || {
                let _ended = held.recv();
                Ok(())
            });
            let expect = if number < LOOKUPS { io::ErrorKind::TimedOut } else { io::ErrorKind::WouldBlock };
            assert_eq!(got.map_err(|error| error.kind()), Err(expect), "lookup {number}");
        }
        drop(hold);
        while COUNT.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        assert!(look_up(&COUNT, Duration::from_secs(60), || Ok(())).is_ok(), "there is room again");
    }
}

//! A relay between an agent and the API server that counts bytes and connections on their way.
//!
//! One thread accepts, two copy for each connection; they end with their connection. Owns a port. It looks at nothing and
//! changes nothing: what passes is TLS of others.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// What passed so far.
#[derive(Debug, Default)]
struct Counts {
    to_server: AtomicU64,
    to_agent: AtomicU64,
    open: AtomicU64,
    most: AtomicU64,
    stopped: AtomicBool,
}

/// The running relay.
pub(crate) struct Relay {
    pub(crate) port: u16,
    counts: Arc<Counts>,
}

impl Relay {
    /// Relays to a port of this machine.
    pub(crate) fn start(target: u16) -> Result<Relay, String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.to_string())?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        let counts: Arc<Counts> = Arc::default();
        let theirs = Arc::clone(&counts);
        std::thread::spawn(move || {
            for agent in listener.incoming().flatten() {
                if theirs.stopped.load(Ordering::Relaxed) {
                    return;
                }
                // Without a server the agent sees its connection end.
                if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)) {
                    join(agent, server, &theirs);
                }
            }
        });
        Ok(Relay { port, counts })
    }

    /// Bytes from and to the agent so far.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.counts.to_server.load(Ordering::Relaxed), self.counts.to_agent.load(Ordering::Relaxed))
    }

    /// Connections that are open now, and the most that ever were.
    pub(crate) fn connections(&self) -> (u64, u64) {
        (self.counts.open.load(Ordering::Relaxed), self.counts.most.load(Ordering::Relaxed))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.counts.stopped.store(true, Ordering::Relaxed);
        // Wakes the accept.
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
    }
}

fn join(agent: TcpStream, server: TcpStream, counts: &Arc<Counts>) {
    for end in [&agent, &server] {
        drop(end.set_nodelay(true));
    }
    let (Ok(agent_too), Ok(server_too)) = (agent.try_clone(), server.try_clone()) else { return };
    let open = counts.open.fetch_add(1, Ordering::Relaxed) + 1;
    counts.most.fetch_max(open, Ordering::Relaxed);
    let (up, down) = (Arc::clone(counts), Arc::clone(counts));
    std::thread::spawn(move || copy(agent, server, &up.to_server));
    std::thread::spawn(move || {
        copy(server_too, agent_too, &down.to_agent);
        down.open.fetch_sub(1, Ordering::Relaxed);
    });
}

/// Copies until one side has ended, and ends the other.
fn copy(mut from: TcpStream, mut to: TcpStream, count: &AtomicU64) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        count.fetch_add(read as u64, Ordering::Relaxed);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    drop(from.shutdown(Shutdown::Both));
    drop(to.shutdown(Shutdown::Both));
}

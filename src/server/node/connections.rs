//! The connections that are open, wherever they are: waiting, served, or taken over.
//!
//! Shared by the threads of the server; the lock is held for a moment when one comes or goes. It owns no connection, and ends
//! them all when the server ends.

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// All open connections.
#[derive(Debug, Default)]
pub(super) struct Connections {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    sockets: BTreeMap<u64, Weak<TcpStream>>,
    is_over: bool,
}

/// A connection's place among them, given back on drop.
#[derive(Debug)]
pub(super) struct Place {
    connections: Arc<Connections>,
    key: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.lock().sockets.remove(&self.key);
    }
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new one.
    pub(super) fn enter(self: &Arc<Self>, socket: &Arc<TcpStream>) -> Place {
        let mut state = self.lock();
        let key = state.next;
        state.next += 1;
        state.sockets.insert(key, Arc::downgrade(socket));
        if state.is_over {
            end(socket);
        }
        Place { connections: Arc::clone(self), key }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.lock().sockets.len()
    }

    /// Ends them all, and those that come.
    pub(super) fn end_all(&self) {
        let mut state = self.lock();
        state.is_over = true;
        state.sockets.values().filter_map(Weak::upgrade).for_each(|socket| end(&socket));
    }
}

fn end(socket: &TcpStream) {
    // An error means that the other side was faster.
    let _gone = socket.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::net::TcpListener;

    #[test]
    fn the_end_reaches_all_of_them() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let connect = || {
            let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
            (client, Arc::new(listener.accept().expect("accepted").0))
        };
        let connections = Arc::new(Connections::default());
        let ((mut first, server), (_gone, other)) = (connect(), connect());
        let place = connections.enter(&server);
        drop(connections.enter(&other));
        assert_eq!(connections.count(), 1);
        connections.end_all();
        assert_eq!(first.read(&mut [0; 1]).expect("an end"), 0);
        let (mut late, server) = connect();
        let _late = connections.enter(&server);
        assert_eq!(late.read(&mut [0; 1]).expect("an end"), 0);
        drop(place);
        assert_eq!(connections.count(), 1);
    }
}

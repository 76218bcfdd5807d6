//! Starts and ends the node's server.
//!
//! On the main thread; owns the accepting thread. Where an address is taken it is tried again: the agent's pods matter more than its server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::auth::Auth;
use super::connections::Connections;
use super::dispatch::{Dispatch, Door, LongAnswers, Switches};
use super::endpoint::Endpoint;
use super::limits::Limits;
use super::listener::{Listener, Port};
use super::parts::NodeParts;
use super::tls::Tls;
use crate::util::cancel::Cancel;
use crate::util::thread::{OwnerThread, StackSize};

/// Where and how it is served.
#[derive(Debug)]
pub struct NodeServerSettings {
    /// 10250.
    pub secure: SocketAddr,
    /// 10255; `None` for no such port.
    pub read_only: Option<SocketAddr>,
    /// Which endpoints there are on 10250.
    pub switches: Switches,
    /// The endpoints.
    pub routes: &'static [Endpoint],
    /// How much of everything.
    pub limits: Limits,
}

/// The running server. Dropping it ends its connections and its thread.
#[derive(Debug)]
pub struct NodeServer {
    stop: Cancel,
    connections: Arc<Connections>,
    _thread: OwnerThread,
}

impl NodeServer {
    /// Listens. An address that is taken is told in the log and tried again every five seconds. `parts.stop` ends the server as well.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn start(settings: NodeServerSettings, tls: Tls, auth: Auth, parts: Arc<NodeParts>) -> io::Result<Self> {
        let (stop, connections) = (parts.stop.clone(), Arc::new(Connections::default()));
        let (ours, token) = (Arc::clone(&connections), stop.clone());
        let thread = OwnerThread::spawn("node-server", StackSize::Normal, move || {
            if let Err(error) = run(settings, tls, auth, parts, connections, token) {
                log::error!("the node's server has ended: {error}");
            }
        })?;
        Ok(Self { stop, connections: ours, _thread: thread })
    }
}

impl Drop for NodeServer {
    fn drop(&mut self) {
        self.stop.cancel();
        self.connections.end_all();
    }
}

fn run(
    settings: NodeServerSettings,
    tls: Tls,
    auth: Auth,
    parts: Arc<NodeParts>,
    connections: Arc<Connections>,
    stop: Cancel,
) -> io::Result<()> {
    let NodeServerSettings { secure, read_only, switches, routes, limits } = settings;
    let counts = Arc::clone(&parts.counts);
    let long = Arc::new(LongAnswers { most: limits.long, now: AtomicUsize::new(0) });
    let dispatch = |door, switches| {
        let (parts, counts, long) = (Arc::clone(&parts), Arc::clone(&counts), Arc::clone(&long));
        Arc::new(Dispatch { door, switches, parts, routes, counts, long })
    };
    let door = Door::Secure(Box::new(auth));
    let tls = Some(Arc::new(tls));
    let mut ports = vec![Port { address: secure, listener: None, dispatch: dispatch(door, switches), tls }];
    if let Some(address) = read_only {
        let dispatch = dispatch(Door::ReadOnly, Switches::READ_ONLY);
        ports.push(Port { address, listener: None, dispatch, tls: None });
    }
    Listener::new(ports, limits, connections, counts, stop)?.run()
}

//! The `lease` thread: renews the node's lease, by which the cluster knows that the node lives.
//!
//! It owns the lease as the server gave it last, and has connections of its own, so that nothing else can be in its way.
//! Its timer is monotonic: whoever sets the clock does not stop it. A renewal that fails is tried again within
//! moments, with growing pauses. It begins once the node is registered.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use k8s_openapi::api::coordination::v1::Lease;

use crate::api::runtime::UnixNanos;
use crate::core::node_object::lease::{NAMESPACE, renew_interval, renewed, retry_after};
use crate::kube::{ApiClient, ApiError, Call, Method, paths};
use crate::util::clock;
use crate::util::heartbeat::Heartbeat;
use crate::util::jitter::longer_by;
use crate::util::thread::{OwnerThread, StackSize};

/// What is set, and what the thread works with.
pub struct LeaseConfig {
    /// Name of node and lease.
    pub node: String,
    /// `nodeLeaseDurationSeconds`.
    pub lasts_seconds: i32,
    /// A client that nobody else uses.
    pub api: ApiClient,
    /// The node's uid, once it is registered.
    pub node_uid: Box<dyn Fn() -> Option<String> + Send>,
    /// Rung when the node is registered.
    pub registered: Receiver<()>,
    /// Moves with each renewal.
    pub renewed: Arc<Heartbeat>,
    /// The wall clock, which anybody may set; it names the time of a renewal and decides on none.
    pub wall: fn() -> UnixNanos,
}

/// The running thread; dropping it ends it.
#[derive(Debug)]
pub struct LeaseHandle {
    stop: Option<Sender<()>>,
    _thread: OwnerThread,
}

impl LeaseHandle {
    /// Starts the thread. [`ApiClient::shut_down`] ends the request that it may be waiting for.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn start(config: LeaseConfig) -> io::Result<Self> {
        let (stop, stopped) = bounded::<()>(0);
        let actor = Actor { config, latest: None };
        let thread = OwnerThread::spawn("lease", StackSize::Normal, move || actor.run(&stopped))?;
        Ok(Self { stop: Some(stop), _thread: thread })
    }
}

impl Drop for LeaseHandle {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

struct Actor {
    config: LeaseConfig,
    latest: Option<Lease>,
}

impl Actor {
    fn run(mut self, stopped: &Receiver<()>) {
        let interval = renew_interval(self.config.lasts_seconds);
        let mut failures = 0;
        loop {
            // A node that is not there, or not any more, has no lease.
            if !self.wait_for_node(stopped) {
                return;
            }
            let wait = match self.renew(interval) {
                Ok(()) => {
                    if failures > 1 {
                        log::info!("the node's lease is renewed again");
                    }
                    failures = 0;
                    self.config.renewed.beat(clock::moment());
                    longer_by(interval, 0.04)
                }
                Err(error) => {
                    failures += 1;
                    let wait = retry_after(failures).max(error.retry_after().unwrap_or_default()).min(interval);
                    log::warn!("the node's lease is not renewed, trying again in {wait:?}: {error}");
                    wait
                }
            };
            if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// Waits until the node is registered; false at the agent's end.
    fn wait_for_node(&self, stopped: &Receiver<()>) -> bool {
        while (self.config.node_uid)().is_none() {
            crossbeam_channel::select! {
                recv(stopped) -> _ => return false,
                recv(self.config.registered) -> rung => if rung.is_err() { return false },
            }
        }
        true
    }

    /// Renews the lease at hand; without one, or if it is not the server's any more, the server's.
    fn renew(&mut self, within: Duration) -> Result<(), ApiError> {
        let lease = match self.latest.take() {
            Some(lease) => lease,
            None => match self.ask::<()>(Method::Get, None, within) {
                Ok(lease) => lease,
                Err(error) if error.is_not_found() => return self.create(within),
                Err(error) => return Err(error),
            },
        };
        let wanted = self.wanted(Some(&lease));
        match self.ask(Method::Put, Some(&wanted), within) {
            Ok(renewed) => {
                self.latest = Some(renewed);
                Ok(())
            }
            // Somebody else wrote it, or it is gone: the next try asks for it.
            Err(error) if error.is_conflict() || error.is_not_found() => Err(error),
            Err(error) => {
                self.latest = Some(lease);
                Err(error)
            }
        }
    }

    fn create(&mut self, within: Duration) -> Result<(), ApiError> {
        let wanted = self.wanted(None);
        self.latest = Some(self.ask(Method::Post, Some(&wanted), within)?);
        Ok(())
    }

    fn wanted(&self, base: Option<&Lease>) -> Lease {
        let uid = (self.config.node_uid)();
        renewed(base, &self.config.node, uid.as_deref(), self.config.lasts_seconds, (self.config.wall)())
    }

    fn ask<T: serde::Serialize>(&self, method: Method, lease: Option<&T>, within: Duration) -> Result<Lease, ApiError> {
        let path = match method {
            Method::Post => paths::leases(NAMESPACE),
            _ => paths::lease(NAMESPACE, &self.config.node),
        };
        let mut call = Call::new(method, path).within(within);
        if let Some(lease) = lease {
            call = call.with_json(lease)?;
        }
        self.config.api.call_for(&call)
    }
}

//! The services of the cluster, for the variables that tell containers of them.
//!
//! The thread `services` starts when the first pod needs them, and sits in one watch from then on. Of
//! each service it keeps name, address and ports. It never stops anybody longer than asked.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::api::v1::Service;
use crate::core::spec::services::{ServiceFacts, variables};
use crate::kube::{ApiClient, ListEvent, paths};
use crate::util::cancel::Cancel;
use crate::util::order::Gather;
use crate::util::thread::{OwnerThread, StackSize};

/// Namespace and name.
type Name = (String, String);

#[derive(Default)]
struct State {
    /// `None` until the first list.
    known: Option<BTreeMap<Name, ServiceFacts>>,
    thread: Option<OwnerThread>,
}

struct Inner {
    state: Mutex<State>,
    changed: Condvar,
    stop: Cancel,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, event: ListEvent<Service>) {
        let mut state = self.lock();
        match event {
            ListEvent::Listed(all) => {
                let all = all.iter().filter_map(ServiceFacts::of);
                state.known = Some(all.map(|service| (name(&service), service)).gather());
                self.changed.notify_all();
            }
            ListEvent::Set(service) => {
                let Some(known) = &mut state.known else { return };
                match ServiceFacts::of(&service) {
                    Some(facts) => drop(known.insert(name(&facts), facts)),
                    None => drop(known.remove(&name_of(&service))),
                }
            }
            ListEvent::Gone(service) => {
                if let Some(known) = &mut state.known {
                    known.remove(&name_of(&service));
                }
            }
            ListEvent::Settled => {}
            ListEvent::Failed(error) => {
                if state.known.is_none() {
                    log::info!("services are not known yet: {error}");
                }
            }
        }
    }
}

fn name(facts: &ServiceFacts) -> Name {
    (facts.namespace.clone(), facts.name.clone())
}

fn name_of(service: &Service) -> Name {
    let metadata = &service.metadata;
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

/// The services; dropping it ends the thread.
pub(super) struct Services {
    client: ApiClient,
    inner: Arc<Inner>,
}

impl Services {
    pub(super) fn new(client: ApiClient) -> Self {
        let inner = Inner { state: Mutex::default(), changed: Condvar::new(), stop: Cancel::new() };
        Self { client, inner: Arc::new(inner) }
    }

    /// The variables for a pod of `namespace`; `None` if the services are not known within `limit`.
    pub(super) fn variables(&self, namespace: &str, links: bool, limit: Duration) -> Option<Vec<(String, String)>> {
        let until = Instant::now() + limit;
        let mut state = self.inner.lock();
        if state.thread.is_none() && !self.inner.stop.is_cancelled() {
            let (inner, client) = (Arc::clone(&self.inner), self.client.clone());
            let watch = move || {
                let taken = Arc::clone(&inner);
                client.list_watch::<Service>(paths::ALL_SERVICES, &[], &inner.stop, &mut |event| {
                    taken.take(event);
                    ControlFlow::Continue(())
                });
            };
            match OwnerThread::spawn("services", StackSize::Large, watch) {
                Ok(thread) => state.thread = Some(thread),
                Err(error) => log::error!("no thread to watch services: {error}"),
            }
        }
        loop {
            if let Some(known) = &state.known {
                return Some(variables(known.values(), namespace, links));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.inner.stop.is_cancelled() {
                return None;
            }
            state = self.inner.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends the thread and whoever waits.
    pub(super) fn stop(&self) {
        self.inner.stop.cancel();
        self.inner.changed.notify_all();
        let thread = self.inner.lock().thread.take();
        // Joined outside of the lock, which it may need for its last event.
        drop(thread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service(name: &str, ip: &str) -> Service {
        serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": name},
            "spec": {"clusterIP": ip, "ports": [{"port": 80}]},
        }))
        .expect("a service")
    }

    #[test]
    fn the_set_follows_its_events() {
        let inner = Inner { state: Mutex::default(), changed: Condvar::new(), stop: Cancel::new() };
        let names = || {
            let state = inner.lock();
            let known =
                state.known.as_ref().map(|known| known.keys().map(|(_, name)| name.clone()).collect::<Vec<_>>());
            known.map(|names| names.join(" "))
        };
        inner.take(ListEvent::Set(service("early", "10.0.0.1")));
        assert_eq!(names(), None);
        inner.take(ListEvent::Listed(vec![service("a", "10.0.0.1"), service("headless", "None")]));
        assert_eq!(names().as_deref(), Some("a"));
        inner.take(ListEvent::Set(service("b", "10.0.0.2")));
        inner.take(ListEvent::Set(service("a", "None")));
        assert_eq!(names().as_deref(), Some("b"));
        inner.take(ListEvent::Gone(service("b", "10.0.0.2")));
        assert_eq!(names().as_deref(), Some(""));
        inner.take(ListEvent::Listed(vec![]));
        assert_eq!(names().as_deref(), Some(""));
    }
}

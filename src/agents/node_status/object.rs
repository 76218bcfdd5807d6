//! The newest Node object: published by the `node` thread from answers and by `node-watch` from the watch.
//!
//! Readers are admission, the downward API, the lease and the events. An object that is older than the one at hand is
//! not taken: a watch may tell of a change later than the answer to it came.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use crate::api::v1::Node;
use crate::kube::{ApiClient, ListEvent, paths};
use crate::util::cancel::Cancel;
use crate::util::snapshot::Snapshot;

/// The object as it is known now. Before the node is registered it is what will be registered, without a uid.
#[derive(Debug)]
pub struct NodeObject {
    newest: Snapshot<Node>,
    publishing: Mutex<()>,
}

impl NodeObject {
    /// Starts with what will be registered.
    pub fn new(initial: Node) -> Self {
        Self { newest: Snapshot::new(initial), publishing: Mutex::new(()) }
    }

    /// The newest object.
    pub fn get(&self) -> Arc<Node> {
        self.newest.get()
    }

    /// The node's uid, once it is registered.
    pub fn uid(&self) -> Option<String> {
        self.get().metadata.uid.clone()
    }

    /// Takes an object of the API server, unless it is older than the one at hand.
    pub(super) fn publish(&self, mut node: Node) {
        node.metadata.managed_fields = None;
        let _alone = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_older(&node, &self.newest.get()) {
            self.newest.set(Arc::new(node));
        }
    }

    /// The object is gone.
    pub(super) fn forget(&self, initial: &Node) {
        let _alone = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        self.newest.set(Arc::new(initial.clone()));
    }
}

/// Whether `node` is an older state of the same object as `at_hand`.
fn is_older(node: &Node, at_hand: &Node) -> bool {
    let version = |node: &Node| node.metadata.resource_version.as_ref().and_then(|text| text.parse::<u64>().ok());
    node.metadata.uid == at_hand.metadata.uid && version(node) < version(at_hand)
}

/// Follows the object until `stop`.
pub(super) fn watch(api: &ApiClient, name: &str, object: &NodeObject, stop: &Cancel) {
    let selector = format!("metadata.name={name}");
    api.list_watch::<Node>(paths::NODES, &[("fieldSelector", &selector)], stop, &mut |event| {
        match event {
            ListEvent::Listed(nodes) => nodes.into_iter().for_each(|node| object.publish(node)),
            ListEvent::Set(node) => object.publish(node),
            // The next report learns it, and what to do about it.
            ListEvent::Gone(_) | ListEvent::Settled => {}
            ListEvent::Failed(error) => log::info!("changes of the node's object are not seen for now: {error}"),
        }
        ControlFlow::Continue(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(uid: &str, version: &str) -> Node {
        let mut node = Node::default();
        node.metadata.uid = Some(uid.to_owned());
        node.metadata.resource_version = Some(version.to_owned());
        node
    }

    #[test]
    fn an_older_state_is_not_taken() {
        let object = NodeObject::new(Node::default());
        let check = |uid: &str, version: &str, expect: &str| {
            object.publish(node(uid, version));
            assert_eq!(object.get().metadata.resource_version.as_deref(), Some(expect), "{uid} {version}");
        };
        check("a", "9", "9");
        check("a", "10", "10");
        check("a", "9", "10");
        check("b", "3", "3");
        check("b", "odd", "3");
        assert_eq!(object.uid().as_deref(), Some("b"));
        object.forget(&Node::default());
        assert_eq!(object.uid(), None);
    }
}

//! The newest Node object: published by the `node` thread from answers and by `node-watch` from the watch.
//!
//! Readers are admission, the downward API, the lease and the events. An object that is older than the one at hand is
//! not taken: a watch may tell of a change later than the answer to it came.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use crate::api::v1::Node;
use crate::kube::{ApiClient, ListEvent, paths};
use crate::msg::NodeMarks;
use crate::util::cancel::Cancel;
use crate::util::snapshot::Snapshot;

/// The object as it is known now. Before the node is registered it is what will be registered, without a uid.
pub struct NodeObject {
    newest: Snapshot<Node>,
    /// What was told of it last, and whom. Held while an object is published, so that they come in order.
    told: Mutex<Told>,
}

struct Told {
    marks: NodeMarks,
    tell: Box<dyn FnMut(NodeMarks) + Send>,
}

impl NodeObject {
    /// Starts with what will be registered. `tell` gets the labels and taints whenever they change.
    pub fn new(initial: Node, tell: impl FnMut(NodeMarks) + Send + 'static) -> Self {
        let told = Told { marks: marks(&initial), tell: Box::new(tell) };
        Self { newest: Snapshot::new(initial), told: Mutex::new(told) }
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
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if is_older(&node, &self.newest.get()) {
            return;
        }
        let new = marks(&node);
        self.newest.set(Arc::new(node));
        if new != told.marks {
            told.marks.clone_from(&new);
            (told.tell)(new);
        }
    }

    /// The object is gone.
    pub(super) fn forget(&self, initial: &Node) {
        let _alone = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        self.newest.set(Arc::new(initial.clone()));
    }
}

impl std::fmt::Debug for NodeObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeObject").field("uid", &self.uid()).finish_non_exhaustive()
    }
}

fn marks(node: &Node) -> NodeMarks {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
    NodeMarks { labels: node.metadata.labels.clone().unwrap_or_default(), taints: taints.unwrap_or_default() }
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
    fn labels_and_taints_are_told_when_they_change() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = Arc::clone(&told);
        let object = NodeObject::new(Node::default(), move |marks: NodeMarks| tell.lock().unwrap().push(marks.labels));
        let labelled = |version: &str, label: &str| {
            let mut node = node("a", version);
            node.metadata.labels = Some([(label.to_owned(), "1".to_owned())].into());
            node
        };
        for node in [node("a", "1"), labelled("3", "x"), labelled("2", "y"), labelled("4", "x"), labelled("5", "z")] {
            object.publish(node);
        }
        let keys: Vec<String> = told.lock().unwrap().iter().flat_map(|labels| labels.keys().cloned()).collect();
        assert_eq!(keys, ["x", "z"]);
    }

    #[test]
    fn an_older_state_is_not_taken() {
        let object = NodeObject::new(Node::default(), drop);
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

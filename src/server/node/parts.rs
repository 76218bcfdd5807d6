//! What endpoints answer from.
//!
//! Built once where the house is joined, read by all threads that serve requests; owns nothing that changes. An endpoint
//! that needs something else gets it as a field here.

use std::path::PathBuf;
use std::sync::Arc;

use super::super::health::Checks;
use super::super::streams::StreamParts;
use super::counts::Counts;
use crate::cri::Client;
use crate::msg::NodeView;
use crate::server::stats::Stats;
use crate::util::cancel::Cancel;
use crate::util::snapshot::Snapshot;

/// What endpoints answer from.
#[derive(Debug)]
pub struct NodeParts {
    /// The node's name.
    pub node: String,
    /// The newest view of the node's pods.
    pub view: Arc<Snapshot<NodeView>>,
    /// The container runtime.
    pub runtime: Client,
    /// The health checks.
    pub checks: Checks,
    /// Numbers about the node and its pods.
    pub stats: Arc<Stats>,
    /// `--root-dir`, absolute.
    pub root_dir: PathBuf,
    /// The configuration in force, as JSON.
    pub configuration: Arc<Snapshot<String>>,
    /// What the server counts.
    pub counts: Arc<Counts>,
    /// What logs and sessions work with.
    pub streams: StreamParts,
    /// Set when the server ends.
    pub stop: Cancel,
}

#[cfg(test)]
impl NodeParts {
    /// Parts of a node without pods, and with a runtime that does not answer: for tests of endpoints, which set what they need.
    pub(super) fn for_tests() -> Self {
        let runtime = Client::new("unix:///nonexistent.sock", None, std::time::Duration::from_secs(1));
        Self {
            node: "n1".to_owned(),
            view: Arc::new(Snapshot::new(NodeView { node: "n1".to_owned(), is_listed: true, ..NodeView::default() })),
            runtime: runtime.expect("an address"),
            checks: Arc::new([super::super::health::Check::ping()]),
            stats: Arc::new(Stats::new(crate::server::stats::StatsSources::for_tests())),
            root_dir: PathBuf::from("/nonexistent"),
            configuration: Arc::new(Snapshot::new("{}".to_owned())),
            counts: Arc::default(),
            streams: StreamParts::new(std::time::Duration::ZERO, false, &|gate| gate != "PodLogsQuerySplitStreams")
                .expect("a descriptor"),
            stop: Cancel::new(),
        }
    }
}

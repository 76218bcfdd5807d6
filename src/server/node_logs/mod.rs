//! `/logs/`: the node's own logs, as files and as answers to queries (`kubectl get --raw …/proxy/logs/?query=kubelet`).
//!
//! Layer L2, on the threads of the connections. It reads below the folder of logs and runs `journalctl`; it never opens anything else.

pub mod files;
pub mod journal;
pub mod query;

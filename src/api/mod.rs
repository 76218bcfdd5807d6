//! The words that all layers share: Kubernetes API types (from k8s-openapi), ids, and our own plain
//! words for what a container runtime runs.
//!
//! Layer L0, used on every thread. Value types only: it never does I/O, reads a clock or logs.

pub mod ids;
pub mod labels;
pub mod moment;
pub mod pod;
pub mod pressure;
pub mod probe;
pub mod quantity;
pub mod record;
pub mod runtime;
pub mod runtime_info;
pub mod runtime_stats;

pub use ids::{ContainerId, PodName, PodUid, SandboxId};
pub use k8s_openapi::api::core::v1;
pub use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

/// Bytes in base64, as the API writes them in JSON.
pub fn base64(bytes: &[u8]) -> String {
    let text = serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())).unwrap_or_default();
    text.as_str().unwrap_or_default().to_owned()
}

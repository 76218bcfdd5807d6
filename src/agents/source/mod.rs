//! Where pods come from: the API server, manifest files and a manifest URL.
//!
//! Threads `src-api`, `src-file` and `src-http`, one actor each; shared here is the way from a manifest's
//! bytes to a pod that the rest of the house takes for one from the API server. A source sends its full set and
//! only when it changed; it never sends an empty set because it could not look.

pub mod api;
pub mod decode;
pub mod elders;
pub mod file;
pub mod folder;
pub mod http;
pub mod identity;
pub mod manifest;
pub mod outbox;
pub mod watch;

//! HTTP(S) clients of a node agent: the only user of ureq, and of rustls as a client.
//!
//! Layer L1, called on agent threads; blocking, with a deadline and a byte limit on everything. Decides
//! nothing, and hands out no type of the HTTP library. [`ApiClient`] speaks to the API server as the
//! user of a [`kubeconfig::Access`]; [`fetch`] makes single requests to anybody else.

pub mod certificate;
pub mod client;
mod credentials;
mod dialer;
pub mod error;
mod exchange;
mod exec;
pub mod fetch;
pub mod kubeconfig;
mod limiter;
mod list;
pub mod list_watch;
pub mod paths;
pub mod reports;
pub mod serving;
pub mod streams;
pub mod subject;
mod tls;
pub mod watch;

pub use client::{Answer, ApiClient, Call, ContentType, Method, PatchType, RateLimit};
pub use error::{ApiError, Status};
pub use kubeconfig::{Access, KubeconfigError};
pub use list_watch::ListEvent;
pub use watch::WatchEvent;

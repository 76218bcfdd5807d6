//! What volumes and environments draw on from the API server, and how it is asked for.
//!
//! Layer L1: plain words and one trait. `agents/objects` implements [`ObjectSource`] over an API
//! server; [`NoObjects`] stands for a node without one. Called by pod workers on their own threads, so
//! that an answer that is slow holds up its own pod alone. What is secret here never shows in Debug.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::api::PodUid;
use crate::api::v1::{ConfigMap, Secret};
use crate::util::order::Gather;

/// Which kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
}

impl ObjectKind {
    /// The word that upstream's messages have for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        }
    }
}

/// An object's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// ConfigMap or Secret.
    pub kind: ObjectKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectKey {
    /// A ConfigMap's or Secret's name.
    pub fn new(kind: ObjectKind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.word(), self.namespace, self.name)
    }
}

/// What a pod wants an object for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It lies in a volume: the pod wants to be told when it changes.
    Mount,
    /// It is read now, for a container that starts now.
    Read,
}

/// The part of a ConfigMap or Secret that pods see. Debug shows names and sizes, no values.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ObjectData {
    /// `type` of a Secret; empty for a ConfigMap.
    pub type_: String,
    /// A ConfigMap's `data`; empty for a Secret.
    pub text: BTreeMap<String, String>,
    /// A Secret's `data`, or a ConfigMap's `binaryData`.
    pub bytes: BTreeMap<String, Vec<u8>>,
    /// `metadata.resourceVersion`.
    pub version: String,
    /// Whether it never changes.
    pub immutable: bool,
}

impl ObjectData {
    /// The content under a key; text goes before bytes.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.text.get(key).map(String::as_bytes).or_else(|| self.bytes.get(key).map(Vec::as_slice))
    }

    /// All keys with their content.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let text = self.text.iter().map(|(key, value)| (key.as_str(), value.as_bytes()));
        text.chain(self.bytes.iter().map(|(key, value)| (key.as_str(), value.as_slice())))
    }
}

impl From<ConfigMap> for ObjectData {
    fn from(map: ConfigMap) -> Self {
        Self {
            type_: String::new(),
            text: map.data.unwrap_or_default(),
            bytes: map.binary_data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).gather(),
            version: map.metadata.resource_version.unwrap_or_default(),
            immutable: map.immutable.unwrap_or(false),
        }
    }
}

impl From<Secret> for ObjectData {
    fn from(secret: Secret) -> Self {
        Self {
            type_: secret.type_.unwrap_or_default(),
            text: BTreeMap::new(),
            bytes: secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).gather(),
            version: secret.metadata.resource_version.unwrap_or_default(),
            immutable: secret.immutable.unwrap_or(false),
        }
    }
}

impl fmt::Debug for ObjectData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: BTreeMap<&str, usize> = self.iter().map(|(key, value)| (key, value.len())).gather();
        f.debug_struct("ObjectData").field("version", &self.version).field("sizes", &sizes).finish_non_exhaustive()
    }
}

/// A token that a pod wants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenWanted {
    /// The pod, which the token is bound to.
    pub pod: PodUid,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod_name: String,
    /// The pod's service account.
    pub account: String,
    /// Whom the token is for; empty for the API server itself.
    pub audience: String,
    /// How long it shall live; the API server's default when absent.
    pub seconds: Option<i64>,
}

/// A token. Debug shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Why an object cannot be had. No message holds content of an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// It does not exist.
    #[error("{} {name:?} not found", kind.word())]
    NotFound {
        /// What it would be.
        kind: ObjectKind,
        /// Its name.
        name: String,
    },
    /// The API server does not say, for this reason.
    #[error("failed to get {what}: {why}")]
    Unavailable {
        /// What was asked for.
        what: String,
        /// Why there is no answer.
        why: String,
    },
    /// This node has no API server.
    #[error("couldn't get {what}, no kubeClient defined: this node has no API server (--kubeconfig)")]
    NoServer {
        /// What was asked for.
        what: String,
    },
}

/// Where pod workers get API objects from. Implementations keep what they got for as long as a pod
/// needs it, and tell the sync loop which pods to look at again when it changes.
pub trait ObjectSource: Send + Sync + fmt::Debug {
    /// A ConfigMap or Secret for a pod, within `limit`.
    ///
    /// # Errors
    /// It does not exist, or nobody says in time.
    fn object(
        &self,
        pod: &PodUid,
        key: &ObjectKey,
        purpose: Purpose,
        limit: Duration,
    ) -> Result<Arc<ObjectData>, ObjectError>;

    /// A service account token that is good for at least a fifth of its life, within `limit`.
    ///
    /// # Errors
    /// The API server refuses or does not answer, and there is no older token that is still good.
    fn token(&self, wanted: &TokenWanted, limit: Duration) -> Result<Token, ObjectError>;

    /// The variables that tell a pod of services, within `limit`; empty on a node without an API
    /// server. `links` is the pod's `enableServiceLinks`.
    ///
    /// # Errors
    /// The services were never read.
    fn service_variables(
        &self,
        namespace: &str,
        links: bool,
        limit: Duration,
    ) -> Result<Vec<(String, String)>, ObjectError>;

    /// The pod needs nothing any more.
    fn forget(&self, pod: &PodUid);
}

/// A node without an API server.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObjects;

impl ObjectSource for NoObjects {
    fn object(&self, _: &PodUid, key: &ObjectKey, _: Purpose, _: Duration) -> Result<Arc<ObjectData>, ObjectError> {
        Err(ObjectError::NoServer { what: key.to_string() })
    }

    fn token(&self, wanted: &TokenWanted, _: Duration) -> Result<Token, ObjectError> {
        Err(ObjectError::NoServer { what: format!("a token of service account {}", wanted.account) })
    }

    fn service_variables(&self, _: &str, _: bool, _: Duration) -> Result<Vec<(String, String)>, ObjectError> {
        Ok(Vec::new())
    }

    fn forget(&self, _: &PodUid) {}
}

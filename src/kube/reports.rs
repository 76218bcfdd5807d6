//! The requests that reporters make at the API server, and what its answers mean for them.
//!
//! Called on the threads `status` and `events`; owns nothing. A trait, so that tests answer in the API
//! server's place; [`ApiClient`] is what runs.

use super::{ApiClient, ApiError, PatchType, paths};
use crate::api::PodName;
use crate::api::meta::{DeleteOptions, Preconditions};
use crate::api::v1::{Event, Pod};

/// Why a request did not do what it was for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such object.
    NotFound,
    /// The object is not the one that was meant, or somebody else changed it meanwhile.
    Conflict,
    /// There is an object of that name already.
    Exists,
    /// The server says no, and would say so again.
    Denied(String),
    /// The server cannot be reached, or is not well: later is another matter.
    Away(String),
    /// The agent ends.
    Ends,
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        match error {
            _ if error.is_not_found() => Self::NotFound,
            _ if error.is_already_exists() => Self::Exists,
            _ if error.is_conflict() => Self::Conflict,
            ApiError::Cancelled { .. } => Self::Ends,
            _ if error.is_temporary() => Self::Away(error.to_string()),
            _ => Self::Denied(error.to_string()),
        }
    }
}

/// Pods at the API server.
pub trait PodApi: Send {
    /// Reads a pod.
    ///
    /// # Errors
    /// Why not.
    fn get(&self, name: &PodName) -> Result<Pod, Refusal>;
    /// Patches a pod's status with a strategic merge patch; gives the pod as it is then.
    ///
    /// # Errors
    /// Why not.
    fn patch_status(&self, name: &PodName, patch: Vec<u8>) -> Result<Pod, Refusal>;
    /// Creates a pod.
    ///
    /// # Errors
    /// Why not.
    fn create(&self, name: &PodName, pod: &Pod) -> Result<(), Refusal>;
    /// Deletes the pod of this uid at once, without a grace period.
    ///
    /// # Errors
    /// Why not.
    fn delete_now(&self, name: &PodName, uid: &str) -> Result<(), Refusal>;
}

/// Events at the API server.
pub trait EventApi: Send {
    /// Creates an event; gives what the server made of it.
    ///
    /// # Errors
    /// Why not.
    fn create_event(&self, event: &Event) -> Result<Event, Refusal>;
    /// Patches the event of that namespace and name.
    ///
    /// # Errors
    /// Why not.
    fn patch_event(&self, namespace: &str, name: &str, patch: Vec<u8>) -> Result<Event, Refusal>;
}

impl PodApi for ApiClient {
    fn get(&self, name: &PodName) -> Result<Pod, Refusal> {
        Ok(ApiClient::get(self, &paths::pod(&name.namespace, &name.name))?)
    }

    fn patch_status(&self, name: &PodName, patch: Vec<u8>) -> Result<Pod, Refusal> {
        Ok(self.patch(&paths::pod_status(&name.namespace, &name.name), PatchType::Strategic, patch)?)
    }

    fn create(&self, name: &PodName, pod: &Pod) -> Result<(), Refusal> {
        let _made: Pod = ApiClient::create(self, &paths::pods(&name.namespace), pod)?;
        Ok(())
    }

    fn delete_now(&self, name: &PodName, uid: &str) -> Result<(), Refusal> {
        let options = DeleteOptions {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            ..DeleteOptions::default()
        };
        Ok(self.delete(&paths::pod(&name.namespace, &name.name), &options)?)
    }
}

impl EventApi for ApiClient {
    fn create_event(&self, event: &Event) -> Result<Event, Refusal> {
        let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
        Ok(ApiClient::create(self, &paths::events(namespace), event)?)
    }

    fn patch_event(&self, namespace: &str, name: &str, patch: Vec<u8>) -> Result<Event, Refusal> {
        Ok(self.patch(&paths::event(namespace, name), PatchType::Strategic, patch)?)
    }
}

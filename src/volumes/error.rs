//! Errors of volumes.
//!
//! Layer L1, plain values. The first words are those of upstream's FailedMount events, which people
//! search for; the rest says what is wrong and what to do. The cause is kept.

use crate::api::v1::Volume;
use crate::host::HostError;

/// Why a volume is not ready.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// This machine refused.
    #[error("MountVolume.SetUp failed for volume {volume:?}")]
    Host {
        /// Name of the volume in the pod.
        volume: String,
        /// What failed.
        source: HostError,
    },
    /// The pod asks for something that cannot be.
    #[error("MountVolume.SetUp failed for volume {volume:?} : {why}")]
    Invalid {
        /// Name of the volume in the pod.
        volume: String,
        /// What is wrong and what would be right.
        why: String,
    },
    /// This version has no such volumes.
    #[error("volume {volume:?} of kind {kind} is not supported: {why}")]
    Unsupported {
        /// Name of the volume in the pod.
        volume: String,
        /// Its kind, by the name of the API field.
        kind: String,
        /// Why, and what to do instead.
        why: String,
    },
}

impl VolumeError {
    /// Puts a volume's name to an error of the host.
    pub fn host(volume: &str) -> impl Fn(HostError) -> Self {
        let volume = volume.to_owned();
        move |source| Self::Host { volume: volume.clone(), source }
    }

    /// A volume that cannot be, with the reason.
    pub fn invalid(volume: &Volume, why: impl Into<String>) -> Self {
        Self::Invalid { volume: volume.name.clone(), why: why.into() }
    }

    /// Name of the volume in the pod.
    pub fn volume(&self) -> &str {
        match self {
            Self::Host { volume, .. } | Self::Invalid { volume, .. } | Self::Unsupported { volume, .. } => volume,
        }
    }
}

//! The threads. Layer L2; they do not import one another.
//!
//! What two of them need stands here, in `core` or in `msg`. Never holds state.

use crate::api::PodUid;
use crate::core::images::{ImageError, ImageEvent, PullRequest, PulledImage};
use crate::util::cancel::Cancel;

pub mod certs;
pub mod events;
pub mod images;
pub mod lease;
pub mod leftovers;
pub mod log_rotation;
pub mod node_status;
pub mod objects;
pub mod pleg;
pub mod pod_worker;
pub mod prober;
pub mod shutdown;
pub mod source;
pub mod status;
pub mod store;

/// Where pod workers get images from: [`images::Puller`], or a script in tests.
pub trait ImageSource: Send + Sync {
    /// Has the image on the node when it returns. Blocks the calling worker for as long as a pull takes;
    /// `cancel` ends that at once. `report` gets the events on the way, the closing `Error: …` included.
    ///
    /// # Errors
    /// [`ImageError::Failed`] carries the waiting reason and message.
    fn ensure(
        &self,
        request: &PullRequest<'_>,
        cancel: &Cancel,
        report: &mut dyn FnMut(ImageEvent),
    ) -> Result<PulledImage, ImageError>;

    /// Drops what is remembered of a pod that is gone.
    fn forget(&self, uid: &PodUid);
}

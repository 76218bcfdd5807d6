//! What an ended container left as its termination message. On an `inspect` thread, since the file is on
//! a file system that may hang; reads a bounded number of bytes of what a container wrote.

use std::path::Path;

use crate::api::labels::Marks;
use crate::api::runtime::{Exit, RuntimeContainer};
use crate::host::files::read_start;

/// Longest termination message, as in the API.
const MESSAGE_LIMIT: u64 = 4096;

/// The termination message, if the container left one.
pub(super) fn last_words(container: &RuntimeContainer, _exit: &Exit, _pod_logs_dir: &Path) -> Option<String> {
    let marks = Marks::read(&container.annotations);
    if marks.termination_message_path.is_empty() {
        return None;
    }
    let mount = container.mounts.iter().find(|m| m.container_path == marks.termination_message_path)?;
    match read_start(Path::new(&mount.host_path), MESSAGE_LIMIT) {
        Ok(bytes) => bytes.filter(|b| !b.is_empty()).map(|b| String::from_utf8_lossy(&b).into_owned()),
        Err(error) => Some(format!("Error on reading termination log {}: {error}", mount.host_path)),
    }
}

//! What an ended container left as its termination message. On an `inspect` thread, since the file is on
//! a file system that may hang; reads a bounded number of bytes of what a container wrote.

use std::path::Path;

use crate::api::runtime::{Exit, RuntimeContainer};
use crate::host::logs;

/// The termination message: the file, or the end of the log where the pod asks for that after an error.
pub(super) fn last_words(container: &RuntimeContainer, exit: &Exit) -> Option<String> {
    let marks = &container.marks;
    let mount = container.mounts.iter().find(|m| m.container_path == marks.termination_message_path);
    if let Some(mount) = mount.filter(|_| !marks.termination_message_path.is_empty()) {
        match logs::termination_message(Path::new(&mount.host_path)) {
            Ok(words) if !words.is_empty() => return Some(words),
            Ok(_) => {}
            Err(error) => return Some(format!("Error on reading termination log {}: {error}", mount.host_path)),
        }
    }
    if !marks.fallback_to_logs || exit.code == 0 || exit.reason == "ContainerCannotRun" || container.log_path.is_empty()
    {
        return None;
    }
    match logs::last_words(Path::new(&container.log_path)) {
        Ok(words) => Some(words).filter(|w| !w.is_empty()),
        Err(error) => Some(format!("Error on reading termination message from logs: {error}")),
    }
}

//! The `leftovers` thread: looks for pods of which only folders, logs or cgroups are left.
//!
//! Owns nothing; it reads folder names at the start and every now and then, and tells the sync loop of
//! pods that the loop does not know. It has to look again, since what dies in the middle of its work
//! leaves things behind later than an agent's start: a runtime that is killed while it makes a sandbox
//! leaves the cgroup. It removes nothing itself.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;

use crate::api::PodUid;
use crate::host::cgroup::CgroupTree;
use crate::host::error::explain;
use crate::host::pod_dirs::PodDirs;
use crate::msg::NodeView;
use crate::util::cancel::Cancel;
use crate::util::order;
use crate::util::snapshot::Snapshot;
use crate::util::thread::{OwnerThread, StackSize};

/// Where to look.
#[derive(Clone, Debug)]
pub struct Places {
    /// Folders and logs of pods.
    pub dirs: PodDirs,
    /// Cgroups of pods; `None` when the agent makes none.
    pub cgroups: Option<CgroupTree>,
}

impl Places {
    /// Every pod that has something there, in order. A place that cannot be read is told in the log and
    /// passed over.
    pub fn pods(&self) -> Vec<PodUid> {
        let mut uids = self.dirs.list().unwrap_or_else(|error| {
            log::warn!("folders of pods are not looked at: {}", explain(&error));
            Vec::new()
        });
        match self.dirs.list_logs() {
            Ok(found) => uids.extend(found.into_iter().map(|(_, uid)| uid)),
            Err(error) => log::warn!("logs of pods are not looked at: {}", explain(&error)),
        }
        if let Some(cgroups) = &self.cgroups {
            match cgroups.list_pods() {
                Ok(found) => uids.extend(found.into_iter().map(|(_, uid)| uid)),
                Err(error) => log::warn!("cgroups of pods are not looked at: {}", explain(&error)),
            }
        }
        order::sort(&mut uids);
        uids.dedup();
        uids
    }
}

/// The running thread; dropping it ends it.
#[derive(Debug)]
pub struct LeftoversHandle {
    stop: Cancel,
    _thread: OwnerThread,
}

impl LeftoversHandle {
    /// Looks now and then every `period`. What the loop knows of is in `view` and not told.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn start(
        places: Places,
        period: Duration,
        view: Arc<Snapshot<NodeView>>,
        to_loop: Sender<Vec<PodUid>>,
    ) -> io::Result<Self> {
        let stop = Cancel::new();
        let token = stop.clone();
        let thread = OwnerThread::spawn("leftovers", StackSize::Small, move || {
            loop {
                let found = places.pods();
                let known = view.get();
                let unknown: Vec<PodUid> = found.into_iter().filter(|uid| !known.pods.contains_key(uid)).collect();
                if !unknown.is_empty() && to_loop.send(unknown).is_err() {
                    // The loop has ended, and so does the agent.
                    return;
                }
                if token.wait(period) {
                    return;
                }
            }
        })?;
        Ok(Self { stop, _thread: thread })
    }
}

impl Drop for LeftoversHandle {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::PodName;
    use crate::msg::PodView;

    const LONG: Duration = Duration::from_secs(10);

    fn uid(text: &str) -> PodUid {
        PodUid::from(text)
    }

    #[test]
    fn tells_of_folders_and_logs_that_nobody_knows_and_looks_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let dirs = PodDirs::new(folder.path().join("root"), folder.path().join("logs"));
        dirs.ensure_roots().expect("roots");
        dirs.ensure_pod(&uid("folder")).expect("a folder");
        dirs.ensure_pod(&uid("known")).expect("a folder");
        let name = PodName { namespace: "default".to_owned(), name: "web".to_owned() };
        dirs.ensure_logs(&name, &uid("logs")).expect("logs");

        let known = PodView::named(uid("known"), name.clone());
        let mut view = NodeView::default();
        view.pods.insert(uid("known"), Arc::new(known));
        let (sender, told) = crossbeam_channel::bounded(1);
        let places = Places { dirs: dirs.clone(), cgroups: None };
        let period = Duration::from_millis(1);
        let handle = LeftoversHandle::start(places, period, Arc::new(Snapshot::new(view)), sender).expect("a thread");
        assert_eq!(told.recv_timeout(LONG), Ok(vec![uid("folder"), uid("logs")]));

        dirs.ensure_logs(&name, &uid("later")).expect("logs");
        let now = vec![uid("folder"), uid("later"), uid("logs")];
        assert!(told.iter().any(|found| found == now));
        // A loop that has ended is no reason to hang.
        drop(told);
        drop(handle);
    }
}

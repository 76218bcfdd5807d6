//! Id ranges of pods with a user namespace of their own (`hostUsers: false`, KEP-127).
//!
//! On a `pod-N` thread. A pod's range is written to `userns` in its folder, as upstream does, before it
//! is used, and is free again when the folder is gone: so it survives the agent, and nothing else has to
//! be remembered. One lock keeps two workers from taking the same range; only small files are read
//! under it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::api::PodUid;
use crate::api::runtime::IdMapping;
use crate::core::spec::UserNamespace;
use crate::host::pod_dirs::PodDirs;
use crate::util::fs::{read_bounded, write_atomic};

/// Largest file of ranges that is read.
const FILE_LIMIT: u64 = 4096;

/// Two workers never look for a free range at once.
static CHOOSING: Mutex<()> = Mutex::new(());

/// How the ids of this node are shared out: the first range is the node's own, the next ones are for pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRanges {
    /// Ids of one pod (`userNamespaces.idsPerPod`).
    pub per_pod: u32,
    /// How many pods there are ranges for.
    pub pods: u32,
}

/// The file `userns` in a pod's folder, in upstream's form.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    uid_mappings: Vec<Range>,
    gid_mappings: Vec<Range>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Range {
    host_id: u32,
    container_id: u32,
    length: u32,
}

/// The pod's range: the one that it has, else a free one. Its folder must exist.
///
/// # Errors
/// In plain words: no range is free, or the file cannot be read or written.
pub(super) fn range_of(dirs: &PodDirs, ranges: IdRanges, uid: &PodUid) -> Result<UserNamespace, String> {
    let _choosing = CHOOSING.lock().unwrap_or_else(PoisonError::into_inner);
    let path = dirs.pod(uid).map_err(|e| e.to_string())?.join("userns");
    if let Some(own) = read(&path)? {
        return Ok(namespace(own, ranges.per_pod));
    }
    let mut taken = BTreeSet::new();
    for other in dirs.list().map_err(|e| e.to_string())? {
        let folder = dirs.pod(&other).map_err(|e| e.to_string())?;
        taken.extend(read(&folder.join("userns"))?);
    }
    let free = (1..=ranges.pods).filter_map(|n| n.checked_mul(ranges.per_pod)).find(|first| !taken.contains(first));
    let Some(first) = free else {
        return Err(format!("all {} id ranges for user namespaces are taken: raise maxPods", ranges.pods));
    };
    let range = || Range { host_id: first, container_id: 0, length: ranges.per_pod };
    let file = File { uid_mappings: vec![range()], gid_mappings: vec![range()] };
    let text = serde_json::to_vec(&file).map_err(|e| e.to_string())?;
    write_atomic(&path, &text, 0o644).map_err(|e| e.to_string())?;
    Ok(namespace(first, ranges.per_pod))
}

/// First host id of the range in a file; `None` if there is no file.
fn read(path: &Path) -> Result<Option<u32>, String> {
    let bytes = match read_bounded(path, FILE_LIMIT) {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    // A torn file is an error and not a free range: its pod may run with ids that are nobody else's.
    let file: File =
        serde_json::from_slice(&bytes).map_err(|e| format!("{}: {e}; remove the pod to free it", path.display()))?;
    Ok(file.uid_mappings.first().map(|range| range.host_id))
}

fn namespace(first: u32, length: u32) -> UserNamespace {
    let mapping = IdMapping { host_id: first, container_id: 0, length };
    (vec![mapping], vec![mapping])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_kept_apart_and_kept() {
        let folder = tempfile::tempdir().expect("tempdir");
        let dirs = PodDirs::new(folder.path(), folder.path().join("logs"));
        let ranges = IdRanges { per_pod: 65536, pods: 2 };
        let first_of = |uid: &str| {
            let uid = PodUid::from(uid);
            dirs.ensure_pod(&uid).expect("folder");
            range_of(&dirs, ranges, &uid).map(|(uids, _)| uids[0].host_id)
        };
        assert_eq!(first_of("a"), Ok(65536));
        assert_eq!(first_of("b"), Ok(131_072));
        assert_eq!(first_of("a"), Ok(65536), "a pod keeps its range");
        assert!(first_of("c").expect_err("none is free").contains("maxPods"));
        std::fs::remove_dir_all(folder.path().join("pods/b")).expect("b is gone");
        assert_eq!(first_of("c"), Ok(131_072), "a range is free with its pod's folder");
    }

    #[test]
    fn a_torn_file_frees_nothing() {
        let folder = tempfile::tempdir().expect("tempdir");
        let dirs = PodDirs::new(folder.path(), folder.path().join("logs"));
        let uid = PodUid::from("a");
        dirs.ensure_pod(&uid).expect("folder");
        std::fs::write(folder.path().join("pods/a/userns"), "{\"uidMapp").expect("write");
        let error = range_of(&dirs, IdRanges { per_pod: 65536, pods: 2 }, &uid).expect_err("torn");
        assert!(error.contains("userns"), "{error}");
    }
}

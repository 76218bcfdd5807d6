//! emptyDir volumes, on disk or in memory; the memory kind also carries the volumes that the agent fills.
//!
//! Layer L1, blocking, on a pod worker. A mark under the pod's `plugins` folder says that a volume is
//! ready, where upstream keeps it too; from then on its content is the pod's and is never touched.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::{EMPTY_DIR, VolumeContext, VolumeError, group_of};
use crate::api::pod as pods;
use crate::api::quantity;
use crate::api::v1::{Pod, Volume};
use crate::host::HostError;
use crate::host::files::{ChangePolicy, ensure_folder, give_to_group};
use crate::host::mounts::{self, MountTable};
use crate::util::order;

/// Mode of a volume: any user of the pod's containers may write, and the pod keeps others out.
const MODE: u32 = 0o777;
/// Mode of the top of a memory volume: that of a fresh tmpfs.
const MEMORY_MODE: u32 = 0o1777;
/// Mode of the agent's own folders around it.
const FOLDER_MODE: u32 = 0o750;

/// What an emptyDir lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    /// The disk of the root folder.
    Disk,
    /// Memory, at most this many bytes.
    Memory(u64),
    /// Huge pages of this many bytes each.
    HugePages(u64),
}

/// Makes an emptyDir volume, unless it is ready, and returns its folder.
pub fn mount(
    ctx: &VolumeContext<'_>,
    pod: &Pod,
    volume: &Volume,
    memory_limit: Option<u64>,
) -> Result<PathBuf, VolumeError> {
    let medium = medium(ctx, pod, volume, memory_limit)?;
    ensure(ctx, pod, volume, EMPTY_DIR, medium)
}

/// Makes a folder in memory for a volume that the agent fills, unless it is there.
pub(super) fn mount_memory(
    ctx: &VolumeContext<'_>,
    pod: &Pod,
    volume: &Volume,
    plugin: &str,
    memory_limit: Option<u64>,
) -> Result<PathBuf, VolumeError> {
    ensure(ctx, pod, volume, plugin, Medium::Memory(smallest(ctx.node_memory, memory_limit, None)))
}

pub(super) fn ensure(
    ctx: &VolumeContext<'_>,
    pod: &Pod,
    volume: &Volume,
    plugin: &str,
    medium: Medium,
) -> Result<PathBuf, VolumeError> {
    let failed = VolumeError::host(&volume.name);
    let uid = pods::pod_uid(pod);
    let dir = ctx.dirs.volume(&uid, plugin, &volume.name).map_err(&failed)?;
    let notes = notes(ctx, pod, volume, plugin)?;
    let ready = notes.join("ready");
    let in_place = match medium {
        Medium::Disk => dir.is_dir(),
        Medium::Memory(_) | Medium::HugePages(_) => {
            MountTable::read(ctx.mount_table).map_err(&failed)?.is_mount_point(&dir)
        }
    };
    if in_place && ready.exists() {
        return Ok(dir);
    }
    make(&dir, medium, in_place).map_err(&failed)?;
    if let Some(gid) = group_of(pod)
        && plugin == EMPTY_DIR
    {
        // A file that refuses is passed over, as upstream does: it may be on a file system without groups.
        give_to_group(&dir, gid, false, ChangePolicy::Always).map_err(&failed)?;
    }
    ensure_folder(&notes, FOLDER_MODE)
        .and_then(|()| fs::write(&ready, "").map_err(|e| HostError::io("write", &ready, e)))
        .map_err(&failed)?;
    Ok(dir)
}

/// The folder with the mark of a volume.
fn notes(ctx: &VolumeContext<'_>, pod: &Pod, volume: &Volume, plugin: &str) -> Result<PathBuf, VolumeError> {
    // A volume that the agent fills counts as an emptyDir in wrapping paper, as upstream has it.
    let wrapped = format!("wrapped_{}", volume.name);
    let note = if plugin == EMPTY_DIR { &volume.name } else { &wrapped };
    ctx.dirs.plugin_notes(&pods::pod_uid(pod), EMPTY_DIR, note).map_err(VolumeError::host(&volume.name))
}

/// Whether a volume was made, by its mark.
pub(super) fn is_ready(ctx: &VolumeContext<'_>, pod: &Pod, volume: &Volume, plugin: &str) -> Result<bool, VolumeError> {
    notes(ctx, pod, volume, plugin).map(|notes| notes.join("ready").exists())
}

fn make(dir: &Path, medium: Medium, in_place: bool) -> Result<(), HostError> {
    if let Some(parent) = dir.parent() {
        ensure_folder(parent, FOLDER_MODE)?;
    }
    ensure_folder(dir, MODE)?;
    match medium {
        Medium::Disk => {
            // The agent may have died between mkdir and chmod.
            let mode = fs::Permissions::from_mode(MODE);
            fs::set_permissions(dir, mode).map_err(|e| HostError::io("set the mode of", dir, e))
        }
        _ if in_place => Ok(()),
        Medium::Memory(size) => mounts::mount_tmpfs(dir, Some(size), MEMORY_MODE),
        Medium::HugePages(size) => mounts::mount_hugetlbfs(dir, size),
    }
}

fn medium(
    ctx: &VolumeContext<'_>,
    pod: &Pod,
    volume: &Volume,
    memory_limit: Option<u64>,
) -> Result<Medium, VolumeError> {
    let source = volume.empty_dir.as_ref();
    let bytes = |quantity: Option<&crate::api::Quantity>, field: &str| match quantity {
        None => Ok(None),
        Some(quantity) => match quantity::bytes(quantity) {
            Ok(bytes) => Ok(u64::try_from(bytes).ok()),
            Err(e) => Err(VolumeError::invalid(volume, format!("{field} {:?}: {e}", quantity.0))),
        },
    };
    let word = source.and_then(|source| source.medium.as_deref()).unwrap_or_default();
    match word {
        "" => Ok(Medium::Disk),
        "Memory" => {
            let limit = bytes(source.and_then(|source| source.size_limit.as_ref()), "sizeLimit")?;
            Ok(Medium::Memory(smallest(ctx.node_memory, memory_limit, limit)))
        }
        _ => match word.strip_prefix("HugePages") {
            Some(size) => huge_page_size(pod, volume, size.strip_prefix('-')).map(Medium::HugePages),
            None => {
                let why = format!("medium {word:?} is none of \"\", Memory, HugePages, HugePages-<size>");
                Err(VolumeError::invalid(volume, why))
            }
        },
    }
}

/// The bound of a memory volume: the least of what the node, the pod and the volume allow; 0 is no bound.
fn smallest(node: u64, pod: Option<u64>, volume: Option<u64>) -> u64 {
    [pod, volume].into_iter().flatten().filter(|limit| *limit > 0).fold(node, u64::min)
}

/// Page size of a HugePages volume: the one it names, which a container must request, or the only one
/// that the pod requests.
fn huge_page_size(pod: &Pod, volume: &Volume, named: Option<&str>) -> Result<u64, VolumeError> {
    let size = |text: &str| {
        let quantity = crate::api::Quantity(text.to_owned());
        quantity::bytes(&quantity).ok().and_then(|bytes| u64::try_from(bytes).ok()).filter(|bytes| *bytes > 0)
    };
    let mut requested: Vec<u64> = pods::all_containers(pod)
        .filter_map(|(_, container)| container.resources.clone())
        .flat_map(|resources| [resources.requests, resources.limits])
        .flatten()
        .flat_map(|list| list.into_keys())
        .filter_map(|name| size(name.strip_prefix("hugepages-")?))
        .collect();
    order::sort(&mut requested);
    requested.dedup();
    let wrong = |why: String| Err(VolumeError::invalid(volume, why));
    match (named, &requested[..]) {
        (None, [only]) => Ok(*only),
        (None, []) => wrong("medium HugePages: no container requests huge pages".to_owned()),
        (None, _) => wrong("medium HugePages: containers request several page sizes; name one of them".to_owned()),
        (Some(text), requested) => match size(text) {
            Some(size) if requested.contains(&size) => Ok(size),
            _ => wrong(format!("medium HugePages-{text}: no container requests hugepages-{text}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_bound_counts() {
        for (node, pod, volume, expect) in [
            (100, None, None, 100),
            (100, Some(50), None, 50),
            (100, Some(50), Some(70), 50),
            (100, Some(50), Some(20), 20),
            (100, Some(0), Some(0), 100),
            (100, Some(200), Some(300), 100),
        ] {
            assert_eq!(smallest(node, pod, volume), expect);
        }
    }

    #[test]
    fn the_page_size_is_one_that_the_pod_requests() {
        let check = |requests: &[&str], named: Option<&str>, expect: Result<u64, &str>| {
            let limits: serde_json::Map<_, _> =
                requests.iter().map(|size| (format!("hugepages-{size}"), serde_json::json!("4Mi"))).collect();
            let container = serde_json::json!({ "name": "a", "resources": { "limits": limits } });
            let pod: Pod =
                serde_json::from_value(serde_json::json!({ "spec": { "containers": [container] } })).unwrap();
            let volume = Volume { name: "v".to_owned(), ..Volume::default() };
            match (huge_page_size(&pod, &volume, named), expect) {
                (Ok(size), Ok(expect)) => assert_eq!(size, expect),
                (Err(e), Err(expect)) => assert!(e.to_string().contains(expect), "{e}"),
                (got, _) => panic!("{requests:?} {named:?}: {got:?}"),
            }
        };
        check(&["2Mi"], None, Ok(2 << 20));
        check(&["2Mi", "1Gi"], Some("1Gi"), Ok(1 << 30));
        check(&["2Mi", "1Gi"], None, Err("name one of them"));
        check(&[], None, Err("no container requests huge pages"));
        check(&["2Mi"], Some("1Gi"), Err("no container requests hugepages-1Gi"));
        check(&["2Mi"], Some("lots"), Err("no container requests hugepages-lots"));
    }
}

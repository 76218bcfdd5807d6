//! Where a pod's files lie on this machine, as upstream lays them out: CSI drivers, log shippers and
//! people know these paths, and either agent can take a node over from the other.
//!
//! Layer L1, blocking, called by pod workers and housekeeping. [`PodDirs`] owns two paths and nothing
//! else. It never joins a name that is not one plain file name (uids of static pods come from
//! manifests), never crosses a mount point when it removes, and decides nothing.
//!
//! ```text
//! <root-dir>/pods/<uid>/volumes/<plugin>/<volume>           plugin: kubernetes.io~empty-dir, …
//!                       plugins/<plugin>/<volume>           what a plugin notes about it
//!                       volume-subpaths/<volume>/<container>/<mount index>
//!                       containers/<container>/<8 hex>      termination message of one run
//!                       etc-hosts
//! <podLogsDir>/<namespace>_<name>_<uid>/<container>/<attempt>.log
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::HostError;
use super::files::{ensure_folder, is_file_name, random_hex, read_start};
use super::mounts::MountTable;
use super::remove::remove_tree;
use crate::api::{PodName, PodUid};
use crate::util::order;

/// Mode of folders below the root folder.
const FOLDER_MODE: u32 = 0o750;
/// Mode of log folders, which log shippers without root read.
const LOG_FOLDER_MODE: u32 = 0o755;
/// How many names for a new termination file are tried.
const NAME_TRIES: usize = 16;
/// Largest managed hosts file that is compared before it is written.
const HOSTS_LIMIT: u64 = 1 << 20;

/// The layout of pods' files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDirs {
    root: PathBuf,
    logs: PathBuf,
}

impl PodDirs {
    /// For a root folder (`--root-dir`) and a log folder (`podLogsDir`).
    pub fn new(root_dir: impl Into<PathBuf>, pod_logs_dir: impl Into<PathBuf>) -> Self {
        Self { root: root_dir.into(), logs: pod_logs_dir.into() }
    }

    /// The root folder (`--root-dir`).
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes the root folder, its `pods` and the log folder.
    pub fn ensure_roots(&self) -> Result<(), HostError> {
        ensure_folder(&self.root, FOLDER_MODE)?;
        ensure_folder(&self.pods(), FOLDER_MODE)?;
        ensure_folder(&self.logs, LOG_FOLDER_MODE)
    }

    /// The folder of all pods.
    pub fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    /// The folder of a pod.
    pub fn pod(&self, uid: &PodUid) -> Result<PathBuf, HostError> {
        Ok(self.pods().join(name("use as a pod uid", uid.as_str())?))
    }

    /// The folder of a pod's volumes.
    pub fn volumes(&self, uid: &PodUid) -> Result<PathBuf, HostError> {
        Ok(self.pod(uid)?.join("volumes"))
    }

    /// The folder of one volume; `plugin` in its form on disk, e.g. `kubernetes.io~empty-dir`.
    pub fn volume(&self, uid: &PodUid, plugin: &str, volume: &str) -> Result<PathBuf, HostError> {
        Ok(self.volumes(uid)?.join(plugin).join(name("use as a volume name", volume)?))
    }

    /// The folder in which a plugin notes what it knows of a volume.
    pub fn plugin_notes(&self, uid: &PodUid, plugin: &str, volume: &str) -> Result<PathBuf, HostError> {
        Ok(self.pod(uid)?.join("plugins").join(plugin).join(name("use as a volume name", volume)?))
    }

    /// The folder of all mounts for `subPath`.
    pub fn subpaths(&self, uid: &PodUid) -> Result<PathBuf, HostError> {
        Ok(self.pod(uid)?.join("volume-subpaths"))
    }

    /// Where one `subPath` is mounted; `index` counts the container's volumeMounts from 0.
    pub fn subpath(&self, uid: &PodUid, volume: &str, container: &str, index: usize) -> Result<PathBuf, HostError> {
        let folder = self.subpaths(uid)?.join(name("use as a volume name", volume)?);
        Ok(folder.join(name("use as a container name", container)?).join(index.to_string()))
    }

    /// The folder of a container's termination messages.
    pub fn container(&self, uid: &PodUid, container: &str) -> Result<PathBuf, HostError> {
        Ok(self.pod(uid)?.join("containers").join(name("use as a container name", container)?))
    }

    /// The managed hosts file.
    pub fn etc_hosts(&self, uid: &PodUid) -> Result<PathBuf, HostError> {
        Ok(self.pod(uid)?.join("etc-hosts"))
    }

    /// Makes the folders of a pod. Those that are there stay as they are.
    pub fn ensure_pod(&self, uid: &PodUid) -> Result<(), HostError> {
        let pod = self.pod(uid)?;
        for folder in [pod.clone(), pod.join("volumes"), pod.join("plugins")] {
            ensure_folder(&folder, FOLDER_MODE)?;
        }
        Ok(())
    }

    /// The uids that have a folder here, in order.
    pub fn list(&self) -> Result<Vec<PodUid>, HostError> {
        let pods = self.pods();
        let entries = match fs::read_dir(&pods) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(HostError::io("list pods in", pods, e)),
        };
        let mut uids = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|e| HostError::io("list pods in", &pods, e))?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir())
                && let Some(uid) = entry.file_name().to_str()
            {
                uids.push(PodUid::from(uid));
            }
        }
        order::sort(&mut uids);
        Ok(uids)
    }

    /// Removes a pod's folder with all in it. `mount_table` is [`super::mounts::MOUNT_TABLE`]; while
    /// anything in it is still mounted nothing is removed at all, since it may be somebody's data.
    pub fn remove(&self, uid: &PodUid, mount_table: &Path) -> Result<(), Vec<HostError>> {
        let pod = self.pod(uid).map_err(|e| vec![e])?;
        let table = MountTable::read(mount_table).map_err(|e| vec![e])?;
        let mounts: Vec<_> = table.under(&pod).iter().map(|entry| entry.mount_point.clone()).collect();
        if !mounts.is_empty() {
            return Err(vec![HostError::StillMounted { path: pod, mounts }]);
        }
        remove_tree(&pod)
    }

    /// Writes the managed hosts file unless it already says the same. In place, not by rename: running
    /// containers have this very file mounted.
    pub fn write_etc_hosts(&self, uid: &PodUid, content: &str) -> Result<PathBuf, HostError> {
        let path = self.etc_hosts(uid)?;
        // Not a link that a pod could have put there: only this agent writes in this folder.
        let same = read_start(&path, HOSTS_LIMIT)?.is_some_and(|old| old == content.as_bytes());
        if !same {
            let failed = |e| HostError::io("write", &path, e);
            fs::write(&path, content).map_err(failed)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).map_err(failed)?;
        }
        Ok(path)
    }

    /// Makes an empty file for the termination message of one run of a container, which any user of the
    /// container can write, and returns its path on the host.
    pub fn make_termination_file(&self, uid: &PodUid, container: &str) -> Result<PathBuf, HostError> {
        let folder = self.container(uid, container)?;
        ensure_folder(&folder, FOLDER_MODE)?;
        for _ in 0..NAME_TRIES {
            let path = folder.join(random_hex());
            match fs::OpenOptions::new().write(true).create_new(true).mode(0o666).open(&path) {
                Ok(file) => {
                    file.set_permissions(fs::Permissions::from_mode(0o666))
                        .map_err(|e| HostError::io("open to all", &path, e))?;
                    return Ok(path);
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(HostError::io("make termination file", path, e)),
            }
        }
        Err(HostError::refused("make a termination file in", folder, "all names tried are taken"))
    }

    /// Removes termination files of runs that are over: all but those still mounted in a container
    /// that exists. A crash loop would else fill the folder.
    pub fn prune_termination_files(&self, uid: &PodUid, container: &str, keep: &[PathBuf]) -> Result<(), HostError> {
        let folder = self.container(uid, container)?;
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(HostError::io("list", folder, e)),
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_file()) && !keep.contains(&path) {
                fs::remove_file(&path).map_err(|e| HostError::io("remove", path, e))?;
            }
        }
        Ok(())
    }

    /// The folder of a pod's logs.
    pub fn logs(&self, pod: &PodName, uid: &PodUid) -> Result<PathBuf, HostError> {
        let text = format!("{}_{}_{uid}", pod.namespace, pod.name);
        Ok(self.logs.join(name("use as a log folder", &text)?))
    }

    /// The folder of a container's logs.
    pub fn container_logs(&self, pod: &PodName, uid: &PodUid, container: &str) -> Result<PathBuf, HostError> {
        Ok(self.logs(pod, uid)?.join(name("use as a container name", container)?))
    }

    /// Makes the folder of a pod's logs.
    pub fn ensure_logs(&self, pod: &PodName, uid: &PodUid) -> Result<PathBuf, HostError> {
        let folder = self.logs(pod, uid)?;
        ensure_folder(&folder, LOG_FOLDER_MODE)?;
        Ok(folder)
    }

    /// Makes the folder of a container's logs.
    pub fn ensure_container_logs(&self, pod: &PodName, uid: &PodUid, container: &str) -> Result<PathBuf, HostError> {
        self.ensure_logs(pod, uid)?;
        let folder = self.container_logs(pod, uid, container)?;
        ensure_folder(&folder, LOG_FOLDER_MODE)?;
        Ok(folder)
    }

    /// Removes a pod's logs.
    pub fn remove_logs(&self, pod: &PodName, uid: &PodUid) -> Result<(), Vec<HostError>> {
        remove_tree(&self.logs(pod, uid).map_err(|e| vec![e])?)
    }

    /// The pods that have a log folder: name and uid. Other folders are left out.
    pub fn list_logs(&self) -> Result<Vec<(PodName, PodUid)>, HostError> {
        let entries = match fs::read_dir(&self.logs) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(HostError::io("list logs in", &self.logs, e)),
        };
        let mut found: Vec<_> = entries.flatten().filter_map(|e| parse_log_folder(e.file_name().to_str()?)).collect();
        order::sort(&mut found);
        Ok(found)
    }
}

fn parse_log_folder(text: &str) -> Option<(PodName, PodUid)> {
    // Neither namespaces, pod names nor uids hold an underscore.
    let mut parts = text.split('_');
    let (namespace, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
    let whole = parts.next().is_none() && [namespace, name, uid].iter().all(|part| !part.is_empty());
    whole.then(|| (PodName { namespace: namespace.to_owned(), name: name.to_owned() }, PodUid::from(uid)))
}

/// Highest attempt of which a container's log folder holds a log (`<attempt>.log` and what rotation made
/// of it): the restart count that survives when the runtime has lost its containers.
pub fn last_attempt(container_logs: &Path) -> Option<u32> {
    let entries = fs::read_dir(container_logs).ok()?;
    let attempt = |name: &str| {
        let (number, rest) = name.split_once('.')?;
        (rest == "log" || rest.starts_with("log.")).then(|| number.parse().ok()).flatten()
    };
    entries.flatten().filter_map(|entry| attempt(entry.file_name().to_str()?)).max()
}

/// Name of the link under /var/log/containers that leads to a container's log; at most 255 bytes, cut
/// before the `.log`.
pub fn log_link_name(pod: &PodName, container: &str, container_id: &str) -> String {
    let mut text = format!("{}_{}_{container}-{container_id}", pod.name, pod.namespace);
    let mut end = text.len().min(255 - ".log".len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text + ".log"
}

/// Puts such a link into `folder` (/var/log/containers), in place of an older one of the same name.
pub fn link_log(folder: &Path, link_name: &str, target: &Path) -> Result<(), HostError> {
    ensure_folder(folder, LOG_FOLDER_MODE)?;
    let link = folder.join(name("use as a log link", link_name)?);
    let failed = |e| HostError::io("make log link", &link, e);
    if fs::read_link(&link).is_ok_and(|old| old == target) {
        return Ok(());
    }
    remove_log_link(folder, link_name)?;
    std::os::unix::fs::symlink(target, &link).map_err(failed)
}

/// Removes such a link; none there is a success.
pub fn remove_log_link(folder: &Path, link_name: &str) -> Result<(), HostError> {
    let link = folder.join(name("use as a log link", link_name)?);
    match fs::remove_file(&link) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(HostError::io("remove log link", link, e)),
        _ => Ok(()),
    }
}

/// Removes links whose log is gone, and returns how many.
pub fn prune_log_links(folder: &Path) -> Result<usize, HostError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(e) => return Err(HostError::io("list log links in", folder, e)),
    };
    let mut removed = 0;
    for entry in entries.flatten() {
        let path = entry.path();
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        if is_link && fs::metadata(&path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
            fs::remove_file(&path).map_err(|e| HostError::io("remove log link", path, e))?;
            removed += 1;
        }
    }
    Ok(removed)
}

fn name<'a>(op: &'static str, text: &'a str) -> Result<&'a str, HostError> {
    if is_file_name(text) {
        return Ok(text);
    }
    Err(HostError::refused(op, text, "it must be one file name of at most 255 bytes without a slash"))
}

#[cfg(test)]
#[path = "pod_dirs_tests.rs"]
mod tests;

//! Mounts of a container: volumes, sub paths, /etc/hosts, the termination message.
//!
//! Layer L1, pure. Sub paths are only named here: binding them so that they cannot escape their volume
//! is the worker's work, and a mount whose sub path was not bound is refused.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::pod;
use crate::api::runtime::{Mount, Propagation};
use crate::api::v1::{Container, Pod, VolumeMount};

use super::expand::expand;
use super::{ContainerInputs, NodeFacts, SpecError, VolumeSource};

const ETC_HOSTS: &str = "/etc/hosts";

/// A sub path that the worker has to bind before the container is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubPath {
    /// Place in `volumeMounts`: the key in [`ContainerInputs::subpaths`].
    pub mount_index: usize,
    /// Volume.
    pub volume: String,
    /// Path of the volume on the node.
    pub volume_path: String,
    /// Path in the volume, expanded, relative, without `..`.
    pub path: String,
    /// Where to bind it.
    pub bind_path: String,
}

/// Whether the container gets the pod's /etc/hosts: it has an address to be named in it, and the
/// container mounts nothing of its own there.
pub fn wants_etc_hosts(pod: &Pod, container: &Container, pod_ips: &[String]) -> bool {
    let own = container.volume_mounts.iter().flatten().any(|m| m.mount_path == ETC_HOSTS);
    (pod::is_host_network(pod) || !pod_ips.is_empty()) && !own
}

/// Sub path of a mount, expanded and checked; `None` for the whole volume.
fn sub_path(mount: &VolumeMount, env: &BTreeMap<&str, &str>) -> Result<Option<String>, SpecError> {
    let path = match mount.sub_path_expr.as_deref().filter(|e| !e.is_empty()) {
        None => mount.sub_path.clone().unwrap_or_default(),
        Some(expression) => {
            let mut missing = BTreeSet::new();
            let path = expand(expression, |name| {
                let value = env.get(name).copied().unwrap_or_default();
                if value.is_empty() {
                    missing.insert(name.to_owned());
                }
                Some(value)
            });
            if !missing.is_empty() {
                let names = missing.into_iter().collect::<Vec<_>>().join(", ");
                return Err(SpecError::SubPathVariables { volume: mount.name.clone(), names });
            }
            path
        }
    };
    if path.starts_with('/') || path.split('/').any(|part| part == "..") || path.contains('\0') {
        return Err(SpecError::SubPathEscapes { volume: mount.name.clone(), path });
    }
    Ok(Some(path).filter(|p| !p.is_empty()))
}

fn volume<'a>(
    mount: &VolumeMount,
    container: &Container,
    volumes: &'a BTreeMap<String, VolumeSource>,
) -> Result<&'a VolumeSource, SpecError> {
    volumes
        .get(&mount.name)
        .ok_or_else(|| SpecError::VolumeMissing { volume: mount.name.clone(), container: container.name.clone() })
}

/// Sub paths to bind for the container, given its environment.
pub(super) fn wanted_subpaths(
    pod: &Pod,
    container: &Container,
    facts: &NodeFacts,
    volumes: &BTreeMap<String, VolumeSource>,
    env: &BTreeMap<&str, &str>,
) -> Result<Vec<SubPath>, SpecError> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let mut wanted = Vec::new();
    for (mount_index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        // The runtime takes sub paths of images itself.
        if let VolumeSource::Path { host_path, .. } = volume(mount, container, volumes)?
            && let Some(path) = sub_path(mount, env)?
        {
            wanted.push(SubPath {
                mount_index,
                volume: mount.name.clone(),
                volume_path: host_path.clone(),
                path,
                bind_path: facts.subpath_bind_path(uid, &mount.name, &container.name, mount_index),
            });
        }
    }
    Ok(wanted)
}

/// The container's mounts in order.
pub(super) fn mounts(
    pod: &Pod,
    container: &Container,
    facts: &NodeFacts,
    inputs: &ContainerInputs<'_>,
    env: &BTreeMap<&str, &str>,
) -> Result<Vec<Mount>, SpecError> {
    let can_recurse = facts.handler(inputs.runtime_handler).recursive_read_only_mounts;
    let mut relabelled = BTreeSet::new();
    let mut mounts = Vec::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let source = volume(mount, container, inputs.volumes)?;
        let path = sub_path(mount, env)?;
        let mut result = Mount {
            container_path: absolute(&mount.mount_path),
            readonly: mount.read_only.unwrap_or(false),
            recursive_read_only: recursive_read_only(mount, can_recurse)?,
            propagation: propagation(mount)?,
            ..Mount::default()
        };
        match source {
            VolumeSource::Image(image) => {
                result.readonly = true;
                result.image = Some(image.clone());
                result.image_sub_path = path.unwrap_or_default();
            }
            VolumeSource::Path { host_path, read_only, selinux_relabel } => {
                result.readonly |= read_only;
                // Once is enough, and twice would take time on a large volume.
                result.selinux_relabel = facts.selinux && *selinux_relabel && relabelled.insert(mount.name.as_str());
                result.host_path = match path {
                    None => host_path.clone(),
                    Some(_) => inputs.subpaths.get(&index).cloned().ok_or_else(|| SpecError::SubPathNotPrepared {
                        volume: mount.name.clone(),
                        container: container.name.clone(),
                    })?,
                };
            }
        }
        mounts.push(result);
    }
    let file = |host_path: &str, container_path: &str| Mount {
        container_path: absolute(container_path),
        host_path: host_path.to_owned(),
        selinux_relabel: facts.selinux,
        ..Mount::default()
    };
    if let Some(path) = inputs.etc_hosts.filter(|_| wants_etc_hosts(pod, container, inputs.pod_ips)) {
        mounts.push(file(path, ETC_HOSTS));
    }
    let message_path = container.termination_message_path.as_deref().filter(|p| !p.is_empty());
    if let (Some(path), Some(inside)) = (inputs.termination_log, message_path) {
        mounts.push(file(path, inside));
    }
    if let Some((uids, gids)) = inputs.user_namespace.filter(|_| pod::has_user_namespace(pod)) {
        for mount in &mut mounts {
            mount.uid_mappings.clone_from(uids);
            mount.gid_mappings.clone_from(gids);
        }
    }
    Ok(mounts)
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

fn propagation(mount: &VolumeMount) -> Result<Propagation, SpecError> {
    match mount.mount_propagation.as_deref() {
        None | Some("" | "None") => Ok(Propagation::Private),
        Some("HostToContainer") => Ok(Propagation::HostToContainer),
        Some("Bidirectional") => Ok(Propagation::Bidirectional),
        Some(other) => Err(SpecError::UnknownValue {
            field: "volumeMounts[].mountPropagation",
            value: other.to_owned(),
            expected: "None, HostToContainer or Bidirectional",
        }),
    }
}

fn recursive_read_only(mount: &VolumeMount, supported: bool) -> Result<bool, SpecError> {
    let mode = mount.recursive_read_only.as_deref().unwrap_or("Disabled");
    let refuse =
        |why: String| Err(SpecError::RecursiveReadOnly { volume: mount.name.clone(), mode: mode.to_owned(), why });
    match mode {
        "Disabled" => Ok(false),
        "IfPossible" | "Enabled" if !mount.read_only.unwrap_or(false) => refuse("the mount is not readOnly".to_owned()),
        "IfPossible" | "Enabled" if propagation(mount)? != Propagation::Private => refuse(format!(
            "it does not go with mountPropagation {}",
            mount.mount_propagation.as_deref().unwrap_or_default()
        )),
        "IfPossible" => Ok(supported),
        "Enabled" if supported => Ok(true),
        "Enabled" => refuse("the runtime does not support it".to_owned()),
        other => Err(SpecError::UnknownValue {
            field: "volumeMounts[].recursiveReadOnly",
            value: other.to_owned(),
            expected: "Disabled, IfPossible or Enabled",
        }),
    }
}

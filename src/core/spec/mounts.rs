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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::runtime::{IdMapping, Image, ImageSpec};
    use crate::core::spec::env::EnvSources;
    use crate::core::spec::{HandlerFeatures, UserNamespace, container_spec, subpaths};
    use serde_json::{Value, json};

    const IDS: IdMapping = IdMapping { host_id: 65536, container_id: 0, length: 65536 };

    fn facts(can_recurse: bool) -> NodeFacts {
        let features = HandlerFeatures { recursive_read_only_mounts: can_recurse, user_namespaces: true };
        NodeFacts {
            root_dir: "/r".into(),
            selinux: true,
            handlers: [(String::new(), features)].into(),
            ..NodeFacts::default()
        }
    }

    fn run(container: Value, spec: Value, pod_ips: &[&str], can_recurse: bool) -> Result<Vec<Mount>, SpecError> {
        let mut spec = spec;
        let mut container = container;
        container["name"] = json!("c");
        container["env"] =
            json!([{"name": "DIR", "value": "d"}, {"name": "UP", "value": ".."}, {"name": "NIL", "value": ""}]);
        spec["containers"] = json!([container]);
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u"}, "spec": spec})).expect("a pod");
        let own =
            |path: &str, read_only| VolumeSource::Path { host_path: path.into(), read_only, selinux_relabel: true };
        let volumes = BTreeMap::from([
            ("data".to_owned(), own("/r/data", false)),
            ("conf".to_owned(), own("/r/conf", true)),
            (
                "host".to_owned(),
                VolumeSource::Path { host_path: "/srv".into(), read_only: false, selinux_relabel: false },
            ),
            ("img".to_owned(), VolumeSource::Image(ImageSpec { image: "sha256:1".into(), ..ImageSpec::default() })),
        ]);
        let ips: Vec<String> = pod_ips.iter().map(|ip| (*ip).to_owned()).collect();
        let namespace: UserNamespace = (vec![IDS], vec![IDS]);
        let mut inputs = ContainerInputs {
            attempt: 0,
            image: &Image::default(),
            image_ref: "",
            runtime_handler: "",
            pod_ips: &ips,
            volumes: &volumes,
            subpaths: &BTreeMap::new(),
            etc_hosts: Some("/r/etc-hosts"),
            termination_log: Some("/r/log"),
            target: None,
            user_namespace: Some(&namespace),
            env: &EnvSources::default(),
        };
        let facts = facts(can_recurse);
        let container = &pod::app_containers(&pod)[0];
        let bound = subpaths(&pod, container, &facts, &inputs)?;
        let bound: BTreeMap<usize, String> = bound
            .into_iter()
            .map(|s| (s.mount_index, format!("{} <- {}:{}", s.bind_path, s.volume_path, s.path)))
            .collect();
        inputs.subpaths = &bound;
        Ok(container_spec(&pod, container, &facts, &inputs)?.mounts)
    }

    fn line(m: &Mount) -> String {
        let source = m.image.as_ref().map_or(m.host_path.clone(), |i| format!("{}:{}", i.image, m.image_sub_path));
        let mut text = format!("{} = {source}", m.container_path);
        for (word, is_set) in [
            ("ro", m.readonly),
            ("rro", m.recursive_read_only),
            ("relabel", m.selinux_relabel),
            ("slave", m.propagation == Propagation::HostToContainer),
            ("shared", m.propagation == Propagation::Bidirectional),
            ("mapped", m.uid_mappings == [IDS] && m.gid_mappings == [IDS]),
        ] {
            if is_set {
                text.push_str(&format!(" {word}"));
            }
        }
        text
    }

    fn check(mounts: Value, expect: Result<&[&str], &str>) {
        let got = run(json!({"volumeMounts": mounts}), json!({}), &[], true);
        let got = got.map(|all| all.iter().map(line).collect::<Vec<_>>()).map_err(|e| e.to_string());
        let expect = expect.map(|all| all.iter().map(|l| (*l).to_owned()).collect()).map_err(str::to_owned);
        assert_eq!(got, expect, "{mounts}");
    }

    #[test]
    fn volumes_and_their_modes() {
        check(
            json!([
                {"name": "data", "mountPath": "/a"}, {"name": "data", "mountPath": "b", "readOnly": true},
                {"name": "conf", "mountPath": "/c"}, {"name": "host", "mountPath": "/d", "mountPropagation": "HostToContainer"},
                {"name": "host", "mountPath": "/e", "mountPropagation": "Bidirectional"},
                {"name": "host", "mountPath": "/f", "mountPropagation": "None"},
                {"name": "img", "mountPath": "/g", "subPath": "x/y"},
            ]),
            Ok(&[
                "/a = /r/data relabel",
                "/b = /r/data ro",
                "/c = /r/conf ro relabel",
                "/d = /srv slave",
                "/e = /srv shared",
                "/f = /srv",
                "/g = sha256:1:x/y ro",
            ]),
        );
        check(
            json!([{"name": "nope", "mountPath": "/a"}]),
            Err("cannot find volume \"nope\" to mount into container \"c\""),
        );
        check(
            json!([{"name": "data", "mountPath": "/a", "mountPropagation": "Odd"}]),
            Err("volumeMounts[].mountPropagation: \"Odd\" is unknown; use None, HostToContainer or Bidirectional"),
        );
    }

    #[test]
    fn sub_paths_stay_in_their_volume() {
        let sub = |key: &str, path: &str| json!([{"name": "host", "mountPath": "/x"}, {"name": "data", "mountPath": "/a", key: path}]);
        let bound = |path: &str| format!("/a = /r/pods/u/volume-subpaths/data/c/1 <- /r/data:{path} relabel");
        for (key, path, expect) in [
            ("subPath", "deep/er", Ok("deep/er")),
            ("subPath", "$(DIR)", Ok("$(DIR)")),
            ("subPath", "a..b", Ok("a..b")),
            ("subPathExpr", "x/$(DIR)/$$(DIR)", Ok("x/d/$(DIR)")),
            ("subPath", "../x", Err("subPath \"../x\" must be relative")),
            ("subPath", "a/..", Err("subPath \"a/..\" must be relative")),
            ("subPath", "/etc", Err("subPath \"/etc\" must be relative")),
            ("subPathExpr", "$(UP)/x", Err("subPath \"../x\" must be relative")),
            ("subPathExpr", "$(NOPE)/$(NIL)", Err("subPathExpr needs a value for NIL, NOPE")),
        ] {
            match expect {
                Ok(path_in_volume) => check(sub(key, path), Ok(&["/x = /srv", &bound(path_in_volume)])),
                Err(part) => {
                    let got = run(json!({"volumeMounts": sub(key, path)}), json!({}), &[], true);
                    assert!(got.as_ref().is_err_and(|e| e.to_string().contains(part)), "{key} {path}: {got:?}");
                }
            }
        }
    }

    #[test]
    fn a_sub_path_that_was_not_bound_is_refused() {
        let pod = Pod::default();
        let mount = json!({"name": "c", "volumeMounts": [{"name": "data", "mountPath": "/a", "subPath": "x"}]});
        let container: Container = serde_json::from_value(mount).expect("a container");
        let source = VolumeSource::Path { host_path: "/r".into(), read_only: false, selinux_relabel: false };
        let inputs = ContainerInputs {
            attempt: 0,
            image: &Image::default(),
            image_ref: "",
            runtime_handler: "",
            pod_ips: &[],
            volumes: &[("data".to_owned(), source)].into(),
            subpaths: &BTreeMap::new(),
            etc_hosts: None,
            termination_log: None,
            target: None,
            user_namespace: None,
            env: &EnvSources::default(),
        };
        let got = mounts(&pod, &container, &NodeFacts::default(), &inputs, &BTreeMap::new());
        assert!(matches!(got, Err(SpecError::SubPathNotPrepared { .. })), "{got:?}");
    }

    #[test]
    fn recursive_read_only() {
        for (mode, read_only, propagation, supported, expect) in [
            ("Disabled", false, "None", true, Some(false)),
            ("IfPossible", true, "None", true, Some(true)),
            ("IfPossible", true, "None", false, Some(false)),
            ("IfPossible", false, "None", true, None),
            ("Enabled", true, "None", true, Some(true)),
            ("Enabled", true, "None", false, None),
            ("Enabled", true, "HostToContainer", true, None),
            ("Enabled", false, "None", true, None),
            ("Odd", true, "None", true, None),
        ] {
            let mount = json!([{"name": "host", "mountPath": "/a", "readOnly": read_only, "recursiveReadOnly": mode,
                                "mountPropagation": propagation}]);
            let got = run(json!({"volumeMounts": mount}), json!({}), &[], supported);
            assert_eq!(got.as_ref().ok().map(|m| m[0].recursive_read_only), expect, "{mount} {supported}: {got:?}");
        }
    }

    #[test]
    fn the_hosts_file_and_the_termination_message() {
        let hosts = "/etc/hosts = /r/etc-hosts relabel";
        let log = "/dev/log = /r/log relabel";
        for (container, spec, ips, expect) in [
            (json!({}), json!({}), &[][..], vec![]),
            (json!({}), json!({}), &["10.0.0.9"][..], vec![hosts]),
            (json!({}), json!({"hostNetwork": true}), &[][..], vec![hosts]),
            (
                json!({"volumeMounts": [{"name": "host", "mountPath": "/etc/hosts"}]}),
                json!({}),
                &["10.0.0.9"][..],
                vec!["/etc/hosts = /srv"],
            ),
            (json!({"terminationMessagePath": "dev/log"}), json!({}), &[][..], vec![log]),
            (
                json!({"terminationMessagePath": "/dev/log"}),
                json!({"hostUsers": false}),
                &["10.0.0.9"][..],
                vec!["/etc/hosts = /r/etc-hosts relabel mapped", "/dev/log = /r/log relabel mapped"],
            ),
        ] {
            let got = run(container.clone(), spec.clone(), ips, true).expect("mounts");
            assert_eq!(got.iter().map(line).collect::<Vec<_>>(), expect, "{container} {spec}");
        }
    }
}

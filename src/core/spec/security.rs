//! Security settings: whose namespaces, which user and groups, capabilities, profiles, hidden paths.
//!
//! Layer L1, pure. A setting of the container goes before the pod's. It grants nothing that neither
//! asks for.

use crate::api::ContainerId;
use crate::api::pod;
use crate::api::runtime::{
    ContainerSecurity, Image, NamespaceMode, Namespaces, SandboxSecurity, SeLinux, SecurityProfile,
};
use crate::api::v1::{
    AppArmorProfile, Container, Pod, PodSecurityContext, SELinuxOptions, SeccompProfile, SecurityContext,
};

use super::{NodeFacts, SpecError, UserNamespace};

const APPARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Paths below /proc and /sys that tell about or change the node.
const MASKED_PATHS: &[&str] = &[
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READONLY_PATHS: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

fn pod_context(pod: &Pod) -> Option<&PodSecurityContext> {
    pod::spec(pod)?.security_context.as_ref()
}

/// `pod` in messages: `name_namespace(uid)`.
fn display(pod: &Pod) -> String {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    format!("{}_{}({uid})", pod::name(pod), pod::namespace(pod))
}

/// Namespaces of the pod's sandbox and containers.
pub(super) fn namespaces(
    pod: &Pod,
    facts: &NodeFacts,
    runtime_handler: &str,
    user: Option<&UserNamespace>,
) -> Result<Namespaces, SpecError> {
    let spec = pod::spec(pod);
    let node_if = |on: bool| if on { NamespaceMode::Node } else { NamespaceMode::Pod };
    let pid = if spec.and_then(|s| s.host_pid).unwrap_or(false) {
        NamespaceMode::Node
    } else if spec.and_then(|s| s.share_process_namespace).unwrap_or(false) {
        NamespaceMode::Pod
    } else {
        NamespaceMode::Container
    };
    let user = if pod::has_user_namespace(pod) {
        if !facts.handler(runtime_handler).user_namespaces {
            return Err(SpecError::UserNamespaceUnsupported { handler: runtime_handler.to_owned() });
        }
        Some(user.cloned().ok_or_else(|| SpecError::UserNamespaceMissing { pod: display(pod) })?)
    } else {
        None
    };
    Ok(Namespaces {
        network: node_if(pod::is_host_network(pod)),
        pid,
        ipc: node_if(spec.and_then(|s| s.host_ipc).unwrap_or(false)),
        user,
    })
}

/// fsGroup and the supplementary groups, and whether groups of the image are ignored.
fn groups(pod: &Pod) -> Result<(Vec<i64>, bool), SpecError> {
    let Some(context) = pod_context(pod) else { return Ok((Vec::new(), false)) };
    let strict = match context.supplemental_groups_policy.as_deref() {
        None | Some("Merge") => false,
        Some("Strict") => true,
        Some(other) => {
            return Err(SpecError::UnknownValue {
                field: "securityContext.supplementalGroupsPolicy",
                value: other.to_owned(),
                expected: "Merge or Strict",
            });
        }
    };
    let all = context.fs_group.into_iter().chain(context.supplemental_groups.iter().flatten().copied());
    Ok((all.collect(), strict))
}

/// Security settings of the sandbox.
pub(super) fn sandbox_security(
    pod: &Pod,
    facts: &NodeFacts,
    runtime_handler: &str,
    user: Option<&UserNamespace>,
) -> Result<SandboxSecurity, SpecError> {
    let context = pod_context(pod);
    let (supplemental_groups, strict_groups) = groups(pod)?;
    Ok(SandboxSecurity {
        namespaces: namespaces(pod, facts, runtime_handler, user)?,
        selinux: context.and_then(|c| c.se_linux_options.as_ref()).map(selinux),
        run_as_user: context.and_then(|c| c.run_as_user),
        run_as_group: context.and_then(|c| c.run_as_group),
        supplemental_groups,
        strict_groups,
        privileged: pod::has_privileged_container(pod),
        // Always: a strict profile of the containers need not allow what the sandbox's process does.
        seccomp: Some(SecurityProfile::RuntimeDefault),
        apparmor: None,
    })
}

/// Security settings of a container whose image is `image`.
pub(super) fn container_security(
    pod: &Pod,
    container: &Container,
    facts: &NodeFacts,
    image: &Image,
    runtime_handler: &str,
    user_namespace: Option<&UserNamespace>,
    target: Option<&ContainerId>,
) -> Result<ContainerSecurity, SpecError> {
    let of_pod = pod_context(pod);
    let own = container.security_context.as_ref();
    let run_as_user = own.and_then(|c| c.run_as_user).or(of_pod.and_then(|c| c.run_as_user));
    let image_uid = image_uid(image);
    check_non_root(pod, container, run_as_user, image_uid, &image.username)?;
    let mut namespaces = namespaces(pod, facts, runtime_handler, user_namespace)?;
    if let Some(id) = target.filter(|_| namespaces.pid == NamespaceMode::Container) {
        namespaces.pid = NamespaceMode::Target(id.clone());
    }
    let (supplemental_groups, strict_groups) = groups(pod)?;
    let capabilities = own.and_then(|c| c.capabilities.as_ref());
    let (masked_paths, readonly_paths) = proc_paths(own, facts)?;
    let selinux_options = own.and_then(|c| c.se_linux_options.as_ref());
    Ok(ContainerSecurity {
        namespaces,
        add_capabilities: capabilities.and_then(|c| c.add.clone()).unwrap_or_default(),
        drop_capabilities: capabilities.and_then(|c| c.drop.clone()).unwrap_or_default(),
        privileged: own.and_then(|c| c.privileged).unwrap_or(false),
        selinux: selinux_options.or(of_pod.and_then(|c| c.se_linux_options.as_ref())).map(selinux),
        run_as_user: run_as_user.or(image_uid),
        run_as_group: own.and_then(|c| c.run_as_group).or(of_pod.and_then(|c| c.run_as_group)),
        run_as_username: if run_as_user.is_none() && image_uid.is_none() {
            image.username.clone()
        } else {
            String::new()
        },
        readonly_rootfs: own.and_then(|c| c.read_only_root_filesystem).unwrap_or(false),
        supplemental_groups,
        strict_groups,
        no_new_privs: own.and_then(|c| c.allow_privilege_escalation) == Some(false),
        masked_paths,
        readonly_paths,
        seccomp: Some(seccomp_profile(pod, container, facts)?),
        apparmor: apparmor_profile(pod, container)?,
    })
}

/// Numeric user of the image; root when it names none.
fn image_uid(image: &Image) -> Option<i64> {
    image.uid.or(image.username.is_empty().then_some(0))
}

fn check_non_root(
    pod: &Pod,
    container: &Container,
    run_as_user: Option<i64>,
    image_uid: Option<i64>,
    image_user: &str,
) -> Result<(), SpecError> {
    let own = container.security_context.as_ref().and_then(|c| c.run_as_non_root);
    if !own.or(pod_context(pod).and_then(|c| c.run_as_non_root)).unwrap_or(false) {
        return Ok(());
    }
    let (pod, container) = (display(pod), container.name.clone());
    match (run_as_user, image_uid) {
        (Some(0), _) => Err(SpecError::RunAsUserIsRoot { pod, container }),
        (Some(_), _) => Ok(()),
        (None, Some(0)) => Err(SpecError::ImageRunsAsRoot { pod, container }),
        (None, Some(uid)) if i32::try_from(uid).is_ok_and(|uid| uid > 0) => Ok(()),
        (None, Some(uid)) => Err(SpecError::ImageUserInvalid { uid, pod, container }),
        (None, None) => Err(SpecError::ImageUserIsName { user: image_user.to_owned(), pod, container }),
    }
}

fn selinux(options: &SELinuxOptions) -> SeLinux {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    SeLinux {
        user: part(&options.user),
        role: part(&options.role),
        type_: part(&options.type_),
        level: part(&options.level),
    }
}

fn proc_paths(own: Option<&SecurityContext>, facts: &NodeFacts) -> Result<(Vec<String>, Vec<String>), SpecError> {
    match own.and_then(|c| c.proc_mount.as_deref()) {
        Some("Unmasked") => Ok((Vec::new(), Vec::new())),
        None | Some("" | "Default") => {
            let throttle = |cpu: &u32| format!("/sys/devices/system/cpu/cpu{cpu}/thermal_throttle");
            let masked = MASKED_PATHS.iter().map(|p| (*p).to_owned());
            let masked = masked.chain(facts.thermal_throttle_cpus.iter().map(throttle)).collect();
            Ok((masked, READONLY_PATHS.iter().map(|p| (*p).to_owned()).collect()))
        }
        Some(other) => Err(SpecError::UnknownValue {
            field: "securityContext.procMount",
            value: other.to_owned(),
            expected: "Default or Unmasked",
        }),
    }
}

fn seccomp_profile(pod: &Pod, container: &Container, facts: &NodeFacts) -> Result<SecurityProfile, SpecError> {
    let own = container.security_context.as_ref().and_then(|c| c.seccomp_profile.as_ref());
    match own.or(pod_context(pod).and_then(|c| c.seccomp_profile.as_ref())) {
        Some(profile) => seccomp(profile, facts),
        None if facts.seccomp_default => Ok(SecurityProfile::RuntimeDefault),
        None => Ok(SecurityProfile::Unconfined),
    }
}

fn seccomp(profile: &SeccompProfile, facts: &NodeFacts) -> Result<SecurityProfile, SpecError> {
    const FIELD: &str = "securityContext.seccompProfile";
    match profile.type_.as_str() {
        "RuntimeDefault" => Ok(SecurityProfile::RuntimeDefault),
        "Unconfined" => Ok(SecurityProfile::Unconfined),
        "Localhost" => {
            let name = profile.localhost_profile.as_deref().filter(|n| !n.is_empty());
            let name = name.ok_or(SpecError::LocalhostProfile { field: FIELD })?;
            let mut parts = name.split('/').filter(|p| !p.is_empty() && *p != ".");
            if name.starts_with('/') || parts.clone().any(|p| p == "..") {
                return Err(SpecError::UnknownValue {
                    field: "securityContext.seccompProfile.localhostProfile",
                    value: name.to_owned(),
                    expected: "a path below the node's folder of seccomp profiles",
                });
            }
            let start = format!("{}/seccomp", facts.root_dir);
            Ok(SecurityProfile::Localhost(parts.by_ref().fold(start, |path, part| format!("{path}/{part}"))))
        }
        other => Err(SpecError::UnknownValue {
            field: FIELD,
            value: other.to_owned(),
            expected: "RuntimeDefault, Unconfined or Localhost",
        }),
    }
}

/// The AppArmor profile of a container: its own field, else the annotation of old manifests, else the pod's field.
pub(super) fn apparmor_profile(pod: &Pod, container: &Container) -> Result<Option<SecurityProfile>, SpecError> {
    if let Some(own) = container.security_context.as_ref().and_then(|c| c.app_armor_profile.as_ref()) {
        return apparmor(own).map(Some);
    }
    let annotated = pod::annotation(pod, &format!("{APPARMOR_ANNOTATION}{}", container.name));
    let by_annotation = annotated.and_then(|value| match value {
        "runtime/default" => Some(SecurityProfile::RuntimeDefault),
        "unconfined" => Some(SecurityProfile::Unconfined),
        value => value.strip_prefix("localhost/").map(|name| SecurityProfile::Localhost(name.to_owned())),
    });
    match by_annotation {
        Some(profile) => Ok(Some(profile)),
        None => pod_context(pod).and_then(|c| c.app_armor_profile.as_ref()).map(apparmor).transpose(),
    }
}

fn apparmor(profile: &AppArmorProfile) -> Result<SecurityProfile, SpecError> {
    const FIELD: &str = "securityContext.appArmorProfile";
    match profile.type_.as_str() {
        "RuntimeDefault" => Ok(SecurityProfile::RuntimeDefault),
        "Unconfined" => Ok(SecurityProfile::Unconfined),
        "Localhost" => match profile.localhost_profile.clone() {
            Some(name) => Ok(SecurityProfile::Localhost(name)),
            None => Err(SpecError::LocalhostProfile { field: FIELD }),
        },
        other => Err(SpecError::UnknownValue {
            field: FIELD,
            value: other.to_owned(),
            expected: "RuntimeDefault, Unconfined or Localhost",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(of_pod: Value, of_container: Value, more: Value) -> Pod {
        let mut spec = more;
        spec["securityContext"] = of_pod;
        spec["containers"] = json!([{"name": "c", "securityContext": of_container}]);
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec}))
            .expect("a pod")
    }

    fn facts() -> NodeFacts {
        let features = super::super::HandlerFeatures { user_namespaces: true, ..Default::default() };
        NodeFacts {
            root_dir: "/var/lib/kubelet".into(),
            handlers: [("userns".to_owned(), features)].into(),
            ..NodeFacts::default()
        }
    }

    fn security(pod: &Pod, facts: &NodeFacts, image: &Image) -> Result<ContainerSecurity, SpecError> {
        container_security(pod, &pod::app_containers(pod)[0], facts, image, "", None, None)
    }

    fn image(uid: Option<i64>, username: &str) -> Image {
        Image { uid, username: username.into(), ..Image::default() }
    }

    #[test]
    fn users_come_from_the_container_then_the_pod_then_the_image() {
        for (of_pod, own, image, expect) in [
            (json!({}), json!({}), image(None, ""), (Some(0), None, "")),
            (json!({}), json!({}), image(Some(7), ""), (Some(7), None, "")),
            (json!({}), json!({}), image(None, "nobody"), (None, None, "nobody")),
            (json!({"runAsUser": 5, "runAsGroup": 6}), json!({}), image(Some(7), ""), (Some(5), Some(6), "")),
            (
                json!({"runAsUser": 5, "runAsGroup": 6}),
                json!({"runAsUser": 8}),
                image(None, "x"),
                (Some(8), Some(6), ""),
            ),
            (
                json!({"runAsUser": 5}),
                json!({"runAsUser": 0, "runAsGroup": 0}),
                image(None, "x"),
                (Some(0), Some(0), ""),
            ),
        ] {
            let got = security(&pod(of_pod.clone(), own.clone(), json!({})), &facts(), &image).expect("settings");
            let got = (got.run_as_user, got.run_as_group, got.run_as_username.as_str());
            assert_eq!(got, expect, "{of_pod} {own} {image:?}");
        }
    }

    #[test]
    fn non_root_is_checked_against_the_user_in_force() {
        let yes = json!({"runAsNonRoot": true});
        for (of_pod, own, image, expect) in [
            (json!({}), json!({}), image(None, ""), None),
            (yes.clone(), json!({}), image(None, ""), Some("container has runAsNonRoot and image will run as root")),
            (json!({}), yes.clone(), image(Some(0), ""), Some("container has runAsNonRoot and image will run as root")),
            (yes.clone(), json!({"runAsNonRoot": false}), image(None, ""), None),
            (
                yes.clone(),
                json!({"runAsUser": 0}),
                image(Some(7), ""),
                Some("container's runAsUser breaks non-root policy"),
            ),
            (yes.clone(), json!({"runAsUser": 9}), image(Some(0), ""), None),
            (yes.clone(), json!({}), image(Some(7), ""), None),
            (
                yes.clone(),
                json!({}),
                image(Some(-7), ""),
                Some("container has runAsNonRoot and image has an invalid user id (-7)"),
            ),
            (
                yes.clone(),
                json!({}),
                image(None, "nobody"),
                Some("container has runAsNonRoot and image has non-numeric user (nobody), cannot verify"),
            ),
        ] {
            let got = security(&pod(of_pod.clone(), own.clone(), json!({})), &facts(), &image);
            match (expect, &got) {
                (None, Ok(_)) => {}
                (Some(start), Err(e)) if e.to_string().starts_with(start) => {}
                _ => panic!("{of_pod} {own} {image:?}: {got:?}"),
            }
        }
    }

    #[test]
    fn profiles() {
        use SecurityProfile::{Localhost, RuntimeDefault, Unconfined};
        let local = |name: &str| json!({"seccompProfile": {"type": "Localhost", "localhostProfile": name}});
        let on = NodeFacts { seccomp_default: true, ..facts() };
        let off = facts();
        for (of_pod, own, facts, expect) in [
            (json!({}), json!({}), &off, Some(Unconfined)),
            (json!({}), json!({}), &on, Some(RuntimeDefault)),
            (json!({"seccompProfile": {"type": "RuntimeDefault"}}), json!({}), &off, Some(RuntimeDefault)),
            (
                json!({"seccompProfile": {"type": "RuntimeDefault"}}),
                json!({"seccompProfile": {"type": "Unconfined"}}),
                &on,
                Some(Unconfined),
            ),
            (json!({}), local("a/./b.json"), &off, Some(Localhost("/var/lib/kubelet/seccomp/a/b.json".into()))),
            (json!({}), local(""), &off, None),
            (json!({}), local("../x"), &off, None),
            (json!({}), local("/etc/passwd"), &off, None),
            (json!({}), json!({"seccompProfile": {"type": "Odd"}}), &off, None),
        ] {
            let got = security(&pod(of_pod.clone(), own.clone(), json!({})), facts, &image(None, ""));
            assert_eq!(got.ok().and_then(|s| s.seccomp), expect, "{of_pod} {own}");
        }
    }

    #[test]
    fn apparmor_of_container_then_annotation_then_pod() {
        use SecurityProfile::{Localhost, RuntimeDefault, Unconfined};
        let pod_profile = json!({"appArmorProfile": {"type": "RuntimeDefault"}});
        for (of_pod, annotation, own, expect) in [
            (json!({}), "", json!({}), Some(None)),
            (pod_profile.clone(), "", json!({}), Some(Some(RuntimeDefault))),
            (pod_profile.clone(), "unconfined", json!({}), Some(Some(Unconfined))),
            (json!({}), "localhost/x", json!({}), Some(Some(Localhost("x".into())))),
            (json!({}), "runtime/default", json!({}), Some(Some(RuntimeDefault))),
            (json!({}), "nonsense", json!({}), Some(None)),
            (
                pod_profile.clone(),
                "unconfined",
                json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "y"}}),
                Some(Some(Localhost("y".into()))),
            ),
            (json!({}), "", json!({"appArmorProfile": {"type": "Localhost"}}), None),
            (json!({}), "", json!({"appArmorProfile": {"type": "Odd"}}), None),
        ] {
            let mut p = pod(of_pod.clone(), own.clone(), json!({}));
            p.metadata.annotations = Some([(format!("{APPARMOR_ANNOTATION}c"), annotation.to_owned())].into());
            let got = security(&p, &facts(), &image(None, ""));
            assert_eq!(got.ok().map(|s| s.apparmor), expect, "{of_pod} {annotation} {own}");
        }
    }

    #[test]
    fn the_rest_of_the_container() {
        let own = json!({
            "privileged": true, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
            "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}, "seLinuxOptions": {"level": "s0:c1,c2"},
        });
        let of_pod = json!({
            "fsGroup": 2000, "supplementalGroups": [3000, 4000], "supplementalGroupsPolicy": "Strict",
            "seLinuxOptions": {"level": "s0", "user": "u", "role": "r", "type": "t"},
        });
        let got = security(&pod(of_pod.clone(), own, json!({})), &facts(), &image(None, "")).expect("settings");
        assert!(got.privileged && got.readonly_rootfs && got.no_new_privs && got.strict_groups);
        assert_eq!((got.add_capabilities, got.drop_capabilities), (vec!["NET_ADMIN".into()], vec!["ALL".into()]));
        assert_eq!(got.supplemental_groups, [2000, 3000, 4000]);
        assert_eq!(got.selinux, Some(SeLinux { level: "s0:c1,c2".into(), ..SeLinux::default() }));
        let got = security(&pod(of_pod, json!({}), json!({})), &facts(), &image(None, "")).expect("settings");
        assert!(!got.privileged && !got.readonly_rootfs && !got.no_new_privs);
        let label = SeLinux { user: "u".into(), role: "r".into(), type_: "t".into(), level: "s0".into() };
        assert_eq!(got.selinux, Some(label));
        let odd = pod(json!({"supplementalGroupsPolicy": "Odd"}), json!({}), json!({}));
        assert!(security(&odd, &facts(), &image(None, "")).is_err());
    }

    #[test]
    fn proc_is_masked_unless_asked_otherwise() {
        let node = NodeFacts { thermal_throttle_cpus: vec![0, 3], ..facts() };
        for (proc_mount, expect) in [("Default", Some((14, 5))), ("Unmasked", Some((0, 0))), ("Odd", None)] {
            let got = security(&pod(json!({}), json!({"procMount": proc_mount}), json!({})), &node, &image(None, ""));
            let got = got.as_ref().ok().map(|s| (s.masked_paths.len(), s.readonly_paths.len()));
            assert_eq!(got, expect, "{proc_mount}");
        }
        let got = security(&pod(json!({}), json!({}), json!({})), &node, &image(None, "")).expect("settings");
        assert_eq!(got.masked_paths.last().map(String::as_str), Some("/sys/devices/system/cpu/cpu3/thermal_throttle"));
    }

    #[test]
    fn namespaces_of_pods() {
        use NamespaceMode::{Container as Own, Node, Pod as Shared};
        for (more, expect) in [
            (json!({}), (Shared, Own, Shared)),
            (json!({"hostNetwork": true}), (Node, Own, Shared)),
            (json!({"hostPID": true, "shareProcessNamespace": false}), (Shared, Node, Shared)),
            (json!({"hostIPC": true}), (Shared, Own, Node)),
            (json!({"shareProcessNamespace": true}), (Shared, Shared, Shared)),
        ] {
            let got = namespaces(&pod(json!({}), json!({}), more.clone()), &facts(), "", None).expect("namespaces");
            assert_eq!((got.network, got.pid, got.ipc), expect, "{more}");
            assert_eq!(got.user, None);
        }
    }

    #[test]
    fn user_namespaces_need_a_runtime_and_ids() {
        let p = pod(json!({}), json!({}), json!({"hostUsers": false}));
        let ids: UserNamespace = (Vec::new(), Vec::new());
        let unsupported = SpecError::UserNamespaceUnsupported { handler: String::new() };
        assert_eq!(namespaces(&p, &facts(), "", Some(&ids)), Err(unsupported.clone()));
        assert_eq!(
            unsupported.to_string(),
            "can't set `spec.hostUsers: false`: the runtime does not support user namespaces"
        );
        assert!(matches!(namespaces(&p, &facts(), "userns", None), Err(SpecError::UserNamespaceMissing { .. })));
        assert_eq!(namespaces(&p, &facts(), "userns", Some(&ids)).expect("namespaces").user, Some(ids.clone()));
        let node = pod(json!({}), json!({}), json!({"hostUsers": true}));
        assert_eq!(namespaces(&node, &facts(), "", Some(&ids)).expect("namespaces").user, None);
    }

    #[test]
    fn an_ephemeral_container_joins_its_target() {
        let id = ContainerId::from("abc");
        let run = |more: Value| {
            let p = pod(json!({}), json!({}), more);
            let container = &pod::app_containers(&p)[0];
            let got = container_security(&p, container, &facts(), &image(None, ""), "", None, Some(&id));
            got.expect("settings").namespaces.pid
        };
        assert_eq!(run(json!({})), NamespaceMode::Target(id.clone()));
        assert_eq!(run(json!({"shareProcessNamespace": true})), NamespaceMode::Pod);
    }

    #[test]
    fn the_sandbox_is_privileged_if_any_container_is() {
        for (own, expect) in [(json!({"privileged": true}), true), (json!({}), false)] {
            let got = sandbox_security(&pod(json!({}), own, json!({})), &facts(), "", None).expect("settings");
            assert_eq!((got.privileged, got.seccomp), (expect, Some(SecurityProfile::RuntimeDefault)));
        }
    }
}

//! Security contexts of pods and containers. Pure.

use std::collections::BTreeSet;

use super::names::{capability, path_below, sysctl};
use super::report::Report;
use crate::api::v1::{AppArmorProfile, PodSpec, SeccompProfile, SecurityContext};

/// Highest user or group id of the kernel's interface here.
const MAX_ID: i64 = i32::MAX as i64;
/// Longest name of an AppArmor profile.
const MAX_PROFILE: usize = 4095;
const PROFILE_TYPES: [&str; 3] = ["RuntimeDefault", "Unconfined", "Localhost"];

/// `spec.securityContext` and the host namespaces.
pub(super) fn check_pod(report: &mut Report, spec: &PodSpec) {
    let has = |flag: Option<bool>| flag == Some(true);
    if has(spec.share_process_namespace) && has(spec.host_pid) {
        report.fail_at("shareProcessNamespace", "must not be true together with hostPID");
    }
    if spec.host_users == Some(false) {
        for (field, flag) in
            [("hostNetwork", spec.host_network), ("hostPID", spec.host_pid), ("hostIPC", spec.host_ipc)]
        {
            if has(flag) {
                report.fail_at(field, "must not be true when hostUsers is false");
            }
        }
    }
    let Some(context) = &spec.security_context else { return };
    report.at("securityContext", |report| {
        report.within("fsGroup", context.fs_group, 0, MAX_ID);
        report.within("runAsUser", context.run_as_user, 0, MAX_ID);
        report.within("runAsGroup", context.run_as_group, 0, MAX_ID);
        report.each_at("supplementalGroups", context.supplemental_groups.as_deref(), |report, group| {
            if !(0..=MAX_ID).contains(group) {
                report.fail(format!("{group} must be from 0 to {MAX_ID}"));
            }
        });
        report.one_of("fsGroupChangePolicy", context.fs_group_change_policy.as_deref(), &["OnRootMismatch", "Always"]);
        report.one_of("supplementalGroupsPolicy", context.supplemental_groups_policy.as_deref(), &["Merge", "Strict"]);
        report.one_of("seLinuxChangePolicy", context.se_linux_change_policy.as_deref(), &["Recursive", "MountOption"]);
        let mut names = BTreeSet::new();
        report.each_at("sysctls", context.sysctls.as_deref(), |report, entry| {
            report.required("name", &entry.name, sysctl);
            let dotted = entry.name.replace('/', ".");
            report.at("name", |report| {
                if has(spec.host_network) && dotted.starts_with("net.") {
                    report.wrong(&entry.name, "must not be set with hostNetwork: it would change the node");
                }
                let is_ipc =
                    ["kernel.sem", "kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|p| dotted.starts_with(p));
                if has(spec.host_ipc) && is_ipc {
                    report.wrong(&entry.name, "must not be set with hostIPC: it would change the node");
                }
                if !dotted.is_empty() && !names.insert(dotted) {
                    report.wrong(&entry.name, "is set twice");
                }
            });
        });
        check_profiles(report, context.seccomp_profile.as_ref(), context.app_armor_profile.as_ref());
        if context.windows_options.is_some() {
            report.fail_at("windowsOptions", "must not be set: this node runs Linux");
        }
    });
}

/// `securityContext` of a container.
pub(super) fn check_container(report: &mut Report, context: &SecurityContext, host_users: bool) {
    report.within("runAsUser", context.run_as_user, 0, MAX_ID);
    report.within("runAsGroup", context.run_as_group, 0, MAX_ID);
    report.one_of("procMount", context.proc_mount.as_deref(), &["Default", "Unmasked"]);
    if context.proc_mount.as_deref() == Some("Unmasked") && host_users {
        report.fail_at("procMount", "Unmasked needs spec.hostUsers to be false");
    }
    if let Some(capabilities) = &context.capabilities {
        report.at("capabilities", |report| {
            report.each_at("add", capabilities.add.as_deref(), |report, name| report.keeps(name, capability));
            report.each_at("drop", capabilities.drop.as_deref(), |report, name| report.keeps(name, capability));
        });
    }
    if context.allow_privilege_escalation == Some(false) {
        let adds = context.capabilities.iter().flat_map(|capabilities| capabilities.add.iter().flatten());
        report.at("allowPrivilegeEscalation", |report| {
            if context.privileged == Some(true) {
                report.fail("must not be false when privileged is true");
            }
            if adds.into_iter().any(|name| name == "CAP_SYS_ADMIN") {
                report.fail("must not be false when capability CAP_SYS_ADMIN is added");
            }
        });
    }
    check_profiles(report, context.seccomp_profile.as_ref(), context.app_armor_profile.as_ref());
    if context.windows_options.is_some() {
        report.fail_at("windowsOptions", "must not be set: this node runs Linux");
    }
}

fn check_profiles(report: &mut Report, seccomp: Option<&SeccompProfile>, apparmor: Option<&AppArmorProfile>) {
    if let Some(profile) = seccomp {
        report.at("seccompProfile", |report| {
            check_type(report, &profile.type_, profile.localhost_profile.as_deref());
            if profile.type_ == "Localhost" {
                report.optional("localhostProfile", profile.localhost_profile.as_deref(), path_below);
            }
        });
    }
    if let Some(profile) = apparmor {
        report.at("appArmorProfile", |report| {
            check_type(report, &profile.type_, profile.localhost_profile.as_deref());
            let name = profile.localhost_profile.as_deref().unwrap_or_default();
            if name.trim() != name || name.len() > MAX_PROFILE {
                report.fail_at(
                    "localhostProfile",
                    format!("must have no spaces around it and up to {MAX_PROFILE} bytes"),
                );
            }
        });
    }
}

fn check_type(report: &mut Report, type_: &str, localhost: Option<&str>) {
    match type_ {
        "" => report.fail_at("type", "must be set"),
        _ => report.one_of("type", Some(type_), &PROFILE_TYPES),
    }
    match (type_, localhost) {
        ("Localhost", None | Some("")) => report.fail_at("localhostProfile", "must be set for type Localhost"),
        ("Localhost", Some(_)) | (_, None) => {}
        (_, Some(_)) => report.fail_at("localhostProfile", "is for type Localhost only"),
    }
}

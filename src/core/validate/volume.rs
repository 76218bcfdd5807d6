//! Volumes, and how containers mount them. Pure.

use std::collections::BTreeSet;

use super::env::check_file_source;
use super::names::{anything, config_key, dns_label, dns_subdomain, path_below, path_of_item, path_without_steps_back};
use super::report::Report;
use super::resources::check_quantity;
use crate::api::v1::{
    Container, DownwardAPIVolumeFile, EmptyDirVolumeSource, KeyToPath, ProjectedVolumeSource, Volume, VolumeMount,
};

const HOST_PATH_TYPES: [&str; 8] =
    ["", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"];

/// `spec.volumes`.
pub(super) fn check(report: &mut Report, volumes: &[Volume]) {
    let mut names = BTreeSet::new();
    report.each_at("volumes", Some(volumes), |report, volume| {
        report.required("name", &volume.name, dns_label);
        if !volume.name.is_empty() && !names.insert(volume.name.clone()) {
            report.at("name", |report| report.wrong(&volume.name, "is the name of another volume as well"));
        }
        check_one_source(report, volume);
        check_source(report, volume);
    });
}

fn check_one_source(report: &mut Report, volume: &Volume) {
    // The field names of JSON serve for every type of volume, also those that come later.
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(volume) else { return };
    let sources: Vec<&str> = fields.keys().map(String::as_str).filter(|name| *name != "name").collect();
    match sources.as_slice() {
        [] => report.fail("needs a source, such as emptyDir or hostPath"),
        [_] => {}
        more => report.fail(format!("has {} sources, {}: only one may be given", more.len(), more.join(" and "))),
    }
}

fn check_source(report: &mut Report, volume: &Volume) {
    if let Some(source) = &volume.empty_dir {
        report.at("emptyDir", |report| check_empty_dir(report, source));
    }
    if let Some(source) = &volume.host_path {
        report.at("hostPath", |report| {
            report.required("path", &source.path, path_without_steps_back);
            report.one_of("type", source.type_.as_deref(), &HOST_PATH_TYPES);
        });
    }
    if let Some(source) = &volume.secret {
        report.at("secret", |report| {
            report.required("secretName", source.secret_name.as_deref().unwrap_or_default(), dns_subdomain);
            report.mode("defaultMode", source.default_mode);
            check_items(report, source.items.as_deref());
        });
    }
    if let Some(source) = &volume.config_map {
        report.at("configMap", |report| {
            report.required("name", &source.name, dns_subdomain);
            report.mode("defaultMode", source.default_mode);
            check_items(report, source.items.as_deref());
        });
    }
    if let Some(source) = &volume.downward_api {
        report.at("downwardAPI", |report| {
            report.mode("defaultMode", source.default_mode);
            check_files(report, source.items.as_deref());
        });
    }
    if let Some(source) = &volume.projected {
        report.at("projected", |report| check_projected(report, source));
    }
    if let Some(source) = &volume.image {
        report.at("image", |report| {
            report.required("reference", source.reference.as_deref().unwrap_or_default(), anything);
            report.one_of("pullPolicy", source.pull_policy.as_deref(), &["Always", "IfNotPresent", "Never"]);
        });
    }
    if let Some(source) = &volume.persistent_volume_claim {
        report.at("persistentVolumeClaim", |report| report.required("claimName", &source.claim_name, dns_subdomain));
    }
    if let Some(source) = &volume.nfs {
        report.at("nfs", |report| {
            report.required("server", &source.server, anything);
            report.required("path", &source.path, |path| match path.starts_with('/') {
                true => Ok(()),
                false => Err("must be an absolute path"),
            });
        });
    }
    if let Some(source) = &volume.csi {
        report
            .at("csi", |report| report.required("driver", &source.driver, |name| dns_subdomain(&name.to_lowercase())));
    }
}

fn check_empty_dir(report: &mut Report, source: &EmptyDirVolumeSource) {
    if let Some(limit) = &source.size_limit {
        report.at("sizeLimit", |report| check_quantity(report, limit));
    }
    match source.medium.as_deref() {
        None | Some("" | "Memory" | "HugePages") => {}
        Some(medium) if medium.starts_with("HugePages-") => {}
        Some(medium) => report.at("medium", |report| {
            report.wrong(medium, "is not known: leave it empty for disk, or use Memory, HugePages or HugePages-SIZE");
        }),
    }
}

fn check_items(report: &mut Report, items: Option<&[KeyToPath]>) {
    report.each_at("items", items, |report, item| {
        report.required("key", &item.key, config_key);
        report.required("path", &item.path, path_of_item);
        report.mode("mode", item.mode);
    });
}

fn check_files(report: &mut Report, files: Option<&[DownwardAPIVolumeFile]>) {
    report.each_at("items", files, |report, file| {
        report.required("path", &file.path, path_of_item);
        report.mode("mode", file.mode);
        check_file_source(report, file.field_ref.as_ref(), file.resource_field_ref.as_ref());
    });
}

fn check_projected(report: &mut Report, source: &ProjectedVolumeSource) {
    report.mode("defaultMode", source.default_mode);
    let mut paths = BTreeSet::new();
    let mut once = |report: &mut Report, path: &str| {
        if !path.is_empty() && !paths.insert(path.to_owned()) {
            report.wrong(path, "is the path of another file of this volume as well");
        }
    };
    report.each_at("sources", source.sources.as_deref(), |report, projection| {
        let mut count = 0;
        if let Some(secret) = &projection.secret {
            count += 1;
            report.at("secret", |report| {
                report.required("name", &secret.name, dns_subdomain);
                check_items(report, secret.items.as_deref());
                secret.items.iter().flatten().for_each(|item| once(report, &item.path));
            });
        }
        if let Some(map) = &projection.config_map {
            count += 1;
            report.at("configMap", |report| {
                report.required("name", &map.name, dns_subdomain);
                check_items(report, map.items.as_deref());
                map.items.iter().flatten().for_each(|item| once(report, &item.path));
            });
        }
        if let Some(downward) = &projection.downward_api {
            count += 1;
            report.at("downwardAPI", |report| {
                check_files(report, downward.items.as_deref());
                downward.items.iter().flatten().for_each(|file| once(report, &file.path));
            });
        }
        if let Some(token) = &projection.service_account_token {
            count += 1;
            report.at("serviceAccountToken", |report| {
                report.within("expirationSeconds", token.expiration_seconds, 600, 1 << 32);
                report.required("path", &token.path, path_of_item);
                once(report, &token.path);
            });
        }
        // What a later API or a cluster brings is judged where it is made.
        count +=
            usize::from(projection.cluster_trust_bundle.is_some()) + usize::from(projection.pod_certificate.is_some());
        match count {
            0 => report.fail("needs a source: secret, configMap, downwardAPI or serviceAccountToken"),
            1 => {}
            _ => report.fail("only one source may be given"),
        }
    });
}

/// `volumeMounts` and `volumeDevices` of a container.
pub(super) fn check_mounts(report: &mut Report, container: &Container, volumes: &[Volume]) {
    let is_privileged = container.security_context.as_ref().is_some_and(|context| context.privileged == Some(true));
    let mut paths = BTreeSet::new();
    report.each_at("volumeMounts", container.volume_mounts.as_deref(), |report, mount| {
        check_volume_name(report, &mount.name, volumes);
        report.required("mountPath", &mount.mount_path, anything);
        if !mount.mount_path.is_empty() && !paths.insert(mount.mount_path.clone()) {
            report.at("mountPath", |report| {
                report.wrong(&mount.mount_path, "is where another volume is mounted as well")
            });
        }
        check_mount(report, mount, is_privileged);
    });
    report.each_at("volumeDevices", container.volume_devices.as_deref(), |report, device| {
        check_volume_name(report, &device.name, volumes);
        report.required("devicePath", &device.device_path, path_without_steps_back);
        if !device.device_path.is_empty() && !paths.insert(device.device_path.clone()) {
            report.at("devicePath", |report| report.wrong(&device.device_path, "is used for another volume as well"));
        }
        let volume = volumes.iter().find(|volume| volume.name == device.name);
        if volume.is_some_and(|volume| volume.persistent_volume_claim.is_none() && volume.ephemeral.is_none()) {
            report.at("name", |report| {
                report.wrong(&device.name, "must be the volume of a claim to be used as a device")
            });
        }
        if container.volume_mounts.iter().flatten().any(|mount| mount.name == device.name) {
            report.at("name", |report| report.wrong(&device.name, "is mounted already"));
        }
    });
}

fn check_volume_name(report: &mut Report, name: &str, volumes: &[Volume]) {
    report.at("name", |report| match name {
        "" => report.fail("must be set"),
        _ if volumes.iter().any(|volume| volume.name == name) => {}
        _ => report.wrong(name, "is not among spec.volumes"),
    });
}

fn check_mount(report: &mut Report, mount: &VolumeMount, is_privileged: bool) {
    let is_set = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    report.optional("subPath", mount.sub_path.as_deref(), path_below);
    report.optional("subPathExpr", mount.sub_path_expr.as_deref(), path_below);
    if is_set(&mount.sub_path) && is_set(&mount.sub_path_expr) {
        report.fail_at("subPathExpr", "must not be given together with subPath");
    }
    let propagation = mount.mount_propagation.as_deref();
    report.one_of("mountPropagation", propagation, &["None", "HostToContainer", "Bidirectional"]);
    if propagation == Some("Bidirectional") && !is_privileged {
        report.fail_at("mountPropagation", "Bidirectional is for privileged containers only");
    }
    let recursive = mount.recursive_read_only.as_deref();
    report.one_of("recursiveReadOnly", recursive, &["Disabled", "IfPossible", "Enabled"]);
    if matches!(recursive, Some("IfPossible" | "Enabled")) {
        report.at("recursiveReadOnly", |report| {
            if mount.read_only != Some(true) {
                report.fail("needs readOnly to be true");
            }
            if !matches!(propagation, None | Some("None")) {
                report.fail("needs mountPropagation to be None");
            }
        });
    }
}

//! Environment variables and where their values come from. Pure.

use super::names::{
    annotation_key, config_key, dns_label, dns_subdomain, env_name, path_without_steps_back, qualified_name,
};
use super::report::{Report, list};
use crate::api::quantity::Amount;
use crate::api::v1::{Container, EnvVar, ObjectFieldSelector, ResourceFieldSelector, Volume};

/// Fields of a pod that a variable can hold.
const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Fields of a pod that a file of a volume can hold.
const FILE_FIELDS: [&str; 5] =
    ["metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations", "metadata.uid"];
/// Resources of a container that either can hold.
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
];

/// `env` and `envFrom` of a container.
pub(super) fn check(report: &mut Report, container: &Container, volumes: &[Volume]) {
    report.each_at("env", container.env.as_deref(), |report, variable| {
        report.required("name", &variable.name, env_name);
        if variable.value_from.is_some() {
            report.at("valueFrom", |report| check_value_from(report, variable, volumes));
        }
    });
    report.each_at("envFrom", container.env_from.as_deref(), |report, source| {
        report.optional("prefix", source.prefix.as_deref(), env_name);
        match (&source.config_map_ref, &source.secret_ref) {
            (None, None) => report.fail("needs configMapRef or secretRef"),
            (Some(_), Some(_)) => report.fail("only one of configMapRef and secretRef may be given"),
            (Some(map), None) => report.at("configMapRef", |report| report.required("name", &map.name, dns_subdomain)),
            (None, Some(secret)) => {
                report.at("secretRef", |report| report.required("name", &secret.name, dns_subdomain))
            }
        }
    });
}

fn check_value_from(report: &mut Report, variable: &EnvVar, volumes: &[Volume]) {
    let Some(source) = &variable.value_from else { return };
    let given = [
        ("fieldRef", source.field_ref.is_some()),
        ("resourceFieldRef", source.resource_field_ref.is_some()),
        ("configMapKeyRef", source.config_map_key_ref.is_some()),
        ("secretKeyRef", source.secret_key_ref.is_some()),
        ("fileKeyRef", source.file_key_ref.is_some()),
    ];
    match given.iter().filter(|(_, is_set)| *is_set).count() {
        0 => report.fail(format!("needs a source: {}", list(&given.map(|(name, _)| name)))),
        1 => {}
        _ => report.fail("only one source may be given"),
    }
    if variable.value.as_deref().is_some_and(|value| !value.is_empty()) {
        report.fail("must not be given together with value");
    }
    if let Some(field) = &source.field_ref {
        report.at("fieldRef", |report| check_field_ref(report, field, &ENV_FIELDS));
    }
    if let Some(resource) = &source.resource_field_ref {
        report.at("resourceFieldRef", |report| check_resource_ref(report, resource));
    }
    if let Some(key) = &source.config_map_key_ref {
        report.at("configMapKeyRef", |report| {
            report.required("name", &key.name, dns_subdomain);
            report.required("key", &key.key, config_key);
        });
    }
    if let Some(key) = &source.secret_key_ref {
        report.at("secretKeyRef", |report| {
            report.required("name", &key.name, dns_subdomain);
            report.required("key", &key.key, config_key);
        });
    }
    if let Some(file) = &source.file_key_ref {
        report.at("fileKeyRef", |report| {
            report.required("key", &file.key, env_name);
            report.required("path", &file.path, path_without_steps_back);
            report.required("volumeName", &file.volume_name, dns_label);
            let volume = volumes.iter().find(|volume| volume.name == file.volume_name);
            match volume {
                None => report.at("volumeName", |report| report.wrong(&file.volume_name, "is no volume of this pod")),
                Some(volume) if volume.empty_dir.is_none() => {
                    report.at("volumeName", |report| report.wrong(&file.volume_name, "must be an emptyDir volume"));
                }
                Some(_) => {}
            }
        });
    }
}

fn check_field_ref(report: &mut Report, field: &ObjectFieldSelector, fields: &[&str]) {
    report.one_of("apiVersion", field.api_version.as_deref(), &["v1"]);
    let path = field.field_path.as_str();
    report.at("fieldPath", |report| {
        if path.is_empty() {
            report.fail("must be set");
            return;
        }
        let Some((name, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) else {
            // The old name of spec.nodeName is still understood.
            let current = if path == "spec.host" { "spec.nodeName" } else { path };
            if !fields.contains(&current) {
                let more = "metadata.labels['KEY'] or metadata.annotations['KEY']";
                report.wrong(path, &format!("is not known: use {}, {more}", fields.join(", ")));
            }
            return;
        };
        match name {
            "metadata.labels" => report.keeps(key, qualified_name),
            "metadata.annotations" => report.keeps(key, annotation_key),
            _ => report.wrong(name, "has no keys: only metadata.labels and metadata.annotations do"),
        }
    });
}

fn check_resource_ref(report: &mut Report, resource: &ResourceFieldSelector) {
    let name = resource.resource.as_str();
    let is_huge_page = name.starts_with("limits.hugepages-") || name.starts_with("requests.hugepages-");
    if name.is_empty() {
        report.fail_at("resource", "must be set");
    } else if !is_huge_page {
        report.one_of("resource", Some(name), &RESOURCES);
    }
    let Some(divisor) = &resource.divisor else { return };
    report.at("divisor", |report| match Amount::try_from(divisor) {
        Err(error) => report.fail(error.to_string()),
        Ok(amount) if amount.is_zero() => {}
        Ok(amount) => {
            let shown = amount.to_string();
            let unit = shown.strip_prefix('1').unwrap_or("none");
            let fits = match name.ends_with(".cpu") {
                true => matches!(unit, "" | "m"),
                false => {
                    matches!(unit, "" | "k" | "M" | "G" | "T" | "P" | "E" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei")
                }
            };
            if !fits {
                let units = if name.ends_with(".cpu") { "1 or 1m" } else { "1, or 1 with a unit such as k, M or Mi" };
                report.wrong(&shown, &format!("must be {units}"));
            }
        }
    });
}

/// One file of a downward API volume: `fieldRef` or `resourceFieldRef`.
pub(super) fn check_file_source(
    report: &mut Report,
    field: Option<&ObjectFieldSelector>,
    resource: Option<&ResourceFieldSelector>,
) {
    match (field, resource) {
        (None, None) => report.fail("needs fieldRef or resourceFieldRef"),
        (Some(_), Some(_)) => report.fail("only one of fieldRef and resourceFieldRef may be given"),
        (Some(field), None) => report.at("fieldRef", |report| check_field_ref(report, field, &FILE_FIELDS)),
        (None, Some(resource)) => report.at("resourceFieldRef", |report| {
            if resource.container_name.as_deref().unwrap_or_default().is_empty() {
                report.fail_at("containerName", "must be set: a volume belongs to no container");
            }
            check_resource_ref(report, resource);
        }),
    }
}

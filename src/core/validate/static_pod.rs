//! What only an API server could give a pod: a static pod must not need it. Pure.
//!
//! As the upstream kubelet has it with PreventStaticPodAPIReferences, told all at once.

use super::report::Report;
use crate::api::v1::{Container, PodSpec, Volume};

const SECRET: &str = "a static pod must not use Secrets: they live in the API server; use a hostPath volume";
const CONFIG_MAP: &str = "a static pod must not use ConfigMaps: they live in the API server; use a hostPath volume";
const CLAIM: &str = "a static pod must not use claims for volumes: they live in the API server; use a hostPath volume";
const ACCOUNT: &str = "a static pod must not use a service account: it lives in the API server";

/// Everything in `spec` that refers to an object of the API.
pub(super) fn check(report: &mut Report, spec: &PodSpec) {
    if spec.service_account_name.as_deref().is_some_and(|name| !name.is_empty()) {
        report.fail_at("serviceAccountName", ACCOUNT);
    }
    if spec.image_pull_secrets.as_ref().is_some_and(|secrets| !secrets.is_empty()) {
        let advice = "a static pod must not use Secrets: give the node the registry's credentials";
        report.fail_at("imagePullSecrets", advice);
    }
    if spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
        report.fail_at("resourceClaims", "a static pod must not use ResourceClaims: they live in the API server");
    }
    report.each_at("initContainers", spec.init_containers.as_deref(), check_env);
    report.each_at("containers", Some(&spec.containers), check_env);
    report.each_at("volumes", spec.volumes.as_deref(), check_volume);
}

fn check_env(report: &mut Report, container: &Container) {
    report.each_at("env", container.env.as_deref(), |report, variable| {
        let Some(source) = &variable.value_from else { return };
        report.at("valueFrom", |report| {
            if source.secret_key_ref.is_some() {
                report.fail_at("secretKeyRef", SECRET);
            }
            if source.config_map_key_ref.is_some() {
                report.fail_at("configMapKeyRef", CONFIG_MAP);
            }
        });
    });
    report.each_at("envFrom", container.env_from.as_deref(), |report, source| {
        if source.secret_ref.is_some() {
            report.fail_at("secretRef", SECRET);
        }
        if source.config_map_ref.is_some() {
            report.fail_at("configMapRef", CONFIG_MAP);
        }
    });
}

fn check_volume(report: &mut Report, volume: &Volume) {
    for (field, is_set, why) in [
        ("secret", volume.secret.is_some(), SECRET),
        ("configMap", volume.config_map.is_some(), CONFIG_MAP),
        ("persistentVolumeClaim", volume.persistent_volume_claim.is_some(), CLAIM),
        ("ephemeral", volume.ephemeral.is_some(), CLAIM),
        ("azureFile", volume.azure_file.is_some(), SECRET),
        (
            "csi",
            volume.csi.is_some(),
            "a static pod must not use CSI volumes: their drivers are known to the API server",
        ),
        (
            "glusterfs",
            volume.glusterfs.is_some(),
            "a static pod must not use glusterfs volumes: their Endpoints live in the API server",
        ),
    ] {
        if is_set {
            report.fail_at(field, why);
        }
    }
    let secrets = [
        ("cephfs", volume.cephfs.as_ref().is_some_and(|source| source.secret_ref.is_some())),
        ("cinder", volume.cinder.as_ref().is_some_and(|source| source.secret_ref.is_some())),
        ("flexVolume", volume.flex_volume.as_ref().is_some_and(|source| source.secret_ref.is_some())),
        ("iscsi", volume.iscsi.as_ref().is_some_and(|source| source.secret_ref.is_some())),
        ("rbd", volume.rbd.as_ref().is_some_and(|source| source.secret_ref.is_some())),
        ("scaleIO", volume.scale_io.is_some()),
        ("storageos", volume.storageos.as_ref().is_some_and(|source| source.secret_ref.is_some())),
    ];
    for (field, _) in secrets.iter().filter(|(_, is_set)| *is_set) {
        report.at(field, |report| report.fail_at("secretRef", SECRET));
    }
    let Some(projected) = &volume.projected else { return };
    report.at("projected", |report| {
        report.each_at("sources", projected.sources.as_deref(), |report, source| {
            for (field, is_set, why) in [
                ("secret", source.secret.is_some(), SECRET),
                ("configMap", source.config_map.is_some(), CONFIG_MAP),
                ("serviceAccountToken", source.service_account_token.is_some(), ACCOUNT),
                (
                    "clusterTrustBundle",
                    source.cluster_trust_bundle.is_some(),
                    "a static pod must not use ClusterTrustBundles: they live in the API server",
                ),
                (
                    "podCertificate",
                    source.pod_certificate.is_some(),
                    "a static pod must not use pod certificates: the API server issues them",
                ),
            ] {
                if is_set {
                    report.fail_at(field, why);
                }
            }
        });
    });
}

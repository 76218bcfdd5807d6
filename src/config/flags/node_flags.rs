//! The flags that are about this node only and have no place in the configuration file. Plain values without a thread; the
//! setters take text that was already checked, so that nothing here can fail.

use crate::config::GoDuration;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

/// The flags of one node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeFlags {
    /// `--config`: the configuration file.
    pub config: Option<PathBuf>,
    /// `--config-dir`: the folder of drop-ins.
    pub config_dir: Option<PathBuf>,
    /// `--ferrolet-config`: the file of ferrolet's own settings.
    pub ferrolet_config: Option<PathBuf>,
    /// `--kubeconfig`: how to reach the API server; none for a node by itself.
    pub kubeconfig: Option<PathBuf>,
    /// `--bootstrap-kubeconfig`: how to get the first client certificate.
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// `--hostname-override`: the node's name, where it is not the host's.
    pub hostname_override: Option<String>,
    /// `--node-ip`: no, one or two addresses; an unspecified one (`::`) only prefers its family.
    pub node_ip: Vec<IpAddr>,
    /// `--cert-dir`: certificates and keys.
    pub cert_dir: PathBuf,
    /// `--cloud-provider`: empty or `external`.
    pub cloud_provider: String,
    /// `--root-dir`: volumes, pod files, the agent's memory.
    pub root_dir: PathBuf,
    /// `--seccomp-default`; `load` has taken it over into the configuration's `seccomp_default`.
    pub seccomp_default: bool,
    /// `--node-labels`.
    pub node_labels: BTreeMap<String, String>,
    /// `--lock-file`.
    pub lock_file: Option<PathBuf>,
    /// `--exit-on-lock-contention`.
    pub exit_on_lock_contention: bool,
    /// `--runtime-cgroups`.
    pub runtime_cgroups: String,
    /// `--image-credential-provider-config`.
    pub image_credential_provider_config: Option<PathBuf>,
    /// `--image-credential-provider-bin-dir`.
    pub image_credential_provider_bin_dir: Option<PathBuf>,
    /// `--minimum-container-ttl-duration`.
    pub minimum_container_ttl_duration: GoDuration,
    /// `--maximum-dead-containers-per-container`.
    pub maximum_dead_containers_per_container: i32,
    /// `--maximum-dead-containers`; negative for no limit.
    pub maximum_dead_containers: i32,
    /// `--experimental-mounter-path`.
    pub experimental_mounter_path: Option<PathBuf>,
    /// `--experimental-allocatable-ignore-eviction`.
    pub experimental_allocatable_ignore_eviction: bool,
}

impl Default for NodeFlags {
    fn default() -> Self {
        NodeFlags {
            config: None,
            config_dir: None,
            ferrolet_config: None,
            kubeconfig: None,
            bootstrap_kubeconfig: None,
            hostname_override: None,
            node_ip: Vec::new(),
            cert_dir: "/var/lib/kubelet/pki".into(),
            cloud_provider: String::new(),
            root_dir: "/var/lib/kubelet".into(),
            seccomp_default: false,
            node_labels: BTreeMap::new(),
            lock_file: None,
            exit_on_lock_contention: false,
            runtime_cgroups: String::new(),
            image_credential_provider_config: None,
            image_credential_provider_bin_dir: None,
            minimum_container_ttl_duration: GoDuration::ZERO,
            maximum_dead_containers_per_container: 1,
            maximum_dead_containers: -1,
            experimental_mounter_path: None,
            experimental_allocatable_ignore_eviction: false,
        }
    }
}

pub(super) fn file(value: &str) -> Option<PathBuf> {
    (!value.is_empty()).then(|| value.into())
}

pub(super) fn text(value: &str) -> Option<String> {
    (!value.is_empty()).then(|| value.to_owned())
}

pub(super) fn yes(value: &str) -> bool {
    super::value::boolean(value).unwrap_or(false)
}

pub(super) fn span(value: &str) -> GoDuration {
    GoDuration::parse(value).unwrap_or(GoDuration::ZERO)
}

pub(super) fn number(value: &str, default: i32) -> i32 {
    value.parse().unwrap_or(default)
}

pub(super) fn addresses(value: &str) -> Vec<IpAddr> {
    value.split(',').filter_map(|address| address.trim().parse().ok()).collect()
}

pub(super) fn pairs(value: &str) -> BTreeMap<String, String> {
    super::value::pairs(value, '=').unwrap_or_default()
}

//! The node's server, as the configuration has it.
//!
//! On the main thread, at start. Owns nothing; what it starts ends when the handle is dropped.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;

use crate::agents::certs::CertFiles;
use crate::config::features::is_enabled;
use crate::config::{KubeletConfiguration, NodeFlags, print};
use crate::cri::Client;
use crate::kube::ApiClient;
use crate::kube::serving::{Serving, ServingFiles};
use crate::msg::NodeView;
use crate::server::Checks;
use crate::server::node::auth::{ApiReviewer, Auth, AuthSettings, ClientAuthority, Mode};
use crate::server::node::dispatch::Switches;
use crate::server::node::limits::Limits;
use crate::server::node::routes::ROUTES;
use crate::server::node::tls::{Tls, TlsOptions};
use crate::server::node::{NodeParts, NodeServer, NodeServerSettings};
use crate::server::stats::Stats;
use crate::server::streams::StreamParts;
use crate::util::cancel::Cancel;
use crate::util::snapshot::Snapshot;

/// What the server is made of.
pub(super) struct Offers<'a> {
    pub(super) config: &'a KubeletConfiguration,
    pub(super) flags: &'a NodeFlags,
    pub(super) node_name: &'a str,
    pub(super) root_dir: &'a Path,
    /// Who is asked about callers.
    pub(super) reviewer: ApiReviewer,
    pub(super) view: Arc<Snapshot<NodeView>>,
    pub(super) runtime: Client,
    pub(super) checks: Checks,
    pub(super) stats: Arc<Stats>,
    /// See [`show`].
    pub(super) configuration: Arc<Snapshot<String>>,
}

/// Asks the API server about callers; without one nobody can be asked.
pub(super) fn reviewer(client: Option<&ApiClient>) -> ApiReviewer {
    ApiReviewer::new(client)
}

/// Keeps the configuration in force where the server shows it from.
pub(super) fn show(place: &Snapshot<String>, config: &KubeletConfiguration) {
    place.set(Arc::new(print::to_configz(config).to_string()));
}

/// Starts the server; `None` where `enableServer` is false.
///
/// # Errors
/// An address is none, or the kernel has no thread left.
pub(super) fn start(offers: Offers<'_>) -> anyhow::Result<Option<NodeServer>> {
    let Offers { config, flags, node_name, root_dir, reviewer, view, runtime, checks, stats, configuration } = offers;
    if !config.enable_server {
        return Ok(None);
    }
    let ip: IpAddr = config.address.parse().context("address")?;
    let port = |name: &'static str, port: i32| u16::try_from(port).context(name);
    let read_only = match port("readOnlyPort", config.read_only_port)? {
        0 => None,
        number => Some(SocketAddr::new(ip, number)),
    };
    let settings = NodeServerSettings {
        secure: SocketAddr::new(ip, port("port", config.port)?),
        read_only,
        switches: Switches {
            debugging: config.enable_debugging_handlers,
            system_logs: config.enable_system_log_handler,
            profiling: config.enable_profiling_handler,
            debug_flags: config.enable_debug_flags_handler,
        },
        routes: ROUTES,
        limits: Limits::default(),
    };
    let parts = NodeParts {
        node: node_name.to_owned(),
        view,
        runtime,
        checks,
        stats,
        root_dir: root_dir.to_owned(),
        configuration,
        counts: Arc::default(),
        streams: StreamParts::new(
            config.streaming_connection_idle_timeout.to_std(),
            config.enable_system_log_query,
            &|gate| is_enabled(&config.feature_gates, gate),
        )
        .context("sessions")?,
        stop: Cancel::new(),
    };
    let tls = Tls::new(Serving::new(serving_files(config, flags, node_name)?), &tls_options(config));
    let auth = Auth::new(auth_settings(config, node_name), Arc::new(reviewer));
    NodeServer::start(settings, tls, auth, Arc::new(parts)).map(Some).context("start the node's server")
}

fn serving_files(config: &KubeletConfiguration, flags: &NodeFlags, node_name: &str) -> anyhow::Result<ServingFiles> {
    let folder = std::path::absolute(&flags.cert_dir).context("--cert-dir")?;
    let given = (!config.tls_cert_file.is_empty())
        .then(|| (PathBuf::from(&config.tls_cert_file), PathBuf::from(&config.tls_private_key_file)));
    let signed = config.server_tls_bootstrap.then(|| CertFiles::serving(&folder).current());
    Ok(ServingFiles { signed, given, folder, host: node_name.to_owned() })
}

fn tls_options(config: &KubeletConfiguration) -> TlsOptions {
    TlsOptions {
        cipher_suites: config.tls_cipher_suites.clone(),
        curves: config.tls_curve_preferences.clone(),
        // What is older than 1.2 is not spoken, whatever is allowed.
        only_newest: config.tls_min_version == "VersionTLS13",
    }
}

fn auth_settings(config: &KubeletConfiguration, node_name: &str) -> AuthSettings {
    let authentication = &config.authentication;
    let authorization = &config.authorization;
    let reads_uids = is_enabled(&config.feature_gates, "AllowParsingUserUIDFromCertAuth");
    let file = &authentication.x509.client_ca_file;
    AuthSettings {
        node: node_name.to_owned(),
        authority: (!file.is_empty()).then(|| ClientAuthority::new(PathBuf::from(file), reads_uids)),
        tokens: authentication.webhook.enabled,
        token_ttl: authentication.webhook.cache_ttl.to_std(),
        anonymous: authentication.anonymous.enabled,
        mode: if authorization.mode == "AlwaysAllow" { Mode::AlwaysAllow } else { Mode::Webhook },
        allowed_ttl: authorization.webhook.cache_authorized_ttl.to_std(),
        denied_ttl: authorization.webhook.cache_unauthorized_ttl.to_std(),
    }
}

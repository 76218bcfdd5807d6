//! How the node joins its cluster: from the files that the flags name to a client of the API server.
//!
//! On the main thread, at start, before any thread that speaks to the API server. Owns nothing. A
//! certificate that is missing or does not count is no reason to stop: only files that make no sense are.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use serde_json::Value;

use crate::agents::certs::{CertFiles, CertsConfig, write_kubeconfig};
use crate::config::yaml::{Limits, yaml_to_json};
use crate::config::{KubeletConfiguration, NodeFlags};
use crate::core::node_object::go_architecture;
use crate::kube::kubeconfig::Pem;
use crate::kube::{Access, ApiClient, RateLimit, certificate, kubeconfig};
use crate::util::clock;
use crate::util::fs::read_bounded;

/// Largest kubeconfig.
const MAX_KUBECONFIG: u64 = 4 << 20;

/// How the node speaks to its cluster.
pub(super) struct Joined {
    /// As the node.
    pub(super) client: ApiClient,
    /// What the thread `certs` needs, where the agent looks after its certificate itself.
    pub(super) certs: Option<CertsConfig>,
    /// `--cert-dir`, absolute.
    pub(super) cert_dir: PathBuf,
}

/// What --kubeconfig and --bootstrap-kubeconfig ask for; `None` without them. Nothing is sent yet.
///
/// # Errors
/// A kubeconfig cannot be read or used.
pub(super) fn join(config: &KubeletConfiguration, flags: &NodeFlags, node: &str) -> anyhow::Result<Option<Joined>> {
    let Some(file) = &flags.kubeconfig else {
        if flags.bootstrap_kubeconfig.is_some() {
            bail!(
                "--bootstrap-kubeconfig needs --kubeconfig: the file that is written once the node has its certificate"
            );
        }
        return Ok(None);
    };
    let files = CertFiles::new(&std::path::absolute(&flags.cert_dir).context("--cert-dir")?);
    let bootstrap = bootstrap(flags, file, &files)?;
    let mut access = access(file).context("--kubeconfig")?;
    for warning in &access.warnings {
        log::warn!("{}: {warning}", file.display());
    }
    log::info!("the API server is {}", access.server());
    let (is_managed, bootstrap) = match access.client_certificate() {
        _ if bootstrap.is_none() && !config.rotate_certificates => (false, None),
        Some(pair) => (take_over(pair, &files), bootstrap),
        // As with the kubelet, a token or a plugin asks for the certificate that the node is known by from then on.
        None => (true, bootstrap.or_else(|| Some(access.clone()))),
    };
    let limit = RateLimit {
        per_second: f64::from(config.kube_api_qps),
        burst: u32::try_from(config.kube_api_burst).unwrap_or(0),
    };
    let make = |access| ApiClient::new(access, &user_agent(), limit);
    if is_managed {
        access = access.with_client_certificate(&files.current(), &files.current());
    } else if config.rotate_certificates {
        log::warn!(
            "rotateCertificates: {} has no client certificate that can be read, so none is renewed",
            file.display()
        );
    }
    let client = make(access);
    let certs = is_managed.then(|| CertsConfig {
        folder: files.folder().to_owned(),
        node_name: node.to_owned(),
        rotate: config.rotate_certificates,
        client: client.clone(),
        bootstrap: bootstrap.map(make),
    });
    Ok(Some(Joined { client, certs, cert_dir: files.folder().to_owned() }))
}

/// The bootstrap credentials, if there are any. Where the kubeconfig is missing, or its certificate does not count any more,
/// the kubeconfig is written anew.
fn bootstrap(flags: &NodeFlags, kubeconfig: &Path, files: &CertFiles) -> anyhow::Result<Option<Access>> {
    let Some(file) = &flags.bootstrap_kubeconfig else { return Ok(None) };
    let present = access(kubeconfig);
    let counts = present.as_ref().is_ok_and(certificate_counts);
    let bootstrap = match access(file) {
        Ok(bootstrap) => bootstrap,
        // The node has joined before: the token is of use for an emergency only.
        Err(error) if present.is_ok() => {
            if !counts {
                log::warn!(
                    "--bootstrap-kubeconfig: {error:#}; the certificate of {} is all there is",
                    kubeconfig.display()
                );
            }
            return Ok(None);
        }
        Err(error) => return Err(error.context("--bootstrap-kubeconfig")),
    };
    if !counts {
        log::info!("{} is written: the node joins with {}", kubeconfig.display(), file.display());
        let target = std::path::absolute(kubeconfig).context("--kubeconfig")?;
        write_kubeconfig(&target, &bootstrap.cluster_value(), &files.current()).context("--kubeconfig")?;
    }
    Ok(Some(bootstrap))
}

/// Whether a kubeconfig's client certificate is there and not past its end.
fn certificate_counts(access: &Access) -> bool {
    let Some((chain, _)) = access.client_certificate() else { return false };
    let now = clock::wall() / 1_000_000_000;
    chain.read().and_then(|pem| certificate::validity(&pem)).is_ok_and(|(_, not_after)| now <= not_after)
}

/// Makes the certificate in the certificate folder the one in use; whether it is.
fn take_over((chain, key): (&Pem, &Pem), files: &CertFiles) -> bool {
    if *chain == Pem::File(files.current()) || files.validity().is_some() {
        return true;
    }
    let pair = chain.read().and_then(|chain| Ok((chain, key.read()?)));
    let copied = pair.and_then(|(chain, key)| {
        certificate::check_pair(&chain, &key)?;
        let key = String::from_utf8(key).map_err(|_| "the client key is no text".to_owned())?;
        files.put(&chain, &key).map_err(|error| format!("{error}: {:?}", error.kind()))
    });
    copied.inspect_err(|why| log::warn!("the client certificate stays where it is: {why}")).is_ok()
}

/// Reads a kubeconfig.
fn access(file: &Path) -> anyhow::Result<Access> {
    Ok(kubeconfig::read(value(file)?, &std::path::absolute(file)?, None)?)
}

fn value(file: &Path) -> anyhow::Result<Value> {
    let text = read_bounded(file, MAX_KUBECONFIG)?;
    let document = yaml_to_json(&text, &Limits::default()).map_err(|error| anyhow!("{}: {error}", file.display()))?;
    Ok(document.value)
}

/// Who asks, in the form of the clients of Kubernetes.
fn user_agent() -> String {
    format!("ferrolet/{} (linux/{})", env!("CARGO_PKG_VERSION"), go_architecture(std::env::consts::ARCH))
}

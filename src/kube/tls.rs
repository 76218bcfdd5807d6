//! TLS as a client of the API server: whom to trust, and who we are.
//!
//! Called by the credentials, on the threads that make requests; owns nothing. It never accepts a
//! server that nobody vouches for, unless the kubeconfig says so in plain words.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use crate::util::any_certificate::AnyCertificate;

/// Sessions that are remembered for a quicker handshake; there is one server.
const SESSIONS: usize = 2;

/// Whom to trust.
#[derive(Clone, Debug)]
pub(super) enum Roots {
    /// The certificates of this PEM text.
    Pem(Vec<u8>),
    /// What the machine trusts.
    System,
    /// Anybody.
    Insecure,
}

/// Certificate chain and key, both PEM.
pub(super) struct Identity {
    pub(super) chain: Vec<u8>,
    pub(super) key: Vec<u8>,
}

/// Settings for connections.
///
/// # Errors
/// A text holds no certificate or key, or the two do not belong together: a sentence that names which of them.
pub(super) fn client_config(roots: &Roots, identity: Option<&Identity>) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match roots {
        Roots::Insecure => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate::new(provider)))
        }
        Roots::System => builder.with_root_certificates(store(&super::fetch::system_roots_pem())?),
        Roots::Pem(pem) => builder.with_root_certificates(store(pem)?),
    };
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = (chain_of(&identity.chain)?, key_of(&identity.key)?);
            let refused = |error| format!("client certificate and key do not fit together: {error}");
            builder.with_client_auth_cert(chain, key).map_err(refused)?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    Ok(config)
}

fn store(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
    // A bundle may hold certificates of a kind that nobody can check any more; the others count.
    let (good, _skipped) = store.add_parsable_certificates(certificates);
    if good == 0 {
        return Err("the certificate authority holds no certificate in PEM form that can be used".to_owned());
    }
    Ok(store)
}

fn chain_of(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|error| format!("the client certificate is not in PEM form: {error}"))?;
    if chain.is_empty() {
        return Err("the client certificate holds no CERTIFICATE in PEM form".to_owned());
    }
    Ok(chain)
}

fn key_of(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    // The error of the parser may not show a byte of the key.
    PrivateKeyDer::from_pem_slice(pem)
        .map_err(|_| "the client key holds no unencrypted private key in PEM form".to_owned())
}

/// The name that the server's certificate must be for.
///
/// # Errors
/// It is neither a DNS name nor an IP address.
pub(super) fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(bare).map_err(|_| format!("{host:?} is no name that a certificate can have"))?;
    Ok(name.to_owned())
}

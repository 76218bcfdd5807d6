//! TLS as a server: the node's certificate as it is at the moment, the ciphers that the configuration allows, and clients that may show
//! a certificate.
//!
//! Called on the accepting thread; owns the settings for the certificate in use. A certificate that changed is in force for the next connection.
//! What a client shows is only checked for whether it holds the key; whether it counts is decided for each request, so that a caller with
//! the wrong one gets an answer that says so.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{
    CipherSuite, DigitallySignedStruct, DistinguishedName, NamedGroup, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
};

use crate::kube::serving::{ServerCertificate, Serving};

/// What the configuration says of TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// `tlsCipherSuites`, for TLS 1.2; empty for all.
    pub cipher_suites: Vec<String>,
    /// `tlsCurvePreferences`; empty for all.
    pub curves: Vec<i32>,
    /// `tlsMinVersion` is VersionTLS13.
    pub only_newest: bool,
}

/// Settings for the next connection.
#[derive(Debug)]
pub struct Tls {
    serving: Serving,
    provider: Arc<CryptoProvider>,
    only_newest: bool,
    /// The certificate that the settings were made of, and they.
    current: Mutex<Option<(Arc<ServerCertificate>, Arc<ServerConfig>)>>,
}

impl Tls {
    /// Serves with the certificates that `serving` finds. Logs what of the options can't be had.
    pub fn new(serving: Serving, options: &TlsOptions) -> Self {
        let (provider, missing) = provider(options);
        if !missing.is_empty() {
            log::warn!("not spoken by this version, and so not offered: {}", missing.join(", "));
        }
        Self { serving, provider: Arc::new(provider), only_newest: options.only_newest, current: Mutex::default() }
    }

    /// The settings for a connection that begins now.
    ///
    /// # Errors
    /// There is no certificate to serve with, or it can't be used: a sentence for people.
    pub fn config(&self) -> Result<Arc<ServerConfig>, String> {
        let certificate = self.serving.current()?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made_of, config)) = &*current
            && Arc::ptr_eq(made_of, &certificate)
        {
            return Ok(Arc::clone(config));
        }
        let config = Arc::new(self.make(&certificate)?);
        *current = Some((certificate, Arc::clone(&config)));
        Ok(config)
    }

    fn make(&self, certificate: &ServerCertificate) -> Result<ServerConfig, String> {
        let named = |why: &str| format!("{}: {why}", certificate.file.display());
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate.chain).collect();
        let chain = chain.map_err(|_| named("the certificate is not in PEM form"))?;
        let key = PrivateKeyDer::from_pem_slice(&certificate.key).map_err(|_| named("there is no key in PEM form"))?;
        let versions: &[_] = if self.only_newest { &[&TLS13] } else { &[&TLS13, &TLS12] };
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(versions)
            .map_err(|error| named(&error.to_string()))?
            .with_client_cert_verifier(Arc::new(AnyClient(Arc::clone(&self.provider))))
            .with_single_cert(chain, key)
            .map_err(|error| named(&error.to_string()))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Clients are few and stay; what would be kept for those who come again costs more than it saves.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

/// The algorithms that are offered, and what was asked for and can't be had.
fn provider(options: &TlsOptions) -> (CryptoProvider, Vec<String>) {
    let mut provider = ring::default_provider();
    let mut missing = Vec::new();
    if !options.cipher_suites.is_empty() {
        let wanted: Vec<Option<CipherSuite>> = options.cipher_suites.iter().map(|name| suite(name)).collect();
        let names = options.cipher_suites.iter().zip(&wanted).filter(|(_, suite)| suite.is_none());
        missing.extend(names.map(|(name, _)| name.clone()));
        // Those of TLS 1.3 can't be chosen, upstream neither.
        provider.cipher_suites.retain(|known| known.tls13().is_some() || wanted.contains(&Some(known.suite())));
    }
    if !options.curves.is_empty() {
        let curve = |number: &i32| match number {
            23 => Some(NamedGroup::secp256r1),
            24 => Some(NamedGroup::secp384r1),
            29 => Some(NamedGroup::X25519),
            _ => None,
        };
        let others = options.curves.iter().filter(|number| curve(number).is_none());
        missing.extend(others.map(|number| format!("curve {number}")));
        let wanted: Vec<NamedGroup> = options.curves.iter().filter_map(curve).collect();
        if wanted.is_empty() {
            missing.push("any of the curves, so that all of this version are offered".to_owned());
        } else {
            provider.kx_groups.retain(|group| wanted.contains(&group.name()));
        }
    }
    (provider, missing)
}

/// The suite of this Go name that is spoken here: those with forward secrecy and an AEAD, as rustls has them.
fn suite(name: &str) -> Option<CipherSuite> {
    use CipherSuite as Suite;
    Some(match name {
        "TLS_AES_128_GCM_SHA256" => Suite::TLS13_AES_128_GCM_SHA256,
        "TLS_AES_256_GCM_SHA384" => Suite::TLS13_AES_256_GCM_SHA384,
        "TLS_CHACHA20_POLY1305_SHA256" => Suite::TLS13_CHACHA20_POLY1305_SHA256,
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256" => Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384" => Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" | "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256" => {
            Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        }
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256" => Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384" => Suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" | "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256" => {
            Suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
        }
        _ => return None,
    })
}

/// Asks for a certificate and takes any whose owner holds the key.
#[derive(Debug)]
struct AnyClient(Arc<CryptoProvider>);

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // A client that was given names shows no other certificate, and could not be told why it is not let in.
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(suites: &[&str], curves: &[i32], old_suites: usize, groups: usize, missing: usize) {
        let options = TlsOptions {
            cipher_suites: suites.iter().map(|name| (*name).to_owned()).collect(),
            curves: curves.to_vec(),
            only_newest: false,
        };
        let (provider, lacks) = provider(&options);
        let old = provider.cipher_suites.iter().filter(|suite| suite.tls13().is_none()).count();
        let new = provider.cipher_suites.len() - old;
        assert_eq!(
            (old, new, provider.kx_groups.len(), lacks.len()),
            (old_suites, 3, groups, missing),
            "{suites:?} {curves:?}"
        );
    }

    #[test]
    fn what_is_offered_is_what_was_asked_for() {
        check(&[], &[], 6, 3, 0);
        check(&["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"], &[], 1, 3, 0);
        check(&["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_AES_128_GCM_SHA256"], &[], 1, 3, 0);
        check(&["TLS_RSA_WITH_AES_128_CBC_SHA"], &[], 0, 3, 1);
        check(&[], &[29, 23], 6, 2, 0);
        check(&[], &[25, 4588], 6, 3, 3);
        check(&[], &[24, 4588], 6, 1, 1);
    }
}

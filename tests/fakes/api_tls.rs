//! A certificate authority made for one test: certificates for servers and clients, and TLS settings for the fake server.
//!
//! Owns its key. Certificates are good from 1975 to 4096 unless a test says otherwise.

use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// A certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate, PEM.
    pub(crate) pem: String,
}

/// A certificate with its key, both PEM.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key).expect("signed").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// One that is there already, by its name, certificate and key (PEM).
    pub(crate) fn known(name: &str, certificate: &str, key: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::from_pem(key).expect("a key");
        Self { issuer: Issuer::new(params, key), pem: certificate.to_owned() }
    }

    /// A certificate for these DNS names and addresses.
    pub(crate) fn pair(&self, common_name: &str, names: &[&str]) -> Pair {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, common_name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed").pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    /// A certificate for somebody's key (PEM), good for these seconds since 1970.
    pub(crate) fn sign(&self, key: &str, common_name: &str, from: i64, to: i64) -> String {
        self.sign_for(key, common_name, &[], from, to)
    }

    /// As [`Self::sign`], for these DNS names and addresses.
    pub(crate) fn sign_for(&self, key: &str, common_name: &str, names: &[&str], from: i64, to: i64) -> String {
        let key = KeyPair::from_pem(key).expect("a key");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, common_name);
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        params.not_before = epoch + Duration::from_secs(from.unsigned_abs());
        params.not_after = epoch + Duration::from_secs(to.unsigned_abs());
        params.signed_by(&key, &self.issuer).expect("signed").pem()
    }

    /// Settings of a server with this certificate, which asks clients for one of this authority and takes those without.
    pub(crate) fn server(&self, pair: &Pair) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&self.pem)).expect("a certificate");
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let verifier = verifier.allow_unauthenticated().build().expect("a verifier");
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                vec![certificate(&pair.certificate)],
                PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a key"),
            )
            .expect("a pair");
        Arc::new(config)
    }
}

/// The same settings for a server that speaks HTTP/2 as well.
pub(crate) fn with_streams(config: &ServerConfig) -> Arc<ServerConfig> {
    let mut config = config.clone();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

/// The DER of a certificate in PEM form.
pub(crate) fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")
}

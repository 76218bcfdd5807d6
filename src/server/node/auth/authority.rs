//! Client certificates: whose signature counts (`clientCAFile`), and who a certificate says its owner is.
//!
//! On the threads that serve requests; owns the authorities that were read last, behind a lock. The file is looked at
//! again when somebody shows a certificate, a few seconds apart, and no thread wakes for it. A file that can't be read leaves the last good one in
//! force.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use sha2::{Digest as _, Sha256};

use super::super::http::Caller;
use crate::api::moment::Moment;
use crate::kube::subject;
use crate::util::clock;
use crate::util::file_mark::FileMark;
use crate::util::fs::read_bounded;

/// How often the file is looked at, at most.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Largest file.
const MAX_FILE: u64 = 4 << 20;
/// Under which extra field the API server is told which credential was shown.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// The authorities of a file.
pub struct ClientAuthority {
    file: PathBuf,
    /// Whether uids in subjects count.
    reads_uids: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    looked_at: Option<Moment>,
    seen: Option<FileMark>,
    /// What the log was told last, so that it is told once.
    told: Option<String>,
}

impl std::fmt::Debug for ClientAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientAuthority").field("file", &self.file).finish_non_exhaustive()
    }
}

impl ClientAuthority {
    /// The authorities of `clientCAFile`. Nothing is read yet.
    pub fn new(file: PathBuf, reads_uids: bool) -> Self {
        Self { file, reads_uids, state: Mutex::default() }
    }

    /// Who shows these certificates, its own first; `None` for one that names nobody.
    ///
    /// # Errors
    /// They don't count: a sentence that says why.
    pub(super) fn caller(&self, certificates: &[CertificateDer<'_>]) -> Result<Option<Caller>, String> {
        self.caller_at(certificates, clock::moment(), clock::wall() / 1_000_000_000)
    }

    fn caller_at(&self, certificates: &[CertificateDer<'_>], now: Moment, wall: i64) -> Result<Option<Caller>, String> {
        let Some((own, others)) = certificates.split_first() else { return Ok(None) };
        let verifier = self.verifier(now)?;
        let time = UnixTime::since_unix_epoch(Duration::from_secs(wall.unsigned_abs()));
        verifier.verify_client_cert(own, others, time).map_err(|error| match error {
            rustls::Error::InvalidCertificate(why) => why.to_string(),
            other => other.to_string(),
        })?;
        let subject = subject::of(own).ok_or("its subject can't be read")?;
        if subject.common_name.is_empty() {
            return Ok(None);
        }
        let uid = match subject.uids.as_slice() {
            _ if !self.reads_uids => String::new(),
            [] => String::new(),
            [uid] if !uid.is_empty() => uid.clone(),
            _ => return Err("its subject does not have one uid".to_owned()),
        };
        let print: String = Sha256::digest(own).iter().map(|byte| format!("{byte:02x}")).collect();
        let extra = vec![(CREDENTIAL.to_owned(), vec![format!("X509SHA256={print}")])];
        Ok(Some(Caller { name: subject.common_name, uid, groups: subject.organizations, extra }))
    }

    fn verifier(&self, now: Moment) -> Result<Arc<dyn ClientCertVerifier>, String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = state.looked_at.is_some_and(|at| now.since(at) < LOOK_EVERY);
        if !is_fresh || state.verifier.is_none() {
            state.looked_at = Some(now);
            let seen = FileMark::of(&self.file);
            if seen.is_none() || seen != state.seen || state.verifier.is_none() {
                match self.load() {
                    Ok(verifier) => {
                        if state.verifier.is_some() {
                            log::info!("{} changed, its authorities count from now on", self.file.display());
                        }
                        state.verifier = Some(verifier);
                        (state.seen, state.told) = (seen, None);
                    }
                    Err(why) => {
                        if state.told.as_ref() != Some(&why) {
                            log::warn!("clientCAFile: {why}");
                            state.told = Some(why.clone());
                        }
                        if state.verifier.is_none() {
                            return Err(why);
                        }
                    }
                }
            }
        }
        state.verifier.clone().ok_or_else(|| "no authority is known".to_owned())
    }

    fn load(&self) -> Result<Arc<dyn ClientCertVerifier>, String> {
        let text = read_bounded(&self.file, MAX_FILE).map_err(|error| error.to_string())?;
        let mut store = RootCertStore::empty();
        let (good, _others) =
            store.add_parsable_certificates(CertificateDer::pem_slice_iter(&text).filter_map(Result::ok));
        if good == 0 {
            return Err(format!("{} holds no certificate in PEM form that can be used", self.file.display()));
        }
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider).build();
        verifier.map(|verifier| verifier as Arc<dyn ClientCertVerifier>).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{
        BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    };

    const NOW: i64 = 1_796_025_600;

    struct Signer {
        issuer: Issuer<'static, KeyPair>,
        pem: String,
    }

    fn signer(name: &str) -> Signer {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key).expect("signed").pem();
        Signer { issuer: Issuer::new(params, key), pem }
    }

    impl Signer {
        fn sign(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
            let mut params = CertificateParams::default();
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::OrganizationName, "team");
            if !name.is_empty() {
                params.distinguished_name.push(DnType::CommonName, name);
            }
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            (params.not_before, params.not_after) =
                (rcgen::date_time_ymd(2026, 1, 1), rcgen::date_time_ymd(2027, 1, 1));
            change(&mut params);
            let key = KeyPair::generate().expect("a key");
            params.signed_by(&key, &self.issuer).expect("signed").der().clone()
        }
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn certificates_are_judged_by_signature_time_and_purpose() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("ca.crt");
        let (own, other) = (signer("own"), signer("other"));
        std::fs::write(&file, &own.pem).expect("written");
        let authority = ClientAuthority::new(file, true);
        let check = |certificate: CertificateDer<'static>, expect: Result<&str, &str>| {
            let got = authority.caller_at(&[certificate], at(0), NOW);
            match (&got, expect) {
                (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
                (Ok(caller), Ok(name)) => assert_eq!(caller.as_ref().map_or("", |caller| caller.name.as_str()), name),
                _ => panic!("{got:?} {expect:?}"),
            }
        };
        check(own.sign("jane", |_| ()), Ok("jane"));
        check(own.sign("jane", |params| params.extended_key_usages.clear()), Ok("jane"));
        check(own.sign("", |_| ()), Ok(""));
        check(other.sign("jane", |_| ()), Err("UnknownIssuer"));
        check(own.sign("jane", |params| params.not_after = rcgen::date_time_ymd(2026, 2, 1)), Err("expired"));
        check(own.sign("jane", |params| params.not_before = rcgen::date_time_ymd(2026, 12, 31)), Err("not valid yet"));
        check(
            own.sign("jane", |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]),
            Err("extended key usage"),
        );
        check(CertificateDer::from(vec![1, 2, 3]), Err(""));
        let caller = authority.caller_at(&[own.sign("jane", |_| ())], at(0), NOW).expect("known").expect("named");
        assert_eq!(caller.groups, ["team"]);
        let (name, values) = &caller.extra[0];
        assert_eq!(name, "authentication.kubernetes.io/credential-id");
        assert!(values[0].starts_with("X509SHA256=") && values[0].len() == 11 + 64, "{values:?}");
        assert_eq!(authority.caller_at(&[], at(0), NOW), Ok(None));
    }

    #[test]
    fn the_file_is_followed_while_certificates_are_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("ca.crt");
        let authority = ClientAuthority::new(file.clone(), true);
        let (first, second) = (signer("first"), signer("second"));
        let knows = |seconds: u64, signer: &Signer| {
            authority.caller_at(&[signer.sign("jane", |_| ())], at(seconds), NOW).is_ok()
        };
        let missing = authority.caller_at(&[first.sign("jane", |_| ())], at(0), NOW).expect_err("no file");
        assert!(missing.contains("ca.crt"), "{missing}");
        std::fs::write(&file, &first.pem).expect("written");
        assert!(knows(0, &first), "one that never was there is looked for each time");
        std::fs::write(&file, "nothing").expect("written");
        assert!(knows(10, &first), "the last good one stays");
        std::fs::write(&file, format!("{}{}", first.pem, second.pem)).expect("written");
        assert!(!knows(12, &second), "it is not looked at yet");
        assert!(knows(20, &second) && knows(20, &first));
        std::fs::remove_file(&file).expect("removed");
        assert!(knows(30, &second));
    }
}

//! Certificates as texts: a new key and the request to sign it, what a certificate says of its life and whom it names.
//!
//! Called by the threads `certs` and `serving`; owns nothing, does no I/O. It never shows a key.

use std::net::IpAddr;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;

use super::tls::{Identity, Roots, client_config};

/// A private key (ECDSA P-256), PEM.
pub struct Key(KeyPair);

impl Key {
    /// A new one.
    ///
    /// # Errors
    /// The kernel has no randomness.
    pub fn generate() -> Result<Self, String> {
        KeyPair::generate().map(Self).map_err(|error| format!("no private key can be made: {error}"))
    }

    /// One that was made before.
    ///
    /// # Errors
    /// It is no private key of a kind that can sign requests.
    pub fn read(pem: &str) -> Result<Self, String> {
        KeyPair::from_pem(pem).map(Self).map_err(|_| "this is no private key in PEM form".to_owned())
    }

    /// As PEM text.
    pub fn pem(&self) -> String {
        self.0.serialize_pem()
    }

    /// The public half, by which a request is named.
    pub fn public(&self) -> &[u8] {
        self.0.public_key_raw()
    }

    /// A certificate signing request (PKCS #10, PEM) for this subject under these names and addresses.
    ///
    /// # Errors
    /// The subject cannot be written.
    pub fn request(
        &self,
        common_name: &str,
        organization: &str,
        dns: &[String],
        ips: &[IpAddr],
    ) -> Result<String, String> {
        let no = |error| format!("no certificate request can be made: {error}");
        let mut params = CertificateParams::new(dns).map_err(no)?;
        params.subject_alt_names.extend(ips.iter().copied().map(SanType::IpAddress));
        let mut name = DistinguishedName::new();
        name.push(DnType::OrganizationName, organization);
        name.push(DnType::CommonName, common_name);
        params.distinguished_name = name;
        let request = params.serialize_request(&self.0).and_then(|request| request.pem());
        request.map_err(no)
    }
}

/// Whether a certificate and a key belong together.
///
/// # Errors
/// They do not, or one of them cannot be read.
pub fn check_pair(chain: &[u8], key: &[u8]) -> Result<(), String> {
    let identity = Identity { chain: chain.to_vec(), key: key.to_vec() };
    client_config(&Roots::Insecure, Some(&identity)).map(drop)
}

/// From when to when the first certificate of a PEM text counts, in seconds since 1970.
///
/// # Errors
/// There is no certificate.
pub fn validity(pem: &[u8]) -> Result<(i64, i64), String> {
    let leaf = CertificateDer::from_pem_slice(pem).map_err(|_| "there is no certificate in PEM form".to_owned())?;
    read_validity(&leaf).ok_or_else(|| "the certificate cannot be read".to_owned())
}

/// Whether the first certificate of a PEM text counts for all of these names and addresses.
pub fn covers(pem: &[u8], dns: &[String], ips: &[IpAddr]) -> bool {
    let Ok(leaf) = CertificateDer::from_pem_slice(pem) else { return false };
    let Ok(parsed) = ParsedCertificate::try_from(&leaf) else { return false };
    let names = dns.iter().map(|name| ServerName::try_from(name.as_str()));
    let names = names.chain(ips.iter().map(|ip| Ok(ServerName::IpAddress((*ip).into()))));
    names.into_iter().all(|name| name.is_ok_and(|name| verify_server_name(&parsed, &name).is_ok()))
}

/// A certificate for `host` that an authority made for it alone has signed, with that authority's certificate, and
/// its key, both PEM: good for a year from an hour before `now` (seconds since 1970).
///
/// # Errors
/// The host's name is none, or the kernel has no randomness.
pub fn self_signed(host: &str, now: i64) -> Result<(String, String), String> {
    let no = |error: rcgen::Error| format!("no certificate for {host} can be made: {error}");
    let hour = std::time::Duration::from_secs(3600);
    let from = rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(now.unsigned_abs()) - hour;
    let name = |suffix: &str| {
        let mut name = DistinguishedName::new();
        name.push(DnType::CommonName, format!("{host}{suffix}@{now}"));
        name
    };
    let mut authority = CertificateParams::default();
    authority.distinguished_name = name("-ca");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages =
        vec![KeyUsagePurpose::KeyEncipherment, KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
    let mut leaf = CertificateParams::new([host.to_owned()]).map_err(no)?;
    leaf.distinguished_name = name("");
    leaf.key_usages = vec![KeyUsagePurpose::KeyEncipherment, KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    for params in [&mut authority, &mut leaf] {
        (params.not_before, params.not_after) = (from, from + 365 * 24 * hour);
    }
    let (authority_key, key) = (KeyPair::generate().map_err(no)?, KeyPair::generate().map_err(no)?);
    let root = authority.self_signed(&authority_key).map_err(no)?;
    let signed = leaf.signed_by(&key, &Issuer::new(authority, authority_key)).map_err(no)?;
    Ok((format!("{}{}", signed.pem(), root.pem()), key.serialize_pem()))
}

pub(super) const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const VERSION: u8 = 0xa0;

/// Certificate → TBSCertificate → validity (RFC 5280, 4.1).
fn read_validity(der: &[u8]) -> Option<(i64, i64)> {
    let (certificate, _) = take(der, SEQUENCE)?;
    let (mut rest, _) = take(certificate, SEQUENCE)?;
    if rest.first() == Some(&VERSION) {
        rest = take(rest, VERSION)?.1;
    }
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        rest = take(rest, tag)?.1;
    }
    let (validity, _) = take(rest, SEQUENCE)?;
    let (not_before, rest) = take_time(validity)?;
    let (not_after, _) = take_time(rest)?;
    Some((not_before, not_after))
}

/// One value of that tag: its content, and what follows.
pub(super) fn take(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = der.split_first()?;
    let (length, rest) = rest.split_first()?;
    if *first != tag {
        return None;
    }
    let (length, rest) = if *length < 0x80 {
        (usize::from(*length), rest)
    } else {
        let (bytes, rest) = rest.split_at_checked(usize::from(*length & 0x7f))?;
        if bytes.len() > 4 {
            return None;
        }
        (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
    };
    rest.split_at_checked(length)
}

fn take_time(der: &[u8]) -> Option<(i64, &[u8])> {
    let (tag, digits) = match *der.first()? {
        UTC_TIME => (UTC_TIME, 2),
        GENERALIZED_TIME => (GENERALIZED_TIME, 4),
        _ => return None,
    };
    let (text, rest) = take(der, tag)?;
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if text.len() != digits + 10 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i16>().ok();
    let year = match number(0, digits)? {
        year if digits == 4 => year,
        year if year < 50 => 2000 + year,
        year => 1900 + year,
    };
    let part = |index: usize| i8::try_from(number(digits + 2 * index, digits + 2 * index + 2)?).ok();
    let (month, day, hour, minute, second) = (part(0)?, part(1)?, part(2)?, part(3)?, part(4)?);
    let time = jiff::civil::DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    let time = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
    Some((time.as_second(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_makes_a_request_and_comes_back_from_its_text() {
        let key = Key::generate().expect("a key");
        let again = Key::read(&key.pem()).expect("the same key");
        assert_eq!(key.public(), again.public());
        let request = again.request("system:node:n", "system:nodes", &[], &[]).expect("a request");
        assert!(request.starts_with("-----BEGIN CERTIFICATE REQUEST-----"), "{request}");
        assert!(Key::read("hidden").err().is_some_and(|why| !why.contains("hidden")));
    }

    #[test]
    fn the_life_of_a_certificate_is_read_and_nonsense_is_not() {
        let key = KeyPair::generate().expect("a key");
        for (from, to) in [((2026, 11), (2027, 11)), ((1999, 1), (2049, 12)), ((2050, 1), (2150, 2))] {
            let mut params = CertificateParams::default();
            params.not_before = rcgen::date_time_ymd(from.0, from.1, 28);
            params.not_after = rcgen::date_time_ymd(to.0, to.1, 28);
            let expect = (params.not_before.unix_timestamp(), params.not_after.unix_timestamp());
            let certificate = params.self_signed(&key).expect("signed");
            assert_eq!(validity(certificate.pem().as_bytes()), Ok(expect));
            // Cut anywhere it is no certificate, and no panic.
            let der = certificate.der();
            for end in 0..der.len().min(150) {
                assert_eq!(read_validity(&der[..end]), None, "{end}");
            }
        }
        assert!(validity(b"nothing").is_err());
    }

    #[test]
    fn a_certificate_of_ones_own_names_its_host_and_nobody_else() {
        let check = |host: &str, dns: &[&str], ips: &[&str], expect: bool| {
            let (chain, key) = self_signed(host, 1_796_025_600).expect("a certificate");
            assert_eq!(chain.matches("BEGIN CERTIFICATE").count(), 2);
            assert_eq!(check_pair(chain.as_bytes(), key.as_bytes()), Ok(()));
            let year = 365 * 24 * 3600;
            assert_eq!(validity(chain.as_bytes()), Ok((1_796_022_000, 1_796_022_000 + year)));
            let dns: Vec<String> = dns.iter().map(|name| (*name).to_owned()).collect();
            let ips: Vec<IpAddr> = ips.iter().map(|ip| ip.parse().expect("an address")).collect();
            assert_eq!(covers(chain.as_bytes(), &dns, &ips), expect, "{host} {dns:?} {ips:?}");
        };
        check("edge-1", &["edge-1"], &[], true);
        check("edge-1", &[], &[], true);
        check("edge-1", &["edge-1", "edge-2"], &[], false);
        check("edge-1", &["edge-1"], &["10.0.0.1"], false);
        check("edge-1", &["no name"], &[], false);
        check("10.0.0.1", &[], &["10.0.0.1"], true);
        check("fd00::1", &[], &["fd00::1"], true);
        assert!(!covers(b"nothing", &[], &[]));
    }

    #[test]
    fn a_pair_that_does_not_fit_is_refused() {
        let (own, other) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
        let certificate = CertificateParams::default().self_signed(&own).expect("signed").pem();
        assert_eq!(check_pair(certificate.as_bytes(), own.serialize_pem().as_bytes()), Ok(()));
        let error = check_pair(certificate.as_bytes(), other.serialize_pem().as_bytes()).expect_err("another key");
        assert!(error.contains("do not fit together"), "{error}");
    }
}

//! Whom a certificate names: the parts of its subject that say who a client is.
//!
//! Pure; called on any thread; owns nothing. It checks no signature and believes nothing: whoever asks has verified the certificate.

use super::certificate::{INTEGER, SEQUENCE, VERSION, take};

const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
/// UTF8String, PrintableString, TeletexString, IA5String: the kinds of text that names are written in.
const TEXTS: [u8; 4] = [0x0c, 0x13, 0x14, 0x16];

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
/// 1.3.6.1.4.1.57683.2, under which Kubernetes writes a user's uid.
const UID: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x83, 0xc2, 0x53, 0x02];

/// Parts of a subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// CN, the last one; empty if there is none.
    pub common_name: String,
    /// O, all of them, in order.
    pub organizations: Vec<String>,
    /// Uids; one that counts is alone and not empty.
    pub uids: Vec<String>,
}

/// Reads the subject of a certificate (DER); `None` if it can't be read.
pub fn of(der: &[u8]) -> Option<Subject> {
    let (certificate, _) = take(der, SEQUENCE)?;
    let (mut rest, _) = take(certificate, SEQUENCE)?;
    if rest.first() == Some(&VERSION) {
        rest = take(rest, VERSION)?.1;
    }
    // Serial number, algorithm, issuer, validity.
    for tag in [INTEGER, SEQUENCE, SEQUENCE, SEQUENCE] {
        rest = take(rest, tag)?.1;
    }
    let (mut names, _) = take(rest, SEQUENCE)?;
    let mut subject = Subject::default();
    while !names.is_empty() {
        let (mut set, after) = take(names, SET)?;
        names = after;
        while !set.is_empty() {
            let (pair, after) = take(set, SEQUENCE)?;
            set = after;
            let (id, value) = take(pair, OBJECT_ID)?;
            if ![COMMON_NAME, ORGANIZATION, UID].contains(&id) {
                continue;
            }
            let tag = *value.first().filter(|tag| TEXTS.contains(tag))?;
            let text = std::str::from_utf8(take(value, tag)?.0).ok()?.to_owned();
            match id {
                COMMON_NAME => subject.common_name = text,
                ORGANIZATION => subject.organizations.push(text),
                _ => subject.uids.push(text),
            }
        }
    }
    Some(subject)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    fn certificate(names: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        let mut name = DistinguishedName::new();
        for (kind, text) in names {
            name.push(kind.clone(), DnValue::Utf8String((*text).to_owned()));
        }
        params.distinguished_name = name;
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("signed").der().to_vec()
    }

    #[test]
    fn a_subject_is_read() {
        let uid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
        let names = [
            (DnType::CountryName, "DE"),
            (DnType::OrganizationName, "system:masters"),
            (DnType::CommonName, "käthe"),
            (uid, "u-1"),
        ];
        let der = certificate(&names);
        let subject = Subject {
            common_name: "käthe".to_owned(),
            organizations: vec!["system:masters".to_owned()],
            uids: vec!["u-1".to_owned()],
        };
        assert_eq!(of(&der), Some(subject));
        assert_eq!(of(&certificate(&[])), Some(Subject::default()));
        // Cut anywhere before its end it has none, and no panic.
        for end in 0..der.len().min(200) {
            assert_eq!(of(&der[..end]), None, "{end}");
        }
    }

    #[test]
    fn several_organizations_are_several_groups() {
        // rcgen writes one of a kind; two are made of its bytes by hand.
        let set = |text: &str| {
            let value = [&[0x0c, text.len() as u8], text.as_bytes()].concat();
            let pair = [&[0x06, 3, 0x55, 0x04, 0x0a][..], &value].concat();
            let pair = [&[0x30, pair.len() as u8][..], &pair].concat();
            [&[0x31, pair.len() as u8][..], &pair].concat()
        };
        let names = [set("a"), set("b")].concat();
        let wrap = |tag: u8, content: &[u8]| [&[tag, content.len() as u8][..], content].concat();
        let empty = wrap(0x30, &[]);
        let body = [wrap(0x02, &[1]), empty.clone(), empty.clone(), empty, wrap(0x30, &names)].concat();
        let der = wrap(0x30, &wrap(0x30, &body));
        assert_eq!(of(&der).map(|subject| subject.organizations), Some(vec!["a".to_owned(), "b".to_owned()]));
    }
}

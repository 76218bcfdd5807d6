//! Credentials for registries: which of a node's and a pod's docker configurations go with an image.
//!
//! Layer L1, pure. Reads both forms of the file (`{"auths": …}` and the older bare map) and matches as
//! upstream does. Errors name a line and never what stands there.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use serde::Deserialize;

use crate::api::runtime::RegistryAuth;
use crate::util::order;

/// The registry of names without a domain, as docker configurations call it.
const DEFAULT_REGISTRY: &str = "index.docker.io";

/// One entry of a docker configuration.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Entry {
    username: Option<String>,
    password: Option<String>,
    auth: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Modern {
    auths: Option<BTreeMap<String, Entry>>,
}

/// The two forms of a docker configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigForm {
    /// `config.json`, type `kubernetes.io/dockerconfigjson`.
    Json,
    /// `.dockercfg`, type `kubernetes.io/dockercfg`.
    Legacy,
}

/// Credentials by registry. Its Debug form shows registries only.
#[derive(Default)]
pub struct Keyring {
    /// Host, or host and path, with its credentials; reversed order, so that longer paths come first.
    entries: Vec<(String, RegistryAuth)>,
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.entries.iter().map(|(key, _)| key)).finish()
    }
}

impl Keyring {
    /// Adds the credentials of a docker configuration.
    ///
    /// # Errors
    /// It is none: where it is wrong, without a word of what it says.
    pub fn add(&mut self, form: ConfigForm, content: &[u8]) -> Result<(), String> {
        let failed =
            |e: serde_json::Error| format!("line {}, column {}: this is no docker configuration", e.line(), e.column());
        let entries = match form {
            ConfigForm::Json => serde_json::from_slice::<Modern>(content).map_err(failed)?.auths.unwrap_or_default(),
            ConfigForm::Legacy => serde_json::from_slice(content).map_err(failed)?,
        };
        let mut added = Vec::with_capacity(entries.len());
        for (place, entry) in entries {
            let (username, password) = match entry.auth.as_deref().filter(|auth| !auth.is_empty()) {
                Some(auth) => user_and_password(auth)
                    .ok_or_else(|| format!("the auth of {place} must be base64 of user:password"))?,
                None => (entry.username.unwrap_or_default(), entry.password.unwrap_or_default()),
            };
            added.push((key(&place), RegistryAuth { username, password, ..RegistryAuth::default() }));
        }
        self.entries.append(&mut added);
        // Stable: of two for one place the older one is tried first.
        order::sort_by(&mut self.entries, |a, b| b.0.cmp(&a.0));
        Ok(())
    }

    /// Credentials to try for a repository (`docker.io/library/busybox`), in order.
    pub fn lookup(&self, repository: &str) -> Vec<RegistryAuth> {
        let matching = self.entries.iter().filter(|(key, _)| matches(key, repository));
        let found: Vec<RegistryAuth> = matching.map(|(_, auth)| auth.clone()).collect();
        if !found.is_empty() || !is_default_registry(repository) {
            return found;
        }
        self.entries.iter().filter(|(key, _)| key == DEFAULT_REGISTRY).map(|(_, auth)| auth.clone()).collect()
    }
}

fn user_and_password(auth: &str) -> Option<(String, String)> {
    // Both padded and unpadded forms are about.
    let bare = auth.trim().trim_end_matches('=');
    let padded = format!("{bare}{}", "=".repeat((4 - bare.len() % 4) % 4));
    let bytes: ByteString = serde_json::from_value(serde_json::Value::String(padded)).ok()?;
    let text = String::from_utf8(bytes.0).ok()?;
    text.split_once(':').map(|(user, password)| (user.to_owned(), password.to_owned()))
}

/// Host and path of a registry's place, which may be a URL and may end in the API's version.
fn key(place: &str) -> String {
    let bare = place.strip_prefix("https://").or_else(|| place.strip_prefix("http://")).unwrap_or(place);
    let (host, path) = bare.split_at(bare.find('/').unwrap_or(bare.len()));
    let path = path
        .strip_prefix("/v1")
        .or_else(|| path.strip_prefix("/v2"))
        .filter(|rest| rest.starts_with('/'))
        .unwrap_or(path);
    if path == "/" { host.to_owned() } else { format!("{host}{path}") }
}

fn is_default_registry(repository: &str) -> bool {
    match repository.split_once('/') {
        None => !repository.is_empty(),
        Some((first, _)) => {
            matches!(first, "docker.io" | DEFAULT_REGISTRY) || !(first.is_empty() || first.contains(['.', ':']))
        }
    }
}

/// Whether a key, whose host may hold `*` and `?` within its parts, goes with a repository.
fn matches(key: &str, repository: &str) -> bool {
    let split = |text: &str| {
        let (host, path) = text.split_at(text.find('/').unwrap_or(text.len()));
        let (host, port) = host.rsplit_once(':').unwrap_or((host, ""));
        (host.to_owned(), port.to_owned(), path.to_owned())
    };
    let ((host, port, path), (wanted_host, wanted_port, wanted_path)) = (split(key), split(repository));
    let (parts, wanted): (Vec<_>, Vec<_>) = (host.split('.').collect(), wanted_host.split('.').collect());
    port == wanted_port
        && wanted_path.starts_with(&path)
        && parts.len() == wanted.len()
        && parts.iter().zip(wanted).all(|(pattern, text)| glob(pattern.as_bytes(), text.as_bytes()))
}

fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => (0..=text.len()).any(|skipped| glob(rest, &text[skipped..])),
        (Some((b'?', rest)), Some((_, text))) => glob(rest, text),
        (Some((a, rest)), Some((b, text))) => a == b && glob(rest, text),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn ring(places: &[&str]) -> Keyring {
        let auths: BTreeMap<&str, _> = places.iter().map(|p| (*p, json!({"username": p, "password": "x"}))).collect();
        let mut ring = Keyring::default();
        ring.add(ConfigForm::Json, json!({"auths": auths}).to_string().as_bytes()).expect("a configuration");
        ring
    }

    #[test]
    fn the_longest_match_comes_first() {
        for (places, repository, expect) in [
            (&["quay.io", "quay.io/coreos", "gcr.io"][..], "quay.io/coreos/etcd", &["quay.io/coreos", "quay.io"][..]),
            (&["https://r.example/v1/"], "r.example/a", &["https://r.example/v1/"]),
            (&["http://r.example/v2/team"], "r.example/team/a", &["http://r.example/v2/team"]),
            (&["http://r.example/v2/team"], "r.example/other", &[]),
            (&["https://index.docker.io/v1/"], "docker.io/library/busybox", &["https://index.docker.io/v1/"]),
            (&["docker.io", "index.docker.io"], "docker.io/library/busybox", &["docker.io"]),
            (&["index.docker.io"], "r.example/busybox", &[]),
            (&["*.azurecr.io"], "shop.azurecr.io/a", &["*.azurecr.io"]),
            (&["*.io", "a*.azurecr.i?"], "azurecr.io/a", &["*.io"]),
            (&["r.example:5000"], "r.example/a", &[]),
            (&["r.example:5000"], "r.example:5000/a", &["r.example:5000"]),
            (&[], "r.example/a", &[]),
        ] {
            let found = ring(places).lookup(repository);
            let found: Vec<_> = found.iter().map(|auth| auth.username.as_str()).collect();
            assert_eq!(found, expect, "{places:?} {repository}");
        }
    }

    /// `expect`: user and password, or the error.
    fn check(form: ConfigForm, content: &str, expect: Result<(&str, &str), &str>) {
        let mut ring = Keyring::default();
        let got = ring.add(form, content.as_bytes()).map(|()| ring.lookup("r.example/a"));
        match (got, expect) {
            (Ok(found), Ok((user, password))) => {
                assert_eq!((found[0].username.as_str(), found[0].password.as_str()), (user, password), "{content}");
            }
            (Err(error), Err(expect)) => assert_eq!(error, expect, "{content}"),
            (got, _) => panic!("{content}: {got:?}"),
        }
    }

    #[test]
    fn both_forms_are_read_and_errors_tell_nothing() {
        use ConfigForm::{Json, Legacy};
        check(Json, r#"{"auths": {"r.example": {"auth": "dTpwOnE="}}, "credsStore": "x"}"#, Ok(("u", "p:q")));
        check(Json, r#"{"auths": {"r.example": {"auth": "dTpwOnE", "username": "other"}}}"#, Ok(("u", "p:q")));
        check(Legacy, r#"{"r.example": {"username": "u", "password": "p", "email": "e"}}"#, Ok(("u", "p")));
        let wrong = "the auth of r.example must be base64 of user:password";
        check(Json, r#"{"auths": {"r.example": {"auth": "c2VjcmV0"}}}"#, Err(wrong));
        check(Json, r#"{"auths": {"r.example": {"auth": "!"}}}"#, Err(wrong));
        check(Json, r#"{"auths": {"r.example": "secret"}}"#, Err("line 1, column 32: this is no docker configuration"));
        check(Legacy, "secret", Err("line 1, column 1: this is no docker configuration"));
    }

    proptest! {
        #[test]
        fn any_content_is_read_or_refused(content in proptest::collection::vec(any::<u8>(), 0..60), repository in "[a-z./:*]{0,20}") {
            let mut ring = Keyring::default();
            let _ = ring.add(ConfigForm::Legacy, &content);
            let _ = ring.lookup(&repository);
        }
    }
}

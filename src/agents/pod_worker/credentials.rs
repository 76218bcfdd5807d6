//! Credentials for pulls: the pod's imagePullSecrets first, then the node's docker configuration. On a
//! `pod-N` thread. It never logs a credential, and a pull is tried without what cannot be read.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::run::Run;
use crate::api::pod as pods;
use crate::api::runtime::RegistryAuth;
use crate::core::images::keyring::{ConfigForm, Keyring};
use crate::core::images::reference;
use crate::msg::EventType;
use crate::util::fs::read_bounded;
use crate::volumes::objects::{ObjectKey, ObjectKind, Purpose};

/// How long the API server may take over a pod's imagePullSecrets.
const WITHIN: Duration = Duration::from_secs(20);

/// Largest docker configuration of the node that is read.
const FILE_LIMIT: u64 = 1 << 20;

/// All credentials that go with an image, in the order in which they are tried.
pub(super) fn for_image(run: &Run<'_>, image: &str) -> Vec<RegistryAuth> {
    // One that is no reference is refused later, in words.
    let Ok(reference) = reference::parse(image) else { return Vec::new() };
    let mut found = of_pod(run).lookup(&reference.repository);
    found.extend(of_node(run.tools.dirs.root()).lookup(&reference.repository));
    found
}

fn of_pod(run: &Run<'_>) -> Keyring {
    let mut ring = Keyring::default();
    let pod = &run.work.pod;
    let secrets = pods::spec(pod).and_then(|spec| spec.image_pull_secrets.as_deref()).unwrap_or_default();
    let until = Instant::now() + WITHIN;
    let mut failed = Vec::new();
    for name in secrets.iter().map(|secret| secret.name.as_str()).filter(|name| !name.is_empty()) {
        let key = ObjectKey::new(ObjectKind::Secret, pods::namespace(pod), name);
        let left = until.saturating_duration_since(Instant::now());
        let data = match run.tools.objects.object(&run.work.uid, &key, Purpose::Read, left) {
            Ok(data) => data,
            Err(error) => {
                log::info!("pod {}: {error}; the image pull may not succeed", run.work.name);
                failed.push(name);
                continue;
            }
        };
        let (form, field) = match data.type_.as_str() {
            "kubernetes.io/dockerconfigjson" => (ConfigForm::Json, ".dockerconfigjson"),
            "kubernetes.io/dockercfg" => (ConfigForm::Legacy, ".dockercfg"),
            _ => continue,
        };
        let Some(content) = data.bytes.get(field).filter(|content| !content.is_empty()) else { continue };
        if let Err(why) = ring.add(form, content) {
            log::warn!("pod {}: {key}, {field}: {why}", run.work.name);
        }
    }
    if !failed.is_empty() {
        let text = format!(
            "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
            failed.join(", ")
        );
        run.event("", EventType::Warning, "FailedToRetrieveImagePullSecret", text);
    }
    ring
}

/// The first docker configuration of the node that can be used, looked for where upstream does.
fn of_node(root_dir: &Path) -> Keyring {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let (root, here) = (Some(root_dir.to_path_buf()), Some(PathBuf::new()));
    let modern = [root.clone(), here.clone(), home.as_ref().map(|home| home.join(".docker")), Some("/.docker".into())];
    let legacy = [root, here, home, Some("/".into())];
    let modern = modern.into_iter().flatten().map(|folder| (ConfigForm::Json, folder.join("config.json")));
    let legacy = legacy.into_iter().flatten().map(|folder| (ConfigForm::Legacy, folder.join(".dockercfg")));
    for (form, path) in modern.chain(legacy) {
        let mut ring = Keyring::default();
        match read_bounded(&path, FILE_LIMIT) {
            Ok(content) => match ring.add(form, &content) {
                Ok(()) => return ring,
                Err(why) => log::warn!("{}: {why}", path.display()),
            },
            Err(error) if error.is_not_found() => {}
            Err(error) => log::warn!("credentials of this node: {error}"),
        }
    }
    Keyring::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_usable_file_of_the_node_counts() {
        let dir = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("a file");
        let user = || of_node(dir.path()).lookup("r.example/a").first().map(|auth| auth.username.clone());
        assert_eq!(user(), None);
        write(".dockercfg", r#"{"r.example": {"username": "old"}}"#);
        assert_eq!(user().as_deref(), Some("old"));
        write("config.json", r#"{"auths": {"r.example": {"username": "new"}}}"#);
        assert_eq!(user().as_deref(), Some("new"));
        write("config.json", "{");
        assert_eq!(user().as_deref(), Some("old"), "a file that is none is passed over");
    }
}

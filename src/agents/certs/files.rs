//! The certificates in --cert-dir, laid out as the kubelet has them, and the kubeconfig that names the client's.
//!
//! Used by the threads `certs` and `serving`, and once by `app` before they start. Owns the folder's `kubelet-client-*`
//! and `kubelet-server-*` files. A certificate and its key are one file, and `kubelet-client-current.pem` is a symlink
//! to it that is replaced in one step: no reader ever sees halves of two.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::core::certs::{Found, ServingNames, Validity};
use crate::kube::certificate::{Key, covers, validity};
use crate::util::clock;
use crate::util::fs::{FsError, create_dir_all, list, read_bounded, remove_if_exists, rename, write_atomic};
use crate::util::order;

const CLIENT: &str = "kubelet-client";
const SERVER: &str = "kubelet-server";
/// How many certificates stay in the folder, the current one included.
const KEPT: usize = 3;
const MAX_FILE: u64 = 1 << 20;

/// The files of one kind in one folder.
#[derive(Debug)]
pub struct CertFiles {
    folder: PathBuf,
    /// What their names begin with.
    prefix: &'static str,
}

impl CertFiles {
    /// The client certificates in `folder`, which need not be there yet.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), prefix: CLIENT }
    }

    /// The serving certificates in `folder`.
    pub fn serving(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), prefix: SERVER }
    }

    fn named(&self, rest: &str) -> PathBuf {
        self.folder.join(format!("{}{rest}", self.prefix))
    }

    /// The key of a request that is not answered yet.
    fn pending(&self) -> PathBuf {
        self.named(".key.tmp")
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The symlink to the certificate and key in use.
    pub fn current(&self) -> PathBuf {
        self.named("-current.pem")
    }

    /// From when to when the certificate in use counts; `None` if there is none that can be read.
    pub fn validity(&self) -> Option<Validity> {
        self.found(None).map(|found| found.validity)
    }

    /// The certificate in use, and whether it names all of `names`; `None` if there is none that can be read.
    pub(super) fn found(&self, names: Option<&ServingNames>) -> Option<Found> {
        let pem = read_bounded(&self.current(), MAX_FILE).ok()?;
        let (not_before, not_after) = validity(&pem).ok()?;
        let fits = names.is_none_or(|names| covers(&pem, &names.dns, &names.ips));
        Some(Found { validity: Validity { not_before, not_after }, fits })
    }

    /// Puts a certificate and its key (PEM) in place.
    ///
    /// # Errors
    /// The folder cannot be written; the old certificate is in place then.
    pub fn put(&self, chain: &[u8], key: &str) -> Result<(), FsError> {
        self.make_folder()?;
        let target = self.named(&format!("-{}.pem", stamp()));
        let mut bytes = chain.to_vec();
        if !bytes.ends_with(b"\n") {
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(key.as_bytes());
        write_atomic(&target, &bytes, 0o600)?;
        let next = self.named("-updated.pem");
        remove_if_exists(&next)?;
        symlink(&target, &next).map_err(|source| FsError::Io { operation: "link", path: next.clone(), source })?;
        rename(&next, &self.current())?;
        self.remove_old(&target);
        Ok(())
    }

    /// The files are closed to others; the folder is not, since server certificates may stand there as well.
    fn make_folder(&self) -> Result<(), FsError> {
        if self.folder.is_dir() { Ok(()) } else { create_dir_all(&self.folder, 0o755) }
    }

    /// Removes the oldest certificates. What cannot be removed costs bytes only.
    fn remove_old(&self, current: &Path) {
        let names = list(&self.folder).unwrap_or_default();
        let dated = |name: &str| {
            let middle = name.strip_prefix(self.prefix).and_then(|rest| rest.strip_prefix('-')?.strip_suffix(".pem"));
            middle.is_some_and(|middle| middle.starts_with(|c: char| c.is_ascii_digit()))
        };
        let mut dated: Vec<PathBuf> =
            names.iter().filter(|name| name.to_str().is_some_and(dated)).map(|name| self.folder.join(name)).collect();
        order::sort(&mut dated);
        let surplus = dated.len().saturating_sub(KEPT);
        for path in dated.iter().take(surplus).filter(|path| *path != current) {
            let _stays = remove_if_exists(path);
        }
    }

    /// The key of a request that was made before, if it can be used.
    pub(super) fn pending_key(&self) -> Result<Option<Key>, FsError> {
        match read_bounded(&self.pending(), MAX_FILE) {
            Ok(bytes) => Ok(String::from_utf8(bytes).ok().and_then(|text| Key::read(&text).ok())),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn keep_pending_key(&self, pem: &str) -> Result<(), FsError> {
        self.make_folder()?;
        let path = self.pending();
        if read_bounded(&path, MAX_FILE).is_ok_and(|bytes| bytes == pem.as_bytes()) {
            return Ok(());
        }
        write_atomic(&path, pem.as_bytes(), 0o600)
    }

    pub(super) fn drop_pending_key(&self) -> Result<(), FsError> {
        remove_if_exists(&self.pending()).map(drop)
    }
}

/// The wall clock as file names have it.
fn stamp() -> String {
    let seconds = clock::wall() / 1_000_000_000;
    let time = jiff::Timestamp::from_second(seconds).unwrap_or_default();
    time.strftime("%Y-%m-%d-%H-%M-%S").to_string()
}

/// Writes the kubeconfig of a node that got its certificate by a bootstrap: the cluster of `bootstrap` (the JSON value of its
/// kubeconfig's cluster, with absolute paths), and a user whose certificate and key are in `pem`.
///
/// # Errors
/// The file cannot be written.
pub fn write_kubeconfig(file: &Path, cluster: &Value, pem: &Path) -> Result<(), FsError> {
    let mut text = String::from("apiVersion: v1\nclusters:\n- cluster:\n");
    for (key, value) in cluster.as_object().into_iter().flatten() {
        text.push_str(&format!("    {key}: {}\n", scalar(value)));
    }
    let pem = scalar(&Value::String(pem.display().to_string()));
    text.push_str(&format!(
        "  name: default-cluster\ncontexts:\n- context:\n    cluster: default-cluster\n    namespace: default\n    user: default-auth\n  \
         name: default-context\ncurrent-context: default-context\nkind: Config\nusers:\n- name: default-auth\n  user:\n    \
         client-certificate: {pem}\n    client-key: {pem}\n"
    ));
    if let Some(folder) = file.parent().filter(|folder| !folder.exists()) {
        create_dir_all(folder, 0o755)?;
    }
    write_atomic(file, text.as_bytes(), 0o600)
}

/// A value as YAML: addresses and paths as they are, anything else as JSON, which is YAML too.
fn scalar(value: &Value) -> String {
    let is_plain = |text: &&str| {
        let fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | ':');
        (text.starts_with('/') || text.starts_with("https://")) && text.chars().all(fit) && !text.ends_with(':')
    };
    value.as_str().filter(is_plain).map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;

    fn pair(year: i32) -> (String, String) {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::default();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        (params.self_signed(&key).expect("signed").pem(), key.serialize_pem())
    }

    #[test]
    fn the_newest_pair_is_the_current_one_and_few_are_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = CertFiles::new(&folder.path().join("pki"));
        assert_eq!(files.validity(), None);
        for old in ["2020-01-01-00-00-00", "2021-01-01-00-00-00", "2022-01-01-00-00-00", "2023-01-01-00-00-00"] {
            std::fs::create_dir_all(folder.path().join("pki")).expect("made");
            std::fs::write(folder.path().join(format!("pki/kubelet-client-{old}.pem")), "old").expect("written");
        }
        for year in [2040, 2041] {
            let (chain, key) = pair(year);
            files.put(&chain.into_bytes(), &key).expect("written");
            assert_eq!(files.validity().expect("good").not_after, rcgen::date_time_ymd(year, 1, 1).unix_timestamp());
        }
        let target = std::fs::read_link(files.current()).expect("a symlink");
        assert_eq!(std::fs::metadata(&target).expect("there").permissions().mode() & 0o777, 0o600);
        let mut names: Vec<_> = list(&folder.path().join("pki")).expect("listed");
        order::sort(&mut names);
        assert!(
            (3..=4).contains(&names.len()) && !names.iter().any(|name| name == "kubelet-client-updated.pem"),
            "{names:?}"
        );
        assert!(names.iter().all(|name| !name.to_string_lossy().contains("2020")), "{names:?}");
    }

    #[test]
    fn a_pending_key_outlives_the_agent() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = CertFiles::new(folder.path());
        assert!(files.pending_key().expect("readable").is_none());
        let key = Key::generate().expect("a key");
        files.keep_pending_key(&key.pem()).expect("kept");
        assert_eq!(files.pending_key().expect("readable").expect("a key").public(), key.public());
        std::fs::write(folder.path().join("kubelet-client.key.tmp"), "torn").expect("written");
        assert!(files.pending_key().expect("readable").is_none(), "a torn key is replaced");
        files.drop_pending_key().expect("removed");
    }

    #[test]
    fn the_kubeconfig_is_one_that_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("etc/kubelet.conf");
        let cluster =
            json!({"server": "https://a:1", "certificate-authority": "/a b", "insecure-skip-tls-verify": false});
        write_kubeconfig(&file, &cluster, Path::new("/pki/c.pem")).expect("written");
        let text = std::fs::read(&file).expect("there");
        let limits = crate::config::yaml::Limits::default();
        let document = crate::config::yaml::yaml_to_json(&text, &limits).expect("YAML");
        assert_eq!(document.value["clusters"][0]["cluster"], cluster);
        let access = crate::kube::kubeconfig::read(document.value, &file, None).expect("good");
        assert_eq!(access.server(), "https://a:1");
        assert!(String::from_utf8_lossy(&text).contains("\n    client-key: /pki/c.pem\n"));
        assert_eq!(std::fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
    }
}

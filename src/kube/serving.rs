//! The certificate that the node serves with: which of its files counts at the moment.
//!
//! Called on the threads that accept connections; owns the certificate found last, behind a lock. The files are looked at again every few
//! seconds while somebody asks, and no thread wakes for them. The order is: the one that the API server's signer made
//! (`serverTLSBootstrap`), the one that the configuration names, and one of the node's own, which is made when it is
//! needed first, as upstream makes it. What cannot be read leaves the last good one in force. It never shows a key.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::certificate::{check_pair, self_signed, validity};
use crate::api::moment::Moment;
use crate::util::clock;
use crate::util::file_mark::FileMark;
use crate::util::fs::{create_dir_all, read_bounded, write_atomic};

/// How often files are looked at, at most.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const MAX_FILE: u64 = 1 << 20;

/// A certificate with its chain, and its key, both PEM. Debug shows neither.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerCertificate {
    /// The certificate and those that signed it.
    pub chain: Vec<u8>,
    /// Its key.
    pub key: Vec<u8>,
    /// Where the certificate was read.
    pub file: PathBuf,
}

impl fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCertificate").field("file", &self.file).finish_non_exhaustive()
    }
}

/// Where certificates may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingFiles {
    /// `--cert-dir`: `kubelet.crt` and `kubelet.key` are the node's own.
    pub folder: PathBuf,
    /// With `serverTLSBootstrap`: `kubelet-server-current.pem`, certificate and key.
    pub signed: Option<PathBuf>,
    /// `tlsCertFile` and `tlsPrivateKeyFile`.
    pub given: Option<(PathBuf, PathBuf)>,
    /// The name of this machine, for the node's own.
    pub host: String,
}

/// Finds the certificate that counts.
#[derive(Debug)]
pub struct Serving {
    files: ServingFiles,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    current: Option<Arc<ServerCertificate>>,
    looked_at: Option<Moment>,
    /// The files as they were when they were read last.
    seen: Vec<(PathBuf, Option<FileMark>)>,
    /// When the certificate in use ends, in seconds since 1970.
    ends_at: i64,
    /// What the log was told last, so that it is told once.
    told: Option<String>,
}

impl Serving {
    /// Looks at nothing yet.
    pub fn new(files: ServingFiles) -> Self {
        Self { files, state: Mutex::default() }
    }

    /// The certificate to serve the next connection with: the same value as long as it is the same.
    ///
    /// # Errors
    /// There is none and none can be made: a sentence that names the file.
    pub fn current(&self) -> Result<Arc<ServerCertificate>, String> {
        self.current_at(clock::moment(), clock::wall() / 1_000_000_000)
    }

    fn current_at(&self, now: Moment, wall: i64) -> Result<Arc<ServerCertificate>, String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(current) = &state.current
            && state.looked_at.is_some_and(|at| now.since(at) < LOOK_EVERY)
        {
            return Ok(Arc::clone(current));
        }
        state.looked_at = Some(now);
        let seen: Vec<_> = self.places().map(|path| (path.to_owned(), FileMark::of(path))).collect();
        let has_ended = self.files.signed.is_some() && wall > state.ends_at;
        if let Some(current) = state.current.as_ref().filter(|_| seen == state.seen && !has_ended) {
            return Ok(Arc::clone(current));
        }
        let found = self.find(wall);
        // Marks of before the reading: a change meanwhile is read once more.
        state.seen = seen;
        match found {
            Ok(found) => {
                let is_same = state.current.as_ref().is_some_and(|current| **current == found);
                if !is_same {
                    log::info!("the certificate to serve with is {}", found.file.display());
                    state.ends_at = validity(&found.chain).map_or(i64::MAX, |(_, end)| end);
                    state.current = Some(Arc::new(found));
                }
                state.told = None;
            }
            Err(why) => {
                if state.told.as_ref() != Some(&why) {
                    log::warn!("no new certificate to serve with: {why}");
                }
                state.told = Some(why.clone());
                if state.current.is_none() {
                    return Err(why);
                }
            }
        }
        state.current.clone().ok_or_else(|| "there is no certificate to serve with".to_owned())
    }

    fn own(&self) -> (PathBuf, PathBuf) {
        (self.files.folder.join("kubelet.crt"), self.files.folder.join("kubelet.key"))
    }

    /// The files that count, the node's own left out: nobody else changes them.
    fn places(&self) -> impl Iterator<Item = &Path> {
        let given = self.files.given.iter().flat_map(|(certificate, key)| [certificate, key]);
        self.files.signed.iter().chain(given).map(PathBuf::as_path)
    }

    fn find(&self, wall: i64) -> Result<ServerCertificate, String> {
        if let Some(signed) = &self.files.signed
            && let Ok(found) = read(signed, signed)
            && validity(&found.chain).is_ok_and(|(_, end)| wall <= end)
        {
            return Ok(found);
        }
        if let Some((certificate, key)) = &self.files.given {
            return read(certificate, key);
        }
        let (certificate, key) = self.own();
        if certificate.exists() && key.exists() {
            return read(&certificate, &key);
        }
        let (chain, secret) = self_signed(&self.files.host, wall)?;
        let written = || {
            if !self.files.folder.is_dir() {
                create_dir_all(&self.files.folder, 0o755)?;
            }
            write_atomic(&key, secret.as_bytes(), 0o600)?;
            write_atomic(&certificate, chain.as_bytes(), 0o644)
        };
        if let Err(error) = written() {
            // It serves as long as the process lives.
            log::warn!("the certificate that was made is not kept: {error}");
        }
        Ok(ServerCertificate { chain: chain.into_bytes(), key: secret.into_bytes(), file: certificate })
    }
}

fn read(certificate: &Path, key: &Path) -> Result<ServerCertificate, String> {
    let read = |path: &Path| read_bounded(path, MAX_FILE).map_err(|error| error.to_string());
    let (chain, key) = (read(certificate)?, read(key)?);
    check_pair(&chain, &key).map_err(|why| format!("{}: {why}", certificate.display()))?;
    Ok(ServerCertificate { chain, key, file: certificate.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const NOW: i64 = 1_796_025_600;
    const YEAR: i64 = 365 * 24 * 3600;

    struct Lab {
        folder: tempfile::TempDir,
        seconds: u64,
    }

    impl Lab {
        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn serving(&self, signed: bool, given: bool) -> Serving {
            Serving::new(ServingFiles {
                folder: self.path("pki"),
                signed: signed.then(|| self.path("signed.pem")),
                given: given.then(|| (self.path("given.crt"), self.path("given.key"))),
                host: "edge-1".to_owned(),
            })
        }

        /// Writes a certificate that was made at this time; gives its chain.
        fn write(&self, certificate: &str, key: &str, made: i64) -> String {
            let (chain, secret) = self_signed("edge-1", made).expect("a certificate");
            if certificate == key {
                std::fs::write(self.path(key), format!("{chain}{secret}")).expect("written");
                return format!("{chain}{secret}");
            }
            std::fs::write(self.path(certificate), &chain).expect("written");
            std::fs::write(self.path(key), secret).expect("written");
            chain
        }

        /// Asks later than the last time by enough to look again.
        fn ask(&mut self, serving: &Serving, wall: i64) -> Result<String, String> {
            self.seconds += 10;
            let now = Moment::from_boot(Duration::from_secs(self.seconds));
            serving.current_at(now, wall).map(|found| String::from_utf8(found.chain.clone()).expect("text"))
        }
    }

    fn lab() -> Lab {
        Lab { folder: tempfile::tempdir().expect("a folder"), seconds: 0 }
    }

    #[test]
    fn a_node_makes_its_own_certificate_once() {
        let mut lab = lab();
        let serving = lab.serving(false, false);
        assert!(!lab.path("pki").exists(), "nothing is made before it is needed");
        let own = lab.ask(&serving, NOW).expect("made");
        let mode = |name: &str| std::fs::metadata(lab.path(name)).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode("pki/kubelet.crt"), mode("pki/kubelet.key")), (0o644, 0o600));
        assert_eq!(lab.ask(&serving, NOW).as_ref(), Ok(&own));
        let again = lab.serving(false, false);
        assert_eq!(lab.ask(&again, NOW + 2 * YEAR).as_ref(), Ok(&own), "it stays, as upstream's does");
    }

    #[test]
    fn the_signed_one_goes_before_while_it_counts() {
        let mut lab = lab();
        let serving = lab.serving(true, false);
        let own = lab.ask(&serving, NOW).expect("made meanwhile");
        let signed = lab.write("signed.pem", "signed.pem", NOW);
        assert_eq!(lab.ask(&serving, NOW).as_ref(), Ok(&signed));
        std::fs::write(lab.path("signed.pem"), "torn").expect("written");
        assert_eq!(lab.ask(&serving, NOW).as_ref(), Ok(&own));
        let renewed = lab.write("signed.pem", "signed.pem", NOW + 100);
        assert_eq!(lab.ask(&serving, NOW).as_ref(), Ok(&renewed));
        assert_eq!(lab.ask(&serving, NOW + YEAR).as_ref(), Ok(&own), "its end is past");
    }

    #[test]
    fn the_given_one_is_followed_and_never_replaced() {
        let mut lab = lab();
        let serving = lab.serving(false, true);
        let why = lab.ask(&serving, NOW).expect_err("not there");
        assert!(why.contains("given.crt"), "{why}");
        let first = lab.write("given.crt", "given.key", NOW);
        assert_eq!(lab.ask(&serving, NOW).as_ref(), Ok(&first));
        std::fs::remove_file(lab.path("given.key")).expect("removed");
        assert_eq!(lab.ask(&serving, NOW).as_ref(), Ok(&first), "what was read last stays");
        let second = lab.write("given.crt", "given.key", NOW);
        assert_eq!(lab.ask(&serving, NOW).as_ref(), Ok(&second));
        assert!(!lab.path("pki").exists());
        let shown = format!("{:?}", serving.current());
        assert!(shown.contains("given.crt") && !shown.contains("BEGIN"), "{shown}");
    }
}

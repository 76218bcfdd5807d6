//! The thread `certs`: gets the node's first client certificate and renews it in time.
//!
//! The thread owns the key of a request that is not answered yet and the certificates in --cert-dir.
//! It swaps a symlink; the client notices the new file by itself. A certificate that is missing,
//! expired or not yet valid stops nothing: the thread says so, keeps trying what can be tried, and looks
//! at the files again. It never stops a pod or the process.

mod files;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use sha2::{Digest, Sha256};

use crate::api::meta::ObjectMeta;
use crate::core::certs::{Decision, Health, Means, decide};
use crate::kube::certificate::{Key, check_pair};
use crate::kube::{ApiClient, ApiError, paths};
use crate::util::backoff::{Backoff, BackoffPolicy};
use crate::util::cancel::Cancel;
use crate::util::clock;
use crate::util::jitter;
use crate::util::thread::{OwnerThread, StackSize};

pub use files::{CertFiles, write_kubeconfig};

/// Who signs client certificates of nodes.
const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Between two attempts to get a certificate, as upstream begins and ends.
const PATIENCE: BackoffPolicy = BackoffPolicy { initial: Duration::from_secs(2), max: Duration::from_secs(32) };
/// How long a request may wait for its approval before another is made.
const APPROVAL: Duration = Duration::from_secs(15 * 60);
/// Between two looks at a request that waits.
const LOOKS: BackoffPolicy = BackoffPolicy { initial: Duration::from_millis(250), max: Duration::from_secs(10) };
/// How long the agent's end waits for a request under way.
const STOP_PATIENCE: Duration = Duration::from_millis(500);

/// What the thread works with.
#[derive(Debug)]
pub struct CertsConfig {
    /// `--cert-dir`.
    pub folder: PathBuf,
    /// Name of this node.
    pub node_name: String,
    /// `rotateCertificates`.
    pub rotate: bool,
    /// The agent's client, for renewals.
    pub client: ApiClient,
    /// A client with the bootstrap credentials, for the first certificate.
    pub bootstrap: Option<ApiClient>,
}

/// The running thread. Dropping it stops the thread.
#[derive(Debug)]
pub struct CertsHandle {
    cancel: Cancel,
    bootstrap: Option<ApiClient>,
    /// `None` once it was let go.
    thread: Option<OwnerThread>,
}

impl CertsHandle {
    /// Starts the thread.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn start(config: CertsConfig) -> io::Result<Self> {
        let cancel = Cancel::new();
        let stop = cancel.clone();
        let bootstrap = config.bootstrap.clone();
        let actor = CertsActor {
            files: CertFiles::new(&config.folder),
            chance: jitter::chance(),
            told: None,
            backoff: None,
            config,
        };
        let thread = OwnerThread::spawn("certs", StackSize::Normal, move || actor.run(&stop))?;
        Ok(Self { cancel, bootstrap, thread: Some(thread) })
    }
}

impl Drop for CertsHandle {
    fn drop(&mut self) {
        self.cancel.cancel();
        if let Some(client) = &self.bootstrap {
            client.shut_down();
        }
        if let Some(thread) = self.thread.take()
            && !thread.ended_within(STOP_PATIENCE)
        {
            // It waits for an answer whose deadline is near, and every file that it writes is whole.
            thread.abandon();
        }
    }
}

struct CertsActor {
    config: CertsConfig,
    files: CertFiles,
    /// Where in its span the present certificate is renewed.
    chance: f64,
    /// What people were told last.
    told: Option<String>,
    backoff: Option<Backoff>,
}

/// Why there is no new certificate.
#[derive(Debug, thiserror::Error)]
enum CertsError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("the agent ends")]
    Ends,
    #[error("{0}")]
    Other(String),
    #[error("{0}")]
    Files(#[from] crate::util::fs::FsError),
}

impl CertsActor {
    fn run(mut self, stop: &Cancel) {
        while !stop.is_cancelled() {
            let now = clock::wall() / 1_000_000_000;
            let means = Means { may_renew: self.config.rotate, can_bootstrap: self.config.bootstrap.is_some() };
            let (client, why) = match decide(self.files.validity(), now, self.chance, means) {
                Decision::Wait(time, health) => {
                    self.tell(health);
                    stop.wait(time);
                    continue;
                }
                Decision::Renew => (self.config.client.clone(), "renewed".to_owned()),
                Decision::Bootstrap(health) => {
                    self.tell(health);
                    let Some(client) = self.config.bootstrap.clone() else { continue };
                    (
                        client,
                        format!("asked for with the bootstrap credentials, since the present one {}", health.text()),
                    )
                }
            };
            match self.request(&client, stop) {
                Ok(()) => {
                    log::info!("the client certificate was {why}");
                    (self.backoff, self.told, self.chance) = (None, None, jitter::chance());
                    self.config.client.reload();
                }
                Err(_) if stop.is_cancelled() => return,
                Err(error) => {
                    let state = Backoff::after_failure(self.backoff, &PATIENCE, clock::moment());
                    let text = format!("no new client certificate: {error}");
                    if self.told.as_ref() != Some(&text) {
                        log::warn!("{text}; it is tried again, pods go on");
                        self.told = Some(text);
                    }
                    self.backoff = Some(state);
                    stop.wait(jitter::longer_by(state.delay, 0.1));
                }
            }
        }
    }

    /// Says once how it is with the certificate, if it is not good.
    fn tell(&mut self, health: Health) {
        let text = (health != Health::Good).then(|| format!("the client certificate {}", health.text()));
        if text != self.told {
            if let Some(text) = &text {
                log::warn!("{text} ({}); pods go on", self.files.current().display());
            }
            self.told = text;
        }
    }

    /// Asks for a certificate, waits for it and puts it in place.
    fn request(&self, client: &ApiClient, stop: &Cancel) -> Result<(), CertsError> {
        let key = self.files.pending_key()?.map_or_else(Key::generate, Ok).map_err(CertsError::Other)?;
        // Kept until it is used: a restarted agent goes on with the request that it made.
        self.files.keep_pending_key(&key.pem())?;
        let user = format!("system:node:{}", self.config.node_name);
        let request = key.request(&user, "system:nodes").map_err(CertsError::Other)?;
        let name = name_of(key.public(), &user);
        let object = CertificateSigningRequest {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            spec: CertificateSigningRequestSpec {
                request: ByteString(request.into_bytes()),
                signer_name: SIGNER.to_owned(),
                usages: Some(vec!["digital signature".to_owned(), "client auth".to_owned()]),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        };
        match client.create::<_, CertificateSigningRequest>(paths::CSRS, &object) {
            Ok(_) => log::info!("asked for a client certificate: {name}"),
            Err(error) if error.is_already_exists() => log::info!("the request {name} was made before"),
            Err(error) => return Err(error.into()),
        }
        match self.wait_for(client, &name, stop) {
            Ok(chain) => {
                check_pair(&chain, key.pem().as_bytes()).map_err(CertsError::Other)?;
                self.files.put(&chain, &key.pem())?;
                self.files.drop_pending_key()?;
                Ok(())
            }
            Err(error) => {
                if matches!(error, CertsError::Other(_)) {
                    // This request will never be answered with a certificate: the next one has another key.
                    self.files.drop_pending_key()?;
                }
                Err(error)
            }
        }
    }

    /// The certificate that answers a request.
    fn wait_for(&self, client: &ApiClient, name: &str, stop: &Cancel) -> Result<Vec<u8>, CertsError> {
        let started = clock::moment();
        let mut looks: Option<Backoff> = None;
        loop {
            let found: CertificateSigningRequest = match client.get(&paths::csr(name)) {
                Ok(found) => found,
                Err(error) if error.is_not_found() => {
                    return Err(CertsError::Other(format!("the request {name} was deleted before it was answered")));
                }
                Err(error) => return Err(error.into()),
            };
            let status = found.status.unwrap_or_default();
            for condition in status.conditions.iter().flatten() {
                if matches!(condition.type_.as_str(), "Denied" | "Failed") {
                    let (kind, reason) = (&condition.type_, condition.reason.as_deref().unwrap_or_default());
                    let message = condition.message.as_deref().unwrap_or_default();
                    return Err(CertsError::Other(format!("the request {name} is {kind}: {reason} {message}")));
                }
            }
            if let Some(ByteString(chain)) = status.certificate.filter(|chain| !chain.0.is_empty()) {
                return Ok(chain);
            }
            if clock::moment().since(started) > APPROVAL {
                let hint = format!("kubectl certificate approve {name}");
                return Err(CertsError::Other(format!(
                    "nobody approved the request {name} within {APPROVAL:?} ({hint})"
                )));
            }
            let next = Backoff::after_failure(looks, &LOOKS, clock::moment());
            looks = Some(next);
            if stop.wait(next.delay) {
                return Err(CertsError::Ends);
            }
        }
    }
}

/// The same name for the same key and subject, so that a request is not made twice.
fn name_of(public: &[u8], user: &str) -> String {
    let mut hash = Sha256::new();
    for part in [public, user.as_bytes(), SIGNER.as_bytes()] {
        hash.update(part);
        hash.update([0]);
    }
    let digest: String = hash.finalize()[..20].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("node-csr-{digest}")
}

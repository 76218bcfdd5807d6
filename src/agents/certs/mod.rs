//! The threads `certs` and `serving`: get the node's client and serving certificate and renew them in time.
//!
//! Each owns the key of a request that is not answered yet and its certificates in --cert-dir. It swaps a
//! symlink; who uses the certificate notices the new file by itself. A certificate that is missing, expired, not yet
//! valid or that names too little stops nothing: the thread says so, keeps trying what can be tried, and
//! looks at the files again. It never stops a pod or the process. Nobody serves with the second one yet.

mod files;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use sha2::{Digest, Sha256};

use crate::api::meta::ObjectMeta;
use crate::core::certs::{Decision, Health, Means, ServingNames, decide};
use crate::kube::certificate::{Key, check_pair};
use crate::kube::{ApiClient, ApiError, paths};
use crate::util::backoff::{Backoff, BackoffPolicy};
use crate::util::cancel::Cancel;
use crate::util::clock;
use crate::util::jitter;
use crate::util::metrics::{Countdown, Counter, Histogram, kubelet};
use crate::util::thread::{OwnerThread, StackSize};

pub use files::{CertFiles, write_kubeconfig};

/// What a certificate is for.
struct Purpose {
    /// For people.
    word: &'static str,
    /// Who signs it.
    signer: &'static str,
    /// What it may be used for, besides signatures.
    usage: &'static str,
    /// Tells when it expires.
    expires: &'static Countdown,
    /// Counts what failed.
    errors: &'static Counter,
    /// Tells how long the one before was in use.
    lived: Option<&'static Histogram>,
}

const CLIENT: Purpose = Purpose {
    word: "client certificate",
    signer: "kubernetes.io/kube-apiserver-client-kubelet",
    usage: "client auth",
    expires: &kubelet::CLIENT_CERTIFICATE_TTL,
    errors: &kubelet::CLIENT_CERTIFICATE_RENEW_ERRORS,
    lived: None,
};
const SERVING: Purpose = Purpose {
    word: "serving certificate",
    signer: "kubernetes.io/kubelet-serving",
    usage: "server auth",
    expires: &kubelet::SERVER_CERTIFICATE_TTL,
    errors: &kubelet::SERVER_CERTIFICATE_RENEW_ERRORS,
    lived: Some(&kubelet::SERVER_CERTIFICATE_ROTATION),
};
/// Between two attempts to get a certificate, as upstream begins and ends.
const PATIENCE: BackoffPolicy = BackoffPolicy { initial: Duration::from_secs(2), max: Duration::from_secs(32) };
/// How long a request may wait for its approval before another is made.
const APPROVAL: Duration = Duration::from_secs(15 * 60);
/// Between two looks at a request that waits.
const LOOKS: BackoffPolicy = BackoffPolicy { initial: Duration::from_millis(250), max: Duration::from_secs(30) };
/// While nobody knows what to ask for; the thread is rung when somebody does.
const NO_NAMES: Duration = Duration::from_secs(600);
/// How long the agent's end waits for a request under way.
const STOP_PATIENCE: Duration = Duration::from_millis(500);

/// What the thread for the client certificate works with.
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

/// What the thread for the serving certificate (`serverTLSBootstrap`) works with.
pub struct ServingConfig {
    /// `--cert-dir`.
    pub folder: PathBuf,
    /// Name of this node.
    pub node_name: String,
    /// The agent's client.
    pub client: ApiClient,
    /// What the certificate names; `None` while the node has no address.
    pub names: Names,
}

/// Tells what a serving certificate names.
pub type Names = Box<dyn Fn() -> Option<ServingNames> + Send>;

/// A running thread. Dropping it stops the thread.
#[derive(Debug)]
pub struct CertsHandle {
    cancel: Cancel,
    bell: Sender<()>,
    bootstrap: Option<ApiClient>,
    /// `None` once it was let go.
    thread: Option<OwnerThread>,
}

impl CertsHandle {
    /// Starts the thread for the client certificate.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn start(config: CertsConfig) -> io::Result<Self> {
        let CertsConfig { folder, node_name, rotate, client, bootstrap } = config;
        let first = bootstrap.clone();
        let make = |rung| CertsActor {
            purpose: &CLIENT,
            files: CertFiles::new(&folder),
            node_name,
            rotate,
            client,
            first,
            names: None,
            chance: jitter::chance(),
            told: None,
            backoff: None,
            rung,
        };
        Self::spawn("certs", bootstrap, make)
    }

    /// Starts the thread for the serving certificate.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn start_serving(config: ServingConfig) -> io::Result<Self> {
        let ServingConfig { folder, node_name, client, names } = config;
        let make = |rung| CertsActor {
            purpose: &SERVING,
            files: CertFiles::serving(&folder),
            node_name,
            rotate: true,
            first: Some(client.clone()),
            client,
            names: Some(names),
            chance: jitter::chance(),
            told: None,
            backoff: None,
            rung,
        };
        Self::spawn("serving", None, make)
    }

    fn spawn(
        name: &'static str,
        bootstrap: Option<ApiClient>,
        make: impl FnOnce(Receiver<()>) -> CertsActor,
    ) -> io::Result<Self> {
        let cancel = Cancel::new();
        let stop = cancel.clone();
        let (bell, rung) = bounded(1);
        let actor = make(rung);
        let thread = OwnerThread::spawn(name, StackSize::Normal, move || actor.run(&stop))?;
        Ok(Self { cancel, bell, bootstrap, thread: Some(thread) })
    }

    /// To be rung when what the certificate names may have changed; a full channel is rung already.
    pub fn bell(&self) -> Sender<()> {
        self.bell.clone()
    }
}

impl Drop for CertsHandle {
    fn drop(&mut self) {
        self.cancel.cancel();
        let _rung_already = self.bell.try_send(());
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
    purpose: &'static Purpose,
    files: CertFiles,
    node_name: String,
    /// Whether a certificate that counts is renewed in time.
    rotate: bool,
    /// Asks for renewals.
    client: ApiClient,
    /// Asks for the first one, and where the present one does not count.
    first: Option<ApiClient>,
    /// What the certificate has to name; `None` if it names nothing.
    names: Option<Names>,
    /// Where in its span the present certificate is renewed.
    chance: f64,
    /// What people were told last.
    told: Option<String>,
    backoff: Option<Backoff>,
    rung: Receiver<()>,
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
            let names = match self.names.as_ref().map(|names| names()) {
                Some(None) => {
                    self.pause(NO_NAMES);
                    continue;
                }
                named => named.flatten(),
            };
            let now = clock::wall() / 1_000_000_000;
            let means = Means { may_renew: self.rotate, can_bootstrap: self.first.is_some() };
            let found = self.files.found(names.as_ref());
            if let Some(found) = &found {
                self.purpose.expires.set(found.validity.not_after);
            }
            let (client, why) = match decide(found, now, self.chance, means) {
                Decision::Wait(time, health) => {
                    self.tell(health);
                    self.pause(time);
                    continue;
                }
                Decision::Renew => (self.client.clone(), "renewed".to_owned()),
                Decision::Bootstrap(health) => {
                    self.tell(health);
                    let Some(client) = self.first.clone() else { continue };
                    (client, format!("asked for, since the one before {}", health.text()))
                }
            };
            match self.request(&client, names.as_ref(), stop) {
                Ok(()) => {
                    log::info!("the {} was {why}", self.purpose.word);
                    if let (Some(lived), Some(found)) = (self.purpose.lived, found) {
                        let seconds = u64::try_from(now.saturating_sub(found.validity.not_before)).unwrap_or(0);
                        lived.observe(Duration::from_secs(seconds));
                    }
                    (self.backoff, self.told, self.chance) = (None, None, jitter::chance());
                    self.client.reload();
                }
                Err(_) if stop.is_cancelled() => return,
                Err(error) => {
                    self.purpose.errors.inc();
                    let state = Backoff::after_failure(self.backoff, &PATIENCE, clock::moment());
                    let text = format!("no new {}: {error}", self.purpose.word);
                    if self.told.as_ref() != Some(&text) {
                        log::warn!("{text}; it is tried again, pods go on");
                        self.told = Some(text);
                    }
                    self.backoff = Some(state);
                    self.pause(jitter::longer_by(state.delay, 0.1));
                }
            }
        }
    }

    /// Waits for the time to pass, for the bell or for the end.
    fn pause(&self, time: Duration) {
        let _what_it_was = self.rung.recv_timeout(time);
    }

    /// Says once how it is with the certificate, if it is not good.
    fn tell(&mut self, health: Health) {
        let text = (health != Health::Good).then(|| format!("the {} {}", self.purpose.word, health.text()));
        if text != self.told {
            if let Some(text) = &text {
                log::warn!("{text} ({}); pods go on", self.files.current().display());
            }
            self.told = text;
        }
    }

    /// Asks for a certificate, waits for it and puts it in place.
    fn request(&self, client: &ApiClient, names: Option<&ServingNames>, stop: &Cancel) -> Result<(), CertsError> {
        let key = self.files.pending_key()?.map_or_else(Key::generate, Ok).map_err(CertsError::Other)?;
        // Kept until it is used: a restarted agent goes on with the request that it made.
        self.files.keep_pending_key(&key.pem())?;
        let user = format!("system:node:{}", self.node_name);
        let (dns, ips) = names.map_or((&[][..], &[][..]), |names| (&names.dns, &names.ips));
        let request = key.request(&user, "system:nodes", dns, ips).map_err(CertsError::Other)?;
        let name = name_of(key.public(), &user, self.purpose.signer, names);
        let object = CertificateSigningRequest {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            spec: CertificateSigningRequestSpec {
                request: ByteString(request.into_bytes()),
                signer_name: self.purpose.signer.to_owned(),
                usages: Some(vec!["digital signature".to_owned(), self.purpose.usage.to_owned()]),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        };
        match client.create::<_, CertificateSigningRequest>(paths::CSRS, &object) {
            Ok(_) => log::info!("asked for a {}: {name}", self.purpose.word),
            Err(error) if error.is_already_exists() => log::info!("the request {name} was made before"),
            Err(error) => return Err(error.into()),
        }
        match self.wait_for(client, &name, names, stop) {
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
    fn wait_for(
        &self,
        client: &ApiClient,
        name: &str,
        names: Option<&ServingNames>,
        stop: &Cancel,
    ) -> Result<Vec<u8>, CertsError> {
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
            self.pause(next.delay);
            if stop.is_cancelled() {
                return Err(CertsError::Ends);
            }
            if self.names.as_ref().is_some_and(|now| now().as_ref() != names) {
                return Err(CertsError::Other(format!(
                    "the addresses of this node are others than the request {name} names"
                )));
            }
        }
    }
}

/// The same name for the same request, so that it is not made twice.
fn name_of(public: &[u8], user: &str, signer: &str, names: Option<&ServingNames>) -> String {
    let mut hash = Sha256::new();
    let ips: Vec<String> = names.iter().flat_map(|names| &names.ips).map(ToString::to_string).collect();
    let dns = names.iter().flat_map(|names| &names.dns);
    let parts = [public, user.as_bytes(), signer.as_bytes()];
    for part in parts.into_iter().chain(dns.chain(&ips).map(String::as_bytes)) {
        hash.update(part);
        hash.update([0]);
    }
    let digest: String = hash.finalize()[..20].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("node-csr-{digest}")
}

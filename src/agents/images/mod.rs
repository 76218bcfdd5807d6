//! Gets an image ready for a container: looks, pulls, waits its turn, backs off, tells.
//!
//! Has no thread of its own: pod workers call [`Puller::ensure`] on theirs, so that a pull that hangs
//! delays its own pod, and others only where `serializeImagePulls` asks for it. Owns the back-off table,
//! the rate and the queue of pulls. What it decides is in `core::images`; it never removes an image.

mod gate;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gate::Gate;

use super::ImageSource;
use crate::api::PodUid;
use crate::api::moment::Moment;
use crate::api::runtime::{Image, ImageSpec, RegistryAuth, SandboxSpec};
use crate::core::images::PullPolicy;
use crate::core::images::{
    self as rules, ImageError, ImageEvent, ImageReason, PullBackoffs, PullDecision, PullRequest, PulledImage, reference,
};
use crate::cri::{Client, Code, CriError, CriFailure};
use crate::msg::EventType;
use crate::util::cancel::Cancel;
use crate::util::clock;
use crate::util::metrics::{kubelet, own};
use crate::util::rate::TokenBucket;
use crate::util::text::quote;

/// Longest single pull. Runtimes end a pull without progress by themselves after minutes; what a cut
/// pull has fetched stays with the runtime, so that the next one goes on from there.
const PULL_AT_MOST: Duration = Duration::from_secs(2 * 3600);

/// How pulls are held back, from the node's configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PullLimits {
    /// `registryPullQPS`; 0 for no limit.
    pub per_second: u32,
    /// `registryBurst`.
    pub burst: u32,
    /// How many pulls may run at once; `None` for no limit.
    pub at_once: Option<usize>,
}

impl PullLimits {
    /// From the fields `registryPullQPS`, `registryBurst`, `serializeImagePulls` and
    /// `maxParallelImagePulls`. Negative numbers, which validation refuses, count as 0.
    pub fn from_config(qps: i32, burst: i32, serialize: bool, max_parallel: Option<i32>) -> Self {
        let at_once = if serialize { Some(1) } else { max_parallel.and_then(|max| usize::try_from(max).ok()) };
        Self {
            per_second: u32::try_from(qps).unwrap_or(0),
            burst: u32::try_from(burst).unwrap_or(0),
            at_once: at_once.filter(|max| *max > 0),
        }
    }
}

/// The two calls of the runtime that a pull needs.
pub trait ImageService: Send + Sync {
    /// The image behind a name, if the runtime holds it.
    ///
    /// # Errors
    /// The call failed.
    fn image_status(&self, image: &ImageSpec, cancel: &Cancel) -> Result<Option<Image>, CriError>;

    /// Pulls; answers the runtime's reference to the image.
    ///
    /// # Errors
    /// The pull failed or was cut.
    fn pull_image(
        &self,
        image: &ImageSpec,
        auth: Option<&RegistryAuth>,
        sandbox: Option<&SandboxSpec>,
        cancel: &Cancel,
    ) -> Result<String, CriError>;
}

impl ImageService for Client {
    fn image_status(&self, image: &ImageSpec, cancel: &Cancel) -> Result<Option<Image>, CriError> {
        Self::image_status(self, image, cancel)
    }

    fn pull_image(
        &self,
        image: &ImageSpec,
        auth: Option<&RegistryAuth>,
        sandbox: Option<&SandboxSpec>,
        cancel: &Cancel,
    ) -> Result<String, CriError> {
        Self::pull_image(self, image, auth, sandbox, PULL_AT_MOST, cancel)
    }
}

/// Gets images ready. Shared by all pod workers.
pub struct Puller {
    service: Box<dyn ImageService>,
    gate: Gate,
    /// Locks, because workers call in from their own threads and only a look at a table lies within.
    rate: Mutex<TokenBucket>,
    backoffs: Mutex<PullBackoffs>,
    clock: fn() -> Moment,
}

impl std::fmt::Debug for Puller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Puller").field("gate", &self.gate).finish_non_exhaustive()
    }
}

impl Puller {
    /// A puller on the runtime behind `service`.
    pub fn new(service: Box<dyn ImageService>, limits: PullLimits) -> Self {
        Self::with_clock(service, limits, clock::moment)
    }

    fn with_clock(service: Box<dyn ImageService>, limits: PullLimits, clock: fn() -> Moment) -> Self {
        Self {
            service,
            gate: Gate::new(limits.at_once),
            rate: Mutex::new(TokenBucket::new(f64::from(limits.per_second), limits.burst)),
            backoffs: Mutex::default(),
            clock,
        }
    }

    /// How many workers wait for their turn to pull.
    pub fn waiting(&self) -> usize {
        self.gate.waiting()
    }

    /// Drops the back-off of a pod that is gone.
    pub fn forget(&self, uid: &PodUid) {
        lock(&self.backoffs).forget(uid);
    }

    /// Pulls with each of the credentials until one works.
    fn pull(&self, request: &PullRequest<'_>, spec: &ImageSpec, cancel: &Cancel) -> Result<String, PullEnd> {
        if !lock(&self.rate).try_take((self.clock)()) {
            own::LIMITER_WAITS.inc(&["image pulls"]);
            return Err(PullEnd::Failed(rules::QPS_EXCEEDED.to_owned()));
        }
        let tries: Vec<Option<&RegistryAuth>> =
            if request.auth.is_empty() { vec![None] } else { request.auth.iter().map(Some).collect() };
        let mut errors = Vec::new();
        for auth in tries {
            match self.service.pull_image(spec, auth, request.sandbox, cancel) {
                Ok(image_ref) if image_ref.is_empty() => {
                    errors.push(format!("imageRef of image {} is not set", quote(&spec.image)));
                }
                Ok(image_ref) => return Ok(image_ref),
                Err(err) if err.is_cancelled() => return Err(PullEnd::Cancelled),
                Err(err) => errors.push(pull_error_text(&err)),
            }
        }
        Err(PullEnd::Failed(rules::join_errors(&errors)))
    }
}

/// How a pull ended without an image.
enum PullEnd {
    Cancelled,
    Failed(String),
}

impl ImageSource for Puller {
    fn ensure(
        &self,
        request: &PullRequest<'_>,
        cancel: &Cancel,
        report: &mut dyn FnMut(ImageEvent),
    ) -> Result<PulledImage, ImageError> {
        let mut work = Ensure { puller: self, request, cancel, report };
        let outcome = work.run();
        if let Err(ImageError::Failed { reason, .. }) = &outcome {
            work.tell(EventType::Warning, "Failed", rules::error_text(*reason));
        }
        outcome
    }

    fn forget(&self, uid: &PodUid) {
        Self::forget(self, uid);
    }
}

/// One call of [`Puller::ensure`].
struct Ensure<'a> {
    puller: &'a Puller,
    request: &'a PullRequest<'a>,
    cancel: &'a Cancel,
    report: &'a mut dyn FnMut(ImageEvent),
}

impl Ensure<'_> {
    fn tell(&mut self, event_type: EventType, reason: &'static str, message: String) {
        (self.report)(ImageEvent { event_type, reason, message });
    }

    fn fail<T>(&mut self, event: &'static str, reason: ImageReason, message: String) -> Result<T, ImageError> {
        self.tell(EventType::Warning, event, message.clone());
        Err(ImageError::Failed { reason, message, retry_at: None })
    }

    fn run(&mut self) -> Result<PulledImage, ImageError> {
        let image = self.request.image;
        let name = match reference::with_default_tag(image) {
            Ok(name) => name,
            Err(err) => {
                let message = rules::invalid_name_text(image, &err);
                return self.fail("InspectFailed", ImageReason::InvalidImageName, message);
            }
        };
        let spec = ImageSpec { image: name, annotations: self.request.annotations.clone(), ..ImageSpec::default() };
        let present = if self.request.policy.looks_first() { self.look(&spec)? } else { None };
        let decision = rules::decide(self.request.policy, present.is_some());
        self.count(present.is_some(), decision);
        match (decision, present) {
            (PullDecision::UsePresent, Some(found)) => {
                self.tell(EventType::Normal, "Pulled", rules::present_text(image));
                Ok(PulledImage { image_ref: found.id.clone(), image: found })
            }
            (PullDecision::Refuse, _) => {
                let message = rules::never_pull_text(image);
                self.fail("ErrImageNeverPull", ImageReason::ErrImageNeverPull, message)
            }
            (PullDecision::Pull | PullDecision::UsePresent, _) => self.pull(&spec),
        }
    }

    fn count(&self, is_present: bool, decision: PullDecision) {
        let present = match (self.request.policy.looks_first(), is_present) {
            (false, _) => "unknown",
            (true, true) => "true",
            (true, false) => "false",
        };
        let policy = match self.request.policy {
            PullPolicy::Always => "always",
            PullPolicy::IfNotPresent => "ifnotpresent",
            PullPolicy::Never => "never",
        };
        let required = if decision == PullDecision::Pull { "true" } else { "false" };
        kubelet::ENSURE_IMAGE.inc(&[present, policy, required]);
    }

    /// What the runtime holds under the name.
    fn look(&mut self, spec: &ImageSpec) -> Result<Option<Image>, ImageError> {
        match self.puller.service.image_status(spec, self.cancel) {
            // An image without an id is none: nothing could be started from it.
            Ok(found) => Ok(found.filter(|image| !image.id.is_empty())),
            Err(err) if err.is_cancelled() => Err(ImageError::Cancelled),
            Err(err) => {
                let message = rules::inspect_failed_text(self.request.image, &err.rpc_text());
                self.fail("InspectFailed", ImageReason::ImageInspectError, message)
            }
        }
    }

    fn pull(&mut self, spec: &ImageSpec) -> Result<PulledImage, ImageError> {
        let (uid, image, puller) = (self.request.uid, self.request.image, self.puller);
        let started = (puller.clock)();
        let wait = lock(&puller.backoffs).waits(uid, image, started);
        if let Some(wait) = wait {
            self.tell(EventType::Normal, "BackOff", rules::back_off_text(image));
            let reason = ImageReason::ImagePullBackOff;
            return Err(ImageError::Failed { reason, message: wait.message, retry_at: Some(wait.until) });
        }
        self.tell(EventType::Normal, "Pulling", rules::pulling_text(image));
        let place = puller.gate.enter(self.cancel).ok_or(ImageError::Cancelled)?;
        let pull_started = (puller.clock)();
        let outcome = puller.pull(self.request, spec, self.cancel);
        drop(place);
        let ended = (puller.clock)();
        match outcome {
            Err(PullEnd::Cancelled) => Err(ImageError::Cancelled),
            Err(PullEnd::Failed(error)) => {
                self.tell(EventType::Warning, "Failed", rules::pull_failed_text(image, &error));
                let (reason, message) = rules::pull_failure(image, &error);
                let until = lock(&puller.backoffs).failed(uid, image, reason, &message, ended);
                Err(ImageError::Failed { reason, message, retry_at: Some(until) })
            }
            Ok(image_ref) => {
                let Some(found) = self.look(spec)? else {
                    let message = rules::inspect_failed_text(image, "it is gone right after its pull");
                    return self.fail("InspectFailed", ImageReason::ImageInspectError, message);
                };
                kubelet::IMAGE_PULL_DURATION.observe(&[size_label(found.size)], ended.since(pull_started));
                let text = rules::pulled_text(image, ended.since(pull_started), ended.since(started), found.size);
                self.tell(EventType::Normal, "Pulled", text);
                Ok(PulledImage { image: found, image_ref })
            }
        }
    }
}

/// The size of an image as metrics of pulls tell it.
fn size_label(bytes: u64) -> &'static str {
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    match bytes {
        0..=0x9f_ffff => "0-10MB",
        _ if bytes < 100 * MIB => "10MB-100MB",
        _ if bytes < 500 * MIB => "100MB-500MB",
        _ if bytes < GIB => "500MB-1GB",
        _ if bytes < 5 * GIB => "1GB-5GB",
        _ if bytes < 10 * GIB => "5GB-10GB",
        _ if bytes < 20 * GIB => "10GB-20GB",
        _ if bytes < 30 * GIB => "20GB-30GB",
        _ if bytes < 40 * GIB => "30GB-40GB",
        _ if bytes < 60 * GIB => "40GB-60GB",
        _ if bytes < 100 * GIB => "60GB-100GB",
        _ => "GT100GB",
    }
}

/// A pull's error as upstream prints it: an answer without a closer code is the runtime's bare text.
fn pull_error_text(err: &CriError) -> String {
    match &err.failure {
        CriFailure::Status { code: Code::Unknown, message } => message.clone(),
        _ => err.rpc_text(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

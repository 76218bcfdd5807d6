//! Decisions about images: whether to pull, what a failure means, how long to wait, and in which words.
//!
//! Layer L1, pure. The words are upstream's, because people and scripts look for them. The pulls
//! themselves are made by `agents::images`.

pub mod keyring;
pub mod reference;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::PodUid;
use crate::api::moment::Moment;
use crate::api::runtime::{Image, RegistryAuth, SandboxSpec};
use crate::msg::EventType;
use crate::util::backoff::{Backoff, BackoffPolicy};
use crate::util::text::{duration, quote};

/// `imagePullPolicy` of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    /// Ask the registry every time.
    Always,
    /// Pull what is missing.
    IfNotPresent,
    /// Take what is there.
    Never,
}

impl PullPolicy {
    /// Reads the API's word. Defaults and validation came before, so that anything else is a policy of
    /// a later API and treated as the careful one, `Always`.
    pub fn from_api(text: Option<&str>) -> Self {
        match text {
            Some("IfNotPresent") => Self::IfNotPresent,
            Some("Never") => Self::Never,
            _ => Self::Always,
        }
    }

    /// Whether the runtime is asked first whether it holds the image.
    pub fn looks_first(self) -> bool {
        self != Self::Always
    }
}

/// What to do for a container's image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullDecision {
    /// Take the one that is there.
    UsePresent,
    /// Pull it.
    Pull,
    /// Refuse: it is not there and may not be pulled.
    Refuse,
}

/// Decides; `present` is what the runtime said, if it was asked.
pub fn decide(policy: PullPolicy, present: bool) -> PullDecision {
    match (policy, present) {
        (PullPolicy::Always, _) | (PullPolicy::IfNotPresent, false) => PullDecision::Pull,
        (PullPolicy::IfNotPresent | PullPolicy::Never, true) => PullDecision::UsePresent,
        (PullPolicy::Never, false) => PullDecision::Refuse,
    }
}

/// Why there is no image: the waiting reason that users see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageReason {
    /// The pull failed.
    ErrImagePull,
    /// It failed lately and waits.
    ImagePullBackOff,
    /// Policy `Never` and not there.
    ErrImageNeverPull,
    /// The name is none.
    InvalidImageName,
    /// The runtime could not say whether it is there.
    ImageInspectError,
    /// The runtime says that the registry does not answer.
    RegistryUnavailable,
    /// The runtime says that the signature is wrong.
    SignatureValidationFailed,
}

impl ImageReason {
    /// The word of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ErrImagePull => "ErrImagePull",
            Self::ImagePullBackOff => "ImagePullBackOff",
            Self::ErrImageNeverPull => "ErrImageNeverPull",
            Self::InvalidImageName => "InvalidImageName",
            Self::ImageInspectError => "ImageInspectError",
            Self::RegistryUnavailable => "RegistryUnavailable",
            Self::SignatureValidationFailed => "SignatureValidationFailed",
        }
    }
}

impl std::fmt::Display for ImageReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a pod worker wants for a container or an image volume.
#[derive(Clone, Copy, Debug)]
pub struct PullRequest<'a> {
    /// The pod; back-off is kept by it.
    pub uid: &'a PodUid,
    /// The image as the pod's author wrote it.
    pub image: &'a str,
    /// Its policy.
    pub policy: PullPolicy,
    /// Credentials to try in this order; none tries without.
    pub auth: &'a [RegistryAuth],
    /// Annotations of the pod, which the runtime gets with the image's name.
    pub annotations: &'a BTreeMap<String, String>,
    /// The pod's sandbox, for runtimes that charge the pull to the pod's cgroup.
    pub sandbox: Option<&'a SandboxSpec>,
}

/// An image that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PulledImage {
    /// What the runtime says of it; its user decides about `runAsNonRoot`.
    pub image: Image,
    /// What a container is made from: the runtime's id of it.
    pub image_ref: String,
}

/// There is no image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The caller's token was set; nothing is counted as a failure.
    #[error("given up on request")]
    Cancelled,
    /// It was refused or failed.
    #[error("{reason}: {message}")]
    Failed {
        /// Waiting reason.
        reason: ImageReason,
        /// Waiting message.
        message: String,
        /// When another try may pull; before that it is answered with `ImagePullBackOff` and costs
        /// nothing. `None` where waiting changes nothing by itself.
        retry_at: Option<Moment>,
    },
}

/// An event about a container's image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageEvent {
    /// Normal or Warning.
    pub event_type: EventType,
    /// `Pulling`, `Pulled`, `Failed`, `BackOff`, `ErrImageNeverPull`, `InspectFailed`.
    pub reason: &'static str,
    /// Sentence.
    pub message: String,
}

/// What a failed pull means. The runtime's text may begin with a word that CRI agrees on.
pub fn pull_failure(image: &str, error: &str) -> (ImageReason, String) {
    let known = [
        (ImageReason::RegistryUnavailable, "the registry is unavailable"),
        (ImageReason::SignatureValidationFailed, "the signature validation failed"),
    ];
    for (reason, because) in known {
        if let Some(rest) = error.strip_prefix(reason.as_str()) {
            return (reason, format!("image pull failed for {image} because {because}{rest}"));
        }
    }
    (ImageReason::ErrImagePull, error.to_owned())
}

/// The one text for several tries with different credentials: each different error once.
pub fn join_errors(errors: &[String]) -> String {
    let mut different: Vec<&str> = Vec::new();
    for error in errors {
        if !different.contains(&error.as_str()) {
            different.push(error);
        }
    }
    match different[..] {
        [single] => single.to_owned(),
        _ => format!("[{}]", different.join(", ")),
    }
}

/// The error of a pull that `registryPullQPS` and `registryBurst` do not allow.
pub const QPS_EXCEEDED: &str = "pull QPS exceeded";

/// Event `Pulling`.
pub fn pulling_text(image: &str) -> String {
    format!("Pulling image {}", quote(image))
}

/// Event `Pulled` for an image that was there.
pub fn present_text(image: &str) -> String {
    format!("Container image {} already present on machine and can be accessed by the pod", quote(image))
}

/// Event `Pulled` after a pull that took `pull`, and `total` with waiting for its turn.
pub fn pulled_text(image: &str, pull: Duration, total: Duration, bytes: u64) -> String {
    let [pull, total] = [pull, total].map(|span| duration(Duration::from_millis(whole_millis(span))));
    format!(
        "Successfully pulled image {} in {pull} ({total} including waiting). Image size: {bytes} bytes.",
        quote(image)
    )
}

fn whole_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Event `Failed` of a pull.
pub fn pull_failed_text(image: &str, error: &str) -> String {
    format!("Failed to pull image {}: {error}", quote(image))
}

/// Event `BackOff`, and the beginning of the waiting message.
pub fn back_off_text(image: &str) -> String {
    format!("Back-off pulling image {}", quote(image))
}

/// Event `ErrImageNeverPull` and the waiting message.
pub fn never_pull_text(image: &str) -> String {
    format!("Container image {} is not present with pull policy of Never", quote(image))
}

/// Event `InspectFailed` and the waiting message for a name that is none.
pub fn invalid_name_text(image: &str, error: &reference::InvalidReference) -> String {
    format!("Failed to apply default image tag {}: {error}", quote(image))
}

/// Event `InspectFailed` and the waiting message when the runtime did not say whether the image is
/// there. Upstream prints an empty name here.
pub fn inspect_failed_text(image: &str, error: &str) -> String {
    format!("Failed to inspect image {}: {error}", quote(image))
}

/// Event `Failed` that follows every refusal.
pub fn error_text(reason: ImageReason) -> String {
    format!("Error: {reason}")
}

/// Which pulls failed lately, by pod and image: one pod's failures never make another wait.
#[derive(Debug, Default)]
pub struct PullBackoffs {
    entries: BTreeMap<PodUid, BTreeMap<String, FailedPull>>,
}

#[derive(Debug)]
struct FailedPull {
    backoff: Backoff,
    /// Reason and message of the last failure.
    last: String,
}

/// A pull that has to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullWait {
    /// When it may be tried again.
    pub until: Moment,
    /// The waiting message: that it waits, and the last failure.
    pub message: String,
}

impl PullBackoffs {
    /// Whether a pull has to wait at `now`.
    pub fn waits(&self, uid: &PodUid, image: &str, now: Moment) -> Option<PullWait> {
        let failed = self.entries.get(uid)?.get(image)?;
        failed.backoff.is_waiting(now).then(|| PullWait {
            until: failed.backoff.until(),
            message: format!("{}: {}", back_off_text(image), failed.last),
        })
    }

    /// Notes a failure at `now`; returns when the next try may be. Old entries go on the way, so that
    /// the table is bounded by what failed within the last ten minutes.
    pub fn failed(&mut self, uid: &PodUid, image: &str, reason: ImageReason, message: &str, now: Moment) -> Moment {
        self.collect(now);
        let images = self.entries.entry(uid.clone()).or_default();
        let before = images.get(image).map(|failed| failed.backoff);
        let backoff = Backoff::after_failure(before, &BackoffPolicy::PULL, now);
        images.insert(image.to_owned(), FailedPull { backoff, last: format!("{reason}: {message}") });
        backoff.until()
    }

    /// Forgets a pod that is gone.
    pub fn forget(&mut self, uid: &PodUid) {
        self.entries.remove(uid);
    }

    /// Drops entries that count no more.
    pub fn collect(&mut self, now: Moment) {
        self.entries.retain(|_, images| {
            images.retain(|_, failed| !failed.backoff.is_over(&BackoffPolicy::PULL, now));
            !images.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[test]
    fn the_policy_decides() {
        fn check(policy: &str, expect: [PullDecision; 2]) {
            let policy = PullPolicy::from_api(Some(policy));
            assert_eq!([decide(policy, false), decide(policy, true)], expect, "missing, present");
        }
        use PullDecision::{Pull, Refuse, UsePresent};
        check("Always", [Pull, Pull]);
        check("IfNotPresent", [Pull, UsePresent]);
        check("Never", [Refuse, UsePresent]);
        assert_eq!(PullPolicy::from_api(None), PullPolicy::Always);
        assert!(!PullPolicy::Always.looks_first(), "what is there does not matter");
        assert!(PullPolicy::Never.looks_first());
    }

    fn check(texts: &[String], expect: Expect) {
        expect.assert_eq(&texts.join("\n"));
    }

    /// The texts of a recorded run of upstream.
    #[test]
    fn texts_are_upstreams() {
        let bad = reference::with_default_tag("Bad Name:1").expect_err("no reference");
        check(
            &[
                pulling_text("127.0.0.1:5999/none:1"),
                present_text("docker.io/library/busybox:latest"),
                pulled_text("a:1", Duration::from_micros(45_678), Duration::from_micros(2_000_999), 7_000),
                pull_failed_text("127.0.0.1:5999/none:1", "connection refused"),
                back_off_text("127.0.0.1:5999/none:1"),
                never_pull_text("example.com/none:1"),
                invalid_name_text("Bad Name:1", &bad),
                inspect_failed_text("a", "context deadline exceeded"),
                error_text(ImageReason::ErrImageNeverPull),
            ],
            expect![[r#"
                Pulling image "127.0.0.1:5999/none:1"
                Container image "docker.io/library/busybox:latest" already present on machine and can be accessed by the pod
                Successfully pulled image "a:1" in 45ms (2s including waiting). Image size: 7000 bytes.
                Failed to pull image "127.0.0.1:5999/none:1": connection refused
                Back-off pulling image "127.0.0.1:5999/none:1"
                Container image "example.com/none:1" is not present with pull policy of Never
                Failed to apply default image tag "Bad Name:1": couldn't parse image name "Bad Name:1": invalid reference format: repository name (library/Bad Name) must be lowercase
                Failed to inspect image "a": context deadline exceeded
                Error: ErrImageNeverPull"#]],
        );
    }

    #[test]
    fn failures_get_their_reason_from_the_runtimes_first_word() {
        let print = |error| {
            let (reason, message) = pull_failure("x.io/a:1", error);
            format!("{reason}: {message}")
        };
        check(
            &[
                print("failed to resolve image: connection refused"),
                print("RegistryUnavailable: no route"),
                print("SignatureValidationFailed"),
                print("the RegistryUnavailable word further on"),
            ],
            expect![[r#"
                ErrImagePull: failed to resolve image: connection refused
                RegistryUnavailable: image pull failed for x.io/a:1 because the registry is unavailable: no route
                SignatureValidationFailed: image pull failed for x.io/a:1 because the signature validation failed
                ErrImagePull: the RegistryUnavailable word further on"#]],
        );
    }

    #[test]
    fn errors_of_several_credentials_are_told_once_each() {
        let join = |errors: &[&str]| join_errors(&errors.iter().map(|error| (*error).to_owned()).collect::<Vec<_>>());
        assert_eq!(join(&["denied"]), "denied");
        assert_eq!(join(&["denied", "denied"]), "denied");
        assert_eq!(join(&["denied", "expired", "denied"]), "[denied, expired]");
    }

    #[test]
    fn a_failed_pull_waits_for_its_pod_and_image_alone() {
        let at = |seconds| Moment::from_boot(Duration::from_secs(seconds));
        let (one, two) = (PodUid::from("1"), PodUid::from("2"));
        let mut table = PullBackoffs::default();
        assert_eq!(table.failed(&one, "a:1", ImageReason::ErrImagePull, "not found", at(0)), at(10));
        assert_eq!(
            table.waits(&one, "a:1", at(9)),
            Some(PullWait {
                until: at(10),
                message: "Back-off pulling image \"a:1\": ErrImagePull: not found".to_owned()
            })
        );
        assert_eq!(table.waits(&one, "b:1", at(9)), None);
        assert_eq!(table.waits(&two, "a:1", at(9)), None);
        assert_eq!(table.waits(&one, "a:1", at(10)), None);
        assert_eq!(table.failed(&one, "a:1", ImageReason::ErrImagePull, "denied", at(10)), at(30));
        assert!(table.waits(&one, "a:1", at(29)).is_some_and(|wait| wait.message.ends_with("denied")));
        table.forget(&one);
        assert_eq!(table.waits(&one, "a:1", at(29)), None);
    }

    #[test]
    fn what_failed_long_ago_is_dropped() {
        let at = |seconds| Moment::from_boot(Duration::from_secs(seconds));
        let mut table = PullBackoffs::default();
        for n in 0..5u64 {
            table.failed(&PodUid::from(n.to_string()), "a", ImageReason::ErrImagePull, "", at(n * 300));
        }
        assert_eq!(table.entries.len(), 3, "those of the last ten minutes");
    }
}

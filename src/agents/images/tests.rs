//! Tests of the puller against a scripted image service.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded, unbounded};
use expect_test::{Expect, expect};

use super::*;
use crate::core::images::PullPolicy;

const LONG: Duration = Duration::from_secs(60);

thread_local! {
    /// Each test runs on its own thread and so has its own time.
    static TIME: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

fn test_time() -> Moment {
    Moment::from_boot(TIME.get())
}

fn error(method: &'static str, failure: CriFailure) -> CriError {
    CriError { method, object: "".into(), endpoint: "unix:///x".into(), failure }
}

fn status(code: Code, message: &str) -> CriFailure {
    CriFailure::Status { code, message: message.into() }
}

/// What the service does with its next pull.
enum Next {
    /// The image arrives, after so long.
    Arrives(Duration),
    Fails(CriFailure),
    NoReference,
}

#[derive(Default)]
struct Script {
    present: BTreeMap<String, Image>,
    inspect_fails: Option<CriFailure>,
    pulls: VecDeque<Next>,
    /// Pulls of these images say so on the one channel and wait for the other, or for the token.
    hanging: BTreeMap<String, (Sender<String>, Receiver<()>)>,
    calls: Vec<String>,
}

#[derive(Clone, Default)]
struct Service(Arc<Mutex<Script>>);

impl Service {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().expect("no test panicked with it")
    }

    fn holds(self, name: &str) -> Self {
        self.script().present.insert(name.into(), image());
        self
    }

    fn then(self, next: Next) -> Self {
        self.script().pulls.push_back(next);
        self
    }
}

fn image() -> Image {
    Image { id: "sha256:1d".into(), size: 4096, ..Image::default() }
}

impl ImageService for Service {
    fn image_status(&self, spec: &ImageSpec, _: &Cancel) -> Result<Option<Image>, CriError> {
        let mut script = self.script();
        script.calls.push(format!("status {}", spec.image));
        match script.inspect_fails.clone() {
            Some(failure) => Err(error("ImageStatus", failure)),
            None => Ok(script.present.get(&spec.image).cloned()),
        }
    }

    fn pull_image(
        &self,
        spec: &ImageSpec,
        auth: Option<&RegistryAuth>,
        _: Option<&SandboxSpec>,
        cancel: &Cancel,
    ) -> Result<String, CriError> {
        let (next, hanging) = {
            let mut script = self.script();
            let user = auth.map(|auth| format!(" as {}", auth.username)).unwrap_or_default();
            script.calls.push(format!("pull {}{user}", spec.image));
            let hanging = script.hanging.remove(&spec.image);
            (if hanging.is_none() { script.pulls.pop_front() } else { None }, hanging)
        };
        let fail = |failure| Err(error("PullImage", failure));
        if let Some((says, until)) = hanging {
            says.send(spec.image.clone()).expect("somebody listens");
            // Ends by itself when a test gave up on it.
            while until.try_recv() == Err(TryRecvError::Empty) {
                if cancel.wait(Duration::from_millis(1)) {
                    return fail(CriFailure::Cancelled);
                }
            }
        }
        match next.unwrap_or(Next::Arrives(Duration::ZERO)) {
            Next::Fails(failure) => return fail(failure),
            Next::NoReference => return Ok(String::new()),
            Next::Arrives(after) => TIME.set(TIME.get() + after),
        }
        self.script().present.insert(spec.image.clone(), image());
        Ok(image().id)
    }
}

const NO_LIMITS: PullLimits = PullLimits { per_second: 0, burst: 0, at_once: None };

fn puller(service: &Service, limits: PullLimits) -> Puller {
    Puller::with_clock(Box::new(service.clone()), limits, test_time)
}

/// One call as a pod worker makes it: events and outcome, one a line.
fn ensure(puller: &Puller, uid: &str, name: &str, policy: PullPolicy, cancel: &Cancel) -> String {
    ensure_with(puller, uid, name, policy, &[], cancel)
}

fn ensure_with(
    puller: &Puller,
    uid: &str,
    name: &str,
    policy: PullPolicy,
    auth: &[RegistryAuth],
    cancel: &Cancel,
) -> String {
    let (uid, annotations) = (PodUid::from(uid), BTreeMap::new());
    let request = PullRequest { uid: &uid, image: name, policy, auth, annotations: &annotations, sandbox: None };
    let mut lines = Vec::new();
    let outcome = puller.ensure(&request, cancel, &mut |event| {
        lines.push(format!("{:?} {}: {}", event.event_type, event.reason, event.message));
    });
    lines.push(match outcome {
        Ok(pulled) => format!("-> {}", pulled.image_ref),
        Err(ImageError::Cancelled) => "-> cancelled".to_owned(),
        Err(ImageError::Failed { reason, message, retry_at }) => {
            let retry = retry_at.map(|at| format!(" [again at {} s]", at.since_boot().as_secs())).unwrap_or_default();
            format!("-> {reason}: {message}{retry}")
        }
    });
    lines.join("\n")
}

/// One call on a fresh puller, and the calls that reached the runtime.
fn check(service: Service, name: &str, policy: PullPolicy, expect: Expect) {
    let text = ensure(&puller(&service, NO_LIMITS), "u", name, policy, &Cancel::never());
    let calls = std::mem::take(&mut service.script().calls);
    expect.assert_eq(&format!("{text}\n= {}", calls.join(", ")));
}

#[test]
fn what_is_there_is_not_pulled() {
    check(
        Service::default().holds("busybox:latest"),
        "busybox",
        PullPolicy::IfNotPresent,
        expect![[r#"
            Normal Pulled: Container image "busybox" already present on machine and can be accessed by the pod
            -> sha256:1d
            = status busybox:latest"#]],
    );
}

#[test]
fn what_is_missing_is_pulled() {
    check(
        Service::default().then(Next::Arrives(Duration::from_millis(1234))),
        "busybox:1",
        PullPolicy::IfNotPresent,
        expect![[r#"
            Normal Pulling: Pulling image "busybox:1"
            Normal Pulled: Successfully pulled image "busybox:1" in 1.234s (1.234s including waiting). Image size: 4096 bytes.
            -> sha256:1d
            = status busybox:1, pull busybox:1, status busybox:1"#]],
    );
}

#[test]
fn always_pulls_without_a_look() {
    check(
        Service::default().holds("busybox:1"),
        "busybox:1",
        PullPolicy::Always,
        expect![[r#"
            Normal Pulling: Pulling image "busybox:1"
            Normal Pulled: Successfully pulled image "busybox:1" in 0s (0s including waiting). Image size: 4096 bytes.
            -> sha256:1d
            = pull busybox:1, status busybox:1"#]],
    );
}

#[test]
fn never_refuses_what_is_missing() {
    check(
        Service::default(),
        "example.com/none:1",
        PullPolicy::Never,
        expect![[r#"
            Warning ErrImageNeverPull: Container image "example.com/none:1" is not present with pull policy of Never
            Warning Failed: Error: ErrImageNeverPull
            -> ErrImageNeverPull: Container image "example.com/none:1" is not present with pull policy of Never
            = status example.com/none:1"#]],
    );
}

#[test]
fn a_name_that_is_none_never_reaches_the_runtime() {
    check(
        Service::default(),
        "Bad Name:1",
        PullPolicy::IfNotPresent,
        expect![[r#"
            Warning InspectFailed: Failed to apply default image tag "Bad Name:1": couldn't parse image name "Bad Name:1": invalid reference format: repository name (library/Bad Name) must be lowercase
            Warning Failed: Error: InvalidImageName
            -> InvalidImageName: Failed to apply default image tag "Bad Name:1": couldn't parse image name "Bad Name:1": invalid reference format: repository name (library/Bad Name) must be lowercase
            = "#]],
    );
}

#[test]
fn a_runtime_that_cannot_look_is_told_apart() {
    let service = Service::default();
    service.script().inspect_fails = Some(status(Code::Unavailable, "restarting"));
    check(
        service,
        "a:1",
        PullPolicy::Never,
        expect![[r#"
            Warning InspectFailed: Failed to inspect image "a:1": rpc error: code = Unavailable desc = restarting
            Warning Failed: Error: ImageInspectError
            -> ImageInspectError: Failed to inspect image "a:1": rpc error: code = Unavailable desc = restarting
            = status a:1"#]],
    );
}

#[test]
fn a_failed_pull_tells_the_runtimes_own_words() {
    check(
        Service::default().then(Next::Fails(status(Code::Unknown, "failed to resolve image: connection refused"))),
        "127.0.0.1:5999/none:1",
        PullPolicy::IfNotPresent,
        expect![[r#"
            Normal Pulling: Pulling image "127.0.0.1:5999/none:1"
            Warning Failed: Failed to pull image "127.0.0.1:5999/none:1": failed to resolve image: connection refused
            Warning Failed: Error: ErrImagePull
            -> ErrImagePull: failed to resolve image: connection refused [again at 10 s]
            = status 127.0.0.1:5999/none:1, pull 127.0.0.1:5999/none:1"#]],
    );
    check(
        Service::default().then(Next::Fails(status(Code::NotFound, "no such image"))),
        "a:1",
        PullPolicy::Always,
        expect![[r#"
            Normal Pulling: Pulling image "a:1"
            Warning Failed: Failed to pull image "a:1": rpc error: code = NotFound desc = no such image
            Warning Failed: Error: ErrImagePull
            -> ErrImagePull: rpc error: code = NotFound desc = no such image [again at 10 s]
            = pull a:1"#]],
    );
    check(
        Service::default().then(Next::Fails(status(Code::Unknown, "RegistryUnavailable: no route"))),
        "a:1",
        PullPolicy::Always,
        expect![[r#"
            Normal Pulling: Pulling image "a:1"
            Warning Failed: Failed to pull image "a:1": RegistryUnavailable: no route
            Warning Failed: Error: RegistryUnavailable
            -> RegistryUnavailable: image pull failed for a:1 because the registry is unavailable: no route [again at 10 s]
            = pull a:1"#]],
    );
}

#[test]
fn a_pull_without_a_reference_failed() {
    check(
        Service::default().then(Next::NoReference),
        "a:1",
        PullPolicy::Always,
        expect![[r#"
            Normal Pulling: Pulling image "a:1"
            Warning Failed: Failed to pull image "a:1": imageRef of image "a:1" is not set
            Warning Failed: Error: ErrImagePull
            -> ErrImagePull: imageRef of image "a:1" is not set [again at 10 s]
            = pull a:1"#]],
    );
}

#[test]
fn failures_back_off_and_say_why() {
    let mut service = Service::default();
    for _ in 0..2 {
        service = service.then(Next::Fails(status(Code::Unknown, "denied")));
    }
    let puller = puller(&service, NO_LIMITS);
    let at = |seconds| {
        TIME.set(Duration::from_secs(seconds));
        let text = ensure(&puller, "u", "a:1", PullPolicy::Always, &Cancel::never());
        format!("{seconds} s {}", text.lines().last().unwrap_or_default())
    };
    let lines = [at(0), at(1), at(10), at(29), at(30)];
    expect![[r#"
        0 s -> ErrImagePull: denied [again at 10 s]
        1 s -> ImagePullBackOff: Back-off pulling image "a:1": ErrImagePull: denied [again at 10 s]
        10 s -> ErrImagePull: denied [again at 30 s]
        29 s -> ImagePullBackOff: Back-off pulling image "a:1": ErrImagePull: denied [again at 30 s]
        30 s -> sha256:1d"#]]
    .assert_eq(&lines.join("\n"));
    assert_eq!(service.script().calls.iter().filter(|call| call.starts_with("pull")).count(), 3);
}

#[test]
fn a_wait_is_an_event_of_its_own() {
    let service = Service::default().then(Next::Fails(status(Code::Unknown, "denied")));
    let puller = puller(&service, NO_LIMITS);
    let pull = |uid| ensure(&puller, uid, "a:1", PullPolicy::Always, &Cancel::never());
    pull("u");
    expect![[r#"
        Normal BackOff: Back-off pulling image "a:1"
        Warning Failed: Error: ImagePullBackOff
        -> ImagePullBackOff: Back-off pulling image "a:1": ErrImagePull: denied [again at 10 s]"#]]
    .assert_eq(&pull("u"));
    assert!(pull("other").ends_with("-> sha256:1d"), "another pod does not wait");
    puller.forget(&"u".into());
    assert!(pull("u").ends_with("-> sha256:1d"), "forgotten");
}

#[test]
fn credentials_are_tried_in_order() {
    let service = Service::default()
        .then(Next::Fails(status(Code::Unknown, "denied")))
        .then(Next::Fails(status(Code::Unknown, "expired")))
        .then(Next::Fails(status(Code::Unknown, "denied")));
    let puller = puller(&service, NO_LIMITS);
    let auth: Vec<_> = ["ann", "bob"].map(|name| RegistryAuth { username: name.into(), ..Default::default() }).into();
    let pull = |uid| ensure_with(&puller, uid, "a:1", PullPolicy::Always, &auth, &Cancel::never());
    assert!(pull("1").ends_with("-> ErrImagePull: [denied, expired] [again at 10 s]"));
    assert!(pull("2").ends_with("-> sha256:1d"));
    assert_eq!(
        service.script().calls,
        ["pull a:1 as ann", "pull a:1 as bob", "pull a:1 as ann", "pull a:1 as bob", "status a:1"]
    );
}

#[test]
fn more_pulls_than_the_rate_allows_fail() {
    let service = Service::default();
    let puller = puller(&service, PullLimits { per_second: 1, burst: 2, at_once: None });
    let pull = |uid| ensure(&puller, uid, "a:1", PullPolicy::Always, &Cancel::never());
    assert!(pull("1").ends_with("-> sha256:1d"));
    assert!(pull("2").ends_with("-> sha256:1d"));
    expect![[r#"
        Normal Pulling: Pulling image "a:1"
        Warning Failed: Failed to pull image "a:1": pull QPS exceeded
        Warning Failed: Error: ErrImagePull
        -> ErrImagePull: pull QPS exceeded [again at 10 s]"#]]
    .assert_eq(&pull("3"));
    TIME.set(Duration::from_secs(1));
    assert!(pull("4").ends_with("-> sha256:1d"));
    assert_eq!(service.script().calls.iter().filter(|call| call.starts_with("pull")).count(), 3);
}

#[test]
fn limits_follow_the_configuration() {
    fn check(fields: (i32, i32, bool, Option<i32>), per_second: u32, burst: u32, at_once: Option<usize>) {
        let (qps, most, serialize, max) = fields;
        assert_eq!(PullLimits::from_config(qps, most, serialize, max), PullLimits { per_second, burst, at_once });
    }
    check((5, 10, true, None), 5, 10, Some(1));
    check((0, 0, false, None), 0, 0, None);
    check((5, 10, false, Some(3)), 5, 10, Some(3));
    check((-1, -1, false, Some(0)), 0, 0, None);
}

/// A worker thread that pulls, and how to follow and end it.
struct Worker<'scope> {
    name: String,
    cancel: Cancel,
    release: Sender<()>,
    thread: std::thread::ScopedJoinHandle<'scope, String>,
}

impl Worker<'_> {
    fn end(self) -> String {
        self.thread.join().expect("no panic").lines().last().unwrap_or_default().to_owned()
    }
}

/// Starts `names` one after another, each only once the one before pulls or waits; every pull hangs
/// until released. Answers the workers, and who began to pull.
fn start<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    service: &Service,
    puller: &'scope Puller,
    names: &[&str],
    inside: usize,
) -> (Vec<Worker<'scope>>, Receiver<String>) {
    let (says, pulling) = unbounded();
    let mut workers = Vec::new();
    for (n, name) in names.iter().enumerate() {
        let (release, released) = bounded(1);
        service.script().hanging.insert((*name).to_owned(), (says.clone(), released));
        let (name, cancel) = ((*name).to_owned(), Cancel::new());
        let (image, token) = (name.clone(), cancel.clone());
        let thread = scope.spawn(move || ensure(puller, &image, &image, PullPolicy::Always, &token));
        workers.push(Worker { name, cancel, release, thread });
        let started = std::time::Instant::now();
        // Pulls, and waits, of those started so far; everybody is in the queue for a moment.
        let expected = ((n + 1).min(inside), (n + 1).saturating_sub(inside));
        while (pulling.len(), puller.waiting()) != expected && started.elapsed() < LONG {
            std::thread::yield_now();
        }
        assert_eq!((pulling.len(), puller.waiting()), expected, "{n}");
    }
    (workers, pulling)
}

fn next(pulling: &Receiver<String>) -> String {
    pulling.recv_timeout(LONG).expect("a pull begins")
}

#[test]
fn serialized_pulls_go_one_by_one_in_order() {
    let service = Service::default();
    let puller = puller(&service, PullLimits { at_once: Some(1), ..NO_LIMITS });
    std::thread::scope(|scope| {
        let (workers, pulling) = start(scope, &service, &puller, &["a:1", "b:1", "c:1"], 1);
        for worker in workers {
            assert_eq!(next(&pulling), worker.name);
            assert!(pulling.is_empty(), "one at a time");
            worker.release.send(()).expect("it listens");
            assert_eq!(worker.end(), "-> sha256:1d");
        }
    });
    assert_eq!(puller.waiting(), 0);
}

#[test]
fn a_limit_lets_so_many_in_at_once() {
    let service = Service::default();
    let puller = puller(&service, PullLimits { at_once: Some(2), ..NO_LIMITS });
    std::thread::scope(|scope| {
        let (workers, pulling) = start(scope, &service, &puller, &["a:1", "b:1", "c:1"], 2);
        assert_eq!([next(&pulling), next(&pulling)].map(|name| name.len()), [3, 3]);
        assert_eq!(puller.waiting(), 1);
        for worker in workers {
            worker.release.send(()).expect("it listens");
            assert_eq!(worker.end(), "-> sha256:1d");
        }
        assert_eq!(next(&pulling), "c:1");
    });
}

#[test]
fn without_a_limit_a_hanging_pull_delays_nobody() {
    let service = Service::default();
    let puller = puller(&service, NO_LIMITS);
    std::thread::scope(|scope| {
        let (mut workers, _pulling) = start(scope, &service, &puller, &["a:1", "b:1"], 2);
        let second = workers.remove(1);
        second.release.send(()).expect("it listens");
        assert_eq!(second.end(), "-> sha256:1d");
        let first = workers.remove(0);
        first.cancel.cancel();
        assert_eq!(first.end(), "-> cancelled");
    });
}

#[test]
fn who_gives_up_leaves_the_queue_at_once_and_is_not_punished() {
    let service = Service::default();
    let puller = puller(&service, PullLimits { at_once: Some(1), ..NO_LIMITS });
    std::thread::scope(|scope| {
        let (mut workers, pulling) = start(scope, &service, &puller, &["a:1", "b:1", "c:1"], 1);
        assert_eq!(next(&pulling), "a:1");
        let waiting = workers.remove(1);
        waiting.cancel.cancel();
        assert_eq!(waiting.end(), "-> cancelled");
        assert_eq!(puller.waiting(), 1, "c:1 still waits");
        // The one that pulls gives up too; its place goes to the next in the queue.
        let hanging = workers.remove(0);
        hanging.cancel.cancel();
        assert_eq!(hanging.end(), "-> cancelled");
        assert_eq!(next(&pulling), "c:1");
        let last = workers.remove(0);
        last.cancel.cancel();
        assert_eq!(last.end(), "-> cancelled");
    });
    assert!(ensure(&puller, "a:1", "a:1", PullPolicy::Always, &Cancel::never()).ends_with("-> sha256:1d"));
}

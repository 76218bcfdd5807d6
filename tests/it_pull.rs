//! Pulls by the real runtime from the tests' registry, through the agent's own puller.
//!
//! One node per containerd, since pulls need nothing but the image service; each case has images of
//! its own, so that no blob is there from the case before.

use std::collections::BTreeMap;
use std::time::Duration;

use ferrolet::agents::ImageSource;
use ferrolet::agents::images::{PullLimits, Puller};
use ferrolet::api::PodUid;
use ferrolet::api::runtime::RegistryAuth;
use ferrolet::core::images::{ImageError, PullPolicy, PullRequest};
use ferrolet::cri::Client;
use ferrolet::util::cancel::Cancel;

use crate::fakes::registry::{Fault, Registry};
use crate::fakes::registry_image::RegistryImage;
use crate::harness::{Containerd, Node};

const LONG: Duration = Duration::from_secs(60);

/// A node whose containerd gets the registry's images from it, and a puller on it.
struct Lab {
    registry: Registry,
    puller: Puller,
    node: Node,
}

/// Tells the node's containerd that the registry speaks plain HTTP.
fn trust(node: &Node, registry: &Registry) {
    registry.write_hosts(&node.path("certs.d"), &registry.address()).expect("written");
}

impl Lab {
    fn start(kind: Containerd) -> Self {
        let node = Node::start(kind);
        let registry = Registry::start();
        trust(&node, &registry);
        let client = Client::new(&node.endpoint(), None, LONG).expect("an endpoint");
        let limits = PullLimits::from_config(0, 0, false, None);
        Self { registry, puller: Puller::new(Box::new(client), limits), node }
    }

    /// Serves an image that no other case has.
    fn serve(&self, case: &str) -> RegistryImage {
        let image = RegistryImage::of_program("run", case.repeat(20_000 / case.len()).as_bytes());
        self.registry.add(case, "1", &image);
        image
    }

    /// Pulls for a pod named after the case; the image's id, or reason and message.
    fn ensure(&self, case: &str, image: &str, auth: &[RegistryAuth], cancel: &Cancel) -> Result<String, String> {
        let (uid, annotations) = (PodUid::from(case), BTreeMap::new());
        let policy = PullPolicy::IfNotPresent;
        let request = PullRequest { uid: &uid, image, policy, auth, annotations: &annotations, sandbox: None };
        let mut events = Vec::new();
        match self.puller.ensure(&request, cancel, &mut |event| events.push(event)) {
            Ok(pulled) => {
                assert_eq!(pulled.image_ref, pulled.image.id);
                Ok(pulled.image_ref)
            }
            Err(ImageError::Cancelled) => Err("cancelled".to_owned()),
            Err(ImageError::Failed { reason, message, .. }) => Err(format!("{reason}: {message}")),
        }
    }

    fn pull(&self, case: &str) -> Result<String, String> {
        self.ensure(case, &self.registry.reference(&format!("{case}:1")), &[], &Cancel::never())
    }

    /// Pulls under a fault; the answer must hold each of `parts`.
    fn fails(&self, case: &str, fault: Fault, parts: &[&str]) {
        self.serve(case);
        self.registry.set_fault(fault);
        let said = self.pull(case).expect_err("the registry is at fault");
        for part in parts {
            assert!(said.contains(part), "{case}: no {part:?} in: {said}");
        }
        self.registry.set_fault(Fault::None);
        let again = self.pull(case).expect_err("it waits");
        assert!(again.starts_with("ImagePullBackOff: Back-off pulling image") && again.ends_with(&said), "{again}");
    }

    fn requests_for(&self, image: &RegistryImage) -> usize {
        let layer = &image.blobs[1].0;
        self.registry.requests().iter().filter(|request| request.contains(layer.as_str())).count()
    }
}

fn images_come_from_a_registry(kind: Containerd) {
    let lab = Lab::start(kind);
    let image = lab.serve("plain");
    assert_eq!(lab.pull("plain"), Ok(image.id().to_owned()));
    let asked = lab.registry.requests().len();
    assert_eq!(lab.pull("plain"), Ok(image.id().to_owned()));
    assert_eq!(lab.registry.requests().len(), asked, "what is there needs no registry");

    let image = lab.serve("digest");
    let name = lab.registry.reference(&format!("digest@{}", image.digest()));
    assert_eq!(lab.ensure("digest", &name, &[], &Cancel::never()), Ok(image.id().to_owned()));

    // The short name of an image that was imported, not pulled.
    assert!(lab.ensure("short", "busybox", &[], &Cancel::never()).is_ok());

    lab.fails("absent", Fault::Status(404), &["ErrImagePull: ", "not found"]);
    lab.fails("refused", Fault::Status(401), &["ErrImagePull: failed to pull and unpack image"]);
    lab.fails("limited", Fault::Status(429), &["ErrImagePull: ", "429"]);
    lab.fails("broken", Fault::Status(500), &["ErrImagePull: ", "500"]);
    lab.fails("ends", Fault::CutBlobs(0), &["ErrImagePull: ", "EOF"]);
    lab.fails("spoilt", Fault::WrongBlobs, &["ErrImagePull: ", "unexpected commit digest"]);
    lab.fails("garbage", Fault::WrongManifests, &["ErrImagePull: "]);

    // A line that breaks again and again, and one that is slow: the runtime goes on where it was.
    for (case, fault) in [("cut", Fault::CutBlobs(5_000)), ("slow", Fault::SlowBlobs(5_000, Duration::from_millis(10)))]
    {
        let image = lab.serve(case);
        lab.registry.set_fault(fault);
        assert_eq!(lab.pull(case), Ok(image.id().to_owned()), "{case}");
        assert_eq!(lab.requests_for(&image) > 1, case == "cut", "{case}");
    }

    // The second of two credentials is the right one.
    let image = lab.serve("login");
    lab.registry.set_fault(Fault::Login("ann", "secret"));
    let auth = ["wrong", "secret"].map(|password| RegistryAuth {
        username: "ann".into(),
        password: password.into(),
        ..RegistryAuth::default()
    });
    let name = lab.registry.reference("login:1");
    assert_eq!(lab.ensure("login", &name, &auth, &Cancel::never()), Ok(image.id().to_owned()));

    // One registry hangs: meanwhile another serves, and the hanging pull can be given up at once.
    let other = Registry::start();
    trust(&lab.node, &other);
    let beside = RegistryImage::of_program("run", b"beside");
    other.add("beside", "1", &beside);
    let hanging = lab.serve("hangs");
    lab.registry.set_fault(Fault::HangBlobs(100));
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let name = lab.registry.reference("hangs:1");
        let (lab, token) = (&lab, cancel.clone());
        let worker = scope.spawn(move || lab.ensure("hangs", &name, &[], &token));
        assert!(lab.registry.saw(hanging.id(), LONG));
        let pulled = lab.ensure("beside", &other.reference("beside:1"), &[], &Cancel::never());
        assert_eq!(pulled, Ok(beside.id().to_owned()));
        cancel.cancel();
        assert_eq!(worker.join().expect("no panic"), Err("cancelled".to_owned()));
    });
    lab.registry.set_fault(Fault::None);
    assert_eq!(lab.pull("hangs"), Ok(hanging.id().to_owned()), "giving up costs no back-off");
}

#[test]
fn the_systems_containerd_pulls_images() {
    images_come_from_a_registry(Containerd::System);
}

#[test]
fn containerd_2_pulls_images() {
    images_come_from_a_registry(Containerd::Two);
}

//! Images: pods whose images come from a registry on loopback, by every policy, and the reasons people see when one does not.

use std::fs;

use serde_json::{Value, json};

use super::lab::{Lab, has_event, pod, restarts, status};
use crate::fakes::{registry::Registry, registry_image::RegistryImage};
use crate::harness::{Containerd, Node, wait};

/// An image that runs `/busybox`, of which no other case has a layer.
pub(super) fn image(case: &str) -> RegistryImage {
    let mut program = fs::read("/bin/busybox").expect("the static busybox that the images are made of");
    program.extend(case.as_bytes());
    RegistryImage::of_program("busybox", &program)
}

/// A registry that the node's containerd gets its images from.
pub(super) fn registry(node: &Node) -> Registry {
    let registry = Registry::start();
    registry.write_hosts(&node.path("certs.d"), &registry.address()).expect("write hosts.toml");
    registry
}

/// A pod of one container that runs `image` with this pull policy.
pub(super) fn pulling(name: &str, image: &str, policy: &str, command: &[&str]) -> Value {
    let container = json!({ "name": "app", "image": image, "imagePullPolicy": policy, "command": command });
    pod(name, &[container], json!({ "terminationGracePeriodSeconds": 1 }))
}

fn wait_reason(lab: &Lab<'_>, name: &str, reason: &str) -> Value {
    lab.wait_pod(name, reason, |pod| (status(pod, "app")["state"]["waiting"]["reason"] == reason).then(|| pod.clone()))
}

fn pods_get_their_images(kind: Containerd) {
    let node = Node::start(kind);
    let registry = registry(&node);
    let lab = Lab::start_with(&node, |config| {
        config["crashLoopBackOff"] = json!({ "maxContainerRestartPeriod": "1s" });
    });
    let forever = ["/busybox", "sleep", "1000"];
    let busybox = "docker.io/library/busybox:latest";
    registry.add("always", "1", &image("always"));
    registry.add("once", "1", &image("once"));

    lab.put(&pulling("late", &registry.reference("late:1"), "IfNotPresent", &forever));
    lab.put(&pulling("always", &registry.reference("always:1"), "Always", &["/busybox", "sleep", "1"]));
    lab.put(&pulling("once", &registry.reference("once:1"), "IfNotPresent", &["/busybox", "sleep", "1"]));
    lab.put(&pulling("present", busybox, "Never", &["sleep", "1000"]));
    lab.put(&pulling("absent", &registry.reference("absent:1"), "Never", &forever));
    lab.put(&pulling("wrong", "Not/An:Image::Name", "IfNotPresent", &forever));

    // Nobody has it: an error, then a wait, and success once it is there.
    // Its event is told by the worker at once, its state by the worker's report: the one may come before the other.
    lab.wait_pod("late", "ErrImagePull", |pod| {
        let reason = &status(pod, "app")["state"]["waiting"]["reason"];
        (has_event(pod, "Failed") && (reason == "ErrImagePull" || reason == "ImagePullBackOff")).then_some(())
    });
    let late = wait_reason(&lab, "late", "ImagePullBackOff");
    assert_eq!(late["status"]["phase"], "Pending");
    let message = status(&late, "app")["state"]["waiting"]["message"].to_string();
    assert!(message.contains("late:1"), "{message}");
    registry.add("late", "1", &image("late"));

    lab.wait_running("present");
    let present = lab.pod("present").expect("the agent answers");
    assert!(!has_event(&present, "Pulling"), "{present}");
    let absent = wait_reason(&lab, "absent", "ErrImageNeverPull");
    assert!(!has_event(&absent, "Pulling"), "{absent}");
    wait_reason(&lab, "wrong", "InvalidImageName");

    // A restart asks the registry again by one policy and not by the other.
    for name in ["always", "once"] {
        lab.wait_pod(name, "two restarts", |pod| (restarts(pod, "app") >= 2).then_some(()));
    }
    let asked = |name: &str| {
        let part = format!("/v2/{name}/manifests/1");
        registry.requests().iter().filter(|request| request.contains(&part)).count()
    };
    let (always, once) = (asked("always"), asked("once"));
    assert!(always >= 3, "{always} requests: {:?}", registry.requests());
    assert!((1..=2).contains(&once), "{once} requests: {:?}", registry.requests());
    assert_eq!(asked("absent"), 0);

    let late = lab.wait_running("late");
    assert!(has_event(&late, "Pulled"), "{late}");
    let id = status(&late, "app")["imageID"].to_string();
    assert!(id.contains(&image("late").digest()) || id.contains(image("late").id()), "{id}");

    for name in ["late", "always", "once", "present", "absent", "wrong"] {
        lab.remove(name);
    }
    for name in ["late", "always", "once", "present", "absent", "wrong"] {
        lab.wait_gone(name);
    }
    wait::until("an empty runtime", super::lab::SOON, || {
        let pods = lab.runtime_pods()?;
        if pods.is_empty() { Ok(()) } else { Err(format!("{pods:?}")) }
    });
}

#[test]
fn pods_get_their_images_on_the_distributions_containerd() {
    pods_get_their_images(Containerd::System);
}

#[test]
fn pods_get_their_images_on_containerd_2() {
    pods_get_their_images(Containerd::Two);
}

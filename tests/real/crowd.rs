//! Many pods at once: all of them run, none of them twice, and all of them go.
//!
//! A full node of 110 by default, which two cores that much else shares do in four minutes; FERROLET_CROWD is another number.

use std::time::Duration;

use serde_json::json;

use super::lab::{Lab, is_running, pod};
use crate::harness::{Containerd, Node, wait};

/// For all to start, and for all to go.
const LIMIT: Duration = Duration::from_secs(400);

#[test]
fn a_crowd_of_pods_starts_and_goes() {
    let count: usize =
        std::env::var("FERROLET_CROWD").map_or(110, |count| count.parse().expect("FERROLET_CROWD is a number"));
    let node = Node::start(Containerd::Two);
    let lab = Lab::start(&node);
    let names: Vec<String> = (0..count).map(|number| format!("web-{number}")).collect();
    for name in &names {
        let web = json!({ "name": "web", "image": "localhost/ferrolet/web:1", "imagePullPolicy": "IfNotPresent" });
        lab.put(&pod(name, &[web], json!({})));
    }
    wait::until("all pods to run", LIMIT, || {
        let pods = lab.pods()?;
        match pods.iter().filter(|pod| is_running(pod)).count() {
            running if running == count && pods.len() == count => Ok(()),
            running => Err(format!("{running} of {} pods run", pods.len())),
        }
    });
    let (code, body) = lab.agent.healthz().expect("/healthz answers");
    assert_eq!(code, 200, "{body}");
    let pods = lab.runtime_pods().expect("the runtime lists");
    assert_eq!(pods.len(), count);
    for pod in &pods {
        assert_eq!((pod.sandboxes.len(), pod.containers.len()), (1, 1), "{pod:?}");
        assert_eq!((pod.sandboxes[0].attempt, pod.containers[0].attempt), (0, 0), "{pod:?}");
    }
    for name in &names {
        lab.remove(name);
    }
    lab.wait_empty_within(LIMIT);
}

//! The machine shuts down, as a bus with a logind of the test's own tells it: what a real control plane hears of node and pods.

use serde_json::{Value, json};

use super::endings::{RUNS, pod, shell};
use super::lab::{Ground, SOON};
use crate::{
    fakes::test_bus::TestBus,
    harness::{Cluster, cluster::condition, wait},
};

/// Waits until a pod is as `look` wants it.
#[track_caller]
fn wait_pod(ground: &Ground<'_>, name: &str, what: &str, look: impl Fn(&Value) -> bool) -> Value {
    wait::until(&format!("pod {name}: {what}"), SOON, || {
        let pod = ground.cluster.get(&["-n", &ground.name, "pod", name])?;
        if look(&pod) { Ok(pod) } else { Err(format!("{:#}", pod["status"])) }
    })
}

/// Waits for an event of the node.
#[track_caller]
fn wait_event(ground: &Ground<'_>, message: &str) {
    wait::until(&format!("NodeShutdown {message:?}"), SOON, || {
        let events = ground.cluster.get(&["-n", "default", "events"])?;
        let mut all = events["items"].as_array().into_iter().flatten();
        let is_it = |event: &Value| {
            event["involvedObject"]["name"] == ground.name.as_str()
                && event["reason"] == "NodeShutdown"
                && event["message"] == message
        };
        if all.any(is_it) { Ok(()) } else { Err(format!("{:#}", events["items"])) }
    });
}

#[test]
fn the_machines_shutdown_is_told_and_ends_pods_before_it_goes_on() {
    let ground = Ground::with_namespace(Cluster::shared());
    let bus = TestBus::start(&["org.freedesktop.login1", "org.freedesktop.systemd1"]);
    std::os::unix::fs::symlink(&bus.path, ground.node.path("bus")).expect("a link to the bus");
    let answers = bus.answer(vec![("Get", Ok("prop 60000000")), ("Get", Ok("no")), ("Inhibit", Ok("fd"))]);
    let agent = ground.join(&[], |config| {
        config["shutdownGracePeriod"] = json!("30s");
        config["shutdownGracePeriodCriticalPods"] = json!("10s");
    });
    ground.wait_ready();
    bus.take_back(answers);
    let make = |name: &str| ground.cluster.apply(&pod(&ground.name, name, &ground.name, &[shell("c", RUNS)]));
    make("first");
    wait_pod(&ground, "first", "it runs", |pod| condition(pod, "Ready")["status"] == "True");

    bus.prepare_for_shutdown(true);
    wait_event(&ground, "Shutdown manager detected shutdown event");
    let node = ground.wait_object("it is not ready", |node| condition(node, "Ready")["status"] == "False");
    let ready = condition(&node, "Ready");
    assert_eq!((&ready["reason"], &ready["message"]), (&json!("KubeletNotReady"), &json!("node is shutting down")));
    let ended = wait_pod(&ground, "first", "it ends", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(ended["status"]["reason"], "Terminated");
    assert_eq!(ended["status"]["message"], "Pod was terminated in response to imminent node shutdown.");
    assert_eq!(condition(&ended, "DisruptionTarget")["reason"], "TerminationByKubelet");
    let path = agent.root_dir().join("graceful_node_shutdown_state");
    wait::until("both times of the shutdown", SOON, || {
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
        let state: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let times = ["startTime", "endTime"].map(|key| state[key].as_str().unwrap_or_default().to_owned());
        if times[0].as_str() > "2020" && times[0] <= times[1] { Ok(()) } else { Err(text) }
    });
    make("late");
    let refused = wait_pod(&ground, "late", "it is refused", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(refused["status"]["reason"], "NodeShutdown");

    bus.prepare_for_shutdown(false);
    let answers = bus.answer(vec![("Inhibit", Ok("fd"))]);
    bus.take_back(answers);
    wait_event(&ground, "Shutdown manager detected shutdown cancellation");
    ground.wait_ready();
    make("again");
    wait_pod(&ground, "again", "it runs", |pod| condition(pod, "Ready")["status"] == "True");
    let still = ground.cluster.get(&["-n", &ground.name, "pod", "first"]).expect("the pod that ended");
    assert_eq!(still["status"]["phase"], "Failed");
    drop(agent);
}

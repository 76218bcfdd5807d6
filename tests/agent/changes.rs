//! What an API server changes in pods that run, by the whole program beside a fake runtime and a fake API server: debug
//! containers, and CPU and memory in place, with a runtime that refuses, fails and does not know.

use serde_json::{Value, json};

use crate::{
    agent::{Place, SOON, container, ground, lives, settle, wait_running, wait_says},
    fakes::{api::FakeApi, cri::FakeCri},
    harness::{Agent, cluster::condition, config::Ground, wait},
};

/// An API server that an agent has joined, with one pod on its node.
struct Joined<'place> {
    api: FakeApi,
    place: &'place Place,
    /// As it was put last.
    pod: Value,
}

const PATH: &str = "/api/v1/namespaces/default/pods/subject-node";

impl<'place> Joined<'place> {
    fn new(place: &'place Place, containers: Value) -> Joined<'place> {
        let api = FakeApi::start();
        let kubeconfig = api.kubeconfig("http", &json!({}), &json!({}));
        std::fs::write(place.path("kubeconfig"), kubeconfig.to_string()).expect("write a kubeconfig");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "subject-node", "namespace": "default", "uid": "subject-uid", "generation": 1 },
            "spec": {
                "nodeName": "node", "restartPolicy": "Always", "terminationGracePeriodSeconds": 1, "dnsPolicy": "Default",
                "enableServiceLinks": false, "securityContext": {}, "schedulerName": "default-scheduler", "containers": containers,
                "tolerations": [{ "operator": "Exists" }],
            },
            "status": { "phase": "Pending" },
        });
        api.put(PATH, pod.clone());
        Joined { api, place, pod }
    }

    fn join(&self) -> Agent<'place> {
        Agent::join(self.place, "node", &self.place.path("kubeconfig"), &[], settle)
    }

    /// Changes the pod's spec, as the API server would at somebody's request.
    fn change(&mut self, change: impl FnOnce(&mut Value)) {
        change(&mut self.pod["spec"]);
        let generation = self.pod["metadata"]["generation"].as_i64().expect("a generation") + 1;
        self.pod["metadata"]["generation"] = json!(generation);
        let mut new = self.pod.clone();
        new["status"] = self.api.object(PATH).map(|old| old["status"].clone()).unwrap_or_default();
        self.api.put(PATH, new);
    }
}

/// The status of a container of any kind.
fn status<'pod>(pod: &'pod Value, name: &str) -> &'pod Value {
    let lists = ["containerStatuses", "ephemeralContainerStatuses"]
        .into_iter()
        .filter_map(|list| pod["status"][list].as_array());
    lists.flatten().find(|status| status["name"] == name).unwrap_or(&Value::Null)
}

#[test]
fn debug_containers_start_once_beside_their_target_and_their_end_is_told() {
    let (fake, place) = ground();
    let mut joined = Joined::new(&place, json!([container("app", json!({})), container("other", json!({}))]));
    let agent = joined.join();
    wait_running(&agent, "subject");
    let before = lives(&fake, "subject");
    let guest = |name: &str, target: &str| {
        container(
            name,
            json!({ "targetContainerName": target, "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File" }),
        )
    };
    joined.change(|spec| spec["ephemeralContainers"] = json!([guest("guest", "app")]));
    let runs = |name: &'static str| move |pod: &Value| status(pod, name)["state"]["running"].is_object().then_some(());
    agent.wait_pod("subject", "the guest", SOON, runs("guest"));
    let id = fake.container_id("subject-node", "guest").expect("a container");
    let target = fake.container_id("subject-node", "app").expect("a container");
    fake.with(|state| {
        let linux = state.containers[&id].config.linux.get_or_default();
        let options = linux.security_context.get_or_default().namespace_options.get_or_default();
        assert_eq!(options.target_id, target, "it sees the processes of its target");
    });
    fake.exit_container(&id, 3);
    let end = |pod: &Value| status(pod, "guest")["state"]["terminated"]["exitCode"].as_i64();
    assert_eq!(agent.wait_pod("subject", "the guest's end", SOON, end), 3);
    // Another beside it, and another life of the agent: what ended stays ended.
    joined.change(|spec| spec["ephemeralContainers"] = json!([guest("guest", "app"), guest("second", "other")]));
    agent.wait_pod("subject", "the second guest", SOON, runs("second"));
    agent.kill();
    let agent = joined.join();
    agent.wait_pod("subject", "the second guest as before", SOON, runs("second"));
    assert_eq!(agent.wait_pod("subject", "the end as before", SOON, end), 3);
    let guests = fake.with(|state| state.containers.values().filter(|it| it.name() == "guest").count());
    assert_eq!(guests, 1, "it was not run again");
    assert!(before.iter().all(|life| lives(&fake, "subject").contains(life)), "nobody else was touched");
    joined.api.remove(PATH);
    wait::until("an empty runtime", SOON, || match fake.containers().len() {
        0 => Ok(()),
        some => Err(format!("{some} containers")),
    });
}

fn sizes(cpu: &str, memory: &str) -> Value {
    let both = json!({ "cpu": cpu, "memory": memory });
    json!({ "resources": { "requests": both, "limits": both } })
}

/// The calls that resized something, in their order, without the pod's name.
fn resizes(fake: &FakeCri) -> Vec<String> {
    let called = fake.called();
    let resizes = called.iter().filter(|line| line.starts_with("Update"));
    resizes.map(|line| line.replace("default/subject-node ", "")).collect()
}

/// Waits until the pod has nothing left to resize and its containers have these limits of memory, in MiB.
#[track_caller]
fn wait_limits(agent: &Agent<'_>, limits: &[(&str, &str)]) {
    agent.wait_pod("subject", &format!("{limits:?}"), SOON, |pod| {
        let rests = ["PodResizeInProgress", "PodResizePending"].iter().all(|kind| condition(pod, kind).is_null());
        let fits = |(name, limit): &(&str, &str)| status(pod, name)["resources"]["limits"]["memory"] == *limit;
        (rests && limits.iter().all(fits)).then_some(())
    });
}

#[test]
fn sizes_change_in_place_and_what_gives_back_goes_first() {
    let (fake, place) = ground();
    let two = |app: (&str, &str), other: (&str, &str)| {
        json!([container("app", sizes(app.0, app.1)), container("other", sizes(other.0, other.1))])
    };
    let mut joined = Joined::new(&place, two(("100m", "64Mi"), ("100m", "64Mi")));
    let agent = joined.join();
    wait_running(&agent, "subject");
    let before = lives(&fake, "subject");
    fake.forget_calls();
    joined.change(|spec| spec["containers"] = two(("200m", "128Mi"), ("50m", "32Mi")));
    wait_limits(&agent, &[("app", "128Mi"), ("other", "32Mi")]);
    let whole = format!("UpdatePodSandboxResources memory {}", 160 << 20);
    assert_eq!(resizes(&fake), [whole.as_str(), "UpdateContainerResources other", "UpdateContainerResources app"]);
    assert_eq!(lives(&fake, "subject"), before, "nobody was restarted");
    let id = fake.container_id("subject-node", "app").expect("a container");
    let limit = fake.with(|state| {
        state.containers[&id].config.linux.get_or_default().resources.get_or_default().memory_limit_in_bytes
    });
    assert_eq!(limit, 128 << 20);

    // The runtime refuses the pod as a whole: nothing of it changes, it is told, and asked again.
    fake.forget_calls();
    fake.inject("UpdatePodSandboxResources", 9, "the machine is too small", 2);
    joined.change(|spec| spec["containers"] = two(("200m", "256Mi"), ("50m", "32Mi")));
    agent.wait_pod("subject", "word of the refusal", SOON, |pod| {
        let told = condition(pod, "PodResizeInProgress")["message"].to_string();
        told.contains("the machine is too small").then_some(())
    });
    assert!(resizes(&fake).iter().all(|call| call.starts_with("UpdatePodSandbox")), "{:?}", resizes(&fake));
    wait_limits(&agent, &[("app", "256Mi")]);

    // One container cannot be resized at first.
    fake.inject("UpdateContainerResources", 13, "the cgroup is busy", 1);
    joined.change(|spec| spec["containers"] = two(("200m", "64Mi"), ("50m", "32Mi")));
    wait_limits(&agent, &[("app", "64Mi")]);

    // A runtime from before this call has no part in it.
    fake.inject("UpdatePodSandboxResources", 12, "unknown method", 1000);
    joined.change(|spec| spec["containers"] = two(("200m", "96Mi"), ("50m", "32Mi")));
    wait_limits(&agent, &[("app", "96Mi")]);
    assert_eq!(lives(&fake, "subject"), before, "nobody was restarted");

    // What is being done outlives the agent: one that was killed in the middle goes on.
    fake.inject("UpdateContainerResources", 13, "the cgroup is busy", 100_000);
    joined.change(|spec| spec["containers"] = two(("200m", "112Mi"), ("50m", "32Mi")));
    agent.wait_pod("subject", "a resize under way", SOON, |pod| {
        (!condition(pod, "PodResizeInProgress").is_null()).then_some(())
    });
    agent.kill();
    fake.with(|state| drop(state.faults.remove("UpdateContainerResources")));
    let agent = joined.join();
    wait_limits(&agent, &[("app", "112Mi"), ("other", "32Mi")]);
    assert_eq!(lives(&fake, "subject"), before, "nobody was restarted");
    wait_says(&agent, &["why"], "all pods run as they should");
}

#[test]
fn who_has_to_restart_for_its_size_does_and_nobody_else() {
    let (_fake, place) = ground();
    let policy = json!({ "resizePolicy": [{ "resourceName": "memory", "restartPolicy": "RestartContainer" }] });
    let both = |memory: &str| {
        let mut strict = container("strict", sizes("100m", memory));
        strict.as_object_mut().expect("an object").extend(policy.as_object().expect("an object").clone());
        json!([strict, container("loose", sizes("100m", memory))])
    };
    let mut joined = Joined::new(&place, both("64Mi"));
    let agent = joined.join();
    wait_running(&agent, "subject");
    joined.change(|spec| spec["containers"] = both("80Mi"));
    wait_limits(&agent, &[("strict", "80Mi"), ("loose", "80Mi")]);
    let counts = agent.wait_pod("subject", "the restart", SOON, |pod| {
        let count = |name: &str| status(pod, name)["restartCount"].as_i64();
        (count("strict") == Some(1)).then(|| count("loose"))
    });
    assert_eq!(counts, Some(0));
}

//! What a manifest may ask for and this version, or any node by itself, cannot give: each thing is refused, or told of on
//! the pod, in plain words. A table of manifests and words, on the real program.

use serde_json::{Value, json};

use crate::{
    agent::{SOON, ground, lives, manifest, run, settle, start, wait_healthy, wait_running, wait_says_all},
    harness::{Agent, config::Ground, wait},
};

/// A pod of this name, with a part of its spec replaced.
fn with(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = manifest(name);
    change(&mut pod["spec"]);
    pod
}

/// A pod with this volume, mounted.
fn with_volume(name: &str, source: Value) -> Value {
    with(name, |spec| {
        let mut volume = json!({ "name": "v" });
        volume.as_object_mut().expect("an object").extend(source.as_object().expect("an object").clone());
        spec["volumes"] = json!([volume]);
        spec["containers"][0]["volumeMounts"] = json!([{ "name": "v", "mountPath": "/v" }]);
    })
}

/// Manifests that only an API server could serve, and what is told of each.
fn refused() -> Vec<(Value, &'static str)> {
    let container = |name: &str, field: &str, value: Value| with(name, |spec| spec["containers"][0][field] = value);
    vec![
        (
            with_volume("secret", json!({ "secret": { "secretName": "s" } })),
            "volumes[0].secret: a static pod must not use Secrets",
        ),
        (
            with_volume("config-map", json!({ "configMap": { "name": "c" } })),
            "volumes[0].configMap: a static pod must not use ConfigMaps",
        ),
        (
            with_volume("claim", json!({ "persistentVolumeClaim": { "claimName": "c" } })),
            "volumes[0].persistentVolumeClaim: a static pod must not use claims",
        ),
        (
            with_volume(
                "ephemeral",
                json!({ "ephemeral": { "volumeClaimTemplate": { "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } } } }),
            ),
            "volumes[0].ephemeral: a static pod must not use claims",
        ),
        (
            with_volume("csi", json!({ "csi": { "driver": "d.example.com" } })),
            "volumes[0].csi: a static pod must not use CSI volumes",
        ),
        (
            with_volume("token", json!({ "projected": { "sources": [{ "serviceAccountToken": { "path": "t" } }] } })),
            "serviceAccountToken: a static pod must not use a service account",
        ),
        (
            container("env-secret", "envFrom", json!([{ "secretRef": { "name": "s" } }])),
            "envFrom[0].secretRef: a static pod must not use Secrets",
        ),
        (
            container(
                "env-map",
                "env",
                json!([{ "name": "A", "valueFrom": { "configMapKeyRef": { "name": "c", "key": "k" } } }]),
            ),
            "valueFrom.configMapKeyRef: a static pod must not use ConfigMaps",
        ),
        (
            with("pull-secret", |spec| spec["imagePullSecrets"] = json!([{ "name": "s" }])),
            "imagePullSecrets: a static pod must not use Secrets",
        ),
        (
            with("account", |spec| spec["serviceAccountName"] = json!("robot")),
            "serviceAccountName: a static pod must not use a service account",
        ),
        (
            with("claims", |spec| {
                spec["resourceClaims"] = json!([{ "name": "gpu", "resourceClaimName": "g" }]);
                spec["containers"][0]["resources"] = json!({ "claims": [{ "name": "gpu" }] });
            }),
            "resourceClaims: a static pod must not use ResourceClaims",
        ),
        (
            container("claims-alone", "resources", json!({ "claims": [{ "name": "gpu" }] })),
            "resources.claims[0]: \"gpu\" is not among spec.resourceClaims",
        ),
        (
            with("device", |spec| {
                spec["volumes"] = json!([{ "name": "v", "hostPath": { "path": "/dev/null" } }]);
                spec["containers"][0]["volumeDevices"] = json!([{ "name": "v", "devicePath": "/dev/xvda" }]);
            }),
            "must be the volume of a claim to be used as a device",
        ),
    ]
}

#[test]
fn what_needs_an_api_server_is_refused_by_field() {
    let (_fake, place) = ground();
    let agent = start(&place);
    let refused = refused();
    for (pod, _) in &refused {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        agent.put_manifest(&format!("{name}.yaml"), &pod.to_string());
    }
    run(&agent, "good");
    for (pod, words) in &refused {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        wait::until(&format!("{words:?} of {name}"), SOON, || match agent.problem_of(&format!("{name}.yaml"))? {
            problem if problem.contains(words) => Ok(()),
            problem => Err(problem),
        });
    }
    assert_eq!(agent.pods().expect("an answer").len(), 1, "none of them became a pod");
    wait_healthy(&agent);
}

#[test]
fn volumes_without_a_driver_keep_their_pod_waiting_and_say_so() {
    let (fake, place) = ground();
    let agent = start(&place);
    let waiting = [
        ("nfs", json!({ "nfs": { "server": "s", "path": "/x" } }), "this version has no driver for it"),
        ("git", json!({ "gitRepo": { "repository": "r" } }), "it was removed from Kubernetes"),
    ];
    for (name, source, _) in &waiting {
        agent.put_manifest(&format!("{name}.yaml"), &with_volume(name, source.clone()).to_string());
    }
    run(&agent, "good");
    for (name, _, words) in &waiting {
        let full = format!("{name}-node");
        wait_says_all(&agent, &["why", &full], &["FailedMount", words]);
        wait_says_all(&agent, &["describe", &full], &["FailedMount", words]);
        wait_says_all(&agent, &["ps"], &[&full, "ContainerCreating"]);
        assert_eq!(lives(&fake, name), [""; 0]);
    }
    wait_healthy(&agent);
}

#[test]
fn limits_that_nobody_keeps_are_told_on_the_pod() {
    let (_fake, place) = ground();
    let agent = start(&place);
    let mut pod = with_volume("greedy", json!({ "emptyDir": { "sizeLimit": "1Gi" } }));
    pod["spec"]["containers"][0]["resources"] = json!({ "limits": { "ephemeral-storage": "2Gi" } });
    agent.put_manifest("greedy.yaml", &pod.to_string());
    wait_running(&agent, "greedy");
    let told = [
        "NotEnforced",
        "emptyDir volume v: sizeLimit 1Gi is not enforced on disk by this version",
        "its limit of ephemeral-storage, 2Gi, is not enforced by this version",
    ];
    wait_says_all(&agent, &["describe", "greedy-node"], &told);
}

/// Settings that do not go with the machine or its runtime, and what the agent says before it ends.
#[test]
fn an_agent_that_could_run_no_pod_does_not_start_and_says_what_to_change() {
    let (_fake, place) = ground();
    let mut refused = vec![(
        json!({ "cgroupDriver": "systemd", "cgroupsPerQOS": true }),
        "kubelet.json sets cgroupDriver to systemd, and the container runtime uses cgroupfs: leave it out there",
    )];
    let has_cgroup_v1 = !std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    if has_cgroup_v1 {
        let word = "this machine has cgroup v1 and failCgroupV1 is true: boot with systemd.unified_cgroup_hierarchy=1";
        refused.push((json!({ "failCgroupV1": true }), word));
    }
    for (settings, word) in refused {
        let agent = Agent::spawn(&place, |config| {
            settle(config);
            config.as_object_mut().expect("an object").extend(settings.as_object().expect("an object").clone());
        });
        let status = agent.ended();
        let log = std::fs::read_to_string(place.path("ferrolet.log")).expect("a log");
        assert_eq!((status.code(), log.contains(word)), (Some(1), true), "{settings}: {log}");
    }
    // Where nobody sets one, the runtime's is as good as any.
    let agent = Agent::spawn(&place, |config| {
        settle(config);
        config.as_object_mut().expect("an object").remove("cgroupDriver");
        config["failCgroupV1"] = (!has_cgroup_v1).into();
    });
    wait_healthy(&agent);
}

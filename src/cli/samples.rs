//! Pods to render in the tests of the tools. Plain values; nothing is asked.

use crate::api::runtime::UnixNanos;
use crate::server::wire::{NodeDetails, PodDetails, Problem};
use serde_json::{Value, json};

/// 2026-11-30T09:00:00Z.
pub(super) const NOW: UnixNanos = 1_796_029_200_000_000_000;
const MINUTE: i64 = 60_000_000_000;

/// A node whose runtime is down and that has a bad manifest.
pub(super) fn node() -> NodeDetails {
    NodeDetails {
        name: "edge".to_owned(),
        runtime_down: "no such socket".to_owned(),
        silent_sources: vec!["http".to_owned()],
        problems: vec![Problem {
            origin: "/etc/m/bad.yaml".to_owned(),
            message: "spec.containers is empty".to_owned(),
        }],
    }
}

fn details(value: Value) -> PodDetails {
    serde_json::from_value(value).expect("a pod")
}

/// A pod that runs, one that crashes, one that ends.
pub(super) fn pods() -> Vec<PodDetails> {
    let running = details(json!({
        "uid": "1111", "namespace": "default", "name": "db-edge", "stage": "Active",
        "waitsFor": "runs as it should; nothing to do",
        "containers": [{"name": "db", "id": "c1", "attempt": 0, "activity": "running", "logPath": "/var/log/pods/db/0.log"}],
        "pod": {"metadata": {"name": "db-edge", "creationTimestamp": "2026-11-30T06:00:00Z"},
                "spec": {"containers": [{"name": "db", "image": "db:1"}]}},
        "status": {"phase": "Running", "podIP": "10.0.0.7", "startTime": "2026-11-30T06:00:01Z",
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "True"}],
            "containerStatuses": [{"name": "db", "ready": true, "restartCount": 0, "image": "db:1", "imageID": "sha256:1",
                "state": {"running": {"startedAt": "2026-11-30T06:00:02Z"}}}]},
    }));
    let crashing = details(json!({
        "uid": "2222", "namespace": "default", "name": "web-edge", "stage": "Active",
        "waitsFor": "waits for back-off of container web: 80 s more",
        "plan": ["start container web: it has ended"],
        "events": [
            {"type": "Normal", "reason": "Pulled", "message": "Container image is there", "fieldPath": "spec.containers{web}",
             "count": 1, "firstAt": NOW - 10 * MINUTE, "lastAt": NOW - 10 * MINUTE},
            {"type": "Warning", "reason": "BackOff", "message": "Back-off restarting failed container",
             "fieldPath": "spec.containers{web}", "count": 5, "firstAt": NOW - 10 * MINUTE, "lastAt": NOW - MINUTE}],
        "pod": {
            "metadata": {"name": "web-edge", "labels": {"app": "web", "tier": "front"},
                "annotations": {"kubernetes.io/config.source": "file"}},
            "spec": {
                "nodeName": "edge", "priority": 100,
                "initContainers": [{"name": "setup", "image": "setup:1", "command": ["sh", "-c", "true"]}],
                "containers": [{"name": "web", "image": "web:1", "args": ["--port", "80"],
                    "ports": [{"containerPort": 80, "hostPort": 8088, "protocol": "TCP"}],
                    "resources": {"limits": {"memory": "64Mi"}, "requests": {"cpu": "100m", "memory": "32Mi"}},
                    "env": [{"name": "MODE", "value": "fast"},
                        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                    "livenessProbe": {"httpGet": {"path": "/", "port": 80}},
                    "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": true, "subPath": "www"}]}],
                "volumes": [{"name": "data", "hostPath": {"path": "/srv", "type": "Directory"}}, {"name": "tmp", "emptyDir": {}}],
                "tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}},
        "status": {"phase": "Running", "qosClass": "Burstable", "startTime": "2026-11-30T08:50:00Z",
            "hostIP": "192.0.2.1", "podIP": "10.0.0.8", "podIPs": [{"ip": "10.0.0.8"}, {"ip": "fd00::8"}],
            "conditions": [{"type": "Initialized", "status": "True"},
                {"type": "Ready", "status": "False", "reason": "ContainersNotReady"}],
            "initContainerStatuses": [{"name": "setup", "ready": true, "restartCount": 0, "image": "setup:1", "imageID": "",
                "state": {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": "2026-11-30T08:50:01Z",
                    "finishedAt": "2026-11-30T08:50:02Z"}}}],
            "containerStatuses": [{"name": "web", "ready": false, "restartCount": 4, "image": "web:1", "imageID": "sha256:2",
                "containerID": "containerd://c2",
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 1m20s"}},
                "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": "no config\ngiving up",
                    "startedAt": "2026-11-30T08:58:00Z", "finishedAt": "2026-11-30T08:59:00Z"}}}]},
    }));
    let ending = details(json!({
        "uid": "3333", "namespace": "kube-system", "name": "old-edge", "stage": "Terminating",
        "waitsFor": "ends: its source no longer has it", "plan": ["stop container old: pod ends"],
        "status": {"phase": "Running"},
    }));
    vec![running, crashing, ending]
}

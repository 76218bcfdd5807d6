//! `ferrolet describe`: all that the agent knows of one pod, as `kubectl describe` lays it out. Runs on
//! the main thread; asks the agent once.

use super::client::{self, Agent, Output, Refusal};
use super::table::{Sheet, age, moment};
use super::{print, ps};
use crate::api::pod;
use crate::api::runtime::UnixNanos;
use crate::api::v1::{Container, ContainerState, ContainerStatus, EnvVar, Pod, Volume, VolumeMount};
use crate::core::status::summary;
use crate::server::wire::{EventDetails, PodDetails};
use crate::util::clock;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitCode;

const HELP: &str =
    "\nPOD is a name, namespace/name, the only one that starts so, or a uid.\n\n  -o json|yaml    for programs\n";

/// `ferrolet describe POD [-o json|yaml]`.
pub(super) fn run(args: Vec<OsString>) -> ExitCode {
    client::end("describe", describe(args))
}

fn describe(args: Vec<OsString>) -> Result<ExitCode, Refusal> {
    use lexopt::prelude::*;
    let (mut agent, mut output, mut pod) = (Agent::default(), Output::Text, None);
    let mut words = lexopt::Parser::from_args(args);
    while let Some(word) = words.next()? {
        match word {
            Short('h') | Long("help") => return Ok(client::show_help("describe", HELP)),
            Short('o') | Long("output") => output = Output::parse(&words.value()?, false)?,
            Long("socket") => agent.socket = Some(words.value()?.into()),
            Value(word) if word == "pod" || word == "pods" => {}
            Value(word) => client::take_pod(&mut pod, word)?,
            other => return Err(other.unexpected().into()),
        }
    }
    let pod = pod.ok_or_else(|| Refusal::usage("which pod?"))?;
    let (_, details) = agent.pod(&pod)?;
    match output {
        Output::Json | Output::Yaml => {
            let mut details = details;
            details.pod = Some(std::sync::Arc::new(ps::as_api_pod(&details)));
            output.print(&details)
        }
        Output::Text | Output::Wide => Ok(print(&render(&details, clock::wall()))),
    }
}

fn told(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or_default()
}

fn pairs(map: Option<&BTreeMap<String, String>>, sign: &str) -> Vec<String> {
    map.into_iter().flatten().map(|(key, value)| format!("{key}{sign}{value}")).collect()
}

fn yes(is: bool) -> &'static str {
    if is { "True" } else { "False" }
}

fn render(details: &PodDetails, now: UnixNanos) -> String {
    let nothing = Pod::default();
    let pod = details.pod.as_deref().unwrap_or(&nothing);
    let status = &details.status;
    let mut sheet = Sheet::default();
    sheet.field("Name", &details.name);
    sheet.field("Namespace", &details.namespace);
    sheet.field("UID", &details.uid);
    if let Some(spec) = pod::spec(pod) {
        sheet.field("Node", told(&spec.node_name));
        if let Some(priority) = spec.priority {
            sheet.field("Priority", format!("{priority} {}", told(&spec.priority_class_name)).trim_end());
        }
        sheet.field("Restart Policy", pod::restart_policy(pod).as_str());
    }
    sheet.list("Start Time", status.start_time.iter().map(|time| moment(time, now)));
    sheet.list("Labels", pairs(pod.metadata.labels.as_ref(), "="));
    sheet.list("Annotations", pairs(pod.metadata.annotations.as_ref(), ": "));
    sheet.field("Status", ps::status_word(details, summary(status, pod).status));
    for (name, text) in [("Reason", told(&status.reason)), ("Message", told(&status.message))] {
        if !text.is_empty() {
            sheet.field(name, text);
        }
    }
    sheet.field("Stage", &details.stage);
    sheet.field("Waits For", &details.waits_for);
    sheet.list("Plan", details.plan.iter().cloned());
    sheet.list("IPs", status.pod_ips.iter().flatten().map(|ip| ip.ip.clone()));
    sheet.field("Host IP", told(&status.host_ip));
    sheet.field("QoS Class", told(&status.qos_class));

    let none = Vec::new();
    let statuses = |list: &Option<Vec<ContainerStatus>>| list.clone().unwrap_or_default();
    let ephemeral: Vec<Container> = pod::ephemeral_containers(pod).iter().map(pod::ephemeral_as_container).collect();
    for (title, specs, statuses) in [
        ("Init Containers", pod::init_containers(pod), statuses(&status.init_container_statuses)),
        ("Containers", pod::app_containers(pod), statuses(&status.container_statuses)),
        ("Ephemeral Containers", ephemeral.as_slice(), statuses(&status.ephemeral_container_statuses)),
    ] {
        if specs.is_empty() {
            continue;
        }
        sheet.group(title, |sheet| {
            for spec in specs {
                let status = statuses.iter().find(|status| status.name == spec.name);
                let log = details.containers.iter().find(|one| one.name == spec.name).map(|one| one.log_path.as_str());
                sheet.group(&spec.name, |sheet| container(sheet, spec, status, log.unwrap_or_default(), now));
            }
        });
    }
    let conditions = status.conditions.as_ref().unwrap_or(&none).iter().map(|condition| {
        let texts = [&condition.reason, &condition.message].map(|text| told(text).to_owned());
        [vec![condition.type_.clone(), condition.status.clone()], texts.to_vec()].concat()
    });
    sheet.table("Conditions", &["Type", "Status", "Reason", "Message"], conditions.collect());
    let volumes = pod::spec(pod).and_then(|spec| spec.volumes.as_ref());
    sheet.table("Volumes", &["Name", "Kind", "Details"], volumes.into_iter().flatten().map(volume_row).collect());
    sheet.table(
        "Events",
        &["Type", "Reason", "Age", "Object", "Message"],
        details.events.iter().map(|event| event_row(event, now)).collect(),
    );
    sheet.into_text()
}

fn container(sheet: &mut Sheet, spec: &Container, status: Option<&ContainerStatus>, log: &str, now: UnixNanos) {
    sheet.field("Container ID", status.map(|status| told(&status.container_id)).unwrap_or_default());
    sheet.field("Image", told(&spec.image));
    sheet.field("Image ID", status.map(|status| status.image_id.as_str()).unwrap_or_default());
    for (name, words) in [("Command", &spec.command), ("Args", &spec.args)] {
        if let Some(words) = words {
            sheet.list(name, words.iter().cloned());
        }
    }
    let ports = spec.ports.iter().flatten().map(|port| {
        let host = port.host_port.map(|host| format!(" on host port {host}")).unwrap_or_default();
        format!("{}/{}{host}", port.container_port, port.protocol.as_deref().unwrap_or("TCP"))
    });
    sheet.list("Ports", ports);
    if let Some(status) = status {
        state(sheet, "State", status.state.as_ref(), now);
        if status.last_state.as_ref().is_some_and(|last| *last != ContainerState::default()) {
            state(sheet, "Last State", status.last_state.as_ref(), now);
        }
        sheet.field("Ready", yes(status.ready));
        sheet.field("Restart Count", status.restart_count.to_string());
    } else {
        sheet.field("State", "not reported yet");
    }
    if let Some(resources) = &spec.resources {
        for (name, amounts) in [("Limits", &resources.limits), ("Requests", &resources.requests)] {
            if let Some(amounts) = amounts {
                sheet.list(name, amounts.iter().map(|(key, amount)| format!("{key}: {}", amount.0)));
            }
        }
    }
    for (name, probe) in
        [("Liveness", &spec.liveness_probe), ("Readiness", &spec.readiness_probe), ("Startup", &spec.startup_probe)]
    {
        if let Some(probe) = probe {
            sheet.field(name, compact(serde_json::to_value(probe).ok().as_ref()));
        }
    }
    sheet.list("Environment", spec.env.iter().flatten().map(env_line));
    if let Some(from) = &spec.env_from {
        sheet.list("Environment From", from.iter().map(|from| compact(serde_json::to_value(from).ok().as_ref())));
    }
    sheet.list("Mounts", spec.volume_mounts.iter().flatten().map(mount_line));
    sheet.field("Log", log);
}

fn state(sheet: &mut Sheet, name: &str, state: Option<&ContainerState>, now: UnixNanos) {
    let time = |sheet: &mut Sheet, name: &str, time: Option<&crate::api::meta::Time>| {
        if let Some(time) = time.filter(|time| time.0.as_second() > 0) {
            sheet.field(name, moment(time, now));
        }
    };
    let text = |sheet: &mut Sheet, name: &str, value: &Option<String>| {
        if !told(value).is_empty() {
            sheet.field(name, told(value));
        }
    };
    match state {
        Some(ContainerState { running: Some(running), .. }) => {
            sheet.field(name, "Running");
            time(sheet, "  Started", running.started_at.as_ref());
        }
        Some(ContainerState { terminated: Some(end), .. }) => {
            sheet.field(name, "Terminated");
            text(sheet, "  Reason", &end.reason);
            text(sheet, "  Message", &end.message);
            sheet.field("  Exit Code", end.exit_code.to_string());
            if let Some(signal) = end.signal.filter(|signal| *signal != 0) {
                sheet.field("  Signal", signal.to_string());
            }
            time(sheet, "  Started", end.started_at.as_ref());
            time(sheet, "  Finished", end.finished_at.as_ref());
        }
        Some(ContainerState { waiting: Some(waiting), .. }) => {
            sheet.field(name, "Waiting");
            text(sheet, "  Reason", &waiting.reason);
            text(sheet, "  Message", &waiting.message);
        }
        _ => sheet.field(name, "Waiting"),
    }
}

fn env_line(env: &EnvVar) -> String {
    match &env.value_from {
        Some(from) => format!("{}: from {}", env.name, compact(serde_json::to_value(from).ok().as_ref())),
        None => format!("{}: {}", env.name, told(&env.value)),
    }
}

fn mount_line(mount: &VolumeMount) -> String {
    let path = [("path", &mount.sub_path), ("path", &mount.sub_path_expr)];
    let path = path.into_iter().filter(|(_, value)| !told(value).is_empty());
    let path: String = path.map(|(name, value)| format!(", {name} {}", told(value))).collect();
    let access = if mount.read_only == Some(true) { "ro" } else { "rw" };
    format!("{} from {} ({access}{path})", mount.mount_path, mount.name)
}

/// A volume is what its one field says it is, whatever kinds there may be.
fn volume_row(volume: &Volume) -> Vec<String> {
    let value = serde_json::to_value(volume).unwrap_or_default();
    let source = value.as_object().into_iter().flatten().find(|(key, _)| *key != "name");
    let (kind, details) = source.map_or(("emptyDir", None), |(key, source)| (key.as_str(), Some(source)));
    vec![volume.name.clone(), kind.to_owned(), compact(details)]
}

/// A value on one line, without the noise of JSON.
fn compact(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Object(map)) => {
            let part = |(key, value): (&String, &Value)| match value {
                Value::Object(_) => format!("{key} {{{}}}", compact(Some(value))),
                value => format!("{key} {}", compact(Some(value))),
            };
            map.iter().map(part).collect::<Vec<_>>().join(", ")
        }
        Some(Value::Array(list)) => {
            format!("[{}]", list.iter().map(|value| compact(Some(value))).collect::<Vec<_>>().join(", "))
        }
        Some(other) => other.to_string(),
    }
}

fn event_row(event: &EventDetails, now: UnixNanos) -> Vec<String> {
    let age = match event.count {
        0 | 1 => age(event.last_at, now),
        count => format!("{} (x{count} over {})", age(event.last_at, now), age(event.first_at, now)),
    };
    let object = if event.field_path.is_empty() { "pod".to_owned() } else { event.field_path.clone() };
    let message = event.message.trim_end().replace('\n', " ");
    vec![event.type_.clone(), event.reason.clone(), age, object, message]
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use expect_test::{Expect, expect};

    fn check(name: &str, expect: Expect) {
        let details = samples::pods().into_iter().find(|pod| pod.name == name).expect("a sample");
        expect.assert_eq(&render(&details, samples::NOW));
    }

    #[test]
    fn sheets() {
        check(
            "web-edge",
            expect![[r#"
            Name:               web-edge
            Namespace:          default
            UID:                2222
            Node:               edge
            Priority:           100
            Restart Policy:     Always
            Start Time:         2026-11-30 08:50:00 UTC (10m ago)
            Labels:             app=web
                                tier=front
            Annotations:        kubernetes.io/config.source: file
            Status:             CrashLoopBackOff
            Stage:              Active
            Waits For:          waits for back-off of container web: 80 s more
            Plan:               start container web: it has ended
            IPs:                10.0.0.8
                                fd00::8
            Host IP:            192.0.2.1
            QoS Class:          Burstable
            Init Containers:
              setup:
                Container ID:   <none>
                Image:          setup:1
                Image ID:       <none>
                Command:        sh
                                -c
                                true
                Ports:          <none>
                State:          Terminated
                  Reason:       Completed
                  Exit Code:    0
                  Started:      2026-11-30 08:50:01 UTC (9m59s ago)
                  Finished:     2026-11-30 08:50:02 UTC (9m58s ago)
                Ready:          True
                Restart Count:  0
                Environment:    <none>
                Mounts:         <none>
                Log:            <none>
            Containers:
              web:
                Container ID:   containerd://c2
                Image:          web:1
                Image ID:       sha256:2
                Args:           --port
                                80
                Ports:          80/TCP on host port 8088
                State:          Waiting
                  Reason:       CrashLoopBackOff
                  Message:      back-off 1m20s
                Last State:     Terminated
                  Reason:       Error
                  Message:      no config
                                giving up
                  Exit Code:    1
                  Started:      2026-11-30 08:58:00 UTC (2m ago)
                  Finished:     2026-11-30 08:59:00 UTC (60s ago)
                Ready:          False
                Restart Count:  4
                Limits:         memory: 64Mi
                Requests:       cpu: 100m
                                memory: 32Mi
                Liveness:       httpGet {path /, port 80}
                Environment:    MODE: fast
                                NODE: from fieldRef {fieldPath spec.nodeName}
                Mounts:         /data from data (ro, path www)
                Log:            <none>
            Conditions:
              Type          Status   Reason               Message
              Initialized   True
              Ready         False    ContainersNotReady
            Volumes:
              Name   Kind       Details
              data   hostPath   path /srv, type Directory
              tmp    emptyDir
            Events:
              Type      Reason    Age                 Object                 Message
              Normal    Pulled    10m                 spec.containers{web}   Container image is there
              Warning   BackOff   60s (x5 over 10m)   spec.containers{web}   Back-off restarting failed container
        "#]],
        );
        check(
            "old-edge",
            expect![[r#"
            Name:               old-edge
            Namespace:          kube-system
            UID:                3333
            Start Time:         <none>
            Labels:             <none>
            Annotations:        <none>
            Status:             Terminating
            Stage:              Terminating
            Waits For:          ends: its source no longer has it
            Plan:               stop container old: pod ends
            IPs:                <none>
            Host IP:            <none>
            QoS Class:          <none>
            Conditions:         <none>
            Volumes:            <none>
            Events:             <none>
        "#]],
        );
    }

    #[test]
    fn values_on_one_line() {
        let value = serde_json::json!({"a": {"b": [1, "x y", null]}, "c": true});
        assert_eq!(compact(Some(&value)), "a {b [1, x y, ]}, c true");
        assert_eq!(compact(None), "");
    }
}

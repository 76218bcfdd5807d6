//! What is to be probed of a pod, and the one attempt that a handler of its spec asks for. Pure; see the parent module.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::api::ContainerId;
use crate::api::pod::{app_containers, init_containers, is_sidecar};
use crate::api::probe::{NetAction, ProbeAction, ProbeCall};
use crate::api::runtime::{ContainerState, UnixNanos};
use crate::api::v1::{Container, ContainerStatus, Pod, PodStatus, Probe};
use crate::core::plan;
use crate::core::spec::expand::expand;
use crate::msg::{Life, PodView, ProbeKind};

/// All kinds, in the order in which they matter.
const KINDS: [ProbeKind; 3] = [ProbeKind::Startup, ProbeKind::Liveness, ProbeKind::Readiness];

/// A probe's times and thresholds, with the API's defaults where a pod went without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timing {
    /// From the container's start to the first attempt.
    pub(super) initial_delay: Duration,
    /// From one attempt to the next.
    pub(super) period: Duration,
    /// Successes in a row that count.
    pub(super) successes: u32,
    /// Failures in a row that count.
    pub(super) failures: u32,
}

impl Timing {
    pub(super) fn of(probe: &Probe) -> Self {
        let seconds = |value: Option<i32>, default| {
            let value = value.filter(|seconds| *seconds > 0).and_then(|seconds| u64::try_from(seconds).ok());
            Duration::from_secs(value.unwrap_or(default))
        };
        let times = |value: Option<i32>, default| {
            value.filter(|times| *times > 0).and_then(|times| u32::try_from(times).ok()).unwrap_or(default)
        };
        Self {
            initial_delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            successes: times(probe.success_threshold, 1),
            failures: times(probe.failure_threshold, 3),
        }
    }
}

/// The instance of a container that runs now, as a probe needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Running {
    pub(super) id: ContainerId,
    /// Wall time of its start.
    pub(super) started_at: UnixNanos,
    /// Whether its startup probe passed, or it has none.
    pub(super) started: bool,
    /// Whether it counts as ready.
    pub(super) ready: bool,
}

/// The containers of a pod that may have probes: apps and sidecars.
fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    app_containers(pod).iter().chain(init_containers(pod).iter().filter(|c| is_sidecar(c)))
}

/// A container's probe of one kind.
pub(super) fn probe_of(container: &Container, kind: ProbeKind) -> Option<&Probe> {
    match kind {
        ProbeKind::Startup => container.startup_probe.as_ref(),
        ProbeKind::Liveness => container.liveness_probe.as_ref(),
        ProbeKind::Readiness => container.readiness_probe.as_ref(),
    }
}

/// A container of the spec that may have probes.
pub(super) fn container_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    containers(pod).find(|c| c.name == name)
}

/// Where events about a container point to.
pub(super) fn field_path(pod: &Pod, name: &str) -> String {
    let list = if app_containers(pod).iter().any(|c| c.name == name) { "containers" } else { "initContainers" };
    format!("spec.{list}{{{name}}}")
}

/// The probes of a pod that are in force where it is in its life: a pod that ends is not restarted any more, and
/// those who send it traffic still want to know whether it answers.
pub(super) fn probes_of(view: &PodView) -> impl Iterator<Item = (&Container, ProbeKind, &Probe)> {
    let pod = view.pod.as_deref().filter(|_| matches!(view.life, Life::Active | Life::Ending));
    let in_force = |kind: &ProbeKind| view.life == Life::Active || *kind == ProbeKind::Readiness;
    pod.into_iter().flat_map(containers).flat_map(move |container| {
        let kinds = KINDS.into_iter().filter(in_force);
        kinds.filter_map(move |kind| Some((container, kind, probe_of(container, kind)?)))
    })
}

/// The instance of a container that runs now, if one does.
pub(super) fn running(view: &PodView, name: &str) -> Option<Running> {
    let newest = plan::newest(&view.runtime.as_deref()?.containers, name)?;
    let ContainerState::Running { started_at } = newest.state else { return None };
    let told = status_of(&view.status, name).filter(|told| {
        let id = told.container_id.as_deref().and_then(|id| id.split_once("://"));
        id.is_some_and(|(_, id)| id == newest.id.as_str())
    });
    Some(Running {
        id: newest.id.clone(),
        started_at,
        started: told.is_some_and(|told| told.started == Some(true)),
        ready: told.is_some_and(|told| told.ready),
    })
}

fn status_of<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    let lists = [&status.container_statuses, &status.init_container_statuses];
    lists.into_iter().flatten().flatten().find(|told| told.name == name)
}

/// The attempt that a probe asks for.
///
/// # Errors
/// The spec names a port that the container does not have, or the pod has no address: a sentence.
pub(super) fn call(probe: &Probe, container: &Container, status: &PodStatus) -> Result<ProbeCall, String> {
    let timeout = probe.timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(1).max(1);
    let host = |named: Option<&String>| -> Result<String, String> {
        let named = named.filter(|host| !host.is_empty());
        let host = named.or(status.pod_ip.as_ref()).filter(|host| !host.is_empty());
        host.cloned().ok_or_else(|| "the pod has no address yet".to_owned())
    };
    let action = if let Some(exec) = &probe.exec {
        let command = exec.command.as_deref().unwrap_or_default();
        ProbeAction::Exec { command: command.iter().map(|word| expand_static(word, container)).collect() }
    } else if let Some(get) = &probe.http_get {
        let headers = get.http_headers.iter().flatten().map(|field| (field.name.clone(), field.value.clone()));
        ProbeAction::Net(NetAction::Http {
            tls: get.scheme.as_deref().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")),
            port: port(&get.port, container)?,
            host: host(get.host.as_ref())?,
            path: get.path.clone().unwrap_or_default(),
            headers: headers.collect(),
        })
    } else if let Some(tcp) = &probe.tcp_socket {
        ProbeAction::Net(NetAction::Tcp { port: port(&tcp.port, container)?, host: host(tcp.host.as_ref())? })
    } else if let Some(grpc) = &probe.grpc {
        let service = grpc.service.clone().unwrap_or_default();
        ProbeAction::Net(NetAction::Grpc { port: port_number(i64::from(grpc.port))?, host: host(None)?, service })
    } else {
        return Err("the probe has none of exec, httpGet, tcpSocket and grpc".to_owned());
    };
    Ok(ProbeCall { action, timeout: Duration::from_secs(timeout) })
}

/// References to those variables of the container whose values stand in the spec.
fn expand_static(text: &str, container: &Container) -> String {
    let env = container.env.as_deref().unwrap_or_default();
    // A variable whose value comes from elsewhere counts as empty; the last of a name wins.
    expand(text, |name| env.iter().rev().find(|v| v.name == name).map(|v| v.value.as_deref().unwrap_or_default()))
}

fn port(port: &IntOrString, container: &Container) -> Result<u16, String> {
    match port {
        IntOrString::Int(number) => port_number(i64::from(*number)),
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten().find(|p| p.name.as_deref() == Some(name));
            let number = named.map(|p| i64::from(p.container_port)).or_else(|| name.parse().ok());
            port_number(number.ok_or_else(|| format!("container {} has no port named {name:?}", container.name))?)
        }
    }
}

fn port_number(number: i64) -> Result<u16, String> {
    let port = u16::try_from(number).ok().filter(|port| *port > 0);
    port.ok_or_else(|| format!("invalid port number: {number}"))
}

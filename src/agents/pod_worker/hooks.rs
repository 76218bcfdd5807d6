//! Lifecycle hooks: exec, httpGet, sleep. On a `pod-N` thread, or one of a stop's own threads.

use std::time::Duration;

use super::Tools;
use super::run::Run;
use crate::api::ContainerId;
use crate::api::pod::is_host_network;
use crate::api::runtime::ContainerState;
use crate::api::v1::{Container, HTTPGetAction, LifecycleHandler};
use crate::msg::{EventType, PodWork};
use crate::probe::GetError;
use crate::util::clock;
use crate::util::metrics::kubelet;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// A postStart hook has no limit of its own in the API; this one bounds what a runtime has to hold.
pub(super) const NO_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Longest wait for the answer to an httpGet hook.
const HTTP_LIMIT: Duration = Duration::from_secs(30);

/// How often a `sleep` hook sees whether its container has ended meanwhile.
const SLEEP_LOOK: Duration = Duration::from_secs(1);

/// Output of a failed exec hook that is told.
const OUTPUT_TOLD: usize = 1024;

/// Runs a hook to its end, within `limit`.
///
/// # Errors
/// How it failed, in plain words.
pub(super) fn run(
    run: &Run<'_>,
    container: &Container,
    id: &ContainerId,
    hook: &LifecycleHandler,
    limit: Duration,
) -> Result<(), String> {
    let (tools, work) = (run.tools, run.work);
    if let Some(exec) = &hook.exec {
        let command = exec.command.clone().unwrap_or_default();
        let output = tools.client.exec_sync(id, &command, limit, &work.cancel).map_err(|e| e.to_string())?;
        if output.exit_code == 0 {
            return Ok(());
        }
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8_lossy(&told[..told.len().min(OUTPUT_TOLD)]).trim().to_owned();
        return Err(format!("command {command:?} exited with {}: {told:?}", output.exit_code));
    }
    if let Some(get) = &hook.http_get {
        return http(run, container, id, get, limit);
    }
    if let Some(sleep) = &hook.sleep {
        let span = Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0));
        return rest(tools, work, id, span, limit);
    }
    Err("the hook has none of exec, httpGet and sleep".to_owned())
}

/// Sleeps for as long as the container lives: who has ended needs no time to end.
fn rest(tools: &Tools, work: &PodWork, id: &ContainerId, span: Duration, limit: Duration) -> Result<(), String> {
    let until = clock::moment() + span.min(limit);
    loop {
        let left = until.since(clock::moment());
        if left.is_zero() {
            if span <= limit {
                return Ok(());
            }
            kubelet::SLEEPS_CUT_SHORT.inc();
            return Err("the grace period was over before the sleep".to_owned());
        }
        if work.cancel.wait(left.min(SLEEP_LOOK)) {
            kubelet::SLEEPS_CUT_SHORT.inc();
            return Err("given up on request".to_owned());
        }
        if left > SLEEP_LOOK && has_ended(tools, work, id) {
            kubelet::SLEEPS_CUT_SHORT.inc();
            return Ok(());
        }
    }
}

fn has_ended(tools: &Tools, work: &PodWork, id: &ContainerId) -> bool {
    match tools.client.container_status(id, &work.cancel) {
        Ok(container) => matches!(container.state, ContainerState::Exited(_)),
        Err(error) => error.is_not_found(),
    }
}

fn http(
    run: &Run<'_>,
    container: &Container,
    id: &ContainerId,
    get: &HTTPGetAction,
    limit: Duration,
) -> Result<(), String> {
    let (tools, work) = (run.tools, run.work);
    let port = port(container, &get.port)?;
    let port = u16::try_from(port).map_err(|_| format!("{port} is no port"))?;
    let host = match get.host.as_deref().filter(|h| !h.is_empty()) {
        Some(host) => host.to_owned(),
        None => pod_ip(tools, work, id)?,
    };
    let path = get.path.as_deref().unwrap_or_default();
    let tls = get.scheme.as_deref().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
    let headers: Vec<(String, String)> =
        get.http_headers.iter().flatten().map(|h| (h.name.clone(), h.value.clone())).collect();
    let until = clock::moment() + limit.min(HTTP_LIMIT);
    let ask = |tls, headers: &[(String, String)]| {
        tools.http.call_hook((tls, &host, port, path), headers, until.since(clock::moment()))
    };
    // Any answer is one: a hook is told, not asked.
    match ask(tls, &headers) {
        // Once more without TLS; a secret is not for everybody on the way.
        Err(error @ GetError::NotTls { .. }) => {
            let open: Vec<(String, String)> =
                headers.into_iter().filter(|(name, _)| !name.eq_ignore_ascii_case("authorization")).collect();
            ask(false, &open).map_err(|_| error.to_string())?;
            kubelet::HTTP_FALLBACKS.inc();
            let place = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
            let text = format!("request to HTTPS lifecycle hook {place} got HTTP response, retry with HTTP succeeded");
            run.event("", EventType::Warning, "LifecycleHTTPFallback", text);
            Ok(())
        }
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn port(container: &Container, port: &IntOrString) -> Result<i32, String> {
    match port {
        IntOrString::Int(number) => Ok(*number),
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten().find(|p| p.name.as_deref() == Some(name));
            match named {
                Some(found) => Ok(found.container_port),
                None => name.parse().map_err(|_| format!("the container has no port named {name:?}")),
            }
        }
    }
}

/// The pod's address; asked of the runtime, since a stop does not bring it along.
fn pod_ip(tools: &Tools, work: &PodWork, id: &ContainerId) -> Result<String, String> {
    let none = || format!("pod {} has no address for the hook of container {}", work.name, id);
    if is_host_network(&work.pod) {
        return tools.facts.node_ips.first().cloned().ok_or_else(none);
    }
    if let Some(ip) = work.sandbox.as_ref().and_then(|s| s.ips.first()) {
        return Ok(ip.clone());
    }
    let pod = tools.client.list_pod(work.uid.as_str(), &work.cancel).map_err(|e| e.to_string())?.unwrap_or_default();
    for sandbox in &pod.sandboxes {
        let status = tools.client.sandbox_status(&sandbox.id, &work.cancel).map_err(|e| e.to_string())?;
        if let Some(ip) = status.sandbox.ips.into_iter().next() {
            return Ok(ip);
        }
    }
    Err(none())
}

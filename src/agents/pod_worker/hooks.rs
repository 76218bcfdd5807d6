//! Lifecycle hooks: exec, httpGet, sleep. On a `pod-N` thread, or one of a stop's own threads.

use std::time::Duration;

use super::Tools;
use crate::api::ContainerId;
use crate::api::pod::is_host_network;
use crate::api::v1::{Container, HTTPGetAction, LifecycleHandler};
use crate::msg::PodWork;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// A postStart hook has no limit of its own in the API; this one bounds what a runtime has to hold.
pub(super) const NO_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Longest wait for the answer to an httpGet hook.
const HTTP_LIMIT: Duration = Duration::from_secs(30);

/// Output of a failed exec hook that is told.
const OUTPUT_TOLD: usize = 1024;

/// Runs a hook to its end, within `limit`.
///
/// # Errors
/// How it failed, in plain words.
pub(super) fn run(
    tools: &Tools,
    work: &PodWork,
    container: &Container,
    id: &ContainerId,
    hook: &LifecycleHandler,
    limit: Duration,
) -> Result<(), String> {
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
        return http(tools, work, container, id, get, limit);
    }
    if let Some(sleep) = &hook.sleep {
        let span = Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0));
        if work.cancel.wait(span.min(limit)) {
            return Err("given up on request".to_owned());
        }
        return if span > limit { Err("the grace period was over before the sleep".to_owned()) } else { Ok(()) };
    }
    Err("the hook has none of exec, httpGet and sleep".to_owned())
}

fn http(
    tools: &Tools,
    work: &PodWork,
    container: &Container,
    id: &ContainerId,
    get: &HTTPGetAction,
    limit: Duration,
) -> Result<(), String> {
    let port = port(container, &get.port)?;
    let host = match get.host.as_deref().filter(|h| !h.is_empty()) {
        Some(host) => host.to_owned(),
        None => pod_ip(tools, work, id)?,
    };
    let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
    let path = get.path.as_deref().unwrap_or_default();
    let slash = if path.starts_with('/') { "" } else { "/" };
    let scheme = get.scheme.as_deref().unwrap_or("HTTP").to_ascii_lowercase();
    let headers: Vec<(String, String)> =
        get.http_headers.iter().flatten().map(|h| (h.name.clone(), h.value.clone())).collect();
    let url = format!("{scheme}://{host}:{port}{slash}{path}");
    let status = tools.http.get(&url, &headers, limit.min(HTTP_LIMIT))?;
    if (200..400).contains(&status) { Ok(()) } else { Err(format!("GET {url} answered {status}")) }
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

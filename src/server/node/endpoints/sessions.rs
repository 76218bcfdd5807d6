//! `/exec`, `/attach` and `/portForward`: sessions that the container runtime serves, and `/run`, a command without one.
//!
//! On the threads that serve requests, as long as it takes to join a session; the relay's thread has it from then on. It asks the runtime for
//! the session's address and passes the client's wish on; what is said then is between the client and the runtime.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::super::NodeParts;
use super::super::http::head::Method;
use super::super::http::reply::TEXT;
use super::super::http::{Duplex, Reply, Request};
use super::find;
use crate::api::runtime::SandboxState;
use crate::api::runtime_info::StreamOptions;
use crate::cri::{Code, CriError};
use crate::msg::PodView;
use crate::server::relay::hello::{self, Answer};
use crate::server::relay::translate::{CLIENT_PROTOCOL, Channels, RUNTIME_PROTOCOL, Streams, TUNNEL, Tunnel};
use crate::server::relay::{Middle, Said, location, websocket};
use crate::util::metrics::kubelet;

/// How long a client may take nothing of the first words.
const STALL: Duration = Duration::from_secs(30);
/// How long a command of `/run` may take.
const RUN_LIMIT: Duration = Duration::from_secs(600);
/// Ports of one request.
const MAX_PORTS: usize = 1000;

/// `/exec/{namespace}/{pod}[/{uid}]/{container}`.
pub(in crate::server::node) fn exec(parts: &NodeParts, request: &mut Request<'_>) -> Reply {
    let session = || {
        let streams = stream_options(request)?;
        let pod = pod(parts, request)?;
        let container = request.param("container");
        let running = find::running(&pod, container)
            .ok_or_else(|| Reply::text(500, &format!("container not found ({container:?})")))?;
        let command: Vec<String> = request.query_all("command").map(str::to_owned).collect();
        let speech = Speech::of_streams(parts, request, streams)?;
        let url = parts.runtime.exec_url(&running.id, &command, streams, &parts.stop);
        Ok((url.map_err(|error| refused(&error))?, speech))
    };
    match session() {
        Ok((url, speech)) => join(parts, request, &url, speech, "exec"),
        Err(reply) => reply,
    }
}

/// `/attach/{namespace}/{pod}[/{uid}]/{container}`.
pub(in crate::server::node) fn attach(parts: &NodeParts, request: &mut Request<'_>) -> Reply {
    let session = || {
        let mut streams = stream_options(request)?;
        let pod = pod(parts, request)?;
        let (container, uid, full_name) = (request.param("container"), request.param("uid"), find::full_name(&pod));
        let running = find::running(&pod, container);
        let missing = || Reply::text(500, &format!("container {container} not found in pod {full_name}"));
        let running = running.ok_or_else(missing)?;
        if !uid.is_empty() && !find::has_uid(&parts.view.get(), &pod, uid) {
            return Err(Reply::text(500, &format!("pod {full_name} not found")));
        }
        // A process has a terminal or not from its start on.
        streams.tty = find::spec(&pod, container).ok_or_else(missing)?.tty.unwrap_or(false);
        let speech = Speech::of_streams(parts, request, streams)?;
        let url = parts.runtime.attach_url(&running.id, streams, &parts.stop);
        Ok((url.map_err(|error| refused(&error))?, speech))
    };
    match session() {
        Ok((url, speech)) => join(parts, request, &url, speech, "attach"),
        Err(reply) => reply,
    }
}

/// `/portForward/{namespace}/{pod}[/{uid}]`.
pub(in crate::server::node) fn port_forward(parts: &NodeParts, request: &mut Request<'_>) -> Reply {
    let session = || {
        let speech = Speech::of_ports(parts, request)?;
        let ports = if is_websocket(request) && speech == Speech::Same { ports(request)? } else { Vec::new() };
        let pod = pod(parts, request)?;
        let uid = request.param("uid");
        if !uid.is_empty() && !find::has_uid(&parts.view.get(), &pod, uid) {
            return Err(Reply::text(404, "pod not found"));
        }
        let sandboxes = pod.runtime.iter().flat_map(|runtime| &runtime.sandboxes);
        let ready = sandboxes.filter(|sandbox| sandbox.state == SandboxState::Ready);
        let Some(sandbox) = ready.max_by_key(|sandbox| (sandbox.attempt, sandbox.created_at)) else {
            return Err(Reply::text(500, &format!("pod not found ({:?})", find::full_name(&pod))));
        };
        must_upgrade(request)?;
        let url = parts.runtime.port_forward_url(&sandbox.id, &ports, &parts.stop);
        Ok((url.map_err(|error| refused(&error))?, speech))
    };
    match session() {
        Ok((url, speech)) => join(parts, request, &url, speech, "portforward"),
        Err(reply) => reply,
    }
}

/// `/run/{namespace}/{pod}[/{uid}]/{container}`: a command's output once it has ended.
pub(in crate::server::node) fn run(parts: &NodeParts, request: &mut Request<'_>) -> Reply {
    let output = || {
        let pod = pod(parts, request)?;
        let container = request.param("container");
        let running = find::running(&pod, container)
            .ok_or_else(|| Reply::text(500, &format!("container not found ({container:?})")))?;
        let command: Vec<String> = request.query("cmd").unwrap_or_default().split(' ').map(str::to_owned).collect();
        let ran = parts.runtime.exec_sync(&running.id, &command, RUN_LIMIT, &parts.stop);
        let ran = ran.map_err(|error| Reply::text(500, &error.rpc_text()))?;
        if ran.exit_code != 0 {
            let said = String::from_utf8_lossy(&ran.stderr);
            let text = format!("command '{}' exited with {}: {said}", command.join(" "), ran.exit_code);
            return Err(Reply::text(500, &text));
        }
        Ok([ran.stdout, ran.stderr].concat())
    };
    match output() {
        Ok(output) => Reply::json(output),
        Err(reply) => reply,
    }
}

/// Which streams a session has.
fn stream_options(request: &Request<'_>) -> Result<StreamOptions, Reply> {
    let has = |name: &str| request.query(name) == Some("1");
    let tty = has("tty");
    // With a terminal there is one output.
    let streams = StreamOptions { tty, stdin: has("input"), stdout: has("output"), stderr: has("error") && !tty };
    if !streams.stdin && !streams.stdout && !streams.stderr {
        return Err(Reply::text(400, "you must specify at least 1 of stdin, stdout, stderr"));
    }
    Ok(streams)
}

fn pod(parts: &NodeParts, request: &Request<'_>) -> Result<Arc<PodView>, Reply> {
    find::pod(&parts.view.get(), request.param("namespace"), request.param("pod"))
        .ok_or_else(|| Reply::text(404, "pod does not exist"))
}

fn is_websocket(request: &Request<'_>) -> bool {
    request.head.upgrade().is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket"))
}

fn must_upgrade(request: &Request<'_>) -> Result<(), Reply> {
    match request.head.upgrade() {
        Some(_) => Ok(()),
        None => Err(Reply::error(500, "Upgrade request required")),
    }
}

/// The ports that a client which can't name them later names in its query.
fn ports(request: &Request<'_>) -> Result<Vec<i32>, Reply> {
    let refuse = |text: String| Err(Reply::text(400, &text));
    let mut ports = Vec::new();
    for list in request.query_all("port") {
        if list.is_empty() {
            return refuse("query parameter \"port\" cannot be empty".to_owned());
        }
        for word in list.split(',') {
            match word.parse::<u16>() {
                Ok(0) => return refuse(format!("port {list:?} must be > 0")),
                Ok(port) => ports.push(i32::from(port)),
                Err(_) => return refuse(format!("unable to parse {list:?} as a port: {word:?} is no number of one")),
            }
            if ports.len() > MAX_PORTS {
                return refuse(format!("more than {MAX_PORTS} ports"));
            }
        }
    }
    if ports.is_empty() { refuse("query parameter \"port\" is required".to_owned()) } else { Ok(ports) }
}

/// What the runtime's no is for the client.
fn refused(error: &CriError) -> Reply {
    let text = error.rpc_text();
    match error.code() {
        Some(Code::NotFound) => Reply::text(404, &text),
        Some(Code::ResourceExhausted) => Reply::text(429, &text).with_header("Retry-After", "60"),
        _ => Reply::text(500, &text),
    }
}

/// How the client's frames become the runtime's.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Speech {
    /// They are the same.
    Same,
    /// Channels in WebSockets become streams in SPDY.
    Channels {
        /// The client's key.
        key: String,
        /// Which there are.
        streams: Streams,
    },
    /// SPDY in WebSockets.
    Tunnel {
        /// The client's key.
        key: String,
        /// The protocols in the tunnel that the client knows.
        protocols: Vec<String>,
    },
}

impl Speech {
    /// For exec and attach.
    fn of_streams(parts: &NodeParts, request: &Request<'_>, streams: StreamOptions) -> Result<Self, Reply> {
        must_upgrade(request)?;
        if !parts.streams.websockets || !protocols(request).any(|protocol| protocol == CLIENT_PROTOCOL) {
            return Ok(Self::Same);
        }
        let StreamOptions { tty, stdin, stdout, stderr } = streams;
        Ok(Self::Channels { key: key(request)?, streams: Streams { stdin, stdout, stderr, tty } })
    }

    /// For port forwarding.
    fn of_ports(parts: &NodeParts, request: &Request<'_>) -> Result<Self, Reply> {
        let carried = protocols(request).filter_map(|protocol| protocol.strip_prefix(TUNNEL));
        let protocols: Vec<String> = carried.filter(|one| one.ends_with(".k8s.io")).map(str::to_owned).collect();
        if !parts.streams.websockets || protocols.is_empty() {
            return Ok(Self::Same);
        }
        Ok(Self::Tunnel { key: key(request)?, protocols })
    }
}

/// The protocols within WebSockets that the client knows.
fn protocols<'a>(request: &'a Request<'_>) -> impl Iterator<Item = &'a str> {
    let of_websockets = is_websocket(request);
    let headers = request.head.headers.iter();
    let named = headers.filter(move |(name, _)| of_websockets && name.eq_ignore_ascii_case("sec-websocket-protocol"));
    named.flat_map(|(_, value)| value.split(',').map(str::trim))
}

fn key(request: &Request<'_>) -> Result<String, Reply> {
    let key = request.header("sec-websocket-key").filter(|key| !key.is_empty() && key.len() <= 64);
    let version = request.header("sec-websocket-version");
    key.filter(|_| version == Some("13")).map(str::to_owned).ok_or_else(|| Reply::error(400, "bad WebSocket handshake"))
}

/// Joins the session at this address, and hands it to the relay.
fn join(parts: &NodeParts, request: &Request<'_>, url: &str, speech: Speech, subresource: &str) -> Reply {
    // Those that pass through as they are are not told apart, as upstream.
    if speech != Speech::Same {
        kubelet::WEBSOCKET_REQUESTS.inc(&[subresource]);
    }
    let location = match location::parse(url) {
        Ok(location) => location,
        Err(why) => return Reply::error(500, &why),
    };
    let Some(place) = parts.streams.relay.reserve() else {
        return Reply::error(503, "there are too many sessions on this node");
    };
    let mut spdy = vec![("Upgrade", "SPDY/3.1")];
    match &speech {
        Speech::Same => spdy.clear(),
        Speech::Channels { .. } => spdy.push(("X-Stream-Protocol-Version", RUNTIME_PROTOCOL)),
        Speech::Tunnel { protocols, .. } => {
            spdy.extend(protocols.iter().map(|protocol| ("X-Stream-Protocol-Version", protocol.as_str())));
        }
    }
    let method = if request.method() == Method::Post || !spdy.is_empty() { "POST" } else { "GET" };
    let asks =
        hello::request(method, &location, &request.head.headers, Some(&spdy[..]).filter(|spdy| !spdy.is_empty()));
    let (stream, head, rest) = match hello::greet(&location, &asks) {
        Ok(Answer::Switched { stream, head, rest }) => (stream, head, rest),
        Ok(Answer::Refused { status, text }) => return Reply::new(status, TEXT, text),
        Err(why) => return Reply::error(500, &why),
    };
    let begun = match speech {
        Speech::Same => Begun { to_client: [head, rest].concat(), to_runtime: Vec::new(), middle: None },
        Speech::Channels { key, streams } => {
            let channels = Channels::new(streams);
            let to_client = [websocket::accept(&key, CLIENT_PROTOCOL), channels.greeting()].concat();
            let to_runtime = channels.opening();
            match begin(Box::new(channels), &rest, to_client, to_runtime) {
                Ok(begun) => begun,
                Err(why) => return Reply::error(500, &why),
            }
        }
        Speech::Tunnel { key, .. } => {
            let head = String::from_utf8_lossy(&head);
            let chosen = hello::header(&head, "x-stream-protocol-version").unwrap_or_default();
            let to_client = websocket::accept(&key, &format!("{TUNNEL}{chosen}"));
            match begin(Box::<Tunnel>::default(), &rest, to_client, Vec::new()) {
                Ok(begun) => begun,
                Err(why) => return Reply::error(500, &why),
            }
        }
    };
    let relay = Arc::clone(&parts.streams.relay);
    Reply::take_over(move |mut client: Duplex| {
        let mut runtime = stream;
        // The runtime's socket is new, and these are few bytes.
        let told = io::Write::write_all(&mut runtime, &begun.to_runtime);
        let told = told.and_then(|()| client.send(&begun.to_client, STALL));
        let served = told.and_then(|()| relay.serve(place, Box::new(client), Box::new(runtime), begun.middle));
        if let Err(error) = served {
            log::debug!("a session does not begin: {error}");
        }
    })
}

/// A session's first words to both sides.
struct Begun {
    to_client: Vec<u8>,
    to_runtime: Vec<u8>,
    middle: Option<Box<dyn Middle>>,
}

/// With what the runtime said already.
fn begin(mut middle: Box<dyn Middle>, rest: &[u8], to_client: Vec<u8>, to_runtime: Vec<u8>) -> Result<Begun, String> {
    let mut said = Said::default();
    if !rest.is_empty() {
        middle.runtime_said(rest, &mut said)?;
    }
    let (to_client, to_runtime) = ([to_client, said.to_client].concat(), [to_runtime, said.to_runtime].concat());
    Ok(Begun { to_client, to_runtime, middle: Some(middle) })
}

#[cfg(test)]
mod tests;

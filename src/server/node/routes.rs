//! Every endpoint of the node's server, one line each.
//!
//! Pure data. A new endpoint is a line here and a function in `endpoints/`. The first line whose path and method fit counts.

use super::endpoint::{Endpoint, Group, Handle, Lasts};
use super::endpoints::{checkpoint, container_logs, debug, health, node_logs, pods, sessions, stats, zpages};
use super::http::head::Method;
use super::http::head::Method::{Get, Post};
use Group::{Always, DebugFlags, Debugging, Profiling, SystemLogs};

const fn short(methods: &'static [Method], path: &'static str, group: Group, handle: Handle) -> Endpoint {
    Endpoint { methods, path, group, lasts: Lasts::Short, handle }
}

/// For answers that last as long as the client likes.
const fn long(methods: &'static [Method], path: &'static str, group: Group, handle: Handle) -> Endpoint {
    Endpoint { methods, path, group, lasts: Lasts::Long, handle }
}

/// The table.
pub static ROUTES: &[Endpoint] = &[
    short(&[], "/healthz", Always, health::all),
    short(&[], "/healthz/{check}", Always, health::one),
    short(&[Get, Post], "/stats/summary", Always, stats::summary),
    short(&[], "/metrics", Always, stats::metrics),
    short(&[], "/metrics/cadvisor", Always, stats::containers),
    short(&[], "/metrics/resource", Always, stats::resource),
    short(&[], "/metrics/probes", Always, stats::probes),
    short(&[], "/metrics/slis", Always, stats::slis),
    short(&[Get], "/pods", Always, pods::wanted),
    short(&[Get], "/runningpods/", Debugging, pods::running),
    short(&[], "/configz", Debugging, zpages::configuration),
    short(&[], "/flagz", Debugging, zpages::flags),
    short(&[], "/statusz", Debugging, zpages::status),
    short(&[], "/debug/flags/v", DebugFlags, debug::verbosity),
    short(&[Get], "/debug/pprof/{name:*}", Profiling, debug::profile),
    long(&[Get], "/containerLogs/{namespace}/{pod}/{container}", Debugging, container_logs::container),
    long(&[Get], "/logs/{path:*}", SystemLogs, node_logs::logs),
    long(&[Get, Post], "/exec/{namespace}/{pod}/{container}", Debugging, sessions::exec),
    long(&[Get, Post], "/exec/{namespace}/{pod}/{uid}/{container}", Debugging, sessions::exec),
    long(&[Get, Post], "/attach/{namespace}/{pod}/{container}", Debugging, sessions::attach),
    long(&[Get, Post], "/attach/{namespace}/{pod}/{uid}/{container}", Debugging, sessions::attach),
    long(&[Get, Post], "/portForward/{namespace}/{pod}", Debugging, sessions::port_forward),
    long(&[Get, Post], "/portForward/{namespace}/{pod}/{uid}", Debugging, sessions::port_forward),
    long(&[Post], "/run/{namespace}/{pod}/{container}", Debugging, sessions::run),
    long(&[Post], "/run/{namespace}/{pod}/{uid}/{container}", Debugging, sessions::run),
    long(&[Post], "/checkpoint/{namespace}/{pod}/{container}", Debugging, checkpoint::checkpoint),
];

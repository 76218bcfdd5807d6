//! What an endpoint is, and how one is found for a request.
//!
//! Pure. A request was authenticated and authorized before it comes here, by its path alone (the fine-grained subresources of
//! `nodes`, as upstream): an endpoint can't forget it. A path that is nobody's is authorized too before it is said that nobody serves it.

use super::http::head::Method;
use super::http::target::is_clean;
use super::http::{Reply, Request};
use super::parts::NodeParts;

/// Answers one request. It runs on a worker thread; a panic becomes a 500.
pub type Handle = fn(&NodeParts, &mut Request<'_>) -> Reply;

/// Which switch an endpoint hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Always there, and on the read-only port as well.
    Always,
    /// `enableDebuggingHandlers`.
    Debugging,
    /// That, and `enableSystemLogHandler`.
    SystemLogs,
    /// That, and `enableProfilingHandler`.
    Profiling,
    /// That, and `enableDebugFlagsHandler`.
    DebugFlags,
}

/// How long an answer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasts {
    /// As long as it takes to write it.
    Short,
    /// As long as the client likes: logs that are followed, sessions. Only a part of the threads serves these, so that some are left
    /// for the short ones; when all of it is taken the answer is 503.
    Long,
}

/// One endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    /// Methods; empty for any. GET does not stand for HEAD.
    pub methods: &'static [Method],
    /// Path: `{name}` is one segment, `{name:*}` the rest, slashes and all, which may be empty. Whether a slash stands at the end
    /// makes no difference.
    pub path: &'static str,
    /// Its switch.
    pub group: Group,
    /// How long it takes.
    pub lasts: Lasts,
    /// What answers.
    pub handle: Handle,
}

/// What there is for a method and path.
#[derive(Debug)]
pub enum Found {
    /// This, with what stood in the places of its path.
    Endpoint(&'static Endpoint, Vec<(&'static str, String)>),
    /// The path is known, with these methods.
    OtherMethods(Vec<Method>),
    /// Nothing.
    Nothing,
}

/// Finds the endpoint: the first in the table whose path and method fit.
pub fn find(table: &'static [Endpoint], method: Method, path: &str) -> Found {
    if !is_clean(path) {
        return Found::Nothing;
    }
    let mut others = Vec::new();
    for endpoint in table {
        let Some(params) = fit(endpoint.path, path) else { continue };
        if endpoint.methods.is_empty() || endpoint.methods.contains(&method) {
            return Found::Endpoint(endpoint, params);
        }
        others.extend_from_slice(endpoint.methods);
    }
    if others.is_empty() { Found::Nothing } else { Found::OtherMethods(others) }
}

fn fit(pattern: &'static str, path: &str) -> Option<Vec<(&'static str, String)>> {
    let mut params = Vec::new();
    let mut rest = path.trim_start_matches('/');
    for part in pattern.trim_matches('/').split('/') {
        let name = part.strip_prefix('{').and_then(|part| part.strip_suffix('}'));
        if let Some(name) = name.and_then(|name| name.strip_suffix(":*")) {
            params.push((name, rest.to_owned()));
            return Some(params);
        }
        let (segment, after) = rest.split_once('/').unwrap_or((rest, ""));
        match name {
            Some(name) if !segment.is_empty() => params.push((name, segment.to_owned())),
            None if segment == part => {}
            _ => return None,
        }
        rest = after;
    }
    rest.is_empty().then_some(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn endpoint(methods: &'static [Method], path: &'static str) -> Endpoint {
        fn handle(_: &NodeParts, _: &mut Request<'_>) -> Reply {
            Reply::text(200, "ok")
        }
        Endpoint { methods, path, group: Group::Always, lasts: Lasts::Short, handle }
    }

    static TABLE: &[Endpoint] = &[
        endpoint(&[Method::Get], "/pods"),
        endpoint(&[], "/metrics"),
        endpoint(&[], "/metrics/probes"),
        endpoint(&[Method::Get], "/exec/{namespace}/{pod}/{container}"),
        endpoint(&[Method::Post], "/exec/{namespace}/{pod}/{container}"),
        endpoint(&[Method::Get], "/exec/{namespace}/{pod}/{uid}/{container}"),
        endpoint(&[Method::Get], "/logs/{path:*}"),
    ];

    fn check(method: Method, path: &str, expect: &str) {
        let got = match find(TABLE, method, path) {
            Found::Endpoint(endpoint, params) => {
                let params: Vec<String> = params.iter().map(|(name, value)| format!(" {name}={value}")).collect();
                format!("{}{}", endpoint.path, params.concat())
            }
            Found::OtherMethods(methods) => format!("{methods:?}"),
            Found::Nothing => "nothing".to_owned(),
        };
        assert_eq!(got, expect, "{} {path}", method.as_str());
    }

    #[test]
    fn requests_find_their_endpoint() {
        use Method::{Delete, Get, Head, Post};
        check(Get, "/pods", "/pods");
        check(Get, "/pods/", "/pods");
        check(Head, "/pods", "[Get]");
        check(Get, "/podsx", "nothing");
        check(Get, "/pods/x", "nothing");
        check(Get, "//pods", "nothing");
        check(Get, "/metrics/../pods", "nothing");
        check(Delete, "/metrics", "/metrics");
        check(Head, "/metrics/probes", "/metrics/probes");
        check(Get, "/metrics/other", "nothing");
        check(Post, "/exec/a/b/c", "/exec/{namespace}/{pod}/{container} namespace=a pod=b container=c");
        check(Get, "/exec/a/b/u/c", "/exec/{namespace}/{pod}/{uid}/{container} namespace=a pod=b uid=u container=c");
        check(Delete, "/exec/a/b/c", "[Get, Post]");
        check(Get, "/exec/a/b", "nothing");
        check(Get, "/exec/a/b/c/d/e", "nothing");
        check(Get, "/logs", "/logs/{path:*} path=");
        check(Get, "/logs/", "/logs/{path:*} path=");
        check(Get, "/logs/a/b.log", "/logs/{path:*} path=a/b.log");
        check(Get, "/logs/a/../../etc/shadow", "nothing");
        check(Get, "/", "nothing");
        check(Get, "", "nothing");
    }
}

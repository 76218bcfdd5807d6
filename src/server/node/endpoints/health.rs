//! `/healthz` and its checks.
//!
//! On the threads that serve requests; asks the checks, which end within seconds.

use std::fmt::Write as _;

use super::super::NodeParts;
use super::super::http::{Reply, Request};
use crate::util::order;

/// `/healthz`: all checks. Why one fails is told on its own path, since this one may be open to more callers.
pub(in crate::server::node) fn all(parts: &NodeParts, request: &mut Request<'_>) -> Reply {
    let excluded: Vec<&str> = request.query_all("exclude").collect();
    let (mut text, mut failed) = (String::new(), Vec::new());
    for check in parts.checks.iter() {
        let name = check.name();
        // Writing to a String cannot fail.
        let _written = if excluded.contains(&name) {
            writeln!(text, "[+]{name} excluded: ok")
        } else if let Err(why) = check.run() {
            log::debug!("the health check {name} failed: {why}");
            failed.push(name);
            writeln!(text, "[-]{name} failed: reason withheld")
        } else {
            writeln!(text, "[+]{name} ok")
        };
    }
    let mut unknown: Vec<&str> = excluded;
    unknown.retain(|name| parts.checks.iter().all(|check| check.name() != *name));
    order::sort(&mut unknown);
    unknown.dedup();
    if !unknown.is_empty() {
        let unknown: Vec<String> = unknown.iter().map(|name| format!("{name:?}")).collect();
        let _written =
            writeln!(text, "warn: some health checks cannot be excluded: no matches for {}", unknown.join(","));
    }
    if !failed.is_empty() {
        return Reply::error(500, &format!("{text}healthz check failed"));
    }
    let text = if request.query("verbose").is_some() { text + "healthz check passed\n" } else { "ok".to_owned() };
    Reply::text(200, &text).with_header("X-Content-Type-Options", "nosniff")
}

/// `/healthz/{check}`: one of them.
pub(in crate::server::node) fn one(parts: &NodeParts, request: &mut Request<'_>) -> Reply {
    let name = request.param("check");
    match parts.checks.iter().find(|check| check.name() == name) {
        None => Reply::error(404, "404 page not found"),
        Some(check) => match check.run() {
            Ok(()) => Reply::text(200, "ok"),
            Err(why) => Reply::error(500, &format!("internal server error: {why}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::http::request::with_request;
    use super::*;
    use crate::server::health::Check;
    use std::sync::Arc;

    fn check(query: &str, broken: bool, status: u16, expect: &str) {
        let pleg = move || if broken { Err("not listed".to_owned()) } else { Ok(()) };
        let parts = NodeParts { checks: Arc::new([Check::ping(), Check::new("pleg", pleg)]), ..NodeParts::for_tests() };
        let reply = with_request(&format!("GET /healthz{query}"), "", |request| match query.strip_prefix('/') {
            Some(name) => {
                request.params.push(("check", name.to_owned()));
                one(&parts, request)
            }
            None => all(&parts, request),
        });
        assert_eq!(reply.status(), status, "{query}");
        assert_eq!(String::from_utf8(reply.into_bytes().expect("a body")).expect("text"), expect, "{query}");
    }

    #[test]
    fn health_is_told_in_upstreams_words() {
        check("", false, 200, "ok");
        check("?verbose", false, 200, "[+]ping ok\n[+]pleg ok\nhealthz check passed\n");
        check("", true, 500, "[+]ping ok\n[-]pleg failed: reason withheld\nhealthz check failed\n");
        check("?exclude=pleg", true, 200, "ok");
        check(
            "?verbose=1&exclude=pleg&exclude=zebra",
            true,
            200,
            "[+]ping ok\n[+]pleg excluded: ok\n\
             warn: some health checks cannot be excluded: no matches for \"zebra\"\nhealthz check passed\n",
        );
        check("/ping", true, 200, "ok");
        check("/pleg", true, 500, "internal server error: not listed\n");
        check("/zebra", false, 404, "404 page not found\n");
    }
}

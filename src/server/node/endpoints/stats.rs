//! `/stats/summary` and the `/metrics` family.
//!
//! On the threads that serve requests; the numbers are read while they are written, see [`crate::server::stats`].

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::NodeParts;
use super::super::http::{Reply, Request};
use crate::server::stats::Stats;
use crate::util::metrics::{Kind, Text};

/// What Prometheus asks for.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `/stats/summary`.
pub(in crate::server::node) fn summary(parts: &NodeParts, request: &mut Request<'_>) -> Reply {
    let only = match request.query("only_cpu_and_memory") {
        None | Some("") => false,
        // What Go's ParseBool takes; anything else counts as false there.
        Some(word) => matches!(word, "1" | "t" | "T" | "true" | "TRUE" | "True"),
    };
    let stats = Arc::clone(&parts.stats);
    Reply::stream("application/json", move |out| stats.summary(only, out))
}

fn text(parts: &NodeParts, write: fn(&Stats, &mut dyn Write) -> io::Result<()>) -> Reply {
    let stats = Arc::clone(&parts.stats);
    Reply::stream(TEXT, move |out| write(&stats, out))
}

/// `/metrics`, with what the server itself counts.
pub(in crate::server::node) fn metrics(parts: &NodeParts, _: &mut Request<'_>) -> Reply {
    let (stats, counts) = (Arc::clone(&parts.stats), Arc::clone(&parts.counts));
    Reply::stream(TEXT, move |out| {
        stats.metrics(out)?;
        let mut text = Text::new(out);
        for (name, help, count) in [
            ("ferrolet_node_connections_total", "Connections to the node's server.", &counts.connections),
            (
                "ferrolet_node_connections_crowded_out_total",
                "Connections that were closed to make room for others.",
                &counts.crowded_out,
            ),
            ("ferrolet_node_connections_refused_total", "Connections on which no request came.", &counts.refused),
            ("ferrolet_node_connections_too_slow_total", "Connections whose request took too long.", &counts.too_slow),
        ] {
            text.head(name, Kind::Counter, help);
            text.sample(name, "", count.load(Ordering::Relaxed).into());
        }
        text.finish()
    })
}

/// `/metrics/cadvisor`.
pub(in crate::server::node) fn containers(parts: &NodeParts, _: &mut Request<'_>) -> Reply {
    text(parts, Stats::container_metrics)
}

/// `/metrics/resource`.
pub(in crate::server::node) fn resource(parts: &NodeParts, _: &mut Request<'_>) -> Reply {
    text(parts, Stats::resource_metrics)
}

/// `/metrics/probes`.
pub(in crate::server::node) fn probes(parts: &NodeParts, _: &mut Request<'_>) -> Reply {
    text(parts, Stats::probe_metrics)
}

/// `/metrics/slis`.
pub(in crate::server::node) fn slis(parts: &NodeParts, _: &mut Request<'_>) -> Reply {
    text(parts, Stats::sli_metrics)
}

#[cfg(test)]
mod tests {
    use super::super::super::endpoint::Handle;
    use super::super::super::http::request::with_request;
    use super::*;

    fn check(handle: Handle, target: &str, content_type: &str, begins: &str) {
        let parts = NodeParts::for_tests();
        let reply = with_request(&format!("GET {target}"), "", |request| handle(&parts, request));
        assert_eq!((reply.status(), reply.header("Content-Type")), (200, Some(content_type)), "{target}");
        let text = String::from_utf8(reply.into_bytes().expect("a body")).expect("text");
        assert!(text.starts_with(begins), "{target}: {text}");
    }

    #[test]
    fn numbers_are_served() {
        check(summary, "/stats/summary", "application/json", "{\"node\":{\"nodeName\":\"n1\"");
        check(summary, "/stats/summary?only_cpu_and_memory=true", "application/json", "{\"node\":{\"nodeName\":\"n1\"");
        check(metrics, "/metrics", TEXT, "# HELP kubelet_");
        check(containers, "/metrics/cadvisor", TEXT, "# HELP container_");
        check(resource, "/metrics/resource", TEXT, "# HELP resource_scrape_error");
        check(probes, "/metrics/probes", TEXT, "# HELP pro");
        check(slis, "/metrics/slis", TEXT, "# HELP kubernetes_healthcheck ");
    }
}

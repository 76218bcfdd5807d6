//! `/stats/summary` and the `/metrics` family.
//!
//! On the threads that serve requests; the numbers are read while they are written, see [`crate::server::stats`].

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::super::NodeParts;
use super::super::http::reply::StreamOut;
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

fn text(parts: &NodeParts, request: &Request<'_>, write: fn(&Stats, &mut dyn Write) -> io::Result<()>) -> Reply {
    let stats = Arc::clone(&parts.stats);
    page(request, move |out| write(&stats, out))
}

/// A page of metrics, compressed where the caller says that it reads that (Prometheus does). What is compressed goes out as it
/// comes; the compressor's memory is a third of a megabyte, and gone with the answer.
fn page(request: &Request<'_>, write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static) -> Reply {
    if !reads_gzip(request.header("accept-encoding").unwrap_or_default()) {
        return Reply::stream(TEXT, move |out| write(out));
    }
    let compressed = move |out: &mut dyn StreamOut| {
        // A level more is a tenth fewer bytes for twice the time.
        let mut packer = GzEncoder::new(out, Compression::fast());
        write(&mut packer)?;
        packer.finish().map(drop)
    };
    Reply::stream(TEXT, compressed).with_header("Content-Encoding", "gzip")
}

/// Whether an `Accept-Encoding` header takes gzip.
fn reads_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|one| {
        let mut parts = one.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let is_refused = |weight: &str| weight.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0));
        is_gzip && !parts.any(is_refused)
    })
}

/// `/metrics`, with what the server itself counts.
pub(in crate::server::node) fn metrics(parts: &NodeParts, request: &mut Request<'_>) -> Reply {
    let (stats, counts) = (Arc::clone(&parts.stats), Arc::clone(&parts.counts));
    page(request, move |out| {
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
pub(in crate::server::node) fn containers(parts: &NodeParts, request: &mut Request<'_>) -> Reply {
    text(parts, request, Stats::container_metrics)
}

/// `/metrics/resource`.
pub(in crate::server::node) fn resource(parts: &NodeParts, request: &mut Request<'_>) -> Reply {
    text(parts, request, Stats::resource_metrics)
}

/// `/metrics/probes`.
pub(in crate::server::node) fn probes(parts: &NodeParts, request: &mut Request<'_>) -> Reply {
    text(parts, request, Stats::probe_metrics)
}

/// `/metrics/slis`.
pub(in crate::server::node) fn slis(parts: &NodeParts, request: &mut Request<'_>) -> Reply {
    text(parts, request, Stats::sli_metrics)
}

#[cfg(test)]
mod tests {
    use super::super::super::endpoint::Handle;
    use super::super::super::http::request::with_request;
    use super::*;
    use std::io::Read as _;

    fn check(handle: Handle, target: &str, content_type: &str, begins: &str) {
        let parts = NodeParts::for_tests();
        let reply = with_request(&format!("GET {target}"), "", |request| handle(&parts, request));
        assert_eq!((reply.status(), reply.header("Content-Type")), (200, Some(content_type)), "{target}");
        let text = String::from_utf8(reply.into_bytes().expect("a body")).expect("text");
        assert!(text.starts_with(begins), "{target}: {text}");
    }

    #[test]
    fn metrics_are_compressed_for_who_reads_that() {
        let parts = NodeParts::for_tests();
        let ask = |accepted: &str| {
            with_request("GET /metrics/slis", "", |request| {
                request.head.headers.push(("Accept-Encoding".to_owned(), accepted.to_owned()));
                slis(&parts, request)
            })
        };
        let plain = ask("identity").into_bytes().expect("a body");
        for (accepted, is_packed) in [
            ("gzip", true),
            ("zstd, deflate;q=0.5, GZIP;q=0.1", true),
            ("gzip;q=0", false),
            ("gzip; q=0.000, br", false),
            ("x-gzip", false),
            ("", false),
        ] {
            let reply = ask(accepted);
            let encoding = reply.header("Content-Encoding").map(str::to_owned);
            let mut bytes = reply.into_bytes().expect("a body");
            assert_eq!(encoding.as_deref(), is_packed.then_some("gzip"), "{accepted:?}");
            if is_packed {
                let mut text = Vec::new();
                flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut text).expect("gzip");
                bytes = text;
            }
            assert_eq!(bytes.len(), plain.len(), "{accepted:?}");
        }
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
